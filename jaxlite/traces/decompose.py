"""Decompositions: primitives that are lowered through a Python function of other primitives.

When a program with the primitive is compiled, the function is traced once for each combination of types and params, and its
jaxpr is lowered in the primitive's place. In jaxprs the primitive stays one equation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jaxlite.core import config
from jaxlite.core.aval import shaped_array
from jaxlite.core.jaxpr import ClosedJaxpr, DebugInfo, eval_jaxpr
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import trace_to_jaxpr
from jaxlite.core.values import aval_of
from jaxlite.traces.batching import Axis, batch_flat
from jaxlite.traces.jvp import jvp_flat
from jaxlite.traces.linearize import apply_split
from jaxlite.traces.transpose import backward, is_linear
from lowering.rules import register_decomposition

_MEMO_LIMIT = 1024
_parts: dict[str, Callable[..., ClosedJaxpr]] = {}  # by the primitive's name


def decomposes(primitive: Primitive) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: lower a primitive through a function of its operands.

    The function takes the operands, without weak types, and the params as keywords. It returns one value, or a
    sequence of values if the primitive has several results, and closes over no arrays.
    """

    def register(fun: Callable[..., Any]) -> Callable[..., Any]:
        memo: dict[Any, ClosedJaxpr] = {}

        # When a program is compiled its types are settled: 64-bit ones in it stay, whatever the option says by then.
        def decomposition(avals: list[Any], params: dict[str, Any], enable_x64: bool = True) -> ClosedJaxpr:
            strong = tuple([shaped_array(aval.shape, aval.dtype, False) for aval in avals])
            key = (strong, tuple(params.items()), enable_x64, config.threefry_partitionable.value,
                   config.threefry_gpu_kernel_lowering.value)
            found = memo.get(key)
            if found is None:
                if len(memo) >= _MEMO_LIMIT:
                    memo.clear()
                found = memo[key] = _trace(primitive, fun, strong, params, enable_x64)
            return found

        register_decomposition(primitive.name, decomposition)
        _parts[primitive.name] = decomposition
        return fun

    return register


def _parts_of(primitive: Primitive, avals: Sequence[Any], params: dict[str, Any]) -> ClosedJaxpr:
    """The operations of a primitive under the options in force."""
    return _parts[primitive.name](list(avals), params, bool(config.enable_x64.value))


def types_by_parts(primitive: Primitive) -> None:
    """Type a primitive as the operations that it is lowered to."""

    def types(*avals: Any, **params: Any) -> Any:
        found = _parts_of(primitive, avals, params).out_avals
        return found if primitive.multiple_results else found[0]

    primitive.def_abstract_eval(types)


def rules_by_parts(primitive: Primitive, param: str | None = None) -> None:
    """Differentiate, transpose and batch a primitive as the operations that it is lowered to, or the program in this param."""

    def program(args: Sequence[Any], params: dict[str, Any]) -> ClosedJaxpr:
        if param is not None:
            return params[param]
        return _parts_of(primitive, [arg.aval if is_linear(arg) else aval_of(arg) for arg in args], params)

    def results(outs: list[Any], others: list[Any]) -> Any:
        return (outs, others) if primitive.multiple_results else (outs[0], others[0])

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        return results(*jvp_flat(partial(eval_jaxpr, program(primals, params).jaxpr, []), primals, tangents))

    def linearize(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        return results(*apply_split(program(primals, params), primals, tangents))

    def transpose(cotangents: Any, *operands: Any, **params: Any) -> list[Any]:
        given = cotangents if primitive.multiple_results else [cotangents]
        return backward(program(operands, params).jaxpr, [], operands, given)

    def batching(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        def fun(*examples: Any) -> list[Any]:
            return eval_jaxpr(program(examples, params).jaxpr, [], *examples)

        return results(*batch_flat(fun, args, dims, axis))

    primitive.def_jvp(jvp)
    primitive.linearize = linearize
    primitive.def_batching(batching)
    primitive.def_transpose(transpose)


def _trace(primitive: Primitive, fun: Callable[..., Any], avals: tuple[Any, ...], params: dict[str, Any],
           enable_x64: bool) -> ClosedJaxpr:
    def flat(*args: Any) -> Any:
        out = fun(*args, **params)
        return out if primitive.multiple_results else [out]

    return trace_alone(flat, avals, primitive.name, enable_x64)


def trace_alone(fun: Callable[..., Any], avals: Sequence[Any], name: str, enable_x64: bool = True) -> ClosedJaxpr:
    """The program of a lowering, outside of the mesh of the context: XLA cuts the values in it as it cuts the operands."""
    previous = [(config.enable_x64.state, config.enable_x64.state.swap_local(enable_x64))]
    if config.context_mesh.value is not None or config.context_abstract_mesh.value is not None:
        from jaxlite.devices.mesh import AbstractMesh  # what has set a mesh has loaded it

        previous.append((config.context_abstract_mesh, config.context_abstract_mesh.swap_local(AbstractMesh((), ()))))
    try:
        jaxpr, consts = trace_to_jaxpr(fun, avals, DebugInfo("lowering", name))
    finally:
        for state, before in previous:
            state.set_local(before)
    assert not consts, f"the lowering of {name} closes over arrays"
    return ClosedJaxpr(jaxpr, [])
