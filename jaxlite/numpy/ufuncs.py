"""The mathematical functions of the numpy API, element by element: exponentials, trigonometry, signs and parts of floats,
rounding, complex parts, divisors, limits. Those of operators are in `arithmetic.py`.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.core.array import Array
from jaxlite.core.lazy import loader
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy.api import (
    api,
    as_array,
    check_arrays,
    check_given,
    dtype_of,
    promote,
    promote_inexact,
    promote_numeric,
    promote_ranks,
    refuse_out,
    scalar,
    strong_arrays,
    strong_formula,
)
from jaxlite.numpy.arithmetic import (
    binaries,
    binary,
    binary_xy,
    constant,
    equal,
    floor_quotient,
    full_of,
    kind_of,
    ordered,
    remainder_of,
    shape_of,
    stretch,
    unaries,
    unary,
    where_same,
    with_methods,
)
from jaxlite.numpy.creation import asarray
from jaxlite.numpy.ufunc_object import Folds
from jaxlite.transforms.custom_derivatives import SymbolicZero, custom_jvp
from lowering.xla import VERSION

# --- exponentials and logarithms ---------------------------------------------------------------------

exp = unary("exp", lax.exp, "e to the power x, element by element.")
exp2 = unary("exp2", lax.exp2, "2 to the power x, element by element.")
expm1 = unary("expm1", lax.expm1, "exp(x) - 1, element by element, accurate near 0.")
log = unary("log", lax.log, "The natural logarithm, element by element.")
log1p = unary("log1p", lax.log1p, "log(1 + x), element by element, accurate near 0.")
sqrt = unary("sqrt", lax.sqrt, "The square root, element by element; NaN for negative real x.")
cbrt = unary("cbrt", lax.cbrt, "The real cube root, element by element.")
square = unary("square", lax.square, "x * x, element by element.", promote_numeric)
reciprocal = unary("reciprocal", lax.reciprocal, "1 / x, element by element, in floating point.")


def _by_parts(operation: Callable, x):
    """An operation of real numbers applied to the real and the imaginary part of complex ones."""
    if kind_of(x) != "c":
        return operation(x)
    return lax.complex(operation(lax.real(x)), operation(lax.imag(x)))


def _strong(value, like):
    return dtype_of(like).type(value)


def _log2(x):
    if VERSION >= (0, 12):  # as JAX of the same jaxlib
        return lax.log2(x)
    result = _by_parts(lambda part: lax.div(part, lax.log(_strong(2, part))), lax.log(x))
    return shaping.convert(result, None, False)


def _log10(x):
    return _by_parts(lambda part: lax.mul(part, _strong(math.log10(math.e), part)), lax.log(x))


log2 = unary("log2", _log2, "The logarithm to base 2, element by element.")
log10 = unary("log10", _log10, "The logarithm to base 10, element by element.")


_log_sums = loader("jaxlite.numpy.log_sums")  # with custom derivatives

logaddexp = with_methods(binary_xy("logaddexp", lambda x, y: _log_sums().log_add(x, y),
                                   "log(exp(x) + exp(y)), element by element, without overflow.", promote_inexact),
                         -math.inf, Folds(lambda x, axes: _log_sums().log_sum(x, axes), lax.cumlogsumexp, inexact=True))
logaddexp2 = with_methods(binary_xy("logaddexp2", strong_formula(lambda x, y: _log_sums().log2_add(x, y)),
                                    "log2(2 ** x + 2 ** y), element by element, without overflow.", promote_inexact),
                          -math.inf, Folds(lambda x, axes: _log_sums().log2_sum(x, axes), inexact=True))


# --- trigonometry ------------------------------------------------------------------------------------

sin = unary("sin", lax.sin, "The sine of x in radians, element by element.")
cos = unary("cos", lax.cos, "The cosine of x in radians, element by element.")
tan = unary("tan", lax.tan, "The tangent of x in radians, element by element.")
sinh = unary("sinh", lax.sinh, "The hyperbolic sine, element by element.")
cosh = unary("cosh", lax.cosh, "The hyperbolic cosine, element by element.")
tanh = unary("tanh", lax.tanh, "The hyperbolic tangent, element by element.")
arcsin, asin = unaries("arcsin asin", lax.asin, "The inverse sine, in [-pi/2, pi/2], element by element.")
arccos, acos = unaries("arccos acos", lax.acos, "The inverse cosine, in [0, pi], element by element.")
arctan, atan = unaries("arctan atan", lax.atan, "The inverse tangent, in [-pi/2, pi/2], element by element.")
arcsinh, asinh = unaries("arcsinh asinh", lax.asinh, "The inverse hyperbolic sine, element by element.")
arccosh, acosh = unaries("arccosh acosh", lax.acosh, "The inverse hyperbolic cosine, element by element.")
arctanh, atanh = unaries("arctanh atanh", lax.atanh, "The inverse hyperbolic tangent, element by element.")
deg2rad, radians = unaries("deg2rad radians", strong_formula(lambda x: lax.mul(x, constant(math.pi / 180, x))),
                           "Degrees to radians, element by element.")
rad2deg, degrees = unaries("rad2deg degrees", strong_formula(lambda x: lax.mul(x, constant(180 / math.pi, x))),
                           "Radians to degrees, element by element.")
arctan2, atan2 = binaries("arctan2 atan2", lax.atan2, "The angle of the point (x2, x1), in [-pi, pi], element by element.",
                          promote_inexact)


def _hypot(x, y):
    if kind_of(x) == "c":
        raise ValueError("jnp.hypot is not well defined for complex-valued inputs. Convert them to real numbers first, "
                         "for instance with abs(x).")
    dtype = dtype_of(x)
    if dtype.itemsize < 4:  # squares are exact in float32, and most of them in its range
        wide = (lax.convert_element_type(each, np.float32) for each in (x, y))
        return lax.convert_element_type(_hypot(*wide), dtype)
    return _length(x, y)


@custom_jvp
def _length(x, y):
    _, root, back, none, infinite = _squares(x, y)
    return where_same(infinite, constant(math.inf, x), where_same(none, constant(0, x), root * back))


def _squares(x, y) -> tuple[Any, ...]:
    """x and y times a power of two where their squares would leave the range of the dtype; the root of the sum of these
    squares, or 1 where both are 0; the inverse power; where both are 0, and where one is infinite."""
    info, (size_x, size_y) = dtypes.finfo(dtype_of(x)), (lax.abs(x), lax.abs(y))
    long, exponent = lax.max(size_x, size_y), 3 * info.maxexp // 4
    is_long = long >= constant(2.0 ** (info.maxexp // 2 - 1), x)
    is_short = long <= constant(2.0 ** ((info.minexp + info.nmant) // 2 + 1), x)
    inf, zero, one, up, down = (constant(each, x) for each in (math.inf, 0, 1, 2.0 ** exponent, 2.0 ** -exponent))
    scale = where_same(is_long, down, where_same(is_short, up, one))
    back = where_same(is_long, up, where_same(is_short, down, one))
    none, scaled = long == zero, (x * scale, y * scale)
    squares = where_same(none, one, lax.square(scaled[0]) + lax.square(scaled[1]))
    return scaled, lax.sqrt(squares), back, none, (size_x == inf) | (size_y == inf)


def _length_jvp(primals, tangents):
    scaled, root, _, none, _ = _squares(*primals)
    terms = [where_same(none, constant(0.5, x), x / root) * tangent for x, tangent in zip(scaled, tangents, strict=True)
             if not isinstance(tangent, SymbolicZero)]
    return _length(*primals), functools.reduce(operator.add, terms)


_length.defjvp(_length_jvp, symbolic_zeros=True)
hypot = binary("hypot", strong_arrays(_hypot) if VERSION < (0, 12) else _hypot,  # as JAX of the same jaxlib
               "sqrt(x1 ** 2 + x2 ** 2), element by element, without overflow.", promote_inexact)


@strong_arrays
def _sinc(x):
    if kind_of(x) == "c":
        return _sinc_by_angle(x)
    if dtypes.itemsize_bits(dtype_of(x)) < 32:
        return lax.convert_element_type(_sinc(lax.convert_element_type(x, "float32")), dtype_of(x))
    # sin(pi (n + r)) is sin(pi r) or its negative, for an integer n: exact where the product of pi and x would be rounded.
    whole = lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
    rest = x - whole
    is_near = lax.le(lax.abs(x), constant(0.5, x))
    one = constant(1, x)
    series = _sinc_series(lax.square(constant(math.pi, x) * rest), 8 if dtype_of(x) == "float32" else 13)
    half = whole * 0.5
    sign = one - 4 * lax.abs(half - lax.round(half, lax.RoundingMethod.TO_NEAREST_EVEN))
    return where_same(is_near, series, sign * series * lax.div(rest, where_same(is_near, one, x)))


def _sinc_series(square, count: int):
    """sin(y) / y, from the square of y."""
    return lax.polynomial(square, [(-1) ** k / math.factorial(2 * k + 1) for k in builtins.range(count)], unroll=count)


def _sinc_by_angle(x):
    zero, one = constant(0, x), constant(1, x)
    at_zero = lax.eq(x, zero)
    angle = lax.mul(constant(math.pi, x), x)
    # At 0 the series stands in: it has the derivatives of the quotient there.
    series = _sinc_series(lax.square(angle), 4)
    safe = where_same(at_zero, one, angle)
    return where_same(at_zero, series, lax.div(lax.sin(safe), safe))


sinc = unary("sinc", _sinc, "sin(pi x) / (pi x), element by element; 1 at 0.")


@api
def i0(x):
    """The modified Bessel function of the first kind of order 0, element by element. ValueError for complex x."""
    (x,) = promote_inexact("i0", x)
    if kind_of(x) == "c":
        raise ValueError(f"Unsupported input type to jax.numpy.i0: {dtype_of(x)}")
    return _i0(x)


@custom_jvp
def _i0(x):
    return lax.exp(lax.abs(x)) * lax.bessel_i0e(x)


@_i0.defjvp
def _i0_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    return _i0(x), t * lax.exp(x * lax.sign(x)) * lax.bessel_i1e(x)  # |x| with the derivative 0 at 0, as that of i1e has it


# --- signs and the parts of floats -------------------------------------------------------------------

sign = unary("sign", lax.sign, "-1, 0 or 1 by the sign of x, element by element; x / |x| for complex x.", promote)


def _bits(x):
    """The bits of floats as signed integers."""
    return lax.bitcast_convert_type(x, f"int{dtypes.itemsize_bits(dtype_of(x))}")


def _float_layout(dtype) -> tuple[int, int, int]:
    """How many bits of a float are exponent and mantissa, and the exponent's bias."""
    info = dtypes.finfo(dtype)
    return info.bits - 1 - info.nmant, info.nmant, 1 - int(info.minexp)


