"""Dtypes: names, 32-bit forms, order, and promotion. The promotion tables in data/ are JAX's answers for every pair."""

from __future__ import annotations

import itertools
import json
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import jaxlite as jax
import jaxlite.dtypes
import jaxlite.numpy as jnp
from jaxlite.core import config
from jaxlite.core import dtypes as d

TABLES = json.loads((Path(__file__).parents[1] / "data" / "promotion.json").read_text())
PYTHON = {"int": int, "float": float, "complex": complex, "pybool": bool}
SMALL_FLOATS = [
    "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
]
SIGNED = ["int1", "int2", "int4", "int8", "int16", "int32", "int64"]
UNSIGNED = ["u" + name for name in SIGNED]
FLOATS = [*SMALL_FLOATS, "float16", "bfloat16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
ALL = ["bool", *SIGNED, *UNSIGNED, *FLOATS, *COMPLEX]


class Value:
    """Stands for an array or a tracer: it has a dtype and a weak type."""

    def __init__(self, name: str):
        self.dtype, self.weak_type = np.dtype(name.strip("*")), name.endswith("*")


class KeyDType(d.ExtendedDType):
    type = d.prng_key
    itemsize = 8

    def __init__(self, name: str):
        self.name = name


class ScalarMeta(type):
    """Makes classes like jaxlite.numpy.float32, which are no NumPy types but carry a dtype."""


class float64_like(metaclass=ScalarMeta):
    dtype = np.dtype("float64")


@pytest.fixture
def x64():
    with config.enable_x64(True):
        yield


# --- promotion ---------------------------------------------------------------------------------------------------


def promoted(function: str, a: str, b: str) -> str:
    try:
        if function == "promote_types":
            return d.short_name(d.promote_types(PYTHON.get(a, a), PYTHON.get(b, b)))
        x, y = Value(a), Value(b)
        if function == "operation":
            dtype, weak = d.lattice_result(x.dtype, x.weak_type, y.dtype, y.weak_type)
        else:
            dtype, weak = d.result_type(x, y, return_weak_type_flag=True)
    except d.TypePromotionError:
        return "-"
    return d.short_name(dtype) + "*" * weak


@pytest.mark.parametrize("name", TABLES)
def test_every_pair_promotes_as_in_jax(name):
    function, mode, *x64_on = name.split()
    table = TABLES[name]
    names = list(table)
    wrong = []
    with config.numpy_dtype_promotion(mode), config.enable_x64(x64_on == ["x64=1"] or function == "promote_types"):
        for i, a in enumerate(names):
            for b, expected in zip(names[i:], table[a].split(), strict=True):
                for pair in {(a, b), (b, a)}:
                    if promoted(function, *pair) != expected:
                        wrong.append((*pair, promoted(function, *pair), expected))
    assert not wrong


def test_types_of_32_bits_promote_to_none_of_64_without_x64():
    assert d.promote_types("uint32", "int8") == d.promote_types("int32", "uint32") == np.int32
    assert d.promote_types("uint32", "int64") == np.int64
    with config.enable_x64(True):
        assert d.promote_types("uint32", "int8") == np.int64


def test_arrays_of_64_bits_stay_so_where_x64_is_off_again():
    with config.enable_x64(True):
        floats, ints = jnp.ones(2), jnp.arange(2)
    assert jnp.sin(floats).dtype == (-floats).dtype == (floats + floats).dtype == np.float64
    assert jaxlite.vmap(jnp.exp)(floats).dtype == np.float64 and (-ints).dtype == np.int64
    assert (floats * 2).dtype == np.float32


def test_tables_know_every_dtype():
    assert set(ALL) | set(PYTHON) == set(TABLES["promote_types standard"])


def test_promotion_of_many_does_not_depend_on_order_or_grouping(x64):
    names = ["bool", "uint8", "int8", "uint64", "float16", "bfloat16", "complex64", "int64*", "float64*"]
    for triple in itertools.combinations(names, 3):
        found = {d.result_type(*map(Value, order), return_weak_type_flag=True)
                 for order in itertools.permutations(triple)}
        assert len(found) == 1, triple
        a, b, c = map(Value, triple)
        dtype, weak = d.lattice_result(a.dtype, a.weak_type, b.dtype, b.weak_type)
        grouped = d.lattice_result(dtype, weak, c.dtype, c.weak_type)
        assert d.lattice_join(tuple((v.dtype, v.weak_type) for v in (a, b, c))) == grouped, triple


@pytest.mark.parametrize(("args", "dtype", "weak"), [
    ((1,), "int32", True),
    ((True,), "bool", False),
    ((1, 2.0), "float32", True),
    ((True, 1), "int32", True),
    ((True, False), "bool", False),
    ((1j, 2.0), "complex64", True),
    ((int, "float16"), "float16", False),
    ((np.int8(1), 2.0), "float32", True),
    ((np.float64(1), 1), "float32", False),           # a NumPy scalar is strong, though it is a Python float too
    ((np.ones(2, "int64"), np.ones(2, "uint32")), "int32", False),
    ((np.ones(2, "float16"), 1, 2.0, True), "float16", False),
    ((None,), "float32", False),
    ((2**40,), "int32", True),
    ((ml_dtypes.bfloat16, np.float16(1)), "float32", False),
    ((ml_dtypes.int4, 3), ml_dtypes.int4, False),
    ((d.float0,), d.float0, False),
    ((d.float0, d.float0), d.float0, False),
])
def test_result_type(args, dtype, weak):
    assert d.result_type(*args, return_weak_type_flag=True) == (np.dtype(dtype), weak)
    assert d.result_type(*args) == np.dtype(dtype)


def test_result_type_with_x64(x64):
    assert d.result_type(1, 2.0, return_weak_type_flag=True) == (np.dtype("float64"), True)
    assert d.result_type("uint64", "int64", return_weak_type_flag=True) == (np.dtype("float64"), True)
    assert d.result_type(np.float32(1), np.float64(1)) == np.float64


def test_x64_switch_is_seen_at_once():
    pair = (np.dtype("int32"), False, np.dtype("uint32"), False)
    assert d.lattice_result(*pair) == (np.dtype("int32"), False)
    with config.enable_x64(True):
        assert d.lattice_result(*pair) == (np.dtype("int64"), False)
        assert d.canonicalize_dtype(float) == np.float64
    assert d.lattice_result(*pair) == (np.dtype("int32"), False)
    assert d.canonicalize_dtype(float) == np.float32


@pytest.mark.parametrize(("names", "words"), [
    (("float8_e4m3fn", "float32"), ["float8_e4m3fn", "float32", "8 bits", "astype"]),
    (("int4", "int8"), ["int4", "int8", "Integers of less than 8 bits"]),
    (("int4", "float32*"), ["int4", "weak float"]),
])
def test_error_says_what_does_not_promote(names, words):
    with pytest.raises(d.TypePromotionError) as error:
        d.result_type(*map(Value, names))
    assert isinstance(error.value, ValueError)
    assert all(word in str(error.value) for word in words)


def test_strict_mode_refuses_what_is_not_asked_for():
    with config.numpy_dtype_promotion("strict"):
        assert d.result_type(np.float32(1), 2, 3.0) == np.float32
        with pytest.raises(d.TypePromotionError, match="strict"):
            d.result_type(np.float32(1), np.int32(1))
        with pytest.raises(d.TypePromotionError, match="weak float"):
            d.result_type(np.int32(1), 1.0)


@pytest.mark.parametrize(("args", "error"), [
    ((), ValueError),
    (([1, 2],), TypeError),
    (((1,),), TypeError),
    ((object(),), TypeError),
    (("nonsense",), TypeError),
    ((np.array(None),), TypeError),
    ((np.array("text"),), TypeError),
    ((np.datetime64("2020"),), TypeError),
    ((np.longdouble(3),), TypeError),
    ((str,), TypeError),
    ((list,), TypeError),
    ((np.floating, 1), TypeError),
    ((d.float0, 1.0), ValueError),
    ((KeyDType("key<a>"), 1.0), (TypeError, ValueError)),
])
def test_result_type_refuses(args, error):
    with pytest.raises(error):
        d.result_type(*args)


def test_keys_promote_with_themselves_alone():
    class Key:
        weak_type = False

        def __init__(self, dtype):
            self.dtype = dtype

    a, b = KeyDType("key<a>"), KeyDType("key<b>")
    assert d.result_type(Key(a), Key(a)) is a
    assert d.lattice_result(a, False, a, False) == (a, False)
    for other in (Key(b), 1.0, np.float32(1)):
        with pytest.raises(ValueError, match="key<"):
            d.result_type(Key(a), other)
    for other in (b, np.dtype("float32")):
        with pytest.raises(ValueError, match="not a valid dtype for JAX type promotion"):
            d.lattice_result(a, False, other, False)


def test_promote_types_keeps_64_bits_and_refuses_others():
    assert d.promote_types("int64", "float64") == np.float64
    assert d.promote_types(int, float) == np.float64
    for a, b in (("O", "f4"), ("O", "O"), (d.float0, d.float0), ("bool", d.float0)):
        with pytest.raises(ValueError, match="promotion"):
            d.promote_types(a, b)
    for a, b in ((1, 2), (None, 2)):
        with pytest.raises(TypeError):
            d.promote_types(a, b)


# --- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "short"), [
    ("bool", "bool"), ("int1", "i1"), ("int4", "i4"), ("uint2", "u2"), ("int32", "i32"), ("uint64", "u64"),
    ("float16", "f16"), ("bfloat16", "bf16"), ("float64", "f64"), ("complex64", "c64"), ("complex128", "c128"),
    ("float8_e4m3b11fnuz", "f8_e4m3b11fnuz"), ("float4_e2m1fn", "f4_e2m1fn"), ("float6_e3m2fn", "f6_e3m2fn"),
])
def test_short_names(name, short):
    assert d.short_name(np.dtype(name)) == short
    assert d.from_short_name(short) == np.dtype(name)


