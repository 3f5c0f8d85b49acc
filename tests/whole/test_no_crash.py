"""Nasty input gives a Python exception or a result: no crash, no hang, no dump of the compiler's verifier.

What might take the process down runs in a subprocess (this file as a script), one for each group of cases.
"""

from __future__ import annotations

import functools
import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.core.primitive import PRIMITIVES
from lowering import xla

Cases = Iterator[tuple[str, Callable[[], Any]]]
FORBIDDEN_TEXTS = ("see current operation", "op expected", "error: ", "RET_CHECK", "nanobind")
FORBIDDEN_TYPES = ("MLIRError", "SystemError", "AssertionError", "UnboundLocalError")


def problem(call: Callable[[], Any]) -> str:
    """What is wrong with how a call fails, or ''."""
    try:
        result = call()
        if not isinstance(result, str):
            jaxlite.block_until_ready(result)
    except Exception as error:
        if type(error).__name__ in FORBIDDEN_TYPES or any(each in str(error) for each in FORBIDDEN_TEXTS):
            return f"{type(error).__name__}: {str(error)[:300]}"
    return ""


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def with_size(n: int) -> dict[str, Callable[[], Any]]:
    x = jnp.asarray(X)
    return {
        "zeros": lambda: jnp.zeros(n), "eval_shape": lambda: jaxlite.eval_shape(lambda: jnp.zeros(n)),
        "broadcast_to": lambda: jnp.broadcast_to(1.0, n), "iota": lambda: lax.iota(jnp.int32, n),
        "arange": lambda: jnp.arange(n), "tile": lambda: jnp.tile(x, n), "repeat": lambda: jnp.repeat(x, n),
        "eye": lambda: jnp.eye(n), "pad": lambda: jnp.pad(x, n), "reshape": lambda: x.reshape(n),
        "linspace": lambda: jnp.linspace(0, 1, n), "roll": lambda: jnp.roll(x, n), "index": lambda: x[n],
        "at": lambda: x.at[n].set(1), "slice": lambda: x[:n], "take": lambda: jnp.take(x, n),
        "top_k": lambda: lax.top_k(x, n), "sum": lambda: jnp.sum(x, axis=n), "sort": lambda: jnp.sort(x, axis=n),
        "expand_dims": lambda: jnp.expand_dims(x, n), "concatenate": lambda: jnp.concatenate([x, x], axis=n),
        "integer_pow": lambda: lax.integer_pow(x, n), "interior": lambda: lax.pad(x, 0.0, [(0, 0, n), (0, 0, 0)]),
        "nonzero": lambda: jnp.nonzero(x, size=n), "window": lambda: lax.reduce_window(
            x, 0.0, lax.add, (n, 1), (1, 1), "SAME") if n > 2**62 else None,
        "stacked": lambda: lax.scan(lambda c, _: (c, c), 0, None, n)
        if abs(n) > 2**62 else None,
    }


def sizes() -> Cases:
    """Huge and negative sizes, positions and axes."""
    for n in (2**40, 2**63 - 1, 2**70, -1):
        yield from ((f"{name} {n}", call) for name, call in with_size(n).items())
    for shape in ((2**31,) * 3, (0, 2**62), (1,) * 200, (2,) * 64, (2,) * 40):
        yield f"zeros {shape[:3]}", lambda shape=shape: jnp.zeros(shape)
        yield f"reshape {shape[:3]}", lambda shape=shape: jnp.zeros((0, 3)).reshape(shape)
        yield f"full {shape[:3]}", lambda shape=shape: lax.full(shape, 1)


