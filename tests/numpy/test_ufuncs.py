"""Elementwise functions of jaxlite.numpy against NumPy: values, result dtypes, weak types, edge values, errors."""

import functools
import math

import ml_dtypes
import numpy as np
import pytest
import scipy.special

import jaxlite as jax
import jaxlite.numpy as jnp

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(name) for name in ("bool", "int8", "int32", "uint8", "float16", "float32", "complex64")] + [BF16]
RELATIVE = {np.dtype("float16"): 4e-3, BF16: 3e-2, np.dtype("float32"): 3e-6, np.dtype("complex64"): 1e-5}


def kind(dtype):
    return "f" if dtype == BF16 else {"b": "b", "i": "i", "u": "u", "f": "f", "c": "c"}[np.dtype(dtype).kind]


def inexact(dtype):
    return dtype if kind(dtype) in "fc" else np.dtype("float32")


def real_of(dtype):
    return np.dtype("float32") if kind(dtype) == "c" else dtype


def numeric(dtype):
    return np.dtype("int32") if kind(dtype) == "b" else dtype


def same(dtype):
    return dtype


def boolean(dtype):
    return np.dtype(bool)


def wide(x):
    """The values in a dtype in which NumPy computes accurately."""
    x = np.asarray(x)
    return x.astype({"b": bool, "i": np.int64, "u": np.int64, "f": np.float64, "c": np.complex128}[kind(x.dtype)])


def sample(dtype, low=-3.0, high=3.0, seed=0, size=6):
    rng = np.random.default_rng(seed)
    if kind(dtype) == "b":
        return rng.integers(0, 2, size).astype(bool)
    if kind(dtype) in "iu":
        least = max(math.ceil(low), 0 if kind(dtype) == "u" else -100)
        return rng.integers(least, math.floor(high) + 1, size).astype(dtype)
    values = rng.uniform(low, high, size)
    return (values + 1j * rng.uniform(-1, 1, size) if kind(dtype) == "c" else values).astype(dtype)


def check(name, got, expected, dtype):
    assert got.dtype == dtype, name
    assert got.shape == np.shape(expected), name
    got, expected = wide(got), np.asarray(expected)
    if kind(dtype) in "fc":
        tolerance = RELATIVE[np.dtype(dtype)]
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance / 4, err_msg=name)
    else:
        np.testing.assert_array_equal(got, expected, err_msg=name)


# --- functions of one argument -----------------------------------------------------------------------

# name: (kinds of dtypes, result dtype, domain, NumPy's function if its name differs)
UNARY = {
    **dict.fromkeys("exp exp2 expm1 sin cos tan sinh cosh tanh arctan arcsinh".split(), ("biufc", inexact, (-3, 3))),
    **dict.fromkeys("sqrt log log2 log10".split(), ("iufc", inexact, (1, 9))),
    "log1p": ("biufc", inexact, (0, 9)),
    **dict.fromkeys("arcsin arccos".split(), ("fc", inexact, (-0.9, 0.9))),
    "arctanh": ("fc", inexact, (-0.9, 0.9)),
    "arccosh": ("iufc", inexact, (1, 9)),
    "cbrt": ("biuf", inexact, (-8, 8)),
    "reciprocal": ("fc", inexact, (0.5, 3)),
    "square": ("iufc", numeric, (-3, 3)),
    **dict.fromkeys("deg2rad rad2deg radians degrees".split(), ("biuf", inexact, (-90, 90))),
    "sinc": ("biufc", inexact, (-2, 2)),
    "fabs": ("biuf", inexact, (-3, 3)),
    **dict.fromkeys("floor ceil trunc".split(), ("biuf", same, (-3, 3))),
    "rint": ("iufc", inexact, (-3, 3)),
    "round": ("iufc", same, (-3, 3)),
    **dict.fromkeys("isfinite isinf isnan iscomplex isreal logical_not".split(), ("biufc", boolean, (-3, 3))),
    **dict.fromkeys("isposinf isneginf".split(), ("biuf", boolean, (-3, 3))),
    "signbit": ("biuf", boolean, (-3, 3)),
    "sign": ("iufc", same, (-3, 3)),
    "negative": ("ifc", same, (-3, 3)),
    "positive": ("iufc", same, (-3, 3)),
    "absolute": ("biufc", real_of, (-3, 3)),
    "invert": ("bi", same, (-3, 3)),
    **dict.fromkeys("real imag".split(), ("biufc", real_of, (-3, 3))),
    "conj": ("iufc", same, (-3, 3)),
    "nan_to_num": ("biufc", same, (-3, 3)),
    "i0": ("iuf", inexact, (-3, 3)),
}
ALIASES = {
    "abs": "absolute", "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan",
    "atanh": "arctanh", "bitwise_not": "invert", "bitwise_invert": "invert", "conjugate": "conj", "around": "round",
}  # fmt: skip


@pytest.fixture(scope="module", params=DTYPES, ids=str)
def unary_results(request):
    """All functions of one argument that take a dtype, in one program."""
    dtype = request.param
    names = [name for name, (kinds, *_) in UNARY.items() if kind(dtype) in kinds]
    arguments = {name: sample(dtype, *UNARY[name][2]) for name in names}
    got = jax.jit(lambda arguments: {name: getattr(jnp, name)(x) for name, x in arguments.items()})(arguments)
    return dtype, arguments, got


def test_functions_of_one_argument_are_numpys(unary_results):
    dtype, arguments, got = unary_results
    for name, x in arguments.items():
        exact = UNARY[name][1] is inexact and kind(dtype) in "biu"  # NumPy has float16 for booleans
        expected = getattr(np, name)(wide(x).astype(float) if exact else wide(x))
        check(f"{name} {dtype}", got[name], expected, UNARY[name][1](dtype))


def test_aliases_are_the_same_functions():
    x = np.array([0.3, -0.6, 0.9], "f4")
    for alias, name in ALIASES.items():
        y = x > 0 if name == "invert" else x + 1 if name == "arccosh" else x
        np.testing.assert_array_equal(getattr(jnp, alias)(y), getattr(jnp, name)(y), err_msg=alias)


EDGES = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -2.5, 1e30, -1e30], "f4")
ON_EDGES = [name for name in UNARY if "f" in UNARY[name][0] and name not in ("i0", "conj", "deg2rad", "rad2deg", "radians",
                                                                             "degrees")]


