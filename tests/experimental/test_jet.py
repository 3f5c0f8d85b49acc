"""Taylor mode: against nested forward mode, operation by operation, in one program."""

from __future__ import annotations

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.experimental import jet as jet_module
from jaxlite.experimental.jet import jet
from jaxlite.extend.core import Primitive

X = np.array([0.3, 0.7, 1.1], np.float32)
SERIES = [np.array(each, np.float32) for each in ([1, 0.5, -0.3], [0.2, 0.1, 0.4], [-0.1, 0.3, 0.2])]
M = np.arange(9, dtype=np.float32).reshape(3, 3) / 10
FUNCTIONS = {
    "exponentials": lambda x: jnp.exp(x) + jnp.exp2(x) + jnp.expm1(x) + jnp.log(x) * jnp.log1p(x),
    "trigonometry": lambda x: jnp.sin(x) * jnp.cos(x) + jnp.tan(x) + jnp.arctan(x) + jnp.arcsin(x / 2) * jnp.arccos(x / 2),
    "hyperbolic": lambda x: jnp.sinh(x) + jnp.cosh(x) * jnp.tanh(x) + jnp.arcsinh(x) + jnp.arccosh(x + 1) + jnp.arctanh(x / 2),
    "later ones": lambda x: lax.log2(x) * lax.one_minus_square(x) + lax.polynomial(x, [x[0], x * x, 2.0]),
    "powers": lambda x: x**2.5 + x**3 + 1 / x + x**-2 + x**x + jnp.sqrt(x) + lax.rsqrt(x) + jnp.cbrt(x) + jnp.square(x),
    "error functions": lambda x: lax.erf(x) + lax.erfc(x / 2) * lax.erf_inv(x / 2) + jax.nn.sigmoid(x),
    "choices": lambda x: jnp.maximum(x, 0.5) * jnp.minimum(x, 1.0) + jnp.abs(x - 0.5) + jnp.where(x > 0.5, x * x, x)
    + jnp.clip(x, 0.2, 1.0) + jax.nn.relu(x - 0.5),
    "linear": lambda x: jnp.cumsum(x)[::-1] * x[0] + jnp.concatenate([x[1:], x[:1]]).reshape(3) - x.mean(),
    "products": lambda x: jnp.tanh(M @ x) * x + jax.nn.softmax(x) + jax.nn.logsumexp(x) + jax.nn.gelu(x),
    "calls": lambda x: jax.jit(lambda y: jnp.sin(y) * y)(x) + jax.checkpoint(jnp.cos)(x),
    "no rule": lambda x: lax.scan(lambda c, a: (c * jnp.sin(a), c), 1.0, x)[1] + jnp.sort(jnp.sin(5 * x)) + lax.lgamma(x)
    + lax.cond(x[0] > 0, jnp.sin, jnp.cos, x) + jnp.prod(x),
    "modulus": lambda x: jnp.abs(x + 1j * x * x),
}


def nested(fun, order):
    """Derivatives along the curve, one after the other."""
    curve = lambda t: X + sum(term * t**k / np.prod(np.arange(1, k + 1)) for k, term in enumerate(SERIES, 1))
    found, derivative = [], lambda t: fun(curve(t))
    for _ in range(order):
        derivative = (lambda inner: lambda t: jax.jvp(inner, (t,), (1.0,))[1])(derivative)
        found.append(derivative(0.0))
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_agrees_with_nested_forward_mode(name):
    fun = FUNCTIONS[name]
    (value, terms), expected = jax.jit(lambda: (jet(fun, (X,), (SERIES,)), [fun(X), *nested(fun, 2)]))()
    for found, wanted in zip([value, *terms[:2]], expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-3)


def test_trees_and_scaling():
    fun = lambda x, y: {"product": x * y["a"], "constant": 1.0}
    value, terms = jet(fun, (2.0, {"a": 3.0}), ((1.0, 0.0), ({"a": 1.0}, {"a": 0.0})))
    assert float(value["product"]) == 6 and {name: list(map(float, each)) for name, each in terms.items()} == {
        "product": [5, 2], "constant": [0, 0]}
    _, terms = jet(fun, (2.0, {"a": 3.0}), ((1.0, 0.0), ({"a": 1.0}, {"a": 0.0})), factorial_scaled=False)
    assert list(map(float, terms["product"])) == [5, 1]


