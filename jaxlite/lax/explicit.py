"""Sharding rules for explicit mesh axes: the shardings of a primitive's results, from those of its operands.

`typed` combines a primitive's typing rule, which only knows shapes and dtypes, with its sharding rule. A layout is here a
tuple with an entry for each array axis: None, the name of a mesh axis, or a tuple of names. A rule returns the layouts of
the results. If operands contradict each other, or the result is ambiguous, it raises `ShardingTypeError`; if the caller
gives the sharding of the result (`out_sharding`, or a cotangent, which has that of its primal), these axes are not split
instead, and the result is resharded.

A primitive without a rule raises an error too: the sharding of a result is always that of its type.

A layout also has the axes over which a value is unreduced, and those over which it is reduced. `_pending` gives them for
results, from one table; operations that are not in it do not accept such operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from jaxlite.core import dtypes
from jaxlite.core.aval import Ints, UnreducedKind, has_states, plain, with_layout
from jaxlite.core.config import chooses_layouts
from jaxlite.core.errors import ShardingTypeError
from jaxlite.core.jaxpr import jaxprs_in_params
from jaxlite.devices.sharding import PartitionSpec, axes_of, used_axes

Spec = tuple[Any, ...]
Rule = Callable[..., Sequence[Spec]]

_RULES: dict[str, Rule] = {}
# Those whose typing rules look at layouts themselves.
SELF_TYPED = frozenset("""addupdate all_gather_reduced call_exported custom_linear freeze get inspect_sharding
    layout_constraint mesh_cast new_ref preduced reduced_vary_cast_p reshard shard_alike sharding_constraint swap unreduced_pmax
    unreduced_pmin unreduced_psum unreduced_reduce_scatter vary_unreduced_cast_p""".split())


def typed(primitive, avals: Sequence[Any], params: dict[str, Any]) -> tuple[Any, Any]:
    """The types of a primitive's results, and its effects, where an operand has a layout.

    Raises: ShardingTypeError; what the primitive's typing rule raises.
    """
    name = primitive.name
    if all(getattr(aval, "layout", None) is None for aval in avals):
        return primitive.eval_whole(avals, params)
    if name == "cond" and has_states(avals[0]) and avals[0].layout.spec.unreduced:
        _no_rule("unreduced", "the predicate of cond")
    if name in SELF_TYPED or primitive.call_primitive or (
            name not in _RULES and next(jaxprs_in_params(params), None) is not None):
        return primitive.eval_whole(avals, params)  # which looks at layouts
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
    rule = _RULES.get(name)
    if rule is None:
        _unknown(name, avals)
    case = _Case(name, avals, mesh, params, results)
    unreduced, reduced, parts = _pending(case, rule)
    specs = [case.settled(spec, result) for spec, result in zip(rule(case, **params), results, strict=True)]
    kind = type(layouts[0])
    made = [with_layout(result, kind(mesh, PartitionSpec(*spec, unreduced=unreduced, reduced=reduced, unreduced_kind=parts))
                        if unreduced or reduced or any(spec) else None)
            for spec, result in zip(specs, results, strict=True)]
    return made if primitive.multiple_results else made[0], effects


def _unknown(name: str, avals: Sequence[Any]) -> NoReturn:
    raise ShardingTypeError(f"sharding rule for {name} is not implemented, so its operands must not be split along explicit "
                            f"mesh axes; got {', '.join(aval.str_short() for aval in avals)}. Use jax.sharding.reshard to "
                            "replicate them, or jax.sharding.auto_axes around the call to leave the sharding to the compiler")


# --- what is still to be summed, and what its cotangents will be ---------------------------------------

Axes = frozenset[Any]
Pending = tuple[Axes, Axes]
Specs = Sequence[Any]  # of operands; None for replicated ones
_NONE: Axes = frozenset()
# Linear operations of one array, or of several that are alike: results are unreduced and reduced as the operands are.
_LINEAR = frozenset("""broadcast_in_dim concatenate convert_element_type copy dynamic_update_slice neg optimization_barrier pad
    psum_invariant pvary reduce_precision reduce_sum reshape select_n slice split squeeze stack stop_gradient transpose
    unstack""".split())
# Those that go with maxima and minima that are still to be taken: they move elements.
_MOVING = frozenset("concatenate copy optimization_barrier pvary reshape slice squeeze stack stop_gradient transpose".split())
_EXTREMES = {"reduce_max": UnreducedKind.max, "reduce_min": UnreducedKind.min}
_PENDING: dict[str, Callable[[_Case, Specs], Pending]] = {}  # of the primitives that have a say in it


def _pending(case: _Case, rule: Rule) -> tuple[Axes, Axes, UnreducedKind | None]:
    """The mesh axes over which results are still to be summed, and those over which their cotangents will be; the kind of sum.

    Raises: NotImplementedError where operands are one of these, and the operation has no rule for it; ShardingTypeError where
      operands do not go together; ValueError where they are of different kinds, or of one that the operation does not go with.
    """
    specs = [None if getattr(aval, "layout", None) is None else aval.layout.spec for aval in case.avals]
    if case.params.get("out_sharding") is None and not any(
            spec is not None and (spec.unreduced or spec.reduced) for spec in specs):
        return _NONE, _NONE, None
    kind = _kind(case, specs)
    own = _PENDING.get(case.name)
    if own is None and rule is not _elementwise and case.name not in _LINEAR:
        _no_rule("unreduced/reduced", case.name)
    unreduced, reduced = (own or _pending_as_first)(case, specs)
    return unreduced, reduced, kind if unreduced else None


def _kind(case: _Case, specs: Specs) -> UnreducedKind:
    kinds = {spec.unreduced_kind for spec in specs if spec is not None and spec.unreduced}
    if case.name in _MOVING and len(kinds) == 1:
        return kinds.pop()
    expected = _EXTREMES.get(case.name, UnreducedKind.sum)
    for kind in kinds - {expected}:
        raise ValueError(f"Expected unreduced_kind={expected} but got {kind}")
    return expected


def _pending_as_first(case: _Case, specs: Specs) -> Pending:
    unreduced, reduced = _unreduced(specs), _reduced(case, specs)
    if any(unreduced) and case.name not in _LINEAR:
        _no_rule("unreduced", case.name)
    return unreduced[0], reduced


def _unreduced(specs: Specs) -> list[Axes]:
    return [_NONE if spec is None else spec.unreduced for spec in specs]


def _pends(*names: str) -> Callable[[Callable], Callable]:
    def register(rule: Callable[[_Case, Specs], Pending]) -> Callable:
        _PENDING.update(dict.fromkeys(names, rule))
        return rule

    return register


@_pends("pvary")
def _pending_pvary(case: _Case, specs: Specs) -> Pending:
    for what in ("unreduced", "reduced"):
        if not getattr(specs[0], what).isdisjoint(case.params["axes"]):
            raise ValueError(f"pvary cannot accept args which are {what}. Got {case.avals[0].str_short()} and "
                             f"axes={set(case.params['axes'])}")
    return _pending_as_first(case, specs)


@_pends("reduce_max", "reduce_min")
def _pending_extreme(case: _Case, specs: Specs) -> Pending:
    """What is left to be taken already, and what the caller leaves."""
    wanted = case.params.get("out_sharding")
    return _unreduced(specs)[0] | (_NONE if wanted is None else wanted.spec.unreduced), _reduced(case, specs[:1])


@_pends("dynamic_slice", "gather")
def _pending_choice(case: _Case, specs: Specs) -> Pending:
    if any(_unreduced(specs)):
        _no_rule("unreduced", case.name)
    return _NONE, _reduced(case, specs[:1])


@_pends("convert_element_type", "reduce_precision")
def _pending_conversion(case: _Case, specs: Specs) -> Pending:
    """A sum of parts that are converted is the converted sum, but for rounding: not where they are cut off to integers."""
    old, new = case.avals[0].dtype, case.results[0].dtype
    if any(_unreduced(specs)) and (dtypes.kind(new) == "b" or dtypes.kind(new) in "iu" and dtypes.kind(old) not in "iu"):
        _no_rule("unreduced", f"{case.name} from {old} to {new}")
    return _pending_as_first(case, specs)


@_pends("pad")
def _pending_pad(case: _Case, specs: Specs) -> Pending:
    return _unreduced(specs)[0], _reduced(case, specs[:1])  # padding of what is unreduced adds nothing: its caller's affair


@_pends("dynamic_update_slice")
def _pending_update(case: _Case, specs: Specs) -> Pending:
    _check_same_states(case, specs[:2])
    if any(_unreduced(specs[2:])):
        _no_rule("unreduced", case.name)
    return _unreduced(specs)[0], _reduced(case, specs[:2])


@_pends("select_n")
def _pending_select(case: _Case, specs: Specs) -> Pending:
    _check_same_states(case, specs[1:])
    _check_which(case)
    if any(_unreduced(specs[:1])):
        _no_rule("unreduced", case.name)
    return _unreduced(specs)[-1], _reduced(case, specs[1:])


@_pends("concatenate", "stack", "optimization_barrier")
def _pending_joined(case: _Case, specs: Specs) -> Pending:
    _check_same_states(case, specs)
    return specs[0].unreduced, specs[0].reduced


def _check_same_states(case: _Case, specs: Specs) -> None:
    if any(specs[0] != each for each in specs):
        _RULES[case.name](case, **case.params)  # which raises an error of its own
        raise ShardingTypeError(f"operands of `{case.name}` must be unreduced and reduced along the same mesh axes. Got "
                                f"[{', '.join(aval.str_short() for aval in case.avals)}]\nUse jax.sharding.reshard on one of "
                                "them")


def _states(aval) -> Axes:
    return _NONE if aval.layout is None else aval.layout.spec.unreduced | aval.layout.spec.reduced


def _no_rule(kind: str, name: str) -> NoReturn:
    raise NotImplementedError(f"{kind} rule for {name} is not implemented. Use jax.sharding.reshard before it")


def _set_text(axes: Axes) -> str:
    return f"frozenset({{{', '.join(sorted(map(repr, axes)))}}})" if axes else "frozenset()"


def _check_which(case: _Case) -> None:
    """What is selected has the layout of the cases, or is a scalar; along axes over which they are unreduced it is the same."""
    which, spec = case.avals[0], next(aval.layout.spec for aval in case.avals[1:] if aval.layout is not None)
    if not which.ndim or which.layout is not None and (which.layout.spec == spec or which.layout.spec == spec.update(
            unreduced=_NONE, reduced=spec.unreduced)):
        return
    case.refuse("select `which` must be scalar or have the same sharding as cases, got `which` sharding "
                f"{which.sharding} but case sharding {case.avals[1].sharding}.")


def _reduced(case: _Case, specs: Sequence[Any]) -> Axes:
    """The axes over which cotangents of the results will be summed: those of all operands but scalars."""
    reduced = _NONE.union(*[spec.reduced for spec in specs if spec is not None])
    for aval, spec in zip(case.avals, specs, strict=False) if reduced else ():
        if not aval.ndim and spec is None or spec is not None and reduced <= spec.reduced | spec.unreduced:
            continue
        shown, axes = aval.str_short(), _set_text(reduced)
        if spec is not None and not reduced.isdisjoint(used_axes(spec)):
            raise ShardingTypeError(
                "Inputs cannot be sharded/varying on the same axes that another input is reduced on. Reshard the input which "
                "is reduced to be sharded on the mesh axes it is reduced on via `jax.sharding.reshard(inp, jax.P(...))`. Got "
                f"input type: {shown} and reduced spec: {axes}")
        raise ShardingTypeError("Inputs cannot be replicated on the same axes that another input is reduced on. Got input "
                                f"type: {shown} and reduced spec: {axes}")
    return reduced


@_pends("add", "add_any", "sub")
def _pending_sum(case: _Case, specs: Specs) -> Pending:
    name, reduced, (left, right) = case.name, _reduced(case, specs), _unreduced(specs)
    if left == right:
        return left, reduced
    if left and right:
        raise ShardingTypeError(f"lhs and rhs to `{name}` must be unreduced along the same mesh axes. Got "
                                f"lhs={_set_text(left)}, rhs={_set_text(right)}")
    own, other = ("lhs", "rhs") if left else ("rhs", "lhs")
    raise ShardingTypeError(f"{own} is unreduced while {other} is not. `{name}` operation does not allow this because there "
                            f"will be implicit communication. Please reduce {own} via `reshard` before calling `{name}`.")


@_pends("mul")
def _pending_mul(case: _Case, specs: Specs) -> Pending:
    """A product is unreduced as one factor is, if the other one is the same all along these axes."""
    left, right = _unreduced(specs)
    if left and right:
        raise ShardingTypeError(f"lhs and rhs to `mul` cannot be unreduced since mul is bilinear. Got lhs={_set_text(left)}, "
                                f"rhs={_set_text(right)}")
    pending = left | right
    if not pending:
        return pending, _reduced(case, specs)
    place = 1 if left else 0
    other = specs[place]
    if other is not None and not pending.isdisjoint(used_axes(other)) or not chooses_layouts.value and (
            other is None or other.reduced != pending):
        one, own = ("LHS", "RHS") if right else ("RHS", "LHS")
        lhs, rhs = (aval.str_short() for aval in case.avals)
        raise ShardingTypeError(f"{one} should be reduced along the same axes {own} is unreduced on. Got {lhs=!s} and {rhs=!s}")
    kept = specs[1 - place].reduced
    rest = _NONE if other is None else other.reduced - pending
    if kept != rest:
        _reduced(case, specs)
    return pending, kept


@_pends("div")
def _pending_quotient(case: _Case, specs: Specs) -> Pending:
    if _unreduced(specs)[1]:
        _no_rule("unreduced", "the divisor of div")
    return _pending_mul(case, specs)


@_pends("scatter-add")
def _pending_addition(case: _Case, specs: Specs) -> Pending:
    """What is still to be summed may be added to its like; so with cotangents, which are added to zeros."""
    if (_states(case.avals[0]), _unreduced(specs)[0]) != (_states(case.avals[2]), _unreduced(specs)[2]):
        raise ShardingTypeError("operand and updates of a scatter must be unreduced and reduced along the same mesh axes. Got "
                                f"{case.avals[0].str_short()} and {case.avals[2].str_short()}")
    if _unreduced(specs)[1]:
        _no_rule("unreduced", "the indices of a scatter")
    return _unreduced(specs)[0], _NONE if specs[0] is None else specs[0].reduced


@_pends("dot_general")
def _pending_product(case: _Case, specs: Specs) -> Pending:
    """A product is unreduced over the axes that its caller names, along which both operands are cut where they contract."""
    if any(_unreduced(specs)):
        raise ShardingTypeError(f"lhs or rhs passed to dot_general cannot be unreduced. Got lhs={case.avals[0]!r} and "
                                f"rhs={case.avals[1]!r}")
    wanted = case.params.get("out_sharding")
    asked = _NONE if wanted is None else wanted.spec.unreduced
    if not asked:
        return _NONE, _NONE
    (left_axes, right_axes), _ = case.params["dimension_numbers"]
    left, right = (tuple(spec[axis] for axis in axes) for spec, axes in zip(case.specs, (left_axes, right_axes), strict=True))
    if left != right:
        raise ShardingTypeError(
            "lhs and rhs contracting dims should be sharded identically when out_sharding provided to dot_general mentions "
            f"unreduced_axes. Got lhs_contracting_spec={left}, rhs_contracting_spec={right}")
    if asked != {name for entry in left for name in axes_of(entry)}:
        raise ShardingTypeError("out_sharding's unreduced axes should be equal to the contracting specs. Got unreduced "
                                f"axes={_set_text(asked)} and contracting spec={left}")
    return asked, _NONE


# --- one application ---------------------------------------------------------------------------------


class _Case:
    """One application of a primitive: what a rule sees."""

    __slots__ = ("name", "avals", "specs", "mesh", "params", "results")

    def __init__(self, name: str, avals: Sequence[Any], mesh, params: dict[str, Any], results: Sequence[Any]):
        self.name, self.avals, self.mesh, self.params, self.results = name, avals, mesh, params, results
        self.specs: list[Spec] = [tuple(aval.layout.spec) if getattr(aval, "layout", None) is not None
                                  else (None,) * len(getattr(aval, "shape", ())) for aval in avals]

    def refuse(self, message: str) -> None:
        """Raise, unless the caller gives the result's sharding."""
        if not chooses_layouts.value:
            raise ShardingTypeError(message)

    def parts(self, entry) -> int:
        """Into how many parts an axis with this entry is cut."""
        return math.prod(self.mesh.shape[name] for name in axes_of(entry))

    def settled(self, spec: Spec, result) -> Spec:
        """A result's layout, checked: each mesh axis once, and equal parts."""
        seen: set[Any] = set()
        entries = []
        for entry, size in zip(spec, result.shape, strict=True):
            if entry is not None and not seen.isdisjoint(axes_of(entry)):
                self.refuse(f"{self.name} operation with inputs: {', '.join(aval.str_short() for aval in self.avals)} produces "
                            f"an illegally sharded result: {_shown(result, spec)}")
                entry = None
            if entry is not None and not (isinstance(size, int) and size % self.parts(entry) == 0):
                self.refuse(f"{self.name} on sharded dims where out dim ({size}) is not divisible by mesh axes "
                            f"({self.parts(entry)}) with spec ({entry}) is not implemented. Got input type="
                            f"{self.avals[0].str_short()} and output shape={result.shape}\nUse jax.sharding.reshard on it")
                entry = None
            seen.update(axes_of(entry))
            entries.append(entry)
        return tuple(entries)

    def merged(self, specs: Sequence[Spec]) -> Spec:
        """The layout of a result whose axes are those of all operands."""
        result = []
        for entries in zip(*specs, strict=True):
            given = dict.fromkeys(entry for entry in entries if entry is not None)
            if len(given) > 1:
                self.refuse(f"{self.name} got incompatible shardings for broadcasting: {', '.join(map(str, specs))}.\nUse "
                            "jax.sharding.reshard on one of them")
                given = {}
            result.append(next(iter(given), None))
        return tuple(result)

    def require_whole(self, operand: int, axes: Sequence[int], message: str) -> None:
        """Raise if an operand is cut along one of some axes."""
        if any(self.specs[operand][axis] is not None for axis in axes):
            self.refuse(message)


