"""Elementwise operations: arithmetic, comparisons, bits, exponentials, trigonometry, complex parts, selection.

The output of each primitive has the broadcast shape of its operands. Operands have the same dtype: lax never promotes,
`jaxlite.numpy` does. An operand may be a scalar, and sizes of 1 are broadcast. `unary` and `nary` below define an operation
in two lines; special functions are in `special.py`.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.aval import Ints, ShapedArray, shaped_array
from jaxlite.core.primitive import OwnBind, Primitive
from jaxlite.core.tracing import state
from jaxlite.core.values import aval_of
from jaxlite.lax.accuracy import accuracy_params
from jaxlite.lax.shaping import convert_element_type, require_equal_dtypes

# Kinds of dtypes that an operation accepts: b bool, i signed, u unsigned, f floating, c complex.
FLOATS = "f"
INEXACT = "fc"
INTEGERS = "iu"
BITS = "biu"
REALS = "iuf"
NUMBERS = "iufc"
ANY = "biufc"
_KIND_WORDS = {"b": "bool", "i": "signedinteger", "u": "unsignedinteger", "f": "floating", "c": "complexfloating",
               "x": "extended"}
_bool = np.dtype(bool)


def kinds_in_words(accepted: str) -> str:
    """`floating, complexfloating` for 'fc'."""
    if "i" in accepted and "u" in accepted:
        words = ["integer"] + [_KIND_WORDS[kind] for kind in accepted if kind not in "iu"]
        return ", ".join(words)
    return ", ".join(_KIND_WORDS[kind] for kind in accepted)


def broadcast_shape(name: str, shapes: Sequence[Ints]) -> Ints:
    """The common shape of elementwise operands: equal ranks, sizes equal or 1; scalars go with anything.

    Raises: TypeError that shows the shapes.
    """
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    ranked = [shape for shape in shapes if shape]
    if any(len(shape) != len(ranked[0]) for shape in ranked):
        raise TypeError(f"{name}: arrays must have the same number of dimensions, got {set(map(len, ranked))}: "
                        f"shapes {', '.join(map(str, shapes))}. lax adds no dimensions; use broadcast_in_dim, or "
                        f"the function of the same name in jaxlite.numpy.")
    result = []
    for sizes in zip(*ranked, strict=True):
        distinct = {size for size in sizes if size != 1}
        if len(distinct) > 1:
            raise TypeError(f"{name} got incompatible shapes for broadcasting: {', '.join(map(str, shapes))}.")
        result.append(distinct.pop() if distinct else 1)
    return tuple(result)


def require_kind(name: str, aval, accepted: str, position: int | None = None) -> None:
    """Raises TypeError unless the operand's dtype is of an accepted kind."""
    kind = dtypes.kind(aval.dtype)
    if kind not in accepted or kind == "x" and aval.dtype == dtypes.float0:
        at = "" if position is None else f" at position {position}"
        if aval.dtype == dtypes.float0:
            raise TypeError(dtypes.float0_message(name))
        raise TypeError(f"{name} does not accept dtype {aval.dtype}{at}. Accepted dtypes{at} are subtypes of "
                        f"{kinds_in_words(accepted)}.")


def _same_dtype(dtype):
    return dtype


def _to_bool(dtype):
    return _bool


def unary(name: str, accepted: str, result: Callable[[Any], Any] = _same_dtype) -> Primitive:
    """A primitive of one operand with static params; `result` maps the dtype."""
    primitive = Primitive(name)

    @primitive.def_abstract_eval
    def rule(x, **params) -> ShapedArray:
        require_kind(name, x, accepted)
        dtype = result(x.dtype)
        return shaped_array(x.shape, dtype, x.weak_type and dtype != _bool)

    return primitive


def nary(name: str, accepted: str | Sequence[str], result: Callable[[Any], Any] = _same_dtype,
         arity: int | None = 2, kind: type[Primitive] = Primitive) -> Primitive:
    """A primitive of several operands of one dtype; of any number if the arity is None. Kinds may be given for each."""
    primitive = kind(name)

    @primitive.def_abstract_eval
    def rule(*avals, **params) -> ShapedArray:
        if arity is not None and len(avals) != arity:
            raise TypeError(f"{name} takes {arity} operands, got {len(avals)}")
        for position, aval in enumerate(avals):
            require_kind(name, aval, accepted if isinstance(accepted, str) else accepted[position], position)
        require_equal_dtypes(name, avals)
        shape = broadcast_shape(name, [aval.shape for aval in avals])
        dtype = result(avals[0].dtype)
        weak = dtype != _bool and all(aval.weak_type for aval in avals)
        return shaped_array(shape, dtype, weak)

    return primitive


