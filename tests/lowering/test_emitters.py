"""XLA:CPU's older code generator: which programs use it, and that their results are the same."""

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.scipy import special
from lowering import xla
from lowering.passes import emitters

pytestmark = pytest.mark.usefixtures("uncached")

X = np.linspace(-2, 2, 600, dtype=np.float32).reshape(20, 30)


def normalized(x):
    x = (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True) + 1e-5)
    selected = jnp.where(x > 1, jnp.exp(x), x).T[:3, :12].repeat(3, 1)[:, :32]
    return jnp.concatenate([jnp.pad(x[::2, ::-1], 1) * 2, selected]), x.argmax(0)


@pytest.mark.parametrize("f, x, has", [
    (lambda x: jnp.sin(x) * x[::-1], X, True),
    (lambda x: jax.jit(lambda x: x.sum(0))(x + 1), X, True),
    (lambda x: jnp.sin(x), np.ones(2000, np.float32), False),
    (lambda x: x[:, None] * x, np.ones(100, np.float32), False),
    (lambda x: x * (1 + 1j), X, False),
    (lambda x: jnp.cbrt(x), X.astype(np.float16), False),
    (lambda x: x * 3 // 7 > 2, X.astype(np.int8), True),
    (lambda x: special.betaln(x, x + 1), X, False),
    (lambda x: special.betaln(x, x + 1), X[:5], True),
    (lambda x: x @ x.T, X, False),
    (lambda x: x[jnp.array([3, 1])], X, False),
    (lambda x: lax.fori_loop(0, 3, lambda i, x: x * 2, x), X, False),
    (lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), X, False),
])
def test_programs_that_prefer_it(f, x, has):
    assert emitters.prefers_older(jax.make_jaxpr(f)(x).jaxpr) is (has and xla.HAS_OLDER_EMITTER)


ROWS = np.ones((4000, 4), np.float32)


@pytest.mark.parametrize("f, x, has", [
    (lambda x: jnp.sin(x) * x[::-1], X, True),
    (lambda x: jax.jit(lambda x: x.sum(0))(x + 1), X, True),
    (lambda x: jnp.sin(x), np.ones(16000, np.float32), True),
    (lambda x: jnp.sin(x), np.ones(17000, np.float32), False),
    (lambda x: lax.lgamma(x), np.ones(16000, np.float32), False),  # threads may help
    (lambda x: x[5:15] * 2, np.ones(3_000_000, np.float32), True),
    (lambda x: x * 2, ROWS, False),
    (lambda x: x * 2, ROWS[:200], True),
    (lambda x: jnp.exp(x), ROWS[:200], False),
    (lambda x: jnp.sum(x + 1), np.ones(2000, np.float32), False),
    (lambda x: x * (jnp.ones_like(x) * 1.0), X, False),  # nothing to compute
    (lambda x: jnp.ones_like(x), X, True),
    (lambda x: (x[None], lax.slice(x, (0, 0), x.shape), jnp.split(x, 1)), X, False),
    (lambda x: jnp.log1p(x), X, False),
    (lambda x: jnp.log1p(x) * 2, X, True),
    (lambda x: x.sum(0) + 1, X[:0], False),  # XLA drops empty parameters, and aborts
    (lambda x: jax.debug.print("{}", x[0, 0]) or x + 1, X, False),
    (lambda x: x.T + 1, X, False),
    (lambda x: jnp.arctan(x), X, False),
    (lambda x: x * (1 + 1j), X, False),
    (lambda x: (x + 1, lax.create_token()), X, False),
    (lambda x: (x + 1, jax.random.split(jax.random.key(0))), X, True),
    (lambda x: x + jax.random.normal(jax.random.key(0), x.shape), X, True),
    (lambda x: x + jax.random.normal(jax.random.key(0, impl="rbg"), x.shape), X, False),
    (lambda x: x[0, 0] + jax.random.normal(jax.random.key(0), (17000,)), X, False),
    (lambda x: jnp.cbrt(x), X.astype(np.float16), False),
    (lambda x: x @ x.T, X, False),
    (lambda x: x[jnp.array([3, 1])], X, True),
    (lambda x: x[:, jnp.array([3, 1])], X, False),
    (lambda x: x.at[jnp.array([3, 1])].set(0), X, False),
    (lambda x: lax.fori_loop(0, 3, lambda i, x: x * 2, x), X, False),  # is one function anyway
    (lambda x: lax.fori_loop(0, 3, lambda i, x: x * 2, x + 1), X, True),
    (lambda x: lax.fori_loop(0, 3, lambda i, x: x * x.sum(), x + 1), X, False),
    (lambda x: lax.fori_loop(0, 3, lambda i, x: x @ x, x + 1), X[:, :20], False),
    (lambda x: jnp.cumsum(x + 1, 1), X, True),
    (lambda x: jnp.cumsum(x + 1, 1), X[:, :7], False),
    (lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), X, True),
    (lambda x: jnp.roll(x, 3, 0), np.ones((64, 100), np.float32), False),  # large parts one behind the other
    (lambda x: jnp.roll(x, 3, 1), np.ones((64, 100), np.float32), True),
    (lambda x: jnp.roll(x, 3, 0), X, True),
])
def test_programs_that_are_one_function(f, x, has):
    assert emitters.is_one_function(jax.make_jaxpr(f)(x).jaxpr) is (has and xla.HAS_SMALL_FUNCTIONS)


