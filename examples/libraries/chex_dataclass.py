"""chex: assertions about shapes while tracing, a dataclass that is a pytree, and the number of traces; prints a norm."""

import sys

import chex
import jax
import jax.numpy as jnp


@chex.dataclass
class Particles:
    position: chex.Array
    velocity: chex.Array


@jax.jit
@chex.assert_max_traces(n=1)
def step(particles, dt):
    chex.assert_rank(particles.position, 2)
    chex.assert_equal_shape([particles.position, particles.velocity])
    force = -particles.position
    velocity = particles.velocity + dt * force
    return particles.replace(position=particles.position + dt * velocity, velocity=velocity)


def main(steps=100):
    particles = Particles(position=jnp.ones((4, 2)), velocity=jnp.zeros((4, 2)))
    for _ in range(steps):
        particles = step(particles, 0.01)
    chex.assert_tree_all_finite(particles)
    print(f"norm {float(jnp.linalg.norm(particles.position)):.4f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
