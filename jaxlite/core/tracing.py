"""Traces and tracers: how a Python function that computes with boxed values becomes something else.

One trace is current in each thread; `Primitive.bind` hands it every operation. With none under way that is
the eager trace, which runs the operation. Other traces (`jaxlite.traces`) set their own for as long
as they run a function, and box its arguments in their tracers.

An operator of a tracer, `x + y`, is found on the class; `jaxlite.numpy` puts it there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from jaxlite.core import config, dtypes, errors
from jaxlite.core.aval import AbstractRef
from jaxlite.core.jaxpr import DebugInfo
from lowering import xla


class Trace:
    """An interpreter at work. Subclasses say what applying a primitive means."""

    __slots__ = ("alive", "debug_info", "is_in_function", "__weakref__")

    def __init__(self, debug_info: DebugInfo | None = None):
        self.alive = True
        self.is_in_function = False
        self.debug_info = debug_info

    def process(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Apply a primitive to values, some of them this trace's tracers. Traces of libraries call it `process_primitive`."""
        if primitive.hand_over is not None and (process := getattr(self, f"process_{primitive}", None)) is not None:
            return primitive.hand_over(process, args, params)
        if primitive.known_to_libraries_as is not None:
            return primitive.known_to_libraries_as(*args, **params)
        if primitive.params_for_libraries is not None:
            params = primitive.params_for_libraries(params)
        return self.process_primitive(primitive, args, params)

    def process_primitive(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """`process`, as libraries name it."""
        if type(self).process is Trace.process:
            raise NotImplementedError(f"{type(self).__name__} does not say what applying a primitive means")
        return self.process(primitive, args, params)

    @property
    def main(self) -> Trace:
        """What all tracers of one transformation share: the trace itself."""
        return self

    def full_raise(self, x: Any) -> Any:
        """The value itself: tracers of outer traces need no boxes. Traces of libraries may replace it."""
        return x

    def apply(self, primitive: Any, args: Any, params: dict[str, Any]) -> Any:
        """`process` while another trace is current."""
        with set_trace(self):
            return self.process(primitive, args, params)

    # An equation carries the traceback of the place in the user's code that it comes from. Taking one is a good part of
    # the price of recording, so what makes several equations for one place takes one for all of them.

    def pin(self, traceback: Any) -> None:
        """Say where the equations come from that are recorded from now on; None: each from where it is recorded."""

    def run(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Call a public function that is a program of its own in JAX."""
        if self.is_in_function:
            return function(*args, **kwargs)
        self.is_in_function = True
        try:
            return function(*self.arguments(args), **kwargs)
        finally:
            self.is_in_function = False

    def arguments(self, args: Any) -> Any:
        """The arguments of such a function, as the function sees them."""
        return args

    def pin_here(self) -> bool:
        """Pin to the place that is running, unless there is a pin. If this gives True, remove it with `pin(None)`."""
        return False


class _State(threading.local):
    """Per thread: the current trace, the named axes, and the names of the scopes (`core/scopes.py`)."""

    trace: Any = None
    axis_sizes: dict[Any, int] = {}
    axis_indices: dict[Any, Any] = {}  # for axes that are not examples: what gives the index, as of a kernel's grid
    batch_cut: Any = None  # how the axis of the batching rule that runs is on explicit mesh axes
    scopes: tuple[str, ...] = ()
    log: dict[Any, Any] | None = None  # what the backward pass that runs has logged (`traces/backward_logs.py`)
    recomputes = False  # whether what is traced is part of a checkpoint
    pushes_forward = False  # whether what is linearized will be applied to tangents, and not transposed


state = _State()
_tracing = config.tracing.state  # whether a trace is under way, for C++


def set_eager_trace(trace: Trace) -> None:
    """Install the trace that runs operations at once, for all threads."""
    _State.trace = trace


def is_eager() -> bool:
    """Whether no trace is under way in this thread."""
    return state.trace is _State.trace


def runs_at_once() -> bool:
    """Whether operations run at once, be it in a function that is differentiated or batched."""
    trace = state.trace
    while (around := getattr(trace, "parent", None)) is not None:
        trace = around
    return trace is _State.trace


class set_trace:
    """Make a trace current inside a `with` block."""

    __slots__ = ("trace", "previous", "previous_flag")

    def __init__(self, trace: Trace):
        self.trace = trace

    def __enter__(self) -> Trace:
        self.previous = state.trace
        self.previous_flag = _tracing.swap_local(self.trace is not _State.trace)
        state.trace = self.trace
        return self.trace

    def __exit__(self, *exc: Any) -> None:
        state.trace = self.previous
        _tracing.set_local(self.previous_flag)


def eager_execution() -> set_trace:
    """Run operations at once inside a `with` block, whatever is being traced around it."""
    return set_trace(_State.trace)


class _CompileTimeTrace(Trace):
    """Runs operations on concrete values at once; hands those on values of the trace around it to that one."""

    __slots__ = ("outer",)

    def __init__(self, outer: Trace):
        super().__init__()
        self.outer = outer

    def process(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        traced = any(isinstance(arg, Tracer) for arg in args)
        return (self.outer if traced else _State.trace).apply(primitive, args, params)


@contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Inside a `with` block in a traced function, compute operations on concrete values eagerly.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> @jaxlite.jit
    ... def f(x):
    ...     with jaxlite.ensure_compile_time_eval():
    ...         positive = jnp.sin(3.0) > 0
    ...     return x if positive else -x
    >>> f(1.0)
    Array(1., dtype=float32, weak_type=True)
    """
    with set_trace(_State.trace if is_eager() else _CompileTimeTrace(state.trace)):
        yield


def is_concrete(x: Any) -> bool:
    """Whether the value of `x` is known now: all but tracers; also tracers of a known array beside a derivative."""
    return not (isinstance(x, Tracer) and isinstance(x.known(), Tracer))


def unmapped_axis(name: Any, who: str = "") -> NameError:
    """The error for a collective, of this name, over a name that nothing binds."""
    bound = ", ".join(map(repr, state.axis_sizes)) or "none"
    what = f"Found an unbound axis name: {name}. To fix this, please call {who} under `jax.shard_map`." if who else \
        f"unbound axis name: {name}"
    return NameError(f"{what}\nNames bound here: {bound}. shard_map binds the axes of its mesh, vmap its axis_name.")


class RefMethods:
    """What tracers of mutable arrays do; set by `jaxlite.state`, which is there before the first of them."""

    new: Any = None
    get: Any = None
    set: Any = None
    add: Any = None
    at: Any = None
    freeze: Any = None
    reshape: Any = None


ref_methods = RefMethods()


class Tracer:
    """A value boxed by a trace. It has a type (`aval`) and no data.

    NumPy's attributes and operators are added by `jaxlite.numpy`; what cannot work on a value without
    data raises here.
    """

    __slots__ = ("_trace", "aval", "__weakref__")
    __array_priority__ = 1000
    __hash__ = None  # type: ignore[assignment]
    _trace: Any
    aval: Any

    def __init__(self, trace: Trace, aval: Any = None):
        self._trace = trace
        if aval is not None:
            self.aval = aval

    def _is_traced_array(self) -> bool:  # asked by C++ in isinstance(x, Array)
        return True

    def full_lower(self) -> Any:
        """The value behind the tracer where a tracer is not needed. Tracers of libraries may replace it."""
        return self

    def made_at(self) -> str:
        """The user's line that made the value, or ''."""
        return ""

    def history(self) -> Iterator[str]:
        """Lines for messages: which function was traced, which of its arguments the value depends on."""
        debug = self._trace.debug_info
        if debug is not None:
            yield f"The error occurred while tracing the function {debug}."

    # --- what a type alone answers

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> Any:
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        return len(self.aval.shape)

    @property
    def size(self) -> int:
        return self.aval.size

    @property
    def weak_type(self) -> bool:
        return self.aval.weak_type

    @property
    def itemsize(self) -> int:
        return self.aval.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.aval.size * self.aval.dtype.itemsize

    @property
    def sharding(self) -> Any:
        raise AttributeError(f"The 'sharding' attribute is not available on traced array with shape {self.aval}. "
                             "To query sharding information on tracers, use `jax.typeof(x)`.", name="sharding", obj=self)

    @property
    def memory_space(self) -> Any:
        raise ValueError(f"The 'memory_space' attribute is not available on traced array with shape {self.aval}. Use "
                         "`jax.typeof(x).memory_space` instead.")

    def __len__(self) -> int:
        try:
            return self.aval.shape[0]
        except IndexError:
            raise TypeError("len() of unsized object") from None

    # --- what needs data

    def known(self) -> Any:
        """The concrete array behind this tracer beside a derivative; the tracer itself if its value is not known."""
        return self

    def __bool__(self) -> bool:
        if self.aval.size != 1 and self.aval.shape:
            if self.aval.size == 0:
                raise ValueError("The truth value of an empty array is ambiguous. Use `array.size > 0`.")
            raise ValueError("The truth value of an array with more than one element is ambiguous. "
                             "Use a.any() or a.all()")
        raise errors.TracerBoolConversionError(self)

    def __index__(self) -> int:
        if self.aval.shape or not dtypes.issubdtype(self.aval.dtype, np.integer):
            raise TypeError(f"Only integer scalar arrays can be converted to a scalar index, got {self.aval}")
        raise errors.TracerIntegerConversionError(self)

    def _scalar(self, kind: str) -> Any:
        if self.aval.shape and (kind != "Python" or self.aval.size != 1):
            raise TypeError(f"Only scalar arrays can be converted to Python scalars; got arr.ndim={self.ndim}")
        conversion = "" if kind == "Python" else f"use .astype({kind}) to convert its dtype, or "
        raise errors.ConcretizationTypeError(self, f"a traced value has no {kind} value; {conversion}mark the argument static "
                                                   "(static_argnums, static_argnames)")

    def __int__(self) -> int:
        return self._scalar("int")

    def __float__(self) -> float:
        return self._scalar("float")

    def __complex__(self) -> complex:
        return self._scalar("complex")

    def item(self, *args: Any) -> Any:
        if args:
            raise errors.ConcretizationTypeError(self, "a traced array has no elements that Python can read")
        return self._scalar("Python")

    def tolist(self) -> Any:
        raise errors.ConcretizationTypeError(self, "a traced array cannot become a list")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise errors.TracerArrayConversionError(self)

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        raise errors.ConcretizationTypeError(self, "a traced array cannot be exported through DLPack")

    def __copy__(self) -> Tracer:
        return self

    def __deepcopy__(self, memo: Any) -> Tracer:
        return self

    def __reduce__(self) -> Any:
        raise errors.ConcretizationTypeError(self, "a traced array cannot be pickled")

    def __setitem__(self, index: Any, value: Any) -> None:
        if type(self.aval) is AbstractRef:
            return ref_methods.set(self, index, value)
        raise TypeError("JAX arrays are immutable and do not support in-place item assignment. Instead of "
                        "x[idx] = y, use x = x.at[idx].set(y).")

    def __format__(self, spec: str) -> str:
        if not spec or spec.endswith("s"):
            return format(repr(self), spec)
        raise TypeError(errors.tracer_message(
            f"unsupported format string passed to {type(self).__name__}.__format__, {spec!r}. It asks for the value of a "
            f"traced array with shape {self.aval.str_short()}", self,
            "return the value and format it outside of the traced function"))

    def __repr__(self) -> str:
        return f"JitTracer({'~' if self.weak_type else ''}{self.aval.str_short()})"


def known_value(value: Any, hint: str, *names: str) -> Any:
    """The value itself, or the concrete array behind a tracer.

    Raises: ConcretizationTypeError for other tracers, with a hint that has `{}` in the places of the names.
    """
    if isinstance(value, Tracer) and isinstance(value := value.known(), Tracer):
        raise errors.ConcretizationTypeError(value, hint.format(*names) if names else hint)
    return value


def _refuse(name: str) -> Callable[..., Any]:
    def refuse(self: Tracer, *args: Any, **kwargs: Any) -> Any:
        raise errors.ConcretizationTypeError(self, f"{name!r} is about an array in memory, where a traced one is not yet: ask "
                                             "after the call")

    refuse.__name__ = name
    return refuse


def _no_method(name: str) -> property:
    """An attribute that traced arrays lack: `hasattr` says so, and programs ask it to tell them from arrays in memory."""
    def fail(self: Tracer) -> Any:
        raise AttributeError(f"The {name!r} method is not available on traced array with shape {self.aval.str_short()}: its "
                             "value is not computed yet. Call it on the result, outside of the function.", name=name, obj=self)

    return property(fail)


for _name in ("block_until_ready", "copy_to_host_async"):
    setattr(Tracer, _name, _no_method(_name))
for _name in ("devices", "addressable_data", "unsafe_buffer_pointer", "tobytes", "delete", "is_deleted",
              "on_device_size_in_bytes"):
    setattr(Tracer, _name, _refuse(_name))
for _name in ("addressable_shards", "global_shards", "committed", "is_fully_addressable", "is_fully_replicated"):
    setattr(Tracer, _name, property(_refuse(_name)))


xla.set_tracer_class(Tracer)
