"""One side of the comparison: runs programs with JAX, or with jaxlite in JAX's place, and describes what each gives.

A process of its own, since one process holds one of the two. It reads a list of programs, appends one description for each to a
file while it goes, and knows nothing of what the other side finds. Started by compare.py:
`python worker.py jax|jaxlite PROGRAMS RESULTS`.
"""

from __future__ import annotations

import contextlib
import doctest
import enum
import functools
import gc
import importlib
import inspect
import io
import operator
import os
import pickle
import pkgutil
import re
import signal
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

SIDE = sys.argv[1] if __name__ == "__main__" else "jax"
if SIDE == "jaxlite":
    import jaxlite.as_jax  # noqa: F401

import jax  # noqa: E402
import jax.extend.core  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

SECONDS = 60  # for one program
RAISED, MISSING, NOT_YET = "raised ", " missing", "is in JAX, not yet in jaxlite"


# What programs may use besides jax, jnp, lax and np.


def _weights(x: Any) -> Any:
    """Values in the shape and dtype of x, no two alike: a tangent or a cotangent."""
    x = jnp.asarray(x)
    if x.dtype == jax.dtypes.float0 or not jnp.issubdtype(x.dtype, jnp.inexact):
        return np.zeros(x.shape, jax.dtypes.float0)
    return jnp.cos(jnp.arange(1.0, x.size + 1)).reshape(x.shape).astype(x.dtype)


def push(f: Any, *args: Any) -> Any:
    """The values of f and a derivative in one direction."""
    return jax.jvp(f, args, jax.tree.map(_weights, args))


def pull(f: Any, *args: Any) -> Any:
    """The values of f and their derivative with respect to all arguments, for one cotangent."""
    out, back = jax.vjp(f, *args)
    return out, back(jax.tree.map(_weights, out))


def linear(f: Any, *args: Any) -> Any:
    out, push = jax.linearize(f, *args)
    return out, push(*jax.tree.map(_weights, args))


def total(f: Any) -> Any:
    """f with one real number as its result."""

    def one(*args: Any) -> Any:
        leaves = [x for x in jax.tree.leaves(f(*args)) if jnp.issubdtype(jnp.result_type(x), jnp.inexact)]
        return sum(jnp.sum((x * _weights(x)).real.astype(jnp.float32)) for x in leaves)

    return one


def ruled(f: Any) -> Any:
    """f with a custom derivative rule that is its own derivative."""
    g = jax.custom_jvp(lambda *args: f(*args))
    g.defjvp(lambda primals, tangents: jax.jvp(f, primals, tangents))
    return g


def ruled_back(f: Any) -> Any:
    """The same as a pair of rules for reverse mode."""
    g = jax.custom_vjp(lambda *args: f(*args))
    g.defvjp(lambda *args: (f(*args), args), lambda args, ct: jax.vjp(f, *args)[1](ct))
    return g


def scanned(f: Any) -> Any:
    """f in the body of a scan, over two slices of each argument."""

    def loop(*args: Any) -> Any:
        return jax.lax.scan(lambda n, each: (n + 1, f(*each)), 0, twice(*args))

    return loop


def repeated(f: Any) -> Any:
    """f in the body of a while loop."""

    def loop(*args: Any) -> Any:
        return jax.lax.fori_loop(0, 2, lambda i, out: jax.tree.map(lambda a, b: a + b, f(*args), out), f(*args))

    return loop


def chosen(f: Any) -> Any:
    """f in both branches of a cond."""
    return lambda *args: jax.lax.cond(jnp.arange(3).sum() > 2, f, lambda *args: jax.tree.map(jnp.zeros_like, f(*args)), *args)


def twice(*args: Any) -> Any:
    """Each array beside a second one, in the order of the other end."""
    return jax.tree.map(lambda x: jnp.stack([jnp.asarray(x), jnp.flip(jnp.asarray(x))]), args)


for module in """scipy.cluster.vq scipy.fft scipy.integrate scipy.interpolate scipy.linalg scipy.ndimage scipy.optimize
        scipy.signal scipy.sparse.linalg scipy.special scipy.stats image ops flatten_util tree tree_util dlpack nn.initializers
        custom_batching numpy.fft export""".split():
    with contextlib.suppress(ImportError):  # whatever uses it then says so
        importlib.import_module(f"jax.{module}")

NAMES = {f.__name__: f for f in (push, pull, linear, total, ruled, ruled_back, scanned, repeated, chosen, twice)}


class E(enum.IntEnum):
    A = 1


class I(int):  # noqa: E742
    pass


class F(float):
    pass


