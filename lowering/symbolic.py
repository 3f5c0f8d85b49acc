"""Programs with symbolic dimensions: the same rules, with operations that take shapes as operands if a size is unknown.

Of a dimension, only `evaluate(values, operations)` is used. The values of variables are computed once, at the start of
`main`, from the sizes of its arguments, and handed to every other function in front of its operands.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lowering.module import LoweringError, ModuleBuilder, RuleContext

_I32 = np.dtype(np.int32)
_DYNAMIC = {"stablehlo.broadcast_in_dim": "stablehlo.dynamic_broadcast_in_dim",
            "stablehlo.reshape": "stablehlo.dynamic_reshape", "stablehlo.iota": "stablehlo.dynamic_iota"}


class Sizes(tuple[Any, ...]):
    """Integers of an attribute, some of which are symbolic."""


class SymbolicBuilder(ModuleBuilder):
    """A module whose types may have unknown sizes. `variables` are the values of symbolic variables, by name.

    `solve(sizes, require)` gives them from the sizes of arguments of these shapes, and the constraints.
    """

    def __init__(self, name: str, is_hidden: Callable[[str], bool], platform: str, shapes: Sequence[Sequence[Any]],
                 solve: Callable[[list[tuple[Any, ...]], Callable[..., None]], dict[str, Any]]):
        super().__init__(name, is_hidden, platform)
        self.context_class = SymbolicContext
        self.variables: dict[str, Any] = {}
        self._shapes, self._solve = shapes, solve
        self._is_main = True  # the function that is written

    def tensor_type(self, shape: Sequence[int], dtype: Any) -> Any:
        unknown = self.ir.ShapedType.get_dynamic_size()
        sizes = [size if type(size) is int else unknown for size in shape]
        return self.ir.RankedTensorType.get(sizes, self.element_type(dtype), loc=self.unknown_location)

    def function(self, jaxpr: Any, name: str, key: Any = None, in_loop: bool = False,
                 constants: tuple[tuple[int, Any], ...] = ()) -> str:
        outer = self.variables, self.leading_types, self._is_main
        self.leading_types, self._is_main = [self.tensor_type((), _I32)] * len(self.variables), False
        try:
            return super().function(jaxpr, name, key, in_loop, constants)
        finally:
            self.variables, self.leading_types, self._is_main = outer

    def begin(self, scope: Any, arguments: list[Any]) -> list[Any]:
        if not self._is_main:
            count = len(self.variables)
            self.variables = dict(zip(self.variables, arguments[:count], strict=True))
            return arguments[count:]
        sizes = [tuple(size if type(size) is int else scope.size_of(argument, axis) for axis, size in enumerate(shape))
                 for argument, shape in zip(arguments, self._shapes, strict=True)]
        values = self._solve(sizes, scope.assert_shape)
        self.variables = {name: scope.scalar(value).value for name, value in values.items()}
        return arguments


class Scalar:
    """An i32 of the program under construction, with Python's arithmetic."""

    __slots__ = ("ctx", "value")

    def __init__(self, ctx: SymbolicContext, value: Any):
        self.ctx, self.value = ctx, value

    def _with(self, name: str, other: Any, swap: bool = False) -> Scalar:
        operands = [self.value, self.ctx.scalar(other).value]
        return Scalar(self.ctx, self.ctx.plain(name, operands[::-1] if swap else operands, (), _I32))

    def __add__(self, other: Any) -> Scalar:
        return self if isinstance(other, int) and other == 0 else self._with("stablehlo.add", other)

    def __radd__(self, other: Any) -> Scalar:
        return self + other

    def __sub__(self, other: Any) -> Scalar:
        return self._with("stablehlo.subtract", other)

    def __rsub__(self, other: Any) -> Scalar:
        return self._with("stablehlo.subtract", other, True)

    def __mul__(self, other: Any) -> Scalar:
        return self if isinstance(other, int) and other == 1 else self._with("stablehlo.multiply", other)

    def __rmul__(self, other: Any) -> Scalar:
        return self * other

    def __mod__(self, other: Any) -> Scalar:
        """As Python rounds: the remainder has the sign of the divisor."""
        ctx, rest = self.ctx, self._with("stablehlo.remainder", other)
        zero, divisor = ctx.scalar(0).value, ctx.scalar(other)
        signs = ctx.compare(ctx.compare(rest.value, zero, "LT"), ctx.compare(divisor.value, zero, "LT"), "NE", "UNSIGNED")
        wrong = ctx.plain("stablehlo.and", [signs, ctx.compare(rest.value, zero, "NE")], (), np.dtype(bool))
        return Scalar(ctx, ctx.plain("stablehlo.select", [wrong, (rest + divisor).value, rest.value], (), _I32))

    def __floordiv__(self, other: Any) -> Scalar:
        return (self - self % other)._with("stablehlo.divide", other)

    def __rfloordiv__(self, other: Any) -> Scalar:
        return self.ctx.scalar(other) // self

    def __rmod__(self, other: Any) -> Scalar:
        return self.ctx.scalar(other) % self

    def __divmod__(self, other: Any) -> tuple[Scalar, Scalar]:
        return self // other, self % other

    def greatest(self, other: Any) -> Scalar:
        return self._with("stablehlo.maximum", other)

    def least(self, other: Any) -> Scalar:
        return self._with("stablehlo.minimum", other)


