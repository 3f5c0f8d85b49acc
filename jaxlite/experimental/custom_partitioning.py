"""Functions with custom partitioning, under the names of `jax.experimental.custom_partitioning`.

A call is one equation, with the function's jaxpr for programs that are not partitioned. In a program over several devices
it is a custom call: Shardy propagates shardings through it by its sharding rule, and XLA requests the per-device program
when it partitions: `per_shard` traces and lowers it.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.compilation import execution
from jaxlite.core.jaxpr import ClosedJaxpr, DebugInfo
from jaxlite.core.primitive import Primitive
from jaxlite.core.shape_dtype import ShapeDtypeStruct
from jaxlite.core.staging import hoist_consts, trace_to_jaxpr
from jaxlite.core.tree import tree_flatten, tree_leaves
from jaxlite.core.values import aval_of
from jaxlite.devices import sharding as shardings
from jaxlite.devices.factors import BATCHING, ArrayMapping, CompoundFactor, SdyShardingRule, parse_rule, rule_text
from jaxlite.lax.control_flow.bodies import Body, trace_body
from jaxlite.lax.shard_map import inside
from lowering import xla

__all__ = ["BATCHING", "ArrayMapping", "CompoundFactor", "SdyShardingRule", "custom_partitioning", "custom_partitioning_p"]
__dir__ = lambda: __all__

custom_partitioning_p = Primitive("custom_partitioning", multiple_results=True, memoise=False)


@custom_partitioning_p.def_effectful_abstract_eval
def _custom_partitioning_avals(*avals: Any, call: ClosedJaxpr, **params: Any) -> Any:
    return call.out_avals, call.effects


class _Partition:
    """The function `partition` of a user with what it takes to ask it; prints as the function."""

    __slots__ = ("function", "in_tree", "out_tree", "static_args", "decodes", "sharding_rule")

    def __init__(self, *parts: Any):
        self.function, self.in_tree, self.out_tree, self.static_args, self.decodes, self.sharding_rule = parts

    def _key(self) -> tuple[Any, ...]:
        return self.function, self.in_tree, self.out_tree, self.static_args, self.decodes, self.sharding_rule

    def __eq__(self, other: Any) -> bool:
        return type(other) is _Partition and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return repr(self.function)

    def rule_text(self, operands: Sequence[Any], results: Sequence[Any], mesh: Any) -> str | None:
        """The sharding rule as Shardy's attribute."""
        rule = self.sharding_rule
        if callable(rule):
            rule = rule(*self.static_args, mesh, self.in_tree.unflatten([_described(aval) for aval in operands]),
                        self.out_tree.unflatten([_described(aval) for aval in results]))
            rule = parse_rule(rule) if isinstance(rule, str) else rule
        if rule is None:
            return None
        if not isinstance(rule, SdyShardingRule):
            raise ValueError(f"sharding_rule must be a string, an SdyShardingRule, or a function that gives one; got {rule!r}")
        return rule_text(rule, [aval.shape for aval in operands], [aval.shape for aval in results])

    def per_shard(self, call: ClosedJaxpr, mesh: Any, devices: Any, platform: str, arg_shapes: Any, arg_shardings: Any,
                  result_shape: Any, result_sharding: Any) -> tuple[bytes, list[Any], Any]:
        """The program of one partition, and the shardings of its arguments and results, for XLA."""
        args = [self._whole(aval, found, mesh) for aval, found in zip(call.in_avals, arg_shardings, strict=True)]
        is_tuple = len(call.out_avals) != 1 or result_shape.is_tuple()
        found = result_sharding.tuple_elements() if is_tuple else [result_sharding]
        results = [self._whole(aval, each, mesh) for aval, each in zip(call.out_avals, found, strict=True)]
        mesh, lower, result_tree, arg_tree = self.function(*self.static_args, mesh, self.in_tree.unflatten(args),
                                                           self.out_tree.unflatten(results))
        own_args = self._chosen(arg_tree, call.in_avals, "argument")
        own_results = self._chosen(result_tree, call.out_avals, "result")
        in_avals = [_tile(aval, each) for aval, each in zip(call.in_avals, own_args, strict=True)]
        out_avals = [_tile(aval, each) for aval, each in zip(call.out_avals, own_results, strict=True)]
        closed = self._traced(lower, in_avals, mesh)
        if list(map(str, closed.out_avals)) != list(map(str, out_avals)):
            raise ValueError("Mismatch in result shapes: the function that `partition` returned gives "
                             f"{list(map(str, closed.out_avals))}, the shardings of the results want "
                             f"{list(map(str, out_avals))}")
        module = execution.lower_jaxpr(closed, "per_shard", platform, keep_unused=True, part_of=(mesh, devices)).module
        buffer = io.BytesIO()
        module.operation.write_bytecode(buffer)
        hlo = [[each._to_xla_hlo_sharding(aval.ndim) for each, aval in zip(group, avals, strict=True)]
               for group, avals in ((own_args, call.in_avals), (own_results, call.out_avals))]
        return buffer.getvalue(), hlo[0], xla.tuple_sharding(hlo[1]) if is_tuple else hlo[1][0]

    def _whole(self, aval: Any, found: Any, mesh: Any) -> ShapeDtypeStruct:
        """An argument or result as users see it, with the sharding that XLA suggests."""
        spec = shardings.spec_of(found, mesh, aval.ndim) if self.decodes else None
        if spec is None:
            return ShapeDtypeStruct(aval.shape, aval.dtype, sharding=xla.GSPMDSharding(mesh._internal_device_list, found))
        spec = shardings.P(*spec, *[None] * (aval.ndim - len(spec)))
        return ShapeDtypeStruct(aval.shape, aval.dtype, sharding=shardings.NamedSharding(mesh, spec))

    def _chosen(self, given: Any, avals: Sequence[Any], what: str) -> list[Any]:
        leaves = tree_leaves(given, is_leaf=lambda leaf: leaf is None)
        if len(leaves) != len(avals):
            raise ValueError(f"partition gave {len(leaves)} {what} shardings; there are {len(avals)} {what}s")
        for each, aval in zip(leaves, avals, strict=True):
            if not isinstance(each, xla.Sharding):
                raise ValueError(f"partition gave {each!r} as a sharding of an {what}: expected a NamedSharding")
            shardings.check_shape(each, aval.shape)
        return leaves

    def _traced(self, lower: Callable, in_avals: Sequence[Any], mesh: Any) -> ClosedJaxpr:
        def flat(*tracers: Any) -> Any:
            return tree_leaves(lower(*self.in_tree.unflatten(tracers)))

        with inside(mesh, frozenset(mesh.axis_names), False):
            jaxpr, consts = trace_to_jaxpr(flat, in_avals, DebugInfo("custom_partitioning", "lower_fn"))
        return ClosedJaxpr(jaxpr, consts)


