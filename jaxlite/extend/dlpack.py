"""Arrays of other libraries, through DLPack: the functions of `jaxlite.dlpack`."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.numpy import creation

__all__ = ["from_dlpack", "is_supported_dtype"]
__dir__ = lambda: __all__


def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Any:
    """`jaxlite.numpy.from_dlpack`, with its arguments by position too.

    >>> from_dlpack(np.arange(3, dtype="float32"), None)
    Array([0., 1., 2.], dtype=float32)
    """
    return creation.from_dlpack(external_array, device=device, copy=copy)


def is_supported_dtype(dtype: Any) -> bool:
    """Whether arrays of a dtype can go through DLPack.

    >>> is_supported_dtype("float32"), is_supported_dtype("int4")
    (True, False)
    """
    dtype = np.dtype(dtype)
    return dtype.kind not in "OSUMm" and dtypes.itemsize_bits(dtype) >= 8 and (dtype.isbuiltin == 1 or dtype == dtypes.bfloat16)
