"""Attention under masks that are known when a program is traced."""

import numpy as np
import pytest

import jaxlite
from jaxlite.experimental.pallas.ops.tpu import splash_attention as splash
from jaxlite.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask


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
    assert splash_attention_kernel.BlockSizes.get_default().block_kv_dq == 128
