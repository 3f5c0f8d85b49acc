"""Products of arrays and vectors that read the array as it lies in memory."""

import re

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from lowering import vector_products

pytestmark = pytest.mark.usefixtures("uncached")



@pytest.fixture(autouse=True)
def of_any_size(monkeypatch):
    monkeypatch.setattr(vector_products, "_LEAST", 1)


CUBE, VECTOR = (4, 5, 6), (5,)


def values(*shape, dtype=np.float32):
    return np.random.default_rng(len(shape)).integers(-9, 9, shape).astype(dtype)


def copies(f, *args):
    """What the compiled program does to move arrays of several axes."""
    return re.findall(r"\[\d+,\d.* (?:transpose|copy)\(.*", jax.jit(f).lower(*args).compile().as_text())


@pytest.mark.parametrize("f", [
    lambda a, v: a.T @ v,
    lambda a, v: v @ a.T.T,
    lambda a, v: a.T @ (a @ (a.T @ v)),
    lambda a, v: (a.T @ v[:, None])[:, 0],
    lambda a, v: v[None] @ jnp.swapaxes(a, 0, 1).T,
    lambda a, v: lax.fori_loop(0, 3, lambda _, u: u - 0.01 * (a.T @ (a @ u - v)), jnp.ones(7)),
], ids=["left", "right", "normal", "column", "row", "loop"])  # fmt: skip
def test_a_transposed_matrix_is_not_read_across_its_rows(f):
    a, v = values(11, 7), values(11)
    assert not copies(f, a, v)
    with jax.disable_jit():
        expected = f(a.astype("float64"), v.astype("float64"))
    np.testing.assert_allclose(jax.jit(f)(a, v), expected, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8"])
@pytest.mark.parametrize("subscripts, shapes", [
    ("ijk,j->ik", (CUBE, VECTOR)), ("j,ijk->ik", (VECTOR, CUBE)), ("ijk,j->ki", (CUBE, VECTOR)),
    ("bijk,bj->bik", ((2, *CUBE), (2, 5))), ("ijkl,k->ijl", ((3, *CUBE), VECTOR)),
])  # fmt: skip
def test_axes_ahead_of_the_contracted_one_are_a_batch(subscripts, shapes, dtype):
    operands = [values(*shape, dtype=dtype) for shape in shapes]
    with jax.enable_x64(dtype == "float64"):
        result = jax.jit(lambda *xs: jnp.einsum(subscripts, *xs))(*operands)
    np.testing.assert_array_equal(result, np.einsum(subscripts, *operands))
    if not subscripts.endswith("ki") and dtype == "float32":
        assert not copies(lambda *xs: jnp.einsum(subscripts, *xs), *operands)


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_axes(seed):
    r = np.random.default_rng(seed)
    rank = int(r.integers(2, 5))
    shape, order = r.integers(1, 5, rank), r.permutation(rank)
    axis, *others = map(int, r.permutation(rank))
    batch = others[:r.integers(0, rank)]
    array = values(*shape)
    turned = array.transpose(order)
    places = list(map(int, r.permutation(len(batch) + 2)))  # of the batch, the contracted axis and one of one element
    extents = [*(turned.shape[each] for each in batch), turned.shape[axis], 1]
    vector = values(*(extents[place] for place in places))
    numbers = ((axis,), (places.index(len(batch)),)), (tuple(batch), tuple(map(places.index, range(len(batch)))))
    product = jax.jit(lambda x, v: lax.dot_general(x.transpose(order), v, numbers))(array, vector)
    swapped = jax.jit(lambda x, v: lax.dot_general(v, x.transpose(order), tuple(pair[::-1] for pair in numbers)))(array, vector)

    names = [chr(97 + each) for each in range(rank)]
    of_vector = [[*(names[each] for each in batch), names[axis], "z"][place] for place in places]
    first, rest = [names[each] for each in batch], [name for each, name in enumerate(names) if each not in (axis, *batch)]
    operands = f"{''.join(names)},{''.join(of_vector)}"
    for result, out in ((product, [*first, *rest, "z"]), (swapped, [*first, "z", *rest])):
        np.testing.assert_array_equal(result, np.einsum(f"{operands}->{''.join(out)}", turned, vector))


def test_little_arrays_and_batches_of_transposes_are_left_to_xla(monkeypatch):
    f = lambda a, v: jnp.einsum("ijk,j->ik", a, v)
    batch = lambda a, v: lax.dot_general(a.transpose(0, 2, 1), v, (((1,), (1,)), ((0,), (0,))))
    text = jax.jit(batch).lower(values(2, 7, 5), values(2, 5)).as_text()
    assert "contracting_dims = [1] x [1]" in text and "tensor<2x5x7xf32>, tensor<2x5xf32>" in text  # of the transpose
    monkeypatch.undo()
    assert "batching_dims" not in jax.jit(f).lower(values(*CUBE), values(*VECTOR)).as_text()
    assert "batching_dims" in jax.jit(f).lower(values(16, 16, 16), values(16)).as_text()


def test_half_floats_and_small_complex_matrices_are_transposed():
    a, v = jnp.asarray(values(*CUBE), "bfloat16"), jnp.asarray(values(*VECTOR), "bfloat16")
    f = lambda a, v: jnp.einsum("ijk,j->ik", a, v)
    assert "batching_dims" not in jax.jit(f).lower(a, v).as_text()
    np.testing.assert_allclose(np.float32(jax.jit(f)(a, v)), np.einsum("ijk,j->ik", *map(np.float32, (a, v))), rtol=1e-2)
    z, u = values(*CUBE) + 1j * values(*CUBE), values(*VECTOR) - 2j
    np.testing.assert_allclose(jax.jit(f)(z, u), f(z, u), rtol=1e-5)
