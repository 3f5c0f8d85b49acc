"""Linear algebra: factorizations by the laws they obey, the rest against NumPy in double precision."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite.lax import linalg as lax_linalg
from jaxlite.lax.linalg import factors, solvers
from jaxlite.numpy import linalg
from lowering.module import LoweringError
from lowering.xla import VERSION

f32 = np.dtype(np.float32)
DTYPES = [np.dtype(name) for name in ("float32", "float64", "complex64", "complex128")]


def draw(rng, *shape, dtype=f32):
    x = rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.normal(size=shape)
    return x.astype(dtype)


def H(x):
    return np.swapaxes(np.asarray(x), -1, -2).conj()


def definite(rng, *shape, dtype=f32):
    x = draw(rng, *shape, dtype=dtype)
    return x @ H(x) + np.eye(shape[-1], dtype=dtype)


def eps(dtype):
    return np.finfo(np.dtype(dtype)).eps


def close(got, expected, dtype, factor=100):
    """Backward stable methods on small matrices of size about one: errors of some tens of units of rounding."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape
    scale = max(1, np.abs(expected).max(initial=0)) if np.isfinite(expected).all() else 1
    np.testing.assert_allclose(got, expected, atol=factor * eps(dtype) * scale, rtol=factor * eps(dtype))


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request, x64):
    return request.param


# --- factorizations ----------------------------------------------------------------------------------


def test_qr_svd_lu_of_all_shapes(dtype, rng):
    for shape in ((5, 3), (2, 3, 5)):
        a = draw(rng, *shape, dtype=dtype)

        @jaxlite.jit
        def factor(a):
            return ([lax_linalg.qr(a, full_matrices=full) for full in (True, False)],
                    [lax_linalg.svd(a, full_matrices=full) for full in (True, False)],
                    lax_linalg.svd(a, compute_uv=False), lax_linalg.svd(a, algorithm=lax_linalg.SvdAlgorithm.QR),
                    lax_linalg.lu(a), lax_linalg.qr(a, pivoting=True))

        qrs, svds, values, by_qr, (lu, pivots, permutation), (q, r, order) = factor(a)
        rows, columns = shape[-2:]
        inner = min(rows, columns)
        for (q1, r1), size in zip(qrs, (rows, inner), strict=True):
            assert q1.shape == (*shape[:-1], size) and r1.shape == (*shape[:-2], size, columns)
            close(H(q1) @ q1, np.broadcast_to(np.eye(size), (*shape[:-2], size, size)), dtype)
            close(np.asarray(q1) @ r1, a, dtype)
            assert not np.tril(r1, -1).any()
        for u, s, vh in (*svds, by_qr):
            assert s.dtype == np.zeros(0, dtype).real.dtype and (np.diff(s, axis=-1) <= 0).all()
            close(H(u) @ u, np.broadcast_to(np.eye(u.shape[-1]), (*shape[:-2], u.shape[-1], u.shape[-1])), dtype)
            close(np.asarray(vh) @ H(vh), np.broadcast_to(np.eye(vh.shape[-2]), (*shape[:-2], *vh.shape[-2:-1] * 2)), dtype)
            close((np.asarray(u)[..., :inner] * np.asarray(s)[..., None, :]) @ np.asarray(vh)[..., :inner, :], a, dtype)
        close(values, np.linalg.svd(a, compute_uv=False), dtype)
        assert svds[0][0].shape[-1] == rows and svds[1][0].shape[-1] == inner
        lower = np.tril(lu, -1)[..., :inner] + np.eye(rows, inner)
        close(lower @ np.triu(lu)[..., :inner, :], np.take_along_axis(a, np.asarray(permutation)[..., None], -2), dtype)
        assert pivots.dtype == permutation.dtype == np.int32
        # The pivot is the greatest of its column; of complex numbers by |real| + |imag|.
        assert (np.abs(lower) <= (1.5 if dtype.kind == "c" else 1 + 100 * eps(dtype))).all()
        close(np.asarray(q) @ r, np.take_along_axis(a, np.asarray(order)[..., None, :], -1), dtype)
        sizes = np.abs(np.diagonal(r, axis1=-2, axis2=-1))
        assert (np.diff(sizes, axis=-1) <= 100 * eps(dtype)).all()


def test_eigenvalues_and_schur_form(dtype, rng):
    a, h = draw(rng, 2, 4, 4, dtype=dtype), definite(rng, 2, 4, 4, dtype=dtype)

    @jaxlite.jit
    def factor(a, h):
        return (lax_linalg.eig(a), lax_linalg.eigh(h), lax_linalg.schur(a),
                lax_linalg.schur(a, compute_schur_vectors=False), lax_linalg.eigh(h, lower=False, symmetrize_input=False))

    (w, left, right), (v, values), (t, z), (t_alone,), (v_upper, _) = map(
        lambda out: [np.asarray(each) for each in out], factor(a, h))
    assert w.dtype == left.dtype == right.dtype == np.result_type(dtype, np.complex64)
    close(a @ right, right * w[:, None, :], dtype, 1000)
    close(H(left) @ a, w[..., None] * H(left), dtype, 1000)
    close(np.linalg.norm(right, axis=-2), np.ones((2, 4)), dtype)
    assert values.dtype == np.zeros(0, dtype).real.dtype and (np.diff(values, axis=-1) >= 0).all()
    close(h @ v, v * values[:, None, :], dtype, 1000)
    close(H(v) @ v, np.broadcast_to(np.eye(4), (2, 4, 4)), dtype)
    close(np.abs(v_upper), np.abs(v), dtype, 1000)  # vectors are unique up to a phase
    close(z @ t @ H(z), a, dtype, 1000)
    close(t_alone, t, dtype, 1000)
    assert not np.tril(t, -1 if dtype.kind == "c" else -2).any()


