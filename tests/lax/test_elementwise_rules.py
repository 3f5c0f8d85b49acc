"""Derivative and batching rules of elementwise primitives and special functions: one row for each primitive."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.core.primitive import Primitive
from jaxlite.lax import elementwise, special, special_series
from tests import rule_checks as checks

nan, inf = np.nan, np.inf
BOTH = (-2.0, 2.0)
P = {value.name: value for module in (elementwise, special, special_series) for value in vars(module).values()
     if isinstance(value, Primitive)}


@dataclass
class Row:
    """A primitive, how to call it, the ranges to draw its operands from, whether it takes complex numbers."""

    name: str
    call: Callable
    draws: tuple[tuple[float, float], ...] = (BOTH,)
    complex: bool = False
    fixed: tuple[float, ...] = ()  # leading operands without a derivative
    order: int = 2

    def __repr__(self) -> str:
        return self.name

    def operands(self, dtype: Any = np.float64, size: int = 5) -> list[np.ndarray]:
        rng = np.random.default_rng(len(self.name))
        values = [rng.uniform(low, high, size) for low, high in self.draws]
        if np.dtype(dtype).kind == "c":
            values = [value + 0.5j * rng.uniform(0.2, 1, size) for value in values]
        return [value.astype(dtype) for value in values]

    def function(self) -> Callable:
        if not self.fixed:
            return self.call
        return lambda *xs: self.call(*[np.full(np.shape(xs[0]), each, np.float64) for each in self.fixed], *xs)


TWO = (BOTH, BOTH)
POSITIVE = (0.3, 3.0)
ROWS = [
    Row("add", lax.add, TWO, True), Row("sub", lax.sub, TWO, True), Row("mul", lax.mul, TWO, True),
    Row("div", lax.div, (BOTH, POSITIVE), True), Row("rem", lax.rem, ((4.1, 4.9), (1.5, 1.9))),
    Row("max", lax.max, TWO), Row("min", lax.min, TWO), Row("nextafter", lax.nextafter, TWO), Row("neg", lax.neg, complex=True),
    Row("abs", lax.abs, complex=True), Row("exp", lax.exp, complex=True), Row("exp2", lax.exp2, complex=True),
    Row("expm1", lax.expm1, complex=True), Row("log", lax.log, (POSITIVE,), True),
    Row("log1p", lax.log1p, (POSITIVE,), True), Row("log2", lax.log2, (POSITIVE,), True),
    Row("logistic", lax.logistic, complex=True),
    Row("sqrt", lax.sqrt, (POSITIVE,), True), Row("rsqrt", lax.rsqrt, (POSITIVE,), True),
    Row("cbrt", lax.cbrt, (POSITIVE,)), Row("square", lax.square, complex=True),
    Row("one_minus_square", lax.one_minus_square, complex=True),
    Row("polynomial", lambda x, a: lax.polynomial(x, [2.0, a, a, x]), TWO, True),
    Row("integer_pow", lambda x: lax.integer_pow(x, -3), (POSITIVE,), True),
    Row("pow", lax.pow, (POSITIVE, BOTH), True),
    Row("sin", lax.sin, complex=True), Row("cos", lax.cos, complex=True), Row("tan", lax.tan, ((-1, 1),), True),
    Row("asin", lax.asin, ((-0.9, 0.9),), True), Row("acos", lax.acos, ((-0.9, 0.9),), True),
    Row("atan", lax.atan, complex=True), Row("atan2", lax.atan2, (POSITIVE, BOTH)),
    Row("sinh", lax.sinh, complex=True), Row("cosh", lax.cosh, complex=True), Row("tanh", lax.tanh, complex=True),
    Row("asinh", lax.asinh, complex=True), Row("acosh", lax.acosh, ((1.2, 4),), True),
    Row("atanh", lax.atanh, ((-0.9, 0.9),), True),
    Row("clamp", lax.clamp, ((-1.5, -0.1), BOTH, (0.1, 1.5))),
    Row("select_n", lambda *cases: lax.select_n(np.array([0, 1, 1, 0, 2], np.int32), *cases), (BOTH,) * 3, True),
    Row("complex", lax.complex, TWO), Row("real", lax.real, complex=True), Row("imag", lax.imag, complex=True),
    Row("conj", lax.conj, complex=True),
    Row("erf", lax.erf), Row("erfc", lax.erfc), Row("erf_inv", lax.erf_inv, ((-0.9, 0.9),)),
    Row("lgamma", lax.lgamma, (POSITIVE,)), Row("digamma", lax.digamma, (POSITIVE,)),
    Row("polygamma", lax.polygamma, (POSITIVE,), fixed=(1.0,)), Row("zeta", lax.zeta, (POSITIVE,), fixed=(2.5,)),
    Row("bessel_i0e", lax.bessel_i0e, (POSITIVE,)), Row("bessel_i1e", lax.bessel_i1e, (POSITIVE,)),
    Row("igamma", lax.igamma, (POSITIVE, POSITIVE), order=1),
    Row("igammac", lax.igammac, (POSITIVE, POSITIVE), order=1),
    Row("regularized_incomplete_beta", lambda x: lax.betainc(np.full(5, 1.3), np.full(5, 0.7), x), ((0.1, 0.9),)),
]
ONLY_COMPLEX = {"real", "imag", "conj"}
# Series that take a second to compile: once.
SLOW = {"igamma", "igammac", "igamma_grad_a", "random_gamma_grad", "regularized_incomplete_beta"}

# The rules that each primitive has (j, t, b); upper case: there is none by nature. Transposes belong to what is linear.
RULES = {row.name: "jb" for row in ROWS}
RULES |= dict.fromkeys("add sub mul div neg polynomial real imag conj complex select_n".split(), "jtb")
RULES |= dict.fromkeys("sign floor ceil round is_finite eq ne ge gt le lt eq_to le_to lt_to and or xor not shift_left "
                       "shift_right_logical shift_right_arithmetic population_count clz mulhi".split(), "jb")
FLAT = [name for name, rules in RULES.items() if name not in {row.name for row in ROWS} and "j" in rules]
RULES |= {"igamma_grad_a": "Jb", "random_gamma_grad": "jtb"}


def test_every_primitive_has_its_rules():
    assert not checks.missing_rules(RULES, [elementwise, special, special_series])


# --- derivatives -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("row", [row for row in ROWS if row.name not in ONLY_COMPLEX], ids=repr)
def test_derivatives_of_real_functions(row: Row) -> None:
    checks.check_jvp(row.function(), row.operands(), row.order)
    checks.check_transpose(row.function(), row.operands())


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("row", [row for row in ROWS if row.complex], ids=repr)
def test_derivatives_of_complex_functions(row: Row) -> None:
    operands = row.operands(np.complex128)
    checks.check_jvp(row.function(), operands, row.order)
    checks.check_transpose(row.function(), operands)


@pytest.mark.parametrize("name", FLAT)
def test_what_does_not_vary_has_derivative_zero(name: str) -> None:
    call = lax.round if name == "round" else P[name].bind
    if name in ("sign", "floor", "ceil", "round", "is_finite") or name[:2] in ("eq", "ne", "ge", "gt", "le", "lt"):
        x = np.float32([1.5, -2.5])
    else:
        x = np.int32([3, 5])
    arity = 1 if name in ("sign", "floor", "ceil", "round", "is_finite", "not", "population_count", "clz") else 2
    tangent = np.ones(2, x.dtype if x.dtype == np.float32 else jaxlite.dtypes.float0)
    out, slope = jaxlite.jvp(call, (x,) * arity, (tangent,) * arity)
    if out.dtype == np.float32:
        np.testing.assert_array_equal(slope, np.zeros(2, np.float32))
    else:
        assert slope.dtype == jaxlite.dtypes.float0 and slope.shape == (2,)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda x: lax.igamma_grad_a(x, x), NotImplementedError, "igamma_grad_a"),
    (lambda x: lax.random_gamma_grad(x, x), ValueError, "Reverse-mode differentiation does not work"),
    (lambda x: lax.polygamma(x, np.float32(1)), ValueError, "with respect to m"),
    (lambda x: lax.zeta(x, np.float32(1)), NotImplementedError, "with respect to x"),
    (lambda x: lax.betainc(x, np.float32(1), np.float32(0.5)), ValueError, "with respect to a and b"),
    (lambda x: lax.betainc(np.float32(1), x, np.float32(0.5)), ValueError, "with respect to a and b"),
])
def test_what_has_no_derivative_says_so(call: Callable, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        jaxlite.grad(call)(np.float32(1.5))


def slopes(fun: Callable, *operands: float) -> list[float]:
    """Derivatives by each operand."""
    return [float(each) for each in jaxlite.grad(fun, tuple(range(len(operands))))(*map(np.float32, operands))]


@pytest.mark.parametrize(("fun", "operands", "expected"), [
    (lax.max, (2.0, 2.0), [0.5, 0.5]), (lax.max, (3.0, 2.0), [1, 0]), (lax.min, (2.0, 2.0), [0.5, 0.5]),
    (lax.min, (3.0, 2.0), [0, 1]), (lax.max, (-0.0, 0.0), [0.5, 0.5]),
    (lax.abs, (0.0,), [1]), (lax.abs, (-3.0,), [-1]), (lax.sign, (0.0,), [0]),
    (lax.pow, (0.0, 0.0), [0, 0]), (lax.pow, (0.0, 1.0), [1, 0]), (lax.pow, (0.0, 2.0), [0, 0]),
    (lax.pow, (2.0, 0.0), [0, np.log(2)]), (lambda x: lax.integer_pow(x, 0), (0.0,), [0]),
    (lambda x: lax.integer_pow(x, 1), (0.0,), [1]), (lambda x: lax.integer_pow(x, 2), (0.0,), [0]),
    (lax.sqrt, (0.0,), [inf]), (lax.log, (0.0,), [inf]), (lax.atan2, (0.0, -1.0), [-1, 0]),
    (lax.clamp, (0.0, -1.0, 1.0), [1, 0, 0]), (lax.clamp, (0.0, 0.5, 1.0), [0, 1, 0]),
    (lax.clamp, (0.0, 2.0, 1.0), [0, 0, 1]), (lax.clamp, (0.0, 0.0, 1.0), [0, 0, 0]),
    (lax.clamp, (2.0, 1.0, 0.0), [0, 0, 1]), (lax.clamp, (0.0, 1.0, 1.0), [0, 0, 0]),
    (lax.rem, (5.5, 2.0), [1, -2]), (lax.rem, (-5.5, 2.0), [1, 2]), (lax.logistic, (1000.0,), [0]),
    (lax.tanh, (1000.0,), [0]), (lax.erf, (100.0,), [0]), (lax.bessel_i1e, (0.0,), [0.5]),
    (lax.bessel_i0e, (0.0,), [0]),
    (lambda x: lax.pow(x, np.int32(0)), (0.0,), [0]), (lambda x: lax.pow(x, np.int32(3)), (2.0,), [12]),
])
def test_derivatives_at_edges(fun: Callable, operands: tuple, expected: list) -> None:
    np.testing.assert_allclose(slopes(fun, *operands), expected, rtol=1e-5, atol=1e-6)


def test_derivative_of_abs_at_complex_zero_is_finite():
    for x, expected in ((0, 0), (3 + 4j, 0.6 - 0.8j)):
        np.testing.assert_allclose(jaxlite.grad(lax.abs)(np.complex64(x)), np.complex64(expected), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_abs_of_complex_numbers_of_all_magnitudes(dtype, rng):
    limits = np.finfo(dtype)
    with jaxlite.enable_x64():
        magnitudes = 2.0 ** rng.uniform(limits.minexp + 1, limits.maxexp - 1, 2000)
        ratios = 2.0 ** rng.uniform(-30, 0, 2000)
        parts = np.stack([magnitudes, magnitudes * ratios]).astype(limits.dtype)
        parts[abs(parts) < limits.tiny] = 0  # XLA takes subnormal numbers for zeros
        x = (rng.permuted(parts, axis=0) * [[1], [-1j]]).sum(0).astype(dtype)
        np.testing.assert_allclose(lax.abs(x), np.hypot(*parts.astype(np.longdouble)), rtol=1.5 * limits.eps)
        edges = [0, -0.0, 1, limits.max, np.inf, -np.inf, np.nan]
        x = np.array([complex(a, b) for a in edges for b in edges], dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            np.testing.assert_allclose(lax.abs(x), np.hypot(x.real, x.imag), rtol=2 * limits.eps)


def test_select_n_derivative_goes_to_the_case_chosen():
    for which in (np.bool_(True), np.array([True, False]), np.array([2, 0], np.int32)):
        cases = [np.float32([1, 2])] * (2 if np.asarray(which).dtype == bool else 3)
        _, pull = jaxlite.vjp(functools.partial(lax.select_n, which), *cases)
        found = pull(np.ones(2, np.float32))
        chosen = np.broadcast_to(np.asarray(which, int), 2)
        for index, each in enumerate(found):
            np.testing.assert_array_equal(each, np.float32(chosen == index))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("row", [row for row in ROWS if len(row.draws) == 2 and row.name not in SLOW],
                         ids=repr)
@pytest.mark.parametrize("scalar", [0, 1])
def test_a_scalar_beside_an_array_gets_the_sum(row: Row, scalar: int) -> None:
    operands = row.operands()
    operands[scalar] = operands[scalar][0]
    call = P[row.name].bind
    checks.check_jvp(call, operands, 1)
    checks.check_transpose(call, operands)


@pytest.mark.usefixtures("x64")
def test_scalar_bounds_of_clamp_get_the_sum():
    low, x, high = np.float64(-0.5), np.linspace(-1.1, 1.2, 5), np.float64(0.4)
    checks.check_jvp(lax.clamp, [low, x, high], 1)
    checks.check_transpose(lax.clamp, [low, x, high])


def tangent_of(fun: Callable, *xs: Any) -> Any:
    return jaxlite.jvp(fun, xs, xs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_tangents_keep_the_dtype(dtype: str) -> None:
    x = jnp.array([0.25, 0.5], dtype)
    for row in ROWS:
        if dtype == "complex64" and not row.complex or row.name in ONLY_COMPLEX | {"complex", "select_n"} \
                or row.name.startswith("regularized") or (row.fixed or row.name == "igamma") and dtype != "float32":
            continue
        operands = [x] * len(row.draws)
        fixed = [np.full(2, each, np.float32) for each in row.fixed]
        both = functools.partial(tangent_of, functools.partial(row.call, *fixed))
        out, slope = jaxlite.make_jaxpr(both)(*operands).out_avals
        assert slope.dtype == out.dtype and slope.shape == out.shape and not slope.weak_type, row


# --- batching ----------------------------------------------------------------------------------------


def example(name: str, row: Row | None) -> list[np.ndarray]:
    if row is not None:
        dtype = np.complex64 if name in ONLY_COMPLEX else np.float32
        return [each.reshape(3, 2) for each in row.operands(dtype, 6)]
    floats = ("nextafter", "igamma_grad_a", "random_gamma_grad", "is_finite", "floor", "ceil", "round", "sign")
    dtype = np.float32 if name in floats else np.int32
    unary = name in ("sign", "floor", "ceil", "round", "is_finite", "not", "population_count", "clz")
    values = [np.arange(1, 7).reshape(3, 2), np.array([[2, 2], [5, 1], [4, 6]])]
    return [value.astype(dtype) for value in values[:1 if unary else 2]]


@pytest.mark.parametrize("name", [name for name in RULES if name not in {"select_n", "clamp"} | SLOW])
def test_batching_equals_a_loop(name: str) -> None:
    row = next((row for row in ROWS if row.name == name), None)
    if row is not None and row.fixed:
        checks.check_all_batchings(getattr(lax, name), [np.float32([2, 3]), np.float32([0.5, 1.5])],
                              in_axes=[(None, 0), (0,)], rtol=2e-6)
        return
    call: Callable = row.call if row else lax.round if name == "round" else P[name].bind
    operands = example(name, row)
    few = [(0, 2)] if len(operands) == 1 else [(None, 0, 2), (None, 0)] if row else [(None, 0), (2,)]
    exact = 0 if name in ("add", "sub", "mul", "neg", "max", "min", "abs") else 3e-6  # vectors round other than scalars
    checks.check_all_batchings(call, operands, in_axes=few, rtol=exact)


@pytest.mark.parametrize("name", sorted(SLOW))
def test_batching_of_slow_series_is_one_equation(name: str) -> None:
    x = np.float32([[0.2, 0.3, 0.4], [0.5, 0.6, 0.7]])
    arity = 3 if name.startswith("regularized") else 2
    batch = jaxlite.make_jaxpr(jaxlite.vmap(P[name].bind, in_axes=(1, None, None)[:arity]))
    jaxpr = batch(*[x, *[x[:, 0]] * (arity - 1)])
    assert [each.shape for each in jaxpr.out_avals] == [(3, 2)]
    assert [eqn.primitive.name for eqn in jaxpr.eqns if eqn.primitive.name in SLOW] == [name]
    together = jaxlite.make_jaxpr(jaxlite.vmap(P[name].bind, in_axes=1, out_axes=1))(*[x] * arity)
    assert [eqn.primitive.name for eqn in together.eqns][0] == name
    if name == "igamma":
        checks.check_all_batchings(lax.igamma, [x[0], x[1]], in_axes=[(0,), (1,)], rtol=3e-6)


@pytest.mark.parametrize("name", ["add", "mul", "pow", "atan2", "max"])
@pytest.mark.parametrize("scalar", [0, 1])
def test_batching_with_a_scalar_operand(name: str, scalar: int) -> None:
    operands = [np.float32([[1, 2], [3, 4]]), np.float32([[2, 3], [1, 2]])]
    operands[scalar] = np.float32(2)
    checks.check_all_batchings(P[name].bind, operands, rtol=3e-6,
                          make=lambda which, x: np.float32(1.5 * np.asarray(x) + checks.RNG.uniform(0, 1)))


@pytest.mark.parametrize("which", [np.array([[True, False, True], [False, False, True]]), np.bool_(True),
                                   np.array([[2, 0, 1], [1, 1, 2]], np.int32), np.int32(2)])
def test_batching_of_select_n(which: np.ndarray) -> None:
    cases = [np.float32(np.arange(6).reshape(2, 3) + 10 * k) for k in range(2 if which.dtype == bool else 3)]
    flip = iter([0, 1, 0])

    def make(index: int, value: np.ndarray) -> np.ndarray:
        if index:
            return checks.vary(value, checks.RNG.integers(6))
        k = next(flip)
        return np.array(~value if value.dtype == bool and k else value if value.dtype == bool else (value + k) % 3,
                        value.dtype)

    choices = [(None, 0) if np.ndim(which) == 0 else (None, 0, 2)] + [(None, 1)] * (len(cases) - 1) + [(None, 0)]
    checks.check_all_batchings(lax.select_n, [which, *cases], in_axes=choices, make=make)


@pytest.mark.parametrize("scalar_bounds", [True, False])
def test_batching_of_clamp(scalar_bounds: bool) -> None:
    x = np.float32([[-2, -1, 0], [0.5, 1, 2]])
    low, high = (np.float32(-0.75), np.float32(0.25)) if scalar_bounds else (x * 0 - np.float32(0.75), x * 0 + 0.25)
    checks.check_all_batchings(lax.clamp, [low, x, high], make=lambda which, value: value + np.float32(
        checks.RNG.uniform(0, 1)), in_axes=[(None, 0) if scalar_bounds else (None, 0, 1), (None, 0, 2), (None, 0)])


def test_nested_batching():
    x, y = np.float32(np.arange(3)), np.float32(np.arange(4))
    table = jaxlite.vmap(jaxlite.vmap(lax.sub, (None, 0)), (0, None))(x, y)
    np.testing.assert_array_equal(table, x[:, None] - y)


def test_batched_derivatives_and_derivatives_of_batches_agree():
    x = np.float32([[0.5, 1, 2], [1, 2, 3]])
    total = jaxlite.grad(lambda x: jnp.sum(jaxlite.vmap(lambda row: jnp.sum(lax.sin(row) * row))(x)))(x)
    each = jaxlite.vmap(jaxlite.grad(lambda row: jnp.sum(lax.sin(row) * row)))(x)
    np.testing.assert_allclose(total, each, rtol=1e-6)
    np.testing.assert_allclose(each, np.cos(x) * x + np.sin(x), rtol=1e-5)


def test_the_slope_of_expm1_far_below_zero():
    x = np.float32([-60, -20, 0, 3])
    slope, curvature = jaxlite.grad(lax.expm1), jaxlite.grad(jaxlite.grad(lax.expm1))
    for f in (slope, curvature):
        np.testing.assert_allclose(jaxlite.jit(jaxlite.vmap(f))(x), np.exp(x), rtol=1e-6)
