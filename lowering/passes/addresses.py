"""Whether LLVM shall simplify the arithmetic of addresses in a program's loops on the CPU (loop strength reduction).

XLA's loops over elements count from zero, and the processor adds a base to a scaled index in the same instruction, so there
is hardly anything to simplify, and looking for it takes LLVM a twentieth of a compile. Complex elements are pairs: without
the pass, their loops compute the addresses of both parts in every turn. So do loops that LLVM unrolls (see `unrolling`).
"""

from __future__ import annotations

from typing import Any

from lowering.passes.unrolling import equations


def gains(jaxpr: Any) -> bool:
    """Whether a program, or a program in its equations, runs faster if LLVM does so: it has complex values."""
    return any(map(_is_complex, (*jaxpr.constvars, *jaxpr.invars))) or any(
        any(map(_is_complex, (*eqn.invars, *eqn.outvars))) for eqn, _ in equations(jaxpr))


def _is_complex(atom: Any) -> bool:
    return getattr(getattr(atom.aval, "dtype", None), "kind", "") == "c"
