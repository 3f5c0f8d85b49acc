"""Sharding rules for explicit mesh axes: the shardings of a primitive's results, from those of its operands.

`typed` combines a primitive's typing rule, which only knows shapes and dtypes, with its sharding rule. A layout is here a
tuple with an entry for each array axis: None, the name of a mesh axis, or a tuple of names. A rule returns the layouts of
the results. If operands contradict each other, or the result is ambiguous, it raises `ShardingTypeError`; if the caller
gives the sharding of the result (`out_sharding`, or a cotangent, which has that of its primal), these axes are not split
instead, and the result is resharded.

A primitive without a rule raises an error too: the sharding of a result is always that of its type.

A layout also has the axes over which a value is unreduced, and those over which it is reduced: `explicit_sums.py` gives them
for results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

from jaxlite.core.aval import Ints, ShapedArray, has_states, is_cut, kept_layout, plain, states_of, with_layout
from jaxlite.core.config import chooses_layouts
from jaxlite.core.errors import ShardingTypeError
from jaxlite.core.jaxpr import jaxprs_in_params
from jaxlite.devices.sharding import NamedSharding, PartitionSpec, axes_of
from jaxlite.lax.explicit_case import Case, Rule, Spec
from jaxlite.lax.explicit_sums import no_rule, pending_sums, states
from lowering.rules import registers_in

_RULES: dict[str, Rule] = {}
_rule = registers_in(_RULES)
# Those whose typing rules look at layouts themselves.
SELF_TYPED = frozenset("""addupdate all_gather_reduced call_exported custom_linear freeze get inspect_sharding
    layout_constraint mesh_cast new_ref preduced reduced_vary_cast_p reshard shard_alike sharding_constraint swap unreduced_pmax
    unreduced_pmin unreduced_psum unreduced_reduce_scatter vary_unreduced_cast_p""".split())


def typed(primitive, avals: Sequence[Any], params: dict[str, Any], context: Any) -> tuple[Any, Any]:
    """The types of a primitive's results, and its effects, where an operand has a layout, or the context a mesh with such axes.

    Raises: ShardingTypeError; what the primitive's typing rule raises.
    """
    name = primitive.name
    if name == "cond" and has_states(avals[0]) and avals[0].layout.spec.unreduced:
        no_rule("unreduced", "the predicate of cond")
    if name in SELF_TYPED or primitive.call_primitive or (
            name not in _RULES and next(jaxprs_in_params(params), None) is not None):
        return primitive.eval_whole(avals, params)  # which looks at layouts
    if all(getattr(aval, "layout", None) is None for aval in avals):
        outs, effects = primitive.eval_whole(avals, params)
        if context is None or avals and name not in _JOINING and (len(avals) == 1 or name not in _OF_SEVERAL):
            return outs, effects
        return [_whole_on(context, out) for out in outs] if primitive.multiple_results else _whole_on(context, outs), effects
    outs, effects = primitive.eval_whole([plain(aval) for aval in avals], params)
    results = list(outs) if primitive.multiple_results else [outs]
    if not results:
        return outs, effects
    layouts = [aval.layout for aval in avals if getattr(aval, "layout", None) is not None]
    mesh = layouts[0].mesh
    for layout in layouts:
        if layout.mesh != mesh:
            raise ShardingTypeError(f"{name} got operands over different meshes: {mesh} and {layout.mesh}. Move one with "
                                    "jax.device_put")
    rule = _RULES.get(name, _whole_results)
    if rule is _whole_results and any(map(is_cut, avals)):
        _unknown(name, avals)
    case = Case(name, rule, avals, mesh, params, results)
    unreduced, reduced, parts = pending_sums(case, rule is _elementwise)
    specs = [case.settled(spec, result) for spec, result in zip(rule(case, **params), results, strict=True)]
    kind = type(layouts[0])
    made = [with_layout(result, kept_layout(kind(mesh, PartitionSpec(
                *spec, unreduced=unreduced, reduced=reduced, unreduced_kind=parts))))
            for spec, result in zip(specs, results, strict=True)]
    return made if primitive.multiple_results else made[0], effects


# Of operands that are on no mesh, the results of these are whole on the mesh of the context, and so is what has no operands.
# Others stay on no mesh: XLA may split them as the arguments of the program are split.
_JOINING = frozenset("""broadcast_in_dim cholesky concatenate conv_general_dilated gather random_bits random_fold_in
    random_gamma random_split scatter scatter-add scatter-max scatter-min scatter-mul scatter-sub select_n stack""".split())


def _whole_on(mesh, aval):
    """The type of a result that is whole on the mesh of the context, unless its type says already how it is on one."""
    if type(aval) is not ShapedArray or aval.layout is not None:
        return aval
    return with_layout(aval, NamedSharding(mesh, PartitionSpec(*[None] * aval.ndim)))


def _unknown(name: str, avals: Sequence[Any]) -> NoReturn:
    raise ShardingTypeError(f"sharding rule for {name} is not implemented, so its operands must not be split along explicit "
                            f"mesh axes; got {', '.join(aval.str_short() for aval in avals)}. Use jax.sharding.reshard to "
                            "replicate them, or jax.sharding.auto_axes around the call to leave the sharding to the compiler")


def _whole_results(case: Case, **params) -> list[Spec]:
    """The rule of primitives whose operands must be whole."""
    return [(None,) * getattr(result, "ndim", 0) for result in case.results]


def _without(spec: Spec, axes: Sequence[int]) -> Spec:
    return tuple(entry for axis, entry in enumerate(spec) if axis not in axes)


def _whole(spec: Spec, axes: Sequence[int]) -> Spec:
    return tuple(None if axis in axes else entry for axis, entry in enumerate(spec))


# --- element by element ------------------------------------------------------------------------------


@_rule(*"""abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clz complex conj
    convert_element_type copy cos cosh digamma div eq eq_to erf erf_inv erfc exp exp2 expm1 floor ge gt igamma
    igamma_grad_a igammac imag integer_pow is_finite le le_to lgamma log log1p log2 logistic lt lt_to max min mul mulhi name ne
    neg nextafter not one_minus_square or polygamma polynomial population_count pow random_fold_in random_gamma_grad random_seed
    real reduce_precision regularized_incomplete_beta rem round rsqrt clamp shift_left shift_right_arithmetic
    shift_right_logical sign sin sinh sqrt square stop_gradient sub tan tanh xor zeta""".split())
def _elementwise(case: Case, **params) -> list[Spec]:
    rank = case.results[0].ndim
    return [case.merged([spec for spec in case.specs if len(spec) == rank])]


@_rule("select_n")
def _select_n(case: Case) -> Sequence[Spec]:
    cases = [aval.layout for aval in case.avals[1:] if is_cut(aval) or any(map(states, case.avals))]
    if any(layout != cases[0] for layout in cases):
        case.refuse("select cases must have the same shardings, got "
                    f"[{', '.join(aval.str_short() for aval in case.avals[1:])}]\nUse jax.sharding.reshard on one of them")
    return _elementwise(case)


@_rule("optimization_barrier", "pbroadcast", "pmax", "pmin", "ppermute", "psum", "psum_invariant", "pvary")
def _identities(case: Case, **params) -> Sequence[Spec]:
    return case.specs


_OF_SEVERAL = frozenset(name for name, rule in _RULES.items() if rule is _elementwise) - {"clamp"}


@_rule("bitcast_convert_type")
def _bitcast(case: Case, **params) -> list[Spec]:
    (spec,), rank = case.specs, case.results[0].ndim
    if rank < len(spec):
        case.require_whole(0, [rank], "bitcast_convert_type joins the elements of its last axis, which has to be unsharded. "
                                      f"Got {case.avals[0].str_short()}")
    return [(*spec, None)[:rank]]


# --- random keys -------------------------------------------------------------------------------------


@_rule("random_wrap")
def _random_wrap(case: Case, **params) -> list[Spec]:
    (spec,) = case.specs
    case.require_whole(0, [len(spec) - 1], "random_wrap: the words of a key have to be unsharded")
    return [spec[:-1]]


@_rule("random_unwrap", "random_bits", "random_split")
def _random_longer(case: Case, **params) -> list[Spec]:
    (spec,) = case.specs
    return [(*spec, *[None] * (case.results[0].ndim - len(spec)))]


@_rule("random_gamma")
def _random_gamma(case: Case, **params) -> list[Spec]:
    return [case.specs[1]]


# --- fewer axes --------------------------------------------------------------------------------------


@_rule("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor", "argmax", "argmin")
def _reduce(case: Case, *, axes: Sequence[int], **params) -> list[Spec]:
    return [_without(case.specs[0], axes)]


@_rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "linear_recurrence")
def _cumulative(case: Case, *, axis: int, **params) -> list[Spec]:
    for index, aval in enumerate(case.avals):
        case.require_whole(index, [axis], "Input should be unsharded over the axis being reduced. Got input type="
                                          f"{aval.str_short()} and axis={axis}\nUse jax.sharding.reshard")
    return [_whole(case.merged(case.specs), [axis])]


@_rule("sort")
def _sort(case: Case, *, dimension: int, **params) -> list[Spec]:
    for index, aval in enumerate(case.avals):
        case.require_whole(index, [dimension], "Arguments to sort must be unsharded over the sorting dimension. Got arg "
                                               f"sharding={aval.layout} and sorting dimension={dimension}")
    spec = _whole(case.merged(case.specs), [dimension])
    return [spec] * len(case.results)


@_rule("top_k", "approx_top_k")
def _top_k(case: Case, *, axis: int = -1, reduction_dimension: int | None = None, **params) -> list[Spec]:
    (spec,) = case.specs
    axis = (axis if reduction_dimension is None else reduction_dimension) % len(spec)
    case.require_whole(0, [axis], "The input should be unsharded over the axis along which to compute the top_k values. Got "
                                  f"input type={case.avals[0].str_short()} and axis={axis}")
    return [_whole(spec, [axis])] * 2


@_rule("fft")
def _fft(case: Case, **params) -> list[Spec]:
    return case.specs  # XLA gathers what it needs, as in JAX


@_rule("cholesky", "eig", "eigh", "lu", "qr", "geqrf", "ormqr", "svd", "schur", "hessenberg", "householder_product",
       "tridiagonal", "tridiagonal_solve", "symmetric_product")
def _of_matrices(case: Case, **params) -> list[Spec]:
    batch = max(map(len, case.specs)) - 2  # every one of them has a matrix among its operands
    for index, spec in enumerate(case.specs):
        case.require_whole(index, range(batch, len(spec)), f"Input {index} to {case.name} must be unsharded on non-batch "
                                                           f"dimensions, but got {PartitionSpec(*spec)}.")
    leading = case.merged([spec[:batch] for spec in case.specs])
    return [(*leading, *[None] * (result.ndim - batch)) for result in case.results]


@_rule("lu_solve")
def _lu_solve(case: Case, **params) -> list[Spec]:
    """The right sides, columns of the last operand, may be anywhere."""
    sides = case.specs[3]
    case.specs[3] = (*sides[:-1], None)
    (spec,) = _of_matrices(case)
    return [(*spec[:-1], sides[-1])]


@_rule("triangular_solve")
def _triangular_solve(case: Case, *, left_side: bool, **params) -> list[Spec]:
    """The right sides, which are columns or rows of the second operand, may be anywhere."""
    matrix, sides = case.specs
    rank = len(sides)
    case.require_whole(0, [rank - 2, rank - 1],
                       f"triangular solve input `a` must be unsharded, but got {PartitionSpec(*matrix)}")
    case.require_whole(1, [rank - 2 if left_side else rank - 1], "triangular solve input `b` must be unsharded on the "
                       f"contracting axis, but got {PartitionSpec(*sides)} with left_side={left_side}")
    return [(*case.merged([matrix[:-2], sides[:-2]]), *sides[-2:])]


# --- shapes ------------------------------------------------------------------------------------------


@_rule("reshape")
def _reshape(case: Case, *, new_sizes: Ints, dimensions: Ints | None, **params) -> list[Spec]:
    shape, spec = case.avals[0].shape, case.specs[0]
    if dimensions is not None:
        shape, spec = tuple(shape[axis] for axis in dimensions), tuple(spec[axis] for axis in dimensions)
    result: list[Any] = [None] * len(new_sizes)
    for before, after in _groups(shape, new_sizes):
        entries = [spec[axis] for axis in before]
        if not any(entries):
            continue
        cut = [name for entry in entries for name in axes_of(entry)]
        is_leading = not any(entry for entry, previous in zip(entries[1:], entries, strict=False) if previous is None)
        entry = cut[0] if len(cut) == 1 else tuple(cut)
        is_simple = len(before) == 1 or len(after) == 1 or chooses_layouts.value and not any(entries[1:])
        if after and is_leading and is_simple and new_sizes[after[0]] % case.parts(entry) == 0:
            result[after[0]] = entry
            continue
        split = _spread(case, cut, [new_sizes[axis] for axis in after]) if len(before) == 1 else None
        if split is not None:
            for axis, entry in zip(after, split, strict=True):
                result[axis] = entry
            continue
        case.refuse("This reshape is not supported. Please specify the sharding of the output via the `out_sharding` argument "
                    "of jax.lax.reshape. Got operand type: "
                    f"{case.avals[0].str_short()}, new sizes: {new_sizes}")
    return [tuple(result)]


def _spread(case: Case, names: list[str], sizes: list[Any]) -> list[Any] | None:
    """The mesh axes of an axis over those that it is split into: each takes the next ones that divide it; None if it cannot."""
    left, entries = list(names), []
    for size in sizes:
        own: list[Any] = []
        while left and size != 1:
            size, rest = divmod(size, case.parts(left[0]))
            if rest != 0:
                return None
            own.append(left.pop(0))
        entries.append(own[0] if len(own) == 1 else tuple(own) or None)
    return None if left else entries


def _groups(old: Sequence[Any], new: Sequence[Any]) -> list[tuple[list[int], list[int]]]:
    """The shortest runs of axes before and after a reshape that hold the same elements; without axes of size 1."""
    if 0 in old or 0 in new:
        return [(list(range(len(old))), list(range(len(new))))]
    left, right = ([axis for axis, size in enumerate(sizes) if size != 1] for sizes in (old, new))
    groups = []
    i = j = 0
    while i < len(left) or j < len(right):
        before, after = left[i:i + 1], right[j:j + 1]
        i, j = i + 1, j + 1
        have, want = math.prod(old[axis] for axis in before), math.prod(new[axis] for axis in after)
        while have != want and (i < len(left) or j < len(right)):
            if have < want and i < len(left) or j >= len(right):
                before.append(left[i])
                have *= old[left[i]]
                i += 1
            else:
                after.append(right[j])
                want *= new[right[j]]
                j += 1
        groups.append((before, after))
    return groups


@_rule("broadcast_in_dim")
def _broadcast_in_dim(case: Case, *, shape: Ints, broadcast_dimensions: Sequence[int], **params) -> list[Spec]:
    result: list[Any] = [None] * len(shape)
    for axis, size, entry in zip(broadcast_dimensions, case.avals[0].shape, case.specs[0], strict=True):
        if size == shape[axis]:
            result[axis] = entry
    return [tuple(result)]


@_rule("transpose")
def _transpose(case: Case, *, permutation: Sequence[int]) -> list[Spec]:
    return [tuple(case.specs[0][axis] for axis in permutation)]


@_rule("squeeze")
def _squeeze(case: Case, *, dimensions: Sequence[int]) -> list[Spec]:
    return [_without(case.specs[0], dimensions)]


@_rule("rev")
def _rev(case: Case, **params) -> list[Spec]:
    return [case.specs[0]]


@_rule("tile")
def _tile(case: Case, *, reps: Sequence[int]) -> list[Spec]:
    repeated = [axis for axis, count in enumerate(reps) if count != 1]
    for axis in repeated:
        case.require_whole(0, [axis], f"Operand cannot be sharded on dimension {axis} when the tiling is non-trivial. Got "
                                      f"input type: {case.avals[0].str_short()} with reps: {tuple(reps)}")
    return [_whole(case.specs[0], repeated)]


# --- cutting and joining -----------------------------------------------------------------------------


@_rule("slice", "dynamic_slice", "pad", "split")
def _resized(case: Case, **params) -> list[Spec]:
    if case.name == "pad":
        case.name = "padding"
    elif case.name == "slice":
        case.name = "slicing"
    return [_resized_spec(case.specs[0], result) for result in case.results]


def _resized_spec(spec: Spec, result) -> Spec:
    """The layout of an operand, for a result with other sizes; one element is cut nowhere."""
    return (None,) * result.ndim if all(size == 1 for size in result.shape) else spec


@_rule("unstack")
def _unstack(case: Case, *, axis: int) -> list[Spec]:
    case.require_whole(0, [axis], f"unstack operand must be unsharded along axis {axis}. Got {case.avals[0].str_short()}")
    return [_without(case.specs[0], [axis])] * len(case.results)


@_rule("dynamic_update_slice")
def _dynamic_update_slice(case: Case, **params) -> list[Spec]:
    operand, update, *_ = case.avals
    if (case.specs[0], states_of(operand)) != (case.specs[1], states_of(update)):
        case.refuse("dynamic_update_slice operand sharding must be equal to update sharding, got operand sharding "
                    f"{operand.str_short()} and update sharding {update.str_short()}\nUse jax.sharding.reshard on one of them")
    return [case.specs[0]]


def _check_alike(case: Case) -> None:
    with_states = any(map(has_states, case.avals))
    if len({(spec, states_of(aval)) for spec, aval in zip(case.specs, case.avals, strict=True)
            if aval.layout is not None or with_states}) > 1:  # what is on no mesh goes with any
        shown = ", ".join(aval.str_short() for aval in case.avals)
        case.refuse(f"All operands should have the same sharding. Got shardings {shown}\nUse jax.sharding.reshard on "
                    "the others")


@_rule("concatenate")
def _concatenate(case: Case, **params) -> list[Spec]:
    _check_alike(case)
    return [case.merged(case.specs)]


@_rule("stack")
def _stack(case: Case, *, axis: int) -> list[Spec]:
    _check_alike(case)
    spec = case.merged(case.specs)
    return [(*spec[:axis], None, *spec[axis:])]


# --- products ----------------------------------------------------------------------------------------


@_rule("dot_general")
def _dot_general(case: Case, *, dimension_numbers, **params) -> list[Spec]:
    (left_contract, right_contract), (left_batch, right_batch) = dimension_numbers
    left, right = case.specs
    contracted = tuple(left[axis] for axis in left_contract), tuple(right[axis] for axis in right_contract)
    wanted = params.get("out_sharding")
    for one, other in zip(*contracted, strict=True):
        if wanted is not None and wanted.spec.unreduced:
            continue  # the sum is left to be taken
        if one is not None and one == other:
            case.refuse("Contracting dimensions are sharded and it is ambiguous how the output should be sharded. Please "
                        "specify the output sharding via the `out_sharding` parameter. Got "
                        f"lhs_contracting_spec={contracted[0]} and rhs_contracting_spec={contracted[1]}")
        elif one is not None and other is not None:
            case.refuse("dot_general requires contracting dimensions to have consistent sharding, got "
                        f"{contracted[0]} and {contracted[1]}. Use jax.sharding.reshard on one of them")
    batch = []
    for i, j in zip(left_batch, right_batch, strict=True):
        if left[i] is not None and right[j] is not None and left[i] != right[j]:
            case.refuse("dot_general requires lhs batch dimensions and rhs batch dimensions to have the consistent sharding, "
                        f"got {tuple(left[axis] for axis in left_batch)} and {tuple(right[axis] for axis in right_batch)}")
        batch.append(left[i] if left[i] is not None else right[j])
    return [(*batch, *_without(left, (*left_contract, *left_batch)), *_without(right, (*right_contract, *right_batch)))]


@_rule("conv_general_dilated")
def _conv(case: Case, *, dimension_numbers, batch_group_count: int = 1, **params) -> list[Spec]:
    """Batch and spatial axes of the result have the shardings of the input's."""
    (left, right), (lhs_spec, _, out_spec) = case.specs, dimension_numbers
    if any(right) or left[lhs_spec[1]] is not None:
        case.refuse("Please specify the output sharding via `out_sharding` parameter of `conv_general_dilated`")
    result: list[Any] = [None] * len(left)
    for ours, theirs in zip(lhs_spec, out_spec, strict=True):
        result[theirs] = None if ours == lhs_spec[1] else left[ours]
    return [tuple(result)]


