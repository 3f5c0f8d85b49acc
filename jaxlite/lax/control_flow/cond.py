"""Branches: `cond`, `switch` and `platform_dependent`.

The primitive `cond` has the param `branches`. Operand 0 is the index of the branch; the others are the operands of all
branches: first the values that any branch closes over, then the user's operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.core import config, dtypes, source
from jaxlite.core.aval import ShapedArray, shaped_array, typematch, varying
from jaxlite.core.errors import JaxprTypeError
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import ClosedJaxpr, Var, no_effects
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import high, varying_inputs, varying_outputs
from jaxlite.core.tracing import Tracer, is_eager
from jaxlite.core.tree import keystr, leaf_paths, tree_differences, tree_flatten, tree_unflatten
from jaxlite.core.values import aval_of, is_array_like
from jaxlite.lax.control_flow.bodies import (
    Body,
    as_result,
    cast_text,
    check_operands,
    check_same_way,
    difference_text,
    flatten_values,
    runs_in_python,
    trace_body,
    type_text,
)
from jaxlite.lax.elementwise import clamp, ne
from jaxlite.lax.shaping import convert

cond_p = Primitive("cond", multiple_results=True, memoise=False)
platform_index_p = Primitive("platform_index")

_i32 = np.dtype(np.int32)
cond_p.program_inputs = lambda params: [shaped_array((), _i32, False), *params["branches"][0].in_avals]
_absent: Any = type("absent", (), {"__repr__": lambda self: "<absent>"})()


@cond_p.def_effectful_abstract_eval
def _cond_aval(index, *avals, branches: tuple[ClosedJaxpr, ...], branches_platforms=None):
    effects = no_effects
    for branch in branches:
        check_operands("cond", avals, branch.in_avals)
        effects |= branch.effects
    for leaves in zip(*(branch.out_avals for branch in branches), strict=True):
        if not all(typematch(leaf, leaves[0]) for leaf in leaves):
            raise JaxprTypeError(f"the branches of cond have different types: {', '.join(map(format, leaves))}")
    return list(branches[0].out_avals), effects  # the first branch, which is that for False, decides on weak types


@cond_p.def_stage
def _stage(trace, args: Sequence[Any], params: dict[str, Any]):
    """Inside `shard_map`: what devices choose for themselves differs between them, and so do results of branches of which one's
    does."""
    if config.check_vma.value:
        branches, chosen = params["branches"], aval_of(args[0]).vma
        # What is cast inside a branch is summed there when it is transposed, and not all devices would come.
        inputs = [varying(leaves[0], chosen.union(*[leaf.vma for leaf in leaves])) for leaves in zip(
            *(branch.in_avals for branch in branches), map(aval_of, args[1:]), strict=True)]
        branches = [varying_inputs(branch, inputs) for branch in branches]
        missing = [aval.vma - aval_of(arg).vma for arg, aval in zip(args[1:], inputs, strict=True)]
        args = [args[0], *trace.cast(args[1:], missing)]
        if chosen:
            check_same_way("cond", chosen, [branch.jaxpr for branch in branches])
        wanted = [chosen.union(*[leaf.vma for leaf in leaves])
                  for leaves in zip(*(branch.out_avals for branch in branches), strict=True)]
        params = {**params, "branches": tuple(
            branch if all(map(_varies, branch.out_avals, wanted)) else ClosedJaxpr(varying_outputs(branch.jaxpr, wanted), [])
            for branch in branches)}
    return trace.record(cond_p, args, params)


def _varies(aval, vma: frozenset[Any]) -> bool:
    return aval.vma >= vma


@boundary
def cond(pred, true_fun: Callable, false_fun: Callable, *operands, operand=_absent):
    """Run one of two functions: `true_fun(*operands) if pred else false_fun(*operands)`.

    Both are traced; the compiled program runs one.

    Args:
      pred: a scalar bool, or a scalar number that is compared with zero.
      true_fun, false_fun: functions of the operands, with results of one tree and equal shapes and dtypes.
      operands: pytrees of arrays and scalars.
      operand: one operand, given by name.

    Returns: the chosen function's result.
    Raises: TypeError that names the leaf in which the results of the two differ in type.

    >>> from jaxlite import lax
    >>> lax.cond(True, lambda x: lax.add(x, 1.0), lambda x: lax.neg(x), 2.0)
    Array(3., dtype=float32, weak_type=True)
    """
    operands = _one_operand(operand, operands)
    if not callable(true_fun) and callable(false_fun) and len(operands) == 2 and callable(operands[1]):
        # The older form: an operand for each branch.
        on_true, on_false, operands = false_fun, operands[1], (true_fun, operands[0])
        return cond(pred, _takes(on_true, 0), _takes(on_false, 1), *operands)
    if not (callable(true_fun) and callable(false_fun)):
        raise TypeError("lax.cond: true_fun and false_fun arguments should be callable.")
    if pred is None:
        raise TypeError("cond predicate is None")
    aval = _scalar_aval(pred, "Pred must be a scalar")
    kind = dtypes.kind(aval.dtype)
    if kind not in "biuf":
        raise TypeError(f"Pred type must be either boolean or number, got {aval.dtype}.")
    if runs_in_python() and not isinstance(pred, Tracer):
        return true_fun(*operands) if pred else false_fun(*operands)
    if isinstance(pred, _HOST_SCALARS):
        index: Any = np.int32(bool(pred))
    else:
        index = convert(pred if kind == "b" else ne(pred, np.zeros((), aval.dtype)[()]), _i32, False)
    return _choose("cond", index, (true_fun, false_fun), ("true_fun", "false_fun"), operands)


_HOST_SCALARS = (bool, int, float, np.generic)


def _takes(fun: Callable, position: int) -> Callable:
    return lambda *operands: fun(operands[position])


def _one_operand(operand, operands: tuple) -> tuple:
    if operand is _absent:
        return operands
    if operands:
        raise TypeError("if 'operand' keyword is passed then no positional operands can be passed, got "
                        f"operand={operand!r} and positional operands {operands!r}")
    return (operand,)


def _scalar_aval(value, what: str) -> ShapedArray:
    if not is_array_like(value) and not hasattr(value, "__jax_array__"):
        raise TypeError(f"{what}, got {value!r} of type {type(value)}")
    aval = aval_of(value)
    if aval.shape:
        raise TypeError(f"{what}, got {value} of shape {aval.shape}.")
    return aval


@boundary
def switch(index, branches: Sequence[Callable], *operands, operand=_absent):
    """Run one of several functions: `branches[clip(index, 0, len(branches) - 1)](*operands)`.

    Args:
      index: a scalar integer; out of range, the nearest branch is taken.
      branches: functions of the operands, with results of one tree and equal shapes and dtypes.
      operands: pytrees of arrays and scalars.
      operand: one operand, given by name.

    Returns: the chosen function's result.
    Raises: TypeError that names the leaf in which the results differ in type; ValueError for no branches.

    >>> from jaxlite import lax
    >>> lax.switch(5, [lambda x: x, lambda x: lax.neg(x)], 2.0)
    Array(-2., dtype=float32, weak_type=True)
    """
    operands = _one_operand(operand, operands)
    branches = tuple(branches)
    if not all(map(callable, branches)):
        raise TypeError("lax.switch: branches argument should be a sequence of callables.")
    aval = _scalar_aval(index, "Branch index must be scalar")
    if dtypes.kind(aval.dtype) not in "iu":
        raise TypeError(f"Index type must be an integer, got {index} as {aval.dtype}")
    if not branches:
        raise ValueError("Empty branch sequence")
    if len(branches) == 1:
        return branches[0](*operands)
    last = len(branches) - 1
    if runs_in_python() and not isinstance(index, Tracer):
        return branches[min(max(int(index), 0), last)](*operands)
    if is_eager() and isinstance(index, _HOST_SCALARS):
        index = np.int32(min(max(int(index), 0), last))
    else:
        wide = aval.dtype.itemsize >= 4 and aval.dtype != _i32  # the conversion to int32 may wrap: clip first
        if not wide:
            index = convert(index, _i32, False)
        dtype = aval.dtype if wide else _i32
        index = convert(clamp(np.zeros((), dtype)[()], index, np.asarray(last, dtype)[()]), _i32, False)
    return _choose("switch", index, branches, tuple(f"branch {number}" for number in range(len(branches))), operands)


# --- tracing the branches ----------------------------------------------------------------------------


def _choose(what: str, index, funs: Sequence[Callable], names: Sequence[str], operands: tuple, **params):
    leaves, _, avals = flatten_values(f"the operands of {what}", operands)
    _, in_tree = tree_flatten((operands, {}))
    bodies = [trace_body(fun, in_tree, avals, what) for fun in funs]
    for other in range(1, len(bodies)):
        _check_same(what, *((names[at], funs[at], bodies[at]) for at in (0, other)))
    branches, consts, forwarded = bodies[0].derive(_joined, *bodies[1:])
    if what == "cond":
        branches = branches[::-1]  # index 0 is False
    values = [*consts, *leaves]
    if branches[0].jaxpr.outvars or not is_eager() or any(branch.effects for branch in branches):
        outs = iter(cond_p.bind(index, *values, branches=branches, **params))
    else:
        outs = iter(())
    results = [next(outs) if source is None else as_result(values[source]) for source in forwarded]
    return tree_unflatten(bodies[0].out_tree, results)


def _joined(*bodies: Body) -> tuple[tuple[ClosedJaxpr, ...], list[Any], tuple[int | None, ...]]:
    """Branches that all take the same operands: the consts of all, then the operands.

    Returns: the param `branches`; the consts; and for each result the operand that it is in all branches, or None.
    """
    positions: dict[int, int] = {}
    consts: list[Any] = []
    for body in bodies:
        for const in body.consts:
            if positions.setdefault(id(const), len(consts)) == len(consts):
                consts.append(const)
    avals = [aval_of(const) for const in consts]
    inputs = []
    for body in bodies:
        own = {positions[id(const)]: var for const, var in zip(body.consts, body.jaxpr.constvars, strict=True)}
        inputs.append([*(own.get(at) or (high().new_var(aval, consts[at]) if aval.is_high else Var(aval))
                         for at, aval in enumerate(avals)), *body.jaxpr.invars])
    sources = []
    for body, invars in zip(bodies, inputs, strict=True):
        position = {var: at for at, var in enumerate(invars)}
        sources.append([None if hasattr(atom, "val") else position.get(atom) for atom in body.jaxpr.outvars])
    forwarded = tuple(each[0] if all(source == each[0] for source in each) else None
                      for each in zip(*sources, strict=True))
    branches = tuple(
        ClosedJaxpr(body.jaxpr.replace(
            constvars=[], invars=invars,
            outvars=[atom for atom, source in zip(body.jaxpr.outvars, forwarded, strict=True) if source is None]), [])
        for body, invars in zip(bodies, inputs, strict=True))
    return branches, consts, forwarded


def _check_same(what: str, one: tuple[str, Callable, Body], other: tuple[str, Callable, Body]) -> None:
    """Raises: TypeError unless two branches give the same tree and types."""
    (name1, fun1, body1), (name2, fun2, body2) = one, other
    if body1.out_tree == body2.out_tree:
        if all(map(typematch, body1.out_avals, body2.out_avals)):
            return
        problem = f"{what} branches must have equal output types but they differ"
        remedy = "all output types match"
        paths = leaf_paths(body1.out_tree)
        differences = [
            f"the output of {name1}{_at(path)} has type {type_text(a)} but the corresponding output of {name2} has "
            f"type {type_text(b)}, so {difference_text(a, b)}"
            + (cast_text(a, b, f" to the output of {name1}") or cast_text(b, a, f" to the output of {name2}"))
            for path, a, b in zip(paths, body1.out_avals, body2.out_avals, strict=True) if not typematch(a, b)]
    else:
        problem = f"{what} branch outputs must have the same pytree structure, but they differ"
        remedy = "they have the same pytree structure"
        differences = [f"the output of {name1}{_at(path)} is {a} but that of {name2} is {b}, so {why}"
                       for path, a, b, why in tree_differences().equality_errors(body1.out_tree, body2.out_tree)]
    listing = "\n".join(f"  * {each}" for each in differences)
    raise TypeError(f"{problem}:\n\n{name1} is {source.function_location(fun1)}\n"
                    f"{name2} is {source.function_location(fun2)}\n\n{listing}\n\n"
                    f"Revise {name1} and/or {name2} so that {remedy}.")


def _at(path) -> str:
    return f" at path {keystr(path)}" if path else ""


# --- by platform -------------------------------------------------------------------------------------


@platform_index_p.def_abstract_eval
def _platform_index_aval(*, platforms) -> ShapedArray:
    return shaped_array((), _i32, False)


_PLATFORMS = {"cpu": ("cpu",), "tpu": ("tpu",), "cuda": ("cuda",), "rocm": ("rocm",), "gpu": ("cuda", "rocm")}


def platform_dependent(*args, default: Callable | None = None, **per_platform: Callable):
    """Run the function given for the platform that the program is compiled for.

    Args:
      args: pytrees of arrays and scalars, passed to the function.
      default: the function for platforms without one of their own.
      per_platform: functions by platform: `cpu`, `gpu`, `cuda`, `rocm`, `tpu`.

    Returns: the function's result; all functions give one tree and equal types.

    >>> from jaxlite import lax
    >>> lax.platform_dependent(1, cpu=lambda x: lax.add(x, 1), default=lambda x: x)
    Array(2, dtype=int32, weak_type=True)
    """
    funs = list(per_platform.values())
    platforms: list[Any] = [_PLATFORMS.get(name, (name,)) for name in per_platform]
    if default is not None:
        funs.append(default)
        platforms.append(None)
    if not funs:
        raise ValueError("platform_dependent: no function was given")
    index = platform_index_p.bind(platforms=tuple(platforms))
    names = [f"the function for {name}" for name in per_platform] + ["default"]
    return _choose("platform_dependent", index, funs, names, args, branches_platforms=tuple(platforms))
