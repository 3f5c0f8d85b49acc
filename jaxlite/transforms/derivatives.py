"""Derivatives of functions: jvp, linearize, vjp, grad, Jacobians and Hessians."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from jaxlite.compilation.jit import jit
from jaxlite.compilation.options import check_callable
from jaxlite.compilation.program import flatten_outputs
from jaxlite.core import config, dtypes, source
from jaxlite.core.aval import AbstractRef, high_types, layouts, typematch
from jaxlite.core.discharge import without_local_refs
from jaxlite.core.effects import REF
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import DebugInfo, Jaxpr, eval_jaxpr, pick
from jaxlite.core.shape_dtype import abstract
from jaxlite.core.staging import hoist_consts, trace_to_jaxpr
from jaxlite.core.tracing import ref_methods
from jaxlite.core.tree import (
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_structure,
    tree_unflatten,
    treedef_is_leaf,
)
from jaxlite.core.tree_nodes import Partial
from jaxlite.core.values import aval_of
from jaxlite.devices import placement
from jaxlite.lax import shaping
from jaxlite.numpy.api import as_array, is_array_like
from jaxlite.traces.backward_logs import collecting
from jaxlite.traces.jvp import Zero, cotangent_aval, has_no_tangents, instantiate, jvp_flat, tangent_aval, zeros_of
from jaxlite.traces.linearize import linearize_flat, pushing_forward
from jaxlite.traces.program_parts import partial_eval_jaxpr_nounits
from jaxlite.traces.transpose import Linear, backward, has_wide_types
from jaxlite.transforms.argument_marks import marks_of
from jaxlite.transforms.gradient_targets import VJP, NotNeeded, NotSaveable, Pushforward

# --- shared ------------------------------------------------------------------------------------------


def _debug(name: str, fun: Callable) -> DebugInfo:
    return DebugInfo(name, source.function_location(fun))


class _Flat:
    """A function of pytrees as one of flat values, which remembers the tree of its result and the auxiliary part."""

    def __init__(self, fun: Callable, in_tree: Any, debug: DebugInfo, has_aux: bool = False):
        self.fun, self.in_tree, self.debug, self.has_aux = fun, in_tree, debug, has_aux
        self.out_tree: Any = None
        self.aux_tree: Any = None
        self.num_outs = 0
        self.fixed_aux: dict[int, Any] = {}  # leaves of the auxiliary part that are not arrays, by position

    def aux(self, values: Sequence[Any]) -> Any:
        """The auxiliary part, from the values of its arrays."""
        arrays = iter(values)
        leaves = [self.fixed_aux[index] if index in self.fixed_aux else next(arrays)
                  for index in range(self.aux_tree.num_leaves)]
        return tree_unflatten(self.aux_tree, leaves)

    def __call__(self, *leaves: Any) -> list[Any]:
        result = self.fun(*tree_unflatten(self.in_tree, leaves))
        aux: list[Any] = []
        if self.has_aux:
            if not isinstance(result, (tuple, list)) or len(result) != 2:
                raise TypeError("expected function with aux output to return a two-element tuple, but got type "
                                f"{type(result)}; {self.debug.traced_for} has has_aux=True")
            result, extra = result
            parts, self.aux_tree = tree_flatten(extra)
            aux = [leaf for leaf in parts if is_array_like(leaf)]
            self.fixed_aux = {index: leaf for index, leaf in enumerate(parts) if not is_array_like(leaf)}
        outs, self.out_tree = flatten_outputs(result, self.debug)
        self.num_outs = len(outs)
        return outs + aux


def _checked_tangent(name: str, primal: Any, tangent: Any, path: str) -> Any:
    aval, given = aval_of(primal), tangent
    expected = tangent_aval(aval)
    if expected.is_high:
        if not typematch(aval_of(tangent), expected):
            raise TypeError(f"primal and tangent arguments to {name} do not match; got primal type {aval} but tangent type "
                            f"{aval_of(tangent)}{' at ' + path if path else ''}.")
        return tangent
    if expected.dtype == dtypes.float0:
        dtype = getattr(given, "dtype", None)
        if dtype != dtypes.float0:
            raise TypeError(f"primal and tangent arguments to {name} do not match; dtypes must be equal, or in case of "
                            f"int/bool primal dtype the tangent dtype must be float0. Got primal dtype {aval.dtype} and "
                            f"so expected tangent dtype float0, but got tangent dtype {dtype or type(given)} instead"
                            f"{' at ' + path if path else ''}.")
        return Zero(expected)
    tangent_type = aval_of(tangent)
    if tangent_type.dtype != expected.dtype:
        raise TypeError(f"primal and tangent arguments to {name} do not match; dtypes must be equal. Got primal dtype "
                        f"{aval.dtype} but tangent dtype {tangent_type.dtype}{' at ' + path if path else ''}.")
    if tangent_type.shape != expected.shape:
        raise ValueError(f"{name} called with different primal and tangent shapes;Got primal shape {aval.shape} and "
                         f"tangent shape as {tangent_type.shape}{' at ' + path if path else ''}.")
    return placement.laid_out_as(tangent, primal) if layouts.exist else tangent


def _as_output(value: Any) -> Any:
    if high_types.exist and aval_of(value).is_high:
        return value
    return value if getattr(value, "dtype", None) == dtypes.float0 else as_array(value)  # float0 has no device arrays


@boundary
def jvp(fun: Callable, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """The value of a function and its derivative along a direction.

    Args:
      fun: a function of pytrees of arrays.
      primals, tangents: tuples of arguments and of directions, of equal trees, shapes and dtypes (float0 for integers).
      has_aux: whether `fun` returns (output, auxiliary data), of which only the first is differentiated.
    Returns: (output, its tangent), and the auxiliary data.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> jaxlite.jvp(lambda x: x ** 2, (3.0,), (1.0,))
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))
    """
    check_callable(fun)
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError("primal and tangent arguments to jaxlite.jvp must be tuples or lists; found "
                        f"{type(primals).__name__} and {type(tangents).__name__}.")
    leaves, tree = tree_flatten(tuple(primals))
    directions, direction_tree = tree_flatten(tuple(tangents))
    if tree != direction_tree or isinstance(primals, list) != isinstance(tangents, list):
        raise TypeError("primal and tangent arguments to jaxlite.jvp must have the same tree structure; primals have "
                        f"tree structure {tree_structure(primals)} whereas tangents have tree structure "
                        f"{tree_structure(tangents)}.")
    paths = [keystr(path) for path, _ in tree_flatten_with_path(tuple(primals))[0]]
    directions = [_checked_tangent("jaxlite.jvp", leaf, direction, path)
                  for leaf, direction, path in zip(leaves, directions, paths, strict=True)]
    flat = _Flat(fun, tree, _debug("jvp", fun), has_aux)
    outs, tangents_out = jvp_flat(flat, leaves, directions, flat.debug)
    count = flat.num_outs
    out = tree_unflatten(flat.out_tree, [_as_output(each) for each in outs[:count]])
    tangent = tree_unflatten(flat.out_tree, [_as_output(instantiate(each)) for each in tangents_out[:count]])
    return (out, tangent, flat.aux(outs[count:])) if has_aux else (out, tangent)


@boundary
def linearize(fun: Callable, *primals: Any, has_aux: bool = False, in_nzs: Any = None) -> Any:
    """The value of a function at a point, and its linear map of tangents there.

    Args: `in_nzs` a bool, or a tuple of them with the tree of the arguments: whose tangents may be other than zero.
    Returns: (output, function of tangents), and the auxiliary data if `has_aux`. The function does not compute
    `fun` again. It is a pytree of the values that it keeps, so it may go in and out of transformed functions. Its attribute
    `out_nzs` says which tangents of the output may be other than zero.

    >>> import jaxlite
    >>> y, push = jaxlite.linearize(lambda x: x ** 2, 3.0)
    >>> push(1.0)
    Array(6., dtype=float32, weak_type=True)
    """
    check_callable(fun)
    leaves, tree = tree_flatten(primals)
    flat = _Flat(fun, tree, _debug("linearize", fun), has_aux)
    varied = marks_of("linearize", "in_nzs", True if in_nzs is None else in_nzs, tree)
    nonzero = [flag and not has_no_tangents(tangent_aval(aval_of(leaf))) for flag, leaf in zip(varied, leaves, strict=True)]
    with pushing_forward():
        outs, program = linearize_flat(flat, leaves, nonzero, flat.debug)
    count = flat.num_outs
    avals = [aval_of(leaf) for leaf in leaves]
    jaxpr, nonzero_out, out_avals, out_tree = program.jaxpr, program.nonzero[:count], program.out_avals, flat.out_tree
    is_wide = has_wide_types(jaxpr)

    @boundary
    def push(residuals: list[Any], *tangents: Any) -> Any:
        given, given_tree = tree_flatten(tangents)
        if given_tree != tree:
            raise TypeError(f"linearized function called on tangents of the structure {given_tree}, expected {tree}")
        for aval, each in zip(avals, given, strict=True):
            expected, actual = tangent_aval(aval), aval_of(each)
            if expected.is_high and typematch(actual, expected):
                continue
            if (actual.shape, actual.dtype) != (expected.shape, expected.dtype):
                names = [("~" if one.weak_type else "") + ("float0" if one.dtype == dtypes.float0 else one.dtype.name)
                         + f"[{','.join(map(str, one.shape))}]" for one in (actual, aval, expected)]
                raise ValueError("linearized function called on tangent values inconsistent with the original primal values:\n"
                                 f"Got tangent aval {names[0]} for primal aval {names[1]} but expected {names[2]}.")
        with config.enable_x64(True) if is_wide else nullcontext():
            results = iter(eval_jaxpr(jaxpr, residuals, *pick(given, nonzero)))
        tangents_out = [next(results) if flag else zeros_of(tangent_aval(aval))
                        for flag, aval in zip(nonzero_out, out_avals, strict=False)]
        return tree_unflatten(out_tree, tangents_out)

    made: Any = push
    made.out_tree, made.nonzero_out = out_tree, nonzero_out
    apply = Pushforward(push, program.residuals)
    out = tree_unflatten(flat.out_tree, [_as_output(each) for each in outs[:count]])
    return (out, apply, flat.aux(outs[count:])) if has_aux else (out, apply)


# --- reverse mode ------------------------------------------------------------------------------------


def _pull_back(jaxpr: Jaxpr, nonzero_out: list[bool], nonzero: list[bool], avals: list[Any], in_tree: Any, out_tree: Any,
               out_avals: list[Any], residuals: list[Any], cotangent: Any, targets: Sequence[Any]) -> Any:
    given, given_tree = tree_flatten(cotangent)
    if given_tree != out_tree:
        raise ValueError(f"unexpected tree structure of argument to vjp function: got {given_tree}, but expected to match "
                         f"{out_tree}")
    cotangents = []
    for each, aval in zip(given, out_avals, strict=True):
        expected = tangent_aval(aval)
        if type(each) is not Zero and not expected.is_high:
            if expected.dtype == dtypes.float0:
                each = Zero(expected)
            else:
                actual = aval_of(each)
                if (actual.shape, actual.dtype) != (expected.shape, expected.dtype):
                    raise ValueError("unexpected JAX type (e.g. shape/dtype) for argument to VJP function: got "
                                     f"{actual.str_short()}, but expected "
                                     f"{expected.str_short()} because the corresponding output of the "
                                     f"differentiated function had JAX type {aval.str_short()}")
        cotangents.append(each)
    active = pick(cotangents, nonzero_out)
    linear = [Linear(var.aval) for var in jaxpr.invars]
    if targets:
        for each, target in zip(linear, itertools.compress(targets, nonzero), strict=True):
            each.target = target
    results = iter(backward(jaxpr, residuals, linear, active))
    outs = [_as_output(instantiate(next(results))) if flag else zeros_of(cotangent_aval(aval))
            for flag, aval in zip(nonzero, avals, strict=True)]
    return tree_unflatten(in_tree, outs)


def _own_residuals(residuals: list[Any], leaves: list[Any], tree: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Which residuals are arguments themselves: for each residual its argument and leaf, or None; those arguments; the other
    residuals. Of an argument that is a tree there is a tuple of its leaves."""
    positions = {id(leaf): (number, index) for number, (child, start) in enumerate(_children(tree))
                 for index, leaf in enumerate(leaves[start:start + child.num_leaves])
                 if not isinstance(leaf, (int, float, complex))}
    places = [positions.get(id(residual)) for residual in residuals]
    opaque = [each for place, each in zip(places, residuals, strict=True) if place is None]
    return places, _placed(places, residuals, tree), opaque