def test_short_names_are_one_to_one_and_names_are_there():
    shorts = [d.short_name(np.dtype(name)) for name in ALL] + [d.short_name(d.float0)]
    assert len(set(shorts)) == len(shorts) == 33
    assert all(d.short_name(d.from_short_name(short)) == short for short in shorts)
    for name in ALL:
        assert getattr(d, "bool_" if name == "bool" else name) == np.dtype(name)
    assert d.short_name(KeyDType("key<fry>")) == "key<fry>"
    with pytest.raises(ValueError, match="x32"):
        d.from_short_name("x32")


# --- canonical dtypes --------------------------------------------------------------------------------------------

NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}


@pytest.mark.parametrize("name", ALL)
def test_canonical_form(name):
    for spec in (name, np.dtype(name), np.dtype(name).type):
        assert d.canonicalize_dtype(spec) == np.dtype(NARROW.get(name, name))
        with config.enable_x64(True):
            assert d.canonicalize_dtype(spec) == np.dtype(name)


def test_canonical_form_of_other_spellings(x64):
    assert d.canonicalize_dtype(int) == d.canonicalize_dtype(np.longlong) == np.int64
    assert d.canonicalize_dtype(np.dtype("longlong")) is d.int64
    assert d.canonicalize_dtype(float) == d.canonicalize_dtype(None) == d.canonicalize_dtype(float64_like) == np.float64
    assert d.canonicalize_dtype(complex) == np.complex128
    assert d.canonicalize_dtype(bool) == np.bool_
    assert d.canonicalize_dtype("<f4") is d.float32
    assert d.canonicalize_dtype(np.dtype("f4", metadata={"unit": "m"})) is d.float32
    assert d.canonicalize_dtype(d.float0) is d.float0


