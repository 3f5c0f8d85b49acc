"""jvp, linearize, vjp, grad and their relatives: calling forms, nesting, errors, and the programs they make."""

import math

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax

X = np.array([0.3, -0.7, 1.1], np.float32)


def near(got, expected, tol=1e-5):
    np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=tol, atol=tol)


def poly(params, x, *, scale=1.0):
    return jnp.sum(params["w"] * x ** 2 + params["b"] * x) * scale


PARAMS = {"w": np.array([1.0, 2.0, 3.0], np.float32), "b": np.array([0.5, -0.5, 0.25], np.float32)}


# --- calling forms -----------------------------------------------------------------------------------


def test_grad_takes_pytrees_and_keywords():
    got = jax.grad(poly)(PARAMS, X, scale=2.0)
    near(got["w"], 2 * X ** 2)
    near(got["b"], 2 * X)
    assert set(got) == {"w", "b"}


@pytest.mark.parametrize("argnums, expected", [(0, "w"), (1, "x"), (-1, "x"), ((0,), ("w",)), ((1, 0), ("x", "w")),
                                               ([0, 1], ("w", "x")), (np.int32(1), "x")])
def test_argnums_forms(argnums, expected):
    def fun(w, x):
        return jnp.dot(w * w, x)

    want = {"w": 2 * PARAMS["w"] * X, "x": PARAMS["w"] ** 2}
    got = jax.grad(fun, argnums)(PARAMS["w"], X)
    if isinstance(expected, str):
        near(got, want[expected])
    else:
        assert isinstance(got, tuple) and len(got) == len(expected)
        for each, name in zip(got, expected, strict=True):
            near(each, want[name])


def test_value_and_grad_and_auxiliary_data():
    def fun(x):
        return jnp.sum(x ** 2), {"norm": jnp.max(x), "count": 3}

    (value, aux), gradient = jax.value_and_grad(fun, has_aux=True)(X)
    near(value, np.sum(X ** 2))
    near(gradient, 2 * X)
    near(aux["norm"], 1.1)
    assert aux["count"] == 3
    gradient, aux = jax.grad(fun, has_aux=True)(X)
    near(gradient, 2 * X)
    out, tangent, aux = jax.jvp(fun, (X,), (X,), has_aux=True)
    near(tangent, 2 * np.sum(X ** 2))
    out, pull, aux = jax.vjp(fun, X, has_aux=True)
    near(pull(np.float32(1))[0], 2 * X)
    near(aux["norm"], 1.1)
    out, push, aux = jax.linearize(fun, X, has_aux=True)
    near(push(X), 2 * np.sum(X ** 2))


def test_auxiliary_data_does_not_leak_tracers_of_grad():
    _, aux = jax.grad(lambda x: (x * x, jnp.sin(x)), has_aux=True)(0.5)
    near(aux, np.sin(0.5))


def test_jvp_of_pytrees():
    out, tangent = jax.jvp(lambda d, y: {"s": jnp.sum(d["a"] * y), "y": y}, ({"a": X}, X), ({"a": X}, X))
    near(tangent["s"], 2 * np.sum(X ** 2))
    near(tangent["y"], X)
    near(out["s"], np.sum(X ** 2))


def test_dtypes_and_weak_types():
    value, gradient = jax.value_and_grad(lambda x: x * x)(3.0)
    assert gradient.dtype == np.float32 and gradient.weak_type and value.weak_type
    assert jax.grad(lambda x: x ** 3 * 2)(3.0).weak_type
    assert not jax.grad(lambda x: x ** 3 * 2)(np.float32(3)).weak_type
    # A weak argument's gradient is weak wherever it went: through strong arrays, loops and branches, or nowhere.
    strong = jnp.arange(3.0)
    for function in (lambda x: (x * strong).sum(), lambda x: lax.cond(x > 0, jnp.sin, jnp.cos, x), lambda x: 3.0,
                     lambda x: lax.scan(lambda c, _: (c * x, None), x, None, length=2)[0]):
        assert jax.grad(function)(2.0).weak_type
    assert jax.jacrev(lambda x: x * strong)(2.0).weak_type and jax.hessian(lambda x: x ** 3)(2.0).weak_type
    assert not jax.jvp(lambda x: x * strong, (2.0,), (1.0,))[1].weak_type
    # But what a rule of the user's gives is left as it is, and so are cotangents that are given.
    double = jax.custom_vjp(lambda x: 2 * x)
    double.defvjp(lambda x: (2 * x, None), lambda _, g: (strong[2] * g,))
    pull = jax.vjp(jnp.sin, 1.0)[1]
    assert not jax.grad(double)(2.0).weak_type and not pull(strong[0])[0].weak_type and pull(1.0)[0].weak_type
    assert jax.vjp(lambda x: x * strong[1], 1.0)[1](strong[1])[0].weak_type
    descend = lambda c, _: (c - 0.1 * jax.grad(lambda v: (v * strong).sum())(c), None)
    assert lax.scan(descend, 1.0, None, length=2)[0].shape == ()
    gradient = jax.grad(lambda x: (x * x).astype(jnp.float32).sum())(jnp.ones(3, jnp.bfloat16))
    assert gradient.dtype == jnp.bfloat16
    near(gradient.astype(jnp.float32), np.full(3, 2.0))


