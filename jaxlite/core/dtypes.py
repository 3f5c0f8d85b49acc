"""Dtypes: their names, 32-bit forms, order, and promotion.

Promotion is a small lattice: an edge leads from a type to the types that it widens to, and two types promote to their least
upper bound. Python scalars, and values made from them ("weak" types), have nodes of their own below the strong types of
their kind, so `x + 1.0` keeps the dtype of `x`. All functions are memoized: on a hot path they cost one dictionary lookup.
"""

from __future__ import annotations

from functools import cache, cached_property, lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from jaxlite.core import config, source
from jaxlite.core.lazy import loader

_x64 = config.enable_x64.state
_explicit_x64 = config.explicit_x64_dtypes.state
_promotion = config.numpy_dtype_promotion.state
_arrays = loader("jaxlite.devices.extended")  # arrays of the dtypes of libraries


class TypePromotionError(ValueError):
    """Dtypes between which there is no implicit promotion were mixed."""


class extended(np.generic):
    """Abstract scalar type above all extended dtypes, for `issubdtype`."""


class prng_key(extended):
    """Abstract scalar type above the dtypes of typed PRNG keys, for `issubdtype`."""


class ExtendedDType:
    """Base of the dtypes that NumPy does not know.

    An instance has a `name` (as jaxprs print it), an `itemsize` in bytes and a `type`, a scalar type below
    `extended`. It is hashable and compares by meaning. Dtypes that a library defines have `_rules`, by JAX's protocol:

    - `physical_element_aval(dtype)` the type of what is behind one element;
    - `convert_to(other, dtype)`, `convert_from(dtype, other)`, or `allow_conversion`: whether elements can be made of what is
      behind them, and the other way round;
    - `tangent_dtype(dtype)`, `zero(dtype)`, `add(dtype, x, y)`: of derivatives; `full(shape, value, dtype)`;
    - `global_sharded_result_handler(aval, sharding, committed)`, which may be absent, gives a function that makes an array of
      the buffers of its parts.
    """

    name: str
    type: type
    _rules: Any = None

    @cached_property
    def itemsize(self) -> int:
        """The bytes of one element."""
        element = self.physical_element()
        return int(np.prod(element.shape, dtype=int)) * element.dtype.itemsize

    def wrap(self, words: Any) -> Any:
        """An array of this dtype from the array that holds its words."""
        return _arrays().wrap(self, words)

    def physical_element(self) -> Any:
        """The type of the words behind one element."""
        return self._rules.physical_element_aval(self)

    def __repr__(self) -> str:
        return self.name


# --- Names -----------------------------------------------------------------------------------------------------

bool_ = np.dtype(np.bool_)
int1, int2, int4 = np.dtype(ml_dtypes.int1), np.dtype(ml_dtypes.int2), np.dtype(ml_dtypes.int4)
uint1, uint2, uint4 = np.dtype(ml_dtypes.uint1), np.dtype(ml_dtypes.uint2), np.dtype(ml_dtypes.uint4)
int8, int16, int32, int64 = np.dtype(np.int8), np.dtype(np.int16), np.dtype(np.int32), np.dtype(np.int64)
uint8, uint16, uint32, uint64 = np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.uint32), np.dtype(np.uint64)
float16, float32, float64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
bfloat16 = np.dtype(ml_dtypes.bfloat16)
complex64, complex128 = np.dtype(np.complex64), np.dtype(np.complex128)
float4_e2m1fn = np.dtype(ml_dtypes.float4_e2m1fn)
float6_e2m3fn, float6_e3m2fn = np.dtype(ml_dtypes.float6_e2m3fn), np.dtype(ml_dtypes.float6_e3m2fn)
float8_e3m4, float8_e4m3 = np.dtype(ml_dtypes.float8_e3m4), np.dtype(ml_dtypes.float8_e4m3)
float8_e4m3b11fnuz, float8_e4m3fn = np.dtype(ml_dtypes.float8_e4m3b11fnuz), np.dtype(ml_dtypes.float8_e4m3fn)
float8_e4m3fnuz, float8_e5m2 = np.dtype(ml_dtypes.float8_e4m3fnuz), np.dtype(ml_dtypes.float8_e5m2)
float8_e5m2fnuz, float8_e8m0fnu = np.dtype(ml_dtypes.float8_e5m2fnuz), np.dtype(ml_dtypes.float8_e8m0fnu)

