"""Attention by cuDNN, without cuDNN: the calls in the program are those that JAX makes, and with the products that they
describe computed here, results and derivatives are those of the ordinary implementation."""

from __future__ import annotations

import json
import re
from functools import partial

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite.nn import cudnn_attention

B, T, S, N, K, H = 2, 6, 8, 4, 2, 8
F, I = jnp.float32, jnp.int32


@pytest.fixture
def with_cudnn(monkeypatch):
    monkeypatch.setattr(cudnn_attention, "_require_cudnn", lambda: 256)


def emulated(target, results, *, output_layouts, custom_call_api_version, legacy_backend_config):
    """What cuDNN's documentation says of the call."""
    config = json.loads(legacy_backend_config)["cudnn_fmha_backend_config"]
    has_bias, is_padded = "ScaleBias" in target, "PADDING" in config["mask_type"]
    assert custom_call_api_version == 2 and output_layouts[0] == (0, 2, 1, 3)

    def forward(query, key, value, bias, lengths):
        key, value = (jnp.repeat(each, query.shape[2] // each.shape[2], 2) for each in (key, value))
        logits = jnp.einsum("btnh,bsnh->bnts", query, key, preferred_element_type=F) * config["fmha_scale"]
        assert list(logits.shape) == [int(size) for size in config["intermediate_tensor_shape"]["dimensions"]]
        logits = logits if bias is None else logits + bias
        row, column = jnp.arange(logits.shape[2])[:, None], jnp.arange(logits.shape[3])
        seen = column >= 0
        if "CAUSAL" in config["mask_type"]:
            seen = seen & (column <= row)
        if config["sliding_window_length"]:
            seen = seen & (row - config["sliding_window_length"] < column) & (column <= row)
        if is_padded:
            seen = seen & (column < lengths[1][:, None, None, None])
        logits = jnp.where(seen, logits, -1e30)
        out = jnp.einsum("bnts,bsnh->bnth", jax.nn.softmax(logits).astype(value.dtype), value)
        if is_padded:
            out = jnp.where(row < lengths[0][:, None, None, None], out, 0)
        return out, jax.nn.logsumexp(logits, -1)

    def call(query, key, value, *rest):
        rest, lengths = (rest[:-2], rest[-2:]) if is_padded else (rest, ())
        if "Backward" not in target:
            found = forward(query, key, value, rest[0] if has_bias else None, lengths)
        else:
            sums, cotangent, *bias, out = rest
            bias = bias[0] if has_bias else None
            (again, sums_again), back = jax.vjp(lambda *args: forward(*args, lengths), query, key, value, bias)
            is_same = (jnp.abs(again.transpose(0, 2, 1, 3) - out) < 0.1).all() & (jnp.abs(sums_again - sums) < 0.1).all()
            *found, of_bias = back((jnp.where(is_same, cotangent.transpose(0, 2, 1, 3), np.nan), jnp.zeros_like(sums)))
            found = [*(each.transpose(0, 2, 1, 3) for each in found), of_bias]
        found = [*found[:len(results) - 1], jnp.zeros((0,), np.uint8)]
        assert [(each.shape, each.dtype) for each in found] == [(each.shape, each.dtype) for each in results]
        return found

    return call


def draw(shape, seed, dtype=jnp.float16):
    return jnp.array(np.random.default_rng(seed).normal(size=shape), dtype)


MASK = np.random.default_rng(9).random((B, 1, T, S)) < 0.8
CASES = {
    "plain": {}, "scale": {"scale": 0.5}, "causal": {"is_causal": True},
    "bias of heads": {"bias": (1, N)}, "bias of all": {"bias": (B, N)}, "bias of examples": {"bias": (B, 1)},
    "one bias": {"bias": ()}, "mask": {"mask": MASK}, "bias, mask": {"bias": (1, N), "mask": MASK},
    "lengths": {"query_seq_lengths": np.array([5, 6], np.int32), "key_value_seq_lengths": np.array([3, 8], np.int32)},
    "keys, causal": {"key_value_seq_lengths": np.array([3, 8], np.int32), "is_causal": True},
    "window": {"local_window_size": (2, 0)},
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_the_ordinary_implementation(with_cudnn, monkeypatch, name):
    monkeypatch.setattr(cudnn_attention, "ffi_call", emulated)
    options = dict(CASES[name])
    arrays = draw((B, T, N, H), 0), draw((B, S, K, H), 1), draw((B, S, K, H), 2)
    if "bias" in options:
        arrays += (draw((*options.pop("bias"), T, S), 3, F),)

    @partial(jax.jit, static_argnums=0)
    def run(implementation, *arrays):
        def attend(*arrays):
            out, sums = jax.nn.dot_product_attention(*arrays, implementation=implementation, return_residual=True, **options)
            return (out.astype(F) * jnp.cos(jnp.arange(H))).sum(), (out, sums)

        return jax.grad(attend, range(len(arrays)), has_aux=True)(*arrays)

    found, expected = run("cudnn", *arrays), run("xla", *arrays)
    inside = options.get("query_seq_lengths", np.array([T, T]))[:, None] > np.arange(T)  # outside, sums mean nothing
    np.testing.assert_allclose(np.where(inside[..., None], found[1][1], 0), np.where(inside[..., None], expected[1][1], 0),
                               atol=1e-2)
    for x, y in zip([*found[0], found[1][0]], [*expected[0], expected[1][0]], strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, atol=2e-2)


@pytest.mark.parametrize("in_axes", [(0, 0, 0, 0), (0, None, None, None), (None, 0, 1, None)])
def test_vmap(with_cudnn, monkeypatch, in_axes):
    """Derivatives for each example, and of all together: a bias that they share has one for each."""
    monkeypatch.setattr(cudnn_attention, "ffi_call", emulated)
    shapes = (B, T, N, H), (B, S, K, H), (B, S, K, H), (1, N, T, S)
    arrays = [draw(shape if axis is None else (*shape[:axis], 3, *shape[axis:]), seed, F if seed == 3 else jnp.float16)
              for seed, (shape, axis) in enumerate(zip(shapes, in_axes, strict=True))]

    @partial(jax.jit, static_argnums=0)
    def run(implementation, *arrays):
        def loss(*arrays):
            out = jax.nn.dot_product_attention(*arrays, implementation=implementation)
            return (out.astype(F) * jnp.cos(jnp.arange(H))).sum()

        def total(*arrays):
            return jax.vmap(loss, in_axes)(*arrays).sum()

        return jax.vmap(jax.grad(loss, range(4)), in_axes)(*arrays), jax.grad(total, range(4))(*arrays)

    for x, y in zip(jax.tree.leaves(run("cudnn", *arrays)), jax.tree.leaves(run("xla", *arrays)), strict=True):
        np.testing.assert_allclose(x, y, atol=3e-2)


def test_the_calls(with_cudnn):
    """As in the programs of JAX 0.11."""
    types = [jax.ShapeDtypeStruct((B, size, heads, H), jnp.bfloat16) for size, heads in ((T, N), (S, K), (S, K))]

    def loss(*arrays):
        out = jax.nn.dot_product_attention(*arrays, implementation="cudnn", local_window_size=2, is_causal=True)
        return out.astype(F).sum()

    text = jax.jit(jax.grad(loss, (0, 1, 2))).trace(*types).lower(lowering_platforms=("cuda",)).as_text()
    forward, backward = (line for line in text.splitlines() if "custom_call" in line)
    assert "@__cudnn$fmhaSoftmax(%arg0, %arg1, %arg2) {api_version = 2 : i32" in forward
    assert "dense<[3, 1, 2, 0]> : tensor<4xindex>, dense<[2, 1, 0]> : tensor<3xindex>, dense<0> : tensor<1xindex>]}" in forward
    assert forward.endswith("-> (tensor<2x4x6x8xbf16>, tensor<2x4x6xf32>, tensor<0xui8>)")
    assert backward.endswith("-> (tensor<2x4x6x8xbf16>, tensor<2x2x8x8xbf16>, tensor<2x2x8x8xbf16>, tensor<0xui8>)")
    config = json.loads(re.search(r'backend_config = "([^"]*)"', forward)[1].replace(r"\22", '"'))["cudnn_fmha_backend_config"]
    assert config["mask_type"] == "CAUSAL" and config["sliding_window_length"] == 3
    assert config["bmm2_dot_dimension_numbers"] == {
        "lhs_contracting_dimensions": ["3"], "rhs_contracting_dimensions": ["1"], "lhs_batch_dimensions": ["0", "1"],
        "rhs_batch_dimensions": ["0", "2"]}
    assert config["intermediate_tensor_shape"]["element_type"] == "BF16"


def test_refusals(with_cudnn, monkeypatch):
    def attend(dtype=jnp.float16, length=T, width=H, **options):
        x = jnp.ones((B, length, N, width), dtype)
        return jax.eval_shape(jax.grad(lambda x: jax.nn.dot_product_attention(
            x, x, x, implementation="cudnn", **options).sum().astype(F)), x)

    for arguments in ({"dtype": F}, {"length": 7}, {"width": 12}, {"width": 264}):
        with pytest.raises(NotImplementedError, match="cuDNN's attention"):
            attend(**arguments)
    with pytest.raises(ValueError, match="windows to the right"):
        attend(local_window_size=3)
    x = jnp.ones((B, T, N, H), jnp.float16)
    with pytest.raises(Exception, match="runs on an NVIDIA GPU"):
        jax.nn.dot_product_attention(x, x, x, implementation="cudnn")
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match="cuDNN not found"):
        attend()
