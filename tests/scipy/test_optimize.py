"""scipy.optimize: minima that are known, and SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize as oracle

import jaxlite
import jaxlite.numpy as jnp
from jaxlite.scipy.optimize import minimize


def rosenbrock(x, np=jnp):
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def himmelblau(x, np=jnp):
    return (x[0] ** 2 + x[1] - 11) ** 2 + (x[0] + x[1] ** 2 - 7) ** 2


def logarithmic(x, np=jnp):  # NaN where a step goes too far
    return np.sum(x - np.log(x)) + np.exp(x[0])


@pytest.mark.parametrize(("fun", "start"), [(rosenbrock, [-1.2, 1.0]), (rosenbrock, [0.5] * 4), (himmelblau, [1.0, 1.0]),
                                            (logarithmic, [5.0, 0.1])])
def test_minima_are_those_of_scipy(fun, start, x64):
    found = jaxlite.jit(lambda x: minimize(fun, x, method="BFGS", tol=1e-8))(np.array(start))
    expected = oracle.minimize(lambda x: fun(x, np), start, method="BFGS", tol=1e-6)
    np.testing.assert_allclose(found.x, expected.x, atol=1e-4)
    assert found.success and found.status == 0 and np.abs(found.jac).max() < 1e-8
    assert found.nit <= 2 * expected.nit + 10 and found.nfev == found.njev >= found.nit


def test_results(x64):
    scale = np.array([1.0, 4.0, 9.0])
    found = minimize(lambda x, scale: jnp.sum(scale * x * x) / 2, np.ones(3), (scale,), method="BFGS")
    np.testing.assert_allclose(found.x, 0, atol=1e-5)
    np.testing.assert_allclose(found.hess_inv, np.diag(1 / scale), atol=1e-2)
    stopped = minimize(rosenbrock, np.array([-1.2, 1.0]), method="BFGS", options={"maxiter": 2})
    assert not stopped.success and stopped.status == 1 and stopped.nit == 2
    stuck = minimize(lambda x: jnp.sum(x * jnp.nan), np.ones(2), method="BFGS")
    assert not stuck.success and stuck.status == 3
    starts = np.array([[-1.2, 1.0], [2.0, 2.0]])
    batch = jaxlite.jit(jaxlite.vmap(lambda x: minimize(rosenbrock, x, method="BFGS").x))(starts)
    np.testing.assert_allclose(batch, np.ones((2, 2)), atol=1e-4)


def test_errors():
    for call, error, message in ((dict(method="foo"), ValueError, "Method foo not recognized"),
                                 (dict(method="BFGS", args=3), TypeError, "must be a tuple"),
                                 (dict(method="BFGS", options={"foo": 1}), TypeError, "unexpected keyword argument 'foo'")):
        with pytest.raises(error, match=message):
            minimize(rosenbrock, np.ones(2, np.float32), **call)
    with pytest.raises(ValueError, match="x0 must be a vector"):
        minimize(rosenbrock, 1.0, method="BFGS")
