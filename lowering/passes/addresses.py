"""Whether LLVM shall simplify the arithmetic of addresses in a program's loops on the CPU (loop strength reduction).

XLA's loops over elements count from zero, and the processor adds a base to a scaled index in the same instruction, so there
is hardly anything to simplify, and looking for it takes LLVM a twentieth of a compile. Complex elements are pairs: without
the pass, their loops compute the addresses of both parts in every turn. So do loops that LLVM unrolls (see `unrolling`).
"""

from __future__ import annotations

from typing import Any

from lowering.passes.fusion import bodies, call_body


def gains(jaxpr: Any) -> bool:
    """Whether a program, or a program in its equations, runs faster if LLVM does so: it has complex values."""
    return _has_complex(jaxpr, set())


def _has_complex(jaxpr: Any, seen: set[int]) -> bool:
    if id(jaxpr) in seen:
        return False
    seen.add(id(jaxpr))
    if any(map(_is_complex, (*jaxpr.constvars, *jaxpr.invars))):
        return True
    for eqn in jaxpr.eqns:
        inner = call_body(eqn)
        if any(map(_is_complex, eqn.outvars)) or inner is not None and _has_complex(inner, seen):
            return True
        if any(_has_complex(body, seen) for body in bodies(eqn)):
            return True
    return False


def _is_complex(var: Any) -> bool:
    return getattr(getattr(var.aval, "dtype", None), "kind", "") == "c"
