"""Gaussian-process regression, its hyperparameters fitted by gradients through a Cholesky factorization.

    python examples/gp_regression.py [--steps 150] [--plot FILE]

Sixty noisy samples of a function that is known here, with a gap in the middle. The log marginal likelihood is
differentiated with respect to the length scale, the amplitude and the noise, from four starting points at once with
`vmap` (one of them ends where everything is called noise: the likelihood has more than one maximum). A person can judge
the result: the band should hold the true function, be narrow where there are data and wide elsewhere, and the noise that
was found should be the noise that was put in.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import plots

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax, random

NOISE = 0.2


def truth(x: Any) -> Any:
    return jnp.sin(2 * x) + 0.3 * x


def draw_data(key: Any, count: int) -> tuple[Any, Any]:
    """Samples on [-4, -0.8] and [0.8, 4]."""
    for_x, for_side, for_noise = random.split(key, 3)
    side = random.choice(for_side, jnp.array([-1.0, 1.0]), (count,))
    x = side * random.uniform(for_x, (count,), minval=0.8, maxval=4)
    return x, truth(x) + NOISE * random.normal(for_noise, (count,))


def kernel(log_params: Any, x: Any, z: Any) -> Any:
    """The squared-exponential covariance of function values at x and at z."""
    length, amplitude = jnp.exp(log_params["length"]), jnp.exp(log_params["amplitude"])
    return amplitude**2 * jnp.exp(-0.5 * ((x[:, None] - z[None, :]) / length) ** 2)


def factor(log_params: Any, x: Any) -> Any:
    """The lower Cholesky factor of the covariance of the observations."""
    return lax.linalg.cholesky(kernel(log_params, x, x) + jnp.exp(2 * log_params["noise"]) * jnp.eye(len(x)))


def solve(lower: Any, right: Any) -> Any:
    """lower⁻¹ right."""
    return lax.linalg.triangular_solve(lower, right, left_side=True, lower=True)


def loss(log_params: Any, x: Any, y: Any) -> Any:
    """The negative log marginal likelihood of the observations, per observation."""
    lower = factor(log_params, x)
    whitened = solve(lower, y[:, None])
    return (0.5 * jnp.sum(whitened**2) + jnp.sum(jnp.log(jnp.diag(lower)))) / len(x) + 0.5 * jnp.log(2 * jnp.pi)


@jaxlite.jit
def update(log_params: Any, velocity: Any, x: Any, y: Any) -> tuple[Any, Any, Any]:
    """One step of gradient descent with momentum, from each of the starting points."""
    value, gradient = jaxlite.vmap(jaxlite.value_and_grad(loss), in_axes=(0, None, None))(log_params, x, y)
    velocity = jaxlite.tree.map(lambda v, g: 0.9 * v - 0.03 * jnp.clip(g, -1, 1), velocity, gradient)
    return jaxlite.tree.map(jnp.add, log_params, velocity), velocity, value


@jaxlite.jit
def predict(log_params: Any, x: Any, y: Any, z: Any) -> tuple[Any, Any]:
    """The mean and the standard deviation of the function at z, given the observations."""
    lower = factor(log_params, x)
    weights = solve(lower, kernel(log_params, x, z))
    mean = weights.T @ solve(lower, y[:, None])[:, 0]
    return mean, jnp.sqrt(jnp.exp(2 * log_params["amplitude"]) - jnp.sum(weights**2, axis=0))


def fit(x: Any, y: Any, steps: int) -> tuple[Any, list[np.ndarray]]:
    """The best hyperparameters found, as logarithms, and the losses from all starting points at each step."""
    log_params = {
        "length": jnp.log(jnp.array([0.1, 0.3, 1.0, 5.0])),
        "amplitude": jnp.zeros(4),
        "noise": jnp.log(jnp.array([1.0, 0.5, 1.0, 0.5])),
    }
    velocity = jaxlite.tree.map(jnp.zeros_like, log_params)
    curve = []
    for number in range(steps):
        log_params, velocity, value = update(log_params, velocity, x, y)
        curve.append(np.asarray(value))
        if number % max(1, steps // 10) == 0 or number == steps - 1:
            print(f"  step {number:4d}  negative log likelihood per point: {np.round(curve[-1], 3)}", flush=True)
    best = int(np.argmin(curve[-1]))
    return jaxlite.tree.map(lambda leaf: leaf[best], log_params), curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--plot", metavar="FILE", help="where to write the PNG; default: a new temporary folder")
    arguments = parser.parse_args()
    x, y = draw_data(random.key(0), 60)
    log_params, curve = fit(x, y, arguments.steps)
    found = {name: float(jnp.exp(value)) for name, value in log_params.items()}
    print(f"\n  length scale {found['length']:.3f}, amplitude {found['amplitude']:.3f}, noise {found['noise']:.3f}", end=" ")
    print(f"(the data's noise is {NOISE})")
    z = np.linspace(-5, 5, 200, dtype=np.float32)
    x, y, true, mean, deviation = map(np.asarray, (x, y, truth(z), *predict(log_params, x, y, z)))
    low, high = mean - 2 * deviation, mean + 2 * deviation
    inside, data = (true > low) & (true < high), (np.abs(z) > 0.8) & (np.abs(z) < 4)
    print(f"  the true function is inside the band of two standard deviations at {inside.mean():.0%} of [-5, 5]")
    print(f"  mean width of that band: {(high - low)[data].mean():.2f} where there are data, ", end="")
    print(f"{(high - low)[~data].mean():.2f} elsewhere")
    print("\n  o data, # mean, - two standard deviations\n")
    print(plots.text({"-": (np.append(z, z), np.append(low, high)), "#": (z, mean), "o": (x, y)}, height=22))

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.fill_between(z, low, high, alpha=0.25, label="mean ± 2 standard deviations")
        axes.plot(z, mean, label="mean")
        axes.plot(z, true, "k:", label="true function")
        axes.plot(x, y, "o", markersize=3, label="data")
        axes.set(xlabel="x", ylabel="y")
        axes.legend()

    plots.save(draw, arguments.plot, "gp_regression")


if __name__ == "__main__":
    main()
