"""Primitives that change type, shape or order, against NumPy: values, dtypes, weak types, empty shapes, errors."""

from __future__ import annotations

import functools
import re
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import jaxlite
from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core.primitive import Primitive
from jaxlite.lax import shaping

inf, nan = np.inf, np.nan
NAMES = ("bool int4 uint4 int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 "
         "float8_e4m3fn float8_e5m2 complex64 complex128").split()


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def kind(name: str) -> str:
    return "b" if name == "bool" else "u" if name[0] == "u" else name[0] if name[0] in "ic" else "f"


# --- types -------------------------------------------------------------------------------------------


def samples(name: str) -> np.ndarray:
    """Values of a dtype, its limits among them."""
    dtype = dtype_of(name)
    if kind(name) == "b":
        return np.array([False, True])
    if kind(name) in "iu":
        info = ml_dtypes.iinfo(dtype)
        low, high = int(info.min), int(info.max)
        return np.array([low, high, 0, 1, 3, high // 2, high // 3, *([-1, -3, low // 2] if low else [])], object
                        ).astype(dtype)
    values = [0.0, -0.0, 1.0, -1.0, 0.3, -0.7, 1.5, 2.5, 3.999, -3.999, 100.5, 1e3, 1e5, -1e5, 3e9, 1e20, inf, -inf,
              nan]
    with np.errstate(all="ignore"):
        result = np.array(values).astype(dtype)
    return result + np.array([2j, -1j], dtype)[np.arange(len(values)) % 2] if kind(name) == "c" else result


def converted(x: np.ndarray, old: str, new: str) -> np.ndarray:
    """Integers wrap; floats become integers towards zero and saturate, NaN is 0; complex drops the imaginary part."""
    target = dtype_of(new)
    if kind(new) == "b":
        return x != 0
    if kind(old) == "c" and kind(new) != "c":
        x = x.real
    if kind(new) in "iu":
        info = ml_dtypes.iinfo(target)
        low, high = int(info.min), int(info.max)
        if kind(old) in "biu":
            return np.array([(int(v) - low) % (1 << info.bits) + low for v in x], object).astype(target)
        values = [0 if np.isnan(v) else max(low, min(high, int(np.clip(v, -2.0**70, 2.0**70))))
                  for v in x.astype(np.float64)]
        return np.array(values, object).astype(target)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind(old) in "iu" and target.itemsize < 4:  # once rounded
            return x.astype(np.float64).astype(target)
        return x.astype(target)


@pytest.mark.parametrize("old", NAMES)
def test_conversions_between_dtypes(old, x64):
    x = samples(old)
    # Each pair is a kernel to compile: integers of one kind go to all dtypes once, and to one of each kind otherwise.
    few = old in ("uint4", "int8", "int16", "uint16", "uint32", "int64", "complex128")
    news = ["bool", "int4", "uint8", "int32", "bfloat16", "float32", "complex64"] if few else NAMES
    results = jaxlite.jit(lambda x: [lax.convert_element_type(x, dtype_of(new)) for new in news])(x)
    for new, result in zip(news, results, strict=True):
        assert result.dtype == dtype_of(new) and not result.weak_type
        got, want = np.asarray(result), converted(x, old, new)
        if kind(new) in "fc":
            got, want = got.astype(np.complex128), want.astype(np.complex128)
            assert np.array_equal(np.signbit(got.real[:2]), np.signbit(want.real[:2])), new
        assert np.array_equal(got, want, equal_nan=kind(new) in "fc"), (new, [
            each for each in zip(x, got, want) if each[1] != each[2]])


def test_conversions_and_weak_types():
    x = np.arange(3, dtype=np.float32)
    assert not lax.convert_element_type(1.0, float).weak_type and not lax.convert_element_type(1.0, np.float32).weak_type
    with pytest.raises(ValueError, match="dtype"):
        lax.convert_element_type(x, None)
    assert not lax.convert_element_type(2.0, np.float32).weak_type
    assert lax.convert_element_type(x, int).dtype == np.int32 and lax.convert_element_type(x, bool).dtype == bool
    y = jaxlite.numpy.ones(2)
    assert lax.convert_element_type(y, np.float32) is y
    text = str(jaxlite.make_jaxpr(lambda x: lax.convert_element_type(x, np.int8))(x))
    assert "convert_element_type[new_dtype=int8 weak_type=False]" in text
    with pytest.raises(TypeError):
        lax.convert_element_type(x, "no such dtype")


WIDTHS = {name: dtype_of(name).itemsize for name in NAMES if kind(name) in "iuf" and "int4" not in name}


@pytest.mark.parametrize("old", WIDTHS)
def test_bitcasts_read_the_same_bytes(old, x64):
    bits = np.random.default_rng(0).integers(0, 256, 16 * WIDTHS[old], np.uint8)
    x = bits.view(f"u{WIDTHS[old]}")  # as words: floats would have NaNs of many patterns
    news = list(WIDTHS)

    def casts(x):
        x = lax.bitcast_convert_type(x, dtype_of(old))
        results = []
        for new in news:
            ratio = WIDTHS[new] // WIDTHS[old]
            y = lax.bitcast_convert_type(x.reshape(-1, ratio) if ratio > 1 else x, dtype_of(new))
            results.append((y, lax.bitcast_convert_type(y, np.dtype(f"u{WIDTHS[new]}"))))
        return results

    for new, (cast, words) in zip(news, jaxlite.jit(casts)(x), strict=True):
        ratio = WIDTHS[old] // WIDTHS[new]
        assert cast.dtype == dtype_of(new)
        assert cast.shape == ((16, ratio) if ratio > 1 else (16 * WIDTHS[old] // WIDTHS[new],))
        assert np.array_equal(np.asarray(words).ravel().view(np.uint8), bits)


def test_bitcasts_of_narrow_integers_and_their_errors():
    x = np.array([0x12, 0xF7], np.uint8)
    assert np.array_equal(np.asarray(lax.bitcast_convert_type(x, ml_dtypes.uint4)).astype(int), [[2, 1], [7, 15]])
    flags = np.array([True, False])
    assert np.array_equal(lax.bitcast_convert_type(flags, bool), flags)
    with pytest.raises(TypeError, match="does not support bool or complex"):
        lax.bitcast_convert_type(flags, np.int8)
    with pytest.raises(ValueError, match=r"array of shape \(2,\) from uint8 of size 8 bits to int32 of size 32"):
        lax.bitcast_convert_type(x, np.int32)
    with pytest.raises(ValueError, match=r"array of shape \(\)"):
        lax.bitcast_convert_type(np.uint8(1), np.int16)
    with pytest.warns(UserWarning, match="dtype int64 requested in bitcast_convert_type is not available"):
        assert lax.bitcast_convert_type(np.float32(1), np.int64).dtype == np.int32


def test_reduce_precision():
    x = np.array([1.0, 1.00048828125, 65504.0, 1e6, -1e-9, nan, inf], np.float32)
    with np.errstate(over="ignore"):
        as_half = x.astype(np.float16).astype(np.float32)
    half, brain, narrow = jaxlite.jit(lambda x: (
        lax.reduce_precision(x, 5, 10), lax.reduce_precision(x, 8, 7), lax.reduce_precision(x, 4, 3)))(x)
    np.testing.assert_array_equal(half, as_half)
    np.testing.assert_array_equal(brain, x.astype(ml_dtypes.bfloat16).astype(np.float32))
    assert half.dtype == np.float32 and np.asarray(narrow)[3] == inf
    with pytest.raises(TypeError, match="does not accept dtype int32"):
        lax.reduce_precision(np.ones(2, np.int32), 5, 10)
    for bits in ((0, 3), (3, -1)):
        with pytest.raises(ValueError, match="exponent_bits|mantissa_bits"):
            lax.reduce_precision(x, *bits)


# --- shapes ------------------------------------------------------------------------------------------

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
EMPTY = np.ones((0, 3), np.int8)


def spread(x: np.ndarray, config: Any, value: Any) -> np.ndarray:
    """`pad` by index arithmetic."""
    sizes = [low + high + n + max(0, n - 1) * inner for n, (low, high, inner) in zip(x.shape, config)]
    out = np.full(sizes, value, x.dtype)
    for index in np.ndindex(*x.shape):
        place = tuple(low + i * (inner + 1) for i, (low, _, inner) in zip(index, config))
        if all(0 <= p < size for p, size in zip(place, sizes)):
            out[place] = x[index]
    return out


CONFIGS = [((1, 2, 0), (0, 0, 1), (-1, 3, 2)), ((0, 0, 0), (-1, -1, 0), (2, -3, 1)),
           ((-1, -1, 0), (0, 0, 0), (0, 0, 0)),
           *[((0, 0, 0), (0, 0, 0), last) for last in ((0, 0, 4), (1, 0, 5), (6, 5, 5), (3, 3, 5), (5, 4, 4), (8, 3, 4))]]
SHAPINGS = [
    ("broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (5, 2, 3, 4), (1, 2, 3)),
     lambda x: np.broadcast_to(x, (5, 2, 3, 4))),
    ("broadcast_in_dim", lambda x: lax.broadcast_in_dim(x[:, :1], (2, 6, 7, 4), (0, 1, 3)),
     lambda x: np.broadcast_to(x[:, :1, None], (2, 6, 7, 4))),
    ("broadcast_in_dim", lambda x: lax.broadcast(x, (2, 0)), lambda x: np.broadcast_to(x, (2, 0, *x.shape))),
    ("broadcast_in_dim", lambda x: lax.broadcast_to_rank(x, 5), lambda x: x[None, None]),
    ("broadcast_in_dim", lambda x: lax.expand_dims(x, (0, -1, 2)), lambda x: np.expand_dims(x, (0, -1, 2))),
    ("reshape", lambda x: lax.reshape(x, (4, 6)), lambda x: x.reshape(4, 6)),
    ("reshape", lambda x: lax.reshape(x, (6, 4), dimensions=(2, 0, 1)), lambda x: x.transpose(2, 0, 1).reshape(6, 4)),
    ("reshape", lambda x: lax.collapse(x, 0, 2), lambda x: x.reshape(6, 4)),
    ("reshape", lambda x: lax.collapse(x, 1), lambda x: x.reshape(2, 12)),
    ("transpose", lambda x: lax.transpose(x, (2, 0, 1)), lambda x: x.transpose(2, 0, 1)),
    ("squeeze", lambda x: lax.squeeze(x[:, :1], (-2,)), lambda x: x[:, 0]),
    ("rev", lambda x: lax.rev(x, (0, 2)), lambda x: x[::-1, :, ::-1]),
    ("concatenate", lambda x: lax.concatenate([x, x[:, :0], x[:, 1:]], 1),
     lambda x: np.concatenate([x, x[:, 1:]], 1)),
    *[("pad", lambda x, c=c: lax.pad(x, np.float32(9), c), lambda x, c=c: spread(x, c, 9)) for c in CONFIGS],
    ("stack", lambda x: lax.stack([x, -x, x], axis=-1), lambda x: np.stack([x, -x, x], -1)),
    ("tile", lambda x: lax.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3))),
    ("tile", lambda x: lax.tile(x, (0, 1, 3)), lambda x: np.tile(x, (0, 1, 3))),
]


def test_shapes_and_order_match_numpy():
    """All rows in one compiled function, and each on its own."""
    results = jaxlite.jit(lambda x: [ours(x) for _, ours, _ in SHAPINGS])(X)
    for (name, ours, numpy), result in zip(SHAPINGS, results, strict=True):
        want = numpy(X)
        assert result.dtype == np.float32 and np.array_equal(result, want) and result.shape == want.shape, name
        assert name in str(jaxlite.make_jaxpr(ours)(X))


def test_what_is_repeated_is_turned_where_it_is_small():
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    turn = jaxlite.jit(lambda x: lax.transpose(lax.broadcast_in_dim(x, (5, 2, 4, 3), (1, 3)), (3, 0, 2, 1)))
    np.testing.assert_array_equal(turn(x), np.broadcast_to(x.T[:, None, None], (3, 5, 4, 2)))
    text = turn.lower(x).as_text()
    assert re.findall(r"transpose .*-> tensor<(\w+)>", text) == ["3x2xf32"]


def test_elements_that_are_a_diagonal_of_rows_are_chosen_and_not_padded():
    def is_padded(rows: int, columns: int, offset: int) -> bool:
        take = jaxlite.linear_transpose(lambda x: jnp.diagonal(x, offset, -2, -1), np.zeros((3, rows, columns), np.float32))
        length = jnp.diagonal(np.zeros((rows, columns)), offset).size
        return "stablehlo.pad" in jaxlite.jit(take).lower(np.zeros((3, length), np.float32)).as_text()

    assert not is_padded(7, 7, 0) and not is_padded(5, 7, 0)
    assert is_padded(7, 7, 1)  # the row that has no element


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("float64", "int64", "uint64", "complex128")])
def test_every_dtype_moves(name):
    x = np.arange(6).reshape(2, 3).astype(dtype_of(name))
    zero = np.zeros((), x.dtype)[()]
    results = jaxlite.jit(lambda x, zero: (
        lax.rev(x, (1,)), lax.transpose(x, (1, 0)), lax.concatenate([x, x], 0),
        lax.pad(x, zero, ((1, 0, 0), (0, 0, 1))),
        lax.tile(x, (1, 2)), lax.broadcast(x, (2,)), lax.stack([x, x]), lax.optimization_barrier(x)))(x, zero)
    wants = (x[:, ::-1], x.T, np.concatenate([x, x]), spread(x, ((1, 0, 0), (0, 0, 1)), zero), np.tile(x, (1, 2)),
             np.broadcast_to(x, (2, 2, 3)), np.stack([x, x]), x)
    for got, want in zip(results, wants, strict=True):
        assert got.dtype == x.dtype and np.array_equal(np.asarray(got).astype(complex), want.astype(complex))


