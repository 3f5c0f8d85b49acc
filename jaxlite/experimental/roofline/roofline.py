"""The cost of a program, by a rule for each primitive; `rooflines.py` has the rules.

A rule is `rule(ctx, *shapes, **params) -> RooflineResult`. Costs of equations are added up, but for the memory that values take
at one time, which is followed through the program. The body of a loop counts once, as in JAX: its trip count may be unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.aval import ShapedArray
from jaxlite.core.jaxpr import Jaxpr, JaxprEqn, Var, jaxprs_in_params
from jaxlite.core.lazy import loader
from jaxlite.core.primitive import Primitive
from jaxlite.core.shape_dtype import ShapeDtypeStruct, abstract
from jaxlite.core.tree import broadcast_prefix, tree_flatten, tree_map, tree_unflatten
from jaxlite.devices.sharding import NamedSharding
from jaxlite.traces.partial import dce_jaxpr
from jaxlite.transforms.derivatives import vjp as vjp_of
from jaxlite.transforms.make_jaxpr import make_jaxpr
from jaxlite.transforms.shard_map import shard_map

__all__ = ["RooflineResult", "RooflineRuleContext", "RooflineShape", "ShapeDtypeStructTree", "Specs", "ValidRooflineDtype",
           "register_roofline", "register_standard_roofline", "roofline", "roofline_and_grad"]
__dir__ = lambda: __all__

ShapeDtypeStructTree = Any  # a pytree of them
Specs = Any  # a pytree of PartitionSpecs
ValidRooflineDtype = np.dtype
Rule = Callable[..., "RooflineResult"]

RULES: dict[str, Rule] = {}  # by the primitive's name
_standard = loader("jaxlite.experimental.roofline.rooflines")  # fills it
# Equations that cost what their programs cost.
_CALLS = frozenset("jit remat2 custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr custom_linear closed_call core_call scan "
                   "shard_map custom_vmap_call nest".split())


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineResult:
    """The cost of a program. The sum of two results is the cost of both programs, one after the other.

    Args:
      flops: operations of matrix products, at which an accelerator is at its limit.
      unfused_flops: operations of all primitives that count.
      ici_bytes: by mesh axis, what its busiest link carries.
      ici_latency: by mesh axis, how many steps from device to device follow one another.
      hbm_bytes: what matrix products read and write.
      peak_hbm_bytes: the most memory that values take at one time.
      unfused_hbm_bytes: what all primitives that count read and write if none are fused.
    """

    flops: int = 0
    unfused_flops: int = 0
    ici_bytes: dict[str, int] = field(default_factory=dict)
    ici_latency: dict[str, int] = field(default_factory=dict)
    hbm_bytes: int = 0
    peak_hbm_bytes: int = 0
    unfused_hbm_bytes: int = 0

    @classmethod
    def zeros(cls) -> RooflineResult:
        """The cost of a program that does nothing."""
        return cls()

    def __add__(self, other: RooflineResult) -> RooflineResult:
        def both(name: str) -> Any:
            mine, theirs = getattr(self, name), getattr(other, name)
            if name == "peak_hbm_bytes":
                return max(mine, theirs)
            if isinstance(mine, dict):
                return {axis: mine.get(axis, 0) + theirs.get(axis, 0) for axis in {**mine, **theirs}}
            return mine + theirs

        return RooflineResult(**{each.name: both(each.name) for each in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineShape:
    """The shape and dtype of an operand."""

    shape: tuple[int, ...]
    dtype: Any

    @classmethod
    def from_aval(cls, aval: Any) -> RooflineShape:
        """The shape of a type. Raises: TypeError if it is not the type of an array."""
        if not isinstance(aval, ShapedArray):
            raise TypeError(f"Expected ShapedArray, got {type(aval)}.")
        return cls(shape=aval.shape, dtype=aval.dtype)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The memory that they take."""
        return self.size * self.dtype.itemsize

    @classmethod
    def total_bytes(cls, avals: Sequence[Any]) -> int:
        """The memory that arrays of these types take together."""
        return sum(cls.from_aval(aval).bytes for aval in avals)


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineRuleContext:
    """What a rule may look at beside its operands' shapes and the params of the equation."""

    name_stack: Any
    primitive: Primitive
    avals_in: Sequence[Any]
    avals_out: Sequence[Any]
    jaxpr_eqn_ctx: Any
    mesh: Any
    pin_lhs_in_vmem: bool
    pin_rhs_in_vmem: bool


