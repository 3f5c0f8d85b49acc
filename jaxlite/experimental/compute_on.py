"""Where a part of a program is computed, as `jax.experimental.compute_on` names it: on the CPU all kinds are one."""

from __future__ import annotations

import re
from contextlib import ContextDecorator
from typing import Any

from lowering import platforms

__all__ = ["compute_on"]

_KINDS = ("device_host", "device", "tpu_sparsecore")


class _ComputeOn(ContextDecorator):
    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        pass


def compute_on(f: Any = None, *, compute_type: str | None = None, out_memory_spaces: Any = None) -> Any:
    """Say what computes a part of a program: a context, or a decorator of a function.

    Args:
      f: the kind of processor, for a context or a decorator; or the function to decorate.
      compute_type: the kind: 'device_host' the host of the devices, 'device', 'tpu_sparsecore', or 'gpu_stream:#'.
      out_memory_spaces: where the results are to be; only the default memory.
    Raises: ValueError for another kind, and on another platform than the CPU, whose devices and host are one processor.

    >>> import jaxlite as jax
    >>> with compute_on("device_host"):
    ...     print(jax.numpy.arange(2) * 2)
    [0 2]
    """
    kind: Any = f if isinstance(f, str) else compute_type
    if not (kind in _KINDS or isinstance(kind, str) and re.fullmatch(r"gpu_stream:\d+", kind)):
        raise ValueError(f"Invalid compute type {kind}. Current supported values are `device_host`, `device`, "
                         "`tpu_sparsecore`, and `gpu_stream:#`.")
    if kind != "device" and platforms.platform_of(platforms.default_device()) != "cpu":
        raise ValueError(f"compute_on({kind!r}): programs for {platforms.platform_of(platforms.default_device())} run on its "
                         "devices alone; compute this part in a function of its own, with its arguments on a CPU device")
    if any(getattr(space, "name", "Device") != "Device" for space in (
            out_memory_spaces if isinstance(out_memory_spaces, (tuple, list)) else (out_memory_spaces,))):
        raise ValueError(f"compute_on: results are in the default memory, got out_memory_spaces={out_memory_spaces}")
    context = _ComputeOn()
    if callable(f):
        return context(f)
    return context
