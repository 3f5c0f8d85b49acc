"""Profiles under JAX's names, and `summary`, which JAX has not: where the time of a `with` block went."""

from jaxlite.compilation.profiler import (
    ProfileData,
    ProfileEvent,
    ProfileOptions,
    ProfilePlane,
    StepTraceAnnotation,
    Summary,
    TraceAnnotation,
    annotate_function,
    device_memory_profile,
    register_subprocess,
    save_device_memory_profile,
    start_server,
    start_trace,
    stop_server,
    stop_trace,
    summary,
    trace,
)
from lowering import xla as _xla

__all__ = [
    "ProfileData", "ProfileEvent", "ProfileOptions", "ProfilePlane", "StepTraceAnnotation", "Summary", "TraceAnnotation",
    "annotate_function", "device_memory_profile", "register_subprocess", "save_device_memory_profile", "start_server",
    "start_trace", "stop_server", "stop_trace", "summary", "trace",
]

if _xla.VERSION >= (0, 12):  # as JAX of the same jaxlib
    from jaxlite.compilation.profiler import ProfileLine, ProfileSession, export_profile_data

    __all__ += ["ProfileLine", "ProfileSession", "export_profile_data"]
