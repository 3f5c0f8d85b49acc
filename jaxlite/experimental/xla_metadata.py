"""Words for XLA on operations, its frontend attributes: `set_xla_metadata`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core import source
from jaxlite.core.config import xla_words
from jaxlite.core.primitive import Primitive
from jaxlite.core.scopes import Words, named_scope
from jaxlite.core.staging import hoist_consts, marks, runs_program
from jaxlite.core.tree import tree_map, tree_unflatten
from jaxlite.lax.control_flow.bodies import flatten_values, trace_body
from jaxlite.traces.batching import def_in_place
from jaxlite.traces.call_rules import give_call_rules
from jaxlite.traces.jvp import Zero
from lowering import xla

__all__ = ["fuse_limit", "must_fuse_call", "set_xla_metadata", "xla_metadata_call", "xla_metadata_call2"]
__dir__ = lambda: __all__

xla_metadata_value_p = Primitive("xla_metadata_value")
xla_metadata_value_p.def_abstract_eval(lambda x, *, xla_metadata_kvs: x)
xla_metadata_value_p.def_eager(lambda x, *, xla_metadata_kvs: x)
xla_metadata_value_p.def_transpose(lambda ct, x, **params: [xla_metadata_value_p.bind(ct, **params)])
def_in_place(xla_metadata_value_p)



@xla_metadata_value_p.def_jvp
def _value_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    (tangent,) = tangents
    return (xla_metadata_value_p.bind(*primals, **params),
            tangent if isinstance(tangent, Zero) else xla_metadata_value_p.bind(tangent, **params))


xla_metadata_call_p = Primitive("xla_metadata_call", multiple_results=True)
runs_program(xla_metadata_call_p, "jaxpr")


def _of_tangents(params: dict[str, Any]) -> dict[str, Any]:
    given = params.get("ad_metadata", "same")
    if given == "same":
        return params
    return {**params, "xla_metadata": () if given == "drop" else given, "ad_metadata": "same"}


give_call_rules(xla_metadata_call_p, _of_tangents)


def metadata_call(f: Callable[..., Any], meta: dict[str, Any], ad_metadata: Any = "same") -> Callable[..., Any]:
    """A function that is compiled as a call of its own, with these attributes."""
    params = meta
    if xla.VERSION >= (0, 12) or ad_metadata != "same":  # as JAX of the same jaxlib
        params = {"xla_metadata": _words(meta),
                  "ad_metadata": ad_metadata if isinstance(ad_metadata, str) else _words(ad_metadata)}

    @source.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, in_tree, avals = flatten_values("the arguments", (args, kwargs))
        body = trace_body(f, in_tree, avals, "xla_metadata_call")
        outs = xla_metadata_call_p.bind(*body.consts, *leaves, jaxpr=hoist_consts(body.jaxpr), **params)
        return tree_unflatten(body.out_tree, outs)

    return wrapped


def _say(value: Any, words: tuple[tuple[str, str], ...]) -> Any:
    return xla_metadata_value_p.bind(value, xla_metadata_kvs=words)


class _Block:
    """The attributes as a context manager, and as a decorator."""

    def __init__(self, words: tuple[tuple[str, str], ...]):
        self._words, self._entered = words, list[Any]()

    def __enter__(self) -> None:
        marks.exist = True
        scope, around = named_scope(Words.of(self._words)), xla_words.value
        scope.__enter__()
        xla_words.set_local((*(around or ()), *self._words))
        self._entered.append((scope, around))

    def __exit__(self, *exc: Any) -> None:
        scope, around = self._entered.pop()
        xla_words.set_local(around)
        scope.__exit__(*exc)

    def __call__(self, f: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(f)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with _Block(self._words):
                return f(*args, **kwargs)

        return wrapped


def set_xla_metadata(x: Any = None, **kwargs: Any) -> Any:
    """Give operations of compiled programs frontend attributes, words that passes of XLA look for.

    Args:
      x: values; what computes each of them gets the attributes. Without it, the result is a context manager for the operations
        of a `with` block, which is a decorator too. Functions under `jit` that are called inside it are compiled with the
        attributes, too, and what is done of marked operations for derivatives has them.
      kwargs: the attributes; numbers and booleans as texts.
    Returns: the values as they are, or the context manager.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> "frontend_attributes = {speed = \\"high\\"}" in jaxlite.jit(
    ...     lambda x: set_xla_metadata(jnp.sin(x), speed="high")).lower(1.0).as_text()
    True
    """
    words = _words(kwargs)
    return _Block(words) if x is None else tree_map(lambda leaf: _say(leaf, words), x)


def xla_metadata_call(f: Callable[..., Any] | None = None, /, **meta: Any) -> Any:
    """A function that is compiled as a call of its own with frontend attributes, or without one a decorator."""
    return xla_metadata_call2(f, meta)


def xla_metadata_call2(f: Any = None, /, metadata: dict[str, Any] | None = None, *, ad_metadata: Any = "same") -> Any:
    """A function that is compiled as a call of its own with frontend attributes, or without one a decorator.

    Args:
      metadata: the attributes; numbers and booleans as texts.
      ad_metadata: those of the calls that give tangents and cotangents: "same", "drop" for none, or a dict.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> tagged = xla_metadata_call2(jnp.sin, {"tag": "layer"}, ad_metadata={"tag": "backward"})
    >>> text = jaxlite.jit(jaxlite.grad(tagged)).lower(1.0).as_text()
    >>> 'tag = "layer"' in text, 'tag = "backward"' in text
    (True, True)
    """
    if isinstance(f, dict) and metadata is None:
        f, metadata = None, f
    if not (ad_metadata in ("same", "drop") if isinstance(ad_metadata, str) else isinstance(ad_metadata, dict)):
        raise ValueError(f"ad_metadata must be 'same', 'drop', or a dict of metadata, got {ad_metadata!r}")
    if f is None:
        return functools.partial(metadata_call, meta=metadata or {}, ad_metadata=ad_metadata)
    return metadata_call(f, metadata or {}, ad_metadata)


def must_fuse_call(identifier: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: XLA has to put all that the function computes into one kernel, where its platform knows of this."""
    return xla_metadata_call(MUST_FUSE=identifier)


def fuse_limit() -> Any:
    """A context manager whose operations XLA does not join with others into kernels, where its platform knows of this."""
    return set_xla_metadata(FUSE_LIMIT=True)


def _words(meta: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, _text(value)) for name, value in meta.items())


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
