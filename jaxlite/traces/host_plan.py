"""Plans: how NumPy runs the program of an eager operation with the same bits as XLA.

A plan is a list of steps, one per equation, whose functions are in `jaxlite.traces.host_rules`. Equal bits per equation are
not enough: XLA combines float operations (a product and a sum, a conversion and its inverse, a division by a constant), and
then rounds once where NumPy rounds twice. So a program has at most one operation that rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite.compilation.dispatch import says_shardings
from jaxlite.core import array as arrays
from jaxlite.core import dtypes
from jaxlite.core.jaxpr import ClosedJaxpr, Literal
from jaxlite.traces.host_rules import CHOICES, MAKERS, MOVED, ROUNDED, ROUNDINGS, VIEWS, WIDE, Differs, Run, check_no_nan
from lowering import xla

_CALLS = 256  # of one signature before it is compiled: as many cost about half of what a compile does
_MOST = 1 << 23  # bytes that these calls may read and write: as many cost less than most compiles
_LONGEST = 40  # equations: a compiled program of many is faster by more


class Plan:
    """How NumPy runs a program: its steps, and for how many calls more it does."""

    __slots__ = ("calls_left", "_jaxpr", "_consts", "_steps")

    def __init__(self, jaxpr: Any, consts: Sequence[Any], steps: list[Any] | None, calls: int):
        self.calls_left = 0 if steps is None else calls
        self._jaxpr, self._consts, self._steps = jaxpr, consts, steps or []

    def answer(self, leaves: Sequence[Any]) -> list[Any]:
        """The results of a call. Raises: `Differs`, or what NumPy raises."""
        with np.errstate(all="ignore"):
            outs = self.run([_host(leaf, var.aval) for leaf, var in zip(leaves, self._jaxpr.invars, strict=True)])
            for out in outs:
                if out.dtype == dtypes.bfloat16:
                    check_no_nan(out)  # XLA:CPU moves some as float32, and back as another NaN
        return outs

    def run(self, args: Sequence[Any]) -> list[Any]:
        """The results for arrays of NumPy."""
        jaxpr = self._jaxpr
        env: dict[Any, Any] = dict(zip(jaxpr.invars, args, strict=True))
        for var, const in zip(jaxpr.constvars, self._consts, strict=True):
            env[var] = _host(const, var.aval)
        for operands, outvars, run, several in self._steps:
            outs = run(*[atom if type(atom) is np.ndarray else env[atom] for atom in operands])
            for var, out in zip(outvars, outs if several else (outs,), strict=True):
                out = np.asarray(out)
                if out.dtype != var.aval.dtype or out.shape != var.aval.shape:
                    raise TypeError(f"NumPy gives {out.dtype}{out.shape} for {var.aval}")
                env[var] = out
        return [_constant(atom) if type(atom) is Literal else env[atom] for atom in jaxpr.outvars]


def _host(leaf: Any, aval: Any) -> np.ndarray:
    if type(leaf) is xla.ArrayImpl:
        if leaf.is_deleted() or arrays.is_spread(leaf):
            raise Differs
        # Not `host_value`: what it keeps with the array would stand in the way of its donation.
        return xla.to_numpy(leaf) if leaf._npy_value is None else leaf._npy_value
    return arrays.as_host_value(leaf, aval)


def _constant(literal: Literal) -> np.ndarray:
    return np.asarray(literal.val).astype(literal.aval.dtype)


def make_plan(closed: ClosedJaxpr) -> Plan:
    """A plan for a program, with no calls left if NumPy is not to run it."""
    jaxpr = closed.jaxpr
    calls = 0 if jaxpr.effects or not _has_known_types(jaxpr) else min(_CALLS, _MOST // (_bytes(jaxpr) or 1))
    return Plan(jaxpr, closed.consts, _steps_of(jaxpr) if calls and _is_exact(jaxpr) else None, calls)


def _has_known_types(jaxpr: Any) -> bool:
    """Whether it is short, and all types are among those that NumPy has."""
    return len(jaxpr.eqns) <= _LONGEST and all([
        getattr(each.aval, "dtype", None) in MOVED for each in (
            *jaxpr.constvars, *jaxpr.invars, *jaxpr.outvars, *[var for eqn in jaxpr.eqns for var in eqn.outvars])]) \
        and all([dtypes.canonicalize_dtype(each.aval.dtype) == each.aval.dtype for each in jaxpr.outvars])  # put as they are


def _bytes(jaxpr: Any) -> int:
    """The bytes that a call reads and writes. Taking a part of an array does not read all of it."""
    touched = [*jaxpr.outvars]
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "gather":
            touched += [*eqn.invars[1:], *eqn.outvars]
        elif eqn.primitive.name not in VIEWS:
            touched += [*eqn.invars, *eqn.outvars]
    return sum([atom.aval.size * atom.aval.dtype.itemsize for atom in touched])


def _is_exact(jaxpr: Any) -> bool:
    """Whether XLA has nothing to merge: no operation that rounds meets another of floats, or a constant to simplify with."""
    roundings, choices, widenings = [], 0, 0
    varying = set(jaxpr.invars)  # without what it closes over: small arrays become constants of the module
    for eqn in jaxpr.eqns:
        varies = [type(atom) is not Literal and atom in varying for atom in eqn.invars]
        if any(varies):
            varying.update(eqn.outvars)
        name = eqn.primitive.name
        dtype = eqn.outvars[0].aval.dtype if eqn.outvars else None
        if name == "convert_element_type" and dtype in ROUNDED and (given := eqn.invars[0].aval.dtype) in ROUNDED:
            if given not in WIDE and dtype in WIDE or given == np.float32 and dtype == np.float64:
                widenings += 1
            elif given != dtype:
                roundings.append(dtype)
        elif dtype in ROUNDED and name in ROUNDINGS:
            roundings.append(dtype)
            if not all([each for atom, each in zip(eqn.invars, varies, strict=True) if atom.aval.dtype in ROUNDED]):
                return False
            if name == "div" and not _division(jaxpr, eqn):
                return False
        elif name in CHOICES:
            choices += any(atom.aval.dtype in ROUNDED for atom in eqn.invars)
        elif name == "jit":
            choices += any(var.aval.dtype in ROUNDED for var in (*eqn.invars, *eqn.outvars))
    if not roundings:
        return True
    return len(roundings) == 1 and not choices and not (widenings and roundings[0] not in WIDE)


def _division(jaxpr: Any, eqn: Any) -> str:
    """The rule for a division of floats. Where few values divide many, XLA multiplies by their reciprocals."""
    divisor, size = eqn.invars[1], eqn.outvars[0].aval.size
    if divisor in jaxpr.invars and divisor.aval.shape == eqn.outvars[0].aval.shape:
        return "div"
    made_by = {var: each for each in jaxpr.eqns for var in each.outvars}
    for name in ("broadcast_in_dim", "convert_element_type"):
        if type(divisor) is not Literal and divisor in made_by and made_by[divisor].primitive.name == name:
            divisor = made_by[divisor].invars[0]
    return "div by few" if divisor in jaxpr.invars and divisor.aval.size < size else ""


def _steps_of(jaxpr: Any) -> list[Any] | None:
    steps = []
    for eqn in jaxpr.eqns:
        primitive, name = eqn.primitive, eqn.primitive.name
        if name == "div" and eqn.outvars[0].aval.dtype in ROUNDED:
            name = _division(jaxpr, eqn)
        maker = (_call if name == "jit" else MAKERS.get(name)) if primitive.is_own else None
        run = None if maker is None else maker(eqn, *[atom.aval for atom in eqn.invars])
        if run is None:
            return None
        operands = [_constant(atom) if type(atom) is Literal else atom for atom in eqn.invars]
        steps.append((operands, eqn.outvars, run, primitive.multiple_results))
    return steps


def _call(eqn: Any, *avals: Any) -> Run | None:
    """A program in a program: nothing in it rounds, so nothing in it could be merged with what is around it."""
    closed = eqn.params["jaxpr"]
    if says_shardings(eqn.params):
        return None
    if any(each.primitive.name == "jit" or var.aval.dtype in ROUNDED and (
            each.primitive.name in ROUNDINGS or each.primitive.name == "convert_element_type")
            for each in closed.jaxpr.eqns for var in each.outvars):
        return None
    plan = make_plan(closed)
    return (lambda *args: plan.run(args)) if plan.calls_left else None