def test_cholesky_and_triangular_systems(dtype, rng):
    h, b, c = definite(rng, 2, 3, 3, dtype=dtype), draw(rng, 2, 3, 2, dtype=dtype), draw(rng, 2, 2, 3, dtype=dtype)
    wide = draw(rng, 2, 3, 20, dtype=dtype)
    a = draw(rng, 2, 3, 3, dtype=dtype) + 3 * np.eye(3, dtype=dtype)
    factor = np.asarray(lax_linalg.cholesky(h))
    close(factor @ H(factor), h, dtype)
    assert not np.triu(factor, 1).any()
    cases = [(left, lower, transpose, conjugate, unit) for left in (True, False) for lower in (True, False)
             for transpose, conjugate, unit in ((False, False, False), (True, False, True), (True, True, False),
                                                (False, True, False))]

    @jaxlite.jit
    def solve(a, b, c):
        return [lax_linalg.triangular_solve(a, b if left else c, left_side=left, lower=lower, transpose_a=transpose,
                                            conjugate_a=conjugate, unit_diagonal=unit)
                for left, lower, transpose, conjugate, unit in cases]

    for x, many, (left, lower, transpose, conjugate, unit) in zip(solve(a, b, c), solve(a, wide, c), cases, strict=True):
        matrix = np.tril(a) if lower else np.triu(a)
        if unit:
            matrix = matrix * (1 - np.eye(3, dtype=dtype)) + np.eye(3, dtype=dtype)
        matrix = np.swapaxes(matrix, -1, -2) if transpose else matrix
        matrix = matrix.conj() if conjugate else matrix
        close(matrix @ x if left else np.asarray(x) @ matrix, b if left else c, dtype, 1000)
        close(matrix @ many if left else np.asarray(many) @ matrix, wide if left else c, dtype, 1000)


def test_many_right_sides_are_rows_to_the_library_where_that_saves_their_copy(rng):
    def side(solve, *shape):
        text = jaxlite.jit(solve).lower(draw(rng, 40, 40, dtype=np.float32), np.ones(shape, np.float32)).as_text()
        return chr(int(re.search(r"\bside = (\d+)", text).group(1)))

    solve = partial(lax_linalg.triangular_solve, left_side=True)
    assert side(solve, 40, 300) == "R"
    assert side(solve, 40, 3) == side(lambda a, b: solve(a, 2 * b.T), 300, 40) == "L"


def test_reflectors_and_reductions(dtype, rng):
    a, c, h = draw(rng, 2, 4, 3, dtype=dtype), draw(rng, 2, 4, 2, dtype=dtype), definite(rng, 2, 4, 4, dtype=dtype)
    square = draw(rng, 2, 4, 4, dtype=dtype)

    @jaxlite.jit
    def run(a, c, h, square):
        reflectors, taus = lax_linalg.geqrf(a)
        products = [lax_linalg.ormqr(reflectors, taus, c if left else jnp.matrix_transpose(c), left=left,
                                     transpose=transpose) for left in (True, False) for transpose in (False, True)]
        q = lax_linalg.householder_product(reflectors, taus)
        full = lax_linalg.qr(a)[0]
        hessenberg, scales = lax_linalg.hessenberg(square)
        return q, full, products, hessenberg, scales, lax_linalg.tridiagonal(h), lax_linalg.tridiagonal(h, lower=False)

    q, full, products, hessenberg, scales, *forms = run(a, c, h, square)
    full = np.asarray(full)
    close(q, full[..., :3], dtype)
    t = np.swapaxes(c, -1, -2)
    for got, expected in zip(products, (full @ c, H(full) @ c, t @ full, t @ H(full)), strict=True):
        close(got, expected, dtype)
    # The eigenvalues tell whether the reduced matrices are similar to the given ones.
    form = np.triu(hessenberg, -1)
    assert scales.shape == (2, 3)
    traces = [np.trace(np.linalg.matrix_power(m, power), axis1=-2, axis2=-1) for m in (form, square) for power in (1, 2, 3)]
    for got, expected in zip(traces[:3], traces[3:], strict=True):
        close(got, expected, dtype, 3000)
    for _, d, e, taus in forms:
        assert d.dtype == e.dtype == np.zeros(0, dtype).real.dtype and taus.dtype == dtype
        d, e = np.asarray(d), np.asarray(e)
        band = np.stack([np.diag(x) + np.diag(y, 1) + np.diag(y, -1) for x, y in zip(d, e, strict=True)])
        close(np.linalg.eigvalsh(band), np.linalg.eigvalsh(h), dtype, 1000)


def test_tridiagonal_systems(dtype, rng):
    dl, d, du = (draw(rng, 2, 5, dtype=dtype) for _ in range(3))
    d = d + 4
    b = draw(rng, 2, 5, 3, dtype=dtype)
    x = np.asarray(lax_linalg.tridiagonal_solve(dl, d, du, b))
    dense = np.stack([np.diag(d[i]) + np.diag(dl[i, 1:], -1) + np.diag(du[i, :-1], 1) for i in range(2)])
    close(dense @ x, b, dtype, 1000)


def test_tridiagonal_systems_that_are_singular():
    none, one = np.zeros(3, f32), np.ones((3, 1), f32)
    assert np.isnan(lax_linalg.tridiagonal_solve(none, none, none, one)).all()
    assert np.isfinite(lax_linalg.tridiagonal_solve(none, none, none, one, perturb_singular=True)).all()
    np.testing.assert_allclose(lax_linalg.tridiagonal_solve(none[:1], one[0] * 2, none[:1], one[:1]), [[0.5]])


def test_pivots_to_permutation(rng):
    pivots = np.array([[2, 1, 3], [0, 3, 2]], np.int32)
    expected = []
    for swaps in pivots:
        order = list(range(5))
        for i, j in enumerate(swaps):
            order[i], order[j] = order[j], order[i]
        expected.append(order)
    np.testing.assert_array_equal(lax_linalg.lu_pivots_to_permutation(pivots, 5), expected)
    np.testing.assert_array_equal(lax_linalg.lu_pivots_to_permutation(pivots[0], 5), expected[0])
    np.testing.assert_array_equal(lax_linalg.lu_pivots_to_permutation(pivots[:, :0], 2), [[0, 1], [0, 1]])


