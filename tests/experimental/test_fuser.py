"""`jax.experimental.pallas.fuser`: functions that kernels compute block by block, beside the functions on whole arrays."""

import itertools

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.experimental import pallas as pl
from jaxlite.experimental.pallas import fuser

F32 = np.float32
of = lambda *shape: jax.ShapeDtypeStruct(shape, F32)


def numbers(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(F32)


def blocks(array, spec, ids, prefetch=()):
    """The block of an array that a spec names, by NumPy alone."""
    if spec is pl.no_block_spec or spec.block_shape is None:
        return array
    index = []
    for dim, place in zip(spec.block_shape, spec.index_map(*ids, *prefetch), strict=True):
        size = getattr(dim, "block_size", dim)
        place = int(place)
        seen = size is not None and not isinstance(dim, pl.Squeezed)
        start = place if isinstance(dim, pl.Element) or not seen else place * size
        index.append(slice(start, start + size) if seen else place)
    return np.asarray(array)[tuple(index)]


def check(f, out, counts, *args):
    """The function on blocks gives the blocks of the function's result, at all places; returns the arguments' specs."""
    fun, values, scalars = fuser.get_fusion_values(f, *args)
    kernel, (value_specs, *specs), _ = fuser.pull_block_spec(
        fun, out, scalar_prefetch_handler=fuser.make_scalar_prefetch_handler(0), grid_len=len(counts))(values, *args)
    whole, prefetch = f(*args), (tuple(np.asarray(scalar)[None] for scalar in scalars),) if scalars else ()
    for ids in itertools.product(*map(range, counts)):
        given = [[blocks(value, spec, ids, prefetch) for value, spec in zip(values, value_specs, strict=True)],
                 *[blocks(arg, spec, ids, prefetch) for arg, spec in zip(args, specs, strict=True)]]
        found = kernel(ids, prefetch, tuple(given[0]), *given[1:])
        np.testing.assert_allclose(found, blocks(whole, out, ids), rtol=1e-5, atol=1e-6)
    return specs


ROWS = pl.BlockSpec((4, 8), lambda i, j, *scalars: (i, j))
X, Y, BIG = numbers(8, 16), numbers(16, 8), numbers(3, 8, 16)


@pytest.mark.parametrize(("f", "spec", "counts", "arg", "shape"), [
    (lambda x: jax.nn.gelu(x) + jnp.where(x > 0, x, 2 * x), ROWS, (2, 2), X, (4, 8)),
    (lambda x: jax.jit(jnp.tanh)(x) * jnp.arange(16, dtype=F32), ROWS, (2, 2), X, (4, 8)),
    (lambda y: y.T, ROWS, (2, 2), numbers(16, 8), (8, 4)),
    (lambda y: y.T, pl.BlockSpec((None, 8), lambda i, j: (i, j)), (8, 2), numbers(16, 8), (8, None)),
    (lambda x: x[None], pl.BlockSpec((1, 4, 8), lambda i, j: (0, i, j)), (2, 2), X, (4, 8)),
    (lambda x: x[:, 0, :], ROWS, (2, 2), numbers(8, 3, 16), (4, None, 8)),
    (lambda x: x[1], ROWS, (2, 2), BIG, (None, 4, 8)),
    (lambda x: x[4:], ROWS, (1, 2), X, (4, 8)),
    (lambda x: x[2:6], ROWS, (1, 2), X, None),  # no multiple of a block: cut out of the whole
    (lambda x: x[2:6], pl.BlockSpec((pl.Element(2), pl.Element(8)), lambda i, j: (2 * i, 8 * j)), (2, 2), X, None),
    (lambda x: jnp.cumsum(x, 0), ROWS, (2, 2), X, None),
    (lambda x: jnp.broadcast_to(x[:1], (8, 16)), ROWS, (2, 2), X, (1, 8)),
    (lambda x: x.sum(0) + x.max(0), ROWS, (2, 2), BIG, (3, 4, 8)),
    (lambda x: x.sum() + jnp.zeros((8, 16)), ROWS, (2, 2), X, None),
    (lambda x: jnp.argmax(x, 0).astype(F32), ROWS, (2, 2), BIG, (3, 4, 8)),
    (lambda x: x.reshape(8, 16), ROWS, (2, 2), numbers(2, 4, 16), (1, 4, 8)),
    (lambda x: x.reshape(8, 16), ROWS, (2, 2), numbers(128), None),
    (lambda x: x.reshape(8, 16), pl.BlockSpec((2, 16), lambda i, j: (i, 0)), (4, 1), numbers(128), (32,)),
    (lambda x: x.reshape(2, 4, 16), pl.BlockSpec((1, 2, 8), lambda i, j: (i, 1, j)), (2, 2), X, (2, 8)),
    (lambda x: jnp.concatenate([x, BIG[0, :, :8]], 1), pl.BlockSpec((4, 24), lambda i, j: (i, j)), (2, 1), X, (4, 16)),
    (lambda x: jnp.split(x, 2)[1] - jnp.split(x, 2)[1], ROWS, (1, 2), X, (4, 8)),
    (lambda x: x @ Y, ROWS, (2, 1), X, (4, 16)),
    (lambda x: x @ Y, pl.BlockSpec((None, 8), lambda i, j: (i, j)), (8, 1), X, None),
])
def test_blocks_of_a_function_are_the_function_of_blocks(f, spec, counts, arg, shape):
    (found,) = check(f, spec, counts, arg)
    if shape is None:
        return
    sizes = [getattr(dim, "block_size", None if isinstance(dim, pl.Squeezed) else dim) for dim in found.block_shape]
    assert sizes == list(shape)


def test_a_concatenation_chooses_among_its_parts():
    f = lambda x, y: jnp.concatenate([x, y])
    check(f, pl.BlockSpec((4, 8), lambda i, j: (i, j)), (6, 2), X, numbers(16, 16))


def test_a_value_that_is_no_argument_may_be_needed_in_several_blocks():
    def causal(scores):
        places = jnp.arange(16)
        return jnp.where(places[:8, None] >= places[None, :], scores, -1.0)

    check(causal, ROWS, (2, 2), X)
    with pytest.raises(ValueError, match="cannot uniquely pull"):
        fuser.pull_block_spec(lambda x: x + x.T, pl.BlockSpec((4, 4), lambda i, j: (i, j)), grid_len=2)(of(8, 8))
    same = lambda x: jnp.transpose(x.T + 1) + x  # two ways to one block
    check(same, ROWS, (2, 2), X)


def test_scalars_that_say_where_a_slice_starts_are_prefetched():
    start = jnp.int32(1)
    f = lambda x: lax.dynamic_index_in_dim(x, start + 1, keepdims=False) * 2
    _, values, scalars = fuser.get_fusion_values(f, BIG)
    assert values == () and [int(each) for each in scalars] == [1]
    (spec,) = check(f, ROWS, (2, 2), BIG)
    assert [int(each) for each in spec.index_map(1, 0, (np.array([0]),))] == [1, 1, 0]  # another scalar, another place
    with pytest.raises(ValueError, match="from an array"):
        starts = jnp.arange(3)
        fuser.pull_block_spec(lambda x: lax.dynamic_index_in_dim(x, starts[1], keepdims=False), ROWS, grid_len=2)(BIG)
    with pytest.raises(ValueError, match="close over that scalar"):
        kernel, (spec, _), _ = fuser.pull_block_spec(lambda x, i: x[i], ROWS, grid_len=2)(BIG, start)
        spec.index_map(0, 0)


def test_a_key_is_folded_with_the_place_of_a_block():
    key = jax.random.key(0)
    f = lambda x: x + jax.random.uniform(key, x.shape)
    fun, values, _ = fuser.get_fusion_values(f, of(8, 16))
    kernel, ((spec,), _), _ = fuser.pull_block_spec(fun, ROWS, grid_len=2)(values, of(8, 16))
    assert spec.block_shape is None and spec.memory_space == pl.MemorySpace.KEY
    one, two = (kernel(ids, (), values, np.zeros((4, 8), F32)) for ids in ((0, 0), (0, 1)))
    assert one.shape == (4, 8) and (0 <= one).all() and (one < 1).all() and not np.array_equal(one, two)


@pytest.mark.parametrize(("f", "arg", "spec", "shape", "place"), [
    (lambda x: jax.nn.relu(x) + 1, of(8, 16), ROWS, (4, 8), (1, 2)),
    (lambda x: x.T, of(8, 16), ROWS, (8, 4), (2, 1)),
    (lambda x: x[None], of(8, 16), ROWS, (1, 4, 8), (0, 1, 2)),
    (lambda x: x.reshape(4, 8, 4), of(32, 4), pl.BlockSpec((4, 4), lambda i, j: (i, 0)), (1, 4, 4), (0, 1, 0)),
    (lambda x: x.sum(1), of(8, 8), pl.BlockSpec((4, 8), lambda i, j: (i, 0)), (4,), (1,)),
    (lambda x: jnp.concatenate([x, x], 1), of(8, 8), pl.BlockSpec((4, 8), lambda i, j: (i, 0)), (4, 16), (1, 0)),
    (lambda x: x @ jnp.ones((8, 24)), of(8, 8), pl.BlockSpec((4, 8), lambda i, j: (i, 0)), (4, 24), (1, 0)),
    (lambda x: jnp.sort(x), of(8, 16), pl.BlockSpec((8, 16), lambda i, j: (0, 0)), (8, 16), (0, 0)),
])
def test_blocks_of_arguments_give_those_of_results(f, arg, spec, shape, place):
    found, out = fuser.push_block_spec(f, spec, return_out_type=True)(arg)
    assert found.block_shape == shape and found.index_map(1, 2) == place
    assert out == jax.eval_shape(f, arg)
    with pytest.raises(NotImplementedError, match="cumsum"):
        fuser.push_block_spec(lambda x: jnp.cumsum(x, 0), ROWS)(of(8, 16))


# --- fuse ----------------------------------------------------------------------------------------


@fuser.fusible
def product(x, y, after):
    """A product of matrices, with what comes before and after it in its kernel."""
    (m, k), n = x.shape, y.shape[1]
    grid = m // 4, n // 8
    out = pl.BlockSpec((4, 8), lambda i, j: (i, j))
    parts = []
    for fusion, spec in ((x, pl.BlockSpec((4, k), lambda i, j: (i, 0))), (y, pl.BlockSpec((k, 8), lambda i, j: (0, j)))):
        fun, values, _ = fuser.get_fusion_values(fusion)
        kernel, (specs,), _ = fuser.pull_block_spec(fun, spec, grid_len=2)(values)
        parts.append((kernel, values, specs))
    after = after or fuser.Fusion(lambda r: (r,), ((of(m, n),), {}), (of(m, n),))
    fun, values, _ = fuser.get_fusion_values(after, of(m, n))
    kernel, specs, _, types, outs = fuser.push_pull_block_spec(fun, out, grid_len=2)(values, of(m, n))
    parts.append((kernel, values, specs))

    def body(*refs):
        ids = pl.program_id(0), pl.program_id(1)
        x, y, own = (jax.tree.map(lambda ref: ref[...], tree) for tree in refs[:3])
        result = jnp.dot(parts[0][0](ids, (), x), parts[1][0](ids, (), y))
        for ref, value in zip(refs[3:], parts[2][0](ids, (), own, result), strict=True):
            ref[...] = value

    found = pl.pallas_call(body, types, grid=grid, in_specs=[part[2] for part in parts], out_specs=outs, interpret=True)(
        *[part[1] for part in parts])
    return found[0] if len(found) == 1 else found


def test_what_is_around_a_kernel_runs_in_it():
    x, y, bias = numbers(8, 16), numbers(24, 16), numbers(24)

    def layer(x, y):
        r = product(jnp.sin(x) * 2, jax.jit(jnp.transpose)(y))
        return {"out": jax.nn.relu(r + bias), "t": r.T, "x": x + 1}

    expected = np.sin(x) * 2 @ y.T
    fused = jax.jit(fuser.fuse(layer))
    for found in (layer(x, y), fused(x, y)):
        np.testing.assert_allclose(found["out"], np.maximum(expected + bias, 0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found["t"], expected.T, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found["x"], x + 1)
    # All but what does not depend on the kernel is in its program.
    names = [eqn.primitive.name for eqn in jax.make_jaxpr(fuser.fuse(layer))(x, y).eqns]
    assert "pallas_call" in names and not {"sin", "transpose", "max", "dot_general"} & set(names)
    assert [eqn.primitive.name for eqn in jax.make_jaxpr(layer)(x, y).eqns].count("fusible") == 1


def test_fuse_takes_static_arguments_and_wants_a_fusible_function():
    x, y = numbers(4, 8), numbers(8, 8)
    scaled = fuser.fuse(lambda x, y, how: product(getattr(jnp, how)(x), y), static_argnames="how")
    np.testing.assert_allclose(scaled(x, y, how="cos"), np.cos(x) @ y, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(fuser.fuse(lambda x, y: scaled(x, y, how="cos"))(x, y), np.cos(x) @ y, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="no fusible function"):
        fuser.fuse(jnp.sin)(x)


def test_parts_of_results_have_fusions_of_their_own():
    seen = []

    @fuser.fusible(output_fusion_prefix=(True, True))
    def both(x, after):
        seen.append(after)
        parts = x(), x() + 1
        done = [part if each is None else each(part) for part, each in zip(parts, after, strict=True)]
        return tuple(done)

    def f(x):
        one, two = both(x)
        return two * 3, one, two * 5

    np.testing.assert_allclose(fuser.fuse(f)(np.arange(3.0)), [[3, 6, 9], [0, 1, 2], [5, 10, 15]])
    assert seen[0] == (None, None) and seen[1][0] is None and seen[1][1].out_type == (jax.typeof(jnp.ones(3)),) * 2
    with pytest.raises(ValueError, match="several parts"):
        fuser.fuse(lambda x: sum(both(x)))(np.arange(3.0))


# --- rules of users, Refs, and small helpers ---------------------------------------------------------


def test_an_operation_takes_part_by_rules_of_its_own():
    @fuser.custom_fusion
    def mirrored(x, scale):
        return x[::-1] * scale

    with pytest.raises(ValueError, match="def_eval_rule"):
        mirrored(X, 2.0)
    places = []

    @mirrored.def_pull_block_spec
    def _(outs):
        (out,) = outs
        return [out.replace(block_index_transform=lambda *at: (1 - out.block_index_transform(*at)[0],
                                                               out.block_index_transform(*at)[1])), None]

    @mirrored.def_eval_rule
    def _(ctx, x, scale):
        places.append(tuple(map(int, ctx.out_block_indices[0])))
        return [x[::-1] * scale]

    check(lambda x: mirrored(jnp.sin(x), 2.0) + 1, ROWS, (2, 2), X)
    assert places == [(0, 0), (0, 1), (1, 0), (1, 1)]
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: mirrored(x, 3.0).sum()))(X), np.full((8, 16), 3.0))
    mirrored.def_push_block_spec(lambda specs: (specs[0],))
    assert fuser.push_block_spec(lambda x: mirrored(x, 2.0), ROWS)(of(8, 16)) is ROWS


