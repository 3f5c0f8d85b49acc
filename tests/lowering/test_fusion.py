"""Fusion barriers: where the pass puts them, that they change no result, and how to do without."""

import functools
import json
import re
import sys

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.core import config
from jaxlite.core.jaxpr import subjaxprs
from lowering import xla
from lowering.passes import fusion, values

pytestmark = pytest.mark.usefixtures("uncached")

X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
MATRIX = np.eye(10, dtype=np.float32)


def doubling(steps):
    """A chain in which each value is read by two kernels: under two orders of its elements."""

    def f(x):
        for _ in range(steps):
            x = x * jnp.roll(x, 3, axis=1) + 0.5 * x.T - x * x
        return x

    return f


def barriers(f, *args):
    return fusion.barriers(jax.make_jaxpr(f)(*args).jaxpr)


def test_a_chain_that_doubles_is_cut_at_regular_places():
    found = barriers(doubling(20), X)
    assert 4 <= len(found) <= 20
    assert all(var.aval.shape == (8, 8) and "times" in why for var, why in found.items())
    assert len(barriers(doubling(40), X)) == pytest.approx(2 * len(found), abs=2)


@pytest.mark.parametrize("f", [
    lambda x: jnp.tanh(x @ x) @ x,  # nothing is read twice
    lambda x: jax.grad(lambda y: jnp.sum(jnp.sin(jnp.sin(y) * 0.5 + y * y)))(x),  # much is, in one kernel
    lambda x: (jnp.exp(x), jnp.exp(x) + 1),  # costly values XLA writes by itself
    lambda x: x + x.T,
])
def test_programs_without_a_blow_up_are_left_alone(f):
    assert barriers(f, X) == {}


def chained(x, start):
    """A number that is computed in many steps, each of which reads it twice, and is used everywhere."""
    number = lax.convert_element_type(lax.select(lax.lt(start, 10.0), start, -start), np.float32)
    for _ in range(60):
        number = jax.jit(lambda n: lax.select(lax.eq(n, 0.0), -1e-3, lax.nextafter(n, np.float32(-np.inf))))(number)
    return [jnp.roll(x, k, k % 2) * number for k in range(5)]


def test_numbers_computed_of_constants_count_as_constants():
    assert barriers(lambda x, start: chained(x, start), X, np.float32(3))
    assert barriers(lambda x: chained(x, np.float32(3)), X) == {}


def test_what_an_extreme_is_searched_in_twice_is_written_once():
    x = np.random.default_rng(0).standard_normal((200, 300), np.float32)
    search = lambda x: jnp.argmin(jnp.tanh(x) + 1, axis=1)
    assert [var.aval.shape for var in barriers(search, x)] == [x.shape]
    assert not barriers(search, x[:, :10]) and not barriers(lambda x: jnp.argmin(x, axis=1), x)
    compiled = jax.jit(search).lower(x).compile()
    np.testing.assert_array_equal(compiled(x), (np.tanh(x) + 1).argmin(1))
    arrays = re.findall(r"f32\[200,300\]\S* fusion\(", compiled.as_text())
    assert len(arrays) == 1


@pytest.mark.parametrize("shape, axis, is_written", [
    ((100, 40), 1, True), ((40, 100), 0, True), ((99, 16), 1, True), ((99, 10), 1, False), ((40,), 0, True), ((9,), 0, False)])
def test_what_a_search_in_pairs_would_compute_one_by_one_is_written(shape, axis, is_written):
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    assert len(barriers(lambda x: jnp.argmax(x * jnp.exp(x), axis), x)) == is_written
    assert not barriers(lambda x: jnp.argmax(x + 1, axis), x)


def test_what_is_computed_of_parts_for_the_library_is_written_once():
    x = np.random.default_rng(0).standard_normal((100, 200), np.float32)
    steps = lambda x: ((x[1:] - x[:-1]) ** 2).sum(0)
    assert [var.aval.shape for var in barriers(steps, x)] == [(99, 200)]
    assert [var.aval.shape for var in barriers(lambda x: ((x[1:] - x[:-1]) ** 2).T.sum(1), x)] == [(99, 200)]
    power = lambda x: (lambda z: (z.real**2 + z.imag**2).sum(0))(jnp.fft.rfft(x))
    assert [var.aval.shape for var in barriers(power, x)] == [(100, 101)]
    assert not barriers(steps, x[:20])  # XLA sums up few elements in the kernel that computes them
    assert not barriers(lambda x: (x[1:] - x[0]).sum(0) * x[1:], x) and not barriers(lambda x: (x**2).sum(0), x)
    assert not barriers(jax.value_and_grad(lambda x: steps(x).sum()), x)  # the gradient needs the differences too
    assert not barriers(lambda x: (steps(x), jax.grad(lambda x: steps(x).sum())(x)), x)
    compiled = jax.jit(steps).lower(x).compile()
    np.testing.assert_allclose(compiled(x), (np.diff(x, axis=0) ** 2).sum(0), rtol=1e-5)
    assert len(re.findall(r"f32\[99,200\]\S* (?:fusion|slice)\(", compiled.as_text().split("ENTRY")[1])) == 1


