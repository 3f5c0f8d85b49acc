"""custom_linear_solve, custom_root and the iterative solvers: values, derivatives by the equations that they solve."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.sparse.linalg as oracle

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.core.jaxpr import check_jaxpr
from jaxlite.scipy.sparse.linalg import bicgstab, cg, gmres
from tests.rule_checks import check_all_batchings, check_jvp, check_transpose


def matrix(rng, n=4):
    return rng.normal(size=(n, n)) + 4 * np.eye(n)


# --- custom_linear_solve -----------------------------------------------------------------------------


def solved(a, b, symmetric=False, has_aux=False):
    """By a solver that has no derivative of its own."""

    def solve(matvec, b, a=a):
        # Richardson's iteration, in a loop that cannot be differentiated backwards.
        def step(carry):
            x, count = carry
            return x + (b - matvec(x)) / 8, count + 1

        x, count = lax.while_loop(lambda carry: jnp.any(jnp.abs(b - matvec(carry[0])) > 1e-13) & (carry[1] < 500), step,
                                  (jnp.zeros_like(b), 0))
        return (x, count) if has_aux else x

    return lax.custom_linear_solve(lambda x: a @ x, b, solve, None if symmetric else solve, symmetric, has_aux)


def test_linear_solve_values_derivatives_and_batches(x64, rng):
    a, b = matrix(rng), rng.normal(size=4)
    np.testing.assert_allclose(solved(a, b), np.linalg.solve(a, b), rtol=1e-10)

    def both(a, b):
        return [solved(a, b), solved(a @ a.T / 8 + 3 * jnp.eye(4), b, symmetric=True)]

    run = jaxlite.jit(both)
    check_jvp(run, (a, b), order=2)
    check_transpose(run, (a, b))
    check_all_batchings(run, (a, b), size=2, in_axes=[(None, 0), (None, 0)], rtol=1e-10,
                   make=lambda which, x: x * (1 + 0.1 * rng.random()))
    second = jaxlite.jit(jaxlite.hessian(lambda b: jnp.sum(jnp.sin(solved(a, b)))))(b)
    inverse = np.linalg.inv(a)
    np.testing.assert_allclose(second, inverse.T @ np.diag(-np.sin(inverse @ b)) @ inverse, rtol=1e-8, atol=1e-12)


def test_linear_solve_of_trees_with_aux(x64, rng):
    a, b = matrix(rng), {"x": rng.normal(size=2), "y": (rng.normal(size=2),)}

    def matvec(tree):
        out = a @ jnp.concatenate([tree["x"], tree["y"][0]])
        return {"x": out[:2], "y": (out[2:],)}

    def solve(matrix, f, b):
        out = jnp.linalg.solve(matrix, jnp.concatenate([b["x"], b["y"][0]]))
        return {"x": out[:2], "y": (out[2:],)}, {"count": 7, "size": jnp.sum(b["x"])}

    def run(b):
        return lax.custom_linear_solve(matvec, b, partial(solve, a), partial(solve, a.T), has_aux=True)

    (x, aux), (dx, daux) = jaxlite.jvp(run, (b,), (b,))
    flat = np.concatenate([b["x"], b["y"][0]])
    np.testing.assert_allclose(np.concatenate([x["x"], x["y"][0]]), np.linalg.solve(a, flat))
    np.testing.assert_allclose(np.concatenate([dx["x"], dx["y"][0]]), np.linalg.solve(a, flat))
    assert aux["count"] == 7 and daux["size"] == 0 and daux["count"].dtype == jaxlite.dtypes.float0
    gradient = jaxlite.grad(lambda b: run(b)[0]["y"][0].sum())(b)
    np.testing.assert_allclose(np.concatenate([gradient["x"], gradient["y"][0]]),
                               np.linalg.solve(a.T, [0.0, 0.0, 1.0, 1.0]))
    check_jaxpr(jaxlite.make_jaxpr(jaxlite.grad(lambda b: run(b)[0]["y"][0].sum()))(b))


def test_linear_solve_is_one_equation_and_is_not_retraced(count_traces):
    b = jnp.arange(3.0)

    def double(x):
        return 2 * x

    solve = count_traces(lambda f, b: b / 2)
    run = jaxlite.jit(lambda b: lax.custom_linear_solve(double, b, solve))
    assert [eqn.primitive.name for eqn in jaxlite.make_jaxpr(run)(b).eqns[0].params["jaxpr"].eqns] == ["custom_linear_solve"]
    before = solve.count
    np.testing.assert_array_equal(run(b), b / 2)
    np.testing.assert_array_equal(run(b + 1), (b + 1) / 2)
    assert solve.count <= before + 1


def test_linear_solve_errors():
    b = jnp.arange(3.0)
    for matvec, solve, message in ((lambda x: x[:2], lambda f, b: b, r"matvec\(\) output shapes must match b"),
                                   (lambda x: x, lambda f, b: b[:2], r"solve\(\) output shapes must match b")):
        with pytest.raises(ValueError, match=message):
            lax.custom_linear_solve(matvec, b, solve)
    with pytest.raises(TypeError, match=r"solve\(\) output pytree structure must match b"):
        lax.custom_linear_solve(lambda x: x, b, lambda f, b: {"x": b})
    with pytest.raises(ValueError, match=r"solve\(\) output shapes must match b"):  # as many values first, as in JAX
        lax.custom_linear_solve(lambda x: x, b, lambda f, b: (b, b))
    with pytest.raises(ValueError, match="pair"):
        lax.custom_linear_solve(lambda x: x, b, lambda f, b: b, has_aux=True)
    with pytest.raises(TypeError, match="transpose_solve required"):
        jaxlite.grad(lambda b: lax.custom_linear_solve(lambda x: x, b, lambda f, b: b).sum())(b)


# --- custom_root -------------------------------------------------------------------------------------


def newton(f, guess):
    return lax.while_loop(lambda x: jnp.any(jnp.abs(f(x)) > 1e-12),
                          lambda x: x - jnp.linalg.solve(jaxlite.jacobian(f)(x), f(x)), guess)


def tangent_solve(g, y):
    return jnp.linalg.solve(jaxlite.jacobian(g)(y), y)


def test_root_values_derivatives_and_batches(x64, rng):
    a, b = matrix(rng, 3), rng.uniform(0.5, 1, size=3)

    def root(a, b):  # of a x + x^3 = b; f is compiled by itself inside
        return lax.custom_root(jaxlite.jit(lambda x: a @ x + x**3 - b), jnp.zeros(3), newton, tangent_solve)

    x = np.asarray(root(a, b))
    np.testing.assert_allclose(a @ x + x**3, b, rtol=1e-10)
    run = jaxlite.jit(root)
    check_jvp(run, (a, b), order=2)
    check_transpose(run, (a, b))
    check_all_batchings(run, (a, b), size=2, in_axes=[(None, 0), (None, 0)], rtol=1e-9,
                   make=lambda which, x: x * (1 + 0.1 * rng.random()))


def test_root_of_scalars_with_aux():
    def root(square):
        def solve(f, x):
            return lax.fori_loop(0, 8, lambda _, x: x - f(x) / (2 * x), x), {"steps": 8}

        return lax.custom_root(lambda x: x * x - square, 1.0, solve, lambda g, y: y / g(1.0), has_aux=True)

    (value, aux), slope = jaxlite.value_and_grad(root, has_aux=True)(9.0)
    assert value == 3 and aux["steps"] == 8
    np.testing.assert_allclose(slope, 1 / 6, rtol=1e-6)
    np.testing.assert_allclose(jaxlite.grad(jaxlite.grad(lambda s: root(s)[0]))(9.0), -1 / 108, rtol=1e-5)
    np.testing.assert_allclose(jaxlite.jvp(lambda s: root(s)[0], (9.0,), (1.0,))[1], 1 / 6, rtol=1e-6)


def test_root_errors():
    for f, solve, tangent, message in (
            (lambda x: (x, x), lambda f, x: x, lambda g, y: y, "f"),
            (lambda x: x, lambda f, x: (x, x), lambda g, y: y, "solve"),
            (lambda x: x, lambda f, x: x, lambda g, y: (y, y), "tangent_solve")):
        with pytest.raises(TypeError, match=rf"^{message}\(\) output pytree structure must match"):
            lax.custom_root(f, 1.0, solve, tangent)


# --- iterative solvers -------------------------------------------------------------------------------

SOLVERS = {"cg": cg, "bicgstab": bicgstab, "gmres": gmres, "gmres incremental": partial(gmres, solve_method="incremental"),
           "gmres restarted": partial(gmres, restart=3), "gmres wide": partial(gmres, restart=3, solve_method="incremental")}


@pytest.mark.parametrize("name", ["float32", "complex128"])
def test_solvers_reach_their_tolerance(name, x64, rng):
    dtype = np.dtype(name)
    a = matrix(rng, 6).astype(dtype)
    b = rng.normal(size=6).astype(dtype)
    if dtype.kind == "c":
        a, b = a + 0.3j * rng.normal(size=(6, 6)), b * (1 + 2j)
    definite = a @ a.conj().T
    tol = 1e-5 if name == "float32" else 1e-10
    inverse = np.linalg.inv(np.diag(np.diagonal(a)))

    @jaxlite.jit
    def run(a, definite, b):
        def thrice(solve, a, inverse):
            return [solve(a, b, tol=tol)[0], solve(lambda x: a @ x, b, tol=tol, x0=b, M=inverse)[0], solve(a, 0 * b)[0]]

        return {key: thrice(solve, definite, None) if key == "cg" else thrice(solve, a, inverse)
                for key, solve in SOLVERS.items()}

    for key, (*found, nothing) in run(a, definite, b).items():
        assert not np.asarray(nothing).any(), key
        for x in found:
            assert x.dtype == dtype
            residual = (definite if key == "cg" else a) @ np.asarray(x) - b
            assert np.linalg.norm(residual) <= 20 * tol * np.linalg.norm(b), key


def test_solvers_take_the_steps_of_scipy(x64, rng):
    """After a few steps, before anything has converged."""
    a, b = matrix(rng, 8), rng.normal(size=8)
    a = a @ a.T
    m = np.diag(1 / np.diagonal(a))
    for ours, theirs, kwargs in ((cg, oracle.cg, {}), (cg, oracle.cg, {"M": m}), (bicgstab, oracle.bicgstab, {"M": m})):
        found, _ = ours(a, b, maxiter=3, tol=1e-12, **kwargs)
        expected, _ = theirs(a, b, maxiter=3, rtol=1e-12, **kwargs)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    expected, _ = oracle.gmres(a, b, restart=3, maxiter=1, rtol=1e-12)
    for method in ("batched", "incremental"):
        found, info = gmres(a, b, restart=3, maxiter=1, tol=1e-12, solve_method=method)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        assert info == 0


def test_solvers_of_trees_are_differentiated_and_batched(x64, rng):
    a, b = matrix(rng, 3), rng.normal(size=3)

    def run(a, b):
        def double(tree):
            return {"one": a @ tree["one"], "two": 2 * tree["two"]}

        found = [solve(double, {"one": b, "two": b[:1]}, tol=1e-12)[0] for solve in (bicgstab, gmres)]
        definite = a @ a.T
        return [*(x[key] for x in found for key in ("one", "two")), cg(definite, b, tol=1e-12)[0]]

    np.testing.assert_allclose(run(a, b)[0], np.linalg.solve(a, b), rtol=1e-9)
    run = jaxlite.jit(run)
    check_jvp(run, (a, b), order=1, rtol=1e-5)
    check_transpose(run, (a, b), rtol=1e-8)
    check_all_batchings(run, (a, b), size=2, in_axes=[(None, 0), (0,)], rtol=1e-8,
                   make=lambda which, x: x * (1 + 0.1 * rng.random()))


def test_solver_errors():
    a, b = np.eye(3, dtype=np.float32), np.ones(3, np.float32)
    half = lambda x: jnp.asarray(x, jnp.bfloat16)
    for call, error, message in (
            (lambda: cg(a[:2], b), ValueError, "must be a square matrix"), (lambda: cg("a", b), TypeError, "must be either"),
            (lambda: cg(a, b, x0=b[:2]), ValueError, "matching shapes"), (lambda: cg(a, b, x0=(b,)), ValueError, "tree"),
            (lambda: gmres(a, b, solve_method="foo"), ValueError, "invalid solve_method foo")):
        with pytest.raises(error, match=message):
            call()
    assert gmres(half(2 * a), half(b), solve_method="incremental")[0].tolist() == [0.5] * 3
