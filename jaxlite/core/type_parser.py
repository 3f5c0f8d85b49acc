"""The types of jaxprs as text: tokens of a text, complaints that say where, and types such as `f32[8@x,2*b]{V:y}`.

`parser.py` reads programs with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from jaxlite.core import dtypes
from jaxlite.core.aval import MEMORY_SPACES, AbstractRef, MemorySpace, ShapedArray, abstract_token, with_layout
from jaxlite.core.errors import JaxprSyntaxError
from jaxlite.core.lazy import loader
from jaxlite.core.symbolic import SymbolicScope, names_in, parse

meshes, texts = loader("jaxlite.devices.mesh"), loader("jaxlite.devices.texts")  # what stands higher: types may name a mesh

_TOKEN = re.compile(r"""
    (?P<space>\s+|\#[^\n]*)
  | (?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
  | (?P<number>[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|inf\b|nan\b)j?(?![\w<]))
  | (?P<word>[A-Za-z_<](?:[\w<>.]|-(?!\d))*)
  | (?P<arrow><-)
  | (?P<mark>[{}()\[\],;:.=~*@|!?/+&%$^`>\\-])
""", re.VERBOSE)
_OPERATIONS = ("floordiv", "max", "min", "mod", "non_negative")
_STATES = ("V", "U", "U_max", "U_min", "R")


class Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int

    def __str__(self) -> str:
        return "the end of the text" if self.kind == "end" else repr(self.text)


class TypeReader:
    """Reads one text. `at` is the index of the next token."""

    def __init__(self, text: str, objects: Mapping[str, Any], symbols: SymbolicScope | None):
        self.text, self.objects = text, objects
        self.tokens: list[Token] = []
        self.at = 0
        self.types: dict[tuple[int, str], Any] = {}
        place = 0
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                self.fail("a word, a number or a mark", Token("", text[place], place, place + 1))
            if match.lastgroup != "space":
                self.tokens.append(Token(match.lastgroup or "", match[0], place, match.end()))
            place = match.end()
        self.tokens.append(Token("end", "", len(text), len(text)))
        self.symbols = symbols or SymbolicScope()
        self.dimensions: set[str] = set()  # the symbolic ones among the words

    # --- errors and tokens

    def fail(self, expected: str, token: Token | None = None, got: str | None = None) -> NoReturn:
        token = token or self.tokens[self.at]
        self.refuse(f"expected {expected}, got {token if got is None else got}", token)

    def refuse(self, message: str, token: Token, cause: Exception | None = None) -> NoReturn:
        line = self.text.count("\n", 0, token.start) + 1
        begin = self.text.rfind("\n", 0, token.start) + 1
        end = self.text.find("\n", begin)
        raise JaxprSyntaxError(message, line, token.start - begin + 1, self.text[begin:end if end >= 0 else None]) from cause

    def peek(self, text: str) -> bool:
        token = self.tokens[self.at]
        return token.text == text and token.kind != "string"

    def take(self, text: str) -> bool:
        if self.peek(text):
            self.at += 1
            return True
        return False

    def expect(self, text: str, what: str = "") -> Token:
        if not self.peek(text):
            self.fail(what or repr(text))
        self.at += 1
        return self.tokens[self.at - 1]

    def word(self, what: str) -> Token:
        token = self.tokens[self.at]
        if token.kind != "word" and token.text not in ("nan", "inf"):
            self.fail(what)
        self.at += 1
        return token

    # --- types

    def aval(self) -> Any:
        start, weak = self.at, self.take("~")
        name = self.word("a type such as f32[3]")
        if name.text == "Tok":
            return abstract_token
        if name.text == "Ref" or name.text.startswith("Ref<"):
            return self.reference_type(name)
        space, text = MemorySpace.Device, name.text
        if text.endswith("<host>"):
            space, name = MemorySpace.Host, name._replace(text=text[:-len("<host>")])
        dtype = self.dtype(name, short=True)
        self.expect("[")
        shape, cuts = [], []
        while not self.peek("]"):
            shape.append(self.size())
            cuts.append(self.axes("@"))
            self.take(",")
        self.expect("]")
        states = self.states() if self.peek("{") and self.tokens[self.at + 1].text in _STATES else {}
        try:
            vma = states.pop("V", None)
            layout = self.layout(cuts, states, tuple(shape), self.tokens[start]) if any(cuts) or states else None
            if states:  # also along manual axes
                return with_layout(ShapedArray(tuple(shape), dtype, weak, vma=vma, memory_space=space), layout)
            return ShapedArray(tuple(shape), dtype, weak, sharding=layout, vma=vma, memory_space=space)
        except (TypeError, ValueError) as error:
            self.refuse(str(error), self.tokens[start])

    def long_aval(self) -> Any:
        """`ShapedArray(float32[8], weak_type=True)`."""
        self.at += 2
        name = self.word("a type such as float32[3]")
        dtype, shape, weak = self.dtype(name, short=False), [], False
        self.expect("[")
        while not self.peek("]"):
            shape.append(self.size())
            self.take(",")
        self.expect("]")
        if self.take(","):
            self.word("weak_type")
            self.expect("=")
            weak = self.word("True or False").text == "True"
        self.expect(")")
        return ShapedArray(tuple(shape), dtype, weak)

    def size(self) -> Any:
        token = self.tokens[self.at]
        following = self.tokens[self.at + 1]
        if token.text.isdigit() and following.text in (",", "]", "@"):
            self.at += 1
            return int(token.text)
        if token.kind == "word" or token.text == "-" or token.text.isdigit():
            return self.dimension()
        self.fail("a size or ']'")

    def begins_dimension(self) -> bool:
        """Whether a symbolic dimension stands where a value is read."""
        token, following = self.tokens[self.at], self.tokens[self.at + 1]
        if token.kind == "word":
            return token.text in self.dimensions or token.text in _OPERATIONS and following.text == "("
        return token.text.isdigit() and following.text == "*" or token.text == "-" and following.text in self.dimensions

    def dimension(self) -> Any:
        """A symbolic dimension, such as `2*b + max(a, 4)`."""
        first = self.tokens[self.at]
        self.take("-")
        while True:
            if self.tokens[self.at].kind not in ("word", "number"):
                self.fail("a dimension")
            self.at += 1
            depth = int(self.take("("))
            while depth:
                if self.tokens[self.at].kind == "end":
                    self.fail("')'")
                depth += self.peek("(") - self.peek(")")
                self.at += 1
            token = self.tokens[self.at]
            signed = token.kind == "number" and token.text[0] in "+-"
            if not signed and not any(map(self.take, "*+-^")):
                break
        text = self.text[first.start:self.tokens[self.at - 1].end]
        try:
            found = parse(text, self.symbols)
        except ValueError as error:
            self.refuse(str(error), first, error)
        self.dimensions.update(names_in([found]))
        return found

    def axes(self, mark: str) -> tuple[str, ...]:
        """The names of mesh axes behind a mark: `@x`, `@(x,y)`; none if the mark is not there."""
        if not self.take(mark):
            return ()
        several = self.take("(")
        names = [self.word("the name of a mesh axis").text]
        while several and self.take(","):
            names.append(self.word("the name of a mesh axis").text)
        if several:
            self.expect(")")
        return tuple(names)

    def layout(self, cuts: list[tuple[str, ...]], states: dict[str, Any], shape: tuple[Any, ...], token: Token) -> Any:
        """What `@` says of a type, and `{U:x}` and `{R:x}`, over the mesh of the context."""
        mesh = meshes().get_abstract_mesh()
        for name in (name for names in (*cuts, *states.values()) for name in names):
            if name not in mesh.axis_names:
                self.refuse(f"a type names the mesh axis {name!r}, and " + (
                    f"the mesh has the axes {mesh.axis_names}" if mesh.axis_names else
                    "there is no mesh: give parse_jaxpr one, or call jax.set_mesh before"), token)
        try:
            return texts().sharding(mesh, cuts, shape, states)
        except ValueError as error:
            self.refuse(str(error), token, error)

    def states(self) -> dict[str, frozenset[str]]:
        """`{V:x, U:(y,z)}` behind a type: the axes of a mesh along which the value varies, over which it is to be summed (`U`;
        or `U_max` and `U_min`), and over which its cotangent will be (`R`).
        """
        found = {}
        self.expect("{")
        while not self.take("}"):
            letter = self.word("V, U or R").text
            found[letter] = frozenset(self.axes(":"))
            self.take(",")
        return found

    def reference_type(self, name: Token) -> AbstractRef:
        """`Ref{f32[3]}`, or with a memory space `Ref<vmem>{f32[3]}`."""
        space = name.text[4:-1] or None
        self.expect("{")
        inner = self.aval()
        self.expect("}")
        return AbstractRef(inner, space if space is None else self.objects.get(space, MEMORY_SPACES.get(space, space)))

    def dtype(self, name: Token, short: bool) -> Any:
        found = dtype_named(name.text, short)
        if found is None:
            self.fail("the name of a dtype", name)
        return found


def dtype_named(name: str, short: bool) -> Any:
    """The dtype with a name: `f32` if short, else `float32`; extended ones have one name."""
    if name in dtypes.EXTENDED_DTYPES:
        return dtypes.EXTENDED_DTYPES[name]
    if short:
        return dtypes.NAMES[1].get(name)
    return dtypes.NAMES[0].get(name)