def test_updates(rng):
    h, w, c = definite(rng, 4, 4), draw(rng, 4), definite(rng, 3, 3)
    r = np.linalg.cholesky(h).T.astype(f32)
    new = np.asarray(lax_linalg.cholesky_update(r, w))
    close(new.T @ new, h + np.outer(w, w), f32)
    assert not np.tril(new, -1).any()
    np.testing.assert_array_equal(lax_linalg.cholesky_update(np.zeros((2, 2), f32), np.zeros(2, f32)), np.zeros((2, 2)))
    a = draw(rng, 2, 3, 5)
    out = lax_linalg.symmetric_product(a, np.stack([c, c]), alpha=2.0, beta=0.5, symmetrize_output=True)
    close(out, 2 * a @ np.swapaxes(a, -1, -2) + 0.5 * c, f32)


EMPTY = [  # function, shapes of the operands, results
    (lambda a: lax_linalg.qr(a), [(0, 2)], [np.zeros((0, 0)), np.zeros((0, 2))]),
    (lambda a: lax_linalg.qr(a), [(2, 0)], [np.eye(2), np.zeros((2, 0))]),
    (lambda a: lax_linalg.qr(a, full_matrices=False), [(2, 0)], [np.zeros((2, 0)), np.zeros((0, 0))]),
    (lambda a: lax_linalg.svd(a), [(3, 0, 2)], [np.zeros((3, 0, 0)), np.zeros((3, 0)), np.broadcast_to(np.eye(2), (3, 2, 2))]),
    (lambda a: lax_linalg.svd(a), [(0, 1, 2)], [np.zeros((0, 1, 1)), np.zeros((0, 1)), np.zeros((0, 2, 2))]),
    (lambda a: lax_linalg.lu(a), [(2, 0)], [np.zeros((2, 0)), np.zeros(0), np.arange(2)]),
    (lambda a: lax_linalg.eig(a), [(0, 0)], [np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0))]),
    (lambda a: lax_linalg.eigh(a), [(0, 0)], [np.zeros((0, 0)), np.zeros(0)]),
    (lambda a: lax_linalg.schur(a), [(0, 0)], [np.zeros((0, 0)), np.zeros((0, 0))]),
    (lambda a: lax_linalg.hessenberg(a), [(1, 1)], [np.ones((1, 1)), np.zeros(0)]),
    (lambda a: lax_linalg.tridiagonal(a), [(1, 1)], [np.ones((1, 1)), np.ones(1), np.zeros(0), np.zeros(0)]),
    (lambda a: [lax_linalg.cholesky(a)], [(0, 0)], [np.zeros((0, 0))]),
    (lambda a, t: [lax_linalg.householder_product(a, t)], [(3, 2), (0,)], [np.eye(3, 2)]),
    (lambda a, b: [lax_linalg.triangular_solve(a, b)], [(2, 2), (0, 2)], [np.zeros((0, 2))]),
    (lambda a: [linalg.det(a)], [(2, 0, 0)], [np.ones(2)]),
    (lambda a: [linalg.inv(a)], [(0, 0)], [np.zeros((0, 0))]),
    (lambda a: [linalg.pinv(a)], [(0, 2)], [np.zeros((2, 0))]),
    (lambda a: [linalg.matrix_rank(a)], [(2, 0, 3)], [np.zeros(2)]),
    (lambda a: linalg.slogdet(a), [(0, 0)], [np.ones(()), np.zeros(())]),
    (lambda a, b: [linalg.solve(a, b)], [(0, 0), (0, 2)], [np.zeros((0, 2))]),
    (lambda a, b: linalg.lstsq(a, b)[::2], [(0, 2), (0,)], [np.zeros(2), np.zeros(())]),
]  # fmt: skip


def test_matrices_without_elements_and_of_size_one():
    operands = [[np.ones(shape, f32) for shape in shapes] for _, shapes, _ in EMPTY]
    results = jaxlite.jit(lambda operands: [list(function(*args)) for (function, *_), args in
                                            zip(EMPTY, operands, strict=True)])(operands)
    for got, (_, shapes, expected) in zip(results, EMPTY, strict=True):
        for x, y in zip(got, expected, strict=True):
            assert x.shape == y.shape, shapes
            np.testing.assert_array_equal(x, y)


def test_what_lapack_cannot_do_is_nan_in_that_matrix_alone():
    good, bad = np.eye(2, dtype=f32), np.full((2, 2), np.nan, f32)
    both = np.stack([good, bad])
    *outs, schur = jaxlite.jit(
        lambda x: [lax_linalg.eigh(x), lax_linalg.eig(x), lax_linalg.svd(x), lax_linalg.schur(x)])(both)
    assert np.isfinite(schur[0][0]).all() and np.isnan(schur[0][1][np.triu_indices(2)]).all()
    for out in outs:
        for each in out:
            assert np.isfinite(each[0]).all() and np.isnan(each[1]).all()
    factors = np.asarray(lax_linalg.cholesky(np.stack([good, -good])))
    np.testing.assert_array_equal(factors[0], good)
    assert np.isnan(np.tril(factors[1])[np.tril_indices(2)]).all() and not np.triu(factors[1], 1).any()
    factors, _, permutation = lax_linalg.lu(np.zeros((3, 3), f32))  # singular is no failure here
    np.testing.assert_array_equal(factors, np.zeros((3, 3)))
    np.testing.assert_array_equal(permutation, [0, 1, 2])


