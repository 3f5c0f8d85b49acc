"""The parser of jaxprs: reads what `jaxlite.core.printer` writes.

`parse_jaxpr` checks the program while it reads: each equation is typed by its primitive, and must agree with the types in
the text. The printer's docstring describes the format. The parser adds what the text leaves out: implied params, and
effects. A type is weak if the text marks it (`weak_types=True` prints the marks).

Functions and user objects among the params have no text. The caller provides them by the name that they print as; otherwise
the param is a `Printed`: the program runs and lowers, and fails only when it would call the function.
"""

from __future__ import annotations

import contextlib
import difflib
import enum
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.aval import AbstractRef, ShapedArray, typematch
from jaxlite.core.config import chooses_layouts
from jaxlite.core.errors import JaxprSyntaxError
from jaxlite.core.jaxpr import Atom, ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Literal, Var, no_effects
from jaxlite.core.precision import DotAlgorithmPreset
from jaxlite.core.primitive import PRIMITIVES, find_primitive
from jaxlite.core.symbolic import SymbolicScope
from jaxlite.core.type_parser import Token, TypeReader, dtype_named, meshes, texts
from jaxlite.core.values import aval_of

_COMPLEX = re.compile(r"\(([-+\w.]+j)\)")
_ESCAPES = re.compile("\033\\[[0-9;]*m")

# Params that the text may leave out, and their values then. `jit` and `broadcast_in_dim` have more.
_IMPLIED: dict[str, dict[str, Any]] = {
    "broadcast_in_dim": {"broadcast_dimensions": (), "sharding": None},
    "custom_jvp_call": {"num_consts": 0},
    "custom_vjp_call": {"num_consts": 0},
    "dot_general": {"precision": None, "preferred_element_type": None, "out_sharding": None},
    "jit": {"inline": False, "keep_unused": False, "compiler_options_kvs": ()},
}
# Params that are left out where the type of the result says them.
_LAID_OUT = {"broadcast_in_dim": "sharding", "dot_general": "out_sharding", "reshard": "dst_sharding", "reshape": "sharding"}
# Params whose values are functions, or objects that print as one word.
_OBJECTS = {("custom_jvp_call", "jvp"), ("custom_vjp_call", "fwd"), ("custom_vjp_call", "bwd"), ("custom_linear", "bwd"),
            ("remat2", "policy"), ("custom_vmap_call", "rule")}


# Params of later versions of JAX that say nothing here.
_LATER = {"reduce_max": ("out_sharding",), "reduce_min": ("out_sharding",), "top_k": ("is_stable",), "new_ref": ("pin",),
          "scan": ("ft_out",)}


def _scan_counts(text: str) -> tuple[int, int]:
    """How many leaves the first two parts of a tree have, each written as None: `((), (None, None), ())` gives 0 and 2."""
    parts, depth = [""], 0
    for character in text[1:-1]:
        depth += (character == "(") - (character == ")")
        parts = [*parts, ""] if not depth and character == "," else [*parts[:-1], parts[-1] + character]
    return parts[0].count("None"), parts[1].count("None")


# Params whose programs are a `Jaxpr`, not a `ClosedJaxpr`.
_OPEN = {("pallas_call", "jaxpr"), ("run_scoped", "jaxpr")}


class Printed:
    """Stands for an object that a text shows but does not hold."""

    __slots__ = ("text",)

    def __init__(self, text: str):
        self.text = text

    @property
    def __name__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return type(other) is Printed and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"{self.text} is a function, and the text of a jaxpr only has its name; give it to parse_jaxpr: "
                        f"objects={{{self.text!r}: ...}}")


