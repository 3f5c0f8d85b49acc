"""Arrays of extended dtypes: of keys, and of the dtypes that libraries define."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlite.core import array as arrays
from jaxlite.core.aval import layouts, shaped_array, without_axis
from jaxlite.core.values import AVAL_OF
from jaxlite.devices import placement


class EArray(arrays.Array):
    """A concrete array of an extended dtype: it holds the array of what is behind its elements.

    Indexing, reshaping, joining and selecting work as for any array, arithmetic does not.
    """

    __slots__ = ("_base_array", "aval")
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 100
    weak_type = False

    def __init__(self, aval: Any, data: Any):
        self.aval, self._base_array = aval, data

    dtype = property(lambda self: self.aval.dtype, doc="The extended dtype.")
    shape = property(lambda self: self.aval.shape, doc="The sizes of its axes.")
    ndim = property(lambda self: len(self.aval.shape), doc="The number of its axes.")
    size = property(lambda self: self.aval.size, doc="The number of its elements.")
    itemsize = property(lambda self: self.dtype.itemsize, doc="The bytes of one element.")
    nbytes = property(lambda self: self.size * self.dtype.itemsize, doc="The bytes of all elements.")
    sharding = property(lambda self: placement.without_axes(self._base_array.sharding, self.ndim), doc="Where the data lives.")
    device = property(lambda self: self._base_array.device, doc="The device that holds the array.")
    committed = _committed = property(lambda self: self._base_array.committed, doc="Whether it is bound to its device.")
    is_fully_addressable = property(lambda self: self._base_array.is_fully_addressable,
                                    doc="Whether this process holds all of the data.")
    is_fully_replicated = property(lambda self: self._base_array.is_fully_replicated,
                                   doc="Whether each device holds all of the data.")

    def devices(self) -> set[Any]:
        return self._base_array.devices()

    def block_until_ready(self) -> EArray:
        self._base_array.block_until_ready()
        return self

    def copy_to_host_async(self) -> None:
        self._base_array.copy_to_host_async()

    def delete(self) -> None:
        self._base_array.delete()

    def is_deleted(self) -> bool:
        return self._base_array.is_deleted()

    def is_ready(self) -> bool:
        return self._base_array.is_ready()

    def platform(self) -> str:
        return self._base_array.platform()

    def unsafe_buffer_pointer(self) -> int:
        return self._base_array.unsafe_buffer_pointer()

    def copy(self) -> Any:
        return self.dtype.wrap(self._base_array.copy())

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __reduce__(self) -> Any:
        return _rebuild, (self.dtype, np.asarray(self._base_array))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __bool__(self) -> bool:
        raise TypeError(f"An array of dtype {self.dtype} cannot be converted to boolean.")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"An array of dtype {self.dtype} cannot be converted to a NumPy array.")

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError("JAX arrays are immutable and do not support in-place item assignment. Instead of "
                        "x[idx] = y, use x = x.at[idx].set(y).")

    def __repr__(self) -> str:
        return f"E{self._base_array!r}"


AVAL_OF[EArray] = lambda array: array.aval


def _rebuild(dtype: Any, words: np.ndarray) -> Any:
    return dtype.wrap(arrays.make_array(words))


def outer_aval(dtype: Any, words: Any, axes: int) -> Any:
    """The type of an array of an extended dtype, from the array behind it, of which each element has some axes."""
    if not layouts.exist or words.aval.layout is None:
        return shaped_array(words.shape[:words.ndim - axes], dtype, False)
    aval = words.aval
    for _ in range(axes):
        aval = without_axis(aval, aval.ndim - 1)
    return aval.update(dtype=dtype)


def wrap(dtype: Any, words: Any) -> Any:
    """An array of a library's dtype from the array behind it: what its rules make of that, or an `EArray`."""
    aval = outer_aval(dtype, words, len(dtype.physical_element().shape))
    maker = getattr(dtype._rules, "global_sharded_result_handler", None)
    if maker is None:
        return EArray(aval, words)
    return maker(aval, placement.without_axes(words.sharding, aval.ndim), words.committed)(
        [shard.data for shard in words.addressable_shards])
