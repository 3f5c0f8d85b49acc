"""linear_util, api_util, partial evaluation: what libraries write their own transformations with."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import api_util
from jaxlite.extend import core, linear_util
from jaxlite.interpreters import partial_eval
from lowering import xla


def wrapped(fun, *args):
    return linear_util.wrap_init(fun, debug_info=api_util.debug_info("test", fun, args, {}))


def test_layers_and_what_they_leave_behind():
    @linear_util.transformation_with_aux
    def counted(extra, *args):
        out = yield args, {}
        yield out + extra, len(args)

    @linear_util.transformation_with_aux2
    def named(f, store, name, *args):
        store.store(name)
        return f(*args)

    f, count = counted(wrapped(lambda x, y: x * y), 10)
    f, name = named(f, "n")
    with pytest.raises(linear_util.StoreException, match="Store empty"):
        count()
    assert (f.call_wrapped(3, 4), count(), name()) == (22, 2, "n")
    assert linear_util.merge_linear_aux(count, lambda: linear_util.Store().val) == (True, 2)

    calls = []
    run = linear_util.cache(lambda fun, *args: calls.append(args) or fun.call_wrapped(*args))
    base = wrapped(lambda x: {"a": x})
    for _ in range(2):
        flat, out_tree = api_util.flatten_fun_nokwargs(base, jax.tree.structure((0,)))
        assert run(flat, 5) == [5] and out_tree() == jax.tree.structure({"a": 0})
    assert len(calls) == 1


def test_flat_functions_and_flags():
    leaves, tree = jax.tree.flatten(((1, {"a": 2}), {"k": 3}))
    flat, out_tree = api_util.flatten_fun(wrapped(lambda x, d, k: {"sum": x + d["a"], "k": k}), tree)
    assert flat.call_wrapped(*leaves) == [3, 3] and out_tree() == jax.tree.structure({"sum": 0, "k": 0})
    assert api_util.donation_vector((0,), ("k",), jax.tree.structure(((1, (2, 3)), {"k": 4, "z": 5}))) \
        == (True, False, False, True, False)
    assert api_util.rebase_donate_argnums((0, 3), (1, 2)) == (0, 1)
    some, args = api_util.argnums_partial(wrapped(lambda x, y, z: (x, y, z)), (0, 2), (1, 2, 3))
    assert some.call_wrapped(7, 8) == (7, 2, 8) and args == (1, 3)
    with pytest.raises(ValueError, match=r"argument 1 is \[\] of type"):
        api_util.argnums_partial(wrapped(max), 0, (1, []))
    with pytest.raises(ValueError, match="different lengths"):
        api_util.safe_map(max, [1], [1, 2])


def test_partial_evaluation_computes_what_is_known():
    seen = []

    def fun(known, unknown):
        seen.append(float(known * 2))  # a number, though the function is traced
        both = jax.jit(lambda a, b: (jnp.sin(a), a + b))(known, unknown)
        return [*both, unknown * 2]

    aval = jax.typeof(np.float32(0))
    values = [partial_eval.PartialVal.known(np.float32(3)), partial_eval.PartialVal.unknown(aval)]
    jaxpr, outs, consts = partial_eval.trace_to_jaxpr_nounits(wrapped(fun, 0, 0), values)
    assert seen == [6.0] and [out.is_known() for out in outs] == [True, False, False]
    np.testing.assert_allclose(outs[0].get_known(), np.sin(3), rtol=1e-6)
    assert core.check_jaxpr(jaxpr) is None and len(jaxpr.invars) == 1
    assert [float(out) for out in jax.core.eval_jaxpr(jaxpr, consts, np.float32(1))] == [4, 2]
    whole, _, _ = partial_eval.trace_to_jaxpr_nounits(wrapped(fun, 0, 0), values, instantiate=True)
    assert len(whole.outvars) == 3
    fewer, used = partial_eval.dce_jaxpr(jax.make_jaxpr(lambda a, b: (a + 1, b * 2))(1.0, 2.0).jaxpr, [False, True])
    assert used == [False, True] and len(fewer.eqns) == 1


def test_the_state_of_tracing():
    outside = core.get_opaque_trace_state()
    assert outside == core.get_opaque_trace_state()

    @jax.jit
    def f(x):
        inside = core.get_opaque_trace_state()
        assert inside == core.get_opaque_trace_state() and inside != outside
        assert core.unsafe_am_i_under_a_jit_DO_NOT_USE()
        with core.take_current_trace() as trace:
            assert float(jnp.float32(1) + 1) == 2  # run at once
            with core.set_current_trace(trace):
                return jax.vmap(lambda y: y + 1 if core.unsafe_get_axis_names_DO_NOT_USE() == ["i"] else None, axis_name="i")(x)

    assert f(np.zeros(2, np.float32)).tolist() == [1, 1]
    aval = jax.core.ShapedArray((2, 3), np.dtype("float32"))
    assert core.mapped_aval(3, 1, aval).shape == (2,) and core.unmapped_aval(4, 0, aval).shape == (4, 2, 3)
    assert core.valid_jaxtype(1) and not core.valid_jaxtype("x")
    with pytest.raises(jax.errors.ConcretizationTypeError):
        jax.jit(lambda x: core.concrete_or_error(int, x, "for a test"))(1)


def test_monitoring():
    heard = []
    listeners = [lambda *args, **kwargs: heard.append((args, kwargs)) for _ in range(4)]
    monitoring = jax.monitoring
    for register, listener in zip((monitoring.register_event_listener, monitoring.register_event_duration_secs_listener,
                                   monitoring.register_scalar_listener, monitoring.register_event_time_span_listener),
                                  listeners, strict=True):
        register(listener)
    monitoring.record_event("/a", n=1)
    monitoring.record_event_duration_secs("/b", 2.0)
    monitoring.record_scalar("/c", 3)
    monitoring.record_event_time_span("/d", 1.0, 2.0)
    assert heard == [(("/a",), {"n": 1}), (("/b", 2.0), {}), (("/c", 3), {}), (("/d", 1.0, 2.0), {})]
    monitoring.unregister_event_listener(listeners[0])
    monitoring.clear_event_listeners()
    monitoring.record_event("/a")
    monitoring.record_scalar("/c", 3)
    assert len(heard) == 4

def test_compiles_are_told_of():
    heard = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, took, **kwargs: heard.append((event, took, kwargs)))
    try:

        @jax.jit
        def told(x):
            return x * 3 + 1

        told(1.0)
        told(2.0)
    finally:
        jax.monitoring.clear_event_listeners()
    jax.jit(lambda x: x * 3 + 2)(1.0)
    assert [(event.rpartition("/")[2], kwargs["fun_name"]) for event, _, kwargs in heard] == [
        ("jaxpr_trace_duration", "told"), ("jaxpr_to_mlir_module_duration", "jit(told)"),
        ("backend_compile_duration", "jit(told)")]
    assert all(took > 0 for _, took, _ in heard)


class Boxed(jax.core.Tracer):
    """A value as traces of a library see it."""

    def __init__(self, trace, value):
        super().__init__(trace, jax.typeof(value))
        self.value = value


class Boxing(jax.core.Trace):
    """A trace of a library that boxes all values, and hands operations on to the trace outside."""

    def __init__(self, parent):
        super().__init__()
        self.parent_trace = parent

    def process_primitive(self, primitive, tracers, params):
        out = primitive.bind_with_trace(self.parent_trace, [getattr(each, "value", each) for each in tracers], params)
        return [Boxed(self, each) for each in out] if primitive.multiple_results else Boxed(self, out)

    @classmethod
    def run(cls, f, *values):
        with core.take_current_trace() as parent:
            trace = cls(parent)
            with core.set_current_trace(trace):
                return f(*[Boxed(trace, each) for each in values]).value


def test_a_trace_of_a_library():
    """Made of the names in `extend.core`: it counts operations, and hands them on."""

    class Counting(jax.core.Trace):
        def __init__(self, parent):
            super().__init__()
            self.parent_trace, self.names = parent, []

        def process_primitive(self, primitive, tracers, params):
            self.names.append(primitive.name)
            values = [each.value if isinstance(each, Boxed) and each._trace.main is self else each for each in tracers]
            out = primitive.bind_with_trace(self.parent_trace, values, params)
            return [Boxed(self, each) for each in out] if primitive.multiple_results else Boxed(self, out)

    def count(fun, x):
        with core.take_current_trace() as parent:
            trace = Counting(parent)
            with core.set_current_trace(trace):
                return fun(Boxed(trace, x)).value, trace.names

    out, names = count(lambda x: jnp.sin(x) * 2, np.ones(2, np.float32))
    assert names == ["sin", "mul"]
    np.testing.assert_allclose(jax.jit(lambda x: count(lambda y: jnp.sin(y) * 2, x)[0])(np.ones(2)), out, rtol=1e-6)


def test_traces_of_libraries_get_all_params_of_jax():
    """Rules of libraries name them in their signatures, `def sqrt(x, *, accuracy)`, and bind with them again."""

    class Noting(jax.core.Trace):
        def __init__(self, parent):
            super().__init__()
            self.parent_trace, self.params = parent, {}

        def process_primitive(self, primitive, tracers, params):
            self.params |= {primitive.name: params}
            with core.set_current_trace(self.parent_trace):
                out = primitive.bind(*[getattr(each, "value", each) for each in tracers], **params)
            return [Boxed(self, each) for each in out] if primitive.multiple_results else Boxed(self, out)

    def noted(x):
        with core.take_current_trace() as parent:
            trace = Noting(parent)
            with core.set_current_trace(trace):
                x = Boxed(trace, x)
                values = jax.lax.top_k(jnp.sqrt(x) * x, 2)[0] - jax.lax.reduce_max(x, (0,))
                out = jax.jit(jnp.sin)(jax.lax.convert_element_type(values, np.float16))
            seen.append(trace.params)
            return out.value

    seen = []
    x = np.array([1, 9, 4], np.float32)
    for call in (noted, jax.jit(noted)):
        np.testing.assert_allclose(call(x), np.sin(np.array([18, -1], np.float16)), rtol=1e-2)
        assert jax.grad(lambda x, call=call: call(x)[0])(x).shape == (3,) and jax.vmap(call)(x[None]).shape == (1, 2)
        params = seen.pop()
        assert params["sqrt"] == {"accuracy": None} and params["mul"] == {"out_dtype": None}
        assert params["convert_element_type"]["sharding"] is None
        assert ("is_stable" in params["top_k"]) == (xla.VERSION >= (0, 12))
        assert params["jit"]["ctx_mesh"].empty


@pytest.mark.parametrize("transpose", [False, True])
def test_solves_are_those_of_jax_for_libraries(transpose):
    """A trace that knows JAX's primitives alone meets `custom_linear_solve`, whose derivatives are those of the solve."""

    class Renaming(jax.core.Trace):
        def __init__(self, parent):
            super().__init__()
            self.parent_trace = parent

        def process_primitive(self, primitive, tracers, params):
            seen.append(primitive.name)
            out = primitive.bind_with_trace(self.parent_trace, [getattr(each, "value", each) for each in tracers], params)
            return [Boxed(self, each) for each in out] if primitive.multiple_results else Boxed(self, out)

    seen = []
    a = np.array([[[1, 2], [3, 5]], [[0, 1], [2, 1]]], np.float32)
    b = np.array([[[1], [2]], [[3], [4]]], np.float32)

    def solved(a, b):
        with core.take_current_trace() as parent:
            trace = Renaming(parent)
            with core.set_current_trace(trace):
                a, b = Boxed(trace, a), Boxed(trace, b)
                return jax.scipy.linalg.lu_solve(jax.scipy.linalg.lu_factor(a), b, trans=1).value if transpose \
                    else jnp.linalg.solve(a, b).value

    plain = np.linalg.solve(a.swapaxes(-1, -2) if transpose else a, b)
    np.testing.assert_allclose(solved(a, b), plain, rtol=1e-4, atol=1e-6)
    if not transpose:
        assert "custom_linear_solve" in seen and "lu_solve" not in seen
        tangent = jax.jvp(lambda a: solved(a, b), (a,), (np.ones_like(a),))[1]
        np.testing.assert_allclose(tangent, -np.linalg.solve(a, np.ones_like(a) @ plain), rtol=1e-3, atol=1e-5)


