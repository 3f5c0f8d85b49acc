"""Mutable arrays: reads and writes eagerly and in traced functions, against NumPy's assignment."""

from __future__ import annotations

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax

ARRAY = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
INDICES = [0, -1, ..., (slice(None), 1), (slice(None), slice(None, None, 2)), (0, slice(1, 3), 2), (1, ..., 3), slice(0, 0),
           np.array([1, 0]), (slice(None), np.array([0, 2])), (np.array([0, 1]), slice(None), np.array([3, 0])),
           (slice(None), np.array([[0], [2]]), np.array([1, 3]))]


@pytest.mark.parametrize("jit", [False, True])
def test_reads_and_writes_are_numpys(jit):
    wrap = jaxlite.jit if jit else lambda f: f

    def work(ref, values):
        reads = []
        for index, value in zip(INDICES, values, strict=True):
            reads.append(ref[index])
            ref[index] = value
            jaxlite.ref.addupdate(ref, index, value)
            reads.append(jaxlite.ref.swap(ref, index, value + 1))
        return reads

    expected, array = [], ARRAY.copy()
    values = [np.random.default_rng(0).normal(size=ARRAY[index].shape).astype(np.float32) for index in INDICES]
    for index, value in zip(INDICES, values, strict=True):
        expected += [array[index].copy(), 2 * value]
        array[index] = value + 1
    ref = jaxlite.new_ref(ARRAY)
    got = wrap(work)(ref, values)
    for one, two in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6)
    np.testing.assert_allclose(ref[...], array, rtol=1e-6)


def test_methods_take_the_value_first():
    def work(ref, x):
        ref.addupdate(x, 1)
        ref.set(2 * x, 0)
        part = ref.at[1:]
        part.addupdate(1.0, 0)
        return ref.get(1), part.get(), ref.swap(7.0, 2), part.swap(x, 1), ref.get()

    found = jaxlite.jit(work)(jaxlite.new_ref(jnp.zeros(3)), 2.0)
    assert [np.asarray(each).tolist() for each in found] == [3, [3, 0], 0, 7, [4, 3, 2]]
    own = jaxlite.new_ref(jnp.zeros(2))
    own.addupdate(3.0, 1)
    assert own[...].tolist() == [0, 3]
    assert jaxlite.jit(lambda x: hasattr(x, "get") or hasattr(x, "set"))(1.0) == False  # noqa: E712  of arrays


def test_writes_happen_in_place_and_leave_what_was_read_alone():
    first = jnp.zeros(1000)
    ref = jaxlite.new_ref(first)
    ref[0] = 1.0
    before = ref[...]
    ref[1] = 2.0
    where = ref.unsafe_buffer_pointer()
    step = jaxlite.jit(lambda ref, i: jaxlite.ref.addupdate(ref, i, 3.0))
    for i in range(5):
        step(ref, i)
        ref[i] = ref[i] + 1.0
    assert ref.unsafe_buffer_pointer() == where
    assert first[0] == 0.0 and before[1] == 0.0 and ref[0] == 5.0 and ref[1] == 6.0


def loops(x):
    """Writes in all forms of control flow, with Refs that it makes, closed over by bodies."""
    ref, total = jaxlite.new_ref(jnp.zeros(4)), jaxlite.new_ref(x.sum())

    def step(carry, x):
        i, scale = carry
        ref[i] = jnp.sin(x) * scale + ref[(i + 3) % 4]
        return (i + 1, scale * 1.5), ref[0] * x

    (_, scale), ys = lax.scan(step, (0, 1.0), x)
    lax.cond(scale > 2, lambda: ref.__setitem__(1, ref[1] * x[0]), lambda: None)
    lax.while_loop(lambda c: (c < 3) & (ref[2] < 100.0), lambda c: (ref.__setitem__(2, ref[2] * ref[2] + c), c + 1)[1], 0)
    jaxlite.jit(lambda: jaxlite.ref.addupdate(total, ..., ref[3]))()
    return total[...] + ys.sum() + (jaxlite.freeze(ref) * x).sum()


def loops_pure(x):
    array = np.zeros(4)
    total, scale, ys = x.sum(), 1.0, 0.0
    for i in range(4):
        array[i] = np.sin(x[i]) * scale + array[(i + 3) % 4]
        scale *= 1.5
        ys += array[0] * x[i]
    array[1] *= x[0]
    for c in range(3):
        array[2] = array[2] * array[2] + c
    return total + array[3] + ys + (array * x).sum()


X = np.array([0.3, -0.2, 0.5, 0.1])