def _placed(places: list[Any], residuals: list[Any], tree: Any) -> list[Any]:
    """The residuals that are arguments, argument by argument."""
    args_res: list[Any] = [NotNeeded()] * len(tree.children())
    for place, residual in zip(places, residuals, strict=True):
        if place is None:
            continue
        number, index = place
        child = tree.children()[number]
        if treedef_is_leaf(child):
            args_res[number] = residual
        else:
            before = args_res[number] if type(args_res[number]) is tuple else (NotNeeded(),) * child.num_leaves
            args_res[number] = (*before[:index], residual, *before[index + 1:])
    return args_res


def _children(tree: Any) -> Iterator[tuple[Any, int]]:
    """Each argument with the number of its first leaf."""
    start = 0
    for child in tree.children():
        yield child, start
        start += child.num_leaves


def _joined_residuals(places: list[Any], args_res: list[Any], opaque: list[Any], tree: Any) -> list[Any]:
    """The residuals again. Of an argument that is a tree, there is a tuple of its leaves, or the tree in its place."""
    rest, children = iter(opaque), tree.children()

    def found(number: int, index: int) -> Any:
        kept = args_res[number]
        if treedef_is_leaf(children[number]):
            return kept
        return kept[index] if type(kept) is tuple and len(kept) == children[number].num_leaves else tree_leaves(kept)[index]

    return [next(rest) if place is None else found(*place) for place in places]


