"""Derivatives and batches of cond, switch, while, fori, scan, and what the derivatives of scan keep."""

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from tests.rule_checks import check_batching, check_derivatives

pytestmark = pytest.mark.usefixtures("x64")

STEPS = np.array([0.4, -0.9, 1.3])
WEIGHTS = np.array([[0.3, 0.2], [-0.1, 0.5]])


def counted(x):
    def body(carry, a):
        index, c = carry
        return (index + 1, jnp.sin(c * x) + index * a), {"c": c * a, "index": index}

    (index, c), ys = lax.scan(body, (0, x), STEPS)
    return c + jnp.sum(ys["c"]) * x


def several(x):
    carry, ys = lax.scan(lambda c, a: ({"p": c["q"] * x, "q": jnp.tanh(c["p"] + a[0]) + a[1]["z"]}, None),
                         {"p": x, "q": x * x}, (STEPS, {"z": STEPS * x}))
    assert ys is None
    return carry["p"] * carry["q"]


def halley(x):
    return lax.fori_loop(0, 3, lambda i, c: c - (c * c - x) / (2 * c), x + 1.0)


SCANS = {
    "carry and results": lambda x: (lambda c, ys: c + jnp.sum(ys))(
        *lax.scan(lambda c, a: (jnp.tanh(c * x + a), c * c), 0.5, STEPS)),
    "reverse": lambda x: jnp.sum(lax.scan(lambda c, a: (c * jnp.sin(a * x), c + a), x, STEPS, reverse=True)[1]),
    "nested": lambda x: lax.scan(
        lambda c, a: (lax.scan(lambda d, _: (jnp.sin(d * x), None), c, None, length=2)[0] + a, c), x, STEPS)[0],
    "counter beside a float": counted,
    "pytrees": several,
    "unrolled": lambda x: lax.scan(lambda c, a: (jnp.sin(c * x) + a, None), x, STEPS, unroll=2)[0],
    "zero length": lambda x: lax.scan(lambda c, a: (c * a * x, c), x * x, np.zeros(0))[0],
    "matrices": lambda x: jnp.sum(lax.scan(lambda c, a: (jnp.tanh(WEIGHTS @ c * x) + a, c), np.ones(2), np.ones((3, 2)))[0]),
    "results alone": lambda x: jnp.sum(lax.scan(lambda c, a: (None, jnp.sin(a * x)), None, STEPS)[1]),
    "cond inside": lambda x: lax.scan(
        lambda c, a: (lax.cond(c > a, lambda v: v * x, lambda v: jnp.sin(v) + x, c), c), x, STEPS)[0],
    "jit inside": lambda x: lax.scan(lambda c, a: (jax.jit(lambda v: jnp.sin(v) * x + a)(c), None), x, STEPS)[0],
    "checkpoint inside": lambda x: lax.scan(
        jax.checkpoint(lambda c, a: (jnp.sin(c) * x + a, None)), x, STEPS)[0],
    "fori": lambda x: lax.fori_loop(0, 4, lambda i, c: c * jnp.cos(x * i), x),
    "fori of a division": halley,
    "map": lambda x: jnp.sum(lax.map(lambda a: jnp.sin(a * x), STEPS)),
    "associative": lambda x: jnp.sum(lax.associative_scan(jnp.multiply, STEPS * x)),
}

BRANCHES = {
    "cond, true": lambda x: lax.cond(x > 0.5, lambda x: jnp.sin(x) * x, lambda x: jnp.cos(x) * x * x, x),
    "cond, false": lambda x: lax.cond(x > 0.9, lambda x: jnp.sin(x) * x, lambda x: jnp.cos(x) * x * x, x),
    "switch": lambda x: lax.switch(1, [lambda x: x, lambda x: jnp.exp(x) * x, lambda x: x ** 3], x),
    "traced switch": lambda x: lax.switch((x * 3).astype(int), [lambda x: x, lambda x: jnp.exp(x), lambda x: x ** 3], x),
    "closed over": lambda x: lax.cond(x > 0.5, lambda: jnp.sin(x), lambda: x),
    "constant branch": lambda x: lax.cond(x > 0.5, lambda y: (y * 2, y * y), lambda y: (1.0, y), x)[1],
}

