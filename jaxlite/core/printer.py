"""Jaxprs as text: `{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }`.

The text is a contract. It is stable (no addresses, no order of sets), complete (every param that is not at its
default stands there in full) and can be read back:

- Variables are named a, b, ..., z, ba, ... in order of appearance, with one count for the whole text. Jaxprs in
  params close over nothing: a name means what the innermost jaxpr around it says. In the outermost jaxpr, `_` is any
  result that nobody reads.
- A literal is its value and its type, `3.0:f32[]`.
- A jaxpr of more than `_INLINE_LIMIT` equations, or one reached in more than one way, is printed once, in front, as
  `let name = {...} in`; params then say `name`. A definition may use later ones.
- The jaxpr of a `jit` equation takes over the names of the equation's operands and results.
- Params are sorted by name, after `name`. `_IMPLIED` lists those left out, and when: the rest tells their value.
- Dtypes and members of enums go by their names. A string stands bare if it is one word and cannot be taken for
  something else, otherwise in quotes. A function is its name.

Weak types are not shown, unless asked for by `weak_types=True`: `a:~f32[]`. `jaxlite.core.parser` reads the text back.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from jaxlite.core import dtypes, source
from jaxlite.core.aval import ShapedArray
from jaxlite.core.jaxpr import Atom, ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxprs_in_params
from jaxlite.core.precision import DotAlgorithmPreset
from lowering import xla

_WIDTH = 80
_INLINE_LIMIT = 10


def jaxpr_to_text(jaxpr: Jaxpr | ClosedJaxpr, *, source_info: bool = False, print_shapes: bool = True,
                  custom_pp_eqn_rules: bool = True, name_stack: bool = False, print_effects: bool = False,
                  weak_types: bool = False, use_color: bool = False, width: int = _WIDTH) -> str:
    """A program as text, sub-jaxprs included.

    Args:
      source_info: end the first line of each equation with the user's line that made it, as a comment.
      print_shapes: give each variable its type where it is bound.
      custom_pp_eqn_rules: leave out implied params, and let jaxprs of `jit` take over names. False shows all there is.
      name_stack: end it with the names of the scopes around it, too.
      print_effects: put the effects of each jaxpr after its outputs.
      weak_types: mark weak types with `~`.
      use_color: add ANSI colors.
      width: the column at which lines are broken where they can be.
    """
    if isinstance(jaxpr, ClosedJaxpr):
        jaxpr = jaxpr.jaxpr
    printer = _Printer(source_info, print_shapes, custom_pp_eqn_rules, print_effects, weak_types, name_stack)
    return _layout(printer.program(jaxpr), width, use_color)


def eqn_to_text(eqn: JaxprEqn, **options: Any) -> str:
    """One equation as text, its variables named from `a` on. The options are those of `jaxpr_to_text`, but for
    `use_color` and `width`."""
    printer = _Printer(**({"source_info": False, "print_shapes": True, "custom_pp_eqn_rules": True,
                           "print_effects": False, "weak_types": False} | options))
    definitions = printer.define(Jaxpr([], [], [], [eqn]), math.inf)
    return _layout(printer.concat([*definitions, printer.equation(eqn, {})]), _WIDTH, False)


def _layout(document: Any, width: int, use_color: bool) -> str:
    return document._format(width, use_color=use_color, output_format=xla.documents.OutputFormat.TEXT,
                            separable_lines=False, annotation_prefix=" # ", source_map=None)


# --- params ------------------------------------------------------------------------------------------

def _none(value: Any) -> bool:
    return value is None


def _false(value: Any) -> bool:
    return not any(value) if isinstance(value, (tuple, list)) else not value


def _empty(value: Any) -> bool:
    return value == ()


def _any(value: Any) -> bool:
    return True


def _not_true(value: Any) -> bool:
    return value is not True


def _free(value: Any) -> bool:
    """Whether all entries are None."""
    return not any(each is not None for each in value)


def _no_mesh(value: Any) -> bool:
    return bool(value.empty)


def _zero(value: Any) -> bool:
    return value == 0


# For a primitive: the params that need not be shown, each with the test that its value passes then.
_IMPLIED: dict[str, dict[str, Callable[[Any], bool]]] = {
    "broadcast_in_dim": {"shape": _any, "broadcast_dimensions": _empty, "sharding": _none},
    "convert_element_type": {"sharding": _none},
    "dot_general": {"precision": _none, "preferred_element_type": _none, "out_sharding": _any},
    "custom_jvp_call": {"num_consts": _zero},
    "custom_vjp_call": {"num_consts": _zero},
    "mul": {"out_dtype": _none},
    "jit": {"donated_invars": _false, "inline": _not_true, "keep_unused": _false, "in_shardings": _free, "out_shardings": _free,
            "in_layouts": _free, "out_layouts": _free, "compiler_options_kvs": _empty,
            "ctx_mesh": _no_mesh},
    "scan": {"linear": _false, "_split_transpose": _false},
    "reshard": {"dst_sharding": _any, "concrete_mesh": _any},  # the type of the result says it
} | {name: {"accuracy": _none} for name in (
    "cbrt", "cos", "exp", "exp2", "expm1", "log", "log1p", "log2", "logistic", "rsqrt", "sin", "sqrt", "tan", "tanh")}

class _Words(str):
    """A value that is shown as it is."""


def _scan_trees(eqn: JaxprEqn) -> dict[str, Any]:
    """The params of a scan with the trees of what goes in and out, from which their numbers follow."""
    params = dict(eqn.params)
    if "num_carry" not in params:
        return params
    consts, carry = params.pop("num_consts"), params.pop("num_carry")

    def row(count: int, leaf: str = "None") -> str:
        return f"({', '.join([leaf] * count)}{',' * (count == 1)})"

    return params | {
        "ft_in": _Words(f"({row(consts)}, {row(carry)}, {row(len(eqn.invars) - consts - carry)})"),
        "ft_out": _Words(f"({row(carry)}, {row(len(eqn.outvars) - carry, 'RightsOnly(Right(None))')})")}


# Params as later versions of JAX have them.
_LATER: dict[str, Callable[[JaxprEqn], dict[str, Any]]] = {
    "reduce_max": lambda eqn: {"out_sharding": None} | eqn.params,
    "reduce_min": lambda eqn: {"out_sharding": None} | eqn.params,
    "top_k": lambda eqn: {"is_stable": True} | eqn.params,
    "new_ref": lambda eqn: {"pin": False} | eqn.params,
    "scan": _scan_trees,
}

_WORD = re.compile(r"[A-Za-z_<][\w<>.\-]*")
_OTHER_MEANING = {"None", "True", "False", "nan", "inf", *dtypes.NAMES[0]}


def _value(value: Any) -> str:
    """A param's value, or a part of one, as text."""
    match value:
        case _Words():
            return value
        case None | bool() | complex() | str():
            return repr(value)
        case DotAlgorithmPreset():
            return value.name
        case enum.Enum() if not isinstance(value, int) or isinstance(value, xla.ArrayCopySemantics):
            return f"{type(value).__name__}.{value.name}"
        case int():
            return str(int(value))
        case xla.Device():
            return repr(value)
        case float():
            return repr(float(value))
        case np.generic():
            return str(value.item())
        case np.dtype() | dtypes.ExtendedDType():
            return value.name
        case np.ndarray():
            return f"array({value.tolist()}, shape={value.shape}, dtype={value.dtype.name})"
        case tuple() if hasattr(value, "_fields"):
            fields = ", ".join(f"{name}={_value(item)}" for name, item in zip(value._fields, value))
            return f"{type(value).__name__}({fields})"
        case tuple():
            return f"({', '.join(map(_value, value))}{',' if len(value) == 1 else ''})"
        case list():
            return f"[{', '.join(map(_value, value))}]"
        case dict():
            return f"{{{', '.join(f'{_value(key)}: {_value(item)}' for key, item in value.items())}}}"
        case set() | frozenset():
            shown = f"{{{', '.join(sorted(map(_value, value)))}}}"
            return f"frozenset({shown})" if type(value) is frozenset else shown
        case type():
            return value.__name__
        case ShapedArray():
            return repr(value)
    if callable(value) and type(value).__repr__ is object.__repr__ or hasattr(value, "__code__"):  # type: ignore[comparison-overlap]
        return source.function_name(value)
    return re.sub(r" at 0x[0-9a-f]+", "", format(value))


