"""flax linen: a convolutional network with batch statistics and dropout learns made-up images."""

import sys

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training import train_state


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(8, (3, 3))(x)
        x = nn.relu(nn.BatchNorm(use_running_average=not train)(x))
        x = nn.avg_pool(x, (2, 2), (2, 2)).reshape(x.shape[0], -1)
        x = nn.Dropout(0.1, deterministic=not train)(nn.relu(nn.Dense(32)(x)))
        return nn.Dense(3)(x)


class State(train_state.TrainState):
    batch_stats: dict


def images(key, count):
    labels = jax.random.randint(key, (count,), 0, 3)
    pattern = jnp.sin(jnp.arange(8) * (labels[:, None] + 1.0))
    noise = jax.random.normal(key, (count, 8, 8, 1))
    return pattern[:, :, None, None] + 2.0 * noise, labels


def main(steps=30):
    key = jax.random.key(0)
    model = CNN()
    variables = model.init(key, jnp.ones((1, 8, 8, 1)), train=False)
    state = State.create(apply_fn=model.apply, params=variables["params"], tx=optax.adam(1e-2),
                         batch_stats=variables["batch_stats"])

    @jax.jit
    def step(state, key):
        x, y = images(key, 64)

        def loss(params):
            logits, updated = state.apply_fn({"params": params, "batch_stats": state.batch_stats}, x, train=True,
                                             mutable=["batch_stats"], rngs={"dropout": key})
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), updated

        (value, updated), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
        return state.apply_gradients(grads=grads, batch_stats=updated["batch_stats"]), value

    for index in range(steps):
        state, value = step(state, jax.random.fold_in(key, index))
    print(f"loss {float(value):.3f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
