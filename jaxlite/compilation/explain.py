"""Explanations of cache misses: the difference between a new signature and an earlier one, as text.

`differences` compares two signatures and has no side effects; `reason` chooses the earlier signature; `tell` writes the
message for the option `explain_cache_misses`. `compile_report.py` has the list of compiles.
"""

from __future__ import annotations

import reprlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from jaxlite.core import config, source
from jaxlite.core.tree import keystr, tree_differences
from lowering import report

_SHOWN = 5  # of the differences
_COMPARED = 50  # of the earlier signatures, the latest
_repr = reprlib.Repr()
_repr.maxother = _repr.maxstring = _repr.maxlong = 80


class Signature(NamedTuple):
    """What a traced program depends on: the key of `jit`'s cache, field by field."""

    options: tuple[Any, ...]  # of jit
    tree: Any
    avals: tuple[Any, ...]
    static: tuple[tuple[int, Any], ...]  # by position; values are boxed
    named: tuple[tuple[str, Any], ...]
    context: tuple[Any, ...]  # values of `config.PROGRAM_STATES`
    axes: tuple[tuple[Any, int], ...]


class Names(NamedTuple):
    """How the parts of a new signature are called."""

    positional: Sequence[str]  # parameters
    rest: str  # the parameter of further positional arguments
    leaves: Callable[[], Sequence[str]]  # flat arguments, as `batch['x']`
    options: Sequence[str]  # of jit

    def position(self, index: int) -> str:
        """The name of a positional argument."""
        return position_name(self.positional, self.rest, index)


def position_name(positional: Sequence[str], rest: str, index: int) -> str:
    """The name of a positional argument: its parameter's, or its place in the one that takes the rest."""
    known = len(positional)
    return positional[index] if index < known else f"{rest}[{index - known}]"


# --- two signatures ----------------------------------------------------------------------------------


class _Argument(NamedTuple):
    passed: str
    box: Any = None  # of a static value
    tree: Any = None  # of a dynamic one
    start: int = 0  # the number of its first leaf
    avals: tuple[Any, ...] = ()

    def __str__(self) -> str:
        if self.box is not None:
            return f"static {_repr.repr(self.box.value)}"
        if len(self.avals) == 1 and self.tree.num_nodes == 1:
            return show_type(self.avals[0])
        return f"a pytree of {len(self.avals)} arrays"


def _arguments(signature: Signature, names: Names) -> dict[str, _Argument]:
    args, kwargs = signature.tree.children()
    static, children = dict(signature.static), iter(args.children())
    found, start = {}, 0

    def dynamic(passed: str, tree: Any) -> _Argument:
        nonlocal start
        first, start = start, start + tree.num_leaves
        return _Argument(passed, None, tree, first, signature.avals[first:start])

    for index in range(len(static) + len(args.children())):
        found[names.position(index)] = (_Argument("by position", static[index]) if index in static
                                        else dynamic("by position", next(children)))
    for name, child in zip(kwargs.node_data()[1], kwargs.children(), strict=True):
        found[name] = dynamic("by keyword", child)
    for name, box in signature.named:
        found[name] = _Argument("by keyword", box)
    return found


def differences(new: Signature, old: Signature, names: Names) -> list[str]:
    """The differences between two signatures of one function, a short text for each."""
    found = [f"changed option `{name}` of jit: {_repr.repr(here)} was {_repr.repr(there)}"
             for name, here, there in zip(names.options, new.options, old.options, strict=False) if here != there]
    ours, theirs = _arguments(new, names), _arguments(old, names)
    for name, argument in ours.items():
        if name in theirs:
            found += _argument_differences(name, argument, theirs[name], names)
        else:
            found.append(f"argument `{name}`: {argument}, was not given")
    found += [f"argument `{name}`: not given, was {argument}" for name, argument in theirs.items() if name not in ours]
    found += [f"changed option `jax_{name}`: {here!r} was {there!r}"
              for name, here, there in zip(config.PROGRAM_STATES, new.context, old.context, strict=False)
              if here != there]
    if new.axes != old.axes:
        found.append(f"named axes: {_show_axes(new.axes)} were {_show_axes(old.axes)}")
    return found