def test_control_flow_and_transformations():
    np.testing.assert_allclose(loops(jnp.array(X)), loops_pure(X), rtol=1e-5)
    np.testing.assert_allclose(jaxlite.jit(loops)(X), loops_pure(X), rtol=1e-5)
    batch = np.stack([X, 2 * X])
    np.testing.assert_allclose(jaxlite.jit(jaxlite.vmap(loops))(batch), [loops_pure(x) for x in batch], rtol=1e-5)
    numeric = [(loops_pure(X + e) - loops_pure(X - e)) / 2e-6 for e in 1e-6 * np.eye(4)]
    np.testing.assert_allclose(jaxlite.jvp(loops, (jnp.array(X),), (jnp.ones(4),))[1], sum(numeric), rtol=1e-4)


def no_while(x):
    ref = jaxlite.new_ref(jnp.zeros(3))

    def step(i, total):
        ref[i] = x * i + ref[0]
        return total + jnp.sin(ref[i])

    total = lax.fori_loop(0, 3, step, 0.0)
    lax.cond(x > 0, lambda: jaxlite.ref.addupdate(ref, 2, x * x), lambda: None)
    return total * ref[2] + jaxlite.checkpoint(lambda: ref[1] * x)()


def test_reverse_mode():
    def pure(x):
        return (np.sin(x) + np.sin(2 * x)) * (2 * x + x * x) + x * x

    slope = (pure(0.7 + 1e-6) - pure(0.7 - 1e-6)) / 2e-6
    for f in (no_while, jaxlite.jit(no_while)):
        np.testing.assert_allclose(f(0.7), pure(0.7), rtol=1e-5)
        np.testing.assert_allclose(jaxlite.grad(f)(0.7), slope, rtol=1e-4)
    _, pull = jaxlite.vjp(no_while, 0.7)
    np.testing.assert_allclose([pull(1.0)[0], pull(2.0)[0]], [slope, 2 * slope], rtol=1e-4)
    _, push = jaxlite.linearize(no_while, 0.7)
    np.testing.assert_allclose([push(1.0), push(1.0)], [slope, slope], rtol=1e-4)


def test_custom_rules_pass_refs_on():
    @jaxlite.custom_vjp
    def stash(ref, x):
        return x

    def backward(ref, ct):
        ref[...] = ct
        return None, ct

    stash.defvjp(lambda ref, x: (x, ref), backward)

    def f(ref, x):
        return jnp.sin(stash(ref, x * 2))

    for wrap in (lambda f: f, jaxlite.jit):
        ref = jaxlite.new_ref(jnp.zeros(()))
        got = wrap(jaxlite.grad(f, argnums=1))(ref, 0.3)
        np.testing.assert_allclose([got, ref[...]], [2 * np.cos(0.6), np.cos(0.6)], rtol=1e-5)

    @jaxlite.custom_vjp
    def count(ref, x):
        ref[...] += 1
        return x * x

    count.defvjp(lambda ref, x: (count(ref, x), x), lambda x, ct: (None, 10.0 * x * ct))
    ref = jaxlite.new_ref(0)
    for f in (count, jaxlite.jit(count)):
        assert jaxlite.grad(f, argnums=1)(ref, 3.0) == 30.0
    assert ref[...] == 2


def test_batches_of_refs():
    ref = jaxlite.new_ref(jnp.arange(6.0).reshape(3, 2))

    def f(ref, i, x):
        lax.cond(x > 0, lambda: ref.__setitem__(i, x), lambda: None)
        return ref[1 - i]

    out = jaxlite.vmap(f)(ref, jnp.array([0, 1, 0]), jnp.array([9.0, -1.0, 7.0]))
    np.testing.assert_array_equal(out, [1, 2, 5])
    np.testing.assert_array_equal(ref[...], [[9, 1], [2, 3], [7, 5]])
    jaxlite.vmap(lambda column: column.__setitem__(0, 0.0), in_axes=1)(ref)
    np.testing.assert_array_equal(ref[0], [0, 0])
    shared = jaxlite.new_ref(jnp.zeros(2))
    with pytest.raises(Exception, match="set/swap operation with vmapped value on an unbatched array reference"):
        jaxlite.vmap(lambda x: shared.__setitem__(0, x))(jnp.ones(3))


def test_gradients_into_refs():
    into = jaxlite.new_ref(jnp.ones(3))
    x = jnp.arange(3.0)
    _, pull = jaxlite.vjp(lambda x, y: x * 2 * y["y"], x, {"y": x})
    one, two = pull.with_refs(into, {"y": jaxlite.ad.GradValue()})(jnp.ones(3))
    assert isinstance(one, jaxlite.ad.GradRef)
    np.testing.assert_array_equal(into[...], [1, 3, 5])
    np.testing.assert_array_equal(two["y"], [0, 2, 4])
    with pytest.raises(ValueError, match="unexpected tree structure in the arguments to a VJP function's `with_refs`"):
        pull.with_refs(into, into)
    with pytest.raises(TypeError, match="grad cannot differentiate with respect to a Ref-typed argument"):
        jaxlite.grad(lambda ref: ref[0])(into)


