"""Derivatives and batching of mutable arrays.

The tangent of a Ref is a Ref of tangents; a batch of Refs is a Ref of batches. Sub-jaxprs are discharged first: the rules
apply to a call on values, whose final values are written back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.compilation.dispatch import call_params, jit_p
from jaxlite.core import dtypes
from jaxlite.core.aval import without_axis
from jaxlite.core.discharge import pure_equation, touches_refs
from jaxlite.core.primitive import NoRule, Primitive, load_rules
from jaxlite.core.tracing import state
from jaxlite.core.tree import tree_flatten, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.lax.control_flow.cond import cond_p
from jaxlite.lax.control_flow.scan import scan_p
from jaxlite.lax.control_flow.while_loop import while_p
from jaxlite.state.indexing import NDIndexer, read_through, write_through
from jaxlite.state.primitives import addupdate_p, freeze_p, get_p, new_ref_p, swap_p
from jaxlite.traces.batching import Axis, batch_flat, bring
from jaxlite.traces.custom_rules import custom_jvp_call_p, custom_vjp_call_p
from jaxlite.traces.jvp import Zero, instantiate, tangent_aval, zero_for
from jaxlite.traces.remat_rules import checkpoint_p

# --- derivatives -------------------------------------------------------------------------------------


@new_ref_p.def_jvp
def _new_ref_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    ref = new_ref_p.bind(*primals, **params)
    (dot,) = tangents
    if type(dot) is not Zero:
        return ref, new_ref_p.bind(dot, **params)
    if dot.aval.dtype == dtypes.float0:
        return ref, zero_for(ref)
    staged = getattr(state.trace, "tangents", None)  # linearisation: the tangents have a Ref for each run of theirs
    dot = instantiate(dot)
    return ref, new_ref_p.bind(dot, **params) if staged is None else new_ref_p.bind_with_trace(staged, [dot], params)


def _no_tangent(ref: Any, what: str) -> Exception:
    return Exception(f"performing {what} operation with a differentiated value on a non-differentiated array reference of type "
                     f"{aval_of(ref)!r}. Move the array reference to be an argument of the differentiated function?")


@get_p.def_jvp
def _get_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, tree: Any) -> Any:
    out = get_p.bind(*primals, tree=tree)
    dot = tangents[0]
    return out, zero_for(out) if type(dot) is Zero else get_p.bind(dot, *primals[1:], tree=tree)


@freeze_p.def_jvp
def _freeze_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    out = freeze_p.bind(*primals)
    return out, zero_for(out) if type(tangents[0]) is Zero else freeze_p.bind(*tangents)


@swap_p.def_jvp
def _swap_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, tree: Any) -> Any:
    ref_dot, dot, *_ = tangents
    if type(ref_dot) is Zero and type(dot) is not Zero:
        raise _no_tangent(primals[0], "a set/swap")
    out = swap_p.bind(*primals, tree=tree)
    if type(ref_dot) is Zero:
        return out, zero_for(out)
    return out, swap_p.bind(ref_dot, instantiate(dot), *primals[2:], tree=tree)


@addupdate_p.def_jvp
def _addupdate_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, tree: Any) -> Any:
    ref_dot, dot, *_ = tangents
    if type(ref_dot) is Zero and type(dot) is not Zero:
        raise _no_tangent(primals[0], "an addupdate")
    addupdate_p.bind(*primals, tree=tree)
    if type(dot) is not Zero:
        addupdate_p.bind(ref_dot, dot, *primals[2:], tree=tree)
    return [], []


# --- batching ----------------------------------------------------------------------------------------

def _whole(ref: Any) -> Any:
    leaves, tree = tree_flatten((NDIndexer.make_trivial_indexer(aval_of(ref).shape),))
    assert not leaves
    return tree


def _read(ref: Any) -> Any:
    return get_p.bind(ref, tree=_whole(ref))


def _write(ref: Any, value: Any) -> Any:
    return swap_p.bind(ref, value, tree=_whole(ref))


@new_ref_p.def_batching
def _new_ref_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
    return new_ref_p.bind(bring(args[0], dims[0], axis.size, 0), **params), 0


@freeze_p.def_batching
def _freeze_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None]) -> Any:
    return freeze_p.bind(*args), dims[0]


@get_p.def_batching
def _get_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, tree: Any) -> Any:
    def fun(array: Any, *leaves: Any) -> list[Any]:
        return [read_through(array, tree_unflatten(tree, leaves))]

    outs, out_dims = batch_flat(fun, [_read(args[0]), *args[1:]], dims, axis)
    return outs[0], out_dims[0]


def _batched_write(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], tree: Any, how: str, what: str) -> Any:
    if dims[0] is None:
        raise _unbatched(args[0], what)

    def fun(array: Any, value: Any, *leaves: Any) -> list[Any]:
        transforms = tree_unflatten(tree, leaves)
        return [read_through(array, transforms), write_through(array, transforms, value, how)]

    (old, new), (old_dim, new_dim) = batch_flat(fun, [_read(args[0]), *args[1:]], dims, axis)
    _write(args[0], bring(new, new_dim, axis.size, dims[0]))
    return old, old_dim


def _unbatched(ref: Any, what: str) -> Exception:
    return Exception(f"performing {what} operation with vmapped value on an unbatched array reference of type "
                     f"{aval_of(ref)!r}. Move the array reference to be an argument to the vmapped function?")


@swap_p.def_batching
def _swap_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, tree: Any) -> Any:
    return _batched_write(axis, args, dims, tree, "set", "a set/swap")


@addupdate_p.def_batching
def _addupdate_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, tree: Any) -> Any:
    _batched_write(axis, args, dims, tree, "add", "an addupdate")
    return [], []


# --- equations with programs -------------------------------------------------------------------------


def _differentiate_values(primitive: Primitive, slot: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    def rule(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        if not touches_refs(params):
            return plain(primals, tangents, **params)
        avals = [aval_of(primal) for primal in primals]
        found = pure_equation(primitive, primals, avals, params)
        values, dots = list(primals), list(tangents)
        for index in found.refs:
            values[index] = _read(primals[index])
            dot = tangents[index]
            dots[index] = Zero(tangent_aval(avals[index].inner_aval)) if type(dot) is Zero else _read(dot)
        outs, out_dots = getattr(jit_p, slot)(values, dots, **call_params(found.closed, primitive.name, (False,) * len(values)))
        count = len(outs) - len(found.written)
        for index, out, dot in zip(found.written, outs[count:], out_dots[count:], strict=True):
            _write(primals[index], out)
            if type(tangents[index]) is not Zero:
                _write(tangents[index], instantiate(dot))
            elif type(dot) is not Zero and aval_of(dot).dtype != dtypes.float0:
                raise _no_tangent(primals[index], "a set/swap")
        return outs[:count], out_dots[:count]

    return rule


def _batch_values(primitive: Primitive, plain: Callable[..., Any]) -> Callable[..., Any]:
    def rule(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        if not touches_refs(params):
            return plain(axis, args, dims, **params)
        avals = [aval_of(arg) if dim is None else without_axis(aval_of(arg), dim) for arg, dim in zip(args, dims, strict=True)]
        found = pure_equation(primitive, args, avals, params)
        values = [_read(arg) if index in found.refs else arg for index, arg in enumerate(args)]
        outs, out_dims = jit_p.batching(axis, values, dims, **call_params(found.closed, primitive.name, (False,) * len(values)))
        count = len(outs) - len(found.written)
        for index, out, dim in zip(found.written, outs[count:], out_dims[count:], strict=True):
            own = dims[index]
            if own is None and dim is not None:
                raise _unbatched(args[index], "a set/swap")
            _write(args[index], out if own is None else bring(out, dim, axis.size, own))
        return outs[:count], out_dims[:count]

    return rule


_wrapped: set[Any] = set()


def go_by_values(primitive: Primitive, slots: Sequence[str] = ("jvp", "linearize", "batching")) -> None:
    """Have the rules of a primitive with a program go by what Refs hold, where the program reads or writes some."""
    if primitive in _wrapped:
        return
    _wrapped.add(primitive)
    for slot in slots:
        plain = getattr(primitive, slot)
        if plain is not None and type(plain) is not NoRule:
            made = _batch_values(primitive, plain) if slot == "batching" else _differentiate_values(primitive, slot, plain)
            setattr(primitive, slot, made)


load_rules()  # what is wrapped has to be there
for _p in (jit_p, cond_p, scan_p, while_p, checkpoint_p):
    go_by_values(_p)
for _p in (custom_jvp_call_p, custom_vjp_call_p):  # differentiated by rules that take the Refs themselves
    go_by_values(_p, ("batching",))
