"""What the mechanisms that exist for speed alone buy: each is switched off, and four programs are timed without it.

    python -m benchmarks.mechanisms [--repeats 9]

Processes with and without a mechanism take turns; each figure is the least CPU time of a fresh process over the least with
everything on. `docs/architecture.md` has the table. Nothing here is an option of jaxlite's: the switches reach into it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile

# Run before the program.
_FORGET = """
class Forgetful(dict):
    def __setitem__(self, key, value): pass
    def setdefault(self, key, value=None): return value
"""
SWITCHES = {
    "shortcuts to the cache": "from lowering.cache import shortcuts; shortcuts.shortcut = lambda *args, **kwargs: None",
    "promotion plans": _FORGET + "import jaxlite.numpy.api as api; api._plans = Forgetful()",
    "memo of typing rules": _FORGET + """
from jaxlite.core import primitive
import jaxlite.lax
for each in primitive.PRIMITIVES.values(): each._memoised = False
""",
    "seldom collections": """
from jaxlite.core import collector
kind = type(collector.seldom_collecting)
kind.__enter__ = kind.__exit__ = lambda self, *error: None
""",
    "pinned tracebacks": """
from jaxlite.core import staging
staging.StagingTrace.pin = lambda self, traceback: None
staging.StagingTrace.pin_here = lambda self: False
""",
    "lazy names": """
import jaxlite, jaxlite.numpy, jaxlite.lax, contextlib
for module in (jaxlite, jaxlite.numpy, jaxlite.lax):
    for name in dir(module):
        with contextlib.suppress(Exception): getattr(module, name)
""",
    "rules in parts": """
import jaxlite
from lowering import rules
rules.find_rule("no such primitive")
from jaxlite.core.primitive import load_rules
load_rules()
""",
}
PROGRAMS = {
    "import": "import jaxlite.numpy",
    "trace and lower, training step of 48 layers": """
import jaxlite
from benchmarks import programs
f, arguments = programs.training_step(programs.Frontend(jaxlite, jaxlite.numpy, jaxlite.lax), layers=48)
jaxlite.jit(f).lower(*arguments)
""",
    "training step of 12 layers from a warm cache": """
import jaxlite
from benchmarks import programs
f, arguments = programs.training_step(programs.Frontend(jaxlite, jaxlite.numpy, jaxlite.lax), layers=12)
jaxlite.block_until_ready(jaxlite.jit(f)(*arguments))
""",
    "30 eager operations, warm cache": """
import jaxlite.numpy as jnp
x = jnp.arange(12.0).reshape(3, 4)
for f in (jnp.sin, jnp.sum, jnp.mean, jnp.exp, jnp.ravel, jnp.cumsum, jnp.sort, jnp.transpose, jnp.square, jnp.max):
    for scale in (1, 2, 3): f(x * scale)
""",
}


def seconds(switch: str, program: str, cache: str) -> float:
    """The CPU time of a fresh process."""
    script = f"{switch}\n{program}" + "\nimport time; print(time.process_time())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True,
                          env={**os.environ, "XDG_CACHE_HOME": cache})
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only", nargs="*", choices=SWITCHES, default=list(SWITCHES))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        for name, program in PROGRAMS.items():
            seconds("", program, cache)  # fills the cache
            names = [each for each in args.only if name != "import" or each == "lazy names"]  # switches import what they reach
            best = dict.fromkeys(["", *(SWITCHES[each] for each in names)], float("inf"))
            for _ in range(args.repeats):
                for switch in best:
                    best[switch] = min(best[switch], seconds(switch, program, cache))
            print(f"{name}: {best['']:.3f} s")
            for each in names:
                print(f"    without {each:24} {best[SWITCHES[each]] / best['']:.2f}", flush=True)


if __name__ == "__main__":
    main()
