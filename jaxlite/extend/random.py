"""Random bit generators: the existing ones, and a function to define one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlite import lax
from jaxlite.core.values import aval_of
from jaxlite.random import threefry
from jaxlite.random.prng import Implementation, KeyDType, implementation, random_seed_p
from jaxlite.random.threefry import threefry2x32_p as threefry2x32_p
from jaxlite.transforms.vmap import vmap

__all__ = [
    "define_prng_impl", "random_seed", "rbg_prng_impl", "seed_with_impl", "threefry2x32_p", "threefry_2x32",
    "threefry_prng_impl", "unsafe_rbg_prng_impl",
]
__dir__ = lambda: __all__

threefry_prng_impl = implementation("threefry2x32")
rbg_prng_impl = implementation("rbg")
unsafe_rbg_prng_impl = implementation("unsafe_rbg")


class _CustomKeyDType(KeyDType):
    """The dtype of the keys of a generator of a user's: of another type, as its name says nothing to another process."""

    def __reduce__(self) -> Any:
        raise TypeError(f"keys of {self.name} cannot be pickled: their generator is not one of jaxlite's. "
                        "Pickle jax.random.key_data(keys)")


class _CustomImplementation(Implementation):
    """A generator of a user's."""

    __slots__ = ()

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.dtype = _CustomKeyDType(self)


def _over_batches(fun: Callable, of_a_scalar: bool = False) -> Callable:
    """A function of one key, or of one integer, for arrays of them."""

    def call(first: Any, *rest: Any) -> Any:
        mapped = fun
        for _ in range(len(aval_of(first).shape) - (not of_a_scalar)):
            mapped = vmap(mapped)
        return mapped(first, *rest)

    return call


def define_prng_impl(*, key_shape: tuple[int, ...], seed: Callable[[Any], Any], split: Callable[[Any, tuple[int, ...]], Any],
                     random_bits: Callable[[Any, int, tuple[int, ...]], Any], fold_in: Callable[[Any, Any], Any],
                     name: str = "<unnamed>", tag: str = "?") -> Any:
    """A generator of random bits, for `jax.random.key(seed, impl=...)`.

    Args:
      key_shape: the shape of the words behind one key, `(n,)`; they are uint32.
      seed: a scalar integer -> uint32[n].
      split: uint32[n], a shape -> uint32[*shape, n].
      random_bits: uint32[n], a width of 8, 16, 32 or 64, a shape -> unsigned integers of that width and shape.
      fold_in: uint32[n], a scalar uint32 -> uint32[n].
      name, tag: how it is called, and how its keys' types are printed.
    Raises: ValueError for keys of another rank than 1.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> counter = define_prng_impl(
    ...     key_shape=(1,), seed=lambda n: jnp.uint32(n)[None], fold_in=lambda key, n: key + n, tag="count",
    ...     split=lambda key, shape: key + jnp.arange(shape[0], dtype=jnp.uint32)[:, None],
    ...     random_bits=lambda key, width, shape: jnp.full(shape, key[0]))
    >>> jaxlite.random.bits(jaxlite.random.split(jaxlite.random.key(7, impl=counter))[1], (2,))
    Array([8, 8], dtype=uint32)
    """
    if len(key_shape) != 1:
        raise ValueError(f"define_prng_impl: keys are vectors of words, so key_shape must be (n,), got {key_shape}")

    def map_bits(key: Any, width: int, shape: tuple[int, ...]) -> Any:
        return _over_batches(lambda each: random_bits(each, width, shape))(key)

    def map_split(key: Any, shape: tuple[int, ...]) -> Any:
        return _over_batches(lambda each: split(each, shape))(key)

    return _CustomImplementation(name, tag, key_shape[0], _over_batches(seed, True), map_split, _over_batches(fold_in),
                                 map_bits)


def random_seed(seeds: Any, impl: Any) -> Any:
    """Keys of a generator from integers."""
    return random_seed_p.bind(lax.stage(seeds), impl=implementation(impl))


def seed_with_impl(impl: Any, seed: Any) -> Any:
    """The same, the generator first."""
    return random_seed(seed, impl)


def threefry_2x32(keypair: tuple[Any, Any], count: Any) -> Any:
    """The hash of an array of counters, uint32, under a key of two uint32 scalars."""
    size = aval_of(count).size
    flat = lax.reshape(count, (size,))
    if size % 2:
        flat = lax.pad(flat, flat.dtype.type(0), [(0, 1, 0)])
    half = (size + 1) // 2
    first, second = threefry.threefry2x32(*keypair, lax.slice(flat, (0,), (half,)), lax.slice(flat, (half,), (2 * half,)))
    return lax.reshape(lax.slice(lax.concatenate([first, second], 0), (0,), (size,)), aval_of(count).shape)
