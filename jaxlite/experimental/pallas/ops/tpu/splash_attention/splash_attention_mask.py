"""Masks of attention, as descriptions of which keys each query sees; `mask[rows, columns]` is a NumPy array."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
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
        return _Combined(np.logical_or, self, other)

    def __and__(self, other: Mask) -> Mask:
        return _Combined(np.logical_and, self, other)


@dataclasses.dataclass(frozen=True)
class _Combined(Mask):
    how: np.ufunc
    left: Mask
    right: Mask

    def __post_init__(self) -> None:
        if self.left.shape != self.right.shape:
            raise ValueError(f"masks have to be of one shape, not {self.left.shape} and {self.right.shape}")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.left.shape

    def __getitem__(self, index: Any) -> np.ndarray:
        return self.how(self.left[index], self.right[index])


class _Rule(Mask):
    """A mask by a rule on the positions of queries and keys."""

    def __init__(self, shape: tuple[int, int], offset: int, shard_count: int, what: Any):
        if shape[0] % (shard_count * shard_count) and shard_count > 1:
            raise ValueError(f"the number of queries, {shape[0]}, has to be a multiple of {shard_count * shard_count}, the "
                             "square of shard_count")
        self._shape, self._key = tuple(shape), (type(self), tuple(shape), offset, what)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def sees(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        raise NotImplementedError(f"{type(self).__name__} has to define `sees`")

    def __getitem__(self, index: Any) -> np.ndarray:
        rows, columns = index
        return self.sees(np.arange(self._shape[0])[rows][..., None], np.arange(self._shape[1])[columns])

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Rule) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


class CausalMask(_Rule):
    """Queries see keys up to their own position plus an offset."""

    def __init__(self, shape: tuple[int, int], offset: int = 0, shard_count: int = 1):
        super().__init__(shape, offset, shard_count, None)
        self.offset = offset

    def sees(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        return queries + self.offset >= keys


class LocalMask(_Rule):
    """Queries see keys at most so many positions before and after; None is no limit."""

    def __init__(self, shape: tuple[int, int], window_size: tuple[int | None, int | None], offset: int, shard_count: int = 1):
        super().__init__(shape, offset, shard_count, tuple(window_size))
        self.window_size, self.offset = window_size, offset

    def sees(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        before, after = self.window_size
        seen = np.ones(np.broadcast_shapes(queries.shape, keys.shape), bool)
        if before is not None:
            seen &= queries + self.offset - before <= keys
        if after is not None:
            seen &= queries + self.offset + after >= keys
        return seen


class FullMask(_Rule):
    """Every query sees every key."""

    def __init__(self, _shape: tuple[int, int]):
        super().__init__(_shape, 0, 1, None)

    def sees(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        return np.ones(np.broadcast_shapes(queries.shape, keys.shape), bool)


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


@dataclasses.dataclass(frozen=True)
class MultiHeadMask(Mask):
    """One mask for each head, all of one shape."""

    masks: Sequence[Mask]

    def __post_init__(self) -> None:
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


def make_random_mask(shape: tuple[int, int], sparsity: float, seed: int) -> np.ndarray:
    """A mask of that part of False, at random."""
    return np.random.RandomState(seed).binomial(1, 1.0 - sparsity, shape).astype(np.bool_)
