"""Pallas for TPUs, interpreted: copies, semaphores, pipelines, cores, vector functions."""

from __future__ import annotations

import base64
import json
import re
from functools import partial

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.experimental import pallas as pl
from jaxlite.experimental.pallas import tpu as pltpu
from jaxlite.experimental.pallas import triton as plt

F, I = jnp.float32, jnp.int32
X = np.arange(64, dtype=np.float32).reshape(8, 8)
ANY = pl.BlockSpec(memory_space=pl.ANY)
Shape = jax.ShapeDtypeStruct


def call(kernel, out, *args, **options):
    return pl.pallas_call(kernel, out, **{"interpret": pltpu.InterpretParams(), **options})(*args)


def test_copies_and_semaphores():
    def kernel(x_ref, o_ref, count_ref, buffer, copied, ready):
        def step(i, _):
            slot = i % 2
            fetch = pltpu.make_async_copy(x_ref.at[pl.ds(2 * i, 2)], buffer.at[slot], copied.at[slot])
            fetch.start()
            fetch.wait()
            buffer[slot] += 1
            pltpu.async_copy(buffer.at[slot], o_ref.at[pl.ds(6 - 2 * i, 2)], copied.at[slot]).wait()
            return 0

        lax.fori_loop(0, 4, step, 0)
        pltpu.sync_copy(x_ref.at[0], o_ref.at[0], add=True)
        pl.semaphore_signal(ready, 3)
        pl.semaphore_wait(ready, 1)
        count_ref[0] = pl.semaphore_read(ready)
        pl.semaphore_wait(ready, 2)

    out, count = call(kernel, [Shape((8, 8), F), Shape((1,), I)], X, in_specs=[ANY], out_specs=[ANY, pl.BlockSpec()],
                      scratch_shapes=[pltpu.VMEM((2, 2, 8), F), pltpu.SemaphoreType.DMA((2,)), pltpu.SemaphoreType.REGULAR])
    expected = np.concatenate([X[6:], X[4:6], X[2:4], X[:2]]) + 1
    expected[0] += X[0]
    np.testing.assert_array_equal(out, expected)
    assert count.tolist() == [2]


@pytest.mark.parametrize("rows", [8, 7])
def test_pipeline(rows):
    """Blocks that are revisited, squeezed axes, ends that blocks do not divide, a grid in a grid."""
    def body(x_ref, y_ref, o_ref, total_ref, scale_ref):
        @pl.when(pl.program_id(1) == 0)
        def _():
            total_ref[...] = jnp.zeros_like(total_ref)

        o_ref[...] = x_ref[...] + y_ref[...] * scale_ref[0]
        total_ref[...] += x_ref[...].sum() if rows == 8 else x_ref[0, 0]

    def kernel(x_ref, y_ref, o_ref, total_ref, scale_ref):
        scale_ref[0] = 2.0
        block = pl.BlockSpec((2, 4), lambda j, i: (i, j))
        column = pl.BlockSpec((None, 4), lambda j, i: (0, j))
        total = pl.BlockSpec((1,), lambda j, i: (j,))
        pltpu.emit_pipeline(body, grid=(2, 4), in_specs=[block, column], out_specs=[block, total])(
            x_ref, y_ref, o_ref, total_ref, scratches=[scale_ref])

    x = X[:rows]
    out, total = call(kernel, [Shape(x.shape, F), Shape((2,), F)], x, X, in_specs=[ANY, ANY], out_specs=[ANY, ANY],
                      scratch_shapes=[pltpu.VMEM((1,), F)])
    np.testing.assert_array_equal(out, x + 2 * X[0])
    picked = [x[:, part].sum() if rows == 8 else x[::2, part.start].sum() for part in (slice(0, 4), slice(4, 8))]
    np.testing.assert_array_equal(total, picked)


