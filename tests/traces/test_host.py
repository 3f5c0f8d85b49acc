"""Eager operations in NumPy: the bits are those of compiled ones, whatever the type and the values."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import jaxlite
import jaxlite.extend.core
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.compilation import program
from jaxlite.core import config, dtypes
from jaxlite.experimental.layout import Format, Layout
from jaxlite.interpreters import mlir
from jaxlite.traces import host_plan

FLOATS = [np.float16, np.float32, np.float64, dtypes.bfloat16]
INTS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
OTHERS = [bool, np.complex64, np.complex128]
NEVER = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "int4", "uint4"]
ROUNDING = {"add", "sub", "mul", "div", "square", "sqrt", "reciprocal", "scale", "difference", "add box", "multiply at", "0-d",
            "rem", *(f"to {np.dtype(dtype)}" for dtype in FLOATS)}


def of_bits(pattern, dtype):
    """A float from the bits that it has in its type, from the first on; those below are the first ones again."""
    dtype = np.dtype(dtype)
    wide = np.array(pattern, np.uint64) << np.uint64(8 * dtype.itemsize - 16)
    return (wide | np.uint64(5)).astype(f"u{dtype.itemsize}").view(dtype)


def draws(dtype):
    """Pairs of vectors of 12, each with other special values."""
    rng, dtype = np.random.default_rng(0), np.dtype(dtype)
    if dtype.kind == "b":
        return [tuple(rng.integers(0, 2, (2, 12)).astype(bool))]
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        small = rng.integers(-5 if info.min else 0, 9, (2, 12)).astype(dtype)
        hard = small.copy()
        hard[0, :5] = [info.min, info.max, 0, 1, info.max - 1]
        return [tuple(small), tuple(hard), tuple(rng.integers(1, 7, (2, 12)).astype(dtype))]
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        return [tuple(np.stack([x, x[::-1]], -1).view(dtype)[:, 0] for x in pair) for pair in draws(part)]
    plain = (rng.normal(size=(6, 2, 12)) * 3).astype(dtype)
    ordered, special, nans, subnormal, whole = plain[1:]
    info = dtypes.finfo(dtype)
    with np.errstate(all="ignore"):
        ordered[0, :4] = np.array([np.inf, -np.inf, info.max, 0]).astype(dtype)
        special[0, :6] = np.array([0.0, -0.0, np.inf, -np.inf, info.max, info.min]).astype(dtype)
        special[1, :6] = np.array([-0.0, -0.0, 2, 3, -4, 7]).astype(dtype)
        whole[:] = rng.integers(1, 20, (2, 12))
    # Exponents are full of ones, then comes what says whether a NaN is quiet.
    first = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F80, "float64": 0x7FF0}[dtype.name]
    quiet = {"float16": 0x200, "bfloat16": 0x40, "float32": 0x40, "float64": 8}[dtype.name]
    nans[0, 2:6] = of_bits([first | quiet, first | quiet | 0x8000, first | quiet | 3, first | 1], dtype)
    subnormal[0, 4:8] = np.arange(1, 5).astype(f"u{dtype.itemsize}").view(dtype)
    subnormal[0, 8] = info.tiny
    return [tuple(pair) for pair in plain]


def programs(dtype):
    """Functions of two vectors of 12, and the operations of each as one program."""
    for name in ("add", "sub", "mul", "div", "rem", "max", "min", "eq", "ne", "lt", "le", "gt", "ge", "bitwise_and",
                 "bitwise_or", "bitwise_xor", "shift_left", "shift_right_logical", "shift_right_arithmetic"):
        yield name, getattr(lax, name)
    for name in ("neg", "abs", "sign", "floor", "ceil", "is_finite", "bitwise_not", "sqrt", "square", "reciprocal", "real",
                 "imag"):
        yield name, lambda x, y, name=name: getattr(lax, name)(x)
    yield "cube", lambda x, y: lax.integer_pow(x, 3)
    yield "round", lambda x, y: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
    yield "complex", lax.complex
    yield "clamp", lambda x, y: (lax.clamp(y[0], x, y[1]), lax.clamp(x, y, x))
    for to in (*FLOATS, *INTS, bool, np.complex64):
        yield f"to {np.dtype(to)}", lambda x, y, to=to: lax.convert_element_type(x, to)
    for to in (np.int16, np.float16, np.uint32, np.float32, np.int64):
        yield f"bits as {np.dtype(to)}", lambda x, y, to=to: lax.bitcast_convert_type(x, to)
    for name in ("sum", "prod", "max", "min", "argmax", "argmin", "sort", "argsort", "cumsum", "any", "all", "flip", "unstack",
                 "bitwise_xor.reduce"):
        yield name, lambda x, y, name=name: (jnp.bitwise_xor.reduce if "." in name else getattr(jnp, name))(
            x.reshape(3, 4), axis=1)
    for name in ("cumsum", "cumprod", "cummax", "cummin"):
        yield f"{name} from the end", lambda x, y, name=name: getattr(lax, name)(x.reshape(3, 4), 0, reverse=True)
    yield "scale", lambda x, y: jnp.multiply(x, y[0])
    yield "divide all", lambda x, y: jnp.divide(x, y[0])
    yield "difference", lambda x, y: jnp.diff(x)
    yield "fma", lambda x, y: x * y + x
    yield "half sum", lambda x, y: lax.abs(lax.sub(x, y))
    yield "constant", lambda x, y: x / 3
    yield "plus zero", lambda x, y: x + 0
    yield "floor_divide", jnp.floor_divide
    yield "where", lambda x, y: jnp.where(x == y, x, y)
    yield "choose", lambda x, y: jnp.where(jnp.arange(12) % 2 == 0, x, y)
    yield "clip", lambda x, y: jnp.clip(x, 1, 3)
    yield "roll", lambda x, y: jnp.roll(x, 5)
    yield "pad", lambda x, y: lax.pad(x.reshape(3, 4), y[0], ((1, 2, 1), (0, 1, 0)))
    yield "moved", lambda x, y: jnp.tile(jnp.concatenate([x.reshape(3, 4).T, y.reshape(4, 3)], 1), (1, 2))[::2, 1:5]
    yield "stack", lambda x, y: jnp.stack([x, y], 1)
    yield "split", lambda x, y: lax.split(x, (5, 0, 7))
    yield "take", lambda x, y: x.reshape(3, 4)[jnp.array([2, -1]), jnp.array([[0], [1]])]
    yield "rows", lambda x, y: x.reshape(3, 4)[jnp.array([2, 0, 0])]
    yield "along axis", lambda x, y: jnp.take_along_axis(x.reshape(3, 4), jnp.array([[1, 1], [0, 3], [2, -1]]), axis=1)
    yield "take or fill", lambda x, y: jnp.take(x, jnp.array([2, 40, -3, -50]), mode="fill")
    yield "take or clip", lambda x, y: jnp.take(x, jnp.array([2, 40, -3, -50]), mode="clip")
    yield "set", lambda x, y: x.at[jnp.array([3, 1])].set(y[:2])
    yield "set rows", lambda x, y: x.reshape(3, 4).at[jnp.array([2, 0]), 1:3].set(y[:4].reshape(2, 2))
    yield "set column", lambda x, y: x.reshape(3, 4).at[:, 1].set(y[:3])
    yield "set or drop", lambda x, y: x.at[jnp.array([3, 70, 1])].set(y[:3])
    yield "set twice", lambda x, y: x.at[jnp.array([3, 3])].set(y[:2])
    yield "apply", lambda x, y: x.at[2].apply(jnp.square)
    yield "add at", lambda x, y: x.at[jnp.array([3, 3, 1])].add(y[:3])
    yield "add box", lambda x, y: x.at[2:6].add(y[3])
    yield "multiply at", lambda x, y: x.at[jnp.array([4, 1])].multiply(y[:2])
    yield "max at", lambda x, y: x.at[jnp.array([4, 1])].max(y[:2])
    yield "dynamic", lambda x, y: lax.dynamic_update_slice(x, lax.dynamic_slice(y, (9,), (5,)), (-3,))
    yield "empty", lambda x, y: (jnp.sum(x[:0]), x[:0] + y[:0], jnp.sort(x[:0]), jnp.concatenate([x[:0], y]))
    yield "0-d", lambda x, y: (x[3] + y[2], x[1] < y[1], x[2].astype(jnp.float32), jnp.where(x[1] == y[1], x[0], y[0]))
    yield "created", lambda x, y: (jnp.arange(7, dtype=x.dtype), jnp.full((2, 3), y[0]), lax.iota(x.dtype, 5))


def answer(plan, *args):
    """What NumPy gives for a program, or None if it declines; fails as NumPy fails."""
    try:
        return plan.answer(args) if plan.calls_left else None
    except host_plan.Differs:
        return None


COMPILED_ALWAYS = {"fma", "constant", "half sum", "cube", "divide all"}
IN_ALL_TYPES = {"roll", "pad", "moved", "stack", "split", "take", "along axis", "take or clip", "set", "set or drop", "dynamic"}


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, *OTHERS], ids=lambda dtype: np.dtype(dtype).name)
def test_numpy_gives_the_bits_of_xla(dtype):
    inputs, found, alone, together = draws(dtype), {}, {}, {}
    is_float = np.dtype(dtype) in FLOATS
    with jaxlite.enable_x64(True), config.eager_on_host(False):
        for name, fun in programs(dtype):
            try:
                jaxpr = jaxlite.make_jaxpr(fun)(*inputs[0])
            except (TypeError, ValueError):
                continue  # not for this type
            plan = host_plan.make_plan(jaxpr)
            results = [answer(plan, *pair) for pair in inputs]
            if any(result is not None for result in results):
                found[name] = results
                # What rounds is a program of its own: together with others XLA could merge it with them.
                (alone if is_float and name in ROUNDING else together)[name] = fun
        assert IN_ALL_TYPES <= set(found) and not (is_float and COMPILED_ALWAYS & set(found))
        wrong = []
        for group in (together, *({name: fun} for name, fun in alone.items())):
            compiled = jaxlite.jit(lambda x, y, group=group: {name: fun(x, y) for name, fun in group.items()})
            for index, pair in enumerate(inputs):
                wanted = compiled(*pair)
                for name in group:
                    if found[name][index] is not None:
                        for ours, theirs in zip(found[name][index], jaxlite.tree.leaves(wanted[name]), strict=True):
                            theirs = np.asarray(theirs)
                            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), name
                            if ours.tobytes() != theirs.tobytes():
                                wrong.append(f"{name}: {pair}: {ours} is not {theirs}")
        assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_value_that_divides_many_is_a_reciprocal(dtype):
    rng = np.random.default_rng(0)
    draw = lambda *shape: (rng.normal(size=shape) * 9).astype(dtype)
    pairs = [(draw(40), draw()), (draw(6, 5), draw(5)), (draw(6, 5), draw(6, 1)), (draw(), draw(40)), (draw(9), np.int32(7)),
             (draw(1), draw()), (draw(1, 5), draw(5)), (draw(3, 4), draw(3, 4))]
    with jaxlite.enable_x64(True), config.eager_on_host(False):
        for x, y in pairs:
            plan, wanted = host_plan.make_plan(jaxlite.make_jaxpr(jnp.divide)(x, y)), np.asarray(jnp.divide(x, y))
            assert plan.calls_left or x.size == y.size
            if plan.calls_left:
                assert plan.answer((x, y))[0].tobytes() == wanted.tobytes(), (x, y)


@pytest.mark.parametrize("dtype", NEVER)
def test_small_types_and_keys_are_compiled(dtype):
    aval = jaxlite.ShapeDtypeStruct((12,), getattr(jnp, dtype))
    assert not host_plan.make_plan(jaxlite.make_jaxpr(lambda x: x[2:5])(aval)).calls_left


@pytest.fixture
def compiles():
    """The programs that were compiled since."""
    jaxlite.clear_caches()  # other tests may have called what these do, often enough to have it compiled
    counted = []
    program.compile_watchers.append(counted.append)
    yield counted
    program.compile_watchers.remove(counted.append)


def array(*values, dtype=np.float32):
    return jnp.asarray(np.array(values, dtype))


def test_a_signature_is_compiled_once_it_has_paid(compiles):
    x = jnp.asarray(np.arange(23))
    outs = [x[:7] for _ in range(host_plan._CALLS)]
    assert not compiles
    outs += [x[:7] for _ in range(5)]
    assert len(compiles) == 1
    for out in outs:
        assert out.aval == outs[0].aval and out.tolist() == list(range(7))


def test_a_part_of_a_large_array_is_small_work(compiles):
    large = jnp.asarray(np.zeros((3000, 1000), np.float32))
    assert large[3:5, 7].shape == (2,) and not compiles
    assert jnp.flip(large).shape == large.shape and len(compiles) == 1


def test_with_values_that_xla_treats_otherwise_it_is_compiled(compiles):
    assert (array(1, 2) - array(1, 0)).tolist() == [0, 2] and not compiles
    assert np.isnan((array(1, np.nan) - array(1, 0)).tolist()).tolist() == [False, True] and len(compiles) == 1
    assert (array(1, 2) - array(1, 0)).tolist() == [0, 2] and len(compiles) == 1


def outcome(call):
    """What a user sees of a call: results with all that belongs to them, or the error."""
    try:
        return [(out.tolist(), out.aval, out.committed, out.devices(), out.sharding, out.format, out.is_fully_addressable)
                for out in jaxlite.tree.leaves(call())]
    except Exception as error:
        return type(error), str(error).splitlines()[0]


def guarded(level, call):
    with jaxlite.transfer_guard(level):
        return call()


def on_the_last_device(call):
    with jaxlite.default_device(jaxlite.devices()[-1]):
        return call()


def test_all_else_is_that_of_compiled_calls(compiles):
    x, narrow, deleted = array(3, 1, 2), array(1, 2, dtype=np.int8), array(1, 2)
    committed, weak = jaxlite.device_put(x, jaxlite.devices()[-1]), jaxlite.jit(lambda: 3)()
    deleted.delete()
    columns = Format(Layout((0, 1)), jaxlite.sharding.SingleDeviceSharding(jaxlite.devices()[0]))
    laid = jaxlite.device_put(jnp.ones((2, 3)), columns)
    calls = [
        lambda: committed[1:], lambda: committed + x, lambda: weak + weak, lambda: weak + x, lambda: x + 1, lambda: 2 * x,
        lambda: x + np.ones(3, np.float32), lambda: x > 1, lambda: jnp.sort(x), lambda: jnp.stack([x, x]), lambda: laid[0],
        lambda: laid.T, lambda: jnp.where(x > 1, x, 0), lambda: lax.neg(1.5), lambda: jnp.flip([1, 2]), lambda: narrow + 1,
        lambda: narrow + 300, lambda: narrow * 100, lambda: x + array(1, 2), lambda: x[5], lambda: x[4:], lambda: x["a"],
        lambda: deleted[0], lambda: deleted + 1, lambda: lax.add(x, narrow), lambda: jnp.concatenate([x, deleted]),
        lambda: on_the_last_device(lambda: x[1:]), lambda: on_the_last_device(lambda: jnp.arange(3) + 1),
        *(lambda level=level, call=call: guarded(level, call) for level in ("disallow", "log") for call in (
            lambda: x[1:], lambda: x + np.ones(3, np.float32), lambda: x + 1, lambda: jnp.add(x, x))),
    ]
    seen = []
    for on in (True, False):
        jaxlite.clear_caches()
        with config.eager_on_host(on):
            seen.append([outcome(call) for call in calls])
            seen[-1].append(len(compiles) if on else 0)
    for call, ours, theirs in zip(calls, *seen):
        assert ours == theirs, call
    assert 0 < seen[0][-1] < 12  # the calls that are guarded, or have deleted operands


def test_64_bits_outside_enable_x64_stay(compiles):
    """A host value that is put on a device where they are off would lose half of them."""
    with jaxlite.enable_x64(True):
        x = jnp.asarray(np.array([1.0, 1.0 + 1e-9]))
    assert [np.asarray(x[1]).item(), np.asarray(x[::-1]).tolist()] == [1.0 + 1e-9, [1.0 + 1e-9, 1.0]]


def test_no_memory_is_shared(compiles):
    source = np.arange(4.0, dtype=np.float32)
    x = jnp.asarray(source)
    reshaped, same, part = lax.reshape(x, (2, 2)), jnp.copy(x), x[1:]
    assert not compiles
    source[:] = 9
    pointers = {each.unsafe_buffer_pointer() for each in (x, reshaped, same, part)}
    assert len(pointers) == 4 and not any(pointer % 64 for pointer in pointers)
    doubled = jaxlite.jit(lambda y: y * 2, donate_argnums=0)
    assert doubled(reshaped).tolist() == [[0, 2], [4, 6]] and reshaped.is_deleted()
    assert doubled(x).tolist() == [0, 2, 4, 6] and x.is_deleted()
    assert [same.tolist(), part.tolist()] == [[0, 1, 2, 3], [1, 2, 3]]
    with pytest.raises(RuntimeError, match="deleted"):
        lax.reshape(x, (4, 1))


def test_what_users_jit_is_compiled_and_debugging_too(compiles):
    jaxlite.jit(lambda x: x[:2])(jnp.asarray(np.arange(5)))
    assert len(compiles) == 1
    with config.debug_nans(True):
        assert lax.neg(array(0, 1, 2)).tolist() == [0, -1, -2]
    assert len(compiles) == 2


def test_a_primitive_of_a_user_is_no_namesake(compiles):
    primitive = jaxlite.extend.core.Primitive("sub")
    primitive.def_abstract_eval(lambda x, y: x)
    mlir.register_lowering(primitive, mlir.lower_fun(lambda x, y: x + y, multiple_results=False))
    assert primitive.bind(array(3, 4), array(1, 1)).tolist() == [4, 5] and len(compiles) == 1


def test_threads_ask_for_the_same_at_once(compiles):
    x = jnp.asarray(np.arange(100))
    with ThreadPoolExecutor(8) as pool:
        for n in range(40, 50):
            assert [out.tolist() for out in pool.map(lambda _, n=n: x[3:n], range(16))] == [list(range(3, n))] * 16
    assert not compiles


def test_what_is_not_computed_yet_is_not_waited_for_long():
    x = jnp.asarray(np.ones((400, 400), np.float32))
    slow = jaxlite.jit(lambda x: lax.fori_loop(0, 400, lambda i, x: x @ x * 1e-3, x)).lower(x).compile()
    result = slow(x)
    part = result[1:3, :2]
    assert not part.is_ready() or result.is_ready()
