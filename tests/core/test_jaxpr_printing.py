"""The text of jaxprs. JAX is the oracle: `data/make_jaxprs.py` wrote programs as plain data beside JAX's text for
them; here they are built from jaxlite's classes and printed."""

from __future__ import annotations

import collections
import enum
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy
from jaxlite.core import dtypes
from jaxlite.core.aval import ShapedArray, abstract_token
from jaxlite.core.jaxpr import ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Literal, Var
from jaxlite.core.parser import parse_jaxpr
from jaxlite.core.printer import eqn_to_text, jaxpr_to_text
from jaxlite.extend import source_info_util
from lowering import xla

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "jaxprs.json").read_text())
F32 = ShapedArray((), np.dtype("float32"))


class Op:
    """The printer reads a primitive's name and nothing else."""

    def __init__(self, name: str):
        self.name = name


def line(primitive: str, invars: list[Any], outvars: list[Var], /, **params: Any) -> JaxprEqn:
    return JaxprEqn(invars, outvars, Op(primitive), params)


def var(aval: Any = F32) -> Var:
    return Var(aval)


def call(name: str, jaxpr: Jaxpr, invars: list[Any], outvars: list[Var]) -> JaxprEqn:
    return line("jit", invars, outvars, name=name, jaxpr=ClosedJaxpr(jaxpr, []), inline=False, keep_unused=False,
                donated_invars=(False,) * len(invars))


def chain(name: str, length: int = 1) -> Jaxpr:
    """A program of one argument that applies an operation again and again."""
    variables = [var() for _ in range(length + 1)]
    return Jaxpr([], variables[:1], variables[-1:],
                 [line(name, [a], [b]) for a, b in zip(variables, variables[1:])])


def text_of_param(value: Any) -> str:
    text = eqn_to_text(line("op", [], [], param=value))
    return re.fullmatch(r"op\[\s*param=(.*?)\s*\] ", text, re.DOTALL)[1]  # type: ignore[index]


# --- against JAX -------------------------------------------------------------------------------------


class Builder:
    def __init__(self) -> None:
        self.jaxprs: list[Jaxpr] = []
        self.variables: dict[int, Var] = {}

    def jaxpr(self, data: Any) -> Jaxpr:
        kind, data = data
        if kind == "again":
            return self.jaxprs[data]
        jaxpr = Jaxpr([], [], [], [])
        self.jaxprs.append(jaxpr)
        constvars, invars, eqns, outvars = data
        jaxpr.constvars, jaxpr.invars = list(map(self.atom, constvars)), list(map(self.atom, invars))
        jaxpr.eqns = [line(name, list(map(self.atom, ins)), list(map(self.atom, outs)),
                           **{key: self.value(value) for key, value in params.items()})
                      for name, ins, outs, params in eqns]
        jaxpr.outvars = list(map(self.atom, outvars))
        return jaxpr

    def atom(self, data: Any) -> Any:
        number, *rest = data
        if number == "literal":
            value, dtype = rest
            return Literal(eval(value, {"nan": np.nan, "inf": np.inf}), ShapedArray((), np.dtype(dtype)))
        dtype, shape = rest
        return self.variables.setdefault(number, Var(ShapedArray(tuple(shape), np.dtype(dtype))))

    def value(self, data: Any) -> Any:
        match data:
            case ("jaxpr" | "again", _):
                return ClosedJaxpr(self.jaxpr(data), [])
            case "dtype", name:
                return np.dtype(name)
            case "enum", name, member:
                return enum.Enum(name, [member])[member]
            case "tuple", items, None:
                return tuple(map(self.value, items))
            case "tuple", items, [name, *fields]:
                return collections.namedtuple(name, fields)(*map(self.value, items))  # type: ignore[misc]
        return data[1]


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: row["title"])
def test_text_is_that_of_jax(row: Any) -> None:
    if xla.VERSION >= (0, 12) and re.search(r"scan\[|reduce_m\w+\[|top_k\[", row["text"]):
        pytest.skip("JAX 0.12 writes them otherwise")
    jaxpr = Builder().jaxpr(row["program"])
    assert jaxpr_to_text(jaxpr, **row["options"]) == row["text"]


# --- names -------------------------------------------------------------------------------------------


