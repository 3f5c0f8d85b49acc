"""What the environment says of the processes that run one program: their number, which one this is, where process 0 is.

Schedulers and launchers tell each process by variables of its environment. `detect` asks those it knows, in order; the
variables of jaxlite's own (`JAX_COORDINATOR_ADDRESS`, `JAX_NUM_PROCESSES`, `JAX_PROCESS_ID`) go before all of them.
"""

from __future__ import annotations

import importlib
import os
import re
import socket
from collections.abc import Callable
from typing import NamedTuple

_PORTS = 4096  # a job's coordinator listens on one of so many, the last there are


class Cluster(NamedTuple):
    """What the environment says of a program's processes, None where it does not. `local_id` counts on one machine."""

    address: str | None = None
    size: int | None = None
    number: int | None = None
    local_id: int | None = None


def _number(name: str) -> int | None:
    text = os.environ.get(name)
    if text is None:
        return None
    if not text.strip().isdigit():
        raise ValueError(f"the environment variable {name} is {text!r}; it takes a number")
    return int(text)


def _port(job: int) -> int:
    return 65536 - _PORTS + job % _PORTS


def _own() -> Cluster:
    return Cluster(os.environ.get("JAX_COORDINATOR_ADDRESS"), _number("JAX_NUM_PROCESSES"), _number("JAX_PROCESS_ID"))


def partition_index() -> int | None:
    """Which part of the machine the accelerators of this process belong to."""
    index = _number("JAX_PARTITION_INDEX")
    return _number("JAX_SLICE_INDEX") if index is None else index


def first_host(nodes: str) -> str:
    """The first host of a list as Slurm writes it.

    >>> first_host("node[003-005,9],other1"), first_host("tpu-a,tpu-b")
    ('node003', 'tpu-a')
    """
    found = re.match(r"([^,\[]+)(?:\[([^\],-]+))?", nodes)
    if found is None:
        raise ValueError(f"no host in {nodes!r}")
    return found[1] + (found[2] or "")


def slurm() -> Cluster | None:
    """What Slurm says of this process; None where there is no job of it."""
    if "SLURM_JOB_ID" not in os.environ or "SLURM_PROCID" not in os.environ:
        return None
    nodes = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST", "localhost")
    address = f"{first_host(nodes)}:{_port(_number('SLURM_JOB_ID') or 0)}"
    count = _number("SLURM_STEP_NUM_TASKS")
    return Cluster(address, _number("SLURM_NTASKS") if count is None else count, _number("SLURM_PROCID"),
                   _number("SLURM_LOCALID"))


def _open_mpi() -> Cluster | None:
    uri = os.environ.get("OMPI_MCA_orte_hnp_uri", "")
    if "OMPI_COMM_WORLD_RANK" not in os.environ:
        return None
    found = re.search(r"^(\d+)\.\d+;tcp6?://(?:([\d.]+)|\[([\da-fA-F:]+)[^\]]*\])", uri)  # job.process;tcp://address,...:port
    address = f"{found[2] or f'[{found[3]}]'}:{_port(int(found[1]) >> 12)}" if found else None
    return Cluster(address, _number("OMPI_COMM_WORLD_SIZE"), _number("OMPI_COMM_WORLD_RANK"),
                   _number("OMPI_COMM_WORLD_LOCAL_RANK"))


def _kubernetes() -> Cluster | None:
    """An indexed job: its pods are called <job>-<index>, and find each other by these names through its service.
    How many there are, Kubernetes does not tell them."""
    if "KUBERNETES_SERVICE_HOST" not in os.environ or "JOB_COMPLETION_INDEX" not in os.environ:
        return None
    index = _number("JOB_COMPLETION_INDEX")
    name, dot, domain = socket.getfqdn().partition(".")
    job = name.removesuffix(f"-{index}")
    address = f"{job}-0{dot}{domain}:{_port(0)}" if job != name else None
    return Cluster(address, None, index)


def _mpi4py() -> Cluster:
    """What MPI itself says, however its processes were started: a collective call of all of them."""
    mpi = importlib.import_module("mpi4py.MPI")
    world = mpi.COMM_WORLD
    address = world.bcast(f"{socket.gethostname()}:{_port(os.getpid())}" if world.Get_rank() == 0 else None, root=0)
    return Cluster(address, world.Get_size(), world.Get_rank(), world.Split_type(mpi.COMM_TYPE_SHARED).Get_rank())


# A program that Open MPI starts in a job of Slurm finds both, and Slurm's numbers are not those of its processes.
_METHODS: dict[str, Callable[[], Cluster | None]] = {"ompi": _open_mpi, "slurm": slurm, "k8s": _kubernetes}
_ASKED_BY_NAME: dict[str, Callable[[], Cluster | None]] = {"mpi4py": _mpi4py}  # it starts MPI


def detect(method: str | None = None) -> Cluster:
    """What the environment says; of some `method` alone, if one is given ('ompi', 'slurm', 'k8s', 'mpi4py', 'deactivate').

    Raises: ValueError for an unknown method, and for variables that are not numbers; RuntimeError if the method that was asked
    for does not recognize this process; ModuleNotFoundError without mpi4py.
    """
    own = _own()
    if method == "deactivate":
        return own
    known = _METHODS | _ASKED_BY_NAME
    if method is not None and method not in known:
        raise ValueError(f"cluster_detection_method is {method!r}; it takes one of {', '.join(map(repr, known))}, 'deactivate' "
                         "or None")
    asked = _METHODS.values() if method is None else [known[method]]
    found = [cluster for ask in asked if (cluster := ask()) is not None]
    if method is not None and not found:
        raise RuntimeError(f"this process does not run under {method}: its environment has none of the variables")
    # What the first does not say, such as Open MPI 5 where process 0 is, the next may.
    return Cluster(*[next((value for value in values if value is not None), None) for values in zip(own, *found, strict=True)])
