"""What rules of custom_vjp functions log in backward passes, and accumulators instead of returned cotangents."""

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.ad import DontWant, GradRef, GradValue
from jaxlite.experimental.hijax import NullAccum, RefAccum, ValAccum, VJPHiPrimitive

ONE = jnp.float32(1)
X = jnp.float32(2)


def watched(name="a", value=lambda x, g: g):
    """sin, which logs `value` of its argument and the cotangent."""
    @jax.custom_vjp
    def sin(x):
        return jnp.sin(x)

    sin.defvjp_with_logs(lambda x: (sin(x), x), lambda x, g: ((g * jnp.cos(x),), {name: value(x, g)}))
    return sin


f, h = watched("a"), watched("b")


def logged(fun, *args):
    """The log of a backward pass from ones; the gradients are those without it."""
    out, pull = jax.vjp(fun, *args)
    ones = jax.tree.map(jnp.ones_like, out)
    cotangents, log = pull.with_logs(ones)
    for got, expected in zip(cotangents, pull(ones), strict=True):
        np.testing.assert_array_equal(got, expected)
    return log


def same(got, expected):
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6), got, expected)
    assert jax.tree.structure(got) == jax.tree.structure(expected)


def test_logs_of_plain_and_jitted_functions():
    inner = float(np.cos(np.sin(2)))
    for wrap in (lambda g: g, jax.jit, jax.checkpoint, lambda g: jax.jit(jax.checkpoint(g))):
        same(logged(wrap(lambda x: f(h(x))), X), {"a": 1.0, "b": inner})
    same(jax.jit(lambda x: jax.vjp(f, x)[1].with_logs(3 * x))(X)[1], {"a": 6.0})
    same(jax.jit(lambda pull: pull.with_logs(ONE))(jax.vjp(f, X)[1])[1], {"a": 1.0})
    assert logged(jnp.sin, X) == {} and logged(lambda x: (f(x), x)[1], X) == {}
    assert logged(watched("a", lambda x, g: "text"), X) == {"a": "text"}
    assert logged(lambda x: jax.vjp(f, x)[1](ONE)[0], X) == {}  # of the pass inside
    tree = lambda x, g: {"p": g, "q": (x, None)}
    same(logged(jax.jit(watched("a", tree)), X), {"a": {"p": 1.0, "q": (2.0, None)}})
    assert jax.grad(lambda x: jax.vjp(watched("a", lambda x, g: x * g), x)[1].with_logs(ONE)[1]["a"])(X) == 1
    assert logged(jax.jit(lambda x: (f(x), 2 * x)), X).keys() == {"a"}
    assert logged(lambda x: jax.jit(lambda x: (f(x), 2 * x))(x)[1], X) == {}  # no cotangent can arrive


def test_loops_stack_and_batches_batch():
    points = np.array([2.0, np.sin(2), np.sin(np.sin(2))])
    expected = np.array([np.cos(points[1]) * np.cos(points[2]), np.cos(points[2]), 1.0])
    step = lambda c, _: (f(c), None)
    for loop in (lambda x: lax.scan(step, x, None, length=3)[0], lambda x: lax.fori_loop(0, 3, lambda i, c: f(c), x),
                 lambda x: lax.scan(jax.checkpoint(step), x, None, length=3)[0]):
        same(logged(loop, X), {"a": expected})
    nothing = watched("a", lambda x, g: None)
    assert logged(lambda x: lax.scan(lambda c, _: (nothing(c), None), x, None, length=2)[0], X) == {"a": None}
    same(logged(jax.vmap(lambda x: lax.scan(step, x, None, length=2)[0]), jnp.zeros(4)), {"a": np.ones((2, 4))})
    same(logged(jax.vmap(watched("a", lambda x, g: 5.0)), jnp.zeros(4)), {"a": np.full(4, 5.0)})
    same(jax.vmap(lambda x: jax.vjp(f, x)[1].with_logs(x)[1])(
        jnp.arange(4.0)), {"a": np.arange(4.0)})


