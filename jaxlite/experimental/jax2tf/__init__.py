"""Functions of arrays in TensorFlow's programs, and TensorFlow's functions in those of jaxlite. See `docs/export.md`.

TensorFlow is imported when the first function of it is used, and is no dependency.
"""

from jaxlite.experimental.jax2tf.calls import call_tf
from jaxlite.experimental.jax2tf.conversion import PolyShape, convert, eval_polymorphic_shape, split_to_logical_devices
from jaxlite.experimental.jax2tf.tensors import dtype_of_val
from jaxlite.export import DisabledSafetyCheck

__all__ = [
    "DisabledSafetyCheck", "PolyShape", "call_tf", "convert", "dtype_of_val", "eval_polymorphic_shape",
    "split_to_logical_devices",
]
