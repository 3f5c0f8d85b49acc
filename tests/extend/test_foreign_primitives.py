"""Primitives that libraries define, and the tables their rules go into: views on what our own rules stand in."""

from __future__ import annotations

import contextlib
from functools import partial

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.extend import core
from jaxlite.extend.core import Primitive
from jaxlite.extend.rule_tables import RuleError
from jaxlite.interpreters import ad, batching, mlir, xla

X = np.arange(3, dtype=np.float32)


def multiply_add() -> Primitive:
    """x * y + z, with all of its rules in JAX's calling conventions."""
    from jaxlib.mlir.dialects import stablehlo

    prim = Primitive("multiply_add")
    prim.def_impl(partial(xla.apply_primitive, prim))
    prim.def_abstract_eval(lambda x, y, z: jax.core.ShapedArray(x.shape, x.dtype))
    mlir.register_lowering(prim, lambda ctx, x, y, z: [stablehlo.add(stablehlo.multiply(x, y), z)])

    def jvp(primals, tangents):
        assert type(primals) is type(tangents) is tuple  # celerite2 adds more operands to them
        (x, y, z), (dx, dy, dz) = primals, tangents
        dy, dz, dx = map(ad.instantiate_zeros, (dy, dz, dx))
        return prim.bind(x, y, z), prim.bind(dx, y, prim.bind(x, dy, dz))

    def transpose(ct, x, y, z):
        if ad.is_undefined_primal(x):
            return prim.bind(ct, y, jnp.zeros_like(ct)), None, ct
        return None, prim.bind(x, ct, jnp.zeros_like(ct)) if ad.is_undefined_primal(y) else None, ct

    ad.primitive_jvps[prim] = jvp
    ad.primitive_transposes[prim] = transpose
    batching.primitive_batchers[prim] = lambda args, dims: (
        prim.bind(*[batching.bdim_at_front(arg, dim, 3) for arg, dim in zip(args, dims, strict=True)]), 0)
    return prim


def test_a_primitive_with_rules_in_jax_conventions():
    prim = multiply_add()

    def f(x, y):
        return prim.bind(x, y, jnp.float32(1))

    assert prim.bind(X, X, X).tolist() == jax.jit(prim.bind)(X, X, X).tolist() == [0, 2, 6]
    assert jax.grad(f, (0, 1))(2.0, 3.0) == (3, 2) == jax.jit(jax.grad(f, (0, 1)))(2.0, 3.0)
    assert jax.vmap(f, (0, None))(X, np.float32(2)).tolist() == [1, 3, 5]
    assert "multiply_add a b 1.0:f32[]" in str(jax.make_jaxpr(f)(1.0, 2.0))
    assert prim in ad.primitive_jvps and prim in ad.primitive_transposes and prim in batching.primitive_batchers


def test_our_own_rules_are_read_through_the_same_tables():
    out, dim = batching.primitive_batchers[lax.add_p]((X, np.float32(1)), (0, None))
    assert out.tolist() == [1, 2, 3] and dim == 0
    out, tangent = ad.primitive_jvps[lax.sin_p]((0.0,), (2.0,))
    assert (float(out), float(tangent)) == (0, 2)
    assert lax.while_p not in ad.primitive_transposes
    assert core.primitives.jit_p is jax.make_jaxpr(jax.jit(jnp.sin))(X).eqns[0].primitive
    undefined = ad.UndefinedPrimal(jax.typeof(X))
    assert [None if each is None else each.tolist() for each in ad.get_primitive_transpose(lax.mul_p)(X, undefined, X)] \
        == [[0, 1, 4], None]


def test_names_may_be_taken():
    """A second primitive of a name has its own rules, also where the name is that of one of ours."""
    prim = Primitive("sin")
    prim.def_abstract_eval(lambda x: x)
    with pytest.raises(NotImplementedError, match="MLIR translation rule for primitive 'sin' not found for platform cpu"):
        jax.jit(prim.bind)(X)
    with pytest.raises(NotImplementedError, match="Differentiation rule for 'sin' not implemented"):
        jax.grad(prim.bind)(1.0)
    mlir.register_lowering(prim, lambda ctx, x: [mlir.ir_constant(np.full(3, 7, np.float32))], platform="cuda")
    with pytest.raises(NotImplementedError, match="there is one for cuda"):
        jax.jit(lambda x: prim.bind(x))(X)
    mlir.register_lowering(prim, mlir.lower_fun(lambda x: x * x + X, multiple_results=False))
    ours, theirs = jax.jit(lambda x: (jnp.sin(x), prim.bind(x)))(X)
    assert theirs.tolist() == [0, 2, 6]
    np.testing.assert_allclose(ours, np.sin(X), rtol=1e-6)
    bare = Primitive("without rules")
    with pytest.raises(NotImplementedError, match="Abstract evaluation for 'without rules' not implemented"):
        jax.jit(bare.bind)(X)


