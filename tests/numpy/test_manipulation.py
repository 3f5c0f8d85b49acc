"""jaxlite.numpy's functions that reshape, reorder, join, split, repeat, insert and pad, against NumPy's."""

import ml_dtypes
import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from lowering import xla

X = np.arange(12, dtype=np.float32).reshape(3, 4)
CUBE = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
V = np.arange(-3, 3, dtype=np.int8)
E = np.zeros((0, 3), np.float32)
S = np.float32(5)


def same(found, expected):
    """Equal values, shapes and dtypes; sequences of arrays element by element."""
    if isinstance(expected, (list, tuple)):
        assert type(found) is type(expected)
        assert len(found) == len(expected)
        for each, wanted in zip(found, expected, strict=True):
            same(each, wanted)
        return
    expected = np.asarray(expected)
    assert isinstance(found, jax.Array)
    assert not found.weak_type
    assert found.shape == expected.shape
    assert found.dtype == jax.dtypes.canonicalize_dtype(expected.dtype)
    np.testing.assert_array_equal(np.asarray(found), expected)


LIKE_NUMPY = [  # name, arrays, other arguments
    ("reshape", (X, (4, 3)), {}), ("reshape", (X, -1), {}), ("reshape", (X, (2, -1)), {}), ("reshape", (S, (1, 1)), {}),
    ("reshape", (X, [4, 3]), {}), ("reshape", (X, (4, 3)), {"order": "F"}), ("reshape", (E, (3, -1)), {}),
    ("reshape", (CUBE, (4, 6)), {"order": "F"}), ("reshape", (X, np.array([6, 2])), {}),
    ("ravel", (CUBE,), {}), ("ravel", (CUBE,), {"order": "F"}), ("ravel", (S,), {}), ("ravel", (E,), {}),
    ("squeeze", (X[None, :, None],), {}), ("squeeze", (X[None, :, None],), {"axis": 0}),
    ("squeeze", (X[None, :, None],), {"axis": (0, -2)}),
    ("squeeze", (S,), {}), ("expand_dims", (X, 0), {}), ("expand_dims", (X, (0, -1)), {}),
    ("expand_dims", (X, [1, 2]), {}),
    ("expand_dims", (S, 0), {}), ("broadcast_to", (X[0], (2, 3, 4)), {}), ("broadcast_to", (S, 3), {}),
    ("broadcast_to", (E[:, :1], (0, 5)), {}), ("broadcast_to", (X, (3, 4)), {}),
    ("atleast_1d", (S,), {}), ("atleast_2d", (V,), {}), ("atleast_3d", (S,), {}), ("atleast_3d", (V,), {}),
    ("atleast_3d", (X,), {}),
    ("atleast_3d", (CUBE,), {}), ("resize", (X, (5, 5)), {}), ("resize", (X, (2, 3)), {}), ("resize", (X, 7), {}),
    ("resize", (E, (2,)), {}),
    ("resize", (S, (2, 2)), {}), ("resize", (X, (0,)), {}),
    ("transpose", (CUBE,), {}), ("transpose", (CUBE, (2, 0, 1)), {}), ("transpose", (CUBE, [-1, 0, 1]), {}),
    ("transpose", (S,), {}),
    ("permute_dims", (CUBE, (1, 0, 2)), {}), ("matrix_transpose", (CUBE,), {}), ("swapaxes", (CUBE, 0, -1), {}),
    ("moveaxis", (CUBE, 0, -1), {}), ("moveaxis", (CUBE, (0, 1), (1, 2)), {}), ("moveaxis", (CUBE, [2, 0], [0, 1]), {}),
    ("rollaxis", (CUBE, 2), {}), ("rollaxis", (CUBE, 0, 3), {}), ("rollaxis", (CUBE, 1, -1), {}),
    ("rollaxis", (CUBE, 0, 0), {}),
    ("array_split", (X, 2), {}), ("array_split", (X, 5), {}), ("array_split", (V, [1, 3, 10]), {}),
    ("array_split", (V, 4), {}),
    ("split", (X, 3), {}), ("split", (X, 2, 1), {}), ("split", (X, [1, 3], 1), {}), ("split", (X, [2, 1], 1), {}),
    ("split", (X, [-1], 1), {}),
    ("split", (X, [], 1), {}), ("vsplit", (X, 3), {}), ("hsplit", (X, 2), {}), ("hsplit", (V, 2), {}),
    ("dsplit", (CUBE, [1]), {}),
    ("unstack", (X,), {"axis": -1}), ("unstack", (E,), {}),
    ("tile", (X, 2), {}), ("tile", (X, (2, 1)), {}), ("tile", (X, (1, 2, 1)), {}), ("tile", (X, (0, 2)), {}),
    ("tile", (S, 3), {}),
    ("tile", (X, ()), {}),
    ("repeat", (X, 2), {}), ("repeat", (X, 2), {"axis": -1}), ("repeat", (X, np.array([1, 2, 0])), {"axis": 0}),
    ("repeat", (X, 0), {"axis": 0}),
    ("repeat", (S, 3), {}), ("repeat", (E, 2), {"axis": 0}), ("repeat", (X, np.array([2])), {"axis": 0}),
    ("roll", (X, 1), {}), ("roll", (X, 1, 0), {}), ("roll", (X, -5, 1), {}), ("roll", (X, (1, 2), (0, 1)), {}),
    ("roll", (X, 1, (0, 1)), {}),
    ("roll", (X, (1, 2), 0), {}), ("roll", (E, 1, 0), {}), ("roll", (S, 1), {}), ("roll", (X, 0, 0), {}),
    ("roll", (X, 1, (0, 0)), {}),
    *(("rot90", (X, k), {}) for k in (0, 1, 2, 3, -1)), ("rot90", (CUBE,), {"k": 1, "axes": (2, 0)}),
    ("flip", (CUBE,), {}), ("flip", (CUBE, -1), {}), ("flip", (CUBE, (0, 2)), {}), ("flip", (S,), {}),
    ("flipud", (V,), {}), ("fliplr", (X,), {}),
    *(("diagonal", (X, k), {}) for k in (0, 1, -1, 3, -2, 5)), ("diagonal", (CUBE, 1, 2, 0), {}),
    ("diagonal", (np.zeros((2, 0, 3)),), {}),
    ("diag", (V,), {}), ("diag", (V, 2), {}), ("diag", (V, -1), {}), ("diag", (X, 1), {}), ("diag", (V > 0,), {}),
    ("diag", (E[:, 0],), {}),
    ("diagflat", (X, 1), {}), ("append", (X, S), {}), ("append", (X, X, 0), {}), ("append", (V, X[0], 0), {}),
    ("delete", (X, 1), {}), ("delete", (X, -1, 1), {}), ("delete", (X, slice(None, None, 2), 1), {}),
    ("delete", (X, np.array([0, 2, 2]), 1), {}),
    ("delete", (X, np.array([True, False, True, False]), 1), {}), ("delete", (X, slice(3, 0, -1), 1), {}),
    ("insert", (X, 1, 9), {}), ("insert", (X, 1, 9, 0), {}), ("insert", (X, 1, X[0], 0), {}),
    ("insert", (X, -1, 9, 1), {}),
    ("insert", (X, np.array([1, 1]), 9, 1), {}), ("insert", (X, np.array([3, 1]), np.array([7, 8]), 1), {}),
    ("insert", (X, slice(0, 4, 2), np.array([5, 6]), 1), {}),
    ("insert", (X, 1, np.array([7, 8, 9]), 1), {}), ("insert", (X, np.array([1]), np.array([[7], [8], [9]]), 1), {}),
    ("insert", (X, np.array([1, 2]), X[:, :2], 1), {}), ("insert", (X, 4, 9, 1), {}),
    ("insert", (X, np.array([-1, 0]), np.array([7, 8]), 1), {}),
    ("compress", (np.array([True, False, True]), X), {"axis": 0}), ("compress", (np.array([0, 1]), X), {}),
    ("compress", (np.array([False] * 5), X, 1), {}),
    ("choose", (np.array([0, 1, 0]), X[:2, :3]), {}), ("choose", (np.array([[0], [1]]), (V[:3], V[3:])), {}),
    ("choose", (np.array([0, 2, -1]), (V[:3], V[3:])), {"mode": "wrap"}),
    ("choose", (np.array([0, 2, -1]), (V[:3], V[3:])), {"mode": "clip"}),
    ("packbits", (np.array([1, 0, 1, 1, 0, 0, 0, 1, 1]),), {}), ("packbits", (X > 3,), {"axis": 0}),
    ("packbits", (X > 3,), {"bitorder": "little"}),
    ("packbits", (X > 3,), {"axis": -1}), ("unpackbits", (V.view(np.uint8),), {}),
    ("unpackbits", (V.view(np.uint8)[None],), {"axis": 1, "count": 20}),
    ("unpackbits", (V.view(np.uint8)[None],), {"axis": 0, "bitorder": "little"}),
    ("unpackbits", (V.view(np.uint8),), {"count": -3}),
    ("unpackbits", (V.view(np.uint8),), {"count": 60}),
    ("concatenate", ((X, X),), {}), ("concatenate", ((X, X[:, :1]), -1), {}), ("concatenate", ((X, V), None), {}),
    ("concatenate", ((V, X[0]),), {}),
    ("concatenate", ((V, V > 0),), {}), ("concatenate", ((V, V.view(np.uint8)),), {}),
    ("concatenate", ((E[:, :0], E[:, :2]), 1), {}), ("concat", ((X, X),), {"axis": 1}),
    *(("concatenate", (CUBE, axis), {}) for axis in (0, 1, -1, None)), ("stack", (CUBE, -1), {}), ("vstack", (CUBE,), {}),
    ("hstack", (CUBE,), {}), ("hstack", (X,), {}),
    *((name, (each,), {}) for name in ("column_stack", "dstack", "vstack") for each in (CUBE, X, V)),
    ("stack", ((X, X),), {}), ("stack", ((X, X), -1), {}), ("stack", ((S, S),), {}),
    ("stack", (CUBE, 1), {}), ("stack", ((V, X[0, :1].repeat(6)),), {}), ("vstack", ((V, V),), {}),
    ("vstack", ((X, X[0]),), {}), ("vstack", ((S, S),), {}),
    ("hstack", ((X, X),), {}), ("hstack", ((V, V),), {}), ("hstack", ((S, V),), {}), ("dstack", ((X, X),), {}),
    ("dstack", ((V, V),), {}),
    ("dstack", ((S, S),), {}), ("column_stack", ((V, V),), {}), ("column_stack", ((X, X[:, 0]),), {}),
    ("column_stack", ((S, S),), {}),
    ("block", ([[X, X], [X, X]],), {}), ("block", ([X, X],), {}),
    ("block", ([[X, X[:, :1]], [np.ones((1, 5), np.float32)]],), {}), ("block", (X,), {}),
    ("block", ([[[CUBE]], [[CUBE]]],), {}),
    ("trim_zeros", (np.array([0, 0, 1, 2, 0]),), {}), ("trim_zeros", (np.array([0, 0, 1, 2, 0]), "f"), {}),
    ("trim_zeros", (np.array([0, 1, 0]), "b"), {}),
    ("trim_zeros", (np.array([0, 0]),), {}),
    ("broadcast_arrays", (X, X[0], S), {}), ("atleast_1d", (S, V), {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "options"), LIKE_NUMPY,
                         ids=[f"{name}-{i}" for i, (name, *_) in enumerate(LIKE_NUMPY)])
def test_like_numpy(name, args, options):
    expected, found = getattr(np, name)(*args, **options), getattr(jnp, name)(*args, **options)
    if isinstance(expected, tuple) and xla.VERSION < {"atleast_1d": (0, 12), "broadcast_arrays": (0, 11)}.get(name, (0,)):
        expected = list(expected)  # as JAX of the same jaxlib
    same(found, expected)


METHODS = [
    ("reshape", (4, 3)), ("reshape", ((4, 3),)), ("reshape", (-1,)), ("transpose", ()), ("transpose", (1, 0)),
    ("transpose", ((1, 0),)),
    ("flatten", ()), ("flatten", ("F",)), ("ravel", ()), ("squeeze", ()), ("repeat", (2,)), ("swapaxes", (0, 1)),
    ("diagonal", (1,)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), METHODS, ids=repr)
def test_methods_like_numpys(name, args):
    same(getattr(jnp.array(X), name)(*args), getattr(X, name)(*args))


def test_transposed_properties():
    same(jnp.array(CUBE).T, CUBE.T)
    same(jnp.array(CUBE).mT, CUBE.mT)
    with pytest.raises(ValueError, match="two-dimensional"):
        _ = jnp.array(V).mT


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "complex64", ml_dtypes.bfloat16,
                                   ml_dtypes.float8_e4m3fn, ml_dtypes.int4], ids=str)
