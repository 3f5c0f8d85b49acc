"""Functions with batching rules given by the user: custom_vmap, sequential_vmap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core import source
from jaxlite.core.aval import without_axis
from jaxlite.core.jaxpr import ClosedJaxpr, eval_jaxpr, pick
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import hoist_consts
from jaxlite.core.tree import tree_flatten, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.lax.control_flow.bodies import Body, trace_body
from jaxlite.lax.control_flow.scan import map as lax_map
from jaxlite.traces.batching import Axis, batch_flat, bring_to_front, move
from jaxlite.traces.jvp import instantiate, jvp_flat, jvp_jaxpr
from jaxlite.transforms.custom_derivatives import bound_arguments, rule_inside
from lowering.rules import register_decomposition

custom_vmap_call_p = Primitive("custom_vmap_call", multiple_results=True, memoise=False)


class custom_vmap:
    """A function with a batching rule of its own.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> from jaxlite.transforms.custom_batching import custom_vmap
    >>> @custom_vmap
    ... def scale(x, y):
    ...     return x * y
    >>> @scale.def_vmap
    ... def _(axis_size, in_batched, x, y):
    ...     return 10 * x * y, True
    >>> jaxlite.vmap(scale)(jnp.ones(2), jnp.ones(2))
    Array([10., 10.], dtype=float32)
    """

    def __init__(self, fun: Callable):
        source.wraps(fun)(self)
        self.fun = fun
        self.vmap_rule: Callable | None = None

    __getattr__ = rule_inside

    def def_vmap(self, vmap_rule: Callable) -> Callable:
        """Set the rule: `vmap_rule(axis_size, in_batched, *args)` gives (output, out_batched).

        `in_batched` says for each leaf of the arguments whether it has a batch axis, which is its first; `out_batched`
        says the same of the output.
        """
        self.vmap_rule = vmap_rule
        return vmap_rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = source.function_name(self.fun)
        args = bound_arguments(self.fun, args, kwargs)
        if self.vmap_rule is None:
            raise AttributeError(f"No batching rule defined for custom_vmap function {name} using def_vmap.")
        leaves, trees = tree_flatten((args, {}))
        body = trace_body(self.fun, trees, list(map(aval_of, leaves)), "custom_vmap")
        consts, in_tree, out_tree = body.consts, trees.children()[0], body.out_tree
        rule, count = self.vmap_rule, len(consts)

        def flat_rule(axis_size: int, batched: Sequence[bool], values: Sequence[Any]) -> tuple[list[Any], list[bool]]:
            if any(batched[:count]):
                raise ValueError(f"custom_vmap function {name} closes over a batched value; pass it as an argument")
            given = tree_unflatten(in_tree, list(batched[count:]))
            result, flags = rule(axis_size, list(given), *tree_unflatten(in_tree, values[count:]))
            outs, tree = tree_flatten(result)
            flags, flag_tree = tree_flatten(flags)
            rule_name = source.function_name(rule)
            if tree != flag_tree:
                raise ValueError(f"structure of output value and output batching specification returned by custom vmap rule "
                                 f"({rule_name}) do not match. Output values: {tree}. Batching spec: {flag_tree}")
            if tree != out_tree:
                raise ValueError(f"structure of output returned by custom vmap rule ({rule_name}) does not match that of "
                                 f"original custom-vmapped function. Original output: {out_tree}. Rule output: {tree}")
            return outs, flags

        outs = custom_vmap_call_p.bind(*consts, *leaves, call=body.derive(_program), rule=flat_rule)
        return tree_unflatten(out_tree, outs)


def _program(body: Body) -> ClosedJaxpr:
    return hoist_consts(body.jaxpr)


@custom_vmap_call_p.def_effectful_abstract_eval
def _call_aval(*avals: Any, call: ClosedJaxpr, rule: Callable) -> Any:
    return call.out_avals, call.effects


register_decomposition("custom_vmap_call", lambda avals, params, *args, **kwargs: params["call"])


@custom_vmap_call_p.def_eager
def _call_eager(*args: Any, call: ClosedJaxpr, rule: Callable) -> list[Any]:
    return eval_jaxpr(call.jaxpr, [], *args)


@custom_vmap_call_p.def_batching
def _call_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, call: ClosedJaxpr,
                rule: Callable) -> tuple[list[Any], list[int | None]]:
    batched = [dim is not None for dim in dims]
    values = [arg if dim is None else bring_to_front(arg, dim, axis.size) for arg, dim in zip(args, dims, strict=True)]
    outs, flags = rule(axis.size, batched, values)
    return outs, [0 if flag else None for flag in flags]


@custom_vmap_call_p.def_jvp
def _call_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, call: ClosedJaxpr, rule: Callable) -> Any:
    count = len(primals)
    program, consts, _ = jvp_jaxpr(call, [True] * count, True)
    lead = len(consts)

    def jvp_rule(axis_size: int, batched: Sequence[bool], values: Sequence[Any]) -> tuple[list[Any], list[bool]]:
        own, directions = batched[lead:lead + count], batched[lead + count:]
        either = [one or other for one, other in zip(own, directions, strict=True)]
        flags: list[bool] = []

        def spread(value: Any, has: bool, needs: bool) -> Any:
            return bring_to_front(value, None, axis_size) if needs and not has else value

        def mapped(*inputs: Any) -> list[Any]:
            outs, found = rule(axis_size, either, inputs)
            flags.extend(found)
            return outs

        if not any(own):  # along a batch of directions, at one point: the rule sees that point alone
            def along(*dxs: Any) -> list[Any]:
                flags.clear()
                outs, tangents_out = jvp_flat(unmapped, values[lead:lead + count], dxs)
                return [*outs, *map(instantiate, tangents_out)]

            def unmapped(*inputs: Any) -> list[Any]:
                outs, found = rule(axis_size, own, inputs)
                flags.extend(found)
                return outs

            dims = [0 if flag else None for flag in directions]
            outs, out_dims = batch_flat(along, values[lead + count:], dims, Axis(axis_size, None))
            if not any(flags):
                return ([out if dim is None else move(out, dim, 0) for out, dim in zip(outs, out_dims, strict=True)],
                        [dim is not None for dim in out_dims])
            flags.clear()
        xs = [spread(*row) for row in zip(values[lead:lead + count], own, either, strict=True)]
        dxs = [spread(*row) for row in zip(values[lead + count:], directions, either, strict=True)]
        outs, tangents_out = jvp_flat(mapped, xs, dxs)
        return [*outs, *map(instantiate, tangents_out)], [*flags, *flags]

    outs = custom_vmap_call_p.bind(*consts, *primals, *map(instantiate, tangents), call=program, rule=jvp_rule)
    half = len(outs) // 2
    return outs[:half], outs[half:]


def _linearize(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    raise ValueError("Linearization failed to produce known values for all output primals: custom_vmap functions have no "
                     "reverse-mode derivative, since its vmap rule is not known. Wrap the function in custom_vjp, or use jvp")


custom_vmap_call_p.linearize = _linearize


def sequential_vmap(f: Callable) -> Callable:
    """A function that vmap runs for one example after the other, in a loop."""
    wrapped = custom_vmap(f)

    @wrapped.def_vmap
    def _(axis_size: int, in_batched: Sequence[Any], *args: Any) -> Any:
        leaves, trees = tree_flatten((args, {}))
        flags = tree_flatten(in_batched)[0]
        types = [without_axis(aval_of(leaf), 0) if flag else aval_of(leaf) for leaf, flag in zip(leaves, flags, strict=True)]
        body = trace_body(f, trees, types, "custom_vmap")  # the program that the call has made already

        def one(mapped: Sequence[Any]) -> Any:
            rest = iter(mapped)
            values = [next(rest) if flag else leaf for leaf, flag in zip(leaves, flags, strict=True)]
            return eval_jaxpr(body.jaxpr, body.consts, *values)

        outs = lax_map(one, pick(leaves, flags))
        return tree_unflatten(body.out_tree, outs), tree_unflatten(body.out_tree, [True] * len(outs))

    return wrapped
