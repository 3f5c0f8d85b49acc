"""jit: compile a function on first use of each signature, and run the compiled code after that.

A call goes to jaxlib's C++ path, which flattens the arguments and looks up their signature. What it does not
find comes to `_Jitted.miss`: trace, lower, compile, run, and hand C++ what it needs for the next time. A call
inside a trace becomes a `jit` equation with a sub-jaxpr.

What was traced and compiled is kept for each (function, options) pair and dies with the function.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from jaxlite.core import array as arrays
from jaxlite.core import config, dtypes, errors, source
from jaxlite.core.aval import typematch
from jaxlite.core.collector import seldom_collecting
from jaxlite.core.filtering import hide_own_frames
from jaxlite.core.jaxpr import ClosedJaxpr, DebugInfo, DropVar, eval_jaxpr
from jaxlite.core.primitive import Primitive
from jaxlite.core.tracing import Tracer, is_eager, state
from jaxlite.core.values import AVAL_OF, aval_of
from jaxlite.interpreters import compile_report, explain, placement
from jaxlite.interpreters.staging import hoist_consts, trace_to_jaxpr
from lowering import platforms, progress, report, xla

if TYPE_CHECKING:
    from jaxlite.interpreters import execution

_registry = xla.pytree_registry
_flatten = _registry.flatten

# --- arguments: which are static, which donated ------------------------------------------------------


class Options:
    """What `jit` was asked for, normalised; hashable, part of the key of shared caches."""

    __slots__ = ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames", "keep_unused", "device",
                 "inline", "compiler_options", "key")

    def __init__(self, static_argnums: tuple[int, ...], static_argnames: tuple[str, ...],
                 donate_argnums: tuple[int, ...], donate_argnames: tuple[str, ...], keep_unused: bool, device: Any,
                 inline: bool, compiler_options: dict[str, Any] | None):
        self.static_argnums, self.static_argnames = static_argnums, static_argnames
        self.donate_argnums, self.donate_argnames = donate_argnums, donate_argnames
        self.keep_unused, self.device, self.inline = keep_unused, device, inline
        self.compiler_options = compiler_options
        check_compiler_options(compiler_options)
        self.key = (static_argnums, static_argnames, donate_argnums, donate_argnames, keep_unused, device, inline,
                    tuple(sorted(compiler_options.items())) if compiler_options else None)


def check_compiler_options(options: dict[str, Any] | None) -> None:
    """Raises TypeError for a value that no XLA option takes; which options there are, XLA knows."""
    for name, value in (options or {}).items():
        if not isinstance(value, (str, bool, int, float)):
            raise TypeError(f"compiler option {name!r} must be a str, bool, int or float, got {type(value)}")


def _as_ints(value: Any, what: str) -> tuple[int, ...] | None:
    if value is None:
        return None
    items = value if isinstance(value, Iterable) else (value,)
    try:
        return tuple(item.__index__() for item in items)
    except AttributeError:
        raise TypeError(f"{what} must be an int or a sequence of ints, got {value!r}") from None


def _as_names(value: Any, what: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = (value,) if isinstance(value, str) else tuple(value)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{what} must be a str or a sequence of strs, got {value!r}")
    return names


def _signature(fun: Callable) -> inspect.Signature | None:
    try:
        return inspect.signature(fun)
    except (ValueError, TypeError):
        return None


_NOT_A_FUNCTION = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _resolve(signature: inspect.Signature | None, argnums: Any, argnames: Any, what: str, fun_name: str,
             ) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Infer argument numbers and names from each other, as far as the signature tells, and check them."""
    nums = _as_ints(argnums, f"{what}_argnums")
    names = _as_names(argnames, f"{what}_argnames")
    if signature is None:
        return nums or (), names or ()
    parameters = list(signature.parameters.values())
    positional = [each.name for each in parameters if each.kind in _POSITIONAL]
    kinds = {each.kind for each in parameters}
    if nums is not None:
        if inspect.Parameter.VAR_POSITIONAL not in kinds:
            for num in nums:
                if not -len(positional) <= num < len(positional):
                    raise ValueError(f"jitted function {fun_name} has {what}_argnums={nums}, but only accepts "
                                     f"{len(positional)} positional arguments.")
            nums = tuple(num % len(positional) for num in nums)
    if names is not None and inspect.Parameter.VAR_KEYWORD not in kinds:
        accepted = {each.name for each in parameters if each.kind not in
                    (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)}
        unknown = [name for name in names if name not in accepted]
        if unknown:
            raise ValueError(f"jitted function {fun_name} has invalid argnames {set(unknown)!r} in {what}_argnames; "
                             f"it takes {sorted(accepted)}.")
    if nums is None and names is None:
        return (), ()
    if nums is None:
        assert names is not None
        return tuple(index for index, name in enumerate(positional) if name in names), names
    if names is None:
        keywords = {each.name for each in parameters if each.kind == inspect.Parameter.POSITIONAL_OR_KEYWORD}
        return nums, tuple(positional[num] for num in nums
                           if -len(positional) <= num < len(positional) and positional[num] in keywords)
    return nums, names