def _shown(result, spec: Spec) -> str:
    entries = ["(" + ",".join(map(str, entry)) + ")" if isinstance(entry, tuple) else entry for entry in spec]
    sizes = [str(size) if entry is None else f"{size}@{entry}" for size, entry in zip(result.shape, entries, strict=True)]
    return f"{result.str_short().split('[')[0]}[{','.join(sizes)}]"


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


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
def _elementwise(case: _Case, **params) -> list[Spec]:
    rank = case.results[0].ndim
    return [case.merged([spec for spec in case.specs if len(spec) == rank])]


@_rule("select_n")
def _select_n(case: _Case) -> Sequence[Spec]:
    cases = [aval.layout for aval in case.avals[1:] if aval.layout is not None or any(map(_states, case.avals))]
    if any(layout != cases[0] for layout in cases):
        case.refuse("select cases must have the same shardings, got "
                    f"[{', '.join(aval.str_short() for aval in case.avals[1:])}]\nUse jax.sharding.reshard on one of them")
    return _elementwise(case)


@_rule("optimization_barrier", "pbroadcast", "pmax", "pmin", "ppermute", "psum", "psum_invariant", "pvary")
def _identities(case: _Case, **params) -> Sequence[Spec]:
    return case.specs


@_rule("bitcast_convert_type")
def _bitcast(case: _Case, **params) -> list[Spec]:
    (spec,), rank = case.specs, case.results[0].ndim
    if rank < len(spec):
        case.require_whole(0, [rank], "bitcast_convert_type joins the elements of its last axis, which has to be unsharded. "
                                      f"Got {case.avals[0].str_short()}")
    return [(*spec, None)[:rank]]


