"""First-order optimizers as triples of functions.

An optimizer is `(init_fun, update_fun, get_params)`: `init_fun(params)` gives a state, `update_fun(step, gradient, state)` the
next one, `get_params(state)` the parameters in it. Each is written for one array; `optimizer` makes it work on pytrees.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from jaxlite import numpy as jnp
from jaxlite.core.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten
from jaxlite.core.tree_nodes import register_pytree_node

Array: TypeAlias = Any
Params: TypeAlias = Any
State: TypeAlias = Any
Updates: TypeAlias = Any
Step = int
Schedule = Callable[[Any], Any]

__all__ = [
    "Array", "InitFn", "JoinPoint", "Optimizer", "OptimizerState", "Params", "ParamsFn", "Schedule", "State", "Step",
    "UpdateFn", "Updates", "adagrad", "adam", "adamax", "clip_grads", "constant",
    "exponential_decay", "inverse_time_decay", "l2_norm", "make_schedule", "momentum", "nesterov", "optimizer",
    "pack_optimizer_state", "piecewise_constant", "polynomial_decay", "rmsprop", "rmsprop_momentum", "sgd", "sm3",
    "unpack_optimizer_state",
]
__dir__ = lambda: __all__

# The state of every array, one flat tuple of leaves for all; the tree of the parameters; the tree of each array's state.
OptimizerState = namedtuple("OptimizerState", ["packed_state", "tree_def", "subtree_defs"])
InitFn = Callable[[Params], OptimizerState]
UpdateFn = Callable[[Step, Updates, OptimizerState], OptimizerState]
ParamsFn = Callable[[OptimizerState], Params]
register_pytree_node(OptimizerState, lambda state: ((state.packed_state,), (state.tree_def, state.subtree_defs)),
                     lambda trees, children: OptimizerState(children[0], *trees))


class Optimizer(NamedTuple):
    """The three functions."""

    init_fn: InitFn
    update_fn: UpdateFn
    params_fn: ParamsFn


def optimizer(opt_maker: Callable[..., tuple[Callable, Callable, Callable]]) -> Callable[..., Optimizer]:
    """Decorator: an optimizer of one array becomes one of pytrees of arrays.

    Args: `opt_maker(...)` gives `init(x)`, `update(step, gradient, state)` and `get_params(state)`, where a state is a pytree.

    >>> @optimizer
    ... def descent(step_size):
    ...     return (lambda x: x), (lambda step, gradient, x: x - step_size * gradient), (lambda x: x)
    >>> init, update, get_params = descent(0.1)
    >>> get_params(update(0, {"w": 10.0}, init({"w": 5.0})))
    {'w': 4.0}
    """

    @functools.wraps(opt_maker)
    def made(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        def init_fn(params: Any) -> OptimizerState:
            leaves, tree = tree_flatten(params)
            return _packed([init(leaf) for leaf in leaves], tree)

        def update_fn(step: Any, gradient: Any, state: OptimizerState) -> OptimizerState:
            gradients, tree = tree_flatten(gradient)
            if tree != state.tree_def:
                raise TypeError("optimizer update function was passed a gradient tree that did not match the parameter tree "
                                f"structure with which it was initialized: parameter tree {state.tree_def} and gradient tree "
                                f"{tree}.")
            new = _packed([update(step, own, old) for own, old in zip(gradients, _states(state), strict=True)], tree)
            for which, (was, now) in enumerate(zip(state.subtree_defs, new.subtree_defs, strict=True)):
                if was != now:
                    raise TypeError("optimizer update function produced an output structure that did not match its input "
                                    f"structure: for parameter {which} the input is {was} and the output {now}.")
            return new

        def params_fn(state: OptimizerState) -> Any:
            return tree_unflatten(state.tree_def, [get_params(own) for own in _states(state)])

        return Optimizer(init_fn, update_fn, params_fn)

    return made


def _packed(states: list[Any], tree: Any) -> OptimizerState:
    pairs = [tree_flatten(state) for state in states]
    return OptimizerState(tuple(leaves for leaves, _ in pairs), tree, tuple(own for _, own in pairs))


def _states(state: OptimizerState) -> list[Any]:
    return [tree_unflatten(own, leaves) for own, leaves in zip(state.subtree_defs, state.packed_state, strict=True)]


class JoinPoint:
    """In a tree of optimizer states, marks where the state of one parameter begins: `subtree`."""

    def __init__(self, subtree: Any):
        self.subtree = subtree

    def __iter__(self) -> Any:
        yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """A state as a tree like the parameters, with a `JoinPoint` for each: a form to be saved."""
    return tree_unflatten(opt_state.tree_def, [JoinPoint(own) for own in _states(opt_state)])


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """The state that `unpack_optimizer_state` was given."""
    points, tree = tree_flatten(marked_pytree)
    if not all(isinstance(point, JoinPoint) for point in points):
        raise TypeError("pack_optimizer_state: every leaf must be a JoinPoint")
    return _packed([point.subtree for point in points], tree)


# --- optimizers --------------------------------------------------------------------------------------


@optimizer
def sgd(step_size: float | Schedule) -> tuple[Callable, Callable, Callable]:
    """Gradient descent: x - step_size * gradient."""
    rate = make_schedule(step_size)
    return (lambda x: x), (lambda i, g, x: x - rate(i) * g), (lambda x: x)


def _with_velocity(look_ahead: bool) -> Callable:
    def make(step_size: float | Schedule, mass: float) -> tuple[Callable, Callable, Callable]:
        rate = make_schedule(step_size)

        def update(i: Any, g: Any, state: Any) -> Any:
            x, velocity = state
            velocity = mass * velocity + g
            direction = mass * velocity + g if look_ahead else velocity
            return x - rate(i) * direction, velocity

        return (lambda x: (x, jnp.zeros_like(x))), update, _first

    return make


def _first(state: Any) -> Any:
    return state[0]


@optimizer
def momentum(step_size: float | Schedule, mass: float) -> tuple[Callable, Callable, Callable]:
    """Gradient descent with a velocity that decays by `mass` each step."""
    return _with_velocity(look_ahead=False)(step_size, mass)


@optimizer
def nesterov(step_size: float | Schedule, mass: float) -> tuple[Callable, Callable, Callable]:
    """Momentum with Nesterov's look-ahead."""
    return _with_velocity(look_ahead=True)(step_size, mass)