def test_every_dtype_moves(dtype):
    x = X.astype(dtype) if dtype != ml_dtypes.int4 else (X % 5).astype(dtype)

    @jax.jit
    def move(x):
        return (x.T, jnp.flip(x), jnp.roll(x, 1, 0), jnp.concatenate([x, x]), jnp.repeat(x, 2, 1), jnp.tile(x, 2),
                jnp.pad(x, 1, mode="edge"))

    for found, expected in zip(move(x), (x.T, x[::-1, ::-1], np.roll(x, 1, 0), np.concatenate([x, x]), np.repeat(x, 2, 1),
                                         np.tile(x, 2), np.pad(x, 1, mode="edge")), strict=True):
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(found), expected)


def test_questions_about_shapes():
    assert jnp.shape(X) == (3, 4)
    assert jnp.ndim(X) == 2
    assert jnp.size(X) == 12
    assert jnp.size(X, (0, 1)) == 12
    assert jnp.size(X, -1) == 4
    assert jnp.shape(1) == ()
    assert jnp.iterable([1])
    assert not jnp.iterable(1)
    assert jnp.broadcast_shapes((1, 2), (3, 1), 2) == (3, 2)
    assert jnp.broadcast_shapes() == ()
    assert jax.jit(lambda x: jnp.size(x) + x.ndim)(X) == 14


