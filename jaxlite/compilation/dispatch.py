"""Dispatch: a call of a jitted function, its signature, its program and executable, and the entry in the C++ cache.

jaxlib's C++ path flattens the arguments and looks up their signature. A miss calls `Jitted.miss`, which traces, lowers,
compiles and runs, and returns what C++ needs for the next call. A call inside a trace becomes a `jit` equation with a sub-
jaxpr.

Programs are cached per (function, options) pair, and freed with the function. Those that differ in options which tracing does
not depend on, such as donation, share one trace.
"""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.compilation import compile_report, explain, lifetime, recompilation, references
from jaxlite.compilation.caches import PerFunction, clear_hooks
from jaxlite.compilation.finite import check_finite
from jaxlite.compilation.options import Options, argument_names, donated_leaves, parameter_names
from jaxlite.compilation.program import Program, flatten_outputs, lowered_types, result_names, spread
from jaxlite.core import array as arrays
from jaxlite.core import config, errors, failed_flattens, source
from jaxlite.core.aval import high_types, typematch
from jaxlite.core.collector import seldom_collecting
from jaxlite.core.filtering import hide_own_frames
from jaxlite.core.jaxpr import ClosedJaxpr, DebugInfo, eval_jaxpr
from jaxlite.core.lazy import loader
from jaxlite.core.primitive import Primitive
from jaxlite.core.shape_dtype import ShapeDtypeStruct
from jaxlite.core.shape_dtype import abstract as described
from jaxlite.core.staging import has_program, high, trace_to_jaxpr
from jaxlite.core.tracing import Tracer, is_eager, state
from jaxlite.core.values import AVAL_OF, aval_of
from jaxlite.devices import placement
from lowering import platforms, progress, xla
from lowering.passes.dce import live_parts

_flatten = xla.pytree_registry.flatten
_programs: PerFunction[Program] = PerFunction()  # by (options, signature)
_traces: PerFunction[Program] = PerFunction()  # by which arguments are static, and signature: the first of each
_call_cache = xla.PjitFunctionCache(capacity=16384)
clear_hooks += [_programs.clear, _traces.clear]


# Called with (jitted, args, kwargs) before a call that C++ does not answer.
observers: list[Callable[[Any, Any, Any], None]] = []


_to_begin = True  # until the first call that is compiled
_execution = loader("jaxlite.compilation.execution")  # with all of lowering: not before something is compiled


def _begin() -> None:
    """Begin to load what an earlier process has used."""
    global _to_begin
    _to_begin = False
    _execution().load_ahead()


