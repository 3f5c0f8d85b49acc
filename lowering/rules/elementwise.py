"""StableHLO rules of the elementwise primitives. Most map to one operation."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from lowering.buffers import real_dtype
from lowering.rules import lowers, lowers_to


def broadcast_operands(ctx: Any, operands: Sequence[Any]) -> list[Any]:
    """All operands at the result's shape."""
    shape = ctx.aval_out.shape
    return [
        value if atom.aval.shape == shape else ctx.broadcast(value, atom.aval.shape, shape, atom.aval.dtype)
        for value, atom in zip(operands, ctx.eqn.invars, strict=True)
    ]


for _primitive, _operation in {
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "rem": "remainder",
    "neg": "negate",
    "floor": "floor", "ceil": "ceil", "is_finite": "is_finite", "nextafter": "chlo.next_after",
    "exp": "exponential", "expm1": "exponential_minus_one", "log": "log", "log1p": "log_plus_one",
    "logistic": "logistic", "sqrt": "sqrt", "rsqrt": "rsqrt", "cbrt": "cbrt",
    "tan": "tan", "tanh": "tanh", "atan2": "atan2",
    "asin": "chlo.asin", "acos": "chlo.acos", "atan": "chlo.atan", "sinh": "chlo.sinh", "cosh": "chlo.cosh",
    "asinh": "chlo.asinh", "acosh": "chlo.acosh", "atanh": "chlo.atanh",
    "and": "and", "or": "or", "xor": "xor", "not": "not",
    "shift_left": "shift_left", "shift_right_logical": "shift_right_logical",
    "shift_right_arithmetic": "shift_right_arithmetic", "clz": "count_leading_zeros",
    "real": "real", "imag": "imag", "complex": "complex",
}.items():  # fmt: skip
    lowers_to(_primitive, _operation)


@functools.cache
def comparison_type(dtype: Any) -> str:
    """How StableHLO compares two values of a dtype."""
    name = dtype.name
    if name == "bool" or name.startswith("uint"):
        return "UNSIGNED"
    return "SIGNED" if name.startswith("int") else "FLOAT"


def _comparison(primitive: str, direction: str, kind: str | None = None) -> None:
    @lowers(primitive)
    def rule(ctx: Any, x: Any, y: Any) -> Any:
        out = ctx.aval_out
        left, right = ctx.avals_in
        if left.shape != out.shape or right.shape != out.shape:
            x, y = broadcast_operands(ctx, (x, y))
        natural = comparison_type(left.dtype)
        # The total order is one of floats.
        chosen = kind if kind is not None and natural == "FLOAT" and left.dtype.kind != "c" else natural
        return ctx.emit1("stablehlo.compare", x, y,
                         comparison_direction=ctx.attribute(f"#stablehlo<comparison_direction {direction}>"),
                         compare_type=ctx.attribute(f"#stablehlo<comparison_type {chosen}>"))


for _direction in ("eq", "ne", "ge", "gt", "le", "lt"):
    _comparison(_direction, _direction.upper())
for _direction in ("eq", "le", "lt"):
    _comparison(f"{_direction}_to", _direction.upper(), "TOTALORDER")


# By the dtype of the parts: the magnitudes whose squares are numbers, and powers of two that bring smaller and larger ones
# among them.
_SQUARABLE = {"float32": (2.0**-50, 2.0**63, 2.0**100, 2.0**-75), "float64": (2.0**-450, 2.0**500, 2.0**600, 2.0**-600)}


