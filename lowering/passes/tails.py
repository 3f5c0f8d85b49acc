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

_LARGEST = (16384, 4096, 1024)  # elements of an array, from which the first is chosen that leaves little work
_MOST_WORK = 1 << 21  # cheap operations, from which on threads may help
_MOST_EQUAL = 5  # kernels: the newer generator compiles one of them
_KERNEL, _LEAST = 5, 10  # what a different kernel costs over one in the function, and the least to be saved, in the same unit


def find(jaxpr: Any, barriers: Container[Any]) -> set[Any]:
    """The variables of the end of a program that shall be one function, if these variables get barriers."""
    if not xla.HAS_SMALL_FUNCTIONS:
        return set()
    while jaxpr.eqns and jaxpr.outvars and (body := call_body(jaxpr.eqns[-1])) and jaxpr.outvars == jaxpr.eqns[-1].outvars:
        jaxpr = body
    return next((_all_vars(eqns) for largest in _LARGEST
                 if (eqns := _end(jaxpr, barriers, largest)) and _saves(jaxpr, eqns, barriers)), set())


def _end(jaxpr: Any, barriers: Container[Any], largest: int) -> list[Any]:
    """The equations whose results nothing else reads, of arrays of at most so many elements; none if they are all or much work.

    Products that are computed in the other order are read by rows outside, as XLA would turn them for the function.
    """
    readers: dict[Any, list[int]] = {}
    makers: dict[Any, Any] = {}
    for index, eqn in enumerate(jaxpr.eqns):
        makers.update((var, eqn) for var in eqn.outvars)
        for atom in eqn.invars:
            if not hasattr(atom, "val"):
                readers.setdefault(atom, []).append(index)
    turned = {var for var, eqn in makers.items() if eqn.primitive.name == "dot_general" and var in barriers}
    kinds = {var: emitters.kind(makers[var], makers) for var in jaxpr.outvars if not hasattr(var, "val") and var in makers}
    many = {kind for kind, count in Counter(kinds.values()).items() if count > _MOST_EQUAL}
    chosen: set[int] = set()
    work = 0.0
    for index in reversed(range(len(jaxpr.eqns))):
        eqn = jaxpr.eqns[index]
        if any(var in barriers or kinds.get(var) in many or not chosen.issuperset(readers.get(var, ())) for var in eqn.outvars):
            continue
        if not turned.isdisjoint([atom for atom in eqn.invars if not hasattr(atom, "val")]):
            continue
        if not all(_is_fit(atom) for atom in (*eqn.invars, *eqn.outvars)):
            continue
        if call_body(eqn) is not None or eqn.primitive.name in FUSIBLE:
            each = emitters.work_in(SimpleNamespace(eqns=[eqn], outvars=eqn.outvars), largest)
            if each < math.inf:
                work += each
                chosen.add(index)
    return [jaxpr.eqns[index] for index in sorted(chosen)] if work <= _MOST_WORK and len(chosen) < len(jaxpr.eqns) else []


def _is_fit(atom: Any) -> bool:
    """Whether a value has elements, of a type that both code generators take."""
    return emitters.is_plain(atom) and atom.aval.size != 0


def _saves(jaxpr: Any, eqns: list[Any], barriers: Container[Any]) -> bool:
    """Whether one function for equations at the end saves more kernels than are needed for what it reads."""
    made = {var: eqn for eqn in eqns for var in eqn.outvars}
    results = {var for var in jaxpr.outvars if not hasattr(var, "val")}
    kinds = Counter(emitters.kind(made[var], made) for var in results if var in made)
    read = {atom for eqn in eqns for atom in eqn.invars if not hasattr(atom, "val") and atom not in made}
    fused = [var for eqn in jaxpr.eqns if call_body(eqn) is not None or eqn.primitive.name in FUSIBLE - COSTLY - REDUCTIONS
             for var in eqn.outvars if var in read and var not in barriers and var not in results]
    return _KERNEL * (len(kinds) - len(fused)) - kinds.total() >= _LEAST


def _all_vars(eqns: Iterable[Any]) -> set[Any]:
    """The variables that equations make, and those of the programs that they call."""
    found: set[Any] = set()
    for eqn in eqns:
        found.update(eqn.outvars)
        body = call_body(eqn)
        if body is not None:
            found |= {*body.invars, *_all_vars(body.eqns)}
    return found