def test_jaxprs_name_primitives_and_parameters():
    a = np.ones((3, 3), f32)
    text = str(jaxlite.make_jaxpr(lambda a: [lax_linalg.eigh(a, symmetrize_input=False), lax_linalg.lu(a),
                                             lax_linalg.svd(a, full_matrices=False)])(a))
    for line in ("eigh[", "algorithm=None", "lower=True", "sort_eigenvalues=True", "subset_by_index=None", "= lu a",
                 "svd[", "full_matrices=False"):
        assert line in text
    assert "qr[full_matrices=True pivoting=False use_magma=None] a" in str(jaxlite.make_jaxpr(lax_linalg.qr)(a))


def test_weak_types_stay():
    weak = jnp.full((2, 2), 2.0)
    assert weak.weak_type and linalg.qr(weak).R.weak_type and lax_linalg.lu(weak)[0].weak_type
    assert not linalg.inv(weak).weak_type and not linalg.norm(weak).weak_type


# --- numpy.linalg ------------------------------------------------------------------------------------


def sizes(rng):
    return {"square": definite(rng, 4, 4), "stack": draw(rng, 2, 3, 3), "tall": draw(rng, 4, 3), "wide": draw(rng, 2, 3, 4),
            "vector": draw(rng, 4), "complex": draw(rng, 3, 3, dtype=np.complex64),
            "whole": rng.integers(-4, 5, (3, 3)).astype(np.int32)}


AGAINST_NUMPY = [
    *((name, kind, {}) for name in ("det", "inv", "cond", "matrix_rank", "pinv", "svdvals")
      for kind in ("square", "stack", "complex", "whole")),
    *((name, kind, {}) for name in ("pinv", "cond", "matrix_rank", "svdvals") for kind in ("tall", "wide")),
    *(("norm", kind, {}) for kind in ("vector", "stack", "tall", "complex", "whole")),
    *(("norm", "vector", {"ord": order}) for order in (0, 1, 2, 3, -1, -2, 2.5, np.inf, -np.inf)),
    *(("norm", kind, {"ord": order, "axis": (-1, 0), "keepdims": True}) for order in (1, -1, 2, -2, np.inf, -np.inf,
      "fro", "nuc") for kind in ("stack", "complex")),
    *(("norm", "wide", {"ord": order, "axis": 1}) for order in (None, 0, 3)),
    *(("matrix_norm", "stack", {"ord": order}) for order in ("fro", "nuc", 1, -2)),
    *(("vector_norm", "stack", {"ord": order, "axis": (0, 2), "keepdims": True}) for order in (0, 1, 2, np.inf, -2)),
    *(("vector_norm", "stack", {"ord": order}) for order in (2, 3)),
    *(("cond", "stack", {"p": p}) for p in (1, -1, 2, -2, "fro", "nuc", np.inf, -np.inf)),
    *(("matrix_power", "stack", {"n": n}) for n in (0, 1, 2, 5, -3)),
    ("matrix_power", "whole", {"n": 4}), ("matrix_power", "whole", {"n": 0}),
    ("eigvalsh", "square", {}), ("eigvalsh", "square", {"UPLO": "U"}), ("cholesky", "square", {"upper": True}),
    ("cholesky", "square", {}), ("diagonal", "wide", {"offset": 1}), ("trace", "wide", {"offset": -1}),
    ("matrix_transpose", "wide", {}), ("tensorinv", "square", {"ind": 1}),
    ("pinv", "square", {"hermitian": True}), ("matrix_rank", "square", {"hermitian": True}),
    ("matrix_rank", "square", {"rtol": 0.2}), ("matrix_rank", "square", {"tol": 2.0}), ("pinv", "square", {"rcond": 0.2}),
]  # fmt: skip


def test_functions_match_numpy(rng):
    values = sizes(rng)
    keyword = {"matrix_power": "n"}

    @jaxlite.jit
    def run(values):
        return [getattr(linalg, name)(values[kind], **keywords) for name, kind, keywords in AGAINST_NUMPY]

    for got, (name, kind, keywords) in zip(run(values), AGAINST_NUMPY, strict=True):
        x = values[kind]
        wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) if x.dtype.kind != "i" else x
        arguments = [keywords[keyword[name]]] if name in keyword else []
        expected = getattr(np.linalg, name)(wide, *arguments, **({} if arguments else keywords))
        label = f"{name} {kind} {keywords}"
        assert got.shape == np.shape(expected), label
        # Inverses of these matrices lose up to three digits.
        scale = max(1, np.abs(expected).max())
        np.testing.assert_allclose(got, expected, atol=3e-4 * scale, rtol=3e-4, err_msg=label)
        if name not in ("matrix_rank",):
            kinds = {"c": "fc", "f": "f", "i": "if"}[x.dtype.kind]
            assert got.dtype.kind in kinds and got.dtype.itemsize <= 8, label


def test_double_precision_stays(x64, rng):
    a = draw(rng, 3, 3, dtype=np.float64)
    whole = rng.integers(-4, 5, (3, 3)) + 9 * np.eye(3, dtype=np.int64)
    one_argument = ("inv", "pinv", "det", "cond", "norm", "svdvals")
    outs = jaxlite.jit(lambda *each: [[getattr(linalg, name)(x) for name in one_argument] + [
        linalg.solve(x, x[0]), linalg.lstsq(x, x[0])[0], linalg.slogdet(x).logabsdet] for x in each])(a, whole)
    for x, results in zip((a, whole), outs, strict=True):
        expected = [getattr(np.linalg, name)(x) if name != "svdvals" else np.linalg.svd(x, compute_uv=False)
                    for name in one_argument]
        expected += [np.linalg.solve(x, x[0]), np.linalg.solve(x, x[0]), np.linalg.slogdet(x)[1]]
        for got, reference in zip(results, expected, strict=True):
            assert got.dtype == np.float64
            np.testing.assert_allclose(got, reference, rtol=1e-11, atol=1e-12)


