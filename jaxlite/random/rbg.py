"""The `rbg` and `unsafe_rbg` generators: bits from XLA's own generator, fast on accelerators.

Raw keys are uint32[4]. `rbg` splits and folds by threefry, each half of a key for itself; `unsafe_rbg` does that
through XLA's generator too. Over a batch of keys both draw all bits from the first key of the batch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core.aval import Ints
from jaxlite.core.values import aval_of
from jaxlite.random import threefry

_u32 = np.dtype(np.uint32)


def seed(value):
    """The threefry key, twice."""
    half = threefry.seed(value)
    return lax.concatenate([half, half], len(aval_of(half).shape) - 1)


def _halves(key):
    return lax.reshape(key, (*aval_of(key).shape[:-1], 2, 2))


def split(key, shape: Ints):
    """uint32[..., 4] -> uint32[..., *shape, 4]: each half split by threefry."""
    batch = aval_of(key).shape[:-1]
    split = threefry.split(_halves(key), shape)  # (..., 2, *shape, 2)
    first = len(batch)
    order = (*range(first), *range(first + 1, first + 1 + len(shape)), first, first + 1 + len(shape))
    return lax.reshape(lax.transpose(split, order), (*batch, *shape, 4))


def fold_in(key, data):
    """Each half by threefry."""
    shape = aval_of(data).shape
    folded = threefry.fold_in(_halves(key), lax.broadcast_in_dim(data, (*shape, 2), range(len(shape))))
    return lax.reshape(folded, (*shape, 4))


def _first(key) -> tuple[Any, Ints]:
    batch = aval_of(key).shape[:-1]
    if batch:
        key = lax.index_in_dim(lax.reshape(key, (math.prod(batch), 4)), 0, 0, False)
    return key, batch


def random_bits(key, width: int, shape: Ints):
    """uint32[..., 4] -> unsigned integers of 8, 16, 32 or 64 bits, [..., *shape]."""
    key, batch = _first(key)
    return lax.rng_bit_generator(key, batch + shape, np.dtype(f"uint{width}"))[1]


def unsafe_split(key, shape: Ints):
    """Every tenth word of four from XLA's generator."""
    key, batch = _first(key)
    count = math.prod(batch) * math.prod(shape)
    words = lax.rng_bit_generator(key, (10 * count, 4), _u32)[1]
    return lax.reshape(lax.slice_in_dim(words, 0, None, 10), (*batch, *shape, 4))


def unsafe_fold_in(key, data):
    """The key xor bits that the number, as a key, gives; the numbers broadcast against the keys."""
    other, batch = _first(seed(data))
    words = lax.index_in_dim(lax.rng_bit_generator(other, (*batch, 10, 4), _u32)[1], 9, len(batch), False)
    shape = aval_of(key).shape
    return lax.bitwise_xor(key, lax.broadcast_in_dim(words, shape, range(len(shape) - len(batch) - 1, len(shape))))