def _signbit(x):
    kind = kind_of(x)
    if kind in "bu":
        return lax.full_like(x, False, dtype=bool)
    if kind == "i":
        return lax.lt(x, constant(0, x))
    if kind == "c":
        raise ValueError(f"jax.numpy.signbit is not well defined for {dtype_of(x)}")
    if dtype_of(x) == dtypes.float8_e8m0fnu:  # powers of two, which have no sign
        return lax.full_like(x, False, dtype=bool)
    bits = _bits(x)
    fill = lax.shift_right_arithmetic(bits, constant(dtypes.itemsize_bits(dtype_of(x)) - 1, bits))
    return lax.convert_element_type(fill, bool)


def _copysign(x, y):
    if kind_of(x) == "c":
        raise TypeError("copysign does not support complex-valued inputs")
    size = lax.abs(x)
    return where_same(_signbit(y), -size, size)


def _spacing(x):
    if kind_of(x) == "c":
        raise ValueError("jnp.spacing is not defined for complex inputs.")
    gap = lax.nextafter(x, _copysign(constant(math.inf, x), x)) - x
    least = _strong(dtypes.finfo(dtype_of(x)).smallest_subnormal, x)  # lost where subnormal numbers count as 0
    return where_same(gap == 0, _copysign(least, x), gap)


