"""The roll call: the processes of a program find each other before XLA's distributed runtime starts.

This runtime ends a process whose wait times out, without an exception. Therefore all processes must be present before it
starts. Process 0 listens at the coordinator's address; each other process connects, and sends its number and the number of
processes that it expects. When all have connected and answer, process 0 starts the runtime's service at the same address
and tells them to continue. A missing process, a duplicate number, or different expectations raise RuntimeError in all
connected processes, which names the processes.

A message is one line of JSON. Process 0 answers an accepted process at once. If a connection ends without an answer, the
other side is something else, for example the service of an earlier run that is about to end; the process connects again.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_ANSWER = 5.0  # seconds for a peer that has connected to say a line
_GRACE = 5.0  # seconds that the others wait longer than process 0, which knows who is missing
_PAUSE = 0.1


def host_and_port(address: str, name: str = "coordinator_address") -> tuple[str, int]:
    """Both parts of 'host:port' ('[::1]:port' for IPv6). Raises: ValueError if it is not that, TypeError if it is not a str."""
    if not isinstance(address, str):
        raise TypeError(f"{name} must be a string, 'host:port', got {address!r}")
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{name} must be 'host:port', got {address!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _say(peer: socket.socket, **message: Any) -> None:
    peer.sendall(json.dumps(message).encode() + b"\n")


def _hear(peer: socket.socket, timeout: float) -> dict[str, Any]:
    """The next message; nothing from what is not a peer of ours, or is gone. Raises: TimeoutError"""
    peer.settimeout(max(timeout, 0.01))
    line = b""
    while not line.endswith(b"\n"):
        byte = peer.recv(1)  # what follows is the next message
        if not byte or len(line) > 1000:
            return {}
        line += byte
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _is_gone(peer: socket.socket) -> bool:
    peer.settimeout(0)
    try:
        return not peer.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _is_ready(peer: socket.socket) -> bool:
    try:
        _say(peer, ready=True)
        return bool(_hear(peer, _ANSWER).get("yes"))
    except OSError:
        return False


def _named(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
    return f"process {shown} has" if len(numbers) == 1 else f"processes {shown} have"


def call(address: str, bind_address: str, count: int, timeout: float, start: Callable[[], Any]) -> Any:
    """Process 0: wait until all have come, start the service, let them go.

    Args:
      address: the coordinator's, as all processes know it; `bind_address` where to listen.
      count: how many processes there are.
      timeout: in seconds.
      start: starts the service.
    Returns: what `start` does.
    Raises: RuntimeError if one is missing, if two have one number, or if one expects another number of processes.
    """
    host, port = host_and_port(bind_address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    present: dict[int, tuple[socket.socket, str]] = {}
    deadline = time.monotonic() + timeout
    try:
        with socket.socket(family, socket.SOCK_STREAM) as door:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                door.bind((host, port))
                door.listen(min(count + 16, 4096))
            except OSError as error:
                raise RuntimeError(f"process 0 cannot start the coordinator at {bind_address}: {error.strerror or error}. "
                                   "Another program, or another process 0, may be there: choose another port") from None
            try:
                while len(present) < count - 1:
                    _admit(door, address, count, present, deadline, timeout)
                    if len(present) == count - 1:
                        for number in [number for number, (peer, _) in present.items() if not _is_ready(peer)]:
                            present.pop(number)[0].close()  # it has ended; it may be started again
            except BaseException:
                _admit_all_at(door, present)
                raise
        service = start()
        for peer, _ in present.values():
            _say(peer, go=True)
        return service
    except BaseException as error:
        for peer, _ in present.values():
            with suppress(OSError):
                _say(peer, error=f"{error}" or type(error).__name__)
        raise
    finally:
        for peer, _ in present.values():
            peer.close()


def _admit(door: socket.socket, address: str, count: int, present: dict[int, tuple[socket.socket, str]], deadline: float,
           timeout: float) -> None:
    """Let the next one in."""
    left = deadline - time.monotonic()
    missing = [number for number in range(1, count) if number not in present]
    complaint = (f"{_named(missing)} not come to the coordinator at {address} (process 0) within {timeout:g} s; {count} are "
                 "expected")
    if left <= 0:
        raise RuntimeError(complaint)
    door.settimeout(left)
    try:
        peer, (where, *_) = door.accept()
    except TimeoutError:
        raise RuntimeError(complaint) from None
    try:
        said = _hear(peer, min(_ANSWER, left))
    except OSError:
        said = {}
    number, expected = said.get("process"), said.get("of")
    if not (isinstance(number, int) and isinstance(expected, int) and 0 < number < expected):
        peer.close()
        return
    with suppress(OSError):
        _say(peer, hello=True)
    twin = present.get(number)
    present[number if twin is None else -1] = peer, where  # who hears of what goes wrong
    if expected != count:
        raise RuntimeError(f"process {number}, from {where}, expects {expected} processes, the coordinator at {address} "
                           f"(process 0) {count}")
    if twin is not None:
        if not _is_gone(twin[0]):
            raise RuntimeError(f"two processes have the number {number}: one from {twin[1]}, one from {where}; the coordinator "
                               f"at {address} (process 0) expects {count} processes, numbered from 0")
        twin[0].close()
        present[number] = present.pop(-1)


def _admit_all_at(door: socket.socket, present: dict[int, tuple[socket.socket, str]]) -> None:
    """Let waiting processes connect, so that they get the error."""
    door.settimeout(0)
    with suppress(OSError):
        while True:
            peer, (where, *_) = door.accept()
            present[-2 - len(present)] = peer, where
            _hear(peer, _PAUSE)  # what is closed with something unread tells nothing


def answer(address: str, number: int, count: int, timeout: float) -> None:
    """Another process: come to process 0, and wait until it lets all go.

    Raises: RuntimeError if no process listens there, or with its error.
    """
    start = time.monotonic()
    me = f"process {number} of {count}"
    while True:
        with _connect(address, me, start + timeout, timeout) as peer:
            if _join(peer, address, me, number, count, start + timeout + _GRACE, timeout):
                return
        if time.monotonic() >= start + timeout:
            raise RuntimeError(f"{me} found no coordinator at {address} within {timeout:g} s: what listens there is another "
                               "program, which needs another port, or this one, which has begun with all its processes")
        time.sleep(_PAUSE)


def _join(peer: socket.socket, address: str, me: str, number: int, count: int, deadline: float, timeout: float) -> bool:
    """Wait for process 0 to let this one go; False if it is not process 0 that is there."""
    welcome = False
    ended = f"the coordinator at {address} (process 0) ended while {me} waited for the others"
    try:
        _say(peer, process=number, of=count)
        while True:
            said = _hear(peer, deadline - time.monotonic())
            if "hello" in said:
                welcome = True
            elif "ready" in said:
                _say(peer, yes=True)
            elif "go" in said:
                return True
            elif "error" in said:
                raise RuntimeError(f"{me} could not join: {said['error']}")
            elif not welcome:
                return False
            else:
                raise RuntimeError(ended)
    except TimeoutError:
        raise RuntimeError(f"{me} has waited for {timeout:g} s for the coordinator at {address} (process 0) to let it "
                           "go on: what listens there may be another program") from None
    except ConnectionError as error:
        if not welcome:
            return False
        raise RuntimeError(f"{ended}: {error.strerror}") from None


def _connect(address: str, me: str, deadline: float, timeout: float) -> socket.socket:
    while True:
        try:
            return socket.create_connection(host_and_port(address), max(deadline - time.monotonic(), _PAUSE))
        except OSError as error:
            if time.monotonic() + _PAUSE >= deadline:
                raise RuntimeError(f"{me} found no coordinator at {address} within {timeout:g} s: {error.strerror or error}. "
                                   "Process 0 starts it: is it running, and was it given the same address?") from None
        time.sleep(_PAUSE)