# --- what is known of one function under one set of options ------------------------------------------


class Program:
    """One traced signature: its jaxpr, the output tree, and the executables made from it so far."""

    __slots__ = ("closed", "hoisted", "out_tree", "name", "donated", "options", "executables", "modules", "lock",
                 "result_names", "trace_seconds", "debug_info", "in_tree", "static", "reason")

    def __init__(self, closed: ClosedJaxpr, in_tree: Any, out_tree: Any, name: str, donated: tuple[bool, ...],
                 options: Options, trace_seconds: float, debug_info: DebugInfo, static: str):
        self.closed, self.in_tree, self.out_tree, self.name, self.donated = closed, in_tree, out_tree, name, donated
        self.options, self.trace_seconds, self.debug_info = options, trace_seconds, debug_info
        self.static = static  # the static arguments, as text
        self.reason = ""  # why it was traced, if that was asked and not told yet
        self.hoisted: ClosedJaxpr | None = None
        self.executables: dict[Any, execution.Executable] = {}
        self.modules: dict[str, Any] = {}  # that users asked for, by platform
        self.lock = threading.Lock()

    def is_stale(self) -> bool:
        """Whether it closes over tracers of a trace that has ended."""
        return any(isinstance(const, Tracer) and not const._trace.alive for const in self.closed.consts)

    def lower(self, platform: str) -> Any:
        """A module for a platform. Warns of donated arguments whose memory no result can take."""
        from jaxlite.interpreters import execution  # with all of lowering: not before something is compiled

        for const in self.closed.consts:
            if isinstance(const, Tracer):
                raise errors.UnexpectedTracerError(const)
        with seldom_collecting:
            lowered = execution.lower_jaxpr(self.closed, self.name, platform, donated=self.donated,
                                            keep_unused=self.options.keep_unused, result_names=_result_names(self.out_tree),
                                            argument_names=self.debug_info.arg_names)
        if lowered.unusable:
            _warn("Some donated buffers were not usable: " + ", ".join(aval.str_short() for aval in lowered.unusable)
                  + ". No result has their type; do not donate them.")
        return lowered

    def module(self, platform: str) -> Any:
        """`lower`, remembered: for users who ask for the module itself."""
        found = self.modules.get(platform)
        if found is None:
            found = self.modules.setdefault(platform, self.lower(platform))
        return found

    def executable(self, device: Any, committed: bool, lowered: Any = None,
                   options: dict[str, Any] | None = None) -> execution.Executable:
        """Compiled for a device; at most once for each set of options, however many threads ask.

        Args: `lowered` the module if there is one already; `options` go before the function's own.
        """
        from jaxlite.interpreters import execution  # with all of lowering: not before something is compiled

        if options:
            check_compiler_options(options)
            options = {**(self.options.compiler_options or {}), **options}
        else:
            options = self.options.compiler_options
        key = (device, committed, tuple(sorted(options.items())) if options else None, execution.fusion_barriers(options))
        found = self.executables.get(key)
        if found is None:
            with self.lock:
                found = self.executables.get(key)
                if found is None:
                    found = self.executables[key] = self._compile(key, lowered, options)
        return found

    def _compile(self, key: tuple[Any, ...], lowered: Any, options: dict[str, Any] | None) -> execution.Executable:
        from jaxlite.interpreters import execution  # with all of lowering: not before something is compiled

        device, committed, *_ = key
        seconds = {"trace": 0.0 if self.executables else self.trace_seconds, "lower": 0.0}
        made = shortcut = None
        if lowered is None:
            with seldom_collecting:
                shortcut = execution.find_shortcut(self.closed, self.name, device, options, self.donated,
                                                   self.options.keep_unused)
            if shortcut is not None:
                made = execution.follow(shortcut, self.closed, device, committed, self.trace_seconds)
            if made is None:
                with progress.Stage(self.name, "lowering", seconds["trace"]):
                    lowered = self.lower(platforms.platform_of(device))
                seconds["lower"] = lowered.seconds
        elif not self.executables:
            seconds["lower"] = lowered.seconds
        if made is None:
            with progress.Stage(self.name, "compiling", sum(seconds.values())):
                made = execution.compile_lowered(lowered, self.closed, device, committed, options, self.trace_seconds, shortcut)
        seconds["compile"] = made.compile_seconds
        location, reason = self.debug_info.location, ""
        if config.explain_cache_misses.value:
            reason = self.reason or (explain.other_executable(key, list(self.executables)) if self.executables else
                                     "traced before, compiled now")
            explain.tell("compiled", location, {stage: time for stage, time in seconds.items() if time}, reason,
                         made.cached)
        self.reason = ""
        compile_report.record(self.name, location, self.closed.in_avals, self.static, device, seconds, made.cached, reason)
        return made

    def as_operand(self) -> tuple[ClosedJaxpr, list[Any]]:
        """The program with its consts as leading arguments, and the consts."""
        if self.hoisted is None:
            self.hoisted = hoist_consts(self.closed.jaxpr)
        return self.hoisted, self.closed.consts


