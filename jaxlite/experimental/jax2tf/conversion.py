"""Functions of arrays as functions of tensors: an exported program in one operation of TensorFlow, `XlaCallModule`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import local
from typing import Any

import numpy as np

from jaxlite.compilation.jit import jit
from jaxlite.compilation.options import check_callable
from jaxlite.core.shape_dtype import ShapeDtypeStruct
from jaxlite.core.tree import tree_flatten, tree_map, tree_unflatten
from jaxlite.experimental.jax2tf.tensors import tensor_of, tensorflow, tf_type
from jaxlite.export import DisabledSafetyCheck, Exported, export, symbolic_args_specs
from jaxlite.extend.core.state import trace_state_clean
from jaxlite.transforms.make_jaxpr import eval_shape

_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
_SHARDINGS = "python.compiler.xla.experimental.xla_sharding"
_NOT_GIVEN: Any = object()


class _Here(local):
    in_call_tf = False  # whether a function of TensorFlow's is being called or traced, which may use `convert`
    functions: list[Any] | None = None  # those that the program that is being converted calls as graphs


here = _Here()


@contextmanager
def calling_tf() -> Iterator[None]:
    """While a function of TensorFlow's runs."""
    previous, here.in_call_tf = here.in_call_tf, True
    try:
        yield
    finally:
        here.in_call_tf = previous


class PolyShape(tuple):
    """A shape of sizes, names of dimensions and "_"; deprecated: use a string such as "batch, _"."""

    def __new__(cls, *dim_specs: Any) -> PolyShape:
        warnings.warn("PolyShape is deprecated, use string specifications for symbolic shapes", DeprecationWarning,
                      stacklevel=2)
        for each in dim_specs:
            if not isinstance(each, (int, str)) and each is not ...:
                raise ValueError(f"Invalid polymorphic shape element: {each!r}; must be a string representing a dimension "
                                 "variable, or an integer, or ...")
        return tuple.__new__(cls, dim_specs)

    def __str__(self) -> str:
        return f"({', '.join('...' if each is ... else str(each) for each in self)})"


def _specs(args: Any, polymorphic_shapes: Any, constraints: Sequence[str] = ()) -> Any:
    def text(each: Any) -> Any:
        return str(each) if isinstance(each, PolyShape) else each

    shapes = tree_map(text, polymorphic_shapes, is_leaf=lambda each: each is None or isinstance(each, PolyShape))
    return symbolic_args_specs(args, shapes, constraints)


