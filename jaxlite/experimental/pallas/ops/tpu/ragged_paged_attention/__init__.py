"""Attention of sequences of different lengths over pages of keys and values."""

from jaxlite.experimental.pallas.ops.tpu.ragged_paged_attention.kernel import (
    dynamic_validate_inputs,
    ragged_paged_attention,
    ref_ragged_paged_attention,
    static_validate_inputs,
)

__all__ = ["dynamic_validate_inputs", "ragged_paged_attention", "ref_ragged_paged_attention", "static_validate_inputs"]