def _check_restored(function: str, places: list[Any], residuals: list[Any], paths: list[str]) -> None:
    """Raises ValueError where the backward pass needs an argument that was not to be kept, and nobody gave it back."""
    missing = [f"  * the argument at position args{paths[place]} of the differentiated function {function}"
               for place, residual in zip(places, residuals, strict=True) if type(residual) is NotSaveable]
    if missing:
        raise ValueError("the VJP function was applied before restoring its not-saveable residuals.\n\nBecause of "
                         "`saveable_args`, arguments of `jax.vjp` that the backward pass needs were replaced by "
                         "`NotSaveable()` in the attribute `args_res` of the VJP function. Assign them before it is applied:\n"
                         + "\n".join(missing))


def _vjp(name: str, fun: Callable, primals: tuple[Any, ...], has_aux: bool, saveable_args: Any = True,
         in_nzs: Any = True) -> Any:
    check_callable(fun)
    leaves, tree = tree_flatten(primals)
    flat = _Flat(fun, tree, _debug(name, fun), has_aux)
    avals = [aval_of(leaf) for leaf in leaves]
    if any(type(aval) is AbstractRef for aval in avals):
        if name != "vjp":
            raise TypeError(f"{name} cannot differentiate with respect to a Ref-typed argument, because the gradient for a ref "
                            "must itself be accumulated into a ref. Instead, use `jax.vjp` and bind a gradient ref using the "
                            "returned function's `with_refs` method; or close over the Ref, or choose other argnums.")
        return _vjp_of_refs(fun, leaves, avals, tree, has_aux)
    varied = marks_of(name, "in_nzs", in_nzs, tree)
    saveable = marks_of(name, "saveable_args", saveable_args, tree)
    nonzero = [flag and not has_no_tangents(tangent_aval(aval)) for flag, aval in zip(varied, avals, strict=True)]
    outs, program = linearize_flat(flat, leaves, nonzero, flat.debug)
    count = flat.num_outs
    nonzero_out = program.nonzero[:count]
    jaxpr = program.jaxpr.replace(outvars=program.jaxpr.outvars[:sum(nonzero_out)])
    out_avals = [aval_of(out) for out in outs[:count]]
    out_tree = flat.out_tree

    places, args_res, opaque = _own_residuals(program.residuals, leaves, tree)
    is_kept = all(saveable)
    if not is_kept:
        starts = [start for _, start in _children(tree)]
        own = [None if place is None else starts[place[0]] + place[1] for place in places]  # the argument's leaf
        args_res = _placed(places, [residual if at is None or saveable[at] else NotSaveable()
                                    for at, residual in zip(own, program.residuals, strict=True)], tree)

    @boundary
    def pull_back(args_res: list[Any], opaque: list[Any], cotangent: Any, *more: Any, targets: Sequence[Any] = ()) -> Any:
        if more:
            raise TypeError(f"The function returned by `jaxlite.vjp` applied to {flat.debug.func_name} was called with "
                            f"{1 + len(more)} arguments, but takes one, of the structure of the single value that the "
                            "differentiated function returns: for `return x, y` it is called as pull((x_bar, y_bar)).")
        residuals = _joined_residuals(places, args_res, opaque, tree)
        if not is_kept:
            paths = [keystr(path) for path, _ in tree_flatten_with_path(tree_unflatten(tree, range(len(avals))))[0]]
            _check_restored(flat.debug.func_src_info, own, residuals, paths)
        return _pull_back(jaxpr, nonzero_out, nonzero, avals, tree, out_tree, out_avals, residuals, cotangent, targets)

    made: Any = pull_back
    made.in_tree, made.function, made.avals, made.refs = tree, flat.debug.func_src_info, avals, ()
    made.out_tree, made.nonzero_out = out_tree, nonzero_out
    pull = VJP(pull_back, args_res, opaque)
    out = tree_unflatten(flat.out_tree, [_as_output(each) for each in outs[:count]])
    return out, pull, flat.aux(outs[count:]) if has_aux else None


