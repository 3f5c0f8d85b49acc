"""Functions of arrays that kernels compute block by block: the blocks that they need, and those that they give.

`pull_block_spec` goes from the blocks of the results back to those of the arguments, `push_block_spec` forward.
Scalars that say where a slice starts decide where blocks are, so that a kernel has to have them before it starts: they are
its scalar prefetch, `get_fusion_values` tells them from the arrays that a function closes over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from jaxlite.core import source
from jaxlite.core.aval import AbstractRef, ShapedArray
from jaxlite.core.discharge import discharge_jaxpr
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import Atom, ClosedJaxpr, DebugInfo, Jaxpr, JaxprEqn, Literal, Var, eval_jaxpr
from jaxlite.core.shape_dtype import ShapeDtypeStruct, abstract
from jaxlite.core.staging import trace_to_jaxpr
from jaxlite.core.tree import tree_flatten, tree_map, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.experimental.pallas.fusion_pushes import push
from jaxlite.experimental.pallas.fusion_rules import Block, Here, Operation, canonical, cut, pull, shape_of
from jaxlite.experimental.pallas.specs import BlockSpec, no_block_spec

_INDEX = ShapedArray((), np.dtype(np.int32))
_BODIES = {"jit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr",
           "custom_vjp_call": "call_jaxpr", "checkpoint": "jaxpr", "remat": "jaxpr"}


# --- programs ----------------------------------------------------------------------------------------


def program_of(f: Callable[..., Any], args: Any, kwargs: Any, whole: bool = False) -> tuple[ClosedJaxpr, Any, Any]:
    """The equations of a function, with `whole` its calls as such, and the trees of its arguments and results."""
    leaves, in_tree = tree_flatten((args, kwargs))
    out_tree: Any = None

    def flat(*values: Any) -> list[Any]:
        nonlocal out_tree
        args, kwargs = tree_unflatten(in_tree, values)
        outs, out_tree = tree_flatten(f(*args, **kwargs))
        return outs

    jaxpr, consts = trace_to_jaxpr(flat, list(map(abstract, leaves)), DebugInfo("fuser", source.function_name(f)))
    closed = ClosedJaxpr(jaxpr, consts)
    return closed if whole else inlined(closed), in_tree, out_tree


def inlined(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with the bodies of calls in their places."""
    constvars, consts, eqns = list(closed.jaxpr.constvars), list(closed.consts), []

    def run(jaxpr: Jaxpr, args: Sequence[Atom]) -> list[Atom]:
        env: dict[Any, Atom] = dict(zip(jaxpr.invars, args, strict=True))
        for eqn in jaxpr.eqns:
            operands = [env.get(atom, atom) for atom in eqn.invars]
            body = eqn.params.get(_BODIES.get(eqn.primitive.name, ""))
            if body is None:
                outvars = [Var(var.aval) for var in eqn.outvars]
                eqns.append(eqn.replace(invars=operands, outvars=outvars))
                env.update(zip(eqn.outvars, outvars, strict=True))
                continue
            constvars.extend(body.jaxpr.constvars)
            consts.extend(body.consts)
            env.update(zip(eqn.outvars, run(body.jaxpr, operands), strict=True))
        return [env.get(atom, atom) for atom in jaxpr.outvars]

    outvars = run(closed.jaxpr, closed.jaxpr.invars)
    return ClosedJaxpr(closed.jaxpr.replace(constvars=constvars, eqns=eqns, outvars=outvars), consts)


def needed(eqns: Sequence[JaxprEqn], atoms: Sequence[Atom], known: Sequence[Var] = ()) -> tuple[list[JaxprEqn], set[Any]]:
    """The equations that these atoms follow from, and all variables that do, up to those that are known."""
    wanted = {atom for atom in atoms if not isinstance(atom, Literal)}
    kept = []
    for eqn in reversed(eqns):
        if eqn.effects or any(var in wanted and var not in known for var in eqn.outvars):
            kept.append(eqn)
            wanted.update(atom for atom in eqn.invars if not isinstance(atom, Literal))
    return kept[::-1], wanted


def _starts(eqns: Sequence[JaxprEqn]) -> list[Atom]:
    """The operands that say where slices start."""
    return [atom for eqn in eqns if eqn.primitive.name == "dynamic_slice" for atom in eqn.invars[1:]]


