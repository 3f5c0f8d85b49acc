"""The result of `importlib.metadata` for jax, when jaxlite takes its place."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from lowering.xla import VERSION_TEXT


class Jax(importlib.metadata.Distribution):
    """The distribution `jax`, of the version that goes with this jaxlib."""

    def read_text(self, filename: str) -> str | None:
        if filename in ("METADATA", "PKG-INFO"):
            return f"Metadata-Version: 2.1\nName: jax\nVersion: {VERSION_TEXT}\n"
        return None

    def locate_file(self, path: Any) -> Any:
        return path
