"""Grouped products: one matrix for each group of rows."""

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite.experimental.pallas.ops.tpu import megablox
from jaxlite.experimental.pallas.ops.tpu.megablox import gmm
from jaxlite.experimental.pallas.ops.tpu.megablox.gmm import make_group_metadata, tgmm

SIZES = np.array([2, 5, 0, 3], np.int32)
STARTS = [0, 2, 7, 7, 10]
RNG = np.random.default_rng(0)
LHS, RHS = RNG.normal(size=(10, 4)).astype(np.float32), RNG.normal(size=(4, 4, 3)).astype(np.float32)


def product(lhs, rhs, first, last):
    out = np.zeros((10, 3), np.float32)
    for group in range(first, last):
        rows = slice(STARTS[group], STARTS[group + 1])
        out[rows] = lhs[rows] @ rhs[group]
    return out


def test_each_group_has_its_matrix_and_derivatives():
    expected = product(LHS, RHS, 0, 4)
    np.testing.assert_allclose(gmm(LHS, RHS, SIZES), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gmm(LHS, RHS.swapaxes(1, 2), SIZES, transpose_rhs=True), expected, rtol=1e-5, atol=1e-6)
    assert gmm(LHS, RHS, SIZES, jnp.bfloat16).dtype == jnp.bfloat16
    lhs_bar, rhs_bar = jax.grad(lambda lhs, rhs: (gmm(lhs, rhs, SIZES) * expected).sum(), (0, 1))(LHS, RHS)
    for group in range(4):
        rows = slice(STARTS[group], STARTS[group + 1])
        np.testing.assert_allclose(lhs_bar[rows], expected[rows] @ RHS[group].T, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(rhs_bar[group], LHS[rows].T @ expected[rows], rtol=1e-4, atol=1e-5)


def test_some_of_the_groups():
    part = jax.jit(lambda offset, **options: gmm(LHS, RHS[1:3], SIZES, group_offset=offset, **options))
    expected = product(LHS, RHS, 1, 3)
    np.testing.assert_allclose(part(np.int32(1)), expected, rtol=1e-5, atol=1e-6)
    out = part(np.int32(1), existing_out=jnp.full((10, 3), 7.0))
    np.testing.assert_allclose(out[2:7], expected[2:7], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.delete(out, range(2, 7), 0), 7)
    with pytest.raises(ValueError, match="of dtype float16"):
        gmm(LHS, RHS, SIZES, existing_out=jnp.zeros((10, 3), jnp.float16))
    with pytest.raises(ValueError, match=r"\(\)-shaped"):
        gmm(LHS, RHS, SIZES, group_offset=np.array([0]))
    with pytest.raises(ValueError, match="one matrix for each group"):
        gmm(LHS, RHS[0], SIZES)


def test_columns_and_rows_in_groups():
    rows = RNG.normal(size=(10, 3)).astype(np.float32)
    expected = np.stack([LHS[start:stop].T @ rows[start:stop] for start, stop in zip(STARTS[:-1], STARTS[1:], strict=True)])
    close = lambda found, wanted: np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    close(tgmm(LHS.T, rows, SIZES), expected)
    some = jax.jit(lambda first, **options: tgmm(LHS.T, rows, SIZES, group_offset=first, num_actual_groups=2, **options))
    close(some(np.int32(1)), expected[1:3])
    close(some(np.int32(2), existing_out=jnp.ones((2, 4, 3))), expected[2:] + 1)
    assert tgmm(LHS.T, rows, SIZES, jnp.bfloat16).dtype == jnp.bfloat16 and megablox.gmm is gmm
    with pytest.raises(ValueError, match="existing_out is of dtype"):
        some(np.int32(2), existing_out=jnp.ones((2, 4, 3), jnp.float16))


@pytest.mark.parametrize("empty", [True, False])
def test_steps_through_tiles_of_groups(empty):
    for sizes, start, number in (([3, 5, 0, 8], 0, 4), ([0, 4, 12], 1, 2), ([5, 0, 3, 8, 0], 2, 2)):
        (offsets, groups, tiles), steps = make_group_metadata(
            group_sizes=jnp.array(sizes), m=16, tm=4, start_group=start, num_nonzero_groups=number, visit_empty_groups=empty)
        ends = np.cumsum(sizes)
        expected = [(group, tile) for group in range(start, start + number) for tile in range(4)
                    if max(ends[group] - sizes[group], 4 * tile) < min(ends[group], 4 * tile + 4)
                    or empty and not sizes[group] and tile == min(ends[group] // 4, 3)]
        assert list(zip(groups.tolist(), tiles.tolist(), strict=True))[:int(steps)] == expected
        assert offsets.tolist() == [0, *ends] and len(groups) == 4 + len(sizes) - 1
    with pytest.raises(ValueError, match="divisible"):
        make_group_metadata(group_sizes=jnp.array([10]), m=10, tm=4, start_group=0, num_nonzero_groups=1)