@pytest.mark.parametrize("counts", [(1, 1), (2, 2), (4, 2)])
def test_buffers_of_a_pipeline(counts):
    """Blocks that come back, a grid of a traced size, outputs that are read before, buffers that two pipelines share."""
    def kernel(order_ref, count_ref, x_ref, start_ref, o_ref, sum_ref):
        def double(x_ref, o_ref):
            o_ref[...] = x_ref[...] * 2

        def add(x_ref, sum_ref):
            sum_ref[...] += x_ref[...]

        rows = pl.BlockSpec((1, 4), lambda i: (order_ref[i], 0), pipeline_mode=pl.Buffered(counts[0]))
        pairs = pl.BlockSpec((1, 4), lambda i: (i // 2, 0), pipeline_mode=pl.Buffered(counts[1]))
        run, make = pltpu.emit_pipeline_with_allocations(double, grid=(count_ref[0],), in_specs=[rows], out_specs=[pairs])
        assert [each.buffer_count for each in make(x_ref, o_ref)] == list(counts)
        pltpu.sync_copy(start_ref, sum_ref)

        def with_buffers(buffers, sums):
            run(x_ref, o_ref, allocations=buffers)
            total = pltpu.emit_pipeline(add, grid=(count_ref[0],), in_specs=[rows], out_specs=[rows])
            total(x_ref, sum_ref, allocations=(buffers[0], sums), body_prologue=lambda: pl.program_id(0))

        pl.run_scoped(with_buffers, make(x_ref, o_ref), pltpu.BufferedRef.input_output(rows, F, counts[1]))

    scalars, x = pl.BlockSpec(memory_space=pltpu.SMEM), X[:4, :4]
    for order in ([3, 3, 1, 1, 1, 0, 3], [2, 1], []):
        out, total = call(kernel, [Shape((4, 4), F)] * 2, np.array([*order, 0], np.int32), np.array([len(order)], np.int32), x,
                          -x, in_specs=[scalars, scalars, ANY, ANY], out_specs=[ANY] * 2)
        expected, expected_total = np.full((4, 4), np.nan), -x
        for step, row in enumerate(order):
            expected[step // 2] = 2 * x[row]
            expected_total = expected_total + np.eye(4)[row][:, None] * x
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(total, expected_total)


def test_cores():
    mesh = pltpu.create_tensorcore_mesh("core", num_cores=2)
    assert mesh == pltpu.TensorCoreMesh(axis_name="core", num_cores=2) and mesh.axis_names == ("core",)

    @pl.kernel(out_type=Shape((8, 8), F), mesh=mesh, interpret=True)
    def double(x_ref, o_ref):
        def body(x_ref, o_ref):
            o_ref[...] = 2 * x_ref[...]

        block = pl.BlockSpec((1, 8), lambda i: (i, 0))
        pltpu.emit_pipeline(body, grid=(8,), in_specs=[block], out_specs=[block], core_axis_name="core",
                            dimension_semantics=(pltpu.PARALLEL,))(x_ref, o_ref)

    np.testing.assert_array_equal(double(X), 2 * X)

    @jax.jit
    def halves(x):
        source, target = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))

        @pl.core_map(mesh, interpret=True, scratch_shapes=[pltpu.SemaphoreType.REGULAR])
        def _(semaphore):
            part = pl.ds(4 * lax.axis_index("core"), 4)
            pltpu.sync_copy(source.at[part], target.at[part])
            pltpu.core_barrier(semaphore, core_axis_name="core")
            pltpu.run_on_first_core("core")(lambda: target.__setitem__((0, 0), lax.axis_size("core") + 5.0))

        return jax.freeze(target)

    assert halves(X)[0, 0] == 7
    np.testing.assert_array_equal(halves(X)[1:], X[1:])
    with pytest.raises(ValueError, match="closes over an array of type f32"):
        jax.jit(lambda x: pl.core_map(mesh, interpret=True)(lambda: pl.debug_print("{}", x[0, 0])))(X)


def test_copies_to_other_devices():
    mesh = jax.make_mesh((1,), ("x",))
    assert len(mesh.devices) == 1

    def kernel(x_ref, o_ref, send, receive):
        copy = pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id={"x": 0})
        copy.start()
        copy.wait()
        pl.semaphore_signal(receive, 1, device_id=(0,))

    def run(x):
        return call(kernel, Shape((8, 8), F), x, in_specs=[ANY], out_specs=ANY,
                    scratch_shapes=[pltpu.SemaphoreType.REGULAR] * 2)

    spec = jax.sharding.PartitionSpec()
    np.testing.assert_array_equal(jax.shard_map(run, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(X), X)


def test_vector_functions():
    def kernel(x_ref, rolled_ref, strided_ref, low_ref, high_ref, rounded_ref, bits_ref):
        x = x_ref[...]
        rolled_ref[...] = pltpu.roll(x, 3, 1)
        strided_ref[...] = pltpu.roll(x, 1, 1, stride=2, stride_axis=0)
        packed = pltpu.pack_elementwise([x, x + 1], packed_dtype=jnp.bfloat16)
        for index, ref in enumerate((low_ref, high_ref)):
            ref[...] = pltpu.unpack_elementwise(packed, index=index, packed_dtype=jnp.bfloat16, unpacked_dtype=F)
        pltpu.prng_seed(1, 2)
        noise = pltpu.stateful_bits((8, 8))
        rounded_ref[...] = pltpu.stochastic_round(x + 1 / 1024, noise + jnp.uint32(0xFFFF), target_dtype=jnp.bfloat16).astype(F)
        bits_ref[...] = pltpu.bitcast(pltpu.bitcast(x, jnp.uint16), F) + pltpu.stateful_uniform((8, 8))

    rolled, strided, low, high, rounded, bits = call(kernel, [Shape((8, 8), F)] * 6, X)
    np.testing.assert_array_equal(rolled, np.roll(X, 3, 1))
    np.testing.assert_array_equal(strided, [np.roll(row, 1 + 2 * i) for i, row in enumerate(X)])
    np.testing.assert_array_equal(low, X)
    np.testing.assert_array_equal(high, X + 1)
    np.testing.assert_array_equal(bits, X)
    assert (rounded > X).all() and (rounded < X * 1.01 + 1e-2).all()
    np.testing.assert_array_equal(pltpu.einshape("a(bc)->(ba)c", X, b=2), X.reshape(8, 2, 4).swapaxes(0, 1).reshape(16, 4))


def test_interpret_mode_by_context_and_chips():
    double = pl.pallas_call(lambda x, o: o.__setitem__(..., 2 * x[...]), Shape((8, 8), F))
    with pytest.raises(ValueError, match="Only interpret mode"):
        double(X)
    with pltpu.force_tpu_interpret_mode(pltpu.InterpretParams(uninitialized_memory="zero")):
        np.testing.assert_array_equal(double(X), 2 * X)
        assert pl.pallas_call(lambda o: None, Shape((2,), F))().tolist() == [0, 0]
    info = pltpu.get_tpu_info_for_chip(pltpu.ChipVersion.TPU_V5E, 1)
    assert (info.num_lanes, info.num_sublanes, info.vmem_capacity_bytes, info.is_lite) == (128, 8, 1 << 27, True)
    with pytest.raises(ValueError, match="Unsupported TPU device kind"):
        pltpu.get_tpu_info()
    device = jax.sharding.AbstractDevice("TPU7x", 1, "tpu")
    assert not pltpu.is_tpu_device() and not plt.is_gpu_device()
    with pytest.raises(ValueError, match="not a GPU that is known: cpu"):
        plt.get_gpu_info()
    for kind, version in (("NVIDIA H100 80GB HBM3", "H100"), ("NVIDIA A100-SXM4-80GB", "A100"), ("NVIDIA L40", "L40")):
        gpu = jax.sharding.AbstractDevice(kind, None, "gpu")
        with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((1,), ("x",), abstract_device=gpu)):
            assert plt.get_gpu_info() == plt.get_gpu_info_from_version(plt.GpuVersion[version])
    assert plt.get_gpu_info_from_version(plt.GpuVersion.GB10) == plt.GpuInfo(
        gpu_version=plt.GpuVersion.GB10, arch_name="12.1", compute_capability=121)
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((1,), ("x",), abstract_device=device)):
        info = pltpu.get_tpu_info()
        assert pltpu.is_tpu_device() and info.generation == 7 and info.sparse_core.num_lanes == 16 and info.is_split_chip
    of_chip = lambda name: pltpu.get_tpu_info_for_chip(name, 1)
    kinds = (F, jnp.bfloat16, np.int8, jnp.int4)
    assert [[of_chip(name).get_sublane_tiling(kind) for kind in kinds] for name in ("v5e", "7", "8t")] == [
        [8, 8, 32, 64], [8, 16, 32, 64], [16, 32, 64, 128]]
    assert of_chip("v5e").is_matmul_supported(np.int8, np.uint8) and not of_chip("7").is_matmul_supported(np.int8, np.int8)
    assert of_chip("8i").is_matmul_supported(F, jnp.uint4) and not of_chip("8i").is_matmul_supported(jnp.uint4, F)


