"""Corners in which values once differed from JAX's: dtypes of updates and running totals, masks, wide ints, empty axes."""

import warnings

import numpy as np
import pytest

import jaxlite
from jaxlite import lax, nn, ops
from jaxlite import numpy as jnp
from jaxlite.scipy import special
from jaxlite.scipy.optimize import minimize

_NUMPY_UPDATES = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "bfloat16", "float32"])
def test_updates_are_computed_in_the_promoted_dtype(dtype):
    x = jnp.array([1, 10, 0]).astype(dtype)
    for update in (np.int32(-1), np.float32(1.5), True, 2):
        promoted = jnp.result_type(x.dtype, update)
        for name, function in _NUMPY_UPDATES.items():
            if dtype == "bool" and update is True and name in ("add", "subtract", "multiply"):
                continue
            old = np.asarray(x.astype(promoted))
            expected = jnp.asarray(function(old[0], np.asarray(update).astype(promoted))).astype(dtype)
            found = getattr(x.at[0], name)(update)
            assert (found.dtype, found[0]) == (x.dtype, expected), (name, update)


def test_updates_that_narrow_warn_and_keep_what_was_added():
    with pytest.warns(FutureWarning, match="scatter inputs have incompatible types"):
        total = jnp.zeros(2, jnp.bfloat16).at[jnp.zeros(3000, int)].add(jnp.ones(3000, jnp.float32))
    assert float(total[0]) == 3008
    assert (jnp.ones(3).at[5:1].add(jnp.ones(3)) == 1).all()


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "nancumsum", "nancumprod", "cumulative_sum", "cumulative_prod"])
def test_running_totals_of_booleans_ask_what_is_not_zero(name):
    values = np.array([0.5, -0.5, 0.0, 2.0], np.float32)
    function = np.logical_and if "prod" in name else np.logical_or
    assert getattr(jnp, name)(values, dtype=bool).tolist() == function.accumulate(values != 0).tolist()


def test_bits_and_masks():
    values = np.array([0, 1, 256, 3], np.int32)
    assert (jnp.asarray(values).view(bool) == (values.view(np.uint8) != 0)).all()
    for make in (jnp.asarray, jnp.array, jnp.sin):
        with pytest.raises(ValueError, match="numpy masked arrays are not supported"):
            make(np.ma.masked_array([1.0, 2.0], [0, 1]))
    for unmasked in (np.ma.masked_array([1.0, 2.0]), np.ma.masked_array([1.0, 2.0], [0, 0])):
        assert jnp.array(unmasked, jnp.float32).tolist() == [1.0, 2.0]
    assert jnp.array([1, 258], jnp.int16).byteswap().tolist() == np.array([1, 258], np.int16).byteswap().tolist()


@pytest.mark.parametrize("function", [special.logsumexp, lambda x, where: nn.softmax(x, where=where)[0],
                                      lambda x, where: nn.log_softmax(x, where=where)[0]])
def test_what_a_mask_leaves_out_has_no_derivative(function):
    x = jnp.array([0.0, 1.0, 2.0, 1000.0])
    slopes = jaxlite.grad(lambda x: function(x, where=jnp.arange(4) < 3))(x)
    short = jaxlite.grad(lambda x: function(x, where=None))(x[:3])
    np.testing.assert_allclose(slopes, [*short, 0], rtol=1e-5, atol=1e-6)


def test_a_mask_may_leave_out_everything():
    mask = jnp.zeros(3, bool)
    assert nn.softmax(jnp.ones(3), where=mask).tolist() == [0, 0, 0]
    assert jaxlite.grad(lambda x: nn.softmax(x, where=mask).sum())(jnp.ones(3)).tolist() == [0, 0, 0]
    slopes = jaxlite.grad(lambda x: jnp.piecewise(x, [x < 0.5], [lambda x: 2 * x, jnp.sqrt]).sum())(jnp.array([0.0, 1.0]))
    assert slopes.tolist() == [2, 0.5]


def test_python_ints_that_the_target_can_hold():
    big = 0x85A308D3
    zeros = jnp.zeros(2, jnp.uint32)
    for found in (jnp.full(2, big, jnp.uint32), jnp.full_like(zeros, big), lax.full((2,), big, jnp.uint32),
                  zeros.at[0].set(big), zeros.at[0].add(big), jaxlite.jit(lambda x: x.at[0].add(big))(zeros)):
        assert found.dtype == jnp.uint32 and found[0] == np.uint32(big)
    assert float(jnp.full(1, 2**40, jnp.float32)[0]) == 2.0**40
    assert float(lax.convert_element_type(2**100, jnp.float32)) == 2.0**100
    data, ids = jnp.array([7, 9], jnp.uint32), jnp.array([0, 0])
    assert ops.segment_min(data, ids, num_segments=2).tolist() == [7, 2**32 - 1]
    assert jnp.min(data, where=jnp.array([True, False]), initial=8) == 7


