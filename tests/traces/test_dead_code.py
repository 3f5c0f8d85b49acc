"""What no result needs is not lowered, inside loops, branches and calls too."""

import re

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.traces.dead_code import pruned


def while_loop(x):
    def body(carry):
        index, kept, dead = carry
        return index + 1, kept * 2, jnp.sin(dead) + lax.fori_loop(0, 2, lambda _, x: x + kept, dead)

    return lax.while_loop(lambda carry: carry[0] < 3, body, (0, x, x))[1]


def fori_loop_inside(x):
    def body(carry):
        index, kept, dead = carry
        return index + 1, kept * 2, lax.fori_loop(0, 3, lambda _, dead: jnp.sin(dead), dead)

    return lax.while_loop(lambda carry: carry[0] < 3, jax.jit(body), (0, x, x))[1]


def scan(x):
    step = lambda carry, _: ((carry[0] * 2, jnp.sin(carry[1])), carry[1])
    return lax.scan(lambda x, _: (lax.scan(step, (x, x), None, length=3)[0][0], None), x, None, length=1)[0]


def call(x):
    return jax.jit(lambda x: (x * 8, jnp.sin(x)))(x)[0]


def call_in_a_call(x):
    def inner(x):
        lax.while_loop(lambda x: x < 3, jnp.sin, x)
        return x * 8

    return jax.jit(lambda x: jax.jit(inner)(x))(x)


def branch(x):
    def with_loop(x):
        return lax.fori_loop(0, 3, lambda _, x: x * 2, x), jnp.sin(x)

    return lax.cond(x > 0, with_loop, lambda x: (x * 3, jnp.sin(x)), x)[0]


def custom(x):
    @jax.custom_jvp
    def inner(x):
        return scan(x)

    inner.defjvps(lambda tangent, *_: tangent)
    return inner(x)


@pytest.mark.parametrize("f", [while_loop, fori_loop_inside, scan, call, call_in_a_call, branch, custom])
def test_dead_values_are_not_lowered(f):
    lowered = jax.jit(f).lower(2.0)
    assert "sine" not in lowered.as_text() and lowered.compile()(2.0) == 16


def test_values_that_a_condition_or_another_value_needs_are_kept():
    def f(x):
        def body(carry):
            kept, until, helper, dead = carry
            return kept + helper, until * 2, helper + until, lax.fori_loop(0, 3, lambda _, dead: jnp.sin(dead), dead)

        return lax.while_loop(lambda carry: carry[1] < 20, body, (x, x, x, x))[0]

    text = jax.jit(f).lower(2.0).as_text()
    assert "sine" not in text and len(re.findall(r"%iterArg\w* = ", text)) == 3
    kept, until, helper = 2.0, 2.0, 2.0
    while until < 20:
        kept, until, helper = kept + helper, until * 2, helper + until
    assert jax.jit(f)(2.0) == kept


def test_values_of_effects_are_kept(capfd):
    def body(carry):
        index, kept, shown = carry
        jax.debug.print("shown {}", shown)
        return index + 1, kept * 2, shown + 1

    jax.jit(lambda x: lax.while_loop(lambda carry: carry[0] < 2, body, (0, x, x))[1])(5.0)
    jax.effects_barrier()
    assert capfd.readouterr().out.split("\n")[:2] == ["shown 5.0", "shown 6.0"]


def test_a_loop_over_examples_that_stop_at_different_times():
    def step(carry):
        return carry[0] * 2, lax.fori_loop(0, 3, lambda _, x: jnp.sin(x), carry[1]), carry[2] + 1

    def f(x):
        return lax.while_loop(lambda carry: carry[0] < 10, step, (x, x, 0))

    lowered = jax.jit(lambda xs: jax.vmap(f)(xs)[2]).lower(np.array([1.0, 3.0], "f"))
    assert "sine" not in lowered.as_text()
    np.testing.assert_array_equal(lowered.compile()(np.array([1.0, 3.0], "f")), [4, 2])


def test_calls_of_one_program_stay_calls_of_one():
    inner = jax.jit(lambda x: (lax.fori_loop(0, 3, lambda _, x: x * 2, x), jnp.sin(x)))
    text = jax.jit(lambda x, y: inner(x)[0] + inner(y)[0] * inner(x)[1]).lower(1.0, 2.0).as_text()
    assert len(re.findall(r"func private @_lambda", text)) == 2
    assert text.count("stablehlo.sine") == 1


def test_a_program_without_dead_code_is_itself():
    program = jax.make_jaxpr(lambda x: lax.while_loop(lambda x: x < 3, jax.jit(jnp.sin), x))(1.0).jaxpr
    assert pruned(program) is program


def test_saved_counters_of_a_loop_in_a_loop():
    """XLA does not see that values are dead which loops within loops pass on to each other."""
    def outer(carry):
        index, x, count = carry
        x, count = lax.fori_loop(0, 3, lambda _, pair: (jnp.cos(pair[0]), pair[1] + 1), (x, count))
        return index + 1, x, count

    compiled = jax.jit(lambda x: lax.while_loop(lambda carry: carry[0] < 3, outer, (0, x, 0))[1]).lower(2.0).compile()
    expected = 2.0
    for _ in range(9):
        expected = np.cos(expected)
    np.testing.assert_allclose(compiled(2.0), expected, rtol=1e-6)


def test_what_one_loop_carries_is_left_to_xla():
    """So that most programs need no rules."""
    def f(x):
        return lax.while_loop(lambda carry: carry[0] < 3, lambda carry: (carry[0] + 1, jnp.sin(carry[1])), (x, x))[0]

    program = jax.make_jaxpr(f)(1.0).jaxpr
    assert pruned(program) is program


def test_programs_that_share_their_parts_are_looked_at_once():
    f = jnp.sin
    for _ in range(40):
        f = jax.jit(lambda x, f=f: f(x) + f(x))
    program = jax.make_jaxpr(f)(1.0).jaxpr
    assert pruned(program) is program


def test_calls_of_which_each_needs_less_of_the_next_stay_few_programs():
    """Each function calls the next three times, and does not need all that it gives."""
    def f(x):
        return jnp.sin(x), x

    depth = 20
    for _ in range(depth):
        inner = jax.jit(f)

        def f(x, inner=inner):
            one, rest = inner(x)
            return one + inner(rest)[0] + inner(one)[0], rest

    text = jax.jit(lambda x: f(x)[0]).lower(2.0).as_text()
    assert text.count("func.func private") <= 2 * depth


def test_loops_in_loops_are_looked_at_a_few_times():
    """Each asks the loop in it again when it finds that it carries more."""
    def f(x, y, z):
        return x + y, y * 2, z + x

    def loop(f, *carry):
        def step(carry, _):
            x, y, z = f(*carry)
            return (x, y * z, z + 1), x

        return lax.scan(step, carry, None, length=1)[0]

    for _ in range(20):
        def f(x, y, z, f=f):
            x, _, z = loop(f, x, y, z)
            return x, y, z

    jax.jit(f).lower(1.0, 2.0, 3.0)
