"""checkpoint (remat): saves memory by recomputation in reverse mode; policies choose the values to save."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jaxlite.compilation.dispatch import jit_p
from jaxlite.compilation.options import argument_names
from jaxlite.compilation.program import flatten_outputs
from jaxlite.core import dtypes, source
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import DebugInfo, JaxprEqn
from jaxlite.core.staging import hoist_consts, trace_to_jaxpr
from jaxlite.core.tracing import state
from jaxlite.core.tree import tree_flatten, tree_map, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.traces.jvp import tangent_aval
from jaxlite.traces.linearize import linearize_flat
from jaxlite.traces.remat_rules import checkpoint_p, name_p
from jaxlite.traces.saving import Offloadable, Recompute, Saveable


def checkpoint(fun: Callable | None = None, *, prevent_cse: bool = True, policy: Callable[..., Any] | None = None,
               static_argnums: int | tuple[int, ...] = (), static_argnames: str | Iterable[str] = (),
               concrete: bool = False) -> Any:
    """A function whose inner values are recomputed in the backward pass instead of being saved.

    Args:
      prevent_cse: keep the compiler from merging the recomputation with the first computation. Not needed inside `scan`.
      policy: `policy(primitive, *avals, **params)` says which results are kept all the same, also inside loops, branches and
        jitted functions: with a bool, or with one of `jaxlite.ad_checkpoint.Recompute`, `Saveable` and `Offloadable`; see
        `checkpoint_policies`.
      static_argnums, static_argnames: arguments that are not traced.
      concrete: False, which old programs say; the values that the function sees are never concrete.
    """
    if concrete:
        raise NotImplementedError("checkpoint(concrete=True) is not there: name the arguments whose values decide what the "
                                  "function does in static_argnums")
    if fun is None:
        return functools.partial(checkpoint, prevent_cse=prevent_cse, policy=policy, static_argnums=static_argnums,
                                 static_argnames=static_argnames)
    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)

    @source.wraps(fun)
    @boundary
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if any(not -len(args) <= num < len(args) for num in static):
            raise ValueError(f"the static_argnums argument of checkpoint must name positional arguments that are given, but "
                             f"got {static} for {len(args)} arguments")
        fixed = {num % len(args): args[num] for num in static}
        fixed_kwargs = {name: kwargs.pop(name) for name in names if name in kwargs}
        dynamic = tuple(arg for index, arg in enumerate(args) if index not in fixed)
        leaves, tree = tree_flatten((dynamic, kwargs))
        debug = DebugInfo("checkpoint", source.function_location(fun))
        out_tree: Any = None

        def flat(*values: Any) -> list[Any]:
            nonlocal out_tree
            inner, inner_kwargs = tree_unflatten(tree, values)
            full = list(inner)
            for index in sorted(fixed):
                full.insert(index, fixed[index])
            outs, out_tree = flatten_outputs(fun(*full, **inner_kwargs, **fixed_kwargs), debug)
            return outs

        before, state.recomputes = state.recomputes, True
        try:
            jaxpr, consts = trace_to_jaxpr(flat, [aval_of(leaf) for leaf in leaves], debug)
        finally:
            state.recomputes = before
        outs = checkpoint_p.bind(*consts, *leaves, jaxpr=hoist_consts(jaxpr), prevent_cse=prevent_cse, differentiated=False,
                                 policy=policy)
        return tree_unflatten(out_tree, outs)

    return checkpointed


remat = checkpoint


def checkpoint_name(x: Any, name: str) -> Any:
    """x itself, under a name that policies can refer to. Works on pytrees."""
    return tree_map(lambda leaf: name_p.bind(leaf, name=name), x)


checkpoint_name_fwd = checkpoint_name  # JAX 0.12's name for a name of the forward pass alone, as it is here


class checkpoint_policies:
    """Policies: which values `checkpoint` saves for the backward pass."""

    @staticmethod
    def everything_saveable(primitive: Any, *avals: Any, **params: Any) -> bool:
        """Keep all inner values: nothing is computed again."""
        return True

    @staticmethod
    def nothing_saveable(primitive: Any, *avals: Any, **params: Any) -> bool:
        """Keep the inputs alone."""
        return False

    @staticmethod
    def dots_saveable(primitive: Any, *avals: Any, **params: Any) -> bool:
        """Keep the results of matrix products and convolutions."""
        return primitive.name in ("dot_general", "conv_general_dilated")

    checkpoint_dots = dots_saveable

    @staticmethod
    def dots_with_no_batch_dims_saveable(primitive: Any, *avals: Any, **params: Any) -> bool:
        """Keep the results of matrix products without batch axes."""
        return primitive.name == "dot_general" and not params["dimension_numbers"][1][0]

    checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable

    @staticmethod
    def save_only_these_names(*names: str) -> Callable[..., bool]:
        """Keep the values that `checkpoint_name` gave one of these names."""
        wanted = frozenset(names)
        return _remembered("only", wanted, lambda primitive, params: primitive is name_p and params["name"] in wanted)

    @staticmethod
    def save_any_names_but_these(*names: str) -> Callable[..., bool]:
        """Keep the values that have a name, but for these."""
        refused = frozenset(names)
        return _remembered("but", refused, lambda primitive, params: primitive is name_p and params["name"] not in refused)

    @staticmethod
    def save_anything_except_these_names(*names: str) -> Callable[..., bool]:
        """Keep all inner values but for those with these names."""
        refused = frozenset(names)
        return _remembered("except", refused,
                           lambda primitive, params: primitive is not name_p or params["name"] not in refused)

    @staticmethod
    def save_from_both_policies(first: Callable, second: Callable) -> Callable[..., bool]:
        """Keep what one of two policies keeps. Both have to answer with a bool."""

        def both(primitive: Any, *avals: Any, **params: Any) -> bool:
            answers = first(primitive, *avals, **params), second(primitive, *avals, **params)
            if not all(isinstance(answer, bool) for answer in answers):
                raise ValueError(f"The return value of the policies should be a boolean. Got: {answers[0]} and {answers[1]}. "
                                 "Please write a custom policy function directly, rather than using this helper function.")
            return any(answers)

        return both

    @staticmethod
    def save_and_offload_only_these_names(
            *, names_which_can_be_saved: Sequence[str], names_which_can_be_offloaded: Sequence[str], offload_src: str,
            offload_dst: str) -> Callable[..., Any]:
        """Keep the values with some names where they are, and those with some others in another memory.

        Args: kinds of memory, as in `offload_src="device", offload_dst="pinned_host"`.
        Raises: ValueError if a name is among both.
        """
        saved, moved = frozenset(names_which_can_be_saved), frozenset(names_which_can_be_offloaded)
        if saved & moved:
            raise ValueError("The names should be exclusive and should not intersect in `names_which_can_be_saved` and "
                             f"`names_which_can_be_offloaded`. Got names_which_can_be_saved={set(saved)}, "
                             f"names_which_can_be_offloaded={set(moved)} and the intersection={set(saved & moved)}")
        away = Offloadable(offload_src, offload_dst)

        def decide(primitive: Any, params: dict[str, Any]) -> Any:
            name = params["name"] if primitive is name_p else None
            return Saveable if name in saved else away if name in moved else Recompute

        return _remembered("offload", (saved, moved, away), decide)

    @staticmethod
    def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Callable[..., Any]:
        """Keep the results of matrix products without batch axes in another memory, as `("device", "pinned_host")`."""
        away, plain = Offloadable(offload_src, offload_dst), checkpoint_policies.dots_with_no_batch_dims_saveable
        return _remembered("offload dots", away, lambda primitive, params: away if plain(primitive, **params) else Recompute)


@functools.cache
def _policy(kind: str, settings: Any) -> list[Callable]:
    return []


def _remembered(kind: str, settings: Any, decide: Callable[[Any, dict[str, Any]], Any]) -> Callable[..., Any]:
    """One function object for each policy, so that programs with equal policies are equal."""
    made = _policy(kind, settings)
    if not made:
        made.append(lambda primitive, *avals, **params: decide(primitive, params))
    return made[0]


def saved_residuals(f: Callable, *args: Any, **kwargs: Any) -> list[tuple[Any, str]]:
    """The types of the values that reverse mode keeps, and where each comes from."""
    leaves, tree = tree_flatten((args, kwargs))
    debug = DebugInfo("saved_residuals", source.function_location(f))
    found: list[tuple[Any, str]] = []

    def flat(*values: Any) -> Sequence[Any]:
        inner, inner_kwargs = tree_unflatten(tree, values)
        return flatten_outputs(f(*inner, **inner_kwargs), debug)[0]

    nonzero = [tangent_aval(aval_of(leaf)).dtype != dtypes.float0 for leaf in leaves]
    arguments = argument_names(f, tree, None)()

    def outer(*values: Any) -> list[Any]:
        outs, program = linearize_flat(flat, values, nonzero, debug)
        kept = {getattr(residual, "atom", None): aval_of(residual) for residual in program.residuals}
        found.extend((aval_of(residual), "from a constant") for residual in program.residuals if not hasattr(residual, "atom"))
        found.extend((kept[value.atom], f"from the argument {path}") for value, path in zip(values, arguments, strict=True)
                     if value.atom in kept)
        traces = {id(residual._trace): residual._trace for residual in program.residuals if hasattr(residual, "atom")}
        found.extend((kept[var], _made_by(eqn)) for trace in traces.values() for eqn in trace.eqns for var in eqn.outvars
                     if var in kept)
        return outs

    trace_to_jaxpr(outer, [aval_of(leaf) for leaf in leaves], debug)
    return found


def _made_by(eqn: JaxprEqn) -> str:
    if eqn.primitive is name_p:
        return f"named {eqn.params['name']!r} from {eqn.source_line}"
    what = f"jitted function {eqn.params['name']!r}" if eqn.primitive is jit_p else eqn.primitive.name
    return f"output of {what} from {eqn.source_line}"


def print_saved_residuals(f: Callable, *args: Any, **kwargs: Any) -> None:
    """Print what reverse mode of a function keeps: one line for each value."""
    for aval, origin in saved_residuals(f, *args, **kwargs):
        print(f"{aval.str_short(short_dtypes=True)} {origin}")