def test_branches_log_sums():
    log = logged(lambda x: lax.cond(x > 0, f, h, x), X)
    a, b = log["a"], log["b"]
    assert (a.index, a.branches) == (1, [None, 1]) and (b.index, b.branches) == (1, [0, None])
    both = jax.jit(lambda i, x: jax.vjp(lambda x: lax.switch(i, [f, f, jnp.sin], x), x)[1].with_logs(x)[1]["a"])
    assert [(int(each.index), [int(part) for part in each.branches[:2]]) for each in (both(i, X) for i in range(3))] == [
        (0, [2, 0]), (1, [0, 2]), (2, [0, 0])]
    assert both(0, X).branches[2] is None
    steps = logged(lambda x: lax.scan(lambda c, s: (lax.cond(s > 1, f, h, c), None), x, jnp.arange(3.0))[0], X)["a"]
    np.testing.assert_array_equal(steps.index, [0, 0, 1])
    np.testing.assert_array_equal(steps.branches[1], [0, 0, 1])
    assert str(jax.tree_util.tree_flatten_with_path(steps)[0][1][0]) == str(
        (jax.tree_util.GetAttrKey("branches"), jax.tree_util.SequenceKey(1)))
    nested = logged(lambda x: lax.cond(x > 1, lambda x: lax.cond(x > 3, f, h, x), h, x), X)["a"]
    assert nested.index == 1 and nested.branches[0] is None and nested.branches[1].branches == [None, 0]
    batch = logged(jax.vmap(lambda x: lax.cond(x > 1, f, h, x)), jnp.arange(3.0))  # all branches run
    same(batch, {"a": np.array([0.0, 0, 1]), "b": np.array([1.0, 1, 0])})


def test_names_are_unique_and_values_arrays():
    match = "Duplicate backward-pass log key 'a'"
    for fun in (lambda x: f(f(x)), lambda x: jax.jit(f)(jax.jit(f)(x)), lambda x: lax.cond(x > 0, f, h, f(x))):
        with pytest.raises(ValueError, match=match):
            jax.grad(fun)(X)
    for wrap in (jax.jit, jax.vmap):
        with pytest.raises(TypeError, match="<class 'str'> at \\['a'\\], which is not a valid JAX type"):
            logged(wrap(watched("a", lambda x, g: "text")), jnp.ones(2))

    def giving(result):
        @jax.custom_vjp
        def same(x):
            return x

        same.defvjp_with_logs(lambda x: (x, None), lambda _, g: result(g))
        return lambda: jax.grad(same)(X)

    for result in (lambda g: (g,), lambda g: g, lambda g: ((g,), {}, {})):
        with pytest.raises(TypeError, match=r"defvjp_with_logs and so must produce a pair \(in_cts, logs\), but got"):
            giving(result)()
    with pytest.raises(TypeError, match="the second element of the pair it returns must be None or a dict"):
        giving(lambda g: ((g,), 3))()
    assert giving(lambda g: [(g,), None])() == 1


# --- accumulators ------------------------------------------------------------------------------------

KINDS = []


def product(log=None):
    """sin(x) * y, which adds its cotangents to accumulators, and notes their kinds."""
    @jax.custom_vjp
    def f(x, y):
        return jnp.sin(x) * y

    def bwd(kept, g, of_x, of_y):
        KINDS.append((type(of_x), type(of_y)))
        of_x.accum(g * jnp.cos(kept[0]) * kept[1])
        of_y.accum(g * jnp.sin(kept[0]))
        return log and {"g": g}

    f.defvjp_with_accums(lambda x, y: (f(x, y), (x, y)), bwd)
    return f


def kinds_of(call):
    KINDS.clear()
    call()
    return KINDS[-1]


def test_accumulators_by_what_is_wanted():
    p, dx, dy = product(), np.cos(2) * 3, np.sin(2)
    same(jax.grad(p, (0, 1))(X, 3 * ONE), (dx, dy))
    same(jax.jit(jax.vmap(jax.grad(p, (0, 1))))(jnp.full(2, X), jnp.full(2, 3.0)), (np.full(2, dx), np.full(2, dy)))
    assert kinds_of(lambda: jax.grad(p)(X, X)) == (ValAccum, NullAccum)
    total, (_, pull) = jax.new_ref(ONE), jax.vjp(p, X, 3 * ONE)
    assert kinds_of(lambda: pull.with_refs(total, DontWant())(ONE)) == (RefAccum, NullAccum)
    same(total[...], 1 + dx)
    assert kinds_of(lambda: pull.with_refs(GradValue(), total)(ONE)) == (ValAccum, RefAccum)
    same(total[...], 1 + dx + dy)
    twice = jax.vjp(lambda x, y: p(x, y) + p(x, y) + x, X, 3 * ONE)[1]
    assert twice.with_refs(total, DontWant())(ONE)[0] == GradRef()
    same(total[...], 2 + 3 * dx + dy)
    _, pull = jax.vjp(jax.vmap(p), jnp.ones(2), jnp.ones(2))
    refs = [jax.new_ref(jnp.zeros(2)) for _ in range(2)]
    assert kinds_of(lambda: pull.with_refs(*refs)(jnp.ones(2))) == (ValAccum, ValAccum)  # one example is no Ref
    same(refs[1][...], np.sin([1, 1]))
    pairs = jax.vjp(product(log=True), X, X)[1].with_logs
    same(pairs.with_refs(GradValue(), DontWant())(ONE)[1], {"g": 1.0})
    loop = lambda x: lax.scan(lambda c, _: (product(log=True)(c, c), None), x, None, length=2)[0]
    assert logged(loop, X)["g"][1] == 1