def register_roofline(prim: Primitive) -> Callable[[Rule], Rule]:
    """Decorator: set the rule of a primitive, `rule(ctx, *shapes, **params)`, which gives a `RooflineResult`.

    Args: `ctx` is a `RooflineRuleContext`, `shapes` are `RooflineShape`s.
    """

    def register(rule: Rule) -> Rule:
        _standard()
        RULES[prim.name] = rule
        return rule

    return register


def register_standard_roofline(prim: Primitive) -> None:
    """Say that a primitive costs nothing that counts: it is fused, moves elements or is rare."""
    register_roofline(prim)(free)


def free(*_: Any, **params: Any) -> RooflineResult:
    """The rule of what costs nothing that counts."""
    return RooflineResult()


def roofline(f: Callable, mesh: Any = None, in_specs: Specs = None, out_specs: Specs = None, *, pin_lhs_in_vmem: bool = False,
             pin_rhs_in_vmem: bool = False, vjp: bool = False,
             print_jaxpr: bool = False) -> Callable[..., tuple[ShapeDtypeStructTree, RooflineResult]]:
    """A function that tells what `f` costs for arguments like its own, from their types: nothing is compiled or run.

    Args:
      f: a function of pytrees of arrays. With `mesh`, what one device does, as for `shard_map`.
      mesh, in_specs, out_specs: as for `shard_map`; the costs are those of one device.
      pin_lhs_in_vmem, pin_rhs_in_vmem: whether the left factors of matrix products need not be read, nor results be written; or
        the right factors need not be read.
      vjp: take the cost of `f` and its gradient.
      print_jaxpr: print the program.
    Returns: a function of arrays or `ShapeDtypeStruct`s, which returns the types of the results and a `RooflineResult`.

    >>> import jaxlite as jax, jaxlite.numpy as jnp
    >>> x = jax.ShapeDtypeStruct((8, 4), jnp.float32)
    >>> out, cost = roofline(lambda x: jnp.sin(x @ x.T))(x)
    >>> out.shape, cost.flops, cost.unfused_flops, cost.hbm_bytes, cost.peak_hbm_bytes
    ((8, 8), 512, 576, 512, 256)
    """
    def on_devices(fun: Callable, in_specs: Specs, out_specs: Specs) -> Callable:
        return fun if mesh is None or in_specs is None else shard_map(fun, mesh=mesh, in_specs=in_specs, out_specs=out_specs)

    def gradient(cotangents: Any, *args: Any) -> Any:
        return vjp_of(f, *args)[1](cotangents)

    def wrapped(*args: Any) -> tuple[ShapeDtypeStructTree, RooflineResult]:
        types = [tree_map(_described, arg) for arg in args]
        closed, shapes = make_jaxpr(on_devices(f, in_specs, out_specs), return_shape=True)(*types)
        if vjp:  # all of it: the function's results are computed too
            specs = () if in_specs is None else in_specs if isinstance(in_specs, tuple) else (in_specs,) * len(args)
            closed = make_jaxpr(on_devices(gradient, in_specs and (out_specs, *specs), specs))(
                tree_map(_described, shapes), *types)
        jaxpr = closed.jaxpr if vjp else dce_jaxpr(closed.jaxpr, True)[0]
        if mesh is not None and in_specs is not None:
            (jaxpr,) = jaxprs_in_params(jaxpr.eqns[-1].params)
            leaves, tree = tree_flatten(shapes)
            shapes = tree_unflatten(tree, [leaf.update(sharding=NamedSharding(mesh, spec)) for leaf, spec in zip(
                leaves, broadcast_prefix(out_specs, shapes), strict=True)])
        if print_jaxpr:
            print(jaxpr)
        return shapes, _Walk(mesh, pin_lhs_in_vmem, pin_rhs_in_vmem).cost(jaxpr)

    return wrapped


