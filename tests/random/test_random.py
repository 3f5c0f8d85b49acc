"""Random numbers: JAX's bits for JAX's keys, distributions, keys as values of programs, and what is refused."""

from __future__ import annotations

import base64
import copy
import json
import math
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
import scipy.stats

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax, random
from jaxlite.compilation import dispatch
from jaxlite.random import gammas, random123
from lowering import xla

REFERENCE = json.loads((pathlib.Path(__file__).parents[1] / "data" / "random_reference.json").read_text())
REFERENCE_JAXLIB = "0.10.2"
# These go through linear algebra or sums whose order of operations is the compiler's choice: equal up to rounding.
# The last bit of `beta` depends on the processor, in JAX too.
ROUNDED = ("r.multivariate_normal", "r.orthogonal", "r.ball", "r.beta", "r.dirichlet", "r.maxwell", "r.double_sided_maxwell")
LONG = ("r.gamma", "r.loggamma", "r.beta", "r.chisquare", "r.f", "r.t", "r.ball", "r.dirichlet", "r.binomial",
        "r.multinomial", "r.poisson", "r.generalized_normal")


def _names() -> dict:
    key = random.key(42)
    return {"r": random, "jnp": jnp, "np": np, "k": key, "p": random.PRNGKey(42), "ks": random.split(key, 3)}


def check_reference(section: str, call: str, own_code: Callable[[], None]) -> None:
    dtype, shape, data = REFERENCE[section][call]
    want = np.frombuffer(base64.b64decode(data), np.dtype(dtype)).reshape(shape)
    got = np.asarray(eval(call, _names()))
    if got.tobytes() != want.tobytes():  # the reference is from code as XLA generates it by default
        own_code()
        got = np.asarray(eval(call, _names()))
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    # Another jaxlib may compute logarithms and the like with another last bit.
    other = xla.VERSION_TEXT != REFERENCE_JAXLIB and got.dtype.kind not in "biu" and not call.startswith("r.uniform")
    if call.startswith(ROUNDED) or other:
        eps = float(ml_dtypes.finfo(got.dtype).eps)
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=16 * eps, atol=8 * eps)
    else:
        assert got.tobytes() == want.tobytes(), (got, want)


def _calls(section: str) -> list:
    """The calls of a section. Of samplers that compile long programs the first is enough for the normal run."""
    seen = set()
    result = []
    for call in REFERENCE[section]:
        name = call.split("(")[0]
        long = name in LONG and (name in seen or section == "x64")
        seen.add(name)
        result.append(pytest.param(call, marks=[pytest.mark.slow] * long))
    return result


@pytest.mark.parametrize("call", _calls("default"))
def test_same_bits_as_jax(call, own_code):
    check_reference("default", call, own_code)


@pytest.mark.parametrize("call", _calls("x64"))
def test_same_bits_as_jax_with_x64(call, own_code, x64):
    check_reference("x64", call, own_code)


@pytest.mark.parametrize("call", _calls("paired"))
def test_same_bits_as_jax_without_partitionable_counters(call, own_code):
    with jaxlite.core.config.threefry_partitionable(False):
        check_reference("paired", call, own_code)


def test_the_kernel_of_a_gpu():
    draw = lambda keys: jaxlite.vmap(lambda key: jaxlite.random.normal(key, (3,)))(keys)
    keys = jaxlite.random.split(jaxlite.random.key(0), 2)
    expected = draw(keys)
    with jaxlite.core.config.threefry_gpu_kernel_lowering(True):
        np.testing.assert_array_equal(draw(keys), expected)
        traced = jaxlite.jit(draw).trace(keys)
        for platform, name in (("cuda", "@cu_threefry2x32_ffi"), ("rocm", "@hip_threefry2x32_ffi")):
            assert name in traced.lower(lowering_platforms=(platform,)).as_text()


def test_threefry_known_answers():
    """The vectors that Random123 publishes for threefry2x32 with 20 rounds."""
    from jaxlite.random.threefry import threefry2x32

    for key, counter, want in (((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
                               ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
                               ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0))):
        got = jaxlite.jit(threefry2x32)(*(np.uint32(word) for word in (*key, *counter)))
        assert tuple(map(int, got)) == want


# --- distributions -----------------------------------------------------------------------------------

