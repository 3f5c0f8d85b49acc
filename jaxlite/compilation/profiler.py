"""Profiles for Perfetto, XProf and TensorBoard, profiles of memory, and a summary as text.

`summary()` is not in JAX: it prints where the time of a `with` block was spent (`jaxlite.compilation.profile_summary`).
"""

from __future__ import annotations

import functools
import glob
import gzip
import http.server
import os
import socketserver
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jaxlite.compilation.profile_summary import Summary, summary
from jaxlite.core import source
from lowering import platforms, xla

__all__ = ["ProfileData", "ProfileEvent", "ProfileOptions", "ProfilePlane", "StepTraceAnnotation", "Summary", "TraceAnnotation",
           "annotate_function", "device_memory_profile", "register_subprocess", "save_device_memory_profile", "start_server",
           "start_trace", "stop_server", "stop_trace", "summary", "trace"]

_profiling = xla.load_profiler()
ProfileOptions: Any = _profiling.ProfileOptions
_data = xla.load_profile_data()
ProfileData: Any = _data.ProfileData
ProfileEvent: Any = _data.ProfileEvent
ProfilePlane: Any = _data.ProfilePlane
register_subprocess: Any = _profiling.register_subprocess


class _Running:
    """The profile that is under way, if there is one, and the server."""

    lock = threading.Lock()
    session: Any = None
    folder = ""
    perfetto_link = perfetto_trace = False
    server: Any = None


def start_trace(log_dir: os.PathLike[str] | str, create_perfetto_link: bool = False, create_perfetto_trace: bool = False,
                profiler_options: Any = None) -> None:
    """Start to profile Python, the runtime and the devices.

    Args:
      log_dir: the folder for the profile, written when it stops: an `.xplane.pb` for XProf and TensorBoard, a
        `.trace.json.gz` that ui.perfetto.dev opens.
      create_perfetto_link: when it stops, print a link that opens the trace in Perfetto's page, and wait until it did.
      create_perfetto_trace: also write it as `perfetto_trace.json.gz`.
      profiler_options: a `ProfileOptions`: `python_tracer_level` 0 leaves out Python's calls, which are most of what a
        trace costs.
    Raises: RuntimeError if a profile is running already.
    """
    with _Running.lock:
        if _Running.session is not None:
            raise RuntimeError("Profile has already been started. Only one profile may be run at a time.")
        platforms.devices()  # accelerators register their own part of the profiler
        _Running.session = _profiling.ProfilerSession(profiler_options or ProfileOptions())
        _Running.folder = os.fspath(log_dir)
        _Running.perfetto_link, _Running.perfetto_trace = create_perfetto_link, create_perfetto_trace


def stop_trace() -> None:
    """Stop recording and write the profile. Raises: RuntimeError if none is running."""
    with _Running.lock:
        if _Running.session is None:
            raise RuntimeError("No profile started")
        session, _Running.session = _Running.session, None
        folder = _Running.folder
        session.stop_and_export(folder)
        if _Running.perfetto_link or _Running.perfetto_trace:
            file = _perfetto_file(folder)
            if _Running.perfetto_link:
                _serve_to_perfetto(file)


@contextmanager
def trace(log_dir: os.PathLike[str] | str, create_perfetto_link: bool = False, create_perfetto_trace: bool = False,
          profiler_options: Any = None) -> Iterator[None]:
    """Profile a `with` block; see `start_trace`.

    >>> import tempfile, pathlib, jaxlite, jaxlite.numpy as jnp
    >>> folder = tempfile.mkdtemp()
    >>> with jaxlite.profiler.trace(folder):
    ...     _ = jnp.ones(3).sum().block_until_ready()
    >>> sorted("".join(file.suffixes[-2:]) for file in pathlib.Path(folder).rglob("*.*") if file.is_file())
    ['.json.gz', '.xplane.pb']
    """
    start_trace(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options)
    try:
        yield
    finally:
        stop_trace()


def _perfetto_file(folder: str) -> str:
    """The latest trace of a folder, copied under the name that tools for Perfetto expect."""
    latest = max(glob.glob(os.path.join(folder, "plugins", "profile", "*", "*.trace.json.gz")), key=os.path.getmtime)
    target = os.path.join(os.path.dirname(latest), "perfetto_trace.json.gz")
    with open(latest, "rb") as read, open(target, "wb") as write:
        write.write(read.read())
    return target


def _serve_to_perfetto(file: str) -> None:
    """Offer the trace to Perfetto's page, which is opened by a link, until it has come for it."""
    served = threading.Event()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=os.path.dirname(file))

        def end_headers(self) -> None:
            self.send_header("Access-Control-Allow-Origin", "https://ui.perfetto.dev")
            super().end_headers()

        def do_GET(self) -> None:
            super().do_GET()
            served.set()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    socketserver.TCPServer.allow_reuse_address = True
    with socketserver.TCPServer(("127.0.0.1", 9001), Handler) as server:  # the port that Perfetto's page may read from
        print("Open URL in browser: https://ui.perfetto.dev/#!/?url=http://127.0.0.1:9001/" + os.path.basename(file))
        while not served.is_set():
            server.handle_request()


# --- names in the trace ------------------------------------------------------------------------------


class TraceAnnotation(_profiling.TraceMe):  # type: ignore[misc, name-defined]
    """A name, with values, for what happens in a `with` block, in profiles; it costs less than a microsecond.

    >>> import jaxlite
    >>> with jaxlite.profiler.TraceAnnotation("read data", file="a.txt"):
    ...     pass
    """


class StepTraceAnnotation(TraceAnnotation):
    """A step of training, in profiles: `with StepTraceAnnotation("train", step_num=step): ...`."""

    def __init__(self, name: str, **kwargs: Any):
        super().__init__(name, _r=1, **kwargs)


def annotate_function(func: Callable[..., Any], name: str | None = None, **decorator_kwargs: Any) -> Callable[..., Any]:
    """A function whose calls have a name in profiles, by default the function's name."""
    name = name or source.function_name(func)

    @functools.wraps(func)
    def annotated(*args: Any, **kwargs: Any) -> Any:
        with TraceAnnotation(name, **decorator_kwargs):
            return func(*args, **kwargs)

    return annotated


# --- a server, and memory ----------------------------------------------------------------------------


def start_server(port: int, requires_backend: bool = True) -> Any:
    """Start a server that XProf and TensorBoard take profiles from while the program runs. Keep what it returns.

    Raises: ValueError if one is running.
    """
    if _Running.server is not None:
        raise ValueError("Only one profiler server can be active at a time.")
    if requires_backend:
        platforms.devices()
    _Running.server = _profiling.start_server(port)
    return _Running.server


def stop_server() -> None:
    """Stop the server. Raises: ValueError if none is running."""
    if _Running.server is None:
        raise ValueError("No active profiler server.")
    _Running.server = None  # it ends with its last reference


def device_memory_profile(backend: str | None = None) -> bytes:
    """The live memory by source line: a gzipped profile for `pprof`.

    Args:
      backend: the platform; by default the one in use.
    """
    return gzip.compress(platforms.client(backend).heap_profile())


def save_device_memory_profile(filename: os.PathLike[str] | str, backend: str | None = None) -> None:
    """Write `device_memory_profile()` to a file: `pprof -web FILE`, or `pprof -top FILE`, shows it."""
    profile = device_memory_profile(backend)
    folder = os.path.dirname(os.path.abspath(filename))
    handle, temporary = tempfile.mkstemp(dir=folder)
    with os.fdopen(handle, "wb") as file:
        file.write(profile)
    os.replace(temporary, filename)