def roofline_and_grad(f: Callable, mesh: Any, in_specs: Specs, out_specs: Specs, *, pin_lhs_in_vmem: bool = False,
                      pin_rhs_in_vmem: bool = False, print_jaxpr: bool = False) -> Callable[
                          ..., tuple[ShapeDtypeStructTree, RooflineResult, RooflineResult]]:
    """A function that tells what `f` costs, and what it costs with its gradient. Arguments are as in `roofline`.

    The second cost is that for floating arguments in bfloat16, as in JAX. Returns: the types of the results, and both costs.
    """
    options = {"pin_lhs_in_vmem": pin_lhs_in_vmem, "pin_rhs_in_vmem": pin_rhs_in_vmem, "print_jaxpr": print_jaxpr}
    forward, both = (roofline(f, mesh, in_specs, out_specs, vjp=vjp, **options) for vjp in (False, True))

    def wrapped(*args: Any) -> tuple[ShapeDtypeStructTree, RooflineResult, RooflineResult]:
        out, cost = forward(*args)
        return out, cost, both(*[tree_map(_narrow, arg) for arg in args])[1]

    return wrapped


def _described(leaf: Any) -> ShapeDtypeStruct:
    aval = abstract(leaf)
    return ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def _narrow(leaf: Any) -> ShapeDtypeStruct:
    described = _described(leaf)
    is_floating = dtypes.issubdtype(described.dtype, np.floating)
    return described.update(dtype=dtypes.bfloat16, weak_type=False) if is_floating else described


def _bytes(atom: Any) -> int:
    return RooflineShape.from_aval(atom.aval).bytes if isinstance(atom.aval, ShapedArray) else 0


@dataclass(frozen=True, slots=True)
class _Walk:
    mesh: Any
    pin_lhs: bool
    pin_rhs: bool

    def cost(self, jaxpr: Jaxpr) -> RooflineResult:
        """The cost of a program."""
        last = {atom: place for place, eqn in enumerate(jaxpr.eqns) for atom in eqn.invars if isinstance(atom, Var)}
        kept = {atom for atom in jaxpr.outvars if isinstance(atom, Var)}
        live = sum(_bytes(var) for var in (*jaxpr.constvars, *jaxpr.invars) if var in last or var in kept)
        total = RooflineResult(peak_hbm_bytes=live)
        for place, eqn in enumerate(jaxpr.eqns):
            done = {atom for atom in eqn.invars if isinstance(atom, Var) and last[atom] == place} - kept
            live += sum(_bytes(var) for var in eqn.outvars if var in last or var in kept) - sum(map(_bytes, done))
            total = total + self.of_equation(eqn) + RooflineResult(peak_hbm_bytes=live)
        return total

    def of_equation(self, eqn: JaxprEqn) -> RooflineResult:
        name = eqn.primitive.name
        rule = _standard().rule_of(name)
        if rule is None and name in _CALLS:
            parts = [self.cost(each) for each in jaxprs_in_params(eqn.params)]
            return sum(parts, RooflineResult())
        if rule is None:
            print(f"No roofline rule for {name}, skipping...")
            return RooflineResult()
        atoms = [atom for atom in eqn.invars if isinstance(atom.aval, ShapedArray)]
        context = RooflineRuleContext(
            name_stack=eqn.source_info.name_stack, primitive=eqn.primitive, avals_in=[atom.aval for atom in eqn.invars],
            avals_out=[var.aval for var in eqn.outvars], jaxpr_eqn_ctx=None, mesh=self.mesh, pin_lhs_in_vmem=self.pin_lhs,
            pin_rhs_in_vmem=self.pin_rhs)
        return rule(context, *[RooflineShape.from_aval(atom.aval) for atom in atoms], **eqn.params)
