"""Profiles: their files, names in them, memory, and the summary."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from lowering import hlo_text


def test_a_trace_has_names_and_operations(tmp_path):
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    f = jax.jit(lambda x: jnp.sin(x @ x))
    x = np.ones((200, 200), np.float32)
    f(x).block_until_ready()
    annotated = jax.profiler.annotate_function(lambda: f(x).block_until_ready(), name="the call")
    with jax.profiler.trace(tmp_path, create_perfetto_trace=True, profiler_options=options):
        with pytest.raises(RuntimeError, match="Profile has already been started"):
            jax.profiler.start_trace(tmp_path)
        with jax.profiler.StepTraceAnnotation("train", step_num=3):
            annotated()
    with pytest.raises(RuntimeError, match="No profile started"):
        jax.profiler.stop_trace()
    (trace,) = tmp_path.glob("plugins/profile/*/perfetto_trace.json.gz")
    names = {event.get("name") for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]}
    assert {"train", "the call"} <= names
    (space,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    data = jax.profiler.ProfileData.from_serialized_xspace(space.read_bytes())
    events = {event.name: dict(event.stats) for plane in data.planes for line in plane.lines for event in line.events}
    assert events["train"]["step_num"] == 3
    assert any("hlo_op" in stats for stats in events.values())


@pytest.mark.skipif(not hasattr(jax.profiler, "ProfileSession"), reason="JAX of this jaxlib has none")
def test_a_session_keeps_its_profile(tmp_path):
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    session = jax.profiler.ProfileSession(profiler_options=options)
    with pytest.raises(RuntimeError, match="Ensure the session has completed"):
        session.export_profile_data(tmp_path)
    with session:
        with pytest.raises(RuntimeError, match="already been started"):
            jax.profiler.ProfileSession().start()
        with pytest.raises(RuntimeError, match="No profile started"):
            jax.profiler.ProfileSession().stop()
        with pytest.raises(RuntimeError, match="while it is running"):
            jax.profiler.export_profile_data(session, tmp_path)
        with jax.profiler.TraceAnnotation("by name"):
            pass
        assert session.is_running and session.profile_data is None
        found = jax.profiler.stop_trace()
    assert not session.is_running and session.profile_data is found
    lines = [line for plane in found.planes for line in plane.lines]
    assert all(isinstance(line, jax.profiler.ProfileLine) for line in lines)
    assert "by name" in {event.name for line in lines for event in line.events}
    assert not any(tmp_path.iterdir())
    jax.profiler.export_profile_data(found, tmp_path, create_perfetto_trace=True, session_id="mine")
    assert b"by name" in next(tmp_path.glob("plugins/profile/mine/*.xplane.pb")).read_bytes()
    assert (tmp_path / "plugins/profile/mine/perfetto_trace.json.gz").exists()


def varints(data):
    value = shift = 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value
            value = shift = 0


def fields(message):
    """Number and value of each field of a protocol buffer."""
    at = 0

    def varint():
        nonlocal at
        start = at
        while message[at] > 127:
            at += 1
        at += 1
        return next(varints(message[start:at]))

    while at < len(message):
        tag = varint()
        value = varint()
        if tag & 7 == 2:
            at += value
            value = message[at - value:at]
        yield tag >> 3, value


def test_memory_and_the_server(tmp_path):
    keep = jnp.ones((123, 457))
    jax.profiler.save_device_memory_profile(tmp_path / "memory.prof")
    profile = list(fields(gzip.decompress((tmp_path / "memory.prof").read_bytes())))
    strings = [value.decode() for number, value in profile if number == 6]
    assert strings[0] == "" and {"allocations", "space", "bytes", "kind", "buffer"} <= set(strings)
    assert any(text.endswith("test_profiler.py") for text in strings)
    samples = [dict(fields(value)) for number, value in profile if number == 2]
    assert any(list(varints(sample[2])) == [1, 4 * 123 * 457] for sample in samples), samples  # count, bytes
    assert keep.shape
    jax.devices()[0].memory_stats()  # None on a CPU
    with pytest.raises(ValueError, match="No active profiler server"):
        jax.profiler.stop_server()


def test_the_summary_says_where_the_time_went(uncached):
    printed = io.StringIO()

    def slow(x):
        return jnp.sort(jnp.tanh(x @ x), axis=0)

    with jax.profiler.summary(file=printed) as found:
        f = jax.jit(slow)
        for _ in range(3):
            out = f(np.ones((200, 200), np.float32))
        np.asarray(out)
        jax.jit(lambda x: jnp.sinh(x))(out).block_until_ready()  # gone when the block ends
    stages = {row.what: row for row in found.stages}
    assert list(stages) == ["import", "trace", "lower", "compile", "transfers", "execution", "rest"]
    (row,) = [row for row in found.functions if row.what.startswith("slow")]
    assert "test_profiler.py:" in row.where
    assert 0 < stages["compile"].seconds < found.wall_seconds
    assert sum(row.times for row in found.operations) >= 3
    assert any("test_profiler.py" in row.where and "dot_general" in row.where for row in found.operations)
    assert any("test_profiler.py" in row.where and "sinh" in row.where for row in found.operations)
    apart = sum(stages[what].seconds for what in stages if what != "execution")
    assert apart == pytest.approx(found.wall_seconds, rel=0.02)
    assert "s  all of the block" in printed.getvalue()
    with pytest.raises(ZeroDivisionError), jax.profiler.summary(file=printed):
        1 / 0  # noqa: B018


def test_imports_are_timed_and_the_finder_leaves():
    code = ("import sys, time, jaxlite\nbefore = list(sys.meta_path)\n"
            "with jaxlite.profiler.summary() as found: import colorsys, wave\n"
            "assert sys.meta_path == before\nassert found.stages[0].times >= 2, found\nimport colorsys\n"
            "assert type(colorsys.__spec__.loader).__name__ == 'SourceFileLoader'")
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_optimised_hlo_is_read():
    def f(x):
        return jnp.sum(jnp.tanh(x @ x))

    module = hlo_text.parse(jax.jit(f).lower(np.ones((64, 64), np.float32)).compile().as_text())
    assert module.name == "jit_f"
    entry = [each for each in module.instructions if each.computation == module.entry]
    dot = next(each for each in module.instructions if each.op_name == "dot_general")
    assert dot.frames[0][0].endswith("test_profiler.py")
    fused = {name for each in entry for name in each.calls}
    assert any(each.opcode == "tanh" and each.computation in fused for each in module.instructions)