def _prefetched(jaxpr: Jaxpr) -> list[bool]:
    """Which constants say where slices start."""
    live, _ = needed(jaxpr.eqns, jaxpr.outvars)
    _, wanted = needed(live, _starts(live))
    return [var in wanted for var in jaxpr.constvars]


# --- scalars that a kernel has before it starts ------------------------------------------------------


class _Current(threading.local):
    prefetch: tuple[Any, ...] = ()
    handler: Any = None


_current = _Current()


def current_prefetch() -> tuple[Any, Any]:
    """In a kernel's function: the scalars that the kernel prefetches, and the function that finds this fusion's among them."""
    return _current.prefetch, _current.handler


@contextmanager
def _with_prefetch(prefetch: Sequence[Any], handler: Any = None) -> Iterator[None]:
    before = _current.prefetch, _current.handler
    _current.prefetch, _current.handler = tuple(prefetch), handler
    try:
        yield
    finally:
        _current.prefetch, _current.handler = before


def make_scalar_prefetch_handler(*path: Any) -> Callable[..., Any]:
    """A function that finds the scalars of one fusion among all that a kernel prefetches, by the indices of this path."""

    def handler(*prefetch: Any) -> Any:
        found: Any = prefetch
        for each in path:
            found = found[each]
        return found

    return handler


class _Scalars:
    """The scalars of a program: from a kernel's prefetch while there is one, else those that it closes over."""

    def __init__(self, closed: ClosedJaxpr, handler: Callable[..., Any] | None, name: str):
        self.closed, self.handler, self.name = closed, handler, name
        self.mask = _prefetched(closed.jaxpr)

    @property
    def own(self) -> tuple[Any, ...]:
        return tuple(const for const, flag in zip(self.closed.consts, self.mask, strict=True) if flag)

    def constants(self) -> list[Any]:
        """The values of the program's constants."""
        prefetch: Any = _current.prefetch
        if not prefetch or not any(self.mask):
            return self.closed.consts
        if self.handler is not None:
            prefetch = self.handler(*prefetch)
        if len(prefetch) != sum(self.mask):
            raise ValueError(f"the fusion {self.name} prefetches {sum(self.mask)} scalars, but got {len(prefetch)}")
        rest = iter(prefetch)
        return [_load(next(rest)) if flag else const for const, flag in zip(self.closed.consts, self.mask, strict=True)]

    def compute(self, atoms: Sequence[Atom]) -> list[Any]:
        """The values of some scalars of the program."""
        jaxpr = self.closed.jaxpr
        eqns, wanted = needed(jaxpr.eqns, atoms)
        if wanted.intersection(jaxpr.invars):
            raise ValueError(f"the fusion {self.name} slices where an argument says, which is not known before the kernel "
                             "starts: close over that scalar")
        return eval_jaxpr(jaxpr.replace(invars=[], eqns=eqns, outvars=list(atoms)), self.constants())


def _load(scalar: Any) -> Any:
    """A prefetched scalar: TPUs have them in arrays of one element."""
    if getattr(scalar, "ndim", 0):
        return scalar[0]
    return scalar[...] if isinstance(aval_of(scalar), AbstractRef) else scalar


# --- backward ----------------------------------------------------------------------------------------


