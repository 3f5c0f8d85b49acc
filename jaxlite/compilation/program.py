"""The program of one signature: its jaxpr, its modules, and its executables."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from jaxlite.compilation import compile_report, explain, lifetime
from jaxlite.compilation.options import Options, check_compiler_options, process_options
from jaxlite.core import array as arrays
from jaxlite.core import config, errors, source
from jaxlite.core.aval import AbstractRef, spaces
from jaxlite.core.collector import seldom_collecting
from jaxlite.core.discharge import discharge_jaxpr
from jaxlite.core.effects import REF
from jaxlite.core.jaxpr import ClosedJaxpr, DebugInfo, Jaxpr
from jaxlite.core.lazy import loader
from jaxlite.core.refs import Ref
from jaxlite.core.shape_dtype import ShapeDtypeStruct
from jaxlite.core.staging import StagedTracer, high, hoist_consts, trace_to_jaxpr
from jaxlite.core.tracing import Tracer
from jaxlite.core.tree import leaf_paths, tree_flatten, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.devices import placement
from lowering import platforms, progress, xla
from lowering.passes.dce import live_parts

if TYPE_CHECKING:
    from jaxlite.compilation import execution


spread = loader("jaxlite.compilation.spread")  # with what only programs over several devices need
lowered_types = loader("jaxlite.compilation.lowered_types")
_unknown: Any = object()


class Program:
    """One traced signature: its jaxpr, the output tree, and the executables made from it so far."""

    __slots__ = ("closed", "hoisted", "out_tree", "name", "donated", "options", "executables", "modules", "lock",
                 "in_shardings", "out_shardings", "_mesh", "result_names", "trace_seconds", "debug_info", "in_tree", "static",
                 "reason", "takes_refs", "is_high", "call_of_values", "host_plan", "ran_on_host", "in_layouts", "out_layouts",
                 "layouts", "variants", "reads")

    def __init__(self, closed: ClosedJaxpr, in_tree: Any, out_tree: Any, name: str, donated: tuple[bool, ...],
                 options: Options, trace_seconds: float, debug_info: DebugInfo, static: str):
        self.closed, self.in_tree, self.out_tree, self.name, self.donated = closed, in_tree, out_tree, name, donated
        self.options, self.trace_seconds, self.debug_info = options, trace_seconds, debug_info
        self.static = static  # the static arguments, as text
        self.reason = ""  # why it was traced, if requested and not yet logged
        self.in_shardings: tuple[Any, ...] | None = None  # that jit was given, one or None for each argument and result
        self.out_shardings: tuple[Any, ...] | None = None
        self.in_layouts: tuple[Any, ...] | None = None  # beside them
        self.out_layouts: tuple[Any, ...] | None = None
        self.layouts: Any = None  # memory layouts of arguments and results, if not the default
        self.variants: dict[Any, Program] | None = None  # for other such layouts
        self._mesh: Any = _unknown
        self.hoisted: ClosedJaxpr | None = None
        self.executables: dict[Any, execution.Executable] = {}
        self.modules: dict[Any, Any] = {}  # that users asked for, by platform and partitioning; exported ones too
        self.lock = threading.Lock()
        self.call_of_values: Any = None  # how it runs where its values are not arrays
        self.host_plan: Any = None  # how NumPy runs it while it has no executable (`jaxlite.traces.host`)
        self.ran_on_host = False  # whether C++ was given a result without an executable
        self.reads: list[bool] | None = None  # for each argument, once it is asked for
        self.takes_refs = any(type(var.aval) is AbstractRef for var in (*closed.jaxpr.constvars, *closed.jaxpr.invars))
        self.is_high = closed.is_high

    def is_stale(self) -> bool:
        """Whether it closes over tracers of a trace that has ended, or over what is not as it was then."""
        if self.is_high and high().have_changed(self.closed.jaxpr.constvars, self.closed.consts):
            return True
        return any(isinstance(const, Tracer) and not const._trace.alive for const in self.closed.consts)

    @property
    def runnable(self) -> ClosedJaxpr:
        """The program without mutable arrays: their values are inputs, and outputs at the end."""
        if self.is_high:
            return lowered_types().runnable(self)
        if not self.takes_refs:
            return discharge_jaxpr(self.closed).closed if REF in self.closed.effects else self.closed
        found = discharge_jaxpr(self.as_operand()[0]).closed.jaxpr
        count = len(self.closed.consts)
        values = [const.share() if type(const) is Ref else const for const in self.closed.consts]
        return ClosedJaxpr(found.replace(constvars=found.invars[:count], invars=found.invars[count:]), values)

    def of_arrays(self, parts: Sequence[Any]) -> Sequence[Any]:
        """A property of each argument, repeated for each array that the argument consists of."""
        return lowered_types().of_arguments(self, parts) if self.is_high else parts

    @property
    def donated_arrays(self) -> tuple[bool, ...]:
        """Which of the arrays that the arguments consist of are donated."""
        return tuple(self.of_arrays(self.donated))

    @property
    def mesh(self) -> Any:
        """The mesh that the program itself names, if there is one."""
        if self._mesh is _unknown:
            # Meshes are the matter of a module that most programs never load.
            self._mesh = spread().concrete(self) if "jaxlite.devices.mesh" in sys.modules else None
        return self._mesh

    def laid_out(self, leaves: Sequence[Any]) -> Program:
        """The program for arguments with the memory layouts of these; itself if they are the default."""
        if self.in_layouts is self.out_layouts is None and not placement.layouts.exist or self.takes_refs or self.is_high:
            return self
        found = placement.layouts_module().of_call(self, leaves)
        if found is None:
            return self
        if self.variants is None:
            self.variants = {}
        variant = self.variants.get(found)
        return self.variants.setdefault(found, self._variant(found)) if variant is None else variant

    def _variant(self, layouts: Any) -> Program:
        made = Program(self.closed, self.in_tree, self.out_tree, self.name, self.donated, self.options, 0.0, self.debug_info,
                       self.static)
        made.in_shardings, made.out_shardings = self.in_shardings, self.out_shardings
        made.in_layouts, made.out_layouts, made.layouts = self.in_layouts, self.out_layouts, layouts
        return made

    def result_name(self, place: int) -> str:
        """`result['a']`: one of the flat results."""
        return "result" + "".join(map(str, leaf_paths(self.out_tree)[place]))

    @property
    def kinds(self) -> tuple[list[str | None], list[str | None]] | None:
        """The kinds of memory of what is closed over and arguments, and of results, None for the usual one; or None for all."""
        if not spaces.exist and self.in_shardings is self.out_shardings is None:
            return None
        closed = self.runnable
        consts = [var.aval for var in closed.jaxpr.constvars]
        ins = [None] * len(consts) + [*(self.in_shardings or [None] * len(closed.in_avals))]
        outs = [*(self.out_shardings or [None] * len(closed.out_avals))]
        found = ([*map(placement.memory_kind, (*consts, *closed.in_avals), ins)],
                 [*map(placement.memory_kind, closed.out_avals, outs)])
        return found if any(found[0]) or any(found[1]) else None

    def place(self, leaves: Sequence[Any]) -> tuple[Any, bool]:
        """Where a call runs, a device or a `Partitioning`, and whether its results are bound to it."""
        kinds = self.kinds
        if self.in_shardings is not None and (kinds is not None or spaces.exist):
            self._check_kinds(leaves)
        if self.in_shardings is None:
            leaves = self.that_bind(leaves)
        if self.in_shardings is None and self.out_shardings is None and self.mesh is None:
            device, committed = placement.target_device(leaves, self.options.device)
            if device is not None:
                for const in self.closed.consts:
                    if type(const) is xla.ArrayImpl and arrays.is_spread(const):
                        break
                else:
                    return device, committed or kinds is not None and not any(kinds[0])  # the program puts results there
        found = spread().partitioning(self, leaves)
        if found is not None:
            return found, True
        asked = next((each for each in (*(self.in_shardings or ()), *(self.out_shardings or ())) if each is not None), None)
        return placement.target_device(leaves, self.options.device if asked is None else asked)

    def that_bind(self, leaves: Sequence[Any]) -> Sequence[Any]:
        """The arguments, with None for those that the program does not read: they are not passed on, wherever they are.

        Results over explicit axes are where arguments are, the zero gradient of one that is not read too.
        """
        if self.options.keep_unused or self.takes_refs or self.is_high or not any(map(placement.binds, leaves)):
            return leaves
        if self.reads is None:
            jaxpr, outs = self.runnable.jaxpr, self.closed.out_avals
            self.reads = [True] * len(jaxpr.invars) if any([getattr(aval, "layout", None) is not None for aval in outs]) \
                else live_parts(jaxpr)[1][len(jaxpr.constvars):]
        return [leaf if read else None for leaf, read in zip(leaves, self.reads, strict=True)]

    def _check_kinds(self, leaves: Sequence[Any]) -> None:
        """Raises ValueError for an array in another memory kind than `jit` expects."""
        for leaf, wanted, aval in zip(leaves, self.in_shardings or (), self.closed.in_avals, strict=True):
            has = leaf._sharding.memory_kind if type(leaf) is xla.ArrayImpl and wanted is not None else None
            if has is not None and has != wanted.memory_kind:
                raise ValueError("Memory kinds passed to jax.jit does not match memory kind on the respective arg. Got jit "
                                 f"memory kind: {wanted.memory_kind}, arg memory kind: {has} for arg type: "
                                 f"{aval.str_short(short_dtypes=False)}")

    def lower(self, platform: str, place: Any = None) -> Any:
        """A module for a platform, or for the devices of a `Partitioning`.

        Warns of donated arguments whose memory no result can take.
        """
        from jaxlite.compilation import execution  # with all of lowering: not before something is compiled

        for const in self.closed.consts:
            if isinstance(const, Tracer):
                raise errors.UnexpectedTracerError(const)
        with seldom_collecting:
            runnable, names = self.runnable, result_names(self.out_tree)
            names += ["ref"] * (len(runnable.out_avals) - len(names))
            lowered = execution.lower_jaxpr(runnable, self.name, platform, donated=self.donated_arrays,
                                            keep_unused=self.options.keep_unused, result_names=names,
                                            argument_names=self.of_arrays(self.debug_info.arg_names or ()), place=place,
                                            layouts=self.layouts, kinds=self.kinds)
        warn_of_donated(lowered.unusable)
        return lowered

    def module(self, platform: str, place: Any = None) -> Any:
        """`lower`, remembered: for users who ask for the module itself."""
        key = (platform, None if isinstance(place, xla.Device) else place)
        found = self.modules.get(key)
        if found is None:
            found = self.modules.setdefault(key, self.lower(platform, place))
        return found

    def executable(self, device: Any, committed: bool, lowered: Any = None,
                   options: dict[str, Any] | None = None) -> execution.Executable:
        """Compiled for a device; at most once for each set of options, however many threads ask.

        Args: `lowered` the module if there is one already; `options` go before the function's own.
        """
        from jaxlite.compilation import execution  # with all of lowering: not before something is compiled

        if options:
            check_compiler_options(options)
        options = {**process_options(), **(self.options.compiler_options or {}), **(options or {})} or None
        key = (device, committed, tuple(sorted(options.items())) if options else None, execution.fusion_barriers(options))
        found = self.executables.get(key)
        if found is None:
            with self.lock:
                found = self.executables.get(key)
                if found is None:
                    found = self.executables[key] = self._settled(key, lowered, options)
        return found

    def _settled(self, key: tuple[Any, ...], lowered: Any, options: dict[str, Any] | None) -> Any:
        if isinstance(key[0], xla.Device):
            return self._compile(key, lowered, options)
        spread().check_has_devices(key[0])
        try:
            return self._compile(key, lowered, options)
        except spread().Unsettled as error:
            return self._compile((error.partitioning, *key[1:]), None, options)

    def _compile(self, key: tuple[Any, ...], lowered: Any, options: dict[str, Any] | None) -> execution.Executable:
        from jaxlite.compilation import execution  # with all of lowering: not before something is compiled

        if config.no_execution.value == lifetime.FORKED:
            lifetime.check_may_run(f"jit({self.name})")
        device, committed, *_ = key
        closed = self.runnable
        seconds = {"trace": 0.0 if self.executables else self.trace_seconds, "lower": 0.0}
        made = shortcut = None
        if lowered is None:
            with seldom_collecting:
                shortcut = execution.find_shortcut(closed, self.name, device, options, self.donated_arrays,
                                                   self.options.keep_unused, self.layouts, self.kinds)
            if shortcut is not None:
                made = execution.follow(shortcut, closed, device, committed, self.trace_seconds, self.layouts, self.kinds)
            if made is None:
                with progress.Stage(self.name, "lowering", seconds["trace"]):
                    lowered = self.lower(platforms.target_of(device), device)
                seconds["lower"] = lowered.seconds
        elif not self.executables:
            seconds["lower"] = lowered.seconds
        if made is None:
            with progress.Stage(self.name, "compiling", sum(seconds.values())):
                made = execution.compile_lowered(lowered, closed, device, committed, options, self.trace_seconds, shortcut,
                                                 self.layouts, self.kinds)
        seconds["compile"] = made.compile_seconds
        location, reason = self.debug_info.func_src_info, ""
        if config.explain_cache_misses.value:
            reason = self.reason or ("traced before, compiled now" if self.layouts is None else
                                     "arguments or results have other memory layouts")
            if not self.reason and self.executables:
                reason = explain.other_executable(key, list(self.executables), self.debug_info.arg_name)
            explain.tell("compiled", location, {stage: time for stage, time in seconds.items() if time}, reason,
                         made.cached)
        self.reason = ""
        if config.logging_level.value or config.debug_log_modules.value:
            explain.note(location, seconds, made.cached)
        compile_report.record(self.name, location, self.closed.in_avals, self.static, device, seconds, made.cached, reason)
        for watch in compile_watchers:
            watch(self)
        return made

    def as_operand(self) -> tuple[ClosedJaxpr, list[Any]]:
        """The program with its consts as leading arguments, and the consts."""
        if self.hoisted is None:
            self.hoisted = hoist_consts(self.closed.jaxpr)
        return self.hoisted, self.closed.consts


compile_watchers: list[Callable[[Program], None]] = []  # called after each compile


def result_names(out_tree: Any) -> list[str]:
    return ["result" + "".join(map(str, path)) for path in leaf_paths(out_tree)]


def warn_of_donated(unusable: Sequence[Any]) -> None:
    """A warning at the user's line of donated arguments whose memory no result can take, if there are any, by their types."""
    if unusable:
        frame = source.user_frame(source.current_traceback())
        warnings.warn_explicit("Some donated buffers were not usable: " + ", ".join(map(str, unusable))
                               + ". No result of their size and sharding is left; do not donate them.", UserWarning,
                               *(frame[:2] if frame else ("jaxlite", 1)))


