"""Indices of Refs: `NDIndexer`, with an index for each axis, and `Slice`. They are pytrees whose leaves are arrays.

The index of an equation is a tuple of such transforms, applied in order. Other classes can be transforms if they have the
methods `get_indexer_shape`, `read`, `write` and `text`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxlite.core import errors
from jaxlite.core.tracing import Tracer
from jaxlite.core.tree_nodes import register_pytree_node
from jaxlite.core.values import aval_of
from jaxlite.lax.elementwise import add
from jaxlite.lax.shaping import convert_element_type, iota, reshape
from jaxlite.lax.slicing import dynamic_slice, dynamic_update_slice
from jaxlite.numpy.index_plan import Span, read, write


@dataclass(unsafe_hash=True)
class Slice:
    """`size` elements from `start` on, `stride` apart. `start` may be traced, the rest are ints."""

    start: Any
    size: int
    stride: int = 1

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"`size` must not be negative, got {self.size}")
        if self.stride < 1:
            raise ValueError(f"slice must have a step >= 1 (found: {self.stride})")

    @classmethod
    def from_slice(cls, slc: slice, size: int) -> Slice:
        """Python's slice of an axis of a size. Raises: ValueError for a step that is negative."""
        start, stop, step = slc.indices(size)
        return cls(start, len(range(start, stop, step)), step)

    @property
    def is_dynamic_start(self) -> bool:
        return not isinstance(self.start, int)

    def text(self, extent: int) -> str:
        """The index as text: `1:3`, `:`, `i:i+4`."""
        step = f":{self.stride}" if self.stride != 1 else ""
        if not isinstance(self.start, int):
            length = self.size * self.stride
            return f"{self.start}:{self.start}+{length}{step}"
        stop = self.start + (self.size - 1) * self.stride + 1 if self.size else self.start
        return f"{self.start or ''}:{'' if stop == extent else stop}{step}"


def _flatten_slice(each: Slice) -> tuple[tuple[Any, ...], Any]:
    if isinstance(each.start, int):
        return (), (each.start, each.size, each.stride)
    return (each.start,), (None, each.size, each.stride)


def _slice(parts: tuple[int | None, int, int], leaves: Sequence[Any]) -> Slice:
    made = object.__new__(Slice)
    made.start, made.size, made.stride = leaves[0] if parts[0] is None else parts[0], parts[1], parts[2]
    return made


register_pytree_node(Slice, _flatten_slice, _slice)


def dslice(start: Any, size: int | None = None, stride: int | None = None) -> Slice:
    """A slice of `size` elements from `start`, which may be traced; `dslice(n)` is the first n elements.

    >>> from jaxlite.state.indexing import dslice
    >>> dslice(2, 3)
    Slice(start=2, size=3, stride=1)
    """
    if size is None:
        start, size = 0, start
    return Slice(start, operator.index(size), 1 if stride is None else operator.index(stride))


ds = dslice


class NDIndexer:
    """An index for each axis of an array: a `Slice`, or an int or integer array; several of these go together, as in NumPy.

    Attributes: `indices`; `shape`, that of the array; `int_indexer_shape`, the common shape of the integer indices.
    """

    __slots__ = ("indices", "shape", "int_indexer_shape", "validate")

    def __init__(self, indices: tuple[Any, ...], shape: tuple[int, ...], int_indexer_shape: tuple[int, ...],
                 validate: bool = False):
        self.indices, self.shape, self.int_indexer_shape, self.validate = indices, shape, int_indexer_shape, validate

    @classmethod
    def from_indices_shape(cls, indices: Any, shape: tuple[int, ...]) -> NDIndexer:
        """The indexer of `array[indices]` for an array of a shape.

        Raises: ValueError for too many indices, an int out of bounds or a step that is not positive; TypeError for what is no
          index; NonConcreteBooleanIndexError for a mask.
        """
        items = list(indices) if isinstance(indices, tuple) else [indices]
        given = len([each for each in items if each is not Ellipsis])
        if given > len(shape):
            raise ValueError(f"`indices` must not be longer than `shape`: indices={tuple(items)}, shape={shape}")
        places = [place for place, each in enumerate(items) if each is Ellipsis]
        if len(places) > 1:
            raise IndexError("an index can only have a single ellipsis ('...')")
        place = places[0] if places else len(items)
        items[place:place + len(places)] = [slice(None)] * (len(shape) - given)
        indices = tuple(_canonical(each, size) for each, size in zip(items, shape, strict=True))
        shapes = [np.shape(each) if not isinstance(each, Tracer) else each.shape for each in indices if type(each) is not Slice]
        return cls(indices, tuple(shape), np.broadcast_shapes(*shapes))

    @classmethod
    def make_trivial_indexer(cls, shape: tuple[int, ...]) -> NDIndexer:
        """The indexer of the whole array."""
        return cls.from_indices_shape((), shape)

    @property
    def is_whole(self) -> bool:
        """Whether it selects all there is."""
        return all(type(each) is Slice and isinstance(each.start, int) and each.size == size and each.stride == 1
                   for each, size in zip(self.indices, self.shape, strict=True))

    @property
    def is_dynamic_size(self) -> bool:
        return False

    def get_indexer_shape(self) -> tuple[int, ...]:
        """The shape of the part."""
        ints = [place for place, each in enumerate(self.indices) if type(each) is not Slice]
        sizes = [each.size for each in self.indices if type(each) is Slice]
        if not ints:
            return tuple(sizes)
        together = ints[-1] - ints[0] + 1 == len(ints)
        front = ints[0] if together else 0
        return (*sizes[:front], *self.int_indexer_shape, *sizes[front:])

    def read(self, array: Any) -> Any:
        """The part of a value."""
        return array if self.is_whole else read(array, tuple(map(_as_positions, self.indices)))

    def write(self, array: Any, value: Any, how: str = "set") -> Any:
        """The value with its part replaced, or increased for "add"."""
        if how == "add" and self.is_whole:
            return add(array, value)
        if self.is_whole:
            return value
        if not self.is_box:
            return write(array, tuple(map(_as_positions, self.indices)), value, how)
        starts = [each.start if type(each) is Slice else each for each in self.indices]
        box = reshape(value, tuple(each.size if type(each) is Slice else 1 for each in self.indices))
        if how == "add":
            box = add(dynamic_slice(array, starts, aval_of(box).shape), box)
        return dynamic_update_slice(array, box, starts)

    @property
    def is_box(self) -> bool:
        """Whether it is one contiguous block."""
        return all(each.stride == 1 if type(each) is Slice else not np.ndim(each) for each in self.indices)

    def text(self) -> str:
        """The index as it is printed in `a[...]`, from an indexer whose leaves are texts."""
        parts = [each.text(size) if type(each) is Slice else str(each)
                 for each, size in zip(self.indices, self.shape, strict=True)]
        return "..." if all(part == ":" for part in parts) else ",".join(parts)

    def __repr__(self) -> str:
        return (f"NDIndexer(indices={self.indices}, shape={self.shape}, int_indexer_shape={self.int_indexer_shape}, "
                f"validate={self.validate})")


