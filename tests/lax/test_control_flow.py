"""cond, switch, while_loop, fori_loop, scan, map, associative_scan: against plain Python, eagerly and compiled."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections import namedtuple
from functools import partial

import numpy as np
import pytest

import jaxlite
from jaxlite import jit, lax
from jaxlite import numpy as jnp
from jaxlite.core.jaxpr import ClosedJaxpr, check_jaxpr
from jaxlite.traces.eager import eager_trace
from lowering import xla

f32 = np.float32
Point = namedtuple("Point", "x y")


def eager(fun):
    return fun


both_ways = pytest.mark.parametrize("way", [eager, jit], ids=["eager", "jit"])


def array(*values, dtype=np.float32):
    return np.array(values, dtype)


def eqn_of(name, fun, *args):
    """The equation of a primitive in the jaxpr of a function, after the checker has seen it."""
    closed = jaxlite.make_jaxpr(fun)(*args)
    check_jaxpr(closed)
    (found,) = [eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == name]
    return found


def same_tree_and_values(result, expected, rtol=1e-6):
    got_leaves, got_tree = jaxlite.tree.flatten(result)
    leaves, tree = jaxlite.tree.flatten(expected)
    assert got_tree == tree
    for got, want in zip(got_leaves, leaves, strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=rtol)
        assert np.shape(got) == np.shape(want)


def python_scan(f, init, xs, length=None, reverse=False):
    """The meaning of scan, on NumPy values."""
    leaves = jaxlite.tree.leaves(xs)
    length = len(leaves[0]) if leaves else length
    order = reversed(range(length)) if reverse else range(length)
    ys = [None] * length
    carry = init
    for index in order:
        carry, ys[index] = f(carry, jaxlite.tree.map(lambda x, at=index: x[at], xs))
    return carry, jaxlite.tree.map(lambda *rows: np.stack(rows), *ys)


# --- cond and switch ---------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("pred", [True, False, np.bool_(True), 0, 7, 0.0, -2.5, np.int8(0), np.uint8(3),
                                  np.array(True), np.array(0.0, f32), np.float16(np.nan)], ids=repr)
def test_cond_takes_the_branch_that_python_takes(way, pred):
    run = way(lambda p, x: lax.cond(p, lambda x: x + 1, lambda x: -x, x))
    assert run(pred, 3.0) == (4.0 if pred else -3.0)


@both_ways
@pytest.mark.parametrize("index", [-5, -1, 0, 1, 2, 3, 100, np.int8(-3), np.uint8(200), np.uint32(4_000_000_000),
                                   np.int16(1)], ids=repr)
def test_switch_clips_its_index(way, index):
    branches = [lambda x: x, lambda x: x * 10, lambda x: x * 100]
    assert way(lambda i, x: lax.switch(i, branches, x))(index, 1.0) == 10.0 ** min(max(int(index), 0), 2)


def test_switch_with_a_64_bit_index_does_not_wrap(x64):
    assert jit(lambda i: lax.switch(i, [lambda: 1, lambda: 2]))(np.int64(1 << 32)) == 2
    assert jit(lambda i: lax.switch(i, [lambda: 1, lambda: 2]))(np.int64(-(1 << 32))) == 1


def test_switch_of_one_branch_is_that_branch():
    assert [eqn.primitive.name for eqn in jaxlite.make_jaxpr(lambda i, x: lax.switch(i, [lax.sin], x))(0, 1.0).eqns
            ] == ["sin"]
    with pytest.raises(ValueError, match="Empty branch sequence"):
        lax.switch(0, [])


@both_ways
def test_branches_close_over_tracers_and_arrays(way):
    table = array(10, 20, 30)

    def run(p, x, y):
        return lax.cond(p, lambda x: {"a": x + y, "b": (table, None)}, lambda x: {"a": x * table, "b": (x, None)}, x)

    x, y = array(1, 2, 3), array(4, 5, 6)
    same_tree_and_values(way(run)(True, x, y), {"a": x + y, "b": (table, None)})
    same_tree_and_values(way(run)(False, x, y), {"a": x * table, "b": (x, None)})


def test_a_batch_factors_matrices_only_if_one_of_them_takes_that_branch():
    def extreme(matrix):
        symmetric = matrix + matrix.T
        return lax.cond(matrix[0, 0] > 0, lambda s: s.max(), lambda s: jnp.linalg.eigh(s)[0][-1], symmetric)

    matrices = np.random.default_rng(0).standard_normal((4, 3, 3)).astype(np.float32)
    matrices[:, 0, 0] = [1, 2, -1, 1]
    batched = jit(jaxlite.vmap(extreme))
    for each in (matrices, abs(matrices)):  # in some, in none
        np.testing.assert_allclose(batched(each), [extreme(matrix) for matrix in each], rtol=1e-5)
    outer = [eqn.primitive.name for eqn in jaxlite.make_jaxpr(batched)(matrices).jaxpr.eqns[0].params["jaxpr"].jaxpr.eqns]
    assert "cond" in outer and "eigh" not in outer
    slopes = jaxlite.grad(lambda x: jaxlite.vmap(extreme)(x).sum())(matrices)
    np.testing.assert_allclose(slopes, np.stack([jaxlite.grad(extreme)(matrix) for matrix in matrices]), atol=1e-5)


@both_ways
def test_conds_in_conds_and_in_loops(way):
    def step(i, x):
        return lax.cond(i % 2 == 0, lambda x: lax.cond(x > 10, lambda x: x - 10, lambda x: x + i, x),
                        lambda x: x * 2, x)

    def plain(n):
        x = 1
        for i in range(n):
            x = (x - 10 if x > 10 else x + i) if i % 2 == 0 else x * 2
        return x

    run = way(lambda n: lax.fori_loop(0, n, step, 1))
    for n in (0, 1, 5, 12):
        assert run(n) == plain(n)


def test_older_forms_of_cond():
    assert lax.cond(True, 2, lambda x: x + 1, 3, lambda x: x) == 3
    assert lax.cond(False, 2, lambda x: x + 1, 3, lambda x: x) == 3
    assert lax.cond(False, lambda x: x + 1, lambda x: x, operand=5) == 5
    assert lax.cond(True, lambda x: x is None, lambda x: False, operand=None)
    assert lax.switch(1, [lambda x: x, lambda x: x + 1], operand=3) == 4


def test_structure_of_cond():
    c, d = array(1, 1, 1), array(2, 2, 2)
    eqn = eqn_of("cond", lambda p, x: lax.cond(p, lambda x: x + c, lambda x: x * d, x), True, array(1, 2, 3))
    assert list(eqn.params) == ["branches"]
    assert [branch.eqns[0].primitive.name for branch in eqn.params["branches"]] == ["mul", "add"]  # False is 0
    assert all(type(branch) is ClosedJaxpr and not branch.consts for branch in eqn.params["branches"])
    assert [format(atom.aval) for atom in eqn.invars] == ["int32[]", "float32[3]", "float32[3]", "float32[3]"]
    # What all branches return as it came in does not go through the equation.
    eqn = eqn_of("cond", lambda p, x: lax.cond(p, lambda x, y: (x, y), lambda x, y: (x, -y), x, x + 1), True, 1.0)
    assert len(eqn.outvars) == 1
    names = [eqn.primitive.name for eqn in jaxlite.make_jaxpr(
        lambda i: lax.switch(i, [lambda: 1, lambda: 2]))(np.int8(0)).eqns]
    assert names == ["convert_element_type", "clamp", "cond"]


def test_weak_types_of_branches():
    assert lax.cond(True, lambda x: 1.0, lambda x: x, 2.0).weak_type
    for run in (lambda f, *args: f(*args), lambda f, *args: jit(f)(*args)):  # the first branch, for False, decides
        assert not run(lambda x: lax.cond(x > 0, lambda x: 1.0, lambda x: x + 1, x), f32(2)).weak_type
        assert run(lambda x: lax.cond(x > 0, lambda x: x + 1, lambda x: 1.0, x), f32(2)).weak_type
        assert run(lambda x: lax.switch(1, [lambda x: 1.0, lambda x: x], x), f32(2)).weak_type
    assert lax.cond(True, lambda: 1, lambda: 2).dtype == np.int32


@pytest.mark.parametrize("call, error, words", [
    (lambda: lax.cond(array(1, 2), lambda: 1, lambda: 2), TypeError, "Pred must be a scalar.*shape \\(2,\\)"),
    (lambda: lax.cond("yes", lambda: 1, lambda: 2), TypeError, "Pred must be a scalar, got 'yes'"),
    (lambda: lax.cond(None, lambda: 1, lambda: 2), TypeError, "predicate is None"),
    (lambda: lax.cond(1j, lambda: 1, lambda: 2), TypeError, "either boolean or number, got complex64"),
    (lambda: lax.cond(True, None, lambda: 2), TypeError, "should be callable"),
    (lambda: lax.cond(True, lambda x: x, lambda x: x, 1, operand=2), TypeError, "no positional operands"),
    (lambda: lax.cond(True, lambda x: x, lambda x: x, {"a": "text"}), TypeError,
     r"operands of cond\[0\]\['a'\].*'text'"),
    (lambda: lax.cond(True, lambda: "text", lambda: 1), TypeError, "returned a value of type <class 'str'>"),
    (lambda: lax.cond(True, lambda: (1, 2), lambda: 1), TypeError, "same pytree structure"),
    (lambda: lax.cond(True, lambda: {"a": 1, "b": array(1)}, lambda: {"a": 1, "b": array(1, 2)}), TypeError,
     r"output of true_fun at path \['b'\] has type float32\[1\].*of false_fun has type float32\[2\].*shapes do not"),
    (lambda: lax.cond(True, lambda: 1.0, lambda: 1), TypeError, "weak float32.*weak int32.*dtypes do not match"),
    (lambda: lax.switch(1.5, [lambda: 1, lambda: 2]), TypeError, "must be an integer"),
    (lambda: lax.switch(True, [lambda: 1, lambda: 2]), TypeError, "must be an integer"),
    (lambda: lax.switch("1", [lambda: 1, lambda: 2]), TypeError, "must be scalar"),
    (lambda: lax.switch(array(1), [lambda: 1, lambda: 2]), TypeError, "must be scalar"),
    (lambda: lax.switch(1, [1, 2]), TypeError, "sequence of callables"),
    (lambda: lax.switch(1, [lambda: 1, lambda: 2, lambda: (1,)]), TypeError, "branch 0.*branch 2"),
])
def test_errors_of_branches(call, error, words):
    with pytest.raises(error, match="(?s)" + words):
        call()


def test_errors_name_the_branches():
    def rises():
        return 1.0

    def falls():
        return 1

    with pytest.raises(TypeError, match=r"true_fun is rises at .*test_control_flow.py:\d+\nfalse_fun is falls at "):
        lax.cond(True, rises, falls)


# --- while and fori ----------------------------------------------------------------------------------


@both_ways
def test_while_matches_python(way):
    limit, step = 50, array(1, 2)
    second = partial(lax.index_in_dim, index=1, keepdims=False)

    def run(n):
        return lax.while_loop(lambda s: (s["i"] < n) & (second(s["total"]) < limit),
                              lambda s: {"i": s["i"] + 1, "total": s["total"] + step * s["i"], "none": None},
                              {"i": 0, "total": array(0, 0), "none": None})

    for n in (0, 1, 4, 100):
        i, total = 0, array(0, 0)
        while i < n and total[1] < limit:
            i, total = i + 1, total + step * i
        same_tree_and_values(way(run)(n), {"i": i, "total": total, "none": None})


@both_ways
@pytest.mark.parametrize("lower, upper", [(0, 5), (3, 3), (5, 2), (-2, 3), (np.int8(1), np.int8(4)),
                                          (np.uint8(1), np.uint8(250)), (0, np.int8(4)), (np.uint8(0), 3)])
def test_fori_matches_python(way, lower, upper):
    def run(lower, upper):
        as_int = partial(lax.convert_element_type, new_dtype=np.int32)
        return lax.fori_loop(lower, upper, lambda i, s: (s[0] + as_int(i), s[1] + 1), (0, 0))

    indices = range(int(lower), int(upper))
    assert tuple(way(run)(lower, upper)) == (sum(indices), len(indices))


def test_fori_is_a_scan_for_known_bounds_and_a_while_otherwise():
    x = array(1, 2, 3)
    eqn = eqn_of("scan", lambda x: lax.fori_loop(2, 5, lambda i, s: s + x, x, unroll=2), x)
    assert {name: value for name, value in eqn.params.items() if name != "jaxpr"} == {
        "length": 3, "num_carry": 2, "num_consts": 1, "reverse": False, "unroll": 2}
    assert eqn_of("scan", lambda x: lax.fori_loop(2, 5, lambda i, s: s + x, x, unroll=True), x).params["unroll"] == 3
    assert eqn_of("scan", lambda x: lax.fori_loop(5, 2, lambda i, s: s + x, x), x).params["length"] == 0
    assert eqn_of("scan", lambda: lax.fori_loop(0, 1 << 31, lambda i, s: s, 0)).params["length"] == 1 << 31
    with pytest.raises(OverflowError, match="too large to convert to int32"):
        lax.fori_loop(0, 1 << 40, lambda i, s: s, 0)
    eqn = eqn_of("while", lambda x, n: lax.fori_loop(0, n, lambda i, s: s + x, x), x, np.int8(5))
    assert [format(atom.aval) for atom in eqn.invars] == ["float32[3]", "int8[]", "int8[]", "float32[3]"]
    assert (eqn.params["cond_nconsts"], eqn.params["body_nconsts"]) == (0, 1)


def test_index_of_fori_has_the_dtype_of_its_bounds():
    def dtype_of_index(*bounds):
        seen = []
        jaxlite.make_jaxpr(lambda a, b: lax.fori_loop(a, b, lambda i, s: seen.append(i.dtype) or s, 0))(*bounds)
        return {*map(str, seen)}

    assert dtype_of_index(np.int8(0), np.int8(3)) == {"int8"}
    assert dtype_of_index(0, np.uint16(3)) == {"uint16"}
    assert dtype_of_index(0, 3) == {"int32"}
    for bounds in ((0.5, 3.0), (np.float32(0), 3.5), (False, np.array(3) > 2)):  # known bounds count as integers
        steps = int(bounds[1]) - int(bounds[0])
        out = lax.fori_loop(*bounds, lambda i, s: s * 3.0 + i, 1.0)
        assert out == {1: 3, 3: 32}[steps] and out.weak_type
    assert jaxlite.grad(lambda x: lax.fori_loop(0.0, 3.0, lambda i, y: y * x, 1.0))(2.0) == 12


def test_structure_of_while():
    step, fixed = array(1, 2, 3), array(0, 0, 0)
    eqn = eqn_of("while", lambda n: lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] + step + s[2], s[2]),
                                                   (0, step, fixed)), 3)
    # A leaf that the body leaves alone and the condition does not read is a constant of the body.
    assert (eqn.params["cond_nconsts"], eqn.params["body_nconsts"], len(eqn.outvars)) == (1, 2, 2)
    assert len(eqn.params["cond_jaxpr"].jaxpr.invars) == 3
    assert list(eqn.params) == ["cond_jaxpr", "body_jaxpr", "cond_nconsts", "body_nconsts"]


def test_loops_without_a_carry():
    assert lax.while_loop(lambda _: False, lambda _: (), ()) == ()
    assert jit(lambda x: lax.while_loop(lambda _: x > 5, lambda _: None, None))(3) is None


@pytest.mark.parametrize("call, words", [
    (lambda: lax.while_loop(lambda s: s, lambda s: s + 1, 0.0), "must return a boolean scalar.*float32"),
    (lambda: lax.while_loop(lambda s: (s < 1, 2), lambda s: s, 0.0), "must return a boolean scalar.*pytree"),
    (lambda: lax.while_loop(lambda s: s < 1, lambda s: s, array(0, 1)), r"must return a boolean scalar.*bool\[2\]"),
    (lambda: lax.while_loop(1, lambda s: s, 0), "should be callable"),
    (lambda: lax.while_loop(lambda s: True, lambda s: s, ["text"]), r"carry of while_loop\[0\]"),
    (lambda: lax.while_loop(lambda s: s < 1, lambda s: (s, s), 0), "input carry s is a leaf but.*tuple of length 2"),
    (lambda: lax.while_loop(lambda p: p["n"] < 1, lambda p: {"n": p["n"], "v": p["v"] > 0}, {"n": 0, "v": array(1)}),
     r"input carry component p\['v'\] has type float32\[1\] but.*bool\[1\], so the dtypes do not match"),
    (lambda: lax.fori_loop(0, 3, lambda i, state: (state,), 0.0), "input carry state is a leaf"),
    (lambda: lax.fori_loop(0, 3, lambda i, state: [state[0], state[1] > 0], [0, array(1)]),
     r"input carry component state\[1\] has type float32\[1\].*bool\[1\]"),
    (lambda: jit(lambda n: lax.fori_loop(0, n, lambda i, state: [state[0] > 0], [array(1)]))(3),
     r"input carry component state\[0\] has type float32\[1\].*bool\[1\]"),
    (lambda: lax.fori_loop(0.0, 3, lambda i, s: s, 0), "must have equal types, got float32 and int32"),
    (lambda: lax.fori_loop(np.int8(0), np.int16(3), lambda i, s: s, 0), "must have equal types, got int8 and int16"),
    (lambda: lax.fori_loop(0, array(1, dtype=np.int32), lambda i, s: s, 0), "must be scalar integers"),
    (lambda: lax.fori_loop(0, 3, 5, 0), "should be callable"),
])
def test_errors_of_while_and_fori(call, words):
    with pytest.raises(TypeError, match="(?s)" + words):
        call()


def test_unroll_of_fori_needs_known_bounds():
    with pytest.raises(ValueError, match="unroll"):
        jit(lambda n: lax.fori_loop(0, n, lambda i, s: s, 0, unroll=2))(3)
    with pytest.raises(ValueError, match="non-negative"):
        lax.fori_loop(0, 3, lambda i, s: s, 0, unroll=-1)


# --- scan --------------------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length, unroll", [(7, 1), (7, 2), (7, 3), (6, 3), (7, 7), (7, 10), (7, True), (7, False),
                                            (1, 1), (2, 1), (3, 2), (7, 0)])
def test_scan_matches_python(way, length, unroll, reverse):
    rng = np.random.default_rng(length)
    xs = Point(rng.normal(size=(length, 2)).astype(f32), {"k": rng.integers(0, 9, length).astype(np.int32), "n": None})
    weights = array(0.5, -1.5)

    def step(carry, x):
        total, count = carry
        return (total * weights + x.x, count + x.y["k"]), (total, [x.x * 2, x.y["k"] > count], None)

    init = (array(1, 2), np.int32(3))
    run = way(lambda init, xs: lax.scan(step, init, xs, reverse=reverse, unroll=unroll))
    same_tree_and_values(run(init, xs), python_scan(step, init, xs, reverse=reverse), rtol=1e-5)


@both_ways
def test_scan_without_xs(way):
    run = way(lambda x: lax.scan(lambda c, _: (c * 2, c), x, None, length=5))
    same_tree_and_values(run(1.0), (f32(32), array(1, 2, 4, 8, 16)))
    same_tree_and_values(way(lambda: lax.scan(lambda c, x: (c, None), (), (), length=3))(), ((), None))


@both_ways
@pytest.mark.parametrize("unroll", [1, True])
def test_scan_of_no_steps(way, unroll):
    carry, ys = way(lambda xs: lax.scan(lambda c, x: (c + x, (c, x * 2 > 1)), np.zeros(2, f32), xs, unroll=unroll))(
        np.zeros((0, 2), f32))
    assert carry.tolist() == [0, 0]
    assert [y.shape for y in ys] == [(0, 2), (0, 2)] and ys[1].dtype == bool
    assert way(lambda: lax.scan(lambda c, _: (c + 1, None), 0, None, length=0))()[0] == 0


@pytest.mark.parametrize("dtype", ["bool", "int4", "int8", "uint16", "uint32", "float16", "bfloat16", "float8_e4m3fn",
                                   "complex64"])
def test_scan_stacks_every_dtype(dtype):
    dtype = jaxlite.dtypes.canonicalize_dtype(dtype)
    xs = np.array([1, 0, 3, 2, 1]).astype(dtype)
    _, ys = jit(lambda x, xs: lax.scan(lambda c, x: (x, c), x, xs, unroll=2))(xs[0], xs)
    assert ys.dtype == dtype
    assert np.asarray(ys).tobytes() == np.concatenate([xs[:1], xs[:-1]]).tobytes()


@pytest.mark.parametrize("dtype, word", [("bfloat16", "bf16"), ("float8_e4m3fn", "f8")])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_keeps_narrow_floats_as_integers(dtype, word, reverse):
    # XLA:CPU would widen all of the array in every turn, which makes the time quadratic.
    xs = np.array([1, -0.0, 3, np.nan, 1]).astype(jaxlite.dtypes.canonicalize_dtype(dtype))
    run = jit(lambda xs: lax.scan(lambda c, x: (x, c), xs[0], xs, reverse=reverse, unroll=2)[1])
    assert np.asarray(run(xs)).tobytes() == (np.append(xs[1:], xs[0]) if reverse else np.append(xs[0], xs[:-1])).tobytes()
    moves = [line for line in run.lower(xs).as_text().splitlines() if "dynamic_" in line]
    assert len(moves) > 2 and any(word in line for line in moves) != dtype.startswith(xla.WIDENED)


@both_ways
def test_scans_in_scans(way):
    grid = np.arange(12, dtype=f32).reshape(3, 4)

    def rows(total, row):
        inner, parts = lax.scan(lambda c, x: (c + x * total, c * 2), 1.0, row)
        return total + inner, (inner, parts)

    def plain(total, row):
        inner, parts = python_scan(lambda c, x: (c + x * total, c * 2), f32(1), row)
        return total + inner, (inner, parts)

    same_tree_and_values(way(lambda g: lax.scan(rows, 0.5, g))(grid), python_scan(plain, f32(0.5), grid), rtol=1e-5)


def test_structure_of_scan():
    c, d, x = array(1, 1, 1), array(2, 2, 2), array(0, 1, 2)

    def run(n):
        return lax.scan(lambda s, y: ((s[0], s[1] + c * s[0] + d), (y[0], s[0], n)), (x, n), (x, x))

    eqn = eqn_of("scan", run, array(5, 6, 7))
    assert list(eqn.params) == ["jaxpr", "length", "num_carry", "num_consts", "reverse", "unroll"]
    # A leaf of the carry that never changes comes first among the constants; a y that is an x stays outside.
    assert (eqn.params["num_consts"], eqn.params["num_carry"], len(eqn.outvars)) == (4, 1, 3)
    same_tree_and_values(run(array(5, 6, 7)), python_scan(
        lambda s, y: ((s[0], s[1] + c * s[0] + d), (y[0], s[0], array(5, 6, 7))), (x, array(5, 6, 7)), (x, x)))


@pytest.mark.parametrize("call, error, words", [
    (lambda: lax.scan(lambda c, x: (c, x), 0.0, {"a": np.zeros(3), "b": np.zeros((4, 2))}), ValueError,
     r"different leading axis sizes: 3, 4.*xs\['a'\] is float32\[3\], xs\['b'\] is float32\[4,2\]"),
    (lambda: lax.scan(lambda c, x: (c, x), 0.0, {"a": np.zeros(3), "b": 1.0}), ValueError,
     r"no leading axis to scan over: xs\['b'\]"),
    (lambda: lax.scan(lambda c, x: (c, x), 0.0, np.zeros(3), length=4), ValueError, r"length. argument of 4.*\[3\]"),
    (lambda: lax.scan(lambda c, x: (c, x), 0.0), ValueError, "`length` not provided"),
    (lambda: lax.scan(lambda c, x: (c, x), 0.0, None, -1), ValueError, "negative `length`: -1"),
    (lambda: lax.scan(lambda c, x: (c, x), 0.0, np.zeros(3), unroll=-1), ValueError, "non-negative"),
    (lambda: lax.scan(lambda c, x: (c, x), 0.0, np.zeros(3), unroll=1.5), TypeError, "must be a `bool`"),
    (lambda: lax.scan(3, 0.0, np.zeros(3)), TypeError, "should be a callable"),
    (lambda: lax.scan(lambda c, x: c, 0.0, np.zeros(3)), TypeError, "must be a pair"),
    (lambda: lax.scan(lambda c, x: (c, c, c), 0.0, np.zeros(3)), TypeError, "must be a pair"),
    (lambda: lax.scan(lambda c, x: (c, x), {"k": "text"}, np.zeros(3)), TypeError, r"carry of scan\['k'\]"),
    (lambda: lax.scan(lambda c, x: (c, x), 0.0, "text"), TypeError, "xs of scan"),
    (lambda: lax.scan(lambda c, x: (c, "text"), 0.0, np.zeros(3)), TypeError, "returned a value of type <class 'str'>"),
    (lambda: lax.scan(lambda c, x: (c + array(1, 2), x), array(0), np.zeros(3)), TypeError,
     r"input carry c has type float32\[1\] but the corresponding output carry component has type float32\[2\]"),
    (lambda: lax.scan(lambda acc, x: ((acc[0], {"w": acc[1]["w"] > 0}), x), (0, {"w": array(1)}), np.zeros(3)),
     TypeError, r"component acc\[1\]\['w'\] has type float32\[1\].*bool\[1\], so the dtypes do not match"),
    (lambda: lax.scan(lambda c, x: ({"a": c["a"]}, x), {"a": 0, "b": 1}, np.zeros(3)), TypeError,
     "same pytree structure.*'b' is missing"),
    (lambda: lax.scan(lambda c, x: (c + 1.5, x), np.int32(1), np.zeros(3)), TypeError, r"int32\[\].*float32\[\]"),
    (lambda: jit(lambda n: lax.scan(lambda c, x: (c, x), 0, None, n))(3),
     jaxlite.errors.ConcretizationTypeError, "`length` argument of `scan`"),
])
def test_errors_of_scan(call, error, words):
    with pytest.raises(error, match="(?s)" + words):
        call()


# --- carries take the type that comes out ------------------------------------------------------------


def test_weak_carries_are_promoted():
    assert format(lax.while_loop(lambda s: s < 3, lambda s: s + 1.5, 0).aval) == "float32[]"
    assert format(lax.while_loop(lambda s: s < 3, lambda s: s + np.float16(1), 1.0).aval) == "float16[]"
    assert format(jit(lambda x: lax.while_loop(lambda s: s < 3, lambda s: s + np.float16(1), x))(1).aval) == "float16[]"
    assert format(lax.scan(lambda c, x: (c + x, None), 0, np.ones(3, np.float16))[0].aval) == "float16[]"
    assert format(lax.fori_loop(0, 3, lambda i, s: s + 0.5, 0).aval) == "float32[]"
    # One promotion leads to the next.
    last = lax.while_loop(lambda s: s[0] < 3, lambda s: (s[1], s[0] + np.float16(1)), (1.0, 1.0))
    assert [format(leaf.aval) for leaf in last] == ["float16[]", "float16[]"]


def test_weak_carries_of_the_same_dtype_keep_the_program():
    assert not lax.while_loop(lambda s: s < 3, lambda s: s + f32(1), 1.0).weak_type
    assert lax.while_loop(lambda s: s < 3, lambda s: s + 1, 1.0).weak_type
    carry, ys = lax.scan(lambda c, _: (c + 1, 2.0), 1.0, None, 3)
    assert carry.weak_type and ys.weak_type
    eqn = eqn_of("while", lambda: lax.while_loop(lambda s: s < 3, lambda s: s + f32(1), 1.0))
    assert format(eqn.invars[0].aval) == "~float32[]" and format(eqn.outvars[0].aval) == "float32[]"


def test_int64_carries(x64):
    assert lax.fori_loop(0, 40, lambda i, s: s * 2, 1) == 1 << 40
    assert lax.scan(lambda c, x: (c + x, c), np.int64(0), np.full(3, 1 << 40))[0] == 3 << 40


# --- what is traced and compiled, and how often ------------------------------------------------------


def test_a_function_is_traced_once_for_each_signature(count_traces):
    @count_traces
    def step(c, x):
        return c + x, c

    @count_traces
    def below(c):
        return c < 5

    @count_traces
    def double(c):
        return c * 2

    xs = np.arange(3, dtype=f32)
    for _ in range(3):
        lax.scan(step, f32(0), xs)
        lax.while_loop(below, double, f32(1))
        lax.cond(True, double, double, f32(1))
        jit(lambda: lax.scan(step, f32(0), xs))()
    assert (step.count, below.count) == (1, 1)
    assert double.count == 2  # once for the loop, once for the branches
    lax.scan(step, np.int32(0), np.arange(3))
    assert step.count == 2
    for _ in range(20):  # a lasting body, a condition made anew
        lax.while_loop(lambda c: c < 5, double, f32(1))
    assert double.count == 2
    jaxlite.clear_caches()
    lax.scan(step, f32(0), xs)
    assert step.count == 3


def test_a_lambda_made_anew_is_not_compiled_anew():
    def run(scale):
        a, _ = lax.scan(lambda c, x: (c * scale + x, c), array(1, 1), array(1, 2))
        b, _ = lax.while_loop(lambda c: c[1] < 10, lambda c: (c[0] * 2 + scale, c[1] + 4), (array(1, 1), 0))
        c = lax.cond(True, lambda x: x * scale, lambda x: x, array(3, 3))
        d = lax.fori_loop(0, 4, lambda i, s: s + scale, array(0, 0))
        return [each.tolist() for each in (a, b, c, d)]

    assert run(array(2, 3)) == [[8, 14], [22, 29], [6, 9], [8, 12]]
    compiled = len(eager_trace._calls)
    assert run(array(5, 0)) == [[32, 2], [43, 8], [15, 0], [20, 0]]  # the closed-over array is an operand
    assert len(eager_trace._calls) == compiled
    zeros = [lax.scan(lambda c, x, z=z: (c + x, z * x), f32(0), array(1))[1] for z in (0.0, -0.0)]
    assert np.signbit(zeros[1]) and not np.signbit(zeros[0])  # equal as keys, not the same program


def test_tracers_of_a_finished_trace_are_not_used_again():
    scale = None

    def step(c, x):
        return c * scale, x + scale

    @jit
    def run(a, xs):
        nonlocal scale
        scale = a
        return lax.scan(step, f32(1), xs)[0]

    xs = array(1, 2)
    assert run(f32(3), xs) == 9
    assert jit(lambda a, xs: run.__wrapped__(a + 1, xs))(f32(3), xs) == 16


def test_what_was_traced_dies_with_its_function():
    def make():
        big = np.ones((3, 3), f32)

        def step(c, x):
            return c + big, x

        lax.scan(step, np.zeros((3, 3), f32), array(1, 2))
        return weakref.ref(step), weakref.ref(big)

    step, big = make()
    gc.collect()
    assert step() is None and big() is None


def test_callables_of_all_kinds():
    class Step:
        def __call__(self, c, x):
            return c + x, c

        def method(self, c, x):
            return c + x, c

    xs = array(1, 2, 3)
    step = Step()
    for fun in (step, step.method, partial(lambda scale, c, x: (c + x * scale, c), 1.0), jit(step.method), jit(Step())):
        same_tree_and_values(lax.scan(fun, f32(0), xs), (f32(6), array(0, 1, 3)))
    assert lax.cond(True, jit(lax.neg), lax.neg, 2.0) == -2


def test_many_threads():
    def step(c, x):
        return c + x, c * x

    expected = python_scan(step, f32(0), np.arange(5, dtype=f32))
    results = [None] * 8

    def work(at):
        results[at] = lax.scan(step, f32(0), np.arange(5, dtype=f32))

    threads = [threading.Thread(target=work, args=(at,)) for at in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        same_tree_and_values(result, expected)


def test_effects_of_bodies_are_effects_of_the_equation():
    noisy = frozenset({"noise"})
    for name, fun in (("scan", lambda x: lax.scan(lambda c, _: (c + 1, None), x, None, 3)),
                      ("while", lambda x: lax.while_loop(lambda c: c < 3, lambda c: c + 1, x)),
                      ("cond", lambda x: lax.cond(x > 0, lambda x: x + 1, lambda x: x, x))):
        eqn = eqn_of(name, fun, 1)
        avals = [atom.aval for atom in eqn.invars]
        assert not eqn.effects
        for param in ("jaxpr", "cond_jaxpr", "body_jaxpr", "branches"):
            if param in eqn.params:
                many = type(eqn.params[param]) is tuple
                closed = eqn.params[param][0] if many else eqn.params[param]
                closed = ClosedJaxpr(closed.jaxpr.replace(effects=noisy), [])
                changed = (closed, *eqn.params[param][1:]) if many else closed
                assert eqn.primitive.typed(avals, eqn.params | {param: changed})[1] == noisy


# --- disable_jit -------------------------------------------------------------------------------------


def test_disable_jit_runs_python():
    seen = []
    with jaxlite.disable_jit():
        assert lax.cond(True, lambda x: x, lambda x: (x, 1), 1) == 1  # the other branch is not looked at
        assert lax.switch(9, [lambda x: x, lambda x: (x, 1)], 1) == (1, 1)
        assert lax.while_loop(lambda s: s < 3, lambda s: s + 1, 0) == 3
        assert isinstance(lax.while_loop(lambda s: s < 3, lambda s: s, 5), jaxlite.Array)
        assert isinstance(lax.while_loop(lambda s: s < 3, lambda s: int(s) + 1, 0), jaxlite.Array)
        assert lax.fori_loop(0, 3, lambda i, s: (seen.append(int(i)), s + i)[1], 0) == 3
        result = lax.scan(lambda c, x: (c + float(x), (seen.append(float(x)), x * 2)[1]), 0.0, array(1, 2, 3),
                          reverse=True)
        assert lax.map(lambda x: x + float(x), array(1, 2)).tolist() == [2, 4]
        assert lax.scan(lambda c, x: (c + 1, None), 0, None, 3) == (3, None)
        with pytest.raises(ValueError, match="zero-length scan"):
            lax.scan(lambda c, x: (c, x), 0, np.zeros(0, f32))
    same_tree_and_values(result, (6.0, array(2, 4, 6)))
    assert seen == [0, 1, 2, 3.0, 2.0, 1.0]


def test_disable_jit_inside_a_trace():
    with jaxlite.disable_jit():
        closed = jaxlite.make_jaxpr(
            lambda n: (lax.cond(True, lambda: 1, lambda: 2), lax.while_loop(lambda s: s < n, lambda s: s + 1, 0)))(3)
    names = [eqn.primitive.name for eqn in closed.eqns]
    assert "while" in names and "cond" not in names


# --- map and associative_scan ------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("batch_size", [None, 1, 2, 10])
def test_map_matches_python(way, batch_size):
    xs = {"a": np.arange(6, dtype=f32).reshape(3, 2), "b": np.arange(3)}
    result = way(lambda xs: lax.map(lambda x: (x["a"] * x["b"], x["b"]), xs, batch_size=batch_size))(xs)
    same_tree_and_values(result, (xs["a"] * xs["b"][:, None], xs["b"]))


@pytest.mark.parametrize("call, words", [
    (lambda: lax.map(lambda x: x, (np.zeros(3), np.zeros(2))), r"different leading axis sizes: 3, 2.*xs\[0\].*xs\[1\]"),
    (lambda: lax.map(lambda x: x, 3), "no leading axis"),
    (lambda: lax.map(lambda x: x, ()), "no values to scan over"),
    (lambda: lax.map(lambda x: x, np.zeros(3), batch_size=-1), "batch_size"),
])
def test_errors_of_map(call, words):
    with pytest.raises(ValueError, match="(?s)" + words):
        call()


def test_map_over_nothing():
    assert lax.map(lambda x: x + 1, np.zeros((0, 3), f32)).shape == (0, 3)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 8, 13, 21])
def test_associative_scan_matches_cumsum(size, reverse):
    x = np.arange(1, size + 1)
    expected = np.cumsum(x[::-1])[::-1] if reverse else np.cumsum(x)
    assert jit(lambda x: lax.associative_scan(lax.add, x, reverse=reverse))(x).tolist() == expected.tolist()


def test_associative_scan_of_trees_along_an_axis():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 2, 6, 3)).astype(f32)

    def after(first, second):  # x -> a x + b, one after the other: not commutative
        return {"a": second["a"] * first["a"], "b": second["a"] * first["b"] + second["b"]}

    result = jit(lambda elems: lax.associative_scan(after, elems, axis=-2))({"a": a, "b": b})
    want_a, want_b = np.empty_like(a), np.empty_like(b)
    want_a[:, 0], want_b[:, 0] = a[:, 0], b[:, 0]
    for at in range(1, 6):
        want_a[:, at], want_b[:, at] = a[:, at] * want_a[:, at - 1], a[:, at] * want_b[:, at - 1] + b[:, at]
    same_tree_and_values(result, {"a": want_a, "b": want_b}, rtol=1e-4)


RECURRENCES = [  # of the factors and the terms
    lambda one, other: (one[0] * other[0], one[1] * other[0] + other[1]),
    lambda one, other: (other[0] * one[0], other[1] + other[0] * one[1]),
    lambda one, other: (one[0] * other[0], one[1] * one[0] + other[1]),  # not one, nor associative
    lambda one, other: (one[0] * other[0], one[1] * other[0] + one[1]),
    lambda one, other: (one[0] + other[0], one[1] * other[0] + other[1]),
]


@pytest.mark.parametrize("reverse, turned, width", [(False, False, 3), (True, False, 1), (False, True, 3)])
def test_associative_scan_of_recurrences_and_totals_is_loops(reverse, turned, width):
    rng = np.random.default_rng(0)
    factors, terms = rng.uniform(0.5, 1, (2, 20, width)).astype(f32), rng.normal(size=(2, 20, 3)).astype(f32)
    for place, combine in enumerate(RECURRENCES):
        def scanned(*elems, combine=combine):
            fun = (lambda one, other: combine(one[::-1], other[::-1])[::-1]) if turned else combine
            return lax.associative_scan(fun, elems[::-1] if turned else elems, reverse, 1)[::-1 if turned else 1]

        jaxpr = str(jaxlite.make_jaxpr(scanned)(factors, terms))
        assert ("linear_recurrence" in jaxpr) == (place < 2) and ("cumprod" in jaxpr) == (place < 2)
        if place < 2:
            for got, want in zip(scanned(factors, terms), _one_by_one(combine, (factors, terms), reverse), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    totals = jaxlite.make_jaxpr(lambda x, y: lax.associative_scan(
        lambda one, other: {"x": one["x"] + other["x"], "y": lax.max(other["y"], one["y"])}, {"x": x, "y": y}))
    assert [eqn.primitive.name for eqn in totals(np.zeros(16), np.zeros(16)).eqns] == ["cumsum", "cummax"]
    assert "cum" not in str(totals(np.zeros(15), np.zeros(15)))


def test_associative_scan_of_a_total_keeps_what_its_function_does_besides(capfd):
    def add(one, other):
        jaxlite.debug.print("seen")
        return one + other

    jit(lambda x: lax.associative_scan(add, x))(np.arange(20)).block_until_ready()
    jaxlite.effects_barrier()
    assert "seen" in capfd.readouterr().out


def _one_by_one(combine, elems, reverse):
    rows = [[each[:, at] for each in elems] for at in range(elems[0].shape[1])]
    results = list(itertools.accumulate(rows[::-1] if reverse else rows, combine))
    return [np.stack(each, 1) for each in zip(*(results[::-1] if reverse else results), strict=True)]


def test_associative_scan_takes_the_leaves_of_its_function():
    x = np.arange(4.0, dtype=np.float32)
    assert lax.associative_scan(lambda a, b: [a["x"] + b["x"]], {"x": x})["x"].tolist() == [0, 1, 3, 6]


def test_associative_scan_of_bools_and_its_errors():
    x = np.array([False, True, False, False, True])
    assert lax.associative_scan(lax.bitwise_or, x).tolist() == [False, True, True, True, True]
    with pytest.raises(ValueError, match="same first dimension.*float32.3.*float32.2"):
        lax.associative_scan(lax.add, (np.zeros(3), np.zeros(2)))
    with pytest.raises(ValueError, match="out of bounds"):
        lax.associative_scan(lax.add, np.zeros(3), axis=1)
    with pytest.raises(TypeError, match="should be callable"):
        lax.associative_scan(3, np.zeros(3))
    with pytest.raises(ValueError, match="returned the tree"):
        lax.associative_scan(lambda a, b: (a, b), np.zeros(3))


# --- platforms ---------------------------------------------------------------------------------------


@both_ways
def test_platform_dependent_runs_the_function_of_the_platform(way):
    here = jaxlite.default_backend()
    assert way(lambda x: lax.platform_dependent(x, default=lambda x: -x, **{here: lambda x: x + 1}))(1) == 2
    assert way(lambda x: lax.platform_dependent(x, tpu=lambda x: x + 1, default=lambda x: -x))(1) == -1
    with pytest.raises(NotImplementedError, match="no function for the platform"):
        way(lambda x: lax.platform_dependent(x, tpu=lambda x: x + 1))(1)


# --- larger programs ---------------------------------------------------------------------------------


def test_newton_with_everything_at_once():
    """sqrt by Newton's method inside scan inside jit, with a branch for zero."""

    def root(x):
        def improve(state):
            guess, _ = state
            better = 0.5 * (guess + x / guess)
            return better, abs(better - guess)

        return lax.cond(x == 0, lambda: f32(0), lambda: lax.while_loop(
            lambda state: state[1] > 1e-6 * state[0], improve, (x, x))[0])

    xs = array(0, 1, 2, 9, 1e4)
    _, roots = jit(lambda xs: lax.scan(lambda c, x: (c, root(x)), None, xs))(xs)
    np.testing.assert_allclose(roots, np.sqrt(xs), rtol=1e-6)


