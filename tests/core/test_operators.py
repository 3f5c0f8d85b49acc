"""Operators of arrays and tracers: values against NumPy, reflected forms, deferral to other types, errors."""

import inspect
import operator

import ml_dtypes
import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp

ARRAY = type(jnp.add(1, 1))
X = np.array([[5.0, -3.0, 0.5], [2.0, 7.0, -1.5]], "f4")
Y = np.array([2.0, -4.0, 3.0], "f4")
I, J = np.array([6, -7, 12, 3]), np.array([4, 3, -5, 2])
B, C = np.array([True, False, True, False]), np.array([True, True, False, False])

ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, divmod]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
BITS = [operator.and_, operator.or_, operator.xor]
SHIFTS = [operator.lshift, operator.rshift]
UNARY = [operator.neg, operator.pos, operator.abs]


def name(op):
    return op.__name__


def same(got, expected):
    if isinstance(expected, tuple):
        assert isinstance(got, tuple)
        for one, other in zip(got, expected, strict=True):
            same(one, other)
        return
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-6)


CASES = [
    *((op, X, Y) for op in [*ARITHMETIC, *COMPARISONS]),
    *((op, I, J) for op in [*ARITHMETIC, *COMPARISONS, *BITS]),
    *((op, I, abs(J)) for op in [*SHIFTS, operator.pow]),
    *((op, B, C) for op in [*BITS, operator.add, operator.mul, *COMPARISONS]),
    (operator.pow, abs(X), Y),
]


def test_operators_on_arrays_and_tracers_are_numpys():
    pairs = [(jnp.asarray(x), jnp.asarray(y)) for _, x, y in CASES]
    traced = jax.jit(lambda pairs: [op(x, y) for (op, _, _), (x, y) in zip(CASES, pairs, strict=True)])(pairs)
    for (op, x, y), (a, b), inside in zip(CASES, pairs, traced, strict=True):
        expected = op(x, y)
        same(op(a, b), expected)
        same(inside, expected)


def test_operators_with_scalars_on_either_side():
    ops = [*ARITHMETIC, *COMPARISONS, operator.pow]
    x, i = jnp.asarray(abs(X)), jnp.asarray(abs(I))

    def both(x, i):
        return [(op(x, 2), op(2.5, x), op(i, 3), op(2, i)) for op in ops]

    for op, (a, b, c, d) in zip(ops, jax.jit(both)(x, i), strict=True):
        for got, expected in ((a, op(abs(X), 2)), (b, op(np.float32(2.5), abs(X))), (c, op(abs(I), 3)),
                              (d, op(2, abs(I)))):
            if op is not operator.pow or np.all(np.asarray(expected) < 2**31):
                same(got, expected)
    same(x + 1, abs(X) + 1)
    same(1 - x, 1 - abs(X))
    same(2**x, 2 ** abs(X))
    same(divmod(7, i), divmod(7, abs(I)))
    same(1 << jnp.asarray(abs(J)), 1 << abs(J))
    same(True & jnp.asarray(B), B)


def test_unary_operators():
    got = jax.jit(lambda x, i, b: ([op(x) for op in UNARY], [op(i) for op in UNARY], ~i, ~b))(X, I, B)
    for ours, op in zip(got[0], UNARY, strict=True):
        same(ours, op(X))
    for ours, op in zip(got[1], UNARY, strict=True):
        same(ours, op(I))
    same(got[2], ~I)
    same(got[3], ~B)
    same(abs(jnp.asarray(B)), B)
    same(-jnp.asarray(X), -X)


def test_round():
    assert round(jnp.asarray(X)).dtype == np.int32
    same(round(jnp.asarray(X)), np.round(X))
    same(round(jnp.asarray(X), 1), np.round(X, 1))


def test_matmul_operator():
    same(jnp.asarray(X) @ Y, X @ Y)
    same(Y @ jnp.asarray(X.T), Y @ X.T)
    same(jax.jit(lambda x, y: x @ y)(X, Y), X @ Y)


@pytest.mark.parametrize("op", [*ARITHMETIC, *COMPARISONS, operator.pow], ids=name)
def test_numpy_arrays_and_scalars_on_the_left_give_arrays(op):
    x = jnp.asarray(abs(X))
    got = op(np.ones(3), x)
    for each in got if isinstance(got, tuple) else (got,):
        assert type(each) is ARRAY and each.shape == X.shape
    got = op(np.float32(2), x)
    assert type(got[0] if isinstance(got, tuple) else got) is ARRAY


