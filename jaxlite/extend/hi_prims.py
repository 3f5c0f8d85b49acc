"""Operations on pytrees as JAX's later versions have them: `HiPrim`, and rules of one made of those of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxlite.core.aval import without_axis
from jaxlite.core.jaxpr import pick
from jaxlite.core.tree import tree_flatten, tree_map, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.extend.hi_primitives import VJPHiPrimitive, call_hi_primitive_p
from jaxlite.lax.reductions import reduce_sum
from jaxlite.traces.batching import batch_flat, bring
from jaxlite.traces.jvp import Zero, instantiate, nonzero_flags, tangent_aval
from jaxlite.transforms.derivatives import linear_transpose


def _is_none(value: Any) -> bool:
    return value is None


class HiPrim(VJPHiPrimitive):
    """An operation on pytrees with static parameters: each instance is the operation for arguments of given types.

    The constructor of a subclass sets `in_avals`, `out_aval` and `params`, and calls this one, which calls
    `check(*in_avals)`. Methods of a subclass: `expand(self, *args)` computes it with other operations.
    `jvp(self, primals, tangents)` is its forward derivative; `lin(self, nonzero, *args)` gives the result and residuals,
    `linearized(self, residuals, *tangents)` the tangent. `vjp_fwd(self, nonzero, *args)` gives the result and residuals, and
    `vjp_bwd(self, residuals, cotangent, *accumulators)` adds to the accumulators of the arguments, or
    `vjp_bwd_retval(self, residuals, cotangent)` returns cotangents. Both `lin` and `vjp_fwd` may give two values more: which
    results have a tangent, and residuals that come as a second argument. Rules may be derived:
    `vjp_fwd, vjp_bwd_retval = vjp_from_jvp`, or `= vjp_from_lin`; `lin, linearized = linearize_from_jvp`;
    `jvp = jvp_from_lin`. `transpose(self, cotangent, *args)`, with accumulators for the arguments in which it is linear, is
    the rule of linear operations, `batch(self, axis, args, dims)` that of `vmap`. `dce(self, used, live)` gives which
    arguments are needed, which results there still are, and the operation on those, or None.

    >>> import jaxlite
    >>> class Power(HiPrim):
    ...     def __init__(self, aval, n):
    ...         self.in_avals, self.out_aval, self.params = (aval,), aval, dict(n=n)
    ...         super().__init__()
    ...     def expand(self, x):
    ...         return x ** self.n
    ...     def jvp(self, primals, tangents):
    ...         (x,), (dot,) = primals, tangents
    ...         return self(x), instantiate(dot) * self.n * x ** (self.n - 1)
    ...     vjp_fwd, vjp_bwd_retval = vjp_from_jvp
    >>> jaxlite.grad(lambda x: Power(jaxlite.typeof(x), 3)(x))(2.0)
    Array(12., dtype=float32, weak_type=True)
    """

    def __init__(self) -> None:
        for name in ("in_avals", "out_aval", "params"):
            if not hasattr(self, name):
                raise AttributeError(f"subclass {type(self).__name__} of HiPrim sets no `{name}` before it calls "
                                     "super().__init__()")
        super().__init__()
        self.check(*self.in_avals)

    def __call__(self, *args: Any) -> Any:
        leaves, tree = tree_flatten(args)
        if tree != self.in_tree:
            raise TypeError(f"{self} takes arguments of the structure {self.in_tree}, but got {tree}")
        return tree_unflatten(self.out_tree, call_hi_primitive_p.bind(*leaves, _prim=self))

    def expand(self, *args: Any) -> Any:
        raise self._undefined("use", "expand")

    def batch(self, axis_data: Any, args: Any, dims: Any) -> Any:
        raise self._undefined("vmap", "batch")

    def dce(self, used_outs: Any, live_ins: Any) -> Any:  # type: ignore[override]
        return super().dce(used_outs) if not self.effects else (True, True, self)

    def remat(self, trace: Any, *args: Any) -> Any:
        return self(*args), (), lambda _, *again: self(*again)

    def staging(self, trace: Any, source_info: Any, *args: Any) -> Any:
        return tree_unflatten(self.out_tree, super().staging(trace, source_info, *args))

    def pp_params(self) -> dict[str, Any]:
        """The params that a printed program shows."""
        return {name: value for name, value in self.params.items() if not name.startswith("_")}

    def _stage(self, trace: Any, source_info: Any, args: Any) -> Any:
        found = self.staging(trace, source_info, *args)
        leaves, tree = tree_flatten(found)
        return leaves if tree == self.out_tree else found

    def _narrow(self, used: Any) -> Any:
        return self.dce(used, tree_unflatten(self.in_tree, [True] * self.in_tree.num_leaves))

    def _derived(self) -> str:
        rules = type(self)
        if rules.vjp_fwd is vjp_from_jvp.vjp_fwd or rules.lin is linearize_from_jvp.lin and not self.has("vjp_fwd"):
            return "jvp"
        return "lin" if rules.vjp_fwd is vjp_from_lin.vjp_fwd else ""


# --- rules from others. `jvp` and `lin` are asked for by derivatives themselves; these are what a call of the rule gives.


class _Pair:
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"this is a pair of rules, not one: in a class, `{', '.join(self._fields)} = ...`")  # type: ignore[attr-defined]


class _Linearize(NamedTuple):
    lin: Callable[..., Any]
    linearized: Callable[..., Any]


class _Backward(NamedTuple):
    vjp_fwd: Callable[..., Any]
    vjp_bwd_retval: Callable[..., Any]


class _LinearizePair(_Pair, _Linearize):
    __slots__ = ()


class _BackwardPair(_Pair, _Backward):
    __slots__ = ()


def _lin_by_jvp(self: HiPrim, nzs_in: Any, *primals: Any) -> Any:
    return self(*primals), primals


def _linearized_by_jvp(self: HiPrim, residuals: Any, *tangents: Any) -> Any:
    return self.jvp(residuals, tangents)[1]


def _transposed(prim: HiPrim, push: Callable[..., Any], nonzero: Any, cotangent: Any) -> Any:
    """The cotangents of the arguments, by a linear function of all tangents."""
    flags = list(map(bool, tree_flatten(nonzero)[0]))
    avals = [tangent_aval(aval) for aval in prim.in_avals_flat]

    def moved(*tangents: Any) -> list[Any]:
        rest = iter(tangents)
        full = [next(rest) if flag else Zero(aval) for flag, aval in zip(flags, avals, strict=True)]
        return [instantiate(out) for out in prim.out_tree.flatten_up_to(push(tree_unflatten(prim.in_tree, full)))]

    found = iter(linear_transpose(moved, *pick(avals, flags))(
        [instantiate(each) for each in prim.out_tree.flatten_up_to(cotangent)]))
    return tree_unflatten(prim.in_tree, [next(found) if flag else Zero(aval) for flag, aval in zip(flags, avals, strict=True)])


def _fwd_by_jvp(self: HiPrim, nzs_in: Any, *primals: Any) -> Any:
    return self(*primals), (primals, nzs_in)


def _bwd_by_jvp(self: HiPrim, res: Any, outgrad: Any) -> Any:
    primals, nonzero = res
    return _transposed(self, lambda tangents: self.jvp(primals, tangents)[1], nonzero, outgrad)


def _fwd_by_lin(self: HiPrim, nzs_in: Any, *primals: Any) -> Any:
    out, *rest = self.lin(nzs_in, *primals)
    return out, ([rest[0], *rest[2:]], nzs_in), *rest[1:2]


def _bwd_by_lin(self: HiPrim, res: Any, outgrad: Any) -> Any:
    residuals, nonzero = res
    return _transposed(self, lambda tangents: self.linearized(*residuals, *tangents), nonzero, outgrad)


linearize_from_jvp = _LinearizePair(_lin_by_jvp, _linearized_by_jvp)
vjp_from_jvp = _BackwardPair(_fwd_by_jvp, _bwd_by_jvp)
vjp_from_lin = _BackwardPair(_fwd_by_lin, _bwd_by_lin)


def jvp_from_lin(self: HiPrim, primals: Any, tangents: Any) -> Any:
    """A rule `jvp` by `lin` and `linearized`."""
    if type(self).lin is linearize_from_jvp.lin:
        raise TypeError(f"subclass {type(self).__name__} defines `jvp` by `lin` and `lin` by `jvp`")
    nonzero = nonzero_flags(self.in_tree.flatten_up_to(tangents))
    out, *rest = self.lin(tree_unflatten(self.in_tree, nonzero), *primals)
    return out, self.linearized(rest[0], *rest[2:], *tangents)


# --- what batching rules need ---------------------------------------------------------------------------


def unmap_avals(axis_data: Any, avals: Any, dims: Any) -> Any:
    """The types of batches, from those of one value and the places of the batched axes; None: of what is not batched."""
    return tree_map(lambda aval, dim: aval if dim is None else axis_data.batched(aval, dim), avals, dims)


def bdims_at_front(axis_data: Any, args: Any, dims: Any) -> Any:
    """The values with their batched axes in front; what is not batched is repeated."""
    return tree_map(lambda value, dim: bring(value, dim, axis_data.size, 0), args, dims)


def vmap_rule(axis_data: Any, f: Callable[..., Any], in_axes: Any, out_axes: Any, *,
              sum_match: bool = False) -> Callable[..., Any]:
    """A function on batches, as a rule `batch` needs it: `f` on each, along the axis that is being batched.

    Args:
      in_axes, out_axes: the places of batched axes, trees or prefixes of trees of the arguments and of the result.
      sum_match: results that vary, and have None in `out_axes`, are summed up.

    Zeros among arguments and results (`hijax.Zero`) stay zeros. Raises: ValueError for a result that varies and has None.
    """
    def batched(*args: Any) -> Any:
        dims = _spread(in_axes, args)
        leaves, tree = tree_flatten(args)
        zeros = {index: Zero(_one(leaf.aval, dims[index], axis_data.size)) for index, leaf in enumerate(leaves)
                 if type(leaf) is Zero}
        out_tree: Any = None
        out_zeros: dict[int, Zero] = {}

        def flat(*values: Any) -> list[Any]:
            nonlocal out_tree
            rest = iter(values)
            full = [zeros[index] if index in zeros else next(rest) for index in range(len(leaves))]
            outs, out_tree = tree_flatten(f(*tree_unflatten(tree, full)))
            out_zeros.update((index, out) for index, out in enumerate(outs) if type(out) is Zero)
            return [out for out in outs if type(out) is not Zero]

        kept = [index for index in range(len(leaves)) if index not in zeros]
        outs, out_dims = batch_flat(flat, [leaves[index] for index in kept], [dims[index] for index in kept], axis_data)
        found = iter(zip(outs, out_dims, strict=True))
        wanted = _spread(out_axes, tree_unflatten(out_tree, range(out_tree.num_leaves)))
        results = []
        for index, target in enumerate(wanted):
            if index in out_zeros:
                zero = out_zeros[index]
                results.append(zero if target is None else Zero(axis_data.batched(zero.aval, target)))
            else:
                results.append(_placed(*next(found), target, axis_data.size, sum_match))
        return tree_unflatten(out_tree, results)

    return batched


def _spread(prefix: Any, tree: Any) -> list[Any]:
    """The places of the leaves of a tree, from a prefix of it, in which None is a place."""
    found: list[Any] = []
    tree_map(lambda dim, part: found.extend([dim] * len(tree_flatten(part)[0])), prefix, tree, is_leaf=_is_none)
    return found


def _one(aval: Any, dim: Any, size: int) -> Any:
    return aval if dim is None else without_axis(aval, dim, size)


def _placed(value: Any, dim: Any, target: Any, size: int, sum_match: bool) -> Any:
    if target is not None:
        return value if aval_of(value).is_high and dim == target else bring(value, dim, size, target)
    if dim is None:
        return value
    if sum_match:
        return reduce_sum(value, (dim,))
    raise ValueError("vmap has mapped output, but out_axes is None: the rule gives a result that varies along the axis")