@optimizer
def adagrad(step_size: float | Schedule, momentum: float = 0.9) -> tuple[Callable, Callable, Callable]:
    """Steps divided by the root of all squared gradients so far (Duchi et al., 2011), with momentum."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares, velocity = state
        squares = squares + jnp.square(g)
        scale = jnp.where(squares > 0, 1.0 / jnp.sqrt(squares), 0.0)
        velocity = (1.0 - momentum) * (g * scale) + momentum * velocity
        return x - rate(i) * velocity, squares, velocity

    return (lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x))), update, _first


@optimizer
def rmsprop(step_size: float | Schedule, gamma: float = 0.9, eps: float = 1e-8) -> tuple[Callable, Callable, Callable]:
    """Steps divided by the root of a running mean of squared gradients, which decays by `gamma`."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, square = state
        square = square * gamma + jnp.square(g) * (1.0 - gamma)
        return x - rate(i) * g / jnp.sqrt(square + eps), square

    return (lambda x: (x, jnp.zeros_like(x))), update, _first


@optimizer
def rmsprop_momentum(step_size: float | Schedule, gamma: float = 0.9, eps: float = 1e-8,
                     momentum: float = 0.9) -> tuple[Callable, Callable, Callable]:
    """`rmsprop` with momentum."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, square, velocity = state
        square = square * gamma + jnp.square(g) * (1.0 - gamma)
        velocity = momentum * velocity + rate(i) * g / jnp.sqrt(square + eps)
        return x - velocity, square, velocity

    return (lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x))), update, _first


@optimizer
def adam(step_size: float | Schedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
         ) -> tuple[Callable, Callable, Callable]:
    """Adam (Kingma and Ba, 2015): running means of gradients and of their squares, corrected for their start at 0.

    >>> init, update, get_params = adam(0.1)
    >>> state = init(1.0)
    >>> for step in range(3):
    ...     state = update(step, 2 * get_params(state), state)
    >>> print(round(float(get_params(state)), 2))
    0.7
    """
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean, square = state
        mean, square = (1 - b1) * g + b1 * mean, (1 - b2) * jnp.square(g) + b2 * square
        unbiased_mean = mean / (1 - jnp.asarray(b1, mean.dtype) ** (i + 1))
        unbiased_square = square / (1 - jnp.asarray(b2, mean.dtype) ** (i + 1))
        return x - rate(i) * unbiased_mean / (jnp.sqrt(unbiased_square) + eps), mean, square

    return (lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x))), update, _first


@optimizer
def adamax(step_size: float | Schedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
           ) -> tuple[Callable, Callable, Callable]:
    """Adam with the largest gradient so far, decaying by `b2`, instead of the mean of squares."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean, largest = state
        mean, largest = (1 - b1) * g + b1 * mean, jnp.maximum(b2 * largest, jnp.abs(g))
        return x - (rate(i) / (1 - b1 ** (i + 1))) * mean / (largest + eps), mean, largest

    return (lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x))), update, _first


