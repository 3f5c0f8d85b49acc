"""Pallas: kernels in interpret mode against what they mean, their jaxprs, transformations, errors."""

from __future__ import annotations

import operator
import pickle
from functools import partial

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.experimental import pallas as pl
from jaxlite.experimental.pallas import tpu as pltpu
from jaxlite.experimental.pallas import triton as plt

F = jnp.float32


def shape(*sizes, dtype=F):
    return jax.ShapeDtypeStruct(sizes, dtype)


def call(kernel, out, *args, **options):
    return pl.pallas_call(kernel, out, interpret=True, **options)(*args)


def add(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + y_ref[...]


def double(x_ref, o_ref):
    o_ref[...] = 2 * x_ref[...]


def rows(i):
    return i, 0


X = np.arange(10, dtype=np.float32)


# --- blocks and grids --------------------------------------------------------------------------------


def test_blocks_that_do_not_divide():
    block = pl.BlockSpec((4,), lambda i: (i,))
    one = pl.BlockSpec((1,), lambda i: i)

    def kernel(x_ref, o_ref, sum_ref):
        o_ref[...] = 2 * x_ref[...]
        sum_ref[...] = x_ref[...].sum(keepdims=True)

    out, sums = call(kernel, [shape(10), shape(3)], X, grid=3, in_specs=[block], out_specs=[block, one])
    np.testing.assert_array_equal(out, 2 * X)  # writes beyond the end are dropped
    np.testing.assert_array_equal(sums, [6, 22, np.nan])  # reads there are NaN


def test_kinds_of_dimensions():
    def kernel(a_ref, b_ref, c_ref, o_ref):
        assert (a_ref.shape, b_ref.shape, c_ref.shape) == ((3,), (3,), (3,))
        o_ref[...] = a_ref[...] + 10 * b_ref[...] + 100 * c_ref[...]

    x = X[:8]
    out = call(kernel, shape(2, 3), x.reshape(2, 4), x, x, grid=(2,), out_specs=pl.BlockSpec((pl.squeezed, 3), rows), in_specs=[
        pl.BlockSpec((None, 3), rows), pl.BlockSpec((pl.Element(3),), lambda i: (2 * i + 1,)),
        pl.BlockSpec((pl.BoundedSlice(3),), lambda i: (pl.ds(i, 3),))])
    places = [[np.arange(3) + 4 * i, np.arange(3) + 2 * i + 1, np.arange(3) + i] for i in range(2)]
    np.testing.assert_array_equal(out, [x[a] + 10 * x[b] + 100 * x[c] for a, b, c in places])
    padded = call(double, shape(12), X, grid=(4,), in_specs=[pl.BlockSpec((pl.Element(3, (1, 1)),), lambda i: (3 * i,))],
                  out_specs=pl.BlockSpec((3,), lambda i: (i,)))
    np.testing.assert_array_equal(padded, [np.nan, *2 * X, np.nan])


def test_matmul_accumulates_in_scratch():
    def kernel(x_ref, y_ref, o_ref, sum_ref):
        @pl.when(pl.program_id(2) == 0)
        def _():
            sum_ref[...] = jnp.zeros_like(sum_ref)

        sum_ref[...] += x_ref[...] @ y_ref[...]

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            o_ref[...] = sum_ref[...]

    spec = pl.GridSpec((2, 3, 2), [pl.BlockSpec((2, 4), lambda i, j, k: (i, k)), pl.BlockSpec((4, 1), lambda i, j, k: (k, j))],
                       pl.BlockSpec((2, 1), lambda i, j, k: (i, j)), [pltpu.VMEM((2, 1), F)])
    x, y = np.arange(32, dtype=np.float32).reshape(4, 8), np.arange(24, dtype=np.float32).reshape(8, 3)
    matmul = pl.pallas_call(kernel, shape(4, 3), grid_spec=spec, interpret=True)
    np.testing.assert_array_equal(matmul(x, y), x @ y)
    batch = jax.vmap(matmul, (0, None))(np.stack([x, x + 1]), y)  # program_id counts the kernel's own axes
    np.testing.assert_array_equal(batch, [x @ y, (x + 1) @ y])


def test_trees_aliases_and_what_is_not_written():
    def kernel(inputs, outputs, done):
        outputs["a"][0] = inputs["x"][1]
        done[...] = True

    a, done, i = call(lambda ins, outs, done, i: kernel(ins, outs, done), ({"a": shape(3)}, shape(dtype=bool), shape(
        2, dtype=jnp.int32)), {"x": X[:3]}, input_output_aliases={0: 0})
    np.testing.assert_array_equal(a["a"], [1, 1, 2])
    assert bool(done) and i.tolist() == [np.iinfo(np.int32).min] * 2
    np.testing.assert_array_equal(call(lambda o_ref: None, shape(2)), [np.nan] * 2)
    assert call(lambda x_ref: None, (), X) == ()


def test_operands_known_beforehand_and_traced_grids():
    spec = pltpu.PrefetchScalarGridSpec(1, (2,), [pl.BlockSpec((4,), lambda i, order: (order[i],))],
                                        pl.BlockSpec((4,), lambda i, order: (i,)))

    def kernel(order_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] + order_ref[0]

    gather = lambda order, x: call(kernel, shape(8), order, x, grid_spec=spec)
    order = np.array([1, 0], np.int32)
    expected = [5, 6, 7, 8, 1, 2, 3, 4]
    np.testing.assert_array_equal(gather(order, X[:8]), expected)
    np.testing.assert_array_equal(jax.vmap(gather, (0, None))(np.stack([order, 1 - order]), X[:8]), [expected, X[:8]])

    @jax.jit
    def first(n, x):
        def copy(x_ref, o_ref):
            o_ref[pl.program_id(0)] = x_ref[pl.program_id(0)] * pl.num_programs(0)

        return call(copy, shape(4), x, grid=(n,))

    np.testing.assert_array_equal(first(2, X[:4]), [0, 2, np.nan, np.nan])


# --- in kernels --------------------------------------------------------------------------------------


def test_control_flow_on_refs():
    def kernel(x_ref, o_ref, n_ref):
        @pl.loop(0, 10, step=3)
        def _(i):
            o_ref[i] = x_ref[i]

        def grow(state):
            n_ref[...] += 1
            return state * 2

        last = lax.while_loop(lambda state: state < 100, grow, pl.program_id(0) + 3)
        lax.cond(last > 100, lambda: o_ref.__setitem__(1, 7.0), lambda: None)
        _, seen = lax.scan(lambda carry, i: (carry + x_ref[i], x_ref[i]), 0.0, jnp.arange(3))
        o_ref[pl.ds(4, 2)] = seen[1:]
        o_ref[2] = pl.run_scoped(lambda ref: (ref.__setitem__(0, 5.0), ref[0])[1], pltpu.VMEM((2,), F))
        n_ref[...] += pl.multiple_of(pl.program_id(0), 8)

    out, n = call(kernel, (shape(10), shape(dtype=jnp.int32)), X, grid=(1,), input_output_aliases={})
    np.testing.assert_array_equal(out, [0, 7, 5, 3, 1, 2, 6, np.nan, np.nan, 9])
    assert int(n) == np.iinfo(np.int32).min + 6


def test_masks_and_atomics():
    def kernel(x_ref, o_ref, old_ref, count_ref):
        i = jnp.arange(8)
        row = plt.load(x_ref.at[pl.ds(pl.program_id(0) * 8, 8)], mask=i + 8 * pl.program_id(0) < 10, other=-1.0)
        o_ref[pl.program_id(0)] = row
        plt.store(o_ref.at[0, i + 4], row, mask=i + 4 < 6)  # what is masked lies outside, too
        old_ref[...] = plt.atomic_add(count_ref, jnp.minimum(i[:3], 1), 10 ** i[:3])
        plt.atomic_max(count_ref, 2, 5, mask=pl.program_id(0) > 0)
        assert plt.atomic_cas(count_ref.at[3], 0, 9).dtype == jnp.int32

    start = jnp.zeros((4,), jnp.int32)
    out, old, count = call(lambda x, _, *outs: kernel(x, *outs), [shape(2, 8), shape(3, dtype=jnp.int32), shape(
        4, dtype=jnp.int32)], X, start, grid=(2,), input_output_aliases={1: 2})
    np.testing.assert_array_equal(out[1], [8, 9, *[-1] * 6])
    np.testing.assert_array_equal(out[0], [0, 1, 2, 3, 8, 9, 6, 7])
    assert old.tolist() == [1, 110, 120] and count.tolist() == [2, 220, 5, 9]


def test_debug_print_and_checks(capfd):
    def kernel(x_ref, o_ref):
        pl.debug_print("x0 = {}", x_ref[0])
        pl.debug_check(False, "not looked at")
        o_ref[...] = plt.approx_tanh(pl.reciprocal(x_ref[...]))

    out = call(kernel, shape(2), X[1:3])
    jax.effects_barrier()
    assert "x0 = 1.0" in capfd.readouterr().out
    np.testing.assert_allclose(out, np.tanh(1 / X[1:3]), rtol=1e-6)
    with pl.enable_debug_checks(), pytest.raises(AssertionError, match="not looked at"):
        call(kernel, shape(2), X[1:3])


def test_sizes_and_costs():
    assert (pl.cdiv(9, 4), pl.align_to(5, 4), pl.next_power_of_2(5), pl.next_power_of_2(0)) == (3, 8, 8, 1)
    assert pl.strides_from_shape((2, 3, 4)) == (12, 4, 1)
    cost = pl.estimate_cost(lambda x: jnp.sin(x) @ x, shape(4, 4))
    static = jax.jit(lambda x, how: getattr(jnp, how)(x) @ x, static_argnames="how")
    assert pl.estimate_cost(static, shape(4, 4), how="sin") == cost
    spec = pl.BlockSpec((2,), lambda i: (i,))
    grid = partial(pltpu.PrefetchScalarGridSpec, grid=(2,), in_specs=[pl.BlockSpec((2,), operator.pos)])
    assert pickle.loads(pickle.dumps(grid(1))) == grid(1) != grid(2)
    assert pl.GridSpec((2,)) == pl.GridSpec(2) != pl.GridSpec((3,))
    assert repr(pltpu.PrefetchScalarGridSpec(1, (2,))).startswith("PrefetchScalarGridSpec(grid=(2,), grid_names=None, in_")
    assert repr(grid(1)).endswith("scratch_shapes=(), num_scalar_prefetch=1)")
    assert pl.GridSpec((2,), [spec], [spec]).in_specs == (spec,) and pl.GridSpec((2,), [], [[spec]]).out_specs == ([spec],)
    with pytest.raises(ValueError, match="`in_specs` must be a tuple or a list"):
        pl.GridSpec((2,), {"x": spec})
    assert cost == pl.CostEstimate(flops=128, transcendentals=16, bytes_accessed=128)


# --- transformations ---------------------------------------------------------------------------------


def test_jaxpr():
    block = pl.BlockSpec((4,), lambda i: (i,))
    text = str(jax.make_jaxpr(pl.pallas_call(add, shape(8), grid=2, in_specs=[block, block], out_specs=block, interpret=True))(
        X[:8], X[:8]))
    blocks = ", ".join(["BlockMapping(block_shape=(Blocked(block_size=4),))"] * 3)
    assert text == f"""{{ lambda ; a:f32[8] b:f32[8]. let
    c:f32[8] = pallas_call[
      compiler_params=None
      cost_estimate=None
      debug=False
      grid_mapping=GridMapping(grid=(2,), block_mappings=({blocks}))
      input_output_aliases=()
      interpret=True
      jaxpr={{ lambda ; d:Ref<default>{{f32[4]}} e:Ref<default>{{f32[4]}} f:Ref<default>{{f32[4]}}. let
          g:f32[4] <- d[...]
          h:f32[4] <- e[...]
          i:f32[4] = add g h
          j:f32[4], f[...] <- f[...], i
        in () }}
      mesh=None
      metadata=None
      name=None
      out_avals=(ShapedArray(float32[8]),)
    ] a b
  in (c,) }}"""


def test_transformations():
    block = pl.BlockSpec((1, 4), lambda i: (i, 0))

    def square(x_ref, scale_ref, o_ref):
        o_ref[...] = x_ref[...] ** 2 * scale_ref[0]

    f = pl.pallas_call(square, shape(2, 4), grid=(2,), in_specs=[block, pl.BlockSpec()], out_specs=block, interpret=True)
    x, scale = X[:8].reshape(2, 4), np.array([3], np.int32)
    value, tangent = jax.jvp(lambda x: f(x, scale), (x,), (np.ones_like(x),))
    np.testing.assert_array_equal(value, 3 * x**2)
    np.testing.assert_array_equal(tangent, 6 * x)
    batch = np.stack([x, x + 1, x + 2])
    np.testing.assert_array_equal(jax.vmap(f, (1, None), 1)(batch.swapaxes(0, 1), scale), (3 * batch**2).swapaxes(0, 1))
    np.testing.assert_array_equal(jax.checkpoint(f)(x, scale), 3 * x**2)
    with pytest.raises(ValueError, match="does not support reverse-mode"):
        jax.grad(lambda x: f(x, scale).sum())(x)


def test_aliased_input_of_a_batch():
    def bump(x_ref, y_ref, o_ref):
        o_ref[...] += y_ref[...]

    f = pl.pallas_call(bump, shape(3), input_output_aliases={0: 0}, interpret=True)
    y = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(jax.vmap(f, (None, 0))(X[:3], y), X[:3] + y)


# --- errors ------------------------------------------------------------------------------------------

ERRORS = {
    "Only interpret mode is supported on CPU backend": lambda: pl.pallas_call(double, shape(10))(X),
    "should return None. It returns a PyTree": lambda: call(lambda x, o: x[...], shape(10), X),
    r"captures constants \[f32\[10\]\]": lambda: call(lambda o: o.__setitem__(..., jnp.asarray(X)), shape(10)),
    r"Block shape for args\[0\] .* must have the same number of dimensions": lambda: call(
        double, shape(10), X, in_specs=[pl.BlockSpec((2, 2), lambda: (0, 0))]),
    "must return 1 values to match": lambda: call(
        double, shape(10), X, grid=2, in_specs=[pl.BlockSpec((5,), lambda i: (i, i))]),
    "must return integer scalars": lambda: call(double, shape(10), X, grid=2, in_specs=[pl.BlockSpec((5,), lambda i: (0.5,))]),
    "Pytree for `in_specs` and `inputs` do not match": lambda: call(double, shape(10), X, in_specs=[pl.BlockSpec()] * 2),
    "Grid must be a tuple of integers": lambda: call(double, shape(10), X, grid=(1.5,)),
    "then `grid` must be": lambda: call(double, shape(10), X, grid=(1,), grid_spec=pl.GridSpec((1,))),
    "Axis 1 is out of bounds for grid": lambda: call(lambda x, o: o.__setitem__(0, pl.program_id(1)), shape(10), X, grid=1),
    "outside of a kernel": lambda: pl.program_id(0),
    "Invalid out_shape type": lambda: pl.pallas_call(double, (10,)),
    "referring to an input with abstract value": lambda: call(double, shape(9), X, input_output_aliases={0: 0}),
    "outside the range": lambda: call(double, shape(10), X, input_output_aliases={1: 0}),
    "Invalid shape for `swap`": lambda: call(lambda x, o: o.__setitem__(..., x[:3]), shape(10), X),
    "only accepts scalar integer types": lambda: call(lambda x, o: plt.atomic_and(o, 0, 1.0), shape(10), X),
}


@pytest.mark.parametrize("message", ERRORS)
def test_errors(message):
    with pytest.raises(ValueError, match=message):
        ERRORS[message]()


# --- for a GPU or a TPU, without one -----------------------------------------------------------------


def for_platform(platform, kernel, *args, out=None, **options):
    function = pl.pallas_call(kernel, out or shape(8), **options)
    return jax.jit(function).trace(*args).lower(lowering_platforms=(platform,)).as_text()


for_cuda = partial(for_platform, "cuda")


def test_triton_module():
    block = pl.BlockSpec((4,), lambda i: (i,))
    text = for_cuda(double, X, grid=(2,), in_specs=[block], out_specs=block,
                    name="twice", compiler_params=plt.CompilerParams(num_warps=2))
    assert "__gpu$xla.gpu.triton" in text and "grid_x = 2" in text and "num_warps = 2" in text
    for part in ("tt.func public @twice", "tt.get_program_id x", "tt.make_range {end = 4 : i32, start = 0 : i32}", "tt.load",
                 "arith.mulf", "tt.store"):
        assert part in text, part
    assert text.count("arith.cmpi slt") == 1  # blocks of the input may reach beyond its ten elements


def test_views_and_hints_for_triton():
    """Where the mesh of the context has explicit axes, too."""
    def kernel(x_ref, o_ref):
        columns = jnp.arange(8)
        o_ref[...] = x_ref.bitcast(jnp.int32).at[2:4].reshape(2, 2, 4)[pl.program_id(0)]
        plt.store(o_ref.reshape(8), plt.load(x_ref.at[0], mask=columns < 5, other=0.0, eviction_policy="evict_last",
                                             cache_modifier=".cg").astype(jnp.int32))
        plt.atomic_add(o_ref.reshape(8), columns, columns)

    def run(interpret):
        return pl.pallas_call(kernel, jax.ShapeDtypeStruct((2, 4), jnp.int32), grid=1, interpret=interpret)(x)

    x = jnp.arange(32.0).reshape(4, 8)
    np.testing.assert_array_equal(run(True), [[0, 2, 4, 6], [8, 5, 6, 7]])
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((2,), ("x",), (jax.sharding.AxisType.Explicit,))):
        module = jax.jit(lambda: run(False)).trace().lower(lowering_platforms=("cuda",)).as_text()
    for part in ("arith.remui", "!tt.ptr<f32> -> !tt.ptr<i32>", "{cache = 3 : i32, evict = 3 : i32}"):
        assert part in module, part
    with pytest.raises(NotImplementedError, match="a Ref of float32 is not seen as int16"):
        jax.jit(pl.pallas_call(lambda x, o: o.__setitem__(..., x.bitcast(jnp.int16)[...]), jax.ShapeDtypeStruct(
            (8, 8), jnp.int16))).trace(x).lower(lowering_platforms=("cuda",))
    rounds = pl.pallas_call(lambda x, o: o.__setitem__(..., jax.lax.reduce_precision(x[...], 8, 7)), jax.ShapeDtypeStruct(
        (4, 8), jnp.float32))
    for platform in ("cuda", "tpu"):
        assert "custom_call" in jax.jit(rounds).trace(x).lower(lowering_platforms=(platform,)).as_text()