def _vjp_of_refs(fun: Callable, leaves: list[Any], avals: list[Any], tree: Any, has_aux: bool) -> Any:
    """`vjp` where some arguments are Refs: of the function that takes what they hold and gives what they hold in the end."""
    places = [place for place, aval in enumerate(avals) if type(aval) is AbstractRef]

    def values(*args: Any) -> Any:
        given = list(args)
        refs = [ref_methods.new(given[place]) for place in places]
        for place, ref in zip(places, refs, strict=True):
            given[place] = ref
        args = tree_unflatten(tree, given)
        out, aux = fun(*args) if has_aux else (fun(*args), None)
        return (out, [ref[...] for ref in refs]), aux

    source.wraps(fun)(values)
    held = [leaf[...] if type(aval) is AbstractRef else leaf for leaf, aval in zip(leaves, avals, strict=True)]
    (out, last), pull, aux = _vjp("vjp", values, tuple(held), True)
    for place, value in zip(places, last, strict=True):
        leaves[place][...] = value
    inner: Any = pull.func

    @boundary
    def pull_back(args_res: list[Any], opaque: list[Any], cotangent: Any, of_last: list[Any] | None = None,
                  targets: Sequence[Any] = ()) -> Any:
        if of_last is None:
            raise ValueError(f"the argument at position args{paths[places[0]]} of the differentiated function {inner.function} "
                             "is Ref-typed, so its gradient must be accumulated into a ref, but no gradient ref was "
                             "provided. Bind one using the returned function's `with_refs` method.")
        inner_targets = [None if place in places else target for place, target in enumerate(targets)]
        return tree_unflatten(tree, list(inner(args_res, opaque, (cotangent, of_last), targets=inner_targets)))

    paths = [keystr(path) for path, _ in tree_flatten_with_path(tree_unflatten(tree, leaves))[0]]
    made: Any = pull_back
    made.in_tree, made.function, made.avals, made.refs = tree, inner.function, inner.avals, places
    made.out_tree = inner.out_tree.children()[0]
    made.nonzero_out = inner.nonzero_out[:made.out_tree.num_leaves]
    return out, VJP(pull_back, *pull.args), aux


