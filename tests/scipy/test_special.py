"""scipy.special: values against SciPy in double precision, edges, derivatives by differences, batching.

A row says where a function is compared and how many units of rounding it may differ by: of its value, or of 1 near its
zeros. All rows are one program for each dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.special as oracle

import jaxlite
import jaxlite.numpy as jnp
import jaxlite.scipy.special as special
from tests.rule_checks import check_all_batchings, difference


class Row(NamedTuple):
    name: str
    args: tuple[Any, ...]
    units: float = 40
    absolute: float = 0  # units of 1 that are allowed besides
    fun: Callable[..., Any] | None = None
    oracle: Callable[..., Any] | None = None


def span(low, high, count=101):
    return np.linspace(low, high, count)


def pairs(*ranges):
    return tuple(x.ravel() for x in np.meshgrid(*(np.linspace(*each) for each in ranges)))


WHOLE = np.arange(6.0)
EDGES = np.array([0.0, -0.0, np.inf, -np.inf, np.nan])
UNIT = np.concatenate([span(0, 1), 10.0 ** -np.arange(3, 30, 3), 1 - 10.0 ** -np.arange(3, 7)])
LOGARITHMIC = 10.0 ** span(-6, 2, 81)

ROWS = [
    Row("gammaln", (span(-4.3, 30),), 60, 60), Row("gammaln", (EDGES[[0, 2, 4]],)), Row("gamma", (span(-4.3, 30),), 800),
    Row("gamma", (np.arange(1.0, 20),), 2), Row("loggamma", (span(0.1, 30),), 60, 60),
    Row("gammasgn", (np.concatenate([span(-4.3, 4, 84), WHOLE, -WHOLE[1:], EDGES]),), 0),
    Row("beta", pairs((0.1, 5, 8), (-1.7, 40, 30)), 1500), Row("betaln", pairs((0.1, 60, 17), (0.2, 70, 19)), 60, 60),
    Row("betainc", pairs((0.5, 5, 4), (0.5, 8, 4), (0, 1, 9)), 400, 1), Row("digamma", (span(-3.3, 20),), 100, 100),
    Row("gammainc", pairs((0.2, 20, 9), (0, 30, 9)), 400, 1), Row("gammaincc", pairs((0.2, 20, 9), (0, 30, 9)), 4000, 1),
    Row("zeta", pairs((1.1, 6, 7), (0.3, 5, 7)), 60), Row("polygamma", (np.array([0, 1, 2, 3, 1]), span(0.5, 6, 5)), 100, 100),
    Row("multigammaln", (span(3, 10, 9),), 60, 60, lambda a: special.multigammaln(a, 3), lambda a: oracle.multigammaln(a, 3)),
    Row("factorial", (np.array([-1, 0, 3.5, 5, 10]),), 100),
    Row("comb", pairs((0, 12, 13), (0, 12, 13)), 60), Row("comb", (np.array([5.5, 3.2, -2, 5]), np.array([2, 1.5, 1, -1])), 60),
    Row("comb", pairs((1, 6, 6), (0, 6, 7)), 60, 0, lambda n, k: special.comb(n, k, repetition=True),
        lambda n, k: oracle.comb(n, k, repetition=True)),
    Row("poch", pairs((0.3, 6, 7), (-0.2, 5, 6)), 300),
    Row("poch", (np.array([0, 0, -2, -2, -3, -0.5]), np.array([0, 2, 1, 3, 2, 1.0])), 60),
    # entropies
    Row("xlogy", (np.array([0, 0, 2, 0.5, 0]), np.array([0, 3, 0.5, 0, np.nan]))),
    Row("xlog1py", (np.array([0, 0, 2, 0.5, 0]), np.array([-1, 3, 1e-5, -1, np.nan]))),
    Row("entr", (np.concatenate([span(0, 3), [-1.0], EDGES[2:]]),), 10, 10),
    Row("rel_entr", (np.array([0.3, 0, 0, 1, -1, 1, np.nan]), np.array([0.6, 0.5, 0, 0, 1, -1, 1])), 10),
    Row("kl_div", (np.array([0.3, 0, 0, 1, -1, 1, np.nan]), np.array([0.6, 0.5, 0, 0, 1, -1, 1])), 10, 10),
    Row("expit", (np.concatenate([span(-40, 40), EDGES]),)), Row("logit", (UNIT,), 60),
    Row("boxcox", pairs((0.1, 4, 9), (-2, 2, 9)), 40, 10), Row("boxcox1p", pairs((0.001, 4, 9), (-2, 2, 9)), 60),
    # error functions
    Row("erf", (np.concatenate([span(-4, 4), EDGES]),)), Row("erfc", (np.concatenate([span(-4, 8), EDGES]),), 300),
    Row("erfinv", (span(-0.999, 0.999),), 200),
    Row("erfcx", (np.concatenate([span(-4, 30), [100, 1e6, 1e18], EDGES]),), 100),
    Row("dawsn", (np.concatenate([span(-12, 12), 10.0 ** span(-6, 6, 25), EDGES]),), 60),
    Row("fresnel", (span(-8, 8, 201),), 200, 100),
    Row("fresnel", (np.concatenate([span(20, 59, 101), [1e9]]),), 4, 40),  # where a rounded square tells nothing of the angle
    Row("fresnel", (np.concatenate([10.0 ** span(-5, 1, 13), EDGES]),), 100, 100),
    Row("ndtr", (np.concatenate([span(-6, 6), EDGES]),), 300), Row("ndtri", (UNIT,), 40, 4),
    Row("ndtri", (np.array([-0.1, 1.1, np.nan]),)), Row("log_ndtr", (np.concatenate([span(-40, 8), EDGES]),), 60),
    Row("log_ndtr", (np.array([-1e3, -1e6]),)), Row("owens_t", pairs((-4, 4, 9), (-3, 3, 11)), 40, 2),
    Row("owens_t", (np.array([0, 1, np.inf, 0.5]), np.array([np.inf, -np.inf, 1, np.nan])), 10),
    # integrals
    Row("exp1", (np.concatenate([LOGARITHMIC[:75], [-1.0], EDGES[[0, 2, 4]]]),), 100),
    Row("expi", (np.concatenate([LOGARITHMIC[:78], -LOGARITHMIC[:70], EDGES]),), 100, 20),
    Row("expn", pairs((0, 12, 13), (0.05, 9, 12)), 100),
    Row("expn", (np.array([1, 2, 5, 3]), np.array([0.0, 0, 0, np.inf])), 2),
    Row("sici", (np.concatenate([span(-30, 30, 121)[:60], span(0.1, 9, 90), EDGES[[0, 2, 4]]]),), 100, 30),
    Row("spence", (np.concatenate([span(0, 5), [20, 1e4, -1.0, np.nan]]),), 60, 4),
    # hypergeometric functions
    Row("hyp1f1", pairs((0.3, 5, 5), (0.4, 6, 5), (-20, 20, 9)), 3000),
    Row("hyp1f1", pairs((-3, -1, 3), (0.5, 4, 3), (-2, 5, 7)), 400, 40),
    Row("hyp2f1", pairs((0.3, 3, 4), (0.4, 4, 3), (0.7, 6, 4), (-4, 0.9, 8)), 3000),
    Row("hyp2f1", (np.array([1.0, 0.5]), np.array([2.0, 0.3]), np.array([4.5, 3.0]), np.array([1.0, 1.0])), 100),
    # harmonics
    Row("i0", (span(-10, 10),), 60), Row("i0e", (span(-30, 30),), 40), Row("i1", (span(-10, 10),), 60),
    Row("i1e", (span(-30, 30),), 40),
    Row("bessel_jn", (span(-12, 12, 49),), 60, 60, lambda z: special.bessel_jn(z, v=4),
        lambda z: np.stack([oracle.jv(n, z) for n in range(5)])),
]


def in_dtype(row, dtype):
    return tuple(x.astype(dtype) if x.dtype.kind == "f" and not (row.name == "polygamma" and i == 0) else x
                 for i, x in enumerate(row.args))


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_values_match_scipy(name, x64):
    dtype = np.dtype(name)
    arguments = [in_dtype(row, dtype) for row in ROWS]

    @jaxlite.jit
    def run(arguments):
        return [(row.fun or getattr(special, row.name))(*args) for row, args in zip(ROWS, arguments, strict=True)]

    failures = []
    with np.errstate(all="ignore"):
        for row, args, found in zip(ROWS, arguments, run(arguments), strict=True):
            wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in args]
            expected = (row.oracle or getattr(oracle, row.name))(*wide)
            for got, want in zip(found if isinstance(found, tuple) else [found],
                                 expected if isinstance(expected, tuple) else [expected], strict=True):
                assert got.dtype == dtype and got.shape == want.shape, row.name
                eps = np.finfo(dtype).eps
                want = want.astype(dtype).astype(np.float64)
                close = np.isclose(np.asarray(got, np.float64), want, rtol=row.units * eps,
                                   atol=row.absolute * eps + np.finfo(dtype).tiny, equal_nan=True)
                if not close.all():
                    bad = int(np.argmin(close))
                    worst = np.nanmax(np.abs(np.asarray(got, np.float64) - want) / np.abs(want) / eps)
                    failures.append(f"{row.name}{tuple(np.ravel(x)[bad % x.size] for x in wide)}: {np.ravel(got)[bad]}, not "
                                    f"{np.ravel(want)[bad]}; {worst:.0f} units")
    assert not failures, "\n".join(failures)


def test_narrow_floats_are_computed_in_wider_ones():
    for fun, args in ((special.erfcx, (0.5,)), (special.fresnel, (2.0,)), (special.sici, (6.0,)), (special.expi, (1.5,)),
                      (special.hyp1f1, (1.0, 2.0, 0.5)), (special.betaln, (1.5, 20.0)), (special.dawsn, (3.0,))):
        for dtype in (jnp.float16, jnp.bfloat16):
            found, exact = (fun(*(each(x) for x in args)) for each in (dtype, np.float32))
            for narrow, wide in zip(found, exact, strict=True) if isinstance(found, tuple) else [(found, exact)]:
                assert narrow.dtype == dtype and narrow == wide.astype(dtype)
    assert special.wofz(jnp.float16(0.5)).dtype == np.complex64 and not special.wofz(1j).weak_type


def test_complex_error_function(x64):
    x, y = np.meshgrid(np.linspace(-9, 9, 19), np.linspace(-2, 9, 23))
    z = x + 1j * y
    for dtype, units in (("complex64", 200), ("complex128", 600)):
        found = special.wofz(z.astype(dtype))
        assert found.dtype == dtype
        np.testing.assert_allclose(found, oracle.wofz(z), rtol=units * np.finfo(dtype).eps)
    real = special.wofz(x[0])
    np.testing.assert_allclose(real, oracle.wofz(x[0]), rtol=1e-12)
    np.testing.assert_allclose(np.real(real), np.exp(-x[0] ** 2), rtol=1e-14)


def test_spherical_harmonics(x64):
    n, m = (np.array(each) for each in zip(*[(n, m) for n in range(6) for m in range(-n, n + 1)], strict=True))
    theta, phi = np.linspace(0, np.pi, n.size), np.linspace(0, 6, n.size)
    np.testing.assert_allclose(special.sph_harm_y(n, m, theta, phi), oracle.sph_harm_y(n, m, theta, phi), atol=1e-13)
    clipped = special.sph_harm_y(np.array([5]), np.array([2]), theta[:1] + 1, phi[:1] + 1, n_max=3)
    np.testing.assert_allclose(clipped, oracle.sph_harm_y(3, 2, 1.0, 1.0), rtol=1e-12)
    assert special.sph_harm_y(1, 2, 0.3, 0.2) == 0
    with pytest.raises(NotImplementedError, match="diff_n"):
        special.sph_harm_y(1, 0, 0.3, 0.2, diff_n=1)


def test_sums_over_axes_are_those_of_scipy(rng):
    x = rng.normal(size=(2, 3)).astype(np.float32)
    for axis in (None, 0, (0, 1)):
        for name in ("softmax", "log_softmax", "logsumexp"):
            expected = getattr(oracle, name)(x, axis=axis)
            np.testing.assert_allclose(getattr(special, name)(x, axis=axis), expected, rtol=1e-5, atol=1e-6)
    magnitude, sign = special.logsumexp(x, b=-x, return_sign=True)
    assert (float(magnitude), float(sign)) == pytest.approx(oracle.logsumexp(x, b=-x, return_sign=True), rel=1e-5)


def test_bernoulli_numbers(x64):
    np.testing.assert_allclose(special.bernoulli(40), oracle.bernoulli(40), rtol=1e-11)
    assert special.bernoulli(0).tolist() == [1]
    assert special.bernoulli(301)[300] == -math.inf and special.bernoulli(301)[301] == 0


def test_beta_of_large_numbers_is_that_of_its_product(x64):
    for a, b in ((3, 20.0), (3, 1e6), (12, 1e5), (40, 300.0)):
        exact = math.fsum([*(math.log(k) for k in range(1, a)), *(-math.log(b + k) for k in range(a))])
        np.testing.assert_allclose(special.betaln(float(a), b), exact, rtol=1e-14)


def test_values_that_are_not_numbers():
    assert np.isnan(special.betaln(np.nan, 20.0)) and np.isnan(special.sici(-np.inf)[1])
    assert special.kl_div(-np.inf, -np.inf) == np.inf


def test_logit_near_a_half_and_its_derivative_at_the_ends(x64):
    x = 0.5 + np.array([0.049, 0.034 + 0.034j, -0.01j])
    np.testing.assert_allclose(special.logit(x), 2 * np.arctanh(2 * (x - 0.5)), rtol=1e-15)
    slopes = jaxlite.vmap(jaxlite.grad(special.logit))(np.array([0.0, 0.5, 1.0]))
    np.testing.assert_array_equal(slopes, [np.inf, 4, np.inf])


DERIVATIVES = [  # name, a point for each argument that is differentiated
    ("gammaln", (2.3,)), ("gamma", (2.3,)), ("beta", (2.3, 1.4)), ("betaln", (2.3, 20.0)), ("betaln", (12.0, 20.0)),
    ("digamma", (2.3,)), ("gammainc", (1.5, 2.0)), ("poch", (1.5, 2.2)), ("comb", (5.5, 2.2)), ("xlogy", (0.5, 2.0)),
    ("xlog1py", (0.5, 2.0)), ("entr", (0.5,)), ("rel_entr", (0.5, 0.8)), ("kl_div", (0.5, 0.8)), ("expit", (0.5,)),
    ("logit", (0.6,)), ("logit", (0.9,)), ("boxcox", (0.5, 0.8)), ("boxcox1p", (0.5, 0.8)), ("erfcx", (0.3,)),
    ("erfcx", (2.0,)), ("dawsn", (0.7,)), ("fresnel", (0.7,)), ("fresnel", (2.7,)), ("ndtr", (0.7,)), ("ndtri", (0.7,)),
    ("log_ndtr", (-3.0,)), ("log_ndtr", (1.5,)), ("owens_t", (0.5, 0.8)), ("owens_t", (0.5, 1.8)), ("exp1", (0.7,)),
    ("expi", (0.7,)), ("expi", (-0.7,)), ("sici", (0.7,)), ("sici", (6.7,)), ("spence", (0.7,)), ("hyp1f1", (1.5, 2.5, 0.7)),
    ("hyp1f1", (1.5, 2.5, -2.7)), ("hyp2f1", (1.5, 2.5, 3.5, 0.4)), ("hyp2f1", (1.5, 2.5, 3.5, -1.4)), ("i0", (0.7,)),
    ("i1", (0.7,)), ("wofz", (0.7,)),
    # where values are chosen from exact ones
    ("gamma", (3.0,)), ("comb", (5.0, 2.0)), ("poch", (1.5, 0.0)), ("boxcox", (0.5, 0.0)), ("i0", (0.0,)),
]


def test_derivatives_by_differences(x64):
    lengths = [len(point) for _, point in DERIVATIVES]

    def functions(flat):
        outs, start = [], 0
        for (name, _), length in zip(DERIVATIVES, lengths, strict=True):
            out = getattr(special, name)(*[flat[start + k] for k in range(length)])
            outs += [each.real for each in out] if isinstance(out, tuple) else [out.real]
            start += length
        outs.append(special.expn(2, flat[0]))
        outs += list(special.bessel_jn(flat[0], v=2))
        harmonic = special.sph_harm_y(3, 2, flat[0], flat[1], n_max=3)
        return jnp.stack([*outs, harmonic.real, harmonic.imag])

    flat = np.array([x for _, point in DERIVATIVES for x in point])
    run = jaxlite.jit(lambda flat: jaxlite.jvp(functions, (flat,), (direction,)))  # one program for values and slopes
    direction = np.random.uniform(0.5, 1, flat.size)
    (expected,) = difference(lambda flat: run(flat)[0], (flat,), (direction,), 1e-4)
    np.testing.assert_allclose(run(flat)[1], expected, rtol=1e-7, atol=1e-9)


def test_derivatives_at_edges():
    for fun, x, expected in ((lambda x: special.xlogy(x, 2.0), 0.0, math.log(2)), (lambda x: special.entr(x), 1.0, -1),
                             (special.log_ndtr, -200.0, 200), (special.spence, 1.0, -1), (special.erfcx, -3.0, None),
                             (special.ndtri, 0.5, math.sqrt(2 * math.pi)), (lambda x: special.sici(x)[0], 0.0, 1),
                             (special.expi, 1.0, math.e), (lambda x: special.expn(1, x), 1.0, -1 / math.e),
                             (lambda x: special.hyp1f1(2.0, 2.0, x), 1.0, math.e)):
        slope = float(jaxlite.grad(fun)(x))
        assert math.isfinite(slope) and (expected is None or slope == pytest.approx(expected, rel=1e-4))
    assert jaxlite.grad(lambda x: special.rel_entr(x, 0.5))(0.0) == 0
    assert jaxlite.grad(special.kl_div, (0, 1))(1.0, -1.0) == (0, 0)
    x = np.array([30, 90, 1e10], np.float32)
    exact = [-6.2583550e-04, -6.9640138e-05, -5.6418958e-21]  # by 50 digits, where the two terms cancel
    np.testing.assert_allclose(jaxlite.vmap(jaxlite.grad(special.erfcx))(x), exact, rtol=1e-6)
    np.testing.assert_allclose(jaxlite.grad(special.i0)(1e-5), 5e-6, rtol=1e-6)
    assert jaxlite.grad(special.i0)(90.0) == math.inf


def test_vmap_equals_loop(x64, rng):
    def functions(x, y):
        return [special.hyp1f1(x, y, 0.5), special.expn(2, x), special.gammainc(x, y), special.owens_t(x, y),
                special.expi(x), *special.sici(y), special.bessel_jn(x, v=2), special.poch(x, y)]

    check_all_batchings(jaxlite.jit(functions), (np.array([0.5, 2.0]), np.array([1.5, 3.0])), size=2, in_axes=[(None, 0), (0,)],
                   rtol=1e-12)


ERRORS = [
    (lambda: special.polygamma(1.5, 2.0), ValueError, "must be of integer type"),
    (lambda: special.zeta(2.0), NotImplementedError, "q != None"),
    (lambda: special.factorial(3, exact=True), NotImplementedError, "exact"),
    (lambda: special.bernoulli(-1), ValueError, "non-negative"), (lambda: special.bernoulli(1.5), TypeError, "integer"),
    (lambda: special.ndtr(1), TypeError, "int32 is not supported"),
    (lambda: special.ndtri(np.arange(2)), TypeError, "not supported"),
    (lambda: special.log_ndtr(1.0, series_order=31), ValueError, "<= 30"),
    (lambda: special.log_ndtr(1.0, -1), ValueError, "non-neg"),
    (lambda: special.log_ndtr(1.0, 1.5), TypeError, "Python integer"), (lambda: special.spence(1), TypeError, "not supported"),
    (lambda: special.erf([1.0]), TypeError, "requires ndarray"),
]


def test_some_are_strongly_typed():
    assert not any(x.weak_type for x in (*special.fresnel(1.0), *special.sici(1.0), special.owens_t(1.0, 2.0)))


def test_wide_ints_are_floats():
    assert jaxlite.nn.gelu(2**70).dtype == np.float32 and jaxlite.scipy.stats.norm.cdf(1.0, loc=2**31) == 0
    for found, wanted in ((special.erf(2**31), 1), (jaxlite.jit(lambda: special.betaln(2**31, 1.0))(), oracle.betaln(2**31, 1)),
                          (special.gammaln(2**64), oracle.gammaln(2.0**64))):
        assert found.weak_type
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_some_take_lists():
    for fun in (special.ndtr, special.log_ndtr, special.spence):
        np.testing.assert_array_equal(fun([0.25, 0.5]), fun(np.float32([0.25, 0.5])))
    np.testing.assert_allclose(special.expn([1, 2], 0.5), oracle.expn([1, 2], 0.5), rtol=1e-5)
    np.testing.assert_allclose(special.hyp1f1(0.5, 1.5, x=[0.5]), oracle.hyp1f1(0.5, 1.5, [0.5]), rtol=1e-5)
    np.testing.assert_allclose(special.hyp2f1(1, 2, 3, [0.5]), oracle.hyp2f1(1, 2, 3, [0.5]), rtol=1e-5)


@pytest.mark.parametrize(("call", "error", "message"), ERRORS)
def test_errors_say_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_associated_legendre_functions():
    z = np.array([-0.9, -0.3, 0.1, 0.5])
    with jaxlite.enable_x64(True):
        values, slopes = map(np.asarray, special.lpmn(4, 4, z))
        normalized = np.asarray(special.lpmn_values(4, 4, z, True))
        near = np.asarray(special.lpmn(4, 4, z + 1e-6)[0])
    np.testing.assert_allclose(values[2, 3], 15 * z * (1 - z**2), rtol=1e-12)
    np.testing.assert_allclose(values[1, 2], -3 * z * np.sqrt(1 - z**2), rtol=1e-12)
    np.testing.assert_allclose(slopes, (near - values) / 1e-6, rtol=1e-3, atol=1e-3)
    for order in range(5):
        for degree in range(5):
            expected = oracle.sph_harm_y(degree, order, np.arccos(z), 0.0).real if order <= degree else 0 * z
            np.testing.assert_allclose(normalized[order, degree], expected, atol=1e-12)
    for args, error in (((2, 2, np.zeros(3, int)), TypeError), ((2, 2, np.zeros((1, 1))), ValueError),
                        ((1, 2, np.zeros(3)), NotImplementedError)):
        with pytest.raises(error):
            special.lpmn(*args)


def test_zeta_is_differentiable_in_both_arguments():
    from jaxlite.test_util import check_grads

    with jaxlite.enable_x64(True):
        check_grads(special.zeta, (np.array([1.5, 2.0, 9.0]), np.array([0.3, 1.0, 20.0])), order=2, rtol=1e-4)
    assert np.isnan(special.zeta(0.5, 2.0)) and np.isnan(jaxlite.grad(special.zeta)(0.5, 2.0))  # there is no sum


def test_box_cox_of_complex_numbers():
    z, power = np.array([1j, 2 - 1j, 0.5 + 0.1j], np.complex64), np.complex64(1.5 + 0.5j)
    np.testing.assert_allclose(special.boxcox(z, power), (z**power - 1) / power, rtol=1e-4)
    np.testing.assert_allclose(special.boxcox1p(z, 0.0), np.log1p(z), rtol=1e-5)


def test_loggamma_of_complex_numbers(x64):
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.normal(size=60) * scale + 1j * rng.normal(size=60) * other
                        for scale in (0.3, 3, 30) for other in (0.01, 3, 50)])
    got, expected = np.asarray(special.loggamma(jnp.array(z))), oracle.loggamma(z)
    assert (abs(got - expected) <= 1e-13 * np.maximum(abs(expected), 1)).all()
    single = np.asarray(special.loggamma(jnp.array(z, np.complex64)))
    assert (abs(single - oracle.loggamma(z.astype(np.complex64).astype(complex))) <= 2e-6 * np.maximum(abs(expected), 1)).all()
    edges = np.array([-1.5 + 0j, complex(-1.5, -0.0), 0, -2, complex(np.nan, 1), complex(1, np.inf)])
    np.testing.assert_allclose(special.loggamma(jnp.array(edges)), oracle.loggamma(edges), rtol=1e-13)
    slope = jaxlite.grad(special.loggamma, holomorphic=True)
    for z in (1 + 2j, -1.5 - 0.3j):
        np.testing.assert_allclose(slope(z), oracle.digamma(z), rtol=1e-12)


def test_gamma_of_complex_numbers(x64):
    rng = np.random.default_rng(1)
    near_poles = rng.integers(-19, 1, 60) + 1e-3 * (rng.normal(size=60) + 1j * rng.normal(size=60))
    z = np.concatenate([near_poles, rng.uniform(-5, 20, 60) + 1j * rng.uniform(-20, 20, 60), rng.uniform(-1, 1, 9) + 45j])
    for dtype, tol in ((np.complex64, 3e-5), (np.complex128, 1e-13)):
        narrow = z.astype(dtype)
        np.testing.assert_allclose(special.gamma(jnp.array(narrow)), oracle.gamma(narrow.astype(complex)), rtol=tol)
        poles = special.gamma(jnp.array([0, -1, -2, -30, complex(-7, -0.0)], dtype))
        assert np.isnan(np.real(poles)).all() and np.isnan(np.imag(poles)).all()
        assert special.gamma(jnp.array(1e30j, dtype)) == 0
    point = -1.5 - 0.3j
    slope = jaxlite.grad(special.gamma, holomorphic=True)(point)
    np.testing.assert_allclose(slope, oracle.gamma(point) * oracle.digamma(point), rtol=1e-12)


@pytest.mark.parametrize("fun", [special.xlogy, special.xlog1py])
def test_a_factor_of_a_batch_does_not_repeat_the_logarithm(fun):
    jaxpr = str(jaxlite.make_jaxpr(jaxlite.vmap(fun, in_axes=(0, None)))(np.zeros((9, 4), np.float32), np.ones(4, np.float32)))
    assert "f32[4] = log" in jaxpr and "f32[9,4] = log" not in jaxpr
