"""Mutable arrays: Refs in programs. `core` has their types, `core/discharge.py` their removal before lowering."""
