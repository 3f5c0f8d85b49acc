"""Values that JAX gives and that a simpler rule would get wrong."""

from __future__ import annotations

import enum
from collections.abc import Hashable

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.scipy import stats as jstats
from lowering.xla import VERSION

KINDS = ["bool", "uint8", "int32", "float16", "float32", "complex64"]


@pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types", "ignore:.*imaginary part")
@pytest.mark.parametrize("op", ["add", "multiply", "min", "max"])
def test_updates_are_computed_in_the_promoted_dtype(op):
    """x.at[i].op(v) is what x[i] op v gives in the dtype of both, converted back, for each pair of dtypes."""
    function = {"add": jnp.add, "multiply": jnp.multiply, "min": jnp.minimum, "max": jnp.maximum}[op]

    @jax.jit
    def both():
        found, expected = [], []
        for own in KINDS:
            for other in KINDS:
                if op in ("min", "max") and "complex64" in (own, other) or own == other == "bool":
                    continue
                x, value = jnp.array([3, 1, 250]).astype(own), jnp.array([1.75, -1]).astype(other)
                for index in (jnp.array([0, 2]), slice(1, 3)):
                    found.append(getattr(x.at[index], op)(value))
                    expected.append(x.at[index].set(function(x[index], value).astype(own)))
        return found, expected

    for found, expected in zip(*both(), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types")
def test_sums_of_many_updates_do_not_stop_at_the_precision_of_the_array():
    many = jnp.zeros(1, jnp.bfloat16).at[jnp.zeros(3000, int)].add(jnp.ones(3000, jnp.float32))
    assert many.dtype == jnp.bfloat16 and many.astype(float) == 3008
    assert jnp.ones(3).at[5:1].add(jnp.ones(3)).tolist() == [1, 1, 1]  # nothing is selected


def test_running_totals_of_booleans():
    x = jnp.array([0.0, 0.5, 2.0])
    assert jnp.cumsum(x, dtype=bool).tolist() == [False, True, True]
    assert jnp.cumulative_sum(x, dtype=bool).tolist() == [False, True, True]
    assert jnp.cumprod(x[::-1], dtype=bool).tolist() == [True, True, False]


def test_python_ints_that_only_the_target_can_hold():
    big = 0x85A308D3
    for made in (jnp.full(2, big, jnp.uint32), jnp.full_like(jnp.ones(2, jnp.uint32), big), lax.full((2,), big, jnp.uint32),
                 jnp.zeros(2, jnp.uint32).at[:].set(big), jnp.array([big, big], jnp.uint32)):
        assert made.dtype == np.uint32 and made.tolist() == [big, big]
    assert lax.convert_element_type(2**32 + 5, "int32") == 5 and lax.convert_element_type(2**31, "int32") == -(2**31)
    assert float(lax.convert_element_type(2**100, jnp.float32)) == 2.0**100 and float(jnp.full((), 2**40, jnp.float32)) == 2**40
    assert jnp.min(jnp.array([7, 9], jnp.uint32), where=jnp.array([True, False]), initial=8) == 7
    with pytest.raises(OverflowError):
        jnp.add(jnp.ones(2, int), 2**31)


def test_bits_as_booleans():
    wide = np.array([[1, 256]], np.int32)
    assert jnp.asarray(wide).view(bool).tolist() == wide.view(bool).tolist()
    assert jnp.array([True, False, False, False]).view(np.int32).tolist() == [1]


def test_what_becomes_an_array():
    kind = enum.IntEnum("kind", "first second")
    made = jnp.array(kind.second)
    assert made == 2 and made.dtype == np.int32 and made.weak_type
    with pytest.raises(ValueError, match=r"numpy masked arrays are not supported as direct inputs to JAX functions\. Use arr"):
        jnp.asarray(np.ma.array([1, 2], mask=[0, 1]))
    row = jnp.arange(1.0, 4.0)[None]
    assert jnp.einsum("ii->i", row).tolist() == [1, 0, 0] and jnp.einsum("ii->i", row.T).tolist() == [1]
    assert jnp.einsum("ii,i->i", row, jnp.ones(3)).tolist() == [1, 2, 3]  # the other operand stretches the first axis
    assert jnp.einsum("ii,i", row.T, jnp.ones(3)) == 6
    assert jnp.einsum("a1,1b,b_->a_", *[jnp.ones((2, 2))] * 3).tolist() == [[4, 4], [4, 4]]  # indices need not be letters
    assert jnp.result_type(jnp.float64) == np.float32  # without a warning
    described = jax.ShapeDtypeStruct((2, 3), np.float32)
    assert (jnp.shape(described), jnp.ndim(described), jnp.size(described, 1)) == ((2, 3), 2, 3)
    with pytest.warns(DeprecationWarning):
        assert jnp.shape([[1, None]]) == (1, 2)
    with pytest.raises(TypeError, match="requires ndarray or scalar arguments, got <class 'list'>"):
        assert [1.0] in jnp.ones(2)
    with pytest.raises(ValueError, match=r"jax.lax.dot: dimension_numbers must be .* got lhs_shape=\(2,\) rhs_shape=\(3,\)"):
        lax.dot(jnp.ones(2), jnp.ones(3))


def test_what_a_mask_leaves_out_has_no_derivative():
    """The element that takes no part is so large that it would overflow if it were computed."""
    x, mask = jnp.array([0.0, 1.0, 2.0, 3e4]), jnp.arange(4) < 3

    @jax.jit
    def run(x):
        functions = (lambda x: jax.nn.logsumexp(x, where=mask), lambda x: jax.nn.softmax(x, where=mask)[1],
                     lambda x: jax.nn.log_softmax(x, where=mask)[1], lambda x: jax.nn.softmax(x, where=mask & False).sum())
        return [jax.value_and_grad(f)(x) for f in functions], jax.nn.softmax(x, where=mask & False)

    (lse, soft, log, none), zeros = run(x)
    p = np.exp([0, 1, 2]) / np.exp([0, 1, 2]).sum()
    np.testing.assert_allclose(lse[1], [*p, 0], rtol=1e-5)
    np.testing.assert_allclose(soft[1], [*(p[1] * (np.eye(3)[1] - p)), 0], rtol=1e-5)
    np.testing.assert_allclose(log[1], [*(np.eye(3)[1] - p), 0], rtol=1e-5)
    assert zeros.tolist() == [0, 0, 0, 0] and none[1].tolist() == [0, 0, 0, 0]


def test_how_threefry_counts_is_read_where_the_program_says_so():
    key = jax.random.key(0)

    @jax.jit
    def both():
        with jax.threefry_partitionable(False):
            old = jax.random.bits(key, (3,)), jax.random.key_data(jax.random.split(key, 3))
        return jax.random.bits(key, (3,)), *old

    new, old, split = both()
    assert new.tolist() == [4070199207, 4202968722, 1427181096]
    assert old.tolist() == [4146024105, 1351547692, 2718843009]
    assert split[0].tolist() == [2467461003, 428148500]


def test_python_loops_leave_numpy_arrays_alone():
    def step(c):
        c += 1
        return c

    start = np.zeros(2)
    with jax.disable_jit():
        assert lax.while_loop(lambda c: (c < 3).all(), step, start).tolist() == [3, 3]
        assert lax.fori_loop(0, 3, lambda i, c: step(c), start).tolist() == [3, 3]
    assert start.tolist() == [0, 0]


def test_arrays_that_are_gone_and_arrays_as_keys():
    x = jnp.ones(3)
    assert not isinstance(x, Hashable)
    x.delete()
    for use in (repr, str, hash, np.asarray):
        with pytest.raises((RuntimeError, TypeError), match=r"deleted with shape=float32\[3\]|unhashable type"):
            use(x)


def test_objects_that_stand_for_arrays():
    class Thing:
        def __jax_array__(self):
            return jnp.ones(2)

    assert jnp.stack([Thing(), Thing()]).shape == (2, 2) and jnp.add(Thing(), 1).tolist() == [2, 2]
    assert jax.ShapeDtypeStruct.like(Thing()) == jax.ShapeDtypeStruct((2,), np.float32)

    @jax.tree_util.register_pytree_node_class
    class Node:
        def __init__(self, x):
            self.x = x

        tree_flatten = lambda self: ((self.x,), None)
        tree_unflatten = classmethod(lambda cls, _, children: cls(*children))
        __jax_array__ = lambda self: self.x

    x = jnp.array([[2.0, 1.0], [1.0, 3.0]])
    functions = [lambda a: jnp.allclose(a, x), lambda a: jnp.isclose(a, x), jnp.cov, jnp.linalg.norm, jnp.linalg.det,
                 lambda a: (*jnp.linalg.slogdet(a),), lambda a: jnp.unique(a, size=4), jnp.nonzero, jnp.unique]
    for fun in functions:
        for got, want in zip(jax.tree.leaves(fun(Node(x))), jax.tree.leaves(fun(x)), strict=True):
            assert np.array_equal(got, want)
    close = jax.jit(lambda node: [fun(node) for fun in functions[:-2]])(Node(x))
    assert all(jax.tree.leaves(jax.tree.map(np.allclose, close, [fun(x) for fun in functions[:-2]])))
    for fun in functions[-2:]:
        with pytest.raises(jax.errors.ConcretizationTypeError, match="pass the size argument"):
            jax.jit(fun)(Node(x))


def test_bfloat16_in_files(tmp_path):
    jnp.save(tmp_path / "x.npy", jnp.ones(2, jnp.bfloat16))
    loaded = jnp.load(tmp_path / "x.npy")
    assert loaded.dtype == jnp.bfloat16 and isinstance(loaded, jax.Array)
    jnp.save(tmp_path / "x.npy", jnp.ones(2, jnp.float8_e4m3fn))
    assert jnp.load(tmp_path / "x.npy").view(jnp.float8_e4m3fn).tolist() == [1, 1]


def test_strict_promotion_is_about_the_arguments():
    """What functions do inside with ranks and dtypes is their own affair."""
    x, i = jnp.array([[1.0, 2.0], [3.0, 5.0]]), jnp.arange(3)
    scipy = jax.scipy
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        assert jnp.corrcoef(x).shape == (2, 2) and jnp.isin(i, i).all() and jnp.setdiff1d(i, i[:1]).tolist() == [1, 2]
        assert jnp.mgrid[0:3, 0:2.0].shape == (2, 3, 2) and jnp.add.outer(i, i).shape == (3, 3)
        assert scipy.fft.idctn(scipy.fft.dctn(x)).shape == scipy.signal.detrend(x).shape == (2, 2)
        assert jnp.polyfit(x[0], x[1], 1).shape == (2,) and scipy.special.multigammaln(x + 3, 2).shape == (2, 2)
        assert scipy.stats.multinomial.logpmf(i[:2], 1, x[0] / 3).shape == ()
        assert jnp.count_nonzero(x > 1) == 3 and jnp.gradient(x[0] > 1).tolist() == [1, 1]
        assert jax.random.multivariate_normal(jax.random.key(0), x[0], jnp.eye(2), (3,)).shape == (3, 2)
        assert jnp.array_equiv(jnp.full(2, 2, jnp.bfloat16), 2.0) and jnp.isclose(i, i, i, i).all()
        for function in (
                lambda: jnp.cov(x, fweights=i[1:]), lambda: scipy.special.owens_t(x, x), lambda: scipy.stats.mode(x, axis=1),
                lambda: scipy.special.sici(x), lambda: scipy.linalg.rsf2csf(x, x), lambda: scipy.signal.welch(x, nperseg=2),
                lambda: scipy.signal.csd(x, x, nperseg=2), lambda: scipy.signal.stft(x, nperseg=2),
                lambda: scipy.signal.istft(x.astype(complex), nperseg=2), lambda: jax.image.resize(x, (3, 3), "cubic"),
                lambda: jax.image.scale_and_translate(x, (3, 3), (0, 1), x[0], x[1], "linear"),
                lambda: scipy.special.lpmn_values(2, 2, x[0], True), lambda: scipy.special.lpmn(2, 2, x[0])):
            jax.eval_shape(function)
        with pytest.raises(ValueError, match="rank_promotion"):
            x + x[0]


def test_options_without_meaning_and_annotations():
    before = jax.config.read("jax_pprint_use_color")
    jax.config.update("jax_pprint_use_color", not before)
    assert jax.config.jax_pprint_use_color is not before
    jax.config.update("jax_pprint_use_color", before)
    with pytest.raises(AttributeError, match="Unrecognized config option: jax_nonsense"):
        jax.config.update("jax_nonsense", 1)

    def f(x: int) -> float:
        return x * 2.0

    effort = {"exec_time_optimization_effort": 0.5}
    assert jax.jit(f).__annotations__ == f.__annotations__ and jax.jit(f, compiler_options=effort)(1) == 2
    with pytest.raises(TypeError, match="contracting dimensions to have the same shape"):
        jnp.ones((2, 3)) @ jnp.ones((2, 3))
    with pytest.raises(ValueError, match="Incompatible"):  # leading axes come first
        jnp.ones((2, 1, 3)) @ jnp.ones((3, 1, 2))


def test_unsigned_indices_are_used_as_they_are():
    for dtype in (jnp.uint8, jnp.uint32):
        made = str(jax.make_jaxpr(lambda x, i: x[i])(np.ones(3, np.float32), dtype(1)))
        assert "convert_element_type" not in made and "min" not in made
    wide = jnp.arange(300)
    take = jax.jit(lambda x, i, j: (x[i], x[j]))
    assert [int(each) for each in take(wide, jnp.uint8(255), jnp.uint32(2**32 - 1))] == [255, 299]


def test_complex_circular_functions_at_special_values():
    inf, nan = np.inf, np.nan
    z = np.array([complex(0.0, -1e-30), 0.0, complex(0.0, inf), complex(0.0, nan), complex(-1e-30, -1e-30), complex(-1, 1)])
    run = jax.jit(lambda z: (jnp.sin(z), jnp.cos(z), jnp.square(z)))
    sine, cosine, square = map(np.asarray, run(z.astype(np.complex64)))
    np.testing.assert_allclose(sine[[0, 4, 5]], np.sin(z[[0, 4, 5]]), rtol=1e-5)
    assert sine[2] == complex(0, inf) and sine[3].real == 0 and np.isnan(sine[3].imag)
    assert cosine[2] == inf and not np.signbit(cosine[:4].imag).any() and np.isnan(cosine[3].real)
    assert not np.signbit(square[5].real) and square[5] == -2j


def test_einsum_says_what_jax_says():
    x = jnp.ones((2, 3))
    for args, words in [(("ij,jk->ik", x, x), r"^Size of label 'j' for operand 1 \(3\) does not match previous terms \(2\)\.$"),
                        (("ij,jk", x), "^Number of einsum subscripts, 2, must be equal to the number of operands, 1.$"),
                        (("ij->ii", x), "^Output character 'i' appeared more than once in the output.$"),
                        (("ij->k", x), "^Output character 'k' did not appear in the input$"),
                        (("ijk->k", x), "^Einstein sum subscript 'ijk' does not contain the correct number of indices")]:
        with pytest.raises(ValueError, match=words):
            jnp.einsum(*args)


def test_options_of_jax_that_mean_something():
    plain = jax.random.key_data(jax.random.key(8)).tolist()
    assert jax.config.read("jax_random_seed_offset") == 0 and jax.config.jax_platform_name == jax.config.jax_platforms
    make = jax.jit(lambda seed: jax.random.key_data(jax.random.key(seed)))
    make(3)
    jax.config.update("jax_random_seed_offset", 5)
    try:
        made = [jax.random.key_data(jax.random.key(3)), jax.random.PRNGKey(np.int32(3)), make(3),
                jax.random.key_data(jax.random.key(jnp.uint8(254)))]
    finally:
        jax.config.update("jax_random_seed_offset", 0)
    assert [each.tolist() for each in made] == [plain, plain, plain, [0, 3]]


def test_weak_types_of_what_integers_become():
    """A function of integers that a Python float enters is weakly typed, as the operation with it is."""
    whole = jnp.array([1, 2], "int8")
    for f in (jax.nn.relu6, jax.nn.hard_swish, jax.nn.sparse_sigmoid, jax.nn.elu):
        assert jax.eval_shape(f, whole).weak_type, f
    for f in (jax.nn.gelu, jax.nn.softplus, jax.nn.soft_sign):
        assert not jax.eval_shape(f, whole).weak_type, f
    assert jax.eval_shape(jnp.heaviside, 1.0, 2.0).weak_type and jax.eval_shape(jnp.logaddexp, 1j, 1.0).weak_type
    assert not jax.eval_shape(jax.grad(jnp.abs), 1j).weak_type


def test_functions_of_numbers_whose_results_do_not_yield():
    special, stats = jax.scipy.special, jax.scipy.stats
    for f in (jnp.angle, special.ndtr, special.ndtri, special.log_ndtr, special.erfcx, special.spence,
              stats.norm.cdf, stats.norm.ppf):
        assert not jax.eval_shape(f, 0.5).weak_type, f
    for f in (special.erfc, special.expit, stats.norm.pdf, stats.uniform.pdf, stats.logistic.cdf):
        assert jax.eval_shape(f, 0.5).weak_type, f
    assert jax.eval_shape(jnp.angle, 1j).weak_type


def test_collectives_and_transforms_of_no_axes():
    assert isinstance(lax.pmax(True, ()), jax.Array) and lax.pmin(2.5, ()).weak_type
    assert (lax.pmean(True, ()), type(lax.pmean(3, ()))) == (1.0, float)
    assert lax.fft(jnp.ones(2), "ifft", ()).dtype == jnp.complex64
    assert lax.fft(jnp.ones(2, int), "rfft", ()).dtype == jnp.float32


def test_sums_of_booleans_on_demand():
    x = jnp.array([[0.5, -0.5], [0.0, 0.0]])
    assert jnp.add.reduce(x, axis=1, dtype=bool).tolist() == [True, False]
    assert jnp.multiply.reduce(x, axis=0, dtype=bool).tolist() == [False, False]


def test_complex_activations_and_their_gradients():
    z = jnp.array([1 + 1j, -1 - 3j, 6 + 1j])
    np.testing.assert_array_equal(jax.nn.relu6(z), [1 + 1j, 0, 6])
    np.testing.assert_array_equal(jax.grad(lambda z: jax.nn.relu6(z).real.sum())(z), [1, 0, 0])
    np.testing.assert_array_equal(jax.grad(lambda z: jax.nn.relu(z).real.sum())(z), [1, 0, 1])
    np.testing.assert_allclose(jax.scipy.stats.norm.logpdf(1 + 1j), -0.5 * np.log(2 * np.pi) - 1j, rtol=1e-6)
    z = np.array([0.5 + 1j, -1 + 2j])
    np.testing.assert_allclose(jax.scipy.stats.logistic.pdf(z), np.exp(-z) / (1 + np.exp(-z)) ** 2, rtol=1e-5)


def test_transposing_what_is_not_linear_says_so():
    for f in (lambda x: 1 / x, lambda x: jnp.where(x > 0, x, 2 * x), lambda x: lax.cond(x > 0, jnp.negative, jnp.positive, x)):
        with pytest.raises(AssertionError, match="not linear"):
            jax.linear_transpose(f, 1.0)(1.0)


@pytest.mark.parametrize("join", [jnp.stack, jnp.vstack, jnp.hstack, jnp.concatenate, jnp.column_stack])
def test_an_array_without_parts_has_nothing_to_join(join):
    for nothing in ([], jnp.zeros((0, 3))):
        with pytest.raises(ValueError, match="Need at least one array to"):
            join(nothing)
    with pytest.raises(ValueError, match="Got a scalar"):
        jnp.concatenate(jnp.array(1))
    with pytest.raises(TypeError, match="Got a scalar"):
        jnp.concat(jnp.array(1))


def test_one_number_where_arrays_are_usual():
    assert (jnp.inner(jnp.int16(2), -1), jnp.inner(jnp.int16(2), -1).dtype) == (-2, jnp.int16)
    np.testing.assert_array_equal(jnp.inner(2.0, jnp.arange(3.0)), [0, 2, 4])
    np.testing.assert_array_equal(jax.ops.segment_sum(2.0, jnp.array([0, 0, 1]), 2), [4, 2])
    assert jnp.any(2, where=True) and not jnp.any(2, where=False)


@pytest.mark.parametrize("call, dtype", [
    (lambda: jax.scipy.linalg.convolution_matrix(jnp.array([True, False]), 2), bool),
    (lambda: jax.scipy.special.log_softmax(jnp.array([1j, 2])), jnp.complex64)])
def test_dtypes_that_stay(call, dtype):
    assert call().dtype == dtype


@pytest.mark.parametrize("call", [lambda: jnp.delete(jnp.arange(3), 7), lambda: lax.reduce_and(jnp.ones(2, bool), (1,))])
def test_places_that_are_not_there_are_of_both_classes(call):
    for error in (ValueError, IndexError):
        with pytest.raises(error):
            call()


def test_keys_are_no_numbers_of_special_functions():
    for f in (jax.scipy.special.erf, jax.scipy.stats.norm.pdf, lambda key: jnp.promote_types(key.dtype, float)):
        with pytest.raises(TypeError, match="key<fry>"):
            f(jax.random.key(0))


def test_weak_types_of_special_functions():
    special, linalg, stats = jax.scipy.special, jax.scipy.linalg, jax.scipy.stats
    for f in (special.ndtr, special.ndtri, special.log_ndtr, special.spence, special.erfcx, stats.norm.isf,
              lambda x: linalg.block_diag(x, 2), linalg.toeplitz, lambda x: jnp.unique(x, size=2, fill_value=3)):
        assert not jax.eval_shape(f, 0.25).weak_type, f
    counts, mass = jnp.arange(2), (stats.bernoulli.pmf, stats.geom.logpmf, stats.bernoulli.cdf, stats.poisson.cdf)
    for f in mass:
        assert jax.eval_shape(f, 1, 0.25).weak_type and not jax.eval_shape(f, counts, 0.25).weak_type, f
    for f in (special.factorial, linalg.fiedler_companion, stats.uniform.ppf):
        assert jax.eval_shape(f, 0.25).weak_type, f
    assert not jnp.gradient(jnp.arange(3)).weak_type and jnp.gradient(jnp.arange(3), 2.0).weak_type


def test_initial_values_come_before_the_axes_that_are_kept():
    x = jnp.array([[1.0, 5.0], [2.0, 3.0]])
    for f, oracle in ((jnp.max, np.max), (jnp.sum, np.sum), (jnp.prod, np.prod)):
        np.testing.assert_array_equal(f(x, axis=1, keepdims=True, initial=4), oracle(x, axis=1, keepdims=True, initial=4))
    names = [eqn.primitive.name for eqn in jax.make_jaxpr(lambda x: jnp.max(x, keepdims=True, initial=0.0))(x).eqns]
    assert names == ["reduce_max", "max", "broadcast_in_dim"]
    total = jax.vmap(lambda x: jnp.sum(x, axis=("i", 0), initial=4, keepdims=True), axis_name="i")(x)
    np.testing.assert_array_equal(total, [[15], [15]])


def test_lists_replace_what_is_no_finite_number():
    x = jnp.array([np.nan, np.inf, np.nan, 1.0])
    np.testing.assert_array_equal(jnp.nan_to_num(x, nan=[1.0, 2.0, 3.0, 4.0], posinf=(5, 6, 7, 8)), [1, 6, 3, 1])
    np.testing.assert_array_equal(jax.jit(lambda a: jnp.nan_to_num(x, nan=[a, a, 2 * a, a]))(3.0)[::2], [3, 6])


def test_conditions_of_piecewise_have_a_shape_of_their_own():
    mask, x = np.array([[True], [False]]), np.arange(3.0)
    expected = np.where(mask, x * x, -1)
    np.testing.assert_array_equal(jnp.piecewise(x, [mask], [lambda x: x * x, -1.0]), expected)
    np.testing.assert_array_equal(jnp.piecewise(2.0, [mask[:, 0]], [lambda x: x * x, -1.0]), [4, -1])
    np.testing.assert_array_equal(jnp.piecewise(x, [[True, False, False]], [lambda x: x + 7, -1.0]), [7, -1, -1])
    slopes = jax.jacobian(lambda x: jnp.piecewise(x, [mask[:, 0]], [jnp.square, jnp.log]))(0.5)
    np.testing.assert_allclose(slopes, [1, 2])


def test_the_angle_of_a_scalar_has_the_default_precision():
    with jax.enable_x64(True):
        found = [jnp.angle(x).dtype for x in (np.float32(1), np.float16(-1), np.ones(2, np.float16), np.complex64(1))]
    assert found == ["float64", "float64", "float16", "float32"]


def test_integers_are_traced_by_stop_gradient():
    """In a traced function its results have the methods of arrays; outside, Python numbers stay what they are."""
    found = jax.jit(lambda k: (lax.stop_gradient(2).astype("float16"), lax.stop_gradient({"k": k, "b": True})))(3)
    assert found[0].dtype == "float16" and found[1]["k"] == 3 and found[1]["b"].dtype == bool
    assert type(lax.stop_gradient(2)) is int
    assert jax.jvp(lambda k, x: x * lax.stop_gradient(k), (3, 2.0), (np.zeros((), jax.dtypes.float0), 1.0))[1] == 3


def test_primitives_take_the_parameters_that_jax_leaves_out_or_adds():
    x = np.array([[3.0, 0.0], [0.0, 2.0], [0.0, 0.0]], np.float32)

    def convert(x):
        return lax.convert_element_type_p.bind(x, new_dtype=np.dtype("int32"), weak_type=False, sharding=None)

    def values(x):
        return lax.linalg.svd_p.bind(x, full_matrices=False, compute_uv=False)[0]

    def rest(x):
        return lax.erfc_p.bind(x, accuracy=None)

    for f, expected in ((convert, x.astype("int32")), (values, [3, 2]), (rest, lax.erfc(x))):
        for found in (f(x), jax.jit(f)(x), jax.vmap(f)(x[None])[0]):
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(rest)(0.0), -2 / np.sqrt(np.pi), rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: values(x).sum())(x), [[1, 0], [0, 1], [0, 0]], atol=1e-6)


