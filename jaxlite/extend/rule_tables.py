"""JAX's tables of rules, `ad.primitive_jvps[p]` and others, as views of the slots of jaxlite's primitives.

Setting an entry sets the primitive's rule, and reading returns it. Rules of libraries are checked: an error names the
function and its line.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, MutableMapping, Sequence
from functools import partial
from typing import Any

from jaxlite.core import source
from jaxlite.core.primitive import PRIMITIVES, NoRule, Primitive, load_rules
from jaxlite.core.values import aval_of
from jaxlite.traces.batching import Axis, bring, move
from jaxlite.traces.jvp import Zero, def_jvp, instantiate, tangent_aval, zero_for
from jaxlite.traces.linearize import with_user_rule
from jaxlite.traces.transpose import is_linear


class RuleError(TypeError):
    """A rule that a library registered does not do what its table asks for."""


class UserRule:
    """A rule as it was registered, with what adapts it to the slot and checks it."""

    __slots__ = ("primitive", "rule", "call")

    def __init__(self, primitive: Primitive, rule: Callable, call: Callable[..., Any]):
        self.primitive, self.rule, self.call = primitive, rule, call

    def __call__(self, *args: Any, **params: Any) -> Any:
        return self.call(self, *args, **params)

    def fail(self, what: str, problem: str) -> RuleError:
        """The error for a rule that gives something wrong."""
        return RuleError(f"the {what} rule of {self.primitive.name!r}, {source.function_location(self.rule)}, {problem}")

    def type_of(self, what: str, value: Any) -> Any:
        """The type of something that the rule gives. Raises: RuleError if it is not an array."""
        try:
            return aval_of(value)
        except TypeError:
            raise self.fail(what, f"returned {value!r} of type {type(value)}, which is not an array") from None


def check_rule(what: str, primitive: Any, rule: Any) -> None:
    """Raises TypeError where a rule is registered for an object that is not a primitive, or is not a function."""
    if not isinstance(primitive, Primitive):
        where = source.function_location(rule) if callable(rule) else repr(rule)
        raise TypeError(f"the {what} rule {where} is registered for {primitive!r} of type {type(primitive)}, which is not a "
                        "primitive: use jax.extend.core.Primitive, or one of jax.extend.core.primitives")
    if not callable(rule):
        raise TypeError(f"the {what} rule of {primitive.name!r} is not a function: {rule!r}")


class RuleTable(MutableMapping):
    """A table `primitive -> rule`, which is one slot of all primitives.

    Args:
      what: the kind of rule, for messages.
      slot: the attribute of `Primitive`.
      call: adapts a registered rule: `call(user_rule, *args, **params)` with the slot's arguments.
      given: adapts one of our rules to the table's calling convention: `given(primitive, rule)`.
      mark: an attribute of the primitive to set with the rule.
    """

    def __init__(self, what: str, slot: str, call: Callable, given: Callable[[Any, Callable], Callable], mark: str = ""):
        self._what, self._slot, self._call, self._given, self._mark = what, slot, call, given, mark

    def __setitem__(self, primitive: Primitive, rule: Callable) -> None:
        check_rule(self._what, primitive, rule)
        load_rules()  # ours, which would otherwise come later and replace it
        setattr(primitive, self._slot, UserRule(primitive, rule, self._call))
        if self._slot == "jvp":
            primitive.linearize = with_user_rule(primitive.jvp)
        if self._mark:
            setattr(primitive, self._mark, True)
        primitive.is_own = False  # what is known of ours, and remembered between processes, holds no longer

    def _rule(self, primitive: Any) -> Any:
        load_rules()
        rule = getattr(primitive, self._slot, None) if isinstance(primitive, Primitive) else None
        return None if type(rule) is NoRule else rule

    def __getitem__(self, primitive: Primitive) -> Callable:
        rule = self._rule(primitive)
        if rule is None:
            raise KeyError(primitive)
        return rule.rule if type(rule) is UserRule else self._given(primitive, rule)

    def __contains__(self, primitive: Any) -> bool:
        return self._rule(primitive) is not None

    def __delitem__(self, primitive: Primitive) -> None:
        if primitive not in self:
            raise KeyError(primitive)
        setattr(primitive, self._slot, None)
        primitive.is_own = False

    def __iter__(self) -> Iterator[Primitive]:
        return iter([primitive for primitive in list(PRIMITIVES.values()) if primitive in self])

    def __len__(self) -> int:
        return sum(1 for _ in self)


class RulesBeside(MutableMapping):
    """A table `primitive -> rule` of a transformation that has its own rules by name, not in a slot of primitives.

    Args:
      what: the kind of rule, for messages.
      own: gives the names of the primitives that have a rule of ours.
      call: adapts and checks a registered rule, as for `RuleTable`.
      given: one of our rules in the table's calling convention: `given(primitive)`.
    Attributes: `registered`, the rules of libraries: primitive -> `UserRule`.
    """

    def __init__(self, what: str, own: Callable[[], Collection[str]], call: Callable, given: Callable[[Any], Callable]):
        self._what, self._own, self._call, self._given = what, own, call, given
        self.registered: dict[Any, UserRule] = {}

    def __setitem__(self, primitive: Primitive, rule: Callable) -> None:
        check_rule(self._what, primitive, rule)
        self.registered[primitive] = UserRule(primitive, rule, self._call)

    def __getitem__(self, primitive: Primitive) -> Callable:
        if primitive in self.registered:
            return self.registered[primitive].rule
        if primitive.name not in self._own() or PRIMITIVES.get(primitive.name) is not primitive:
            raise KeyError(primitive)
        return self._given(primitive)

    def __delitem__(self, primitive: Primitive) -> None:
        del self.registered[primitive]

    def __iter__(self) -> Iterator[Primitive]:
        own = (PRIMITIVES[name] for name in self._own() if name in PRIMITIVES)
        return iter(dict.fromkeys([*own, *self.registered]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _as_it_is(primitive: Any, rule: Callable) -> Callable:
    return rule


# --- derivatives -------------------------------------------------------------------------------------


def _call_jvp(rule: UserRule, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    pair = rule.rule(tuple(primals), tuple(tangents), **params)
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise rule.fail("JVP", f"must return a pair of primal and tangent results, but returned {pair!r}")
    outs, dots = pair
    if not rule.primitive.multiple_results:
        return outs, _tangent(rule, outs, dots)
    outs, dots = list(outs), list(dots)
    if len(outs) != len(dots):
        raise rule.fail("JVP", f"returned {len(outs)} primal results, but {len(dots)} tangents")
    return outs, [_tangent(rule, out, dot) for out, dot in zip(outs, dots, strict=True)]


def _tangent(rule: UserRule, out: Any, dot: Any) -> Any:
    if isinstance(dot, Zero):
        return dot
    if dot is None or dot is Zero:
        return zero_for(out)
    expected, found = tangent_aval(rule.type_of("JVP", out)), rule.type_of("JVP", dot)
    if found.shape != expected.shape or found.dtype != expected.dtype:
        raise rule.fail("JVP", f"gives a tangent of type {found} for a result of type {aval_of(out)}; it must be of type "
                               f"{expected}")
    return dot


def _call_transpose(rule: UserRule, cotangent: Any, *operands: Any, **params: Any) -> list[Any]:
    found = rule.rule(cotangent, *operands, **params)
    if found is None or isinstance(found, Zero) or found is Zero:
        return [None] * len(operands)
    if not isinstance(found, (tuple, list)) or len(found) != len(operands):
        count = f"{len(found)} of them" if isinstance(found, (tuple, list)) else f"{found!r}"
        raise rule.fail("transpose", f"must return a cotangent or None for each of {len(operands)} operands, but returned "
                                     f"{count}")
    outs: list[Any] = []
    for index, (operand, ct) in enumerate(zip(operands, found, strict=True)):
        if ct is None or isinstance(ct, Zero) or not is_linear(operand):
            outs.append(None)
            continue
        expected, aval = tangent_aval(operand.aval), rule.type_of("transpose", ct)
        if aval.shape != expected.shape or aval.dtype != expected.dtype:
            raise rule.fail("transpose", f"gives a cotangent of type {aval} for operand {index} of type {expected}")
        outs.append(ct)
    return outs


primitive_jvps = RuleTable("JVP", "jvp", _call_jvp, _as_it_is, mark="has_foreign_jvp")
primitive_transposes = RuleTable("transpose", "transpose", _call_transpose, _as_it_is)


def deflinear(primitive: Primitive, transpose_rule: Callable) -> None:
    """Say that a primitive is linear in its operands together; `transpose_rule(cotangent, **params)` gives theirs."""
    deflinear2(primitive, source.wraps(transpose_rule)(
        lambda cotangent, *operands, **params: transpose_rule(cotangent, **params)))


def deflinear2(primitive: Primitive, transpose_rule: Callable) -> None:
    """The same, where the rule gets the operands: `transpose_rule(cotangent, *operands, **params)`."""

    @source.wraps(transpose_rule)
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        outs = primitive.bind(*primals, **params)
        if all(isinstance(tangent, Zero) for tangent in tangents):
            return outs, [zero_for(out) for out in outs] if primitive.multiple_results else zero_for(outs)
        return outs, primitive.bind(*map(instantiate, tangents), **params)

    primitive_jvps[primitive] = jvp
    primitive_transposes[primitive] = transpose_rule


def defjvp(primitive: Primitive, *rules: Callable | None) -> None:
    """Set the JVP rule from one for each operand: `rule(tangent, *primals, **params)` gives that operand's share, or None."""
    defjvp2(primitive, *[rule and source.wraps(rule)(partial(_without_answer, rule)) for rule in rules])


