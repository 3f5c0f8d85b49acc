"""Products of the rows of a matrix, in groups, with a matrix for each group."""

import jaxlite.experimental.pallas.ops.tpu.megablox.gmm  # before the function of this name takes its place here
from jaxlite.experimental.pallas.ops.tpu.megablox.ops import gmm as gmm

__all__ = ["gmm"]
