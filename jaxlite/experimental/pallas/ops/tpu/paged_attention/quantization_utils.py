"""Arrays of int8 with a scale for each vector along the last axis."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxlite import numpy as jnp

MAX_INT8 = 127.5


class QuantizedTensor(NamedTuple):
    """Integers, and the greatest absolute value of each vector along the last axis."""

    weight: Any
    scales: Any


def to_int8(x: Any, h: Any) -> Any:
    """Floats in [-h, h] as int8."""
    return jnp.rint(x * (MAX_INT8 / h)).astype(np.int8)


def from_int8(x: Any, h: Any, dtype: Any = jnp.bfloat16) -> Any:
    """Floats from what `to_int8` gives."""
    return x.astype(dtype) * h / MAX_INT8


def get_quantization_scales(x: Any) -> Any:
    """The greatest absolute value of each vector along the last axis, which stays with size 1."""
    return jnp.max(jnp.abs(x), axis=-1, keepdims=True)


def quantize_to_int8(x: Any) -> QuantizedTensor:
    """Floats as int8 with scales."""
    scales = get_quantization_scales(x)
    return QuantizedTensor(to_int8(x, scales), scales)


def unquantize_from_int8(x: QuantizedTensor, dtype: Any = jnp.bfloat16) -> Any:
    """Floats from what `quantize_to_int8` gives."""
    return from_int8(x.weight, x.scales, dtype)
