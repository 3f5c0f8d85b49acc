"""The threefry2x32 generator (Salmon, Moraes, Dror, Shaw 2011) on arrays of uint32: the hash, and what keys need of it.

All functions take raw keys, uint32[..., 2], and work over any leading axes. Two ways to count are known: the
partitionable one hashes a 64-bit counter per element, so that each depends on its position alone; the older one
hashes pairs of 32-bit counters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core import config
from jaxlite.core.aval import Ints
from jaxlite.core.primitive import Primitive
from jaxlite.core.symbolic import exceeds
from jaxlite.core.values import aval_of
from jaxlite.traces.batching import bring_to_front
from jaxlite.traces.decompose import decomposes

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
_u32, _u64 = np.dtype(np.uint32), np.dtype(np.uint64)


threefry2x32_p = Primitive("threefry2x32", multiple_results=True)
threefry2x32_p.def_abstract_eval(lambda key0, key1, x0, x1: [x0, x1])
threefry2x32_p.no_jvp("it is a function of integers")
threefry2x32_p.no_transpose("it is a function of integers")


@threefry2x32_p.def_batching
def _batch(axis, args: Sequence[Any], dims: Sequence[int | None]):
    return threefry2x32_p.bind(*(bring_to_front(arg, dim, axis.size) for arg, dim in zip(args, dims, strict=True))), [0, 0]


def threefry2x32(key0, key1, x0, x1) -> tuple[Any, Any]:
    """Hash counters (x0, x1) with keys (key0, key1), element by element. All are uint32 of one shape."""
    if config.threefry_gpu_kernel_lowering.value:
        first, second = threefry2x32_p.bind(key0, key1, x0, x1)
        return first, second
    return _rounds(key0, key1, x0, x1)


@decomposes(threefry2x32_p)
def _rounds(key0, key1, x0, x1) -> tuple[Any, Any]:
    keys = (key0, key1, lax.bitwise_xor(lax.bitwise_xor(key0, key1), _PARITY))
    x0, x1 = lax.add(x0, key0), lax.add(x1, key1)
    for block in range(5):
        for distance in _ROTATIONS[block % 2]:
            x0 = lax.add(x0, x1)
            rotated = lax.bitwise_or(lax.shift_left(x1, np.uint32(distance)),
                                     lax.shift_right_logical(x1, np.uint32(32 - distance)))
            x1 = lax.bitwise_xor(rotated, x0)
        x0 = lax.add(x0, keys[(block + 1) % 3])
        x1 = lax.add(lax.add(x1, keys[(block + 2) % 3]), np.uint32(block + 1))
    return x0, x1


def _hash(key, x0, x1) -> tuple[Any, Any]:
    """Hash counters of one shape under each key of uint32[..., 2]; the results have the shape (..., *counters)."""
    batch, inner = aval_of(key).shape[:-1], aval_of(x1).shape
    shape = batch + inner
    leading, trailing = range(len(batch)), range(len(batch), len(shape))
    words = [lax.broadcast_in_dim(lax.index_in_dim(key, word, len(batch), False), shape, leading) for word in (0, 1)]
    x0, x1 = (lax.broadcast_in_dim(x, shape, trailing) for x in (x0, x1))
    return threefry2x32(words[0], words[1], x0, x1)


def positions(shape: Sequence[int]) -> tuple[Any, Any]:
    """The position of each element of a shape, as high and low 32 bits."""
    size = math.prod(shape)
    if not exceeds((size,), (1 << 32) - 1):
        low = lax.reshape(lax.iota(_u32, size), shape)
        return lax.full(shape, np.uint32(0)), low
    count = lax.reshape(lax.iota(_u64, size), shape)
    high = lax.shift_right_logical(count, np.uint64(32))
    return lax.convert_element_type(high, _u32), lax.convert_element_type(count, _u32)


def _pairs(first, second):
    """[..., n] and [..., n] as [..., n, 2]."""
    shape = aval_of(first).shape
    halves = [lax.broadcast_in_dim(x, (*shape, 1), range(len(shape))) for x in (first, second)]
    return lax.concatenate(halves, len(shape))


def _written(keys):
    """Keys behind a barrier, which keeps their hash from being computed again wherever one is used.

    The hash of positions, hashed again in the same kernel, would take LLVM minutes to compile.
    """
    return lax.optimization_barrier(keys)


def high_and_low(value) -> tuple[Any, Any]:
    """The high and low 32 bits of integers, which may have fewer."""
    dtype = aval_of(value).dtype
    low = lax.convert_element_type(value, _u32)
    if dtype.itemsize < 8:
        return lax.full(aval_of(value).shape, np.uint32(0)), low
    return lax.convert_element_type(lax.shift_right_logical(value, dtype.type(32)), _u32), low


def seed(value):
    """Raw keys from integers: their high and low 32 bits."""
    return _pairs(*high_and_low(value))


def fold_in(key, data):
    """New keys from keys uint32[..., 2] and numbers uint32[...]."""
    words = [lax.index_in_dim(key, word, -1, False) for word in (0, 1)]
    return _written(_pairs(*threefry2x32(words[0], words[1], lax.full(aval_of(data).shape, np.uint32(0)), data)))


def split(key, shape: Ints):
    """uint32[..., 2] -> uint32[..., *shape, 2]."""
    if config.threefry_partitionable.value:
        return _written(_pairs(*_hash(key, *positions(shape))))
    return lax.reshape(_hash_counts(key, 2 * math.prod(shape)), (*aval_of(key).shape[:-1], *shape, 2))


def random_bits(key, width: int, shape: Ints):
    """uint32[..., 2] -> unsigned integers of 8, 16, 32 or 64 bits, [..., *shape]."""
    dtype = np.dtype(f"uint{width}")
    if not config.threefry_partitionable.value:
        return _bits_by_pairs(key, dtype, shape)
    high, low = _hash(key, *positions(shape))
    if width == 64:
        return join(high, low)
    return lax.convert_element_type(lax.bitwise_xor(high, low), dtype)


def join(high, low):
    """uint64 from its high and low 32 bits."""
    high, low = (lax.convert_element_type(x, _u64) for x in (high, low))
    return lax.bitwise_or(lax.shift_left(high, np.uint64(32)), low)


def _hash_counts(key, count: int):
    """The older way: the counters 0 ... count - 1, the first half paired with the second."""
    half = -(-count // 2)
    second = lax.iota(_u32, half)
    if count % 2:  # the last counter is 0, not `count`
        second = lax.select(lax.eq(second, np.uint32(half - 1)), lax.full((half,), np.uint32(0)),
                            lax.add(second, np.uint32(half)))
    else:
        second = lax.add(second, np.uint32(half))
    first, second = _hash(key, lax.iota(_u32, half), second)
    axis = len(aval_of(first).shape) - 1
    return lax.slice_in_dim(lax.concatenate([first, second], axis), 0, count, axis=axis)


def _bits_by_pairs(key, dtype, shape: Ints):
    batch, size, width = aval_of(key).shape[:-1], math.prod(shape), 8 * dtype.itemsize
    axis = len(batch)
    words = _hash_counts(key, -(-size * width // 32))
    if width == 64:
        bits = join(lax.slice_in_dim(words, 0, size, axis=axis), lax.slice_in_dim(words, size, 2 * size, axis=axis))
    elif width == 32:
        bits = words
    else:
        parts = 32 // width
        spread = lax.broadcast_in_dim(words, (*aval_of(words).shape, parts), range(axis + 1))
        shifts = lax.mul(lax.broadcasted_iota(_u32, spread.shape, axis + 1), np.uint32(width))
        pieces = lax.convert_element_type(lax.shift_right_logical(spread, shifts), dtype)
        flat = lax.reshape(pieces, (*batch, math.prod(pieces.shape[axis:])))
        bits = lax.slice_in_dim(flat, 0, size, axis=axis)
    return lax.reshape(bits, batch + shape)