def test_scans_have_groups_for_libraries():
    """Their params are those of JAX of the same jaxlib: from 0.11 on trees of what goes in and comes out."""
    from jaxlite.core.flat_tree import nones, pack

    class Handing(jax.core.Trace):
        def __init__(self, parent):
            super().__init__()
            self.parent_trace = parent

        def process_primitive(self, primitive, tracers, params):
            values = [each.value if isinstance(each, Boxed) else each for each in tracers]
            if primitive.name == "scan":
                seen.append(params)
            out = primitive.bind_with_trace(self.parent_trace, values, params)
            return [Boxed(self, each) for each in out] if primitive.multiple_results else Boxed(self, out)

    seen = []
    k, xs = np.float32(10), np.arange(3, dtype=np.float32)

    def loop(k, c, xs):
        return jax.lax.scan(lambda c, x: (c + x, (c * k, x - c)), c, xs)

    with core.take_current_trace() as parent:
        trace = Handing(parent)
        with core.set_current_trace(trace):
            carry, _ = loop(Boxed(trace, k), Boxed(trace, np.float32(1)), Boxed(trace, xs))
    assert carry.value == 4
    (eqn,) = [eqn for eqn in jax.make_jaxpr(loop)(k, k, xs).eqns if eqn.primitive.name == "scan"]
    groups = {"ft_in": pack([nones(1), nones(1), nones(1)]), "ft_out": pack([nones(1), nones(2)])}
    rest = {name: value for name, value in eqn.params.items() if name not in ("num_consts", "num_carry")}
    assert {name: eqn.params[name] for name in groups} == groups
    assert jax.lax.scan_p.bind(k, np.float32(1), xs, **rest, **groups)[0] == 4
    if jax.lib.__version__ >= "0.11":
        assert "num_carry" not in seen[0] and {name: seen[0][name] for name in groups} == groups
        assert [list(each) for each in seen[0]["ft_in"].update("abc").unpack()] == [["a"], ["b"], ["c"]]
    else:
        assert seen[0]["num_carry"] == 1 and "ft_in" not in seen[0]
    with pytest.raises(ValueError, match="3 values"):
        groups["ft_in"].update([1, 2])


