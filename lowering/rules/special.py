"""StableHLO rules of the special functions, which are CHLO operations."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

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


@functools.cache
def _stirling_terms(count: int) -> list[float]:
    """The coefficients of 1/x, 1/x^3, ... in the series of log(gamma(x)) for large x [Abramowitz and Stegun 6.1.41]."""
    bernoulli = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
    return [bernoulli[k - 1] / (2 * k * (2 * k - 1)) for k in range(1, count + 1)]


@lowers("lgamma")
def _lgamma(ctx: Any, x: Any) -> Any:
    """Between 0 and some bound, the series at 2 after steps of 1 to it; Stirling's series above; reflection below 0.

    log(gamma(x)) = log(gamma(x - n)) + log((x - 1) ... (x - n)), whose terms hardly cancel, so it is as accurate as they are,
    also beside the zeros at 1 and 2. The sine of the reflection is a polynomial: XLA's would keep loops from being vectorized.
    """
    aval = ctx.aval_out
    shape, kind = aval.shape, aval.dtype if aval.dtype.itemsize >= 4 else np.dtype(np.float32)
    x = ctx.convert(x, shape, kind) if kind != aval.dtype else x
    steps, terms, large_terms = (4, 12, 3) if kind.itemsize == 4 else (8, 26, 8)

    def number(value: float) -> Any:
        return ctx.constant(value, kind, shape)

    def emit(name: str, *operands: Any) -> Any:
        return ctx.value(f"stablehlo.{name}", operands, shape, kind)

    def polynomial(coefficients: Sequence[float], at: Any) -> Any:
        """By Horner's rule; the constant one comes first."""
        value = number(coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            value = emit("add", emit("multiply", value, at), number(coefficient))
        return value

    one = number(1.0)
    is_negative = ctx.compare(x, number(0.0), "LT")
    y = emit("select", is_negative, emit("subtract", one, x), x)
    is_large = ctx.compare(y, number(steps + 2.5), "GT")
    count = emit("clamp", number(-2.0), emit("ceil", emit("subtract", y, number(2.5))), number(float(steps)))
    z = emit("subtract", y, emit("add", count, number(2.0)))
    near = emit("multiply", polynomial(_log_gamma_terms(terms), z), z)

    factors = emit("subtract", y, one)
    for step in range(2, steps + 1):
        taken = ctx.compare(count, number(step - 0.5), "GT")
        factors = emit("multiply", factors, emit("select", taken, emit("subtract", y, number(float(step))), one))
    goes_up = ctx.compare(count, number(-0.5), "LT")
    second = emit("select", ctx.compare(count, number(-1.5), "LT"), emit("add", y, one), one)
    factors = emit("select", ctx.compare(count, number(0.5), "GT"), factors, one)
    factors = emit("select", goes_up, emit("multiply", y, second), factors)
    log = emit("log", emit("select", is_large, y, factors))
    near = emit("add", near, emit("select", goes_up, emit("negate", log), log))

    inverse = emit("divide", one, y)
    square = emit("multiply", inverse, inverse)
    series = emit("multiply", polynomial(_stirling_terms(large_terms), square), inverse)
    series = emit("add", series, number((math.log(2 * math.pi) - 1) / 2))
    far = emit("multiply", emit("subtract", y, number(0.5)), emit("subtract", log, one))  # does not overflow before its sum
    result = emit("select", is_large, emit("add", far, series), near)

    nearest = emit("round_nearest_even", x)
    angle = emit("multiply", number(math.pi), emit("abs", emit("subtract", x, nearest)))  # at most pi / 2
    turned = emit("multiply", angle, angle)
    sine_terms = [(-1) ** k / math.factorial(2 * k + 1) for k in range(7 if kind.itemsize == 4 else 12)]
    sine = emit("multiply", polynomial(sine_terms, turned), angle)
    reflected = emit("subtract", emit("subtract", number(math.log(math.pi)), emit("log", sine)), result)
    reflected = emit("select", ctx.compare(x, nearest, "EQ"), number(math.inf), reflected)
    result = emit("select", is_negative, reflected, result)
    return ctx.convert(result, shape, aval.dtype) if kind != aval.dtype else result


@lowers("digamma")
def _digamma(ctx: Any, x: Any) -> Any:
    aval = ctx.aval_out
    kind = aval.dtype if aval.dtype.itemsize > 1 else np.dtype(np.float32)
    x = ctx.convert(x, aval.shape, kind) if kind != aval.dtype else x
    x = ctx.value("chlo.digamma", [x], aval.shape, kind)
    return ctx.convert(x, aval.shape, aval.dtype) if kind != aval.dtype else x
