"""lowering: from jaxprs to running programs. It emits StableHLO for each equation, and XLA compiles and runs the module.

It imports nothing from `jaxlite` and only uses the attributes of jaxprs (see `lowering.module`).
"""

import time

IMPORTED = time.time_ns()  # source files that change after it are not what this process runs
