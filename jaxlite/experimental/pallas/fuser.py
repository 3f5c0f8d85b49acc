"""Fusing what stands before and after a kernel into it: `fuse` functions that call a `fusible` one.

A fusible function takes `Fusion`s in the place of arrays, and one for what happens to its results. It computes their
blocks in its kernel with `pull_block_spec`, `push_block_spec` and `get_fusion_values` (`fusion_blocks`); operations of a
library's own take part by `custom_fusion`.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from jaxlite.compilation.options import resolve, signature_of
from jaxlite.core import source
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal, eval_jaxpr
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import hoist_consts
from jaxlite.core.tree import tree_leaves, tree_map, tree_structure, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.experimental.pallas.custom_fusions import custom_fusion as custom_fusion
from jaxlite.experimental.pallas.fusion_blocks import block_spec_with_prefetch as block_spec_with_prefetch
from jaxlite.experimental.pallas.fusion_blocks import filter_no_block_specs as filter_no_block_specs
from jaxlite.experimental.pallas.fusion_blocks import get_fusion_values as get_fusion_values
from jaxlite.experimental.pallas.fusion_blocks import get_stateful_input_fusion_values as get_stateful_input_fusion_values
from jaxlite.experimental.pallas.fusion_blocks import get_stateful_output_fusion_values as get_stateful_output_fusion_values
from jaxlite.experimental.pallas.fusion_blocks import make_scalar_prefetch_handler as make_scalar_prefetch_handler
from jaxlite.experimental.pallas.fusion_blocks import needed, program_of
from jaxlite.experimental.pallas.fusion_blocks import pull_block_spec as pull_block_spec
from jaxlite.experimental.pallas.fusion_blocks import push_block_spec as push_block_spec
from jaxlite.experimental.pallas.fusion_blocks import push_pull_block_spec as push_pull_block_spec
from jaxlite.experimental.pallas.fusion_rules import BlockIndexTransform as BlockIndexTransform
from jaxlite.traces.decompose import decomposes, rules_by_parts, types_by_parts

__all__ = ["BlockIndexTransform", "Fusion", "block_spec_with_prefetch", "custom_fusion", "evaluate", "filter_no_block_specs",
           "fuse", "fusible", "get_fusion_values", "get_stateful_input_fusion_values", "get_stateful_output_fusion_values",
           "make_scalar_prefetch_handler", "pull_block_spec", "push_block_spec", "push_pull_block_spec"]
__dir__ = lambda: __all__

P = ParamSpec("P")
R = TypeVar("R")


@dataclasses.dataclass
class Fusion(Generic[P, R]):
    """A function in the place of a value, with the types of its arguments (args, kwargs) and of its result."""

    func: Callable[P, R]
    in_type: tuple[tuple[Any, ...], dict[str, Any]]
    out_type: Any
    strict_mode: bool = True

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.func(*args, **kwargs)

    @property
    def type(self) -> Any:
        return self.out_type

    @property
    def shape(self) -> Any:
        return tree_map(lambda x: x.shape, self.out_type)

    @property
    def dtype(self) -> Any:
        return tree_map(lambda x: x.dtype, self.out_type)

    @property
    def in_shape(self) -> Any:
        return tree_map(lambda x: x.shape, self.in_type)

    @property
    def in_dtype(self) -> Any:
        return tree_map(lambda x: x.dtype, self.in_type)


# --- functions that others are fused into ------------------------------------------------------------

fusible_p = Primitive("fusible", multiple_results=True)


@fusible_p.def_eager
@decomposes(fusible_p)
def _unfused(*args: Any, jaxpr: ClosedJaxpr, **params: Any) -> list[Any]:
    return eval_jaxpr(jaxpr.jaxpr, [], *args)


types_by_parts(fusible_p)
rules_by_parts(fusible_p, "jaxpr")


@boundary
def fusible(f: Callable | None = None, *, output_fusion_prefix: Any = True) -> Callable:
    """A function of arrays from one of Fusions, which `fuse` can give what is computed around it.

    `f(*fusions, outputs, **kwargs)`: the last argument is what is to be done with its results, a Fusion or None for nothing.

    Args:
      output_fusion_prefix: a tree whose leaves stand for parts of the results; `outputs` has its structure.
    """
    def decorate(f: Callable) -> Callable:
        nothing = tree_structure(output_fusion_prefix).unflatten([None] * len(tree_leaves(output_fusion_prefix)))

        @functools.wraps(f)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            bound = functools.partial(f, **kwargs) if kwargs else f
            plain = lambda *args: bound(*tree_map(_trivial, args), nothing)
            program, in_tree, out_tree = program_of(plain, args, {}, whole=True)
            outs = fusible_p.bind(*program.consts, *tree_leaves(args), jaxpr=hoist_consts(program.jaxpr), fun=bound,
                                  count=len(program.consts), trees=(in_tree, out_tree), prefix=_Prefix(output_fusion_prefix))
            return tree_unflatten(out_tree, outs)

        return wrapped

    return decorate if f is None else decorate(f)


def _trivial(x: Any) -> Fusion:
    return Fusion(lambda: x, ((), {}), aval_of(x))


class _Prefix:
    """A tree as a parameter of an equation, whatever its leaves are."""

    def __init__(self, tree: Any):
        self.treedef = tree_structure(tree)

    def __repr__(self) -> str:
        return str(self.treedef)


# --- fusing ------------------------------------------------------------------------------------------


class _State(threading.local):
    fusing = False


_state = _State()


@boundary
def fuse(f: Callable | None = None, *, resolve_fusion_dtypes: bool = True, debug: bool = False, strict_mode: bool = True,
         static_argnums: int | Sequence[int] | None = None, static_argnames: str | Iterable[str] | None = None) -> Callable:
    """A function with one call of a `fusible` one, which gets what is computed before and after it as Fusions.

    Inside of another one, `fuse` does nothing.

    Args:
      debug: print the program before it is fused.
      strict_mode: of the Fusions for results: whether uses of an array have to need blocks of one place.
      static_argnums, static_argnames: arguments that are no arrays, as of `jit`.
    Raises: ValueError without such a call.
    """
    def decorate(f: Callable) -> Callable:
        static = resolve(signature_of(f), static_argnums, static_argnames, "static", source.function_name(f))

        @functools.wraps(f)
        def fused(*args: Any, **kwargs: Any) -> Any:
            if _state.fusing:
                return f(*args, **kwargs)
            fun, args, kwargs = _without_static(f, args, kwargs, *static)
            _state.fusing = True
            try:
                program, _, out_tree = program_of(fun, args, kwargs)
            finally:
                _state.fusing = False
            if debug:
                print(f"Jaxpr before fusion:\n{program}")
            return tree_unflatten(out_tree, _fused(program, tree_leaves((args, kwargs)), strict_mode))

        return fused

    return decorate if f is None else decorate(f)


def _without_static(f: Callable, args: Sequence[Any], kwargs: dict[str, Any], argnums: Sequence[int],
                    argnames: Sequence[str]) -> tuple[Callable, tuple[Any, ...], dict[str, Any]]:
    """The function of the arguments that are arrays, and these."""
    held = {index: arg for index, arg in enumerate(args) if index in argnums}
    named = {name: value for name, value in kwargs.items() if name in argnames}

    def fun(*arrays: Any, **keywords: Any) -> Any:
        rest = iter(arrays)
        return f(*[held[index] if index in held else next(rest) for index in range(len(args))], **named, **keywords)

    return (fun, tuple(arg for index, arg in enumerate(args) if index not in held),
            {name: value for name, value in kwargs.items() if name not in named})


def _fused(program: ClosedJaxpr, args: Sequence[Any], strict: bool) -> list[Any]:
    """The results of a program, whose fusible function computes all that depends on it."""
    jaxpr = program.jaxpr
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*program.consts, *args], strict=True))
    at = next((index for index, eqn in enumerate(jaxpr.eqns) if eqn.primitive is fusible_p), None)
    if at is None:
        raise ValueError("fuse: the function calls no fusible function")
    eqn, rest = jaxpr.eqns[at], [*jaxpr.eqns[:at], *jaxpr.eqns[at + 1:]]

    def run(outs: Sequence[Any], inputs: Sequence[Any] = (), values: Sequence[Any] = ()) -> list[Any]:
        eqns, wanted = needed(rest, outs, inputs)
        constants = [var for var in known if var in wanted]
        part = jaxpr.replace(constvars=constants, invars=list(inputs), eqns=eqns, outvars=list(outs))
        return eval_jaxpr(part, [known[var] for var in constants], *values)

    in_tree, out_tree = eqn.params["trees"]
    fusions = [Fusion(lambda atom=atom: run([atom])[0], ((), {}), atom.aval) for atom in eqn.invars[eqn.params["count"]:]]
    groups = eqn.params["prefix"].treedef.flatten_up_to(tree_unflatten(out_tree, eqn.outvars))
    outputs: list[Fusion | None] = []
    owners = [_owner(out, groups, rest) for out in jaxpr.outvars]
    if all(owner is None for owner in owners):
        return run(jaxpr.outvars)
    for number, group in enumerate(groups):
        inputs = tree_leaves(group)
        own = [out for out, owner in zip(jaxpr.outvars, owners, strict=True) if owner == number]
        if own == inputs:
            outputs.append(None)
            continue
        after = lambda *values, own=own, inputs=inputs: tuple(run(own, inputs, tree_leaves(values)))
        outputs.append(Fusion(after, (tree_map(lambda var: var.aval, group), {}), tuple(out.aval for out in own), strict))
    # It gives the results of one group after the other.
    (parts, _) = tree_unflatten(in_tree, fusions)
    found = iter(tree_leaves(eqn.params["fun"](*parts, eqn.params["prefix"].treedef.unflatten(outputs))))
    order = [index for number in range(len(groups)) for index, owner in enumerate(owners) if owner == number]
    results = dict(zip(order, found, strict=True))
    others = [index for index, owner in enumerate(owners) if owner is None]
    results.update(zip(others, run([jaxpr.outvars[index] for index in others]), strict=True))
    return [results[index] for index in range(len(owners))]


def _owner(out: Any, groups: Sequence[Any], eqns: Sequence[JaxprEqn]) -> int | None:
    """The part of the fusible function's results that a result follows from; None if it follows from none."""
    if isinstance(out, Literal):
        return None
    _, wanted = needed([eqn for eqn in eqns if not eqn.effects], [out])
    owners = [number for number, group in enumerate(groups) if wanted.intersection(tree_leaves(group))]
    if len(owners) > 1:
        raise ValueError(f"fuse: a result of type {out.aval} depends on several parts of the fusible function's results, "
                         f"{owners}: make them one, by output_fusion_prefix")
    return owners[0] if owners else None


@boundary
def evaluate(f: Callable, *, allow_transpose: bool = True) -> Callable:
    """The function operation by operation, for kernels: without loops and branches, and on request without transposes."""
    def evaluated(*args: Any, **kwargs: Any) -> Any:
        program, _, out_tree = program_of(f, args, kwargs)
        for eqn in program.jaxpr.eqns:
            if eqn.primitive.name in ("scan", "while", "cond"):
                raise NotImplementedError(f"fuser.evaluate: {eqn.primitive.name} in a fusion, at {eqn.source_line}")
            if eqn.primitive.name == "transpose" and not allow_transpose:
                raise ValueError(f"fuser.evaluate: a transpose, at {eqn.source_line}")
        return tree_unflatten(out_tree, eval_jaxpr(program.jaxpr, program.consts, *tree_leaves((args, kwargs))))

    return evaluated
