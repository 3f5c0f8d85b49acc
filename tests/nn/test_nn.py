"""Activations against NumPy formulas, their gradients against differences; softmax and relatives; attention; one-hot."""

import ml_dtypes
import numpy as np
import pytest
import scipy.special

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import nn

X = np.array([-30.0, -7.5, -2.3, -0.9, -0.2, 0.3, 0.8, 1.7, 5.5, 8.0, 40.0])


def near(got, expected, tol=1e-5):
    got = np.asarray(got)
    assert got.shape == np.shape(expected)
    np.testing.assert_allclose(got, expected, rtol=tol, atol=tol)


def sigmoid(x):
    return scipy.special.expit(x)


ALPHA, SCALE = 1.6732632423543772, 1.0507009873554805  # of selu: Klambauer et al. 2017

ACTIVATIONS = [
    (nn.relu, lambda x: np.maximum(x, 0)),
    (nn.relu6, lambda x: np.clip(x, 0, 6)),
    (nn.sigmoid, sigmoid),
    (nn.softplus, lambda x: np.logaddexp(x, 0)),
    (nn.sparse_plus, lambda x: np.where(x <= -1, 0, np.where(x >= 1, x, (x + 1) ** 2 / 4))),
    (nn.sparse_sigmoid, lambda x: np.clip((x + 1) / 2, 0, 1)),
    (nn.soft_sign, lambda x: x / (1 + np.abs(x))),
    (nn.silu, lambda x: x * sigmoid(x)),
    (nn.swish, lambda x: x * sigmoid(x)),
    (nn.mish, lambda x: x * np.tanh(np.logaddexp(x, 0))),
    (nn.log_sigmoid, scipy.special.log_expit),
    (nn.elu, lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
    (nn.celu, lambda x: np.maximum(x, 0) + np.expm1(np.minimum(x, 0))),
    (nn.selu, lambda x: SCALE * np.where(x > 0, x, ALPHA * np.expm1(np.minimum(x, 0)))),
    (nn.gelu, lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))),
    (nn.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x)),
    (nn.hard_tanh, lambda x: np.clip(x, -1, 1)),
    (nn.hard_sigmoid, lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    (nn.hard_silu, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    (nn.hard_swish, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    (nn.squareplus, lambda x: (x + np.sqrt(x * x + 4)) / 2),
    (nn.tanh, np.tanh),
    (nn.identity, lambda x: x),
]


@pytest.mark.parametrize("fun, oracle", ACTIVATIONS, ids=[row[0].__name__ for row in ACTIVATIONS])
def test_activations(fun, oracle, x64):
    values, slopes = jax.jit(lambda x: (fun(x), jax.vmap(jax.grad(fun))(x)))(X)
    assert values.dtype == np.float64
    near(values, oracle(X), 1e-12)
    near(slopes, (oracle(X + 1e-6) - oracle(X - 1e-6)) / 2e-6, 1e-7)


@pytest.mark.parametrize("fun, oracle", [
    (lambda x: nn.gelu(x, approximate=False), lambda x: x * scipy.special.ndtr(x)),
    (lambda x: nn.elu(x, 0.5), lambda x: np.where(x > 0, x, 0.5 * np.expm1(np.minimum(x, 0)))),
    (lambda x: nn.celu(x, 2.0), lambda x: np.maximum(x, 0) + 2 * np.expm1(np.minimum(x, 0) / 2)),
    (lambda x: nn.leaky_relu(x, 0.2), lambda x: np.where(x > 0, x, 0.2 * x)),
    (lambda x: nn.squareplus(x, 1.0), lambda x: (x + np.sqrt(x * x + 1)) / 2),
], ids=["gelu", "elu", "celu", "leaky_relu", "squareplus"])
def test_parameters_of_activations(fun, oracle, x64):
    near(jax.jit(fun)(X), oracle(X), 1e-12)


def test_the_parameter_of_squareplus_decides_about_integers():
    assert nn.squareplus(np.arange(3, dtype=np.int32), np.float16(2)).dtype == np.float16
    assert nn.squareplus(np.arange(3, dtype=np.int32), 2.0).weak_type and not nn.squareplus(np.array([True])).weak_type


def test_derivatives_at_corners():
    slopes = jax.grad(lambda x: nn.relu(x[0]) + nn.relu6(x[1]) + nn.relu6(x[2]))(jnp.array([0.0, 0.0, 6.0]))
    near(slopes, np.zeros(3))


def test_names_in_jaxprs():
    for fun in (nn.relu, nn.relu6):
        eqn, = jax.make_jaxpr(fun)(1.0).eqns
        assert (eqn.primitive.name, eqn.params["name"]) == ("custom_jvp_call", fun.__name__)


def test_gradients_stay_finite_far_out():
    far = np.array([-1e4, 1e4], np.float32)
    for fun in (nn.softplus, nn.elu, nn.selu, nn.mish, nn.silu, nn.log_sigmoid):
        assert np.all(np.isfinite(jax.vmap(jax.grad(fun))(far))), fun


def test_dtypes():
    for fun in (nn.relu, nn.sigmoid, nn.gelu, nn.softmax, nn.softplus, nn.hard_tanh):
        assert fun(jnp.ones(2, jnp.bfloat16)).dtype == jnp.bfloat16
    count = np.arange(3)
    assert nn.relu(count).dtype == np.int32 and nn.hard_tanh(count).dtype == np.int32
    for fun in (nn.relu6, nn.elu, nn.gelu, nn.softplus, nn.softmax, nn.leaky_relu, nn.soft_sign):
        assert fun(count).dtype == np.float32
    for fun in (nn.sigmoid, nn.silu):
        with pytest.raises(TypeError):
            fun(count)
    with pytest.raises(TypeError):
        nn.relu("text")


def test_glu_and_log1mexp(x64):
    values = np.array([[1.0, -2.0, 0.5, 3.0]])
    near(nn.glu(values), values[:, :2] * sigmoid(values[:, 2:]), 1e-12)
    near(nn.glu(values.T, axis=0), (values[:, :2] * sigmoid(values[:, 2:])).T, 1e-12)
    with pytest.raises((AssertionError, ValueError)):
        nn.glu(values[:, :3])
    near(nn.log1mexp(np.array([1e-9, 0.5, 2.0, 30.0])), np.log(-np.expm1(-np.array([1e-9, 0.5, 2.0, 30.0]))), 1e-9)
    slope = jax.jit(jax.grad(nn.log1mexp)).lower(0.5).as_text()
    assert slope.count("exponential") == 1


# --- softmax and relatives ---------------------------------------------------------------------------

TABLE = np.array([[1.0, -2.0, 0.5], [1000.0, 999.0, -1000.0]], np.float32)
MASK = np.array([[True, False, True], [True, True, False]])


def test_softmax():
    for axis in (-1, 0, (0, 1)):
        near(nn.softmax(TABLE, axis=axis), scipy.special.softmax(TABLE, axis))
        near(nn.log_softmax(TABLE, axis=axis), scipy.special.log_softmax(TABLE, axis))
    masked = np.where(MASK, TABLE, -np.inf)
    near(nn.softmax(TABLE, where=MASK), scipy.special.softmax(masked, -1))
    near(nn.log_softmax(TABLE, where=MASK), scipy.special.log_softmax(masked, -1))
    near(nn.softmax(np.array([-np.inf, 0.0], np.float32)), [0.0, 1.0])
    beside_nan = np.array([np.nan, 1.0], np.float32), np.array([True, False])
    near(nn.softmax(beside_nan[0], where=beside_nan[1]), [np.nan, 0.0])
    near(jax.jacfwd(lambda x: nn.softmax(x, where=beside_nan[1]))(beside_nan[0])[1], [0.0, 0.0])
    assert np.all(np.isnan(nn.softmax(np.full(2, -np.inf, np.float32))))
    assert nn.softmax(np.zeros((0, 3), np.float32)).shape == (0, 3)


def test_masks_with_more_axes_than_the_array():
    rows = np.broadcast_to(TABLE[0], TABLE.shape)
    masked = np.where(MASK, rows, -np.inf)
    for axis in (-1, 0, None):
        near(nn.softmax(TABLE[0], axis, where=MASK), scipy.special.softmax(masked, axis))
        near(nn.log_softmax(TABLE[0], axis, where=MASK), scipy.special.log_softmax(masked, axis))
        near(nn.logsumexp(TABLE[0], axis, where=MASK), scipy.special.logsumexp(masked, axis))
    assert nn.softmax(np.zeros((2, 1, 3), np.float32), where=MASK).shape == (2, *MASK.shape)


def test_gradient_of_softmax(x64):
    x = TABLE[0].astype(float)
    p = scipy.special.softmax(x)
    near(jax.jit(jax.jacrev(nn.softmax))(x), np.diag(p) - np.outer(p, p), 1e-12)
    near(jax.jit(jax.jacfwd(nn.log_softmax))(x), np.eye(3) - p, 1e-12)
    near(jax.grad(nn.logsumexp)(x), p, 1e-12)
    gradient = jax.grad(lambda x: nn.softmax(x, where=MASK[0])[0])(np.array([1.0, np.inf, 0.5]))
    assert np.isfinite(gradient[0]) and np.isfinite(gradient[2])


def test_logsumexp():
    near(nn.logsumexp(TABLE), scipy.special.logsumexp(TABLE))
    near(nn.logsumexp(TABLE, axis=1, keepdims=True), scipy.special.logsumexp(TABLE, 1, keepdims=True))
    near(nn.logsumexp(TABLE, axis=1, where=MASK), scipy.special.logsumexp(np.where(MASK, TABLE, -np.inf), 1))
    weights = np.array([1.0, -2.0, 3.0], np.float32)
    size, sign = nn.logsumexp(TABLE, axis=1, b=weights, return_sign=True)
    expected = scipy.special.logsumexp(TABLE.astype(float), 1, b=weights, return_sign=True)
    near(size, expected[0])
    near(sign, expected[1])
    assert np.isnan(nn.logsumexp(np.zeros(2, np.float32), b=np.array([-1, -1], np.float32)))
    for values, result in (([-np.inf, -np.inf], -np.inf), ([np.inf, 1.0], np.inf), ([-np.inf, 2.0], 2.0)):
        assert float(nn.logsumexp(np.array(values, np.float32))) == result
    near(nn.logmeanexp(TABLE, axis=1), scipy.special.logsumexp(TABLE, 1) - np.log(3))


def test_logarithms_of_sums_along_named_axes():
    x, where = jnp.array([[0.5, -1.0, 90.0], [2.0, 0.0, 1.0]]), jnp.array([[True, True, False], [True, False, True]])
    functions = (nn.logsumexp, nn.logmeanexp)
    results = jax.vmap(lambda x, where: [(f(x, axis=("i", 0), where=where), f(x, axis=("i", 0), keepdims=True))
                                         for f in functions], axis_name="i")(x, where)
    for f, (named, kept) in zip(functions, results, strict=True):
        np.testing.assert_allclose(named, jnp.full(2, f(x, where=where)), rtol=1e-6)
        np.testing.assert_allclose(kept, jnp.full((2, 1), f(x)), rtol=1e-6)


def test_one_hot_along_a_named_axis():
    x = jnp.array([2, 0, 5])
    np.testing.assert_array_equal(jax.vmap(lambda x: nn.one_hot(x, 3, axis="i"), axis_name="i", axis_size=3, in_axes=None)(x),
                                  nn.one_hot(x, 3, axis=0))
    with pytest.raises(ValueError, match="num_classes to match the size of axis i, but 4 != 3"):
        jax.vmap(lambda x: nn.one_hot(x, 4, axis="i"), axis_name="i")(x)
    with pytest.raises(NameError, match="unbound axis name"):
        nn.one_hot(x, 3, axis="nobody")
    with pytest.raises(jax.errors.ConcretizationTypeError):
        jax.jit(lambda n: nn.one_hot(x, n))(3)


def test_standardize():
    mean, var = TABLE.mean(1, keepdims=True), TABLE.astype(float).var(1, keepdims=True)
    near(nn.standardize(TABLE), (TABLE - mean) / np.sqrt(var + 1e-5), 1e-4)
    near(nn.standardize(TABLE, axis=0, mean=0.0, variance=4.0, epsilon=0.0), TABLE / 2)
    near(nn.standardize(TABLE, algorithm="stable"), (TABLE - mean) / np.sqrt(var + 1e-5), 1e-4)


def test_one_hot():
    classes = np.array([0, 2, 5, -1])
    expected = np.array([[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]])
    got = nn.one_hot(classes, 3)
    assert got.dtype == np.float32
    near(got, expected)
    near(nn.one_hot(classes, 3, axis=0, dtype=np.int32), expected.T)
    assert nn.one_hot(classes, 3, dtype=bool).dtype == bool
    near(nn.one_hot(np.array(1), 3), [0, 1, 0])
    near(nn.one_hot([0, 2, 5, -1], 3), expected)
    assert nn.one_hot(np.zeros((2, 0), int), 3).shape == (2, 0, 3)
    for _ in range(2):  # every time
        with pytest.warns(DeprecationWarning, match="has float32") as found:
            near(nn.one_hot(jnp.array([0.0, 2.0, 0.5]), 3), [[1, 0, 0], [0, 0, 1], [0, 0, 0]])
        assert found[0].filename == __file__


# --- attention ---------------------------------------------------------------------------------------


def attention(q, k, v, scale, allowed, bias):
    """One head at a time, one query at a time."""
    batch, length, heads, _ = q.shape
    out = np.zeros(q.shape)
    for b in range(batch):
        for h in range(heads):
            g = h * k.shape[2] // heads
            for t in range(length):
                logits = k[b, :, g] @ q[b, t, h] * scale + bias[b, h, t]
                logits = np.where(allowed[b, h, t], logits, -np.inf)
                out[b, t, h] = scipy.special.softmax(logits) @ v[b, :, g]
    return out


RNG = np.random.default_rng(0)
Q, K, V = (RNG.normal(size=shape).astype(np.float32) for shape in ((2, 5, 4, 3), (2, 6, 2, 3), (2, 6, 2, 3)))
ROW, COLUMN = np.arange(5)[:, None], np.arange(6)
SOME = (RNG.normal(size=(2, 4, 5, 6)) > 0) | (COLUMN == 1)
BIAS = RNG.normal(size=(1, 4, 5, 6)).astype(np.float32)
CASES = {
    "plain": ({}, True, 0.0),
    "causal": ({"is_causal": True}, COLUMN <= ROW, 0.0),
    "mask": ({"mask": SOME}, SOME, 0.0),
    "bias": ({"bias": BIAS}, True, BIAS),
    "window": ({"local_window_size": (1, 2)}, (COLUMN >= ROW - 1) & (COLUMN <= ROW + 2), 0.0),
    "lengths": ({"key_value_seq_lengths": np.array([3, 6])}, (COLUMN < np.array([3, 6])[:, None])[:, None, None], 0.0),
}


@pytest.mark.parametrize("name", CASES)
def test_attention(name):
    kwargs, allowed, bias = CASES[name]
    allowed, bias = np.broadcast_to(allowed, (2, 4, 5, 6)), np.broadcast_to(bias, (2, 4, 5, 6))
    got = jax.jit(lambda q, k, v: nn.dot_product_attention(q, k, v, **kwargs))(Q, K, V)
    near(got, attention(Q, K, V, 3 ** -0.5, allowed, bias))


def test_attention_forms():
    near(nn.dot_product_attention(Q[0], K[0], V[0], scale=0.3),
         attention(Q, K, V, 0.3, np.ones((2, 4, 5, 6), bool), np.zeros((2, 4, 5, 6)))[0])
    assert nn.dot_product_attention(*(jnp.asarray(x, jnp.bfloat16) for x in (Q, K, V))).dtype == jnp.bfloat16
    gradient = jax.jit(jax.grad(lambda q: jnp.sum(nn.dot_product_attention(q, K, V, is_causal=True))))(Q)
    assert np.all(np.isfinite(gradient))
    with pytest.raises(ValueError):
        nn.dot_product_attention(Q, K, V[:, :5])
    with pytest.raises(ValueError):
        nn.dot_product_attention(Q[:, :, :3], K, V)
    with pytest.raises(ValueError, match="mask dtype should be bool, but got float32"):  # one that is meant as a bias
        nn.dot_product_attention(Q, K, V, mask=jnp.zeros((1, 1, 5, 6)))
    with pytest.raises(ValueError, match="query_seq_lengths must have one axis"):
        nn.dot_product_attention(Q, K, V, query_seq_lengths=3)
    with pytest.raises(ValueError, match="value dtype should be float32, as query has, but got bfloat16"):
        nn.dot_product_attention(Q, K, jnp.asarray(V, jnp.bfloat16))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.float8_e4m3fn, np.int8])
