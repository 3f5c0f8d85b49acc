"""optax: a small network fits a curve with Adam and a cosine schedule; prints the loss at the end."""

import sys

import jax
import jax.numpy as jnp
import optax


def predict(params, x):
    for weights, bias in params[:-1]:
        x = jnp.tanh(x @ weights + bias)
    weights, bias = params[-1]
    return x @ weights + bias


def loss(params, x, y):
    return jnp.mean((predict(params, x) - y) ** 2)


def main(steps=200):
    sizes = [1, 32, 32, 1]
    keys = jax.random.split(jax.random.key(0), len(sizes) - 1)
    params = [(jax.random.normal(key, (n, m)) / jnp.sqrt(n), jnp.zeros(m))
              for key, n, m in zip(keys, sizes[:-1], sizes[1:], strict=True)]
    x = jnp.linspace(-2, 2, 128)[:, None]
    y = jnp.sin(3 * x) * x

    schedule = optax.warmup_cosine_decay_schedule(0.0, 3e-2, warmup_steps=20, decay_steps=200)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-4))
    state = optimizer.init(params)

    @jax.jit
    def step(params, state):
        value, grads = jax.value_and_grad(loss)(params, x, y)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    for _ in range(steps):
        params, state, value = step(params, state)
    print(f"loss {float(value):.4f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
