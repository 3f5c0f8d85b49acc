"""`custom_fusion`: a function that takes part in fusions by rules of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxlite.core import source
from jaxlite.core.jaxpr import ClosedJaxpr, JaxprEqn, eval_jaxpr
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import hoist_consts
from jaxlite.core.tree import tree_leaves, tree_unflatten
from jaxlite.experimental.pallas.fusion_blocks import current_prefetch, program_of
from jaxlite.experimental.pallas.fusion_pushes import pushes_several
from jaxlite.experimental.pallas.fusion_rules import Block, Here, Operation, pulls, shape_of
from jaxlite.experimental.pallas.specs import BlockSpec
from jaxlite.traces.decompose import decomposes, rules_by_parts, types_by_parts
from jaxlite.transforms.custom_derivatives import bound_arguments

custom_fusion_p = Primitive("custom_fusion", multiple_results=True)


@dataclass(frozen=True)
class CustomEvalContext:
    """What a rule for blocks knows: the blocks of the results, where they are, and the kernel's scalar prefetch."""

    out_block_specs: tuple[Any, ...]
    out_block_indices: tuple[Any, ...]
    scalar_prefetch: Any = None
    scalar_prefetch_handler: Any = None


class custom_fusion:
    """A function of arrays with rules for blocks: `def_pull_block_spec` and `def_eval_rule`, and for what follows a kernel
    `def_push_block_spec`; `def_pallas_impl` is what runs in kernels.

    `eval(ctx, *blocks)` gives a sequence of the results' blocks, `pull(transforms)` from the `BlockIndexTransform`s of the
    results those of the arguments, `push(specs)` from the `BlockSpec`s of the arguments those of the results.
    """

    def __init__(self, fun: Callable[..., Any]):
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.eval_rule: Callable[..., Any] | None = None
        self.pull_block_spec_rule: Callable[..., Any] | None = None
        self.push_block_spec_rule: Callable[..., Any] | None = None
        self.pallas_impl: Callable[..., Any] | None = None

    def def_pallas_impl(self, pallas_impl: Callable[..., Any]) -> Callable[..., Any]:
        self.pallas_impl = pallas_impl
        return pallas_impl

    def def_pull_block_spec(self, pull_block_spec_rule: Callable[..., Any]) -> Callable[..., Any]:
        self.pull_block_spec_rule = pull_block_spec_rule
        return pull_block_spec_rule

    def def_push_block_spec(self, push_block_spec_rule: Callable[..., Any]) -> Callable[..., Any]:
        self.push_block_spec_rule = push_block_spec_rule
        return push_block_spec_rule

    def def_eval_rule(self, eval_rule: Callable[..., Any]) -> Callable[..., Any]:
        self.eval_rule = eval_rule
        return eval_rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = source.function_name(self.fun)
        for rule, method in ((self.eval_rule, "def_eval_rule"), (self.pull_block_spec_rule, "def_pull_block_spec")):
            if rule is None:
                raise ValueError(f"custom_fusion {name} has no rule for blocks: give it one with {method}")
        args = tuple(bound_arguments(self.fun, args, kwargs))
        program, _, out_tree = program_of(self.fun, args, {}, whole=True)
        inside = program if self.pallas_impl is None else program_of(self.pallas_impl, args, {}, whole=True)[0]
        if program.effects or inside.effects:
            raise NotImplementedError(f"custom_fusion {name} has effects: {program.effects or inside.effects}")
        if [(aval.shape, aval.dtype) for aval in program.out_avals] != [(aval.shape, aval.dtype) for aval in inside.out_avals]:
            raise ValueError(f"custom_fusion {name} gives {program.out_avals}, but its pallas_impl {inside.out_avals}")
        outs = custom_fusion_p.bind(*program.consts, *inside.consts, *tree_leaves(args), jaxpr=hoist_consts(program.jaxpr),
                                    inside=hoist_consts(inside.jaxpr), rules=self,
                                    counts=(len(program.consts), len(inside.consts)))
        return tree_unflatten(out_tree, outs)


@decomposes(custom_fusion_p)
def _parts(*args: Any, jaxpr: ClosedJaxpr, counts: tuple[int, int], **params: Any) -> list[Any]:
    own, inner = counts
    return eval_jaxpr(jaxpr.jaxpr, [], *args[:own], *args[own + inner:])


types_by_parts(custom_fusion_p)
rules_by_parts(custom_fusion_p)


@pulls("custom_fusion")
def _pull(op: Operation, out: Block) -> Any:
    rules, lead = op.params["rules"], sum(op.params["counts"])
    outs = tuple(out if number == op.index else None for number in range(len(op.eqn.outvars)))
    if len(outs) > 1:  # a rule may expect a block of each result
        outs = tuple(out if shape_of(var) == op.shape else each for var, each in zip(op.eqn.outvars, outs, strict=True))
    ins = rules.pull_block_spec_rule(outs)

    def compute(here: Here, *operands: Any) -> Any:
        specs = tuple(None if each is None else BlockSpec(each.block_shape, lambda *indices: here.place(out),
                                                          memory_space=each.memory_space) for each in outs)
        places = tuple(None if each is None else here.place(each) for each in outs)
        prefetch, handler = current_prefetch()
        return rules.eval_rule(CustomEvalContext(specs, places, prefetch, handler), *operands[lead:])[op.index]

    return [*[None] * lead, *ins], compute


def _push(eqn: JaxprEqn, specs: Sequence[Any]) -> Sequence[Any]:
    rules = eqn.params["rules"]
    if rules.push_block_spec_rule is None:
        raise ValueError(f"custom_fusion {source.function_name(rules.fun)} follows a kernel, but has no rule for it: give it "
                         "one with def_push_block_spec")
    return rules.push_block_spec_rule(tuple(specs[sum(eqn.params["counts"]):]))


pushes_several("custom_fusion", _push)
