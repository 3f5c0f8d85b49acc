"""Checkpoint managers on TensorStore: arrays are copied at once, and written by a thread while the program goes on."""

from __future__ import annotations

import asyncio
import functools
import itertools
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.compilation.monitoring import record_event_duration_secs
from jaxlite.core.tree import tree_flatten
from jaxlite.devices import processes
from jaxlite.devices.api import process_count, process_index
from jaxlite.errors import JaxRuntimeError
from jaxlite.experimental.array_serialization import tensorstore_impl
from jaxlite.experimental.array_serialization.serialization import GlobalAsyncCheckpointManagerBase

# Zarr's older format, in files of its own for each array: what checkpoint managers have always written.
get_tensorstore_spec = functools.partial(tensorstore_impl.get_tensorstore_spec, driver="zarr", ocdbt=False)

_numbers = itertools.count()  # of the checkpoints of this process; the same in all of them


class BarrierTimeoutError(Exception):
    """Some process did not finish writing in time."""


def is_remote_storage(tspec: dict[str, Any] | str) -> bool:
    """Whether a store's spec or URL names Google's or Amazon's storage, as far as its driver or path tells."""
    if isinstance(tspec, str):
        return re.match("(gs|s3)://", tspec) is not None
    for part in ("base", "kvstore"):
        if part in tspec:
            return is_remote_storage(tspec[part])
    return tspec.get("driver") in ("gcs", "s3")


class AsyncManager:
    """A thread that waits until everything is written everywhere, and then calls back.

    Args:
      timeout_secs: how long processes wait for each other.

    Raises: ValueError in one of several processes without `jax.distributed.initialize`.
    """

    def __init__(self, timeout_secs: float = 300):
        self._timeout = int(timeout_secs * 1000)
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._futures: Sequence[Any] = ()
        self._key = ""
        peers = processes.peers()
        self._store: Any = None if peers is None else peers.store
        if self._store is None and process_count() > 1:
            raise ValueError("Please initialize the distributed system via `jax.distributed.initialize()` at the start of your "
                             "program.")

    def _add_futures(self, futures: Sequence[Any]) -> None:
        self._futures = futures

    def _start_async_commit(self, on_commit_callback: Callable[[], None] | None) -> None:
        self._key = f"tensorstore_checkpoint_{next(_numbers)}"
        self._thread = threading.Thread(target=self._commit, args=(on_commit_callback,))
        self._thread.start()

    def _commit(self, on_commit_callback: Callable[[], None] | None) -> None:
        start = time.time()
        try:
            for each in self._futures:
                each.result()
            several = process_count() > 1
            if several:
                self._store.wait_at_barrier(self._key, self._timeout)
            if process_index() == 0:
                if on_commit_callback is not None:
                    on_commit_callback()
                if several:
                    self._store.key_value_set(self._key, "done")
            record_event_duration_secs("/jax/checkpoint/write/async/thread_duration_sec", time.time() - start)
        except Exception as error:  # raised again by the next check
            self._error = error

    def check_for_errors(self) -> None:
        """Raise what writing has raised since the last check. Raises: BarrierTimeoutError where a process came too late."""
        error, self._error = self._error, None
        if isinstance(error, JaxRuntimeError) and "DEADLINE_EXCEEDED: Barrier timed out" in str(error):
            raise BarrierTimeoutError(f"{error}\nSome process did not finish writing within {self._timeout / 1000:g} s: it may "
                                      "have failed, or `timeout_secs` is too small") from error
        if error is not None:
            raise error

    def wait_until_finished(self) -> None:
        """Return when everything is written, by all processes; raise what went wrong."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        self.check_for_errors()
        if thread is not None and process_count() > 1:
            self._store.blocking_key_value_get(self._key, self._timeout)


class GlobalAsyncCheckpointManager(AsyncManager, GlobalAsyncCheckpointManagerBase):
    """Writes and reads arrays whose shards may be in several processes."""

    def serialize(self, arrays: Any, tensorstore_specs: Any, *, on_commit_callback: Callable[[], None] | None = None,
                  transaction: Any = None) -> None:
        """Start to write arrays where the specs say.

        Args:
          on_commit_callback: called in process 0 when all processes have written, to rename a folder for example.
        """
        self.wait_until_finished()
        futures: list[Any] = []

        async def copy() -> None:
            leaves, tree = tree_flatten(arrays)
            await asyncio.gather(*(
                tensorstore_impl.async_serialize(leaf, spec, commit_future=futures, transaction=transaction)
                for leaf, spec in zip(leaves, tree.flatten_up_to(tensorstore_specs), strict=True)))
        asyncio.run(copy())
        self._add_futures(futures)
        self._start_async_commit(on_commit_callback)

    def serialize_with_paths(self, arrays: Sequence[Any], paths: Sequence[str], *,
                             on_commit_callback: Callable[[], None] | None = None, transaction: Any = None) -> None:
        """`serialize` to files of these names."""
        self.serialize(arrays, list(map(get_tensorstore_spec, paths)), on_commit_callback=on_commit_callback,
                       transaction=transaction)

    def deserialize(self, shardings: Sequence[Any], tensorstore_specs: Sequence[dict[str, Any]],
                    global_shapes: Sequence[Any] | None = None, dtypes: Sequence[Any] | None = None,
                    concurrent_gb: int = 32) -> list[Any]:
        """Read arrays into shardings, after what is being written. `concurrent_gb` limits the memory that reading takes."""
        self.wait_until_finished()
        return tensorstore_impl._run_deserialization(shardings, tensorstore_specs, global_shapes, dtypes, concurrent_gb)

    def deserialize_with_paths(self, shardings: Sequence[Any], paths: Sequence[str],
                               global_shapes: Sequence[Any] | None = None, dtypes: Sequence[Any] | None = None,
                               concurrent_gb: int = 32) -> list[Any]:
        """`deserialize` from files of these names."""
        return self.deserialize(shardings, list(map(get_tensorstore_spec, paths)), global_shapes, dtypes, concurrent_gb)
