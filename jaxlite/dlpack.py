"""Arrays shared with other libraries through DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.numpy.creation import from_dlpack as from_dlpack

__all__ = ["from_dlpack", "is_supported_dtype"]
__dir__ = lambda: __all__


def is_supported_dtype(dtype: Any) -> bool:
    """Whether arrays of a dtype can go through DLPack.

    >>> is_supported_dtype("float32"), is_supported_dtype("int4")
    (True, False)
    """
    dtype = np.dtype(dtype)
    return dtypes.itemsize_bits(dtype) >= 8 and (dtype.isbuiltin == 1 or dtype == dtypes.bfloat16)