@optimizer
def sm3(step_size: float | Schedule, momentum: float = 0.9) -> tuple[Callable, Callable, Callable]:
    """Adagrad with one accumulator an axis instead of one an element (Anil et al., 2019), with momentum."""
    rate = make_schedule(step_size)

    def init(x: Any) -> Any:
        x = jnp.asarray(x)
        return x, jnp.zeros_like(x), [jnp.zeros(size, x.dtype) for size in x.shape], x.ndim

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity, accumulators, ndim = state
        rows = [each.reshape([-1 if axis == own else 1 for own in range(x.ndim)]) for axis, each in enumerate(accumulators)]
        total = functools.reduce(jnp.minimum, rows) + jnp.square(g)
        scale = jnp.where(total > 0, 1.0 / jnp.sqrt(total), 0.0)
        velocity = (1.0 - momentum) * (g * scale) + momentum * velocity
        accumulators = [total.max([own for own in range(x.ndim) if own != axis]) for axis in range(x.ndim)]
        return x - rate(i) * velocity, velocity, accumulators, ndim

    return init, update, _first


# --- step sizes --------------------------------------------------------------------------------------


def constant(step_size: Any) -> Schedule:
    """The same step size at each step."""
    return lambda i: step_size


def exponential_decay(step_size: Any, decay_steps: Any, decay_rate: Any) -> Schedule:
    """step_size * decay_rate ** (i / decay_steps)."""
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(step_size: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False) -> Schedule:
    """step_size / (1 + decay_rate * i / decay_steps); with `staircase`, of whole multiples of decay_steps."""
    if staircase:
        return lambda i: step_size / (1 + decay_rate * jnp.floor(i / decay_steps))
    return lambda i: step_size / (1 + decay_rate * i / decay_steps)


def polynomial_decay(step_size: Any, decay_steps: Any, final_step_size: Any, power: float = 1.0) -> Schedule:
    """From step_size to final_step_size within decay_steps, along a power of the time that is left."""

    def schedule(i: Any) -> Any:
        left = 1 - jnp.minimum(i, decay_steps) / decay_steps
        return (step_size - final_step_size) * left**power + final_step_size

    return schedule


def piecewise_constant(boundaries: Any, values: Any) -> Schedule:
    """values[k] for the steps from boundaries[k - 1] on; one more value than boundaries.

    Raises: ValueError for other numbers, or arrays that are not 1-d.
    """
    boundaries, values = jnp.array(boundaries), jnp.array(values)
    if boundaries.ndim != 1 or values.ndim != 1:
        raise ValueError("boundaries and values must be sequences")
    if len(boundaries) != len(values) - 1:
        raise ValueError("boundaries length must be one shorter than values length")
    return lambda i: values[jnp.sum(i > boundaries)]


def make_schedule(scalar_or_schedule: Any) -> Schedule:
    """A schedule from a number; a function stays as it is.

    Raises: TypeError for anything else.
    """
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if jnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise TypeError(type(scalar_or_schedule))


# --- gradients ---------------------------------------------------------------------------------------


def l2_norm(tree: Any) -> Any:
    """The Euclidean norm of all elements of a pytree."""
    return jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in tree_leaves(tree)))


def clip_grads(grad_tree: Any, max_norm: Any) -> Any:
    """A pytree, scaled down where its norm is above `max_norm`."""
    norm = l2_norm(grad_tree)
    return tree_map(lambda g: jnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)
