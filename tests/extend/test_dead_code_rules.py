"""Rules for dead code: a library's, and that of custom_vjp's `optimize_remat`; programs cut and rearranged."""

from __future__ import annotations

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.extend.core import Primitive
from jaxlite.extend.dce_rules import TAKES_LIVE_INPUTS, default_rule
from jaxlite.extend.rule_tables import RuleError
from jaxlite.interpreters import ad
from jaxlite.interpreters import partial_eval as pe
from jaxlite.traces import program_parts as parts
from jaxlite.traces.remat_opt import remat_opt_p


def test_rules_of_libraries_and_ours_stand_in_one_table():
    pair = Primitive("pair_of_rule")
    pair.multiple_results = True
    pair.def_abstract_eval(lambda x, y: [x, y])

    def rule(used, *rest):
        *live, eqn = rest
        assert live == [[True, True]] * TAKES_LIVE_INPUTS
        pick = lambda atoms: [atom for atom, flag in zip(atoms, used, strict=True) if flag]
        return used, eqn.replace(invars=pick(eqn.invars), outvars=pick(eqn.outvars))

    pe.dce_rules[pair] = rule
    assert pe.dce_rules[pair] is rule and jax.lax.scan_p in pe.dce_rules
    program = jax.make_jaxpr(lambda x, y: pair.bind(x, y))(1.0, 2.0).jaxpr
    narrower, used = pe.dce_jaxpr(program, [False, True])
    assert used == [False, True] and len(narrower.eqns[0].invars) == 1
    pe.dce_rules[pair] = lambda *_: "nothing"
    with pytest.raises(RuleError, match=r"pair_of_rule.*test_dead_code_rules.py.*flags and an equation"):
        pe.dce_jaxpr(program, [False, True])
    with pytest.raises(TypeError, match="dce_rules takes a function for a primitive"):
        pe.dce_rules["pair"] = rule


def test_a_rule_may_keep_an_equation_without_use():
    """kups marks its assertions so."""
    mark = Primitive("mark_of_rule")
    mark.def_abstract_eval(lambda x: x)
    pe.dce_rules[mark] = lambda used, *rest: ([True], rest[-1])

    def f(carry, x):
        mark.bind(carry + x)
        jnp.sin(x)
        return carry * x, x + 1

    program = jax.make_jaxpr(lambda c, xs: lax.scan(jax.jit(f), c, xs))(1.0, jnp.ones(2)).jaxpr
    text = str(pe.dce_jaxpr(program, [True, False])[0])
    assert "mark_of_rule" in text and "sin" not in text
    pe.dce_rules[mark] = lambda used, *rest: default_rule(used, *rest)
    assert "mark_of_rule" not in str(pe.dce_jaxpr(program, [True, False])[0])


def test_dead_code_goes_inside_calls():
    consts = np.arange(3, dtype=np.float32)
    program = jax.make_jaxpr(lambda x, y: jax.jit(lambda x, y: (jnp.sin(x), y * consts))(x, y))(1.0, 2.0)
    narrower, used = pe.dce_jaxpr(program.jaxpr, [True, False])
    assert used == [True, False] and "mul" not in str(narrower)
    call = program.jaxpr.eqns[0]
    used, eqn = pe.dce_rules[call.primitive]([True, False], *[[True] * 3] * TAKES_LIVE_INPUTS, call)
    assert used[-2:] == [True, False] and len(eqn.outvars) == 1
    without, _, inputs = pe.dce_jaxpr_consts(program.jaxpr, [True, False])
    assert without.constvars == [] and inputs == [True, False]


def test_optimize_remat_runs_the_function_where_residuals_are_not_read():
    weights = jnp.arange(3.0)

    @jax.custom_vjp
    def f(x):
        return jnp.sin(x) @ weights

    f.defvjp(lambda x: (jnp.tan(x) @ weights, jnp.cos(x) * weights), lambda saved, ct: (ct * saved,), optimize_remat=True)
    x = np.linspace(0, 1, 3, dtype=np.float32)
    np.testing.assert_allclose(jax.jit(jax.grad(f))(x), np.cos(x) * np.arange(3), rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(jax.grad(f))(x[None])[0], np.cos(x) * np.arange(3), rtol=1e-6)
    program = str(jax.make_jaxpr(jax.value_and_grad(jax.checkpoint(f)))(x))
    value, derivative = jax.value_and_grad(jax.checkpoint(f))(x)
    np.testing.assert_allclose(value, np.sin(x) @ np.arange(3), rtol=1e-6)  # of f, not of its forward function
    np.testing.assert_allclose(derivative, np.cos(x) * np.arange(3), rtol=1e-6)
    assert "tan" not in program and "sin" in program
    g = jax.custom_vjp(lambda x: x)
    g.defvjp(lambda x: (x + 1, jnp.cos(x) * 2), lambda saved, ct: (ct * saved,), optimize_remat=True)
    assert jax.jit(jax.value_and_grad(g))(0.0) == (1, 2)  # Python numbers stay weakly typed in the forward function
    with pytest.raises(NotImplementedError, match="symbolic zeros"):
        f.defvjp(None, None, symbolic_zeros=True, optimize_remat=True)