def test_a_trace_of_a_library_processes_custom_jvp_calls():
    """It gets function and rule apart, and gives them to the trace outside, which differentiates by the rule."""

    class OwnRules(Boxing):
        def process_custom_jvp_call(self, primitive, fun, jvp, tracers, *, symbolic_zeros):
            with core.take_current_trace():
                seen.append((fun.call_wrapped(2.0, 3.0), jvp.call_wrapped(2.0, 3.0, 1.0, vanishes)[1]))
            counted, out_count = counting(fun)
            values = [each.value for each in tracers]
            if ways[-1] == "params":
                params = {"subfuns": (counted, jvp), "symbolic_zeros": symbolic_zeros}
                outs = primitive.bind_with_trace(self.parent_trace, values, [jax.typeof(each) for each in values], params)
            else:
                outs = primitive.bind_with_trace(self.parent_trace, (counted, jvp, *values), {"symbolic_zeros": symbolic_zeros})
            calls.append(out_count)
            return [Boxed(self, out) for out in outs]

    @linear_util.transformation_with_aux2
    def counting(fun, store, *args):
        outs = fun(*args)
        store.store(len(outs))
        return outs

    @jax.custom_jvp
    def f(x, y):
        return x * y

    @f.defjvp
    def rule(primals, tangents):
        return f(*primals), 100 * tangents[0]

    vanishes = jax.custom_derivatives.SymbolicZero(jax.typeof(np.float32(1)))
    seen, calls, ways = [], [], ["params", "operands"]

    def boxed(x):
        return OwnRules.run(f, x, x + 1)

    while ways:
        assert boxed(2.0) == 6.0 and calls.pop()() == 1
        assert jax.grad(boxed)(2.0) == jax.jit(jax.grad(boxed))(2.0) == jax.grad(jax.jit(boxed))(2.0) == 100.0
        assert jax.jit(boxed)(3.0) == 12.0
        ways.pop()
    assert seen and all(outs == [6.0] and tangent == 100.0 for outs, tangent in seen)