ERRORS = {
    "works on a semaphore": lambda x, o, s: pl.semaphore_signal(o, 1),
    r"works on one semaphore, got \(2,\)": lambda x, o, s: pl.semaphore_wait(s),
    "parts of one shape and dtype": lambda x, o, s: pltpu.async_copy(x.at[0], o, s.at[0]),
    "a BufferedRef for each of 1 inputs and 0 outputs": lambda x, o, s: pltpu.emit_pipeline(
        lambda x: None, grid=2, in_specs=[pl.BlockSpec((4, 8))])(x, allocations=[x]),
    "buffer_count is at least 1, got 0": lambda x, o, s: pltpu.BufferedRef.input(pl.BlockSpec((4, 8)), F, 0),
    "the spec needs a block_shape": lambda x, o, s: pltpu.BufferedRef.output(pl.BlockSpec(), F),
    "has specs for 1 inputs": lambda x, o, s: pltpu.emit_pipeline(lambda x: None, grid=2, in_specs=[pl.BlockSpec((4, 8))])(),
    "both specified or not": lambda x, o, s: pltpu.roll(x[...], 1, 0, stride=1),
}


@pytest.mark.parametrize("message", ERRORS)
def test_errors(message):
    with pytest.raises(ValueError, match=message):
        call(ERRORS[message], Shape((8, 8), F), X, scratch_shapes=[pltpu.SemaphoreType.DMA((2,))])


