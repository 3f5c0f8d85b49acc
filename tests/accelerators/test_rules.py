"""Every rule of `lowering/rules` compiles for an H100 and for a TPU v5e. Needs their plugins."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re

import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.core import config
from jaxlite.core.jaxpr import jaxprs_in_params
from jaxlite.experimental import buffer_callback, io_callback, topologies
from jaxlite.lax import linalg
from jaxlite.sharding import NamedSharding
from jaxlite.sharding import PartitionSpec as P
from lowering import platforms, rules
from tests.accelerators import test_compiling
from tests.accelerators.test_compiling import TARGETS, C, F, I, K, compiled


@pytest.fixture(scope="module", params=TARGETS)
def topology(request):
    if platforms.plugin_of(TARGETS[request.param]) is None:
        pytest.skip(f"the plugin for {TARGETS[request.param]} is not installed: make test-accelerators does that")
    return topologies.get_topology_desc({"h100": "h100:4"}.get(request.param, request.param))


def elements(x, z, n, u):
    functions = [
        lax.acos, lax.acosh, lax.asin, lax.asinh, lax.atan, lax.atanh, lax.bessel_i1e, lax.bessel_i0e, lax.cbrt,
        lax.ceil, lax.cosh, lax.sinh, lax.tan, lax.digamma, lax.erf, lax.erfc, lax.exp2, lax.expm1, lax.floor,
        lax.log1p, lax.logistic, lax.rsqrt, lax.square, lax.is_finite, lax.round, lambda x: lax.integer_pow(x, 3),
        lambda x: lax.reduce_precision(x, 8, 7)]
    total = sum(function(x).astype(F) for function in functions)
    total += lax.atan2(x, x) + lax.min(x, x) + lax.nextafter(x, x) + lax.pow(x, x) + lax.rem(x, x) + lax.clamp(0.0, x, 1.0)
    total += lax.polygamma(x, x) + lax.zeta(x, x) + lax.igammac(x, x) + lax.betainc(x, x, x) + lax.igamma_grad_a(x, x)
    total += lax.real(z) + lax.imag(z) + lax.conj(z).real + lax.complex(x, x).real + lax.acos(z).real + lax.tan(z).real
    return total, lax.clz(n) + lax.population_count(n) + lax.shift_right_arithmetic(n, n), lax.mulhi(u, u)


def shapes(x, i):
    y = lax.dynamic_update_slice(x, lax.dynamic_slice(x, (i, 0), (2, 3)), (i, 0))
    return (lax.split(x, (2, 3, 4), 0), lax.tile(x, (2, 1)), lax.pad(x, 0.0, ((1, 1, 1), (0, -1, 0))), lax.rev(x, (0,)), y,
            jnp.copy(y), jnp.unstack(x[:2]), jnp.stack([x, x]), lax.reshape(x, (27,)), lax.empty((3,), F))


def reductions(x, n):
    both = lax.reduce((x, n), (0.0, 0), lambda a, b: (a[0] + b[0], a[1] * b[1]), (0,))
    return (lax.cummax(x), lax.cummin(x), lax.cumprod(x), lax.cumlogsumexp(x), jnp.argmin(x), x.max(), x.min(), x.prod(),
            (x > 0).all(), (x > 0).any(), lax.reduce_xor(n, (0,)), both, x == x, jax.grad(lambda x: lax.cumprod(x).sum())(x))


def windows(x):
    def window(how, start):
        return lax.reduce_window(x, start, how, (2, 2), (1, 1), "SAME")

    total = lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "VALID").sum()
    return (window(lax.add, 0.0), window(lax.min, jnp.inf), window(lax.mul, 1.0), window(lambda a, b: a * b + a, 1.0),
            jax.grad(total)(x))


def pooling(x):
    """XLA:TPU has no gradient of windows along the last two axes."""
    pool = lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2, 1, 1), (1, 1, 1, 1), "VALID").sum()
    return jax.grad(pool)(x), jax.jvp(jax.grad(pool), (x,), (x,))[1]


def scatters(x, i, u):
    at = x.at[i]
    return at.set(u), at.add(u), at.subtract(u), at.multiply(u), at.min(u), at.max(u), at.apply(jnp.sin), at.get(mode="clip")


def calls(x):
    f, g, h = jax.checkpoint(jnp.sin), jax.custom_jvp(jnp.cos), jax.custom_vjp(jnp.tan)
    g.defjvp(lambda p, t: (g(*p), t[0]))
    h.defvjp(lambda x: (h(x), x), lambda r, t: (r * t,))
    root = lax.custom_root(lambda y: y * y - x, x, lambda f, y: y - f(y), lambda g, y: y / g(1.0))
    solved = lax.custom_linear_solve(lambda v: 2 * v, x, lambda mv, b: b / 2, symmetric=True)
    chosen = lax.platform_dependent(x, cpu=jnp.sin, cuda=jnp.cos, tpu=jnp.tan)
    return (f(x) + g(x) + h(x), jax.grad(lambda x: f(x).sum() + g(x).sum() + h(x).sum())(x), root, solved, chosen,
            lax.composite(jnp.sin, "my.sin")(x), jax.jit(jnp.exp)(x), jax.ad_checkpoint.checkpoint_name(x, "n"))


def random(key, words):
    key, other = (jax.random.wrap_key_data(each, impl=impl) for each, impl in ((key, "threefry2x32"), (words, "rbg")))
    return (jax.random.bits(other, (9,)), jax.random.gamma(key, 2.0, (3,)), lax.rng_uniform(0.0, 1.0, (3,)),
            jax.random.key_data(jax.random.fold_in(jax.random.clone(key), 3)), jax.random.key_data(jax.random.split(other)))


def memories(x):
    """Offloaded to the host's memory and back, as activations of large models are."""
    kept = jax.device_put(x, jax.memory.Space.Host)
    return jax.device_put(kept, jax.memory.Space.Device) + jnp.sin(x)


