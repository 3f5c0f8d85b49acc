"""The standard rules: which primitives count, and how. Their figures are those of JAX."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jaxlite.experimental.roofline.roofline import RULES, RooflineResult, RooflineShape, Rule, free

__all__: list[str] = []
__dir__ = lambda: __all__

_ELEMENTWISE = frozenset("""abs acos add and asin atan bessel_i0e bessel_i1e cbrt ceil cos cosh digamma div eq
    erf erf_inv erfc exp exp2 expm1 floor ge gt imag integer_pow is_finite le lgamma log log1p log2 logistic lt max min
    mul ne neg not or real regularized_incomplete_beta rem round rsqrt select_and_gather_add sign sin sinh sqrt square
    sub tan xor""".split())
# What counts for nothing: it moves elements, is fused into what counts, or has no figure.
_FREE = frozenset("""acosh add_any after_all approx_top_k argmax argmin asinh atan2 atanh bitcast_convert_type broadcast_in_dim
    cholesky clamp clz complex concatenate cond conj convert_element_type copy copy_p create_token device_put
    dynamic_slice dynamic_update_slice eig eigh empty eq_to expand_dims fft hessenberg householder_product igamma
    igamma_grad_a igammac iota le_to linear_solve lt_to lu mulhi nextafter one_minus_square optimization_barrier pad
    pbroadcast polygamma polynomial population_count pow pvary qr random_bits random_clone random_fold_in random_gamma
    random_gamma_grad random_seed random_split random_unwrap random_wrap reduce reduce_and reduce_max reduce_min
    reduce_or reduce_precision reduce_prod reduce_window reduce_window_max reduce_window_min reduce_window_sum
    reduce_xor reshape rev rng_bit_generator rng_uniform schur select_and_scatter select_and_scatter_add shift_left
    shift_right_arithmetic shift_right_logical slice sort split squeeze stack stop_gradient svd symmetric_product tanh
    threefry2x32 tile top_k transpose triangular_solve tridiagonal tridiagonal_solve unstack while zeta""".split())


def rule_of(name: str) -> Rule | None:
    """The rule of a primitive: that which was registered, or a standard one; None if there is none."""
    return RULES[name] if name in RULES else _elementwise if name in _ELEMENTWISE else free if name in _FREE else None


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for name in names:
            RULES.setdefault(name, rule)
        return rule

    return register


def _counted(flops: int, *shapes: RooflineShape) -> RooflineResult:
    return RooflineResult(unfused_flops=flops, unfused_hbm_bytes=sum(shape.bytes for shape in shapes))


def _out(ctx: Any) -> RooflineShape:
    return RooflineShape.from_aval(ctx.avals_out[0])


def _elementwise(ctx: Any, *shapes: RooflineShape, **params: Any) -> RooflineResult:
    return _counted(_out(ctx).size, *shapes, _out(ctx))


@_rule("select_n")
def _select(ctx: Any, which: RooflineShape, *cases: RooflineShape) -> RooflineResult:
    return _counted(_out(ctx).size, which, _out(ctx))


@_rule("reduce_sum")
def _sum(ctx: Any, x: RooflineShape, **params: Any) -> RooflineResult:
    return _counted(x.size - _out(ctx).size, x, _out(ctx))


@_rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "linear_recurrence")
def _cumulative(ctx: Any, *operands: RooflineShape, axis: int, **params: Any) -> RooflineResult:
    steps = 2 if ctx.primitive.name in ("cumlogsumexp", "linear_recurrence") else 1
    return _counted(steps * operands[0].shape[axis], *operands, _out(ctx))


@_rule("gather")
def _gather(ctx: Any, x: RooflineShape, places: RooflineShape, **params: Any) -> RooflineResult:
    return _counted(0, _out(ctx), places, _out(ctx))


@_rule("scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max", "scatter_sub", "scatter-sub")
def _scatter(ctx: Any, x: RooflineShape, places: RooflineShape, updates: RooflineShape, **params: Any) -> RooflineResult:
    return _counted(0 if ctx.primitive.name == "scatter" else updates.size, updates, places, updates, updates)


@_rule("dot_general")
def _dot(ctx: Any, left: RooflineShape, right: RooflineShape, *, dimension_numbers: Any, **params: Any) -> RooflineResult:
    (contracted, _), _ = dimension_numbers
    flops = 2 * _out(ctx).size * math.prod(left.shape[axis] for axis in contracted)
    moved = (not ctx.pin_lhs_in_vmem) * (left.bytes + _out(ctx).bytes) + (not ctx.pin_rhs_in_vmem) * right.bytes
    return RooflineResult(flops=flops, unfused_flops=flops, hbm_bytes=moved, unfused_hbm_bytes=moved)


@_rule("conv_general_dilated")
def _convolution(ctx: Any, x: RooflineShape, kernel: RooflineShape, *, window_strides: Sequence[int],
                 padding: Sequence[tuple[int, int]], lhs_dilation: Sequence[int], rhs_dilation: Sequence[int],
                 dimension_numbers: Any, batch_group_count: int, **params: Any) -> RooflineResult:
    """A product and a sum for each place of the window that is on an element, not on padding or between elements."""
    (x_spec, kernel_spec, out_spec), out = dimension_numbers, _out(ctx)
    places = 1
    windows = zip(window_strides, padding, lhs_dilation, rhs_dilation, strict=True)
    for axis, (stride, (low, _), x_step, step) in enumerate(windows):
        size, taps, count = x.shape[x_spec[axis + 2]], kernel.shape[kernel_spec[axis + 2]], out.shape[out_spec[axis + 2]]
        spots = (at * stride + tap * step - low for at in range(count) for tap in range(taps))
        places *= sum(1 for spot in spots if 0 <= spot <= (size - 1) * x_step and spot % x_step == 0)
    rows = x.shape[x_spec[0]] // batch_group_count
    return _counted(2 * places * rows * kernel.shape[kernel_spec[0]] * kernel.shape[kernel_spec[1]], x, kernel, out)


# --- collectives, on a torus of devices: an axis of more than two devices is a ring ----------------------------------------


def _sizes(ctx: Any, names: Any) -> dict[Any, int]:
    names = names if isinstance(names, (tuple, list)) else (names,)
    return {name: ctx.mesh.shape[name] for name in names if ctx.mesh is not None and name in ctx.mesh.shape}


def _along(sizes: dict[Any, int], data: int, latency: int) -> RooflineResult:
    return RooflineResult(ici_bytes=dict.fromkeys(sizes, data), ici_latency=dict.fromkeys(sizes, latency))


def _passed_around(sizes: dict[Any, int], part: int) -> RooflineResult:
    """Each device gets or gives the parts of all others, along all axes at the same time."""
    if not sizes:
        return RooflineResult()
    return _along(sizes, (math.prod(sizes.values()) - 1) * (part // len(sizes)), max(sizes.values()) * len(sizes))


@_rule("all_gather", "all_gather_invariant", "all_gather_reduced")
def _all_gather(ctx: Any, x: RooflineShape, *, axis_name: Any, **params: Any) -> RooflineResult:
    return _passed_around(_sizes(ctx, axis_name), x.bytes)


@_rule("reduce_scatter", "unreduced_reduce_scatter")
def _reduce_scatter(ctx: Any, x: RooflineShape, *, axis_name: Any, **params: Any) -> RooflineResult:
    return _passed_around(_sizes(ctx, axis_name), _out(ctx).bytes)


@_rule("psum", "psum_invariant", "unreduced_psum", "unreduced_pmax", "unreduced_pmin", "pmax", "pmin")
def _all_reduce(ctx: Any, *shapes: RooflineShape, axes: Any, **params: Any) -> RooflineResult:
    """A reduce-scatter, and a gather of its results."""
    sizes = _sizes(ctx, axes)
    once = _passed_around(sizes, sum(shape.bytes for shape in shapes) // math.prod(sizes.values()))
    return once + once


@_rule("all_to_all")
def _all_to_all(ctx: Any, x: RooflineShape, *, axis_name: Any, **params: Any) -> RooflineResult:
    """Half of all data crosses the middle of the torus, which so many links do."""
    sizes = _sizes(ctx, axis_name)
    if not sizes:
        return RooflineResult()
    count = math.prod(sizes.values())
    links = count // max(sizes.values()) * (2 if min(sizes.values()) > 2 else 1)
    return _along(sizes, x.bytes * count // 2 // links, sum(sizes.values()) // 2)


@_rule("ppermute")
def _permute(ctx: Any, x: RooflineShape, *, axis_name: Any, perm: Sequence[tuple[int, int]], **params: Any) -> RooflineResult:
    """Along shortest ways, one axis after the other. The busiest link counts, and the longest way."""
    sizes = _sizes(ctx, axis_name)
    used: dict[Any, int] = {}
    longest = 0
    for start, end in perm:
        way = list(_way(tuple(sizes.values()), start, end))
        longest = max(longest, len(way))
        for link in way:
            used[link] = used.get(link, 0) + 1
    return _along(sizes, x.bytes * max(used.values(), default=0), longest)


def _way(sizes: tuple[int, ...], start: int, end: int) -> Iterator[frozenset[tuple[int, ...]]]:
    """The links from one device to another, each as the two devices that it joins."""
    places = list(itertools.product(*map(range, sizes)))
    here, there = list(places[start]), places[end]
    for axis, size in reversed(list(enumerate(sizes))):
        ahead = (there[axis] - here[axis]) % size
        step = 1 if ahead <= size - ahead else -1
        while here[axis] != there[axis]:
            before = tuple(here)
            here[axis] = (here[axis] + step) % size
            yield frozenset((before, tuple(here)))
