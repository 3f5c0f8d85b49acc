"""Operations block by block, forward: the block of a result that follows from blocks of the operands.

It is the one whose operands have these blocks by `fusion_rules.pull`. Operands without a block follow from the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from jaxlite.core.jaxpr import JaxprEqn
from jaxlite.core.primitive import load_rules
from jaxlite.experimental.pallas.fusion_rules import Element, canonical, regrouped, shape_of, size_of
from jaxlite.experimental.pallas.specs import BlockSpec, no_block_spec
from jaxlite.traces.batching import elementwise
from lowering.rules import registers_in

Rule = Callable[[JaxprEqn, Sequence[Any]], "BlockSpec | None"]
_rules: dict[str, Rule] = {}
pushes = registers_in(_rules)  # the rule of some primitives with one result; it gives None where there is no such block


def push(eqn: JaxprEqn, specs: Sequence[Any]) -> Sequence[Any]:
    """The blocks of the results, from those of the operands that have one."""
    load_rules()
    several = _several.get(eqn.primitive.name)
    if several is not None:
        return several(eqn, specs)
    rule = _rules.get(eqn.primitive.name, _elementwise if eqn.primitive in elementwise else None)
    found = rule(eqn, specs) if rule is not None else None
    if found is not None:
        return [found]
    whole = [spec is no_block_spec or _is_whole(spec, shape_of(atom)) for spec, atom in zip(specs, eqn.invars, strict=True)]
    if all(whole):
        first = _first(specs)
        return [replace(first, block_shape=shape_of(var), index_map=_zeros(len(shape_of(var)))) for var in eqn.outvars]
    index = whole.index(False)
    raise NotImplementedError(f"the block {specs[index].block_shape} of an operand of type {eqn.invars[index].aval} gives no "
                              f"block of {eqn.primitive.name}'s result, at {eqn.source_line}")


def _first(specs: Sequence[Any]) -> BlockSpec:
    return next(spec for spec in specs if spec is not no_block_spec)


def _is_whole(spec: BlockSpec, shape: Sequence[int]) -> bool:
    return spec.block_shape is None or tuple(map(size_of, spec.block_shape)) == tuple(shape)


def _zeros(count: int) -> Callable[..., Any]:
    return lambda *indices: (0,) * count


def _moved(spec: BlockSpec, shape: Sequence[Any], place: Callable[[tuple[Any, ...]], Sequence[Any]]) -> BlockSpec:
    """A block of another shape, whose place is a function of this one's."""
    index_map = spec.index_map or _zeros(len(_shape(spec)))
    return replace(spec, block_shape=tuple(shape), index_map=lambda *indices: tuple(place(tuple(index_map(*indices)))))


def _shape(spec: BlockSpec) -> Sequence[Any]:
    assert spec.block_shape is not None, "whole arrays have no rules"
    return spec.block_shape


def _elementwise(eqn: JaxprEqn, specs: Sequence[Any]) -> BlockSpec | None:
    shape = shape_of(eqn.outvars[0])
    found = [spec for spec, atom in zip(specs, eqn.invars, strict=True) if spec is not no_block_spec and
             shape_of(atom) == shape]
    for other in found[1:]:
        if other.block_shape is None or found[0].block_shape is None:
            if other.block_shape is not found[0].block_shape:
                return None
        elif canonical(other.block_shape) != canonical(found[0].block_shape):
            raise ValueError(f"{eqn.primitive.name} of the blocks {found[0].block_shape} and {other.block_shape}, at "
                             f"{eqn.source_line}")
    return found[0] if found else None


for _name in ("convert_element_type", "copy", "copy_p", "reduce_precision", "select_n", "clamp", "bitcast_convert_type",
              "dynamic_update_slice"):
    _rules[_name] = _elementwise


@pushes("transpose")
def _transpose(eqn: JaxprEqn, specs: Sequence[Any]) -> BlockSpec | None:
    (spec,), order = specs, eqn.params["permutation"]
    if spec.block_shape is None:
        return None
    return _moved(spec, [_shape(spec)[axis] for axis in order], lambda place: [place[axis] for axis in order])


