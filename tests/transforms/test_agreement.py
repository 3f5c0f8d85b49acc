"""Programs of derivatives and batching that JAX runs, and that a simpler rule would get wrong or refuse."""

from __future__ import annotations

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.experimental.jet import jet
from lowering.xla import VERSION


def test_batched_branches_are_differentiated_only_where_they_are_taken():
    safe = lambda x: lax.cond(x < 1e-3, lambda x: x * 1e-3, jnp.sqrt, x)
    three = lambda which, x: lax.switch(which, [lambda x: 2 * x, jnp.sqrt, jnp.log], x)
    x, which = jnp.array([0.0, 0.0, 4.0]), jnp.array([0, 0, 1])

    @jax.jit
    def run(x):
        loss = lambda x: jax.vmap(safe)(x).sum()
        switched = lambda x: jax.vmap(three)(which, x).sum()
        shared = lambda w: jax.vmap(lambda p: lax.cond(p, lambda: w, lambda: jnp.sqrt(w)))(jnp.array([True, True])).sum()
        return (jax.grad(loss)(x), jax.jvp(loss, (x,), (jnp.ones(3),))[1], jax.grad(lambda x: jax.jit(loss)(x))(x),
                jax.grad(switched)(x), jax.grad(shared)(0.0))

    by_grad, by_jvp, by_jit, switched, shared = run(x)
    np.testing.assert_allclose(by_grad, [1e-3, 1e-3, 0.25], rtol=1e-6)
    np.testing.assert_allclose(by_jit, by_grad)
    np.testing.assert_allclose(by_jvp, 0.252, rtol=1e-6)
    np.testing.assert_allclose(switched, [2, 2, 0.25], rtol=1e-6)
    assert shared == 2


def test_tangents_that_hold_nothing_come_out_of_jit():
    gradient = jax.jit(jax.grad(lambda p: (p["a"] * p["i"]).sum(), allow_int=True))({"a": jnp.ones(2), "i": jnp.arange(2)})
    assert gradient["a"].tolist() == [0, 1] and gradient["i"].dtype == jax.float0 and gradient["i"].shape == (2,)
    assert jax.jit(lambda t: t)(np.zeros(3, jax.float0)).dtype == jax.float0


def test_arguments_without_leaves_are_counted():
    assert jax.jit(lambda *a: a[0] + a[2])(1.0, None, 2.0) == 3
    assert jax.jit(lambda a, *rest: a + rest[2], static_argnums=-1)(1, (), [], 2) == 3
    assert jax.jit(lambda x: x)(np.longlong(7)) == 7


def test_what_vmap_does_not_map_need_not_be_an_array():
    scaled = jax.vmap(lambda x, mode: x * 2 if mode == "twice" else x, in_axes=(0, None))
    assert scaled(jnp.arange(2.0), "twice").tolist() == [0, 2]
    with pytest.raises(TypeError, match="vmap in_axes must be an int, None, or a tuple .* but got False"):
        jax.vmap(lambda x: x, in_axes=False)
    with pytest.raises(TypeError, match=r"vmap in_axes must be an int, None, or \(nested\)"):
        jax.vmap(lambda x: x, in_axes=(False,))

    @jax.tree_util.register_pytree_node_class
    class Strict:
        def __init__(self, value):
            self.value = jnp.asarray(value)

        def tree_flatten(self):
            return (self.value,), None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)

    assert jax.vmap(lambda s, y: Strict(s.value + y), in_axes=(0, None))(Strict(jnp.arange(2.0)), 1.0).value.tolist() == [1, 2]


def test_auxiliary_data_may_be_anything():
    token = object()
    fun = lambda x: (x**2, {"token": token, "text": "s", "array": x})
    for _, aux in ((jax.grad(fun, has_aux=True)(3.0)), jax.value_and_grad(fun, has_aux=True)(3.0)[0],
                   jax.vjp(fun, 3.0, has_aux=True)[1:], jax.jvp(fun, (3.0,), (1.0,), has_aux=True)[1:],
                   jax.linearize(fun, 3.0, has_aux=True)[1:], jax.jacrev(fun, has_aux=True)(3.0)):
        assert aux["token"] is token and aux["text"] == "s" and aux["array"] == 3


def test_jacobians_of_integers_have_their_dtype():
    zeros = jax.jacfwd(lambda x: (lax.argmax(x, 0, np.uint8), x[:1].astype(np.int16)))(jnp.arange(3.0))
    assert [(each.dtype.name, each.shape) for each in zeros] == [("uint8", (3,)), ("int16", (1, 3))]