def test_linear_vectorized_and_fancy_rules():
    double = Primitive("double")
    double.def_impl(lambda x: jnp.asarray(x) * 2)
    double.def_abstract_eval(lambda x: x)
    ad.deflinear(double, lambda ct: [double.bind(ct)])
    batching.defvectorized(double)
    mlir.register_lowering(double, mlir.lower_fun(lambda x: x * 2, multiple_results=False))
    assert jax.grad(lambda x: double.bind(x) ** 2)(3.0) == 24
    assert jax.vmap(jax.grad(lambda x: double.bind(x) ** 2))(X).tolist() == [0, 8, 16]
    assert jax.linear_transpose(double.bind, 1.0)(1.0) == (2.0,)
    asked = []

    def everywhere(axis, args, dims):
        asked.append((axis.size, axis.name, dims))
        return double.bind(*args), dims[0]

    batching.fancy_primitive_batchers[double] = everywhere
    jax.vmap(lambda x: double.bind(x) + double.bind(1.0), axis_name="i")(X)
    assert asked == [(3, "i", (0,)), (3, "i", (None,))]

    def with_parts(size, name, _, args, dims):
        asked.append((size, name, dims))
        return double.bind(*args), dims[0]

    batching.axis_primitive_batchers[double] = with_parts
    jax.vmap(double.bind, axis_name="i")(X)
    assert asked[2:] == [(3, "i", (0,))]
    psum = batching.axis_primitive_batchers[jax.lax.psum_p]
    total, dim = psum(3, "i", None, (X,), (0,), axes=("i",), axis_index_groups=None)
    assert dim is None and float(total) == float(X.sum())


@pytest.mark.parametrize("table, rule, use, message", [
    (batching.primitive_batchers, lambda args, dims: (args[0], 5), lambda f: jax.vmap(f)(X), "shape .3,. is 5"),
    (batching.primitive_batchers, lambda args, dims: args[0], lambda f: jax.vmap(f)(X), "must return a pair"),
    (ad.primitive_jvps, lambda primals, tangents: (primals[0], X), lambda f: jax.grad(f)(1.0), r"float32\[3\]|f32\[3\]"),
    (ad.primitive_jvps, lambda primals, tangents: primals[0], lambda f: jax.jvp(f, (1.0,), (1.0,)), "pair of primal and"),
    (ad.primitive_transposes, lambda ct, x: (ct, ct), lambda f: jax.linear_transpose(f, 1.0)(1.0), "each of 1 operands"),
])
def test_a_rule_that_is_wrong_is_named(table, rule, use, message):
    prim = Primitive("wrong")
    prim.def_impl(lambda x: x)
    prim.def_abstract_eval(lambda x: x)
    table[prim] = rule
    with pytest.raises(RuleError, match=rf"rule of 'wrong', <lambda> at .*test_foreign_primitives.py:\d+.*({message})"):
        use(prim.bind)


def test_a_lowering_of_the_wrong_type_is_named():
    prim = Primitive("wrong lowering")
    prim.def_abstract_eval(lambda x: x)
    for rule, message in (
        (lambda ctx, x: [mlir.ir_constant(np.int32(1))], r"tensor<i32> as result 0, which is of type tensor<3xf32>"),
        (lambda ctx, x: [x, x], "returned 2 values for 1 results"),
        (lambda ctx, x: ["text"], "'text' of type <class 'str'> as result 0, which is not an MLIR value"),
    ):
        mlir.register_lowering(prim, rule)
        with pytest.raises(RuleError, match=f"the lowering rule of 'wrong lowering', <lambda> at .*{message}"):
            jax.jit(lambda x: prim.bind(x))(X)