def _without_answer(rule: Callable, tangent: Any, answer: Any, *primals: Any, **params: Any) -> Any:
    return rule(tangent, *primals, **params)


def defjvp2(primitive: Primitive, *rules: Callable | None) -> None:
    """The same with rules that also get the result: `rule(tangent, result, *primals, **params)`."""
    check_rule("JVP", primitive, next(filter(None, rules), defjvp2))
    def_jvp(primitive, *rules)
    primitive_jvps[primitive] = primitive.jvp


def defbilinear(prim: Primitive, lhs_rule: Callable, rhs_rule: Callable) -> None:
    """Set the rules of a product; `lhs_rule(cotangent, x, y, **params)` gives the cotangent of x, `rhs_rule` that of y."""

    def transpose(cotangent: Any, x: Any, y: Any, **params: Any) -> list[Any]:
        if is_linear(x) == is_linear(y):
            raise ValueError(f"{prim} is linear in one operand at a time")
        if is_linear(x):
            return [lhs_rule(cotangent, x, y, **params), None]
        return [None, rhs_rule(cotangent, x, y, **params)]

    defjvp(prim, lambda dx, x, y, **params: prim.bind(dx, y, **params),
           lambda dy, x, y, **params: prim.bind(x, dy, **params))
    primitive_transposes[prim] = transpose


