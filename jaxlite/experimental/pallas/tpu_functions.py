"""Functions on vectors that a TPU has instructions for; interpreted they are ordinary operations.

Random bits are zero there: what a TPU draws depends on its own generator.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.aval import shaped_array
from jaxlite.core.filtering import boundary
from jaxlite.core.primitive import Primitive
from jaxlite.core.values import aval_of
from jaxlite.experimental.pallas.primitives import ORDER
from jaxlite.lax import elementwise as ew
from jaxlite.lax.shaping import bitcast_convert_type, broadcasted_iota, convert, full, reshape, transpose
from jaxlite.numpy.arithmetic import mod
from jaxlite.numpy.indexing import take_along_axis
from jaxlite.numpy.manipulation import roll as roll_array
from jaxlite.state.views import bitcast_shape, with_bits
from jaxlite.traces.decompose import decomposes

roll_p = Primitive("roll")
pack_elementwise_p = Primitive("pack_elementwise")
unpack_elementwise_p = Primitive("unpack_elementwise")
stochastic_round_p = Primitive("stochastic_round")
bitcast_p = Primitive("bitcast")
prng_seed_p = Primitive("prng_seed", multiple_results=True)
prng_random_bits_p = Primitive("prng_random_bits")
for _p in (pack_elementwise_p, unpack_elementwise_p, stochastic_round_p, bitcast_p, prng_seed_p, prng_random_bits_p):
    _p.no_jvp("it works on bits")
    _p.no_transpose("it works on bits")
_ORDER = frozenset((ORDER,))
_u32, _i32 = np.dtype(np.uint32), np.dtype(np.int32)

# --- positions and bits ------------------------------------------------------------------------------

roll_p.def_abstract_eval(lambda x, shift, *, axis, stride, stride_axis: shaped_array(x.shape, x.dtype, False))


@decomposes(roll_p)
def _roll(x: Any, shift: Any, *, axis: int, stride: int | None, stride_axis: int | None) -> Any:
    if stride is None:
        return roll_array(x, shift, axis)
    shape = aval_of(x).shape
    assert stride_axis is not None, "`roll` checks that"
    places, rows = (broadcasted_iota(_i32, shape, each) for each in (axis, stride_axis))
    return take_along_axis(x, mod(places - shift - stride * rows, np.int32(shape[axis])), axis)


@boundary
def roll(x: Any, shift: Any, axis: int, *, stride: int | None = None, stride_axis: int | None = None) -> Any:
    """The elements shifted along an axis; what falls off at the end comes in at the start.

    Args: `shift` an int32 scalar; with `stride` and `stride_axis`, row i along that axis is shifted by `i * stride` more.
    """
    if (stride is None) != (stride_axis is None):
        raise ValueError("stride and stride_axis must be both specified or not.")
    if isinstance(shift, int) and shift < 0:
        raise ValueError("shift must be non-negative.")
    rank = aval_of(x).ndim
    for each in (axis, stride_axis):
        if each is not None and not 0 <= each < rank:
            raise ValueError(f"axis {each} is out of range for an array with {rank} axes")
    if stride is not None and (stride < 0 or stride_axis == axis):
        raise ValueError("stride must be non-negative, and stride_axis another one than axis")
    return roll_p.bind(x, convert(shift, _i32, False), axis=axis, stride=stride, stride_axis=stride_axis)


@bitcast_p.def_abstract_eval
def _bitcast_aval(x: Any, *, ty: Any) -> Any:
    return shaped_array(bitcast_shape(x.shape, x.dtype, np.dtype(ty)), ty, False)


decomposes(bitcast_p)(lambda x, *, ty: with_bits(x, ty))


def bitcast(x: Any, ty: Any, dim: int = -2) -> Any:
    """The bits of an array as another dtype; if its width differs, the axis before the last is longer or shorter.

    Raises: NotImplementedError for another axis `dim`.
    """
    rank = aval_of(x).ndim
    if rank > 1 and dim % rank != rank - 2:
        raise NotImplementedError(f"bitcast along the axis {dim} of an array with {rank} axes: it is the one before the last")
    return bitcast_p.bind(x, ty=dtypes.canonicalize_dtype(ty))


# --- several narrow elements in one ------------------------------------------------------------------


def _unsigned(dtype: Any) -> Any:
    return np.dtype(f"uint{8 * np.dtype(dtype).itemsize}")


@pack_elementwise_p.def_abstract_eval
def _pack_aval(*xs: Any, packed_dtype: Any) -> Any:
    first, count = xs[0], xs[0].dtype.itemsize // np.dtype(packed_dtype).itemsize
    if any(x.shape != first.shape or x.dtype != first.dtype for x in xs):
        raise ValueError("All inputs to pack_elementwise must have the same shape and dtype")
    if len(xs) != count:
        raise ValueError(f"The number of inputs must match the packing factor, got {len(xs)} for {count}")
    return shaped_array(first.shape, _unsigned(first.dtype), False)


@decomposes(pack_elementwise_p)
def _pack(*xs: Any, packed_dtype: Any) -> Any:
    wide, narrow = _unsigned(xs[0].dtype), np.dtype(packed_dtype)
    out = full(aval_of(xs[0]).shape, 0, wide)
    for place, x in enumerate(xs):
        bits = convert(bitcast_convert_type(convert(x, narrow, False), _unsigned(narrow)), wide, False)
        out = ew.bitwise_or(out, ew.shift_left(bits, wide.type(8 * narrow.itemsize * place)))
    return out


def pack_elementwise(xs: Sequence[Any], *, packed_dtype: Any) -> Any:
    """Arrays as narrower elements in one array of unsigned integers, the first in the lowest bits.

    Args: `xs` as many arrays of one shape and dtype as fit; `packed_dtype` the narrower dtype.
    """
    return pack_elementwise_p.bind(*xs, packed_dtype=np.dtype(packed_dtype))


@unpack_elementwise_p.def_abstract_eval
def _unpack_aval(x: Any, *, index: int, packed_dtype: Any, unpacked_dtype: Any) -> Any:
    if not 0 <= index < x.dtype.itemsize // np.dtype(packed_dtype).itemsize:
        raise ValueError(f"index {index} is out of range for {np.dtype(packed_dtype)} packed in {x.dtype}")
    return shaped_array(x.shape, unpacked_dtype, False)


@decomposes(unpack_elementwise_p)
def _unpack(x: Any, *, index: int, packed_dtype: Any, unpacked_dtype: Any) -> Any:
    wide, narrow = _unsigned(x.dtype), np.dtype(packed_dtype)
    bits = ew.shift_right_logical(bitcast_convert_type(x, wide), wide.type(8 * narrow.itemsize * index))
    return convert(bitcast_convert_type(convert(bits, _unsigned(narrow), False), narrow), unpacked_dtype, False)


def unpack_elementwise(x: Any, *, index: int, packed_dtype: Any, unpacked_dtype: Any) -> Any:
    """One of the arrays that `pack_elementwise` packed, by its number, in a dtype as wide as the whole."""
    return unpack_elementwise_p.bind(x, index=int(index), packed_dtype=np.dtype(packed_dtype),
                                     unpacked_dtype=np.dtype(unpacked_dtype))


@stochastic_round_p.def_abstract_eval
def _round_aval(x: Any, bits: Any, *, target_dtype: Any) -> Any:
    if x.dtype != np.float32 or bits.dtype != _u32 or x.shape != bits.shape:
        raise ValueError(f"stochastic_round takes float32 and uint32 of one shape, got {x} and {bits}")
    return shaped_array(x.shape, target_dtype, False)


@decomposes(stochastic_round_p)
def _stochastic_round(x: Any, bits: Any, *, target_dtype: Any) -> Any:
    """Random bits are added to the bits that rounding drops; infinities and NaN do not change."""
    if np.dtype(target_dtype).name != "bfloat16":
        raise NotImplementedError(f"interpreted, stochastic_round rounds to bfloat16, got {np.dtype(target_dtype)}")
    low = full(aval_of(bits).shape, 0xFFFF, _u32)
    moved = ew.add(bitcast_convert_type(x, _u32), ew.bitwise_and(bits, low))
    rounded = bitcast_convert_type(ew.bitwise_and(moved, ew.bitwise_not(low)), x.dtype)
    return convert(ew.select(ew.is_finite(x), rounded, x), target_dtype, False)


def stochastic_round(x: Any, random_bits: Any, *, target_dtype: Any) -> Any:
    """Round float32 to a narrower dtype, up or down with the probability of its nearness, by uint32 random bits."""
    return stochastic_round_p.bind(x, random_bits, target_dtype=np.dtype(target_dtype))


# --- random numbers ----------------------------------------------------------------------------------

prng_seed_p.def_effectful_abstract_eval(lambda *seeds: ([], _ORDER))
prng_random_bits_p.def_effectful_abstract_eval(lambda *, shape: (shaped_array(shape, _i32, False), _ORDER))
decomposes(prng_seed_p)(lambda *seeds: [])
decomposes(prng_random_bits_p)(lambda *, shape: full(shape, 0, _i32))


def prng_seed(*seeds: Any) -> None:
    """Seed the generator of this core with int32 scalars."""
    prng_seed_p.bind(*(convert(seed, _i32, False) for seed in seeds))


def prng_random_bits(shape: Sequence[int]) -> Any:
    """Random bits of this core's generator, int32."""
    return prng_random_bits_p.bind(shape=tuple(shape))