def test_a_scalar_is_a_dtype_but_a_number_is_not():
    assert d.canonicalize_dtype(np.float32(3)) == np.float32
    for number in (3, 3.0, True):
        with pytest.raises(TypeError):
            d.canonicalize_dtype(number)


@pytest.mark.parametrize("spec", [object, str, bytes, "S3", "M8[s]", "f4,f4", "nonsense", np.longdouble, np.clongdouble,
                                  np.floating, np.generic, list, [1], ">f4", "V8", ml_dtypes.complex32, np.ones(3)])
def test_unsupported_dtypes(spec):
    for function in (d.canonicalize_dtype, d.check_user_dtype_supported):
        with pytest.raises(TypeError):
            function(spec)


def test_unsupported_dtype_errors_say_why():
    with pytest.raises(TypeError, match=r"dtype object is not supported in zeros: only booleans, integers"):
        d.check_user_dtype_supported(object, "zeros")
    with pytest.raises(TypeError, match="byte order"):
        d.canonicalize_dtype(">f4")
    with pytest.raises(ValueError, match=r"\.dtype"):
        d.canonicalize_dtype(type("Array", (), {"dtype": np.dtype("f4"), "__array__": None})())


def test_extended_dtypes_pass_where_allowed():
    key = KeyDType("key<a>")
    assert d.canonicalize_dtype(key, allow_extended_dtype=True) is key
    assert d.check_user_dtype_supported(key) is key
    for _ in range(2):
        with pytest.raises(ValueError, match="key<a>"):
            d.canonicalize_dtype(key)