def _paths(tree: Any) -> list[tuple[Any, ...]]:
    """The key path of each leaf; empty paths if a node of the tree refuses leaves that are not arrays."""
    try:
        return [path for path, _ in _registry.flatten_with_path(tree.unflatten(range(tree.num_leaves)))[0]]
    except Exception:  # the user's own class
        return [()] * tree.num_leaves


def _result_names(out_tree: Any) -> list[str]:
    return ["result" + "".join(map(str, path)) for path in _paths(out_tree)]


def _warn(message: str) -> None:
    """A warning at the user's line."""
    frame = source.user_frame(source.current_traceback())
    warnings.warn_explicit(message, UserWarning, *(frame[:2] if frame else ("jaxlite", 1)))


Made = TypeVar("Made")


class PerFunction(Generic[Made]):
    """A dict for each function, which dies with the function."""

    __slots__ = ("_dicts",)

    def __init__(self) -> None:
        self._dicts: weakref.WeakKeyDictionary[Any, dict[Any, Made]] = weakref.WeakKeyDictionary()

    def of(self, fun: Callable) -> dict[Any, Made]:
        """The dict of a function; one that nobody keeps if the function is unhashable, or cannot be referenced weakly."""
        try:
            found = self._dicts.get(fun)
            return self._dicts.setdefault(fun, {}) if found is None else found
        except TypeError:
            return {}

    def clear(self) -> None:
        """Empty every dict, also for those who hold one."""
        for reference in self._dicts.keyrefs():  # a list made at once: other threads may be adding theirs
            fun = reference()
            if fun is not None:
                self.of(fun).clear()


