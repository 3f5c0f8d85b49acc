"""Derivatives and batches of windows, running totals, sorting, Fourier transforms and random bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.lax import windows, windows_rules
from tests.rule_checks import check_batching, check_derivatives, missing_rules, spread_axes

RULES = dict.fromkeys("reduce_window_sum select_and_scatter_add select_and_gather_add cumsum linear_recurrence fft".split(),
                      "jtb")
RULES |= dict.fromkeys("reduce_window_max reduce_window_min reduce_window cumprod cummax cummin cumlogsumexp sort top_k "
                       "approx_top_k rng_bit_generator".split(), "jb")
RULES |= {"select_and_scatter": "Jb", "rng_uniform": "JB"}


def test_every_primitive_has_its_rules():
    assert lax.rng_uniform and lax.rng_bit_generator  # which load on use
    assert not missing_rules(RULES)


# --- running totals ----------------------------------------------------------------------------------

CUMULATIVE = ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"]


@pytest.mark.parametrize("name", CUMULATIVE)
def test_running_totals(x64, name):
    fun = getattr(lax, name)
    x = np.random.normal(size=(2, 5))
    check_derivatives(lambda x: [fun(x, 1), fun(x, 0, reverse=True)], x, orders=2 if name == "cumprod" else 1)


@pytest.mark.parametrize("name", CUMULATIVE)
def test_vmap_of_running_totals(name):
    for axis in (0, 1, 2):
        x = np.random.normal(size=spread_axes((3, 4), 2, axis)).astype(np.float32)
        check_batching(lambda x: getattr(lax, name)(x, 1, reverse=True), [x], [axis])


def test_running_products_with_zeros(x64):
    check_derivatives(lambda x: lax.cumprod(x, 0), np.array([2., 0., 3., 0., 1.5]))


def test_running_totals_of_nothing_and_of_one(x64):
    for size in (0, 1):
        check_derivatives(lambda x: [lax.cumprod(x, 0), lax.cumlogsumexp(x, 0), lax.cumsum(x, 0)],
                          np.random.normal(size=size), orders=1)


def test_running_log_sum_exp_where_terms_vanish():
    x = np.float32([-np.inf, -np.inf, 0, -np.inf, 1])
    directions = np.float32([1, 2, 3, 4, 5])
    out, tangent = jaxlite.jit(lambda x: jaxlite.jvp(lambda x: lax.cumlogsumexp(x, 0), (x,), (directions,)))(x)
    np.testing.assert_allclose(out[2:], [0, 0, np.log1p(np.e)], rtol=1e-6)
    np.testing.assert_allclose(tangent[2:], [3, 3, (3 + 5 * np.e) / (1 + np.e)], rtol=1e-6)


def test_complex_running_totals(x64):
    x = np.random.normal(size=4) + 1j * np.random.normal(size=4)
    check_derivatives(lambda x: [lax.cumsum(x, 0), lax.cumprod(x, 0), lax.cumlogsumexp(x, 0)], x, orders=1)
    check_derivatives(lambda x: lax.cumlogsumexp(x, 0), x[:2])


@pytest.mark.parametrize("axis, reverse", [(0, False), (1, True)])
def test_linear_recurrences(x64, axis, reverse):
    factors, terms = np.random.normal(size=(2, 3, 4))
    check_derivatives(lambda *pair: windows.linear_recurrence(*pair, axis, reverse), factors, terms, orders=2)
    check_batching(lambda *pair: windows.linear_recurrence(*pair, axis, reverse),
                   [np.float32(factors), np.random.normal(size=(3, 4, 2)).astype(np.float32)], [None, 2])


def test_without_loops_recurrences_are_parallel_scans():
    rows = np.ones((20, 3), np.float32)
    jaxpr = jaxlite.make_jaxpr(lambda x: windows_rules._linear_recurrence_in_parallel(x, x, axis=0, reverse=True))(rows)
    assert "linear_recurrence" not in str(jaxpr)


@pytest.mark.parametrize("fun", [lax.cumprod, lax.cumlogsumexp])
def test_derivatives_of_long_running_totals_are_short_programs(fun):
    slope = jaxlite.grad(lambda x: fun(x, 0).sum())
    assert len(jaxlite.make_jaxpr(slope)(np.ones(5000, np.float32)).eqns) < 20


def test_tangents_of_narrow_running_products_do_not_stall():
    ones = np.ones(1000, jnp.bfloat16)  # a bfloat16 total would stay at 256
    assert float(jaxlite.jvp(lax.cumprod, (ones,), (ones,))[1][-1]) == 1000


# --- windows -----------------------------------------------------------------------------------------

WINDOWS: dict[str, dict[str, Any]] = {
    "plain": {"window_dimensions": (2, 3), "window_strides": (1, 1), "padding": "VALID"},
    "strides that leave a rest": {"window_dimensions": (2, 2), "window_strides": (3, 2), "padding": "VALID"},
    "same": {"window_dimensions": (3, 2), "window_strides": (2, 1), "padding": "SAME"},
    "spread window": {"window_dimensions": (2, 2), "window_strides": (1, 2), "padding": [(1, 2), (0, 1)],
                      "window_dilation": (2, 3)},
    "spread operand": {"window_dimensions": (2, 3), "window_strides": (2, 1), "padding": [(1, 0), (0, 0)],
                       "base_dilation": (3, 1)},
    "cropped": {"window_dimensions": (2, 1), "window_strides": (1, 1), "padding": [(-1, 0), (0, -2)]},
    "none": {"window_dimensions": (9, 1), "window_strides": (1, 1), "padding": "VALID"},
}


def _pooling(monoid: str, name: str):
    computation, init = {"sum": (lax.add, 0.), "max": (lax.max, -np.inf), "min": (lax.min, np.inf)}[monoid]
    return lambda x: lax.reduce_window(x, init, computation, **WINDOWS[name])


@pytest.mark.parametrize("name", WINDOWS)
def test_pooling(x64, name):
    x = np.random.normal(size=(5, 6))
    monoids = ["sum", "max", "min"]
    if name == "spread operand":  # windows full of holes have infinite extremes
        check_derivatives(lambda x: [_pooling("sum", name)(x)] + [
            jnp.where(jnp.isfinite(out), out, 0) for out in (_pooling("max", name)(x), _pooling("min", name)(x))], x, orders=1)
    else:
        check_derivatives(lambda x: [_pooling(monoid, name)(x) for monoid in monoids], x, orders=2 if name == "same" else 1)


@pytest.mark.parametrize("monoid", ["sum", "max"])
@pytest.mark.parametrize("axis", [0, 2])
def test_vmap_of_pooling(monoid, axis):
    x = np.random.normal(size=spread_axes((5, 6), 3, axis)).astype(np.float32)
    check_batching(_pooling(monoid, "spread window"), [x], [axis])
    check_batching(jaxlite.grad(lambda x: jnp.sum(_pooling(monoid, "same")(x) ** 2)), [x], [axis])


def test_each_window_picks_one_of_equal_elements():
    x = np.float32([[1, 1, 0, 2, 2, 2]])
    grad = jaxlite.grad(lambda x: jnp.sum(lax.reduce_window(x, -np.inf, lax.max, (1, 2), (1, 2))))(x)
    np.testing.assert_array_equal(grad, [[1, 0, 0, 1, 1, 0]])


def _joined(x: Any, y: Any) -> Any:
    return x + y + x * y


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_any_computation(x64, name):
    check_derivatives(lambda x: lax.reduce_window(x, 0., _joined, **WINDOWS[name]), np.random.normal(size=(5, 6)),
                      orders=2 if name == "same" else 1)


@pytest.mark.parametrize("in_axes", [(0, None), (2, None), (None, 0), (1, 0)])
def test_vmap_of_windows_of_any_computation(in_axes):
    x = np.random.normal(size=spread_axes((5, 6), 3, in_axes[0])).astype(np.float32)
    init = np.zeros(spread_axes((), 3, in_axes[1]), np.float32)
    check_batching(lambda x, init: lax.reduce_window(x, init, _joined, **WINDOWS["same"]), [x, init], in_axes)


# --- a window's pick ---------------------------------------------------------------------------------

_WINDOW = {"window_dimensions": (2, 2), "window_strides": (2, 1), "padding": [(1, 0), (0, 1)]}


def _scatter(source: Any, operand: Any) -> Any:
    return windows.select_and_scatter_add(source, operand, windows.ge_p, **_WINDOW)


def _gather(tangents: Any, operand: Any) -> Any:
    return windows.select_and_gather_add(tangents, operand, windows.le_p, **_WINDOW, base_dilation=(1, 1),
                                         window_dilation=(1, 2))


def test_picks(x64):
    operand = np.random.normal(size=(4, 4))
    check_derivatives(_scatter, np.random.normal(size=(2, 4)), operand, orders=1)
    check_derivatives(_gather, np.random.normal(size=(4, 4)), operand, orders=1)


@pytest.mark.parametrize("in_axes", [(0, None), (1, 2), (None, 0)])
def test_vmap_of_picks(in_axes):
    for fun, shape in ((_scatter, (2, 4)), (_gather, (4, 4))):
        values, operand = (np.random.normal(size=spread_axes(each, 3, axis)).astype(np.float32)
                           for each, axis in zip((shape, (4, 4)), in_axes, strict=True))
        check_batching(fun, [values, operand], in_axes)


@pytest.mark.parametrize("in_axes", [(0, None, None), (1, 2, None)])
def test_vmap_of_any_pick(in_axes):
    def fun(operand, source, init):
        return windows.select_and_scatter(operand, lax.ge, **_WINDOW, source=source, init_value=init, scatter=lax.add)

    operand, source = (np.random.normal(size=spread_axes(each, 3, axis)).astype(np.float32)
                       for each, axis in zip(((4, 4), (2, 4)), in_axes, strict=False))
    check_batching(fun, [operand, source, np.float32(0)], in_axes)
    with pytest.raises(NotImplementedError, match="initial values"):
        jaxlite.vmap(fun, (0, None, 0))(np.ones((2, 4, 4), np.float32), np.ones((2, 4), np.float32), np.zeros(2, np.float32))


# --- sorting -----------------------------------------------------------------------------------------


def test_sorting(x64):
    keys = np.array([[3, 1, 2, 1], [0, 5, 5, 4]], np.int32)
    x, y = np.random.normal(size=(2, 2, 4))
    check_derivatives(lambda x: lax.sort(x, dimension=0), x, orders=1)
    check_derivatives(lambda x, y: lax.sort((x, y, x * y), dimension=1), x, y)
    check_derivatives(lambda x, y: lax.sort((keys, x, y), num_keys=2), x, y, orders=1)
    check_derivatives(lambda x: lax.sort(x), x[0], orders=1)


def test_the_largest(x64):
    x = np.random.normal(size=(5, 4))
    check_derivatives(lambda x: lax.top_k(x, 2), x, orders=1)
    check_derivatives(lambda x: lax.top_k(x, 3, axis=0), x, orders=1)
    x = x.astype(np.float32)
    for fun, sign in ((lax.approx_max_k, 1), (lax.approx_min_k, -1)):
        got = jaxlite.grad(lambda x, fun=fun: jnp.sum(fun(x, 2)[0] ** 2))(x)
        order = np.argsort(-sign * x, axis=1)[:, :2]
        expected = np.zeros_like(x)
        np.put_along_axis(expected, order, 2 * np.take_along_axis(x, order, 1), 1)
        np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("in_axes", [(0, None), (None, 2), (1, 1), (2, 0)])
def test_vmap_of_sorting(in_axes):
    keys, values = (np.random.normal(size=spread_axes((3, 4), 2, axis)).astype(np.float32) for axis in in_axes)
    check_batching(lambda x, y: lax.sort((x, y), dimension=0), [keys, values], in_axes)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_vmap_of_the_largest(axis):
    x = np.random.normal(size=spread_axes((3, 4), 2, axis)).astype(np.float32)
    check_batching(lambda x: lax.top_k(x, 2), [x], [axis])
    check_batching(lambda x: lax.top_k(x, 2, axis=0), [x], [axis])
    check_batching(lambda x: lax.approx_max_k(x, 2, reduction_dimension=-2), [x], [axis])
    check_batching(jaxlite.grad(lambda x: jnp.sum(lax.top_k(x, 2)[0] ** 3)), [x], [axis])


# --- Fourier transforms ------------------------------------------------------------------------------


def _complex(*shape: int) -> np.ndarray:
    return np.random.normal(size=shape) + 1j * np.random.normal(size=shape)


@pytest.mark.parametrize("lengths", [(4,), (5,), (3, 4), (2, 3, 5)])
def test_fourier_transforms(x64, lengths):
    half = (*lengths[:-1], lengths[-1] // 2 + 1)
    check_derivatives(lambda x: [lax.fft(x, "FFT", lengths), lax.fft(x, "IFFT", lengths)], _complex(*lengths), orders=1)
    orders = 2 if lengths == (3, 4) else 1
    check_derivatives(lambda x: lax.fft(x, "RFFT", lengths), np.random.normal(size=(2, *lengths)), orders=orders)
    check_derivatives(lambda x: lax.fft(x, "IRFFT", lengths), _complex(*half), orders=orders)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_vmap_of_fourier_transforms(axis):
    x = np.random.normal(size=spread_axes((3, 4), 2, axis)).astype(np.float32)
    check_batching(lambda x: lax.fft(x, "RFFT", (4,)), [x], [axis], rtol=1e-4)
    check_batching(lambda x: lax.fft(x, "FFT", (3, 4)), [x], [axis], rtol=1e-4)


# --- random bits -------------------------------------------------------------------------------------


def test_a_batch_of_keys_makes_bits_in_one_call():
    keys = np.arange(12, dtype=np.uint32).reshape(3, 4)
    after, bits = jaxlite.vmap(lambda key: lax.rng_bit_generator(key, (5,)))(keys)
    expected_key, expected = lax.rng_bit_generator(keys[0], (3, 5))
    np.testing.assert_array_equal(bits, expected)
    np.testing.assert_array_equal(after, [expected_key, *keys[1:]])
    with pytest.raises(NotImplementedError, match="stateful"):
        jaxlite.vmap(lambda a: lax.rng_uniform(a, np.float32(1), (2,)))(np.zeros(2, np.float32))


# --- through jaxlite.numpy ---------------------------------------------------------------------------

NUMPY = {
    "cumsum": lambda x: jnp.cumsum(x, axis=1), "cumprod": lambda x: jnp.cumprod(x), "sort": lambda x: jnp.sort(x, axis=0),
    "median": lambda x: jnp.median(x, axis=0), "quantile": lambda x: jnp.quantile(x, 0.3, axis=1),
    "percentile": lambda x: jnp.percentile(x, 70), "nancumsum": lambda x: jnp.nancumsum(x, axis=0),
    "partition": lambda x: jnp.partition(x, 1, axis=1),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_functions(x64, name):
    if not hasattr(jnp, name):
        pytest.skip(f"jaxlite.numpy has no {name}")
    check_derivatives(NUMPY[name], np.random.normal(size=(3, 4)), orders=1)
