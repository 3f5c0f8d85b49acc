"""Classes of JAX for numbers that carry a dtype inside programs. Libraries ask whether a value is one; here none is."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlite.core.aval import ShapedArray


class _Typed:
    """A Python number with a `dtype`, and the weakly typed `aval` of it."""

    dtype: np.dtype
    aval: ShapedArray

    def __new__(cls, value: Any, dtype: Any) -> Any:
        number = super().__new__(cls, value)  # type: ignore[call-arg]
        number.dtype = np.dtype(dtype)
        number.aval = ShapedArray((), number.dtype, True)
        return number


class TypedInt(_Typed, int):
    """An int of a dtype."""


class TypedFloat(_Typed, float):
    """A float of a dtype."""


class TypedComplex(_Typed, complex):
    """A complex number of a dtype."""


class TypedNdArray(np.ndarray):
    """An array that may be weakly typed."""
