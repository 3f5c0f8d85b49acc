"""Convolutions of lax against loops over NumPy arrays."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import jaxlite
from jaxlite import lax

bfloat16 = np.dtype(ml_dtypes.bfloat16)
f32 = np.dtype(np.float32)


def draw(rng, shape, dtype=f32):
    values = rng.integers(-2, 3, shape)
    return (values + 1j * rng.integers(-2, 3, shape) if np.dtype(dtype).kind == "c" else values).astype(dtype)


def convolve(x, kernel, strides, pads, spread=None, dilation=None, groups=1):
    """Cross-correlation in NCHW / OIHW order, one multiplication at a time."""
    rank = x.ndim - 2
    spread, dilation = spread or (1,) * rank, dilation or (1,) * rank
    sizes = [1 + (n - 1) * step for n, step in zip(x.shape[2:], spread, strict=True)]
    extents = [1 + (n - 1) * step for n, step in zip(kernel.shape[2:], dilation, strict=True)]
    counts = [(size + low + high - extent) // stride + 1
              for size, extent, stride, (low, high) in zip(sizes, extents, strides, pads, strict=True)]
    out = np.zeros((x.shape[0], kernel.shape[0], *[max(count, 0) for count in counts]), x.dtype)
    per_group = kernel.shape[0] // groups
    for place in itertools.product(*map(range, out.shape[2:])):
        for offset in itertools.product(*map(range, kernel.shape[2:])):
            at = [p * stride + o * dil - low for p, stride, o, dil, (low, _)
                  in zip(place, strides, offset, dilation, pads, strict=True)]
            if any(a < 0 or a >= size or a % step for a, size, step in zip(at, sizes, spread, strict=True)):
                continue
            values = x[(slice(None), slice(None), *[a // step for a, step in zip(at, spread, strict=True)])]
            weights = kernel[(slice(None), slice(None), *offset)]
            for group in range(groups):
                rows = slice(group * per_group, (group + 1) * per_group)
                columns = slice(group * kernel.shape[1], (group + 1) * kernel.shape[1])
                out[(slice(None), rows, *place)] += values[:, columns] @ weights[rows].T
    return out


# (strides, padding, the same in numbers, input dilation, kernel dilation)
WINDOWS = [
    ((1, 1), "VALID", ((0, 0), (0, 0)), None, None),
    ((1, 1), "SAME", ((0, 1), (1, 1)), None, None),
    ((2, 3), "same_lower", ((1, 0), (0, 0)), None, None),
    ((1, 2), "SAME", ((0, 1), (1, 2)), None, (1, 2)),
    ((2, 1), ((1, 2), (0, 1)), None, (2, 1), (1, 2)),
    ((1, 1), ((-1, 2), (0, -2)), None, None, None),
    ((9, 9), ((3, 3), (3, 3)), None, None, None),
    ((1, 1), ((0, 0), (0, 0)), None, None, (9, 9)),
]


@pytest.mark.parametrize("strides, padding, pads, spread, dilation", WINDOWS, ids=str)
def test_windows_match_a_loop(strides, padding, pads, spread, dilation, rng):
    x, kernel = draw(rng, (2, 3, 5, 6)), draw(rng, (4, 3, 2, 3))
    got = lax.conv_general_dilated(x, kernel, strides, padding, spread, dilation)
    np.testing.assert_array_equal(got, convolve(x, kernel, strides, pads or padding, spread, dilation))


@pytest.mark.parametrize("specs", [("NHWC", "HWIO", "NHWC"), ("CNHW", "IOHW", "NCHW"), ("WHNC", "OWIH", "CWNH")], ids=str)
def test_axes_in_any_order(specs, rng):
    x, kernel = draw(rng, (2, 3, 4, 5)), draw(rng, (4, 3, 2, 3))
    lhs, rhs, out = specs
    strides = tuple({"H": 1, "W": 2}[axis] for axis in rhs if axis in "HW")  # in the order of the kernel's axes
    got = lax.conv_general_dilated(np.einsum(f"NCHW->{lhs}", x), np.einsum(f"OIHW->{rhs}", kernel), strides, "VALID",
                                   dimension_numbers=specs)
    expected = np.einsum(f"NCHW->{out}", convolve(x, kernel, (1, 2), ((0, 0), (0, 0))))
    np.testing.assert_array_equal(got, expected)
    assert got.shape == lax.conv_general_shape_tuple(
        np.einsum(f"NCHW->{lhs}", x).shape, np.einsum(f"OIHW->{rhs}", kernel).shape, strides, "VALID", specs)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_any_number_of_spatial_axes(rank, rng):
    x, kernel = draw(rng, (2, 2, 4, 3, 3)[:rank + 2]), draw(rng, (3, 2, 2, 1, 2)[:rank + 2])
    got = lax.conv_general_dilated(x, kernel, (1,) * rank, ((1, 0),) * rank)
    np.testing.assert_array_equal(got, convolve(x, kernel, (1,) * rank, ((1, 0),) * rank))


def test_groups(rng):
    x, kernel = draw(rng, (4, 6, 5)), draw(rng, (9, 2, 2))
    got = lax.conv_general_dilated(x, kernel, (1,), "VALID", feature_group_count=3)
    np.testing.assert_array_equal(got, convolve(x, kernel, (1,), ((0, 0),), groups=3))
    x, kernel = draw(rng, (4, 3, 5)), draw(rng, (6, 3, 2))
    got = lax.conv_general_dilated(x, kernel, (1,), "VALID", batch_group_count=2)
    halves = [convolve(x[half * 2:][:2], kernel[half * 3:][:3], (1,), ((0, 0),)) for half in range(2)]
    np.testing.assert_array_equal(got, np.concatenate(halves, 1))


def test_groups_of_complex_numbers_have_no_nan_of_others(rng):
    x, kernel = (rng.normal(size=(4, size, 2)).astype(f32).view(np.complex64)[..., 0] for size in (6, 3))
    x[1, 2] = np.nan
    got = jaxlite.vmap(jaxlite.numpy.convolve)(x, kernel)
    expected = np.stack([np.convolve(*each) for each in zip(x, kernel, strict=True)])
    np.testing.assert_array_equal(np.isnan(got).any(1), [False, True, False, False])
    np.testing.assert_allclose(np.asarray(got)[[0, 2, 3]], expected[[0, 2, 3]], rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.bool_, ml_dtypes.int4, np.int8, np.int32, np.uint8, bfloat16, np.float16, np.complex64],
                         ids=str)
def test_dtypes(dtype, rng):
    x, kernel = (np.abs(draw(rng, shape)).clip(0, 1).astype(dtype) for shape in ((1, 2, 4), (2, 2, 2)))
    got = lax.conv_general_dilated(x, kernel, (1,), "VALID")
    assert got.dtype == dtype
    expected = convolve(x.astype(np.complex64), kernel.astype(np.complex64), (1,), ((0, 0),))
    np.testing.assert_array_equal(np.asarray(got).astype(np.complex64), expected.real.astype(dtype).astype(np.complex64))


def test_accumulation_in_another_dtype(rng):
    with_int4 = [draw(rng, shape, ml_dtypes.int4) for shape in ((1, 2, 9), (2, 2, 3))]
    np.testing.assert_array_equal(
        lax.conv_general_dilated(*with_int4, (1,), "VALID", preferred_element_type=np.int32),
        convolve(*(each.astype(np.int32) for each in with_int4), (1,), ((0, 0),)))
    x, kernel = draw(rng, (1, 2, 40), np.int8), draw(rng, (2, 2, 20), np.int8)
    got = lax.conv_general_dilated(x, kernel, (1,), "VALID", preferred_element_type=np.int32, precision="highest")
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, convolve(x.astype(np.int32), kernel.astype(np.int32), (1,), ((0, 0),)))
    for dtype, preferred in ((np.int32, np.int8), (f32, np.int32), (np.complex64, f32), (f32, bfloat16)):
        with pytest.raises(TypeError, match="preferred_element_type"):
            lax.conv_general_dilated(x.astype(dtype), kernel.astype(dtype), (1,), "VALID",
                                     preferred_element_type=preferred)


@pytest.mark.parametrize("left, right", [((0, 3, 5), (4, 3, 2)), ((2, 0, 5), (4, 0, 2)), ((2, 3, 0), (4, 3, 2)),
                                         ((2, 3, 5), (0, 3, 2)), ((2, 3, 1), (4, 3, 5))], ids=str)
def test_empty_arrays(left, right):
    got = lax.conv_general_dilated(np.ones(left, f32), np.ones(right, f32), (1,), "VALID")
    assert got.shape == (left[0], right[0], max(0, left[2] - right[2] + 1))
    assert not np.asarray(got).any()


ERRORS = [
    (((1,), "SAME"), {}, ValueError), (((0, 1), "SAME"), {}, ValueError), (((1, 1), "FOO"), {}, RuntimeError),
    (((1, 1), 3), {}, ValueError), (((1, 1), [(1, 2)]), {}, TypeError),
    (((1, 1), "SAME"), {"lhs_dilation": (2, 2)}, ValueError), (((1, 1), "SAME"), {"feature_group_count": 2}, ValueError),
    (((1, 1), "SAME"), {"feature_group_count": 0}, ValueError), (((1, 1), "SAME"), {"batch_group_count": 3}, ValueError),
    (((1, 1), "VALID"), {"rhs_dilation": (0, 2)}, TypeError), (((1, 1), "VALID"), {"rhs_dilation": (2,)}, ValueError),
    (((1, 1), "VALID"), {"dimension_numbers": ("NCHW", "OIHW")}, TypeError),
    (((1, 1), "VALID"), {"dimension_numbers": ("NCHW", "OIHW", "NHAC")}, TypeError),
    (((1, 1), "VALID"), {"dimension_numbers": ("NHWC", "OIHW", "NCHW")}, ValueError),
    (((1, 1), "SAME"), {"precision": "foo"}, ValueError),
]


@pytest.mark.parametrize("args, kwargs, error", ERRORS, ids=str)
def test_errors_name_what_does_not_fit(args, kwargs, error):
    with pytest.raises(error) as caught:
        lax.conv_general_dilated(np.ones((2, 3, 5, 6), f32), np.ones((4, 3, 2, 3), f32), *args, **kwargs)
    assert "loc(" not in str(caught.value)


def test_operands_that_do_not_fit():
    for left, right in ((np.ones((2, 3, 5), f32), np.ones((4, 3), f32)), (np.ones((2, 3, 5), f32), np.ones((4, 3, 2)))):
        with pytest.raises(TypeError):
            lax.conv_general_dilated(left, right.astype(np.int32), (1,), "SAME")
    with pytest.raises(ValueError, match="window must not be empty"):
        lax.conv_general_dilated(np.ones((2, 3, 5), f32), np.ones((4, 3, 0), f32), (1,), "VALID")


# (strides, padding, in numbers for the spread input, kernel dilation)
TRANSPOSED = [
    ((2, 2), "SAME", ((1, 1), (2, 1)), None), ((2, 2), "VALID", ((1, 1), (2, 2)), None),
    ((1, 3), "SAME", ((1, 0), (2, 2)), None), ((3, 1), "VALID", ((1, 2), (2, 2)), None),
    ((2, 2), ((1, 2), (0, 1)), ((1, 2), (0, 1)), None), ((2, 2), "SAME", ((2, 1), (2, 1)), (2, 1)),
]


@pytest.mark.parametrize("strides, padding, pads, dilation", TRANSPOSED, ids=str)
def test_transposed_convolutions_match_a_loop(strides, padding, pads, dilation, rng):
    x, kernel = draw(rng, (2, 3, 4, 3)), draw(rng, (2, 3, 2, 3))
    got = lax.conv_transpose(x, kernel, strides, padding, dilation, ("NCHW", "OIHW", "NCHW"))
    expected = convolve(x, kernel, (1, 1), pads, strides, dilation)
    np.testing.assert_array_equal(got, expected)
    if padding == "SAME":
        assert got.shape[2:] == tuple(n * stride for n, stride in zip(x.shape[2:], strides, strict=True))
    if dilation is None:
        assert got.shape == lax.conv_transpose_shape_tuple(x.shape, kernel.shape, strides, padding, None)


def test_transposed_convolution_conventions(rng):
    x, kernel = draw(rng, (2, 5, 3)), draw(rng, (2, 3, 4))  # NHC, HIO
    plain = lax.conv_transpose(x, kernel, (2,), "SAME")
    flipped = lax.conv_transpose(x, kernel[::-1].swapaxes(1, 2).copy(), (2,), "SAME", transpose_kernel=True)
    np.testing.assert_array_equal(plain, flipped)
    consistent = lax.conv_transpose(x, kernel, (2,), [(1, 0)], use_consistent_padding=True)
    np.testing.assert_array_equal(consistent, lax.conv_transpose(x, kernel, (2,), [(0, 1)]))
    for args in (((2, 2), "SAME"), ((2,), "FOO")):
        with pytest.raises((TypeError, ValueError), match=r"conv_transpose|Padding"):
            lax.conv_transpose(x, kernel, *args)


def test_patches_are_windows(rng):
    x, kernel = draw(rng, (2, 3, 4, 5)), draw(rng, (4, 3, 2, 3))
    patches = np.asarray(lax.conv_general_dilated_patches(x, (2, 3), (1, 1), "SAME"))
    assert patches.shape == (2, 18, 4, 5)
    expected = convolve(x, kernel, (1, 1), ((0, 1), (1, 1)))
    np.testing.assert_array_equal(np.einsum("nkhw,ok->nohw", patches, kernel.reshape(4, 18)), expected)
    last = lax.conv_general_dilated_patches(x.transpose(0, 2, 3, 1), (2, 3), (1, 1), "SAME",
                                            dimension_numbers=("NHWC", "HWIO", "NHWC"))
    np.testing.assert_array_equal(last, patches.transpose(0, 2, 3, 1))


def test_local_kernels_that_are_all_equal_convolve(rng):
    x, kernel = draw(rng, (2, 3, 5)), draw(rng, (4, 3, 2))
    local = np.broadcast_to(kernel.reshape(4, 6, 1), (4, 6, 4)).copy()
    got = lax.conv_general_dilated_local(x, local, (1,), "VALID", (2,))
    np.testing.assert_array_equal(got, convolve(x, kernel, (1,), ((0, 0),)))
    local[..., 1] = 0
    assert not np.asarray(lax.conv_general_dilated_local(x, local, (1,), "VALID", (2,)))[..., 1].any()


def test_relatives_are_the_same_operation():
    x, kernel = np.ones((1, 2, 5), f32), np.ones((3, 2, 2), f32)
    general = str(jaxlite.make_jaxpr(lambda a, b: lax.conv_general_dilated(a, b, (1,), "SAME"))(x, kernel))
    assert str(jaxlite.make_jaxpr(lambda a, b: lax.conv(a, b, (1,), "SAME"))(x, kernel)) == general
    assert str(jaxlite.make_jaxpr(lambda a, b: lax.conv_with_general_padding(a, b, (1,), [(0, 1)], None, None))(
        x, kernel)) == general


def test_shapes_and_positions():
    assert lax.conv_shape_tuple((2, 3, 5, 6), (4, 3, 2, 3), (1, 2), "SAME") == (2, 4, 5, 3)
    assert lax.conv_shape_tuple((4, 3, 5, 6), (4, 3, 2, 3), (1, 2), [(1, 1), (0, 0)], 2) == (2, 4, 6, 2)
    assert lax.conv_general_permutations(("NHWC", "HWIO", "NHWC")) == ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    assert lax.conv_dimension_numbers((1, 2, 3), (1, 2, 3), None) == lax.ConvDimensionNumbers((0, 1, 2), (0, 1, 2), (0, 1, 2))
    with pytest.raises(TypeError):
        lax.conv_shape_tuple((2, 3, 5, 6), (4, 3, 2, 3), (1, 2), [(1, 1)])
    for specs in (("NHHC", "HWIO", "NHWC"), ("NHWX", "HWIO", "NHWC")):
        with pytest.raises(TypeError):
            lax.conv_general_permutations(specs)
