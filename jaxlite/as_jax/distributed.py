"""`jax._src.distributed.global_state`, for libraries that read it."""

from __future__ import annotations

from typing import Any

from jaxlite.devices import processes


class State:
    """This process among those of the program. Alone, it is process 0 of one, and there is no client."""

    @property
    def process_id(self) -> int:
        peers = processes.peers()
        return 0 if peers is None else peers.number

    @property
    def num_processes(self) -> int:
        peers = processes.peers()
        return 1 if peers is None else peers.size

    @property
    def coordinator_address(self) -> str | None:
        """Where process 0 is to be reached, or None."""
        peers = processes.peers()
        return None if peers is None else peers.address

    @property
    def client(self) -> Any:
        """The client of XLA's distributed runtime, or None."""
        peers = processes.peers()
        return None if peers is None else peers.store

    @property
    def service(self) -> Any:
        """Its service, in process 0."""
        peers = processes.peers()
        return None if peers is None else peers.service


global_state = State()