def test_inverses_that_two_sums_of_a_library_would_stretch_are_written():
    loss = lambda scales, x: jnp.sum(jnp.sum((x[:, None] - x) ** 2 / jnp.exp(scales), -1) ** 2)
    scales, x = np.ones(3, np.float32), np.linspace(0, 1, 300, dtype=np.float32).reshape(100, 3)
    (var,) = barriers(jax.grad(loss), scales, x)
    assert var.aval.shape == (1, 1, 3)
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(scales, x), -2 * np.exp(-2) * np.einsum(
        "ijk,ijl->k", d := (x[:, None] - x) ** 2, d), rtol=1e-4)
    assert not barriers(jax.grad(loss), scales, x[:20])  # no library


def test_what_only_the_innermost_loop_repeats_is_not_written():
    x, factors = np.ones((300, 300), np.float32), np.ones((9, 1, 1), np.float32)
    costly = lambda x: jnp.where(jnp.tanh(x) > 0, 1.0, x)
    assert barriers(lambda x: factors * costly(x), x)
    assert not barriers(lambda x: (factors * costly(x)).transpose(1, 2, 0), x)
    assert not barriers(lambda x: (costly(factors) * 2 * x).transpose(1, 2, 0), x)


def test_calls_are_seen_through_and_bodies_are_programs_of_their_own():
    inside = jax.jit(lambda x: x * jnp.roll(x, 3, axis=1) + 0.5 * x.T - x * x)

    def calls(x):
        for _ in range(20):
            x = inside(x)
        return x

    (found,) = barriers(calls, X)  # the one variable, in a function that is called twenty times
    (eqn, *_) = jax.make_jaxpr(calls)(X).jaxpr.eqns
    assert found not in {var for var in eqn.outvars}

    body = doubling(12)
    assert len(barriers(lambda x: lax.scan(lambda c, _: (body(c), None), x, None, length=3)[0], X)) >= 2
    assert len(barriers(lambda x: lax.while_loop(lambda c: c[0, 0] < 0, body, x), X)) >= 2
    assert len(barriers(lambda x: lax.cond(x[0, 0] > 0, body, lambda v: v, x), X)) >= 2


def test_a_state_that_each_step_adds_to_is_written_without_a_barrier():
    """XLA cannot take it in where the step's other half comes from a kernel that reads it, so there is nothing to cut."""

    def steps(x):
        apart = lambda x: x[None] - x[:, None]
        for _ in range(12):
            pull = 1.0 / jnp.sqrt(jnp.sum(apart(x) ** 2, axis=-1) + 0.1)
            x = x - 0.01 * jnp.sum(apart(x) * pull[..., None], axis=1)
        return x

    assert barriers(steps, X) == {}


def test_equal_kernels_are_cheap():
    """XLA compiles them once: what pays in one of many equal steps does not where each step has another shape."""

    def steps(widths):
        def f(x):
            for width in widths:
                for _ in range(9):
                    x = x * 0.5 + 1.0
                x = (x * jnp.roll(x, 3, axis=1) + x[:, ::-1]) @ jnp.ones((x.shape[1], width), x.dtype)
            return x

        return f

    assert len(barriers(steps([8] * 20), X)) >= 18
    assert barriers(steps(range(9, 29)), X) == {}


def test_counters_of_a_long_hash_are_written():
    """LLVM takes long over integer arithmetic on a loop's index; the generator is seen through its decomposition."""
    key = jax.random.key(0)
    found = barriers(lambda key: jax.random.bits(key, (64, 8)), key)
    assert [(var.aval.size, "positions" in why) for var, why in found.items()] == [(512, True)]
    assert barriers(lambda x: (jnp.arange(64) * 3 + 1) * x[0, 0], X) == {}