def convert(fun_jax: Callable[..., Any], *, polymorphic_shapes: Any = None, polymorphic_constraints: Sequence[str] = (),
            with_gradient: bool = True, enable_xla: Any = _NOT_GIVEN, native_serialization: Any = _NOT_GIVEN,
            native_serialization_platforms: Sequence[str] | None = None,
            native_serialization_disabled_checks: Sequence[DisabledSafetyCheck] = ()) -> Callable[..., Any]:
    """A function of arrays as a function of tensors, for programs of TensorFlow: eager, in a `tf.function`, in a SavedModel.

    Args:
      fun_jax: takes and returns pytrees of arrays.
      polymorphic_shapes: which dimensions of positional arguments remain open, so that one graph serves all their sizes:
        None, a string such as "batch, ..." for all arguments, or a tree of these that is a prefix of that of the arguments.
      polymorphic_constraints: relations between such dimensions, such as "a >= b".
      with_gradient: whether TensorFlow can differentiate the result, by jaxlite's derivative; else it raises an error.
      native_serialization_platforms: among 'cpu', 'cuda', 'rocm' and 'tpu'; the graph then runs on each of them.
      native_serialization_disabled_checks: safety checks to leave out.
      enable_xla, native_serialization: deprecated, they have no effect.
    Returns: a function of pytrees of tensors, variables, arrays and scalars that returns tensors.
    Raises: ValueError for unknown platforms; at the call, ImportError without TensorFlow, ValueError in a traced function.
    """
    for name, value in (("native_serialization", native_serialization), ("enable_xla", enable_xla)):
        if value is not _NOT_GIVEN:
            warnings.warn(f"The `{name}` parameter is deprecated and will be removed in a future version of JAX.",
                          DeprecationWarning, stacklevel=2)
    platforms = native_serialization_platforms or None
    if platforms is not None and not (isinstance(platforms, (list, tuple)) and set(platforms) <= set(_PLATFORMS)):
        raise ValueError("native_serialization_platforms must be a sequence containing a subset of {'cpu', 'cuda', 'rocm', "
                         f"'tpu'}}. Got: {platforms}")
    check_callable(fun_jax)
    jitted = fun_jax if hasattr(fun_jax, "trace") else jit(fun_jax)
    exporter = export(jitted, platforms=platforms, disabled_checks=native_serialization_disabled_checks)

    def run(*args: Any, **kwargs: Any) -> Any:
        tf = tensorflow()
        leaves, tree = tree_flatten((args, kwargs))
        tensors, types = [], []
        for index, leaf in enumerate(leaves):
            tensor, spec = _argument(leaf)
            types.append(spec)
            tensors.append(tf.identity(tensor, f"jax2tf_arg_{index}"))
        types_of_args, types_of_kwargs = tree_unflatten(tree, types)
        previous, here.functions = here.functions, []
        try:
            exported = exporter(*_specs(types_of_args, polymorphic_shapes, polymorphic_constraints),
                                **_specs(types_of_kwargs, None))
            results = _call(exported, tensors, with_gradient)
        finally:
            here.functions = previous
        return tree_unflatten(exported.out_tree, [tf.identity(each, "jax2tf_out") for each in results])

    def converted_fun_tf(*args: Any, **kwargs: Any) -> Any:
        if not trace_state_clean() and not here.in_call_tf:
            raise ValueError("convert must be used outside all JAX transformations.")
        return tensorflow().autograph.experimental.do_not_convert(run)(*args, **kwargs)

    return converted_fun_tf


def _argument(value: Any) -> tuple[Any, ShapeDtypeStruct]:
    try:
        return tensor_of(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"Argument {value} of type {type(value)} of jax2tf.convert(f) should be NumPy array, scalar, "
                        f"tf.Variable, or tf.Tensor: {error}") from None


def _call(exported: Exported, tensors: Sequence[Any], with_gradient: bool) -> Sequence[Any]:
    """The results of an exported function for flat arguments, which TensorFlow can differentiate or refuses to."""
    tf = tensorflow()
    if not with_gradient:
        message = ("The jax2tf-converted function does not support gradients. Use `with_gradient` parameter to enable "
                   "gradients")
        return [tf.raw_ops.PreventGradient(input=each, message=message) for each in _run(exported, tensors)]

    @tf.custom_gradient
    def differentiable(*tensors: Any) -> Any:
        results = _run(exported, tensors)

        def gradient(*cotangents: Any, variables: Any = None) -> Sequence[Any]:
            if variables:
                raise ValueError(f"Unexpected variables used in forward pass: {variables}")
            given = [tf.zeros_like(result, bool) if cotangent is None else cotangent  # in the place of float0
                     for cotangent, result in zip(cotangents, results, strict=True)]
            with tf.name_scope("jax2tf_vjp"):
                return _call(exported.vjp(), [*tensors, *given], True)

        return tuple(results), gradient

    return differentiable(*tensors)