class T(tuple):
    """A sequence that has some of the reflected operators."""

    def __radd__(self, other: Any) -> str:
        return "radd"

    def __rmul__(self, other: Any) -> str:
        return "rmul"


class L(list):
    def __radd__(self, other: Any) -> str:
        return "radd"

    def __rmatmul__(self, other: Any) -> str:
        return "rmatmul"

    def __rsub__(self, other: Any) -> str:
        return "rsub"

    def __gt__(self, other: Any) -> Any:
        return "gt"

    def __eq__(self, other: Any) -> Any:
        return "eq"


NAMES |= {each.__name__: each for each in (E, I, F, T, L)}


def namespace() -> dict[str, Any]:
    return {"jax": jax, "jnp": jnp, "np": np, "lax": jax.lax, "nn": jax.nn, "ops": jax.ops, "random": jax.random,
            "tree_util": jax.tree_util, "jsp": jax.scipy, "functools": functools, "operator": operator, "nan": float("nan"),
            "inf": float("inf"), "u32": jnp.uint32, **NAMES}


# Descriptions: data that NumPy alone can read.


def neutral(text: str) -> str:
    """Text without the name of the side, addresses in memory, and colours."""
    text = text.replace("jaxlite.core.array.", "jax.").replace("jaxlite", "jax")
    return re.sub(r"0x[0-9a-f]{6,}|(?<=id=)\d{9,}", "0x", re.sub(r"\x1b\[[0-9;]*m", "", text))


def leaf(x: Any) -> Any:
    for kind in (bool, int, float, complex, str, bytes):  # and no class of JAX's that derives from them
        if isinstance(x, kind) and not isinstance(x, np.generic):
            return (kind.__name__, kind(x) if kind is not str else neutral(x))
    if isinstance(x, (type(None), slice, type(...))):
        return (type(x).__name__, x)
    if isinstance(x, jax.Array):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return ("Key", str(x.dtype), np.asarray(jax.random.key_data(x)))
        return ("Array", bool(x.weak_type), np.asarray(x))
    if isinstance(x, (np.ndarray, np.generic)) or type(x).__name__ == "TypedNdArray":  # JAX's constants and float0
        return ("scalar" if isinstance(x, np.generic) else "ndarray", False, np.asarray(x))
    if isinstance(x, np.dtype):
        return ("dtype", str(x))
    if isinstance(x, type):
        return ("type", x.__name__)
    if callable(x):
        return ("callable", getattr(x, "__name__", type(x).__name__))
    text = neutral(repr(x))[:2000]
    if isinstance(x, jax.extend.core.ClosedJaxpr):
        return ("jaxpr", [[(str(aval.dtype), aval.shape) for aval in avals] for avals in (x.in_avals, x.out_avals)],
                sorted(primitives(x.jaxpr)), text)
    return (type(x).__name__, text)


