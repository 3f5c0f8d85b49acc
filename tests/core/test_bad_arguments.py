"""Arguments that are wrong, or odd: what is accepted, which error is raised, and that it says which argument it is about."""

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax, random
from jaxlite.experimental import checkify
from jaxlite.extend.core import Primitive
from jaxlite.scipy import linalg, special, stats

x = np.ones((2, 3), np.float32)


@pytest.mark.parametrize("call, says", [
    (lambda: lax.top_k(x, "a"), "argument 'k' of top_k"),
    (lambda: lax.top_k(x, jnp.ones(2)), "argument 'k' of top_k"),
    (lambda: jnp.argmax(x, axis="a"), "argument 'axis' of argmax"),
    (lambda: jnp.argmax(x, axis=(0, "a")), "argument 'axis' of argmax"),
    (lambda: jnp.concat(jnp.sin), "argument 'arrays' of concat"),
    (lambda: jaxlite.nn.one_hot(jnp.arange(3), "a"), "argument 'num_classes' of one_hot"),
    (lambda: lax.cummax([], 0), "argument to cummax as a JAX value.* position 0, as 'operand'"),
    (lambda: jaxlite.nn.log_sigmoid([1.0]), "requires ndarray or scalar arguments, got <class 'list'> at position 0, as 'x'"),
    (lambda: jaxlite.jit(lambda y: jnp.swapaxes(y, 0, "a"))(x), "argument 'axis2' of swapaxes"),
    (lambda: jnp.linspace(0, 1, "a"), "argument 'num' of linspace"),
    (lambda: random.orthogonal(random.key(0), "a"), "argument 'n' of orthogonal"),
])
def test_the_error_names_the_argument(call, says):
    with pytest.raises(TypeError, match=says) as caught:
        call()
    assert str(caught.value).splitlines()[0].count("argument") == 1


def test_errors_of_the_users_own_code_stay_as_they_are():
    with pytest.raises(TypeError, match="^'str' object cannot be interpreted as an integer$"):
        lax.scan(lambda c, each: (c, range("a")), 0.0, x)


