"""jaxlite: a JIT compiler frontend on XLA with JAX's programming model and names.

>>> import jaxlite, jaxlite.numpy as jnp
>>> @jaxlite.jit
... def normalize(x):
...     return (x - x.mean()) / x.std()
>>> normalize(jnp.array([1.0, 3.0, 1.0, 3.0]))
Array([-1.,  1., -1.,  1.], dtype=float32)
"""

from __future__ import annotations

from typing import Any as _Any

from jaxlite.core import alone as _alone
from jaxlite.core.collector import importing as _importing
from jaxlite.core.lazy import Lazy as _Lazy

with _importing:
    from jaxlite import dtypes, errors, lax, numpy, tree, tree_util
    from jaxlite.compilation.caches import clear_caches
    from jaxlite.compilation.compile_report import compile_report
    from jaxlite.compilation.jit import jit
    from jaxlite.core.array import Array
    from jaxlite.core.config import (
        allow_f16_reductions,
        auto_pcast,
        check_tracer_leaks,
        config,
        debug_infs,
        debug_key_reuse,
        debug_nans,
        default_device,
        default_matmul_precision,
        default_prng_impl,
        enable_checks,
        enable_custom_prng,
        enable_x64,
        explain_cache_misses,
        jax2tf_associative_scan_reductions,
        legacy_prng_key,
        log_compiles,
        no_execution,
        no_tracing,
        numpy_dtype_promotion,
        numpy_rank_promotion,
        remove_size_one_mesh_axis_from_type,
        softmax_custom_jvp,
        threefry_partitionable,
    )
    from jaxlite.core.config import check_tracer_leaks as checking_leaks
    from jaxlite.core.config import disable_jit as _disable_jit
    from jaxlite.core.dtypes import float0
    from jaxlite.core.shape_dtype import typeof
    from jaxlite.core.tracing import ensure_compile_time_eval
    from jaxlite.devices.api import (
        block_until_ready,
        copy_to_host_async,
        default_backend,
        device_count,
        device_get,
        device_put,
        devices,
        effects_barrier,
        live_arrays,
        local_device_count,
        local_devices,
        process_count,
        process_index,
        process_indices,
    )
    from jaxlite.devices.api import process_count as host_count
    from jaxlite.devices.api import process_index as host_id
    from jaxlite.devices.api import process_indices as host_ids
    from jaxlite.transforms.make_jaxpr import ShapeDtypeStruct, eval_shape, make_jaxpr
    from jaxlite.version import __version__, __version_info__
    from lowering.xla import Device

_lazy = _Lazy(
    __name__,
    modules=(
        "core", "dtypes", "errors", "lax", "numpy", "tree", "tree_util", "stages", "random", "nn", "scipy", "flatten_util",
        "test_util", "ad_checkpoint", "api_util", "custom_batching", "custom_derivatives", "debug", "dlpack",
        "distributed", "experimental", "ad", "example_libraries", "explore", "export", "extend", "ffi", "image", "interpreters",
        "lib", "memory", "monitoring", "ops", "profiler", "ref", "sharding", "typing",
    ),
    **{
        "compilation.guards": "array_garbage_collection_guard thread_guard transfer_guard transfer_guard_device_to_device "
                              "transfer_guard_device_to_host transfer_guard_host_to_device",
        "compilation.environment": "print_environment_info",
        "compilation.levels": "CompilerEffortLevel Inline",
        "transforms.derivatives": "jvp linearize vjp fwd_and_bwd grad value_and_grad linear_transpose",
        "transforms.jacobians": "jacfwd jacrev jacobian hessian",
        "transforms.custom_derivatives": "custom_jvp custom_vjp closure_convert",
        "transforms.custom_gradient": "custom_gradient",
        "transforms.checkpoint": "checkpoint remat checkpoint_policies",
        "transforms.pmap": "pmap",
        "transforms.shard_map": "shard_map smap",
        "transforms.vmap": "vmap",
        "devices.mesh": "get_abstract_mesh get_mesh make_mesh set_mesh use_abstract_mesh",
        "devices.sharding": "NamedSharding P",
        "devices.global_arrays": "make_array_from_callback make_array_from_process_local_data "
                                 "make_array_from_single_device_arrays Shard",
        "ref": "Ref new_ref empty_ref free_ref freeze",
        "state.indexing": "ds",
        "core.scopes": "named_call named_scope",
        "core.user_context": "make_user_context",
        "lax.callbacks": "pure_callback",
        "lax.sharding": "reshard",
    },
)


def disable_jit(disable: bool = True) -> _Any:
    """Run jit-decorated functions operation by operation inside a `with` block, with concrete values."""
    return _disable_jit(disable)


__getattr__ = _lazy.load


def __dir__() -> list[str]:
    return _lazy.names()
