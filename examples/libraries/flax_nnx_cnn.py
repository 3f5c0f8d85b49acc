"""flax nnx: modules that hold their state; a convolutional network learns made-up images."""

import sys

import jax
import jax.numpy as jnp
import optax
from flax import nnx


class CNN(nnx.Module):
    def __init__(self, rngs):
        self.convolution = nnx.Conv(1, 8, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.hidden = nnx.Linear(8 * 4 * 4, 32, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.out = nnx.Linear(32, 3, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.convolution(x)))
        x = nnx.avg_pool(x, (2, 2), (2, 2)).reshape(x.shape[0], -1)
        return self.out(self.dropout(nnx.relu(self.hidden(x))))


def images(key, count):
    labels = jax.random.randint(key, (count,), 0, 3)
    pattern = jnp.sin(jnp.arange(8) * (labels[:, None] + 1.0))
    noise = jax.random.normal(key, (count, 8, 8, 1))
    return pattern[:, :, None, None] + 2.0 * noise, labels


@nnx.jit
def step(model, optimizer, key):
    x, y = images(key, 64)

    def loss(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    value, grads = nnx.value_and_grad(loss)(model)
    optimizer.update(model, grads)
    return value


def main(steps=30):
    key = jax.random.key(0)
    model = CNN(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    for index in range(steps):
        value = step(model, optimizer, jax.random.fold_in(key, index))
    print(f"loss {float(value):.3f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