def test_tables_take_primitives_alone():
    with pytest.raises(TypeError, match=r"registered for 'sin' of type <class 'str'>, which is not a primitive"):
        ad.primitive_jvps["sin"] = lambda primals, tangents: None
    with pytest.raises(TypeError, match="register_lowering takes a primitive and a function"):
        mlir.register_lowering("sin", lambda ctx: None)
    with pytest.raises(KeyError):
        batching.primitive_batchers[Primitive("unbatched")]


def test_what_libraries_ask_of_the_rest():
    """einsum with a product of the caller's, keys compared, complex initial values, sizes that are NumPy's integers."""
    twice = jnp.einsum("ij,jk,kl->il", *[jnp.ones((2, 2))] * 3, _dot_general=lambda *a, **k: 2 * lax.dot_general(*a, **k))
    assert twice.tolist() == [[16, 16], [16, 16]]
    key = jax.random.key(0)
    assert jnp.allclose(key, key) and not jnp.allclose(key, jax.random.key(1))
    init = jax.nn.initializers.lecun_normal()
    assert jax.eval_shape(lambda k: init(k, (np.int64(3), 4)), key).shape == (3, 4)
    values = init(key, (400, 50), jnp.complex64)
    np.testing.assert_allclose(values.var(), 1 / 400, rtol=0.02)
    assert abs(values).max() <= 2 / 0.953 / 20


def test_objects_that_stand_for_arrays_under_derivatives_and_batching():
    """Parameters of a module that are traced are found by the trace whose tracers they hold."""

    class Parameter:
        def __init__(self, value):
            self.value = value

        def __jax_array__(self):
            return self.value

    def f(w):
        return jnp.dot(X, Parameter(w)) + lax.mul(Parameter(w), w).sum()

    assert jax.grad(f)(X).tolist() == [0, 3, 6]
    assert jax.jit(jax.vmap(jax.grad(f)))(np.ones((2, 3), np.float32)).tolist() == [[2, 3, 4]] * 2
    assert float(jax.jvp(f, (X,), (X,))[1]) == 15


