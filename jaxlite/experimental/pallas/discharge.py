"""Kernels on values: what their primitives do to the arrays in the place of Refs, and a kernel as a program of its
place in the grid.

Positions outside an array read as nothing known (NaN, or the least integer) and are not written, as a GPU's masks have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.compilation.dispatch import call_params, free, jit_p
from jaxlite.core import dtypes
from jaxlite.core.aval import Ints
from jaxlite.core.discharge import discharge_jaxpr, discharges
from jaxlite.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxprs_in_params, once_for_each
from jaxlite.core.staging import trace_to_jaxpr
from jaxlite.core.tree import tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.experimental.pallas import primitives as p
from jaxlite.experimental.pallas.specs import SemaphoreSpace
from jaxlite.lax import elementwise as ew
from jaxlite.lax.control_flow.cond import cond_p
from jaxlite.lax.control_flow.scan import scan_p
from jaxlite.lax.control_flow.while_loop import fori_loop, while_p
from jaxlite.lax.shaping import broadcast_in_dim, convert, full, iota, reshape
from jaxlite.lax.slicing import dynamic_index_in_dim, dynamic_update_index_in_dim
from jaxlite.numpy.index_plan import read, write
from jaxlite.numpy.manipulation import broadcast_to
from jaxlite.state.indexing import NDIndexer, Slice, read_through
from jaxlite.state.views import RefBitcast
from jaxlite.traces.decompose import decomposes
from jaxlite.traces.remat_rules import checkpoint_p


def unknown(shape: Sequence[int], dtype: Any) -> Any:
    """An array of the fill value: NaN, False, or the least integer."""
    kind = dtypes.kind(dtype)
    least: Any = np.nan if kind in "fc" else False if kind == "b" else dtypes.iinfo(dtype).min
    return full(tuple(shape), least, dtype)


def fresh_value(aval: Any, make: Callable[..., Any] = unknown) -> Any:
    """What memory holds before a kernel writes to it: what `make(shape, dtype)` gives, and semaphores zero."""
    if isinstance(aval.memory_space, SemaphoreSpace):
        return full(aval.shape, 0, aval.dtype)
    return make(aval.shape, aval.dtype)


# --- positions ---------------------------------------------------------------------------------------


def _positions(shape: Ints, transforms: Sequence[Any]) -> Any:
    """The flat positions of the selected elements; the array's size for those that are outside."""
    size = int(np.prod(shape))
    flat = reshape(iota(np.int32, size), shape) if shape else full((), 0, np.int32)
    outside = np.int32(size)
    for each in transforms:
        if type(each) is RefBitcast:
            raise NotImplementedError("masked and atomic operations on a Ref that is seen as another dtype")
        flat = _select(flat, each, outside) if type(each) is NDIndexer else each.read(flat)
    return flat


def _select(flat: Any, indexer: NDIndexer, outside: Any) -> Any:
    """The part of an array of positions that an indexer selects, without clamping."""
    shape = indexer.get_indexer_shape()
    ints = [place for place, each in enumerate(indexer.indices) if type(each) is not Slice]
    together = not ints or ints[-1] - ints[0] + 1 == len(ints)
    front = ints[0] if ints and together else 0
    rank = len(indexer.int_indexer_shape)
    axes, axis = {}, 0  # for each slice, its axis in the result
    for place, each in enumerate(indexer.indices):
        if type(each) is Slice:
            axes[place] = axis if axis < front else axis + rank
            axis += 1
    inside: Any = None
    where = []
    for place, (each, extent) in enumerate(zip(indexer.indices, indexer.shape, strict=True)):
        if type(each) is Slice:
            steps = iota(np.int32, each.size) * np.int32(each.stride) + convert(each.start, np.int32, False)
            index = broadcast_in_dim(steps, shape, (axes[place],))
        else:
            index = convert(each, np.int32, False)
            index = ew.select(ew.lt(index, np.int32(0)), index + np.int32(extent), index) if np.ndim(index) == 0 else index
            own = aval_of(index).shape
            index = broadcast_in_dim(index, shape, tuple(range(front + rank - len(own), front + rank)))
        fits = ew.bitwise_and(ew.ge(index, np.int32(0)), ew.lt(index, np.int32(extent)))
        inside = fits if inside is None else ew.bitwise_and(inside, fits)
        where.append(ew.clamp(np.int32(0), index, np.int32(max(extent - 1, 0))))
    if inside is None:
        return flat
    return ew.select(inside, read(flat, tuple(where)), broadcast_to(outside, shape))