def test_refs_that_a_fusion_reads_or_writes_become_values():
    ref, other = jax.new_ref(jnp.arange(4.0)), jnp.ones(4)
    with pytest.raises(ValueError, match="closes over a Ref"):
        fuser.get_fusion_values(lambda: ref[...] + other)
    f, values, _ = fuser.get_stateful_input_fusion_values(lambda: ref[...] + other)
    assert [value is ref for value in values] == [True, False]
    np.testing.assert_allclose(f([jnp.full(4, 5.0), other]), np.full(4, 6.0))

    def after(x):
        ref[...] += x
        return 2 * x

    f, values, _, aliases = fuser.get_stateful_output_fusion_values(after, of(4))
    out, (content,) = f([jnp.ones(4)], np.full(4, 3.0, F32))
    assert aliases == {1: 0} and values[0] is ref
    np.testing.assert_allclose([out, content], [[6.0] * 4, [4.0] * 4])


def test_small_helpers():
    found = fuser.filter_no_block_specs({"a": 1, "b": 2}, {"a": ROWS, "b": pl.no_block_spec})
    assert found == ({"a": 1, "b": None}, {"a": ROWS, "b": None})
    (spec,) = fuser.block_spec_with_prefetch([pl.BlockSpec((4,), lambda i, s: (i + s,))], (5,))
    assert spec.index_map(2) == (7,)
    assert fuser.make_scalar_prefetch_handler(1, 0)("a", ("b", "c")) == "b"
    np.testing.assert_allclose(fuser.evaluate(lambda x: x.T + 1)(X), X.T + 1)
    with pytest.raises(ValueError, match="a transpose"):
        fuser.evaluate(lambda x: x.T, allow_transpose=False)(X)
    with pytest.raises(NotImplementedError, match="scan"):
        fuser.evaluate(lambda x: lax.scan(lambda c, v: (c + v, c), 0.0, x)[0])(np.ones(3))
