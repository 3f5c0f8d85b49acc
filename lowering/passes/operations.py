"""What the operations of a program are to XLA:CPU: which it fuses, which it computes once, and what an element of each costs.

Costs are in units of a cheap vector operation and were fitted to measurements; docs/fusion.md has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowering.rules import DECOMPOSITIONS, RULES, decomposed

# Name -> what one element costs to run, where it is not 1.
RUN_COST = {
    "tanh": 32, "exp": 14, "exp2": 15, "expm1": 14, "log": 13, "log1p": 42, "log2": 13, "logistic": 16, "sin": 38, "cos": 96,
    "sinh": 40, "cosh": 30, "asin": 25, "acos": 25, "atan": 25, "asinh": 60, "acosh": 50, "atanh": 50,
    "tan": 140, "pow": 130, "erf": 25, "erf_inv": 46, "lgamma": 200, "digamma": 200, "erfc": 60, "div": 6, "sqrt": 4,
    "rsqrt": 4, "cbrt": 150, "atan2": 500, "rem": 20, "integer_pow": 2, "one_minus_square": 2, "polynomial": 8,
    "gather": 10, "concatenate": 4, "stack": 4, "pad": 3, "argmax": 4, "argmin": 4, "max": 2, "min": 2, "select_n": 2,
    "floor": 2, "reshape": 0, "squeeze": 0, "stop_gradient": 0, "copy": 0,
}  # fmt: skip
# Name -> how many instructions it becomes, where it is not 1.
WEIGHT = {
    "logistic": 4, "integer_pow": 2, "one_minus_square": 3, "polynomial": 8, "erf_inv": 40, "lgamma": 80, "digamma": 80,
    "erfc": 60, "iota": 0, "reshape": 0, "squeeze": 0, "argmax": 4, "argmin": 4, "random_bits": 120,
}  # fmt: skip
REDUCTIONS = frozenset(
    "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor argmax argmin".split())
VIEWS = frozenset("reshape transpose squeeze slice rev broadcast_in_dim tile iota empty convert_element_type "
                  "bitcast_convert_type copy stop_gradient split unstack real imag".split())
FUSIBLE = REDUCTIONS | VIEWS | frozenset(
    "neg sin cos tan tanh exp exp2 expm1 log log1p log2 logistic sqrt rsqrt cbrt abs sign floor ceil round erf erf_inv "
    "erfc lgamma digamma is_finite not integer_pow polynomial one_minus_square square reduce_precision conj population_count "
    "clz sinh cosh asin acos atan asinh acosh atanh add sub mul div rem max min pow atan2 nextafter and or xor shift_left "
    "shift_right_logical shift_right_arithmetic eq ne lt le gt ge eq_to le_to lt_to complex add_any select_n clamp mulhi pad "
    "concatenate stack dynamic_slice dynamic_update_slice gather".split())
# XLA computes these once where several kernels read them.
COSTLY = REDUCTIONS | frozenset(
    "tanh exp exp2 expm1 log log1p log2 logistic sqrt rsqrt cbrt erf div rem pow atan2 sinh cosh "
    "asin acos atan asinh acosh atanh gather pad".split())
# They give other elements of their operands, or more of them.
MOVES = REDUCTIONS | (VIEWS - {"broadcast_in_dim"}) | frozenset(
    "pad concatenate stack dynamic_slice dynamic_update_slice gather".split())
ELEMENTWISE = (FUSIBLE - MOVES) | {"convert_element_type"}
IN_LIBRARY = ("reduce_sum", "reduce_max", "reduce_min")
LIBRARY_REDUCTION = 4096  # elements from which on a reduction is a kernel that nothing is fused with
LOOPS = ("while", "scan")
_CALLS = {"jit": "jaxpr", "remat2": "jaxpr", "nest": "jaxpr", "custom_jvp_call": "call_jaxpr",
          "custom_vjp_call": "call_jaxpr"}
_FOLDS = ("reduce", "reduce_window")  # their bodies are not kernels of their own
_SOLVERS = ("custom_linear_solve", "custom_root", "linear_call")  # the second of their programs is run


def call_body(eqn: Any) -> Any:
    """The program that an equation calls once, as part of its own; None if it is not a call."""
    param = _CALLS.get(eqn.primitive.name)
    return None if param is None else eqn.params[param].jaxpr


def bodies(eqn: Any) -> Sequence[Any]:
    """The programs in an equation that are compiled as programs of their own: of loops, branches, decompositions, solvers."""
    name, params = eqn.primitive.name, eqn.params
    if name == "while":
        if params["cond_jaxpr"].out_avals[0].ndim:  # of examples that stop at different times
            params = decomposed(eqn).jaxpr.eqns[0].params
        return params["body_jaxpr"].jaxpr, params["cond_jaxpr"].jaxpr
    is_decomposed = name in DECOMPOSITIONS and name not in RULES
    if not is_decomposed and name in FUSIBLE or name in _FOLDS:
        return ()
    found = [decomposed(eqn).jaxpr] if is_decomposed else []
    found += [params["jaxpr"].jaxpr] if hasattr(params.get("jaxpr"), "jaxpr") else []
    found += [branch.jaxpr for branch in params.get("branches", ())]
    if name in _SOLVERS:
        found.append(params["jaxprs"][1].jaxpr)
    return found
