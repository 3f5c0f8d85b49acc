"""Dtypes that a library defines by rules: conversions, derivatives by their rules, operations, arrays outside programs."""

import copy
import pickle

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.experimental import EArray, primal_tangent_dtype
from jaxlite.interpreters import pxla

F32 = np.dtype("float32")


class maximal(jax.dtypes.extended):
    pass


class Rules:
    """Floats whose sums are maxima."""

    made: list = []

    @staticmethod
    def physical_element_aval(dtype):
        return jax.core.ShapedArray((), F32)

    @staticmethod
    def convert_to(other, dtype):
        return other == F32

    @staticmethod
    def convert_from(dtype, other):
        return other == F32

    @staticmethod
    def add(dtype, x, y):
        return lax.convert_element_type(lax.max(*(lax.convert_element_type(each, F32) for each in (x, y))), dtype)

    @staticmethod
    def zero(dtype):
        return lax.convert_element_type(np.float32(-np.inf), dtype)

    @staticmethod
    def tangent_dtype(dtype):
        return dtype

    @staticmethod
    def full(shape, value, dtype):
        return lax.convert_element_type(lax.full(shape, value, F32), dtype)

    @staticmethod
    def global_sharded_result_handler(aval, sharding, committed):
        make = pxla.global_result_handlers[jax.core.ShapedArray](jax.core.ShapedArray(aval.shape, F32), sharding, committed)
        Rules.made.append(aval.dtype)
        return lambda buffers: EArray(aval, make(buffers))


class Maximal(dtypes.ExtendedDType):
    name, type, _rules = "maximal", maximal, Rules


class Pair(dtypes.ExtendedDType):
    """Two floats in one element."""

    name, type = "pair", maximal

    class _rules:
        allow_conversion = True
        physical_element_aval = staticmethod(lambda dtype: jax.core.ShapedArray((2,), F32))
        tangent_dtype = staticmethod(lambda dtype: jax.float0)


MAX, PAIR = Maximal(), Pair()
to_max = lambda x: lax.convert_element_type(x, MAX)
back = lambda x: lax.convert_element_type(x, F32)


def test_conversions_follow_the_rules():
    x = np.float32([1, 2])
    for convert in (to_max, jax.jit(to_max)):
        array = convert(x)
        assert isinstance(array, EArray) and array.dtype == MAX and array.shape == (2,) and array.nbytes == 8
        np.testing.assert_array_equal(back(array), x)
    assert Rules.made and set(Rules.made) == {MAX}
    assert jnp.issubdtype(array.dtype, maximal) and jnp.issubdtype(array.dtype, jax.dtypes.extended)
    assert [eqn.primitive.name for eqn in jax.make_jaxpr(lambda x: back(to_max(x)))(x).eqns] == ["to_edtype", "from_edtype"]
    np.testing.assert_array_equal(back(copy.deepcopy(jax.device_put(array))), x)
    for wrong in (lambda: to_max(np.int32([1])), lambda: lax.convert_element_type(array, np.int32)):
        with pytest.raises(ValueError, match="Cannot convert_element_type"):
            wrong()
    with pytest.raises(ValueError, match="cannot directly convert between extended dtypes"):
        lax.convert_element_type(array, PAIR)
    with pytest.raises(ValueError, match=r"representation shape \(2,\)"):
        lax.convert_element_type(np.ones(3, F32), PAIR)


def test_cotangents_are_added_by_the_rules():
    def loss(x):
        x = to_max(x)
        return (back(x) * 2).sum() + (back(x)[:1] * 3).sum()

    for grad in (jax.grad(loss), jax.jit(jax.grad(loss))):
        np.testing.assert_array_equal(grad(np.ones(2, F32)), [3, 2])  # not 5
    looped = lambda x: lax.scan(lambda c, i: (c + back(x).sum() * i, None), 0.0, np.float32([1, 4, 2]))[0]
    np.testing.assert_array_equal(jax.grad(lambda x: looped(to_max(x)))(np.ones(2, F32)), [4, 4])
    _, tangent = jax.jvp(to_max, (np.ones(2, F32),), (np.float32([5, 6]),))
    assert tangent.dtype == MAX and list(back(tangent)) == [5, 6]


def test_zeros_and_filled_arrays_follow_the_rules():
    np.testing.assert_array_equal(jax.jit(lambda: back(jnp.full((2,), 3.0, MAX)))(), [3, 3])
    unused = jax.grad(lambda x, y: back(x).sum(), argnums=1, allow_int=True)
    np.testing.assert_array_equal(back(jax.jit(unused)(to_max(np.ones(2, F32)), to_max(np.ones(2, F32)))), [-np.inf] * 2)


W = np.arange(12, dtype=F32).reshape(3, 2, 2)


@pytest.mark.parametrize("function", [
    lambda q: q[1:], lambda q: q[np.array([2, 0]), 1], lambda q: q.at[0].set(q[1]),
    lambda q: jnp.where(np.array([[True], [False], [True]]), q, q[::-1]), lambda q: lax.scan(lambda c, x: (c, x[0]), 0, q)[1],
    lambda q: jnp.concatenate([q.reshape(6), q.T.reshape(6)]),
], ids=["slice", "gather", "scatter", "select", "scan", "shape"])
def test_operations_on_elements_with_axes_are_those_on_arrays_of_more_axes(function):

    program = jax.jit(lambda w: back(function(lax.convert_element_type(w, PAIR))))
    labels = np.arange(6).reshape(3, 2)
    expected = W.reshape(6, 2)[np.asarray(function(jnp.asarray(labels)))]
    np.testing.assert_array_equal(program(W), expected)
    batched = jax.vmap(lambda w: lax.convert_element_type(w, PAIR), in_axes=2)
    assert jax.eval_shape(batched, np.ones((3, 2, 5), F32)).shape == (5, 3)


def test_a_dtype_with_tangents_of_another():
    int8 = primal_tangent_dtype("int8", "bfloat16")
    assert int8 == primal_tangent_dtype(np.int8, jnp.bfloat16) == pickle.loads(pickle.dumps(int8))
    assert int8 != primal_tangent_dtype("int8", "float32") and repr(int8) == "PrimalTangentDType{i8/bf16}"

    @jax.custom_vjp
    def dequantized(x):
        return lax.convert_element_type(x, np.int8).astype(jnp.bfloat16) / 2

    dequantized.defvjp(lambda x: (dequantized(x), None), lambda _, ct: (ct / 2,))
    x = lax.convert_element_type(np.int8([3, 4]), int8)
    assert jax.typeof(x).dtype == int8
    value, pull = jax.vjp(jax.jit(lambda x: (dequantized(x) * 3).sum()), x)
    (cotangent,) = pull(jnp.ones_like(value))
    assert value == 10.5 and cotangent.dtype == jnp.bfloat16 and list(cotangent) == [1.5, 1.5]