@pushes("reshape", "squeeze")
def _reshape(eqn: JaxprEqn, specs: Sequence[Any]) -> BlockSpec | None:
    spec = specs[0]
    if spec.block_shape is None or eqn.params.get("dimensions") is not None and eqn.primitive.name == "reshape":
        return None
    found = regrouped(shape_of(eqn.invars[0]), shape_of(eqn.outvars[0]), _shape(spec))
    return None if found is None else _moved(spec, *found)


@pushes("broadcast_in_dim")
def _broadcast(eqn: JaxprEqn, specs: Sequence[Any]) -> BlockSpec | None:
    spec, axes = specs[0], eqn.params["broadcast_dimensions"]
    if spec is no_block_spec or spec.block_shape is None:
        return None
    source, shape = shape_of(eqn.invars[0]), shape_of(eqn.outvars[0])
    held = {axis: number for number, axis in enumerate(axes) if source[number] == shape[axis]}
    elements = any(type(dim) is Element for dim in _shape(spec))
    dims = [_shape(spec)[held[axis]] if axis in held else Element(size) if elements else size
            for axis, size in enumerate(shape)]
    return _moved(spec, dims, lambda place: [place[held[axis]] if axis in held else 0 for axis in range(len(shape))])


@pushes("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "argmax", "argmin")
def _reduce(eqn: JaxprEqn, specs: Sequence[Any]) -> BlockSpec | None:
    (spec,), axes, shape = specs, eqn.params["axes"], shape_of(eqn.invars[0])
    if spec.block_shape is None:
        return None
    if any(size_of(_shape(spec)[axis]) != shape[axis] for axis in axes):
        return None
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    return _moved(spec, [_shape(spec)[axis] for axis in kept], lambda place: [place[axis] for axis in kept])


@pushes("concatenate")
def _concatenate(eqn: JaxprEqn, specs: Sequence[Any]) -> BlockSpec | None:
    """Blocks of all operands that are whole along the axis give a block that is."""
    axis, spec = eqn.params["dimension"], _first(specs)
    known = zip(specs, eqn.invars, strict=True)
    if spec.block_shape is None or any(each is not no_block_spec and size_of(_shape(each)[axis]) != shape_of(atom)[axis]
                                       for each, atom in known):
        return None
    dims = list(_shape(spec))
    dims[axis] = shape_of(eqn.outvars[0])[axis]
    return _moved(spec, dims, lambda place: place)


@pushes("dot_general")
def _dot_general(eqn: JaxprEqn, specs: Sequence[Any]) -> BlockSpec | None:
    """The result's block has the free axes of the operand with a block, and all of the other's."""
    (lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch) = eqn.params["dimension_numbers"]
    dims: list[Any] = list(shape_of(eqn.outvars[0]))
    sources: dict[int, tuple[int, int]] = {}  # an axis of the result: an operand, and its axis
    first = len(lhs_batch)
    for number, (spec, atom, contracting, batch) in enumerate(zip(
            specs, eqn.invars, (lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch), strict=True)):
        shape = shape_of(atom)
        free = [axis for axis in range(len(shape)) if axis not in contracting and axis not in batch]
        if spec is not no_block_spec:
            if spec.block_shape is None or any(size_of(_shape(spec)[axis]) != shape[axis] for axis in contracting):
                return None
            for at, axis in [*enumerate(batch), *((first + at, axis) for at, axis in enumerate(free))]:
                sources[at], dims[at] = (number, axis), _shape(spec)[axis]
        first += len(free)
    maps = [None if spec is no_block_spec else spec.index_map or _zeros(len(_shape(spec))) for spec in specs]

    def index_map(*indices: Any) -> tuple[Any, ...]:
        places: list[Any] = [None if each is None else each(*indices) for each in maps]
        return tuple(places[sources[at][0]][sources[at][1]] if at in sources else 0 for at in range(len(dims)))

    return replace(_first(specs), block_shape=tuple(dims), index_map=index_map)


_several: dict[str, Callable[[JaxprEqn, Sequence[Any]], Sequence[Any]]] = {}  # of primitives of libraries: all results at once


def pushes_several(name: str, rule: Callable[[JaxprEqn, Sequence[Any]], Sequence[Any]]) -> None:
    """Set the rule of a primitive with several results."""
    _several[name] = rule
