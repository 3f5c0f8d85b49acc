"""Segment reductions against loops in NumPy."""

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp

IDS = np.array([0, 2, 2, 5, -1, 0, 3])
REDUCTIONS = [("sum", np.add, 0), ("prod", np.multiply, 1), ("max", np.maximum, None), ("min", np.minimum, None)]


def by_loop(name, ufunc, start, data, ids, count):
    if start is None:
        limits = np.iinfo(data.dtype) if data.dtype.kind in "iu" else np.finfo(data.dtype)
        infinite = {"max": -np.inf, "min": np.inf} if data.dtype.kind == "f" else {"max": limits.min, "min": limits.max}
        start = infinite[name]
    out = np.full((count, *data.shape[1:]), start, data.dtype)
    for value, index in zip(data, ids, strict=True):
        if 0 <= index < count:
            out[index] = ufunc(out[index], value)
    return out


@pytest.mark.parametrize(("name", "ufunc", "start"), REDUCTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_segments_match_a_loop(name, ufunc, start, dtype, rng):
    reduce = getattr(jax.ops, f"segment_{name}")
    for shape, count in (((7,), 4), ((7, 2), 6)):
        data = (rng.normal(size=shape) * 4).astype(dtype)
        expected = by_loop(name, ufunc, start, data, IDS, count)
        np.testing.assert_allclose(reduce(data, IDS, count), expected, rtol=1e-5)
        np.testing.assert_allclose(reduce(data, IDS, count, bucket_size=3), expected, rtol=1e-5)
    np.testing.assert_allclose(reduce(data, IDS), by_loop(name, ufunc, start, data, IDS, 6), rtol=1e-5)


def test_segments_under_transformations_and_wrong_arguments(rng):
    data = rng.normal(size=(7, 2)).astype(np.float32)
    jitted = jax.jit(jax.ops.segment_sum, static_argnums=2)
    np.testing.assert_allclose(jitted(data, IDS, 4), by_loop("sum", np.add, 0, data, IDS, 4), rtol=1e-5)
    gradient = jax.grad(lambda data: jax.ops.segment_sum(data, IDS, 4)[2].sum())(data)
    np.testing.assert_allclose(gradient, np.where(IDS[:, None] == 2, np.ones((7, 2)), 0))
    with pytest.raises(jax.errors.ConcretizationTypeError, match="give num_segments"):
        jax.jit(jax.ops.segment_sum)(data, IDS)
    assert jax.ops.segment_sum(jnp.ones(1), jnp.array([2**32 - 1], jnp.uint32)).shape == (0,)  # the size wraps
    with pytest.raises(TypeError, match="segment_ids must be integers"):
        jax.ops.segment_sum(data, jnp.asarray(IDS, float), 4)
    with pytest.raises(ValueError, match="must not be negative"):
        jax.ops.segment_sum(data, IDS, -1)
