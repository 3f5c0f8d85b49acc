"""`jax.sharding.no_collectives`: a block whose operations must not communicate along some mesh axes.

Over explicit axes, types say where an operation communicates: an operand is split along an axis, and the result is not, or
elsewhere. Inside `shard_map`, collectives communicate. Both are looked at when an operation is typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from jaxlite.core.axes import other_axes
from jaxlite.core.config import chooses_layouts
from jaxlite.core.config import no_collectives as forbidden
from jaxlite.core.errors import ForbiddenCollectiveError
from jaxlite.core.jaxpr import jaxprs_in_params
from jaxlite.devices.sharding import axes_of
from jaxlite.lax.explicit import SELF_TYPED
from jaxlite.lax.parallel import mesh_axes

_SHOWN = {"psum_invariant": "psum", "unreduced_reduce_scatter": "reduce_scatter"}  # by the name of what users call
# For operations whose result may be laid out in several ways: at which axis of it an axis of an operand is.
_PLACES = {
    "reshard": lambda params, operand, axis: axis,
    "broadcast_in_dim": lambda params, operand, axis: params["broadcast_dimensions"][axis],
    "dot_general": lambda params, operand, axis: _place_in_product(params["dimension_numbers"], params["ranks"], operand, axis),
}


def no_collectives(axis_names: set | frozenset) -> AbstractContextManager[None]:
    """A context manager, or a decorator: operations that communicate along some axes of the mesh are errors.

    Args: `axis_names`, a set of names of mesh axes. An inner block is in force instead of those around it.
    It is for operations over explicit axes, and for collectives inside `shard_map`. Splitting an array further is no
    communication, nor is a product whose sum is left to be taken (`unreduced`). `device_put` may move arrays.
    Raises: TypeError if `axis_names` is not a set. Operations inside raise `ForbiddenCollectiveError`.

    >>> import jaxlite as jax
    >>> mesh = jax.make_mesh((1,), ("x",), (jax.sharding.AxisType.Explicit,))
    >>> x = jax.device_put(jax.numpy.ones(2), jax.NamedSharding(mesh, jax.P("x")))
    >>> with no_collectives({"x"}):
    ...     print(x * 2)
    ...     try:
    ...         x.sum()
    ...     except Exception as error:
    ...         print(type(error).__name__)
    [2. 2.]
    ForbiddenCollectiveError
    """
    return forbidden(axis_names)


def typed(primitive, avals: Sequence[Any], params: dict[str, Any]) -> tuple[Any, Any]:
    """The types of a primitive's results, and its effects, inside of such a block.

    Raises: ForbiddenCollectiveError; what the primitive's typing rule raises.
    """
    axes = forbidden.state.swap_local(frozenset())
    try:
        found = primitive.typed(avals, params)
    finally:
        forbidden.state.set_local(axes)
    if getattr(primitive, "is_collective", False):
        _check_collective(primitive.name, params, axes)
    layouts = [getattr(aval, "layout", None) for aval in avals]
    results = found[0] if primitive.multiple_results else [found[0]]
    is_opaque = primitive.name in SELF_TYPED and primitive.name != "reshard"  # a device_put is one as well
    if results and any(layouts) and not is_opaque and next(jaxprs_in_params(params), None) is None:
        _check_layouts(primitive.name, avals, results, params, axes)
    return found


def _forbid(axis, because: str) -> None:
    raise ForbiddenCollectiveError(f"Collective across axis {axis!r} is forbidden by `no_collectives`, but {because}")


def _check_collective(name: str, params: dict[str, Any], axes: frozenset) -> None:
    names = params.get("axes", params.get("axis_name"))
    for axis in axes_of(names) if name != "axis_index" else ():
        if axis in axes and axis in mesh_axes():
            _forbid(axis, f"`{_SHOWN.get(name, name)}` acts on axis {axis!r}.")


def _check_layouts(name: str, avals: Sequence[Any], results: Sequence[Any], params: dict[str, Any], axes: frozenset) -> None:
    specs = [None if getattr(aval, "layout", None) is None else aval.layout.spec for aval in avals]
    mesh = next(aval.layout.mesh for aval, spec in zip(avals, specs, strict=True) if spec is not None)
    outs = [result.layout.spec for result in results if getattr(result, "layout", None) is not None]
    looked_at = [axis for axis in mesh.axis_names if axis in axes and not any(axis in spec.unreduced for spec in outs)]
    if name == "dot_general":
        params = {**params, "ranks": [aval.ndim for aval in avals]}
        contracted = [axis for axis in looked_at if any(
            _place(spec, axis) in along for spec, along in zip(specs, params["dimension_numbers"][0], strict=True) if spec)]
        if contracted and chooses_layouts.value:
            _forbid(contracted[0], f"`dot_general` contracts over axis {contracted[0]!r} without marking it unreduced in the "
                                   "output.")
    for axis in looked_at:
        if any(spec is not None and axis in spec.unreduced for spec in specs):
            _forbid(axis, f"`{name}` consumes unreduced axis {axis!r} without keeping it unreduced in the output.")
        before = [(operand, place) for operand, spec in enumerate(specs) if (place := _place(spec, axis)) is not None]
        after = [place for spec in outs if (place := _place(spec, axis)) is not None]
        if before and not after:
            _forbid(axis, f"`{name}` loses sharding axis {axis!r} in the output without marking it unreduced.")
        expected = [_PLACES[name](params, *each) for each in before] if name in _PLACES else []
        if any(place is not None and place != after[0] for place in expected):
            _forbid(axis, f"`{name}` changes the sharded dimension of axis {axis!r}.")


def _place(spec: Any, axis: Any) -> int | None:
    """The axis of an array that is split along a mesh axis."""
    return next((place for place, entry in enumerate(spec or ()) if axis in axes_of(entry)), None)


def _place_in_product(numbers: Any, ranks: Sequence[int], operand: int, axis: int) -> int | None:
    """Where an axis of a factor is in a product; None if it is summed over."""
    contracted, batch = numbers
    if axis in batch[operand]:
        return batch[operand].index(axis)
    if axis in contracted[operand]:
        return None
    free = [other_axes(rank, (*contracted[side], *batch[side]))
            for side, rank in enumerate(ranks)]
    return len(batch[0]) + operand * len(free[0]) + free[operand].index(axis)
