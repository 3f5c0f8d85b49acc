"""Elementwise primitives against NumPy and SciPy: one row of `OPS` for each primitive, over all dtypes it accepts.

Values are drawn widely and joined by edge values. The oracle computes in a wider type: float64 for up to 32 bits,
long double for float64 where NumPy has it, Python's integers for integers. Tolerances are in units in the last place
(ulps) of the result's dtype. XLA's CPU backend takes subnormal numbers for zero, so they are compared as zero.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special as sp

import jaxlite
from jaxlite import lax
from jaxlite.core.primitive import Primitive
from jaxlite.lax import elementwise, special, special_series

inf, nan = np.inf, np.nan


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


DTYPES = {
    "b": ["bool"],
    "i": ["int4", "int8", "int16", "int32", "int64"],
    "u": ["uint4", "uint8", "uint16", "uint32", "uint64"],
    "f": ["float16", "bfloat16", "float32", "float64"],
    "8": ["float8_e4m3fn", "float8_e5m2"],
    "c": ["complex64", "complex128"],
}
KIND = {dtype_of(name): kind for kind, names in DTYPES.items() for name in names}


@dataclass
class Op:
    """A primitive, how it is called, what NumPy says, the kinds of dtypes it takes, and how near it must come."""

    name: str
    call: Callable
    reference: Callable
    kinds: str
    arity: int = 1
    draw: Any = (-4.0, 4.0)  # a range for floats, or one for each operand
    ulps: float = 2
    double_ulps: float | None = None
    half_ulps: float = 1.3
    edges: tuple[float, ...] = (0.0, -0.0, inf, -inf, nan, 1.0, -1.0, 2.5, -2.5)
    complex_ulps: float = 8
    complex_draw: float = 3.0
    also: str = ""  # kinds that are accepted and not compared here
    result: str = "same"  # or "bool", "real", "complex"
    extra: dict[str, tuple] = field(default_factory=dict)

    def __repr__(self) -> str:
        return self.name


def wrapped(value: int, dtype: np.dtype) -> int:
    """A Python integer as it overflows in a dtype."""
    info = ml_dtypes.iinfo(dtype)
    return (value - int(info.min)) % (1 << info.bits) + int(info.min)


def integers(function: Callable) -> Callable:
    """A reference on Python's integers, element by element: f(dtype's bits, *values)."""

    def reference(dtype, *operands):
        bits = ml_dtypes.iinfo(dtype).bits
        rows = zip(*[operand.astype(object).tolist() for operand in operands])
        rows = [[int(value) for value in row] for row in rows]
        return np.array([wrapped(function(bits, *row), dtype) for row in rows], object).astype(dtype)

    return reference


def unsigned(value: int, bits: int) -> int:
    return value % (1 << bits)


def quotient(bits: int, x: int, y: int) -> int:
    if y == 0:
        return -1
    return (abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1)


def remainder(bits: int, x: int, y: int) -> int:
    if y == 0:
        return x
    return abs(x) % abs(y) * (-1 if x < 0 else 1)


def shift(left: bool = False, arithmetic: bool = False) -> Callable:
    def reference(bits, x, y):
        inside = 0 <= y < bits
        if arithmetic:
            top = x if x < 0 or x < 1 << (bits - 1) else x - (1 << bits)  # the sign bit of an unsigned number counts
            return top >> (y if inside else bits)
        if not inside:
            return 0
        return x << y if left else unsigned(x, bits) >> y

    return reference


def by_kind(**references: Callable) -> Callable:
    """Different references for integers ("int"), bool and the rest ("other")."""

    def reference(dtype, *operands):
        kind = KIND[dtype]
        if kind in "iu":
            return integers(references["int"])(dtype, *operands)
        return references["bool" if kind == "b" and "bool" in references else "other"](*operands)

    return reference


def plain(function: Callable) -> Callable:
    return lambda dtype, *operands: function(*operands)


def scipy(function: Callable) -> Callable:
    return lambda dtype, *operands: function(*[operand.astype(np.float64) for operand in operands])




def total_order(compare: Callable) -> Callable:
    """Order by bit pattern: -nan < -inf < ... < -0 < 0 < ... < inf < nan."""

    def reference(dtype, x, y):
        def key(value):
            if KIND[dtype] != "f":
                return value.astype(object)
            bits = value.view(f"i{dtype.itemsize}").astype(object)
            top = 1 << (8 * dtype.itemsize - 1)
            return np.array([each if each >= 0 else -(each + top) - 1 for each in bits], object)

        return compare(key(x), key(y)).astype(bool)

    reference.raw = True
    return reference


def complex_max(x, y):
    if not np.iscomplexobj(x):
        return np.maximum(x, y)
    return np.where((x.real > y.real) | ((x.real == y.real) & (x.imag > y.imag)), x, y)


def complex_sign(x):
    if not np.iscomplexobj(x):
        return np.where(x == 0, x, np.sign(x))
    return np.where(x == 0, 0, x / np.where(x == 0, 1, np.abs(x)))


def round_away(x):
    return np.copysign(np.floor(np.abs(x)) + (np.abs(x) - np.floor(np.abs(x)) >= 0.5), x)


def log_gamma(x):
    return np.where(np.isneginf(x), inf, sp.gammaln(x))


def no_pole(x):
    return np.where((x == np.floor(x)) & (x <= 0), nan, sp.digamma(x))


def gamma_slope(a, x):
    """d/da gammainc(a, x) by Richardson's extrapolation of central differences, to about 1e-9."""

    def difference(h):
        low, high = sp.gammainc(a * (1 - h), x), sp.gammainc(a * (1 + h), x)
        upper = sp.gammaincc(a * (1 - h), x) - sp.gammaincc(a * (1 + h), x)
        return np.where(x > a, upper, high - low) / (2 * h * a)

    h = 2e-3
    first = [difference(h / 2**k) for k in range(4)]
    for order in (4, 16, 64):
        first = [(order * fine - coarse) / (order - 1) for coarse, fine in zip(first, first[1:])]
    return first[0]