# The tangent type of integers and booleans: it has no values.
float0 = np.dtype([("float0", np.void, 0)])

# By kind, narrowest first: "i" signed, "u" unsigned, "f" floating, "c" complex, "b" boolean.
_BY_KIND: dict[str, tuple[np.dtype, ...]] = {
    "b": (bool_,),
    "i": (int1, int2, int4, int8, int16, int32, int64),
    "u": (uint1, uint2, uint4, uint8, uint16, uint32, uint64),
    "f": (float4_e2m1fn, float6_e2m3fn, float6_e3m2fn, float8_e3m4, float8_e4m3, float8_e4m3b11fnuz, float8_e4m3fn,
          float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu, float16, bfloat16, float32, float64),
    "c": (complex64, complex128),
}
_KIND: dict[Any, str] = {dtype: kind for kind, dtypes in _BY_KIND.items() for dtype in dtypes}
_SHORT: dict[Any, str] = {float0: "float0", bool_: "bool"}
for _dtype in _KIND:
    _SHORT.setdefault(_dtype, _dtype.name.replace("bfloat", "bf").replace("float", "f").replace("uint", "u")
                      .replace("int", "i").replace("complex", "c"))
_FROM_SHORT = {short: dtype for dtype, short in _SHORT.items()}

# For those who read jaxprs: dtypes by name, long and short; and extended dtypes, which have one name, as they are made.
NAMES = {"float0": float0} | {dtype.name: dtype for dtype in _KIND}, _FROM_SHORT
EXTENDED_DTYPES: dict[str, ExtendedDType] = {}

python_scalar_dtypes: dict[type, np.dtype] = {bool: bool_, int: int64, float: float64, complex: complex128}
_WEAK_TYPES = frozenset((int, float, complex))
_SCALAR_TYPE = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
_NARROW = {int64: int32, uint64: uint32, float64: float32, complex128: complex64}


def short_name(dtype: Any) -> str:
    """The name of a dtype in jaxprs: `f32`, `bf16`, `i4`, `bool`, `f8_e4m3fn`; an extended dtype's own name."""
    return _SHORT.get(dtype) or dtype.name


def from_short_name(name: str) -> np.dtype:
    """The dtype with this name in jaxprs; `ValueError` if there is none."""
    try:
        return _FROM_SHORT[name]
    except KeyError:
        raise ValueError(f"no dtype prints as {name!r}; known are {', '.join(_FROM_SHORT)}") from None


def kind(dtype: Any) -> str:
    """One letter: b, i, u, f or c, for all dtypes of numbers, NumPy's and ml_dtypes' alike; x for any other."""
    return _KIND.get(dtype, "x")


# --- From what users write to a dtype ----------------------------------------------------------------------------

_ABSTRACT = (np.generic, np.number, np.integer, np.signedinteger, np.unsignedinteger, np.inexact, np.floating,
             np.complexfloating, np.flexible, np.character)


def _as_dtype(spec: Any) -> Any:
    """The NumPy or extended dtype that `spec` names, supported in arrays or not, 64-bit types kept."""
    if isinstance(spec, (np.dtype, ExtendedDType)):
        return spec
    if isinstance(spec, type) and (spec in _ABSTRACT or issubclass(spec, extended)):
        raise TypeError(f"{spec.__name__} is an abstract type, not a dtype; give a concrete one such as float32")
    inner = getattr(spec, "dtype", None)
    if isinstance(inner, (np.dtype, ExtendedDType)):
        if isinstance(spec, np.ndarray):
            raise TypeError("an array was given as a dtype; give its .dtype instead")
        if hasattr(spec, "__array__") and not isinstance(spec, (type, np.generic)):
            raise ValueError("an array was given as a dtype; give its .dtype instead")
        return inner
    return np.dtype(spec)


def _dtype_of(spec: Any) -> Any:
    """The same of a dtype or of an array, for questions about dtypes that JAX answers for both."""
    is_array = hasattr(spec, "__array__") and not isinstance(spec, (type, np.generic, np.ndarray))
    return _as_dtype(spec.dtype if is_array else spec)