def test_mosaic_module(capsys):
    def kernel(x_ref, o_ref, buffer, ready, count):
        pltpu.async_copy(x_ref.at[pl.ds(8, 8)], buffer, ready.at[1]).wait()
        pltpu.sync_copy(buffer, o_ref)
        pl.semaphore_wait(count, 2, decrement=False)

    x = np.ones((16, 128), np.float32)
    call_it = pl.pallas_call(kernel, Shape((8, 128), F), in_specs=[ANY], out_specs=ANY, debug=True, scratch_shapes=[
        pltpu.VMEM((8, 128), F), pltpu.SemaphoreType.DMA((2,)), pltpu.SemaphoreType.REGULAR])
    assert "tpu_custom_call" in jax.jit(call_it).trace(x).lower(lowering_platforms=("tpu",)).as_text()
    module = capsys.readouterr().out
    for part in ("tpu.memref_slice", "tpu.enqueue_dma source(", "tpu.wait_dma2 semaphore(", "memref<2x!tpu.dma_semaphore",
                 "tpu.sem_alloc", "tpu.sem_wait", "tpu.sem_signal"):
        assert part in module, part
    with pytest.raises(NotImplementedError, match="is not read and written: copy it to VMEM"):
        jax.jit(pl.pallas_call(lambda x, o: o.__setitem__(..., x[...]), Shape((16, 128), F), in_specs=[ANY])).trace(x).lower(
            lowering_platforms=("tpu",))