def gamma_sample_slope(a, x):
    return -gamma_slope(a, x) / np.exp((a - 1) * np.log(x) - x - sp.gammaln(a))


P = {name: primitive for module in (elementwise, special, special_series)
     for name, primitive in vars(module).items() if isinstance(primitive, Primitive)}
POSITIVE = (0.0, inf, nan, 1.0, 2.5)
N = "iufc"
OPS = [
    Op("add", lax.add, by_kind(int=lambda _, x, y: x + y, other=np.add), N + "8", 2),
    Op("sub", lax.sub, by_kind(int=lambda _, x, y: x - y, other=np.subtract), N + "8", 2),
    Op("mul", lax.mul, by_kind(int=lambda _, x, y: x * y, other=np.multiply), N + "8", 2),
    Op("div", lax.div, by_kind(int=quotient, other=np.divide), N, 2),
    Op("rem", lax.rem, by_kind(int=remainder, other=np.fmod), "iuf", 2),
    Op("max", lax.max, by_kind(int=lambda _, *v: max(v), other=complex_max), "b8" + N, 2),
    Op("min", lax.min, by_kind(int=lambda _, *v: min(v), bool=np.minimum,
                               other=lambda x, y: -complex_max(-x, -y)), "b8" + N, 2),
    Op("neg", lax.neg, by_kind(int=lambda _, x: -x, other=np.negative), N + "8", ulps=0),
    Op("sign", lax.sign, by_kind(int=lambda _, x: (x > 0) - (x < 0), other=complex_sign), N),
    Op("abs", lax.abs, by_kind(int=lambda _, x: abs(x), other=np.abs), "ifc8", result="real"),
    Op("floor", lax.floor, plain(np.floor), "f8", ulps=0),
    Op("ceil", lax.ceil, plain(np.ceil), "f8", ulps=0),
    Op("round", lax.round, plain(round_away), "f8", ulps=0, extra={"edges": (0.5, 1.5, -0.5, -1.5, 0.49999997)}),
    Op("is_finite", lax.is_finite, plain(np.isfinite), "f8", result="bool"),
    Op("exp", lax.exp, plain(np.exp), "fc", draw=(-20, 20)),
    Op("exp2", lax.exp2, plain(np.exp2), "fc", draw=(-10, 10), ulps=10, half_ulps=8),
    Op("expm1", lax.expm1, plain(np.expm1), "fc", draw=(-10, 10)),
    Op("log", lax.log, plain(np.log), "fc", draw=(1e-3, 1e3)),
    Op("log1p", lax.log1p, plain(np.log1p), "fc", draw=(-0.99, 9), ulps=3, double_ulps=40),
    Op("log2", lax.log2, plain(np.log2), "fc", draw=(1e-3, 1e3), ulps=5, half_ulps=3),
    Op("logistic", lax.logistic, plain(lambda x: 1 / (1 + np.exp(-x))), "fc", draw=(-20, 20), ulps=4),
    Op("sqrt", lax.sqrt, plain(np.sqrt), "fc", draw=(0, 1e3), ulps=1),
    Op("rsqrt", lax.rsqrt, plain(lambda x: 1 / np.sqrt(x)), "fc", draw=(1e-3, 1e3)),
    Op("cbrt", lax.cbrt, plain(np.cbrt), "f", draw=(-1e3, 1e3), ulps=3),
    Op("square", lax.square, by_kind(int=lambda _, x: x * x, other=np.square), N),
    Op("one_minus_square", lax.one_minus_square, by_kind(
        int=lambda _, x: 1 - x * x, other=lambda x: (1 + x) * (1 - x)), N, ulps=3),
    Op("polynomial", lambda x, c: P["polynomial_p"].bind(x, c, c), by_kind(
        int=lambda _, x, c: c * x + c, other=lambda x, c: c * x + c), N, 2, draw=(0.1, 3)),
    Op("integer_pow", lambda x: lax.integer_pow(x, 3), by_kind(int=lambda _, x: x**3, other=lambda x: x**3), N, ulps=3),
    Op("pow", lax.pow, plain(np.power), "fc", 2, draw=((0.01, 5), (-4, 4)), ulps=4, complex_ulps=100, also="iu"),
    Op("sin", lax.sin, plain(np.sin), "fc", draw=(-100, 100), edges=(0.0, -0.0, inf, nan)),
    Op("cos", lax.cos, plain(np.cos), "fc", draw=(-100, 100), edges=(0.0, -0.0, inf, nan)),
    Op("tan", lax.tan, plain(np.tan), "fc", draw=(-100, 100), edges=(0.0, -0.0, inf, nan), ulps=4),
    Op("asin", lax.asin, plain(np.arcsin), "fc", draw=(-1, 1), edges=(0.0, -0.0, 2.0, nan, 1.0), ulps=4),
    Op("acos", lax.acos, plain(np.arccos), "fc", draw=(-1, 1), edges=(0.0, -0.0, 2.0, nan, 1.0, -1.0), ulps=4),
    Op("atan", lax.atan, plain(np.arctan), "fc", draw=(-9, 9), ulps=4),
    Op("atan2", lax.atan2, plain(np.arctan2), "f", 2, ulps=4, also="c"),
    Op("sinh", lax.sinh, plain(np.sinh), "fc", draw=(-9, 9), ulps=6),
    Op("cosh", lax.cosh, plain(np.cosh), "fc", draw=(-9, 9), ulps=6),
    Op("tanh", lax.tanh, plain(np.tanh), "fc", draw=(-9, 9), ulps=5, edges=(0.0, inf, -inf, nan, 1.0)),
    Op("asinh", lax.asinh, plain(np.arcsinh), "fc", draw=(-99, 99), ulps=4),
    Op("acosh", lax.acosh, plain(np.arccosh), "fc", draw=(1.01, 99), ulps=4),
    Op("atanh", lax.atanh, plain(np.arctanh), "fc", draw=(-0.99, 0.99), ulps=4, double_ulps=150),
    Op("eq", lax.eq, plain(np.equal), "b8" + N, 2, result="bool"),
    Op("ne", lax.ne, plain(np.not_equal), "b8" + N, 2, result="bool"),
    Op("ge", lax.ge, plain(np.greater_equal), "biuf8", 2, result="bool"),
    Op("gt", lax.gt, plain(np.greater), "biuf8", 2, result="bool"),
    Op("le", lax.le, plain(np.less_equal), "biuf8", 2, result="bool"),
    Op("lt", lax.lt, plain(np.less), "biuf8", 2, result="bool"),
    Op("eq_to", P["eq_to_p"].bind, total_order(np.equal), "biuf", 2, result="bool"),
    Op("le_to", P["le_to_p"].bind, total_order(np.less_equal), "biuf", 2, result="bool"),
    Op("lt_to", P["lt_to_p"].bind, total_order(np.less), "biuf", 2, result="bool"),
    Op("and", lax.bitwise_and, by_kind(int=lambda _, x, y: x & y, other=np.logical_and), "biu", 2),
    Op("or", lax.bitwise_or, by_kind(int=lambda _, x, y: x | y, other=np.logical_or), "biu", 2),
    Op("xor", lax.bitwise_xor, by_kind(int=lambda _, x, y: x ^ y, other=np.logical_xor), "biu", 2),
    Op("not", lax.bitwise_not, by_kind(int=lambda _, x: ~x, other=np.logical_not), "biu"),
    Op("shift_left", lax.shift_left, integers(shift(left=True)), "iu", 2),
    Op("shift_right_logical", lax.shift_right_logical, integers(shift()), "iu", 2),
    Op("shift_right_arithmetic", lax.shift_right_arithmetic, integers(shift(arithmetic=True)), "iu", 2),
    Op("population_count", lax.population_count, integers(lambda bits, x: unsigned(x, bits).bit_count()), "iu"),
    Op("clz", lax.clz, integers(lambda bits, x: bits - unsigned(x, bits).bit_length()), "iu"),
    Op("mulhi", lax.mulhi, integers(lambda bits, x, y: x * y >> bits), "iu", 2),
    Op("real", lax.real, plain(np.real), "c", result="real", complex_ulps=0),
    Op("imag", lax.imag, plain(np.imag), "c", result="real", complex_ulps=0),
    Op("conj", lax.conj, plain(np.conj), "c", complex_ulps=0),
    Op("complex", lax.complex, plain(lambda x, y: x + 1j * y), "f", 2, result="complex", edges=(0.0, 1.0)),
    Op("select_n", lambda x, y: lax.select_n(np.arange(x.size) % 3 == 0, x, y),
       plain(lambda x, y: np.where(np.arange(x.size) % 3 == 0, y, x)), "b8" + N, 2, ulps=0, complex_ulps=0),
    Op("clamp", lax.clamp, plain(lambda low, x, high: np.minimum(np.maximum(low, x), high)), "biuf", 3),
    Op("erf", lax.erf, scipy(sp.erf), "f", ulps=5),
    Op("erfc", lax.erfc, scipy(sp.erfc), "f", ulps=8),
    Op("erf_inv", lax.erf_inv, scipy(sp.erfinv), "f", draw=(-0.99, 0.99), ulps=40, edges=(0.0, 1.0, -1.0, nan, 2.5)),
    Op("lgamma", lax.lgamma, scipy(log_gamma), "f", draw=(2.2, 60), ulps=4,
       edges=(0.0, -0.0, inf, -inf, nan, -1.0, 2.5)),
    Op("digamma", lax.digamma, scipy(no_pole), "f", draw=(1.6, 60), ulps=30,
       edges=(inf, nan, 1.0, 2.5, -2.5, -1.0)),
    Op("polygamma", lax.polygamma, scipy(lambda m, x: sp.polygamma(np.round(m).astype(int), x)), "f", 2,
       draw=((1, 1), (0.1, 30)), ulps=30, edges=()),
    Op("zeta", lax.zeta, scipy(sp.zeta), "f", 2, draw=((1.1, 20), (0.1, 30)), ulps=60, edges=()),
    Op("bessel_i0e", lax.bessel_i0e, scipy(sp.i0e), "f", draw=(-30, 30), ulps=8),
    Op("bessel_i1e", lax.bessel_i1e, scipy(sp.i1e), "f", draw=(-30, 30), ulps=12),
    Op("igamma", lax.igamma, scipy(sp.gammainc), "f", 2, draw=((0.1, 40), (0.1, 40)), ulps=120, double_ulps=400,
       edges=POSITIVE),
    Op("igammac", lax.igammac, scipy(sp.gammaincc), "f", 2, draw=((0.1, 40), (0.1, 40)), ulps=120, double_ulps=400,
       edges=POSITIVE),
    Op("igamma_grad_a", lax.igamma_grad_a, scipy(gamma_slope), "f", 2, draw=((0.5, 40), (2, 40)), ulps=120,
       double_ulps=5e7, edges=()),
    Op("random_gamma_grad", lax.random_gamma_grad, scipy(gamma_sample_slope), "f", 2, draw=((8, 20), (8, 20)), ulps=60,
       double_ulps=5e7, edges=()),
    Op("regularized_incomplete_beta", lax.betainc, scipy(sp.betainc), "f", 3, draw=((0.1, 20), (0.1, 20), (0, 1)),
       ulps=120, edges=(0.0, 1.0, 2.5, -1.0)),
]