def test_collatz_lengths():
    def length(n):
        return lax.while_loop(lambda s: s[0] > 1, lambda s: (lax.cond(s[0] % 2 == 0, lambda n: n // 2,
                                                                      lambda n: 3 * n + 1, s[0]), s[1] + 1), (n, 0))[1]

    def plain(n):
        return sum(1 for _ in itertools.takewhile(lambda n: n > 1, orbit(n)))

    def orbit(n):
        while True:
            yield n
            n = n // 2 if n % 2 == 0 else 3 * n + 1

    numbers = np.arange(1, 30, dtype=np.int32)
    assert jit(lambda ns: lax.map(length, ns))(numbers).tolist() == [plain(int(n)) for n in numbers]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7, 10])
def test_map_in_batches_equals_a_loop(batch_size):
    xs = {"a": np.arange(7, dtype=np.float32), "b": np.arange(21, dtype=np.float32).reshape(7, 3)}

    def f(x):
        return {"s": lax.add(x["a"], lax.reduce_sum(x["b"], (0,))), "b": lax.neg(x["b"])}

    out = lax.map(f, xs, batch_size=batch_size)
    np.testing.assert_array_equal(out["s"], xs["a"] + xs["b"].sum(1))
    np.testing.assert_array_equal(out["b"], -xs["b"])
