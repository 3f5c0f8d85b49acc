"""`jax._src.pretty_printer.text`, which libraries give to a printer as a part of its text."""

from __future__ import annotations

from typing import Any


class text(str):
    """A piece of text that is not broken into lines."""

    def format(self, *args: Any, **kwargs: Any) -> str:
        """The text, whatever the width of a line."""
        return str(self)
