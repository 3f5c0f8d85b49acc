"""Protobuf's wire format, as far as XLA's options and descriptions need it that jaxlib has no names for.

See https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations


def message(number: int, content: bytes) -> bytes:
    """A length-delimited field of a message."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def fields(text: bytes) -> dict[int, bytes]:
    """The last of each of a message's fields that are texts or messages themselves."""
    found, position = {}, 0

    def number() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = text[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while position < len(text):
        field, kind = divmod(number(), 8)
        if kind == 2:
            size = number()
            found[field] = text[position:position + size]
            position += size
        elif kind == 0:
            number()
        else:
            position += 8 if kind == 1 else 4
    return found


def _varint(value: int) -> bytes:
    groups = []
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])