def operands(op: Op, name: str) -> list[np.ndarray]:
    """Inputs of one dtype: drawn values, then every combination of edge values."""
    dtype = dtype_of(name)
    kind = KIND[dtype]
    rng = np.random.default_rng(len(op.name))
    count = 40
    if kind == "b":
        drawn, edges = [rng.integers(0, 2, count).astype(bool) for _ in range(op.arity)], np.array([False, True])
    elif kind in "iu":
        info = ml_dtypes.iinfo(dtype)
        low, high = int(info.min), int(info.max)
        drawn = [np.array([int(v) % (high - low + 1) + low for v in rng.integers(0, 2**63, count)], object)
                 .astype(dtype) for _ in range(op.arity)]
        edges = np.array([low, low + 1, 0, 1, 2, min(info.bits - 1, high), min(info.bits, high), high,
                          *([-1, -3] if low else [])], object).astype(dtype)
    elif kind == "c":
        drawn = [(rng.normal(size=count) + 1j * rng.normal(size=count)).astype(dtype) * dtype.type(op.complex_draw)
                 for _ in range(op.arity)]
        edges = np.array([1 + 0j, 1j, 2 - 1j, 1 + 3j, -2.5 - 1j], dtype)
    else:
        ranges = op.draw if isinstance(op.draw[0], tuple) else (op.draw,) * op.arity
        drawn = [rng.uniform(*each, count).astype(dtype) for each in ranges]
        edges = np.array((*op.edges, *op.extra.get("edges", ())), np.float64).astype(dtype)
    grid = np.meshgrid(*[edges] * op.arity) if len(edges) else [edges] * op.arity
    return [np.concatenate([a, b.ravel()]) for a, b in zip(drawn, grid)]