def test_linearize_serves_many_tangents(count_traces):
    fun = count_traces(lambda x, y: jnp.sin(x) * y)
    out, push = jax.linearize(fun, X, X)
    near(out, np.sin(X) * X)
    for tangent in (X, 2 * X):
        near(push(tangent, X), np.cos(X) * X * tangent + np.sin(X) * X)
    assert fun.count == 1


def test_vjp_of_a_function_with_several_outputs():
    out, pull = jax.vjp(lambda x, y: (x * y, [jnp.sum(x)]), X, X + 1)
    dx, dy = pull((X, [np.float32(2)]))
    near(dx, X * (X + 1) + 2)
    near(dy, X * X)


def test_linear_functions_are_pytrees():
    """Their leaves are what they know of the point, so they pass through jit, vmap and custom_vjp in a scan."""
    x = jnp.array([0.5, 1.5])
    for make in (lambda x: jax.vjp(jnp.sin, x)[1], lambda x: jax.linearize(jnp.sin, x)[1]):
        (leaf,) = jax.tree.leaves(make(x))
        np.testing.assert_allclose(leaf, np.cos(x), rtol=1e-6)
        linear = jax.jit(make)(x)
        np.testing.assert_allclose(jax.tree.leaves(linear(jnp.ones(2)))[0], np.cos(x), rtol=1e-6)
        batched = jax.vmap(make)(x)
        np.testing.assert_allclose(jax.tree.leaves(jax.vmap(lambda f: f(2.0))(batched))[0], 2 * np.cos(x), rtol=1e-6)
    assert jax.tree.leaves(jax.vjp(lambda x: 2.0 * x, x)[1]) == []

    fun = jax.custom_vjp(lambda a, b: jnp.sin(a) * b)
    fun.defvjp(lambda a, b: jax.vjp(lambda a, b: jnp.sin(a) * b, a, b), lambda pull, ct: pull(ct))
    loop = lambda fun: jax.grad(lambda x: jnp.sum(lax.scan(lambda c, a: (fun(c, a) + c, c), x, jnp.stack([x, x]))[0]))
    np.testing.assert_allclose(loop(fun)(x), loop(lambda a, b: jnp.sin(a) * b)(x), rtol=1e-6)


def test_linear_transpose():
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    (back,) = jax.linear_transpose(lambda x: jnp.dot(matrix, x), X)(np.array([1, -1], np.float32))
    near(back, matrix.T @ np.array([1, -1]))
    (back,) = jax.linear_transpose(lambda x: 2 * x, jax.ShapeDtypeStruct((3,), jnp.float32))(X)
    near(back, 2 * X)

    def written(x):
        ref = jax.new_ref(x)
        ref[...] = jnp.sin(ref[...])
        return ref[...]

    # What a loop computes beside what is linear is known, and so are Refs that are made in the function.
    slope = jax.grad(lambda x: jnp.sum(lax.scan(lambda c, _: (jnp.sin(c), c), x, None, length=2)[0]))
    for fun in (slope, jax.jit(slope), written):
        pushed = lambda t, fun=fun: jax.jvp(fun, (X,), (t,))[1]
        near(jax.linear_transpose(pushed, X)(X)[0], pushed(X))
    with pytest.raises(NotImplementedError, match="'sin' not implemented"):
        jax.linear_transpose(jnp.sin, X)(X)
    for fun, x in ((lambda x: x.astype(int), 3.0), (lambda x: x, True)):  # between kinds there is no transpose
        with pytest.raises(TypeError, match=r"linear_transpose only supports \[float or complex\] ->"):
            jax.linear_transpose(fun, x)