# --- random keys -------------------------------------------------------------------------------------


@_rule("random_wrap")
def _random_wrap(case: _Case, **params) -> list[Spec]:
    (spec,) = case.specs
    case.require_whole(0, [len(spec) - 1], "random_wrap: the words of a key have to be unsharded")
    return [spec[:-1]]


@_rule("random_unwrap", "random_bits", "random_split")
def _random_longer(case: _Case, **params) -> list[Spec]:
    (spec,) = case.specs
    return [(*spec, *[None] * (case.results[0].ndim - len(spec)))]


@_rule("random_gamma")
def _random_gamma(case: _Case, **params) -> list[Spec]:
    return [case.specs[1]]


# --- fewer axes --------------------------------------------------------------------------------------


@_rule("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor", "argmax", "argmin")
def _reduce(case: _Case, *, axes: Sequence[int], **params) -> list[Spec]:
    return [_without(case.specs[0], axes)]


@_rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def _cumulative(case: _Case, *, axis: int, **params) -> list[Spec]:
    case.require_whole(0, [axis], "Input should be unsharded over the axis being reduced. Got input type="
                                  f"{case.avals[0].str_short()} and axis={axis}\nUse jax.sharding.reshard")
    return [_whole(case.specs[0], [axis])]


@_rule("sort")
def _sort(case: _Case, *, dimension: int, **params) -> list[Spec]:
    for index, aval in enumerate(case.avals):
        case.require_whole(index, [dimension], "Arguments to sort must be unsharded over the sorting dimension. Got arg "
                                               f"sharding={aval.layout} and sorting dimension={dimension}")
    spec = _whole(case.merged(case.specs), [dimension])
    return [spec] * len(case.results)


