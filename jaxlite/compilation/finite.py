"""The options `debug_nans` and `debug_infs`: check results, and find the operation that produced the first NaN or infinity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.compilation.program import Program
from jaxlite.core import array as arrays
from jaxlite.core import config, dtypes
from jaxlite.core.jaxpr import Jaxpr, JaxprEqn, Literal, eval_jaxpr
from jaxlite.core.lazy import loader
from lowering import xla
from lowering.rules import decomposed

_shards = loader("jaxlite.transforms.shard_checks")


def check_finite(program: Program, outs: Sequence[Any], leaves: Sequence[Any]) -> None:
    """Raises FloatingPointError if a result holds what an option forbids: with the first operation that made it, its line
    and its operands, and the arguments that had it before."""
    kind = _forbidden(outs)
    if kind is None:
        return
    what = f"invalid value ({kind}) encountered in"
    if any(type(leaf) is xla.ArrayImpl and leaf.is_deleted() for leaf in leaves):
        raise FloatingPointError(f"{what} {program.name}; its arguments were donated, so the operation cannot be looked for")
    has = _FORBIDDEN[kind]
    given = [program.debug_info.arg_name(index) for index, leaf in enumerate(leaves) if _is_array(leaf) and has(leaf)]
    origin = f"; the argument{'s' * (len(given) > 1)} {', '.join(given)} had it already" if given else ""
    with config.debug_nans(False), config.debug_infs(False):
        args = [_typed(leaf, aval) for leaf, aval in zip(leaves, program.closed.in_avals, strict=True)]
        found = _first(program.closed.jaxpr, program.closed.consts, args, has)
    if found is None:
        raise FloatingPointError(f"{what} {program.name}{origin}")
    eqn, values, step = found
    operands = ", ".join(_shown(value, has(value), kind) for value in values if _is_array(value))
    raise FloatingPointError(
        f"{what} {eqn.params.get('name', eqn.primitive.name)} at {eqn.source_line}{step}; found in the result of {program.name}"
        f"{origin}" + (f"\nIts operands are {operands}." if operands else ""))


def check_values(name: str, values: Sequence[Any]) -> None:
    """Raises FloatingPointError if values from outside, which the named function takes, hold what an option forbids."""
    kind = _forbidden(values)
    if kind is not None:
        raise FloatingPointError(f"invalid value ({kind}) encountered in {name}; the data that it was given hold it")


def _forbidden(values: Sequence[Any]) -> str | None:
    """The kind of number that an option forbids and some of the values have."""
    checked = [name for name, option in (("nan", config.debug_nans), ("inf", config.debug_infs)) if option.value]
    return next((name for value in values for name in checked if _FORBIDDEN[name](value)), None)


def _typed(value: Any, aval: Any) -> Any:
    """A Python scalar as one of NumPy's, of its type in the program."""
    return np.asarray(value, aval.dtype)[()] if type(value) in (bool, int, float, complex) else value


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") or isinstance(value, (float, complex))


def _shown(value: Any, bad: bool, kind: str) -> str:
    array = np.asarray(value) if not hasattr(value, "aval") else arrays.host_value(value)
    text = f"{dtypes.short_name(array.dtype)}[{','.join(map(str, array.shape))}]"
    if array.size == 1:
        return f"{text} {array.item()}"
    return f"{text} with {kind}" if bad else text


def _first(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any], has: Callable[[Any], bool]) -> Any:
    """Run a program operation by operation: the first equation that gives what `has` finds, its operands, and a text that
    says in which step of which loop; None if there is none."""
    env = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))
    for eqn in jaxpr.eqns:
        values = [_typed(atom.val, atom.aval) if type(atom) is Literal else env[atom] for atom in eqn.invars]
        outs = eqn.primitive.bind(*values, **eqn.params)
        outs = outs if eqn.primitive.multiple_results else [outs]
        if any(map(has, outs)):
            return _inside(eqn, values, has) or (eqn, values, "")
        env.update(zip(eqn.outvars, outs, strict=True))
    return None


def called(eqn: JaxprEqn) -> Jaxpr | None:
    """The program of a call, which takes the operands and gives the results as they are; None for other equations."""
    if eqn.primitive.name in ("jit", "remat2", "nest", "custom_jvp_call", "custom_vjp_call"):
        return eqn.params["jaxpr" if "jaxpr" in eqn.params else "call_jaxpr"].jaxpr
    return None


def _inside(eqn: JaxprEqn, values: list[Any], has: Callable[[Any], bool]) -> Any:
    """The same in the program of a call, a branch, or a loop, step by step."""
    name, params = eqn.primitive.name, eqn.params
    call = called(eqn)
    if call is not None:
        return _first(call, [], values, has)
    if name == "cond":
        return _first(params["branches"][int(values[0])].jaxpr, [], values[1:], has)
    if name == "scan":
        jaxpr, fixed, split = params["jaxpr"].jaxpr, params["num_consts"], params["num_consts"] + params["num_carry"]
        carry = values[fixed:split]
        order = range(params["length"])
        for step in reversed(order) if params["reverse"] else order:
            args = [*values[:fixed], *carry, *[each[step] for each in values[split:]]]
            found = _first(jaxpr, [], args, has)
            if found:
                return (*found[:2], found[2] or f", in step {step} of the loop")
            carry = eval_jaxpr(jaxpr, [], *args)[:params["num_carry"]]
    if name == "shard_map":
        found = _shards().first_bad(eqn, values, "nan" if has is _has_nan else "inf")
        return found and (found[0], [], found[1])
    if name == "while":
        test, body = params["cond_jaxpr"].jaxpr, params["body_jaxpr"].jaxpr
        if test.outvars[0].aval.ndim:  # of examples that stop at different times
            return _first(decomposed(eqn).jaxpr, [], values, has)
        first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        carry, step = values[second:], 0
        while bool(eval_jaxpr(test, [], *values[:first], *carry)[0]):
            args = [*values[first:second], *carry]
            found = _first(body, [], args, has)
            if found:
                return (*found[:2], found[2] or f", in step {step} of the loop")
            carry, step = eval_jaxpr(body, [], *args), step + 1
    return None


def _values(array: Any) -> np.ndarray:
    return arrays.host_value(array) if isinstance(array, xla.ArrayImpl) else np.asarray(array)


def _has_nan(array: Any) -> bool:
    if not dtypes.issubdtype(getattr(array, "dtype", type(array)), np.inexact):
        return False
    value = _values(array)
    return bool((value != value).any())


def _has_inf(array: Any) -> bool:
    return dtypes.issubdtype(getattr(array, "dtype", type(array)), np.inexact) and bool(np.isinf(_values(array)).any())


_FORBIDDEN = {"nan": _has_nan, "inf": _has_inf}
