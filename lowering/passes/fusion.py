"""Fusion barriers for XLA:CPU: the values of a program that are better written to memory than computed again.

XLA:CPU fuses an elementwise value into *every* kernel that reads it, together with all that it is made of. A chain of
values that are each read by two kernels doubles its code at every step, and so unrolled loops and gradients take XLA
seconds to hours. An `optimization_barrier` makes its value a kernel of its own: written once, read often.

The choice is made from the equations alone, in three walks that are linear in their number:

1. `_values`: the program as a graph of values, calls seen through. Reshapes that move nothing are their operand.
2. `_find_readers`, from the results back: which kernels would read each value if every value with several readers were
   written. What XLA writes of its own accord (reads by what is no loop, results, costly values with several readers) is
   no question.
3. `_choose`, forward: the cost of computing each value from what is in memory, with the barriers chosen so far. A value
   gets a barrier if the instructions that it saves outweigh another kernel, and the arithmetic that it saves outweighs
   the memory traffic.

Bodies of loops and branches are programs of their own. Costs are in units of a cheap vector operation and were fitted to
measurements; docs/fusion.md has them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

# Name -> what one element costs to run, where it is not 1.
_RUN_COST = {
    "tanh": 32, "exp": 14, "exp2": 15, "expm1": 14, "log": 13, "log1p": 42, "logistic": 16, "sin": 38, "cos": 96,
    "tan": 140, "pow": 130, "erf": 25, "erf_inv": 46, "lgamma": 200, "digamma": 200, "erfc": 60, "div": 6, "sqrt": 4,
    "rsqrt": 4, "cbrt": 150, "atan2": 500, "rem": 20, "integer_pow": 2, "gather": 10, "concatenate": 4, "pad": 3,
    "argmax": 4, "argmin": 4, "max": 2, "min": 2, "select_n": 2, "floor": 2,
    "reshape": 0, "squeeze": 0, "stop_gradient": 0, "copy": 0,
}  # fmt: skip
# Name -> how many instructions it becomes, where it is not 1.
_WEIGHT = {
    "logistic": 4, "integer_pow": 2, "erf_inv": 40, "lgamma": 80, "digamma": 80, "erfc": 60, "iota": 0, "reshape": 0,
    "squeeze": 0, "argmax": 4, "argmin": 4,
}  # fmt: skip
_REDUCTIONS = frozenset(
    "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor argmax argmin".split())
_VIEWS = frozenset("reshape transpose squeeze slice rev broadcast_in_dim iota convert_element_type copy stop_gradient split "
                   "real imag".split())
_FUSIBLE = _REDUCTIONS | _VIEWS | frozenset(
    "neg sin cos tan tanh exp exp2 expm1 log log1p logistic sqrt rsqrt cbrt abs sign floor ceil round erf erf_inv erfc "
    "lgamma digamma is_finite not integer_pow square reduce_precision conj population_count clz sinh cosh asin acos atan "
    "asinh acosh atanh add sub mul div rem max min pow atan2 nextafter and or xor shift_left shift_right_logical "
    "shift_right_arithmetic eq ne lt le gt ge complex add_any select_n clamp pad concatenate dynamic_slice "
    "dynamic_update_slice gather".split())
# XLA computes these once where several kernels read them.
_COSTLY = _REDUCTIONS | frozenset(
    "tanh exp exp2 expm1 log log1p logistic sqrt rsqrt cbrt erf erf_inv erfc lgamma digamma div rem pow atan2 sinh cosh "
    "asin acos atan asinh acosh atanh gather".split())
_ALIASES = frozenset("reshape squeeze broadcast_in_dim copy stop_gradient convert_element_type name".split())
_CALLS = {"jit": "jaxpr", "checkpoint": "jaxpr", "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
_BODIES = ("jaxpr", "body_jaxpr", "cond_jaxpr")

_BLOW_UP = 1.3  # emitted instructions for each one of the program that are nothing to worry about
_KERNEL = 16  # what a further kernel costs, in instructions
_SAVING, _SAVING_IF_WRITTEN = 8, 2  # instructions that a barrier must save
_HUGE_SAVING = 300  # from here on memory traffic does not matter
_MOST_COPIES = 15  # XLA does not index one value in more ways than this in a kernel
_LIBRARY_REDUCTION = 4096  # elements from which on a reduction is a kernel that nothing is fused with
_MANY_PARTS = 8  # operands from which on a concatenation is a kernel of its own


class _Value:
    """A value of the program: the result of an equation, and what the walks find out about it."""

    __slots__ = ("var", "name", "shape", "size", "operands", "users", "is_result", "is_loop", "is_costly", "is_shy",
                 "weight", "run", "emitted", "readers", "is_written", "is_kernel", "is_charged", "instructions", "work",
                 "unbounded")  # fmt: skip

    def __init__(self, var: Any, eqn: Any, operands: list[_Value]):
        name = eqn.primitive.name
        self.var, self.name, self.operands = var, name, operands
        aval = var.aval
        shape = getattr(aval, "shape", ())
        self.size = math.prod(shape)
        self.shape = tuple(extent for extent in shape if extent != 1)
        self.users: list[_Value] = []
        self.is_result = self.is_written = self.is_kernel = self.is_charged = False
        self.is_loop = name in _FUSIBLE  # is it computed in a loop over elements, into which others can be fused?
        if name in _REDUCTIONS and eqn.invars[0].aval.size >= _LIBRARY_REDUCTION or (
                name == "concatenate" and len(operands) > _MANY_PARTS):
            self.is_loop = False
        self.is_costly = name in _COSTLY and not (name == "div" and hasattr(eqn.invars[1], "val"))
        self.weight = _WEIGHT.get(name, 1) if operands or name not in _VIEWS else 0
        self.run = _RUN_COST.get(name, 1)
        # XLA fuses what reads more than it writes into all readers or into none.
        rank = len(self.shape)
        large = [each for each in operands if len(each.shape) >= rank and each.name not in ("broadcast_in_dim", "iota")]
        self.is_shy = len(large) > 1 and sum(each.size for each in operands) > self.size
        # Kernel -> ways of indexing -> how many times the value is computed there.
        self.emitted: dict[_Value, dict[_Value, int]] = {}
        self.readers: dict[_Value, dict[_Value, int]] | None = None  # of a value that may get a barrier
        self.instructions = self.work = self.unbounded = 0.0


def barriers(jaxpr: Any) -> dict[Any, str]:
    """The variables of a program, and of the programs in its equations, that get a barrier, and why.

    Args:
      jaxpr: a program without dead code.
    Returns: variable -> a short reason for the reader of a dump.
    """
    found: dict[Any, str] = {}
    _region(jaxpr, found, set())
    return found


def _region(jaxpr: Any, found: dict[Any, str], seen: set[int]) -> None:
    if id(jaxpr) in seen:
        return
    seen.add(id(jaxpr))
    values: list[_Value] = []
    env: dict[Any, _Value] = {}
    _values(jaxpr, env, values, found, seen)
    for atom in jaxpr.outvars:
        if atom in env:
            env[atom].is_result = True
    _find_readers(values)
    _choose(values, found)


def _values(jaxpr: Any, env: dict[Any, _Value], values: list[_Value], found: dict[Any, str], seen: set[int]) -> None:
    """Append the values of a program in order. `env` maps its variables to them; inputs have none."""
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name in _CALLS:
            inner = eqn.params[_CALLS[name]].jaxpr
            scope = {var: env[atom] for var, atom in zip(inner.invars, eqn.invars, strict=True) if atom in env}
            _values(inner, scope, values, found, seen)
            env.update((var, scope[atom]) for var, atom in zip(eqn.outvars, inner.outvars, strict=True) if atom in scope)
            continue
        if name in _ALIASES and _moves_nothing(eqn.invars[0].aval, eqn.outvars[0].aval):
            if eqn.invars[0] in env:
                env[eqn.outvars[0]] = env[eqn.invars[0]]
            continue
        for body in _bodies(eqn.params):
            _region(body, found, seen)
        operands: list[_Value] = []
        for atom in eqn.invars:
            value = env.get(atom)
            if value is not None and value not in operands:
                operands.append(value)
        for var in eqn.outvars:
            env[var] = value = _Value(var, eqn, operands)
            values.append(value)


def _bodies(params: dict[str, Any]) -> Iterator[Any]:
    for name in _BODIES:
        if hasattr(params.get(name), "jaxpr"):
            yield params[name].jaxpr
    for branch in params.get("branches", ()):
        yield branch.jaxpr


def _moves_nothing(before: Any, after: Any) -> bool:
    if before.dtype != after.dtype or before.size != after.size:
        return False
    return [extent for extent in before.shape if extent != 1] == [extent for extent in after.shape if extent != 1]


def _find_readers(values: list[_Value]) -> None:
    """The kernels in which each value is computed if all values with several readers are written."""
    for value in reversed(values):
        if not value.users and not value.is_result:
            continue  # nobody reads it
        for operand in value.operands:
            operand.users.append(value)
        own = {value: {value: 1}}
        if not value.is_loop:
            value.emitted, value.is_kernel = own, True
            continue
        readers, value.is_written = _readers(value)
        if value.is_written and (value.is_shy or value.is_costly) or value.is_costly and len(readers) > 1 or not readers:
            value.emitted, value.is_kernel = own, True
        elif len(value.users) + value.is_result > 1 and value.name not in _VIEWS:
            value.emitted, value.readers = own, readers
        else:
            value.emitted = readers | own if value.is_written else readers


def _readers(value: _Value) -> tuple[dict[_Value, dict[_Value, int]], bool]:
    """The kernels that would compute a value, with the ways it is indexed in; and whether it is in memory anyway."""
    users, written = value.users, value.is_result
    readers: dict[_Value, dict[_Value, int]] = {}
    for user in users:
        if not user.is_loop or (value.is_costly and user.size > value.size and user.name not in _REDUCTIONS):
            written = True
            continue
        same = user.shape == value.shape or user.name == "transpose"
        if same and len(users) == 1:
            readers = user.emitted  # shared: nobody changes it
            break
        for kernel, ways in user.emitted.items():
            mine = readers.setdefault(kernel, {})
            if same:
                mine.update(ways)
            else:
                mine[user] = sum(ways.values())
    for kernel, ways in readers.items():
        if sum(ways.values()) > _MOST_COPIES and value.name != "broadcast_in_dim":
            readers = {each: of for each, of in readers.items() if each is not kernel}
            written = True
    return readers, written


def _copies(readers: dict[_Value, dict[_Value, int]]) -> int:
    return sum(min(_MOST_COPIES, sum(ways.values())) for ways in readers.values())


def _choose(values: list[_Value], found: dict[Any, str]) -> None:
    """Put barriers where they pay, from the arguments on."""
    alive = [value for value in values if value.users or value.is_result]
    blows_up = _emitted(alive) > _BLOW_UP * sum(value.weight for value in alive)
    if not blows_up and not any(value.readers is not None and value.is_written for value in alive):
        return
    for value in alive:
        value.is_charged = False
    for value in alive:
        if not value.is_loop:
            continue
        value.instructions, value.work = _cost(value)
        if value.readers is None or not (blows_up or value.is_written):
            continue
        copies = _copies(value.readers) + value.is_written
        saving = (copies - 1) * value.instructions - (0 if value.is_written else _KERNEL)
        if saving < (_SAVING_IF_WRITTEN if value.is_written else _SAVING) or value.instructions < 2:
            continue
        traffic = _traffic(value) * (len(value.readers) + (not value.is_written))
        if (copies - 1) * value.work < traffic and saving < _HUGE_SAVING:
            continue
        found[value.var] = (f"{copies} kernels would compute these {value.instructions:.4g} instructions "
                            f"({value.name} of {value.size} elements)")
        value.is_kernel = True


def _emitted(values: list[_Value]) -> float:
    """About how many instructions XLA emits without barriers."""
    total = 0.0
    for value in values:
        value.unbounded = value.weight + sum(
            operand.unbounded for operand in value.operands if not operand.is_kernel and not _charged(operand))
        if value.is_kernel or value.is_written or value.is_result:
            total += value.unbounded
    return total


def _charged(value: _Value) -> bool:
    """Whether another user in the same kernel has paid for a value already."""
    if value.readers is None or len(value.readers) > 1 or value.is_written or _copies(value.readers) > 1:
        return False
    before, value.is_charged = value.is_charged, True
    return before


def _cost(value: _Value) -> tuple[float, float]:
    """The instructions that compute a value from what is in memory, and their work for each of its elements."""
    instructions, work = float(value.weight), value.run * value.size
    for operand in value.operands:
        if not operand.is_kernel and not _charged(operand):
            instructions += operand.instructions
            work += operand.work * operand.size
    return instructions, work / max(1, value.size)


def _traffic(value: _Value) -> float:
    """What writing or reading one element costs: caches are fast, memory is slow."""
    bytes_ = value.size * getattr(value.var.aval.dtype, "itemsize", 4)
    return 0.5 if bytes_ < 32e3 else 1.5 if bytes_ < 512e3 else 4.0 if bytes_ < 8e6 else 8.0
