"""The log of a compile under the name `jax`: a line for each stage with JAX's logger and first words, which programs and tests
look for (to count compiles, or to silence them)."""

from __future__ import annotations

import logging
from typing import Any

from lowering import report


def log_stages(name: str, closed: Any, seconds: dict[str, float], cache: str) -> None:
    """Log one compile: `lowering.report.log` has the arguments."""
    dispatch = report.logger()
    types = ", ".join(var.aval.str_short() for var in closed.jaxpr.invars)
    dispatch.warning(f"Finished tracing {name} for jit in {seconds['trace']:.9f} sec")
    logging.getLogger("jax._src.interpreters.pxla").warning(f"Compiling jit({name}) with global shapes and types ({types}).")
    dispatch.warning(f"Finished jaxpr to MLIR module conversion jit({name}) in {seconds['lower']:.9f} sec")
    found = "" if cache == "off" else f" (cache {cache})"
    dispatch.warning(f"Finished XLA compilation of jit({name}) in {seconds['compile']:.9f} sec{found}")