def primitives(jaxpr: Any) -> Iterator[str]:
    """The names of a jaxpr's primitives, also of the jaxprs in it; what a `jit` calls counts as if it stood there."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name != "jit":
            yield eqn.primitive.name
        for value in eqn.params.values():
            for each in value if isinstance(value, (tuple, list)) else (value,):
                each = getattr(each, "jaxpr", each)
                if hasattr(each, "eqns"):
                    yield from primitives(each)


def describe(x: Any, leaves: list[Any]) -> str:
    """The structure of x as text with a `*` for each leaf, which goes to the list."""
    if isinstance(x, dict):
        return type(x).__name__ + "{" + ", ".join(f"{neutral(repr(k))}: {describe(v, leaves)}" for k, v in x.items()) + "}"
    if isinstance(x, (list, tuple)):
        return type(x).__name__ + "(" + ", ".join(describe(each, leaves) for each in x) + ")"
    if hasattr(type(x), "__dataclass_fields__"):
        fields = (f"{name}={describe(getattr(x, name), leaves)}" for name in x.__dataclass_fields__)
        return f"{type(x).__name__}({', '.join(fields)})"
    leaves.append(leaf(x))
    return "*"


def error(e: BaseException) -> Any:
    public = [each.__name__ for each in type(e).__mro__
              if each.__module__ == "builtins" or getattr(jax.errors, each.__name__, None) is each]
    lines = neutral(str(e)).strip().splitlines()
    return ("error", public, lines[0] if lines else "", type(e).__name__)


class TookTooLong(BaseException):
    pass


@contextlib.contextmanager
def limited() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TookTooLong

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


SETTINGS = ("jax_enable_x64", "jax_numpy_rank_promotion", "jax_numpy_dtype_promotion", "jax_debug_nans", "jax_disable_jit",
            "jax_check_tracer_leaks", "jax_default_matmul_precision")


@contextlib.contextmanager
def kept_settings() -> Iterator[None]:
    kept = {name: getattr(jax.config, name) for name in SETTINGS}
    try:
        yield
    finally:
        for name, value in kept.items():
            if getattr(jax.config, name) != value:
                jax.config.update(name, value)


def evaluate(code: str) -> Any:
    """The value of the last line, an expression; the lines before it are statements."""
    *before, last = code.split("\n")
    names = namespace()
    with kept_settings(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec("\n".join(before), names)
            value = eval(last, names)
            leaves: list[Any] = []
            found: Any = ("value", describe(value, leaves), leaves)
        except Exception as e:
            found = error(e)
    return found, sorted({each.category.__name__ for each in caught if each.category is not ResourceWarning})


# Docstrings


def run_examples(sources: list[str]) -> Any:
    """What each example prints, the class of what it raises included."""
    names: dict[str, Any] = {"jax": jax, "jnp": jnp, "np": np, "lax": jax.lax}
    printed: list[str] = []
    with kept_settings():
        for source in sources:
            printed.append(run_example(source, names))
    return ("printed", printed), []


def run_example(source: str, names: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(compile(source, "<example>", "single"), names)
        except Exception as e:
            return f"{neutral(out.getvalue())}{RAISED}{' '.join(error(e)[1])}{MISSING if NOT_YET in str(e) else ''}"
    return neutral(out.getvalue())


def public_modules() -> Iterator[types.ModuleType]:
    yield jax
    for found in pkgutil.walk_packages(jax.__path__, "jax."):
        parts = found.name.split(".")
        if any(part.startswith("_") for part in parts) or parts[1] in ("jaxlib", "tools", "interpreters"):
            continue
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield importlib.import_module(found.name)


def public_names() -> list[str]:
    """All functions that can be reached by a public path, `module.name`, without classes."""
    names = []
    for module in public_modules():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in dir(module):
                if not name.startswith("_"):
                    value = getattr(module, name, None)
                    if callable(value) and not isinstance(value, type):
                        names.append(f"{module.__name__}.{name}")
    return sorted(set(names))


def parameters(names: list[str]) -> dict[str, list[str]]:
    """The names of the parameters of each function, where Python can tell."""
    found = {}
    for name in names:
        module, _, function = name.rpartition(".")
        with contextlib.suppress(TypeError, ValueError):
            each = inspect.signature(getattr(sys.modules[module], function)).parameters.values()
            found[name] = [one.name for one in each if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    return found


def examples() -> dict[str, list[str]]:
    """The examples in the docstrings of public modules, functions, classes and methods: name -> sources."""
    found: dict[str, list[str]] = {}
    seen: set[int] = set()
    parser = doctest.DocTestParser()

    def add(name: str, thing: Any) -> None:
        text = getattr(thing, "__doc__", None)
        if not isinstance(text, str) or ">>>" not in text or hash(text) in seen:
            return
        seen.add(hash(text))
        with contextlib.suppress(ValueError):
            sources = [each.source for each in parser.get_examples(text) if not each.options.get(doctest.SKIP)]
            if sources:
                found[name] = sources

    for module in public_modules():
        add(module.__name__, module)
        for name in dir(module):
            if name.startswith("_"):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = getattr(module, name, None)
            if not getattr(value, "__module__", "").startswith("jax") and not isinstance(value, types.ModuleType):
                continue
            add(f"{module.__name__}.{name}", value)
            if isinstance(value, type):
                for inner in vars(value):
                    if not inner.startswith("_"):
                        with contextlib.suppress(Exception):  # attributes of MLIR's classes may raise anything
                            add(f"{module.__name__}.{name}.{inner}", getattr(value, inner, None))
    return found


def main() -> None:
    _, _, programs, results = sys.argv
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with open(programs, "rb") as file:
        work = pickle.load(file)
    with open(results, "ab", buffering=0) as out:
        if work == "names":
            names = public_names()
            pickle.dump((names, parameters(names), examples(), jax.__version__), out)
            return
        for number, program in enumerate(work):
            try:
                with limited():
                    found = evaluate(program) if isinstance(program, str) else run_examples(list(program))
            except TookTooLong:
                found = ("late", SECONDS), []
            except BaseException as e:  # a describing that fails is a finding as well
                found = error(e), []
            out.write(pickle.dumps(found))
            if number % 400 == 399:
                jax.clear_caches()
                gc.collect()


if __name__ == "__main__":
    main()