def test_weak_types_and_dtype_arguments():
    assert jnp.stack([1.0, 2.0]).weak_type
    weak = jnp.full((2, 2), 0.5)  # the main diagonal of a square is strong, others are as the matrix
    assert [jnp.diagonal(weak, k).weak_type for k in (-1, 0, 1, 2)] == [True, False, True, True]
    assert jnp.diagonal(weak[:1]).weak_type and not jnp.diag(weak).weak_type
    assert not jnp.stack([1.0, np.float32(2)]).weak_type
    same(jnp.stack([1.5, 2.5], dtype=int), np.array([1, 2]))
    same(jnp.concatenate([V, X[0]], dtype="int16"), np.concatenate([V, X[0].astype(np.int8)]).astype(np.int16))
    same(jnp.vstack([V], dtype=float), V[None].astype(np.float32))
    assert jnp.concatenate([jnp.asarray([1.0]), X[0]]).dtype == np.float32


def test_sequences_that_say_of_each_part_what_shape_it_has():
    class Blocks(list):
        ndim, shape = (1, 1), ((2,), (3,))

    same(jnp.concatenate(Blocks([V[:2], V[:3]])), np.concatenate([V[:2], V[:3]]))
    with pytest.warns(DeprecationWarning):
        assert jnp.shape(Blocks([1])) == ((2,), (3,))


