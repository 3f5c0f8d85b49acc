"""Making arrays with jaxlite.numpy: from data, constants and ranges; scalar types; questions about dtypes."""

import array as python_array
import ast
import copy
import operator
import pickle
import warnings
from collections import UserList, deque

import ml_dtypes
import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp

F32, I32, C64, BOOL = (np.dtype(name) for name in ("float32", "int32", "complex64", "bool"))
BF16 = np.dtype(ml_dtypes.bfloat16)
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def check(found, expected, dtype, weak=False):
    expected = np.asarray(expected)
    assert isinstance(found, jax.Array)
    assert (found.shape, found.dtype, found.weak_type) == (expected.shape, dtype, weak)
    np.testing.assert_array_equal(np.asarray(found), expected.astype(dtype))


# --- from data ---------------------------------------------------------------------------------------

class Subclass(np.ndarray):
    """A subclass of NumPy's array."""


DATA = [  # data, dtype of the result, whether it is weak
    (1, I32, True), (1.5, F32, True), (1j, C64, True), (True, BOOL, False),
    (np.float64(1.5), F32, False), (np.int64(3), I32, False), (np.float16(2), np.dtype("float16"), False),
    (np.array(3, np.uint8), np.dtype("uint8"), False),
    ([], F32, False), ([[], []], F32, False), ((), F32, False),
    ([1, 2], I32, False), ([1, 2.5], F32, False), ([True, 2], I32, False), ([True, False], BOOL, False),
    ([1, 2j], C64, False), ([(1, 2), [3, 4]], I32, False), (range(4), I32, False),
    ([range(2), range(2, 4)], I32, False),
    ([np.int8(1), 2], np.dtype("int8"), False), ([np.int8(1), 2.5], F32, False),
    ([np.int8(1), np.uint8(2)], np.dtype("int16"), False), ([np.float16(1), np.float32(2)], F32, False),
    ([np.array([1, 2], np.int8), [3, 4]], np.dtype("int8"), False), ([np.zeros((2, 0))] * 2, F32, False),
    (X, F32, False), (X.T, F32, False), (X[::2, ::-1], F32, False), (X[:, 1:2], F32, False),
    (np.asfortranarray(X), F32, False),
    (np.array([1.5], BF16), BF16, False), (np.array([[1, 2]]).view(Subclass), I32, False), (2**31 - 1, I32, True),
    (-2**31, I32, True),
    (np.array([1, np.nan, np.inf]), F32, False),
]  # fmt: skip


@pytest.mark.parametrize(("data", "dtype", "weak"), DATA, ids=range(len(DATA)))
def test_array_and_asarray_have_the_datas_values_and_canonical_dtype(data, dtype, weak):
    check(jnp.array(data), np.array(data), dtype, weak)
    check(jnp.asarray(data), np.array(data), dtype, weak)


@pytest.mark.parametrize(("text", "dtype", "value"), [
    ("3.5", "float32", 3.5), (["1", b"2"], "int8", [1, 2]), ("1+2j", "complex64", 1 + 2j)])
def test_text_is_read_as_the_dtype_that_is_asked_for(text, dtype, value):
    found = jnp.asarray(text, dtype)
    assert found.dtype == dtype and (np.asarray(found) == value).all()
    with pytest.raises(TypeError, match="not a valid JAX array type"):
        jnp.asarray(text)


@pytest.mark.parametrize("data", [memoryview(b"abc"), bytearray(b"abc"), python_array.array("i", [1, 2])],
                         ids=["memoryview", "bytearray", "array"])
def test_buffers_become_arrays(data):
    check(jnp.array(data), np.asarray(data), np.asarray(data).dtype)


class Rows(list):
    """A list that is no pytree."""


