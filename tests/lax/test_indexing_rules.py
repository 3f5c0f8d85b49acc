"""Derivative and batching rules of slices, gather and the scatter family, and of indexing that is made of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.core.aval import layouts, spaces
from jaxlite.lax import gather_scatter, slicing
from tests import rule_checks as checks

RULES = dict.fromkeys("slice dynamic_slice dynamic_update_slice gather scatter scatter-add scatter-sub "
                      "scatter-mul".split(), "jtb")
RULES |= {"scatter-min": "jTb", "scatter-max": "jTb"}


def test_every_primitive_has_its_rules():
    assert not checks.missing_rules(RULES, [slicing, gather_scatter])


def double(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape)


Gather, Scatter = lax.GatherDimensionNumbers, lax.ScatterDimensionNumbers
ROWS_OF = (Gather((1,), (0,), (0,)), Scatter((1,), (0,), (0,)))  # whole rows at positions of the first axis
BOXES = (Gather((1, 2), (), (0, 1)), Scatter((1, 2), (), (0, 1)))  # boxes at pairs of positions
PAIRED = (Gather((1,), (), (1,), (0,), (0,)), Scatter((1,), (), (1,), (0,), (0,)))  # one position for each row
AT: dict[str, Any] = {
    "rows": (ROWS_OF, np.array([[2], [0], [2]], np.int32), (1, 3), (3, 3)),
    "boxes": (BOXES, np.array([[0, 1], [2, 0]], np.int32), (2, 2), (2, 2, 2)),
    "boxes out of bounds": (BOXES, np.array([[0, 2], [3, 0], [-1, 0]], np.int32), (2, 2), (3, 2, 2)),
    "paired": (PAIRED, np.array([[1], [0], [2], [1]], np.int32), (1, 1), (4, 1)),
}
WAYS = [("rows", "fill"), ("boxes", "promise_in_bounds"), ("boxes out of bounds", "clip"),
        ("boxes out of bounds", "fill"), ("paired", "clip")]


# --- derivatives -------------------------------------------------------------------------------------

LINEAR: list[tuple[str, Callable, tuple[np.ndarray, ...]]] = [
    ("slice", lambda x: lax.slice(x, (1, 0), (3, 2)), (double(4, 3),)),
    ("slice with strides", lambda x: lax.slice(x, (1, 0), (4, 3), (2, 2)), (double(5, 3),)),
    ("empty slice", lambda x: lax.slice(x, (2, 0), (2, 3), (2, 1)), (double(4, 3),)),
    ("dynamic_slice", lambda x: lax.dynamic_slice(x, (np.int32(3), np.int32(-2)), (2, 2)), (double(4, 3),)),
    ("dynamic_update_slice", lambda x, u: lax.dynamic_update_slice(x, u, (np.int32(3), np.int32(1))),
     (double(4, 3), double(2, 1))),
    ("update of everything", lambda x, u: lax.dynamic_update_slice(x, u, (np.int32(1),)), (double(3), double(3))),
    ("index", lambda x: x[1], (double(4, 3),)), ("negative index", lambda x: x[-1, 2], (double(4, 3),)),
    ("steps", lambda x: x[::-2, 1:], (double(5, 3),)),
    ("array index", lambda x: x[:, np.array([2, 0, 2])], (double(4, 3),)),
    ("two arrays", lambda x: x[np.array([0, 1, 0]), np.array([2, 0, 2])], (double(4, 3),)),
    ("mask", lambda x: x[np.array([True, False, True, False])], (double(4, 3),)),
    ("new axes", lambda x: x[None, ..., 1], (double(4, 3),)),
    ("take_along_axis", lambda x: jnp.take_along_axis(x, np.array([[1], [0], [2], [2]]), 1), (double(4, 3),)),
    ("take", lambda x: jnp.take(x, np.array([3, 3, 0]), axis=0), (double(4, 3),)),
    ("take fills", lambda x: x.at[np.array([0, 9, 0])].get(mode="fill", fill_value=0), (double(4, 3),)),
    ("set", lambda x, u: x.at[1].set(u), (double(4, 3), double(3))),
    ("set a slice", lambda x, u: x.at[1:3].set(u), (double(4, 3), double(2, 3))),
    ("set many", lambda x, u: x.at[np.array([0, 2])].set(u), (double(4, 3), double(2, 3))),
    ("set twice", lambda x, u: x.at[np.array([0, 2, 0])].set(u), (double(4, 3), double(3, 3))),
    ("set to a scalar", lambda x, u: x.at[1:, ::2].set(u), (double(4, 3), double())),
    ("set drops", lambda x, u: x.at[np.array([0, 9])].set(u, mode="drop"), (double(4, 3), double(2, 3))),
    ("add", lambda x, u: x.at[np.array([0, 2, 0])].add(u), (double(4, 3), double(3, 3))),
    ("subtract", lambda x, u: x.at[np.array([0, 2, 0])].subtract(u), (double(4, 3), double(3, 3))),
]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("name", "fun", "operands"), LINEAR, ids=[row[0] for row in LINEAR])
def test_derivatives_of_linear_functions(name: str, fun: Callable, operands: tuple) -> None:
    operands = tuple(map(jnp.asarray, operands))
    out, slope = jaxlite.jvp(fun, operands, operands)  # the derivative along x is the value at x
    np.testing.assert_allclose(slope, out, rtol=1e-12)
    checks.check_transpose(lambda *xs: fun(*map(jnp.asarray, xs)), operands)
    for index in range(len(operands)):  # and with the others constant
        def alone(x: Any, index: int = index) -> Any:
            return fun(*operands[:index], jnp.asarray(x), *operands[index + 1:])

        checks.check_transpose(alone, operands[index:index + 1])
        along = jaxlite.jvp(alone, operands[index:index + 1], operands[index:index + 1])[1]
        zero = fun(*[x if which == index else x * 0 for which, x in enumerate(operands)])
        np.testing.assert_allclose(along, zero, rtol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("where", "mode"), WAYS)
def test_derivatives_of_gather_and_scatter(where: str, mode: str) -> None:
    (reads, writes), indices, box, shape = AT[where]
    x, u = double(4, 3), double(*shape)
    checks.check_transpose(lambda x: lax.gather(x, indices, reads, box, mode=mode, fill_value=0), [x])
    for scatter in (lax.scatter, lax.scatter_add, lax.scatter_sub):
        fun = functools.partial(scatter, dimension_numbers=writes, mode=mode)
        checks.check_transpose(lambda x, u, fun=fun: fun(x, indices, u), [x, u])
        if where != "boxes out of bounds":
            checks.check_jvp(lambda x, u, fun=fun: fun(x, indices, u), [x, u], 1)
    for scatter in (lax.scatter_min, lax.scatter_max):
        fun = functools.partial(scatter, dimension_numbers=writes, mode=mode)
        checks.check_jvp(lambda x, u, fun=fun: fun(x, indices, u), [x, u])
        checks.check_transpose(lambda x, u, fun=fun: fun(x, indices, u), [x, u])


@pytest.mark.usefixtures("x64")
def test_fill_values_have_no_derivative():
    x, at = double(4), np.array([0, 9])
    out, slope = jaxlite.jvp(lambda x: x.at[at].get(mode="fill", fill_value=7), (jnp.asarray(x),), (jnp.ones(4),))
    np.testing.assert_array_equal(out, [x[0], 7])
    np.testing.assert_array_equal(slope, [1, 0])
    _, slope = jaxlite.jvp(lambda x: x.at[at].get(mode="fill"), (jnp.asarray(x),), (jnp.ones(4),))
    np.testing.assert_array_equal(slope, [1, 0])


@pytest.mark.usefixtures("x64")
def test_derivatives_of_products():
    x, u, at = double(4, 3), double(2, 3), np.array([[2], [0]], np.int32)
    fun = lambda x, u: lax.scatter_mul(x, at, u, ROWS_OF[1], unique_indices=True)
    checks.check_jvp(fun, [x, u])
    checks.check_transpose(fun, [x, u])
    checks.check_transpose(lambda x: lax.scatter_mul(x, np.array([[2], [2]], np.int32), u, ROWS_OF[1]), [x])
    with pytest.raises(NotImplementedError, match="unique_indices"):
        jaxlite.vjp(lambda u: lax.scatter_mul(x, at, u, ROWS_OF[1]), u)


def test_functions_applied_at_positions_have_no_derivative():
    with pytest.raises(NotImplementedError, match="scatter_apply"):
        jaxlite.grad(lambda x: jnp.sum(x.at[np.array([0, 1])].apply(lax.sin)))(jnp.ones(3))


def test_elements_that_are_overwritten_have_derivative_zero():
    x = jnp.array([1.0, 2, 3, 4])
    at, u = np.array([1, 1, 3, 1]), jnp.array([5.0, 6, 7, 8])
    out, pull = jaxlite.vjp(lambda x, u: x.at[at].set(u), x, u)
    ct_x, ct_u = pull(jnp.array([1.0, 10, 100, 1000]))
    np.testing.assert_array_equal(ct_x, [1, 0, 100, 0])
    np.testing.assert_array_equal(ct_u, np.where(u == out[at], jnp.array([10, 10, 1000, 10]), 0))  # only who won


@pytest.mark.parametrize(("name", "x", "u", "slope_x", "slope_u"), [
    ("max", [1, 3, 3, 0], [1, 5, 5, 3, 2], [0.5, 0, 0.5, 1], [0.5, 0.5, 0.5, 0.5, 0]),
    ("min", [1, 3, 3, 0], [1, 5, 2, 3, 3], [0.5, 0, 1 / 3, 1], [0.5, 0, 1, 1 / 3, 1 / 3]),
])
def test_extremes_share_their_derivative_among_ties(name: str, x: list, u: list, slope_x: list, slope_u: list) -> None:
    at = np.array([0, 1, 1, 2, 2])
    total = lambda x, u: jnp.sum(getattr(x.at[at], name)(u))
    slopes = jaxlite.grad(total, (0, 1))(jnp.array(x, float), jnp.array(u, float))
    np.testing.assert_allclose(slopes[0], slope_x, rtol=1e-6)
    np.testing.assert_allclose(slopes[1], slope_u, rtol=1e-6)


def test_second_derivatives_through_indexing():
    x = jnp.array([1.0, 2, 3])
    at = np.array([0, 2, 0])
    cubes = jaxlite.jit(lambda x: jnp.sum(x[at] ** 3) + jnp.sum(x.at[1].set(x[0]) ** 3))
    hessian = jaxlite.jit(jaxlite.hessian(cubes))(x)
    np.testing.assert_allclose(hessian, np.diag([6 * 2 + 6 * 2, 0, 6 * 3 * 2]), rtol=1e-6)


# --- batching ----------------------------------------------------------------------------------------

SLICES: list[tuple[str, Callable, tuple[Any, ...], Any]] = [
    ("slice", lambda x: lax.slice(x, (1, 0), (3, 2)), (np.ones((4, 3)),), None),
    ("slice with strides", lambda x: lax.slice(x, (1, 0), (4, 3), (2, 1)), (np.ones((4, 3)),), None),
    ("dynamic_slice", lambda x, i, j: slicing.dynamic_slice_p.bind(x, i, j, slice_sizes=(2, 1)),
     (np.ones((4, 3)), np.int32(0), np.int32(0)), [(None, 0, 1, 2), (None, 0), (None, 0)]),
    ("dynamic_slice of a vector", lambda x, i: lax.dynamic_slice(x, (i,), (2,)), (np.ones(4), np.int32(0)), None),
    ("dynamic_slice by narrow positions", lambda x, i: slicing.dynamic_slice_p.bind(x, i, slice_sizes=(2,)),
     (np.ones(4), np.uint8(0)), None),
    ("dynamic_update_slice", lambda x, u, i, j: slicing.dynamic_update_slice_p.bind(x, u, i, j),
     (np.ones((4, 3)), np.ones((2, 1)), np.int32(0), np.int32(0)), [(None, 0, 2), (None, 0, 1), (None, 0), (None, 0)]),
]


def varied(which: int, value: np.ndarray) -> np.ndarray:
    """Other numbers of the same kind: floats to read, positions to read them at, some out of bounds."""
    if value.dtype.kind == "f":
        return checks.RNG.normal(size=value.shape).astype(np.float32)
    return np.asarray(checks.RNG.integers(0 if value.dtype.kind == "u" else -1, 5, value.shape), value.dtype)


@pytest.mark.parametrize(("name", "fun", "operands", "in_axes"), SLICES, ids=[row[0] for row in SLICES])
def test_batching_of_slices(name: str, fun: Callable, operands: tuple, in_axes: Any) -> None:
    checks.check_all_batchings(fun, operands, make=varied, in_axes=in_axes)


@pytest.mark.parametrize(("where", "mode"), WAYS[:3] + WAYS[4:])
def test_batching_of_gather_and_scatter(where: str, mode: str) -> None:
    (reads, writes), indices, box, shape = AT[where]
    x, u = np.ones((4, 3), np.float32), np.ones(shape, np.float32)

    def make(which: int, value: np.ndarray) -> np.ndarray:
        if value.dtype.kind == "f":
            return varied(which, value)
        if where == "boxes":
            return np.stack([checks.RNG.integers(0, 3, len(value)), checks.RNG.integers(0, 2, len(value))], 1)
        return value + checks.RNG.integers(-1, 2)

    checks.check_all_batchings(lambda x, i: lax.gather(x, i, reads, box, mode=mode), [x, indices], make=make,
                          in_axes=[(None, 0, 1, 2), (None, 0, 1, 2)])
    axes = [(None, 2), (None, 0, 1, 2), (None, 1)]
    checks.check_all_batchings(lambda x, i, u: lax.scatter_add(x, i, u, writes, mode=mode), [x, indices, u], make=make,
                          in_axes=axes, rtol=1e-6)


@pytest.mark.parametrize("name", ["scatter", "scatter_sub", "scatter_mul", "scatter_min", "scatter_max"])
def test_batching_of_the_scatter_family(name: str) -> None:
    fun = lambda x, i, u: getattr(lax, name)(x, i, u, ROWS_OF[1])
    x, u = np.ones((4, 3), np.float32), np.ones((2, 3), np.float32)
    make = lambda which, value: varied(which, value) if which != 1 else checks.RNG.permutation(5)[:2, None]
    checks.check_all_batchings(fun, [x, np.array([[0], [2]]), u], make=make, in_axes=[(None, 1), (None, 1), (0,)], rtol=1e-6)


def test_batches_larger_than_the_positions_type_can_count():
    x = np.arange(300 * 3, dtype=np.float32).reshape(300, 3)
    at = (np.arange(300) % 3).astype(np.uint8)
    got = jaxlite.vmap(lambda x, i: x[i])(x, at)
    np.testing.assert_array_equal(got, x[np.arange(300), at])
    got = jaxlite.vmap(lambda x, i: slicing.dynamic_slice_p.bind(x, i, slice_sizes=(1,)))(x, at)
    np.testing.assert_array_equal(got[:, 0], x[np.arange(300), at])
    got = jaxlite.vmap(lambda x, i: slicing.dynamic_update_slice_p.bind(x, np.zeros(1, np.float32), i))(x, at)
    assert [int(np.flatnonzero(row == 0)[-1]) for row in np.asarray(got)] == list(at)


def test_batching_of_indexing():
    x = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    at = np.array([[3, 0], [1, 1]], np.int32)
    np.testing.assert_array_equal(jaxlite.vmap(lambda x, i: x[i])(x, at), np.stack([x[0][at[0]], x[1][at[1]]]))
    np.testing.assert_array_equal(jaxlite.vmap(lambda x, i: x[i, 1], (None, 0))(jnp.asarray(x[0]), at), x[0][at, 1])
    along = jaxlite.vmap(lambda x, i: jnp.take_along_axis(x, i, 0))(x[:, :, 0], at)
    np.testing.assert_array_equal(along, np.take_along_axis(x[:, :, 0], at, 1))
    nested = jaxlite.vmap(jaxlite.vmap(lambda row, i: row[i], (0, None)), (0, 0))(x, at[:, 0] % 3)
    np.testing.assert_array_equal(nested, np.stack([x[0, :, 0], x[1, :, 1]]))


def test_batch_of_size_zero():
    x, at = np.zeros((0, 4), np.float32), np.zeros((0, 2), np.int32)
    assert jaxlite.vmap(lambda x, i: x[i])(x, at).shape == (0, 2)
    assert jaxlite.vmap(lambda x, i: x.at[i].add(1.0))(x, at).shape == (0, 4)


def test_derivative_of_a_batch_of_gathers():
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    at = np.array([[3, 0, 3], [1, 1, 1]], np.int32)
    slope = jaxlite.grad(lambda x: jnp.sum(jaxlite.vmap(lambda x, i: x[i])(x, at)))(x)
    np.testing.assert_array_equal(slope, [[1, 0, 0, 2], [0, 3, 0, 0]])
    each = jaxlite.vmap(jaxlite.grad(lambda x, i: jnp.sum(x[i])))(x, at)
    np.testing.assert_array_equal(each, slope)


# --- what the programs look like ---------------------------------------------------------------------


def names_of(jaxpr: Any) -> list[str]:
    """The primitives of a program, those inside calls among them."""
    names = []
    for eqn in jaxpr.eqns:
        names += names_of(eqn.params["jaxpr"].jaxpr) if eqn.primitive.name == "jit" else [eqn.primitive.name]
    return names


X, U, AT_ROWS, ONE = np.ones((3, 4), np.float32), np.ones((2, 4), np.float32), np.array([0, 2]), np.int32(1)
# Equations of the gradient of the sum, by the first operands that are floats, and of the batch along the second axis:
# as many as JAX 0.10.2 has, or fewer.
COUNTS: list[tuple[str, Callable, tuple, int, int]] = [
    ("x[1]", lambda x: x[1], (X,), 6, 3), ("x[1:, ::2]", lambda x: x[1:, ::2], (X,), 4, 2),
    ("x[-1, 2]", lambda x: x[-1, 2], (X,), 5, 3), ("x[:, at]", lambda x: x[:, AT_ROWS], (X,), 8, 5),
    ("x[i]", lambda x, i: x[i], (X, ONE), 13, 12), ("x[i] of rows", lambda x, i: x[i], (X, AT_ROWS), 9, 6),
    ("x[at, at]", lambda x: x[AT_ROWS, AT_ROWS], (X,), 12, 9),
    ("x[None, ..., 0]", lambda x: x[None, ..., 0], (X,), 8, 4),
    ("set", lambda x, u: x.at[0].set(u[0]), (X, U), 11, 6), ("set slice", lambda x, u: x.at[1:].set(u), (X, U), 7, 4),
    ("set constant", lambda x: x.at[0].set(0.0), (X,), 8, 5),
    ("set rows", lambda x, u: x.at[AT_ROWS].set(u), (X, U), 30, 6),
    ("set unique", lambda x, u: x.at[AT_ROWS].set(u, unique_indices=True), (X, U), 9, 6),
    ("add", lambda x, u: x.at[AT_ROWS].add(u), (X, U), 7, 6),
    ("multiply", lambda x, u: x.at[AT_ROWS].mul(u, unique_indices=True), (X, U), 10, 6),
    ("max", lambda x, u: x.at[AT_ROWS].max(u), (X, U), 38, 6),
    ("take_along_axis", lambda x: jnp.take_along_axis(x, np.zeros((3, 1), np.int32), 1), (X,), 9, 6),
    ("take", lambda x: jnp.take(x, AT_ROWS, axis=1), (X,), 9, 6),
    ("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i, i), (1, 2)), (X, ONE), 11, 11),
    ("dynamic_update_slice", lambda x, u: lax.dynamic_update_slice(x, u, (ONE, ONE)), (X, U), 6, 6),
]


@pytest.mark.parametrize(("name", "fun", "operands", "backward", "batch"), COUNTS, ids=[row[0] for row in COUNTS])
def test_counts_of_equations(name: str, fun: Callable, operands: tuple, backward: int, batch: int) -> None:
    operands = tuple(jnp.asarray(x) for x in operands)
    floats = tuple(index for index, x in enumerate(operands) if x.dtype == np.float32)
    gradient = jaxlite.make_jaxpr(jaxlite.grad(lambda *xs: jnp.sum(fun(*xs)), floats))(*operands)
    assert len(names_of(gradient.jaxpr)) <= backward, gradient
    batched = jaxlite.make_jaxpr(jaxlite.vmap(fun, in_axes=tuple(1 if index in floats else None
                                                                 for index in range(len(operands)))))
    jaxpr = batched(*[jnp.stack([x] * 5, 1) if index in floats else x for index, x in enumerate(operands)])
    assert len(names_of(jaxpr.jaxpr)) <= batch, jaxpr


@pytest.mark.parametrize(("fun", "expected"), [
    (lambda x: lax.slice(x, (1,), (3,)), ["slice", "pad"]),
    (lambda x: lax.slice(x, (0,), (4,), (2,)), ["slice", "pad"]),
    (lambda x: lax.dynamic_slice(x, (np.int32(1),), (2,)),
     ["dynamic_slice", "broadcast_in_dim", "dynamic_update_slice"]),
    (lambda x: lax.gather(x, np.array([[1]], np.int32), Gather((), (0,), (0,)), (1,)),
     ["gather", "broadcast_in_dim", "scatter-add"]),
    (lambda x: lax.scatter_add(x, np.array([[1]], np.int32), np.ones(1, np.float32), Scatter((), (0,), (0,))),
     ["scatter-add"]),
])
def test_programs_of_transposes(fun: Callable, expected: list) -> None:
    x = np.ones(4, np.float32)
    ct = np.ones(fun(x).shape, np.float32)
    assert names_of(jaxlite.make_jaxpr(lambda x: jaxlite.vjp(fun, x)[1](ct))(x).jaxpr) == expected


def test_gradients_of_several_gathers_are_scattered_to_one_array(monkeypatch):
    for kind in (layouts, spaces):  # unless arrays of this process are on explicit meshes, or in other memories
        monkeypatch.setattr(kind, "exist", False)
    one, other = np.array([0, 2, 2]), np.array([3, 0, 2])
    gradient = jaxlite.grad(lambda x: (x[one] * x[other]).sum() + 2 * x.sum())
    x = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    np.testing.assert_array_equal(gradient(x), [2 + 4 + 3, 2, 2 + 1 + 3 + 3, 2 + 1])
    names = names_of(jaxlite.make_jaxpr(gradient)(x).jaxpr)
    assert names.count("scatter-add") == 2 and "add_any" not in names


def test_one_position_for_the_batch_stays_a_slice():
    x = np.ones((5, 4, 3), np.float32)
    for dim in range(3):
        cut = jaxlite.vmap(lambda x: lax.dynamic_slice(x, (ONE, ONE), (1, 1)), in_axes=dim, out_axes=dim)
        names = names_of(jaxlite.make_jaxpr(cut)(x).jaxpr)
        assert names.count("dynamic_slice") == 1 and "gather" not in names
    at = jaxlite.vmap(lambda x, i: slicing.dynamic_slice_p.bind(x, i, i, slice_sizes=(1, 1)))
    assert "gather" in names_of(jaxlite.make_jaxpr(at)(x, np.arange(5)).jaxpr)