def expected(op: Op, arguments: list[np.ndarray]) -> np.ndarray:
    """The oracle's result, in its own wide type."""
    dtype = arguments[0].dtype
    kind = KIND[dtype]
    wide = {"f": np.longdouble if dtype == np.float64 else np.float64, "8": np.float64,
            "c": np.clongdouble if dtype == np.complex128 else np.complex128}.get(kind)
    if wide and not getattr(op.reference, "raw", False):
        arguments = [each.astype(wide) for each in arguments]
    with np.errstate(all="ignore"):
        return op.reference(dtype, *arguments)


def result_dtype(op: Op, dtype: np.dtype) -> np.dtype:
    if op.result == "real":
        return {"complex64": np.dtype("float32"), "complex128": np.dtype("float64")}.get(dtype.name, dtype)
    if op.result == "complex":
        return np.dtype(f"complex{16 * dtype.itemsize}")
    return np.dtype(bool) if op.result == "bool" else dtype


def assert_near(got: np.ndarray, want: np.ndarray, ulps: float, context: Any) -> None:
    """Equal, NaN where NaN, zeros of one sign, else within so many ulps; all below the normal range is zero."""
    if KIND[got.dtype] in "biu":
        bad = np.nonzero(got != want)[0]
        assert not len(bad), [(*[a[i] for a in context], got[i], want[i]) for i in bad[:5]]
        return
    if got.dtype.kind == "c":
        eps = np.finfo(got.dtype).eps
        with np.errstate(all="ignore"):
            error = np.abs(got - want) / (np.abs(want) + np.finfo(got.dtype).tiny) / eps
            same = (got == want.astype(got.dtype)) | (np.isnan(got) & np.isnan(want))
        error = np.where(same, 0, np.where(np.isnan(error), inf, error))
    else:
        info = ml_dtypes.finfo(got.dtype)
        with np.errstate(all="ignore"):
            rounded = want.astype(got.dtype).astype(np.float64)
            got64 = got.astype(np.float64)
            unit = np.exp2(np.maximum(np.floor(np.log2(np.abs(rounded))), np.log2(float(info.tiny)))) * float(info.eps)
            error = np.abs((got64 - want) / unit)
        tiny = float(info.tiny)
        both_nan, both_tiny = np.isnan(got64) & np.isnan(rounded), (abs(got64) < 2 * tiny) & (abs(want) < 2 * tiny)
        same = (got64 == rounded) | both_nan | both_tiny
        error = np.where(same, 0, np.where(np.isnan(error), inf, error))
    bad = np.argsort(-error)[:5]
    assert error[bad[0]] <= ulps, [(*[a[i] for a in context], got[i], want[i], float(error[i])) for i in bad]


def is_series(op: Op) -> bool:
    return P.get(f"{op.name}_p") in vars(special_series).values()


def names_of(op: Op) -> list[str]:
    # No complex dtype has 16-bit parts; one 16-bit dtype is enough for the programs that compute in float32 anyway.
    without = {"complex": ("float16", "bfloat16")}.get(op.result, ("float16",) if op.ulps >= 60 else ())
    return [name for kind in op.kinds for name in DTYPES[kind] if name not in without]


# Users' code where XLA approximates a function. What takes integers is exact, and a series consists of other rows' operations.
@pytest.mark.parametrize("op", [
    op if "i" in op.kinds or is_series(op) else pytest.param(op, marks=pytest.mark.own_code) for op in OPS], ids=repr)