def test_the_equation_of_optimize_remat_is_transposed_as_its_program():
    program = jax.make_jaxpr(lambda x: (x * 3, x.sum()))(jnp.ones(2))
    f = lambda x: remat_opt_p.bind(x, fwd_jaxpr=program, fun_jaxpr=program, num_consts=0, num_res=0)
    (pulled,) = jax.linear_transpose(f, jnp.ones(2))([jnp.array([1.0, 2.0]), 10.0])
    assert pulled.tolist() == [13, 16]


def test_a_scalar_takes_the_axes_of_bounds_of_one_number():
    drawn = jax.random.uniform(jax.random.key(0), (), jnp.float32, jnp.zeros(1), jnp.ones(1))
    assert drawn.shape == (1,) and drawn[0] == jax.random.uniform(jax.random.key(0))
    with pytest.raises(TypeError, match="must broadcast"):
        jax.random.uniform(jax.random.key(0), (), jnp.float32, jnp.zeros(2), 1.0)


def test_programs_are_split_by_what_is_known():
    away = np.float32([1, 2, 3])

    @jax.make_jaxpr
    def program(a, b, c):
        cosine, product = jax.jit(lambda a, b: (jnp.cos(a), -jnp.sin(a) * b))(a, b)
        carry, (unknown, known) = lax.scan(lambda c, x: (c + 1, (c * x, jnp.sin(c))), a, jnp.stack([b, b]))
        first, second = lax.cond(a > 0, lambda: (a * b, a + 1), lambda: (b, a))
        return cosine, product, carry, unknown, known, first, second, away * a, away * c, 5.0

    program = program(1.0, 2.0, 3.0)
    values, flags = [0.5, 2.0, 3.0], [False, True, True]
    expected = jax.extend.core.jaxpr_as_fun(program)(*values)
    for instantiate in (False, [False] * 9 + [True]):
        early, late, unknown, residuals = parts.partial_eval_jaxpr_nounits(program, flags, instantiate)
        assert unknown == [False, True, False, True, False, True, False, False, True, instantiate is not False]
        outs = jax.extend.core.jaxpr_as_fun(early)(values[0])
        saved = outs[len(outs) - len(residuals):]
        assert list(map(np.shape, saved)) == [aval.shape for aval in residuals]
        given, rest = iter(outs), iter(jax.extend.core.jaxpr_as_fun(late)(*saved, *values[1:]))
        for flag, wanted in zip(unknown, expected, strict=True):
            np.testing.assert_allclose(next(rest if flag else given), wanted, rtol=1e-6)
        assert "sin" not in str(late)  # the call's sine and the loop's are known
    assert hasattr(pe, "partial_eval_jaxpr_nounits") == hasattr(jax.extend.core, "create_call_primitive")


def test_programs_are_rearranged_and_differentiated():
    away = np.float32([1, 2, 3])
    program = jax.make_jaxpr(lambda x, y: (x * away, x * y))(1.0, 2.0)
    run = lambda program, *args: jax.core.eval_jaxpr(program.jaxpr, program.consts, *args)
    whole = parts.convert_constvars_jaxpr(program)
    assert not whole.consts and parts.close_jaxpr(whole.jaxpr) is parts.close_jaxpr(whole.jaxpr)
    np.testing.assert_array_equal(run(whole, away, 2.0, 5.0)[0], 2 * away)
    assert parts.convert_constvars_jaxpr(program.jaxpr).invars == whole.jaxpr.invars
    with pytest.raises(ValueError, match="convert_constvars_jaxpr makes them inputs"):
        parts.close_jaxpr(program.jaxpr)
    np.testing.assert_array_equal(run(parts.move_binders_to_back(program, [True, False]), 5.0, 2.0)[0], 2 * away)
    assert run(parts.prune_closed_jaxpr_outputs(program, [False, True]), 2.0, 5.0) == [10]
    tangents, nonzero = parts.jvp_jaxpr(program, [False, True], [True, False])
    assert nonzero == [True, True] and parts.jvp_jaxpr(program, [False, True], False)[1] == [False, True]
    np.testing.assert_array_equal(run(tangents, 2.0, 5.0, 1.0)[2], [0, 0, 0])
    assert run(tangents, 2.0, 5.0, 1.0)[3] == 2
    linear = ad.UndefinedPrimal(program.in_avals[0])
    pulled = parts.backward_pass(program.jaxpr, False, program.consts, [linear, 5.0], [away, np.float32(10)])
    assert pulled[0] == 14 + 50 and isinstance(pulled[1], ad.Zero)
    avals = parts.abstract_eval_fun(lambda x, *, k: [x * k, x[0]], jax.core.ShapedArray((2,), np.float32),
                                    debug_info=program.jaxpr.debug_info, k=2)
    assert [aval.shape for aval in avals] == [(2,), ()]