def mosaic_config(run, *args):
    """The configuration of a kernel's call, without its module."""
    text = jax.jit(run).trace(*args).lower(lowering_platforms=("tpu",)).as_text()
    found = json.loads(re.search(r'backend_config = "(.*?)", ', text).group(1).replace("\\22", '"'))
    assert base64.b64decode(found["custom_call_config"].pop("body"))
    return found


def test_parameters_and_costs_go_to_the_compiler():
    given = dict(vmem_limit_bytes=1 << 20, flags={"a": 1, "b": True, "c": 0.5}, internal_scratch_in_bytes=64,
                 disable_bounds_checks=True, shape_invariant_numerics=False, allow_input_fusion=[True])
    copy = lambda x, o: o.__setitem__(..., x[...])
    options = {"compiler_params": pltpu.CompilerParams(**given), "cost_estimate": pl.CostEstimate(1, 2, 3)}
    found = mosaic_config(pl.pallas_call(copy, Shape((8, 8), F), **options), X)
    assert found.pop("scoped_memory_configs") == [{"memory_space": 1, "offset": 0, "size": 1 << 20}]
    assert [each["value"] for each in found.pop("flag_configs")] == [
        {"integer_value": 1}, {"boolean_value": True}, {"double_value": 0.5}]
    assert found == {"custom_call_config": {
        "needs_layout_passes": True, "serialization_format": 1, "allow_input_fusion": [True], "internal_scratch_in_bytes": 64,
        "disable_bounds_checks": True, "shape_invariant_numerics": False, "cost_estimate": {
            "flops": 1, "transcendentals": 2, "bytes_accessed": 3, "remote_bytes_transferred": 0}}}
    meet = lambda x, o: pl.semaphore_wait(pltpu.get_barrier_semaphore(2), 1)
    assert mosaic_config(pl.pallas_call(meet, Shape((8, 8), F)), X)["custom_call_config"]["collective_id"] == 2
    rows = pl.BlockSpec((4, 8), lambda i: (i, 0))
    blocks = pl.pallas_call(copy, Shape((8, 8), F), grid=2, in_specs=[rows], out_specs=rows)
    with pytest.raises(ValueError, match=r"the block of args\[0\]: on a TPU its last sizes are multiples of \[8, 128\]"):
        mosaic_config(blocks, X)
    with pytest.raises(pltpu.LoweringException, match="sort"):
        mosaic_config(pl.pallas_call(lambda x, o: o.__setitem__(..., jnp.sort(x[...])), Shape((8, 8), F)), X)
    for params in ({"collective_id": 1}, {"flags": {"a": "b"}}):
        with pytest.raises(ValueError, match=f"CompilerParams.{next(iter(params))}"):
            mosaic_config(pl.pallas_call(copy, Shape((8, 8), F), compiler_params=pltpu.CompilerParams(**params)), X)


def test_the_own_place_on_a_mesh(capsys):
    def kernel(x_ref, o_ref, send, receive):
        pl.semaphore_signal(pltpu.get_barrier_semaphore(), 1, device_id={"y": 1 - lax.axis_index("y")})
        pltpu.async_remote_copy(x_ref, o_ref, send, receive, device_id=(lax.axis_index("x"), 0)).wait()

    def run(x, **options):
        return pl.pallas_call(kernel, Shape((8, 8), F), in_specs=[ANY], out_specs=ANY, debug=True, scratch_shapes=[
            pltpu.SemaphoreType.DMA] * 2, compiler_params=pltpu.CompilerParams(**options))(x)

    mesh, spec = jax.make_mesh((1, 1), ("x", "y")), jax.sharding.PartitionSpec()
    over = lambda fun, **names: jax.shard_map(fun, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False, **names)
    config = mosaic_config(over(lambda x: run(x, collective_id=3)), X)["custom_call_config"]
    assert config["has_communication"] and config["collective_id"] == 3
    module = capsys.readouterr().out
    assert module.count("tpu.device_id") >= 2 and "device_id(" in module and "tpu.sem_barrier" in module
    with pytest.raises(ValueError, match="CompilerParams.collective_id is given if"):
        mosaic_config(over(run), X)
    with pytest.raises(NotImplementedError, match="its place along the axis 'y': .* inside a shard_map over all axes"):
        of_part = pl.pallas_call(lambda x, o: o.__setitem__(..., x[...] + lax.axis_index("y")), Shape((8, 8), F))
        mosaic_config(over(of_part, axis_names={"y"}), X)


