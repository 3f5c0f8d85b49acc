"""Functions in which mesh axes have another type: with `auto_axes` XLA chooses the shardings along them, with `explicit_axes`
types have them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.compilation.jit import jit
from jaxlite.core import source
from jaxlite.core.filtering import boundary
from jaxlite.core.tracing import is_eager
from jaxlite.core.tree import tree_leaves, tree_map
from jaxlite.core.values import aval_of
from jaxlite.devices.mesh import AbstractMesh, AxisType, get_abstract_mesh, use_abstract_mesh
from jaxlite.devices.sharding import NamedSharding, PartitionSpec, axes_of
from jaxlite.lax.sharding import mesh_cast_p, reshard, with_sharding_constraint


def auto_axes(f: Callable | None = None, /, *, axes=None, out_sharding=None) -> Callable:
    """A function inside which XLA chooses the shardings along mesh axes, as for axes of type `Auto`.

    Args:
      f: a function of pytrees of arrays. Without it, a decorator.
      axes: the names of the axes, or one name; by default all of the mesh.
      out_sharding: the sharding of the results, a `PartitionSpec` or a pytree prefix of them. Without it, each call
        has its own.
    Returns: a function of the same arguments, and of the keyword `out_sharding` if it was not given here.
    Raises: TypeError if no `out_sharding` is given; ValueError without a mesh.

    >>> import jaxlite as jax, jaxlite.numpy as jnp
    >>> with jax.set_mesh(jax.make_mesh((1,), ("x",))):
    ...     jax.sharding.auto_axes(jnp.cumsum, out_sharding=jax.P("x"))(jnp.ones(3)).sharding.spec
    P('x',)
    """
    if f is None:
        return lambda fun: auto_axes(fun, axes=axes, out_sharding=out_sharding)
    default, compiled = out_sharding, dict[Any, Callable]()

    @source.wraps(f)
    @boundary
    def wrapped(*args, **kwargs):
        wanted = _asked(default, kwargs, "out_sharding")

        def run(args, kwargs):
            outer = _mesh((args, kwargs), "auto_axes")
            inner = outer.update_axis_types(dict.fromkeys(_names(axes, outer), AxisType.Auto))
            with use_abstract_mesh(inner):
                outs = f(*_cast(args, inner), **_cast(kwargs, inner))
            with use_abstract_mesh(outer):
                return (reshard if AxisType.Explicit in outer.axis_types else with_sharding_constraint)(outs, wanted)

        return _called(run, compiled, wanted, args, kwargs)

    return wrapped


def explicit_axes(f: Callable | None = None, /, *, axes=None, in_sharding=None) -> Callable:
    """A function inside which types have the shardings along mesh axes, as for axes of type `Explicit`.

    Args:
      f: a function of pytrees of arrays. Without it, a decorator.
      axes: the names of the axes, or one name; by default all of the mesh.
      in_sharding: the shardings of the arguments inside, a `PartitionSpec` or a pytree prefix of `args`. Without it, each call
        has its own; a function without arguments has None.
    Returns: a function of the same arguments, and of the keyword `in_sharding` if it was not given here.
    Raises: TypeError if no `in_sharding` is given; ValueError without a mesh.
    """
    if f is None:
        return lambda fun: explicit_axes(fun, axes=axes, in_sharding=in_sharding)
    default, compiled = in_sharding, dict[Any, Callable]()

    @source.wraps(f)
    @boundary
    def wrapped(*args, **kwargs):
        wanted = _asked(default, kwargs, "in_sharding")

        def run(args, kwargs):
            outer = _mesh((args, kwargs), "explicit_axes")
            inner = outer.update_axis_types(dict.fromkeys(_names(axes, outer), AxisType.Explicit))
            with use_abstract_mesh(inner):
                outs = f(*reshard(args, wanted), **kwargs)
            return _cast(outs, outer)

        return _called(run, compiled, wanted, args, kwargs)

    return wrapped


def _asked(default, kwargs: dict[str, Any], name: str):
    """The sharding that was given to the decorator, or else to this call; the call's may be None: there is nothing to place."""
    if default is not None:
        return default
    if name not in kwargs:
        raise TypeError(f"Missing required keyword argument: '{name}'")
    return kwargs.pop(name)


def _called(run: Callable, compiled: dict[Any, Callable], wanted, args, kwargs):
    """Run a function as part of the program that is traced, or as a program of its own."""
    if not is_eager():
        return run(args, kwargs)
    return compiled.setdefault(repr(wanted), jit(run))(args, kwargs)


def _mesh(tree, who: str) -> AbstractMesh:
    found = get_abstract_mesh()
    if found.empty:
        layouts = [aval_of(leaf).layout for leaf in tree_leaves(tree)]
        found = next((layout.mesh for layout in layouts if layout is not None), found)
    if found.empty:
        raise ValueError(f"Context mesh cannot be empty when {who} is called. Please set a mesh via `jax.set_mesh`")
    return found


def _names(axes, mesh: AbstractMesh) -> Sequence[Any]:
    names = mesh.axis_names if axes is None else axes if isinstance(axes, (tuple, list, set, frozenset)) else (axes,)
    unknown = [name for name in names if name not in mesh.axis_names]
    if unknown:
        raise ValueError(f"axes {unknown} are not among those of the mesh, {mesh.axis_names}")
    return tuple(names)


def _cast(tree, mesh: AbstractMesh):
    """Arrays with the types that they have over the mesh with other types of axes."""
    explicit = {name for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True) if kind is AxisType.Explicit}

    def cast(x):
        layout = getattr(aval_of(x), "layout", None)
        if layout is None:
            return x
        entries = [tuple(name for name in axes_of(entry) if name in explicit) for entry in layout.spec]
        return mesh_cast_p.bind(x, dst_sharding=NamedSharding(mesh, PartitionSpec(*entries)))

    return tree_map(cast, tree)