def test_negligible_singular_values():
    a = np.diag([1, 1e-5, 3e-6, 1e-6, 3e-7, 1e-7]).astype(f32)
    # By default those below 10 n eps of the greatest are left out of an inverse, those below n eps of a rank.
    np.testing.assert_allclose(np.diagonal(linalg.pinv(a)), [1, 1e5, 0, 0, 0, 0], rtol=1e-5)
    assert int(linalg.matrix_rank(a)) == 4 == np.linalg.matrix_rank(a)
    assert linalg.matrix_rank(np.stack([a, a]), rtol=np.array([1e-2, 1e-9], f32)).tolist() == [1, 6]


def test_determinants(rng):
    matrices = [draw(rng, 2, n, n, dtype=dtype) for n in (1, 2, 3, 4, 5) for dtype in (f32, np.complex64)]
    outs = jaxlite.jit(lambda each: [(linalg.det(a), linalg.slogdet(a)) for a in each])(matrices)
    for a, (determinant, (sign, logarithm)) in zip(matrices, outs, strict=True):
        expected = np.linalg.det(a)
        close(determinant, expected, f32, 1000)
        assert sign.dtype == a.dtype and logarithm.dtype == f32
        close(np.asarray(sign) * np.exp(logarithm), expected, f32, 1000)
    by_qr = linalg.slogdet(matrices[8], method="qr")
    close(by_qr.sign * np.exp(by_qr.logabsdet), np.linalg.det(matrices[8]), f32, 1000)
    sign, logarithm = linalg.slogdet(np.zeros((2, 2), f32))
    assert float(sign) == 0 and float(logarithm) == -np.inf
    for n in (1, 2, 3):
        half = (np.arange(n * n).reshape(n, n) + 2 * np.eye(n)).astype(jnp.bfloat16)
        sign, logarithm = linalg.slogdet(half)
        assert sign.dtype == logarithm.dtype == jnp.bfloat16
        close(float(sign) * np.exp(float(logarithm)), np.linalg.det(half.astype(f32)), np.float32, 1e5)
    assert np.isfinite(linalg.slogdet(np.eye(50, dtype=f32) * 1e-5).logabsdet)  # where det itself underflows


@pytest.mark.parametrize("n", [1, 2])
def test_determinants_of_few_rows_need_no_factorization(n, rng):
    a, g = draw(rng, 2, n, n, dtype=np.complex64), draw(rng, 2, n, n, dtype=np.complex64)
    assert " lu[" not in str(jaxlite.make_jaxpr(linalg.slogdet)(a))
    change = np.trace(np.linalg.solve(a, g), axis1=-2, axis2=-1)  # of the logarithm
    (sign, _), (turned, grown) = jaxlite.jvp(linalg.slogdet, (a,), (g,))
    close(grown, change.real, f32, 1000)
    close(turned, sign * 1j * change.imag, f32, 1000)
    real = jaxlite.grad(lambda a: linalg.slogdet(a)[1].sum())(a.real)
    close(real, np.swapaxes(np.linalg.inv(a.real), -1, -2), f32, 1000)


@pytest.mark.parametrize("dtype", [f32, np.complex64])
def test_gradient_of_the_determinant_is_the_cofactors_at_any_rank(rng, dtype):
    def cofactors(a):
        indices = range(len(a))
        return [[(-1) ** (i + j) * np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) for j in indices] for i in indices]

    products = [draw(rng, 4, rank, dtype=dtype) @ draw(rng, rank, 4, dtype=dtype) for rank in (4, 3, 2, 1)]
    first_column_zero = products[0] * np.array([0, 1, 1, 1], f32)
    gradient = jaxlite.jit(jaxlite.vmap(jaxlite.grad(linalg.det, holomorphic=dtype != f32)))
    for batch in ([products[0]] * 5, [*products, first_column_zero]):
        for a, found in zip(batch, gradient(np.stack(batch)), strict=True):
            np.testing.assert_allclose(found, cofactors(a.astype(np.complex128)), atol=2e-4 * max(1, abs(a).max()) ** 3)


@pytest.mark.parametrize(("left", "right"), [((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 3, 3), (3,)), ((2, 3, 3), (3, 2)),
                                             ((3, 3), (2, 3, 2)), ((2, 1, 3, 3), (4, 3, 2)), ((3, 3), (4, 2, 3, 1))])
def test_solve_broadcasts(left, right, rng):
    a, b = draw(rng, *left) + 3 * np.eye(3, dtype=f32), draw(rng, *right)
    expected = np.linalg.solve(a, b)
    close(linalg.solve(a, b), expected, f32, 1000)


def test_solve_mixes_dtypes_and_shows_singular_matrices(rng):
    a = np.array([[2, 1], [1, 3]], np.int32)
    b = np.array([1j, 2], np.complex64)
    close(linalg.solve(a, b), np.linalg.solve(a, b), f32)
    assert not np.isfinite(linalg.solve(np.zeros((2, 2), f32), np.ones(2, f32))).any()
    assert not np.isfinite(linalg.inv(np.ones((2, 2), f32))).all()
    assert np.isinf(linalg.cond(np.zeros((2, 2), f32))) and np.isinf(linalg.cond(np.zeros((2, 2), f32), 1))
    assert np.isnan(linalg.cond(np.full((2, 2), np.nan, f32)))
    assert linalg.cond(np.zeros((0, 2, 2), f32)).shape == linalg.cond(np.zeros((0, 2, 2), f32), 1).shape == (0,)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (3, 3)], ids=str)
@pytest.mark.parametrize("columns", [(), (2,)], ids=str)
def test_least_squares(shape, columns, rng):
    a, b = draw(rng, *shape), draw(rng, shape[0], *columns)
    x, residuals, rank, s = linalg.lstsq(a, b)
    expected, _, expected_rank, expected_s = np.linalg.lstsq(a.astype(float), b.astype(float), rcond=None)
    close(x, expected, f32, 1000)
    close(s, expected_s, f32)
    assert int(rank) == expected_rank and rank.dtype == np.int32
    rest = (b - a @ expected).reshape(shape[0], -1)
    close(residuals, (np.abs(rest) ** 2).sum(0), f32, 1000)
    numpy_like = linalg.lstsq(a, b, numpy_resid=True)[1]
    assert numpy_like.shape == np.linalg.lstsq(a, b, rcond=None)[1].shape