def test_views_of_memory(capsys):
    def kernel(x_ref, o_ref, i_ref):
        o_ref[...] = x_ref.at[pl.ds(8, 8)].reshape(2, 4, 8)[1]
        i_ref[...] = x_ref.bitcast(jnp.int16).at[pl.ds(2, 2)].bitcast(I)[...]

    run = pl.pallas_call(kernel, [Shape((4, 8), F), Shape((1, 8), I)], debug=True)
    x = np.arange(128, dtype=F).reshape(16, 8)
    assert mosaic_config(run, x)
    module = capsys.readouterr().out
    for part in (r"memref_slice .* -> memref<8x8xf32, .*memref_reshape .* -> memref<2x4x8xf32,",
                 r"memref_bitcast .* -> memref<32x8xi16, .*memref_slice .* -> memref<2x8xi16, .*bitcast .* -> memref<1x8xi32"):
        assert re.search(part, module, re.DOTALL), part


def test_semaphores_and_memories_of_results():
    """A kernel begins a copy, another one waits for its end."""
    sem = pl.BlockSpec(memory_space=pltpu.SEMAPHORE)

    def both(x, **options):
        def start(x, _, o, copied, counts):
            pltpu.make_async_copy(x, o, copied).start()
            pl.semaphore_signal(counts.at[1], 3)

        def done(o, copied, counts, x, _, total):
            pltpu.make_async_copy(x, o, copied).wait()
            pl.semaphore_wait(counts.at[1], 1)
            total[0] = pl.semaphore_read(counts.at[1])

        x, out, copied, counts = pl.pallas_call(
            start, [x, pltpu.HBM(x.shape, x.dtype), pltpu.SemaphoreType.DMA(()), pltpu.SemaphoreType.REGULAR((2,))],
            in_specs=[ANY], out_specs=[ANY, ANY, sem, sem], input_output_aliases={0: 0}, **options)(x)
        assert copied.dtype == pltpu.SemaphoreType.DMA(()).dtype and repr(counts.dtype) == "sem" and counts.shape == (2,)
        return pl.pallas_call(done, [out, Shape((1,), I)], in_specs=[ANY, sem, sem, ANY], out_specs=[
            ANY, pl.BlockSpec(memory_space=pltpu.SMEM)], input_output_aliases={0: 0}, **options)(out, copied, counts, x)

    out, total = jax.jit(partial(both, interpret=True))(X)
    np.testing.assert_array_equal(out, X)
    assert total.tolist() == [2]
    assert mosaic_config(both, X)["custom_call_config"]["output_memory_space_colors"] == [
        {"color": 0, "shape_index": [1]}, {"color": 2, "shape_index": [2]}, {"color": 2, "shape_index": [3]}]