def _returned_ref(ref: Any, debug: DebugInfo) -> str:
    arguments, made = ([], "")
    if isinstance(ref, StagedTracer):
        arguments, made = ref._trace.origins(ref.atom)[0], ref.made_at()
    origin = (f"\n\nThe returned mutable array was passed in as the argument {debug.arg_name(arguments[0])}."
              if arguments and not made else
              f"\n\nThe returned mutable array was created on line {made}." if made else "")
    return (f"function {debug.func_src_info} traced for {debug.traced_for} returned a mutable array reference of "
            f"type {ref.aval!r}, but mutable array references cannot be returned.{origin}")


class DescribedResult(TypeError):
    """A traced function returned a `ShapeDtypeStruct`, which describes a value and is none."""


def flatten_outputs(result: Any, debug: DebugInfo, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Any]:
    """The leaves of a traced function's result, checked to be values or what `is_leaf` says, and its tree."""
    outs, tree = tree_flatten(result, is_leaf)
    for index, out in enumerate(outs):
        if isinstance(out, Ref):
            raise ValueError(_returned_ref(out, debug))
        if not isinstance(out, Tracer) and not (is_leaf is not None and is_leaf(out)):
            try:
                aval_of(out)
            except TypeError as error:
                path = "".join(map(str, xla.pytree_registry.flatten_with_path(result)[0][index][0]))
                kind = DescribedResult if isinstance(out, ShapeDtypeStruct) else TypeError
                place = f" at output component {path}" if path else ""
                function = debug.func_src_info
                if debug.traced_for == "vmap":
                    raise kind(f"Output from batched function {out!r} with type {type(out)} is not a valid JAX type. The "
                               f"function {function} returned it{place}.") from None
                raise kind(f"function {function} traced for {debug.traced_for} returned a value of type {type(out)}{place}, "
                           f"which is not a valid JAX type. ({error})") from None
    return outs, tree


def trace_call(traced_for: str, fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any],
               type_of: Callable[[Any], Any] = aval_of) -> tuple[Jaxpr, list[Any], list[Any], tuple[Any, Any]]:
    """Trace a call to a flat program: its jaxpr and consts, the leaves of `(args, kwargs)`, and the trees in and out."""
    leaves, in_tree = tree_flatten((tuple(args), kwargs))
    debug = DebugInfo(traced_for, source.function_location(fun))
    out_tree: Any = None

    def flat(*values: Any) -> list[Any]:
        nonlocal out_tree
        inner, inner_kwargs = tree_unflatten(in_tree, values)
        outs, out_tree = flatten_outputs(fun(*inner, **inner_kwargs), debug)
        return outs

    jaxpr, consts = trace_to_jaxpr(flat, list(map(type_of, leaves)), debug)
    return jaxpr, consts, leaves, (in_tree, out_tree)