def test_many_random_bits_are_written_before_they_become_something_else():
    key = jax.random.key(0)
    for f, written in ((lambda key: jax.random.normal(key, (700,)), 700), (lambda key: jax.random.normal(key, (70,)), 0),
                       (lambda key: lax.scan(lambda c, k: (c + jax.random.uniform(k, (600,)).sum(), None), 0.0,
                                             jax.random.split(key, 3))[0], 600)):
        assert sum(var.aval.size for var, why in barriers(f, key).items() if "bits" in why) == written


def test_few_random_bits_are_written_beside_a_reduction():
    """Whose loop, inside that over elements, would keep the hash from being computed in vectors."""
    key, x = jax.random.key(0), np.ones((100, 4), np.float32)

    def noisy(key, x, reduce, count):
        return reduce(x[:count]) + jax.random.normal(key, (count,))

    for reduce, count, written in ((lambda x: x.sum(1), 100, 100), (lambda x: x[:, 0], 100, 0), (lambda x: x.sum(1), 3, 0)):
        found = barriers(functools.partial(noisy, reduce=reduce, count=count), key, x)
        assert sum(var.aval.size for var, why in found.items() if "bits" in why) == written


def test_few_random_numbers_that_several_kernels_read_are_written():
    # XLA would compute the hash in each of the kernels, in full.
    def two_results(key, x, y):
        z = jax.random.normal(key, (2, 100))
        return x * jnp.exp(z[0]), y + z[0] - z[1]

    def one_result(key, x, y):
        return sum(two_results(key, x, y))

    for f, written in ((two_results, 1), (one_result, 0)):
        found = barriers(f, jax.random.key(0), np.ones(100, np.float32), np.ones(100, np.float32))
        assert sum(var.aval.shape == (2, 100) for var in found) == written


def test_what_is_made_of_few_random_bits_is_not_made_again_for_each_element():
    key, images = jax.random.key(0), np.ones((8, 32, 64), np.float32)

    def flipped(key, x):
        return jnp.where(jax.random.bernoulli(key, shape=(len(x), 1, 1)), x[:, ::-1], x)

    def tinted(key, x):
        return jnp.where(jax.random.bernoulli(key, shape=(x.shape[2],)), x, 0)

    def written(x, flipped=flipped):
        return [(var.aval.size, var.aval.dtype) for var, why in barriers(flipped, key, x).items() if "spread" in why]

    assert written(images) == [(8, bool)]
    assert written(images[:, :4]) == []  # the compiler moves it out of the inner loop
    assert written(images[:, :4], tinted) == [(64, bool)] and written(images[:, :1], tinted) == []
    assert written(images[:, :4], lambda key, x: x * jax.random.uniform(key)) == []


@pytest.mark.parametrize("f, shape, is_written", [
    (lambda y, t: jnp.sin(t) * y, (300, 300), True),
    (lambda y, t: y + jnp.broadcast_to(jnp.cos(t[:, None] * jnp.arange(8.0))[:, None], (300, 4, 8)).sum(), (300, 300), False),
    (lambda y, t: y * jnp.sin(t)[:, None], (300, 300), False),  # the compiler moves it out of the inner loop
    (lambda y, t: y * (t * 3 + 1) - 1, (300, 300), False),
    (lambda y, t: y * jnp.sin(t), (300, 8, 300), True),
    (lambda y, t: y * jnp.sin(t)[:, None], (8, 300, 300), True),
    (lambda y, t: jnp.sum(y * jnp.sin(t), 1), (300, 300), False),  # the library computes it
    (lambda y, t: jnp.fft.rfft(y * jnp.sin(t)), (300, 300), True),
    (lambda y, t: y * jnp.sin(t), (3, 300), False),
    (lambda y, t: y[0][:, None] * jnp.sin(t), (1, 300), True),  # another operand of that size stands before it
])
def test_costly_values_are_not_computed_again_for_each_row(f, shape, is_written):
    found = barriers(f, np.ones(shape, np.float32), np.ones(300, np.float32))
    assert [var.aval.shape for var in found] in ([(300,)] if is_written else [], [(300, 1)] if is_written else [])
    assert all("for each row" in why for why in found.values())