def test_jaxprs_print_reads_and_writes_as_arrows():
    def f(ref, i):
        ref[0] = 5.0
        jaxlite.ref.addupdate(ref, 1, 2.0)
        ref.at[1:3][0] = 1.0
        return ref[i], ref[...], ref[::2]

    text = str(jaxlite.make_jaxpr(f)(jaxlite.new_ref(jnp.zeros(4)), 2))
    for line in ("a:Ref{f32[4]} b:i32[]", "a[0] <- 5.0:f32[]", "a[1] += 2.0:f32[]", "a[1:3][0] <- 1.0:f32[]",
                 "c:f32[] <- a[b]", "d:f32[4] <- a[...]", "e:f32[2] <- a[:3:2]"):
        assert line in text, text


def leaked():
    refs = []
    jaxlite.jit(lambda x: refs.append(jaxlite.new_ref(x)))(1.0)
    return refs[0]


@pytest.mark.parametrize("call, error, text", [
    (lambda r: jaxlite.jit(lambda r: r)(r), ValueError, "passed in as the argument r"),
    (lambda r: jaxlite.jit(lambda: jaxlite.new_ref(1.0))(), ValueError, "mutable array references cannot be returned"),
    (lambda r: lax.cond(True, lambda r: r, lambda r: r, r), ValueError, "traced for cond returned a mutable array"),
    (lambda r: jaxlite.jit(lambda a, b: a[...])(r, r), ValueError, "appeared at both a and b"),
    (lambda r: jaxlite.jit(lambda a: a[...] + r[...])(r), ValueError, "closed over and passed as the argument a"),
    (lambda r: jnp.sin(r), TypeError, "sin got a Ref of type Ref{float32\\[4\\]} at position 0"),
    (lambda r: r + 1, TypeError, "unsupported operand"),
    (lambda r: r[4], ValueError, "Out of bound indexer: idx=4, dim=4"),
    (lambda r: r[::-1], ValueError, "step >= 1"),
    (lambda r: r[0, 0], ValueError, r"`indices` must not be longer than `shape`: indices=\(0, 0\), shape=\(4,\)"),
    (lambda r: r[np.ones(3, bool)], IndexError, "boolean index did not match"),
    (lambda r: jaxlite.jit(lambda r, m: r[m])(r, np.ones(4, bool)), IndexError, "Array boolean indices must be concrete"),
    (lambda r: jaxlite.ref.swap(r, ..., jnp.ones(3)), ValueError, "Invalid shape for `swap`"),
    (lambda r: jaxlite.ref.addupdate(r, ..., jnp.ones(3)), ValueError, "Invalid shape for `addupdate`"),
    (lambda r: jaxlite.device_put(r), TypeError, "Did you forget to read its value"),
    (lambda r: np.asarray(r), TypeError, "Did you forget to read its value"),
    (lambda r: jaxlite.new_ref([1, 2]), TypeError, "Error interpreting argument to new_ref as a JAX value"),
    (lambda r: jaxlite.new_ref(1.0, memory_space="hbm"), NotImplementedError, "only works inside of a `jit`"),
    (lambda r: leaked()[...], jaxlite.errors.UnexpectedTracerError, "escape the scope"),
    (lambda r: leaked().__setitem__(..., 1.0), jaxlite.errors.UnexpectedTracerError, "escape the scope"),
    (lambda r: r.__setitem__(0, jnp.ones(3)), ValueError, "Invalid shape for `swap`"),
    (lambda r: r.__setitem__(0, jnp.ones((), int)), ValueError, "Invalid dtype for `swap`"),
    (lambda r: jaxlite.new_ref(r), TypeError, "got a Ref"),
])
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call(jaxlite.new_ref(jnp.zeros(4)))