@boundary
def vjp(fun: Callable, *primals: Any, has_aux: bool = False, reduce_axes: Sequence[Any] = (), saveable_args: Any = True,
        in_nzs: Any = None) -> Any:
    """The value of a function, and the map from cotangents of its output to cotangents of its arguments.

    Args:
      saveable_args: a bool, or a tuple of them with the tree of the arguments: which ones the backward pass may keep. In the
        place of others the attribute `args_res` of the function has `NotSaveable()`, to be replaced before it is called.
      in_nzs: such bools: with respect to which ones to differentiate. The cotangents of others are zero. The attribute
        `out_nzs` of the function says which arrays of the output then depend on the arguments.
    Returns: (output, function of a cotangent that gives a tuple, one entry for each argument), and the auxiliary data
    if `has_aux`. Cotangents of integer arguments are of dtype float0. The function is a pytree of the values that it keeps, so
    it may go in and out of transformed functions. Its attribute `with_logs` is the function that gives (cotangents, log), with
    what `custom_vjp` rules log, and its method `with_refs` has the cotangents added to mutable arrays.

    >>> import jaxlite
    >>> y, pull = jaxlite.vjp(lambda x, y: x * y, 3.0, 4.0)
    >>> pull(1.0)
    (Array(4., dtype=float32, weak_type=True), Array(3., dtype=float32, weak_type=True))
    """
    if reduce_axes:
        raise NotImplementedError("reduce_axes argument to vjp is deprecated")
    out, pull, aux = _vjp("vjp", fun, primals, has_aux, saveable_args, True if in_nzs is None else in_nzs)
    return (out, pull, aux) if has_aux else (out, pull)


