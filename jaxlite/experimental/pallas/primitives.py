"""The primitives of kernels beside those of Refs: the place in the grid, masked reads and writes, atomic updates, scoped Refs.

What becomes of them on values, in interpret mode, is in `discharge.py`.
"""

from __future__ import annotations

import enum
import functools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite.core.aval import Ints, ShapedArray, shaped_array
from jaxlite.core.effects import REF, Effect
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import no_effects
from jaxlite.core.primitive import Primitive
from jaxlite.core.tracing import state
from jaxlite.core.tree import tree_flatten, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.lax.shaping import convert
from jaxlite.numpy.manipulation import broadcast_to
from jaxlite.state.api import TransformedRef
from jaxlite.state.indexing import NDIndexer, transformed_shape
from jaxlite.state.views import transformed_dtype

program_id_p = Primitive("program_id")
num_programs_p = Primitive("num_programs")
masked_load_p = Primitive("masked_load")
masked_swap_p = Primitive("masked_swap")
atomic_rmw_p = Primitive("atomic_rmw")
atomic_cas_p = Primitive("atomic_cas")
run_scoped_p = Primitive("run_scoped", multiple_results=True, memoise=False)
multiple_of_p = Primitive("multiple_of")
max_contiguous_p = Primitive("max_contiguous")
barrier_p = Primitive("debug_barrier", multiple_results=True)
delay_p = Primitive("delay", multiple_results=True)
approx_tanh_p = Primitive("approx_tanh")
reciprocal_p = Primitive("reciprocal")
inline_asm_p = Primitive("elementwise_inline_asm", multiple_results=True)
for _p in (masked_load_p, masked_swap_p, atomic_rmw_p, atomic_cas_p):
    _p.takes_refs = True
_REF = frozenset((REF,))
ORDER = Effect("KernelOrder", False, True)  # a step that has no result, and is not to be dropped
_INDEX = ShapedArray((), np.dtype(np.int32))

# --- the place in the grid ---------------------------------------------------------------------------


