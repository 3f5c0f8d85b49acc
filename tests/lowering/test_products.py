"""Matrix products that XLA:CPU computes faster in the other order of their operands, or as sums."""

import re

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from lowering import xla
from lowering.passes import products

pytestmark = pytest.mark.usefixtures("uncached")

FIRST = (((0,), (0,)), ((), ()))


def found(f, *args):
    return [eqn for eqn in jax.make_jaxpr(f)(*args).jaxpr.eqns if products.is_better_transposed(eqn)]


def values(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def layer_gradient(weights, x, y):
    return weights - jax.grad(lambda w: ((x @ w - y) ** 2).sum())(weights)


def test_a_tall_gradient_is_computed_wide():
    weights, x, y = values(300, 3), values(200, 300), values(200, 3)
    lowered = jax.jit(layer_gradient).lower(weights, x, y)
    before = lowered.as_text()
    compiled = lowered.compile()
    expected = weights - 2 * x.T @ (x @ weights - y)
    np.testing.assert_allclose(compiled(weights, x, y), expected, rtol=1e-4, atol=1e-3 * abs(expected).max())
    assert re.findall(r"f32\[(\d+,300|300,\d+)\]\S* dot\(", compiled.as_text()) == ["3,300"]
    assert lowered.as_text() == before


def test_a_product_with_a_transpose_is_computed_wide():
    a, b = values(600, 40), values(600, 3)
    step = lambda a, b: b - 0.01 * a @ (a.T @ b)
    text = jax.jit(step).lower(a, b).compile().as_text()
    assert re.findall(r"f32\[(3,40|40,3)\]\S* dot\(", text) == ["3,40"]
    np.testing.assert_allclose(jax.jit(step)(a, b), b - 0.01 * a @ (a.T @ b), rtol=1e-4, atol=1e-3)
    assert "faster in the other order" not in jax.jit(step).lower(a[:100], b[:100]).compile().as_text()  # it is little
    view = lambda a, b: jnp.tanh(a.T[:, None] @ b)
    np.testing.assert_allclose(jax.jit(view)(a, b)[:, 0], np.tanh(a.T @ b), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("count, dots", [(200, "f32[32,7]"), (1000, "f32[7,32]")])
def test_a_small_gradient_that_is_a_result_is_not_transposed(count, dots):
    gradient = jax.jit(jax.grad(lambda w, x, y: ((x @ w - y) ** 2).sum()))
    text = gradient.lower(values(32, 7), values(count, 32), values(count, 7)).compile().as_text()
    assert set(re.findall(r"f32\[(?:32,7|7,32)\](?=\S* dot\()", text)) == {dots}


def test_in_a_loop_and_a_call():
    weights, x, y = 0.01 * values(300, 3), 0.01 * values(200, 300), values(200, 3)
    step = jax.jit(layer_gradient)
    turned = jax.jit(lambda w: lax.fori_loop(0, 3, lambda _, w: step(w, x, y), w))(weights)
    expected = weights
    for _ in range(3):
        expected = expected - 2 * x.T @ (x @ expected - y)
    np.testing.assert_allclose(turned, expected, rtol=1e-4, atol=1e-5)


def test_axes_of_both_operands_keep_their_order():
    x, y = values(8, 16, 20, 10), values(8, 16, 2, 3)
    product = lambda x, y: lax.dot_general(x, y, (((0, 1), (0, 1)), ((), ())))
    assert found(product, x, y)
    np.testing.assert_allclose(jax.jit(product)(x, y), np.einsum("abij,abkl->ijkl", x, y), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("left, right, numbers, equation", [
    ((4, 128, 100), (4, 128, 6), (((1,), (1,)), ((0,), (0,))), "bki,bkj->bij"),
    ((2, 3, 64, 4, 25), (2, 3, 64, 2, 5), (((2,), (2,)), ((0, 1), (0, 1))), "abkij,abklm->abijlm"),
    ((256, 300), (256, 64), FIRST, "ki,kj->ij")])
def test_batches_and_many_columns(left, right, numbers, equation):
    x, y = values(*left), values(*right)
    product = lambda x, y: 2 * lax.dot_general(x, y, numbers)
    assert found(product, x, y)
    np.testing.assert_allclose(jax.jit(product)(x, y), 2 * np.einsum(equation, x, y), rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(bool(xla.BARRIER_DROPPER), reason="the library that it is for came later")
def test_cotangents_of_a_batch_come_first():
    x, y = values(64, 10), values(512, 64, 2)
    product = lambda x, y: lax.dot_general(x, y, (((0,), (1,)), ((), ())))
    assert found(product, x, y) and not found(product, values(64, 50), y) and not found(product, x, values(32, 64, 32))
    np.testing.assert_allclose(jax.jit(product)(x, y), np.einsum("ka,bkc->abc", x, y), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shapes, numbers, equation, is_swapped", [
    (((5, 4, 3), (5, 2, 4, 6)), (((1,), (2,)), ((0,), (0,))), "bij,bkim->bjkm", True),
    (((2, 5, 4, 3), (5, 3, 2, 4, 6)), (((2,), (3,)), ((0, 1), (2, 0))), "abij,bkaim->abjkm", True),
    (((4, 3), (5, 4, 2)), (((0,), (1,)), ((), ())), "ij,kim->jkm", True),
    (((5, 4, 3), (5, 4, 6)), (((1,), (1,)), ((0,), (0,))), "bij,bim->bjm", False),
    (((5, 40, 3), (5, 2, 40, 6)), (((1,), (2,)), ((0,), (0,))), "bij,bkim->bjkm", False)])
def test_cotangents_of_small_matrices_come_first(shapes, numbers, equation, is_swapped):
    x, y = values(*shapes[0]), values(*shapes[1])
    product = jax.jit(lambda x, y: lax.dot_general(x, y, numbers))
    assert ("stablehlo.transpose" in product.lower(x, y).as_text()) == is_swapped
    np.testing.assert_allclose(product(x, y), np.einsum(equation, x, y), rtol=1e-4, atol=1e-5)


def test_large_operands_of_several_axes_come_second_and_are_not_copied():
    x, y = values(128, 8, 160), values(128, 40)
    product = lambda x, y: lax.dot_general(x, y, FIRST)
    assert found(product, x, y) and not found(product, x[:, :, :100], y)
    np.testing.assert_allclose(jax.jit(product)(x, y), np.einsum("kab,kc->abc", x, y), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("x, y, numbers", [
    (values(200, 3), values(200, 300), FIRST),
    (values(200, 300), values(200, 200), FIRST),
    (values(8, 300), values(8, 3), FIRST),
    (values(200, 300), values(200), FIRST),
    (values(200, 300).astype(np.float16), values(200, 3).astype(np.float16), FIRST),
    (values(300, 200), values(200, 3), (((1,), (0,)), ((), ()))),
    (values(200, 300), values(200, 100), FIRST),
    (values(200, 4, 300), values(200, 4, 3), (((0,), (0,)), ((1,), (1,)))),
], ids=["wide", "square", "few summed", "one column", "half", "contracted last", "many columns", "a batch in the middle"])
def test_other_products_stay(x, y, numbers):
    assert not found(lambda x, y: lax.dot_general(x, y, numbers), jnp.asarray(x), jnp.asarray(y))


# --- small matrices, as sums


def is_summed(product, *operands):
    return "dot_general" not in jax.jit(product).lower(*operands).as_text()


@pytest.mark.parametrize("equation, is_sum", [
    ("bik,bkj->bij", True), ("bik,bjk->bij", True), ("bki,bkj->bij", True), ("abik,abkj->abij", True), ("bikl,bkj->bilj", True),
    ("ibk,kjb->bij", True), ("biak,kjba->abij", True), ("bki,bjk->bij", False), ("bik,kj->bij", False)])
def test_batches_of_small_matrices(equation, is_sum):
    extents = dict(a=3, b=64, i=4, j=5, k=6, l=1)
    x, y = (values(*(extents[axis] for axis in axes)) for axes in equation.split("->")[0].split(","))
    x[0], y[1] = np.nan, np.inf
    product = lambda x, y: jnp.einsum(equation, x, y)
    assert is_summed(product, x, y) == is_sum
    np.testing.assert_allclose(jax.jit(product)(x, y), np.einsum(equation, x, y), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("left, right, dtype, alone, in_loop", [
    ((300, 4, 4), (300, 4, 4), "float32", True, True),
    ((300, 4, 4), (300, 4, 4), "bfloat16", True, True),
    ((300, 4, 4), (300, 4, 4), "float16", False, False),
    ((300, 4, 4), (300, 4, 4), "float64", False, True),
    ((300, 3, 3), (300, 3, 3), "float32", False, False),
    ((300, 8, 4), (300, 4, 4), "float32", False, True),
    ((300, 4, 4), (300, 4, 1), "float32", False, True),
    ((300, 4, 9), (300, 9, 4), "float32", False, False),
    ((9, 4, 4), (9, 4, 4), "float32", False, True),
    ((10, 12), (12, 8), "float64", False, True),
    ((10, 13), (13, 8), "float64", False, False),
    ((64, 5), (5, 9), "float32", False, False),
    ((6400, 4), (4, 9), "float32", False, True),
    ((4, 4), (4, 33), "float32", False, False),
    ((4, 6), (6, 1), "float32", False, True),
    ((5, 5), (5, 1), "float32", False, not xla.HAS_SMALL_FUNCTIONS),  # XLA has a loop for it
    ((3, 3), (3, 3), "complex64", False, True),
    ((3, 3), (3, 3), "float32", False, False)])
def test_which_products_are_sums(left, right, dtype, alone, in_loop, x64):
    x, y = jnp.ones(left, dtype), jnp.ones(right, dtype)
    step = jax.jit(lambda x, y: x @ y)
    assert is_summed(step, x, y) == alone
    assert is_summed(lambda x, y: lax.map(lambda _: step(x, y), jnp.arange(2)), x, y) == in_loop


def as_written(equation, x, y):
    """A product of two operands in one `dot_general`, in the order of axes of the equation."""
    (left, right), out = (equation.partition("->")[0].split(",")), equation.partition("->")[2]
    shared = [axis for axis in left if axis in right]
    contract, batch = ([(left.index(axis), right.index(axis)) for axis in shared if (axis in out) == is_kept]
                       for is_kept in (False, True))
    return lax.dot_general(x, y, tuple(tuple(zip(*pairs, strict=True)) or ((), ()) for pairs in (contract, batch)))


@pytest.mark.parametrize("equation, count, extent, is_own", [
    ("ni,ni->n", 33_000, 8, True), ("ni,ni->n", 33_000, 9, False), ("ni,ni->n", 32_000, 8, False),
    ("in,in->n", 33_000, 3, True),
    ("nij,njk->nik", 9000, 4, True), ("nij,nkj->nik", 5000, 5, True), ("nij,njk->nik", 70_000, 2, False),
    ("nij,nj->ni", 40_000, 4, True), ("nij,ni->nj", 40_000, 4, True), ("nij,nj->ni", 40_000, 5, False),
    ("nji,nkj->nik", 9000, 4, False), ("nji,njk->nik", 9000, 4, True), ("nji,nj->ni", 40_000, 4, True),
    ("in,ji->nj", 60_000, 3, False), ("in,ij->nj", 60_000, 3, False), ("ji,nj->in", 60_000, 3, False),
    ("ni,ij->nj", 60_000, 3, True), ("ni,ji->nj", 60_000, 3, True), ("ni,ij->nj", 60_000, 6, False),
    ("ij,nj->in", 60_000, 3, False)])
def test_many_small_products_are_loops_of_xlas_own(equation, count, extent, is_own):
    extents = dict(n=count, i=extent, j=extent, k=extent)
    x, y = (values(*(extents[axis] for axis in axes)) for axes in equation.split("->")[0].split(","))
    product = lambda x, y: as_written(equation, x, y)
    (eqn,) = (eqn for eqn in jax.make_jaxpr(product)(x, y).jaxpr.eqns if eqn.primitive.name == "dot_general")
    assert products.are_many(eqn) == is_own
    x[2], y[1] = np.nan, np.inf
    compiled = jax.jit(lambda x, y: jnp.exp(product(x, y))).lower(x, y).compile()
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(compiled(x, y), np.exp(np.einsum(equation, x, y)), rtol=1e-4, atol=1e-5)
    if is_own:
        assert not re.search(r"ynn_fusion| dot\(", compiled.as_text())
        assert len(re.findall(r" fusion\(", compiled.as_text().split("ENTRY")[1])) >= 2


def test_many_small_products_that_share_an_operand():
    x, y, z = values(9000, 4, 4), values(9000, 4, 4)[::-1].copy(), values(9000, 4, 4) + 1
    found = jax.jit(lambda x, y, z: (x @ y, x @ z, y @ x, jnp.einsum("nij,nkj->nik", x, z)))(x, y, z)
    for got, expected in zip(found, (x @ y, x @ z, y @ x, x @ z.transpose(0, 2, 1)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_sums_in_a_loop_need_no_library(x64):
    x = np.random.default_rng(0).standard_normal((300, 4, 4)) / 4
    x[3, 1, 2] = np.nan
    powers = jax.jit(lambda x: lax.fori_loop(0, 5, lambda _, y: x @ y, x)).lower(x).compile()
    assert not re.search(r"ynn_fusion| dot\(", powers.as_text())
    np.testing.assert_allclose(powers(x), np.linalg.matrix_power(x, 6), rtol=1e-9, atol=1e-12)


def test_costly_factors_in_a_loop_are_multiplied_by_the_library_where_no_barrier_keeps_them():
    x, y = jnp.asarray(values(20, 10)), jnp.asarray(values(10, 10))
    in_loop = lambda f: lambda x, y: lax.map(lambda _: f(x) @ y, jnp.arange(2))
    assert is_summed(in_loop(jnp.sin), x, y) == (not xla.BARRIER_DROPPER)
    assert is_summed(in_loop(lambda x: x + 1), x, y)
    np.testing.assert_allclose(jax.jit(in_loop(jnp.sin))(x, y)[0], np.sin(x) @ np.asarray(y), rtol=1e-5, atol=1e-5)


def test_rounded_products_are_summed_up_as_floats():
    x, y = (jnp.asarray(values(300, *shape), jnp.bfloat16) for shape in ((4, 7), (7, 5)))
    wide = np.einsum("bik,bkj->bij", *(np.asarray(each, np.float64) for each in (x, y)))
    np.testing.assert_allclose(np.asarray(jax.jit(jnp.matmul)(x, y), np.float64), wide, rtol=2 ** -8, atol=1e-6)
    product = lambda x, y: jnp.matmul(x, y, preferred_element_type="float32")
    assert is_summed(product, x, y)
    np.testing.assert_allclose(jax.jit(product)(x, y), wide, rtol=1e-5, atol=1e-5)


def test_sums_for_a_gradient_share_no_array_of_all_products():
    x, y = values(300, 5, 4), values(300, 4, 6)
    gradient = jax.jit(jax.grad(lambda x, y: ((x @ y) ** 2).sum(), (0, 1))).lower(x, y).compile()
    assert gradient.memory_analysis().temp_size_in_bytes < 4 * 300 * 5 * 6 * 2
    of_product = 2 * x @ y
    for result, expected in zip(gradient(x, y), (of_product @ y.mT, x.mT @ of_product), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
