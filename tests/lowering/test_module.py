"""What the lowering of one equation shares with that of another, and what it keeps XLA from computing itself."""

import re

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from lowering import xla

MATRIX = np.linspace(1.0, 2.0, 64, dtype=np.float32).reshape(8, 8)


def test_a_quotient_is_broadcast_for_each_reader_and_a_matrix_updated_in_place():
    """XLA would multiply by the reciprocal of a shared one, which it computes of the matrix while that is changed."""
    def turn(index, matrix):
        quotient = 2.0 / matrix[index, index]
        column = matrix[:, index] / quotient
        return matrix.at[:, index].set(column + jnp.sum(quotient * column))

    lowered = jax.jit(lambda matrix: lax.fori_loop(0, 8, turn, matrix)).lower(MATRIX)
    (quotient,) = re.findall(r"(%\d+) = stablehlo.divide .* : tensor<f32>", lowered.as_text())
    assert len(re.findall(rf"broadcast_in_dim {quotient},", lowered.as_text())) == 2
    expected = MATRIX.astype(float)
    for index in range(8):
        expected = np.asarray(turn(index, jnp.asarray(expected)))
    np.testing.assert_allclose(lowered.compile()(MATRIX), expected, rtol=1e-4)


def test_other_scalars_are_broadcast_once():
    shared = jax.jit(lambda x, y: (lambda sine: (x * sine + 1) / sine)(jnp.sin(y))).lower(MATRIX, np.float32(2)).as_text()
    (sine,) = re.findall(r"(%\d+) = stablehlo.sine", shared)
    assert len(re.findall(rf"broadcast_in_dim {sine},", shared)) == 1


def test_constants_are_constants_of_the_functions_with_loops_that_read_them():
    """A loop carries what it reads of a function's parameters, and XLA then makes kernels of what does not change in it."""
    table = np.arange(5, dtype="f")

    @jax.jit
    def repeated(x, by, count):
        return lax.while_loop(lambda carry: carry[0] < count, lambda carry: (carry[0] + 1, carry[1] * by + 1), (0, x))[1]

    def f(x):
        return repeated(x, table, 3) + repeated(x + 1, table, 3) + repeated(x, table + 1, 3) + repeated(x, x, 3)

    lowered = jax.jit(f).lower(table)
    calls = re.findall(r"call @(repeated\w*)\((.*?)\)", lowered.as_text())
    assert [operands.count("%") for _, operands in calls] == [1, 1, 1, 2]
    assert calls[0][0] == calls[1][0] and len({name for name, _ in calls}) == 3

    def expected(x, by):
        for _ in range(3):
            x = x * by + 1
        return x

    np.testing.assert_allclose(lowered.compile()(table), expected(table, table) + expected(table + 1, table)
                               + expected(table, table + 1) + expected(table, table))


@pytest.mark.parametrize("dtype", ["complex64", "bfloat16", "float8_e4m3fn", "int4", "bool"])
def test_constants_of_all_dtypes_are_passed_to_functions(dtype):
    table = jnp.array([0, 1], dtype)
    chosen = jax.jit(lambda x, y: jnp.where(y != 0, x, 7))
    repeated = jax.jit(lambda x, y: lax.fori_loop(0, 2, lambda _, x: jnp.where(y != 0, x * 2, 7), x))
    one, other = jax.jit(lambda x: (chosen(x, table), repeated(x, table)))(jnp.arange(2) + 1)
    assert one.tolist() == [7, 2] and other.tolist() == [7, 8]


def test_functions_that_call_one_another_twice_are_looked_at_once():
    f = lambda x, y: jnp.sin(x) * y
    for _ in range(40):
        f = jax.jit(lambda x, y, f=f: f(x, y) + f(x, y))
    assert jax.jit(lambda x: f(x, 2.0)).lower(1.0).as_text().count("func.func") == 41


def test_other_functions_are_shared_by_all_constants():
    added = jax.jit(lambda x, y: jnp.sin(x) + y)
    text = jax.jit(lambda x: added(x, 1.0) + added(x, 2.0)).lower(MATRIX).as_text()
    assert text.count("stablehlo.sine") == 1


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint16", "int64"])
def test_constants_are_divided_by_zero(dtype, x64):
    """XLA of jaxlib 0.10 ends the process where it divides them when it compiles."""
    ones, zeros = np.ones(2, dtype), np.zeros((0, 2), dtype)

    def f():
        total = jnp.sum(zeros, 0, dtype=dtype)
        return (lax.div(ones, ones * 0), lax.rem(ones, np.array([1, 0], dtype)), lax.div(total, jnp.zeros(2, dtype)),
                lax.rem(total, jnp.full(2, 0, dtype)), jnp.mean(zeros, dtype=dtype))

    every_bit = np.array(-1).astype(dtype)
    for found, expected in zip(jax.jit(f)(), (every_bit, [0, 1], every_bit, 0, every_bit), strict=True):
        np.testing.assert_array_equal(found, np.broadcast_to(expected, found.shape))


@pytest.mark.parametrize("dtype", ["int4", "uint8", "int32"])
def test_what_xla_finds_to_be_constant_is_divided_by_zero(dtype):
    table = jnp.array([0, 3, 0], dtype)
    five = np.array(5, dtype)

    def f(x):
        by_zero = [x - x, x * 0, table[2], jnp.flip(table)[0], lax.integer_pow(table[0], 2), jnp.array(False).astype(dtype)]
        for found in (lax.cond(True, lambda zero: zero, lambda zero: x, table[0]), jax.jit(lambda y: y * 0)(five)):
            by_zero.append(found)
        quotients = [lax.div(five, zero) for zero in by_zero]
        return (quotients, [lax.rem(five, zero) for zero in by_zero],
                lax.scan(lambda c, y: (c, lax.div(five, y)), 0, table, unroll=True)[1],
                lax.associative_scan(lax.div, table), lax.div(np.full(3, five), table), lax.rem(x, five), lax.div(table, x))

    quotients, remainders, *others = jax.jit(f)(jnp.array(3, dtype))
    every_bit = np.array(~0 if dtype[0] == "i" else 255)
    assert all(np.asarray(found).astype(int) == every_bit for found in quotients)
    assert all(np.asarray(found).astype(int) == 5 for found in remainders)
    for found, expected in zip(others, ([every_bit, 1, every_bit], [0, 0, every_bit], [every_bit, 1, every_bit], 3, [0, 1, 0]),
                               strict=True):
        np.testing.assert_array_equal(np.asarray(found).astype(int), expected)


def test_arrays_of_integers_are_divided_beside_zeros():
    x, y = np.arange(-9, 9, dtype=np.int32), np.resize(np.array([2, 0, -3, 1, -1], np.int32), 18)
    lowered = jax.jit(lambda x, y: (lax.div(x, y), lax.rem(x, y), x // y, x % y)).lower(x, y)
    assert "stablehlo.select" in lowered.as_text()
    quotient, remainder, floor, modulo = lowered.compile()(x, y)
    by, some = np.where(y == 0, 1, y), y != 0
    np.testing.assert_array_equal(quotient, np.where(some, np.trunc(x / by).astype(int), -1))
    np.testing.assert_array_equal(remainder, np.where(some, np.fmod(x, by), x))
    np.testing.assert_array_equal(floor[some], (x // by)[some])
    np.testing.assert_array_equal(modulo[some], (x % by)[some])
    by_one_number = jax.jit(lambda x, n: lax.div(x, lax.broadcast(n, (18,)))).lower(x, y[0]).as_text()
    assert ("stablehlo.select" in by_one_number) == xla.DIVIDES_BY_ZERO