# --- integers and complex numbers --------------------------------------------------------------------


def test_integers_have_float0_tangents():
    count = np.arange(3)
    (ints, gradient) = jax.grad(lambda n, x: jnp.sum(n * x), argnums=(0, 1), allow_int=True)(count, X)
    assert ints.dtype == jax.dtypes.float0 and ints.shape == (3,)
    near(gradient, count)
    out, tangent = jax.jvp(lambda n, x: (n + 1, n * x), (count, X), (np.zeros(3, jax.dtypes.float0), X))
    assert tangent[0].dtype == jax.dtypes.float0
    near(tangent[1], count * X)
    _, pull = jax.vjp(lambda x: (x * 2, jnp.argmax(x)), X)
    near(pull((X, np.zeros((), jax.dtypes.float0)))[0], 2 * X)


def test_holomorphic_and_complex_gradients():
    z = np.complex64(0.5 + 0.25j)
    near(jax.grad(lambda z: z ** 3, holomorphic=True)(z), 3 * z ** 2)
    near(jax.grad(lambda z: jnp.abs(z) ** 2)(z), 2 * np.conj(z))
    near(jax.jacfwd(lambda z: z * z, holomorphic=True)(z), 2 * z)
    near(jax.grad(lambda x: jnp.abs(jnp.exp(1j * x) + 1))(0.5), -np.sin(0.25))


# --- Jacobians ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("jac", [jax.jacfwd, jax.jacrev, jax.jacobian])
def test_jacobians_of_pytrees(jac):
    def fun(p, y):
        return {"u": p["a"] * jnp.sum(y), "v": jnp.dot(y, y)}

    got = jax.jit(jac(fun, argnums=(0, 1)))({"a": X}, X[:2])
    near(got["u"][0]["a"], np.eye(3) * X[:2].sum())
    near(got["u"][1], np.stack([X, X], 1))
    near(got["v"][0]["a"], np.zeros(3))
    near(got["v"][1], 2 * X[:2])
    got, aux = jac(lambda x: (x * x, x[0]), has_aux=True)(X)
    near(got, np.diag(2 * X))
    near(aux, X[0])


def test_hessian():
    def fun(x):
        return jnp.sum(jnp.sin(x)) * x[0]

    expected = np.diag(-np.sin(X) * X[0])
    expected[0] += np.cos(X)
    expected[:, 0] += np.cos(X)
    near(jax.jit(jax.hessian(fun))(X), expected)


# --- nesting -----------------------------------------------------------------------------------------


def test_transformations_nest():
    def inner(x):
        return jax.grad(lambda y: y ** 3 * x)(x)  # 3 x^3

    def outer(x):  # sum over k of the derivative of 3 (k x)^3 along k: 9 k^3 x^2
        scales = jnp.array([1.0, 2.0])
        values = jax.vmap(lambda k: jax.jvp(jax.jit(inner), (k * x,), (k,))[1])(scales)
        return jnp.sum(values)

    near(jax.grad(outer)(0.5), 18 * 9 * 0.5)
    near(jax.jit(jax.grad(outer))(0.5), 18 * 9 * 0.5)
    near(jax.grad(jax.grad(jax.grad(jnp.sin)))(0.4), -np.cos(0.4))


def test_perturbations_are_not_confused():
    def fun(x):
        return x * jax.jvp(lambda y: x + y, (1.0,), (1.0,))[1]

    assert float(jax.grad(fun)(3.0)) == 1.0
    assert float(jax.jvp(lambda x: jax.grad(lambda y: x * y)(2.0), (3.0,), (1.0,))[1]) == 1.0


def test_stop_gradient():
    assert jax.lax.stop_gradient(np.arange(2)).dtype == np.int32
    near(jax.grad(lambda x: x * lax.stop_gradient(x))(3.0), 3.0)
    tree = jax.grad(lambda x: sum(lax.stop_gradient({"a": x, "b": x}).values()) + x)(3.0)
    near(tree, 1.0)


def test_closed_over_tracers_and_unused_arguments():
    near(jax.grad(lambda x: jax.jit(lambda y: y * x)(2.0))(3.0), 2.0)
    near(jax.grad(lambda x, y: y * 2.0)(3.0, 1.0), 0.0)
    near(jax.grad(lambda x: 4.0)(3.0), 0.0)


