"""Unreduced and reduced values inside `shard_map`.

Along a mesh axis a value may differ between devices (`V`), be the same on all (not printed), be one summand per device
(`U`, unreduced), or be the same with such cotangents (`R`, reduced). Casts and collectives convert between these, and the
transpose of each is among them, since U and R are dual.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlite.core.aval import UnreducedKind, kept_layout, shaped_array, with_layout
from jaxlite.core.primitive import Primitive
from jaxlite.core.values import aval_of
from jaxlite.devices.mesh import get_abstract_mesh
from jaxlite.devices.sharding import NamedSharding, P
from jaxlite.lax.parallel import axis_states, gathered_shape, scattered_shape
from jaxlite.traces.batching import Axis, def_batching_of_one, def_in_place, move
from jaxlite.traces.jvp import def_linear


def _primitive(name: str) -> Primitive:
    primitive = Primitive(name, memoise=False)  # types depend on the mesh
    primitive.knows_vma = True
    return primitive


vary_unreduced_cast_p = _primitive("vary_unreduced_cast_p")
reduced_vary_cast_p = _primitive("reduced_vary_cast_p")
preduced_p = _primitive("preduced")
unreduced_psum_p = _primitive("unreduced_psum")
unreduced_pmax_p = _primitive("unreduced_pmax")
unreduced_pmin_p = _primitive("unreduced_pmin")
unreduced_reduce_scatter_p = _primitive("unreduced_reduce_scatter")
all_gather_reduced_p = _primitive("all_gather_reduced")
for _p in (unreduced_psum_p, unreduced_pmax_p, unreduced_pmin_p, unreduced_reduce_scatter_p, all_gather_reduced_p):
    _p.is_collective = True  # type: ignore[attr-defined]


_KINDS = {"unreduced_pmax": UnreducedKind.max, "unreduced_pmin": UnreducedKind.min}


def _typed(primitive: Primitive, x, axes: Sequence[Any], old: str, new: str, shape: tuple[int, ...] | None = None):
    """The type of what was in one state along some axes, and is in another one."""
    if axis_states(x, axes) != {old}:
        raise ValueError(f"{primitive.name} only accepts inputs that are {old}. Got {x.str_short()}")
    names, layout = frozenset(axes), x.layout
    spec = P(*[None] * x.ndim) if layout is None else layout.spec
    expected = _KINDS.get(primitive.name, UnreducedKind.sum)
    if "unreduced" in (old, new) and spec.unreduced_kind not in (None, expected):
        raise ValueError(f"{primitive.name} cannot accept args with unreduced_kind={spec.unreduced_kind}. Expected "
                         f"unreduced_kind={expected}")
    if shape is not None and len(shape) != x.ndim:
        if any(spec):
            raise NotImplementedError(f"{primitive.name} of what is cut along explicit axes, {x.str_short()}: pass tiled=True")
        spec = spec.update(partitions=[None] * len(shape))
    states = {"varying": x.vma, "unreduced": spec.unreduced, "reduced": spec.reduced}
    for state, change in ((old, frozenset.difference), (new, frozenset.union)):
        if state in states:
            states[state] = change(states[state], names)
    spec = spec.update(unreduced=states["unreduced"], reduced=states["reduced"])
    out = shaped_array(x.shape if shape is None else shape, x.dtype, x.weak_type, states["varying"])
    mesh = get_abstract_mesh() if layout is None else layout.mesh
    return with_layout(out, kept_layout(NamedSharding(mesh, spec)))


def _def_cast(primitive: Primitive, old: str, new: str) -> None:
    primitive.def_abstract_eval(lambda x, *, axes: _typed(primitive, x, axes, old, new))
    def_in_place(primitive)


_def_cast(vary_unreduced_cast_p, "varying", "unreduced")
_def_cast(reduced_vary_cast_p, "reduced", "varying")
_def_cast(preduced_p, "invarying", "reduced")
_def_cast(unreduced_psum_p, "unreduced", "invarying")
_def_cast(unreduced_pmax_p, "unreduced", "invarying")
_def_cast(unreduced_pmin_p, "unreduced", "invarying")


@unreduced_reduce_scatter_p.def_abstract_eval
def _reduce_scatter_aval(x, *, axis_name, axis_size: int, scatter_dimension: int, tiled: bool):
    return _typed(unreduced_reduce_scatter_p, x, axis_name, "unreduced", "varying",
                  scattered_shape(x, scatter_dimension, axis_size, tiled))


@all_gather_reduced_p.def_abstract_eval
def _all_gather_aval(x, *, all_gather_dimension: int, axis_name, axis_size: int, tiled: bool):
    return _typed(all_gather_reduced_p, x, axis_name, "varying", "reduced",
                  gathered_shape(x, all_gather_dimension, axis_size, tiled))


def _batch_at_end(primitive: Primitive) -> None:
    @def_batching_of_one(primitive)
    def rule(axis: Axis, x, dim: int, **params) -> tuple[Any, int]:
        out = primitive.bind(move(x, dim, aval_of(x).ndim - 1), **params)
        return out, aval_of(out).ndim - 1


_batch_at_end(unreduced_reduce_scatter_p)
_batch_at_end(all_gather_reduced_p)

def_linear(vary_unreduced_cast_p, lambda ct, x, *, axes: [reduced_vary_cast_p.bind(ct, axes=axes)])
def_linear(reduced_vary_cast_p, lambda ct, x, *, axes: [vary_unreduced_cast_p.bind(ct, axes=axes)])
def_linear(preduced_p, lambda ct, x, *, axes: [unreduced_psum_p.bind(ct, axes=axes)])
def_linear(unreduced_psum_p, lambda ct, x, *, axes: [preduced_p.bind(ct, axes=axes)])
def_linear(unreduced_reduce_scatter_p, lambda ct, x, *, scatter_dimension, **params: [
    all_gather_reduced_p.bind(ct, all_gather_dimension=scatter_dimension, **params)])
def_linear(all_gather_reduced_p, lambda ct, x, *, all_gather_dimension, **params: [
    unreduced_reduce_scatter_p.bind(ct, scatter_dimension=all_gather_dimension, **params)])

# From the state of a value along the axes of a mesh, and the one that it is to have.
CASTS = {("invarying", "reduced"): preduced_p, ("varying", "unreduced"): vary_unreduced_cast_p,
         ("reduced", "varying"): reduced_vary_cast_p}