def _fabs(x):
    if kind_of(x) == "c":
        raise TypeError("ufunc 'fabs' does not support complex dtypes")
    return lax.abs(x)


def _promote_by_first(name: str, x, y) -> list[Any]:
    """Operands as floats, strongly typed where the first one is."""
    promoted = promote_inexact(name, x, y)
    return [shaping.convert(promoted[0], None, aval_of(promoted[0]).weak_type and aval_of(x).weak_type), promoted[1]]


@strong_arrays
def _heaviside(x, y):
    zero, one = constant(0, x), constant(1, x)
    below, above = lax.lt(x, zero), lax.gt(x, zero)
    return where_same(below, zero, where_same(above, one, where_same(lax.ne(x, x), x, y)))


signbit = unary("signbit", _signbit, "Whether the sign bit is set, element by element.", promote)
copysign = binary("copysign", _copysign, "x1 with the sign of x2, element by element.", promote_inexact)
nextafter = binary_xy("nextafter", lax.nextafter, "The float next to x towards y, element by element.", promote_inexact)
spacing = unary("spacing", _spacing, "The distance from x to the next float away from 0, element by element.")
fabs = unary("fabs", _fabs, "The absolute value as a float, element by element. TypeError for complex x.")
heaviside = binary("heaviside", _heaviside, "0 where x1 < 0, 1 where x1 > 0, x2 where x1 is 0.", _promote_by_first)


