"""Attention under masks that are known when a program is traced."""

import numpy as np
import pytest

import jaxlite
from jaxlite.experimental.pallas.ops.tpu import splash_attention as splash
from jaxlite.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask
from jaxlite.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask_info import (
    process_dynamic_mask,
    process_dynamic_mask_dkv,
    process_mask,
    process_mask_dkv,
)


def test_masks():
    causal = splash.CausalMask((4, 4))
    assert (causal[:, :] == np.tri(4, dtype=bool)).all() and causal[1:2, ::2].tolist() == [[True, False]]
    window = splash.LocalMask((4, 4), (1, None), 0)
    both = causal & window
    assert both[:, :].astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    assert (causal | splash.FullMask((4, 4)))[:, :].all()
    heads = splash.MultiHeadMask([causal, both])
    assert heads.shape == (2, 4, 4) and (heads[1, :, :] == both[:, :]).all() and heads[:, :, :].shape == (2, 4, 4)
    assert causal == splash.CausalMask((4, 4)) != splash.CausalMask((4, 4), 1)
    with pytest.raises(ValueError, match="have one shape"):
        splash.MultiHeadMask([causal, splash.FullMask((4, 5))])
    with pytest.raises(ValueError, match="bool array of two axes"):
        splash_attention_mask.NumpyMask(np.ones((2, 2)))