@lowers("abs")
def _abs(ctx: Any, x: Any) -> Any:
    if ctx.avals_in[0].dtype.kind != "c" or ctx.platform != "cpu":
        return ctx.emit1("stablehlo.abs", x)
    # The root of the sum of squares: XLA:CPU would divide, take longer for a product's, and find NaN for two infinities.
    shape, dtype = ctx.aval_out.shape, ctx.aval_out.dtype
    least, most, up, down = _SQUARABLE[dtype.name]

    def emit(name: str, *operands: Any, to: Any = dtype) -> Any:
        return ctx.value(f"stablehlo.{name}", operands, shape, to)

    def number(value: float) -> Any:
        return ctx.constant(value, dtype, shape)

    parts = [emit("abs", emit(part, x)) for part in ("real", "imag")]
    greater = emit("maximum", *parts)
    is_small, is_large = ctx.compare(greater, number(least), "LT"), ctx.compare(greater, number(most), "GE")

    def scaled(value: Any, small: float, large: float) -> Any:
        # Products of each factor, and not with the factor that is chosen: XLA makes one loop of that, also with what is divided
        # by the root, unless that is scaled so too.
        ordinary = emit("select", is_small, emit("multiply", value, number(small)), value)
        return emit("select", is_large, emit("multiply", value, number(large)), ordinary)

    squares = [emit("multiply", part, part) for part in (scaled(part, up, down) for part in parts)]
    factor = emit("select", is_large, number(1 / down), emit("select", is_small, number(1 / up), number(1)))
    root = emit("multiply", emit("sqrt", emit("add", *squares)), factor)
    is_infinite = emit("or", *(ctx.compare(part, number(np.inf), "EQ") for part in parts), to=np.dtype(bool))
    return emit("select", is_infinite, number(np.inf), root)


@lowers("sign")
def _sign(ctx: Any, x: Any) -> Any:
    aval = ctx.aval_out
    if np.dtype(aval.dtype).kind == "u" or aval.dtype.name in ("uint2", "uint4"):
        return ctx.convert(ctx.compare(x, ctx.constant(0, aval.dtype, aval.shape), "NE"), aval.shape, aval.dtype)
    return ctx.emit1("stablehlo.sign", x)


def _extremum(primitive: str, operation: str, direction: str) -> None:
    @lowers(primitive)
    def rule(ctx: Any, x: Any, y: Any) -> Any:
        x, y = broadcast_operands(ctx, (x, y))
        if ctx.aval_out.dtype.kind != "c":
            return ctx.emit1(operation, x, y)
        # The operation itself would compare real parts alone.
        (x_real, x_imag), (y_real, y_imag) = complex_parts(ctx, x), complex_parts(ctx, y)
        shape, flag = ctx.aval_out.shape, np.dtype(bool)
        ties = [ctx.compare(x_real, y_real, "EQ"), ctx.compare(x_imag, y_imag, direction)]
        first = ctx.value("stablehlo.or", [ctx.compare(x_real, y_real, direction),
                                           ctx.value("stablehlo.and", ties, shape, flag)], shape, flag)
        return ctx.emit1("stablehlo.select", first, x, y)


_extremum("max", "stablehlo.maximum", "GT")
_extremum("min", "stablehlo.minimum", "LT")


def complex_parts(ctx: Any, x: Any) -> tuple[Any, Any]:
    """The real and the imaginary part of a value of the result's complex type."""
    aval = ctx.aval_out
    part = real_dtype(aval.dtype)
    return ctx.value("stablehlo.real", [x], aval.shape, part), ctx.value("stablehlo.imag", [x], aval.shape, part)


@lowers("sin")
def _sin(ctx: Any, x: Any, accuracy: Any = None) -> Any:
    if ctx.aval_out.dtype.kind != "c":
        return ctx.emit1("stablehlo.sine", x, **ctx.accuracy(accuracy))
    sine, cosine, sinh, cosh, on_axis, zero, part = _circular(ctx, x)
    return ctx.emit1("stablehlo.complex", part("select", on_axis, zero, part("multiply", sine, cosh)),
                     part("multiply", cosine, sinh))


@lowers("cos")
def _cos(ctx: Any, x: Any, accuracy: Any = None) -> Any:
    if ctx.aval_out.dtype.kind != "c":
        return ctx.emit1("stablehlo.cosine", x, **ctx.accuracy(accuracy))
    sine, cosine, sinh, cosh, on_axis, zero, part = _circular(ctx, x)
    imag = part("multiply", part("negate", sine), sinh)
    return ctx.emit1("stablehlo.complex", part("multiply", cosine, cosh), part("select", on_axis, zero, imag))


