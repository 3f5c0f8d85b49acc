"""Slices of lax at static and at computed positions, against NumPy's own slicing."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax

DTYPES = [np.dtype(each) for each in (
    "bool", "int8", "int32", "uint8", "uint32", "float16", ml_dtypes.bfloat16, "float32", "complex64",
    ml_dtypes.float8_e4m3fn)]


def numbers(*shape, dtype="float32"):
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


# --- static slices -----------------------------------------------------------------------------------

STATIC = [
    ((4, 5), (1, 2), (3, 5), None),
    ((4, 5), (0, 0), (4, 5), None),
    ((4, 5), (0, 1), (4, 5), (3, 2)),
    ((4, 5), (2, 2), (2, 5), None),
    ((0, 3), (0, 1), (0, 2), None),
    ((7,), (1,), (7,), (6,)),
    ((), (), (), None),
]


@pytest.mark.parametrize(("shape", "start", "limit", "strides"), STATIC)
def test_slice_matches_numpy(shape, start, limit, strides):
    x = numbers(*shape)
    index = tuple(slice(a, b, s) for a, b, s in zip(start, limit, strides or (1,) * len(start), strict=True))
    np.testing.assert_array_equal(lax.slice(x, start, limit, strides), x[index])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_slices_keep_every_dtype(dtype):
    x = (numbers(4, 3) % 2).astype(dtype)

    @jaxlite.jit
    def f(x, i):
        box = lax.dynamic_slice(x, (i, 0), (2, 2))
        return lax.slice(x, (1, 0), (4, 3), (2, 1)), box, lax.dynamic_update_slice(x, box, (0, i))

    static, box, updated = f(x, 1)
    expected = x.copy()
    expected[0:2, 1:3] = x[1:3, 0:2]
    for got, want in ((static, x[1::2]), (box, x[1:3, 0:2]), (updated, expected)):
        assert got.dtype == dtype
        np.testing.assert_array_equal(np.asarray(got), want)


@pytest.mark.parametrize(("args", "problem"), [
    (((0,), (1,)), "start_indices must have length equal"),
    (((0, 0), (1,)), "limit_indices must have the same length"),
    (((0, 0), (5, 5)), "limit_indices must be less than or equal to operand shape"),
    (((0, 3), (4, 2)), "limit_indices must be greater than or equal to start_indices"),
    (((-1, 0), (3, 3)), "start_indices must have every element be nonnegative"),
    (((0, 0), (3, 3), (0, 1)), "strides must have every element be positive"),
    (((0, 0), (3, 3), (1,)), "strides must have length equal"),
    (((0.0, 0), (3, 3)), "must have every element be an integer type"),
])
def test_slice_refuses(args, problem):
    with pytest.raises(TypeError, match=problem):
        lax.slice(numbers(4, 5), *args)


def test_slice_at_a_traced_position_points_to_the_tracer():
    with pytest.raises(jaxlite.errors.TracerIntegerConversionError):
        jaxlite.jit(lambda x, i: lax.slice(x, (i,), (3,)))(numbers(4), 1)


@pytest.mark.parametrize(("start", "limit", "stride"), [(1, 3, 1), (None, None, 2), (-3, -1, 1), (-3, None, 2)])
def test_slice_in_dim(start, limit, stride):
    x = numbers(2, 5)
    np.testing.assert_array_equal(lax.slice_in_dim(x, start, limit, stride, axis=-1), x[:, start:limit:stride])


@pytest.mark.parametrize("index", [0, 4, -1, -5])
def test_index_in_dim(index):
    x = numbers(2, 5)
    np.testing.assert_array_equal(lax.index_in_dim(x, index, 1), x[:, [index]])
    np.testing.assert_array_equal(lax.index_in_dim(x, index, 1, keepdims=False), x[:, index])


@pytest.mark.parametrize("index", [5, -6])
def test_index_in_dim_out_of_bounds(index):
    with pytest.raises(IndexError, match=f"index {index} is out of bounds for axis 1 with size 5"):
        lax.index_in_dim(numbers(2, 5), index, 1)


# --- computed positions ------------------------------------------------------------------------------


def clamped(start, size, part):
    """Where a box begins: negative positions count from the end, then it is moved inside."""
    return min(max(start + size if start < 0 else start, 0), size - part)


@pytest.mark.parametrize("jitted", [False, True])
def test_dynamic_slices_are_moved_inside(jitted):
    x, update = numbers(4, 5), -np.ones((2, 3), np.float32)
    take = lambda x, i, j: lax.dynamic_slice(x, (i, j), (2, 3))
    put = lambda x, u, i, j: lax.dynamic_update_slice(x, u, (i, j))
    if jitted:
        take, put = jaxlite.jit(take), jaxlite.jit(put)
    for i, j in ((0, 0), (1, 2), (3, 4), (100, -1), (-4, -100), (2**31 - 1, -2**31)):
        a, b = clamped(i, 4, 2), clamped(j, 5, 3)
        np.testing.assert_array_equal(take(x, i, j), x[a:a + 2, b:b + 3])
        expected = x.copy()
        expected[a:a + 2, b:b + 3] = update
        np.testing.assert_array_equal(put(x, update, i, j), expected)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32"])
@pytest.mark.parametrize("value", [0, 3, 100, -1])
def test_positions_of_any_integer_type(dtype, value):
    if value < 0 and dtype.startswith("u"):
        value = np.iinfo(dtype).max
    x = numbers(300)
    start = clamped(value, 300, 2)
    got = lax.dynamic_slice(x, (jnp.array(np.array(value, dtype)),), (2,))
    np.testing.assert_array_equal(got, x[start:start + 2])


def test_positions_known_early_cost_nothing():
    x = numbers(4, 5)
    jaxpr = jaxlite.make_jaxpr(lambda x: lax.dynamic_slice(x, (1, -2), (2, 3)))(x)
    assert str(jaxpr) == ("{ lambda ; a:f32[4,5]. let\n    b:f32[2,3] = dynamic_slice[slice_sizes=(2, 3)] a 1:i32[] "
                          "3:i32[]\n  in (b,) }")
    np.testing.assert_array_equal(lax.dynamic_slice(x, (2**40, -(2**40)), (2, 3)), x[2:, :3])


def test_positions_as_one_array():
    x = numbers(4, 5)
    for start in (np.array([1, -3]), jnp.array([1, -3])):
        np.testing.assert_array_equal(lax.dynamic_slice(x, start, (2, 3)), x[1:3, 2:5])


def test_negative_positions_may_be_refused():
    x = numbers(6)
    take = lambda i: lax.dynamic_slice(x, (i,), (2,), allow_negative_indices=False)
    np.testing.assert_array_equal(take(jnp.array(-1)), x[:2])
    with pytest.raises(ValueError, match="Index -1 is out of bounds for dimension 6"):
        take(-1)


def test_a_scalar_is_a_box_too():
    assert lax.dynamic_slice(np.float32(3), (), ()) == 3
    assert lax.dynamic_update_slice(np.float32(3), np.float32(4), ()) == 4


@pytest.mark.parametrize(("call", "error", "problem"), [
    (lambda x: lax.dynamic_slice(x, (0,), (2, 2)), ValueError, "Length of slice indices must match"),
    (lambda x: lax.dynamic_slice(x, (0, 0), (2,)), TypeError, "slice_sizes must have length equal"),
    (lambda x: lax.dynamic_slice(x, (0, 0), (2, 9)), TypeError, "slice_sizes must be less than or equal"),
    (lambda x: lax.dynamic_slice(x, (0, 0), (2, -1)), TypeError, "slice_sizes must be greater than or equal to zero"),
    (lambda x: lax.dynamic_slice(x, (0, 1.0), (2, 2)), TypeError, "must be integers of the same type"),
    (lambda x: lax.dynamic_slice(x, (True, False), (2, 2)), TypeError, "must be integers of the same type"),
    (lambda x: lax.dynamic_slice(x, (np.int8(0), np.int32(0)), (2, 2)), TypeError, "integers of the same type"),
    (lambda x: lax.dynamic_slice(x, (np.arange(1), np.arange(1)), (2, 2)), TypeError, "must be scalars"),
    (lambda x: lax.dynamic_slice(x, np.int32(0), (2, 2)), TypeError, "1-dimensional array"),
    (lambda x: lax.dynamic_slice(x, (0, 0), (2, 2), allow_negative_indices=(True,)), ValueError, "has 1 entries"),
    (lambda x: lax.dynamic_update_slice(x, x[0], (0, 0)), TypeError, "must have the same rank"),
    (lambda x: lax.dynamic_update_slice(x, np.zeros((2, 9), "f4"), (0, 0)), TypeError, "must be smaller than operand"),
    (lambda x: lax.dynamic_update_slice(x, np.zeros((2, 2), "i4"), (0, 0)), TypeError, "the same dtypes"),
    (lambda x: lax.dynamic_update_index_in_dim(x, np.float32(1), 0, 0), TypeError, "rank 2 or one less"),
    (lambda x: lax.dynamic_slice_in_dim(x, 0, 2, 3), ValueError, "axis 3 is out of bounds"),
])
def test_dynamic_slices_refuse(call, error, problem):
    with pytest.raises(error, match=problem):
        call(numbers(4, 5))


def test_along_one_axis():
    x = numbers(4, 5)

    @jaxlite.jit
    def f(x, i):
        return (lax.dynamic_slice_in_dim(x, i, 2, axis=1), lax.dynamic_index_in_dim(x, i, -1),
                lax.dynamic_index_in_dim(x, i, 0, keepdims=False),
                lax.dynamic_update_slice_in_dim(x, -x[:, :2], i, axis=1),
                lax.dynamic_update_index_in_dim(x, -x[0], i, axis=0),
                lax.dynamic_update_index_in_dim(x, -x[:1], i, axis=0))

    part, kept, row, columns, replaced, replaced_again = f(x, 2)
    np.testing.assert_array_equal(part, x[:, 2:4])
    np.testing.assert_array_equal(kept, x[:, 2:3])
    np.testing.assert_array_equal(row, x[2])
    expected = x.copy()
    expected[:, 2:4] = -x[:, :2]
    np.testing.assert_array_equal(columns, expected)
    expected = x.copy()
    expected[2] = -x[0]
    np.testing.assert_array_equal(replaced, expected)
    np.testing.assert_array_equal(replaced_again, expected)


def test_index_take_counts_modulo():
    x = numbers(3, 4, 2)
    i, j = np.array([0, 5, -1]), np.array([1, 2, -3])
    np.testing.assert_array_equal(lax.index_take(x, (i, j), (0, 1)), x[i % 3, j % 4])
    np.testing.assert_array_equal(lax.index_take(x, (j,), (1,)), np.moveaxis(x[:, j % 4], 1, 0))


def test_weak_types():
    weak = lax.full((3,), 1.0)
    assert lax.slice(weak, (0,), (2,)).weak_type
    assert lax.dynamic_slice(weak, (np.int32(0),), (2,)).weak_type
    assert not lax.dynamic_update_slice(weak, weak, (0,)).weak_type


def test_one_program_for_all_positions(count_traces):
    f = count_traces(lambda x, i: lax.dynamic_slice(x, (i,), (2,)))
    g = jaxlite.jit(f)
    for i in range(5):
        g(numbers(6), i)
    assert f.count == 1


def test_jaxpr_of_a_computed_position():
    jaxpr = jaxlite.make_jaxpr(lambda x, i: lax.dynamic_slice_in_dim(x, i, 2, axis=1))(numbers(4, 5), np.int32(0))
    assert str(jaxpr) == """\
{ lambda ; a:f32[4,5] b:i32[]. let
    c:bool[] = lt b 0:i32[]
    d:i32[] = add b 5:i32[]
    e:i32[] = select_n c b d
    f:f32[4,2] = dynamic_slice[slice_sizes=(4, 2)] a 0:i32[] e
  in (f,) }"""


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
def test_along_one_axis_an_index_has_any_dtype(dtype):
    x = np.arange(6.0).reshape(2, 3)
    with jaxlite.enable_x64(dtype == "int64"):
        index = jnp.asarray(1, dtype)
        np.testing.assert_array_equal(lax.dynamic_slice_in_dim(x, index, 2, axis=1), x[:, 1:])
        np.testing.assert_array_equal(lax.dynamic_index_in_dim(x, index, 1), x[:, 1:2])
        expected = np.array([[0, -1, 2], [3, -1, 5]])
        for write in (lax.dynamic_update_slice_in_dim, lax.dynamic_update_index_in_dim):
            np.testing.assert_array_equal(write(x, np.full((2, 1), -1.0), index, 1), expected)
    with jaxlite.enable_x64(True):
        np.testing.assert_array_equal(lax.dynamic_slice_in_dim(x, np.int32(1), 1, axis=1), x[:, 1:2])


def test_batches_of_updates_have_the_weak_type_of_the_operand():
    weak, strong = jnp.full((2, 3), 0.5), jnp.ones((2, 2))
    write = jaxlite.vmap(lambda x, y: lax.dynamic_update_slice(x, y, (1,)))
    assert write(weak, strong).weak_type and not write(jnp.ones((2, 3)), jnp.full((2, 2), 0.5)).weak_type
    np.testing.assert_array_equal(write(weak, strong), [[0.5, 1, 1]] * 2)
