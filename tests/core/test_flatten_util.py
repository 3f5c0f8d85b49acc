"""ravel_pytree, and check_grads, which compares derivatives with differences."""

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.flatten_util import ravel_pytree
from jaxlite.test_util import check_grads, check_jvp, check_vjp

TREE = {"a": np.arange(3), "b": [np.ones((2, 1), np.float32), 0.5]}


def test_ravel_and_back():
    vector, unravel = ravel_pytree(TREE)
    assert vector.dtype == np.float32
    np.testing.assert_array_equal(vector, [0, 1, 2, 1, 1, 0.5])
    tree = unravel(vector * 2)
    assert tree["a"].dtype == np.int32 and tree["b"][0].shape == (2, 1) and tree["b"][1].shape == ()
    np.testing.assert_array_equal(tree["a"], [0, 2, 4])
    vector, unravel = ravel_pytree([1.0, 2.0])
    assert unravel(vector)[0].weak_type and not unravel(jnp.ones(2))[0].weak_type


def test_vectors_that_do_not_fit():
    vector, unravel = ravel_pytree(TREE)
    with pytest.raises(ValueError, match="shape"):
        unravel(vector[:3])
    with pytest.raises(TypeError, match="dtype"):
        unravel(vector.astype(jnp.bfloat16))


def test_empty_trees_and_single_arrays():
    vector, unravel = ravel_pytree({})
    assert vector.shape == (0,) and unravel(vector) == {}
    vector, unravel = ravel_pytree(np.arange(4).reshape(2, 2))
    assert vector.dtype == np.int32 and unravel(vector).shape == (2, 2)


def test_ravel_is_differentiable_and_maps():
    floats = {"x": jnp.arange(2.0), "y": jnp.float32(3)}
    gradient = jax.jit(jax.grad(lambda tree: jnp.sum(ravel_pytree(tree)[0] ** 2)))(floats)
    np.testing.assert_allclose(gradient["x"], [0, 2])
    np.testing.assert_allclose(gradient["y"], 6)
    assert jax.vmap(lambda x: ravel_pytree({"x": x, "y": 2 * x})[0])(jnp.ones((4, 3))).shape == (4, 6)


def test_check_grads_accepts_right_derivatives(x64):
    check_grads(lambda x, n: {"o": jnp.sin(x) * x, "n": n}, (np.linspace(0.1, 1, 3), 2), order=2)
    check_grads(lambda z: jnp.exp(z) * z, (np.complex128(0.3 + 0.2j),), order=1)


def test_check_grads_refuses_wrong_derivatives():
    def wrong(x):
        return lax.stop_gradient(x) * x

    for modes in (["fwd"], ["rev"]):
        with pytest.raises(AssertionError):
            check_grads(wrong, (2.0,), order=1, modes=modes)

    with pytest.raises(AssertionError):
        check_jvp(jnp.sin, lambda primals, tangents: (jnp.sin(primals[0]), tangents[0]), (1.0,))
    with pytest.raises(AssertionError):
        check_vjp(jnp.sin, lambda x: (jnp.sin(x), lambda g: (g,)), (1.0,))
    with pytest.raises(ValueError, match="modes"):
        check_grads(jnp.sin, (1.0,), order=1, modes=["forward"])


def test_rules_of_custom_functions_see_arrays():
    @jax.custom_vjp
    def fun(x):
        return x * 2

    fun.defvjp(lambda x: (x * 2, jnp.zeros(x.shape, x.dtype)), lambda zeros, g: (g * 3 + zeros,))
    assert float(jax.grad(fun)(1.0)) == 3.0


@pytest.mark.parametrize(("dtype", "step"), [("float32", 1e-4), ("float16", 1e-2)])
def test_check_grads_takes_steps_that_fit_the_dtype(dtype, step):
    seen = []

    def f(x):
        if not isinstance(x, jax.core.Tracer):
            seen.append(float(x))
        return x * 2

    check_grads(f, (jnp.asarray(1, dtype),), 1, modes=("fwd",))
    ahead, behind = seen[-2:]
    assert ahead - 1 == pytest.approx(1 - behind, rel=0.05) == pytest.approx(step * 1.764, rel=0.05)  # of RandomState(0)