def test_costly_scalars_are_not_computed_again_in_parts_of_a_concatenation():
    def f(y, t, join):
        return join([y * jnp.cos(t), y - t])

    y, t = np.ones(100, np.float32), np.float32(1)
    found = barriers(lambda y, t: f(y, t, jnp.concatenate), y, t)
    assert [(var.aval.shape, why) for var, why in found.items()] == [((), "computed again for each element of a part (cos)")]
    assert not barriers(lambda y, t: f(y, t, jnp.concatenate), y[:10], t)  # too few
    assert not barriers(lambda y, t: f(y, t, sum), y, t)  # LLVM moves it out of the loop
    assert not barriers(lambda y, t: jnp.concatenate([y, jnp.cos(t)[None]]), y, t)  # it is computed once


def test_costly_functions_that_several_parts_of_a_concatenation_read_are_computed_once():
    x = np.random.default_rng(0).standard_normal(1000, np.float32)
    turn = lambda x: jnp.stack([jnp.cos(x) * 2, -jnp.sin(x), jnp.sin(x) + 1, 3 - jnp.cos(x)], -1)
    assert [var.aval.shape for var in barriers(turn, x)] == [x.shape] * 4
    assert not barriers(turn, x[:20]) and not barriers(lambda x: jnp.stack([jnp.cos(x), jnp.sin(x)]), x)
    assert not barriers(lambda x: jnp.stack([(x + 1) * 2, 3 - (x + 1)]), x)
    expected = np.stack([np.cos(x) * 2, -np.sin(x), np.sin(x) + 1, 3 - np.cos(x)], -1)
    compiled = jax.jit(turn).lower(x).compile()
    np.testing.assert_allclose(compiled(x), expected, rtol=1e-5, atol=1e-6)
    assert len(re.findall(r" (?:cosine|sine)\(", compiled.as_text())) == 2


@pytest.mark.parametrize("f, is_written", [
    (lambda x: (lambda y: y[1:] - y[:-1])(jnp.cos(x)), True),
    (lambda x: (lambda y: y[1:] - y[:-1])(x * x + 1), False),
    (lambda x: (lambda y: y[:500] * 2 - x[500:] + y[500:])(jnp.cos(x)), False),  # each half once
    (lambda x: jnp.cos(x[:100])[np.arange(5000) % 100], True),
    (lambda x: jnp.exp(x[:100])[np.arange(5000) % 100], True),
    (lambda x: jnp.cos(x)[np.arange(1500) % 1000], False),
    (lambda x: jnp.ones((50, 10))[jnp.cos(x).astype(int)], True),
    (lambda x: jnp.ones((50, 4))[jnp.cos(x).astype(int)], False),  # once for each row
    (lambda x: (jnp.cos(x) + 1, jnp.cos(x).reshape(10, 100) * x[:100]), True),  # by two kernels
])
def test_costly_functions_that_a_kernel_computes_several_times_are_written(f, is_written):
    found = barriers(f, np.ones(1000, np.float32))
    assert bool(found) == is_written, found
    assert all(re.match(r"computed \S+ times \(", why) for why in found.values())


def test_factors_of_outer_products_are_not_computed_again_for_each_row():
    def written(size):
        x = np.ones(size, np.float32)
        return [var.aval.shape for var in barriers(lambda w, x: jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(w),
                                                   np.ones((size, size), np.float32), x)]

    assert written(64) == [(64,)] and written(16) == []


def test_factors_of_small_products_in_loops_are_not_computed_again_for_each_column():
    def written(f, steps=5, matrix=MATRIX):
        step = lambda _, x: f(x) @ matrix
        reasons = barriers(lambda x: lax.fori_loop(0, steps, step, x) if steps else step(0, x), np.ones((20, 10), np.float32))
        return [var.aval.shape for var, why in reasons.items() if "row of a product" in why]

    assert written(jnp.sin) == [(20, 10)] and written(lambda x: x + 1) == []
    assert written(jnp.sin, matrix=MATRIX.astype(jnp.bfloat16)) == [(20, 10)]  # which is converted
    assert written(jnp.sin, steps=0) == []  # the library reads it from memory
    keep = lambda x, _: (jnp.sin(x) @ MATRIX, jnp.sin(x))
    stacked = barriers(lambda x: lax.scan(keep, x, None, 5), np.ones((20, 10), np.float32))
    assert any("row of a product" in why for why in stacked.values())


