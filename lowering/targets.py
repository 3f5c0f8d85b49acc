"""Descriptions of accelerators for XLA's compiler, by name: programs can be compiled on a machine without them.

The figures are from the vendors' data sheets and from the devices; XLA's cost model uses them. TPUs need no description:
their plugin knows its topologies ("v5e:2x2").
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple


class Gpu(NamedTuple):
    """The compiler's data of a GPU. Memory in bytes, bandwidth in bytes a second, per core: of a multiprocessor.

    `capability` is CUDA's pair of numbers, or the name of AMD's architecture.
    """

    description: str
    capability: tuple[int, int] | str
    cores: int
    memory: int
    bandwidth: int
    cache: int
    clock_ghz: float
    shared_memory: int
    threads_per_core: int = 2048
    fpus_per_core: int = 128


GPUS = {
    "t4": Gpu("Tesla T4", (7, 5), 40, 15843721216, 320064000000, 4194304, 1.59, 65536, 1024, 64),
    "v100": Gpu("Tesla V100-SXM2-16GB", (7, 0), 80, 16945512448, 898048000000, 6291456, 1.53, 98304, 2048, 64),
    "a100": Gpu("NVIDIA A100-SXM4-80GB", (8, 0), 108, 85028896768, 2039000000000, 41943040, 1.41, 167936, 2048, 64),
    "a10": Gpu("NVIDIA A10", (8, 6), 72, 23836033024, 600096000000, 6291456, 1.695, 102400, 1536),
    "l4": Gpu("NVIDIA L4", (8, 9), 58, 23669000000, 300096000000, 50331648, 2.04, 102400, 1536),
    "l40s": Gpu("NVIDIA L40S", (8, 9), 142, 47810936832, 864096000000, 100663296, 2.52, 102400, 1536),
    "h100": Gpu("NVIDIA H100 80GB HBM3", (9, 0), 132, 84978434048, 3352320000000, 52428800, 1.98, 233472),
    "h200": Gpu("NVIDIA H200", (9, 0), 132, 150119153664, 4917504000000, 62914560, 1.98, 233472),
    "b200": Gpu("NVIDIA B200", (10, 0), 148, 191514083328, 7672320000000, 132644864, 1.965, 233472),
    "mi300x": Gpu("AMD Instinct MI300X", "gfx942:sramecc+:xnack-", 304, 206141652992, 5300000000000, 4194304, 2.1, 65536),
}


def platform_of(name: str) -> str:
    """The platform whose plugin knows a device by its name: 'tpu', 'cuda' or 'rocm'.

    >>> platform_of("v5e:2x2"), platform_of("h100:8"), platform_of("mi300x")
    ('tpu', 'cuda', 'rocm')
    """
    if re.match(r"(tpu|v)\d+[a-z]*:", name):
        return "tpu"
    found = GPUS.get(name.lower().partition(":")[0])
    return "rocm" if found is not None and isinstance(found.capability, str) else "cuda"


def gpu_named(name: str) -> tuple[Gpu, int]:
    """The GPU that a text names, and how many of them: 'h100', 'H100:8'.

    >>> gpu_named("H100:8")[1]
    8
    """
    found = re.fullmatch(r"([a-z0-9]+)(?::(\d+))?", name.lower())
    if found is None or found[1] not in GPUS:
        raise ValueError(f"no GPU is known by the name {name!r}; known are {', '.join(GPUS)}, with ':8' for eight of them")
    return GPUS[found[1]], int(found[2] or 1)


def target_config(gpu: Gpu) -> str:
    """A GPU as the text of XLA's message `GpuTargetConfigProto`."""
    if isinstance(gpu.capability, str):
        capability = f'rocm_compute_capability {{ gcn_arch_name: "{gpu.capability}" }}'
        warp, per_block, optin = 64, gpu.shared_memory, gpu.shared_memory
        library = 'platform_name: "ROCM" dnn_version_info { major: 3 minor: 4 }'
    else:
        capability = "cuda_compute_capability {{ major: {} minor: {} }}".format(*gpu.capability)
        warp, per_block, optin = 32, 49152, gpu.shared_memory - 1024
        library = 'platform_name: "CUDA" dnn_version_info { major: 9 minor: 10 }'
    return f"""
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: {warp} shared_memory_per_block: {per_block}
  shared_memory_per_core: {gpu.shared_memory} threads_per_core_limit: {gpu.threads_per_core} core_count: {gpu.cores}
  fpus_per_core: {gpu.fpus_per_core} block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: {gpu.bandwidth} l2_cache_size: {gpu.cache} clock_rate_ghz: {gpu.clock_ghz}
  device_memory_size: {gpu.memory} shared_memory_per_block_optin: {optin}
  {capability} registers_per_core_limit: 65536 registers_per_block_limit: 65536
}}
{library} device_description_str: "{gpu.description}"
"""


# Bytes of a chip's memory, by the generation's name.
TPU_MEMORY = {"v2": 8 << 30, "v3": 16 << 30, "v4": 32 << 30, "v5e": 16 << 30, "v5p": 95 << 30, "v6e": 32 << 30,
              "tpu7x": 96 << 30}


def devices(description: str, platform: str, plugin: Any, options: dict[str, Any] | None = None) -> list[Any]:
    """The devices that a name describes, for compiling alone.

    Args: `plugin` that of the platform, from `lowering.plugins`; further `options` for it.
    """
    from lowering import xla  # this table can be read without jaxlib

    api = plugin.load()
    if platform == "tpu":
        return xla.topology_of(None, "tpu", description, options or {})._make_compile_only_devices()
    gpu, count = gpu_named(description)
    return xla.topology_of(api, plugin.name, description, {
        "target_config": target_config(gpu), "topology": f"1x1x{count}", **(options or {})})._make_compile_only_devices()
