"""The buffers behind values."""

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
