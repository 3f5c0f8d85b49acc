"""Whether XLA:CPU computes several results of one computation in one kernel.

XLA:CPU emits a kernel for each result: three for a parameter in Adam, each of which reads the gradient. It can merge kernels
of one shape that read the same arrays, but the flag that makes it do so also forbids it to compute a value in several
kernels: what has several readers is written to memory. That makes most programs slower, and those faster that consist of
elementwise operations whose values are either results or have one reader: the updates of an optimizer, a change of coordinates,
the right-hand side of a system of equations.
"""

from __future__ import annotations

from typing import Any

from lowering.passes.operations import ELEMENTWISE, call_body

_LEAST = 8192  # elements of a result, below which to pass several takes as long as it saves
_LEAST_RAGGED = 200_000  # of one whose rows have a rest: a merged kernel goes by rows, which gains in slow memory alone
_SHORT_ROW = 32  # elements of a row up to which its length does not matter
_ROW = 32  # the length of longer rows should be a multiple of this
_MOST = 32  # results of one shape: for each pair of a kernel's arrays the code asks whether they overlap


class _Unfit(Exception):
    """The program has something else than elementwise operations of one type."""


class _Value:
    __slots__ = ("shape", "size", "dtype", "operands", "users", "sources", "is_input", "is_spread_input")

    def __init__(self, aval: Any, name: str = "", operands: tuple[_Value, ...] = ()):
        self.shape, self.size, self.dtype = aval.shape, aval.size, aval.dtype
        self.operands, self.is_input = operands, not name
        self.is_spread_input = name == "broadcast_in_dim" and all(each.is_input for each in operands)
        self.users: set[_Value] = set()
        self.sources: set[_Value] = set()  # inputs and results that it is computed from


def gains(jaxpr: Any) -> bool:
    """Whether a program of elementwise operations has large results of one shape that are computed from the same arrays."""
    if len(jaxpr.outvars) < 2:
        return False
    values: dict[Any, _Value] = {}  # by what computes them: XLA computes equal ones once
    env: dict[Any, _Value] = {var: _Value(var.aval) for var in (*jaxpr.constvars, *jaxpr.invars)}
    try:
        _number(jaxpr, env, values)
        results = {env[atom]: None for atom in jaxpr.outvars if atom in env and not env[atom].is_input and env[atom].size > 1}
    except _Unfit:
        return False
    of_shape: dict[Any, list[_Value]] = {}
    for result in results:
        of_shape.setdefault(result.shape, []).append(result)
    dtypes = {value.dtype for value in values.values() if value.size > 1} - {bool}
    if sum(map(_gain, results)) <= 0 or len(dtypes) > 1 or any(
            result.dtype == bool for result in results) or max(map(len, of_shape.values())) > _MOST:
        return False
    for value in values.values():
        if value.size > 1 and value not in results and len(value.users) > 1 and not value.is_spread_input:
            return False
        for operand in value.operands:
            if operand.size > 1:
                value.sources |= {operand} if operand.is_input or operand in results else operand.sources
    return any(_share_source(each) for each in of_shape.values())


def _number(jaxpr: Any, env: dict[Any, _Value], values: dict[Any, _Value]) -> None:
    """Find the values of a program, in order; `env` has those of its inputs, and gets those of all variables."""
    for eqn in jaxpr.eqns:
        inner = call_body(eqn)
        if inner is not None:
            scope = {var: env[atom] for var, atom in zip(inner.invars, eqn.invars, strict=True) if atom in env}
            _number(inner, scope, values)
            env.update((var, scope[atom]) for var, atom in zip(eqn.outvars, inner.outvars, strict=True) if atom in scope)
            continue
        name = eqn.primitive.name
        if name not in ELEMENTWISE:
            raise _Unfit
        (out,) = eqn.outvars
        operands = tuple([env[atom] for atom in eqn.invars if atom in env])
        literals = tuple([repr(atom) for atom in eqn.invars if atom not in env])
        key = (name, repr(eqn.params), literals, operands)
        value = values.get(key)
        if value is None:
            value = values[key] = _Value(out.aval, name, operands)
            for operand in operands:
                operand.users.add(value)
        env[out] = value


def _gain(result: _Value) -> int:
    """The elements for which a merged kernel is faster, or less those for which it is slower."""
    if result.size < _LEAST:
        return 0
    is_ragged = len(result.shape) > 1 and result.shape[-1] > _SHORT_ROW and result.shape[-1] % _ROW > 0
    return -result.size if is_ragged and result.size < _LEAST_RAGGED else result.size


def _share_source(results: list[_Value]) -> bool:
    seen: set[_Value] = set()
    for result in results:
        if result.sources & seen:
            return True
        seen |= result.sources
    return False