def _gathered(array: Any, places: Any) -> Any:
    """Elements by their positions."""
    size = aval_of(array).size
    if not size:
        return unknown(aval_of(places).shape, array.dtype)
    values = read(reshape(array, (size,)), (ew.min(places, np.int32(size - 1)),))
    return ew.select(ew.lt(places, np.int32(size)), values, unknown(aval_of(places).shape, array.dtype))


# --- the rules ---------------------------------------------------------------------------------------


@discharges(p.masked_load_p)
def _load(eqn: JaxprEqn, values: list[Any]) -> Any:
    array, *leaves = values
    transforms, mask, other = tree_unflatten(eqn.params["args_tree"], leaves)
    out = _gathered(array, _positions(aval_of(array).shape, transforms))
    return [out if other is None else ew.select(mask, out, other)], {}


@discharges(p.masked_swap_p)
def _swap(eqn: JaxprEqn, values: list[Any]) -> Any:
    array, value, *leaves = values
    transforms, mask = tree_unflatten(eqn.params["args_tree"], leaves)
    shape = aval_of(array).shape
    places = _positions(shape, transforms)
    old = _gathered(array, places)
    size = np.int32(aval_of(array).size)
    if mask is not None:
        places = ew.select(mask, places, broadcast_to(size, aval_of(places).shape))
    if not aval_of(places).shape:
        places, value = reshape(places, (1,)), reshape(value, (1,))
    return [old], {0: reshape(write(reshape(array, (int(size),)), (places,), value, "set"), shape)}


_COMBINE = {
    p.AtomicOpType.XCHG: lambda old, new: new, p.AtomicOpType.ADD: ew.add, p.AtomicOpType.MAX: ew.max,
    p.AtomicOpType.MIN: ew.min, p.AtomicOpType.AND: ew.bitwise_and, p.AtomicOpType.OR: ew.bitwise_or,
    p.AtomicOpType.XOR: ew.bitwise_xor,
}


@discharges(p.atomic_rmw_p)
def _atomic(eqn: JaxprEqn, values: list[Any]) -> Any:
    """One element after the other: positions that occur several times see each other's updates."""
    array, value, *leaves = values
    transforms, mask = tree_unflatten(eqn.params["args_tree"], leaves)
    shape, size = aval_of(array).shape, aval_of(array).size
    places = _positions(shape, transforms)
    part, count = aval_of(places).shape, aval_of(places).size
    if mask is not None:
        places = ew.select(mask, places, broadcast_to(np.int32(size), part))
    places, news = reshape(places, (count,)), reshape(value, (count,))
    combine = _COMBINE[eqn.params["atomic_type"]]

    def step(index: Any, carry: Any) -> Any:
        flat, olds = carry
        place = dynamic_index_in_dim(places, index, keepdims=False)
        old = dynamic_index_in_dim(flat, place, keepdims=False)
        new = combine(old, dynamic_index_in_dim(news, index, keepdims=False))
        fits = ew.lt(place, np.int32(size))
        flat = dynamic_update_index_in_dim(flat, ew.select(fits, new, old), place, 0)
        return flat, dynamic_update_index_in_dim(olds, old, index, 0)

    flat, olds = fori_loop(0, count, step, (reshape(array, (size,)), news))
    return [reshape(olds, part)], {0: reshape(flat, shape)}


@discharges(p.atomic_cas_p)
def _cas(eqn: JaxprEqn, values: list[Any]) -> Any:
    array, expected, value, *leaves = values
    transforms = tree_unflatten(eqn.params["args_tree"], leaves)
    old = read_through(array, transforms)
    place = reshape(_positions(aval_of(array).shape, transforms), (1,))
    new = reshape(ew.select(ew.eq(old, expected), value, old), (1,))
    shape, size = aval_of(array).shape, aval_of(array).size
    return [old], {0: reshape(write(reshape(array, (size,)), (place,), new, "set"), shape)}


@discharges(p.run_scoped_p)
def _run_scoped(eqn: JaxprEqn, values: list[Any]) -> Any:
    jaxpr = eqn.params["jaxpr"]
    found = discharge_jaxpr(jaxpr)
    fresh = [fresh_value(var.aval) for var in jaxpr.jaxpr.invars[len(values):]]
    operands = [*values, *fresh]
    outs = jit_p.bind(*operands, **call_params(found.closed, "run_scoped", (False,) * len(operands)))
    count = len(eqn.outvars)
    changed = dict(zip(found.written, outs[count:], strict=True))
    return outs[:count], {index: value for index, value in changed.items() if index < len(values)}


# --- a kernel as a function of its place -------------------------------------------------------------