@api
def frexp(x, /) -> tuple[Any, Any]:
    """Mantissa and exponent: x = m * 2 ** e with 0.5 <= |m| < 1 and int32 e, element by element.

    0, infinities and NaN are their own mantissa, with exponent 0. Raises: TypeError for complex x.
    """
    (x,) = promote_inexact("frexp", x)
    if kind_of(x) == "c":
        raise TypeError("frexp does not support complex-valued inputs")
    mantissa, exponent = _parts(_wide(x))
    return lax.convert_element_type(mantissa, dtype_of(x)), exponent


def _wide(x):
    """Floats of 8 bits and fewer, whose layouts differ, as float32."""
    return lax.convert_element_type(x, np.float32) if dtypes.itemsize_bits(dtype_of(x)) <= 8 else x


@custom_jvp
def _parts(x) -> tuple[Any, Any]:
    exponent_bits, mantissa_bits, bias = _float_layout(dtype_of(x))
    bits = _bits(x)
    number: Callable[[int], Any] = lambda value: constant(value, bits)
    size = bits & number((1 << (exponent_bits + mantissa_bits)) - 1)
    # The size of a subnormal number is a number of its smallest units, which as a float has an exponent like the others.
    subnormal = size < number(1 << mantissa_bits)
    plain = (size == number(0)) | (size >= number(((1 << exponent_bits) - 1) << mantissa_bits))
    shifted = where_same(subnormal, _bits(lax.convert_element_type(size, dtype_of(x))), size)
    field = lax.shift_right_logical(shifted, number(mantissa_bits))
    exponent = field - where_same(subnormal, number(2 * bias + mantissa_bits - 2), number(bias - 1))
    fraction = bits ^ size | shifted & number((1 << mantissa_bits) - 1) | number((bias - 1) << mantissa_bits)
    mantissa = where_same(plain, x, lax.bitcast_convert_type(fraction, dtype_of(x)))
    return mantissa, lax.convert_element_type(where_same(plain, number(0), exponent), np.int32)


@_parts.defjvp
def _parts_jvp(primals, tangents):
    (x,), (mantissa, exponent) = primals, (out := _parts(*primals))
    # The power of two by which x was multiplied, rounded where it is subnormal; subnormal numbers count as 0 in arithmetic.
    scale = where_same(lax.is_finite(x) & (x != constant(0, x)), mantissa / x, constant(1, x))
    return out, (lax.stop_gradient(scale) * tangents[0], np.zeros(exponent.shape, dtypes.float0))