def _described(aval: Any) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(aval.shape, aval.dtype)


def _tile(aval: Any, sharding: Any) -> Any:
    return aval.update(shape=tuple(sharding.shard_shape(aval.shape)))


def _closed(body: Body) -> ClosedJaxpr:
    return hoist_consts(body.jaxpr)


class custom_partitioning:
    """A function whose partitioning its author writes.

    Args:
      fun: a traceable function of arrays, and of static arguments.
      static_argnums: which of its positional arguments are static.
    Returns: a function of the same arguments, once `def_partition` has said how it is partitioned.
    Raises: AttributeError if it is called before that.

    >>> import jaxlite as jax, jaxlite.numpy as jnp
    >>> @custom_partitioning
    ... def double(x):
    ...     return x * 2
    >>> def partition(mesh, args, result):
    ...     return mesh, lambda x: x * 2, result.sharding, (args[0].sharding,)
    >>> _ = double.def_partition(partition, sharding_rule="... -> ...")
    >>> double(jnp.arange(3))
    Array([0, 2, 4], dtype=int32)
    """

    __name__: str

    def __init__(self, fun: Callable, static_argnums: Sequence[int] = ()):
        self.fun, self.static_argnums = fun, tuple(static_argnums)
        self.partition: Any = None
        self.propagate_user_sharding: Any = None
        self.infer_sharding_from_operands: Any = None
        self.decode_shardings, self.sharding_rule = True, None
        self._bound: dict[Any, Callable] = {}  # with static arguments: what was traced is found again by its function
        for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
            value = getattr(fun, attribute, None)
            if value is not None:
                setattr(self, attribute, value)
        self.__wrapped__ = fun

    def def_partition(self, partition: Callable, infer_sharding_from_operands: Callable | None = None,
                      propagate_user_sharding: Callable | None = None, decode_shardings: bool = True,
                      sharding_rule: Any = None, *, reduction_factors: Sequence[str] = (),
                      need_replication_factors: Sequence[str] = (), permutation_factors: Sequence[str] = (),
                      **factor_sizes: int) -> Callable:
        """Say how the function is partitioned.

        Args:
          partition: `partition(*static, mesh, args, result)` gets the arguments, as a tuple, and the result as
            `ShapeDtypeStruct`s with the shardings that XLA suggests. It gives the mesh, a function of the parts of the
            arguments, and the shardings of the result and, as a tuple, of the arguments that this function is for.
          infer_sharding_from_operands, propagate_user_sharding: what partitioners before Shardy asked; nothing asks them here.
          decode_shardings: whether to tell shardings as `NamedSharding` where that is possible.
          sharding_rule: which axes are cut together: text such as 'i k, k j -> i j', an `SdyShardingRule`, or a function of
            `(*static, mesh, args, result)` that gives one of these.
          reduction_factors, need_replication_factors, permutation_factors, factor_sizes: of a rule that is text.
        Returns: `partition`.
        """
        if isinstance(sharding_rule, str):
            sharding_rule = parse_rule(sharding_rule, reduction_factors=reduction_factors,
                                       need_replication_factors=need_replication_factors,
                                       permutation_factors=permutation_factors, **factor_sizes)
        elif reduction_factors or need_replication_factors or permutation_factors or factor_sizes:
            raise ValueError("factors are arguments of def_partition only where sharding_rule is a string")
        self.partition, self.propagate_user_sharding = partition, propagate_user_sharding
        self.infer_sharding_from_operands, self.decode_shardings = infer_sharding_from_operands, decode_shardings
        self.sharding_rule = sharding_rule
        return partition

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.partition is None:
            raise AttributeError(f"No partition function defined for custom_partitioning function {self.__name__} using "
                                 "def_partition")
        bound = inspect.signature(self.fun).bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.kwargs:
            raise TypeError(f"The keyword-only arguments {sorted(bound.kwargs)} of {self.__name__} could not be resolved to "
                            "positional ones; a custom_partitioning function takes positional arguments")
        args = bound.args
        numbers = sorted(number % len(args) for number in self.static_argnums)
        static = tuple(args[number] for number in numbers)
        fun = self.fun
        if static:
            fun = self._bound.setdefault(static, self._with_static(numbers, static))
        leaves, in_tree = tree_flatten(tuple(arg for number, arg in enumerate(args) if number not in numbers))
        body = trace_body(fun, tree_flatten((in_tree.unflatten(leaves), {}))[1], [aval_of(leaf) for leaf in leaves],
                          "custom_partitioning")
        if body.consts:
            raise ValueError(f"custom_partitioning function {self.__name__} closes over arrays; pass them as arguments")
        rule = self.sharding_rule
        partition = _Partition(self.partition, in_tree, body.out_tree, static, self.decode_shardings, rule)
        outs = custom_partitioning_p.bind(
            *leaves, call=body.derive(_closed), partition=partition, propagate_user_sharding=self.propagate_user_sharding,
            infer_sharding_from_operands=self.infer_sharding_from_operands, decode_shardings=self.decode_shardings,
            sharding_rule=rule, in_tree=in_tree, out_tree=body.out_tree, static_args=static)
        return body.out_tree.unflatten(outs)

    def _with_static(self, numbers: Sequence[int], static: tuple[Any, ...]) -> Callable:
        def call(*args: Any) -> Any:
            given = list(args)
            for number, value in zip(numbers, static, strict=True):
                given.insert(number, value)
            return self.fun(*given)

        return call