def _flatten_indexer(each: NDIndexer) -> tuple[tuple[Any, ...], Any]:
    return each.indices, (each.shape, each.int_indexer_shape, each.validate)


register_pytree_node(NDIndexer, _flatten_indexer, lambda parts, indices: NDIndexer(tuple(indices), *parts))


def _canonical(each: Any, size: int) -> Any:
    if isinstance(each, Slice):
        if isinstance(each.start, int) and each.size and not 0 <= each.start <= size - (each.size - 1) * each.stride - 1:
            raise ValueError(f"Out of bound slice: start={each.start}, size={each.size}, stride={each.stride}, dim={size}.")
        return each
    if isinstance(each, slice):
        if any(isinstance(part, Tracer) for part in (each.start, each.stop, each.step)):
            raise ValueError("a slice of a Ref has static bounds; use jaxlite.state.indexing.dslice(start, size), or an "
                             "integer array")
        if each.step is not None and operator.index(each.step) < 1:
            raise ValueError(f"slice must have a step >= 1 (found: {each.step})")
        start, stop, step = each.indices(size)
        return Slice(start, max(0, -(-(stop - start) // step)), step)
    if isinstance(each, (int, np.integer)) and not isinstance(each, (bool, np.bool_)):
        if not -size <= each < size:
            raise ValueError(f"Out of bound indexer: idx={each}, dim={size}.")
        return int(each) % size if each < 0 else int(each)
    try:
        aval = aval_of(each)
    except TypeError:
        raise TypeError(f"a Ref is indexed by ints, slices, `...` and integer arrays, got {each!r}") from None
    if aval.dtype == np.bool_ and len(aval.shape) == 1:
        if isinstance(each, Tracer):
            raise errors.NonConcreteBooleanIndexError(each)
        if aval.shape[0] != size:
            raise IndexError(f"boolean index did not match shape of indexed array: the mask has size {aval.shape[0]}, the axis "
                             f"{size}")
        return np.flatnonzero(each)
    if not np.issubdtype(aval.dtype, np.integer):
        raise TypeError(f"a Ref is indexed by ints, slices, `...` and integer arrays, got {aval}")
    return each


def _as_positions(each: Any) -> Any:
    """An index for `jaxlite.numpy`."""
    if type(each) is not Slice:
        return each
    if each.is_dynamic_start and each.stride != 1:
        return add(iota(np.int32, each.size) * np.int32(each.stride), convert_element_type(each.start, np.int32))
    return Span(each.start, each.size, each.stride)


def transformed_shape(shape: tuple[int, ...], transforms: Sequence[Any]) -> tuple[int, ...]:
    """The shape of what the transforms select, one after the other."""
    for each in transforms:
        shape = each.get_indexer_shape()
    return shape


def read_through(array: Any, transforms: Sequence[Any]) -> Any:
    """The part of a value that the transforms select."""
    for each in transforms:
        array = each.read(array)
    return array


def write_through(array: Any, transforms: Sequence[Any], value: Any, how: str = "set") -> Any:
    """The value with the selected part replaced, or increased for "add"."""
    if len(transforms) == 1:
        return transforms[0].write(array, value, how)
    first, *rest = transforms
    return first.write(array, write_through(first.read(array), rest, value, how))
