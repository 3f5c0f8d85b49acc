"""Products of a few rows and an array that is not copied for them."""

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from lowering import xla
from lowering.passes import thin_products

pytestmark = [pytest.mark.usefixtures("uncached"),
              pytest.mark.skipif(bool(xla.BARRIER_DROPPER), reason="older XLA writes every product by itself")]


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch):
    for limit in "_LEAST", "_LEAST_APART", "_LEAST_WRITTEN":
        monkeypatch.setattr(thin_products, limit, 512)


def values(*shape, dtype="float32"):
    return jnp.asarray(np.random.default_rng(sum(shape)).integers(-3, 4, shape), dtype)


def products_left(f, *args):
    return jax.jit(f).lower(*args).compile().as_text().count(" dot(")


STACKED, KEYS = (3, 64, 40), (2, 12, 3, 64)  # layers, and batch, places, heads and width


@pytest.mark.parametrize("f, v, array, left", [
    (lambda v, w: v @ w[1], (2, 64), STACKED, 0),
    (lambda v, w: w[2].T @ v, (64,), STACKED, 0),
    (lambda v, w: v @ w[0].T, (40,), STACKED, 0),
    (lambda v, w: v @ w[1], (9, 64), STACKED, 1),
    (lambda v, w: v @ (w[1] * 2 + 1), (1, 64), STACKED, 0),
    (lambda v, w: v @ (w[1] * 2 + 1), (2, 64), STACKED, 1),
    (lambda v, w: v @ jnp.exp(jnp.sin(w[1])), (1, 64), STACKED, 1),
    (lambda v, w: v @ w, (1, 64), (64, 40), 1),
    (lambda v, w: v @ w.astype("float32"), (1, 64), ("int8", 64, 40), 0),
    (lambda q, k: jnp.einsum("bhd,bthd->bht", q, k), (2, 3, 64), KEYS, 0),
    (lambda q, k: jnp.einsum("bhgd,bthd->bhgt", q, k), (2, 3, 4, 64), KEYS, 0),
    (lambda a, v: jnp.einsum("bhgt,bthd->hgbd", a, v), (2, 3, 2, 64), (2, 64, 3, 5), 0),
    (lambda a, v: jnp.einsum("bthd,bhgt->gdhb", v, a), (2, 3, 2, 64), (2, 64, 3, 5), 0),
    (lambda q, k: jnp.einsum("bhgd,bthd->bhgt", q, k), (2, 3, 9, 64), KEYS, 1),
    (lambda q, k: jnp.einsum("bhd,bhtd->bht", q, k), (2, 3, 64), (2, 3, 12, 64), 1),
], ids=["part", "transposed_part", "part_along_rows", "many_rows", "computed", "computed_rows", "costly", "in_place",
        "converted", "keys", "grouped_keys", "values", "values_first", "many_queries", "batch"])  # fmt: skip
def test_an_array_that_xla_would_copy_is_multiplied_where_it_is(f, v, array, left):
    name, *shape = array if isinstance(array[0], str) else ("float32", *array)
    v, array = values(*v), values(*shape, dtype=name)
    with jax.disable_jit():
        expected = f(np.asarray(v, "float64"), np.asarray(array, "float64" if name == "float32" else name))
    np.testing.assert_allclose(jax.jit(f)(v, array), expected, rtol=1e-6)
    assert products_left(f, v, array) == left


@pytest.mark.parametrize("dtype, rows, left", [("bfloat16", 1, 0), ("bfloat16", 2, 1), ("float16", 1, 0), ("float64", 1, 1)])
def test_half_floats_are_converted_where_they_are_read_and_summed_as_floats(dtype, rows, left):
    with jax.enable_x64(dtype == "float64"):
        v, w = values(rows, 64, dtype=dtype), values(64, 40, dtype=dtype)
        result = jax.jit(jnp.matmul)(v, w)
        exact = np.asarray(v, "float64") @ np.asarray(w, "float64")
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, exact.astype(dtype))
        wide = jax.jit(lambda v, w: jnp.matmul(v, w, preferred_element_type="float32"))(v, w)
        np.testing.assert_array_equal(wide, exact)
        assert products_left(jnp.matmul, v, w) == left


def test_loops_multiply_what_is_the_same_in_all_iterations_as_before():
    weights = values(3, 64, 64) / 32

    def of_rows(v, w):
        return lax.scan(lambda v, w: (jnp.tanh(v @ w), None), v, w)[0]

    def of_part(v, w):
        return lax.fori_loop(0, 20, lambda _, v: jnp.tanh(v @ w[1]), v)

    v = values(2, 64)
    assert (products_left(of_rows, v, weights), products_left(of_part, v, weights)) == (1, 0)
    expected = np.asarray(v, "float64")
    for _ in range(20):
        expected = np.tanh(expected @ np.asarray(weights[1], "float64"))
    np.testing.assert_allclose(jax.jit(of_part)(v, weights), expected, rtol=1e-3, atol=1e-5)


def test_a_later_compile_of_the_same_module_has_other_options():
    v, w = values(1, 64), values(*STACKED)
    lowered = jax.jit(lambda v, w: v @ w[1]).lower(v, w)
    text = lowered.as_text()
    assert " dot(" not in lowered.compile().as_text()
    assert " dot(" in lowered.compile({"jaxlite_cpu_fusion_barriers": False}).as_text()
    assert lowered.as_text() == text
