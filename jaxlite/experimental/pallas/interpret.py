"""Interpret mode: a `pallas_call` as an ordinary program, on any platform.

A loop over the grid carries the outputs and the scratch memory. A step cuts its blocks out of the arrays, runs the kernel on
them, and puts the blocks of outputs back. Arrays that blocks do not divide are padded with a fill value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite.core import config
from jaxlite.core.discharge import discharge_jaxpr
from jaxlite.core.jaxpr import ClosedJaxpr, DebugInfo, Jaxpr, eval_jaxpr, once_for_each, subjaxprs
from jaxlite.core.staging import trace_to_jaxpr
from jaxlite.core.values import aval_of
from jaxlite.experimental.pallas.discharge import fresh_value, place_as_operands, unknown
from jaxlite.experimental.pallas.specs import BlockMapping, GridMapping, Indirect, SemaphoreDType, Squeezed
from jaxlite.lax import elementwise as ew
from jaxlite.lax.control_flow.while_loop import fori_loop
from jaxlite.lax.shaping import convert, convert_element_type, full, reshape
from jaxlite.lax.slicing import dynamic_slice, dynamic_update_slice
from jaxlite.lax.slicing import slice as cut
from lowering.rules import register_decomposition


def interpreted(*operands: Any, jaxpr: Jaxpr, grid_mapping: GridMapping, out_avals: Sequence[Any],
              input_output_aliases: Sequence[tuple[int, int]], interpret: Any = True, **params: Any) -> list[Any]:
    """The results of a kernel, computed step by step."""
    if getattr(interpret, "uninitialized_memory", "nan") == "zero":
        fresh = lambda shape, dtype: full(tuple(shape), 0, dtype)
    else:
        fresh = unknown
    mapping = grid_mapping
    dynamic, known = mapping.num_dynamic, len(mapping.index_avals)
    sizes_given, index_operands, inputs = operands[:dynamic], operands[dynamic:dynamic + known], operands[dynamic + known:]
    rest = iter(sizes_given)
    sizes = [next(rest) if size is None else np.int32(size) for size in mapping.grid]
    count = mapping.num_inputs
    in_blocks, out_blocks = mapping.block_mappings[:count], mapping.block_mappings[count:]
    start = {target: operands[dynamic + index] for index, target in input_output_aliases}
    arrays = [_extended(_counts(array), block) for array, block in zip(inputs, in_blocks, strict=True)]
    results = [_extended(_counts(start[index]) if index in start else fresh_value(block.array_ref, fresh), block)
               for index, block in enumerate(out_blocks)]
    scratch = [fresh_value(aval, fresh) for aval in mapping.scratch_avals]
    axes = mapping.kernel_axes
    kernel = discharge_jaxpr(place_as_operands(jaxpr, len(axes)))
    place_maps = [_on_values(block.index_map) for block in mapping.block_mappings]

    def run(step: Any, carry: Sequence[Any]) -> list[Any]:
        results, scratch = list(carry[:len(out_blocks)]), list(carry[len(out_blocks):])
        ids = _unravel(convert(step, np.dtype(np.int32), False), sizes)
        places = [eval_jaxpr(each.jaxpr, [], *ids, *index_operands) for each in place_maps]
        wholes = [*arrays, *results]
        views = [_read(array, block, place)
                 for array, block, place in zip(wholes, mapping.block_mappings, places, strict=True)]
        values = [*index_operands, *views, *scratch]
        where = [ids[axis] for axis in axes] + [sizes[axis] for axis in axes]
        outs = eval_jaxpr(kernel.closed.jaxpr, [], *where, *values)
        for index, value in zip(kernel.written, outs, strict=True):
            values[index - len(where)] = value
        last = values[known:]
        results = [_write(array, block, place, view) for array, block, place, view in zip(
            results, out_blocks, places[count:], last[count:len(views)], strict=True)]
        return [*results, *last[len(views):]]

    carry = [*results, *scratch]
    if dynamic:
        steps: Any = sizes[0]
        for size in sizes[1:]:
            steps = ew.mul(steps, size)
        carry = fori_loop(0, steps, run, carry)
    elif mapping.steps == 1:
        carry = run(np.int32(0), carry)
    elif mapping.steps:
        carry = fori_loop(0, mapping.steps, run, carry)
    return [convert_element_type(found, aval.dtype) if isinstance(aval.dtype, SemaphoreDType) else found
            for found, aval in zip(map(_trimmed, carry, out_blocks), out_avals, strict=True)]


def _counts(array: Any) -> Any:
    """The value that a kernel gets for an array: counts for semaphores."""
    return convert_element_type(array, np.dtype(np.int32)) if isinstance(array.dtype, SemaphoreDType) else array


@once_for_each
def concerns_devices(jaxpr: Jaxpr) -> bool:
    """Whether a kernel uses its device's number or may send to another: then it is interpreted inside the mesh's axes."""
    return any(getattr(eqn.primitive, "is_collective", False) or eqn.primitive.name in ("dma_start", "semaphore_signal")
               for eqn in jaxpr.eqns) or any(map(concerns_devices, subjaxprs(jaxpr)))


@once_for_each
def _has_wide_types(jaxpr: Jaxpr) -> bool:
    """Whether a kernel was traced with 64-bit types: then its literals have them."""
    atoms = [*jaxpr.invars, *(atom for eqn in jaxpr.eqns for atom in (*eqn.invars, *eqn.outvars))]
    return any(atom.aval.dtype in _WIDE for atom in atoms if hasattr(atom.aval, "dtype")) or any(
        map(_has_wide_types, subjaxprs(jaxpr)))


_WIDE = frozenset(map(np.dtype, ("int64", "uint64", "float64", "complex128")))


def _decomposition(avals: list[Any], params: dict[str, Any]) -> ClosedJaxpr:
    option = config.enable_x64.state
    wide = any(map(_has_wide_types, (params["jaxpr"], *(each.index_map for each in params["grid_mapping"].block_mappings))))
    previous = option.swap_local(wide)
    try:
        jaxpr, consts = trace_to_jaxpr(lambda *operands: interpreted(*operands, **params),
                                       [aval.strip_weak_type() for aval in avals], DebugInfo("lowering", "pallas_call"))
    finally:
        option.set_local(previous)
    assert not consts, "a kernel that closes over nothing gave a program that does"
    return ClosedJaxpr(jaxpr, [])


register_decomposition("pallas_call, interpreted", _decomposition)


def _on_values(place: Jaxpr) -> ClosedJaxpr:
    """An index map that takes the values of the operands that it would read from Refs."""
    return discharge_jaxpr(ClosedJaxpr(place, [])).closed


def _unravel(step: Any, sizes: Sequence[Any]) -> list[Any]:
    """The indices of a step; those of the last axis change fastest."""
    ids: list[Any] = []
    for axis in reversed(range(len(sizes))):
        size = sizes[axis]
        if axis == 0:
            ids.append(step)
        elif type(size) is np.int32 and size == 1:
            ids.append(np.int32(0))
        else:
            ids.append(ew.rem(step, size))
            step = ew.div(step, size)
    return ids[::-1]


def _extended(array: Any, block: BlockMapping) -> Any:
    padding = block.padding
    if not any(low or high for low, high in padding):
        return array
    shape = aval_of(array).shape
    whole = unknown([low + extent + high for extent, (low, high) in zip(shape, padding, strict=True)], array.dtype)
    return dynamic_update_slice(whole, array, [np.int32(low) for low, _ in padding])


def _trimmed(array: Any, block: BlockMapping) -> Any:
    lows = [low for low, _ in block.padding]
    shape = block.array_aval.shape
    if aval_of(array).shape == shape:
        return array
    return cut(array, lows, [low + extent for low, extent in zip(lows, shape, strict=True)])


def _starts(block: BlockMapping, place: Sequence[Any]) -> list[Any]:
    return [index if counted or size == 1 else ew.mul(index, np.int32(size))
            for index, size, counted in zip(place, block.sizes, block.counts_elements, strict=True)]


def _is_whole(block: BlockMapping, array: Any) -> bool:
    return aval_of(array).shape == block.sizes


def _read(array: Any, block: BlockMapping, place: Sequence[Any]) -> Any:
    if any(type(dim) is Indirect for dim in block.block_shape):
        raise NotImplementedError(f"interpret mode does not support Indirect blocks, as {block.origin} has")
    if not _is_whole(block, array):
        array = dynamic_slice(array, _starts(block, place), block.sizes)
    return reshape(array, block.ref_shape) if any(type(dim) is Squeezed for dim in block.block_shape) else array


def _write(array: Any, block: BlockMapping, place: Sequence[Any], view: Any) -> Any:
    if aval_of(view).shape != block.sizes:
        view = reshape(view, block.sizes)
    return view if _is_whole(block, array) else dynamic_update_slice(array, view, _starts(block, place))
