"""Stages: the steps from a jitted function to running code, as objects that can be inspected.

`jit(f).trace(*args)` returns a `Traced` (a jaxpr), its `lower()` a `Lowered` (a StableHLO module), its `compile()` a
`Compiled` (an executable that can be called). These methods are attributes of jaxlib's type of jitted functions, so making
a jitted function costs nothing more.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from jaxlite.compilation import dispatch
from jaxlite.compilation.finite import check_finite
from jaxlite.compilation.program import Program, spread
from jaxlite.core import array as arrays
from jaxlite.core import config, tree
from jaxlite.core.aval import ShapedArray, in_space, layouts, spaces, typematch
from jaxlite.core.filtering import boundary, hide_own_frames
from jaxlite.core.jaxpr import ClosedJaxpr, eval_jaxpr
from jaxlite.core.shape_dtype import ShapeDtypeStruct, abstract
from jaxlite.core.tracing import Tracer
from jaxlite.core.values import aval_of
from jaxlite.devices import placement
from jaxlite.devices.placement import shardings
from lowering import platforms, xla

if TYPE_CHECKING:
    from jaxlite.compilation import execution
    from lowering.lowered import Lowered as Module

CompilerOptions = dict[str, str | bool | int | float]


class ArgInfo:
    """The description of a flat argument of a stage."""

    __slots__ = ("_aval", "donated")

    def __init__(self, _aval: Any, donated: bool):
        self._aval, self.donated = _aval, donated

    def __repr__(self) -> str:
        return f"ArgInfo(_aval={self._aval!r}, donated={self.donated})"

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, ArgInfo) and (self._aval, self.donated) == (other._aval, other.donated)

    def __hash__(self) -> int:
        return hash((self._aval, self.donated))

    @property
    def shape(self) -> tuple[int, ...]:
        return self._aval.shape

    @property
    def dtype(self) -> Any:
        return self._aval.dtype


@runtime_checkable
class Wrapped(Protocol):
    """A function that can be traced, lowered and compiled: the result of `jit`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function, compiling it if this signature is new."""

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """The function's jaxpr for these arguments."""

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """The function's StableHLO module for these arguments."""


class _Stage:
    """The signature that all stages have. Static arguments are not part of it."""

    __slots__ = ("_program",)
    _program: Program
    _tells_weak_types = True

    def __init__(self, program: Program):
        self._program = program

    @property
    def in_tree(self) -> Any:
        """The tree of `(args, kwargs)`."""
        return self._program.in_tree

    @property
    def out_tree(self) -> Any:
        """The tree of the result."""
        return self._program.out_tree

    @property
    def in_avals(self) -> Any:
        """The abstract values of the arguments, as `(args, kwargs)`."""
        return self.in_tree.unflatten(self._program.closed.in_avals)

    @property
    def args_info(self) -> Any:
        """An `ArgInfo` (shape, dtype, donated) for each argument, as `(args, kwargs)`."""
        return self.in_tree.unflatten(map(ArgInfo, self._program.closed.in_avals, self._program.donated))

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """The flat indices of the donated arguments."""
        return tuple(index for index, donated in enumerate(self._program.donated) if donated)

    @property
    def out_info(self) -> Any:
        """A `ShapeDtypeStruct` for each leaf of the result, with the sharding that `jit` was given for it, or its type has."""
        program = self._program
        given = program.out_shardings or (None,) * len(program.closed.out_avals)
        return self._out_structs(self._with_layouts([_typed_sharding(aval) if wanted is None else wanted
                                                     for wanted, aval in zip(given, program.closed.out_avals, strict=True)]))

    def _with_layouts(self, given: list[Any]) -> list[Any]:
        """Shardings together with the layouts that `jit` was given for them."""
        asked = self._program.out_layouts
        if asked is None:
            return given
        return [sharding if layout is None or layout.is_auto or sharding is None else shardings().Format(layout, sharding)
                for sharding, layout in zip(given, asked, strict=True)]

    def _out_structs(self, shardings: Sequence[Any] | None = None) -> Any:
        avals = self._program.closed.out_avals
        if shardings is None and layouts.exist:  # types say how values are on explicit mesh axes
            shardings = list(map(_typed_sharding, avals))
        return self.out_tree.unflatten(
            aval if aval.is_high else
            ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type and self._tells_weak_types,
                             manual_axis_type=aval.manual_axis_type if config.check_vma.value else None)
            for aval, sharding in zip(avals, shardings or [None] * len(avals), strict=True))


