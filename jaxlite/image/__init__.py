"""Resizing arrays."""

from jaxlite.core.lazy import Lazy as _Lazy
from jaxlite.image.resampling import ResizeMethod, resize, scale_and_translate

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]

__dir__ = _Lazy(__name__).names
