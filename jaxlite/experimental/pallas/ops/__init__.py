"""Kernels that come with Pallas."""