NUMPY = {
    "reversed": X[::-1, ::-1], "stretched": np.broadcast_to(np.float32(3), (2, 3)),
    "swapped": X.astype(X.dtype.newbyteorder()), "empty": np.zeros((0, 3), np.float32), "masked": np.ma.ones((2, 3)),
    "record": np.zeros(3, [("a", "f4")]), "date": np.zeros(3, "M8[s]"), "text": np.array(["a", "b"]),
    "object": np.array([1, None], object), "long": np.zeros(3, np.longdouble),
    "void": np.zeros(3, "V4"), "rank 32": np.zeros((1,) * 32, np.float32),
    "unaligned": np.frombuffer(b"\0" * 25, np.uint8)[1:].view(np.float32), "complex": X + 1j,
    "nan": np.array([np.nan, np.inf, -np.inf, -0.0], np.float32),
    **{name: np.ones((2, 3), getattr(ml_dtypes, name)) for name in (
        "uint2", "int4", "float8_e4m3fn")},
}
FUNCTIONS = {
    "sin": jnp.sin, "add": lambda a: jnp.add(a, 1), "sum": jnp.sum, "jit": jaxlite.jit(lambda a: a), "sort": jnp.sort,
    "cumsum": jnp.cumsum, "index": lambda a: jnp.asarray(a)[0], "at": lambda a: jnp.asarray(a).at[0].add(1),
    "argmax": jnp.argmax, "dot": lambda a: jnp.dot(a, a.T),
    "device_put": jaxlite.device_put, "repr": lambda a: repr(jnp.asarray(a)), "pad": lambda a: jnp.pad(a, 1),
    "bitcast": lambda a: lax.bitcast_convert_type(a, jnp.uint8), "top_k": lambda a: lax.top_k(a, 1),
    "astype": lambda a: jnp.asarray(a).astype(jnp.int4), "erf": lax.erf,
}


def numpy_inputs() -> Cases:
    """NumPy arrays of every layout and dtype, into functions of every family."""
    for (kind, array), (name, function) in itertools.product(NUMPY.items(), FUNCTIONS.items()):
        yield f"{name} of {kind}", functools.partial(function, array)


OPERANDS = {
    "none": (), "one": (X,), "two": (X, X), "three": (X, X, X),
    "empty": (np.zeros((0, 3), np.float32),) * 2, "square": (np.eye(3, dtype=np.float32),) * 2,
    "integers": (np.arange(3, dtype=np.int32),) * 2, "mixed": (X, np.arange(3, dtype=np.int32)),
    "int4": (np.ones(3, ml_dtypes.int4),) * 2, "float8": (np.ones(3, ml_dtypes.float8_e4m3fn),) * 2,
}
PARAMS: list[dict[str, Any]] = [
    {}, {"axes": (5,)}, {"axes": (0, 0), "out_sharding": None}, {"axis": 99}, {"axis": -1},
    {"axis": 9, "reverse": False}, {"dimension": 7, "is_stable": True, "num_keys": 1}, {"permutation": (0, 0)},
    {"shape": (-1,), "broadcast_dimensions": (0,), "sharding": None}, {"exponent_bits": 0, "mantissa_bits": -1},
    {"new_sizes": (7,), "dimensions": None, "sharding": None}, {"padding_config": ((-9, 1, 0), (0, 0, 0))},
    {"padding_config": ((1, 1, -5), (0, 0, 0))}, {"y": -1}, {"dimensions": (9,)}, {"slice_sizes": (9, 9)},
    {"start_indices": (-1, 0), "limit_indices": (9, 9), "strides": None}, {"new_dtype": "no dtype"},
    {"start_indices": (0, 0), "limit_indices": (1, 1), "strides": (0, 0)}, {"k": -1}, {"nonsense": object()},
    {"dimension_numbers": (((9,), (0,)), ((), ())), "precision": None, "preferred_element_type": None,
     "out_sharding": None},
    {"window_dimensions": (2, 2), "window_strides": (0, 1), "padding": ((0, 0), (0, 0)), "base_dilation": (1, 1),
     "window_dilation": (1, 1)},
]


def hand_made_equations() -> Cases:
    """Operands and params straight to every primitive: its typing rule is the last line of defence."""
    for name, primitive in sorted(PRIMITIVES.items()):
        for (kind, operands), params in itertools.product(OPERANDS.items(), PARAMS):
            bind = functools.partial(primitive.bind, **params)
            yield f"{name} of {kind} with {params}", functools.partial(jaxlite.make_jaxpr(bind), *operands)


def compiled_equations() -> Cases:
    """The same where a param is wrong, as far as typing lets it pass, compiled and run."""
    for name in ("reduce_precision", "stack", "transpose", "slice", "pad", "rev", "reduce_sum", "add", "reshape"):
        for (kind, operands), params in itertools.product(OPERANDS.items(), PARAMS[1:]):
            if kind in ("one", "three"):
                bind = functools.partial(PRIMITIVES[name].bind, **params)
                yield f"{name} of {kind} with {params}", functools.partial(jaxlite.jit(lambda *a, bind=bind: bind(*a)),
                                                                           *operands)


