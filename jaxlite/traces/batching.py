"""Vectorization: runs a function on values that have an additional batch axis.

A primitive's rule is `batching(axis, args, dims, **params) -> (out, dim)`: `dims` has the position of the batch axis of
each operand, or None; a primitive with several results returns lists. `axis` (an `Axis`) has the size and the name of the
batch axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.compilation.program import flatten_outputs
from jaxlite.core import source
from jaxlite.core.aval import high_types, layouts, spec_of, varying, with_axis, without_axis
from jaxlite.core.jaxpr import ClosedJaxpr, DebugInfo, derived, eval_jaxpr, one_each
from jaxlite.core.primitive import NoRule, Primitive, load_rules
from jaxlite.core.shape_dtype import typeof
from jaxlite.core.staging import check_leaks, high, hoist_consts, pin_marked, trace_to_jaxpr
from jaxlite.core.tracing import Trace, Tracer, set_trace, state
from jaxlite.core.tree import tree_flatten
from jaxlite.core.values import AVAL_OF, aval_of, with_arrays
from jaxlite.devices import placement
from jaxlite.traces.jvp import add_any_p

_VECTOR = 8  # elements


class Axis:
    """The batched axis: its size, the name collectives know it by (or None), and a mesh axis to spread it over.

    `vma`: manual axes of the mesh along which it has been spread, so that batches vary along them. `cut`: how a batch of
    scalars is on explicit mesh axes, if it is not whole on them.
    """

    __slots__ = ("size", "name", "spmd_name", "vma", "cut")

    def __init__(self, size: int, name: Any = None, spmd_name: Any = None, vma: frozenset[Any] = frozenset(), cut: Any = None):
        self.size, self.name, self.spmd_name, self.vma, self.cut = size, name, spmd_name, vma, cut

    @property
    def is_short(self) -> bool:
        """Whether rows along it would be shorter than a vector of the CPU."""
        return type(self.size) is int and self.size < _VECTOR

    def batched(self, aval: Any, dim: int) -> Any:
        """The type of a batch, from that of one value."""
        batch = with_axis(aval, dim, self.size, self.cut)
        return varying(batch, batch.vma | self.vma) if self.vma else batch


class BatchTracer(Tracer):
    """A value with a batched axis at `dim` that the traced function does not see."""

    __slots__ = ("value", "dim")

    def __init__(self, trace: BatchTrace, value: Any, dim: int):
        self._trace, self.value, self.dim = trace, value, dim
        aval = typeof(value)
        self.aval = without_axis(aval, dim, trace.axis.size)
        if aval.is_high:
            self.dim = spec_of(aval, dim)
            high().make_high(self)

    @property
    def val(self) -> Any:
        """`value`, by JAX's name."""
        return self.value

    @property
    def batch_dim(self) -> Any:
        """`dim`, by JAX's name."""
        return self.dim

    def history(self) -> Any:
        if isinstance(self.value, Tracer):
            yield from self.value.history()
        else:
            yield from super().history()

    def made_at(self) -> str:
        return self.value.made_at() if isinstance(self.value, Tracer) else ""

    def __repr__(self) -> str:
        return f"VmapTracer(aval={self.aval}, batched={typeof(self.value)})"


class spreading:
    """Within the context, unbatched values that are repeated get the sharding of the batches along the batched axis."""

    __slots__ = ("cut", "previous")

    def __init__(self, cut: Any):
        self.cut = cut

    def __enter__(self) -> None:
        self.previous, state.batch_cut = state.batch_cut, self.cut

    def __exit__(self, *exc: Any) -> None:
        state.batch_cut = self.previous


