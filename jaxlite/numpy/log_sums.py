"""Logarithms of sums of two powers, with derivatives of their own."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.numpy.api import strong_arrays
from jaxlite.numpy.arithmetic import constant, kind_of, known_below_zero, remainder_of, where_same
from jaxlite.transforms.custom_derivatives import SymbolicZero, custom_jvp


def _log_add(name: str, exponential: Callable, base: float) -> Callable[[Any, Any], Any]:
    """log(b^x + b^y) to base b, which neither overflows nor underflows."""
    log_base = math.log(base)

    def scaled(x, factor):
        return x if base == math.e else lax.mul(constant(factor, x), x)

    def lesser_of(x, y):
        """The lesser power over the greater one."""
        return exponential(known_below_zero(-lax.abs(lax.sub(x, y))))

    def of_finite(x, y):  # x or y: without a selection XLA:CPU hands this, and what sums it up, to a fast library
        return lax.max(x, y) + scaled(lax.log1p(lesser_of(x, y)), 1 / log_base)

    def of_reals(x, y):
        difference = lax.sub(x, y)
        return where_same(difference != difference, x + y, of_finite(x, y))  # infinities of one sign, or NaN

    @custom_jvp
    def shares(x, y):
        """The share of each power in the sum; the first has all if both are infinite."""
        difference, is_first = lax.sub(x, y), x >= y
        are_infinite = is_first & (difference != difference)
        lesser = lesser_of(x, y)
        total, zero, one = 1 + lesser, constant(0, lesser), constant(1, lesser)
        # A quotient for each, since XLA:CPU writes one that both have in common to memory; and a selection last, since it
        # writes both operands of a quotient that is summed up.
        return (where_same(are_infinite, one, where_same(is_first, one, lesser) / total),
                where_same(are_infinite, zero, where_same(is_first, lesser, one) / total))

    @shares.defjvp
    def shares_jvp(primals, tangents):  # also where x = y, and abs has no derivative
        one, other = shares(*primals)
        tangent = scaled(one * other * lax.sub(*tangents), log_base)
        return (one, other), (tangent, -tangent)

    def derivable(function):
        def jvp(primals, tangents):
            terms = [tangent * share for tangent, share in zip(tangents, shares(*primals), strict=True)
                     if not isinstance(tangent, SymbolicZero)]
            return function(*primals), functools.reduce(operator.add, terms)

        function.__name__ = name  # in jaxprs
        result = custom_jvp(function)
        result.defjvp(jvp, symbolic_zeros=True)
        return result

    finite, real = derivable(of_finite), derivable(of_reals)

    @strong_arrays
    def of_complex(x, y):
        swap = lax.real(x) < lax.real(y)
        top, low = where_same(swap, y, x), where_same(swap, x, y)
        sum = top + scaled(lax.log1p(exponential(low - top)), 1 / log_base)
        half, whole = (constant(turn / log_base, lax.real(sum)) for turn in (math.pi, 2 * math.pi))
        angle = remainder_of(lax.imag(sum) + half, whole)
        return lax.complex(lax.real(sum), angle - half)

    def operation(x, y):
        if kind_of(x) == "c":
            return of_complex(x, y)
        return (finite if any(isinstance(each, np.generic) and np.isfinite(each) for each in (x, y)) else real)(x, y)

    return operation


def _log_sum(exponential: Callable, base: float) -> Callable[[Any, tuple[int, ...]], Any]:
    """log(sum(b^x)) to base b, over axes; minus infinity of nothing."""

    def fold(x, axes: tuple[int, ...]):
        peak = lax.reduce_max(lax.real(x) if kind_of(x) == "c" else x, axes)
        peak = lax.stop_gradient(lax.select(lax.is_finite(peak), peak, lax.full_like(peak, 0)))
        peak = lax.convert_element_type(peak, x.dtype)
        total = lax.log(lax.reduce_sum(exponential(lax.sub(x, lax.expand_dims(peak, axes))), axes))
        return (total if base == math.e else lax.mul(constant(1 / math.log(base), total), total)) + peak

    return fold


log_sum, log2_sum = _log_sum(lax.exp, math.e), _log_sum(lax.exp2, 2)
log_add = _log_add("logaddexp", lax.exp, math.e)
log2_add = _log_add("logaddexp2", lax.exp2, 2)