WHILES = {
    "counter": lambda x: lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, jnp.sin(c[1]) * x), (0, x))[1],
    "until large": lambda x: lax.while_loop(lambda c: c < 10.0, lambda c: c * (1 + x), x),
    "traced bound": lambda x: lax.fori_loop(0, (x * 6).astype(int), lambda i, c: c * x + i, x),
}


@pytest.mark.parametrize("name", [*SCANS, *BRANCHES])
def test_derivatives(name):
    fun = {**SCANS, **BRANCHES}[name]
    check_derivatives(fun, np.float64(0.7), orders=2 if name in ("nested", "carry and results", "cond inside") else 1)


@pytest.mark.parametrize("name", WHILES)
def test_forward_derivatives_of_while(name):
    check_derivatives(WHILES[name], np.float64(0.7), orders=1, reverse=False)


@pytest.mark.parametrize("name", ["carry and results", "counter beside a float", "cond inside", "matrices", "pytrees"])
def test_gradients_of_batches(name):
    check_batching(lambda x: list(jax.value_and_grad(SCANS[name])(x)), [np.array([0.3, 0.7])], [0], 1e-9)


@pytest.mark.parametrize("name", WHILES)
def test_batches_of_derivatives_of_while(name):
    check_batching(lambda x: list(jax.jvp(WHILES[name], (x,), (x,))), [np.array([0.3, 0.7])], [0], 1e-9)


def test_gradients_with_respect_to_the_scanned_arrays():
    def fun(init, xs, scale):
        return jnp.sum(lax.scan(lambda c, x: (c * scale + jnp.sin(x), c * x), init, xs)[1])

    check_derivatives(fun, np.float64(0.5), STEPS, np.float64(1.1), orders=1)
    check_batching(fun, [np.float64(0.5), np.stack([STEPS, -STEPS]), np.array([1.1, 0.3])], [None, 0, 0], 1e-9)
    check_batching(fun, [np.array([0.5, 0.2]), np.stack([STEPS, -STEPS], 1), np.float64(1.0)], [0, 1, None], 1e-9)


def test_a_batched_while_says_which_examples_go_on():
    """As in JAX: its condition gives a boolean for each, and its body is that of all; libraries have rules for these."""

    def grown(limit, factor):
        return lax.while_loop(lambda c: c[0] < limit, lambda c: (c[0] + 1, c[1] * factor), (0, 1.0))[1]

    limits, factors = np.array([3, 0, 5]), np.array([2.0, 3.0])
    batched = jax.vmap(grown, in_axes=(0, None))
    (eqn,) = [eqn for eqn in jax.make_jaxpr(batched)(limits, 2.0).eqns if eqn.primitive is lax.while_p]
    assert eqn.params["cond_jaxpr"].out_avals[0].shape == (3,)
    assert "select_n" not in {each.primitive.name for each in eqn.params["body_jaxpr"].eqns}
    np.testing.assert_allclose(batched(limits, 2.0), 2.0 ** limits)
    powers = factors[:, None] ** limits
    np.testing.assert_allclose(jax.jit(jax.vmap(batched, in_axes=(None, 0)))(limits, factors), powers)
    np.testing.assert_allclose(jax.vmap(jax.vmap(grown, in_axes=(None, 0)), in_axes=(0, None))(limits, factors), powers.T)
    slopes = jax.jit(jax.vmap(jax.jvp, in_axes=(None, 0, None)), static_argnums=0)
    np.testing.assert_allclose(slopes(lambda x: batched(limits, x), (factors,), (1.0,))[1][0], limits * 2.0 ** (limits - 1))
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="step 2 of the loop"):
        jax.vmap(lambda x: lax.while_loop(lambda c: c < 9, lambda c: jnp.log(c - 1) + 1, x))(np.array([20.0, 2.0]))


def test_reverse_mode_through_while_says_what_to_do():
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work .*while_loop"):
        jax.grad(WHILES["until large"])(0.7)
    with pytest.raises(ValueError, match="scan"):
        jax.jit(jax.grad(WHILES["traced bound"]))(0.7)


def scans(jaxpr):
    return [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "scan"]