class BatchTrace(Trace):
    """Applies primitives to whole batches, under the trace around it."""

    __slots__ = ("parent", "axis")

    def __init__(self, parent: Trace, axis: Axis, debug_info: DebugInfo | None = None):
        super().__init__(debug_info)
        load_rules()
        self.parent, self.axis = parent, axis

    def split(self, value: Any) -> tuple[Any, int | None]:
        """The whole batch of a value and where its axis is."""
        if isinstance(value, BatchTracer) and value._trace is self:
            return value.value, value.dim
        return value, None

    def join(self, value: Any, dim: int | None) -> Any:
        if dim is None:
            return value
        if self.axis.cut is not None:
            value = self.laid_out(value, dim)
        return BatchTracer(self, value, dim)

    def laid_out(self, value: Any, dim: int) -> Any:
        """A batch, cut along its own axis as all of them are."""
        aval = aval_of(value)
        wanted = with_axis(without_axis(aval, dim), dim, self.axis.size, self.axis.cut)
        if getattr(aval, "layout", None) == getattr(wanted, "layout", None):
            return value
        with set_trace(self.parent):
            return placement.constraints().laid_out_as(value, wanted)

    def arguments(self, args: Any) -> Any:
        if type(args) in (tuple, list):
            return type(args)(map(self.arguments, args))
        if isinstance(args, BatchTracer) and args._trace is self:
            value = self.parent.arguments(args.value)
            return args if value is args.value else BatchTracer(self, value, args.dim)
        return args

    def process(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        values: list[Any] = []
        dims: list[int | None] = []
        active = False
        for arg in args:
            if isinstance(arg, BatchTracer) and arg._trace is self:
                values.append(arg.value)
                dims.append(arg.dim)
                active = True
            else:
                if type(arg) not in AVAL_OF and not isinstance(arg, Tracer):
                    arrays = with_arrays(args)
                    if arrays is not None:
                        return self.process(primitive, arrays, params)
                values.append(arg)
                dims.append(None)
        if primitive.function_of_call is not None and type(params["call_jaxpr"]) is not ClosedJaxpr:
            params = {**params, "trace": self}  # what it calls is a Python function, which may close over values of this trace
        elif not active and not primitive.batches_always and not uses_axis(primitive, params, self.axis.name):
            return self.parent.apply(primitive, args, params)
        try:
            with set_trace(self.parent):
                if layouts.exist:
                    with spreading(self.axis.cut):
                        out, dim = batching_rule(primitive)(self.axis, values, dims, **params)
                else:
                    out, dim = batching_rule(primitive)(self.axis, values, dims, **params)
        except Exception:
            wrong = _wrong_with_each(primitive, args, params)
            if wrong is None:
                raise
            raise wrong from None
        if primitive.multiple_results:
            return [self.join(value, each) for value, each in zip(out, dim, strict=True)]
        return self.join(out, dim)


def _wrong_with_each(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Exception | None:
    """What the typing rule has against this operation on one example: a batching rule takes its operands for typed."""
    if primitive.function_of_call is not None:  # what goes wrong there is the user's function
        return None
    try:
        primitive.typed([aval_of(arg) for arg in args], params)
    except NotImplementedError:
        return None
    except Exception as error:
        return error
    return None


def uses_axis(primitive: Any, params: dict[str, Any], name: Any) -> bool:
    """Whether a collective is over the named axis, or a sub-program may hold one."""
    if name is None:
        return False
    axes = params.get("axis_name", params.get("axes"))
    if axes is not None and getattr(primitive, "is_collective", False):
        return name in axes if isinstance(axes, (tuple, list)) else axes == name
    return any(type(value) is ClosedJaxpr or (type(value) is tuple and value and type(value[0]) is ClosedJaxpr)
               for value in params.values())


def batching_rule(primitive: Any) -> Callable[..., Any]:
    """A primitive's rule. Raises: NotImplementedError that says whether there is none by nature."""
    rule = primitive.batching
    if rule is None:
        raise NotImplementedError(f"Batching rule for '{primitive}' not implemented")
    if type(rule) is NoRule:
        raise NotImplementedError(f"'{primitive}' cannot be batched: {rule.reason}")
    return rule


def over_leading_axis(fun: Callable[..., Any], *args: Any) -> Any:
    """`fun` of pytrees mapped over axis 0 of all leaves of its arguments; results have the mapped axis in front."""
    leaves, tree = tree_flatten(args)
    axis = Axis(aval_of(leaves[0]).shape[0])
    debug = DebugInfo("vmap", source.function_location(fun))
    out_tree: Any = None

    def flat(*values: Any) -> list[Any]:
        nonlocal out_tree
        outs, out_tree = flatten_outputs(fun(*tree.unflatten(values)), debug)
        return outs

    outs, dims = batch_flat(flat, leaves, [0] * len(leaves), axis, debug)
    return out_tree.unflatten([bring_to_front(out, dim, axis.size) for out, dim in zip(outs, dims, strict=True)])


class axis_scope:
    """Bind an axis name to a size inside a `with` block."""

    def __init__(self, name: Any, size: int):
        self.name, self.size = name, size

    def __enter__(self) -> None:
        self.previous = state.axis_sizes
        if self.name is not None:
            state.axis_sizes = {**self.previous, self.name: self.size}

    def __exit__(self, *exc: Any) -> None:
        state.axis_sizes = self.previous


def batch_flat(fun: Callable[..., Sequence[Any]], args: Sequence[Any], dims: Sequence[int | None], axis: Axis,
               debug_info: DebugInfo | None = None) -> tuple[list[Any], list[int | None]]:
    """Run a function of flat values on batches; gives its results and where their batched axes are."""
    trace = BatchTrace(state.trace, axis, debug_info)
    try:
        result = run_batched(trace, fun, args, dims)
    finally:
        trace.alive = False
    check_leaks(trace)
    return result


def run_batched(trace: BatchTrace, fun: Callable[..., Sequence[Any]], args: Sequence[Any], dims: Sequence[int | None],
                ) -> tuple[list[Any], list[int | None]]:
    """`batch_flat` as part of a trace, which hands what it does to the trace that is current."""
    inputs = [trace.join(arg, dim) for arg, dim in zip(args, dims, strict=True)]
    parent, trace.parent = trace.parent, state.trace
    try:
        with axis_scope(trace.axis.name, trace.axis.size), set_trace(trace):
            outs = fun(*inputs)
    finally:
        trace.parent = parent
    pairs = [trace.split(out) for out in outs]
    return [value for value, _ in pairs], [dim for _, dim in pairs]


def batch_jaxpr(closed: ClosedJaxpr, axis: Axis, dims: Sequence[int | None], batch_out: Sequence[bool] | bool = False,
                places: Sequence[int] = ()) -> tuple[ClosedJaxpr, list[Any], list[bool]]:
    """The program on batches. Batched inputs have their axis at `dims`; batched outputs have it at 0.

    Args:
      batch_out: which outputs get a batched axis in any case.
      places: where each output has its axis, if it is batched; at 0 without it.
    Returns: the program, of consts + inputs, those consts, and for each output whether it is batched.
    """
    wanted = one_each(batch_out, len(closed.out_avals))
    key = ("batch", axis.size, axis.name, axis.spmd_name, axis.vma, axis.cut, tuple(dims), tuple(wanted), tuple(places),
           tuple(state.axis_sizes.items()))
    return derived(closed, key, lambda: _batch_jaxpr(closed, axis, dims, wanted, places or [0] * len(wanted)))


def _batch_jaxpr(closed: ClosedJaxpr, axis: Axis, dims: Sequence[int | None], wanted: list[bool], places: Sequence[int],
                 ) -> tuple[ClosedJaxpr, list[Any], list[bool]]:
    in_avals = [aval if dim is None else axis.batched(aval, dim)
                for aval, dim in zip(closed.in_avals, dims, strict=True)]
    batched_out: list[bool] = []

    def fun(*args: Any) -> list[Any]:
        pin = pin_marked()
        outs, out_dims = batch_flat(lambda *xs: eval_jaxpr(closed.jaxpr, closed.consts, *xs, before=pin), args, dims, axis)
        batched_out.extend(dim is not None or flag for dim, flag in zip(out_dims, wanted, strict=True))
        if high_types.exist:
            for index, (out, dim) in enumerate(zip(outs, out_dims, strict=True)):
                if aval_of(out).is_high and batched_out[index]:
                    batched_out[index] = _HighPlace(dim)  # type: ignore[call-overload]
        return [bring(out, dim, axis.size, place) if flag is True or flag and needed else out
                for out, dim, flag, needed, place in zip(outs, out_dims, batched_out, wanted, places, strict=True)]

    jaxpr, consts = trace_to_jaxpr(fun, in_avals, closed.jaxpr.debug_info)
    return hoist_consts(jaxpr), consts, batched_out


def place_of(flag: Any) -> Any:
    """Where the axis of an output of `batch_jaxpr` is, from what that says of it."""
    return (0 if flag else None) if type(flag) is bool else flag.spec


class _HighPlace:
    """Stands in the flags of `batch_jaxpr` for an output of a high type: its axes stay where they are."""

    __slots__ = ("spec",)

    def __init__(self, spec: Any):
        self.spec = spec


# --- moving the batched axis -------------------------------------------------------------------------


def _no_mover(*args: Any) -> Any:
    raise RuntimeError("jaxlite.lax has not been imported")


# Set by jaxlite.lax, which knows how to move axes and to broadcast.
_move: Callable[[Any, int, int], Any] = _no_mover
_spread: Callable[[Any, int, int], Any] = _no_mover


def set_movers(move: Callable[[Any, int, int], Any], spread: Callable[[Any, int, int], Any]) -> None:
    """Say how to move an axis (`move(x, source, target)`) and to add one by repeating (`spread(x, size, target)`)."""
    global _move, _spread
    _move, _spread = move, spread


def bring(value: Any, dim: int | None, size: int, target: int) -> Any:
    """The batch with its axis at a position; an unbatched value is repeated."""
    if high_types.exist and aval_of(value).is_high:
        if dim is None or dim != spec_of(aval_of(value), target):
            raise NotImplementedError(f"vmap cannot move the axes of a value of the type {aval_of(value)} from {dim} to "
                                      f"{target}, as it has to here")
        return value
    if dim is None:
        made = _spread(value, size, target)
        if state.batch_cut is not None:
            return placement.constraints().laid_out_as(made, with_axis(aval_of(value), target, size, state.batch_cut))
        return made
    return value if dim == target else _move(value, dim, target)


def bring_to_front(value: Any, dim: int | None, size: int) -> Any:
    """The batch with its axis in front; an unbatched value is repeated."""
    return bring(value, dim, size, 0)


def move(value: Any, dim: int, target: int) -> Any:
    """The batch with its axis moved."""
    if high_types.exist and aval_of(value).is_high:
        return bring(value, dim, 0, target)
    return value if dim == target else _move(value, dim, target)


# --- makers of rules ---------------------------------------------------------------------------------


elementwise: set[Primitive] = set()  # once `load_rules` has run, those whose results depend on one element of each operand


def def_elementwise(primitive: Primitive) -> None:
    """Set the rule of an elementwise primitive: align the batched axes and apply it to the batches."""
    elementwise.add(primitive)

    def batching(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, int]:
        if len(args) == 1:
            return primitive.bind(args[0], **params), dims[0]  # type: ignore[return-value]
        shapes = [aval_of(arg).shape for arg in args]
        first = dims[0]
        if first is not None and dims.count(first) == len(dims) and len({*map(len, shapes)}) == 1:  # the most frequent case
            return primitive.bind(*args, **params), first
        first = next(dim for dim in dims if dim is not None)
        ranks = [len(shape) - (dim is not None) for shape, dim in zip(shapes, dims, strict=True)]
        rank = max(ranks)
        if all(dim == first and each == rank for dim, each in zip(dims, ranks, strict=True)):
            return primitive.bind(*args, **params), first
        if all((dim == first and each == rank) if dim is not None else each == 0
               for dim, each in zip(dims, ranks, strict=True)):
            return primitive.bind(*args, **params), first  # unbatched scalars stretch by themselves
        # All get the batch in front, or where those of full rank have it if what is stretched over them are scalars.
        whole = {dim for dim, each in zip(dims, ranks, strict=True) if dim is not None and each == rank}
        target = whole.pop() if len(whole) == 1 and {*ranks} <= {0, rank} else 0
        aligned = []
        for arg, dim, each in zip(args, dims, ranks, strict=True):
            if dim is None:
                aligned.append(arg if each == 0 else _insert_ones(arg, target, 1))
            elif each == rank:
                aligned.append(_move(arg, dim, target) if dim != target else arg)
            else:
                arg = _insert_ones(_move(arg, dim, 0) if dim else arg, 1, rank - each - target)
                aligned.append(_insert_ones(arg, 0, target) if target else arg)
        return primitive.bind(*aligned, **params), target

    primitive.def_batching(batching)


def def_in_place(primitive: Primitive) -> None:
    """Set the rule of a primitive of one operand that does the same with a batch, whose axis stays where it is."""
    primitive.def_batching(lambda _, args, dims, /, **params: (primitive.bind(*args, **params), dims[0]))


def def_batching_of_one(primitive: Primitive) -> Callable[..., Any]:
    """Decorator: the rule of a primitive of one operand, `rule(axis, x, dim, **params)`; `dim` is its batch axis."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        primitive.def_batching(lambda axis, args, dims, /, **params: rule(axis, *args, *dims, **params))
        return rule

    return register


def _insert_ones(value: Any, position: int, count: int) -> Any:
    return _expand(value, range(position, position + count))


_expand: Callable[[Any, Sequence[int]], Any] = _no_mover


def set_expander(function: Callable[[Any, Sequence[int]], Any]) -> None:
    """Say how to insert axes of size 1 at some places of the result."""
    global _expand
    _expand = function


@add_any_p.def_batching
def _add_any_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None]) -> tuple[Any, int]:
    target = next(dim for dim in dims if dim is not None)
    return add_any_p.bind(*[bring(arg, dim, axis.size, target) for arg, dim in zip(args, dims, strict=True)]), target
