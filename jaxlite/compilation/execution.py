"""Execution: from a jaxpr to an `Executable` on a device.

An executable runs on flat arrays and describes itself to jaxlib's C++ call path. This file loads with the first program that is
compiled, or found in the persistent cache; most of `lowering` only where one is lowered.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxlite.compilation import effects
from jaxlite.core import array as arrays
from jaxlite.core import config, source
from jaxlite.core.aval import AbstractToken, ShapedArray, in_space, space_of_kind
from jaxlite.core.jaxpr import ClosedJaxpr
from jaxlite.core.lazy import loader
from jaxlite.core.tracing import Tracer
from jaxlite.devices import placement
from jaxlite.version import __version__
from lowering import executable as backend
from lowering import platforms, report, xla
from lowering.buffers import physical
from lowering.cache import ahead, keys, shortcuts
from lowering.partitioning import Partitioning

if TYPE_CHECKING:
    from lowering.lowered import Lowered

ArrayImpl = xla.ArrayImpl
_SMALL, _SMALL_TOGETHER = 1 << 17, 1 << 19  # bytes of an array that is a constant of the module, and of all of them,
_SMALLEST = 4096  # but for those of so few
load_spread = loader("jaxlite.compilation.spread")
load_pruning = loader("jaxlite.traces.dead_code")
load_lowering = loader("lowering.lowered")  # not before something is lowered: what is cached is not
load_processes = loader("jaxlite.devices.processes")
load_placing = loader("jaxlite.devices.global_arrays")


class Loaded:
    """A program that XLA has loaded, and how its results are made: what executables on one device and over several share.

    Attributes: `in_avals`, `out_avals`; `device`; `committed` whether results are bound to it; `kept` for each
    of consts + arguments whether the program reads it; `loaded` is XLA's executable, `compile_seconds` how long
    that took, `cached` what the persistent cache said: "hit", "miss" or "off".
    """

    __slots__ = ("loaded", "compile_seconds", "cached", "in_avals", "out_avals", "device", "committed", "kept", "const_args",
                 "donated", "layouts", "in_shardings", "out_shardings", "_orders", "_handlers", "_kept_arguments", "_wrapped",
                 "calls_python", "_has_effects", "_ordered", "_met_strays", "__weakref__")
    const_args: list[Any]
    _handlers: Any
    _kept_arguments: list[int]
    _wrapped: list[tuple[int, Any]]

    def __init__(self, loaded: Any, lowered: Lowered | shortcuts.Found, closed: ClosedJaxpr, device: Any, committed: bool,
                 compile_seconds: float, cached: str, layouts: Any):
        self.loaded, self.device, self.committed = loaded, device, committed
        self.compile_seconds, self.cached = compile_seconds, cached
        self.in_avals, self.out_avals = closed.in_avals, [_result_aval(aval) for aval in closed.out_avals]
        self.kept, self.donated, self.layouts = lowered.kept, lowered.donated, layouts
        self.calls_python, self._ordered = bool(lowered.host_functions), lowered.ordered
        self._has_effects = self.calls_python and bool(closed.jaxpr.effects)
        self._met_strays = False
        # Until `_make_ready`, for a device that is not on this machine: to be looked at, not to be run.
        self.const_args, self._kept_arguments, self._wrapped, self._handlers, self._orders = [], [], [], None, None

    def _make_ready(self, const_args: list[Any], num_consts: int, out_shardings: Sequence[Any]) -> None:
        """For runs, with the closed-over arrays that the program reads, and the places of its results."""
        self._handlers = [xla.result_handler(_buffer_aval(aval), sharding, self.committed)
                          for aval, sharding in zip(self.out_avals, out_shardings, strict=True)]
        self._wrapped = arrays.result_wrappers(self.out_avals)
        self.const_args = const_args
        if self.layouts is not None:
            self._orders = placement.layouts_module().orders(self.layouts, self.kept)
            self.const_args = placement.layouts_module().all_relaid(const_args, self._orders)
        self.kept = [True] * len(const_args) + self.kept[num_consts:]
        self._kept_arguments = [index for index, keep in enumerate(self.kept[len(const_args):]) if keep]

    def _inputs(self) -> list[Any]:
        """The closed-over arrays, as the first inputs of a run."""
        if self._handlers is None:
            raise RuntimeError(f"the program was compiled for {self.device.device_kind}, which is not on this machine: it can "
                               "be looked at (memory_analysis, as_text), not run")
        return list(self.const_args)

    def _relaid(self, inputs: list[Any]) -> list[Any]:
        if placement.layouts.exist or self._orders is not None:
            return placement.layouts_module().all_relaid(inputs, self._orders)
        return inputs

    def _run(self, inputs: list[Any]) -> list[Any]:
        if self._has_effects:
            outs = effects.execute(self.loaded, inputs, self._handlers, self._ordered)
        else:
            outs = self.loaded.execute_sharded(inputs).consume_with_handlers(self._handlers)
        for index, wrap in self._wrapped:
            outs[index] = wrap(outs[index])
        return outs


class Executable(Loaded):
    """A compiled program on one device: runs on flat arguments, knows its types and its place."""

    __slots__ = ("_sharding",)

    def __init__(self, loaded: Any, lowered: Lowered | shortcuts.Found, closed: ClosedJaxpr, device: Any,
                 committed: bool, compile_seconds: float, cached: str, layouts: Any = None, kinds: Any = None):
        super().__init__(loaded, lowered, closed, device, committed, compile_seconds, cached, layouts)
        self._sharding = arrays.single_device_sharding(device)
        self.in_shardings: list[Any] | None = None  # for each argument and result, where one is in another kind of memory
        self.out_shardings: list[Any] | None = None
        if xla.is_compile_only(device):
            return
        num_consts = len(closed.consts)
        if kinds is not None:  # of memory
            self.in_shardings, self.out_shardings = ([
                self._sharding if kind is None else load_placing().shardings.make_single_device_sharding(device, kind)
                for kind in group] for group in (kinds[0][num_consts:], kinds[1]))
            self.out_avals = [in_space(aval, space_of_kind(kind)) for aval, kind in zip(self.out_avals, kinds[1], strict=True)]
        with xla.unguarded():  # they are part of the program
            const_args = [arrays.put_buffer(value, device, False, copy=type(value) is not ArrayImpl) for value, keep
                          in zip(closed.consts, self.kept, strict=False) if keep]
        self._make_ready(const_args, num_consts, self.out_shardings or [self._sharding] * len(self.out_avals))

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """Run on flat arguments: arrays or anything that `aval_of` knows. Gives flat results."""
        device, avals = self.device, self.in_avals
        inputs = self._inputs()
        for index in self._kept_arguments:
            arg = args[index]
            sharding = self._sharding if self.in_shardings is None else self.in_shardings[index]
            if type(arg) is not ArrayImpl or arg.is_deleted() or (
                    arg._sharding is not sharding and (arrays.device_of(arg) != device or self._is_astray(arg, sharding))):
                base: Any = getattr(arg, "_base_array", None)
                if type(base) is ArrayImpl and base._sharding is sharding and not base.is_deleted():
                    arg = base  # of keys, which are where the program is
                elif sharding is self._sharding:
                    arg = arrays.put_buffer(arg, device, False, aval=avals[index])
                else:
                    arg = load_placing().place(arg if base is None else base, sharding)
            inputs.append(arg)
        return self._run(self._relaid(inputs))

    def _is_astray(self, arg: Any, sharding: Any) -> bool:
        """Whether an argument is in another kind of memory than the program takes it from."""
        found = arg._sharding.memory_kind != sharding.memory_kind
        self._met_strays |= found
        return found

    def cost_analysis(self) -> dict[str, float]:
        """XLA's estimate of the cost of the optimised program: "flops", "bytes accessed", ..."""
        return xla.executable_cost(self.loaded, platforms.client)

    def fast_path(self, out_tree: Any, result: Any) -> Any:
        """The description that lets C++ run later calls of this signature by itself, if it may.

        Args: the structure of its result, and one that has it.
        """
        if self._met_strays and self.donated:  # C++ would hand over their memory as it is, and XLA end the process
            return None
        if self._has_effects:  # C++ keeps no tokens
            return None
        if self._wrapped:
            out_tree = tree_for_c(result, len(self.out_avals))
            if out_tree is None:
                return None
        sharding = self._sharding
        inputs = sum(self.kept)
        given, made = [sharding] * inputs, [sharding] * len(self.out_avals)
        if self.in_shardings is not None and self.out_shardings is not None:
            given = [sharding] * len(self.const_args) + [self.in_shardings[index] for index in self._kept_arguments]
            made = self.out_shardings
        return xla.FastPath(
            self.loaded, out_tree, given, made, [*map(_buffer_aval, self.out_avals)],
            [self.committed] * len(self.out_avals), self.kept,
            orders_for_c(self._orders, len(self.const_args), [self.in_avals[index] for index in self._kept_arguments]),
            self.const_args)