def test_empty_and_zero_dimensional():
    results = jaxlite.jit(lambda e, s: (
        lax.reshape(e, (3, 0)), lax.transpose(e, (1, 0)), lax.rev(e, (0,)), lax.concatenate([e, e], 1),
        lax.pad(e, np.int8(7), ((1, 1, 3), (0, 0, 0))), lax.reshape(s, (1, 1)), lax.transpose(s, ()), lax.rev(s, ()),
        lax.broadcast(s, (3,)), lax.tile(s, ()), lax.squeeze(s, ()), lax.pad(s, s, ())))(EMPTY, np.int8(5))
    wants = [EMPTY.reshape(3, 0), EMPTY.T, EMPTY, np.ones((0, 6)), np.full((2, 3), 7), [[5]], 5, 5, [5, 5, 5], 5, 5, 5]
    for got, want in zip(results, wants, strict=True):
        assert got.shape == np.shape(want) and got.dtype == np.int8 and np.array_equal(got, want)


def test_split_and_unstack_give_pieces():
    pieces, rows, none = jaxlite.jit(lambda x: (lax.split(x, (1, 0, 3), axis=-1), lax.unstack(x, axis=1),
                                                lax.unstack(x[:, :0], axis=1)))(X)
    for got, want in zip(pieces, np.split(X, [1, 1], axis=-1), strict=True):
        assert np.array_equal(got, want)
    assert len(rows) == 3 and all(np.array_equal(row, X[:, i]) for i, row in enumerate(rows)) and len(none) == 0