class _Reflecting(list):
    def __radd__(self, other):
        return "added"

    def __gt__(self, other):
        return "compared"


def test_sequences_with_operators_of_their_own_get_their_chance():
    assert jnp.ones(2) + _Reflecting([1, 2]) == "added"
    assert (jnp.ones(2) < _Reflecting([1, 2])) == "compared"
    with pytest.raises(TypeError, match="unsupported operand type"):
        jnp.ones(2) - _Reflecting([1, 2])
    assert jnp.array(type("Own", (int,), {})(3)).weak_type


def test_empty_axes():
    assert jnp.repeat(jnp.zeros((0, 2)), jnp.zeros(0, int), axis=0).shape == (0, 2)
    assert jnp.extract(jnp.zeros(0), jnp.zeros(0)).shape == (0,)
    assert jnp.delete(jnp.zeros(0), jnp.zeros(0, int), assume_unique_indices=True).shape == (0,)
    assert jnp.ones((3, 2))[jnp.zeros((3, 0), bool)].shape == (0,)
    assert lax.fft(jnp.ones(3, jnp.complex64), "FFT", ()).shape == (3,)


def test_arguments_that_once_were_refused():
    x = np.arange(6).reshape(2, 3)
    assert (lax.broadcast_in_dim(x, (3, 4, 2), (2, 0)) == np.broadcast_to(x.T[:, None], (3, 4, 2))).all()
    picks = np.array([[2], [-1]])
    assert (jnp.take_along_axis(x, picks, 1, mode="one_hot") == np.take_along_axis(x, picks, 1)).all()
    assert jaxlite.jit(lambda k: jnp.tri(3, k=k))(1).tolist() == np.tri(3, k=1).tolist()
    assert float(lax.fori_loop(0.0, 3.0, lambda i, total: total + i, 0.0)) == 3
    assert jaxlite.jit(lambda x: jnp.zeros(3) + jnp.iscomplexobj([x, 1j]))(1.0)[0] == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert (jnp.ndim([1, 2]), jnp.shape([[1, 2]]), jnp.size(None)) == (1, (1, 2), 1)
    for dtype in (jnp.int32, jnp.float16):
        assert jnp.convolve(np.ones(3, np.int8), np.ones(2, np.int8), preferred_element_type=dtype).dtype == dtype
    np.testing.assert_allclose(special.gamma(3.0 + 0j), 2, rtol=1e-5)
    np.testing.assert_allclose(special.erfcx(0.5 + 0j), special.erfcx(0.5), rtol=1e-5)
    assert jaxlite.Array.sum(jnp.ones(2)) == 2
    info = jnp.__array_namespace_info__()
    assert info.dtypes(kind="integral").keys() == {"int8", "int16", "int32", "uint8", "uint16", "uint32"}


def test_the_sine_of_imaginary_numbers_is_imaginary():
    found = jnp.sin(jnp.array([complex(0, np.inf), complex(0, np.nan), complex(-0.0, 1)], jnp.complex64))
    assert found.real.tolist() == [0, 0, 0] and not np.signbit(found.real).any()
    assert found.imag[0] == np.inf and np.isnan(found.imag[1])


@pytest.mark.parametrize("method", ["BFGS", "l-bfgs-experimental-do-not-rely-on-this"])
def test_minimization_of_badly_scaled_and_curved_functions(method):
    steep = minimize(lambda x: jnp.mean((1e4 * x) ** 2), jnp.ones(2), method=method)
    np.testing.assert_allclose(steep.x, 0, atol=1e-6)
    valley = minimize(lambda x: jnp.sum((1 - x[:-1]) ** 2 + 100 * (x[1:] - x[:-1] ** 2) ** 2), jnp.zeros(3), method=method)
    np.testing.assert_allclose(valley.x, 1, atol=1e-2)