def test_rules_of_others():
    cube = Primitive("cube")
    cube.def_impl(lambda x: x**3)
    cube.def_abstract_eval(lambda x: x)
    both = Primitive("both")
    both.multiple_results = True
    both.def_abstract_eval(lambda x: (x, x))
    expected = [8, 12, 12, 6]  # x^3 at 2 with its derivatives

    def derivatives():
        value, terms = jet(lambda x: cube.bind(x), (2.0,), ((1.0, 0.0, 0.0),))
        return [float(value), *map(float, terms)]

    jet_module.def_deriv(cube, lambda x: 3 * x * x)
    assert derivatives() == expected
    jet_module.def_comp(cube, lambda x: x * x * x)
    assert derivatives() == expected
    jet_module.deflinear(cube)
    assert derivatives() == [8, 1, 0, 0]
    jet_module.defzero(cube)
    assert derivatives() == [8, 0, 0, 0]
    jet_module.jet_rules[cube] = lambda primals, series: jet_module.jet_rules[lax.integer_pow_p](primals, series, y=3)
    assert derivatives() == expected and cube in jet_module.jet_rules
    jet_module.jet_rules[both] = lambda primals, series: ([primals[0], primals[0]], [jet_module.zero_series, series[0]])
    _, terms = jet(lambda x: tuple(both.bind(x)), (2.0,), ((1.0, 4.0),))
    assert [list(map(float, each)) for each in terms] == [[0, 0], [1, 4]]
    with pytest.raises(KeyError):
        jet_module.jet_rules[lax.sort_p]
    for rule, text in ((lambda primals, series: primals[0], "must return the value and its series"),
                       (lambda primals, series: (primals[0], [1.0]), "must return 3 coefficients")):
        jet_module.jet_rules[cube] = rule
        with pytest.raises(TypeError, match=f"the jet rule of 'cube', .*<lambda> at .*test_jet.py.*{text}"):
            derivatives()
    with pytest.raises(TypeError, match="registered for 'cube'.*not a primitive"):
        jet_module.jet_rules["cube"] = print
    np.testing.assert_allclose(jet_module.fact(np.arange(5.0)), [1, 1, 2, 6, 24], rtol=1e-5)


def test_programs_that_are_called_many_times():
    levels = [jax.jit(lambda x: jnp.sqrt(x) ** 2.5)]
    for _ in range(12):
        levels.append(jax.jit(lambda x, f=levels[-1]: (f(x) + f(x)) / 2))
    program = str(jax.make_jaxpr(lambda x: jet(levels[-1], (x,), ((1.0, 0.0),)))(4.0))
    assert len(program) < 20_000  # each function stands there once
    for f in (levels[0], levels[2]):
        for x in (4.0, 16.0):  # the exponent is known, and nothing else
            value, (first, second) = jet(f, (x,), ((1.0, 0.0),))
            np.testing.assert_allclose([value, first, second], [x**1.25, 1.25 * x**.25, .3125 * x**-.75], rtol=1e-6)
    jet_module.jet_rules[lax.sqrt_p] = lambda primals, series: (lax.sqrt(*primals), jet_module.zero_series)
    try:
        assert jet(levels[2], (4.0,), ((1.0, 0.0),))[1] == [0, 0]  # a rule that came later
    finally:
        del jet_module.jet_rules[lax.sqrt_p]


def test_bad_input():
    with pytest.raises(ValueError, match="series 0 must be a sequence of terms"):
        jet(jnp.sin, (1.0,), ({"first": 1.0},))
    with pytest.raises(ValueError, match="2 primals need as many series of one length"):
        jet(lambda x, y: x, (1.0, 2.0), ((1.0,),))
    with pytest.raises(ValueError, match="complex, its primal is"):  # the imaginary part was dropped
        jet(jnp.sin, (1.0,), ([1j],))
    with pytest.raises(ValueError, match="term 0 of series 0 has the structure"):
        jet(lambda x: x["a"], ({"a": 1.0},), ((1.0,),))


def test_series_of_integers_are_those_of_floats():
    curves = {"sin": jnp.sin, "products": lambda x: x * x * 3, "division": lambda x: x / 2,
              "branch": lambda x: jnp.where(x > 1, x, 2 * x),
              "call": lambda x: jax.jit(lambda y: jnp.maximum(y, 1) ** 2)(x), "sum": lambda x: jnp.sum(jnp.stack([x, x * 2]))}
    for name, fun in curves.items():
        value, terms = jet(fun, (3,), ([1.0, 0.5],))
        assert value.dtype == jax.eval_shape(fun, 3).dtype, name
        np.testing.assert_allclose([value, *terms], [fun(3.0), *jet(fun, (3.0,), ([1.0, 0.5],))[1]], rtol=1e-6, err_msg=name)
    assert [term.item() for term in jet(lambda i: jnp.arange(3.0)[i], (2,), ([1.0, 0.0],))[1]] == [0, 0]