COUNT = 4000
S = scipy.stats
CONTINUOUS = {
    "uniform": (lambda k, n: random.uniform(k, n, minval=-1.0, maxval=3.0), S.uniform(-1, 4)),
    "normal": (random.normal, S.norm()),
    "truncated_normal": (lambda k, n: random.truncated_normal(k, -0.5, 2.0, n), S.truncnorm(-0.5, 2.0)),
    "exponential": (random.exponential, S.expon()),
    "gumbel": (random.gumbel, S.gumbel_r()),
    "gumbel_high": (lambda k, n: random.gumbel(k, n, mode="high"), S.gumbel_r()),
    "laplace": (random.laplace, S.laplace()),
    "logistic": (random.logistic, S.logistic()),
    "cauchy": (random.cauchy, S.cauchy()),
    "pareto": (lambda k, n: random.pareto(k, 2.5, n), S.pareto(2.5)),
    "rayleigh": (lambda k, n: random.rayleigh(k, 2.0, n), S.rayleigh(scale=2.0)),
    "weibull_min": (lambda k, n: random.weibull_min(k, 2.0, 1.5, n), S.weibull_min(1.5, scale=2.0)),
    "triangular": (lambda k, n: random.triangular(k, 1.0, 2.0, 5.0, n), S.triang(0.25, 1, 4)),
    "wald": (lambda k, n: random.wald(k, 1.5, n), S.invgauss(1.5)),
    "maxwell": (random.maxwell, S.maxwell()),
    "lognormal": (lambda k, n: random.lognormal(k, 0.7, n), S.lognorm(0.7)),
    "gamma": (lambda k, n: random.gamma(k, 2.5, n), S.gamma(2.5)),
    "small gamma": (lambda k, n: random.gamma(k, 0.4, n), S.gamma(0.4)),
    "loggamma": (lambda k, n: jnp.exp(random.loggamma(k, 0.4, n)), S.gamma(0.4)),
    "beta": (lambda k, n: random.beta(k, 0.5, 2.0, n), S.beta(0.5, 2.0)),
    "chisquare": (lambda k, n: random.chisquare(k, 3.0, n), S.chi2(3)),
    "f": (lambda k, n: random.f(k, 4.0, 7.0, n), S.f(4, 7)),
    "t": (lambda k, n: random.t(k, 3.0, n), S.t(3)),
    "generalized_normal": (lambda k, n: random.generalized_normal(k, 1.5, n), S.gennorm(1.5)),
    "double_sided_maxwell": (lambda k, n: abs(random.double_sided_maxwell(k, 0.0, 2.0, n)), S.maxwell(scale=2.0)),
    "ball": (lambda k, n: jnp.linalg.norm(random.ball(k, 3, 2, n), axis=-1) ** 3, S.uniform()),
}
DISCRETE = {
    "randint": (lambda k, n: random.randint(k, n, -3, 8), S.randint(-3, 8)),
    "bernoulli": (lambda k, n: random.bernoulli(k, 0.3, n).astype(int), S.bernoulli(0.3)),
    "bernoulli_high": (lambda k, n: random.bernoulli(k, 0.3, n, mode="high").astype(int), S.bernoulli(0.3)),
    "rademacher": (lambda k, n: (random.rademacher(k, n) + 1) // 2, S.bernoulli(0.5)),
    "geometric": (lambda k, n: random.geometric(k, 0.3, n), S.geom(0.3)),
    "poisson": (lambda k, n: random.poisson(k, 4.0, n), S.poisson(4)),
    "large poisson": (lambda k, n: random.poisson(k, 40.0, n), S.poisson(40)),
    "binomial": (lambda k, n: random.binomial(k, 12.0, 0.7, n), S.binom(12, 0.7)),
    "large binomial": (lambda k, n: random.binomial(k, 80.0, 0.4, n), S.binom(80, 0.4)),
    "categorical": (lambda k, n: random.categorical(k, jnp.log(jnp.array([0.2, 0.5, 0.3])), shape=n),
                    S.rv_discrete(values=([0, 1, 2], [0.2, 0.5, 0.3]))),
    "choice": (lambda k, n: random.choice(k, 4, n, p=jnp.array([0.1, 0.2, 0.3, 0.4])),
               S.rv_discrete(values=([0, 1, 2, 3], [0.1, 0.2, 0.3, 0.4]))),
    "multinomial": (lambda k, n: random.multinomial(k, jnp.full(n, 9.0), jnp.array([0.3, 0.6, 0.1]))[:, 1],
                    S.binom(9, 0.6)),
}  # fmt: skip
OFTEN = {name: [pytest.param(row, id=name) for name, row in rows.items()] for name, rows in
         (("continuous", CONTINUOUS), ("discrete", DISCRETE))}


@pytest.mark.parametrize("row", OFTEN["continuous"])
def test_continuous_distribution(row):
    draw, distribution = row
    values = np.asarray(draw(random.key(7), (COUNT,)), np.float64)
    assert S.kstest(values, distribution.cdf).pvalue > 1e-3


@pytest.mark.parametrize("row", OFTEN["discrete"])
def test_discrete_distribution(row):
    draw, distribution = row
    values = np.asarray(draw(random.key(7), (COUNT,))).astype(int)
    found, counts = np.unique(values, return_counts=True)
    expected = distribution.pmf(found) * COUNT
    assert expected.sum() > 0.99 * COUNT and (expected > 0).all()
    keep = expected >= 5
    statistic = ((counts - expected)[keep] ** 2 / expected[keep]).sum()
    assert S.chi2(keep.sum() - 1).sf(statistic) > 1e-3


def test_a_wrong_distribution_is_noticed():
    values = np.asarray(random.normal(random.key(7), (COUNT,)), np.float64)
    assert S.kstest(values, S.norm(0.1).cdf).pvalue < 1e-3


def test_bits_are_balanced_and_uncorrelated_between_split_keys():
    keys = random.split(random.key(1), 8)
    words = np.stack([np.asarray(random.bits(key, (2048,))) for key in keys])
    ones = np.unpackbits(words.view(np.uint8), axis=1).mean(axis=1)
    assert (abs(ones - 0.5) < 4 * 0.5 / np.sqrt(2048 * 32)).all()
    correlation = np.corrcoef(words.astype(float))
    assert (abs(correlation - np.eye(8)) < 5 / np.sqrt(2048)).all()
    assert len(np.unique(words)) > words.size - 5


def test_many_split_and_folded_keys_are_distinct():
    key = random.key(3)
    words = [np.asarray(random.key_data(random.split(key, 500)))]
    words.append(np.asarray(random.key_data(jaxlite.vmap(lambda n: random.fold_in(key, n))(jnp.arange(500) + 1000))))
    assert len(np.unique(np.concatenate(words), axis=0)) == 1000


def test_means_and_covariances_of_vectors():
    mean, cov = np.array([1.0, -2.0]), np.array([[2.0, 0.6], [0.6, 0.5]])
    x = np.asarray(random.multivariate_normal(random.key(0), mean.astype("f4"), cov.astype("f4"), (COUNT,)))
    np.testing.assert_allclose(x.mean(0), mean, atol=0.1)
    np.testing.assert_allclose(np.cov(x.T), cov, atol=0.15)
    for dtype in (np.float16, jnp.bfloat16):  # of what is drawn
        assert random.multivariate_normal(random.key(0), mean.astype("f4"), cov.astype("f4"), dtype=dtype).dtype == np.float32
    x = np.asarray(random.dirichlet(random.key(0), jnp.array([1.0, 2.0, 5.0]), (COUNT,)))
    np.testing.assert_allclose(x.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(x.mean(0), np.array([1, 2, 5]) / 8, atol=0.02)


@pytest.mark.parametrize(("n", "m"), [(3, None), (4, 2), (2, 4)])
def test_orthogonal_matrices_are_orthogonal(n, m):
    q = np.asarray(random.orthogonal(random.key(0), n, (2,), m=m))
    assert q.shape == (2, n, m or n)
    small = np.swapaxes(q, -1, -2) @ q if n >= (m or n) else q @ np.swapaxes(q, -1, -2)
    np.testing.assert_allclose(small, np.broadcast_to(np.eye(min(n, m or n)), small.shape), atol=1e-5)


def test_permutations_permute():
    with pytest.raises(ValueError, match="out of bounds"):
        random.permutation(random.key(0), 3, axis=1)
    x = np.arange(24).reshape(4, 6)
    got = np.asarray(random.permutation(random.key(0), x, 1))
    assert sorted(map(tuple, got.T)) == sorted(map(tuple, x.T)) and (got != x).any()
    got = np.asarray(random.permutation(random.key(0), x, 1, independent=True))
    assert (np.sort(got, 1) == x).all() and (np.diff(got, axis=0) != 6).any()
    assert sorted(np.asarray(random.choice(random.key(0), 10, (10,), replace=False))) == list(range(10))
    assert random.choice(random.key(0), jnp.ones((0, 3)), (0,), p=jnp.ones(0)).shape == (0, 3)


# --- shapes and dtypes -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (2, 1, 3)])
@pytest.mark.parametrize("name", ["bits", "uniform", "normal", "exponential", "rademacher"])
def test_edge_shapes(name, shape):
    assert getattr(random, name)(random.key(0), shape).shape == shape


def test_a_shape_stands_before_that_of_the_parameters_of_double_sided_maxwell():
    draw = lambda *args: random.double_sided_maxwell(random.key(0), *args)
    assert draw(np.zeros(2), np.ones((3, 1)), (4,)).shape == (4, 3, 2)
    assert draw(np.zeros(2), 1.0, (2,)).shape == draw(np.zeros(2), 1.0).shape == (2, 2)  # without it, as if it were theirs
    np.testing.assert_allclose(draw(np.float32([0, 100]), 1.0, (2,)) - draw(0.0, 1.0, (2, 2)), [[0, 100]] * 2, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float8_e4m3fn"])
def test_uniform_stays_in_its_interval(dtype):
    x = random.uniform(random.key(0), (512,), dtype)
    values = np.asarray(x).astype("f4")
    assert x.dtype == np.dtype(dtype) and values.min() >= 0 and values.max() < 1
    assert len(np.unique(values)) > (4 if dtype.startswith("float8") else 60)


def test_float_parameters_decide_no_dtype():
    assert random.gamma(random.key(0), np.float16(2)).dtype == np.float32
    assert random.gamma(random.key(0), np.float16(2), dtype="float16").dtype == np.float16


# --- keys --------------------------------------------------------------------------------------------


@pytest.fixture
def keys():
    return random.split(random.key(0), 3)


def words(keys) -> np.ndarray:
    return np.asarray(random.key_data(keys))


def test_type_of_keys(keys):
    key = keys[0]
    assert (key.shape, key.ndim, key.size, key.itemsize, key.nbytes) == ((), 0, 1, 8, 8)
    assert key.dtype.name == "key<fry>" and str(key.aval) == "key<fry>[]"
    assert isinstance(key, jaxlite.Array) and type(key).__name__ == "PRNGKeyArray"
    assert jnp.issubdtype(key.dtype, jaxlite.dtypes.prng_key) and jnp.issubdtype(key.dtype, jaxlite.dtypes.extended)
    assert repr(random.key(1)) == "Array((), dtype=key<fry>) overlaying:\n[0 1]"
    assert random.key_dtype() == key.dtype and random.key_dtype("rbg") != key.dtype
    assert random.key_impl(key) == random.key_impl(random.PRNGKey(0)) == "threefry2x32"
    assert random.key(1, dtype=random.key_dtype("rbg")).dtype.name == "key<rbg>"
    assert keys.on_device_size_in_bytes() == 24 and (jnp.full_like(keys, 0) == random.key(0)).all()
    logits = jnp.array([[1.0, 9.0, 2.0], [5.0, 1.0, 2.0]])
    assert random.categorical(key, logits, axis=jnp.int32(0)).tolist() == random.categorical(key, logits, axis=0).tolist()
    with jaxlite.core.config.default_prng_impl("unsafe_rbg"):
        assert random.key(1).dtype.name == "key<urbg>" and random.PRNGKey(1).shape == (4,)
        assert random.normal(random.PRNGKey(1), (2,)).shape == (2,)


MOVES = {
    "index": lambda x: x[1], "negative index": lambda x: x[-1], "slice": lambda x: x[1:], "reverse": lambda x: x[::-1],
    "array index": lambda x: x[np.array([2, 0])], "no index": lambda x: x[np.zeros(0, int)],
    "read nowhere": lambda x: x.at[np.zeros(0, int)].get(), "mask": lambda x: x[np.array([True, False, True])],
    "new axis": lambda x: x[None], "reshape": lambda x: x.reshape(3, 1), "transpose": lambda x: x.reshape(1, 3).T,
    "squeeze": lambda x: x[:1].squeeze(), "ravel": lambda x: x.reshape(3, 1).ravel(),
    "concatenate": lambda x: jnp.concatenate([x, x[:1]]), "stack": lambda x: jnp.stack([x, x], 1),
    "broadcast": lambda x: jnp.broadcast_to(x[0], (2, 2)), "where": lambda x: jnp.where(np.arange(3) > 0, x, x[0]),
    "set": lambda x: x.at[0].set(x[2]), "flip": jnp.flip, "roll": lambda x: jnp.roll(x, 1),
    "expand_dims": lambda x: jnp.expand_dims(x, 0), "take": lambda x: jnp.take(x, 1), "tile": lambda x: jnp.tile(x, 2),
    "append": lambda x: jnp.append(x, x[0]), "swapaxes": lambda x: x.reshape(3, 1).swapaxes(0, 1),
    "dynamic_slice": lambda x: lax.dynamic_slice(x, (1,), (2,)),
    "dynamic_update_slice": lambda x: lax.dynamic_update_slice(x, x[2:], (0,)),
    "array": lambda x: jnp.array([x[0], x[1]]),
}  # fmt: skip


def _moves_on_rows(name: str) -> np.ndarray:
    """The same move on numbers 0, 1, 2: where each key goes."""
    return np.asarray(MOVES[name](jnp.arange(3)))


@pytest.mark.parametrize("name", MOVES)
def test_keys_move_like_numbers(name, keys):
    got = MOVES[name](keys)
    assert got.dtype == keys.dtype
    np.testing.assert_array_equal(words(got), words(keys)[_moves_on_rows(name)])
    np.testing.assert_array_equal(words(jaxlite.jit(MOVES[name])(keys)), words(got))


def test_keys_compare_and_iterate(keys):
    assert (keys == keys[1]).tolist() == [False, True, False]
    assert (keys != keys[1]).tolist() == [True, False, True]
    assert (keys[:, None] == keys[None]).tolist() == np.eye(3, dtype=bool).tolist() and (keys[1] == keys).tolist() == [0, 1, 0]
    assert jnp.isin(keys[:, None], keys[1:]).tolist() == [[False], [True], [True]]
    assert len(keys) == 3 and [words(key).tolist() for key in keys] == words(keys).tolist()
    many = random.split(keys[0], 40)  # rows of long arrays come in groups
    assert [words(key).tolist() for key in many] == words(many).tolist()
    first, second = random.split(random.PRNGKey(0))
    assert first.shape == (2,) and (first != second).any()


@pytest.mark.parametrize("k", [0, 1, -2])
def test_keys_on_a_diagonal(k, keys):
    found = words(jnp.diagflat(keys, k))
    np.testing.assert_array_equal(found, np.stack([np.diag(part, k) for part in words(keys).T], -1))
    with pytest.raises(TypeError, match="pad does not accept dtype key<fry>"):
        lax.pad(keys, keys[0], ((1, 1, 0),))


def test_keys_are_arguments_results_and_constants_of_jit(keys, count_traces):
    traced = count_traces(lambda keys: (keys[0], random.normal(keys[1])))
    compiled = jaxlite.jit(traced)
    for _ in range(2):
        key, value = compiled(keys)
    assert traced.count == 1
    assert (words(key) == words(keys)[0]).all() and value == random.normal(keys[1])
    compiled(keys[:2])
    assert traced.count == 2  # another shape
    key = random.key(5)
    assert jaxlite.jit(lambda x: x + random.uniform(key))(1.0) == 1.0 + random.uniform(key)
    assert (words(jaxlite.jit(lambda: key)()) == words(key)).all()
    legacy = jaxlite.jit(lambda x: x)
    assert legacy(words(key)).dtype == np.uint32 and legacy(key).dtype == key.dtype
    assert legacy(words(key)).dtype == np.uint32


def test_compiled_calls_see_through_keys():
    f = jaxlite.jit(lambda tree, n: {"key": random.clone(tree[0]), "x": [tree[1] + n]})
    key, x = random.key(3), jnp.ones(2)
    keys = (key, random.split(key, 2), random.key(3, impl="rbg"), random.PRNGKey(3))
    calls = [((each, x), 5) for each in keys]
    first = [f(*call) for call in calls]
    missed = []
    dispatch.observers.append(lambda *call: missed.append(call))
    try:
        again = [f(*call) for call in calls]
        assert not missed  # each of the four has its own entry in C++
    finally:
        dispatch.observers.pop()
    for one, other, (tree, _) in zip(first, again, calls, strict=True):
        assert type(one["key"]) is type(other["key"]) is type(tree[0])
        assert one["key"].dtype == other["key"].dtype == tree[0].dtype and one["key"].shape == other["key"].shape
        want = np.asarray(random.key_data(tree[0]))
        np.testing.assert_array_equal(random.key_data(one["key"]), want)
        np.testing.assert_array_equal(random.key_data(other["key"]), want)


def test_a_donated_key_is_gone_at_every_call():
    f = jaxlite.jit(lambda key: random.fold_in(key, 1), donate_argnums=0)
    for _ in range(3):
        key = random.key(0)
        f(key)
        assert key.is_deleted()
        with pytest.raises((RuntimeError, ValueError), match="deleted"):
            f(key)


def test_keys_in_loops_and_branches(keys):
    key = keys[0]
    last = lax.fori_loop(0, 3, lambda i, key: random.split(key)[0], key)
    want = key
    for _ in range(3):
        want = random.split(want)[0]
    assert (words(last) == words(want)).all()
    _, (values, out) = lax.scan(lambda carry, key: (carry, (random.uniform(key), random.fold_in(key, 1))), 0, keys)
    assert values.tolist() == [float(random.uniform(key)) for key in keys]
    assert words(out).tolist() == [words(random.fold_in(key, 1)).tolist() for key in keys]
    picked = lax.cond(True, lambda a, b: a, lambda a, b: b, keys[0], keys[1])
    assert (words(picked) == words(keys)[0]).all()


def test_programs_print_keys():
    text = str(jaxlite.make_jaxpr(lambda key: random.split(key)[0])(random.key(0)))
    assert "a:key<fry>[]" in text and "b:key<fry>[2] = random_split[shape=(2,)] a" in text
    text = str(jaxlite.make_jaxpr(lambda seed: random.bits(random.key(seed), (3,)))(0))
    assert "random_seed[impl=fry]" in text and "random_bits[bit_width=32 shape=(3,)]" in text
    text = str(jaxlite.make_jaxpr(random.fold_in, )(random.PRNGKey(0), 3))
    assert "random_wrap[impl=fry] a" in text and "random_unwrap" in text
    jaxlite.jit(random.normal).lower(random.key(0)).as_text()


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_wrap_and_unwrap(impl):
    key = random.key(9, impl=impl)
    again = random.wrap_key_data(random.key_data(key), impl=impl)
    assert again.dtype == key.dtype and bool(again == key) and bool(random.clone(key) == key)
    assert random.key_impl(key) == impl
    for other in (pickle.loads(pickle.dumps(key)), copy.deepcopy(key), jaxlite.device_put(key), jnp.asarray(key)):
        assert other.dtype == key.dtype and bool(other == key)
    assert jaxlite.tree.map(lambda x: x, {"k": key})["k"] is key
    assert random.permutation(key, 6).shape == (6,) and random.gamma(key, 2.0, (3,)).shape == (3,)


def test_traced_seeds():
    assert words(jaxlite.jit(random.key)(-3)).tolist() == words(random.key(-3)).tolist() == [0, 2**32 - 3]
    assert jaxlite.jit(lambda: random.PRNGKey(7))().tolist() == [0, 7]


def test_eager_traced_and_typed_agree():
    key = random.key(11)
    for draw in (lambda k: random.normal(k, (3,)), lambda k: random.randint(k, (3,), 0, 9),
                 lambda k: random.permutation(k, 4), lambda k: random.choice(k, 5, (2,), False)):
        want = np.asarray(draw(key))
        for got in (draw(random.key_data(key)), draw(words(key)), jaxlite.jit(draw)(key),
                    jaxlite.jit(draw)(random.key_data(key))):
            np.testing.assert_array_equal(np.asarray(got), want)


def test_one_eager_call_compiles_once(count_traces):
    random.normal(random.key(0), (3,))
    with jaxlite.log_compiles():
        import logging

        records: list = []
        handler = logging.Handler()
        handler.emit = records.append  # type: ignore[method-assign]
        logging.getLogger().addHandler(handler)
        try:
            random.normal(random.key(1), (3,))
            random.normal(random.key(2), [3])
        finally:
            logging.getLogger().removeHandler(handler)
    assert not records


# --- transformations ---------------------------------------------------------------------------------


def test_vmap_over_keys(keys):
    for draw in (random.normal, lambda k: random.uniform(k, (2,)), lambda k: random.gamma(k, 2.0, (2,)),
                 lambda k: words_of(random.split(k)),
                 lambda k: words_of(random.fold_in(k, 3)), lambda k: random.permutation(k, 4)):
        got = np.asarray(jaxlite.vmap(draw)(keys))
        np.testing.assert_array_equal(got, np.stack([np.asarray(draw(key)) for key in keys]))
        legacy = np.asarray(jaxlite.vmap(draw)(random.key_data(keys)))
        np.testing.assert_array_equal(legacy, got)


def words_of(keys):
    return random.key_data(keys)


def test_vmap_over_numbers_and_both(keys):
    numbers = jnp.arange(3, dtype=jnp.uint32)
    one = jaxlite.vmap(random.fold_in, (None, 0))(keys[0], numbers)
    assert words(one).tolist() == [words(random.fold_in(keys[0], n)).tolist() for n in range(3)]
    both = jaxlite.vmap(random.fold_in)(keys, numbers)
    assert words(both).tolist() == [words(random.fold_in(key, n)).tolist() for n, key in enumerate(keys)]
    grid = jaxlite.vmap(jaxlite.vmap(random.fold_in, (None, 0)), (0, None))(keys, numbers[:2])
    assert words(grid).tolist() == [[words(random.fold_in(key, n)).tolist() for n in range(2)] for key in keys]
    seeded = jaxlite.vmap(random.key)(jnp.arange(3))
    assert words(seeded).tolist() == [[0, 0], [0, 1], [0, 2]]
    alphas = jnp.array([0.5, 2.0, 9.0])
    got = jaxlite.vmap(lambda a: random.gamma(keys[0], a, (2,)))(alphas)
    want = jnp.stack([random.gamma(keys[0], a, (2,)) for a in alphas])
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.own_code
def test_draws_with_keys_of_a_batch_in_a_loop(keys):
    """A hash of keys that are hashes themselves, in one kernel, took XLA more than minutes."""
    draw = jaxlite.vmap(lambda n: random.uniform(random.fold_in(keys[0], n)))
    got = lax.fori_loop(0, 2, lambda i, x: x + draw(jnp.arange(20) + i), jnp.zeros(20))
    np.testing.assert_allclose(got, draw(np.arange(20)) + draw(np.arange(20) + 1), rtol=1e-6)


@pytest.mark.parametrize(("impl", "samples", "batched", "folded"), [
    ("rbg", [-0.7112524509429932, 0.6195005178451538, 1.9226903915405273],
     [[4.361684322357178, 1.6473441123962402], [1.0139328241348267, 2.2760863304138184]],
     [[3943713040, 2478059763], [2432397215, 782499204]]),
    ("unsafe_rbg", [-7.616926670074463, 1.7647370100021362, 1.6914480924606323],
     [[3.083869457244873, 4.380520343780518], [3.0792951583862305, 0.5409339070320129]],
     [[3338619339, 4101510848], [1032027753, 251928930]]),
])
def test_each_rbg_key_draws_alone_in_gamma_and_fold_in(impl, samples, batched, folded):
    """Values of JAX: XLA's generator under `vmap` takes one key for all, which must not happen where JAX has no `vmap`."""
    key = random.key(3, impl=impl)
    np.testing.assert_allclose(random.loggamma(key, jnp.array([0.3, 2.0, 5.0])), samples, rtol=1e-5)
    keys = random.split(key, 2)
    np.testing.assert_allclose(jaxlite.vmap(lambda key: random.gamma(key, 2.0, (2,)))(keys), batched, rtol=1e-5)
    both = jaxlite.vmap(lambda key: jaxlite.vmap(lambda i: random.fold_in(key, i))(jnp.array([7, 8])))(keys)
    np.testing.assert_array_equal(random.key_data(both)[..., 0], folded)
    one = jaxlite.vmap(lambda key: random.fold_in(key, 7))(keys)
    np.testing.assert_array_equal(random.key_data(one), [random.key_data(random.fold_in(key, 7)) for key in keys])


def test_vmap_over_rbg_keys_uses_the_first():
    keys = random.split(random.key(0, impl="rbg"), 4)
    got = jaxlite.vmap(random.uniform)(keys)
    assert got.tolist() == random.uniform(keys[0], (4,)).tolist()


def test_gradients_pass_by_keys(keys):
    value, slope = jaxlite.value_and_grad(lambda x, key: x**2 * random.normal(key))(3.0, keys[0])
    np.testing.assert_allclose(slope, 2 / 3 * value, rtol=1e-6)
    _, pull = jaxlite.vjp(lambda x, key: x * random.normal(key), 2.0, keys[0])
    slope, none = pull(1.0)
    assert slope == random.normal(keys[0]) and none.dtype == jaxlite.dtypes.float0


def test_keys_through_a_differentiated_loop(keys):
    def loss(weight, key):
        def step(carry, _):
            total, key = carry
            key, drawn = random.split(key)
            return (jnp.where(random.bernoulli(drawn, 0.5, (3,)), total * weight, total + 1), key), None

        return lax.scan(step, (jnp.ones(3), key), None, length=3)[0][0].sum()

    step = 1e-2
    want = [(loss(2 + step, key) - loss(2 - step, key)) / (2 * step) for key in keys]
    np.testing.assert_allclose([jaxlite.grad(loss)(2.0, key) for key in keys], want, rtol=1e-3)
    np.testing.assert_allclose(jaxlite.vmap(jaxlite.grad(loss), (None, 0))(2.0, keys), want, rtol=1e-3)


def test_vmap_of_branches_and_loops_on_keys(keys):
    def branch(predicate, key):
        return lax.cond(predicate, lambda key: random.fold_in(key, 1), lambda key: key, key)

    got = jaxlite.vmap(branch)(jnp.array([True, False, True]), keys)
    assert words(got).tolist() == [words(random.fold_in(key, 1) if index != 1 else key).tolist()
                                   for index, key in enumerate(keys)]
    counts = jaxlite.vmap(random.poisson)(keys, jnp.array([1.0, 20.0, 100.0]))
    assert counts.tolist() == [int(random.poisson(key, rate)) for key, rate in zip(keys, (1.0, 20.0, 100.0))]


def test_gamma_is_differentiable_in_alpha():
    key = random.key(0)
    draw = lambda a: random.gamma(key, a, (200,))
    slope = np.asarray(jaxlite.jvp(draw, (2.0,), (1.0,))[1], float)
    samples = np.asarray(draw(2.0), float)
    step = 1e-4  # at a fixed quantile
    quantile = S.gamma(2.0).cdf(samples)
    want = (S.gamma(2 + step).ppf(quantile) - S.gamma(2 - step).ppf(quantile)) / (2 * step)
    np.testing.assert_allclose(slope, want, rtol=2e-3, atol=2e-3)
    log_slope = np.asarray(jaxlite.jvp(lambda a: random.loggamma(key, a, (200,)), (2.0,), (1.0,))[1], float)
    np.testing.assert_allclose(log_slope, slope / samples, rtol=1e-3)


def test_normal_is_differentiable_in_what_is_made_of_it():
    key = random.key(0)
    slope = jaxlite.grad(lambda low: random.uniform(key, (), minval=low, maxval=2.0))(0.5)
    np.testing.assert_allclose(slope, 1 - random.uniform(key), rtol=1e-5)


# --- errors ------------------------------------------------------------------------------------------

K = random.key(0)
ERRORS = [
    (lambda: random.normal(3), TypeError, "expected key_data to have ndim, shape, and dtype"),
    (lambda: random.normal(None), TypeError, "unexpected PRNG key type"),
    (lambda: random.normal([0, 1]), TypeError, "unexpected PRNG key type"),
    (lambda: random.normal(jnp.zeros(3, "uint32")), TypeError, "key_data.shape to end with"),
    (lambda: random.normal(jnp.zeros(2, "int32")), TypeError, "key_data.dtype = uint32"),
    (lambda: random.normal(random.split(K)), ValueError, "normal accepts a single key"),
    (lambda: random.split(random.split(K)), ValueError, "split accepts a single key"),
    (lambda: random.split(jnp.zeros((3, 2), "uint32")), ValueError, "split accepts a single key"),
    (lambda: random.permutation(random.split(K), 3), ValueError, "permutation accepts a single key"),
    (lambda: random.fold_in(K, jnp.arange(3)), TypeError, "fold_in accepts a scalar"),
    (lambda: random.fold_in(K, -1), OverflowError, "out of bounds"),
    (lambda: random.fold_in(K, 2**40), OverflowError, "out of bounds"),
    (lambda: random.key(1.5), TypeError, "seed must be an integer"),
    (lambda: random.key(np.bool_(True)), TypeError, "seed must be an integer"),
    (lambda: random.key(jnp.arange(2)), TypeError, "accepts a scalar seed"),
    (lambda: random.key(K), TypeError, "accepts a scalar seed"),
    (lambda: random.key(2**64), OverflowError, "too large"),
    (lambda: random.key(1, impl="foo"), ValueError, "unrecognized PRNG implementation"),
    (lambda: random.key(1, impl="rbg", dtype=K.dtype), ValueError, "cannot both"),
    (lambda: random.key(1, dtype=float), TypeError, "for specifying PRNG implementation"),
    (lambda: jnp.issubdtype(int, K), ValueError, "pass its dtype"),
    (lambda: random.wrap_key_data(jnp.arange(2)), TypeError, "key_data.dtype = uint32"),
    (lambda: random.uniform(K, (2,), int), ValueError, "must be a float dtype, got int32"),
    (lambda: random.normal(K, (2,), int), ValueError, "must be a float or complex dtype"),
    (lambda: random.beta(K, 2.0, 1.0, (2,), "float4_e2m1fn"), TypeError, "8-, 16-, 32-, or 64-bit dtypes, got float4_e2m1fn"),
    (lambda: random.uniform(K, (2,), minval=jnp.zeros(3)), TypeError, "broadcast"),
    (lambda: random.uniform(K, (2, 3), maxval=jnp.zeros(2)), TypeError, "broadcast"),
    (lambda: random.uniform(K, (-2,)), (TypeError, ValueError), "-2"),
    (lambda: random.bits(K, (2,), "int32"), ValueError, "unsigned int dtype"),
    (lambda: random.randint(K, (2,), 0, 10, float), TypeError, "only accepts integer dtypes"),
    (lambda: random.randint(K, (2,), jnp.arange(3), 10), ValueError, "Incompatible shapes"),
    (lambda: random.bernoulli(K, 1), TypeError, "must have a floating dtype"),
    (lambda: random.bernoulli(K, 0.5, (2,), "mid"), ValueError, "expected 'high' or 'low'"),
    (lambda: random.bernoulli(K, jnp.zeros(3), (2,)), ValueError, "Incompatible shapes"),
    (lambda: random.gamma(K, jnp.ones(3), (2,)), ValueError, "Incompatible shapes"),
    (lambda: random.poisson(random.key(0, impl="rbg"), 2.0), NotImplementedError, "threefry2x32"),
    (lambda: random.choice(K, 5, (2,), p=jnp.ones(3)), ValueError, "p must be None or a 1D vector"),
    (lambda: random.choice(K, 0, (2,)), ValueError, "greater than 0"),
    (lambda: random.choice(K, 3, (5,), replace=False), ValueError, "larger sample"),
    (lambda: random.choice(K, [1, 2], (5,)), TypeError, "position 0"),
    (lambda: random.permutation(K, 3.5), TypeError, "integer or at least 1-dimensional"),
    (lambda: random.permutation(K, True), TypeError, "integer or at least 1-dimensional"),
    (lambda: random.choice(K, 5, 2), TypeError, "shape argument of jax.random.choice must be a sequence, got 2"),
    (lambda: random.permutation(K, [1, 2]), TypeError, "position 0"),
    (lambda: random.multivariate_normal(K, jnp.zeros(2), jnp.eye(3)), ValueError, "cov.shape == (3, 3)"),
    (lambda: random.multivariate_normal(K, jnp.zeros(()), jnp.eye(3)), ValueError, "mean.ndim >= 1"),
    (lambda: random.multivariate_normal(K, jnp.zeros(2), jnp.eye(2), method="foo"), ValueError, "method must be"),
    (lambda: random.dirichlet(K, 1.0), ValueError, "alpha.ndim >= 1"),
    (lambda: random.categorical(K, [0.0, 1.0]), TypeError, "position 0"),
    (lambda: random.categorical(K, jnp.zeros(2, int)), ValueError, "must be a float dtype, got int32"),
    (lambda: random.categorical(K, jnp.zeros(2), axis=None), TypeError, "axis must be an integer, got None"),
    (lambda: random.uniform(K, (2,), jnp.zeros(2)), ValueError, "argument 'dtype' of uniform"),
    (lambda: random.categorical(K, jnp.zeros((2, 3)), shape=(3,)), ValueError, "Incompatible shapes"),
    (lambda: random.categorical(K, jnp.zeros((2, 3)), shape=(4, 2), replace=False), ValueError, "cannot exceed"),
    (lambda: random.normal(K, (2,), shape=(3,)), TypeError, "multiple values"),
    (lambda: random.normal(K, foo=3), TypeError, "foo"),
    (lambda: random.normal(), TypeError, "key"),
    (lambda: K + 1, (TypeError, ValueError), "key<fry>"),
    (lambda: K + K, TypeError, "key<fry>"),
    (lambda: -K, TypeError, "key<fry>"),
    (lambda: K < K, TypeError, "key<fry>"),
    (lambda: np.asarray(K), TypeError, "key_data"),
    (lambda: bool(K), TypeError, "boolean"),
    (lambda: len(K), TypeError, "unsized"),
    (lambda: hash(K), TypeError, "unhashable"),
    (lambda: K.astype("uint32"), ValueError, "key<fry>"),
    (lambda: K.item(), NotImplementedError, "key_data"),
    (lambda: K[None].at[0].apply(lambda key: key), NotImplementedError, "key<fry>"),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(ERRORS)))
def test_errors(index):
    call, kind, words = ERRORS[index]
    with pytest.raises(kind) as info:
        call()
    assert words in str(info.value)


def test_random_loads_on_first_use():
    program = ("import sys, jaxlite; assert 'jaxlite.random' not in sys.modules; jaxlite.random.key(0); "
               "assert 'jaxlite.random' in sys.modules")
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_default_has_the_bits_of_the_same_value():
    key = random.key(0)
    counts = [random.multinomial(key, 5, jnp.array([0.2, 0.3, 0.5]), dtype=dtype) for dtype in ("int8", "float32")]
    logs = 0.5 * random.normal(key, (2,), "complex64")
    np.testing.assert_allclose(random.lognormal(key, 0.5, (2,), "complex64"), np.exp(logs), rtol=1e-5)
    assert counts[0].dtype == np.int8 and counts[0].tolist() == counts[1].tolist()
    np.testing.assert_array_equal(random.ball(key, 4, shape=(5, 6)), random.ball(key, 4, 2.0, (5, 6)))


def test_counts_are_drawn_in_the_precision_of_their_probabilities(x64):
    key, p = random.key(0), jnp.full(3, 0.3, "float32")
    for draw in (lambda p: random.binomial(key, 5.0, p), lambda p: random.multinomial(key, jnp.float32(5), p)):
        text = str(jaxlite.make_jaxpr(draw)(p))
        assert "bit_width=32" in text and "bit_width=64" not in text
        assert "bit_width=64" in str(jaxlite.make_jaxpr(draw)(p.astype("float64")))


def test_a_key_that_a_traced_function_let_out():
    kept = []
    jaxlite.jit(lambda typed, legacy: kept.extend((typed, legacy)))(random.key(0), random.PRNGKey(0))
    for call in (random.split, random.normal, random.key_data, random.clone, jaxlite.device_put,
                 lambda key: random.fold_in(key, 1)):
        with pytest.raises(jaxlite.errors.UnexpectedTracerError):
            call(kept[0])
    with pytest.raises(jaxlite.errors.UnexpectedTracerError):
        random.normal(kept[1])


def test_bits_of_less_than_eight_bits():
    whole = random.bits(random.key(0), (16,), "uint8")
    for name in ("uint4", "uint2"):
        found = random.bits(random.key(0), (16,), name)
        assert found.dtype == getattr(ml_dtypes, name)
        np.testing.assert_array_equal(found.astype("uint8"), np.asarray(whole) % (16 if name == "uint4" else 4))


# --- generators that hash wider counters, or by Philox ------------------------------------------------


@pytest.mark.parametrize(("name", "keys", "of_zeros", "of_ones"), [  # the known answers of Random123
    ("philox2x32", 1, [0xFF1DAE59, 0x6CD10DF2], [0x2C3F628B, 0xAB4FD7AD]),
    ("philox4x32", 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8], [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    ("threefry4x32", 4, [0x9C6CA96A, 0xE17EAE66, 0xFC10ECD4, 0x5256A7D8], [0x2A881696, 0x57012287, 0xF6C7446E, 0xA16A6732]),
])
def test_hashes_are_those_of_random123(name, keys, of_zeros, of_ones):
    hash_ = getattr(random123, name)
    for word, expected in ((0, of_zeros), (0xFFFFFFFF, of_ones)):
        words = [jnp.uint32(word)] * 4
        assert [int(x) for x in hash_(words[:keys], words[: len(expected)])] == expected


@pytest.mark.parametrize(("impl", "wide", "split", "folded", "bits", "wide_bits"), [  # JAX's
    ("philox2x32", [326457608], [[[906538458]], [[2504544856]]],
     [2717476500], [140, 52108, 4239117196], 413358720581845020),
    ("philox4x32", [3070865155, 1409865214], [[[3098887303, 872598219]], [[2043840545, 3292108881]]],
     [2733419177, 2365762036], [145, 14737, 3482990993], 18404114513097529143),
    ("threefry4x32", [3617711967, 3739764675, 2917855108, 609554591],
     [[[2286648283, 4024735732, 4156311338, 4244039720]], [[3336391678, 594917935, 1222465640, 2336496525]]],
     [3085057736, 3825876309, 2876795113, 206969423], [240, 18928, 2731035120], 14499667640142881557),
])
def test_keys_of_other_generators_are_those_of_jax(impl, wide, split, folded, bits, wide_bits):
    with jaxlite.enable_x64(True):
        key = random.key(2**40 + 3, impl=impl)
        assert random.key_data(key).tolist() == wide
        assert random.key_data(random.split(key, (2, 1))).tolist() == split
        assert random.key_data(random.fold_in(key, 7)).tolist() == folded
        assert [int(random.bits(key, (3,), f"uint{width}")[2]) for width in (8, 16, 32)] == bits
        assert int(random.bits(key, (3,), "uint64")[2]) == wide_bits
        keys = random.split(key, 3)
        together = jaxlite.vmap(lambda key: random.bits(random.fold_in(key, 1), (2,)))(keys)
        assert together.tolist() == [random.bits(random.fold_in(each, 1), (2,)).tolist() for each in keys]


@pytest.mark.parametrize("shape", [(129,), (16, 16), (3, 100)])
def test_gamma_variates_in_blocks_are_those_that_are_drawn_at_once(shape):
    keys, alpha = random.split(random.key(5), shape), np.linspace(0.2, 9.0, math.prod(shape), dtype=np.float32).reshape(shape)
    blocks = jaxlite.jit(lambda keys, alpha: gammas._in_blocks(keys, alpha, True))(keys, alpha)
    at_once = jaxlite.jit(lambda keys, alpha: gammas._by_rejection(keys, alpha, True))(keys, alpha)
    np.testing.assert_allclose(blocks, at_once, rtol=1e-6)
