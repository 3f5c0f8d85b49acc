"""Masks of attention, as descriptions of which keys each query sees; `mask[rows, columns]` is a NumPy array."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class Mask:
    """Which keys (second axis) each query (first axis) sees; `a & b` and `a | b` combine two."""

    @property
    def shape(self) -> tuple[int, ...]:
        raise NotImplementedError(f"{type(self).__name__} has to define `shape`")

    def __getitem__(self, index: Any) -> np.ndarray:
        raise NotImplementedError(f"{type(self).__name__} has to define `__getitem__`")

    def __bool__(self) -> bool:
        raise NotImplementedError("a mask has no truth value; use `mask[:, :].any()`")

    def __or__(self, other: Mask) -> Mask:
        return LogicalOr(self, other)

    def __and__(self, other: Mask) -> Mask:
        return LogicalAnd(self, other)


def _fill_slice(inp_slice: slice, size: int) -> slice:  # MaxText's masks call it
    """A slice with both ends."""
    return slice(inp_slice.start or 0, size if inp_slice.stop is None else inp_slice.stop, inp_slice.step)


@dataclasses.dataclass(frozen=True)
class _Combined(Mask):
    left: Mask
    right: Mask

    def __post_init__(self) -> None:
        if self.left.shape != self.right.shape:
            raise ValueError(f"masks have to be of one shape, not {self.left.shape} and {self.right.shape}")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.left.shape


class LogicalOr(_Combined):
    """What one of two masks lets a query see."""

    def __getitem__(self, index: Any) -> np.ndarray:
        return self.left[index] | self.right[index]


class LogicalAnd(_Combined):
    """What both of two masks let a query see."""

    def __getitem__(self, index: Any) -> np.ndarray:
        return self.left[index] & self.right[index]


class _ComputableMask(Mask):
    """A mask by a rule, `mask_function`, on the positions of queries and keys, int[q_len, 1] and int[1, kv_len].

    `q_sequence` are the positions of the queries, which a subclass may change.
    """

    def __init__(self, shape: tuple[int, int], mask_function: Callable[[Any, Any], Any], shard_count: int = 1):
        if shape[0] % (shard_count * shard_count) and shard_count > 1:
            raise ValueError(f"the number of queries, {shape[0]}, has to be a multiple of {shard_count * shard_count}, the "
                             "square of shard_count")
        self._shape, self.mask_function = tuple(shape), mask_function
        self.q_sequence = np.arange(shape[0], dtype=np.int32)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def __getitem__(self, index: Any) -> np.ndarray:
        rows, columns = index
        return self.mask_function(self.q_sequence[rows][..., None], np.arange(self._shape[1], dtype=np.int32)[columns][None])

    def _key(self) -> Any:
        return type(self), self._shape, self.q_sequence.tobytes()

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _ComputableMask) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


class CausalMask(_ComputableMask):
    """Queries see keys up to their own position plus an offset."""

    def __init__(self, shape: tuple[int, int], offset: int = 0, shard_count: int = 1):
        super().__init__(shape, self._sees, shard_count)
        self.offset = offset

    def _sees(self, queries: Any, keys: Any) -> Any:
        return queries + self.offset >= keys

    def _key(self) -> Any:
        return *super()._key(), self.offset


class LocalMask(_ComputableMask):
    """Queries see keys at most so many positions before and after; None is no limit."""

    def __init__(self, shape: tuple[int, int], window_size: tuple[int | None, int | None], offset: int, shard_count: int = 1):
        super().__init__(shape, self._sees, shard_count)
        self.window_size, self.offset = tuple(window_size), offset

    def _sees(self, queries: Any, keys: Any) -> Any:
        before, after = self.window_size
        distance = queries + self.offset - keys
        if before is None:
            return distance >= (np.iinfo(np.int32).min if after is None else -after)
        return distance <= before if after is None else (distance <= before) & (distance >= -after)

    def _key(self) -> Any:
        return *super()._key(), self.window_size, self.offset


class ChunkedCausalMask(_ComputableMask):
    """Queries see keys up to their own position, in their own chunk of so many positions."""

    def __init__(self, shape: tuple[int, int], chunk_size: int, shard_count: int = 1):
        if chunk_size <= 0:
            raise ValueError("chunk_size must be positive")
        super().__init__(shape, self._sees, shard_count)
        self.chunk_size = chunk_size

    def _sees(self, queries: Any, keys: Any) -> Any:
        return (queries // self.chunk_size == keys // self.chunk_size) & (queries >= keys)

    def _key(self) -> Any:
        return *super()._key(), self.chunk_size


@dataclasses.dataclass(frozen=True)
class FullMask(Mask):
    """Every query sees every key."""

    _shape: tuple[int, int]

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def __getitem__(self, index: Any) -> np.ndarray:
        return np.broadcast_to(np.True_, self._shape)[index]


@dataclasses.dataclass(frozen=True, eq=False)
class NumpyMask(Mask):
    """A mask that is an array: bool, two axes."""

    array: np.ndarray

    def __post_init__(self) -> None:
        if self.array.ndim != 2 or self.array.dtype != np.bool_:
            raise ValueError(f"a mask is a bool array of two axes, not {self.array.dtype} of shape {self.array.shape}")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def __getitem__(self, index: Any) -> np.ndarray:
        return self.array[index]

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, NumpyMask) and np.array_equal(self.array, other.array)

    def __hash__(self) -> int:
        return hash((NumpyMask, self.array.shape, self.array.tobytes()))


@dataclasses.dataclass(frozen=True)
class MultiHeadMask(Mask):
    """One mask for each head, all of one shape."""

    masks: Sequence[Mask]

    def __post_init__(self) -> None:
        object.__setattr__(self, "masks", tuple(self.masks))
        shapes = sorted({mask.shape for mask in self.masks})
        if len(shapes) != 1:
            raise ValueError(f"the masks of all heads must have one shape, not {shapes}" if shapes else "there is no head")

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.masks), *self.masks[0].shape)

    def __getitem__(self, index: Any) -> np.ndarray:
        heads, *rest = index
        if isinstance(heads, int):
            return self.masks[heads][tuple(rest)]
        return np.stack([mask[tuple(rest)] for mask in self.masks[heads]])


def make_causal_mask(shape: tuple[int, int], offset: int = 0) -> np.ndarray:
    """Which keys each query sees: bool of that shape, up to its own position plus the offset.

    >>> make_causal_mask((2, 3)).astype(int)
    array([[1, 0, 0],
           [1, 1, 0]])
    """
    return CausalMask(shape, offset)[:, :]


def make_local_attention_mask(shape: tuple[int, int], window_size: tuple[int | None, int | None], *, offset: int = 0,
                              ) -> np.ndarray:
    """The same for keys at most `window_size` positions before and after."""
    return LocalMask(shape, window_size, offset)[:, :]


def make_chunk_attention_mask(shape: tuple[int, int], chunk_size: int) -> np.ndarray:
    """The same for keys in the query's own chunk of so many positions, up to its own position."""
    return ChunkedCausalMask(shape, chunk_size)[:, :]


def make_random_mask(shape: tuple[int, int], sparsity: float, seed: int) -> np.ndarray:
    """A mask of that part of False, at random."""
    return np.random.RandomState(seed).binomial(1, 1.0 - sparsity, shape).astype(np.bool_)
