"""What a program says about the layout of its values over a mesh: `with_sharding_constraint` and `reshard`.

The constraint is an equation like any other, the identity on values. At once, outside of a trace, it moves the array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlite.compilation import spread
from jaxlite.core.array import single_device_sharding
from jaxlite.core.effects import DEBUG
from jaxlite.core.filtering import boundary
from jaxlite.core.primitive import Primitive
from jaxlite.core.tracing import Tracer, is_eager
from jaxlite.core.tree import broadcast_prefix, tree_flatten
from jaxlite.core.values import aval_of
from jaxlite.devices import global_arrays
from jaxlite.devices import sharding as shardings
from jaxlite.devices.mesh import get_abstract_mesh
from jaxlite.devices.placement import default_device
from jaxlite.traces.jvp import def_linear
from lowering import xla

sharding_constraint_p = Primitive("sharding_constraint")
sharding_constraint_p.def_abstract_eval(lambda x, **params: x)


@sharding_constraint_p.def_eager
def _constrain_now(x: Any, *, sharding: Any, **params: Any) -> Any:
    return global_arrays.place(x, settled(sharding))


inspect_sharding_p = Primitive("inspect_sharding", multiple_results=True, memoise=False)


@inspect_sharding_p.def_effectful_abstract_eval
def _inspect_aval(x: Any, **params: Any) -> Any:
    return [], frozenset((DEBUG[False],))


@inspect_sharding_p.def_eager
def _inspect_now(x: Any, *, callback: Any) -> list[Any]:
    callback.callback(x.sharding)
    return []


class _Inspection:
    """What XLA calls with the sharding that it has chosen, in its own terms: tells a function in ours."""

    def __init__(self, callback: Callable[[Any], None], ndim: int):
        self.callback, self.ndim = callback, ndim

    def __call__(self, found: Any, mesh: Any) -> None:
        if mesh is None:
            self.callback(single_device_sharding(default_device()))
            return
        spec = shardings.spec_of(found, mesh, self.ndim)
        self.callback(xla.GSPMDSharding(mesh._internal_device_list, found) if spec is None
                      else shardings.NamedSharding(mesh, spec))


# --- rules -------------------------------------------------------------------------------------------

def_linear(sharding_constraint_p, lambda ct, x, **params: [sharding_constraint_p.bind(ct, **params)])


@sharding_constraint_p.def_batching
def _constraint_batch(axis: Any, args: Any, dims: Any, *, sharding: Any, unconstrained_dims: Any, **params: Any) -> Any:
    (x,), (dim,) = args, dims
    spec = sharding.spec
    entries = [*spec, *[None] * (dim - len(spec))]
    names = shardings.axes_of(axis.spmd_name)
    if set(names) & set(shardings.used_axes(spec)):
        raise ValueError(f"spmd_axis_name {axis.spmd_name!r} of vmap is used by the constraint {spec} inside already")
    entries.insert(dim, axis.spmd_name if names else shardings.UNCONSTRAINED)
    batched = sharding.update(spec=spec.update(partitions=entries))
    open_axes = frozenset(index for index, each in enumerate(entries) if each is shardings.UNCONSTRAINED)
    return sharding_constraint_p.bind(x, sharding=batched, unconstrained_dims=open_axes, **params), dim


@inspect_sharding_p.def_jvp
def _inspect_jvp(primals: Any, tangents: Any, **params: Any) -> tuple[list[Any], list[Any]]:
    return inspect_sharding_p.bind(*primals, **params), []


@inspect_sharding_p.def_batching
def _inspect_batch(axis: Any, args: Any, dims: Any, *, callback: _Inspection) -> tuple[list[Any], list[Any]]:
    (x,) = args
    return inspect_sharding_p.bind(x, callback=_Inspection(callback.callback, aval_of(x).ndim)), []


# --- what users call ---------------------------------------------------------------------------------


def settled(sharding: Any) -> Any:
    """A sharding that leaves nothing open: what may be cut in any way is not cut."""
    if type(sharding) is not shardings.NamedSharding or shardings.UNCONSTRAINED not in sharding.spec:
        return sharding
    return sharding.update(spec=sharding.spec.update(
        partitions=[None if each is shardings.UNCONSTRAINED else each for each in sharding.spec]))


def constrain(x: Any, sharding: Any) -> Any:
    """One array with a sharding; what is on one device stays as it is inside a program."""
    shardings.check_shape(sharding, aval_of(x).shape)
    if is_eager() and not isinstance(x, Tracer):
        return global_arrays.place(x, settled(sharding))
    if type(sharding) is shardings.SingleDeviceSharding:
        return x
    open_axes = frozenset(axis for axis, each in enumerate(sharding.spec) if each is shardings.UNCONSTRAINED)
    return sharding_constraint_p.bind(x, sharding=sharding, layout=None, context_mesh=get_abstract_mesh(),
                                      unconstrained_dims=open_axes)


def laid_out(x: Any, out_sharding: Any) -> Any:
    """One array with what a function got as its argument `out_sharding`."""
    return constrain(x, spread.as_sharding(out_sharding, "out_sharding", "the function"))


@boundary
def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """Values as they are, laid out over a mesh as said.

    Args:
      x: a pytree of arrays.
      shardings: a sharding, a `PartitionSpec` over the mesh of the context, or a pytree prefix of these; None leaves a part as
        it is. `P.UNCONSTRAINED` for an axis lets XLA choose.
    Returns: the same tree. Derivatives are laid out alike.
    Raises: RuntimeError for a spec without a mesh; ValueError for an axis that is not cut evenly.

    >>> import jaxlite as jax
    >>> sharding = jax.NamedSharding(jax.make_mesh((1,), ("x",)), jax.P("x"))
    >>> jax.jit(lambda x: jax.lax.with_sharding_constraint(x * 2, sharding))(jax.numpy.ones(2)).sharding.mesh
    Mesh(axis_sizes=(1,), axis_names=('x',), axis_types=(Explicit,))
    """
    return _on_tree(x, shardings, "shardings", "with_sharding_constraint")


@boundary
def reshard(xs: Any, out_shardings: Any) -> Any:
    """Values as they are, with other shardings: the arguments are those of `with_sharding_constraint`."""
    return _on_tree(xs, out_shardings, "out_shardings", "reshard")


def inspect_array_sharding(value: Any, *, callback: Callable[[Any], None]) -> None:
    """Call a function with the sharding of an array: at once, or, of a traced one, when the program is compiled.

    Args:
      value: an array.
      callback: takes a sharding. Inside a traced function it runs once for each compile, not for each call.

    >>> import jaxlite as jax, jaxlite.numpy as jnp
    >>> jax.debug.inspect_array_sharding(jnp.ones(3), callback=lambda found: print(type(found).__name__))
    SingleDeviceSharding
    """
    if isinstance(value, Tracer):
        inspect_sharding_p.bind(value, callback=_Inspection(callback, aval_of(value).ndim))
    else:
        callback(value.sharding)


def _on_tree(x: Any, given: Any, what: str, who: str) -> Any:
    leaves, tree = tree_flatten(x)
    flat = [given] * len(leaves) if spread.is_place(given) else broadcast_prefix(given, x, is_leaf=spread.is_place)
    return tree.unflatten([leaf if each is None else constrain(leaf, spread.as_sharding(each, what, who))
                           for leaf, each in zip(leaves, flat, strict=True)])
