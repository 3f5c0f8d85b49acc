"""Jaxprs as data: tracing into them, evaluating them, and the checker that says what is wrong with one."""

from __future__ import annotations

import copy
import pickle
import re
import time
from typing import Any

import numpy as np
import pytest

import jaxlite
from jaxlite import errors, extend, lax
from jaxlite.compilation.dispatch import jit_p
from jaxlite.core.aval import ShapedArray
from jaxlite.core.jaxpr import (
    ClosedJaxpr,
    DropVar,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    check_jaxpr,
    count_eqns,
    eval_jaxpr,
    jaxpr_as_fun,
    subjaxprs,
)
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import hoist_consts, trace_to_jaxpr
from jaxlite.lax.elementwise import add_p, mul_p, sin_p
from lowering import xla

F32 = ShapedArray((), np.dtype("float32"))
I32 = ShapedArray((), np.dtype("int32"))
VEC = ShapedArray((3,), np.dtype("float32"))
ABC = np.arange(3, dtype=np.float32)

# A primitive of two results and an effect, which only tracing and checking know.
split_p = Primitive("test_split", multiple_results=True)


@split_p.def_effectful_abstract_eval
def _split_aval(x: Any, *, where: int) -> Any:
    shape = x.shape[1:]
    return [ShapedArray((where, *shape), x.dtype), ShapedArray((x.shape[0] - where, *shape), x.dtype)], {"splits"}


def staged(fun: Any, *avals: Any) -> tuple[Jaxpr, list[Any]]:
    def flat(*args: Any) -> list[Any]:
        out = fun(*args)
        return out if isinstance(out, list) else [out]

    return trace_to_jaxpr(flat, avals)


def text(fun: Any, *avals: Any) -> str:
    return str(staged(fun, *avals)[0])


# --- staging -----------------------------------------------------------------------------------------


def test_equations_come_in_the_order_of_the_operations() -> None:
    jaxpr, consts = staged(lambda x, y: lax.mul(lax.sin(x), lax.add(y, x)), F32, F32)
    assert [eqn.primitive.name for eqn in jaxpr.eqns] == ["sin", "add", "mul"]
    assert jaxpr.eqns[1].invars == [jaxpr.invars[1], jaxpr.invars[0]]
    assert jaxpr.eqns[2].outvars == jaxpr.outvars
    assert jaxpr.in_avals == [F32, F32]
    assert jaxpr.out_avals == [F32]
    assert consts == []
    check_jaxpr(jaxpr)


@pytest.mark.parametrize(("value", "dtype", "weak"), [
    (2.5, "float32", True), (2, "int32", True), (True, "bool", False), (2j, "complex64", True),
    (np.float32(2.5), "float32", False), (np.array(3, np.int8), "int8", False), (np.float64(0.5), "float32", False),
])
def test_scalars_become_literals(value: Any, dtype: str, weak: bool) -> None:
    jaxpr, consts = staged(lambda: value)
    (literal,) = jaxpr.outvars
    assert type(literal) is Literal
    assert literal.aval is ShapedArray((), np.dtype(dtype), weak)
    assert literal.val == value
    assert np.shape(literal.val) == ()
    assert consts == []
    check_jaxpr(jaxpr)


def test_a_scalar_on_a_device_becomes_a_constvar() -> None:
    x = jaxlite.device_put(np.float32(1.5))  # reading it would wait for the device
    jaxpr, consts = staged(lambda y: lax.add(x, y), F32)
    assert consts[0] is x
    assert str(jaxpr) == "{ lambda a:f32[]; b:f32[]. let c:f32[] = add a b in (c,) }"


def test_arrays_become_constvars_one_for_each_object() -> None:
    same, other, unread = ABC, ABC + 1, ABC + 2

    def f(x: Any) -> Any:
        lax.add(unread, unread)
        return lax.add(lax.add(lax.add(x, same), other), same)

    jaxpr, consts = staged(f, VEC)
    # `unread` is read by an equation, though nobody reads that.
    assert [const is each for const, each in zip(consts, (unread, same, other), strict=True)] == [True] * 3
    assert [var.aval for var in jaxpr.constvars] == [VEC] * 3
    assert len(jaxpr.eqns) == 4


