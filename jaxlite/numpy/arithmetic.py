"""Elementwise functions behind operators: arithmetic, comparisons, logic and bits; and helpers that define such functions.

Each promotes its arguments as NumPy and JAX do, and applies one or a few lax operations. Those that have methods in JAX
(`add.reduce`) are `ufunc` objects; the others are functions. `ufuncs.py` has the mathematical functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.core.aval import Ints, is_cut, layouts
from jaxlite.core.values import ArrayImpl, aval_of
from jaxlite.devices import placement
from jaxlite.lax import shaping
from jaxlite.numpy.api import (
    api,
    as_array,
    check_arrays,
    dtype_of,
    multiplies_masks,
    promote,
    promote_inexact,
    promote_numeric,
    promote_ranks,
    unwrapped,
)
from jaxlite.numpy.ufunc_object import Folds, ufunc

# --- makers ------------------------------------------------------------------------------------------


def unary(name: str, operation: Callable, doc: str, prepare: Callable = promote_inexact):
    """The function that applies an operation of lax to one prepared argument."""

    def fun(x, /):
        (x,) = prepare(name, x)
        return operation(x)

    return named(fun, name, doc)


def binary(name: str, operation: Callable, doc: str, prepare: Callable = promote):
    """The function that applies an operation of lax to two prepared arguments, called x1 and x2."""

    def fun(x1, x2, /):
        x1, x2 = prepare(name, x1, x2)
        return operation(x1, x2)

    return named(fun, name, doc)


def unaries(names: str, operation: Callable, doc: str, prepare: Callable = promote_inexact) -> list[Any]:
    """`unary` for a function with several names."""
    return [unary(name, operation, doc, prepare) for name in names.split()]


def binaries(names: str, operation: Callable, doc: str, prepare: Callable = promote) -> list[Any]:
    """`binary` for a function with several names."""
    return [binary(name, operation, doc, prepare) for name in names.split()]


def with_methods(fun: Callable, identity=None, folds: Folds = Folds()) -> ufunc:  # noqa: B008
    """A function of x and y made into a ufunc: with `reduce`, `accumulate`, `at`, `reduceat` and `outer`."""
    result = ufunc(fun, 2, 1, identity=identity, call=fun)
    result.folds = folds
    return result


def binary_xy(name: str, operation: Callable, doc: str, prepare: Callable = promote, decorate: Callable = lambda fun: fun):
    """`binary` with arguments called x and y."""

    def fun(x, y, /):
        x, y = prepare(name, x, y)
        return operation(x, y)

    return named(decorate(fun), name, doc)


def named(fun, name: str, doc: str | None):
    """The function under its public name, one compiled call when eager."""
    fun.__name__ = fun.__qualname__ = name
    fun.__doc__ = doc
    return api(fun)


def shape_of(x) -> Ints:
    """The shape of an array, tracer or scalar."""
    return getattr(x, "shape", ())


def kind_of(x) -> str:
    """The kind of a value's dtype: b, i, u, f or c."""
    return dtypes.kind(dtype_of(x))


def constant(value, like):
    """A scalar in the dtype of an array or scalar, weakly typed if that is."""
    aval = aval_of(like)
    if aval.weak_type:
        weak = {"i": int, "f": float, "c": complex}[dtypes.kind(aval.dtype)](value)
        if aval_of(weak) is _scalar_type(aval):
            return weak
    return aval.dtype.type(value)


def known_below_zero(x):
    """An array without numbers above 0, said once more: LLVM takes five times as long over a loop of some rows otherwise, which
    is slower then. In bfloat16 it rounds the minimum, which takes longer."""
    return x if aval_of(x).dtype == dtypes.bfloat16 else lax.min(constant(0, x), x)


def _scalar_type(aval):
    return aval if not aval.shape else aval.update(shape=())


def full_of(value, like):
    """An array of one value, with the shape, dtype and weak type of another."""
    return stretch(constant(value, like), shape_of(like))


# --- arithmetic --------------------------------------------------------------------------------------

_bool = np.dtype(bool)


def _bool_or(bool_operation: Callable, operation: Callable) -> Callable:
    """An operation that has a form of its own for booleans."""
    return lambda x, y: (bool_operation if dtype_of(x) is _bool else operation)(x, y)