def _type_text(aval: Any) -> str:
    """`~f32[3]`, with the mark of weak types."""
    return ("~" if getattr(aval, "weak_type", False) else "") + aval.str_short(short_dtypes=True)


def _dimension_numbers(value: Any) -> str:
    """The dimension numbers of `dot_general`: pairs of lists."""
    contracting, batch = (tuple(map(list, pair)) for pair in value)
    return str((contracting, batch))


_FORMATS: dict[tuple[str, str], Callable[[Any], str]] = {
    ("dot_general", "dimension_numbers"): _dimension_numbers,
    ("pallas_call", "out_avals"): repr,
    ("pallas_call", "metadata"): repr,
}


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, (np.generic, np.ndarray)) else value


def _is_jaxpr(value: Any) -> bool:
    return type(value) is ClosedJaxpr or type(value) is Jaxpr


def _open(value: Any) -> Jaxpr:
    return value.jaxpr if type(value) is ClosedJaxpr else value


# Primitives that are printed with arrows, and how.
_ARROWS = {"get": "get", "swap": "swap", "addupdate": "addupdate", "masked_load": "get", "masked_swap": "swap"}


# --- names -------------------------------------------------------------------------------------------

def _variable_names(reserved: Any) -> Iterator[str]:
    """a, b, ..., z, ba, ...: numbers with letters as digits; without those in `reserved`."""
    index = 0
    while True:
        name, rest = "", index
        while rest or not name:
            rest, digit = divmod(rest, 26)
            name = chr(ord("a") + digit) + name
        if name not in reserved:
            yield name
        index += 1