def test_what_depends_on_constants_alone_is_not_stacked():
    def fun(weight, xs):
        return jnp.sum(lax.scan(lambda c, x: (c * jnp.sin(weight) + x, None), jnp.zeros(2), xs)[0])

    jaxpr = jax.make_jaxpr(jax.grad(fun))(np.ones(2), np.ones((5, 2))).jaxpr
    forward, backward = scans(jaxpr)
    stacked = [var.aval.shape for var in forward.outvars if var.aval.shape[:1] == (5,)]
    assert stacked == [(5, 2)], stacked  # the carries; sin(weight) and cos(weight) are kept once
    assert backward.params["reverse"]
    inside = [eqn.primitive.name for eqn in backward.params["jaxpr"].jaxpr.eqns]
    assert "cos" not in inside and "sin" not in inside


def test_what_a_scan_gives_anyway_is_not_kept_beside_it():
    def gradient(x):
        return jax.grad(lambda x: jnp.sum(lax.scan(lambda c, a: (jnp.sin(c * x) + a, c), x, STEPS, reverse=True)[1]))(x)

    forward, backward = scans(jax.make_jaxpr(gradient)(0.3).jaxpr)
    carry, given, cosines = forward.outvars
    assert given in backward.invars and cosines in backward.invars and carry not in backward.invars


@pytest.mark.parametrize("steps, is_costly, turns", [(300, True, 0), (300, False, 1), (3, True, 1)])
def test_batches_of_long_scans_with_costly_functions_have_vectors_as_columns(steps, is_costly, turns):
    def last(x, scale, zeros):
        turn = lambda x: jnp.stack([x[1], x[2], x[0]]) + zeros[0]
        start = lambda x: jnp.tanh(x) if is_costly else 0.5 * x
        return lax.scan(lambda x, _: (start(x) + scale * turn(x), None), x, None, length=steps)[0]

    xs, scales = np.random.default_rng(0).random((600, 3), np.float32), np.linspace(0.4, 0.5, 600, dtype=np.float32)
    args = xs, scales, np.zeros((3, 3, 600), np.float32)
    batch = jax.vmap(last, (0, 0, 2))
    expected = xs
    for _ in range(steps):
        expected = (np.tanh(expected) if is_costly else np.float32(0.5) * expected) + scales[:, None] * expected[:, [1, 2, 0]]
    np.testing.assert_allclose(batch(*args), expected, rtol=1e-3)
    (scan,) = scans(jax.make_jaxpr(batch)(*args).jaxpr)
    assert [eqn.primitive.name for eqn in scan.params["jaxpr"].jaxpr.eqns].count("transpose") == turns


def test_gradients_of_a_scan_compute_cheap_arithmetic_again():
    """Of the attractions of all pairs, a step keeps the positions and the distances; of `tanh`, what it gives."""
    masses = np.array([1.0, 2.0, 0.5, 1.5])

    def step(x, _):
        d = x[None] - x[:, None]
        distances = jnp.sqrt(jnp.sum(d * d, 2) + 0.1)
        return jnp.tanh(x + jnp.sum(masses[:, None] * d / (3.0 * distances)[..., None], 1)), None

    def by_scan(x):
        return jnp.sum(lax.scan(step, x, None, length=3)[0])

    def unrolled(x):
        for _ in range(3):
            x, _ = step(x, None)
        return jnp.sum(x)

    x = np.random.default_rng(0).standard_normal((4, 6))
    np.testing.assert_allclose(jax.grad(by_scan)(x), jax.grad(unrolled)(x), rtol=1e-12)
    direction = np.cos(x)
    along = lambda fun: jax.jvp(jax.grad(fun), (x,), (direction,))[1]
    np.testing.assert_allclose(along(by_scan), along(unrolled), rtol=1e-12)
    forward, backward = scans(jax.make_jaxpr(jax.grad(by_scan))(x).jaxpr)
    assert sorted(var.aval.shape for var in forward.outvars[1:]) == [(3, 4, 4), (3, 4, 4, 1), (3, 4, 6), (3, 4, 6)]
    assert "tanh" not in [eqn.primitive.name for eqn in backward.params["jaxpr"].jaxpr.eqns]


