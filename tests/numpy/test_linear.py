"""Products of vectors and matrices, einsum, cross products and traces, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp

bfloat16 = np.dtype(ml_dtypes.bfloat16)
f32 = np.dtype(np.float32)


def draw(rng, shape, dtype=f32):
    values = rng.integers(-3, 4, shape)
    return np.asarray(values + 1j * rng.integers(-3, 4, shape) if np.dtype(dtype).kind == "c" else values).astype(dtype)


SHAPES = {
    "dot": [((), (3,)), ((), ()), ((3,), (3,)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((5, 2, 3), (4, 3, 2)), ((0,), (0,))],
    "matmul": [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (3,)),
               ((1, 2, 3), (5, 3, 4)), ((5, 1, 2, 3), (4, 3, 2)), ((6, 1, 2, 3), (1, 5, 3, 4)), ((3,), (5, 3, 4)),
               ((2, 0), (0, 3)), ((5, 1, 2, 3), (5, 4, 3, 2)), ((0, 2, 3), (1, 3, 4))],
    "inner": [((), (3,)), ((3,), (3,)), ((2, 3), (4, 3)), ((2, 2, 3), (3,))],
    "outer": [((2, 3), (2,)), ((), (3,)), ((0,), (2,))],
    "vdot": [((2, 3), (6,)), ((), ()), ((0,), (0,))],
    "kron": [((2, 3), (3, 2)), ((3,), (2, 2)), ((), (2,)), ((2, 1, 2), (2,)), ((0,), (3,))],
    "tensordot": [((2, 3, 4), (3, 4, 5)), ((3, 4), (3, 4))],
    "cross": [((3,), (3,)), ((2,), (3,)), ((4, 3), (3,)), ((5, 1, 3), (4, 2)), ((0, 3), (0, 3))],
}
CASES = [(name, left, right) for name, shapes in SHAPES.items() for left, right in shapes]


@pytest.mark.parametrize("name, left, right", CASES, ids=str)
def test_products_match_numpy(name, left, right, rng):
    a, b = draw(rng, left), draw(rng, right)
    if name == "cross":  # NumPy has given up vectors of two components
        widened = [np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 3 - x.shape[-1])]) for x in (a, b)]
        expected = np.cross(*widened)
    else:
        expected = getattr(np, name)(a, b)
    got = getattr(jnp, name)(a, b)
    assert got.shape == expected.shape and got.dtype == f32 and not got.weak_type
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("left, right", [((2, 3), (3,)), ((5, 2, 3), (3,)), ((2, 3), (5, 3)), ((5, 2, 3), (1, 3))], ids=str)
def test_core_products(left, right, rng):
    a, b = draw(rng, left, np.complex64), draw(rng, right, np.complex64)
    np.testing.assert_array_equal(jnp.matvec(a, b), np.einsum("...ij,...j->...i", a, b))
    turned = np.swapaxes(a, -1, -2)
    np.testing.assert_array_equal(jnp.vecmat(b, turned), np.einsum("...j,...ji->...i", b.conj(), turned))
    np.testing.assert_array_equal(jnp.vecdot(a, b[..., None, :]), (a.conj() * b[..., None, :]).sum(-1))
    np.testing.assert_array_equal(jnp.vecdot(turned, b[..., None], axis=-2), (turned.conj() * b[..., None]).sum(-2))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int32, bfloat16, np.float16, np.complex64], ids=str)
def test_products_keep_their_dtype(dtype, rng):
    a, b = draw(rng, (2, 3), dtype), draw(rng, (3, 2), dtype)
    exact = (a.astype(np.complex64) @ b.astype(np.complex64)).astype(np.complex64 if a.dtype.kind == "c" else f32) \
        if a.dtype.kind == "c" else (a.astype(f32) @ b.astype(f32))
    got = jnp.matmul(a, b)
    assert got.dtype == dtype
    np.testing.assert_array_equal(np.asarray(got), exact.astype(dtype))


def test_dtypes_are_promoted():
    ints, floats, weak = np.ones(3, np.int32), np.ones(3, bfloat16), jnp.full(3, 2.0)
    for product in (jnp.dot, jnp.matmul, jnp.inner, jnp.vdot, jnp.outer, jnp.kron):
        assert product(ints, floats).dtype == bfloat16
        assert product(ints, weak).weak_type == (jnp.multiply(ints, weak).weak_type)
    assert jnp.dot(2, 3.0).weak_type
    assert jnp.matmul(floats, floats, preferred_element_type=np.float32).dtype == f32
    assert "HIGHEST" in str(jaxlite.make_jaxpr(lambda a: jnp.tensordot(a, a, 1, precision="highest"))(np.ones((2, 2))))


ERRORS = [
    ("dot", (2, 3), (2, 3), TypeError), ("matmul", (2, 3), (2, 3), TypeError), ("matmul", (), (3,), ValueError),
    ("matmul", (2, 2, 3), (3, 3, 4), ValueError), ("inner", (3,), (4,), TypeError), ("vdot", (3,), (4,), TypeError),
    ("vecdot", (3,), (4,), ValueError), ("matvec", (3,), (3,), ValueError), ("matvec", (2, 3), (2,), ValueError),
    ("vecmat", (3,), (2, 3), ValueError), ("cross", (4,), (4,), ValueError), ("tensordot", (3, 2), (2, 3, 4), TypeError),
    ("vecdot", (), (3,), ValueError),
]


@pytest.mark.parametrize("name, left, right, error", ERRORS, ids=str)
def test_shapes_that_do_not_fit(name, left, right, error):
    with pytest.raises(error):
        getattr(jnp, name)(np.ones(left, f32), np.ones(right, f32))


def test_lists_are_no_arrays():
    for product in (jnp.dot, jnp.matmul, jnp.outer, jnp.vdot, jnp.inner, jnp.tensordot):
        with pytest.raises(TypeError, match="list"):
            product([1, 2], np.ones(2))
    for function in (jnp.outer, jnp.trace):
        with pytest.raises((NotImplementedError, TypeError)):
            function(np.ones((2, 2)), out=np.ones((2, 2)))


@pytest.mark.parametrize("axes", [0, 1, (1, 0), ((0, 1), (1, 0)), [[0], [1]], ((-1,), (0,))], ids=str)
def test_tensordot_axes(axes, rng):
    a, b = draw(rng, (3, 3)), draw(rng, (3, 3))
    np.testing.assert_array_equal(jnp.tensordot(a, b, axes), np.tensordot(a, b, axes))


@pytest.mark.parametrize("axes", ["a", 1.5, 3, ((0, 1), (1,)), (1, 2, 3), -1], ids=str)
def test_tensordot_axes_that_do_not_fit(axes):
    with pytest.raises(TypeError, match="tensordot"):
        jnp.tensordot(np.ones((3, 3), f32), np.ones((3, 3), f32), axes)


@pytest.mark.parametrize("args", [{"axis": 0}, {"axisa": 0, "axisb": 0}, {"axisa": 0, "axisb": 0, "axisc": 0}], ids=str)
def test_cross_axes(args, rng):
    a, b = draw(rng, (3, 4)), draw(rng, (3, 4))
    np.testing.assert_array_equal(jnp.cross(a, b, **args), np.cross(a, b, **args))


def test_gradients_of_cross_add_up_one_array_for_each_component():
    gradient = jaxlite.make_jaxpr(jaxlite.grad(lambda a, b: jnp.cross(a, b).sum()))(np.ones((4, 3)), np.ones((4, 3)))
    assert [eqn.primitive.name for eqn in gradient.eqns].count("pad") == 3


@pytest.mark.parametrize("args", [(), (1,), (-1,), (9,), (0, 1, 2), (0, -1, 0)], ids=str)
def test_trace(args, rng):
    a = draw(rng, (3, 4, 3) if len(args) > 1 else (3, 4))
    np.testing.assert_array_equal(jnp.trace(a, *args), np.trace(a, *args))


def test_trace_dtypes_and_other_elements():
    assert jnp.trace(np.ones((2, 2), np.bool_)).dtype == np.int32
    assert jnp.trace(np.ones((2, 2), np.int8), dtype=np.float32).dtype == f32
    assert float(jnp.trace(np.array([[1, np.nan], [np.inf, 2]], f32))) == 3
    for args in ((0, 0, 0), (0, 0, 5)):
        with pytest.raises(ValueError):
            jnp.trace(np.ones((2, 2)), *args)


# --- einsum ------------------------------------------------------------------------------------------

SPECS = [
    ("i,i", (3,), (3,)), ("i,j", (3,), (2,)), ("ij,jk", (2, 3), (3, 4)), ("ij,jk->ki", (2, 3), (3, 4)),
    ("ba", (2, 3)), ("ij->", (2, 3)), ("ij->j", (2, 3)), ("ii", (3, 3)), ("ii->i", (3, 3)), ("iij->ji", (3, 3, 2)),
    ("iii->i", (2, 2, 2)), ("iijj->ij", (2, 2, 3, 3)), ("...ij,...jk->...ik", (1, 2, 3), (5, 3, 4)),
    ("...ij,...jk", (5, 2, 3), (3, 4)), ("i...->...", (2, 3, 4)), ("...i->...", (2, 3)),
    ("i...j,j...->i...", (2, 4, 3), (3, 4)),
    ("bij,bjk->kbi", (5, 2, 3), (5, 3, 4)), ("bij,bjk->ik", (5, 2, 3), (5, 3, 4)), ("ij,ij->ij", (1, 3), (2, 3)),
    ("ij,kl->ljki", (2, 3), (4, 5)), ("ij,kl->", (2, 3), (4, 5)), ("i,->i", (3,), ()), (",ij->ji", (), (2, 3)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)), ("i,i,i->i", (3,), (3,), (3,)), ("i,ij,j->", (2,), (2, 3), (3,)),
    ("ij,ik,il->jkl", (2, 3), (2, 4), (2, 5)), ("ab,cd,ef->", (2, 2), (2, 2), (2, 2)), ("ab,ab,ab->", (2, 3), (2, 3), (2, 3)),
    ("ij,jk,kl,lm->im", (2, 3), (3, 4), (4, 5), (5, 2)), ("bhqk,bkhd->bqhd", (2, 2, 3, 5), (2, 5, 2, 4)),
    ("ij,jk->ik", (2, 1), (3, 4)), ("ij,jk->ik", (2, 0), (0, 4)), ("ijkl,jk->il", (2, 3, 4, 5), (3, 4)),
    ("Ab,bA->A", (2, 3), (3, 2)), ("ij , jk -> ik", (2, 3), (3, 4)), ("ijj,jk->ik", (2, 3, 3), (3, 2)),
]


@pytest.mark.parametrize("spec, shapes", [(spec, shapes) for spec, *shapes in SPECS], ids=str)
def test_einsum_matches_numpy(spec, shapes, rng):
    operands = [draw(rng, shape) for shape in shapes]
    if spec == "ij,jk->ik" and shapes[0] == (2, 1):  # NumPy does not stretch axes in einsum
        expected = np.einsum(spec, np.broadcast_to(operands[0], (2, 3)), operands[1])
    elif spec == "ij,ij->ij":
        expected = operands[0] * operands[1]
    else:
        expected = np.einsum(spec, *operands)
    got = jnp.einsum(spec, *operands)
    assert got.dtype == f32 and got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int32, np.complex64, bfloat16], ids=str)
def test_einsum_dtypes(dtype, rng):
    a, b = draw(rng, (3, 3), dtype), draw(rng, (3, 4), dtype)

    def several(a, b):
        return [jnp.einsum(spec, *([a, b] if "," in spec else [a])) for spec in ("ij,jk->ik", "ii->i", "ij->i", "ij,kl->")]

    wide = [x.astype(np.complex64) for x in (a, b)]
    for got, expected in zip(jaxlite.jit(several)(a, b), [
            wide[0] @ wide[1], np.diag(wide[0]), wide[0].sum(1), wide[0].sum() * wide[1].sum()], strict=True):
        assert got.dtype == dtype
        rounded = expected if a.dtype.kind == "c" else expected.real
        np.testing.assert_array_equal(np.asarray(got), (rounded.astype(np.int64) if a.dtype.kind == "i" else rounded
                                                        ).astype(dtype))


def test_equal_orders_of_einsum_sum_up_along_rows_first():
    x, y = np.ones((6, 6), np.float32), np.ones(6, np.float32)
    for spec, operands in (("ij,j,i->", (x, y, y)), ("i,ij,j->", (y, x, y))):
        first = jaxlite.make_jaxpr(lambda *given, spec=spec: jnp.einsum(spec, *given))(*operands).jaxpr.eqns[0]
        assert first.params["dimension_numbers"][0] == ((1,), (0,))


@pytest.mark.parametrize("optimize", ["optimal", "greedy", "auto", True, False, [(0, 1), (0, 1)], [(1, 2), (0, 1)],
                                      [(0, 1, 2)]], ids=str)
def test_einsum_orders(optimize, rng):
    operands = [draw(rng, shape) for shape in ((2, 3), (3, 4), (4, 5))]
    np.testing.assert_array_equal(jnp.einsum("ij,jk,kl->il", *operands, optimize=optimize), np.linalg.multi_dot(operands))


def test_einsum_chooses_the_cheap_order():
    shapes = [np.ones(shape, f32) for shape in ((2, 50), (50, 50), (50, 1))]
    products = [eqn.outvars[0].aval.shape for eqn in
                jaxlite.make_jaxpr(lambda *a: jnp.einsum("ij,jk,kl->il", *a))(*shapes).jaxpr.eqns]
    assert sorted(products)[0] == (2, 1) and (50, 1) in products
    assert jnp.einsum_path("ij,jk,kl->il", *shapes)[0] == [(1, 2), (0, 1)]


@pytest.mark.parametrize("spec, shapes, largest", [
    # None of the products is larger than it has to be, though each of the cheapest order is larger than all operands.
    ("zci,zcj,zck,ijkl->zcl", ((20, 4, 4), (20, 4, 4), (20, 4, 4), (4, 4, 4, 4)), 20 * 4 * 4 * 4),
    # Operands are taken so that the result comes as it is asked for.
    ("abc,ia,jb,kc->ijk", ((3, 3, 3), (6, 3), (6, 3), (6, 3)), 6 * 6 * 6),
    ("egai,ab,egbj,eg->eij", ((4, 3, 5, 6), (5, 5), (4, 3, 5, 6), (4, 3)), 4 * 3 * 5 * 6),
    ("ab,ac,ad,ae,af,ag,ah,ai->bcdefghi", ((2, 2),) * 8, 2**8),  # too many to look at all orders
])  # fmt: skip
def test_einsum_of_several_operands(spec, shapes, largest, rng):
    operands = [draw(rng, shape) for shape in shapes]
    closed = jaxlite.make_jaxpr(lambda *a: jnp.einsum(spec, *a))(*operands)
    eqns = closed.jaxpr.eqns
    assert max(eqn.outvars[0].aval.size for eqn in eqns if eqn.primitive.name == "dot_general") == largest
    assert not any(eqn.primitive.name == "transpose" for eqn in eqns)
    np.testing.assert_allclose(jaxlite.core.eval_jaxpr(closed.jaxpr, closed.consts, *operands)[0],
                               np.einsum(spec, *operands, optimize=True), rtol=1e-5)


def test_einsum_with_a_path_that_leaves_operands():
    with pytest.raises(ValueError, match="does not multiply all of 3 operands"):
        jnp.einsum("i,i,i->i", *[np.ones(2)] * 3, optimize=[(0, 1)])


@pytest.mark.parametrize("spec, order", [("ijk,jl->ilk", (1, 0, 2)), ("jl,ijk->ilk", (1, 0, 2)), ("ijk,jl->ikl", None)])
def test_einsum_leaves_the_rows_of_a_result(spec, order):
    x, y = np.ones((2, 3, 4), np.float32), np.ones((3, 5), np.float32)
    operands = [x if len(axes) == 3 else y for axes in spec.partition("->")[0].split(",")]
    eqns = jaxlite.make_jaxpr(lambda *a: jnp.einsum(spec, *a))(*operands).jaxpr.eqns
    assert [eqn.params["permutation"] for eqn in eqns if eqn.primitive.name == "transpose"] == ([order] if order else [])


def test_einsum_with_axis_numbers(rng):
    a, b = draw(rng, (2, 3)), draw(rng, (3, 4))
    np.testing.assert_array_equal(jnp.einsum(a, [0, 1], b, [1, 2], [0, 2]), a @ b)
    names = jnp.einsum(a, ["row", "inner"], b, ["inner", "column"])  # sorted, for there is no list of the output's
    np.testing.assert_array_equal(names, (a @ b).T)
    np.testing.assert_array_equal(jnp.einsum(a, [70, 90], b, [90, ...], [..., 70]), (a @ b).T)
    with pytest.raises(TypeError, match="hashed and compared"):
        jnp.einsum(a, ["row", 1], b, [1, "column"])
    np.testing.assert_array_equal(jnp.einsum(a, [30, 1], b, [1, 22]), (a @ b).T)
    np.testing.assert_array_equal(jnp.einsum(a, [Ellipsis, 0], [0, Ellipsis]), a.T)


def test_operands_of_two_dtypes_are_multiplied_where_the_dtype_of_the_product_is_given():
    a = np.float32([[1.5, -2, 0.5], [4, 0.25, 3]])
    narrow, wide = a.astype(ml_dtypes.float8_e4m3fn), (a.T / 4).astype(bfloat16)
    for product in (jnp.matmul, jnp.dot, lambda *operands, **options: jnp.tensordot(*operands, 1, **options),
                    lambda a, b, **options: jnp.inner(a, b.T, **options),
                    lambda *operands, **options: jnp.einsum("ij,jk->ik", *operands, **options)):
        got = product(narrow, wide, preferred_element_type=np.float32)
        assert got.dtype == f32
        np.testing.assert_array_equal(got, a @ a.T / 4)
        with jaxlite.numpy_dtype_promotion("strict"):
            assert product(wide.T, a.T, preferred_element_type=np.float32).dtype == f32
        with pytest.raises(ValueError, match="promotion"):
            product(narrow, wide)
    of_narrow, of_wide = jaxlite.grad(lambda *x: jnp.matmul(*x, preferred_element_type=np.float32).sum(), (0, 1))(narrow, wide)
    assert (of_narrow.dtype, of_wide.dtype) == (narrow.dtype, wide.dtype)
    np.testing.assert_array_equal(of_wide.astype(f32), np.tile(a.sum(0)[:, None], (1, 2)))


def test_einsum_precision_and_accumulation():
    a = np.ones((2, 2), bfloat16)
    assert jnp.einsum("ij,jk->ik", a, a, preferred_element_type=np.float32).dtype == f32
    sums = jnp.einsum("ij->", np.full((300, 1), 1.0078125, bfloat16), preferred_element_type=np.float32)
    assert float(sums) == 300 * 1.0078125
    text = str(jaxlite.make_jaxpr(lambda a: jnp.einsum("ij,jk->ik", a, a, precision=("high", "highest")))(a))
    assert "(Precision.HIGH, Precision.HIGHEST)" in text
    assert jnp.einsum(",", 1.0, 2).weak_type


@pytest.mark.parametrize("spec, shapes", [
    ("ij,jk->ik", [(2, 3), (4, 4)]), ("ij,jk->iq", [(2, 3), (3, 4)]), ("ij,jk->iik", [(2, 3), (3, 4)]),
    ("ij", [(2, 3), (3, 4)]), ("ij,jk", [(2, 3)]), ("ijk,jk", [(2, 3), (3, 4)]), ("..i", [(2, 3)]),
    ("ij->>i", [(2, 3)]), ("ii->i", [(2, 3)]),
], ids=str)
def test_einsum_specs_that_do_not_fit(spec, shapes):
    with pytest.raises((ValueError, TypeError), match="(?i)einsum|einstein|label|output character"):
        jnp.einsum(spec, *[np.ones(shape, f32) for shape in shapes])


def test_programs_are_single_products():
    x, y = np.ones((5, 2, 3), f32), np.ones((5, 3, 4), f32)
    for function in (jnp.matmul, lambda a, b: jnp.einsum("bij,bjk->bik", a, b), lambda a, b: jnp.einsum("bij,bjk->bki", a, b)):
        assert [eqn.primitive.name for eqn in jaxlite.make_jaxpr(function)(x, y).jaxpr.eqns] == ["dot_general"]


def test_determinants_of_weak_arrays_are_weak():
    for matrices in (jaxlite.lax.broadcast_in_dim(1.0, (3, 2, 2), ()), jnp.ones((3, 2, 2))):
        for found in (jnp.linalg.slogdet(matrices), jaxlite.vmap(jnp.linalg.slogdet)(matrices)):
            assert [leaf.weak_type for leaf in found] == [matrices.weak_type] * 2


def test_inner_with_a_traced_number_keeps_its_weak_type():
    assert jaxlite.eval_shape(jnp.inner, np.ones(2, bool), 2).weak_type
    assert not jaxlite.eval_shape(jnp.inner, np.ones(2, np.int8), 2).weak_type
