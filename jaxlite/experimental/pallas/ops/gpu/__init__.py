"""Kernels that come with Pallas, under the names of those for GPUs."""
