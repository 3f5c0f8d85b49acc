"""Exported programs: modules for one or several platforms, and loading modules from files.

A module for several platforms has the index of the platform as first parameter, an i32, and branches on it. A loaded module
is refined to static types, and its functions are added to the calling module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lowering import xla
from lowering.buffers import physical
from lowering.lowered import donate
from lowering.module import ModuleBuilder, module_name
from lowering.partitioning import Partitioning, annotate, annotate_kinds, annotate_layouts, memory_kinds
from lowering.passes.dce import live_parts
from lowering.several import emit_choice
from lowering.symbolic import SymbolicBuilder

# Custom calls whose meaning stays what it is.
_STABLE_CALLS = ("lapack_", "cu_", "cusolver_", "cublas_", "hipsolver_", "hip_", "mhlo.", "Sharding", "SPMD", "shape_assertion",
                 "annotate_device_placement", "tpu_custom_call", "__gpu$xla.gpu.triton", "Eigh", "Qr", "ProductOfElementary",
                 "LuDecomposition", "ApproxTopK", "PartialReduce", "TopK", "dynamic_", "stablehlo.", "xla.",
                 "householder_product", "eigh_", "lu_pivots", "CompactWyHelper", "InspectSharding", "tf.call_tf_function")


def export_module(jaxpr: Any, constants: Sequence[np.ndarray], name: str, targets: Sequence[str],
                  is_hidden: Callable[[str], bool], argument_names: Sequence[str], result_names: Sequence[str],
                  allowed_calls: Sequence[str] = (), solve: Any = None, partitioning: Partitioning | None = None,
                  keep_unused: bool = False, layouts: tuple[Sequence[Any], Sequence[Any]] | None = None,
                  donated: Sequence[bool] = ()) -> tuple[Any, list[int], list[Any]]:
    """A module by JAX's calling convention for exported programs, which of the invars it takes, and the types of those that are
    donated in vain.

    Args: `name` of the function; `constants` the values of the constvars, which the module contains; `targets` the
      platforms, 'cpu', 'cuda', 'rocm', 'tpu'; `partitioning` the devices and shardings of a program over several devices;
      `keep_unused` take those invars too that no equation reads; `layouts` and `donated` as for `lowering.lowered.lower`.
      With `solve(sizes, require)` the program has symbolic dimensions: it gives the values of variables for the sizes of all
      invars.
    Raises: ValueError for custom calls without a compatibility guarantee, NotImplementedError for calls of Python functions.
    """
    eqns, used = live_parts(jaxpr)
    if solve is not None or keep_unused:  # for `solve`, the sizes of all of them count
        used = [*used[:len(jaxpr.constvars)], *[True] * len(jaxpr.invars)]
    consts = [(var, value) for var, value, keep in zip(jaxpr.constvars, constants, used, strict=False) if keep]
    kept = [index for index, keep in enumerate(used[len(jaxpr.constvars):]) if keep]
    program = jaxpr.replace(constvars=[var for var, _ in consts], invars=[jaxpr.invars[index] for index in kept], eqns=eqns)
    values = [value for _, value in consts]
    names = [argument_names[index] for index in kept]
    setting = module_name(name), is_hidden, targets[0]
    builder = ModuleBuilder(*setting) if solve is None else SymbolicBuilder(
        *setting, [physical(var.aval)[0] for var in program.invars], solve)
    builder.is_portable = True
    of_arguments: list[dict[str, Any]] = [{} for _ in program.invars]
    of_results: list[dict[str, Any]] = [{} for _ in program.outvars]
    taken = [False] * len(jaxpr.constvars) + used[len(jaxpr.constvars):]  # constants are in the module
    kinds: Any = [None] * len(program.invars), [None] * len(program.outvars)
    if partitioning is not None:
        annotate(builder, partitioning, program.invars, program.outvars, taken, of_arguments, of_results)
        in_kinds, out_kinds = memory_kinds(partitioning)
        kinds = [kind for kind, keep in zip(in_kinds, taken, strict=True) if keep], out_kinds
        annotate_kinds(builder, (kinds[0], of_arguments), (kinds[1], of_results))
    modes = None
    if layouts is not None:
        modes = [layouts[0][len(jaxpr.constvars) + index] for index in kept], layouts[1]
        annotate_layouts(builder, (program.invars, modes[0], of_arguments), (program.outvars, modes[1], of_results))
    offered = [bool(donated) and donated[index] for index in kept]
    _, unusable = donate(builder, (program.invars, offered, kinds[0], of_arguments), (program.outvars, kinds[1]), partitioning,
                         taken, modes)
    with builder.context:
        if len(targets) == 1:
            builder.emit_function(program, "main", "public", of_arguments, of_results, result_names=result_names, names=names,
                                  constants=values)
        else:
            emit_choice(builder, program, values, targets, result_names, names, of_arguments, of_results)
        flag = builder.ir.BoolAttr.get(len(targets) > 1 or solve is not None)
        builder.module.operation.attributes["jax.uses_shape_polymorphism"] = flag
    if builder.host_functions:
        raise NotImplementedError("serialization of host_callbacks is not yet implemented")
    _check_calls(builder.module, allowed_calls)
    return builder.module, kept, unusable


def _operations(operation: Any) -> Any:
    """An operation and all in it."""
    yield operation
    for region in operation.regions:
        for block in region:
            for each in block:
                yield from _operations(each.operation)


def _check_calls(module: Any, allowed: Sequence[str]) -> None:
    found = []
    for operation in _operations(module.operation):
        if operation.name == "stablehlo.custom_call":
            target = operation.attributes["call_target_name"].value
            if not target.startswith(_STABLE_CALLS) and target not in allowed:
                found.append(target)
    if found:
        raise ValueError("Cannot serialize code with custom calls whose targets have no compatibility guarantees. See "
                         "https://docs.jax.dev/en/latest/export/export.html#compatibility-guarantees-for-custom-calls. "
                         f"Examples are:\n{', '.join(sorted(set(found)))}. If you guarantee compatibility, export with "
                         "disabled_checks=[DisabledSafetyCheck.custom_call(name)].")


# --- modules from elsewhere --------------------------------------------------------------------------


def text_of(artifact: bytes) -> str:
    """A portable artifact as StableHLO text."""
    return str(from_artifact(artifact, None))


def from_artifact(artifact: bytes, context: Any) -> Any:
    """The module of a portable artifact, in a context or in one of its own."""
    context = context or xla.make_context()
    xla.load_shardy(context)
    return xla.from_portable(artifact, context)


def specialise(artifact: bytes, context: Any, types: Sequence[Any]) -> Any:
    """The module of an artifact, its `main` made to take operands of these static types. Constraints on shapes are checked.

    Raises: ValueError with the constraint that does not hold.
    """
    module = from_artifact(artifact, context)
    ir = xla.ir
    main = _function(module, "main")
    with module.context, ir.Location.unknown():
        main.attributes["sym_name"] = ir.StringAttr.get("_exported_main")
        main.attributes["sym_visibility"] = ir.StringAttr.get("private")
        kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
        entry = ir.Operation.create("func.func", [], [], {
            "sym_name": ir.StringAttr.get("main"), "sym_visibility": ir.StringAttr.get("public"),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get(list(types), kind.results)),
            **{name: main.attributes[name] for name in ("arg_attrs", "res_attrs") if name in main.attributes}}, None, 1,
            ip=ir.InsertionPoint(module.body))
        block = entry.regions[0].blocks.append(*types)
        with ir.InsertionPoint(block):
            operands = [value if value.type == wanted else
                        ir.Operation.create("stablehlo.convert", [wanted], [value]).result
                        for value, wanted in zip(block.arguments, kind.inputs, strict=True)]
            call = ir.Operation.create("func.call", kind.results, operands,
                                       {"callee": ir.FlatSymbolRefAttr.get("_exported_main")})
            ir.Operation.create("func.return", [], list(call.results))
    return ir.Module.parse(xla.refine(module), module.context)


def _function(module: Any, name: str) -> Any:
    for operation in module.body:
        if operation.operation.name == "func.func" and operation.operation.attributes["sym_name"].value == name:
            return operation.operation
    raise ValueError(f"the program has no function {name!r}")


def merge(builder: ModuleBuilder, module: Any) -> tuple[str, Any]:
    """Copy all functions of a module of the same context into the one under construction, under names of their own.

    Returns: the symbol and the type of its `main`.
    """
    ir = builder.ir
    functions = [each.operation for each in module.body if each.operation.name == "func.func"]
    inside = [each for function in functions for each in _operations(function)]
    if builder.meshes is not None:
        _adopt_meshes(builder, module, inside)
    for operation in inside if builder.meshes is None else ():
        if operation.name == "sdy.sharding_constraint":  # of a program for one device
            operation.result.replace_all_uses_with(operation.operands[0])
            operation.erase()
        elif "sdy.sharding" in operation.attributes:
            del operation.attributes["sdy.sharding"]
    names = {each.attributes["sym_name"].value: builder._unique_symbol(each.attributes["sym_name"].value) for each in functions}
    kind = None
    for function in functions:
        own = function.attributes["sym_name"].value
        if own == "main":
            kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
        copy = function.clone(builder.module_ip)
        copy.attributes["sym_name"] = ir.StringAttr.get(names[own], builder.context)
        copy.attributes["sym_visibility"] = ir.StringAttr.get("private", builder.context)
        for attribute in ("arg_attrs", "res_attrs"):
            if attribute in copy.attributes:
                del copy.attributes[attribute]
        for operation in _operations(copy):
            for name, value in _attributes(operation):
                renamed = _renamed(ir, value, names, builder.context)
                if renamed is not None:
                    operation.attributes[name] = renamed
    if "main" not in names:
        raise ValueError("the module of an exported function has no function `main`: its file is damaged")
    return names["main"], kind


def _adopt_meshes(builder: ModuleBuilder, module: Any, operations: Sequence[Any]) -> None:
    """Give the meshes of a module, which operations name in their shardings, to the one under construction."""
    names = {each.operation.attributes["sym_name"].value: builder.meshes.adopt(each.operation.attributes["mesh"])
             for each in module.body if each.operation.name == "sdy.mesh"}
    pattern = re.compile("@(" + "|".join(map(re.escape, names)) + r")(?![\w.$-])")
    for operation in operations if any(old != new for old, new in names.items()) else ():
        for name, value in _attributes(operation):
            text = str(value) if name != "value" else ""  # of constants, which may be large
            if "#sdy." in text or "mesh = @" in text:
                operation.attributes[name] = builder.ir.Attribute.parse(
                    pattern.sub(lambda match: f"@{names[match[1]]}", text), builder.context)


def main_shardings(module: Any) -> tuple[list[Any], list[Any]]:
    """The shardings of `main`'s arguments and results in a module, as Shardy's attributes; None without one."""
    main, ir = _function(module, "main"), xla.ir
    kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    found = []
    for name, count in (("arg_attrs", len(kind.inputs)), ("res_attrs", len(kind.results))):
        entries: Any = ir.ArrayAttr(main.attributes[name]) if name in main.attributes else [{}] * count
        found.append([entry["sdy.sharding"] if "sdy.sharding" in entry else None for entry in entries])
    return found[0], found[1]


def _attributes(operation: Any) -> list[tuple[str, Any]]:
    found = []
    for each in list(operation.attributes):
        try:
            found.append((each.name, each.attr) if hasattr(each, "attr") else (each, operation.attributes[each]))
        except TypeError:  # the bindings have no class for dense complex numbers
            continue
    return found


def _renamed(ir: Any, value: Any, names: dict[str, str], context: Any) -> Any:
    """An attribute that names functions with their new names; None for others."""
    if isinstance(value, ir.FlatSymbolRefAttr):
        new = names.get(ir.FlatSymbolRefAttr(value).value)
        return None if new is None else ir.FlatSymbolRefAttr.get(new, context)
    if isinstance(value, ir.ArrayAttr):
        items = [_renamed(ir, item, names, context) for item in ir.ArrayAttr(value)]
        if items and all(item is not None for item in items):
            return ir.ArrayAttr.get(items, context)
    return None


def static_types(builder: ModuleBuilder, avals: Sequence[Any]) -> list[Any]:
    """The MLIR types of values."""
    return [builder.tensor_type(*physical(aval)) for aval in avals]
