"""Arrays in TensorStore: how a store is named and laid out, and the writing and reading of an array's shards.

It needs the package `tensorstore`. Specs, layouts and defaults are those of JAX, which reads what this module writes.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorstore as ts

from jaxlite.core.array import Array
from jaxlite.core.dtypes import canonicalize_dtype
from jaxlite.core.shape_dtype import ShapeDtypeStruct
from jaxlite.core.tree import tree_flatten
from jaxlite.devices.api import device_put, process_count, process_index
from jaxlite.devices.global_arrays import make_array_from_single_device_arrays
from jaxlite.devices.sharding import Format, Sharding, SingleDeviceSharding

__all__ = ["async_deserialize", "async_serialize", "combine_kvstores", "estimate_read_memory_footprint", "get_tensorstore_spec",
           "is_tensorstore_spec_leaf", "merge_nested_ts_specs", "verify_tensorstore_spec"]
__dir__ = lambda: __all__

Future, Transaction = ts.Future, ts.Transaction
_DEFAULT_BASE_DRIVER = "file"
_LARGEST_FILE = 2 ** 31  # bytes, aimed at
_TS_CONTEXT = ts.Context({
    "file_io_concurrency": {"limit": 128}, "data_copy_concurrency": {"limit": 128},
    "cache_pool": {"total_bytes_limit": 10 ** 10}, "cache_pool#remote": {"total_bytes_limit": 10 ** 10}})
_TS_CHUNK_LAYOUT = ts.ChunkLayout(chunk=ts.ChunkLayout.Grid(elements=10 ** 8))


class _LimitInFlightBytes:
    """So many bytes of host memory, which readers wait for and give back. One that wants more than all waits for all."""

    def __init__(self, host_memory_bytes_limit: int):
        self._limit = self._free = host_memory_bytes_limit
        self._change = asyncio.Condition()

    async def wait_for_bytes(self, requested_bytes: int) -> None:
        wanted = min(requested_bytes, self._limit)
        async with self._change:
            await self._change.wait_for(lambda: self._free >= wanted)
            self._free -= wanted

    async def release_bytes(self, requested_bytes: int) -> None:
        async with self._change:
            self._free += min(requested_bytes, self._limit)
            self._change.notify_all()


# --- specs ---

def is_tensorstore_spec_leaf(leaf: Any) -> bool:
    """Whether a value in a tree of specs is a spec, or None in the place of one."""
    return leaf is None or (isinstance(leaf, dict) and ("driver" in leaf or "kvstore" in leaf))


def get_tensorstore_spec(ckpt_path: str | os.PathLike[str], ocdbt: bool = True, process_idx: int | None = None,
                         arr: Any = None, driver: str = "zarr3") -> dict[str, Any]:
    """The spec of an array's store at a path: a file's, `gs://` or `s3://`.

    Args:
      ocdbt: the array is an entry, named by the last part of the path, of a database in the folder before it.
      process_idx: the process that writes: processes that write to one database have a folder each.
      arr: an array, whose shape, dtype and shards become part of the spec.

    Raises: ValueError for a remote path without a bucket, and for a relative path of a database.
    """
    path = re.sub(r"^(gs|s3):/", r"\1://", os.path.normpath(str(ckpt_path)))
    if process_idx is not None:
        folder, name = os.path.split(path)
        path = os.path.join(folder, f"process_{process_idx}", name)
    place, entry = os.path.split(path) if ocdbt else (path, "")
    if remote := re.match(r"(gs|s3)://", place):
        parts = re.fullmatch(r"([^/]*)/(.*)", place[remote.end():], re.DOTALL)
        if parts is None:
            raise ValueError(f"a remote path needs a bucket, a folder{' and a name' if ocdbt else ''}: got {ckpt_path}")
        base = {"driver": {"gs": "gcs", "s3": "s3"}[remote[1]], "bucket": parts[1], "path": parts[2]}
    else:
        if ocdbt and not os.path.isabs(place):
            raise ValueError(f"Checkpoint path should be absolute. Got {place}")
        base = {"driver": _DEFAULT_BASE_DRIVER, "path": place}
    spec = {"driver": driver, "kvstore": {"driver": "ocdbt", "base": base, "path": entry} if ocdbt else base}
    if arr is not None:
        spec["metadata"] = _get_tensorstore_metadata(arr, driver=driver)
    return spec


def _get_tensorstore_metadata(arr: Any, is_remote: bool = False, file_size_target: int = _LARGEST_FILE,
                              driver: str = "zarr3") -> dict[str, Any]:
    """What a store's metadata says of an array: chunks divide its shards. Raises: ValueError for another driver."""
    local = _shard_shape(arr)
    if driver == "zarr":
        return {"compressor": {"id": "zstd"}, "shape": arr.shape, "chunks": [max(1, each) for each in local]}
    if driver != "zarr3":
        raise ValueError(f"Unsupported driver: {driver}")
    chunk = _chunk_shape(local, np.dtype(arr.dtype).itemsize, file_size_target)
    return {"codecs": [{"name": "zstd"}] if is_remote else [], "shape": arr.shape, "data_type": np.dtype(arr.dtype).name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}}}


