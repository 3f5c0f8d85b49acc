"""The exceptions for users, with JAX's class names and base classes.

A message says what happened in the user's terms, where (file and line), and how to fix it. Messages with a tracer's history
are composed here, from the debug information of its trace.
"""

from __future__ import annotations

from typing import Any


class JaxprTypeError(TypeError):
    """A jaxpr that is not well formed or not well typed; raised by `check_jaxpr`."""


def _from_pickle(kind: type[Exception], args: tuple[Any, ...]) -> Exception:
    return kind.__new__(kind, *args)


class _KeepsMessage(Exception):
    """An error that is made of other things than its message, of which a copy or a pickle has the message alone."""

    def __reduce__(self) -> Any:
        return _from_pickle, (type(self), self.args), self.__dict__


class JaxprSyntaxError(_KeepsMessage, ValueError):
    """A text that is not a jaxpr, or an ill-typed one; raised by `parse_jaxpr`.

    Attributes: `line` and `column`, from 1 on.
    """

    def __init__(self, message: str, line: int, column: int, text: str):
        super().__init__(f"line {line}, column {column}: {message}\n  {text}\n  {' ' * (column - 1)}^")
        self.line, self.column = line, column


class JAXTypeError(_KeepsMessage, TypeError):
    """The base of the errors about traced values that are TypeErrors."""


class JAXIndexError(_KeepsMessage, IndexError):
    """The base of the errors about traced values that are IndexErrors."""


class ConcretizationTypeError(JAXTypeError):
    """A traced value was used where Python needs a concrete one.

    Under `jit`, `grad` or `vmap` an array argument represents every value it may take. What depends on one
    value (a Python branch, a shape, an index of a list) has to be static (`static_argnums`), or become part
    of the program (`jaxlite.lax.cond`, `jaxlite.numpy.where`).
    """

    def __init__(self, tracer: Any, context: str = ""):
        super().__init__(tracer_message("Abstract tracer value encountered where concrete value is expected: "
                                         "traced array with shape " + _describe(tracer), tracer, context))


class TracerBoolConversionError(ConcretizationTypeError):
    """A traced value was used as a Python bool: in `if`, `while`, `and`, `or`, `not`, `assert`.

    Choose between values with `jaxlite.numpy.where`, between computations with `jaxlite.lax.cond`, loop with
    `jaxlite.lax.while_loop`; combine conditions with `&`, `|`, `~`; or mark the argument static.
    """

    def __init__(self, tracer: Any):
        TypeError.__init__(self, tracer_message(
            "Attempted boolean conversion of traced array with shape " + _describe(tracer), tracer,
            "use jaxlite.numpy.where or jaxlite.lax.cond to choose by a traced value, & and | to combine "
            "conditions, or mark the argument static (static_argnums, static_argnames)"))


class TracerIntegerConversionError(JAXTypeError):
    """A traced value was used where Python needs an integer: a list index, a shape, `range`, an axis.

    Index arrays instead of lists, loop with `jaxlite.lax.fori_loop`, or mark the argument static.
    """

    def __init__(self, tracer: Any):
        super().__init__(tracer_message(
            "The __index__() method was called on traced array with shape " + _describe(tracer), tracer,
            "index a jaxlite array instead of a Python list, loop with jaxlite.lax.fori_loop, or mark the "
            "argument static (static_argnums, static_argnames)"))


class TracerArrayConversionError(JAXTypeError):
    """A traced value was handed to NumPy, which needs its data.

    Use the function of the same name in `jaxlite.numpy`, or compute the NumPy value outside the traced
    function.
    """

    def __init__(self, tracer: Any):
        super().__init__(tracer_message(
            "The numpy.ndarray conversion method __array__() was called on traced array with shape "
            + _describe(tracer), tracer,
            "call the function of the same name in jaxlite.numpy instead of numpy's"))


class NonConcreteBooleanIndexError(JAXIndexError):
    """A boolean mask whose values are not known while tracing was used as an index: the size of the result
    would depend on data.

    Use `jaxlite.numpy.where(mask, x, fill)`, or functions with a `size` argument such as `nonzero`.
    """

    def __init__(self, tracer: Any):
        super().__init__(tracer_message(
            "Array boolean indices must be concrete; got " + _describe(tracer), tracer,
            "use jaxlite.numpy.where(mask, x, fill), the reductions' where= argument, or nonzero(mask, size=...)"))


class UnexpectedTracerError(JAXTypeError):
    """A tracer was used after its trace had ended: it leaked, through a global, an attribute or a closure.

    Return values from the traced function instead of storing them elsewhere.
    """

    def __init__(self, tracer_or_text: Any):
        if isinstance(tracer_or_text, str):
            super().__init__(tracer_or_text)
            return
        tracer = tracer_or_text
        debug = getattr(tracer._trace, "debug_info", None)
        text = (f"Encountered an unexpected tracer. A function transformed by jaxlite had a side effect, allowing "
                f"for a reference to an intermediate value with type {tracer.aval.str_short()} to escape the scope of the "
                "transformation.")
        if debug is not None:
            text += f"\nThe function being traced when the value leaked was {debug}."
        made = tracer.made_at()
        if made:
            text += f"\nThe leaked value was created on line {made}."
        text += "\nTry: return the value from the function instead of storing it in a global, an attribute or a list."
        super().__init__(text)


class InconclusiveDimensionOperation(Exception):
    """A comparison of symbolic dimensions that cannot be decided."""


class ShardingTypeError(Exception):
    """Operands over explicit mesh axes contradict each other, or do not determine the sharding of the result."""


class ForbiddenCollectiveError(Exception):
    """An operation communicates along a mesh axis for which `jax.sharding.no_collectives` forbids it."""


class KeyReuseError(JAXTypeError):
    """A random key was consumed twice; derive fresh ones with `jaxlite.random.split`."""


class LeakChecked(Exception):
    """Raised with `check_tracer_leaks`: a tracer is still referenced after its trace."""


def _describe(tracer: Any) -> str:
    return tracer.aval.str_short()


def tracer_message(problem: str, tracer: Any, hint: str) -> str:
    """A problem with a traced value, with what is known of the value's origin, and what to do."""
    text = f"{problem}."
    for line in tracer.history():
        text += f"\n{line}"
    if hint:
        text += f"\nTry: {hint}."
    return text
