"""High types: values made of arrays in jit, derivatives, vmap and loops; values that change; operations written as classes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.experimental
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.core.high import MappingSpec
from jaxlite.experimental import hijax
from jaxlite.experimental.hijax import HiPrimitive, HiType, VJPHiPrimitive, instantiate_zeros, register_hitype
from jaxlite.extend.boxes import Box
from jaxlite.interpreters import partial_eval as pe

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2

# --- quantized arrays: tangents are arrays, rounding passes them on ------------------------------------


@dataclass(frozen=True)
class Quantized:
    values: Any
    scale: Any

    def __jax_array__(self):
        return dequantize(self)


@dataclass(frozen=True)
class QuantizedType(HiType):
    shape: tuple[int, ...]
    __jax_array__ = hijax.aval_method(lambda self: dequantize(self))

    def lo_ty(self):
        return [jax.core.ShapedArray(self.shape, np.dtype("int8")), jax.core.ShapedArray((), np.dtype("float32"))]

    def lower_val(self, value):
        return [value.values, value.scale]

    def raise_val(self, values, scale):
        return Quantized(values, scale)

    def to_tangent_aval(self):
        return jax.core.ShapedArray(self.shape, np.dtype("float32"))

    def str_short(self, **_):
        return f"Q{list(self.shape)}"


register_hitype(Quantized, lambda value: QuantizedType(value.values.shape))


class Quantize(HiPrimitive):
    def abstract_eval(self, x):
        return QuantizedType(x.shape), set()

    def to_lojax(self, x):
        scale = jnp.max(jnp.abs(x)) / 100
        return Quantized(jnp.round(x / scale).astype("int8"), scale)

    def jvp(self, primals, tangents):
        return quantize_p.bind(*primals), tangents[0]

    def transpose(self, cotangent, x):
        return [cotangent]


class Dequantize(HiPrimitive):
    def abstract_eval(self, q):
        return jax.core.ShapedArray(q.shape, np.dtype("float32")), set()

    def to_lojax(self, q):
        return q.values * q.scale

    def jvp(self, primals, tangents):
        return dequantize_p.bind(*primals), tangents[0]

    def transpose(self, cotangent, q):
        return [cotangent]


quantize_p, dequantize_p = Quantize("quantize_for_test"), Dequantize("dequantize_for_test")
quantize, dequantize = quantize_p.bind, dequantize_p.bind
Q = Quantized(jnp.asarray(X.astype(np.int8)), jnp.float32(0.5))


def test_arguments_and_results_of_jit():
    found = jax.jit(quantize)(X)
    assert isinstance(found, Quantized) and found.values.dtype == np.int8
    np.testing.assert_allclose(found.values * found.scale, X, atol=3 / 100)
    np.testing.assert_allclose(jax.jit(dequantize)(Q), X * 0.5)
    np.testing.assert_allclose(dequantize(Q), X * 0.5)
    assert str(jax.make_jaxpr(lambda q: jax.jit(dequantize)(q))(Q)).count("Q[2, 3]") == 2
    assert jax.eval_shape(quantize, X) == QuantizedType((2, 3)) == jax.typeof(Q)
    lowered = jax.jit(dequantize).lower(Q)
    assert "tensor<2x3xi8>" in lowered.as_text()
    np.testing.assert_allclose(jax.jit(dequantize).lower(Q).compile()(Q), X * 0.5)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
def test_functions_of_arrays_take_values_that_stand_for_arrays(wrap):
    dense = np.asarray(dequantize(Q))
    functions = [jnp.sin, jnp.sum, jnp.array, jnp.zeros_like, lambda q: jnp.dot(q, X.T), lambda q: jnp.einsum("ij->ji", q),
                 lambda q: jnp.reshape(q, (3, 2)), lambda q: jnp.asarray(X) + q, lambda q: jnp.clip(q, 0, 1)]
    found = [wrap(function)(Q) for function in functions]
    expected = [function(jnp.asarray(dense)) for function in functions]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_call_is_traced_once_and_again_for_other_types():
    traces = []

    @jax.jit
    def f(q):
        traces.append(isinstance(q, jax.core.Tracer))
        assert q.shape == jax.typeof(q).shape
        return dequantize(q)

    f(Q), f(Q), f(Quantized(jnp.zeros(3, "int8"), jnp.float32(1)))
    assert traces == [True, True]


def test_derivatives_are_those_of_the_rules():
    def through(x):
        return (dequantize(jax.jit(quantize)(x)) ** 2).sum()

    near = np.asarray(dequantize(quantize(X)))
    for gradient in (jax.grad(through), jax.jit(jax.grad(jax.jit(through))), jax.grad(jax.checkpoint(through))):
        np.testing.assert_allclose(gradient(X), 2 * near, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda q: (dequantize(q) ** 2).sum())(Q), X)
    np.testing.assert_allclose(jax.grad(lambda x: (dequantize(Q) * x).sum())(X), X * 0.5)
    np.testing.assert_allclose(jax.vjp(dequantize, Q)[1](X)[0], X)
    np.testing.assert_allclose(jax.linearize(dequantize, Q)[1](X), X)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
def test_in_loops_and_branches(wrap):
    def doubled(q):
        return quantize(dequantize(q) * 2)

    for loop in (lambda q: lax.scan(lambda q, _: (doubled(q), None), q, None, length=3)[0],
                 lambda q: lax.fori_loop(0, 3, lambda _, q: doubled(q), q),
                 lambda q: lax.while_loop(lambda q: dequantize(q).max() < 9, doubled, q),
                 lambda q: lax.cond(jnp.max(dequantize(q)) > 1, lambda q: doubled(doubled(doubled(q))), lambda q: q, q)):
        np.testing.assert_allclose(dequantize(wrap(loop)(Q)), X * 4, atol=0.5)


# --- pairs: tangents are pairs, and vmap knows where their axes are ------------------------------------


@dataclass(frozen=True)
class Pair:
    parts: tuple[Any, ...]


@dataclass(frozen=True)
class PairSpec(MappingSpec):
    axes: tuple[Any, ...]


@dataclass(frozen=True)
class PairType(HiType):
    of: tuple[Any, ...]

    def lo_ty(self):
        return [low for aval in self.of for low in aval.lo_ty()]

    def lower_val(self, value):
        return [low for aval, part in zip(self.of, value.parts, strict=True) for low in aval.lower_val(part)]

    def raise_val(self, *arrays):
        rest = iter(arrays)
        return Pair(tuple(aval.raise_val(*islice(rest, len(aval.lo_ty()))) for aval in self.of))

    def to_tangent_aval(self):
        return PairType(tuple(aval.to_tangent_aval() for aval in self.of))

    def vspace_zero(self):
        return pair(*(jnp.zeros(aval.shape, aval.dtype) for aval in self.of))

    def vspace_add(self, x, y):
        return pair(*(part(x, i) + part(y, i) for i in range(len(self.of))))

    def dec_rank(self, size, spec):
        return PairType(tuple(aval.dec_rank(size, axis) for aval, axis in zip(self.of, spec.axes, strict=True)))

    def inc_rank(self, size, spec):
        return PairType(tuple(aval.inc_rank(size, axis) for aval, axis in zip(self.of, spec.axes, strict=True)))

    def leading_axis_spec(self):
        return PairSpec((0,) * len(self.of))


register_hitype(Pair, lambda value: PairType(tuple(map(jax.typeof, value.parts))))


class MakePair(HiPrimitive):
    def abstract_eval(self, *avals):
        return PairType(avals), set()

    def to_lojax(self, *parts):
        return Pair(parts)

    def jvp(self, primals, tangents):
        return pair(*primals), pair(*map(instantiate_zeros, tangents))

    def transpose(self, cotangent, *parts):
        return [part(cotangent, i) for i in range(len(parts))]

    def batch(self, axis, args, dims):
        return pair(*args), PairSpec(tuple(dims))


class Part(HiPrimitive):
    def abstract_eval(self, aval, *, i):
        return aval.of[i], set()

    def to_lojax(self, value, *, i):
        return value.parts[i]

    def jvp(self, primals, tangents, *, i):
        return part(primals[0], i), part(tangents[0], i)

    def transpose(self, cotangent, value, *, i):
        zeros = [jnp.zeros(aval.shape, aval.dtype) for aval in value.aval.of]
        return [pair(*zeros[:i], cotangent, *zeros[i + 1:])]

    def batch(self, axis, args, dims, *, i):
        return part(args[0], i), dims[0].axes[i]


pair_p, part_p = MakePair("pair_for_test"), Part("part_for_test")
pair = pair_p.bind


def part(value, i):
    return part_p.bind(value, i=i)


def test_gradients_that_are_high_values():
    for wrap in (lambda f: f, jax.jit):
        found = wrap(jax.grad(lambda p: (part(p, 0) * part(p, 0) * part(p, 1)).sum()))(Pair((X, jnp.float32(3))))
        np.testing.assert_allclose(found.parts[0], 6 * X)
        np.testing.assert_allclose(found.parts[1], (X ** 2).sum())
    out, dot = jax.jvp(lambda p: part(p, 0) * part(p, 1), (Pair((X, jnp.float32(3))),), (Pair((X, jnp.float32(1))),))
    np.testing.assert_allclose(dot, 4 * X)
    np.testing.assert_allclose(jax.hessian(lambda x: (part(pair(x, x), 0) ** 3).sum())(X[0]), np.diag(6 * X[0]))


def test_gradients_through_loops_and_branches():
    def power(x):  # x ** 4
        step = lambda p, _: (pair(part(p, 0) * part(p, 1), part(p, 1)), None)
        return part(lax.scan(step, pair(x, x), None, length=3)[0], 0).sum()

    np.testing.assert_allclose(jax.jit(jax.grad(power))(X), 4 * X ** 3, rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(power)(X), (X ** 4).sum(1), rtol=1e-5)

    def square(x):
        return part(lax.cond(x[0, 0] < 0, lambda p: pair(part(p, 0) * part(p, 1), x), lambda p: p, pair(x, x)), 0).sum()

    np.testing.assert_allclose(jax.grad(square)(X), 2 * X)


def test_vmap_of_high_values():
    made = jax.vmap(lambda x, y: jax.jit(pair)(x, y), in_axes=(0, None), out_axes=PairSpec((0, None)))(X, 1.0)
    assert made.parts[0].shape == (2, 3) and made.parts[1].shape == ()
    found = jax.vmap(lambda p: part(p, 0).sum() * part(p, 1), in_axes=PairSpec((0, None)), axis_size=2)(made)
    np.testing.assert_allclose(found, X.sum(1))
    np.testing.assert_allclose(lax.map(lambda p: part(p, 0).sum() * part(p, 1), Pair((X, np.arange(2.0)))),
                               X.sum(1) * np.arange(2))
    stacked = lax.scan(lambda c, x: (c, pair(x, 2 * x)), 0, X)[1]
    np.testing.assert_allclose(stacked.parts[1], 2 * X)
    with pytest.raises(NotImplementedError, match="chooses between arrays"):
        jax.vmap(lambda x: part(lax.cond(x[0] > 0, lambda p: p, lambda p: pair(x, x), pair(x, x)), 0))(X)


# --- operations on trees with rules of their own -------------------------------------------------------


class Scaled(VJPHiPrimitive):
    """A product whose derivative is doubled, so that it shows which rule ran."""

    def __init__(self, tree, y, factor):
        self.in_avals, self.out_aval, self.params = (tree, y), y, {"factor": factor}
        super().__init__()

    def expand(self, tree, y):
        return tree["x"] * y * self.factor

    def vjp_fwd(self, nonzero, tree, y):
        return self(tree, y), (tree["x"], y)

    def vjp_bwd_retval(self, residuals, cotangent):
        x, y = residuals
        return {"x": 2 * cotangent * y * self.factor}, 2 * cotangent * x * self.factor

    def jvp(self, primals, tangents):
        (tree, y), (dot, dy) = primals, map(lambda t: jax.tree.map(instantiate_zeros, t), tangents)
        return self(tree, y), 3 * self.factor * (dot["x"] * y + tree["x"] * dy)

    def batch_dim_rule(self, axis, dims):
        return 0


def scaled(x, y, factor=5):
    return Scaled({"x": jax.typeof(x)}, jax.typeof(y), factor)({"x": x}, y)


def test_operations_on_trees():
    y = np.ones(3, np.float32)
    assert jax.jit(scaled)(2.0, 3.0) == scaled(2.0, 3.0) == 30
    assert "call_hi_primitive" in str(jax.make_jaxpr(scaled)(2.0, 3.0))
    for gradient in (jax.grad(scaled, (0, 1)), jax.jit(jax.grad(jax.jit(scaled), (0, 1)))):
        assert gradient(2.0, 3.0) == (30, 20)  # the rule's, not 15 and 10
    assert jax.grad(lambda x: lax.scan(lambda c, _: (scaled(c, 1.0), None), x, None, length=2)[0])(1.0) == 100
    assert jax.jvp(scaled, (2.0, 3.0), (1.0, 0.0)) == (30, 45) and jax.linearize(scaled, 2.0, 3.0)[1](1.0, 0.0) == 45
    np.testing.assert_allclose(jax.vmap(scaled)(X[0], y), 5 * X[0])
    np.testing.assert_allclose(jax.vmap(jax.grad(scaled), (0, None))(X[0], 1.0), 10 * y)
    np.testing.assert_allclose(jax.grad(lambda y: jax.vmap(scaled, (0, None))(X[0], y).sum())(1.0), 10 * X[0].sum())
    one = Scaled({"x": jax.typeof(y)}, jax.typeof(y), 5)
    assert one == Scaled({"x": jax.typeof(y)}, jax.typeof(y), 5) != Scaled({"x": jax.typeof(y)}, jax.typeof(y), 6)


class Bare(VJPHiPrimitive):
    def __init__(self, aval):
        self.in_avals, self.out_aval, self.params = (aval,), aval, {}
        super().__init__()

    def expand(self, x):
        return x


def test_what_is_not_defined_is_named():
    def bare(x):
        return Bare(jax.typeof(x))(x)

    for call, method in ((jax.grad(bare), "vjp_fwd"), (lambda x: jax.jvp(bare, (x,), (x,)), "`jvp`"),
                         (lambda x: jax.vmap(bare)(jnp.ones(2)), "`batch`"),
                         (lambda x: jax.linearize(bare, x)[1](x), "`lin`"),
                         (lambda x: jax.linear_transpose(bare, x)(x), "`transpose`")):
        with pytest.raises(NotImplementedError, match=f"subclass Bare must implement .*{method}"):
            call(1.0)
    with pytest.raises(TypeError, match="structure"):
        Bare(jax.typeof(1.0))((1.0, 2.0))


class Power(hijax.HiPrim):
    """x ** n * y and x; derivatives are doubled and tripled, so that they show which rule ran."""

    def __init__(self, aval, n):
        self.in_avals, self.out_aval, self.params = (aval, aval), {"a": aval, "b": aval}, {"n": n}
        super().__init__()

    def expand(self, x, y):
        return {"a": x ** self.n * y, "b": x}

    def push(self, residuals, dx, dy):
        (x, y), (dx, dy) = residuals, map(instantiate_zeros, (dx, dy))
        return {"a": 2 * (self.n * x ** (self.n - 1) * y * dx + x ** self.n * dy), "b": 3 * dx}

    def batch(self, axis, args, dims):
        front = hijax.bdims_at_front(axis, args, dims)
        return type(self)(hijax.unmap_avals(axis, self.in_avals, (0, 0))[0], self.n)(*front), {"a": 0, "b": 0}


class ByJvp(Power):
    vjp_fwd, vjp_bwd_retval = hijax.vjp_from_jvp
    lin, linearized = hijax.linearize_from_jvp

    def jvp(self, primals, tangents):
        return self(*primals), self.push(primals, *tangents)


class ByLin(Power):
    jvp = hijax.jvp_from_lin
    vjp_fwd, vjp_bwd_retval = hijax.vjp_from_lin
    linearized = Power.push

    def lin(self, nonzero, x, y):
        return self(x, y), (x, y)


@pytest.mark.parametrize("kind", [ByJvp, ByLin])
def test_rules_that_follow_from_others(kind):
    def f(x, y):
        return kind(jax.typeof(x), 3)(x, y)

    x, y = jnp.float32(2), jnp.float32(5)
    dots = {"a": 2 * (60 + 8), "b": 3}
    assert jax.jvp(f, (x, y), (1 + 0 * x, 1 + 0 * y)) == ({"a": 40, "b": 2}, dots)
    assert jax.linearize(f, x, y)[1](1 + 0 * x, 1 + 0 * y) == dots
    assert jax.jit(jax.grad(lambda x, y: f(x, y)["a"] + f(x, y)["b"], (0, 1)))(x, y) == (2 * 60 + 3, 2 * 8)
    prim = kind(jax.typeof(x), 3)
    for nonzero, expected in (((True, True), (120, 16)), ((False, True), (0, 16))):  # the rule itself
        residuals = prim.vjp_fwd(nonzero, x, y)[1]
        found = prim.vjp_bwd_retval(residuals, {"a": jnp.float32(1), "b": jnp.float32(0)})
        assert tuple(map(instantiate_zeros, found)) == expected
    grads = jax.vmap(jax.grad(lambda x, y: f(x, y)["a"]), (0, None))(jnp.asarray(X[0]), y)
    np.testing.assert_allclose(grads, 2 * 3 * X[0] ** 2 * 5)


def test_structured_residuals_and_results_without_tangents():
    seen = []

    class Rules(Power):
        def vjp_fwd(self, nonzero, x, y):
            return self(x, y), x, {"a": True, "b": False}, y

        def vjp_bwd(self, x, y, cotangents, of_x, of_y):
            seen.append([isinstance(each, hijax.ValAccum) for each in (of_x, of_y)])
            assert isinstance(of_y, hijax.GradAccum) and type(cotangents["b"]) is hijax.Zero
            of_x.accum(7 * cotangents["a"] * y)
            of_y.accum(cotangents["a"] * x)

        def dce(self, used, live):
            return (True, False), {"a": False, "b": True}, First(self.in_avals[0])

    class First(hijax.HiPrim):
        def __init__(self, aval):
            self.in_avals, self.out_aval, self.params = (aval,), {"b": aval}, {}
            super().__init__()

        def expand(self, x):
            return {"b": 10 * x}

    def f(x, y):
        out = Rules(jax.typeof(x), 3)(x, y)
        return out["a"] + out["b"]

    x, y = jnp.float32(2), jnp.float32(5)
    assert jax.grad(f)(x, y) == 35 and jax.grad(f, (0, 1))(x, y) == (35, 2)
    assert seen == [[True, False], [True, True]]
    program, used = pe.dce_jaxpr(jax.make_jaxpr(Rules(jax.typeof(x), 2))(x, y).jaxpr, [False, True])
    assert used == [True, False] and jax.core.eval_jaxpr(program, [], x) == [20]


def test_a_batching_rule_by_vmap():
    class Product(hijax.HiPrim):
        def __init__(self, x, y, matched=False):
            self.in_avals, self.out_aval, self.params = (x, y), (x, y), {"matched": matched}
            super().__init__()

        def expand(self, x, y):
            return x * y, y

        def batch(self, axis, args, dims):
            return hijax.vmap_rule(axis, lambda x, y: (x * y, y), dims, (1, None), sum_match=self.matched)(*args), (1, None)

    def product(x, y, matched=False):
        return Product(jax.typeof(x), jax.typeof(y), matched)(x, y)

    np.testing.assert_allclose(jax.vmap(product, (0, None), (1, None))(X, 2.0)[0], 2 * X.T)
    with pytest.raises(ValueError, match="varies along the axis"):
        jax.vmap(product, (0, 0), (1, None))(X, X[:, 0])
    np.testing.assert_allclose(jax.vmap(lambda x, y: product(x, y, True), (0, 0), (1, None))(X, X[:, 0])[1], X[:, 0].sum())


# --- values that change --------------------------------------------------------------------------------


def add_one(box):
    box.set(box.get() + 1)


def test_boxes_change_in_jit():
    box = Box(1.0)
    add = jax.jit(add_one)
    add(box), add(box)
    jax.jit(lambda: add_one(box))()  # closed over
    jax.jit(lambda box: add(box))(box)  # in a call inside
    assert box.get() == 5
    jax.jit(lambda box, x: box.set({"a": box.get(), "b": x}))(box, X)  # another tree
    np.testing.assert_array_equal(box.get()["b"], X)
    assert jax.jit(lambda x: (lambda inner: (add_one(inner), inner.get())[1])(Box(x)))(3.0) == 4
    made = jax.jit(Box)(7.0)
    assert made.get() == 7 and jax.jit(lambda box: box)(made) is made


def test_a_function_that_closes_over_a_box_is_traced_again_when_it_holds_another_type():
    box, traces = Box(1.0), []

    @jax.jit
    def read():
        traces.append(jax.experimental.cur_qdd(box).leaf_avals[0].shape)
        return box.get() * 2

    read(), box.set(2.0), read(), box.set(X)
    np.testing.assert_array_equal(read(), 2 * X)
    assert traces == [(), (2, 3)]


def test_a_box_that_comes_twice_is_one():
    box = Box(1.0)
    jax.jit(lambda one, other: (one.set(2.0), other.set(other.get() * 5)))(box, box)
    assert box.get() == 10
    with pytest.raises(ValueError, match="passed twice"):
        jax.jit(lambda one, other: one.set(X))(box, box)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
def test_boxes_change_in_loops_and_branches(wrap):
    def run(box, n):
        lax.scan(lambda c, _: (c, add_one(box)), 0, None, length=3)
        lax.fori_loop(0, n, lambda i, c: (add_one(box), c)[1], 0)
        lax.while_loop(lambda i: box.get() < 10, lambda i: (add_one(box), i)[1], 0)
        lax.cond(n > 1, lambda box: add_one(box), lambda box: None, box)
        lax.switch(n, [lambda: None, lambda: box.set(-1.0), lambda: box.set(box.get() * 2)])
        return box.get()

    box = Box(1.0)
    assert wrap(run)(box, 2) == box.get() == 22
    with pytest.raises(TypeError, match="body of a scan changes the state"):
        wrap(lambda box: lax.scan(lambda c, _: (c, box.set(X)), 0, None, length=3))(box)
    with pytest.raises(TypeError, match="branches of a cond leave"):
        wrap(lambda box, flag: lax.cond(flag, lambda: box.set(X), lambda: None))(box, True)


def test_boxes_beside_derivatives():
    for wrap in (lambda f: f, jax.jit):
        box = Box(1.0)

        def f(x, box):
            box.set(lax.stop_gradient(3 * x))
            return x ** 2 + box.get()

        assert jax.grad(wrap(f))(4.0, box) == 8 and box.get() == 12

    @jax.custom_vjp
    def tap(box, x):
        return x

    tap.defvjp(lambda box, x: (x, box), lambda box, ct: (box.set(ct), (None, ct))[1])
    assert jax.grad(lambda x: tap(box, x) * 7)(1.0) == box.get() == 7
    with pytest.raises(Exception, match="stop_gradient"):
        jax.grad(lambda x: (box.set(x), x)[1])(1.0)
    with pytest.raises(TypeError, match="mutable value"):
        jax.grad(lambda box: box.get())(box)
    with pytest.raises(TypeError, match="values that change"):
        jax.vmap(add_one)(box)


def test_a_call_that_fails_leaves_a_box_as_it_is():
    box = Box(1.0)
    with pytest.raises(ZeroDivisionError):
        jax.jit(lambda box: (add_one(box), 1 / 0))(box)
    assert box.get() == 1


def test_boxes_of_high_values():
    box = Box(Q)
    assert jax.jit(lambda box: (box.set(quantize(dequantize(box.get()) * 2)), dequantize(box.get()).max())[1])(box) == 3
    np.testing.assert_allclose(dequantize(box.get()), X, atol=0.05)


class Both(Bare):
    """Two results, and rules of its own for what is recorded and for what is left of it."""

    staged = None

    def __init__(self, aval):
        self.in_avals, self.out_aval, self.params = (aval, aval), {"sin": aval, "product": aval}, {}
        VJPHiPrimitive.__init__(self)

    def expand(self, x, y):
        return {"sin": jnp.sin(x), "product": x * y}

    def dce(self, used):
        return super().dce(used) if self.staged else self.kept(used)

    def staging(self, trace, source_info, *args):
        return self.staged(*args) if self.staged else super().staging(trace, source_info, *args)


def test_dead_code_and_recording_by_rules_of_its_own():
    aval = jax.typeof(jnp.float32(1))
    both, half = Both(aval), Bare(aval)
    program = jax.make_jaxpr(lambda x, y: both(x, y)["sin"])(1.0, 2.0).jaxpr
    seen = []
    Both.kept = lambda self, used: seen.append(used) or ((True, False), used, half)
    narrower, read = pe.dce_jaxpr(program, [True])
    assert seen == [{"product": False, "sin": True}] and read == [True, False]
    assert narrower.eqns[0].params["_prim"] is half and len(narrower.eqns[0].outvars) == 1
    Both.kept = lambda self, used: ((True, True), used, half)
    with pytest.raises(TypeError, match=r"test_hijax.py.*keeps arguments \[True, True\]"):
        pe.dce_jaxpr(program, [True])
    Both.kept = lambda self, used: None
    with pytest.raises(TypeError, match="flags for arguments, flags for results, and an operation"):
        pe.dce_jaxpr(program, [True])
    both.staged = lambda x, y: [y, x]
    assert pe.dce_jaxpr(program, [True])[1] == [True, True]  # without a rule an operation stays whole
    assert jax.jit(lambda x, y: both(x, y)["sin"])(3.0, 4.0) == 3
    both.staged = lambda x, y: [x]
    with pytest.raises(TypeError, match=r"test_hijax.py.*a list of 2 results"):
        jax.make_jaxpr(both)(1.0, 2.0)


def test_shardings_of_jit_are_those_of_each_array():
    mesh = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    over = jax.NamedSharding(mesh, jax.P("x"))
    value = Pair((jnp.ones(2), jnp.zeros(2)))
    places = lambda value: {each.sharding for each in value.parts}
    identity = lambda value: value
    assert places(jax.jit(identity, out_shardings=over)(value)) == {over}
    assert {each.mesh for each in places(jax.jit(identity, in_shardings=over)(value))} == {mesh}
    assert places(jax.jit(identity, out_shardings=over).lower(value).compile()(value)) == {over}
    inner = jax.jit(identity, out_shardings=over)
    assert {each.mesh for each in places(jax.jit(lambda value: inner(value))(value))} == {mesh}
    x = jnp.array([2.0, 3.0])
    assert jax.grad(lambda x: part(inner(pair(x, x)), 1)[1] ** 2)(x).tolist() == [0, 6]
    box = Box(jnp.ones(2))
    jax.jit(lambda box: box.set(box.get() * 2), in_shardings=over)(box)
    assert box.get().sharding.mesh == mesh and box.get().tolist() == [2, 2]
