"""`Ref`: a mutable array, a cell that holds the current value. What reads and writes it is in `jaxlite.state`.

The value is an ordinary array. A write runs a compiled program that is given the array's memory (it is donated) and puts the
result into the cell; a value that was handed out as it is (`ref[...]`) is copied before the next write.
"""

from __future__ import annotations

from typing import Any

from jaxlite.core.aval import AbstractRef
from jaxlite.core.tracing import Tracer, ref_methods
from jaxlite.core.values import AVAL_OF


class _RefType(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return type.__instancecheck__(cls, value) or isinstance(value, Tracer) and type(value.aval) is AbstractRef


class Ref(metaclass=_RefType):
    """A mutable array: `ref[index]` reads, `ref[index] = value` writes. `jaxlite.new_ref` makes one.

    In a traced function it is a tracer, for which `isinstance(x, Ref)` holds too.
    """

    __slots__ = ("aval", "_array", "_handed_out", "__weakref__")

    def __init__(self, aval: AbstractRef, array: Any):
        self.aval, self._array, self._handed_out = aval, array, False

    # --- for what runs programs

    def share(self) -> Any:
        """The value as an array that later writes leave alone."""
        self._handed_out = True
        return self._array

    def peek(self) -> Any:
        """The value, to be read at once."""
        return self._array

    def give(self) -> Any:
        """The value, to be donated; `put` has to follow."""
        if self._handed_out:
            self._array, self._handed_out = self._array.copy(), False
        return self._array

    def put(self, array: Any) -> None:
        self._array, self._handed_out = array, False

    _base_array = property(lambda self: self._array, doc="The array that holds its value, for look-ups of its placement.")

    # --- for users

    shape = property(lambda self: self.aval.shape, doc="The shape of the value.")
    dtype = property(lambda self: self.aval.dtype, doc="The dtype of the value.")
    ndim = property(lambda self: self.aval.ndim, doc="The number of axes.")
    size = property(lambda self: self.aval.size, doc="The number of elements.")
    sharding = property(lambda self: self._array.sharding, doc="Where the value lives.")
    committed = property(lambda self: self._array.committed, doc="Whether the value is bound to its device.")
    at = property(lambda self: ref_methods.at(self), doc="Parts of the array that can be read and written in turn.")

    def unsafe_buffer_pointer(self) -> int:
        """The address of the value; it stays the same while writes happen in place."""
        return self._array.unsafe_buffer_pointer()

    def __getitem__(self, index: Any) -> Any:
        return ref_methods.get(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        ref_methods.set(self, index, value)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(f"a Ref of type {self.aval!r} can't be passed where an array is expected. Did you forget to read its "
                        "value with `ref[...]`?")

    def __len__(self) -> int:
        if not self.aval.shape:
            raise TypeError("len() of unsized object")
        return self.aval.shape[0]

    def __repr__(self) -> str:
        return "Ref" + repr(self._array).removeprefix("Array")


AVAL_OF[Ref] = lambda ref: ref.aval
