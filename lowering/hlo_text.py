"""Parses the text of optimised HLO: instructions, their fusions, and their source lines."""

from __future__ import annotations

import re
from typing import NamedTuple

_TABLE = re.compile(r"^(FileNames|FunctionNames|FileLocations|StackFrames)$")
_FIELD = re.compile(r"(\w+)=(\d+)")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) (?:\(|\{).*\{\s*(?:/\*.*\*/)?$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\(")
_METADATA = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_OLD_FILE = re.compile(r'source_file="([^"]*)"(?:.*? source_line=(\d+))?')
_CALLS = re.compile(r"(?:calls|to_apply|body|condition)=%?([\w.\-]+)")


class Instruction(NamedTuple):
    """One instruction. `line` is the number of its line in the text, from 0 on; `frames` are (file, line), innermost first."""

    name: str
    opcode: str
    shape: str
    computation: str
    op_name: str
    frames: tuple[tuple[str, int], ...]
    calls: tuple[str, ...]
    line: int


class Module(NamedTuple):
    """A module. `entry` is the name of the computation that runs."""

    name: str
    entry: str
    instructions: list[Instruction]


def parse(text: str) -> Module:
    """Read a module's text; unknown parts are left out."""
    lines = text.splitlines()
    match = re.match(r"HloModule ([\w.\-<>$]+)", text)
    name = match[1] if match else ""
    tables: dict[str, dict[int, str]] = {}
    table: dict[int, str] | None = None
    found: list[Instruction] = []
    computation = entry = ""
    stacks: dict[int, tuple[tuple[str, int], ...]] = {}
    for number, line in enumerate(lines):
        if _TABLE.match(line):
            table = tables.setdefault(line, {})
            continue
        if table is not None:
            key, _, value = line.strip().partition(" ")
            if key.isdigit():
                table[int(key)] = value
                continue
            table = None
        start = _COMPUTATION.match(line)
        if start:
            computation = start[2]
            entry = computation if start[1] else entry
            continue
        made = _INSTRUCTION.match(line)
        if not made:
            continue
        metadata, frame = _METADATA.search(line), _FRAME.search(line)
        frames: tuple[tuple[str, int], ...] = ()
        if frame:
            number_of_frame = int(frame[1])
            if number_of_frame not in stacks:
                stacks[number_of_frame] = _stack(tables, number_of_frame)
            frames = stacks[number_of_frame]
        else:
            old = _OLD_FILE.search(line)
            frames = ((old[1], int(old[2] or 0)),) if old else ()
        found.append(Instruction(made[2], made[4], made[3], computation, metadata[1] if metadata else "", frames,
                                 tuple(_CALLS.findall(line)), number))
    return Module(name, entry, found)


def _stack(tables: dict[str, dict[int, str]], frame: int) -> tuple[tuple[str, int], ...]:
    frames = []
    # Where the first frame names itself as its parent, 1 means none, and 2 the first.
    shift = int("parent_frame_id=1}" in tables.get("StackFrames", {}).get(1, "") + "}")
    seen: set[int] = set()
    while frame and frame not in seen:
        seen.add(frame)
        fields = dict(_FIELD.findall(tables.get("StackFrames", {}).get(frame, "")))
        place = dict(_FIELD.findall(tables.get("FileLocations", {}).get(int(fields.get("file_location_id", 0)), "")))
        file = tables.get("FileNames", {}).get(int(place.get("file_name_id", 0)), "").strip('"')
        if file:
            frames.append((file, int(place.get("line", 0))))
        frame = int(fields.get("parent_frame_id", 0)) - shift
    return tuple(frames)