def fwd_and_bwd(fun: Callable, argnums: int | Sequence[int], has_aux: bool = False, jitted: bool = True) -> tuple[Any, Any]:
    """The forward and the backward pass of a function, as two functions that are compiled separately.

    Args:
      argnums: with respect to which positional arguments: an int, or several for a tuple of cotangents.
      has_aux: whether `fun` returns (output, auxiliary data).
      jitted: whether both passes are compiled.
    Returns: `fwd(*args)`, which gives (output, residuals), and the auxiliary data if `has_aux`; `bwd(residuals, cotangent)`,
      which gives the cotangents of the chosen arguments.

    >>> import jaxlite
    >>> fwd, bwd = jaxlite.fwd_and_bwd(lambda x, y: x * y, argnums=(0, 1))
    >>> y, residuals = fwd(3.0, 4.0)
    >>> bwd(residuals, 1.0)
    (Array(4., dtype=float32, weak_type=True), Array(3., dtype=float32, weak_type=True))
    """
    check_callable(fun)
    argnums = checked_argnums(argnums)

    def fwd(*args: Any, **kwargs: Any) -> Any:
        chosen_fun, chosen = of_chosen(fun, argnums, args, kwargs)
        return vjp(chosen_fun, *chosen, has_aux=has_aux)

    def bwd(residuals: Any, cotangent: Any) -> Any:
        cotangents = residuals(cotangent)
        return cotangents[0] if isinstance(argnums, int) else cotangents

    return (jit(fwd), jit(bwd)) if jitted else (fwd, bwd)


def checked_argnums(argnums: Any) -> int | tuple[int, ...]:
    """An int, or a tuple of ints. Raises: TypeError for what is neither."""
    try:
        return operator.index(argnums)
    except TypeError:
        return tuple(map(operator.index, argnums))


