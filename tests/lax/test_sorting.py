"""Sorting, top_k and their approximate kin of lax, against NumPy."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax

bfloat16 = np.dtype(ml_dtypes.bfloat16)
f32 = np.dtype(np.float32)
REALS = [np.dtype(bool), *(np.dtype(name) for name in "int8 int32 uint8 uint16 uint32 float16 float32".split()),
         bfloat16]  # fmt: skip


def draw(rng, shape, dtype):
    """Small numbers with many ties; floats with both zeros, both infinities and NaN."""
    x = rng.integers(-6, 7, shape)
    if dtype.kind in "bu":
        return abs(x).astype(dtype) if dtype.kind == "u" else x > 0
    if dtype.kind == "i":
        return x.astype(dtype)
    x = (x / 2).astype(dtype)
    special = rng.random(shape)
    for index, value in enumerate((np.nan, -0.0, np.inf, -np.inf, -np.nan)):
        x[(special > index / 20) & (special < (index + 1) / 20)] = value
    return x


def wide(x):
    x = np.asarray(x)
    return x if x.dtype.kind in "biuc" else x.astype(np.float64)


def assert_same(got, expected):
    """Equal also in the signs of zeros."""
    got, expected = wide(got), wide(expected)
    np.testing.assert_array_equal(got, expected)
    if expected.dtype.kind == "f":
        number = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(expected)[number])


SMALL = [((17,), 0), ((3, 4, 2), 1)]
LARGE = [((70, 66), 0), ((66, 2, 70), 2)]


@pytest.mark.parametrize("dtype, shape, axis", [
    *((dtype, *each) for dtype in REALS for each in (*SMALL, ((4200,), -1))),
    *((dtype, *each) for dtype in (f32, bfloat16, np.dtype(np.int8)) for each in LARGE)])
def test_sort_is_stable_and_permutes_alike(dtype, shape, axis, rng):
    x = draw(rng, shape, dtype)
    payload = rng.normal(size=shape).astype(f32)

    def sort(_):
        dimension = axis % x.ndim
        return (*lax.sort((x, lax.broadcasted_iota(np.int32, shape, dimension), payload), axis), lax.sort(x, axis))

    order = np.argsort(wide(x), axis=axis, kind="stable")
    # In a loop larger arrays are sorted as integers of key and position.
    by_key, index, permuted, alone = (each[-1] for each in jaxlite.jit(lambda: lax.map(sort, np.arange(2)))())
    assert by_key.dtype == alone.dtype == dtype
    np.testing.assert_array_equal(index, order)
    np.testing.assert_array_equal(permuted, np.take_along_axis(payload, order, axis))
    assert_same(by_key, np.take_along_axis(x, order, axis))
    assert_same(alone, np.take_along_axis(x, order, axis))


def test_nan_is_last_and_zeros_are_equal():
    x = np.array([np.nan, 0.0, -0.0, -np.nan, 1, -np.inf, np.inf], f32)
    assert_same(lax.sort(x), np.array([-np.inf, 0.0, -0.0, 1, np.inf, np.nan, np.nan]))


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), bfloat16, f32], ids=str)
def test_many_floats_in_any_order_of_equal_ones(dtype, rng):
    """Sorted by their bits on the CPU: in a loop, so that a few thousand are many."""
    x = (rng.standard_normal((2, 64, 64)) * 10.0 ** rng.integers(-8, 5, (2, 64, 64))).astype(dtype)
    x[:, ::7, ::3] = np.array([np.nan, -0.0, np.inf, -np.inf, -np.nan, 0.0], dtype)[np.arange(22) % 6]
    f = jaxlite.jit(lambda x: lax.map(lambda x: lax.sort(x, 0, is_stable=False), x))
    assert "gather" not in f.lower(x).as_text()
    np.testing.assert_array_equal(np.asarray(f(x)).astype(f32), np.sort(x.astype(f32), 1))


@pytest.mark.parametrize("dtype", ["int2", "uint2", "int4", "uint4"])
def test_integers_of_few_bits(dtype):
    x = jnp.array([1, 0, 1, -2, -1, 0, 1] if dtype == "int2" else [1, 0, 3, 2, 1, 0, 3]).astype(dtype)
    whole = np.asarray(x).astype(int)
    values, places = jaxlite.jit(lambda x: (jnp.sort(x), jnp.argsort(x)))(x)
    assert values.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(values).astype(int), np.sort(whole))
    np.testing.assert_array_equal(places, np.argsort(whole, kind="stable"))


def test_sort_by_several_keys(rng):
    a, b = rng.integers(0, 3, 50), rng.integers(0, 3, 50).astype(np.float16)
    index = np.arange(50, dtype=np.int32)
    got = lax.sort((a, b, index), num_keys=2)
    order = np.lexsort((b, a))
    np.testing.assert_array_equal(got[0], a[order])
    np.testing.assert_array_equal(got[1], b[order])
    np.testing.assert_array_equal(got[2], order)


def test_sort_complex_by_real_then_imaginary_part(rng):
    x = (rng.integers(-2, 3, 40) + 1j * rng.integers(-2, 3, 40)).astype(np.complex64)
    np.testing.assert_array_equal(lax.sort(x), np.sort(x))
    y = np.array([complex(1, np.nan), 1 + 1j, np.nan, 1 - 1j, 0], np.complex64)
    np.testing.assert_array_equal(lax.sort(y), y[[4, 3, 1, 0, 2]])


def test_sort_key_val():
    keys, values = lax.sort_key_val(np.array([3, 1, 2]), np.array([1.0, 2, 3]))
    np.testing.assert_array_equal(keys, [1, 2, 3])
    np.testing.assert_array_equal(values, [2, 3, 1])


def test_sort_of_64_bits(x64, rng):
    x = rng.normal(size=5000)
    np.testing.assert_array_equal(lax.sort(x), np.sort(x))
    keys, index = lax.sort((np.arange(5000)[::-1].copy(), np.arange(5000)))
    assert keys.dtype == index.dtype == np.int64
    np.testing.assert_array_equal(index, np.arange(5000)[::-1])


def test_sort_edges():
    assert lax.sort(np.zeros((0, 3), f32)).shape == (0, 3)
    assert lax.sort(np.zeros((3, 0), f32), 0).shape == (3, 0)
    assert isinstance(lax.sort([np.ones(2, f32)]), tuple)
    weak = jaxlite.ShapeDtypeStruct((3,), np.float32, weak_type=True)
    assert jaxlite.eval_shape(lax.sort, weak).weak_type
    text = " ".join(str(jaxlite.make_jaxpr(lambda x: lax.sort((x, x), 0, False, 2))(np.ones(3, f32))).split())
    assert "b:f32[3] c:f32[3] = sort[dimension=0 is_stable=False num_keys=2] a a" in text


# --- top_k -------------------------------------------------------------------------------------------


def largest(x, k, axis):
    """Stable indices of the k largest, by total order: NaN first, 0.0 before -0.0."""
    x = wide(x)
    if x.dtype == bool:
        x = x.astype(np.int8)
    keys = [-x.astype(np.float64)]
    if x.dtype.kind == "f":
        keys = [np.signbit(x), np.nan_to_num(-x, nan=-np.inf, neginf=-1e300, posinf=1e300)]
    order = np.lexsort([np.broadcast_to(np.arange(x.shape[axis]).reshape(
        [-1 if d == axis % x.ndim else 1 for d in range(x.ndim)]), x.shape), *keys], axis=axis)
    return np.take(order, range(k), axis)


@pytest.mark.parametrize("dtype", REALS, ids=str)
@pytest.mark.parametrize("shape, k, axis", [((9,), 4, -1), ((3, 6, 2), 2, 1), ((2, 5), 5, 1)])
def test_top_k(dtype, shape, k, axis, rng):
    x = draw(rng, shape, dtype)
    if x.dtype.kind not in "biu":
        x = np.where(np.isnan(wide(x)), np.nan, wide(x)).astype(dtype)  # negative NaN has a place of its own
    values, indices = lax.top_k(x, k, axis=axis)
    expected = largest(x, k, axis)
    assert values.dtype == dtype
    assert indices.dtype == np.int32
    np.testing.assert_array_equal(indices, expected)
    assert_same(values, np.take_along_axis(x, expected, axis))


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float4_e2m1fn"])
def test_top_k_of_four_bits(dtype):
    x = np.array([[1, 3, 2, 6], [4, 4, 0, 2]]).astype(dtype)
    values, indices = lax.top_k(x, 3)
    assert values.dtype == x.dtype
    np.testing.assert_array_equal(indices, [[3, 1, 2], [0, 1, 3]])
    np.testing.assert_array_equal(values.astype(f32), [[6, 3, 2], [4, 4, 2]])
    if dtype.startswith("float"):
        for function, places in (lax.approx_max_k, [3, 1]), (lax.approx_min_k, [0, 2]):
            values, indices = jaxlite.jit(lambda x, function=function: function(x, 2))(x[0])
            np.testing.assert_array_equal(indices, places)
            np.testing.assert_array_equal(values.astype(f32), x[0].astype(f32)[places])


def test_top_k_edges():
    values, indices = lax.top_k(np.ones((3, 4), f32), 0)
    assert values.shape == indices.shape == (3, 0)
    values, indices = lax.top_k(np.array([-0.0, 0.0, 0.0, -0.0, 1], f32), 5)
    np.testing.assert_array_equal(indices, [4, 1, 2, 0, 3])
    text = str(jaxlite.make_jaxpr(lambda x: lax.top_k(x, 2, axis=-2))(np.ones((3, 4), f32)))
    assert re.search(r"top_k\[axis=0 (is_stable=True )?k=2\]", text)


@pytest.mark.parametrize("function, approximate", [(lax.approx_max_k, False), (lax.approx_min_k, False),
                                                   (lax.approx_max_k, True), (lax.approx_min_k, True)])
def test_approximate_top_k(function, approximate, rng):
    x = rng.permutation(3000).astype(f32).reshape(1, 3000)
    values, indices = map(np.asarray, function(x, 5, aggregate_to_topk=not approximate))
    order = np.argsort(x[0] if function is lax.approx_min_k else -x[0])
    count = values.shape[1]
    assert count >= 5 if approximate else count == 5
    np.testing.assert_array_equal(indices[0], order[:count])
    np.testing.assert_array_equal(values[0], x[0, order[:count]])
    assert indices.dtype == np.int32


def test_approximate_top_k_along_another_dimension(rng):
    x = rng.permutation(12).astype(f32).reshape(4, 3)
    values, _ = lax.approx_max_k(x, 2, reduction_dimension=0)
    np.testing.assert_array_equal(values, -np.sort(-x, axis=0)[:2])


@pytest.mark.parametrize("call, error, text", [
    (lambda x: lax.sort(x, 2), ValueError, "axis 2 is out of bounds for array of dimension 2"),
    (lambda x: lax.sort(x, 1.5), TypeError, "integer"),
    (lambda x: lax.sort(()), TypeError, "at least one operand"),
    (lambda x: lax.sort((x, np.ones(3, f32)), 0), TypeError, "equal shapes"),
    (lambda x: lax.sort((x, x), num_keys=3), ValueError, "num_keys=3 must be between 1 and len"),
    (lambda x: lax.sort(x, num_keys=0), ValueError, "num_keys=0"),
    (lambda x: lax.sort(3.0), ValueError, "out of bounds"),
    (lambda x: lax.sort_key_val(x, np.ones(3, f32)), TypeError, "equal shapes"),
    (lambda x: lax.top_k(x, 4), ValueError, "no larger than size along axis"),
    (lambda x: lax.top_k(x, -1), ValueError, "nonnegative"),
    (lambda x: lax.top_k(x, 1, axis=2), ValueError, "axis 2 is out of bounds"),
    (lambda x: lax.top_k(lax.complex(x, x), 1), ValueError, "complex"),
    (lambda x: lax.approx_max_k(x, 0), ValueError, "k must be positive"),
    (lambda x: lax.approx_max_k(x, 4), ValueError, "k must be smaller than the size"),
    (lambda x: lax.approx_max_k(x, 1, 2), ValueError, "axis 2 is out of bounds"),
    (lambda x: lax.approx_max_k(x, 1, recall_target=1.5), ValueError, "recall_target"),
    (lambda x: lax.approx_min_k(lax.gt(x, 0.0), 1), ValueError, "floating"),
    (lambda x: lax.approx_min_k(x, 1, reduction_input_size_override=2), ValueError, "override"),
])
def test_wrong_arguments(call, error, text):
    with pytest.raises(error, match=text):
        jaxlite.make_jaxpr(call)(np.ones((2, 3), f32))