def parse_jaxpr(text: str, consts: Mapping[str, Any] | Sequence[Any] = (), *,
                objects: Mapping[str, Any] | None = None, mesh: Any = None, scope: SymbolicScope | None = None) -> ClosedJaxpr:
    """The program that a text says.

    Args:
      text: what `str(jaxpr)` or `jaxpr.pretty_print(...)` gives, with types; or written by hand in the same way.
      consts: the values of the constvars, by name or in order.
      objects: values of params that the text names only: functions and objects of users, by the text they print as.
      mesh: the mesh whose axes types such as `f32[8@x]` name; without, that of the context.
      scope: where symbolic dimensions such as those of `f32[2*b]` belong to; without, a new one.

    Returns: a `ClosedJaxpr`: to run with `eval_jaxpr` or `jaxpr_as_fun`, under any transformation. With
      `weak_types=True`, what was printed and what is parsed are equal in all but weak types.
    Raises: JaxprSyntaxError with the line and the column, and what was expected there: for a wrong text, an unknown primitive
      or variable, an equation whose types do not fit; ValueError for consts that do not.

    >>> from jaxlite.core import jaxpr_as_fun, parse_jaxpr
    >>> closed = parse_jaxpr("{ lambda ; a:f32[3]. let b:f32[3] = sin a; c:f32[3] = mul b 2.0:f32[] in (c,) }")
    >>> closed
    { lambda ; a:f32[3]. let b:f32[3] = sin a; c:f32[3] = mul b 2.0:f32[] in (c,) }
    >>> import numpy as np
    >>> jaxpr_as_fun(closed)(np.zeros(3, np.float32))
    [Array([0., 0., 0.], dtype=float32)]
    """
    if not isinstance(text, str):
        raise TypeError(f"parse_jaxpr: the text must be a string, got {type(text)}")
    parser = _Parser(_ESCAPES.sub("", text), objects or {}, scope)
    chooses = chooses_layouts.swap_local(True)  # shardings that were chosen when it was traced may be chosen again
    try:
        with contextlib.nullcontext() if mesh is None else meshes().use_abstract_mesh(mesh.abstract_mesh):
            jaxpr, names = parser.whole()
    finally:
        chooses_layouts.set_local(chooses)
    if isinstance(consts, Mapping):
        missing = [name for name in names if name not in consts]
        if missing:
            raise ValueError(f"parse_jaxpr: consts has no value for {', '.join(missing)}")
        values = [consts[name] for name in names]
    else:
        values = list(consts)
        if len(values) != len(names):
            raise ValueError(f"parse_jaxpr: the program has {len(names)} constvars ({', '.join(names) or 'none'}), consts has "
                             f"{len(values)} values")
    for name, var, value in zip(names, jaxpr.constvars, values, strict=True):
        if not typematch(aval_of(value), var.aval):
            raise ValueError(f"parse_jaxpr: the value of {name} is {aval_of(value)}, the program says {var.aval}")
    return ClosedJaxpr(jaxpr, values)


Scope = dict[str, Atom]


