"""Memory layouts: the order of an array's elements in memory, and how calls handle it.

Nearly all arrays have the default layout of their device (on CPUs and GPUs, the last axis is the fastest); for them,
nothing here is loaded. Other layouts come from programs that request them for their results. XLA does not check the layout
of arguments, and computes wrong values if it differs from that of the executable. Therefore the layouts of the arguments
are part of the key of a program (`of_call`), and an executable converts arrays to its layouts (`relaid`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxlite.core import array as arrays
from jaxlite.core.shape_dtype import ShapeDtypeStruct
from jaxlite.devices import placement
from jaxlite.devices.sharding import AutoLayout, Format, Layout
from lowering import xla
from lowering.buffers import physical

ArrayImpl = xla.ArrayImpl
AUTO = AutoLayout.AUTO


class Layouts(NamedTuple):
    """The layouts of a program's inputs (captured arrays and arguments) and results: None for the default."""

    inputs: tuple[Any, ...]
    results: tuple[Any, ...]


@functools.lru_cache(1024)
def _read(layout: Any) -> Layout:
    order, tiling, bits = xla.layout_parts(layout)
    return Layout(order[::-1], tiling, bits)


@functools.lru_cache(1024)
def _default(dtype: Any, shape: tuple[int, ...], device: Any) -> Layout:
    return _read(device.client.get_default_layout(dtype, shape, device))


def of_array(array: Any) -> Layout:
    """The layout of an array, or of the array that one of keys is made of."""
    array = getattr(array, "_base_array", array)
    if array.is_deleted():
        raise arrays.deleted_error(array)
    return _read(array._pjrt_layout)


def unusual(array: Any) -> Layout | None:
    """The layout of an array if it is not the default one."""
    array = getattr(array, "_base_array", array)
    if array.is_deleted() or not array.is_fully_addressable and not array._arrays:
        return None
    found = of_array(array)
    return None if is_usual(found) or _agree(found, usual(array)) else found


def usual(array: Any) -> Layout:
    """The layout that an array would have by default."""
    shape = array.sharding.shard_shape(array.shape) if arrays.is_spread(array) else array.shape
    return _default(array.dtype, shape, arrays.device_of(array))


def _agree(one: Layout, other: Layout) -> bool:
    """Whether two layouts are one; where a user's does not say how memory is tiled, it is any that does."""
    return tuple(one.major_to_minor) == tuple(other.major_to_minor) and (
        one.tiling is None or other.tiling is None or one.tiling == other.tiling)


def is_laid_out(array: Any, layout: Layout | None) -> bool:
    """Whether an array has a layout, the default one for None."""
    own = unusual(array)
    return own is layout is None or layout is not None and _agree(own or usual(array), layout)


def relaid(array: Any, layout: Layout | None) -> Any:
    """An array with a layout, the default one for None; the same object if it has it already."""
    if hasattr(array, "_base_array"):
        order = None if layout is None else Layout(layout.minor_to_major(array._base_array.ndim)[::-1], layout.tiling)
        return array.dtype.wrap(relaid(array._base_array, order))
    if is_laid_out(array, layout):
        return array
    return placement.reshard(array, array.sharding if layout is None else Format(layout, array.sharding))


def format_of(array: Any) -> Format:
    """Layout and sharding of an array."""
    return Format(of_array(array), array.sharding)


def is_usual(layout: Layout | None) -> bool:
    """Whether a layout, if it is given at all, goes by rows: the default one nearly everywhere."""
    return layout is None or tuple(layout.major_to_minor) == tuple(range(len(layout.major_to_minor))) and not layout.tiling


# --- programs ----------------------------------------------------------------------------------------


def of_call(program: Any, leaves: Sequence[Any]) -> Layouts | None:
    """The memory layouts of inputs and results of a program for these arguments; None if all are the default.

    Raises: ValueError for an argument whose layout is not the one given to `jit`, and for a layout of an array of another rank.
    """
    values = [*program.closed.consts, *leaves]
    debug, first = program.debug_info, len(program.closed.consts)
    asked = (None,) * first + (program.in_layouts or (None,) * len(leaves))
    inputs = []
    for index, (value, wanted) in enumerate(zip(values, asked, strict=True)):
        own = _bound(value)
        if wanted is None:
            inputs.append(own)
            continue
        if wanted is not AUTO:
            aval = program.closed.in_avals[index - first]
            wanted.check_rank(aval.shape, f"One of jit arguments with pytree key path {debug.arg_name(index - first)}")
        if own is None and type(value) is ArrayImpl and value._committed:
            own = of_array(value)
        if own is not None and (wanted is AUTO or not _agree(own, wanted)):
            kind = program.closed.in_avals[index - first].str_short()
            raise ValueError(
                f"Layout passed to jit does not match the layout on the respective arg. Got jit layout: {wanted},\narg layout: "
                f"{own} for arg type: {kind}." + (
                    " The layout given to `jax.jit` is `Layout.AUTO` but the corresponding argument passed is a `jax.Array` "
                    "with a concrete layout. Consider passing a `jax.ShapeDtypeStruct` instead of `jax.Array` as an argument "
                    "to the jitted function when using `Layout.AUTO`." if wanted is AUTO else ""))
        inputs.append(None if wanted is not AUTO and is_usual(wanted) else wanted)
    results = []
    for place, wanted in enumerate(program.out_layouts or (None,) * len(program.closed.out_avals)):
        if isinstance(wanted, Layout):
            wanted.check_rank(program.closed.out_avals[place].shape, "One of jit outputs with pytree key path "
                              + program.result_name(place))
            wanted = None if is_usual(wanted) else wanted
        results.append(wanted)
    if any(each is not None for each in (*inputs, *results)):
        return Layouts(tuple(inputs), tuple(results))
    return None


def _bound(value: Any) -> Layout | None:
    """The layout of a value if it is not the default one."""
    if type(value) is ShapeDtypeStruct:
        return None if is_usual(value._layout) else value._layout
    value = getattr(value, "_base_array", value)
    return unusual(value) if type(value) is ArrayImpl else None


def orders(layouts: Layouts, kept: Sequence[bool]) -> list[Any]:
    """The layouts of those inputs that an executable reads."""
    return [each for each, keep in zip(layouts.inputs, kept, strict=True) if keep]


def all_relaid(inputs: Sequence[Any], wanted: Sequence[Any] | None) -> list[Any]:
    """The inputs of an executable with its layouts, or the default ones."""
    if wanted is None:
        return [relaid(each, None) for each in inputs]
    return [relaid(each, layout) for each, layout in zip(inputs, wanted, strict=False)]


def explicit(wanted: Sequence[Any] | None, avals: Sequence[Any]) -> list[Any]:
    """The layout of each input for C++, which compares it with that of the array; None for one without a type."""
    wanted = wanted or [None] * len(avals)
    return [layout if layout is not None or aval is None else Layout(tuple(range(len(physical(aval)[0]))))
            for layout, aval in zip(wanted, avals, strict=True)]


def settled(loaded: Any, kept: Sequence[bool]) -> Layouts:
    """The layouts of an executable, None for inputs that it does not read; notes if that of a result is not the default."""
    found = iter(map(_read, loaded.get_parameter_layouts()))
    inputs = tuple(next(found) if keep else None for keep in kept)
    results = tuple(map(_read, loaded.get_output_layouts()))
    if not all(map(is_usual, results)):
        placement.layouts.exist = True
    return Layouts(inputs, results)