def _sorted(params: dict[str, Any]) -> dict[str, Any]:
    """Params in the order in which they are printed."""
    return {name: params[name] for name in sorted(params)} if len(params) > 1 else params


def _definitions(top: Jaxpr, inline_limit: float) -> dict[Jaxpr, str]:
    """The sub-jaxprs that get a name of their own, breadth first from the top."""
    parents: dict[Jaxpr, list[Jaxpr]] = {top: []}
    title: dict[Jaxpr, str] = {}
    order = [top]
    for jaxpr in order:  # grows on the way
        for eqn in jaxpr.eqns:
            for sub in jaxprs_in_params(_sorted(eqn.params)):
                if sub not in parents:
                    parents[sub] = []
                    order.append(sub)
                    name = eqn.params.get("name") if eqn.primitive.name == "jit" else None
                    title[sub] = re.sub(r"\W+", "_", name.strip("<>")) if isinstance(name, str) else "jaxpr"
                parents[sub].append(jaxpr)
    # What a jaxpr uses is reached as often as it is itself.
    often = {sub for sub, using in parents.items() if len(using) > 1}
    todo = list(often)
    while todo:
        for eqn in todo.pop().eqns:
            for sub in jaxprs_in_params(_sorted(eqn.params)):
                if sub not in often:
                    often.add(sub)
                    todo.append(sub)
    names: dict[Jaxpr, str] = {}
    taken: dict[str, int] = {}
    for jaxpr in order[1:]:
        if jaxpr in often or len(jaxpr.eqns) > inline_limit:
            name = base = title[jaxpr]
            while name in taken:
                name = f"{base}{taken[base]}"
                taken[base] += 1
            taken[name] = 1
            names[jaxpr] = name
    return names


# --- documents ---------------------------------------------------------------------------------------

Scope = dict[Var, str]