@pytest.mark.parametrize("call, expected", [
    (lambda: jnp.any(x, axis=jnp.int32(1)), [True, True]),
    (lambda: jnp.sum(x, axis=jnp.array(0)), [2, 2, 2]),
    (lambda: special.bernoulli(jnp.int32(2)), [1, -0.5, 1 / 6]),
    (lambda: [jnp.size(len), jnp.ndim("a"), len(jnp.shape({"a": 1}))], [1, 0, 0]),
    (lambda: [jnp.hanning(3.7), jnp.bartlett(3.2)], [[0, 1, 0]] * 2),
    (lambda: [*stats.mode(7)], [7, 1]),
    (lambda: stats.mode(jnp.float32(7), keepdims=True).count, [1]),
    (lambda: stats.multivariate_normal.logpdf(x[0], np.zeros(3), 2.0),
     stats.multivariate_normal.logpdf(x[0], np.zeros(3), 2 * np.eye(3))),
    (lambda: jnp.round(0.25, 1).weak_type, True),
    (lambda: jaxlite.jit(jaxlite.device_get)(7.0), 7),
    (lambda: jaxlite.jvp(lambda x: x * 1j, (1.0,), (1.0,))[1].weak_type, True),
    (lambda: [*stats.mode(jnp.array([1, 1, np.nan, np.nan, np.nan]))], [np.nan, 3]),
])
def test_odd_arguments_are_accepted(call, expected):
    np.testing.assert_allclose(call(), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("call, error", [
    (lambda: jaxlite.vmap(abs, out_axes=False), TypeError),
    (lambda: jaxlite.default_matmul_precision("nope"), ValueError),
    (lambda: random.fold_in(random.key(0), 1j), TypeError),
    (lambda: random.uniform(np.zeros((3, 4), np.uint32)), TypeError),
    (lambda: random.t(random.key(0), 1j), ValueError),
    (lambda: jaxlite.numpy_dtype_promotion(), TypeError),
    (lambda: jaxlite.config.update("jax_default_matmul_precision", "nope"), ValueError),
    (lambda: linalg.lu_solve((x, x), x), ValueError),
    (lambda: special.sici(), TypeError),
    (lambda: jnp.linalg.norm(x[0], 1j), TypeError),
    (lambda: jnp.unravel_index(0, 2.5), TypeError),
    (lambda: jnp.diag(x, jnp.ones(3)), TypeError),
    (lambda: jnp.min(x, axis=jnp.array([True, False])), ValueError),
    (lambda: jnp.indices((2,), dtype=random.key(0).dtype), TypeError),
    (lambda: jaxlite.nn.softplus(random.key(0)), TypeError), (lambda: jnp.arange(random.key(0)), TypeError),
    (lambda: jaxlite.grad(lambda x, y: x * y, (0, -2))(1.0, 2.0), TypeError),
    (lambda: jaxlite.jacfwd(lambda x, y: x * y, (1, 1))(1.0, 2.0), TypeError),
    (lambda: jaxlite.jvp(abs, (1.0,), [1.0]), TypeError), (lambda: lax.integer_pow(2.0, 1.5), TypeError),
    (lambda: jaxlite.ops.segment_sum(x[0], [0, 1, 1], 2), TypeError), (lambda: jnp.repeat(x, -1), TypeError),
    (lambda: jnp.insert(x, np.array([[1]]), 0), ValueError), (lambda: jnp.roll(x, np.array([[1]])), ValueError),
    (lambda: jnp.put_along_axis(x, np.array([[1]]), 0, None, inplace=False), ValueError),
    (lambda: jnp.concatenate(jnp.float32(1)), ValueError), (lambda: jnp.histogram(x, "auto"), TypeError),
    (lambda: jnp.array([1, {"a": None}]), TypeError), (lambda: jaxlite.numpy_dtype_promotion(1).__enter__(), TypeError),
    (lambda: jaxlite.image.resize(x, (3, 3), None), ValueError), (lambda: jaxlite.config.update(1, 2), AttributeError),
    (lambda: checkify.check("a", "b"), TypeError), (lambda: jnp.allclose(None, x), TypeError),
    (lambda: jnp.arange(x[0], [1]), TypeError), (lambda: jnp.delete(x, np.array(["a"])), TypeError),
    (lambda: jnp.cumulative_sum(x, axis=(0, 1)), TypeError), (lambda: lax.pad(x[0], 0.0, (1, 1, 0)), ValueError),
    (lambda: random.orthogonal(random.key(0), -1), ValueError),
    (lambda: jnp.fft.fft(x, norm={}), ValueError), (lambda: lax.index_take(x, (np.arange(2),), (0, 0)), TypeError),
    (lambda: lax.conv_general_dilated_local(x[None], x[None], (1,), "VALID", (1, 2)), TypeError),
    (lambda: jaxlite.nn.initializers.he_normal()(random.key(0), np.ones((1, 2), int)), TypeError),
    (lambda: jaxlite.make_array_from_single_device_arrays((1,), jnp.ones(1).sharding, jnp.ones(1)), TypeError),
    *[(lambda bias=bias, mask=mask: jaxlite.nn.dot_product_attention(*[jnp.ones((1, 2, 1, 4))] * 3, bias, mask), TypeError)
      for bias, mask in ((np.ones((3, 2, 2)), None), (np.ones((2, 3)), None), (None, np.ones((2, 2, 2), bool)))],
])
def test_wrong_arguments_are_refused(call, error):
    with pytest.raises(error):
        call()


@pytest.mark.parametrize("call", [
    lambda s: jnp.arange(4, out_sharding=s), lambda s: jnp.arange(0.5, 2.5, 0.5, out_sharding=s),
    lambda s: jnp.bincount(jnp.arange(4), out_sharding=s), lambda s: jnp.percentile(x, jnp.arange(4), out_sharding=s),
    lambda s: jnp.repeat(x[0, :2], 2, out_sharding=s), lambda s: jnp.tensordot(jnp.ones((4, 2)), x[0, :2], 1, out_sharding=s),
    lambda s: jaxlite.ops.segment_sum(x[0], jnp.arange(3), 4, out_sharding=s),
    lambda s: jaxlite.nn.initializers.ones(None, (4,), None, s),
    lambda s: jaxlite.nn.initializers.normal()(random.key(0), (4,), out_sharding=s),
])
def test_out_sharding_is_not_ignored(call):
    sharding = jaxlite.NamedSharding(jaxlite.make_mesh((1,), ("i",)), jaxlite.P("i"))
    assert call(sharding).sharding == sharding
    with pytest.raises(TypeError, match="out_sharding"):
        call("i")


def test_psum_along_a_number_and_a_name():
    def each(y):
        return lax.psum(y, (0, "i")), lax.psum(y, 0), lax.pmean(y, ("i", 0)), lax.pmax(y, 0)

    y = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose([*jaxlite.vmap(each, axis_name="i")(y)], [[15, 15], [3, 12], [2.5, 2.5], [2, 5]])
    assert lax.psum(np.array([True, True]), 0) == 2
    with pytest.raises(ValueError):
        lax.psum(y, 5)


def test_linear_solves_keep_their_structure():
    with pytest.raises(TypeError, match="matvec"):
        lax.custom_linear_solve(lambda v: (v,), x[0], lambda matvec, b: b)


def test_jitted_lambdas_have_annotations():
    assert jaxlite.jit(lambda y: y).__annotations__ == {}


def test_integers_in_activations_are_as_wide_as_they_need():
    with jaxlite.enable_x64(True):
        for each in (jaxlite.nn.mish, jaxlite.nn.softplus, jaxlite.nn.log_sigmoid, jaxlite.nn.soft_sign):
            assert each(jnp.array([1, 2], "uint8")).dtype == "float32"
            assert each(jnp.array([1, 2], "int64")).dtype == "float64"


def test_a_transpose_may_be_a_result():
    transpose = jaxlite.jit(lambda a: jaxlite.linear_transpose(lambda b: a * b, a))(3.0)
    assert transpose(2.0) == (6.0,)


@pytest.mark.parametrize("wrong", [
    lambda y: lax.broadcast_in_dim(y, (2, 3), ()), lambda y: lax.broadcast_in_dim(y, (2, 3), (5,)),
    lambda y: lax.concatenate([y, jnp.ones((2, 2))], 0), lambda y: lax.dynamic_slice(y, (0,), (9,)), lambda y: lax.top_k(y, 9),
])
def test_what_is_wrong_with_an_example_is_said_of_it(wrong):
    with pytest.raises(Exception) as one:
        wrong(x[0])
    with pytest.raises(type(one.value)) as each:
        jaxlite.vmap(wrong)(x)
    assert str(each.value).splitlines()[0] == str(one.value).splitlines()[0]


def test_errors_of_what_runs_under_vmap_stay_as_they_are():
    def fails(y):
        raise KeyError("mine")

    rule = jaxlite.custom_jvp(fails)
    rule.defjvp(lambda primals, tangents: (rule(*primals), *tangents))
    for function in (rule, jaxlite.jit(rule), jaxlite.checkpoint(rule)):
        with pytest.raises(KeyError, match="mine"):
            jaxlite.vmap(function)(x)
    unknown = Primitive("unknown")
    unknown.def_impl(lambda y: y)
    with pytest.raises(NotImplementedError, match="Batching rule for 'unknown'"):
        jaxlite.vmap(unknown.bind)(x)


def test_scan_gives_the_kind_of_pair_that_its_body_gives():
    for kind in (list, tuple):
        assert type(lax.scan(lambda c, y, kind=kind: kind((c + y, c)), 0.0, x[0])) is kind