@_rule("top_k", "approx_top_k")
def _top_k(case: _Case, *, axis: int = -1, reduction_dimension: int | None = None, **params) -> list[Spec]:
    (spec,) = case.specs
    axis = (axis if reduction_dimension is None else reduction_dimension) % len(spec)
    case.require_whole(0, [axis], "The input should be unsharded over the axis along which to compute the top_k values. Got "
                                  f"input type={case.avals[0].str_short()} and axis={axis}")
    return [_whole(spec, [axis])] * 2


@_rule("fft")
def _fft(case: _Case, **params) -> list[Spec]:
    return case.specs  # XLA gathers what it needs, as in JAX


@_rule("cholesky", "eig", "eigh", "lu", "lu_solve", "qr", "geqrf", "ormqr", "svd", "schur", "hessenberg", "householder_product",
       "triangular_solve", "tridiagonal", "tridiagonal_solve", "symmetric_product")
def _of_matrices(case: _Case, **params) -> list[Spec]:
    batch = max(map(len, case.specs)) - 2  # every one of them has a matrix among its operands
    for index, spec in enumerate(case.specs):
        case.require_whole(index, range(batch, len(spec)), f"Input {index} to {case.name} must be unsharded on non-batch "
                                                           f"dimensions, but got {PartitionSpec(*spec)}.")
    leading = case.merged([spec[:batch] for spec in case.specs])
    return [(*leading, *[None] * (result.ndim - batch)) for result in case.results]


