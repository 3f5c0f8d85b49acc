"""Attention and normalization under the names of Pallas' own kernels, beside NumPy."""

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite.experimental.pallas.ops.gpu import attention, decode_attention, layer_norm, rms_norm, softmax
from jaxlite.experimental.pallas.ops.gpu import paged_attention as gpu_paged
from jaxlite.experimental.pallas.ops.tpu import flash_attention as flash
from jaxlite.experimental.pallas.ops.tpu import ragged_paged_attention as ragged
from jaxlite.experimental.pallas.ops.tpu.paged_attention import paged_attention
from jaxlite.experimental.pallas.ops.tpu.paged_attention.quantization_utils import quantize_to_int8

DRAW = np.random.RandomState(0)
Q, K, V = DRAW.randn(3, 2, 3, 8, 4).astype(np.float32)  # batch, heads, length, dim
BIAS = DRAW.randn(2, 3, 8, 8).astype(np.float32)
IDS = np.repeat([[0, 1], [2, 2]], 4, axis=1)
SEEN = np.tri(8, dtype=bool) & (IDS[:, None, :, None] == IDS[:, None, None, :])


def expected(q, k, v, bias, scale, seen):
    logits = np.where(seen, (np.einsum("bhqd,bhkd->bhqk", q, k) + bias) * scale, -np.inf)
    weights = np.exp(logits)
    total = weights.sum(-1, keepdims=True)
    return weights / total @ v, np.log(total[..., 0])