def _argument_differences(name: str, new: _Argument, old: _Argument, names: Names) -> Iterator[str]:
    if new.passed != old.passed:
        yield f"argument `{name}` is passed {new.passed}, was {old.passed}"
    if (new.box is None) != (old.box is None):
        yield f"argument `{name}`: {new} was {old}"
    elif new.box is not None:
        if new.box != old.box:
            yield f"static argument `{name}`: {_static_difference(new.box.value, old.box.value)}"
    elif new.tree != old.tree:
        for path, here, there, _ in islice(tree_differences().equality_errors(new.tree, old.tree), _SHOWN):
            yield f"new pytree structure of `{name}{keystr(path)}`: {here}, was {there}"
    else:
        for index, (here, there) in enumerate(zip(new.avals, old.avals, strict=True), new.start):
            if here != there:
                weak = getattr(here, "weak_type", False) != getattr(there, "weak_type", False)
                only_weak = weak and here.str_short(short_dtypes=True) == there.str_short(short_dtypes=True)
                yield (f"{'weak type of ' if only_weak else ''}argument `{names.leaves()[index]}`: "
                       f"{show_type(here)} was {show_type(there)}")


def _static_difference(new: Any, old: Any) -> str:
    here, there = _repr.repr(new), _repr.repr(old)
    if type(new).__eq__ is object.__eq__ and type(new) is type(old):  # type: ignore[comparison-overlap]
        return (f"{here} is not the same object as {there}, and objects of {type(new).__qualname__} are equal to "
                "themselves alone; make it once, or give its class `__eq__` and `__hash__`")
    if type(new) is not type(old):
        return f"{here} ({type(new).__name__}) was {there} ({type(old).__name__})"
    return f"{here} was {there}" if here != there else f"{here} does not equal the value before, which looks the same"


def show_type(aval: Any) -> str:
    """`f32[2,3]`, or `weak f32[]` for what a Python scalar gives."""
    return ("weak " if getattr(aval, "weak_type", False) else "") + aval.str_short(short_dtypes=True)


def _show_axes(axes: Sequence[tuple[Any, int]]) -> str:
    return ", ".join(f"{name!r} of size {size}" for name, size in axes) or "none"


# --- the history of a function -----------------------------------------------------------------------

# Functions by their code and that of what they wrap: which object was traced last. Code holds no data of users.
_seen: dict[tuple[Any, ...], weakref.ref[Any] | None] = {}
_SEEN_LIMIT = 4096


def _codes(fun: Any) -> tuple[Any, ...]:
    """The code of a function and of those it wraps, in place of code that is not Python's the type; and the file, as code that
    is alike in two files is equal."""
    codes = []
    for _ in range(8):
        codes.append(getattr(getattr(fun, "__func__", fun), "__code__", type(fun)))
        fun = getattr(fun, "__wrapped__", None) or getattr(fun, "func", None)
        if fun is None:
            break
    return (*codes, getattr(codes[-1], "co_filename", None))


def remember(fun: Callable[..., Any]) -> None:
    """Note that a function object was traced."""
    codes = _codes(fun)
    file = codes[-1]
    if not isinstance(file, str) or source.is_own_file(file):  # an object that is called has no line to tell
        return
    if len(_seen) >= _SEEN_LIMIT:
        _seen.clear()
    try:
        _seen[codes] = weakref.ref(fun)
    except TypeError:  # an object of a class with slots
        _seen[codes] = None


def reason(fun: Callable[..., Any], key: tuple[Any, ...], earlier: Sequence[tuple[Any, ...]], names: Names) -> str:
    """Why a function has to be traced for the signature `key`, before which it was for those of `earlier`."""
    try:
        return words(fun, key, earlier, names)
    except Exception as error:  # of a user's `__eq__` or pytree node, which must not keep the function from running
        return f"a new signature; comparing it with earlier ones raised {type(error).__name__}: {error}"