def _unsupported(dtype: Any, where: str = "") -> TypeError:
    reason = "only booleans, integers, floating-point and complex numbers go into arrays"
    if isinstance(dtype, np.dtype) and not dtype.isnative and dtype.newbyteorder("=") in _KIND:
        reason = f"its byte order is not this machine's; convert to {dtype.name} with astype first"
    return TypeError(f"dtype {dtype} is not supported{where}: {reason}")


def _canonical(spec: Any, x64: bool) -> Any:
    dtype = _as_dtype(spec)
    if dtype not in _SHORT and not isinstance(dtype, ExtendedDType):
        raise _unsupported(dtype)
    if dtype in _SHORT:
        dtype = _FROM_SHORT[_SHORT[dtype]]  # one object for equal dtypes (int64 and longlong)
    return dtype if x64 else _NARROW.get(dtype, dtype)


_canonical_memo: tuple[dict[Any, Any], dict[Any, Any]] = ({}, {})  # [x64][dtype, scalar type or name]


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> Any:
    """The dtype that arrays get for `dtype`: 64-bit types become 32-bit ones unless x64 is enabled.

    Args:
      dtype: a NumPy dtype, a scalar type (Python's, NumPy's or jaxlite's), or a name; None is the default float.
      allow_extended_dtype: let extended dtypes (PRNG keys) through; otherwise they are a ValueError.
    Raises: TypeError for dtypes that arrays cannot have: objects, text, dates, records, foreign byte order.

    >>> canonicalize_dtype(float)
    dtype('float32')
    """
    x64 = _x64.value
    try:
        found = _canonical_memo[x64].get(dtype)
    except TypeError:  # unhashable, so no dtype; _as_dtype knows what to say
        found = None
    if found is None:
        found = _canonical(dtype, x64)
        # Scalars such as np.float32(1) name a dtype, but equal the number 1 as a key.
        if isinstance(dtype, (np.dtype, type, str, ExtendedDType)):
            _canonical_memo[x64][dtype] = found
    if not allow_extended_dtype and isinstance(found, ExtendedDType):
        raise ValueError(f"extended dtype {found} where a dtype of plain numbers is needed")
    return found


def check_user_dtype_supported(dtype: Any, fun_name: str | None = None) -> Any:
    """`canonicalize_dtype` for a dtype that a user gave to the function `fun_name`; extended dtypes pass.

    Where a 64-bit type is asked for by name while x64 is off, the option `explicit_x64_dtypes` decides: a UserWarning at
    the user's line and 32 bits, or an error. Python's own `int`, `float` and `complex` mean the default width, and never warn.
    """
    try:
        canonical = canonicalize_dtype(dtype, allow_extended_dtype=True)
    except TypeError as error:
        if fun_name and "not supported:" in str(error):
            raise _unsupported(_as_dtype(dtype), f" in {fun_name}") from None
        raise
    if canonical is not dtype and dtype is not None and not _x64.value and dtype not in python_scalar_dtypes:
        asked = _as_dtype(dtype)
        if asked in _NARROW:
            where = f" requested in {fun_name}" if fun_name else ""
            if _explicit_x64.value == "error":
                raise ValueError(f"Explicitly requested dtype {asked}{where} is not available. To enable more dtypes, set the "
                                 "option jax_enable_x64")
            source.warn(
                f"Explicitly requested dtype {asked}{where} is not available, and will be truncated to dtype "
                f"{canonical}. 64-bit types are off by default: turn them on with "
                f"jaxlite.config.update('jax_enable_x64', True) or the environment variable JAXLITE_ENABLE_X64=1.")
    return canonical


def requested_dtype(dtype: Any, fun_name: str, default: Any = None) -> Any:
    """`check_user_dtype_supported` for an argument that may be None, which means the default dtype (None: no dtype)."""
    return None if dtype is default is None else check_user_dtype_supported(default if dtype is None else dtype, fun_name)


# --- Dtypes of values --------------------------------------------------------------------------------------------


