"""Mutable arrays: Refs in programs. Their types are in `core`, what becomes of them before lowering in `core/discharge.py`."""
