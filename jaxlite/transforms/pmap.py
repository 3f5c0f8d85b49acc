"""pmap: maps a function over the leading axis, one element per device. It is `shard_map` under `jit`, over a mesh with one
axis.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxlite.compilation.dispatch import jitted_of, make_entry_path
from jaxlite.compilation.jit import jit
from jaxlite.compilation.options import check_callable
from jaxlite.core import config, source
from jaxlite.core.filtering import boundary
from jaxlite.core.lazy import loader
from jaxlite.core.shape_dtype import ShapeDtypeStruct, abstract
from jaxlite.core.tracing import Tracer
from jaxlite.core.tree import broadcast_prefix, tree_flatten, tree_leaves
from jaxlite.core.values import ArrayImpl, aval_of
from jaxlite.devices.api import device_put, local_devices
from jaxlite.lax.shaping import expand_dims, squeeze

if TYPE_CHECKING:
    from jaxlite.devices.mesh import Mesh
    from jaxlite.devices.sharding import NamedSharding, PartitionSpec

# With the first call: libraries name `pmap` without one.
_meshes, _shardings = loader("jaxlite.devices.mesh"), loader("jaxlite.devices.sharding")
_shard_map = loader("jaxlite.transforms.shard_map")
_PLACES = "_internal_pmap_axis_name"  # the mesh axis where programs do not name it
_LIMIT = 256  # programs, and forms of calls, that a function remembers
_Static = tuple[tuple[int, Any, type], ...]  # static arguments: position, value, type


@boundary
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
      devices: where the examples go, in this order, if there are as many; by default the devices of the backend.
      axis_size: the number of examples, which the arguments tell.
      donate_argnums: positions of arguments whose memory the results may take.
    Returns: a function whose results are spread over the devices.
    Raises: TypeError for axes that are not ints; ValueError if no argument is mapped, sizes differ, or there are more examples
      than devices.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> jaxlite.pmap(lambda x: x / jaxlite.lax.psum(x, "i"), axis_name="i")(jnp.ones((1, 2)))
    Array([[1., 1.]], dtype=float32)
    """
    check_callable(fun)
    static = _positions(static_broadcasted_argnums)
    donated = _positions(donate_argnums)
    if not set(static).isdisjoint(donated):
        raise ValueError(f"`static_argnums` {list(static)} and `donate_argnums` {list(donated)} cannot intersect.")
    axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    for what, given in (("in_axes", in_axes), ("out_axes", out_axes)):
        if not all(isinstance(leaf, int) for leaf in tree_leaves(given)):
            raise TypeError(f"pmap {what} must be an int, None, or (nested) container with those types as leaves, but got "
                            f"{given}.")
    if devices is not None and not devices:
        raise ValueError("'devices' argument to pmap must be non-empty, or None.")

    mapped = _Pmapped(fun, axis_name, axes, out_axes, static, donated, devices, backend, axis_size)
    path = make_entry_path(source.function_name(fun), mapped.miss, static)
    mapped.path = weakref.proxy(path)

    @source.wraps(fun)
    def pmapped(*args: Any, **kwargs: Any) -> Any:
        return path(*args, **kwargs)

    pmapped.lower = mapped.lower  # type: ignore[attr-defined]
    return pmapped