# --- traced arguments --------------------------------------------------------------------------------


def test_roll_by_traced_amounts():
    roll = jax.jit(lambda s: (jnp.roll(X, s, 0), jnp.roll(X, s), jnp.roll(X, (s, 1), (0, 1)), jnp.roll(E, s, 0)))
    for shift in (0, 1, -1, 7, -13):
        same(roll(shift), (np.roll(X, shift, 0), np.roll(X, shift), np.roll(X, (shift, 1), (0, 1)), E))
    same(jnp.roll(X, jnp.array([1, 2]), (0, 1)), np.roll(X, (1, 2), (0, 1)))


def test_repeat_by_traced_counts():
    repeat = jax.jit(lambda counts: jnp.repeat(V, counts, total_repeat_length=6))
    for counts in ([0, 2, 0, 3, 0, 1], [1] * 6, [6, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 6]):
        same(repeat(np.array(counts)), np.repeat(V, counts))
    same(repeat(np.array([0, 1, 0, 0, 0, 0])), np.array([-2, 2, 2, 2, 2, 2], np.int8))  # the last element fills up
    same(repeat(np.array([4] * 6)), np.repeat(V, 4)[:6])
    same(jnp.repeat(X, 2, axis=0, total_repeat_length=4), np.repeat(X, 2, axis=0)[:4])
    with pytest.raises(jax.errors.ConcretizationTypeError):
        jax.jit(lambda counts: jnp.repeat(V, counts))(np.ones(6, int))


