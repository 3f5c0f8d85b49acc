"""x.at[index]: updated copies and reads with a mode, against NumPy's in-place assignment and ufunc.at."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite.errors import NonConcreteBooleanIndexError


def numbers(*shape, dtype="float32"):
    return np.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype(dtype)


class _Indexer:
    def __getitem__(self, index):
        return index


s_ = _Indexer()
I, J = np.array([1, 0, -1]), np.array([[0], [2], [1]])
TWICE = np.array([2, 0, 2, -1])
X = numbers(3, 4)


def set_at(x, index, value):
    x[index] = value


OPS = {
    "set": set_at, "add": np.add.at, "subtract": np.subtract.at, "multiply": np.multiply.at, "divide": np.divide.at,
    "power": np.power.at, "min": np.minimum.at, "max": np.maximum.at,
}


def expected(x, index, op, value):
    x = x.copy()
    OPS[op](x, index, value)
    return x


def shown(index):
    return str(index).replace("\n", "").replace("Ellipsis", "...")[:50]


# --- against NumPy -----------------------------------------------------------------------------------

INDICES = [
    s_[0], s_[-1], s_[1, 2], s_[...], s_[:], s_[()], s_[None], s_[1:], s_[:, 1], s_[:2, 1:3], s_[1, 1:3], s_[::2],
    s_[::-1], s_[::-2, ::3], s_[5:1], s_[..., None], s_[None, 1, ..., None], s_[:, None, ::-1], I, s_[:, I], s_[I, I],
    s_[I, J], s_[I, 0], s_[I, ::2], s_[I, ::-1], s_[I, None, 1:3], s_[I[:2], 1:3], np.zeros(0, int), s_[[0, 2], 1],
    np.array([True, False, True]), s_[:, np.array([True, False, True, True])], X > 5, s_[X[:, 0] > 1, 1:],
    True, False, s_[True, 1], s_[0, ..., True], np.zeros(3, bool),
]


@pytest.mark.parametrize("index", INDICES, ids=shown)
def test_set_of_any_index(index):
    a = jnp.array(X)
    part = -1 - np.arange(X[index].size, dtype=np.float32).reshape(X[index].shape)
    np.testing.assert_array_equal(a.at[index].set(0.5), expected(X, index, "set", 0.5))
    np.testing.assert_array_equal(a.at[index].set(part), expected(X, index, "set", part))
    np.testing.assert_array_equal(a, X)


@pytest.mark.parametrize("op", OPS)
def test_staged_updates_of_any_index(op):
    results = jaxlite.jit(lambda x: [getattr(x.at[index], op)(2.5) for index in INDICES])(X)
    for index, got in zip(INDICES, results, strict=True):
        np.testing.assert_allclose(got, expected(X, index, op, np.float32(2.5)), rtol=1e-6, err_msg=shown(index))


@pytest.mark.parametrize("op", OPS)
def test_eager_updates(op):
    a = jnp.array(X)
    rows = -2 * numbers(4, 4) if op != "power" else numbers(4, 4) / 8
    for index, value in ((1, 2.0), (s_[:, 1], X[:, 0]), (X > 5, 3.0), (TWICE, rows[0]), (TWICE, rows)):
        if op == "set" and index is TWICE:
            value = value.flat[0]  # which of several values stays is open
        want = expected(X, index, op, np.float32(value) if np.isscalar(value) else value)
        np.testing.assert_allclose(getattr(a.at[index], op)(value), want, rtol=1e-5)


def test_mul_is_multiply():
    np.testing.assert_array_equal(jnp.array(X).at[1].mul(2.0), jnp.array(X).at[1].multiply(2.0))


def test_traced_positions():
    @jaxlite.jit
    def f(x, i, k):
        return [x.at[k].set(0.0), x.at[k, k].add(1.0), x.at[:, k].min(0.0), x.at[k, 1:3].set(9.0), x.at[i].add(1.0),
                x.at[i, k].set(7.0), x.at[k, ::2].set(5.0)]

    for i, k in ((TWICE, 1), (TWICE.astype("int8"), -1), (np.abs(TWICE).astype("uint8"), np.uint8(2))):
        want = [expected(X, index, op, np.float32(value)) for index, op, value in (
            (k, "set", 0), (s_[k, k], "add", 1), (s_[:, k], "min", 0), (s_[k, 1:3], "set", 9), (i, "add", 1),
            (s_[i, k], "set", 7), (s_[k, ::2], "set", 5))]
        for got, each in zip(f(X, i, k), want, strict=True):
            np.testing.assert_array_equal(got, each)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "float16", ml_dtypes.bfloat16, "complex64"], ids=str)
def test_every_dtype(dtype):
    x = (numbers(5) % 2).astype(dtype)
    for index in (2, s_[1:3], np.array([0, 3])):
        got = jnp.array(x).at[index].set(x[0])
        assert got.dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(got), expected(x, index, "set", x[0]))


def test_scalars_and_empty_arrays():
    assert jnp.array(3.0).at[()].set(1) == 1
    assert jnp.array(3.0).at[...].add(1) == 4
    np.testing.assert_array_equal(jnp.array(3.0).at[None].multiply(2), 6)
    assert jnp.zeros((0, 3)).at[:, 1].set(1.0).shape == (0, 3)
    assert jnp.zeros((0,)).at[np.zeros(0, int)].add(1.0).shape == (0,)
    nowhere = np.zeros(0, int)
    assert jaxlite.grad(lambda x: x.at[nowhere].apply(jnp.sin).sum())(2.0 * jnp.ones(2)).tolist() == [1, 1]
    assert jnp.full(3, 2.0).at[nowhere].get().weak_type and jnp.full(3, 2.0)[nowhere].weak_type
    assert jnp.take_along_axis(jnp.full(3, 2.0), nowhere, 0).weak_type


# --- values ------------------------------------------------------------------------------------------


def test_values_are_converted_to_the_arrays_dtype():
    v = jnp.arange(3)
    for value, want in ((True, 1), (7, 7), (jnp.array(7, jnp.int32), 7), (np.int8(7), 7)):
        got = v.at[0].set(value)
        assert got.dtype == v.dtype and got[0] == want
    np.testing.assert_array_equal(v.at[:2].set([5, 6]), [5, 6, 2])
    np.testing.assert_array_equal(jnp.zeros(2, "uint8").at[0].set(-1), [255, 0])


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize(("dtype", "value"), [("int32", 1.5), ("bool", 1), ("int8", np.int32(1)), ("float32", 1j)])
def test_a_lossy_value_warns(dtype, value):
    x = jnp.zeros(3, dtype)
    with pytest.warns(FutureWarning, match=f"cannot safely cast value from dtype=.* to dtype={dtype}"):
        assert jaxlite.jit(lambda x: x.at[1].set(value))(x).dtype == dtype
    for nothing in (slice(0, 0), jnp.array([], int), np.zeros(3, bool)):  # the types count, not the elements
        with pytest.warns(FutureWarning):
            jaxlite.jit(lambda x, at=nothing: x.at[at].set(value))(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jaxlite.jit(lambda x: x.at[1].set(x[0]))(x)
    for _ in range(2):  # outside of a trace at each call, whether it is compiled or not
        with pytest.warns(FutureWarning) as caught:
            x.at[1].set(value), x.at[jnp.arange(3) > 1].set(value)
        assert sum(each.category is FutureWarning for each in caught) == 2


@pytest.mark.parametrize("op", ["divide", "power"])
def test_integers_divide_into_floats_and_rise_into_integers(op):
    got = getattr(jnp.array([7, 8, 9]).at[1:].mul(1).at[1:], op)(2)
    np.testing.assert_allclose(got, [7, 4, 4.5] if op == "divide" else [7, 64, 81])
    assert got.dtype == (np.float32 if op == "divide" else np.int32)


def test_weak_types():
    weak = jaxlite.lax.full((3,), 1.0)
    for op in OPS:
        assert getattr(weak.at[0], op)(np.float32(2)).weak_type
        assert getattr(weak.at[...], op)(np.float32(2)).weak_type
        assert not getattr(jnp.ones(3, "float32").at[0], op)(2.0).weak_type


# --- out of bounds -----------------------------------------------------------------------------------

FAR = np.array([100, -100, -1, 6, -7])


def test_updates_out_of_bounds():
    v = jnp.arange(6)
    np.testing.assert_array_equal(v.at[FAR].set(9), [0, 1, 2, 3, 4, 9])
    np.testing.assert_array_equal(v.at[FAR].add(10, mode="drop"), [0, 1, 2, 3, 4, 15])
    np.testing.assert_array_equal(v.at[FAR].add(10, mode="clip"), [20, 1, 2, 3, 4, 35])
    np.testing.assert_array_equal(v.at[FAR].add(10, mode="drop", wrap_negative_indices=False), np.arange(6))
    for k in (6, -7, 5000, 2**40):
        np.testing.assert_array_equal(v.at[k].set(9), np.arange(6))
        np.testing.assert_array_equal(jaxlite.jit(lambda v, k=k: v.at[k].set(9))(v), np.arange(6))
    np.testing.assert_array_equal(v.at[6].set(9, mode="clip"), [0, 1, 2, 3, 4, 9])
    np.testing.assert_array_equal(v.at[-1].set(9, wrap_negative_indices=False), np.arange(6))


def test_reads_out_of_bounds():
    v, lost = jnp.arange(6), -(2**31)
    for function in (lambda f: f(v), lambda f: jaxlite.jit(f)(v)):
        for mode, want in (("fill", [lost, lost, 5, lost, lost]), ("clip", [5, 0, 5, 5, 0]), (None, [5, 0, 5, 5, 0])):
            np.testing.assert_array_equal(function(lambda v, mode=mode: v.at[FAR].get(mode=mode)), want)
            got = function(lambda v, mode=mode: [v.at[int(k)].get(mode=mode) for k in FAR])
            np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(function(lambda v: v.at[FAR].get(mode="fill", fill_value=7)), [7, 7, 5, 7, 7])
        assert function(lambda v: v.at[9].get(mode="fill", fill_value=7)) == 7
        np.testing.assert_array_equal(function(lambda v: v.at[1:3].get(mode="fill")), [1, 2])
        np.testing.assert_array_equal(function(lambda v: v.at[::-2].get(mode="fill")), [5, 3, 1])
        assert function(lambda v: v.at[-1].get(wrap_negative_indices=False)) == 0
        assert function(lambda v: v.at[-1].get(mode="fill", wrap_negative_indices=False)) == lost
    assert jaxlite.jit(lambda v, k: v.at[k].get(mode="fill"))(v, 6) == lost
    assert np.isnan(jnp.zeros(3).at[3].get(mode="fill"))
    np.testing.assert_array_equal(jnp.array(X).at[I, 1:3].get(mode="fill"), X[I, 1:3])


def test_promises():
    v = jnp.arange(6)
    got = v.at[np.array([1, 3])].set(9, indices_are_sorted=True, unique_indices=True, mode="promise_in_bounds")
    np.testing.assert_array_equal(got, [0, 9, 2, 9, 4, 5])
    np.testing.assert_array_equal(
        v.at[np.array([1, 3])].get(indices_are_sorted=True, unique_indices=True, mode="promise_in_bounds"), [1, 3])


# --- apply -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [1, s_[1:], s_[:, ::2], s_[...], np.array([0, 2]), X > 5], ids=shown)
def test_apply(index):
    want = X.copy()
    want[index] = np.sqrt(want[index])
    np.testing.assert_allclose(jnp.array(X).at[index].apply(jnp.sqrt), want, rtol=1e-6)
    np.testing.assert_allclose(jaxlite.jit(lambda x: x.at[index].apply(lambda v: jnp.sqrt(v)))(X), want, rtol=1e-6)


def test_apply_takes_a_function():
    with pytest.raises(TypeError, match="apply takes a function of one element, got 3"):
        jnp.arange(4).at[1].apply(3)
    with pytest.raises(ValueError, match=r"int32\[2\], which is no scalar"):
        jnp.arange(4).at[1].apply(lambda v: jnp.stack([v, v]))


def test_apply_keeps_the_dtype_and_drops_what_is_out_of_bounds():
    got = jnp.arange(4).at[np.array([1, 3, 4])].apply(lambda v: v * 1.5)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, [0, 1, 2, 4])


# --- errors and the rest -----------------------------------------------------------------------------


@pytest.mark.parametrize(("call", "error", "problem"), [
    (lambda x: x.at[[0, 1]].set(1), TypeError, "Using a non-tuple sequence"),
    (lambda x: x.at[1.5].set(0), TypeError, "Indexer must have integer or boolean type"),
    (lambda x: x.at[0, 0, 0].set(0), IndexError, "Too many indices: array is 2-dimensional, but 3 were indexed"),
    (lambda x: x.at[0].set(np.zeros(3)), ValueError, "Incompatible types for broadcasting"),
    (lambda x: x.at[0].set(np.zeros((1, 4))), ValueError, "Cannot broadcast to shape with fewer dimensions"),
    (lambda x: x.at[...].set(np.zeros(3)), ValueError, "Incompatible types for broadcasting"),
    (lambda x: x.at[np.ones(2, bool)].set(0), IndexError, "boolean index did not match"),
    (lambda x: x.at[np.ones(2, bool)].set(np.zeros(4)), IndexError, "boolean index did not match"),
    (lambda x: x.at[0].get(mode="fill", fill_value=(1, 2)), ValueError, "must be a scalar"),
    (lambda x: x.at[0].get(mode="fill", fill_value="a"), TypeError, "'a'"),
    (lambda x: x.at[0].get(mode="near"), ValueError, 'Unknown gather mode "near"'),
    (lambda x: x.at[0].set(1, mode="near"), ValueError, 'Unknown gather mode "near"'),
    (lambda x: x.at[...].set(1, mode="near"), ValueError, 'Unknown gather mode "near"'),
    (lambda x: x.at[0].set("a"), TypeError, "'a'"),
    (lambda x: (x > 2).at[0].add(True), TypeError, "add does not accept dtype bool"),
    (lambda x: x.at[0][1].set(1), TypeError, "not subscriptable"),
])
def test_refused(call, error, problem):
    with pytest.raises(error, match=problem):
        call(jnp.array(X))
    with pytest.raises(error, match=problem):
        jaxlite.jit(call)(X)


def test_traced_masks():
    with pytest.raises(NonConcreteBooleanIndexError):
        jaxlite.jit(lambda x: x.at[x > 2].set(0.0))(X)


def test_repr():
    x = jnp.arange(2)
    assert repr(x.at) == f"_IndexUpdateHelper({x!r})"
    assert repr(x.at[0]) == f"_IndexUpdateRef({x!r}, 0)"


def test_one_program_for_all_masks(count_traces, rng):
    from jaxlite.numpy import index_plan, indexing

    a = jnp.array(X)
    a.at[X > 3].set(0.0), a.at[jnp.array(X > 3)].set(0.0)
    write = indexing.write = count_traces(index_plan.write)
    try:
        for _ in range(4):
            mask = rng.random(X.shape) < 0.5
            np.testing.assert_array_equal(a.at[mask].set(-1.0), np.where(mask, -1, X))
            np.testing.assert_array_equal(a.at[jnp.array(mask)].set(-1.0), np.where(mask, -1, X))
    finally:
        indexing.write = index_plan.write
    assert write.count == 0


def test_jaxpr_of_an_update():
    jaxpr = jaxlite.make_jaxpr(lambda x, k: x.at[k, 1:3].add(1.0))(X, np.int32(0))
    assert str(jaxpr) == """\
{ lambda ; a:f32[3,4] b:i32[]. let
    c:bool[] = lt b 0:i32[]
    d:i32[] = add b 3:i32[]
    e:i32[] = select_n c b d
    f:i32[1] = broadcast_in_dim e
    g:i32[1] = broadcast_in_dim 1:i32[]
    h:i32[2] = concatenate[dimension=0] f g
    i:f32[2] = broadcast_in_dim 1.0:f32[]
    j:f32[3,4] = scatter-add[
      dimension_numbers=ScatterDimensionNumbers(update_window_dims=(0,), inserted_window_dims=(0,), \
scatter_dims_to_operand_dims=(0, 1), operand_batching_dims=(), scatter_indices_batching_dims=())
      indices_are_sorted=True
      mode=GatherScatterMode.FILL_OR_DROP
      unique_indices=True
      update_consts=()
      update_jaxpr={ lambda ; k:f32[] l:f32[]. let m:f32[] = add k l in (m,) }
    ] a h i
  in (j,) }"""


def test_a_python_boolean_is_a_number_where_integers_are_written():
    with jaxlite.numpy_dtype_promotion("strict"):
        for dtype in (np.int8, np.uint32):
            np.testing.assert_array_equal(jnp.zeros(2, dtype).at[0].add(True), np.array([1, 0], dtype), strict=True)
        for dtype, value in ((np.int8, np.bool_(True)), (np.float32, True)):
            with pytest.raises(ValueError, match="promotion"):
                jnp.zeros(2, dtype).at[0].add(value)
