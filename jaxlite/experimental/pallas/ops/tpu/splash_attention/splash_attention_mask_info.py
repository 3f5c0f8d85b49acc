"""Masks of attention as tables of blocks, for kernels that skip the blocks of keys that no query sees."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxlite import numpy as jnp
from jaxlite.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import Mask, MultiHeadMask

_NONE, _PARTLY, _WHOLLY = range(3)


class MaskInfo(NamedTuple):
    """A mask as tables int[heads or parts of heads, blocks of queries, blocks of keys].

    `block_mask` says of a block whether none (0), some (1) or all (2) of its pairs are seen; `data_next` which block of keys,
    or of queries for the gradients of keys and values, is needed there or next; `mask_next` which of `partial_mask_blocks`,
    bool[count, block_q, block_kv], or None. A mask that is a rule on positions has the positions of queries,
    `q_sequence`, instead of these. `is_dynamic_mask` is True if the mask is traced: the blocks are then all there, with three
    axes in front.
    """

    data_next: Any
    mask_next: Any
    block_mask: Any
    partial_mask_blocks: Any
    q_sequence: Any
    is_dynamic_mask: Any = None


def _checked_counts(shape: Sequence[int], block_shape: tuple[int, int], head_shards: int, q_seq_shards: int) -> tuple[int, int]:
    """How many blocks of queries and keys there are. Raises: ValueError where something does not divide."""
    heads, queries, keys = shape
    for part, size, whole, total in (("head_shards", head_shards, "head_count", heads),
                                     ("q_seq_shards", q_seq_shards, "q_seq_len", queries),
                                     ("q_block_size", block_shape[0], "q_seq_len", queries),
                                     ("kv_block_size", block_shape[1], "kv_seq_len", keys)):
        if total % size:
            raise ValueError(f"{part}={size} should divide {whole}={total}.")
    return queries // block_shape[0], keys // block_shape[1]


def _blocks(mask: Mask, block_shape: tuple[int, int], known: dict[bytes, int]) -> tuple[np.ndarray, np.ndarray]:
    """For each block of a mask of one head what it is, and if it is seen in part its number in `known`, which grows."""
    height, width = block_shape
    queries, keys = mask.shape
    kinds = np.zeros((queries // height, keys // width), np.int32)
    numbers = np.zeros_like(kinds)
    for row in range(len(kinds)):
        band = np.asarray(mask[row * height:(row + 1) * height, :]).reshape(height, -1, width)
        kinds[row] = np.where(band.all((0, 2)), _WHOLLY, band.any((0, 2)))
        for column in np.flatnonzero(kinds[row] == _PARTLY):
            numbers[row, column] = known.setdefault(np.ascontiguousarray(band[:, column]).tobytes(), len(known))
    return kinds, numbers


def _here_or_next(values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The values where they are wanted; elsewhere the one that is wanted next, after the end the first again."""
    flat = np.flatnonzero(wanted)
    if not flat.size:
        return np.zeros_like(values)
    following = np.searchsorted(flat, np.arange(wanted.size)) % flat.size
    return values.ravel()[flat[following]].reshape(values.shape)


def _shrunk(table: np.ndarray, seen: np.ndarray, sizes: Sequence[int], is_dkv: bool, mode: Any) -> np.ndarray:
    """A table without the blocks that nobody sees, in parts of queries of which each keeps so many: the others move to the
    front of a row, or for the gradients of keys and values to the end of a column. Smaller parts are padded."""
    axis = 1 if is_dkv else 2
    parts = []
    for part, own, size in zip(*(np.split(each, len(sizes), 1) for each in (table, seen)), sizes, strict=True):
        order = np.argsort(own if is_dkv else ~own, axis, kind="stable")
        order = order[:, order.shape[1] - size:] if is_dkv else order[:, :, :size]
        kept = np.where(np.take_along_axis(own, order, axis), np.take_along_axis(part, order, axis), 0)
        missing = max(sizes) - size
        parts.append(np.pad(kept, [(0, 0), (0, missing), (0, 0)] if is_dkv else [(0, 0), (0, 0), (0, missing)], mode))
    return np.concatenate(parts, 1)


def _small(table: np.ndarray) -> np.ndarray:
    """In the smallest type of integers that holds it."""
    return table.astype(_small_type(table.max(initial=0)))


def _small_type(largest: int) -> type:
    return next((kind for kind in (np.int8, np.int16) if largest <= np.iinfo(kind).max), np.int32)