# --- shapes ------------------------------------------------------------------------------------------


@_rule("reshape")
def _reshape(case: _Case, *, new_sizes: Ints, dimensions: Ints | None, **params) -> list[Spec]:
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


def _spread(case: _Case, names: list[str], sizes: list[Any]) -> list[Any] | None:
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
def _broadcast_in_dim(case: _Case, *, shape: Ints, broadcast_dimensions: Sequence[int], **params) -> list[Spec]:
    result: list[Any] = [None] * len(shape)
    for axis, size, entry in zip(broadcast_dimensions, case.avals[0].shape, case.specs[0], strict=True):
        if size == shape[axis]:
            result[axis] = entry
    return [tuple(result)]


@_rule("transpose")
def _transpose(case: _Case, *, permutation: Sequence[int]) -> list[Spec]:
    return [tuple(case.specs[0][axis] for axis in permutation)]


@_rule("squeeze")
def _squeeze(case: _Case, *, dimensions: Sequence[int]) -> list[Spec]:
    return [_without(case.specs[0], dimensions)]


@_rule("rev")
def _rev(case: _Case, **params) -> list[Spec]:
    return [case.specs[0]]


@_rule("tile")
def _tile(case: _Case, *, reps: Sequence[int]) -> list[Spec]:
    repeated = [axis for axis, count in enumerate(reps) if count != 1]
    for axis in repeated:
        case.require_whole(0, [axis], f"Operand cannot be sharded on dimension {axis} when the tiling is non-trivial. Got "
                                      f"input type: {case.avals[0].str_short()} with reps: {tuple(reps)}")
    return [_whole(case.specs[0], repeated)]