@api
def ldexp(x1, x2, /):
    """x1 * 2 ** x2, element by element, for integers x2. ValueError for other x2 and for complex x1."""
    check_arrays("ldexp", x1, x2)
    kinds = kind_of(x1), kind_of(x2)
    if kinds[0] == "c" or kinds[1] not in "biu":
        raise ValueError(f"ldexp not supported for input types {(dtype_of(x1), dtype_of(x2))}")
    (x,) = promote_inexact("ldexp", x1)
    dtype, x = dtype_of(x), _wide(x)
    _, _, bias = _float_layout(dtype_of(x))
    x, shift = promote_ranks("ldexp", x, lax.convert_element_type(x2, np.int32))
    # Three powers of two reach from the least to the greatest float.
    limit = _strong(3 * (bias - 2), shift)
    shift = lax.max(-limit, lax.min(limit, shift))
    third = lax.div(shift, _strong(3, shift))
    return lax.convert_element_type(_scaled(x, shift - (third + third), third, third), dtype)


def _scaled(x, *exponents):
    """x times powers of two, which are made from their bits: normal floats, by their int32 exponents."""
    dtype = dtype_of(x)
    _, mantissa_bits, bias = _float_layout(dtype)
    bits = np.dtype(f"int{dtypes.itemsize_bits(dtype)}")
    for exponent in exponents:
        field = lax.convert_element_type(lax.add(exponent, _strong(bias, exponent)), bits)
        x = x * lax.bitcast_convert_type(lax.shift_left(field, bits.type(mantissa_bits)), dtype)
    return x


# --- rounding ----------------------------------------------------------------------------------------


def _or_whole(operation: Callable) -> Callable:
    """An operation that leaves integers and booleans as they are."""
    return lambda x: as_array(x) if kind_of(x) in "biu" else operation(x)


def _trunc(x):
    return where_same(lax.lt(x, constant(0, x)), lax.ceil(x), lax.floor(x))


def _round_even(x):
    return _by_parts(lambda part: lax.round(part, lax.RoundingMethod.TO_NEAREST_EVEN), x)


def _rint(x):
    if kind_of(x) in "biu":
        return lax.convert_element_type(x, dtypes.to_default_inexact_dtype(dtype_of(x)))
    return _round_even(x)


floor = unary("floor", _or_whole(lax.floor), "The greatest whole number not above x, element by element.", promote)
ceil = unary("ceil", _or_whole(lax.ceil), "The least whole number not below x, element by element.", promote)
rint = unary("rint", _rint, "The whole number nearest to x, as a float; the even one of two.", promote)


@api
def trunc(x):
    """The whole number next to x towards 0, element by element. Integers stay as they are."""
    (x,) = promote("trunc", x)
    return _or_whole(_trunc)(x)


@api
def modf(x, /, out: None = None) -> tuple[Any, Any]:
    """Fractional and whole part, both with the sign of x, element by element."""
    refuse_out("modf", out)
    (x,) = promote_inexact("modf", x)
    whole = where_same(lax.ge(x, constant(0, x)), lax.floor(x), lax.ceil(x))
    infinite = lax.abs(x) == math.inf
    return where_same(infinite, constant(0, x), x - whole), whole


def _round_integers(x, decimals: int):
    """Integers rounded to a multiple of a power of ten, half to even."""
    if decimals >= 0:
        return as_array(x)
    step = 10 ** -decimals
    if step > dtypes.iinfo(dtype_of(x)).max:
        return full_of(0, x)
    step, two = constant(step, x), constant(2, x)
    below = floor_quotient(x, step)
    rest = x - below * step
    to_go = step - rest
    odd = remainder_of(below, two) != constant(0, x)
    up = (rest > to_go) | (rest == to_go) & odd
    return where_same(up, below + constant(1, x), below) * step


