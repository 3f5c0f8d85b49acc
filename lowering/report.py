"""Log lines and dumps of each compile.

`compiled` is called once per compile. It writes only what `configure` requests, and a failure to write causes at most one
warning.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from lowering import xla

MODES = ("jaxpr", "stablehlo", "hlo", "page")
_settings: dict[str, Callable[..., Any]] = {
    "log": lambda: False,
    "folder": lambda: None,
    "modes": lambda: ",".join(MODES),
    "caller": lambda: "",
    "is_hidden": lambda file: False,
    "page": lambda *args: "",
}
_complaints: set[str] = set()
listeners: list[Callable[[str, dict[str, float], str], None]] = []  # hear of each compile: name, seconds of each stage, cache


def configure(**settings: Callable[..., Any]) -> None:
    """Say where the wishes come from, as functions: `log` whether to log a line, `folder` where to write files or
    None, `modes` which ones (of `MODES`, comma-separated, or "all"), `caller` the user's line of the moment,
    `is_hidden` which source files not to name, `page` what makes the page of a compile from its texts and figures."""
    _settings.update(settings)


def compiled(lowered: Any, closed: Any, loaded: Any, trace_seconds: float, compile_seconds: float, cache: str) -> None:
    """Report one compile.

    Args: the lowered module, the closed jaxpr it was made from, XLA's executable, the times of two stages (that of
    the third is in `lowered`), and what the persistent cache said: "hit", "miss", or "off" if it was not asked.
    """
    folder = _settings["folder"]()
    if folder is None and not listeners and not _settings["log"]():
        return
    seconds = {"trace": trace_seconds, "lower": lowered.seconds, "compile": compile_seconds}
    for listener in listeners:
        listener(lowered.name, seconds, cache)
    if _settings["log"]():
        log(lowered.name, closed, seconds, cache)
    if folder is not None and folder not in _complaints:
        try:
            _dump(os.fspath(folder), lowered, closed, loaded, seconds, cache)
        except OSError as error:
            complain(folder, f"cannot write to the folder of the IR dump, {folder}: {error.strerror or error}. "
                              "Nothing more is dumped there.")


logger_name = "jaxlite"  # another one where this package has another name


def logger() -> Any:
    """Where logs and dumps of compiles are written."""
    import logging  # loaded only if used

    return logging.getLogger(logger_name)


def complain(subject: str, message: str) -> None:
    """Warn, once in the life of the process for each subject."""
    if subject not in _complaints:
        _complaints.add(subject)
        logger().warning(message)


# --- the log line ------------------------------------------------------------------------------------


def _log_line(name: str, closed: Any, seconds: dict[str, float], cache: str) -> None:
    types = [var.aval.str_short(short_dtypes=True) for var in closed.jaxpr.invars]
    if len(types) > 20:
        types[20:] = [f"... {len(types) - 20} more"]
    logger().warning(f"compiled {name} ({', '.join(types)}) in {sum(seconds.values()):.3f} s: {stage_times(seconds, cache)}")


log: Callable[[str, Any, dict[str, float], str], None] = _log_line  # another one where this package has another name


def stage_times(seconds: dict[str, float], cache: str = "off") -> str:
    """`trace 1.2 ms, lower 3 ms, compile 4.5 s (cache miss)`."""
    times = ", ".join(f"{stage} {_duration(time)}" for stage, time in seconds.items())
    return times if cache == "off" else f"{times} (cache {cache})"


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


# --- the files ---------------------------------------------------------------------------------------


def _dump(folder: str, lowered: Any, closed: Any, loaded: Any, seconds: dict[str, float], cache: str) -> None:
    import json

    modes = _modes(_settings["modes"]())
    facts = _facts(lowered, closed, loaded, seconds) | {"cache": cache}
    texts = {}
    if "jaxpr" in modes:
        texts["jaxpr.txt"] = f"{closed}\n"
    stablehlo = lowered.text(debug_info=True) if modes & {"stablehlo", "page"} else ""
    hlo = "\n".join(module.to_string() for module in loaded.hlo_modules()) if modes & {"hlo", "page"} else ""
    if "stablehlo" in modes:
        texts["stablehlo.mlir"] = stablehlo
    if "hlo" in modes:
        texts["hlo.txt"] = hlo
    if "page" in modes:
        texts["page.html"] = _settings["page"](lowered.name, closed.jaxpr, stablehlo, hlo, seconds, facts["memory"],
                                               facts["cost"], str(loaded.local_devices()[0]))
    os.makedirs(folder, exist_ok=True)
    with _next_number(folder) as number:
        stem = f"{number:04d}_{_file_name(lowered.name)}"
        facts["files"] = [f"{stem}.{ending}" for ending in texts]
        texts["compile.json"] = json.dumps(facts, indent=2) + "\n"
        for ending, text in texts.items():
            with open(os.path.join(folder, f"{stem}.{ending}"), "w", encoding="utf-8") as file:
                file.write(text)
        _index(folder, number, facts)


def _index(folder: str, number: int, facts: dict[str, Any]) -> None:
    """Add a row to the folder's `index.html`; tables need no end."""
    import html

    path = os.path.join(folder, "index.html")
    start = "" if os.path.exists(path) else _INDEX
    seconds = facts["seconds"]
    stem = os.path.commonprefix(facts["files"] or [f"{number:04d}_{_file_name(facts['function'])}."])
    links = " ".join(f'<a href="{html.escape(name)}">{html.escape(name.rpartition(".")[0].rpartition(".")[2] or name)}</a>'
                     for name in [*facts["files"], f"{stem.partition('.')[0]}.compile.json"])
    cells = [str(number), facts["function"], facts["location"], str(facts["equations"]),
             *(_duration(seconds[stage]) for stage in ("trace", "lower", "compile") if stage in seconds), facts["cache"]]
    with open(path, "a", encoding="utf-8") as file:
        file.write(start + "<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in cells) + f"<td>{links}\n")


_INDEX = """<!doctype html><meta charset="utf-8"><title>compiles</title><style>
:root{color-scheme:light dark}body{font:13px/1.5 system-ui,sans-serif;margin:1em}table{border-collapse:collapse}
td,th{padding:2px 10px;text-align:left;border-bottom:1px solid color-mix(in srgb,currentColor 20%,transparent)}
td:nth-child(n+4):nth-child(-n+7){text-align:right;font-variant-numeric:tabular-nums}</style>
<h1>Compiles, in their order</h1>
<table><tr><th>#<th>function<th>defined at<th>equations<th>trace<th>lower<th>compile<th>cache<th>files
"""


def _modes(text: str | None) -> set[str]:
    asked = {mode.strip() for mode in (text or "").split(",")} - {""}
    unknown = asked - {*MODES, "all"}
    if unknown:
        complain(f"modes {text}", f"unknown in the modes of the IR dump: {', '.join(sorted(unknown))}; "
                                   f"known are {', '.join(MODES)}, all")
    return set(MODES) if "all" in asked else asked


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name).strip("_.")[:80] or "unnamed"