# --- arithmetic --------------------------------------------------------------------------------------


class _Product(OwnBind):
    """The primitive of `mul`: `bind` takes JAX's parameter `out_dtype` too, which is no param of equations."""

    __slots__ = ()

    def bind(self, x, y, *, out_dtype=None):
        if out_dtype is not None:
            x, y = convert_element_type(x, out_dtype), convert_element_type(y, out_dtype)
        return state.trace.process(self, (x, y), {})


add_p = nary("add", NUMBERS)
sub_p = nary("sub", NUMBERS)
mul_p = nary("mul", NUMBERS, kind=_Product)
div_p = nary("div", NUMBERS)
rem_p = nary("rem", REALS)
max_p = nary("max", ANY)
min_p = nary("min", ANY)
neg_p = unary("neg", NUMBERS)
sign_p = unary("sign", NUMBERS)
abs_p = unary("abs", "ifc", dtypes.real_dtype)
floor_p = unary("floor", FLOATS)
ceil_p = unary("ceil", FLOATS)
round_p = unary("round", FLOATS)
is_finite_p = unary("is_finite", FLOATS, _to_bool)
nextafter_p = nary("nextafter", FLOATS)
mul_p.leaves_out(out_dtype=None)


def add(x, y):
    """x + y, element by element. Operands of one numeric dtype."""
    return add_p.bind(x, y)


def sub(x, y):
    """x - y, element by element. Operands of one numeric dtype."""
    return sub_p.bind(x, y)


def mul(x, y, *, out_dtype=None):
    """x * y, element by element. Operands of one numeric dtype.

    Args: `out_dtype` is the dtype to multiply in and of the result, if another one.
    """
    return mul_p.bind(x, y, out_dtype=out_dtype)


def div(x, y):
    """x / y, element by element; integers round towards zero."""
    return div_p.bind(x, y)


def rem(x, y):
    """The remainder of x / y with the sign of x."""
    return rem_p.bind(x, y)


def max(x, y):
    """The greater of x and y; NaN if either is. Complex numbers compare real part first."""
    return max_p.bind(x, y)


def min(x, y):
    """The lesser of x and y; NaN if either is. Complex numbers compare real part first."""
    return min_p.bind(x, y)


def neg(x):
    """-x."""
    return neg_p.bind(x)


def sign(x):
    """-1, 0 or 1 by the sign of x; NaN stays; x / |x| for complex x."""
    return sign_p.bind(x)


def abs(x):
    """|x|; real for complex x. Unsigned integers are not accepted: they are their own absolute value."""
    return abs_p.bind(x)


def floor(x):
    """The greatest whole number not above x, in x's floating dtype."""
    return floor_p.bind(x)


def ceil(x):
    """The least whole number not below x, in x's floating dtype."""
    return ceil_p.bind(x)


class RoundingMethod(enum.IntEnum):
    """How `round` breaks ties."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def round(x, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO):
    """x rounded to a whole number, in x's floating dtype; ties are rounded by `rounding_method`."""
    return round_p.bind(x, rounding_method=RoundingMethod(rounding_method))


def is_finite(x):
    """Whether x is neither infinite nor NaN."""
    return is_finite_p.bind(x)


def nextafter(x1, x2):
    """The next representable value after x1 in the direction of x2."""
    return nextafter_p.bind(x1, x2)


# --- powers, exponentials, logarithms ----------------------------------------------------------------