def test_a_trace_of_a_library_processes_custom_vjp_calls():
    """It gets function, forward and backward apart, and gives them to the trace outside, which differentiates by them."""

    class OwnRules(Boxing):
        def process_custom_vjp_call(self, primitive, fun, fwd, bwd, tracers, *, out_trees, symbolic_zeros):
            with core.take_current_trace():
                residuals_and_outs = fwd.call_wrapped(2.0, True, 3.0, False)
                _, residuals, forwarded = out_trees()
                seen.append((fun.call_wrapped(2.0, 3.0), residuals_and_outs[residuals.num_leaves:], len(forwarded),
                             bwd.call_wrapped(*residuals_and_outs[:residuals.num_leaves], 1.0)))
            values = [each.value for each in tracers]
            params = {"subfuns": (fun, fwd, doubling(bwd)), "out_trees": out_trees, "symbolic_zeros": symbolic_zeros}
            avals = [jax.typeof(each) for each in values]
            return [Boxed(self, out) for out in primitive.bind_with_trace(self.parent_trace, values, avals, params)]

    @linear_util.transformation2
    def doubling(fun, *args):
        return [2 * each for each in fun(*args)]

    @jax.custom_vjp
    def f(x, y):
        return x * y

    f.defvjp(lambda x, y: (x * y, (y,)), lambda residuals, ct: (10 * ct, ct * residuals[0]))
    seen = []

    def boxed(x):
        return OwnRules.run(f, x, x + 1)

    assert boxed(2.0) == jax.jit(boxed)(2.0) == 6.0
    assert jax.grad(boxed)(2.0) == jax.jit(jax.grad(boxed))(2.0) == jax.grad(jax.jit(boxed))(2.0) == 2 * (10.0 + 3.0)
    np.testing.assert_allclose(jax.vmap(jax.grad(boxed))(np.array([2.0, 3.0])), [26.0, 28.0])
    assert all(each[0] == [6.0] and each[1] == [6.0] and each[2] == 1 and each[3] == [10.0, 3.0] for each in seen) and seen


def test_a_block_of_a_trace_that_is_never_left_changes_nothing_when_it_is_collected():
    taking = core.take_current_trace()
    setting = core.set_current_trace(taking.__enter__())
    setting.__enter__()

    def f(x):
        nonlocal taking, setting
        before = core.get_opaque_trace_state()
        taking = setting = None
        gc.collect()
        return before == core.get_opaque_trace_state()

    assert jax.jit(f)(1.0)


def test_eval_shape_of_functions_that_return_descriptions():
    described = jax.ShapeDtypeStruct((2,), np.float32)
    assert jax.eval_shape(lambda: described) == described
    out = jax.eval_shape(lambda x, k: {"a": described, "b": jnp.sum(x) + k}, described, k=1)
    assert out == {"a": described, "b": jax.ShapeDtypeStruct((), np.float32)}
    assert jax.ShapeDtypeStruct.like(described) == described
    sized = jax.jit(lambda x, n: [jax.ShapeDtypeStruct((n,), x.dtype), x], static_argnums=1)
    assert jax.eval_shape(sized, described, 3) == [jax.ShapeDtypeStruct((3,), np.float32), described]
    with pytest.raises(TypeError, match="not a valid JAX type"):
        jax.jit(lambda: described)()
