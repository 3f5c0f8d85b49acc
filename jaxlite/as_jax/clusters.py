"""`jax._src.clusters` for libraries that read what Slurm says, or change it: levanter."""

from __future__ import annotations

import os
from typing import Any

from jaxlite.devices import clusters


class ClusterEnv:
    """What the environment says of a program's processes. A subclass is known by its definition."""

    _cluster_types: list[type[ClusterEnv]] = []

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        ClusterEnv._cluster_types.append(cls)

    @classmethod
    def is_env_present(cls) -> bool:
        """Whether this process is part of such a cluster."""
        return False


class SlurmCluster(ClusterEnv):
    """Slurm's variables, as `jax.distributed.initialize` reads them."""

    name = "slurm"

    @classmethod
    def is_env_present(cls) -> bool:
        return "SLURM_NTASKS" in os.environ and clusters.slurm() is not None

    @classmethod
    def get_coordinator_address(cls, timeout_secs: int | None = None, override_coordinator_port: str | None = None) -> str:
        """Where process 0 listens: its host and a port that depends on the job, or this port."""
        address = cls._found().address or ""
        return f"{address.rpartition(':')[0]}:{override_coordinator_port}" if override_coordinator_port else address

    @classmethod
    def get_process_count(cls) -> int | None:
        """How many processes there are."""
        return cls._found().size

    @classmethod
    def get_process_id(cls) -> int | None:
        """Which of them this one is."""
        return cls._found().number

    @classmethod
    def get_local_process_id(cls) -> int | None:
        """Which of those of its machine."""
        return cls._found().local_id

    @staticmethod
    def _found() -> clusters.Cluster:
        found = clusters.slurm()
        if found is None:
            raise RuntimeError("Slurm's variables are not in the environment")
        return found
