"""`program_order`: operations that a compiler runs in the order in which they were written."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.compilation.jit import jit
from jaxlite.compilation.program import trace_call
from jaxlite.core import source
from jaxlite.core.aval import ShapedArray
from jaxlite.core.jaxpr import Jaxpr, Literal, Var
from jaxlite.core.primitive import Primitive
from jaxlite.core.tracing import is_eager
from jaxlite.core.tree import tree_map
from jaxlite.lax.shaping import optimization_barrier_p
from jaxlite.traces.decompose import decomposes, rules_by_parts

__all__ = ["program_order"]
__dir__ = lambda: __all__


def program_order(f: Callable[..., Any] | None = None, *, enforce: bool, strict_in_out: bool | tuple[bool, bool] = False,
                  exclude_argnames: str | Sequence[str] | None = None) -> Callable[..., Any]:
    """A function whose operations run in their order, each after what the one before it computes; or a decorator.

    The order is kept by optimization barriers, which keep the compiler from fusing the operations too. So do derivatives and
    batches of the function. A call of a compiled function counts as one operation.

    Args:
      f: a function of pytrees of arrays.
      enforce: whether to keep the order. If not, the call of the function is one operation where it stands, and inside of it
        the compiler chooses.
      strict_in_out: whether all arguments are there before the first operation, and all results at once; a pair for the two.
      exclude_argnames: without `enforce`, arguments that an enclosing order does not hold back: they may come late, or early.
    Raises: ValueError for options that do not go together, and for names that are no parameters.

    >>> import jaxlite as jax, jaxlite.numpy as jnp
    >>> in_order = program_order(lambda x, y: jnp.sin(x) * jnp.cos(y), enforce=True)
    >>> jax.jit(in_order).lower(1.0, 2.0).as_text().count("optimization_barrier")
    2
    """
    if f is None:
        return lambda f: program_order(f, enforce=enforce, strict_in_out=strict_in_out, exclude_argnames=exclude_argnames)
    strict_in, strict_out = strict_in_out if isinstance(strict_in_out, tuple) else (strict_in_out,) * 2
    if enforce and exclude_argnames is not None:
        raise ValueError("exclude_argnames cannot be used with enforce=True.")
    if not enforce and (strict_in or strict_out):
        raise ValueError(f"strict_in_out={strict_in_out} cannot be used with enforce=False")
    excluded = {exclude_argnames} if isinstance(exclude_argnames, str) else set(exclude_argnames or ())
    if unknown := excluded - set(inspect.signature(f).parameters if excluded else ()):
        raise ValueError(f"program_order: exclude_argnames has {unknown}, which are no parameters of {f}")
    if not enforce:
        return _with_free_arguments(f, excluded) if excluded else jit(f)

    @source.wraps(f)
    def ordered(*args: Any, **kwargs: Any) -> Any:
        jaxpr, consts, leaves, (_, out_tree) = trace_call("program_order", f, args, kwargs)
        return out_tree.unflatten(_in_order(jaxpr, consts, leaves, strict_in, strict_out))

    return ordered


# What is excluded from an order: the value itself, in a program. What an equation of this gives is not held back.
unordered_p = Primitive("unordered")
unordered_p.def_abstract_eval(lambda x: x)
decomposes(unordered_p)(lambda x: x)
rules_by_parts(unordered_p)


def _with_free_arguments(f: Callable[..., Any], names: set[str]) -> Callable[..., Any]:
    jitted, signature = jit(f), inspect.signature(f)

    @source.wraps(f)
    def called(*args: Any, **kwargs: Any) -> Any:
        if is_eager():
            return jitted(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.arguments |= {name: tree_map(unordered_p.bind, bound.arguments[name]) for name in names & set(bound.arguments)}
        return jitted(*bound.args, **bound.kwargs)

    return called


def _in_order(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any], strict_in: bool, strict_out: bool) -> list[Any]:
    """Run a program; each equation's operands come out of a barrier together with the results of the equation before."""
    env: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))
    free = {out for eqn in jaxpr.eqns if eqn.primitive is unordered_p for out in eqn.outvars}

    def hold(atoms: Sequence[Any]) -> None:
        held = list(dict.fromkeys(
            atom for atom in atoms if isinstance(atom, Var) and type(atom.aval) is ShapedArray and atom not in free))
        if held:
            env.update(zip(held, optimization_barrier_p.bind(*[env[var] for var in held]), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if type(atom) is Literal else env[atom]

    if strict_in:
        hold(jaxpr.invars)
    before: Sequence[Any] = ()
    for eqn in jaxpr.eqns:
        if eqn.primitive is unordered_p:
            env[eqn.outvars[0]] = read(eqn.invars[0])
            continue
        if before:
            hold([*before, *eqn.invars])
        outs = eqn.primitive.bind(*map(read, eqn.invars), **eqn.params)
        env.update(zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs], strict=True))
        before = eqn.outvars
    if strict_out:
        hold(jaxpr.outvars)
    return [read(atom) for atom in jaxpr.outvars]