exp_p = unary("exp", INEXACT)
exp2_p = unary("exp2", INEXACT)
expm1_p = unary("expm1", INEXACT)
log_p = unary("log", INEXACT)
log1p_p = unary("log1p", INEXACT)
log2_p = unary("log2", INEXACT)
logistic_p = unary("logistic", INEXACT)
sqrt_p = unary("sqrt", INEXACT)
rsqrt_p = unary("rsqrt", INEXACT)
cbrt_p = unary("cbrt", FLOATS)
square_p = unary("square", NUMBERS)
one_minus_square_p = unary("one_minus_square", NUMBERS)
polynomial_p = nary("polynomial", NUMBERS, arity=None)  # of x, and c0, c1, ...: short ones, which are no loops
integer_pow_p = unary("integer_pow", NUMBERS)
pow_p = Primitive("pow")


def exp(x, *, accuracy=None):
    """e to the power x."""
    return exp_p.bind(x) if accuracy is None else exp_p.bind(x, **accuracy_params(accuracy))


def exp2(x, *, accuracy=None):
    """2 to the power x."""
    return exp2_p.bind(x) if accuracy is None else exp2_p.bind(x, **accuracy_params(accuracy))


def expm1(x, *, accuracy=None):
    """exp(x) - 1, accurate near 0."""
    return expm1_p.bind(x) if accuracy is None else expm1_p.bind(x, **accuracy_params(accuracy))


def log(x, *, accuracy=None):
    """The natural logarithm."""
    return log_p.bind(x) if accuracy is None else log_p.bind(x, **accuracy_params(accuracy))


def log1p(x, *, accuracy=None):
    """log(1 + x), accurate near 0."""
    return log1p_p.bind(x) if accuracy is None else log1p_p.bind(x, **accuracy_params(accuracy))


def log2(x, *, accuracy=None):
    """The logarithm to base 2."""
    return log2_p.bind(x) if accuracy is None else log2_p.bind(x, **accuracy_params(accuracy))


def logistic(x, *, accuracy=None):
    """1 / (1 + exp(-x))."""
    return logistic_p.bind(x) if accuracy is None else logistic_p.bind(x, **accuracy_params(accuracy))


def sqrt(x, *, accuracy=None):
    """The square root."""
    return sqrt_p.bind(x) if accuracy is None else sqrt_p.bind(x, **accuracy_params(accuracy))


def rsqrt(x, *, accuracy=None):
    """1 / sqrt(x)."""
    return rsqrt_p.bind(x) if accuracy is None else rsqrt_p.bind(x, **accuracy_params(accuracy))


def cbrt(x, *, accuracy=None):
    """The real cube root."""
    return cbrt_p.bind(x) if accuracy is None else cbrt_p.bind(x, **accuracy_params(accuracy))


def square(x):
    """x * x."""
    return square_p.bind(x)


def one_minus_square(x):
    """1 - x^2, accurate near 1 and -1."""
    return one_minus_square_p.bind(x)


def reciprocal(x):
    """1 / x."""
    return integer_pow(x, -1)


def integer_pow(x, y: int):
    """x to a static integer power, by repeated squaring. Negative powers need a floating or complex x."""
    y = operator.index(y)
    if y < 0 and dtypes.kind(aval_of(x).dtype) in "iu":
        raise TypeError(f"Integers cannot be raised to negative powers, got integer_pow({aval_of(x)}, {y})")
    return integer_pow_p.bind(x, y=y)


@pow_p.def_abstract_eval
def _pow_aval(x, y) -> ShapedArray:
    require_kind("pow", x, NUMBERS if dtypes.kind(y.dtype) in "iu" else INEXACT, 0)
    require_kind("pow", y, "iufc", 1)
    if dtypes.kind(y.dtype) not in "iu":
        require_equal_dtypes("pow", (x, y))
    shape = broadcast_shape("pow", (x.shape, y.shape))
    return shaped_array(shape, x.dtype, x.weak_type and y.weak_type)


def pow(x, y):
    """x to the power y. y has x's dtype, or any integer dtype."""
    return pow_p.bind(x, y)


# --- trigonometry ------------------------------------------------------------------------------------

sin_p = unary("sin", INEXACT)
cos_p = unary("cos", INEXACT)
tan_p = unary("tan", INEXACT)
asin_p = unary("asin", INEXACT)
acos_p = unary("acos", INEXACT)
atan_p = unary("atan", INEXACT)
atan2_p = nary("atan2", INEXACT)
sinh_p = unary("sinh", INEXACT)
cosh_p = unary("cosh", INEXACT)
tanh_p = unary("tanh", INEXACT)
asinh_p = unary("asinh", INEXACT)
acosh_p = unary("acosh", INEXACT)
atanh_p = unary("atanh", INEXACT)
for _p in (cbrt_p, cos_p, exp2_p, exp_p, expm1_p, log1p_p, log2_p, log_p, logistic_p, rsqrt_p, sin_p, sqrt_p, tan_p, tanh_p):
    _p.leaves_out(accuracy=None)