class _Pulled:
    """The blocks that a program needs, and the steps that compute its results from them.

    A value may be needed in several blocks, if it is not an argument: each is computed by itself.
    """

    def __init__(self, scalars: _Scalars, outs: Sequence[Block | None], strict: bool):
        self.scalars, self.outs, self.strict = scalars, outs, strict
        self.jaxpr = scalars.closed.jaxpr
        self.blocks: dict[Any, list[Block | None]] = {}
        self.steps: list[tuple[Any, int, list[int], Callable[..., Any], JaxprEqn]] = []
        self.results = [self._want(var, out) for var, out in zip(self.jaxpr.outvars, outs, strict=True)]
        for eqn in reversed(self.jaxpr.eqns):
            for index, var in enumerate(eqn.outvars):
                for place, block in enumerate(self.blocks.get(var, ())):
                    ins, compute = pull(Operation(eqn, index, scalars.compute), block)
                    numbers = [self._want(atom, each) for atom, each in zip(eqn.invars, ins, strict=True)]
                    self.steps.append((var, place, numbers, compute, eqn))

    def _want(self, atom: Atom, block: Block | None) -> int:
        """The number of a value's block among those that are needed."""
        if isinstance(atom, Literal):
            return 0
        if not shape_of(atom) and (block is None or block.memory_space is None):
            block = None
        known = self.blocks.setdefault(atom, [])
        for number, each in enumerate(known):
            if self._same(each, block):
                return number
        if known and atom in self.jaxpr.invars:
            raise ValueError("Fusion contains a DAG, cannot uniquely pull block specs: it needs two blocks of argument "
                             f"{self.jaxpr.invars.index(atom)}, {known[0]} and {block}, in\n{self.jaxpr}")
        known.append(block)
        return len(known) - 1

    def _same(self, one: Block | None, two: Block | None) -> bool:
        if one is None or two is None:
            return one is two
        if one.block_shape is None or two.block_shape is None:
            return one.block_shape is two.block_shape
        if canonical(one.block_shape) != canonical(two.block_shape):
            return False
        if not self.strict or one.block_index_transform is two.block_index_transform:
            return True
        return self._text(one) == self._text(two)

    def _text(self, block: Block) -> str:
        """The place of a block as a program."""
        counts = [None if out is None or out.block_shape is None else len(out.block_shape) for out in self.outs]
        prefetch = self.scalars.own

        def place(*values: Any) -> list[Any]:
            rest = iter(values[len(prefetch):])
            places = [None if count is None else tuple(next(rest) for _ in range(count)) for count in counts]
            with _with_prefetch(values[:len(prefetch)]):
                handler, self.scalars.handler = self.scalars.handler, None
                try:
                    return tree_flatten(block.block_index_transform(*places))[0]
                finally:
                    self.scalars.handler = handler

        avals = [*map(aval_of, prefetch), *[_INDEX] * sum(count or 0 for count in counts)]
        return str(trace_to_jaxpr(place, avals)[0])

    def run(self, here: Here, args: Sequence[Any]) -> list[Any]:
        """The blocks of the results."""
        values: dict[tuple[Any, int], Any] = {}
        for var, const in zip(self.jaxpr.constvars, self.scalars.constants(), strict=True):
            for number, block in enumerate(self.blocks.get(var, ())):
                values[var, number] = const if block is None else cut(const, block, here)
        for var, arg in zip(self.jaxpr.invars, args, strict=True):
            values[var, 0] = arg
        read = lambda atom, number: atom.val if isinstance(atom, Literal) else values[atom, number]
        for var, place, numbers, compute, eqn in reversed(self.steps):
            values[var, place] = compute(here, *map(read, eqn.invars, numbers))
        return list(map(read, self.jaxpr.outvars, self.results))