def test_what_a_scan_stacks_is_written_if_other_kernels_read_it():
    def body(carry, key):
        step = jnp.sqrt(carry) * jax.random.normal(key, (200,))
        return 0.1 * step * step + 0.5 * carry, step

    keys = jax.random.split(jax.random.key(0), 3)
    reasons = barriers(lambda carry: lax.scan(body, carry, keys), np.ones(200, np.float32)).values()
    assert any("times these" in why and "mul of 200" in why for why in reasons)


def test_what_triangles_were_solved_for_is_written_before_it_is_summed_up():
    def written(reduce):
        triangle, sides = np.eye(4, dtype=np.float32), np.ones((4, 2000), np.float32)
        solve = jax.scipy.linalg.solve_triangular
        return [var.aval.shape for var in barriers(lambda x: reduce(solve(triangle, x) ** 2), sides)]

    assert written(lambda x: x.sum(0)) == [(4, 2000)]
    assert written(lambda x: x.sum(1)) == written(lambda x: x.T + 1) == []


def test_complex_functions_that_several_kernels_read_are_written():
    def f(x, *readers):
        z = jnp.exp(1j * x)
        return [reader(z) for reader in readers]

    def written(*readers, size=100):
        return [var.aval.dtype for var in barriers(lambda x: f(x, *readers), np.ones(size, np.float32))]

    assert written(jnp.abs, jnp.angle) == written(jnp.sqrt) == [np.complex64]
    assert written(jnp.abs) == written(lambda z: (z * z.conj()).real) == []  # one kernel
    assert written(jnp.abs, jnp.angle, size=10) == []


def test_what_is_summed_up_as_floats_and_multiplied_is_written_once():
    def gradients(x, w, b):
        return jax.grad(lambda p: (jnp.tanh(x @ p[0] + p[1]) ** 2).sum())((w, b))

    args = [np.ones(shape, jnp.bfloat16) for shape in ((64, 32), (32, 48), (48,))]
    reasons = fusion.barriers(jax.make_jaxpr(gradients)(*args).jaxpr).values()
    assert any("summed up as floats" in why for why in reasons)
    assert not any("as floats" in why for why in fusion.barriers(
        jax.make_jaxpr(gradients)(*[x.astype(np.float32) for x in args]).jaxpr).values())


def test_what_sums_up_equal_parts_is_cut_between_them():
    def f(x):
        total = jnp.float32(0)
        for _ in range(60):
            y = jnp.sin(x[0]) * x[1] + jnp.cos(x[2])
            total += jnp.sum(y * y - y / (1 + y))
            x = lax.optimization_barrier(x * 0.5)
        return total

    found = barriers(f, X)
    assert 5 <= len(found) <= 20
    assert all(var.aval.shape == () and "long kernel" in why for var, why in found.items())
    np.testing.assert_allclose(jax.jit(f)(X), jax.jit(f, compiler_options={"jaxlite_cpu_fusion_barriers": False})(X), rtol=1e-5)


def test_a_long_chain_of_unlike_parts_is_cut_seldom():
    operations = [jnp.sin, jnp.tanh, lambda x: x + 1, lambda x: x * 2, jnp.exp, lambda x: x - 0.5, jnp.abs]
    random = np.random.default_rng(0)

    def f(x):
        for index in random.integers(0, len(operations), 1600):
            x = operations[index](x)
        return x

    big = jax.ShapeDtypeStruct((1024, 1024), np.float32)  # where equal parts are no reason: memory is slow
    assert len(barriers(f, big)) == 3
    assert barriers(lambda x: functools.reduce(lambda x, _: x * 2 + 1, range(150), x), big) == {}


def test_values_that_everybody_would_compute_in_no_time_are_not_written():
    big = jax.ShapeDtypeStruct((2048, 2048), np.float32)
    cheap = lambda x: [(x + 1) * scale for scale in (2.0, 3.0, 4.0)]
    assert barriers(cheap, big) == {}


@pytest.mark.parametrize("takes_slices", [True, False])
def test_readers_of_a_slice_each_compute_no_more_than_once(takes_slices):
    def f(x):
        y = functools.reduce(lambda y, k: y * (k + 0.5) + 1, range(9), x)
        return [jnp.roll(y[k] if takes_slices else y, 1, axis=1) for k in range(8)]

    assert bool(barriers(f, np.ones((8, 16, 16), np.float32))) is not takes_slices