def test_wide_types_in_a_block_under_derivatives():
    def loss(x):
        with jax.enable_x64(True):
            return (jnp.sin(x) * jnp.arange(3.0)).sum()

    np.testing.assert_allclose([jax.grad(loss)(1.0), jax.jit(jax.grad(loss))(1.0)], [3 * np.cos(1)] * 2, rtol=1e-6)

    def converted(x):  # cotangents are widened on the way back, outside of the block
        with jax.enable_x64(True):
            wide = lax.scan(lambda c, y: (c + y, c), np.float64(0), jnp.arange(3.0) * x.astype(np.float64))[0]
            return jnp.sin(wide * 2).astype(np.float32)

    x = np.float32(0.25)
    found = jax.grad(converted)(x), jax.jit(jax.grad(converted))(x), jax.linearize(converted, x)[1](np.float32(1))
    np.testing.assert_allclose(found, [6 * np.cos(1.5)] * 3, rtol=1e-6)
    assert {each.dtype for each in found} == {np.dtype("float32")}


def test_a_scan_is_transposed_beside_a_carry_that_is_known():
    def linear(x):  # a counter, and a value that follows it
        def step(carry, w):
            i, scale, y = carry
            return (i + 1, scale * 2, y * scale + i * x), y * w

        (_, _, y), ys = lax.scan(step, (0, 1.0, x), jnp.array([1.0, 2.0, 3.0]))
        return y + ys.sum()

    assert jax.linear_transpose(linear, 1.0)(1.0)[0] == linear(1.0)
    assert jax.linear_transpose(lambda x: lax.fori_loop(0, 3, lambda i, c: c * (i + 1), x), 1.0)(1.0)[0] == 6


def test_windows_are_differentiated_in_their_order():
    run = lambda x: lax.reduce_window(x, 0.0, lambda a, b: a + 2 * b, (2,), (1,), "VALID")
    value, tangent = jax.jvp(run, (jnp.array([1.0, 2.0, 3.0]),), (jnp.array([1.0, 10.0, 100.0]),))
    assert value.tolist() == [6, 10] and tangent.tolist() == [22, 220]
    last = lambda x: lax.reduce_window(x, 0.0, lambda a, b: b + 0 * a, (20,), (1,), "VALID")  # more than are unrolled
    assert jax.jvp(last, (jnp.arange(20.0),), (jnp.arange(20.0),))[1].tolist() == [19]


def test_custom_vmap_of_keywords_defaults_and_directions():
    seen = []

    @jax.custom_batching.custom_vmap
    def f(x, y=2.0):
        return jnp.sin(x) * y

    @f.def_vmap
    def _(size, batched, x, y):
        seen.append(batched)
        return jnp.cos(x) * y, batched[0]

    assert f(y=3.0, x=0.0) == 0 and jax.vmap(f)(jnp.zeros(2)).tolist() == [2, 2]
    assert seen == [[True, False]]
    np.testing.assert_allclose(jax.jacfwd(f)(jnp.array([0.0, 0.5])), np.diag(-2 * np.sin([0, 0.5])), atol=1e-6)
    with pytest.raises(ValueError, match="Linearization failed"):
        jax.grad(f)(1.0)


def test_unravelling_keeps_a_single_dtype_polymorphic():
    tree = {"a": jnp.ones(2), "b": jnp.ones((2, 1))}
    (x, unravel), (_, again) = jax.flatten_util.ravel_pytree(tree), jax.flatten_util.ravel_pytree(tree)
    assert unravel == again and hash(unravel) == hash(again)
    assert unravel(x.astype(jnp.bfloat16))["b"].dtype == jnp.bfloat16
    mixed = jax.flatten_util.ravel_pytree({"a": jnp.ones(2, int), "b": jnp.ones(1)})[1]
    with pytest.raises(TypeError, match="dtype int32"):
        mixed(jnp.ones(3, int))


def test_an_empty_batch_of_convolutions():
    images, kernel = jnp.ones((0, 2, 1, 4, 4)), jnp.ones((1, 1, 2, 2))
    assert jax.vmap(lambda x: lax.conv(x, kernel, (1, 1), "VALID"))(images).shape == (0, 2, 1, 3, 3)


