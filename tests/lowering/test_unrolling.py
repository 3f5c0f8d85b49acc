"""LLVM's unrolling of loops on the CPU: which programs get all of it, some of it, or none."""

import json
import threading
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
LARGE = np.ones(65536, np.float32)
MATRIX = LARGE[:1024].reshape(32, 32)
CUBES = np.ones((16, 64, 64), np.float32)
INDICES = np.arange(6000) % 300


def repeat(f):
    return lambda x: lax.scan(lambda c, _: (f(c), None), x, length=3)[0]


@pytest.mark.parametrize("f, x", [
    (lambda x: jnp.prod(x, axis=0), X),
    (lambda x: jnp.prod(x.T, axis=0), X),
    (lambda x: jnp.any(x > 0, axis=(0, 1), keepdims=True), CUBES),
    (jax.jit(lambda x: lax.cond(x[0, 0] > 0, lambda x: jnp.prod(x, axis=0), lambda x: x[0], x)), X),
    (lambda x: jnp.sum(x.astype(np.int32), axis=0), X),
    (lambda x: jnp.sum(x > 0), LARGE[:60_001]),
    (lambda x: jnp.all(x > 0), LARGE[:60_000].reshape(200, 300)),
    (lambda x: jnp.prod(x, 1), LARGE[:60_000].reshape(200, 300)),
    (repeat(lambda c: c + jnp.any(c > 2)), LARGE[:700]),
    (repeat(lambda c: c / jnp.sqrt(jnp.sum(c * c))), LARGE[:700]),
    (lambda x: lax.reduce_sum(x, (0,)), X.astype(np.float16)),
    (repeat(lambda c: jax.nn.logsumexp(c + c.T, axis=0)[:, None] + c), LARGE[:400].reshape(20, 20)),
    (lambda x: x.at[5].add(1), LARGE),
    (lambda x: x.at[:, 2].apply(jnp.sin), LARGE[:8192].reshape(64, 128)),
    (lambda x: x.at[1:].set(x[1:] * 0.5), np.ones(66000, np.float32)),
    (lambda x: jax.nn.sigmoid(x) * jnp.tanh(x), LARGE[:6000].reshape(1000, 6)),
    (jax.nn.softplus, LARGE[:8000].reshape(2000, 4)),
    (lambda x: jax.nn.softplus(x).reshape(2000, 4), LARGE[:8000]),
    (lambda x: x / (1 + x * x), LARGE.reshape(-1, 2)),
    (jnp.arcsinh, LARGE[:8000].reshape(800, 10)),
    (repeat(jax.nn.softplus), LARGE[:3300].reshape(100, 33)),
    (repeat(lambda c: 0.5 * jnp.log1p(c.T).T), LARGE[:4000].reshape(200, 20)),
    (lambda x: x * jnp.sin(x[0]), LARGE[:4096].reshape(64, 64)),
    (repeat(lambda c: c * 0.5 + LARGE[:200]), LARGE[:12800].reshape(64, 200)),
    (repeat(lambda c: c + c[0][:, None] * c[0]), LARGE[:16384].reshape(128, 128)),
    (lambda x: jnp.argmin(2 * x, axis=1), LARGE[:4096].reshape(256, 16)),
    (lambda x: jnp.prod(x, 1), LARGE[:12000].reshape(1000, 12) * 1j),
    (lambda x: jnp.max(x, 1), LARGE[:12000].reshape(1000, 12) * 1j),
    (lambda x: jnp.tile(x, (1, 3)), LARGE[:20000].reshape(1000, 20)),
    (lambda x: lax.reduce_sum(x, axes=(1,)), LARGE[:8000].reshape(1000, 8).astype(jnp.bfloat16)),
    (jax.grad(lambda x: jax.nn.softmax(x)[:, 0].sum()), LARGE[:30000].reshape(3000, 10).astype(jnp.bfloat16)),
    (lambda x: jnp.abs(lax.complex(x, x)), LARGE[:8000].reshape(2000, 4)),
    (lambda x: x * 2 + 1, LARGE[:6000].reshape(1000, 6).astype(jnp.bfloat16)),
    (lambda x: jnp.expm1(x)[np.zeros(9000, int)] + x[np.ones(9000, int)], LARGE[:12000].reshape(3000, 4)),
    (lambda x: x - jnp.roll(x * jax.jit(lambda x: jnp.roll(x, 1) - x)(x), -1), LARGE[:512]),
    (lambda x: jax.scipy.sparse.linalg.cg(lambda c: jnp.exp(c) + c, x, maxiter=3)[0], LARGE[:3000].reshape(1000, 3)),
    (lambda x: jnp.log(x).sum(1), LARGE[:2900].reshape(100, 29)),
    (jnp.linalg.cholesky, LARGE[:18000].reshape(20, 30, 30)),
    (lambda x: jnp.exp(x.T), LARGE[:50000].reshape(50, 1000)),
    (lambda x: jnp.broadcast_to(x.swapaxes(1, 2), (4, 16, 64, 64)), CUBES),
    (lambda x: jnp.diff(x * x, n=3).T, LARGE[:30000].reshape(3, 10000)),
    (jax.grad(lambda x: jnp.sum(x[:, :3] * x[:, 3:6])), LARGE.reshape(256, 256)),
    (lambda x: ((x[:, None] - LARGE[:160].reshape(10, 16)) ** 2).sum(-1).argmin(1), LARGE[:16000].reshape(1000, 16)),
    (lambda x: lax.conv(x, x[..., :9], (1,), "SAME"), np.arange(4000).reshape(1, 1, -1)),
    (repeat(lambda c: c + 0.1 * jnp.stack([c[:, 1], c[:, 0] * c[:, 2], c[:, 3], -c[:, 0]], 1)), LARGE[:256].reshape(64, 4)),
    (lambda x: jnp.cross(x[INDICES] - x[INDICES + 1], x[INDICES + 2]), LARGE[:900].reshape(300, 3)),
    (repeat(lambda c: c + 0.1 * jnp.exp(c).sum(1, keepdims=True)), LARGE[:2000].reshape(200, 10)),
    (repeat(lambda c: c * 0.9 + jnp.einsum("ij,ij->i", jnp.sin(c), c)[:, None]), LARGE[:2000].reshape(100, 20)),
    (lambda x: jnp.any(jnp.exp(x) > 2, axis=1), LARGE[:30000].reshape(1000, 30)),
    (lambda x: jnp.argmax(x + 1, axis=1), LARGE[:16000].reshape(2000, 8)),
    (lambda x: jnp.argmin(jnp.log(x) * x, axis=1), LARGE[:16000].reshape(4000, 4)),
    (repeat(lambda c: c + 0.1 * jnp.sin(c) / jnp.sum(c)), LARGE[:500]),
    (lambda x: jnp.sum(x * x, axis=0), LARGE[:3000].reshape(100, 30)),
    (lambda x: jnp.max(x, axis=0), LARGE[:3000].reshape(30, 100)),
    (lambda x: jnp.tanh(x).sum(0), LARGE[:640].reshape(10, 64)),
    (repeat(lambda c: c + jnp.argmax(c, axis=0)), LARGE[:1200].reshape(40, 30)),
], ids=["across rows", "columns", "across all rows", "in a branch", "integers",
        "counts", "all of each row", "products of each row", "any in a scan", "norms in a loop",
        "half precision across rows", "across rows in a scan", "one position", "function of a column", "large part",
        "costly, in rows of six", "costly, in rows of four", "the same of a vector", "rows of two",
        "inverse functions in rows of ten",
        "selected from two computations, in a scan", "the same, turned", "the sine of a row", "equal rows in a scan",
        "columns times rows in a scan", "positions in rows of sixteen", "complex products", "complex extremes",
        "tiles of short rows",
        "sums of half precision", "much computed in half precision and summed up", "complex, in rows of four",
        "half precision, in rows of six", "costly, and rows gathered",
        "a line that is shifted again", "in a solver", "costly, summed up in rows with half a vector more", "factored",
        "rows of fifty that were columns",
        "columns that are repeated", "cheap, in rows of three that are turned", "gradients of a few columns",
        "positions in rows of ten that take long to compute", "convolved by no library", "joined to rows of four in a loop",
        "joined to rows of three of much that is gathered", "costly, summed up in rows of ten in a loop",
        "costly, multiplied in rows of twenty in a loop", "costly, any in rows of thirty",
        "positions in rows of eight that are computed", "positions in rows of four of costly functions",
        "costly, with the sum of a line in a loop", "few across rows, in part of a window", "few across thirty rows",
        "fewer of costly functions across rows", "positions across rows in a loop"])