def _run(exported: Exported, tensors: Sequence[Any]) -> list[Any]:
    """One operation of TensorFlow that contains the program, and runs it."""
    tf = tensorflow()
    tf2xla = tensorflow("compiler.tf2xla.python.xla")
    newest = tf2xla.call_module_maximum_supported_version()
    if exported.calling_convention_version > newest:
        raise NotImplementedError("XlaCallModule from your TensorFlow installation supports up to serialization version "
                                  f"{newest} but the serialized module needs version {exported.calling_convention_version}. "
                                  "You should upgrade TensorFlow")
    types_in, types_out = ([tf_type(aval) for aval in avals] for avals in (exported.in_avals, exported.out_avals))
    in_shardings, out_shardings = exported.in_shardings_hlo, exported.out_shardings_hlo
    operands = [_sharded(tf.cast(tensors[index], types_in[index][1]), in_shardings[index])
                for index in exported.module_kept_var_idx]
    functions = here.functions or []
    results = tf2xla.call_module(
        operands, version=exported.calling_convention_version, module=exported.mlir_module_serialized,
        Tout=[dtype for _, dtype in types_out], Sout=[shape for shape, _ in types_out],
        platforms=[name.upper() for name in exported.platforms],
        function_list=[each.function_def.signature.name for each in functions], has_token_input_output=False,
        disabled_checks=[str(each) for each in exported.disabled_safety_checks], use_shardy_partitioner=True)
    for each in functions:  # a saved model has to contain them
        tf.compat.v1.get_default_graph()._add_function_recursive(each._inference_function)
    return [_sharded(each, sharding) for each, sharding in zip(results, out_shardings, strict=True)]


def _sharded(tensor: Any, sharding: Any) -> Any:
    """A tensor with the sharding that the program gives it, where tools of TensorFlow look for it."""
    tf = tensorflow()
    if sharding is None or sharding.is_replicated() and tf.executing_eagerly():
        return tensor
    if tf.executing_eagerly():
        raise ValueError("A jit function with sharded arguments or results must be used under a `tf.function` context")
    proto = sharding.to_proto()
    fields = {"type": int(proto.type), "tile_assignment_dimensions": proto.tile_assignment_dimensions,
              "replicate_on_last_tile_dim": proto.replicate_on_last_tile_dim,
              "last_tile_dims": [int(each) for each in proto.last_tile_dims]}
    devices = list(proto.tile_assignment_devices)
    compact = {"iota_reshape_dims": proto.iota_reshape_dims, "iota_transpose_perm": proto.iota_transpose_perm}
    if not devices and proto.iota_reshape_dims:
        count = math.prod(proto.tile_assignment_dimensions)
        devices = np.arange(count).reshape(proto.iota_reshape_dims).transpose(proto.iota_transpose_perm).ravel().tolist()
    OpSharding = tensorflow("compiler.xla.xla_data_pb2").OpSharding
    listed = OpSharding(**fields, tile_assignment_devices=devices)
    return tensorflow(_SHARDINGS).Sharding(proto=listed).apply_to_tensor(
        tensor, use_sharding_op=True,
        sharding_v2_proto=OpSharding(**fields, tile_assignment_devices=proto.tile_assignment_devices, **compact))


def split_to_logical_devices(tensor: Any, partition_dimensions: Sequence[int] | None) -> Any:
    """A tensor that is divided over the devices of a replica.

    Args: `partition_dimensions` into how many parts each dimension is divided; None: every device has all of it.
    """
    if partition_dimensions is None:
        return tensorflow(_SHARDINGS).replicate(tensor, use_sharding_op=True)
    devices = np.arange(math.prod(partition_dimensions)).reshape(partition_dimensions)
    return tensorflow(_SHARDINGS).tile(tensor, devices, use_sharding_op=True)


def eval_polymorphic_shape(fun_jax: Callable[..., Any], *, polymorphic_shapes: Any = None) -> Callable[..., tuple[Any, Any]]:
    """The types of a function's results for arguments with symbolic dimensions, without TensorFlow.

    Args: as for `convert`.
    Returns: a function of arrays or `ShapeDtypeStruct`s that gives the types of the results, and for each its shape as text,
      which `polymorphic_shapes` takes.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> from jaxlite.experimental import jax2tf
    >>> x = jaxlite.ShapeDtypeStruct((4, 3), jnp.float32)
    >>> jax2tf.eval_polymorphic_shape(lambda x: jnp.concatenate([x, x]).T, polymorphic_shapes="b, _")(x)
    (ShapeDtypeStruct(shape=(3, 2*b), dtype=float32), '(3, 2*b)')
    """

    def evaluate(*args: Any) -> tuple[Any, Any]:
        types = eval_shape(fun_jax, *_specs(args, polymorphic_shapes))
        return types, tree_map(lambda each: f"({', '.join(map(str, each.shape))}{',' if len(each.shape) == 1 else ''})", types)

    return evaluate
