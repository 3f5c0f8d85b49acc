"""Scaled dot-product attention."""

from __future__ import annotations

import numpy as np

from jaxlite import numpy as jnp
from jaxlite.core.filtering import boundary
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.nn.normalization import logsumexp, softmax
from jaxlite.numpy.api import as_array, check_arrays


@boundary
def dot_product_attention(query, key, value, bias=None, mask=None, *, scale: float | None = None,
                          is_causal: bool = False, query_seq_lengths=None, key_value_seq_lengths=None,
                          local_window_size: int | tuple[int, int] | None = None, implementation: str | None = None,
                          return_residual: bool = False):
    """softmax(query · key * scale + bias) · value, for each head (Vaswani et al. 2017).

    Args:
      query: (batch, T, N, H), or without the batch axis; key, value: (batch, S, K, H), where K divides N: groups of N/K
        query heads share a key head.
      bias: added to the logits; mask: where False, positions are left out; both broadcast to (batch, N, T, S).
      scale: default 1 / sqrt(H).
      is_causal: each position sees itself and those before.
      query_seq_lengths, key_value_seq_lengths: (batch,) how many positions count.
      local_window_size: how far positions see to the left and to the right.
      implementation: None or 'xla'; 'cudnn' for the kernels of NVIDIA's library, which take float16 and bfloat16.
      return_residual: also give the logsumexp of the logits, (batch, T, N).
    Returns: an array of the shape of `query`.
    """
    if implementation not in (None, "xla", "cudnn"):
        raise ValueError(f"Unsupported implementation option: {implementation}; there are 'xla' and 'cudnn'")
    check_arrays("dot_product_attention", query, key, value)
    query, key, value = (as_array(each) for each in (query, key, value))
    single = query.ndim == 3
    if single:
        query, key, value = (shaping.expand_dims(each, (0,)) for each in (query, key, value))
    _check_operands(query, key, value, single)
    batch, length, heads, width = query.shape
    source, groups = key.shape[1:3]
    scale = 1.0 / np.sqrt(width) if scale is None else scale
    if bias is not None:
        bias = as_array(bias)
        bias = shaping.expand_dims(bias, (0,)) if single and bias.ndim == 3 else bias
    if mask is not None:
        mask = as_array(mask)
        if mask.dtype != bool:
            raise ValueError(f"mask dtype should be bool, but got {mask.dtype}; what is added to the logits is bias")
        mask = shaping.expand_dims(mask, (0,)) if single and mask.ndim == 3 else mask
    for name, each in (("query_seq_lengths", query_seq_lengths), ("key_value_seq_lengths", key_value_seq_lengths)):
        if each is not None and as_array(each).ndim != 1:
            raise ValueError(f"{name} must have one axis, with a length for each example, got shape {as_array(each).shape}")
    _check_broadcast((batch, heads, length, source), bias=bias, mask=mask)
    if implementation == "cudnn":
        from jaxlite.nn import cudnn_attention

        window = (local_window_size,) * 2 if isinstance(local_window_size, int) else local_window_size
        found = cudnn_attention.attend(query, key, value, bias, mask, query_seq_lengths, key_value_seq_lengths,
                                       scale=float(scale), is_causal=is_causal, window=window, keeps_sums=return_residual)
        results = [found[0], jnp.transpose(found[1], (0, 2, 1)).astype(query.dtype)] if return_residual else [found]
        results = [each[0] if single else each for each in results]
        return tuple(results) if return_residual else results[0]
    repeat = heads // groups
    if repeat > 1:
        key, value = jnp.repeat(key, repeat, axis=2), jnp.repeat(value, repeat, axis=2)
    logits = jnp.einsum("BTNH,BSNH->BNTS", query, key,
                        preferred_element_type=jnp.promote_types(aval_of(query).dtype, jnp.float32))
    logits = logits * jnp.array(scale, dtype=logits.dtype)
    if bias is not None:
        logits = (logits + bias).astype(logits.dtype)
    allowed = _allowed(mask, batch, length, source, is_causal, query_seq_lengths, key_value_seq_lengths, local_window_size)
    if allowed is not None:
        lowest = jnp.array(-0.7 * np.finfo(np.float32).max, dtype=logits.dtype)
        logits = jnp.where(allowed, logits, lowest)
    probabilities = softmax(logits.astype(jnp.float32), axis=-1).astype(aval_of(key).dtype)
    encoded = jnp.einsum("BNTS,BSNH->BTNH", probabilities, value)
    if query_seq_lengths is not None:
        inside = jnp.arange(length)[None, :] < as_array(query_seq_lengths)[:, None]
        encoded = jnp.where(inside[:, :, None, None], encoded, 0)
    encoded = encoded.astype(aval_of(query).dtype)
    result = encoded[0] if single else encoded
    if not return_residual:
        return result
    residual = jnp.transpose(logsumexp(logits, axis=-1), (0, 2, 1)).astype(result.dtype)
    return result, residual[0] if single else residual


def _check_operands(query, key, value, single: bool) -> None:
    """Raises: ValueError for shapes or dtypes that do not go together."""
    for name, each in (("query", query), ("key", key), ("value", value)):
        if aval_of(each).ndim != 4:
            raise ValueError(f"{name} ndim should be 4 (or 3 without a batch axis), but got {aval_of(each).ndim - single}")
    batch, _, heads, width = aval_of(query).shape
    source, groups = aval_of(key).shape[1:3]
    if aval_of(key).shape != (batch, source, groups, width) or aval_of(value).shape[:3] != (batch, source, groups):
        raise ValueError(f"key and value do not fit query: got query {aval_of(query).shape}, key {aval_of(key).shape}, value "
                         f"{aval_of(value).shape}")
    for name, each in (("key", key), ("value", value)):
        if aval_of(each).dtype != aval_of(query).dtype:
            raise ValueError(f"{name} dtype should be {aval_of(query).dtype}, as query has, but got {aval_of(each).dtype}")
    if heads % groups:
        raise ValueError(f"The number of query heads must be a multiple of key/value heads, but got {heads} vs {groups}")


def _check_broadcast(whole: tuple[int, ...], **arrays) -> None:
    """Raises: TypeError for an array that does not broadcast to a shape."""
    for name, each in arrays.items():
        shape = () if each is None else aval_of(each).shape
        if len(shape) > len(whole) or not all(size in (1, full) for size, full in zip(shape[::-1], whole[::-1], strict=False)):
            raise TypeError(f"{name} has incompatible shapes for broadcasting: {shape} does not broadcast to "
                            f"(batch, heads, T, S) = {whole}")


def _allowed(mask, batch: int, length: int, source: int, is_causal: bool, query_lengths, key_lengths, window):
    """Which (query, key) pairs take part, or None if all do."""
    parts = [] if mask is None else [mask]
    row, column = shaping.indices((length, source))
    if is_causal:
        parts.append((column <= row)[None, None])
    if window is not None:
        left, right = (window, window) if isinstance(window, int) else window
        parts.append(((column >= row - left) & (column <= row + right))[None, None])
    if query_lengths is not None:
        parts.append((row[None] < as_array(query_lengths)[:, None, None])[:, None])
    if key_lengths is not None:
        parts.append((column[None] < as_array(key_lengths)[:, None, None])[:, None])
    if not parts:
        return None
    result = parts[0]
    for part in parts[1:]:
        result = jnp.logical_and(result, part)
    return result