def test_scaled_matmul_is_the_product_of_scaled_blocks(dtype, rng):
    lhs, rhs = rng.integers(-4, 5, (2, 3, 8)).astype(dtype), rng.integers(-4, 5, (2, 5, 8)).astype(dtype)
    scales = [np.exp2(rng.integers(-2, 3, (2, rows, 4))).astype(ml_dtypes.float8_e8m0fnu) for rows in (3, 5)]
    wide = [x.astype(np.float64) * np.repeat(s.astype(np.float64), 2, axis=-1) for x, s in zip((lhs, rhs), scales, strict=True)]
    got = jax.nn.scaled_matmul(lhs, rhs, *scales)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, np.einsum("bmk,bnk->bmn", *wide), rtol=1e-6)
    assert jax.nn.scaled_matmul(lhs, rhs, *scales, preferred_element_type=jnp.bfloat16).dtype == jnp.bfloat16


@pytest.mark.parametrize("shapes, words", [
    (((2, 8), (2, 8), (2, 4), (2, 4)), "three axes"), (((1, 2, 8), (1, 2, 4), (1, 2, 2), (1, 2, 2)), "contracted axes"),
    (((1, 2, 8), (1, 2, 8), (1, 2, 2), (1, 2, 4)), "as many blocks"),
    (((1, 2, 8), (1, 2, 8), (1, 3, 2), (1, 2, 2)), "each row"),
    (((1, 2, 8), (1, 2, 8), (1, 2, 3), (1, 2, 3)), "divides"),
])
def test_scaled_matmul_refuses_shapes_that_do_not_fit(shapes, words):
    with pytest.raises(ValueError, match=words):
        jax.nn.scaled_matmul(*map(np.ones, shapes))


