"""TensorFlow's values: importing TensorFlow, and the dtypes and tensors of both sides."""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any

import numpy as np

from jaxlite.core import dtypes, source
from jaxlite.core.shape_dtype import ShapeDtypeStruct
from jaxlite.core.tree_nodes import register_pytree_node
from jaxlite.core.values import aval_of
from lowering.buffers import physical


@functools.cache
def tensorflow(part: str = "") -> Any:
    """The module `tensorflow`, or one below it, by its name there. Raises: ImportError that says what to install."""
    if part:
        tensorflow()
        return importlib.import_module(f"tensorflow.{part}")
    try:
        import tensorflow as tf  # five seconds
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise ImportError("jax2tf needs TensorFlow, which is not installed; install it with: pip install tensorflow",
                          name="tensorflow") from None
    source.register_exclusion(os.path.dirname(tf.__file__))  # so that an equation's line is the user's
    _register_containers(tf)
    return tf


def _register_containers(tf: Any) -> None:
    """Containers that are attributes of a `tf.Module` become ones of TensorFlow's classes, which are trees as well."""
    module = tf.Module()
    module.a, module.b, module.c = (tf.Module(),), [tf.Module()], {"c": tf.Module()}
    a_dict = type(module.c)
    register_pytree_node(type(module.a), lambda xs: (tuple(xs), None), lambda _, xs: tuple(xs))
    register_pytree_node(type(module.b), lambda xs: (tuple(xs), None), lambda _, xs: list(xs))
    register_pytree_node(a_dict, lambda xs: (tuple(xs.values()), tuple(xs)),
                         lambda names, xs: a_dict(zip(names, xs, strict=True)))


def tf_type(aval: Any) -> tuple[tuple[int | None, ...], Any]:
    """TensorFlow's shape and dtype for arrays of a type: None for symbolic dimensions, booleans for float0."""
    shape, dtype = physical(aval)
    return tuple(size if isinstance(size, int) else None for size in shape), tensorflow().dtypes.as_dtype(dtype)


def jax_dtype(dtype: Any) -> Any:
    """The dtype of arrays for tensors of a dtype: 64 bits only where they are enabled.

    Raises: TypeError for what arrays do not hold, such as strings.
    """
    if np.dtype(dtype.as_numpy_dtype).kind in "OSU":
        raise TypeError(f"dtype {dtype.name} is not a valid JAX array type. Only arrays of numeric types are supported by JAX.")
    return dtypes.canonicalize_dtype(dtype.as_numpy_dtype)


def tensor_of(value: Any) -> tuple[Any, ShapeDtypeStruct]:
    """A value of TensorFlow's programs as a tensor, cast as arrays are, and the type of the array; unknown sizes are None.

    Args: `value` a tensor, a variable, an array or a scalar.
    """
    tf = tensorflow()
    if isinstance(value, (tf.Tensor, tf.Variable)):
        wanted = ShapeDtypeStruct(value.shape, jax_dtype(value.dtype))
        dtype = tf.dtypes.as_dtype(wanted.dtype)
        return (value if dtype == value.dtype else tf.cast(value, dtype)), wanted
    aval = aval_of(value)
    value = np.zeros(aval.shape, bool) if aval.dtype == dtypes.float0 else getattr(value, "_base_array", value)  # of keys
    return tf.convert_to_tensor(np.asarray(value), tf_type(aval)[1]), ShapeDtypeStruct(aval.shape, aval.dtype)


def dtype_of_val(val: Any) -> Any:
    """TensorFlow's dtype of a value of its programs, by the rules for arrays: 64 bits only where they are enabled.

    Args: `val` a tensor, a variable, an array or a scalar.
    """
    return tensor_of(val)[0].dtype
