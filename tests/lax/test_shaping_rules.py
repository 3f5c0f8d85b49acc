"""Derivative and batching rules of the primitives that change type, shape or order: rows of programs to check."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.lax import shaping
from jaxlite.traces.batching import Axis, batch_flat
from tests import rule_checks as checks

ALL = "jtb"
RULES = dict.fromkeys("convert_element_type reduce_precision broadcast_in_dim reshape transpose squeeze rev "
                      "concatenate pad split stack unstack tile copy optimization_barrier".split(), ALL)
RULES |= {"bitcast_convert_type": "jb", "stop_gradient": "jb", "iota": "jB", "empty": "jB", "dim_as_value": "jB"}


def test_every_primitive_has_its_rules():
    assert not checks.missing_rules(RULES, [shaping])


# Name, function, shapes of its operands. All are linear in their operands.
ROWS: list[tuple[str, Callable, tuple[tuple[int, ...], ...]]] = [
    ("broadcast to more axes", lambda x: lax.broadcast_in_dim(x, (2, 3, 4), (0, 2)), ((2, 4),)),
    ("broadcast stretches", lambda x: lax.broadcast_in_dim(x, (2, 3, 4), (1, 2)), ((1, 4),)),
    ("broadcast stretches all", lambda x: lax.broadcast_in_dim(x, (2, 3), (0, 1)), ((1, 1),)),
    ("broadcast a size of 1 to 1", lambda x: lax.broadcast_in_dim(x, (1, 3), (0, 1)), ((1, 3),)),
    ("broadcast a scalar", lambda x: lax.broadcast_in_dim(x, (2, 3), ()), ((),)),
    ("reshape", lambda x: lax.reshape(x, (3, 2)), ((2, 3),)),
    ("reshape that splits", lambda x: lax.reshape(x, (2, 2, 3)), ((4, 3),)),
    ("reshape that merges", lambda x: lax.reshape(x, (12,)), ((4, 3),)),
    ("reshape in another order", lambda x: lax.reshape(x, (6,), (1, 0)), ((2, 3),)),
    ("reshape to a scalar", lambda x: lax.reshape(x, ()), ((1, 1),)),
    ("reshape of nothing", lambda x: lax.reshape(x, (3, 0, 5)), ((0, 4),)),
    ("transpose", lambda x: lax.transpose(x, (2, 0, 1)), ((2, 3, 4),)),
    ("transpose a matrix", lambda x: lax.transpose(x, (1, 0)), ((2, 3),)),
    ("squeeze", lambda x: lax.squeeze(x, (0, 2)), ((1, 3, 1, 2),)),
    ("squeeze one", lambda x: lax.squeeze(x, (1,)), ((3, 1),)),
    ("rev", lambda x: lax.rev(x, (0, 2)), ((2, 3, 2),)),
    ("concatenate", lambda x, y: lax.concatenate([x, y], 1), ((2, 1), (2, 3))),
    ("concatenate in front", lambda x, y: lax.concatenate([x, y], 0), ((2, 3), (1, 3))),
    ("concatenate with itself", lambda x: lax.concatenate([x, x], 0), ((2,),)),
    ("pad around", lambda x, value: lax.pad(x, value, ((1, 2, 0), (0, 1, 0))), ((2, 3), ())),
    ("pad between", lambda x, value: lax.pad(x, value, ((1, 0, 2), (0, 0, 1))), ((2, 3), ())),
    ("pad cuts", lambda x, value: lax.pad(x, value, ((-1, 2, 0), (1, -2, 1))), ((3, 3), ())),
    ("pad nothing", lambda x, value: lax.pad(x, value, ((2, 1, 3),)), ((0,), ())),
    ("split", lambda x: list(lax.split(x, (1, 2), 1)), ((2, 3),)),
    ("split, one part used", lambda x: lax.split(x, (1, 2), 0)[1], ((3, 2),)),
    ("stack in front", lambda x, y: lax.stack([x, y], 0), ((2, 3), (2, 3))),
    ("stack behind", lambda x, y: lax.stack([x, y], 2), ((2, 3), (2, 3))),
    ("stack between", lambda x, y: lax.stack([x, y], 1), ((2, 3), (2, 3))),
    ("unstack", lambda x: list(lax.unstack(x, 0)), ((2, 3),)),
    ("unstack behind", lambda x: list(lax.unstack(x, 1)), ((3, 2),)),
    ("unstack, one part used", lambda x: lax.unstack(x, 1)[1], ((2, 3),)),
    ("tile", lambda x: lax.tile(x, (2, 3)), ((2, 3),)),
    ("tile by nothing", lambda x: lax.tile(x, (2, 0)), ((2, 3),)),
    ("copy", lambda x: shaping.copy_p.bind(x), ((2,),)),
    ("barrier", lambda x, y: lax.optimization_barrier([x, y]), ((2,), (3,))),
    ("barrier, one part used", lambda x, y: lax.optimization_barrier([x, y])[0], ((2,), (3,))),
]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("name", "fun", "shapes"), ROWS, ids=[row[0] for row in ROWS])
def test_derivatives(name: str, fun: Callable, shapes: tuple) -> None:
    primals = [np.asarray(np.random.default_rng(index).normal(size=shape)) for index, shape in enumerate(shapes)]
    outs, slopes = jaxlite.jvp(fun, primals, primals)  # linear: the derivative along x is the value at x
    for out, slope in zip(checks.as_list(outs), checks.as_list(slopes), strict=True):
        np.testing.assert_array_equal(out, slope)
    checks.check_transpose(fun, primals)


@pytest.mark.parametrize(("name", "fun", "shapes"), ROWS, ids=[row[0] for row in ROWS])
def test_batching_equals_a_loop(name: str, fun: Callable, shapes: tuple) -> None:
    operands = [np.asarray(np.arange(np.prod(shape)) + 10 * index, np.float32).reshape(shape)
                for index, shape in enumerate(shapes)]
    checks.check_all_batchings(fun, operands, make=lambda which, x: x + checks.RNG.integers(9),
                          in_axes=[(None, *range(len(shape) + 1)) for shape in shapes])


# --- types -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("old", "new"), [
    ("float32", "float64"), ("float64", "float32"), ("float32", "complex64"), ("complex64", "float32"),
    ("float16", "bfloat16"), ("complex128", "complex64"),
])
def test_conversion_between_inexact_types(old: str, new: str) -> None:
    x, v = jnp.array([0.5, -2], old), jnp.array([1, 2], old)
    out, slope = jaxlite.jvp(lambda x: lax.convert_element_type(x, new), (x,), (v,))
    assert out.dtype == slope.dtype == np.dtype(getattr(jnp, new).dtype) and not slope.weak_type
    np.testing.assert_array_equal(np.asarray(slope, complex), [1, 2])
    back = jaxlite.vjp(lambda x: lax.convert_element_type(x, new), x)[1](slope)[0]
    assert back.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(back, complex), [1, 2])


def test_conversions_to_and_from_integers_have_derivative_zero():
    out, slope = jaxlite.jvp(lambda x: lax.convert_element_type(x, np.int32), (np.float32([1.5]),), (np.float32([1]),))
    assert slope.dtype == jaxlite.dtypes.float0
    steps = jaxlite.grad(lambda x: lax.convert_element_type(lax.convert_element_type(x, np.int32), np.float32))
    assert steps(np.float32(2.5)) == 0
    assert jaxlite.grad(lambda x: lax.bitcast_convert_type(lax.bitcast_convert_type(x, np.int32), np.float32))(
        np.float32(2.5)) == 0


def test_reduce_precision_rounds_tangents_too():
    x = np.float32(1.3)
    out, slope = jaxlite.jvp(lambda x: lax.reduce_precision(x, 5, 2), (x,), (x,))
    assert out == slope == 1.25
    assert jaxlite.grad(lambda x: lax.mul(lax.reduce_precision(x, 5, 2), x))(x) == np.float32(1.25 + 1.25)
    checks.check_all_batchings(lambda x: lax.reduce_precision(x, 5, 2), [np.float32([1.3, 2.7])], in_axes=[(0, 1)])


@pytest.mark.parametrize(("value", "new"), [
    (np.float32([[1, 2], [3, 4]]), np.int32), (np.float32([[1, 2], [3, 4]]), np.int16),
    (np.arange(8, dtype=np.int16).reshape(2, 2, 2), np.float32), (np.float32(1.5), np.uint8),
])
def test_batching_of_bitcast(value: np.ndarray, new: type) -> None:
    checks.check_all_batchings(lambda x: lax.bitcast_convert_type(x, new), [value], in_axes=[range(value.ndim + 1)])


@pytest.mark.parametrize("new", [np.int32, np.float16, bool])
def test_batching_of_conversion(new: type) -> None:
    x = np.float32([[0, 1.5], [2, 3]])
    checks.check_all_batchings(lambda x: lax.convert_element_type(x, new), [x], in_axes=[(0, 2)])


# --- identities and constants ------------------------------------------------------------------------


def test_stop_gradient_of_an_array_is_the_array():
    x = jnp.arange(3.0)
    assert lax.stop_gradient({"x": x})["x"] is x
    assert jaxlite.make_jaxpr(lambda: lax.stop_gradient(x))().jaxpr.eqns[0].primitive.name == "stop_gradient"


def test_stop_gradient():
    x = np.float32([1, 2])
    slope = jaxlite.grad(lambda x: jnp.sum(x * lax.stop_gradient(x)))(x)
    np.testing.assert_array_equal(slope, x)
    np.testing.assert_array_equal(jaxlite.grad(lambda x: jnp.sum(lax.stop_gradient(x)))(x), [0, 0])
    both = jaxlite.grad(lambda x: jaxlite.grad(lambda y: lax.mul(lax.stop_gradient(y), y))(x))
    assert both(np.float32(3)) == 0
    checks.check_all_batchings(lax.stop_gradient, [np.float32([1, 2])], in_axes=[(0, 1)])


def test_constants_under_transformations():
    x = np.float32([1, 2, 3])
    count = lambda x: lax.mul(x, lax.iota(np.float32, 3))
    np.testing.assert_array_equal(jaxlite.vmap(count)(np.stack([x, x])), [[0, 2, 6]] * 2)
    np.testing.assert_array_equal(jaxlite.vjp(count, x)[1](x)[0], [0, 2, 6])


def test_barriers_of_tangents_leave_out_those_that_vanish():
    x = np.float32([1, 2])
    _, (slope, none) = jaxlite.jvp(lambda x: lax.optimization_barrier((x, np.float32(3))), (x,), (x,))
    np.testing.assert_array_equal(slope, x)
    assert none == 0
    assert backward_names(lambda x: lax.optimization_barrier((x, np.float32(3)))[0], x) == ["optimization_barrier"] * 2


# --- what the programs look like ---------------------------------------------------------------------


def backward_names(fun: Callable, *args: np.ndarray) -> list[str]:
    """The primitives of a pullback, after those that compute values."""
    out = jaxlite.eval_shape(fun, *args)
    ct = np.ones(out.shape, out.dtype)
    return [eqn.primitive.name for eqn in jaxlite.make_jaxpr(lambda *xs: jaxlite.vjp(fun, *xs)[1](ct))(*args).eqns]


@pytest.mark.parametrize(("fun", "shape", "expected"), [
    (lambda x: lax.broadcast_in_dim(x, (2, 3, 4), (1, 2)), (3, 4), ["broadcast_in_dim", "reduce_sum"]),
    (lambda x: lax.broadcast_in_dim(x, (2, 3), (0, 1)), (1, 3), ["broadcast_in_dim", "reduce_sum", "broadcast_in_dim"]),
    (lambda x: lax.reshape(x, (4, 3)), (3, 4), ["reshape", "reshape"]),
    (lambda x: lax.transpose(x, (1, 0)), (3, 4), ["transpose", "transpose"]),
    (lambda x: lax.squeeze(x, (0,)), (1, 4), ["squeeze", "broadcast_in_dim"]),
    (lambda x: lax.rev(x, (0,)), (3,), ["rev", "rev"]),
    (lambda x: lax.concatenate([x, x], 0), (3,), ["concatenate", "split", "add_any"]),
    (lambda x: lax.pad(x, np.float32(0), ((1, 1, 0),)), (3,), ["pad", "slice"]),
    (lambda x: lax.pad(x, np.float32(0), ((-1, 1, 0),)), (3,), ["pad", "pad", "slice"]),
    (lambda x: lax.split(x, (1, 2))[1], (3,), ["split", "broadcast_in_dim", "concatenate"]),
    (lambda x: lax.stack([x, x]), (3,), ["stack", "unstack", "add_any"]),
    (lambda x: lax.tile(x, (2, 3)), (3, 4), ["tile", "reshape", "reduce_sum"]),
])
def test_programs_of_transposes(fun: Callable, shape: tuple, expected: list) -> None:
    assert backward_names(fun, np.ones(shape, np.float32)) == expected


@pytest.mark.parametrize(("fun", "expected"), [
    (lambda x: lax.reshape(x, (2, 2, 3)), ["reshape"]), (lambda x: lax.transpose(x, (1, 0)), ["transpose"]),
    (lambda x: lax.pad(x, np.float32(0), ((1, 1, 0), (0, 0, 0))), ["pad"]),
    (lambda x: lax.broadcast_in_dim(x, (4, 2, 3), (0, 2)), ["broadcast_in_dim"]),
    (lambda x: lax.concatenate([x, x], 0), ["concatenate"]), (lambda x: lax.rev(x, (0,)), ["rev"]),
    (lambda x: lax.tile(x, (2, 1)), ["tile"]), (lambda x: lax.stack([x, x], 1), ["stack"]),
])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_batching_does_not_move_axes(fun: Callable, expected: list, dim: int) -> None:
    batch = np.ones((4, 3)[:dim] + (5,) + (4, 3)[dim:], np.float32)
    jaxpr = jaxlite.make_jaxpr(lambda x: batch_flat(lambda x: [fun(x)], [x], [dim], Axis(5))[0])(batch)
    assert [eqn.primitive.name for eqn in jaxpr.eqns] == expected


@pytest.mark.parametrize(("size", "expected"), [(4, (4, 3)), (16, (3, 16))])
def test_joining_with_what_is_not_batched_makes_no_short_rows(size: int, expected: tuple) -> None:
    batch = np.ones((2, size), np.float32)
    joined = lambda x: [lax.concatenate([np.zeros(1, np.float32), x], 0)]
    jaxpr = jaxlite.make_jaxpr(lambda x: batch_flat(joined, [x], [1], Axis(size))[0])(batch)
    assert [eqn.outvars[0].aval.shape for eqn in jaxpr.eqns if eqn.primitive.name == "concatenate"] == [expected]


def test_scalars_of_examples_go_where_the_batch_is() -> None:
    product = lambda x, y: [lax.mul(x, y)]
    whole, scalars = np.arange(12.0, dtype=np.float32).reshape(3, 4), np.arange(4.0, dtype=np.float32)
    run = lambda x, y: batch_flat(product, [x, y], [1, 0], Axis(4))[0]
    assert "transpose" not in [eqn.primitive.name for eqn in jaxlite.make_jaxpr(run)(whole, scalars).eqns]
    np.testing.assert_array_equal(jaxlite.vmap(lambda x, y: x * y, (1, 0), 1)(whole, scalars), whole * scalars)
