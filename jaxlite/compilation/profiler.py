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

__all__ = ["ProfileData", "ProfileEvent", "ProfileLine", "ProfileOptions", "ProfilePlane", "ProfileSession",
           "StepTraceAnnotation", "Summary", "TraceAnnotation", "annotate_function", "device_memory_profile",
           "export_profile_data", "register_subprocess", "save_device_memory_profile", "start_server", "start_trace",
           "stop_server", "stop_trace", "summary", "trace"]

_profiling = xla.load_profiler()
ProfileOptions: Any = _profiling.ProfileOptions
_data = xla.load_profile_data()
ProfileData: Any = _data.ProfileData
ProfileEvent: Any = _data.ProfileEvent
ProfileLine: Any = _data.ProfileLine
ProfilePlane: Any = _data.ProfilePlane
register_subprocess: Any = _profiling.register_subprocess
_HAS_DATA = hasattr(_profiling, "export_to_xprof")  # older jaxlibs write no `ProfileData`


class _Running:
    """The profile that is under way, if there is one, and the server."""

    lock = threading.Lock()
    session: ProfileSession | None = None
    server: Any = None


class ProfileSession:
    """A profile of Python, the runtime and the devices, from `start` to `stop`, or of a `with` block; only one runs at a time.

    With jaxlib 0.12 and newer, what was recorded is then its `profile_data`.

    Args:
      log_dir: the folder to write the profile to when it stops, as `trace` does; by default it is not written.
      create_perfetto_link, create_perfetto_trace, profiler_options: as for `start_trace`.

    >>> import jaxlite.numpy as jnp
    >>> with ProfileSession() as session:
    ...     _ = jnp.ones(3).sum().block_until_ready()
    >>> session.is_running
    False
    """

    def __init__(self, log_dir: os.PathLike[str] | str | None = None, create_perfetto_link: bool = False,
                 create_perfetto_trace: bool = False, profiler_options: Any = None):
        self.log_dir, self.profiler_options = log_dir, profiler_options
        self.create_perfetto_link, self.create_perfetto_trace = create_perfetto_link, create_perfetto_trace
        self._recorder: Any = None
        self._data: Any = None

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._recorder is not None

    @property
    def profile_data(self) -> Any:
        """The `ProfileData` of a profile that was stopped; None before."""
        return self._data

    def start(self) -> ProfileSession:
        """Start to record. Raises: RuntimeError if a profile is running already."""
        with _Running.lock:
            if _Running.session is not None:
                raise RuntimeError("Profile has already been started. Only one profile may be run at a time.")
            platforms.devices()  # accelerators register their own part of the profiler
            self._recorder = _profiling.ProfilerSession(self.profiler_options or ProfileOptions())
            self._data, _Running.session = None, self
        return self

    def stop(self) -> Any:
        """Stop, and write the profile if there is a folder; gives `profile_data`. Raises: RuntimeError if it does not run."""
        with _Running.lock:
            if self._recorder is None:
                raise RuntimeError("No profile started")
            recorder, self._recorder, _Running.session = self._recorder, None, None
        if _HAS_DATA:
            self._data = recorder.stop_and_get_profile_data()
            if self.log_dir is not None:
                self.export_profile_data(self.log_dir, self.create_perfetto_link, self.create_perfetto_trace)
        elif self.log_dir is not None:
            recorder.stop_and_export(os.fspath(self.log_dir))
            _for_perfetto(self.log_dir, self.create_perfetto_link, self.create_perfetto_trace)
        return self._data

    def export_profile_data(self, log_dir: os.PathLike[str] | str, create_perfetto_link: bool = False,
                            create_perfetto_trace: bool = False, session_id: str | None = None) -> None:
        """Write it to a folder; see the function `export_profile_data`."""
        export_profile_data(self, log_dir, create_perfetto_link, create_perfetto_trace, session_id)

    def __enter__(self) -> ProfileSession:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        if self.is_running:
            self.stop()


def export_profile_data(profile_data: Any, log_dir: os.PathLike[str] | str, create_perfetto_link: bool = False,
                        create_perfetto_trace: bool = False, session_id: str | None = None) -> None:
    """Write a profile as `start_trace` describes it.

    Args:
      profile_data: a `ProfileData`, or a `ProfileSession` that was stopped.
      session_id: the name of its folder, under `plugins/profile`; by default the time.
    Raises: RuntimeError if the session is running or was never started.
    """
    if isinstance(profile_data, ProfileSession):
        if profile_data.is_running:
            raise RuntimeError("Cannot export a ProfileSession while it is running. Call stop() first.")
        profile_data = profile_data.profile_data
        if profile_data is None:
            raise RuntimeError("No profile data to export. Ensure the session has completed.")
    elif not isinstance(profile_data, ProfileData):
        raise TypeError(f"Expected ProfileData or ProfileSession, got {type(profile_data).__name__}")
    _profiling.export_to_xprof(profile_data, os.fspath(log_dir), session_id or "")
    _for_perfetto(log_dir, create_perfetto_link, create_perfetto_trace)


def start_trace(log_dir: os.PathLike[str] | str, create_perfetto_link: bool = False, create_perfetto_trace: bool = False,
                profiler_options: Any = None) -> ProfileSession:
    """Start to profile Python, the runtime and the devices; gives the session.

    Args:
      log_dir: the folder for the profile, written when it stops: an `.xplane.pb` for XProf and TensorBoard, a
        `.trace.json.gz` that ui.perfetto.dev opens.
      create_perfetto_link: when it stops, print a link that opens the trace in Perfetto's page, and wait until it did.
      create_perfetto_trace: also write it as `perfetto_trace.json.gz`.
      profiler_options: a `ProfileOptions`: `python_tracer_level` 0 leaves out Python's calls, which are most of what a
        trace costs.
    Raises: RuntimeError if a profile is running already.
    """
    return ProfileSession(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options).start()


def stop_trace() -> Any:
    """Stop recording and write the profile; gives its `ProfileData`, with jaxlib 0.12 and newer, else None.

    Raises: RuntimeError if none is running.
    """
    session = _Running.session
    if session is None:
        raise RuntimeError("No profile started")
    return session.stop()


@contextmanager
def trace(log_dir: os.PathLike[str] | str | None = None, create_perfetto_link: bool = False,
          create_perfetto_trace: bool = False, profiler_options: Any = None) -> Iterator[ProfileSession]:
    """Profile a `with` block; see `start_trace`. The session has the profile after the block, also without a folder.

    >>> import tempfile, pathlib, jaxlite, jaxlite.numpy as jnp
    >>> folder = tempfile.mkdtemp()
    >>> with jaxlite.profiler.trace(folder):
    ...     _ = jnp.ones(3).sum().block_until_ready()
    >>> sorted("".join(file.suffixes[-2:]) for file in pathlib.Path(folder).rglob("*.*") if file.is_file())
    ['.json.gz', '.xplane.pb']
    """
    with ProfileSession(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options) as session:
        yield session


def _for_perfetto(folder: os.PathLike[str] | str, link: bool, file: bool) -> None:
    """Give Perfetto what was just written, by a link or as a file."""
    if link or file:
        written = _perfetto_file(os.fspath(folder))
        if link:
            _serve_to_perfetto(written)


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