def test_keys_in_kernels(capsys):
    """The words are those that JAX gives; blocks do not change what is drawn."""
    key = pltpu.to_pallas_key(jax.random.key(3))
    assert jax.random.key_data(key).tolist() == [318053758, 4029299397] and key.dtype.name == "key<pl>"
    assert jax.random.key_data(pltpu.to_pallas_key(jax.random.split(jax.random.key(3), 2))).tolist() == [
        [37346497, 188929330], [111646283, 2326751859]]
    assert jax.random.key_data(pltpu.to_pallas_key(jax.random.PRNGKey(5))).tolist() == [2003086470, 3955154020]
    first, second = 318053758 + (4029299397 + 7) % 2**32, (4029299397 + 7) % 2**32
    folded = [first % 2**32, first % 2**32 ^ ((second << 13 | second >> 19) % 2**32)]
    assert jax.random.key_data(jax.random.fold_in(key, 7)).tolist() == folded
    with pytest.raises(NotImplementedError, match="cannot be split"):
        jax.random.split(key)

    def kernel(key_ref, o_ref, p_ref, *, size):
        o_ref[...] = pltpu.sample_block(jax.random.uniform, key_ref[1], size, (2, 4), (8, 8), minval=1.0)
        p_ref[...] = jax.random.uniform(jax.random.fold_in(key_ref[0], 1), p_ref.shape)

    def run(keys, size, **options):
        block = pl.BlockSpec(size, lambda i, j: (i, j))
        return pl.pallas_call(partial(kernel, size=size), [Shape((8, 8), F)] * 2, grid=(8 // size[0], 8 // size[1]), in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM)], out_specs=[block] * 2, **options)(keys)

    for keys in (jax.random.split(jax.random.key(1), 2), pltpu.to_pallas_key(jax.random.split(jax.random.key(1), 2))):
        whole, drawn = run(keys, (8, 8), interpret=True)
        np.testing.assert_array_equal(whole, run(keys, (4, 4), interpret=True)[0])
        np.testing.assert_array_equal(whole[2:4, 4:], jax.random.uniform(jax.random.fold_in(keys[1], 3), (2, 4), minval=1.0))
        np.testing.assert_array_equal(drawn, jax.random.uniform(jax.random.fold_in(keys[0], 1), (8, 8)))
        assert mosaic_config(partial(run, size=(8, 8), debug=True), keys)
        module = capsys.readouterr().out
        assert "memref<2x2xi32, #tpu.memory_space<smem>>" in module
        assert module.count("prng_set_seed_32") == (9 if keys.dtype.name == "key<pl>" else 0)
    for size in ((8,), (3, 4)):
        with pytest.raises(ValueError, match="sample_block: "):
            pltpu.sample_block(jax.random.uniform, key, size, (2, 4), (8, 8), (0, 0))


def test_arguments_that_are_none_or_trees():
    def kernel(order, nothing, more, x_ref, also_nothing, o_ref):
        assert nothing is None and also_nothing is None
        o_ref[...] = x_ref[...] + more[0][0]

    def place(i, order, nothing, more):
        assert nothing is None and len(more) == 1
        return order[i],

    spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=3, grid=(2,), in_specs=[pl.BlockSpec((4,), place), None],
                                        out_specs=pl.BlockSpec((4,), lambda i, *others: (i,)))
    run = pl.pallas_call(kernel, Shape((8,), F), grid_spec=spec, interpret=True)
    found = run(np.array([1, 0]), None, (np.array([3], np.int32),), np.arange(8, dtype=F), None)
    np.testing.assert_array_equal(found, np.array([7, 8, 9, 10, 3, 4, 5, 6], F))
    with pytest.raises(ValueError, match=r"`in_specs\[0\]` is a leaf but `inputs\[0\]` is None"):
        pl.pallas_call(lambda x, o: None, Shape((8,), F), in_specs=[pl.BlockSpec()])(None)


def test_a_pipeline_knows_its_grid_that_is_traced():
    block = pl.BlockSpec((4,), lambda i: (i,))

    def kernel(n, x, o):
        def body(x, o):
            o[...] = x[...] + 10 * pl.program_id(0) + lax.fori_loop(0, 2, lambda i, total: total + pl.num_programs(0), 0)

        pltpu.emit_pipeline(body, grid=(n[0],), in_specs=[block], out_specs=[block])(x, o)

    scalar = pl.BlockSpec(memory_space=pltpu.SMEM)
    run = pl.pallas_call(kernel, Shape((8,), F), grid=(1,), in_specs=[scalar, ANY], out_specs=ANY, interpret=True)
    found = run(np.array([2], np.int32), np.arange(8, dtype=F))
    np.testing.assert_array_equal(found, np.arange(8) + 4 + np.repeat([0, 10], 4))