# --- cutting and joining -----------------------------------------------------------------------------


@_rule("slice", "dynamic_slice", "pad", "split")
def _resized(case: _Case, **params) -> list[Spec]:
    if case.name == "pad":
        case.name = "padding"
    elif case.name == "slice":
        case.name = "slicing"
    return [case.specs[0]] * len(case.results)


@_rule("unstack")
def _unstack(case: _Case, *, axis: int) -> list[Spec]:
    case.require_whole(0, [axis], f"unstack operand must be unsharded along axis {axis}. Got {case.avals[0].str_short()}")
    return [_without(case.specs[0], [axis])] * len(case.results)


@_rule("dynamic_update_slice")
def _dynamic_update_slice(case: _Case, **params) -> list[Spec]:
    operand, update, *_ = case.avals
    if _full(case.specs[0], operand) != _full(case.specs[1], update):
        case.refuse("dynamic_update_slice operand sharding must be equal to update sharding, got operand sharding "
                    f"{operand.str_short()} and update sharding {update.str_short()}\nUse jax.sharding.reshard on one of them")
    return [case.specs[0]]


def _full(spec: Spec, aval):
    """A layout with what is still to be summed."""
    return (spec, _NONE, _NONE) if aval.layout is None else (spec, aval.layout.spec.unreduced, aval.layout.spec.reduced)