def _python_scalar_type(x: Any) -> type | None:
    """bool, int, float or complex for a Python number (subclasses too), None for anything else."""
    if type(x) in python_scalar_dtypes:
        return type(x)
    if isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic):
        return next(base for base in (bool, int, float, complex) if isinstance(x, base))
    return None


def dtype(x: Any, *, canonicalize: bool = False) -> Any:
    """The dtype of a value, or of a type or name that means one.

    Arrays, tracers and avals by their `.dtype`; Python numbers by their kind (64-bit unless `canonicalize`).
    Raises: TypeError if `x` has no dtype, or one that arrays cannot have; ValueError for None.
    """
    scalar_type = _python_scalar_type(x)
    if scalar_type is not None:
        found: Any = python_scalar_dtypes[scalar_type]
    elif x is None:
        raise ValueError("None has no dtype")
    elif isinstance(x, (type, str, np.dtype, ExtendedDType)):
        found = _as_dtype(x)
    else:
        found = getattr(x, "dtype", None)
        if not isinstance(found, (np.dtype, ExtendedDType)):
            raise TypeError(f"cannot determine the dtype of {x!r} of type {type(x).__name__}")
    if found not in _SHORT and not isinstance(found, ExtendedDType):
        raise _unsupported(found)
    return canonicalize_dtype(found, allow_extended_dtype=True) if canonicalize else found


def is_weakly_typed(x: Any) -> bool:
    """Whether a value yields to other operands in promotion: Python's int, float and complex (the types too),
    and arrays made of nothing else."""
    if type(x) in _WEAK_TYPES:
        return True
    if isinstance(x, type):
        return x in _WEAK_TYPES
    weak = getattr(x, "weak_type", None)
    return _python_scalar_type(x) in _WEAK_TYPES if weak is None else weak


def scalar_type_of(x: Any) -> type:
    """The Python type of a value's elements: bool, int, float or complex."""
    found = dtype(x)
    if found not in _KIND:
        raise TypeError(f"no Python scalar type corresponds to dtype {found}")
    return _SCALAR_TYPE[_KIND[found]]


# --- Order among dtypes ------------------------------------------------------------------------------------------

# ml_dtypes' scalar types derive from np.generic alone; this says where they belong.
_ABSTRACT_OF_KIND = {"i": np.signedinteger, "u": np.unsignedinteger, "f": np.floating}


def _scalar_class(spec: Any) -> Any:
    """The scalar type of a dtype or an abstract type in `issubdtype`; an extended dtype as it is."""
    if isinstance(spec, type) and (spec in _ABSTRACT or issubclass(spec, extended)):
        return spec
    found = _as_dtype(spec)
    return found if isinstance(found, ExtendedDType) else found.type


@cache
def _issubclass(a: Any, b: Any) -> bool:
    a, b = _scalar_class(a), _scalar_class(b)
    if a == b or isinstance(b, ExtendedDType):
        return a == b
    if isinstance(a, ExtendedDType):
        a = a.type
    elif a.__module__ == "ml_dtypes":
        a = _ABSTRACT_OF_KIND.get(_KIND.get(np.dtype(a), ""), a)
    return issubclass(a, b)


def rules_of(dtype: Any) -> Any:
    """The rules of a dtype that a library defines (see `ExtendedDType`); None for others."""
    return getattr(dtype, "_rules", None)


def supports_inf(dtype: Any) -> bool:
    """Whether a dtype has an infinity."""
    return kind(np.dtype(dtype)) in "fc" and bool(np.isinf(np.array(np.inf).astype(dtype)))


def issubdtype(a: Any, b: Any) -> bool:
    """Whether dtype `a` is `b` or is below it, as `numpy.issubdtype`.

    bfloat16 and the float8, float6 and float4 types are `np.floating`, int4 and its like `np.signedinteger`;
    `extended` and `prng_key` are above the extended dtypes.

    >>> issubdtype('bfloat16', np.floating)
    True
    """
    try:
        return _issubclass(a, b)
    except TypeError:  # an array cannot be hashed
        if not hasattr(a, "__array__") or isinstance(a, type):
            raise
        return _issubclass(_dtype_of(a), b)