class Jitted:
    """The Python side of one jitted function."""

    __slots__ = ("fun", "name", "options", "programs", "traces", "call_path", "on_host", "takes_arrays",
                 "__weakref__")

    def __init__(self, fun: Callable[..., Any], options: Options):
        self.fun, self.options = fun, options
        self.name = source.function_name(fun)
        self.programs, self.traces = _programs.of(fun), _traces.of(fun)
        self.call_path: Any = None
        # Of an eager operation: what may run its first calls, (program, leaves, device, committed) -> results or None.
        self.on_host: Callable[..., list[Any] | None] | None = None
        self.takes_arrays = False  # whether values of high types that stand for arrays become arrays first

    # --- signatures

    def split(self, args: tuple[Any, ...], kwargs: dict[str, Any],
              ) -> tuple[tuple[Any, ...], dict[Any, Any], tuple[Any, ...], tuple[Any, ...]]:
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
        static: tuple[Any, ...] = ()
        named: tuple[Any, ...] = ()
        if self.options.static_argnums or self.options.static_argnames:
            args, kwargs, static, named = self.split(args, kwargs)
        try:
            leaves, in_tree = _flatten((args, kwargs))
        except SystemError:  # what C++ makes of a RecursionError
            raise RecursionError(f"an argument of {source.function_location(self.fun)} is nested too deeply, or contains "
                                 "itself") from None
        if failed_flattens.pending:
            failed_flattens.check(in_tree)
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
            traced = self._new_program(key)
            if not self.programs:
                explain.remember(self.fun)
            if reason and abstract is None and is_eager():
                traced.reason = reason  # logged with the compile that follows
            elif reason:
                explain.tell("traced" if is_eager() else "traced inside another function:", traced.debug_info.func_src_info,
                             {"trace": traced.trace_seconds}, reason)
            if program is None:
                program = self.programs.setdefault(key, traced)
            else:
                program = self.programs[key] = traced
        if program.takes_refs:
            references.check_distinct(leaves, avals, program.closed.consts, source.function_location(self.fun),
                                      program.debug_info.arg_name)
        return program, leaves

    def _reason(self, key: tuple[Any, ...], in_tree: Any, earlier: list[Any] | None = None) -> str:
        leaves = functools.cache(argument_names(self.fun, in_tree, self.options))
        names = explain.Names(*parameter_names(self.fun), leaves, Options.__slots__)
        return explain.reason(self.fun, key, list(self.programs) if earlier is None else earlier, names)

    def _check_hashable(self, static: tuple[Any, ...], named: tuple[Any, ...]) -> None:
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
        if self.takes_arrays and high_types.exist:
            leaves[:] = map(high().as_array, leaves)
        for index, leaf in enumerate(leaves):
            try:
                if abstract is not None:
                    avals.append(abstract(leaf))
                else:
                    handler = AVAL_OF.get(type(leaf))
                    if handler is None and not isinstance(leaf, Tracer) and hasattr(leaf, "__jax_array__"):
                        leaf = leaves[index] = leaf.__jax_array__()
                    elif isinstance(leaf, ShapeDtypeStruct) and not self.takes_arrays:  # enough if the program does not read it
                        handler = described
                    avals.append(aval_of(leaf) if handler is None else handler(leaf))
            except OverflowError as error:
                raise OverflowError("An overflow was encountered while parsing an argument to a jitted computation, whose "
                                    f"argument path is {self._argument_name(index, in_tree)}. It is an argument of "
                                    f"{source.function_location(self.fun)}. {error}") from None
            except TypeError as error:
                raise self._no_value(leaf, self._argument_name(index, in_tree), error) from None
        return tuple(avals) if not high_types.exist else tuple(high().with_states(avals, leaves))

    def _no_value(self, leaf: Any, name: str, why: Any) -> TypeError:
        return TypeError(f"Error interpreting argument to {source.function_location(self.fun)} as an abstract array. The "
                         f"problematic value is of type {type(leaf)} and was passed to the function at path {name}. Mark it "
                         f"static (static_argnums, static_argnames), or pass an array or a scalar. ({why})")

    def _check_described(self, program: Program, leaves: list[Any]) -> bool:
        """Whether some arguments are `ShapeDtypeStruct`s. Raises TypeError if the program reads one."""
        if not any(isinstance(leaf, ShapeDtypeStruct) for leaf in leaves):
            return False
        jaxpr = program.closed.jaxpr
        read = live_parts(jaxpr)[1][len(jaxpr.constvars):]
        for index, leaf in enumerate(leaves):
            if isinstance(leaf, ShapeDtypeStruct) and (read[index] or self.options.keep_unused):
                raise self._no_value(leaf, program.debug_info.arg_name(index), f"{leaf} has no value, and the program reads it")
        return True

    def _argument_name(self, index: int, in_tree: Any) -> str:
        return argument_names(self.fun, in_tree, self.options)()[index]

    # --- tracing

    def _new_program(self, key: tuple[Any, ...]) -> Program:
        """A program for a signature; traced, unless `jit` of the function with other options has done that."""
        _, in_tree, avals, static, named, *_ = key
        trace_key, given = (self.options.static_argnums, *key[1:]), self.options.out_shardings
        first = self.traces.get(trace_key)
        if first is not None and not first.is_stale() and (
                given is None or not spread().moves_sums(given, first.closed.out_avals)):
            donated = donated_leaves(in_tree, self.options, static)
            return self._with_shardings(Program(first.closed, in_tree, first.out_tree, self.name, donated, self.options, 0.0,
                                                first.debug_info, first.static))
        if config.no_tracing.value:
            raise RuntimeError(f"re-tracing function {source.function_location(self.fun)} for `jit`, "
                               "but 'no_tracing' is set")
        program, for_all = self._trace(in_tree, avals, static, named)
        if for_all:
            self.traces[trace_key] = program
        return program

    def _with_shardings(self, program: Program) -> Program:
        """A program, with what the options say of where its arguments and results are."""
        options = self.options
        if options.in_shardings is not None or options.out_shardings is not None:
            program.in_shardings = options.flat_in_shardings(program.in_tree)
            program.out_shardings = spread().flat_shardings(options.out_shardings, program.out_tree, "out_shardings")
            program.in_layouts, program.out_layouts = options.flat_layouts(program.in_tree, program.out_tree)
        return program

    def _trace(self, in_tree: Any, avals: tuple[Any, ...], static: tuple[Any, ...], named: tuple[Any, ...],
               ) -> tuple[Program, bool]:
        """The program of a signature; and whether its results do not depend on the shardings that they are to have."""
        fun, options = self.fun, self.options
        start = time.perf_counter()
        debug = DebugInfo("jit", source.function_location(fun), argument_names(fun, in_tree, options))
        out_tree: Any = None
        for_all = True

        def flat(*tracers: Any) -> Sequence[Any]:
            nonlocal out_tree, for_all
            args, kwargs = in_tree.unflatten(tracers)
            if static:
                args = list(args)
                for index, box in static:
                    args.insert(index, box.value)
            for name, box in named:
                kwargs[name] = box.value
            outs, out_tree = flatten_outputs(fun(*args, **kwargs), debug)
            results = outs if options.out_shardings is None else spread().in_parts(outs, options.out_shardings, out_tree)
            for_all = results is outs
            return results

        scopes = state.scopes  # of this caller; others will have the program too
        if scopes:
            state.scopes = _scopes().words_alone(scopes)
        try:
            with progress.Stage(self.name, "tracing"), seldom_collecting:
                jaxpr, consts = trace_to_jaxpr(flat, avals, debug)
        finally:
            state.scopes = scopes
        if config.debug_key_reuse.value:
            key_reuse().signature(jaxpr)
        donated = donated_leaves(in_tree, options, static)
        debug.result_paths = functools.partial(result_names, out_tree)
        return self._with_shardings(Program(ClosedJaxpr(jaxpr, consts), in_tree, out_tree, self.name, donated, options,
                                            time.perf_counter() - start, debug, self._static_text(static, named))), for_all

    def _static_text(self, static: tuple[Any, ...], named: tuple[Any, ...]) -> str:
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
        for observe in observers:
            observe(self, args, kwargs)
        try:
            entered = lifetime.enter()
        except SystemError as error:  # jaxlib calls this while an exception is set, where a tree was too deep for it
            raise error.__cause__ or error from None
        try:
            if _to_begin and self.on_host is None:
                _begin()
            program, leaves = self.program(args, kwargs)
            for leaf in leaves:
                if isinstance(leaf, Tracer):
                    raise errors.UnexpectedTracerError(leaf)
            if self._check_described(program, leaves):
                leaves = [None if isinstance(leaf, ShapeDtypeStruct) else leaf for leaf in leaves]
            if program.takes_refs or program.is_high:
                return program.out_tree.unflatten(self.call_with_values(program, leaves)), None
            if config.no_execution.value:
                lifetime.check_may_run(f"jit({self.name})")
            note_keys = None
            if config.debug_key_reuse.value:
                note_keys = key_reuse().check_call("jit-compiled function", program.closed, leaves)
            traced, program = program, program.laid_out(leaves)
            if self.on_host is None and not platforms.has_threads():
                _execution().start_client()
            device, committed = program.place(leaves)
            if self.on_host is not None and note_keys is None:
                outs = None if program.executables else self.on_host(program, leaves, device, committed)
                if outs is not None:
                    program.ran_on_host = True
                    if program.reason:
                        explain.tell("traced, and run by NumPy:", program.debug_info.func_src_info,
                                     {"trace": program.trace_seconds}, program.reason)
                        program.reason = ""
                    return program.out_tree.unflatten(outs), None
                if program.ran_on_host:
                    program.ran_on_host = False
                    self.call_path._clear_cache()  # C++ would send this signature here for good
            before = len(program.executables)
            executable = program.executable(device, committed)
            if len(program.executables) > before:
                self._count_compile(traced, executable.compile_seconds)
            outs = executable(leaves)
        except BaseException as error:
            # C++ would send this signature here for good.
            if self.call_path is not None:
                self.call_path._clear_cache()
            hide_own_frames(error)
            raise
        finally:
            if entered:
                lifetime.leave()
        tree = program.out_tree
        if note_keys is not None:
            note_keys(outs)
            return tree.unflatten(outs), None
        if config.debug_nans.value or config.debug_infs.value:
            check_finite(program, outs, leaves)
            return tree.unflatten(outs), None
        result = tree.unflatten(outs)
        return result, executable.fast_path(tree, result)

    def _count_compile(self, program: Program, seconds: float) -> None:
        """Warn if this function is compiled again and again."""

        def why() -> str:
            entries = list(self.programs.items())  # at once: another thread may clear the caches
            key = next((key for key, each in entries if each is program), None)
            if key is None:
                return "the caches were cleared"
            earlier = [each for each, _ in entries if each is not key]
            *before, last = [*program.executables] or [None]
            if program.variants:
                return "its arguments have another memory layout than before"
            if before:
                return explain.other_executable(last, before, program.debug_info.arg_name)
            if not earlier:
                return ("it is a new function each time, and what is compiled belongs to the function; define it once, outside "
                        "of what is called again and again, and call `jit` once")
            return self._reason(key, program.in_tree, earlier)

        message = recompilation.note(program.debug_info.func_src_info, program.trace_seconds + seconds, why)
        if message:
            recompilation.tell(message)

    @staticmethod
    def call_with_values(program: Program, leaves: list[Any]) -> list[Any]:
        """Run a program with Refs or values of high types by one of arrays; gives its flat results."""
        if program.call_of_values is None:
            def make_call(run: Callable[..., Any], options: Options, donated: tuple[int, ...], ins: Any, outs: Any) -> Any:
                return make_call_path(run, Options((), (), donated, (), options.keep_unused, options.device, False,
                                                   options.compiler_options, ins, outs))

            kind = lowered_types().HighCall if program.is_high else references.RefCall
            program.call_of_values = kind(program, make_call)
        return program.call_of_values(leaves)

    def stage(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make the call part of the program being traced."""
        program, leaves = self.program(args, kwargs)
        closed, consts = program.as_operand()
        ins, outs_given, said = program.in_shardings, program.out_shardings, None
        if (ins is not None or outs_given is not None) and spread().stay_with_call(program):
            said, ins, outs_given = ((*free(len(consts)), *(ins or free(len(leaves)))), outs_given), None, None
        if ins is not None:
            leaves = constrained(leaves, ins)
        own_options = tuple(self.options.compiler_options.items()) if self.options.compiler_options else ()
        if self._check_described(program, leaves) or self.options.inline is True and said is None and not own_options:
            outs = eval_jaxpr(closed.jaxpr, [], *consts, *leaves)
        else:
            of_operands, of_outs = said or (None, None)
            donated = (False,) * len(consts) + program.donated
            params = call_params(closed, self.name, donated, of_operands, of_outs)
            params["keep_unused"], params["compiler_options_kvs"] = self.options.keep_unused, own_options
            if self.options.inline is not True:
                params["inline"] = self.options.inline
            outs = state.trace.process(jit_p, (*consts, *leaves), params)
        if outs_given is not None:
            outs = constrained(outs, outs_given)
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


# --- what users call ---------------------------------------------------------------------------------


def make_call_path(fun: Callable[..., Any], options: Options) -> Any:
    """The callable that users get: C++ with `Jitted.miss` behind it."""
    jitted = Jitted(fun, options)
    path = xla.make_call_path(jitted.name, fun, jitted.miss, options.static_argnums, options.static_argnames,
                              options.key, put_argument, _call_cache)
    jitted.call_path = weakref.proxy(path)
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        value = getattr(fun, attribute, None)
        if value is not None:
            setattr(path, attribute, value)
    annotations = getattr(fun, "__annotations__", None)
    if annotations is not None:
        path.__annotations__ = annotations
    if attributes := getattr(fun, "__dict__", None):  # as `functools.wraps`; a method of compiled functions stays one
        vars(path).update({name: value for name, value in attributes.items() if not hasattr(type(path), name)})
    path.__wrapped__ = fun
    path._jitted = jitted
    return path


def make_entry_path(name: str, miss: Callable[..., tuple[Any, Any]], static_argnums: tuple[int, ...]) -> Any:
    """C++ that runs what `miss` compiled: like `Jitted.miss`, it does a call and gives its entry for later ones, or None."""

    def outs(*args: Any, **kwargs: Any) -> Any:
        """Do a call and give its outputs; C++ calls this where `jit` is disabled."""
        return miss(*args, **kwargs)[0]

    return xla.make_call_path(name, outs, miss, static_argnums, (), "entries", put_argument, _call_cache)


def put_argument(value: Any, sharding: Any, layout: Any) -> Any:
    """Bring an argument to the device of a sharding; C++ calls this."""
    if type(sharding) is xla.SingleDeviceSharding:
        placed = arrays.put_array(value, sharding._device, False)
    else:
        placed = placement.global_arrays().place(getattr(value, "_base_array", value), sharding)
    return placed if layout is None else placement.layouts_module().relaid(placed, layout)


def constrained(values: Sequence[Any], shardings: Sequence[Any]) -> list[Any]:
    """Values of a trace with the shardings that `jit` was given; None leaves a value as it is. Along explicit axes a value
    inside of a program is where its type says."""
    constrain, is_explicit = placement.constraints().constrain, spread().shardings.is_explicit
    return [value if each is None or is_explicit(each) else constrain(value, each)
            for value, each in zip(values, shardings, strict=True)]


def free(count: int) -> tuple[None, ...]:
    """The shardings of values for which none is given."""
    return (None,) * count


def said_shardings(ins: Sequence[Any], outs: Sequence[Any]) -> dict[str, Any]:
    """The params of a `jit` equation about where operands and results are; None leaves that to the program."""
    return {**says_nothing(len(ins), len(outs)), "in_shardings": tuple(ins), "out_shardings": tuple(outs)}


@functools.cache
def says_nothing(num_ins: int, num_outs: int) -> dict[str, Any]:
    """`said_shardings` where nothing is given."""
    ins, outs = free(num_ins), free(num_outs)
    return {"in_shardings": ins, "out_shardings": outs, "in_layouts": ins, "out_layouts": outs}


def call_params(closed: ClosedJaxpr, name: str, donated: tuple[bool, ...], ins: Sequence[Any] | None = None,
                outs: Sequence[Any] | None = None) -> dict[str, Any]:
    """The params of a `jit` equation that calls a program; shardings where they are given. Traces of libraries get an empty
    `ctx_mesh` too where there is none, which would load all about meshes."""
    num_ins, num_outs = len(donated), len(closed.jaxpr.outvars)
    params = {**_plain_call(num_ins, num_outs), "jaxpr": closed, "name": name, "donated_invars": donated}
    if ins is not None or outs is not None:
        params |= said_shardings(ins or free(num_ins), outs or free(num_outs))
    if config.context_mesh.value is not None:
        params["ctx_mesh"] = config.context_mesh.value
    return params


@functools.cache
def _plain_call(num_ins: int, num_outs: int) -> dict[str, Any]:
    return {**says_nothing(num_ins, num_outs), "keep_unused": False, "inline": False, "compiler_options_kvs": ()}


def says_shardings(params: dict[str, Any]) -> bool:
    """Whether a `jit` equation with these params says of any operand or result where it is."""
    ins, outs = params.get("in_shardings", ()), params.get("out_shardings", ())
    return ins.count(None) < len(ins) or outs.count(None) < len(outs)


def said_of(params: dict[str, Any], num_ins: int, num_outs: int) -> tuple[Sequence[Any], Sequence[Any]]:
    """What `said_shardings` made, for each operand and result."""
    if not says_shardings(params):
        return free(num_ins), free(num_outs)
    return params.get("in_shardings") or free(num_ins), params.get("out_shardings") or free(num_outs)


def opened(fun: Callable[..., Sequence[Any]], params: dict[str, Any]) -> Callable[..., Sequence[Any]]:
    """A function of the operands of an equation of `jit`, whose first results are its results, with constraints in place of
    what the params say."""
    if not says_shardings(params):
        return fun

    def constraining(*operands: Any) -> Sequence[Any]:
        ins, outs = said_of(params, len(operands), len(params["jaxpr"].out_avals))
        results = fun(*constrained(operands, ins))
        return [*constrained(results[:len(outs)], outs), *results[len(outs):]]

    return constraining


key_reuse = loader("jaxlite.compilation.key_reuse")
_scopes = loader("jaxlite.core.scopes")
_mesh_texts = loader("jaxlite.devices.texts")
_meshes = loader("jaxlite.devices.mesh")


def jitted_of(path: Any) -> Jitted:
    """The Python side of a jitted function."""
    return path._jitted


jit_p = Primitive("jit", multiple_results=True, memoise="jaxpr")
has_program(jit_p, "jaxpr")
jit_p.typed_by = ("jaxpr", "name", "compiler_options_kvs")
jit_p.params_for_libraries = lambda params: {"ctx_mesh": _meshes().empty_mesh(), **params}
jit_p.param_readers = {"ctx_mesh": lambda text: _mesh_texts().read_mesh(text)}


@jit_p.def_effectful_abstract_eval
def _jit_aval(*avals: Any, jaxpr: ClosedJaxpr, name: str = "", compiler_options_kvs: Any = (), **params: Any) -> Any:
    if compiler_options_kvs:
        raise ValueError("compiler_options are those of a whole program, and this call of a jitted function is part of "
                         f"another: {name} with {dict(compiler_options_kvs)}")
    wanted = jaxpr.in_avals
    if len(avals) != len(wanted) or not all(map(typematch, avals, wanted)):
        raise TypeError(f"jit: the operands are {', '.join(map(format, avals)) or 'none'}, its jaxpr takes "
                        f"{', '.join(map(format, wanted)) or 'none'}")
    return jaxpr.out_avals, jaxpr.effects
