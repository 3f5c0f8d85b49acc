"""Does a program fit an accelerator that is not here? Each of its compiles is done for that device too, and measured.

    python -m jaxlite.fits train.py --epochs 1 --on h100
    python -m jaxlite.fits train.py --on v5e:2x2 --rows 50

The program runs here, on the CPU, with its own arguments. After it a table shows, for each compiled function, what XLA says of
it on that device: peak memory and its parts, operations, memory traffic. Small arguments show small numbers: run it with the
shapes that you mean, and let it stop after its first step.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxlite.commands.programs import bytes_text, run_program, table_text
from jaxlite.compilation import program
from jaxlite.experimental.topologies import TopologyDescription, get_topology_desc
from lowering import platforms, targets


class Row(NamedTuple):
    """One compile on the device. Sizes in bytes; `error` says why it could not be compiled."""

    name: str
    types: str
    peak: int = 0
    arguments: int = 0
    results: int = 0
    temporaries: int = 0
    flops: float = 0.0
    traffic: float = 0.0
    error: str = ""


def measure(compiled: program.Program, device: Any) -> Row:
    """Compile a traced program for a device that is only described, and say what it takes there."""
    from jaxlite.compilation import execution  # with all of lowering

    types = ", ".join(aval.str_short(short_dtypes=True) for aval in compiled.closed.in_avals)
    try:
        lowered = execution.lower_jaxpr(compiled.closed, compiled.name, platforms.target_of(device),
                                        donated=compiled.donated, keep_unused=compiled.options.keep_unused)
        made = execution.compile_lowered(lowered, compiled.closed, device, True)
    except Exception as error:  # what XLA refuses is what the table is to show
        return Row(compiled.name, types, error=f"{type(error).__name__}: {error}".split("\n")[0])
    memory, cost = made.loaded.get_compiled_memory_stats(), made.cost_analysis()
    parts = memory.argument_size_in_bytes, memory.output_size_in_bytes, memory.temp_size_in_bytes
    peak = max(sum(parts) - memory.alias_size_in_bytes + memory.generated_code_size_in_bytes,
               getattr(memory, "peak_memory_in_bytes", 0))
    return Row(compiled.name, types, peak, *parts, cost.get("flops", 0.0), cost.get("bytes accessed", 0.0))


def table(rows: Sequence[Row], memory: int, most: int) -> str:
    """The rows as text, the largest first."""
    lines: list[tuple[str, ...]] = [
        ("function", "peak", "arguments", "results", "temporaries", "flops", "traffic", "fits", "arguments' types")]
    for row in sorted(rows, key=lambda each: -each.peak)[:most]:
        if row.error:
            lines.append((row.name, "", "", "", "", "", "", "no", row.error[:100]))
        else:
            fits = "" if not memory else "yes" if row.peak <= memory else "NO"
            sizes = (bytes_text(each) for each in (row.peak, row.arguments, row.results, row.temporaries))
            types = row.types if len(row.types) <= 60 else row.types[:57] + "..."
            lines.append((row.name, *sizes, _count(row.flops), bytes_text(row.traffic), fits, types))
    return table_text(lines)


def _count(number: float) -> str:
    for unit in ("", "k", "M", "G", "T", "P"):
        if number < 1000 or unit == "P":
            return f"{number:.3g}{unit}"
        number /= 1000
    raise AssertionError("unreachable")


def device_memory(topology_name: str) -> int:
    """Bytes of one device's memory; 0 if it is not known."""
    try:
        return targets.gpu_named(topology_name)[0].memory
    except ValueError:
        return targets.TPU_MEMORY.get(topology_name.partition(":")[0], 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a program and print the table; the exit status is 1 if a compile does not fit or fails."""
    parser = argparse.ArgumentParser(prog="python -m jaxlite.fits", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="a Python file; further arguments are its own")
    parser.add_argument("--on", required=True, metavar="DEVICE", help="h100, a100:8, v5e:2x2, ...")
    parser.add_argument("--rows", type=int, default=20, help="how many compiles the table shows")
    options, rest = parser.parse_known_args(arguments)
    try:
        topology: TopologyDescription = get_topology_desc(options.on)
    except (RuntimeError, ValueError) as error:
        parser.error(str(error))
    rows: list[Row] = []
    watch = lambda compiled: rows.append(measure(compiled, topology.devices[0]))
    program.compile_watchers.append(watch)
    try:
        run_program([options.program, *rest])
    except SystemExit as stop:
        if stop.code not in (None, 0):
            print(f"{options.program} ended with {stop.code}", file=sys.stderr)
    finally:
        program.compile_watchers.remove(watch)
    memory = device_memory(options.on)
    print(f"\n{len(rows)} compiles on {topology.devices[0].device_kind}" + (f" with {bytes_text(memory)}" if memory else ""))
    print(table(rows, memory, options.rows))
    return int(any(row.error or memory and row.peak > memory for row in rows))