def test_infinities_nans_and_zeros_are_treated_as_numpy_does():
    names = [*ON_EDGES, "modf"]
    got = jax.jit(lambda x: {name: getattr(jnp, name)(x) for name in names})(EDGES)
    with np.errstate(all="ignore"):
        for name in names:
            ours, theirs = got[name], getattr(np, name)(EDGES)
            if name in ("sin", "cos", "tan"):  # of 1e30 only a good argument reduction knows
                ours, theirs = ours[:-2], theirs[:-2]
            at_whole = 3e-8 if name == "sinc" else 0  # where NumPy's is 0 up to the rounding of pi x
            np.testing.assert_allclose(ours, theirs, rtol=3e-6, atol=at_whole, err_msg=name)


def test_signs_of_zeros():
    x = np.array([0.0, -0.0, -0.3], "f4")
    got = jax.jit(lambda x: [f(x) for f in (jnp.floor, jnp.ceil, jnp.trunc, jnp.rint, jnp.sqrt, jnp.cbrt)])(x)
    with np.errstate(all="ignore"):
        for ours, f in zip(got, (np.floor, np.ceil, np.trunc, np.rint, np.sqrt, np.cbrt), strict=True):
            np.testing.assert_array_equal(np.signbit(ours)[:2], np.signbit(f(x))[:2], err_msg=f.__name__)
    np.testing.assert_array_equal(jnp.signbit(x), [False, True, True])


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (2, 1, 3)])
def test_shapes_are_kept(shape):
    x = np.full(shape, 0.5, "f4")
    got = jax.jit(lambda x: [jnp.sin(x), jnp.isinf(x), jnp.frexp(x), jnp.sinc(x), jnp.signbit(x), jnp.imag(x)])(x)
    assert {leaf.shape for leaf in jax.tree.leaves(got)} == {shape}


@pytest.mark.parametrize("dtype", ["float16", "float32", BF16], ids=str)
def test_frexp_ldexp_spacing_nextafter(dtype):
    dtype = np.dtype(dtype)
    finfo = ml_dtypes.finfo(dtype)
    x = np.array([0.0, -0.0, 1.0, -1.5, 0.1, 1000.0, np.inf, -np.inf, np.nan, float(finfo.max),
                  float(finfo.smallest_normal)], dtype)
    (mantissa, exponent), whole, gap, above = jax.jit(lambda x: (
        jnp.frexp(x), jnp.ldexp(*jnp.frexp(x)), jnp.spacing(x), jnp.nextafter(x, jnp.full_like(x, np.inf))))(x)
    m, e = np.frexp(x.astype("f8"))
    finite = np.isfinite(x.astype("f8"))
    np.testing.assert_array_equal(wide(mantissa), m)
    np.testing.assert_array_equal(np.where(finite, exponent, 0), np.where(finite, e, 0))
    assert exponent.dtype == np.int32 and mantissa.dtype == dtype
    np.testing.assert_array_equal(wide(whole), wide(x))
    normal = np.array([False, False, *[True] * 4, *[False] * 4, False])
    if dtype != BF16:
        x = x[normal]
        np.testing.assert_array_equal(np.abs(np.asarray(gap)[normal]), np.abs(np.spacing(x)))
        np.testing.assert_array_equal(np.asarray(above)[normal], np.nextafter(x, np.array(np.inf, dtype)))
    assert np.isnan(wide(gap)[6:9]).all()


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e8m0fnu, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_frexp_and_ldexp_of_eight_bits(dtype):
    x = np.array([0.5, 1, 2, 4, 16, 256]).astype(dtype)
    mantissa, exponent = jax.jit(jnp.frexp)(x)
    m, e = np.frexp(x.astype("f4"))
    np.testing.assert_array_equal(mantissa.astype("f4"), m)
    np.testing.assert_array_equal(exponent, e)
    assert mantissa.dtype == x.dtype
    scaled = jnp.ldexp(x, np.array([0, 1, -1, 2, -3, 0]))
    assert scaled.dtype == x.dtype
    np.testing.assert_array_equal(scaled.astype("f4"), [0.5, 2, 1, 16, 2, 256])
    assert not jnp.signbit(x).any()


def test_frexp_of_subnormal_numbers():
    x = np.array([1e-40, -1.4e-45, 1.1754942e-38], "f4")
    mantissa, exponent = jnp.frexp(x)
    m, e = np.frexp(x)
    np.testing.assert_array_equal(np.asarray(mantissa), m)
    np.testing.assert_array_equal(exponent, e)


def test_ldexp_reaches_from_the_least_to_the_greatest_float():
    x = np.array([1.0, 1.5, 2.0**-126, np.inf, 0.0, np.nan, -1.0, 2.0**120], "f4")
    n = np.array([127, -126, 253, -1000, 1000, 5, 1000, -246])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(jnp.ldexp(x, n), np.ldexp(x, n))
    assert jnp.ldexp(1, 2).dtype == np.float32