def test_insert_and_delete_at_traced_positions():
    insert = jax.jit(lambda i: jnp.insert(X, i, np.array([7, 8, 9]), 1))
    for place in (0, 2, 4, -1):
        same(insert(place), np.insert(X, place, [7, 8, 9], 1))
    insert = jax.jit(lambda i: jnp.insert(V, i, np.array([7, 8, 9])))
    for places in ([0, 0, 0], [5, 1, 1], [6, 6, 2], [-1, 3, -6]):
        same(insert(np.array(places)), np.insert(V, places, [7, 8, 9]))
    same(insert(np.array([9, -9, 1])), np.insert(V, [6, 0, 1], [7, 8, 9]))  # out of range: the ends
    same(jnp.insert(V, np.array([2**40, -(2**40), 1]), np.array([7, 8, 9])), np.insert(V, [6, 0, 1], [7, 8, 9]))
    with pytest.raises(OverflowError, match="too large to convert to int32"):
        jnp.insert(V, 2**40, 7)
    delete = jax.jit(lambda i: jnp.delete(V, i, assume_unique_indices=True))
    for places in ([0, 1], [5, 0], [-1, 2], [4, 3]):
        same(delete(np.array(places)), np.delete(V, places))
    long, many = np.arange(50), np.array([*range(0, 40, 2), -1])  # of many positions a running total tells
    same(jax.jit(lambda i: jnp.delete(long, i, assume_unique_indices=True))(many), np.delete(long, many))
    same(jax.jit(lambda counts: jnp.repeat(long, counts, total_repeat_length=80))(np.arange(50) % 3)[:49],
         np.repeat(long, np.arange(50) % 3)[:49])
    with pytest.raises(jax.errors.ConcretizationTypeError):
        jax.jit(lambda i: jnp.delete(V, i))(np.array([1, 2]))


def test_insert_and_delete_at_known_places_join_slices():
    calls = [lambda np, x: np.delete(x, 3), lambda np, x: np.delete(x, -1, 1), lambda np, x: np.delete(x, slice(1, 3), 1),
             lambda np, x: np.delete(x, slice(None), 1), lambda np, x: np.insert(x, -1, 9, 1),
             lambda np, x: np.insert(x, 0, X[0], 0), lambda np, x: np.insert(x, X.shape[0], 9, 0)]
    jitted = jax.jit(lambda x: [call(jnp, x) for call in calls])
    same(jitted(X), [call(np, X) for call in calls])
    assert "gather" not in str(jax.make_jaxpr(jitted)(X))


def test_compress_of_a_fixed_size():
    mask = np.array([True, False, True])
    same(jnp.compress(mask, X, 0, size=2), X[[0, 2]])
    same(jnp.compress(mask, X, 0, size=1), X[[0]])
    same(jnp.compress(mask, X, 0, size=3, fill_value=7), np.concatenate([X[[0, 2]], np.full((1, 4), 7, np.float32)]))
    same(jax.jit(lambda m: jnp.compress(m, X, 0, size=2))(mask), X[[0, 2]])


# --- padding -----------------------------------------------------------------------------------------

WIDTHS = [1, (1, 2), ((0, 2), (3, 0)), ((2, 4), (9, 1))]
PADDING = [
    ("constant", {}), ("constant", {"constant_values": 5}), ("constant", {"constant_values": ((1, 2), (3, 4))}),
    ("edge", {}), ("wrap", {}),
    ("reflect", {}), ("symmetric", {}), ("reflect", {"reflect_type": "odd"}), ("symmetric", {"reflect_type": "odd"}),
    ("linear_ramp", {}),
    ("linear_ramp", {"end_values": ((1, 2), (3, -4))}), ("maximum", {}), ("minimum", {}), ("mean", {}), ("median", {}),
    ("maximum", {"stat_length": 2}), ("minimum", {"stat_length": (1, 2)}), ("mean", {"stat_length": ((1, 2), (3, 1))}),
    ("median", {"stat_length": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "options"), PADDING, ids=repr)
def test_pad_against_numpy(mode, options):
    for width in WIDTHS if mode not in ("maximum", "minimum", "mean", "median") else WIDTHS[1:3]:
        expected = np.pad(X, width, mode=mode, **options)
        found = jnp.pad(X, width, mode=mode, **options)
        assert (found.shape, found.dtype) == (expected.shape, X.dtype)
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6, atol=1e-6)