add = with_methods(
    binary_xy("add", _bool_or(lax.bitwise_or, lax.add), "x + y, element by element; logical or for booleans."),
    0, Folds(lax.reduce_sum, lax.cumsum, "add", widen=True))
subtract = with_methods(
    binary_xy("subtract", lax.sub, "x - y, element by element. TypeError for booleans: use `^`."))
multiply = with_methods(
    binary_xy("multiply", _bool_or(lax.bitwise_and, lax.mul), "x * y, element by element; logical and for booleans.",
              decorate=multiplies_masks),
    1, Folds(lax.reduce_prod, lax.cumprod, "multiply", widen=True))
maximum = with_methods(
    binary_xy("maximum", lax.max, "The greater of x and y, element by element; NaN if either is NaN."),
    None, Folds(lax.reduce_max, lax.cummax, "max", strong=True))
minimum = with_methods(
    binary_xy("minimum", lax.min, "The lesser of x and y, element by element; NaN if either is NaN."),
    None, Folds(lax.reduce_min, lax.cummin, "min", strong=True))
true_divide, divide = binaries("true_divide divide", lax.div, "x1 / x2, element by element, in floating point.",
                               promote_inexact)
_negative = unary("negative", lax.neg, "-x, element by element. TypeError for booleans: use `~`.", promote)
negative = ufunc(_negative, 1, 1, call=_negative)
positive = unary("positive", as_array, "x itself, element by element.", promote)


def _absolute(x):
    return as_array(x) if kind_of(x) in "bu" else lax.abs(x)


absolute, abs = unaries("absolute abs", _absolute, "The absolute value, element by element; real for complex x.", promote)


def _float_floor(x, y) -> tuple[Any, Any, Any]:
    """For floats: x / y before it is rounded down, the remainder with the sign of x, and where signs differ."""
    zero = constant(0, y)
    rest = lax.rem(x, y)
    exact = where_same(lax.eq(y, zero), x, lax.sub(x, rest))
    quotient = lax.div(exact, y)
    return quotient, rest, lax.bitwise_and(lax.ne(rest, zero), lax.ne(lax.sign(y), lax.sign(rest)))


def _round_down(quotient, below):
    return lax.round(where_same(below, lax.sub(quotient, constant(1, quotient)), quotient))


def where_same(condition, x, y):
    """`where` for values of one dtype, each either a scalar or of one common shape."""
    shapes = [shape_of(value) for value in (condition, x, y)]
    if not shapes[1] == shapes[2] or shapes[0] and shapes[0] != shapes[1]:
        shape = shaping.common_shape(*shapes)
        given = condition, x, y
        condition = stretch(condition, shape) if shapes[0] else condition
        x, y = stretch(x, shape), stretch(y, shape)
        if layouts.exist and (whole := [value for value, own in zip(given, shapes, strict=True)
                                        if own == shape and is_cut(aval_of(value))]):
            condition, x, y = (placement.laid_out_as(value, whole[-1]) if own != shape and value.shape else value
                               for value, own in zip((condition, x, y), shapes, strict=True))
    return lax.select_n(condition, y, x)


def stretch(x, shape: Ints):
    """A value broadcast to a shape."""
    own = shape_of(x)
    if own == shape:
        return x
    return shaping.broadcast_in_dim_p.bind(x, shape=shape, sharding=None,
                                           broadcast_dimensions=tuple(range(len(shape) - len(own), len(shape))))


def _is_known(y) -> bool:
    """Whether a divisor is a number that is known when the program is made, and not zero: no test of its sign is needed."""
    return isinstance(y, (int, np.integer)) and y != 0


def _has_other_sign(rest, y):
    """Whether the remainder of a division by a known number has not its sign, and is not zero."""
    return (lax.lt if y > 0 else lax.gt)(rest, constant(0, rest))


