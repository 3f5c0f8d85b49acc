"""The primitives of mutable arrays: `new_ref`, `get`, `swap`, `addupdate`, `freeze`.

Operands of the middle three are the Ref, for `swap` and `addupdate` a value, and the leaves of the transforms (indices that are
arrays); the param `tree` puts the transforms together again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlite.compilation.caches import clear_hooks
from jaxlite.compilation.jit import jit
from jaxlite.core import discharge, dtypes
from jaxlite.core.aval import AbstractRef, MemorySpace, ShapedArray, varying, with_layout
from jaxlite.core.discharge import discharges
from jaxlite.core.effects import REF
from jaxlite.core.errors import UnexpectedTracerError
from jaxlite.core.jaxpr import JaxprEqn, Literal, Var
from jaxlite.core.lazy import loader
from jaxlite.core.primitive import MixedVarying, Primitive
from jaxlite.core.refs import Ref
from jaxlite.core.tree import tree_flatten, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.lax.shaping import broadcast_shapes, convert
from jaxlite.numpy.creation import asarray
from jaxlite.state.indexing import NDIndexer, Slice, read_through, transformed_shape, write_through
from jaxlite.state.views import transformed_dtype

new_ref_p = Primitive("new_ref")
get_p = Primitive("get")
swap_p = Primitive("swap")
addupdate_p = Primitive("addupdate", multiple_results=True)
freeze_p = Primitive("freeze")
for _p in (get_p, swap_p, addupdate_p, freeze_p):
    _p.takes_refs = True
    _p.knows_vma = _p is not freeze_p
new_ref_p.batches_always = new_ref_p.differentiates_always = True
_EFFECTS = frozenset((REF,))
_nowhere: frozenset[Any] = frozenset()
_constraints, _transfers = loader("jaxlite.lax.sharding"), loader("jaxlite.lax.device_put")

# --- types -------------------------------------------------------------------------------------------


@new_ref_p.def_effectful_abstract_eval
def _new_ref_aval(init: Any, *, memory_space: Any, kind: Any) -> Any:
    if type(init) is AbstractRef:
        raise TypeError(f"new_ref got a Ref of type {init!r}: the value of a mutable array is an array")
    return AbstractRef(init, memory_space, kind), _EFFECTS


def _selected(ref: Any, leaves: Sequence[Any], tree: Any, name: str) -> tuple[int, ...]:
    if type(ref) is not AbstractRef:
        raise TypeError(f"`{name}` works on a Ref, got {ref!r}")
    return transformed_shape(ref.shape, tree_unflatten(tree, leaves))


def _part(ref: AbstractRef, shape: tuple[int, ...], leaves: Sequence[Any], tree: Any) -> Any:
    """The type of the part of a mutable array that has a shape.

    Raises: TypeError or ValueError for an index that would cut along explicit mesh axes.
    """
    layout = ref.inner_aval.layout
    if layout is None:
        dtype = transformed_dtype(ref.dtype, tree_unflatten(tree, leaves))
        return ref.inner_aval.update(shape=shape) if dtype == ref.dtype else ref.inner_aval.update(shape=shape, dtype=dtype)
    for each in tree_unflatten(tree, leaves):
        if type(each) is not NDIndexer or any(type(index) is not Slice for index in each.indices):
            raise TypeError("sharded ref (array reference) can only be indexed by slices, not integers")
        for axis, (index, size, entry) in enumerate(zip(each.indices, each.shape, layout.spec, strict=True)):
            if entry is not None and index != Slice(0, size):
                raise ValueError("sharded ref (array reference) can only be sliced along unsharded axes, but ref of shape "
                                 f"{each.shape} was sliced on axis {axis}, which is sharded like {entry}")
    return with_layout(ref.inner_aval.update(shape=shape), layout)


def _read_index(ref: AbstractRef, indices: Sequence[Sequence[Any]]) -> tuple[list[Any], Any]:
    """Leaves and tree of indices as `parse_jaxpr` reads them: `...`, ints, variables, and (start, stop or size, step)."""
    shape: tuple[int, ...] = ref.shape
    transforms = []
    for items in indices:
        given: list[Any] = [slice(None)] * len(shape) if items == [...] else list(items)
        if len(given) != len(shape):
            raise ValueError(f"it has {len(shape)} axes, the index has {len(given)}")
        parts = tuple(_read_item(item, extent) for item, extent in zip(given, shape, strict=True))
        types: list[Any] = [each.aval for each in parts if isinstance(each, (Var, Literal))]
        sizes = broadcast_shapes(*(aval.shape for aval in types))
        transforms.append(NDIndexer(parts, shape, sizes))
        shape = transforms[-1].get_indexer_shape()
    leaves, tree = tree_flatten(tuple(transforms))
    integer = ShapedArray((), dtypes.default_dtype(int))
    return [Literal(integer.dtype.type(leaf), integer) if type(leaf) is int else leaf for leaf in leaves], tree


def _read_item(item: Any, extent: int) -> Any:
    if isinstance(item, slice):
        return Slice(0, extent)
    if not isinstance(item, tuple):
        return item
    start, stop, step = item
    if not isinstance(start, int):
        return Slice(start, stop // step, step)
    return Slice(start, ((extent if stop is None else stop) - 1 - start) // step + 1, step)


for _p in (get_p, swap_p, addupdate_p):
    _p.index_reader = _read_index


@get_p.def_effectful_abstract_eval
def _get_aval(ref: Any, *leaves: Any, tree: Any) -> Any:
    part = _part(ref, _selected(ref, leaves, tree, "get"), leaves, tree)
    return varying(part, part.vma.union(*[leaf.vma for leaf in leaves])), _EFFECTS


def _check_value(ref: Any, value: Any, leaves: Sequence[Any], tree: Any, name: str) -> None:
    shape = _selected(ref, leaves, tree, name)
    if shape != value.shape:
        raise ValueError(f"Invalid shape for `{name}`. Ref shape: {ref.shape}. Expected shape: {shape}. "
                         f"Value shape: {value.shape}. Transforms: {tuple(tree_unflatten(tree, leaves))}. ")
    dtype = transformed_dtype(ref.dtype, tree_unflatten(tree, leaves))
    if dtype != value.dtype:
        raise ValueError(f"Invalid dtype for `{name}`. Ref dtype: {dtype}. Value dtype: {value.dtype}. ")
    if ref.vma == value.vma and not leaves:
        return
    beyond = tuple(sorted(value.vma.union(*[leaf.vma for leaf in leaves]) - ref.vma, key=str))
    if beyond:
        what = "a value" if not value.vma <= ref.vma else "a place"
        raise ValueError(
            f"`{name}`: {what} that varies along the mesh axes {beyond} is written to a Ref that is the same along them, "
            f"{ref!r}. If it is an argument of shard_map, name the axes in its in_specs; if it is made inside, make it of a "
            f"value that varies: lax.pcast(x, {beyond}, to='varying'). Or write what is the same along them, as lax.psum(x, "
            f"{beyond}) is")
    if ref.vma != value.vma:
        raise MixedVarying([_nowhere, ref.vma - value.vma, *[_nowhere] * len(leaves)])


@swap_p.def_effectful_abstract_eval
def _swap_aval(ref: Any, value: Any, *leaves: Any, tree: Any) -> Any:
    _check_value(ref, value, leaves, tree, "swap")
    return varying(_part(ref, value.shape, leaves, tree), value.vma), _EFFECTS


@addupdate_p.def_effectful_abstract_eval
def _addupdate_aval(ref: Any, value: Any, *leaves: Any, tree: Any) -> Any:
    _check_value(ref, value, leaves, tree, "addupdate")
    _part(ref, value.shape, leaves, tree)
    return [], _EFFECTS


@freeze_p.def_effectful_abstract_eval
def _freeze_aval(ref: Any) -> Any:
    return ref.inner_aval, _EFFECTS


# --- discharge ---------------------------------------------------------------------------------------


@discharges(new_ref_p)
def _discharge_new_ref(eqn: JaxprEqn, values: list[Any]) -> Any:
    return [convert(values[0], aval_of(values[0]).dtype, False)], {}


@discharges(freeze_p)
def _discharge_freeze(eqn: JaxprEqn, values: list[Any]) -> Any:
    return values, {}


@discharges(get_p)
def _discharge_get(eqn: JaxprEqn, values: list[Any]) -> Any:
    return [read_through(values[0], tree_unflatten(eqn.params["tree"], values[1:]))], {}


@discharges(swap_p)
def _discharge_swap(eqn: JaxprEqn, values: list[Any]) -> Any:
    array, value, *leaves = values
    transforms = tree_unflatten(eqn.params["tree"], leaves)
    value = _as_part(value, array, eqn)
    return [read_through(array, transforms)], {0: write_through(array, transforms, value)}


@discharges(addupdate_p)
def _discharge_addupdate(eqn: JaxprEqn, values: list[Any]) -> Any:
    array, value, *leaves = values
    return [], {0: write_through(array, tree_unflatten(eqn.params["tree"], leaves), _as_part(value, array, eqn), "add")}


def _as_part(value: Any, array: Any, eqn: JaxprEqn) -> Any:
    """A value that is written to a part of a mutable array, as that is typed: it is on explicit mesh axes as that does."""
    transforms = tree_unflatten(eqn.params["tree"], [atom.aval for atom in eqn.invars[2:]])
    value, ref = convert(value, transformed_dtype(aval_of(array).dtype, transforms), False), eqn.invars[0].aval
    layout = ref.inner_aval.layout if type(ref) is AbstractRef else None
    if layout is aval_of(value).layout:
        return value
    return _constraints().laid_out_as(value, with_layout(aval_of(value), layout))


# --- eager calls: on the cell ------------------------------------------------------------------------


@new_ref_p.def_eager
def _new_cell(init: Any, *, memory_space: Any, kind: Any) -> Ref:
    if memory_space is not None and not isinstance(memory_space, MemorySpace):
        raise NotImplementedError("array ref with memory space only works inside of a `jit`.")
    array = asarray(init)
    value = convert(array, array.dtype, False)
    if memory_space is not None:
        value = _transfers().put(value, memory_space)
    ref = Ref(AbstractRef(aval_of(array), memory_space, kind), value)
    ref.share()  # it is the caller's array
    return ref


def _cell(ref: Any) -> Ref:
    """A Ref that holds its value. Raises: UnexpectedTracerError for one that a traced function let out."""
    if type(ref) is not Ref:
        raise UnexpectedTracerError(ref)
    return ref


@freeze_p.def_eager
def _freeze_cell(ref: Ref) -> Any:
    return _cell(ref).share()


def _is_whole(tree: Any, leaves: Sequence[Any]) -> bool:
    return not leaves and all(type(each) is NDIndexer and each.is_whole for each in tree_unflatten(tree, ()))


@get_p.def_eager
def _read_cell(ref: Ref, *leaves: Any, tree: Any) -> Any:
    if _is_whole(tree, leaves):
        return _cell(ref).share()
    return _compiled("get", tree)(_cell(ref).peek(), *leaves)


@swap_p.def_eager
def _swap_cell(ref: Ref, value: Any, *leaves: Any, tree: Any) -> Any:
    swap_p.typed([aval_of(each) for each in (_cell(ref), value, *leaves)], {"tree": tree})
    out, array = _compiled("swap", tree)(ref.give(), value, *leaves)
    ref.put(array)
    return out


@addupdate_p.def_eager
def _add_to_cell(ref: Ref, value: Any, *leaves: Any, tree: Any) -> Any:
    addupdate_p.typed([aval_of(each) for each in (_cell(ref), value, *leaves)], {"tree": tree})
    ref.put(_compiled("addupdate", tree)(ref.give(), value, *leaves))
    return []


def write_cell(ref: Ref, value: Any, leaves: Sequence[Any], tree: Any) -> None:
    """A swap whose old value is not used."""
    swap_p.typed([aval_of(each) for each in (ref, value, *leaves)], {"tree": tree})
    ref.put(_compiled("set", tree)(ref.give(), value, *leaves))


_calls: dict[Any, Any] = {}
_CALL_LIMIT = 1024


def _compiled(name: str, tree: Any) -> Any:
    """The function of the array that an eager operation runs."""
    found = _calls.get((name, tree))
    if found is None:

        def run(array: Any, *operands: Any) -> Any:
            transforms = tree_unflatten(tree, operands[name != "get":])
            if name == "get":
                return read_through(array, transforms)
            value = convert(operands[0], transformed_dtype(array.dtype, transforms), False)
            if name == "swap":
                return read_through(array, transforms), write_through(array, transforms, value)
            return write_through(array, transforms, value, "add" if name == "addupdate" else "set")

        run.__name__ = run.__qualname__ = name
        if len(_calls) >= _CALL_LIMIT:
            _calls.clear()
        found = _calls[name, tree] = jit(run, donate_argnums=() if name == "get" else 0)
    return found


clear_hooks += [_calls.clear, discharge.forget]