def test_values_match_the_reference_over_all_dtypes(op, x64):
    """One compile for an operation: all its dtypes are outputs of one function."""
    names = names_of(op)
    inputs = [operands(op, name) for name in names]
    results = jaxlite.jit(lambda inputs: [op.call(*each) for each in inputs])(inputs)
    for name, arguments, result in zip(names, inputs, results, strict=True):
        assert result.dtype == result_dtype(op, dtype_of(name)) and not result.weak_type
        is_double = name in ("float64", "complex128")
        ulps = op.complex_ulps if name.startswith("complex") else op.ulps
        if is_double and op.double_ulps is not None:
            ulps = op.double_ulps
        elif name in ("float16", "bfloat16") or "float8" in name:
            ulps = op.half_ulps
        assert_near(np.asarray(result), expected(op, arguments), ulps, arguments)


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_eager_and_jit_agree_on_every_shape(op):
    """0-d, size 1, empty and two axes; a scalar and a size-1 axis beside arrays, for operations of two operands."""
    name = next(name for name in ("float32", "int32", "complex64") if KIND[dtype_of(name)] in op.kinds)
    flat = [each[:6] for each in operands(op, name)]
    whole = np.asarray(op.call(*flat))
    shaped = [[each[:size].reshape(shape) for each in flat] for size, shape in
              ((1, ()), (1, (1,)), (0, (0, 3)), (6, (2, 3)))]
    if op.name == "select_n":
        shaped = [case for case in shaped if case[0].shape == (1,)]
    if is_series(op):  # each shape is a program of some size
        shaped = [shaped[0], shaped[2]]
    results = jaxlite.jit(lambda cases: [op.call(*case) for case in cases])(shaped)
    for case, result in zip(shaped, results, strict=True):
        assert result.shape == case[0].shape and result.dtype == whole.dtype
        np.testing.assert_allclose(np.asarray(result).ravel(), whole[: result.size], rtol=1e-5)
    if op.arity == 2 and op.name not in ("select_n", "igammac", "igamma_grad_a", "random_gamma_grad"):
        x, y = flat
        row, column = jaxlite.jit(lambda x, y: (op.call(x[0], y), op.call(x.reshape(6, 1), y.reshape(1, 6))))(x, y)
        full = np.asarray(op.call(np.repeat(x, 6), np.tile(y, 6))).reshape(6, 6)
        np.testing.assert_allclose(row, full[0], rtol=1e-5)
        np.testing.assert_allclose(column, full, rtol=1e-5)


def test_every_primitive_has_a_row():
    rows = {op.name for op in OPS} | {"nextafter"}  # nextafter has a test of its own
    assert {primitive.name for primitive in P.values()} == rows
    assert len(rows) == len(OPS) + 1


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_dtypes_of_other_kinds_are_refused(op, x64):
    accepted = op.kinds.replace("f", "f8") + op.also
    unsupported = [names[0] for kind, names in DTYPES.items() if kind not in accepted]
    if op.name == "select_n":
        unsupported = []
    if op.name == "conj":
        unsupported = ["bool", "int4"]  # a floating operand becomes complex, if its dtype has a complex one
    for name in unsupported:
        with pytest.raises(TypeError, match=f"does not accept dtype {name}.*Accepted dtypes"):
            op.call(*[np.ones(2, dtype_of(name))] * op.arity)


BINARY = [op for op in OPS if op.arity > 1 and op.name not in ("select_n", "clamp")]


@pytest.mark.parametrize("op", BINARY, ids=repr)
def test_mixed_dtypes_and_wrong_shapes_are_type_errors(op):
    one, other = ("float32", "float16") if "f" in op.kinds else ("int32", "int8")
    ones = [np.ones(3, one)] * (op.arity - 1)
    with pytest.raises(TypeError, match=f"requires arguments to have the same dtypes, got .*{other}"):
        op.call(*ones, np.ones(3, other)) if op.name != "pow" else op.call(np.ones(3, "complex64"), np.ones(3, other))
    with pytest.raises(TypeError, match="got incompatible shapes for broadcasting: .*\\(4,\\)"):
        op.call(*ones, np.ones(4, one))
    with pytest.raises(TypeError, match="same number of dimensions"):
        op.call(*ones, np.ones((3, 3), one))


def test_weak_types_survive_only_among_weak_operands():
    def types(x, weak):
        return (lax.sin(weak), lax.add(weak, weak), lax.add(x, weak), lax.lt(weak, weak), lax.pow(weak, weak),
                lax.erf(weak), lax.igamma(weak, weak), lax.select_n(True, weak, weak), lax.clamp(0.0, weak, 1.0),
                lax.integer_pow(weak, 2), lax.igamma(x, weak))

    expected = [True, True, False, False, True, True, True, True, True, True, False]
    assert [out.weak_type for out in jaxlite.jit(types)(np.float32(1), 2.0)] == expected
    assert [out.weak_type for out in types(np.float32(1), 2.0)] == expected


def test_scalar_literals_stay_in_the_equation():
    text = str(jaxlite.make_jaxpr(lambda x: lax.igamma(lax.add(x, 1.0), x))(np.ones(3, np.float32)))
    assert "add a 1.0:f32[]" in text and "igamma b a" in text


# --- operations with rules of their own --------------------------------------------------------------


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_nextafter_steps_through_bit_patterns(name, x64):
    dtype = dtype_of(name)
    x = np.array([0.0, 1.0, -1.0, 1.0, inf, -inf, 2.0, nan, 1.0], dtype)
    y = np.array([1.0, 2.0, -2.0, -9.0, 0.0, 0.0, 2.0, 1.0, nan], dtype)
    got = np.asarray(lax.nextafter(x, y))
    bits = np.ascontiguousarray(x).view(f"i{dtype.itemsize}").astype(np.int64) + [1, 1, 1, -1, -1, -1, 0, 0, 0]
    want = bits.astype(f"i{dtype.itemsize}").view(dtype)
    assert np.array_equal(got[:7].view(f"i{dtype.itemsize}"), want[:7].view(f"i{dtype.itemsize}"))
    assert np.isnan(got[7:].astype(float)).all()


def test_rounding_methods():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 2.4, -0.2], np.float32)
    away, even = jaxlite.jit(lambda x: (lax.round(x), lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)))(x)
    assert np.array_equal(away, [1, 2, 3, -1, -2, -3, 2, 0]) and np.array_equal(even, np.round(x))
    assert np.signbit(np.asarray(away)[-1])
    with pytest.raises(ValueError):
        lax.round(x, 7)