def test_stages_and_names():
    ref = jaxlite.new_ref(jnp.zeros(2))
    compiled = jaxlite.jit(lambda ref, x: (ref.__setitem__(0, x), ref[...])[1]).lower(ref, 1.0).compile()
    np.testing.assert_array_equal(compiled(ref, 3.0), [3, 0])
    np.testing.assert_array_equal(compiled(ref, 4.0), [4, 0])
    assert repr(ref) == "Ref([4., 0.], dtype=float32)" and isinstance(ref, jaxlite.Ref)
    assert jaxlite.make_jaxpr(lambda r: isinstance(r, jaxlite.Ref) and r[...])(ref)
    assert (ref.shape, ref.ndim, ref.size, len(ref), ref.dtype) == ((2,), 1, 2, 2, np.float32)
    assert jaxlite.ref.empty_ref(jaxlite.ShapeDtypeStruct((3,), np.int32)).shape == (3,)
    assert hash(ref) and ref == ref and str(jaxlite.typeof(ref)) == "Ref{float32[2]}"


def test_a_scan_over_refs_writes_to_their_parts():
    def step(total, x):
        x["ref"][0] += total * x["by"]
        return total + 1, x["ref"][1]

    for run in (lax.scan, jaxlite.jit(lax.scan, static_argnums=0)):
        ref = jaxlite.new_ref(jnp.ones((3, 2)))
        total, second = run(step, 1.0, {"ref": ref, "by": jnp.arange(3.0)})
        np.testing.assert_array_equal(ref[...], [[1, 1], [3, 1], [7, 1]])
        assert total == 4 and second.tolist() == [1, 1, 1]
    assert ref[np.array([True, False, True])].tolist() == [[1, 1], [7, 1]]

    @jaxlite.grad
    def slope(factor):
        ref = jaxlite.new_ref(jnp.arange(3.0))
        lax.scan(lambda c, x: (x.__setitem__(..., x[...] * factor), (c, None))[1], 0.0, ref, reverse=True)
        return ref[...].sum()

    assert slope(2.0) == 3


def test_gradients_with_respect_to_refs():
    def write(ref, x):
        ref[0] *= 3.0
        return (ref[...] * x).sum()

    def replace(ref, x):
        ref[...] = x
        return (ref[...] * x).sum()

    x, tens = jnp.arange(1.0, 4.0), np.full(3, 10.0)
    for f, y, last, gradient, of_x in [
            (write, 8, [3, 1, 1], [33, 12, 13], [3, 1, 1]), (replace, 14, [1, 2, 3], [0, 0, 0], [12, 14, 16]),
            (lambda ref, x: x.sum(), 6, [1, 1, 1], [10, 10, 10], [1, 1, 1]),
            (jaxlite.jit(write), 8, [3, 1, 1], [33, 12, 13], [3, 1, 1])]:
        ref, into = jaxlite.new_ref(jnp.ones(3)), jaxlite.new_ref(jnp.asarray(tens, np.float32))
        found, pull = jaxlite.vjp(f, ref, x)
        one, two = pull.with_refs(into, jaxlite.ad.GradValue())(1.0)
        assert isinstance(one, jaxlite.ad.GradRef) and found == y
        np.testing.assert_array_equal(ref[...], last)
        np.testing.assert_array_equal(into[...], gradient)
        assert two.tolist() == of_x

    @jaxlite.jit
    def whole(value, x):
        into = jaxlite.new_ref(jnp.zeros(3))
        _, pull, aux = jaxlite.vjp(lambda ref, x: (write(ref, x), "aux" and ref[0]), jaxlite.new_ref(value), x, has_aux=True)
        pull.with_refs(into, jaxlite.ad.DontWant())(1.0)
        return into[...], aux

    into, aux = whole(jnp.ones(3), x)
    np.testing.assert_array_equal(into, [3, 2, 3])
    assert aux == 3
    assert str(pull.with_refs(jaxlite.ad.DontWant(), jaxlite.ad.GradValue())(1.0)[0]) == "DidntWant()"
    for call, text in [(lambda: pull(1.0), r"argument at position args\[0\] of .* is Ref-typed, so its gradient must be"),
                       (lambda: pull.with_refs(*[jaxlite.ad.GradValue()] * 2), "can't be returned as a value"),
                       (lambda: pull.with_refs(jaxlite.new_ref(jnp.ones(4)), jaxlite.ad.GradValue()), "unexpected JAX type")]:
        with pytest.raises(ValueError, match=text):
            call()


def test_debugging_shows_the_value_of_a_ref(capsys):
    ref, seen = jaxlite.new_ref(jnp.arange(2.0)), []

    def look(ref):
        jaxlite.debug.print("it is {} and {x}", ref, x=ref)
        jaxlite.debug.callback(lambda x: seen.append(np.asarray(x)), ref)
        ref[...] += 1

    look(ref)
    jaxlite.jit(look)(ref)
    jaxlite.effects_barrier()
    assert capsys.readouterr().out.split("\n")[:2] == ["it is [0. 1.] and [0. 1.]", "it is [1. 2.] and [1. 2.]"]
    np.testing.assert_array_equal(seen, [[0, 1], [1, 2]])


