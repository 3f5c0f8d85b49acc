"""jit: which calls trace again, what arguments may be, static ones, nested calls, closures, errors, options."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import os
import pickle
import platform
import re
import subprocess
import sys
import warnings
import weakref
from collections import OrderedDict, namedtuple
from pathlib import Path

import numpy as np
import pytest

import jaxlite
from jaxlite import jit, lax
from jaxlite.compilation.execution import Executable
from jaxlite.compilation.levels import Inline

HERE = Path(__file__).name
F32 = np.float32
Point = namedtuple("Point", "x y")


def ones(*shape, dtype=F32):
    return np.ones(shape, dtype)


def array(value, dtype=None):
    """An Array on the device, made by jit itself."""
    return jit(lambda x: x)(np.asarray(value, dtype))


def double(x):
    return lax.mul(x, lax.full_like(x, 2))


def run_python(code: str, **env: str) -> str:
    """stdout of `code` in a fresh interpreter."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "JAXLITE_", "XLA_"))}
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run([sys.executable, "-c", code], env={**clean, "PYTHONPATH": root, **env}, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- results and signatures --------------------------------------------------------------------------


def test_pytrees_in_and_out():
    @jit
    def f(a, *rest, k=None, **more):
        return {"a": a, "rest": rest, "k": k, "more": OrderedDict(sorted(more.items()))}

    out = f(Point(ones(2), None), (1, [2.0]), k={"z": True, "b": 3j}, v=ones(0))
    assert isinstance(out["a"], Point) and out["a"].y is None
    assert out["rest"][0][0].dtype == np.int32 and out["rest"][0][1][0].weak_type
    assert out["k"]["z"].dtype == bool and out["k"]["b"].dtype == np.complex64
    assert list(out["more"]) == ["v"] and out["more"]["v"].shape == (0,)
    assert isinstance(out["rest"][0][0], jaxlite.Array)


def test_no_arguments_and_no_results():
    assert jit(lambda: None)() is None
    assert jit(lambda x: ())(1.0) == ()
    assert jit(lambda: 3)().tolist() == 3


@pytest.mark.parametrize(
    ("value", "dtype", "weak"),
    [(True, "bool", False), (3, "int32", True), (2.5, "float32", True), (1 + 2j, "complex64", True),
     (np.float64(1.5), "float32", False), (np.int64(7), "int32", False), (np.float16(1), "float16", False),
     (np.bool_(True), "bool", False), (np.array(3, np.uint8), "uint8", False)],
)
def test_scalars_have_numpys_value_and_the_32_bit_type(value, dtype, weak):
    f = jit(lambda x: x)
    for out in f(value), f(value):
        assert (out.dtype.name, out.weak_type, out.shape, out.tolist()) == (dtype, weak, (), value)


def test_a_float_beyond_the_range_is_infinite():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [jit(lambda x: x)(1e300).tolist() for _ in range(2)] == [np.inf] * 2


def test_x64_changes_the_signature(count_traces):
    body = count_traces(lambda x: x)
    f = jit(body)
    assert f(1.0).dtype == np.float32
    with jaxlite.enable_x64():
        assert f(1.0).dtype == np.float64
        assert f(2**40).tolist() == 2**40
    assert f(1.0).dtype == np.float32
    assert body.count == 3


def test_an_int_that_does_not_fit_is_an_error_that_names_the_argument():
    with pytest.raises(OverflowError, match=r"batch\['n'\].*int32"):
        jit(lambda batch: batch)({"n": 2**31})
    assert jit(lambda x: x)(-(2**31)).tolist() == -(2**31)


SAME = object()
SIGNATURES = [
    ("values", (ones(3),), (2 * ones(3),), SAME),
    ("a python scalar's value", (1,), (2,), SAME),
    ("a float's value", (1.0,), (float("nan"),), SAME),
    ("a numpy array and an Array", (ones(3),), (array(ones(3)),), SAME),
    ("numpy scalar and 0-d array", (F32(1),), (np.array(2, F32),), SAME),
    ("order in a dict", ({"a": 1, "b": 2},), ({"b": 2, "a": 1},), SAME),
    ("float64 is float32", (ones(3),), (ones(3, dtype=np.float64),), SAME),
    ("shape", (ones(3),), (ones(4),), None),
    ("rank", (ones(3),), (ones(3, 1),), None),
    ("dtype", (ones(3),), (ones(3, dtype=np.int32),), None),
    ("weak type", (1.0,), (F32(1),), None),
    ("int or float", (1,), (1.0,), None),
    ("bool or int", (True,), (1,), None),
    ("container", ((1, 2),), ([1, 2],), None),
    ("keys", ({"a": 1},), ({"b": 1},), None),
    ("None or a value", (None,), (1,), None),
    ("number of arguments", (1,), (1, 2), None),
]


@pytest.mark.parametrize(("first", "second", "same"), [row[1:] for row in SIGNATURES],
                         ids=[row[0] for row in SIGNATURES])
def test_what_makes_a_new_trace(count_traces, first, second, same):
    body = count_traces(lambda *args: args)
    f = jit(body)
    for args in (first, second, first, second):
        f(*args)
    assert body.count == (1 if same is SAME else 2)


def test_options_that_change_the_program_make_a_new_trace(count_traces):
    body = count_traces(lambda x: x)
    f = jit(body)
    f(1.0)
    with jaxlite.default_matmul_precision("highest"):
        f(1.0)
    f(1.0)
    assert body.count == 2


def test_keyword_order_and_defaults(count_traces):
    body = count_traces(lambda x, y=2, *, z=3: (x, y, z))
    f = jit(body)
    assert [out.tolist() for out in f(1, z=5, y=4)] == [1, 4, 5]
    assert [out.tolist() for out in f(1, y=4, z=5)] == [1, 4, 5]
    assert body.count == 1
    assert [out.tolist() for out in f(1)] == [1, 2, 3]


def test_jitted_function_looks_like_the_function():
    def f(x, *, y=2):
        """Doc."""

    jitted = jit(f)
    assert (jitted.__name__, jitted.__doc__, jitted.__wrapped__) == ("f", "Doc.", f)
    f.tag, f.lower = 5, "not the method"
    again = jit(jit(f))
    assert again.tag == 5 and callable(again.lower)
    assert jitted.__qualname__ == f.__qualname__ and jitted.__module__ == __name__
    assert inspect.signature(jitted) == inspect.signature(f)


@jit
def decorated(x):
    return double(x)


def test_copies_and_pickles():
    rejitted = pickle.loads(pickle.dumps(jit(double, static_argnames=(), donate_argnums=0, inline=True)))
    assert rejitted(F32(2)).tolist() == 4 and rejitted.__wrapped__ is double
    assert rejitted.lower(F32(2)).donate_argnums == (0,)
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert copy.deepcopy({"f": decorated})["f"] is copy.copy(decorated) is decorated


def test_decorator_forms():
    @functools.partial(jit, static_argnames="n")
    def f(x, n):
        return [x] * n

    @jit(static_argnames="n")
    def g(x, n):
        return [x] * n

    assert len(f(1, 2)) == len(g(1, n=2)) == 2


def test_methods_partials_instances_and_builtins():
    class Model:
        def __init__(self, w):
            self.w = w

        @functools.partial(jit, static_argnums=0)
        def scaled(self, x):
            return lax.mul(x, self.w)

        @jit
        def shape(x):
            return x.shape

        def __call__(self, x):
            return lax.add(x, self.w)

    m, k = Model(F32(3)), Model(F32(5))
    assert m.scaled(F32(2)).tolist() == 6 and k.scaled(F32(2)).tolist() == 10
    assert jit(m)(F32(2)).tolist() == 5
    assert jit(m.__call__)(F32(2)).tolist() == 5
    assert jit(functools.partial(lax.add, F32(1)))(F32(2)).tolist() == 3
    assert jit(functools.partial(lambda x, n: [x] * n, n=2))(1)[1].tolist() == 1
    assert jit(jit(double))(F32(2)).tolist() == 4


def test_callables_without_weak_references():
    class Slotted:
        __slots__ = ()

        def __call__(self, x):
            return lax.add(x, x)

    fun = Slotted()
    for f in [jit(fun) for _ in range(3)]:
        assert f(F32(2)).tolist() == f(F32(2)).tolist() == 4 and f.__wrapped__ is fun
        with jaxlite.disable_jit():
            assert f(F32(3)).tolist() == 6
    for f in [jit(np.sin) for _ in range(3)]:  # NumPy's functions have none either
        with pytest.raises(jaxlite.errors.TracerArrayConversionError):
            f(F32(2))


# --- static arguments --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "args", "kwargs"),
    [
        ({"static_argnums": 1}, (1.0, 3), {}),
        ({"static_argnums": 1}, (1.0,), {"n": 3}),
        ({"static_argnums": (1,)}, (), {"x": 1.0, "n": 3}),
        ({"static_argnums": -1}, (1.0, 3), {}),
        ({"static_argnums": [-1]}, (1.0,), {"n": 3}),
        ({"static_argnames": "n"}, (1.0, 3), {}),
        ({"static_argnames": ("n",)}, (1.0,), {"n": 3}),
        ({"static_argnums": 1, "static_argnames": "n"}, (1.0, 3), {}),
        ({"static_argnums": np.int64(1)}, (1.0, 3), {}),
    ],
)
def test_static_argument_is_a_python_value_however_it_is_passed(options, args, kwargs):
    def f(x, n):
        assert type(n) is int
        return [x] * n

    assert len(jit(f, **options)(*args, **kwargs)) == 3