def sin(x, *, accuracy=None):
    """The sine of x in radians."""
    return sin_p.bind(x) if accuracy is None else sin_p.bind(x, **accuracy_params(accuracy))


def cos(x, *, accuracy=None):
    """The cosine of x in radians."""
    return cos_p.bind(x) if accuracy is None else cos_p.bind(x, **accuracy_params(accuracy))


def tan(x, *, accuracy=None):
    """The tangent of x in radians."""
    return tan_p.bind(x) if accuracy is None else tan_p.bind(x, **accuracy_params(accuracy))


def asin(x):
    """The inverse sine, in [-pi/2, pi/2]."""
    return asin_p.bind(x)


def acos(x):
    """The inverse cosine, in [0, pi]."""
    return acos_p.bind(x)


def atan(x):
    """The inverse tangent, in [-pi/2, pi/2]."""
    return atan_p.bind(x)


def atan2(x, y):
    """The angle of the point with ordinate x and abscissa y, in [-pi, pi]."""
    return atan2_p.bind(x, y)


def sinh(x):
    """The hyperbolic sine."""
    return sinh_p.bind(x)


def cosh(x):
    """The hyperbolic cosine."""
    return cosh_p.bind(x)


def tanh(x, *, accuracy=None):
    """The hyperbolic tangent."""
    return tanh_p.bind(x) if accuracy is None else tanh_p.bind(x, **accuracy_params(accuracy))


def asinh(x):
    """The inverse hyperbolic sine."""
    return asinh_p.bind(x)


def acosh(x):
    """The inverse hyperbolic cosine."""
    return acosh_p.bind(x)


def atanh(x):
    """The inverse hyperbolic tangent."""
    return atanh_p.bind(x)


# --- comparisons -------------------------------------------------------------------------------------

eq_p = nary("eq", ANY + "x", _to_bool)
ne_p = nary("ne", ANY + "x", _to_bool)
ge_p = nary("ge", "biuf", _to_bool)
gt_p = nary("gt", "biuf", _to_bool)
le_p = nary("le", "biuf", _to_bool)
lt_p = nary("lt", "biuf", _to_bool)
eq_to_p = nary("eq_to", "biuf", _to_bool)
le_to_p = nary("le_to", "biuf", _to_bool)
lt_to_p = nary("lt_to", "biuf", _to_bool)


def eq(x, y):
    """x == y; NaN equals nothing."""
    return eq_p.bind(x, y)


def ne(x, y):
    """x != y."""
    return ne_p.bind(x, y)


def ge(x, y):
    """x >= y."""
    return ge_p.bind(x, y)


def gt(x, y):
    """x > y."""
    return gt_p.bind(x, y)


def le(x, y):
    """x <= y."""
    return le_p.bind(x, y)


def lt(x, y):
    """x < y."""
    return lt_p.bind(x, y)


# --- bits --------------------------------------------------------------------------------------------

and_p = nary("and", BITS)
or_p = nary("or", BITS)
xor_p = nary("xor", BITS)
not_p = unary("not", BITS)
shift_left_p = nary("shift_left", INTEGERS)
shift_right_logical_p = nary("shift_right_logical", INTEGERS)
shift_right_arithmetic_p = nary("shift_right_arithmetic", INTEGERS)
population_count_p = unary("population_count", INTEGERS)
clz_p = unary("clz", INTEGERS)
mulhi_p = nary("mulhi", INTEGERS)


def bitwise_and(x, y):
    """x AND y, bit by bit; logical for bool."""
    return and_p.bind(x, y)


def bitwise_or(x, y):
    """x OR y, bit by bit; logical for bool."""
    return or_p.bind(x, y)


def bitwise_xor(x, y):
    """x XOR y, bit by bit; logical for bool."""
    return xor_p.bind(x, y)


def bitwise_not(x):
    """NOT x, bit by bit; logical for bool."""
    return not_p.bind(x)


