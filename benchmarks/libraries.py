"""From the start of a process to its first training step with optax, equinox, flax or numpyro: jaxlite beside JAX.

    python -m benchmarks.libraries --jax PYTHON [--repeats N] [NAME ...]

Run it with a Python that has jaxlite and the libraries (`make bench-libraries`). Each program is an example of
`examples/libraries` that does one step and prints its result; the time is from its start to that line, seen from outside.
Cold, nothing was compiled before; warm, both sides' persistent caches hold what an earlier process compiled. The sides take
turns; the least of the repeats counts.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import sysconfig
import tempfile

from benchmarks.sides import ROOT, Side

EXAMPLES = ("optax_mlp", "equinox_mlp", "flax_linen_cnn", "flax_nnx_cnn", "numpyro_eight_schools")
BARS = {"cold": 0.6, "warm": 0.35}  # of JAX's time, at most


def process(side: Side, example: str, cache: str) -> float:
    """Seconds from the start of a process to the line that it prints after one step."""
    prefix = ("-m", "jaxlite") if side.module == "jaxlite" else ()
    return side.first_line(*prefix, f"examples/libraries/{example}.py", "1", cache=cache)


def measure(sides: list[Side], example: str, warm: bool, repeats: int) -> list[float]:
    """For each side the least time of some processes."""
    caches = [tempfile.mkdtemp(prefix="libraries-") if warm else "" for _ in sides]
    try:
        for side, cache in zip(sides, caches, strict=True):
            if warm:
                process(side, example, cache)
        best = [math.inf] * len(sides)
        for _ in range(repeats):
            for index, (side, cache) in enumerate(zip(sides, caches, strict=True)):
                best[index] = min(best[index], process(side, example, cache))
        return best
    finally:
        for cache in filter(None, caches):
            shutil.rmtree(cache, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="examples; all of them without")
    parser.add_argument("--jax", required=True, help="a Python that has jax")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    sides = [Side("jaxlite", sys.executable, "jaxlite", (("PYTHONPATH", str(ROOT)),)),
             Side("JAX", arguments.jax, "jax", (("PYTHONPATH", sysconfig.get_path("purelib")),))]
    print(f"{'first training step':24} {'':5} {'jaxlite':>9} {'JAX':>9} {'ratio':>7}  bar")
    for example in arguments.names or EXAMPLES:
        for name, bar in BARS.items():
            ours, theirs = measure(sides, example, name == "warm", arguments.repeats)
            verdict = "" if ours <= bar * theirs else "  missed"
            print(f"{example:24} {name:5} {ours:8.2f}s {theirs:8.2f}s {ours / theirs:7.2f}  {bar}{verdict}", flush=True)


if __name__ == "__main__":
    main()