def test_static_values_are_compared_by_type_and_value(count_traces):
    body = count_traces(lambda n: n)
    f = jit(body, static_argnums=0)
    assert [f(n).dtype.name for n in (1, 1.0, True, 1)] == ["int32", "float32", "bool", "int32"]
    assert body.count == 3
    f((1, 2)), f((1, 2))
    assert body.count == 4


def test_static_default_keyword_only_and_varargs():
    f = jit(lambda x, *, n=2: [x] * n, static_argnames="n")
    assert len(f(1)) == 2 and len(f(1, n=3)) == 3
    g = jit(lambda *args: [args[1]] * len(args[0] + args[-1]), static_argnums=(0, -1))
    assert len(g("ab", 1.0, "cde")) == 5
    h = jit(lambda *args: [args[1]] * args[0], static_argnums=0)
    assert len(h(3, 1.0)) == 3


def test_static_and_dynamic_mix():
    f = jit(lambda a, b, c, d: {"sum": [a] * b + [c] * d}, static_argnums=(1, 3))
    assert [x.tolist() for x in f(1, 2, 3, 1)["sum"]] == [1, 1, 3]
    assert [x.tolist() for x in f(1, d=1, c=3, b=2)["sum"]] == [1, 1, 3]


@pytest.mark.parametrize("call", [lambda f: f(1.0, [1]), lambda f: f(1.0, n=[1]), lambda f: f.lower(1.0, [1])])
def test_unhashable_static_argument(call):
    with pytest.raises(ValueError, match="Non-hashable static arguments.*list"):
        call(jit(lambda x, n: x, static_argnums=1))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"static_argnums": 2}, ValueError, "static_argnums=.2,.*2 positional"),
        ({"static_argnums": -3}, ValueError, "static_argnums"),
        ({"static_argnames": "z"}, ValueError, "'z'"),
        ({"donate_argnums": 7}, ValueError, "donate_argnums"),
        ({"donate_argnames": "z"}, ValueError, "'z'"),
        ({"static_argnums": 0, "donate_argnums": 0}, ValueError, "intersect"),
        ({"static_argnames": "x", "donate_argnames": "x"}, ValueError, "intersect"),
        ({"static_argnums": "x"}, TypeError, "static_argnums"),
        ({"static_argnames": 3}, TypeError, "static_argnames|iterable"),
        ({"device": "cpu", "backend": "cpu"}, ValueError, "both a device and a backend"),
    ],
)
def test_bad_options(options, error, words):
    with pytest.raises(error, match=words):
        jit(lambda x, y: x, **options)


