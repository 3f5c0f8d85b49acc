"""Device code of kernels: the lowering of `pallas_call` without interpret mode."""