def _reason(fun: Callable[..., Any], key: tuple[Any, ...], earlier: Sequence[tuple[Any, ...]], names: Names) -> str:
    if key in earlier:
        return "what was traced for this signature uses values of a transformation that has ended"
    if earlier:
        new = Signature(*key)
        candidates = [differences(new, Signature(*old), names) for old in reversed(earlier[-_COMPARED:])]
        found = min(candidates, key=len)
        if not found:
            return "it looks like an earlier signature; a static value or a pytree's metadata does not equal itself"
        if len(found) > _SHOWN:
            found[_SHOWN:] = [f"and {len(found) - _SHOWN} more differences"]
        if len(found) == 1 and len(earlier) == 1:
            return found[0]
        which = "earlier signature" if len(earlier) == 1 else f"nearest of {len(earlier)} earlier signatures"
        return f"difference to the {which}:" + "".join(f"\n  {each}" for each in found)
    if is_defined_again(fun):
        return ("new function object: a function of this name and line was compiled before; if it is defined anew at each "
                "call or in a loop, define it once")
    return "its cache was cleared" if _codes(fun) in _seen else "first call"


words: Callable[..., str] = _reason  # others, and another way to tell them, where this package has another name


def is_defined_again(fun: Callable[..., Any]) -> bool:
    """Whether another function of the same code was traced before."""
    codes = _codes(fun)
    before = _seen.get(codes)
    return codes in _seen and (before is None or before() is not fun)


_PLACE = ("device", "results bound to their device", "compiler options", "fusion barriers")


def other_executable(key: tuple[Any, ...], earlier: Sequence[tuple[Any, ...]],
                     argument: Callable[[int], str] = lambda index: f"#{index}") -> str:
    """Why a program that was compiled before is compiled for the key of one more executable.

    Args: `argument` gives the name of a flat argument.
    """
    changes = [[told for name, here, there in zip(_PLACE, key, old, strict=True) if here != there
                for told in _place_changes(name, here, there, argument)] for old in reversed(earlier)]
    nearest: list[str] = min(changes, key=len)
    return "traced before, compiled once more: " + "; ".join(nearest)


def _place_changes(name: str, here: Any, there: Any, argument: Callable[[int], str]) -> list[str]:
    """The changes of one part of an executable's key; of shardings, those of each argument and result."""
    if not (hasattr(here, "arguments") and hasattr(there, "arguments") and here.devices == there.devices):
        return [f"{name}: {here} was {there}"]

    def shown(sharding: Any) -> str:
        return "open" if sharding is None else str(sharding.spec)

    told, offset = [], len(here.arguments) - here.num_arguments
    for index, (new, old) in enumerate(zip(here.arguments, there.arguments, strict=False)):
        if new != old:
            told.append(f"argument `{argument(index - offset)}`: {shown(new)} was {shown(old)}")
    for index, (new, old) in enumerate(zip(here.results, there.results, strict=False)):
        if new != old:
            told.append(f"result {index}: {shown(new)} was {shown(old)}")
    return told or [f"mesh: {here.mesh} was {there.mesh}"]


def note(location: str, seconds: dict[str, float], cache: str) -> None:
    """Log a line to the logger of this folder, "jaxlite.compilation", with the level DEBUG."""
    report.logger().getChild("compilation").debug(f"compiled {location}: {report.stage_times(seconds, cache)}")


def _tell(verb: str, location: str, seconds: dict[str, float], why: str, cache: str = "off") -> None:
    """Log one paragraph about a function (`name at file:line`); `cache` is what the persistent cache said."""
    caller = source.summarize(source.current_traceback())
    report.logger().warning(f"{verb} {location}, called at {caller}: {report.stage_times(seconds, cache)}\n  "
                            + why.replace("\n", "\n  "))


tell: Callable[..., None] = _tell
