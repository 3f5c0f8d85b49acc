"""Lowering rules with JAX's calling convention: `rule(ctx, *values, **params)` returns a sequence of MLIR values.

While such a rule runs, the MLIR context, the location of its equation and the insertion point are current, so jaxlib's
operation builders work without them. The rule is in the same table as jaxlite's own rules, `lowering.rules`.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from jaxlite.compilation import effects
from jaxlite.core import dtypes, source
from jaxlite.core.aval import AbstractToken, ShapedArray
from jaxlite.core.effects import DebugEffect, Effect, EffectTypeSet, OrderedDebugEffect
from jaxlite.core.jaxpr import ClosedJaxpr, DebugInfo, Jaxpr
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import trace_to_jaxpr
from jaxlite.core.tracing import Tracer
from jaxlite.core.values import aval_of
from jaxlite.extend.rule_tables import RuleError
from lowering import platforms, xla
from lowering.buffers import physical
from lowering.module import LoweringError, ModuleBuilder, RuleContext, element_type_text
from lowering.rules import FOREIGN, register_foreign

LoweringRule = Callable[..., Any]


_JAX_NAMES = {"gpu": "cuda"}
_kept: list[Any] = []  # nobody says when the last program is gone


# Classes of effects that lowering rules of others take care of; ours are instances of `Effect` itself, or of these.
lowerable_effects = EffectTypeSet(DebugEffect, OrderedDebugEffect)


class _Here(threading.local):
    rule: RuleContext | None = None  # whose rule is running in this thread


_here = _Here()
constant_makers: dict[type, Callable[..., Any]] = {}  # of libraries: how values of a class become constants


def current_context(what: str) -> RuleContext:
    """The context of the lowering rule that is running, at the place where it writes. Raises: RuntimeError if none is."""
    if _here.rule is None:
        raise RuntimeError(f"{what}: no lowering rule is running")
    return _at_current_place(_here.rule)


class ModuleContext:
    """The module that is being made, as rules see it.

    Attributes: `context` MLIR's; `module`; `platforms` that it is for; `keepalives`, what compiled programs refer to.
    """

    def __init__(self, builder: ModuleBuilder):
        self._builder = builder
        self.context, self.module = builder.context, builder.module
        self.platforms = (_JAX_NAMES.get(builder.platform, builder.platform),)
        self.ip = builder.module_ip
        self.keepalives = _kept

    def add_keepalive(self, keepalive: Any) -> None:
        """Keep an object that the compiled program refers to alive, as long as the process."""
        self.keepalives.append(keepalive)

    def get_backend(self, optional: bool = False) -> Any:
        """The client of the platform."""
        return platforms.devices(self.platforms[0])[0].client

    def replace(self, **changes: Any) -> ModuleContext:
        """A copy with some attributes replaced."""
        return _changed(self, changes)


class LoweringRuleContext:
    """The context that a rule gets as its first argument.

    Attributes: `avals_in`, `avals_out`; `primitive`; `module_context`; `platforms`; `traceback` of the equation.
    """

    def __init__(self, rule_context: RuleContext):
        self._inner = rule_context
        eqn = rule_context.eqn
        self.module_context = ModuleContext(rule_context.builder)
        self.avals_in, self.avals_out = rule_context.avals_in, rule_context.avals_out
        self.primitive, self.traceback = eqn.primitive, eqn.traceback
        self.platforms = self.module_context.platforms
        self.name_stack = ""
        self.tokens_in = self.tokens_out = self.axis_size_env = self.jaxpr_eqn_ctx = None
        self.dim_var_values: tuple[Any, ...] = ()
        self.const_lowering: dict[Any, Any] = {}

    def replace(self, **changes: Any) -> LoweringRuleContext:
        """A copy with some attributes replaced."""
        return _changed(self, changes)

    def set_tokens_out(self, tokens: Any) -> None:
        """Say which tokens come out."""
        self.tokens_out = tokens

    def is_forward_compat(self) -> bool:
        """Whether the module is to be read by older versions."""
        return False


def _changed(context: Any, changes: dict[str, Any]) -> Any:
    copy = object.__new__(type(context))
    vars(copy).update(vars(context) | changes)
    return copy


def emit_foreign_call(context: LoweringRuleContext, operands: Sequence[Any], target: str, has_side_effect: bool,
                      attributes: Any, layouts_in: Any, layouts_out: Any, aliases: Any, version: int) -> list[Any]:
    """Emit a call of native code, with results of the types of the context."""
    from lowering.rules import foreign  # a file of rules: with the first program that has such a call

    inner = context._inner
    return foreign.custom_call(inner, operands, context.avals_out, target, has_side_effect,
                               foreign.attribute(inner, attributes), layouts_in, layouts_out, aliases, version)


def emit_python_callback(ctx: LoweringRuleContext, callback: Callable[..., Any], token: Any, operands: Sequence[Any],
                         operand_avals: Sequence[Any], result_avals: Sequence[Any], *, has_side_effect: bool,
                         returns_token: bool = True, partitioned: bool = False,
                         sharding: Any = None) -> tuple[list[Any], Any, Any]:
    """Emit the call of a Python function.

    Args:
      callback: gets NumPy arrays and returns a sequence of arrays, of the types of `result_avals`.
      token: what it waits for, an MLIR value; or None.
      partitioned, sharding: for compatibility; it is called where the program runs.
    Returns: the values of the results; the token after the call, or None; the function that is called.
    """
    from lowering.rules import callbacks  # a file of rules: with the first program that has such a call

    def call(*values: Any) -> tuple[Any, ...]:
        return tuple(effects.checked_results(callback(*map(np.asarray, values)), result_avals))

    inner = _at_current_place(ctx._inner)
    results, token = callbacks.emit_callback(inner, "a Python callback", call, token, operands, operand_avals, result_avals,
                                             has_side_effect)
    return results, token if returns_token else None, callback


def module_to_string(module: Any, enable_debug_info: bool | None = None) -> str:
    """The text of an MLIR module; with locations if that is requested."""
    return module.operation.get_asm(enable_debug_info=bool(enable_debug_info))


def module_to_bytecode(module: Any) -> bytes:
    """An MLIR module as bytes."""
    content = io.BytesIO()
    module.operation.write_bytecode(content)
    return content.getvalue()


# --- registration ------------------------------------------------------------------------------------


class _ForeignRule:
    """The rules that others have registered for one primitive, for all platforms (None) and for some."""

    __slots__ = ("rules",)

    def __init__(self) -> None:
        self.rules: dict[str | None, LoweringRule] = {}

    def __call__(self, ctx: RuleContext, *operands: Any, **params: Any) -> Any:
        primitive = ctx.eqn.primitive
        names = ("cuda", "rocm", "gpu") if ctx.platform == "gpu" else (ctx.platform,)
        rule = next((self.rules[name] for name in (*names, None) if name in self.rules), None)
        if rule is None:
            raise LoweringError(f"MLIR translation rule for primitive '{primitive.name}' not found for platform "
                                f"{ctx.platform}; there is one for {', '.join(map(str, self.rules))}")
        if ctx.eqn.effects and (unknown := [effect for effect in lowerable_effects.filter_not_in(ctx.eqn.effects)
                                            if type(effect) is not Effect]):
            raise ValueError(f"Cannot lower jaxpr with effects: {unknown}: {primitive.name!r} has them; name their "
                             "classes with mlir.lowerable_effects.add_type")
        previous, _here.rule = _here.rule, ctx
        try:
            with ctx.loc, ctx.ip:
                results = rule(LoweringRuleContext(ctx), *operands, **params)
        finally:
            _here.rule = previous
        return _checked(ctx, rule, results)


def _checked(ctx: RuleContext, rule: LoweringRule, results: Any) -> list[Any]:
    """The values that a rule returned, one for each result, of the types these have."""

    def fail(problem: str) -> RuleError:
        return RuleError(f"the lowering rule of {ctx.eqn.primitive.name!r}, {source.function_location(rule)}, {problem}")

    ir = xla.ir
    avals = ctx.avals_out
    if isinstance(results, ir.Value):
        results = [results]
    elif hasattr(results, "results") and not isinstance(results, (tuple, list)):
        results = list(results.results)
    if not isinstance(results, Iterable):
        raise fail(f"must return a sequence of MLIR values, but returned {results!r}")
    values = [each[0] if isinstance(each, (tuple, list)) and len(each) == 1 else each for each in results]
    if len(values) != len(avals):
        raise fail(f"returned {len(values)} values for {len(avals)} results")
    checked = []
    for index, (value, aval) in enumerate(zip(values, avals, strict=True)):
        if hasattr(value, "result") and not isinstance(value, ir.Value):
            value = value.result
        if not isinstance(value, ir.Value):
            raise fail(f"returned {value!r} of type {type(value)} as result {index}, which is not an MLIR value")
        expected = ctx.type_of(aval)
        if value.type != expected:
            raise fail(f"returned a value of type {value.type} as result {index}, which is of type {expected} ({aval})")
        checked.append(value)
    return checked


_PLATFORMS = frozenset({"cpu", "cuda", "gpu", "metal", "mps", "oneapi", "rocm", "tpu"})


def register_lowering(prim: Primitive, rule: LoweringRule, platform: str | None = None, inline: bool = True,
                      cacheable: bool = True) -> None:
    """Set how a primitive is lowered.

    Args:
      rule: `rule(ctx, *values, **params)` gives a sequence of MLIR values, one for each result.
      platform: the platform it is for, such as "cpu" or "cuda"; None for all that have no rule of their own.
      inline, cacheable: for compatibility; rules run once for each equation, where it stands.
    Raises: TypeError if `prim` is not a primitive or the rule no function; NotImplementedError for an unknown platform.
    """
    if not isinstance(prim, Primitive) or not callable(rule):
        where = source.function_location(rule) if callable(rule) else repr(rule)
        raise TypeError(f"register_lowering takes a primitive and a function, got {prim!r} of type {type(prim)} and {where}")
    if platform is not None and platform not in _PLATFORMS and platform not in platforms.installed():
        raise NotImplementedError(f"the lowering rule {source.function_location(rule)} of {prim.name!r} is registered for the "
                                  f"platform {platform!r}, which is none of {', '.join(sorted(_PLATFORMS))}")
    found = FOREIGN.get(prim)
    if type(found) is not _ForeignRule:
        register_foreign(prim, found := _ForeignRule())
    found.rules[platform] = rule
    prim.is_own = False  # programs with it are not remembered between processes: the rule may change


# --- what rules are made of --------------------------------------------------------------------------


def lower_fun(fun: Callable, multiple_results: bool = True) -> LoweringRule:
    """A lowering rule that traces a function of arrays and lowers what it did.

    Args:
      fun: gets the operands as traced arrays, and the params as keywords.
      multiple_results: whether it returns a sequence of results.
    """

    def rule(ctx: LoweringRuleContext, *values: Any, **params: Any) -> list[Any]:
        def flat(*args: Any) -> Any:
            out = fun(*args, **params)
            return list(out) if multiple_results else [out]

        avals = [aval.strip_weak_type() for aval in ctx.avals_in]
        jaxpr, consts = trace_to_jaxpr(flat, avals, DebugInfo("lowering", source.function_name(fun)))
        return _emit(ctx, jaxpr, consts, values)

    rule.__wrapped__ = fun  # type: ignore[attr-defined]
    return rule


def _emit(ctx: LoweringRuleContext, jaxpr: Jaxpr, consts: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    inner = _at_current_place(ctx._inner)
    if any(isinstance(const, Tracer) for const in consts):
        raise TypeError("lower_fun: the function closes over a traced value; pass it as an operand")
    return inner.inline(jaxpr, [*[_constant(inner, const) for const in consts], *values])


def _at_current_place(inner: RuleContext) -> RuleContext:
    """The context of the rule; in a region that the rule is writing, one for that."""
    block = xla.ir.InsertionPoint.current.block
    if block == inner.block:
        return inner
    inside = RuleContext(inner.builder, block, inner)
    inside.in_computation = True
    return inside


def _constant(ctx: RuleContext, value: Any) -> Any:
    aval = aval_of(value)
    if type(aval.dtype) is not np.dtype and isinstance(aval.dtype, dtypes.ExtendedDType):
        value = value._base_array
    shape, dtype = physical(aval)
    return ctx.constant(np.asarray(value), dtype, shape)


def core_call_lowering(ctx: LoweringRuleContext, *values: Any, name: str, backend: Any = None,
                       call_jaxpr: ClosedJaxpr | Jaxpr) -> list[Any]:
    """Lower an equation to a call of a program."""
    closed = call_jaxpr if isinstance(call_jaxpr, ClosedJaxpr) else ClosedJaxpr(call_jaxpr, [])
    inner = _at_current_place(ctx._inner)
    return inner.call(closed.jaxpr, name, [*[_constant(inner, const) for const in closed.consts], *values])


def dtype_to_ir_type(dtype: Any) -> Any:
    """The MLIR type of one element; in a context."""
    return xla.ir.Type.parse(element_type_text(dtype))


def aval_to_ir_type(*ctx_and_aval: Any) -> Any:
    """The MLIR type of an abstract value, `aval_to_ir_type([module_context,] aval)`; in a context."""
    aval = ctx_and_aval[-1]
    ir = xla.ir
    if isinstance(aval, AbstractToken):
        return ir.RankedTensorType.get([0], dtype_to_ir_type(bool))
    shape, dtype = physical(aval)
    return ir.RankedTensorType.get(shape, dtype_to_ir_type(dtype))


def aval_to_ir_types(*ctx_and_aval: Any) -> tuple[Any, ...]:
    """The same as a tuple: an abstract value is one MLIR value."""
    return (aval_to_ir_type(*ctx_and_aval),)


def ir_constant(val: Any, *, const_lowering: Any = None, aval: ShapedArray | None = None) -> Any:
    """A constant with the value of an array or scalar; emitted at the current place of a lowering rule."""
    ctx = current_context("ir_constant")
    maker = next((constant_makers[kind] for kind in type(val).__mro__ if kind in constant_makers), None) \
        if constant_makers else None
    if maker is not None:
        made = maker(val, aval)
        return made[0] if isinstance(made, (tuple, list)) and len(made) == 1 else made
    return _constant(ctx, val) if aval is None else ctx.constant(np.asarray(val).astype(aval.dtype), aval.dtype, aval.shape)


def ir_constants(val: Any, *, const_lowering: Any = None, aval: ShapedArray | None = None) -> tuple[Any, ...]:
    """The same as a tuple."""
    return (ir_constant(val, aval=aval),)


def ir_attribute(val: Any) -> Any:
    """An MLIR attribute for a Python or NumPy value."""
    ir = xla.ir
    if isinstance(val, ir.Attribute):
        return val
    if isinstance(val, (bool, np.bool_)):
        return ir.BoolAttr.get(bool(val))
    if isinstance(val, str):
        return ir.StringAttr.get(val)
    if isinstance(val, bytes):
        return ir.StringAttr.get(val)
    if isinstance(val, int):
        return i64_attr(val)
    if isinstance(val, float):
        return ir.FloatAttr.get_f64(val)
    if isinstance(val, np.dtype) or isinstance(val, type) and issubclass(val, np.generic):
        return ir.TypeAttr.get(dtype_to_ir_type(val))
    if isinstance(val, np.integer):
        return ir.IntegerAttr.get(dtype_to_ir_type(val.dtype), int(val))
    if isinstance(val, np.floating):
        return ir.FloatAttr.get(dtype_to_ir_type(val.dtype), float(val))
    if isinstance(val, np.ndarray):
        return xla.ir.DenseElementsAttr.get(np.ascontiguousarray(val), type=dtype_to_ir_type(val.dtype), shape=list(val.shape))
    if isinstance(val, dict):
        return ir.DictAttr.get({key: ir_attribute(value) for key, value in val.items()})
    if isinstance(val, (tuple, list)):
        return ir.ArrayAttr.get([ir_attribute(each) for each in val])
    raise TypeError(f"No type handler registered for {val!r} of type {type(val)}: there is no MLIR attribute for it")


def i32_attr(i: int) -> Any:
    """`5 : i32`."""
    return xla.ir.IntegerAttr.get(xla.ir.IntegerType.get_signless(32), i)


def i64_attr(i: int) -> Any:
    """`5 : i64`."""
    return xla.ir.IntegerAttr.get(xla.ir.IntegerType.get_signless(64), i)


def dense_int_elements(xs: Any) -> Any:
    """`dense<[1, 2]> : tensor<2xi64>`."""
    return xla.ir.DenseIntElementsAttr.get(np.asarray(xs, np.int64))


def dense_int_array(xs: Any) -> Any:
    """`array<i64: 1, 2>`."""
    return xla.ir.DenseI64ArrayAttr.get(np.asarray(xs, np.int64))


def flatten_ir_values(xs: Iterable[Any]) -> list[Any]:
    """Values, some of them in sequences, in one list."""
    out: list[Any] = []
    for each in xs:
        if isinstance(each, (tuple, list)):
            out += each
        else:
            out.append(each)
    return out


flatten_ir_types = flatten_ir_values


def shape_tensor(ctx: Any, sizes: Sequence[Any]) -> Any:
    """The sizes, ints or scalar values, as a tensor of i32."""
    ir = xla.ir
    if all(isinstance(size, (int, np.integer)) for size in sizes):
        return ir_constant(np.asarray(sizes, np.int32), aval=ShapedArray((len(sizes),), np.dtype(np.int32)))
    one, many = (ir.RankedTensorType.get([count], dtype_to_ir_type(np.int32)) for count in (1, len(sizes)))
    parts = []
    for size in sizes:
        if isinstance(size, (int, np.integer)):
            parts.append(ir_constant(np.asarray([size], np.int32), aval=ShapedArray((1,), np.dtype(np.int32))))
        else:
            parts.append(ir.Operation.create("stablehlo.reshape", [one], [size]).result)
    return ir.Operation.create("stablehlo.concatenate", [many], parts, {"dimension": i64_attr(0)}).result


def custom_call(call_target_name: str, *, result_types: Sequence[Any], operands: Sequence[Any],
                backend_config: str | bytes | dict[str, Any] = "", has_side_effect: bool = False, api_version: int = 2,
                operand_layouts: Sequence[Sequence[int]] | None = None,
                result_layouts: Sequence[Sequence[int]] | None = None,
                operand_output_aliases: dict[int, int] | None = None, extra_attributes: dict[str, Any] | None = None,
                ) -> Any:
    """Emit a `stablehlo.custom_call`; gives the operation.

    Args: `api_version` 4 for XLA's FFI, with a dict as `backend_config`; layouts from the minor axis on; aliases from
    the numbers of operands to those of results.
    """
    ir = xla.ir
    attributes = {
        "call_target_name": ir.StringAttr.get(call_target_name),
        "has_side_effect": ir.BoolAttr.get(has_side_effect),
        "backend_config": ir_attribute(backend_config),
        "api_version": i32_attr(api_version),
        "called_computations": ir.ArrayAttr.get([]),
    }
    aliases = [
        ir.Attribute.parse("#stablehlo.output_operand_alias<output_tuple_indices = "
                           f"{[target] if len(result_types) > 1 else []}, operand_index = {operand}, "
                           "operand_tuple_indices = []>")
        for operand, target in (operand_output_aliases or {}).items()]
    if aliases:
        attributes["output_operand_aliases"] = ir.ArrayAttr.get(aliases)
    if operand_layouts is not None or result_layouts is not None:
        attributes["operand_layouts"] = _layouts(operand_layouts, [each.type for each in operands])
        attributes["result_layouts"] = _layouts(result_layouts, result_types)
    attributes.update(extra_attributes or {})
    return ir.Operation.create("stablehlo.custom_call", list(result_types), list(operands), attributes)


def _layouts(layouts: Sequence[Sequence[int]] | None, types: Sequence[Any]) -> Any:
    ir = xla.ir
    if layouts is None:
        layouts = [range(each.rank)[::-1] for each in types]
    index = ir.IndexType.get()
    return ir.ArrayAttr.get([
        ir.DenseIntElementsAttr.get(np.asarray(list(each), np.int64), type=index, shape=[len(list(each))]) for each in layouts])
