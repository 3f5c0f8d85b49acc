"""Classes of JAX for numbers that carry a dtype inside programs. Libraries ask whether a value is one; here none is."""

import numpy as np


class TypedInt(int):
    """An int of a dtype."""


class TypedFloat(float):
    """A float of a dtype."""


class TypedComplex(complex):
    """A complex number of a dtype."""


class TypedNdArray(np.ndarray):
    """An array that may be weakly typed."""
