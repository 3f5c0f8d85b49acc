"""gather and the scatter family of lax, against loops over the positions in plain NumPy."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.lax import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers

CLIP, FILL, PROMISE = GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP, GatherScatterMode.PROMISE_IN_BOUNDS

# --- the oracle --------------------------------------------------------------------------------------


def boxes(operand_shape, indices, sizes, collapsed, index_map, operand_batching, indices_batching, mode):
    """(position, where the box begins or None) for every position of the index array."""
    for position in itertools.product(*map(range, indices.shape[:-1])):
        start = [0] * len(operand_shape)
        for component, axis in enumerate(index_map):
            start[axis] = int(indices[position][component])
        for axis, index_axis in zip(operand_batching, indices_batching, strict=True):
            start[axis] = position[index_axis]
        limits = [size - part for size, part in zip(operand_shape, sizes, strict=True)]
        if mode is FILL and any(not 0 <= s <= limit for s, limit in zip(start, limits, strict=True)):
            yield position, None
        else:
            yield position, [min(max(s, 0), limit) for s, limit in zip(start, limits, strict=True)]


def elements(start, sizes, kept):
    """(steps along the axes that are kept, position in the operand) for every element of a box, if there is one."""
    for inner in itertools.product(*[range(sizes[axis]) for axis in kept]) if start is not None else ():
        steps = dict(zip(kept, inner, strict=True))
        yield inner, tuple(first + steps.get(axis, 0) for axis, first in enumerate(start))


def place(position, inner, offset_dims, rank):
    """Where an element of a box stands in the output of a gather, or in the updates of a scatter."""
    where, positions, inners = [], iter(position), iter(inner)
    for axis in range(rank):
        where.append(next(inners) if axis in offset_dims else next(positions))
    return tuple(where)


def gather_oracle(operand, indices, numbers, sizes, mode, fill):
    offset, collapsed, index_map, batching, indices_batching = numbers
    dropped = {*collapsed, *batching}
    kept = [axis for axis in range(operand.ndim) if axis not in dropped]
    rank = indices.ndim - 1 + len(kept)
    shape = [0] * rank
    for axes, extents in ((offset, [sizes[axis] for axis in kept]),
                          ([axis for axis in range(rank) if axis not in offset], indices.shape[:-1])):
        for axis, extent in zip(axes, extents, strict=True):
            shape[axis] = extent
    out = np.full(shape, fill, operand.dtype)
    for position, start in boxes(operand.shape, indices, sizes, collapsed, index_map, batching, indices_batching, mode):
        for inner, source in elements(start, sizes, kept):
            out[place(position, inner, offset, rank)] = operand[source]
    return out


def scatter_oracle(operand, indices, updates, numbers, mode, combine):
    window, inserted, index_map, batching, indices_batching = numbers
    dropped = {*inserted, *batching}
    kept = [axis for axis in range(operand.ndim) if axis not in dropped]
    sizes = [1] * operand.ndim
    for axis, update_axis in zip(kept, window, strict=True):
        sizes[axis] = updates.shape[update_axis]
    out = operand.copy()
    for position, start in boxes(operand.shape, indices, sizes, inserted, index_map, batching, indices_batching, mode):
        for inner, target in elements(start, sizes, kept):
            out[target] = combine(out[target], updates[place(position, inner, window, updates.ndim)])
    return out


# --- gather ------------------------------------------------------------------------------------------

# operand shape, indices, dimension numbers, slice sizes
GATHERS = {
    "rows": ((4, 3), [[2], [0], [-1], [4], [3]], GatherDimensionNumbers((1,), (0,), (0,)), (1, 3)),
    "columns": ((4, 3), [[2], [0], [5]], GatherDimensionNumbers((0,), (1,), (1,)), (4, 1)),
    "elements": ((4, 3), [[0, 1], [3, 2], [3, 3], [-1, 0]], GatherDimensionNumbers((), (0, 1), (0, 1)), (1, 1)),
    "windows": ((5, 4), [[[0, 0], [3, 2]], [[4, 0], [1, 3]]], GatherDimensionNumbers((1, 3), (), (0, 1)), (2, 2)),
    "swapped components": ((5, 4), [[1, 3], [0, 4]], GatherDimensionNumbers((1,), (1,), (1, 0)), (2, 1)),
    "batches": ((3, 4, 2), [[[1], [3]], [[0], [9]], [[2], [2]]],
                GatherDimensionNumbers((2,), (1,), (1,), (0,), (0,)), (1, 1, 2)),
    "one position": ((4, 3), [1], GatherDimensionNumbers((0,), (0,), (0,)), (1, 3)),
    "no position": ((4, 3), np.zeros((0, 1)), GatherDimensionNumbers((1,), (0,), (0,)), (1, 3)),
    "no component": ((2, 3), np.zeros((2, 0)), GatherDimensionNumbers((1, 2), (), ()), (2, 3)),
    "empty box": ((4, 3), [[1], [5]], GatherDimensionNumbers((1, 2), (), (0,)), (0, 3)),
}


@pytest.mark.parametrize("mode", [CLIP, FILL], ids=lambda mode: mode.name)
@pytest.mark.parametrize("case", GATHERS)
def test_gather(case, mode):
    shape, indices, numbers, sizes = GATHERS[case]
    x = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    indices = np.asarray(indices, np.int32)
    got = lax.gather(x, indices, numbers, sizes, mode=mode)
    np.testing.assert_array_equal(got, gather_oracle(x, indices, numbers, sizes, mode, np.nan))


ROWS = GatherDimensionNumbers((), (0,), (0,))
FILL_VALUES = [("float32", np.nan), ("bool", True), ("int8", -128), ("int32", -(2**31)), ("uint8", 255),
               ("uint32", 2**32 - 1), ("float16", np.nan), (ml_dtypes.bfloat16, np.nan), ("complex64", np.nan)]


@pytest.mark.parametrize(("dtype", "fill"), FILL_VALUES, ids=str)
def test_what_is_read_out_of_bounds(dtype, fill):
    x = np.array([1, 0, 1]).astype(dtype)
    got = lax.gather(x, np.array([[2], [3], [-1]]), ROWS, (1,), mode="fill")
    assert got.dtype == x.dtype
    wide = np.float32 if x.dtype == ml_dtypes.bfloat16 else x.dtype  # NumPy finds no two NaNs of that equal
    np.testing.assert_array_equal(np.asarray(got).astype(wide), np.array([1, fill, fill]).astype(dtype).astype(wide))


@pytest.mark.parametrize("fill", [7, np.float32(7), np.array(7), jnp.array(7.0), np.nan], ids=repr)
def test_fill_value(fill):
    got = lax.gather(np.ones(3, np.float32), np.array([[2], [3]]), ROWS, (1,), mode="fill", fill_value=fill)
    np.testing.assert_array_equal(got, [1, np.asarray(fill)])


def test_fill_value_must_be_a_concrete_scalar():
    with pytest.raises(ValueError, match="must be a scalar"):
        lax.gather(np.ones(3), np.array([[2]]), ROWS, (1,), mode="fill", fill_value=np.ones(2))
    with pytest.raises(TypeError, match="concrete scalar"):
        jaxlite.jit(lambda v: lax.gather(np.ones(3), np.array([[2]]), ROWS, (1,), mode="fill", fill_value=v))(1.0)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32"])
@pytest.mark.parametrize("mode", [CLIP, FILL], ids=lambda mode: mode.name)
def test_indices_narrower_than_the_operand(dtype, mode):
    limits = np.iinfo(dtype)
    x = np.arange(300, dtype=np.float32)
    indices = np.array([[5], [limits.max], [limits.min]], dtype)
    got = lax.gather(x, indices, ROWS, (1,), mode=mode)
    np.testing.assert_array_equal(got, gather_oracle(x, indices, ROWS, (1,), mode, np.nan))
    updates = np.array([-1, -2, -3], np.float32)
    got = lax.scatter_add(x, indices, updates, ScatterDimensionNumbers((), (0,), (0,)), mode=mode)
    numbers = ScatterDimensionNumbers((), (0,), (0,))
    np.testing.assert_array_equal(got, scatter_oracle(x, indices, updates, numbers, mode, np.add))


def test_modes_by_name():
    one_hot = GatherScatterMode.ONE_HOT
    names = {"clip": CLIP, "fill": FILL, "drop": FILL, "promise_in_bounds": PROMISE, "one_hot": one_hot, None: FILL, CLIP: CLIP}
    assert {name: GatherScatterMode.from_any(name) for name in names} == names
    assert str(CLIP) == "GatherScatterMode.CLIP"
    x = jnp.arange(1.0, 5)
    assert x.at[np.array([1, 4, -1])].get(mode=one_hot).tolist() == [2, 0, 4] and x.at[4].get(mode="one_hot") == 0
    assert x.at[np.array([1, 4])].add(1, mode=one_hot).tolist() == [1, 3, 3, 4]
    assert jnp.take_along_axis(x, np.array([1, 4]), 0, mode=one_hot).tolist() == [2, 0]
    with pytest.raises(ValueError, match='Unknown gather mode "nearest"; the modes are'):
        GatherScatterMode.from_any("nearest")


X, I = np.zeros((4, 5), np.float32), np.array([[1], [2]], np.int32)


@pytest.mark.parametrize(("indices", "numbers", "sizes", "error", "problem"), [
    (I.astype("f4"), ((1,), (0,), (0,)), (1, 5), ValueError, "indices must have an integer type"),
    (I, ((1,), (0,), (0,)), (1,), TypeError, "one slice size for every input dimension"),
    (I, ((1,), (0,), (0,)), (1, 6), TypeError, "out of range, must be within"),
    (I, ((1,), (0,), (0,)), (2, 5), TypeError, "can only collapse slice dims with bound 1"),
    (I, ((1, 1), (), (0,)), (1, 5), TypeError, "offset_dims in gather op must not repeat"),
    (I, ((1,), (0,), (0, 1)), (1, 5), TypeError, "has 2 elements in start_index_map"),
    (I, ((1,), (0,), (2,)), (1, 5), TypeError, "Invalid start_index_map"),
    (I, ((1,), (2,), (0,)), (1, 5), TypeError, "Invalid collapsed_slice_dims"),
    (I, ((5,), (0,), (0,)), (1, 5), TypeError, "Invalid offset_dims"),
    (I, ((1, 0), (), (0,)), (1, 5), TypeError, "must be sorted"),
    (I, ((), (0,), (0,)), (1, 5), TypeError, "must either be a offset dimension or"),
    (I, ((1,), (0,), (0,), (0,), (0,)), (1, 5), TypeError, "must be disjoint"),
    (I, ((1,), (), (0,), (1,), (0,)), (1, 1), TypeError, "of equal sizes"),
    (np.int32(1), ((1,), (0,), (0,)), (1, 5), TypeError, "got a scalar"),
])
def test_gather_refuses(indices, numbers, sizes, error, problem):
    with pytest.raises(error, match=problem):
        lax.gather(X, indices, GatherDimensionNumbers(*numbers), sizes)


# --- scatter -----------------------------------------------------------------------------------------

# operand shape, indices, shape of the updates, dimension numbers
SCATTERS = {
    "rows": ((4, 3), [[2], [0], [2], [-1], [4]], (5, 3), ScatterDimensionNumbers((1,), (0,), (0,))),
    "columns": ((4, 3), [[2], [0], [5]], (4, 3), ScatterDimensionNumbers((0,), (1,), (1,))),
    "elements": ((4, 3), [[0, 1], [3, 2], [3, 3], [-1, 0], [0, 1]], (5,), ScatterDimensionNumbers((), (0, 1), (0, 1))),
    "windows": ((5, 4), [[0, 0], [3, 2], [4, 0]], (3, 2, 3), ScatterDimensionNumbers((1, 2), (), (0, 1))),
    "swapped components": ((5, 4), [[1, 3], [0, 4]], (2, 2), ScatterDimensionNumbers((1,), (1,), (1, 0))),
    "batches": ((3, 4, 2), [[[1], [3]], [[0], [9]], [[2], [2]]], (3, 2, 2),
                ScatterDimensionNumbers((2,), (1,), (1,), (0,), (0,))),
    "one row": ((4, 3), [2], (3,), ScatterDimensionNumbers((0,), (0,), (0,))),
    "one window inside": ((4, 5), [[1, 2]], (1, 2, 3), ScatterDimensionNumbers((1, 2), (), (0, 1))),
    "one window outside": ((4, 5), [[1, 3]], (1, 2, 3), ScatterDimensionNumbers((1, 2), (), (0, 1))),
    "one negative element": ((4, 5), [-1, 3], (), ScatterDimensionNumbers((), (0, 1), (0, 1))),
    "no position": ((4, 3), np.zeros((0, 1)), (0, 3), ScatterDimensionNumbers((1,), (0,), (0,))),
    "no component": ((2, 3), np.zeros(0), (2, 3), ScatterDimensionNumbers((0, 1), (), ())),
}
OPS = {
    "set": (lax.scatter, lambda x, u: u), "add": (lax.scatter_add, np.add), "sub": (lax.scatter_sub, np.subtract),
    "mul": (lax.scatter_mul, np.multiply), "min": (lax.scatter_min, np.minimum), "max": (lax.scatter_max, np.maximum),
}


@pytest.mark.parametrize("mode", [CLIP, FILL], ids=lambda mode: mode.name)
@pytest.mark.parametrize("case", SCATTERS)
def test_scatter(case, mode):
    shape, indices, updates_shape, numbers = SCATTERS[case]
    x = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    indices = np.asarray(indices, np.int32)
    updates = -2 - np.arange(np.prod(updates_shape, dtype=int), dtype=np.float32).reshape(updates_shape)
    if case in ("rows", "elements"):
        updates[...] = -3  # with positions twice, `set` may take either
    names = [name for name in OPS if name != "set" or not (mode is CLIP and case == "batches")]
    results = jaxlite.jit(lambda x, i, u: [OPS[name][0](x, i, u, numbers, mode=mode) for name in names])(
        x, indices, updates)
    for name, got in zip(names, results, strict=True):
        expected = scatter_oracle(x, indices, updates, numbers, mode, OPS[name][1])
        np.testing.assert_allclose(got, expected, rtol=1e-6, err_msg=name)


POINTS = ScatterDimensionNumbers((), (0,), (0,))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "float16", ml_dtypes.bfloat16, "complex64"],
                         ids=str)
@pytest.mark.parametrize("positions", [[[1]], [[2], [0], [2]]], ids=["one", "many"])
def test_scatter_of_every_dtype(dtype, positions):
    dtype = np.dtype(dtype)
    x, indices = np.array([3, 1, 2, 0]).astype(dtype), np.array(positions)
    updates = np.full(len(positions), 2).astype(dtype)
    names = ["set", "min", "max"] if dtype.kind == "b" else list(OPS)
    results = jaxlite.jit(lambda x, i, u: [OPS[name][0](x, i, u, POINTS) for name in names])(x, indices, updates)
    for name, got in zip(names, results, strict=True):
        assert got.dtype == dtype
        np.testing.assert_array_equal(np.asarray(got), scatter_oracle(x, indices, updates, POINTS, FILL, OPS[name][1]),
                                      err_msg=name)


def test_scatter_apply_counts_each_occurrence():
    x = np.array([1.0, 2.0, 3.0], np.float32)
    got = lax.scatter_apply(x, np.array([[0], [2], [0], [5]]), lambda v: 10 * v, POINTS, update_shape=(4,))
    np.testing.assert_array_equal(got, [100, 2, 30])


def test_scatter_apply_closes_over_scalars_only():
    x, factor = np.ones(3, np.float32), jnp.array(4.0)
    apply = lambda factor: lax.scatter_apply(x, np.array([[1]]), lambda v: v * factor, POINTS, update_shape=(1,))
    np.testing.assert_array_equal(apply(factor), [1, 4, 1])
    with pytest.raises(TypeError, match="close over concrete scalars only"):
        jaxlite.jit(apply)(4.0)


U = np.zeros((2, 5), np.float32)


@pytest.mark.parametrize(("indices", "updates", "numbers", "error", "problem"), [
    (I, U.astype("i4"), ((1,), (0,), (0,)), TypeError, "requires arguments to have the same dtypes"),
    (I.astype("f4"), U, ((1,), (0,), (0,)), ValueError, "indices must have an integer type"),
    (I, U[:1], ((1,), (0,), (0,)), TypeError, "Bounds of the scatter dimensions of updates must be the same"),
    (I, np.zeros((2, 6), "f4"), ((1,), (0,), (0,)), TypeError, "must not exceed the bounds"),
    (I, U[0], ((1,), (0,), (0,)), TypeError, "Updates tensor must be of rank 2; got 1"),
    (I, U, ((1,), (), (0,)), TypeError, "Scatter op has window of size 1"),
    (I, U, ((1,), (0,), ()), TypeError, "has 0 elements in scatter_dims_to_operand_dims"),
    (I, U, ((1,), (0,), (5,)), TypeError, "Invalid scatter_dims_to_operand_dims"),
    (I, U, ((1,), (3,), (0,)), TypeError, "Invalid inserted_window_dims"),
])
def test_scatter_refuses(indices, updates, numbers, error, problem):
    with pytest.raises(error, match=problem):
        lax.scatter_add(X, indices, updates, ScatterDimensionNumbers(*numbers))


def test_bools_have_no_sum():
    with pytest.raises(TypeError, match="add does not accept dtype bool"):
        lax.scatter_add(X > 0, I, U > 0, ScatterDimensionNumbers((1,), (0,), (0,)))


def test_weak_types():
    weak = lax.full((3,), 1.0)
    assert lax.gather(weak, np.array([[2]]), ROWS, (1,)).weak_type
    assert lax.scatter(weak, np.array([[2]]), np.ones(1, np.float32), POINTS).weak_type
    assert not lax.scatter(np.ones(3, np.float32), np.array([[2]]), lax.full((1,), 1.0), POINTS).weak_type


def test_jaxprs_show_everything():
    jaxpr = jaxlite.make_jaxpr(lambda x, i, u: lax.scatter_add(lax.gather(x, i, ROWS, (1,)), i, u, POINTS))(
        np.ones(2, np.float32), I, np.ones(2, np.float32))
    assert str(jaxpr) == """\
{ lambda ; a:f32[2] b:i32[2,1] c:f32[2]. let
    d:f32[2] = gather[
      dimension_numbers=GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,), \
operand_batching_dims=(), start_indices_batching_dims=())
      fill_value=None
      indices_are_sorted=False
      mode=GatherScatterMode.PROMISE_IN_BOUNDS
      slice_sizes=(1,)
      unique_indices=False
    ] a b
    e:f32[2] = scatter-add[
      dimension_numbers=ScatterDimensionNumbers(update_window_dims=(), inserted_window_dims=(0,), \
scatter_dims_to_operand_dims=(0,), operand_batching_dims=(), scatter_indices_batching_dims=())
      indices_are_sorted=False
      mode=GatherScatterMode.FILL_OR_DROP
      unique_indices=False
      update_consts=()
      update_jaxpr={ lambda ; f:f32[] g:f32[]. let h:f32[] = add f g in (h,) }
    ] d b c
  in (e,) }"""


def test_one_scatter_tells_both_cotangents_of_an_update(rng):
    x, y, weights = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 3), (4, 3), (6, 3)))
    at = np.array([0, 2, 2, 9])  # one that is overwritten, and one outside
    for count, which in ((2, (0, 1)), (2, 1), (2, 0)):  # one more is the update itself, if it is used
        slope = jaxlite.grad(lambda x, y: (jnp.asarray(x).at[at].set(y) ** 2 * weights).sum(), which)
        assert str(jaxlite.make_jaxpr(slope)(x, y)).count(" = scatter[") == count
    slope_x, slope_y = jaxlite.grad(lambda x, y: (jnp.asarray(x).at[at].set(y) * weights).sum(), (0, 1))(x, y)
    np.testing.assert_array_equal(slope_x, np.where(np.isin(np.arange(6), at)[:, None], 0, weights))
    np.testing.assert_array_equal(slope_y.sum(0), weights[0] + weights[2])
    assert not slope_y[3].any() and not (slope_y[1] * slope_y[2]).any()


def test_at_no_position_a_box_of_any_size_is_cut():
    numbers, none = GatherDimensionNumbers((), (0,), (0,)), jnp.ones((0, 1), int)
    for mode in ("clip", "fill", "promise_in_bounds"):
        cut = lambda x, mode=mode: lax.gather(x, none, numbers, (1,), mode=mode)
        assert cut(jnp.ones(0)).shape == (0,) and jaxlite.jit(cut)(jnp.ones(0)).shape == (0,)
        assert jaxlite.vjp(cut, jnp.ones(0))[1](jnp.ones(0))[0].shape == (0,)
    assert lax.gather(jnp.ones((5, 3)), none, GatherDimensionNumbers((1,), (0,), (0,)), (1, 4)).shape == (0, 4)
    for indices, size in ((jnp.ones((1, 1), int), 1), (none, -1)):
        with pytest.raises(TypeError, match="out of range"):
            lax.gather(jnp.ones(0), indices, numbers, (size,))
