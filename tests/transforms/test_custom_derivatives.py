"""custom_jvp, custom_vjp, custom_gradient, closure_convert and checkpoint, under jit, vmap, scan and each other."""

import re
from functools import partial

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.ad_checkpoint import checkpoint_name, print_saved_residuals
from jaxlite.core.primitive import Primitive
from jaxlite.custom_derivatives import (
    SymbolicZero,
    closure_convert,
    custom_vjp_primal_tree_values,
    linear_call,
    zero_from_primal,
)

X = np.array([0.3, -0.7, 1.1], np.float32)


def near(got, expected, tol=1e-5):
    np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=tol, atol=tol)


# --- one function, two ways to say its derivative: ten times the true one, to tell it from the derived one -----------


@jax.custom_jvp
def by_jvp(x, y):
    """The documented one."""
    return jnp.sin(x) * y


@by_jvp.defjvp
def _(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    return by_jvp(x, y), 10 * (jnp.cos(x) * y * dx + jnp.sin(x) * dy)


@jax.custom_jvp
def by_jvps(x, y):
    return jnp.sin(x) * y


by_jvps.defjvps(lambda dx, out, x, y: 10 * jnp.cos(x) * y * dx, lambda dy, out, x, y: 10 * jnp.sin(x) * dy)


@jax.custom_vjp
def by_vjp(x, y):
    return jnp.sin(x) * y


by_vjp.defvjp(lambda x, y: (by_vjp(x, y), (x, y)),
              lambda residuals, g: (10 * jnp.cos(residuals[0]) * residuals[1] * g, 10 * jnp.sin(residuals[0]) * g))


@jax.custom_gradient
def by_gradient(x, y):
    return jnp.sin(x) * y, lambda g: (10 * jnp.cos(x) * y * g, 10 * jnp.sin(x) * g)


WAYS = {"jvp": by_jvp, "jvps": by_jvps, "vjp": by_vjp, "gradient": by_gradient}


@pytest.mark.parametrize("name", WAYS)
def test_under_every_transformation(name):
    fun = WAYS[name]
    x, y = np.float32(0.4), np.float32(1.5)
    expected = 10 * np.cos(x) * y, 10 * np.sin(x)
    near(fun(x, y), np.sin(x) * y)
    near(jax.jit(fun)(x, y=y) if name != "gradient" else fun(x, y), np.sin(x) * y)
    for variant in (fun, jax.jit(fun), jax.checkpoint(fun)):
        near(jax.grad(variant, (0, 1))(x, y), expected)
    near(jax.jit(jax.grad(fun))(x, y), expected[0])
    near(jax.vmap(fun, (0, None))(X, y), np.sin(X) * y)
    near(jax.vmap(jax.grad(fun), (0, None))(X, y), 10 * np.cos(X) * y)
    near(jax.grad(lambda x: jnp.sum(jax.vmap(fun, (None, 0))(x, X)))(x), 10 * np.cos(x) * X.sum())
    near(jax.grad(lambda x: lax.scan(lambda c, a: (c + fun(x, a), None), 0.0, X)[0])(x), 10 * np.cos(x) * X.sum())
    near(jax.grad(lambda x: lax.cond(x > 0, fun, lambda x, y: x, x, y))(x), expected[0])
    near(jax.vmap(jax.grad(jax.jit(lambda x: lax.fori_loop(0, 2, lambda i, c: c + fun(x, y), 0.0))))(X), 20 * np.cos(X) * y)


def test_forward_mode():
    near(jax.jvp(by_jvp, (X, X), (X, X))[1], 10 * (np.cos(X) * X * X + np.sin(X) * X))
    near(jax.jvp(jax.vmap(by_jvp), (X, X), (X, X))[1], 10 * (np.cos(X) * X * X + np.sin(X) * X))
    near(jax.grad(lambda x: jax.jvp(by_jvp, (x, 2.0), (1.0, 0.0))[1])(0.5), -10 * np.sin(0.5) * 2)
    with pytest.raises(TypeError, match="can't apply forward-mode autodiff \\(jvp\\) to a custom_vjp function"):
        jax.jvp(by_vjp, (1.0, 1.0), (1.0, 1.0))


def test_forward_mode_inside_of_reverse_mode():
    """A custom_jvp rule may call `jvp` of a custom_vjp function, if the tangents that it gives are transposed or unused."""
    @jax.custom_jvp
    def outer(x):
        return by_vjp(x, 2.0)

    outer.defjvp(lambda primals, tangents: jax.jvp(lambda x: by_vjp(x, 2.0), primals, tangents))
    x = np.float32(0.4)
    looped = jax.grad(lambda x: lax.scan(lambda c, _: (c, outer(c)), x, X)[1][0])
    for derive in (jax.grad(outer), jax.jit(jax.grad(outer)), looped):
        near(derive(x), 20 * np.cos(x))
    near(jax.linear_transpose(lambda dx: jax.jvp(outer, (x,), (dx,))[1], x)(1.0)[0], 20 * np.cos(x))
    near(jax.vmap(jax.grad(outer))(X), 20 * np.cos(X))
    near(jax.jit(lambda x: jax.jvp(outer, (x,), (x,))[0])(x), np.sin(x) * 2)
    for forward in (jax.jacfwd(outer), jax.jit(lambda x: jax.jvp(outer, (x,), (x,))),
                    jax.linearize(outer, x)[1]):
        with pytest.raises(TypeError, match="can't apply forward-mode"):
            forward(x)


def test_second_derivatives_follow_the_rule():
    near(jax.grad(jax.grad(by_jvp))(0.5, 2.0), -10 * np.sin(0.5) * 2)
    near(jax.grad(jax.grad(by_vjp))(0.5, 2.0), -10 * np.sin(0.5) * 2)


def test_functions_keep_their_name_and_documentation():
    assert by_jvp.__name__ == "by_jvp" and by_jvp.__doc__ == "The documented one."


def test_methods():
    class Model:
        scale = 3.0

        @jax.custom_jvp
        def static(x):
            return x * 2

        static.defjvp(lambda primals, tangents: (Model.static(primals[0]), tangents[0] * 7))

    near(jax.grad(Model.static)(1.0), 7.0)


# --- custom_jvp --------------------------------------------------------------------------------------


# What a rule may apply to primals and tangents together; the tangent is staged, the primal is computed.
STRUCTURED = {
    "jit": jax.jit(lambda x: jnp.sin(x) * x),
    "scan": lambda x: lax.scan(lambda c, a: (jnp.sin(c) * a, c * x), x, jnp.arange(1.0, 3.0))[0],
    "scan of results": lambda x: jnp.sum(lax.scan(lambda c, a: (c + 1, jnp.sin(a) * c), 1.0, jnp.stack([x, x * x]))[1]),
    "nested": lambda x: lax.fori_loop(0, 2, lambda i, c: lax.scan(lambda d, _: (jnp.sin(d) * x, None), c, None, 2)[0], x),
    "cond": lambda x: lax.cond(x > 0, lambda x: jnp.sin(x) * x, lambda x: x, x),
    "cond in scan": lambda x: lax.scan(lambda c, a: (lax.cond(c > a, jnp.sin, lambda c: c * x, c), None), x, X)[0],
    "checkpoint": jax.checkpoint(lambda x: jnp.sin(x) * x),
    "another": lambda x: by_jvp(x, x) / 10,
}


@pytest.mark.parametrize("name", STRUCTURED)
def test_rules_by_jvp_of_structured_functions(name):
    fun = STRUCTURED[name]
    custom = jax.custom_jvp(fun)
    custom.defjvp(lambda primals, tangents: (fun(*primals), 10 * jax.jvp(fun, primals, tangents)[1]))
    x = np.float32(0.7)
    expected = 10 * jax.jvp(fun, (x,), (jnp.ones_like(x),))[1]
    value, slope = jax.value_and_grad(custom)(x)
    near(value, fun(x))
    near(slope, expected)
    near(jax.jit(jax.vmap(jax.grad(custom)))(np.array([x, x])), np.array([expected, expected]))
    near(jax.linearize(custom, x)[1](np.float32(2.0)), 2 * expected)
    near(jax.grad(lambda x: lax.scan(lambda c, _: (custom(c), None), x, None, length=1)[0])(x), expected)


def test_jvp_nondiff_arguments():
    def make(**kwargs):
        def apply(fun, x, power):
            return fun(x) ** power

        apply = jax.custom_jvp(apply, **kwargs)

        @apply.defjvp
        def _(fun, power, primals, tangents):
            (x,), (dx,) = primals, tangents
            return apply(fun, x, power), 5.0 * power * dx

        return apply

    for fun in (make(nondiff_argnums=(0, 2)), make(nondiff_argnames=("fun", "power"))):
        near(jax.grad(fun, 1)(jnp.sin, 0.5, 3), 15.0)
        near(jax.jit(lambda x, fun=fun: jax.grad(fun, 1)(jnp.sin, x, 3))(0.5), 15.0)
        near(jax.vmap(lambda x, fun=fun: jax.grad(fun, 1)(jnp.sin, x, 2))(X), np.full(3, 10.0))


def test_jvp_symbolic_zeros():
    seen = []

    @jax.custom_jvp
    def fun(x, y):
        return x * y

    def rule(primals, tangents):
        (x, y), (dx, dy) = primals, tangents
        seen.append((type(dx) is SymbolicZero, type(dy) is SymbolicZero))
        return fun(x, y), dx * y if type(dx) is not SymbolicZero else dx

    fun.defjvp(rule, symbolic_zeros=True)
    near(jax.grad(fun)(2.0, 3.0), 3.0)
    assert seen == [(False, True)]
    near(jax.jvp(lambda y: fun(2.0, y), (3.0,), (1.0,))[1], 0.0)
    assert seen[-1] == (True, False)


def test_jvp_pytrees_and_integers():
    @jax.custom_jvp
    def fun(tree, n):
        return {"out": tree["x"] * n, "n": n}

    @fun.defjvp
    def _(primals, tangents):
        tree, n = primals
        assert tangents[1].dtype == jax.dtypes.float0
        return fun(tree, n), {"out": tangents[0]["x"] * 100, "n": np.zeros((), jax.dtypes.float0)}

    near(jax.grad(lambda x: fun({"x": x}, 3)["out"])(2.0), 100.0)
    near(jax.jit(jax.grad(lambda x: fun({"x": x}, 3)["out"]))(2.0), 100.0)


# --- custom_vjp --------------------------------------------------------------------------------------


def test_vjp_nondiff_arguments_and_keywords():
    def clip(limit, x, scale=2.0):
        return x * scale

    clip = jax.custom_vjp(clip, nondiff_argnums=(0,))
    clip.defvjp(lambda limit, x, scale: (clip(limit, x, scale), scale),
                lambda limit, scale, g: (jnp.clip(g * scale, -limit, limit), None))
    near(clip(1.0, 3.0), 6.0)
    near(jax.grad(lambda x: 5 * clip(1.5, x, scale=3.0))(1.0), 1.5)
    near(jax.grad(lambda x: 5 * clip(100.0, x, scale=3.0))(1.0), 15.0)
    near(jax.grad(lambda s: clip(1.0, 1.0, s))(3.0), 0.0)  # None: no cotangent
    near(jax.vmap(jax.grad(lambda x: jnp.sum(clip(1.0, x))))(X), np.ones(3))


def test_vjp_pytrees_and_residuals_of_any_kind():
    @jax.custom_vjp
    def fun(params, x):
        return {"y": params["w"] * x}, params["b"]

    fun.defvjp(lambda params, x: (fun(params, x), {"w": params["w"], "none": None, "x": [x]}),
               lambda r, g: ({"w": g[0]["y"] * r["x"][0], "b": 2 * g[1]}, None))
    params = {"w": X, "b": np.float32(1)}
    got = jax.jit(jax.grad(lambda p, x: jnp.sum(fun(p, x)[0]["y"]) + fun(p, x)[1]))(params, 2 * X)
    near(got["w"], 2 * X)
    near(got["b"], 2.0)
    near(jax.grad(lambda p, x: jnp.sum(fun(p, x)[0]["y"]), 1)(params, X), np.zeros(3))


def test_vjp_symbolic_zeros():
    seen = []

    @jax.custom_vjp
    def fun(x, y):
        return x * y, x + y

    def fwd(x, y):
        seen.append((x.perturbed, y.perturbed))
        return fun(x.value, y.value), (x.value, y.value)

    def bwd(residuals, g):
        seen.append([type(each) is SymbolicZero for each in g])
        return g[0] * residuals[1], None

    fun.defvjp(fwd, bwd, symbolic_zeros=True)
    near(jax.grad(lambda x: fun(x, 3.0)[0])(2.0), 3.0)
    assert seen == [(True, False), [False, True]]


def test_vjp_of_integer_arguments():
    @jax.custom_vjp
    def take(x, index):
        return x[index]

    take.defvjp(lambda x, index: (x[index], (index, x.shape)), lambda r, g: (jnp.full(3, g) * 2, None))
    near(jax.grad(take)(jnp.asarray(X), 1), np.full(3, 2.0))
    near(jax.vmap(jax.grad(take), (None, 0))(jnp.asarray(X), np.array([0, 2])), np.full((2, 3), 2.0))


@pytest.mark.parametrize("none", [0, False, np.int64(0), jnp.int32(0)])
def test_a_rule_may_give_an_integer_for_no_cotangent(none):
    """JAX takes it for an argument that has no derivative, and hands it on elsewhere. Here it is a number of its dtype."""
    scaled = jax.custom_vjp(lambda x, scale: x * scale)
    scaled.defvjp(lambda x, scale: (x * scale, scale), lambda scale, ct: (ct * scale, none))
    assert jax.grad(scaled)(2.0, 3.0) == 3
    for x in (jnp.float32(2), jnp.bfloat16(2), jnp.complex64(2)):
        holomorphic = x.dtype == np.complex64
        gradients = jax.jit(jax.grad(lambda x: scaled(x * 5, x * 7), holomorphic=holomorphic))(x)
        assert gradients.dtype == x.dtype and gradients == 70  # 5 times the scale of 14


@pytest.mark.parametrize("number", [2.0, np.float32(2), np.ones((), np.float32) * 2])
def test_a_rule_of_jvp_may_give_a_number(number):
    doubled = jax.custom_jvp(lambda x: 2 * x)
    doubled.defjvp(lambda primals, tangents: (2 * primals[0], number))
    assert jax.jvp(doubled, (1.0,), (1.0,))[1] == 2
    assert jax.linearize(lambda x: (doubled(x), x * 3), 1.0)[1](1.0)[1] == 3


def test_residuals_that_vmap_does_not_batch():
    @jax.custom_vjp
    def fun(x, w):
        return x * w

    fun.defvjp(lambda x, w: (x * w, w), lambda w, g: (g * w, jnp.sum(g)))
    dx, dw = jax.grad(lambda x, w: jnp.sum(jax.vmap(fun, (0, None))(x, w)), (0, 1))(X, np.float32(2))
    near(dx, np.full(3, 2.0))
    near(dw, 3.0)


# --- closure_convert, custom_gradient ----------------------------------------------------------------


def test_closure_convert():
    def outer(scale):
        converted, consts = closure_convert(lambda x: x * scale, 1.0)
        assert len(consts) == 1
        return converted(3.0, *consts)

    near(jax.grad(outer)(2.0), 3.0)
    converted, consts = closure_convert(lambda x: x * X, 1.0)
    assert consts == []
    near(converted(2.0), 2 * X)


def test_custom_gradient_of_pytrees():
    @jax.custom_gradient
    def one(tree):
        return tree["a"] * 2, lambda g: {"a": g * 5}

    @jax.custom_gradient
    def two(tree, y):
        return {"out": tree["a"] * 2}, lambda g: ({"a": g["out"] * 5}, y)

    near(jax.grad(one)({"a": 1.0})["a"], 5.0)
    near(jax.jit(jax.grad(lambda tree: two(tree, 2.0)["out"]))({"a": 1.0})["a"], 5.0)


# --- checkpoint --------------------------------------------------------------------------------------


def count(fun, x, name):
    text = str(jax.make_jaxpr(jax.grad(lambda x: jnp.sum(fun(x))))(x))
    return text.count(f" {name}")


def block(x):
    return jnp.sin(checkpoint_name(jnp.sin(checkpoint_name(jnp.sin(x), "first")), "second"))


POLICIES = jax.checkpoint_policies
KEPT = [
    ("everything", POLICIES.everything_saveable, 3),
    ("nothing", POLICIES.nothing_saveable, 5),
    ("default", None, 5),
    ("one name", POLICIES.save_only_these_names("first"), 4),
    ("other name", POLICIES.save_only_these_names("second"), 4),
    ("but", POLICIES.save_any_names_but_these("second"), 4),
    ("except", POLICIES.save_anything_except_these_names("first", "second"), 3),
]


@pytest.mark.parametrize("policy", [row[1] for row in KEPT], ids=[row[0] for row in KEPT])
def test_policies_change_no_value(policy):
    expected = np.cos(np.sin(np.sin(X))) * np.cos(np.sin(X)) * np.cos(X)
    near(jax.jit(jax.grad(lambda x: jnp.sum(jax.checkpoint(block, policy=policy)(x))))(X), expected)


def test_policies_decide_what_is_computed_again():
    sines = {row[0]: count(jax.checkpoint(block, policy=row[1]), X, "sin ") for row in KEPT}
    assert sines["everything"] <= sines["one name"] <= sines["nothing"]
    assert sines["everything"] < sines["nothing"] == sines["default"]
    matrix = np.ones((3, 3), np.float32)

    def products(policy):
        return count(jax.checkpoint(lambda x: jnp.sin(matrix @ jnp.sin(matrix @ x)), policy=policy), X, "dot_general[")

    assert products(POLICIES.dots_saveable) < products(None)


def test_static_arguments():
    def fun(x, power, mode="sin"):
        assert isinstance(power, int) and isinstance(mode, str)
        return jnp.sin(x) ** power

    near(jax.grad(lambda x: jax.checkpoint(fun, static_argnums=(1, 2))(x, 2, "cos"))(0.5), np.sin(1.0))


def test_checkpoint_nests_and_maps():
    inner = jax.checkpoint(jnp.sin)
    outer = jax.checkpoint(lambda x: inner(inner(x)))
    expected = np.cos(np.sin(X)) * np.cos(X)
    near(jax.vmap(jax.grad(outer))(X), expected)
    near(jax.jit(jax.grad(lambda x: jnp.sum(jax.vmap(outer)(x))))(X), expected)
    near(jax.jvp(outer, (X,), (X,))[1], expected * X)
    near(jax.grad(jax.grad(outer))(0.5), jax.grad(jax.grad(lambda x: jnp.sin(jnp.sin(x))))(0.5))
    assert jax.remat is jax.checkpoint


def test_print_saved_residuals(capsys):
    print_saved_residuals(lambda x, y: jnp.sum(jnp.sin(x) * y), X, X)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and all(line.startswith("f32[3] ") for line in lines)
    assert lines.count("f32[3] from the argument y") == 1
    assert any(re.fullmatch(rf"f32\[3\] output of cos from {re.escape(__file__)}:\d+:\d+ .*", line) for line in lines)
    print_saved_residuals(jax.checkpoint(lambda tree: jnp.sum(jnp.sin(jnp.sin(tree["a"])))), {"a": X})
    assert capsys.readouterr().out.splitlines() == ["f32[3] from the argument tree['a']"]
    named = jax.checkpoint(lambda x: jnp.sum(jnp.sin(checkpoint_name(jnp.sin(x), "inner"))),
                           policy=jax.checkpoint_policies.save_only_these_names("inner"))
    print_saved_residuals(named, X)
    assert "f32[3] named 'inner' from " in capsys.readouterr().out


def test_helpers_for_rules_with_symbolic_zeros():
    seen = []

    @jax.custom_vjp
    def scaled(tree, y):
        return tree["a"] * y

    def forward(tree, y):
        values = custom_vjp_primal_tree_values((tree, y))
        seen.append((tree["a"].perturbed, y.perturbed))
        return scaled(*values), values

    def backward(values, ct):
        return {"a": ct * values[1]}, zero_from_primal(values[1])

    scaled.defvjp(forward, backward, symbolic_zeros=True)
    near(jax.grad(lambda x: jnp.sum(scaled({"a": x}, 3.0)))(X), np.full(3, 3.0))
    assert seen == [(True, False)]
    zero = zero_from_primal(X, symbolic_zeros=True)
    assert (type(zero), zero.shape, zero.dtype) == (SymbolicZero, X.shape, X.dtype)
    assert zero_from_primal(3).dtype == jax.dtypes.float0


# --- errors ------------------------------------------------------------------------------------------


def vjp_of(fwd, bwd):
    @jax.custom_vjp
    def fun(x):
        return x * 2.0

    fun.defvjp(fwd, bwd)
    return jax.grad(jax.jit(fun))(1.0)  # in a program: only there is the function's own result known


def jvp_of(rule):
    @jax.custom_jvp
    def fun(x):
        return x * 2.0

    fun.defjvp(rule)
    return jax.grad(jax.jit(fun))(1.0)


ERRORS = [
    ("no jvp", AttributeError, "No JVP defined for custom_jvp function", lambda: jax.custom_jvp(lambda x: x)(1.0)),
    ("no vjp", AttributeError, "No VJP defined for custom_vjp function", lambda: jax.custom_vjp(lambda x: x)(1.0)),
    ("jvp: no pair", TypeError, "must produce a pair", lambda: jvp_of(lambda p, t: p[0])),
    ("jvp: tree", TypeError, "container", lambda: jvp_of(lambda p, t: ((p[0], p[0]), (t[0], t[0])))),
    ("jvp: shape", TypeError, "shapes and dtypes", lambda: jvp_of(lambda p, t: (p[0], jnp.ones(3) * t[0]))),
    ("fwd: no pair", TypeError, "must produce a pair", lambda: vjp_of(lambda x: x, lambda r, g: (g,))),
    ("fwd: tree", TypeError, "fwd", lambda: vjp_of(lambda x: ((x, x), None), lambda r, g: (g,))),
    ("bwd: no tuple", TypeError, "must produce a tuple", lambda: vjp_of(lambda x: (x, None), lambda r, g: g)),
    ("bwd: length", TypeError, "bwd", lambda: vjp_of(lambda x: (x, None), lambda r, g: (g, g))),
    ("bwd: shape", ValueError, "bwd", lambda: vjp_of(lambda x: (x, None), lambda r, g: (jnp.ones(3),))),
    ("nondiff and defjvps", TypeError, "defjvps", lambda: jax.custom_jvp(lambda f, x: x, nondiff_argnums=(0,)).defjvps(None)),
    ("nondiff tracer", jax.errors.UnexpectedTracerError, "nondiff", lambda: jax.jit(lambda n: nondiff_vjp(n, 1.0))(1.0)),
    ("policy", TypeError, "", lambda: jax.checkpoint(3)(1.0)),
]


def nondiff_vjp(n, x):
    fun = jax.custom_vjp(lambda n, x: x, nondiff_argnums=(0,))
    fun.defvjp(lambda n, x: (x, None), lambda n, r, g: (g,))
    return fun(n, x)


@pytest.mark.parametrize("error, text, call", [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_errors(error, text, call):
    with pytest.raises(error, match=text or None):
        call()


# --- which of the functions run ----------------------------------------------------------------------


@jax.custom_jvp
def concrete_jvp(x):
    return jnp.sin(x) if x > 0 else jnp.cos(x)


concrete_jvp.defjvp(lambda primals, tangents: (concrete_jvp(*primals), 2 * tangents[0]))


@jax.custom_vjp
def concrete_vjp(x):
    raise AssertionError("only its rules run")


concrete_vjp.defvjp(lambda x: (np.float32(x + 1), None), lambda residuals, g: (2 * g,))


@pytest.mark.parametrize("fun", [concrete_jvp, concrete_vjp])
def test_only_the_rule_runs_and_on_concrete_values(fun):
    near(jax.grad(fun)(1.0), 2.0)
    near(jax.vjp(fun, 1.0)[1](1.0)[0], 2.0)


@jax.custom_jvp
def double(x):
    return 2 * x


double.defjvp(lambda primals, tangents: (double(*primals), double(*tangents)))


@jax.custom_jvp
def divide(x, y):
    return x / y


divide.defjvp(lambda primals, tangents: (divide(*primals), divide(tangents[0], primals[1])))


@pytest.mark.parametrize("around", [lambda f: f, jax.jit, jax.vmap, lambda f: jax.jit(jax.vmap(f)),
                                    lambda f: jax.vmap(jax.jit(f)), jax.checkpoint])
def test_rules_that_apply_the_function_to_tangents(around):
    near(jax.grad(lambda x: around(double)(x).sum())(X), np.full(3, 2.0))
    near(jax.grad(lambda x: around(divide)(x, 2 * np.ones_like(X)).sum())(X), np.full(3, 0.5))


def test_linear_functions_with_rules_are_transposed():
    near(jax.linear_transpose(double, X)(X)[0], 2 * X)
    near(jax.linear_transpose(jax.jit(jax.vmap(double)), X)(X)[0], 2 * X)


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_closing_over_an_outer_batch(kind):
    def outer(y, around=lambda fun: fun):
        if kind == "jvp":
            fun = jax.custom_jvp(lambda x: x * y)
            fun.defjvp(lambda primals, tangents: (fun(*primals), 10 * tangents[0] * y))
        else:
            fun = jax.custom_vjp(lambda x: x * y)
            fun.defvjp(lambda x: (fun(x), None), lambda residuals, g: (10 * g * y,))
        return fun(2.0), jax.grad(around(fun))(2.0)

    for values in (jax.vmap(outer)(X), jax.jit(jax.vmap(outer))(X)):
        near(values, (2 * X, 10 * X))
    with pytest.raises(jax.errors.UnexpectedTracerError, match="closes over"):
        jax.vmap(partial(outer, around=jax.jit))(X)


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_results_that_all_examples_share(kind):
    def mapped(x, y):
        if kind == "jvp":
            fun = jax.custom_jvp(lambda x, y: (lax.psum(x, "i"), y))
            fun.defjvp(lambda primals, tangents: (fun(*primals), fun(*tangents)))
        else:
            fun = jax.custom_vjp(lambda x, y: (lax.psum(x, "i"), y))
            fun.defvjp(lambda x, y: (fun(x, y), None), lambda residuals, g: (3 * g[0], g[1]))
        return jax.vmap(fun, in_axes=(None, 0), out_axes=(None, 0), axis_name="i", axis_size=3)(x, y)

    for call in (mapped, jax.jit(mapped)):
        near(call(1.0, X)[0], 3.0)
        near(jax.grad(lambda x, call=call: call(x, X)[0])(1.0), 3.0)


def test_a_cotangent_in_the_place_of_a_subtree():
    @jax.custom_vjp
    def f(tree):
        return tree["a"][0] * tree["b"]

    f.defvjp(lambda tree: (f(tree), tree), lambda tree, ct: ({"a": ct * 7, "b": None},))
    assert jax.grad(f)({"a": [1.0], "b": 2.0}) == {"a": [7], "b": 0}


def test_none_inside_a_tree_of_cotangents():
    fun = jax.custom_vjp(lambda pair: pair[0])
    for result, expected in (((None, None), 0.0), (None, 0.0)):
        fun.defvjp(lambda pair: (pair[0], None), lambda residuals, g, result=result: (result,))
        assert jax.grad(fun)((2.0, None)) == (expected, None)
    fun.defvjp(lambda pair: (pair[0], None), lambda residuals, g: ((g, None),))
    assert jax.grad(fun)((2.0, None)) == (1.0, None)


def test_symbolic_zeros_as_results():
    fun = jax.custom_jvp(lambda x, y: (x, y))
    fun.defjvp(lambda primals, tangents: (fun(*primals), tangents), symbolic_zeros=True)
    for call in (fun, jax.jit(fun), jax.vmap(fun, (0, None)), jax.jit(jax.vmap(fun, (0, None)))):
        near(jax.jvp(lambda x, call=call: call(x, 2.0)[0] + 3 * call(x, 2.0)[1], (X,), (X,))[1], X)


def test_a_partial_with_keywords():
    fun = jax.custom_jvp(partial(lambda x, a: x * a, a=0.5))
    fun.defjvp(lambda primals, tangents: (fun(*primals), 7 * tangents[0]))
    assert (fun(1.0), jax.grad(fun)(1.0)) == (0.5, 7.0)


def test_integers_out_of_custom_rules_have_no_tangent():
    """What uses them further needs no derivative rule."""
    count = Primitive("count without rules")
    count.def_impl(lambda n: n)
    count.def_abstract_eval(lambda n: n)

    @jax.custom_vjp
    def f(x):
        return x * 2, jnp.int32(3)

    f.defvjp(lambda x: (f(x), None), lambda _, ct: (ct[0] * 2,))

    def program(x):
        y, n = f(x)
        return y * count.bind(n)

    assert jax.make_jaxpr(jax.grad(program))(1.5).out_avals[0].shape == ()
    assert jax.grad(program)(1.5) == 6


def test_zero_from_primal_of_a_tree():
    zeros = zero_from_primal({"x": X, "n": np.arange(2)}, symbolic_zeros=True)
    assert {name: (zero.shape, zero.dtype) for name, zero in zeros.items()} == {
        "x": (X.shape, np.float32), "n": ((2,), jax.dtypes.float0)}


# --- linear_call -------------------------------------------------------------------------------------


def test_linear_call_has_the_transpose_that_is_given():
    w = np.arange(4, dtype=np.float32).reshape(2, 2)

    def product(x):
        return linear_call(lambda r, x: r @ x, lambda r, ct: 2 * r.T @ ct, w, x)

    near(product(X[:2]), w @ X[:2])
    near(jax.jacrev(product)(X[:2]), 2 * w)
    near(jax.jacfwd(product)(X[:2]), w)
    near(jax.jit(jax.vmap(jax.grad(lambda x: product(x).sum())))(np.ones((3, 2))), np.tile(2 * w.sum(0), (3, 1)))
    (twice,) = jax.linear_transpose(lambda ct: jax.linear_transpose(product, X[:2])(ct)[0], X[:2])(X[:2])
    near(twice, w @ X[:2])


def test_linear_call_with_trees_and_values_closed_over():
    def f(x, scale):
        backward = lambda r, ct: (ct["a"] * scale, ct["a"])
        return linear_call(lambda r, x: {"a": x[0] * scale + x[1]}, backward, (), (x, 2 * x))["a"]

    assert jax.grad(f)(1.0, 3.0) == 5
    near(jax.vmap(jax.grad(f))(X, X), X + 2)
    with pytest.raises(TypeError, match="linear in linear_args alone"):
        jax.grad(f, 1)(1.0, 3.0)
    with pytest.raises(TypeError, match=r"cotangents of the types of linear_args: it gives PyTreeDef\(\(\*,\)\)"):
        linear_call(lambda r, x: x, lambda r, ct: (ct,), 1.0, 1.0)


def test_a_backward_function_runs_though_the_rules_after_it_give_none():
    # such rules hand on new values of statistics as cotangents
    @jax.custom_vjp
    def observe(x, statistic):
        return x * 2, statistic

    @jax.custom_vjp
    def use(x, scaled, statistic):
        return x

    observe.defvjp(lambda x, s: (observe(x, s), s), lambda s, ct: (None, s + 10))
    use.defvjp(lambda x, y, s: (x, None), lambda _, ct: (ct, None, None))

    def f(x, s):
        return use(x, *observe(x, s))

    for grad in (jax.grad(f, (0, 1)), jax.jit(jax.grad(f, (0, 1)))):
        assert grad(3.0, 1.0) == (1, 11)
    assert jax.grad(lambda x, s: (observe(x, s), x)[1], (0, 1))(3.0, 1.0) == (1, 0)  # nobody uses its results
    for call in (jax.jit, jax.checkpoint):  # results of the call that have no cotangent
        called = call(lambda x, s: (observe(x, s), x))
        assert jax.grad(lambda x, s, called=called: called(x, s)[1], (0, 1))(3.0, 1.0) == (1, 0)
    step = lambda carry, _: ((2 * carry[0], observe(*carry)[1]), carry[0])  # and of a loop
    loop = lambda x, s: lax.scan(step, (x, s), None, length=2)
    assert jax.grad(lambda x, s: loop(x, s)[0][0] + loop(x, s)[1].sum(), (0, 1))(3.0, 1.0) == (7, 0)
    assert jax.grad(lambda x, s: loop(x, s)[0][1], 1)(3.0, 1.0) == 11


@pytest.mark.parametrize("options", [{}, {"generic_batching": True}])
def test_the_cotangent_of_what_all_examples_share_counts_once(options):
    def plain(x, y):
        return 2.0 * x, x * y

    ruled = jax.custom_vjp(plain)
    back = lambda kept, ct: (2.0 * ct[0] + kept[1] * ct[1], kept[0] * ct[1])
    ruled.defvjp(lambda x, y: (plain(x, y), (x, y)), back, **options)

    def total(f, x, ys):
        shared, parts = jax.vmap(f, in_axes=(None, 0), out_axes=(None, 0))(x, ys)
        return (jnp.array([[3.0], [5.0]]) * shared).sum() + (parts * parts).sum()

    x, ys = jnp.array([1.0, 2.0]), jnp.arange(6.0).reshape(3, 2)
    for found, expected in zip(*(jax.grad(total, (1, 2))(f, x, ys) for f in (ruled, plain)), strict=True):
        np.testing.assert_allclose(found, expected)
    whole = jax.make_jaxpr(lambda x, y: jax.vjp(jax.vmap(ruled), x, y)[1]((x, y)))(ys, ys)
    assert "pad" not in str(whole)