class _Parser(TypeReader):
    """Reads programs."""

    def __init__(self, text: str, objects: Mapping[str, Any], symbols: SymbolicScope | None):
        super().__init__(text, objects, symbols)
        self.definitions: dict[str, int] = {}  # name -> its first token
        self.done: dict[str, ClosedJaxpr | None] = {}

    # --- programs

    def whole(self) -> tuple[Jaxpr, list[str]]:
        """The program, and the names of its constvars."""
        while self.take("let"):
            name = self.word("the name of a jaxpr")
            if name.text in self.definitions:
                self.fail("a new name", name, f"{name.text!r}, which is defined above")
            self.expect("=")
            self.definitions[name.text] = self.at
            self.skip_braces()
            self.expect("in")
        jaxpr, names = self.jaxpr()
        if self.tokens[self.at].kind != "end":
            self.fail("the end of the text")
        return jaxpr, names

    def skip_braces(self) -> None:
        if not self.peek("{"):
            self.fail("a jaxpr, '{ lambda'")
        depth = 0
        while True:
            token = self.tokens[self.at]
            depth += (self.peek("{") - self.peek("}")) if token.kind == "mark" else 0
            if token.kind == "end":
                self.fail("'}'")
            self.at += 1
            if depth == 0:
                return

    def defined(self, name: Token) -> ClosedJaxpr:
        """The program of a definition; it may use others, wherever they stand."""
        if name.text not in self.done:
            self.done[name.text] = None
            at, self.at = self.at, self.definitions[name.text]
            self.done[name.text] = self.closed()
            self.at = at
        found = self.done[name.text]
        if found is None:
            self.refuse(f"the jaxpr {name.text} contains itself", name)
        return found

    def closed(self) -> ClosedJaxpr:
        token = self.tokens[self.at]
        jaxpr, names = self.jaxpr()
        if names:
            self.fail("no constvars in the jaxpr of a param: what it needs are operands", token, ", ".join(names))
        return ClosedJaxpr(jaxpr, [])

    def jaxpr(self) -> tuple[Jaxpr, list[str]]:
        self.expect("{", "a jaxpr, '{ lambda'")
        self.expect("lambda")
        scope: Scope = {}
        constvars = self.binders(scope, ";")
        self.expect(";")
        names = list(scope)
        invars = self.binders(scope, ".")
        self.expect(".")
        self.expect("let")
        eqns: list[JaxprEqn] = []
        while not self.at_outputs():
            eqns.append(self.equation(scope))
            self.take(";")
        self.expect("in")
        self.expect("(")
        outvars = []
        while not self.peek(")"):
            outvars.append(self.atom(scope))
            if not self.take(","):
                break
        self.expect(")", "',' or ')'")
        effects = no_effects.union(*(eqn.effects for eqn in eqns))
        if self.take(":"):
            self.expect("{")
            shown = []
            token = self.tokens[self.at]
            while not self.peek("}"):
                shown.append(self.opaque())
                self.take(",")
            self.expect("}")
            if sorted(shown) != sorted(map(str, effects)):
                self.refuse(f"the equations have the effects {{{', '.join(sorted(map(str, effects)))}}}, the text says "
                            f"{{{', '.join(shown)}}}", token)
        self.expect("}", "'}'")
        read = set(outvars).union(*(eqn.invars for eqn in eqns))
        for eqn in eqns:
            if not read.issuperset(eqn.outvars):
                eqn.outvars = [var if var in read else DropVar(var.aval) for var in eqn.outvars]
        return Jaxpr(constvars, invars, outvars, eqns, effects), names

    def binders(self, scope: Scope, end: str) -> list[Var]:
        variables = []
        while not self.peek(end):
            name, aval = self.binder(f"a variable or {end!r}")
            if aval is None:
                self.fail("':' and the type of the variable")
            if name.text in scope:
                self.fail("a new variable", name, f"{name.text!r}, which is bound already")
            scope[name.text] = var = Var(aval)
            variables.append(var)
        return variables

    def binder(self, what: str) -> tuple[Token, Any]:
        token = self.tokens[self.at]
        if token.text.endswith(".") and token.kind == "word":  # `a.` of a text without types
            self.fail("':' and the type of the variable", Token("mark", ".", token.end - 1, token.end))
        name = self.word(what)
        return name, self.aval() if self.take(":") else None

    # --- equations

    def at_outputs(self) -> bool:
        """Whether `in (` stands here: `in` is also the name of the 222nd variable."""
        following = self.tokens[self.at + 1]
        return self.peek("in") and following.text == "(" and not _COMPLEX.match(self.text, following.start)

    def equation(self, scope: Scope) -> JaxprEqn:
        first = self.at
        outs: list[tuple[Token, Any]] = []
        if self.is_reference(scope):
            return self.write(scope)
        if not self.is_operation():
            while not (self.peek("=") or self.peek("<-") or self.peek(",")):
                outs.append(self.binder("a variable, '=' or 'in'"))
            if self.take("<-"):
                return self.access("get", outs, [], *self.part(scope))
            if self.take(","):
                return self.exchange(scope, outs)
            self.expect("=")
        name = self.word("the name of a primitive")
        primitive = find_primitive(name.text)
        if primitive is None:
            near = difflib.get_close_matches(name.text, PRIMITIVES, 1)
            self.fail("the name of a primitive", name, f"{name.text!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        params: dict[str, Any] = {}
        programs: dict[str, int] = {}
        if self.take("["):
            while not self.take("]"):
                param = self.word("a param, name=value, or ']'")
                self.expect("=")
                if primitive.scope is not None and self.begins_program():  # typed under what the other params say
                    programs[param.text] = self.at
                    self.skip_program()
                else:
                    params[param.text] = self.param(primitive, param.text)
        if programs:
            self.scoped(primitive, params, programs, name)
        operands = self.tokens[self.at]
        invars = []
        while not (self.peek(";") or self.at_outputs() or self.begins_equation(first)):
            invars.append(self.atom(scope))
        self.imply(primitive, params, outs, invars, name)
        return self.typed(scope, primitive, params, outs, invars, name, operands)

    def begins_program(self) -> bool:
        return self.peek("{") or self.tokens[self.at].text in self.definitions

    def skip_program(self) -> None:
        if self.peek("{"):
            self.skip_braces()
        else:
            self.at += 1

    def scoped(self, primitive: Any, params: dict[str, Any], programs: dict[str, int], name: Token) -> None:
        """Read the programs that were skipped, in the scope that the params say."""
        behind = self.at
        assert primitive.scope is not None
        try:
            scope = primitive.scope(params)
        except KeyError as missing:
            self.refuse(f"{primitive.name} lacks the param {missing}", name)
        with scope:
            for param, self.at in programs.items():
                params[param] = self.value()
        self.at = behind

    def typed(self, scope: Scope, primitive: Any, params: dict[str, Any], outs: list[tuple[Token, Any]], invars: list[Atom],
              name: Token, operands: Token) -> JaxprEqn:
        """The equation, with the types that its primitive gives."""
        avals = [atom.aval for atom in invars]
        try:
            made, effects = self.laid_out(primitive, avals, params, outs)
        except JaxprSyntaxError:
            raise
        except Exception as error:
            self.refuse(f"{primitive.name} does not take such operands and params: {type(error).__name__}: {error}",
                        operands if isinstance(error, ValueError) else name, error)
        made = list(made) if primitive.multiple_results else [made]
        if len(made) != len(outs):
            self.refuse(f"{primitive.name} has {len(made)} results, the text binds {len(outs)} variables",
                        outs[0][0] if outs else name)
        outvars = []
        for (token, said), aval in zip(outs, made, strict=True):
            if said is not None and not typematch(said, aval):
                self.refuse(f"the text says that {token.text} is {said.str_short(short_dtypes=True)}, {primitive.name} gives "
                            f"{aval.str_short(short_dtypes=True)}", token)
            if token.text != "_" and token.text in scope:
                self.fail("a new variable", token, f"{token.text!r}, which is bound already")
            var = Var(aval.strip_weak_type() if said is None else said)
            scope[token.text] = var
            outvars.append(var)
        return JaxprEqn(invars, outvars, primitive, params, effects)

    def laid_out(self, primitive: Any, avals: list[Any], params: dict[str, Any], outs: list[tuple[Token, Any]]) -> Any:
        """What the primitive's typing gives, with a sharding among the params if the type of the result asks for one."""
        param, wanted = _LAID_OUT.get(primitive.name), outs[0][1] if len(outs) == 1 else None
        if param is None or wanted is None or params.get(param) is not None:
            return primitive.typed(avals, params)
        if primitive.name == "reshard":
            params.setdefault("concrete_mesh", None)
        else:  # not needed if the result has this sharding anyway
            made, effects = primitive.typed(avals, params)
            if wanted.layout is None or typematch(wanted, made):
                return made, effects
        params[param] = wanted.layout or texts().sharding(meshes().get_abstract_mesh(), [()] * wanted.ndim, wanted.shape, {})
        return primitive.typed(avals, params)

    # --- reads and writes of Refs

    def is_reference(self, scope: Scope) -> bool:
        """Whether a part of a Ref stands here, `a[...]`."""
        var = scope.get(self.tokens[self.at].text)
        return self.tokens[self.at + 1].text == "[" and var is not None and type(var.aval) is AbstractRef

    def part(self, scope: Scope) -> tuple[Scope, Token, list[list[Any]]]:
        """A Ref and the indices, in brackets, of a part of it. An index is `...`, an int, a variable, or start, stop, step."""
        if not self.is_reference(scope):
            self.fail("a part of a Ref, such as a[0]")
        name = self.word("a Ref")
        indices = []
        while self.take("["):
            items: list[Any] = []
            while not self.peek("]"):
                items.append(self.index(scope))
                if not self.take(","):
                    break
            self.expect("]", "',' or ']'")
            indices.append(items)
        return scope, name, indices

    def index(self, scope: Scope) -> Any:
        if self.take("."):
            self.expect(".", "'...'")
            self.expect(".", "'...'")
            return ...
        start = None if self.peek(":") else self.position(scope)
        if not self.take(":"):
            return start
        if isinstance(start, (Var, Literal)):  # `i:i+4`
            self.word("the start again, and what is added to it")
            parts = [start, self.position(scope), 1]
        else:
            parts = [start or 0, None if self.tokens[self.at].text in ("]", ",", ":") else self.position(scope), 1]
        if self.take(":"):
            parts[2] = self.position(scope)
        return tuple(parts)

    def position(self, scope: Scope) -> Any:
        token = self.tokens[self.at]
        if token.text.lstrip("+").isdigit():
            self.at += 1
            return int(token.text)
        return self.atom(scope)

    def write(self, scope: Scope) -> JaxprEqn:
        """`a[0] <- b` and `a[0] += b`."""
        _, name, indices = self.part(scope)
        if self.take("<-"):
            return self.access("swap", [(Token("word", "_", name.start, name.end), None)], [self.atom(scope)], scope, name,
                               indices)
        self.expect("+", "'<-' or '+='")
        self.expect("=", "'+='")
        return self.access("addupdate", [], [self.atom(scope)], scope, name, indices)

    def exchange(self, scope: Scope, outs: list[tuple[Token, Any]]) -> JaxprEqn:
        """`b, a[0] <- a[0], c` after the comma."""
        place = self.part(scope)
        self.expect("<-")
        self.part(scope)
        self.expect(",")
        return self.access("swap", outs, [self.atom(scope)], *place)

    def access(self, kind: str, outs: list[tuple[Token, Any]], values: list[Atom], scope: Scope, name: Token,
               indices: list[list[Any]]) -> JaxprEqn:
        primitive: Any = find_primitive(kind)
        ref = scope[name.text]
        try:
            leaves, tree = primitive.index_reader(ref.aval, indices)
        except (TypeError, ValueError, IndexError) as error:
            self.refuse(f"{name.text} has no such part: {error}", name, error)
        return self.typed(scope, primitive, {"tree": tree}, outs, [ref, *values, *leaves], name, name)

    # --- where equations begin

    def is_operation(self) -> bool:
        """Whether an equation begins with its primitive: it has no results."""
        following = self.tokens[self.at + 1]
        return following.text not in (":", "=", "<-", ",") and not self.looks_bound(self.at)

    def looks_bound(self, at: int) -> bool:
        """Whether untyped binders and '=' stand here."""
        while self.tokens[at].kind == "word":
            at += 1
        return self.tokens[at].text in ("=", "<-", ",")

    def begins_equation(self, first: int) -> bool:
        """Whether the next token is the first of a new line, and so of a new equation or of the end."""
        token, before = self.tokens[self.at], self.tokens[self.at - 1]
        if token.kind == "end" or token.text in ("}", ")", "]", ","):
            return True
        if "\n" not in self.text[before.end:token.start]:
            return False
        if self.column(token) <= self.column(self.tokens[first]):
            return True
        return self.binds(self.at) if self.tokens[self.at + 1].text == ":" else self.looks_bound(self.at)

    def binds(self, at: int) -> bool:
        """Whether typed binders stand here: '=' comes before anything else."""
        while self.tokens[at].kind == "word" and self.tokens[at + 1].text == ":":
            at += 2
            while self.tokens[at].text not in ("]", "Tok") and self.tokens[at].kind != "end":
                at += 1
            at += 1
            if self.tokens[at].text == "{":  # `{V:x}`
                while self.tokens[at].text != "}" and self.tokens[at].kind != "end":
                    at += 1
            while self.tokens[at].text == "}":  # of that, of a Ref
                at += 1
        return self.tokens[at].text in ("=", "<-", ",")

    def column(self, token: Token) -> int:
        return token.start - self.text.rfind("\n", 0, token.start)

    def imply(self, primitive: Any, params: dict[str, Any], outs: list[Any], invars: list[Any], name: Token) -> None:
        """Put in the params that the text leaves out."""
        for param, value in _IMPLIED.get(primitive.name, {}).items():
            params.setdefault(param, value)
        for param in _LATER.get(primitive.name, ()):
            if param != "out_sharding" or params.get(param) is None:
                params.pop(param, None)
        if primitive.name == "scan" and "ft_in" in params:  # as later versions of JAX write it
            params["num_consts"], params["num_carry"] = params.pop("ft_in")
        if primitive.name == "broadcast_in_dim" and "shape" not in params:
            if len(outs) != 1 or outs[0][1] is None:
                self.fail("a type of the result, or the param shape", name)
            params["shape"] = outs[0][1].shape
        elif primitive.name == "jit":
            params.setdefault("donated_invars", (False,) * len(invars))
            params.setdefault("name", "jit")
            for free, count in (("in", len(invars)), ("out", len(outs))):
                params.setdefault(f"{free}_shardings", (None,) * count)
                params.setdefault(f"{free}_layouts", (None,) * count)

    def atom(self, scope: Scope) -> Atom:
        token = self.tokens[self.at]
        typed = self.tokens[self.at + 1].text == ":"
        if token.kind == "word" and not (typed and token.text in ("True", "False")) or \
                token.text in ("nan", "inf") and not typed:
            self.at += 1
            if token.text not in scope:
                near = difflib.get_close_matches(token.text, scope, 1)
                self.fail("a variable that is bound above, or a literal such as 1.0:f32[]", token,
                          f"{token.text!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
            return scope[token.text]
        value = self.scalar()
        self.expect(":", "':' and the type of the literal")
        aval = self.aval()
        try:
            if not isinstance(aval, ShapedArray) or aval.shape:
                raise ValueError("only scalars are literals")
            kind = dtypes.kind(aval.dtype)
            if type(value) is bool and kind != "b" or type(value) in (float, complex) and kind in "biu":
                raise ValueError("it is of another kind")
            if not aval.weak_type or kind == "b":
                value = aval.dtype.type(value)
            else:
                value = {"i": int, "f": float, "c": complex}[kind](value)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            self.refuse(f"the literal {token.text} is no {aval.str_short(short_dtypes=True)}: {error}", token)
        return Literal(value, aval)

    def scalar(self) -> Any:
        token = self.tokens[self.at]
        if token.text in ("True", "False"):
            self.at += 1
            return token.text == "True"
        if token.kind == "number":
            self.at += 1
            if token.text.endswith("j"):
                return complex(token.text)
            return int(token.text) if token.text.lstrip("+-").isdigit() else float(token.text)
        if token.text == "(":  # a complex number
            match = _COMPLEX.match(self.text, token.start)
            if match:
                while self.tokens[self.at].start < match.end():
                    self.at += 1
                return complex(match[1])
        self.fail("a variable or a literal")

    # --- params

    def param(self, primitive: Any, name: str) -> Any:
        token = self.tokens[self.at]
        if primitive.name == "scan" and name in ("ft_in", "ft_out"):
            return _scan_counts(self.opaque())
        if primitive.name == "dot_general" and name == "dimension_numbers":
            return _as_tuples(self.value())
        if token.kind == "word" and self.tokens[self.at + 1].text not in ("(", "."):
            if name == "name" and token.text != "None":
                self.at += 1
                return token.text
            if (primitive.name, name) in _OBJECTS and token.text != "None" or token.text in self.objects:
                self.at += 1
                return self.objects.get(token.text) or Printed(token.text)
        reader = primitive.param_readers.get(name)
        if reader is not None:
            text = self.opaque()
            try:
                return self.objects[text] if text in self.objects else reader(text)
            except (KeyError, SyntaxError, ValueError) as error:
                self.refuse(str(error), token, error)
        value = self.value()
        return value.jaxpr if (primitive.name, name) in _OPEN and type(value) is ClosedJaxpr else value

    def value(self) -> Any:
        token = self.tokens[self.at]
        if self.begins_dimension():
            return self.dimension()
        if token.kind == "string":
            self.at += 1
            return _unquoted(token.text)
        if token.kind == "number":
            return self.scalar()
        if token.text == "(":
            if _COMPLEX.match(self.text, token.start):
                return self.scalar()
            return tuple(self.items("(", ")"))
        if token.text == "[":
            return self.items("[", "]")
        if token.text == "{":
            return self.closed() if self.tokens[self.at + 1].text == "lambda" else self.braces()
        if token.kind == "word":
            return self.word_value(token)
        return self.aval() if token.text == "~" else self.printed()

    def items(self, left: str, right: str) -> list[Any]:
        self.expect(left)
        found = []
        while not self.peek(right):
            found.append(self.value())
            self.take(",")  # jaxprs in a tuple stand without
        self.expect(right, f"',' or {right!r}")
        return found

    def braces(self) -> Any:
        """A dictionary or a set."""
        self.expect("{")
        entries: dict[Any, Any] = {}
        is_set = False
        while not self.peek("}"):
            key = self.value()
            is_set = is_set or not self.peek(":")
            entries[key] = None if is_set else (self.expect(":"), self.value())[1]
            if not self.take(","):
                break
        self.expect("}", "',' or '}'")
        return frozenset(entries) if is_set else entries

    def word_value(self, token: Token) -> Any:
        text, following = token.text, self.tokens[self.at + 1].text
        if text in _CONSTANTS:
            self.at += 1
            return _CONSTANTS[text]
        if following == "(" and self.tokens[self.at + 1].start == token.end:
            if text == "array":
                return self.array()
            if text == "ShapedArray":
                return self.long_aval()
            if text == "NamedSharding":
                return texts().read_sharding(self.opaque())
            if text == "frozenset":
                self.at += 2
                found = self.braces()
                self.expect(")")
                return found
            kind = _class_of(text, tuple)
            if kind is not None:
                return self.named_tuple(kind)
            return self.printed()
        if following == "[" and self.tokens[self.at + 1].start == token.end and dtype_named(text.removesuffix("<host>"),
                                                                                               short=True) is not None:
            return self.aval()
        if text in self.definitions:
            self.at += 1
            return self.defined(token)
        if text in self.objects:
            self.at += 1
            return self.objects[text]
        if "." in text:
            name, _, member = text.partition(".")
            kind = _class_of(name, enum.Enum)
            if kind is not None and member in kind.__members__:
                self.at += 1
                return kind[member]
        found = dtype_named(text, short=False)
        if found is not None:
            self.at += 1
            return found
        self.at += 1
        return text

    def named_tuple(self, kind: Any) -> Any:
        self.at += 1
        self.expect("(")
        fields: dict[str, Any] = {}
        while not self.peek(")"):
            field = self.word("a field")
            if field.text not in kind._fields:
                self.fail(f"a field of {kind.__name__}: {', '.join(kind._fields)}", field)
            self.expect("=")
            fields[field.text] = self.value()
            self.take(",")
        token = self.expect(")")
        missing = [field for field in kind._fields if field not in fields]
        if missing:
            self.fail(f"the field {missing[0]} of {kind.__name__}", token)
        return kind(**fields)

    def array(self) -> Any:
        self.at += 1
        self.expect("(")
        values = self.value()
        fields = {}
        while self.take(","):
            field = self.word("shape or dtype")
            self.expect("=")
            fields[field.text] = self.value()
        token = self.expect(")")
        try:
            return np.asarray(values, fields["dtype"]).reshape(fields["shape"])
        except (KeyError, TypeError, ValueError) as error:
            self.refuse(f"no array: {error}", token, error)

    def printed(self) -> Any:
        text = self.opaque()
        return self.objects[text] if text in self.objects else Printed(text)

    def opaque(self) -> str:
        """The text of an object of unknown kind: up to a space or a mark outside brackets."""
        start = self.tokens[self.at].start
        depth = 0
        while True:
            token, before = self.tokens[self.at], self.tokens[self.at - 1]
            if token.kind == "end":
                self.fail("a value")
            if depth == 0 and (token.text in ("]", ")", "}", ",") or self.text[before.end:token.start] and token.start > start):
                break
            depth += token.kind == "mark" and (token.text in "([{") - (token.text in ")]}")
            self.at += 1
        if self.tokens[self.at].start == start:
            self.fail("a value")
        return self.text[start:self.tokens[self.at - 1].end]


_CONSTANTS = {**DotAlgorithmPreset.__members__, "None": None, "UnspecifiedValue": None, "True": True, "False": False}


def _class_of(name: str, base: type) -> Any:
    """The class below `base` with a name: a named tuple or an enumeration of jaxlite's, or of whoever else has one."""
    found = [kind for kind in _below(base) if kind.__name__ == name and (base is not tuple or hasattr(kind, "_fields"))]
    own = [kind for kind in found if kind.__module__.startswith("jaxlite")]
    return next(iter(own or found), None)


def _below(base: type) -> list[type]:
    kinds: list[type] = type.__subclasses__(base)
    return kinds + [each for kind in kinds for each in _below(kind)]


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, (tuple, list)) else value


def _unquoted(text: str) -> str:
    return text[1:-1].encode("latin-1", "backslashreplace").decode("unicode_escape")
