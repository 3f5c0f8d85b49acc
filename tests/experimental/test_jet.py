"""Taylor mode: against nested forward mode, operation by operation, in one program."""

from __future__ import annotations

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.experimental.jet import jet

X = np.array([0.3, 0.7, 1.1], np.float32)
SERIES = [np.array(each, np.float32) for each in ([1, 0.5, -0.3], [0.2, 0.1, 0.4], [-0.1, 0.3, 0.2])]
M = np.arange(9, dtype=np.float32).reshape(3, 3) / 10
FUNCTIONS = {
    "exponentials": lambda x: jnp.exp(x) + jnp.exp2(x) + jnp.expm1(x) + jnp.log(x) * jnp.log1p(x),
    "trigonometry": lambda x: jnp.sin(x) * jnp.cos(x) + jnp.tan(x) + jnp.arctan(x) + jnp.arcsin(x / 2) * jnp.arccos(x / 2),
    "hyperbolic": lambda x: jnp.sinh(x) + jnp.cosh(x) * jnp.tanh(x) + jnp.arcsinh(x) + jnp.arccosh(x + 1) + jnp.arctanh(x / 2),
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
    value, (first, second) = jet(fun, (2.0, {"a": 3.0}), ((1.0, 0.0), ({"a": 1.0}, {"a": 0.0})))
    assert (float(value["product"]), float(first["product"]), float(second["product"])) == (6, 5, 2)
    assert float(second["constant"]) == 0
    _, (first, second) = jet(fun, (2.0, {"a": 3.0}), ((1.0, 0.0), ({"a": 1.0}, {"a": 0.0})), factorial_scaled=False)
    assert (float(first["product"]), float(second["product"])) == (5, 1)


def test_bad_input():
    with pytest.raises(ValueError, match="2 primals need as many series of one length"):
        jet(lambda x, y: x, (1.0, 2.0), ((1.0,),))
    with pytest.raises(ValueError, match="term 0 of series 0 has the structure"):
        jet(lambda x: x["a"], ({"a": 1.0},), ((1.0,),))
