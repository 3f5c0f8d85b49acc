"""equinox: a module is a pytree; a convolutional classifier learns made-up images with filter_jit and filter_value_and_grad."""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import optax


class Classifier(eqx.Module):
    convolution: eqx.nn.Conv2d
    norm: eqx.nn.LayerNorm
    head: eqx.nn.MLP
    dropout: eqx.nn.Dropout

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.convolution = eqx.nn.Conv2d(1, 4, kernel_size=3, stride=2, key=first)
        self.norm = eqx.nn.LayerNorm(4 * 3 * 3)
        self.head = eqx.nn.MLP(4 * 3 * 3, 3, width_size=32, depth=1, activation=jax.nn.gelu, key=second)
        self.dropout = eqx.nn.Dropout(0.1)

    def __call__(self, image, key):
        x = jax.nn.relu(self.convolution(image)).reshape(-1)
        return self.head(self.dropout(self.norm(x), key=key))


def images(key, count):
    labels = jax.random.randint(key, (count,), 0, 3)
    pattern = jnp.sin(jnp.arange(8) * (labels[:, None] + 1.0))
    noise = jax.random.normal(key, (count, 1, 8, 8))
    return pattern[:, None, :, None] + 2.0 * noise, labels


@eqx.filter_value_and_grad
def loss(model, x, y, key):
    logits = jax.vmap(model)(x, jax.random.split(key, x.shape[0]))
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def main(steps=40):
    key = jax.random.key(0)
    model = Classifier(key)
    optimizer = optax.adam(1e-2)
    state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))

    @eqx.filter_jit
    def step(model, state, key):
        x, y = images(key, 64)
        value, grads = loss(model, x, y, key)
        updates, state = optimizer.update(grads, state, model)
        return eqx.apply_updates(model, updates), state, value

    for index in range(steps):
        model, state, value = step(model, state, jax.random.fold_in(key, index))
    print(f"loss {float(value):.3f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
