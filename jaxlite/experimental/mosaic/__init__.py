"""Tools for kernels on NVIDIA GPUs: here the timing of kernels alone. `jax.experimental.pallas` runs kernels without Mosaic."""