def test_control_flow_of_python_sees_values():
    near(jax.grad(lambda x: x * x if x > 0 else -x)(3.0), 6.0)
    near(jax.grad(lambda x: x * x if x > 0 else -x)(-3.0), -1.0)


# --- programs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("convert", [float, complex, math.sin, math.floor, "{:.2f}".format, "%f".__mod__])
@pytest.mark.parametrize("transform", [
    jax.grad, lambda f: lambda x: jax.jvp(f, (x,), (1.0,)), lambda f: lambda x: jax.vjp(f, x)])
def test_a_differentiated_value_does_not_become_a_float(convert, transform):
    """What is computed of the float would have no derivative: d x sin(x) would be sin(x)."""
    with pytest.raises(TypeError):
        transform(lambda x: (x, convert(x))[0])(1.0)


def test_a_differentiated_value_may_be_looked_at():
    near(jax.grad(lambda x: x[0] * x.item())(jnp.array([3.0])), [3.0])  # `item` says that a number of Python is wanted
    near(jax.grad(lambda x: x[1] * x.item(1))(X), [0, X[1], 0])
    near(jax.grad(lambda x: [x, 2 * x][int(x)])(1.0), 2)
    assert jax.vjp(lambda n: "ab".index("b") + [10, 20][n], 1)[0] == 21
    with pytest.raises(TypeError, match="index|integer"):
        jax.grad(lambda x: [x, 2 * x][x])(1.0)


def test_what_tracers_print():
    seen = []

    def look(x):
        seen.append(repr(x))
        return x

    jax.grad(look)(1.0)
    jax.grad(jax.grad(lambda x: look(x).sum()))(2.0)
    jax.vmap(jax.vmap(look))(np.ones((2, 3), np.int32))
    jax.vmap(lambda x: jax.jvp(look, (x,), (x,)), 1)(jnp.full((2, 3), 1.0))
    assert seen == [  # as JAX 0.10.2 and 0.12 print them
        "GradTracer(primal=1.0, typeof(tangent)=f32[])",
        "GradTracer(primal=GradTracer(primal=2.0, typeof(tangent)=f32[]), typeof(tangent)=f32[])",
        "VmapTracer(aval=int32[], batched=int32[3])",
        "JVPTracer(primal=VmapTracer(aval=~float32[2], batched=~float32[2,3]), "
        "tangent=VmapTracer(aval=~float32[2], batched=~float32[2,3]))",
    ]


def test_jaxpr_of_a_gradient():
    assert str(jax.make_jaxpr(jax.grad(lambda x: jnp.sin(jnp.cos(x))))(1.0)) == """\
{ lambda ; a:f32[]. let
    b:f32[] = cos a
    c:f32[] = sin a
    _:f32[] = sin b
    d:f32[] = cos b
    e:f32[] = mul 1.0:f32[] d
    f:f32[] = neg e
    g:f32[] = mul f c
  in (g,) }"""


def names(fun, *args):
    return sorted(eqn.primitive.name for eqn in jax.make_jaxpr(fun)(*args).jaxpr.eqns)


def test_no_dead_equations_after_jit():
    def fun(x):
        return jnp.sum(jnp.tanh(x) * 2.0)

    inner = jax.make_jaxpr(jax.jit(jax.grad(fun)))(X).jaxpr.eqns[0].params["jaxpr"].jaxpr
    used = {id(var) for eqn in inner.eqns for var in eqn.invars} | {id(var) for var in inner.outvars}
    dead = [str(eqn) for eqn in inner.eqns if not any(id(var) in used for var in eqn.outvars)]
    assert len(dead) <= 2, dead  # the values of the function itself, which grad drops
    assert [eqn.primitive.name for eqn in inner.eqns].count("tanh") == 1


def test_second_call_does_not_trace_again(count_traces):
    fun = count_traces(lambda x: jnp.sum(x ** 2))
    step = jax.jit(jax.value_and_grad(fun))
    for _ in range(3):
        step(X)
    assert fun.count == 1
    inner = count_traces(lambda x: jnp.sin(x))
    compiled = jax.jit(inner)
    for _ in range(3):
        jax.grad(compiled)(0.5)
    assert inner.count == 1


# --- errors ------------------------------------------------------------------------------------------

