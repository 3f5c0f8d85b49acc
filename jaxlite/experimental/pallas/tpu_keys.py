"""Keys of a TPU's own generator of random bits, and random numbers of a block that do not depend on the size of blocks.

In a kernel that is compiled for a TPU, the bits of such keys come from the core's generator, which the words of the key seed.
Elsewhere, in interpret mode too, they are those of Threefry.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.core.filtering import boundary
from jaxlite.experimental.pallas.primitives import program_id
from jaxlite.lax import elementwise as ew
from jaxlite.lax.shaping import concatenate, convert, expand_dims
from jaxlite.lax.slicing import index_in_dim
from jaxlite.random import keys as random_keys
from jaxlite.random import threefry
from jaxlite.random.prng import IMPLEMENTATIONS, Implementation, random_wrap_p
from jaxlite.random.uniforms import bits
from jaxlite.transforms.vmap import vmap

_u32 = np.dtype(np.uint32)


def _joined(*words: Any) -> Any:
    return concatenate([expand_dims(word, (word.ndim,)) for word in words], words[0].ndim)


def _seed(numbers: Any) -> Any:
    word = convert(numbers, _u32, False)
    return _joined(word, word)


def _split(keys: Any, shape: Sequence[int]) -> Any:
    raise NotImplementedError("keys of a TPU's generator cannot be split: use jax.random.fold_in")


def _fold_in(keys: Any, numbers: Any) -> Any:
    """A round of Threefry; the lowering for TPUs has the same one."""
    first, second = (index_in_dim(keys, place, keys.ndim - 1, False) for place in (0, 1))
    second = ew.add(second, convert(numbers, _u32, False))
    first = ew.add(first, second)
    rotated = ew.bitwise_or(ew.shift_left(second, np.uint32(13)), ew.shift_right_logical(second, np.uint32(19)))
    return _joined(first, ew.bitwise_xor(first, rotated))


_IMPLEMENTATION = IMPLEMENTATIONS["pallas_tpu"] = Implementation(
    "pallas_tpu", "pl", 2, _seed, _split, _fold_in, threefry.random_bits)


@boundary
def to_pallas_key(key: Any) -> Any:
    """The key of a TPU's generator from another one, or an array of them.

    Args: `key` of `jax.random.key`, or the words of `jax.random.PRNGKey`. A kernel gets the result in SMEM.
    Returns: keys of the generator "pallas_tpu"; `jax.random.uniform(key_ref[...], shape)` in a kernel draws from it.

    >>> import jaxlite
    >>> from jaxlite.experimental.pallas import tpu as pltpu
    >>> pltpu.to_pallas_key(jaxlite.random.key(0)).dtype
    key<pl>
    """
    if not hasattr(key.dtype, "impl"):
        key = random_keys.wrap_key_data(key)
    draw: Callable[[Any], Any] = lambda each: bits(each, (2,))
    for _ in range(key.ndim):
        draw = vmap(draw)
    return random_wrap_p.bind(draw(key), impl=_IMPLEMENTATION)


@boundary
def sample_block(sampler_fn: Callable[..., Any], global_key: Any, block_size: Sequence[int], tile_size: Sequence[int],
                 total_size: Sequence[int], block_index: Sequence[Any] | None = None, **kwargs: Any) -> Any:
    """Random numbers for a block of an array, the same whatever the size of blocks: each tile has a key of its own.

    Args:
      sampler_fn: of `jax.random`, takes a key, `shape=tile_size` and the keywords.
      global_key: the key of the whole array.
      block_size, tile_size, total_size: shapes of the block, of a tile and of the whole array; tiles divide both.
      block_index: the place of the block, counted in blocks; by default the indices of the grid's step.
    Raises: ValueError for shapes that do not fit.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> from jaxlite.experimental.pallas import tpu as pltpu
    >>> key = jaxlite.random.key(0)
    >>> whole, block = (pltpu.sample_block(jaxlite.random.uniform, key, size, (2, 2), (4, 8), place)
    ...                 for size, place in (((4, 8), (0, 0)), ((2, 4), (1, 1))))
    >>> bool(jnp.array_equal(whole[2:, 4:], block))
    True
    """
    block, tile, total = tuple(block_size), tuple(tile_size), tuple(total_size)
    if not len(block) == len(tile) == len(total):
        raise ValueError(f"sample_block: block_size, tile_size and total_size have one length, got {block}, {tile} and {total}")
    if any(own % part or whole % part for own, part, whole in zip(block, tile, total, strict=True)):
        raise ValueError(f"sample_block: tiles of {tile} do not divide blocks of {block} and the whole, {total}")
    place = [program_id(axis) for axis in range(len(block))] if block_index is None else list(block_index)
    if len(place) != len(block):
        raise ValueError(f"sample_block: block_index has {len(place)} places for blocks of {block}")
    counts = [own // part for own, part in zip(block, tile, strict=True)]
    whole = [size // part for size, part in zip(total, tile, strict=True)]

    def draw(local: Sequence[int]) -> Any:
        number: Any = 0
        for index, count, size, here in zip(place, counts, whole, local, strict=True):
            number = number * size + index * count + here
        return sampler_fn(random_keys.fold_in(global_key, number), shape=tile, **kwargs)

    drawn = [draw(local) for local in itertools.product(*map(range, counts))]
    for axis in reversed(range(len(counts))):  # neighbours along the last axis come first
        groups = math.prod(counts[:axis])
        drawn = [concatenate(drawn[each * counts[axis]:(each + 1) * counts[axis]], axis) for each in range(groups)]
    return drawn[0]
