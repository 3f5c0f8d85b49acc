"""Clients of platforms, as libraries that talk to XLA directly ask for them."""

from __future__ import annotations

from typing import Any

from jaxlite.compilation.caches import clear_caches as clear_in_memory_compilation_cache
from jaxlite.devices.placement import default_device as get_default_device
from lowering import platforms

__all__ = ["backends", "clear_in_memory_compilation_cache", "get_backend", "get_default_device"]


def get_backend(platform: Any = None) -> Any:
    """The client of a platform, by name; of the default one without a name. Raises: RuntimeError if there is none."""
    return platforms.client(platform) if platform is None or isinstance(platform, str) else platform


def backends() -> dict[str, Any]:
    """The clients of all platforms in use, by name."""
    return {name: platforms.client(name) for name in platforms.platform_names()}
