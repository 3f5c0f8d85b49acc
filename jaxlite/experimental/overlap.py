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
from jaxlite.lax.shaping import optimization_barrier_p

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
      exclude_argnames: without `enforce`, arguments that an enclosing order need not wait for; a hint that is not used.
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
        return jit(f)

    @source.wraps(f)
    def ordered(*args: Any, **kwargs: Any) -> Any:
        jaxpr, consts, leaves, (_, out_tree) = trace_call("program_order", f, args, kwargs)
        return out_tree.unflatten(_in_order(jaxpr, consts, leaves, strict_in, strict_out))

    return ordered


def _in_order(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any], strict_in: bool, strict_out: bool) -> list[Any]:
    """Run a program; each equation's operands come out of a barrier together with the results of the equation before."""
    env: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))

    def hold(atoms: Sequence[Any]) -> None:
        held = list(dict.fromkeys(atom for atom in atoms if isinstance(atom, Var) and type(atom.aval) is ShapedArray))
        if held:
            env.update(zip(held, optimization_barrier_p.bind(*[env[var] for var in held]), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if type(atom) is Literal else env[atom]

    if strict_in:
        hold(jaxpr.invars)
    before: Sequence[Any] = ()
    for eqn in jaxpr.eqns:
        if before:
            hold([*before, *eqn.invars])
        outs = eqn.primitive.bind(*map(read, eqn.invars), **eqn.params)
        env.update(zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs], strict=True))
        before = eqn.outvars
    if strict_out:
        hold(jaxpr.outvars)
    return [read(atom) for atom in jaxpr.outvars]