def floor_quotient(x, y):
    """x / y rounded down, for promoted x and y."""
    kind = kind_of(x)
    if kind == "u":
        return lax.div(x, y)
    if kind == "i":
        quotient = lax.div(x, y)
        rest = lax.rem(x, y)
        if _is_known(y):
            below = _has_other_sign(rest, y)
        else:
            below = lax.bitwise_and(lax.ne(lax.sign(x), lax.sign(y)), lax.ne(rest, constant(0, x)))
        return where_same(below, lax.sub(quotient, constant(1, x)), quotient)
    if kind == "c":
        raise TypeError("floor_divide does not support complex-valued inputs")
    quotient, _, below = _float_floor(x, y)
    return _round_down(quotient, below)


def remainder_of(x, y):
    """The remainder of x / y with the sign of y, for promoted x and y."""
    if kind_of(x) in "iu" and _is_known(y):
        rest = lax.rem(x, y)
        return rest if kind_of(x) == "u" else where_same(_has_other_sign(rest, y), lax.add(rest, y), rest)
    zero = constant(0, y)
    if kind_of(x) in "iu":
        y = where_same(lax.eq(y, zero), constant(1, y), y)  # x % 0 is 0
    rest = lax.rem(x, y)
    some = lax.ne(rest, zero)
    other_side = lax.bitwise_and(lax.ne(lax.lt(rest, zero), lax.lt(y, zero)), some)
    return where_same(other_side, lax.add(rest, y), rest)


def _divmod(x, y) -> tuple[Any, Any]:
    if kind_of(x) == "f":
        quotient, rest, below = _float_floor(x, y)
        remainder = where_same(below, lax.add(rest, y), rest)
        return _round_down(quotient, below), remainder
    return floor_quotient(x, y), remainder_of(x, y)


def _fmod(x, y):
    if kind_of(x) in "iu":
        y = where_same(lax.eq(y, constant(0, y)), constant(1, y), y)
    return lax.rem(x, y)


floor_divide = binary("floor_divide", floor_quotient, "x1 / x2 rounded down, element by element.", promote_numeric)
remainder, mod = binaries("remainder mod", remainder_of,
                          "The remainder of x1 // x2, with the sign of x2; 0 for integers divided by 0.", promote_numeric)
fmod = binary("fmod", _fmod, "The remainder of x1 / x2, with the sign of x1.", promote_numeric)
divmod = binary("divmod", _divmod, "(x1 // x2, x1 % x2), element by element.", promote_numeric)


# --- powers ------------------------------------------------------------------------------------------


def _static_power(x, exponent: int):
    (x,) = promote_numeric("power", x)
    return lax.integer_pow(x, exponent)


def _integer_power(x, y):
    """x ** y of integers by squaring, for exponents below 64."""
    zero, one = dtype_of(x).type(0), dtype_of(x).type(1)
    shape = shaping.broadcast_shapes(aval_of(x).shape, aval_of(y).shape)
    result = where_same(lax.bitwise_and(lax.eq(x, zero), lax.ne(y, zero)),
                        *(shaping.broadcast_in_dim(each, shape, ()) for each in (zero, one)))
    for bit in range(6):
        if bit:
            x, y = lax.mul(x, x), lax.shift_right_logical(y, one)
        odd, times = lax.bitwise_and(y, one), lax.mul(result, x)
        result = where_same(lax.ne(odd, zero), times, result)
    return result


def _power(x1, x2, /):
    base, exponent = aval_of(x1).dtype, aval_of(x2).dtype
    x, y = promote_numeric("power", x1, x2)
    if dtypes.kind(aval_of(x).dtype) in "iu":
        return _integer_power(x, y)
    if dtypes.kind(exponent) in "iu" and dtypes.kind(base) in "fc":
        y = promote_ranks("power", x1, x2)[1]  # an integer exponent stays one: exact, and negative bases are fine
    return lax.pow(x, y)


_static_power = named(_static_power, "power", None)
_power = named(_power, "power", None)


def _concrete_integer(x) -> int | None:
    """The value of a concrete integer scalar of any kind, else None."""
    kind = type(x)
    if kind is int or kind is bool:
        return int(x)
    if isinstance(x, np.integer):
        return int(x)
    if isinstance(x, (np.ndarray, ArrayImpl)) and not x.shape and dtypes.kind(x.dtype) in "iu":
        return int(x)
    return None