def test_programs_that_gain_from_longer_loops(f, x):
    assert unrolling.options(jax.make_jaxpr(f)(x).jaxpr) == ()


@pytest.mark.parametrize("f, x", [
    (jnp.sin, X.reshape(512, 8)),
    (repeat(lambda c: c / jnp.sqrt(jnp.sum(c * c))), LARGE[:704]),
    (repeat(lambda c: c / jnp.sqrt(jnp.sum(c * c))), LARGE[:5000]),
    (lambda x: jnp.prod(x, axis=1), X),
    (lambda x: jnp.prod(x, axis=0), X[:100]),
    (lambda x: jnp.sum(x, axis=0), X),
    (lambda x: jnp.prod(x, axis=0), X.reshape(-1, 1)),
    (jnp.all, X),
    (lambda x: jnp.argmax(x, axis=1), LARGE[:8192].reshape(256, 32)),
    (repeat(lambda c: c + 0.1 * jnp.exp(c).sum(1, keepdims=True)), LARGE[:3200].reshape(200, 16)),
    (repeat(jax.nn.softmax), LARGE[:2000].reshape(200, 10)),
    (repeat(lambda c: c * 0.9 + jnp.einsum("ij,ij->i", c, c)[:, None]), LARGE[:2000].reshape(100, 20)),
    (lambda x: jnp.argmax(x, axis=1), LARGE[:16000].reshape(2000, 8)),
    (lambda x: jnp.argmax(x + 1, axis=1), LARGE[:16000].reshape(4000, 4)),
    (lambda x: jax.nn.softmax(x), X[:20]),
    (lambda x: x.at[5].set(1), LARGE),
    (lambda x: x.at[jnp.arange(9)].add(1), LARGE),
    (lambda x: x.at[5].add(1), LARGE[:2000]),
    (jnp.transpose, LARGE.reshape(256, 256)),
    (lambda x: x.astype(jnp.bfloat16) * 2, LARGE.reshape(256, 256)),
    (repeat(lambda c: c * 0.5 + LARGE[:64]), LARGE[:6400].reshape(100, 64)),
    (repeat(lambda c: jnp.tanh(c @ MATRIX) + c.sum(0)), LARGE[:512].reshape(16, 32)),
    (repeat(lambda c: c / c.sum(1, keepdims=True)), LARGE[:6400].reshape(100, 64)),
    (lambda x: jax.vmap(jax.grad(lambda w, x: jnp.tanh(w @ x).sum()), (None, 0))(MATRIX, x), LARGE[:1024].reshape(32, 32)),
    (lambda x: 0.5 * x + 1, LARGE[:60000].reshape(-1, 5)),
    (lambda x: lax.scan(lambda c, row: (c * 0.5, c + row), x[0], x)[1], LARGE[:900].reshape(6, 50, 3)),
    (jax.vmap(lambda row: lax.scan(lambda c, y: (c * 0.5 + jnp.sin(y), c), 0.0, row)), LARGE[:10000].reshape(2000, 5)),
    (repeat(lambda c: c - 0.1 * jax.grad(lambda c: jnp.arcsinh(c).sum())(c)), LARGE[:3600].reshape(300, 12)),
    (lambda x: jnp.concatenate([x, x], axis=1), LARGE[:6400].reshape(64, 100)),
    (lambda x: jnp.pad(x, ((0, 1), (0, 0))), LARGE[:6400].reshape(64, 100)),
    (lambda x: jnp.roll(x, 1, axis=1) - x, LARGE[:1024].reshape(64, 16)),
    (jax.nn.gelu, LARGE[:20000].reshape(2000, 10)),
    (jax.nn.silu, LARGE[:24000].reshape(2000, 12)),
    (lambda x: jnp.argmax(x, axis=0), LARGE[:60000].reshape(4000, 15)),
    (lambda x: jnp.arcsinh(x).T, LARGE[:8000].reshape(800, 10)),
    (lambda x: (x + x[0]).reshape(-1), LARGE[:16384].reshape(128, 128)),
    (lambda x: jnp.kron(x, x), LARGE[:400].reshape(20, 20)),
    (jnp.linalg.cholesky, LARGE[:10000].reshape(100, 100)),
    (lambda x: jnp.cumsum(x, 0), LARGE[:10000].reshape(10, 1000)),
    (lambda x: jnp.cumsum(x, 1), LARGE[:12000].reshape(1000, 12)),
    (lambda x: jnp.all((x > 0)[None], axis=0), LARGE[:6000].reshape(1000, 6)),
    (lambda x: jnp.all(x > 0, axis=1), LARGE[:64_000].reshape(1000, 64)),
    (lambda x: jnp.cross(x[INDICES], x[:1]), LARGE[:900].reshape(300, 3)),
    (repeat(lambda c: c + jnp.argmax(c, axis=1)[:, None]), LARGE[:1200].reshape(40, 30)),
    (repeat(lambda c: c * 0.9 + 1), LARGE[:3]),
], ids=["rows of eight", "norms of whole windows in a loop", "norms by the library in a loop",
        "along rows", "few across rows", "the library's", "one column", "all", "positions in longer rows",
        "costly, summed up in rows of sixteen in a loop", "written for two readers in a loop", "summed products in a loop",
        "positions in rows of eight", "positions in rows of four",
        "few", "one position is set", "some positions", "one of few positions", "turned", "half precision",
        "shorter equal rows in a scan", "few sums across rows in a scan", "rows that are summed in a scan",
        "products of a column and a row", "cheap, in rows of five", "few, in rows of three in a scan",
        "turned for a short scan", "only the gradient in a scan", "joined halves", "a row more", "short rows, rotated",
        "costly, in rows of ten", "costly, in rows of twelve", "positions in long columns",
        "costly, in short rows that are turned", "equal rows, joined", "products of each with each, joined", "factored, large",
        "running totals of ten across rows", "running totals along rows", "all along an axis of one element",
        "all of rows of two windows", "joined to rows of three of little that is gathered", "positions in rows in a loop",
        "a line of three in a loop"])
