"""Programs as data, primitives, traces: what libraries that write transformations use; `jax.extend.core`."""

from jaxlite.core.aval import AbstractToken
from jaxlite.core.effects import Effect
from jaxlite.core.errors import InconclusiveDimensionOperation, JaxprTypeError
from jaxlite.core.jaxpr import (
    ClosedJaxpr,
    DebugInfo,
    DropVar,
    Effects,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    check_jaxpr,
    jaxpr_as_fun,
    jaxprs_in_params,
    no_effects,
    subjaxprs,
)
from jaxlite.core.primitive import Primitive
from jaxlite.extend.core import primitives
from jaxlite.extend.core.calls import CallPrimitive, call, call_impl
from jaxlite.extend.core.state import (
    TraceTag,
    eval_context,
    find_top_trace,
    get_opaque_trace_state,
    nonempty_axis_env_DO_NOT_USE,
    set_current_trace,
    take_current_trace,
    trace_ctx,
    unsafe_am_i_under_a_jit_DO_NOT_USE,
    unsafe_am_i_under_a_vmap_DO_NOT_USE,
    unsafe_get_axis_names_DO_NOT_USE,
)
from jaxlite.extend.core.values import (
    OutputType,
    ParamDict,
    Token,
    Value,
    array_types,
    concrete_or_error,
    concretization_function_error,
    gensym,
    mapped_aval,
    new_jaxpr_eqn,
    primal_dtype_to_tangent_dtype,
    unmapped_aval,
    valid_jaxtype,
)
from lowering import xla as _xla

if _xla.VERSION >= (0, 12):  # as JAX of the same jaxlib
    from jaxlite.extend.core.call_primitives import (
        create_call_primitive,
        eval_jaxpr_transpose,
        register_call_primitive_rules,
    )
    from jaxlite.extend.core.programs import Jaxpr  # type: ignore[assignment]

    ClosedJaxpr = Jaxpr  # type: ignore[assignment,misc]

__all__ = [
    "AbstractToken", "CallPrimitive", "ClosedJaxpr", "DebugInfo", "DropVar", "Effect", "Effects",
    "InconclusiveDimensionOperation", "Jaxpr", "JaxprEqn", "JaxprTypeError", "Literal", "Primitive", "Token", "TraceTag", "Var",
    "array_types", "call_impl", "check_jaxpr", "concrete_or_error", "find_top_trace", "gensym", "get_opaque_trace_state",
    "jaxpr_as_fun", "jaxprs_in_params", "mapped_aval", "new_jaxpr_eqn", "no_effects", "nonempty_axis_env_DO_NOT_USE",
    "primal_dtype_to_tangent_dtype", "primitives", "set_current_trace", "subjaxprs", "take_current_trace", "unmapped_aval",
    "unsafe_am_i_under_a_jit_DO_NOT_USE", "unsafe_am_i_under_a_vmap_DO_NOT_USE", "unsafe_get_axis_names_DO_NOT_USE",
    "valid_jaxtype",
]
if _xla.VERSION >= (0, 12):
    __all__ += ["create_call_primitive", "eval_jaxpr_transpose", "register_call_primitive_rules"]