def _shard_shape(arr: Any) -> tuple[int, ...]:
    return tuple(arr.sharding.shard_shape(arr.shape) if isinstance(arr, Array) else arr.shape)


def _chunk_shape(shape: Sequence[int], itemsize: int, target: int) -> list[int]:
    """A shape that divides this one, of about `target` bytes at most: the smallest prime factors are divided out first."""
    chunk = [max(1, each) for each in shape]
    while math.prod(chunk) * itemsize > 1.1 * target:
        factors = [(next((p for p in range(2, math.isqrt(each) + 1) if each % p == 0), each), axis)
                   for axis, each in enumerate(chunk) if each > 1]
        if not factors:
            break
        factor, axis = min(factors)
        chunk[axis] //= factor
    return chunk


def merge_nested_ts_specs(dict1: dict[Any, Any], dict2: dict[Any, Any] | None) -> dict[Any, Any]:
    """Two specs as one, and their stores too. The second counts where they differ."""
    if dict2 is None:
        return dict1
    return {**dict1, **dict2, "kvstore": {**dict1.get("kvstore", {}), **dict2.get("kvstore", {})}}


def verify_tensorstore_spec(spec: dict[str, Any], arr: Any, path: str | os.PathLike[str], ocdbt: bool,
                            check_metadata: bool = True) -> None:
    """Check that a spec fits an array and a path. Raises: ValueError that says what does not."""
    store = spec.get("kvstore", {})
    if ocdbt and store.get("driver") != "ocdbt":
        raise ValueError(f"Expected ocdbt driver, got {spec=}")
    if check_metadata:
        if arr is None:
            raise ValueError("Array is required for metadata verification.")
        metadata = spec["metadata"]
        zarr3 = spec.get("driver") == "zarr3"
        if zarr3 and metadata["data_type"] != np.dtype(arr.dtype).name:
            raise ValueError(f"the spec's dtype {metadata['data_type']} is not the array's, {arr.dtype}")
        if tuple(metadata.get("shape", arr.shape)) != tuple(arr.shape):
            raise ValueError(f"the spec's shape {metadata['shape']} is not the array's, {arr.shape}")
        if zarr3:
            chunk, local = metadata["chunk_grid"]["configuration"]["chunk_shape"], _shard_shape(arr)
            if any(size % each for size, each in zip(local, chunk, strict=True)):
                raise ValueError(f"the spec's chunks {chunk} do not divide the array's shards {local}")
    found = store["base"]["path"] if ocdbt else store["path"]
    if str(found) != str(path):
        raise ValueError(f"the spec is for {found}, not for {path}")


def _has_metadata(tree: Any) -> bool:
    return isinstance(tree, dict) and ("metadata" in tree or any(map(_has_metadata, tree.values())))


async def combine_kvstores(combined_kvstore: dict[str, Any], kvstores: list[dict[str, Any]],
                           context: Any = _TS_CONTEXT) -> None:
    """Copy what the processes' databases refer to into one. One process does it."""
    combined, *parts = await asyncio.gather(*(ts.KvStore.open(each, context=context) for each in (combined_kvstore, *kvstores)))
    transaction = ts.Transaction()
    target = combined.with_transaction(transaction)
    await asyncio.gather(*(each.experimental_copy_range_to(target) for each in parts))
    await transaction.commit_async()


# --- writing ---

async def async_serialize(arr_inp: Any, tensorstore_spec: dict[str, Any], commit_future: list[Any] | None = None,
                          context: Any = _TS_CONTEXT, chunk_layout: Any = _TS_CHUNK_LAYOUT, primary_host: int | None = None,
                          replica_id: int = 0, transaction: Any = None) -> list[None]:
    """Write an array's shards that are in this process.

    Args:
      tensorstore_spec: the store's; metadata that it lacks are added to it.
      commit_future: a list that gets what is to be waited for; without one, everything is written on return.
      primary_host: the process that makes the store; all do by default.
      replica_id: which copy of each shard is written.
      transaction: TensorStore's, which the writes become part of.

    Raises: ValueError for an array of this process alone, where there are several.
    """
    if process_count() > 1 and isinstance(arr_inp, Array) and arr_inp.is_fully_addressable:
        raise ValueError("Passing fully addressable arrays to a multiprocess serialization is not allowed: processes would "
                         f"overwrite each other's at {tensorstore_spec['kvstore']}")
    if not _has_metadata(tensorstore_spec):
        tensorstore_spec["metadata"] = _get_tensorstore_metadata(arr_inp, driver=tensorstore_spec["driver"])
    if tensorstore_spec["driver"] == "zarr":
        tensorstore_spec.setdefault("dtype", np.dtype(arr_inp.dtype).name)
    options = {"open": True, "context": context, "chunk_layout": chunk_layout, "transaction": transaction}
    if primary_host in (None, process_index()):
        made = ts.open(ts.Spec(tensorstore_spec), create=True, **options)
        if commit_future is None:
            await made
        else:
            commit_future.append(made)
    store = await ts.open(ts.Spec(tensorstore_spec), assume_metadata=True, **options)

    async def write(shard: Any) -> None:
        shard.data.copy_to_host_async()
        await asyncio.sleep(0)  # the other shards start on their way
        written = store[shard.index].write(np.asarray(shard.data),
                                           can_reference_source_data_indefinitely=isinstance(arr_inp, Array))
        if commit_future is None:
            await written.commit
        else:
            commit_future.append(written.commit)
            await written.copy

    return await asyncio.gather(*(write(each) for each in arr_inp.addressable_shards if each.replica_id == replica_id))


