"""Refs seen in another shape or dtype: `ref.reshape(...)` and `ref.bitcast(dtype)`, as transforms beside `NDIndexer`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxlite.core.tree_nodes import register_static
from jaxlite.core.values import aval_of
from jaxlite.lax.elementwise import add
from jaxlite.lax.shaping import bitcast_convert_type, reshape, transpose


@register_static
@dataclass(frozen=True)
class RefReshape:
    """The elements in another shape."""

    shape: tuple[int, ...]

    def get_indexer_shape(self) -> tuple[int, ...]:
        """The shape that is seen."""
        return self.shape

    def read(self, array: Any) -> Any:
        """The part of a value that is seen."""
        return reshape(array, self.shape)

    def write(self, array: Any, value: Any, how: str = "set") -> Any:
        """The whole value, with `value` in the part that is seen, or added to it."""
        value = reshape(value, aval_of(array).shape)
        return add(array, value) if how == "add" else value

    def text(self) -> str:
        """The text in `a[...]`."""
        return f"reshape({','.join(map(str, self.shape))})"


@register_static
@dataclass(frozen=True)
class RefBitcast:
    """The bits as elements of another dtype, in the shape that `bitcast_shape` gives."""

    dtype: Any
    shape: tuple[int, ...]

    def get_indexer_shape(self) -> tuple[int, ...]:
        """The shape that is seen."""
        return self.shape

    def read(self, array: Any) -> Any:
        """The part of a value that is seen."""
        return with_bits(array, self.dtype)

    def write(self, array: Any, value: Any, how: str = "set") -> Any:
        """The whole value, with `value` in the part that is seen, or added to it."""
        return with_bits(add(self.read(array), value) if how == "add" else value, aval_of(array).dtype)

    def text(self) -> str:
        """The text in `a[...]`."""
        return f"bitcast({self.dtype})"


def transformed_dtype(dtype: Any, transforms: Sequence[Any]) -> Any:
    """The dtype of what the transforms select, one after the other."""
    for each in transforms:
        if type(each) is RefBitcast:
            dtype = each.dtype
    return dtype


def reshaped(shape: tuple[int, ...], wanted: Sequence[Any]) -> RefReshape:
    """The view in a shape, given as a sequence or as its parts; one of them may be -1. Raises: ValueError for another size."""
    parts = wanted[0] if len(wanted) == 1 and isinstance(wanted[0], (tuple, list)) else wanted
    sizes, size = [int(each) for each in parts], math.prod(shape)
    if sizes.count(-1) == 1:
        rest = -math.prod(sizes)
        sizes[sizes.index(-1)] = size // rest if rest else 0
    if math.prod(sizes) != size or min(sizes, default=0) < 0:
        raise ValueError(f"cannot reshape a Ref of shape {shape} into shape {tuple(parts)}")
    return RefReshape(tuple(sizes))


def bitcast_shape(shape: tuple[int, ...], own: Any, target: Any) -> tuple[int, ...]:
    """The shape of an array whose bits are seen as another dtype: if its width differs, the axis before the last does too.

    Raises: ValueError for one that does not allow this.
    """
    before, after = own.itemsize, target.itemsize
    if before == after:
        return shape
    if len(shape) < 2 or shape[-2] * before % after:
        raise ValueError(f"bitcast from {own} to {target} changes the axis before the last, which {shape} does not allow")
    return (*shape[:-2], shape[-2] * before // after, shape[-1])


def with_bits(x: Any, dtype: Any) -> Any:
    """The bits of an array as another dtype.

    Elements of another width stand below each other: the rows of a wider one are its parts, the lowest bits first.
    """
    own, target, shape = x.dtype.itemsize, np.dtype(dtype).itemsize, aval_of(x).shape
    rank = len(shape)
    last = (*range(rank - 1), rank, rank - 1)
    if own == target:
        return bitcast_convert_type(x, dtype)
    if own < target:
        count = target // own
        parts = reshape(x, (*shape[:-2], shape[-2] // count, count, shape[-1]))
        return bitcast_convert_type(transpose(parts, last), dtype)
    count = own // target
    return reshape(transpose(bitcast_convert_type(x, dtype), last), (*shape[:-2], shape[-2] * count, shape[-1]))