def test_names_count_with_letters_and_skip_those_of_definitions() -> None:
    f = chain("sin", 1)
    variables = [var() for _ in range(800)]
    eqns = [line("cos", [a], [b]) for a, b in zip(variables, variables[1:])]
    a, b = var(), var()
    eqns += [call("c", f, [variables[-1]], [a]), call("c", f, [a], [b])]
    text = str(Jaxpr([], variables[:1], [b], eqns))
    names = re.findall(r"(\w+):f32", text)
    letters = "abcdefghijklmnopqrstuvwxyz"
    expected = [*letters, *(x + y for x in letters[1:] for y in letters)]
    expected += ["b" + x + y for x in letters for y in letters]
    expected.remove("c")
    assert text.startswith("let c = ")
    assert names == expected[:len(names)]
    assert len(names) == 804


def test_a_second_dropped_result_keeps_a_name_of_its_own() -> None:
    # JAX prints both as `_`, and `(_, _)` does not tell which is which.
    x, y, z = var(), var(), var()
    f = Jaxpr([], [x], [z, y], [line("sin", [x], [y]), line("cos", [x], [z])])
    a = var()
    text = str(Jaxpr([], [a], [a], [call("f", f, [a], [DropVar(F32), DropVar(F32)])]))
    assert "b:f32[] = sin a" in text
    assert "_:f32[] = cos a" in text
    assert "in (_, b)" in text


def test_variables_of_several_jaxprs_do_not_mix() -> None:
    # One Var in two jaxprs, as rewriting passes leave them: in each it is named by the operands there.
    x, y, z = var(), var(), var()
    eqns = lambda: [line("sub", [x, y], [z])]
    a, b, c, d = var(), var(), var(), var()
    first, second = Jaxpr([], [x, y], [z], eqns()), Jaxpr([], [y, x], [z], eqns())
    text = str(Jaxpr([], [a, b], [d], [call("f", first, [a, b], [c]), call("g", second, [a, c], [d])]))
    assert "{ lambda ; a:f32[] b:f32[]. let c:f32[] = sub a b in (c,) }" in text
    assert "{ lambda ; a:f32[] c:f32[]. let d:f32[] = sub c a in (d,) }" in text


def test_names_of_definitions_are_words() -> None:
    f = chain("sin")
    a, b, c = var(), var(), var()
    text = str(Jaxpr([], [a], [c], [call("my f-1", f, [a], [b]), call("my f-1", f, [b], [c])]))
    assert text.startswith("let my_f_1 = {")
    assert text.count("jit[name='my f-1' jaxpr=my_f_1]") == 2


def test_a_string_that_reads_like_a_definition_is_quoted() -> None:
    f = chain("sin")
    a, b, c = var(), var(), var()
    eqns = [call("g", f, [a], [b]), call("g", f, [b], [c]), line("op", [c], [], mode="g", other="h")]
    assert "op[mode='g' other=h] e" in str(Jaxpr([], [a], [c], eqns))


# --- params ------------------------------------------------------------------------------------------


class Mode(enum.Enum):
    CLIP = 1


class Type(enum.IntEnum):
    FFT = 2


Point = collections.namedtuple("Point", "x y")


class Opaque:
    pass


class Shown:
    def __str__(self) -> str:
        return "fry"


def function() -> None:
    pass


PARAMS = [
    (None, "None"), (True, "True"), (3, "3"), (-1.5, "-1.5"), (float("inf"), "inf"), (2 + 1j, "(2+1j)"),
    (np.int64(3), "3"), (np.bool_(True), "True"), (np.float32(0.1), "0.10000000149011612"),
    ((), "()"), ((1,), "(1,)"), ((1, (2, 3)), "(1, (2, 3))"), ([1, 2], "[1, 2]"),
    ({"b": 1, "a": 2}, "{'b': 1, 'a': 2}"),
    (frozenset({"b", "a"}), "frozenset({'a', 'b'})"),
    ((np.int64(1), np.float32(2)), "(1, 2.0)"),
    (np.dtype("float32"), "float32"), ((np.dtype("int8"), dtypes.bfloat16), "(int8, bfloat16)"),
    (np.float32, "float32"),
    ("name", "name"), ("<lambda>", "<lambda>"), ("scatter-add", "scatter-add"), ("", "''"),
    ("two words", "'two words'"),
    ("None", "'None'"), ("3", "'3'"), ("a]", "'a]'"), ("a=b", "'a=b'"), ("two\nlines", r"'two\nlines'"),
    (("i", "j"), "('i', 'j')"),
    (Mode.CLIP, "Mode.CLIP"), ((Mode.CLIP, None), "(Mode.CLIP, None)"), (Type.FFT, "2"),
    (Point(1, Mode.CLIP), "Point(x=1, y=Mode.CLIP)"),
    (function, "function"), (Opaque(), "<tests.core.test_jaxpr_printing.Opaque object>"), (Shown(), "fry"),
    (np.array([[1, 2]], np.int32), "array([[1, 2]], shape=(1, 2), dtype=int32)"),
    (np.zeros((0, 2), np.float32), "array([], shape=(0, 2), dtype=float32)"),
]