def stateful_bits(shape: Sequence[int] = (), dtype: Any = np.uint32) -> Any:
    """Random bits of this core's generator, unsigned integers."""
    return convert(bitcast_convert_type(prng_random_bits(shape), _u32), dtype, False)


def stateful_uniform(shape: Sequence[int] = (), dtype: Any = np.float32, minval: Any = 0.0, maxval: Any = 1.0) -> Any:
    """Random numbers between `minval` and `maxval`, of this core's generator."""
    bits = ew.shift_right_logical(stateful_bits(shape), np.uint32(9))  # a mantissa
    ones = bitcast_convert_type(ew.bitwise_or(bits, full(tuple(shape), 0x3F800000, _u32)), np.dtype(np.float32))
    return convert((ones - np.float32(1)) * np.float32(maxval - minval) + np.float32(minval), np.dtype(dtype), False)


def stateful_normal(shape: Sequence[int] = (), dtype: Any = np.float32) -> Any:
    """Normally distributed random numbers of this core's generator (G. Box and M. Muller, 1958)."""
    radius = ew.sqrt(np.float32(-2) * ew.log(np.float32(1) - stateful_uniform(shape)))
    return convert(radius * ew.cos(stateful_uniform(shape) * np.float32(2 * np.pi)), np.dtype(dtype), False)


