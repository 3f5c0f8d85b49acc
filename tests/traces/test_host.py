"""Eager operations in NumPy: the bits are those of compiled ones, whatever the type and the values."""

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.compilation import program
from jaxlite.core import config, dtypes
from jaxlite.traces import host

FLOATS = [np.float16, np.float32, np.float64, dtypes.bfloat16]
INTS = [np.int8, np.int32, np.int64, np.uint8, np.uint16, np.uint64]
OTHERS = [bool, np.complex64, np.complex128]


def draw(dtype, count, seed=0, hard=True):
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        value = rng.integers(-5, 9, count).astype(dtype) if info.min else rng.integers(0, 9, count).astype(dtype)
        if hard:
            value[:5] = [info.min, info.max, 0, 1, info.min + 1]
        return value
    if dtype.kind == "c":
        return (rng.normal(size=count) + 1j * rng.normal(size=count)).astype(dtype)
    value = (rng.normal(size=count) * 3).astype(dtype)
    if hard:
        with np.errstate(all="ignore"):
            value[:5] = np.array([0.0, -0.0, np.inf, -np.inf, np.nan]).astype(dtype)
    return value


def same(x, y):
    x, y = np.asarray(x), np.asarray(y)
    assert (x.dtype, x.shape) == (y.dtype, y.shape)
    if dtypes.kind(x.dtype) in "fV" and x.dtype != bool:
        nan = np.isnan(x)
        assert (nan == np.isnan(y)).all()
        x, y = np.where(nan, 0, x).astype(x.dtype), np.where(nan, 0, y).astype(y.dtype)
    assert np.ascontiguousarray(x).tobytes() == np.ascontiguousarray(y).tobytes(), (x, y)


def programs(dtype):
    """Functions of two vectors of 12, and the operations of each as one program."""
    for name in ("add", "sub", "mul", "div", "rem", "max", "min", "eq", "ne", "lt", "le", "gt", "ge", "bitwise_and",
                 "bitwise_or", "bitwise_xor", "shift_left", "shift_right_logical", "shift_right_arithmetic"):
        yield name, getattr(lax, name)
    for name in ("neg", "abs", "sign", "floor", "ceil", "is_finite", "bitwise_not"):
        yield name, lambda x, y, name=name: getattr(lax, name)(x)
    for to in (*FLOATS, *INTS, bool):
        yield f"to {np.dtype(to)}", lambda x, y, to=to: lax.convert_element_type(x, to)
    for name in ("sum", "prod", "max", "min", "argmax", "argmin", "sort", "argsort", "cumsum", "any", "all", "flip"):
        yield name, lambda x, y, name=name: getattr(jnp, name)(x.reshape(3, 4), axis=1)
    yield "scale", lambda x, y: jnp.divide(x, y[0])
    yield "fma", lambda x, y: x * y + x
    yield "constant", lambda x, y: x / 3
    yield "plus zero", lambda x, y: x + 0
    yield "floor_divide", jnp.floor_divide
    yield "where", lambda x, y: jnp.where(x == y, x, y)
    yield "clip", lambda x, y: jnp.clip(x, 1, 3)
    yield "roll", lambda x, y: jnp.roll(x, 5)
    yield "pad", lambda x, y: lax.pad(x.reshape(3, 4), y[0], ((1, 2, 1), (0, 1, 0)))
    yield "moved", lambda x, y: jnp.tile(jnp.concatenate([x.reshape(3, 4).T, y.reshape(4, 3)], 1), (1, 2))[::2, 1:5]
    yield "take", lambda x, y: x.reshape(3, 4)[jnp.array([2, -1]), jnp.array([[0], [1]])]
    yield "rows", lambda x, y: x.reshape(3, 4)[jnp.array([2, 0, 0])]
    yield "out of bounds", lambda x, y: jnp.take(x, jnp.array([2, 40]), mode="fill")
    yield "set", lambda x, y: x.at[jnp.array([3, 1])].set(y[:2])
    yield "set rows", lambda x, y: x.reshape(3, 4).at[jnp.array([2, 0]), 1:3].set(y[:4].reshape(2, 2))
    yield "set column", lambda x, y: x.reshape(3, 4).at[:, 1].set(y[:3])
    yield "set twice", lambda x, y: x.at[jnp.array([3, 3])].set(y[:2])
    yield "add at", lambda x, y: x.at[jnp.array([3, 3, 1])].add(y[:3])
    yield "dynamic", lambda x, y: lax.dynamic_update_slice(x, lax.dynamic_slice(y, (9,), (5,)), (-3,))
    yield "empty", lambda x, y: (jnp.sum(x[:0]), x[:0] + y[:0], jnp.sort(x[:0]), jnp.concatenate([x[:0], y]))
    yield "0-d", lambda x, y: (x[3] + y[2], x[1] < y[1], x[2].astype(jnp.float32), jnp.where(x[1] == y[1], x[0], y[0]))
    yield "created", lambda x, y: (jnp.arange(7, dtype=x.dtype), jnp.full((2, 3), y[0]), lax.iota(x.dtype, 5))


