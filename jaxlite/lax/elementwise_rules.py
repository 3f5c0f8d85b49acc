"""Derivative and batching rules of the elementwise primitives.

They are separate from `elementwise.py` because they broadcast and sum, and these operations are defined in higher modules.
Letters: g a tangent, ans the output, x and y the operands, ct a cotangent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.aval import layouts, spaces
from jaxlite.core.values import aval_of
from jaxlite.devices import placement
from jaxlite.lax import elementwise as e
from jaxlite.lax import shaping
from jaxlite.lax.elementwise import (
    abs,
    add,
    conj,
    div,
    eq,
    ge,
    gt,
    integer_pow,
    log,
    lt,
    mul,
    neg,
    pow,
    real,
    select_n,
    sign,
    sub,
)  # fmt: skip
from jaxlite.lax.reductions import reduce_sum
from jaxlite.traces import batching, jvp
from jaxlite.traces.batching import Axis, def_elementwise
from jaxlite.traces.jvp import Zero, def_jvp, def_zero, zero_for
from jaxlite.traces.transpose import def_bilinear, in_memory_of, is_linear
from lowering.xla import VERSION


@jvp.set_zeros_maker
def _zeros(aval: Any) -> Any:
    rules = dtypes.rules_of(aval.dtype)
    if rules is not None:
        return shaping.broadcast_in_dim(rules.zero(aval.dtype), aval.shape, ())
    zeros = shaping.full(aval.shape, 0, aval.dtype) if not aval.weak_type else shaping.broadcast_in_dim(
        shaping.convert(0, aval.dtype, True), aval.shape, ())
    zeros = shaping.varying_as(placement.laid_out_as(zeros, aval), aval)
    return in_memory_of(zeros, aval) if spaces.exist else zeros


jvp.set_weak_maker(lambda x: shaping.convert(x, None, True))


def _move_axis(x, source: int, target: int):
    order = [axis for axis in range(aval_of(x).ndim) if axis != source]
    order.insert(target, source)
    return shaping.transpose(x, order)


def _spread(x, size: int, target: int):
    shape = aval_of(x).shape
    return shaping.broadcast_in_dim(x, (*shape[:target], size, *shape[target:]),
                                    [axis + (axis >= target) for axis in range(len(shape))])


batching.set_movers(_move_axis, _spread)
batching.set_expander(shaping.expand_dims)

# --- helpers -----------------------------------------------------------------------------------------


def sum_to(ct, aval):
    """A cotangent summed over the axes along which its operand was stretched."""
    shape = aval_of(ct).shape
    if shape == aval.shape:
        return ct
    if not aval.shape:
        return reduce_sum(ct, range(len(shape)))
    axes = [axis for axis, (size, own) in enumerate(zip(shape, aval.shape, strict=True)) if own != size]
    return shaping.reshape(reduce_sum(ct, axes), aval.shape)


def stretch(g, out):
    """A tangent at the shape of the output that its operand was stretched to."""
    shape, target = aval_of(g).shape, aval_of(out).shape
    return g if shape == target else shaping.broadcast_in_dim(g, target, range(len(shape)))


def const(value, x, strong: bool = False):
    """A scalar constant in the dtype of x, weakly typed if x is. A `strong` one makes what it is combined with strong too."""
    aval = aval_of(x)
    scalar = np.asarray(value).astype(aval.dtype)[()]
    if aval.weak_type and not strong and aval_of(scalar.item()).dtype == aval.dtype:
        return scalar.item()
    return scalar


def factor(value, x):
    """A scalar constant in the dtype of x, weakly typed if x is a weakly typed number: other arrays become strong by it."""
    return const(value, x, strong=bool(aval_of(x).shape))


def filled(value, x, strong: bool = False):
    """A constant in the shape and dtype of x."""
    aval = aval_of(x)
    made = shaping.broadcast_in_dim(const(value, x, strong), aval.shape, ())
    return placement.laid_out_as(made, aval) if layouts.exist else made


def moved(x, steps: int, axis: int, entering=0):
    """Elements moved along an axis, and a constant where others come in: at the start, or at the end for negative steps."""
    padding = [(0, 0, 0)] * aval_of(x).ndim
    padding[axis] = (steps, -steps, 0)
    return shaping.pad(x, const(entering, x), padding)


def _strong_zeros(x):
    return shaping.broadcast_in_dim(const(0, x, strong=True), aval_of(x).shape, ())


def _cts(ct, *operands) -> list[Any]:
    return [sum_to(ct, operand.aval) if is_linear(operand) else None for operand in operands]


# --- arithmetic --------------------------------------------------------------------------------------


def _sum_jvp(operation: Callable, second: Callable) -> Callable:
    def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x, y), (dx, dy) = primals, tangents
        out = operation(x, y)
        if type(dx) is Zero:
            return out, stretch(second(dy), out)
        return out, stretch(dx, out) if type(dy) is Zero else operation(dx, dy)

    return rule


e.add_p.def_jvp(_sum_jvp(add, lambda dy: dy))
e.add_p.def_transpose(lambda ct, x, y: _cts(ct, x, y))
e.sub_p.def_jvp(_sum_jvp(sub, neg))
e.sub_p.def_transpose(lambda ct, x, y: [sum_to(ct, x.aval) if is_linear(x) else None,
                                        sum_to(neg(ct), y.aval) if is_linear(y) else None])
def_bilinear(e.mul_p, lambda ct, x, y: sum_to(mul(ct, y), x), lambda ct, x, y: sum_to(mul(x, ct), y))


def _div_jvp_divisor(g, ans, x, y):
    # In this order a divisor that is stretched over x is scaled, transposed, once before and once behind the sum over what it
    # is stretched along: of several operations behind it the library that sums up makes loops of one element. x is what else is
    # kept where something is normalised, the quotient is not. 1 / y**2 would overflow early.
    inverse = integer_pow(y, -1)
    return mul(mul(mul(g, neg(inverse)), x), inverse)


def_jvp(e.div_p, lambda g, ans, x, y: div(g, y), _div_jvp_divisor)
e.div_p.def_transpose(lambda ct, x, y: [sum_to(div(ct, y), x.aval), None])
def_jvp(e.rem_p, lambda g, ans, x, y: stretch(g, ans),
        lambda g, ans, x, y: mul(neg(g), mul(sign(div(x, y)), e.floor(abs(div(x, y))))))
e.neg_p.def_jvp(lambda primals, tangents: (neg(*primals), neg(*tangents)))
e.neg_p.def_transpose(lambda ct, x: [neg(ct)])


def _def_extreme(primitive, beats: Callable) -> None:
    """The share of an operand: 1 if it is taken, 1/2 for ties."""
    strong = VERSION >= (0, 12)  # as JAX of the same jaxlib

    def share(g, ans, x, y):
        g, x, y = stretch(g, ans), stretch(x, ans), stretch(y, ans)
        one, half, zero = (filled(value, g, strong) for value in (1, 0.5, 0))
        # Not `eq(x, ans)`: the kernel of a gradient needs no result.
        is_taken = eq(x, ans) if dtypes.kind(aval_of(x).dtype) == "c" else beats(x, y)
        return mul(g, select_n(eq(x, y), select_n(is_taken, zero, one), half))

    def_jvp(primitive, share, lambda g, ans, x, y: share(g, ans, y, x))


_def_extreme(e.max_p, gt)
_def_extreme(e.min_p, lt)

for _p in (e.floor_p, e.ceil_p, e.round_p, e.is_finite_p, e.eq_p, e.ne_p, e.ge_p, e.gt_p, e.le_p,
           e.lt_p, e.eq_to_p, e.le_to_p, e.lt_to_p, e.and_p, e.or_p, e.xor_p, e.not_p, e.shift_left_p,
           e.shift_right_logical_p, e.shift_right_arithmetic_p, e.population_count_p, e.clz_p, e.mulhi_p):
    def_zero(_p)


@e.sign_p.def_jvp
def _sign_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    (x,), (g,) = primals, tangents
    out = e.sign(x)
    if dtypes.kind(aval_of(x).dtype) != "c" or VERSION < (0, 12):  # as JAX of the same jaxlib
        return out, zero_for(out)
    turn, size = e.imag(mul(conj(out), g)), abs(x)  # the part of g that changes the angle
    turn = div(turn, select_n(eq(size, filled(0, size)), size, filled(1, size)))
    return out, mul(out, e.complex(filled(0, turn), turn))


def_jvp(e.nextafter_p, lambda g, ans, x, y: stretch(g, ans), None)  # next to x, whatever the direction


@e.abs_p.def_jvp
def _abs_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    (x,), (g,) = primals, tangents
    out = abs(x)
    if dtypes.kind(aval_of(x).dtype) != "c":
        return out, select_n(ge(x, filled(0, x)), neg(g), g)  # 1 at 0
    return out, div(real(mul(g, conj(x))), select_n(eq(out, filled(0, out)), out, filled(1, out)))


# --- powers, exponentials, logarithms ----------------------------------------------------------------

def_jvp(e.exp_p, lambda g, ans, x, **accuracy: mul(g, ans))
def_jvp(e.exp2_p, lambda g, ans, x, **accuracy: mul(factor(np.log(2), x), mul(g, ans)))
# Not ans + 1, which is 0 from -17 on. And the value need not be kept for it.
def_jvp(e.expm1_p, lambda g, ans, x, **accuracy: mul(g, e.exp_p.bind(x, **accuracy)))
def_jvp(e.log_p, lambda g, ans, x, **accuracy: div(g, x))
def_jvp(e.log1p_p, lambda g, ans, x, **accuracy: div(g, add(x, const(1, x))))
def_jvp(e.log2_p, lambda g, ans, x, **accuracy: div(g, mul(x, factor(np.log(2), x))))
def_jvp(e.logistic_p, lambda g, ans, x, **accuracy: mul(g, mul(ans, sub(const(1, x), ans))))
# A division, which checkify's checks of divisions see.
def_jvp(e.sqrt_p, lambda g, ans, x, **accuracy: mul(g, div(factor(0.5, x), ans)))
def_jvp(e.rsqrt_p, lambda g, ans, x, **accuracy: mul(g, mul(factor(-0.5, x), div(ans, x))))
def_jvp(e.cbrt_p, lambda g, ans, x, **accuracy: mul(g, mul(factor(1 / 3, x), integer_pow(ans, -2))))

def _twice(x):
    """A sum, which a kernel of a sum takes in faster than a product with a constant; that makes weakly typed arrays strong."""
    aval = aval_of(x)
    return mul(factor(2, x), x) if aval.weak_type and aval.shape else jvp.add_tangents(x, x)


def_jvp(e.square_p, lambda g, ans, x: _twice(mul(g, x)))
def_jvp(e.one_minus_square_p, lambda g, ans, x: mul(g, mul(const(-2, x), x)))
def_jvp(e.integer_pow_p, lambda g, ans, x, y: filled(0, g) if y == 0 else g if y == 1 else
        mul(g, mul(factor(y, x), x if y == 2 else integer_pow(x, y - 1))))


def _pow_base(g, ans, x, y):
    """y * x**(y - 1), and 0 where y is 0 (also at x = 0)."""
    if isinstance(y, (int, float, np.number)):
        exponent = const(y - (y != 0), y)
    else:
        exponent = sub(y, shaping.convert(e.ne(y, const(0, y)), aval_of(y).dtype, False))
    return mul(g, mul(shaping.convert(y, aval_of(x).dtype, False), pow(x, exponent)))


def _pow_exponent(g, ans, x, y):
    """log(x) * ans, and 0 at x = 0."""
    return shaping.strong(mul(g, mul(log(select_n(eq(x, const(0, x)), x, filled(1, x))), ans)))


def_jvp(e.pow_p, _pow_base, _pow_exponent)

@e.polynomial_p.def_jvp
def _polynomial_jvp(primals: Sequence[Any], tangents: Sequence[Any], **unroll: Any) -> tuple[Any, Any]:
    (x, *terms), (of_x, *of_terms) = primals, tangents
    out = e.polynomial_p.bind(x, *terms, **unroll)
    share = None
    if type(of_x) is not Zero and len(terms) > 1:
        first, *others = [mul(const(power, term), term) for power, term in enumerate(terms[1:], 1)]
        slope = e.polynomial_p.bind(x, first, *others, **unroll) if others else first
        share = mul(stretch(of_x, out), stretch(slope, out))
    if not all(type(each) is Zero for each in of_terms):
        other = stretch(e.polynomial_p.bind(x, *map(jvp.instantiate, of_terms), **unroll), out)
        share = other if share is None else jvp.add_tangents(share, other)
    return out, zero_for(out) if share is None else share


@e.polynomial_p.def_transpose
def _polynomial_transpose(ct: Any, x: Any, *terms: Any, **unroll: Any) -> list[Any]:
    shares: list[Any] = [None]
    for position, term in enumerate(terms):
        ct = mul(ct, x) if position else ct
        shares.append(sum_to(ct, term.aval) if is_linear(term) else None)
    return shares


# --- trigonometry ------------------------------------------------------------------------------------


def _one_plus_square(x, constant):
    return add(constant(1, x), e.square(x))


def_jvp(e.sin_p, lambda g, ans, x, **accuracy: mul(g, e.cos(x)))
def_jvp(e.cos_p, lambda g, ans, x, **accuracy: neg(mul(g, e.sin(x))))
def_jvp(e.tan_p, lambda g, ans, x, **accuracy: mul(g, _one_plus_square(ans, factor)))
def_jvp(e.atan_p, lambda g, ans, x: div(g, _one_plus_square(x, factor)))
def_jvp(e.atan2_p, lambda g, ans, x, y: mul(g, div(y, add(e.square(x), e.square(y)))),
        lambda g, ans, x, y: mul(g, div(neg(x), add(e.square(x), e.square(y)))))
def_jvp(e.sinh_p, lambda g, ans, x: mul(g, e.cosh(x)))
def_jvp(e.cosh_p, lambda g, ans, x: mul(g, e.sinh(x)))
def_jvp(e.asinh_p, lambda g, ans, x: mul(g, e.rsqrt(_one_plus_square(x, factor if VERSION >= (0, 12) else const))))
def_jvp(e.acosh_p, lambda g, ans, x: mul(g, mul(e.rsqrt(sub(x, const(1, x))), e.rsqrt(add(x, const(1, x))))))
if VERSION >= (0, 12):  # as JAX of the same jaxlib
    _one_minus_square = e.one_minus_square
    def_jvp(e.tanh_p, lambda g, ans, x, **accuracy: mul(g, e.one_minus_square(ans)))
    def_jvp(e.atanh_p, lambda g, ans, x: div(g, e.one_minus_square(x)))
else:
    def _one_minus_square(x):
        return sub(factor(1, x), e.square(x))

    # One factor, which is all that a loop has to keep of a step for the gradient.
    def_jvp(e.tanh_p, lambda g, ans, x, **accuracy: mul(g, mul(add(const(1, x), ans), sub(const(1, x), ans))))
    # Two factors: the square loses the digits of 1 - x near 1.
    def_jvp(e.atanh_p, lambda g, ans, x: mul(e.reciprocal(add(const(1, x), x)), div(g, sub(const(1, x), x))))
def_jvp(e.asin_p, lambda g, ans, x: mul(g, e.rsqrt(_one_minus_square(x))))
def_jvp(e.acos_p, lambda g, ans, x: mul(g, neg(e.rsqrt(_one_minus_square(x)))))

# --- complex numbers ---------------------------------------------------------------------------------

e.real_p.def_jvp(lambda primals, tangents: (real(*primals), real(*tangents)))
e.real_p.def_transpose(lambda ct, x: [e.complex(ct, _strong_zeros(ct))])
e.imag_p.def_jvp(lambda primals, tangents: (e.imag(*primals), e.imag(*tangents)))
e.imag_p.def_transpose(lambda ct, x: [e.complex(_strong_zeros(ct), neg(ct))])
e.conj_p.def_jvp(
    lambda primals, tangents, **params: (e.conj_p.bind(*primals, **params), e.conj_p.bind(*tangents, **params)))
e.conj_p.def_transpose(lambda ct, x, **params: [conj(ct) if x.aval.dtype.kind == "c" else real(conj(ct))])

@e.complex_p.def_jvp
def _complex_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    out = e.complex(*primals)
    part = real(out)
    return out, e.complex(*[filled(0, part) if type(each) is Zero else stretch(each, out) for each in tangents])


e.complex_p.def_transpose(lambda ct, x, y: [sum_to(real(ct), x.aval) if is_linear(x) else None,
                                            sum_to(neg(e.imag(ct)), y.aval) if is_linear(y) else None])

# --- choosing ----------------------------------------------------------------------------------------


@e.select_n_p.def_jvp
def _select_n_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    which, *cases = primals
    out = select_n(which, *cases)
    return out, select_n(which, *[filled(0, out) if type(each) is Zero else each for each in tangents[1:]])


@e.select_n_p.def_transpose
def _select_n_transpose(ct, which, *cases) -> list[Any]:
    zero = filled(0, ct)
    return [None] + [select_n(which, *[ct if other == index else zero for other in range(len(cases))])
                     if is_linear(case) else None for index, case in enumerate(cases)]


@e.select_n_p.def_batching
def _select_n_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None]) -> tuple[Any, int]:
    which, *cases = args
    which_dim, *case_dims = dims
    first = next(dim for dim in (*case_dims, which_dim) if dim is not None)
    scalar = not (aval_of(which).ndim - (which_dim is not None))
    if which_dim is None and scalar:
        cases = [batching.bring(case, dim, axis.size, first) for case, dim in zip(cases, case_dims, strict=True)]
        return select_n(which, *cases), first
    which = batching.bring_to_front(which, which_dim, axis.size)
    if all(dim is None and not aval_of(case).ndim for case, dim in zip(cases, case_dims, strict=True)):
        # As in JAX, scalars then do for a choice of any shape, which select would refuse outside of vmap: libraries rely on it.
        return select_n(which, *[shaping.broadcast_in_dim(case, aval_of(which).shape, ()) for case in cases]), 0
    cases = [batching.bring_to_front(case, dim, axis.size) for case, dim in zip(cases, case_dims, strict=True)]
    shape = aval_of(cases[0]).shape
    if aval_of(which).shape != shape:  # a scalar that became one for each example
        which = shaping.broadcast_in_dim(which, shape, (0,))
    return select_n(which, *cases), 0


def _where(condition, g, ans):
    """A tangent at the output's shape, where a condition holds."""
    if aval_of(condition).shape != aval_of(ans).shape:
        condition = shaping.broadcast_in_dim(condition, aval_of(ans).shape, ())
    return select_n(condition, filled(0, ans), stretch(g, ans))


