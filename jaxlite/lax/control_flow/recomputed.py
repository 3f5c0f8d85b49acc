"""What the loop of tangents of a `scan` computes again: cheap arithmetic and slices of what the primal loop saves anyway.

A saved value is written in each step and read back, from a stack that seldom fits in a cache. Rules of derivatives need
`1 - y * y` beside `y`, or `2 * d` and `m * d`, where `d` itself is a difference of rows of a smaller array.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from jaxlite.core.jaxpr import ClosedJaxpr, Jaxpr, Var

# Name -> the operations for an element.
_COSTS = {
    **dict.fromkeys("add sub mul neg add_any max min abs sign and or not xor eq ne lt le gt ge select_n convert_element_type "
                    "integer_pow one_minus_square square".split(), 1.0),
    **dict.fromkeys("broadcast_in_dim reshape squeeze".split(), 0.0),
    "dynamic_slice": 1.0, "div": 6.0, "sqrt": 4.0, "rsqrt": 4.0,
}  # fmt: skip
_MOST, _MOST_IN_SHORT_ROWS = 16.0, 2.5  # operations for an element that take less time than to save it and to read it
_SHORT_ROW = range(2, 8)  # elements of a row that are not computed in vectors


class _Choice:
    """The choice for a program: what is saved, what is free, what is computed again, with the operations for an element."""

    def __init__(self, primal: Jaxpr, residuals: Sequence[Any], free: Collection[Any]):
        self.makers: dict[Any, Any] = {eqn.outvars[0]: eqn for eqn in primal.eqns if _is_cheap(eqn)}
        self.free = free
        self.saved = {atom for atom in residuals if type(atom) is Var and atom not in free}
        self.again: dict[Any, float] = {}

    def cone(self, var: Any) -> tuple[frozenset[Any], float]:
        """What else would have to be saved to compute a variable by cheap equations, and the operations for an element."""
        pending, results, leaves, work = [var], {var}, set[Any](), 0.0
        while pending and work <= _most(var) * var.aval.size:
            each = pending.pop()
            eqn = self.makers[each]
            work += _cost(eqn) * each.aval.size
            for atom in eqn.invars:
                size = atom.aval.size
                if type(atom) is not Var or atom in self.free or atom in self.saved or atom in results:
                    continue
                if atom in self.again:
                    work += self.again[atom] * size
                elif atom in self.makers:
                    results.add(atom)
                    pending.append(atom)
                else:
                    leaves.add(atom)
        return frozenset(leaves), work / max(1, var.aval.size)

    def improve(self, candidates: Sequence[Any]) -> bool:
        """Compute more of the candidates again, if that saves memory."""
        before = len(self.again)
        groups: dict[frozenset[Any], list[tuple[Any, float]]] = defaultdict(list)
        for var in candidates:
            if var in self.again:
                continue
            leaves, work = self.cone(var)
            if work > _most(var):
                continue
            if not leaves:
                self._compute(var, work)
            else:
                groups[leaves].append((var, work))
        for leaves, members in groups.items():
            if sum(map(_bytes, leaves)) < sum(_bytes(var) for var, _ in members):
                self.saved |= leaves
                for var, work in members:
                    self._compute(var, work)
        return len(self.again) > before

    def _compute(self, var: Any, work: float) -> None:
        self.again[var] = work
        self.saved.remove(var)


def _cost(eqn: Any) -> float:
    return _COSTS["div" if eqn.primitive.name == "integer_pow" and eqn.params["y"] < 0 else eqn.primitive.name]


def _most(var: Any) -> float:
    return _MOST_IN_SHORT_ROWS if var.aval.shape[-1:] and var.aval.shape[-1] in _SHORT_ROW else _MOST


def _is_cheap(eqn: Any) -> bool:
    """Whether it takes few operations for an element, of arrays of known sizes."""
    return eqn.primitive.name in _COSTS and all(type(atom.aval.size) is int for atom in (*eqn.invars, *eqn.outvars))


def _bytes(var: Any) -> int:
    return var.aval.size * var.aval.dtype.itemsize


def cheaper(primal: Jaxpr, tangent: Jaxpr, residuals: Sequence[Any], free: Collection[Any]) -> tuple[list[Any], ClosedJaxpr]:
    """Choose what to save instead of the residuals of a program.

    Args:
      tangent: the program that takes the residuals, then other inputs.
      residuals: literals and variables of `primal`.
      free: variables that need not be saved.
    Returns: the literals and variables to save, and the program that takes these, then the other inputs.
    """
    choice, times = _Choice(primal, residuals, free), Counter(residuals)
    candidates = [var for var in choice.makers if times[var] == 1 and var in choice.saved]
    while choice.improve(candidates):
        pass
    if not choice.again:
        return list(residuals), ClosedJaxpr(tangent, [])
    names = dict(zip(residuals, tangent.invars, strict=False))
    needed, again = {*choice.again}, []
    for eqn in reversed(primal.eqns):
        if eqn.outvars and eqn.outvars[0] in needed:
            again.append(eqn)
            needed.update(atom for atom in eqn.invars if type(atom) is Var and atom not in choice.saved and atom not in free)
    again.reverse()
    read = dict.fromkeys(atom for eqn in again for atom in eqn.invars if atom in choice.saved or atom in free)
    kept = [(atom, var) for atom, var in zip(residuals, tangent.invars, strict=False) if atom not in choice.again]
    kept += [(atom, names.setdefault(atom, Var(atom.aval))) for atom in read if atom not in names]
    eqns = [eqn.replace(
        invars=[names.get(atom, atom) for atom in eqn.invars],
        outvars=[names.setdefault(var, Var(var.aval)) for var in eqn.outvars]) for eqn in again]
    return [atom for atom, _ in kept], ClosedJaxpr(tangent.replace(
        invars=[*[var for _, var in kept], *tangent.invars[len(residuals):]], eqns=[*eqns, *tangent.eqns]), [])