def test_pad_of_other_dtypes_and_shapes():
    for mode in ("wrap", "reflect", "symmetric"):
        same(jnp.pad(V, (13, 17), mode=mode), np.pad(V, (13, 17), mode=mode))
        same(jnp.pad(V[:1], (3, 2), mode=mode), np.pad(V[:1], (3, 2), mode=mode))
    steps = np.array([1, 5, 2, 9])
    for mode in ("reflect", "symmetric"):
        same(jnp.pad(steps, (2, 11), mode=mode, reflect_type="odd"), np.pad(steps, (2, 11), mode=mode, reflect_type="odd"))
    same(jnp.pad(V, 2, mode="linear_ramp", end_values=(5, -4)), np.pad(V, 2, mode="linear_ramp", end_values=(5, -4)))
    same(jnp.pad(np.array([2, 3], np.int8), 1, mode="mean"), np.array([2, 2, 3, 2], np.int8))  # rounds to even
    same(jnp.pad(np.array([1, 2, 2], np.int8), 1, mode="mean"), np.array([2, 1, 2, 2, 2], np.int8))
    same(jnp.pad(X > 3, 1), np.pad(X > 3, 1))
    same(jnp.pad(X, ((1, 1), (0, 0)), mode="mean"), np.pad(X, ((1, 1), (0, 0)), mode="mean"))
    same(jnp.pad(X, 1, mode="empty")[1:-1, 1:-1], X)
    same(jnp.pad(E, ((0, 0), (1, 1)), mode="edge"), np.zeros((0, 5), np.float32))
    same(jnp.pad(E, 1), np.zeros((2, 5), np.float32))
    nan = np.array([1, np.nan, 3], np.float32)
    same(jnp.pad(nan, 1, mode="median"), np.array([np.nan, 1, np.nan, 3, np.nan], np.float32))
    weak = jax.jit(lambda v: jnp.pad(jnp.stack([v, v]), 1))(1.0)
    assert weak.weak_type


def test_pad_takes_the_median_of_statistics():
    wide = np.array([60000, 60000], np.float16)  # their sum is no float16
    assert jnp.pad(wide, 1, mode="median").tolist() == [60000] * 4
    with pytest.raises(ValueError, match="complex"):
        jnp.pad(np.ones(2, np.complex64), 1, mode="median")


def test_pad_with_traced_values_and_with_a_function():
    same(jax.jit(lambda v: jnp.pad(X, 1, constant_values=v))(2.0), np.pad(X, 1, constant_values=2))
    same(jnp.pad(X, 1, constant_values=(1, jnp.array(2))), np.pad(X, 1, constant_values=(1, 2)))

    def fill(vector, width, axis, options):
        return vector.at[:width[0]].set(options["low"]).at[-width[1]:].set(axis)

    def numpy_fill(vector, width, axis, options):
        vector[:width[0]], vector[-width[1]:] = options["low"], axis

    same(jnp.pad(X, ((1, 2), (3, 1)), fill, low=9), np.pad(X, ((1, 2), (3, 1)), numpy_fill, low=9))


# --- errors ------------------------------------------------------------------------------------------