@api
def round(a, decimals: int = 0, out: None = None):
    """Round to a number of decimal places, element by element; ties go to the even digit.

    Args:
      decimals: places after the point; negative for tens, hundreds, ... Static.
    Raises: ValueError for booleans.
    """
    refuse_out("round", out)
    check_arrays("round", a)
    (x,) = promote("round", a)
    decimals = operator.index(decimals)
    kind, dtype = kind_of(x), dtype_of(x)
    if kind == "b":
        raise ValueError("jnp.round takes numbers, got booleans; convert them with astype(int) first")
    if kind in "iu":
        return _round_integers(x, decimals)
    if decimals == 0:
        return _round_even(x)
    wide = lax.convert_element_type(x, np.float32) if dtype == dtypes.float16 else x  # 100 * x may overflow
    factor = _strong(10.0 ** decimals, wide) if kind != "c" else _strong(10.0 ** decimals, lax.real(x))
    result = _by_parts(lambda part: lax.div(_round_even(lax.mul(part, factor)), factor), wide)
    return shaping.convert(result, dtype, aval_of(x).weak_type and not shape_of(x))


@api
def around(a, decimals: int = 0, out: None = None):
    """Round to a number of decimal places: `round`."""
    return round(a, decimals, out)


# --- what kind of number -----------------------------------------------------------------------------


def _is_finite(x):
    kind = kind_of(x)
    if kind == "c":
        return lax.is_finite(lax.real(x)) & lax.is_finite(lax.imag(x))
    return lax.is_finite(x) if kind == "f" else lax.full_like(x, True, dtype=bool)


def _is_inf(x):
    if kind_of(x) == "c":
        return _is_inf(lax.real(x)) | _is_inf(lax.imag(x))
    if kind_of(x) != "f":
        return lax.full_like(x, False, dtype=bool)
    return lax.abs(x) == math.inf


isfinite = unary("isfinite", _is_finite, "Whether x is neither infinite nor NaN, element by element.", promote)
isinf = unary("isinf", _is_inf, "Whether x is infinite, element by element.", promote)
isnan = unary("isnan", lambda x: lax.ne(x, x), "Whether x is NaN, element by element.", promote)


def _is_infinity(name: str, infinity: float, x, out):
    refuse_out(name, out)
    (x,) = promote(name, x)
    kind = kind_of(x)
    if kind == "c":
        raise ValueError(f"{name} is not well defined for complex numbers, which have no order; see jnp.isinf")
    return lax.eq(x, constant(infinity, x)) if kind == "f" else lax.full_like(x, False, dtype=bool)


@api
def isposinf(x, /, out: None = None):
    """Whether x is positive infinity, element by element. ValueError for complex x."""
    return _is_infinity("isposinf", math.inf, x, out)


@api
def isneginf(x, /, out: None = None):
    """Whether x is negative infinity, element by element. ValueError for complex x."""
    return _is_infinity("isneginf", -math.inf, x, out)


def _imag(x):
    return lax.imag(x) if kind_of(x) == "c" else full_of(0, x)


@api
def iscomplex(x):
    """Whether the imaginary part is not 0, element by element."""
    (x,) = promote("iscomplex", x)
    imag = _imag(x)
    return lax.ne(imag, constant(0, imag))


@api
def isreal(x):
    """Whether the imaginary part is 0, element by element."""
    (x,) = promote("isreal", x)
    imag = _imag(x)
    return lax.eq(imag, constant(0, imag))


def iscomplexobj(x) -> builtins.bool:
    """Whether the dtype of an array, scalar or nested list is complex."""
    if x is None or type(x) is int:  # of any size
        return False
    if not isinstance(x, type):
        try:
            return kind_of(x) == "c"
        except TypeError:
            pass
    # `jnp.complex64`, a `ShapeDtypeStruct` and a library's blocks of arrays have a dtype; NumPy's types describe one.
    dtype = getattr(x, "dtype", None)
    if isinstance(x, type) or isinstance(dtype, np.dtype):
        return isinstance(dtype, np.dtype) and dtypes.kind(dtype) == "c"
    if isinstance(x, (list, tuple)):  # elements may be traced
        return builtins.any(map(iscomplexobj, x))
    return dtypes.kind(np.asarray(x).dtype) == "c"