def test_other_programs_gain_from_short_ones(f, x):
    assert unrolling.options(jax.make_jaxpr(f)(x).jaxpr) == unrolling.SHORT_LOOPS


@pytest.mark.parametrize("f, x", [
    (lambda x: jnp.roll(x, 1) + x, LARGE),
    (jax.grad(lambda x: jnp.sum(repeat(lambda c: c - c * jnp.roll(c, 1))(x))), LARGE[:16]),
    (repeat(lambda c: c * jnp.pad(c, ((0, 0), (1, 1)))[:, 2:]), LARGE[:2048].reshape(4, 512)),
    (repeat(lambda c: c - jnp.roll(c * jnp.roll(c, 1, 1), -1, 1)), LARGE[:2048].reshape(4, 512)),
    (jax.grad(lambda x: jnp.sum(x[:, :20] * x[:, 40:60])), LARGE[:64000].reshape(1000, 64)),
], ids=["rotated by one", "gradient of rotations in a scan", "rows with margins", "rows that are shifted again",
        "gradients of parts of rows"])
def test_programs_that_read_rows_shifted(f, x):
    assert unrolling.options(jax.make_jaxpr(f)(x).jaxpr) == unrolling.SHIFTED_LOOPS


@pytest.mark.parametrize("function, expected", [(jnp.exp, unrolling.SHIFTED_LOOPS), (jax.nn.silu, ())])
def test_pads_of_long_code_keep_the_defaults(function, expected):
    f = lambda x: jnp.pad(function(x), ((0, 0), (0, 64)))
    assert unrolling.options(jax.make_jaxpr(f)(LARGE[:6400].reshape(100, 64)).jaxpr) == expected


