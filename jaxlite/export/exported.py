"""Exported functions: lowered once to portable StableHLO, and called from other programs and processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.compilation import stages
from jaxlite.compilation.dispatch import jitted_of
from jaxlite.compilation.jit import jit
from jaxlite.compilation.program import warn_of_donated
from jaxlite.core import array as arrays
from jaxlite.core import config, dtypes, source
from jaxlite.core.aval import ShapedArray, with_layout
from jaxlite.core.effects import IO
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import Jaxpr
from jaxlite.core.primitive import Primitive
from jaxlite.core.symbolic import is_symbolic
from jaxlite.core.tree import (
    keystr,
    leaf_paths,
    tree_differences,
    tree_flatten,
    tree_flatten_with_path,
    tree_unflatten,
)
from jaxlite.core.values import aval_of, is_array_like
from jaxlite.devices.api import default_backend
from jaxlite.export import serialization
from jaxlite.export.symbolic_shapes import solve
from jaxlite.lax import shaping
from jaxlite.traces.jvp import tangent_aval
from jaxlite.transforms.custom_derivatives import custom_vjp
from jaxlite.transforms.derivatives import vjp
from lowering import xla
from lowering.partitioning import Partitioning

minimum_supported_calling_convention_version = 9
maximum_supported_calling_convention_version = 10
_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")

call_exported_p = Primitive("call_exported", multiple_results=True, memoise=False)


class DisabledSafetyCheck:
    """A disabled check: of the platform at calls, or of a custom call at export."""

    def __init__(self, _impl: str):
        self._impl = _impl

    @classmethod
    def platform(cls) -> DisabledSafetyCheck:
        """Allow calls on platforms that the function was not exported for."""
        return cls("platform")

    @classmethod
    def custom_call(cls, target_name: str) -> DisabledSafetyCheck:
        """Allow a custom call for which there is no promise of compatibility."""
        return cls(f"custom_call:{target_name}")

    def is_custom_call(self) -> str | None:
        """The custom call that is allowed, if it is that."""
        return self._impl.removeprefix("custom_call:") if self._impl.startswith("custom_call:") else None

    def __str__(self) -> str:
        return self._impl

    __repr__ = __str__

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, DisabledSafetyCheck) and self._impl == other._impl

    def __hash__(self) -> int:
        return hash(self._impl)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Exported:
    """A function lowered to StableHLO, with its signature.

    Attributes: `fun_name`; `in_tree` and `out_tree`, the trees of (args, kwargs) and of the result; `in_avals` and
      `out_avals`, the
      types of their leaves, whose dimensions may be symbolic; `platforms`; `nr_devices`; `mlir_module_serialized`, the portable
      artifact; `module_kept_var_idx`, which arguments the module takes; `uses_global_constants`, whether it has to be made
      static
      before it is compiled: for symbolic dimensions or several platforms; `calling_convention_version`;
      `disabled_safety_checks`; `ordered_effects` and `unordered_effects`.

    A function that was exported for several devices runs on arrays over as many devices, or under
    `jit` with shardings over a mesh of that size.
    """

    fun_name: str
    in_tree: Any
    in_avals: tuple[Any, ...]
    out_tree: Any
    out_avals: tuple[Any, ...]
    nr_devices: int
    platforms: tuple[str, ...]
    ordered_effects: tuple[str, ...]
    unordered_effects: tuple[str, ...]
    disabled_safety_checks: tuple[DisabledSafetyCheck, ...]
    mlir_module_serialized: bytes
    calling_convention_version: int
    module_kept_var_idx: tuple[int, ...]
    uses_global_constants: bool
    _get_vjp: Callable[[Exported], Exported] | None = None
    _in_named_shardings: tuple[Any, ...] = ()
    _out_named_shardings: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        return f"Exported(fun_name={self.fun_name}, ...)"

    in_shardings_hlo = property(lambda self: _hlo(self._in_named_shardings, self.in_avals), doc="Of the arguments, for XLA.")
    out_shardings_hlo = property(lambda self: _hlo(self._out_named_shardings, self.out_avals), doc="Of the results, for XLA.")

    def in_shardings_jax(self, mesh: Any) -> tuple[Any, ...]:
        """The shardings of the arguments over a mesh of the shape that the function was exported for; None where it is free."""
        return _over(mesh, self._in_named_shardings or (None,) * len(self.in_avals))

    def out_shardings_jax(self, mesh: Any) -> tuple[Any, ...]:
        """The shardings of the results, as `in_shardings_jax`."""
        return _over(mesh, self._out_named_shardings or (None,) * len(self.out_avals))

    def mlir_module(self) -> str:
        """The module as StableHLO text."""
        from lowering import portable  # with all of lowering

        return portable.text_of(self.mlir_module_serialized)

    def has_vjp(self) -> bool:
        """Whether there is a function of its derivative."""
        return self._get_vjp is not None

    def vjp(self) -> Exported:
        """The exported function that takes the flat arguments and a cotangent for each result, and gives one for each argument.

        Raises: ValueError if the file was written without.
        """
        if self._get_vjp is None:
            raise ValueError("No VJP is available")
        return self._get_vjp(self)

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """The function as bytes, in JAX's format: `deserialize` here and JAX's read them.

        Args: `vjp_order` how many times the function can be differentiated in reverse mode after it is read.
        """
        return bytearray(serialization.write(self, vjp_order))

    @boundary
    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call it, also from traced functions. It can be differentiated in reverse mode; it cannot be batched.

        Raises: ValueError for arguments of another tree, shape or dtype than it was exported for, and at the compile for
          another
          platform or number of devices.
        """
        leaves, tree = tree_flatten((args, kwargs))
        wrong = next((leaf for leaf in leaves if not is_array_like(leaf) and not hasattr(leaf, "__jax_array__")), None)
        if wrong is not None:
            raise TypeError(f"Argument {wrong!r} of type {type(wrong)} is not a valid JAX type")
        if tree != self.in_tree:
            raise ValueError(self._tree_error(tree))
        avals = tuple(map(aval_of, leaves))
        outs = [np.zeros(aval.shape, dtypes.float0) if value is None else value
                for value, aval in zip(self._apply(leaves, avals), self.result_avals(avals), strict=True)]
        return tree_unflatten(self.out_tree, outs)

    def _apply(self, leaves: Sequence[Any], avals: tuple[Any, ...]) -> list[Any]:
        """The results of flat arguments of these types. Those of dtype float0 have no data: such a result is None, and
        is not looked at as an argument.
        """
        out_avals = self.result_avals(avals)
        with_data = [index for index, aval in enumerate(out_avals) if aval.dtype != dtypes.float0]

        @custom_vjp
        def flat(*values: Any) -> tuple[Any, ...]:
            kept = [values[index] for index in self.module_kept_var_idx]
            return tuple(call_exported_p.bind(*kept, exported=_Bound(self, avals)))

        def pull_back(values: tuple[Any, ...], cotangents: Sequence[Any]) -> tuple[Any, ...]:
            of_results: list[Any] = [None] * len(out_avals)
            for index, cotangent in zip(with_data, cotangents, strict=True):
                of_results[index] = cotangent
            return tuple(self.vjp()._apply([*values, *of_results], (*avals, *map(tangent_aval, out_avals))))

        flat.defvjp(lambda *values: (flat(*values), values), pull_back)
        results: list[Any] = [None] * len(out_avals)
        values = [shaping.full(aval.shape, False) if aval.dtype == dtypes.float0 else leaf
                  for leaf, aval in zip(leaves, avals, strict=True)]
        for index, value in zip(with_data, flat(*values), strict=True):
            results[index] = value
        return results

    def _tree_error(self, tree: Any) -> str:
        lines = []
        for path, one, two, why in tree_differences().equality_errors(self.in_tree, tree):
            place = ("args", "kwargs")[path[0].idx] + keystr(path[1:])
            lines.append(f"   - {place} is {two} in the invocation and {one} when exported, so {why}.\n")
        return ("The invocation args and kwargs must have the same pytree structure as when the function "
                f"'{self.fun_name}' was exported, but they have the following structural differences:\n" + "".join(lines))

    def argument_names(self) -> list[str]:
        """`args[0]['x']` and the like, for messages."""
        return _argument_names(self.in_tree)

    def result_avals(self, avals: Sequence[Any]) -> tuple[Any, ...]:
        """The types of the results for arguments of these types. Raises: ValueError if they do not fit."""
        names = self.argument_names()
        for name, aval, wanted in zip(names, avals, self.in_avals, strict=True):
            if len(aval.shape) != len(wanted.shape):
                raise ValueError(f"Rank mismatch for {name}: expected {_text(wanted.shape)} and called with "
                                 f"{_text(aval.shape)}")
            if aval.dtype != wanted.dtype:
                raise ValueError(f"Dtype mismatch for {name}: expected {wanted.dtype} and called with {aval.dtype}")
            for axis, (size, expected) in enumerate(zip(aval.shape, wanted.shape, strict=True)):
                if type(expected) is int and size != expected:
                    raise ValueError(f"Shape mismatch for {name}.shape[{axis}] (expected same constant): expected "
                                     f"{_text(wanted.shape)} and called with {_text(aval.shape)}")
        if all(type(size) is int for aval in (*self.in_avals, *self.out_avals) for size in aval.shape):
            return self.out_avals
        values = solve([aval.shape for aval in self.in_avals], [aval.shape for aval in avals], names)
        return tuple(with_layout(ShapedArray(
            tuple(size if type(size) is int else size.evaluate(values) for size in aval.shape), aval.dtype,
            aval.weak_type), aval.layout)
            for aval in self.out_avals)

    def platform_index(self, platform: str, canonical: Callable[[str], str]) -> int:
        """Which of its platforms a program for this one is. Raises: ValueError if it is none of them."""
        names = [canonical(each) for each in self.platforms]
        if platform in names:
            return names.index(platform)
        if DisabledSafetyCheck.platform() in self.disabled_safety_checks:
            return 0
        shown = platform if platform != "gpu" else "cuda"
        raise ValueError(f"Function '{self.fun_name}' was exported for platforms '{self.platforms}' but it is used on "
                         f"'{(shown,)}'.")