ERRORS = [
    ("vector output", TypeError, "Gradient only defined for scalar-output functions. Output had shape: \\(3,\\)",
     lambda: jax.grad(lambda x: x)(X)),
    ("tuple output", TypeError, "Gradient only defined for scalar-output functions. Output was: ",
     lambda: jax.grad(lambda x: (x, x))(1.0)),
    ("integer input", TypeError, "grad requires real- or complex-valued inputs", lambda: jax.grad(lambda x: x * 1.0)(3)),
    ("integer output", TypeError, "grad requires real-valued outputs",
     lambda: jax.grad(lambda x: x.astype(int))(jnp.float32(1))),
    ("complex output", TypeError, "grad requires real-valued outputs", lambda: jax.grad(lambda x: x * 1j)(1.0)),
    ("holomorphic input", TypeError, "holomorphic=True requires inputs with complex dtype",
     lambda: jax.grad(lambda x: x, holomorphic=True)(1.0)),
    ("jacfwd of complex", TypeError, "jacfwd requires real-valued inputs", lambda: jax.jacfwd(lambda x: x)(1j)),
    ("argnums too large", TypeError, "requires at least 3 positional arguments", lambda: jax.grad(lambda x: x, 2)(1.0)),
    ("no argument", TypeError, "requires at least 1 positional argument", lambda: jax.grad(lambda x=1.0: x)()),
    ("no function", TypeError, "Expected a callable value", lambda: jax.grad(3)),
    ("no pair", TypeError, "has_aux", lambda: jax.grad(lambda x: x, has_aux=True)(1.0)),
    ("no array", TypeError, "not a valid JAX type", lambda: jax.grad(lambda x: 1.0)("x")),
    ("tangent dtype", TypeError, "primal and tangent arguments to .*jvp do not match; dtypes must be equal",
     lambda: jax.jvp(lambda x: x, (1.0,), (1,))),
    ("tangent shape", ValueError, "jvp called with different primal and tangent shapes",
     lambda: jax.jvp(lambda x: x, (X,), (X[:2],))),
    ("tangent tree", TypeError, "must have the same tree structure", lambda: jax.jvp(lambda x: x, (X,), (X, X))),
    ("no tuples", TypeError, "must be tuples or lists", lambda: jax.jvp(lambda x: x, X, X)),
    ("integer tangent", TypeError, "float0", lambda: jax.jvp(lambda x: x, (1,), (1,))),
    ("cotangent tree", ValueError, "unexpected tree structure of argument to vjp function",
     lambda: jax.vjp(lambda x: x, X)[1]((X, X))),
    ("cotangent shape", ValueError, "got float32\\[2\\], but expected float32\\[3\\]",
     lambda: jax.vjp(lambda x: x, X)[1](X[:2])),
    ("cotangent dtype", ValueError, "VJP function", lambda: jax.vjp(lambda x: x, X)[1](np.arange(3))),
    ("transpose tree", TypeError, "cotangent tree does not match", lambda: jax.linear_transpose(lambda x: x, X)((X, X))),
]


