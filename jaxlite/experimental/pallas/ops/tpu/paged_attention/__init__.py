"""Attention of one query for each head, where keys and values lie in pages that sequences share."""

from jaxlite.experimental.pallas.ops.tpu.paged_attention.paged_attention_kernel import paged_attention as paged_attention