def test_equal_slices_are_one():
    def pendulums(x):
        def force(c):
            return jnp.stack([c[2], c[3], -jnp.sin(c[0]) - c[1], -jnp.sin(c[1]) + c[0]])

        def step(c):
            slopes = [force(c)]
            for part in (0.05, 0.05, 0.1):
                slopes.append(force(c + part * slopes[-1]))
            return c + 0.1 / 6 * (slopes[0] + 2 * slopes[1] + 2 * slopes[2] + slopes[3])

        return jax.vmap(lambda c: lax.fori_loop(0, 9, lambda _, c: step(c), c))(x)

    assert not barriers(pendulums, np.ones((500, 4), np.float32))


def test_the_walks_are_linear_in_the_program():
    def calls(steps):
        jaxpr = jax.make_jaxpr(doubling(steps))(X).jaxpr
        count = 0

        def profile(frame, event, arg):
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(profile)
        try:
            fusion.barriers(jaxpr)
        finally:
            sys.setprofile(None)
        return count

    assert calls(320) < 10 * calls(40)


def values_of(f, *args):
    found: list[values.Value] = []
    values.collect(jax.make_jaxpr(f)(*args).jaxpr, {}, found, {}, lambda eqn, known: None)
    return found


def test_equal_equations_are_one_value():
    def energy(x):
        far = x[:, None] - x
        return jnp.sum(jnp.cos(far) * far * far)

    names = [value.name for value in values_of(lambda x: (energy(x), jax.grad(energy)(x)), X[0])]
    assert names.count("cos") == 1 and names.count("reduce_sum") > 1
    scaled = jax.jit(lambda x, by: x * by)
    products = values_of(lambda x: (scaled(x, 1.0), scaled(x, 2.0), scaled(x, 1.0), 2.0 * x), X)
    assert [len(value.copies) for value in products if value.name == "mul"] == [1, 0, 0]
    sums = values_of(lambda x: (lax.reduce_sum(x, (0,)), lax.reduce_sum(x[None], (0,))), X)  # of one value in two shapes
    assert [value.name for value in sums] == ["reduce_sum", "reduce_sum"]


def test_all_equal_equations_get_the_barrier_of_one():
    found = barriers(lambda x: (jnp.diff(jnp.cos(x)), jnp.cos(x)[1:] * x[1:]), np.ones(300_000, np.float32))
    assert [why.split(" (")[1] for why in found.values()] == ["cos of 300000 elements)"] * 2


def test_small_matrices_that_are_multiplied_by_vectors_count_as_computed_there():
    def fit(x, scale):
        z = jnp.cos(x * scale)
        return z.T @ z, z.T @ x[:, 0]

    assert any(why.startswith("computed 2 times (cos") for why in barriers(fit, np.ones((60, 30), np.float32), 2.0).values())
    assert barriers(fit, np.ones((600, 30), np.float32), 2.0) == {}  # which both read from memory


def test_long_chains_of_slices_are_followed():
    def chain(x):
        y = jnp.cos(x)
        for _ in range(5000):
            y = y[1:]
        return y[1:] - y[:-1]

    reasons = barriers(chain, np.ones(300_000, np.float32)).values()
    assert any(why.startswith("computed 1.97 times (cos ") for why in reasons), reasons


@pytest.mark.parametrize("columns, is_written", [(64, True), (32, False)])
def test_what_two_pads_read_is_written_unless_rows_are_unrolled(columns, is_written):
    def gated(x):
        return jnp.sum(jax.nn.silu(x[:, :columns]) * x[:, columns:])

    reasons = barriers(jax.grad(gated), np.ones((300, 2 * columns), np.float32)).values()
    assert any(why.startswith("padded 2 times (logistic ") for why in reasons) == is_written, reasons


def flux_step(flux, paddings):
    """A step of a conservation law: what leaves a cell enters its neighbour."""
    far = sum(paddings[0])

    def step(x):
        moved = flux(x[:, far:] - x[:, :-far])
        return x + sum((-1) ** n * jnp.pad(moved, ((0, 0), padding)) for n, padding in enumerate(paddings))

    return step


def polynomial(steps):
    def flux(d):
        for step in range(steps):
            d = d * d + step
        return d

    return flux