def isrealobj(x) -> builtins.bool:
    """Whether the dtype of an array, scalar or nested list is not complex."""
    return not iscomplexobj(x)


def isscalar(element) -> builtins.bool:
    """Whether an object is a Python or NumPy scalar, a string, or an array without axes."""
    if isinstance(element, (np.ndarray, Array)):
        return element.ndim == 0
    return element.__jax_array__().ndim == 0 if hasattr(element, "__jax_array__") else np.isscalar(element)


@api
def isclose(a, b, rtol=1e-05, atol=1e-08, equal_nan: builtins.bool = False):
    """Whether |a - b| <= atol + rtol * |b|, element by element.

    Infinities are close to themselves alone; NaN is close to NaN if `equal_nan`, which is static.
    """
    check_arrays("isclose", a, b)
    if isinstance(dtype_of(a), dtypes.ExtendedDType):  # keys, say: they are equal or not
        return equal(a, b)
    x, y = promote_inexact("isclose", a, b)
    check_arrays("isclose", rtol, atol)
    size = lax.abs(y)
    rtol, atol = (lax.convert_element_type(each, dtype_of(size)) for each in (rtol, atol))
    tolerance = atol + rtol * size
    near = _is_finite(y) & (lax.abs(lax.sub(x, y)) <= tolerance)
    result = lax.eq(x, y) | near
    if equal_nan:
        result = result | lax.ne(x, x) & lax.ne(y, y)
    return result


# --- complex numbers ---------------------------------------------------------------------------------


@api
def real(val, /):
    """The real part, element by element."""
    (x,) = promote("real", val)
    return lax.real(x) if kind_of(x) == "c" else as_array(x)


@api
def imag(val, /):
    """The imaginary part, element by element: 0 for real numbers."""
    (x,) = promote("imag", val)
    return as_array(_imag(x))


def _conj(x):
    return lax.conj(x) if kind_of(x) == "c" else as_array(x)


conjugate, conj = unaries("conjugate conj", _conj, "The complex conjugate, element by element.", promote)


@api
def angle(z, deg: builtins.bool = False):
    """The angle of complex numbers in the plane, in [-pi, pi]; in degrees if `deg`, which is static."""
    (z,) = promote("angle", z)
    if kind_of(z) != "c":  # as in JAX, a scalar's type is the default one, whatever its precision, and strong
        aval = aval_of(z)
        dtype = dtypes.to_default_inexact_dtype(aval.dtype) if aval.shape else dtypes.canonicalize_dtype(float)
        z = shaping.convert(z, dtype, bool(aval.shape) and aval.dtype == dtype and aval.weak_type)
        parts = full_of(0, z), z
    else:
        parts = lax.imag(z), lax.real(z)
    result = lax.atan2(*parts)
    return rad2deg(result) if deg else result


# --- integers ----------------------------------------------------------------------------------------


def _bitwise_count(x):
    size = lax.abs(x) if kind_of(x) not in "u" else x
    return lax.convert_element_type(lax.population_count(size), np.uint8)


bitwise_count = unary("bitwise_count", _bitwise_count, "How many bits of |x| are set, element by element; uint8.",
                      promote_numeric)


def _two_integers(name: str, x1, x2) -> tuple[Any, Any]:
    x, y = promote(name, x1, x2)
    if kind_of(x) not in "iu":
        raise ValueError(f"Arguments to jax.numpy.{name} must be integers.")
    shape = shaping.broadcast_shapes(shape_of(x), shape_of(y))
    x, y = (stretch(as_array(each), shape) for each in (x, y))
    return (lax.abs(x), lax.abs(y)) if kind_of(x) == "i" else (x, y)