def _check_alike(case: _Case) -> None:
    if len(set(map(_full, case.specs, case.avals))) > 1:
        shown = ", ".join(aval.str_short() for aval in case.avals)
        case.refuse(f"All operands should have the same sharding. Got shardings {shown}\nUse jax.sharding.reshard on "
                    "the others")


@_rule("concatenate")
def _concatenate(case: _Case, **params) -> list[Spec]:
    _check_alike(case)
    return [case.merged(case.specs)]


@_rule("stack")
def _stack(case: _Case, *, axis: int) -> list[Spec]:
    _check_alike(case)
    spec = case.merged(case.specs)
    return [(*spec[:axis], None, *spec[axis:])]


# --- products ----------------------------------------------------------------------------------------


@_rule("dot_general")
def _dot_general(case: _Case, *, dimension_numbers, **params) -> list[Spec]:
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
def _conv(case: _Case, *, dimension_numbers, batch_group_count: int = 1, **params) -> list[Spec]:
    """Batch and spatial axes of the result have the shardings of the input's."""
    (left, right), (lhs_spec, _, out_spec) = case.specs, dimension_numbers
    if any(right) or left[lhs_spec[1]] is not None:
        case.refuse("Please specify the output sharding via `out_sharding` parameter of `conv_general_dilated`")
    result: list[Any] = [None] * len(left)
    for ours, theirs in zip(lhs_spec, out_spec, strict=True):
        result[theirs] = None if ours == lhs_spec[1] else left[ours]
    return [tuple(result)]


@_rule("ragged_dot_general")
def _ragged_dot(case: _Case, **params) -> list[Spec]:
    if not chooses_layouts.value:
        raise NotImplementedError("Explicit sharding inference for ragged_dot_general is not currently implemented. Please "
                                  "specify out_sharding.")
    return [(None,) * case.results[0].ndim]


# --- windows and indices -----------------------------------------------------------------------------


@_rule("reduce_window_sum", "reduce_window_max", "reduce_window_min", "select_and_gather_add")
def _reduce_window(case: _Case, **params) -> list[Spec]:
    case.name = "reduce_window"
    return [case.merged(case.specs)]


@_rule("select_and_scatter_add")
def _select_and_scatter_add(case: _Case, **params) -> list[Spec]:
    return [case.specs[1]]


@_rule("gather")
def _gather(case: _Case, *, dimension_numbers, slice_sizes: Sequence[int], **params) -> list[Spec]:
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
def _scatter(case: _Case, *, dimension_numbers, **params) -> list[Spec]:
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


# --- the host ----------------------------------------------------------------------------------------


# --- collectives over manual axes, of what is cut along others ----------------------------------------


def _regrouped(case: _Case, tiled: bool, taken: int | None, joined: int | None) -> list[Spec]:
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
def _all_gather(case: _Case, *, all_gather_dimension: int, tiled: bool, **params) -> list[Spec]:
    return _regrouped(case, tiled, None, all_gather_dimension)


@_rule("reduce_scatter")
def _reduce_scatter(case: _Case, *, scatter_dimension: int, tiled: bool, **params) -> list[Spec]:
    return _regrouped(case, tiled, scatter_dimension, None)


@_rule("all_to_all")
def _all_to_all(case: _Case, *, split_axis: int, concat_axis: int, tiled: bool, **params) -> list[Spec]:
    if not tiled:
        case.require_whole(0, [split_axis], f"all_to_all: split_axis has to be unsharded. Got {case.avals[0].str_short()}")
        rest = _without(case.specs[0], [split_axis])
        return [(*rest[:concat_axis], None, *rest[concat_axis:])]
    return _regrouped(case, tiled, split_axis, concat_axis)


@_rule("pure_callback", "io_callback")
def _callback(case: _Case, **params) -> list[Spec]:
    """The function gets whole arrays, and gives whole ones."""
    return [(None,) * result.ndim for result in case.results]