@_rule("ragged_dot_general")
def _ragged_dot(case: Case, **params) -> list[Spec]:
    if not chooses_layouts.value:
        raise NotImplementedError("Explicit sharding inference for ragged_dot_general is not currently implemented. Please "
                                  "specify out_sharding.")
    return [(None,) * case.results[0].ndim]


# --- windows and indices -----------------------------------------------------------------------------


@_rule("reduce_window_sum", "reduce_window_max", "reduce_window_min", "select_and_gather_add")
def _reduce_window(case: Case, **params) -> list[Spec]:
    case.name = "reduce_window"
    return [_resized_spec(case.merged(case.specs), result) for result in case.results]


@_rule("select_and_scatter_add")
def _select_and_scatter_add(case: Case, **params) -> list[Spec]:
    return [case.specs[1]]


@_rule("gather")
def _gather(case: Case, *, dimension_numbers, slice_sizes: Sequence[int], **params) -> list[Spec]:
    (shape, operand), (_, indices) = ((aval.shape, spec) for aval, spec in zip(case.avals[:2], case.specs[:2], strict=True))
    if not case.results[0].ndim:
        return [()]
    numbers = dimension_numbers
    batched = tuple(numbers.operand_batching_dims)
    partial = [axis for axis, size in enumerate(slice_sizes) if size != shape[axis] and axis not in batched]
    of_batch = tuple(numbers.start_indices_batching_dims)
    loose = [axis for axis in range(len(indices)) if axis not in of_batch]
    if any(operand[axis] for axis in partial) or any(indices[axis] for axis in loose):
        case.refuse("Use `.at[...].get(out_sharding=)` to provide output PartitionSpec for the gather indexing as out sharding "
                    "could not be resolved unambiguously (or would require collectives on inputs). Got operand="
                    f"{case.avals[0]!r}, indices={case.avals[1]!r}")
    entries = list(indices[:-1])
    for axis, own in zip(of_batch, batched, strict=True):
        entries[axis] = case.merged([(indices[axis],), (operand[own],)])[0]
    removed = (*numbers.collapsed_slice_dims, *batched)
    offsets = iter([None if axis in partial else operand[axis] for axis in range(len(shape)) if axis not in removed])
    leading = iter(entries)
    return [tuple(next(offsets) if axis in numbers.offset_dims else next(leading) for axis in range(case.results[0].ndim))]


