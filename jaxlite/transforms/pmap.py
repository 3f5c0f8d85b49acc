"""pmap: a function of single examples, one on each device. It is `vmap` under `jit`, its batch spread over a mesh."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.compilation.jit import jit
from jaxlite.compilation.options import check_callable
from jaxlite.core.filtering import boundary
from jaxlite.core.tracing import Tracer
from jaxlite.core.tree import broadcast_prefix, tree_flatten, tree_leaves, tree_map
from jaxlite.core.values import aval_of
from jaxlite.devices.api import device_put, local_devices
from jaxlite.devices.mesh import Mesh
from jaxlite.devices.sharding import NamedSharding, PartitionSpec
from jaxlite.transforms.vmap import vmap

_PLACES = "pmap_devices"  # the mesh axis; programs do not name it


def pmap(fun: Callable, axis_name: Any = None, *, in_axes: Any = 0, out_axes: Any = 0,
         static_broadcasted_argnums: int | Sequence[int] = (), devices: Sequence[Any] | None = None,
         backend: str | None = None, axis_size: int | None = None, donate_argnums: int | Sequence[int] = ()) -> Any:
    """A function that maps `fun` over axes of its arguments, one example on each device.

    Args:
      fun: a function of pytrees of arrays, written for one example.
      axis_name: a name for the axis, for collectives such as `lax.psum`.
      in_axes: which axis of each positional argument is mapped: an int, None for arguments that all devices share, or a tuple
        of pytree prefixes of these. Keyword arguments are mapped over their axis 0.
      out_axes: where the mapped axis goes in the results; None for results that do not vary.
      static_broadcasted_argnums: positions of arguments that are Python values, known while tracing.
      devices: where the examples go, in this order; by default the first ones of the backend.
      axis_size: the number of examples, which the arguments tell.
      donate_argnums: positions of arguments whose memory the results may take.
    Returns: a function whose results are spread over the devices.
    Raises: ValueError if no argument is mapped, sizes differ, or there are more examples than devices.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> jaxlite.pmap(lambda x: x / jaxlite.lax.psum(x, "i"), axis_name="i")(jnp.ones((1, 2)))
    Array([[1., 1.]], dtype=float32)
    """
    check_callable(fun)
    static = _positions(static_broadcasted_argnums)
    donated = _positions(donate_argnums)
    axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    stacked = tree_map(lambda axis: axis or 0, out_axes, is_leaf=_is_none)  # None: the result of the first device

    @functools.lru_cache(256)
    def program(mesh: Mesh, values: tuple[tuple[int, Any], ...], count: int) -> Any:
        dynamic_axes = _dynamic(axes, static, count)

        def call(keywords: dict[str, Any], *args: Any) -> Any:
            rest, known = iter(args), dict(values)
            return fun(*[known[index] if index in known else next(rest) for index in range(count)], **keywords)

        batched = vmap(call, (0, *dynamic_axes), stacked, axis_name, axis_size=mesh.size)

        def mapped(keywords: dict[str, Any], *args: Any) -> Any:
            outs, tree = tree_flatten(batched(keywords, *args))
            each = broadcast_prefix(out_axes, tree.unflatten(outs), is_leaf=_is_none)
            return tree.unflatten([out[0] if axis is None else out for out, axis in zip(outs, each, strict=True)])

        kept = [index for index in range(count) if index not in static]
        options: dict[str, Any] = {"donate_argnums": tuple(kept.index(index) + 1 for index in donated)}
        if mesh.size > 1:
            options["out_shardings"] = tree_map(functools.partial(_sharding, mesh), out_axes, is_leaf=_is_none)
        mapped.__name__ = getattr(fun, "__name__", "pmapped")
        return jit(mapped, **options)

    def prepared(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
        values = tuple((index, args[index]) for index in static if index < len(args))
        dynamic = [arg for index, arg in enumerate(args) if index not in static]
        tree = [kwargs, *dynamic]
        each = [0] * len(tree_leaves(kwargs)) + broadcast_prefix(list(_dynamic(axes, static, len(args))), dynamic,
                                                                is_leaf=_is_none)
        size = _size(tree_leaves(tree), each, axis_size)
        mesh = _mesh(size, devices, backend)
        if mesh.size > 1 or devices is not None:
            leaves, treedef = tree_flatten(tree)
            tree = treedef.unflatten([leaf if isinstance(leaf, Tracer) else device_put(leaf, _sharding(mesh, axis, leaf))
                                      for leaf, axis in zip(leaves, each, strict=True)])
        return program(mesh, values, len(args)), tree

    @functools.wraps(fun)
    @boundary
    def pmapped(*args: Any, **kwargs: Any) -> Any:
        run, tree = prepared(args, kwargs)
        return run(*tree)

    def lower(*args: Any, **kwargs: Any) -> Any:
        """Lower the program for these arguments without running it."""
        run, tree = prepared(args, kwargs)
        return run.lower(*tree)

    pmapped.lower = lower  # type: ignore[attr-defined]
    return pmapped


def _is_none(axis: Any) -> bool:
    return axis is None


def _positions(numbers: int | Sequence[int]) -> tuple[int, ...]:
    return (numbers,) if isinstance(numbers, int) else tuple(numbers)


def _dynamic(axes: Any, static: tuple[int, ...], count: int) -> tuple[Any, ...]:
    """The axes of the arguments that are not static."""
    if axes is None or isinstance(axes, int):
        axes = (axes,) * count
    if len(axes) != count:
        raise ValueError(f"pmap in_axes must be an int or a tuple with an entry for each of {count} positional arguments, got "
                         f"{axes}")
    return tuple(axis for index, axis in enumerate(axes) if index not in static)


def _size(leaves: Sequence[Any], axes: Sequence[Any], axis_size: int | None) -> int:
    sizes = {}
    for leaf, axis in zip(leaves, axes, strict=True):
        if axis is not None:
            aval = aval_of(leaf)
            if not -aval.ndim <= axis < aval.ndim:
                raise ValueError(f"pmap was asked to map the axis {axis} of an argument of type {aval}, which has not so many")
            sizes[aval.shape[axis]] = aval
    if not sizes:
        raise ValueError("pmap requires at least one argument with a mapped axis.")
    if len(sizes) > 1:
        raise ValueError("pmap got inconsistent sizes for array axes to be mapped: "
                         + ", ".join(f"{size} in {aval}" for size, aval in sizes.items()))
    (size,) = sizes
    if axis_size is not None and axis_size != size:
        raise ValueError(f"pmap: axis_size is {axis_size}, but the mapped axes have the size {size}")
    return size


@functools.lru_cache(64)
def _mesh_of(devices: tuple[Any, ...]) -> Mesh:
    return Mesh(np.array(devices, dtype=object), (_PLACES,))


def _mesh(size: int, devices: Sequence[Any] | None, backend: str | None) -> Mesh:
    found = tuple(local_devices(backend=backend) if devices is None else devices)
    if size > len(found):
        raise ValueError(f"compiling computation that requires {size} logical devices, but only {len(found)} XLA devices are "
                         f"available (num_replicas={size})")
    if devices is not None and size != len(found):
        raise ValueError(f"pmap was given {len(found)} devices for {size} examples")
    return _mesh_of(found[:size])


def _sharding(mesh: Mesh, axis: int | None, leaf: Any = None) -> Any:
    if axis is not None and axis < 0 and leaf is not None:
        axis += aval_of(leaf).ndim
    if axis is None:
        return NamedSharding(mesh, PartitionSpec())
    return None if axis < 0 else NamedSharding(mesh, PartitionSpec(*[None] * axis, _PLACES))