class Converts:
    def __init__(self, result: Any):
        self.result = result

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self._give()

    def _give(self) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


class ConvertsToArray(Converts):
    def __jax_array__(self) -> Any:
        return self._give()


class FailingIndex:
    def __index__(self) -> int:
        raise ZeroDivisionError


def objects() -> Cases:
    """Objects that lie about what they are."""
    x = jnp.asarray(X)
    values = [cls(result) for cls in (Converts, ConvertsToArray) for result in (
        "text", None, ZeroDivisionError("mine"), np.ones(3), [1, 2])] + [FailingIndex(), object(), ..., int, len]
    itself = ConvertsToArray(None)
    itself.result = itself
    for value in [*values, itself]:
        calls = {
            "sin": jnp.sin, "asarray": jnp.asarray, "jit": jaxlite.jit(lambda a: a), "add": lambda v: x + v,
            "index": lambda v: x[v], "zeros": jnp.zeros, "reshape": x.reshape, "axis": lambda v: jnp.sum(x, axis=v),
            "lax": lax.sin, "device_put": jaxlite.device_put, "set": lambda v: x.at[0].set(v),
            "list": lambda v: jnp.array([v, 1.0]), "make_jaxpr": jaxlite.make_jaxpr(lambda a: a),
            "carry": lambda v: lax.scan(lambda c, _: (c, None), v, None, 2), "static": jaxlite.jit(
                lambda a: 1, static_argnums=0), "dtype": lambda v: jnp.zeros(2, v),
        }
        yield from ((f"{name} of {value}", functools.partial(call, value)) for name, call in calls.items())


def recursion() -> Cases:
    """Deep programs."""

    def endless(v: Any) -> Any:
        return jaxlite.jit(endless)(v)

    def nested(v: Any, depth: int) -> Any:
        return v if not depth else jaxlite.jit(lambda w: nested(w, depth - 1))(v)

    def chain(v: Any) -> Any:
        for _ in range(2000):
            v = v + 1
        return v

    deep: Any = 1.0
    for _ in range(3000):
        deep = [deep]
    yield "endless", lambda: jaxlite.jit(endless)(1.0)
    yield "nested 30", lambda: nested(1.0, 30)
    yield "nested 2000", lambda: jaxlite.make_jaxpr(lambda v: nested(v, 2000))(1.0)
    yield "chain", lambda: jaxlite.make_jaxpr(chain)(1.0)
    yield "deep list", lambda: jaxlite.jit(lambda v: 1)(deep)
    itself: list[Any] = []
    itself.append(itself)
    yield "list in itself", lambda: jaxlite.jit(lambda v: 1)(itself)


def deleted() -> Cases:
    """An array whose buffer is gone, to everything."""
    gone = jnp.ones((2, 2))
    gone.delete()
    calls: dict[str, Callable[[Any], Any]] = {
        **FUNCTIONS, "item": lambda a: a.item(), "float": float, "list": list, "asarray": np.asarray, "closure":
        lambda a: jaxlite.jit(lambda v: v + a)(1.0), "scan": lambda a: lax.scan(lambda c, v: (c, v), 0, a),
        "cond": lambda a: lax.cond(True, lambda v: v, lambda v: v, a), "dlpack": lambda a: a.__dlpack__(),
        "pickle": lambda a: a.__reduce__(), "copy": lambda a: a.copy(), "ready": lambda a: a.block_until_ready(),
        "array": jnp.array, "stack": lambda a: jnp.stack([a, a]), "delete": lambda a: a.delete(), "host": lambda a:
        a.copy_to_host_async(), "donate": jaxlite.jit(lambda a: a, donate_argnums=0), "str": str, "in": lambda a: 1 in a,
        "device_get": jaxlite.device_get, "buffer": memoryview, "key": hash,
    }
    yield from ((name, functools.partial(call, gone)) for name, call in calls.items())


def deleted_while_others_read() -> Cases:
    """Memory that NumPy still reads when its array is deleted or donated."""
    def read_after(remove: Callable[[Any], Any]) -> None:
        array = jnp.arange(1000.0) + 1
        view = np.from_dlpack(array)
        remove(array)
        assert view.sum() == 500500
        del view

    yield "deleted", lambda: read_after(lambda array: array.delete())
    yield "donated", lambda: read_after(jaxlite.jit(lambda a: a * 2, donate_argnums=0))