def test_broadcast_shapes():
    assert lax.broadcast_shapes((2, 1), (3,), ()) == (2, 3) and lax.broadcast_shapes() == ()
    assert lax.broadcast_shapes((0, 1), (1, 5)) == (0, 5) == np.broadcast_shapes((0, 1), (1, 5))
    with pytest.raises(ValueError, match="Incompatible shapes for broadcasting"):
        lax.broadcast_shapes((2,), (3,))
    assert lax.broadcast_like(np.ones(4, np.int8), X).shape == X.shape


def test_weak_types_pass_through():
    def moved(x):
        return (lax.broadcast(x, (2,)), lax.reshape(x, (1,)), lax.stack([x, x]), lax.stack([x, np.float32(1)]),
                lax.full_like(x, 2), lax.full((2,), 1.0), lax.full((2,), 1.0, np.float32), lax.iota(np.float32, 2))

    assert [out.weak_type for out in jaxlite.jit(moved)(1.0)] == [True, True, True, False, True, True, False, False]


# --- values from nothing, identities -----------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in NAMES if name != "bool"])
def test_iota_and_full_of_every_dtype(name, x64):
    dtype = dtype_of(name)
    line, grid, full, like, empty = jaxlite.jit(lambda: (
        lax.iota(dtype, 5), lax.broadcasted_iota(dtype, (2, 3), -1), lax.full((2, 2), 3, dtype),
        lax.full_like(X, 2, dtype, (2,)), lax.empty((2, 0), dtype)))()
    for got, want in ((line, range(5)), (grid, [[0, 1, 2]] * 2), (full, [[3, 3]] * 2), (like, [2, 2])):
        assert got.dtype == dtype and np.array_equal(np.asarray(got).astype(complex), want)
    assert empty.shape == (2, 0) and empty.dtype == dtype


