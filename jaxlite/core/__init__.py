"""The foundation: types, programs, tracing, pytrees, options. It defines no operations.

`jaxlite.core.X` and `jaxlite.extend.core.X` are names from the modules of this package.
"""

from typing import Any as _Any

from jaxlite.core.collector import importing as _importing

with _importing:  # NumPy among it
    from jaxlite.core import jaxpr as _jaxpr
    from jaxlite.core.lazy import Lazy as _Lazy
    from jaxlite.core.lazy import loader as _loader

_jaxpr.printer = _loader("jaxlite.core.printer")

_lazy = _Lazy(
    __name__,
    aval="AbstractToken AbstractValue ShapedArray abstract_token",
    tracing="Tracer Trace ensure_compile_time_eval is_concrete",
    jaxpr="Atom ClosedJaxpr DebugInfo DropVar Effects Jaxpr JaxprEqn Literal Var check_jaxpr eval_jaxpr jaxpr_as_fun "
          "jaxprs_in_params no_effects subjaxprs",
    errors="InconclusiveDimensionOperation JaxprSyntaxError JaxprTypeError",
    parser="parse_jaxpr",
    primitive="Primitive",
    symbolic="is_constant_dim is_constant_shape max_dim min_dim",
    values="pytype_aval_mappings",
)
# Names that moved to `extend.core`, which stands higher; libraries still ask for them here.
_extend = _loader("jaxlite.extend.core")
_moved = frozenset(
    "CallPrimitive Effect OutputType ParamDict TraceTag Value call call_impl concrete_or_error concretization_function_error "
    "eval_context find_top_trace gensym get_opaque_trace_state mapped_aval new_jaxpr_eqn nonempty_axis_env_DO_NOT_USE "
    "primal_dtype_to_tangent_dtype set_current_trace take_current_trace trace_ctx unmapped_aval "
    "unsafe_am_i_under_a_jit_DO_NOT_USE unsafe_am_i_under_a_vmap_DO_NOT_USE unsafe_get_axis_names_DO_NOT_USE "
    "valid_jaxtype".split())


def __getattr__(name: str) -> _Any:
    try:
        return getattr(_extend(), name) if name in _moved else _lazy.load(name)
    except AttributeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:  # `load` has left out its frames
            error.__traceback__ = None
        raise


def __dir__() -> list[str]:
    return _lazy.names()