@pytest.mark.parametrize("flux, paddings, shape, in_loop, outside", [
    (jnp.tanh, [(1, 0), (0, 1)], (48, 48), True, True),
    (polynomial(3), [(1, 0), (0, 1)], (48, 48), True, True),
    (polynomial(3), [(1, 0), (0, 1)], (20, 48), True, False),  # little that is computed once
    (polynomial(7), [(1, 0), (0, 1)], (100, 100), False, False),  # LLVM takes the first and last turns out of the loop
    (polynomial(7), [(2, 0), (0, 2), (1, 1)], (100, 100), True, True),
    (jnp.tanh, [(1, 0)], (48, 48), False, False),
    (jnp.tanh, [(1, 0), (0, 1)], (4, 10), False, False),
])
def test_what_several_pads_read_is_computed_once(flux, paddings, shape, in_loop, outside):
    step, x = flux_step(flux, paddings), np.ones(shape, np.float32)
    for f, is_written in ((step, outside), (lambda x: jax.lax.fori_loop(0, 9, lambda _, x: step(x), x), in_loop)):
        reasons = list(barriers(f, x).values())
        assert [why.startswith("padded ") for why in reasons] == [True] * is_written, reasons


def test_what_pads_of_short_rows_read_is_written_if_it_is_much():
    gated = lambda activation: lambda x: jnp.sum(activation(x[:, :32]) * x[:, 32:])
    for activation, is_written in ((jax.nn.silu, False), (jax.nn.gelu, True)):
        reasons = barriers(jax.grad(gated(activation)), np.ones((300, 64), np.float32)).values()
        assert any(why.startswith("padded 2 times") for why in reasons) == is_written, reasons


def test_what_is_computed_of_a_costly_function_alone_is_written_with_it():
    def gated(x):
        share = 1 / (1 + jnp.exp(-x))
        return jnp.concatenate([x * share, x * (1 - share)], 1)

    jaxpr = jax.make_jaxpr(gated)(np.ones((300, 64), np.float32)).jaxpr
    (written,) = fusion.barriers(jaxpr)
    assert [eqn.primitive.name for eqn in jaxpr.eqns if written in eqn.outvars] == ["div"]


def stablehlo(folder):
    (file,) = folder.glob("*.mlir")
    return file.read_text()


def test_results_are_the_same_and_the_dump_says_why(tmp_path):
    lowered = jax.jit(doubling(12)).lower(X)
    clean = lowered.as_text()
    with config.dump_ir_to(str(tmp_path)):
        compiled = lowered.compile()
    plain = lowered.compile({"jaxlite_cpu_fusion_barriers": False})
    np.testing.assert_allclose(compiled(0.1 * X), plain(0.1 * X), rtol=1e-4, atol=1e-9)
    assert lowered.as_text() == clean and "optimization_barrier" not in clean
    text = stablehlo(tmp_path)
    reasons = json.loads(next(tmp_path.glob("*compile.json")).read_text())["fusion_barriers"]
    assert len(reasons) == text.count("stablehlo.optimization_barrier") > 0
    assert all(f"fusion barrier: {why}" in text for why in reasons)


@pytest.mark.parametrize("options", [{}, {"xla_disable_hlo_passes": "cse"}], ids=["", "with other options"])
def test_xla_repeats_less(options):
    lowered = jax.jit(doubling(12)).lower(X)
    with_barriers = lowered.compile(options).as_text()
    without = lowered.compile(options | {"jaxlite_cpu_fusion_barriers": False}).as_text()
    assert with_barriers.count("multiply(") < 0.5 * without.count("multiply(")


def test_the_switches(tmp_path):
    def count(**options):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        with config.dump_ir_to(str(folder)):
            jax.jit(doubling(12), **options)(X)
        return stablehlo(folder).count("optimization_barrier")

    assert count()
    assert not count(compiler_options={"jaxlite_cpu_fusion_barriers": False})
    with config.cpu_fusion_barriers(False):
        assert not count()
        assert count(compiler_options={"jaxlite_cpu_fusion_barriers": True})


def in_a_loop(body):
    return lambda x: lax.scan(lambda c, _: (body(c), None), x, length=3)[0]