def stateful_bernoulli(p: Any = 0.5, shape: Sequence[int] | None = None) -> Any:
    """True with probability `p`, by this core's generator."""
    return stateful_uniform(np.shape(p) if shape is None else shape) < p


# --- shapes ------------------------------------------------------------------------------------------


def einshape(equation: str, x: Any, assert_is_tile_preserving: bool = False, **sizes: int) -> Any:
    """Reshape and transpose by an equation of letters: 'a(bc)->(ab)c' splits the second axis and merges b with the first.

    Args: `sizes` by letter, if not given by the shape; `assert_is_tile_preserving` is accepted.
    Raises: ValueError if the equation does not fit the shape.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.experimental.pallas import tpu as pltpu
    >>> pltpu.einshape("a(bc)->bac", jnp.zeros((3, 8)), b=2).shape
    (2, 3, 4)
    """
    before, arrow, after = equation.replace(" ", "").partition("->")
    groups = [re.findall(r"\(\w*\)|\w", side) for side in (before, after)]
    names = [[each.strip("()") for each in side] for side in groups]
    shape = np.shape(x)
    if not arrow or len(names[0]) != len(shape) or sorted("".join(names[0])) != sorted("".join(names[1])):
        raise ValueError(f"einshape: the equation {equation!r} does not fit an array of shape {shape}")
    for letters, extent in zip(names[0], shape, strict=True):
        unknown = [each for each in letters if each not in sizes]
        known = int(np.prod([sizes[each] for each in letters if each in sizes]))
        if len(unknown) > 1 or extent % known or not unknown and known != extent:
            raise ValueError(f"einshape: sizes {sizes} do not say how the axis of size {extent} is made of {letters!r}")
        sizes |= dict.fromkeys(unknown, extent // known)
    order = "".join(names[0])
    parts = transpose(reshape(x, [sizes[each] for each in order]), [order.index(each) for each in "".join(names[1])])
    return reshape(parts, [int(np.prod([sizes[each] for each in letters])) for letters in names[1]])