def test_float0_explains_itself():
    nothing = np.zeros(3, jax.float0)
    with pytest.raises(TypeError, match="^Called eq"):
        jax.lax.eq(nothing, nothing)
    assert jax.device_put(nothing, jax.devices()[0]).dtype == jax.vmap(lambda x: x)(nothing).dtype == jax.float0
    assert jax.vmap(lambda x: x, out_axes=1)(np.zeros((2, 3), jax.float0)).shape == (3, 2)
    tangents = lambda x: jax.jvp(lambda x: (2, x * 3), (x,), (x,))[1]
    for found in (jax.jit(jax.jacfwd(tangents))(1.0), jax.checkpoint(jax.jacfwd(tangents))(1.0)):
        assert found[0].dtype == jax.float0 and found[0].shape == () and found[1] == 3
    for use in (lambda: nothing + jnp.ones(3), lambda: jnp.add(1.0, nothing)):
        with pytest.raises(TypeError, match="^Called add with a float0 array"):
            use()
    with pytest.raises(TypeError, match="^Called sin with a float0 array"):
        jnp.sin(nothing)
    two = nothing[:2]
    for made in (jnp.zeros((2,), jax.float0), jnp.ones((2,), jax.float0), jnp.zeros_like(two), jnp.asarray(two)):
        assert made.dtype == jax.float0 and made.shape == (2,)


def test_linearized_functions_check_their_tangents():
    push = jax.linearize(lambda x, y: x * y, 3, jnp.ones(2))[1]
    assert push(np.zeros((), jax.float0), jnp.ones(2)).tolist() == [3, 3]
    for wrong in (1, np.float32(1)):
        with pytest.raises(ValueError, match="^linearized function called on tangent values inconsistent with"):
            push(wrong, jnp.ones(2))


def test_vjp_functions_show_what_they_keep_of_the_arguments():
    x, y = jnp.arange(3.0), jnp.ones(3)
    pull = jax.vjp(lambda x, d: x * d["y"] + d["z"], x, {"y": y, "z": y + 1})[1]
    assert pull.args_res[0] is x and pull.args_res[1][0] is y and not jax.tree.leaves(pull.args_res[1][1])
    assert pull.opaque_residuals == [] and pull.out_tree == jax.tree.structure(0) and pull.in_tree.num_leaves == 3
    pull.args_res[0] = 10 * x
    assert pull(jnp.ones(3))[1]["y"].tolist() == [0, 10, 20]
    sine = jax.tree.map(lambda leaf: leaf * 2, jax.vjp(jnp.sin, x)[1])
    again = pull.replace(args_res=[x, pull.args_res[1]])
    again.args_res = [2 * x, pull.args_res[1]]
    assert again(jnp.ones(3))[1]["y"].tolist() == [0, 2, 4] and pull.args_res[0][1] == 10
    with pytest.raises(TypeError, match="no field 'args' to replace"):
        pull.replace(args=())
    assert str(sine.args_res) == "[NotNeeded()]" and sine(y)[0][0] == 2


def test_a_backward_pass_that_must_not_keep_arguments():
    fun = lambda x, y: (jnp.sin(x) * y["q"], y["q"] * 2)
    x, y = jnp.float32(1.0), {"q": jnp.float32(2.0)}
    expected = jax.vjp(fun, x, y)[1]((1.0, 1.0))
    for saveable in ((True, False), (True, {"q": False}), False):
        _, pull = jax.vjp(fun, x, y, saveable_args=saveable)
        assert str(pull.args_res) == "[NotNeeded(), (NotSaveable(),)]"
        with pytest.raises(ValueError, match=r"(?s)restoring.*saveable_args.*args\[1\]\['q'\] of the differentiated"):
            pull((1.0, 1.0))
        pull.args_res[1] = y
        assert pull((1.0, 1.0)) == expected
    assert jax.vjp(fun, x, y, saveable_args=(False, True))[1]((1.0, 1.0)) == expected  # x itself is not needed


def test_containers_that_hold_only_arrays_are_differentiated():
    @jax.tree_util.register_pytree_node_class
    class Buffer:
        def __init__(self, values):
            assert hasattr(values, "dtype")  # as containers do that read their buffers
            self.values = values

        def tree_flatten(self):
            return (self.values,), None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)

    square = lambda buffer: Buffer(buffer.values ** 2)
    of = Buffer(jnp.array([1.0, 2.0]))
    assert jax.vjp(square, of)[1](of)[0].values.tolist() == [2.0, 8.0]
    assert jax.linearize(square, of)[1](of).values.tolist() == [2.0, 8.0]


