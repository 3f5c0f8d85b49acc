"""Initial value problems: an adaptive Runge-Kutta method, differentiable by the adjoint equation.

The method is Dormand and Prince's of order 5 with an error estimate of order 4 (J. R. Dormand and P. J. Prince, 1980); the step
size follows E. Hairer, S. P. Norsett and G. Wanner, "Solving Ordinary Differential Equations I", section II.4. Gradients solve
the adjoint equation backwards in time (R. T. Q. Chen et al., "Neural Ordinary Differential Equations", 2018), so that memory
does not grow with the number of steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import jaxlite.api_util as api_util  # noqa: F401  bijx names it from here
from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.core.filtering import boundary
from jaxlite.core.tree import tree_leaves, tree_map
from jaxlite.numpy.api import promote_dtypes_inexact
from jaxlite.transforms.custom_derivatives import closure_convert, custom_vjp
from jaxlite.transforms.derivatives import vjp
from jaxlite.transforms.ravel import ravel_pytree
from jaxlite.transforms.vmap import vmap

__all__ = ["abs2", "fit_4th_order_polynomial", "initial_step_size", "interp_fit_dopri", "mean_error_ratio", "odeint",
           "optimal_step_size", "ravel_first_arg", "runge_kutta_step"]
__dir__ = lambda: __all__

# Dormand and Prince's tableau: stages at the times ALPHA, row i of BETA gives stage i + 1. SOLUTION is the last row of BETA,
# ERROR its difference to the method of order 4, MIDDLE the solution half a step on (Shampine, 1986).
_ALPHA = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_BETA = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_SOLUTION = (*_BETA[-1], 0.0)
_ERROR = (35 / 384 - 1951 / 21600, 0.0, 500 / 1113 - 22642 / 50085, 125 / 192 - 451 / 720, -2187 / 6784 + 12231 / 42400,
          11 / 84 - 649 / 6300, -1 / 60)
_MIDDLE = (6025192743 / 30085553152 / 2, 0.0, 51252292925 / 65400821598 / 2, -2691868925 / 45128329728 / 2,
           187940372067 / 1594534317056 / 2, -1776094331 / 19743644256 / 2, 11237099 / 235043384 / 2)


class _State(NamedTuple):
    """Between steps: y, y' and the time of the last step's end, the size of the next one, the last step's start and its
    interpolating polynomial."""

    y: Any
    slope: Any
    time: Any
    step: Any
    before: Any
    polynomial: Any


@boundary
def odeint(func: Callable, y0: Any, t: Any, *args: Any, rtol: float = 1.4e-8, atol: float = 1.4e-8,
           mxstep: float = np.inf, hmax: float = np.inf) -> Any:
    """Solve y' = func(y, t, *args), y(t[0]) = y0, with steps of a size that keeps the local error small.

    Args:
      func: gives the derivative of y, of the structure and shapes of `y0`.
      y0: the initial state, a pytree of floating-point arrays.
      t: (n,), the times at which the solution is wanted, increasing strictly.
      args: further arguments of `func`, pytrees of arrays.
      rtol, atol: the relative and absolute local error that a step may make.
      mxstep: the most steps between two times.
      hmax: the largest step.
    Returns: y at each time: a pytree like `y0` with a leading axis of length n.
    Raises: TypeError for leaves of `args` and times that are not arrays of numbers.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.experimental.ode import odeint
    >>> [f"{y:.3f}" for y in odeint(lambda y, t: -y, 1.0, jnp.array([0.0, 1.0, 2.0])).tolist()]
    ['1.000', '0.368', '0.135']
    """
    for value in tree_leaves(args):
        if not hasattr(value, "dtype") and not isinstance(value, (bool, int, float, complex)):
            raise TypeError(f"The contents of odeint *args must be arrays or scalars, but got {value!r}.")
    if not dtypes.issubdtype(jnp.result_type(t), np.floating):
        raise TypeError(f"t must be an array of floats, but got {t!r}.")
    converted, consts = closure_convert(func, y0, t[0], *args)
    return _solve(converted, rtol, atol, mxstep, hmax, y0, t, *args, *consts)


def ravel_first_arg(f: Callable, unravel: Callable, debug_info: Any = None) -> Callable:
    """A function of a vector, and further arguments, that gives a vector: `f` of the tree that the vector stands for."""
    flat = lambda y, *args: ravel_pytree(f(unravel(y), *args))[0]
    flat.__name__ = getattr(f, "__name__", "func")
    return flat


def _solve(func: Callable, rtol: float, atol: float, mxstep: float, hmax: float, y0: Any, ts: Any, *args: Any) -> Any:
    y0, unravel = ravel_pytree(y0)
    flat = ravel_first_arg(func, unravel)
    out = _odeint(flat, rtol, atol, mxstep, hmax, y0, ts, *args)
    return vmap(unravel)(out)


@functools.partial(custom_vjp, nondiff_argnums=(0, 1, 2, 3, 4))
def _odeint(func: Callable, rtol: float, atol: float, mxstep: float, hmax: float, y0: Any, ts: Any, *args: Any) -> Any:
    y0 = y0 if jnp.issubdtype(y0.dtype, np.inexact) else promote_dtypes_inexact(y0, ts)[0]
    slope_at = lambda y, t: func(y, t, *args)

    def advance(state: _State, target: Any) -> tuple[_State, Any]:
        def unfinished(carry: Any) -> Any:
            count, state = carry
            return (state.time < target) & (count < mxstep) & (state.step > 0)

        def one(carry: Any) -> Any:
            count, state = carry
            return count + 1, _step(slope_at, state, rtol, atol, hmax)

        _, state = lax.while_loop(unfinished, one, (0, state))
        fraction = ((target - state.before) / (state.time - state.before)).astype(y0.dtype)
        return state, jnp.polyval(state.polynomial, fraction)

    slope = slope_at(y0, ts[0])
    step = jnp.clip(initial_step_size(slope_at, ts[0], y0, 4, rtol, atol, slope), 0.0, hmax).astype(ts.dtype)
    start = _State(y0, slope, ts[0], step, ts[0], jnp.stack([y0] * 5))
    _, ys = lax.scan(advance, start, ts[1:])
    return jnp.concatenate([y0[None], ys])


def _step(slope_at: Callable, state: _State, rtol: float, atol: float, hmax: float) -> _State:
    """One step, taken if its error is small enough, and the size of the next."""
    new, slope, error, stages = runge_kutta_step(slope_at, state.y, state.slope, state.time, state.step)
    ratio = mean_error_ratio(error, rtol, atol, state.y, new)
    step = jnp.clip(optimal_step_size(state.step, ratio), 0.0, hmax).astype(state.step.dtype)
    polynomial = interp_fit_dopri(state.y, new, stages, state.step)
    taken = _State(new, slope, state.time + state.step, step, state.time, polynomial)
    refused = state._replace(step=step)
    return tree_map(functools.partial(jnp.where, ratio <= 1), taken, refused)


def runge_kutta_step(func: Callable, y0: Any, f0: Any, t0: Any, dt: Any) -> tuple[Any, Any, Any, Any]:
    """One step of Dormand and Prince's method.

    Args:
      func: gives the slope at (y, t).
      y0, f0: the state and its slope at the time t0.
      t0, dt: where the step starts, and its size.
    Returns: the state and its slope at the end, an estimate of the error, and the slopes of the seven stages, stacked.

    >>> y, *_ = runge_kutta_step(lambda y, t: -y, jnp.ones(()), -jnp.ones(()), 0.0, 0.1)
    >>> print(f"{y:.6f}")
    0.904837
    """
    h = jnp.asarray(dt, y0.dtype)
    stages = [f0]
    for alpha, row in zip(_ALPHA, _BETA, strict=True):
        stages.append(func(y0 + h * _combined(row, stages), t0 + dt * alpha))
    return y0 + h * _combined(_SOLUTION, stages), stages[-1], h * _combined(_ERROR, stages), jnp.stack(stages)


def mean_error_ratio(error_estimate: Any, rtol: float, atol: float, y0: Any, y1: Any) -> Any:
    """The root of the mean square of an error over what is allowed, for a step from y0 to y1."""
    allowed = atol + rtol * jnp.maximum(jnp.abs(y0), jnp.abs(y1))
    return jnp.sqrt(jnp.mean(abs2(error_estimate / allowed)))


def optimal_step_size(last_step: Any, mean_error_ratio: Any, safety: float = 0.9, ifactor: float = 10.0, dfactor: float = 0.2,
                      order: float = 5.0) -> Any:
    """The size of the next step, for the ratio of the last one's error to what is allowed.

    Args:
      safety, ifactor, dfactor: a factor for caution; the largest and the smallest ratio of the sizes of two steps.
      order: of the method.
    """
    smallest = jnp.where(mean_error_ratio < 1, 1.0, dfactor)
    factor = jnp.clip(safety * mean_error_ratio ** (-1 / order), smallest, ifactor)
    return jnp.where(mean_error_ratio == 0, ifactor, factor) * last_step


def _combined(weights: tuple[float, ...], stages: Any) -> Any:
    return sum(weight * stage for weight, stage in zip(weights, stages, strict=True) if weight)


def interp_fit_dopri(y0: Any, y1: Any, k: Any, dt: Any) -> Any:
    """The polynomial that interpolates a step: coefficients for times from 0 to 1, highest first.

    Args:
      y0, y1, k: the states at both ends, and the slopes of the stages, as `runge_kutta_step` gives them.
      dt: the size of the step.
    """
    h = jnp.asarray(dt, y0.dtype)
    return fit_4th_order_polynomial(y0, y1, y0 + h * _combined(_MIDDLE, k), k[0], k[-1], h)


def fit_4th_order_polynomial(y0: Any, y1: Any, y_mid: Any, dy0: Any, dy1: Any, dt: Any) -> Any:
    """Coefficients of the polynomial on [0, 1], highest first, with these values at 0, 1 and 1/2, and slopes at 0 and 1.

    The slopes are those over a time of `dt`.
    """
    d0, d1 = dt * dy0, dt * dy1
    a = -2 * d0 + 2 * d1 - 8 * y0 - 8 * y1 + 16 * y_mid
    b = 5 * d0 - 3 * d1 + 18 * y0 + 14 * y1 - 32 * y_mid
    c = -4 * d0 + d1 - 11 * y0 - 5 * y1 + 16 * y_mid
    return jnp.stack([a, b, c, d0, y0])


def abs2(x: Any) -> Any:
    """The square of the modulus."""
    return jnp.real(x) ** 2 + jnp.imag(x) ** 2 if jnp.iscomplexobj(x) else jnp.square(x)


def initial_step_size(fun: Callable, t0: Any, y0: Any, order: float, rtol: float, atol: float, f0: Any) -> Any:
    """The size of the first step of a method of an order (Hairer, Norsett and Wanner, section II.4).

    Args:
      fun: gives the slope at (y, t).
      t0, y0, f0: the first time, the state and its slope then.
      order: of the method that estimates the error.
    """
    scale = atol + jnp.abs(y0) * rtol
    d0, d1 = _size(y0 / scale), _size(f0 / scale)
    trial = jnp.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / jnp.where(d1 == 0, 1, d1))
    d2 = _size((fun(y0 + trial.astype(y0.dtype) * f0, t0 + trial) - f0) / scale) / trial
    largest = jnp.maximum(d1, d2)
    second = jnp.where(largest <= 1e-15, jnp.maximum(1e-6, trial * 1e-3),
                       (0.01 / jnp.where(largest == 0, 1, largest)) ** (1 / (order + 1)))
    return jnp.minimum(100.0 * trial, second)


def _size(x: Any) -> Any:
    return jnp.sqrt(jnp.sum(abs2(x)))


def _forward(func: Callable, rtol: float, atol: float, mxstep: float, hmax: float, y0: Any, ts: Any, *args: Any) -> Any:
    ys = _odeint(func, rtol, atol, mxstep, hmax, y0, ts, *args)
    return ys, (ys, ts, args)


def _backward(func: Callable, rtol: float, atol: float, mxstep: float, hmax: float, residuals: Any, cotangent: Any) -> Any:
    """Solve for state, adjoint, and the integrals of the arguments' cotangents, from each time back to the one before."""
    ys, ts, args = residuals

    def augmented(state: Any, minus_t: Any, *args: Any) -> Any:
        y, adjoint, *_ = state
        slope, pull = vjp(func, y, -minus_t, *args)
        return (-slope, *pull(adjoint))

    def back(carry: Any, index: Any) -> Any:
        adjoint, time_total, args_total = carry
        # The end point moves the solution along its slope.
        slope = func(ys[index], ts[index], *args)
        time_share = jnp.real(jnp.dot(slope, cotangent[index]))
        _, adjoint, time_total, args_total = _solve(
            augmented, rtol, atol, mxstep, hmax, (ys[index], adjoint, time_total - time_share, args_total),
            jnp.array([-ts[index], -ts[index - 1]]), *args)
        adjoint, time_total, args_total = tree_map(lambda x: x[1], (adjoint, time_total, args_total))
        return (adjoint + cotangent[index - 1], time_total, args_total), time_share

    start = cotangent[-1], jnp.zeros_like(ts[0]), tree_map(jnp.zeros_like, args)
    (adjoint, first, args_total), shares = lax.scan(back, start, jnp.arange(len(ts) - 1, 0, -1))
    return (adjoint, jnp.concatenate([first[None], shares[::-1].astype(ts.dtype)]), *args_total)


_odeint.defvjp(_forward, _backward)
