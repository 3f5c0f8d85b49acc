"""What is known of NVIDIA's GPUs by their name: the version of their instructions."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from jaxlite.experimental.pallas.chips import device_kind


class GpuVersion(enum.Enum):
    """Kinds of GPUs, by the name that their driver gives."""

    A10 = "NVIDIA A10"
    A30 = "NVIDIA A30"
    A100 = "NVIDIA A100"
    H100 = "NVIDIA H100"
    H200 = "NVIDIA H200"
    GH200 = "NVIDIA GH200"
    B200 = "NVIDIA B200"
    GB200 = "NVIDIA GB200"
    B300 = "NVIDIA B300"
    GB300 = "NVIDIA GB300"
    GB10 = "NVIDIA GB10"
    L4 = "NVIDIA L4"
    L40 = "NVIDIA L40"
    T4 = "Tesla T4"
    RTX_4090 = "NVIDIA GeForce RTX 4090"
    RTX_PRO_4500 = "NVIDIA RTX PRO 4500"
    RTX_PRO_5000 = "NVIDIA RTX PRO 5000"
    RTX_PRO_6000 = "NVIDIA RTX PRO 6000"
    THOR = "NVIDIA Thor"
    VR200 = "NVIDIA VR200"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True)
class GpuInfo:
    """A GPU: its version, if it is one that is known by name, and its compute capability as text (9.0) and as a number (90)."""

    gpu_version: GpuVersion | None
    arch_name: str
    compute_capability: int


_V = GpuVersion
_CAPABILITIES = {
    75: [_V.T4], 80: [_V.A100, _V.A30], 86: [_V.A10], 89: [_V.L4, _V.L40, _V.RTX_4090], 90: [_V.H100, _V.H200, _V.GH200],
    100: [_V.B200, _V.GB200], 103: [_V.B300, _V.GB300], 107: [_V.VR200], 110: [_V.THOR],
    120: [_V.RTX_PRO_4500, _V.RTX_PRO_5000, _V.RTX_PRO_6000], 121: [_V.GB10]}
_OF = {version: capability for capability, versions in _CAPABILITIES.items() for version in versions}


def get_gpu_info_from_version(gpu_version: GpuVersion) -> GpuInfo:
    """The data of a kind of GPU.

    >>> from jaxlite.experimental.pallas import triton
    >>> triton.get_gpu_info_from_version(triton.GpuVersion.H100).arch_name
    '9.0'
    """
    version = GpuVersion(gpu_version)
    capability = _OF[version]
    return GpuInfo(gpu_version=version, arch_name=f"{capability // 10}.{capability % 10}", compute_capability=capability)


def _version() -> GpuVersion | None:
    """The version of the devices: the longest name that theirs begins with, as 'NVIDIA H100 80GB HBM3' does."""
    kind = device_kind()
    return max((each for each in GpuVersion if f"{kind} ".startswith((f"{each.value} ", f"{each.value}-"))),
               key=lambda each: len(each.value), default=None)


def is_gpu_device() -> bool:
    """Whether the devices are GPUs that are known here."""
    return _version() is not None


def get_gpu_info() -> GpuInfo:
    """What is known of the default device, or of the devices that a mesh stands for, as `pallas.tpu.get_tpu_info` has it.

    Raises: ValueError if it is no GPU, or one that is not known.
    """
    version = _version()
    if version is None:
        raise ValueError(f"not a GPU that is known: {device_kind()}. Where there is none, name one: use "
                         "jax.sharding.use_abstract_mesh with an AbstractMesh that has an abstract_device")
    return get_gpu_info_from_version(version)