def factorizations(a, taus, d, b):
    return (linalg.householder_product(a, taus), linalg.lu_pivots_to_permutation(jnp.arange(3, dtype=I), 5), linalg.geqrf(a),
            linalg.ormqr(a, taus, a), linalg.tridiagonal_solve(d, d, d, b), linalg.cholesky_update(jnp.eye(8), a[:, 0]),
            linalg.symmetric_product(a, jnp.zeros((8, 8))))


PROGRAMS = {
    "elements": (elements, [(8,), F], [(8,), C], [(8,), I], [(8,), K]),
    "shapes": (shapes, [(9, 3), F], [(), I]),
    "reductions": (reductions, [(9,), F], [(9,), I]),
    "windows": (windows, [(6, 6), F]),
    "pooling": (pooling, [(6, 6, 8, 128), F]),
    "scatters": (scatters, [(9, 3), F], [(4,), I], [(4, 3), F]),
    "calls": (calls, [(4,), F]),
    "random": (random, [(2,), K], [(4,), K]),
    "memories": (memories, [(8, 128), F]),
    "factorizations": (factorizations, [(8, 4), F], [(4,), F], [(8,), F], [(8, 2), F]),
    "ragged dot": (lax.ragged_dot, [(8, 4), F], [(3, 4, 5), F], [(3,), I]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiles(topology, name):
    with config.threefry_gpu_kernel_lowering(name == "random"):
        text = compiled(topology.devices[0], *PROGRAMS[name]).as_text()
    assert "lapack" not in text and "cpu_callback" not in text and "opt-barrier" not in text
    if name == "random":
        assert ("cu_threefry2x32_ffi" in text) == (topology.devices[0].platform == "gpu")


def effects(x):
    jax.debug.print("{}", x)
    jax.debug.callback(print, x)
    out = jax.ShapeDtypeStruct((4,), F)
    return io_callback(lambda v: v, out, x, ordered=True), buffer_callback.buffer_callback(lambda *a: None, out)(x)


def refused_on_a_tpu():
    a = [(8, 8), F]
    return {"eig": (jnp.linalg.eig, a), "tridiagonal": (linalg.tridiagonal, a), "schur": (linalg.schur, a),
            "hessenberg": (linalg.hessenberg, a), "qr": (lambda x: jax.scipy.linalg.qr(x, pivoting=True), a),
            "io_callback": (effects, [(4,), F])}


@pytest.mark.parametrize("name", refused_on_a_tpu())
def test_what_a_platform_has_not(topology, name):
    device, program = topology.devices[0], refused_on_a_tpu()[name]
    if device.platform == "gpu" and name not in ("schur", "hessenberg"):
        assert compiled(device, *program).memory_analysis() is not None
        return
    target = "cuda" if device.platform == "gpu" else "tpu"
    message = f"MLIR translation rule for primitive '{name}' not found for platform {target}"
    with pytest.raises(NotImplementedError, match=message if "callback" not in name else "runs on CPU and GPU"):
        compiled(device, *program)


def exchange(x):
    y = lax.psum(x, "i") + lax.pmax(x, "i") + lax.pmin(x, "i") + lax.axis_index("i")
    y += lax.ppermute(x, "i", [(0, 1), (1, 0)]) + lax.all_to_all(x, "i", 0, 0, tiled=True)
    return y + lax.psum_scatter(lax.all_gather(x, "i", tiled=True), "i", tiled=True)


def spread(topology):
    mesh = topologies.make_mesh(topology, (2, 2), ("i", "j"))
    sharding = NamedSharding(mesh, P("i", "j"))

    def program(x):
        y = jax.shard_map(exchange, mesh=mesh, in_specs=P("i", "j"), out_specs=P("i", "j"))(x)
        return lax.with_sharding_constraint(y @ y.T, sharding)

    return jax.jit(program).trace(jax.ShapeDtypeStruct((8, 8), F, sharding=sharding))


def test_several_devices(topology):
    text = spread(topology).lower().compile().as_text()
    assert "all-reduce" in text and "collective-permute" in text


# Their tests compile them for CPUs; where they ask for the platform, another program here does.
ELSEWHERE = {"call_exported", "pallas_call", "threefry2x32", "offload", "custom_partitioning", "xla_metadata_call", "ffi_call"}


def test_every_rule_that_asks_for_the_platform_has_a_program(topology):
    """Others give one module for all platforms."""
    for module in pkgutil.iter_modules(rules.__path__):
        importlib.import_module(f"lowering.rules.{module.name}")
    seen: set[str] = set()

    def walk(jaxpr):
        for eqn in jaxpr.eqns:
            seen.add(eqn.primitive.name)
            for inner in jaxprs_in_params(eqn.params):
                walk(getattr(inner, "jaxpr", inner))
            if eqn.primitive.name in rules.DECOMPOSITIONS:
                try:
                    walk(rules.DECOMPOSITIONS[eqn.primitive.name]([each.aval for each in eqn.invars], eqn.params).jaxpr)
                except NotImplementedError:
                    pass  # it has a rule for this case

    tables = PROGRAMS, refused_on_a_tpu(), test_compiling.PROGRAMS, test_compiling.ON_GPU
    for function, *types in (each for table in tables for each in table.values()):
        walk(jax.jit(function).trace(*(jax.ShapeDtypeStruct(*each) for each in types)).jaxpr.jaxpr)
    walk(spread(topology).jaxpr.jaxpr)
    asks = re.compile(r"platform|vendor|\b_(gpu_)?call\(ctx")
    dependent = {name for name, rule in rules.RULES.items() if asks.search(inspect.getsource(rule))}
    assert len(dependent) > 20 and not dependent - seen - ELSEWHERE, f"no program has {sorted(dependent - seen - ELSEWHERE)}"