def tree_for_c(result: Any, count: int) -> Any:
    """The structure of a result of so many leaves, from which C++ can make it of nothing but arrays; None if it cannot."""
    leaves, tree = xla.call_registry.flatten(result)
    return tree if len(leaves) == count and all([type(leaf) is ArrayImpl for leaf in leaves]) else None


def orders_for_c(orders: list[Any] | None, num_consts: int, avals: list[Any]) -> list[Any]:
    """The layouts of inputs that C++ must check: None if the signature determines all of them."""
    nothing: list[Any] = [None] * num_consts
    if orders is None and not placement.layouts.exist:
        return nothing + [None] * len(avals)
    return placement.layouts_module().explicit(orders, nothing + avals)


def _result_aval(aval: Any) -> Any:
    return ShapedArray((0,), np.dtype(bool)) if isinstance(aval, AbstractToken) else aval


def _buffer_aval(aval: Any) -> Any:
    """The type of the array behind a result: for extended dtypes not its own."""
    shape, dtype = physical(aval)
    return aval if dtype is aval.dtype else ShapedArray(shape, dtype, sharding=aval.layout)


def lower_jaxpr(closed: ClosedJaxpr, name: str, platform: str, *, donated: Sequence[bool] = (),
                keep_unused: bool = False, result_names: Sequence[str] = (),
                argument_names: Sequence[str] = (), place: Any = None, part_of: Any = None,
                layouts: Any = None, kinds: Any = None) -> Lowered:
    """Lower for a platform, or for the devices of a `Partitioning`; equations keep the user's source lines.

    `part_of`, `layouts`, `kinds`: as for `lowering.lowered.lower`.
    """
    return load_lowering().lower(load_pruning().pruned(closed.jaxpr), name, platform=platform, is_hidden=source.is_hidden_file,
                         donated=donated, keep_unused=keep_unused, result_names=result_names,
                         argument_names=argument_names, partitioning=place if type(place) is Partitioning else None,
                         constants=_small_constants(closed), part_of=part_of, layouts=layouts, kinds=kinds)