def test_what_cannot_be_jitted():
    def generator(x):
        yield x

    async def coroutine(x):
        return x

    for fun, words in ((5, "callable"), (None, "callable"), (generator, "generator"), (coroutine, "coroutine")):
        with pytest.raises(TypeError, match=words):
            jit(fun)


# --- bad arguments and results -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs", "path"),
    [(("a",), {}, "x"), ((1.0, {"k": [1, "b"]}), {}, r"y\['k'\]\[1\]"), ((1.0, 2.0, object()), {}, r"rest\[0\]"),
     ((1.0,), {"z": Point(1, "c")}, r"z\.y"), ((np.array(["s"]),), {}, "x"), ((np.array([None]),), {}, "x"),
     ((np.datetime64("2020-01-01"),), {}, "x")],
)
def test_an_argument_that_is_no_array_is_named_by_its_path(args, kwargs, path):
    f = jit(lambda x, y=0, *rest, z=0: x)
    for call in (f, f.lower, f):
        with pytest.raises(TypeError, match=rf"{HERE}:\d+.*path {path}\W.*static_argn"):
            call(*args, **kwargs)


def test_a_big_endian_array_is_refused():
    with pytest.raises(TypeError, match="byte order"):
        jit(lambda x: x)(np.arange(3, dtype=">f4"))


def test_a_result_that_is_no_array_is_named_by_its_path():
    def f(x):
        return {"a": [x, "text"]}

    with pytest.raises(TypeError, match=rf"function f at .*{HERE}:\d+ traced for jit.*<class 'str'>.*\['a'\]\[1\]"):
        jit(f)(1.0)
    with pytest.raises(TypeError, match=r"<class 'numpy.ndarray'> at output component \[0\]"):
        jit(lambda x: [np.array(["a"])])(1.0)
    with pytest.raises(TypeError, match="<class 'object'>"):
        jit(lambda x: object())(1.0)


def test_wrong_number_of_arguments_is_pythons_error():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'"):
        jit(lambda x, y: x)(1.0)
    with pytest.raises(TypeError, match="unexpected keyword"):
        jit(lambda x: x)(1.0, z=2)


@pytest.mark.parametrize("places", [(object, jaxlite.core.Tracer, jaxlite.Array), (jaxlite.core.Tracer, jaxlite.Array)])
def test_a_pytree_class_with_leaves_for_arrays_alone(places):
    """As in distrax: what is neither an array nor a place of one is metadata."""

    @jaxlite.tree_util.register_pytree_node_class
    class Scaled:
        def __init__(self, *parts):
            self.parts = parts

        def tree_flatten(self):
            switch = [type(part) in places or isinstance(part, places[-2:]) for part in self.parts]
            return ([part if is_leaf else None for part, is_leaf in zip(self.parts, switch)],
                    tuple(None if is_leaf else part for part, is_leaf in zip(self.parts, switch)))

        @classmethod
        def tree_unflatten(cls, metadata, children):
            return cls(*[child if part is None else part for part, child in zip(metadata, children)])

    out = jit(lambda x, y: Scaled(double(x.parts[0]), *x.parts[1:]))(Scaled(double(F32(1)), 3), F32(1))
    assert out.parts[0].tolist() == 4 and out.parts[1] == 3
    if object in places:
        times = jaxlite.custom_vjp(lambda s, y: s.parts[0] * y)
        times.defvjp(lambda s, y: (s.parts[0] * y, s), lambda s, ct: (None, ct * s.parts[0] * 10))
        assert jaxlite.grad(times, 1)(Scaled(double(F32(1)), 3), F32(1)) == 20


def test_a_pytree_class_that_accepts_only_arrays():
    class Picky:
        def __init__(self, x):
            assert hasattr(x, "shape")
            self.x = x

    jaxlite.tree_util.register_pytree_node(Picky, lambda p: ((p.x,), None), lambda aux, children: Picky(*children))
    assert jit(lambda p: Picky(double(p.x)))(Picky(F32(2))).x.tolist() == 4
    with pytest.raises(TypeError, match="path #0"):
        jit(lambda p: p)(Picky(np.array(None)))