@_rule("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")
def _scatter(case: Case, *, dimension_numbers, **params) -> list[Spec]:
    operand, indices, updates = case.specs
    numbers = dimension_numbers
    batched = tuple(numbers.operand_batching_dims)
    removed = (*numbers.inserted_window_dims, *batched)
    window = [axis for axis in range(len(operand)) if axis not in removed]
    fits = all(operand[axis] is None or axis in batched for axis in removed)
    fits &= not any(entry for axis, entry in enumerate(indices) if axis not in numbers.scatter_indices_batching_dims)
    for axis, place in zip(window, numbers.update_window_dims, strict=True):
        is_whole = case.avals[0].shape[axis] == case.avals[2].shape[place]
        fits &= (is_whole or operand[axis] is None) and updates[place] in (None, operand[axis])
    for place in range(len(updates)):
        if place not in numbers.update_window_dims and not batched:
            fits &= updates[place] is None
    if not fits:
        case.refuse("Use `.at[...].set/add/mul/...(out_sharding=)` to provide output PartitionSpec for the scatter update as "
                    "out sharding could not be resolved unambiguously (or would require collectives on inputs). Got operand="
                    f"{case.avals[0]!r}, indices={case.avals[1]!r}, updates={case.avals[2]!r}")
    return [operand]


