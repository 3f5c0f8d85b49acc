"""From a jaxpr to an MLIR module: a loop over the equations that calls the rule of each.

It only uses these attributes of jaxprs: `constvars`, `invars`, `outvars`, `eqns`; of equations `primitive.name`, `params`,
`invars`, `outvars`, `traceback`; of variables `aval` (`shape`, `dtype`); and of literals also `val`. Types, attributes,
constants and locations are cached per module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from lowering import platforms, xla
from lowering.buffers import physical
from lowering.metadata import mark as mark_words
from lowering.metadata import mark_all
from lowering.rules import DECOMPOSITIONS, ELEMENTWISE, EXTENDED, FOREIGN, RULES, find_rule

_ELEMENT_TYPE_TEXT = {
    "bool": "i1", "void": "i1",  # tangents without data: a boolean is the placeholder
    "float16": "f16", "float32": "f32", "float64": "f64", "bfloat16": "bf16",
    "complex64": "complex<f32>", "complex128": "complex<f64>",
    **{f"int{bits}": f"i{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"uint{bits}": f"ui{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    "float8_e3m4": "f8E3M4", "float8_e4m3": "f8E4M3", "float8_e4m3b11fnuz": "f8E4M3B11FNUZ",
    "float8_e4m3fn": "f8E4M3FN", "float8_e4m3fnuz": "f8E4M3FNUZ", "float8_e5m2": "f8E5M2",
    "float8_e5m2fnuz": "f8E5M2FNUZ", "float8_e8m0fnu": "f8E8M0FNU", "float4_e2m1fn": "f4E2M1FN",
    # The 6-bit floats are left out: XLA ends the process when it meets them.
}  # fmt: skip
_SIZE_LIMIT = 1 << 58  # elements; their bytes fit an int64
_DIVISIONS, _MANY_QUOTIENTS = ("stablehlo.divide", "stablehlo.remainder"), 1 << 16
_PACKED = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4}


# Of all operations with regions, these can run anything.
_LOOPS_AND_BRANCHES = ("stablehlo.while", "stablehlo.case", "sdy.manual_computation")


class LoweringError(NotImplementedError):
    """A program that cannot be said in StableHLO."""


class ModuleBuilder:
    """One MLIR module under construction, with everything that is cached for its lifetime."""

    def __init__(self, name: str, is_hidden: Callable[[str], bool], platform: str):
        ir = self.ir = xla.ir
        self.pin: Callable[[Any, list[Any], dict[Any, Any]], None] | None = None  # holds results to the layouts of their types
        self.meshes: Any = None  # `lowering.partitioning.Meshes`, in a module for several devices
        self.is_portable = False  # whether it has to be said in the StableHLO of other versions
        self.has_extended = False  # whether a value of an extended dtype was met
        self.lower_for(platform)
        self.context = xla.make_context()
        self.unknown_location = ir.Location.unknown(self.context)
        self._operation = ir.Operation.create
        self._location_cache = xla.location_cache(self.context, is_hidden)
        self.locations: dict[Any, dict[str, Any]] = {}  # by traceback, then by the primitive's name
        self.attributes: dict[Any, Any] = {}
        self._element_types: dict[Any, Any] = {}
        self._types: dict[Any, Any] = {}
        self.types_by_aval: dict[Any, Any] = {}
        self._functions: dict[Any, str] = {}
        self.keep_alive: list[Any] = []  # as long as the module
        self.sets_layouts = False  # whether XLA may choose another layout for results than the usual one
        self.context_class: Any = RuleContext  # what rules see
        self.leading_types: list[Any] = []  # of what a function takes in front of its own parameters
        self.merged: dict[Any, Any] = {}  # functions of exported modules, by what they were merged for
        self.host_functions: list[Callable[..., Any]] = []  # that the module calls, by their index
        self.scopes: list[dict[Any, Any]] = []  # variable -> its MLIR value, for each emission of a jaxpr
        self.overwritten: list[tuple[Any, int, Any, tuple[int, ...], Any]] = []  # see `passes.tables.filled`
        self.searches: list[Any] = []  # see `passes.searches`
        self._function_names: dict[str, int] = {}
        self._with_loops: dict[Any, bool] = {}  # jaxpr -> whether it has loops
        with self.context, self.unknown_location:
            self.module = ir.Module.create(self.unknown_location)
            attributes = self.module.operation.attributes
            attributes["sym_name"] = ir.StringAttr.get(name)
            i32 = ir.IntegerType.get_signless(32)
            attributes["mhlo.num_replicas"] = ir.IntegerAttr.get(i32, 1)
            attributes["mhlo.num_partitions"] = ir.IntegerAttr.get(i32, 1)
            self.module_ip = ir.InsertionPoint(self.module.body)
            self.i1 = ir.IntegerType.get_signless(1)
            self.i32 = i32
            self.i64 = ir.IntegerType.get_signless(64)
            self.token_type = ir.Type.parse("!stablehlo.token", self.context)

    def lower_for(self, target: str) -> None:
        """Choose the platform that rules ask for, 'cpu', 'gpu' or 'tpu'; `target` may also say whose GPU: 'cuda', 'rocm'."""
        self.platform = platforms.canonical_name(target)
        self.vendor = platforms.gpu_vendor(target) if self.platform == "gpu" else ""

    # --- types

    def element_type(self, dtype: Any) -> Any:
        """The MLIR type of one element."""
        try:
            return self._element_types[dtype]
        except KeyError:
            pass
        result = self._element_types[dtype] = self.ir.Type.parse(element_type_text(dtype), self.context)
        return result

    def tensor_type(self, shape: Sequence[int], dtype: Any) -> Any:
        """`tensor<2x3xf32>` and the like."""
        key = (tuple(shape), dtype)
        try:
            return self._types[key]
        except KeyError:
            if any(hasattr(size, "evaluate") for size in shape):
                raise ValueError(f"a program with symbolic dimensions, here {', '.join(map(str, shape))}, cannot be compiled: "
                                 "export it (jaxlite.export), and call it with arrays") from None
            if math.prod(key[0]) > _SIZE_LIMIT:  # XLA would end the process
                raise ValueError(f"an array of shape {key[0]} has too many elements to address") from None
            result = self._types[key] = self.ir.RankedTensorType.get(
                key[0], self.element_type(dtype), loc=self.unknown_location)
            return result

    def type_of(self, aval: Any) -> Any:
        """The MLIR type of an abstract value."""
        try:
            return self.types_by_aval[aval]
        except KeyError:
            pass
        if hasattr(aval, "shape"):
            shape, dtype = physical(aval)
            result = self.tensor_type(shape, dtype)
            self.has_extended |= dtype is not aval.dtype
        else:  # a token: an array without elements, so that it can pass any boundary
            result = self.tensor_type((0,), np.dtype(bool))
        self.types_by_aval[aval] = result
        return result

    # --- locations

    def location(self, name: str, traceback: Any) -> Any:
        """Where the user's code made an equation, under the primitive's name and those of the scopes around it."""
        scopes = getattr(traceback, "names", None)
        if scopes is not None:
            shown = [each for each in scopes if not hasattr(each, "words")]
            name, traceback = "/".join((*shown, name)), traceback.traceback
        child = self._location_cache.get(traceback) if traceback is not None else None
        return self.ir.Location.name(name, childLoc=child, context=self.context)

    @property
    def is_split(self) -> bool:
        """Whether XLA splits the arrays of what is emitted here between devices."""
        return self.meshes is not None and self.meshes.are_split

    # --- functions

    def function(self, jaxpr: Any, name: str, key: Any = None, in_loop: bool = False,
                 constants: tuple[tuple[int, Any], ...] = ()) -> str:
        """Emit a jaxpr as a private function, once for each key and these constants, and once for loops.

        Args: `constants` are the positions of parameters that the function does not have, and their values as attributes.
        Returns: the function's symbol.
        """
        key = jaxpr if key is None else key
        if constants:
            key = (key, constants)
        if in_loop:
            key = (key, "in a loop")
        if self.meshes is not None and self.meshes.is_manual:  # where collectives and callbacks are others
            key = (key, self.meshes.manual_axes)
        try:
            return self._functions[key]
        except KeyError:
            pass
        self.keep_alive.append(jaxpr)  # the key may be an address
        symbol = self._unique_symbol(name)
        if constants:
            inputs, values = [*jaxpr.constvars, *jaxpr.invars], dict(constants)
            jaxpr = jaxpr.replace(constvars=[inputs[at] for at in values],
                                  invars=[var for at, var in enumerate(inputs) if at not in values])
        self.emit_function(jaxpr, symbol, "private", constants=[value for _, value in constants], in_loop=in_loop)
        self._functions[key] = symbol
        return symbol

    def constants_in_loops(self, jaxpr: Any, operands: Sequence[Any]) -> tuple[tuple[int, Any], ...]:
        """The positions and values of the operands that are constants, if the program to be called with them has loops.

        A parameter that a loop reads is carried by it. XLA then moves out of the loop what does not change in it, even if it
        costs nothing, and each of that becomes an array and a kernel. Constants are not carried. (Complex ones are: the Python
        bindings of MLIR cannot read them.)
        """
        ir = self.ir
        found = [(at, value.owner) for at, value in enumerate(operands) if not isinstance(value.owner, ir.Block)
                 and value.owner.name == "stablehlo.constant"
                 and not isinstance(ir.RankedTensorType(value.type).element_type, ir.ComplexType)]
        return tuple((at, owner.attributes["value"]) for at, owner in found) if found and self._has_loop(jaxpr) else ()

    def _has_loop(self, jaxpr: Any) -> bool:
        """Whether a program has loops, or one that it calls."""
        found = self._with_loops.get(jaxpr)
        if found is None:
            found = self._with_loops[jaxpr] = any(map(self._is_or_calls_loop, jaxpr.eqns))
        return found

    def _is_or_calls_loop(self, eqn: Any) -> bool:
        params = eqn.params
        inner = [*params.get("branches", ()), *(params[name] for name in ("jaxpr", "call_jaxpr") if name in params)]
        return eqn.primitive.name in ("while", "scan") or any(self._has_loop(getattr(each, "jaxpr", each)) for each in inner)

    def _unique_symbol(self, name: str) -> str:
        base = "".join(char if char.isalnum() or char in "_." else "_" for char in name) or "f"
        if base == "main":
            base = "main_"
        count = self._function_names.get(base, 0)
        self._function_names[base] = count + 1
        return base if not count else self._unique_symbol(f"{base}_{count}")

    def emit_function(self, jaxpr: Any, symbol: str, visibility: str,
                      arg_attributes: list[dict[str, Any]] | None = None,
                      result_attributes: list[dict[str, Any]] | None = None,
                      result_names: Sequence[str] | None = None, names: Sequence[str] = (),
                      constants: Sequence[Any] = (), in_loop: bool = False) -> None:
        """Emit `func.func` with the jaxpr's constvars and invars as parameters; `names` become their locations.

        With `constants`, the values of the constvars as arrays or attributes, those are constants of the function and not
        parameters.

        A private function with ordered effects takes and gives the token of those before it, behind all else.
        """
        ir = self.ir
        loc = self.unknown_location
        inputs = jaxpr.invars if constants else [*jaxpr.constvars, *jaxpr.invars]
        in_types = [*self.leading_types, *(self.type_of(var.aval) for var in inputs)]
        out_types = [self.type_of(var.aval) for var in jaxpr.outvars]
        ordered = visibility == "private" and is_ordered(jaxpr)
        if ordered:
            in_types.append(self.token_type)
            out_types.append(self.token_type)
        with self.context:
            attributes = {
                "sym_name": ir.StringAttr.get(symbol),
                "sym_visibility": ir.StringAttr.get(visibility),
                "function_type": ir.TypeAttr.get(ir.FunctionType.get(in_types, out_types)),
            }
            if arg_attributes is not None:
                attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(entry) for entry in arg_attributes])
            if result_names is not None:
                entries = result_attributes or [{}] * len(result_names)
                attributes["res_attrs"] = ir.ArrayAttr.get(
                    [ir.DictAttr.get({"jax.result_info": ir.StringAttr.get(text), **entry})
                     for text, entry in zip(result_names, entries, strict=True)])
            elif result_attributes is not None:
                attributes["res_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(entry) for entry in result_attributes])
        operation = self._operation("func.func", [], [], attributes, None, 1, loc, self.module_ip)
        arg_locs = [ir.Location.name(name, context=self.context) if name else loc for name in names]
        block = operation.regions[0].blocks.append(*in_types, arg_locs=arg_locs or [loc] * len(in_types))
        scope = self.context_class(self, block)
        scope.in_loop = in_loop
        arguments = scope.arguments
        if ordered:
            scope.token = arguments.pop()
        own = self.begin(scope, arguments)
        results = scope.emit(jaxpr, [*map(scope.dense_constant, constants), *own])
        if ordered:
            results.append(scope.token)
        scope.op("func.return", results, [])

    def begin(self, scope: RuleContext, arguments: list[Any]) -> list[Any]:
        """Emit what comes first in a function; gives the arguments for its own parameters."""
        return arguments


def is_ordered(program: Any) -> bool:
    """Whether a jaxpr or an equation has effects that happen in the order of the program."""
    return any(getattr(effect, "ordered", False) for effect in program.effects)


def element_type_text(dtype: Any) -> str:
    """How MLIR writes the type of one element. Raises: LoweringError if there is none."""
    text = _ELEMENT_TYPE_TEXT.get(np.dtype(dtype).name)
    if text is None:
        raise LoweringError(f"dtype {dtype} has no type in StableHLO, or XLA cannot compile it")
    return text


def module_name(name: str) -> str:
    """The name of a function's module."""
    identifier = "".join(char if char.isalnum() or char in "_.-" else "_" for char in name) or "unnamed"
    return f"jit_{identifier}".rstrip("_")


