"""Programs over several devices as `jax.interpreters.pxla` names them: a view; what is here is defined in `extend`."""

from jaxlite.extend.pxla import (
    ArrayMapping,
    Index,
    MeshAxisName,
    are_hlo_shardings_equal,
    array_mapping_to_axis_resources,
    create_compile_options,
    global_result_handlers,
    is_hlo_sharding_replicated,
    op_sharding_to_indices,
    thread_resources,
)

__all__ = [
    "ArrayMapping", "Index", "MeshAxisName", "are_hlo_shardings_equal", "array_mapping_to_axis_resources",
    "create_compile_options", "global_result_handlers", "is_hlo_sharding_replicated", "op_sharding_to_indices",
    "thread_resources",
]
