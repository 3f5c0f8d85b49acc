"""Arrays in other sizes."""

from jaxlite.image.resampling import ResizeMethod, resize, scale_and_translate

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]
