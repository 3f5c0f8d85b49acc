"""Derivatives and batches of matrix products and convolutions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.core.primitive import NoRule, find_primitive, load_rules
from tests.rule_checks import check_batching, check_derivatives, spread_axes


@pytest.mark.parametrize("name", ["dot_general", "conv_general_dilated", "ragged_dot_general", "scaled_dot"])
def test_every_primitive_has_its_rules(name):
    load_rules()
    primitive = find_primitive(name)
    for rule in (primitive.jvp, primitive.transpose, primitive.batching):
        assert callable(rule) or type(rule) is NoRule


# --- dot_general -------------------------------------------------------------------------------------

DOTS = {  # shapes, then dimension numbers
    "vectors": ((3,), (3,), (((0,), (0,)), ((), ()))),
    "matrix and vector": ((2, 3), (3,), (((1,), (0,)), ((), ()))),
    "matrices": ((2, 3), (3, 4), (((1,), (0,)), ((), ()))),
    "transposed": ((3, 2), (4, 3), (((0,), (1,)), ((), ()))),
    "outer": ((2, 3), (4,), (((), ()), ((), ()))),
    "batch": ((5, 2, 3), (5, 3, 4), (((2,), (1,)), ((0,), (0,)))),
    "batch in the middle": ((2, 5, 3), (3, 4, 5), (((2,), (0,)), ((1,), (2,)))),
    "two contracted, crossed": ((2, 3, 4), (4, 5, 3), (((1, 2), (2, 0)), ((), ()))),
    "two batches, crossed": ((5, 2, 6, 3), (6, 3, 5), (((3,), (1,)), ((2, 0), (0, 2)))),
    "elementwise": ((2, 3), (3, 2), (((), ()), ((0, 1), (1, 0)))),
    "contracted in a scattered order": ((2, 3, 4, 6), (6, 5, 2, 4), (((3, 0, 2), (0, 2, 3)), ((), ()))),
    "empty": ((2, 0), (0, 3), (((1,), (0,)), ((), ()))),
}


@pytest.mark.parametrize("name", DOTS)
def test_dot_general_derivatives(x64, name):
    left, right, numbers = DOTS[name]
    check_derivatives(lambda x, y: lax.dot_general(x, y, numbers), np.random.normal(size=left),
                      np.random.normal(size=right), orders=2 if name == "two batches, crossed" else 1)


def test_complex_products_are_not_conjugated(x64):
    x, y = (np.random.normal(size=(2, 2)) + 1j * np.random.normal(size=(2, 2)) for _ in range(2))
    check_derivatives(lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ()))), x, y)


def test_an_operand_may_come_twice(x64):
    check_derivatives(lambda x: lax.dot_general(x, x, (((1,), (1,)), ((), ()))), np.random.normal(size=(3, 2)))


@pytest.mark.parametrize(("left", "right", "preferred", "out"), [
    ("bfloat16", "bfloat16", "float32", "float32"), ("bfloat16", "float32", None, "float32"),
    ("float16", "float16", None, "float16"), ("float32", "complex64", None, "complex64"),
])
def test_cotangents_have_the_dtypes_of_their_operands(left, right, preferred, out):
    x, y = jnp.ones((2, 3), left), jnp.ones((3, 2), right)
    value, pull = jaxlite.vjp(lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=preferred),
                              x, y)
    assert value.dtype == out
    dx, dy = pull(jnp.full((2, 2), 2, out))
    assert (dx.dtype, dy.dtype) == (left, right)
    np.testing.assert_array_equal(np.asarray(dx, np.float32), np.full((2, 3), 4))
    np.testing.assert_array_equal(np.asarray(dy).astype(np.complex64), np.full((3, 2), 4))


def test_precision_follows_its_operand():
    def fun(x, y):
        return jnp.sum(lax.dot_general(x, y, (((1,), (0,)), ((), ())), precision=("high", "highest")))

    text = str(jaxlite.make_jaxpr(jaxlite.grad(fun, argnums=(0, 1)))(np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)))
    assert text.count("precision=(Precision.HIGH, Precision.HIGHEST)") == 3


def test_matrix_products_need_no_transposition():
    def fun(x, y):
        return jnp.sum(jnp.matmul(x, y))

    shapes = [((2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4))]
    for left, right in shapes:
        jaxpr = jaxlite.make_jaxpr(jaxlite.grad(fun, argnums=(0, 1)))(np.ones(left, np.float32), np.ones(right, np.float32))
        assert "transpose" not in str(jaxpr)


def test_the_axis_of_a_batch_of_vectors_stays_in_front():
    """Otherwise the arrays of gradients and Hessians lie the wrong way round: up to twice the time."""
    matrix, vectors = np.random.normal(size=(4, 3)).astype(np.float32), np.random.normal(size=(5, 3)).astype(np.float32)

    def product(x):
        return lax.dot_general(matrix, x, (((1,), (0,)), ((), ())), precision=("high", "highest"))

    text = str(jaxlite.make_jaxpr(jaxlite.vmap(product))(vectors))
    assert "transpose" not in text
    assert "precision=(Precision.HIGHEST, Precision.HIGH)" in text
    np.testing.assert_allclose(jaxlite.vmap(product)(vectors), vectors @ matrix.T, rtol=1e-5)


AXES = [(0, None), (None, 0), (0, 0), (1, 2)]


@pytest.mark.parametrize("name", ["matrices", "batch", "two batches, crossed", "outer"])
@pytest.mark.parametrize("in_axes", AXES)
def test_vmap_of_dot_general_is_a_loop(name, in_axes):
    left, right, numbers = DOTS[name]
    if name == "outer" and in_axes == (1, 2):
        in_axes = (2, 1)
    x, y = (np.random.normal(size=spread_axes(shape, 3, axis)).astype(np.float32)
            for shape, axis in zip((left, right), in_axes, strict=True))
    check_batching(lambda x, y: lax.dot_general(x, y, numbers), [x, y], in_axes)


def test_vmap_of_a_gradient_is_one_product():
    """Gradients per example cost one equation more or less, not a loop."""
    def loss(w, x):
        return jnp.sum(jnp.tanh(jnp.matmul(x, w)))

    w, x = np.random.normal(size=(3, 4)).astype(np.float32), np.random.normal(size=(6, 2, 3)).astype(np.float32)
    check_batching(jaxlite.grad(loss), [w, x], [None, 0])
    jaxpr = jaxlite.make_jaxpr(jaxlite.vmap(jaxlite.grad(loss), (None, 0)))(w, x)
    assert sum(eqn.primitive.name == "dot_general" for eqn in jaxpr.eqns) <= 2


# --- ragged products ---------------------------------------------------------------------------------


def test_ragged_products(x64):
    sizes = np.array([2, 0, 3], np.int32)
    check_derivatives(lambda x, y: lax.ragged_dot(x, y, sizes), np.random.normal(size=(5, 3)),
                      np.random.normal(size=(3, 3, 2)))


@pytest.mark.parametrize("in_axes", [(0, None, None), (None, 0, None), (None, None, 0), (1, 2, 0)])
def test_vmap_of_ragged_products(in_axes):
    shapes = [(5, 3), (3, 3, 2), (3,)]
    x, y = (np.random.normal(size=spread_axes(shape, 2, axis)).astype(np.float32)
            for shape, axis in zip(shapes[:2], in_axes[:2], strict=True))
    sizes = np.array([[2, 0, 3], [1, 4, 0]], np.int32)
    check_batching(lax.ragged_dot, [x, y, sizes if in_axes[2] == 0 else sizes[0]], in_axes)


def test_scaled_products():
    x, y = (np.random.normal(size=shape).astype(np.float32) for shape in ((2, 4), (4, 3)))
    scale = np.float32([[2, 4], [1, 8]])
    fun = lambda x, y, scale: lax.scaled_dot(x, y, lhs_scale=scale, preferred_element_type="float32")
    plain = lambda x, y, scale: jnp.matmul(x * jnp.repeat(scale, 2, axis=1), y)
    for argnums in (0, 2):
        got, expected = (jaxlite.jit(jaxlite.grad(lambda *args, f=f: jnp.sum(f(*args) ** 2), argnums))(x, y, scale)
                         for f in (fun, plain))
        np.testing.assert_allclose(got, expected, rtol=1e-5)
    check_batching(fun, [np.stack([x, -x]), y, scale], [0, None, None])


# --- convolution -------------------------------------------------------------------------------------

CONVOLUTIONS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "plain": ((2, 3, 5), (4, 3, 2), {"window_strides": (1,), "padding": "VALID"}),
    "no spatial axes": ((2, 3), (4, 3), {"window_strides": (), "padding": "VALID"}),
    "strides that leave a rest": ((1, 2, 7, 6), (3, 2, 2, 3), {"window_strides": (2, 3), "padding": "VALID"}),
    "same": ((2, 5, 6, 2), (3, 2, 2, 3), {"window_strides": (2, 1), "padding": "SAME",
                                          "dimension_numbers": ("NHWC", "HWIO", "NHWC")}),
    "spread input": ((1, 2, 4), (3, 2, 3), {"window_strides": (2,), "padding": [(2, 3)], "lhs_dilation": (3,)}),
    "spread kernel": ((1, 2, 9), (3, 2, 3), {"window_strides": (2,), "padding": [(1, 2)], "rhs_dilation": (2,)}),
    "everything": ((2, 2, 7), (2, 2, 3), {"window_strides": (3,), "padding": [(4, 2)], "lhs_dilation": (2,),
                                          "rhs_dilation": (3,)}),
    "cropped": ((1, 2, 8), (2, 2, 3), {"window_strides": (2,), "padding": [(-1, -2)]}),
    "wide pads": ((1, 1, 3), (1, 1, 2), {"window_strides": (1,), "padding": [(5, 4)]}),
    "feature groups": ((2, 6, 5), (4, 3, 2), {"window_strides": (2,), "padding": "SAME", "feature_group_count": 2}),
    "depthwise": ((2, 3, 5), (6, 1, 3), {"window_strides": (1,), "padding": "SAME", "feature_group_count": 3}),
    "batch groups": ((6, 2, 5), (4, 2, 3), {"window_strides": (1,), "padding": [(1, 0)], "batch_group_count": 2}),
    "axes in another order": ((5, 6, 2), (2, 4, 3), {"window_strides": (2,), "padding": "SAME", "batch_group_count": 2,
                                                     "dimension_numbers": ("HNC", "IOH", "CHN")}),
    "no windows": ((1, 2, 2), (2, 2, 3), {"window_strides": (1,), "padding": "VALID"}),
}


def _convolve(name: str):
    params = CONVOLUTIONS[name][2]
    return lambda x, y: lax.conv_general_dilated(x, y, **params)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_derivatives(x64, name):
    left, right, _ = CONVOLUTIONS[name]
    check_derivatives(_convolve(name), np.random.normal(size=left), np.random.normal(size=right),
                      orders=2 if name in ("everything", "batch groups", "feature groups") else 1)


@pytest.mark.parametrize("name", ["same", "feature groups", "batch groups", "axes in another order", "everything"])
@pytest.mark.parametrize("in_axes", [(0, None), (None, 1), (1, 2)])
def test_vmap_of_convolution_is_a_loop(name, in_axes):
    left, right, _ = CONVOLUTIONS[name]
    x, y = (np.random.normal(size=spread_axes(shape, 2, axis)).astype(np.float32)
            for shape, axis in zip((left, right), in_axes, strict=True))
    check_batching(_convolve(name), [x, y], in_axes)


@pytest.mark.parametrize(("axis", "groups"), list(itertools.product((0, 2, 3), ("feature groups", "batch groups"))))
def test_vmap_of_convolution_takes_any_axis(axis, groups):
    left, right, _ = CONVOLUTIONS[groups]
    x = np.random.normal(size=spread_axes(left, 2, axis)).astype(np.float32)
    y = np.random.normal(size=spread_axes(right, 2, 3 - axis)).astype(np.float32)
    check_batching(_convolve(groups), [x, y], [axis, 3 - axis])


def test_a_wider_result_of_convolution_has_narrow_cotangents():
    x, y = jnp.ones((1, 1, 4), "bfloat16"), jnp.ones((1, 1, 2), "bfloat16")

    def fun(x, y):
        return lax.conv_general_dilated(x, y, (1,), "VALID", preferred_element_type="float32")

    value, pull = jaxlite.vjp(fun, x, y)
    dx, dy = pull(jnp.ones_like(value))
    assert value.dtype == "float32" and dx.dtype == dy.dtype == "bfloat16"
    np.testing.assert_array_equal(np.asarray(dx, np.float32).ravel(), [1, 2, 2, 1])
    np.testing.assert_array_equal(np.asarray(dy, np.float32).ravel(), [3, 3])


def test_complex_convolution(x64):
    x = np.random.normal(size=(1, 1, 4)) + 1j * np.random.normal(size=(1, 1, 4))
    check_derivatives(lambda x, y: lax.conv_general_dilated(x, y, (1,), "SAME"), x, x[..., :2])


def test_transposed_convolution(x64):
    check_derivatives(lambda x, y: lax.conv_transpose(x, y, (2,), "SAME"), np.random.normal(size=(1, 3, 2)),
                      np.random.normal(size=(3, 2, 2)), orders=1)


# --- through jaxlite.numpy ---------------------------------------------------------------------------

NUMPY = {
    "matmul": (lambda x, y: jnp.matmul(x, y), (2, 3, 4), (4, 3)),
    "einsum": (lambda x, y: jnp.einsum("bij,bkj->bik", x, y), (2, 3, 4), (2, 5, 4)),
    "einsum of a diagonal": (lambda x, y: jnp.einsum("ii,ij->j", x, y), (3, 3), (3, 2)),
    "tensordot": (lambda x, y: jnp.tensordot(x, y, axes=([0, 2], [1, 0])), (2, 3, 4), (4, 2)),
    "vdot": (lambda x, y: jnp.vdot(x, y), (2, 3), (2, 3)),
    "inner": (lambda x, y: jnp.inner(x, y), (2, 3), (4, 3)),
    "outer": (lambda x, y: jnp.outer(x, y), (3,), (2,)),
    "kron": (lambda x, y: jnp.kron(x, y), (2, 2), (2, 1)),
    "convolve": (lambda x, y: jnp.convolve(x, y, "same"), (5,), (3,)),
}


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_products(x64, name):
    fun, left, right = NUMPY[name]
    if not hasattr(jnp, name.split()[0]):
        pytest.skip(f"jaxlite.numpy has no {name}")
    check_derivatives(fun, np.random.normal(size=left), np.random.normal(size=right), orders=1)
