"""scipy.linalg: values against SciPy in double precision, factorizations by their laws, derivatives by differences.

What is compiled costs more than what is compared: all cases of one dtype are one program.
"""

from __future__ import annotations

import inspect
from functools import partial

import numpy as np
import pytest
import scipy.linalg as oracle

import jaxlite
import jaxlite.numpy as jnp
import jaxlite.scipy.linalg as linalg
from tests.rule_checks import check_all_batchings, check_jvp, check_transpose

DTYPES = ["float32", "float64", "complex64", "complex128"]


@pytest.fixture(params=DTYPES)
def dtype(request, x64):
    return np.dtype(request.param)


def draw(rng, dtype, *shape):
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if dtype.kind == "c" else x).astype(dtype)


def H(x):
    return np.swapaxes(np.asarray(x), -1, -2).conj()


def close(got, expected, dtype, factor=200):
    """Of small, well-conditioned matrices: some hundred units of rounding of the largest element."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape
    scale = max(1, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(got, expected, rtol=0, atol=factor * np.finfo(dtype).eps * scale)


def wide(x):
    """In the precision of the oracle."""
    return np.asarray(x).astype(np.complex128 if np.asarray(x).dtype.kind == "c" else np.float64)


def each(function, *args):
    """The oracle works on one matrix at a time."""
    return np.stack([function(*[wide(x) for x in row]) for row in zip(*args, strict=True)])


# --- values ------------------------------------------------------------------------------------------


def test_factors_and_solutions_match_scipy(dtype, rng):
    a = draw(rng, dtype, 2, 4, 4) + 3 * np.eye(4, dtype=dtype)
    h = (a @ H(a) + np.eye(4, dtype=dtype)) / 4
    one, b = draw(rng, dtype, 4), draw(rng, dtype, 2, 4, 3)
    cases = {
        "upper": (linalg.cholesky, oracle.cholesky, (h,)),
        "lower": (partial(linalg.cholesky, lower=True), partial(oracle.cholesky, lower=True), (h,)),
        "det": (linalg.det, oracle.det, (a,)),
        "inv": (linalg.inv, oracle.inv, (a,)),
        "eigvals": (partial(linalg.eigh, eigvals_only=True), oracle.eigvalsh, (h,)),
        "svdvals": (partial(linalg.svd, compute_uv=False), oracle.svdvals, (a[:, :3],)),
        "hessenberg": (linalg.hessenberg, oracle.hessenberg, (a,)),
        "expm": (linalg.expm, oracle.expm, (a,)),
        "expm large": (linalg.expm, oracle.expm, (a * np.array([4, 1e-3], dtype)[:, None, None],)),
        "expm upper": (partial(linalg.expm, upper_triangular=True), oracle.expm, (np.triu(a),)),
        "frechet": (partial(linalg.expm_frechet, compute_expm=False),
                    partial(oracle.expm_frechet, compute_expm=False), (a, h)),
        "sylvester": (linalg.solve_sylvester, oracle.solve_sylvester, (a, h[:, :3, :3], b)),
        "sylvester eigen": (partial(linalg.solve_sylvester, method="eigen"), oracle.solve_sylvester,
                            (a, h[:, :3, :3], b)),
        "solve": (linalg.solve, oracle.solve, (a, b)),
        "sym": (partial(linalg.solve, assume_a="sym"), oracle.solve, (a, b)),
        "pos": (partial(linalg.solve, assume_a="pos"), oracle.solve, (h, b)),
        "pos lower": (partial(linalg.solve, assume_a="pos", lower=True), oracle.solve, (h, b)),
        "vectors": (lambda h, b: linalg.solve(h, b, assume_a="pos"), oracle.solve, (h, b[..., 0])),
        "cho_solve": (lambda h, b: linalg.cho_solve(linalg.cho_factor(h, True), b), oracle.solve, (h, b)),
        **{f"lu_solve {trans}": (lambda a, b, trans=trans: linalg.lu_solve(linalg.lu_factor(a), b, trans),
                                 lambda a, b, trans=trans: oracle.lu_solve(oracle.lu_factor(a), b, trans), (a, b))
           for trans in (0, 1, 2)},
        **{f"triangular {trans} {lower} {unit}": (
            partial(linalg.solve_triangular, trans=trans, lower=lower, unit_diagonal=unit),
            partial(oracle.solve_triangular, trans=trans, lower=lower, unit_diagonal=unit), (a, b))
           for trans, lower, unit in ((0, False, False), ("T", True, False), ("C", False, True), (2, True, False))},
    }

    @jaxlite.jit
    def run(args):
        found = {name: fun(*args[name]) for name, (fun, _, _) in cases.items()}
        broadcast = [linalg.solve_triangular(args["solve"][0], one), linalg.cho_solve((args["solve"][0], False), one),
                     linalg.solve_triangular(args["solve"][0], args["solve"][1][0]),
                     linalg.solve_triangular(args["solve"][0][0], args["solve"][1])]
        return found, broadcast

    found, broadcast = run({name: args for name, (_, _, args) in cases.items()})
    for name, (_, expected, args) in cases.items():
        is_rough = name.startswith(("expm", "frechet", "sylvester eigen"))  # they grow, or go through eigenvectors
        close(found[name], each(expected, *args), dtype, 5000 if is_rough else 500)
        assert found[name].dtype in (dtype, np.finfo(dtype).dtype, np.result_type(dtype, np.complex64)), name
    close(broadcast[0], each(oracle.solve_triangular, a, [one, one]), dtype, 500)
    close(broadcast[1], each(lambda a, b: oracle.cho_solve((a, False), b), a, [one, one]), dtype, 500)
    close(broadcast[2], each(oracle.solve_triangular, a, [b[0], b[0]]), dtype, 500)
    close(broadcast[3], each(oracle.solve_triangular, [a[0], a[0]], b), dtype, 500)


def test_right_sides_of_one_triangular_matrix_are_its_columns():
    jaxpr = jaxlite.make_jaxpr(partial(linalg.solve_triangular, lower=True))(np.eye(3), np.ones((5, 2, 3, 4))).jaxpr
    (solve,) = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "triangular_solve"]
    assert [each.aval.shape for each in solve.invars] == [(3, 3), (3, 40)]


@pytest.mark.parametrize("name", ["float32", "complex128"])  # the other two take no other way
def test_functions_of_one_matrix_match_scipy(name, x64, rng):
    dtype = np.dtype(name)
    a = draw(rng, dtype, 5, 5)
    tall = draw(rng, dtype, 2, 5, 3)
    real = draw(rng, np.finfo(dtype).dtype, 5, 5)
    d, e = real[0], draw(rng, dtype, 4)
    vector, matrix = draw(rng, dtype, 3), draw(rng, dtype, 2, 5)

    @jaxlite.jit
    def run(a, tall):
        return {
            "sqrtm": linalg.sqrtm(a), "zero": linalg.sqrtm(jnp.zeros_like(a)), "funm": linalg.funm(a, jnp.exp, disp=False),
            "polar": [linalg.polar(tall), linalg.polar(tall, method="svd"), linalg.polar(H_(tall), side="left"),
                      linalg.polar(H_(tall), side="left", method="svd"), linalg.polar(H_(tall), method="svd")],
            "csf": linalg.rsf2csf(*linalg.schur(real)), "schur": linalg.schur(real),
            "complex": linalg.schur(real, "complex"),
            "hessenberg": linalg.hessenberg(a, calc_q=True),
            "values": linalg.eigh_tridiagonal(d, e, eigvals_only=True),
            "some": linalg.eigh_tridiagonal(d, e, eigvals_only=True, select="i", select_range=(1, 2)),
            "pairs": linalg.eigh_tridiagonal(d, e, select="i", select_range=(1, 3)),
            "multiply": [linalg.qr_multiply(tall, vector, "left"), linalg.qr_multiply(tall, matrix, conjugate=True)],
            "lu": [linalg.lu(tall), linalg.lu(H_(tall)), linalg.lu(tall, permute_l=True)],
            "qr": [linalg.qr(tall), linalg.qr(tall, mode="economic"), linalg.qr(tall, mode="r"),
                   linalg.qr(tall, pivoting=True), linalg.qr(tall, mode="r", pivoting=True)],
        }

    def H_(x):
        return jnp.conj(jnp.matrix_transpose(x))

    out = jaxlite.tree.map(np.asarray, run(a, tall))
    root = out["sqrtm"]
    assert root.dtype == np.result_type(dtype, np.complex64)
    close(root @ root, a, dtype, 1000)
    assert (np.linalg.eigvals(root).real > -1e-4).all()  # the principal one
    assert not out["zero"].any()
    close(out["funm"][0], oracle.expm(wide(a)), dtype, 20000)
    assert 0 < out["funm"][1] < 1e-2
    for u, p in out["polar"]:
        right = p.shape[-1] == u.shape[-1]
        close(u @ p if right else p @ u, tall if u.shape[-2] == 5 else H(tall), dtype, 500)
        gram = H(u) @ u if u.shape[-2] >= u.shape[-1] else u @ H(u)
        close(gram, np.broadcast_to(np.eye(3), gram.shape), dtype, 500)
        close(p, H(p), dtype)
        assert (np.linalg.eigvalsh(p) > -1e-4).all()
    (form, _), (t, vectors) = out["csf"], out["schur"]
    for triangle, unitary in (out["csf"], out["complex"]):
        close(unitary @ triangle @ H(unitary), real, dtype, 500)
        assert not np.tril(triangle, -1).any()
    close(vectors @ t @ H(vectors), real, dtype, 500)
    close(np.diagonal(form), np.diagonal(oracle.rsf2csf(wide(t), wide(vectors))[0]), dtype, 500)
    form, q = out["hessenberg"]
    close(q @ form @ H(q), a, dtype, 500)
    close(H(q) @ q, np.eye(5), dtype)
    assert not np.tril(form, -2).any()
    tridiagonal = np.diag(wide(d).astype(wide(e).dtype)) + np.diag(wide(e), -1) + np.diag(wide(e).conj(), 1)
    expected = np.linalg.eigvalsh(tridiagonal)
    close(out["values"], expected, dtype)
    close(out["some"], expected[1:3], dtype)
    values, vectors = out["pairs"]
    close(values, expected[1:4], dtype)
    close(tridiagonal @ vectors, vectors * values, dtype, 500)
    for (product, r), (q, r_again), c in zip(out["multiply"], [out["qr"][1]] * 2, (vector, matrix), strict=True):
        close(product, q @ c if c is vector else matrix @ q.conj(), dtype)
        close(r, r_again, dtype)
    for factors, x in zip(out["lu"], (tall, H(tall), tall), strict=True):
        close(_multiplied(factors), x, dtype)
        assert np.isrealobj(factors[0]) or len(factors) == 2
    for number, factors in enumerate(out["qr"]):
        order = factors[-1] if number > 2 else np.broadcast_to(np.arange(3), (2, 3))
        x = np.take_along_axis(tall, order[:, None, :], -1)
        q, r = (None, factors[0]) if number in (2, 4) else factors[:2]
        close(H(r) @ r, H(x) @ x, dtype, 500)
        if q is not None:
            close(q @ r, x, dtype)


def _multiplied(factors):
    product = np.asarray(factors[0])
    for factor in factors[1:]:
        product = product @ np.asarray(factor)
    return product


def test_what_has_no_answer_is_not_a_number(x64):
    a = np.array([[0.0, 1.0], [0.0, 0.0]])
    assert np.isnan(linalg.sqrtm(a)).all()
    assert np.isnan(linalg.expm(1e8 * np.ones((2, 2)))).all()
    assert np.isfinite(linalg.expm(300 * np.eye(2), max_squarings=6)).all()
    assert np.isnan(linalg.expm(700 * np.eye(2), max_squarings=6)).all()
    assert np.isnan(linalg.solve_sylvester(np.eye(2), -np.eye(2), a)).all()
    assert np.isnan(linalg.cholesky(-np.eye(2))).any()


def test_matrices_without_elements():
    a = np.zeros((0, 0), np.float32)
    for fun in (linalg.sqrtm, linalg.expm, linalg.inv, linalg.cholesky, linalg.hessenberg, lambda a: linalg.funm(a, jnp.exp),
                lambda a: linalg.solve_sylvester(a, a, a), lambda a: linalg.schur(a)[0], lambda a: linalg.lu(a)[1],
                lambda a: linalg.rsf2csf(a, a)[0], lambda a: linalg.polar(a, method="svd")[0]):
        assert fun(a).shape == (0, 0)
    assert linalg.solve_sylvester(np.eye(2), a, np.zeros((3, 2, 0))).shape == (3, 2, 0)
    one = np.full((1, 1), 4, np.float32)
    assert linalg.sqrtm(one) == 2 and linalg.rsf2csf(one, one)[0] == 4 and linalg.hessenberg(one, calc_q=True)[1] == 1


# --- matrices made of vectors or sizes ---------------------------------------------------------------

VECTORS = [  # name, lengths of the arguments, keywords
    ("toeplitz", (4,), {}), ("toeplitz", (4, 3), {}), ("hankel", (4,), {}), ("hankel", (2, 5), {}), ("circulant", (4,), {}),
    ("companion", (4,), {}), ("companion", (2,), {}), ("fiedler", (4,), {}), ("leslie", (4, 3), {}),
    *[("fiedler_companion", (n,), {}) for n in (2, 3, 4, 5, 6, 7)],
    *[("convolution_matrix", (3,), {"n": n, "mode": mode}) for n in (2, 4) for mode in ("full", "same", "valid")],
]


def test_matrices_of_vectors_match_scipy(x64, rng):
    args = [[rng.normal(size=(2, length)) + 2 for length in lengths] for _, lengths, _ in VECTORS]
    complex_column = rng.normal(size=3) + 1j * rng.normal(size=3)

    @jaxlite.jit
    def run(args):
        return [getattr(linalg, name)(*own, **kwargs) for (name, _, kwargs), own in zip(VECTORS, args, strict=True)]

    for (name, _, kwargs), own, found in zip(VECTORS, args, run(args), strict=True):
        expected = np.stack([getattr(oracle, name)(*row, **kwargs) for row in zip(*own, strict=True)])
        np.testing.assert_allclose(found, expected, rtol=1e-14, err_msg=name)
    np.testing.assert_array_equal(linalg.toeplitz(complex_column), oracle.toeplitz(complex_column))


SIZES = [("hilbert", {}), ("invhilbert", {}), ("pascal", {}), ("pascal", {"kind": "lower"}), ("pascal", {"kind": "upper"}),
         ("invpascal", {}), ("invpascal", {"kind": "lower"}), ("invpascal", {"kind": "upper"}), ("dft", {}),
         ("dft", {"scale": "n"}), ("dft", {"scale": "sqrtn"}), ("helmert", {}), ("helmert", {"full": True})]


def test_matrices_of_sizes_match_scipy(x64):
    for name, kwargs in SIZES:
        for n in (1, 2, 7):
            found = getattr(linalg, name)(n, **kwargs)
            np.testing.assert_allclose(found, getattr(oracle, name)(n, **kwargs), rtol=1e-13, atol=1e-14, err_msg=name)
            assert found.dtype == {"dft": np.complex128, "pascal": np.float32}.get(name, np.float64)
    for n in (1, 8):
        np.testing.assert_array_equal(linalg.hadamard(n), oracle.hadamard(n))
    assert linalg.hadamard(2, np.float32).dtype == np.float32
    for name in ("hadamard", "invhilbert", "pascal"):
        np.testing.assert_array_equal(getattr(linalg, name)(2.0), getattr(linalg, name)(2))
    assert linalg.hilbert(0).shape == linalg.pascal(0).shape == linalg.dft(0).shape == linalg.pascal(-1).shape == (0, 0)
    with pytest.raises(ValueError):
        linalg.pascal(2**40)


def test_blocks():
    blocks = [np.ones((1, 2)), 3, np.arange(2), np.zeros((2, 0))]
    np.testing.assert_array_equal(linalg.block_diag(*blocks), oracle.block_diag(*blocks))
    assert linalg.block_diag().shape == (1, 0)


# --- derivatives and batching ------------------------------------------------------------------------


def test_derivatives_by_differences(x64, rng):
    a = rng.normal(size=(3, 3)) + 3 * np.eye(3)
    b, tall = rng.normal(size=3), rng.normal(size=(3, 2))

    def functions(a, b, tall):
        h = a @ a.T
        q, r = linalg.qr(tall)
        u, s, vh = linalg.svd(a)
        return [linalg.expm(a), linalg.expm(4 * a), linalg.cholesky(h), linalg.solve(h, b, assume_a="pos"),
                linalg.lu_solve(linalg.lu_factor(a), b, 1), linalg.solve_triangular(a, b), *linalg.lu(a)[1:],
                q, r, u @ vh, s, linalg.polar(tall, method="svd")[1], linalg.toeplitz(b), linalg.companion(b),
                linalg.block_diag(a, b)]

    run = jaxlite.jit(functions)
    check_jvp(run, (a, b, tall), order=1, rtol=1e-5)
    check_transpose(run, (a, b, tall), rtol=1e-9)


def test_full_qr_of_a_tall_matrix_moves_its_complement_least(x64, rng):
    a, da = rng.normal(size=(2, 4, 2))
    (q, r), (dq, dr) = jaxlite.jvp(linalg.qr, (a,), (da,))
    close(dq @ r + q @ dr, da, np.dtype(float))
    turn = np.asarray(q).T @ dq
    close(turn, -turn.T, np.dtype(float))
    assert np.abs(turn[2:, 2:]).max() < 1e-14 and np.abs(turn[2:, :2]).max() > 1e-3
    assert not np.tril(dr, -1).any()
    with pytest.raises(NotImplementedError, match="full factors"):
        jaxlite.jvp(linalg.svd, (a,), (da,))


def test_vmap_equals_loop(x64, rng):
    def functions(a, b):
        return [linalg.sqrtm(a), linalg.funm(a, jnp.sin), linalg.expm(a), *linalg.rsf2csf(*linalg.schur(a)),
                linalg.solve_sylvester(a, a, jnp.outer(b, b)), linalg.eigh_tridiagonal(b, b[1:], eigvals_only=True),
                linalg.polar(a)[1], linalg.lu_solve(linalg.lu_factor(a), b), linalg.toeplitz(b)]

    a, b = rng.normal(size=(3, 3)) + 3 * np.eye(3), rng.normal(size=3)
    check_all_batchings(jaxlite.jit(functions), (a, b), size=2, in_axes=[(0,), (None, 0)], rtol=1e-7,
                   make=lambda which, x: x * (1 + 0.1 * rng.random()))


# --- the surface -------------------------------------------------------------------------------------

ERRORS = [
    (lambda a: linalg.solve(a, a, assume_a="banded"), ValueError, "Expected assume_a to be one of"),
    (lambda a: linalg.solve(a, a[0, 0], assume_a="pos"), ValueError, "must have shapes"),
    (lambda a: linalg.qr(a, mode="raw"), ValueError, "Unsupported QR decomposition mode 'raw'"),
    (lambda a: linalg.qr_multiply(a, a, "both"), ValueError, "mode must be 'right' or 'left'"),
    (lambda a: linalg.qr_multiply(a, a[:2, 0]), ValueError, "c must have 3 columns, but it has 2"),
    (lambda a: linalg.schur(a, "foo"), ValueError, "Expected 'output'"),
    (lambda a: linalg.lu_solve(linalg.lu_factor(a), a, 3), ValueError, "'trans' value must be 0, 1, or 2"),
    (lambda a: linalg.solve_triangular(a, a, 5), ValueError, "Invalid 'trans' value 5"),
    (lambda a: linalg.solve_triangular(a, a[:2]), ValueError, "inconsistent sizes"),
    (lambda a: linalg.solve_triangular(a[:2], a), ValueError, r"\(2, 3\)"),
    (lambda a: linalg.expm(a[:2]), ValueError, "square"),
    (lambda a: linalg.expm_frechet(a, a[:2, :2]), ValueError, "same shape"),
    (lambda a: linalg.sqrtm(a, 2), NotImplementedError, "Blocked"),
    (lambda a: linalg.sqrtm(a[None]), ValueError, "use vmap"),
    (lambda a: linalg.polar(a[:2]), NotImplementedError, "method='svd'"),
    (lambda a: linalg.polar(a, "up"), ValueError, "either 'right' or 'left'"),
    (lambda a: linalg.polar(a, method="foo"), ValueError, "Unknown polar decomposition method foo"),
    (lambda a: linalg.solve_sylvester(a, a, a[:2]), ValueError, "Incompatible shapes for Sylvester"),
    (lambda a: linalg.solve_sylvester(a, a, a, method="foo"), ValueError, "Unrecognized method foo"),
    (lambda a: linalg.eigh_tridiagonal(a[0], a[0, 1:], select="v"), NotImplementedError, "select='v'"),
    (lambda a: linalg.eigh_tridiagonal(a[0], a[0]), TypeError, "shorter by one"),
    (lambda a: linalg.eigh_tridiagonal(a[0].astype(int), a[0, 1:]), TypeError, "Only float32 and float64"),
    (lambda a: linalg.toeplitz([1, 2]), TypeError, "requires ndarray"),
    (lambda a: linalg.hadamard(3), ValueError, "power of 2"),
    (lambda a: linalg.pascal(3, "foo"), ValueError, "Expected kind"),
    (lambda a: linalg.companion(a[0, :1]), ValueError, "at least 2"),
    (lambda a: linalg.leslie(a[0], a[0]), ValueError, "one less"),
    (lambda a: linalg.convolution_matrix(a[0], 0), ValueError, "positive integer"),
    (lambda a: linalg.dft(2, dtype=np.float32), ValueError, "complex"),
    (lambda a: linalg.block_diag(a[None]), ValueError, "at most 2 dimensions"),
]


@pytest.mark.parametrize(("call", "error", "message"), ERRORS)
def test_errors_say_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message):
        call(np.eye(3, dtype=np.float32))


def test_keywords_are_those_of_scipy():
    """Programs written for SciPy name these; each of our functions takes what it shares with the oracle's."""
    for name, words in {"cholesky": "lower overwrite_a check_finite", "eigh": "b lower eigvals_only overwrite_a type",
                        "lu_factor": "overwrite_a check_finite", "qr": "mode pivoting lwork overwrite_a check_finite",
                        "solve": "lower overwrite_a overwrite_b check_finite assume_a", "svd": "full_matrices lapack_driver",
                        "solve_triangular": "trans lower unit_diagonal overwrite_b"}.items():
        assert set(words.split()) <= set(inspect.signature(getattr(linalg, name)).parameters) & set(
            inspect.signature(getattr(oracle, name)).parameters), name


def test_definite_systems_are_differentiated_by_solves():
    matrix, side = np.array([[4, 1 + 1j], [1 - 1j, 3]], np.complex64), np.array([1, 2j], np.complex64)
    loss = lambda kind: lambda a, b: jnp.abs(linalg.solve(a, b, assume_a=kind)).sum()
    for found, expected in zip(*(jaxlite.grad(loss(kind), (0, 1))(matrix, side) for kind in ("pos", "gen")), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    a = np.array([[4, 1], [2, 3]], np.float32)
    np.testing.assert_allclose(jaxlite.grad(lambda a: jnp.linalg.slogdet(a, method="qr")[1])(a), np.linalg.inv(a).T, rtol=1e-5)