@pytest.mark.parametrize("rows", [2, 3, 128])  # in blocks; as a whole where they do not divide the length
def test_flash_attention(rows):
    sizes = flash.BlockSizes(rows, 128, 128, 1)

    def loss(*args):
        out = flash.flash_attention(*args, flash.SegmentIds(IDS, IDS), causal=True, sm_scale=0.5, block_sizes=sizes)
        return (jnp.sin(out) * Q).sum(), out

    gradients, out = jaxlite.grad(loss, (0, 1, 2, 3), has_aux=True)(Q, K, V, BIAS)
    np.testing.assert_allclose(out, expected(Q, K, V, BIAS, 0.5, SEEN)[0], rtol=1e-5, atol=1e-6)

    def plain(*args):
        out = flash.mha_reference_no_custom_vjp(*args, flash.SegmentIds(IDS, IDS), causal=True, sm_scale=0.5)
        return (jnp.sin(out) * Q).sum()

    for ours, theirs in zip(gradients, jaxlite.grad(plain, (0, 1, 2, 3))(Q, K, V, BIAS), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_logits_exist_for_a_block_of_queries_alone():
    big = jaxlite.ShapeDtypeStruct((1, 1, 1024, 4), jnp.float32)
    pulled = jaxlite.make_jaxpr(jaxlite.grad(lambda q: flash.flash_attention(q, q, q).sum()))(big)
    assert "1,128,1024]" in str(pulled) and "1024,1024]" not in str(pulled)


def test_attention_with_heads_as_the_third_axis():
    arguments = [np.swapaxes(each, 1, 2) for each in (Q, K, V)]
    out, lse = attention.mha(*arguments, IDS, 0.5, True, attention.BlockSizes(4, 4), return_residuals=True)
    want, logsumexp = expected(Q, K, V, 0, 0.5, SEEN)
    np.testing.assert_allclose(np.swapaxes(out, 1, 2), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(lse, logsumexp / np.log(2), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(attention.mha_reference(*arguments, IDS, 0.5, True), out, rtol=1e-5, atol=1e-6)


def test_attention_of_the_next_token():
    q, first, last = DRAW.randn(2, 6, 4).astype(np.float32), np.array([0, 3]), np.array([5, 8])
    places = np.arange(8)
    seen = ((places >= first[:, None]) & (places < last[:, None]))[:, None, None]
    want, logsumexp = expected(q[:, :, None], K.repeat(2, 1), V.repeat(2, 1), 0, 0.5, seen)
    out, (total, top) = decode_attention.gqa(q, np.swapaxes(K, 1, 2), np.swapaxes(V, 1, 2), first, last, return_residuals=True)
    np.testing.assert_allclose(out, want[:, :, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.log(total) + top, logsumexp[..., 0], rtol=1e-5, atol=1e-6)
    shared = decode_attention.mqa(q, K[:, 0], V[:, 0], first, last)
    want, _ = expected(q[:, :, None], K[:, :1], V[:, :1], 0, 0.5, seen)
    np.testing.assert_allclose(shared, want[:, :, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("quantized", [False, True])
def test_attention_over_pages(quantized):
    pages = DRAW.permutation(8).reshape(2, 4)  # of 2 keys each
    keys, values = (np.empty((3, 8, 2, 4), np.float32) for _ in range(2))
    for batch, own in enumerate(pages):
        keys[:, own], values[:, own] = K[batch].reshape(3, 4, 2, 4), V[batch].reshape(3, 4, 2, 4)
    lengths = np.array([8, 3], np.int32)
    given = [quantize_to_int8(each) for each in (keys, values)] if quantized else [keys, values]
    out = paged_attention(Q[:, :, 0], *given, lengths, pages.astype(np.int32), pages_per_compute_block=2)
    want, _ = expected(Q[:, :, :1], K, V, 0, 1, np.arange(8) < lengths[:, None, None, None])
    np.testing.assert_allclose(out, want[:, :, 0], **({"atol": 0.05} if quantized else {"rtol": 1e-5, "atol": 1e-6}))


def test_normalization():
    weight, bias = DRAW.randn(2, 4).astype(np.float32)
    centered = Q - Q.mean(-1, keepdims=True)
    want = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * weight + bias
    for norm in (layer_norm.layer_norm, layer_norm.layer_norm_reference):
        np.testing.assert_allclose(norm(Q, weight, bias), want, rtol=1e-4, atol=1e-5)
    want = Q / np.sqrt((Q**2).mean(-1, keepdims=True) + 1e-5) * weight + bias
    for norm in (rms_norm.rms_norm, rms_norm.rms_norm_reference):
        np.testing.assert_allclose(norm(Q, weight, bias), want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(softmax.softmax(Q, axis=1).sum(1), 1, rtol=1e-6)


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: flash.flash_attention(Q, K[:1], V), ValueError, "Batch size mismatch: got 2, 1 and 2"),
    (lambda: flash.flash_attention(Q, K, V[:, :, 1:]), ValueError, "KV sequence length mismatch"),
    (lambda: flash.flash_attention(Q, K, V, BIAS[1:]), ValueError, "Attention bias shape mismatch"),
    (lambda: flash.flash_attention(Q, K, V, None, flash.SegmentIds(IDS, IDS[1:])), ValueError, "KV segment ids shape"),
    (lambda: flash.BlockSizes(128, 128, 100, 1), ValueError, "block_k=100 should divide block_k_major=128"),
    (lambda: attention.mha(Q, K, V[..., 1:], None), ValueError, "same head dimension"),
    (lambda: decode_attention.gqa(Q[:, :2, 0], K, V), ValueError, "not a multiple of the 8"),
    (lambda: decode_attention.gqa(Q[:, :, 0], K, V, normalize_output=False), NotImplementedError, "residuals"),
])
def test_what_does_not_fit_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_attention_of_sequences_of_different_lengths_over_pages():
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
    q, pages = draw(20, 4, 16), draw(9, 4, 4, 16)
    lengths, starts, count = np.array([5, 7, 12, 0], np.int32), np.array([0, 1, 8, 18, 99], np.int32), np.array([3], np.int32)
    indices = np.array([[2, 0, 7], [1, 8, 5], [3, 4, 6], [0, 0, 0]], np.int32)

    def expected(scale, window, cap, k_scale=1.0, v_scale=1.0):
        out = np.zeros_like(q)
        for sequence in range(3):
            own = pages[indices[sequence]].reshape(-1, 4, 16)
            for row in range(starts[sequence], starts[sequence + 1]):
                last = lengths[sequence] - (starts[sequence + 1] - row) + 1
                for head in range(4):
                    keys, values = (own[max(0, last - window):last, 2 * (head // 2) + side] for side in range(2))
                    logits = keys @ q[row, head] * scale * k_scale
                    weights = np.exp(cap * np.tanh(logits / cap))
                    out[row, head] = weights @ values / weights.sum() * v_scale
        return out

    args = (q, pages, lengths, indices, starts, count)
    found = jaxlite.jit(lambda *args: ragged.ragged_paged_attention(*args, sm_scale=0.3, sliding_window=3, soft_cap=2.0))(*args)
    np.testing.assert_allclose(found, expected(0.3, 3, 2.0), rtol=1e-4, atol=1e-5)
    found = ragged.ref_ragged_paged_attention(*args, sm_scale=0.3, k_scale=0.5, v_scale=2.0)
    np.testing.assert_allclose(found, expected(0.3, 99, 1e6, 0.5, 2.0)[:18], rtol=1e-4, atol=1e-5)
    ragged.dynamic_validate_inputs(*args)
    for wrong, message in (({0: q[:, :3]}, "num_q_heads=3 must be divisible"), ({5: count[0]}, r"num_seqs.shape=\(\) must be"),
                           ({2: lengths[:2]}, r"Expected kv_lens.shape=\(2,\) to be \(4,\)"),
                           ({4: starts.astype(np.int16)}, "must be int32"), ({0: q[..., :8]}, "Q head_dim 8 must be"),
                           ({2: lengths + 8}, "pages_per_seq=3 must be greater"), ({2: lengths - 5}, "q_len=1 of sequence 0")):
        with pytest.raises(ValueError, match=message):
            ragged.dynamic_validate_inputs(*[wrong.get(index, each) for index, each in enumerate(args)])
    with pytest.raises(ValueError, match=r"num_kv_pages_per_block=4 must be in range \(0, 3\]"):
        ragged.ragged_paged_attention(*args, num_kv_pages_per_block=4)


def test_attention_over_pages_of_the_gpu():
    rng = np.random.default_rng(1)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
    q, k, v, scales = draw(2, 4, 16), draw(2, 5, 3, 16), draw(2, 5, 3, 16), abs(draw(2, 5, 3))
    table, lengths = np.array([[4, 1], [0, 2]], np.int32), np.array([5, 2], np.int32)
    own = lambda pages: pages[:, table].swapaxes(0, 1).reshape(2, 2, 6, 16).swapaxes(1, 2)
    for count in (lengths, None):
        found = gpu_paged.paged_attention(q, k, v, table, count, scales, 2 * scales, attn_logits_soft_cap=2.0)
        expected = gpu_paged.paged_attention_reference(q, own(k * scales[..., None]), own(2 * v * scales[..., None]), count,
                                                       attn_logits_soft_cap=2.0)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    plain = gpu_paged.paged_attention(q, k, v, table, lengths)
    np.testing.assert_allclose(plain, decode_attention.gqa(q, own(k), own(v), kv_seq_len=lengths, sm_scale=1.0), rtol=1e-5)