class _Pmapped:
    """A function over several devices: a jitted `shard_map` for each mesh, and what calls of each form need of it."""

    path: Any  # the callable in C++, weakly: it holds `miss`

    def __init__(self, fun: Callable, axis_name: Any, in_axes: Any, out_axes: Any, static: tuple[int, ...],
                 donated: tuple[int, ...], devices: Sequence[Any] | None, backend: str | None, axis_size: int | None):
        self.fun, self.in_axes, self.out_axes = fun, in_axes, out_axes
        self.axis_name = _PLACES if axis_name is None else axis_name
        self.static, self.donated = static, donated
        self.devices, self.backend, self.axis_size = devices, backend, axis_size
        self._programs: dict[Any, Any] = {}
        self._calls: dict[Any, tuple[Any, list[Any]]] = {}

    @boundary
    def miss(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Do a call that C++ has no entry for, and give it the entry of the program.

        None for arrays whose sharding is not what the program expects: C++ would pass them unchanged. That their mesh
        has another name does not matter.
        """
        try:
            run, dynamic, keywords, moved = self._prepared(args, kwargs, device_put)
            if config.disable_jit.value:  # the function's Python runs each time
                return jitted_of(run).fun(*dynamic, **keywords), None
            outs, entry = jitted_of(run).miss(*dynamic, **keywords)
        except BaseException:
            self.path._clear_cache()  # C++ would send this signature here for good
            raise
        return outs, None if moved else entry

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Lower the program for these arguments, or for `ShapeDtypeStruct`s in their place, without running it."""
        run, dynamic, keywords, _ = self._prepared(args, kwargs, _described)
        lowered = run.lower(*dynamic, **keywords)
        mapped = lowered._program.closed.jaxpr.eqns[-1]
        mesh, specs = mapped.params["mesh"], mapped.params["out_specs"]
        lowered.results = [_shardings().NamedSharding(mesh, spec) for spec in specs]
        return lowered

    def _prepared(self, args: tuple[Any, ...], kwargs: dict[str, Any],
                  place: Callable[[Any, Any], Any]) -> tuple[Any, Sequence[Any], dict[str, Any], bool]:
        """The program for these arguments, the arguments where it wants them, and whether an array had to be moved."""
        static = self.static
        values = tuple([(index, args[index], type(args[index])) for index in static if index < len(args)])
        dynamic = [arg for index, arg in enumerate(args) if index not in static] if static else args
        leaves, tree = tree_flatten((tuple(dynamic), kwargs))
        key = (tree, values, *[getattr(leaf, "shape", None) for leaf in leaves])
        try:
            found = self._calls.get(key)
        except TypeError:
            raise ValueError("Non-hashable static arguments are not supported: pmap's static_broadcasted_argnums are "
                             f"{static}, and these arguments are {[value for _, value, _ in values]}") from None
        if found is None:
            if len(values) < len(static):
                plural = "s" if len(args) != 1 else ""
                raise ValueError(f"pmapped function has static_broadcasted_argnums={static} but was called with only "
                                 f"{len(args)} positional argument{plural}. All static broadcasted arguments must be passed "
                                 "positionally.")
            found = _kept(self._calls, key, self._call(values, len(args), dynamic, kwargs, leaves))
        run, shardings = found
        put = moved = False
        for index, leaf in enumerate(leaves):
            wanted = shardings[index]
            if type(leaf) is ArrayImpl and (leaf._sharding is wanted or leaf._sharding == wanted):
                shardings[index] = leaf._sharding  # results of one program have one object
            elif not isinstance(leaf, Tracer):
                leaves[index], put = place(leaf, wanted), True
                here = getattr(leaf, "sharding", None)
                moved |= here is not None and not here.is_equivalent_to(wanted, leaf.ndim)
        if put:
            dynamic, kwargs = tree.unflatten(leaves)
        return run, dynamic, kwargs, moved

    def _call(self, values: _Static, count: int, dynamic: Sequence[Any], kwargs: dict[str, Any],
              leaves: Sequence[Any]) -> tuple[Any, list[Any]]:
        """The program of a form of call, and the shardings of the leaves of its arguments."""
        axes = _axes_of_leaves(dynamic, kwargs, _dynamic(self.in_axes, self.static, count))
        mesh = _mesh(_size(leaves, axes, self.axis_size), self.devices, self.backend, self.axis_name)
        key = mesh, values, count
        run = self._programs.get(key) or _kept(self._programs, key, self._program(mesh, values, count))
        return run, [_sharding(leaf, mesh, axis) for leaf, axis in zip(leaves, axes, strict=True)]

    def _program(self, mesh: Mesh, values: _Static, count: int) -> Any:
        """The jitted function of the arguments that are not static."""
        fun, out_axes = self.fun, self.out_axes
        (name,) = mesh.axis_names
        dynamic_axes = _dynamic(self.in_axes, self.static, count)
        kept = [index for index in range(count) if index not in self.static]

        def call(*args: Any, **keywords: Any) -> Any:
            rest, known = iter(args), {index: value for index, value, _ in values}
            return fun(*[known[index] if index in known else next(rest) for index in range(count)], **keywords)

        def mapped(*args: Any, **keywords: Any) -> Any:
            leaves, tree = tree_flatten((args, keywords))
            places = _axes_of_leaves(args, keywords, dynamic_axes)
            places = [None if axis is None else axis % aval_of(leaf).ndim for axis, leaf in zip(places, leaves, strict=True)]

            out_tree: Any = None
            targets: list[int | None] = []

            def example(*parts: Any) -> list[Any]:
                nonlocal out_tree, targets
                own = [part if axis is None else squeeze(part, (axis,)) for part, axis in zip(parts, places, strict=True)]
                args, keywords = tree.unflatten(own)
                result = call(*args, **keywords)
                outs, out_tree = tree_flatten(result)
                targets = [None if axis is None else _result_axis(axis, out) for axis, out in zip(
                    broadcast_prefix(out_axes, result, is_leaf=_is_none), outs, strict=True)]
                return [out if axis is None else expand_dims(out, (axis,)) for axis, out in zip(targets, outs, strict=True)]

            outs = _shard_map().shard_map_call(example, mesh, [_spec(axis, name) for axis in places],
                                               lambda _: [_spec(axis, name) for axis in targets], leaves)
            return out_tree.unflatten(outs)

        mapped.__name__ = str(getattr(fun, "__name__", "pmapped"))
        return jit(mapped, donate_argnums=tuple(kept.index(index) for index in self.donated if index in kept))


def _kept(found: dict[Any, Any], key: Any, value: Any) -> Any:
    """The value, which is remembered under the key; a full memory begins anew."""
    if len(found) >= _LIMIT:
        found.clear()
    found[key] = value
    return value


def _axes_of_leaves(args: Sequence[Any], keywords: dict[str, Any], axes: Sequence[Any]) -> list[Any]:
    """Which axis of each leaf is mapped, of keyword arguments the first."""
    return broadcast_prefix(list(axes), list(args), is_leaf=_is_none) + [0] * len(tree_leaves(keywords))


def _sharding(leaf: Any, mesh: Mesh, axis: int | None) -> NamedSharding:
    return _shardings().NamedSharding(mesh, _spec(None if axis is None else axis % abstract(leaf).ndim, mesh.axis_names[0]))


def _described(leaf: Any, sharding: NamedSharding) -> ShapeDtypeStruct:
    aval = abstract(leaf)
    return ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type)


def _result_axis(axis: int, out: Any) -> int:
    rank = aval_of(out).ndim + 1
    if not -rank <= axis < rank:
        raise ValueError(f"pmap out_axes {axis} is out of bounds for a result of {rank} axes")
    return axis % rank


def _spec(axis: int | None, name: Any) -> PartitionSpec:
    return _shardings().PartitionSpec(*[] if axis is None else [*[None] * axis, name])


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
            aval = abstract(leaf)
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
def _mesh_of(devices: tuple[Any, ...], name: Any) -> Mesh:
    return _meshes().Mesh(np.array(devices, dtype=object), (name,))


def _mesh(size: int, devices: Sequence[Any] | None, backend: str | None, name: Any) -> Mesh:
    found = tuple(local_devices(backend=backend) if devices is None else devices)
    if size > len(found):
        raise ValueError(f"compiling computation that requires {size} logical devices, but only {len(found)} XLA devices are "
                         f"available (num_replicas={size})")
    if size == 0:
        raise ValueError("pmap: the mapped axes have the size 0; there must be an example")
    return _mesh_of(found[:size], name)
