"""The foundation: types, programs, tracing, pytrees, options; nothing here knows an operation.

What users name as `jaxlite.core.X` or `jaxlite.extend.core.X` is found in the modules of this package.
"""

from importlib import import_module as _import_module
from typing import Any as _Any

_PUBLIC = {
    **dict.fromkeys(("AbstractToken", "AbstractValue", "ShapedArray"), "aval"),
    **dict.fromkeys(("Tracer", "Trace", "ensure_compile_time_eval"), "tracing"),
    **dict.fromkeys(("Atom", "ClosedJaxpr", "DebugInfo", "DropVar", "Effects", "Jaxpr", "JaxprEqn", "Literal", "Var",
                     "check_jaxpr", "eval_jaxpr", "jaxpr_as_fun", "jaxprs_in_params", "no_effects", "subjaxprs"), "jaxpr"),
    **dict.fromkeys(("InconclusiveDimensionOperation", "JaxprTypeError"), "errors"),
    "Primitive": "primitive",
}


def __getattr__(name: str) -> _Any:
    if name in _PUBLIC:
        return getattr(_import_module(f"jaxlite.core.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module 'jaxlite.core' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
