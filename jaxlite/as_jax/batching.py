"""`jax._src.interpreters.batching`: what libraries with batches of their own take from there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlite import lax
from jaxlite.core.values import aval_of
from jaxlite.lax.shaping import canonical_axis
from jaxlite.traces.batching import BatchTrace, BatchTracer


def make_iota(axis_size: int) -> Any:
    """The numbers of the examples of a batch."""
    return lax.iota("int32", int(axis_size))


def to_elt(trace: BatchTrace, get_idx: Callable[[], Any], x: Any, spec: int | None) -> Any:
    """One example of a batch along an axis, as a tracer; what is not batched as it is."""
    return x if spec is None else BatchTracer(trace, x, canonical_axis(spec, aval_of(x).ndim))
