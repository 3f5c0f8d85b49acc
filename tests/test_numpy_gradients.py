"""Derivatives of jaxlite.numpy, of its linalg and fft, and of jaxlite.nn: a row for each function that has any.

Each row is checked in double precision at a random point away from kinks: forward mode against central differences,
reverse mode by `<ct, J v> == <J^T ct, v>`, forward over reverse against differences of the gradient, reverse over reverse
by the same law. Rows of a family are one compiled program, since compiling is what this costs.
What happens at kinks is another table, with the values that JAX gives.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np
import pytest
from rule_checks import assert_adjoint, assert_close, difference, draw_like, quick_jit

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax, nn

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


def _symmetric(x: Any) -> Any:
    return (x + jnp.matrix_transpose(x)) / 2


def _modulus(x: Any) -> Any:  # eigenvectors are known up to a phase
    return jnp.real(x * jnp.conj(x))


FAMILIES: dict[str, list[Row]] = {
    "elementwise": [
        *(Row(name, N(3)) for name in "abs fabs negative positive exp exp2 expm1 sin cos tan sinh cosh tanh arcsinh arctan "
          "square sinc i0 conj real imag angle deg2rad degrees rad2deg radians cbrt nan_to_num sign floor ceil trunc rint "
          "round around copy array asarray spacing signbit".split() if name not in ("spacing", "signbit")),
        *(Row(name, POS(3)) for name in "log log2 log10 log1p sqrt reciprocal".split()),
        *(Row(name, UNIT(3)) for name in "arcsin arccos arctanh".split()),
        Row("arccosh", ABOVE1(3)),
        Row("astype", N(3), call=lambda x: jnp.astype(x, np.float64)),
        Row("modf", N(3)), Row("frexp", POS(3)),
        Row("ldexp", N(3), call=lambda x: jnp.ldexp(x, np.array([1, -2, 3]))),
        Row("clip", N(4), N(4), call=lambda x, low: jnp.clip(x, low - 1, low + 1)),
        Row("unwrap", call=jnp.unwrap, *[lambda rng: np.cumsum(rng.uniform(-5, 5, (2, 5)), 1)]),
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
        *(Row(name, THREE, N(3)) for name in "add subtract multiply divide arctan2 hypot logaddexp logaddexp2 maximum minimum "
          "fmax fmin copysign".split()),
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
          "nanmean nanvar nanstd nanmax nanmin nanmedian corrcoef cov".split()
          if name not in ("amax", "amin") or getattr(jnp, name) is not getattr(jnp, name[1:])),
        *(Row(f"{name} axis", N(2, 3, 2), axis=1) for name in "sum prod mean var std max min median nansum nanprod nanmean "
          "nanvar nanstd nanmax nanmin nanmedian cumsum cumprod nancumsum nancumprod cumulative_sum cumulative_prod".split()),
        *(Row(f"{name} where", N(2, 3), axis=0, where=MASK, **extra) for name, extra in [
            ("sum", {}), ("prod", {}), ("mean", {}), ("var", {}), ("std", {}), ("max", {"initial": -9.0}),
            ("min", {"initial": 9.0})] if name not in ("var", "std")),
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
          "atleast_3d permute_dims diagflat tril triu diag diagonal unstack".split() if name != "permute_dims"),
        Row("permute_dims", N(2, 3, 1), axes=(2, 0, 1)), Row("transpose axes", N(2, 3, 1), axes=(1, 2, 0)),
        Row("reshape", N(2, 3), shape=(3, 2), order="F"), Row("squeeze", N(2, 1)), Row("expand_dims", N(2), axis=(0, 2)),
        Row("moveaxis", N(2, 3, 1), source=0, destination=2), Row("rollaxis", N(2, 3), axis=1),
        Row("swapaxes", N(2, 3), axis1=0, axis2=1), Row("roll", N(2, 3), shift=(1, -1), axis=(0, 1)),
        Row("roll flat", N(2, 3), shift=2), Row("diag of a vector", N(3), k=1), Row("diagonal axes", N(2, 3, 2), axis1=2, axis2=0),
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
        Row("extract", N(2, 3), call=lambda x: jnp.extract(MASK, x)),
        Row("trim_zeros", N(3), call=lambda x: jnp.trim_zeros(jnp.asarray([0.0, 1, 0])) * x[0]),
        Row("sort", N(2, 5)), Row("sort descending", N(5, 2), axis=0, descending=True), Row("sort flat", N(2, 2), axis=None),
        Row("sort_complex", Z(4)), Row("partition", N(2, 5), kth=2),
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
        Row("roots", call=lambda p: jnp.sort(jnp.real(jnp.roots(p, strip_zeros=False))),
            *[lambda rng: np.poly(rng.normal(size=3))]),
    ],
    "linalg": [
        Row("linalg.cholesky", DEFINITE(2, 3, 3)), Row("linalg.cond", REGULAR(3, 3)), Row("linalg.cross", N(3), N(3)),
        Row("linalg.det", REGULAR(2, 3, 3)), Row("linalg.det large", N(4, 4)), Row("linalg.diagonal", N(3, 3)),
        Row("linalg.eigvalsh", DEFINITE(3, 3)),
        Row("linalg.eigh", DEFINITE(3, 3), call=lambda x: [jnp.linalg.eigh(x)[0], _modulus(jnp.linalg.eigh(x)[1])]),
        Row("linalg.eigvals", REGULAR(3, 3)),
        Row("linalg.eig", REGULAR(3, 3), call=lambda x: jnp.linalg.eig(x)[0]),
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
        Row("nn.dot_product_attention", N(1, 3, 2, 2), N(1, 3, 2, 2), N(1, 3, 2, 2), is_causal=True),
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
    "aliases": "nn.hard_swish nn.swish",
}  # fmt: skip


def public_functions() -> dict[str, Callable]:
    """Every function that users call, by the name of its row."""
    found = {}
    for prefix, module in [("", jnp), ("linalg.", jnp.linalg), ("fft.", jnp.fft), ("nn.", nn)]:
        for name in dir(module):
            value = getattr(module, name)
            home = getattr(value, "__module__", "")
            if name.startswith("_") or not callable(value) or isinstance(value, type):
                continue
            if prefix in ("linalg.", "fft.") and home != module.__name__:
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
            assert names_in(row.by_hand.__code__) & {row.name.rpartition(".")[2], "name"}, row.label


# --- away from kinks ---------------------------------------------------------------------------------


class Derivatives:
    """Of one row: everything that its checks compare, as one function of the point."""

    def __init__(self, row: Row) -> None:
        self.row, self.primals = row, row.primals
        self.along = [draw_like(x, 10 + index) for index, x in enumerate(row.primals)]
        self.cts = [draw_like(x, 50 + index) for index, x in enumerate(jaxlite.eval_shape(self.outputs, *row.primals))]
        self.weights = [draw_like(x, 90 + index) for index, x in enumerate(row.primals)]

    def outputs(self, *args: Any) -> list[Any]:
        return self.row.outputs(*args)

    def pull(self, *primals: Any) -> list[Any]:
        return list(jaxlite.vjp(self.outputs, *primals)[1](self.cts))

    def __call__(self, *primals: Any) -> list[Any]:
        out, tangent = jaxlite.jvp(self.outputs, primals, tuple(self.along))
        back, pull_back = jaxlite.vjp(self.pull, *primals)
        _, second = jaxlite.jvp(self.pull, primals, tuple(self.along))
        return [out, tangent, back, second, pull_back(self.weights)]

    def check(self, here: list[Any], everywhere: Callable) -> None:
        out, tangent, back, second, second_back = here
        for x, each in zip(self.primals, back, strict=True):
            assert each.shape == x.shape and each.dtype == x.dtype, f"cotangent {each.dtype}{each.shape}"
        for y, each in zip(out, tangent, strict=True):
            assert each.shape == y.shape and each.dtype == y.dtype, f"tangent {each.dtype}{each.shape}"
        slopes = difference(lambda *xs: [*(results := everywhere(*xs))[0], *results[2]], self.primals, self.along)
        assert_close(tangent, slopes[:len(out)], 1e-7, "jvp against differences")
        assert_adjoint(self.cts, tangent, back, self.along)
        assert_close(second, slopes[len(out):], 1e-6, "jvp of vjp against differences")
        assert_adjoint(self.weights, second, second_back, self.along)


def failures(rows: list[Row]) -> list[str]:
    """What is wrong with the derivatives of some rows."""
    wrong, good = [], []
    for row in rows:
        try:
            derivatives = Derivatives(row)
            jaxlite.make_jaxpr(derivatives)(*row.primals)
            good.append(derivatives)
        except Exception as error:
            wrong.append(f"{row.label}: {type(error).__name__}: {error}")
    together = quick_jit(lambda points: [each(*point) for each, point in zip(good, points)])
    seen: dict[float, Any] = {}

    def at(step: float) -> Any:
        if step not in seen:
            seen[step] = together([[x + step * v for x, v in zip(each.primals, each.along)] for each in good])
        return seen[step]
    raise NotImplementedError


@pytest.mark.parametrize("family", FAMILIES)
def test_derivatives(family: str, x64: None) -> None:
    assert "\n".join(failures(FAMILIES[family])) == ""
