"""LSTM layers with weights in one vector, as `jax.experimental.rnn` names them; they run on every platform.

The formulas are those of Hochreiter and Schmidhuber (1997) with a forget gate: of x and h, gates i, f, o = sigmoid(...) and
g = tanh(...), each with two biases; c' = f * c + i * g; h' = o * tanh(c'). The vector holds for each layer and direction the
weights for x and for h, with the gates in the order i, f, g, o, then for each layer and direction the two biases.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxlite import lax, nn, random
from jaxlite import numpy as jnp

__all__ = ["get_num_params_in_lstm", "init_lstm_weight", "lstm", "lstm_ref", "swap_lstm_gates", "unpack_lstm_weights"]
__dir__ = lambda: __all__

_GATES = 4


def _shapes(input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> Iterator[tuple[int, ...]]:
    """The shapes of the parts of the vector, in order."""
    directions, rows = 2 if bidirectional else 1, _GATES * hidden_size
    for layer in range(num_layers):
        for _ in range(directions):
            yield rows, directions * hidden_size if layer else input_size
            yield rows, hidden_size
    for _ in range(2 * num_layers * directions):
        yield (rows,)


def _parts(weights: Any, *sizes: Any) -> list[Any]:
    shapes = list(_shapes(*sizes))
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    if np.shape(weights) != (ends[-1],):
        raise ValueError(f"weights of an LSTM of these sizes have shape ({ends[-1]},), got {np.shape(weights)}")
    return [part.reshape(shape) for part, shape in zip(jnp.split(weights, ends[:-1].tolist()), shapes, strict=True)]


def get_num_params_in_lstm(input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> int:
    """How long the vector of weights is.

    >>> get_num_params_in_lstm(3, 4, num_layers=1, bidirectional=False)
    144
    """
    return sum(map(math.prod, _shapes(input_size, hidden_size, num_layers, bidirectional)))


def init_lstm_weight(rng: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> Any:
    """A vector of weights, uniform between plus and minus the square root of 1 / hidden_size."""
    bound = np.sqrt(1.0 / hidden_size)
    size = get_num_params_in_lstm(input_size, hidden_size, num_layers, bidirectional)
    return random.uniform(rng, (size,), np.float32, -bound, bound)


def unpack_lstm_weights(weights: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> Any:
    """The vector as four dictionaries of arrays: weights for x, weights for h, biases for x, biases for h.

    Their keys count the layers, and within a layer the directions.
    """
    parts = _parts(weights, input_size, hidden_size, num_layers, bidirectional)
    half = len(parts) // 2
    return tuple(dict(enumerate(parts[start:end:2]))
                 for start, end in ((0, half), (1, half), (half, None), (half + 1, None)))


def swap_lstm_gates(weights: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> Any:
    """The vector for a library that keeps the gates in the order i, f, o, g, and back."""
    swapped = []
    for part in _parts(weights, input_size, hidden_size, num_layers, bidirectional):
        i, f, g, o = jnp.split(part, _GATES)
        swapped.append(jnp.concatenate([i, f, o, g]).ravel())
    return jnp.concatenate(swapped)


def lstm(x: Any, h_0: Any, c_0: Any, weights: Any, seq_lengths: Any, input_size: int, hidden_size: int, num_layers: int,
         dropout: float, bidirectional: bool, precision: Any = None) -> tuple[Any, Any, Any]:
    """Layers of LSTM over a batch of sequences.

    Args:
      x: float32[batch, time, input_size].
      h_0, c_0: float32[num_layers * directions, batch, hidden_size], the state at the start.
      weights: a vector, see `init_lstm_weight`.
      seq_lengths: int32[batch], how much of each sequence counts.
      dropout: must be 0.
      precision: of the products, as `lax.dot` takes it.
    Returns: the outputs of the last layer, float32[batch, time, directions * hidden_size], zero after a sequence's end, and
      the last states.

    >>> from jaxlite import random
    >>> w, state = init_lstm_weight(random.key(0), 3, 4, 1, False), jnp.zeros((1, 2, 4))
    >>> y, h, c = lstm(jnp.ones((2, 5, 3)), state, state, w, jnp.array([5, 2]), 3, 4, 1, 0.0, False)
    >>> y.shape, bool((y[1, 1] == h[0, 1]).all()), float(abs(y[1, 2:]).sum())
    ((2, 5, 4), True, 0.0)
    """
    parts = unpack_lstm_weights(weights, input_size, hidden_size, num_layers, bidirectional)
    return _layers(x, h_0, c_0, parts, seq_lengths, num_layers, dropout, bidirectional, precision)


def lstm_ref(x: Any, h_0: Any, c_0: Any, W_ih: dict[int, Any], W_hh: dict[int, Any], b_ih: dict[int, Any], b_hh: dict[int, Any],
             seq_lengths: Any, input_size: int, hidden_size: int, num_layers: int, dropout: float,
             bidirectional: bool) -> tuple[Any, Any, Any]:
    """`lstm` with its weights as `unpack_lstm_weights` gives them."""
    return _layers(x, h_0, c_0, (W_ih, W_hh, b_ih, b_hh), seq_lengths, num_layers, dropout, bidirectional, None)


def _layers(x: Any, h_0: Any, c_0: Any, parts: Any, seq_lengths: Any, num_layers: int, dropout: float, bidirectional: bool,
            precision: Any) -> tuple[Any, Any, Any]:
    if dropout:
        raise NotImplementedError(f"dropout between the layers of an LSTM is not supported, got dropout={dropout}")
    directions = 2 if bidirectional else 1
    counts = jnp.arange(np.shape(x)[1])[:, None, None] < jnp.asarray(seq_lengths)[:, None]
    x = jnp.swapaxes(x, 0, 1)
    last_h, last_c = [], []
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            y, h, c = _one(x, h_0[index], c_0[index], [part[index] for part in parts], counts, bool(direction), precision)
            outputs.append(y)
            last_h.append(h)
            last_c.append(c)
        x = jnp.concatenate(outputs, axis=-1)
    return jnp.swapaxes(x, 0, 1), jnp.stack(last_h), jnp.stack(last_c)


def _one(x: Any, h: Any, c: Any, weights: Any, counts: Any, reverse: bool, precision: Any) -> tuple[Any, Any, Any]:
    """A direction of a layer. Beyond a sequence's end the state stays: from the back it starts where the sequence ends."""
    w_x, w_h, b_x, b_h = weights
    of_x = jnp.matmul(x, w_x.T, precision=precision) + b_x + b_h

    def step(state: Any, now: Any) -> Any:
        h, c = state
        given, counted = now
        i, f, g, o = jnp.split(given + jnp.matmul(h, w_h.T, precision=precision), _GATES, axis=-1)
        new_c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        new_h = nn.sigmoid(o) * jnp.tanh(new_c)
        return (jnp.where(counted, new_h, h), jnp.where(counted, new_c, c)), jnp.where(counted, new_h, 0)

    (h, c), y = lax.scan(step, (h, c), (of_x, counts), reverse=reverse)
    return y, h, c