def get_primitive_transpose(p: Primitive) -> Callable:
    """A primitive's transpose rule. Raises: NotImplementedError if it has none."""
    try:
        return primitive_transposes[p]
    except KeyError:
        raise NotImplementedError(
            f"Transpose rule (for reverse-mode differentiation) for '{p}' not implemented") from None


def add_tangents(x: Any, y: Any) -> Any:
    """The sum of two tangents or cotangents, either of which may be `Zero`."""
    if isinstance(x, Zero):
        return y
    return x if isinstance(y, Zero) else add_any(x, y)


def add_any(x: Any, y: Any) -> Any:
    """The sum of two values of one type, of any type that has sums."""
    return PRIMITIVES["add_any"].bind(x, y)


# --- batching ----------------------------------------------------------------------------------------


def _checked_batch(rule: UserRule, size: int, found: Any) -> Any:
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise rule.fail("batching", f"must return a pair of results and their batched axes, but returned {found!r}")
    outs, dims = found
    if not rule.primitive.multiple_results:
        return outs, _checked_dim(rule, size, outs, dims)
    outs = list(outs)
    dims = list(dims) if isinstance(dims, (tuple, list)) else [dims] * len(outs)
    if len(outs) != len(dims):
        raise rule.fail("batching", f"returned {len(outs)} results, but {len(dims)} batched axes")
    return outs, [_checked_dim(rule, size, out, dim) for out, dim in zip(outs, dims, strict=True)]