def _small_constants(closed: ClosedJaxpr) -> list[np.ndarray | None]:
    """For each array that a program closes over its value, if that is small enough to be a constant of the module.

    XLA computes with constants when it compiles: a table of three entries that is sliced becomes three numbers, Jacobians of a
    mesh are numbers, and indices are known to be in bounds. As parameters such arrays cost up to half of the run time. Large
    ones would make large modules, and slow compiles.
    """
    sizes = [_bytes(var.aval) for var in closed.jaxpr.constvars]
    limit = _SMALL if sum([size for size in sizes if size <= _SMALL]) <= _SMALL_TOGETHER else _SMALLEST
    return [_value(const, var.aval) if size <= limit else None
            for const, var, size in zip(closed.consts, closed.jaxpr.constvars, sizes, strict=True)]


def _bytes(aval: Any) -> float:
    """The size of an array that may be a constant of a module, else infinite."""
    dtype = getattr(aval, "dtype", None)
    return math.inf if not isinstance(dtype, np.dtype) or dtype.names else aval.size * dtype.itemsize


def _value(const: Any, aval: Any) -> np.ndarray | None:
    if type(const) is ArrayImpl and not const.is_deleted() and not arrays.is_spread(const):
        with xla.unguarded():  # it is part of the program
            return arrays.host_value(const)
    return const.astype(aval.dtype) if type(const) is np.ndarray else None


