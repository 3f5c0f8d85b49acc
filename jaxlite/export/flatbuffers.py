"""FlatBuffers, the subset that JAX's export files use: tables of numbers, strings, vectors and tables.

`Table` reads fields by number. `write` makes a file from nested `{field: value}` dictionaries, whose values come from
`number`, `text`, `texts`, `numbers`, `raw`, `table` and `tables`. Parents are written before children, so all offsets are
positive.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any


class Table:
    """A table in a buffer. Fields that are absent read as nothing: 0, "", an empty list, None for a table."""

    __slots__ = ("buffer", "position", "_fields", "_left")

    def __init__(self, buffer: bytes, position: int, left: list[int] | None = None):
        self.buffer, self.position = buffer, position
        self._left = left or [len(buffer)]  # how many more tables are read: no file has one for each of its bytes
        self._left[0] -= 1
        if self._left[0] <= 0:
            raise struct.error("tables lead to each other in circles")
        self._fields = position - struct.unpack_from("<i", buffer, position)[0]
        if not 0 <= self._fields < len(buffer):
            raise struct.error("a table's fields are outside of the file")

    @classmethod
    def root(cls, buffer: bytes) -> Table:
        return cls(buffer, struct.unpack_from("<I", buffer, 0)[0])

    def _place(self, field: int) -> int | None:
        at = 4 + 2 * field
        if at >= struct.unpack_from("<H", self.buffer, self._fields)[0]:
            return None
        offset = struct.unpack_from("<H", self.buffer, self._fields + at)[0]
        return self.position + offset if offset else None

    def _target(self, field: int) -> int | None:
        place = self._place(field)
        return None if place is None else place + struct.unpack_from("<I", self.buffer, place)[0]

    def number(self, field: int, form: str, default: Any = 0) -> Any:
        place = self._place(field)
        return default if place is None else struct.unpack_from("<" + form, self.buffer, place)[0]

    def has(self, field: int) -> bool:
        return self._place(field) is not None

    def table(self, field: int) -> Table | None:
        target = self._target(field)
        return None if target is None else Table(self.buffer, target, self._left)

    def raw(self, field: int, item_size: int = 1) -> bytes:
        target = self._target(field)
        return b"" if target is None else self._bytes(target, item_size)

    def _bytes(self, target: int, item_size: int = 1) -> bytes:
        size = struct.unpack_from("<I", self.buffer, target)[0] * item_size
        if target + 4 + size > len(self.buffer):
            raise struct.error("a vector reaches over the end of the file")
        return bytes(self.buffer[target + 4:target + 4 + size])

    def text(self, field: int) -> str:
        return self.raw(field).decode()

    def numbers(self, field: int, form: str) -> list[Any]:
        data = self.raw(field, struct.calcsize(form))
        return list(struct.unpack(f"<{len(data) // struct.calcsize(form)}{form}", data))

    def _items(self, field: int) -> list[int]:
        target = self._target(field)
        count = 0 if target is None else struct.unpack_from("<I", self.buffer, target)[0]
        if count and target + 4 + 4 * count > len(self.buffer):  # type: ignore[operator]
            raise struct.error("a vector reaches over the end of the file")
        places = [target + 4 + 4 * index for index in range(count)]  # type: ignore[operator]
        return [place + struct.unpack_from("<I", self.buffer, place)[0] for place in places]

    def tables(self, field: int) -> list[Table]:
        return [Table(self.buffer, place, self._left) for place in self._items(field)]

    def texts(self, field: int) -> list[str]:
        return [self._bytes(place).decode() for place in self._items(field)]


Value = tuple[Any, ...]  # its kind, then what that kind needs
Fields = dict[int, Value | None]


def number(form: str, value: Any) -> Value:
    """A scalar; `form` as in `struct`, of at most four bytes."""
    return "number", form, value


def text(value: str) -> Value:
    return "text", value


def texts(values: Sequence[str]) -> Value:
    return "texts", values


def raw(data: bytes, item_size: int = 1) -> Value:
    return "raw", data, item_size


def numbers(form: str, values: Sequence[Any]) -> Value:
    return raw(struct.pack(f"<{len(values)}{form}", *values), struct.calcsize(form))


def table(fields: Fields | None) -> Value | None:
    return None if fields is None else ("table", fields)


def tables(items: Sequence[Fields]) -> Value:
    return "tables", items


def write(fields: Fields) -> bytes:
    """A file whose root table has these fields."""
    writer = _Writer()
    writer.table(0, fields)
    writer.align()
    return bytes(writer.buffer)


class _Writer:
    def __init__(self) -> None:
        self.buffer = bytearray(4)

    def align(self) -> None:
        self.buffer += bytes(-len(self.buffer) % 4)

    def link(self, place: int) -> None:
        """Let the offset at a place lead to what is written next."""
        self.align()
        struct.pack_into("<I", self.buffer, place, len(self.buffer) - place)

    def table(self, place: int, fields: Fields) -> None:
        given = sorted((field, value) for field, value in fields.items() if value is not None)
        count = given[-1][0] + 1 if given else 0
        self.align()
        listing = len(self.buffer)
        self.buffer += struct.pack("<HH", 4 + 2 * count, 4 + 4 * len(given)) + bytes(2 * count)
        self.link(place)
        start = len(self.buffer)
        self.buffer += struct.pack("<i", start - listing) + bytes(4 * len(given))
        for index, (field, value) in enumerate(given):
            struct.pack_into("<H", self.buffer, listing + 4 + 2 * field, 4 + 4 * index)
            if value[0] == "number":
                struct.pack_into("<" + value[1], self.buffer, start + 4 + 4 * index, value[2])
        for index, (_, value) in enumerate(given):
            if value[0] != "number":
                self.value(start + 4 + 4 * index, value)

    def value(self, place: int, value: Value) -> None:
        kind, content, *more = value
        if kind == "table":
            return self.table(place, content)
        self.link(place)
        if kind in ("tables", "texts"):
            first = len(self.buffer) + 4
            self.buffer += struct.pack("<I", len(content)) + bytes(4 * len(content))
            for index, item in enumerate(content):
                self.value(first + 4 * index, (kind[:-1], item))
        elif kind == "text":
            data = content.encode()
            self.buffer += struct.pack("<I", len(data)) + data + b"\0"
        else:
            self.buffer += struct.pack("<I", len(content) // more[0]) + content
