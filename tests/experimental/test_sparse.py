"""Sparse arrays against their dense counterparts, in every layout."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.experimental import sparse
from jaxlite.experimental.sparse import BCOO, transform
from jaxlite.extend import linear_util
from jaxlite.extend.core import Primitive

LAYOUTS = [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0)]


def some(*shape, share=0.4, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) * (rng.random(shape) < share)).astype(np.float32)


E, F, D = some(3, 4, 5), some(3, 5, 2, share=1), some(4, 5, seed=1)


def check(found, expected):
    np.testing.assert_allclose(sparse.todense(found), expected, atol=1e-5)


# What is done with a sparse array and its dense counterpart alike.
ALIKE = {
    "sums": lambda m: [m.sum(0), m.sum((0, 2)), m.sum(), m.sum(1, keepdims=True)],
    "shapes": lambda m: [m.reshape(12, 5), m.reshape(3, -1)],
    "indexing": lambda m: [m[1], m[:, 1:3], m[..., ::-2], m[None, :, 2], m[2, 1, None, 3], m[1:1], m[:, True]],
    "arithmetic": lambda m: [m * 2, m * E[:, :1], -m + m, m + m, m / 2, abs(m)],
    "products": lambda m: [m @ F, m @ np.ones(5, np.float32), np.ones(4, np.float32) @ m],
}


@pytest.mark.parametrize(("n_batch", "n_dense"), [(0, 0), (1, 1)])
def test_every_layout_does_what_the_dense_array_does(n_batch, n_dense):
    m = BCOO.fromdense(E, n_batch=n_batch, n_dense=n_dense)
    assert (m.n_batch, m.n_dense, m.shape) == (n_batch, n_dense, E.shape)
    for name, fun in ALIKE.items():
        for found, expected in zip(jax.jit(fun)(m), fun(E), strict=True):
            check(found, expected), name
    others = jax.jit(lambda m: [m.sum_duplicates(), m.sort_indices(), *(
        m.update_layout(n_batch=batch, n_dense=dense, on_inefficient=None) for batch, dense in LAYOUTS)])(m)
    for other in others:
        check(other, E)
    check(sparse.bcoo_concatenate([m, m], dimension=0), np.concatenate([E, E]))
    check(sparse.bcoo_rev(m, (0, 2)), E[::-1, :, ::-1])
    check(sparse.bcoo_multiply_sparse(m, BCOO.fromdense(np.roll(E, 1))), E * np.roll(E, 1))
    check(sparse.bcoo_broadcast_in_dim(m, shape=(2, 3, 4, 5), broadcast_dimensions=(1, 2, 3)), np.broadcast_to(E, (2, 3, 4, 5)))
    check(sparse.bcoo_dot_general(m, F, dimension_numbers=(((2,), (1,)), ((0,), (0,)))), E @ F)


def test_a_matrix_without_axes_keeps_its_dtype():
    assert BCOO.fromdense(np.array(3, np.int32)).todense().dtype == np.int32
    check(BCOO.fromdense(np.array(3, np.int32)).todense(), np.array(3, np.int32))


def test_masks_become_matrices_of_integers():
    mask = np.array([[False, True], [True, True]])
    for kind in (sparse.BCOO, sparse.BCSR):
        assert kind.fromdense(mask).data.weak_type and not kind.fromdense(mask.astype(np.int32)).data.weak_type
        assert kind.fromdense(mask).dtype == np.int32 and kind.fromdense(mask).todense().tolist() == mask.tolist()


def test_two_sparse_operands_and_duplicates():
    m = BCOO.fromdense(D)
    check(m.T @ m, D.T @ D)
    check(D.T @ m, D.T @ D)
    twice = BCOO((jnp.array([1.0, 2, 3]), jnp.array([[0, 0], [0, 0], [9, 9]])), shape=(2, 2))  # the last is out of bounds
    check(twice, [[3, 0], [0, 0]])
    check(twice.sum(0), [3, 0])
    assert twice.sum_duplicates().nse == 1
    rows = BCOO.fromdense(D, n_dense=1)
    assert sparse.bcoo_multiply_sparse(rows, rows).n_dense == 1
    check(sparse.bcoo_multiply_sparse(rows, rows), D * D)
    zeros = BCOO((jnp.array([1.0, -1, 0]), jnp.array([[0, 0], [0, 0], [0, 1]])), shape=(2, 2))
    kept = sparse.bcoo_sum_duplicates(zeros)
    assert kept.indices.tolist() == zeros.sum_duplicates(remove_zeros=False).indices.tolist() == [[0, 0], [0, 1]]
    assert zeros.sum_duplicates().indices.tolist() == [[0, 0]]  # what is zero before it is summed
    check(sparse.bcoo_dynamic_slice(m, (1, 3), (2, 4)), D[1:3, 1:5])


@pytest.mark.parametrize(("layout", "shape", "places", "expected"), [
    ({}, (2, 3, 4), (1, 2), (1, 0)), ({}, (3, 1, 4), (0, 2), (0, 0)), ({}, (3, 4, 1), (0, 1), (0, 0)),
    ({"n_batch": 1}, (3, 2, 4), (0, 2), (2, 0)), ({"n_batch": 1}, (1, 3, 4, 1), (1, 2), (2, 0)),
    ({"n_dense": 1}, (2, 3, 4, 5), (1, 2), (1, 2)), ({"n_dense": 1}, (3, 1, 4), (0, 2), (0, 1)),
    ({"n_batch": 2}, (3, 4, 2), (0, 1), (3, 0)), ({}, (3, 2, 4), (0, 2), (0, 0)),
])
def test_new_axes_are_of_the_kind_of_their_neighbours(layout, shape, places, expected):
    """Before the sparse ones they are batch axes, behind the first dense one dense."""
    dense = np.arange(12.0, dtype=np.float32).reshape(3, 4) % 5
    wide = sparse.bcoo_broadcast_in_dim(BCOO.fromdense(dense, **layout), shape=shape, broadcast_dimensions=places)
    assert (wide.n_batch, wide.n_dense) == expected
    check(wide, jax.lax.broadcast_in_dim(dense, shape, places))


def test_indices_that_a_batch_shares_stay_shared():
    data, shared = jnp.array([[0.0, 1, 2], [3, 4, 5]]), jnp.array([[[2], [0], [2]]])
    m = BCOO((data, shared), shape=(2, 4))
    dense = [[1, 0, 2, 0], [4, 0, 8, 0]]
    for made, indices in ((m.sum_duplicates(), [0, 2]), (m.sort_indices(), [0, 2, 2]), (m.sum_duplicates(nse=4), [0, 2, 4, 4]),
                          (jax.jit(lambda m: m.sum_duplicates(nse=3))(m), [0, 2, 4])):
        assert made.indices[..., 0].tolist() == [indices]
        check(made, dense)
    check(BCOO((data[:1], shared), shape=(2, 4)).sum_duplicates(), dense[:1] * 2)
    check(BCOO((data[:1], jnp.concatenate([shared, 3 - shared])), shape=(2, 4)).sum_duplicates(), [dense[0], [0, 2, 0, 1]])
    zero = BCOO((data.at[:, 2].set(0), shared), shape=(2, 4)).sum_duplicates()  # one element is zero in all of the batch
    assert zero.indices.tolist() == [[[0], [2]]]
    check(zero, [[1, 0, 0, 0], [4, 0, 3, 0]])


def test_transformations():
    batch = BCOO.fromdense(E, n_batch=1)
    check(jax.vmap(lambda m: m @ jnp.ones(5))(batch), E.sum(-1))
    check(jax.vmap(lambda m: m.T * 2)(batch), 2 * E.transpose(0, 2, 1))
    m = BCOO.fromdense(D)
    gradient = sparse.grad(lambda m, v: ((m @ v) ** 2).sum())(m, jnp.arange(5.0))
    expected = 2 * np.outer(D @ np.arange(5), np.arange(5))
    check(gradient, np.where(D != 0, expected, 0))
    value, (gradient, other) = sparse.value_and_grad(lambda m, v: (m @ v).sum(), (0, 1))(m, jnp.arange(5.0))
    check(other, D.sum(0))
    for jacobian in (sparse.jacfwd, sparse.jacrev):
        found = jacobian(lambda m: m @ jnp.arange(5.0))(m)
        assert found.shape == (4, 4, 5)
        check(found, np.where(D != 0, np.eye(4)[:, :, None] * np.arange(5), 0))


def test_sparsify():
    f = lambda a, b: (jnp.sin(a) @ b, (2 * a + a[::-1]).sum(0), jnp.tanh(a).T.reshape(-1), (a * a)[1:3] ** 2, a @ a.T)
    found = jax.jit(sparse.sparsify(f))(BCOO.fromdense(D), D.T)
    for one, expected in zip(found, f(D, D.T), strict=True):
        check(one, expected)
    twice = BCOO((np.ones(2, np.float32), np.array([[1, 2], [1, 2]])), shape=D.shape)  # one place, which has 2
    for mat, added in ((BCOO.fromdense(D), False), (twice, True)):
        names = [eqn.primitive.name for eqn in jax.make_jaxpr(sparse.sparsify(jnp.sin))(mat).eqns]
        assert ("bcoo_sum_duplicates" in names) == added  # which sorts
        check(sparse.sparsify(jnp.sin)(mat), np.sin(mat.todense()))
    with pytest.raises(NotImplementedError, match="sparse rule for cos is not implemented because it would result in dense"):
        sparse.sparsify(jnp.cos)(BCOO.fromdense(D))
    check(sparse.sparsify(lambda a, b: b + a)(BCOO.fromdense(D), D), 2 * D)
    with pytest.raises(NotImplementedError, match="Addition between a sparse array X and a dense array Y"):
        sparse.sparsify(lambda a, b: a + b)(BCOO.fromdense(D), D[0])
    with pytest.raises(NotImplementedError, match="Subtraction between sparse and dense array"):
        sparse.sparsify(lambda a, b: a - b)(BCOO.fromdense(D), D)


def test_what_has_no_elements_and_what_does_not_fit():
    check(sparse.empty((3, 4)).sum_duplicates(nse=2), np.zeros((3, 4)))
    check(BCOO.fromdense(D) * BCOO.fromdense(D[0]), D * D[0])
    check(sparse.sparsify(lambda a, b: a * b)(BCOO.fromdense(E), BCOO.fromdense(E[0])), E * E[0])
    check(sparse.random_bcoo(jax.random.key(0), (3, 4), n_batch=1, n_dense=1).todense() > 0, np.ones((3, 4)))
    product = dict(dimension_numbers=(((1,), (1,)), ((), ())), preferred_element_type=float)
    check(sparse.bcoo_dot_general(BCOO.fromdense(D), D, **product), D @ D.T)
    check(sparse.bcsr_dot_general(sparse.BCSR.fromdense(D), D, **product), D @ D.T)
    check(sparse.BCSR.fromdense(D > 0, nse=20), D > 0)
    np.testing.assert_allclose(jax.grad(lambda x: (BCOO.fromdense(x).data ** 2).sum())(D), 2 * D)
    wrong = dict(dimension_numbers=(((2,), (1,)), ((), ())))
    for error, call in [
            (TypeError, lambda: sparse.bcoo_dot_general(BCOO.fromdense(D), D, **wrong)),
            (TypeError, lambda: sparse.bcoo_concatenate([BCOO.fromdense(D)], dimension=2)),
            *[(ValueError, lambda axis=axis: BCOO.fromdense(D).sum(axis)) for axis in (2, -3, (0, 0), (0, -2))],
            *[(ValueError, lambda limits=limits: sparse.bcoo_slice(
                BCOO.fromdense(D), start_indices=limits[0], limit_indices=limits[1], strides=limits[2])) for limits in (
                    ((0, 1), (2, 9), None), ((0, -1), (2, 3), None), ((0, 2), (2, 1), None), ((0, 0), (2, 3), (1, -1)))],
            *[(TypeError, lambda axes=axes: sparse.bcoo_rev(BCOO.fromdense(D), axes)) for axes in ((0, 0), (2,), (-1,))],
            *[(TypeError, lambda axes=axes: BCOO.fromdense(D).transpose(axes)) for axes in ((0,), (0, 0), (1, -2), (0, 5))],
            (TypeError, lambda: sparse.bcoo_concatenate([BCOO.fromdense(D)] * 2, dimension=-1)),
            (TypeError, lambda: sparse.bcoo_concatenate([BCOO.fromdense(D), BCOO.fromdense(D[:, :2])], dimension=0)),
            (TypeError, lambda: sparse.bcoo_dynamic_slice(BCOO.fromdense(D), (0, 0), (9, 3))),
            (ValueError, lambda: sparse.bcoo_reduce_sum(BCOO.fromdense(D), axes=(2,))),
            ((TypeError, ValueError), lambda: sparse.bcoo_broadcast_in_dim(
                BCOO.fromdense(D), shape=(D.shape[0], 9), broadcast_dimensions=(0, 1))),
            (TypeError, lambda: sparse.bcoo_multiply_sparse(BCOO.fromdense(D), BCOO.fromdense(D[0]))),
            (ValueError, lambda: sparse.BCSR.fromdense(D[0])), (ValueError, lambda: sparse.empty((), sparse_format="bcsr")),
            (ValueError, lambda: sparse.BCSR((jnp.ones((2, 3)), jnp.array([0, 1]), jnp.array([0, 1, 2])), shape=(2, 4))),
            (ValueError, lambda: sparse.random_bcoo(jax.random.key(0), (3, 4), nse=13)),
            (NotImplementedError, lambda: sparse.BCSR.fromdense(D).T),
            (NotImplementedError, lambda: sparse.CSR.fromdense(D) + 1),
            (NotImplementedError, lambda: sparse.COO.fromdense(D).sum())]:
        with pytest.raises(error):
            call()


@pytest.mark.parametrize("kind", [sparse.COO, sparse.CSR, sparse.CSC, sparse.BCSR])
def test_compressed_matrices(kind):
    m = kind.fromdense(D)
    check(m, D)
    found = jax.jit(lambda m: [m @ jnp.ones(5), m @ D.T, D.T @ m, m * 3, -m])(m)
    for one, expected in zip(found, [D.sum(1), D @ D.T, D.T @ D, 3 * D, -D], strict=True):
        check(one, expected)
    if kind is not sparse.BCSR:
        check(m.T, D.T)


def test_linear_algebra():
    a = np.diag(np.arange(1.0, 41)).astype(np.float32) + 0.01
    values, vectors, count = sparse.linalg.lobpcg_standard(BCOO.fromdense(a), some(40, 3, share=1))
    np.testing.assert_allclose(values, np.linalg.eigvalsh(a)[::-1][:3], rtol=1e-5)
    np.testing.assert_allclose(a @ vectors, vectors * values, atol=2e-3)
    assert 1 < int(count) < 100
    square = some(6, 6) + 3 * np.eye(6, dtype=np.float32)
    m = sparse.BCSR.fromdense(square)
    solve = lambda b: sparse.linalg.spsolve(m.data, m.indices, m.indptr, b)
    np.testing.assert_allclose(solve(jnp.arange(6.0)), np.linalg.solve(square, np.arange(6)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(jax.grad(lambda b: solve(b).sum())(jnp.arange(6.0)), np.linalg.solve(square.T, np.ones(6)),
                               rtol=1e-4, atol=1e-5)
    two = lambda dtype, *others: sparse.linalg.spsolve(jnp.full(2, 2, dtype), *others or (
        jnp.arange(2), jnp.arange(3), jnp.full(2, 6, dtype)))
    for dtype in (jnp.bfloat16, jnp.float16, jnp.int32, jnp.complex64):
        assert two(dtype).dtype == dtype and two(dtype).tolist() == [3, 3]
    with pytest.raises(ValueError, match="data types do not match"):
        two(jnp.complex64, jnp.arange(2), jnp.arange(3), jnp.ones(2))
    with pytest.raises(ValueError, match="index arrays must be integer typed"):
        two(jnp.float32, jnp.arange(2.0), jnp.arange(3), jnp.ones(2))


def test_iterative_solvers_take_sparse_matrices():
    dense = np.diag([2.0, 4.0]).astype(np.float32)
    for m in (BCOO.fromdense(dense), sparse.BCSR.fromdense(dense)):
        np.testing.assert_allclose(jax.jit(lambda m: jax.scipy.sparse.linalg.cg(m, jnp.ones(2))[0])(m), [0.5, 0.25], rtol=1e-5)


def test_makers_and_bad_input():
    m = sparse.random_bcoo(jax.random.key(0), (2, 4, 5), n_batch=1, nse=0.3)
    assert m.nse == 6 and m.shape == (2, 4, 5) and m.sum_duplicates().nse == 6
    known = sparse.random_bcoo(jax.random.key(0), (2, 4, 4), n_batch=1, nse=5)  # what JAX makes of this key
    assert (known.indices @ jnp.array([4, 1])).tolist() == [[0, 3, 9, 5, 14], [7, 4, 12, 3, 10]]
    np.testing.assert_allclose(known.data[0], [0.8423141, 0.18237865, 0.2271781, 0.12072563, 0.19181347], rtol=1e-6)
    check(sparse.eye(3), np.eye(3))
    check(sparse.empty((2, 3), sparse_format="csr"), np.zeros((2, 3)))
    with pytest.raises(ValueError, match="sparse_format='abc' not recognized"):
        sparse.eye(3, sparse_format="abc")
    with pytest.raises(jax.errors.ConcretizationTypeError, match="needs the argument nse inside of a traced function"):
        jax.jit(BCOO.fromdense)(D)
    with pytest.raises(ValueError, match="differ in nse"):
        BCOO((jnp.ones(3), jnp.zeros((2, 1), int)), shape=(4,))
    with pytest.raises(sparse.SparseEfficiencyError, match="stores zeros"):
        BCOO.fromdense(D).update_layout(n_dense=1)
    with pytest.raises(TypeError, match="dot_general requires contracting dimensions to have the same shape"):
        BCOO.fromdense(D) @ np.ones(4)


@pytest.mark.parametrize("sparse_format", ["bcoo", "bcsr", "coo", "csr", "csc"])
def test_identities_and_empty_arrays_are_made_under_jit_and_never_dense(sparse_format):
    for N, M, k in ((3, 5, 0), (3, 5, 4), (5, 3, -2), (3, 3, -4), (0, 0, 0)):
        make = partial(sparse.eye, N, M, k, sparse_format=sparse_format)
        for m in (make(), jax.jit(make)()):
            assert m.nse == np.eye(N, M, k).sum() and m.dtype == jnp.float32
            check(m, np.eye(N, M, k))
    large = 200_000
    identity = jax.jit(lambda: sparse.eye(large, k=1, sparse_format=sparse_format))()
    product = np.asarray(identity @ jnp.arange(large))
    assert product.shape == (large,) and product[[0, -2, -1]].tolist() == [1, large - 1, 0]
    assert jax.jit(lambda: sparse.empty((large, large), sparse_format=sparse_format))().nse == 0
    with jax.enable_x64(False), pytest.warns(UserWarning, match="int64.* truncated to dtype int32"):
        check(jax.experimental.sparse.eye(3, index_dtype="int64", sparse_format=sparse_format), np.eye(3))
    kind = type(identity)
    with jax.enable_x64(False), pytest.warns(UserWarning, match="int64.* truncated to dtype int32"):
        check(kind.fromdense(D, index_dtype="int64"), D)


def test_identities_with_batch_and_dense_axes_under_jit():
    for n_batch, n_dense, nse in ((1, 0, 1), (0, 1, 2), (1, 1, 1), (2, 0, 1), (0, 2, 1)):
        m = jax.jit(partial(sparse.eye, 3, 4, -1, n_batch=n_batch, n_dense=n_dense))()
        assert (m.n_batch, m.n_dense, m.nse) == (n_batch, n_dense, nse)
        check(m, np.eye(3, 4, -1))
    room = sparse.empty((2, 3, 4, 2), sparse_format="bcsr", nse=5, n_batch=1, n_dense=1)
    assert (room.data.shape, room.indices.shape, room.indptr.shape) == ((2, 5, 2), (2, 5), (2, 4))
    check(room, np.zeros((2, 3, 4, 2)))
    for wrong in (lambda: sparse.empty((2, 2, 2), sparse_format="csr"), lambda: sparse.empty((3,), sparse_format="coo")):
        with pytest.raises(ValueError, match="must have ndim=2"):
            wrong()


def test_powers_and_comparisons():
    twice = BCOO((jnp.array([1.0, 2.0, 3.0]), jnp.array([[0], [0], [2]])), shape=(4,))
    np.testing.assert_array_equal((twice**2).todense(), [9, 0, 9, 0])
    for f in (lambda: twice == twice, lambda: twice != jnp.ones(4), lambda: jnp.ones(4) == twice, lambda: twice > 0,
              lambda: twice**0, lambda: twice**0.5, lambda: 1 / twice):
        with pytest.raises(NotImplementedError, match="use todense"):
            f()


def test_what_the_modules_of_formats_have_beside():
    from jaxlite.experimental.sparse import ad, api, bcoo, bcsr, coo, csr, random, util

    assert (ad.grad, api.eye, coo.COO, csr.CSC, random.random_bcoo) == (
        sparse.grad, sparse.eye, sparse.COO, sparse.CSC, sparse.random_bcoo)
    mat = BCOO.fromdense(jnp.array([[0.0, 1.0], [2.0, 3.0]]))
    holes = BCOO((mat.data.at[0].set(0), mat.indices), shape=mat.shape)
    assert bcoo.bcoo_eliminate_zeros(holes).indices.tolist() == [[1, 0], [1, 1]]
    assert bcoo.bcoo_eliminate_zeros(holes, nse=3).indices.tolist() == [[1, 0], [1, 1], [2, 2]]
    rows = sparse.BCSR.from_bcoo(holes)
    assert bcsr.bcsr_eliminate_zeros(rows).data.tolist() == [2, 3] and rows._info.shape == (2, 2)
    assert bcsr.bcsr_extract(rows.indices, rows.indptr, jnp.arange(4.0).reshape(2, 2)).tolist() == [1, 2, 3]
    out = util.nfold_vmap(lambda x, y: x.sum() + y, 2)(np.ones((2, 3, 4)), np.ones((1, 3)))
    assert out.shape == (2, 3) and (out == 5).all()


def test_operations_are_primitives_and_sparse_arrays_are_tracers():
    d = jnp.array([[0.0, 1, 0], [2, 0, 3]])
    m, c = BCOO.fromdense(d), sparse.CSR.fromdense(d)
    names = [eqn.primitive.name for eqn in jax.make_jaxpr(lambda m: m.T @ m.todense())(m).eqns]
    assert names == ["bcoo_transpose", "bcoo_todense", "bcoo_dot_general"]
    check(sparse.bcoo_todense_p.bind(m.data, m.indices, spinfo=m._info), d)
    check(sparse.csr_matvec_p.bind(c.data, c.indices, c.indptr, jnp.ones(3), shape=c.shape, transpose=False), d.sum(1))
    check(jax.linear_transpose(lambda v: m @ v, jnp.ones(3))(jnp.ones(2))[0], d.sum(0))
    data, indices = sparse.bcoo_fromdense_p.bind(d, nse=4, n_batch=0, n_dense=0, index_dtype=np.int32)
    assert data.shape == (4,) and indices.shape == (4, 2)

    def f(m, flag):
        assert isinstance(m, sparse.SparseTracer) and m.shape == (2, 3)
        return jnp.sin(m * 2 if flag else m), jax.jit(lambda m: m + m)(m), m.T @ jnp.ones(2)

    first, second, third = sparse.sparsify(f, use_tracer=True)(m, True)
    check(first.todense(), np.sin(2 * d))
    check(second.todense(), 2 * d)
    check(third, d.sum(0))
    looped = sparse.sparsify(lambda m, v: lax.fori_loop(0, 2, lambda i, v: m.T @ (m @ v), v))(m, jnp.ones(3))
    check(looped, d.T @ d @ (d.T @ d) @ np.ones(3))
    either = sparse.sparsify(lambda m, flag: lax.cond(flag, lambda m: m * 2.0, lambda m: m * 3.0, m))(m, False)
    check(either.todense(), 3 * d)
    check(sparse.sparsify(lambda m: sparse.todense(m) + 1)(m), d + 1)


def test_sums_and_products_have_room_without_looking_at_the_values() -> None:
    m = BCOO.fromdense(D)
    assert ((m + m).nse, (m - m).nse, abs(m + m).nse) == (2 * m.nse,) * 3
    assert (m @ m.T).nse == min(m.nse ** 2, D.shape[0] ** 2)
    check((m + m).sum_duplicates(), 2 * D)
    assert repr(BCOO.fromdense(E, n_batch=1, n_dense=1)).endswith("n_batch=1, n_dense=1)")


def test_a_sum_of_all_is_an_array():
    mat = sparse.BCOO.fromdense(jnp.array([[1.0, 0.0], [0.0, 2.0]]), nse=3)
    for out, shape in ((mat.sum(), ()), (mat.sum((0, 1)), ()), (mat.sum(keepdims=True), (1, 1))):
        assert isinstance(out, jax.Array) and out.shape == shape and out.sum() == 3
    assert sparse.grad(lambda each: each.sum())(mat).todense()[1, 1] == 1


def test_indexing_with_arrays():
    rng = np.random.default_rng(0)
    a = rng.integers(1, 4, (4, 5, 6)).astype(np.float32) * (rng.random((4, 5, 6)) < 0.3)
    m = sparse.BCOO.fromdense(jnp.asarray(a))
    i, j, every = np.array([2, -1]), np.array([[1], [-3]]), slice(None)
    for key in (i, (every, i), (i, every, i), (1, None, i), (None, i, None, slice(1, None), j), (slice(None, None, -1), 2, i),
                (every, i, j), np.zeros((0, 2), int), a[:, 0, 0] > 0):
        np.testing.assert_array_equal(m[key].todense(), a[key])
    rows = jax.jit(lambda m, i: m[i, 1])(sparse.BCOO.fromdense(jnp.asarray(a), n_dense=1), i)
    assert rows.n_batch == 1 and rows.nse == 6  # a row has no more
    np.testing.assert_array_equal(rows.todense(), a[i, 1])
    slope = jax.grad(lambda data: (sparse.BCOO((data, m.indices), shape=m.shape)[i].todense() ** 2).sum())(m.data)
    np.testing.assert_array_equal(slope, 2 * m.data * np.isin(m.indices[:, 0], [2, 3]))
    with pytest.raises(IndexError, match="boolean index did not match"):
        m[np.array([True])]
    with pytest.raises(NotImplementedError, match="indexing of a BCOO with True; it takes"):
        m[np.True_, 0]


def test_sparse_rules_of_others():
    thrice = Primitive("thrice")
    thrice.def_impl(lambda x, by: x * by)
    thrice.def_abstract_eval(lambda x, by: x)
    m = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [5.0, 0.0]]))

    def rule(spenv, x, by):
        assert x.is_bcoo() and x.ndim == 2
        return [spenv.sparse(x.shape, spenv.data(x) * by, indices_ref=x.indices_ref, unique_indices=x.unique_indices)]

    function = sparse.sparsify(lambda x: thrice.bind(x, by=3.0))
    with pytest.raises(NotImplementedError, match="sparse rule for thrice"):
        function(m)
    transform.sparse_rules_bcoo[thrice] = rule
    np.testing.assert_array_equal(function(m).todense(), [[0, 6], [15, 0]])
    spenv = transform.SparsifyEnv()
    x, y = transform.arrays_to_spvalues(spenv, (m, jnp.full(2, 4.0)))
    (out,) = transform.sparse_rules_bcoo[lax.dot_general_p](
        spenv, x, y, dimension_numbers=(((1,), (0,)), ((), ())), precision=None, preferred_element_type=None)
    assert out.is_dense()
    np.testing.assert_array_equal(spenv.data(out), [8, 20])
    assert thrice in transform.sparse_rules_bcoo and lax.sort_p not in transform.sparse_rules_bcoo
    transform.sparse_rules_bcoo[thrice] = lambda spenv, x, by: x
    with pytest.raises(TypeError, match="the sparsify rule of 'thrice', .*test_sparse.py.*must return a list of spvalues"):
        function(m)
    with pytest.raises(TypeError, match="the sparsify rule of 'thrice' is not a function: 3"):
        transform.sparse_rules_bcoo[thrice] = 3


@pytest.mark.parametrize("use_tracer", [False, True])
def test_sparsify_keeps_compressed_rows(use_tracer):
    dense = np.array([[0, 1, 2], [3, 0, 0]], np.float32)
    mat = sparse.BCSR.fromdense(dense)
    for function in (jnp.sin, lambda m: -m, lambda m: m**2, jax.jit(jnp.abs)):
        out = sparse.sparsify(function, use_tracer)(mat)
        assert type(out) is sparse.BCSR
        np.testing.assert_allclose(out.todense(), function(dense), rtol=1e-6)
    twice = sparse.BCSR(([1.0, 2.0], [1, 1], [0, 2]), shape=(1, 2))  # one place, two elements: the square is of their sum
    assert sparse.sparsify(lambda m: m**2, use_tracer)(twice).todense().tolist() == [[0, 9]]
    np.testing.assert_allclose(sparse.sparsify(lambda m: jnp.sin(m) @ np.ones(3, np.float32), use_tracer)(mat),
                               np.sin(dense).sum(1), rtol=1e-6)
    np.testing.assert_array_equal(sparse.sparsify(lambda m: (m + m).T, use_tracer)(mat).todense(), 2 * dense.T)


def test_rules_of_a_library_for_compressed_rows():
    double_p = Primitive("double")
    double_p.def_impl(lambda x: 2 * x)
    double_p.def_abstract_eval(lambda x: x)
    mat = sparse.BCSR.fromdense(np.eye(2, dtype=np.float32))

    def rule(spenv, value):
        assert value.is_bcsr() and not value.is_bcoo()
        return [spenv.sparse(value.shape, 2 * spenv.data(value), indices_ref=value.indices_ref, indptr_ref=value.indptr_ref)]

    transform.sparse_rules_bcsr[double_p] = rule
    try:
        out, = transform.sparsify_fun(linear_util.wrap_init(lambda m: [double_p.bind(m)]), [mat])
        assert type(out) is sparse.BCSR and out.todense().tolist() == [[2, 0], [0, 2]]
        with pytest.raises(NotImplementedError, match="sparse rule for double"):
            sparse.sparsify(double_p.bind)(mat.to_bcoo())
    finally:
        del transform.sparse_rules_bcsr[double_p]
    assert lax.sin_p in transform.sparse_rules_bcsr and lax.cos_p not in transform.sparse_rules_bcsr


def test_keyword_arguments_of_sparsified_functions():
    m = BCOO.fromdense(D)
    check(sparse.sparsify(jnp.expand_dims)(m, axis=1), D[:, None])
    check(sparse.sparsify(lambda x, *, y, factor: (x + y) * factor)(m, y=m, factor=2.0), 4 * D)


def test_products_of_batches_are_batches():
    a, b = BCOO.fromdense(E, n_batch=1), BCOO.fromdense(F, n_batch=1)
    together = sparse.bcoo_dot_general(a, b, dimension_numbers=(((2,), (1,)), ((0,), (0,))))
    check(together, E @ F)
    left = sparse.bcoo_dot_general(a, BCOO.fromdense(D.T), dimension_numbers=(((2,), (0,)), ((), ())))
    check(left, E @ D.T)
    assert (together.n_batch, left.n_batch) == (1, 1) and (together.nse, left.nse) == (8, 16)


def test_shapes_may_be_symbolic():
    rows = jax.export.symbolic_shape("rows")[0]
    of = lambda fun: jax.eval_shape(fun, jax.ShapeDtypeStruct((rows, 3), np.float32))
    made = of(lambda x: sparse.BCOO.fromdense(x, nse=1))
    assert made.shape == (rows, 3) and made.nse == 1
    assert of(lambda x: (sparse.BCOO.fromdense(x, nse=1) * 2).todense()).shape == (rows, 3)
    assert of(lambda x: sparse.BCOO.fromdense(x, nse=1) @ sparse.BCOO.fromdense(x.T, nse=1)).shape == (rows, rows)


def test_new_axes_are_batch_axes_and_formats_stay_where_they_can():
    dense = np.array([[0.0, 1, 2], [3, 0, 0]], np.float32)
    coordinates, rows = BCOO.fromdense(dense), sparse.BCSR.fromdense(dense)
    for mat in (coordinates, rows, BCOO.fromdense(dense, n_batch=1)):
        wide = mat[None]
        assert type(wide) is type(mat) and wide.n_batch == mat.n_batch + 1
        np.testing.assert_array_equal(wide.todense(), dense[None])
    assert type(rows[:, :]) is type(rows[...]) is sparse.BCSR and type(rows[0]) is BCOO
    assert coordinates[0].nse == 3 and coordinates[1:, :1].nse == 1 and coordinates[0].todense().tolist() == [0, 1, 2]
    joined = sparse.sparsify(lambda m: jnp.concatenate([m, m]))(rows)
    assert type(joined) is sparse.BCSR and joined.todense().tolist() == [*dense.tolist()] * 2
    for kind, turned in ((sparse.COO, sparse.COO), (sparse.CSR, sparse.CSC), (sparse.CSC, sparse.CSR)):
        same, other, doubled, two = sparse.sparsify(lambda m: (m, m.T, jax.jit(lambda m: m * 2)(m), 2))(kind.fromdense(dense))
        assert type(same) is kind and type(other) is turned and isinstance(two, jax.Array)
        np.testing.assert_array_equal(other.todense(), dense.T)
        np.testing.assert_array_equal(doubled.todense(), dense * 2)


def test_convolutions_of_rows_have_an_element_for_each_pair():
    rng = np.random.default_rng(0)
    x, kernel = (np.float32(rng.integers(0, 3, size)) for size in (9, 4))
    rows, taps = BCOO.fromdense(x), BCOO.fromdense(kernel)
    for mode in ("full", "same", "valid"):
        convolve = sparse.sparsify(lambda a, b, mode=mode: jnp.convolve(a, b, mode=mode))
        for left, right in ((rows, taps), (rows, kernel), (x, taps), (taps, rows)):
            found = jax.jit(convolve)(left, right)
            np.testing.assert_allclose(found.todense(), np.convolve(x, kernel, mode))
        assert convolve(rows, taps).nse == rows.nse * taps.nse
    a, b = (BCOO.fromdense(each[None, None], n_batch=2) for each in (x, kernel))
    for padding in ("SAME", [(-2, 3)]):
        found = sparse.bcoo_conv_general_dilated(a, b, window_strides=(1,), padding=padding)
        np.testing.assert_allclose(found.todense(), lax.conv_general_dilated(a.todense(), b.todense(), (1,), padding))
    with pytest.raises(NotImplementedError, match="by steps of 1"):
        sparse.sparsify(lambda a, b: lax.conv_general_dilated(a, b, (2,), "VALID"))(a, b)


def test_batches_of_compressed_rows_are_mapped():
    dense = np.float32([[[1, 0, 2], [0, 0, 3]], [[0, 1, 0], [4, 0, 0]]])
    batch, vectors = sparse.BCSR.fromdense(dense, n_batch=1, nse=3), np.float32([[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(jax.vmap(lambda m, v: m @ v)(batch, vectors), np.einsum("bij,bj->bi", dense, vectors))
    np.testing.assert_array_equal(jax.jit(jax.vmap(lambda m: m.todense()))(batch), dense)
    np.testing.assert_array_equal(lax.map(lambda m: m.todense(), batch), dense)
    made = jax.vmap(lambda m: sparse.BCSR.fromdense(m, nse=3))(dense)
    assert made.shape == dense.shape and made.n_batch == 1
    np.testing.assert_array_equal(made.todense(), dense)
