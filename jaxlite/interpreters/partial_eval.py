"""Partial evaluation as `jax.interpreters.partial_eval` names it: a view; what is here is defined in `traces` and `extend`."""

from typing import Any as Val

from jaxlite.core.staging import StagedTracer as DynamicJaxprTracer
from jaxlite.core.staging import StagedTracer as JaxprTracer
from jaxlite.extend.dce_rules import dce_jaxpr_call_rule, dce_jaxpr_closed_call_rule, dce_jaxpr_consts, dce_rules
from jaxlite.traces.partial import PartialVal, dce_jaxpr, trace_to_jaxpr_dynamic, trace_to_jaxpr_nounits

__all__ = [
    "DynamicJaxprTracer", "JaxprTracer", "PartialVal", "Val", "dce_jaxpr", "dce_jaxpr_call_rule", "dce_jaxpr_closed_call_rule",
    "dce_jaxpr_consts", "dce_rules", "trace_to_jaxpr_dynamic", "trace_to_jaxpr_nounits",
]
