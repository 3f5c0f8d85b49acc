"""LLVM's unrolling of loops on the CPU: which programs keep it, and that the others are compiled without."""

import functools
import json
from collections import Counter

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.core import config
from lowering import xla
from lowering.executable import compile_options
from lowering.passes import unrolling

pytestmark = pytest.mark.usefixtures("uncached")

X = np.linspace(-1, 1, 4096, dtype=np.float32).reshape(1024, 4)
WIDE = np.ones((128, 32), np.float32)
LARGE = np.ones(65536, np.float32)
CUBES = np.ones((16, 64, 64), np.float32)
IMAGES = np.ones((2, 4, 16, 16), np.float32)


def convolve(x, **options):
    weights = np.ones((4, 4, 3, 3), x.dtype)
    return lax.conv_general_dilated(x, weights, (1, 1), [(1, 1), (1, 1)], **options)


def repeat(f):
    return lambda x: lax.scan(lambda c, _: (f(c), None), x, length=3)[0]


@pytest.mark.parametrize("f, x", [
    (lambda x: jnp.all(x > 0, axis=1), X),
    (lambda x: jnp.sum(x.astype(np.int32), axis=1), X),
    (lambda x: jnp.prod(x, axis=1), X),
    (lambda x: jnp.prod(x.T, axis=0), X),
    (lambda x: jnp.prod(x, axis=0), X),
    (lambda x: jnp.any(x > 0, axis=(0, 1), keepdims=True), CUBES),
    (repeat(lambda c: c + jnp.sum(c, axis=0)), X[:300]),
    (lambda x: lax.scan(lambda c, row: (c * 0.5, c + row), x[0], x)[1], LARGE[:900].reshape(6, 50, 3)),
    (lambda x: jnp.argmax(x, axis=1), WIDE),
    (jnp.isnan, LARGE),
    (lambda x: x.at[5].add(1), LARGE),
    (lambda x: x.at[:, 2].apply(jnp.sin), LARGE[:8192].reshape(64, 128)),
    (lambda x: x.at[1:].set(x[1:] * 0.5), np.ones(66000, np.float32)),
    (jnp.transpose, LARGE.reshape(256, 256)),
    (lambda x: jnp.kron(x, x), LARGE[:256].reshape(16, 16)),
    (lambda x: jnp.tile(x, (4, 4)), LARGE[:4096].reshape(64, 64)),
    (lambda x: jnp.sin(x.astype(np.float32)), LARGE.astype(np.uint8)),
    (lambda x: jnp.argmin(x, axis=1), X),
    (jax.jit(lambda x: lax.cond(x[0, 0] > 0, lambda x: jnp.prod(x, axis=1), lambda x: x[:, 0], x)), X),
    (lambda x: lax.reduce(x, np.float32(0), lambda a, b: a + 0.5 * b, (1,)), X),
    (lambda x: lax.reduce_window(x, -np.inf, lax.max, (2, 2), (1, 1), "VALID"), X),
    (lambda x: lax.cummax(x, axis=1), X),
    (repeat(lambda c: c + jnp.sum(c, axis=1, keepdims=True)), X[:20]),
    (jax.grad(lambda x: convolve(x).sum() + convolve(x, lhs_dilation=(2, 2)).sum()), IMAGES),
    (convolve, IMAGES.astype(np.float16)),
    (lambda x: [jnp.sum(jnp.sin(x + i), axis=1) for i in range(9)], X[:250]),
    (lambda x: jax.nn.softmax(x), X[:500]),
    (convolve, np.ones((2, 4, 96, 96), np.float32)),
    (lambda x: x.swapaxes(1, 2), CUBES),
    (repeat(lambda c: jnp.sin(c).swapaxes(1, 2)), CUBES[:2]),
    (repeat(lambda c: c + jnp.max(c, axis=1, keepdims=True)), LARGE[:800].reshape(8, 100)),
    (jax.grad(lambda x: (jnp.diff(x, axis=1) ** 2).sum()), LARGE.reshape(256, 256)),
    (repeat(lambda c: c + jnp.pad(c[:, :1], ((0, 0), (31, 0)))), WIDE),
    (lambda x: jax.nn.sigmoid(x) * jnp.tanh(x), LARGE[:6000].reshape(1000, 6)),
    (repeat(lambda c: jnp.tile(jax.nn.sigmoid(c[:, :8]) * jnp.tanh(c[:, 8:]), 2)), LARGE[:1024].reshape(64, 16)),
    (jax.nn.softplus, LARGE[:8000].reshape(2000, 4)),
    (lambda x: x / (1 + x * x), LARGE.reshape(-1, 2)),
    (repeat(lambda c: jnp.concatenate([c[:1], c[1:] - c[:-1]])), LARGE[:100]),
    (repeat(lambda c: jnp.concatenate([c[:, :1], c[:, 1:] - c[:, :-1]], 1)), LARGE[:300].reshape(10, 30)),
    (repeat(lambda c: c + jnp.pad(c[1:], (1, 0))), LARGE[:100]),
    (lambda x: jnp.roll(x, 1) + x, LARGE),
    (repeat(lambda c: jnp.where(c > 0, c, 0.1 * c)), LARGE[:1000].reshape(100, 10)),
    (lambda x: (x - x.mean(0)) * 2, LARGE[:2500].reshape(500, 5)),
    (lambda x: jnp.cumsum(x, axis=1), LARGE[:3000].reshape(200, 15)),
    (jax.grad(lambda x: jnp.einsum("bij,bji->b", x, x * 2).sum()), LARGE[:7680].reshape(30, 16, 16)),
    (lambda x: jax.scipy.linalg.solve_triangular(x, x, lower=True), LARGE[:9000].reshape(10, 30, 30)),
    (lambda x: jnp.pad(x, 1), LARGE[:10560].reshape(64, 33, 5)),
    (lambda x: x[:, ::-1] * 2, LARGE.reshape(256, 256)),
    (repeat(jax.nn.softplus), LARGE[:3300].reshape(100, 33)),
    (jnp.arcsinh, LARGE[:8000].reshape(800, 10)),
    (lambda x: jnp.abs(lax.complex(x, x)), LARGE[:8000].reshape(800, 10)),
    (lambda x: lax.complex(x, x).sum(), LARGE),
    (lambda x: jax.nn.relu(x @ x[:10] + x[0]), LARGE[:9000].reshape(900, 10)),
    (lambda x: x[:, np.array([8, 1, 1, 0])], LARGE[:9000].reshape(1000, 9)),
    (repeat(lambda c: c + jnp.stack([c[:, 1] * c[:, 2], -c[:, 0] * c[:, 2], c[:, 0] * c[:, 1]]).T), LARGE[:210].reshape(70, 3)),
    (repeat(lambda c: lax.dynamic_update_slice(c, c[:5] * 1.01, (3,))), LARGE[:5000]),
    (lambda x: x * 2 + 1, LARGE[:6000].reshape(1000, 6).astype(jnp.bfloat16)),
    (lambda x: jnp.expm1(x)[np.zeros(9000, int)] + x[np.ones(9000, int)], LARGE[:12000].reshape(3000, 4)),
    (repeat(convolve), IMAGES),
    (jax.vmap(lambda x: lax.scan(lambda c, y: (0.9 * c + y, c), 0.0, x)[1]), LARGE[:40000].reshape(200, 200)),
    (lambda x: jax.scipy.sparse.linalg.cg(lambda c: 4 * c - jnp.pad(c, 1)[:-2, 1:-1], x)[0], LARGE[:4096].reshape(64, 64)),
], ids=["all", "integers", "prod", "prod of columns", "across rows", "across all rows", "across rows in a scan",
        "slices in short rows",
        "argmax of longer rows", "to bytes", "one position",
        "function of a column", "large part", "matrix turned", "other rows", "tiles", "from bytes", "argmin",
        "in a branch",
        "reduce", "window", "cummax", "scan", "dilated", "half", "many", "short rows",
        "features first", "turned", "turned in a loop", "windows, in a scan",
        "padded rows", "padded columns, in a scan", "costly, in rows of six", "gates of eight",
        "costly, in rows of four", "rows of two", "another first in a scan",
        "another first in rows in a scan", "padded in front, in a scan", "rotated by one",
        "rows of ten in a scan", "across few rows", "running sums",
        "transposes are a part", "matrices of a solve", "short rows padded", "reversed rows",
        "selected from two computations, in a scan", "inverse functions in rows of ten",
        "complex, in rows of ten", "complex sum", "a row added to rows of ten", "gathered columns",
        "columns turned into rows in a scan", "few elements updated in a scan",
        "half precision, in rows of six", "costly, and rows gathered",
        "convolution in a scan", "longer rows turned before a scan", "in a solver"])