class RuleContext:
    """What a rule sees: the equation's types, and the means to emit operations where they belong."""

    __slots__ = ("builder", "ip", "loc", "eqn", "_constants", "_broadcasts", "_patterns", "_operation", "ir", "block",
                 "in_computation", "in_loop", "_token")

    def __init__(self, builder: ModuleBuilder, block: Any, parent: RuleContext | None = None):
        self.builder = builder
        self.ir = builder.ir
        self.block = block
        self.ip = builder.ir.InsertionPoint(block)
        self._operation = builder.ir.Operation.create
        self.loc: Any = builder.unknown_location if parent is None else parent.loc
        self.eqn: Any = None if parent is None else parent.eqn
        self.in_computation: bool = parent is not None and parent.in_computation  # of a reduction or the like
        self.in_loop: bool = parent is not None and parent.in_loop
        self._token: Any = None
        # The constants and the broadcasts of scalars that stand in this block. A block does not use those around it: XLA's
        # reducers and comparators cannot see them, and a loop would carry them.
        self._constants: dict[Any, Any] = {}
        self._broadcasts: dict[Any, tuple[Any, Any]] = {}
        self._patterns: dict[Any, Any] = {}  # operations of this block to copy

    @property
    def arguments(self) -> list[Any]:
        """The arguments of the block that is written."""
        return list(self.block.arguments)

    # --- the given equation

    @property
    def avals_in(self) -> list[Any]:
        return [atom.aval for atom in self.eqn.invars]

    @property
    def avals_out(self) -> list[Any]:
        return [var.aval for var in self.eqn.outvars]

    @property
    def aval_out(self) -> Any:
        """The type of the only result."""
        return self.eqn.outvars[0].aval

    @property
    def platform(self) -> str:
        return self.builder.platform

    @property
    def token(self) -> Any:
        """The token that the next ordered effect waits for; a rule that emits one puts its own token here."""
        if self._token is None:
            self._token = self.op("stablehlo.after_all", [], [self.builder.token_type]).result
        return self._token

    @token.setter
    def token(self, value: Any) -> None:
        self._token = value

    # --- emitting

    def op(self, name: str, operands: Sequence[Any], types: Sequence[Any], attributes: dict[str, Any] | None = None,
           regions: int = 0) -> Any:
        """Emit an operation with the given result types; returns the operation."""
        return self._operation(name, types, operands, attributes, None, regions, self.loc, self.ip)

    def emit1(self, name: str, *operands: Any, **attributes: Any) -> Any:
        """Emit a one-result operation of the equation's own output type; returns the result value."""
        return self._operation(
            name, [self.builder.type_of(self.eqn.outvars[0].aval)], operands, attributes, None, 0, self.loc, self.ip
        ).result

    def value(self, name: str, operands: Sequence[Any], shape: Sequence[int], dtype: Any, **attributes: Any) -> Any:
        """Emit a one-result operation of the given shape and dtype; returns the result value."""
        return self._operation(
            name, [self.builder.tensor_type(shape, dtype)], operands, attributes, None, 0, self.loc, self.ip).result

    def repeated(self, key: Any, x: Any, make: Callable[[], Any]) -> Any:
        """An operation that `make` emits; for a key that was there before, a copy of it with `x` for its first operand.

        It is to have the same types, attributes, regions and other operands then. A copy takes a quarter of the time.
        """
        found = self._patterns.get(key)
        if found is None:
            found = self._patterns[key] = make()
            return found
        copy = found.clone(self.ip)
        copy.operands[0] = x
        copy.location = self.loc
        return copy

    def compare(self, x: Any, y: Any, direction: str, kind: str | None = None) -> Any:
        """`stablehlo.compare` of two values of one type; directions EQ NE GE GT LE LT."""
        ir_type = x.type
        if kind is None:
            kind = self._compare_kind(ir_type.element_type)
        return self._operation(
            "stablehlo.compare",
            [self.ir.RankedTensorType.get(ir_type.shape, self.builder.i1, loc=self.loc)], [x, y],
            {"comparison_direction": self.attribute(f"#stablehlo<comparison_direction {direction}>"),
             "compare_type": self.attribute(f"#stablehlo<comparison_type {kind}>")},
            None, 0, self.loc, self.ip).result

    def _compare_kind(self, element: Any) -> str:
        text = str(element)
        if text.startswith(("ui", "i1")) and text not in ("i16",):
            return "UNSIGNED"
        return "SIGNED" if text.startswith("i") else "FLOAT"

    def type_of(self, aval: Any) -> Any:
        return self.builder.type_of(aval)

    def tensor_type(self, shape: Sequence[int], dtype: Any) -> Any:
        return self.builder.tensor_type(shape, dtype)

    # --- attributes

    def attribute(self, text: str) -> Any:
        """An attribute from its MLIR text, remembered."""
        cache = self.builder.attributes
        key = text
        try:
            return cache[key]
        except KeyError:
            result = cache[key] = self.ir.Attribute.parse(text, self.builder.context)
            return result

    def accuracy(self, accuracy: Any = None) -> dict[str, Any]:
        """The attributes that say how exact an operation must be: a mode's name, or bounds of the error."""
        if accuracy is None:
            return {}
        mode, bounds = getattr(accuracy, "name", "TOLERANCE"), ""
        if mode == "TOLERANCE":
            bounds = f"atol = {accuracy.atol:e}, rtol = {accuracy.rtol:e}, ulps = {accuracy.ulps}, "
        return {"result_accuracy": self.attribute(
            f"#stablehlo.result_accuracy<{bounds}mode = #stablehlo.result_accuracy_mode<{mode}>>")}

    def i64s(self, values: Sequence[int]) -> Any:
        """`array<i64: 1, 2>`."""
        key = ("i64s", tuple(values))
        cache = self.builder.attributes
        try:
            return cache[key]
        except KeyError:
            result = cache[key] = self.ir.DenseI64ArrayAttr.get(list(key[1]), self.builder.context)
            return result

    def bools(self, values: Sequence[bool]) -> Any:
        """`array<i1: true, false>`."""
        return self.ir.DenseBoolArrayAttr.get([bool(value) for value in values], self.builder.context)

    def i64(self, value: int) -> Any:
        """`5 : i64`."""
        return self.ir.IntegerAttr.get(self.builder.i64, value)

    def i32(self, value: int) -> Any:
        """`5 : i32`."""
        return self.ir.IntegerAttr.get(self.builder.i32, value)

    def flag(self, value: bool) -> Any:
        """`true` or `false`."""
        return self.ir.BoolAttr.get(bool(value), self.builder.context)

    def string(self, text: str | bytes) -> Any:
        return self.ir.StringAttr.get(text, self.builder.context)

    def dense_i64(self, values: Any) -> Any:
        """`dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>`, for paddings."""
        return self.ir.DenseIntElementsAttr.get(np.asarray(values, np.int64), type=self.builder.i64,
                                                context=self.builder.context)

    # --- constants and broadcasts

    def constant(self, value: Any, dtype: Any, shape: Sequence[int] = ()) -> Any:
        """A constant: a scalar value broadcast to `shape`, or an array of exactly that shape."""
        shape = tuple(shape)
        kind = type(value)
        if not (kind is float or kind is int or kind is dtype.type and dtype.kind != "c") or not value:
            return self._constant(value, dtype, shape)
        found = self._constants.get((value, dtype, shape))  # equal numbers are one constant, but for zeros: they have a sign
        if found is None:
            found = self._constants[value, dtype, shape] = self._constant(value, dtype, shape)
        return found

    def divisor(self, value: Any, dtype: Any, shape: Sequence[int]) -> Any:
        """A constant by which values are divided. XLA:CPU looks at each of many equal integers, for a millisecond or more: it
        gets the bits of another type, which it reads when it has the divisor in the kernel."""
        if self.platform != "cpu" or dtype.kind not in "iu" or any(type(size) is not int for size in shape) or (
                math.prod(shape) < _MANY_QUOTIENTS):
            return self.constant(value, dtype, shape)
        bits = np.dtype(f"{'i' if dtype.kind == 'u' else 'u'}{dtype.itemsize}")
        constant = self.constant(np.asarray(value, dtype).view(bits)[()], bits)
        return self.broadcast(self.value("stablehlo.bitcast_convert", [constant], (), dtype), (), shape, dtype)

    def _is_guarded(self, divisor: Any, shape: Sequence[int]) -> bool:
        """Whether integers are divided by other divisors where these are zeros.

        XLA:CPU checks that too, which takes longer where quotients and remainders of arrays are corrected, as in `jnp.mod`.
        """
        is_array = isinstance(divisor.owner, self.ir.Block) or divisor.owner.name != "stablehlo.broadcast_in_dim"
        return xla.DIVIDES_BY_ZERO or self.platform == "cpu" and len(shape) > 0 and is_array

    def _quotient(self, operation: str, x: Any, divisor: Any, shape: Sequence[int], dtype: Any) -> Any:
        """A quotient or remainder of integers as XLA defines it, by a divisor without zeros.

        XLA of jaxlib 0.10 ends the process where it divides constants by zero when it compiles, and anything may become a
        constant then: `x - x`, elements of a table, operands of a function or a branch.
        """
        zero = self.constant(0, dtype, shape)
        is_zero = self.compare(divisor, zero, "EQ")
        divisor = self.value("stablehlo.select", [is_zero, self.constant(1, dtype, shape), divisor], shape, dtype)
        result = self.value(operation, [x, divisor], shape, dtype)
        by_zero = x if operation == "stablehlo.remainder" else self.value("stablehlo.not", [zero], shape, dtype)
        return self.value("stablehlo.select", [is_zero, by_zero, result], shape, dtype)

    def count(self, size: Any, dtype: Any) -> Any:
        """A size as a scalar; where sizes are symbolic, one of the program."""
        return self.constant(size, dtype)

    def shape_operands(self, shapes: Sequence[Sequence[int]], position: int) -> tuple[list[Any], dict[str, Any]]:
        """What a custom call needs beside its operands, the first at `position`, if the shapes of its results are symbolic."""
        return [], {}

    def _constant(self, value: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
        if type(value) is dtype.type:
            mark = value.tobytes()
        else:
            array = np.asarray(value)
            if array.dtype != dtype:
                with np.errstate(over="ignore"):  # a number of the program that is infinite in this dtype
                    array = array.astype(dtype)
            if array.ndim and array.shape == shape:
                return self.dense_constant(array)
            mark, value = array.tobytes(), array[()]
        key = (mark, dtype, shape)
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = (
                self.broadcast(self.constant(value, dtype), (), shape, dtype) if shape
                else self.dense_constant(np.asarray(value)))
        return found

    def dense_constant(self, array: Any) -> Any:
        """A constant of an array, or of the attribute that another is made of."""
        if isinstance(array, self.ir.Attribute):
            return self._operation("stablehlo.constant", [array.type], [], {"value": array}, None, 0, self.loc, self.ip).result
        if array.dtype.names:
            array = np.zeros(array.shape, bool)
        tensor = self.builder.tensor_type(array.shape, array.dtype)
        return self._operation("stablehlo.constant", [tensor], [], {"value": self.dense(array)}, None, 0,
                               self.loc, self.ip).result

    def dense(self, array: np.ndarray) -> Any:
        """The attribute with the elements of an array."""
        ir = self.ir
        dtype = array.dtype
        element = self.builder.element_type(dtype)
        tensor = self.builder.tensor_type(array.shape, dtype)
        if array.dtype == bool:
            attribute = ir.DenseElementsAttr.get(np.ascontiguousarray(array).view(np.uint8), shape=list(array.shape),
                                                 type=element, context=self.builder.context)
        elif dtype.name in _PACKED:
            bits = _PACKED[dtype.name]
            text = _dense_text(array, bits)
            attribute = ir.Attribute.parse(f"dense<{text}> : {tensor}", self.builder.context)
        else:
            contiguous = np.ascontiguousarray(array).reshape(array.shape)
            if dtype.kind == "V" or dtype in _ML_DTYPES:
                contiguous = contiguous.view(f"u{dtype.itemsize}")
            attribute = ir.DenseElementsAttr.get(contiguous, shape=list(array.shape), type=element,
                                                 context=self.builder.context)
        return attribute

    def transposed(self, x: Any, shape: Sequence[int], order: Sequence[int], dtype: Any) -> Any:
        """A value of this shape with its axes in another order."""
        return self.value("stablehlo.transpose", [x], [shape[axis] for axis in order], dtype, permutation=self.i64s(order))

    def broadcast(self, x: Any, from_shape: Sequence[int], to_shape: Sequence[int], dtype: Any) -> Any:
        """Broadcast a scalar or a value of the same rank to a shape."""
        to_shape = tuple(to_shape)
        if from_shape:
            if from_shape == to_shape:
                return x
            return self.value("stablehlo.broadcast_in_dim", [x], to_shape, dtype,
                              broadcast_dimensions=self.i64s(range(len(to_shape))))
        if not to_shape:
            return x
        key = (id(x), to_shape)
        found = self._broadcasts.get(key)
        # XLA multiplies by the reciprocal of a divisor that is read again. That of a quotient is computed of what the quotient
        # was computed of, and a loop that updates this in place copies it.
        if found is not None and getattr(x.owner, "name", "") != "stablehlo.divide":
            return found[1]
        result = self.value("stablehlo.broadcast_in_dim", [x], to_shape, dtype, broadcast_dimensions=self.i64s(()))
        self._broadcasts[key] = x, result  # x stays alive, and so its address stays its own
        return result

    def convert(self, x: Any, shape: Sequence[int], dtype: Any) -> Any:
        """`stablehlo.convert` to a dtype."""
        return self.value("stablehlo.convert", [x], shape, dtype)

    # --- regions and calls

    def region(self, operation: Any, index: int, arg_types: Sequence[Any]) -> RuleContext:
        """Append a block with these arguments to one of an operation's regions; emit into what is returned."""
        block = operation.regions[index].blocks.append(*arg_types, arg_locs=[self.loc] * len(arg_types))
        inside = self.builder.context_class(self.builder, block, self)
        inside.in_computation |= operation.name not in _LOOPS_AND_BRANCHES
        inside.in_loop |= operation.name == "stablehlo.while"
        return inside

    @property
    def leading(self) -> list[Any]:
        """The operands that functions of the module take in front of their own."""
        return []

    def call(self, jaxpr: Any, name: str, operands: Sequence[Any], key: Any = None, words: Any = None) -> list[Any]:
        """Call a jaxpr as a function of the module, with words for XLA; emitted once however often it is called."""
        if self.in_computation:  # so that its own equations know where they stand
            return self.inline(jaxpr, operands)
        constants = self.builder.constants_in_loops(jaxpr, operands)
        symbol = self.builder.function(jaxpr, name, key, self.in_loop, constants)
        if constants:
            contained = dict(constants)
            operands = [value for at, value in enumerate(operands) if at not in contained]
        types = [self.builder.type_of(atom.aval) for atom in jaxpr.outvars]
        callee = self.ir.FlatSymbolRefAttr.get(symbol, self.builder.context)
        ordered = is_ordered(jaxpr)
        if ordered:
            operands, types = [*operands, self.token], [*types, self.builder.token_type]
        call = self.op("func.call", [*self.leading, *operands], types, {"callee": callee})
        if words:
            mark_words(self.ir, self.builder.context, call, words)
        results = list(call.results)
        if ordered:
            self.token = results.pop()
        return results

    def inline(self, jaxpr: Any, operands: Sequence[Any]) -> list[Any]:
        """Emit a jaxpr's equations right here, as part of the rule of another equation."""
        saved = self.eqn, self.loc
        try:
            return self.emit(jaxpr, operands)
        finally:
            self.eqn, self.loc = saved

    def emit(self, jaxpr: Any, operands: Sequence[Any]) -> list[Any]:
        """Emit all equations of a jaxpr, in order; gives its outputs."""
        builder = self.builder
        locations, location, create, ip = builder.locations, builder.location, self._operation, self.ip
        types, type_of = builder.types_by_aval, builder.type_of
        inputs = [*jaxpr.constvars, *jaxpr.invars]
        env: dict[Any, Any] = dict(zip(inputs, operands, strict=True))
        builder.scopes.append(env)

        def read(atom: Any) -> Any:
            try:
                return env[atom]
            except KeyError:
                return self.constant(atom.val, physical(atom.aval)[1])

        pin = builder.pin
        words: dict[str, str] | None = None  # frontend attributes of the equation before, and where its operations begin
        begin = 0
        traceback: Any = self  # of the equation before, at first none: often the same one, and slow to hash
        named: dict[str, Any] = {}  # the locations with it, by the name of the primitive
        for eqn in jaxpr.eqns:
            name = eqn.primitive.name
            if eqn.traceback is not traceback:
                traceback = eqn.traceback
                named = locations.setdefault(traceback, {})
                if words:
                    self._mark_from(begin, words)
                words = getattr(traceback, "words", None)
                if words:
                    begin = len(self.block.operations)
            self.loc = loc = named.get(name) or named.setdefault(name, location(name, traceback))
            operation = ELEMENTWISE.get(name)
            foreign = FOREIGN and eqn.primitive in FOREIGN
            if foreign:
                operation = None
            elif operation is None and name not in RULES:
                find_rule(name, eqn.primitive.made_in)
                operation = ELEMENTWISE.get(name)
            if operation is not None:
                (out,) = eqn.outvars
                shape = out.aval.shape
                values: list[Any] = []
                for atom in eqn.invars:
                    value, aval = env.get(atom), atom.aval
                    if value is None:
                        of = self.divisor if operation in _DIVISIONS and values else self.constant
                        value = of(atom.val, aval.dtype, shape)
                    elif aval.shape != shape:
                        value = self.broadcast(value, aval.shape, shape, aval.dtype)
                    values.append(value)
                if (operation in _DIVISIONS and out.aval.dtype.kind not in "fc" and self._is_guarded(values[1], shape)
                        and _may_be_zero(values[1])):
                    env[out] = self._quotient(operation, values[0], values[1], shape, out.aval.dtype)
                    continue
                attributes = self.accuracy(**eqn.params) if eqn.params else None
                result_type = types.get(out.aval) or type_of(out.aval)
                env[out] = create(operation, (result_type,), values, attributes, None, 0, loc, ip).result
                if pin is not None:
                    pin(self, eqn.outvars, env)
                continue
            self.eqn = eqn
            values = [read(atom) for atom in eqn.invars]
            rule = FOREIGN[eqn.primitive] if foreign else RULES.get(name)
            if foreign and rule is None:
                raise LoweringError(f"MLIR translation rule for primitive '{name}' not found for platform {builder.platform}")
            if builder.has_extended and name in EXTENDED and any(map(_is_extended, eqn.invars)):
                results: Any = self.inline(EXTENDED[name](self.avals_in, eqn.params).jaxpr, values)
                results = results if eqn.primitive.multiple_results else results[0]
            else:
                results = rule(self, *values, **eqn.params) if rule else NotImplemented
                if results is NotImplemented:  # there is no rule, or none for this platform
                    results = _lower_decomposed(self, eqn, values)
            outvars = eqn.outvars
            if type(results) is list:
                assert len(results) == len(outvars), f"the rule of {name} gave {len(results)} values"
                env.update(zip(outvars, results, strict=True))
            else:
                env[outvars[0]] = results
            if pin is not None:
                pin(self, outvars, env)
        if words:
            self._mark_from(begin, words)
        return [read(atom) for atom in jaxpr.outvars]


    def _mark_from(self, begin: int, words: dict[str, str]) -> None:
        """Give frontend attributes to the operations of the block from an index on."""
        mark_all(self.ir, self.builder.context, list(self.block.operations)[begin:], words)


def _may_be_zero(value: Any) -> bool:
    """Whether a value has integers, and is not made of a constant without zeros."""
    ir = xla.ir
    if not isinstance(ir.RankedTensorType(value.type).element_type, ir.IntegerType):
        return False
    while not isinstance(value.owner, ir.Block) and value.owner.name == "stablehlo.broadcast_in_dim":
        value = value.owner.operands[0]
    if isinstance(value.owner, ir.Block) or value.owner.name != "stablehlo.constant":
        return True
    numbers = value.owner.attributes["value"]
    return numbers.type.element_type.width < 8 or not np.all(np.asarray(numbers))  # those of fewer bits cannot be read


def _is_extended(atom: Any) -> bool:
    return not isinstance(getattr(atom.aval, "dtype", None), np.dtype)


_ML_DTYPES = {
    np.dtype(getattr(ml_dtypes, name)) for name in (
        "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
        "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn") if hasattr(ml_dtypes, name)
}


def _dense_text(array: np.ndarray, bits: int) -> str:
    if array.dtype.kind == "V" and "float" in array.dtype.name:
        raw = array.view(np.uint8).astype(np.int64).tolist()
        return _nested(raw, lambda value: f"0x{value:X}")
    return _nested(array.astype(np.int64).tolist(), str)


def _nested(value: Any, show: Callable[[Any], str]) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_nested(item, show) for item in value) + "]"
    return show(value)


def _lower_decomposed(ctx: RuleContext, eqn: Any, values: list[Any]) -> list[Any]:
    name = eqn.primitive.name
    decomposition = DECOMPOSITIONS.get(name)
    if decomposition is None:
        raise LoweringError(f"MLIR translation rule for primitive '{name}' not found for platform {ctx.platform}")
    avals = tuple(atom.aval for atom in eqn.invars)
    for var in eqn.outvars:
        ctx.type_of(var.aval)  # an extended dtype may first appear here
    closed = decomposition(list(avals), eqn.params)
    assert not closed.consts, f"the decomposition of {name} closes over arrays"
    if len(closed.jaxpr.eqns) <= 8:
        return ctx.inline(closed.jaxpr, values)
    return ctx.call(closed.jaxpr, name, values)