def test_scaled_dot_general_quantizes_operands_and_cotangents(rng):
    dims = (((2,), (1,)), ((1,), (0,)))
    lhs, rhs = rng.normal(size=(3, 2, 40)).astype(np.float32), rng.normal(size=(2, 40, 4)).astype(np.float32)
    exact = np.einsum("mbk,bkn->bmn", lhs, rhs)
    for mode, scale, error in (("mxfp8", None, 0.04), ("mxfp4", None, 0.3), ("nvfp4", jnp.array([0.5]), 0.2)):
        configs = [jax.nn.get_scaled_dot_general_config(mode, scale)] * 3

        @jax.jit
        def product(a, b, configs=configs):
            out, pull_back = jax.vjp(lambda a, b: jax.nn.scaled_dot_general(a, b, dims, configs=configs), a, b)
            return out, *pull_back(jnp.ones_like(out))

        out, da, db = product(lhs, rhs)
        assert 0 < np.abs(out - exact).max() < error * np.abs(exact).max()
        for found, wanted in ((da, rhs.sum(2)[None]), (db, lhs.sum(0)[..., None])):
            np.testing.assert_allclose(found, np.broadcast_to(wanted, found.shape), atol=3 * error * np.abs(wanted).max())
    powers = 2.0 ** rng.integers(-2, 3, (2, 40)).astype(np.float32)  # which 'mxfp8' keeps exactly
    kept = jax.nn.scaled_dot_general(powers, powers, (((1,), (1,)), ((), ())),
                                     configs=[jax.nn.get_scaled_dot_general_config("mxfp8")] * 3)
    np.testing.assert_allclose(kept, powers @ powers.T)
    with pytest.raises(ValueError, match="Unsupported mode: int8"):
        jax.nn.get_scaled_dot_general_config("int8")