def test_what_a_rule_with_accumulators_may_do():
    def rule(bwd):
        @jax.custom_vjp
        def f(x):
            return x

        f.defvjp_with_accums(lambda x: (x, None), lambda _, g, of_x: bwd(g, of_x))
        return lambda: jax.grad(f)(X)

    assert rule(lambda g, of_x: None)() == 0 and rule(lambda g, of_x: of_x.accum(None))() == 0
    with pytest.raises(TypeError, match="must return None or a dict of backward-pass log entries, but got tuple"):
        rule(lambda g, of_x: (g,))()
    with pytest.raises(ValueError, match=r"Expected cotangent type float32\[\] but got float32\[3\]"):
        rule(lambda g, of_x: of_x.accum(jnp.ones(3)))()
    with pytest.raises(ValueError, match="the dtypes do not match"):
        rule(lambda g, of_x: of_x.accum(jnp.complex64(3)))()
    assert rule(lambda g, of_x: of_x.accum(jnp.int32(3)))() == 3

    @jax.custom_vjp
    def first(tree):
        return tree["a"] * tree["n"]

    first.defvjp_with_accums(lambda tree: (first(tree), None), lambda _, g, tree: tree["a"].accum(g * 7))
    found = jax.grad(first, allow_int=True)({"a": X, "n": 3})
    assert found["a"] == 7 and found["n"].dtype == jax.dtypes.float0


# --- custom_gradient ---------------------------------------------------------------------------------


def test_custom_gradient_with_logs():
    def square(result):
        return jax.custom_gradient(with_logs=True)(lambda x: (x ** 2, lambda g: result(x, g)))

    same(logged(square(lambda x, g: ((2 * x * g,), {"g": g})), X), {"g": 1.0})
    assert jax.jit(jax.grad(square(lambda x, g: (2 * x * g, None))))(X) == 4
    same(logged(jax.vmap(square(lambda x, g: (g, {"x": x}))), jnp.arange(2.0)), {"x": np.arange(2.0)})
    for result in (lambda x, g: (g,), lambda x, g: g):
        with pytest.raises(TypeError, match=r"must return a VJP function producing a pair \(in_cts, logs\)"):
            jax.grad(square(result))(X)


def test_custom_gradient_with_accumulators():
    def product(kinds):
        @jax.custom_gradient(with_accums=kinds)
        def f(x, y):
            def pull(g, of_x, of_y):
                KINDS.append((type(of_x), type(of_y)))
                of_x.accum(g * jnp.cos(x) * y)
                of_y.accum(g * jnp.sin(x))
                return {"g": g}
            return jnp.sin(x) * y, pull
        return f

    values = jax.grad(product(ValAccum), (0, 1))(X, 3 * ONE)
    same(values, (np.cos(2) * 3, np.sin(2)))
    assert kinds_of(lambda: jax.grad(product(ValAccum))(X, X)) == (ValAccum, NullAccum)
    ref, (_, pull) = jax.new_ref(ONE), jax.vjp(product((ValAccum, RefAccum)), X, 3 * ONE)
    found, log = pull.with_logs.with_refs(GradValue(), ref)(ONE)
    same((found[0], ref[...], log), (values[0], 1 + values[1], {"g": 1.0}))
    assert pull.with_refs(DontWant(), ref)(ONE)[1] == GradRef()
    for kind, targets in ((ValAccum, (ref, GradValue())), ((ValAccum, RefAccum), (GradValue(), DontWant()))):
        with pytest.raises(TypeError, match="function f declared a .*Accum for its argument"):
            jax.vjp(product(kind), X, X)[1].with_refs(*targets)(ONE)
    with pytest.raises(TypeError, match="ValAccum or RefAccum leaves, but got a leaf True"):
        jax.grad(product(True))(X, X)


def test_primitives_of_libraries_log():
    class Power(VJPHiPrimitive):
        def __init__(self, aval, n):
            self.in_avals, self.out_aval, self.params = (aval,), aval, {"n": n}
            super().__init__()

        def expand(self, x):
            return x ** self.n

        def vjp_fwd(self, nonzero, x):
            return self(x), x

        def vjp_bwd(self, x, cotangent, of_x):
            KINDS.append(type(of_x))
            of_x.accum(cotangent * self.n * x ** (self.n - 1))
            return {"p": cotangent}

        def batch_dim_rule(self, axis, dims):
            return dims[0]

    cube = lambda x: Power(jax.typeof(x), 3)(x)
    same(logged(jax.jit(cube), X), {"p": 1.0})
    same(logged(jax.vmap(cube), jnp.arange(3.0)), {"p": np.ones(3)})
    ref = jax.new_ref(ONE)
    assert kinds_of(lambda: jax.vjp(cube, X)[1].with_refs(ref)(ONE)) is RefAccum
    assert ref[...] == 13
