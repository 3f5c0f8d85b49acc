"""Arrays shared with other libraries through DLPack."""

from jaxlite.extend.dlpack import from_dlpack, is_supported_dtype

__all__ = ["from_dlpack", "is_supported_dtype"]
__dir__ = lambda: __all__
