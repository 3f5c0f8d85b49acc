"""Linear regression by stochastic gradient descent, with all state explicit.

    python examples/linear_regression.py [--steps 400] [--plot FILE]

A jitted function must not change anything outside of it, so what changes from step to step (parameters, momentum, the
random key, the step's number) travels as one pytree: `update(state, x, y) -> (state, loss)`. The line that it finds is
compared with the least-squares solution and with the one that the data was drawn from.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import numpy as np
import plots

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import random

TRUE_SLOPE, TRUE_INTERCEPT, NOISE = 3.0, -1.0, 0.5


class Params(NamedTuple):
    slope: Any
    intercept: Any


class State(NamedTuple):
    """Everything that a step reads and writes; a NamedTuple is a pytree."""

    params: Params
    velocity: Params
    key: Any
    step: Any


def draw_data(key: Any, count: int) -> tuple[Any, Any]:
    for_x, for_noise = random.split(key)
    x = random.uniform(for_x, (count,), minval=-1, maxval=1)
    return x, TRUE_SLOPE * x + TRUE_INTERCEPT + NOISE * random.normal(for_noise, (count,))


def init(key: Any) -> State:
    key, *for_params = random.split(key, 3)
    params = Params(*(random.normal(each) for each in for_params))
    return State(params, jaxlite.tree.map(jnp.zeros_like, params), key, jnp.zeros((), jnp.int32))


def loss(params: Params, x: Any, y: Any) -> Any:
    """The mean squared error."""
    return jnp.mean((params.slope * x + params.intercept - y) ** 2)


@jaxlite.jit
def update(state: State, x: Any, y: Any) -> tuple[State, Any]:
    """One step with momentum on 32 points drawn at random; the steps get smaller, so that the noise of the draw dies out."""
    key, for_rows = random.split(state.key)
    rows = random.randint(for_rows, (32,), 0, len(x))
    value, gradient = jaxlite.value_and_grad(loss)(state.params, x[rows], y[rows])
    rate = 0.05 / (1 + state.step / 50)
    velocity = jaxlite.tree.map(lambda v, g: 0.9 * v + g, state.velocity, gradient)
    params = jaxlite.tree.map(lambda p, v: p - rate * v, state.params, velocity)
    return State(params, velocity, key, state.step + 1), value


def fit(steps: int, count: int = 200, seed: int = 0) -> tuple[Params, np.ndarray, np.ndarray, list[float]]:
    for_data, for_state = random.split(random.key(seed))
    x, y = draw_data(for_data, count)
    state = init(for_state)
    curve = []
    for number in range(steps):
        state, value = update(state, x, y)
        curve.append(float(value))
        if number % max(1, steps // 10) == 0 or number == steps - 1:
            slope, intercept = state.params
            print(f"  step {number:4d}  loss {curve[-1]:7.4f}  y = {slope:6.3f} x + {intercept:6.3f}", flush=True)
    return state.params, np.asarray(x), np.asarray(y), curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--plot", metavar="FILE", help="where to write the PNG; default: a new temporary folder")
    arguments = parser.parse_args()
    params, x, y, curve = fit(arguments.steps)
    best = np.polyfit(x, y, 1)
    print(f"\n  found          y = {params.slope:6.3f} x + {params.intercept:6.3f}")
    print(f"  least squares  y = {best[0]:6.3f} x + {best[1]:6.3f}")
    print(f"  drawn from     y = {TRUE_SLOPE:6.3f} x + {TRUE_INTERCEPT:6.3f}, noise {NOISE}\n")
    ends = np.linspace(-1, 1, 64)
    line = float(params.slope) * ends + float(params.intercept)
    print(plots.text({".": (x, y), "#": (ends, line)}))

    def draw(figure: Any) -> None:
        data, losses = figure.subplots(1, 2)
        data.scatter(x, y, s=8, label="data")
        data.plot(ends, line, "C1", label="found")
        data.plot(ends, TRUE_SLOPE * ends + TRUE_INTERCEPT, "k:", label="drawn from")
        data.set(xlabel="x", ylabel="y")
        data.legend()
        losses.semilogy(curve)
        losses.axhline(NOISE**2, color="k", linestyle=":", label="variance of the noise")
        losses.set(xlabel="step", ylabel="loss")
        losses.legend()

    plots.save(draw, arguments.plot, "linear_regression")


if __name__ == "__main__":
    main()
