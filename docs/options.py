"""Writes `docs/config.md`, the page of all options: `python docs/options.py`, with a Python that has jaxlite."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "config.md"

HEAD = """\
# Options

An option is set for the process with `jaxlite.config.update("jax_enable_x64", True)`, in the environment
(`JAXLITE_ENABLE_X64=1`, or `JAX_ENABLE_X64=1`), or on the command line of a program that calls
`jaxlite.config.parse_flags_with_absl()`. Most have a context manager for a block and the thread that runs it:
`with jaxlite.enable_x64(True): ...`, `with jaxlite.debug_nans(True): ...`. The prefix `jax_` may be left out.

| option | default | what it does |
|---|---|---|
"""
MIDDLE = """
## JAX's options without effect

They can be set, also in the environment (`JAX_NAME=...`), and read, so programs that set them run.

| options | why |
|---|---|
"""
END = """
These accept only their default, because another value would change the meaning of programs: {refused}.
"""


def page() -> str:
    """The page, as it should be."""
    from jaxlite.core import config
    from jaxlite.core.foreign_options import REASONS, REFUSED

    rows = []
    for name, option in sorted(config.OPTIONS.items()):
        default = "`~/.cache/jaxlite`" if name == "compilation_cache_dir" else f"`{option.default!r}`"
        rows.append(f"| `{name}` | {default} | {option.doc} |")
    groups: dict[str, list[str]] = {}
    for name, reason in sorted(REASONS.items()):
        groups.setdefault(reason, []).append(f"`{name}`")
    refused = ", ".join(f"`{name}` (`{value!r}`; {instead})" for name, (value, instead) in sorted(REFUSED.items()))
    without = [f"| {', '.join(names)} | {reason} |" for reason, names in groups.items()]
    return HEAD + "\n".join(rows) + "\n" + MIDDLE + "\n".join(without) + "\n" + END.format(refused=refused)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(page(), encoding="utf-8")
