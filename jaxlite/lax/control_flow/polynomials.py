"""Polynomials: an operation if they are short, loops if they are long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlite.core.lazy import loader
from jaxlite.core.tracing import Tracer
from jaxlite.core.values import aval_of
from jaxlite.lax import elementwise as ew
from jaxlite.lax import shaping

_with_derivative = loader("jaxlite.numpy.polynomials")  # which is a polynomial, where that of a loop would keep all its steps
_FEW = 8  # coefficients, unless the caller has another limit


def polynomial(x, coeffs: Sequence[Any], *, unroll: int | None = None):
    """c0 + c1 x + c2 x^2 + ... by Horner's rule, in x's dtype.

    Args:
      coeffs: c0, c1, ...: scalars, or arrays of x's rank that fit its shape.
      unroll: how many terms are written out; with more it is a loop. Default: 8.

    >>> polynomial(3.0, [1.0, 5.0, 2.0])
    Array(34., dtype=float32, weak_type=True)
    """
    aval = aval_of(x)
    is_weak = aval.weak_type and not aval.shape
    convert = lambda each, rank=0: shaping.convert(  # to the weak types of JAX
        each, aval.dtype, is_weak and not isinstance(each, Tracer) and len(aval_of(each).shape) == rank)
    is_loop = len(coeffs) > (_FEW if unroll is None else unroll)
    if is_loop and hasattr(coeffs, "dtype"):  # XLA compiles for long what takes an array apart
        terms = shaping.rev(convert(coeffs, 1), [0])
        shape = shaping.broadcast_shapes(aval.shape, aval_of(terms).shape[1:])
    else:
        each_term = [convert(each) for each in coeffs][::-1]
        if not is_loop and len(coeffs) > 1:
            return ew.polynomial_p.bind(x, *each_term[::-1], **({} if unroll is None else {"unroll": unroll}))
        shapes = [aval_of(term).shape for term in each_term]
        shape = shaping.broadcast_shapes(aval.shape, *shapes)
        if not is_loop:
            return _broadcast(each_term[0], shape) if each_term else shaping.full_like(x, 0)
        if any(shapes):
            each_term = [_broadcast(term, shape) for term in each_term]
        terms = shaping.stack(each_term)
    return _with_derivative().horner(terms, _broadcast(x, shape), max(1, _FEW if unroll is None else unroll))


def _broadcast(x: Any, shape: tuple[int, ...]) -> Any:
    return shaping.broadcast_in_dim(x, shape, range(aval_of(x).ndim))
