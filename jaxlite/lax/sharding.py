"""What a program says about the layout of its values over a mesh: `with_sharding_constraint` and `reshard`.

The constraint is an equation like any other, the identity on values. At once, outside of a trace, it moves the array.
"""

from __future__ import annotations

from typing import Any

from jaxlite.compilation import spread
from jaxlite.core.filtering import boundary
from jaxlite.core.primitive import Primitive
from jaxlite.core.tracing import Tracer, is_eager
from jaxlite.core.tree import broadcast_prefix, tree_flatten
from jaxlite.core.values import aval_of
from jaxlite.devices import global_arrays
from jaxlite.devices import sharding as shardings
from jaxlite.devices.mesh import get_abstract_mesh
from jaxlite.traces.jvp import def_linear

sharding_constraint_p = Primitive("sharding_constraint")
sharding_constraint_p.def_abstract_eval(lambda x, **params: x)


@sharding_constraint_p.def_eager
def _constrain_now(x: Any, *, sharding: Any, **params: Any) -> Any:
    return global_arrays.place(x, settled(sharding))


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
    >>> jax.jit(lambda x: jax.lax.with_sharding_constraint(x * 2, sharding))(jax.numpy.ones(2)).sharding.spec
    P('x',)
    """
    return _on_tree(x, shardings, "shardings", "with_sharding_constraint")


@boundary
def reshard(xs: Any, out_shardings: Any) -> Any:
    """Values as they are, with other shardings: the arguments are those of `with_sharding_constraint`."""
    return _on_tree(xs, out_shardings, "out_shardings", "reshard")


def _on_tree(x: Any, given: Any, what: str, who: str) -> Any:
    leaves, tree = tree_flatten(x)
    flat = [given] * len(leaves) if spread.is_place(given) else broadcast_prefix(given, x, is_leaf=spread.is_place)
    return tree.unflatten([leaf if each is None else constrain(leaf, spread.as_sharding(each, what, who))
                           for leaf, each in zip(leaves, flat, strict=True)])