@pytest.mark.parametrize("name", ["int8", "uint32", "float32", "complex64"])
def test_integer_pow_of_every_small_exponent(name):
    x = np.array([1, 2, 3, 5], name)
    powers = range(0 if "int" in name else -6, 12)
    results = jaxlite.jit(lambda x: [lax.integer_pow(x, y) for y in powers])(x)
    for y, result in zip(powers, results, strict=True):
        np.testing.assert_allclose(result, x ** (np.int64(y) if name in ("float32",) else y), rtol=1e-6)
    if "int" in name:
        with pytest.raises(TypeError, match="Integers cannot be raised to negative powers"):
            lax.integer_pow(x, -1)
    else:
        np.testing.assert_allclose(lax.reciprocal(x), 1 / x, rtol=1e-6)


def test_pow_takes_any_integer_exponent():
    x = np.array([1.5, -2.0, 0.0, 3.0], np.float32)
    for name in ("int8", "uint8", "int32"):
        y = np.array([2, 3, 0, 4], name)
        got = lax.pow(x, y)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, x.astype(float) ** y, rtol=1e-6)


def test_conj_of_real_is_complex_and_needs_a_complex_dtype():
    got = lax.conj(np.array([1.5, -2.0], np.float32))
    assert got.dtype == np.complex64 and np.array_equal(got, [1.5, -2.0])
    assert lax.conj_p.bind(np.complex64(1 + 2j)) == 1 - 2j  # as libraries call it, without its dtype
    with pytest.raises(TypeError, match="no complex dtype"):
        lax.conj(np.ones(2, np.float16))
    with pytest.raises(TypeError, match="no complex dtype"):
        lax.complex(np.ones(2, np.float16), np.ones(2, np.float16))


def test_complex_functions_at_the_edges():
    """No overflow on the way, NumPy's signs of zero, and lexicographic order."""
    large = np.array([1e30 + 1e30j, -1e30 + 2e29j, 1e-30 + 1e-30j], np.complex64)
    zeros = np.array([1 + 0j, 1 - 0j, complex(-0.0, -0.0), 2 + 0j, complex(3, -0.0)], np.complex64)
    x = np.array([1 + 5j, 1 + 2j, 2 - 1j, -0.0 + 0j], np.complex64)
    y = np.array([1 + 4j, 1 + 3j, 1 + 9j, 1j], np.complex64)
    sizes, logs, roots, sines, cosines, most, least = jaxlite.jit(lambda a, z, x, y: (
        lax.abs(a), lax.log(a), lax.sqrt(a), lax.sin(z), lax.cos(z), lax.max(x, y), lax.min(x, y)))(large, zeros, x, y)
    wide = large.astype(np.complex128)
    np.testing.assert_allclose(sizes, np.abs(wide), rtol=1e-6)
    np.testing.assert_allclose(logs, np.log(wide), rtol=1e-6)
    np.testing.assert_allclose(roots, np.sqrt(wide), rtol=1e-6)
    for got, want in ((sines, np.sin(zeros)), (cosines, np.cos(zeros))):
        np.testing.assert_allclose(got, want, rtol=1e-6)
        signs = np.signbit(np.asarray(got).imag) == np.signbit(want.imag)
        assert signs[zeros != 0].all()  # cos(0) is 1 + 0j whatever the signs of zero, as in JAX
    assert np.array_equal(most, [1 + 5j, 1 + 3j, 2 - 1j, 1j]) and np.array_equal(least, [1 + 4j, 1 + 2j, 1 + 9j, 0])


def test_select_n():
    cases = [np.full((2, 3), value, np.int16) for value in (10, 20, 30, 40, 50)]
    which = np.array([[0, 1, 2], [3, 4, 1]], np.int32)
    assert np.array_equal(lax.select_n(which, *cases), (which + 1) * 10)
    assert np.array_equal(lax.select_n(np.int32(3), *cases), cases[3])
    assert np.array_equal(lax.select_n(np.bool_(False), *cases[:2]), cases[0])
    assert np.array_equal(lax.select_n(which, cases[0]), cases[0])
    assert np.array_equal(lax.select(which > 1, cases[0], cases[1]), np.where(which > 1, 10, 20))
    for dtype in (np.int8, np.uint8, np.uint32):
        assert np.array_equal(lax.select_n(which.astype(dtype), *cases), (which + 1) * 10)
    with jaxlite.enable_x64(True):
        assert lax.select_n(1, cases[0][0], cases[1][0]).tolist() == [20] * 3
    with pytest.raises(ValueError, match="at least one case"):
        lax.select_n(which)
    for arguments, message in [
        ((which.astype(np.float32), *cases), "boolean or integer"),
        ((which > 1, *cases), "boolean `which`"), ((which, cases[0], cases[0][:1]), "same shapes"),
        ((which, cases[0], cases[0].astype(np.int8)), "same dtypes"),
        ((which[0], *cases), "scalar or have the same shape"),
    ]:
        with pytest.raises(TypeError, match=message):
            lax.select_n(*arguments)


def test_clamp_takes_scalar_or_full_bounds():
    x = np.array([[-3.0, 0.5], [nan, 9.0]], np.float32)
    np.testing.assert_array_equal(lax.clamp(np.float32(-1), x, np.float32(1)), np.clip(x, -1, 1))
    np.testing.assert_array_equal(lax.clamp(x - 1, x, np.float32(4)), np.minimum(x, 4))
    with pytest.raises(TypeError, match="clamp requires min.shape == operand.shape"):
        lax.clamp(np.ones(2, np.float32), x, np.float32(1))
    with pytest.raises(TypeError, match="same dtypes"):
        lax.clamp(np.float16(0), x, np.float32(1))
    with pytest.raises(TypeError, match="does not accept dtype complex64"):
        lax.clamp(*[np.ones(2, np.complex64)] * 3)


# --- special functions over wide domains --------------------------------------------------------------


def log_uniform(rng, low, high, count):
    return 10 ** rng.uniform(low, high, count)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 4e-5), ("float64", 3e-13)])
