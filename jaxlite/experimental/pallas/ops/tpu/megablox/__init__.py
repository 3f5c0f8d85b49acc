"""Products of the rows of a matrix, in groups, with a matrix for each group."""

from jaxlite.experimental.pallas.ops.tpu.megablox.ops import gmm as gmm

__all__ = ["gmm"]