@contextlib.contextmanager
def _next_number(folder: str) -> Iterator[int]:
    """The first number that no file in the folder has, reserved for this thread and process."""
    with open(os.path.join(folder, ".lock"), "a") as lock:
        with contextlib.suppress(ImportError, OSError):  # a system or a file system without locks
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        numbers = (re.match(r"(\d+)_", name) for name in os.listdir(folder))
        yield 1 + max((int(found[1]) for found in numbers if found), default=0)


def _facts(lowered: Any, closed: Any, loaded: Any, seconds: dict[str, float]) -> dict[str, Any]:
    jaxpr = closed.jaxpr
    debug = jaxpr.debug_info
    names = list(debug.arg_names or ()) if debug is not None else []
    location = debug.func_src_info.partition(" at ")[2] if debug is not None else ""
    names += [f"argument {index}" for index in range(len(names), len(jaxpr.invars))]
    kept = lowered.kept[len(jaxpr.constvars):]
    parameters = [index for index, keep in enumerate(lowered.kept) if keep]
    donated = {parameters[index] - len(jaxpr.constvars) for index in lowered.donated}
    return {
        "function": lowered.name,
        "location": "" if _settings["is_hidden"](location) else location,
        "called_from": _settings["caller"](),
        "arguments": [
            {"name": name, **_type(var.aval), "used": keep, "donated": index in donated}
            for index, (name, var, keep) in enumerate(zip(names, jaxpr.invars, kept, strict=True))
        ],
        "constants": [_type(var.aval) for var in jaxpr.constvars],
        "results": [_type(atom.aval) for atom in jaxpr.outvars],
        "equations": len(jaxpr.eqns),
        "fusion_barriers": lowered.barriers,
        "loops_unrolled": lowered.is_unrolled,
        "seconds": seconds,
        "cost": _numbers(loaded.cost_analysis),
        "memory": _numbers(loaded.get_compiled_memory_stats),
        "platform": lowered.platform,
        "jaxlib": xla.VERSION_TEXT,
        "process": os.getpid(),
    }


def _type(aval: Any) -> dict[str, Any]:
    return {"type": aval.str_short(short_dtypes=True), "weak_type": getattr(aval, "weak_type", False)}


def _numbers(analysis: Callable[[], Any]) -> dict[str, Any]:
    """XLA's cost analysis of a program, if the platform has one: names and finite numbers."""
    try:
        found = analysis()
    except xla.XlaRuntimeError:
        return {}
    if not isinstance(found, dict):
        found = {name: getattr(found, name) for name in dir(found) if name.endswith("_in_bytes")}
    return {name: value for name, value in found.items() if abs(value) < float("inf")}
