"""Partial evaluation as `jax.interpreters.partial_eval` names it: a view; what is here is defined in `traces` and `extend`."""

from typing import Any as Val

from jaxlite.core.staging import StagedTracer as DynamicJaxprTracer
from jaxlite.core.staging import StagedTracer as JaxprTracer
from jaxlite.extend.dce_rules import dce_jaxpr_call_rule, dce_jaxpr_closed_call_rule, dce_jaxpr_consts, dce_rules
from jaxlite.traces.partial import PartialVal, dce_jaxpr, trace_to_jaxpr_dynamic, trace_to_jaxpr_nounits
from lowering import xla as _xla

__all__ = [
    "DynamicJaxprTracer", "JaxprTracer", "PartialVal", "Val", "dce_jaxpr", "dce_jaxpr_call_rule", "dce_jaxpr_closed_call_rule",
    "dce_jaxpr_consts", "dce_rules", "trace_to_jaxpr_dynamic", "trace_to_jaxpr_nounits",
]

if _xla.VERSION >= (0, 12):  # as JAX of the same jaxlib
    from jaxlite.traces.program_parts import (
        abstract_eval_fun,
        close_jaxpr,
        convert_constvars_jaxpr,
        move_binders_to_back,
        partial_eval_jaxpr_nounits,
        prune_closed_jaxpr_outputs,
    )

    __all__ += ["abstract_eval_fun", "close_jaxpr", "convert_constvars_jaxpr", "move_binders_to_back",
                "partial_eval_jaxpr_nounits", "prune_closed_jaxpr_outputs"]
