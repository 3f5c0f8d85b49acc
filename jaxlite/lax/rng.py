"""Bits from the backend's counter-based generators, and uniform numbers from its own."""

from __future__ import annotations

import enum
import operator
from typing import Any

from jaxlite.core import dtypes
from jaxlite.core.aval import Ints, ShapedArray, shaped_array
from jaxlite.core.filtering import boundary
from jaxlite.core.primitive import Primitive, register_rule_modules
from jaxlite.lax import shaping


class RandomAlgorithm(enum.IntEnum):
    """Which generator `rng_bit_generator` uses."""

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2

    def __str__(self) -> str:
        return self.name


rng_bit_generator_p = Primitive("rng_bit_generator", multiple_results=True)
rng_uniform_p = Primitive("rng_uniform")
_UNIFORM_DTYPES = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64,
                   dtypes.uint32, dtypes.uint64)


@rng_bit_generator_p.def_abstract_eval
def _rng_bit_generator_aval(key, *, shape: Ints, dtype, algorithm: int, out_sharding=None) -> list[ShapedArray]:
    if (key.shape, key.dtype) not in (((4,), dtypes.uint32), ((2,), dtypes.uint64)):
        raise TypeError(f"rng_bit_generator requires a key of type uint32[4] or uint64[2], got {key}")
    if dtypes.kind(dtype) != "u" or dtypes.itemsize_bits(dtype) < 8:
        raise TypeError(f"rng_bit_generator: unsupported dtype {dtype}; it makes unsigned integers of 8 to 64 bits")
    return [key, shaped_array(shape, dtype, False)]


@boundary
def rng_bit_generator(key, shape, dtype=dtypes.uint32, algorithm: RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT, *,
                      out_sharding=None) -> tuple[Any, Any]:
    """Random bits from a key: the same key gives the same bits, on one platform and algorithm.

    Args:
      key: uint32[4] or uint64[2].
      shape: the shape of the bits.
      dtype: an unsigned integer dtype of 8 to 64 bits.
      algorithm: a `RandomAlgorithm`; the default is the backend's choice.
      out_sharding: ignored; programs run on one device.
    Returns: the key for the next call, and the bits.
    Raises: TypeError for other keys and dtypes.
    """
    new_key, bits = rng_bit_generator_p.bind(
        key, shape=shaping.canonical_shape(shape), dtype=dtypes.check_user_dtype_supported(dtype, "rng_bit_generator"),
        algorithm=RandomAlgorithm(operator.index(algorithm)), out_sharding=None)
    return new_key, bits


@rng_uniform_p.def_abstract_eval
def _rng_uniform_aval(a, b, *, shape: Ints) -> ShapedArray:
    if a.dtype != b.dtype:
        raise ValueError(f"Arguments to rng_uniform must have identical dtypes, got {a.dtype} and {b.dtype}.")
    if a.shape or b.shape:
        raise ValueError(f"Arguments to rng_uniform must be scalars; got shapes {a.shape} and {b.shape}.")
    if a.dtype not in _UNIFORM_DTYPES:  # XLA:CPU ends the process on others
        raise TypeError(f"rng_uniform makes {', '.join(dtype.name for dtype in _UNIFORM_DTYPES)}; got {a.dtype}")
    return shaped_array(shape, a.dtype, a.weak_type and b.weak_type)


@boundary
def rng_uniform(a, b, shape):
    """Uniform numbers in [a, b) from the backend's stateful generator: not reproducible, not for use in science.

    Args:
      a, b: scalars of one dtype: floats of at least 16 bits, or integers of 32 or 64.
    Raises: ValueError for arrays and for dtypes that differ, TypeError for other dtypes.
    """
    return rng_uniform_p.bind(a, b, shape=shaping.canonical_shape(shape))


register_rule_modules("jaxlite.lax.rng_rules")
