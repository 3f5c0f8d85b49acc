"""Solvers with implicit derivatives: `custom_linear_solve` and `custom_root`.

Both primitives have the traced functions in the param `jaxprs`, and in `const_lengths` the number of operands that each
closes over; these operands come first, in the same order, followed by the operands of the solver. They are lowered as the
solver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import ClosedJaxpr, eval_jaxpr, no_effects
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import hoist_consts
from jaxlite.core.tree import tree_flatten, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.lax.control_flow.bodies import Body, flatten_values, trace_body
from jaxlite.lax.shaping import convert
from jaxlite.traces.jvp import tangent_aval
from jaxlite.traces.linearize import linearize_jaxpr
from jaxlite.traces.transpose import backward_jaxpr

linear_solve_p = Primitive("custom_linear_solve", multiple_results=True, memoise=False)
root_p = Primitive("custom_root", multiple_results=True, memoise=False)


def parts(args: Sequence[Any], const_lengths: Sequence[int]) -> list[list[Any]]:
    """The operands of either primitive: the consts of each jaxpr, then the rest."""
    found, start = [], 0
    for length in const_lengths:
        found.append(list(args[start:start + length]))
        start += length
    return [*found, list(args[start:])]


_SOLVE = 1  # the position of the solver among the jaxprs of both


def _effects(jaxprs: tuple[ClosedJaxpr, ...]) -> frozenset[Any]:
    return frozenset().union(no_effects, *(jaxpr.effects for jaxpr in jaxprs))


@linear_solve_p.def_effectful_abstract_eval
def _linear_solve_avals(*avals, jaxprs: tuple[ClosedJaxpr, ...], const_lengths: tuple[int, ...]):
    # The tangent that is solved for may be strongly typed where the solver was traced with weakly typed values.
    sides, outs = avals[sum(const_lengths):], jaxprs[_SOLVE].out_avals
    typed = [out.update(weak_type=side.weak_type) if out.dtype == side.dtype else out
             for out, side in zip(outs, sides, strict=False)]
    return [*typed, *outs[len(sides):]], _effects(jaxprs)


@root_p.def_effectful_abstract_eval
def _root_avals(*avals, jaxprs: tuple[ClosedJaxpr, ...], const_lengths: tuple[int, ...]):
    return jaxprs[_SOLVE].out_avals, _effects(jaxprs)


class _Function:
    """A function of trees that was traced: its jaxpr, with the values that it closes over as leading inputs."""

    def __init__(self, name: str, fun: Callable[..., Any], *trees: tuple[Any, Sequence[Any]]):
        _, in_tree = tree_flatten((tuple(tree_unflatten(tree, avals) for tree, avals in trees), {}))
        body: Body = trace_body(fun, in_tree, [aval for _, avals in trees for aval in avals], name)
        self.jaxpr = hoist_consts(body.jaxpr)
        self.consts, self.out_tree = body.consts, body.out_tree

    @property
    def out_avals(self) -> list[Any]:
        return self.jaxpr.out_avals

    def without_aux(self, name: str, has_aux: bool) -> tuple[Any, list[Any], Any]:
        """The tree and types of x, and the tree of aux, for a function with results (x, aux)."""
        if not has_aux:
            return self.out_tree, self.out_avals, None
        children = self.out_tree.children()
        if len(children) != 2:
            raise ValueError(f"{name} must return a pair (solution, aux) with has_aux=True, got {self.out_tree}")
        return children[0], self.out_avals[:children[0].num_leaves], children[1]


# --- linear systems ----------------------------------------------------------------------------------


def _check_shapes(name: str, avals: Sequence[Any], expected: Sequence[Any]) -> None:
    given, wanted = ([aval.shape for aval in each] for each in (avals, expected))
    if given != wanted:
        raise ValueError(f"{name}() output shapes must match b, got {given} and {wanted}")


@boundary
def custom_linear_solve(matvec: Callable[[Any], Any], b, solve: Callable[[Callable[[Any], Any], Any], Any],
                        transpose_solve: Callable[[Callable[[Any], Any], Any], Any] | None = None,
                        symmetric: bool = False, has_aux: bool = False):
    """The x with matvec(x) = b that a solver finds, differentiated by that equation and not through the solver.

    Args:
      matvec: a linear function of trees like b.
      b: a pytree of arrays.
      solve: `solve(matvec, b)` gives x, and need not be differentiable.
      transpose_solve: `transpose_solve(vecmat, b)` does so for the transposed function; reverse mode needs it.
      symmetric: `matvec` is its own transpose: `solve` solves both.
      has_aux: the solvers give (x, aux); aux has no derivative.
    Returns: x, or (x, aux).
    Raises: ValueError for results that are not shaped as b.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> def halve(b):
    ...     return jaxlite.lax.custom_linear_solve(lambda x: 2 * x, b, lambda f, b: b / 2, symmetric=True)
    >>> print(*jaxlite.value_and_grad(halve)(3.0))
    1.5 0.5
    """
    leaves, tree, avals = flatten_values("b", b)
    functions = [_Function("matvec", matvec, (tree, avals))]
    _check_shapes("matvec", functions[0].out_avals, avals)
    if functions[0].out_tree != tree:
        raise TypeError(f"matvec() output pytree structure must match b, got {functions[0].out_tree} and {tree}.")
    transposed = functions[0]
    if transpose_solve is not None and not symmetric:
        transposed = _transposed(functions[0], tree, avals)

    def solver(name: str, solve: Callable, function) -> tuple[_Function, Any, Any]:
        traced = _Function(name, lambda b: solve(function, b), (tree, avals))
        x_tree, x_avals, aux_tree = traced.without_aux(name, has_aux)
        _check_shapes(name, x_avals, avals)
        if x_tree != tree:
            raise TypeError(f"{name}() output pytree structure must match b, got {x_tree} and {tree}.")
        return traced, x_tree, aux_tree

    solving, x_tree, aux_tree = solver("solve", solve, matvec)
    functions.append(solving)
    if symmetric:
        functions += functions
    elif transpose_solve is not None:

        def vecmat(x):
            values, _, _ = flatten_values("the argument of vecmat", x)
            return tree_unflatten(tree, eval_jaxpr(transposed.jaxpr.jaxpr, [], *transposed.consts, *values))

        functions += [transposed, solver("transpose_solve", transpose_solve, vecmat)[0]]
    return _solution(linear_solve_p, functions, leaves, x_tree, aux_tree if has_aux else None)


def _solution(primitive: Primitive, functions: Sequence[_Function], leaves: Sequence[Any], tree, aux_tree):
    """What a solver gives for operands, with auxiliary values if these have a tree."""
    outs = primitive.bind(*[const for function in functions for const in function.consts], *leaves,
                          jaxprs=tuple(function.jaxpr for function in functions),
                          const_lengths=tuple(len(function.consts) for function in functions))
    x = tree_unflatten(tree, outs[:len(leaves)])
    return x if aux_tree is None else (x, tree_unflatten(aux_tree, outs[len(leaves):]))


def _transposed(function: _Function, tree, avals: Sequence[Any]) -> _Function:
    """The transpose of a linear function."""
    count = len(avals)
    known = len(function.consts)
    jaxpr, consts, *_ = backward_jaxpr(function.jaxpr, [False] * known + [True] * count, [True] * count, [True] * count)
    jaxpr = ClosedJaxpr(jaxpr.jaxpr.replace(outvars=jaxpr.jaxpr.outvars[:count]), jaxpr.consts)  # a solver logs nothing
    result = object.__new__(_Function)
    result.jaxpr, result.consts, result.out_tree = jaxpr, [*consts, *function.consts], tree
    return result


# --- roots -------------------------------------------------------------------------------------------


@boundary
def custom_root(f: Callable[[Any], Any], initial_guess, solve: Callable[[Callable[[Any], Any], Any], Any],
                tangent_solve: Callable[[Callable[[Any], Any], Any], Any], has_aux: bool = False):
    """The x with f(x) = 0 that a solver finds, differentiated by that equation and not through the solver.

    Args:
      f: a function of trees like the guess. Derivatives are with respect to what it closes over.
      initial_guess: a pytree of arrays.
      solve: `solve(f, initial_guess)` gives x, and need not be differentiable.
      tangent_solve: `tangent_solve(g, y)` gives the x with g(x) = y, for f linearized at its root, g. For scalars
        `lambda g, y: y / g(1.0)`, for vectors `lambda g, y: jnp.linalg.solve(jacobian(g)(y), y)`.
      has_aux: the solver gives (x, aux); aux has no derivative.
    Returns: x, or (x, aux).
    Raises: TypeError for results that have not the tree of the guess.

    >>> import jaxlite
    >>> from jaxlite import lax
    >>> def root(square):
    ...     newton = lambda f, x: lax.fori_loop(0, 5, lambda _, x: x - f(x) / (2 * x), x)
    ...     return lax.custom_root(lambda x: x * x - square, 1.0, newton, lambda g, y: y / g(1.0))
    >>> print(*jaxlite.value_and_grad(root)(4.0))
    2.0 0.25
    """
    leaves, tree, avals = flatten_values("initial_guess", initial_guess)
    residual = _Function("f", f, (tree, avals))
    _check_tree("f", residual.out_tree, tree, "initial_guess")
    solving = _Function("solve", lambda x: solve(f, x), (tree, avals))
    x_tree, x_avals, aux_tree = solving.without_aux("solve", has_aux)
    _check_tree("solve", x_tree, tree, "initial_guess")
    # A guess of integers or of a weak type may have a root that is neither: f is linearized there.
    residual = _Function("f", f, (tree, x_avals))
    tangents = [tangent_aval(aval) for aval in x_avals]

    def solve_tangent(x, y):
        values, known = tree_flatten(x)[0], residual.consts
        split = linearize_jaxpr(residual.jaxpr, [False] * len(known) + [True] * len(values), True)
        outs = eval_jaxpr(split.primal.jaxpr, split.primal.consts, *split.consts, *known, *values)
        residuals = split.residuals(outs, [*known, *values])

        def linear(y):
            dots = [convert(dot, aval.dtype) if aval_of(dot).dtype != aval.dtype else dot
                    for dot, aval in zip(tree_flatten(y)[0], tangents, strict=True)]
            return tree_unflatten(tree, eval_jaxpr(split.tangent.jaxpr, split.tangent.consts, *residuals, *dots))

        return tangent_solve(linear, y)

    solving_tangent = _Function("tangent_solve", solve_tangent, (tree, x_avals),
                                (tree, [tangent_aval(aval) for aval in residual.out_avals]))
    _check_tree("tangent_solve", solving_tangent.out_tree, tree, "x")
    functions = (residual, solving, solving_tangent)
    return _solution(root_p, functions, leaves, tree, aux_tree if has_aux else None)


def _check_tree(name: str, given, wanted, what: str) -> None:
    if given != wanted:
        raise TypeError(f"{name}() output pytree structure must match {what}, got {given} and {wanted}.")
