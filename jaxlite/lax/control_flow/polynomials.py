"""Polynomials: unrolled if they are short, loops if they are long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlite.core.tracing import Tracer
from jaxlite.core.values import aval_of
from jaxlite.lax import elementwise as ew
from jaxlite.lax import shaping
from jaxlite.lax.control_flow.scan import scan


def polynomial(x, coeffs: Sequence[Any], *, unroll: int | None = None):
    """c0 + c1 x + c2 x^2 + ... by Horner's rule, in x's dtype.

    Args:
      coeffs: c0, c1, ...: scalars, or arrays of x's rank that fit its shape.
      unroll: how many terms are written out; with more it is a loop. Default: 8.

    >>> polynomial(3.0, [1.0, 5.0, 2.0])
    Array(34., dtype=float32, weak_type=True)
    """
    aval = aval_of(x)
    terms = [shaping.convert(each, aval.dtype, aval.weak_type and not aval.shape and not isinstance(each, Tracer)
                             and not aval_of(each).shape) for each in coeffs]  # the weak types of JAX
    start = shaping.full_like(x, 0)
    if len(terms) <= (8 if unroll is None else unroll):
        for term in terms[::-1]:
            start = ew.add(ew.mul(start, x), term)
        return start
    shape = shaping.broadcast_shapes(aval_of(x).shape, *(aval_of(term).shape for term in terms))
    x, start, *terms = (shaping.broadcast_in_dim(each, shape, range(aval_of(each).ndim)) for each in (x, start, *terms))
    return scan(lambda value, term: (ew.add(ew.mul(value, x), term), None), start, shaping.stack(terms[::-1]))[0]