def shift_left(x, y):
    """x << y; 0 where y is not in [0, bits of x)."""
    return shift_left_p.bind(x, y)


def shift_right_logical(x, y):
    """x >> y, filling with zeros; 0 where y is not in [0, bits of x)."""
    return shift_right_logical_p.bind(x, y)


def shift_right_arithmetic(x, y):
    """x >> y, filling with the sign bit; the sign fills all where y is not in [0, bits of x)."""
    return shift_right_arithmetic_p.bind(x, y)


def population_count(x):
    """How many bits of x are set."""
    return population_count_p.bind(x)


def clz(x):
    """How many leading bits of x are zero."""
    return clz_p.bind(x)


def mulhi(x, y):
    """The high half of the product of two integers."""
    return mulhi_p.bind(x, y)


# --- complex numbers ---------------------------------------------------------------------------------

real_p = unary("real", "c", dtypes.real_dtype)
imag_p = unary("imag", "c", dtypes.real_dtype)
conj_p = unary("conj", "fc", lambda dtype: dtype if dtypes.kind(dtype) == "c" else _complex_of(dtype))
complex_p = nary("complex", FLOATS, lambda dtype: _complex_of(dtype))


def _complex_of(dtype):
    found = {dtypes.float32: dtypes.complex64, dtypes.float64: dtypes.complex128}.get(dtype)
    if found is None:
        raise TypeError(f"there is no complex dtype with parts of dtype {dtype}; float32 and float64 have one")
    return found


def real(x):
    """The real part of a complex array."""
    return real_p.bind(x)


def imag(x):
    """The imaginary part of a complex array."""
    return imag_p.bind(x)


def conj(x):
    """The complex conjugate; a floating x becomes complex."""
    return conj_p.bind(x, input_dtype=aval_of(x).dtype)


def complex(x, y):
    """x + iy of two floating arrays."""
    return complex_p.bind(x, y)


# --- choosing ----------------------------------------------------------------------------------------

select_n_p = Primitive("select_n")
clamp_p = Primitive("clamp")


@select_n_p.def_abstract_eval
def _select_n_aval(which, *cases) -> ShapedArray:
    if not cases:
        raise ValueError("select_n() must have at least one case")
    if dtypes.kind(which.dtype) not in "biu":
        raise TypeError(f"select `which` must be boolean or integer type, got {which.dtype}.")
    if which.dtype == _bool and len(cases) > 2:
        raise TypeError(f"select with boolean `which` cannot have > 2 cases. It got {len(cases)}")
    for case in cases[1:]:
        if case.shape != cases[0].shape:
            raise TypeError(f"select cases must have the same shapes, got {[each.shape for each in cases]}")
    require_equal_dtypes("select", cases)
    if which.shape and which.shape != cases[0].shape:
        raise TypeError(f"select `which` must be scalar or have the same shape as cases, got `which` shape {which.shape} "
                        f"but case shape {cases[0].shape}.")
    return shaped_array(cases[0].shape, cases[0].dtype, all(case.weak_type for case in cases))


def select_n(which, *cases):
    """Take each element from the case that `which` names.

    Args:
      which: bool (False takes the first case, True the second) or integers in [0, number of cases); of the cases'
        shape, or a scalar.
      cases: arrays of one shape and dtype.
    """
    return select_n_p.bind(which, *cases)


def select(pred, on_true, on_false):
    """`on_true` where `pred` holds, else `on_false`; one shape, one dtype."""
    return select_n_p.bind(pred, on_false, on_true)


@clamp_p.def_abstract_eval
def _clamp_aval(low, x, high) -> ShapedArray:
    require_equal_dtypes("clamp", (low, x, high))
    for bound, name in ((low, "min"), (high, "max")):
        if bound.shape and bound.shape != x.shape:
            raise TypeError(f"clamp requires {name}.shape == operand.shape or {name}.shape == (), got "
                            f"{name}.shape={bound.shape}, operand.shape={x.shape}.")
    require_kind("clamp", x, "biuf", 1)
    return shaped_array(x.shape, x.dtype, x.weak_type)


def clamp(min, x, max):
    """x limited to [min, max]; the bounds are scalars or of x's shape."""
    return clamp_p.bind(min, x, max)
