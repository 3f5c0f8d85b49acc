"""The generators `philox2x32`, `philox4x32` and `threefry4x32` (Salmon, Moraes, Dror, Shaw 2011).

Each is a hash of a counter of several words of uint32 under a key; a key and a counter of 64 bits give the bits of one
element, so that each element depends on its position alone. New keys are words of such hashes too: the counters of
bits, of new keys and of numbers that are folded in stand in different words of the counter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core.aval import Ints
from jaxlite.core.values import aval_of
from jaxlite.random.threefry import high_and_low, join, positions

Words = Sequence[Any]  # arrays of uint32, all of one shape

_WEYL = (0x9E3779B9, 0xBB67AE85)
_PARITY = np.uint32(0x1BD11BDA)
_ROTATIONS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))


def _xor(first: Any, *rest: Any) -> Any:
    for each in rest:
        first = lax.bitwise_xor(first, each)
    return first


def philox2x32(key: Words, counter: Words) -> Words:
    """The hash of counters of two words under keys of one word."""
    (k,), (x, y), factor = key, counter, np.uint32(0xD256D193)
    for turn in range(10):
        if turn:
            k = lax.add(k, np.uint32(_WEYL[0]))
        x, y = _xor(lax.mulhi(x, lax.full_like(x, factor)), y, k), lax.mul(x, factor)
    return [x, y]


def philox4x32(key: Words, counter: Words) -> Words:
    """The hash of counters of four words under keys of two words."""
    (k, l), (x, y, z, w) = key, counter
    first, second = np.uint32(0xD2511F53), np.uint32(0xCD9E8D57)
    for turn in range(10):
        if turn:
            k, l = lax.add(k, np.uint32(_WEYL[0])), lax.add(l, np.uint32(_WEYL[1]))
        x, y, z, w = (_xor(lax.mulhi(z, lax.full_like(z, second)), y, k), lax.mul(z, second),
                      _xor(lax.mulhi(x, lax.full_like(x, first)), w, l), lax.mul(x, first))
    return [x, y, z, w]


def threefry4x32(key: Words, counter: Words) -> Words:
    """The hash of counters of four words under keys of four words."""
    keys = [*key, _xor(*key, _PARITY)]
    words = [lax.add(x, k) for x, k in zip(counter, key, strict=True)]
    for turn in range(20):
        for i, distance in zip((0, 2), _ROTATIONS[turn % 8], strict=True):
            j = i + 1 if turn % 2 == 0 else 3 - i  # its partner
            words[i] = lax.add(words[i], words[j])
            rotated = lax.bitwise_or(lax.shift_left(words[j], np.uint32(distance)),
                                     lax.shift_right_logical(words[j], np.uint32(32 - distance)))
            words[j] = lax.bitwise_xor(rotated, words[i])
        if turn % 4 == 3:
            block = turn // 4 + 1
            words = [lax.add(x, keys[(block + i) % 5]) for i, x in enumerate(words)]
            words[3] = lax.add(words[3], np.uint32(block))
    return words


class Generator:
    """What keys need of a hash: functions on raw keys, uint32[..., words], over any leading axes."""

    def __init__(self, hash_: Callable[[Words, Words], Words], words: int, counters: int):
        self._hash, self._words, self._counters = hash_, words, counters

    def _zeros(self, count: int, shape: Ints) -> list[Any]:
        return [lax.full(shape, np.uint32(0)) for _ in range(count)]

    def _key_of(self, hashed: Words) -> Any:
        shape = aval_of(hashed[0]).shape
        columns = [lax.broadcast_in_dim(x, (*shape, 1), range(len(shape))) for x in hashed[: self._words]]
        return columns[0] if len(columns) == 1 else lax.concatenate(columns, len(shape))

    def _under_each(self, key: Any, counter: Words) -> Words:
        """Hash counters of one shape under each key; the results have the shape (..., *counters)."""
        batch, inner = aval_of(key).shape[:-1], aval_of(counter[0]).shape
        shape = batch + inner
        keys = [lax.broadcast_in_dim(lax.index_in_dim(key, word, len(batch), False), shape, range(len(batch)))
                for word in range(self._words)]
        return self._hash(keys, [lax.broadcast_in_dim(x, shape, range(len(batch), len(shape))) for x in counter])

    def seed(self, value: Any) -> Any:
        """Raw keys from integers."""
        shape, halves = aval_of(value).shape, high_and_low(value)
        if self._words == self._counters:  # what is wide enough takes the integer as its key
            key, counter = [*halves, *self._zeros(self._words - 2, shape)], self._zeros(self._counters, shape)
        else:
            key, counter = self._zeros(self._words, shape), [*halves, *self._zeros(self._counters - 2, shape)]
        return self._key_of(self._hash(key, counter))

    def fold_in(self, key: Any, data: Any) -> Any:
        """New keys from keys uint32[..., words] and numbers uint32[...]."""
        words = [lax.index_in_dim(key, word, -1, False) for word in range(self._words)]
        return self._key_of(self._hash(words, [*self._zeros(self._counters - 1, aval_of(data).shape), data]))

    def split(self, key: Any, shape: Ints) -> Any:
        """uint32[..., words] -> uint32[..., *shape, words]."""
        counter = [*self._zeros(self._counters - 2, shape), *positions(shape)]
        # The barrier keeps the hash from being computed again wherever one of the keys is used.
        return lax.optimization_barrier(self._key_of(self._under_each(key, counter)))

    def random_bits(self, key: Any, width: int, shape: Ints) -> Any:
        """uint32[..., words] -> unsigned integers of 8, 16, 32 or 64 bits, [..., *shape]."""
        hashed = self._under_each(key, [*positions(shape), *self._zeros(self._counters - 2, shape)])
        if width < 64:
            return lax.convert_element_type(_xor(*hashed), np.dtype(f"uint{width}"))
        if self._words == 4:
            return join(_xor(*hashed[0::2]), _xor(*hashed[1::2]))
        return join(hashed[0], hashed[1])
