"""checkpoint: what policies keep, inside loops, branches and calls too, and where; what print_saved_residuals tells."""

import functools

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.ad_checkpoint import Offloadable, Recompute, Saveable, checkpoint_name, print_saved_residuals, saved_residuals

policies = jaxlite.checkpoint_policies
W, X = np.full((3, 3), 0.3, np.float32), np.ones(3, np.float32)


def looped(policy, w, x):
    def body(c, _):
        b = checkpoint_name(jnp.sin(w @ c), "inner")
        return jnp.sin(b), b.sum()

    return jaxlite.checkpoint(lambda x: lax.scan(body, x, None, length=4), policy=policy)(x)[1].sum()


def branched(policy, w, x):
    def other(c):
        return jnp.sin(checkpoint_name(jnp.cos(w @ c), "inner"))

    def inside(x):
        return lax.cond(x[0] > 0, lambda c: jaxlite.jit(other)(jnp.sin(c)), lambda c: c * jnp.exp(c), x).sum()

    return jaxlite.checkpoint(inside, policy=policy)(x)


def chooses(primitive, *avals, **params):
    assert all(hasattr(aval, "shape") for aval in avals)
    return {"sin": Saveable, "dot_general": Offloadable("device", "pinned_host")}.get(primitive.name, Recompute)


ALL = [None, policies.nothing_saveable, policies.everything_saveable, policies.checkpoint_dots, chooses,
       policies.save_only_these_names("inner"), policies.save_anything_except_these_names("inner"),
       policies.offload_dot_with_no_batch_dims("device", "pinned_host"),
       policies.save_and_offload_only_these_names(names_which_can_be_saved=["a"], names_which_can_be_offloaded=["inner"],
                                                  offload_src="device", offload_dst="pinned_host")]


@pytest.mark.parametrize("f", [looped, branched])
def test_policies_change_no_derivative(f):
    expected = jaxlite.grad(functools.partial(f, None))(W, X)
    for policy in ALL[1:]:
        found = jaxlite.grad(functools.partial(f, policy))(W, X)
        assert np.allclose(found, expected, atol=1e-6), policy
    second = lambda policy: jaxlite.jvp(jaxlite.grad(functools.partial(f, policy)), (W, X), (W, X))[1]
    assert np.allclose(second(ALL[-1]), second(None), atol=1e-6)


@pytest.mark.parametrize("f, kept", [(looped, "f32<host>[4,3]"), (branched, "f32<host>[3]")])
def test_the_type_of_what_is_offloaded_says_where_it_is(f, kept):
    """What a program gives to the next one is where it says, and each branch gives it there."""
    assert kept in str(jaxlite.make_jaxpr(jaxlite.grad(functools.partial(f, ALL[-1])))(W, X))


def products(f, policy):
    return str(jaxlite.make_jaxpr(jaxlite.grad(functools.partial(f, policy), (0, 1)))(W, X)).count("dot_general")


def test_what_is_kept_inside_loops_and_branches():
    dots = policies.checkpoint_dots
    assert [products(looped, each) for each in (None, dots, policies.everything_saveable)] == [4, 3, 3]
    assert [products(branched, each) for each in (None, dots, policies.save_only_these_names("inner"))] == [4, 3, 4]
    residuals = saved_residuals(functools.partial(looped, dots), W, X)
    kept = [(aval.str_short(True), where.split(" from")[0]) for aval, where in residuals]
    assert ("f32[4,3]", "output of scan") in kept and len(kept) == 3
    nothing = saved_residuals(functools.partial(looped, policies.nothing_saveable), W, X)
    assert [aval.shape for aval, _ in nothing] == [(3, 3), (3,)]


def test_answers_that_are_none():
    for answer in (None, 1, "x"):
        with pytest.raises(TypeError, match="^Value returned by a remat policy should be a bool or `ad_checkpoint.Recompute`"):
            jaxlite.make_jaxpr(jaxlite.grad(functools.partial(looped, lambda *a, answer=answer, **k: answer)))(W, X)
    both = policies.save_from_both_policies(chooses, policies.everything_saveable)
    with pytest.raises(ValueError, match="^The return value of the policies should be a boolean"):
        jaxlite.make_jaxpr(jaxlite.grad(functools.partial(looped, both)))(W, X)
    with pytest.raises(ValueError, match="^The names should be exclusive"):
        policies.save_and_offload_only_these_names(names_which_can_be_saved=["a"], names_which_can_be_offloaded=["a"],
                                                   offload_src="device", offload_dst="pinned_host")


def test_offloaded_values_lie_in_the_other_memory():
    f = jaxlite.checkpoint(lambda x: jnp.sin(checkpoint_name(jnp.sin(x), "inner")), policy=ALL[-1])
    kinds = [getattr(getattr(leaf, "sharding", None), "memory_kind", "") for leaf in jaxlite.tree.leaves(jaxlite.vjp(f, X)[1])]
    assert kinds.count("pinned_host") == 1


def test_values_are_never_concrete():
    assert jaxlite.checkpoint(jnp.sin, concrete=False)(0.0) == 0
    with pytest.raises(NotImplementedError, match="static_argnums"):
        jaxlite.checkpoint(jnp.sin, concrete=True)