def meshes_without_devices() -> Cases:
    mesh = jaxlite.sharding.Mesh(np.array(jaxlite.devices())[:0], ("x",))
    for spec in (jaxlite.P(), jaxlite.P("x")):
        sharding = jaxlite.NamedSharding(mesh, spec)
        for size in (0, 8):
            values = np.ones(size, np.float32)
            yield f"device_put {spec} {size}", lambda v=values, s=sharding: jaxlite.device_put(v, s)
            yield f"jit {spec} {size}", lambda v=values, s=sharding: jaxlite.jit(lambda a: a * 2, in_shardings=s)(v)
            yield f"callback {spec} {size}", lambda v=values, s=sharding: jaxlite.make_array_from_callback(
                v.shape, s, lambda index: v)
            yield f"shards {spec} {size}", lambda v=values, s=sharding: jaxlite.make_array_from_single_device_arrays(
                v.shape, s, [])


def interrupts() -> Cases:
    """A signal during a compile: XLA goes on in a thread of its own, with a module that Python has left."""
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    def compile_and_interrupt() -> None:
        signal.signal(signal.SIGALRM, interrupt)
        compile_and_load = xla.backend_compile_and_load

        def watched(*args: Any) -> Any:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            return compile_and_load(*args)

        xla.backend_compile_and_load = watched
        program = jaxlite.jit(lambda x: sum(jnp.sin(x @ x + step) for step in range(200)))
        try:
            program(jnp.ones((20, 20)))
            raise AssertionError("the program was compiled before the signal came")
        except KeyboardInterrupt:
            pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            xla.backend_compile_and_load = compile_and_load
        gc.collect()
        time.sleep(1)  # for XLA's thread

    jaxlite.config.update("jax_enable_compilation_cache", False)
    for turn in range(3):
        yield f"compile {turn}", compile_and_interrupt


def marks_in_foreign_calls() -> Cases:
    """Names of foreign calls that XLA reads itself."""
    result = jaxlite.ShapeDtypeStruct((3,), jnp.float32)
    names = ("Sharding", "SPMDFullToShardShape", "LayoutConstraint", "MoveToHost", "TopK", "SliceToDynamic",
             "__onednn$matmul", "xla_ffi_python_cpu_callback")
    for name, count in itertools.product(names, (0, 2)):
        yield f"{name} of {count}", lambda name=name, count=count: jaxlite.jit(
            lambda *a: jaxlite.ffi.ffi_call(name, result)(*a))(*[jnp.ones(3)] * count)


GROUPS = [sizes, numpy_inputs, hand_made_equations, compiled_equations, objects, recursion, deleted, deleted_while_others_read,
          meshes_without_devices, interrupts, marks_in_foreign_calls]


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.__name__)
def test_nothing_crashes(group: Callable[[], Cases]) -> None:
    run = subprocess.run([sys.executable, "-W", "ignore", __file__, group.__name__], capture_output=True, text=True,
                         timeout=240, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]


@settings(max_examples=60)
@given(st.lists(st.integers(-3, 4), max_size=3), st.lists(st.integers(-4, 7), max_size=3),
       st.sampled_from(["reshape", "transpose", "broadcast_to", "sum", "squeeze", "expand_dims", "tile", "flip"]))
def test_any_sizes_and_axes(shape: list[int], argument: list[int], name: str) -> None:
    x = jnp.zeros([abs(size) for size in shape])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not problem(lambda: jaxlite.eval_shape(lambda: getattr(jnp, name)(x, tuple(argument))))


def test_threads_with_clearing_of_caches() -> None:
    failures: list[Exception] = []

    def work(seed: int) -> None:
        try:
            for step in range(12):
                f = jaxlite.jit(lambda x, step=step: x * step + seed)
                assert float(f(jnp.float32(2))) == 2 * step + seed
                if step % 4 == seed:
                    jaxlite.clear_caches()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert not any(thread.is_alive() for thread in threads)


if __name__ == "__main__":
    group = next(each for each in GROUPS if each.__name__ == sys.argv[1])
    problems = {}
    for label, call in group():
        print(label, flush=True)  # the last line names the case that ends the process
        found = problem(call)
        if found:
            problems[label] = found
    if problems:
        sys.exit("\n".join(f"{label}: {text}" for label, text in problems.items()))