@pytest.mark.parametrize("value", [2**31, 2**40 + 5, -2**40 - 1, 2**63 + 3])
def test_full_takes_the_bits_of_wide_python_ints(value):
    bits = value % 2**32  # modular arithmetic: what a conversion between integer types of XLA keeps
    want = np.array([bits, bits], np.uint32)
    for make in (lax.full, jnp.full):
        weak = make((2,), value)
        assert weak.dtype == np.int32 and weak.weak_type
        traced = jaxlite.jit(functools.partial(make, (2,), value))()
        for got in (weak, traced, make((2,), value, np.int32), make((2,), value, np.uint32)):
            np.testing.assert_array_equal(np.asarray(got).view(np.uint32), want)
        with pytest.raises(OverflowError):
            make((2,), 2**70)


def test_full_takes_its_dtype_from_the_value():
    assert lax.full((), True).dtype == bool and lax.full((3,), np.int8(2)).dtype == np.int8
    assert lax.full_like(X, 7).shape == X.shape and lax.full_like(3, 1).dtype == np.int32
    with pytest.raises(TypeError, match="scalar fill_value"):
        lax.full((2,), np.ones(2))
    with pytest.raises(TypeError, match="iota does not accept dtype bool"):
        lax.iota(bool, 3)
    with pytest.raises(ValueError, match="dimension 2 is out of bounds"):
        lax.broadcasted_iota(np.int32, (2, 3), 2)