def _typed_sharding(aval: Any) -> Any:
    """The sharding of a type; None where XLA may cut values of it further, along axes that are not explicit."""
    layout = getattr(aval, "layout", None)
    return layout if layout is not None and layout.mesh.are_all_axes_explicit else None


class Traced(_Stage):
    """A traced function: its jaxpr for one signature."""

    __slots__ = ("_place",)

    def __init__(self, program: Program, place: tuple[Any, bool]):
        super().__init__(program)
        self._place = place

    @property
    def jaxpr(self) -> ClosedJaxpr:
        """The program, with the arrays it closes over."""
        return self._program.closed

    @property
    def fun_name(self) -> str:
        return self._program.name

    @property
    def out_avals(self) -> Any:
        """The abstract values of the result."""
        return self.out_tree.unflatten(self._program.closed.out_avals)

    @property
    def effects(self) -> frozenset[Any]:
        """The effects of the program, such as printing: none if it only computes."""
        return frozenset(self._program.closed.effects)

    def closure_convert(self) -> tuple[list[Any], Callable[..., Any]]:
        """The values that the function closes over, and a function that takes them first: `fun(consts, *args, **kwargs)`.

        Raises: TypeError in the new function, for arguments of another tree than those it was traced for.
        """
        program = self._program
        closed, in_tree = program.closed, program.in_tree

        def fun(consts: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
            leaves, found = tree.tree_flatten((args, kwargs))
            if found != in_tree or len(consts) != len(closed.consts):
                raise TypeError(f"{program.name} was traced for {len(closed.consts)} consts and arguments {in_tree}, and "
                                f"called with {len(consts)} and {found}")
            return program.out_tree.unflatten(eval_jaxpr(closed.jaxpr, consts, *leaves))

        return list(closed.consts), fun

    @boundary
    def lower(self, *, lowering_platforms: tuple[str, ...] | None = None) -> Lowered:
        """Lower to StableHLO.

        Args:
          lowering_platforms: lower for these platforms ('cpu', 'cuda', 'rocm', 'tpu') instead of the one that the arguments
            are on. What is lowered for another platform, or for several, can be read but not compiled: with several, the
            module takes the index of its platform as first parameter.
        """
        device, committed = self._place
        platform = platforms.target_of(device)
        if lowering_platforms:
            known = platforms.known_names()
            for name in lowering_platforms:
                if name not in known:
                    raise ValueError(f"lowering_platforms names {name!r}, which is not a platform. Known: {', '.join(known)}")
            platform = ",".join(lowering_platforms)
        elif not isinstance(device, xla.Device):
            spread().check_has_devices(device)
        return Lowered(self._program, self._program.module(platform, device), device, committed)


class Lowered(_Stage):
    """A lowered function: its StableHLO module for one signature and platform."""

    __slots__ = ("_lowered", "_device", "_committed", "results")
    _tells_weak_types = False  # a module has none

    def __init__(self, program: Program, lowered: Module, device: Any, committed: bool):
        super().__init__(program)
        self._lowered, self._device, self._committed = lowered, device, committed
        self.results = getattr(device, "results", None)  # the shardings of results, where the compiler does not choose

    @property
    def out_info(self) -> Any:
        """A `ShapeDtypeStruct` for each leaf of the result, with its sharding if the compiler does not choose it."""
        given = self.results
        if given is None:
            return super().out_info
        return self._out_structs(self._with_layouts(list(given)))

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The module as text.

        Args:
          dialect: "stablehlo" (the default) or "hlo".
          debug_info: with the user's source lines (StableHLO only).
        """
        if dialect == "hlo":
            return self.compiler_ir("hlo").as_hlo_text()
        self._check_dialect(dialect)
        return self._lowered.text(debug_info)

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """The module as an object: an `ir.Module` of jaxlib's MLIR bindings, or for "hlo" an `XlaComputation`."""
        if dialect == "hlo":
            return self._lowered.hlo()
        self._check_dialect(dialect)
        xla.load_operation_classes()
        return self._lowered.module

    @staticmethod
    def _check_dialect(dialect: str | None) -> None:
        if dialect not in (None, "stablehlo"):
            raise ValueError(f"unknown dialect: {dialect}. Known are 'stablehlo' and 'hlo'.")

    def cost_analysis(self) -> dict[str, float]:
        """XLA's estimate of the module's cost before optimisation: "flops", "bytes accessed", ..."""
        return xla.cost_analysis(self._device.client, self._lowered.hlo())

    @boundary
    def compile(self, compiler_options: CompilerOptions | None = None, *,
                device_assignment: Sequence[Any] | None = None) -> Compiled:
        """Compile with XLA.

        Args:
          compiler_options: XLA options by name; they go before those given to `jit`.
          device_assignment: the one device to compile for, instead of the one that the arguments are on; the devices of a
            program over an `AbstractMesh`, in the order of the mesh.
        Raises: XLA's error for an option that it does not know or a value of the wrong kind; RuntimeError for a program over
          an `AbstractMesh` without `device_assignment`.
        """
        device = self._device
        lowered: Module | None = self._lowered
        if not isinstance(device, xla.Device) and not device.has_devices:
            if device_assignment is None:
                raise RuntimeError("device_assignment cannot be `None` during compilation. Please pass a tuple of devices to "
                                   "`.compile(device_assignment=)`")
            device, lowered = spread().on_devices(device, device_assignment), None  # lowered again, for these
        elif device_assignment is not None:
            if len(device_assignment) != 1:
                raise ValueError(f"device_assignment must hold one device, got {len(device_assignment)}")
            device = device_assignment[0]
            if not isinstance(self._device, xla.Device) and device is not self._device:
                raise ValueError("device_assignment is for programs on one device; this one is spread over a mesh")
        if platforms.canonical_name(self._lowered.platform) != platforms.platform_of(device):
            raise ValueError(f"{self._program.name} was lowered for {self._lowered.platform}; it cannot be compiled "
                             f"for {device}")
        return Compiled(self._program, self._program.executable(device, self._committed, lowered, compiler_options))


class Compiled(_Stage):
    """A compiled function: call it with arguments of the types it was compiled for."""

    __slots__ = ("_executable", "_call")
    _tells_weak_types = False

    def __init__(self, program: Program, executable: execution.Executable):
        super().__init__(program)
        self._executable = executable
        self._call = _call_path(program, executable)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run it; the same as calling the object.

        Raises: TypeError if the tree of the arguments, or the type of one of them, is not what it was compiled for;
          ValueError if an argument is bound to another device.
        """
        return self._call(*args, **kwargs)

    def as_text(self) -> str:
        """The optimised HLO."""
        return self._executable.loaded.hlo_modules()[0].to_string()

    def cost_analysis(self) -> dict[str, float]:
        """XLA's estimate of the cost of the optimised program: "flops", "bytes accessed", ..."""
        return self._executable.cost_analysis()

    def memory_analysis(self) -> Any:
        """Bytes of code, arguments, results and temporaries, as attributes such as `temp_size_in_bytes`."""
        return self._executable.loaded.get_compiled_memory_stats()

    def runtime_executable(self) -> Any:
        """XLA's loaded executable."""
        return self._executable.loaded

    @property
    def input_shardings(self) -> Any:
        """The sharding of each argument, as `(args, kwargs)`; None for one that the program does not read."""
        found = getattr(self._executable, "in_shardings", None) or [self._sharding] * self.in_tree.num_leaves
        return self.in_tree.unflatten(None if layout is None else sharding for layout, sharding in
                                      zip(self._in_layouts(), found, strict=True))

    @property
    def output_shardings(self) -> Any:
        """The sharding of each result."""
        return self.out_tree.unflatten(self._out_shardings())

    def _out_shardings(self) -> list[Any]:
        given = self._program.out_shardings or [None] * self.out_tree.num_leaves
        return getattr(self._executable, "out_shardings", None) or [each or self._sharding for each in given]

    @property
    def input_formats(self) -> Any:
        """Layout and sharding of each argument, as `(args, kwargs)`; without them for one that the program does not read."""
        return self.in_tree.unflatten(map(shardings().Format, self._in_layouts(),
                                          self.in_tree.flatten_up_to(self.input_shardings)))

    @property
    def output_formats(self) -> Any:
        """Layout and sharding of each result."""
        return self.out_tree.unflatten(map(shardings().Format, self._layouts().results, self._out_shardings()))

    def _in_layouts(self) -> Sequence[Any]:
        return self._layouts().inputs[-self.in_tree.num_leaves:] if self.in_tree.num_leaves else ()

    def _layouts(self) -> Any:
        executable = self._executable
        return executable.layouts or placement.layouts_module().settled(executable.loaded, executable.kept)

    @property
    def _sharding(self) -> Any:
        return arrays.single_device_sharding(self._executable.device)

    @property
    def out_info(self) -> Any:
        """A `ShapeDtypeStruct` with its layout and sharding for each leaf of the result."""
        return self._out_structs([sharding if layout is None else shardings().Format(layout, sharding) for layout, sharding in
                                  zip(self._layouts().results, self._out_shardings(), strict=True)])


def _call_path(program: Program, executable: execution.Executable) -> Any:
    """A callable for one executable: C++ runs it once its arguments have been checked here."""

    def run(*args: Any, **kwargs: Any) -> Any:
        leaves, in_tree = tree.tree_flatten((args, kwargs))
        _check_arguments(program, executable, leaves, in_tree)
        if program.takes_refs or program.is_high:
            return program.out_tree.unflatten(dispatch.Jitted.call_with_values(program, leaves))
        outs = executable(leaves)
        if config.debug_nans.value or config.debug_infs.value:
            check_finite(program, outs, leaves)
        return program.out_tree.unflatten(outs)

    def miss(*args: Any, **kwargs: Any) -> Any:
        try:
            result = run(*args, **kwargs)
            slow = program.takes_refs or program.is_high or config.debug_nans.value or config.debug_infs.value
            return result, None if slow else executable.fast_path(program.out_tree, result)
        except BaseException as error:
            this._clear_cache()  # C++ would send this signature here for good
            hide_own_frames(error)
            raise

    path = xla.make_call_path(program.name, run, miss, (), (), (), dispatch.put_argument, None)
    this = weakref.proxy(path)
    return path


def _check_arguments(program: Program, executable: Any, leaves: list[Any], in_tree: Any) -> None:
    for leaf in leaves:
        if isinstance(leaf, Tracer):
            raise TypeError("Cannot apply JAX transformations to a function lowered and compiled for a particular "
                            f"signature. Detected argument of Tracer type: {leaf.aval}. Call the jitted function "
                            f"{program.name} itself inside traced functions.")
    if in_tree != program.in_tree:
        mismatches = [
            f"    * at {('args', 'kwargs')[path[0].idx]}{tree.keystr(path[1:])}, seen {one} but now given {two}, "
            f"so {why}"
            for path, one, two, why in tree.tree_differences().equality_errors(program.in_tree, in_tree)]
        raise TypeError(
            "Function compiled with input pytree does not match the input pytree it was called with. There are "
            f"{len(mismatches)} mismatches, including:\n" + "\n".join(mismatches))
    wrong = []
    for index, (leaf, expected) in enumerate(zip(leaves, program.closed.in_avals, strict=True)):
        try:
            aval = aval_of(leaf)
        except TypeError:
            raise TypeError(f"Argument {program.debug_info.arg_name(index)!r} of type {type(leaf)} is not a valid JAX "
                            "type") from None
        if not typematch(in_space(aval, expected.memory_space) if type(expected) is ShapedArray else aval, expected):
            wrong.append(f"Argument {program.debug_info.arg_name(index)!r} compiled with {_shown(expected)} and called "
                         f"with {_shown(aval)}")
    if wrong:
        raise TypeError(
            "Argument types differ from the types for which this computation was compiled. Perhaps you are calling "
            "the compiled executable with a different enable_x64 mode than when it was AOT compiled? The mismatches "
            "are:\n" + "\n".join(wrong))
    if program.is_high:
        return None
    if leaves and (placement.layouts.exist or executable.layouts is not None):
        _check_layouts(program, executable, leaves)
    device = executable.device
    if spaces.exist and isinstance(device, xla.Device):
        _check_kinds(program, executable, leaves)
    if not isinstance(device, xla.Device):
        return _check_shardings(program, device, leaves)
    found, committed = placement.target_device(program.that_bind(leaves), None)
    if committed and found != device:
        raise ValueError(f"{program.name} was compiled for {device} and called with arguments on {found or 'others'}. Move "
                         "them with device_put, or lower with arguments on that device.")


def _check_kinds(program: Program, executable: Any, leaves: list[Any]) -> None:
    """Raises ValueError if an argument is in another kind of memory than the program was compiled for."""
    wanted = executable.in_shardings or [arrays.single_device_sharding(executable.device)] * len(leaves)
    wrong = [f"Argument {program.debug_info.arg_name(index)} with shape {leaf.aval.str_short(short_dtypes=False)}:\n"
             f"  Passed sharding: {leaf.sharding}\n  Required sharding: {sharding}"
             for index, (leaf, sharding) in enumerate(zip(leaves, wanted, strict=True))
             if getattr(leaf, "committed", False) and leaf.sharding.memory_kind != sharding.memory_kind]
    if wrong:
        raise ValueError("Computation was compiled for input shardings that disagree with the shardings of arguments passed to "
                         f"it. Here are the {len(wrong)} mismatches:\n" + "\n".join(wrong))


def _check_layouts(program: Program, executable: Any, leaves: list[Any]) -> None:
    """Raises ValueError if a committed argument has another memory layout than the program was compiled for."""
    module, wrong = placement.layouts_module(), []
    count = len(leaves)
    wanted = [None] * count if executable.layouts is None else executable.layouts.inputs[-count:]
    for index, (leaf, layout, read) in enumerate(zip(leaves, wanted, executable.kept[-count:], strict=True)):
        if read and getattr(leaf, "committed", False) and not module.is_laid_out(leaf, layout):
            kind = leaf.aval.str_short()
            wrong.append(f"Argument {program.debug_info.arg_name(index)} with shape {kind}:\n"
                         f"  Passed layout: {module.of_array(leaf)}\n  Required layout: {layout or module.usual(leaf)}")
    if wrong:
        raise ValueError("Computation was compiled for input layouts that disagree with the layouts of arguments passed to it. "
                         f"Here are the {len(wrong)} mismatches:\n" + "\n".join(wrong))


def _check_shardings(program: Program, place: Any, leaves: list[Any]) -> None:
    """Raises ValueError if an argument is spread otherwise than the program was compiled for."""
    wanted = place.arguments[len(place.arguments) - len(leaves):]
    for index, (leaf, sharding) in enumerate(zip(leaves, wanted, strict=True)):
        has = getattr(leaf, "sharding", None)
        if sharding is not None and has is not None and leaf._committed and not sharding.is_equivalent_to(has, leaf.ndim):
            raise ValueError(
                "Computation was compiled for input shardings that disagree with the shardings of arguments passed to it. "
                f"Argument {program.debug_info.arg_name(index)} with shape {leaf.aval.str_short()}:\n"
                f"  Passed sharding: {has}\n  Required sharding: {sharding}\nMove it with device_put.")


def _shown(aval: Any) -> str:
    return f"{aval.dtype.name}[{','.join(map(str, aval.shape))}]"


# --- the methods of jitted functions -----------------------------------------------------------------


def _program(path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Program, list[Any]]:
    return dispatch.jitted_of(path).program(args, kwargs, abstract)


@boundary
def trace(self: Any, *args: Any, **kwargs: Any) -> Traced:
    """Trace the function for arguments like these: arrays, scalars, or objects with `shape` and `dtype`.

    Nothing runs on a device. What was traced is kept: calls of the same signature use it.
    """
    program, leaves = _program(self, args, kwargs)
    program = program.laid_out(leaves)
    return Traced(program, program.place(leaves))


@boundary
def lower(self: Any, *args: Any, **kwargs: Any) -> Lowered:
    """Trace the function for arguments like these and lower it: `trace(*args, **kwargs).lower()`."""
    return trace(self, *args, **kwargs).lower()


@boundary
def eval_shape(self: Any, *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of the result for arguments like these, as `ShapeDtypeStruct`s. Nothing is compiled."""
    return _Stage(_program(self, args, kwargs)[0]).out_info


def clear_cache(self: Any) -> None:
    """Forget what was traced and compiled for this function."""
    jitted = dispatch.jitted_of(self)
    jitted.programs.clear()
    jitted.traces.clear()
    self._clear_cache()


for _method in (trace, lower, eval_shape, clear_cache):
    setattr(xla.PjitFunction, _method.__name__, _method)
