"""The examples in docstrings, in the README and in docs/ run and print what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def with_examples(files: list[Path]) -> list[str]:
    return sorted(str(file.relative_to(ROOT)) for file in files if ">>>" in file.read_text(encoding="utf-8"))


MODULES = with_examples([file for package in ("jaxlite", "lowering") for file in (ROOT / package).rglob("*.py")])
TEXTS = with_examples([*ROOT.glob("README.md"), *(ROOT / "docs").glob("*.md")])


def module_name(file: str) -> str:
    parts = Path(file).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("file", MODULES)
def test_docstring_examples(file: str) -> None:
    module = importlib.import_module(module_name(file))
    assert doctest.testmod(module, optionflags=FLAGS).failed == 0


@pytest.mark.parametrize("file", TEXTS)
def test_text_examples(file: str) -> None:
    assert doctest.testfile(str(ROOT / file), module_relative=False, optionflags=FLAGS, encoding="utf-8").failed == 0