def test_arrays_that_no_equation_reads_are_no_constvars() -> None:
    jaxpr, consts = staged(lambda x: jaxlite.jit(lambda x, y: x)(x, ABC), VEC)
    assert len(consts) == len(jaxpr.constvars) == 1
    jaxpr, consts = staged(lambda x: x, VEC)
    assert (consts, jaxpr.constvars) == ([], [])


def test_results_that_nobody_reads_are_drop_vars() -> None:
    def f(x: Any) -> Any:
        first, _ = split_p.bind(x, where=1)
        lax.sin(x)
        return first

    jaxpr, _ = staged(f, VEC)
    assert [[type(var) for var in eqn.outvars] for eqn in jaxpr.eqns] == [[Var, DropVar], [DropVar]]
    assert [var.aval.shape for var in jaxpr.eqns[0].outvars] == [(1,), (2,)]


def test_effects_reach_the_jaxpr_and_those_around_it() -> None:
    jaxpr, _ = staged(lambda x: split_p.bind(x, where=1), VEC)
    assert jaxpr.effects == {"splits"}
    jaxpr, _ = staged(lambda x: list(jaxlite.jit(lambda x: split_p.bind(x, where=1))(x)), VEC)
    assert jaxpr.effects == {"splits"}
    assert jaxpr.eqns[0].effects == {"splits"}
    assert staged(lax.sin, F32)[0].effects == frozenset()


def test_arguments_may_be_results() -> None:
    assert text(lambda x, y: [y, x, x], F32, I32) == "{ lambda ; a:f32[] b:i32[]. let  in (b, a, a) }"


def test_values_of_an_outer_trace_become_operands() -> None:
    def outer(x: Any, y: Any) -> Any:
        return jaxlite.jit(lambda z: lax.mul(lax.add(z, x), lax.add(z, ABC)))(y)

    jaxpr, consts = staged(outer, VEC, VEC)
    (eqn,) = jaxpr.eqns
    inner = eqn.params["jaxpr"]
    assert (inner.consts, inner.jaxpr.constvars) == ([], [])
    assert eqn.invars == [jaxpr.invars[0], jaxpr.constvars[0], jaxpr.invars[1]]
    assert consts[0] is ABC
    check_jaxpr(jaxpr)
    (result,) = eval_jaxpr(jaxpr, consts, ABC, ABC + 1)
    np.testing.assert_allclose(result, (2 * ABC + 1) * (2 * ABC + 1))


def test_hoist_consts_makes_constvars_arguments() -> None:
    jaxpr, consts = staged(lambda x: lax.add(x, ABC), VEC)
    closed = hoist_consts(jaxpr)
    assert closed.consts == []
    assert closed.jaxpr.invars == jaxpr.constvars + jaxpr.invars
    (result,) = eval_jaxpr(closed.jaxpr, [], *consts, ABC)
    np.testing.assert_array_equal(result, 2 * ABC)


def test_a_tracer_used_after_its_trace_is_an_error() -> None:
    kept = []
    staged(lambda x: kept.append(x) or lax.sin(x), F32)
    with pytest.raises(errors.UnexpectedTracerError):
        staged(lambda x: lax.add(x, kept[0]), F32)
    with pytest.raises(errors.UnexpectedTracerError):
        staged(lambda: kept[0])