def test_modf_has_the_signs_and_infinities_of_numpy():
    x = np.array([1.5, -1.5, np.inf, -np.inf, np.nan, 3.0], "f4")
    for ours, theirs in zip(jnp.modf(x), np.modf(x), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_sinc_near_zero():
    x = np.array([0.0, -0.0, 1e-30, 1e-3, -1e-3, 0.05, 1.0, 2.5], "f4")
    np.testing.assert_allclose(jnp.sinc(x), np.sinc(x.astype("f8")), atol=1e-6)


def test_sinc_is_accurate_far_from_zero():
    x = np.array([3.0, -7.0, 1000.5, 123456.75, 3e38, np.inf, np.nan, -0.5, 0.5], "f4")
    expected = np.sinc(x[:4].astype("f8")).tolist() + [0.0, np.nan, np.nan, 2 / np.pi, 2 / np.pi]
    np.testing.assert_allclose(jnp.sinc(x), expected, rtol=1e-6, atol=1e-15)


def test_bitwise_count():
    for dtype in ("int8", "uint8", "int32"):
        x = np.array([0, 1, 7, 100, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
        got = jnp.bitwise_count(x)
        assert got.dtype == np.uint8
        np.testing.assert_array_equal(got, np.bitwise_count(x))


# --- functions of two arguments ----------------------------------------------------------------------

# name: (kinds, result dtype of the promoted dtype, domain of the second argument)
BINARY = {
    "add": ("biufc", same), "multiply": ("biufc", same), "subtract": ("iufc", same),
    "true_divide": ("ifc", inexact), "float_power": ("f", inexact), "arctan2": ("iuf", inexact),
    "hypot": ("iuf", inexact), "copysign": ("iuf", inexact),
    "floor_divide": ("iuf", numeric), "remainder": ("iuf", numeric), "fmod": ("iuf", numeric),
    "maximum": ("biuf", same), "minimum": ("biuf", same), "fmax": ("biuf", same), "fmin": ("biuf", same),
    "logaddexp": ("iuf", inexact), "logaddexp2": ("iuf", inexact), "heaviside": ("iuf", inexact),
    **dict.fromkeys("equal not_equal less less_equal greater greater_equal".split(), ("biufc", boolean)),
    **dict.fromkeys("logical_and logical_or logical_xor".split(), ("biufc", boolean)),
    **dict.fromkeys("bitwise_and bitwise_or bitwise_xor".split(), ("biu", same)),
    **dict.fromkeys("left_shift right_shift".split(), ("iu", same)),
    "gcd": ("iu", same), "lcm": ("iu", same),
}  # fmt: skip
PAIRS = [("bool", "bool"), ("int8", "int8"), ("uint8", "int8"), ("int32", "float32"), ("float32", "float32"),
         ("float16", "float16"), (BF16, BF16), ("complex64", "complex64"), ("bool", "int32"), ("uint8", "uint8")]
PROMOTED = {("uint8", "int8"): "int16", ("int32", "float32"): "float32", ("bool", "int32"): "int32"}


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_functions_of_two_arguments_are_numpys(pair):
    promoted = np.dtype(PROMOTED.get(pair, pair[0]))
    x = sample(np.dtype(pair[0]), -5, 5, seed=1).reshape(2, 3)
    y = sample(np.dtype(pair[1]), 1, 4, seed=2)[:3]
    names = [name for name, (kinds, _) in BINARY.items() if kind(promoted) in kinds]
    got = jax.jit(lambda x, y: {name: getattr(jnp, name)(x, y) for name in names})(x, y)
    both = {"b": bool, "i": promoted, "u": promoted, "f": np.float64, "c": np.complex128}[kind(promoted)]
    for name in names:
        wider = float if BINARY[name][1] is inexact and kind(promoted) in "iu" else both  # NumPy has float16 for int8
        with np.errstate(over="ignore", invalid="ignore"):
            expected = getattr(np, name)(x.astype(wider), y.astype(wider))
        check(f"{name} {pair}", got[name], expected, BINARY[name][1](promoted))


def test_every_ufunc_of_numpy_is_there():
    """All that NumPy and JAX both have; matmul and others are no elementwise functions."""
    ufuncs = {name for name in dir(np) if isinstance(getattr(np, name), np.ufunc)}
    missing = {name for name in ufuncs if not hasattr(jnp, name)}
    assert missing <= {"isnat", "matmul", "vecdot", "matvec", "vecmat"}


FLOAT_EDGES = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 7.0, -7.0, np.inf, -np.inf, np.nan], "f4")


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod", "true_divide", "maximum", "minimum", "fmax",
                                  "fmin", "hypot", "arctan2", "copysign", "heaviside", "logaddexp", "less", "equal"])
def test_two_arguments_on_edge_values(name):
    x, y = FLOAT_EDGES[:, None], FLOAT_EDGES[None, :]
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x, y)
    np.testing.assert_allclose(getattr(jnp, name)(x, y), expected, rtol=2e-6, atol=1e-7)