def power(x1, x2, /):
    """x1 to the power x2, element by element.

    A concrete integer scalar as exponent is part of the program: the power becomes a few multiplications.

    Raises: TypeError for integers to a concrete negative power.

    >>> import jaxlite.numpy as jnp
    >>> print(jnp.power(jnp.array([1.0, 2.0, 3.0]), 2))
    [1. 4. 9.]
    """
    exponent = _concrete_integer(x2)
    if exponent is not None:
        return _static_power(x1, exponent)
    return _power(x1, x2)


def pow(x1, x2, /):
    """x1 to the power x2: `power`."""
    return power(x1, x2)


float_power = binary_xy("float_power", lax.pow, "x to the power y in floating point.", promote_inexact)


# --- comparisons -------------------------------------------------------------------------------------


def ordered(operation: Callable) -> Callable:
    """An order extended to complex numbers: by real part, then by imaginary part."""

    def compare(x, y):
        if kind_of(x) != "c":
            return operation(x, y)
        same = lax.eq(lax.real(x), lax.real(y))
        return where_same(same, operation(lax.imag(x), lax.imag(y)), operation(lax.real(x), lax.real(y)))

    return compare


equal = binary_xy("equal", lax.eq, "x == y, element by element.")
not_equal = binary_xy("not_equal", lax.ne, "x != y, element by element.")
_COMPLEX = " Complex numbers compare by real part, then by imaginary part."
less = binary_xy("less", ordered(lax.lt), "x < y, element by element." + _COMPLEX)
less_equal = binary_xy("less_equal", ordered(lax.le), "x <= y, element by element." + _COMPLEX)
greater = binary_xy("greater", ordered(lax.gt), "x > y, element by element." + _COMPLEX)
greater_equal = binary_xy("greater_equal", ordered(lax.ge), "x >= y, element by element." + _COMPLEX)


# --- logic -------------------------------------------------------------------------------------------


def as_bool(x):
    """Whether each element is not zero."""
    return x if dtype_of(x) == _bool else lax.ne(x, constant(0, x))


def _truth(name: str, *args) -> list[Any]:
    """The arguments as booleans of one rank."""
    check_arrays(name, *args)
    return promote_ranks(name, *map(as_bool, unwrapped(args)))


logical_and = with_methods(
    binary_xy("logical_and", lax.bitwise_and, "Whether x and y are both true, element by element.", _truth),
    True, Folds(lax.reduce_and, logical=True))
logical_or = with_methods(
    binary_xy("logical_or", lax.bitwise_or, "Whether x or y is true, element by element.", _truth),
    False, Folds(lax.reduce_or, logical=True))
logical_xor = with_methods(
    binary_xy("logical_xor", lax.bitwise_xor, "Whether one of x and y is true, element by element.", _truth),
    False, Folds(lax.reduce_xor, logical=True))
logical_not = unary("logical_not", lax.bitwise_not, "Whether x is false, element by element.", _truth)


# --- bits --------------------------------------------------------------------------------------------


def _right_shift(x, y):
    return (lax.shift_right_logical if kind_of(x) == "u" else lax.shift_right_arithmetic)(x, y)


_BITS = ", bit by bit, of integers or booleans."
bitwise_and = with_methods(binary_xy("bitwise_and", lax.bitwise_and, "x AND y" + _BITS), -1, Folds(lax.reduce_and))
bitwise_or = with_methods(binary_xy("bitwise_or", lax.bitwise_or, "x OR y" + _BITS), 0, Folds(lax.reduce_or))
bitwise_xor = with_methods(binary_xy("bitwise_xor", lax.bitwise_xor, "x XOR y" + _BITS), 0, Folds(lax.reduce_xor))
_LEFT = "x << y, of integers."
bitwise_not, bitwise_invert, invert = unaries("bitwise_not bitwise_invert invert", lax.bitwise_not, "NOT x" + _BITS,
                                              promote)
left_shift = binary_xy("left_shift", lax.shift_left, _LEFT, promote_numeric)
bitwise_left_shift = binary_xy("bitwise_left_shift", lax.shift_left, _LEFT, promote_numeric)
right_shift, bitwise_right_shift = binaries("right_shift bitwise_right_shift", _right_shift,
                                            "x1 >> x2, of integers; the sign is kept.", promote_numeric)
