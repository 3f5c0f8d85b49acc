"""Arrays in TensorStore: written, read into other shardings, shapes and dtypes, by a manager's thread."""

import asyncio

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite.experimental.array_serialization import serialization

ts = pytest.importorskip("tensorstore")
HERE = jax.sharding.SingleDeviceSharding(jax.devices()[0])
VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_round_trip_by_a_manager(tmp_path):
    arrays = [jnp.asarray(VALUES), jnp.asarray(7), jnp.ones((0, 2), jnp.bfloat16)]
    paths = [str(tmp_path / f"array{i}") for i in range(3)]
    called = []
    manager = serialization.GlobalAsyncCheckpointManager()
    manager.serialize_with_paths(arrays, paths, on_commit_callback=lambda: called.append(True))
    back = manager.deserialize_with_paths([HERE] * 3, paths)
    assert called == [True]
    for one, other in zip(arrays, back, strict=True):
        assert isinstance(other, jax.Array) and other.dtype == one.dtype and other.sharding == HERE
        np.testing.assert_array_equal(one, other)
    # TensorStore alone reads it
    stored = ts.open({"driver": "zarr", "kvstore": {"driver": "file", "path": paths[0]}}).result().read().result()
    np.testing.assert_array_equal(stored, VALUES)


def test_other_shape_and_dtype(tmp_path):
    spec = serialization.get_tensorstore_spec(tmp_path / "x")
    serialization.run_serialization([jnp.asarray(VALUES)], [spec])
    (out,) = serialization.run_deserialization([HERE], [spec], [(4, 2)], [jnp.int32])
    np.testing.assert_array_equal(out, np.pad(VALUES[:, :2], ((0, 1), (0, 0))).astype(np.int32))
    assert out.dtype == np.int32
    with pytest.raises(TypeError, match="sharding"):
        asyncio.run(serialization.async_deserialize(None, spec))


def test_what_went_wrong_in_the_thread_is_raised_once():
    manager = serialization.GlobalAsyncCheckpointManager()
    manager.serialize([], [], on_commit_callback=lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        manager.wait_until_finished()
    manager.check_for_errors()


def test_specs(tmp_path):
    from jaxlite.experimental.array_serialization import tensorstore_impl

    get = tensorstore_impl.get_tensorstore_spec
    assert get("gs://bucket/a//b/", ocdbt=False)["kvstore"] == {"driver": "gcs", "bucket": "bucket", "path": "a/b"}
    spec = get(tmp_path / "run" / "x", process_idx=2, arr=jnp.zeros((3, 4)))
    assert spec["kvstore"] == {"driver": "ocdbt", "path": "x",
                               "base": {"driver": "file", "path": str(tmp_path / "run" / "process_2")}}
    tensorstore_impl.verify_tensorstore_spec(spec, jnp.ones((3, 4)), tmp_path / "run" / "process_2", ocdbt=True)
    with pytest.raises(ValueError, match="dtype"):
        tensorstore_impl.verify_tensorstore_spec(spec, jnp.ones((3, 4), int), "", ocdbt=True)
    with pytest.raises(ValueError, match="absolute"):
        get("relative/x")
    assert serialization.is_remote_storage(get("s3://bucket/x", ocdbt=False)) and not serialization.is_remote_storage(spec)
    # chunks divide the shape, and have about as many bytes as are asked for
    chunk = tensorstore_impl._chunk_shape([6, 35, 11], 4, 400)
    assert all(size % each == 0 for size, each in zip([6, 35, 11], chunk, strict=True)) and np.prod(chunk) * 4 <= 440