def _argnums(argnums: Any, count: int, error: type[Exception]) -> tuple[int, ...]:
    nums = (argnums,) if isinstance(argnums, int) else argnums
    for num in nums:
        if not -count <= num < count:
            raise (ValueError if num < 0 else error)(
                f"differentiating with respect to argnums={argnums} requires at least "
                f"{max(num + 1 if num >= 0 else -num for num in nums)} positional arguments to be passed by "
                f"the caller, but got only {count} positional arguments.")
    found = tuple(num % count for num in nums)
    if len(set(found)) < len(found):
        raise TypeError(f"argnums={argnums} names one of the {count} positional arguments twice")
    return found


def of_chosen(fun: Callable, argnums: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
              error: type[Exception] = TypeError) -> tuple[Callable, tuple[Any, ...]]:
    """The function of the chosen positional arguments, the others fixed; and the chosen arguments.

    Raises: an error of the class given for an argument that is not there.
    """
    nums = _argnums(argnums, len(args), error)

    def chosen(*values: Any) -> Any:
        full = list(args)
        for num, value in zip(nums, values, strict=True):
            full[num] = value
        return fun(*full, **kwargs)

    source.wraps(fun)(chosen)
    return chosen, tuple(args[num] for num in nums)


def _check_input(name: str, x: Any, holomorphic: bool, allow_int: bool) -> None:
    if not is_array_like(x):
        raise TypeError(f"Argument '{x}' of type {type(x)} is not a valid JAX type")
    if aval_of(x).is_high:
        if aval_of(x).has_qdd:
            raise TypeError(f"{name} cannot differentiate with respect to a mutable value, of type {aval_of(x)}: choose "
                            "other argnums, or pass what it holds")
        return
    kind = dtypes.kind(aval_of(x).dtype)
    if holomorphic:
        if kind != "c":
            raise TypeError(f"{name} with holomorphic=True requires inputs with complex dtype, but got {aval_of(x).dtype}.")
    elif kind not in "fc" and name != "jacfwd":
        if not allow_int:
            raise TypeError(f"{name} requires real- or complex-valued inputs (input dtype that is a sub-dtype of "
                            f"np.inexact), but got {aval_of(x).dtype}. If you want to use Boolean- or integer-valued inputs, "
                            "use vjp or set allow_int to True.")
    elif kind != "f" and name == "jacfwd":  # one real direction does not give the derivative along both parts of a complex
        raise TypeError(f"{name} requires real-valued inputs (input dtype that is a sub-dtype of np.floating), but got "
                        f"{aval_of(x).dtype}. For holomorphic differentiation, pass holomorphic=True. For differentiation of "
                        "non-holomorphic functions involving complex inputs or integer inputs, use jvp directly.")


@boundary
def value_and_grad(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False,
                   allow_int: bool = False, reduce_axes: Sequence[Any] = ()) -> Callable:
    """A function that computes the value of a scalar function and its gradient; arguments are as in `grad`."""
    if reduce_axes:
        raise NotImplementedError("reduce_axes argument to grad is deprecated")
    check_callable(fun)
    argnums = checked_argnums(argnums)

    @source.wraps(fun)
    @boundary
    def value_and_grad_f(*args: Any, **kwargs: Any) -> Any:
        chosen_fun, chosen = of_chosen(fun, argnums, args, kwargs)
        for leaf in tree_leaves(chosen):
            _check_input("grad", leaf, holomorphic, allow_int)
        out, pull, aux = _vjp("grad", chosen_fun, chosen, has_aux)
        aval = _scalar_output(out, holomorphic)
        with _room_for(aval):
            gradient = pull(shaping.convert(1, aval.dtype, aval.weak_type))
        gradient = gradient[0] if isinstance(argnums, int) else gradient
        return ((out, aux), gradient) if has_aux else (out, gradient)

    return value_and_grad_f


def _room_for(aval: Any) -> AbstractContextManager[None]:
    """The backward pass of what ran in 64 bits, inside an `enable_x64` block, runs in them too."""
    return nullcontext() if dtypes.canonicalize_dtype(aval.dtype) == aval.dtype else config.enable_x64(True)


