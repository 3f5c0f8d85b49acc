"""Batches of arrays in compressed rows, as `jax.experimental.sparse.bcsr` names them: a view."""

from jaxlite.experimental.sparse.compressed import (
    BCSR,
    bcsr_broadcast_in_dim,
    bcsr_concatenate,
    bcsr_dot_general,
    bcsr_eliminate_zeros,
    bcsr_extract,
    bcsr_fromdense,
    bcsr_sum_duplicates,
    bcsr_todense,
)

__all__ = ["BCSR", "bcsr_broadcast_in_dim", "bcsr_concatenate", "bcsr_dot_general", "bcsr_eliminate_zeros", "bcsr_extract",
           "bcsr_fromdense", "bcsr_sum_duplicates", "bcsr_todense"]