def test_what_triton_has_not():
    with pytest.raises(ValueError, match="whose size is a power of 2. Encountered an array of shape"):
        for_cuda(lambda x, o: o.__setitem__(0, x[...].sum()), X)
    with pytest.raises(NotImplementedError, match="Unimplemented primitive in Pallas Triton lowering: sort"):
        for_cuda(lambda x, o: o.__setitem__(..., jnp.sort(x[...])), X[:8])
    with pytest.raises(ValueError, match="num_warps is a power of two"):
        for_cuda(double, X[:8], compiler_params=plt.CompilerParams(num_warps=3))
    with pytest.raises(ValueError, match="float8_e5m2 is not supported .* convert to float32 first"):
        for_cuda(lambda x, o: o.__setitem__(..., (x[...] * x[...]).astype(F)), X[:8].astype(jnp.float8_e5m2))
    with pytest.raises(NotImplementedError, match="scratch memory"):
        for_cuda(lambda x, o, s: None, X[:8], scratch_shapes=[pltpu.VMEM((8,), F)])


def test_mosaic_module(capsys):
    def kernel(x_ref, y_ref, o_ref, total_ref):
        total_ref[...] = jnp.dot(x_ref[...], y_ref[...])
        o_ref[...] = jnp.exp(total_ref[...]) + total_ref[...].sum(1, keepdims=True)

    x = np.ones((16, 128), np.float32)
    text = for_platform("tpu", kernel, x, np.ones((128, 128), np.float32), out=shape(16, 128), grid=2, debug=True, in_specs=[
        pl.BlockSpec((8, 128), rows), pl.BlockSpec()], out_specs=pl.BlockSpec((8, 128), rows), scratch_shapes=[
        pltpu.VMEM((8, 128), F)])
    assert "tpu_custom_call" in text
    module = capsys.readouterr().out
    for part in ("iteration_bounds = array<i64: 2>", "scratch_operands = 1", "tpu.matmul", "math.exp",
                 "vector.multi_reduction <add>", "window_bounds = array<i64: 8, 128>", "func.func @transform_2"):
        assert part in module, part
    with pytest.raises(NotImplementedError, match="Unimplemented primitive in Pallas Mosaic TPU lowering: sort"):
        for_platform("tpu", lambda x, o: o.__setitem__(..., jnp.sort(x[...])), X[:8])


def test_run_scoped_takes_kinds_of_memory():
    with pytest.raises(TypeError, match=r"run_scoped takes kinds of memory, such as tpu.VMEM\(shape, dtype\), got 3"):
        pl.pallas_call(lambda o_ref: pl.run_scoped(lambda ref: None, 3), shape(8), interpret=True)()