class Sequence:
    """A sequence of the user's own."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return [1, 2][index]


class Readable:
    """What NumPy reads."""

    def __array__(self, dtype=None, copy=None):
        return np.array([1, 2], np.int8)


class Number:
    """What is a number if it is asked for one."""

    def __float__(self):
        return 2.5


@pytest.mark.parametrize(("data", "expected", "dtype"), [
    (Rows([1, 2]), [1, 2], I32), (deque([1, 2.5]), [1, 2.5], F32), (Sequence(), [1, 2], I32), (UserList([1, 2]), [1, 2], I32),
    (Readable(), [1, 2], np.dtype("int8")), (Rows([Readable()]), [[1, 2]], np.dtype("int8")),
    ([deque([1, 2]), (3, 4)], [[1, 2], [3, 4]], I32), ((Readable(), [1.5, 2]), [[1, 2], [1.5, 2]], F32),
    ([memoryview(b"ab")], [[97, 98]], np.dtype("uint8")),
], ids=range(9))
def test_what_numpy_reads_becomes_an_array(data, expected, dtype):
    check(jnp.array(data), expected, dtype)


def test_sequences_that_hold_arrays_and_numbers_on_request():
    check(jax.jit(lambda x: jnp.array(deque([x, Rows([3.0, 4.0])])))(jnp.ones(2)), [[1, 1], [3, 4]], F32)
    check(jnp.array([Number(), 1], float), [2.5, 1], F32)
    for data in (Number(), [Number()], [object()]):
        with pytest.raises(TypeError, match="not a valid JAX array type"):
            jnp.array(data)


class Wrapper:
    """A class that stands for an array."""

    def __jax_array__(self):
        return jnp.asarray(np.array([1, 2], np.int8))


def test_lists_of_arrays_are_stacked_in_the_promoted_dtype():
    a, b = jnp.array([1, 2]), jnp.array([3.5, 4.5])
    check(jnp.array([a, b]), [[1, 2], [3.5, 4.5]], F32)
    check(jnp.array([a, [3, 4]]), [[1, 2], [3, 4]], I32)
    check(jnp.array([[a[0], 5], [6, a[1]]]), [[1, 5], [6, 2]], I32)
    check(jnp.array([jnp.asarray(1.0), jnp.asarray(2.0)]), [1, 2], F32)  # weak parts, a strong whole
    check(jnp.array([jnp.int8(1), 2.5]), [1, 2.5], F32)
    check(jnp.array([b], dtype=np.int8), [[3, 4]], np.dtype("int8"))
    check(jnp.array(Wrapper()), [1, 2], np.dtype("int8"))
    check(jnp.array([Wrapper(), Wrapper()]), [[1, 2], [1, 2]], np.dtype("int8"))


CASTS = [
    (1.9, int, 1, I32), ([1.9, -1.9], int, [1, -1], I32), (2, float, 2.0, F32), ([2, 0], bool, [True, False], BOOL),
    (2.5, complex, 2.5, C64), ([1, 2], "bfloat16", [1, 2], BF16),
    ([2**32 - 1], "uint32", [2**32 - 1], np.dtype("uint32")),
    (2**32 - 1, "uint32", 2**32 - 1, np.dtype("uint32")), ([1.5], jnp.float16, [1.5], np.dtype("float16")),
    ([1, -2], "int4", [1, -2], np.dtype(ml_dtypes.int4)), (jnp.array([1.9, 2]), "int8", [1, 2], np.dtype("int8")),
    (jnp.array(1.5), float, 1.5, F32), (X, np.float16, X, np.dtype("float16")),
]  # fmt: skip


@pytest.mark.parametrize(("data", "dtype", "expected", "result"), CASTS, ids=range(len(CASTS)))
def test_array_with_a_dtype_is_strong(data, dtype, expected, result):
    check(jnp.array(data, dtype), expected, result)
    check(jnp.asarray(data, dtype), expected, result)


def test_a_list_in_itself_is_an_error_and_harms_nothing_else():
    endless, deep = [], [1.0]
    endless.append(endless)
    for _ in range(5000):
        deep = [deep]
    for data in (endless, deep, [endless, 1]):
        with pytest.raises(ValueError, match="exceed the maximum number of dimension of 64"):
            jnp.array(data)
    assert ast.unparse(ast.parse("[[[[1]]]]")) == "[[[[1]]]]"  # which needs the recursion that is left


def test_ndmin_adds_leading_axes():
    check(jnp.array([1, 2], ndmin=3), [[[1, 2]]], I32)
    check(jnp.array(X, ndmin=2), X, F32)
    check(jnp.array(1, ndmin=2), [[1]], I32, weak=True)


BAD_DATA = [
    (None, ValueError), ([1, None], ValueError), ("a", TypeError), (b"ab", TypeError), (["a"], TypeError),
    ({}, TypeError),
    ({1: 2}, TypeError), ({1}, TypeError), (object(), TypeError), (iter([1]), TypeError), (np.array(["a"]), TypeError),
    (np.array([None]), TypeError), (np.array([1], ">i4"), TypeError), (np.array(["2020"], "M8[D]"), TypeError),
    ([[1, 2], [3]], ValueError),
    ([1, [2]], ValueError), (2**31, OverflowError), ([1, 2**31], OverflowError), (-2**31 - 1, OverflowError),
    (2**70, OverflowError), ([np.zeros(2), np.zeros(3)], ValueError),
]  # fmt: skip


@pytest.mark.parametrize(("data", "error"), BAD_DATA, ids=range(len(BAD_DATA)))
def test_what_is_no_array_is_refused(data, error):
    with pytest.raises(error):
        jnp.array(data)
    with pytest.raises(error):
        jnp.asarray(data)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: jnp.array([jnp.ones(2), jnp.ones(3)]), TypeError, "different shapes"),
    (lambda: jnp.array([1], order="F"), NotImplementedError, "order"),
    (lambda: jnp.array(300, dtype="int8"), OverflowError, "300"),
    (lambda: jnp.array(-1, dtype="uint8"), OverflowError, "-1"),
    (lambda: jnp.array(1j, dtype=float), TypeError, "complex"),
    (lambda: jnp.array([1], dtype="U1"), TypeError, "not supported"),
    (lambda: jnp.array([1], dtype=object), TypeError, "not supported"),
    (lambda: jnp.array(1, dtype=jnp.floating), TypeError, "abstract"),
    (lambda: jnp.copy([1]), TypeError, "copy requires"),
    (lambda: jnp.copy(None), TypeError, "copy requires"),
    (lambda: jnp.fromiter([1], int), NotImplementedError, "fromiter"),
    (lambda: jnp.from_dlpack([1]), TypeError, "dlpack"),
])  # fmt: skip
def test_errors_of_array(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_complex_to_real_drops_the_imaginary_part_with_a_warning():
    for data in (np.array([1 + 2j]), jnp.array([1 + 2j])):
        with pytest.warns(np.exceptions.ComplexWarning):
            check(jnp.array(data, dtype=float), [1.0], F32)


def test_64_bit_dtypes_are_narrowed_with_a_warning():
    with pytest.warns(UserWarning, match="float64") as record:
        check(jnp.zeros(2, np.float64), [0, 0], F32)
    assert record[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(jnp.zeros(2, float), [0, 0], F32)


def test_64_bit_dtypes_stay_with_x64(x64):
    check(jnp.array([1.5]), [1.5], np.dtype("float64"))
    check(jnp.array(2**40), 2**40, np.dtype("int64"), weak=True)
    check(jnp.arange(3), [0, 1, 2], np.dtype("int64"))
    check(jnp.zeros(2), [0, 0], np.dtype("float64"))


# --- copies ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [
    jnp.array, jnp.asarray, jnp.copy, lambda x: jnp.asarray(x, copy=False), lambda x: jnp.array(x, copy=False),
    lambda x: jax.jit(lambda: jnp.array(x))(), lambda x: jnp.stack([x])[0], jnp.ravel,
    lambda x: jnp.broadcast_to(x, (64,)),
    lambda x: jnp.frombuffer(x, dtype=np.float32), lambda x: jnp.from_dlpack(x, copy=True), lambda x: jnp.reshape(x, (64,)),
], ids=range(12))  # fmt: skip
def test_changing_the_numpy_source_later_never_shows(make):
    source = np.zeros(64, np.float32)  # aligned buffers of this size could be shared
    found = make(source)
    source[:] = 1
    np.testing.assert_array_equal(np.asarray(found), np.zeros(64))


def test_copies_of_arrays_have_memory_of_their_own():
    x = jnp.ones(4)
    assert jnp.asarray(x) is x
    assert jnp.asarray(x, copy=False) is x
    assert jnp.array(x, copy=False) is x
    for copied in (jnp.array(x), jnp.copy(x), jnp.asarray(x, copy=True), x.copy(), copy.copy(x), copy.deepcopy(x)):
        assert copied is not x
        assert copied.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
        check(copied, np.ones(4), F32)
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        jnp.array(x)


# --- while tracing -----------------------------------------------------------------------------------


def text_of(fun, *args):
    return str(jax.make_jaxpr(fun)(*args))


@pytest.mark.parametrize(("fun", "arg", "line"), [
    (lambda x: x + jnp.array(1.0), 1.0, "b:f32[] = add a 1.0:f32[]"),
    (lambda x: x + jnp.asarray(2, "int8"), np.arange(3, dtype=np.int8), "b:i8[3] = add a 2:i8[]"),
    (lambda x: x * jnp.float32(2), np.ones(3, np.float32), "b:f32[3] = mul a 2.0:f32[]"),
    (lambda x: jnp.array([x, 1]), np.float32(1), "c:f32[1] = broadcast_in_dim 1.0:f32[]"),
])  # fmt: skip
def test_constants_are_literals_of_the_program(fun, arg, line):
    text = text_of(fun, arg).replace("[broadcast_dimensions=() shape=(1,) sharding=None]", "")
    assert f" {line} " in text.replace("\n", " ")


def test_arrays_from_tracers():
    check(jax.jit(lambda a: jnp.array(a))(1.5), 1.5, F32, weak=True)
    check(jax.jit(lambda a: jnp.array([a, 1.5]))(1), [1, 1.5], F32)
    check(jax.jit(lambda a: jnp.array([[a, 1], [2, a]]))(3), [[3, 1], [2, 3]], I32)
    check(jax.jit(lambda a: jnp.array([a, X[0]]))(X[1]), [X[1], X[0]], F32)
    check(jax.jit(lambda a: jnp.array(a, dtype=np.int8, ndmin=3))(X), X[None], np.dtype("int8"))
    check(jax.jit(lambda a: jnp.asarray([]))(1), [], F32)
    assert "copy" in text_of(jnp.array, X)
    assert "copy" not in text_of(jnp.asarray, X)
    with pytest.raises(TypeError, match="different shapes"):
        jax.jit(lambda a: jnp.array([a, [1]]))(1)
    with pytest.raises(jax.errors.TracerArrayConversionError):
        jax.jit(lambda a: np.array(a))(1)


# --- constants ---------------------------------------------------------------------------------------


def test_zeros_ones_and_full():
    check(jnp.zeros(3), np.zeros(3), F32)
    check(jnp.zeros((2, 3), int), np.zeros((2, 3)), I32)
    check(jnp.zeros([2, 0]), np.zeros((2, 0)), F32)
    check(jnp.empty(()), 0, F32)
    check(jnp.ones((), "bfloat16"), 1, BF16)
    check(jnp.ones((2,), bool), [True, True], BOOL)
    check(jnp.ones(np.int64(2)), [1, 1], F32)
    check(jnp.zeros(jnp.array(2)), [0, 0], F32)
    check(jnp.zeros(jnp.array([1, 2])), [[0, 0]], F32)
    check(jnp.full(2, 7), [7, 7], I32, weak=True)
    check(jnp.full(2, 7.9, int), [7, 7], I32)
    check(jnp.full((2,), np.float16(0.5)), [0.5, 0.5], np.dtype("float16"))
    check(jnp.full((2, 3), jnp.array([1, 2, 3])), [[1, 2, 3]] * 2, I32)
    check(jnp.full((), np.nan), np.nan, F32, weak=True)
    check(jax.jit(lambda v: jnp.full((2,), v, int))(1.5), [1, 1], I32)
    np.testing.assert_array_equal(jnp.empty((2, 2)).shape, (2, 2))
    with pytest.raises(TypeError, match=r"The shape is one tuple: zeros\(\(2, 3\)\)"):
        jnp.zeros(2, 3)


def test_like_functions_take_shape_dtype_and_weak_type():
    check(jnp.zeros_like(X), np.zeros((3, 4)), F32)
    check(jnp.zeros_like(2.5), 0, F32, weak=True)
    check(jnp.ones_like(True), True, BOOL)
    check(jnp.ones_like(X, int), np.ones((3, 4)), I32)
    check(jnp.zeros_like(X, shape=2), [0, 0], F32)
    check(jnp.zeros_like(jax.ShapeDtypeStruct((2,), np.int8)), [0, 0], np.dtype("int8"))
    check(jnp.full_like(np.zeros(2, np.int8), 2.7), [2, 2], np.dtype("int8"))
    check(jnp.full_like(1, 2.5), 2, I32, weak=True)
    check(jnp.full_like(jnp.full(2, 1), jnp.full(2, 3)), [3, 3], I32)
    check(jnp.full_like(jnp.full(2, 1), 3), [3, 3], I32, weak=True)
    for full_like in (jnp.full_like, jax.lax.full_like):  # the bits that fit, as NumPy's astype
        check(full_like(np.zeros(2, np.int32), 2**40 + 2**31), [-2**31, -2**31], I32)
    check(jax.lax.full((2,), 2**40 + 5, np.int32), [5, 5], I32)
    check(jnp.full_like(X, jnp.arange(4)), np.broadcast_to(np.arange(4), (3, 4)), F32)
    check(jnp.full_like(X, 2, dtype=int, shape=(1,)), [2], I32)
    check(jnp.empty_like(X, shape=()), 0, F32)
    check(jax.jit(jnp.ones_like)(2.5), 1, F32, weak=True)


@pytest.mark.parametrize("make", [jnp.zeros, jnp.ones, jnp.empty, lambda shape: jnp.full(shape, 1),
                                  lambda shape: jnp.zeros_like(X, shape=shape)], ids=range(5))
@pytest.mark.parametrize("shape", [-1, (2, -1), 2.5, (2.0,), "a", None, (None,), (2, (3,))], ids=repr)
def test_bad_shapes_are_type_errors(make, shape):
    if make is not jnp.zeros and shape is None:
        pytest.skip("None is the default of *_like")
    with pytest.raises(TypeError):
        make(shape)


def test_shapes_that_cannot_be_addressed_are_python_errors():
    for shape in ((1 << 40, 1 << 40), (1 << 70,), (1 << 63,)):
        with pytest.raises(ValueError, match="too many elements"):
            jnp.zeros(shape)


def test_traced_shapes_name_the_remedy():
    for make in (jnp.zeros, lambda n: jnp.zeros((2, n)), lambda n: jnp.full(n, 1), lambda n: jnp.broadcast_to(1, (n,))):
        with pytest.raises(TypeError, match="static"):
            jax.jit(make)(3)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: jnp.full((2, 3), jnp.array([1, 2])), ValueError, r"\(2,\).*\(2, 3\)"),
    (lambda: jnp.full((2,), jnp.ones((2, 1))), ValueError, r"\(2, 1\).*\(2,\)"),
    (lambda: jnp.full_like(X, jnp.ones(3)), ValueError, r"\(3,\).*\(3, 4\)"),
    (lambda: jnp.full(2, None), TypeError, "full"),
    (lambda: jnp.full(2, [1, 2]), TypeError, "full"),
    (lambda: jnp.zeros_like([1]), TypeError, "zeros_like"),
    (lambda: jnp.zeros(2, "U1"), TypeError, "zeros"),
    (lambda: jnp.ones(2, jnp.integer), TypeError, "abstract"),
])  # fmt: skip
def test_errors_of_constants(call, error, text):
    with pytest.raises(error, match=text):
        call()


# --- ranges ------------------------------------------------------------------------------------------

RANGES = [
    (5,), (0,), (-3,), (4.5,), (1, 5), (5, 1), (1, 8, 3), (8, 1, -3), (1, 2, 0.25), (0.0, 1.0, 0.1), (1, 1.3, 0.1),
    (0, 1, 1 / 3),
    (np.int8(4),), (np.float16(3),), (np.int8(1), np.int16(4)), (10, 0, -3), (-2**31, -2**31 + 3),
    (2**31 - 3, 2**31 - 1),
    (0, 2**31 - 1, 2**30), (1e7, 1e7 + 3),
]  # fmt: skip


@pytest.mark.parametrize("args", RANGES, ids=repr)
def test_arange_against_numpy(args):
    expected = np.arange(*args)
    found = jnp.arange(*args)
    assert found.dtype == jnp.result_type(*args)
    assert found.shape == expected.shape
    np.testing.assert_allclose(np.asarray(found, np.float64), expected.astype(np.float64), rtol=3e-7, atol=1e-7)


def test_arange_with_dtypes_and_arrays():
    check(jnp.arange(3, dtype=float), [0, 1, 2], F32)
    check(jnp.arange(3, dtype="bfloat16"), [0, 1, 2], BF16)
    check(jnp.arange(300, dtype="uint8"), np.arange(300), np.dtype("uint8"))
    check(jnp.arange(3, dtype=complex), [0, 1, 2], C64)
    check(jnp.arange(1, 10, 2.5, dtype=int), [1, 3, 5, 7], I32)  # start and step are converted
    check(jnp.arange(jnp.array(1), jnp.array(5), jnp.array(2)), [1, 3], I32)
    check(jnp.arange(5, step=2), [0, 2, 4], I32)
    check(jnp.arange(start=1, stop=3), [1, 2], I32)
    assert "iota" in text_of(lambda: jnp.arange(5))
    assert text_of(lambda: jnp.arange(1, 5)).count("=") == text_of(lambda: 1 + jnp.arange(4)).count("=")


@pytest.mark.parametrize(("call", "error"), [
    (lambda: jnp.arange(None), TypeError), (lambda: jnp.arange("a"), TypeError), (lambda: jnp.arange([1]), TypeError),
    (lambda: jnp.arange(X), ValueError), (lambda: jnp.arange(1j), ValueError), (lambda: jnp.arange(True), TypeError),
    (lambda: jnp.arange(0, 5, 0), ZeroDivisionError), (lambda: jnp.arange(0, np.inf), OverflowError),
    (lambda: jnp.arange(np.nan), ValueError), (lambda: jnp.arange(2, dtype=bool), TypeError),
    (lambda: jnp.arange(3, dtype="U1"), TypeError), (lambda: jnp.arange(stop=3), TypeError),
    (lambda: jax.jit(jnp.arange)(3), jax.errors.ConcretizationTypeError),
    (lambda: jax.jit(lambda step: jnp.arange(0, 5, step))(3), jax.errors.ConcretizationTypeError),
])  # fmt: skip
def test_errors_of_arange(call, error):
    with pytest.raises(error):
        call()


# --- conversions -------------------------------------------------------------------------------------


def test_astype():
    check(jnp.astype(X, int), X, I32)
    check(jnp.array([1.9, -1.9]).astype(int), [1, -1], I32)
    check(jnp.array([0.0, 2.0, np.nan]).astype(bool), [False, True, True], BOOL)
    check(jnp.array([3j, 0]).astype(bool), [True, False], BOOL)
    check(jnp.asarray(1.5).astype(float), 1.5, F32)
    check(jnp.astype(np.arange(2), None), [0, 1], F32)
    x = jnp.ones(2)
    assert x.astype(np.float32) is x
    assert jnp.astype(x, np.float32, copy=True) is not x
    with pytest.raises(TypeError):
        jnp.astype([1], float)


VIEWS = [
    (np.array([1.5, -0.0], np.float32), "int32"), (np.array([1, 2], np.int8), "int16"),
    (np.array([258, 2], np.int16), "int8"),
    (np.array([1 + 2j], np.complex64), "float32"), (np.array([1.0, 2.0], np.float32), "complex64"),
    (np.array([True, False]), "int8"), (np.array([0, 1], np.int8), "bool"), (np.array([[1, 2]], np.uint8), BF16),
    (np.array([[1.5]], BF16), "uint8"), (np.array(1, np.float32), "uint32"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "dtype"), VIEWS, ids=repr)
def test_view_against_numpy(value, dtype):
    check(jnp.array(value).view(dtype), value.view(dtype), np.dtype(dtype))
    check(jax.jit(lambda x: x.view(dtype))(value), value.view(dtype), np.dtype(dtype))


def test_view_errors():
    with pytest.raises(ValueError, match="0d"):
        jnp.array(1).view("int8")
    with pytest.raises(ValueError, match="divisor"):
        jnp.array([1, 2, 3], "int8").view("int16")


def test_from_bytes_text_files_and_dlpack(tmp_path):
    check(jnp.frombuffer(b"\1\2\3\4", dtype="int16"), np.frombuffer(b"\1\2\3\4", "int16"), np.dtype("int16"))
    check(jnp.frombuffer(b"\1\2\3", dtype="int8", count=1, offset=1), [2], np.dtype("int8"))
    check(jnp.fromstring("1 2 3", dtype=int, sep=" "), [1, 2, 3], I32)
    X.tofile(tmp_path / "raw")
    check(jnp.fromfile(tmp_path / "raw", dtype=np.float32), X.ravel(), F32)
    jnp.save(tmp_path / "one.npy", jnp.array(X))
    check(jnp.load(tmp_path / "one.npy"), X, F32)
    jnp.savez(tmp_path / "two.npz", a=jnp.array(X))
    np.testing.assert_array_equal(jnp.load(tmp_path / "two.npz")["a"], X)
    check(jnp.from_dlpack(X), X, F32)
    check(jax.dlpack.from_dlpack(X, jax.devices()[0]), X, F32)
    check(jnp.from_dlpack(X.T), X.T, F32)
    check(jnp.from_dlpack(jnp.array(X)), X, F32)
    assert jnp.from_dlpack(X).devices() == {jax.devices("cpu")[0]}  # where the memory is
    np.testing.assert_array_equal(np.from_dlpack(jnp.array(X)), X)


def test_dlpack_shares_memory_that_is_aligned_and_goes_by_rows():
    memory = np.zeros(64, np.float32)
    start = -memory.ctypes.data // 4 % 16
    rows = memory[start:start + 32].reshape(4, 8)
    shared = jnp.from_dlpack(rows, copy=False)
    assert jnp.from_dlpack(rows).unsafe_buffer_pointer() == shared.unsafe_buffer_pointer() == rows.ctypes.data
    for other in (rows, rows.T, memory[start + 1:start + 9]):
        check(jnp.from_dlpack(other, copy=True), np.zeros(other.shape), F32)
        assert jnp.from_dlpack(other, copy=True).unsafe_buffer_pointer() != other.ctypes.data
    check(jax.jit(lambda x: x + 1, donate_argnums=0)(jnp.from_dlpack(rows)), np.ones((4, 8)), F32)
    assert not rows.any()  # what is donated is not written to: it is another's
    for other, why in ((rows.T, "does not go by rows"), (memory[start + 1:start + 9], "not aligned to 64 bytes")):
        with pytest.raises(ValueError, match=f"copy=False, but the .* {why}"):
            jnp.from_dlpack(other, copy=False)


def test_device_argument_commits():
    device = jax.devices("cpu")[0]
    for made in (jnp.array([1.0], device=device), jnp.zeros(2, device=device), jnp.arange(3, device=device),
                 jnp.full(2, 1, device=device), jnp.ones_like(X, device=device), jnp.linspace(0, 1, 3, device=device)):
        assert made.committed
        assert made.devices() == {device}
    assert not jnp.zeros(2).committed


# --- scalar types and dtypes -------------------------------------------------------------------------

SCALAR_TYPES = [
    "bool_", "int2", "int4", "int8", "int16", "int32", "uint2", "uint4", "uint8", "uint16", "uint32", "float16",
    "bfloat16", "float32", "complex64", "float8_e4m3fn", "float8_e5m2", "float8_e3m4", "float8_e4m3", "float8_e8m0fnu",
    "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn",
]  # fmt: skip


@pytest.mark.parametrize("name", SCALAR_TYPES)
def test_scalar_types_stand_for_their_dtype_and_make_arrays(name):
    kind = getattr(jnp, name)
    dtype = np.dtype(kind)
    assert dtype.name == name.rstrip("_") == kind.__name__
    assert kind.dtype == dtype
    assert kind == dtype.type == kind
    assert not kind != dtype
    assert kind != jnp.int64
    assert hash(kind) == hash(dtype.type)
    assert {kind: 1}[dtype.type] == 1
    assert isinstance(dtype.type(1), kind)
    assert not isinstance("1", kind)
    assert pickle.loads(pickle.dumps(kind)) is kind
    assert copy.deepcopy(kind) is kind
    assert jnp.issubdtype(kind, kind)
    assert np.zeros(1, kind).dtype == dtype
    assert jnp.dtype(kind) == dtype
    if name.startswith("float6"):  # not all versions of jaxlib can hold these
        return
    assert jnp.zeros(1, kind).dtype == dtype
    check(kind(1), 1, dtype)
    check(kind([1, 2]) if dtype.itemsize > 1 else kind([1]), [1, 2] if dtype.itemsize > 1 else [1], dtype)


def test_a_class_of_a_scalar_type_is_one():
    """Environments of libraries name their kinds of steps in a class of `jnp.int8`."""
    class Step(jnp.int8):
        FIRST = jnp.asarray(0, jnp.int8)
        LAST = 2

    assert issubclass(Step, jnp.int8) and Step.__name__ == "Step" and Step == jnp.int8 == np.int8
    assert Step.LAST == 2 and Step.FIRST.dtype == np.dtype(Step) == jnp.zeros(1, Step).dtype == Step(3).dtype == np.int8
    assert jnp.issubdtype(Step, jnp.integer)


def test_objects_with_an_array_interface():
    """Images of Pillow have no other."""
    class Image:
        def __init__(self, data):
            self.data = data
            self.__array_interface__ = data.__array_interface__

    image = Image(np.arange(6, dtype=np.uint8).reshape(2, 3))
    for made, expected in ((jnp.array(image), image.data), (jnp.asarray(image, jnp.float32), image.data.astype(np.float32)),
                           (jnp.array([image, image]), np.stack([image.data] * 2))):
        assert made.dtype == expected.dtype
        np.testing.assert_array_equal(made, expected)


def test_scalar_type_errors_and_overflow():
    for make, error in ((lambda: jnp.int8(300), OverflowError), (lambda: jnp.uint8(-1), OverflowError),
                        (lambda: jnp.float32(None), ValueError), (lambda: jnp.float32(), TypeError),
                        (lambda: jnp.float32(1j), TypeError)):
        with pytest.raises(error):
            make()
    check(jnp.int8(1.9), 1, np.dtype("int8"))
    check(jnp.float32(X), X, F32)
    assert repr(jnp.float32) == "<class 'jaxlite.numpy.float32'>"


def test_names_that_are_numpys():
    for name in ("pi", "e", "euler_gamma", "inf", "newaxis", "number", "integer", "signedinteger", "unsignedinteger", "inexact",
                 "floating", "complexfloating", "generic", "flexible", "character", "object_", "dtype"):
        assert getattr(jnp, name) is getattr(np, name)
    assert jnp.nan != jnp.nan
    assert jnp.bool is jnp.bool_ and jnp.single is jnp.float32 and jnp.double is jnp.float64 is jnp.float_
    assert jnp.int_ is jnp.int64 and jnp.uint is jnp.uint64 and jnp.csingle is jnp.complex64
    assert jnp.complex_ is jnp.cdouble is jnp.complex128
    assert isinstance(jnp.ones(1), jnp.ndarray)


def test_questions_about_dtypes():
    assert jnp.issubdtype(jnp.bfloat16, jnp.floating)
    assert jnp.issubdtype(jnp.int4, jnp.signedinteger)
    assert jnp.issubdtype("float32", jnp.inexact)
    assert not jnp.issubdtype(jnp.float32, jnp.integer)
    assert jnp.isdtype(jnp.float32, "real floating")
    assert jnp.isdtype(jnp.int8, ("bool", "integral"))
    assert jnp.promote_types(jnp.int8, jnp.uint8) == np.int16
    assert jnp.result_type(jnp.bfloat16, np.float16) == np.float32
    assert jnp.result_type(1, jnp.float16) == np.float16
    assert jnp.can_cast(jnp.int8, jnp.int16)
    assert jnp.finfo(jnp.bfloat16).bits == 16
    assert jnp.iinfo(jnp.int8).max == 127


def test_printing():
    x = jnp.array([1.123456, 2.0])
    assert jnp.array_repr(x).endswith("([1.123456, 2.      ], dtype=float32)")
    assert jnp.array_str(x) == "[1.123456 2.      ]"
    with jnp.printoptions(precision=2):
        assert jnp.get_printoptions()["precision"] == 2
        assert str(x) == "[1.12 2.  ]"
    before = jnp.get_printoptions()["precision"]
    jnp.set_printoptions(precision=before)
    assert operator.eq(jnp.get_printoptions()["precision"], before)


def test_arrays_of_keys_from_numbers():
    dtype = jax.random.key(0).dtype
    for made, word in ((jnp.ones(2, dtype), 1), (jnp.full(2, 3, dtype), 3), (jax.lax.full((2,), 0, dtype), 0),
                       (jax.lax.empty((2,), dtype), 0), (jax.nn.initializers.ones(jax.random.key(0), (2,), dtype), 1)):
        assert made.shape == (2,) and made.dtype == dtype and (jax.random.key_data(made) == word).all()
    with pytest.raises(TypeError, match="iota does not accept dtype key<fry>"):
        jax.lax.iota(dtype, 3)


def test_matrices_of_scalars_are_joined_by_rows():
    def rotation(angle):
        c, s = jnp.cos(angle), jnp.sin(angle)
        return jnp.array([[[c, -s, 0], [s, c, 0]], [[1, 2, 3], [4, 5, 6]], [[angle] * 3, [0.5, c, True]]])

    parts = [eqn.invars for eqn in jax.make_jaxpr(rotation)(1.0).eqns if eqn.primitive.name == "concatenate"]
    assert max(map(len, parts)) <= 8  # XLA makes one loop of few
    c, s = np.cos(0.3), np.sin(0.3)
    expected = [[[c, -s, 0], [s, c, 0]], [[1, 2, 3], [4, 5, 6]], [[0.3] * 3, [0.5, c, 1]]]
    result = rotation(jnp.float32(0.3))
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    wide = jnp.array([[jnp.ones((2, 3)), np.zeros((2, 3))], *[[np.full((2, 3), 7), np.eye(2, 3)]] * 4])
    assert wide.shape == (5, 2, 2, 3) and wide[3, 0, 1, 1] == 7 and wide[4, 1].tolist() == np.eye(2, 3).tolist()
    with pytest.raises(TypeError, match="different shapes"):
        jnp.array([[jnp.ones(2), 1, 2]] * 4)


def test_the_device_of_dlpack_is_named_and_a_deleted_array_starts_no_copy():
    kind, number = jnp.ones(2).__dlpack_device__()
    assert (kind, kind.name, number) == (1, "kDLCPU", 0)
    keys = jax.random.split(jax.random.key(0), 3)
    assert keys.block_until_ready().is_ready() and keys.platform() == "cpu"
    for array in (jnp.ones(2) + 1, keys):
        array.delete()
        with pytest.raises(RuntimeError, match="Array has been deleted"):
            array.copy_to_host_async()


def test_an_int_of_any_size_is_an_example():
    for wide in (2**40, -2**31 - 1, 2**70):
        of_lax = jax.lax.full_like(wide, 2)
        for made, value in ((jnp.ones_like(wide), 1), (jnp.zeros_like(wide), 0), (jnp.full_like(wide, 3), 3), (of_lax, 2)):
            assert (made, made.dtype, made.weak_type, made.shape) == (value, jnp.int32, True, ())


@pytest.mark.parametrize("wrong", ["a", "cpu", 1, (1, 2)])
def test_what_is_no_device(wrong):
    for make in (lambda: jnp.asarray(2.5, device=wrong), lambda: jnp.array(jnp.ones(3), device=wrong),
                 lambda: jnp.zeros(3, device=wrong), lambda: jnp.linspace(0, 1, 3, device=wrong),
                 lambda: jax.jit(lambda x: jnp.asarray(x, device=wrong))(1.0),
                 lambda: jax.jit(lambda: jnp.asarray([1, 2.5], device=wrong))(),
                 lambda: jax.dlpack.from_dlpack(np.arange(3.0), device=wrong)):
        with pytest.raises(ValueError, match="only accepts"):
            make()