def test_identities_keep_trees():
    tree = {"a": np.float32(1), "b": (X, np.arange(2)), "c": None}
    for identity in (lax.stop_gradient, lax.optimization_barrier):
        for out in (identity(tree), jaxlite.jit(identity)(tree)):
            assert out.keys() == tree.keys() and out["c"] is None and out["a"] == 1
            assert np.array_equal(out["b"][0], X) and np.array_equal(out["b"][1], [0, 1])
    text = str(jaxlite.make_jaxpr(lax.optimization_barrier)((X, X)))
    assert "c:f32[2,3,4] d:f32[2,3,4] = optimization_barrier a b" in text


# --- errors ------------------------------------------------------------------------------------------

HUGE = 1 << 40
ERRORS = [
    (lambda: lax.reshape(X, (5, 5)), TypeError, "reshape total size must be unchanged"),
    (lambda: lax.reshape(X, (-1, 24)), TypeError, "must have every element be nonnegative"),
    (lambda: lax.reshape(X, (4, 6), (0, 1)), TypeError, "permutation"),
    (lambda: lax.reshape(X, (2.5, 3)), TypeError, "concrete values of integer type"),
    (lambda: lax.reshape(X, (HUGE, HUGE, HUGE)), ValueError, "too many elements"),
    (lambda: lax.broadcast_in_dim(X, (2, 3), (0, 1, 2)), TypeError, "subset of output dimensions"),
    (lambda: lax.broadcast_in_dim(X, (2, 3, 4), (0, 1)), TypeError, "length equal to operand ndim"),
    (lambda: lax.broadcast_in_dim(X, (2, 4, 4), (0, 1, 2)), TypeError, "must either be 1"),
    (lambda: lax.broadcast_in_dim(X, (2, 3, 4), (0, 2, 1)), TypeError, "operand dimension sizes"),
    (lambda: lax.broadcast(X, (HUGE, HUGE)), ValueError, "too many elements"),
    (lambda: lax.broadcast(X, (-2,)), TypeError, "nonnegative"),
    (lambda: lax.collapse(X, 2, 1), ValueError, "Invalid dimension range"),
    (lambda: lax.transpose(X, (0, 1)), TypeError, "permutation isn't a permutation"),
    (lambda: lax.transpose(X, (0, 0, 1)), TypeError, "permutation isn't a permutation"),
    (lambda: lax.squeeze(X, (0,)), ValueError, "cannot select an axis to squeeze out"),
    (lambda: lax.squeeze(X, (5,)), ValueError, "out of bounds"),
    (lambda: lax.squeeze(X[:1], (0, -3)), ValueError, "not unique"),
    (lambda: lax.expand_dims(X, (0, 0)), ValueError, "repeated axis"),
    (lambda: lax.expand_dims(X, (9,)), ValueError, "out of bounds"),
    (lambda: lax.rev(X, (0, 0)), TypeError, "unique"),
    (lambda: lax.rev(X, (3,)), TypeError, "less than operand ndim"),
    (lambda: lax.concatenate([], 0), ValueError, "non-empty"),
    (lambda: lax.concatenate([X, X[:, :2]], 0), TypeError, "differ in dimensions other than"),
    (lambda: lax.concatenate([X, X], 3), TypeError, "out of bounds"),
    (lambda: lax.concatenate([X, X.astype(np.int32)], 0), TypeError, "same dtypes"),
    (lambda: lax.concatenate([X, X[0]], 0), TypeError, "concatenat"),
    (lambda: lax.pad(X, np.int32(0), [(0, 0, 0)] * 3), TypeError, "same dtype"),
    (lambda: lax.pad(X, X[0, 0], [(0, 0, 0)] * 3), ValueError, "must be a scalar"),
    (lambda: lax.pad(X, np.float32(0), [(0, 0, 0)] * 2), ValueError, "length of padding_config"),
    (lambda: lax.pad(X, np.float32(0), [(0, 0, -1)] * 3), ValueError, "nonnegative"),
    (lambda: lax.pad(X, np.float32(0), [(-9, 0, 0)] * 3), ValueError, "not at least 0"),
    (lambda: lax.pad(X, np.float32(0), [(0, 0)] * 3), ValueError, "triple"),
    (lambda: lax.pad(X, np.float32(0), [(HUGE, HUGE, HUGE)] * 3), ValueError, "too many elements"),
    (lambda: lax.split(X, (1, 2), axis=2), ValueError, "Sum of sizes 3"),
    (lambda: lax.split(X, (-1, 5), axis=2), ValueError, "nonnegative"),
    (lambda: lax.stack([]), ValueError, "non-empty"),
    (lambda: lax.stack([X, X[0]]), TypeError, "stack"),
    (lambda: lax.stack([X, X], axis=5), ValueError, "out of bounds"),
    (lambda: lax.unstack(np.float32(1)), ValueError, "rank > 0"),
    (lambda: lax.tile(X, (2,)), TypeError, "reps length must be equal"),
    (lambda: lax.tile(X, (2, -1, 1)), TypeError, "nonnegative"),
    (lambda: lax.tile(X, (HUGE, HUGE, 1)), ValueError, "too many elements"),
    (lambda: lax.iota(np.int32, -1), TypeError, "nonnegative"),
    (lambda: lax.full((HUGE, HUGE), 0), ValueError, "too many elements"),
    (lambda: lax.broadcasted_iota(np.int32, (HUGE, HUGE), 0), ValueError, "too many elements"),
]