class _Grids(threading.local):
    """The grids of the kernels that are being traced, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[tuple[tuple[Any, ...], Sequence[Any] | None]] = []


_grids = _Grids()


class grid_scope:
    """A context in which a kernel for a grid is traced.

    Args: `grid`, the numbers of steps, None where the kernel's own grid has one that is traced; `names` of the axes, None for
    those without one: `axis_index` knows them; `ids`, the indices of the step, if they are not those of the kernel's own grid.
    """

    def __init__(self, grid: tuple[Any, ...], names: Sequence[Any] = (), ids: Sequence[Any] | None = None):
        self._grid, self._ids = grid, ids
        self._names = {name: axis for axis, name in enumerate(names) if name is not None}

    def __enter__(self) -> None:
        _grids.stack.append((self._grid, self._ids))
        self._before = state.axis_sizes, state.axis_indices
        if self._names:
            state.axis_sizes = {**state.axis_sizes, **{name: self._grid[axis] or 0 for name, axis in self._names.items()}}
            state.axis_indices = {**state.axis_indices, **{
                name: functools.partial(program_id_p.bind, axis=axis) for name, axis in self._names.items()}}

    def __exit__(self, *info: Any) -> None:
        _grids.stack.pop()
        state.axis_sizes, state.axis_indices = self._before


def _extent(axis: int, what: str) -> Any:
    if not _grids.stack:
        raise ValueError(f"`{what}` is called outside of a kernel: there is no grid")
    grid, _ = _grids.stack[-1]
    if not 0 <= axis < len(grid):
        raise ValueError(f"Axis {axis} is out of bounds for grid {grid}")
    return grid[axis]


@boundary
def program_id(axis: int) -> Any:
    """The index of the current step along an axis of the grid.

    Args: `axis` of the grid, an int. Returns: an int32 scalar.
    Raises: ValueError outside a kernel, or for an axis that the grid has not.
    """
    _extent(axis, "program_id")
    ids = _grids.stack[-1][1]
    if ids is not None:
        return ids[axis]
    return program_id_p.bind(axis=int(axis))


@boundary
def num_programs(axis: int) -> Any:
    """The number of steps along an axis of the grid: an int, or a scalar if it is not known when the kernel is traced."""
    extent = _extent(axis, "num_programs")
    return num_programs_p.bind(axis=int(axis)) if extent is None else extent


program_id_p.def_abstract_eval(lambda *, axis: _INDEX)
num_programs_p.def_abstract_eval(lambda *, axis: _INDEX)
for _p in (program_id_p, num_programs_p):
    _p.no_jvp("it has no operands")
    _p.no_transpose("it has no operands")
    _p.no_batching("it has no operands")

# --- reads and writes --------------------------------------------------------------------------------


def parts(ref: Any, index: Any = None) -> tuple[Any, tuple[Any, ...]]:
    """A Ref and the transforms to a part of it, at least one."""
    ref, transforms = (ref.ref, ref.transforms) if type(ref) is TransformedRef else (ref, ())
    if index is not None or not transforms:
        shape = transformed_shape(aval_of(ref).shape, transforms)
        transforms = (*transforms, NDIndexer.from_indices_shape(Ellipsis if index is None else index, shape))
    return ref, tuple(transforms)


def _shape_of(ref: Any, transforms: Sequence[Any]) -> Ints:
    return transformed_shape(aval_of(ref).shape, transforms)


def _fitted(value: Any, shape: Ints, dtype: Any) -> Any:
    """A scalar or a smaller value spread over a part, in the dtype of the Ref if it is weakly typed."""
    if aval_of(value).weak_type:
        value = convert(value, dtype, False)
    return value if aval_of(value).shape == shape else broadcast_to(value, shape)


@boundary
def load(ref: Any, *, mask: Any = None, other: Any = None, cache_modifier: str | None = None,
         eviction_policy: str | None = None, volatile: bool = False) -> Any:
    """The value of a Ref, or of a part of one, where a mask holds.

    Args:
      ref: a Ref, or `ref.at[index]`.
      mask: booleans of the part's shape, or of one that broadcasts to it. Where it is False nothing is read.
      other: the value there; without it, any.
      cache_modifier, eviction_policy, volatile: hints for the GPU.
    Returns: an array of the part's shape.
    """
    ref, transforms = parts(ref)
    shape, dtype = _shape_of(ref, transforms), aval_of(ref).dtype
    if other is not None and mask is None:
        raise ValueError("`mask` must be given where `other` is")
    mask = None if mask is None else broadcast_to(mask, shape)
    other = None if other is None else _fitted(other, shape, dtype)
    leaves, tree = tree_flatten((transforms, mask, other))
    return masked_load_p.bind(ref, *leaves, args_tree=tree, cache_modifier=cache_modifier, eviction_policy=eviction_policy,
                              volatile=volatile)


@boundary
def swap(ref: Any, val: Any, *, mask: Any = None, eviction_policy: str | None = None) -> Any:
    """Write a value to a Ref, or to a part of one, where a mask holds; gives what was there."""
    ref, transforms = parts(ref)
    shape = _shape_of(ref, transforms)
    mask = None if mask is None else broadcast_to(mask, shape)
    leaves, tree = tree_flatten((transforms, mask))
    return masked_swap_p.bind(ref, _fitted(val, shape, aval_of(ref).dtype), *leaves, args_tree=tree,
                              eviction_policy=eviction_policy)


def store(ref: Any, val: Any, *, mask: Any = None, eviction_policy: str | None = None) -> None:
    """Write a value to a Ref, or to a part of one, where a mask holds.

    Args: `ref` a Ref or `ref.at[index]`; `val` an array of the part's shape; `mask` booleans of that shape.
    """
    swap(ref, val, mask=mask, eviction_policy=eviction_policy)


def _check(ref: Any, transforms: Sequence[Any], value: Any, name: str) -> None:
    shape = transformed_shape(ref.shape, transforms)
    if value.shape != shape:
        raise ValueError(f"Invalid shape for `{name}`. Ref shape: {ref.shape}. Value shape: {value.shape}. "
                         f"Indices: {tuple(transforms)}. ")
    dtype = transformed_dtype(ref.dtype, transforms)
    if value.dtype != dtype:
        raise ValueError(f"Invalid dtype for `{name}`. Ref dtype: {dtype}. Value dtype: {value.dtype}. ")


@masked_load_p.def_effectful_abstract_eval
def _load_aval(ref: Any, *leaves: Any, args_tree: Any, **hints: Any) -> Any:
    transforms, mask, other = tree_unflatten(args_tree, leaves)
    shape = transformed_shape(ref.shape, transforms)
    if mask is not None and mask.dtype != np.dtype(bool):
        raise ValueError(f"the mask of a load has booleans, got {mask}")
    if other is not None:
        _check(ref, transforms, other, "load")
    return shaped_array(shape, transformed_dtype(ref.dtype, transforms), False), _REF


@masked_swap_p.def_effectful_abstract_eval
def _swap_aval(ref: Any, value: Any, *leaves: Any, args_tree: Any, **hints: Any) -> Any:
    _check(ref, tree_unflatten(args_tree, leaves)[0], value, "swap")
    return shaped_array(value.shape, value.dtype, False), _REF


# --- atomic updates ----------------------------------------------------------------------------------


class AtomicOpType(enum.Enum):
    """What an atomic update does with the old value and the new one."""

    XCHG = "xchg"
    ADD = "add"
    MAX = "max"
    MIN = "min"
    AND = "and"
    OR = "or"
    XOR = "xor"


@boundary
def atomic_rmw(kind: AtomicOpType, ref: Any, idx: Any, val: Any, mask: Any = None) -> Any:
    """An atomic update of the part of a Ref that an index selects; gives the values before it."""
    ref, transforms = parts(ref, idx)
    shape = _shape_of(ref, transforms)
    mask = None if mask is None else broadcast_to(mask, shape)
    leaves, tree = tree_flatten((transforms, mask))
    return atomic_rmw_p.bind(ref, _fitted(val, shape, aval_of(ref).dtype), *leaves, args_tree=tree, atomic_type=kind)


@atomic_rmw_p.def_effectful_abstract_eval
def _atomic_aval(ref: Any, value: Any, *leaves: Any, args_tree: Any, atomic_type: AtomicOpType) -> Any:
    _check(ref, tree_unflatten(args_tree, leaves)[0], value, "atomic_rmw")
    kind = value.dtype.kind
    if atomic_type in (AtomicOpType.AND, AtomicOpType.OR, AtomicOpType.XOR) and kind not in "iub":
        raise ValueError(f"`atomic_{atomic_type.value}` only accepts scalar integer types, got {value.dtype}")
    return shaped_array(value.shape, ref.dtype, False), _REF


@boundary
def atomic_cas(ref: Any, cmp: Any, val: Any) -> Any:
    """Write `val` to a Ref of one element if it holds `cmp`; gives what it held.

    Args: `ref` a Ref without axes, or a part of one, `ref.at[i]`; `cmp` and `val` scalars of its dtype.
    """
    ref, transforms = parts(ref)
    shape, dtype = _shape_of(ref, transforms), aval_of(ref).dtype
    leaves, tree = tree_flatten(transforms)
    return atomic_cas_p.bind(ref, _fitted(cmp, shape, dtype), _fitted(val, shape, dtype), *leaves, args_tree=tree)


@atomic_cas_p.def_effectful_abstract_eval
def _cas_aval(ref: Any, cmp: Any, value: Any, *leaves: Any, args_tree: Any) -> Any:
    transforms = tree_unflatten(args_tree, leaves)
    if transformed_shape(ref.shape, transforms):
        raise ValueError(f"`atomic_cas` works on one element, got a Ref of shape {transformed_shape(ref.shape, transforms)}")
    for each in (cmp, value):
        _check(ref, transforms, each, "atomic_cas")
    return shaped_array((), ref.dtype, False), _REF


# --- scoped Refs -------------------------------------------------------------------------------------


@run_scoped_p.def_effectful_abstract_eval
def _run_scoped_aval(*avals: Any, jaxpr: Any, num_consts: int, collective_axes: Any) -> Any:
    return jaxpr.out_avals, jaxpr.effects | _REF


# --- hints and functions of a GPU --------------------------------------------------------------------


def _as_it_is(x: Any, **params: Any) -> Any:
    return x


def _effect_only(*avals: Any, **params: Any) -> Any:
    return [], frozenset((ORDER,))


for _p in (multiple_of_p, max_contiguous_p, approx_tanh_p, reciprocal_p):
    _p.def_abstract_eval(_as_it_is)
for _p in (barrier_p, delay_p):
    _p.def_effectful_abstract_eval(_effect_only)
inline_asm_p.def_effectful_abstract_eval(lambda *avals, result_avals, **params: (list(result_avals), no_effects))
