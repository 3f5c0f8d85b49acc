"""Lowering as `jax.interpreters.mlir` names it: a view; what is here is defined in `extend`."""

from collections.abc import Hashable as MeshAxisName
from typing import Any as _Any

from jaxlite.core.lazy import Lazy as _Lazy
from jaxlite.extend.lowering_rules import (
    LoweringRule,
    LoweringRuleContext,
    ModuleContext,
    aval_to_ir_type,
    aval_to_ir_types,
    core_call_lowering,
    custom_call,
    dense_int_array,
    dense_int_elements,
    dtype_to_ir_type,
    emit_python_callback,
    flatten_ir_types,
    flatten_ir_values,
    i32_attr,
    i64_attr,
    ir_attribute,
    ir_constant,
    ir_constants,
    lower_fun,
    lowerable_effects,
    module_to_bytecode,
    module_to_string,
    register_lowering,
    shape_tensor,
)
from lowering import xla as _xla
from lowering.xla import make_context as make_ir_context

# Libraries register rules with what is above. Few lower whole programs.
_ON_USE = {"devices.mesh": "Mesh", "extend.lowering_programs": (
    "AxisContext ConstantHandler LoweringParameters LoweringResult ShapePolyLoweringState ShardingContext "
    "SPMDAxisContext TokenSet jaxpr_subcomp lower_jaxpr_to_fun lower_jaxpr_to_module merge_mlir_modules "
    "register_constant_handler token_type unflatten_ir_values_like_types"
)}
__all__ = [
    "LoweringRule", "LoweringRuleContext", "MeshAxisName", "ModuleContext", "aval_to_ir_type", "aval_to_ir_types",
    "core_call_lowering", "custom_call", "dense_int_array", "dense_int_elements", "dtype_to_ir_type",
    "emit_python_callback", "flatten_ir_types", "flatten_ir_values", "i32_attr", "i64_attr", "ir_attribute",
    "ir_constant", "ir_constants", "lower_fun", "lowerable_effects", "make_ir_context", "module_to_bytecode",
    "module_to_string", "register_lowering", "shape_tensor",
    *" ".join(_ON_USE.values()).split(),
]
_lazy = _Lazy(__name__, root="jaxlite", **_ON_USE)


def __dir__() -> list[str]:
    return sorted([*__all__, "Token", "Value", "ir"])


def __getattr__(name: str) -> _Any:
    if name == "ir":  # MLIR's bindings load on use
        return _xla.ir
    if name in ("Value", "Token"):  # a token is a value
        return _xla.ir.Value
    return _lazy.load(name)