# --- collectives over manual axes, of what is cut along others ----------------------------------------


def _regrouped(case: Case, tiled: bool, taken: int | None, joined: int | None) -> list[Spec]:
    """The layout where parts are taken along one axis and joined along another, which have to be whole: axes that go away, and
    that are new, unless the parts are `tiled`.
    """
    (spec,) = case.specs
    axes = {axis for axis in (taken, joined) if axis is not None and axis < len(spec)}
    case.require_whole(0, sorted(axes), f"{case.name} joins parts along axes that have to be unsharded. Got "
                                        f"{case.avals[0].str_short()}")
    if tiled:
        return [spec]
    rest = list(spec)
    if taken is not None:
        del rest[taken]
    if joined is not None:
        rest.insert(joined, None)
    return [tuple(rest)]


@_rule("all_gather", "all_gather_invariant")
def _all_gather(case: Case, *, all_gather_dimension: int, tiled: bool, **params) -> list[Spec]:
    return _regrouped(case, tiled, None, all_gather_dimension)


@_rule("reduce_scatter")
def _reduce_scatter(case: Case, *, scatter_dimension: int, tiled: bool, **params) -> list[Spec]:
    return _regrouped(case, tiled, scatter_dimension, None)


@_rule("all_to_all")
def _all_to_all(case: Case, *, split_axis: int, concat_axis: int, tiled: bool, **params) -> list[Spec]:
    if not tiled:
        case.require_whole(0, [split_axis], f"all_to_all: split_axis has to be unsharded. Got {case.avals[0].str_short()}")
        rest = _without(case.specs[0], [split_axis])
        return [(*rest[:concat_axis], None, *rest[concat_axis:])]
    return _regrouped(case, tiled, split_axis, concat_axis)


# --- the host ----------------------------------------------------------------------------------------


@_rule("pure_callback", "io_callback")
def _callback(case: Case, **params) -> list[Spec]:
    """The function gets whole arrays, and gives whole ones."""
    return [(None,) * result.ndim for result in case.results]