def find_shortcut(closed: ClosedJaxpr, name: str, device: Any, options: dict[str, Any] | None, donated: Sequence[bool],
                  keep_unused: bool, layouts: Any = None, kinds: Any = None) -> shortcuts.Shortcut | None:
    """The shortcut of a program past lowering, if it may have one and the module is not needed."""
    if config.dump_ir_to.value is not None or xla.is_compile_only(device) or _is_compared(device):
        return None
    if any(isinstance(const, Tracer) for const in closed.consts):
        return None
    # Decompositions may ask for options when they are lowered: the trace context has them.
    contained = [value if value is None else (value.dtype.name, value.tobytes()) for value in _small_constants(closed)]
    return shortcuts.shortcut(closed.jaxpr, name, device, options, tuple(donated), keep_unused, fusion_barriers(options),
                              xla.trace_context(), device.text() if type(device) is Partitioning else "", contained,
                              *() if layouts is kinds is None else (layouts, kinds))


def load_ahead() -> None:
    """Begin to load what an earlier process with the same command used, if there is a list of it, beside the traces to come."""
    listed = ahead.list_of_process()
    if listed is not None and listed.has_work:
        client = platforms.in_advance()
        if client is not None:
            shortcuts.load_ahead(client)


def start_client() -> None:
    """Start the client beside the first things that a compile or a load from the cache needs."""
    platforms.start_beside(shortcuts.know_sources if keys.settings["folder"]() else xla.load_mlir)


def follow(shortcut: shortcuts.Shortcut, closed: ClosedJaxpr, device: Any, committed: bool,
           trace_seconds: float, layouts: Any = None, kinds: Any = None) -> Executable | None:
    """The executable of an earlier process, if the shortcut leads to one; it is reported to the log if that is on."""
    found = shortcut.follow()
    if found is None:
        return None
    report.compiled(found, closed, found.loaded, trace_seconds, found.load_seconds, "hit")
    return _executable(found.loaded, found, closed, device, committed, found.load_seconds, "hit", layouts, kinds)


def compile_lowered(lowered: Lowered, closed: ClosedJaxpr, device: Any, committed: bool,
                    options: dict[str, Any] | None = None, trace_seconds: float = 0.0,
                    shortcut: shortcuts.Shortcut | None = None, layouts: Any = None, kinds: Any = None) -> Executable:
    """Compile a lowered program for a device; reports the compile to the log and the dump if they are on."""
    if _is_compared(device):
        load_processes().compare_programs(lowered.name, device.devices, lowered.fingerprint())
    with lowered.tuned(fusion_barriers(options)):
        loaded, seconds, cached = backend.compile_lowered(lowered, device, options, shortcut)
        report.compiled(lowered, closed, loaded, trace_seconds, seconds, cached)
    return _executable(loaded, lowered, closed, device, committed, seconds, cached, layouts, kinds)


def _is_compared(device: Any) -> bool:
    """Whether to ask the other processes for their program before this one's is compiled."""
    return config.distributed_debug.value and type(device) is Partitioning


def _executable(loaded: Any, lowered: Any, closed: ClosedJaxpr, device: Any, committed: bool, seconds: float,
                cached: str, layouts: Any = None, kinds: Any = None) -> Any:
    if layouts is not None or lowered.sets_layouts:
        layouts = placement.layouts_module().settled(loaded, lowered.kept)
    if type(device) is Partitioning:
        if device.client.process_index() or not all(each.process_index == 0 for each in device.devices):
            load_processes().check_connected(device.devices)
        return load_spread().SpreadExecutable(loaded, lowered, closed, device, seconds, cached, layouts, kinds)
    return Executable(loaded, lowered, closed, device, committed, seconds, cached, layouts, kinds)


def fusion_barriers(options: dict[str, Any] | None) -> bool:
    """Whether a compile may place fusion barriers: what its own options say goes before the global option."""
    own = (options or {}).get(backend.BARRIERS)
    return config.cpu_fusion_barriers.value if own is None else config.cpu_fusion_barriers.parse(own, backend.BARRIERS)


keys.configure(
    folder=lambda: config.compilation_cache_dir.value if config.enable_compilation_cache.value else None,
    limit=lambda: config.compilation_cache_max_size.value,
    threshold=lambda: config.persistent_cache_min_compile_time_secs.value,
    version=lambda: __version__,
)
shortcuts.configure(folders=lambda: (os.path.dirname(os.path.dirname(__file__)),))
