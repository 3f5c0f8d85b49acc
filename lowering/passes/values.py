"""A program as a graph of values, for the passes that decide which of them are better written to memory by XLA:CPU.

Calls are seen through, and reshapes that move nothing are their operand. Bodies of loops and branches are programs of their
own. Of each value there is what it takes to compute it: instructions, work for an element, and memory traffic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from lowering.passes.operations import COSTLY, FUSIBLE, LIBRARY_REDUCTION, REDUCTIONS, RUN_COST, VIEWS, WEIGHT, call_body

_JOINING = ("concatenate", "stack")
SLICES = frozenset("slice split unstack dynamic_slice".split())
_ALIASES = frozenset("reshape squeeze broadcast_in_dim copy stop_gradient convert_element_type name".split())

_COMPARED = FUSIBLE | REDUCTIONS | {"dot_general"}  # equations of which XLA makes one where they are equal

_ARRAY = "array"  # a constant with more than one element
NEAR = 0.5  # traffic for an element in the nearest cache
_MANY_PARTS = 8  # operands from which on a concatenation is a kernel of its own
MANY_BITS = 512  # random numbers that are worth a kernel for what is made of their bits
_HASH = 100  # operations that make one of them
MOST_KERNELS = 16  # readers of a value that are told apart; with so many it gets a barrier anyway
CONE = 32  # values up to which it is looked for what one is made of


class Value:
    """A value of the program: the result of an equation, and what the walks find out about it."""

    __slots__ = ("var", "aliases", "copies", "eqn", "name", "shape", "size", "operands", "users", "is_result", "is_loop",
                 "is_costly", "is_shy", "is_blocked", "weight", "run", "kernels", "is_kernel", "readers", "part", "joined",
                 "is_written", "is_charged", "instructions", "work")

    def __init__(self, var: Any, eqn: Any, operands: list[Value], in_library: bool = True):
        name = eqn.primitive.name
        self.var, self.eqn, self.name, self.operands = var, eqn, name, operands
        self.aliases = {var}  # all variables that are this value
        self.copies: list[Any] = []  # those of them that equal equations compute, of which XLA makes one
        aval = var.aval
        shape = getattr(aval, "shape", ())
        self.size = math.prod(shape)
        self.shape = tuple(extent for extent in shape if extent != 1)
        self.users: list[Value] = []
        self.is_result = self.is_written = self.is_charged = self.is_blocked = False
        # Is it computed in a loop over elements, into which others can be fused?
        self.is_loop = name in FUSIBLE or name == "random_bits" and self.size < MANY_BITS
        if in_library and name in REDUCTIONS and eqn.invars[0].aval.size >= LIBRARY_REDUCTION or (
                name in _JOINING and len(operands) > _MANY_PARTS):
            self.is_loop = False
        is_scaling = name == "div" and hasattr(eqn.invars[1], "val")
        self.is_costly = name in COSTLY and not is_scaling and not is_complex(aval)
        self.weight = WEIGHT.get(name, 1) if operands or name not in VIEWS else 0
        self.run = 1 if is_scaling else _HASH if name == "random_bits" else RUN_COST.get(name, 1)
        # XLA fuses what reads more than it writes into all readers or into none.
        rank = len(self.shape)
        large = [each for each in operands if len(each.shape) >= rank and each.name not in ("broadcast_in_dim", "iota")]
        self.is_shy = len(large) > 1 and sum(each.size for each in operands) > self.size
        self.is_kernel = not self.is_loop  # does XLA write it, or a barrier?
        self.kernels: Kernels = {}  # where it is computed
        self.readers: Kernels | None = None  # where a candidate would be computed if it is not written
        self.joined: list[Value | None] = []  # the parts of a concatenation
        self.part = 1.0  # of its elements, which a copy computes: its readers may need a slice each
        self.instructions = self.work = 0.0


Kernels = dict[Value, int]  # kernel -> how many times it computes a value, under different indices


def is_complex(aval: Any) -> bool:
    return getattr(getattr(aval, "dtype", None), "kind", "") == "c"


def collect(jaxpr: Any, env: dict[Any, Value], values: list[Value], shifted: Mapping[Any, Any],
            visit: Callable[[Any, Mapping[Any, Value]], None], known: dict[Any, Any] | None = None,
            own_loops: Container[Any] = ()) -> dict[Any, Any]:
    """Append the values of a program in order, and `visit` their equations with what is known then.

    Args:
      env: maps variables to values, of which inputs have none. It is filled.
      shifted: variables that are read from arrays with margins (see `shifts.find`): XLA writes them.
      own_loops: large reductions that are not the library's (see `short_rows.find`).
      known: values by what computes them, and variables by those that they are with another shape. It is filled.
    Returns: `known`.
    """
    known = {var: (_ARRAY, place) for place, var in enumerate(jaxpr.constvars)} if known is None else known
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        inner = call_body(eqn)
        if inner is not None:
            scope: dict[Any, Value] = {}
            _alias(inner.invars, eqn.invars, env, scope)
            known.update((var, source_of(atom, known)) for var, atom in zip(inner.invars, eqn.invars, strict=True))
            collect(inner, scope, values, shifted, visit, known, own_loops)
            _alias(eqn.outvars, inner.outvars, scope, env)
            known.update((var, source_of(atom, known)) for var, atom in zip(eqn.outvars, inner.outvars, strict=True)
                         if is_constant(atom, scope, known))
            continue
        if name in _ALIASES and _moves_nothing(eqn.invars[0].aval, eqn.outvars[0].aval):
            _alias(eqn.outvars, eqn.invars[:1], env, env)
            known[eqn.outvars[0]] = source_of(eqn.invars[0], known)
            continue
        visit(eqn, env)
        operands: list[Value] = []
        shift = shifted.get(eqn.outvars[0]) if eqn.outvars else None
        key = _computation(eqn, env, known) if shift is None else None
        if key is not None and all(is_constant(atom, env, known) for atom in eqn.invars):
            kind = "number" if eqn.outvars[0].aval.size == 1 else _ARRAY
            if kind == "number" or any(source_of(atom, known)[0] is _ARRAY for atom in eqn.invars):
                known[eqn.outvars[0]] = known.setdefault(key, (kind, len(known)))  # XLA computes it: as good as a literal
                continue
        if key in known:
            _alias(eqn.outvars, [key], known, env)
            known[key].copies += eqn.outvars
            continue
        for atom in eqn.invars if shift is None or shift.source is None else (shift.source,):
            value = env.get(atom)
            if value is not None and value not in operands:
                operands.append(value)
        for var in eqn.outvars:
            env[var] = value = Value(var, eqn, operands, var not in own_loops)
            if name in _JOINING:
                value.joined = [env.get(atom) for atom in eqn.invars]
            if key is not None:
                known[key] = value
            if shift is not None:  # it is read from memory
                value.is_loop, value.is_kernel = False, True
            values.append(value)
            for operand in operands:
                operand.users.append(value)
    return known


def _computation(eqn: Any, env: Mapping[Any, Value], known: Mapping[Any, Any]) -> Any:
    """Equal for equations that compute the same from the same values; None for those that are not compared."""
    if len(eqn.outvars) != 1 or eqn.primitive.name not in _COMPARED:
        return None
    atoms = [(env.get(atom) or source_of(atom, known), atom.aval.shape) for atom in eqn.invars]
    key = (eqn.primitive.name, eqn.outvars[0].aval.dtype, *atoms, *eqn.params.items())
    try:
        hash(key)
    except TypeError:
        return None
    return key


def is_constant(atom: Any, env: Mapping[Any, Value], known: Mapping[Any, Any]) -> bool:
    """Whether something is a literal, a captured array, or computed of these alone; not an array made of literals."""
    return atom not in env and type(source_of(atom, known)) is tuple


def source_of(atom: Any, known: Mapping[Any, Any]) -> Any:
    """Equal for equal literals and numbers computed of them, and for variables that are the same input, in whatever shape."""
    return (atom.aval.dtype, repr(atom.val)) if hasattr(atom, "val") else known.get(atom, atom)


def _alias(names: Sequence[Any], atoms: Sequence[Any], known: Mapping[Any, Value], env: dict[Any, Value]) -> None:
    """Give names to values that are known by others."""
    for var, atom in zip(names, atoms, strict=True):
        if atom in known:
            env[var] = value = known[atom]
            value.aliases.add(var)


def _moves_nothing(before: Any, after: Any) -> bool:
    if before.dtype != after.dtype or before.size != after.size:
        return False
    return [extent for extent in before.shape if extent != 1] == [extent for extent in after.shape if extent != 1]


def count_copies(kernels: Kernels) -> int:
    return sum(kernels.values())


def kind_of(value: Value) -> tuple[Any, ...]:
    """Equal for the values that correspond to each other in the steps of an unrolled loop."""
    return (value.name, value.shape, tuple([(each.name, each.shape) for each in value.operands]),
            frozenset([(each.name, each.shape) for each in value.users]))


def cone_of(value: Value) -> list[Value]:
    """A value and what it is computed from, back to what is in memory; not all of it if that is much."""
    cone, pending, seen = [], [value], {value}
    while pending and len(seen) <= CONE:
        cone.append(each := pending.pop())
        for operand in each.operands:
            if not operand.is_kernel and operand not in seen:
                seen.add(operand)
                pending.append(operand)
    return cone


def work_of(value: Value) -> float:
    """The work for each element of a value, from what is in memory."""
    return sum(each.run * each.size for each in cone_of(value)) / value.size


def traffic(value: Value) -> float:
    """What writing or reading one element costs: caches are fast, memory is slow."""
    bytes_ = value.size * getattr(value.var.aval.dtype, "itemsize", 4)
    return NEAR if bytes_ < 32e3 else 1.5 if bytes_ < 512e3 else 4.0 if bytes_ < 8e6 else 16.0