@pytest.mark.parametrize("columns, kept", [(8, []), (3, [(3, 4, 4, 3)])])
def test_gradients_of_a_scan_keep_what_short_rows_would_compute_slowly(columns, kept):
    def step(x, _):
        d = x[None] - x[:, None]
        return x + 0.1 * jnp.sum(d * d * (d - 3.0) * (2.0 - d), 1), None

    gradient = jax.grad(lambda x: jnp.sum(lax.scan(step, x, None, length=3)[0]))
    forward, _ = scans(jax.make_jaxpr(gradient)(np.ones((4, columns))).jaxpr)
    assert [var.aval.shape for var in forward.outvars[1:]] == [*kept, (3, 4, columns)]


def test_gradients_of_a_loop_slice_constants_again():
    """Of a column, a turn keeps its number."""
    a = np.random.default_rng(0).standard_normal((20, 5))

    def by_loop(a, w):
        return jnp.sum(lax.fori_loop(0, 5, lambda j, w: w * jnp.sin(a[:, j]) * (a[:, j] @ w) ** 2, w))

    def unrolled(a, w):
        for j in range(5):
            w = w * jnp.sin(a[:, j]) * (a[:, j] @ w) ** 2
        return jnp.sum(w)

    w = np.linspace(0.5, 1.0, 20)
    for found, expected in zip(jax.grad(by_loop, (0, 1))(a, w), jax.grad(unrolled, (0, 1))(a, w), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    plain = lambda a, w: lax.fori_loop(0, 5, lambda j, w: jnp.sin(w * a[:, j]), w).sum()
    forward, _ = scans(jax.make_jaxpr(jax.grad(plain))(a, w).jaxpr)
    assert sorted(var.aval.shape for var in forward.outvars) == [(), (5,), (5, 20), (5, 20), (20,)]


def test_gradient_of_a_linear_scan_keeps_nothing():
    jaxpr = jax.make_jaxpr(jax.grad(lambda x: lax.scan(lambda c, _: (c * 2.0, None), x, None, length=5)[0]))(1.0).jaxpr
    assert all(not var.aval.shape for eqn in scans(jaxpr) for var in eqn.outvars)


def test_counter_gradients_have_no_integer_arithmetic_in_reverse():
    jaxpr = jax.make_jaxpr(jax.grad(counted))(0.7).jaxpr
    backward = scans(jaxpr)[-1]
    assert backward.params["reverse"]
    assert not [eqn for eqn in backward.params["jaxpr"].jaxpr.eqns
                if eqn.primitive.name == "add" and eqn.outvars[0].aval.dtype.kind == "i"]


def test_checkpointed_bodies_keep_the_carry_alone():
    def fun(x, body):
        return lax.scan(body, x, None, length=5)[0]

    def body(c, _):
        return jnp.sin(jnp.cos(jnp.tanh(c))), None

    def stacked(body):
        jaxpr = jax.make_jaxpr(jax.grad(lambda x: fun(x, body)))(1.0).jaxpr
        return sum(var.aval.shape[:1] == (5,) for var in scans(jaxpr)[0].outvars)

    assert stacked(jax.checkpoint(body)) == 1 < stacked(body)


def test_long_scans_make_programs_of_the_same_size():
    def size(length):
        def fun(x):
            return lax.scan(lambda c, a: (jnp.sin(c * x), None), x, None, length=length)[0]

        return len(str(jax.make_jaxpr(jax.grad(fun))(1.0)).splitlines())

    assert size(3) == size(1000)


@pytest.mark.parametrize("choose", [
    lambda x: lax.cond(x < 1e-3, lambda x: x * 1e-3, jnp.sqrt, x),
    lambda x: lax.cond(x < 1e-3, lambda: x * 1e-3, lambda: jnp.sqrt(x)),
    lambda x: lax.switch((x >= 1e-3).astype(int), [lambda x: x * 1e-3, jnp.sqrt, jnp.log], x),
])
def test_gradients_of_batched_branches_that_are_not_taken_do_not_matter(choose):
    x = np.array([0, 0, 4], np.float32)
    expected = np.array([1e-3, 1e-3, 0.25], np.float32)
    for fun in (jax.vmap(choose), jax.jit(jax.vmap(choose))):
        np.testing.assert_allclose(jax.grad(lambda x, fun=fun: fun(x).sum())(x), expected, rtol=1e-6)
        np.testing.assert_allclose(jax.jvp(fun, (x,), (np.ones_like(x),))[1], expected, rtol=1e-6)