def layers(x, count):
    for _ in range(count):
        x = x + jax.nn.softmax(x * 2) * x
    return x


@pytest.mark.parametrize("count, has", [(2, True), (6, False)])
def test_many_equal_kernels_are_compiled_once_by_the_newer_generator(count, has):
    jaxpr = jax.make_jaxpr(lambda x: layers(x, count))(X).jaxpr
    assert emitters.is_one_function(jaxpr) is (has and xla.HAS_SMALL_FUNCTIONS)
    halves = jax.make_jaxpr(lambda x: [x := jnp.sin(x) * x for _ in range(2 * count)])(X).jaxpr
    assert emitters.is_one_function(halves, halves.outvars) is (has and xla.HAS_SMALL_FUNCTIONS)


@pytest.mark.parametrize("shapes, older, one", [([8] * 2, True, True), ([8] * 3, False, True), ([8] * 6, False, False),
                                                (range(16, 22), True, True)])
def test_results_count_as_kernels_also_those_of_calls(shapes, older, one):
    update = jax.jit(lambda x: x - 0.1 * jnp.tanh(x))
    jaxpr = jax.make_jaxpr(lambda xs: [update(x) for x in xs])([np.ones((8, n), np.float32) for n in shapes]).jaxpr
    assert emitters.prefers_older(jaxpr) is (older and xla.HAS_OLDER_EMITTER)
    assert emitters.is_one_function(jaxpr) is (one and xla.HAS_SMALL_FUNCTIONS)


def looped(x):
    x, largest = normalized(x)
    total = lax.scan(lambda total, row: (total + row[:8], row * total[0]), x[0, :8], x[:4])
    chosen = lax.cond(x[0, 0] > 0, lambda x: x * 2, lambda x: lax.cummax(x, 1), x)
    return total, chosen, x[largest], lax.while_loop(lambda x: x[0, 0] < 9, lambda x: x + 1, x[:5])


def drawn(x):
    key, other = jax.random.split(jax.random.key(7))
    steps = lax.scan(lambda total, key: (total + jax.random.uniform(key, (20,)), total), x[:20, 0], jax.random.split(other, 5))
    return jax.random.normal(key, x.shape), jax.random.key_data(jax.random.fold_in(key, 3)), steps


@pytest.mark.parametrize("f, choice", [
    (normalized, "prefers_older"), (normalized, "is_one_function"), (looped, "is_one_function"), (drawn, "is_one_function")])
def test_results_are_the_same(monkeypatch, f, choice):
    odd = X.copy()
    odd[0, :6] = np.nan, np.inf, -np.inf, -0.0, 1e-40, 3e38
    f = f if choice == "prefers_older" else lambda x, f=f: f(x)
    has_small = xla.HAS_SMALL_FUNCTIONS and choice == "is_one_function"
    for x in (X, odd):
        monkeypatch.setattr(emitters, "is_one_function", lambda jaxpr, barriers: has_small)
        lowered = jax.jit(f).lower(x)
        text = lowered.as_text()
        tuned = lowered.compile()
        assert lowered.as_text() == text and ("jaxlite_small" in tuned.as_text()) is has_small
        monkeypatch.setattr(emitters, choice, lambda *args: False)
        plain = jax.jit(lambda x: f(x)).lower(x).compile()
        monkeypatch.undo()
        for one, other in zip(jax.tree.leaves(tuned(x)), jax.tree.leaves(plain(x)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)


# Arguments without a use, in the program or for what XLA makes of it, by the form of the function.
@pytest.mark.parametrize("f", [
    lambda x, y: (x * 2, y * 0),
    lambda x, y: (y * 0, x.astype(int) & 0),
    lambda x, y: x + 1,
    lambda x, y: jnp.arange(9) * 3,
    lambda x, y: (x, y, y + 1),
    lambda x, y: jnp.where(jnp.ones(3, bool), x * 2, y),
    lambda x, y: lax.cond(x[0] > 0, lambda x: x + 1, lambda x: jnp.zeros(3), x * 2),
    lambda x, y: lax.scan(lambda total, each: (total, 3), x * 2, y),
    lambda x, y: lax.while_loop(lambda state: state[0][0] < 50, lambda state: (state[0] * 2, state[1]), (x + 1, y * 2)),
    lambda x, y: (x[:0] * 2, y + 1),
    lambda x, y: jax.jit(lambda x, y: (x * 2, y * 3))(x, y)[0],
])
def test_arguments_without_use(f):
    x, y = jnp.arange(1, 4.0), jnp.arange(3)
    found, expected = jax.jit(f, keep_unused=True)(x, y), f(x, y)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_donated_array_is_updated_in_place():
    x = jnp.linspace(0, 1, 600)
    address = x.unsafe_buffer_pointer()
    result = jax.jit(lambda x: jnp.sin(x) * 2, donate_argnums=0)(x)
    assert x.is_deleted() and result.unsafe_buffer_pointer() == address
    np.testing.assert_allclose(result, np.sin(np.linspace(0, 1, 600)) * 2, rtol=1e-5)