def test_incomplete_gamma_over_eleven_decades(dtype, tolerance, x64):
    rng = np.random.default_rng(1)
    spread = log_uniform(rng, -3, 8, 400)
    a = np.concatenate([log_uniform(rng, -3, 4, 400), spread, log_uniform(rng, -6, 0, 200)]).astype(dtype)
    near = spread * (1 + np.clip(rng.normal(size=400) / np.sqrt(spread), -0.9, 9))
    x = np.concatenate([log_uniform(rng, -3, 4, 400), near, log_uniform(rng, -6, 0, 200)]).astype(dtype)
    lower, upper = jaxlite.jit(lambda a, x: (lax.igamma(a, x), lax.igammac(a, x)))(a, x)
    a, x = a.astype(float), x.astype(float)
    floor = 1e-30  # below, the condition number of the tails takes over
    np.testing.assert_allclose(lower, sp.gammainc(a, x), rtol=tolerance, atol=floor)
    np.testing.assert_allclose(upper, sp.gammaincc(a, x), rtol=tolerance, atol=floor)


def test_incomplete_functions_at_the_edges_of_their_domains():
    a = np.array([0, 0, 1, 1, 1, inf, inf, inf, -1, 0.5, nan, 1, 1e-30], np.float32)
    x = np.array([0, 1, 0, inf, -1, 1, inf, 0, 1, -0.5, 1, nan, 1], np.float32)
    lower, upper, slope, sample = jaxlite.jit(lambda a, x: (
        lax.igamma(a, x), lax.igammac(a, x), lax.igamma_grad_a(a, x), lax.random_gamma_grad(a, x)))(a, x)
    np.testing.assert_allclose(lower, [nan, 1, 0, 1, nan, 0, nan, 0, nan, nan, nan, nan, 1], rtol=1e-6)
    np.testing.assert_allclose(upper, [nan, 0, 1, 0, nan, 1, nan, 1, nan, nan, nan, nan, 2.1938394e-31], rtol=1e-6)
    assert np.isnan(np.asarray(slope)[[0, 1, 3, 4, 8, 9, 10, 11]]).all() and slope[2] == 0 and sample[2] == 0
    a = np.array([0, 1, 0, inf, 1, inf, 1, 1, 1, 1, 1, -1, 2, nan, 0, 2, 2], np.float32)
    b = np.array([1, 0, 0, 1, inf, inf, 1, 1, 1, 1, 1, 1, -1, 1, 1, 3, 3], np.float32)
    x = np.array([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0, 1, -0.1, 1.1, nan, 0.5, 0.5, 0.5, 0, 0, 1], np.float32)
    np.testing.assert_allclose(lax.betainc(a, b, x), [1, 0, nan, 0, 1, nan, 0, 1, *[nan] * 6, 0, 0, 1])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 8e-5), ("float64", 1e-12)])
def test_incomplete_beta_over_eight_decades(dtype, tolerance, x64):
    rng = np.random.default_rng(2)
    a, b = log_uniform(rng, -2, 6, 500).astype(dtype), log_uniform(rng, -2, 6, 500).astype(dtype)
    mean, spread = a / (a + b), np.sqrt(a * b / (a + b + 1)) / (a + b)
    x = np.clip(mean + rng.normal(size=500) * spread, 1e-4, 0.9999).astype(dtype)
    want = sp.betainc(*[each.astype(float) for each in (a, b, x)])
    np.testing.assert_allclose(lax.betainc(a, b, x), want, rtol=tolerance, atol=1e-30)


# igamma_grad_a and random_gamma_grad from 60 digits: central differences of mpmath's incomplete gamma function.
SLOPES = [
    (0.11774154752492905, 0.43556055426597595, -0.6960776945472805, 4.145814704373789),
    (0.0526001937687397, 0.00023500743554905057, -5.210523408859026, 0.035134792941618906),
    (0.0009202631772495806, 0.000501486356370151, -6.977496706464031, 3.8288711303634417),
    (0.3611154854297638, 0.00024738817592151463, -0.45929253515199286, 0.005620393198540831),
    (0.0014058648375794291, 0.03521936386823654, -2.7950250930490177, 72.81326995533226),
    (0.001955730374902487, 0.7818159461021423, -0.3220779536018666, 281.1998280019677),
    (4.084152698516846, 6.802862644195557, -0.0818439859993894, 1.3297677904288947),
    (0.003758099628612399, 0.09205227345228195, -1.8901232101691054, 51.10817226241901),
    (0.18281663954257965, 0.01810438558459282, -1.9270878959882065, 0.37342178627070927),
    (0.054396852850914, 0.6222972869873047, -0.4646943023934426, 9.873048118318389),
    (0.28853484988212585, 46.706298828125, -8.010695610912086e-22, 7.402143354400364),
    (0.005888960789889097, 7.645166397094727, -5.7767442323267766e-05, 154.38989271801688),
    (49.624900817871094, 64.98616027832031, -0.00683486531109768, 1.1447252125290515),
    (1883.2916259765625, 1815.38427734375, -0.002670415401079673, 0.9818372967226842),
    (42.44662094116211, 42.74472427368164, -0.06107573256973381, 1.007452755813397),
    (12.007529258728027, 16.09605598449707, -0.056432770826711776, 1.1697790458119266),
    (638.955078125, 579.16845703125, -0.0008377207252997656, 0.9519319522711215),
    (1.056983470916748, 0.159746915102005, -0.30165196237761177, 0.3811699629786369),
    (0.037618037313222885, 1.1074275970458984, -0.19883271931795599, 17.288447099236194),
    (0.019088005647063255, 0.26196539402008057, -1.0108737486335222, 18.297801584886315),
]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-13)])
def test_slopes_along_the_shape_parameter(dtype, tolerance, x64):
    a, x, slope, sample = np.array(SLOPES).T
    slopes = jaxlite.jit(lambda a, x: (lax.igamma_grad_a(a, x), lax.random_gamma_grad(a, x)))
    got = slopes(a.astype(dtype), x.astype(dtype))
    np.testing.assert_allclose(got[0], slope, rtol=tolerance, atol=1e-37)
    np.testing.assert_allclose(got[1], sample, rtol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 5e-5), ("float64", 1e-7)])