def test_types_have_a_sharding_that_says_nothing():
    aval = jax.typeof(X)
    assert aval.sharding.mesh.empty and aval.sharding.spec == jax.sharding.PartitionSpec(None)
    assert jax.core.ShapedArray((3,), np.float32, sharding=aval.sharding) is aval is aval.to_tangent_aval()
    assert jax.core.ShapedArray((), np.int32).to_tangent_aval().dtype == jax.dtypes.float0
    mesh = jax.sharding.AbstractMesh((1,), "x", axis_types=(jax.sharding.AxisType.Explicit,))
    cut = aval.update(sharding=jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x")))
    assert cut is not aval and cut.str_short(True) == "f32[3@x]" and cut.sharding.spec == jax.sharding.PartitionSpec("x")
    assert jnp.shape(np.array(["a", "b"])) == (2,)


def test_a_subclass_of_primitive_may_define_what_its_instances_do():
    class Tag(Primitive):
        multiple_results = True

        def __init__(self):
            super().__init__("subclass tag")
            ad.primitive_jvps[self] = lambda primals, tangents, **params: (self.bind(*primals, **params), tangents)
            mlir.register_lowering(self, lambda ctx, *args, **params: args)

        def impl(self, *args, **params):
            seen.append(("impl", params["note"]))
            return args

        def abstract_eval(self, *avals, **params):
            seen.append(("type", params["note"]))
            return avals, jax.extend.core.no_effects

    seen = []
    tag = Tag()
    f = lambda x: tag.bind(x, 2 * x, note="n")[1]
    assert f(1.0) == 2 and seen == [("impl", "n")]
    assert float(jax.jit(jax.grad(f))(1.0)) == 2 and seen[1:] == [("type", "n")]
    out, effects = lax.sin_p.abstract_eval(jax.typeof(X), accuracy=None)
    assert out == jax.typeof(X) and not effects


def test_the_class_of_arrays_has_their_attributes():
    for name in ("shape", "dtype", "ndim", "size", "real", "imag", "T", "at", "sharding", "addressable_shards", "nbytes"):
        assert hasattr(jax.Array, name), name
    assert X.shape == (3,) and jnp.array(1 + 2j).imag == 2


@pytest.mark.parametrize("several, rule, message", [
    (False, lambda x: (x, x), "an abstract value, but returned"),
    (False, lambda x: x.shape, "an abstract value, but returned .3,."),
    (True, lambda x: x, "a sequence of abstract values"),
    (True, lambda x: [x, None], "a sequence of abstract values"),
])
def test_an_abstract_evaluation_of_another_kind_is_named(several, rule, message):
    prim = Primitive("mistyped", multiple_results=several)
    prim.def_abstract_eval(rule)
    with pytest.raises(TypeError, match=rf"rule of 'mistyped', <lambda> at .*test_foreign_primitives.py:\d+.*{message}"):
        jax.make_jaxpr(prim.bind)(X)
    prim.def_effectful_abstract_eval(lambda x: [x])
    with pytest.raises(TypeError, match="must return a pair of abstract values and effects"):
        jax.make_jaxpr(prim.bind)(X)


def test_effects_of_a_library_are_lowered_where_it_says_so():
    class Counted(core.Effect):
        pass

    prim = Primitive("counted")
    prim.def_effectful_abstract_eval(lambda x: (x, {Counted()}))
    mlir.register_lowering(prim, lambda ctx, x: [x])
    with pytest.raises(ValueError, match="Cannot lower jaxpr with effects: .Counted.: 'counted' has them"):
        jax.jit(prim.bind)(X)
    mlir.lowerable_effects.add_type(Counted)
    assert jax.jit(prim.bind)(X).tolist() == [0, 1, 2] and len(jax.make_jaxpr(prim.bind)(X).effects) == 1


def test_a_lowering_that_calls_python():
    from jaxlite.interpreters import pxla

    prim = Primitive("in python", multiple_results=True)
    prim.def_abstract_eval(lambda x: [x, jax.core.ShapedArray((), np.dtype(np.int32))])

    def lower(ctx, x):
        results, token, kept = mlir.emit_python_callback(
            ctx, lambda x: (np.sin(x), np.int32(x.size)), None, [x], ctx.avals_in, ctx.avals_out, has_side_effect=False)
        ctx.module_context.add_keepalive(kept)
        assert token is None and "jit__lambda" in mlir.module_to_string(ctx.module_context.module)
        return results

    mlir.register_lowering(prim, lower)
    sines, size = jax.jit(lambda x: prim.bind(x * 2))(X)
    np.testing.assert_allclose(sines, np.sin(X * 2), rtol=1e-6)
    assert size == 3
    (eqn,) = jax.make_jaxpr(prim.bind)(X).eqns
    assert eqn.primitive.get_bind_params(eqn.params) == {} and pxla.thread_resources.env.physical_mesh.empty
    with jax.make_mesh((1,), ("i",)) as mesh:
        assert pxla.thread_resources.env.physical_mesh == mesh


def test_a_lowering_with_operations_of_the_older_dialect():
    from jaxlib.mlir.dialects import mhlo  # as veros makes its constants

    prim = Primitive("add_seven")
    prim.def_abstract_eval(lambda x: jax.core.ShapedArray(x.shape, x.dtype))
    mlir.register_lowering(prim, lambda ctx, x: mhlo.AddOp(x, mlir.ir_constant(np.full(3, 7, np.float32))).results)
    np.testing.assert_array_equal(jax.jit(prim.bind)(X), X + 7)


def test_ffi_lowering_takes_layouts_with_the_fastest_axis_first():
    prim = Primitive("qr of the rows", multiple_results=True)
    prim.def_abstract_eval(lambda x: [x, jax.core.ShapedArray((2,), x.dtype)])
    jnp.linalg.qr(jnp.eye(2))  # which registers LAPACK
    row_major = jax.ffi.ffi_lowering("lapack_sgeqrf_ffi", operand_layouts=[(1, 0)], result_layouts=[(1, 0), None],
                                     operand_output_aliases={0: 0})
    mlir.register_lowering(prim, row_major, platform="cpu")
    out, _ = jax.jit(lambda x: prim.bind(x))(np.array([[1, 2], [3, 4], [5, 6]], np.float32))
    assert abs(float(out[0, 0])) == pytest.approx(np.sqrt(14))  # of 1, 2, 3: LAPACK reads the memory by columns


def test_what_is_no_array_and_what_is_no_primitive_names_the_rule():
    def rule(*args, **params):
        return object()

    p = Primitive("gives_objects")
    p.def_abstract_eval(lambda x: x)
    p.def_impl(lambda x: x)
    batching.primitive_batchers[p] = lambda args, dims: (rule(), 0)
    ad.primitive_jvps[p] = lambda primals, tangents: (primals[0], rule())
    for call in (lambda: jax.vmap(p.bind)(jnp.ones(2)), lambda: jax.jvp(p.bind, (1.0,), (1.0,))):
        with pytest.raises(RuleError, match=r"gives_objects.*test_foreign_primitives.py.*object.*which is not an array"):
            call()
    ad.deflinear2(p, lambda ct, x: [rule()])
    with pytest.raises(RuleError, match=r"transpose rule of 'gives_objects'.*test_foreign_primitives.py.*is not an array"):
        jax.grad(p.bind)(1.0)
    for register in (ad.defjvp, ad.deflinear, ad.deflinear2):
        with pytest.raises(TypeError, match=r"rule rule at .*test_foreign_primitives.py.*which is not a primitive"):
            register("gives_objects", rule)
    with pytest.raises(NotImplementedError, match=r"rule at .*test_foreign_primitives.py.*platform 'nowhere'"):
        mlir.register_lowering(p, rule, platform="nowhere")


def test_what_is_current():
    seen = []

    def look(x):
        env = jax.core.trace_ctx.axis_env
        with jax.core.eval_context():
            seen.append((env.axis_names(), env.axis_size("i"), jax.core.trace_ctx.is_top_level(), float(jnp.ones(()) + 1)))
        seen.append((jax.core.trace_ctx.is_top_level(), jax.core.trace_ctx.trace is core.find_top_trace(())))
        with pytest.raises(jax.errors.ConcretizationTypeError, match="arose with the `float` function"):
            jax.core.concretization_function_error(float)(None, x)
        with pytest.raises(NameError, match="unbound axis name: j"):
            env.axis_size("j")
        return x

    jax.vmap(look, axis_name="i")(X)
    assert seen == [(("i",), 3, True, 2.0), (False, True)] and jax.core.trace_ctx.is_top_level()


@pytest.mark.skipif(not hasattr(core, "create_call_primitive"), reason="JAX of this jaxlib has none")
def test_calls_of_a_program_keep_their_structure():
    from jaxlite.experimental.hijax import GradAccum

    away, seen = X + 1, []
    program = jax.make_jaxpr(lambda x, y: (jnp.sin(x) * y, y * away))(1.0, 2.0)
    sin, times = np.sin(3.0), 4 * np.cos(3.0)

    def pull(cotangents, *operands, **params):
        seen.append([isinstance(each, GradAccum) for each in operands])
        return core.eval_jaxpr_transpose(own, cotangents, *operands, **params)

    named, own = core.create_call_primitive("in a function", inline_jax_late=False), Primitive("own")
    assert own.multiple_results is False
    core.register_call_primitive_rules(own, "own", transpose_rule=pull)
    for primitive in (named, own):
        f = lambda x, y, primitive=primitive: primitive.bind(x, y, call_jaxpr=program, tag=3)[0]
        gradient = jax.grad(f, (0, 1))
        for pulled in (gradient, jax.jit(gradient)):
            np.testing.assert_allclose(pulled(3.0, 4.0), [times, sin], rtol=1e-6)
        np.testing.assert_allclose(jax.vmap(f, (0, None))(X, 2.0), 2 * np.sin(X), rtol=1e-6)
        calls = [eqn for eqn in jax.make_jaxpr(gradient)(3.0, 4.0).eqns if eqn.primitive is primitive]
        assert len(calls) == 2 and all(eqn.params["tag"] == 3 for eqn in calls)
        recomputed = jax.make_jaxpr(jax.grad(jax.checkpoint(lambda x: f(jnp.exp(x), 2.0))))(1.0)  # noqa: B023
        inside = recomputed.eqns[-1].params["jaxpr"].eqns
        assert [len(eqn.outvars) for eqn in inside if eqn.primitive is primitive] == [1, 1]  # what is read
    np.testing.assert_array_equal(named.bind(3.0, 2.0, call_jaxpr=program)[1], 2 * away)
    assert seen and not any(all(flags) or not any(flags) for flags in seen)
    text = [jax.jit(lambda x: p.bind(x, x, call_jaxpr=program)).lower(1.0).as_text() for p in (named, own)]  # noqa: B023
    assert "call @in_a_function" in text[0] and "call" not in text[1]
    with pytest.raises(ValueError, match="in a function calls a program of 2 values, it got 1"):
        named.bind(1.0, call_jaxpr=program)
    core.register_call_primitive_rules(own, transpose_rule=lambda cts, *operands, call_jaxpr: [None, None])
    with pytest.raises(TypeError, match="the transpose rule of 'own' adds to accumulators"):
        jax.linear_transpose(lambda y: own.bind(3.0, y, call_jaxpr=program), 4.0)([2.0, X])


def test_params_that_are_equal_are_not_the_same():
    times_p = Primitive("times_of_params")
    times_p.def_abstract_eval(lambda x, by: jax.core.ShapedArray(x.shape, jnp.result_type(*by)))
    mlir.register_lowering(times_p, mlir.lower_fun(lambda x, by: x.astype(jnp.result_type(*by)), multiple_results=False))
    times_p.def_impl(partial(xla.apply_primitive, times_p))
    for call in (times_p.bind, lambda x, by: jax.jit(lambda x: times_p.bind(x, by=by))(x)):
        for by in (1, 1.0, True, np.float16(1), 1 + 0j):
            assert call(X, by=(by,)).dtype == jnp.result_type(by)
    with contextlib.suppress(TypeError):
        lax.reduce_sum_p.bind(X[None], axes=(1.0,), out_sharding=None)
    assert lax.reduce_sum_p.bind(X[None], axes=(1,), out_sharding=None).shape == (1,)


def test_a_rule_that_calls_its_own_jitted_function_with_tangents():
    weigh_p = Primitive("weigh")  # sin(x) * c, linear in c
    weigh_p.def_impl(lambda c, x: jnp.sin(x) * c)
    weigh_p.def_abstract_eval(lambda c, x: jax.core.ShapedArray(c.shape, c.dtype))
    mlir.register_lowering(weigh_p, mlir.lower_fun(lambda c, x: jnp.sin(x) * c, multiple_results=False))
    weigh = jax.jit(lambda c, x: weigh_p.bind(c, x))

    def jvp(primals, tangents):
        (c, x), (dc, dx) = primals, tangents
        parts = [] if type(dc) is ad.Zero else [weigh(dc, x)]
        parts += [] if type(dx) is ad.Zero else [weigh(dx * c, x + np.pi / 2)]
        return weigh_p.bind(c, x), sum(parts[1:], parts[0])

    ad.primitive_jvps[weigh_p] = jvp
    ad.primitive_transposes[weigh_p] = lambda ct, c, x: (weigh_p.bind(ct, x), None)

    custom = jax.custom_jvp(lambda c, x: jnp.sin(x) * c)
    jitted = jax.jit(custom)
    custom.defjvp(lambda primals, tangents: (custom(*primals), jitted(tangents[0], primals[1]) + jitted(
        tangents[1] * primals[0], primals[1] + np.pi / 2)))

    c, x = X + 1, X / 4 + 0.1
    expected = 2 * c * np.sin(x) ** 2, 2 * c ** 2 * np.sin(x) * np.cos(x)
    for f in (weigh, custom, jitted):
        loss = lambda c, x, f=f: (f(c, x) ** 2).sum()
        for got in (jax.grad(loss, (0, 1))(c, x), jax.jit(jax.grad(loss, (0, 1)))(c, x), (
                jax.grad(loss)(c, x), jax.grad(loss, 1)(c, x))):
            np.testing.assert_allclose(got, expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jvp(lambda c: jax.grad(loss)(c, x), (c,), (c,))[1], expected[0], rtol=1e-6)


def test_a_vanishing_tangent_is_a_tree_without_leaves():
    zero = ad.Zero(jax.core.ShapedArray((2,), np.float32))
    leaves, treedef = jax.tree.flatten(("a", zero))
    assert leaves == ["a"] and "Zero[float32[2]]" in str(treedef) and jax.tree.unflatten(treedef, leaves)[1].aval is zero.aval
    for transform in (jax.jit, jax.vmap, lambda f: lambda x: jax.lax.map(f, x)):  # so rules under `vmap` may return it
        out, again = transform(lambda x: (x, zero))(X)
        assert (out == X).all() and type(again) is ad.Zero and again.aval is zero.aval
    operand = ad.UndefinedPrimal(zero.aval)
    assert jax.tree.leaves((1, operand)) == [1] and jax.tree.map(lambda x: x, operand).aval is zero.aval
