"""The buffers behind values, and the dtypes of their parts."""

from __future__ import annotations

from typing import Any

import numpy as np

_BOOL = np.dtype(bool)


def physical(aval: Any) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype of the buffer behind an aval; they differ from its own for extended dtypes."""
    dtype = aval.dtype
    if isinstance(dtype, np.dtype):
        return aval.shape, _BOOL if dtype.names else dtype
    inner = dtype.physical_element()
    return (*aval.shape, *inner.shape), inner.dtype


def real_dtype(dtype: Any) -> np.dtype:
    """The dtype of the real part of complex numbers; that of real numbers itself."""
    return np.dtype(dtype.type(0).real.dtype)