@pytest.mark.parametrize(("call", "error", "message"), ERRORS)
def test_errors(call, error, message):
    """The same eagerly and under jit: raised in Python, before anything is compiled."""
    with pytest.raises(error, match=message):
        call()
    with pytest.raises(error, match=message):
        jaxlite.jit(call)()


def test_huge_shapes_that_arise_inside_are_errors_too():
    with pytest.raises(ValueError, match="too many elements"):
        jaxlite.jit(lambda: lax.add(lax.full((1 << 35, 1), 0.0), lax.full((1, 1 << 35), 0.0)))()


def test_more_memory_than_there_is_raises():
    with pytest.raises((RuntimeError, ValueError, MemoryError)):
        lax.full((1 << 30, 1 << 14), 0.0).block_until_ready()


def test_traced_sizes_are_refused():
    with pytest.raises(TypeError, match="(?s)Shapes must be .* concrete values .*argument n"):
        jaxlite.jit(lambda n: lax.full((n,), 0.0))(3)


def test_every_primitive_is_tested():
    """Each primitive of the module appears in a jaxpr that the tests above make."""

    def all_of_them(x):
        row = x[0, 0]
        return [ours(x) for _, ours, _ in SHAPINGS] + [
            lax.split(x, (1, 1)), lax.unstack(x), lax.iota(np.int32, 2), lax.empty((2,), np.int8),
            lax.stop_gradient(row), lax.optimization_barrier(row), lax.convert_element_type(row, np.int8),
            lax.bitcast_convert_type(row, np.int32), lax.reduce_precision(row, 5, 10), shaping.copy_p.bind(row)]

    text = str(jaxlite.make_jaxpr(all_of_them)(X))
    names = {each.name for each in vars(shaping).values() if isinstance(each, Primitive)}
    names.remove("dim_as_value")  # of symbolic dimensions: tests/export
    assert {name for name in names if f" {name}[" not in text and f" {name} " not in text} == set()