def test_second_derivatives_of_samples_are_those_of_the_series(dtype, tolerance, x64):
    shape = np.array([0.05, 0.9, 3, 25, 250, 1000])
    a, x = np.broadcast_arrays(shape, shape * np.array([0.01, 0.7, 1, 1.05, 3])[:, None])
    slope = jaxlite.jit(lambda a, x: jaxlite.jvp(lambda a: lax.random_gamma_grad(a, x), (a,), (a,))[1])
    differences = lax.random_gamma_grad(a * (1 + 1e-5), x) - lax.random_gamma_grad(a * (1 - 1e-5), x)
    np.testing.assert_allclose(slope(a.astype(dtype), x.astype(dtype)), differences / 2e-5, rtol=tolerance)


def test_samples_of_gamma_distributions_have_hessians(x64):
    sample = lambda a: jaxlite.random.gamma(jaxlite.random.key(3), a)
    a, step = np.array([0.5, 1.2, 3.0]), 1e-4
    x = sample(a)
    move = step * lax.random_gamma_grad(a, x)  # at a fixed probability
    differences = lax.random_gamma_grad(a + step, x + move) - lax.random_gamma_grad(a - step, x - move)
    hessian = jaxlite.jit(jaxlite.hessian(lambda a: sample(a).sum()))(a)
    np.testing.assert_allclose(hessian, np.diag(differences / (2 * step)), rtol=1e-5)


def test_an_element_does_not_depend_on_its_neighbours():
    a, x = np.array([0.5, 30.0, 150.0], np.float32), np.array([0.1, 31.0, 149.0], np.float32)
    together = np.asarray(lax.igamma_grad_a(a, x))
    assert [float(lax.igamma_grad_a(a[i:i + 1], x[i:i + 1])[0]) for i in range(3)] == together.tolist()


def test_decompositions_keep_64_bits_when_compiled_with_the_option_off():
    with jaxlite.enable_x64():
        lowered = jaxlite.jit(lax.betainc).trace(*[np.ones(2, np.float64)] * 3)
    assert "f64" in lowered.lower().as_text()


# --- accuracy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["exp", "exp2", "sin", "tanh"])
@pytest.mark.parametrize("accuracy, text", [
    (lax.AccuracyMode.HIGHEST, "mode = #stablehlo.result_accuracy_mode<HIGHEST>"),
    (lax.Tolerance(1e-5, 0, 2), "atol = 1.000000e-05, ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>"),
], ids=["mode", "tolerance"])
def test_accuracy_reaches_the_operation_and_its_derivative(name, accuracy, text):
    function = getattr(lax, name)

    def accurate(x):
        return function(x, accuracy=accuracy)

    x = np.float32(0.7)
    assert text.split(", mode")[0] in jaxlite.jit(accurate).lower(x).as_text()
    np.testing.assert_allclose(accurate(x), function(x), rtol=1e-6)
    np.testing.assert_allclose(jaxlite.grad(accurate)(x), jaxlite.grad(function)(x), rtol=1e-6)
    assert accuracy in [eqn.params.get("accuracy") for eqn in jaxlite.make_jaxpr(jaxlite.vmap(accurate))(x[None]).eqns]
    with pytest.raises(TypeError, match="accuracy must be None, a"):
        function(x, accuracy="highest")


def log_gamma_of_decimals(x: float) -> float:
    """Stirling's series 40 steps to the right, with 50 digits: the libraries' functions are not exact beside the zeros."""
    with decimal.localcontext(prec=50):
        far = decimal.Decimal(x) + 40
        steps = sum((decimal.Decimal(x) + step).ln() for step in range(40))
        bernoulli = [(1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510)]
        rest = sum(decimal.Decimal(top) / (bottom * 2 * k * (2 * k - 1) * far ** (2 * k - 1))
                   for k, (top, bottom) in enumerate(bernoulli, 1))
        tau = 2 * decimal.Decimal("3.14159265358979323846264338327950288419716939937510")
        return float((far - decimal.Decimal("0.5")) * far.ln() - far + tau.ln() / 2 + rest - steps)


@pytest.mark.parametrize(("dtype", "ulps"), [(np.float32, 6), (np.float64, 6)])
def test_lgamma_is_exact_beside_its_zeros(dtype, ulps, x64):
    steps = np.concatenate([10.0 ** -np.arange(1, 8), np.linspace(0, 0.5, 101)])
    x = np.concatenate([zero + sign * steps for zero in (1, 2) for sign in (-1, 1)]).astype(dtype)
    want = np.array([log_gamma_of_decimals(float(each)) for each in x])
    got = np.asarray(lax.lgamma(x), np.float64)
    assert (np.abs(got - want) <= ulps * np.finfo(dtype).eps * np.abs(want) + 1e-27).all()  # the series ends there
    assert (got[x == 1] == 0).all() and (got[x == 2] == 0).all()


def test_lgamma_and_its_derivative_keep_no_arrays_of_what_they_have_in_common():
    x = np.linspace(0.1, 50, 4096, dtype=np.float32)
    compiled = jaxlite.jit(jaxlite.value_and_grad(lambda x: lax.lgamma(x).sum())).lower(x).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 2 * x.nbytes


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_digamma_at_infinities(dtype):
    values = jaxlite.jit(lax.digamma)(np.array([-np.inf, np.inf, np.nan, -1], dtype))
    np.testing.assert_array_equal(values.astype(np.float32), np.float32([np.nan, np.inf, np.nan, np.nan]))