def test_arguments_that_do_not_vary():
    fun = lambda x, y: {"a": jnp.sin(x) * y, "b": (y, 1.0)}
    out, pull = jax.vjp(fun, 1.0, 2.0, in_nzs=(True, False))
    assert pull.out_nzs == {"a": True, "b": (False, False)}
    ones = jax.tree.map(jnp.ones_like, out)
    assert pull(ones)[0] == jax.vjp(fun, 1.0, 2.0)[1](ones)[0] and pull(ones)[1] == 0
    _, push = jax.linearize(fun, 1.0, 2.0, in_nzs=(True, False))
    assert push.out_nzs == pull.out_nzs and push(1.0, 5.0) == jax.jvp(fun, (1.0, 2.0), (1.0, 0.0))[1]
    program = jax.make_jaxpr(lambda x, y: jax.vjp(fun, x, y, in_nzs=False)[1](ones))(1.0, 2.0)
    assert [eqn.primitive.name for eqn in program.eqns] == ["sin", "mul"]  # no derivatives
    for marks, words in (((True,), "has 1 children while the corresponding container has 2"), (3, "must be a tree of bools"),
                         ((True, (False,)), "in_nzs has 1 children")):
        for transformed in (jax.vjp, jax.linearize):
            with pytest.raises(ValueError, match=words):
                transformed(fun, 1.0, 2.0, in_nzs=marks)



def test_errors_of_backward_rules_are_those_of_jax():
    def with_backward(bwd):
        f = jax.custom_vjp(lambda x, y: (x * y).sum())
        f.defvjp(lambda x, y: ((x * y).sum(), (x, y)), bwd)
        return lambda: jax.grad(f)(jnp.ones(3), jnp.ones(3))

    structure = "^Custom VJP bwd rule must produce an output with the same container .*got bwd output structure PyTreeDef"
    for wrong, kind, words in [
            (lambda r, g: (g * r[0],), TypeError, structure), (lambda r, g: None, TypeError, structure),
            (lambda r, g: ((g * r[1], 1), g), TypeError, structure),
            (lambda r, g: (g, r[0]), ValueError, r"at output\[0\] .* type float32\[\] corresponding to .* type float32\[3\]"),
            (lambda r, g: (r[0], "a"), TypeError, "^Argument 'a' of type <class 'str'> is not a valid JAX type")]:
        with pytest.raises(kind, match=words):
            with_backward(wrong)()


def test_formats_of_a_compiled_function():
    compiled = jax.jit(lambda x, d: (x, d["y"].T)).lower(jnp.ones(3), {"y": jnp.ones((2, 3))}).compile()
    args, kwargs = compiled.input_formats
    assert args[1]["y"].layout.major_to_minor == (0, 1) and args[0].sharding == compiled.input_shardings[0][0] and kwargs == {}
    assert compiled.output_formats[1].layout.major_to_minor == (0, 1)


def test_callables_whose_name_is_no_string():
    class Twice:
        __name__ = 3

        def __call__(self, x):
            return x * 2.0

    f = Twice()
    assert jax.vmap(f)(jnp.ones(2)).tolist() == [2, 2]
    for transform in (jax.grad, jax.jacfwd, jax.jacrev, jax.checkpoint):
        assert transform(f)(1.0) == 2
    assert jax.linear_transpose(f, 1.0)(1.0)[0].weak_type


def test_rules_of_the_function_inside():
    f = jax.custom_vjp(jax.custom_batching.custom_vmap(lambda x: jnp.sin(x)))

    @f.def_vmap
    def rule(size, in_batched, x):
        return jnp.cos(x), True

    f.defvjp(lambda x: (f(x), None), lambda _, ct: (ct * 7,))
    assert jax.vmap(f)(jnp.zeros(2)).tolist() == [1, 1] and jax.grad(f)(0.0) == 7
    with pytest.raises(AttributeError, match="no attribute 'rule'"):
        f.rule()


def test_tangents_are_weakly_typed_where_their_values_are() -> None:
    @jax.custom_jvp
    def f(x, y):
        return jnp.sin(x) * y

    f.defjvp(lambda primals, tangents: (f(*primals), jnp.cos(primals[0]) * tangents[0] + jnp.sin(primals[0]) * tangents[1]))
    for function in (f, jax.jit(lambda x, y: x * y), jax.checkpoint(lambda x, y: jnp.sin(x * y))):
        assert "convert" not in str(jax.make_jaxpr(jax.grad(function))(1.0, 2.0))
        assert jax.grad(function)(1.0, 2.0).weak_type and not jax.grad(function)(jnp.float32(1.0), 2.0).weak_type
    value, series = jet(jnp.sin, (0.5,), ((1.0, 0.0),))
    assert value.weak_type and all(term.weak_type for term in series)
    value, series = jet(jnp.sin, (jnp.float32(0.5),), ((1.0, 0.0),))
    assert not value.weak_type and not any(term.weak_type for term in series)