def _run_serialization(arrays: Any, tensorstore_specs: Any) -> None:
    """Write a tree of arrays, each where its spec says."""
    async def run() -> None:
        leaves, tree = tree_flatten(arrays)
        await asyncio.gather(*map(async_serialize, leaves, tree.flatten_up_to(tensorstore_specs)))
    asyncio.run(run())


# --- reading ---

def estimate_read_memory_footprint(t: Any, domain: Any) -> int:
    """The bytes of the chunks that a part of a store is in; of the part itself where the store has no chunks."""
    domain = t.domain if domain is None else domain
    chunk = t.chunk_layout.read_chunk_template
    if not all(chunk[axis].finite for axis in range(t.rank)):
        return domain.size * t.dtype.numpy_dtype.itemsize
    spans = []
    for start, length, origin, size in zip(domain.origin, domain.shape, chunk.origin, chunk.shape, strict=True):
        first = start - origin
        spans.append((-(-(first + length) // size) - first // size) * size)
    return math.prod(spans) * t.dtype.numpy_dtype.itemsize


async def async_deserialize(in_type: Any, tensorstore_spec: Any, global_shape: Sequence[int] | None = None, dtype: Any = None,
                            byte_limiter: _LimitInFlightBytes | None = None, context: Any = _TS_CONTEXT,
                            chunk_layout: Any = _TS_CHUNK_LAYOUT, assume_metadata: bool = False) -> Any:
    """Read an array, each shard on its own.

    Args:
      in_type: a sharding, a `Format`, or a `ShapeDtypeStruct` with a sharding.
      global_shape: the result's shape, where it is not the stored one: elements are cut off, or zeros added.
      dtype: the result's, converted on the way.
      byte_limiter: shards wait for so much memory.

    Raises: TypeError for anything else in place of a sharding.
    """
    layout, sharding = None, in_type
    if isinstance(in_type, ShapeDtypeStruct):
        sharding, layout = in_type.sharding, in_type.format.layout
        dtype = in_type.dtype if dtype is None else dtype
    elif isinstance(in_type, Format):
        sharding, layout = in_type.sharding, in_type.layout
    if not isinstance(sharding, Sharding):
        raise TypeError("sharding passed to deserialization should be specified, concrete and an instance of "
                        f"`jax.sharding.Sharding`. Got {in_type}")
    store = await ts.open(tensorstore_spec, open=True, assume_metadata=assume_metadata, context=context,
                          chunk_layout=chunk_layout)
    shape = tuple(store.shape if global_shape is None else global_shape)
    stored = store.dtype.numpy_dtype
    dtype = stored if dtype is None else dtype

    async def read(index: Any, device: Any) -> Any:
        wanted = ts.IndexTransform(input_shape=shape)[index].domain
        there = store.domain.intersect(wanted)
        size = estimate_read_memory_footprint(store, there)
        if byte_limiter is not None:
            await byte_limiter.wait_for_bytes(size)
        out = np.zeros(sharding.shard_shape(shape), stored)
        await ts.array(out)[ts.d[:].translate_to[wanted.origin]][there].write(store[there])
        result = device_put(out.astype(dtype, copy=False),
                                Format(layout, SingleDeviceSharding(device)))
        if byte_limiter is not None:
            await byte_limiter.release_bytes(size)
        return result

    places = sharding.addressable_devices_indices_map(shape)
    shards = await asyncio.gather(*(read(index, device) for device, index in places.items()))
    return make_array_from_single_device_arrays(shape, sharding, shards, dtype=canonicalize_dtype(dtype))


def _run_deserialization(shardings: Sequence[Any], tensorstore_specs: Sequence[Any],
                         global_shapes: Sequence[Any] | None = None, dtypes: Sequence[Any] | None = None,
                         concurrent_gb: int = 32) -> list[Any]:
    """Read arrays into shardings, with so much host memory in use at a time."""
    none = [None] * len(tensorstore_specs)

    async def run() -> list[Any]:
        limit = _LimitInFlightBytes(concurrent_gb * 10 ** 9)
        return await asyncio.gather(*(async_deserialize(*each, byte_limiter=limit) for each in zip(
            shardings, tensorstore_specs, global_shapes or none, dtypes or none, strict=True)))
    return asyncio.run(run())
