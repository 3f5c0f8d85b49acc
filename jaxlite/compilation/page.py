"""The compile explorer's page: Python, jaxpr, StableHLO and optimised HLO side by side, in one HTML file.

Each line of the four texts has a place (the Python line that it comes from) and the name of its operation; a click on a
line highlights the lines with the same place. The page itself (`page.html`) renders the visible lines.
"""

from __future__ import annotations

import html
import json
import linecache
import math
import os
import re
from typing import Any

from jaxlite.core.jaxpr import count_eqns
from lowering import hlo_text

Line = list[Any]  # text, place or -1, operation, class of the row, number to show
_AROUND = 40  # lines of a long file that are shown before and after those that are used
_LONG_FILE = 3000
_MOST_COSTS = 25


class _Places:
    """The lines of Python that the texts refer to, by number."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, int], int] = {}

    def number(self, place: tuple[str, int] | None) -> int:
        return -1 if place is None else self.numbers.setdefault(place, len(self.numbers))


def page(name: str, jaxpr: Any, stablehlo: str, hlo: str, seconds: dict[str, float], memory: dict[str, int],
         cost: dict[str, float], device: str) -> str:
    """The page as text.

    Args:
      jaxpr: the program; `stablehlo` with locations; `hlo` what XLA made of it, as text.
      seconds: of each stage; `memory` and `cost` XLA's analyses, by its names.
    """
    places = _Places()
    panes = [{"title": "jaxpr", "lines": _jaxpr_lines(jaxpr, places)},
             {"title": "StableHLO", "lines": _stablehlo_lines(stablehlo, places)}]
    module = hlo_text.parse(hlo)
    hlo_lines, costs = _hlo_lines(hlo, module, places)
    panes.append({"title": "optimised HLO", "lines": hlo_lines})
    panes.insert(0, {"title": "Python", "lines": _python_lines(places)})
    facts = [["device", device], ["equations", str(count_eqns(jaxpr))],
             ["fusions", str(sum(each.opcode == "fusion" for each in module.instructions))]]
    facts += [[what, _quantity(cost[key], unit)] for what, key, unit in (
        ("arithmetic", "flops", " flop"), ("memory traffic", "bytes accessed", "B")) if cost.get(key, 0) > 0]
    stages = [{"name": stage, "kind": "time", "value": time, "text": f"{1e3 * time:.1f} ms", "line": -1}
              for stage, time in seconds.items()]
    bytes_of = {what: int(memory.get(f"{key}_size_in_bytes", 0)) for what, key in (
        ("arguments", "argument"), ("results", "output"), ("temporaries", "temp"), ("code", "generated_code"))}
    stages += [{"name": what, "kind": "memory", "value": value, "text": _quantity(value, "B"), "line": -1}
               for what, value in bytes_of.items()]
    data = {"name": name, "facts": facts, "panes": panes, "stages": stages, "costs": costs}
    with open(os.path.join(os.path.dirname(__file__), "page.html"), encoding="utf-8") as file:
        template = file.read()
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return template.replace("TITLE", html.escape(name), 1).replace("DATA", text, 1)


def _quantity(value: float, unit: str) -> str:
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {prefix}{unit.strip()}"
    return f"{value:.3g} {unit.strip()}"


# --- the four texts ----------------------------------------------------------------------------------

_COMMENT = re.compile(r"^(.*?)\s+# (.*?):(\d+)(?::\d+)? \(.*\)$")
_EQUATION = re.compile(r"^\s*(?:\S+:\S+ )*\S+ = ([\w\-]+)")


def _jaxpr_lines(jaxpr: Any, places: _Places) -> list[Line]:
    lines: list[Line] = []
    place, op, indent = -1, "", 0
    for text in jaxpr.pretty_print(source_info=True).splitlines():
        comment = _COMMENT.match(text)
        depth = len(text) - len(text.lstrip())
        if comment:
            text = comment[1]
            equation = _EQUATION.match(text)
            place, op, indent = places.number((comment[2], int(comment[3]))), equation[1] if equation else "", depth
        elif depth <= indent and text.lstrip()[:1] != "]":
            place, op = -1, ""
        lines.append([text, place, op, ""])
    return lines


_LOCATION = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_AT_END = re.compile(r"\s*loc\((#loc\d*|unknown|\"[^\"]*\")\)(?=$|[,)\s])")
_FILE = re.compile(r'^"((?:[^"\\]|\\.)*)":(\d+):')
_NAMED = re.compile(r'^"((?:[^"\\]|\\.)*)"\((#loc\d*)\)$')
_CALLSITE = re.compile(r"^callsite\((#loc\d*) at (#loc\d*)\)$")


def _stablehlo_lines(text: str, places: _Places) -> list[Line]:
    definitions = {match[1]: match[2] for match in map(_LOCATION.match, text.splitlines()) if match}
    known: dict[str, tuple[tuple[str, int] | None, str]] = {}

    def resolve(name: str) -> tuple[tuple[str, int] | None, str]:
        """The innermost line of a location, and the outermost name: that of the operation."""
        if name not in known:
            known[name] = None, ""
            content = definitions.get(name, "")
            if file := _FILE.match(content):
                known[name] = (file[1], int(file[2])), ""
            elif named := _NAMED.match(content):
                known[name] = resolve(named[2])[0], named[1].rpartition("/")[2]
            elif site := _CALLSITE.match(content):
                known[name] = resolve(site[1])[0], ""
        return known[name]

    lines: list[Line] = []
    for line in text.splitlines():
        if line.startswith("#loc"):
            continue
        found = _AT_END.findall(line)
        place, op = resolve(found[-1]) if found else (None, "")
        lines.append([_AT_END.sub("", line), places.number(place), op, ""])
    return lines


_SHAPE = re.compile(r"([a-z]\w*)\[([\d,]*)\]")
_OPERANDS = re.compile(r"%([\w.\-]+)")
_CONTRACTING = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")
_METADATA = re.compile(r", metadata=\{[^}]*\}")
_FREE = ("parameter", "constant", "get-tuple-element", "tuple", "bitcast")
_HLO_DTYPES = {"pred": 1, "s4": 0.5, "u4": 0.5}


def _bytes(shape: str) -> float:
    total = 0.0
    for name, extents in _SHAPE.findall(shape):
        bits = re.search(r"\d+", name)
        size = _HLO_DTYPES.get(name) or (int(bits[0]) / 8 if bits else 0)
        total += size * math.prod(int(extent) for extent in extents.split(",") if extent)
    return total


def _extents(shape: str) -> list[int]:
    found = _SHAPE.search(shape)
    return [int(size) for size in found[2].split(",") if size] if found else []


def _hlo_lines(text: str, module: hlo_text.Module, places: _Places) -> tuple[list[Line], list[dict[str, Any]]]:
    by_line = {each.line: each for each in module.instructions}
    shapes = {each.name: each.shape for each in module.instructions}
    fused = {name for each in module.instructions if each.opcode == "fusion" for name in each.calls}
    lines: list[Line] = []
    costs: list[dict[str, Any]] = []
    source_lines = text.splitlines()
    tables, boxed = False, False
    for number, line in enumerate(source_lines):
        if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
            tables = True
        elif line.startswith(("%", "ENTRY")):
            tables = False
        if tables:
            continue
        each = by_line.get(number)
        kind = ""
        if each is None:
            start = re.match(r"^%?([\w.\-]+) \(", line)
            if start and start[1] in fused:
                kind, boxed = "box boxtop", True
            elif boxed:
                kind = "box"
                if line.startswith("}"):
                    kind, boxed = "box boxend", False
            lines.append([line, -1, "", kind])
            continue
        place = places.number(each.frames[0] if each.frames else None)
        lines.append([_METADATA.sub("", line), place, each.op_name.rpartition("/")[2], "box" if boxed else ""])
        if each.computation in fused or each.opcode in _FREE:
            continue
        operands = _OPERANDS.findall(line.partition("(")[2].partition(")")[0])
        moved = _bytes(each.shape) + sum(_bytes(shapes.get(name, "")) for name in operands)
        title = f"{each.name}" + (f"  {each.op_name}" if each.op_name else "")
        costs.append({"name": title, "kind": "bytes", "value": moved, "text": _quantity(moved, "B"), "line": len(lines) - 1})
        axes = _CONTRACTING.search(line)
        if each.opcode == "dot" and axes and operands:
            extents = _extents(shapes.get(operands[0], ""))
            contracted = [extents[int(axis)] for axis in axes[1].split(",") if axis and extents]
            work = 2.0 * math.prod(_extents(each.shape)) * math.prod(contracted)
            costs.append({"name": title, "kind": "flops", "value": work, "text": _quantity(work, "flop"),
                          "line": len(lines) - 1})
    costs.sort(key=lambda row: -row["value"])
    return lines, [row for kind in ("bytes", "flops") for row in [each for each in costs if each["kind"] == kind][:_MOST_COSTS]]


def _python_lines(places: _Places) -> list[Line]:
    files: dict[str, set[int]] = {}
    for file, number in places.numbers:
        files.setdefault(file, set()).add(number)
    lines: list[Line] = []
    for file, used in sorted(files.items(), key=lambda item: -len(item[1])):
        text = linecache.getlines(file)
        lines.append([file if text else f"{file} (its text is not at hand)", -1, "", "file"])
        shown = range(1, len(text) + 1) if len(text) <= _LONG_FILE else sorted(
            {near for each in used for near in range(max(1, each - _AROUND), min(len(text), each + _AROUND) + 1)})
        before = 0
        for number in shown:
            if number != before + 1 and before:
                lines.append(["...", -1, "", "file"])
            lines.append([text[number - 1].rstrip("\n"), places.numbers.get((file, number), -1), "", "", number])
            before = number
    return lines