@pytest.mark.parametrize("call", [
    lambda: jnp.sum(jnp.array([1 + 1j]), dtype=jnp.float32), lambda: jnp.mean(jnp.array([1 + 1j]), dtype=jnp.float32),
    lambda: jnp.cumsum(jnp.array([1 + 1j]), dtype=jnp.float32), lambda: jnp.zeros(1).at[0].add(1 + 1j),
    lambda: jnp.concatenate([jnp.array([1 + 1j])], dtype=jnp.float32), lambda: jnp.full(1, jnp.array(1 + 1j), jnp.float32),
    lambda: jnp.full_like(jnp.ones(1), jnp.array(1 + 1j)), lambda: jnp.insert(jnp.ones(0), 0, 1 + 1j),
    lambda: jnp.place(jnp.zeros(1), jnp.array([True]), jnp.array([1 + 1j]), inplace=False),
    lambda: jnp.sum(jnp.zeros(1), initial=1 + 1j), lambda: jnp.max(jnp.zeros(1), initial=1 + 1j),
    lambda: jnp.pad(jnp.zeros(0), (1, 0), constant_values=1 + 1j), lambda: jnp.linspace(1 + 1j, 2, 1, dtype=jnp.float32),
    lambda: jnp.pad(jnp.zeros(1), (1, 0), mode="linear_ramp", end_values=1 + 1j)[0],
    lambda: jnp.geomspace(1 + 1j, 2 + 1j, 1, dtype=jnp.float32),
    lambda: jnp.piecewise(jnp.ones(1), [jnp.array([True])], [1 + 1j]),
    lambda: 0.5 * jnp.cov(jnp.array([0, 2 + 5j]), dtype=jnp.float32),
    lambda: jnp.unique(jnp.zeros(1), size=2, fill_value=1 + 1j)[1],
    lambda: jnp.compress(jnp.array([False]), jnp.zeros(1), size=1, fill_value=1 + 1j),
], ids=("sum mean cumsum at concatenate full full_like insert place initial max pad linspace ramp geomspace piecewise cov "
        "unique compress").split())
def test_imaginary_parts_are_dropped_with_a_warning(call):
    with pytest.warns(np.exceptions.ComplexWarning, match="discards the imaginary part"), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of the update
        warnings.simplefilter("always", np.exceptions.ComplexWarning)
        assert call() == 1


def test_fill_values_fit_their_dtype():
    for fill in (lambda: jnp.full(2, 1j, jnp.float32), lambda: jnp.full_like(jnp.arange(2), 1j)):
        with pytest.raises(TypeError, match="real number.*'complex'"):
            fill()
    assert jnp.full(1, 1j, jnp.complex64) == 1j
    with pytest.warns(np.exceptions.ComplexWarning):
        assert jnp.full(1, 1j, bool).tolist() == [True]


def test_arrays_without_elements():
    for transform in (jnp.fft.fft, jnp.fft.ifft):
        assert transform(jnp.zeros((2, 0)), norm="ortho").shape == (2, 0)
    assert jnp.fill_diagonal(jnp.zeros((0, 2)), jnp.zeros(0), inplace=False).shape == (0, 2)
    with pytest.raises(ValueError, match="at least one dimension"):
        jnp.histogramdd(jnp.zeros((2, 0)), 2)
    blocks = jnp.zeros((0, 2, 4)), jnp.zeros((0, 3, 4)), jnp.ones((0, 2, 2)), jnp.ones((0, 3, 2))
    assert nn.scaled_matmul(*blocks).shape == (0, 2, 3)


def test_wrong_ranks_are_value_errors():
    for indices in (1, jnp.array([[1]])):
        with pytest.raises(ValueError, match="indices must be 1D if axis=None"):
            jnp.take_along_axis(jnp.arange(6).reshape(2, 3), indices, axis=None)
    for symmetrize in (True, False):
        for factor in (lax.linalg.cholesky, lax.linalg.eigh):
            for x in (jnp.ones(()), jnp.ones(3)):
                with pytest.raises(ValueError, match=r"must have shape \[\.\.\., n, n\], got shape"):
                    factor(x, symmetrize_input=symmetrize)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int4"])
def test_infinities_are_the_initial_values_of_extremes_of_integers(dtype):
    x = jnp.array([[1, 3], [2, 0], [5, 7]] if dtype[0] == "u" else [[-5, -3], [-2, -7], [-1, -6]]).astype(dtype)
    wide = np.asarray(x).astype(int)
    for infinity, function, oracle in ((-jnp.inf, lax.max, np.maximum), (np.float32(np.inf), lax.min, np.minimum)):
        found = lax.reduce_window(x, infinity, function, (2, 1), (1, 1), "VALID")
        np.testing.assert_array_equal(found.astype(int), oracle(wide[1:], wide[:-1]))
        if dtype != "int4":
            assert found.dtype == lax.reduce(x, infinity, function, (0, 1)).dtype == x.dtype
            assert int(lax.reduce(x, infinity, function, (0, 1))) == oracle.reduce(wide, axis=None)
    for number in (0.5, jnp.nan, 2**31 if dtype == "int32" else -1 if dtype[0] == "u" else 300 if dtype == "int8" else None):
        if number is not None:
            with pytest.raises((TypeError, OverflowError), match="is none of the operand's dtype|too large to convert"):
                lax.reduce_window(x, number, lax.max, (2, 1), (1, 1), "VALID")


