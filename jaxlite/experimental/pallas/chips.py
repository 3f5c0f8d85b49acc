"""What is known of TPUs by their generation, per core, as their vendor publishes it: sizes of memories and units, speeds."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.dtypes import itemsize_bits
from jaxlite.devices.mesh import abstract_context
from lowering import platforms


class ChipVersion(enum.Enum):
    """Generations of TPUs."""

    TPU_V2 = "v2"
    TPU_V3 = "v3"
    TPU_V4I = "v4i"
    TPU_V4 = "v4"
    TPU_V5E = "v5e"
    TPU_V5P = "v5p"
    TPU_V6E = "v6e"
    TPU_7 = "7"
    TPU_7X = "7x"
    TPU_8I = "8i"
    TPU_8T = "8t"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class SparseCoreInfo:
    """The units beside the cores of a TPU that gather and scatter. Sizes in bytes."""

    num_cores: int
    num_subcores: int
    num_lanes: int
    vmem_capacity_bytes: int
    dma_granule_size_bytes: int


@dataclass(frozen=True, kw_only=True)
class TpuInfo:
    """A core of a TPU. Sizes in bytes, speeds in bytes or operations a second; 0 where it has none."""

    chip_version: ChipVersion
    generation: int
    num_cores: int = 1
    num_lanes: int = 128
    num_sublanes: int = 8
    mxu_column_size: int = 128
    num_mxus: int = 4
    num_accumulators: int = 0
    vmem_capacity_bytes: int = 16 << 20
    cmem_capacity_bytes: int = 0
    smem_capacity_bytes: int = 1 << 20
    hbm_capacity_bytes: int
    mem_bw_bytes_per_second: int
    bf16_ops_per_second: int
    int8_ops_per_second: int = 0
    fp8_ops_per_second: int = 0
    int4_ops_per_second: int = 0
    sparse_core: SparseCoreInfo | None = None

    @property
    def is_lite(self) -> bool:
        """Whether it is a chip of one core made for inference and small training."""
        return self.chip_version.value in ("v4i", "v5e", "v6e")

    @property
    def is_megacore(self) -> bool:
        """Whether the cores of a chip appear as one device."""
        return (self.num_cores or 1) > 1

    @property
    def is_split_chip(self) -> bool:
        """Whether the cores of a chip appear as a device each."""
        return not self.is_lite and not self.is_megacore and self.chip_version is not ChipVersion.TPU_8T

    def get_sublane_tiling(self, dtype: Any) -> int:
        """How many rows of elements of a dtype stand in a tile of memory."""
        bits = itemsize_bits(np.dtype(dtype))
        return self.num_sublanes * (1 if bits == 16 and self.generation < 7 else 32 // bits)

    def is_matmul_supported(self, lhs_dtype: Any, rhs_dtype: Any) -> bool:
        """Whether the unit for matrix products takes operands of these dtypes as they are."""
        names = [np.dtype(dtypes.canonicalize_dtype(each)).name for each in (lhs_dtype, rhs_dtype)]
        return any(names[0] in left and names[1] in right for left, right in _PRODUCTS[self.chip_version])


_WIDE, _EIGHT = {"float32", "bfloat16"}, {"float8_e4m3fn", "float8_e5m2"}
_MIXED = {*_WIDE, "float8_e5m2", "float8_e4m3b11fnuz"}
_OLD = [({"float32"}, {"float32"})]
_FOURTH = [(_WIDE, {*_WIDE, "int8"})]
_FIFTH = [(_MIXED, _MIXED), ({"int8", "uint8"}, {"int8", "uint8"}), ({"int4", "uint4"}, {"int4", "uint4"})]
_SEVENTH = [(_WIDE, _WIDE | _EIGHT), (_EIGHT, _EIGHT)]
# Of products the dtypes of the left operands and of the right ones that go together.
_PRODUCTS: dict[ChipVersion, list[tuple[set[str], set[str]]]] = {
    ChipVersion.TPU_V2: _OLD, ChipVersion.TPU_V3: _OLD, ChipVersion.TPU_V4I: _FOURTH, ChipVersion.TPU_V4: _FOURTH,
    ChipVersion.TPU_V5E: _FIFTH, ChipVersion.TPU_V5P: _FIFTH, ChipVersion.TPU_V6E: _FIFTH, ChipVersion.TPU_7: _SEVENTH,
    ChipVersion.TPU_7X: _SEVENTH,
    ChipVersion.TPU_8I: [(left, {*right, "int4", "uint4"}) for left, right in _SEVENTH],
    ChipVersion.TPU_8T: [(left, {*right, "int4"}) for left, right in _SEVENTH],
}
_M, _G, _T = 10**6, 10**9, 10**12
_V = ChipVersion
_CHIPS = {info.chip_version: info for info in (
    TpuInfo(chip_version=_V.TPU_V2, generation=2, num_mxus=1, smem_capacity_bytes=16 << 10, hbm_capacity_bytes=8 * _G,
            mem_bw_bytes_per_second=358 * _G, bf16_ops_per_second=23 * _T),
    TpuInfo(chip_version=_V.TPU_V3, generation=3, num_mxus=2, smem_capacity_bytes=16 << 10, hbm_capacity_bytes=17200 * _M,
            mem_bw_bytes_per_second=412500 * _M, bf16_ops_per_second=70 * _T),
    TpuInfo(chip_version=_V.TPU_V4I, generation=4, cmem_capacity_bytes=134 * _M, hbm_capacity_bytes=8590 * _M,
            mem_bw_bytes_per_second=614 * _G, bf16_ops_per_second=137 * _T),
    TpuInfo(chip_version=_V.TPU_V4, generation=4, cmem_capacity_bytes=67 * _M, hbm_capacity_bytes=17200 * _M,
            mem_bw_bytes_per_second=615 * _G, bf16_ops_per_second=137500 * _G),
    TpuInfo(chip_version=_V.TPU_V5E, generation=5, vmem_capacity_bytes=128 << 20, hbm_capacity_bytes=17200 * _M,
            mem_bw_bytes_per_second=820 * _G, bf16_ops_per_second=197 * _T, int8_ops_per_second=394 * _T,
            int4_ops_per_second=788 * _T),
    TpuInfo(chip_version=_V.TPU_V5P, generation=5, vmem_capacity_bytes=64 << 20, hbm_capacity_bytes=51500 * _M,
            mem_bw_bytes_per_second=1230 * _G, bf16_ops_per_second=229500 * _G, int8_ops_per_second=459 * _T,
            int4_ops_per_second=920 * _T, sparse_core=SparseCoreInfo(4, 16, 8, 512 << 10, 32)),
    TpuInfo(chip_version=_V.TPU_V6E, generation=6, mxu_column_size=256, num_mxus=2, vmem_capacity_bytes=128 << 20,
            hbm_capacity_bytes=34400 * _M, mem_bw_bytes_per_second=1640 * _G, bf16_ops_per_second=920 * _T,
            int8_ops_per_second=1840 * _T, fp8_ops_per_second=920 * _T, int4_ops_per_second=3680 * _T,
            sparse_core=SparseCoreInfo(2, 16, 8, 256 << 10, 32)),
    TpuInfo(chip_version=_V.TPU_7X, generation=7, mxu_column_size=256, num_mxus=2, num_accumulators=128,
            vmem_capacity_bytes=64 << 20, hbm_capacity_bytes=103 * _G, mem_bw_bytes_per_second=3700 * _G,
            bf16_ops_per_second=1155 * _T, fp8_ops_per_second=2300 * _T, sparse_core=SparseCoreInfo(2, 16, 16, 512 << 10, 32)),
    TpuInfo(chip_version=_V.TPU_8I, generation=8, mxu_column_size=256, num_mxus=2, num_accumulators=256,
            vmem_capacity_bytes=192 << 20, hbm_capacity_bytes=154500 * _M, mem_bw_bytes_per_second=4300 * _G,
            bf16_ops_per_second=550500 * _G, fp8_ops_per_second=4404 * _T, sparse_core=SparseCoreInfo(1, 4, 16, 512 << 10, 64)),
    TpuInfo(chip_version=_V.TPU_8T, generation=8, num_sublanes=16, mxu_column_size=256, num_mxus=2, num_accumulators=256,
            vmem_capacity_bytes=128 << 20, hbm_capacity_bytes=231 * _G, mem_bw_bytes_per_second=6400 * _G,
            bf16_ops_per_second=996100 * _G, int8_ops_per_second=996100 * _G, fp8_ops_per_second=5976900 * _G,
            int4_ops_per_second=11953800 * _G, sparse_core=SparseCoreInfo(2, 16, 16, 256 << 10, 64)),
)}
_CHIPS[_V.TPU_7] = replace(_CHIPS[_V.TPU_7X], chip_version=_V.TPU_7)
_KINDS = {"TPU v2": _V.TPU_V2, "TPU v3": _V.TPU_V3, "TPU v4": _V.TPU_V4, "TPU v4 lite": _V.TPU_V4I, "TPU v5 lite": _V.TPU_V5E,
          "TPU v5e": _V.TPU_V5E, "TPU v5": _V.TPU_V5P, "TPU v5p": _V.TPU_V5P, "TPU v6 lite": _V.TPU_V6E, "TPU v6e": _V.TPU_V6E,
          "TPU7": _V.TPU_7, "TPU7x": _V.TPU_7X, "TPU8i": _V.TPU_8I, "TPU8t": _V.TPU_8T}


def get_tpu_info_for_chip(chip_version: Any, num_tensor_cores_per_logical_device: int = 1) -> TpuInfo:
    """The data of a generation.

    Args: `chip_version` a `ChipVersion`; `num_tensor_cores_per_logical_device` 2 for a chip whose cores are one device.

    >>> from jaxlite.experimental.pallas import tpu as pltpu
    >>> pltpu.get_tpu_info_for_chip(pltpu.ChipVersion.TPU_V5E, 1).num_lanes
    128
    """
    found = _CHIPS[ChipVersion(chip_version)]
    if num_tensor_cores_per_logical_device == 1:
        return found
    if found.chip_version not in (_V.TPU_V4, _V.TPU_V5P) or num_tensor_cores_per_logical_device != 2:
        raise ValueError("Lite chips and dual-core chips that do not support Megacore must have "
                         f"num_tensor_cores_per_logical_device=1, but got {num_tensor_cores_per_logical_device}.")
    return replace(found, num_cores=2)


def _device() -> tuple[str, int | None]:
    """The kind of the devices that a program is for, and how many cores each has: those of the mesh of the context, if it names
    any, or of the default device."""
    named = abstract_context.value and abstract_context.value.abstract_device
    if named:
        return named.device_kind, named.num_cores
    device = platforms.default_device()
    return device.device_kind, getattr(device, "num_cores", None) or 1


def device_kind() -> str:
    """The kind of the devices that a program is for."""
    return _device()[0]


def is_tpu_device() -> bool:
    """Whether the devices are TPUs that are known here: see `get_tpu_info`."""
    return _device()[0] in _KINDS


def get_tpu_info() -> TpuInfo:
    """What is known of the default device, or of the devices that a mesh stands for: `jax.sharding.use_abstract_mesh` with an
    `AbstractMesh` that has an `abstract_device`.

    Raises: ValueError if it is no TPU, or one that is not known.
    """
    kind, cores = _device()
    if kind not in _KINDS:
        raise ValueError(f"Unsupported TPU device kind: {kind}. If you are not running on a TPU device, you need to wrap your "
                         "code in a `jax.sharding.use_abstract_mesh` context manager whose `AbstractMesh` argument specifies "
                         "the exact TPU version you intend to target.")
    return get_tpu_info_for_chip(_KINDS[kind], cores or 1)