@pytest.mark.parametrize(("value", "text"), PARAMS, ids=range(len(PARAMS)))
def test_params(value: Any, text: str) -> None:
    assert text_of_param(value) == text


def test_large_arrays_in_params_are_complete() -> None:
    assert text_of_param(np.arange(5000)).count(", ") == 5001


def test_jaxprs_beside_other_values_in_a_tuple() -> None:
    assert eqn_to_text(line("op", [], [], rules=(ClosedJaxpr(chain("sin"), []), None))) == (
        "op[rules=({ lambda ; a:f32[]. let b:f32[] = sin a in (b,) } None)] ")


def test_default_params_of_jit_are_left_out_and_others_shown() -> None:
    a, b = var(), var()
    eqn = call("f", chain("sin"), [a], [b])
    assert set(re.findall(r"(\w+)=", eqn_to_text(eqn))) == {"name", "jaxpr"}
    assert re.findall(r"(\w+)=", eqn_to_text(eqn, custom_pp_eqn_rules=False)) == [
        "donated_invars", "inline", "jaxpr", "keep_unused", "name"]
    eqn.params.update(inline=True, keep_unused=True, donated_invars=(True,))
    assert re.findall(r"(\w+)=", eqn_to_text(eqn)) == ["name", "donated_invars", "inline", "jaxpr", "keep_unused"]


def test_implied_params_are_shown_when_they_are_not_at_their_default() -> None:
    mixed = line("scan", [], [], linear=(False, True), _split_transpose=False, length=3)
    assert eqn_to_text(mixed) == "scan[length=3 linear=(False, True)] "
    assert eqn_to_text(line("scan", [], [], linear=(False, False), length=3)) == "scan[length=3] "
    assert eqn_to_text(line("broadcast_in_dim", [], [], shape=(1,), broadcast_dimensions=(0,))) == (
        "broadcast_in_dim[broadcast_dimensions=(0,)] ")
    assert eqn_to_text(line("sin", [var()], [var()], accuracy=None)) == "a:f32[] = sin b"


# --- options, and what does not depend on JAX --------------------------------------------------------


def test_weak_types_are_shown_on_request() -> None:
    x = var(ShapedArray((), np.dtype("int32"), True))
    y = var(ShapedArray((2,), np.dtype("int32")))
    jaxpr = Jaxpr([], [x, y], [x], [])
    assert str(jaxpr) == "{ lambda ; a:i32[] b:i32[2]. let  in (a,) }"
    assert jaxpr.pretty_print(weak_types=True) == "{ lambda ; a:~i32[] b:i32[2]. let  in (a,) }"


def test_source_info_names_the_users_line() -> None:
    import jaxlite
    from jaxlite import lax

    def f(x: Any) -> Any:
        return lax.sin(x)

    jaxpr = jaxlite.make_jaxpr(f)(np.float32(1))
    comment = f" # {__file__}:{f.__code__.co_firstlineno + 1}:15 ({f.__qualname__})"
    assert jaxpr.pretty_print(source_info=True) == str(jaxpr) + comment
    assert eqn_to_text(jaxpr.eqns[0], source_info=True) == "a:f32[] = sin b" + comment


def test_effects_are_sorted() -> None:
    assert Jaxpr([], [], [], [], frozenset({"b", "a"})).pretty_print(print_effects=True) == (
        "{ lambda ; . let  in () : { a, b } }")


def test_tokens_have_a_type() -> None:
    x = var(abstract_token)
    assert str(Jaxpr([], [x], [x], [])) == "{ lambda ; a:Tok. let  in (a,) }"


def test_unknown_option_is_an_error() -> None:
    with pytest.raises(TypeError, match="colour"):
        chain("sin").pretty_print(colour=True)


def test_printing_changes_nothing_and_repeats_itself() -> None:
    jaxpr = Builder().jaxpr(next(row["program"] for row in GOLDEN if row["title"] == "scan in cond"))
    closed = ClosedJaxpr(jaxpr, [])
    assert str(jaxpr) == str(jaxpr) == repr(jaxpr) == str(closed) == repr(closed) == closed.pretty_print()
    assert str(jaxpr.eqns[0]) == repr(jaxpr.eqns[0]) == eqn_to_text(jaxpr.eqns[0])


