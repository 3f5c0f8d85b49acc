"""Programs in the pages of the documentation, which tests run."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def blocks_of(page: str, language: str = "python") -> list[str]:
    """The blocks of a page in a language, without those that are doctests."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(rf"^```{re.escape(language)}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return [block for block in found if ">>>" not in block]


def run_block(block: str, names: dict) -> None:
    """Run a block. A line whose comment begins with the name of an exception raises it."""
    for node in ast.parse(block).body:
        lines = block.splitlines()[node.lineno - 1:node.end_lineno]
        error = re.search(r"# (\w+Error)\b", lines[-1])
        code = compile(ast.Module([node], []), "block", "exec")
        if error is None:
            exec(code, names)
            continue
        try:
            exec(code, names)
        except Exception as raised:
            assert type(raised).__name__ == error[1], raised
        else:
            raise AssertionError(f"{lines[-1]}: nothing is raised")
