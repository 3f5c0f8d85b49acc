"""Derivatives as `jax.interpreters.ad` names them: a view; what is here is defined in `traces` and `extend`."""

from jaxlite.extend.rule_tables import add_any as add_jaxvals
from jaxlite.extend.rule_tables import (
    add_tangents,
    defbilinear,
    defjvp,
    defjvp2,
    deflinear,
    deflinear2,
    get_primitive_transpose,
    primitive_jvps,
    primitive_transposes,
)
from jaxlite.traces.jvp import JVPTrace, JVPTracer, Zero
from jaxlite.traces.jvp import add_any_p as add_jaxvals_p
from jaxlite.traces.jvp import instantiate as instantiate_zeros
from jaxlite.traces.jvp import zeros_of as zeros_like_aval
from jaxlite.traces.transpose import Linear as UndefinedPrimal
from jaxlite.traces.transpose import is_linear as is_undefined_primal
from lowering import xla as _xla

__all__ = [
    "JVPTrace", "JVPTracer", "UndefinedPrimal", "Zero", "add_jaxvals", "add_jaxvals_p", "add_tangents", "defbilinear", "defjvp",
    "defjvp2", "deflinear", "deflinear2", "get_primitive_transpose", "instantiate_zeros", "is_undefined_primal",
    "primitive_jvps", "primitive_transposes", "zeros_like_aval",
]

if _xla.VERSION >= (0, 12):  # as JAX of the same jaxlib
    from jaxlite.traces.program_parts import backward_pass, jvp_jaxpr

    __all__ += ["backward_pass", "jvp_jaxpr"]
