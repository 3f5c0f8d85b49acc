"""Taylor mode: higher derivatives along a curve, by arithmetic on truncated power series.

`f` is traced to a jaxpr, which is evaluated on series x(t) = x0 + x1 t + ... instead of arrays. An operation on series of
order n costs a few products for each pair of coefficients, n^2 in all, where nested forward mode costs 2^n. The recurrences are
those of A. Griewank and A. Walther, "Evaluating Derivatives", chapter 13. What has no rule here (loops, branches, sorting) is
differentiated by nested forward mode, alone.

`jet_rules` takes rules for primitives of a library's own, in JAX's calling convention: `rule(primals, series, **params)` gives
the value and the coefficients of t, t^2, ... of the result, from those of the operands.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from jaxlite import lax
from jaxlite.compilation.jit import jit
from jaxlite.core import dtypes
from jaxlite.core.array import Array
from jaxlite.core.jaxpr import ClosedJaxpr, Jaxpr, Literal, Var, once_for_each
from jaxlite.core.tree import tree_flatten, tree_structure, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.extend.rule_tables import RulesBeside, UserRule
from jaxlite.lax import shaping
from jaxlite.transforms.derivatives import jvp
from jaxlite.transforms.make_jaxpr import make_jaxpr

__all__ = ["ZeroSeries", "ZeroTerm", "def_comp", "def_deriv", "deflinear", "defzero", "deriv_prop", "fact", "jet", "jet2",
           "jet_rules", "linear_prop", "zero_prop", "zero_series", "zero_term"]
__dir__ = lambda: __all__

Series = list[Any]  # the coefficients of t^0, t^1, ...; None means zeros


def jet(fun: Callable, primals: Sequence[Any], series: Sequence[Sequence[Any]], factorial_scaled: bool = True,
        **_: Any) -> tuple[Any, Any]:
    """The value of `fun` on a curve, and its derivatives along it.

    Args:
      fun: a function of arrays and pytrees of arrays.
      primals: the arguments at t = 0.
      series: for each argument, the derivatives of the curve at 0: as many for each.
      factorial_scaled: derivatives, the default, or, if False, coefficients of t^k.
    Returns: fun(*primals), and in place of each array of it the list of its derivatives.
    Raises: ValueError if the series differ in length or structure from the primals, or are complex where these are not.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.experimental.jet import jet
    >>> value, (first, second) = jet(lambda x: x**3, (2.0,), ((1.0, 0.0),))
    >>> print(value, first, second)
    8.0 12.0 12.0
    """
    lengths = {len(terms) for terms in series}
    if len(primals) != len(series) or len(lengths) > 1:
        raise ValueError(f"jet: {len(primals)} primals need as many series of one length, got {[len(s) for s in series]}")
    for which, terms in enumerate(series):
        if not isinstance(terms, (list, tuple)) and not hasattr(terms, "ndim"):
            raise ValueError(f"jet: series {which} must be a sequence of terms, each with the structure of the primal, got "
                             f"{type(terms)}")
    order = lengths.pop() if lengths else 0
    leaves, tree = tree_flatten(tuple(primals))
    scale = [1 / math.factorial(k) if factorial_scaled else 1.0 for k in range(order + 1)]
    columns = []
    for position in range(order):
        column = tuple(argument[position] for argument in series)
        for which, (primal, term) in enumerate(zip(primals, column, strict=True)):
            if tree_structure(primal) != tree_structure(term):
                raise ValueError(f"jet: term {position} of series {which} has the structure {tree_structure(term)}, its primal "
                                 f"{tree_structure(primal)}")
        columns.append(tree_flatten(column)[0])
    inputs = [[leaf, *(_times(scale[k + 1], _like(column[index], leaf)) for k, column in enumerate(columns))]
              for index, leaf in enumerate(leaves)]
    out_tree: Any = None

    def flat(*values: Any) -> list[Any]:
        nonlocal out_tree
        outs, out_tree = tree_flatten(fun(*tree_unflatten(tree, values)))
        return outs

    closed = make_jaxpr(flat)(*leaves)
    outs = _evaluate(closed.jaxpr, [*([const] for const in closed.consts), *inputs], order)
    value = tree_unflatten(out_tree, [out[0] for out in outs])
    terms = [[_times(1 / scale[k], _dense(out, k)) for k in range(1, order + 1)] for out in outs]
    return value, tree_unflatten(out_tree, terms)


def _like(term: Any, primal: Any) -> Any:
    """A coefficient in the dtype of its primal; those of integers are floats."""
    if getattr(term, "dtype", None) == dtypes.float0:
        return None
    aval = aval_of(primal)
    if dtypes.kind(aval_of(term).dtype) == "c" and dtypes.kind(aval.dtype) != "c":
        raise ValueError(f"jet: a term of the series is complex, its primal is {aval}")
    return shaping.convert(term, _float_for(aval.dtype), aval.weak_type)


def _float_for(dtype: Any) -> Any:
    return dtype if dtypes.issubdtype(dtype, np.inexact) else dtypes.canonicalize_dtype(float)


def _evaluate(jaxpr: Jaxpr, inputs: Sequence[Series], order: int) -> list[Series]:
    env: dict[Var, Series] = {}

    def read(atom: Any) -> Series:
        return [atom.val] if type(atom) is Literal else env[atom]

    env.update(zip((*jaxpr.constvars, *jaxpr.invars), inputs, strict=True))
    for eqn in jaxpr.eqns:
        operands = [read(atom) for atom in eqn.invars]
        env.update(zip(eqn.outvars, _apply(eqn.primitive, operands, eqn.params, order), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _apply(primitive: Any, operands: list[Series], params: dict[str, Any], order: int) -> list[Series]:
    """One operation on series; each result as a series of its own."""
    name = primitive.name
    if all(_is_constant(operand) for operand in operands) or order == 0:
        outs = primitive.bind(*[operand[0] for operand in operands], **params)
        return [[out] for out in outs] if primitive.multiple_results else [[outs]]
    if primitive in jet_rules.registered:
        return jet_rules.registered[primitive](operands, params, order)
    if name in _CALLS:
        closed = params[_CALLS[name]]
        jaxpr, consts = (closed.jaxpr, closed.consts) if isinstance(closed, ClosedJaxpr) else (closed, [])
        return _on_call(jaxpr, [*([const] for const in consts), *operands], order, params.get("name", name))
    operands = [[*operand, *[None] * (order + 1 - len(operand))] for operand in operands]
    apply = partial(primitive.bind, **params)
    whole = {aval_of(operand[0]).dtype for operand in operands if not _is_constant(operand)} & _WHOLE
    if whole and name != "select_n":
        return _apply_to_integers(primitive, apply, operands, params, order, whole)
    rule = _RULES.get(name)
    if rule is not None:
        return [rule(order, apply, *operands)]
    if name in _LINEAR and all(_is_constant(operand) for operand in operands[_LINEAR[name]:]):
        outs = _linear(order, apply, operands, _LINEAR[name])
        return outs if primitive.multiple_results else outs[:1]
    return _nested(order, primitive, operands, params)


def _apply_to_integers(primitive: Any, apply: Callable, operands: list[Series], params: dict[str, Any], order: int,
                       whole: set[Any]) -> list[Series]:
    """An operation on integers that have series: its value is that of the integers, its coefficients are those of floats."""
    outs = apply(*[operand[0] for operand in operands])
    values = outs if primitive.multiple_results else [outs]
    count = _LINEAR.get(primitive.name)
    if all(map(_is_constant, operands[:count])):  # what moves are positions
        return [[value] for value in values]
    floating = dtypes.canonicalize_dtype(float)
    given = [[lax.convert_element_type(operand[0], floating), *operand[1:]]
             if aval_of(operand[0]).dtype in whole and (count is None or place < count) else operand
             for place, operand in enumerate(operands)]
    if "new_dtype" in params:
        params = {**params, "new_dtype": _float_for(params["new_dtype"])}
    return [[value, *terms] for value, (_, *terms) in zip(values, _apply(primitive, given, params, order), strict=True)]


def _is_constant(series: Series) -> bool:
    return all(term is None for term in series[1:])


# --- arithmetic on coefficients, of which None is zero -----------------------------------------------


def _dense(series: Series, k: int) -> Any:
    term = series[k] if k < len(series) else None
    return lax.full_like(series[0], 0, _float_for(aval_of(series[0]).dtype)) if term is None else term


def _times(factor: float, term: Any) -> Any:
    if term is None or factor == 1:
        return term
    return lax.mul(term, lax.full_like(term, factor))


def _plus(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else lax.add(a, b)


def _minus(a: Any) -> Any:
    return None if a is None else lax.neg(a)


def _product(a: Any, b: Any, apply: Callable = lax.mul) -> Any:
    return None if a is None or b is None else apply(a, b)


def _sum(terms: Any) -> Any:
    total = None
    for term in terms:
        total = _plus(total, term)
    return total


def _convolve(order: int, a: Series, b: Series, apply: Callable = lax.mul) -> Series:
    """The product of two series."""
    return [_sum(_product(a[j], b[k - j], apply) for j in range(k + 1)) for k in range(order + 1)]


def _add(a: Series, b: Series) -> Series:
    return [_plus(x, y) for x, y in zip(a, b, strict=True)]


def _shifted(a: Series, constant: float) -> Series:
    return [lax.add(a[0], lax.full_like(a[0], constant)), *a[1:]]


def _scaled(a: Series, factor: float) -> Series:
    return [_times(factor, term) for term in a]


def _integral(order: int, value: Any, slope: Series, x: Series) -> Series:
    """The series y with y(0) = value and y' = slope * x'; `slope` may be known up to each coefficient only in turn."""
    y = [value]
    for k in range(1, order + 1):
        y.append(_times(1 / k, _sum(_times(float(j), _product(x[j], slope[k - j])) for j in range(1, k + 1))))
    return y


# --- rules -------------------------------------------------------------------------------------------


def _exp(order: int, apply: Callable, x: Series) -> Series:
    y: Series = [apply(x[0])]
    for k in range(1, order + 1):
        y.append(_times(1 / k, _sum(_times(float(j), _product(x[j], y[k - j])) for j in range(1, k + 1))))
    return y


def _expm1(order: int, apply: Callable, x: Series) -> Series:
    return [apply(x[0]), *_exp(order, lax.exp, x)[1:]]


def _div(order: int, apply: Callable, a: Series, b: Series) -> Series:
    q: Series = []
    for k in range(order + 1):
        rest = _plus(a[k], _minus(_sum(_product(b[j], q[k - j]) for j in range(1, k + 1))))
        q.append(None if rest is None else lax.div(rest, b[0]))
    return q


def _log(order: int, apply: Callable, x: Series) -> Series:
    return [apply(x[0]), *_integral(order, None, _reciprocal(order, x), x)[1:]]


def _log1p(order: int, apply: Callable, x: Series) -> Series:
    return [apply(x[0]), *_integral(order, None, _reciprocal(order, _shifted(x, 1)), x)[1:]]


def _reciprocal(order: int, x: Series) -> Series:
    one: Series = [lax.full_like(x[0], 1), *[None] * order]
    return _div(order, lax.div, one, x)


def _power(order: int, apply: Callable, x: Series, exponent: float) -> Series:
    """x^p for a number p, from x y' = p x' y."""
    y: Series = [apply(x[0])]
    for k in range(1, order + 1):
        total = _sum(_times(exponent * j - (k - j), _product(x[j], y[k - j])) for j in range(1, k + 1))
        y.append(None if total is None else lax.div(_times(1 / k, total), x[0]))
    return y


def _integer_pow(order: int, apply: Any, x: Series) -> Series:
    """By repeated squaring: it is defined where x is 0."""
    exponent, base = abs(apply.keywords["y"]), x
    result: Series | None = None
    while exponent:
        if exponent & 1:
            result = base if result is None else _convolve(order, result, base)
        exponent >>= 1
        if exponent:
            base = _convolve(order, base, base)
    power = [lax.full_like(x[0], 1), *[None] * order] if result is None else result
    return [apply(x[0]), *(power if apply.keywords["y"] >= 0 else _reciprocal(order, power))[1:]]


def _pow(order: int, apply: Callable, x: Series, y: Series) -> Series:
    if _is_constant(y) and not aval_of(y[0]).shape and not hasattr(y[0], "_trace"):
        return _power(order, lambda value: apply(value, y[0]), x, float(y[0]))
    return _exp(order, lambda _: apply(x[0], y[0]), _convolve(order, y, _log(order, lax.log, x)))


def _circular(first: Callable, second: Callable, sign: float) -> Callable:
    """The pair s' = c x', c' = sign * s x'; `first` is the one that is requested."""

    def rule(order: int, apply: Callable, x: Series) -> tuple[Series, Series]:
        s, c = [first(x[0])], [second(x[0])]
        for k in range(1, order + 1):
            terms = [(_times(float(j), x[j]), k - j) for j in range(1, k + 1)]
            s_k = _times(1 / k, _sum(_product(dx, c[rest]) for dx, rest in terms))
            c_k = _times(sign / k, _sum(_product(dx, s[rest]) for dx, rest in terms))
            s.append(s_k)
            c.append(c_k)
        return s, c

    return rule


_sin_cos, _sinh_cosh = _circular(lax.sin, lax.cos, -1.0), _circular(lax.sinh, lax.cosh, 1.0)


def _by_slope(slope: Callable[[int, Series, Series], Series]) -> Callable:
    """A function y of x with y' = slope x', where the slope is a series made from those of x and y.

    The coefficient k of y needs those of the slope below k, and they need those of y below k: y grows by one each turn.
    """

    def rule(order: int, apply: Callable, x: Series) -> Series:
        y: Series = [apply(x[0]), *[None] * order]
        for k in range(1, order + 1):
            known = slope(k - 1, x, y)
            y[k] = _times(1 / k, _sum(_times(float(j), _product(x[j], known[k - j])) for j in range(1, k + 1)))
        return y

    return rule


def _one_minus_square(order: int, y: Series, sign: float = -1.0) -> Series:
    return _shifted(_scaled(_convolve(order, y[:order + 1], y[:order + 1]), sign), 1.0)


def _one_minus_square_of(order: int, apply: Callable, x: Series) -> Series:
    return [apply(x[0]), *_one_minus_square(order, x)[1:]]


def _polynomial(order: int, apply: Callable, x: Series, *terms: Series) -> Series:
    shape = aval_of(apply(x[0], *(term[0] for term in terms))).shape
    spread = lambda series: [None if each is None else lax.broadcast_in_dim(each, shape, range(aval_of(each).ndim))
                             for each in series]
    x, value, *others = map(spread, (x, *terms[::-1]))
    for term in others:
        value = _add(_convolve(order, value, x), term)
    return value


def _inverse_root(order: int, x: Series) -> Series:
    return _power(order, lax.rsqrt, x, -0.5)


def _gauss(order: int, x: Series, sign: float) -> Series:
    """exp(sign * x^2)."""
    return _exp(order, lax.exp, _scaled(_convolve(order, x[:order + 1], x[:order + 1]), sign))


def _abs(order: int, apply: Callable, x: Series) -> Series:
    if dtypes.issubdtype(aval_of(x[0]).dtype, np.complexfloating):
        real, imag = ([None if term is None else part(term) for term in x] for part in (lax.real, lax.imag))
        square = _add(_convolve(order, real, real), _convolve(order, imag, imag))
        return _power(order, lambda _: apply(x[0]), square, 0.5)
    sign = lax.sign(x[0])
    return [apply(x[0]), *(_product(sign, term) for term in x[1:])]


def _extremum(compare: Callable) -> Callable:
    def rule(order: int, apply: Callable, a: Any, b: Any) -> Series:
        shape = aval_of(apply(a[0], b[0])).shape  # a scalar is broadcast
        spread = lambda term: lax.broadcast_in_dim(term, shape, range(len(shape)) if aval_of(term).shape else ())
        a, b = ([None if term is None else spread(term) for term in series] for series in (a, b))
        one, half = lax.full_like(a[0], 1), lax.full_like(a[0], 0.5)
        share = lax.select(lax.eq(a[0], b[0]), half, lax.select(compare(a[0], b[0]), one, lax.full_like(a[0], 0)))
        other = lax.sub(one, share)
        return [apply(a[0], b[0]), *(_plus(_product(share, x), _product(other, y)) for x, y in zip(a[1:], b[1:], strict=True))]

    return rule


def _select_n(order: int, apply: Callable, which: Series, *cases: Series) -> Series:
    return [apply(which[0], *(_dense(case, k) for case in cases)) for k in range(order + 1)]


def _clamp(order: int, apply: Callable, low: Series, x: Series, high: Series) -> Series:
    inside = lax.bitwise_and(lax.gt(x[0], lax.broadcast_like(low[0], x[0])), lax.lt(x[0], lax.broadcast_like(high[0], x[0])))
    zero = lax.full_like(x[0], 0)
    return [apply(low[0], x[0], high[0]), *(None if term is None else lax.select(inside, term, zero) for term in x[1:])]


def _bilinear(order: int, apply: Callable, a: Series, b: Series) -> Series:
    return _convolve(order, a, b, apply)


def _sum_of(sign: float) -> Callable:
    def rule(order: int, apply: Callable, a: Series, b: Series) -> Series:
        return [apply(_dense(a, k), _dense(b, k)) for k in range(order + 1)]

    return rule


_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)
_RULES: dict[str, Callable] = {
    "exp": _exp, "expm1": _expm1, "log": _log, "log1p": _log1p, "div": _div, "pow": _pow, "integer_pow": _integer_pow,
    "abs": _abs, "clamp": _clamp,
    "exp2": lambda order, apply, x: _exp(order, lambda _: apply(x[0]), _scaled(x, math.log(2))),
    "sin": lambda *args: _sin_cos(*args)[0], "cos": lambda *args: _sin_cos(*args)[1],
    "sinh": lambda *args: _sinh_cosh(*args)[0], "cosh": lambda *args: _sinh_cosh(*args)[1],
    "tan": _by_slope(lambda order, x, y: _one_minus_square(order, y, 1.0)),
    "tanh": _by_slope(lambda order, x, y: _one_minus_square(order, y)),
    "logistic": _by_slope(lambda order, x, y: _add(y[:order + 1], _scaled(_convolve(order, y, y), -1.0))),
    "atan": _by_slope(lambda order, x, y: _reciprocal(order, _one_minus_square(order, x, 1.0))),
    "atanh": _by_slope(lambda order, x, y: _reciprocal(order, _one_minus_square(order, x))),
    "asin": _by_slope(lambda order, x, y: _inverse_root(order, _one_minus_square(order, x))),
    "acos": _by_slope(lambda order, x, y: _scaled(_inverse_root(order, _one_minus_square(order, x)), -1.0)),
    "asinh": _by_slope(lambda order, x, y: _inverse_root(order, _one_minus_square(order, x, 1.0))),
    "acosh": _by_slope(lambda order, x, y: _inverse_root(
        order, _shifted(_convolve(order, x, x), -1.0))),
    "erf": _by_slope(lambda order, x, y: _scaled(_gauss(order, x, -1.0), _TWO_OVER_ROOT_PI)),
    "erfc": _by_slope(lambda order, x, y: _scaled(_gauss(order, x, -1.0), -_TWO_OVER_ROOT_PI)),
    "erf_inv": _by_slope(lambda order, x, y: _scaled(_gauss(order, y, 1.0), 1 / _TWO_OVER_ROOT_PI)),
    "log2": lambda order, apply, x: [apply(x[0]), *_scaled(_log(order, lax.log, x), 1 / math.log(2))[1:]],
    "square": lambda order, apply, x: _convolve(order, x, x), "one_minus_square": _one_minus_square_of,
    "polynomial": _polynomial,
    "sqrt": lambda order, apply, x: _power(order, apply, x, 0.5),
    "rsqrt": lambda order, apply, x: _power(order, apply, x, -0.5),
    "cbrt": lambda order, apply, x: _power(order, apply, x, 1 / 3),
    "max": _extremum(lax.gt), "min": _extremum(lax.lt), "select_n": _select_n, "add": _sum_of(1.0), "sub": _sum_of(-1.0),
    "add_any": _sum_of(1.0), "mul": _bilinear, "dot_general": _bilinear, "conv_general_dilated": _bilinear,
}
# Linear in so many operands, the first ones, together; all if it is None. The others are constant: indices, say.
_LINEAR: dict[str, int | None] = dict.fromkeys(
    "neg real imag conj complex convert_element_type reduce_precision reshape broadcast_in_dim transpose squeeze expand_dims "
    "rev slice reduce_sum cumsum copy copy_p fft concatenate pad psum tile reduce_window_sum split symmetric_product "
    "optimization_barrier real_imag".split()) | dict.fromkeys(("dynamic_slice", "gather"), 1) | {"dynamic_update_slice": 2}
_WHOLE = frozenset(map(np.dtype, "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()))
# Calls: their parameter holds the program.
_CALLS = {"jit": "jaxpr", "closed_call": "call_jaxpr", "remat2": "jaxpr", "remat": "jaxpr", "custom_jvp_call": "call_jaxpr",
          "custom_vjp_call": "call_jaxpr", "core_call": "call_jaxpr"}


@once_for_each
def _jets_of(jaxpr: Jaxpr) -> dict[Any, Callable]:
    """For a program that is called, its jets: by order, registered rules and known operands."""
    return {}


def _on_call(jaxpr: Jaxpr, operands: list[Series], order: int, name: str) -> list[Series]:
    """A call stays one, so that a program is evaluated once however often it is called.

    Numbers of the program stay known in what it calls: x^y has better derivatives for a number y.
    """
    known = [series if not isinstance(series[0], Array) and not np.shape(series[0]) else None for series in operands]
    numbers = [None if series is None else (type(series[0]), np.asarray(series[0]).tobytes()) for series in known]
    jets, key = _jets_of(jaxpr), (order, *jet_rules.registered.values(), *numbers)
    if key not in jets:
        program = weakref.ref(jaxpr)  # what is remembered for a program does not keep it alive

        def run(given: list[Series]) -> list[Series]:
            rest = iter(given)
            return _evaluate(cast(Jaxpr, program()), [series or next(rest) for series in known], order)

        run.__name__ = name
        jets[key] = jit(run)
    return jets[key]([series for series, number in zip(operands, known, strict=True) if number is None])


def _linear(order: int, apply: Callable, operands: list[Series], count: int | None) -> list[Series]:
    moving, fixed = operands[:count], [] if count is None else operands[count:]
    results: list[Series] = []
    for k in range(order + 1):
        outs = None
        if any(series[k] is not None for series in moving):
            outs = apply(*(_dense(series, k) for series in moving), *(series[0] for series in fixed))
        values = outs if isinstance(outs, (list, tuple)) else [outs]
        if not results:
            results = [[] for _ in values]
        for result, value in zip(results, values if outs is not None else [None] * len(results), strict=True):
            result.append(value)
    return results


def _nested(order: int, primitive: Any, operands: list[Series], params: dict[str, Any]) -> list[Series]:
    """An operation without a rule: its derivatives along the curve by nested forward mode."""

    def on_curve(t: Any) -> list[Any]:
        values = []
        for series in operands:
            value = series[0]
            if not _is_constant(series):
                for k in range(1, order + 1):
                    if series[k] is not None:
                        value = lax.add(value, lax.mul(series[k], lax.full_like(series[k], lax.integer_pow(t, k))))
            values.append(value)
        outs = primitive.bind(*values, **params)
        return outs if primitive.multiple_results else [outs]

    def derivative(fun: Callable) -> Callable:
        return lambda t: jvp(fun, (t,), (lax.full_like(t, 1),))[1]

    at = np.float32(0) if all(aval_of(series[0]).dtype != np.float64 for series in operands) else np.float64(0)
    columns, fun = [on_curve(at)], on_curve
    for k in range(1, order + 1):
        fun = derivative(fun)
        columns.append([_times(1 / math.factorial(k), term) if dtypes.issubdtype(aval_of(term).dtype, np.inexact) else None
                        for term in fun(at)])
    return [list(column) for column in zip(*columns, strict=True)]


# --- rules of others ---------------------------------------------------------------------------------


class ZeroTerm:
    """A coefficient that is known to vanish: a rule may give `zero_term` for it."""


class ZeroSeries:
    """A series that is constant: a rule may give `zero_series` for its coefficients."""


zero_term, zero_series = ZeroTerm(), ZeroSeries()
def _call_registered(rule: UserRule, operands: list[Series], params: dict[str, Any], order: int) -> list[Series]:
    series = [[_dense(operand, k) for k in range(1, order + 1)] for operand in operands]
    found = rule.rule(tuple(operand[0] for operand in operands), series, **params)
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise rule.fail("jet", f"must return the value and its series, but returned {found!r}")
    value, terms = found
    is_several = rule.primitive.multiple_results
    values = list(value) if is_several else [value]
    several = terms if is_several and not isinstance(terms, ZeroSeries) else [terms] * len(values)
    for of_each in several:
        if not isinstance(of_each, ZeroSeries) and not (hasattr(of_each, "__len__") and len(of_each) == order):
            raise rule.fail("jet", f"must return {order} coefficients, or zero_series, for each result, but returned "
                                   f"{of_each!r}")
    return [_with_value(each, of_each) for each, of_each in zip(values, several, strict=True)]


def _with_value(value: Any, terms: Any) -> Series:
    return [value] if isinstance(terms, ZeroSeries) else [value, *(None if isinstance(t, ZeroTerm) else t for t in terms)]


def _apply_own(primitive: Any, primals: Sequence[Any], series: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """One of our rules in JAX's calling convention."""
    order = max(len(terms) for terms in series if not isinstance(terms, ZeroSeries))
    operands = [_with_value(primal, terms) for primal, terms in zip(primals, series, strict=True)]
    outs = _apply(primitive, operands, params, order)
    values, terms = [out[0] for out in outs], [[_dense(out, k) for k in range(1, order + 1)] for out in outs]
    return (values, terms) if primitive.multiple_results else (values[0], terms[0])


