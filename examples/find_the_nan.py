"""A training run that goes wrong, and three ways to find out where.

    python examples/find_the_nan.py

A mixture's log-likelihood takes the logarithm of a width that the optimizer drives below zero. `debug_nans` names the
operation and the line that made the first NaN, `checkify` finds the step at which a condition of ours broke in compiled code
(no exception stops the program there), and `profiler.summary` says where the time went.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import profiler
from jaxlite.experimental import checkify

STEPS = 40


def loss(params: Any, data: Any) -> Any:
    """The mean negative log-likelihood of a normal distribution; `params` are its mean and its width."""
    mean, width = params
    return jnp.mean(0.5 * ((data - mean) / width) ** 2 + jnp.log(width))


def train(params: Any, data: Any, rate: float) -> tuple[Any, Any]:
    """Gradient descent in one program: the last parameters and the losses."""
    def step(params: Any, index: Any) -> tuple[Any, Any]:
        checkify.check(params[1] > 0, "the width is {width} in step {index}", width=params[1], index=index)
        value, gradient = jaxlite.value_and_grad(loss)(params, data)
        return params - rate * gradient, value

    return jaxlite.lax.scan(step, params, jnp.arange(STEPS))


def main() -> None:
    data = np.random.default_rng(0).normal(1.0, 0.1, 200).astype(np.float32)
    start = jnp.array([0.0, 1.0])

    checked = jaxlite.jit(checkify.checkify(train, errors=checkify.user_checks), static_argnums=2)
    error, _ = checked(start, data, 0.5)
    print("checkify:", error.get() or "no condition broke")

    with jaxlite.debug_nans(True):
        try:
            def step(params: Any, _: Any) -> tuple[Any, Any]:
                return params - 0.5 * jaxlite.grad(loss)(params, data), loss(params, data)

            jaxlite.jit(lambda params: jaxlite.lax.scan(step, params, None, STEPS))(start)
        except FloatingPointError as found:
            print("debug_nans:", str(found).splitlines()[0])

    with profiler.summary():
        _, (params, losses) = checked(start, data, 0.002)
        print("a smaller rate: width", np.round(float(params[1]), 3), "loss", np.round(float(losses[-1]), 3))


if __name__ == "__main__":
    main()
