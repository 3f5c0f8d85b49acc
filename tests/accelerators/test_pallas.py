"""Kernels compile for devices that are not here: Triton for an H100, Mosaic for a TPU. Needs their plugins."""

from __future__ import annotations

from functools import partial

import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.experimental import pallas as pl
from jaxlite.experimental import topologies
from jaxlite.experimental.pallas import tpu as pltpu
from jaxlite.experimental.pallas import triton as plt
from lowering import platforms

F, I, H = jnp.float32, jnp.int32, jnp.bfloat16
Spec, Shape = pl.BlockSpec, jax.ShapeDtypeStruct


def add(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + y_ref[...]


def matmul(x_ref, y_ref, o_ref):
    def step(i, total):
        return total + jnp.dot(x_ref[:, pl.ds(i * 32, 32)], y_ref[pl.ds(i * 32, 32), :], preferred_element_type=F)

    o_ref[...] = lax.fori_loop(0, x_ref.shape[1] // 32, step, jnp.zeros(o_ref.shape, F)).astype(o_ref.dtype)


MATMUL = pl.pallas_call(
    matmul, Shape((128, 128), H), grid=(2, 2), in_specs=[
        Spec((64, 128), lambda i, j: (i, 0)), Spec((128, 64), lambda i, j: (0, j))],
    out_specs=Spec((64, 64), lambda i, j: (i, j)), compiler_params=plt.CompilerParams(num_warps=4, num_stages=2))


def softmax(x_ref, o_ref):
    columns = jnp.arange(128)
    row = plt.load(x_ref.at[columns], mask=columns < 100, other=-jnp.inf)
    weights = jnp.exp(row - row.max())
    plt.store(o_ref.at[columns], weights / weights.sum(), mask=columns < 100)


def layer_norm(x_ref, scale_ref, shift_ref, o_ref):
    row = x_ref[...]
    centred = row - row.mean()
    o_ref[...] = centred * lax.rsqrt((centred**2).mean() + 1e-5) * scale_ref[...] + shift_ref[...]


def attention(q_ref, k_ref, v_ref, o_ref, *, causal, size):
    q, number = q_ref[...], pl.program_id(1)

    def step(j, carry):
        out, top, total = carry
        keys, values = k_ref[pl.ds(j * size, size), :], v_ref[pl.ds(j * size, size), :]
        scores = jnp.dot(q, keys.T, preferred_element_type=F) * q.shape[1] ** -0.5
        if causal:
            seen = (number * size + jnp.arange(size))[:, None] >= (j * size + jnp.arange(size))[None]
            scores = jnp.where(seen, scores, -jnp.inf)
        new_top = jnp.maximum(top, scores.max(1))
        weights, shrink = jnp.exp(scores - new_top[:, None]), jnp.exp(top - new_top)
        out = out * shrink[:, None] + jnp.dot(weights.astype(H), values, preferred_element_type=F)
        return out, new_top, total * shrink + weights.sum(1)

    start = jnp.zeros(q.shape, F), jnp.full((size,), -jnp.inf, F), jnp.zeros((size,), F)
    out, _, total = lax.fori_loop(0, number + 1 if causal else k_ref.shape[0] // size, step, start)
    o_ref[...] = (out / total[:, None]).astype(o_ref.dtype)


def attention_call(causal):
    rows, whole = Spec((None, 32, 64), lambda h, i: (h, i, 0)), Spec((None, 128, 64), lambda h, i: (h, 0, 0))
    return pl.pallas_call(partial(attention, causal=causal, size=32), Shape((2, 128, 64), H), grid=(2, 4),
                          in_specs=[rows, whole, whole], out_specs=rows)


def everything(x_ref, i_ref, _, __, o_ref, count_ref, top_ref):
    x = x_ref[...]
    o_ref[...] = (jnp.where(x > 0, jnp.tanh(x), jax.nn.gelu(x)) + jax.nn.sigmoid(x) + x**3 + jnp.clip(x, 0, 1) + lax.erf(x)
                  + jnp.log1p(jnp.abs(x)) + jnp.cumsum(x) + jnp.sign(x) + jnp.isfinite(x) + jnp.floor(x) + jnp.sin(x))
    plt.atomic_add(count_ref, (i_ref[...],), 1)
    plt.atomic_max(top_ref, 0, x.max())
    old, best = plt.atomic_cas(count_ref.at[0], 0, 1), jnp.argmax(x)

    @pl.when((old > 0) & (best > 2))
    def _():
        count_ref[1] = old + best

    count_ref[2] = lax.while_loop(lambda s: s[0] < 10.0, lambda s: (s[0] * 2, s[1] + 1), (x.sum(), 0))[1]
    lax.switch(best, [lambda: None, lambda: count_ref.__setitem__(3, 5), lambda: count_ref.__setitem__(3, 6)])
    count_ref[4] = (x.astype(H).astype(F) > 0).sum(dtype=I)
    top_ref[0] = plt.approx_tanh(top_ref[0])
    plt.debug_barrier()
    pl.debug_print("x", x)


def taken_apart(x_ref, n_ref, o_ref, small_ref):
    x = x_ref[...]
    upper, lower = jnp.split(x, 2, 0)
    o_ref[...] = jnp.concatenate([lower, upper], 0) + jnp.tile(x[8:], (2, 1))
    o_ref[...] += jnp.stack([x[:, 0], x[:, 3]], -1).sum(1)[:, None]
    o_ref[...] += lax.cumlogsumexp(x, 1) + lax.population_count(n_ref[...]) + lax.clz(n_ref[...])
    o_ref[...] += jnp.stack([x.sum(), x.max()])[1]
    small_ref[...] = lower[:4, :8] @ upper[:, :4]
    lax.while_loop(lambda _: plt.atomic_cas(small_ref.at[0, 0], 0.0, 1.0) == 1, lambda none: none, ())


def views(x_ref, o_ref, i_ref):
    o_ref.at[4:8].reshape(64)[pl.ds(8, 16)] = x_ref.reshape(16, 4, 4)[pl.program_id(0), 0:4].reshape(16)
    i_ref[...] = x_ref.bitcast(I).at[pl.ds(4, 4)].reshape(2, 4, 8)[1]
    plt.store(i_ref.reshape(32).at[jnp.arange(8)], i_ref[0], mask=jnp.arange(8) < 5, eviction_policy="evict_first")


ROW = Spec((None, 128), lambda i: (i, 0))
TRITON = {
    "add": (pl.pallas_call(add, Shape((64,), F), grid=8, in_specs=[Spec((8,), lambda i: (i,))] * 2,
                           out_specs=Spec((8,), lambda i: (i,))), [(64,), F], [(64,), F]),
    "uneven": (pl.pallas_call(add, Shape((10,), F), grid=3, in_specs=[
        Spec((4,), lambda i: (i,)), Spec((pl.Element(4, (1, 1)),), lambda i: (3 * i,))], out_specs=Spec((4,), lambda i: (i,))),
        [(10,), F], [(10,), F]),
    "four axes": (pl.pallas_call(add, Shape((2, 3, 2, 4), F), grid=(2, 3, 2, 4), in_specs=[
        Spec((None, None, None, 1), lambda *ids: ids)] * 2, out_specs=Spec((None, None, None, 1), lambda *ids: ids)),
        [(2, 3, 2, 4), F], [(2, 3, 2, 4), F]),
    "batch of products": (jax.vmap(MATMUL, (0, None)), [(3, 128, 128), H], [(128, 128), H]),
    "softmax": (pl.pallas_call(softmax, Shape((6, 100), F), grid=6, in_specs=[Spec((None, 100), lambda i: (i, 0))],
                               out_specs=Spec((None, 100), lambda i: (i, 0))), [(6, 100), F]),
    "layer norm": (pl.pallas_call(layer_norm, Shape((8, 128), F), grid=8, in_specs=[ROW, Spec(), Spec()], out_specs=ROW),
                   [(8, 128), F], [(128,), F], [(128,), F]),
    "attention": (attention_call(False), *[[(2, 128, 64), H]] * 3),
    "causal attention": (attention_call(True), *[[(2, 128, 64), H]] * 3),
    "taken apart": (pl.pallas_call(taken_apart, [Shape((16, 16), F), Shape((4, 4), F)]), [(16, 16), F], [(16, 16), I]),
    "views": (pl.pallas_call(views, [Shape((16, 16), F), Shape((4, 8), I)], grid=2), [(16, 16), F]),
    "everything": (pl.pallas_call(everything, [Shape((16,), F), Shape((8,), I), Shape((2,), F)],
                                  input_output_aliases={2: 1, 3: 2}), [(16,), F], [(16,), I], [(8,), I], [(2,), F]),
}


def compile_for(name, function, arguments):
    platform = "tpu" if name.startswith("v") else "gpu"
    if platforms.plugin_of(platform) is None:
        pytest.skip(f"the plugin for {platform} is not installed: make test-accelerators does that")
    where = jax.sharding.SingleDeviceSharding(topologies.get_topology_desc(name).devices[0])
    return jax.jit(function).lower(*[Shape(*each, sharding=where) for each in arguments]).compile()


@pytest.mark.parametrize("name", TRITON)
def test_for_a_gpu(name):
    function, *arguments = TRITON[name]
    text = compile_for("h100", function, arguments).as_text()
    assert "triton" in text


# --- TPU ---------------------------------------------------------------------------------------------


def blocked_matmul(x_ref, y_ref, o_ref, total_ref):
    @pl.when(pl.program_id(2) == 0)
    def _():
        total_ref[...] = jnp.zeros_like(total_ref)

    total_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=F)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _():
        o_ref[...] = total_ref[...].astype(o_ref.dtype)


def softmax_rows(x_ref, o_ref):
    weights = jnp.exp(x_ref[...] - x_ref[...].max(-1, keepdims=True))
    o_ref[...] = weights / weights.sum(-1, keepdims=True)


def loops(x_ref, o_ref):
    o_ref[...] = lax.fori_loop(0, 4, lambda i, total: total + x_ref[pl.ds(i * 8, 8), :], jnp.zeros((8, 128), F))
    o_ref[0, :] = jnp.where(o_ref[0, :] > 0, jnp.tanh(o_ref[0, :]), x_ref[...].sum())
    o_ref[...] += lax.broadcasted_iota(I, (8, 128), 1).astype(F)


def gathered(order_ref, x_ref, o_ref):
    o_ref[...] = x_ref[...] * order_ref[pl.program_id(0)].astype(F)


BLOCKED_MATMUL = pl.pallas_call(
    blocked_matmul, Shape((256, 256), H), grid=(2, 2, 2), in_specs=[
        Spec((128, 128), lambda i, j, k: (i, k)), Spec((128, 128), lambda i, j, k: (k, j))],
    out_specs=Spec((128, 128), lambda i, j, k: (i, j)), scratch_shapes=[pltpu.VMEM((128, 128), F)],
    compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")))
EIGHT_ROWS = Spec((8, 128), lambda i: (i, 0))
MOSAIC = {
    "add": (pl.pallas_call(add, Shape((8, 128), F)), [(8, 128), F], [(8, 128), F]),
    "blocks": (pl.pallas_call(add, Shape((16, 128), F), grid=2, in_specs=[EIGHT_ROWS] * 2, out_specs=EIGHT_ROWS),
               [(16, 128), F], [(16, 128), F]),
    "batch of products": (jax.vmap(BLOCKED_MATMUL, (0, None)), [(3, 256, 256), H], [(256, 256), H]),
    "softmax": (pl.pallas_call(softmax_rows, Shape((16, 128), F), grid=2, in_specs=[EIGHT_ROWS], out_specs=EIGHT_ROWS),
                [(16, 128), F]),
    "loops": (pl.pallas_call(loops, Shape((8, 128), F)), [(32, 128), F]),
    "transpose": (pl.pallas_call(lambda x, o: o.__setitem__(..., x[...].T), Shape((128, 128), F)), [(128, 128), F]),
    "known beforehand": (pl.pallas_call(gathered, Shape((16, 128), F), grid_spec=pltpu.PrefetchScalarGridSpec(
        1, (2,), [Spec((8, 128), lambda i, order: (order[i], 0))], Spec((8, 128), lambda i, order: (i, 0)))), [(2,), I],
        [(16, 128), F]),
}


# --- TPU: what a kernel does itself ------------------------------------------------------------------


def copies(x_ref, o_ref, buffer, copied, ready):
    def step(i, _):
        slot, rows = i % 2, pl.ds(pl.multiple_of(8 * i, 8), 8)
        fetch = pltpu.make_async_copy(x_ref.at[rows], buffer.at[slot], copied.at[slot])
        fetch.start()
        fetch.wait()
        buffer[slot] += 1
        pltpu.async_copy(buffer.at[slot], o_ref.at[rows], copied.at[slot]).wait()
        return 0

    lax.fori_loop(0, 4, step, 0)
    pl.semaphore_signal(ready, 3)
    pl.semaphore_wait(ready, 3, decrement=False)
    pl.semaphore_wait(ready, 2)
    pl.when(pl.semaphore_read(ready) > 0)(lambda: pl.semaphore_wait(ready, 1))


def pipeline(x_ref, y_ref, o_ref):
    block = Spec((8, 128), lambda i, j: (i, j))
    run, make = pltpu.emit_pipeline_with_allocations(add, grid=(4, 2), in_specs=[block.replace(
        pipeline_mode=pl.Buffered(3)), block], out_specs=[block])
    pl.run_scoped(lambda buffers: run(x_ref, y_ref, o_ref, allocations=buffers), make(x_ref, y_ref, o_ref))
    more = pltpu.emit_pipeline(lambda x, o: o.__setitem__(..., x[...] + o[...]), grid=(4, 2), in_specs=[block],
                               out_specs=[block])
    pl.run_scoped(lambda *buffers: more(x_ref, o_ref, allocations=buffers), pltpu.BufferedRef.input(block, F, 1),
                  pltpu.BufferedRef.input_output(block, F))


def pieces(x_ref, o_ref, p_ref):
    x = x_ref[...]
    halves = jnp.split(x, 2, 0)
    o_ref[...] = jnp.concatenate([halves[1], halves[0]], 0) + jnp.pad(x[8:], ((0, 8), (0, 0))) + jnp.tile(x[:8], (2, 1))
    o_ref[pl.ds(0, 8, 2), :] = x_ref[pl.ds(1, 8, 2), :] + jnp.cumsum(halves[0], 1)
    o_ref[...] += jnp.where(jnp.any(x > 0), x.max(0, keepdims=True), jnp.argmax(x, 1).astype(F)[:, None]) + jnp.pow(x, x)
    p_ref[...] = lax.bitcast_convert_type(x, I).max(0, keepdims=True) + lax.population_count(x.astype(I))
    first, second = jnp.stack([x, -x])
    o_ref[...] += first + second + (x @ x.T)[:, :1] + (x @ x[0])[:, None] + lax.erf_inv(x) + lax.reduce_precision(x, 8, 7)
    p_ref[...] += jnp.take_along_axis(p_ref[...], p_ref[...], 1, mode="promise_in_bounds")


def bits(x_ref, i_ref, o_ref):
    pltpu.prng_seed(3, 4)
    packed = pltpu.pack_elementwise([x_ref[...], x_ref[...]], packed_dtype=H)
    o_ref[...] = pltpu.unpack_elementwise(packed, index=1, packed_dtype=H, unpacked_dtype=F) + pltpu.stateful_normal((8, 128))
    o_ref[...] += pltpu.roll(x_ref[...], 3, 1) + pltpu.roll(x_ref[...], i_ref[0], 0)
    pl.delay(10)
    pl.debug_print("x {}", i_ref[0])


@pl.kernel(out_type=Shape((32, 128), F), mesh=pltpu.create_tensorcore_mesh("core", num_cores=1),
           scratch_types=[pltpu.VMEM((32, 128), F)])
def on_cores(x_ref, o_ref, near_ref):
    pltpu.sync_copy(x_ref, near_ref)
    near_ref[...] = near_ref[...] * 2 + lax.axis_index("core")
    pltpu.sync_copy(near_ref, o_ref)


def drawn(key_ref, own_ref, o_ref):
    key = jax.random.fold_in(own_ref[1], pl.program_id(0))
    o_ref[...] = jax.random.uniform(key, o_ref.shape) + jax.random.normal(key_ref[...], o_ref.shape)


def with_keys(words):
    keys = jax.random.wrap_key_data(words)
    scalars = Spec(memory_space=pltpu.SMEM)
    return pl.pallas_call(drawn, Shape((8, 128), F), grid=1, in_specs=[scalars] * 2)(keys[0], pltpu.to_pallas_key(keys))


def steps(n, x):
    return pl.pallas_call(lambda x, o: o.__setitem__(..., x[...] * pl.num_programs(0)), Shape((16, 128), F), grid=(n,),
                          in_specs=[EIGHT_ROWS], out_specs=EIGHT_ROWS)(x)


def views_of_tiles(x_ref, o_ref, i_ref):
    o_ref[...] = x_ref.at[pl.ds(8, 16)].reshape(2, 8, 128)[1]
    i_ref[...] = x_ref.bitcast(jnp.int16).at[pl.ds(16, 16)].bitcast(I)[...]


ANY, PAIR = Spec(memory_space=pl.ANY), [(32, 256), F]
MOSAIC |= {
    "copies": (pl.pallas_call(copies, Shape((32, 128), F), in_specs=[ANY], out_specs=ANY, scratch_shapes=[
        pltpu.VMEM((2, 8, 128), F), pltpu.SemaphoreType.DMA((2,)), pltpu.SemaphoreType.REGULAR]), [(32, 128), F]),
    "pipeline": (pl.pallas_call(pipeline, Shape((32, 256), F), in_specs=[ANY] * 2, out_specs=ANY), PAIR, PAIR),
    "pieces": (pl.pallas_call(pieces, [Shape((16, 128), F), Shape((16, 128), I)]), [(16, 128), F]),
    "bits": (pl.pallas_call(bits, Shape((8, 128), F), in_specs=[Spec(), Spec(memory_space=pltpu.SMEM)]),
             [(8, 128), F], [(1,), I]),
    "cores": (on_cores, [(32, 128), F]),
    "views": (pl.pallas_call(views_of_tiles, [Shape((8, 128), F), Shape((8, 128), I)]), [(32, 128), F]),
    "keys": (with_keys, [(2, 2), jnp.uint32]),
    "traced grid": (steps, [(), I], [(16, 128), F]),
    "elements": (pl.pallas_call(lambda x, o: o.__setitem__(..., x[...]), Shape((16, 128), F), grid=2, in_specs=[
        Spec((pl.Element(8), pl.Element(128)), lambda i: (8 * i, 0))], out_specs=EIGHT_ROWS), [(24, 128), F]),
    "batched product": (pl.pallas_call(lambda x, y, o: o.__setitem__(..., jnp.einsum("bij,bjk->bik", x[...], y[...])), Shape(
        (2, 128, 128), F)), [(2, 128, 128), F], [(2, 128, 128), F]),
}


@pytest.mark.parametrize("name", MOSAIC)
def test_for_a_tpu(name):
    function, *arguments = MOSAIC[name]
    assert "tpu_custom_call" in compile_for("v5e:2x2", function, arguments).as_text()
