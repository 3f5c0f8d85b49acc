"""Control flow that is part of the program: branches and loops as equations with sub-jaxprs."""

from jaxlite.core.primitive import register_rule_modules
from jaxlite.lax.control_flow.associative_scan import associative_scan
from jaxlite.lax.control_flow.cond import cond, cond_p, platform_dependent, platform_index_p, switch
from jaxlite.lax.control_flow.polynomials import polynomial
from jaxlite.lax.control_flow.scan import map, scan, scan_p
from jaxlite.lax.control_flow.solves import custom_linear_solve, custom_root, linear_solve_p
from jaxlite.lax.control_flow.while_loop import fori_loop, while_loop, while_p

__all__ = [
    "associative_scan", "cond", "cond_p", "custom_linear_solve", "custom_root", "fori_loop", "linear_solve_p", "map",
    "platform_dependent", "platform_index_p", "polynomial", "scan", "scan_p", "switch", "while_loop", "while_p",
]

register_rule_modules(*[f"{__name__}.{family}_rules" for family in ("cond", "loop", "solves")])
