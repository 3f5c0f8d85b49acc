"""Primitives that are written as classes, and accept values of high types (`core/high.py`) as well as arrays.

Before lowering, such an operation is replaced by others: those of `HiPrimitive.to_lojax`, or `VJPHiPrimitive.expand`.
Derivatives and batching apply to the operation itself, by its own rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jaxlite.core import high
from jaxlite.core.jaxpr import JaxprEqn, no_effects, pick
from jaxlite.core.primitive import Primitive
from jaxlite.core.source import function_location, here
from jaxlite.core.staging import trace_to_jaxpr
from jaxlite.core.tracing import state
from jaxlite.core.tree import broadcast_prefix, tree_flatten, tree_unflatten, with_places
from jaxlite.core.values import aval_of
from jaxlite.lax.reductions import reduce_sum
from jaxlite.traces.backward_logs import as_outputs, log, log_outputs
from jaxlite.traces.batching import batch_flat, bring
from jaxlite.traces.jvp import Zero, instantiate, nonzero_flags, tangent_aval
from jaxlite.traces.linearize import with_user_rule
from jaxlite.traces.saving import narrowing
from jaxlite.traces.transpose import Linear, backward, is_linear
from jaxlite.transforms.accumulators import GradAccum, accumulator, values_of

# Methods of a subclass that are rules: they go to the slots of the primitive.
_SLOTS = {"impl": "eager", "jvp": "jvp", "transpose": "transpose", "batch": "batching"}


class HiPrimitive(Primitive):
    """A primitive whose rules are methods of a subclass.

    `abstract_eval(self, *avals, **params)` gives the types of the results and the effects; an operand whose type has a state
    comes as an `AvalMutableQDD`, and a new one is given as an `AvalQDD`. `to_lojax(self, *args, **params)` computes it with
    other operations, `impl` what an eager call does in its place; `jvp(self, primals, tangents, **params)`,
    `transpose(self, cotangent, *args, **params)` and `batch(self, axis, args, dims, **params)` are as in the tables of
    rules. `multiple_results` is an attribute of the class.

    >>> import jaxlite
    >>> class Double(HiPrimitive):
    ...     def abstract_eval(self, x):
    ...         return x, set()
    ...     def to_lojax(self, x):
    ...         return x + x
    ...     def jvp(self, primals, tangents):
    ...         return double_p.bind(*primals), double_p.bind(*tangents)
    ...     def transpose(self, cotangent, x):
    ...         return (double_p.bind(cotangent),)
    >>> double_p = Double("double")
    >>> jaxlite.jit(jaxlite.grad(lambda x: double_p.bind(x) ** 2))(3.0)
    Array(24., dtype=float32, weak_type=True)
    """

    __slots__ = ()
    has_foreign_jvp = True
    _methods: dict[str, Callable] = {}
    _has_many = False

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        cls._methods = dict(cls._methods)
        if "multiple_results" in vars(cls):
            cls._has_many = vars(cls)["multiple_results"]
            delattr(cls, "multiple_results")
        for name in _SLOTS:
            if name in vars(cls):
                cls._methods[name] = vars(cls)[name]
                delattr(cls, name)

    def __init__(self, name: str):
        super().__init__(name, self._has_many, is_own=False)
        self.stage = partial(_record, self)
        self.eager = self._run
        for method, rule in self._methods.items():
            setattr(self, _SLOTS[method], rule.__get__(self))
        if self.jvp is not None and self.linearize is None:
            self.linearize = with_user_rule(self.jvp)

    def is_high(self, *avals: Any, **params: Any) -> bool:
        """Whether it is written for high types."""
        return True

    def is_effectful(self, params: dict[str, Any]) -> bool:
        return False

    def abstract_eval(self, *arg_avals: Any, **params: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define `abstract_eval`")

    def to_lojax(self, *args: Any, **params: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define `to_lojax`")

    def _run(self, *args: Any, **params: Any) -> Any:
        return self.to_lojax(*args, **params)

    def typed(self, avals: list[Any], params: dict[str, Any]) -> Any:
        outs, effects = self.abstract_eval(*[high.AvalMutableQDD(aval.aval, high.MutableQuasiDynamicData(aval.qdd))
                                             if type(aval) is high.AvalQDD else aval for aval in avals], **params)
        return (list(outs) if self.multiple_results else outs), frozenset(effects) or no_effects


def _record(primitive: HiPrimitive, trace: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    return high.record(trace, primitive, args, params)


# --- operations with rules of trees ------------------------------------------------------------------


def accumulated(rule: Callable[..., Any], operands: Sequence[Any]) -> list[Any]:
    """The cotangents of operands: those that a result is linear in are accumulators, to which the rule adds. It may give a
    dict, to be logged."""
    given = [accumulator(operand.aval, operand.target) if is_linear(operand) else operand for operand in operands]
    log(rule(*given), call_hi_primitive_p)
    return values_of(given)


class VJPHiPrimitive:
    """An operation on pytrees with static parameters: each instance is the operation for arguments of given types.

    The constructor of a subclass sets `in_avals`, a tuple with the types of the arguments (pytrees of them), `out_aval`, that
    of the result, and `params`, a dict of static values that become attributes; then it calls this one. Methods of a subclass:
    `expand(self, *args)` computes it with other operations. `jvp(self, primals, tangents)` is its forward derivative. For
    reverse mode, `vjp_fwd(self, nonzero, *args)` gives the result and what the backward pass needs, and
    `vjp_bwd(self, residuals, cotangent, *accumulators)` adds to each argument's accumulator, by its `accum`, and may give a
    dict of what the backward pass logs; or
    `vjp_bwd_retval(self, residuals, cotangent)` returns the cotangents. Without them, `lin(self, nonzero, *args)` gives the
    result and residuals, and `linearized(self, residuals, *tangents)` the tangent. `transpose(self, cotangent, *args)`, with
    accumulators for the arguments in which it is linear, is the rule of linear operations. `batch(self, axis, args, dims)`
    gives the result of a batch and where its axes are; `batch_dim_rule(self, axis, dims)` says only the latter.
    `dce(self, used)` gives, for flags in the structure of the result, which arguments are needed, which results there still
    are, and the operation on those, or None if none is needed. `staging(self, trace, source_info, *args)` records it in a
    program, and gives the results as a list.

    >>> import jaxlite
    >>> class Power(VJPHiPrimitive):
    ...     def __init__(self, aval, n):
    ...         self.in_avals, self.out_aval, self.params = (aval,), aval, dict(n=n)
    ...         super().__init__()
    ...     def expand(self, x):
    ...         return x ** self.n
    ...     def vjp_fwd(self, nonzero, x):
    ...         return self(x), x
    ...     def vjp_bwd(self, x, cotangent, of_x):
    ...         of_x.accum(cotangent * self.n * x ** (self.n - 1))
    >>> jaxlite.grad(lambda x: Power(jaxlite.typeof(x), 3)(x))(2.0)
    Array(12., dtype=float32, weak_type=True)
    """

    in_avals: tuple[Any, ...]
    out_aval: Any
    params: dict[str, Any]
    effects: frozenset[Any] = no_effects

    def __init__(self) -> None:
        for name in ("in_avals", "out_aval", "params"):
            if not hasattr(self, name):
                raise AttributeError(f"subclass {type(self).__name__} of VJPHiPrimitive sets no `{name}` before it calls "
                                     "super().__init__()")
        if not hasattr(type(self), "expand"):
            raise NotImplementedError(f"subclass {type(self).__name__} of VJPHiPrimitive must implement `expand`")
        self.in_avals_flat, self.in_tree = tree_flatten(self.in_avals)
        self.out_avals_flat, self.out_tree = tree_flatten(self.out_aval)
        self.__dict__.update(self.params)

    def __call__(self, *args: Any) -> Any:
        leaves, tree = tree_flatten(args)
        if tree != self.in_tree:
            raise TypeError(f"{self} takes arguments of the structure {self.in_tree}, but got {tree}")
        self.check(*tree_unflatten(tree, [aval_of(leaf) for leaf in leaves]))
        return tree_unflatten(self.out_tree, call_hi_primitive_p.bind(*leaves, _prim=self))

    def check(self, *arg_tys: Any) -> None:
        """Raise an error if the types of arguments are not right."""

    def vjp_bwd(self, res: Any, outgrad: Any, /, *arg_accums: Any) -> Any:
        for accumulators, cotangents in zip(arg_accums, self.vjp_bwd_retval(res, outgrad), strict=True):
            for each, cotangent in zip(tree_flatten(accumulators)[0], tree_flatten(cotangents, _is_none)[0], strict=True):
                each.accum(cotangent)

    def _undefined(self, what: str, method: str) -> NotImplementedError:
        return NotImplementedError(f"for {what} support, subclass {type(self).__name__} must implement `{method}`")

    def jvp(self, primals: Any, tangents: Any) -> Any:
        raise self._undefined("jvp", "jvp")

    def vjp_fwd(self, nzs_in: Any, /, *args: Any) -> Any:
        raise self._undefined("grad", "vjp_fwd` and `vjp_bwd")

    def vjp_bwd_retval(self, res: Any, outgrad: Any, /) -> Any:
        raise self._undefined("grad", "vjp_bwd` or `vjp_bwd_retval")

    def lin(self, nzs_in: Any, *primals: Any) -> Any:
        raise self._undefined("linearize", "lin` and `linearized")

    def linearized(self, residuals: Any, *tangents: Any) -> Any:
        raise self._undefined("linearize", "lin` and `linearized")

    def transpose(self, out_ct: Any, *maybe_accums: Any) -> None:
        raise self._undefined("transpose", "transpose")

    def batch(self, axis_data: Any, args: Any, dims: Any) -> Any:
        raise self._undefined("vmap", "batch` or `batch_dim_rule")

    def batch_dim_rule(self, axis_data: Any, dims: Any, /) -> Any:
        raise self._undefined("vmap", "batch` or `batch_dim_rule")

    def dce(self, used_outs: Any) -> tuple[Any, Any, VJPHiPrimitive | None]:
        return (True, True, self) if any(tree_flatten(used_outs)[0]) else (False, False, None)

    def remat(self, _policy: Any, *args: Any) -> tuple[Any, Callable[..., Any]]:
        return self(*args), self

    def staging(self, trace: Any, source_info: Any, *args: Any) -> list[Any]:
        return high.record(trace, call_hi_primitive_p, tree_flatten(args)[0], {"_prim": self}, source_info)

    def _stage(self, trace: Any, source_info: Any, args: Any) -> Any:
        return self.staging(trace, source_info, *args)

    def _narrow(self, used: Any) -> Any:
        return self.dce(used)

    def _derived(self) -> str:
        """Which rule gives reverse mode where `vjp_fwd` does not: "jvp", "lin", or none."""
        return ""

    def has(self, *methods: str) -> bool:
        """Whether a subclass defines one of these."""
        return any(getattr(type(self), method) is not getattr(VJPHiPrimitive, method) for method in methods)

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self.params}]"

    def _key(self) -> Any:
        types = tuple(self.in_avals_flat), self.in_tree, tuple(self.out_avals_flat), self.out_tree
        return type(self), *types, tuple(sorted(self.params.items()))

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, VJPHiPrimitive) and self._key() == other._key()


def _is_none(value: Any) -> bool:
    return value is None


def _flat(tree: Any, values: Any) -> list[Any]:
    """The leaves of a tree of a known structure."""
    return tree.flatten_up_to(values)


class _CallHiPrimitive(HiPrimitive):
    """A call of a `VJPHiPrimitive`, on flat values."""

    multiple_results = True

    def abstract_eval(self, *avals: Any, _prim: VJPHiPrimitive) -> Any:
        return _prim.out_avals_flat, _prim.effects

    def to_lojax(self, *args: Any, _prim: VJPHiPrimitive) -> list[Any]:
        return _flat(_prim.out_tree, _prim.expand(*tree_unflatten(_prim.in_tree, args)))  # type: ignore[attr-defined]

    def jvp(self, primals: Any, tangents: Any, *, _prim: VJPHiPrimitive) -> Any:
        outs, dots = _prim.jvp(*[tree_unflatten(_prim.in_tree, values) for values in (primals, tangents)])
        return _flat(_prim.out_tree, outs), _flat(_prim.out_tree, dots)

    def transpose(self, cotangents: Any, *operands: Any, _prim: VJPHiPrimitive) -> list[Any]:
        cotangent = tree_unflatten(_prim.out_tree, map(instantiate, cotangents))
        return accumulated(lambda *given: _prim.transpose(cotangent, *tree_unflatten(_prim.in_tree, given)), operands)

    def batch(self, axis: Any, args: Any, dims: Any, *, _prim: VJPHiPrimitive) -> Any:
        values, places = tree_unflatten(_prim.in_tree, args), tree_unflatten(_prim.in_tree, dims)
        if _prim.has("batch"):
            outs, out_dims = _prim.batch(axis, values, places)
        else:
            out_dims = _prim.batch_dim_rule(axis, places)
            outs = VmapOf(_prim, axis, tuple(dims), out_dims)(*values)
        return _flat(_prim.out_tree, outs), tree_flatten(out_dims, _is_none)[0]


call_hi_primitive_p = _CallHiPrimitive("call_hi_primitive")


def _stage_call(trace: Any, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    prim: VJPHiPrimitive = params["_prim"]
    outs = prim._stage(trace, trace.pinned or here(), tree_unflatten(prim.in_tree, args))
    if not isinstance(outs, (list, tuple)) or len(outs) != len(prim.out_avals_flat):
        raise TypeError(f"{function_location(prim.staging)} must return a list of {len(prim.out_avals_flat)} results, but "
                        f"returned {outs!r}")
    return list(outs)


def _narrow(eqn: JaxprEqn, used: list[bool]) -> JaxprEqn | None:
    prim: VJPHiPrimitive = eqn.params["_prim"]
    found = prim._narrow(tree_unflatten(prim.out_tree, used))
    if not isinstance(found, tuple) or len(found) != 3 or not isinstance(found[2], (VJPHiPrimitive, type(None))):
        raise TypeError(f"{function_location(prim.dce)} must return flags for arguments, flags for results, and an operation "
                        f"or None, but returned {found!r}")
    reads, gives = (broadcast_prefix(flags, with_places(tree))
                    for flags, tree in zip(found, (prim.in_tree, prim.out_tree), strict=False))
    operands, results = pick(eqn.invars, reads), pick(eqn.outvars, gives)
    smaller = found[2]
    if any(flag and not given for flag, given in zip(used, gives, strict=True)) or smaller is not None and (
            len(operands), len(results)) != (len(smaller.in_avals_flat), len(smaller.out_avals_flat)):
        raise TypeError(f"{function_location(prim.dce)} gives {smaller} for results {used}: it keeps arguments {reads} and "
                        f"results {gives}, which are not those of the operation, or not all that are used")
    return None if smaller is None else eqn.replace(invars=operands, outvars=results, params={"_prim": smaller})


call_hi_primitive_p.stage = _stage_call
narrowing[call_hi_primitive_p] = _narrow


def _linearize(primals: Sequence[Any], tangents: Sequence[Any], *, _prim: VJPHiPrimitive) -> Any:
    nonzero = nonzero_flags(tangents)
    flags, args = tree_unflatten(_prim.in_tree, nonzero), tree_unflatten(_prim.in_tree, primals)
    derived = _prim._derived()
    forward = (state.pushes_forward or not _prim.has("vjp_fwd") or derived == "lin") and (
        _prim.has("lin", "jvp") or state.pushes_forward)
    if derived == "jvp" or forward and not _prim.has("lin") and _prim.has("jvp"):
        return with_user_rule(call_hi_primitive_p.jvp)(primals, tangents, _prim=_prim)
    out, *rest = _prim.lin(flags, *args) if forward else _prim.vjp_fwd(flags, *args)
    residuals, nonzero_out = [rest[0], *rest[2:]], rest[1] if len(rest) > 1 else True
    outs = _flat(_prim.out_tree, out)
    leaves, tree = tree_flatten(residuals)
    moves = tuple(broadcast_prefix(nonzero_out, with_places(_prim.out_tree)))
    dots = linear_p.bind(*leaves, *pick(tangents, nonzero), prim=_prim, tree=tree,
                         nonzero=tuple(nonzero), forward=forward, moves=moves)
    return outs, [dot if flag else Zero(tangent_aval(aval))
                  for dot, flag, aval in zip(dots, moves, _prim.out_avals_flat, strict=True)]


call_hi_primitive_p.linearize = _linearize


class _Linear(HiPrimitive):
    """The derivative of a `VJPHiPrimitive` in a linear program: operands are residuals and the tangents that do not vanish."""

    multiple_results = True

    def abstract_eval(self, *avals: Any, prim: VJPHiPrimitive, **params: Any) -> Any:
        return [tangent_aval(aval) for aval in prim.out_avals_flat], no_effects

    def to_lojax(self, *args: Any, prim: VJPHiPrimitive, tree: Any, nonzero: tuple[bool, ...], forward: bool,
                 moves: tuple[bool, ...]) -> list[Any]:
        if not forward:
            raise prim._undefined("linearize", "jvp")
        residuals = tree_unflatten(tree, args[:tree.num_leaves])
        return self._pushed(prim, residuals, nonzero, args[tree.num_leaves:])

    @staticmethod
    def _pushed(prim: VJPHiPrimitive, residuals: Any, nonzero: tuple[bool, ...], tangents: Sequence[Any]) -> list[Any]:
        rest = iter(tangents)
        full = [next(rest) if flag else Zero(tangent_aval(aval))
                for flag, aval in zip(nonzero, prim.in_avals_flat, strict=True)]
        outs = prim.linearized(*residuals, *tree_unflatten(prim.in_tree, full))
        return [instantiate(out) for out in _flat(prim.out_tree, outs)]

    def transpose(self, cotangents: Any, *operands: Any, prim: VJPHiPrimitive, tree: Any, nonzero: tuple[bool, ...],
                  forward: bool, moves: tuple[bool, ...]) -> list[Any]:
        residuals = tree_unflatten(tree, operands[:tree.num_leaves])
        targets = iter([operand.target if is_linear(operand) else False for operand in operands[tree.num_leaves:]])
        accumulators = [accumulator(aval, next(targets) if flag else False)
                        for aval, flag in zip(prim.in_avals_flat, nonzero, strict=True)]
        cotangent = tree_unflatten(prim.out_tree, [
            instantiate(each) if flag else Zero(tangent_aval(aval))
            for each, flag, aval in zip(cotangents, moves, prim.out_avals_flat, strict=True)])
        if forward:
            self._transpose_linearized(prim, residuals, nonzero, cotangents, accumulators)
        else:
            log(prim.vjp_bwd(*residuals, cotangent, *tree_unflatten(prim.in_tree, accumulators)), linear_p)
        return [None] * tree.num_leaves + values_of(pick(accumulators, nonzero))

    def _transpose_linearized(self, prim: VJPHiPrimitive, residuals: Any, nonzero: tuple[bool, ...], cotangents: Any,
                              accumulators: Sequence[GradAccum]) -> None:
        def push(*tangents: Any) -> list[Any]:
            return self._pushed(prim, residuals, nonzero, tangents)

        active = pick(accumulators, nonzero)
        avals = [each.aval for each in active]
        jaxpr, consts = trace_to_jaxpr(push, avals)
        for each, cotangent in zip(active, backward(jaxpr, consts, [Linear(aval) for aval in avals], cotangents), strict=True):
            each.accum(cotangent)


linear_p = _Linear("call_hi_primitive_linearized")


class VmapOf(VJPHiPrimitive):
    """A `VJPHiPrimitive` on batches, by its own methods: for one that says only where the axes of its results are."""

    in_dims: tuple[Any, ...]
    out_dims: tuple[Any, ...]

    def __init__(self, prim: VJPHiPrimitive, axis: Any, in_dims: tuple[Any, ...], out_dim: Any):
        self.prim, self.axis = prim, axis
        out_dims = tuple(tree_flatten(out_dim, _is_none)[0])
        self.in_avals = tree_unflatten(prim.in_tree, [_batch_type(aval, axis, dim)
                                                      for aval, dim in zip(prim.in_avals_flat, in_dims, strict=True)])
        self.out_aval = tree_unflatten(prim.out_tree, [_batch_type(aval, axis, dim)
                                                       for aval, dim in zip(prim.out_avals_flat, out_dims, strict=True)])
        self.params = {"prim": prim, "size": axis.size, "name": axis.name, "in_dims": in_dims, "out_dims": out_dims}
        super().__init__()

    def _mapped(self, fun: Callable[..., list[Any]], args: Sequence[Any], dims: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        return batch_flat(fun, args, dims, self.axis)

    def _placed(self, outs: Sequence[Any], dims: Sequence[Any], wanted: Sequence[Any]) -> list[Any]:
        return [out if dim == target or aval_of(out).is_high else bring(out, dim, self.axis.size, target)
                for out, dim, target in zip(outs, dims, wanted, strict=True)]

    def expand(self, *args: Any) -> Any:
        prim = self.prim
        outs, dims = self._mapped(partial(call_hi_primitive_p.to_lojax, _prim=prim), _flat(self.in_tree, args), self.in_dims)
        return tree_unflatten(self.out_tree, self._placed(outs, dims, self.out_dims))

    def jvp(self, primals: Any, tangents: Any) -> Any:
        prim, count = self.prim, self.in_tree.num_leaves

        def push(*values: Any) -> list[Any]:
            outs, dots = prim.jvp(*[tree_unflatten(prim.in_tree, part) for part in (values[:count], values[count:])])
            return [*_flat(prim.out_tree, outs), *map(instantiate, _flat(prim.out_tree, dots))]

        outs, dims = self._mapped(push, [*_flat(self.in_tree, primals), *map(instantiate, _flat(self.in_tree, tangents))],
                                  [*self.in_dims, *self.in_dims])
        outs = self._placed(outs, dims, [*self.out_dims, *self.out_dims])
        half = len(outs) // 2
        return tree_unflatten(self.out_tree, outs[:half]), tree_unflatten(self.out_tree, outs[half:])

    def vjp_fwd(self, nzs_in: Any, /, *args: Any) -> Any:
        prim, flags = self.prim, tree_unflatten(self.prim.in_tree, _flat(self.in_tree, nzs_in))
        tree: Any = None

        def forward(*values: Any) -> list[Any]:
            nonlocal tree
            out, residuals, *_ = prim.vjp_fwd(flags, *tree_unflatten(prim.in_tree, values))
            leaves, tree = tree_flatten(residuals)
            return [*_flat(prim.out_tree, out), *leaves]

        outs, dims = self._mapped(forward, _flat(self.in_tree, args), self.in_dims)
        count = len(self.out_dims)
        residuals = [bring(out, dim, self.axis.size, 0) for out, dim in zip(outs[count:], dims[count:], strict=True)]
        return (tree_unflatten(self.out_tree, self._placed(outs[:count], dims[:count], self.out_dims)),
                tree_unflatten(tree, residuals))

    def vjp_bwd_retval(self, res: Any, outgrad: Any, /) -> Any:
        prim, (leaves, tree) = self.prim, tree_flatten(res)
        logged: Any = None

        def backward(*values: Any) -> list[Any]:
            nonlocal logged
            accumulators = [accumulator(aval) for aval in prim.in_avals_flat]
            extra, logged = as_outputs(prim.vjp_bwd(
                tree_unflatten(tree, values[:len(leaves)]), tree_unflatten(prim.out_tree, values[len(leaves):]),
                *tree_unflatten(prim.in_tree, accumulators)) or {})
            return [*map(instantiate, values_of(accumulators)), *extra]

        outs, out_dims = self._mapped(backward, [*leaves, *_flat(self.out_tree, outgrad)],
                                      [*[0] * len(leaves), *self.out_dims])
        count = len(self.in_dims)
        log_outputs([bring(out, dim, self.axis.size, 0) for out, dim in zip(outs[count:], out_dims[count:], strict=True)],
                    logged, linear_p)
        outs, out_dims = outs[:count], out_dims[:count]
        placed = [bring(out, dim, self.axis.size, target or 0)
                  for out, dim, target in zip(outs, out_dims, self.in_dims, strict=True)]
        placed = [reduce_sum(out, (0,)) if target is None else out for out, target in zip(placed, self.in_dims, strict=True)]
        return tree_unflatten(self.in_tree, placed)

    def batch_dim_rule(self, axis_data: Any, dims: Any, /) -> Any:
        inner = [None if dim is None else dim - (own is not None and own < dim)
                 for dim, own in zip(_flat(self.in_tree, dims), self.in_dims, strict=True)]
        found = self.prim.batch_dim_rule(axis_data, tree_unflatten(self.prim.in_tree, inner))
        flat = tree_flatten(found, _is_none)[0]
        return tree_unflatten(self.out_tree, [None if dim is None else dim + (own is not None and own <= dim)
                                              for dim, own in zip(flat, self.out_dims, strict=True)])


def _batch_type(aval: Any, axis: Any, dim: Any) -> Any:
    return aval if dim is None else axis.batched(aval, dim)