jet_rules = RulesBeside("jet", lambda: _RULES.keys() | _LINEAR, _call_registered,
                        lambda primitive: partial(_apply_own, primitive))


jet2 = partial(jet, factorial_scaled=False)


def fact(n: Any) -> Any:
    """n!, of numbers and arrays."""
    return lax.exp(lax.lgamma(lax.add(n, lax.full_like(n, 1)) * 1.0))


def zero_prop(prim: Any, primals_in: Sequence[Any], series_in: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """The rule of a primitive whose result does not vary."""
    return prim.bind(*primals_in, **params), zero_series


def linear_prop(prim: Any, primals_in: Sequence[Any], series_in: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """The rule of a primitive that is linear in all of its operands together."""
    terms = [prim.bind(*column, **params) for column in zip(*series_in, strict=True)]
    if prim.multiple_results:
        terms = [list(each) for each in zip(*terms, strict=True)]
    return prim.bind(*primals_in, **params), terms


def deriv_prop(prim: Any, deriv: Callable, primals_in: Sequence[Any], series_in: Sequence[Any]) -> tuple[Any, Any]:
    """The rule of a primitive y of one operand with y' = deriv(x) x', from the derivatives of `deriv`."""
    (x,), (terms,) = primals_in, series_in
    slope, slopes = jet2(deriv, (x,), (terms[:-1],))
    y = _integral(len(terms), prim.bind(x), [slope, *slopes], [x, *terms])
    return y[0], y[1:]


def defzero(prim: Any) -> None:
    """Say that a primitive's result does not vary."""
    jet_rules[prim] = partial(zero_prop, prim)


def deflinear(prim: Any) -> None:
    """Say that a primitive is linear in all of its operands together."""
    jet_rules[prim] = partial(linear_prop, prim)


def def_deriv(prim: Any, deriv: Callable) -> None:
    """Set the rule of a primitive of one operand, without params, from its first derivative.

    >>> from jaxlite.extend.core import Primitive
    >>> squared = Primitive("squared")
    >>> _ = squared.def_impl(lambda x: x * x), squared.def_abstract_eval(lambda x: x)
    >>> def_deriv(squared, lambda x: 2 * x)
    >>> value, (first, second) = jet(squared.bind, (3.0,), ((1.0, 0.0),))
    >>> print(value, first, second)
    9.0 6.0 2.0
    """
    jet_rules[prim] = partial(deriv_prop, prim, deriv)


def def_comp(prim: Any, comp: Callable, **kwargs: Any) -> None:
    """Set the rule of a primitive from a function of the same operands that is made of others."""
    jet_rules[prim] = partial(jet2, comp, **kwargs)