@pytest.mark.parametrize("spec", ["float64", np.float64, np.dtype("float64"), float64_like])
def test_asking_for_64_bits_warns_at_the_users_line(spec):
    with pytest.warns(UserWarning, match="float64.*in zeros.*not available.*truncated to dtype float32") as record:
        assert d.check_user_dtype_supported(spec, "zeros") == np.float32
    assert record[0].filename == __file__
    with config.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert d.check_user_dtype_supported(spec, "zeros") == np.float64


def test_default_types_never_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for spec in (int, float, complex, bool, None, "float32", np.int32):
            d.check_user_dtype_supported(spec, "zeros")
        d.result_type(np.ones(2), np.int64(1), 1.0)


# --- dtypes of values --------------------------------------------------------------------------------------------


class Flag(int):
    """A subclass of int, as an IntEnum is."""


@pytest.mark.parametrize(("x", "dtype", "weak", "scalar_type"), [
    (True, "bool", False, bool),
    (1, "int64", True, int),
    (Flag(1), "int64", True, int),
    (1.0, "float64", True, float),
    (1j, "complex128", True, complex),
    (float, "float64", True, float),
    (bool, "bool", False, bool),
    (np.float64(1), "float64", False, float),
    (np.complex128(1), "complex128", False, complex),
    (np.uint8(1), "uint8", False, int),
    (np.ones(2, "float16"), "float16", False, float),
    (np.dtype("float32"), "float32", False, float),
    ("int8", "int8", False, int),
    (ml_dtypes.bfloat16(1), "bfloat16", False, float),
    (ml_dtypes.int4, "int4", False, int),
    (Value("float32*"), "float32", True, float),
])
def test_dtype_weak_type_and_scalar_type_of_values(x, dtype, weak, scalar_type):
    assert d.dtype(x) == np.dtype(dtype)
    assert d.dtype(x, canonicalize=True) == np.dtype(NARROW.get(dtype, dtype))
    assert d.is_weakly_typed(x) is weak
    assert d.scalar_type_of(x) is scalar_type


@pytest.mark.parametrize("x", [None, [1], "text", object(), np.array(["a"]), np.ones(2, ">f4")])
def test_values_without_a_dtype(x):
    with pytest.raises(ValueError if x is None else TypeError):
        d.dtype(x)


# --- order -------------------------------------------------------------------------------------------------------

ABSTRACT = {
    np.generic: ALL, np.number: ALL[1:], np.integer: SIGNED + UNSIGNED, np.signedinteger: SIGNED,
    np.unsignedinteger: UNSIGNED, np.inexact: FLOATS + COMPLEX, np.floating: FLOATS, np.complexfloating: COMPLEX,
    d.extended: [], d.prng_key: [],
}


@pytest.mark.parametrize("abstract", ABSTRACT)
def test_issubdtype_of_abstract_types(abstract):
    for name in ALL:
        for spec in (name, np.dtype(name), np.dtype(name).type):
            assert d.issubdtype(spec, abstract) is (name in ABSTRACT[abstract])
    for other in ABSTRACT:
        assert d.issubdtype(other, abstract) is issubclass(other, abstract)


def test_issubdtype_of_concrete_types():
    for a, b in itertools.product(ALL, ALL):
        assert d.issubdtype(a, np.dtype(b)) is (a == b)
    assert d.issubdtype(float, np.float64)
    assert d.issubdtype("float64", float)
    assert not d.issubdtype("float32", float)
    assert d.issubdtype(None, np.floating)
    assert d.issubdtype(float64_like, np.floating)
    for a, b in ((1.0, np.floating), ("nonsense", np.floating), ("float32", "floating"), (np.ones(2), np.floating)):
        with pytest.raises(TypeError):
            d.issubdtype(a, b)