def test_a_rank_that_an_array_has_or_exceeds():
    for rank in (1, X.ndim):
        np.testing.assert_array_equal(lax.broadcast_to_rank(X, rank), X)


@pytest.mark.parametrize("call", [
    lambda: lax.full((2,), 1, "float64"), lambda: lax.iota(np.int64, 2), lambda: lax.broadcasted_iota("int64", (2,), 0),
    lambda: lax.convert_element_type(np.float32(1), np.float64)])
def test_wide_dtypes_asked_for_by_name_warn(call):
    with pytest.warns(UserWarning, match="Explicitly requested dtype .*64"):
        assert call().dtype.itemsize == 4


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_numpys_floats_become_integers_as_in_numpy(dtype):
    values = np.array([300.0, -5.0, 70000.0, 2.9])
    for given in (values, values.astype(np.float32), values[0]):
        expected = given.astype(dtype)
        np.testing.assert_array_equal(lax.convert_element_type(given, dtype), expected)
        np.testing.assert_array_equal(jaxlite.jit(lambda given=given: lax.convert_element_type(given, dtype))(), expected)


@pytest.mark.parametrize("name", ["int2", "uint2", "int4"])
def test_arrays_of_few_bits_are_joined_and_padded(name):
    dtype = dtype_of(name)
    x, y = np.array([[1, 0, 1], [0, 1, 1]]).astype(dtype), np.array([[1, 1, 0], [0, 0, 1]]).astype(dtype)

    def check(found, expected):
        assert found.dtype == dtype
        np.testing.assert_array_equal(np.asarray(found).astype(int), expected)

    for axis in (0, 1):
        for join in (lax.concatenate, jaxlite.jit(lax.concatenate, static_argnums=1)):
            check(join([jnp.asarray(x), jnp.asarray(y)], axis), np.concatenate([x.astype(int), y.astype(int)], axis))
    row = jnp.asarray(x)[0]
    for config, expected in (((1, 2, 0), [0, 1, 0, 1, 0, 0]), ((0, 0, 1), [1, 0, 0, 0, 1]), ((-1, 0, 0), [0, 1])):
        check(lax.pad(row, jnp.zeros((), dtype), (config,)), expected)
    check(lax.associative_scan(lax.bitwise_xor, row), [1, 1, 0])