def test_a_failed_trace_leaves_no_trace_under_way() -> None:
    with pytest.raises(ZeroDivisionError):
        staged(lambda x: 1 // 0, F32)
    assert float(lax.sin(0.0)) == 0.0
    assert jaxlite.core.tracing.is_eager()


def test_equations_know_the_users_line() -> None:
    def f(x: Any) -> Any:
        return lax.sin(x)

    jaxpr, _ = staged(f, F32)
    assert jaxpr.eqns[0].source_line.startswith(f"{__file__}:{f.__code__.co_firstlineno + 1}:")


def test_equations_of_a_gradient_name_the_lines_that_they_differentiate() -> None:
    @jaxlite.custom_vjp
    def halve(x: Any) -> Any:
        return x / 2

    def backward(residual: Any, cotangent: Any) -> Any:
        return (lax.tan(cotangent),)

    halve.defvjp(lambda x: (x / 2, x), backward)

    def f(x: Any) -> Any:
        y = lax.sin(x)
        y = halve(y)
        return lax.exp(y)

    jaxpr = jaxlite.make_jaxpr(jaxlite.grad(f))(1.0).jaxpr
    lines = [(eqn.primitive.name, int(eqn.source_line.split(":")[1].split()[0])) for eqn in jaxpr.eqns]
    first, backwards = f.__code__.co_firstlineno, backward.__code__.co_firstlineno
    assert [(name, line) for name, line in lines if name in ("sin", "cos", "exp", "tan")] == [
        ("sin", first + 1), ("cos", first + 1), ("exp", first + 3), ("tan", backwards + 1)]
    assert [line for name, line in lines if name == "mul"] == [first + 3, first + 1]


def test_time_of_tracing_is_linear() -> None:
    def f(x: Any) -> Any:
        for _ in range(30_000):
            x = lax.sin(x)
        return x

    start = time.process_time()
    jaxpr, _ = staged(f, F32)
    assert len(jaxpr.eqns) == 30_000
    check_jaxpr(jaxpr)
    assert time.process_time() - start < 5


# --- evaluation --------------------------------------------------------------------------------------


def test_eval_jaxpr_runs_the_program() -> None:
    jaxpr, consts = staged(lambda x, y: [lax.add(lax.mul(x, y), ABC), y, 3], VEC, VEC)
    total, y, three = eval_jaxpr(jaxpr, consts, ABC, ABC + 1)
    np.testing.assert_allclose(total, ABC * (ABC + 1) + ABC)
    np.testing.assert_array_equal(y, ABC + 1)
    assert three == 3


def test_eval_jaxpr_runs_primitives_of_several_results_and_sub_jaxprs() -> None:
    swap = jaxlite.jit(lambda x, y: (y, lax.sin(x)))
    jaxpr, consts = staged(lambda x, y: list(swap(x, y)), F32, F32)
    one, two = eval_jaxpr(jaxpr, consts, np.float32(0.5), np.float32(2))
    assert float(one) == 2.0
    np.testing.assert_allclose(two, np.sin(0.5), rtol=1e-6)


def test_eval_jaxpr_under_a_trace_stages_it_again() -> None:
    jaxpr, consts = staged(lambda x: lax.mul(lax.sin(x), ABC), VEC)
    again, consts_again = staged(lambda x: eval_jaxpr(jaxpr, consts, x), VEC)
    assert str(again) == str(jaxpr)
    assert consts_again[0] is consts[0]


def test_eval_jaxpr_counts_its_arguments() -> None:
    jaxpr, consts = staged(lambda x: lax.add(x, ABC), VEC)
    for wrong in ((consts, ()), ([], (ABC,)), (consts, (ABC, ABC))):
        with pytest.raises(TypeError, match="takes 1 consts and 1 arguments, got"):
            eval_jaxpr(jaxpr, wrong[0], *wrong[1])


def test_jaxpr_as_fun() -> None:
    jaxpr, consts = staged(lambda x: lax.add(x, ABC), VEC)
    np.testing.assert_array_equal(jaxpr_as_fun(ClosedJaxpr(jaxpr, consts))(ABC)[0], 2 * ABC)


# --- the classes -------------------------------------------------------------------------------------


def test_representations() -> None:
    assert re.fullmatch(r"Var\(id=\d+\):float32\[3\]", repr(Var(VEC)))
    assert repr(DropVar(VEC)) == "_"
    assert repr(Literal(2.0, F32)) == "Literal(2.0:f32[])"


def test_replace_copies() -> None:
    jaxpr, _ = staged(lambda x: lax.sin(x), F32)
    cut = jaxpr.replace(eqns=[], outvars=jaxpr.invars)
    assert str(cut) == "{ lambda ; a:f32[]. let  in (a,) }"
    assert len(jaxpr.eqns) == 1
    eqn = jaxpr.eqns[0].replace(primitive=jit_p)
    assert (eqn.primitive, jaxpr.eqns[0].primitive) == (jit_p, sin_p)


def test_closed_jaxpr_wants_a_const_for_each_constvar() -> None:
    jaxpr, consts = staged(lambda x: lax.add(x, ABC), VEC)
    closed = ClosedJaxpr(jaxpr, consts)
    assert closed.literals is closed.consts
    assert (closed.in_avals, closed.out_avals, closed.eqns) == ([VEC], [VEC], jaxpr.eqns)
    with pytest.raises(AssertionError):
        ClosedJaxpr(jaxpr, [])


def test_count_eqns_and_subjaxprs_look_inside() -> None:
    f = jaxlite.jit(lambda x: lax.sin(lax.sin(x)))
    jaxpr, _ = staged(lambda x: lax.cos(f(x)), F32)
    assert count_eqns(jaxpr) == count_eqns(ClosedJaxpr(jaxpr, [])) == 4
    assert [len(sub.eqns) for sub in subjaxprs(jaxpr)] == [2]


# --- the checker -------------------------------------------------------------------------------------


def program(*eqns: JaxprEqn, ins: Any = (), outs: Any = ()) -> Jaxpr:
    return Jaxpr([], list(ins), list(outs), list(eqns))


def ill_formed() -> dict[str, tuple[Jaxpr, str]]:
    x, y, z = Var(F32), Var(F32), Var(VEC)
    sin = lambda a, b: JaxprEqn([a], [b], sin_p, {})
    one = Literal(1.0, F32)
    const = Var(VEC)
    closes = Jaxpr([const], [], [const], [])
    takes_vec = program(sin(z, w := Var(VEC)), ins=[z], outs=[w])
    call = lambda jaxpr, ins, outs: JaxprEqn(ins, outs, jit_p, {"jaxpr": ClosedJaxpr(jaxpr, [0] * len(jaxpr.constvars)),
                                                               "name": "f"})
    return {
        "read before bound": (program(sin(y, x), outs=[x]), r"equation 0 \(sin\): Var.* is read but nothing bound it"),
        "read too early": (program(sin(y, x), sin(one, y), outs=[x]), r"equation 0 \(sin\)"),
        "output unbound": (program(outs=[x]), "the outputs: .* is read but nothing bound it"),
        "bound twice": (program(sin(one, x), sin(one, x)), r"equation 1 \(sin\): variable .* is bound twice"),
        "two equal parameters": (program(ins=[x, x]), "the parameters: variable .* is bound twice"),
        "literal as a parameter": (program(ins=[one]), "the parameters: .* is not a variable"),
        "drop var read": (program(sin(one, DropVar(F32)), sin(DropVar(F32), x)), "is read but nothing bound"),
        "array as a literal": (program(outs=[Literal(ABC, F32)]), "does not have the type"),
        "shaped literal": (program(outs=[Literal(1.0, VEC)]), "does not have the type"),
        "float in an int literal": (program(outs=[Literal(1.5, I32)]), "literal 1.5 does not have the type"),
        "int in a bool literal": (program(outs=[Literal(1, ShapedArray((), np.dtype(bool)))]), "literal 1"),
        "wrong output type": (program(sin(x, z), ins=[x]), r"equation 0 \(sin\): output is float32\[3\], its primitive"),
        "too many outputs": (program(JaxprEqn([x], [y, Var(F32)], sin_p, {}), ins=[x]), "has 2 outputs, .* gives 1"),
        "ill-typed": (program(JaxprEqn([x, Literal(1, I32)], [y], add_p, {}), ins=[x]),
                      r"equation 0 \(add\) is ill-typed.*same dtypes"),
        "missing operand": (program(JaxprEqn([], [], split_p, {"where": 1})), "is ill-typed"),
        "sub-jaxpr ill-formed": (program(call(program(sin(y, x)), [], [])), "is read but nothing bound it"),
        "sub-jaxpr closes over a value": (program(call(closes, [], [Var(VEC)])), "closes over 1 values"),
        "operands do not fit the sub-jaxpr": (program(call(takes_vec, [x], [Var(VEC)]), ins=[x]),
                                              r"the operands are float32\[\], its jaxpr takes float32\[3\]"),
        "too few operands for the sub-jaxpr": (program(call(takes_vec, [], [Var(VEC)])), "the operands are none"),
        "no jaxpr's variable": (program(outs=["x"]), "'x' is read"),
    }


@pytest.mark.parametrize("name", ill_formed())
def test_check_jaxpr_says_what_is_wrong(name: str) -> None:
    jaxpr, message = ill_formed()[name]
    with pytest.raises(errors.JaxprTypeError, match="(?s)" + message):
        check_jaxpr(ClosedJaxpr(jaxpr, []))


def test_check_jaxpr_accepts() -> None:
    weak = ShapedArray((), np.dtype("float32"), True)
    x, y, z = Var(F32), Var(weak), Var(VEC)
    check_jaxpr(Jaxpr([z], [x], [x, x, z, Literal(1, I32)], [
        JaxprEqn([x], [y], sin_p, {}),  # types that differ only in being weak
        JaxprEqn([x], [DropVar(F32)], sin_p, {}),
        JaxprEqn([z, Literal(np.float64(2), F32)], [DropVar(VEC)], mul_p, {}),
        JaxprEqn([Literal(3, ShapedArray((), np.dtype("uint8"))), Literal(np.uint8(3), ShapedArray(
            (), np.dtype("uint8")))], [DropVar(ShapedArray((), np.dtype("uint8")))], add_p, {}),
    ]))
    check_jaxpr(Jaxpr([], [], [], []))
    drop = DropVar(F32)
    check_jaxpr(Jaxpr([], [x], [x], [JaxprEqn([x], [drop], sin_p, {}), JaxprEqn([x], [drop], sin_p, {})]))


def test_enable_checks_checks_every_trace() -> None:
    wrong_p = Primitive("test_wrong_types", memoise=False)
    types = [F32, VEC]
    wrong_p.def_abstract_eval(lambda x: types.pop(0))
    with jaxlite.enable_checks(True), pytest.raises(errors.JaxprTypeError, match="test_wrong_types"):
        staged(lambda x: wrong_p.bind(x), F32)


def test_closed_jaxprs_show_what_is_inside() -> None:
    closed = jaxlite.make_jaxpr(lambda x: lax.sin(x) + ABC)(VEC)
    jaxpr = closed.jaxpr
    assert (closed.invars, closed.outvars, closed.constvars) == (jaxpr.invars, jaxpr.outvars, jaxpr.constvars)
    total = jaxlite.jit(lambda first, second: first + second)
    program = total.trace(VEC, VEC).jaxpr.debug_info
    assert program.func_name == "<lambda>" and program.arg_names == ("first", "second")
    assert program.func_filename == __file__ and program.func_lineno
    assert closed.debug_info is jaxpr.debug_info and not closed.is_high and closed.literals is closed.consts
    empty = closed.replace(jaxpr=jaxpr.replace(eqns=[], outvars=jaxpr.invars))
    assert empty.eqns == [] and empty.consts == closed.consts
    assert closed.map_jaxpr(lambda each: each.replace(eqns=[])).eqns == []
    newer = xla.VERSION >= (0, 12)
    assert type(closed).__name__ == ("Jaxpr" if newer else "ClosedJaxpr")
    for each in (closed, jaxpr):
        assert isinstance(each, extend.core.ClosedJaxpr) is (newer or each is closed)
        assert isinstance(each, extend.core.Jaxpr) is (newer or each is jaxpr)
        assert hasattr(each, "num_consts") is hasattr(each, "all_invars") is newer
        assert not newer or (each.num_consts, each.all_invars) == (1, jaxpr.constvars + jaxpr.invars)
    again = extend.core.ClosedJaxpr(jaxpr, closed.consts)
    assert str(again) == str(closed) and extend.core.jaxpr_as_fun(again)(ABC)[0].shape == (3,)


def test_pickles_of_programs() -> None:
    total = jaxlite.jit(lambda first, second: {"a": first, "b": [second]})
    closed = total.trace(VEC, VEC).jaxpr
    info = closed.debug_info
    assert info.result_paths == ("result['a']", "result['b'][0]")
    for copied in (pickle.loads(pickle.dumps(info)), copy.deepcopy(info), total.trace(VEC, VEC).jaxpr.debug_info):
        assert copied == info and hash(copied) == hash(info) and repr(copied) == repr(info)
    assert repr(info) == (f"DebugInfo(traced_for='jit', func_src_info={info.func_src_info!r}, arg_names=('first', 'second'), "
                          """result_paths=("result['a']", "result['b'][0]"))""")
    assert info != info._replace(arg_names=("x", "y"))
    for program in (closed, closed.jaxpr, jaxlite.make_jaxpr(lambda: np.ones(3))()):
        again = pickle.loads(pickle.dumps(program))
        assert type(again) is type(program) and str(again) == str(program) and again.debug_info == program.debug_info
    assert str(copy.copy(closed)) == str(closed)
    with pytest.raises(AttributeError, match="pickle local object"):  # the rules of primitives are functions of no name
        pickle.dumps(jaxlite.make_jaxpr(lax.sin)(VEC))


def test_programs_are_rewritten() -> None:
    """With new equations, as libraries make them that write out, join and reduce equations."""
    closed = jaxlite.make_jaxpr(lambda x: jaxlite.named_call(lax.sin, name="ours")(x) + ABC)(VEC)
    core, sin = extend.core, closed.eqns[0]
    info = sin.source_info
    cos = core.JaxprEqn(sin.invars, sin.outvars, lax.cos_p, sin.params, set(), info, sin.ctx)
    again = cos.replace(source_info=info, ctx=sin.ctx, effects=sin.effects)
    assert again.source_info == info and str(again) == str(cos) and again.primitive is lax.cos_p
    assert list(info.name_stack) == ["ours"] and sin.source_line == cos.source_line
    with again.ctx.manager:
        names = closed.debug_info.with_unknown_names()
    program = core.Jaxpr(closed.constvars, closed.invars, closed.outvars, [again, *closed.eqns[1:]], debug_info=names)
    whole = core.ClosedJaxpr(program, closed.consts)
    assert (len(whole.constvars), len(whole.invars)) == (1, 1)
    np.testing.assert_allclose(core.jaxpr_as_fun(whole)(ABC)[0], np.cos(ABC) + ABC, rtol=1e-6)
    np.testing.assert_allclose(eval_jaxpr(program, closed.consts, ABC)[0], np.cos(ABC) + ABC, rtol=1e-6)
    newer = xla.VERSION >= (0, 12)  # where inputs without a constant are arguments
    assert (len(program.constvars), len(program.invars)) == ((0, 2) if newer else (1, 1))
    if newer:
        np.testing.assert_allclose(eval_jaxpr(whole.jaxpr, [], ABC, ABC)[0], np.cos(ABC) + ABC, rtol=1e-6)
    else:
        with pytest.raises(TypeError, match="takes 1 consts and 1 arguments, got 0 and 2"):
            eval_jaxpr(whole.jaxpr, [], ABC, ABC)


def test_names_of_a_program_may_be_unknown() -> None:
    info = extend.core.DebugInfo("pass", "f at a.py:3", ("x",), ("result",))
    assert (info.func_name, info.func_filename, info.func_lineno) == ("f", "a.py", 3)
    assert info.safe_arg_names(1) == ("x",) and info.safe_result_paths(1) == ("result",)
    with pytest.raises(AssertionError, match="1 names for 2 values"):
        info.safe_arg_names(2)
    unknown = info.with_unknown_names()
    assert (unknown.traced_for, unknown.func_src_info) == ("pass", "f at a.py:3")
    assert unknown.arg_names is None and unknown.result_paths is None
    assert unknown.safe_arg_names(2) == ("", "") and unknown.safe_result_paths(1) == ("",)


def test_arguments_of_a_function_that_is_gone_have_their_names():
    class Scale:
        def by(self, factor, /, *rest, offset=1):
            return factor

    names = lambda fun, *args: jaxlite.make_jaxpr(fun)(*args).jaxpr.debug_info.arg_names
    assert names(lambda x, y: x, 1.0, {"a": 2.0}) == ("x", "y['a']")
    assert names(Scale().by, 1.0, 2.0, 3.0) == ("factor", "rest[0]", "rest[1]")
    assert jaxlite.jit(lambda x, y: y, static_argnums=0).trace(1, 2.0).jaxpr.jaxpr.debug_info.arg_names == ("y",)


def test_types_are_long_but_in_jaxprs() -> None:
    weak = jaxlite.typeof(1.0)
    assert (f"{weak}", str(weak), weak.str_short(), weak.str_short(short_dtypes=True)) == (
        "~float32[]", "~float32[]", "float32[]", "f32[]")
    assert str(jaxlite.make_jaxpr(lax.create_token)(1.0).out_avals[0]) == "AbstractToken()"
