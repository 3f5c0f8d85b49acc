"""Functions of TensorFlow in programs of jaxlite: run as they are in eager code, compiled into traced programs."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.aval import ShapedArray
from jaxlite.core.effects import Effect
from jaxlite.core.filtering import boundary
from jaxlite.core.primitive import Primitive
from jaxlite.core.tree import tree_flatten, tree_map, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.devices.api import device_put
from jaxlite.experimental.jax2tf.conversion import calling_tf, here
from jaxlite.experimental.jax2tf.tensors import jax_dtype, tensor_of, tensorflow, tf_type
from jaxlite.extend.lowering_rules import LoweringRuleContext, custom_call, i64_attr, ir_constant, register_lowering
from jaxlite.traces.jvp import tangent_aval
from jaxlite.transforms.custom_derivatives import custom_vjp
from lowering import portable, xla

_GIVEN_BY_TF: Any = object()
_EFFECTS = {False: Effect("CallTf", False, True), True: Effect("CallTfOrdered", True, True)}  # by whether they are ordered
_log = logging.getLogger(__name__)

call_tf_p = Primitive("call_tf", multiple_results=True, memoise=False)


def call_tf(callable_tf: Callable[..., Any], has_side_effects: bool = True, ordered: bool = False,
            output_shape_dtype: Any = _GIVEN_BY_TF, call_tf_graph: bool = False) -> Callable[..., Any]:
    """A function of TensorFlow as a function of arrays.

    Eager calls run it in TensorFlow. In traced functions, TensorFlow compiles it to a program for XLA, which becomes part of
    the traced one: its operations and the sizes of its results must allow that. Reverse-mode derivatives are TensorFlow's.

    Args:
      callable_tf: takes pytrees of tensors, and returns one.
      has_side_effects: whether calls in traced functions count although nobody uses their results.
      ordered: whether they happen in program order; in traced functions with `call_tf_graph` alone.
      output_shape_dtype: the types of the results, as a pytree of objects with `shape` and `dtype`; by default TensorFlow
        finds them.
      call_tf_graph: whether the function remains a graph of TensorFlow's, which a program that `convert` makes can call.
    Raises: at the call, ImportError without TensorFlow; ValueError for results that are not of the declared types, that no
      array can hold, or whose sizes nothing tells; NotImplementedError for `ordered` in a traced function.
    """

    @boundary
    def call(*args: Any) -> Any:
        leaves, in_tree = tree_flatten(args)
        function = _Flat(callable_tf, in_tree, output_shape_dtype, call_tf_graph)
        values = [np.zeros(np.shape(leaf), bool) if getattr(leaf, "dtype", None) == dtypes.float0 else leaf for leaf in leaves]
        avals = [aval_of(value) for value in values]
        values = [value if hasattr(value, "dtype") else np.asarray(value, aval.dtype)
                  for value, aval in zip(values, avals, strict=True)]
        results = call_tf_p.bind(*values, function=function, avals=tuple(avals), has_side_effects=has_side_effects,
                                 ordered=ordered)
        return tree_unflatten(function.out_tree, results)

    def forward(*args: Any) -> tuple[Any, Any]:
        return call(*args), args

    def backward(args: Any, cotangents: Any) -> Any:
        found = call_tf(functools.partial(_gradient, callable_tf))(args, cotangents)

        def of_argument(arg: Any, cotangent: Any) -> Any:
            tangent = tangent_aval(aval_of(arg))
            return cotangent if cotangent.dtype == tangent.dtype else np.zeros(tangent.shape, tangent.dtype)

        return tree_map(of_argument, args, found)

    # The signature remains: arrays by position.
    call.__name__ = call.__qualname__ = getattr(callable_tf, "__name__", "call_tf")
    call.__doc__ = callable_tf.__doc__
    differentiable = custom_vjp(call)
    differentiable.defvjp(forward, backward)
    return differentiable


def _gradient(callable_tf: Callable[..., Any], args: Any, cotangents: Any) -> Any:
    """The cotangents of the arguments, by TensorFlow; 0 where there is none. It runs in TensorFlow."""
    tf = tensorflow()

    def varying(value: Any) -> Any:
        if value is None:
            return None
        value = tf.convert_to_tensor(value)
        return value if value.dtype.is_floating or value.dtype.is_complex else tf.zeros((), tf.float32)

    watched = tree_map(varying, args)
    with tf.GradientTape() as tape:
        tape.watch(watched)
        # What it computes of the watched tensors counts: they are the arguments where these vary.
        results = callable_tf(*args)
        leaves, tree = tree_flatten(results)
        given, given_tree = tree_flatten(cotangents)
        if tree != given_tree:
            raise ValueError(f"The results of the TensorFlow function are of two structures: {tree} and {given_tree}")
        targets = [varying(leaf) for leaf in leaves]
    cotangents = [tf.zeros((), tf.float32) if target.dtype != each.dtype else each
                  for target, each in zip(targets, given, strict=True)]
    found = tape.gradient(targets, sources=tree_flatten(watched)[0], output_gradients=cotangents,
                          unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return tree_unflatten(tree_flatten(watched)[1], [tf.convert_to_tensor(each) for each in found])


class _Flat:
    """A function of TensorFlow with flat arguments and results; `out_tree` is known after a call or a trace."""

    def __init__(self, callable_tf: Callable[..., Any], in_tree: Any, declared: Any, stays_graph: bool):
        self.callable_tf, self.in_tree, self.stays_graph = callable_tf, in_tree, stays_graph
        self.out_avals: list[ShapedArray] | None = None
        self.out_tree: Any = None
        if declared is not _GIVEN_BY_TF:
            leaves, self.out_tree = tree_flatten(declared)
            self.out_avals = [ShapedArray(leaf.shape, dtypes.canonicalize_dtype(leaf.dtype)) for leaf in leaves]
        self.is_declared = self.out_avals is not None

    def __repr__(self) -> str:
        return getattr(self.callable_tf, "__name__", "function")

    def __call__(self, *tensors: Any) -> list[Any]:
        results = self.callable_tf(*tree_unflatten(self.in_tree, tensors))
        if isinstance(results, tensorflow().Operation):  # what a tf.function without results returns in a graph
            results = []
        leaves, tree = tree_flatten(results)
        if self.is_declared and tree != self.out_tree:
            raise ValueError("The pytree of the TensorFlow function results does not match the pytree of the declared "
                             f"output_shape_dtype:\nresults pytree: {tree}\noutput_shape_dtype tree: {self.out_tree}")
        self.out_tree = tree
        return [self._checked(index, leaf) for index, leaf in enumerate(leaves)]

    def _checked(self, index: int, result: Any) -> Any:
        try:
            tensor, _ = tensor_of(result)
        except (TypeError, ValueError) as error:
            raise ValueError(f"The called TF function returns a result that is not convertible to JAX: {result}.") from error
        if self.out_avals is None:
            return tensor
        shape, dtype = tf_type(self.out_avals[index])
        if tensor.dtype != dtype or not tensor.shape.is_compatible_with(shape):
            raise ValueError("The shapes or dtypes returned by the TensorFlow function do not match the declared "
                             f"output_shape_dtype:\nResult[{index}] is {tensor.dtype}[{tensor.shape}] vs. expected "
                             f"{dtype}[{shape}]")
        return tensorflow().ensure_shape(tensor, shape)

    @functools.cached_property
    def compiled(self) -> Any:
        """It as a `tf.function`."""
        return tensorflow().function(self.__call__, autograph=False, jit_compile=not self.stays_graph)

    def concrete(self, avals: Sequence[Any]) -> Any:
        """Its graph for arguments of some types. A `tf.function` remembers them."""
        with calling_tf():
            return self.compiled.get_concrete_function(*self.signature(avals))

    @staticmethod
    def signature(avals: Sequence[Any]) -> list[Any]:
        return [tensorflow().TensorSpec(*tf_type(aval)) for aval in avals]


@call_tf_p.def_impl
def _call_now(*values: Any, function: _Flat, **params: Any) -> list[Any]:
    """Run it in TensorFlow."""
    with calling_tf():
        results = function(*(tensor_of(value)[0] for value in values))
    return [device_put(np.asarray(each.numpy())) for each in results]


@call_tf_p.def_effectful_abstract_eval
def _call_tf_avals(*operands: Any, function: _Flat, avals: Sequence[Any], has_side_effects: bool, ordered: bool) -> Any:
    effects = frozenset([_EFFECTS[ordered]] if ordered or has_side_effects else ())
    concrete = function.concrete(avals)
    if function.out_avals is not None:
        return function.out_avals, effects
    if not all(shape.is_fully_defined() for shape in concrete.output_shapes):
        raise ValueError(f"call_tf cannot call functions whose output has dynamic shape. Found output shapes: "
                         f"{concrete.output_shapes}. Consider using the `output_shape_dtype` argument to call_tf.")
    return [ShapedArray(tuple(shape), jax_dtype(dtype))
            for shape, dtype in zip(concrete.output_shapes, concrete.output_dtypes, strict=True)], effects


def _lower(ctx: LoweringRuleContext, *operands: Any, function: _Flat, avals: Sequence[Any], has_side_effects: bool,
           ordered: bool) -> list[Any]:
    tf, builder = tensorflow(), ctx._inner.builder
    concrete = function.concrete(avals)
    if concrete.captured_inputs:
        _log.warning("call_tf works best with a TensorFlow function that does not capture variables or tensors from the "
                     "context: their values become constants of the program. It captures %s", concrete.captured_inputs)
    variables = {id(variable.handle): variable for variable in concrete.variables}
    with tf.init_scope():
        captured = [ir_constant(np.asarray(variables.get(id(each), each))) for each in concrete.captured_inputs]
    values = [*operands, *captured]
    if function.stays_graph:
        return _call_graph(ctx, concrete, values, has_side_effects, ordered)
    if ordered:
        raise NotImplementedError("ordered=True is not supported in the jitted context without `call_tf_graph=True`")
    platform = {"cpu": "CPU", "tpu": "TPU"}.get(ctx.module_context.platforms[0], "GPU")
    try:
        with calling_tf():
            hlo = function.compiled.experimental_get_compiler_ir(*function.signature(avals))(
                stage="hlo_serialized", platform_name=platform)
    except Exception as error:
        raise ValueError("Error compiling TensorFlow function (see below for the caught exception).\ncall_tf can be used in a "
                         "staged context (under jax.jit, lax.scan, etc.) only with compilable functions with static output "
                         f"shapes.\n\nCaught TensorFlow exception: {error}") from error
    symbol, kind = portable.merge(builder, xla.from_hlo(hlo, builder.context))
    results = xla.ir.Operation.create("func.call", list(kind.results), values,
                                      {"callee": xla.ir.FlatSymbolRefAttr.get(symbol)}).results
    return [value if value.type == wanted else xla.ir.Operation.create("stablehlo.convert", [wanted], [value]).result
            for value, wanted in zip(results, portable.static_types(builder, ctx.avals_out), strict=True)]


def _call_graph(ctx: LoweringRuleContext, concrete: Any, values: Sequence[Any], has_side_effects: bool,
                ordered: bool) -> list[Any]:
    """A call that TensorFlow resolves: of one of the functions that go with the converted program, by its number."""
    if here.functions is None:
        raise ValueError("call_tf_graph=True only support exporting by jax2tf.convert currently.")
    if concrete not in here.functions:
        here.functions.append(concrete)
    ir, inner = xla.ir, ctx._inner
    types = [inner.type_of(aval) for aval in ctx.avals_out]
    if ordered:
        values, types = [inner.token, *values], [inner.builder.token_type, *types]
    about = ir.DictAttr.get({"has_token_input_output": ir.BoolAttr.get(ordered),
                             "called_index": i64_attr(here.functions.index(concrete))})
    results = list(custom_call("tf.call_tf_function", result_types=types, operands=values, has_side_effect=has_side_effects,
                               extra_attributes={"tf.backend_config": about}).results)
    if ordered:
        inner.token = results.pop(0)
    return results


register_lowering(call_tf_p, _lower)
