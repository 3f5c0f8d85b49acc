"""Words for XLA on operations, its frontend attributes: `set_xla_metadata`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core import source
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import hoist_consts, runs_program
from jaxlite.core.tracing import Trace, Tracer, is_eager, set_trace, state
from jaxlite.core.tree import tree_map, tree_unflatten
from jaxlite.lax.control_flow.bodies import flatten_values, trace_body
from jaxlite.traces.call_rules import give_call_rules
from jaxlite.traces.jvp import Zero

__all__ = ["set_xla_metadata"]

xla_metadata_value_p = Primitive("xla_metadata_value")
xla_metadata_value_p.def_abstract_eval(lambda x, *, xla_metadata_kvs: x)
xla_metadata_value_p.def_eager(lambda x, *, xla_metadata_kvs: x)
xla_metadata_value_p.def_transpose(lambda ct, x, **params: [xla_metadata_value_p.bind(ct, **params)])
xla_metadata_value_p.def_batching(lambda axis, args, dims, **params: (xla_metadata_value_p.bind(*args, **params), dims[0]))



@xla_metadata_value_p.def_jvp
def _value_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    (tangent,) = tangents
    return (xla_metadata_value_p.bind(*primals, **params),
            tangent if isinstance(tangent, Zero) else xla_metadata_value_p.bind(tangent, **params))


xla_metadata_call_p = Primitive("xla_metadata_call", multiple_results=True)
runs_program(xla_metadata_call_p, "jaxpr")
give_call_rules(xla_metadata_call_p)


def metadata_call(f: Callable[..., Any], meta: dict[str, Any]) -> Callable[..., Any]:
    """A function that is compiled as a call of its own, with these attributes."""

    @source.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, in_tree, avals = flatten_values("the arguments", (args, kwargs))
        body = trace_body(f, in_tree, avals, "xla_metadata_call")
        outs = xla_metadata_call_p.bind(*body.consts, *leaves, jaxpr=hoist_consts(body.jaxpr), **meta)
        return tree_unflatten(body.out_tree, outs)

    return wrapped


class _MetadataTrace(Trace):
    """Has the trace around it record operations, and says the attributes of what came out."""

    __slots__ = ("parent", "words")

    def __init__(self, parent: Trace, words: tuple[tuple[str, str], ...]):
        super().__init__(parent.debug_info)
        self.parent, self.words = parent, words

    def pin(self, traceback: Any) -> None:
        self.parent.pin(traceback)

    def pin_here(self) -> bool:
        return self.parent.pin_here()

    def process(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        with set_trace(self.parent):
            outs = primitive.bind(*args, **params)
            say = lambda out: _say(out, self.words) if isinstance(out, Tracer) else out
            return list(map(say, outs)) if primitive.multiple_results else say(outs)


def _say(value: Any, words: tuple[tuple[str, str], ...]) -> Any:
    return xla_metadata_value_p.bind(value, xla_metadata_kvs=words)


class _Block:
    """The attributes as a context manager, and as a decorator."""

    def __init__(self, words: tuple[tuple[str, str], ...]):
        self._words, self._entered = words, list[Any]()

    def __enter__(self) -> None:
        trace = set_trace(state.trace if is_eager() else _MetadataTrace(state.trace, self._words))
        trace.__enter__()
        self._entered.append(trace)

    def __exit__(self, *exc: Any) -> None:
        self._entered.pop().__exit__(*exc)

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
        of a `with` block, which is a decorator too. It goes inside of the function that is compiled: a block around the call of
        a jitted function marks nothing.
      kwargs: the attributes; numbers and booleans as texts.
    Returns: the values as they are, or the context manager.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> "frontend_attributes = {speed = \\"high\\"}" in jaxlite.jit(
    ...     lambda x: set_xla_metadata(jnp.sin(x), speed="high")).lower(1.0).as_text()
    True
    """
    words = tuple((name, _text(value)) for name, value in kwargs.items())
    return _Block(words) if x is None else tree_map(lambda leaf: _say(leaf, words), x)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
