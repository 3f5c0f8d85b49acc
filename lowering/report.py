"""Seeing inside: what happened in each compile, as a log line and as files.

`compiled` is called once for each compile. It writes nothing unless asked to (`configure`).
"""

from __future__ import annotations

from typing import Any


def compiled(lowered: Any, closed: Any, loaded: Any, trace_seconds: float, compile_seconds: float) -> None:
    """Report one compile."""