def _circular(ctx: Any, x: Any) -> tuple[Any, ...]:
    """For a complex number: sine and cosine of the real part, the hyperbolic ones of the imaginary part, whether the real part
    is 0 (where a product of 0 and infinity must not be NaN), zeros, and what makes an operation on parts.

    XLA's own expansion loses small imaginary parts and signs of zeros.
    """
    shape, part = ctx.aval_out.shape, real_dtype(ctx.aval_out.dtype)
    real, imag = complex_parts(ctx, x)
    of_parts = lambda name, *operands: ctx.value(f"stablehlo.{name}", list(operands), shape, part)
    zero, two = ctx.constant(0, part, shape), ctx.constant(2, part, shape)
    up, down = of_parts("exponential_minus_one", imag), of_parts("exponential_minus_one", of_parts("negate", imag))
    sinh = of_parts("divide", of_parts("subtract", up, down), two)
    cosh = of_parts("divide", of_parts("add", of_parts("add", up, down), two), two)
    return of_parts("sine", real), of_parts("cosine", real), sinh, cosh, ctx.compare(real, zero, "EQ"), zero, of_parts


@lowers("population_count")
def _population_count(ctx: Any, x: Any) -> Any:
    aval = ctx.aval_out
    if aval.dtype.name not in _NARROW_SIGNED:
        return ctx.emit1("stablehlo.popcnt", x)
    # XLA counts the bits of the byte that holds a narrow integer, copies of the sign among them.
    unsigned = np.dtype(getattr(ml_dtypes, f"u{aval.dtype.name}"))
    x = ctx.value("stablehlo.bitcast_convert", [x], aval.shape, unsigned)
    return ctx.convert(ctx.value("stablehlo.popcnt", [x], aval.shape, unsigned), aval.shape, aval.dtype)


_NARROW_SIGNED = {"int2": 2, "int4": 4}


@lowers("mulhi")
def _mulhi(ctx: Any, x: Any, y: Any) -> Any:
    aval = ctx.aval_out
    x, y = broadcast_operands(ctx, (x, y))
    name = aval.dtype.name
    bits = int(name.removeprefix("u").removeprefix("int"))
    if bits == 64:
        return ctx.emit1("chlo.mulhi", x, y)
    # In a type of twice the width: XLA's CPU compiler fails on chlo.mulhi inside some fusions.
    wide = np.dtype(f"{'u' if name[0] == 'u' else ''}int{max(8, 2 * bits)}")
    factors = [ctx.convert(each, aval.shape, wide) for each in (x, y)]
    product = ctx.value("stablehlo.multiply", factors, aval.shape, wide)
    operation = "logical" if name[0] == "u" else "arithmetic"
    shifted = ctx.value(f"stablehlo.shift_right_{operation}", [product, ctx.constant(bits, wide, aval.shape)],
                        aval.shape, wide)
    return ctx.convert(shifted, aval.shape, aval.dtype)


@lowers("round")
def _round(ctx: Any, x: Any, *, rounding_method: int) -> Any:
    return ctx.emit1("stablehlo.round_nearest_afz" if int(rounding_method) == 0 else "stablehlo.round_nearest_even", x)


@lowers("square")
def _square(ctx: Any, x: Any) -> Any:
    if ctx.aval_out.dtype.kind != "c":
        return ctx.emit1("stablehlo.multiply", x, x)
    # In factors: a difference of squares would lose all digits where both parts are of a size, or overflow.
    (real, imag), shape = complex_parts(ctx, x), ctx.aval_out.shape
    of_parts = lambda name, a, b: ctx.value(f"stablehlo.{name}", [a, b], shape, real_dtype(ctx.aval_out.dtype))
    product = of_parts("multiply", real, imag)
    part = real_dtype(ctx.aval_out.dtype)
    sizes = [ctx.value("stablehlo.abs", [each], shape, part) for each in (real, imag)]
    difference = ctx.value("stablehlo.select", [
        ctx.compare(*sizes, "EQ"), of_parts("subtract", *sizes),  # zeros that are positive
        of_parts("multiply", of_parts("subtract", real, imag), of_parts("add", real, imag))], shape, part)
    return ctx.emit1("stablehlo.complex", difference, of_parts("add", product, product))


