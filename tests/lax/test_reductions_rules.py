"""Derivatives and batches of reductions over axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.lax import reductions
from tests.rule_checks import check_batching, check_derivatives, missing_rules

INT32 = np.dtype(np.int32)


def _product_of_one_plus(x: Any, y: Any) -> Any:
    return x + y + x * y


def _max_with_position(one: Any, other: Any) -> Any:
    first = one[0] >= other[0]
    return jnp.where(first, one[0], other[0]), jnp.where(first, one[1], other[1])


FUNCTIONS = {
    "reduce_sum": lambda x: lax.reduce_sum(x, (0, 2)),
    "reduce_prod": lambda x: lax.reduce_prod(x, (1,)),
    "reduce_prod of several axes": lambda x: lax.reduce_prod(x, (0, 2)),
    "reduce_max": lambda x: lax.reduce_max(x, (0, 2)),
    "reduce_min": lambda x: lax.reduce_min(x, (1,)),
    "reduce": lambda x: lax.reduce(x, np.zeros((), x.dtype)[()], _product_of_one_plus, (0, 2)),
    "reduce of several": lambda x: lax.reduce((x, x * x), (-np.inf, 0.), _max_with_position, (1,)),
    "logsumexp by hand": lambda x: jnp.log(jnp.sum(jnp.exp(x - jnp.max(x, 1, keepdims=True)), 1)),
}
RULES = dict.fromkeys("reduce_prod reduce_max reduce_min reduce_and reduce_or reduce_xor argmax argmin reduce".split(), "jb")
RULES |= {"reduce_sum": "jtb"}


def test_every_primitive_has_its_rules():
    assert not missing_rules(RULES, [reductions])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_those_of_differences(x64, name):
    check_derivatives(FUNCTIONS[name], np.random.normal(size=(2, 3, 2)))


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 0, 3), (0, 1, 0)])
@pytest.mark.parametrize("name", ["reduce_sum", "reduce_prod", "reduce"])
def test_derivatives_of_small_and_empty_arrays(x64, name, shape):
    check_derivatives(FUNCTIONS[name], np.random.normal(size=shape), orders=1)


def test_products_with_zeros(x64):
    x = np.random.normal(size=(4, 3))
    x[1, :2] = x[3, 0] = 0
    check_derivatives(lambda x: [lax.reduce_prod(x, (0,)), lax.reduce_prod(x, (1,))], x)
    halves = str(jaxlite.make_jaxpr(jaxlite.grad(lambda x: lax.reduce_prod(x, (1,)).sum()))(np.ones((4, 3))))
    assert " = split" in halves and " = concatenate" in halves and " = pad" not in halves


def test_complex_sums_and_products(x64):
    x = np.random.normal(size=(3, 2)) + 1j * np.random.normal(size=(3, 2))
    check_derivatives(lambda x: [lax.reduce_sum(x, (0,)), lax.reduce_prod(x, (0,))], x)


def test_equal_extremes_share_the_derivative():
    grad = jaxlite.grad(lambda x: lax.reduce_max(x, (0,)))(np.float32([3, 1, 3]))
    np.testing.assert_array_equal(grad, [0.5, 0, 0.5])
    grad = jaxlite.grad(lambda x: lax.reduce_min(x, (0,)))(np.float32([1, 1, 1, 1]))
    np.testing.assert_array_equal(grad, [0.25] * 4)


def test_an_array_without_tangent_stays_without():
    """Integer reductions under differentiation compute no tangents."""
    def fun(x):
        position = lax.argmax(x, 0, INT32) + lax.reduce_max(lax.convert_element_type(x, INT32), (0,))
        return lax.reduce_sum(x, (0,)) * lax.convert_element_type(position, np.float32)

    x = np.float32([1, 5, 2])
    assert jaxlite.jvp(fun, (x,), (np.ones_like(x),)) == (48., 18.)
    assert len(jaxlite.make_jaxpr(jaxlite.grad(fun))(x).eqns) <= 9


REDUCTIONS = {
    "sum": (lambda x: lax.reduce_sum(x, (1,)), float),
    "several": (lambda x: lax.reduce_prod(x, (0, 2)), float),
    "none": (lambda x: lax.reduce_max(x, ()), float),
    "min": (lambda x: lax.reduce_min(x, (0, 1, 2)), float),
    "and": (lambda x: lax.reduce_and(x, (2,)), bool),
    "or": (lambda x: lax.reduce_or(x, (0,)), int),
    "xor": (lambda x: lax.reduce_xor(x, (0, 1)), int),
    "argmax": (lambda x: lax.argmax(x, 1, INT32), float),
    "argmin": (lambda x: lax.argmin(x, 2, INT32), int),
    "any computation": (lambda x: lax.reduce(x, np.float32(0), _product_of_one_plus, (0, 2)), float),
}


def _draw(kind: type, *shape: int) -> np.ndarray:
    x = np.random.normal(size=shape)
    return x > 0 if kind is bool else (x * 9).astype(np.int32) if kind is int else x.astype(np.float32)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_vmap_is_a_loop(name):
    fun, kind = REDUCTIONS[name]
    for axis in (0, 2, 3):
        shape = [2, 3, 4]
        shape.insert(axis, 5)
        check_batching(fun, [_draw(kind, *shape)], [axis])


@pytest.mark.parametrize("in_axes", [(0, None), (None, 0), (1, 0)])
def test_vmap_of_initial_values(in_axes):
    shape = [7, 3]
    if in_axes[0] is not None:
        shape.insert(in_axes[0], 4)
    inits = _draw(float, *([4] if in_axes[1] is not None else []))
    check_batching(lambda x, init: lax.reduce(x, init, _product_of_one_plus, (0,)), [_draw(float, *shape), inits], in_axes)


def test_vmap_of_several_operands():
    def fun(x, y):
        return lax.reduce((x, y), (np.float32(-np.inf), np.float32(0)), _max_with_position, (0,))

    check_batching(fun, [_draw(float, 5, 3, 2), _draw(float, 5, 2)], [1, None])


NUMPY = {
    "mean": lambda x: jnp.mean(x, axis=1),
    "var": lambda x: jnp.var(x, axis=0),
    "std": lambda x: jnp.std(x, axis=1, ddof=1),
    "max": lambda x: jnp.max(x, axis=1),
    "prod": lambda x: jnp.prod(x),
    "min": lambda x: jnp.min(x, axis=0, keepdims=True),
    "nansum": lambda x: jnp.nansum(x, axis=0),
    "ptp": lambda x: jnp.ptp(x, axis=0),
    "median": lambda x: jnp.median(x, axis=1),
    "average": lambda x: jnp.average(x, axis=0, weights=x * x),
}


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_reductions(x64, name):
    check_derivatives(NUMPY[name], np.random.normal(size=(3, 4)), orders=1)