def test_gradients_of_weakly_typed_arrays_through_zeros_and_shares() -> None:
    weak = jnp.full(3, 0.5)
    for function in (lambda x: x[0], lambda x: x[:2].sum(), jax.nn.logsumexp, lambda x: jnp.pad(x, 1).sum(),
                     lambda x: lax.pad(x, 0.0, [(-1, 2, 0)]).sum()):
        assert not jax.grad(function)(weak).weak_type  # put into an array of zeros
        assert jax.jacrev(function)(weak).weak_type  # a Jacobian is as the argument, or in forward mode as the result
    assert jax.jacfwd(lambda x: jnp.maximum(x, 0.0))(weak).weak_type
    assert not jax.jacfwd(lambda x: x * jnp.ones(3))(weak).weak_type
    pair = jax.jacrev(lambda x, y: x[0] * y, argnums=(0, 1))(weak, jnp.ones(2))
    assert [part.weak_type for part in pair] == [True, False]
    strong = VERSION >= (0, 12)  # as JAX of the same jaxlib
    for function in (lambda x: jnp.clip(x, 0, 1), lambda x: jnp.maximum(x, 0.0), lax.erf, lambda x: jnp.minimum(0.0, x)):
        assert jax.grad(function)(0.5).weak_type is not strong
        assert jax.jvp(function, (0.5,), (1.0,))[1].weak_type is not strong


def test_a_sum_of_cotangents_is_typed_as_its_first_term() -> None:
    weak = jnp.full(3, 0.5)
    # What goes to an element directly is weakly typed; what is put into an array of zeros is not, and comes later.
    for function in (lambda x: jnp.pad(x, 1, mode="edge"), lambda x: jnp.pad(x, 1, mode="wrap"), jnp.sinc):
        assert jax.grad(lambda x, f=function: f(x).sum())(weak).weak_type
    assert all(part.weak_type for part in jax.scipy.linalg.rsf2csf(jnp.full((2, 2), 0.5), jnp.full((2, 2), 0.5)))
    assert jax.scipy.signal.detrend(weak).weak_type and jnp.linalg.lstsq(jnp.full((2, 2), 0.5), weak[:2])[3].weak_type


def test_tangents_that_have_a_dtype_of_their_own() -> None:
    special = jax.scipy.special
    for function in (lambda x: 2 ** x, lambda x: special.xlogy(x, 2.0), lambda x: special.xlog1py(2.0, x),
                     lambda x: special.zeta(2.0, x)):
        value, tangent = jax.jvp(function, (0.5,), (1.0,))
        assert value.weak_type and not tangent.weak_type
        assert not jax.linearize(function, 0.5)[1](1.0).weak_type and jax.grad(function)(0.5).weak_type
    for function in (jax.nn.relu, jax.nn.relu6, lambda x: jnp.tile(x, 2), lambda x: jnp.broadcast_to(x, 2),
                     lambda x: jnp.expand_dims(x, 0), lambda x: lax.integer_pow(x, 0),
                     jnp.transpose):  # no programs of their own
        assert jax.jvp(function, (0.5,), (1.0,))[1].weak_type and not jax.jvp(function, (0.5,), (jnp.float32(1),))[1].weak_type
    matrix = jnp.full((2, 2), 0.5)
    for function in (jnp.linalg.cholesky, lambda a: jnp.linalg.qr(a)[1]):
        assert not jax.jvp(function, (matrix,), (matrix,))[1].weak_type and jax.vjp(function, matrix)[1](matrix)[0].weak_type
    for x in (0.5, jnp.full(2, 0.5)):
        assert not jax.grad(lambda x: special.log_ndtr(x).sum())(x).weak_type
    half = lambda b: lax.custom_linear_solve(lambda x: 2 * x, b, lambda _, b: b / 2, symmetric=True)
    for tangent in (1.0, jnp.float32(1)):
        assert jax.jvp(half, (0.5,), (tangent,))[1].weak_type is isinstance(tangent, float)
    weak = jnp.full(2, 0.5)
    for x in (0.5, weak):
        assert all(each.weak_type for each in jax.jvp(lambda a: special.betaln(a, a), (x,), (x,)))


@pytest.mark.parametrize("transform, error", [(jax.grad, TypeError), (jax.jacfwd, ValueError), (jax.jacrev, ValueError)])
def test_arguments_that_are_not_there_to_differentiate(transform, error):
    with pytest.raises(error, match="at least 4 positional arguments"):
        transform(jnp.sin, argnums=3)(1.0)
