"""The foundation: types, programs, tracing, pytrees, options; nothing here knows an operation.

What users name as `jaxlite.core.X` or `jaxlite.extend.core.X` is found in the modules of this package.
"""

from typing import Any as _Any

from jaxlite.core import jaxpr as _jaxpr
from jaxlite.core.lazy import Lazy as _Lazy
from jaxlite.core.lazy import loader as _loader

_jaxpr.printer = _loader("jaxlite.core.printer")

_lazy = _Lazy(
    __name__,
    aval="AbstractToken AbstractValue ShapedArray abstract_token",
    tracing="Tracer Trace ensure_compile_time_eval",
    jaxpr="Atom ClosedJaxpr DebugInfo DropVar Effects Jaxpr JaxprEqn Literal Var check_jaxpr eval_jaxpr jaxpr_as_fun "
          "jaxprs_in_params no_effects subjaxprs",
    errors="InconclusiveDimensionOperation JaxprSyntaxError JaxprTypeError",
    parser="parse_jaxpr",
    primitive="Primitive",
    symbolic="is_constant_dim is_constant_shape max_dim min_dim",
    values="pytype_aval_mappings",
)


def __getattr__(name: str) -> _Any:
    return _lazy.load(name)


def __dir__() -> list[str]:
    return _lazy.names()