def _euclid(x, y):
    zero = full_of(0, x)

    def step(pair: tuple[Any, Any]) -> tuple[Any, Any]:
        a, b = pair
        more = lax.ne(b, zero)
        return lax.select(more, b, a), lax.select(more, lax.rem(a, b), zero)

    def unfinished(pair: tuple[Any, Any]):
        return lax.reduce_or(lax.ne(pair[1], zero), range(np.ndim(zero)))

    return lax.while_loop(unfinished, step, (x, y))[0]


@api
@strong_arrays
def gcd(x1, x2):
    """The greatest common divisor of integers, element by element. ValueError for others."""
    return _euclid(*_two_integers("gcd", x1, x2))


@api
@strong_arrays
def lcm(x1, x2):
    """The least common multiple of integers, element by element; 0 where one is 0. ValueError for others."""
    x, y = _two_integers("lcm", x1, x2)
    divisor = _euclid(x, y)
    none = lax.eq(divisor, constant(0, divisor))
    return where_same(none, constant(0, x), x * lax.div(y, where_same(none, constant(1, x), divisor)))


# --- limits ------------------------------------------------------------------------------------------


@api
def fmax(x1, x2):
    """The greater of x1 and x2, element by element; the other one if one is NaN."""
    x, y = promote("fmax", x1, x2)
    return where_same(ordered(lax.gt)(x, y) | lax.ne(y, y), x, y)


@api
def fmin(x1, x2):
    """The lesser of x1 and x2, element by element; the other one if one is NaN."""
    x, y = promote("fmin", x1, x2)
    return where_same(ordered(lax.lt)(x, y) | lax.ne(y, y), x, y)


@api
def clip(arr=None, /, min=None, max=None):
    """Limit values to [min, max], element by element; a bound that is None is no limit.

    Where min > max the result is max. Raises: ValueError for complex numbers, and without an array.

    >>> import jaxlite.numpy as jnp
    >>> print(jnp.clip(jnp.arange(5), 1, 3))
    [1 1 2 3 3]
    """
    if arr is None:
        raise ValueError("No input was provided to the clip function.")
    check_given("clip", arr, min, max)
    if any(kind_of(each) == "c" for each in (arr, min, max) if each is not None):
        raise ValueError("Clip received a complex value either through the input or the min/max keywords. Complex values have "
                         "no ordering and cannot be clipped. Please convert to a real value or array by taking the real or "
                         "imaginary components via jax.numpy.real/imag respectively.")
    x = as_array(arr)
    for bound, operation in ((min, lax.max), (max, lax.min)):
        if bound is not None:
            x = operation(*promote("clip", bound, x))
    return x


@api
def nan_to_num(x, copy: builtins.bool = True, nan=0.0, posinf=None, neginf=None):
    """Replace NaN and infinities, element by element.

    Args:
      copy: without effect: arrays are immutable.
      nan: for NaN.
      posinf, neginf: for the infinities; by default the greatest and the least finite float.
    These three are numbers, arrays or lists that broadcast against x.
    """
    (x,) = promote("nan_to_num", x)
    nan, posinf, neginf = (asarray(each) if isinstance(each, (list, tuple)) else each for each in (nan, posinf, neginf))
    if kind_of(x) not in "fc":
        return as_array(x)
    if kind_of(x) == "c":
        return lax.complex(*(_replaced(part, nan, posinf, neginf) for part in (lax.real(x), lax.imag(x))))
    return _replaced(x, nan, posinf, neginf)


def _replaced(x, nan, posinf, neginf):
    dtype = dtype_of(x)
    x, info = shaping.convert(as_array(x), dtype, False), dtypes.finfo(dtype)
    for test, value in (
        (lambda x: lax.ne(x, x), nan),
        (lambda x: lax.eq(x, constant(math.inf, x)), info.max if posinf is None else posinf),
        (lambda x: lax.eq(x, constant(-math.inf, x)), info.min if neginf is None else neginf),
    ):
        value = scalar(value, dtype) if isinstance(value, (int, float)) else lax.convert_element_type(value, dtype)
        x, value = promote_ranks("nan_to_num", x, value)
        x = where_same(test(x), value, x)
    return x
