"""Makes a program, or the operations that end it, a function that XLA:CPU compiles as one, and undoes it after the compile.

XLA ends the process where a parameter of a function marked as small is no operand of an operation in it, and simplification
may leave any parameter without use. So the marked function only passes its parameters on to another, which XLA must not inline
into it. LLVM does.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lowering import xla

_PROGRAM, _MARKED = "jaxlite_program", "jaxlite_small"  # what is called, and the function that is marked
_PARTS = frozenset(f"stablehlo.{name}" for name in (  # of what an equation becomes, before its last operation
    "constant broadcast_in_dim reshape convert compare select add subtract multiply divide negate abs maximum minimum and or "
    "xor not is_finite iota exponential sqrt rsqrt log power").split())


def main_of(module: Any) -> Any:
    """The function of a module that is called from outside."""
    return next(each.operation for each in module.body if xla.ir.StringAttr(each.attributes["sym_name"]).value == "main")


@contextlib.contextmanager
def whole(module: Any, is_small: bool) -> Iterator[None]:
    """Within the context, `main` of a module calls its program as a function that is marked as small, if `is_small`."""
    if not is_small:
        yield
        return
    ir = xla.ir
    program = main_of(module)
    attributes = {name: program.attributes[name] for name in program.attributes}
    kind = ir.FunctionType(ir.TypeAttr(attributes["function_type"]).value)
    with program.location, ir.InsertionPoint(program):
        main, arguments = _function(kind, attributes)
        small = _marked(kind)
        _end(main, lambda: _call(_MARKED, arguments, kind, is_small=True))
    for name in ("arg_attrs", "res_attrs"):
        if name in attributes:
            del program.attributes[name]
    with module.context:
        for name, value in _private(_PROGRAM).items():
            program.attributes[name] = value
    try:
        yield
    finally:
        main.erase()
        small.erase()
        for name, value in attributes.items():
            program.attributes[name] = value


@contextlib.contextmanager
def end(scopes: Sequence[dict[Any, Any]], variables: Mapping[Any, bool]) -> Iterator[None]:
    """Within the context, operations that make these variables and end a function are in a function that is marked as small.

    Args:
      scopes: for each function and region of a module its variables and their values.
      variables: true for those of the function, false for those of programs that it calls, which may be functions of their own.
    """
    values = [(value, variables.get(var)) for scope in scopes for var, value in scope.items()
              if isinstance(value, xla.ir.Value) and not isinstance(value.owner, xla.ir.Block)] if variables else []
    outside = {value for value, found in values if found is None}
    inside = {value for value, found in values if found is not None} - outside
    functions = {value.owner.parent for value, found in values if found}
    undo = _move(functions.pop(), inside, outside) if len(functions) == 1 else None
    try:
        yield
    finally:
        if undo is not None:
            undo()


def _move(function: Any, inside: set[Any], outside: set[Any]) -> Callable[[], None] | None:
    """Put operations that give values `inside`, and that only each other and the end of a function read, into one of their own.

    Operations that give neither these values nor those `outside` are moved where all that read them are.
    Returns: what undoes it, None if nothing is moved.
    """
    ir = xla.ir
    *operations, last = [each.operation for each in function.regions[0].blocks[0]]
    chosen: set[Any] = set()
    for operation in reversed(operations):
        users = {use.owner.operation for value in operation.results for use in value.uses}
        is_asked = not inside.isdisjoint(operation.results)
        if len(operation.regions) and operation.name != "stablehlo.reduce":  # others may read values of the function
            continue
        if not is_asked and (operation.name not in _PARTS or not users or not outside.isdisjoint(operation.results)):
            continue
        if users <= (chosen | {last} if is_asked else chosen) and not any(
                map(_is_transposed, (*operation.results, *operation.operands))):
            chosen.add(operation)
    moved = [operation in chosen for operation in operations]  # an operation has another hash when its operands have changed
    operands = [list(operation.operands) for operation in operations]
    read = dict.fromkeys(
        value for values in itertools.compress(operands, moved) for value in values if _maker(value) not in chosen)
    constants = [value for value in read if _maker(value) is not None and _maker(value).name == "stablehlo.constant"]
    parameters = [value for value in read if value not in constants]
    results = [value for value in dict.fromkeys(last.operands) if _maker(value) in chosen]
    if not results or any(0 in ir.RankedTensorType(value.type).shape for value in parameters):  # XLA drops empty parameters
        return None
    returned = list(last.operands)
    with function.location, ir.InsertionPoint(function):
        kind = ir.FunctionType.get([value.type for value in parameters], [value.type for value in results])
        small, (program, arguments) = _marked(kind), _function(kind, _private(_PROGRAM, kind))
        body = program.regions[0].blocks[0]
        with ir.InsertionPoint(body):
            copies = [_maker(value).clone().result for value in constants]
        names = dict(zip((*constants, *parameters), (*copies, *arguments), strict=True))
        for operation, values in itertools.compress(zip(operations, operands, strict=True), moved):
            body.append(operation)
            _replace(operation, [names.get(value, value) for value in values])
        with ir.InsertionPoint(body):
            ir.Operation.create("func.return", operands=results)
    with last.location, ir.InsertionPoint(last):
        is_main = ir.StringAttr(function.attributes["sym_name"]).value == "main"
        hidden = [value if is_main and _maker(value) is None else _hidden(value) for value in parameters]
        called = _call(_MARKED, hidden, kind, is_small=True)
    _replace(last, [dict(zip(results, called, strict=True)).get(value, value) for value in returned])

    def undo() -> None:
        _replace(last, returned)
        called[0].owner.erase()
        for value, parameter in zip(hidden, parameters, strict=True):
            if value is not parameter:
                value.owner.erase()
        for operation, values, is_moved in zip(operations, operands, moved, strict=True):  # in the order in which they were
            operation.move_before(last)
            if is_moved:
                _replace(operation, values)
        small.erase()
        program.erase()

    return undo


def _hidden(value: Any) -> Any:
    """A value behind a barrier, for a function that is marked as small.

    XLA moves constants, which any value but an argument of the program may become, into such a function, and then ends the
    process.
    """
    return xla.ir.Operation.create("stablehlo.optimization_barrier", [value.type], [value]).result


def _maker(value: Any) -> Any:
    """The operation that a value is a result of; None for an argument."""
    return None if isinstance(value.owner, xla.ir.Block) else value.owner.operation


def _is_transposed(value: Any) -> bool:
    """Whether a value is transposed: in a small function XLA would transpose what it is made of as well."""
    maker = _maker(value)
    return maker is not None and maker.name == "stablehlo.transpose"


def _replace(operation: Any, operands: Sequence[Any]) -> None:
    for index, value in enumerate(operands):
        operation.operands[index] = value


def _private(name: str, kind: Any = None) -> dict[str, Any]:
    """The attributes of a function of the module's own, with its type if that is given."""
    ir = xla.ir
    named = {"sym_name": ir.StringAttr.get(name), "sym_visibility": ir.StringAttr.get("private")}
    return named if kind is None else {**named, "function_type": ir.TypeAttr.get(kind)}