@pytest.mark.parametrize("loop, has_barriers", [
    (in_a_loop(lambda c: jnp.sin(c) + 1), False),
    (in_a_loop(jax.jit(lambda c: jax.jit(jnp.sin)(c) + 1)), False),  # the inner function is called outside loops as well
    (in_a_loop(lambda c: lax.cond(c[0, 0] > 0, jnp.cos, doubling(12), c)), False),
    (in_a_loop(lax.optimization_barrier), True),
    (in_a_loop(lambda c: jax.grad(lambda y: jax.checkpoint(doubling(3))(y).sum())(c)), True),
    (in_a_loop(lambda c: c + jax.random.normal(jax.random.split(jax.random.key(1))[0], c.shape)), True),
], ids=["plain", "calls", "branches", "barrier", "checkpoint", "random keys"])
def test_barriers_beside_a_loop(loop, has_barriers, monkeypatch, tmp_path):
    def everything(jaxpr, *known):
        found = dict.fromkeys((var for eqn in jaxpr.eqns for var in eqn.outvars), "everything")
        for part in subjaxprs(jaxpr):
            found |= everything(part)
        return found

    def f(x):
        return loop(0.1 * jax.jit(jnp.sin)(x)) * 2

    expected = jax.jit(f, compiler_options={"jaxlite_cpu_fusion_barriers": False})(X)
    monkeypatch.setattr(fusion, "barriers", everything)
    with config.dump_ir_to(str(tmp_path)):
        compiled = jax.jit(f).lower(X).compile()
    np.testing.assert_allclose(compiled(X), expected, rtol=1e-4, atol=1e-6)
    placed = "fusion barrier: everything" in stablehlo(tmp_path)
    assert placed == (not (has_barriers and xla.BARRIER_DROPPER))


def test_what_parts_in_a_loop_share_is_written():
    """Each part is a branch, which LLVM does not vectorize there, and computes it again."""
    def step(x):
        a, b, c = x
        shared = b / (1 + a * a) / (1 + b * b) / (1 + c * c) / (2 + a * c) / (3 + a * b)
        return x - 0.1 * jnp.stack([shared * a, shared + b, c - shared])

    x = np.ones((3, 100), np.float32)
    found = barriers(lambda x: jax.lax.fori_loop(0, 9, lambda _, x: step(x), x), x)
    assert [(var.aval.shape, why) for var, why in found.items()] == [((100,), "computed in 3 parts (div of 100 elements)")]
    assert not barriers(step, x)
    assert not barriers(lambda x: jax.lax.fori_loop(0, 9, lambda _, x: step(x), x), x[:, :10])


def test_what_depends_on_captured_arrays_alone_is_a_constant():
    rng = np.random.default_rng(0)
    shapes, corners = rng.normal(size=(4, 2, 4)).astype("f"), rng.normal(size=(4096, 4, 2)).astype("f")

    def weights(scale):
        jacobians = jnp.einsum("qdn,eni->eqdi", shapes, corners)
        return scale * (jacobians[..., 0, 0] * jacobians[..., 1, 1] - jacobians[..., 0, 1] * jacobians[..., 1, 0]).sum(-1)

    compiled = jax.jit(weights).lower(np.float32(2)).compile()
    assert re.findall(r" (dot|reduce|custom-call)\(", compiled.as_text()) == []
    jacobians = np.einsum("qdn,eni->eqdi", shapes.astype(float), corners.astype(float))
    np.testing.assert_allclose(compiled(np.float32(2)), 2 * np.linalg.det(jacobians).sum(-1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape, other, expected", [
    ((2000, 5), (10_000,), 1), ((2000, 5), (-1, 2), 1), ((5, 2000), (10_000,), 0), ((2500, 4), (10_000,), 0),
    ((2000, 5), (1000, 2, 5), 0), ((800, 5), (4000,), 0)])
def test_an_array_is_read_in_another_shape(shape, other, expected):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    f = lambda x: jnp.exp(x.reshape(other)) * 2
    assert len(barriers(f, x)) == expected
    np.testing.assert_allclose(jax.jit(f)(x), np.exp(x.reshape(other)) * 2, rtol=1e-5)
    product = lambda w, x: jnp.tanh((w @ x).reshape(other))
    w = np.eye(shape[0], dtype=np.float32)[:, :20]
    assert len(barriers(product, w, x[:20])) == expected
    assert not barriers(lambda x: jnp.exp(jnp.sin(x).reshape(other)), x)


def test_what_is_written_has_no_axes_of_one_element():
    x = np.random.default_rng(0).standard_normal((500, 10)).astype(np.float32)
    loss = jax.value_and_grad(lambda x: jax.nn.softmax(x).sum())
    assert [var.aval.shape for var in barriers(loss, x)] == [(500, 1)]
    lowered = jax.jit(loss).lower(x)
    before = lowered.as_text()
    assert "f32[500,1]" not in lowered.compile().as_text()
    assert lowered.as_text() == before