@pytest.mark.parametrize("shape, operations, expected", [
    ((1000,), 8, unrolling.SHIFTED_LOOPS), ((1000,), 20, ()), ((3, 100), 20, ()), ((20, 64), 20, unrolling.SHIFTED_LOOPS),
    ((40,), 20, unrolling.SHIFTED_LOOPS)], ids=str)
def test_rotations_of_long_code_in_lines_and_few_rows_keep_the_defaults(shape, operations, expected):
    def step(x):
        y = x
        for _ in range(operations // 2):
            y = y * x + 1
        return x - 0.1 * jnp.roll(y, 1, -1)

    x = np.ones(shape, np.float32)
    assert unrolling.options(jax.make_jaxpr(lambda x: lax.fori_loop(0, 16, lambda _, x: step(x), x))(x).jaxpr) == expected


def test_pads_between_elements_keep_the_defaults():
    f = jax.grad(lambda x: jnp.sum(x[:, ::2] * x[:, 1::2]))
    assert unrolling.options(jax.make_jaxpr(f)(LARGE[:12800].reshape(100, 128)).jaxpr) == ()


@pytest.mark.parametrize("columns, expected", [(64, ()), (80, unrolling.SHIFTED_LOOPS)])
def test_shifted_rows_whose_extremes_are_taken_in_windows_keep_the_defaults(columns, expected):
    def f(x):
        shifted = lambda c: jnp.concatenate([c[:, None], x[:, :-1]], 1)
        return lax.fori_loop(0, 20, lambda _, c: jnp.max(shifted(c) + x, axis=1), x[:, 0])

    assert unrolling.options(jax.make_jaxpr(f)(LARGE[:32 * columns].reshape(32, columns)).jaxpr) == expected


def test_functions_that_are_called_twice_on_each_of_many_levels():
    assert jax.sharding.Mesh  # once that is loaded, programs are searched for meshes
    f = jax.jit(lambda x: (x - jnp.roll(x, 1)).reshape(16, 32).T.reshape(-1))
    for _ in range(25):
        f = jax.jit(lambda x, f=f: f(f(x)))
    assert unrolling.options(jax.make_jaxpr(f)(LARGE[:512]).jaxpr) == ()  # each level is looked at a few times


@pytest.mark.parametrize("f, x", [
    (jnp.isnan, LARGE),
    (repeat(jnp.tanh), LARGE[:3300].reshape(100, 33)),
    (jax.grad(lambda x: repeat(jax.nn.softplus)(x).sum()), LARGE[:3300].reshape(100, 33)),
    (lambda x: jax.nn.softmax(jnp.sin(x)[:2000].reshape(500, 4)), np.ones(1 << 18, np.float32)),
    (lambda x: x * jnp.sin(x[0]), LARGE[:8192].reshape(64, 128)),
    (lambda x: jnp.stack([x * 2, x + 1, jnp.sin(x)]), LARGE[:300]),
    (lambda x: jnp.concatenate([x, 2 * x], axis=1), CUBES),
    (lambda x: ((x + x[0]).reshape(-1, 64), (x * 2).reshape(-1)), LARGE[:16384].reshape(128, 128)),
    (jax.grad(lambda x: jnp.sum(jax.nn.gelu(jax.nn.gelu(x @ MATRIX) @ MATRIX) ** 2)), LARGE[:2048].reshape(64, 32)),
    (lambda x: jnp.log(x).sum(1), LARGE[:2600].reshape(100, 26)),
    (lambda x: jnp.log(x).sum(1), LARGE[:290].reshape(10, 29)),
    (lambda x: jnp.sum(x * x, axis=0), LARGE[:2560].reshape(64, 40)),
    (lambda x: jnp.sum(x * x, axis=0), LARGE[:1000].reshape(20, 50)),
], ids=["bytes", "long rows in a scan", "selected from two computations, slopes kept", "few short rows",
        "the sine of a longer row", "stacked rows", "joined rows",
        "rows that are split",
        "gradient of layers", "costly, summed up in rows with little more than vectors", "costly, in few rows",
        "few across rows, in whole windows", "fewer across rows"])
def test_programs_without_short_loops(f, x):
    assert unrolling.options(jax.make_jaxpr(f)(x).jaxpr) == unrolling.NO_LOOPS


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


def test_programs_that_move_keys():
    keys = jax.random.split(jax.random.key(0), 4)
    chosen = jax.jit(lambda k, c: jnp.where(c, k, k[::-1]))(keys, True)
    assert jnp.all(jax.random.key_data(chosen) == jax.random.key_data(keys))


def test_other_options_are_kept():
    device = jax.devices()[0]
    options = compile_options(device, {"xla_cpu_enable_fast_math": True}, flags=unrolling.SHORT_LOOPS)
    assert options.env_option_overrides == [("xla_cpu_enable_fast_math", "True")]
    assert options.num_replicas == 1 and options.device_assignment.replica_count() == 1
    words = lambda options: Counter(str(options.executable_build_options.debug_options).split()[1:])  # the first is random
    added = words(options) - words(compile_options(device, {}))
    assert added == Counter(" ".join(f'xla_backend_extra_options {{ key: "{flag}" value: "" }}'
                                     for flag in unrolling.SHORT_LOOPS).split())
    assert xla.with_backend_options(options, ["xla_cpu_something_else"]) is options  # a user's flags are theirs


def test_threads_with_other_options_wait_and_give_the_same():
    # LLVM's options are the process's: a compile that wants others waits for those that run.
    matrix, large = jnp.ones((200, 200)), jnp.asarray(LARGE[:30000])
    functions = [lambda x, i=i: jnp.tanh(x @ x.T + i).sum() if i % 2 else x.at[5].add(i) for i in range(6)]
    want = [functions[i](matrix if i % 2 else large) for i in range(6)]
    got = {}

    def compile_and_run(i):
        got[i] = jax.jit(functions[i])(matrix if i % 2 else large)

    threads = [threading.Thread(target=compile_and_run, args=(i,)) for i in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert not any(each.is_alive() for each in threads)
    for i in range(6):
        np.testing.assert_allclose(got[i], want[i], rtol=1e-5)
