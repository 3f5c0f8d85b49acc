"""What the lowering of one equation shares with that of another."""

import re

import numpy as np

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax

MATRIX = np.linspace(1.0, 2.0, 64, dtype=np.float32).reshape(8, 8)


def test_a_quotient_is_broadcast_for_each_reader_and_a_matrix_updated_in_place():
    """XLA would multiply by the reciprocal of a shared one, which it computes of the matrix while that is changed."""
    def turn(index, matrix):
        quotient = 2.0 / matrix[index, index]
        column = matrix[:, index] / quotient
        return matrix.at[:, index].set(column + jnp.sum(quotient * column))

    lowered = jax.jit(lambda matrix: lax.fori_loop(0, 8, turn, matrix)).lower(MATRIX)
    (quotient,) = re.findall(r"(%\d+) = stablehlo.divide .* : tensor<f32>", lowered.as_text())
    assert len(re.findall(rf"broadcast_in_dim {quotient},", lowered.as_text())) == 2
    expected = MATRIX.astype(float)
    for index in range(8):
        expected = np.asarray(turn(index, jnp.asarray(expected)))
    np.testing.assert_allclose(lowered.compile()(MATRIX), expected, rtol=1e-4)


def test_other_scalars_are_broadcast_once():
    shared = jax.jit(lambda x, y: (lambda sine: (x * sine + 1) / sine)(jnp.sin(y))).lower(MATRIX, np.float32(2)).as_text()
    (sine,) = re.findall(r"(%\d+) = stablehlo.sine", shared)
    assert len(re.findall(rf"broadcast_in_dim {sine},", shared)) == 1
