"""Batching of the backend's generators. Bits have no derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlite.lax import slicing
from jaxlite.lax.rng import rng_bit_generator_p, rng_uniform_p
from jaxlite.traces.batching import Axis, bring_to_front
from jaxlite.traces.jvp import def_zero

def_zero(rng_bit_generator_p)
rng_uniform_p.no_jvp("its generator is stateful, so that the numbers cannot be drawn again; scale numbers of "
                     "jaxlite.random instead")
rng_uniform_p.no_batching("its generator is stateful; draw an array of the whole shape instead")


@rng_bit_generator_p.def_batching
def _rng_bit_generator_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, shape: tuple[int, ...],
                             **params) -> tuple[list[Any], list[int]]:
    """The first key makes the bits of the whole batch, and it alone moves on: one call, and as in JAX.

    So a batch of keys does not give what each key would. Those for whom that matters use Threefry keys.
    """
    keys = bring_to_front(args[0], dims[0], axis.size)
    first = slicing.index_in_dim(keys, 0, 0, keepdims=False)
    key, bits = rng_bit_generator_p.bind(first, shape=(axis.size, *shape), **params)
    return [slicing.dynamic_update_index_in_dim(keys, key, 0, 0), bits], [0, 0]