def run(jaxpr, *args):
    """A traced program in NumPy, or None if that declines; fails as NumPy fails."""
    plan = host._make_plan(jaxpr)
    if not plan.calls_left:
        return None
    try:
        with np.errstate(all="ignore"):
            return plan.run(args)
    except host._Differs:
        return None


NEVER = {"fma", "constant"}


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, *OTHERS], ids=lambda dtype: np.dtype(dtype).name)
def test_numpy_gives_the_bits_of_xla(dtype):
    with jaxlite.enable_x64(True):
        found, functions, inputs = [], [], [(draw(dtype, 12, 1, hard), draw(dtype, 12, 2, False)) for hard in (True, False)]
        subnormal = draw(dtype, 12, 3, False)
        if np.dtype(dtype) in FLOATS:
            subnormal[4:8] = np.asarray(dtypes.finfo(dtype).smallest_subnormal).astype(dtype) * np.arange(1, 5).astype(dtype)
        inputs.append((subnormal, inputs[0][1]))
        for name, fun in programs(dtype):
            try:
                jaxpr = jaxlite.make_jaxpr(fun)(*inputs[0])
            except (TypeError, ValueError):
                continue  # not for this type
            results = [run(jaxpr, *pair) for pair in inputs]
            if any(result is not None for result in results):
                found.append((name, results))
                functions.append(fun)
                assert not (name in NEVER and np.dtype(dtype) in FLOATS), name
        names = {name for name, _ in found}
        assert {"roll", "pad", "moved", "take", "set"} <= names
        # Each as a program of its own: together XLA could merge them.
        with config.eager_on_host(False):
            for (name, results), fun in zip(found, functions, strict=True):
                compiled = jaxlite.jit(fun)
                for pair, result in zip(inputs, results, strict=True):
                    if result is not None:
                        wanted = compiled(*pair)
                        for ours, theirs in zip(result, jaxlite.tree.leaves(wanted), strict=True):
                            try:
                                same(ours, theirs)
                            except AssertionError as error:
                                raise AssertionError(f"{name} of {np.dtype(dtype)}: {pair}: {error}") from None


@pytest.fixture
def compiles():
    """The programs that were compiled since."""
    jaxlite.clear_caches()  # other tests may have called what these do, often enough to have it compiled
    counted = []
    program.compile_watchers.append(counted.append)
    yield counted
    program.compile_watchers.remove(counted.append)


def test_a_signature_is_compiled_once_it_has_paid(compiles):
    with config.eager_on_host(True):
        x = jnp.asarray(np.arange(23))
        outs = [x[:7] for _ in range(host._CALLS)]
        assert not compiles
        outs += [x[:7] for _ in range(5)]
        assert len(compiles) == 1
        for out in outs:
            assert out.aval == outs[0].aval and out.tolist() == list(range(7))


def test_types_places_and_memory_are_those_of_compiled_calls(compiles):
    device = jaxlite.devices()[-1]
    committed, weak = jaxlite.device_put(np.arange(5), device), jaxlite.jit(lambda: 3)()
    del compiles[:]
    for on in (True, False):
        with config.eager_on_host(on):
            out = committed[1:4]
            assert out.committed and out.devices() == {device} and not (weak + weak).committed
            assert (weak + weak).weak_type and (weak + weak).dtype == weak.dtype
            assert bool(compiles) is not on
    with config.eager_on_host(True):
        source = np.arange(4.0, dtype=np.float32)
        out = lax.reshape(jnp.asarray(source), (2, 2))
        source[:] = 9
        assert out.tolist() == [[0, 1], [2, 3]]
        out.delete()
        with pytest.raises(RuntimeError, match="deleted"):
            lax.reshape(out, (4, 1))


def test_what_users_jit_is_compiled_and_debugging_too(compiles):
    with config.eager_on_host(True):
        jaxlite.jit(lambda x: x[:2])(jnp.asarray(np.arange(5)))
        assert len(compiles) == 1
        with config.debug_nans(True):
            assert lax.neg(jnp.asarray(np.arange(3.0, dtype=np.float32))).tolist() == [0, -1, -2]
        assert len(compiles) == 2