def test_print_saved_residuals(capsys):
    def f(w, x):
        named = checkpoint_name(jnp.sin(jnp.dot(w, x["a"])), "inner")
        return (jaxlite.jit(jnp.cos)(named) * named).sum()

    print_saved_residuals(f, W, {"a": X})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" from /")[0] for line in lines] == [
        "f32[3,3] from the argument w", "f32[3] from the argument x['a']", "f32[3] output of cos",
        "f32[3] named 'inner'", "f32[3] output of jitted function 'cos'", "f32[3] output of jitted function 'cos'"]
    assert all(line.endswith("<locals>.f)") for line in lines[2:]), lines
    named = jaxlite.checkpoint(f, policy=policies.save_only_these_names("inner"))
    where = saved_residuals(named, W, {"a": X})[-1][1]
    assert where.startswith("named 'inner' from") and where.endswith("<locals>.f)")


# --- rules of a user's -------------------------------------------------------------------------------


def twice_exp(logs=False):
    """exp(sin(x)), which keeps the sine, and computes the exponential again. The derivative is twice the right one."""

    @jaxlite.custom_vjp
    def f(x):
        return jnp.exp(jnp.sin(x))

    def rem(sine, x):
        return jnp.exp(sine), (jnp.exp(sine), jnp.cos(x))

    def bwd(kept, g):
        found = (2 * g * kept[0] * kept[1],)
        return (found, {"g": g}) if logs else found

    (f.defremat_with_logs if logs else f.defremat)(lambda x: (f(x), jnp.sin(x)), rem, bwd)
    return f


def test_rules_of_a_user_for_what_is_kept():
    f, x = twice_exp(), jnp.float32(0.5)
    slope = 2 * np.exp(np.sin(0.5)) * np.cos(0.5)
    for policy in (None, policies.nothing_saveable, policies.everything_saveable, policies.checkpoint_dots):
        kept = functools.partial(jaxlite.checkpoint, policy=policy)
        batch = lambda x, kept=kept: jaxlite.vmap(kept(f))(x[None])[0]
        for fun in (f, kept(f), jaxlite.jit(kept(jaxlite.jit(f))), batch):
            assert np.allclose(jaxlite.grad(fun)(x), slope)
    second = jaxlite.grad(jaxlite.grad(jaxlite.checkpoint(f)))(x)
    assert np.allclose(second, jaxlite.grad(jaxlite.grad(f))(x))

    forward, backward = jaxlite.fwd_and_bwd(jaxlite.checkpoint(lambda x: 3 * f(jnp.tanh(x))), 0, jitted=False)
    text = str(jaxlite.make_jaxpr(forward)(x))
    assert "cos" not in text and text.count("exp") == 1  # the residuals are left to the backward pass
    _, pull = forward(x)
    text = str(jaxlite.make_jaxpr(backward)(pull, x))
    assert "= sin" not in text and text.count("exp") == 1 and "= tanh" in text and "= cos" in text  # the sine is kept
    loop = lambda x: lax.scan(jaxlite.checkpoint(lambda c, _: (f(c), None)), x, None, length=2)[0]
    assert np.allclose(jaxlite.grad(loop)(x), slope * 2 * np.exp(np.sin(f(x))) * np.cos(f(x)))
    assert jaxlite.vjp(jaxlite.checkpoint(twice_exp(logs=True)), x)[1].with_logs(3 * x)[1] == {"g": 1.5}


def test_rules_for_recomputation_beside_others():
    f, x = twice_exp(), jnp.float32(0.5)
    f.defvjp(lambda x: (f(x), x), lambda x, g: (7 * g,))
    assert jaxlite.grad(f)(x) == 7 and jaxlite.grad(jaxlite.checkpoint(f))(x) < 7

    @functools.partial(jaxlite.custom_vjp, nondiff_argnums=(0,))
    def scaled(n, x):
        return n * x

    scaled.defremat(lambda n, x: (n * x, x), lambda kept, n, x: (n * kept, n * kept), lambda n, kept, g: (n * g * kept,))
    assert jaxlite.grad(scaled, 1)(3, 2.0) == 18

    @jaxlite.custom_gradient(remat=True)
    def sine(x):
        cosine = jnp.cos(x)
        return jnp.sin(x), lambda x: (jnp.sin(x), lambda g: (2 * g * cosine,))

    for fun in (sine, jaxlite.checkpoint(sine), jaxlite.jit(jaxlite.checkpoint(sine))):
        assert np.allclose(jaxlite.grad(fun)(x), 2 * np.cos(0.5))
    _, pull = jaxlite.vjp(jaxlite.checkpoint(lambda x: sine(2 * x)), x)
    assert "cos" not in str(jaxlite.make_jaxpr(pull)(x))
    for bad in (lambda kept, x: x, lambda kept, x: (jnp.ones(3), x)):
        f.defremat(lambda x: (x, x), bad, lambda kept, g: (g,))
        with pytest.raises(TypeError, match=r"rematerialization rule .* must give"):
            jaxlite.grad(jaxlite.checkpoint(f))(x)
    with pytest.raises(NotImplementedError, match="with_accums together with remat"):
        jaxlite.custom_gradient(lambda x: x, remat=True, with_accums=())
