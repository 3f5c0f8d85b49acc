"""odeint: solutions in closed form, and derivatives with respect to everything."""

from __future__ import annotations

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite.experimental.ode import odeint

TIMES = np.array([0.0, 0.5, 1.5], np.float32)


def test_pytrees_and_the_order_of_convergence():
    """y' = -2 y and z' = y t: the second has a closed form by parts; looser tolerances give larger errors."""
    slope = lambda state, t: {"y": -2 * state["y"], "z": state["y"] * t}
    start = {"y": jnp.array([1.0, 3.0]), "z": jnp.zeros(2)}
    exact = np.exp(-2 * TIMES)[:, None] * [1, 3]
    integral = (1 / 4 - np.exp(-2 * TIMES) * (TIMES / 2 + 1 / 4))[:, None] * [1, 3]
    solve = lambda tolerance: jax.jit(lambda: odeint(slope, start, TIMES, rtol=tolerance, atol=tolerance))()
    errors = []
    for tolerance in (1e-2, 1e-6):
        found = solve(tolerance)
        np.testing.assert_allclose(found["z"], integral, atol=20 * tolerance + 1e-6)
        errors.append(np.abs(found["y"] - exact).max())
    assert errors[1] < 2e-6 < errors[0] < 0.05


def test_derivatives():
    """y' = -p y + q t: with respect to the start, both parameters, one of them closed over, and the times."""

    def last(y0, p, q, times):
        return odeint(lambda y, t, p: -p * y + q * t, y0, times, p, rtol=1e-6, atol=1e-6)[-1]

    def exact(y0, p, q, times):
        t = times[-1] - times[0]
        start = times[0]
        particular = lambda s: q * (s / p - 1 / p**2)
        return (y0 - particular(start)) * np.exp(-p * t) + particular(times[-1])

    arguments = 1.5, 0.7, 0.3, TIMES + 0.2
    np.testing.assert_allclose(last(*arguments), exact(*arguments), rtol=1e-5)
    found = jax.jit(jax.grad(last, (0, 1, 2, 3)))(*map(jnp.asarray, arguments))
    for index in range(4):
        wide = [np.float64(each) for each in arguments]
        for place in np.ndindex(np.shape(wide[index])):
            values = []
            for sign in (1, -1):
                moved = [each.copy() for each in map(np.asarray, wide)]
                moved[index][place] += sign * 1e-5
                values.append(exact(*moved))
            np.testing.assert_allclose(np.asarray(found[index])[place], (values[0] - values[1]) / 2e-5, rtol=2e-3, atol=2e-4)


def test_half_floats_stay_half_floats():
    out = odeint(lambda y, t, a: -y * a, jnp.float16(1), TIMES, jnp.float16(1), rtol=1e-2, atol=1e-2)
    assert out.dtype == jnp.float16
    np.testing.assert_allclose(out.astype(np.float32), np.exp(TIMES[0] - TIMES), atol=2e-2)


def test_bad_input():
    with pytest.raises(TypeError, match=r"contents of odeint \*args must be arrays or scalars, but got 'a'"):
        odeint(lambda y, t, a: y, 1.0, TIMES, "a")
    with pytest.raises(TypeError, match="t must be an array of floats"):
        odeint(lambda y, t: y, 1.0, np.arange(3))
