"""StableHLO rules of the special functions, which are CHLO operations."""

from __future__ import annotations

import functools
import math
from typing import Any

import ml_dtypes
import numpy as np

from lowering.rules import lowers
from lowering.rules.elementwise import broadcast_operands


def _chlo(primitive: str) -> None:
    @lowers(primitive)
    def rule(ctx: Any, *operands: Any, accuracy: Any = None) -> Any:  # how exact `erfc` is, XLA cannot be told
        aval = ctx.aval_out
        operands = tuple(broadcast_operands(ctx, operands))
        if aval.dtype.itemsize > 1:
            return ctx.emit1(f"chlo.{primitive}", *operands)
        # XLA has not all of these for 8-bit floats.
        single = np.dtype(np.float32)
        wide = [ctx.convert(x, aval.shape, single) for x in operands]
        return ctx.convert(ctx.value(f"chlo.{primitive}", wide, aval.shape, single), aval.shape, aval.dtype)


for _primitive in ("erf", "erfc", "erf_inv", "polygamma", "zeta", "bessel_i1e"):
    _chlo(_primitive)


@functools.cache
def _log_gamma_terms(count: int) -> list[float]:
    """The coefficients of z, z^2, ... in log(gamma(2 + z)), whose series converges for |z| < 2 [Abramowitz and Stegun 6.1.33].

    They are (-1)^k (zeta(k) - 1) / k: sums of n^-k from 2, the rest after n = 200 by Euler and Maclaurin.
    """
    n = 200
    terms = [0.42278433509846714]  # 1 - Euler's constant
    for k in range(2, count + 1):
        rest = n ** (1 - k) / (k - 1) + n**-k / 2 + k * n ** (-k - 1) / 12 - k * (k + 1) * (k + 2) * n ** (-k - 3) / 720
        terms.append((-1) ** k * (math.fsum(m**-k for m in range(2, n)) + rest) / k)
    return terms


@lowers("lgamma")
def _lgamma(ctx: Any, x: Any) -> Any:
    """XLA's, but for the series at 2 where its error, which is absolute, is large beside the zeros at 1 and 2."""
    aval = ctx.aval_out
    shape, kind = aval.shape, aval.dtype if aval.dtype.itemsize >= 4 else np.dtype(np.float32)
    x = ctx.convert(x, shape, kind) if kind != aval.dtype else x

    def number(value: float) -> Any:
        return ctx.constant(value, kind, shape)

    def emit(name: str, *operands: Any) -> Any:
        return ctx.value(f"stablehlo.{name}", operands, shape, kind)

    is_first = ctx.compare(x, number(1.5), "LT")  # log(gamma(x)) = log(gamma(x + 1)) - log(x)
    z = emit("subtract", x, emit("select", is_first, number(1.0), number(2.0)))
    *terms, last = _log_gamma_terms(12 if kind.itemsize == 4 else 26)
    near = number(last)
    for term in reversed(terms):
        near = emit("add", emit("multiply", near, z), number(term))
    near = emit("multiply", near, z)
    near = emit("subtract", near, emit("select", is_first, emit("log", x), number(0.0)))
    is_near = ctx.compare(emit("abs", emit("subtract", x, number(1.5))), number(1.0), "LE")
    result = emit("select", is_near, near, ctx.value("chlo.lgamma", [x], shape, kind))
    return ctx.convert(result, shape, aval.dtype) if kind != aval.dtype else result


@lowers("digamma")
def _digamma(ctx: Any, x: Any) -> Any:
    aval = ctx.aval_out
    kind = aval.dtype if aval.dtype.itemsize > 1 else np.dtype(np.float32)
    x = ctx.convert(x, aval.shape, kind) if kind != aval.dtype else x
    if ctx.platform == "cpu" and type(aval.size) is int:
        # It divides as `lgamma` does, whose derivative it is, and XLA:CPU writes each quotient that both have to memory. With
        # the least number, a pole, for -infinity it finds none.
        least = ctx.constant(ml_dtypes.finfo(kind).min, kind, aval.shape)
        x = ctx.value("stablehlo.maximum", [x, least], aval.shape, kind)
    x = ctx.value("chlo.digamma", [x], aval.shape, kind)
    return ctx.convert(x, aval.shape, aval.dtype) if kind != aval.dtype else x