def _checked_dim(rule: UserRule, size: int, out: Any, dim: Any) -> int | None:
    if dim is None:
        return None
    shape = rule.type_of("batching", out).shape
    if not isinstance(dim, int) or not -len(shape) <= dim < len(shape):
        raise rule.fail("batching", f"says that the batched axis of a result of shape {shape} is {dim!r}")
    if shape[dim] != size:
        raise rule.fail("batching", f"says that the batched axis of a result of shape {shape} is {dim}, but the batch has the "
                                    f"size {size}")
    return dim % len(shape)


def _call_batching(rule: UserRule, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
    if all(dim is None for dim in dims):
        out = rule.primitive.bind(*args, **params)
        return out, [None] * len(out) if rule.primitive.multiple_results else None
    return _checked_batch(rule, axis.size, rule.rule(tuple(args), tuple(dims), **params))


def _call_fancy(rule: UserRule, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
    return _checked_batch(rule, axis.size, rule.rule(axis, tuple(args), tuple(dims), **params))


def _call_with_axis_parts(rule: UserRule, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
    """`_call_fancy` for a rule that takes the size and the name of the axis, and None in the place of a type."""
    return _checked_batch(rule, axis.size, rule.rule(axis.size, axis.name, None, tuple(args), tuple(dims), **params))


def _with_axis_parts(primitive: Any, rule: Callable) -> Callable:
    def call(size: int, name: Any, _: None, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        return rule(Axis(size, name), list(args), list(dims), **params)

    return call


def _with_axis(primitive: Any, rule: Callable) -> Callable:
    def call(args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        return rule(Axis(_batch_size(args, dims)), list(args), list(dims), **params)

    return call


def _batch_size(args: Sequence[Any], dims: Sequence[int | None]) -> int:
    return next(aval_of(arg).shape[dim] for arg, dim in zip(args, dims, strict=True) if dim is not None)


primitive_batchers = RuleTable("batching", "batching", _call_batching, _with_axis)
fancy_primitive_batchers = RuleTable("batching", "batching", _call_fancy, _as_it_is, mark="batches_always")
axis_primitive_batchers = RuleTable("batching", "batching", _call_with_axis_parts, _with_axis_parts, mark="batches_always")


def bdim_at_front(x: Any, bdim: int | None, size: int, mesh_axis: Any = None) -> Any:
    """A batch with its axis in front; an unbatched value is repeated."""
    return broadcast(x, size, 0) if bdim is None else move(x, bdim, 0)


def broadcast(x: Any, sz: int, axis: int, mesh_axis: Any = None) -> Any:
    """A value repeated along a new axis."""
    return bring(x, None, sz, axis)


def defvectorized(prim: Primitive) -> None:
    """Say that a primitive does to batches what it does to examples, wherever their axis is, as long as it is the same."""

    def batch(args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        assert len(set(dims)) == 1, f"{prim} takes batches whose axes are at one place"
        return prim.bind(*args, **params), dims[0]

    primitive_batchers[prim] = batch


def defbroadcasting(prim: Primitive) -> None:
    """Say that a primitive is elementwise: the batched axes are aligned, and it is applied to the batches."""

    def batch(args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        size = _batch_size(args, dims)
        fronted = [arg if dim is None and not aval_of(arg).shape else bdim_at_front(arg, dim, size)
                   for arg, dim in zip(args, dims, strict=True)]
        out = prim.bind(*fronted, **params)
        return out, [0] * len(out) if prim.multiple_results else 0

    primitive_batchers[prim] = batch


def defreducer(prim: Primitive, ident: Any = None) -> None:
    """Say that a primitive of one operand reduces `axes`: the batched axis is left out of them."""

    def batch(args: Sequence[Any], dims: Sequence[int | None], *, axes: Sequence[int], **params: Any) -> Any:
        (operand,), (dim,) = args, dims
        assert dim is not None
        moved = tuple(axis + (axis >= dim) for axis in axes)
        return prim.bind(operand, axes=moved, **params), dim - sum(axis < dim for axis in moved)

    primitive_batchers[prim] = batch
