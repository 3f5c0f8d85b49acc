"""JAX's options that have no effect here, with JAX's defaults and the reason. They can be set and read.

If another value would change the meaning of programs, the option only accepts its default: `REFUSED`.
"""

from __future__ import annotations

from typing import Any

_REASONS: dict[str, dict[str, Any]] = {
    "it chooses among ways of JAX's own to trace or to differentiate; here there is one": {
        "accurate_erf_inv": False, "custom_jvp3": False, "custom_vjp3": False, "disable_vmap_shmap_error": False,
        "eager_constant_folding": False, "jax2tf_default_native_serialization": True,
        "raise_on_ppermute_sort_diff": True, "refs_to_pins": False,
        "remat3": False, "remat_barrier_no_cotangents": False, "scan3": False,
        "use_cpp_shard_args": False, "use_direct_linearize": True, "use_emit_pipeline_primitive": False,
        "use_hlo_logistic_lowering": None, "use_rgv3": True, "use_shardy_partitioner": True,
        "use_simplified_jaxpr_constants": False},
    "these checks are always made": {
        "disable_bwd_checks": False, "mutable_array_checks": True, "export_ignore_forward_compatibility": False,
        "compilation_cache_check_contents": False, "check_vma": False},
    "the persistent cache here has its own files and rules": {
        "compilation_cache_expect_pgle": False, "compilation_cache_include_metadata_in_key": False,
        "persistent_cache_enable_xla_caches": "xla_gpu_per_fusion_autotune_cache_dir",
        "persistent_cache_min_entry_size_bytes": 0,
        "raise_persistent_cache_errors": False, "remove_custom_partitioning_ptr_from_cache_key": False,
        "share_binary_between_hosts": False, "share_binary_between_hosts_timeout_ms": 1_200_000},
    "compiles guided by a profile are not there": {
        "enable_pgle": False, "pgle_aggregation_percentile": 90, "pgle_profiling_runs": 3, "xla_profile_version": 0},
    "it is about messages, locations or dumps, which differ here": {
        "captured_constants_report_frames": 0, "captured_constants_warn_bytes": 2_000_000_000,
        "compiler_detailed_logging_min_ops": 10, "hlo_source_file_canonicalization_regex": None,
        "include_debug_info_in_dumps": True, "include_full_tracebacks_in_locations": True, "log_checkpoint_residuals": False,
        "pprint_use_color": True, "send_traceback_to_runtime": "off", "source_url_schema": None,
        "tracer_error_num_traceback_frames": 5, "traceback_in_locations_limit": 100},
    "it is about kernels for hardware on which jaxlite has not been run": {
        "bcoo_cusparse_lowering": False, "compiler_enable_remat_pass": True, "mosaic_allow_hlo": False,
        "mosaic_unzip_debug_locations": True, "pallas_auto_assign_collective_ids": "no",
        "pallas_auto_assign_collective_ids_limit": 25, "pallas_enable_debug_checks": False, "pallas_poison_buffers": False,
        "pallas_use_mosaic_gpu": True, "pallas_verbose_errors": False, "ragged_dot_use_gpu_pallas_triton_lowering": False,
        "ragged_dot_use_ragged_dot_instruction": True, "use_magma": "auto", "oneapi_visible_devices": "all"},
    "it is about the runtime of several processes or of a cloud, which takes its defaults": {
        "backend_target": "", "check_proxy_envs": True, "cpu_enable_async_dispatch": True,
        "cpu_get_global_topology_timeout_minutes": 5, "cpu_get_local_topology_timeout_minutes": 2,
        "cross_host_transfer_socket_address": "", "cross_host_transfer_timeout_seconds": None,
        "cross_host_transfer_transfer_size": None, "cross_host_transport_addresses": "",
        "debug_leaked_clients_on_clear_backends": False, "enable_preemption_service": True,
        "experimental_unsafe_xla_runtime_errors": False,
        "force_dcn_cross_host_transfers": False, "mock_gpu_topology": "", "mock_num_gpu_processes": 0,
        "pjrt_client_create_options": None, "sort_devices_by_process_index": True},
    "small arrays are constants of a program up to 4 kB": {"embedded_constants_max_bytes": 32},
    "files are written in the newest form that JAX of the same jaxlib reads": {
        "serialization_version": 0, "export_deserialize_expired_versions": False},
    "arrays without an owner are found by `array_garbage_collection_guard` as a context manager": {
        "array_garbage_collection_guard": None},
}
WITHOUT_MEANING: dict[str, Any] = {name: value for group in _REASONS.values() for name, value in group.items()}
REASONS: dict[str, str] = {name: reason for reason, group in _REASONS.items() for name in group}

# Name -> its one value, and what to do instead.
REFUSED: dict[str, tuple[Any, str]] = dict.fromkeys(
    ("error_checking_behavior_divide", "error_checking_behavior_nan", "error_checking_behavior_oob"),
    ("ignore", "use jaxlite.experimental.checkify, or the option debug_nans"))
