"""Swing a pendulum up with a motor too weak to lift it: 200 controls found by the gradient through a simulation.

    python examples/physics.py [--steps 300] [--plot FILE]

The motor gives 40 % of the torque that would hold the pendulum sideways, so it must swing to and fro to gain energy.
The simulation is a `lax.scan` of Runge-Kutta steps, and one reverse pass through it gives the derivative of how far from
upright the pendulum ends with respect to the torque at every moment. Several random starts are optimised at once with
`vmap`. The best plan is then checked by a simulation in NumPy, in float64 and with steps a tenth as long.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import plots
from char_gpt import adam

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax, random

GRAVITY, LENGTH, MASS, FRICTION = 9.81, 1.0, 1.0, 0.05
MAX_TORQUE = 0.4 * MASS * GRAVITY * LENGTH
SECONDS, MOMENTS = 5.0, 200
DT = SECONDS / MOMENTS


def velocity(state: Any, torque: Any, sin: Callable[[Any], Any]) -> tuple[Any, Any]:
    """d/dt of (angle, angular velocity); the angle is 0 where the pendulum hangs."""
    angle, speed = state
    return speed, -GRAVITY / LENGTH * sin(angle) - FRICTION * speed + torque / (MASS * LENGTH**2)


def runge_kutta(state: Any, torque: Any, dt: float, sin: Callable[[Any], Any]) -> tuple[Any, Any]:
    def ahead(slope: Any, by: float) -> Any:
        return tuple(value + by * rate for value, rate in zip(state, slope, strict=True))

    first = velocity(state, torque, sin)
    second = velocity(ahead(first, dt / 2), torque, sin)
    third = velocity(ahead(second, dt / 2), torque, sin)
    fourth = velocity(ahead(third, dt), torque, sin)
    return ahead([(a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(first, second, third, fourth, strict=True)], dt)


def torques(plan: Any) -> Any:
    """Free parameters to torques within what the motor can give."""
    return MAX_TORQUE * jnp.tanh(plan)


def simulate(plan: Any) -> tuple[Any, Any]:
    """The angle and the angular velocity after each moment, from rest."""

    def step(state: Any, torque: Any) -> Any:
        state = runge_kutta(state, torque, DT, jnp.sin)
        return state, state

    return lax.scan(step, (jnp.zeros(()), jnp.zeros(())), torques(plan))[1]


def cost(plan: Any) -> Any:
    """How far from upright and at rest the last half second is, and a little for the effort."""
    angle, speed = simulate(plan)
    last = slice(MOMENTS * 9 // 10, None)
    return jnp.mean(1 + jnp.cos(angle[last]) + 0.1 * speed[last] ** 2) + 1e-3 * jnp.mean(torques(plan) ** 2)


@jaxlite.jit
def improve(plans: Any, state: Any, rate: Any) -> tuple[Any, Any, Any]:
    """One step of Adam for each plan."""
    costs, gradients = jaxlite.vmap(jaxlite.value_and_grad(cost))(plans)
    plans, state = adam(plans, gradients, state, rate)
    return plans, state, costs


def optimise(steps: int, starts: int = 8, seed: int = 0) -> tuple[Any, list[np.ndarray]]:
    """The best plan, and the costs of all plans at each step."""
    plans = 0.2 * random.normal(random.key(seed), (starts, MOMENTS))
    state = (jnp.zeros_like(plans), jnp.zeros_like(plans), jnp.zeros(()))
    curve = []
    for number in range(steps):
        rate = np.float32(0.06 * (1 - number / steps))
        plans, state, costs = improve(plans, state, rate)
        curve.append(np.asarray(costs))
        if number % max(1, steps // 10) == 0 or number == steps - 1:
            print(f"  step {number:4d}  cost: best {curve[-1].min():.4f}, worst {curve[-1].max():.4f}", flush=True)
    return plans[np.argmin(curve[-1])], curve


def replay(torque: np.ndarray, parts: int = 10) -> tuple[float, float]:
    """Where the pendulum ends by a finer simulation in float64."""
    state = (0.0, 0.0)
    for each in np.repeat(np.asarray(torque, float), parts):
        state = runge_kutta(state, each, DT / parts, np.sin)
    return state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--plot", metavar="FILE", help="where to write the PNG; default: a new temporary folder")
    arguments = parser.parse_args()
    plan, curve = optimise(arguments.steps)
    angle, speed = (np.degrees(each) for each in simulate(plan))
    torque, times = np.asarray(torques(plan)), DT * np.arange(1, MOMENTS + 1)
    print("\nThe angle in degrees over time, 180 is upright (=):\n")
    upright = 180 * np.round(angle[-1] / 180)
    print(plots.text({"=": (times, np.full(MOMENTS, upright)), ".": (times, np.zeros(MOMENTS)), "#": (times, angle)}))
    checked_angle, checked_speed = np.degrees(replay(torque))
    print(f"\n  at the end         {angle[-1]:8.2f} degrees, {speed[-1]:7.2f} degrees/s")
    print(f"  finer simulation   {checked_angle:8.2f} degrees, {checked_speed:7.2f} degrees/s")

    def draw(figure: Any) -> None:
        swing, motor, costs = figure.subplots(3, 1, height_ratios=(2, 1, 1))
        swing.plot(times, angle)
        swing.axhline(upright, color="k", linestyle=":", label="upright")
        swing.set(ylabel="angle (degrees)", xlim=(0, SECONDS))
        swing.legend()
        motor.step(times, torque, "C1", where="pre")
        motor.set(xlabel="time (s)", ylabel="torque (N m)", xlim=(0, SECONDS))
        costs.semilogy(curve)
        costs.set(xlabel="step of Adam", ylabel="cost of each plan")

    plots.save(draw, arguments.plot, "physics", size=(8, 7))


if __name__ == "__main__":
    main()