def test_attention_beside_numpy():
    draw = np.random.RandomState(0).randn
    q, k, v = (draw(heads, 6, 4).astype(np.float32) for heads in (4, 2, 2))
    mask = splash_attention_mask.make_causal_mask((6, 6))
    kernel = splash.make_splash_mha_single_device(splash.MultiHeadMask([splash.CausalMask((6, 6))] * 4), save_residuals=True)
    ids = np.array([0, 0, 0, 1, 1, 1])
    out, (logsumexp,) = kernel(q, k, v, segment_ids=splash.SegmentIds(ids, ids), sinks=np.zeros(4, np.float32))
    seen = mask & (ids[:, None] == ids)
    weights = np.exp(np.einsum("hqd,hkd->hqk", q, k.repeat(2, 0))) * seen
    total = weights.sum(-1, keepdims=True) + 1
    np.testing.assert_allclose(out, weights / total @ v.repeat(2, 0), rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(logsumexp, np.log(total[..., 0]), rtol=2e-5, atol=1e-6)
    one = splash.make_splash_mqa(np.broadcast_to(mask, (4, 6, 6)), head_shards=1, q_seq_shards=1)
    batched = jaxlite.vmap(one)(q[None], k[:1], v[:1])
    assert batched.shape == (1, 4, 6, 4)
    np.testing.assert_allclose(batched[0, :, 0], np.broadcast_to(v[0, 0], (4, 4)), rtol=1e-5)
    with pytest.raises(ValueError, match="the mask is of shape"):
        one(q[:2], k[0], v[0])
    with pytest.raises(ValueError, match="cannot be split"):
        splash.make_splash_mqa(mask[None], head_shards=2, q_seq_shards=1)
    sizes = splash_attention_kernel.BlockSizes
    assert sizes.get_default().block_kv_dq == 128 and sizes.get_default().has_backward_blocks
    assert sizes(64, 32).block_kv_compute == 32 and not sizes(64, 32, block_q_dkv=64, block_kv_dkv=64).has_backward_blocks
    with pytest.raises(ValueError, match="not needed with a fused kernel"):
        sizes(64, 32, block_q_dq=64, use_fused_bwd_kernel=True)


# --- tables of blocks --------------------------------------------------------------------------------


def blocks(rows):
    """A mask of blocks of 2 by 2: none, the lower triangle, or all of one is seen."""
    parts = [np.zeros((2, 2)), np.tri(2), np.ones((2, 2))]
    return splash_attention_mask.NumpyMask(np.block([[parts[kind] for kind in row] for row in rows]).astype(bool))


FEW, LOWER = blocks([[0, 2, 0, 0], [0, 1, 1, 0], [2, 2, 0, 0], [0, 0, 0, 1]]), splash.CausalMask((8, 8))


def test_tables_of_blocks():
    info, rule = process_mask(splash.MultiHeadMask([FEW] * 2), (2, 2))
    assert rule is None and info.data_next.tolist() == [[[1, 0], [1, 2], [0, 1], [3, 0]]]  # of one head, for all
    assert info.block_mask.tolist() == [[[2, 0], [1, 1], [2, 2], [1, 0]]] and info.block_mask.dtype == np.int8
    assert info.mask_next.tolist() == [[[0, 0]] * 4] and info.partial_mask_blocks.astype(int).tolist() == [[[1, 0], [1, 1]]]
    whole, _ = process_mask(splash.MultiHeadMask([FEW]), (2, 2), shrink_grid=False, downcast_smem_data=False)
    assert whole.data_next.tolist() == [[[1, 1, 1, 1], [1, 1, 2, 0], [0, 1, 3, 3], [3, 3, 3, 3]]]  # or what comes next
    assert whole.data_next.dtype == np.int32
    back, _ = process_mask_dkv(splash.MultiHeadMask([FEW]), (2, 2))
    assert back.data_next.tolist() == [[[0, 0, 0, 0], [0, 1, 0, 0], [2, 2, 1, 3]]]
    assert back.block_mask.tolist() == [[[0, 2, 0, 0], [0, 1, 0, 0], [2, 2, 1, 1]]]
    assert back.partial_mask_blocks.astype(int).tolist() == [[[1, 1], [0, 1]]]
    parts, _ = process_mask_dkv(splash.MultiHeadMask([FEW]), (2, 2), q_seq_shards=2)
    assert parts.data_next.tolist() == [[[0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 1]]]  # counted in each part
    heads, _ = process_mask(splash.MultiHeadMask([FEW, LOWER]), (2, 2))
    halves, _ = process_mask(splash.MultiHeadMask([FEW, FEW, LOWER, LOWER]), (2, 2), head_shards=2)
    assert heads.block_mask.shape == (2, 4, 4) and halves.block_mask.tolist() == heads.block_mask.tolist()


def test_tables_of_rules_and_traced_masks():
    info, rule = process_mask(splash.MultiHeadMask([LOWER] * 3), (4, 2))
    assert info.partial_mask_blocks is None and info.mask_next is None and (info.q_sequence == np.arange(8)).all()
    assert info.block_mask.tolist() == [[[1, 1, 0, 0], [2, 2, 1, 1]]]
    seen = jaxlite.jit(rule)(np.arange(8)[:, None], np.arange(8)[None])
    np.testing.assert_array_equal(seen, LOWER[:, :])
    chunks = splash_attention_mask.ChunkedCausalMask((6, 6), 3)
    assert (chunks[:, :] == np.kron(np.eye(2), np.ones((3, 3))).astype(bool) & np.tri(6, dtype=bool)).all()
    assert (splash_attention_mask.make_chunk_attention_mask((6, 6), 3) == chunks[:, :]).all()
    for process, places in ((process_dynamic_mask, np.arange(4)), (process_dynamic_mask_dkv, np.arange(4)[:, None])):
        info, rule = jaxlite.jit(lambda mask, process=process: process(mask, (2, 2)))(FEW.array[None])
        kinds = np.array([[0, 2, 0, 0], [0, 1, 1, 0], [2, 2, 0, 0], [0, 0, 0, 1]])
        np.testing.assert_array_equal(info.block_mask[0], kinds)
        np.testing.assert_array_equal(info.data_next[0], np.where(kinds, places, 0))
        np.testing.assert_array_equal(info.mask_next[0], np.where(kinds == 1, np.arange(16).reshape(4, 4), 0))
        part = FEW.array[2:4, 2:4] if process is process_dynamic_mask else FEW.array[2:4, 2:4].T
        np.testing.assert_array_equal(info.partial_mask_blocks[0, 1, 1], part)
    for wrong, message in (((3, 2), "q_block_size=3 should divide q_seq_len=8."), ((2, 3), "kv_block_size=3 should divide")):
        with pytest.raises(ValueError, match=message):
            process_mask(splash.MultiHeadMask([LOWER]), wrong)
    with pytest.raises(ValueError, match="Expected a bool mask"):
        process_dynamic_mask(np.ones((1, 4, 4)), (2, 2))