def test_integer_division_rounds_down_and_remainders_have_the_divisors_sign():
    x = np.array([7, -7, 7, -7, 6, -6, 0, 127, -128], "int8")[:, None]
    y = np.array([2, -2, 3, -3, 5, 127], "int8")
    quotient, rest = jnp.divmod(x, y)
    np.testing.assert_array_equal(quotient, x // y)
    np.testing.assert_array_equal(rest, x % y)
    np.testing.assert_array_equal(jnp.fmod(x, y), np.fmod(x, y))
    np.testing.assert_array_equal(jnp.remainder(x, 0), np.zeros_like(x))
    np.testing.assert_array_equal(jnp.fmod(x, 0), np.zeros_like(x))
    u = np.array([7, 200, 0], "uint8")
    np.testing.assert_array_equal(jnp.divmod(u, np.uint8(9))[0], u // 9)


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint32"])
def test_integer_division_by_known_numbers(dtype):
    """Their signs need no test: one comparison is left in the program."""
    limits = np.iinfo(dtype)
    x = np.unique(np.array([*range(-20, 21), limits.min, limits.max]).astype(dtype))
    for divisor in (1, 7, -1, -3) if limits.min else (1, 7):
        divide = jax.jit(functools.partial(lambda divisor, x: jnp.divmod(x, divisor), divisor))
        with np.errstate(over="ignore"):
            wanted = x // x.dtype.type(divisor), x % x.dtype.type(divisor)
        for got, expected in zip(divide(x), wanted, strict=True):
            np.testing.assert_array_equal(got, expected)
    assert "sign" not in str(jax.make_jaxpr(lambda x: x // 7)(x))
    many = np.resize(x, 1 << 16)
    divide = jax.jit(lambda x: x // 7).lower(many)  # XLA looks at each of equal divisors
    assert "bitcast_convert" in divide.as_text()
    np.testing.assert_array_equal(divide.compile()(many), many // x.dtype.type(7))


def test_divmod_of_floats():
    x, y = np.array([7.5, -7.5, 0.5, -0.5, 3.0], "f4"), np.array([2.0, 2.0, -2.0, -2.0, 1.5], "f4")
    for ours, theirs in zip(jnp.divmod(x, y), np.divmod(x, y), strict=True):
        np.testing.assert_allclose(ours, theirs)


def test_shifts():
    x = np.array([-8, -1, 1, 64], "int32")
    np.testing.assert_array_equal(jnp.right_shift(x, 1), x >> 1)
    np.testing.assert_array_equal(jnp.right_shift(x.astype("uint32"), 1), x.astype("uint32") >> 1)
    np.testing.assert_array_equal(jnp.left_shift(x, 40), [0, 0, 0, 0])
    np.testing.assert_array_equal(jnp.right_shift(x, 40), [-1, -1, 0, 0])
    np.testing.assert_array_equal(jnp.bitwise_left_shift(x, 1), x << 1)
    np.testing.assert_array_equal(jnp.bitwise_right_shift(x, 1), x >> 1)


def test_divisors():
    x, y = np.array([12, -12, 0, 0, 17, 100])[:, None], np.array([8, -8, 0, 5])
    np.testing.assert_array_equal(jnp.gcd(x, y), np.gcd(x, y))
    np.testing.assert_array_equal(jnp.lcm(x, y), np.lcm(x, y))
    np.testing.assert_array_equal(jnp.gcd(np.uint8(200), np.uint8(120)), 40)
    assert jnp.lcm(0, 0) == 0
    assert jnp.gcd(np.zeros((0, 2), int), 3).shape == (0, 2)


def test_logaddexp_does_not_overflow():
    assert jnp.logaddexp(1e30, 1e30) == np.float32(1e30)
    np.testing.assert_allclose(jnp.logaddexp(1000.0, 1001.0), np.logaddexp(1000.0, 1001.0), rtol=1e-6)
    assert jnp.logaddexp(-np.inf, -np.inf) == -np.inf
    z, w = np.complex64(1 + 2j), np.complex64(0.5 - 1j)
    np.testing.assert_allclose(jnp.logaddexp(z, w), np.log(np.exp(z) + np.exp(w)), rtol=1e-5)
    np.testing.assert_allclose(jnp.logaddexp2(z, w), np.log2(np.exp2(z) + np.exp2(w)), rtol=1e-5)


def test_complex_numbers_compare_by_real_then_imaginary_part():
    x = np.array([1 + 1j, 1 + 2j, 2 + 0j, 1 + 1j], "c8")
    y = np.array([1 + 2j, 1 + 1j, 1 + 5j, 1 + 1j], "c8")
    for name in ("less", "less_equal", "greater", "greater_equal", "equal", "maximum", "minimum"):
        np.testing.assert_array_equal(getattr(jnp, name)(x, y), getattr(np, name)(x, y), err_msg=name)


# --- powers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7, -1, -2, 0.5, 2.5, -1.5, np.int32(3), np.array(2), True])
def test_powers_with_a_concrete_exponent(exponent):
    x = np.array([0.5, 1.0, 2.0, 3.5], "f4")
    got = jnp.power(x, exponent)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, x.astype("f8") ** np.float64(exponent), rtol=1e-6)


def test_powers_of_integers():
    x, n = np.array([0, 1, 2, -3, 5]), np.array([0, 1, 2, 3, 9])
    np.testing.assert_array_equal(jnp.power(x[:, None], n), x[:, None] ** n)
    np.testing.assert_array_equal(jnp.power(2, n), 2**n)
    assert jnp.power(np.int8(2), 3).dtype == np.int8
    assert jnp.power(x, 2.0).dtype == np.float32
    assert jnp.power(np.array([True, False]), np.array([True, True])).dtype == np.int32
    np.testing.assert_allclose(jnp.power(np.float32(-2), np.arange(4)), [1, -2, 4, -8])
    assert jnp.power(np.ones(2, BF16), np.arange(2)).dtype == BF16


def test_an_integer_power_is_part_of_the_program():
    program = str(jax.make_jaxpr(lambda x: (x**2, jnp.power(x, -1)))(np.ones(3, "f4")))
    assert "integer_pow[y=2]" in program and "integer_pow[y=-1]" in program


def test_negative_powers_of_integers_are_refused():
    with pytest.raises(TypeError, match="negative powers"):
        jnp.power(np.arange(3), -1)
    with pytest.raises(TypeError, match="negative powers"):
        jnp.power(2, -1)


# --- result types ------------------------------------------------------------------------------------


def typed(x):
    return f"{x.dtype}{'*' if x.weak_type else ''}"


@pytest.mark.parametrize("expression, expected", [
    (lambda: jnp.add(1, 2), "int32*"), (lambda: jnp.add(1, 2.0), "float32*"), (lambda: jnp.add(1, 2j), "complex64*"),
    (lambda: jnp.add(True, 1), "int32*"), (lambda: jnp.add(True, True), "bool"),
    (lambda: jnp.true_divide(1, 2), "float32*"),
    (lambda: jnp.add(np.int8(1), 300), "int8"), (lambda: jnp.add(np.int8(1), 1.5), "float32*"),
    (lambda: jnp.add(np.float16(1), 1.5), "float16"), (lambda: jnp.add(np.float64(1), 1), "float32"),
    (lambda: jnp.add(BF16.type(1), np.float16(1)), "float32"), (lambda: jnp.sin(1), "float32*"),
    (lambda: jnp.sin(np.int8(1)), "float32"), (lambda: jnp.sin(BF16.type(1)), "bfloat16"),
    (lambda: jnp.floor(1), "int32*"),
    (lambda: jnp.rint(2), "float32"), (lambda: jnp.abs(1 + 1j), "float32*"), (lambda: jnp.imag(1), "int32*"),
    (lambda: jnp.power(2, 3), "int32*"), (lambda: jnp.float_power(2, 3), "float32*"),
    (lambda: jnp.square(True), "int32"),
    (lambda: jnp.hypot(3, 4), "float32*"), (lambda: jnp.copysign(np.uint8(1), 2), "float32"),
    (lambda: jnp.negative(1), "int32*"), (lambda: jnp.log10(1000.0), "float32"),
    (lambda: jnp.clip(np.int32(3), 1.5), "float32*"),
    (lambda: jnp.where(True, 1, 2.0), "float32*"), (lambda: jnp.remainder(5, 3), "int32*"),
    (lambda: jnp.floor_divide(7.0, 2), "float32*"), (lambda: jnp.round(1.5), "float32*"),
    (lambda: jnp.add(np.uint8(1), -1), "uint8"),
    (lambda: jnp.maximum(1, 2.5), "float32*"), (lambda: jnp.heaviside(np.float16(1), 1), "float16"),
])  # fmt: skip
def test_result_types_with_python_scalars(expression, expected):
    assert typed(expression()) == expected


def test_64_bit_types():
    with jax.enable_x64(True):
        assert jnp.add(np.float64(1), np.float32(1)).dtype == np.float64
        assert jnp.sin(np.int64(1)).dtype == np.float64
        mantissa, exponent = jnp.frexp(np.float64(0.1))
        assert (float(mantissa), int(exponent)) == math.frexp(0.1)
        assert float(jnp.ldexp(np.float64(1.5), 1000)) == math.ldexp(1.5, 1000)
        assert jnp.power(np.int64(3), 30) == 3**30
        np.testing.assert_allclose(jnp.sinc(np.float64(0.01)), np.sinc(0.01), rtol=1e-14)
    assert jnp.add(np.float64(1), 1).dtype == np.float32


def test_integers_wrap_into_the_arrays_dtype():
    assert jnp.add(np.uint8(1), 300) == 45
    assert jnp.add(np.float32(0), 1e300) == np.inf


# --- rounding, clipping, replacing -------------------------------------------------------------------


@pytest.mark.parametrize("decimals", [0, 1, 3, -1, -2])
def test_round(decimals):
    x = np.array([0.5, 1.5, 2.5, -0.25, 123.456, 15.0, 25.0, -1234.5], "f4")
    np.testing.assert_allclose(jnp.round(x, decimals), np.round(x.astype("f8"), decimals), rtol=1e-6)
    i = np.array([15, 25, 35, -15, -25, 14, 16, 1250, 1350, 0])
    np.testing.assert_array_equal(jnp.round(i, decimals), np.round(i, decimals))
    z = np.array([1.26 + 2.74j], "c8")
    np.testing.assert_allclose(jnp.around(z, decimals), np.round(z, decimals), rtol=1e-6)


def test_round_of_half_precision_does_not_overflow():
    np.testing.assert_array_equal(jnp.round(np.array([1000.25], "f2"), 2), np.array([1000.25], "f2"))


def test_round_refuses_booleans():
    with pytest.raises(ValueError, match="boolean"):
        jnp.round(np.array([True]))


def test_clip():
    x = np.array([-2.0, 0.5, 3.0, np.nan], "f4")
    np.testing.assert_array_equal(jnp.clip(x, 0, 1), np.clip(x, 0, 1))
    np.testing.assert_array_equal(jnp.clip(x, min=0), np.maximum(x, 0))
    np.testing.assert_array_equal(jnp.clip(x, max=x[1]), np.minimum(x, 0.5))
    np.testing.assert_array_equal(jnp.clip(x), x)
    np.testing.assert_array_equal(jnp.clip(x, 1, 0), np.array([0, 0, 0, np.nan]))
    assert jnp.clip(x[:, None], np.zeros(2, "f4"), 1).shape == (4, 2)
    with pytest.raises(ValueError, match="complex"):
        jnp.clip(x, 1j)
    with pytest.raises(ValueError, match="No input"):
        jnp.clip()


def test_nan_to_num():
    x = np.array([np.nan, np.inf, -np.inf, 1.5], "f4")
    np.testing.assert_array_equal(jnp.nan_to_num(x), np.nan_to_num(x))
    np.testing.assert_array_equal(jnp.nan_to_num(x, nan=7, posinf=8.0, neginf=9), [7, 8, 9, 1.5])
    np.testing.assert_array_equal(jnp.nan_to_num(x, nan=np.arange(4)), np.nan_to_num(x))
    z = np.array([complex(np.nan, np.inf), 1 + 1j], "c8")
    np.testing.assert_array_equal(jnp.nan_to_num(z), np.nan_to_num(z))
    np.testing.assert_array_equal(jnp.nan_to_num(np.array([np.inf], "f2")), np.array([65504], "f2"))
    i = np.arange(3)
    np.testing.assert_array_equal(jnp.nan_to_num(i), i)


def test_isclose():
    x = np.array([1.0, 1.0, np.inf, np.inf, np.nan, 0.0, 1e-9, 100.0], "f4")
    y = np.array([1.000001, 1.1, np.inf, -np.inf, np.nan, 1e-9, 0.0, 100.0005], "f4")
    for options in ({}, {"equal_nan": True}, {"rtol": 0.2}, {"atol": 0.5, "rtol": 0.0}):
        np.testing.assert_array_equal(jnp.isclose(x, y, **options), np.isclose(x, y, **options), err_msg=str(options))
    assert jnp.isclose(np.arange(3), np.arange(3)).all() and jnp.isclose(1j, 1j + 1e-7)


# --- complex numbers, kinds of objects ---------------------------------------------------------------


def test_angle():
    z = np.array([1 + 1j, -1 + 0j, -2j, 0], "c8")
    np.testing.assert_allclose(jnp.angle(z), np.angle(z), rtol=1e-6)
    np.testing.assert_allclose(jnp.angle(z, deg=True), np.angle(z, deg=True), rtol=1e-6)
    np.testing.assert_allclose(jnp.angle(np.array([-1, 1])), [np.pi, 0], rtol=1e-6)
    weak, turn = jnp.full(2, 0.5), jnp.full(2, 1j)
    assert jnp.angle(weak).weak_type and not jnp.angle(0.5).weak_type and not jnp.angle(turn, deg=True).weak_type


def test_kinds_of_objects():
    x = jnp.add(np.ones(2, "f4"), 1)
    assert jnp.isscalar(1) and jnp.isscalar("a") and jnp.isscalar(np.float32(1)) and jnp.isscalar(x.sum())
    assert not jnp.isscalar(x) and not jnp.isscalar([1]) and not jnp.isscalar(None)
    assert jnp.iscomplexobj(1j) and jnp.iscomplexobj([1j]) and not jnp.iscomplexobj(x) and not jnp.iscomplexobj(None)
    blocks = type("Blocks", (list,), {"dtype": np.dtype("complex64")})([jnp.ones((2, 3)), jnp.ones(4)])
    assert jnp.iscomplexobj(jax.ShapeDtypeStruct((2,), "complex64")) and not jnp.isrealobj(blocks)
    assert jnp.isrealobj(x) and jnp.isrealobj("a")
    assert jax.jit(lambda x: x if jnp.isrealobj(x) else None)(x) is not None


# --- where -------------------------------------------------------------------------------------------


def test_where():
    condition = np.array([True, False, True])
    x, y = np.array([1, 2, 3], "i4"), np.array([[10.0], [20.0]], "f4")
    np.testing.assert_array_equal(jnp.where(condition, x, y), np.where(condition, x, y))
    np.testing.assert_array_equal(jnp.where(x - 2, x, 0), [1, 0, 3])
    np.testing.assert_array_equal(jnp.where(True, x, 0), x)
    np.testing.assert_array_equal(jnp.where(np.ones((2, 0), bool), 1, 2), np.ones((2, 0)))
    np.testing.assert_array_equal(jax.jit(jnp.where)(condition, 1j, x), np.where(condition, 1j, x))


def test_where_with_a_condition_alone_gives_indices():
    x = np.array([[0, 1], [2, 0]])
    for ours, theirs in zip(jnp.where(x), np.where(x), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    (index,) = jax.jit(lambda x: jnp.where(x, size=3, fill_value=-1))(np.array([0, 5, 0, 6]))
    np.testing.assert_array_equal(index, [1, 3, -1])


@pytest.mark.parametrize("call, error", [
    (lambda: jnp.where(True, 1, None), TypeError), (lambda: jnp.where(True, None, 1), TypeError),
    (lambda: jnp.where([True], 1, 2), TypeError), (lambda: jnp.where(True, [1], 2), TypeError),
    (lambda: jnp.where(True, 1, 2, size=3), ValueError), (lambda: jnp.where(True, 1, 2, fill_value=0), ValueError),
])  # fmt: skip
def test_where_refuses(call, error):
    with pytest.raises(error):
        call()


# --- errors ------------------------------------------------------------------------------------------

ONES, BOOLS = np.ones(3, "f4"), np.ones(3, bool)


@pytest.mark.parametrize("call, error, text", [
    (lambda: jnp.add([1], 2), TypeError, "add requires ndarray or scalar arguments.*list.*position 0"),
    (lambda: jnp.add(1, None), TypeError, "position 1"),
    (lambda: jnp.sin("a"), TypeError, "str"),
    (lambda: jnp.sin((1.0,)), TypeError, "tuple"),
    (lambda: jnp.add(ONES), TypeError, "add"),
    (lambda: jnp.add(ONES, ONES, ONES), TypeError, "add"),
    (lambda: jnp.sin(x=ONES), TypeError, "sin"),
    (lambda: jnp.add(ONES, np.ones(4, "f4")), TypeError, r"\(3,\).*\(4,\)"),
    (lambda: jnp.add(ONES, np.ones((2, 1, 2), "f4")), ValueError, r"\(3,\).*\(2, 1, 2\)"),
    (lambda: jnp.add(np.array(["a"]), 1), TypeError, "<U1|ndarray"),
    (lambda: jnp.add(np.array([None]), 1), TypeError, "object|ndarray"),
    (lambda: jnp.subtract(BOOLS, BOOLS), TypeError, "bool"),
    (lambda: jnp.negative(BOOLS), TypeError, "bool"),
    (lambda: jnp.sign(BOOLS), TypeError, "bool"),
    (lambda: jnp.bitwise_and(ONES, 1), TypeError, "float32"),
    (lambda: jnp.left_shift(ONES, 1), TypeError, "float32"),
    (lambda: jnp.invert(ONES), TypeError, "float32"),
    (lambda: jnp.floor_divide(ONES, 2j), TypeError, "complex"),
    (lambda: jnp.remainder(ONES, 2j), TypeError, "complex"),
    (lambda: jnp.cbrt(1j), TypeError, "complex"),
    (lambda: jnp.fabs(1j), TypeError, "complex"),
    (lambda: jnp.floor(1j), TypeError, "complex"),
    (lambda: jnp.frexp(1j), TypeError, "complex"),
    (lambda: jnp.copysign(1j, 1), TypeError, "complex"),
    (lambda: jnp.hypot(1j, 1), ValueError, "complex"),
    (lambda: jnp.signbit(1j), ValueError, "complex"),
    (lambda: jnp.isposinf(1j), ValueError, "complex"),
    (lambda: jnp.spacing(1j), ValueError, "complex"),
    (lambda: jnp.i0(1j), ValueError, "complex"),
    (lambda: jnp.ldexp(1.0, 2.0), ValueError, "float32"),
    (lambda: jnp.gcd(1.0, 2), ValueError, "integers"),
    (lambda: jnp.lcm(True, True), ValueError, "integers"),
    (lambda: jnp.add(ONES, 2**40), OverflowError, "int32"),
    (lambda: jnp.add(ONES, ONES, out=ONES), NotImplementedError, "out"),
    (lambda: jnp.add(ONES, ONES, where=BOOLS), NotImplementedError, "where"),
    (lambda: jnp.round(ONES, out=ONES), NotImplementedError, "^The 'out' argument to jnp.round is not supported"),
    (lambda: jnp.modf(ONES, out=ONES), NotImplementedError, "^The 'out' argument to jnp.modf is not supported"),
    (lambda: jnp.bitwise_count(ONES), TypeError, "float32"),
])  # fmt: skip
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()


# --- programs ----------------------------------------------------------------------------------------


def body(function, *args):
    """The operations of a function's program, in order."""
    return [eqn.primitive.name for eqn in jax.make_jaxpr(function)(*args).jaxpr.eqns]


@pytest.mark.parametrize("function, expected", [
    (lambda x: x + 1, "add"), (lambda x: 2.0 * x, "mul"), (lambda x: -x, "neg"), (lambda x: x > 0, "gt"),
    (lambda x: jnp.sin(x), "sin"), (lambda x: abs(x), "abs"), (lambda x: jnp.log10(x), "log mul"),
    (lambda x: x**2.5, "pow"), (lambda x: jnp.where(x > 0, x, 0), "gt broadcast_in_dim select_n"),
    (lambda x: jnp.clip(x, 0, 1), "max min"), (lambda x: +x, ""), (lambda x: jnp.isnan(x), "ne"),
    (lambda x: x % 2, "rem ne lt lt ne and add select_n"), (lambda x: jnp.logical_not(x), "ne not"),
    (lambda x: x // 2, "rem eq sub select_n div ne sign sign ne and sub select_n round"),
])  # fmt: skip
def test_programs_are_short(function, expected):
    assert body(function, np.ones(3, "f4")) == expected.split()


def test_derivatives_of_a_series_are_polynomials():
    slope = str(jax.make_jaxpr(jax.grad(jnp.sinc))(0.3))
    assert slope.count(" = polynomial") == 2 and slope.count(" = mul ") < 25


def test_scalars_stay_literals_of_the_arrays_dtype():
    program = str(jax.make_jaxpr(lambda x: x * 3 + 0.5)(np.ones(2, BF16)))
    assert "mul a 3.0:bf16[]" in program and "0.5:bf16[]" in program


def test_ranks_are_equalised():
    assert body(lambda x, y: x + y, np.ones(3, "f4"), np.ones((2, 3), "f4")) == ["broadcast_in_dim", "add"]


def test_rank_promotion_can_be_refused():
    with jax.numpy_rank_promotion("raise"):
        with pytest.raises(ValueError, match="rank_promotion"):
            jnp.add(np.ones((2, 3), "f4"), np.ones(3, "f4"))
        assert jnp.add(np.ones((2, 3), "f4"), 1).shape == (2, 3)
    with jax.numpy_rank_promotion("warn"), pytest.warns(UserWarning, match="rank promotion"):
        jnp.multiply(np.ones((2, 3), "f4"), np.ones(3, "f4"))


# --- ufunc objects -----------------------------------------------------------------------------------

UFUNCS = ("add subtract multiply maximum minimum logical_and logical_or logical_xor bitwise_and bitwise_or "
          "bitwise_xor logaddexp logaddexp2").split()
MATRIX = np.array([[1.0, 2.0, 3.0], [4.0, 0.0, 6.0]], "f4")
INTEGERS = np.array([[5, 3, 6], [4, 0, 7]])


def operand(name):
    return INTEGERS if name.startswith("bitwise") else MATRIX


@pytest.mark.parametrize("name", UFUNCS)
def test_ufunc_methods_are_numpys(name):
    ours, theirs, x = getattr(jnp, name), getattr(np, name), operand(name)
    assert (ours.nin, ours.nout, ours.nargs) == (2, 1, 2) and ours.__name__ == name
    assert ours.identity == theirs.identity or name.startswith("logaddexp")
    index, values = np.array([0, 1, 1]), np.array([[1], [2], [3]], x.dtype)

    def methods(u, x):
        return {"reduce": u.reduce(x), "reduce 1": u.reduce(x, axis=1, keepdims=True),
                "reduce all": u.reduce(x, axis=None), "accumulate": u.accumulate(x),
                "accumulate 1": u.accumulate(x, axis=-1), "outer": u.outer(x, x[0]),
                "reduceat": u.reduceat(x, np.array([0, 2, 1]), axis=1),
                "initial": u.reduce(x, initial=x.dtype.type(2))}

    got = jax.jit(lambda x: methods(ours, x))(x)
    for method, expected in ({} if name == "subtract" else methods(theirs, x)).items():
        found = got[method] != 0 if expected.dtype == bool else got[method]  # reduceat keeps the dtype, as in JAX
        np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=method)
    if name == "subtract":
        np.testing.assert_allclose(got["reduce 1"], theirs.reduce(x, axis=1, keepdims=True))
        np.testing.assert_allclose(got["accumulate 1"], theirs.accumulate(x, axis=1))
    if not name.startswith("logical"):
        expected = x.copy()
        theirs.at(expected, index, values)
        np.testing.assert_allclose(ours.at(jnp.asarray(x), index, values, inplace=False), expected, rtol=1e-6)


def test_reductions_with_a_mask_and_of_nothing():
    np.testing.assert_array_equal(jnp.add.reduce(MATRIX, where=MATRIX > 1), np.add.reduce(MATRIX, where=MATRIX > 1))
    np.testing.assert_array_equal(jnp.subtract.reduce(MATRIX, where=MATRIX > 1, initial=0), [-4, -2, -9])
    assert jnp.add.reduce(np.zeros((0,), "f4")) == 0 and jnp.multiply.reduce(np.zeros((0,), "f4")) == 1
    assert jnp.logaddexp.reduce(np.zeros((0,), "f4")) == -np.inf
    assert jnp.add.reduce(np.ones(3, "int8")).dtype == np.int32 and jnp.add.reduce(BOOLS) == 3
    assert jnp.add.reduce(np.ones(3, "uint8")).dtype == np.uint32
    assert jnp.add.reduce(np.ones(3, "f4"), dtype="int8").dtype == np.int8
    assert jnp.add.accumulate(BOOLS).dtype == np.int32
    assert jnp.full(3, 2.0).weak_type and not jnp.maximum.accumulate(jnp.full(3, 2.0)).weak_type
    for each in (jnp.maximum, jnp.minimum):
        assert not each.reduce(jnp.full(3, 2)).weak_type and not each.reduce(2.0, axis=None, keepdims=True).weak_type
    assert jnp.add.reduceat(jnp.full(3, 2), np.array([0, 2])).weak_type
    assert jnp.subtract.reduceat(jnp.full(3, 2.0), np.array([0, 2])).weak_type


def test_reduceat_starts_each_slice_with_its_first_element():
    x = jnp.array([3.0, 0.0, 2.0, 5.0])
    assert jnp.logical_and.reduceat(x, np.array([0, 2, 3])).tolist() == [0, 2, 5]
    assert jnp.logical_and.reduceat(x, np.array([0, 2, 3]), dtype=bool).tolist() == [False, True, True]
    assert jnp.logical_xor.reduceat(x, np.array([0, 2])).tolist() == [1, 0]
    less = jnp.frompyfunc(lambda a, b: a < b, 2, 1).reduceat(jnp.full(4, 2.0), np.array([0, 3]))
    assert less.dtype == np.float32 and less.tolist() == [1, 2] and less.weak_type  # 2 < 2 is 0, which is < 2
    with pytest.raises(ValueError, match="requires a single integer axis"):
        jnp.add.reduceat(x, np.array([0]), axis=None)
    with pytest.raises(ValueError, match="axis 0 is out of bounds"):
        jnp.add.accumulate(jnp.float32(1))


@pytest.mark.parametrize("call, error", [
    (lambda: jnp.negative.reduce(MATRIX), ValueError), (lambda: jnp.negative.accumulate(MATRIX), ValueError),
    (lambda: jnp.negative.outer(MATRIX, MATRIX), ValueError), (lambda: jnp.add.reduce([1, 2]), TypeError),
    (lambda: jnp.add.reduce(MATRIX, axis=2), ValueError), (lambda: jnp.maximum.reduce(np.zeros(0)), ValueError),
    (lambda: jnp.subtract.reduce(MATRIX, where=MATRIX > 1), ValueError),
    (lambda: jnp.add.at(MATRIX, 0, 1), NotImplementedError),
    (lambda: jnp.add.at(MATRIX, 0, inplace=False), TypeError),
    (lambda: jnp.negative.at(MATRIX, 0, 1, inplace=False), TypeError),
    (lambda: jnp.add.outer([1], 2), TypeError), (lambda: jnp.negative(1, 2), TypeError),
])  # fmt: skip
def test_ufunc_methods_refuse(call, error):
    with pytest.raises(error):
        call()


@pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types")
def test_dtypes_at_indices():
    """Sums, differences and products keep the dtype of the array, as updates do; other functions give their own."""
    x = jnp.array([0, -1, 4])
    assert {op.at(x, 0, 1.5, inplace=False).dtype.name for op in (jnp.add, jnp.subtract, jnp.multiply)} == {"int32"}
    assert jnp.maximum.at(x, 0, 1.5, inplace=False).tolist() == [1.5, -1, 4]
    np.testing.assert_allclose(jnp.logaddexp.at(x, jnp.array([0, 0]), 0, inplace=False), [np.log(3), -1, 4], rtol=1e-6)


def test_ufuncs_of_one_argument_at_indices():
    x = np.arange(4)
    expected = x.copy()
    np.negative.at(expected, [2, 3, 3])
    np.testing.assert_array_equal(jnp.negative.at(x, np.array([2, 3, 3]), inplace=False), expected)
    assert repr(jnp.negative) == "<jnp.ufunc 'negative'>"


def test_a_function_of_scalars_as_a_ufunc():
    shapes = []

    def product(x, y):
        shapes.append((x.shape, y.shape))
        return x * y

    ours, theirs = jnp.frompyfunc(product, 2, 1, identity=1), np.multiply
    x, y = MATRIX, MATRIX[0]
    np.testing.assert_array_equal(ours(x, y), theirs(x, y))
    assert set(shapes) == {((), ())}
    np.testing.assert_array_equal(ours.reduce(x), theirs.reduce(x))
    np.testing.assert_array_equal(ours.accumulate(x, axis=1), theirs.accumulate(x, axis=1))
    np.testing.assert_array_equal(ours.outer(x, y), theirs.outer(x, y))
    assert ours.reduce(np.zeros(0, "f4")) == 1
    # From the identity on, if there is one, which may not be neutral.
    halved = jnp.frompyfunc(lambda x, y: x / 2 + y, 2, 1, identity=8)
    assert halved.reduce(np.array([1, 2], "f4")) == (8 / 2 + 1) / 2 + 2
    assert jnp.frompyfunc(lambda x, y: x / 2 + y, 2, 1).reduce(np.array([1, 2], "f4")) == 2.5
    both = jnp.frompyfunc(lambda x, y: (x + y, x - y), 2, 2)
    total, difference = both(x, 1)
    np.testing.assert_array_equal(total, x + 1)
    np.testing.assert_array_equal(difference, x - 1)
    with pytest.raises(ValueError, match="broadcast"):
        ours(x, np.ones(4, "f4"))
    with pytest.raises(ValueError, match="binary"):
        jnp.frompyfunc(lambda x: x, 1, 1).reduce(x)


def test_numbers_become_arrays_while_tracing():
    """What has nothing to do is no exception: `jnp.floor(2)` has an array's methods inside of `jit` too."""
    def f():
        for x in (2, np.int8(2), np.arange(2)):
            for fun in (jnp.floor, jnp.ceil, jnp.trunc, jnp.round, jnp.conj, jnp.imag, jnp.positive, jnp.abs):
                found = fun(x)
                assert isinstance(found, jax.Array) and found.aval == jax.typeof(jnp.asarray(x)), (fun, x)
        assert isinstance(jnp.abs(np.uint8(1)), jax.Array) and isinstance(jnp.imag(2.0), jax.Array)
    jax.make_jaxpr(f)()


@pytest.mark.parametrize("name, base", [("logaddexp", math.e), ("logaddexp2", 2)])
def test_sums_of_powers_are_folded_without_overflow(name, base):
    ufunc, log = getattr(jnp, name), np.log(base)
    x = np.array([[1, 2, 300], [-np.inf, -np.inf, 4]], "f4")
    expected = scipy.special.logsumexp(x.astype("f8") * log, axis=1) / log
    np.testing.assert_allclose(ufunc.reduce(x, axis=1), expected, rtol=1e-6)
    np.testing.assert_allclose(ufunc.reduce(x, axis=None), scipy.special.logsumexp(x.astype("f8") * log) / log, rtol=1e-6)
    np.testing.assert_allclose(ufunc.reduce(x, axis=1, where=x < 3, initial=0.5),
                               [scipy.special.logsumexp(np.array([0.5, 1, 2]) * log) / log, 0.5], rtol=1e-6)
    running = getattr(np, name).accumulate(x.astype("f8"), axis=1)
    np.testing.assert_allclose(ufunc.accumulate(x, axis=1), running, rtol=1e-6)
    assert ufunc.reduce(np.zeros((0, 2), "f4")).tolist() == [-np.inf] * 2
    assert ufunc.reduce(np.array([-np.inf, -np.inf], "f4")) == -np.inf
    assert ufunc.reduce(np.array([np.inf, -np.inf], "f4")) == np.inf and np.isnan(ufunc.reduce(np.array([np.nan, 1], "f4")))
    assert ufunc.reduce(np.arange(3)).dtype == np.float32  # of integers as well
    weights = np.array([1, 2, 3], "f4")
    shares = base**weights.astype("f8")
    np.testing.assert_allclose(jax.grad(lambda x: ufunc.reduce(x))(weights), shares / shares.sum(), rtol=1e-6)
    np.testing.assert_allclose(ufunc.reduce(x[:1] + 0.5j, axis=1).real, ufunc.reduce(x[:1], axis=1), rtol=1e-6)
    np.testing.assert_allclose(ufunc.accumulate(x[0] + 0.5j).real, running[0], rtol=1e-6)
    loops = {eqn.primitive.name for eqn in jax.make_jaxpr(lambda x: ufunc.reduce(x, axis=1))(x).eqns} & {"scan", "while"}
    assert not loops


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor",
                                  "logical_and", "logical_or", "logical_xor"])
def test_an_initial_value_counts_once_beside_a_mask(name):
    x = np.arange(6).reshape(2, 3)
    options = {"axis": 1, "initial": 6, "where": x % 2 > 0}
    np.testing.assert_array_equal(getattr(jnp, name).reduce(x, **options), getattr(np, name).reduce(x, **options))
