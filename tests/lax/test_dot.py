"""Matrix products of lax against einsum over NumPy arrays: axes, dtypes, precisions, ragged and scaled products."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import jaxlite
from jaxlite import lax

bfloat16 = np.dtype(ml_dtypes.bfloat16)
e4m3, e5m2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
int4 = np.dtype(ml_dtypes.int4)
f32 = np.dtype(np.float32)
MATRIX = (((1,), (0,)), ((), ()))
Preset = lax.DotAlgorithmPreset


def draw(rng, shape, dtype=f32):
    """Small whole numbers, exact in every dtype."""
    values = rng.integers(0, 3, shape)
    return (values + 1j * rng.integers(-2, 3, shape) if np.dtype(dtype).kind == "c" else values).astype(dtype)


# (dimension numbers, lhs shape, rhs shape, the same as a spec of np.einsum)
PRODUCTS = [
    (MATRIX, (2, 3), (3, 4), "ij,jk->ik"),
    ((((), ()), ((), ())), (2,), (3,), "i,j->ij"),
    ((((), ()), ((), ())), (), (3,), ",i->i"),
    ((((0,), (0,)), ((), ())), (3,), (3,), "i,i->"),
    ((((2,), (1,)), ((0,), (0,))), (2, 3, 4), (2, 4, 5), "bij,bjk->bik"),
    ((((0,), (2,)), ((1,), (0,))), (3, 2, 4), (2, 5, 3), "jbi,bkj->bik"),
    ((([0, 1], [1, 0]), ([], [])), (2, 3, 4), (3, 2), "abi,ba->i"),
    ((((), ()), ((1, 0), (0, 1))), (2, 3), (3, 2), "ab,ba->ba"),
    (MATRIX, (2, 0), (0, 4), "ij,jk->ik"),
    (MATRIX, (0, 3), (3, 4), "ij,jk->ik"),
]


@pytest.mark.parametrize("numbers, left, right, spec", PRODUCTS, ids=str)
def test_dot_general_contracts_and_batches(numbers, left, right, spec, rng):
    a, b = draw(rng, left), draw(rng, right)
    got = lax.dot_general(a, b, numbers)
    assert got.dtype == f32
    np.testing.assert_array_equal(got, np.einsum(spec, a, b))


@pytest.mark.parametrize("numbers, left, right, message", [
    (MATRIX, (2, 3), (4, 4), "contracting dimensions to have the same shape"),
    ((((1,), (0,)), ((0,), ())), (2, 3), (3, 4), "equal numbers of lhs_batch and rhs_batch"),
    ((((1,), (0,)), ((0,), (1,))), (2, 3), (3, 4), "batch dimensions to have the same shape"),
    ((((2,), (0,)), ((), ())), (2, 3), (3, 4), "nonnegative and less than"),
    ((((-1,), (0,)), ((), ())), (2, 3), (3, 4), "nonnegative and less than"),
    ((((1, 1), (0, 1)), ((), ())), (2, 3), (3, 4), "disjoint"),
    ((((1,), (0,)), ((1,), (0,))), (2, 3), (3, 4), "disjoint"),
])
def test_dot_general_refuses_axes_that_do_not_fit(numbers, left, right, message):
    with pytest.raises(TypeError, match=message):
        lax.dot_general(np.zeros(left, f32), np.zeros(right, f32), numbers)
    with pytest.raises(ValueError, match="dimension_numbers"):
        lax.dot_general(np.zeros((2, 3), f32), np.zeros((3, 2), f32), ((1,), (0,)))


def test_dot_general_prints_as_it_is_written():
    text = str(jaxlite.make_jaxpr(lambda a, b: lax.dot(a, b, precision="highest"))(np.ones((2, 3), f32), np.ones(3, f32)))
    assert "dimension_numbers=(([1], [0]), ([], []))" in text
    assert "precision=(Precision.HIGHEST, Precision.HIGHEST)" in text
    assert str(lax.Precision.HIGHEST) == "HIGHEST"


DTYPES = [np.dtype(bool), int4, np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int32), e4m3, bfloat16,
          np.dtype(np.float16), np.dtype(np.complex64)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_each_dtype_is_multiplied_in_its_own(dtype, rng):
    a, b = draw(rng, (2, 3), dtype), draw(rng, (3, 2), dtype)
    expected = a.astype(np.complex64) @ b.astype(np.complex64)

    def both(a, b):
        wide = np.complex64 if dtype.kind == "c" else np.int32 if dtype.kind in "biu" or dtype == int4 else np.float32
        return lax.dot_general(a, b, MATRIX), lax.dot_general(a, b, MATRIX, preferred_element_type=wide)

    same, wide = jaxlite.jit(both)(a, b)
    assert same.dtype == dtype
    np.testing.assert_array_equal(np.asarray(wide).astype(np.complex64), expected)
    if dtype != int4:  # sums of it overflow
        rounded = expected if dtype.kind == "c" else expected.real.astype(dtype)
        np.testing.assert_array_equal(np.asarray(same).astype(np.complex64), rounded.astype(np.complex64))


def result_dtype(left, right, preferred=None):
    shapes = [jaxlite.ShapeDtypeStruct((2, 2), dtype) for dtype in (left, right)]
    return jaxlite.eval_shape(lambda a, b: lax.dot(a, b, preferred_element_type=preferred), *shapes).dtype


@pytest.mark.parametrize("left, right, result", [
    (np.int8, np.float16, np.float16), (bfloat16, np.float16, bfloat16), (np.int8, np.uint8, np.int8),
    (np.int8, np.uint32, np.uint32), (e4m3, e5m2, e5m2), (e4m3, np.float32, np.float32), (int4, np.int8, np.int8),
    (np.bool_, np.uint8, np.uint8), (np.complex64, np.float32, np.complex64), (np.int32, bfloat16, bfloat16),
], ids=str)
def test_the_stronger_dtype_wins(left, right, result):
    assert result_dtype(left, right) == result_dtype(right, left) == np.dtype(result)


def test_operands_of_different_dtypes_are_converted(rng):
    for left, right in ((np.int8, f32), (bfloat16, np.float16), (e4m3, e5m2), (np.complex64, f32)):
        a, b = draw(rng, (2, 3), left), draw(rng, (3, 2), right)
        got = np.asarray(lax.dot(a, b)).astype(np.complex64)
        np.testing.assert_array_equal(got, a.astype(np.complex64) @ b.astype(np.complex64))


def test_dtypes_that_do_not_go_together():
    for left, preferred in ((np.int32, np.int8), (np.uint32, bfloat16), (np.complex64, np.float16)):
        with pytest.raises(TypeError, match="narrower"):
            result_dtype(left, left, preferred)
    with pytest.raises(TypeError, match="stronger"):
        result_dtype(e5m2, ml_dtypes.float8_e5m2fnuz)
    assert result_dtype(np.complex64, np.complex64, np.float32) == f32


@pytest.mark.parametrize("transform", [lambda f: f, jaxlite.checkpoint, jaxlite.jit])
def test_products_that_are_integers_do_not_vary(transform):
    def total(a):
        return lax.dot(a, a.T, preferred_element_type=np.int32).sum().astype(f32)

    a = np.arange(6, dtype=f32).reshape(2, 3)
    assert total(a) == (a @ a.T).sum() and not np.any(jaxlite.grad(transform(total))(a))
    assert jaxlite.jvp(lambda a: lax.dot(a, a.T, preferred_element_type=np.int32), (a,), (a,))[1].dtype == jaxlite.float0


def test_weak_types_need_both_operands_weak():
    numbers = (((), ()), ((), ()))
    assert lax.dot_general(1.0, 2.0, numbers).weak_type
    assert lax.dot_general(1.0, 2.0, numbers, preferred_element_type=np.float32).weak_type
    assert not lax.dot_general(1.0, np.float32(2), numbers).weak_type


@pytest.mark.parametrize("precision", [
    "default", "high", "highest", "tensorfloat32", lax.Precision.HIGH, ("high", "highest"), "BF16_BF16_F32",
    Preset.F32_F32_F32, Preset.DEFAULT, lax.DotAlgorithm(np.float32, np.float32, np.float32)], ids=str)
def test_precisions_keep_small_numbers_exact(precision, rng):
    a, b = draw(rng, (2, 3)), draw(rng, (3, 2))
    np.testing.assert_array_equal(lax.dot(a, b, precision=precision), a @ b)


@pytest.mark.parametrize("precision", ["highs", 3, ("high",), (None, "high"), "bf16_bf16_f32", ("high", "high", "high")],
                         ids=str)
def test_precisions_that_are_none(precision):
    with pytest.raises(ValueError, match="Precision"):
        lax.dot(np.ones((2, 2), f32), np.ones((2, 2), f32), precision=precision)


def test_the_default_precision_is_an_option():
    with jaxlite.default_matmul_precision("float32"):
        assert "Precision.HIGHEST" in str(jaxlite.make_jaxpr(lax.dot)(np.ones(2, f32), np.ones(2, f32)))


def test_algorithms_convert_their_operands(rng):
    a, b = draw(rng, (2, 3), np.float16), draw(rng, (3, 2), np.float16)
    lowered = jaxlite.jit(lambda a, b: lax.dot(a, b, precision="BF16_BF16_F32")).lower(a, b).as_text()
    assert "tensor<2x3xbf16>" in lowered and "accumulation_type = f32" in lowered
    np.testing.assert_array_equal(lax.dot(a, b, precision="F64_F64_F64"), a @ b)
    narrow = jaxlite.jit(lambda a: lax.dot(a, a.T, precision="BF16_BF16_F32", preferred_element_type=bfloat16))
    assert "-> tensor<2x2xf32>" in narrow.lower(a.astype(f32)).as_text()  # rounded once, at the end
    with pytest.raises(ValueError, match="TF32_TF32_F32.* is not supported by dot_general on CPU"):
        lax.dot(a, b, precision=Preset.TF32_TF32_F32)


def test_dot_of_vectors_and_matrices(rng):
    for left, right in (((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((0,), (0,))):
        a, b = draw(rng, left), draw(rng, right)
        np.testing.assert_array_equal(lax.dot(a, b), a @ b)
    for left, right in (((), (3,)), ((2, 3, 4), (4,)), ((2, 3), (2, 3))):
        with pytest.raises(ValueError, match="lhs_shape"):
            lax.dot(np.zeros(left, f32), np.zeros(right, f32))


def test_batch_matmul(rng):
    a, b = draw(rng, (2, 5, 2, 3)), draw(rng, (2, 5, 3, 4))
    np.testing.assert_array_equal(lax.batch_matmul(a, b), a @ b)
    with pytest.raises(ValueError, match="same ndim"):
        lax.batch_matmul(a, b[0])
    with pytest.raises(ValueError, match="at least 2D"):
        lax.batch_matmul(a[0, 0, 0], b)
    with pytest.raises(TypeError, match="batch dimensions"):
        lax.batch_matmul(a, b[:, :4])


# --- ragged ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [2, 5])  # fewer than are contracted, and more
@pytest.mark.parametrize("sizes", [[1, 2, 1], [0, 4, 0], [1, 1, 1], [0, 0, 0], [5, 5, 5]], ids=str)
def test_ragged_dot_gives_each_group_its_matrix(sizes, columns, rng):
    a, b = draw(rng, (4, 3)), draw(rng, (3, 3, columns))
    expected = np.zeros((4, columns), f32)
    group_of_row = np.repeat(np.arange(3), sizes)[:4]
    for row, group in enumerate(group_of_row):
        expected[row] = a[row] @ b[group]
    np.testing.assert_array_equal(lax.ragged_dot(a, b, np.array(sizes, np.int32)), expected)


@pytest.mark.parametrize("columns", [2, 9])
def test_ragged_rows_of_a_batch_with_sizes_of_their_own(columns, rng):
    a = draw(rng, (3, 4, 5, 2))  # contracted, outer, rows, batch
    b = draw(rng, (3, columns, 2, 2))  # contracted, columns, batch, groups
    sizes = rng.integers(0, 4, (2, 4, 2)).astype(np.int32)
    numbers = lax.RaggedDotDimensionNumbers((((0,), (0,)), ((3,), (2,))), [2], [3])
    expected = np.zeros((2, 4, 5, columns), f32)
    for batch, outer in np.ndindex(2, 4):
        for row, group in enumerate(np.repeat(np.arange(2), sizes[batch, outer])[:5]):
            expected[batch, outer, row] = a[:, outer, row, batch] @ b[:, :, batch, group]
    np.testing.assert_array_equal(lax.ragged_dot_general(a, b, sizes, numbers), expected)
    x, y = np.zeros((64, 8), f32), np.zeros((4, 8, columns), f32)
    text = jaxlite.jit(lax.ragged_dot).lower(x, y, np.ones(4, np.int32)).as_text()
    assert ("tensor<4x64x8xf32>" in text) == (columns == 9)


def test_ragged_contraction_gives_a_product_per_group(rng):
    a, b, sizes = draw(rng, (5, 2, 6)), draw(rng, (5, 6, 3)), rng.integers(0, 4, (5, 2)).astype(np.int32)
    numbers = lax.RaggedDotDimensionNumbers((((2,), (1,)), ((0,), (0,))), [2], [])
    expected = np.zeros((2, 5, 2, 3), f32)
    for batch in range(5):
        first = sizes[batch, 0]
        for group, part in enumerate((slice(0, first), slice(first, first + sizes[batch, 1]))):
            expected[group, batch] = a[batch][:, part] @ b[batch][part]
    np.testing.assert_array_equal(lax.ragged_dot_general(a, b, sizes, numbers), expected)


def test_ragged_batches_are_an_ordinary_product(rng):
    a, b = draw(rng, (5, 2, 3)), draw(rng, (5, 3, 2))
    numbers = lax.RaggedDotDimensionNumbers((((2,), (1,)), ((0,), (0,))), [0], [])
    np.testing.assert_array_equal(lax.ragged_dot_general(a, b, np.array([2, 3]), numbers), a @ b)


@pytest.mark.parametrize("ragged, group, sizes, message", [
    ([0], [0], (3,), "group dimension size"), ([0, 1], [0], (2,), "exactly one"), ([0], [], (2,), "one rhs group"),
    ([1], [0], (2,), "no rhs group"), ([2], [0], (2,), "no axis 2"), ([0], [1], (2,), "neither"),
    ([0], [0], (3, 2), "group_sizes to have shape"),
], ids=str)
def test_ragged_dot_general_refuses(ragged, group, sizes, message):
    numbers = lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), ragged, group)
    with pytest.raises(TypeError, match=message):
        lax.ragged_dot_general(np.zeros((4, 3), f32), np.zeros((2, 3, 5), f32), np.ones(sizes, np.int32), numbers)
    with pytest.raises(TypeError, match="integers"):
        lax.ragged_dot(np.zeros((4, 3), f32), np.zeros((2, 3, 5), f32), np.ones(2, f32))


# --- scaled ------------------------------------------------------------------------------------------


def test_scaled_dot_scales_blocks(rng):
    a, b = draw(rng, (2, 4, 8)), draw(rng, (2, 8, 3))
    a_scale, b_scale = draw(rng, (2, 4, 2)), draw(rng, (2, 4, 3))
    expected = (a * a_scale.repeat(4, 2)) @ (b * b_scale.repeat(2, 1))
    got = lax.scaled_dot(a, b, lhs_scale=a_scale, rhs_scale=b_scale, preferred_element_type=np.float32)
    np.testing.assert_array_equal(got, expected)
    half = lax.scaled_dot(a.astype(e4m3), b.astype(e4m3), lhs_scale=a_scale)
    assert half.dtype == bfloat16
    np.testing.assert_array_equal(half, ((a * a_scale.repeat(4, 2)) @ b).astype(bfloat16))
    for scale in ((2, 4, 3), (2, 4, 8), (2, 1, 2), (4, 2)):
        with pytest.raises(TypeError, match="scaled_dot"):
            lax.scaled_dot(a, b, lhs_scale=np.ones(scale, f32))


def test_presets_tell_their_types():
    bf16, f32, f16 = ml_dtypes.bfloat16, np.float32, np.float16
    sums = {preset.name: preset.accumulation_type for preset in Preset}
    assert {name: sums[name] for name in ("DEFAULT", "ANY_F8_ANY_F8_F32_FAST_ACCUM", "ANY_F8_ANY_F8_ANY", "F16_F16_F16",
                                          "F16_F16_F32", "TF32_TF32_F32_X3")} == {
        "DEFAULT": None, "ANY_F8_ANY_F8_F32_FAST_ACCUM": f32, "ANY_F8_ANY_F8_ANY": None, "F16_F16_F16": f16, "F16_F16_F32": f32,
        "TF32_TF32_F32_X3": f32}
    assert Preset.BF16_BF16_F32.supported_lhs_types == (bf16, f32) == Preset.BF16_BF16_BF16.supported_rhs_types
    assert Preset.BF16_BF16_F32_X6.supported_lhs_types == (f32,) and Preset.ANY_F8_ANY_F8_ANY.supported_lhs_types is None
    assert Preset.F16_F16_F32.supported_output_types(f16, f16) == (f32, f16)
    assert Preset.F16_F16_F32.supported_output_types(f16, f32) == (f32,)
    assert f16 in Preset.ANY_F8_ANY_F8_F32.supported_output_types(f16, f16)
