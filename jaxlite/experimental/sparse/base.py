"""What all sparse formats share: their base class, warnings, and operators written on a few methods of each."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from jaxlite.core.array import Array
from jaxlite.lax.shaping import canonical_shape

Shape = tuple[int, ...]


class SparseInfo(NamedTuple):
    """What is known of a sparse array beside its elements and places."""

    shape: Shape
    indices_sorted: bool = False
    unique_indices: bool = False


class SparseEfficiencyError(ValueError):
    """An operation whose result would be as large as a dense array."""


class SparseEfficiencyWarning(UserWarning):
    """An operation that does more work than its dense counterpart."""


class CuSparseEfficiencyWarning(SparseEfficiencyWarning):
    """An operation that cuSPARSE cannot do in this form."""


class JAXSparse:
    """Base of the sparse formats. A format holds arrays of its elements and of their places, and the shape of the whole.

    Attributes: `shape`, `dtype`, `ndim`, `size` as of a dense array, `nse` the number of elements that are specified.
    """

    shape: tuple[int, ...]
    data: Any
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 2000  # above arrays, so that x @ sparse comes here

    def __init__(self, args: tuple[Any, ...], *, shape):
        self.shape = canonical_shape(shape)

    size = property(lambda self: math.prod(self.shape))
    ndim = property(lambda self: len(self.shape))
    dtype = property(lambda self: self.data.dtype)
    nse: Any = property(lambda self: self.data.shape[-1])
    T = property(lambda self: self.transpose())

    def __repr__(self) -> str:
        try:
            axes = "".join(f", {name}={count}" for name in ("n_batch", "n_dense") if (count := getattr(self, name, 0)))
            return f"{type(self).__name__}({self.dtype.name}[{', '.join(map(str, self.shape))}], nse={self.nse}{axes})"
        except Exception:  # its leaves are not arrays
            return f"{type(self).__name__}(<invalid>)"

    def __len__(self) -> int:
        return self.shape[0]

    def todense(self):
        """The array with zeros where nothing is specified."""
        raise TypeError(f"{type(self).__name__} has no todense")

    def transpose(self, axes=None):
        """The array with its axes in another order."""
        raise NotImplementedError(f"{type(self).__name__}.transpose")

    def sum(self, *args, **kwargs):
        """The sum over some axes."""
        raise NotImplementedError(f"{type(self).__name__}.sum")

    def __getitem__(self, index):
        raise NotImplementedError(f"{type(self).__name__}.__getitem__")

    def __add__(self, other):
        raise NotImplementedError(f"addition of {type(self).__name__} and {type(other).__name__}")

    __radd__ = __add__

    def __sub__(self, other):
        raise NotImplementedError(f"subtraction of {type(self).__name__} and {type(other).__name__}")

    __rsub__ = __sub__

    def block_until_ready(self):
        """Wait until the elements are computed."""
        for leaf in self.tree_flatten()[0]:  # type: ignore[attr-defined]
            leaf.block_until_ready()
        return self

    def _refuse(self, name: str):
        raise NotImplementedError(f"{name} of {type(self).__name__} with a dense array gives a dense array: use todense()")

    def _compare(self, other):
        raise NotImplementedError("a comparison of sparse arrays has as many elements as a dense array: use todense()")

    def __array__(self, *args, **kwargs) -> np.ndarray:
        raise TypeError(f"a {type(self).__name__} is not converted to a NumPy array implicitly: use todense()")

    def __neg__(self):
        return self._with_data(-self.data)

    def __pos__(self):
        return self

    def __abs__(self):
        distinct = self.distinct()
        return distinct._with_data(abs(distinct.data))

    def astype(self, dtype):
        """The array with elements of another dtype."""
        return self._with_data(self.data.astype(dtype))

    def _with_data(self, data):
        raise TypeError(f"{type(self).__name__} is read only")

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True):
        """Each place once."""
        return self

    def distinct(self):
        """Each place once, with as much room as before: the array itself where that is known of it."""
        return self if getattr(self, "unique_indices", False) else self.sum_duplicates(nse=self.nse, remove_zeros=False)

    def __truediv__(self, other):
        return self * (1 / other)

    def __rtruediv__(self, other):
        raise NotImplementedError(f"division by {type(self).__name__} gives a dense array: use todense()")


def is_dense(value) -> bool:
    """Whether a value is an array or a scalar, and no sparse array."""
    return isinstance(value, (Array, np.ndarray, np.generic, bool, int, float, complex))


def is_sparse(x) -> bool:
    """Whether a value is a sparse array."""
    return isinstance(x, JAXSparse)