ERRORS = [
    (lambda: jnp.reshape(jnp.array(X), (5, -1)), TypeError, r"\(3, 4\)"),
    (lambda: jnp.reshape(jnp.array(X), (5,)), TypeError, r"\(3, 4\).*\(5,\)"),
    (lambda: jnp.reshape(X, (-1, -1)), TypeError, "only one"), (lambda: jnp.reshape(X, (2.0, 6)), TypeError, "integer"),
    (lambda: jnp.reshape([1, 2], 2), TypeError, "reshape requires"),
    (lambda: jnp.reshape(X, 12, order="x"), ValueError, "order"),
    (lambda: jnp.ravel(X, "K"), NotImplementedError, "K"), (lambda: jnp.ravel([1]), TypeError, "ravel requires"),
    (lambda: jnp.squeeze(X, 0), ValueError, "size"), (lambda: jnp.squeeze(X, 5), ValueError, "5"),
    (lambda: jnp.squeeze(X[None], (0, 0)), ValueError, "0"),
    (lambda: jnp.expand_dims(X, 5), ValueError, "5"), (lambda: jnp.expand_dims(X, (0, 0)), ValueError, "repeated"),
    (lambda: jnp.expand_dims(X, 1.0), TypeError, "float"),
    (lambda: jnp.broadcast_to(X, (3, 5)), ValueError, r"\[3,4\].*\[3,5\]"),
    (lambda: jnp.broadcast_to(X, (4,)), ValueError, "fewer dimensions"),
    (lambda: jnp.broadcast_to(X, (3, -1)), ValueError, "does not fit"),
    (lambda: jnp.broadcast_to(X[:, :1], (3, -1)), TypeError, "nonnegative"),
    (lambda: jnp.broadcast_shapes((2,), (3,)), ValueError, "Incompatible"),
    (lambda: jnp.broadcast_arrays(X, V), ValueError, "Incompatible"),
    (lambda: jnp.atleast_2d([1]), TypeError, "atleast_2d"),
    (lambda: jnp.resize(X, -1), ValueError, "non-negative"), (lambda: jnp.transpose(X, (0, 0)), TypeError, r"\(3, 4\)"),
    (lambda: jnp.transpose(X, (0,)), TypeError, r"\(3, 4\)"), (lambda: jnp.transpose([1]), TypeError, "transpose"),
    (lambda: jnp.moveaxis(X, (0, 1), (0,)), ValueError, "2 vs 1"), (lambda: jnp.moveaxis(X, 5, 0), ValueError, "5"),
    (lambda: jnp.swapaxes(X, 0, 3), ValueError, "3"), (lambda: jnp.rollaxis(X, 0, 5), ValueError, "start"),
    (lambda: jnp.split(X, 2), ValueError, "equal division"), (lambda: jnp.split(X, 0), ValueError, "larger than 0"),
    (lambda: jnp.split(S, 1), ValueError, "axis"), (lambda: jnp.unstack(S), ValueError, "rank > 0"),
    (lambda: jnp.tile(X, -1), TypeError, "nonnegative"),
    (lambda: jnp.repeat(X, -1, 0), TypeError, "negative"),
    (lambda: jnp.repeat(X, np.array([1, 2]), 0), ValueError, "size 3, got 2"),
    (lambda: jnp.repeat(X, 1.5), TypeError, "integer"),
    (lambda: jnp.repeat(X, [1, 2, 3], 0), TypeError, "repeat requires"),
    (lambda: jnp.roll(X, (1, 2, 3), (0, 1)), ValueError, "3 and 2"), (lambda: jnp.roll(X, 1, 2), ValueError, "2"),
    (lambda: jnp.rot90(X, 1, (0, 0)), ValueError, "different"), (lambda: jnp.flip(X, 2), ValueError, "2"),
    (lambda: jnp.flip([1]), TypeError, "flip"),
    (lambda: jnp.diagonal(V), ValueError, "two dimensions"), (lambda: jnp.diag(CUBE), ValueError, "1d or 2d"),
    (lambda: jnp.diag(S), ValueError, "1d or 2d"),
    (lambda: jnp.append(X, X[0], 0), TypeError, r"\(3, 4\)"),
    (lambda: jnp.delete(X, np.array([5]), 1), IndexError, "out of bounds"),
    (lambda: jnp.delete(X, np.zeros(0), 1), ValueError, "float"), (lambda: jnp.split(X, [1.5]), TypeError, "integer"),
    (lambda: jnp.delete(X, 1.5, 1), ValueError, "float"), (lambda: jnp.insert(X, 1.5, 9, 1), ValueError, "float"),
    (lambda: jnp.compress(np.array([[True]]), X), ValueError, "1D"),
    (lambda: jnp.compress(np.ones(13), X), ValueError, "out of bounds"),
    (lambda: jnp.choose(V, (1, 2)), ValueError, "invalid entry"),
    (lambda: jnp.choose(X, (1, 2)), ValueError, "integer"),
    (lambda: jnp.choose(np.array([0]), (1, 2), mode="x"), ValueError, "mode"),
    (lambda: jnp.packbits(X), TypeError, "integer"),
    (lambda: jnp.packbits(V, bitorder="x"), ValueError, "little"), (lambda: jnp.unpackbits(V), TypeError, "unsigned"),
    (lambda: jnp.concatenate([]), ValueError, "at least one"),
    (lambda: jnp.concatenate([1, 2]), ValueError, "Zero-dimensional"),
    (lambda: jnp.concatenate([X, X[0]]), TypeError, r"\(3, 4\), \(4,\)"),
    (lambda: jnp.concatenate([X, X[:, :2]]), TypeError, r"\(3, 4\), \(3, 2\)"),
    (lambda: jnp.concatenate([[1], [2]]), TypeError, "concatenate requires"),
    (lambda: jnp.concatenate([X, None]), TypeError, "concatenate requires"),
    (lambda: jnp.concatenate([X], 2), ValueError, "2"), (lambda: jnp.stack([]), ValueError, "at least one"),
    (lambda: jnp.stack([X, X[0]]), ValueError, r"\(3, 4\), \(4,\)"),
    (lambda: jnp.stack([[1], [2]]), TypeError, "stack requires"),
    (lambda: jnp.stack([X], out=1), NotImplementedError, "out"), (lambda: jnp.block((1, 2)), ValueError, "tuple"),
    (lambda: jnp.block([]), ValueError, "empty"),
    (lambda: jnp.block([[1], 2]), ValueError, "Mismatched list depths"), (lambda: jnp.pad([1], 1), TypeError, "pad requires"),
    (lambda: jnp.pad(X, -1), ValueError, "negative"),
    (lambda: jnp.pad(X, 1.5), TypeError, "integral"), (lambda: jnp.pad(X, (1, 2, 3)), ValueError, "unsupported shape"),
    (lambda: jnp.pad(X, 1, mode="x"), NotImplementedError, "x"),
    (lambda: jnp.pad(X, 1, mode="edge", constant_values=1), ValueError, "unsupported keyword"),
    (lambda: jnp.pad(E, 1, mode="edge"), ValueError, "empty axis"),
    (lambda: jnp.pad(X, 1, mode="mean", stat_length=0), ValueError, "stat_length"),
    (lambda: jnp.pad(X, 1, mode="reflect", reflect_type="x"), ValueError, "reflect_type"),
    (lambda: jax.jit(lambda n: jnp.pad(X, n))(1), jax.errors.ConcretizationTypeError, "pad_width"),
    (lambda: jax.jit(lambda n: jnp.reshape(X, (n, 4)))(3), jax.errors.TracerIntegerConversionError, "static"),
    (lambda: jax.jit(lambda n: jnp.squeeze(X, n))(0), jax.errors.ConcretizationTypeError, "static"),
    (lambda: jax.jit(lambda n: jnp.split(X, n))(3), jax.errors.ConcretizationTypeError, "static"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), ERRORS, ids=range(len(ERRORS)))
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()


