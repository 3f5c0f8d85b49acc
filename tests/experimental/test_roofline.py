"""Costs of programs, counted by hand; those of collectives on a torus are JAX's."""

from __future__ import annotations

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.core import ShapedArray
from jaxlite.experimental import roofline as module
from jaxlite.experimental.roofline import RooflineResult, RooflineShape, register_roofline, roofline, roofline_and_grad
from jaxlite.extend.core import Primitive
from jaxlite.sharding import AbstractMesh
from jaxlite.sharding import PartitionSpec as P

X, Y = (jax.ShapeDtypeStruct(shape, np.float32) for shape in ((4, 8), (8, 16)))
IMAGE, KERNEL = (jax.ShapeDtypeStruct(shape, np.float32) for shape in ((2, 3, 8, 8), (4, 3, 3, 3)))
BYTES = 4 * 32  # of X


@pytest.mark.parametrize(("fun", "args", "flops", "unfused", "moved", "peak"), [
    (jnp.sin, (X,), 0, 32, 2 * BYTES, BYTES), (lambda x: x + 1, (X,), 0, 32, 2 * BYTES + 4, BYTES),
    (lambda x: jnp.sin(x) * x, (X,), 0, 64, 5 * BYTES, 2 * BYTES), (lambda x, y: x.T, (X, Y), 0, 0, 0, BYTES),
    (lambda x: x.sum(1), (X,), 0, 28, BYTES + 16, BYTES), (lambda x: jax.jit(jnp.cos)(x)[None], (X,), 0, 32, 2 * BYTES, BYTES),
    (lambda x, y: x @ y, (X, Y), 2 * 4 * 8 * 16, 2 * 4 * 8 * 16, 4 * (32 + 128 + 64), 4 * (32 + 128)),
    (lambda x: jnp.broadcast_to(x, (10, 4, 8)).sum() + x.sum(), (X,), 0, 319 + 31 + 1, 12 * BYTES - BYTES + 8 + 12, 11 * BYTES),
    (lambda x: lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=9)[0], (X,), 0, 32, 2 * BYTES, BYTES),
    (lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME"), (IMAGE, KERNEL), 0, 2 * (22 * 22) * 2 * 4 * 3,
     4 * (384 + 108 + 512), 4 * 512),
    (lambda x, k: lax.conv_general_dilated(x, k, (2, 2), "VALID", rhs_dilation=(2, 2)), (IMAGE, KERNEL), 0, 2 * (6 * 6) * 24,
     4 * (384 + 108 + 32), 4 * (384 + 108)),
])
def test_costs(fun, args, flops, unfused, moved, peak):
    out, cost = roofline(fun)(*args)
    assert jax.tree.map(lambda each: each.shape, out) == jax.eval_shape(fun, *args).shape
    assert (cost.flops, cost.unfused_flops, cost.unfused_hbm_bytes, cost.peak_hbm_bytes) == (flops, unfused, moved, peak)
    assert cost.hbm_bytes == (moved if flops else 0) and cost.ici_bytes == {}


def test_options_of_products_and_gradients(capsys):
    cost = lambda **options: roofline(jnp.matmul, **options)(X, Y)[1]
    assert cost(pin_lhs_in_vmem=True).hbm_bytes == 4 * 128 and cost(pin_rhs_in_vmem=True).hbm_bytes == 4 * (32 + 64)
    assert cost(vjp=True).flops == 3 * cost().flops
    out, forward, both = roofline_and_grad(lambda x: jnp.sin(x) @ x.T, None, None, None, print_jaxpr=True)(X)
    assert out.shape == (4, 4) and forward.flops == 256 and both.flops == 768 and both.hbm_bytes == 480  # in bfloat16
    assert capsys.readouterr().out.count("lambda") == 2


@pytest.mark.parametrize(("sizes", "fun", "moved", "latency"), [
    ((4,), lambda v: lax.psum(v, "a"), 192, 8), ((2, 2), lambda v: lax.psum(v, ("a", "b")), 96, 8),
    ((2, 2), lambda v: lax.pmax(v, ("a", "b")), 96, 8), ((5,), lambda v: lax.all_gather(v, "a", tiled=True), 640, 5),
    ((3,), lambda v: lax.psum_scatter(v, "a", tiled=True), 64, 3),
    ((2,), lambda v: lax.all_to_all(v, "a", 0, 0, tiled=True), 64, 1),
    ((8,), lambda v: lax.all_to_all(v, "a", 0, 0, tiled=True), 512, 4),
    ((2, 4), lambda v: lax.all_to_all(v, ("a", "b"), 0, 0, tiled=True), 512, 3),
    ((6,), lambda v: lax.ppermute(v, "a", [(i, (i + 2) % 6) for i in range(6)]), 384, 2),
    ((4,), lambda v: lax.ppermute(v, "a", [(0, 3)]), 128, 1), ((2,), lambda v: lax.ppermute(v, "a", [(0, 1), (1, 0)]), 128, 1),
    ((2, 4), lambda v: lax.ppermute(v, ("a", "b"), [(i, (i + 1) % 8) for i in range(8)]), 512, 2),
])
def test_collectives(sizes, fun, moved, latency):
    """Of 32 n bytes on each of n devices."""
    names = ("a", "b")[:len(sizes)]
    count, where = int(np.prod(sizes)), P(names)
    whole = jax.ShapeDtypeStruct((2 * count * count, 4), np.float32)
    out_specs = P() if {"psum", "pmax"} & set(fun.__code__.co_names) else where
    out, cost = roofline(fun, AbstractMesh(sizes, names), (where,), out_specs)(whole)
    assert cost.ici_bytes == dict.fromkeys(names, moved) and cost.ici_latency == dict.fromkeys(names, latency)
    assert out.sharding.spec == out_specs and cost.peak_hbm_bytes >= 32 * count


def test_rules_of_users(capsys):
    primitive = Primitive("costs_much")
    primitive.def_abstract_eval(lambda x, *, times: ShapedArray(x.shape, x.dtype))
    fun = lambda x: primitive.bind(x, times=3)
    assert roofline(fun)(X)[1] == RooflineResult(peak_hbm_bytes=BYTES)
    assert capsys.readouterr().out == "No roofline rule for costs_much, skipping...\n"

    @register_roofline(primitive)
    def rule(ctx, x, *, times):
        assert ctx.primitive is primitive and ctx.avals_in[0].shape == x.shape and not ctx.pin_lhs_in_vmem
        return RooflineResult(flops=times * x.size)

    assert roofline(fun)(X)[1].flops == 96
    module.register_standard_roofline(primitive)
    assert roofline(fun)(X)[1].flops == 0 and capsys.readouterr().out == ""


def test_results_are_added():
    one = RooflineResult(flops=1, ici_bytes={"a": 2}, peak_hbm_bytes=5)
    assert one + RooflineResult(flops=2, ici_bytes={"a": 1, "b": 3}, peak_hbm_bytes=4) == RooflineResult(
        flops=3, ici_bytes={"a": 3, "b": 3}, peak_hbm_bytes=5)
    assert RooflineResult.zeros() + one == one
    assert RooflineShape.from_aval(jax.typeof(np.ones((2, 3), np.float16))).bytes == 12
    assert RooflineShape.total_bytes([jax.typeof(1.0)] * 2) == 8
