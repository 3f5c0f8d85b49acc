"""jaxlite beside JAX: the same program text, timed in alternating subprocesses. Start at `benchmarks.run`."""