@pytest.mark.parametrize("call", [lambda x: jnp.max(x, dtype=jnp.float32), lambda x: jnp.select([x > 0], [x], mode="a")])
def test_keywords_that_are_not_there(call):
    for function in (call, jax.jit(call)):
        with pytest.raises(TypeError, match=r"(max|select)\(\) got an unexpected keyword argument '(dtype|mode)'"):
            function(np.ones(3, np.float32))


def test_booleans_are_clamped():
    every = np.array(np.meshgrid(*[[False, True]] * 3, indexing="ij"))
    low, x, high = every.reshape(3, -1)
    np.testing.assert_array_equal(jax.jit(lax.clamp)(low, x, high), np.minimum(np.maximum(x, low), high))
    for bound in (False, True):
        np.testing.assert_array_equal(jax.jit(lax.clamp)(np.bool_(bound), every, np.bool_(True)), every | bound)
    assert lax.clamp(np.bool_(0), np.array([True, False]), np.bool_(0)).tolist() == [False, False]


def test_constants_of_formulas_have_the_dtype_of_arrays():
    """They make arrays strongly typed, and leave numbers weakly typed."""
    stats = jax.scipy.stats
    functions = (jnp.deg2rad, jnp.sinc, lambda x: jnp.logaddexp2(x, 1), lambda x: jnp.round(x, 1),
                 stats.norm.logpdf, stats.norm.pdf, stats.cauchy.cdf, stats.laplace.pdf, jax.scipy.special.logit)
    for function in functions:
        for x, is_weak in ((jnp.full(3, 0.5), False), (jnp.asarray(0.5), True), (jnp.float32(0.5), False)):
            assert jax.eval_shape(function, x).weak_type is is_weak
    for function in (jnp.tril, jnp.negative, jnp.square, lambda x: jnp.remainder(x, 2)):
        assert jax.eval_shape(function, jnp.full((2, 2), 0.5)).weak_type
    product = jax.eval_shape(lambda x: jnp.dot(x, x, preferred_element_type=jnp.float32), jnp.full((2, 2), 1))
    assert product.dtype == jnp.float32 and not product.weak_type


def test_weak_types_that_follow_the_argument():
    weak, strong = lax.full((3,), 1.5), np.full(3, 1.5, np.float32)
    mean = lambda x: jax.vmap(lambda x: lax.pmean(x, "i"), axis_name="i")(x)
    for function in (lambda x: jnp.partition(x, 1), lambda x: jnp.top_k(x, 2, mode="smallest"), mean):
        assert all(out.weak_type for out in jax.tree.leaves(function(weak)))
        assert not any(out.weak_type for out in jax.tree.leaves(function(strong)))
    assert mean(lax.full((3,), 2)).weak_type and not mean(np.full(3, 2)).weak_type
    assert jstats.uniform.cdf(weak).weak_type == (VERSION >= (0, 12)) and not jstats.uniform.cdf(strong).weak_type
    for function in (lambda x: lax.polynomial(x, [1.0, np.float32(2)]), lambda x: lax.polynomial(x, np.ones(9)),
                     lambda x: lax.random_gamma_grad(x, x)):
        assert function(jnp.asarray(1.5)).weak_type and not function(weak).weak_type
    assert not jstats.mode(jnp.asarray(1j)).mode.weak_type and lax.linalg.qdwh(jnp.eye(2))[2].weak_type