def test_least_squares_of_deficient_matrices():
    a, b = np.ones((4, 2), f32), np.arange(4, dtype=f32)
    x, residuals, rank, _ = linalg.lstsq(a, b)
    close(x, [0.75, 0.75], f32)  # the shortest of all solutions
    close(residuals, [5.0], f32)
    assert int(rank) == 1 and linalg.lstsq(a, b, numpy_resid=True)[1].shape == (0,)
    assert int(linalg.lstsq(np.diag([1, 0.1]).astype(f32), b[:2], rcond=0.5)[2]) == 1
    assert int(linalg.lstsq(np.diag([1, 0.1]).astype(f32), b[:2], rcond=-1)[2]) == 2


def test_named_results(rng):
    a, h = draw(rng, 4, 3), definite(rng, 3, 3)
    indefinite = h - 3 * np.eye(3, dtype=f32)
    u, s, vh = linalg.svd(indefinite, hermitian=True)
    close((np.asarray(u) * s) @ vh, indefinite, f32)
    close(s, np.linalg.svd(indefinite)[1], f32)
    close(linalg.svd(indefinite, hermitian=True, compute_uv=False), s, f32)
    q, r = linalg.qr(a, mode="complete")
    assert q.shape == (4, 4) and linalg.qr(a).Q.shape == (4, 3)
    close(np.asarray(q) @ r, a, f32)
    close(linalg.qr(a, mode="r"), r[:3], f32)
    raw = linalg.qr(a, mode="raw")
    close(np.triu(np.asarray(raw.Q).T), r, f32)
    assert raw.R.shape == (3,)
    w, v = linalg.eigh(h)
    close(h @ np.asarray(v), np.asarray(v) * w, f32, 1000)
    upper = np.triu(h) + np.tril(np.full((3, 3), 7, f32), -1)  # only the upper triangle counts
    close(linalg.eigh(upper, UPLO="U", symmetrize_input=False).eigenvalues, w, f32, 1000)
    close(linalg.cholesky(upper.T, upper=True, symmetrize_input=False), np.linalg.cholesky(h).T, f32)  # the lower one
    assert linalg.eig(h).eigenvectors.dtype == np.complex64
    close(np.sort(np.asarray(linalg.eigvals(h)).real), w, f32, 1000)
    assert linalg.slogdet(h)._fields == ("sign", "logabsdet") and linalg.svd(h)._fields == ("U", "S", "Vh")


def test_products(rng):
    a, b, c, v = draw(rng, 2, 5), draw(rng, 5, 3), draw(rng, 3, 4), draw(rng, 4)
    close(linalg.multi_dot([a, b, c, v]), a @ b @ c @ v, f32)
    close(linalg.multi_dot([a[0], b, c]), a[0] @ b @ c, f32)
    close(linalg.multi_dot([a, b]), a @ b, f32)
    text = str(jaxlite.make_jaxpr(lambda *x: linalg.multi_dot(x))(np.ones((2, 100), f32), np.ones((100, 2), f32),
                                                                  np.ones((2, 100), f32)))
    assert "f32[2,2]" in text and "f32[100,100]" not in text  # the cheaper order
    close(linalg.matmul(a, b), a @ b, f32)
    close(linalg.outer(v, v[:2]), np.outer(v, v[:2]), f32)
    close(linalg.vecdot(a, a), (a * a).sum(-1), f32)
    close(linalg.tensordot(a, b, axes=1), a @ b, f32)
    close(linalg.cross(c.T, c.T[0]), np.cross(c.T, c.T[0]), f32)
    close(linalg.matrix_power(np.array([[2, 1], [1, 3]], np.int32), -2), np.linalg.matrix_power([[2, 1], [1, 3]], -2), f32)


def test_tensor_equations(rng):
    a, b = draw(rng, 6, 2, 3) + np.eye(6, dtype=f32).reshape(6, 2, 3) * 4, draw(rng, 6)
    close(linalg.tensorsolve(a, b), np.linalg.tensorsolve(a, b), f32, 1000)
    moved = np.moveaxis(a, 1, 0)
    close(linalg.tensorsolve(moved, b, axes=(0,)), np.linalg.tensorsolve(moved, b, axes=(0,)), f32, 1000)
    close(np.tensordot(np.asarray(linalg.tensorinv(a, ind=1)), a, 1), np.eye(6).reshape(2, 3, 2, 3), f32, 1000)


def test_an_inverse_is_one_factorization_and_two_solves():
    text = jaxlite.jit(linalg.inv).lower(np.eye(3, dtype=f32)).as_text()
    assert text.count("@lapack_sgetrf_ffi") == 1 and text.count("@lapack_strsm_ffi") == 2 and "dot_general" not in text


def test_solves_with_what_was_solved_copy_nothing_between():
    memory = jaxlite.jit(linalg.inv).lower(np.eye(50, dtype=f32)).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 1.5 * 50 * 50 * 4


def test_the_gradient_of_a_quadratic_form_has_one_product_of_the_right_sides():
    def form(a, b):
        return jnp.sum(b * jaxlite.scipy.linalg.cho_solve((linalg.cholesky(a), True), b))

    text = jaxlite.jit(jaxlite.grad(form)).lower(np.eye(40, dtype=f32), np.ones((40, 30), f32)).compile().as_text()
    assert text.count(" dot(") == 2  # and one of the triangles


def test_the_derivative_of_a_determinant_uses_its_factors_again(rng):
    a = rng.normal(size=(5, 5)).astype(f32)
    jaxpr = jaxlite.make_jaxpr(jaxlite.grad(linalg.det))(a)
    (branches,) = (eqn.params["branches"] for eqn in jaxpr.eqns if eqn.primitive.name == "cond")
    assert [eqn.primitive.name for eqn in branches[0].eqns if eqn.primitive.name.startswith("lu")] == ["lu_solve"]
    close(jaxlite.grad(linalg.det)(a), np.linalg.det(a) * np.linalg.inv(a).T, f32, 1000)


