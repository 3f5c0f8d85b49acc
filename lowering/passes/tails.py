"""The end of a program as one function: the update of parameters that follows the gradients of a training step.

XLA:CPU makes a kernel for each result of an elementwise computation, three for a parameter in Adam, and a different one for
each shape. What ends a program and only consists of such operations on small arrays is compiled by the older of its code
generators, as one function, where that saves kernels (see `emitters`): a step of Adam compiles in 0.7 of the time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable
from types import SimpleNamespace
from typing import Any

from lowering import xla
from lowering.passes import emitters
from lowering.passes.operations import COSTLY, FUSIBLE, REDUCTIONS, call_body

_LARGEST = (16384, 4096, 1024)  # elements of an array, at most
_MOST_WORK = 1 << 21  # cheap operations, from which on threads may help
_MOST_EQUAL = 5  # kernels: the newer generator compiles one of them
_KERNEL, _LEAST = 5, 10  # what a different kernel costs over one in the function, and the least to be saved, in the same unit


def find(jaxpr: Any, barriers: Container[Any]) -> dict[Any, bool]:
    """The variables of the end of a program that shall be one function, if these variables get barriers.

    It is true for those of the program, or of the one that is all it calls, and false for those of programs that its end calls.
    """
    if not xla.HAS_SMALL_FUNCTIONS:
        return {}
    while jaxpr.eqns and jaxpr.outvars and (body := call_body(jaxpr.eqns[-1])) and jaxpr.outvars == jaxpr.eqns[-1].outvars:
        jaxpr = body
    if (_KERNEL - 1) * len(set(map(id, jaxpr.outvars))) < _LEAST:  # so few results cannot save that much
        return {}
    program = _Program(jaxpr, barriers)
    ends = [program.end(scalars) for scalars in ((True, False) if program.scalars else (True,))]
    saved = [program.saved(eqns) for eqns in ends]
    return _all_vars(ends[saved.index(max(saved))]) if max(saved) >= _LEAST else {}


class _Program:
    """A program: who reads its variables, and the kinds of the kernels that end in its results."""

    def __init__(self, jaxpr: Any, barriers: Container[Any]):
        self.eqns, self.barriers = jaxpr.eqns, barriers
        self.results = {var for var in jaxpr.outvars if not hasattr(var, "val")}
        self.readers: dict[Any, list[int]] = {}
        self.transposed: set[Any] = set()  # products that are computed in the other order
        makers: dict[Any, Any] = {}
        for index, eqn in enumerate(jaxpr.eqns):
            makers.update((var, eqn) for var in eqn.outvars)
            if eqn.primitive.name == "dot_general" and eqn.outvars[0] in barriers:
                self.transposed.add(eqn.outvars[0])
            for atom in eqn.invars:
                if not hasattr(atom, "val"):
                    self.readers.setdefault(atom, []).append(index)
        self.kinds = {var: emitters.kind(makers[var], makers) for var in self.results if var in makers and _is_fit(var)}
        many = {kind for kind, count in Counter(self.kinds.values()).items() if count > _MOST_EQUAL}
        self.repeated = {var for var, kind in self.kinds.items() if kind in many}
        self.scalars = {var for var in self.kinds if var.aval.size == 1}

    def end(self, scalars: bool) -> list[Any]:
        """The equations whose results nothing else reads, of arrays that leave little enough work; none if they are all.

        What reads products that are computed in the other order stays outside: XLA would transpose it for the function. If not
        `scalars`, so does what ends in results of one element, such as a loss.
        """
        left_out = self.repeated if scalars else self.repeated | self.scalars
        for largest in _LARGEST:
            chosen, work = set[int](), 0.0
            for index in reversed(range(len(self.eqns))):
                eqn = self.eqns[index]
                is_last = all(var not in left_out and chosen.issuperset(self.readers.get(var, ())) for var in eqn.outvars)
                if is_last and (each := self._work(eqn, largest)) < math.inf:
                    work += each
                    chosen.add(index)
            if work <= _MOST_WORK:
                return [self.eqns[index] for index in sorted(chosen)] if len(chosen) < len(self.eqns) else []
        return []

    def _work(self, eqn: Any, largest: int) -> float:
        """The operations of an equation, infinite if it stays outside."""
        if any(var in self.barriers for var in eqn.outvars) or call_body(eqn) is None and eqn.primitive.name not in FUSIBLE:
            return math.inf
        if not all(map(_is_fit, (*eqn.invars, *eqn.outvars))) or any(
                not hasattr(atom, "val") and atom in self.transposed for atom in eqn.invars):
            return math.inf
        return emitters.work_in(SimpleNamespace(eqns=[eqn], outvars=eqn.outvars), largest)

    def saved(self, eqns: list[Any]) -> int:
        """What one function for equations saves: its different kernels, less those that are needed for what it reads."""
        made = {var for eqn in eqns for var in eqn.outvars}
        kinds = [kind for var, kind in self.kinds.items() if var in made]
        read = {atom for eqn in eqns for atom in eqn.invars if not hasattr(atom, "val") and atom not in made}
        fused = [var for eqn in self.eqns if call_body(eqn) is not None or eqn.primitive.name in FUSIBLE - COSTLY - REDUCTIONS
                 for var in eqn.outvars if var in read and var not in self.barriers and var not in self.results]
        return _KERNEL * (len(set(kinds)) - len(fused)) - len(kinds)


def _is_fit(atom: Any) -> bool:
    """Whether a value has elements, of a type that both code generators take."""
    return emitters.is_plain(atom) and atom.aval.size != 0


def _all_vars(eqns: Iterable[Any], is_called: bool = False) -> dict[Any, bool]:
    """The variables that equations make, and those of the programs that they call."""
    found: dict[Any, bool] = {}
    for eqn in eqns:
        body = call_body(eqn)
        if body is not None:
            found |= {**dict.fromkeys(body.invars, False), **_all_vars(body.eqns, True)}
        found |= dict.fromkeys(eqn.outvars, not is_called)
    return found
