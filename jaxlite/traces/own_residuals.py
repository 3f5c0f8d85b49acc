"""Rules of a user's for what a recomputation keeps, and how it computes the rest (`custom_vjp.defremat`).

Two identities stand in the program of a checkpoint: what `kept_p` gives is kept, whatever the policy says; `chosen_p` gives its
first operand in the forward pass, and its second one in the recomputation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core.jaxpr import JaxprEqn
from jaxlite.core.primitive import Primitive
from jaxlite.traces.batching import Axis, bring_to_front, def_in_place
from jaxlite.traces.jvp import Zero, instantiate
from jaxlite.traces.saving import Split, keeping

kept_p, chosen_p = Primitive("remat_kept"), Primitive("remat_chosen")


class _Rules:
    """Whether there are any such rules: a checkpoint without a policy looks for kept values only then."""

    exist = False


rules = _Rules()

kept_p.def_abstract_eval(lambda x: x)
kept_p.def_jvp(lambda primals, tangents: (kept_p.bind(*primals), tangents[0]))
kept_p.def_transpose(lambda cotangent, x: [cotangent])
def_in_place(kept_p)
keeping[kept_p] = lambda eqn, policy: Split([eqn], list(eqn.outvars), [])


@chosen_p.def_abstract_eval
def _chosen_type(first: Any, second: Any) -> Any:
    if (first.shape, first.dtype) != (second.shape, second.dtype):
        raise TypeError("the forward rule and the rematerialization rule of a custom_vjp function must give the same output: "
                        f"got {first.str_short()} and {second.str_short()}")
    return first


@chosen_p.def_jvp
def _chosen_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    still = all(type(tangent) is Zero for tangent in tangents)
    return chosen_p.bind(*primals), tangents[0] if still else chosen_p.bind(*map(instantiate, tangents))


chosen_p.def_transpose(lambda cotangent, first, second: [cotangent, None])


@chosen_p.def_batching
def _chosen_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None]) -> Any:
    return chosen_p.bind(*[bring_to_front(arg, dim, axis.size) for arg, dim in zip(args, dims, strict=True)]), 0


def _choose(eqn: JaxprEqn, policy: Callable[..., Any]) -> Split:
    first, second = eqn.invars
    return Split([eqn.replace(invars=[first, first])], [], [eqn.replace(invars=[second, second])])


keeping[chosen_p] = _choose