def test_numpy_arrays_meet_tracers():
    same(jax.jit(lambda x: np.ones(3, "f4") + x * np.float32(2))(X), 1 + X * 2)
    same(jax.jit(lambda x: np.float64(2.0) - x)(X), 2 - X)


def test_result_types():
    f2, f4, i1, u1 = (jnp.asarray(np.ones(2, dtype)) for dtype in ("f2", "f4", "i1", "u1"))
    bf = jnp.asarray(np.ones(2, ml_dtypes.bfloat16))
    assert (f2 + 1.5).dtype == np.float16 and (f2 + f4).dtype == np.float32 and (f2 + bf).dtype == np.float32
    assert (i1 + 1).dtype == np.int8 and (i1 + u1).dtype == np.int16 and (i1 + 1.0).dtype == np.float32
    assert (i1 / 2).dtype == np.float32 and (bf * 2).dtype == bf.dtype and (f4 * 1j).dtype == np.complex64
    assert (f4 > 0).dtype == bool and (i1 // 2).dtype == np.int8


def test_assignment_operators_bind_a_new_array():
    x = y = jnp.asarray(X)
    x += 1
    x *= 2
    x -= Y
    x /= 4
    same(x, ((X + 1) * 2 - Y) / 4)
    same(y, X)
    i = j = jnp.asarray(I)
    i //= 2
    i %= 3
    i <<= 2
    i >>= 1
    i |= 1
    i &= 7
    i ^= 2
    i **= 2
    same(i, (((((((I // 2) % 3) << 2) >> 1) | 1) & 7) ^ 2) ** 2)
    same(j, I)


class Other:
    """A type that handles our arrays itself."""

    def __radd__(self, left):
        return "radd", type(left)

    def __rmatmul__(self, left):
        return "rmatmul"

    def __eq__(self, left):
        return "eq"

    def __gt__(self, left):
        return "gt"

    __hash__ = None


def test_other_types_get_their_chance():
    x = jnp.asarray(X)
    assert x + Other() == ("radd", ARRAY)
    assert (x == Other()) == "eq" and (x < Other()) == "gt" and x @ Other() == "rmatmul"
    assert jax.jit(lambda x: (x + Other())[0] == "radd" and x)(X).shape == X.shape
    for other in (None, "a", object(), {}, {1}):
        assert x.__add__(other) is NotImplemented and x.__radd__(other) is NotImplemented
        assert x.__eq__(other) is NotImplemented


def test_objects_that_stand_for_arrays():
    class Parameter:
        def __jax_array__(self):
            return jnp.asarray(Y)

    x = jnp.asarray(X)
    same(x + Parameter(), X + Y)
    same(jax.jit(lambda x: x * Parameter())(X), X * Y)
    same(Parameter() + x, X + Y)
    same(jax.jit(lambda: jnp.add(Parameter(), Parameter()))(), 2 * Y)


def test_comparison_with_what_is_no_array():
    x = jnp.asarray(X)
    assert (x == None) is False and (x != None) is True  # noqa: E711
    assert (x == "a") is False and (x != "a") is True
    assert (None == x) is False  # noqa: E711
    for bad in (None, "a", object()):
        with pytest.raises(TypeError, match="not supported between"):
            x < bad  # noqa: B015


@pytest.mark.parametrize("op", [*ARITHMETIC, *BITS, *COMPARISONS, operator.pow, operator.matmul], ids=name)
@pytest.mark.parametrize("other", [[1.0, 2.0, 3.0], (1.0, 2.0, 3.0)], ids=["list", "tuple"])
def test_lists_and_tuples_are_refused(op, other):
    x = jnp.asarray(X)
    with pytest.raises(TypeError):
        op(x, other)
    with pytest.raises(TypeError):
        jax.jit(lambda x: op(x, other))(X)
    with pytest.raises(TypeError):
        op(other, x)


@pytest.mark.parametrize("bad", [None, "a", object()], ids=["None", "str", "object"])
def test_other_objects_are_refused(bad):
    x = jnp.asarray(X)
    for op in (operator.add, operator.pow, operator.and_, divmod):
        with pytest.raises(TypeError, match="unsupported operand"):
            op(x, bad)
        with pytest.raises(TypeError):
            op(bad, x)


def test_errors_of_operators():
    x, b = jnp.asarray(X), jnp.asarray(B)
    with pytest.raises(TypeError, match="bool"):
        operator.sub(b, b)
    with pytest.raises(TypeError, match="bool"):
        operator.neg(b)
    with pytest.raises(TypeError, match="float32"):
        operator.and_(x, 1)
    with pytest.raises(TypeError, match="float32"):
        operator.lshift(x, 1)
    with pytest.raises(TypeError, match="float32"):
        operator.invert(x)
    with pytest.raises(TypeError, match=r"\(2, 3\).*\(2,\)|\(2,\).*\(2, 3\)|broadcast"):
        x + jnp.asarray(np.ones((2, 2), "f4"))
    with pytest.raises(TypeError, match="negative powers"):
        jnp.asarray(I) ** -1
    with pytest.raises(OverflowError):
        x + 2**40


def test_powers_by_operator():
    x = jnp.asarray(abs(X))
    same(x**2, abs(X) ** 2)
    same(x**-1, 1 / abs(X))
    same(x**0.5, abs(X) ** 0.5)
    same(x ** jnp.asarray(3), abs(X) ** 3)
    assert [eqn.primitive.name for eqn in jax.make_jaxpr(lambda x: x ** jnp.asarray(np.int32(3)))(X).eqns] in (
        ["integer_pow"], ["convert_element_type", "pow"], ["pow"])


def test_shapes():
    scalar, empty = jnp.asarray(np.float32(2)), jnp.asarray(np.zeros((0, 3), "f4"))
    assert (scalar + scalar).shape == () and (scalar + empty).shape == (0, 3) and (empty * Y).shape == (0, 3)
    assert (jnp.asarray(X) + scalar).shape == (2, 3) and (jnp.asarray(X[:, :1]) + jnp.asarray(Y)).shape == (2, 3)


def test_operators_do_not_change_their_operands():
    x = jnp.asarray(X)
    before = np.array(x)
    _ = x + 1, x * x, -x, x > 0, x**2
    np.testing.assert_array_equal(before, x)


def test_a_chain_of_operators_is_one_flat_program():
    program = jax.make_jaxpr(lambda x, y: (x + y) * 2 - x / y > 0)(X, Y)
    assert [eqn.primitive.name for eqn in program.jaxpr.eqns] == [
        "broadcast_in_dim", "add", "mul", "broadcast_in_dim", "div", "sub", "gt"]


def test_python_scalars_come_from_arrays_without_axes_alone():
    for kind in (int, float, complex):
        assert kind(jnp.array(3.0)) == 3
        for x in (jnp.ones(1), jnp.ones((1, 1)), jnp.ones(0)):
            with pytest.raises(TypeError, match="Only scalar arrays can be converted"):
                kind(x)
            with pytest.raises(TypeError, match="Only scalar arrays can be converted"):
                jax.jit(kind)(x)
    assert jnp.ones((1, 1)).item() == 1.0


def test_methods_of_arrays_are_methods_of_tracers():
    methods = [each for each in dir(ARRAY) if not each.startswith("_") and callable(getattr(ARRAY, each))]
    missing = []

    def f(x):
        missing.append({each for each in methods if not callable(getattr(x, each, None))})
        return x.sum()

    jax.make_jaxpr(f)(X), jax.grad(f)(X), jax.vmap(f)(X)
    of_buffers = set("block_until_ready clone copy_to_host_async delete is_deleted is_ready on_device_size_in_bytes platform "
                     "unsafe_raw_buffer".split())
    assert "var" in methods and len(missing) == 3 and set().union(*missing) <= of_buffers


def test_methods_show_the_parameters_of_their_functions():
    for value in (jnp.ones(3), ARRAY):
        parameters = list(inspect.signature(value.sum).parameters)
        assert parameters[-6:] == list(inspect.signature(jnp.sum).parameters)[-6:] and ("a" in parameters) == (value is ARRAY)
    assert list(inspect.signature(jnp.ones(3).take).parameters)[:2] == ["indices", "axis"]
    assert "<not-specified>" in str(inspect.signature(jax.jit))


@pytest.mark.parametrize("size", [1, 32, 33, 100, 101, 250])
def test_rows_come_in_order_and_when_they_are_asked_for(size):
    x = np.arange(3 * size, dtype=np.int32).reshape(size, 3)
    array = jnp.asarray(x)
    rows = list(array)
    assert len(rows) == size and all(type(row) is type(array) and row.dtype == x.dtype for row in rows)
    np.testing.assert_array_equal(np.stack(rows), x)
    first = next(iter(array))
    np.testing.assert_array_equal(first, x[0])
    gone = iter(array)
    array.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        next(gone)


def test_large_rows_are_read_one_by_one():
    x = np.arange(40 * 5000, dtype=np.float32).reshape(40, 5000)
    np.testing.assert_array_equal(np.stack(list(jnp.asarray(x))), x)
