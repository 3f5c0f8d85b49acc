"""A softmax as one kernel: a block of rows is read once, and written once.

    python examples/pallas_softmax.py --rows 64 --columns 100

Rows are cut to a power of two that holds them; a mask keeps what lies beyond out of the sums. On a machine without a GPU the
kernel is interpreted. The derivative is a kernel of its own.
"""

from __future__ import annotations

import argparse
from functools import partial

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite.experimental import pallas as pl
from jaxlite.experimental.pallas import triton as plt


def forward_kernel(x_ref, y_ref, *, columns):
    """The softmax of one row."""
    row = jnp.arange(pl.next_power_of_2(columns))
    inside = row < columns
    x = plt.load(x_ref.at[row], mask=inside, other=-jnp.inf).astype(jnp.float32)
    weights = jnp.exp(x - x.max())
    plt.store(y_ref.at[row], (weights / weights.sum()).astype(y_ref.dtype), mask=inside)


def backward_kernel(y_ref, ct_ref, out_ref, *, columns):
    """The gradient for one row, from the row's softmax and its cotangent."""
    row = jnp.arange(pl.next_power_of_2(columns))
    inside = row < columns
    y = plt.load(y_ref.at[row], mask=inside, other=0.0).astype(jnp.float32)
    ct = plt.load(ct_ref.at[row], mask=inside, other=0.0).astype(jnp.float32)
    plt.store(out_ref.at[row], (y * (ct - (y * ct).sum())).astype(out_ref.dtype), mask=inside)


def on_rows(kernel, *arrays, interpret):
    """A kernel for each row of matrices of one shape."""
    rows, columns = arrays[0].shape
    block = pl.BlockSpec((None, columns), lambda i: (i, 0))
    out = jax.ShapeDtypeStruct((rows, columns), arrays[0].dtype)
    return pl.pallas_call(partial(kernel, columns=columns), out, grid=(rows,), in_specs=[block] * len(arrays), out_specs=block,
                          interpret=interpret)(*arrays)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def softmax(x, interpret):
    """The softmax of the rows of a matrix."""
    return on_rows(forward_kernel, x, interpret=interpret)


def _forward(x, interpret):
    y = softmax(x, interpret)
    return y, y


def _backward(interpret, y, ct):
    return (on_rows(backward_kernel, y, ct, interpret=interpret),)


softmax.defvjp(_forward, _backward)


def main(arguments: list[str] | None = None) -> float:
    """Runs the example; gives the largest difference to `jax.nn.softmax`, of values and gradients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--columns", type=int, default=100)
    options = parser.parse_args(arguments)

    x = jax.random.normal(jax.random.key(0), (options.rows, options.columns))
    interpret = jax.default_backend() != "gpu"

    def loss(function, x):
        return (function(x) * jnp.cos(x)).sum()

    ours = jax.jit(partial(softmax, interpret=interpret))
    values = jnp.abs(ours(x) - jax.nn.softmax(x)).max()
    gradients = jnp.abs(jax.grad(partial(loss, ours))(x) - jax.grad(partial(loss, jax.nn.softmax))(x)).max()
    difference = float(jnp.maximum(values, gradients))
    print(f"{options.rows} x {options.columns}, {'interpreted' if interpret else 'compiled'}: "
          f"largest difference to jax.nn.softmax {difference:.1e}")
    return difference


if __name__ == "__main__":
    main()