@lowers("exp2")
def _exp2(ctx: Any, x: Any, accuracy: Any = None) -> Any:
    aval = ctx.aval_out
    return ctx.emit1("stablehlo.exponential", ctx.emit1("stablehlo.multiply", x, ctx.constant(
        np.log(2.0), aval.dtype, aval.shape)), **ctx.accuracy(accuracy))


@lowers("log2")
def _log2(ctx: Any, x: Any, accuracy: Any = None) -> Any:
    logarithm = ctx.emit1("stablehlo.log", x, **ctx.accuracy(accuracy))
    aval = ctx.aval_out
    kind = aval.dtype
    if kind.kind != "c":
        return ctx.emit1("stablehlo.multiply", logarithm, ctx.constant(1 / np.log(2.0), kind, aval.shape))
    parts = complex_parts(ctx, logarithm)
    kind = real_dtype(kind)
    factor = ctx.constant(1 / np.log(2.0), kind, aval.shape)
    return ctx.emit1("stablehlo.complex", *(
        ctx.value("stablehlo.multiply", [part, factor], aval.shape, kind) for part in parts))


@lowers("one_minus_square")
def _one_minus_square(ctx: Any, x: Any) -> Any:
    one = ctx.constant(1, ctx.aval_out.dtype, ctx.aval_out.shape)
    return ctx.emit1("stablehlo.multiply", ctx.emit1("stablehlo.add", one, x), ctx.emit1("stablehlo.subtract", one, x))


@lowers("polynomial")
def _polynomial(ctx: Any, *operands: Any, unroll: Any = None) -> Any:
    """Horner's rule."""
    x, *terms = broadcast_operands(ctx, operands)
    value = terms.pop()
    while terms:
        value = ctx.emit1("stablehlo.add", ctx.emit1("stablehlo.multiply", value, x), terms.pop())
    return value


@lowers("integer_pow")
def _integer_pow(ctx: Any, x: Any, *, y: int) -> Any:
    aval = ctx.aval_out
    if y == 0:
        return ctx.constant(1, aval.dtype, aval.shape)
    exponent, power, result = abs(y), x, None
    while exponent:
        if exponent & 1:
            result = power if result is None else ctx.emit1("stablehlo.multiply", result, power)
        exponent >>= 1
        if exponent:
            power = ctx.emit1("stablehlo.multiply", power, power)
    if y > 0:
        return result
    return ctx.emit1("stablehlo.divide", ctx.constant(1, aval.dtype, aval.shape), result)


@lowers("pow")
def _pow(ctx: Any, x: Any, y: Any) -> Any:
    out = ctx.aval_out
    x, y = broadcast_operands(ctx, (x, y))
    if ctx.avals_in[1].dtype != out.dtype:
        y = ctx.convert(y, out.shape, out.dtype)
    return ctx.emit1("stablehlo.power", x, y)


@lowers("conj")
def _conj(ctx: Any, x: Any, **params: Any) -> Any:
    (aval,) = ctx.avals_in
    if aval.dtype.kind != "c":
        return ctx.emit1("stablehlo.complex", x, ctx.constant(0, aval.dtype, aval.shape))
    part = real_dtype(aval.dtype)
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

    largest = ml_dtypes.iinfo(which_aval.dtype).max

    def choose(low: int, high: int) -> Any:
        """A tree of selects over cases[low:high]."""
        if high - low == 1:
            return cases[low]
        middle = (low + high) // 2
        if middle > largest:
            return choose(low, middle)
        bound = ctx.constant(middle, which_aval.dtype, which_aval.shape)
        return ctx.emit1("stablehlo.select", ctx.compare(which, bound, "LT"), choose(low, middle),
                         choose(middle, high))

    assert out.shape == ctx.avals_in[1].shape
    return choose(0, len(cases))


@lowers("clamp")
def _clamp(ctx: Any, low: Any, x: Any, high: Any) -> Any:
    aval = ctx.aval_out
    if aval.dtype == bool:  # XLA:CPU has no clamp of booleans
        low, x, high = broadcast_operands(ctx, (low, x, high))
        return ctx.emit1("stablehlo.and", ctx.value("stablehlo.or", [x, low], aval.shape, aval.dtype), high)
    return ctx.emit1("stablehlo.clamp", low, x, high)