def _function(kind: Any, attributes: dict[str, Any]) -> tuple[Any, Any]:
    """A function without operations, and its arguments."""
    function = xla.ir.Operation.create("func.func", attributes=attributes, regions=1)
    return function, xla.ir.Block.create_at_start(function.regions[0], kind.inputs).arguments


def _marked(kind: Any) -> Any:
    """The function that is marked, and passes its parameters on to the program."""
    small, parameters = _function(kind, _private(_MARKED, kind))
    _end(small, lambda: _call(_PROGRAM, parameters, kind))
    return small


def _end(function: Any, results: Callable[[], list[Any]]) -> None:
    with xla.ir.InsertionPoint(function.regions[0].blocks[0]):
        xla.ir.Operation.create("func.return", operands=results())


def _call(name: str, operands: Any, kind: Any, is_small: bool = False) -> list[Any]:
    """The results of a call of a function that XLA must not inline."""
    ir = xla.ir
    marks = {"inlineable": ir.StringAttr.get("false")}
    if is_small:
        marks["xla_cpu_small_call"] = ir.StringAttr.get("true")
    attributes = {"callee": ir.FlatSymbolRefAttr.get(name), "mhlo.frontend_attributes": ir.DictAttr.get(marks)}
    return list(ir.Operation.create("func.call", kind.results, list(operands), attributes).results)