class _Printer:
    """Makes the documents of one text. A scope holds the names of one jaxpr's variables."""

    def __init__(self, source_info: bool, print_shapes: bool, custom_pp_eqn_rules: bool, print_effects: bool,
                 weak_types: bool, name_stack: bool = False):
        self.name_stack = name_stack
        self.source_info, self.print_shapes, self.short = source_info, print_shapes, custom_pp_eqn_rules
        self.print_effects, self.weak_types = print_effects, weak_types
        self.definitions: dict[Jaxpr, str] = {}
        self.words: set[str] = set()
        self.names = _variable_names(self.words)
        docs = xla.documents
        self.text, self.concat, self.nest = docs.text, docs.concat, docs.nest
        self.group, self.brk = docs.group, docs.brk
        self.space = docs.group(docs.brk())  # a space, or a new line where the line is full
        self.types: dict[Any, Any] = {}

    def keyword(self, word: str) -> Any:
        docs = xla.documents
        return docs.color(docs.text(word), foreground=docs.Color.BLUE, intensity=docs.Intensity.BRIGHT)

    def join(self, separator: Sequence[Any], items: Sequence[Any]) -> Any:
        parts: list[Any] = []
        for item in items:
            if parts:
                parts += separator
            parts.append(item)
        return self.concat(parts)

    # --- variables

    def name(self, var: Var, scope: Scope) -> str:
        found = scope.get(var)
        if found is None:
            found = scope[var] = next(self.names)
        return found

    def type_text(self, aval: Any) -> str:
        return _type_text(aval) if self.weak_types else aval.str_short(short_dtypes=True)

    def type(self, aval: Any) -> Any:
        """The document `:f32[3]`, made once for each type."""
        found = self.types.get(aval)
        if found is None:
            docs = xla.documents
            text = self.type_text(aval)
            found = self.types[aval] = docs.color(docs.text(":" + text), foreground=docs.Color.MAGENTA)
        return found

    def binders(self, variables: Sequence[Var], scope: Scope) -> Any:
        docs: list[Any] = []
        for var in variables:
            if docs:
                docs.append(self.space)
            docs.append(self.text(self.name(var, scope)))
            if self.print_shapes:
                docs.append(self.type(var.aval))
        return self.concat(docs)

    def atom(self, atom: Atom, scope: Scope) -> Any:
        if type(atom) is Literal:
            return self.text(f"{_number(atom.val)}:{self.type_text(atom.aval)}")
        return self.text(self.name(atom, scope))  # type: ignore[arg-type]

    # --- programs

    def define(self, jaxpr: Jaxpr, inline_limit: float) -> list[Any]:
        """The definitions in front of a text."""
        self.definitions = _definitions(jaxpr, inline_limit)
        self.words.update(self.definitions.values())
        docs: list[Any] = []
        for shared, name in self.definitions.items():
            docs += [self.text(f"let {name} = "), self.jaxpr(shared, {}), self.text(" in"), self.brk()]
        return docs

    def program(self, jaxpr: Jaxpr) -> Any:
        definitions = self.define(jaxpr, _INLINE_LIMIT)
        read = set(jaxpr.outvars).union(*(eqn.invars for eqn in jaxpr.eqns))
        unread = {var: "_" for eqn in jaxpr.eqns for var in eqn.outvars if var not in read}
        return self.concat([*definitions, self.jaxpr(jaxpr, unread)])

    def jaxpr(self, jaxpr: Jaxpr, scope: Scope) -> Any:
        text, concat, nest, brk = self.text, self.concat, self.nest, self.brk
        constvars = self.binders(jaxpr.constvars, scope)
        invars = self.binders(jaxpr.invars, scope)
        eqns = self.join([brk("; ")], [self.equation(eqn, scope) for eqn in jaxpr.eqns])
        outs = self.join([text(","), self.space], [self.atom(atom, scope) for atom in jaxpr.outvars])
        end = ",)" if len(jaxpr.outvars) == 1 else ")"
        if self.print_effects:
            end += f" : {{ {', '.join(sorted(map(str, jaxpr.effects)))} }}"
        return self.group(nest(2, concat([
            text("{ "), self.keyword("lambda "), nest(2, constvars), text("; "), nest(2, invars), text(". "),
            self.keyword("let"), nest(2, concat([brk(), eqns])), brk(),
            self.keyword("in "), text("("), nest(2, outs), text(end + " }"),
        ])))

    def equation(self, eqn: JaxprEqn, scope: Scope) -> Any:
        docs: list[Any] = []
        inner = self.taken_over(eqn, scope) if self.short and eqn.primitive.name == "jit" else None
        if self.short and eqn.primitive.name in _ARROWS and ("tree" in eqn.params or "args_tree" in eqn.params):
            return self.reference(eqn, scope)
        if eqn.outvars:
            docs += [self.nest(2, self.binders(eqn.outvars, scope)), self.text(" = ")]
        notes = [eqn.source_line] if self.source_info else []
        if self.name_stack:
            names = getattr(eqn.traceback, "names", ())
            notes.append(f"[{'/'.join(each for each in names if type(each) is str)}]")  # without words for XLA
        docs.append(self.text(eqn.primitive.name, annotation="\n".join(notes) or None))
        if eqn.params:
            docs.append(self.params(eqn, inner))
        docs += [self.text(" "), self.nest(2, self.join([self.space], [self.atom(atom, scope) for atom in eqn.invars]))]
        return self.concat(docs)

    def reference(self, eqn: JaxprEqn, scope: Scope) -> Any:
        """Reads and writes of a mutable array: `b <- a[0]`, `a[0] <- b`, `a[0] += b`, and `b, a[0] <- a[0], c`; with a mask
        `b <- a[0] mask=c other=d`."""
        kind = _ARROWS[eqn.primitive.name]
        ref, *rest = eqn.invars
        value = [] if kind == "get" else [self.atom(rest.pop(0), scope)]
        leaves = [str(_number(atom.val)) if type(atom) is Literal else self.name(atom, scope)  # type: ignore[arg-type]
                  for atom in rest]
        beside: tuple[Any, ...] = ()
        if "tree" in eqn.params:
            transforms = eqn.params["tree"].unflatten(leaves)
        else:
            transforms, *beside = eqn.params["args_tree"].unflatten(leaves)
        name = self.name(ref, scope)  # type: ignore[arg-type]
        part = self.text(name + "".join(f"[{each.text()}]" for each in transforms))
        outs = self.nest(2, self.binders(eqn.outvars, scope))
        if kind == "get":
            docs = [outs, self.text(" <- "), part]
        elif kind == "addupdate" or scope.get(eqn.outvars[0]) == "_":
            docs = [part, self.text(" <- " if kind == "swap" else " += "), *value]
        else:
            docs = [outs, self.text(", "), part, self.text(" <- "), part, self.text(", "), *value]
        docs += [self.text(f" {word}={each}") for word, each in zip(("mask", "other"), beside) if each is not None]
        return self.concat(docs)

    def taken_over(self, eqn: JaxprEqn, scope: Scope) -> Scope | None:
        """The names that the jaxpr of a `jit` equation has from the variables of the equation."""
        jaxpr = _open(eqn.params["jaxpr"])
        if jaxpr in self.definitions:
            return None
        inner: Scope = {}
        taken: set[str] = set()
        pairs = [*zip(jaxpr.invars, eqn.invars), *zip(jaxpr.outvars, eqn.outvars)]
        for own, outer in pairs:
            if type(own) is Literal or type(outer) is Literal or own in inner:
                continue
            name = self.name(outer, scope)
            if name not in taken:  # an operand given twice, a second dropped result
                inner[own] = name
                taken.add(name)
        return inner

    def params(self, eqn: JaxprEqn, inner: Scope | None) -> Any:
        primitive = eqn.primitive.name
        params = eqn.params
        if xla.VERSION >= (0, 12) and primitive in _LATER:  # as JAX of the same jaxlib
            params = _LATER[primitive](eqn)
        shown = sorted(params)
        if self.short:
            implied = _IMPLIED.get(primitive, {})
            shown = [name for name in shown if name not in implied or not implied[name](params[name])]
            if "name" in params and primitive != "pallas_call":
                shown.sort(key=lambda name: name != "name")
        if not shown:
            return self.concat([])
        return self.bracketed("[", [self.param(primitive, name, params[name], inner) for name in shown], "]")

    def bracketed(self, left: str, items: list[Any], right: str) -> Any:
        """All on one line, or each on a line of its own."""
        inside = self.concat([self.brk(""), self.join([self.brk()], items)])
        return self.group(self.concat([self.text(left), self.nest(2, inside), self.brk(""), self.text(right)]))

    def param(self, primitive: str, name: str, value: Any, inner: Scope | None) -> Any:
        if primitive == "jit" and name in ("in_shardings", "out_shardings"):
            value = tuple(_Words("UnspecifiedValue") if each is None else each for each in value)
        if _is_jaxpr(value):
            return self.concat([self.text(name + "="), self.jaxpr_param(_open(value), inner)])
        if isinstance(value, (tuple, list)) and any(map(_is_jaxpr, value)):
            items = [self.jaxpr_param(_open(item), None) if _is_jaxpr(item) else self.text(_value(item))
                     for item in value]
            return self.concat([self.text(name + "="), self.bracketed("(", items, ")")])
        return self.text(f"{name}={self.value(primitive, name, value)}")

    def jaxpr_param(self, jaxpr: Jaxpr, scope: Scope | None) -> Any:
        if jaxpr in self.definitions:
            return self.text(self.definitions[jaxpr])
        return self.jaxpr(jaxpr, {} if scope is None else scope)

    def value(self, primitive: str, name: str, value: Any) -> str:
        if self.short and (primitive, name) in _FORMATS:
            return _FORMATS[primitive, name](value)
        if type(value) is str and _WORD.fullmatch(value) and value not in _OTHER_MEANING:
            if name == "name" or value not in self.words:
                return value
        return _value(value)