def _over(mesh: Any, named: Sequence[Any]) -> tuple[Any, ...]:
    for each in named:
        if each is not None and (each.mesh.axis_names, each.mesh.axis_sizes) != (mesh.axis_names, mesh.axis_sizes):
            raise ValueError(f"NamedSharding new mesh {mesh} does not match the mesh used for export {each.mesh}.")
    return tuple(None if each is None else xla.NamedSharding(mesh, each.spec, memory_kind=each.memory_kind) for each in named)


def _hlo(named: Sequence[Any], avals: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(None if each is None else each._to_xla_hlo_sharding(len(aval.shape))
                 for each, aval in zip(named or [None] * len(avals), avals, strict=True))


def _abstract(named: Sequence[Any]) -> tuple[Any, ...]:
    """Shardings without their devices."""
    return tuple(None if each is None else xla.NamedSharding(each.mesh.abstract_mesh, each.spec) for each in named)


def _argument_names(in_tree: Any) -> list[str]:
    return [("args", "kwargs")[path[0].idx] + keystr(path[1:]) if path else f"#{number}"
            for number, path in enumerate(leaf_paths(in_tree))]


def _text(shape: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


class _Bound:
    """An exported function with the types of all arguments of a call: the param of `call_exported`."""

    __slots__ = ("exported", "avals")

    def __init__(self, exported: Exported, avals: tuple[Any, ...]):
        self.exported, self.avals = exported, avals

    def __getattr__(self, name: str) -> Any:
        return getattr(self.exported, name)

    @property
    def results(self) -> list[int]:
        """Which results have data: those of dtype float0 have none."""
        return [index for index, aval in enumerate(self.exported.out_avals) if aval.dtype != dtypes.float0]

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Bound) and self.exported is other.exported and self.avals == other.avals

    def __hash__(self) -> int:
        return hash((id(self.exported), self.avals))

    def __repr__(self) -> str:
        return repr(self.exported)


@call_exported_p.def_effectful_abstract_eval
def _call_exported_aval(*avals: Any, exported: _Bound) -> Any:
    outs = [aval for aval in exported.result_avals(exported.avals) if aval.dtype != dtypes.float0]
    effects = frozenset([IO[False]]) if exported.unordered_effects else frozenset()
    return outs, effects


def deserialize(blob: bytes | bytearray) -> Exported:
    """Read an exported function from bytes that jaxlite or JAX wrote.

    Raises: ValueError for what is no such file; NotImplementedError for one of a version that is not known.

    >>> import jaxlite
    >>> from jaxlite import export
    >>> file = export.export(jaxlite.jit(lambda x: x * 2))(1.0).serialize()
    >>> export.deserialize(file).call(3.0)
    Array(6., dtype=float32)
    """
    if not isinstance(blob, (bytes, bytearray, memoryview)):
        raise TypeError(f"deserialize takes the bytes of a file, got a {type(blob).__name__}")
    return serialization.read(bytes(blob), Exported, DisabledSafetyCheck)


# --- making them -------------------------------------------------------------------------------------


def default_export_platform() -> str:
    """The platform of uncommitted arrays: 'cpu', 'cuda', 'rocm' or 'tpu'."""
    name = default_backend()
    if name == "gpu":
        return "rocm" if "rocm" in str(getattr(xla, "platform_version", "")) else "cuda"
    return name


@boundary
def export(fun_jit: Any, *, platforms: Sequence[str] | None = None,
           disabled_checks: Sequence[DisabledSafetyCheck] = ()) -> Callable[..., Exported]:
    """Lower a jitted function to a portable form.

    Args:
      fun_jit: what `jit` gave.
      platforms: among 'cpu', 'cuda', 'rocm' and 'tpu'; the program then runs on each of them. Default: where arrays live.
      disabled_checks: safety checks to leave out.
    Returns: a function of arguments, or of objects with `shape` and `dtype`, that gives an `Exported`.
    Raises: ValueError for a function that is not jitted, and for custom calls that nobody promises to keep;
      NotImplementedError for host callbacks.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> from jaxlite import export
    >>> exported = export.export(jaxlite.jit(jnp.sin))(jaxlite.ShapeDtypeStruct((3,), jnp.float32))
    >>> exported.platforms, exported.out_avals
    (('cpu',), (ShapedArray(float32[3]),))
    >>> exported.call(jnp.zeros(3))
    Array([0., 0., 0.], dtype=float32)
    """
    if not isinstance(fun_jit, xla.PjitFunction):
        if not str(getattr(fun_jit, "__module__", "")).startswith("jaxlite."):
            raise ValueError(f"Function to be exported must be the result of `jit` but is: {fun_jit}")
        fun_jit = jit(fun_jit)  # jnp.sin and the like are as good as jitted
    targets = (default_export_platform(),) if platforms is None else tuple(platforms)
    if not targets:
        raise ValueError("there are no platforms to export for: name one, or leave `platforms` out")
    for target in targets:
        if target not in _PLATFORMS:
            raise ValueError(f"unknown platform {target!r} to export for; the platforms are {', '.join(_PLATFORMS)}")

    @boundary
    def do_export(*args: Any, **kwargs: Any) -> Exported:
        version = config.export_calling_convention_version.value
        if not minimum_supported_calling_convention_version <= version <= maximum_supported_calling_convention_version:
            raise ValueError(f"The requested export calling convention version {version} is outside the range of supported "
                             f"versions [{minimum_supported_calling_convention_version}.."
                             f"{maximum_supported_calling_convention_version}]")
        _check_scopes(fun_jit, args, kwargs)
        program, leaves = jitted_of(fun_jit).program(args, kwargs, stages.abstract)
        program = program.laid_out(leaves)
        closed, place = program.runnable, program.place(leaves)[0]
        spread = place if type(place) is Partitioning else None
        in_named = () if spread is None else spread.arguments[len(spread.arguments) - spread.num_arguments:]
        out_named = () if spread is None else spread.results
        in_avals, out_avals = tuple(closed.in_avals), tuple(closed.out_avals)
        key = "export", targets, tuple(disabled_checks), spread
        found = program.modules.get(key)
        if found is None:
            module, kept, is_polymorphic = _module(closed.jaxpr, closed.consts, program, targets, disabled_checks, spread)
            found = program.modules[key] = xla.to_portable(module), tuple(kept), is_polymorphic
        serialized, kept_indices, is_polymorphic = found
        return Exported(
            fun_name=program.name, in_tree=program.in_tree, in_avals=in_avals, out_tree=program.out_tree, out_avals=out_avals,
            nr_devices=1 if spread is None else len(spread.devices), platforms=targets,
            ordered_effects=(), unordered_effects=(),
            disabled_safety_checks=tuple(disabled_checks), mlir_module_serialized=serialized,
            calling_convention_version=version, module_kept_var_idx=kept_indices,
            uses_global_constants=is_polymorphic or len(targets) > 1,
            _get_vjp=lambda exported: _export_vjp(fun_jit, exported, in_named, out_named),
            _in_named_shardings=_abstract(in_named), _out_named_shardings=_abstract(out_named))

    return do_export


def _check_scopes(fun_jit: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises: ValueError for symbolic dimensions of several scopes: nothing says how they compare."""
    first = None
    for path, leaf in tree_flatten_with_path((args, kwargs))[0]:
        for dim in filter(is_symbolic, getattr(leaf, "shape", ())):
            name = ("args", "kwargs")[path[0].idx] + keystr(path[1:])
            if first is None:
                first = dim, name
            elif dim.scope is not first[0].scope:
                raise ValueError(f"Invalid mixing of symbolic scopes when exporting {source.function_name(fun_jit)}.\nThe "
                                 f"dimension '{first[0]}' of {first[1]} and '{dim}' of {name} were made by different calls of "
                                 "symbolic_shape. Pass the scope of one to the other (scope=...), or make them in one call.")


def _module(jaxpr: Jaxpr, consts: Sequence[Any], program: Any, targets: Sequence[str],
            disabled: Sequence[DisabledSafetyCheck], spread: Partitioning | None) -> tuple[Any, list[int], bool]:
    from lowering import portable  # with all of lowering
    from lowering.symbolic import OPERATIONS

    constants = [const if isinstance(const, np.ndarray) else arrays.host_value(getattr(const, "_base_array", const))
                 for const in consts]
    wanted: list[Any] = [var.aval for var in jaxpr.constvars]
    constants = [const.astype(aval.dtype, copy=False) if aval.dtype != const.dtype and const.dtype.kind in "iufc" else const
                 for const, aval in zip(constants, wanted, strict=True)]  # 64 bits without x64
    names = list(program.debug_info.arg_names or ())
    names += [""] * (len(jaxpr.invars) - len(names))
    results = ["result" + "".join(map(str, path)) for path in leaf_paths(program.out_tree)]
    allowed = [target for check in disabled if (target := check.is_custom_call())]
    shapes = [aval.shape for aval in jaxpr.in_avals]
    solver = None
    if any(map(is_symbolic, (size for shape in shapes for size in shape))):
        paths = _argument_names(program.in_tree)

        def solver(sizes: Sequence[Any], require: Callable[..., None]) -> dict[str, Any]:
            return solve(shapes, sizes, paths, require, OPERATIONS)

    module, kept, unusable = portable.export_module(
        jaxpr, constants, program.name, targets, source.is_own_file, names, results, allowed, solver, spread,
        program.options.keep_unused, program.layouts, program.donated_arrays)
    warn_of_donated(unusable)
    return module, kept, solver is not None


def _export_vjp(fun_jit: Any, primal: Exported, in_named: Sequence[Any], out_named: Sequence[Any]) -> Exported:
    """The exported function of the flat arguments and the cotangents of the results, with the shardings of both."""
    count = len(primal.in_avals)
    moving = [tangent_aval(aval).dtype != dtypes.float0 for aval in primal.in_avals]
    ct_avals = [tangent_aval(aval) for aval in primal.out_avals]

    def fun_vjp_jax(*values: Any) -> tuple[Any, ...]:
        def flat(*moved: Any) -> list[Any]:
            of_moved = iter(moved)
            leaves = [next(of_moved) if flag else value for value, flag in zip(values, moving, strict=False)]
            args, kwargs = tree_unflatten(primal.in_tree, leaves)
            outs = tree_flatten(fun_jit(*args, **kwargs))[0]
            return [out for out, aval in zip(outs, ct_avals, strict=True) if aval.dtype != dtypes.float0]

        _, pull = vjp(flat, *(value for value, flag in zip(values, moving, strict=False) if flag))
        cts = iter(pull([ct for ct, aval in zip(values[count:], ct_avals, strict=True) if aval.dtype != dtypes.float0]))
        return tuple(next(cts) if flag else shaping.full(aval.shape, False)
                     for flag, aval in zip(moving, primal.in_avals, strict=True))

    def no_float0(aval: Any) -> Any:
        return ShapedArray(aval.shape, np.dtype(bool)) if aval.dtype == dtypes.float0 else aval

    of_arguments: Any = tuple(in_named) + tuple(out_named) if in_named else None
    jitted = jit(fun_vjp_jax, in_shardings=of_arguments, out_shardings=tuple(in_named) or None)
    made = export(jitted, platforms=primal.platforms, disabled_checks=primal.disabled_safety_checks)(
        *primal.in_avals, *map(no_float0, ct_avals))
    return dataclasses.replace(
        made, in_avals=(*primal.in_avals, *ct_avals), out_avals=tuple(tangent_aval(aval) for aval in primal.in_avals))