_KINDS_BY_NAME = {
    "bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
    "complex floating": "c", "numeric": "iufc",
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind, as the array API has it.

    Args:
      kind: 'bool', 'signed integer', 'unsigned integer', 'integral', 'real floating', 'complex floating',
        'numeric', a dtype, or a tuple of these.
    Raises: ValueError for any other name.
    """
    found = _dtype_of(dtype)
    for one in kind if isinstance(kind, tuple) else (kind,):
        if isinstance(one, str) and one in _KINDS_BY_NAME:
            if _KIND.get(found, "-") in _KINDS_BY_NAME[one]:
                return True
            continue
        try:
            if found == _as_dtype(one):
                return True
        except TypeError:
            if not isinstance(one, str):
                raise TypeError(f"Expected kind to be a dtype, string, or tuple; got kind={one!r}") from None
            raise ValueError(f"Unrecognized kind={one!r} expected one of {list(_KINDS_BY_NAME)}, or a dtype") from None
    return False


# --- Promotion ---------------------------------------------------------------------------------------------------

# Nodes are short names, and i* (with u*, the weak unsigned integers), f* and c* for weak types. Each line is a
# chain of edges.
_SMALL_INTS = "i1 i2 i4 u1 u2 u4"
_SMALL_FLOATS = " ".join(_SHORT[_dtype] for _dtype in _BY_KIND["f"] if _dtype.itemsize == 1)
_STANDARD_EDGES = (
    "bool i* u8 u16 u32 u64 f* f16 f32 f64 c128",
    "u* i* i8 i16 i32 i64 f* bf16 f32 c64 c128",
    "u8 i16", "u16 i32", "u32 i64", "f* c* c64",
    *(f"i* {name}" for name in _SMALL_INTS.split()),
    *(f"f* {name}" for name in _SMALL_FLOATS.split()),
)
# In strict mode only weak types give way, and only to types of their kind or a higher one.
_STRICT_EDGES = (
    "u* i* f* c*",
    *(f"{kind}* {_SHORT[_dtype]}" for kinds, kind in (("iu", "i"), ("f", "f"), ("c", "c"))
      for _kind in kinds for _dtype in _BY_KIND[_kind]),
)


@cache
def _upper_sets(mode: str) -> dict[str, frozenset[str]]:
    """For each node the nodes that it widens into, itself included."""
    edges: dict[str, set[str]] = {short: set() for short in _SHORT.values() if short != "float0"}
    for chain in _STRICT_EDGES if mode == "strict" else _STANDARD_EDGES:
        nodes = chain.split()
        for low, high in zip(nodes, nodes[1:], strict=False):
            edges.setdefault(low, set()).add(high)
    sets: dict[str, frozenset[str]] = {}

    def visit(node: str) -> frozenset[str]:
        if node not in sets:
            sets[node] = frozenset([node]).union(*(visit(high) for high in edges.get(node, ())))
        return sets[node]

    for node in edges:
        visit(node)
    return sets


_DEFAULT_OF_WEAK = {"i*": int64, "u*": uint64, "f*": float64, "c*": complex128}
_WEAK_NAMES = {"i*": "weak int", "u*": "weak unsigned int", "f*": "weak float", "c*": "weak complex"}


@cache
def _join(nodes: frozenset[str], mode: str) -> str:
    """The least upper bound of some nodes."""
    upper = _upper_sets(mode)
    common = frozenset.intersection(*(upper[node] for node in nodes))
    for node in common:
        if upper[node] == common:
            return node
    names = tuple(_WEAK_NAMES.get(node) or _FROM_SHORT[node].name for node in sorted(nodes, reverse=True))
    message = f"Input dtypes {names} have no available implicit dtype promotion path"
    if mode == "strict":
        raise TypePromotionError(f"{message} when jax_numpy_dtype_promotion=strict. Try explicitly casting inputs to the "
                                 "desired output type, with astype, or set jax_numpy_dtype_promotion=standard.")
    small = next((node for node in sorted(nodes) if node in _SMALL_FLOATS.split()), None)
    what, wide = ("Floats of 8 bits and less", "float32") if small else ("Integers of less than 8 bits", "int32")
    raise TypePromotionError(f"{message}. {what} are never promoted to or from another type without being asked; "
                             f"convert explicitly, for instance with x.astype('{wide}').")


def float0_message(name: str) -> str:
    """The message of the error for an operation on an array of float0."""
    return (f"Called {name} with a float0 array. float0s do not support any operations by design because they are not "
            "compatible with non-trivial vector spaces. No implicit dtype conversion is done. You can use "
            "np.zeros_like(arr, dtype=float) to cast a float0 array to a regular zeros array.\n"
            "If you didn't expect to get a float0 you might have accidentally taken a gradient with respect to an integer "
            "argument.")


def _node(dtype: Any, weak: bool) -> str:
    """The node of a dtype. Booleans are never weak."""
    kind = _KIND.get(dtype)
    if kind is None:
        raise ValueError(f"dtype={dtype!r} is not a valid dtype for JAX type promotion.")
    return _SHORT[dtype] if not weak or kind == "b" else "i*" if kind == "u" else kind + "*"


def _node_result(node: str, x64: bool) -> tuple[np.dtype, bool]:
    weak = node in _DEFAULT_OF_WEAK
    dtype = _DEFAULT_OF_WEAK[node] if weak else _FROM_SHORT[node]
    return (dtype if x64 else _NARROW.get(dtype, dtype)), weak


@cache
def _join_operands(operands: tuple[tuple[Any, bool], ...], mode: str, x64: bool) -> tuple[Any, bool]:
    canonical = [(dtype if x64 else _NARROW.get(dtype, dtype), weak) for dtype, weak in operands]
    first = canonical[0][0]
    all_weak = all(weak for _, weak in canonical) and first != bool_
    if all(dtype == first for dtype, _ in canonical) and not (all_weak and mode == "strict"):
        return first, all_weak
    if all_weak and mode == "standard":  # weak operands keep the width that they happen to have
        nodes = frozenset(_node(dtype, False) for dtype, _ in canonical)
        return _node_result(_join(nodes, mode), x64)[0], True
    return _node_result(_join(frozenset(_node(*operand) for operand in canonical), mode), x64)


_pair_memo: dict[Any, tuple[Any, bool]] = {}


def lattice_result(dtype_a: Any, weak_a: bool, dtype_b: Any, weak_b: bool) -> tuple[Any, bool]:
    """The dtype and weak type in which an operation of two values is done.

    Raises: TypePromotionError if the two have no common type.
    """
    key = (dtype_a, weak_a, dtype_b, weak_b, _promotion.value, _x64.value)
    found = _pair_memo.get(key)
    if found is None:
        found = _pair_memo[key] = lattice_join(((dtype_a, weak_a), (dtype_b, weak_b)))
    return found


def lattice_join(operands: tuple[tuple[Any, bool], ...], mode: str | None = None) -> tuple[Any, bool]:
    """`lattice_result` for any number of (dtype, weak_type) pairs; `mode` in place of the option numpy_dtype_promotion."""
    return _join_operands(operands, _promotion.value if mode is None else mode, _x64.value)


def promote_types(a: Any, b: Any) -> np.dtype:
    """The dtype to which two dtypes promote; Python's int, float and complex are weak.

    Not narrowed to 32 bits while x64 is off, unless neither of the two has more. Raises: TypePromotionError.

    >>> promote_types('bfloat16', 'float16'), promote_types('int32', float)
    (dtype('float32'), dtype('float64'))
    """
    try:
        return _promoted(a, b, _promotion.value, _x64.value)
    except TypeError:  # one cannot be hashed, or the two do not promote
        pass
    return _promoted.__wrapped__(a, b, _promotion.value, _x64.value)


@lru_cache(4096, typed=True)
def _promoted(a: Any, b: Any, mode: str, x64: bool) -> np.dtype:
    given = [(_dtype_of(spec), isinstance(spec, type) and spec in _WEAK_TYPES) for spec in (a, b)]
    for dtype, _ in given:
        if isinstance(dtype, ExtendedDType):
            raise TypeError(f"Cannot interpret '{dtype}' as a data type that promotes to others")
    result = _node_result(_join(frozenset(_node(*each) for each in given), mode), True)[0]
    return canonicalize_dtype(result) if result == int64 and all(dtype != int64 for dtype, _ in given) else result


@cache
def _join_types(operands: tuple[tuple[Any, bool], ...], mode: str, x64: bool) -> tuple[Any, bool]:
    """As `_join_operands`, but a weak operand counts as the default type of its kind, whatever its width."""
    first = operands[0][0]
    if first not in _KIND and all(dtype == first for dtype, _ in operands):
        return first, False  # float0 and extended dtypes promote with themselves alone
    nodes = frozenset("u*" if weak and mode == "standard" and _KIND.get(dtype) == "u" else _node(dtype, weak)
                      for dtype, weak in operands)
    return _node_result(_join(nodes, mode), x64)


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    """The dtype of an operation on these values and dtypes.

    Args:
      args: arrays, Python numbers, dtypes, scalar types, names of dtypes; None is the default float.
      return_weak_type_flag: return (dtype, weak_type) instead.
    Raises: TypePromotionError; TypeError for arguments without a supported dtype.

    >>> result_type(np.int8(1), 2.0, return_weak_type_flag=True)
    (dtype('float32'), True)
    """
    if not args:
        raise ValueError("at least one array or dtype is required")
    found = [
        (check_user_dtype_supported(arg, "result_type") if arg is None or isinstance(arg, (str, type, np.dtype))
         and not isinstance(getattr(arg, "dtype", None), np.dtype)  # `jnp.float64` has one, and means the given width
         else dtype(arg, canonicalize=True), is_weakly_typed(arg))
        for arg in args
    ]
    result = _join_types(tuple(found), _promotion.value, _x64.value)
    return result if return_weak_type_flag else result[0]


# --- Neighbouring dtypes, and facts about one ----------------------------------------------------------------------

finfo = ml_dtypes.finfo  # these two know NumPy's types as well
iinfo = ml_dtypes.iinfo


@cache
def to_inexact_dtype(dtype: Any) -> Any:
    """The floating-point or complex dtype in which functions such as `sin` work: 64-bit integers give float64
    (where it is available), other integers and booleans float32; inexact dtypes stay."""
    if _KIND.get(dtype, "f") in "fc":
        return dtype
    return float64 if dtype in (int64, uint64) else float32


def to_default_inexact_dtype(dtype: Any) -> Any:
    """The dtype in which functions such as `rint` work: integers and booleans give the default float."""
    return dtype if _KIND.get(dtype, "f") in "fc" else canonicalize_dtype(float)


def to_numeric_dtype(dtype: Any) -> Any:
    """Booleans become int32, with x64 too; other dtypes stay."""
    return int32 if dtype == bool_ else dtype


def real_dtype(dtype: Any) -> Any:
    """The dtype of the real part of complex numbers; other dtypes stay."""
    return {complex64: float32, complex128: float64}.get(dtype, dtype)


@cache
def to_floating_dtype(dtype: Any) -> Any:
    """`to_inexact_dtype`, with the dtype of the real part for complex ones."""
    return real_dtype(to_inexact_dtype(dtype))


@cache
def sum_dtype(dtype: Any) -> Any:
    """The dtype in which numbers are added up: float32 for narrower floats; other dtypes stay."""
    return float32 if kind(dtype) == "f" and itemsize_bits(dtype) < 32 else dtype


@cache
def to_complex_dtype(dtype: Any) -> Any:
    """The complex dtype that holds values of `dtype`: complex128 for 64-bit numbers, else complex64."""
    return complex128 if to_floating_dtype(dtype) == float64 else complex64


def default_dtype(scalar_type: type) -> np.dtype:
    """The dtype of arrays made from Python's bool, int, float or complex, as wide as x64 allows."""
    return canonicalize_dtype(python_scalar_dtypes[scalar_type])


def itemsize_bits(dtype: Any) -> int:
    """The size of an element in bits: 4 for int4, 8 for bool, 64 for Python's `int`. ValueError for others
    than numbers and booleans."""
    if dtype is not None:
        found = _as_dtype(dtype)
        if found in _KIND:
            return _bits(found)
    raise ValueError(f"dtype {dtype} has no size in bits")


@cache
def _bits(dtype: np.dtype) -> int:
    kind = _KIND[dtype]
    return 8 if kind == "b" else (finfo if kind in "fc" else iinfo)(dtype).bits * (2 if kind == "c" else 1)