_programs: PerFunction[Program] = PerFunction()  # by (options, signature)
_call_cache = xla.PjitFunctionCache(capacity=16384)


def clear_caches() -> None:
    """Forget everything that was traced and compiled; the next calls start over."""
    _programs.clear()
    xla.PjitFunctionCache.clear_all()
    for hook in clear_hooks:
        hook()


clear_hooks: list[Callable[[], None]] = []


class _Jitted:
    """The Python side of one jitted function."""

    __slots__ = ("fun", "name", "options", "programs", "call_path", "__weakref__")

    def __init__(self, fun: Callable, options: Options):
        self.fun, self.options = fun, options
        self.name = source.function_name(fun)
        self.programs = _programs.of(fun)
        self.call_path: Any = None

    # --- signatures

    def split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple, dict, tuple, tuple]:
        """Dynamic positional and keyword arguments, and static ones as (index, value) and (name, value)."""
        options = self.options
        static: list[tuple[int, Any]] = []
        if options.static_argnums:
            count = len(args)
            nums = {num % count for num in options.static_argnums if -count <= num < count}
            static = [(num, _Static(args[num])) for num in sorted(nums)]
            args = tuple(arg for index, arg in enumerate(args) if index not in nums)
        named: list[tuple[str, Any]] = []
        if options.static_argnames and kwargs:
            named = [(name, _Static(kwargs[name])) for name in sorted(kwargs) if name in options.static_argnames]
            if named:
                kwargs = {name: value for name, value in kwargs.items() if name not in options.static_argnames}
        return args, kwargs, tuple(static), tuple(named)

    def program(self, args: tuple[Any, ...], kwargs: dict[str, Any],
                abstract: Callable[[Any], Any] | None = None) -> tuple[Program, list[Any]]:
        """The traced program for a call, and the call's flat dynamic arguments.

        `abstract` gives the abstract value of an argument; without it, arguments are arrays and scalars.
        """
        static: tuple = ()
        named: tuple = ()
        if self.options.static_argnums or self.options.static_argnames:
            args, kwargs, static, named = self.split(args, kwargs)
        try:
            leaves, in_tree = _flatten((args, kwargs))
        except SystemError:  # what C++ makes of a RecursionError
            raise RecursionError(f"an argument of {source.function_location(self.fun)} is nested too deeply, or contains "
                                 "itself") from None
        avals = self._avals(leaves, in_tree, abstract)
        key = (self.options.key, in_tree, avals, static, named, xla.trace_context(),
               tuple(state.axis_sizes.items()))
        try:
            program = self.programs.get(key)
        except TypeError:
            self._check_hashable(static, named)
            raise
        if program is None or program.is_stale():
            reason = self._reason(key, in_tree) if config.explain_cache_misses.value else ""
            traced = self._trace(in_tree, avals, static, named)
            if not self.programs:
                explain.remember(self.fun)
            if reason and abstract is None and is_eager():
                traced.reason = reason  # told with the compile that follows
            elif reason:
                explain.tell("traced" if is_eager() else "traced inside another function:", traced.debug_info.location,
                             {"trace": traced.trace_seconds}, reason)
            if program is None:
                program = self.programs.setdefault(key, traced)
            else:
                program = self.programs[key] = traced
        return program, leaves

    def _reason(self, key: tuple[Any, ...], in_tree: Any) -> str:
        leaves = functools.cache(argument_names(self.fun, in_tree, self.options))
        names = explain.Names(*parameter_names(self.fun), leaves, Options.__slots__)
        return explain.reason(self.fun, key, list(self.programs), names)

    def _check_hashable(self, static: tuple, named: tuple) -> None:
        for which, box in (*static, *named):
            try:
                hash(box)
            except TypeError:
                raise ValueError(
                    f"Non-hashable static arguments are not supported: argument {which!r} of "
                    f"{source.function_location(self.fun)} is static and is of type {type(box.value)}, which cannot "
                    "be hashed. Pass a tuple instead of a list or an array, or do not mark it static.") from None

    def _avals(self, leaves: list[Any], in_tree: Any, abstract: Callable[[Any], Any] | None) -> tuple[Any, ...]:
        avals = []
        for index, leaf in enumerate(leaves):
            try:
                if abstract is not None:
                    avals.append(abstract(leaf))
                else:
                    handler = AVAL_OF.get(type(leaf))
                    avals.append(aval_of(leaf) if handler is None else handler(leaf))
            except OverflowError as error:
                raise OverflowError(f"{error}; it is the argument {self._argument_name(index, in_tree)} of "
                                    f"{source.function_location(self.fun)}") from None
            except TypeError as error:
                raise TypeError(
                    f"Error interpreting argument to {source.function_location(self.fun)} as an abstract array. The "
                    f"problematic value is of type {type(leaf)} and was passed to the function at path "
                    f"{self._argument_name(index, in_tree)}. Mark it static (static_argnums, static_argnames), or "
                    f"pass an array or a scalar. ({error})") from None
        return tuple(avals)

    def _argument_name(self, index: int, in_tree: Any) -> str:
        return argument_names(self.fun, in_tree, self.options)()[index]

    # --- tracing

    def _trace(self, in_tree: Any, avals: tuple[Any, ...], static: tuple, named: tuple) -> Program:
        fun, options = self.fun, self.options
        start = time.perf_counter()
        debug = DebugInfo("jit", self.name, argument_names(fun, in_tree, options), source.function_location(fun))
        out_tree: Any = None

        def flat(*tracers: Any) -> list[Any]:
            nonlocal out_tree
            args, kwargs = in_tree.unflatten(tracers)
            if static:
                args = list(args)
                for index, box in static:
                    args.insert(index, box.value)
            for name, box in named:
                kwargs[name] = box.value
            outs, out_tree = flatten_outputs(fun(*args, **kwargs), debug)
            return outs

        scopes, state.scopes = state.scopes, ()  # of this caller; others will have the program too
        try:
            with progress.Stage(self.name, "tracing"), seldom_collecting:
                jaxpr, consts = trace_to_jaxpr(flat, avals, debug)
        finally:
            state.scopes = scopes
        donated = _donated(in_tree, options, static)
        return Program(ClosedJaxpr(jaxpr, consts), in_tree, out_tree, self.name, donated, options,
                       time.perf_counter() - start, debug, self._static_text(static, named))

    def _static_text(self, static: tuple, named: tuple) -> str:
        """`n=3, mode='same'`: the static arguments of a signature."""
        if not static and not named:
            return ""
        positional, _ = parameter_names(self.fun) if static else ([], "")
        pairs = [(positional[index] if index < len(positional) else f"#{index}", box) for index, box in static]
        return ", ".join(f"{name}={compile_report.brief(box.value)}" for name, box in (*pairs, *named))

    # --- calls that C++ does not answer

    def miss(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Do one call; give its result and, if later calls may skip Python, the fast path's data."""
        if not is_eager():
            return self.stage(args, kwargs), None
        try:
            program, leaves = self.program(args, kwargs)
            for leaf in leaves:
                if isinstance(leaf, Tracer):
                    raise errors.UnexpectedTracerError(leaf)
            device, committed = placement.target_device(leaves, self.options.device)
            executable = program.executable(device, committed)
            outs = executable(leaves)
        except BaseException as error:
            # C++ would send this signature here for good.
            if self.call_path is not None:
                self.call_path._clear_cache()
            hide_own_frames(error)
            raise
        tree = program.out_tree
        if config.debug_nans.value or config.debug_infs.value:
            _check_finite(program, outs, leaves)
            return tree.unflatten(outs), None
        return tree.unflatten(outs), executable.fast_path(tree)

    def stage(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make the call part of the program being traced."""
        program, leaves = self.program(args, kwargs)
        closed, consts = program.as_operand()
        if self.options.inline:
            outs = eval_jaxpr(closed.jaxpr, [], *consts, *leaves)
        else:
            donated = (False,) * len(consts) + program.donated
            outs = jit_p.bind(*consts, *leaves, jaxpr=closed, name=self.name, donated_invars=donated,
                              keep_unused=self.options.keep_unused, inline=False)
        return program.out_tree.unflatten(outs)


class _Static:
    """A static argument in a key: equal if type and value are."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: Any) -> bool:
        return type(other) is _Static and type(self.value) is type(other.value) and self.value == other.value


def flatten_outputs(result: Any, debug: DebugInfo) -> tuple[list[Any], Any]:
    """The leaves of a traced function's result, checked to be values, and its tree."""
    outs, tree = _flatten(result)
    for index, out in enumerate(outs):
        if not isinstance(out, Tracer):
            try:
                aval_of(out)
            except TypeError as error:
                path = "".join(map(str, _registry.flatten_with_path(result)[0][index][0]))
                raise TypeError(
                    f"function {debug.location or debug.function} traced for {debug.traced_for} returned a value of "
                    f"type {type(out)}{path and f' at output component {path}'}, which is not a valid JAX type. "
                    f"({error})") from None
    return outs, tree


def _check_finite(program: Program, outs: Sequence[Any], leaves: Sequence[Any]) -> None:
    """Raises FloatingPointError if a result holds what an option forbids, with the first operation that made it."""
    checked = [name for name, option in (("nan", config.debug_nans), ("inf", config.debug_infs)) if option.value]
    kind = next((name for out in outs for name in checked if _FORBIDDEN[name](out)), None)
    if kind is None:
        return
    jaxpr, consts = program.closed.jaxpr, program.closed.consts
    if not any(type(leaf) is xla.ArrayImpl and leaf.is_deleted() for leaf in leaves):
        steps = [(eqn, var) for eqn in jaxpr.eqns for var in eqn.outvars if type(var) is not DropVar]
        spread = jaxpr.replace(outvars=[var for _, var in steps])
        with config.debug_nans(False), config.debug_infs(False):
            values = jit(lambda *args: eval_jaxpr(spread, consts, *args))(*leaves)
        for (eqn, _), value in zip(steps, values, strict=True):
            if _FORBIDDEN[kind](value):
                what = eqn.params.get("name", eqn.primitive.name)
                raise FloatingPointError(f"invalid value ({kind}) encountered in {what} at {eqn.source_line}; found in "
                                         f"the result of {program.name}")
    raise FloatingPointError(f"invalid value ({kind}) encountered in {program.name}")


def _has_nan(array: Any) -> bool:
    if not dtypes.issubdtype(array.dtype, np.inexact):
        return False
    value = arrays.host_value(array)
    return bool((value != value).any())


def _has_inf(array: Any) -> bool:
    return dtypes.issubdtype(array.dtype, np.inexact) and bool(np.isinf(arrays.host_value(array)).any())


_FORBIDDEN = {"nan": _has_nan, "inf": _has_inf}


def check_callable(fun: Any) -> None:
    """Raises TypeError for what cannot be called."""
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun!r}")


def parameter_names(fun: Callable) -> tuple[list[str], str]:
    """The names of a function's positional parameters, and of the one that takes the rest."""
    signature = _signature(fun)
    parameters = list(signature.parameters.values()) if signature else []
    rest = next((each.name for each in parameters if each.kind == inspect.Parameter.VAR_POSITIONAL), "args")
    return [each.name for each in parameters if each.kind in _POSITIONAL], rest


def argument_names(fun: Callable, in_tree: Any, options: Options | None) -> Callable[[], list[str]]:
    """A function that gives a name for each flat argument: the parameter's name and the path inside it.

    It does not keep `fun` alive: what was traced must not outlive its function.
    """
    try:
        reference: Callable[[], Any] = weakref.ref(fun)
    except TypeError:
        reference = lambda: fun

    def compute() -> list[str]:
        fun = reference()
        positional, rest = parameter_names(fun) if fun is not None else ([], "args")
        static = set(options.static_argnums) if options else set()
        dynamic = [index for index in range(len(positional) + in_tree.num_leaves + len(static)) if index not in static]
        names = []
        for number, path in enumerate(_paths(in_tree)):
            if not path:
                names.append(f"#{number}")
                continue
            inside = "".join(map(str, path[2:]))
            if path[0].idx == 0:
                base = explain.position_name(positional, rest, dynamic[path[1].idx])
            else:
                base = str(path[1].key)
            names.append(base + inside)
        return names

    return compute


def _donated(in_tree: Any, options: Options, static: tuple) -> tuple[bool, ...]:
    if not options.donate_argnums and not options.donate_argnames:
        return (False,) * in_tree.num_leaves
    args_tree, kwargs_tree = in_tree.children()
    static_nums = {index for index, _ in static}
    total = len(args_tree.children()) + len(static_nums)
    donate = {num % total if num < 0 else num for num in options.donate_argnums if total}
    dynamic = [index for index in range(total) if index not in static_nums]
    flags: list[bool] = []
    for index, child in zip(dynamic, args_tree.children(), strict=True):
        flags += [index in donate] * child.num_leaves
    names = kwargs_tree.node_data()[1]
    for name, child in zip(names, kwargs_tree.children(), strict=True):
        flags += [name in options.donate_argnames] * child.num_leaves
    return tuple(flags)


# --- the decorator -----------------------------------------------------------------------------------


_unset: Any = object()


def jit(fun: Callable = _unset, /, *, static_argnums: int | Sequence[int] | None = None,
        static_argnames: str | Iterable[str] | None = None, donate_argnums: int | Sequence[int] | None = None,
        donate_argnames: str | Iterable[str] | None = None, keep_unused: bool = False, device: Any = None,
        backend: str | None = None, inline: bool = False, compiler_options: dict[str, Any] | None = None) -> Any:
    """Compile a function of arrays with XLA, once for each signature of its arguments.

    Args:
      fun: a function of pytrees of arrays and scalars; pure: it is run once to see what it does, and what it
        does to anything but its result is not repeated by the compiled code. Without it, a decorator is
        returned: `@jit(static_argnums=0)`.
      static_argnums, static_argnames: arguments that are part of the signature by value, and so may be used as
        Python values inside; hashable. Each is inferred from the other through the function's signature.
      donate_argnums, donate_argnames: arguments whose memory the results may take; they are gone after the call.
      keep_unused: keep arguments that the program does not read as parameters of the executable.
      device, backend: where to run, instead of where the arguments are.
      inline: inside another traced function, put the operations there instead of a call.
      compiler_options: XLA options by name, for this function's compiles.

    Returns: a function with the signature of `fun`, and the stages `trace`, `lower`, `eval_shape` beside it.
    Raises: ValueError for argument numbers or names that the function does not have; TypeError at the call for
      arguments that are not arrays, with their path.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> @jaxlite.jit
    ... def selu(x, alpha=1.67, lmbda=1.05):
    ...     return lmbda * jnp.where(x > 0, x, alpha * jnp.exp(x) - alpha)
    >>> print(selu(jnp.arange(3.0)))
    [0.   1.05 2.1 ]
    """
    if fun is _unset:
        return functools.partial(
            jit, static_argnums=static_argnums, static_argnames=static_argnames, donate_argnums=donate_argnums,
            donate_argnames=donate_argnames, keep_unused=keep_unused, device=device, backend=backend, inline=inline,
            compiler_options=compiler_options)
    check_callable(fun)
    if device is not None and backend is not None:
        raise ValueError("can't specify both a device and a backend for jit, got "
                         f"device={device} and backend={backend}")
    flags = getattr(getattr(fun, "__code__", None), "co_flags", 0)
    if flags & _NOT_A_FUNCTION:
        kind = "generator" if flags & inspect.CO_GENERATOR else "coroutine"
        raise TypeError(f"Expected a function, got a {kind} function: {fun}")
    static: tuple[Any, Any] = ((), ())
    donate: tuple[Any, Any] = ((), ())
    if not (static_argnums is None and static_argnames is None and donate_argnums is None and donate_argnames is None):
        signature, name = _signature(fun), source.function_name(fun)
        static = _resolve(signature, static_argnums, static_argnames, "static", name)
        donate = _resolve(signature, donate_argnums, donate_argnames, "donate", name)
        if set(static[0]) & set(donate[0]) or set(static[1]) & set(donate[1]):
            raise ValueError("static_argnums and donate_argnums cannot intersect, "
                             f"static_argnums={static[0]} and donate_argnums={donate[0]}")
    options = Options(*static, *donate, keep_unused, device if device is not None else backend, inline,
                      compiler_options)
    jitted = _Jitted(fun, options)
    path = xla.make_call_path(jitted.name, fun, jitted.miss, options.static_argnums, options.static_argnames,
                              options.key, put_argument, _call_cache)
    jitted.call_path = weakref.proxy(path)
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        value = getattr(fun, attribute, None)
        if value is not None:
            setattr(path, attribute, value)
    path.__wrapped__ = fun
    path._jitted = jitted
    return path


def put_argument(value: Any, sharding: Any, layout: Any) -> Any:
    """What C++ calls to bring an argument to the device of a sharding."""
    return arrays.put_array(value, sharding._device, False)


def jitted_of(path: Any) -> _Jitted:
    """The Python side of a jitted function."""
    return path._jitted


def _reduce(path: Any) -> Any:
    """For pickle: by name where the name leads here, else the function and its options."""
    found: Any = sys.modules.get(path.__module__)
    for name in getattr(path, "__qualname__", "").split("."):
        found = getattr(found, name, None)
    if found is path:
        return path.__qualname__
    jitted = jitted_of(path)
    return _rejit, (jitted.fun, {name: getattr(jitted.options, name) for name in Options.__slots__ if name != "key"})


def _rejit(fun: Callable, options: dict[str, Any]) -> Any:
    return jit(fun, **options)


xla.PjitFunction.__reduce__ = _reduce
xla.PjitFunction.__copy__ = lambda self: self
xla.PjitFunction.__deepcopy__ = lambda self, memo: self


# --- jit as an equation ------------------------------------------------------------------------------

jit_p = Primitive("jit", multiple_results=True)


@jit_p.def_effectful_abstract_eval
def _jit_aval(*avals: Any, jaxpr: ClosedJaxpr, **params: Any) -> Any:
    wanted = jaxpr.in_avals
    if len(avals) != len(wanted) or not all(map(typematch, avals, wanted)):
        raise TypeError(f"jit: the operands are {', '.join(map(str, avals)) or 'none'}, its jaxpr takes "
                        f"{', '.join(map(str, wanted)) or 'none'}")
    return jaxpr.out_avals, jaxpr.effects


@jit_p.def_eager
def _jit_eager(*args: Any, jaxpr: ClosedJaxpr, name: str, **params: Any) -> list[Any]:
    call = _evaluators.get(id(jaxpr))
    if call is None:

        def evaluate(*args: Any) -> list[Any]:
            return eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *args)

        evaluate.__name__ = name
        if len(_evaluators) >= _EVALUATOR_LIMIT:
            _evaluators.clear()
        call = _evaluators[id(jaxpr)] = jit(evaluate)  # it keeps the jaxpr, so its id stays taken
    return call(*args)


_EVALUATOR_LIMIT = 1024
_evaluators: dict[int, Any] = {}
clear_hooks.append(_evaluators.clear)


progress.configure(lambda: config.progress.value)
report.configure(
    log=lambda: config.log_compiles.value,
    folder=lambda: config.dump_ir_to.value,
    modes=lambda: config.dump_ir_modes.value,
    caller=lambda: source.summarize(source.current_traceback()),
    is_hidden=source.is_own_file,
)
