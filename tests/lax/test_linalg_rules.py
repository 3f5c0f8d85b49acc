"""Derivatives and batches of factorizations and solvers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite.lax import linalg
from tests.rule_checks import check_batching, check_derivatives, missing_rules, spread_axes

RULES = dict.fromkeys("cholesky lu lu_pivots_to_permutation qr eig eigh svd".split(), "jb")
RULES |= dict.fromkeys("triangular_solve lu_solve tridiagonal_solve".split(), "jtb")
RULES |= dict.fromkeys("cholesky_update symmetric_product".split(), "jtb")
RULES |= dict.fromkeys("geqrf householder_product ormqr hessenberg tridiagonal schur".split(), "Jb")


def test_every_primitive_has_its_rules():
    assert not missing_rules(RULES, [linalg])


def draw(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    x = np.random.normal(size=shape)
    return (x + 1j * np.random.normal(size=shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def positive(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    x = draw(*shape, dtype=dtype)
    return x @ np.conj(np.swapaxes(x, -1, -2)) + 3 * np.eye(shape[-1], dtype=dtype)


DTYPES = [np.float64, np.complex128]


# --- derivatives -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_cholesky(x64, dtype):
    x = positive(2, 3, 3, dtype=dtype)
    check_derivatives(linalg.cholesky, x, orders=1 if dtype is np.complex128 else 2)
    check_derivatives(lambda x: linalg.cholesky(x, symmetrize_input=False), x[0], orders=1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [
    {"left_side": True, "lower": True}, {"transpose_a": True}, {"left_side": True, "unit_diagonal": True},
    {"lower": True, "transpose_a": True, "conjugate_a": True}, {"left_side": True, "conjugate_a": True}])
def test_triangular_solve(x64, dtype, options):
    a = draw(3, 3, dtype=dtype) + 3 * np.eye(3)
    b = draw(3, 2, dtype=dtype) if options.get("left_side") else draw(2, 3, dtype=dtype)
    check_derivatives(lambda a, b: linalg.triangular_solve(a, b, **options), a, b, orders=2 if "lower" in options else 1)


def test_triangular_solve_is_linear_in_the_right_side(x64):
    a, b = draw(3, 3) + 3 * np.eye(3), draw(3, 2)
    check_derivatives(lambda b: linalg.triangular_solve(a, b, left_side=True, lower=True), b, orders=1)
    check_derivatives(lambda a: linalg.triangular_solve(a, b, left_side=True, lower=True), a, orders=1)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 2), (1, 1)])
def test_lu(x64, shape):
    check_derivatives(linalg.lu, draw(*shape), orders=2 if shape == (4, 2) else 1)


def test_complex_lu(x64):
    check_derivatives(linalg.lu, draw(3, 2, dtype=complex), orders=1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
def test_qr(x64, shape, dtype):
    full = shape != (4, 2)
    check_derivatives(lambda x: linalg.qr(x, full_matrices=full), draw(*shape, dtype=dtype),
                      orders=2 if shape == (4, 2) and dtype is np.float64 else 1)


def test_qr_with_pivoting(x64):
    check_derivatives(lambda x: linalg.qr(x, full_matrices=False, pivoting=True), draw(4, 3), orders=1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_full_qr_of_a_tall_matrix(x64, dtype):
    """With one column more to complete Q it is unique up to a phase; what does not depend on the choice always is."""
    check_derivatives(lambda x: [abs(linalg.qr(x)[0]), linalg.qr(x)[1]], draw(3, 2, dtype=dtype), orders=1)

    def projection(x):
        rest = linalg.qr(x)[0][:, 2:]
        return rest @ rest.T

    if dtype is np.float64:
        check_derivatives(projection, draw(5, 2), orders=1)


def test_eigh(x64):
    x = draw(2, 3, 3)
    check_derivatives(linalg.eigh, x, orders=1)
    for lower in (True, False):
        check_derivatives(lambda x, lower=lower: linalg.eigh(x, lower=lower, symmetrize_input=False), x[0], orders=1)


def _without_phase(x: Any) -> list[Any]:
    vectors, values = linalg.eigh(x)
    return [values, jnp.einsum("ik,jk->kij", vectors, jnp.conj(vectors))]


def test_complex_eigh(x64):
    check_derivatives(_without_phase, draw(3, 3, dtype=complex))


@pytest.mark.parametrize("dtype", DTYPES)
def test_eig(x64, dtype):
    x = draw(3, 3, dtype=dtype)
    check_derivatives(lambda x: linalg.eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=False), x,
                      orders=2 if dtype is np.float64 else 1)
    check_derivatives(lambda x: linalg.eig(x, enable_eigvec_derivs=True), x, orders=1)
    with pytest.raises(NotImplementedError, match="enable_eigvec_derivs"):
        jaxlite.jvp(linalg.eig, (x,), (x,))


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 3)])
def test_svd(x64, shape):
    check_derivatives(lambda x: linalg.svd(x, full_matrices=False), draw(*shape), orders=2 if shape == (4, 2) else 1)
    check_derivatives(lambda x: linalg.svd(x, compute_uv=False), draw(*shape), orders=1)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 3)])
def test_complex_svd(x64, shape):
    def fun(x):
        u, s, vh = linalg.svd(x, full_matrices=False)
        return [s, jnp.einsum("ik,kj->kij", u, vh), jnp.einsum("ik,jk->kij", u, jnp.conj(u))]

    check_derivatives(fun, draw(*shape, dtype=complex), orders=1)


def test_the_phases_of_complex_singular_vectors_turn_on_the_left(x64):
    x = draw(3, 2, dtype=complex)
    dx = x[::-1] * (1 + 2j)
    (_, _, vh), (_, _, dvh) = jaxlite.jvp(lambda x: linalg.svd(x, full_matrices=False), (x,), (dx,))
    np.testing.assert_allclose(np.sum(dvh * np.conj(vh), axis=1), 0, atol=1e-12)


def test_full_svd_has_no_derivative_unless_square(x64):
    with pytest.raises(NotImplementedError, match="full_matrices=False"):
        jaxlite.jvp(linalg.svd, (draw(3, 2),), (draw(3, 2),))
    check_derivatives(linalg.svd, draw(2, 2), orders=1)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_tridiagonal_solve(x64, batch):
    below, diagonal, above = draw(*batch, 4), draw(*batch, 4) + 4, draw(*batch, 4)
    check_derivatives(linalg.tridiagonal_solve, below, diagonal, above, draw(*batch, 4, 2), orders=1 if batch else 2)


def test_products_and_updates(x64):
    check_derivatives(lambda a, c: linalg.symmetric_product(a, c, alpha=2, beta=3), draw(3, 2), positive(3, 3), orders=1)
    check_derivatives(linalg.cholesky_update, np.linalg.cholesky(positive(3, 3)).T.copy(), draw(3), orders=1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_systems_and_determinants(x64, dtype):
    def both(a, b):
        return [jnp.linalg.solve(a, b), *jnp.linalg.slogdet(a)]

    check_derivatives(both, draw(2, 3, 3, dtype=dtype), draw(2, 3, 2, dtype=dtype), orders=2 if dtype == np.float64 else 1)
    program = str(jaxlite.make_jaxpr(jaxlite.jacrev(jaxlite.grad(lambda a: jnp.linalg.slogdet(a)[1])))(np.eye(3)))
    assert len(re.findall(r"= lu\b", program)) == 1, "the factors serve all derivatives"


@pytest.mark.parametrize("name", ["hessenberg", "schur", "tridiagonal", "geqrf"])
def test_forms_without_derivatives_say_so(name):
    with pytest.raises(NotImplementedError, match=f"Differentiation rule for '{name}' not implemented"):
        jaxlite.jvp(getattr(linalg, name), (np.eye(3, dtype=np.float32),), (np.eye(3, dtype=np.float32),))


# --- batching ----------------------------------------------------------------------------------------

BATCHED = {  # a function and its arguments' shapes
    "cholesky": (lambda x: linalg.cholesky(x @ jnp.swapaxes(x, -1, -2) + jnp.eye(3)), [(3, 3)]),
    "lu": (lambda x: linalg.lu(x), [(4, 3)]),
    "permutation": (lambda x: linalg.lu_pivots_to_permutation(linalg.lu(x)[1], 4), [(4, 3)]),
    "qr": (lambda x: linalg.qr(x, full_matrices=False), [(4, 3)]),
    "geqrf": (lambda x: linalg.geqrf(x), [(4, 3)]),
    "householder_product": (linalg.householder_product, [(4, 3), (3,)]),
    "ormqr": (linalg.ormqr, [(4, 3), (3,), (4, 2)]),
    "hessenberg": (linalg.hessenberg, [(3, 3)]),
    "tridiagonal": (lambda x: linalg.tridiagonal(x + x.T), [(3, 3)]),
    "eigh": (lambda x: linalg.eigh(x), [(3, 3)]),
    "eig": (lambda x: jnp.real(jnp.sum(linalg.eig(x)[0] ** 2)), [(3, 3)]),
    "schur": (lambda x: linalg.schur(x), [(3, 3)]),
    "svd": (lambda x: linalg.svd(x), [(3, 2)]),
    "triangular_solve": (lambda a, b: linalg.triangular_solve(a + 3 * jnp.eye(3), b), [(3, 3), (2, 3)]),
    "lu_solve": (lambda b, a: linalg.lu_solve(a, *linalg.lu(a)[::2], b), [(3, 2), (3, 3)]),
    "lu_solve transposed": (lambda a, b: linalg.lu_solve(a, *linalg.lu(a)[::2], b, transpose_a=True), [(3, 3), (3, 2)]),
    "triangular_solve right sides": (lambda b, a: linalg.triangular_solve(a + 3 * jnp.eye(3), b), [(2, 3), (3, 3)]),
    "tridiagonal_solve": (lambda d, b: linalg.tridiagonal_solve(d, d + 5, d, b), [(3,), (3, 2)]),
    "tridiagonal_solve right sides": (lambda b, d: linalg.tridiagonal_solve(d, d + 5, d, b), [(3, 2), (3,)]),
    "symmetric_product": (lambda a, c: linalg.symmetric_product(a, c, beta=1.), [(3, 2), (3, 3)]),
    "cholesky_update": (lambda r, w: linalg.cholesky_update(jnp.triu(r) + 4 * jnp.eye(3), w), [(3, 3), (3,)]),
}


@pytest.mark.parametrize("name", BATCHED)
def test_vmap_is_a_loop(name):
    fun, shapes = BATCHED[name]
    for in_axes in ([0, *[None] * (len(shapes) - 1)], [1] * len(shapes)):
        args = [draw(*spread_axes(shape, 2, axis), dtype=np.float32) for shape, axis in zip(shapes, in_axes, strict=True)]
        check_batching(fun, args, in_axes, rtol=1e-4)


def test_right_sides_alone_are_batched_as_columns():
    def systems(b, a, d):
        return linalg.triangular_solve(a, b, left_side=True), linalg.tridiagonal_solve(d, d, d, b), jnp.linalg.solve(a, b)

    jaxpr = jaxlite.make_jaxpr(jaxlite.vmap(systems, (0, None, None)))(np.zeros((5, 3, 2)), np.eye(3), np.ones(3))
    assert re.findall(r":\w+(\S+) = (\w+_solve)\b", str(jaxpr)) == [
        ("[3,10]", name) for name in ("triangular_solve", "tridiagonal_solve", "lu_solve")]


def test_vmap_of_derivatives():
    def loss(x):
        return jnp.sum(linalg.svd(x, compute_uv=False)) + jnp.sum(linalg.lu(x)[0] ** 2)

    check_batching(jaxlite.grad(loss), [draw(3, 3, 3, dtype=np.float32)], [1], rtol=1e-3)


# --- through jaxlite.numpy ---------------------------------------------------------------------------

NUMPY = {
    "solve": lambda x: jnp.linalg.solve(x, x[:, :2] ** 2), "inv": lambda x: jnp.linalg.inv(x),
    "det": lambda x: jnp.linalg.det(x), "slogdet": lambda x: jnp.linalg.slogdet(x)[1],
    "norm": lambda x: jnp.linalg.norm(x, axis=1), "pinv": lambda x: jnp.linalg.pinv(x[:, :2]),
    "eigvalsh": lambda x: jnp.linalg.eigvalsh(x), "cond": lambda x: jnp.linalg.cond(x),
    "svd": lambda x: jnp.linalg.svd(x, compute_uv=False), "matrix_power": lambda x: jnp.linalg.matrix_power(x, 3),
    "lstsq": lambda x: jnp.linalg.lstsq(x, x[:, 0] ** 2)[0],
}


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_functions(x64, name):
    if not hasattr(jnp, "linalg") or not hasattr(jnp.linalg, name):
        pytest.skip(f"jaxlite.numpy.linalg has no {name}")
    check_derivatives(NUMPY[name], draw(3, 3) + 2 * np.eye(3), orders=1, tolerance=1e-6)
