"""A stateful generator, as in `jax.experimental.random`: a key, and a Ref with the number of draws."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite import numpy as jnp
from jaxlite import random
from jaxlite.core.tracing import is_eager
from jaxlite.core.tree_nodes import register_dataclass
from jaxlite.state.api import new_ref

__all__ = ["StatefulPRNG", "stateful_rng"]
__dir__ = lambda: __all__


def _shape(size: int | Sequence[int] | None, *like: Any) -> tuple[int, ...]:
    if size is None:
        return np.broadcast_shapes(*map(np.shape, like))
    return tuple(size) if isinstance(size, Sequence) else (size,)


@register_dataclass
@dataclasses.dataclass(frozen=True)
class StatefulPRNG:
    """A random generator that each draw changes; made by `stateful_rng`.

    The n-th draw uses the key of the generator with n folded in, so that it gives what `jax.random` gives for that key.
    In jitted functions it may be an argument or be closed over.
    """

    _base_key: Any
    _counter: Any

    def key(self, shape: int | Sequence[int] = ()) -> Any:
        """The next key, or an array of independent ones of a shape.

        >>> rng = stateful_rng(0)
        >>> bool(rng.key() == rng.key())
        False
        """
        count = self._counter[...]
        if np.shape(count):
            raise ValueError("a generator made by split() is for vmap: map over it, or call its parts one by one; its counter "
                             f"has shape {np.shape(count)}")
        key = random.fold_in(self._base_key, jnp.asarray(count).astype(np.uint32))
        self._counter[...] += 1
        return key if shape == () else random.split(key, shape if isinstance(shape, int) else tuple(shape))

    def random(self, size: int | Sequence[int] | None = None, dtype: Any = float) -> Any:
        """Floats of a shape, uniform in [0, 1)."""
        return random.uniform(self.key(), _shape(size), dtype)

    def uniform(self, low: Any = 0, high: Any = 1, size: int | Sequence[int] | None = None, *, dtype: Any = float) -> Any:
        """Floats uniform in [low, high); of the shape that the bounds have together, or `size`."""
        return random.uniform(self.key(), _shape(size, low, high), dtype, low, high)

    def normal(self, loc: Any = 0, scale: Any = 1, size: int | Sequence[int] | None = None, *, dtype: Any = float) -> Any:
        """Normally distributed floats of a mean and a standard deviation; of the shape they have together, or `size`."""
        return loc + scale * random.normal(self.key(), _shape(size, loc, scale), dtype)

    def integers(self, low: Any, high: Any = None, size: int | Sequence[int] | None = None, *, dtype: Any = int) -> Any:
        """Integers from low up to, but without, high; with one bound, from 0.

        >>> stateful_rng(0).integers(10, size=3).shape
        (3,)
        """
        low, high = (0, low) if high is None else (low, high)
        return random.randint(self.key(), _shape(size, low, high), low, high, dtype)

    def split(self, num: int | Sequence[int]) -> StatefulPRNG:
        """Independent generators in one object, to map over.

        >>> import jaxlite as jax
        >>> jax.vmap(lambda rng: rng.random())(stateful_rng(1).split(3)).shape
        (3,)
        """
        keys = self.key(num)
        return StatefulPRNG(keys, new_ref(jnp.zeros(keys.shape, np.int32)))

    def spawn(self, n_children: int) -> list[StatefulPRNG]:
        """A list of independent generators."""
        return [StatefulPRNG(key, new_ref(jnp.asarray(0))) for key in self.key(n_children)]


def stateful_rng(seed: Any = None, *, impl: Any = None) -> StatefulPRNG:
    """A generator with methods as those of `numpy.random.default_rng`.

    Args:
      seed: a scalar integer; without one, a number that the operating system draws.
      impl: the random generator's algorithm, as `jax.random.key` takes it.
    Raises: TypeError without a seed where a function is traced.

    >>> rng = stateful_rng(0)
    >>> rng.normal(size=(2, 3)).shape
    (2, 3)
    """
    if seed is None:
        if not is_eager():
            raise TypeError("When used within transformed code, jax.experimental.random.stateful_rng() requires an explicit "
                            "seed to be set: the operating system would be asked once, while tracing")
        seed = np.random.default_rng().integers(2**31)
    return StatefulPRNG(random.key(seed, impl=impl), new_ref(jnp.asarray(0)))
