"""`custom_gradient`: a function that gives its output and the function of the output's cotangent."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core import source
from jaxlite.core.aval import AbstractRef
from jaxlite.core.jaxpr import eval_jaxpr
from jaxlite.core.staging import trace_to_jaxpr
from jaxlite.core.tree import (
    broadcast_prefix,
    keystr,
    leaf_paths,
    tree_flatten,
    tree_unflatten,
)
from jaxlite.core.tree_nodes import register_pytree_node
from jaxlite.core.values import aval_of
from jaxlite.traces.jvp import instantiate, tangent_aval
from jaxlite.transforms.accumulators import NullAccum, RefAccum, ValAccum, accumulator, values_of
from jaxlite.transforms.custom_derivatives import custom_vjp, custom_vjp_primal_tree_values, with_entries


def custom_gradient(fun: Any = None, *, with_logs: bool = False, remat: bool = False, with_accums: Any = None) -> Any:
    """A function that returns (output, function from the output's cotangent to those of the arguments) as one that
    returns the output and is differentiated so.

    Args:
      with_logs: the function of the cotangent gives (cotangents, log), as in `custom_vjp.defvjp_with_logs`.
      remat: in the place of the function of the cotangent there is one of the arguments, as the rule `rem` of
        `custom_vjp.defremat`: it gives (output, function of the cotangent), in the backward pass of a `checkpoint`. What it
        closes over is kept.
      with_accums: it takes accumulators after the cotangent, and gives None or a log, as in `custom_vjp.defvjp_with_accums`.
        These are the classes of the accumulators, `ValAccum` or `RefAccum`: one for all arguments, or a prefix of the tuple of
        arguments. An argument that is not differentiated has a `NullAccum`. Arguments with a `RefAccum` must get a Ref from
        whoever differentiates, by `with_refs` of the function that `vjp` gives, and no others.

    >>> import jaxlite
    >>> @jaxlite.custom_gradient
    ... def clipped(x):
    ...     return x, lambda g: (jaxlite.numpy.clip(g, -1, 1),)
    >>> jaxlite.grad(lambda x: 5 * clipped(x))(2.0)
    Array(1., dtype=float32, weak_type=True)
    """
    if fun is None:
        return functools.partial(custom_gradient, with_logs=with_logs, remat=remat, with_accums=with_accums)

    if remat and with_accums is not None:
        raise NotImplementedError("custom_gradient doesn't yet support with_accums together with remat")

    @custom_vjp
    def wrapped(*args: Any) -> Any:
        return fun(*args)[0]

    def pulling(out: Any, pull: Callable[..., Any], count: int) -> _Program:
        return _Program(lambda cotangent: _returned(pull(cotangent), count, with_logs), out, tangent_aval)

    def fwd(*args: Any) -> Any:
        out, pull = fun(*args)
        return out, pulling(out, pull, len(args))

    def fwd_for_rem(*args: Any) -> Any:
        def run(args: Any) -> Any:
            out, pull = again(*args)
            return out, pulling(out, pull, len(args))

        out, again = fun(*args)
        return out, _Program(run, args, lambda aval: aval)

    def rem(program: _Program, *args: Any) -> Any:
        return program(args)

    def bwd(program: _Program, cotangent: Any) -> Any:
        return program(cotangent)

    if remat:
        (wrapped.defremat_with_logs if with_logs else wrapped.defremat)(
            fwd_for_rem, rem, bwd if with_logs else lambda program, cotangent: program(cotangent)[0])
    elif with_accums is None:
        wrapped.defvjp_with_logs(fwd, bwd)
    else:
        wrapped.defvjp_with_accums(*_accumulating(fun, with_accums), symbolic_zeros=True)
    source.wraps(fun)(wrapped)
    return wrapped


def _accumulating(fun: Callable[..., Any], with_accums: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The rules of a function whose backward pass adds to accumulators of these kinds."""

    def fwd(*flagged: Any) -> Any:
        inputs, in_tree = tree_flatten(flagged)
        args = custom_vjp_primal_tree_values(flagged)
        kinds = [kind if each.perturbed else NullAccum for kind, each in zip(_declared(with_accums, args), inputs, strict=True)]
        avals = [aval_of(each.value) for each in inputs]
        out, pull = fun(*args)

        def run(cotangent: Any, *refs: Any) -> Any:
            rest = iter(refs)
            accums = [accumulator(aval, {ValAccum: None, NullAccum: False}[kind] if kind is not RefAccum else next(rest))
                      for aval, kind in zip(avals, kinds, strict=True)]
            entries = pull(cotangent, *tree_unflatten(in_tree, accums))
            if entries is not None and type(entries) is not dict:
                raise TypeError("custom_gradient function used with with_accums must return a VJP function that returns None "
                                f"or a dict of backward-pass log entries, but it returned {type(entries).__name__}.")
            return [None if each is None else instantiate(each) for each in values_of(accums)], entries

        refs = [AbstractRef(tangent_aval(aval)) for aval, kind in zip(avals, kinds, strict=True) if kind is RefAccum]
        return out, (_Program(run, out, tangent_aval, refs), _Kinds(kinds))

    def bwd(residuals: tuple[_Program, _Kinds], cotangent: Any, *accums: Any) -> Any:
        program, kinds = residuals
        given, tree = tree_flatten(accums)
        for kind, each, path in zip(kinds, given, leaf_paths(tree), strict=True):
            if type(each) is not kind and not (kind is ValAccum and type(each) is NullAccum):
                raise TypeError(
                    f"custom_gradient function {source.function_name(fun)} declared a {kind.__name__} for its "
                    f"argument{keystr(path)} with with_accums, but its backward pass got a {type(each).__name__}. (A ValAccum "
                    "comes from jax.grad, a VJP applied without with_refs, or transformations applied before differentiation, "
                    "like vmap. A RefAccum comes from passing a Ref to a VJP's with_refs method, and a NullAccum from passing "
                    "jax.ad.DontWant() to it.)")
        values, entries = program(cotangent, *[each.inst().ref for each in given if type(each) is RefAccum])
        for each, value in zip(given, values, strict=True):
            each.accum(value)
        return entries

    return fwd, bwd


def _returned(result: Any, count: int, with_logs: bool) -> tuple[tuple[Any, ...], Any]:
    """The cotangents and the log of what the function of a cotangent gives."""
    entries = None
    if with_logs:
        result, entries = with_entries(result, "custom_gradient function used with with_logs=True must return a VJP function "
                                       "producing", "what it returns")
    result = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    if len(result) != count:
        raise TypeError(f"custom_gradient: the function of cotangents must give {count} values, one for each argument, got "
                        f"{len(result)}")
    return result, entries


def _declared(with_accums: Any, args: Any) -> list[Any]:
    """A kind of accumulator for each array of the arguments."""
    kinds = broadcast_prefix(with_accums, args)
    wrong = [kind for kind in kinds if kind not in (ValAccum, RefAccum)]
    if wrong:
        raise TypeError("custom_gradient's with_accums must be a pytree prefix of the function's arguments with ValAccum or "
                        f"RefAccum leaves, but got a leaf {wrong[0]!r}.")
    return kinds


class _Program:
    """A function of a pytree, traced. It is a tree of the values that it closes over.

    Args: `like` a pytree of values, whose types are, by `typed`, those that it takes; `others` types of more values.
    """

    def __init__(self, run: Callable[..., Any], like: Any, typed: Callable[[Any], Any], others: Sequence[Any] = ()):
        leaves, self.in_tree = tree_flatten(like)
        self.out_tree: Any = None

        def flat(*values: Any) -> list[Any]:
            found, self.out_tree = tree_flatten(run(tree_unflatten(self.in_tree, values[:len(leaves)]), *values[len(leaves):]))
            return found

        self.jaxpr, self.consts = trace_to_jaxpr(flat, [*[typed(aval_of(leaf)) for leaf in leaves], *others])

    def __call__(self, given: Any, *others: Any) -> Any:
        given = [instantiate(each) for each in self.in_tree.flatten_up_to(given)]
        return tree_unflatten(self.out_tree, eval_jaxpr(self.jaxpr, self.consts, *given, *others))


def _with_consts(static: tuple[Any, ...], consts: Sequence[Any]) -> _Program:
    made = object.__new__(_Program)
    made.jaxpr, made.in_tree, made.out_tree = static
    made.consts = list(consts)
    return made


class _Kinds(tuple):
    """Kinds of accumulators: a residual without arrays."""

    __slots__ = ()


register_pytree_node(_Program, lambda each: (each.consts, (each.jaxpr, each.in_tree, each.out_tree)), _with_consts)
register_pytree_node(_Kinds, lambda kinds: ((), tuple(kinds)), lambda kinds, _: _Kinds(kinds))
