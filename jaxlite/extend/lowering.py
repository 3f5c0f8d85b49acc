"""Types and functions for rules that write MLIR, under the names of `jax.extend.lowering`: a view."""

from typing import Any as _Any

from jaxlite.core.missing import missing as _missing
from jaxlite.extend.lowering_rules import LoweringRuleContext
from lowering import xla as _xla

__all__ = ["LoweringRuleContext"]


def __getattr__(name: str) -> _Any:
    if name == "JaxIrContext":  # MLIR's bindings load on use
        return _xla.ir.Context
    if name == "upstream_dialects":
        return _xla.upstream_dialects()
    raise _missing(__name__, name)


def __dir__() -> list[str]:
    return ["JaxIrContext", *__all__, "upstream_dialects"]