def test_initial_values_of_another_dtype_that_are_identities():
    x = jnp.array([5.0, 3.0])
    for zero in (jnp.int32(0), np.float16(0), np.float64(0)):
        assert lax.reduce(x, zero, lax.add, (0,)) == 8 and lax.reduce_window(x, zero, lax.add, (2,), (1,), "VALID") == 8
    with pytest.raises(TypeError, match="initial value has dtype float16"):
        lax.reduce(x, np.float16(1), lax.add, (0,))


def test_several_values_before_one_element():
    x, rows = np.arange(3), np.arange(6).reshape(2, 3)
    for obj in (np.array([1]), np.array([-1]), slice(0, 1)):
        np.testing.assert_array_equal(jnp.insert(x, obj, np.arange(7, 9)), np.insert(x, obj, np.arange(7, 9)))
        for values in (np.arange(4).reshape(2, 2), np.arange(2), 5):
            np.testing.assert_array_equal(jnp.insert(rows, obj, values, axis=1), np.insert(rows, obj, values, axis=1))
    traced = jaxlite.jit(lambda i: jnp.insert(jnp.asarray(x), i, jnp.arange(2)))
    np.testing.assert_array_equal(traced(jnp.array([1])), [0, 0, 1, 1, 2])


def test_large_ints_are_scalars():
    assert (jnp.shape(2**40), jnp.ndim(2**40), jnp.size(2**40)) == ((), 0, 1)
    assert jnp.isrealobj(2**40) and not jnp.iscomplexobj(2**40)


def test_ddof_may_be_traced():
    x = jnp.arange(4.0)
    for function, oracle in ((jnp.var, np.var), (jnp.std, np.std), (jnp.nanvar, np.nanvar)):
        traced = jaxlite.jit(lambda d, function=function: function(x, ddof=d))
        np.testing.assert_allclose(traced(1), oracle(np.arange(4.0), ddof=1), rtol=1e-6)
    with pytest.raises(ValueError, match="can't be provided simultaneously"):
        jnp.var(x, ddof=1, correction=0)


@pytest.mark.parametrize("function", [jnp.logical_or, jnp.logical_and, jnp.logical_xor, jnp.ldexp, jnp.add])
def test_operands_of_different_ranks_that_do_not_fit(function):
    with pytest.raises(ValueError, match="Incompatible shapes for broadcasting"):
        function(jnp.ones(3, int), jnp.ones((2, 4), int))
    with pytest.raises(TypeError, match="incompatible shapes for broadcasting"):
        function(jnp.ones(3, int), jnp.ones(4, int))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float8_e3m4", "float8_e4m3b11fnuz", "bfloat16"])
def test_powers_of_two_of_small_floats(dtype):
    x = jnp.array([1.0, -0.5, 1.5]).astype(dtype)
    for exponent in (-1, 0, 1, 2):
        np.testing.assert_array_equal(jnp.ldexp(x, exponent).astype("float32"), np.ldexp(np.float32([1, -0.5, 1.5]), exponent))
    mantissa, power = jnp.frexp(x)
    np.testing.assert_array_equal(mantissa.astype("float32"), [0.5, -0.5, 0.75])
    assert power.tolist() == [1, 0, 1]


def test_tables_of_half_floats_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert special.gamma(jnp.array([4.0], "float16")) == 6 and special.factorial(jnp.array([4.0], "float16")) == 24


def test_weak_types_of_results():
    weak, square = jnp.full(3, 2.0), jnp.full((3, 3), 2.0)
    assert jnp.compress(jnp.full(3, True), weak).weak_type and not jnp.compress(jnp.full(3, True), weak, size=2).weak_type
    assert not jnp.linalg.pinv(square).weak_type and not jnp.linalg.pinv(square, hermitian=True).weak_type
    assert [each.weak_type for each in jnp.linalg.svd(square, hermitian=True)] == [True, True, False]
    assert [jnp.linalg.slogdet(jnp.full((n, n), 2.0)).sign.weak_type for n in range(5)] == [False, True, True, False, False]
    assert lax.pmean(weak, ()).weak_type and lax.pmean(jnp.full(3, 2), ()).dtype == np.float32
    assert not lax.pmean(jnp.ones(3), ()).weak_type
