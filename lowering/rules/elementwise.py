"""StableHLO rules of the elementwise primitives. Most map to one operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lowering.rules import lowers


def broadcast_operands(ctx: Any, operands: Sequence[Any], shape: tuple[int, ...] | None = None) -> list[Any]:
    """All operands at the result's shape."""
    shape = ctx.aval_out.shape if shape is None else shape
    return [
        value if atom.aval.shape == shape else ctx.broadcast(value, atom.aval.shape, shape, atom.aval.dtype)
        for value, atom in zip(operands, ctx.eqn.invars, strict=True)
    ]


def _one_to_one(primitive: str, operation: str) -> None:
    name = operation if "." in operation else f"stablehlo.{operation}"

    @lowers(primitive)
    def rule(ctx: Any, *operands: Any, **params: Any) -> Any:
        shape = ctx.eqn.outvars[0].aval.shape
        for atom in ctx.eqn.invars:
            if atom.aval.shape != shape:
                operands = tuple(broadcast_operands(ctx, operands))
                break
        return ctx.emit1(name, *operands)


for _primitive, _operation in {
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "rem": "remainder",
    "max": "maximum", "min": "minimum", "neg": "negate", "sign": "sign", "abs": "abs",
    "floor": "floor", "ceil": "ceil", "is_finite": "is_finite", "nextafter": "chlo.next_after",
    "exp": "exponential", "expm1": "exponential_minus_one", "log": "log", "log1p": "log_plus_one",
    "logistic": "logistic", "sqrt": "sqrt", "rsqrt": "rsqrt", "cbrt": "cbrt",
    "sin": "sine", "cos": "cosine", "tan": "tan", "tanh": "tanh", "atan2": "atan2",
    "asin": "chlo.asin", "acos": "chlo.acos", "atan": "chlo.atan", "sinh": "chlo.sinh", "cosh": "chlo.cosh",
    "asinh": "chlo.asinh", "acosh": "chlo.acosh", "atanh": "chlo.atanh",
    "and": "and", "or": "or", "xor": "xor", "not": "not",
    "shift_left": "shift_left", "shift_right_logical": "shift_right_logical",
    "shift_right_arithmetic": "shift_right_arithmetic", "population_count": "popcnt",
    "clz": "count_leading_zeros", "mulhi": "chlo.mulhi", "real": "real", "imag": "imag", "complex": "complex",
}.items():  # fmt: skip
    _one_to_one(_primitive, _operation)


def _comparison(primitive: str, direction: str, kind: str | None = None) -> None:
    @lowers(primitive)
    def rule(ctx: Any, x: Any, y: Any) -> Any:
        x, y = broadcast_operands(ctx, (x, y))
        return ctx.compare(x, y, direction, kind)


for _direction in ("eq", "ne", "ge", "gt", "le", "lt"):
    _comparison(_direction, _direction.upper())
for _direction in ("eq", "le", "lt"):
    _comparison(f"{_direction}_to", _direction.upper(), "TOTALORDER")


@lowers("round")
def _round(ctx: Any, x: Any, *, rounding_method: int) -> Any:
    return ctx.emit1("stablehlo.round_nearest_afz" if int(rounding_method) == 0 else "stablehlo.round_nearest_even", x)


@lowers("square")
def _square(ctx: Any, x: Any) -> Any:
    return ctx.emit1("stablehlo.multiply", x, x)


@lowers("exp2")
def _exp2(ctx: Any, x: Any) -> Any:
    aval = ctx.aval_out
    return ctx.emit1("stablehlo.exponential", ctx.emit1("stablehlo.multiply", x, ctx.constant(
        np.log(2.0), aval.dtype, aval.shape)))


@lowers("integer_pow")
def _integer_pow(ctx: Any, x: Any, *, y: int) -> Any:
    aval = ctx.aval_out
    one = ctx.constant(1, aval.dtype, aval.shape)
    if y == 0:
        return one
    exponent, power, result = abs(y), x, None
    while exponent:
        if exponent & 1:
            result = power if result is None else ctx.emit1("stablehlo.multiply", result, power)
        exponent >>= 1
        if exponent:
            power = ctx.emit1("stablehlo.multiply", power, power)
    return result if y > 0 else ctx.emit1("stablehlo.divide", one, result)


@lowers("pow")
def _pow(ctx: Any, x: Any, y: Any) -> Any:
    out = ctx.aval_out
    x_aval, y_aval = ctx.avals_in
    x = ctx.broadcast(x, x_aval.shape, out.shape, x_aval.dtype)
    y = ctx.broadcast(y, y_aval.shape, out.shape, y_aval.dtype)
    if y_aval.dtype != out.dtype:
        y = ctx.convert(y, out.shape, out.dtype)
    return ctx.emit1("stablehlo.power", x, y)


@lowers("conj")
def _conj(ctx: Any, x: Any, *, input_dtype: Any) -> Any:
    (aval,) = ctx.avals_in
    if np.dtype(input_dtype).kind != "c":
        return ctx.emit1("stablehlo.complex", x, ctx.constant(0, aval.dtype, aval.shape))
    part = np.dtype(input_dtype.type(0).real.dtype)
    real = ctx.value("stablehlo.real", [x], aval.shape, part)
    imag = ctx.value("stablehlo.imag", [x], aval.shape, part)
    return ctx.emit1("stablehlo.complex", real, ctx.value("stablehlo.negate", [imag], aval.shape, part))


@lowers("select_n")
def _select_n(ctx: Any, which: Any, *cases: Any) -> Any:
    if len(cases) == 1:
        return cases[0]
    which_aval, out = ctx.avals_in[0], ctx.aval_out
    if which_aval.dtype == np.bool_:
        return ctx.emit1("stablehlo.select", which, cases[1], cases[0])

    def choose(low: int, high: int) -> Any:
        """A tree of selects over cases[low:high]."""
        if high - low == 1:
            return cases[low]
        middle = (low + high) // 2
        bound = ctx.constant(middle, which_aval.dtype, which_aval.shape)
        return ctx.emit1("stablehlo.select", ctx.compare(which, bound, "LT"), choose(low, middle),
                         choose(middle, high))

    assert out.shape == ctx.avals_in[1].shape
    return choose(0, len(cases))


@lowers("clamp")
def _clamp(ctx: Any, low: Any, x: Any, high: Any) -> Any:
    return ctx.emit1("stablehlo.clamp", low, x, high)
