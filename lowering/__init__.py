"""lowering: how a jaxpr runs. It emits StableHLO for each equation, and has XLA compile and run the module.

Imports nothing from `jaxlite`; a jaxpr is known by its shape alone (see `lowering.module`).
"""

import time

IMPORTED = time.time_ns()  # source files that change after it are not what this process runs