def test_a_complex_uniform_initializer_fills_a_disk():
    z = np.asarray(jax.nn.initializers.variance_scaling(2.0, "fan_in", "uniform")(jax.random.key(0), (8, 500), np.complex64))
    variance = 2 / 8
    squares = np.abs(z) ** 2 / (2 * variance)  # uniform on [0, 1) where z is uniform in a disk
    assert squares.max() < 1 and abs(squares.mean() - 0.5) < 0.02 and abs(squares.var() - 1 / 12) < 0.01
    assert abs(z.mean()) < 0.02


def test_delta_orthogonal_has_orthogonal_rows_at_the_center_as_orthogonal_draws_them():
    key = jax.random.key(0)
    kernel = np.array(jax.nn.initializers.delta_orthogonal(2.0)(key, (3, 2, 2, 3)))
    np.testing.assert_array_equal(kernel[1, 0], jax.nn.initializers.orthogonal(2.0)(key, (2, 3)))
    kernel[1, 0] = 0
    assert not kernel.any()


def test_weights_of_one_axis_have_a_variance_if_in_axis_is_given():
    key = jax.random.key(0)
    weights = jax.nn.initializers.variance_scaling(3.0, "fan_out", "uniform", in_axis=())(key, (4,))  # 4 outputs
    np.testing.assert_allclose(weights, jax.random.uniform(key, (4,), minval=-1) * np.sqrt(3 * 3 / 4), rtol=1e-6)
    with pytest.raises(ValueError, match="Must be at least 2D"):
        jax.nn.initializers.lecun_normal()(key, (4,))


def test_functions_do_not_see_what_a_library_puts_in_place_of_public_names(monkeypatch):
    # exporters such as jax2onnx replace names of jax.numpy by primitives of their own while they trace
    x = np.arange(3.0, dtype=np.float32)
    expected = np.exp(x) / np.exp(x).sum()
    for name in ("max", "maximum", "minimum"):
        monkeypatch.setattr(jnp, name, None)
    np.testing.assert_allclose(nn.softmax(x), expected, rtol=1e-6)
    np.testing.assert_allclose(nn.log_softmax(x), np.log(expected), rtol=1e-6)
    np.testing.assert_allclose(nn.logsumexp(x), np.log(np.exp(x).sum()), rtol=1e-6)
    np.testing.assert_allclose(nn.celu(nn.relu(nn.relu6(5 * x))), [0, 5, 6])
