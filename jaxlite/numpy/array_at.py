"""`x.at[index]`: reading with a mode, and updated copies where NumPy assigns in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlite.core.aval import AbstractRef
from jaxlite.core.filtering import boundary
from jaxlite.core.tracing import ref_methods
from jaxlite.devices import placement
from jaxlite.lax.gather_scatter import GatherScatterMode
from jaxlite.numpy.indexing import gather_at, scatter_at

Mode = str | GatherScatterMode | None


class _IndexUpdateHelper:
    """`x.at`: updated copies of an array, and reads with a mode, by `x.at[index].method(...)`.

    ===========================  =======================================
    `x.at[index].set(v)`         the copy that `x[index] = v` would leave
    `x.at[index].add(v)`         `x[index] += v`; likewise `subtract`, `multiply` (`mul`), `divide`, `power`
    `x.at[index].min(v)`         `x[index] = minimum(x[index], v)`; likewise `max`
    `x.at[index].apply(f)`       `f` applied to each selected element
    `x.at[index].get()`          `x[index]`
    ===========================  =======================================

    Unlike in NumPy, positions that occur several times count several times: `x.at[[0, 0]].add(1)` adds 2. Under jit
    the copy costs nothing where x is not used afterwards.
    """

    __slots__ = ("array",)

    def __init__(self, array):
        self.array = array

    def __getitem__(self, index) -> _IndexUpdateRef:
        return _IndexUpdateRef(self.array, index)

    def __repr__(self) -> str:
        return f"_IndexUpdateHelper({self.array!r})"


class _IndexUpdateRef:
    """`x.at[index]`: the methods combine a value with the selected elements and return an updated copy of x.

    Arguments that all methods share:
      indices_are_sorted, unique_indices: promises about the positions that let the compiler do less.
      mode: what to do out of bounds. 'drop' (default for updates) leaves such updates out, 'fill' reads `fill_value`,
        'clip' takes the nearest element, 'promise_in_bounds' (default for `get`) says there are none.
      wrap_negative_indices: whether negative positions count from the end; if not, they are out of bounds.
      out_sharding: how the result is laid out over devices.
    An operation is done in the dtype that the array and the values promote to, and its result converted to the array's.
    Values are broadcast to the shape of `x[index]`.
    """

    __slots__ = ("array", "index")

    def __init__(self, array, index):
        self.array, self.index = array, index

    def __repr__(self) -> str:
        return f"_IndexUpdateRef({self.array!r}, {self.index!r})"

    @boundary
    def get(self, *, indices_are_sorted: bool = False, unique_indices: bool = False, mode: Mode = None, fill_value=None,
            out_sharding=None, wrap_negative_indices: bool = True):
        """The selected elements, as `x[index]` gives them, with a choice of what is read out of bounds.

        Args:
          fill_value: scalar read out of bounds in mode 'fill'; by default NaN, the least signed integer, the greatest
            unsigned integer, True.

        >>> import jaxlite.numpy as jnp
        >>> jnp.arange(3.0).at[jnp.array([1, 7])].get(mode="fill", fill_value=-1)
        Array([ 1., -1.], dtype=float32)
        """
        return placement.laid_out_by(
            out_sharding, gather_at, self.array, self.index, indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices, mode=mode, fill_value=fill_value, wrap_negative_indices=wrap_negative_indices)

    @boundary
    def apply(self, func: Callable[[Any], Any], *, indices_are_sorted: bool = False, unique_indices: bool = False,
              mode: Mode = None, wrap_negative_indices: bool = True):
        """A copy with a function of one scalar applied to each selected element, once for each time it is selected.

        >>> import jaxlite.numpy as jnp
        >>> jnp.array([1.0, 4.0, 9.0]).at[1:].apply(jnp.sqrt)
        Array([1., 2., 3.], dtype=float32)
        """
        if not callable(func):
            raise TypeError(f"apply takes a function of one element, got {func!r}")
        return scatter_at(self.array, self.index, None, func, indices_are_sorted=indices_are_sorted,
                          unique_indices=unique_indices, mode=mode, wrap_negative_indices=wrap_negative_indices)


def _updating(name: str, op: str, doc: str) -> Callable[..., Any]:
    @boundary
    def method(self: _IndexUpdateRef, values, *, indices_are_sorted: bool = False, unique_indices: bool = False,
               mode: Mode = None, out_sharding=None, wrap_negative_indices: bool = True):
        return placement.laid_out_by(
            out_sharding, scatter_at, self.array, self.index, values, op, indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices, mode=mode, wrap_negative_indices=wrap_negative_indices)

    method.__name__, method.__qualname__ = name, f"_IndexUpdateRef.{name}"
    method.__doc__ = doc
    return method


_EXAMPLE = """

        >>> import jaxlite.numpy as jnp
        >>> jnp.zeros(4).at[1:3].set(jnp.array([5.0, 7.0]))
        Array([0., 5., 7., 0.], dtype=float32)
        """
for _name, _op, _what in (
        ("set", "set", "A copy with the selected elements replaced by `values`." + _EXAMPLE),
        ("add", "add", "A copy with `values` added to the selected elements."),
        ("subtract", "subtract", "A copy with `values` subtracted from the selected elements."),
        ("multiply", "multiply", "A copy with the selected elements multiplied by `values`."),
        ("mul", "multiply", "A copy with the selected elements multiplied by `values`."),
        ("divide", "divide", "A copy with the selected elements divided by `values`; floating for integers."),
        ("power", "power", "A copy with the selected elements raised to the power `values`."),
        ("min", "min", "A copy with the selected elements replaced by their minimum with `values`."),
        ("max", "max", "A copy with the selected elements replaced by their maximum with `values`.")):
    setattr(_IndexUpdateRef, _name, _updating(_name, _op, _what))


def at_property(self) -> _IndexUpdateHelper:
    """Updated copies of the array, and reads with a mode: `x.at[index].set(value)`, `.add(value)`, `.get(...)`."""
    if type(self.aval) is AbstractRef:
        return ref_methods.at(self)
    return _IndexUpdateHelper(self)