def test_issubdtype_of_keys_and_other_kinds():
    key = KeyDType("key<a>")
    assert all(d.issubdtype(key, above) for above in (key, d.prng_key, d.extended, np.generic))
    assert not any(d.issubdtype(key, other) for other in (np.number, np.float32, KeyDType("key<b>")))
    assert not d.issubdtype(d.prng_key, key)
    for other in (d.float0, object, ml_dtypes.complex32):
        assert d.issubdtype(other, np.generic)
        assert d.issubdtype(other, other)
        assert not d.issubdtype(other, np.number)


@pytest.mark.parametrize(("kind", "names"), [
    ("bool", ["bool"]), ("signed integer", SIGNED), ("unsigned integer", UNSIGNED), ("integral", SIGNED + UNSIGNED),
    ("real floating", FLOATS), ("complex floating", COMPLEX), ("numeric", ALL[1:]), (("bool", np.float32),
                                                                                     ["bool", "float32"]),
])
def test_isdtype(kind, names):
    assert [name for name in ALL if d.isdtype(name, kind)] == [name for name in ALL if name in names]
    with pytest.raises(ValueError, match="kind='zz'"):
        d.isdtype("float32", "zz")


# --- neighbours and facts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "inexact", "floating", "complex_"), [
    ("bool", "float32", "float32", "complex64"),
    ("int4", "float32", "float32", "complex64"),
    ("uint32", "float32", "float32", "complex64"),
    ("int64", "float64", "float64", "complex128"),
    ("uint64", "float64", "float64", "complex128"),
    ("float8_e5m2", "float8_e5m2", "float8_e5m2", "complex64"),
    ("bfloat16", "bfloat16", "bfloat16", "complex64"),
    ("float64", "float64", "float64", "complex128"),
    ("complex64", "complex64", "float32", "complex64"),
    ("complex128", "complex128", "float64", "complex128"),
])
def test_neighbouring_dtypes(name, inexact, floating, complex_):
    dtype = np.dtype(name)
    assert d.to_inexact_dtype(dtype) == np.dtype(inexact)
    assert d.to_floating_dtype(dtype) == np.dtype(floating)
    assert d.to_complex_dtype(dtype) == np.dtype(complex_)
    assert d.to_numeric_dtype(dtype) == np.dtype("int32" if name == "bool" else name)


@pytest.mark.parametrize("name", SIGNED + UNSIGNED)
def test_integer_limits_and_size(name):
    bits = int(name.lstrip("uint"))
    assert d.itemsize_bits(name) == bits
    low, high = (0, 2**bits - 1) if name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    assert (d.iinfo(name).min, d.iinfo(name).max) == (low, high)


@pytest.mark.parametrize("name", FLOATS)
def test_float_limits_and_size(name):
    info, dtype = d.finfo(name), np.dtype(name)
    assert info.bits == d.itemsize_bits(dtype) == int(name.removeprefix("b").removeprefix("float").split("_")[0])
    largest = dtype.type(info.max)
    assert np.isfinite(largest)
    assert float(largest) == float(info.max)


def test_sizes_of_other_types():
    assert [d.itemsize_bits(x) for x in (bool, int, float, complex, np.complex64)] == [8, 64, 64, 128, 64]
    for other in (None, "S3", d.float0, KeyDType("key<a>"), ml_dtypes.complex32):
        with pytest.raises(ValueError, match="bits"):
            d.itemsize_bits(other)


def test_public_names():
    names = {name for name in vars(jaxlite.dtypes) if not name.startswith("_")}
    assert names == {"TypePromotionError", "bfloat16", "canonicalize_dtype", "extended", "finfo", "float0", "iinfo",
                     "issubdtype", "itemsize_bits", "prng_key", "result_type", "scalar_type_of"}
    assert jaxlite.dtypes.bfloat16 is ml_dtypes.bfloat16


def test_arrays_stand_for_their_dtypes_where_jax_takes_them():
    """In questions about dtypes; what only describes an array is a dtype everywhere."""
    x, like = jnp.ones(2, jnp.bfloat16), jax.ShapeDtypeStruct((2,), np.int8)
    assert jnp.promote_types(x, "float16") == np.float32 and jnp.promote_types(like, jnp.int32) == np.int32
    assert jnp.isdtype(x, "real floating") and jax.dtypes.issubdtype(x, np.floating)
    assert jnp.zeros(2, like).dtype == x.astype(like).dtype == np.int8
    for refused in (lambda: jnp.zeros(2, x), lambda: x.astype(x)):
        with pytest.raises(ValueError, match="array was given as a dtype"):
            refused()