_ID, _NUM = p.program_id_p, p.num_programs_p


@once_for_each
def asks_for_place(jaxpr: Jaxpr) -> bool:
    """Whether a program, or one in it, reads its place in the grid."""
    return any(eqn.primitive is _ID or eqn.primitive is _NUM or any(map(asks_for_place, jaxprs_in_params(eqn.params)))
               for eqn in jaxpr.eqns)


def place_as_operands(jaxpr: Jaxpr, count: int) -> ClosedJaxpr:
    """The same program, whose place in the grid is 2 * `count` leading operands: indices, then numbers of steps."""

    def flat(*args: Any) -> list[Any]:
        return _run(jaxpr, list(args[:2 * count]), args[2 * count:])

    avals = [p._INDEX] * (2 * count) + [var.aval for var in (*jaxpr.constvars, *jaxpr.invars)]
    program, consts = trace_to_jaxpr(flat, avals, jaxpr.debug_info)
    assert not consts, "a kernel that closes over nothing gave one that does"
    return ClosedJaxpr(program, [])


def _run(jaxpr: Jaxpr, place: list[Any], args: Sequence[Any]) -> list[Any]:
    env: dict[Var, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), args, strict=True))
    half = len(place) // 2
    for eqn in jaxpr.eqns:
        values = [atom.val if type(atom) is Literal else env[atom] for atom in eqn.invars]
        primitive, params = eqn.primitive, eqn.params
        if primitive is _ID or primitive is _NUM:
            env[eqn.outvars[0]] = place[params["axis"] + (half if primitive is _NUM else 0)]
            continue
        if any(map(asks_for_place, jaxprs_in_params(params))):
            outs = _call(primitive, place, values, params)
        else:
            outs = primitive.bind(*values, **params)
            outs = outs if primitive.multiple_results else [outs]
        env.update(zip(eqn.outvars, outs, strict=True))
    return [atom.val if type(atom) is Literal else env[atom] for atom in jaxpr.outvars]


def _call(primitive: Any, place: list[Any], values: list[Any], params: dict[str, Any]) -> list[Any]:
    """An equation with programs that read the place: they get it as operands."""
    extra, half = len(place), len(place) // 2

    def widened(closed: Any) -> ClosedJaxpr:
        return place_as_operands(closed.jaxpr if type(closed) is ClosedJaxpr else closed, half)

    if primitive is cond_p:
        return cond_p.bind(values[0], *place, *values[1:], **{**params, "branches": tuple(map(widened, params["branches"]))})
    if primitive is scan_p:
        changes = {"jaxpr": widened(params["jaxpr"]), "num_consts": params["num_consts"] + extra,
                   "linear": (False,) * extra + tuple(params["linear"])}
        return scan_p.bind(*place, *values, **{**params, **changes})
    if primitive is while_p:
        split = params["cond_nconsts"]
        return while_p.bind(*place, *values[:split], *place, *values[split:], **{
            **params, "cond_jaxpr": widened(params["cond_jaxpr"]), "body_jaxpr": widened(params["body_jaxpr"]),
            "cond_nconsts": split + extra, "body_nconsts": params["body_nconsts"] + extra})
    if primitive is jit_p or primitive is checkpoint_p:
        changes = {"jaxpr": widened(params["jaxpr"])}
        if primitive is jit_p:
            changes["donated_invars"] = (False,) * (extra + len(values))
            changes |= {name: (*free(extra), *params[name]) for name in ("in_shardings", "in_layouts") if name in params}
        return primitive.bind(*place, *values, **{**params, **changes})
    if primitive is p.run_scoped_p:
        return p.run_scoped_p.bind(*place, *values, **{**params, "jaxpr": widened(params["jaxpr"]),
                                                       "num_consts": params["num_consts"] + extra})
    inner = params["call_jaxpr"] if "call_jaxpr" in params else next(jaxprs_in_params(params))
    return _run(inner.jaxpr if type(inner) is ClosedJaxpr else inner, place, values)


# --- what hints and functions of a GPU are elsewhere -------------------------------------------------

decomposes(p.multiple_of_p)(lambda x, *, values: x)
decomposes(p.max_contiguous_p)(lambda x, *, values: x)
decomposes(p.approx_tanh_p)(lambda x: ew.tanh(x))
decomposes(p.reciprocal_p)(lambda x, *, approx, full_range: ew.div(full(aval_of(x).shape, 1, x.dtype), x))
decomposes(p.barrier_p)(lambda: [])
decomposes(p.delay_p)(lambda nanos: [])