def test_after_an_exception_the_next_call_is_fine(monkeypatch):
    fail = [True]

    @jit
    def f(x):
        if fail:
            raise KeyError("mine")
        return double(x)

    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            f(ones(2))
    fail.clear()
    for _ in range(3):
        assert f(ones(2)).tolist() == [2, 2]

    def no_python(*args):
        raise AssertionError("the signature is not on the fast path")

    monkeypatch.setattr(Executable, "__call__", no_python)
    assert f(ones(2)).tolist() == [2, 2]


def test_an_exception_inside_leaves_no_trace_behind():
    @jit
    def outer(x):
        jit(lambda y: 1 // 0)(x)

    with pytest.raises(ZeroDivisionError):
        outer(1.0)
    assert isinstance(lax.add(F32(1), F32(2)).tolist(), float)  # eager again


# --- misuse of tracers -------------------------------------------------------------------------------


MISUSES = [
    (lambda v: 1 if v else 2, "TracerBoolConversionError", "Attempted boolean conversion"),
    (lambda v: [1, 2][v], "TracerIntegerConversionError", "__index__"),
    (lambda v: range(v), "TracerIntegerConversionError", "__index__"),
    (lambda v: int(v), "ConcretizationTypeError", "static"),
    (lambda v: float(v), "ConcretizationTypeError", "static"),
    (lambda v: complex(v), "ConcretizationTypeError", "static"),
    (lambda v: np.asarray(v), "TracerArrayConversionError", "__array__"),
    (lambda v: np.sin(v), "TracerArrayConversionError", "__array__"),
    (lambda v: v.item(), "ConcretizationTypeError", "Python value"),
    (lambda v: v.tolist(), "ConcretizationTypeError", "list"),
    (lambda v: v.devices(), "ConcretizationTypeError", "'devices' is about an array in memory"),
    (lambda v: v.is_deleted(), "ConcretizationTypeError", "'is_deleted' is about an array in memory"),
    (lambda v: v.committed, "ConcretizationTypeError", "'committed' is about an array in memory"),
    (lambda v: v.addressable_shards, "ConcretizationTypeError", "'addressable_shards' is about an array in memory"),
]


@pytest.mark.parametrize(("misuse", "error", "words"), MISUSES, ids=[f"{row[1]}{i}" for i, row in enumerate(MISUSES)])
def test_a_traced_value_used_as_a_concrete_one(misuse, error, words):
    def step(params, batch):
        return misuse(batch["n"])

    with pytest.raises(getattr(jaxlite.errors, error)) as caught:
        jit(step)(1.0, {"n": 1})
    text = str(caught.value)
    assert words in text
    assert re.search(rf"step at .*{HERE}:{step.__code__.co_firstlineno} for jit", text)
    assert "batch['n']" in text and "params" not in text
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("transform", [jit, jaxlite.grad, lambda f: jaxlite.vmap(f, axis_size=1)])
def test_what_the_type_of_a_traced_value_tells(transform):
    with pytest.raises(ValueError, match=r"'memory_space' .* `jax.typeof\(x\).memory_space`"):
        transform(lambda x: x.memory_space)(array([1.0])[0] if transform is jaxlite.grad else array([1.0]))


def test_the_message_shows_the_lines_between_argument_and_error():
    def f(x, y):
        z = double(y)
        return x if lax.gt(z, F32(1)) else z

    with pytest.raises(jaxlite.errors.TracerBoolConversionError, match=r"bool\[\].*\n.*\n.*argument y"):
        jit(f)(F32(1), F32(2))

    def g():
        return 1 if lax.lt(*[lax.full((), 1)] * 2) else 2

    with pytest.raises(jaxlite.errors.TracerBoolConversionError, match=rf"operation lt.*{HERE}:\d+ "):
        jit(g)()


def test_a_leaked_tracer():
    kept = []

    @jit
    def leaky(x):
        y = lax.mul(x, x)
        kept.append(y)
        return y

    leaky(F32(1))
    line = leaky.__wrapped__.__code__.co_firstlineno + 2
    for use in (lambda v: lax.add(v, v), lambda v: jit(lambda x: lax.add(x, v))(F32(1)), jit(lambda x: x)):
        with pytest.raises(jaxlite.errors.UnexpectedTracerError) as caught:
            use(kept[0])
        text = str(caught.value)
        assert re.search(rf"leaky at .*{HERE}", text) and f"{HERE}:{line}" in text


def test_checking_leaks():
    kept = []

    @jit
    def leaky(x):
        kept.append(double(x))
        return x

    with jaxlite.checking_leaks(True), pytest.raises(Exception, match="Leaked"):
        leaky(F32(1))
    with jaxlite.checking_leaks(True):
        assert jit(lambda x: lax.add(x, ones(2)))(ones(2)).tolist() == [2, 2]


# --- nested calls, closures --------------------------------------------------------------------------


def test_nested_jit_is_one_equation_with_a_named_program():
    @jit
    def inner(x):
        return double(x)

    def outer(x):
        return inner(inner(x))

    jaxpr = jit(outer).trace(ones(2)).jaxpr
    assert [eqn.primitive.name for eqn in jaxpr.eqns] == ["jit", "jit"]
    first, second = (eqn.params for eqn in jaxpr.eqns)
    assert first["name"] == "inner" and first["jaxpr"] is second["jaxpr"]
    text = jit(outer).lower(ones(2)).as_text()
    assert text.count("func.func private @inner") == 1 and text.count("call @inner") == 2
    assert jit(outer)(ones(2)).tolist() == [4, 4]


def test_nested_functions_of_one_name_and_two_signatures():
    @jit
    def main(x):
        return double(x)

    out = jit(lambda x, y: (main(x), main(y), jit(lambda main: main)(x)))(ones(2), ones(3))
    assert [part.tolist() for part in out] == [[2, 2], [2, 2, 2], [1, 1]]


def test_inline_leaves_no_call():
    inner = jit(double, inline=Inline.JAX_EARLY)
    jaxpr = jit(lambda x: inner(x)).trace(ones(2)).jaxpr
    assert "jit" not in [eqn.primitive.name for eqn in jaxpr.eqns]
    assert inner(ones(2)).tolist() == [2, 2]


@pytest.mark.parametrize("inline, calls, word", [
    (Inline.JAX_LATE, 0, ""), (Inline.AUTO, 1, ""), (Inline.XLA_EARLY, 1, 'inlineable = "xla_early"'),
    (Inline.XLA_LATE, 1, 'inlineable = "xla_late"')])
def test_what_is_inlined_later_is_a_call_in_the_jaxpr(inline, calls, word):
    inner = jit(double, inline=inline)
    traced = jit(lambda x: inner(x)).trace(ones(2))
    assert [eqn.primitive.name for eqn in traced.jaxpr.eqns] == ["jit"]
    text = traced.lower().as_text()
    assert text.count("call @") == calls and word in text
    assert pickle.loads(pickle.dumps(inner))(ones(2)).tolist() == [2, 2]
    with pytest.raises(ValueError, match="Invalid inline option: 'late'"):
        jit(double, inline="late")


def test_static_arguments_of_a_nested_call():
    inner = jit(lambda x, n: [x] * n, static_argnums=1)
    assert len(jit(lambda x: inner(x, 3))(1.0)) == 3


def test_closures_over_arrays_are_parameters_not_text():
    big = np.arange(1 << 20, dtype=F32)
    f = jit(lambda x: lax.add(x, big))
    lowered = f.lower(big)
    assert len(lowered.as_text()) < 2000 and len(f.trace(big).jaxpr.consts) == 1
    np.testing.assert_array_equal(f(big), 2 * big)
    np.testing.assert_array_equal(lowered.compile()(big), 2 * big)


def test_small_arrays_are_constants_of_the_module():
    kinds = "float32 float16 bfloat16 int32 uint8 int4 bool complex64".split()
    tables = [jaxlite.numpy.asarray(np.array([[0, 1, 1], [0, 1, 0]]), kind) for kind in kinds] + [np.zeros((0, 2), F32)]
    unread = np.arange(3.0)
    f = jit(lambda x: ([x * table.size for table in tables], unread, tables)[::2])
    lowered = f.lower(2)
    assert "%arg0: tensor<i32>" in lowered.as_text() and "%arg1" not in lowered.as_text()
    for _, outs in (f(2), f(2), lowered.compile()(2)):
        for out, table in zip(outs, tables, strict=True):
            assert np.array_equal(out, table) and out.dtype == table.dtype
    for size in (32_768, 32_769):
        table = np.arange(size, dtype=F32)
        assert ("%arg1" in jit(lambda x, table=table: x * table).lower(2).as_text()) is (size > 32_768)
        np.testing.assert_array_equal(jit(lambda x, table=table: x * table)(2), 2 * table)


def test_many_arrays_together_are_no_constants():
    tables = [np.full(32_768, k, F32) for k in range(5)]
    for count, parameters in [(4, 1), (5, 6)]:
        some = jit(lambda x, some=tables[:count]: sum(x * table for table in some))
        text = some.lower(2).as_text()
        assert text[text.index("@main"):text.index("->")].count("%arg") == parameters
        np.testing.assert_array_equal(some(2), np.full(32_768, 2 * sum(range(count))))


def test_closed_over_values_are_those_of_the_trace():
    raw = np.zeros(256 + 64, np.uint8)
    start = -raw.ctypes.data % 64
    c = raw[start:start + 256].view(F32)  # aligned: a device array could share this memory
    f = jit(lambda x: lax.add(x, c))
    f(ones(64))
    c[:] = 100
    assert f(ones(64)).tolist() == [1] * 64


def test_closures_over_tracers_of_an_outer_trace(count_traces):
    body = count_traces(lambda y, x: lax.add(y, x))

    @jit
    def outer(x):
        inner = jit(lambda y: body(y, x))
        return inner(inner(x))

    for value in (1, 5):
        assert outer(F32(value)).tolist() == 3 * value
    assert body.count == 1


def test_a_function_that_reads_an_attribute_set_by_each_trace():
    class Model:
        w = None

    inner = jit(lambda y: lax.add(y, Model.w))

    @jit
    def outer(x, y, z):
        Model.w = x
        return inner(y)

    assert outer(F32(1), F32(2), ones(1)).tolist() == 3
    assert outer(F32(5), F32(2), ones(2)).tolist() == 7  # traced again: not the tracer of the first trace


def test_closures_two_deep():
    @jit
    def f(x):
        def middle(y):
            return jit(lambda z: lax.add(lax.add(x, y), z))(y)

        return jit(middle)(double(x))

    assert f(F32(1)).tolist() == 5


def test_a_recursive_function():
    @functools.partial(jit, static_argnums=1)
    def power(x, n):
        return lax.full_like(x, 1) if n == 0 else lax.mul(x, power(x, n - 1))

    assert power(F32(3), 4).tolist() == 81


def test_concrete_arguments_inside_a_trace_join_the_program():
    inner = jit(double)
    inner(ones(2)), inner(ones(2))  # compiled, on the fast path
    names = [eqn.primitive.name for eqn in jit(lambda x: lax.add(x, inner(ones(2)))).trace(ones(2)).jaxpr.eqns]
    assert names == ["jit", "add"]


def test_unused_arguments_are_dropped_unless_kept():
    def f(x, y):
        return double(x)

    assert jit(f).lower(ones(2), ones(3)).as_text().count("tensor<3xf32>") == 0
    assert jit(f, keep_unused=True).lower(ones(2), ones(3)).as_text().count("tensor<3xf32>") == 1
    for options in ({}, {"keep_unused": True}):
        g = jit(f, **options)
        assert g(ones(2), ones(3)).tolist() == g(ones(2), ones(3)).tolist() == [2, 2]


def test_of_what_is_not_read_a_description_is_enough():
    sized = jit(lambda x, like: lax.mul(x, float(like.size)))
    like = jaxlite.ShapeDtypeStruct((3,), "float32")
    assert sized(2.0, like) == sized(2.0, like) == jit(lambda x: sized(x, like))(2.0) == 6
    for fun in (jit(lambda x, like: (x, like)), jit(lambda x, like: x, keep_unused=True)):
        with pytest.raises(TypeError, match="at path like"):
            fun(2.0, like)


# --- caches ------------------------------------------------------------------------------------------


def test_two_jits_of_one_function_share_what_was_compiled(count_traces):
    body = count_traces(double)
    f, g = jit(body), jit(body)
    f(ones(2)), g(ones(2)), jit(body)(ones(2))
    assert body.count == 1


def test_options_that_tracing_does_not_depend_on_share_its_result(count_traces):
    here = jaxlite.sharding.SingleDeviceSharding(jaxlite.devices()[0])
    body = count_traces(lambda x, y: {"sum": x + y})
    for options in ({}, {"donate_argnums": 0}, {"donate_argnames": "y"}, {"keep_unused": True}, {"inline": True},
                    {"in_shardings": here}, {"out_shardings": here}, {"compiler_options": {}}):
        f = jit(body, **options)
        traced = f.trace(ones(2), ones(2))
        assert body.count == 1, options
        assert traced.donate_argnums == {"donate_argnums": (0,), "donate_argnames": (1,)}.get(next(iter(options), ""), ())
        assert traced.out_tree == jaxlite.tree.structure({"sum": 0}) and traced.fun_name == "<lambda>"
        assert len(jaxlite.make_jaxpr(lambda x, f=f: f(x, x))(ones(2)).jaxpr.eqns) == 1 and body.count == 1
    f(ones(2), y=ones(2)), jit(body, static_argnums=1)(ones(2), 3)
    assert body.count == 3
    given = array(ones(2))
    assert jit(body, donate_argnums=0)(given, ones(2))["sum"].tolist() == [2, 2] and given.is_deleted()
    with jaxlite.no_tracing(True):
        assert jit(body, donate_argnums=(0, 1))(ones(2), ones(2))["sum"].tolist() == [2, 2]
        with pytest.raises(RuntimeError, match="re-tracing"):
            jit(body, donate_argnums=(0, 1))(ones(3), ones(3))
    f.clear_cache()
    f(ones(2), ones(2))
    assert body.count == 4


def test_cache_size_and_clearing(count_traces):
    body = count_traces(double)
    f = jit(body)
    assert f._cache_size() == 0
    f(ones(2)), f(ones(3)), f(ones(2))
    assert f._cache_size() == 2
    f.clear_cache()
    assert f._cache_size() == 0
    f(ones(2))
    assert body.count == 3
    jaxlite.clear_caches()
    assert f._cache_size() == 0
    f(ones(2))
    assert body.count == 4
    assert lax.add(ones(2), ones(2)).tolist() == [2, 2]


def test_entries_die_with_their_function():
    class Payload:
        pass

    def make():
        payload, big = Payload(), ones(1000)

        def f(x):
            assert payload
            return lax.add(x, big)

        return jit(f), weakref.ref(payload), weakref.ref(big)

    f, payload, big = make()
    f(ones(1000)), f(ones(1000)), f.lower(ones(1000)).compile()(ones(1000)), jit(lambda x, f=f: f(x))(ones(1000))
    assert payload() is not None
    del f
    gc.collect()
    assert payload() is None and big() is None


def new_gradient(kind, c):
    """The gradient of a function that is made anew, and closes over an array."""
    if kind == "custom_vjp":
        rule = jaxlite.custom_vjp(lambda x: x * c)
        rule.defvjp(lambda x: (x * c, c), lambda c, g: (g * c,))
        return jit(jaxlite.grad(lambda x: rule(x).sum()))
    return jaxlite.grad({
        "jit": jit(lambda x: (lax.sin(x) * c).sum()),
        "checkpoint": jaxlite.checkpoint(lambda x: (lax.sin(x) * c).sum()),
        "scan": lambda x: lax.scan(lambda s, _: (s * c, None), x, None, length=2)[0].sum(),
        "cond": lambda x: lax.cond(x[0] > 0, lambda: x * c, lambda: x - c).sum(),
    }[kind])


@pytest.mark.parametrize("kind", ["jit", "checkpoint", "custom_vjp", "scan", "cond"])
def test_what_is_derived_from_a_function_ends_with_it(kind):
    c = array([2, 3, 4], F32)
    of_array = weakref.ref(c)
    new_gradient(kind, c)(array([1, 1, 1], F32))
    del c
    gc.collect()
    assert of_array() is None


@pytest.mark.parametrize("kind", ["scan", "cond"])
def test_eager_gradients_of_new_functions_of_the_same_code_compile_once(kind):
    x, c = array([1, 1, 1], F32), array([2, 3, 4], F32)
    want = new_gradient(kind, c)(x)
    before = len(jaxlite.compile_report())
    np.testing.assert_array_equal(new_gradient(kind, c)(x), want)
    assert len(jaxlite.compile_report()) == before


def test_numpy_arguments_are_freed_by_the_collector():
    alive = []
    for call in (jit(lambda x: lax.add(x, x)), lax.sin, jaxlite.numpy.asarray):
        argument = np.ones(1000, np.float32)
        alive.append(weakref.ref(argument))
        call(argument).block_until_ready()
        del argument
        gc.collect()
        assert alive[-1]() is None


@pytest.mark.parametrize("read", [str, repr, np.asarray, pickle.dumps, copy.deepcopy, lambda x: x._value, lambda x: x.tolist()])
def test_an_array_is_freed_whose_value_was_read(read):
    x = array(np.ones(1000), F32)
    of_array, where = weakref.ref(x), x.unsafe_buffer_pointer()
    read(x)
    x = jit(lambda x: x + 1, donate_argnums=0)(x)
    assert of_array() is None and x.unsafe_buffer_pointer() == where


def test_a_function_without_tracing_cycles_dies_at_once():
    def make():
        big = ones(10)
        return jit(lambda x: lax.add(x, big)), weakref.ref(big)

    gc.disable()
    try:
        for use in (lambda f: f(ones(10)), lambda f: f.eval_shape(ones(10)), lambda f: f.lower(ones(10))):
            f, big = make()
            use(f)
            del f
            assert big() is None
    finally:
        gc.enable()


# --- disable_jit, debug_nans -------------------------------------------------------------------------


def test_disable_jit_runs_the_function_itself():
    @jit
    def f(x):
        return double(x) if x.tolist() > 0 else x

    with jaxlite.disable_jit():
        assert f(array(3, F32)).tolist() == 6
        with jaxlite.disable_jit(False), pytest.raises(jaxlite.errors.ConcretizationTypeError):
            f(array(3, F32))
    jaxlite.config.update("jax_disable_jit", True)
    try:
        assert f(array(-3, F32)).tolist() == -3
    finally:
        jaxlite.config.update("jax_disable_jit", False)


def test_disabled_jit_is_no_call_in_a_trace():
    inner = jit(double)

    def f(x):
        with jaxlite.disable_jit():
            return inner(x)

    assert "jit" not in [eqn.primitive.name for eqn in jit(f).trace(ones(2)).jaxpr.eqns]


def test_debug_nans():
    f = jit(lambda x: lax.log(x))
    assert np.isnan(f(F32(-1)))
    with jaxlite.debug_nans(True):
        for _ in range(2):
            with pytest.raises(FloatingPointError, match="nan"):
                f(F32(-1))
        assert f(F32(1)).tolist() == 0
        for action in (lambda: lax.log(F32(-1)), lambda: jit(lambda x: lax.exp(lax.neg(lax.log(x))))(F32(-1))):
            with pytest.raises(FloatingPointError, match=rf"nan.* in log at .*{HERE}:\d+"):
                action()
        with pytest.raises(FloatingPointError, match="nan"):
            jit(lambda x: lax.log(x), donate_argnums=0)(array(-1, F32))
        assert jit(lambda x: (x, lax.gt(x, x)))(1)[0].tolist() == 1
    assert np.isnan(f(F32(-1)))


# --- devices, asynchrony -----------------------------------------------------------------------------


def test_device_and_backend_options():
    cpu = jaxlite.devices("cpu")[0]
    for options in ({"device": cpu}, {"backend": "cpu"}):
        out = jit(double, **options)(ones(2))
        assert out.device == cpu and out.committed
    assert not jit(double)(ones(2)).committed


def test_two_devices():
    out = run_python("""
import warnings
import numpy as np, jaxlite
from jaxlite import lax
zero, one = jaxlite.devices()
f = jaxlite.jit(lambda x, y: lax.add(x, y))
x = np.ones(2, np.float32)
a, b = jaxlite.device_put(x, zero), jaxlite.device_put(x, one)
for _ in range(2):
    assert f(x, x).device == zero and not f(x, x).committed
    assert f(x, b).device == one and f(x, b).committed
    assert f(b, b).tolist() == [2, 2]
    with jaxlite.default_device(one):
        assert f(x, x).device == one and f(a, x).device == zero
        assert lax.add(x, x).device == one
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        g = jaxlite.jit(lambda x: lax.add(x, x), device=one)
    assert [each.category for each in found] == [DeprecationWarning]
    assert g(x).device == one and g(a).device == one
    try:
        f(a, b)
    except ValueError as error:
        assert "device ids [0]" in str(error) and "device ids [1]" in str(error), error
        assert "incompatible devices" in str(error), error
    else:
        raise AssertionError("no error")
free = f(x, x)                      # uncommitted on the first device: goes where the other argument is
assert f(free, b).device == one
compiled = f.lower(b, b).compile()
assert compiled(b, b).device == one and compiled(x, x).device == one
try:
    compiled(a, a)
except ValueError as error:
    assert "was compiled for" in str(error), error
else:
    raise AssertionError("no error")
print("done")
""", XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert out == "done\n"


def test_a_call_returns_before_the_work_is_done():
    @jit
    def work(x):
        for _ in range(12):
            x = lax.dot(x, x)
        return {"out": x}

    x = array(np.eye(700, dtype=F32))
    out = jaxlite.block_until_ready(work(x))
    assert jaxlite.block_until_ready(out) is out and out["out"].is_ready()
    assert not all(work(x)["out"].is_ready() for _ in range(9))  # a busy machine may come back late to us now and then
    assert out["out"].block_until_ready() is out["out"]
    assert jaxlite.block_until_ready([1, None, "text"]) == [1, None, "text"]


def test_equations_of_calls_say_all_that_was_given():
    """As in JAX; libraries make other equations of them."""

    @jit
    def f(x, y):
        return x * y, x

    told = {"donated_invars": (False,) * 2, "keep_unused": False, "in_shardings": (None,) * 2, "out_shardings": (None,) * 2,
            "in_layouts": (None,) * 2, "out_layouts": (None,) * 2, "compiler_options_kvs": ()}
    plain, batched = jaxlite.make_jaxpr(f)(1.0, 2.0), jaxlite.make_jaxpr(jaxlite.vmap(f))(ones(2), ones(2))
    pushed = jaxlite.make_jaxpr(lambda x, y: jaxlite.jvp(f, (x, y), (x, y)))(1.0, 2.0)
    for jaxpr, factor in ((plain, 1), (batched, 1), (pushed, 2)):
        (eqn,) = jaxpr.eqns
        assert told == {name: value[::factor] if isinstance(value, tuple) else value for name, value in eqn.params.items()
                        if name in told}
        assert len(eqn.params["in_shardings"]) == len(eqn.invars) and len(eqn.params["out_layouts"]) == len(eqn.outvars)
    assert "shardings" not in str(plain) and "out_shardings" in plain.pretty_print(custom_pp_eqn_rules=False)


def test_compiler_options_are_those_of_whole_programs():
    f = jit(double, compiler_options={"xla_cpu_enable_fast_math": True})
    assert jaxlite.vmap(f)(ones(2)).tolist() == [2, 2] and jaxlite.grad(lambda x: f(x))(1.0) == 2
    for call in (f, jit(double, compiler_options={"xla_cpu_enable_fast_math": True}, inline=True)):
        with pytest.raises(ValueError, match="part of another: double"):
            jit(lambda x, call=call: call(x))(1.0)


def test_compiler_options():
    f = jit(double, compiler_options={"xla_cpu_enable_fast_math": True, "xla_backend_optimization_level": 1,
                                      "xla_dump_to": ""})
    assert f(ones(2)).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="No such compile option.*not_there"):
        jit(double, compiler_options={"not_there": 1})(ones(2))
    with pytest.raises(TypeError, match="xla_dump_to"):
        jit(double, compiler_options={"xla_dump_to": ["a"]})


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about glibc's memory")
def test_the_memory_of_a_freed_array_is_kept_for_the_next():
    place = run_python("""if True:
        import jaxlite, numpy as np
        jaxlite.devices()
        block = np.empty(8 << 20, np.uint8)  # from the library that XLA asks, too
        for line in open("/proc/self/maps"):
            start, end = (int(bound, 16) for bound in line.split()[0].split("-"))
            if start <= block.ctypes.data < end:
                print(line.split()[-1])
        """)
    assert place == "[heap]\n"  # and not a mapping of its own, which is given back


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about glibc's memory")
def test_a_thread_keeps_the_memory_of_a_block_for_which_it_made_a_region():
    faults = run_python("""if True:
        import ctypes, resource, threading
        import jaxlite
        jaxlite.devices()
        library = ctypes.CDLL(None)
        library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        library.free.argtypes, size = [ctypes.c_void_p], 24 << 20

        def run():
            for _ in range(2):
                library.malloc(size)  # they fill most of the thread's first region
            for turn in range(3):
                before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
                block = library.malloc(size)
                ctypes.memset(block, 1, size)
                library.free(block)
            print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        """)
    assert int(faults) < 100  # a fault for each of 6000 pages if the region is given back


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about glibc's memory")
def test_a_call_does_not_map_its_temporaries_anew():
    faults, size = run_python("""if True:
        import os, resource
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core: all calls are in one thread, with one memory
        import jaxlite as jax, numpy as np

        def loss(w, x):
            for each in w:
                x = jax.numpy.tanh(x @ each)
            return x.sum()

        arguments = [np.eye(32, dtype=np.float32)] * 6, np.ones((60_000, 32), np.float32)
        compiled = jax.jit(jax.grad(loss)).lower(*arguments).compile()
        faults = []
        for _ in range(8):  # others that are done in between map memory, too
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            jax.block_until_ready(compiled(*arguments))
            faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        print(min(faults), compiled.memory_analysis().temp_size_in_bytes)
        """).split()
    pages = int(size) // os.sysconf("SC_PAGE_SIZE")
    assert pages > 10_000 and int(faults) < pages // 2