def test_programs_that_gain_from_unrolling(f, x):
    assert unrolling.gains(jax.make_jaxpr(f)(x).jaxpr)


@pytest.mark.parametrize("f, x", [
    (jnp.sin, X.reshape(512, 8)),
    (lambda x: jax.nn.softmax(x), X.reshape(512, 8)),  # the library's reductions
    (lambda x: jax.nn.softmax(x), X[:100]),
    (lambda x: jax.nn.softmax(jnp.sin(x)[:2000].reshape(500, 4)), np.ones(1 << 18, np.float32)),  # hardly a part of it
    (lambda x: jnp.prod(x, axis=1), WIDE),  # long rows
    (lambda x: jnp.prod(x, axis=0), X.reshape(-1, 1)),
    (lambda x: jnp.prod(x, axis=1), X[:100]),  # no time either way
    (repeat(lambda c: c + jnp.sum(c, axis=1, keepdims=True)), WIDE[:20]),
    (lambda x: jnp.isnan(x), X),
    (lambda x: jnp.isnan(functools.reduce(lambda c, _: jnp.sin(c), range(9), x)), LARGE),
    (lambda x: jnp.count_nonzero(x), X.reshape(-1)),
    (repeat(lambda c: jnp.sin(c) @ c[:4]), X[:20]),
    (convolve, IMAGES),
    (lambda x: x.swapaxes(1, 2), CUBES[:2, :16, :16]),
    (lambda x: x.swapaxes(0, 1), CUBES),
    (lambda x: functools.reduce(lambda c, _: jnp.sin(c), range(9), x.T), np.ones((512, 512), np.float32)),
    (lambda x: x.reshape(256, 16, 16) * x[:16, None], LARGE),
    (lambda x: x.at[5].set(1), LARGE),
    (lambda x: x.at[jnp.arange(9)].add(1), LARGE),
    (jax.grad(lambda x: (jnp.diff(x, axis=0) ** 2).sum()), LARGE.reshape(256, 256)),
    (jax.grad(lambda x: (jnp.diff(x, axis=1) ** 2).sum()), WIDE),
    (lambda x: jax.nn.sigmoid(x) * jnp.tanh(x), LARGE[:8000].reshape(1000, 8)),
    (lambda x: jax.nn.sigmoid(x) * jnp.tanh(x), LARGE[:300].reshape(50, 6)),
    (lambda x: x[np.zeros(40000, int)], X),
    (repeat(lambda c: jnp.concatenate([c[:2], c[2:] - c[:-2]])), LARGE[:100]),
    (repeat(lambda c: jnp.concatenate([c[1:] - c[:-1], c[-1:]])), LARGE[:100]),
    (repeat(lambda c: jnp.concatenate([c[:, :1], c[:, 1:] - c[:, :-1]], 1)), WIDE),
    (repeat(lambda c: jnp.where(c > 0, c, 0.1 * c)), LARGE[:800].reshape(100, 8)),
    (lambda x: (x - x.mean(0)) @ x.T @ x, LARGE[:2500].reshape(500, 5)),
    (lambda x: jnp.cumsum(x, axis=1), LARGE[:3000].reshape(100, 30)),
    (lambda x: x[::-1] * 2, LARGE.reshape(256, 256)),
    (lambda x: jnp.sin(x) @ jnp.cos(x.T), LARGE[:6400].reshape(80, 80)),
    (repeat(lambda c: jnp.exp(-c) + c), LARGE[:3300].reshape(100, 33)),
    (repeat(lambda c: jnp.concatenate([c[:, :1], c[:, 1:] - c[:, :-1]], 1)), LARGE[:900].reshape(30, 30)),
    (lambda x: jax.nn.relu(x @ x[:8] + x[0]), LARGE[:8000].reshape(1000, 8)),
    (repeat(lambda c: c + jnp.pad(c, 1)[:-2, 1:-1]), LARGE[:900].reshape(30, 30)),
], ids=["none", "library", "small", "small share",
        "long", "one column", "few", "long, in a scan", "few bytes", "bytes, among others",
        "all of them", "scan", "convolution", "turned once",
        "rows stay", "turned, long", "an argument in other rows", "one position is set", "some positions",
        "padded in front", "few padded rows", "costly, in rows of eight", "few costly rows", "gathered rows of four",
        "two others first, in a scan", "another last, in a scan",
        "another first, in many rows in a scan", "rows of eight in a scan", "across few rows, among others",
        "longer running sums", "rows in reverse order", "longer rows turned", "another function in a scan",
        "another first, in thirty rows in a scan", "a row added to rows of eight",
        "padded in front, in rows in a scan"])