# --- errors ------------------------------------------------------------------------------------------

A, T, V, C = np.eye(3, dtype=f32), np.ones((4, 3), f32), np.ones(3, f32), np.eye(3, dtype=np.complex64)
ERRORS = [
    (lambda: lax_linalg.cholesky(V), ValueError, r"cholesky must have shape \[..., n, n\], got shape \(3,\)"),
    (lambda: lax_linalg.cholesky(T), ValueError, r"square matrix. Got shape \(4, 3\)"),
    (lambda: lax_linalg.eig(T), ValueError, "square"),
    (lambda: lax_linalg.eig(A.astype(np.int32)), TypeError, "does not accept dtype int32"),
    (lambda: lax_linalg.lu(V), TypeError, "rank at least 2"),
    (lambda: lax_linalg.hessenberg(T), ValueError, r"\[..., n, n\]"),
    (lambda: lax_linalg.householder_product(T.T, V), ValueError, "at least as many rows"),
    (lambda: lax_linalg.householder_product(T, np.ones(4, f32)), ValueError, "longer"),
    (lambda: lax_linalg.householder_product(T[None], V), TypeError, r"batch dimensions, but got \[1, 0\]"),
    (lambda: lax_linalg.ormqr(T, V, A), ValueError, "as many rows"),
    (lambda: lax_linalg.ormqr(T, np.ones(4, f32), T), ValueError, "more taus"),
    (lambda: lax_linalg.lu_pivots_to_permutation(V, 3), TypeError, "int32"),
    (lambda: lax_linalg.lu_pivots_to_permutation(np.zeros(3, np.int32), 2), ValueError, "Got pivots size 3"),
    (lambda: lax_linalg.triangular_solve(A, T.T), ValueError, "Incompatible shapes"),
    (lambda: lax_linalg.triangular_solve(T, T), ValueError, "first input"),
    (lambda: lax_linalg.triangular_solve(A, T.astype(np.float16)), TypeError, "float32, float16"),
    (lambda: lax_linalg.triangular_solve(A, T[None]), TypeError, "batch"),
    (lambda: lax_linalg.tridiagonal(T), ValueError, "square"),
    (lambda: lax_linalg.tridiagonal_solve(V, V, V[:2], A), TypeError, "same shape"),
    (lambda: lax_linalg.tridiagonal_solve(V, V, V, T), TypeError, "as many rows"),
    (lambda: lax_linalg.cholesky_update(A, np.ones(4, f32)), ValueError, r"shapes \(3, 3\) and \(4,\)"),
    (lambda: lax_linalg.cholesky_update(C, C[0]), TypeError, "complex64"),
    (lambda: lax_linalg.symmetric_product(T, A), ValueError, r"\(4, 3\) and \(3, 3\)"),
    (lambda: lax_linalg.schur(A, sort_eig_vals=True), NotImplementedError, "sort"),
    (lambda: lax_linalg.svd(A, subset_by_index=(0, 2)), ValueError, "cannot both be set"),
    (lambda: lax_linalg.svd(A, subset_by_index=(0, 2), full_matrices=False), NotImplementedError, "subset_by_index"),
    (lambda: lax_linalg.svd(A, subset_by_index=(2, 5), full_matrices=False), ValueError, "start < stop <= 3"),
    (lambda: lax_linalg.eigh(A, subset_by_index=(1, 2)), NotImplementedError, "subset_by_index"),
    (lambda: lax_linalg.svd(A, algorithm=lax_linalg.SvdAlgorithm.JACOBI), NotImplementedError, "JACOBI"),
    (lambda: lax_linalg.svd(A, algorithm="QR"), TypeError, "SvdAlgorithm.QR"),
    (lambda: lax_linalg.eigh(A, implementation=lax_linalg.EighImplementation.QDWH), NotImplementedError, "QDWH"),
    # As JAX of the same jaxlib: while tracing, or while lowering.
    *[(lambda f=f: f(A.astype(jnp.bfloat16)), TypeError if VERSION >= (0, 12) else NotImplementedError, "bfloat16")
      for f in (lax_linalg.cholesky, lax_linalg.qr, lax_linalg.lu, lax_linalg.svd, lax_linalg.eig, lax_linalg.eigh,
                lax_linalg.schur, lax_linalg.hessenberg, linalg.inv, linalg.pinv)],
    (lambda: linalg.cholesky([[1.0]]), TypeError, "got <class 'list'>"),
    (lambda: linalg.cholesky(T), ValueError, r"\(4, 3\)"),
    (lambda: linalg.cond(V), ValueError, "at least 2D"),
    (lambda: linalg.cond(T, 1), ValueError, "must be square"),
    (lambda: linalg.cond(A, 3), ValueError, "Invalid order '3'"),
    (lambda: linalg.cond(A[:0]), ValueError, "empty"),
    (lambda: linalg.cross(V[:2], V[:2]), ValueError, "3-dimensional"),
    (lambda: linalg.det(T), ValueError, r"\[..., n, n\]"),
    (lambda: linalg.eigh(A, "X"), ValueError, "UPLO"),
    (lambda: linalg.inv(T), ValueError, r"\(4, 3\)"),
    (lambda: linalg.lstsq(T, V), ValueError, r"\(4, 3\) and \(3,\)"),
    (lambda: linalg.lstsq(V, V), TypeError, "two-dimensional"),
    (lambda: linalg.matrix_power(A, 1.5), TypeError, "exponent must be an integer, got 1.5"),
    (lambda: linalg.matrix_power(T, 2), TypeError, "square"),
    (lambda: linalg.matrix_rank(A, rtol=1.0, tol=1.0), ValueError, "only one"),
    (lambda: linalg.multi_dot([A]), ValueError, "at least two"),
    (lambda: linalg.multi_dot([A, T]), ValueError, "must match first dimension"),
    (lambda: linalg.multi_dot([A, A[None], A]), ValueError, "two-dimensional"),
    (lambda: linalg.norm(A, 3), ValueError, "Invalid order '3' for matrix norm"),
    (lambda: linalg.norm(V, "fro"), ValueError, "Invalid order 'fro' for vector norm"),
    (lambda: linalg.norm(np.ones((1, 1, 1)), 2), ValueError, "Improper number of axes"),
    (lambda: linalg.norm(A, axis=(0, 0)), ValueError, "duplicate"),
    (lambda: linalg.outer(A, V), ValueError, "one-dimensional"),
    (lambda: linalg.pinv(A, 1.0, rcond=1.0), ValueError, "only one"),
    (lambda: linalg.qr(A, "x"), ValueError, "Unsupported QR decomposition mode 'x'"),
    (lambda: linalg.slogdet(C, method="qr"), NotImplementedError, "complex"),
    (lambda: linalg.slogdet(A, method="x"), ValueError, "Unknown slogdet method"),
    (lambda: linalg.solve(V, V), ValueError, "two dimensional"),
    (lambda: linalg.solve(T, V), ValueError, "square"),
    (lambda: linalg.solve(A, T), ValueError, "rows"),
    (lambda: linalg.solve(A[None], V[None]), ValueError, r"solve\(a, b\[..., None\]\)"),
    (lambda: linalg.tensorinv(T, ind=1), ValueError, "product of the first"),
    (lambda: linalg.tensorinv(A, ind=0), ValueError, "positive"),
    (lambda: linalg.tensorsolve(T, V), ValueError, "leading shape"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number):
    function, error, message = ERRORS[number]
    with pytest.raises(error, match=message):
        function()


def test_other_platforms_have_their_own_solvers():
    def lowered(platform, fun, *args):
        text = jaxlite.jit(fun).trace(*args).lower(lowering_platforms=(platform,)).as_text()
        assert "lapack" not in text
        return text

    solve = lambda a, b: lax_linalg.triangular_solve(lax_linalg.cholesky(a), b, transpose_a=True)
    text = lowered("cuda", solve, A, A)
    assert "@cusolver_potrf_ffi" in text and "stablehlo.triangular_solve" in text
    assert "@cusolver_syevd_ffi" in lowered("cuda", lax_linalg.eigh, A)
    assert "stablehlo.cholesky" in lowered("tpu", solve, A, A)
    assert '@Eigh(' in lowered("tpu", lax_linalg.svd, A)
    assert "@hipsolver_potrf_ffi" in lowered("rocm", solve, A, A)
    with pytest.raises(LoweringError, match="primitive 'schur' not found for platform cuda"):
        lowered("cuda", lax_linalg.schur, A)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_without_routines(dtype, rng):
    """What platforms without LAPACK or cuSOLVER compute, here on the CPU."""
    draw = lambda *shape: (rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype is np.complex64 else 0)).astype(dtype)
    a, taus = lax_linalg.geqrf(draw(2, 5, 3))
    c = draw(2, 5, 5)
    for left, transpose in ((True, False), (True, True), (False, False), (False, True)):
        options = dict(left=left, transpose=transpose)
        got = jaxlite.jit(partial(factors._ormqr_by_reflectors, **options))(a, taus, c)
        np.testing.assert_allclose(got, lax_linalg.ormqr(a, taus, c, **options), rtol=1e-4, atol=1e-5)
    low, middle, high, b = draw(2, 6), draw(2, 6) + 4, draw(2, 6), draw(2, 6, 3)
    got = solvers._tridiagonal_solve_by_elimination(low, middle, high, b, perturb_singular=False)
    np.testing.assert_allclose(got, lax_linalg.tridiagonal_solve(low, middle, high, b), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("call", ["svd(x)", "ormqr(x, x[0], x)", "tridiagonal_solve(x[0], 4 + x[0], x[0], x)"])
def test_the_first_program_of_a_process_takes_the_rule_of_its_platform(call):
    """And no decomposition, which is there before the file of the rule is loaded."""
    code = f"""
import jaxlite, jaxlite.numpy as jnp
from jaxlite.lax.linalg import *
print("lapack_" in jaxlite.jit(lambda x: {call}).lower(jnp.ones((3, 3))).as_text())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["True"]


def test_lapack_is_loaded_by_the_first_factorization_alone():
    code = """
import sys
import jaxlite.numpy as jnp, jaxlite.numpy.linalg, jaxlite.lax.linalg
print(float(jnp.linalg.norm(jnp.array([3.0, 4.0]))), "scipy" in sys.modules)
print(float(jnp.linalg.inv(jnp.array([[4.0]]))[0, 0]), "scipy" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["5.0", "False", "0.25", "True"]


def test_polar_decomposition(dtype, rng):
    for x in (draw(rng, 4, 3, dtype=dtype), np.diag([1, 1e-3, 0.5]).astype(dtype)):
        u, h, count, converged = lax_linalg.qdwh(x)
        close(H(u) @ u, np.eye(3), dtype)
        close(np.asarray(u) @ h, x, dtype)
        close(h, H(h), dtype)
        assert np.linalg.eigvalsh(h).min() > 0 and converged and 1 < int(count) <= 10


def test_polar_decomposition_of_a_part(rng):
    x = draw(rng, 4, 4)
    padded = lax_linalg.qdwh(x, dynamic_shape=(3, 2))
    part = lax_linalg.qdwh(x[:3, :2])
    close(np.asarray(padded[0])[:3, :2], part[0], f32)
    close(np.asarray(padded[1])[:2, :2], part[1], f32)
    h = x + x.T
    close(lax_linalg.qdwh(h, is_hermitian=True)[1], lax_linalg.qdwh(h)[1], f32, 1000)
    assert not lax_linalg.qdwh(x, max_iterations=1)[3]
    with pytest.raises(ValueError, match="as many rows"):
        lax_linalg.qdwh(x[:2])
