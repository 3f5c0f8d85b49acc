"""The log of traces and compiles under the name `jax`: lines with JAX's loggers and words, which programs and tests look for
(to count compiles, to learn why, or to silence them)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from jaxlite.compilation import explain
from jaxlite.core import config, source
from jaxlite.core.tree import keystr, tree_differences
from lowering import report


def log_stages(name: str, closed: Any, seconds: dict[str, float], cache: str) -> None:
    """Log one compile: `lowering.report.log` has the arguments."""
    dispatch = report.logger()
    types = ", ".join(var.aval.str_short() for var in closed.jaxpr.invars)
    dispatch.warning(f"Finished tracing {name} for jit in {seconds['trace']:.9f} sec")
    logging.getLogger("jax._src.interpreters.pxla").warning(f"Compiling jit({name}) with global shapes and types ({types}).")
    dispatch.warning(f"Finished jaxpr to MLIR module conversion jit({name}) in {seconds['lower']:.9f} sec")
    found = "" if cache == "off" else f" (cache {cache})"
    dispatch.warning(f"Finished XLA compilation of jit({name}) in {seconds['compile']:.9f} sec{found}")


def explain_miss(fun: Any, key: tuple[Any, ...], earlier: Sequence[tuple[Any, ...]], names: explain.Names) -> str:
    """Log why a function is traced, before it is, and return it: `explain.reason` has the arguments."""
    name, _, place = source.function_location(fun).partition(" at ")
    if not place:  # a function of ours
        return "a function of this package"
    if earlier:
        found = min((list(_differences(explain.Signature(*key), explain.Signature(*old), names)) for old in reversed(earlier)),
                    key=len)
        told = [f"for {name} defined at {place}", "all previously seen cache keys differ. For the closest previous key:",
                *(found or ["cache miss explanation unavailable"])]
    else:
        told = ["never seen function:", f"  {name} id={id(fun)} defined at {place}"]
        if explain.is_defined_again(fun):
            told += ["but seen another function defined on the same line; maybe the function is",
                     "being re-defined repeatedly, preventing caching?"]
    where = source.summarize_place(source.current_traceback())
    logging.getLogger("jax._src.interpreters.partial_eval").warning("\n  ".join([f"TRACING CACHE MISS at {where}:", *told]))
    return "\n".join(told)


def _differences(new: explain.Signature, old: explain.Signature, names: explain.Names) -> Iterator[str]:
    """The lines about the first kind of difference between two signatures, and a line for each more."""
    if new.tree != old.tree:
        yield "different input pytree:"
        for path, here, there, why in tree_differences().equality_errors(new.tree, old.tree):
            yield f"* at input path {keystr(path)}, now {_bare(here)} and before {_bare(there)}, so {why}"
    elif new.avals != old.avals:
        yield "different input types:"
        for index, (here, there) in enumerate(zip(new.avals, old.avals, strict=True)):
            if here != there:
                yield f"* at {names.leaves()[index]}, now {{}} and before {{}}".format(*_types(here, there))
    elif (new.static, new.named) != (old.static, old.named):
        yield "different static arguments:"
        before: dict[Any, Any] = {**dict(old.static), **dict(old.named)}
        boxes: list[tuple[Any, Any]] = [*new.static, *new.named]
        for place, box in boxes:
            if before.get(place) != box:
                name = place if isinstance(place, str) else names.position(place)
                there = before[place].value if place in before else "not given"
                yield f"* at {name}, now {box.value!r} and before {there!r}"
    elif new.context != old.context:
        yield "Tracing context doesn't match, e.g. due to config or context manager."
        for option, here, there in zip(config.PROGRAM_STATES, new.context, old.context, strict=False):
            if here != there:
                yield f"* jax_{option} differs: now {here} and before {there}"


def _bare(thing: str) -> str:
    return thing.removeprefix("a ")


def _types(here: Any, there: Any) -> tuple[str, str]:
    """Two types as text, which names what is weak if they are alike otherwise."""
    texts = here.str_short(short_dtypes=True), there.str_short(short_dtypes=True)
    if texts[0] != texts[1]:
        return texts
    first, second = (f"{text}{{weak_type={bool(aval.weak_type)}}}" for text, aval in zip(texts, (here, there), strict=True))
    return first, second
