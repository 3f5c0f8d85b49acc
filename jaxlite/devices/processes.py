"""Programs of several processes: starts XLA's distributed runtime, and connects the clients of platforms to it.

`initialize` finds the processes (`clusters`), waits for all of them (`roll_call`), and connects this process to the
runtime, through which the processes exchange their devices and notice when one of them dies. `exchange` sends data that is
not on a device through the runtime's key-value store.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from jaxlite.core import config
from jaxlite.core.filtering import boundary
from jaxlite.devices import clusters, roll_call
from lowering import platforms, xla

_CONNECT = 60  # seconds in which a process that was let go reaches the runtime's service
_PROGRAM = 60  # seconds that processes wait for each other to come to the same program
_counts: dict[Any, int] = {}  # of the programs compared so far, by their devices


class Peers(NamedTuple):
    """This process among those that run one program. `store` is the runtime's client, `service` is process 0's."""

    address: str
    number: int
    size: int
    store: Any
    service: Any
    collectives: Any


_peers: Peers | None = None


@boundary
def initialize(coordinator_address: str | None = None, num_processes: int | None = None, process_id: int | None = None,
               local_device_ids: int | Sequence[int] | None = None, cluster_detection_method: str | None = None,
               initialization_timeout: int = 300, heartbeat_timeout_seconds: int = 100, shutdown_timeout_seconds: int = 300,
               coordinator_bind_address: str | None = None, slice_index: int | None = None, partition_index: int | None = None,
               mtls_cert_file: str | None = None, mtls_key_file: str | None = None, mtls_ca_file: str | None = None,
               mtls_peer_uri_prefix: str | None = None, verify_secure_credentials: bool | None = None) -> None:
    """Connect this process to the other processes of the program; call it in each of them, before using a device.

    Args:
      coordinator_address: 'host:port', where process 0 is to be reached and all others look for it.
      num_processes: how many processes there are.
      process_id: which one this is, from 0.
      local_device_ids: the accelerators that this process uses, by number; by default all of its machine, under Slurm and
        Open MPI the one of its number on the machine.
      cluster_detection_method: 'ompi', 'slurm', 'k8s' or 'mpi4py': who says what is left out above. By default whoever of the
        first three does, and before them the variables JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID;
        'deactivate' asks these alone.
      initialization_timeout: seconds within which all processes must have come.
      heartbeat_timeout_seconds: after so long without a sign of life a process is taken for dead, and the others end.
      shutdown_timeout_seconds: how long a process that ends waits for the others to end too.
      coordinator_bind_address: where process 0 listens; by default the port of `coordinator_address` on all its addresses.
      slice_index: the old name of `partition_index`.
      partition_index: which part of the machine this process' accelerators belong to, if all processes say so; by default they
        find out. Also the variable JAX_PARTITION_INDEX.
      mtls_cert_file, mtls_key_file, mtls_ca_file: files with this process' certificates, their key, and those that sign the
        other processes' certificates: the processes then know each other by these (jaxlib 0.12). By default, the options of
        these names say so.
      mtls_peer_uri_prefix: how a URI in the other processes' certificates begins; without it, they name their hosts.
      verify_secure_credentials: whether to refuse to do without certificates; by default, what the option
        `distributed_verify_secure_credentials` says.
    Raises: ValueError for what is missing or makes no sense; NotImplementedError for certificates with an older jaxlib;
      RuntimeError if it is too late (devices are in use), if nobody is
      at the address, if a process does not come in time, or if two have one number: all processes that have come say which.

    >>> import jaxlite
    >>> jaxlite.distributed.initialize("localhost:1234", num_processes=2, process_id=0)  # doctest: +SKIP
    """
    global _peers
    if _peers is not None:
        raise RuntimeError("distributed.initialize should only be called once.")
    if platforms.clients:
        raise RuntimeError("jax.distributed.initialize() must be called before any JAX calls that might initialise the XLA "
                           "backend. This includes any computation, but also calls to jax.devices, jax.device_put, and others.")
    if slice_index is not None and partition_index is None:
        warnings.warn("`slice_index` has been deprecated. Please use `partition_index` instead.", DeprecationWarning,
                      stacklevel=3)
    found, part = clusters.Cluster(), next((index for index in (partition_index, slice_index) if index is not None),
                                           clusters.partition_index())
    if coordinator_address is None or num_processes is None or process_id is None:
        found = clusters.detect(cluster_detection_method)
    address = found.address if coordinator_address is None else coordinator_address
    count = found.size if num_processes is None else num_processes
    number = found.number if process_id is None else process_id
    if address is None:
        raise ValueError("coordinator_address should be defined.")
    if count is None:
        raise ValueError("Number of processes must be defined.")
    if number is None:
        raise ValueError("The process id of the current process must be defined.")
    for name, what, value in (("process_id", "nonnegative", number), ("num_processes", "positive", count)):
        if not isinstance(value, int):
            raise TypeError(f"{name} must be a {what} int. Got {name}={value} of type {type(value)}.")
    if not 0 <= number < count:
        raise ValueError("process_id and num_processes must be nonnegative, with process_id < num_processes. Got "
                         f"process_id={number}, num_processes={count}.")
    for name, value in (("initialization_timeout", initialization_timeout),
                        ("shutdown_timeout_seconds", shutdown_timeout_seconds),
                        ("heartbeat_timeout_seconds", heartbeat_timeout_seconds)):
        if not isinstance(value, int) or value <= 0:  # XLA's runtime would end the process, if not now then later
            raise ValueError(f"{name} must be a whole number of seconds, at least 1; got {value!r}")
    _, port = roll_call.host_and_port(address)
    kind = _collectives_kind()
    bind = coordinator_bind_address or os.environ.get("JAX_COORDINATOR_BIND_ADDRESS") or f"0.0.0.0:{port}"
    roll_call.host_and_port(bind, "coordinator_bind_address")
    _see_devices(local_device_ids, found.local_id)
    secure = _credentials(mtls_cert_file, mtls_key_file, mtls_ca_file, mtls_peer_uri_prefix, verify_secure_credentials)
    options = {"heartbeat_timeout": heartbeat_timeout_seconds, "shutdown_timeout": shutdown_timeout_seconds, **secure}

    def start() -> Any:
        return xla.coordinator_service(bind, count, recoverable=config.enable_recoverability.value, **options)

    service = None
    if secure:  # a roll is called in the clear
        service = start() if number == 0 else None
    elif number == 0:
        service = roll_call.call(address, bind, count, initialization_timeout, start)
    else:
        roll_call.answer(address, number, count, initialization_timeout)
    store = xla.coordinator_client(address, number, init_timeout=max(_CONNECT, initialization_timeout), **options)
    _peers = Peers(address, number, count, store, service, xla.cpu_collectives(kind, store))
    nodes = {"node_id": number, "num_nodes": count} | ({} if part is None else {"partition_index": part})
    platforms.configure(peers=lambda: _peers, nodes=lambda: nodes)
    atexit.register(_at_exit)


def _credentials(*given: Any) -> dict[str, Any]:
    """What the runtime gets to know about certificates: nothing, if there are none and none are required."""
    options = (config.mtls_cert_file, config.mtls_key_file, config.mtls_ca_file, config.mtls_peer_uri_prefix,
               config.distributed_verify_secure_credentials)
    names = ("mtls_cert_file", "mtls_key_file", "mtls_ca_file", "mtls_peer_uri_prefix", "verify_secure_credentials")
    found = {name: option.value if value is None else value for name, value, option in zip(names, given, options, strict=True)}
    files = [name for name in names[:3] if found[name]]
    if found["verify_secure_credentials"] and not files:  # jaxlib would end the process
        raise ValueError("distributed.initialize: there are no certificates, which verify_secure_credentials requires")
    if not files:
        return {}
    if len(files) < 3:
        raise ValueError(f"distributed.initialize got {', '.join(files)}; all of {', '.join(names[:3])} are needed")
    for name in files:
        if not os.path.isfile(found[name]):
            raise ValueError(f"distributed.initialize: there is no file {found[name]!r} ({name})")
    if xla.VERSION < (0, 12):
        raise NotImplementedError(f"distributed.initialize with certificates needs jaxlib 0.12, this is {xla.VERSION_TEXT}")
    return found


def _collectives_kind() -> str | None:
    """How processors exchange data, if this process can."""
    kind = config.cpu_collectives_implementation.value
    library = os.environ.get("MPITRAMPOLINE_LIB", "")
    problem = f"there is no file {library}" if library else "it is not set"
    if kind == "mpi" and not os.path.exists(library):  # jaxlib would end the process
        raise RuntimeError("jax_cpu_collectives_implementation is 'mpi', which needs MPItrampoline: set MPITRAMPOLINE_LIB to "
                           f"the wrapper of this machine's MPI library; {problem}")
    return kind


def _see_devices(asked: int | Sequence[int] | None, local_id: int | None) -> None:
    ids = [local_id] if asked is None and local_id is not None else [asked] if isinstance(asked, int) else asked
    if ids is None:
        return
    text = ",".join(str(int(each)) for each in ids)
    for option in (config.cuda_visible_devices, config.rocm_visible_devices):
        if asked is not None or option.value == "all":
            option.set(text)


def shutdown() -> None:
    """Disconnect from the other processes, after all have called it. Without `initialize` it does nothing.

    Ending the process does it too.
    """
    global _peers
    if _peers is None:
        return
    peers, _peers = _peers, None
    platforms.configure(peers=lambda: None, nodes=lambda: None)
    peers.store.shutdown()
    if peers.service is not None:
        peers.service.shutdown()


def alive(numbers: Iterable[int]) -> dict[int, int]:
    """The processes that live, each with the number of its life; the same in all that live. It waits for them to ask.

    Raises: RuntimeError without `initialize`.
    """
    if _peers is None:
        raise RuntimeError("Distributed JAX not initialized: call jax.distributed.initialize first.")
    return _peers.store.get_live_nodes(sorted(set(numbers)))


def _at_exit() -> None:
    """A process that fails does not wait for the others: they wait for it."""
    if _peers is not None and getattr(sys, "last_value", None) is not None and not hasattr(sys, "ps1"):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
    shutdown()


def is_initialized() -> bool:
    """Whether this process is between `initialize` and `shutdown`."""
    return _peers is not None


def peers() -> Peers | None:
    """This process among the others, after `initialize`."""
    return _peers


# --- beside the devices ------------------------------------------------------------------------------


def exchange(peers: Peers, name: str, text: str, numbers: Iterable[int], timeout: float) -> dict[int, str]:
    """What each of some processes says under a name that is used once. Raises: RuntimeError if one says nothing in time."""
    peers.store.key_value_set(f"jaxlite/{name}/{peers.number}", text)
    deadline = time.monotonic() + timeout
    said: dict[int, str] = {}
    for number in numbers:
        while number not in said:
            try:
                said[number] = peers.store.blocking_key_value_get(f"jaxlite/{name}/{number}", 1000)  # and look for Ctrl-C
            except xla.XlaRuntimeError as error:
                if time.monotonic() > deadline or "DEADLINE_EXCEEDED" not in str(error):
                    raise RuntimeError(f"process {number} has not reached {name!r} within {timeout:g} s of process "
                                       f"{peers.number} (coordinator at {peers.address}): {error}") from None
    return said


class Exchange:
    """What all processes say to each other, time after time. Called with a text, it gives everybody's by process.

    Raises: RuntimeError if one says nothing within `timeout` seconds.
    """

    __slots__ = ("_timeout", "_count")

    def __init__(self, timeout: float):
        self._timeout, self._count = timeout, 0

    def __call__(self, text: str) -> dict[int, str]:
        peers = _peers
        if peers is None:
            return {0: text}
        self._count += 1
        said = exchange(peers, f"meeting {self._count}", text, range(peers.size), self._timeout)
        if self._count > 1:  # all have come here, so all have read what was said before
            peers.store.key_value_delete(f"jaxlite/meeting {self._count - 1}/{peers.number}")
        return said


def check_connected(devices: Sequence[Any]) -> None:
    """Raises: RuntimeError if a program over some devices would wait for processes that cannot be reached."""
    if _peers is not None and _peers.collectives is None and devices[0].platform == "cpu" and len(
            {device.process_index for device in devices}) > 1:
        raise RuntimeError("the program is spread over the processors of several processes, which have no way to exchange "
                           "data: jax_cpu_collectives_implementation is 'none'; 'gloo' needs nothing but a network")


@functools.cache
def preemption() -> Any:
    """Notices that a process receives SIGTERM, and informs the others. Raises: RuntimeError if this process is alone."""
    if _peers is None:
        raise RuntimeError("Preemption sync manager has not been initialized.")
    return xla.preemption_manager(_peers.store)


def compare_programs(name: str, devices: Sequence[Any], fingerprint: str) -> None:
    """Check that the processes which own some devices are about to run the same program.

    Raises: RuntimeError if they are not, or one of them does not come.
    """
    numbers = sorted({device.process_index for device in devices})
    if _peers is None or len(numbers) < 2:
        return
    group = ".".join(map(str, sorted(device.id for device in devices)))
    count = _counts[group] = _counts.get(group, 0) + 1
    said = exchange(_peers, f"program {count} on devices {group}", f"{fingerprint} {name}", numbers, _PROGRAM)
    if len({each.partition(" ")[0] for each in said.values()}) > 1:
        shown = "\n".join(f"  process {number}: {each.partition(' ')[2]}, fingerprint {each.partition(' ')[0][:12]}"
                          for number, each in said.items())
        raise RuntimeError(f"the processes do not run the same program; all must run the same ones in the same order. The "
                           f"{count}. on these devices is\n{shown}")
