"""Sums over explicit mesh axes: over which axes results are still to be summed, and over which their cotangents will be.

The first are the unreduced axes of a layout, the second its reduced ones. `pending_sums` gives both for the results of a
primitive, from one table; operations that are not in it do not accept such operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from jaxlite.core import dtypes
from jaxlite.core.aval import UnreducedKind, says_something
from jaxlite.core.config import chooses_layouts
from jaxlite.core.errors import ShardingTypeError
from jaxlite.devices.sharding import axes_of, used_axes
from jaxlite.lax.explicit_case import Case
from lowering import xla
from lowering.rules import registers_in

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
_PENDING: dict[str, Callable[..., Pending]] = {}  # of the primitives that have a say in it
_pends = registers_in(_PENDING)


def pending_sums(case: Case, is_elementwise: bool) -> tuple[Axes, Axes, UnreducedKind | None]:
    """The mesh axes over which results are still to be summed, and those over which their cotangents will be; the kind of sum.

    Raises: NotImplementedError where operands are one of these, and the operation has no rule for it; ShardingTypeError where
      operands do not go together; ValueError where they are of different kinds, or of one that the operation does not go with.
    """
    specs = [None if getattr(aval, "layout", None) is None or not says_something(aval.layout.spec) else aval.layout.spec
             for aval in case.avals]
    if case.params.get("out_sharding") is None and not any(
            spec is not None and (spec.unreduced or spec.reduced) for spec in specs):
        return _NONE, _NONE, None
    kind = _kind(case, specs)
    own = _PENDING.get(case.name)
    if own is None and not is_elementwise and case.name not in _LINEAR:
        no_rule("unreduced/reduced", case.name)
    unreduced, reduced = (own or _pending_as_first)(case, specs)
    return unreduced, reduced, kind if unreduced else None


def _kind(case: Case, specs: Specs) -> UnreducedKind:
    kinds = {spec.unreduced_kind for spec in specs if spec is not None and spec.unreduced}
    if case.name in _MOVING and len(kinds) == 1:
        return kinds.pop()
    expected = _EXTREMES.get(case.name, UnreducedKind.sum)
    for kind in kinds - {expected}:
        raise ValueError(f"Expected unreduced_kind={expected} but got {kind}")
    return expected


def _pending_as_first(case: Case, specs: Specs) -> Pending:
    unreduced, reduced = _unreduced(specs), _reduced(case, specs)
    if any(unreduced) and case.name not in _LINEAR:
        if xla.VERSION < (0, 12):  # as JAX of the same jaxlib
            no_rule("unreduced", case.name)
        raise ShardingTypeError(f"{case.name} is not linear, so its operands cannot be unreduced. Got "
                                f"{', '.join(aval.str_short() for aval in case.avals)}. Use jax.sharding.reshard before it")
    return unreduced[0], reduced


def _unreduced(specs: Specs) -> list[Axes]:
    return [_NONE if spec is None else spec.unreduced for spec in specs]


@_pends("pvary")
def _pending_pvary(case: Case, specs: Specs) -> Pending:
    for what in ("unreduced", "reduced"):
        if not getattr(specs[0], what).isdisjoint(case.params["axes"]):
            raise ValueError(f"pvary cannot accept args which are {what}. Got {case.avals[0].str_short()} and "
                             f"axes={set(case.params['axes'])}")
    return _pending_as_first(case, specs)


@_pends("reduce_max", "reduce_min")
def _pending_extreme(case: Case, specs: Specs) -> Pending:
    """The axes along which the extreme is still to be taken: those of the operand, and those that the call leaves."""
    wanted = case.params.get("out_sharding")
    return _unreduced(specs)[0] | (_NONE if wanted is None else wanted.spec.unreduced), _reduced(case, specs[:1])


@_pends("dynamic_slice", "gather")
def _pending_choice(case: Case, specs: Specs) -> Pending:
    if any(_unreduced(specs)):
        no_rule("unreduced", case.name)
    return _NONE, _reduced(case, specs[:1])


@_pends("convert_element_type", "reduce_precision")
def _pending_conversion(case: Case, specs: Specs) -> Pending:
    """A sum of parts that are converted is the converted sum, but for rounding: not where they are cut off to integers."""
    old, new = case.avals[0].dtype, case.results[0].dtype
    if any(_unreduced(specs)) and (dtypes.kind(new) == "b" or dtypes.kind(new) in "iu" and dtypes.kind(old) not in "iu"):
        no_rule("unreduced", f"{case.name} from {old} to {new}")
    return _pending_as_first(case, specs)


@_pends("pad")
def _pending_pad(case: Case, specs: Specs) -> Pending:
    return _unreduced(specs)[0], _reduced(case, specs[:1])  # padding of what is unreduced adds nothing: its caller's affair


@_pends("dynamic_update_slice")
def _pending_update(case: Case, specs: Specs) -> Pending:
    _check_same_states(case, specs[:2])
    if any(_unreduced(specs[2:])):
        no_rule("unreduced", case.name)
    return _unreduced(specs)[0], _reduced(case, specs[:2])


@_pends("select_n")
def _pending_select(case: Case, specs: Specs) -> Pending:
    _check_same_states(case, specs[1:])
    _check_which(case)
    if any(_unreduced(specs[:1])):
        no_rule("unreduced", case.name)
    return _unreduced(specs)[-1], _reduced(case, specs[1:])


@_pends("concatenate", "stack", "optimization_barrier")
def _pending_joined(case: Case, specs: Specs) -> Pending:
    _check_same_states(case, specs)
    return specs[0].unreduced, specs[0].reduced


def _check_same_states(case: Case, specs: Specs) -> None:
    if any(specs[0] != each for each in specs):
        case.rule(case, **case.params)  # which raises an error of its own
        raise ShardingTypeError(f"operands of `{case.name}` must be unreduced and reduced along the same mesh axes. Got "
                                f"[{', '.join(aval.str_short() for aval in case.avals)}]\nUse jax.sharding.reshard on one of "
                                "them")


def states(aval) -> Axes:
    """The axes over which an array is unreduced or reduced."""
    return _NONE if aval.layout is None else aval.layout.spec.unreduced | aval.layout.spec.reduced


def no_rule(kind: str, name: str) -> NoReturn:
    """Raise NotImplementedError. Args: `kind` what the operand of an operation is, along some axes."""
    raise NotImplementedError(f"{kind} rule for {name} is not implemented. Use jax.sharding.reshard before it")


def _set_text(axes: Axes) -> str:
    return f"frozenset({{{', '.join(sorted(map(repr, axes)))}}})" if axes else "frozenset()"


def _check_which(case: Case) -> None:
    """What is selected has the layout of the cases, or is a scalar; along axes over which they are unreduced it is the same."""
    which, spec = case.avals[0], next(aval.layout.spec for aval in case.avals[1:] if aval.layout is not None)
    if not which.ndim or which.layout is not None and (which.layout.spec == spec or which.layout.spec == spec.update(
            unreduced=_NONE, reduced=spec.unreduced)):
        return
    case.refuse("select `which` must be scalar or have the same sharding as cases, got `which` sharding "
                f"{which.sharding} but case sharding {case.avals[1].sharding}.")


def _reduced(case: Case, specs: Sequence[Any]) -> Axes:
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
def _pending_sum(case: Case, specs: Specs) -> Pending:
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
def _pending_mul(case: Case, specs: Specs, error: type[Exception] = ShardingTypeError) -> Pending:
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
        raise error(f"{one} should be reduced along the same axes {own} is unreduced on. Got {lhs=!s} and {rhs=!s}")
    kept = specs[1 - place].reduced
    rest = _NONE if other is None else other.reduced - pending
    if kept != rest:
        _reduced(case, specs)
    return pending, kept


@_pends("div")
def _pending_quotient(case: Case, specs: Specs) -> Pending:
    if _unreduced(specs)[1]:
        raise ValueError(f"The denominator of `div` cannot be unreduced. Got {case.avals[1].str_short()}. Use "
                         "jax.sharding.reshard before it")
    return _pending_mul(case, specs, ValueError)


@_pends("scatter-add")
def _pending_addition(case: Case, specs: Specs) -> Pending:
    """What is still to be summed may be added to its like; so with cotangents, which are added to zeros."""
    if (states(case.avals[0]), _unreduced(specs)[0]) != (states(case.avals[2]), _unreduced(specs)[2]):
        raise ShardingTypeError("operand and updates of a scatter must be unreduced and reduced along the same mesh axes. Got "
                                f"{case.avals[0].str_short()} and {case.avals[2].str_short()}")
    if _unreduced(specs)[1]:
        no_rule("unreduced", "the indices of a scatter")
    return _unreduced(specs)[0], _NONE if specs[0] is None else specs[0].reduced


@_pends("dot_general")
def _pending_product(case: Case, specs: Specs) -> Pending:
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