@pytest.mark.parametrize("error, text, call", [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()


# --- functions that linearisation returns ------------------------------------------------------------


@pytest.mark.parametrize("make, expected", [
    (lambda x: jax.vjp(jnp.sin, x)[1], lambda t: (np.cos(X) * t,)),
    (lambda x: jax.linearize(jnp.sin, x)[1], lambda t: np.cos(X) * t),
], ids=["vjp", "linearize"])
def test_linear_functions_go_in_and_out_of_transformed_functions(make, expected):
    t = np.array([2.0, -1.0, 0.5], np.float32)
    linear = jax.jit(make)(X)  # keeps values of the trace: they are leaves of what is returned
    assert len(jax.tree.leaves(linear)) == 1
    batched = jax.vmap(make)(X)
    for got in (linear(t), jax.jit(lambda f, x: f(x))(make(X), t), jax.vmap(lambda f, x: f(x))(batched, t)):
        jax.tree.map(near, got, expected(t))


def test_jacrev_of_integers_and_of_complex_outputs():
    got = jax.jacrev(lambda n, x: n.sum() * x, argnums=(0, 1), allow_int=True)(np.arange(2), X)
    assert got[0].shape == (3, 2) and got[0].dtype == np.int32 and not got[0].any()
    near(got[1], np.eye(3))
    with pytest.raises(TypeError, match="jacrev requires real-valued outputs"):
        jax.jacrev(lambda z: z ** 2)(1j)
    with pytest.raises(TypeError, match="jacrev with holomorphic=True requires outputs with complex dtype"):
        jax.jacrev(jnp.abs, holomorphic=True)(1j)


@pytest.mark.parametrize("transform", [
    jax.vmap, jax.grad, jax.jacfwd, jax.hessian, jax.pmap, lambda f: jax.vjp(f, 1.0), lambda f: jax.jvp(f, (1.0,), (1.0,)),
    lambda f: jax.linearize(f, 1.0), lambda f: jax.linear_transpose(f, 1.0)])
def test_what_is_no_function_is_refused(transform):
    def generate(x):
        yield x

    async def wait(x):
        return x

    with pytest.raises(TypeError, match="Expected a callable value, got 3"):
        transform(3)
    for made, kind in ((generate, "generator"), (wait, "coroutine")):
        with pytest.raises(TypeError, match=f"Expected a function, got a {kind} function"):
            transform(made)
    with pytest.raises(TypeError, match="staticmethod arguments are not supported"):
        transform(staticmethod(jnp.sin))


@pytest.mark.parametrize("transform", [jax.grad, jax.value_and_grad, jax.jacfwd, jax.jacrev, jax.hessian])
@pytest.mark.parametrize("wrong", ["a", (0, "a"), 1.5, None])
def test_argnums_that_are_none_are_refused_at_once(transform, wrong):
    with pytest.raises(TypeError):
        transform(lambda x: x, argnums=wrong)


def test_the_function_of_a_vjp_may_be_replaced():
    # A library makes the structures of two of them equal so.
    class Equal:
        def __init__(self, f):
            self.f = f

        def __call__(self, *args):
            return self.f(*args)

        def __eq__(self, other):
            return isinstance(other, Equal)

        __hash__ = None

    pulls = [jax.vjp(jnp.sin, x)[1] for x in (1.0, 2.0)]
    for pull in pulls:
        pull.fun = Equal(pull.fun)
    (leaves, tree), (_, other) = map(jax.tree.flatten, pulls)
    assert tree == other
    np.testing.assert_allclose(tree.unflatten(leaves)(2.0)[0], 2 * np.cos(1.0), rtol=1e-6)


def test_tangents_at_weakly_typed_arrays():
    weak, strong = jnp.full(3, 0.5), jnp.ones(3)
    push = lambda f, tangent: jax.jvp(f, (weak,), (tangent,))[1].weak_type

    # Functions of lax leave tangents as they are; those of numpy, calls and loops give them the type of the primals.
    of_lax = (lax.expm1, lax.sin, lambda x: lax.add(x, x), lambda x: lax.rev(x, (0,)), jax.vmap(lax.sin))
    for f in (*of_lax, lambda x: x[:2], lambda x: x):
        assert not push(f, strong) and push(f, weak)
    loop = lambda x: lax.fori_loop(0, 2, lambda _, y: lax.sin(y), x)
    for f in (jnp.expm1, jnp.sin, lambda x: x + x, jax.jit(lax.sin), loop, jax.vmap(jnp.sin), lambda x: x.at[0].set(1.0)):
        assert push(f, strong) and push(f, weak)
    nested = jax.jvp(lambda x: jax.jvp(jnp.sin, (x,), (strong,)), (weak,), (strong,))
    assert all(each.weak_type for each in jax.tree.leaves(nested))

    # Constants of rules have the dtype of arrays; they are weak beside weakly typed numbers alone.
    for f in (lax.square, lax.sqrt, lax.rsqrt, lax.cbrt, lax.exp2, lax.tan, lax.atan, lax.erf_inv, lax.digamma,
              lambda x: lax.integer_pow(x, 3), jnp.deg2rad, jnp.median, jnp.square):
        assert not push(f, weak)
        assert not jax.vjp(f, weak)[1](jnp.ones(f(weak).shape))[0].weak_type
    for f in (lax.square, lax.sqrt, lax.cbrt, lax.exp2, lax.tan, lambda x: lax.integer_pow(x, 3), jnp.square):
        assert jax.jvp(f, (0.5,), (1.0,))[1].weak_type and jax.grad(f)(0.5).weak_type
    np.testing.assert_allclose(jax.grad(lambda x: lax.square(x).sum())(weak), [1, 1, 1])
    assert jax.grad(lambda x: jnp.nan_to_num(x).sum())(weak).weak_type