@functools.lru_cache(maxsize=12)
def _process_mask(mask: MultiHeadMask, block_shape: tuple[int, int], is_dkv: bool, *, downcast_smem_data: bool = True,
                  head_shards: int = 1, q_seq_shards: int = 1, shrink_grid: bool = True) -> tuple[MaskInfo, Callable | None]:
    if len(mask.shape) != 3:
        raise ValueError(f"Expected a 3-dim mask, instead got: mask.shape={mask.shape}")
    _, columns = _checked_counts(mask.shape, block_shape, head_shards, q_seq_shards)
    known: dict[bytes, int] = {}
    each = {own: _blocks(own, block_shape, known) for own in dict.fromkeys(mask.masks)}
    count = len(mask.masks) // head_shards
    shards = [mask.masks[start:start + count] for start in range(0, len(mask.masks), count)]
    if all(len(set(shard)) == 1 for shard in shards):
        shards, count = [shard[:1] for shard in shards], 1
    kinds, numbers = (np.stack([each[own][which] for shard in shards for own in shard]) for which in range(2))

    if not kinds.any():
        raise ValueError("no query sees any key under this mask")
    data_next, mask_next = np.empty_like(kinds), np.empty_like(kinds)
    height = kinds.shape[1] // q_seq_shards
    order = (2, 0, 1) if is_dkv else (0, 1, 2)  # in which the blocks are visited
    places = np.broadcast_to(np.arange(height)[:, None] if is_dkv else np.arange(columns), (count, height, columns))
    for shard in range(head_shards):
        for part in range(q_seq_shards):
            at = slice(shard * count, (shard + 1) * count), slice(part * height, (part + 1) * height)
            block = kinds[at]
            for table, values, wanted in ((data_next, places, block != _NONE), (mask_next, numbers[at], block == _PARTLY)):
                found = _here_or_next(values.transpose(order), wanted.transpose(order))
                table[at] = found.transpose(np.argsort(order))
    tables = [data_next, mask_next, kinds]
    if shrink_grid and len(each) == 1:
        seen = kinds != _NONE
        sizes = [int(part.sum(1 if is_dkv else 2).max()) for part in np.split(seen, q_seq_shards, 1)]
        tables = [_shrunk(table, seen, sizes, is_dkv, mode)
                  for table, mode in zip(tables, ("edge", "edge", "constant"), strict=True)]
    data_next, mask_next, kinds = map(_small, tables) if downcast_smem_data else tables

    rule: Any = mask.masks[0]
    if len(each) == 1 and hasattr(rule, "mask_function"):
        return MaskInfo(data_next, None, kinds, None, rule.q_sequence), rule.mask_function
    if not known:
        return MaskInfo(data_next, None, kinds, None, None), None
    blocks = np.stack([np.frombuffer(text, bool).reshape(block_shape) for text in known])
    return MaskInfo(data_next, mask_next, kinds, blocks.swapaxes(1, 2) if is_dkv else blocks, None), None


def _process_dynamic_mask(mask: Any, block_shape: tuple[int, int], is_dkv: bool, *, downcast_smem_data: bool = True,
                          head_shards: int = 1, q_seq_shards: int = 1, shrink_grid: bool = True) -> tuple[MaskInfo, None]:
    if mask.ndim != 3:
        raise ValueError(f"Expected a 3-dim mask, instead got: {mask.shape}.")
    if mask.dtype != np.bool_:
        raise ValueError(f"Expected a bool mask, instead got: {mask.dtype}.")
    rows, columns = _checked_counts(mask.shape, block_shape, head_shards, q_seq_shards)
    heads = mask.shape[0]
    blocks = mask.reshape(heads, rows, block_shape[0], columns, block_shape[1]).swapaxes(2, 3)
    kinds = jnp.where(blocks.all((3, 4)), _WHOLLY, jnp.where(blocks.any((3, 4)), _PARTLY, _NONE))
    height, count = rows // q_seq_shards, heads // head_shards
    places = np.broadcast_to(np.arange(height)[:, None] if is_dkv else np.arange(columns), (count, height, columns))
    numbers = np.arange(count * height * columns).reshape(count, height, columns)

    def table(values: np.ndarray, wanted: Any) -> Any:
        """The values of a part, where they are wanted."""
        whole = np.tile(values, (head_shards, q_seq_shards, 1))
        return jnp.where(wanted, whole, 0).astype(_small_type(whole.max()) if downcast_smem_data else np.int32)

    kinds_in = kinds.astype(np.int8 if downcast_smem_data else np.int32)
    return MaskInfo(table(places, kinds != _NONE), table(numbers, kinds == _PARTLY), kinds_in,
                    blocks.swapaxes(3, 4) if is_dkv else blocks, None, True), None


def process_mask(mask: MultiHeadMask, block_shape: tuple[int, int], *, downcast_smem_data: bool = True, head_shards: int = 1,
                 q_seq_shards: int = 1, shrink_grid: bool = True) -> tuple[MaskInfo, Callable | None]:
    """The tables of a mask for the forward pass and the gradients of queries.

    Args:
      block_shape: the sizes of blocks of queries and keys.
      downcast_smem_data: make the tables of integers of 8 or 16 bits where these hold them.
      head_shards, q_seq_shards: into how many parts `shard_map` cuts heads and queries.
      shrink_grid: leave out blocks that no query sees, where all heads have one mask.
    Returns: the tables, and for a mask that is a rule the function of positions of queries and keys, otherwise None.
    Raises: ValueError if sizes do not divide the mask's.

    >>> from jaxlite.experimental.pallas.ops.tpu.splash_attention import CausalMask
    >>> info, rule = process_mask(MultiHeadMask([CausalMask((4, 4))]), (2, 2))
    >>> info.block_mask
    array([[[1, 0],
            [2, 1]]], dtype=int8)
    """
    return _process_mask(mask, block_shape, False, downcast_smem_data=downcast_smem_data, head_shards=head_shards,
                         q_seq_shards=q_seq_shards, shrink_grid=shrink_grid)


def process_mask_dkv(mask: MultiHeadMask, block_shape: tuple[int, int], **options: Any) -> tuple[MaskInfo, Callable | None]:
    """The tables for the gradients of keys and values, whose blocks are visited key by key; otherwise `process_mask`."""
    return _process_mask(mask, block_shape, True, **options)


def process_dynamic_mask(mask: Any, block_shape: tuple[int, int], **options: Any) -> tuple[MaskInfo, None]:
    """`process_mask` of a mask that is an array, bool[heads, q_len, kv_len], and may be traced: all its blocks are kept."""
    return _process_dynamic_mask(mask, block_shape, False, **options)


def process_dynamic_mask_dkv(mask: Any, block_shape: tuple[int, int], **options: Any) -> tuple[MaskInfo, None]:
    """`process_mask_dkv` of a mask that is an array."""
    return _process_dynamic_mask(mask, block_shape, True, **options)