def test_other_programs_do_not(f, x):
    assert not unrolling.gains(jax.make_jaxpr(f)(x).jaxpr)


def chain(x):
    for _ in range(4):
        x = jnp.tanh(x @ x) / (1 + jnp.exp(jax.nn.softmax(x)))
    return x


def test_code_is_smaller_and_results_are_the_same(tmp_path):
    x = np.random.default_rng(0).normal(size=(32, 32)).astype(np.float32)
    lowered = jax.jit(chain).lower(x)
    plain = lowered.compile({"jaxlite_cpu_fusion_barriers": False})
    with config.dump_ir_to(str(tmp_path)):
        tuned = lowered.compile()
    np.testing.assert_allclose(tuned(x), plain(x), rtol=1e-4)
    assert json.loads(next(tmp_path.glob("*compile.json")).read_text())["loops_unrolled"] is False
    size = lambda compiled: len(compiled.runtime_executable().serialize())
    assert size(tuned) < 0.95 * size(plain)


def test_other_options_are_kept():
    device = jax.devices()[0]
    options = compile_options(device, {"xla_cpu_enable_fast_math": True}, flags=["xla_cpu_disable_loop_unrolling"])
    assert options.env_option_overrides == [("xla_cpu_enable_fast_math", "True")]
    assert options.num_replicas == 1 and options.device_assignment.replica_count() == 1
    words = lambda options: Counter(str(options.executable_build_options.debug_options).split()[1:])  # the first is random
    added = words(options) - words(compile_options(device, {}))
    assert added == Counter('xla_backend_extra_options { key: "xla_cpu_disable_loop_unrolling" value: "" }'.split())
    assert xla.with_backend_options(options, ["xla_cpu_something_else"]) is options  # a user's flags are theirs
