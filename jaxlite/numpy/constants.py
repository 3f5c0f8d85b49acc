"""Constants, scalar types, functions of dtypes, and functions of NumPy itself: printing, saving, abstract types.

A scalar type such as `jnp.float32` is a class in name only: a call makes an array; elsewhere it means its dtype, and
it equals NumPy's scalar type of the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite.core import array as arrays
from jaxlite.core import dtypes, source
from jaxlite.core.array import Array
from jaxlite.core.tracing import Tracer
from jaxlite.numpy.creation import asarray

pi: float = np.pi
e: float = np.e
euler_gamma: float = np.euler_gamma
inf: float = np.inf
nan: float = np.nan
newaxis: None = None

# --- scalar types --------------------------------------------------------------------------------------


class _ScalarMeta(type):  # libraries know it by this name
    """The class of scalar types: `jnp.int8(3)` is an array of dtype int8, `jnp.int8` itself means the dtype."""

    dtype: np.dtype

    def __call__(cls, x):
        return asarray(x, dtype=cls.dtype)

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __eq__(cls, other: object):
        return cls is other or cls.dtype.type == other

    def __ne__(cls, other: object):
        return not cls == other

    def __instancecheck__(cls, instance):
        return isinstance(instance, cls.dtype.type)


def _scalar_type(dtype: np.dtype):
    doc = f"The dtype {dtype.name}; called with a number, a list or an array, makes an array of it."
    return _ScalarMeta(dtype.name, (), {"__module__": "jaxlite.numpy", "__doc__": doc, "dtype": dtype})


bool_ = _scalar_type(dtypes.bool_)
int1 = _scalar_type(dtypes.int1)
int2 = _scalar_type(dtypes.int2)
int4 = _scalar_type(dtypes.int4)
int8 = _scalar_type(dtypes.int8)
int16 = _scalar_type(dtypes.int16)
int32 = _scalar_type(dtypes.int32)
int64 = _scalar_type(dtypes.int64)
uint1 = _scalar_type(dtypes.uint1)
uint2 = _scalar_type(dtypes.uint2)
uint4 = _scalar_type(dtypes.uint4)
uint8 = _scalar_type(dtypes.uint8)
uint16 = _scalar_type(dtypes.uint16)
uint32 = _scalar_type(dtypes.uint32)
uint64 = _scalar_type(dtypes.uint64)
float4_e2m1fn = _scalar_type(dtypes.float4_e2m1fn)
float6_e2m3fn = _scalar_type(dtypes.float6_e2m3fn)
float6_e3m2fn = _scalar_type(dtypes.float6_e3m2fn)
float8_e3m4 = _scalar_type(dtypes.float8_e3m4)
float8_e4m3 = _scalar_type(dtypes.float8_e4m3)
float8_e4m3b11fnuz = _scalar_type(dtypes.float8_e4m3b11fnuz)
float8_e4m3fn = _scalar_type(dtypes.float8_e4m3fn)
float8_e4m3fnuz = _scalar_type(dtypes.float8_e4m3fnuz)
float8_e5m2 = _scalar_type(dtypes.float8_e5m2)
float8_e5m2fnuz = _scalar_type(dtypes.float8_e5m2fnuz)
float8_e8m0fnu = _scalar_type(dtypes.float8_e8m0fnu)
float16 = _scalar_type(dtypes.float16)
bfloat16 = _scalar_type(dtypes.bfloat16)
float32 = _scalar_type(dtypes.float32)
float64 = _scalar_type(dtypes.float64)
complex64 = _scalar_type(dtypes.complex64)
complex128 = _scalar_type(dtypes.complex128)

# NumPy's other names: the widest type of each kind, which is 32 bits wide unless x64 is on.
bool = bool_
int_ = int64
uint = uint64
float_ = double = float64
complex_ = cdouble = complex128
single = float32
csingle = complex64

generic = np.generic
number = np.number
integer = np.integer
signedinteger = np.signedinteger
unsignedinteger = np.unsignedinteger
inexact = np.inexact
floating = np.floating
complexfloating = np.complexfloating
flexible = np.flexible
character = np.character
object_ = np.object_

# --- questions about dtypes ----------------------------------------------------------------------------

dtype = np.dtype
ndarray = Array
finfo = dtypes.finfo
iinfo = dtypes.iinfo
can_cast: Callable[..., Any] = np.can_cast
promote_types = dtypes.promote_types
isdtype = dtypes.isdtype


_NAMES = (type, np.dtype, str)  # of dtypes


def issubdtype(arg1, arg2):
    """Whether a dtype is, or is below, another dtype or abstract type. bfloat16 is `floating`, int4 `signedinteger`.

    >>> from jaxlite import numpy as jnp
    >>> jnp.issubdtype(jnp.bfloat16, jnp.floating)
    True
    """
    if isinstance(arg1, _NAMES) and isinstance(arg2, _NAMES):  # the usual case, without the slower tests below
        return dtypes.issubdtype(arg1, arg2)
    for arg in (arg1, arg2):
        if isinstance(arg, (arrays.Array, np.ndarray, Tracer)) and isinstance(arg.dtype, dtypes.ExtendedDType):
            raise ValueError("jnp.issubdtype: could not convert an array of keys to a dtype; pass its dtype")
    if isinstance(arg1, (arrays.Array, np.ndarray, Tracer)):
        source.warn("jnp.issubdtype: pass the array's dtype; arrays as the first argument are deprecated.",
                    DeprecationWarning)
        arg1 = arg1.dtype
    return dtypes.issubdtype(arg1, arg2)


def result_type(*args):
    """The dtype in which an operation on these arrays, scalars and dtypes is done.

    >>> from jaxlite import numpy as jnp
    >>> jnp.result_type(jnp.int8, 1.0)
    dtype('float32')
    """
    return dtypes.result_type(*args)


# --- printing and saving: NumPy's own, which take arrays through `__array__` ---------------------------------

ComplexWarning = np.exceptions.ComplexWarning
array_repr: Callable[..., str] = np.array_repr
array_str: Callable[..., str] = np.array_str
get_printoptions: Callable[..., Any] = np.get_printoptions
set_printoptions: Callable[..., None] = np.set_printoptions
printoptions: Callable[..., Any] = np.printoptions
save: Callable[..., None] = np.save
savez: Callable[..., None] = np.savez