# At a bound, neither the operand nor the bound counts.
def_jvp(e.clamp_p, lambda g, ans, low, x, high: _where(e.bitwise_and(gt(low, x), lt(low, high)), g, ans),
        lambda g, ans, low, x, high: _where(e.bitwise_and(gt(x, low), lt(x, high)), g, ans),
        lambda g, ans, low, x, high: _where(lt(high, x), g, ans))


@e.clamp_p.def_batching
def _clamp_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None]) -> tuple[Any, int]:
    low, x, high = args
    if dims[0] is None and dims[2] is None and not aval_of(low).shape and not aval_of(high).shape:
        return e.clamp(low, x, high), dims[1]  # type: ignore[return-value]
    x = batching.bring_to_front(x, dims[1], axis.size)
    shape = aval_of(x).shape

    def bound(value, dim: int | None):
        if dim is None and not aval_of(value).shape:
            return shaping.broadcast_in_dim(value, shape, ())
        value = batching.bring_to_front(value, dim, axis.size)
        return value if aval_of(value).shape == shape else shaping.broadcast_in_dim(value, shape, (0,))

    return e.clamp(bound(low, dims[0]), x, bound(high, dims[2])), 0


for _name, _p in list(vars(e).items()):
    if _name.endswith("_p") and _p.batching is None:
        def_elementwise(_p)
