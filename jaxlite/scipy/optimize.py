"""jaxlite.scipy.optimize: minimization of smooth functions by the method of Broyden, Fletcher, Goldfarb and Shanno.

Algorithms are those of J. Nocedal and S. Wright, Numerical Optimization (2006): BFGS is 6.1, the line search 3.5 and 3.6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core.filtering import boundary
from jaxlite.core.tree import tree_map
from jaxlite.numpy.api import promote_dtypes_inexact
from jaxlite.transforms.derivatives import value_and_grad

__all__ = ["OptimizeResults", "minimize"]
__dir__ = lambda: __all__


class OptimizeResults(NamedTuple):
    """The result of a minimization.

    Attributes: the point `x`; whether the gradient there is small, `success`; `status`: 0 for that, 1 for too many
    iterations, 3 for a line search that found no better point; the value `fun`, gradient `jac` and approximate inverse
    Hessian `hess_inv` at x; how many values, gradients and iterations were made: `nfev`, `njev`, `nit`.
    """

    x: Any
    success: Any
    status: Any
    fun: Any
    jac: Any
    hess_inv: Any
    nfev: Any
    njev: Any
    nit: Any


class _Point(NamedTuple):
    """A step along the direction of search, with the value, slope and gradient there."""

    step: Any
    value: Any
    slope: Any
    gradient: Any


def _choose(condition, one: _Point, other: _Point) -> _Point:
    return _Point(*(jnp.where(condition, a, b) for a, b in zip(one, other, strict=True)))


_DECREASE, _CURVATURE = 1e-4, 0.9  # what the strong Wolfe conditions ask of a step


def _line_search(measure: Callable[[Any], _Point], start: _Point, first, limit: int) -> tuple[_Point, Any, Any]:
    """A step with the strong Wolfe conditions. Gives it, whether it was found, and how many points were measured.

    The step starts at `first` and grows until an interval is known to hold such a step; then the interval shrinks.
    """

    def unfinished(state):
        *_, is_done, count = state
        return ~is_done & (count < limit)

    def advance(state):
        low, high, trial, is_bracketed, _, count = state
        point = measure(trial)
        # Comparisons with what is not a number count as too high.
        too_high = ~(point.value <= start.value + _DECREASE * point.step * start.slope) | ~(
            (point.value < low.value) | (~is_bracketed & (count == 0)))
        is_done = ~too_high & (jnp.abs(point.slope) <= -_CURVATURE * start.slope)
        # `low` is the best end of the interval; the other end is where the value, or the slope, rises.
        turns = jnp.where(is_bracketed, point.slope * (high.step - low.step) >= 0, point.slope >= 0)
        high = _choose(too_high, point, _choose(turns, low, high))
        is_bracketed = is_bracketed | too_high | turns
        low = _choose(too_high & ~is_done, low, point)
        width = high.step - low.step
        # The minimum of the parabola through both values and the slope at the low end, kept off the ends.
        guess = -low.slope * width * width / (2 * (high.value - low.value - low.slope * width))
        share = jnp.where(jnp.isfinite(guess), guess / width, 0.5)
        inner = low.step + jnp.clip(share, 0.1, 0.9) * width
        return low, high, jnp.where(is_bracketed, inner, 2 * point.step), is_bracketed, is_done, count + 1

    state = start, start, first, jnp.asarray(False), jnp.asarray(False), 0
    low, _, _, _, is_done, count = lax.while_loop(unfinished, advance, state)
    # A point that is lower is taken, even where its slope is still steep.
    return low, is_done | (low.value < start.value), count


def _bfgs(fun: Callable[[Any], Any], x0, *, gtol: float = 1e-5, maxiter: int | None = None, norm: float = np.inf,
          line_search_maxiter: int = 20) -> OptimizeResults:
    size = x0.size
    limit = 200 * size if maxiter is None else maxiter
    evaluate = value_and_grad(fun)
    identity = jnp.eye(size, dtype=x0.dtype)
    return _descend(
        evaluate, x0, identity, lambda inverse, gradient: inverse @ gradient, _bfgs_update, lambda inverse: inverse,
        gtol, limit, norm, line_search_maxiter)


def _bfgs_update(inverse, s, y, rho, is_first):
    # (6.20): the identity on the scale of the function where that is far from 1: what the step learns is lost beside it.
    curvature = jnp.where(rho > 0, rho * (y @ y), 1)
    is_far = (curvature > 1e4) | (curvature < 1e-4)
    inverse = jnp.where(is_first & is_far, inverse / curvature, inverse)
    left = jnp.eye(s.size, dtype=s.dtype) - rho * jnp.outer(s, y)
    return left @ inverse @ left.T + rho * jnp.outer(s, s)


class _History(NamedTuple):
    """The last steps, the changes of the gradient along them, and 1 / (s @ y); zeros where there is none yet."""

    steps: Any
    changes: Any
    rhos: Any


def _recent_product(history: _History, gradient):
    """The approximate inverse Hessian of the last steps times a vector: algorithm 7.4."""

    def back(q, row):
        s, y, rho = row
        alpha = rho * (s @ q)
        return q - alpha * y, alpha

    q, alphas = lax.scan(back, gradient, history, reverse=True)
    s, y, rho = history.steps[-1], history.changes[-1], history.rhos[-1]
    scale = jnp.where(rho > 0, (s @ y) / jnp.where(rho > 0, y @ y, 1), 1)

    def forth(r, row):
        (s, y, rho), alpha = row
        return r + s * (alpha - rho * (y @ r)), None

    return lax.scan(forth, scale * q, (history, alphas))[0]


def _remember(history: _History, s, y, rho, is_first) -> _History:
    return _History(*(jnp.concatenate([old[1:], new[None]]) for old, new in zip(history, (s, y, rho), strict=True)))


def _lbfgs(fun: Callable[[Any], Any], x0, *, gtol: float = 1e-5, maxiter: int | None = None, norm: float = np.inf,
           maxcor: int = 10, maxls: int = 20) -> OptimizeResults:
    size = x0.size
    pairs = jnp.zeros((maxcor, size), x0.dtype)
    history = _History(pairs, pairs, jnp.zeros(maxcor, x0.dtype))
    return _descend(value_and_grad(fun), x0, history, _recent_product, _remember, lambda history: None, gtol,
                    200 * size if maxiter is None else maxiter, norm, maxls)


def _descend(evaluate: Callable[[Any], Any], x0, inverse, apply: Callable[[Any, Any], Any], update: Callable[..., Any],
             hessian: Callable[[Any], Any], gtol, limit, norm, line_search_maxiter: int) -> OptimizeResults:
    """Steps along -(inverse Hessian) @ gradient, in whatever form the inverse Hessian is kept."""

    def is_flat(gradient):
        return jnp.linalg.norm(gradient, ord=norm) < gtol

    def unfinished(state):
        _, _, _, gradient, _, has_failed, _, iterations = state
        return ~is_flat(gradient) & ~has_failed & (iterations < limit)

    def improve(state):
        x, value, previous, gradient, inverse, _, count, iterations = state
        direction = -apply(inverse, gradient)

        def measure(step) -> _Point:
            value, gradient = evaluate(x + step * direction)
            return _Point(step, value, gradient @ direction, gradient)

        start = _Point(jnp.zeros_like(value), value, gradient @ direction, gradient)
        expected = 2.02 * (value - previous) / start.slope  # (3.60): as much lower as the last step went
        first = jnp.where((expected > 0) & (expected < 1), expected, 1).astype(value.dtype)
        found, is_found, tried = _line_search(measure, start, first, line_search_maxiter)
        s, y = found.step * direction, found.gradient - gradient
        curvature = s @ y
        is_convex = curvature > 0  # else the update would not stay positive definite
        rho = jnp.where(is_convex, 1 / jnp.where(is_convex, curvature, 1), 0)
        updated = update(inverse, s, y, rho, iterations == 0)
        inverse = tree_map(lambda new, old: jnp.where(is_convex, new, old), updated, inverse)
        return x + s, found.value, value, found.gradient, inverse, ~is_found, count + tried, iterations + 1

    value, gradient = evaluate(x0)
    before = value + jnp.linalg.norm(gradient) / 2  # the first step has about unit length
    state = x0, value, before, gradient, inverse, jnp.asarray(False), 1, 0
    x, value, _, gradient, inverse, has_failed, count, iterations = lax.while_loop(unfinished, improve, state)
    success = is_flat(gradient)
    status = jnp.where(success, 0, jnp.where(has_failed, 3, 1))
    return OptimizeResults(x, success, status, value, gradient, hessian(inverse), count, count, iterations)


_METHODS: dict[str, Callable[..., OptimizeResults]] = {"bfgs": _bfgs, "l-bfgs-experimental-do-not-rely-on-this": _lbfgs}


@boundary
def minimize(fun: Callable[..., Any], x0, args: tuple[Any, ...] = (), *, method: str, tol: float | None = None,
             options: Mapping[str, Any] | None = None) -> OptimizeResults:
    """Find a minimum of a function of a vector.

    Args:
      fun: `fun(x, *args)`, differentiable, gives a scalar.
      x0: where to start, (n,).
      args: what the function takes besides.
      method: 'BFGS', or 'l-bfgs-experimental-do-not-rely-on-this', which keeps the last steps instead of a matrix; its
        `hess_inv` is None.
      tol: how small the gradient has to become; `gtol` of the options.
      options: `gtol` (1e-5), `norm` (of the gradient: infinity), `maxiter` (200 n), `line_search_maxiter` (20);
        for the second method `maxls` (20) and `maxcor`, how many steps are kept (10), instead of the last.
    Returns: OptimizeResults.
    Raises: ValueError for another method and for an x0 that is not a vector; TypeError for options that are not there.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.scipy.optimize import minimize
    >>> print(minimize(lambda x: jnp.sum((x - 1) ** 2), jnp.zeros(2), method="BFGS").x)
    [1. 1.]
    """
    if not isinstance(args, tuple):
        raise TypeError(f"args argument to minimize must be a tuple, got {args}")
    if method.lower() not in _METHODS:
        raise ValueError(f"Method {method} not recognized")
    (x0,) = promote_dtypes_inexact(jnp.asarray(x0))
    if x0.ndim != 1:
        raise ValueError(f"minimize: x0 must be a vector (n,), got shape {x0.shape}")
    settings = dict(options or {})
    if tol is not None:
        settings.setdefault("gtol", tol)
    return _METHODS[method.lower()](lambda x: fun(x, *args), jnp.asarray(x0), **settings)