@boundary
def pull_block_spec(f: Callable[..., Any], out_block_specs: Any, *, scalar_prefetch_handler: Callable[..., Any] | None = None,
                    grid_len: int | None = None, strict_mode: bool = True) -> Callable[..., Any]:
    """From the blocks of a function's results, those of its arguments, and the function on blocks.

    Args:
      out_block_specs: a tree of `BlockSpec` like f's result.
      scalar_prefetch_handler: finds f's scalars among all that the kernel prefetches; without it all are f's.
      grid_len: the number of the grid's axes. Further arguments of index maps are the scalar prefetch.
      strict_mode: two uses of an argument have to need blocks of one place, not of one shape only.
    Returns: a function of f's arguments, or their types. It gives `kernel, specs of args, specs of kwargs`, and
      `kernel(program_ids, scalar_prefetch, *args, **kwargs)` computes blocks of the results from blocks of the arguments.
    Raises: ValueError if an argument is needed in two different blocks.
    """

    def pulled(*args: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
        closed, in_tree, _ = program_of(f, args, kwargs)
        specs, out_tree = tree_flatten(out_block_specs)
        scalars = _Scalars(closed, scalar_prefetch_handler, source.function_name(f))
        if any(np.ndim(scalar) for scalar in scalars.own):
            raise ValueError(f"the fusion {scalars.name} computes where a slice starts from an array. A kernel can prefetch "
                             "scalars: take the element outside of the fusion, and close over it")
        found = _Pulled(scalars, [_block(spec, number) for number, spec in enumerate(specs)], strict_mode)

        def places(ids: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(None if spec is no_block_spec or spec.index_map is None else _tuple(spec.index_map(
                *ids, *_current.prefetch)) for spec in specs)

        def spec_of(var: Any) -> Any:
            block = found.blocks.get(var, [None])[0]
            if block is None:
                return no_block_spec
            if block.block_shape is None:
                return BlockSpec(memory_space=block.memory_space, pipeline_mode=block.pipeline_mode)

            def index_map(*indices: Any) -> Any:
                count = len(indices) if grid_len is None else grid_len
                with _with_prefetch(indices[count:]):
                    return block.block_index_transform(*places(indices[:count]))

            return BlockSpec(block.block_shape, index_map, memory_space=block.memory_space, pipeline_mode=block.pipeline_mode)

        def kernel(program_ids: Sequence[Any], scalar_prefetch: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
            with _with_prefetch(scalar_prefetch or (), scalar_prefetch_handler):
                here = Here(lambda: places(program_ids))
                return tree_unflatten(out_tree, found.run(here, in_tree.flatten_up_to((args, kwargs))))

        kernel.scalar_prefetch = scalars.own  # type: ignore[attr-defined]
        return kernel, *tree_unflatten(in_tree, map(spec_of, closed.jaxpr.invars))

    return pulled


def _tuple(place: Any) -> tuple[Any, ...]:
    return tuple(place) if isinstance(place, (tuple, list)) else (place,)


def _block(spec: Any, number: int) -> Block | None:
    """A result's own block."""
    if spec is no_block_spec:
        return None
    if spec.block_shape is None or spec.index_map is not None:
        at = lambda *places: places[number]
    else:
        at = lambda *places: (0,) * len(spec.block_shape)
    return Block(spec.block_shape, at, memory_space=spec.memory_space, pipeline_mode=spec.pipeline_mode)


# --- forward -----------------------------------------------------------------------------------------


@boundary
def push_block_spec(f: Callable[..., Any], *in_specs: Any, scalar_prefetch_handler: Callable[..., Any] | None = None,
                    grid_len: int | None = None, strict_mode: bool = True, return_out_type: bool = False,
                    **in_kwarg_specs: Any) -> Callable[..., Any]:
    """From the blocks of a function's arguments, those of its results.

    Args: trees of `BlockSpec` like f's arguments; `no_block_spec` for those that follow from the others.
    Returns: a function of f's arguments, or their types. It gives a tree of `BlockSpec` like f's result, and with
      `return_out_type` the types of the results too.
    """

    def pushed(*args: Any, **kwargs: Any) -> Any:
        closed, in_tree, out_tree = program_of(f, args, kwargs)
        specs, tree = tree_flatten((in_specs, in_kwarg_specs))
        if tree != in_tree:
            raise ValueError(f"the specs have the structure {tree}, the arguments {in_tree}")
        jaxpr = closed.jaxpr
        env: dict[Any, Any] = dict(zip(jaxpr.invars, specs, strict=True))
        read = lambda atom: no_block_spec if isinstance(atom, Literal) else env.get(atom, no_block_spec)
        for eqn in jaxpr.eqns:
            known = list(map(read, eqn.invars))
            if any(spec is not no_block_spec for spec in known):
                env.update(zip(eqn.outvars, push(eqn, known), strict=True))
        outs = list(map(read, jaxpr.outvars))
        if any(out is no_block_spec for out in outs):
            raise ValueError(f"result {outs.index(no_block_spec)} of {source.function_name(f)} does not depend on blocks")
        types = [ShapeDtypeStruct(aval.shape, aval.dtype) for aval in jaxpr.out_avals]
        found = tree_unflatten(out_tree, outs)
        return (found, tree_unflatten(out_tree, types)) if return_out_type else found

    return pushed


@boundary
def push_pull_block_spec(f: Callable[..., Any], *block_specs: Any, scalar_prefetch_handler: Callable[..., Any] | None = None,
                         grid_len: int | None = None, **kwarg_specs: Any) -> Callable[..., Any]:
    """For `f(values, *args, **kwargs)`, which follows a kernel: from the blocks of args those of the results, and of `values`.

    Returns: a function of f's arguments, or their types. It gives `kernel` as of `pull_block_spec`, the specs of
      `values`, those of the keyword arguments, and the types and specs of the results.
    """

    def both(values: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        options: dict[str, Any] = {"scalar_prefetch_handler": scalar_prefetch_handler, "grid_len": grid_len}
        unknown = tree_map(lambda _: no_block_spec, values)
        outs, types = push_block_spec(f, unknown, *block_specs, return_out_type=True, **options, **kwarg_specs)(
            values, *args, **kwargs)
        kernel, (value_specs, *_), specs = pull_block_spec(f, outs, strict_mode=False, **options)(values, *args, **kwargs)
        return kernel, value_specs, specs, types, outs

    return both


# --- the arrays that a fusion closes over ------------------------------------------------------------


@boundary
def get_fusion_values(fusion: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """A fusion as a function of the arrays that it closes over.

    Returns: `f, values, scalars`: `f(values, *args, **kwargs)` computes the fusion, the scalars say where slices start.
    Raises: ValueError if it closes over a Ref.
    """
    return _values(fusion, args, kwargs)[:3]


@boundary
def get_stateful_input_fusion_values(fusion: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """`get_fusion_values` for a fusion that may read Refs: they are among the values, and f takes their contents."""
    return _values(fusion, args, kwargs, refs=True)[:3]


@boundary
def get_stateful_output_fusion_values(fusion: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """`get_fusion_values` for a fusion that may read and write Refs.

    Returns: `f, values, scalars, aliases`. If Refs are written, f returns `out, contents` with their new contents, and
      `aliases` maps the positions of these among all leaves to those of the Refs among the values and arguments.
    """
    return _values(fusion, args, kwargs, refs=True, writes=True)


def _values(fusion: Callable[..., Any], args: Any, kwargs: Any, refs: bool = False, writes: bool = False) -> tuple[Any, ...]:
    closed, _, out_tree = program_of(fusion, args, kwargs)
    jaxpr, consts = closed.jaxpr, closed.consts
    written: tuple[int, ...] = ()
    if any(isinstance(var.aval, AbstractRef) for var in jaxpr.constvars):
        if not refs:
            raise ValueError("the fusion closes over a Ref: use get_stateful_input_fusion_values or "
                             "get_stateful_output_fusion_values")
        count = len(consts)
        opened = jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars])
        discharged = discharge_jaxpr(ClosedJaxpr(opened, []))
        jaxpr, written = discharged.closed.jaxpr, discharged.written if writes else ()
        jaxpr = jaxpr.replace(constvars=jaxpr.invars[:count], invars=jaxpr.invars[count:],
                              outvars=jaxpr.outvars[:out_tree.num_leaves + len(written)])
        live, wanted = needed(jaxpr.eqns, jaxpr.outvars)
        used = [var in wanted or index in written for index, var in enumerate(jaxpr.constvars)]
        numbers = {index: sum(used[:index]) for index in range(count)}
        written = tuple(numbers.get(index, sum(used) + index - count) for index in written)
        consts = [const for const, flag in zip(consts, used, strict=True) if flag]
        jaxpr = jaxpr.replace(constvars=[var for var, flag in zip(jaxpr.constvars, used, strict=True) if flag], eqns=live)
    mask = _prefetched(jaxpr)
    scalars = tuple(const for const, flag in zip(consts, mask, strict=True) if flag)
    aliases = {out_tree.num_leaves + number: index - sum(mask[:index]) for number, index in enumerate(written)}

    def fused(values: Any, *args: Any, **kwargs: Any) -> Any:
        given, known = iter(values), iter(scalars)
        outs = eval_jaxpr(jaxpr, [next(known if flag else given) for flag in mask], *tree_flatten((args, kwargs))[0])
        result = tree_unflatten(out_tree, outs[:out_tree.num_leaves])
        return (result, tuple(outs[out_tree.num_leaves:])) if written else result

    regular = tuple(const for const, flag in zip(consts, mask, strict=True) if not flag)
    return fused, regular, scalars, aliases


# --- trees of specs ----------------------------------------------------------------------------------


def filter_no_block_specs(values: Any, block_specs: Any) -> tuple[Any, Any]:
    """The values that have a block and their specs, and None for the others."""
    has = lambda spec: spec is not no_block_spec
    return (tree_map(lambda value, spec: value if has(spec) else None, values, block_specs),
            tree_map(lambda spec: spec if has(spec) else None, block_specs))


def block_spec_with_prefetch(block_specs: Any, refs: Sequence[Any]) -> Any:
    """The specs with index maps that take these prefetched scalars as their last arguments."""

    def with_refs(spec: Any) -> Any:
        if spec is no_block_spec or spec.index_map is None:
            return spec
        return replace(spec, index_map=lambda *indices: spec.index_map(*indices, *refs))

    return tree_map(with_refs, block_specs)
