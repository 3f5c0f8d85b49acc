"""Reductions over segments of an array."""

from jaxlite.core.lazy import Lazy as _Lazy
from jaxlite.ops.segments import segment_max, segment_min, segment_prod, segment_sum

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]

__dir__ = _Lazy(__name__).names
