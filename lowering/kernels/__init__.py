"""Code of kernels for devices: what a `pallas_call` is lowered to where it is not interpreted."""
