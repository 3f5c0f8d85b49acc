"""Derivatives of jaxlite.numpy, of its linalg and fft, and of jaxlite.nn: a row for each function that has any.

Each row is checked in double precision at a random point away from kinks: forward mode against central differences,
reverse mode by `<ct, J v> == <J^T ct, v>`, forward over reverse against differences of the gradient, reverse over reverse
by the same law. Rows of a family are one compiled program, since compiling is what this costs.
What happens at kinks is another table, with the values that JAX gives.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax, nn
from jaxlite.core.jaxpr import check_jaxpr, eval_jaxpr
from jaxlite.scipy.special import log_ndtr
from tests.rule_checks import assert_adjoint, assert_close, difference, draw_like, quick_jit

inf, nan = np.inf, np.nan
Draw = Callable[[np.random.Generator], np.ndarray]


def N(*shape: int) -> Draw:
    return lambda rng: rng.normal(size=shape)


def POS(*shape: int) -> Draw:
    return lambda rng: rng.uniform(0.3, 2.0, size=shape)


def UNIT(*shape: int) -> Draw:
    return lambda rng: rng.uniform(-0.9, 0.9, size=shape)


def ABOVE1(*shape: int) -> Draw:
    return lambda rng: rng.uniform(1.1, 3.0, size=shape)


def Z(*shape: int) -> Draw:
    return lambda rng: rng.normal(size=shape) + 1j * rng.normal(size=shape)


def REGULAR(*shape: int) -> Draw:
    """Square matrices far from singular."""
    return lambda rng: rng.normal(size=shape) + 3 * np.diag(1 + np.arange(shape[-1]))


def DEFINITE(*shape: int) -> Draw:
    """Symmetric positive definite matrices."""
    def draw(rng: np.random.Generator) -> np.ndarray:
        x = rng.normal(size=shape)
        return x @ np.swapaxes(x, -1, -2) + 2 * np.diag(1 + np.arange(shape[-1]))
    return draw


def SORTED(*shape: int) -> Draw:
    return lambda rng: np.sort(rng.uniform(-2, 2, size=shape)) + 0.3 * np.arange(shape[-1])


class Row:
    """A function by its name in jaxlite.numpy or jaxlite.nn; a word after it tells rows of one function apart.

    `call` takes the drawn arguments; without it they go to the function itself, with the keywords.
    """

    def __init__(self, label: str, *draws: Draw, call: Callable | None = None, **keywords: Any) -> None:
        self.label, self.name = label, label.split()[0]
        self.function = function_named(self.name)
        self.call = call or (lambda *args: self.function(*args, **keywords))
        self.by_hand = call
        rng = np.random.default_rng(zlib.crc32(label.encode()))  # a row's point depends on nothing but the row
        self.primals = [np.asarray(draw(rng)) for draw in draws]

    def outputs(self, *args: Any) -> list[Any]:
        return [each for each in jaxlite.tree.leaves(self.call(*args)) if each.dtype.kind in "fc"]


def function_named(name: str) -> Callable:
    value: Any = nn if name.startswith("nn.") else jnp
    for part in name.removeprefix("nn.").split("."):
        value = getattr(value, part)
    return value


AT = np.array([2, 0, 2])
ROWS_AT = np.array([[1, 0, 1], [0, 1, 1]])
MASK = np.array([[True, False, True], [False, True, True]])
SPREAD = np.array([0.3, 1.1, 2.4])
THREE = N(2, 3)


def _modulus(x: Any) -> Any:  # eigenvectors are known up to a phase
    return jnp.real(x * jnp.conj(x))


FAMILIES: dict[str, list[Row]] = {
    "elementwise": [
        *(Row(name, N(3)) for name in "abs absolute fabs negative positive exp exp2 expm1 sin cos tan sinh cosh tanh "
          "arcsinh asinh arctan atan square sinc i0 conj conjugate real imag angle deg2rad degrees rad2deg radians cbrt "
          "nan_to_num sign floor ceil trunc rint round around copy array asarray".split()),
        *(Row(name, POS(3)) for name in "log log2 log10 log1p sqrt reciprocal".split()),
        *(Row(name, UNIT(3)) for name in "arcsin arccos arctanh asin acos atanh".split()),
        Row("arccosh", ABOVE1(3)), Row("acosh", ABOVE1(3)),
        Row("astype", N(3), call=lambda x: jnp.astype(x, np.float64)),
        Row("modf", N(3)), Row("frexp", POS(3)),
        Row("ldexp", N(3), call=lambda x: jnp.ldexp(x, np.array([1, -2, 3]))),
        Row("clip", N(4), N(4), call=lambda x, low: jnp.clip(x, low - 1, low + 1)),
        Row("unwrap", lambda rng: np.cumsum(rng.uniform(-5, 5, (2, 5)), 1)),
        Row("select", N(3), N(3), N(), call=lambda x, y, z: jnp.select([AT == 2, AT == 5], [x * x, y], z)),
        Row("where", THREE, N(3), call=lambda x, y: jnp.where(MASK, x * y, y)),
        Row("choose", N(3), N(3), N(3), call=lambda *xs: jnp.choose(AT, list(xs))),
        Row("piecewise", N(4), call=lambda x: jnp.piecewise(x, [x < 0, x > 1], [lambda x: x**2, jnp.sin, 3.0])),
        Row("heaviside", N(3), N(3)),
        Row("vectorize", N(2, 3), N(3), call=lambda x, y: jnp.vectorize(jnp.vdot, signature="(n),(n)->()")(x, y)),
        Row("frompyfunc", N(3), N(3), call=lambda x, y: jnp.frompyfunc(lambda a, b: a * jnp.sin(b), 2, 1).outer(x, y)),
    ],
    "complex": [
        *(Row(f"{name} complex", Z(3)) for name in "abs exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh arcsin "
          "arccos arctan arcsinh arccosh arctanh sqrt square reciprocal conj real imag angle sinc negative positive "
          "sum prod mean var std cumsum cumprod".split()),
        *(Row(f"{name} complex", Z(3), Z(3)) for name in "add subtract multiply divide power dot vdot inner outer".split()),
        Row("where complex", Z(3), N(3), call=lambda x, y: jnp.where(AT == 2, x, y)),
        Row("matmul complex", Z(2, 3), Z(3, 2)),
        Row("linalg.norm complex", Z(2, 3)), Row("linalg.det complex", Z(3, 3)), Row("linalg.inv complex", Z(3, 3)),
        Row("linalg.solve complex", Z(3, 3), Z(3)),
    ],
    "binary": [
        *(Row(name, THREE, N(3)) for name in "add subtract multiply divide true_divide arctan2 atan2 hypot logaddexp "
          "logaddexp2 maximum minimum fmax fmin copysign".split()),
        *(Row(name, POS(2, 3), N(3)) for name in "power float_power".split()),
        *(Row(name, N(2, 3), POS(3)) for name in "fmod mod remainder floor_divide divmod".split()),
        Row("power integer", N(3), call=lambda x: jnp.power(x, 3) + jnp.power(x, -2)),
        Row("pow", POS(2, 3), N(2, 1)),
        *(Row(f"{name} reduce", N(2, 3), call=lambda x, name=name: getattr(jnp, name).reduce(x, axis=0))
          for name in "add multiply maximum minimum logaddexp".split()),
        *(Row(f"{name} accumulate", N(2, 3), call=lambda x, name=name: getattr(jnp, name).accumulate(x, axis=1))
          for name in "add multiply logaddexp".split()),
        Row("multiply outer", N(2), N(3), call=lambda x, y: jnp.multiply.outer(x, y)),
        Row("add at", N(4), N(3), call=lambda x, y: jnp.add.at(x, AT, y, inplace=False)),
        Row("add reduceat", N(4), call=lambda x: jnp.add.reduceat(x, np.array([0, 2]))),
    ],
    "reductions": [
        *(Row(name, N(2, 3)) for name in "sum prod mean var std max min amax amin ptp median average trace nansum nanprod "
          "nanmean nanvar nanstd nanmax nanmin nanmedian corrcoef cov".split()),
        *(Row(f"{name} axis", N(2, 3, 2), axis=1) for name in "sum prod mean var std max min median nansum nanprod nanmean "
          "nanvar nanstd nanmax nanmin nanmedian cumsum cumprod nancumsum nancumprod cumulative_sum cumulative_prod".split()),
        *(Row(f"{name} where", N(2, 3), axis=0, where=MASK, **extra) for name, extra in [
            ("sum", {}), ("prod", {}), ("mean", {}), ("max", {"initial": -9.0}), ("min", {"initial": 9.0})]),
        Row("var where", N(4, 2), axis=0, where=np.array([[True], [True], [False], [True]]), ddof=1),
        Row("std where", N(4, 2), axis=0, where=np.array([[True], [True], [False], [True]]), keepdims=True),
        Row("cumsum", N(2, 3)), Row("cumprod", N(2, 3)), Row("nancumsum", N(3)), Row("nancumprod", N(3)),
        Row("cumulative_sum", N(3), include_initial=True), Row("cumulative_prod", N(3), include_initial=True),
        Row("prod with a zero", N(3), call=lambda x: jnp.prod(x * np.array([1.0, 0.0, 1.0]) + x * x * 0)),
        Row("average weighted", N(2, 3), POS(3), call=lambda x, w: jnp.average(x, 1, w)),
        *(Row(f"{name} {method}", N(5), call=lambda x, name=name, method=method: getattr(jnp, name)(
            x, np.array([0.3, 0.8]) * (100 if "percentile" in name else 1), method=method))
          for name in ("quantile", "percentile", "nanquantile", "nanpercentile")
          for method in (("linear", "nearest") if name == "quantile" else ("linear",))),
        Row("quantile of q", N(3, 4), UNIT(2), call=lambda x, q: jnp.quantile(x, 0.45 + q * q / 2, axis=1)),
        Row("cov weighted", N(2, 4), POS(4), call=lambda x, w: jnp.cov(x, aweights=w)),
        Row("corrcoef two", N(4), N(4)), Row("trapezoid", N(2, 4), SORTED(4)),
        Row("histogram", POS(5), call=lambda w: jnp.histogram(np.arange(5.0), 3, weights=w, density=True)),
        Row("histogram2d", POS(4), call=lambda w: jnp.histogram2d(np.arange(4.0), np.array([1., 0, 2, 1]), 2, weights=w)),
        Row("histogramdd", POS(4), call=lambda w: jnp.histogramdd(np.eye(4)[:, :2], 2, weights=w)),
        Row("histogram_bin_edges", N(5), call=lambda x: jnp.histogram_bin_edges(x, 4)),
        Row("bincount", N(3), call=lambda w: jnp.bincount(AT, w, length=4)),
    ],
    "shapes": [
        *(Row(name, N(2, 3)) for name in "transpose ravel flip fliplr flipud rot90 matrix_transpose atleast_1d atleast_2d "
          "atleast_3d diagflat tril triu diag diagonal unstack".split()),
        Row("permute_dims", N(2, 3, 1), axes=(2, 0, 1)), Row("transpose axes", N(2, 3, 1), axes=(1, 2, 0)),
        Row("reshape", N(2, 3), shape=(3, 2), order="F"), Row("squeeze", N(2, 1)), Row("expand_dims", N(2), axis=(0, 2)),
        Row("moveaxis", N(2, 3, 1), source=0, destination=2), Row("rollaxis", N(2, 3), axis=1),
        Row("swapaxes", N(2, 3), axis1=0, axis2=1), Row("roll", N(2, 3), shift=(1, -1), axis=(0, 1)),
        Row("roll flat", N(2, 3), shift=2), Row("diag of a vector", N(3), k=1),
        Row("diagonal axes", N(2, 3, 2), axis1=2, axis2=0),
        Row("trace axes", N(2, 3, 3), axis1=1, axis2=2, offset=1),
        Row("broadcast_to", N(3), shape=(2, 3)), Row("broadcast_arrays", N(2, 1), N(3)),
        Row("repeat", N(2, 3), repeats=2, axis=1), Row("repeat several", N(3), repeats=np.array([2, 0, 1])),
        Row("tile", N(2, 3), reps=(2, 1, 2)), Row("resize", N(2, 3), new_shape=(2, 5)),
        *(Row(name, N(2), N(2), call=lambda x, y, name=name: getattr(jnp, name)([x, y])) for name in
          "concatenate concat stack hstack vstack dstack column_stack block".split()),
        Row("concatenate axis", N(2, 1), N(2, 2), call=lambda x, y: jnp.concatenate([x, y], axis=1)),
        Row("block nested", N(2, 2), N(), call=lambda x, y: jnp.block([[x, x * y], [y * jnp.ones((1, 4))]])),
        Row("append", N(2), N(3)), Row("insert", N(4), N(2), call=lambda x, y: jnp.insert(x, np.array([1, 3]), y)),
        Row("delete", N(4), obj=1), Row("delete several", N(4), obj=np.array([0, 2])),
        *(Row(name, N(4, 4, 4), indices_or_sections=2) for name in "split array_split hsplit vsplit dsplit".split()),
        Row("pad", N(2, 3), pad_width=((1, 0), (2, 1))),
        *(Row(f"pad {mode}", N(2, 3), pad_width=((1, 0), (2, 1)), mode=mode)
          for mode in "edge reflect symmetric wrap linear_ramp maximum mean minimum median".split()),
        Row("pad with values", N(3), N(), call=lambda x, y: jnp.pad(x, 2, constant_values=y)),
        Row("meshgrid", N(2), N(3)), Row("linspace", N(2), N(2), num=4), Row("logspace", N(), N(), num=3),
        Row("geomspace", POS(2), ABOVE1(2), num=4), Row("full", N(2), call=lambda x: jnp.full((3, 2), x)),
        Row("full_like", N(2), call=lambda x: jnp.full_like(x, x[0])), Row("vander", N(3)),
        Row("apply_along_axis", N(2, 3), call=lambda x: jnp.apply_along_axis(lambda r: r * r.sum(), 1, x)),
        Row("apply_over_axes", N(2, 3), call=lambda x: jnp.apply_over_axes(jnp.prod, x, (0, 1))),
    ],
    "selection": [
        Row("take", N(4), call=lambda x: jnp.take(x, AT)),
        Row("take axis", N(3, 4), indices=ROWS_AT, axis=0), Row("take fill", N(3), indices=np.array([0, 7]), mode="clip"),
        Row("take_along_axis", N(2, 3), indices=ROWS_AT, axis=0),
        Row("put_along_axis", N(2, 3), N(2, 1), call=lambda x, y: jnp.put_along_axis(
            x, np.array([[2], [0]]), y, 1, inplace=False)),
        Row("put", N(4), N(2), call=lambda x, y: jnp.put(x, np.array([3, 1]), y, inplace=False)),
        Row("place", N(2, 3), N(2), call=lambda x, y: jnp.place(x, MASK, y, inplace=False)),
        Row("fill_diagonal", N(3, 3), N(3), call=lambda x, y: jnp.fill_diagonal(x, y, inplace=False)),
        Row("compress", N(2, 3), call=lambda x: jnp.compress(np.array([True, False, True]), x, axis=1)),
        Row("extract", N(2, 3), call=lambda x: jnp.extract(MASK, x, size=3)),
        Row("sort", N(2, 5)), Row("sort descending", N(5, 2), axis=0, descending=True), Row("sort flat", N(2, 2), axis=None),
        Row("sort_complex", Z(4)), Row("minmax", N(2, 5), axis=1),
        Row("top_k", N(2, 5), call=lambda x: jnp.top_k(x, 2)),
        Row("top_k smallest", N(5), call=lambda x: jnp.top_k(x, 2, mode="smallest")), Row("partition", N(2, 5), kth=2),
        Row("unique", N(4), size=4), Row("unique_values", N(3), size=3), Row("unique_all", N(3), size=3),
        Row("unique_counts", N(3), size=3), Row("unique_inverse", N(3), size=3),
        Row("union1d", N(3), N(2), size=5),
        Row("intersect1d", N(3), call=lambda x: jnp.intersect1d(x, x[:2], size=2)),
        Row("setdiff1d", N(3), call=lambda x: jnp.setdiff1d(x, x[:1], size=2)),
        Row("setxor1d", N(3), N(2), size=5),
        Row("ix_", N(3, 4), call=lambda x: x[jnp.ix_(np.array([2, 0]), np.array([1, 3, 1]))]),
        Row("interp", N(4), SORTED(5), N(5)),
        Row("interp period", UNIT(4), N(5), call=lambda x, f: jnp.interp(x, np.arange(5.0) / 3, f, period=2.0)),
    ],
    "products": [
        Row("dot", N(2, 3), N(3, 2)), Row("vdot", N(2, 3), N(2, 3)), Row("inner", N(2, 3), N(3)), Row("outer", N(2), N(3)),
        Row("matmul", N(2, 2, 3), N(3, 2)), Row("matvec", N(2, 3), N(3)), Row("vecmat", N(2), N(2, 3)),
        Row("vecdot", N(2, 3), N(3)), Row("tensordot", N(2, 3), N(3, 2), axes=1),
        Row("einsum", N(2, 3), N(3, 2), N(2), call=lambda x, y, z: jnp.einsum("ij,jk,k->i", x, y, z)),
        Row("einsum diagonal", N(3, 3), call=lambda x: jnp.einsum("ii->i", x)),
        Row("kron", N(2, 2), N(1, 3)), Row("cross", N(2, 3), N(3)), Row("convolve", N(5), N(3)),
        Row("convolve same", N(3), N(4), mode="same"), Row("correlate", N(5), N(3), mode="full"),
        Row("diff", N(2, 4), n=2), Row("ediff1d", N(4)), Row("gradient", N(3, 4)),
        Row("gradient spaced", N(4), SORTED(4)), Row("polyval", N(4), N(2)), Row("polyadd", N(2), N(3)),
        Row("polysub", N(2), N(3)), Row("polymul", N(2), N(3)), Row("polyder", N(4), m=2), Row("polyint", N(3)),
        Row("polydiv", N(4), POS(2)), Row("polyfit", SORTED(5), N(5), deg=2), Row("poly", N(3)),
        Row("roots", lambda rng: np.poly(rng.normal(size=3)),
            call=lambda p: jnp.sort(jnp.real(jnp.roots(p, strip_zeros=False)))),
    ],
    "linalg": [
        Row("linalg.cholesky", DEFINITE(2, 3, 3)), Row("linalg.cond", REGULAR(3, 3)), Row("linalg.cross", N(3), N(3)),
        Row("linalg.det", REGULAR(2, 3, 3)), Row("linalg.det large", N(4, 4)), Row("linalg.diagonal", N(3, 3)),
        Row("linalg.eigvalsh", DEFINITE(3, 3)), Row("linalg.qr r", REGULAR(3, 3), call=lambda x: jnp.linalg.qr(x, "r")),
        Row("linalg.eigh", DEFINITE(3, 3), call=lambda x: [jnp.linalg.eigh(x)[0], _modulus(jnp.linalg.eigh(x)[1])]),
        Row("linalg.eigvals", REGULAR(3, 3)),
        Row("linalg.inv", REGULAR(2, 3, 3)),
        Row("linalg.lstsq", N(4, 2), N(4), call=lambda a, b: jnp.linalg.lstsq(a, b)[:1]),
        Row("linalg.matmul", N(2, 3), N(3, 2)), Row("linalg.matrix_norm", N(2, 3)),
        *(Row(f"linalg.norm {order} {axis}", N(3, 3), ord=order, axis=axis) for order, axis in [
            (None, None), ("nuc", None), (2, None), (-2, None), (1, None), (np.inf, (0, 1)), (2, 0), (1, 1), (3, 1),
            (np.inf, 0), (-np.inf, 1), (0.5, 1)]),
        Row("linalg.vector_norm", N(2, 3), ord=4, axis=1), Row("linalg.matrix_power", N(2, 2), n=3),
        Row("linalg.matrix_power inverse", REGULAR(2, 2), n=-2), Row("linalg.matrix_transpose", N(2, 3)),
        Row("linalg.multi_dot", N(2, 3), N(3, 2), N(2, 2), call=lambda *xs: jnp.linalg.multi_dot(xs)),
        Row("linalg.outer", N(2), N(3)), Row("linalg.pinv", N(3, 2)), Row("linalg.pinv wide", N(2, 3)),
        Row("linalg.qr", N(3, 2)), Row("linalg.slogdet", REGULAR(3, 3)), Row("linalg.solve", REGULAR(3, 3), N(3, 2)),
        Row("linalg.svdvals", N(3, 2)), Row("linalg.svd", N(3, 2), call=lambda x: jnp.linalg.svd(x, full_matrices=False)),
        Row("linalg.tensordot", N(2, 3), N(3, 2), axes=1), Row("linalg.tensorinv", REGULAR(4, 4),
                                                               call=lambda x: jnp.linalg.tensorinv(x.reshape(4, 2, 2), 1)),
        Row("linalg.tensorsolve", REGULAR(4, 4), N(2, 2), call=lambda a, b: jnp.linalg.tensorsolve(a.reshape(2, 2, 4), b)),
        Row("linalg.trace", N(3, 3)), Row("linalg.vecdot", N(2, 3), N(2, 3)),
    ],
    "fft": [
        *(Row(f"fft.{name}", Z(2, 3)) for name in "fft ifft fft2 ifft2 fftn ifftn fftshift ifftshift hfft irfft irfft2 "
          "irfftn".split()),
        *(Row(f"fft.{name}", N(2, 4)) for name in "rfft rfft2 rfftn ihfft".split()),
        Row("fft.fft padded", N(3), n=5, norm="ortho"), Row("fft.irfft odd", Z(3), n=5, norm="forward"),
    ],
    "nn": [
        *(Row(f"nn.{name}", N(2, 4)) for name in "celu elu gelu glu hard_sigmoid hard_silu hard_tanh identity leaky_relu "
          "log_sigmoid log_softmax logmeanexp logsumexp mish relu relu6 selu sigmoid silu soft_sign softmax softplus "
          "sparse_plus sparse_sigmoid squareplus standardize tanh".split()),
        Row("nn.log1mexp", POS(4)), Row("nn.gelu exact", N(3), approximate=False),
        Row("nn.elu alpha", N(4), POS(), call=lambda x, alpha: nn.elu(x, alpha)),
        Row("nn.logsumexp weighted", N(2, 3), N(3), call=lambda x, b: nn.logsumexp(x, axis=1, b=b, return_sign=True)),
        Row("nn.softmax where", N(2, 3), axis=1, where=MASK), Row("nn.log_softmax axis", N(2, 3), axis=0),
    ],
}  # fmt: skip

# Nothing to differentiate, and why.
WITHOUT = {
    "integers, booleans and shapes come out":
        "all allclose any argmax argmin argpartition argsort argwhere array_equal array_equiv bitwise_and bitwise_count "
        "bitwise_invert bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor broadcast_shapes "
        "count_nonzero diag_indices_from digitize einsum_path equal flatnonzero gcd greater greater_equal invert isclose "
        "iscomplex iscomplexobj isfinite isin isinf isnan isneginf isposinf isreal isrealobj isscalar iterable lcm "
        "left_shift less less_equal lexsort linalg.matrix_rank logical_and logical_not logical_or logical_xor nanargmax "
        "nanargmin ndim nonzero not_equal packbits ravel_multi_index right_shift searchsorted shape signbit size "
        "tril_indices_from triu_indices_from unpackbits unravel_index",
    "made from sizes, files or memory":
        "arange bartlett blackman diag_indices empty empty_like eye fft.fftfreq fft.rfftfreq from_dlpack frombuffer "
        "fromfile fromfunction fromiter fromstring hamming hanning identity indices kaiser load mask_indices "
        "nn.one_hot ones ones_like save savez tri tril_indices triu_indices zeros zeros_like",
    "types and printing":
        "array_repr array_str can_cast get_printoptions isdtype issubdtype printoptions promote_types result_type "
        "set_printoptions",
    "distances between neighbouring floats": "nextafter spacing",
    "eigenvectors of any length and phase have none": "linalg.eig",
    "einsum, in 32 bits whatever goes in": "nn.scaled_matmul",
    "in tests of their own, below": "nn.dot_product_attention trim_zeros",
    "quantized, so in steps; in a test of its own": "nn.scaled_dot_general nn.get_scaled_dot_general_config",
}  # fmt: skip


HOMES = {"linalg.": ("linalg", "decompositions", "norms"), "fft.": ("fft",)}


def public_functions() -> dict[str, Callable]:
    """Every function that users call, by the name of its row."""
    found = {}
    for prefix, module in [("", jnp), ("linalg.", jnp.linalg), ("fft.", jnp.fft), ("nn.", nn)]:
        for name in dir(module):
            value = getattr(module, name)
            home = getattr(value, "__module__", "")
            if name.startswith("_") or not callable(value) or isinstance(value, type):
                continue
            if prefix in HOMES and home.removeprefix("jaxlite.numpy.") not in HOMES[prefix]:
                continue  # what such a module imports for itself
            found[prefix + name] = value
    return found


def names_in(code: CodeType) -> set[str]:
    nested = [each for each in code.co_consts if isinstance(each, CodeType)]
    return {*code.co_names, *code.co_freevars}.union(*(names_in(each) for each in nested))


def test_no_function_is_forgotten():
    rows = [row for rows in FAMILIES.values() for row in rows]
    without = {name for names in WITHOUT.values() for name in names.split()}
    covered = {row.name for row in rows}
    assert not covered & without
    functions = public_functions()
    same = {id(functions[name]) for name in covered | without if name in functions}
    assert sorted(name for name, value in functions.items() if name not in covered | without and id(value) not in same) == []
    assert sorted((covered | without) - set(functions)) == []
    labels = [row.label for row in rows]
    assert len(set(labels)) == len(labels)
    for row in rows:  # a row by hand calls the function that it stands for
        if row.by_hand and row.by_hand is not row.function:
            names = names_in(row.by_hand.__code__)
            assert row.name.rpartition(".")[2] in names or "getattr" in names, row.label


# --- away from kinks ---------------------------------------------------------------------------------


class Derivatives:
    """Of one row: everything that its checks compare, as one function of the point."""

    def __init__(self, row: Row) -> None:
        self.label, self.outputs, self.primals = row.label, row.outputs, row.primals
        self.along = [draw_like(x, 10 + index) for index, x in enumerate(self.primals)]
        self.weights = [draw_like(x, 90 + index) for index, x in enumerate(self.primals)]
        outs = jaxlite.eval_shape(self.outputs, *self.primals)
        self.cts = [draw_like(np.zeros(x.shape, x.dtype), 50 + index) for index, x in enumerate(outs)]
        self.jaxpr = jaxlite.make_jaxpr(self.everything)(*self.primals)
        check_jaxpr(self.jaxpr)

    def pull(self, *primals: Any) -> list[Any]:
        return list(jaxlite.vjp(self.outputs, *primals)[1](self.cts))

    def everything(self, *primals: Any) -> list[Any]:
        out, tangent = jaxlite.jvp(self.outputs, primals, tuple(self.along))
        back, pull_back = jaxlite.vjp(self.pull, *primals)
        second = jaxlite.jvp(self.pull, primals, tuple(self.along))[1]
        return [*out, *back, *tangent, *second, *pull_back(self.weights)]

    def check(self, values: list[Any], slopes: list[Any]) -> None:
        """Compare what `everything` gave with the differences of it along `along`."""
        n, m = len(self.cts), len(self.primals)
        out, back, tangent, second, second_back = (
            values[start:stop] for start, stop in itertools.pairwise(np.cumsum([0, n, m, n, m, m])))
        for x, each in zip([*out, *self.primals], [*tangent, *back], strict=True):
            assert each.shape == x.shape and each.dtype == x.dtype, f"derivative is {each.dtype}{each.shape}"
        assert_close(tangent, slopes[:n], 1e-7, "jvp against differences")
        assert_adjoint(self.cts, tangent, back, self.along)
        assert_close(second, slopes[n:n + m], 1e-6, "jvp of vjp against differences")
        assert_adjoint(self.weights, second, second_back, self.along)


def take_apart(values: list[Any], sizes: list[int]) -> list[list[Any]]:
    ends = list(itertools.accumulate(sizes, initial=0))
    return [values[start:stop] for start, stop in itertools.pairwise(ends)]


def failures(rows: list[Row]) -> list[str]:
    """What is wrong with the derivatives of some rows. They run as one program, at one point of all of them."""
    wrong, good = [], []
    for row in rows:
        try:
            good.append(Derivatives(row))
        except Exception as error:
            wrong.append(f"{row.label}: {type(error).__name__}: {error}")
    arguments, results = [len(each.primals) for each in good], [len(each.jaxpr.out_avals) for each in good]

    @quick_jit
    def together(*flat: Any) -> list[Any]:
        return [out for each, point in zip(good, take_apart(list(flat), arguments), strict=True)
                for out in eval_jaxpr(each.jaxpr.jaxpr, each.jaxpr.consts, *point)]

    primals = [x for each in good for x in each.primals]
    slopes = difference(together, primals, [v for each in good for v in each.along])
    for each, *found in zip(good, take_apart(together(*primals), results), take_apart(slopes, results), strict=True):
        try:
            each.check(*found)
        except AssertionError as error:
            wrong.append(f"{each.label}: {error}")
    return wrong


@pytest.mark.parametrize("family", FAMILIES)
def test_derivatives(family: str, x64: None) -> None:
    assert "\n".join(failures(FAMILIES[family])) == ""


def test_attention(rng):
    """It computes its softmax in single precision, so the reference is its formula in double."""
    q, k, v = rng.normal(size=(3, 1, 4, 2, 3)).astype(np.float32)
    causal = np.tril(np.ones((4, 4), bool))

    def formula(q: Any, k: Any, v: Any) -> Any:
        logits = jnp.where(causal, jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(3), -np.inf)
        return jnp.sum(jnp.sin(jnp.einsum("bhts,bshd->bthd", nn.softmax(logits), v)))

    def ours(q: Any, k: Any, v: Any) -> Any:
        return jnp.sum(jnp.sin(nn.dot_product_attention(q, k, v, is_causal=True)))

    found = quick_jit(jaxlite.grad(ours, (0, 1, 2)))(q, k, v)
    with jaxlite.enable_x64():
        expected = quick_jit(jaxlite.grad(formula, (0, 1, 2)))(*(np.float64(x) for x in (q, k, v)))
        assert_close(found, expected, 3e-6, "gradients of attention")
        doubles = [np.float64(x) for x in (q, k, v)]
        assert_close(quick_jit(jaxlite.grad(ours, (0, 1, 2)))(*doubles), expected, 3e-6, "of doubles")


# Results whose shape depends on values: known to a derivative that nothing else is traced around.
DATA_DEPENDENT = {
    "trim_zeros": jnp.trim_zeros, "nonzero": lambda x: x[jnp.nonzero(x)], "argwhere": lambda x: x[jnp.argwhere(x)[:, 0]],
    "where": lambda x: x[jnp.where(x > 1)], "flatnonzero": lambda x: x[jnp.flatnonzero(x)],
    "boolean index": lambda x: x[x > 0], "compress": lambda x: jnp.compress(x > 0, x),
    "extract": lambda x: jnp.extract(x > 0, x), "unique": lambda x: jnp.unique(x),
    "unique_all": lambda x: jnp.unique_all(x).values, "union1d": lambda x: jnp.union1d(x, x[:2] * 3),
    "intersect1d": lambda x: jnp.intersect1d(x, x[:2]), "setdiff1d": lambda x: jnp.setdiff1d(x, x[:2]),
    "setxor1d": lambda x: jnp.setxor1d(x, x[:2] * 2), "roots": lambda x: jnp.sort(jnp.real(jnp.roots(x))),
    "polymul": lambda x: jnp.polymul(x, x, trim_leading_zeros=True),
    "arange": lambda x: x[0] * jnp.arange(x[2]),
}  # fmt: skip


@pytest.mark.parametrize("name", DATA_DEPENDENT)
def test_shapes_may_depend_on_values_beside_derivatives(name: str, x64: None) -> None:
    point = np.array([0.0, 1.5, -0.25, 4.75, 0.0]) if name != "arange" else np.array([0.5, 1, 2.5])
    points = {"intersect1d": point[1:4], "setdiff1d": point[1:4], "setxor1d": point[1:4], "union1d": point[1:4]}
    fun, x = DATA_DEPENDENT[name], jnp.asarray(points.get(name, point))
    along = np.where(np.asarray(x) == 0, 0, draw_like(x, 1))  # zeros stay
    out, slope = jaxlite.jvp(fun, (x,), (jnp.asarray(along),))
    expected = difference(lambda x: fun(jnp.asarray(x)), [np.asarray(x)], [along], 1e-5)
    assert_close([slope], expected, 1e-7, "jvp against differences")
    ct = draw_like(out, 2)
    (back,) = jaxlite.vjp(fun, x)[1](jnp.asarray(ct))
    assert_adjoint([ct], [slope], [back], [along])


# --- at kinks ----------------------------------------------------------------------------------------

# (name, function, point, gradient of the sum of its results as JAX gives it).
KINKS: list[tuple[str, Callable, Any, Any]] = [
    ("maximum at a tie", lambda x: jnp.maximum(x, 1.0), 1., 0.5),
    ("minimum at a tie", lambda x: jnp.minimum(x[0], x[1]), [1., 1.], [0.5, 0.5]),
    ("fmax at a tie", lambda x: jnp.fmax(x[0], x[1]), [1., 1.], [0., 1.]),
    ("fmin with nan", lambda x: jnp.fmin(x[0], x[1]), [nan, 1.], [0., 1.]),
    ("maximum with nan", lambda x: jnp.maximum(x[0], x[1]), [nan, 1.], [0., 0.]),
    ("abs at 0", jnp.abs, 0., 1.),
    ("abs at -0", jnp.abs, -0., 1.),
    ("abs of complex 0", lambda x: jnp.abs(x + 0j), 0., 0.),
    ("fabs at 0", jnp.fabs, 0., 1.),
    ("sign at 0", jnp.sign, 0., 0.),
    ("relu at 0", nn.relu, 0., 0.),
    ("relu6 at 6", nn.relu6, 6., 0.),
    ("leaky_relu at 0", nn.leaky_relu, 0., 1.),
    ("elu at 0", nn.elu, 0., 1.),
    ("selu at 0", nn.selu, 0., 1.758099341),
    ("celu at 0", nn.celu, 0., 1.),
    ("hard_tanh at 1", nn.hard_tanh, 1., 1.),
    ("hard_tanh at -1", nn.hard_tanh, -1., 1.),
    ("hard_sigmoid at 3", nn.hard_sigmoid, 3., 0.),
    ("hard_silu at -3", nn.hard_silu, -3., 0.),
    ("softplus far away", nn.softplus, [-1000., 1000.], [0., 1.]),
    ("log_sigmoid far away", nn.log_sigmoid, [-1000., 1000.], [1., 0.]),
    ("log1mexp at a small number", nn.log1mexp, [1e-30, 800.], [9.999999999999999e+29, 0.]),
    ("silu far away", nn.silu, [-1000., 1000.], [0., 1.]),
    ("softmax of infinities", lambda x: nn.softmax(x)[0], [-inf, 0., 1.], [0., 0., 0.]),
    ("log_softmax of infinities", lambda x: nn.log_softmax(x)[1], [-inf, 0., 1.], [0., 0.731058579, -0.731058579]),
    ("logsumexp of -inf", nn.logsumexp, [-inf, -inf], [nan, nan]),
    ("logsumexp of -inf and 0", nn.logsumexp, [-inf, 0.], [0., 1.]),
    ("logsumexp of inf", nn.logsumexp, [inf, 0.], [nan, 0.]),
    ("logsumexp with weight 0", lambda x: nn.logsumexp(x, b=x * 0), [1., 2.], [nan, nan]),
    ("standardize of equal numbers", lambda x: nn.standardize(x)[0], [2., 2.], [158.113883008, -158.113883008]),
    ("squareplus at 0", nn.squareplus, 0., 0.5),
    ("sparse_plus at 1", nn.sparse_plus, 1., 1.),
    ("sparse_sigmoid at 1", nn.sparse_sigmoid, 1., 0.25),
    ("mish far away", nn.mish, [-100., 100.], [-0., 1.]),
    ("sqrt at 0", jnp.sqrt, 0., inf),
    ("cbrt at 0", jnp.cbrt, 0., inf),
    ("sort with ties", lambda x: jnp.sort(x) @ np.array([1., 10., 100.]), [2., 1., 2.], [10., 1., 100.]),
    ("max of ties", jnp.max, [1., 2., 2.], [0., 0.5, 0.5]),
    ("min of ties along an axis", lambda x: jnp.min(x, axis=0), [[1., 2.], [1., 3.]], [[0.5, 1.], [0.5, 0.]]),
    ("argsort and take with ties", lambda x: x[jnp.argsort(x)] @ np.array([1., 10., 100.]), [2., 1., 2.], [10., 1., 100.]),
    ("cummax of ties", lambda x: lax.cummax(x) @ np.array([1., 10., 100.]), [2., 2., 1.], [56., 55., 0.]),
    ("ptp of equal numbers", jnp.ptp, [2., 2.], [0., 0.]),
    ("nanmax of ties", jnp.nanmax, [nan, 2., 2.], [0., 0.5, 0.5]),
    ("clip at the lower bound", lambda x: jnp.clip(x, 1.0, 2.0), 1., 0.5),
    ("clip at the upper bound", lambda x: jnp.clip(x, 1.0, 2.0), 2., 0.5),
    ("clip bound at the value", lambda low: jnp.clip(1.0, low, 2.0), 1., 0.5),
    ("median of an even number", jnp.median, [3., 1., 2., 5.], [0.5, 0., 0.5, 0.]),
    ("median of ties", jnp.median, [1., 2., 2., 2., 5.], [0., 0., 1., 0., 0.]),
    ("quantile at an element", lambda x: jnp.quantile(x, 0.5), [3., 1., 2.], [0., 0., 1.]),
    ("quantile of q at an element", lambda q: jnp.quantile(np.array([1., 2., 4.]), q), 0.5, 0.),
    ("nanmedian with nan", jnp.nanmedian, [nan, 1., 2.], [0., 0.5, 0.5]),
    ("median with nan", jnp.median, [nan, 1., 2.], [0., 0., 0.]),
    ("power x**0 at 0", lambda x: x ** 0, 0., 0.),
    ("power 0**y at 0", lambda y: jnp.power(0.0, y), 0., 0.),
    ("power 0**y at 2", lambda y: jnp.power(0.0, y), 2., 0.),
    ("power x**1 at 0", lambda x: jnp.power(x[0], x[1]), [0., 1.], [1., 0.]),
    ("power x**2 at 0", lambda x: jnp.power(x[0], x[1]), [0., 2.], [0., 0.]),
    ("power x**.5 at 0", lambda x: x ** 0.5, 0., inf),
    ("float_power at 0", lambda x: jnp.float_power(x[0], x[1]), [0., 1.], [1., 0.]),
    ("sinc at 0", jnp.sinc, 0., 0.),
    ("i0 at 0", jnp.i0, 0., 0.),
    ("logaddexp of -inf and 0", lambda x: jnp.logaddexp(x[0], x[1]), [-inf, 0.], [0., 1.]),
    ("logaddexp at a tie", lambda x: jnp.logaddexp(x[0], x[1]), [1., 1.], [0.5, 0.5]),
    ("logaddexp2 at a tie", lambda x: jnp.logaddexp2(x[0], x[1]), [1., 1.], [0.5, 0.5]),
    ("hypot at 0", lambda x: jnp.hypot(x[0], x[1]), [0., 0.], [0.5, 0.5]),
    ("hypot of large numbers", lambda x: jnp.hypot(x[0], x[1]), [3e300, -4e300], [0.6, -0.8]),
    ("hypot of small numbers", lambda x: jnp.hypot(x[0], x[1]), [3e-300, -4e-300], [0.6, -0.8]),
    ("hypot in float16", lambda x: jnp.hypot(*x.astype("float16")), [3e4, 0.], [1., 0.]),
    ("arctan2 at 0", lambda x: jnp.arctan2(x[0], x[1]), [0., 0.], [nan, nan]),
    ("arctan2 on the axis", lambda x: jnp.arctan2(x[0], x[1]), [0., -1.], [-1., 0.]),
    ("arcsin at 1", jnp.arcsin, 1., inf),
    ("arccos at 1", jnp.arccos, 1., -inf),
    ("arccosh at 1", jnp.arccosh, 1., inf),
    ("arctanh at 1", jnp.arctanh, 1., inf),
    ("log at 0", jnp.log, 0., inf),
    ("log1p at -1", jnp.log1p, -1., inf),
    ("x log x at 0", lambda x: x * jnp.log(x), 0., nan),
    ("reciprocal at 0", jnp.reciprocal, 0., -inf),
    ("where hides nan", lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0), [0., 4.], [nan, 0.25]),
    ("double where", lambda x: jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0), [0., 4.], [0., 0.25]),
    ("norm at 0", jnp.linalg.norm, [0., 0.], [nan, nan]),
    ("norm 1 at 0", lambda x: jnp.linalg.norm(x, 1), [0., 1.], [1., 1.]),
    ("norm inf with a tie", lambda x: jnp.linalg.norm(x, np.inf), [1., -1.], [0.5, -0.5]),
    ("norm 3 at 0", lambda x: jnp.linalg.norm(x, 3), [0., 0.], [nan, nan]),
    ("norm 0", lambda x: jnp.linalg.norm(x, 0), [0., 2.], [0., 0.]),
    ("matrix norm at 0", jnp.linalg.norm, [[0., 0.], [0., 0.]], [[nan, nan], [nan, nan]]),
    ("vector_norm at 0", jnp.linalg.vector_norm, [0., 0.], [nan, nan]),
    ("det of a singular matrix", jnp.linalg.det, [[1., 2.], [2., 4.]], [[4., -2.], [-2., 1.]]),
    ("det of a zero matrix", jnp.linalg.det, [[0., 0.], [0., 0.]], [[0., 0.], [0., 0.]]),
    ("std of equal numbers", jnp.std, [2., 2.], [nan, nan]),
    ("var of equal numbers", jnp.var, [2., 2.], [0., 0.]),
    ("nanstd of equal numbers", jnp.nanstd, [2., nan, 2.], [nan, 0., nan]),
    ("prod with a zero", jnp.prod, [0., 2., 3.], [6., 0., 0.]),
    ("prod with two zeros", jnp.prod, [0., 0., 3.], [0., 0., 0.]),
    ("cumprod with a zero", lambda x: jnp.cumprod(x) @ np.array([1., 10., 100.]), [2., 0., 3.], [1., 620., 0.]),
    ("nanprod with nan", jnp.nanprod, [nan, 2., 3.], [0., 3., 2.]),
    ("nansum with nan", jnp.nansum, [nan, 2.], [0., 1.]),
    ("nanmean with nan", jnp.nanmean, [nan, 2., 3.], [0., 0.5, 0.5]),
    ("nanvar with nan", jnp.nanvar, [nan, 2., 3.], [0., -0.5, 0.5]),
    ("nan_to_num", jnp.nan_to_num, [nan, inf, -inf, 1.], [0., 0., 0., 1.]),
    ("floor at an integer", jnp.floor, 1., 0.),
    ("round", jnp.round, 0.5, 0.),
    ("mod at a multiple", lambda x: jnp.mod(x[0], x[1]), [4., 2.], [1., -2.]),
    ("mod of a negative number", lambda x: jnp.mod(x[0], x[1]), [-3., 2.], [1., 2.]),
    ("remainder at 0", lambda x: jnp.remainder(x[0], x[1]), [0., 2.], [1., 0.]),
    ("fmod of a negative number", lambda x: jnp.fmod(x[0], x[1]), [-3., 2.], [1., 1.]),
    ("floor_divide", lambda x: jnp.floor_divide(x[0], x[1]), [4., 2.], [0., 0.]),
    ("copysign at 0", lambda x: jnp.copysign(x[0], x[1]), [0., -1.], [-1., 0.]),
    ("copysign of a negative number", lambda x: jnp.copysign(x[0], x[1]), [-3., 2.], [-1., 0.]),
    ("heaviside at 0", lambda x: jnp.heaviside(x[0], x[1]), [0., 2.], [0., 1.]),
    ("angle of 0", jnp.angle, 0., nan),
    ("angle of a negative number", jnp.angle, -1., -0.),
    ("interp at a knot", lambda x: jnp.interp(x, np.array([0., 1., 2.]), np.array([0., 1., 5.])), 1., 4.),
    ("interp beyond", lambda x: jnp.interp(x, np.array([0., 1., 2.]), np.array([0., 1., 5.])), [-1., 3.], [0., 0.]),
    ("unwrap at pi", jnp.unwrap, [0., 3.141592653589793], [2., 0.]),
    ("modf", lambda x: jnp.modf(x)[0], -1.5, 1.),
    ("percentile of ties", lambda x: jnp.percentile(x, 50), [2., 2., 2.], [0., 1., 0.]),
    ("where equal branches", lambda x: jnp.where(x == 0, 1.0, x), 0., 0.),
    ("unique with ties", lambda x: jnp.unique(x, size=3) @ np.array([1., 10., 100.]), [2., 1., 2.], [10., 101., 0.]),
    ("top_k with ties", lambda x: lax.top_k(x, 2)[0] @ np.array([1., 10.]), [2., 2., 1.], [1., 10., 0.]),
    ("take out of bounds", lambda x: jnp.nansum(jnp.take(x, np.array([0, 7]))), [1., 2.], [1., 0.]),
    ("duplicate set", lambda x: jnp.zeros(3).at[np.array([0, 0])].set(x).sum(), [1., 2.], [0., 1.]),
    ("at max with a tie", lambda x: x.at[0].max(2.0).sum(), [2., 1.], [0.5, 1.]),
    ("eigvalsh asymmetric input", lambda x: jnp.linalg.eigvalsh(x) @ np.array([1., 3.]),
     [[1., 5.], [0., 2.]], [[1.803883865, 0.980580676], [0.980580676, 2.196116135]]),
    ("cholesky of an asymmetric", lambda x: jnp.linalg.cholesky(x),
     [[4., 1.], [0., 3.]], [[0.223308281, 0.213533752], [0.213533752, 0.291729983]]),
    ("pinv of a singular matrix", jnp.linalg.pinv, [[1., 2.], [2., 4.]], [[0.0048, -0.0144], [-0.0144, -0.0768]]),
    ("pinv of equal singular values", jnp.linalg.pinv, [[1., 0.], [0., 1.]], [[-1., -1.], [-1., -1.]]),
    ("exp overflow", jnp.exp, [1000., -1000.], [inf, 0.]),
    ("expm1 of a small number", jnp.expm1, 1e-20, 1.),
    ("tanh far away", jnp.tanh, [-50., 50.], [0., 0.]),
    ("logistic far away", nn.sigmoid, [-1000., 1000.], [0., 0.]),
    ("erf_inv at 1", lax.erf_inv, [1., -1.], [inf, inf]),
    ("digamma at 0", lax.digamma, 0., inf),
    ("integer_pow -1 at 0", lambda x: x ** -1, 0., -inf),
    ("square root of a sum of squares at 0", lambda x: jnp.sqrt(jnp.sum(x ** 2)), [0., 0.], [nan, nan]),
    ("rsqrt at 0", lax.rsqrt, 0., -inf),
    ("clamp at bound", lambda x: lax.clamp(1.0, x, 2.0), [1., 2.], [0., 0.]),
    ("round half", lax.round, 0.5, 0.),
    ("select_n", lambda x: lax.select(x > 0, x, -x), 0., -1.),
]  # fmt: skip

# Where JAX gives other numbers, and ours are the derivative.
BETTER_THAN_JAX: list[tuple[str, Callable, Any, Any]] = [
    ("power x**0. at 0", lambda x: jnp.power(x, 0.0), 0., 0.),
    ("logaddexp of two -inf", lambda x: jnp.logaddexp(x[0], x[1]), [-inf, -inf], [1., 0.]),
    ("logaddexp of inf and 0", lambda x: jnp.logaddexp(x[0], x[1]), [inf, 0.], [1., 0.]),
    ("logaddexp of inf and a number", lambda x: jnp.logaddexp(x, 0.0), inf, 1.),
    ("logaddexp2 of two -inf", lambda x: jnp.logaddexp2(x[0], x[1]), [-inf, -inf], [1., 0.]),
]  # fmt: skip

# Second derivatives where a formula branches.
SECOND: list[tuple[str, Callable, float, float]] = [
    ("logaddexp at a tie", lambda x: jnp.logaddexp(x, 1.0), 1., 0.25),
    ("logaddexp2 at a tie", lambda x: jnp.logaddexp2(1.0, x), 1., np.log(2) / 4),
    ("hypot at a tie", lambda x: jnp.hypot(x, 2.0), 2., 2**-2.5), ("hypot of small numbers", lambda x: jnp.hypot(x, 1e-30),
                                                                  1e-30, 2**-1.5 * 1e30),
    ("cumlogsumexp at a tie", lambda x: lax.cumlogsumexp(jnp.stack([x, 1.0]))[1], 1., 0.25),
    ("log_ndtr at 0", log_ndtr, 0., -2 / np.pi), ("softplus at 0", nn.softplus, 0., 0.25), ("i0 at 0", jnp.i0, 0., 0.5),
    ("sinc at 0", jnp.sinc, 0., -np.pi**2 / 3),
    ("x**2. at 0", lambda x: x**2.0, 0., 2.), ("prod of zeros", lambda x: jnp.prod(jnp.stack([x, x, 2.0])), 0., 4.),
    ("cumprod of zeros", lambda x: jnp.cumprod(jnp.stack([x, x, 2.0]))[2], 0., 4.),
    ("vander at 0", lambda x: jnp.vander(jnp.stack([x]), 3)[0, 0], 0., 2.),
    ("polyval at 0", lambda x: jnp.polyval(np.array([1.0, 2, 3, 4]), x), 0., 4.),
    ("det of zeros", lambda x: jnp.linalg.det(jnp.eye(2) * x), 0., 2.),
    ("complex abs", lambda x: jnp.abs(x + 1j), 0., 1.), ("silu at 0", nn.silu, 0., 0.5),
]  # fmt: skip


def of_sum(fun: Callable) -> Callable:
    return lambda x: jnp.sum(jnp.real(fun(x)))


def test_kinks_have_the_derivatives_of_jax(x64: None) -> None:
    rows = KINKS + BETTER_THAN_JAX
    points = [np.asarray(point) for _, _, point, _ in rows]
    gradients = quick_jit(lambda points: [jaxlite.grad(of_sum(fun))(x) for (_, fun, _, _), x in zip(rows, points)])(points)
    wrong = [f"{name}: {np.asarray(got)}, expected {expected}" for (name, _, _, expected), got in zip(rows, gradients)
             if not np.allclose(got, expected, rtol=1e-7, atol=1e-8, equal_nan=True)]
    assert "\n".join(wrong) == ""


def test_forward_mode_agrees_at_kinks(x64: None) -> None:
    """The sum over directions of the derivative is the sum of the gradient, also where values are not finite."""
    rows = [row for row in KINKS + BETTER_THAN_JAX if np.all(np.isfinite(row[3]))]
    points = [np.asarray(point) for _, _, point, _ in rows]
    slopes = quick_jit(lambda points: [jaxlite.jvp(of_sum(fun), (x,), (jnp.ones_like(x),))[1]
                                       for (_, fun, _, _), x in zip(rows, points)])(points)
    wrong = [f"{name}: {slope}, expected {np.sum(expected)}" for (name, _, _, expected), slope in zip(rows, slopes)
             if not np.allclose(slope, np.sum(expected), rtol=1e-7, atol=1e-8)]
    assert "\n".join(wrong) == ""


def test_second_derivatives_where_a_formula_branches(x64: None) -> None:
    points = [x for _, _, x, _ in SECOND]
    found = quick_jit(lambda points: [(jaxlite.grad(jaxlite.grad(fun))(x), jaxlite.jacfwd(jaxlite.jacfwd(fun))(x))
                                      for (_, fun, _, _), x in zip(SECOND, points)])(points)
    wrong = [f"{name}: {got}, expected {expected}" for (name, _, _, expected), got in zip(SECOND, found)
             if not np.allclose(got, expected, rtol=1e-9)]
    assert "\n".join(wrong) == ""


@pytest.mark.parametrize("function, count", [(jnp.tanh, 1), (jnp.logaddexp, 2), (lambda x: jnp.logaddexp(x, 0.0), 1)])
def test_a_factor_for_each_argument_is_all_that_is_kept_for_a_gradient(function, count):
    back = jaxlite.vjp(function, *[np.ones(3, np.float32)] * count)[1]
    assert [x.shape for x in jaxlite.tree_util.tree_leaves(back)] == [(3,)] * count


def test_what_a_boolean_masks_is_zero_also_where_it_is_not_finite():
    """Of functions that are not compiled, in which each function of NumPy's is one program."""
    mask, x = jnp.array([True, False]), jnp.array([3.0, 0.0])

    def masked(x):
        return jnp.sum(mask * jnp.log(x))

    expected = np.log(np.float32(3))
    np.testing.assert_allclose([jaxlite.value_and_grad(masked)(x)[0], jaxlite.linearize(masked, x)[0], masked(x),
                                jaxlite.jvp(masked, (x,), (x,))[0]], [expected] * 4, rtol=1e-6)
    assert jaxlite.jvp(masked, (x,), (x,))[1] == 1  # x / x where the mask is
    assert jaxlite.vmap(lambda x, chosen: jnp.log(x) * chosen)(x, mask)[1] == 0
    for mean in (lambda x: jnp.average(jnp.log(x), weights=mask), lambda x: jnp.sum(jnp.einsum("i,i->i", mask, jnp.log(x)))):
        np.testing.assert_allclose(jaxlite.jvp(mean, (x,), (x,)), [expected, 1], rtol=1e-6)
    names = [eqn.primitive.name for eqn in jaxlite.make_jaxpr(jaxlite.grad(masked))(x).eqns]
    assert "jit" not in names and "mul" in names  # in a program it is written out