def test_an_equation_alone_prints_shared_jaxprs_in_front() -> None:
    f = chain("sin")
    x, y, z = var(), var(), var()
    g = Jaxpr([], [x], [z], [call("f", f, [x], [y]), call("f", f, [y], [z])])
    assert eqn_to_text(call("g", g, [var()], [var()])).startswith("let f = { lambda ; ")


def test_ill_formed_programs_print() -> None:
    x, y = var(), var()
    assert str(Jaxpr([], [], [x], [line("sin", [y], [y])])) == "{ lambda ; . let a:f32[] = sin a in (b,) }"


def test_time_is_linear_in_the_number_of_equations() -> None:
    start = time.process_time()
    text = str(chain("sin", 50_000))
    assert time.process_time() - start < 5
    assert text.count("\n") == 50_001


def test_time_is_linear_in_the_number_of_jaxprs() -> None:
    # Each uses the one before twice: 2 ** 60 ways to the innermost.
    f = chain("sin")
    for level in range(60):
        x, y, z = var(), var(), var()
        f = Jaxpr([], [x], [z], [call(f"f{level}", f, [x], [y]), call(f"f{level}", f, [y], [z])])
    assert str(f).count("let f") == 60
    assert eqn_to_text(call("f", f, [var()], [var()])).count("let f") == 60


def test_deep_nesting_prints() -> None:
    f = chain("sin")
    for _ in range(60):
        x, y = var(), var()
        f = Jaxpr([], [x], [y], [call("f", f, [x], [y])])
    assert str(f).count("lambda") == 61


def test_names_of_scopes_stand_beside_equations() -> None:
    def f(x):
        with jaxlite.named_scope("outer"):
            y = 2.0 * x
            with jaxlite.named_scope("inner"):
                y = jaxlite.numpy.sin(y)
        return y + 1.0

    closed = jaxlite.make_jaxpr(f)(1.0)
    lines = closed.pretty_print(name_stack=True).splitlines()
    assert [line.partition("# ")[2] for line in lines if " = " in line] == ["[outer]", "[outer/inner]", "[]"]
    sine = closed.eqns[1].source_line
    line, column = re.search(r":(\d+):(\d+) \(\S*f\)$", sine).groups()
    assert Path(__file__).read_text().splitlines()[int(line) - 1][int(column):].startswith("jaxlite.numpy.sin(y)")


@pytest.mark.skipif(xla.VERSION < (0, 12), reason="as JAX of the same jaxlib")
def test_params_of_later_versions() -> None:
    def f(x):
        total, rows = jaxlite.lax.scan(lambda c, each: (c + each * x[0], (c, -each)), 0.0, x)
        return total, rows, jaxlite.lax.reduce_max(x, (0,)), *jaxlite.lax.top_k(x, 2), jaxlite.new_ref(x)[...]

    closed = jaxlite.make_jaxpr(f)(np.ones(3, np.float32))
    text = str(closed)
    for words in ("ft_in=((None,), (None,), (None,))\n", "length=3\n      reverse=False", "axes=(0,) out_sharding=None]",
                  "ft_out=((None,), (RightsOnly(Right(None)), RightsOnly(Right(None))))\n", "[axis=0 is_stable=True k=2]",
                  "memory_space=None pin=False]"):
        assert words in text
    again = parse_jaxpr(text)
    assert str(again) == text and again.eqns[0].params["num_carry"] == 1


def test_equations_tell_where_they_come_from() -> None:
    def f(x: Any) -> Any:
        y = jaxlite.numpy.sin(x)
        with jaxlite.named_scope("outer"), jaxlite.named_scope("inner"):
            return jaxlite.numpy.cos(y)

    first, second = jaxlite.make_jaxpr(f)(1.0).eqns
    assert "test_jaxpr_printing.py" in source_info_util.summarize(first.source_info)
    assert first.source_info.name_stack == () and str(second.source_info.name_stack) == "outer/inner"

    def again(x: Any) -> Any:
        with source_info_util.user_context(first.source_info.traceback):
            return jaxlite.numpy.sin(x)

    (eqn,) = jaxlite.make_jaxpr(again)(1.0).eqns
    assert source_info_util.summarize(eqn.source_info) == source_info_util.summarize(first.source_info)


def test_ipython_shows_colours() -> None:
    closed = jaxlite.make_jaxpr(lambda x: x + 1)(1.0)
    for jaxpr in (closed, closed.jaxpr):
        shown: list[str] = []
        jaxpr._repr_pretty_(type("Page", (), {"text": staticmethod(shown.append)}), False)  # what IPython calls
        assert shown[0] != str(jaxpr) and re.sub(r"\x1b\[[0-9;]*m", "", shown[0]) == str(jaxpr)
