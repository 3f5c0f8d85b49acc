"""x[index], take, take_along_axis, put: NumPy's indexing on arrays and tracers, against NumPy."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite.errors import NonConcreteBooleanIndexError, TracerIntegerConversionError

INT_MIN = -(2**31)


def numbers(*shape, dtype="float32"):
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


class _Indexer:
    def __getitem__(self, index):
        return index


s_ = _Indexer()
I, J = np.array([1, 0, -1]), np.array([[0], [2], [1]])
MASK = np.array([True, False, True])

# --- against NumPy -----------------------------------------------------------------------------------

BASIC = [  # on shape (3, 4, 5)
    s_[0], s_[-1], s_[1, 2, 3], s_[1, -2], s_[()], s_[...], s_[:], s_[None], s_[..., None], s_[None, ..., None],
    s_[1:], s_[:-1], s_[1:3, :2], s_[:, 1:2], s_[::2], s_[::-1], s_[::-2], s_[2:0:-1], s_[5:1], s_[1:1],
    s_[:, ::3, ::-1], s_[..., 0], s_[0, ..., 0], s_[:, None, 1], s_[1:2, ..., None, 2], s_[..., 1, None, 1:4:2],
    s_[-100:100], s_[0, 1:, ::2], s_[np.int64(1)], s_[np.uint8(2), np.int32(-1)], s_[np.array(1)],
    s_[np.int8(0):np.int16(2)], s_[:, :, :], s_[0, 0, 0, ...],
]
ADVANCED = [  # on shape (3, 4, 5)
    s_[I], s_[:, I], s_[..., I], s_[I, I], s_[I, I, I], s_[I, J], s_[I, 0], s_[0, I], s_[0, :, I], s_[:, 0, I],
    s_[I, :, I],
    s_[I, 1:3], s_[1:, I], s_[I, ::2], s_[I, ::-1], s_[::2, I], s_[::-1, I, 1:3], s_[I, None], s_[None, I],
    s_[I, None, I],
    s_[:, I, None, I], s_[I, ..., I], s_[I, ..., None, 0], s_[I.astype("int8")], s_[np.abs(I).astype("uint16"), I],
    s_[np.zeros(0, int)], s_[np.zeros((2, 0), int), 1], s_[[0, 1], 0], s_[[], 0], s_[(0, 2), ...], s_[J, :, [1]],
    s_[I, ::2, J], s_[::2, ::2, I], s_[I[:1], 1:1],
    s_[MASK], s_[:, np.array([True, False, True, True])], s_[MASK, I[:2]], s_[numbers(3, 4) % 3 == 0],
    s_[numbers(3, 4, 5) > 7], s_[MASK, 1], s_[0, numbers(4, 5) % 2 == 0], s_[np.zeros(3, bool)], s_[MASK, ..., 0],
    s_[True], s_[False], s_[None, True], s_[True, 0], s_[..., True], s_[np.bool_(True), 1], s_[True, I], s_[:, True],
    s_[np.array(True)],
]


def shown(index):
    return str(index).replace("\n", "").replace("Ellipsis", "...")[:50]


@pytest.mark.parametrize("index", BASIC + ADVANCED, ids=shown)
def test_eager_index_matches_numpy(index):
    x = numbers(3, 4, 5)
    np.testing.assert_array_equal(jnp.array(x)[index], x[index])


@pytest.mark.parametrize("indices", [BASIC, ADVANCED], ids=["basic", "advanced"])
def test_staged_index_matches_numpy(indices):
    x = numbers(3, 4, 5)
    for index, got in zip(indices, jaxlite.jit(lambda x: [x[each] for each in indices])(x), strict=True):
        np.testing.assert_array_equal(got, x[index], err_msg=shown(index))


def test_traced_index_arrays_match_numpy():
    x = numbers(3, 4, 5)

    @jaxlite.jit
    def f(x, i, j, k):
        return [x[i], x[:, i], x[i, j], x[k], x[k, k], x[k, 1:], x[..., k], x[k, ::2, ::-1], x[i, k], x[k, :, i],
                x[k, i, None], x[None, k, j], x[i, ::2, k]]

    def oracle(x, i, j, k):
        return f.__wrapped__(x, i, j, k)

    for i, j, k in ((I, J, 1), (I, J, -1), (I.astype("int8"), np.abs(J).astype("uint8"), np.uint8(2))):
        for got, want in zip(f(x, i, j, k), oracle(x, i, j, k), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "float16", ml_dtypes.bfloat16, "complex64",
                                   ml_dtypes.float8_e5m2], ids=str)
def test_every_dtype(dtype):
    x = (numbers(3, 4) % 2).astype(dtype)
    a = jnp.array(x)
    for index in (s_[1], s_[::-1, 1:], s_[I], s_[MASK]):
        assert a[index].dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(a[index]), x[index])


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (1,), ()])
def test_empty_and_tiny_shapes(shape):
    x = np.zeros(shape, np.float32)
    a = jnp.array(x)
    for index in (s_[...], s_[None], s_[:1], s_[::-1], s_[::-2], s_[np.zeros(0, int)], np.ones(shape, bool),
                  s_[..., None]):
        try:
            want = x[index]
        except IndexError:
            with pytest.raises(IndexError):
                a[index]
        else:
            np.testing.assert_array_equal(a[index], want)


def test_arrays_as_indices():
    x = numbers(4, 3)
    a = jnp.array(x)
    np.testing.assert_array_equal(a[jnp.array(2)], x[2])
    np.testing.assert_array_equal(a[jnp.array(1):jnp.array(3)], x[1:3])
    np.testing.assert_array_equal(a[jnp.array([1, -1]), jnp.array([[0], [2]])], x[[1, -1], [[0], [2]]])
    np.testing.assert_array_equal(a[jnp.array(x > 4)], x[x > 4])
    np.testing.assert_array_equal(a[[jnp.array(0), 1], 0], x[[0, 1], 0])
    np.testing.assert_array_equal(numbers(5)[jnp.array(2)], 2)


# --- out of bounds -----------------------------------------------------------------------------------


def test_out_of_bounds_reads_the_nearest():
    v = jnp.arange(6)
    assert [int(v[k]) for k in (5, 6, 100, 5000, 2**31 - 1, -6, -7, -5000, -(2**31))] == \
        [5, 5, 5, 5, 5, 0, 0, 0, 0]
    positions = [6, 100, 2**31 - 1, -7, INT_MIN]
    np.testing.assert_array_equal(v[jnp.array(positions)], [5, 5, 5, 0, 0])
    np.testing.assert_array_equal(jaxlite.jit(lambda v: [v[k] for k in positions])(v), [5, 5, 5, 0, 0])
    np.testing.assert_array_equal(jaxlite.jit(lambda v, k: v[k])(v, -100), 0)


def test_an_int_that_no_index_holds_is_an_error():
    v = jnp.arange(6).reshape(2, 3)
    for k in (2**31, 2**40, -(2**31) - 1, 2**70):
        for index in (k, (0, k), (k, slice(1)), (jnp.array([0]), k), (None, k)):
            with pytest.raises(OverflowError, match=f"Python int {k} too large to convert to int32"):
                v[index]
            with pytest.raises(OverflowError, match="too large"):
                jaxlite.jit(lambda v, index=index: v[index])(v)
    assert v.at[2**40].get(mode="clip").tolist() == [3, 4, 5] and v[0, 2**40:].tolist() == []
    assert v.at[2**40].set(9).tolist() == v.tolist()
    with jaxlite.enable_x64(True):
        assert v[2**40, 0] == 3
        with pytest.raises(OverflowError, match="too large to convert to int64"):
            v[2**63]


@pytest.mark.parametrize("values", [np.array([127, -1, -128, 5], np.int8), np.array([255, 254], np.uint8),
                                    np.array([2**32 - 1, 3], np.uint32), np.array([2**15 - 1, -300], np.int16)],
                         ids=lambda values: str(values.dtype))
def test_index_types_narrower_or_wider_than_the_axis(values):
    x = numbers(300)
    wide = values.astype(np.int64)
    want = x[np.clip(np.where(wide < 0, wide + 300, wide), 0, 299)]
    np.testing.assert_array_equal(jnp.array(x)[values], want)
    np.testing.assert_array_equal(jnp.array(x)[jnp.array(values)], want)
    np.testing.assert_array_equal(jaxlite.jit(lambda x: x[values])(x), want)
    for value, each in zip(values, want, strict=True):
        assert jaxlite.jit(lambda x, k: x[k])(x, value) == each


def test_indices_of_64_bits(x64):
    x = numbers(5)
    np.testing.assert_array_equal(jnp.array(x)[jnp.array([2**32, -1, 1])], [4, 4, 1])
    np.testing.assert_array_equal(jnp.array(x).at[jnp.array([2**32, -1])].set(9), [0, 1, 2, 3, 9])
    far = jnp.array([[2**32, -2**32, 3]])
    np.testing.assert_array_equal(jnp.take_along_axis(jnp.array(x, float)[None], far, 1), [[np.nan, np.nan, 3]])
    np.testing.assert_array_equal(jnp.array(x).at[far].get(mode="clip"), [[4, 0, 3]])
    assert ":i32[3,1] = " in str(jaxlite.make_jaxpr(lambda x, i: x[i])(x, far[0]))  # half as much to read
    # tools that follow positions through a jaxpr (tatva's sparsity patterns) know what JAX writes for an index, and bounds
    written = {eqn.primitive.name for eqn in jaxlite.make_jaxpr(lambda x, i: x[i])(x, far[0]).eqns}
    assert written <= {"lt", "add", "select_n", "min", "max", "convert_element_type", "broadcast_in_dim", "gather"}


# --- what is no index --------------------------------------------------------------------------------

X = numbers(4, 5)
REFUSED = [
    (s_[[0, 1]], TypeError, "Using a non-tuple sequence for multidimensional indexing is not allowed"),
    (range(2), TypeError, "Using a non-tuple sequence"),
    (s_[1.5], TypeError, "Indexer must have integer or boolean type, got indexer with type float64"),
    (s_[np.array([1.0])], TypeError, "Indexer must have integer or boolean type, got indexer with type float64"),
    (s_[0, jnp.array(1.5)], TypeError, "Indexer must have integer or boolean type, got indexer with type float32"),
    (s_[1j], TypeError, "Indexer must have integer or boolean type, got indexer with type complex128"),
    (s_["a"], TypeError, "JAX does not support string indexing; got idx='a'"),
    (s_[0, "a"], TypeError, "JAX does not support string indexing"),
    (s_[{}], IndexError, "only integers, slices"),
    (s_[0, 0, 0], IndexError, "Too many indices: array is 2-dimensional, but 3 were indexed"),
    (s_[:, :, :], IndexError, "Too many indices: array is 2-dimensional, but 3 were indexed"),
    (s_[None, 0, 0, 0], IndexError, "Too many indices"),
    (s_[..., ...], IndexError, "an index can only have a single ellipsis"),
    (s_[np.ones(3, bool)], IndexError, r"boolean index did not match shape of indexed array in index 0: got \(3,\)"),
    (s_[0, np.ones(4, bool)], IndexError, r"boolean index did not match shape of indexed array in index 1"),
    (s_[np.ones((4, 5), bool), 0], IndexError, "Too many indices"),
    (s_[I, np.array([0, 1])], ValueError, r"Incompatible shapes for broadcasting: shapes=\[\(3,\), \(2,\)\]"),
    (s_[1:2.5], TypeError, "slice indices must be integers"),
    (s_[::0], ValueError, "slice step cannot be zero"),
]


@pytest.mark.parametrize(("index", "error", "problem"), REFUSED, ids=[shown(row[0]) for row in REFUSED])
def test_what_is_no_index(index, error, problem):
    with pytest.raises(error, match=problem):
        jnp.array(X)[index]
    with pytest.raises(error, match=problem):
        jaxlite.jit(lambda x: x[index])(X)


@pytest.mark.parametrize("index", [0, -1, s_[0, 1], np.array([0])], ids=shown)
def test_nothing_can_be_read_from_an_empty_axis(index):
    with pytest.raises(IndexError, match="out of bounds for axis 0 with size 0"):
        jnp.zeros((0, 3))[index]


@pytest.mark.parametrize("compiled", [lambda f: f, jaxlite.jit], ids=["eager", "jit"])
def test_lists_of_places_on_an_empty_axis(compiled):
    """As in JAX, where nothing is read there is nothing to be out of bounds, and updates are dropped."""
    places = np.array([0, -1])
    assert compiled(lambda x: x[places, :])(jnp.zeros((0, 0))).shape == (2, 0)
    assert compiled(lambda x: x[places, 0:0])(jnp.zeros((0, 3))).shape == (2, 0)
    assert compiled(lambda x: x.at[places].add(1.0))(jnp.zeros((0, 3))).shape == (0, 3)
    with pytest.raises(IndexError, match="out of bounds for axis 1 with size 0"):
        compiled(lambda x: x[:, places])(jnp.zeros((3, 0)))
    with pytest.raises(IndexError, match="out of bounds for axis 0 with size 0"):
        compiled(lambda x: x.at[0].set(1.0))(jnp.zeros((0, 3)))


def test_traced_masks_and_bounds():
    with pytest.raises(NonConcreteBooleanIndexError, match=r"got bool\[4,5\]"):
        jaxlite.jit(lambda x: x[x > 2])(X)
    with pytest.raises(NonConcreteBooleanIndexError):
        jaxlite.jit(lambda x, k: x[k])(X, True)
    with pytest.raises(IndexError, match="Slice entries must be static integers.*lax.dynamic_slice"):
        jaxlite.jit(lambda x, k: x[k:k + 2])(X, 1)
    with pytest.raises(TracerIntegerConversionError):
        jaxlite.jit(lambda k: [1, 2, 3][k])(1)


# --- programs ----------------------------------------------------------------------------------------

JAXPRS = [
    (lambda x, k: x[1], "slice[limit_indices=(2, 5) start_indices=(1, 0) strides=None] a|squeeze[dimensions=(0,)] c"),
    (lambda x, k: x[..., -1], "slice[limit_indices=(4, 5) start_indices=(0, 4) strides=None] a|"
                              "squeeze[dimensions=(1,)] c"),
    (lambda x, k: x[:], ""),
    (lambda x, k: x[None], "broadcast_in_dim[broadcast_dimensions=(1, 2) shape=(1, 4, 5) sharding=None] a"),
    (lambda x, k: x[::-2], "slice[limit_indices=(4, 5) start_indices=(1, 0) strides=(2, 1)] a|rev[dimensions=(0,)] c"),
    (lambda x, k: x[k], "lt b 0:i32[]|add b 4:i32[]|select_n c b d|dynamic_slice[slice_sizes=(1, 5)] a e 0:i32[]|"
                        "squeeze[dimensions=(0,)] f"),
]


@pytest.mark.parametrize(("function", "lines"), JAXPRS, ids=[row[1][:30] for row in JAXPRS])
def test_jaxprs(function, lines):
    jaxpr = str(jaxlite.make_jaxpr(function)(X, np.int32(0)))
    got = [line.split(" = ", 1)[1] for line in jaxpr.splitlines() if " = " in line]
    simplified = [line.replace(" shape=(1, 4, 5) sharding=None", "") for line in lines.split("|") if line]
    assert got == simplified


def test_loops_over_positions_compile_once(count_traces):
    from jaxlite.numpy import index_plan, indexing

    a = jnp.array(numbers(9, 3))
    a[0], a[1:3], a[2, 1:2], a.at[0].set(1.0), a.at[1:3].add(1.0)
    read, write = count_traces(index_plan.read), count_traces(index_plan.write)
    indexing.read, indexing.write = read, write
    try:
        for k in range(-9, 7):
            np.testing.assert_array_equal(a[k], numbers(9, 3)[k])
        for k in range(7):
            a[k:k + 2], a[k, 0:1], a.at[k].set(1.0), a.at[k:k + 2].add(1.0)
    finally:
        indexing.read, indexing.write = index_plan.read, index_plan.write
    assert (read.count, write.count) == (0, 0)


def test_weak_types_and_placement_are_kept():
    weak = jnp.full((4,), 2.0)
    weak = weak if weak.weak_type else jaxlite.lax.full((4,), 2.0)
    for index in (0, s_[1:], s_[::-1], np.array([0, 1]), np.array([True, False, True, True])):
        assert weak[index].weak_type, index
    committed = jaxlite.device_put(numbers(3), jaxlite.devices()[0])
    assert committed[1].committed and committed[MASK].committed


# --- take, put ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("indices", [np.array(1), np.array([2, 0, -1]), np.array([[0], [1]]), np.zeros((0, 2), int)],
                         ids=shown)
def test_take(axis, indices):
    x = numbers(3, 4)
    np.testing.assert_array_equal(jnp.take(x, indices, axis), np.take(x, indices, axis))


@pytest.mark.parametrize(("mode", "want"), [
    (None, [np.nan, np.nan, 5]), ("fill", [np.nan, np.nan, 5]), ("clip", [5, 0, 0]), ("wrap", [4, 2, 5])])
def test_take_modes(mode, want):
    positions = np.array([100, -100, -1])
    np.testing.assert_array_equal(jnp.take(numbers(6), positions, mode=mode), want)
    if mode in ("clip", "wrap"):
        np.testing.assert_array_equal(want, np.take(numbers(6), positions, mode=mode))


def test_take_with_options():
    got = jnp.take(numbers(6), np.array([1, 9]), 0, None, "fill", True, True, fill_value=-1)
    np.testing.assert_array_equal(got, [1, -1])
    assert jnp.take(np.arange(3, dtype=np.int8), 7) == -128
    np.testing.assert_array_equal(jnp.array(numbers(2, 3)).take(np.array([1, 0]), axis=1), numbers(2, 3)[:, [1, 0]])


@pytest.mark.parametrize(("call", "error", "problem"), [
    (lambda x: jnp.take(x, [0, 1]), TypeError, "take requires ndarray or scalar arguments"),
    (lambda x: jnp.take(x, 1.5), ValueError, "indices must have an integer type"),
    (lambda x: jnp.take(x, 0, axis=5), ValueError, "axis 5 is out of bounds"),
    (lambda x: jnp.take(x, 0, mode="raise"), NotImplementedError, "The 'raise' mode to jnp.take"),
    (lambda x: jnp.take(x, 0, mode="near"), ValueError, "Invalid mode 'near'"),
    (lambda x: jnp.take(x, 0, out=x), NotImplementedError, "out"),
    (lambda x: jnp.take(x[:0], 0), IndexError, "from an empty axis"),
    (lambda x: jnp.take_along_axis(x, np.array([0]), 1), ValueError, "same number of dimensions; 1 vs. 2"),
    (lambda x: jnp.take_along_axis(x, np.array([[0.0]]), 1), TypeError, "must be of integer type"),
    (lambda x: jnp.take_along_axis(x, np.array([[0]]), 3), ValueError, "axis 3 is out of bounds"),
    (lambda x: jnp.take_along_axis(x, np.zeros((3, 1), int), 1), ValueError, "Incompatible shapes for broadcasting"),
    (lambda x: jnp.put(x, 0, 1.0), ValueError, "inplace=False"),
    (lambda x: jnp.put(x, 0, 1.0, mode="raise", inplace=False), NotImplementedError, "The 'raise' mode to jnp.put"),
    (lambda x: jnp.put(x, 1.5, 1.0, inplace=False), TypeError, "integer"),
    (lambda x: jnp.put_along_axis(x, np.array([[0]]), 1.0, 1), ValueError, "inplace=False"),
])
def test_take_and_put_refuse(call, error, problem):
    with pytest.raises(error, match=problem):
        call(jnp.array(X))


ALONG = [(shape, picks, axis) for shape, picks, axis in [
    ((4, 5), (4, 2), 1), ((4, 5), (3, 5), 0), ((4, 5), (1, 2), 1), ((1, 5), (4, 2), 1), ((3, 4, 5), (3, 2, 5), -2),
    ((3, 4, 5), (1, 2, 5), 1), ((3, 1, 5), (3, 2, 4), 2), ((6,), (3,), 0), ((4, 5), (7,), None), ((4, 0), (4, 0), 1),
    ((4, 5), (0, 5), 0)]]


@pytest.mark.parametrize(("shape", "picks", "axis"), ALONG)
def test_take_along_axis(shape, picks, axis, rng):
    x = numbers(*shape)
    size = x.size if axis is None else shape[axis]
    indices = rng.integers(-size, size, picks) if size else np.zeros(picks, int)
    np.testing.assert_array_equal(jnp.take_along_axis(x, indices, axis), np.take_along_axis(x, indices, axis))


def test_take_along_axis_out_of_bounds():
    x, far = numbers(2, 3), np.array([[3], [-4]])
    assert np.isnan(jnp.take_along_axis(x, far, 1)).all()
    np.testing.assert_array_equal(jnp.take_along_axis(x, far, 1, mode="clip"), [[2], [3]])
    np.testing.assert_array_equal(jnp.take_along_axis(x, far, 1, fill_value=7), [[7], [7]])
    np.testing.assert_array_equal(
        jnp.take_along_axis(x, np.array([[-1], [-1]]), 1, mode="clip", wrap_negative_indices=False), [[0], [3]])


@pytest.mark.parametrize(("positions", "values", "mode"), [
    ([1, 2], [9, 8], None), ([0, 1, 2, 3], [7, 8], None), ([[0, 1], [2, 3]], [1, 2, 3, 4, 5], None), ([-1], 7, None),
    ([100, -1, 1], [4, 5, 6], "clip"), ([100, -8], [1, 2], "wrap"), ([], [1], None)])
def test_put(positions, values, mode):
    x, positions, values = numbers(2, 3), np.array(positions, int), np.array(values, np.float32)
    want = x.copy()
    np.put(want, positions, values, mode=mode or "raise")
    np.testing.assert_array_equal(jnp.put(x, positions, values, mode, inplace=False), want)


@pytest.mark.parametrize(("shape", "picks", "axis"), [
    ((4, 5), (4, 1), 1), ((4, 5), (1, 5), 0), ((4, 5), (1, 1), 1), ((6,), (2,), 0), ((4, 5), (3,), None)])
def test_put_along_axis(shape, picks, axis):
    x, want = numbers(*shape), numbers(*shape)
    indices = np.arange(int(np.prod(picks))).reshape(picks) % 4
    np.put_along_axis(want, indices, -1.0, axis)
    np.testing.assert_array_equal(jnp.put_along_axis(x, indices, -1.0, axis, inplace=False), want)


def test_a_slice_of_static_size_may_start_anywhere():
    x = np.arange(20).reshape(5, 4)

    @jaxlite.jit
    def at(i):
        j = jnp.asarray(x)
        rows = jaxlite.ds(i, 2)
        return j[rows], j[1, jaxlite.ds(i, 3)], j[rows, jnp.array([0, 3])], j.at[rows].set(-1)

    for i, start in ((1, 1), (-3, 2)):
        rows, part, paired, written = at(i)
        np.testing.assert_array_equal(rows, x[start:start + 2])
        np.testing.assert_array_equal(part, x[1, 1:4])  # moved to where there are three elements
        np.testing.assert_array_equal(paired, x[start:start + 2, [0, 3]])
        assert (np.asarray(written) == -1).sum() == 8 and (np.asarray(written)[start:start + 2] == -1).all()
    assert jnp.asarray(x)[jaxlite.ds(4, 2)].tolist() == x[3:].tolist()
    assert jnp.arange(9)[jaxlite.ds(1, 3, 2)].tolist() == [1, 3, 5]
    with pytest.raises(TypeError, match="slice_sizes must be less"):
        jnp.arange(5)[jaxlite.ds(0, 7)]
    with pytest.raises(TypeError, match="must be integers"):
        jnp.arange(5)[jaxlite.ds(1.0, 2)]


def test_new_axes_whole_slices_and_ellipses_in_any_order():
    x = np.zeros((2, 3, 5), np.float32)
    for count in range(1, 6):
        for index in itertools.product((None, slice(None), ...), repeat=count):
            try:
                expected = x[index].shape
            except IndexError:
                continue
            assert jaxlite.eval_shape(lambda x, index=index: x[index], x).shape == expected, index


def test_numpy_indices_of_four_bits():
    x, index = jnp.arange(3.0), np.array([1, -1], ml_dtypes.int4)
    for found in (x[index], jnp.take(x, index), jaxlite.jit(lambda: x[index])(), x[jnp.asarray(index)]):
        np.testing.assert_array_equal(found, [1, 2])
    np.testing.assert_array_equal(x.at[index].set(9.0), [0, 9, 9])
    np.testing.assert_array_equal(jnp.repeat(x, np.array([1, 0, 2], ml_dtypes.uint4)), [0, 2, 2])