def _greatest(one: Any, two: Any) -> Any:
    return max(one, two) if isinstance(one, int) and isinstance(two, int) else (
        one.greatest(two) if isinstance(one, Scalar) else two.greatest(one))


def _least(one: Any, two: Any) -> Any:
    return min(one, two) if isinstance(one, int) and isinstance(two, int) else (
        one.least(two) if isinstance(one, Scalar) else two.least(one))


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "floordiv": operator.floordiv, "mod": operator.mod, "max": _greatest, "min": _least}


class SymbolicContext(RuleContext):
    """What a rule sees where sizes may be symbolic."""

    __slots__ = ()
    builder: Any

    # --- sizes as values

    def scalar(self, value: Any) -> Scalar:
        return value if isinstance(value, Scalar) else Scalar(self, self.dense_constant(np.asarray(value, _I32)))

    def size(self, dim: Any) -> Scalar:
        """The value of a dimension, symbolic or not."""
        if isinstance(dim, (int, Scalar)):
            return self.scalar(dim)
        values = {name: Scalar(self, value) for name, value in self.builder.variables.items()}
        return self.scalar(dim.evaluate(values, OPERATIONS))

    def size_of(self, array: Any, axis: int) -> Scalar:
        """The size of an array that is a value of the program."""
        return Scalar(self, self.plain("stablehlo.get_dimension_size", [array], (), _I32, dimension=self.i64(axis)))

    def count(self, size: Any, dtype: Any) -> Any:
        return self.constant(size, dtype) if type(size) is int else self.convert(self.size(size).value, (), dtype)

    def vector(self, sizes: Sequence[Any]) -> Any:
        """An i32 vector of sizes."""
        if all(type(size) is int for size in sizes):
            return self.dense_constant(np.asarray(sizes, _I32))
        parts = [self.plain("stablehlo.reshape", [self.size(size).value], (1,), _I32) for size in sizes]
        return parts[0] if len(parts) == 1 else self.plain("stablehlo.concatenate", parts, (len(parts),), _I32,
                                                           dimension=self.i64(0))

    def shape_operands(self, shapes: Sequence[Sequence[Any]], position: int) -> tuple[list[Any], dict[str, Any]]:
        if all(type(size) is int for shape in shapes for size in shape):
            return [], {}
        positions = np.arange(position, position + len(shapes))
        return [self.vector(shape) for shape in shapes], {"indices_of_shape_operands": self.dense(positions)}

    def plain(self, name: str, operands: Sequence[Any], shape: Sequence[int], dtype: Any, **attributes: Any) -> Any:
        """An operation of a static type, as it is."""
        return super().value(name, operands, shape, dtype, **attributes)

    # --- emission

    @property
    def leading(self) -> list[Any]:
        return list(self.builder.variables.values())

    def i64s(self, values: Sequence[int]) -> Any:
        values = tuple(values)
        return super().i64s(values) if all(isinstance(value, (int, np.integer)) for value in values) else Sizes(values)

    def emit1(self, name: str, *operands: Any, **attributes: Any) -> Any:
        aval = self.eqn.outvars[0].aval
        return self.value(name, operands, aval.shape, aval.dtype, **attributes)

    def value(self, name: str, operands: Sequence[Any], shape: Sequence[int], dtype: Any, **attributes: Any) -> Any:
        open_sizes = [key for key, value in attributes.items() if isinstance(value, Sizes)]
        if all(type(size) is int for size in shape) and not open_sizes and not (
                name == "stablehlo.reshape" and not _is_static(operands[0])):
            return super().value(name, operands, shape, dtype, **attributes)
        if name in _DYNAMIC:
            return super().value(_DYNAMIC[name], [*operands, self.vector(shape)], shape, dtype, **attributes)
        if name == "stablehlo.slice":
            rows = [self.vector(_ints(attributes[key])) for key in ("start_indices", "limit_indices", "strides")]
            return super().value("stablehlo.real_dynamic_slice", [*operands, *rows], shape, dtype)
        if name == "stablehlo.pad" and open_sizes:
            rows = [self.vector(_ints(attributes[key]))
                    for key in ("edge_padding_low", "edge_padding_high", "interior_padding")]
            return super().value("stablehlo.dynamic_pad", [*operands, *rows], shape, dtype)
        if name == "stablehlo.dynamic_slice":
            return self._window(operands, attributes["slice_sizes"], shape, dtype)
        if name == "stablehlo.gather" and open_sizes:
            sizes = self.vector(_ints(attributes.pop("slice_sizes")))
            return super().value("stablehlo.dynamic_gather", [*operands, sizes], shape, dtype, **attributes)
        if open_sizes:
            raise LoweringError(f"{name} cannot have the symbolic {', '.join(open_sizes)} that "
                                f"{self.eqn.primitive.name} needs here")
        return super().value(name, operands, shape, dtype, **attributes)

    def _window(self, operands: Sequence[Any], sizes: Any, shape: Sequence[Any], dtype: Any) -> Any:
        """A slice at computed positions, which are moved inside."""
        x, *starts = operands
        first = []
        for axis, (start, size) in enumerate(zip(starts, _ints(sizes), strict=True)):
            position = Scalar(self, self.plain("stablehlo.convert", [start], (), _I32))
            first.append(position.least(self.size_of(x, axis) - self.size(size)).greatest(0))
        low = self.vector(first)
        high = self.plain("stablehlo.add", [low, self.vector(_ints(sizes))], (len(first),), _I32)  # refinement knows this form
        rows = [low, high, self.vector([1] * len(first))]
        return super().value("stablehlo.real_dynamic_slice", [x, *rows], shape, dtype)

    # --- what has to hold

    def assert_shape(self, value: Any, relation: str, message: str, shown: Sequence[Any]) -> None:
        """A check when the sizes are known. `relation` is a direction of `compare` with zero, `message` has {0}, {1} for the
        values that are shown.
        """
        condition = self.compare(self.scalar(value).value, self.scalar(0).value, relation)
        self.op("stablehlo.custom_call", [condition, *(self.scalar(each).value for each in shown)], [], {
            "call_target_name": self.string("shape_assertion"), "api_version": self.i32(2),
            "error_message": self.string(message),
            "has_side_effect": self.flag(True)})


def _ints(attribute: Any) -> list[Any]:
    return list(attribute)


def _is_static(value: Any) -> bool:
    return value.type.has_static_shape