def _scalar_output(out: Any, holomorphic: bool) -> Any:
    if not is_array_like(out):
        raise TypeError(f"Gradient only defined for scalar-output functions. Output was: {out}.")
    aval = aval_of(out)
    if aval.shape:
        raise TypeError(f"Gradient only defined for scalar-output functions. Output had shape: {aval.shape}.")
    _check_output("grad", aval.dtype, holomorphic)
    return aval


def _check_output(name: str, dtype: Any, holomorphic: bool) -> None:
    kind = dtypes.kind(dtype)
    if holomorphic and kind != "c":
        raise TypeError(f"{name} with holomorphic=True requires outputs with complex dtype, but got {dtype}.")
    if not holomorphic and kind != "f":
        raise TypeError(f"{name} requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but got "
                        f"{dtype}. For holomorphic differentiation, pass holomorphic=True. For differentiation of "
                        "functions with integer or complex outputs, use vjp directly.")


@boundary
def grad(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False,
         allow_int: bool = False, reduce_axes: Sequence[Any] = ()) -> Callable:
    """A function that computes the gradient of a scalar function.

    Args:
      fun: a function whose output is a scalar; its arguments are pytrees.
      argnums: with respect to which positional arguments: an int, or several for a tuple of gradients.
      has_aux: whether `fun` returns (output, auxiliary data); then the result is (gradient, auxiliary data).
      holomorphic: whether `fun` is a holomorphic function of complex arguments.
      allow_int: whether integer arguments are allowed; their gradients are of dtype float0.
    Raises: TypeError for outputs that are not real scalars, and for inputs that are not differentiable.

    >>> import jaxlite
    >>> jaxlite.grad(lambda x: x ** 3)(2.0)
    Array(12., dtype=float32, weak_type=True)
    """
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)

    @source.wraps(fun)
    @boundary
    def grad_f(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return grad_f


def linear_transpose(fun: Callable, *primals: Any, reduce_axes: Any = ()) -> Callable:
    """The transpose of a linear function: from cotangents of its output to cotangents of its arguments.

    Args:
      primals: arguments, or things with a shape and a dtype; only their types matter.
    """
    check_callable(fun)
    leaves, tree = tree_flatten(primals)
    avals = [abstract(leaf) for leaf in leaves]
    flat = _Flat(fun, tree, _debug("linear_transpose", fun))
    jaxpr, consts = trace_to_jaxpr(flat, avals, flat.debug)
    out_avals: list[Any] = [var.aval for var in jaxpr.outvars]
    given_types, found_types = ([aval.dtype for aval in each] for each in (avals, out_avals))
    if not any(all(dtypes.kind(dtype) in kinds for dtype in (*given_types, *found_types)) for kinds in ("fc", "iu")):
        raise TypeError("linear_transpose only supports [float or complex] -> [float or complex], and integer -> integer "
                        f"functions, but got {given_types} -> {found_types}.")

    jaxpr, consts = without_local_refs(jaxpr, consts) if REF in jaxpr.effects else (jaxpr, consts)
    # What does not depend on the arguments is computed here, also what loops and calls give beside what does.
    known, linear, *_ = partial_eval_jaxpr_nounits(hoist_consts(jaxpr), [*[False] * len(consts), *[True] * len(avals)], True)
    values = eval_jaxpr(known.jaxpr, known.consts, *consts)

    @boundary
    def transposed(values: list[Any], cotangent: Any) -> Any:
        given, given_tree = tree_flatten(cotangent)
        if given_tree != flat.out_tree:
            raise TypeError(f"cotangent tree does not match function output, expected {flat.out_tree} but got {given_tree}")
        for each, aval in zip(given, out_avals, strict=True):
            if (aval_of(each).shape, aval_of(each).dtype) != (aval.shape, aval.dtype):
                raise TypeError(f"cotangent type does not match function output, expected {aval} but got {aval_of(each)}")
        with collecting():
            outs = backward(linear.jaxpr, [], [*values, *map(Linear, avals)], given)[len(values):]
        return tree_unflatten(tree, [_as_output(instantiate(out)) for out in outs])

    return Partial(transposed, values)  # so that a transformed function may give it


