"""`compute_on`: on which kind of host or device a part of a program is computed. On the CPU all kinds are the same."""

from __future__ import annotations

import re
from contextlib import ContextDecorator
from typing import Any

from jaxlite.core import source
from jaxlite.core.filtering import boundary
from jaxlite.core.tree import broadcast_prefix, tree_flatten
from jaxlite.devices.api import device_put
from lowering import platforms

__all__ = ["compute_on", "compute_on2"]
__dir__ = lambda: __all__

_KINDS = ("device_host", "device", "tpu_sparsecore")


class _ComputeOn(ContextDecorator):
    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        pass


def _check(kind: Any) -> None:
    if not (kind in _KINDS or isinstance(kind, str) and re.fullmatch(r"gpu_stream:\d+", kind)):
        raise ValueError(f"Invalid compute type {kind}. Current supported values are `device_host`, `device`, "
                         "`tpu_sparsecore`, and `gpu_stream:#`.")
    if kind != "device" and platforms.platform_of(platforms.default_device()) != "cpu":
        raise ValueError(f"compute_on({kind!r}): programs for {platforms.platform_of(platforms.default_device())} run on its "
                         "devices alone; compute this part in a function of its own, with its arguments on a CPU device")


def compute_on(f: Any = None, *, compute_type: str | None = None, out_memory_spaces: Any = None,
               compiler_options: dict[str, Any] | None = None) -> Any:
    """Say what computes a part of a program: a context, or a decorator of a function.

    Args:
      f: the kind of processor, for a context or a decorator; or the function to decorate.
      compute_type: the kind: 'device_host' the host of the devices, 'device', 'tpu_sparsecore', or 'gpu_stream:#'.
      out_memory_spaces: where the results of the function are to be, as in `compute_on2`; by default where they are.
      compiler_options: as in `compute_on2`.
    Raises: ValueError for another kind, and on another platform than the CPU, whose devices and host are one processor.

    >>> import jaxlite as jax
    >>> with compute_on("device_host"):
    ...     print(jax.numpy.arange(2) * 2)
    [0 2]
    """
    kind = f if isinstance(f, str) else compute_type
    _check(kind)
    if out_memory_spaces is not None:
        return compute_on2(None if isinstance(f, str) else f, compute_type=str(kind), out_memory_spaces=out_memory_spaces,
                           compiler_options=compiler_options)
    context = _ComputeOn()
    return context(f) if callable(f) else context


def compute_on2(f: Any = None, *, compute_type: str, out_memory_spaces: Any, compiler_options: dict[str, Any] | None = None,
                ) -> Any:
    """A function that another processor computes, with its results in some kind of memory.

    Args:
      f: a function of pytrees of arrays. Without it, a decorator.
      compute_type: as in `compute_on`.
      out_memory_spaces: a `jax.memory.Space`, or a pytree prefix of them: where the results are, inside programs.
      compiler_options: for the compile of the part; on the CPU there is none of its own.

    >>> import jaxlite as jax
    >>> kept = compute_on2(lambda x: x * 2, compute_type="device_host", out_memory_spaces=jax.memory.Space.Host)
    >>> jax.eval_shape(lambda x: jax.typeof(kept(x)) and x, jax.numpy.arange(2.0)).shape
    (2,)
    """
    if f is None:
        return lambda g: compute_on2(g, compute_type=compute_type, out_memory_spaces=out_memory_spaces,
                                     compiler_options=compiler_options)
    _check(compute_type)

    @source.wraps(f)
    @boundary
    def moved(*args: Any, **kwargs: Any) -> Any:
        results = f(*args, **kwargs)
        leaves, tree = tree_flatten(results)
        spaces = broadcast_prefix(out_memory_spaces, results)
        return tree.unflatten([device_put(leaf, space) for leaf, space in zip(leaves, spaces, strict=True)])

    return moved