# --- programs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fun", "names"), [
    (lambda x: jnp.reshape(x, (3, 4)), []), (lambda x: jnp.broadcast_to(x, (3, 4)), []),
    (lambda x: jnp.transpose(x, (0, 1)), []),
    (lambda x: jnp.ravel(x), ["reshape"]), (lambda x: x.T, ["transpose"]), (lambda x: jnp.stack([x, x]), ["stack"]),
    (lambda x: jnp.concatenate([x, x]), ["concatenate"]), (lambda x: jnp.split(x, 3), ["split"]),
    (lambda x: jnp.tile(x, 2), ["tile"]),
    (lambda x: jnp.pad(x, 1), ["pad"]), (lambda x: jnp.repeat(x, 2, 0), ["broadcast_in_dim", "reshape"]),
    (lambda x: jnp.flip(x), ["rev"]),
])  # fmt: skip
def test_programs_are_small(fun, names):
    assert [eqn.primitive.name for eqn in jax.make_jaxpr(fun)(X).eqns] == names


@pytest.mark.parametrize("axes", [[0, 2], range(0, 3, 2), np.array([0, 2]), tuple(jnp.array([0, 2]))],
                         ids=["list", "range", "array", "tuple of arrays"])
def test_axes_in_any_sequence(axes):
    x = np.arange(4.0, dtype=np.float32).reshape(1, 4, 1)
    assert jnp.expand_dims(x, axes).shape == (1, 1, 1, 4, 1)
    assert jnp.squeeze(x, axes).tolist() == jnp.sum(x, axes).tolist() == jnp.max(x, axis=axes).tolist() == [0, 1, 2, 3]
    assert jnp.flip(x, axes).shape == jnp.fft.fftshift(x, axes).shape == x.shape
    assert len(jnp.gradient(np.tile(x, (2, 1, 2)), axis=axes)) == 2


def test_split_into_many_pieces():
    x = np.arange(64 * 12, dtype=np.float32)
    assert [part.shape for part in jnp.split(x, range(64, 64 * 12, 64))] == [(64,)] * 12


def test_what_changes_nothing_copies_nothing():
    x, v, s = jnp.asarray(X), jnp.asarray(V), jnp.float32(1)
    for same_array in (x[:], x[:, :], x[...], x[0:3], x[:, 0:9], x[..., :], x.reshape(3, 4), jnp.reshape(x, (-1, 4)),
                       jnp.broadcast_to(x, (3, 4))):
        assert same_array is x
    assert v.T is v
    assert v.transpose() is v
    assert s.T is s
    for other in (x[::1, 1:], x[0:2], x[::-1], x[None], x[:, :, None], x.reshape(3, 4, copy=True), x.reshape(3, 4, order="F"),
                  jnp.broadcast_to(x, (1, 3, 4))):
        assert other is not x
    with pytest.raises(IndexError):
        x[:, :, :]
    np.testing.assert_array_equal(x.at[0:3].set(1.0), np.ones_like(X))
    assert not jax.make_jaxpr(lambda x: jnp.reshape(x, (3, 4), copy=True))(x).eqns
    empty = jnp.zeros((0, 3))
    assert empty[:5] is empty
    np.testing.assert_array_equal(x[0:3, 1], X[0:3, 1])