def test_a_ref_in_the_memory_of_the_host():
    ref = jaxlite.new_ref(jnp.arange(3.0), memory_space=jaxlite.memory.Space.Host)
    assert str(jaxlite.typeof(ref)) == "Ref<MemorySpace.Host>{float32[3]}"

    @jaxlite.jit
    def double(ref):
        ref[1:] *= 2
        return ref[...] + 1

    assert double(ref).tolist() == [1, 3, 5] and jaxlite.freeze(ref).tolist() == [0, 2, 4]


def test_with_refs_without_targets_is_the_same_function():
    _, pull = jaxlite.vjp(jnp.sin, 0.0)
    assert pull.with_refs()(1.0) == (1.0,)


def test_a_jitted_function_of_a_ref_alone_takes_shardings():
    """It has no results, so that there is nothing to shard but what is in the Ref."""
    ref = jaxlite.new_ref(jnp.zeros(2))

    def add(ref):
        ref[...] += 1.0

    jaxlite.jit(add, out_shardings=None, in_shardings=None)(ref)
    jaxlite.jit(add, out_shardings=jaxlite.sharding.SingleDeviceSharding(jaxlite.devices()[0]))(ref)
    np.testing.assert_array_equal(ref[...], [2, 2])


def test_refs_in_another_shape_or_dtype():
    x = np.arange(64, dtype=np.float32).reshape(4, 16)

    @jaxlite.jit
    def views(x):
        ref = jaxlite.new_ref(x)
        rows = ref.reshape(8, 8)
        rows[1] = 100.0
        rows.at[2:4].reshape(-1)[3] += 7
        ref.at[3].reshape((4, 4)).at[1][...] = jnp.ones(4)
        bits = ref.bitcast(jnp.int32)
        bits[2, 2] = np.float32(5).view(np.int32)
        ref.reshape(2, 32).bitcast(np.uint32).addupdate(jnp.uint32(0), (0, 0))
        return ref[...], rows[0], bits[0], rows.shape, bits.dtype.itemsize

    whole, row, bits, shape, _ = views(x)
    expected = x.copy()
    expected.reshape(8, 8)[1], expected.reshape(8, 8)[2, 3], expected.reshape(16, 4)[13], expected[2, 2] = 100, 26, 1, 5
    np.testing.assert_array_equal(whole, expected)
    np.testing.assert_array_equal(row, x.reshape(8, 8)[0])
    np.testing.assert_array_equal(bits, expected[0].view(np.int32))
    assert shape == (8, 8)
    # rows of the low halves and of the high ones
    halves = jaxlite.jit(lambda x: jaxlite.new_ref(x).bitcast(jnp.uint16)[...])(x)
    np.testing.assert_array_equal(halves, x.view(np.uint16).reshape(4, 16, 2).swapaxes(1, 2).reshape(8, 16))
    back = jaxlite.jit(lambda h: jaxlite.new_ref(h).bitcast(jnp.float32)[...])(halves)
    np.testing.assert_array_equal(back, x)
    batch = jaxlite.vmap(lambda x: views(x)[0])(np.stack([x, x]))
    np.testing.assert_array_equal(batch, np.stack([expected] * 2))
    slope = jaxlite.grad(lambda x: (jaxlite.new_ref(x).reshape(8, 8)[1] ** 2).sum())(x)
    np.testing.assert_array_equal(slope, np.where((x >= 8) & (x < 16), 2 * x, 0))
    assert "b[reshape(8,8)][1,:]" in str(jaxlite.make_jaxpr(lambda x: jaxlite.new_ref(x).reshape(8, 8)[1])(x))
    for wrong in (lambda ref: ref.reshape(5, 8), lambda ref: ref.at[0].bitcast(jnp.int8)):
        with pytest.raises(ValueError, match="reshape a Ref of shape|changes the axis before the last"):
            jaxlite.jit(lambda x, wrong=wrong: wrong(jaxlite.new_ref(x))[...])(x)


def test_eager_loops_of_new_functions_of_the_same_code_compile_once():
    def add(c):
        total = jaxlite.new_ref(jnp.zeros(3))

        def step(i, _):
            total[...] += c

        lax.fori_loop(0, 3, step, None)
        return np.asarray(total[...])

    np.testing.assert_array_equal(add(jnp.ones(3)), [3, 3, 3])
    before = len(jaxlite.compile_report())
    np.testing.assert_array_equal(add(jnp.asarray([0.0, 1.0, 2.0])), [0, 3, 6])
    assert len(jaxlite.compile_report()) == before
