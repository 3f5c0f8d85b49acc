"""Attention under masks that are known when a program is traced."""

from jaxlite.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel import BlockSizes as BlockSizes
from jaxlite.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel import QKVLayout as QKVLayout
from jaxlite.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel import SegmentIds as SegmentIds
from jaxlite.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel import make_splash_mha as make_splash_mha
from jaxlite.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel import (
    make_splash_mha_single_device as make_splash_mha_single_device,
)
from jaxlite.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel import make_splash_mqa as make_splash_mqa
from jaxlite.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel import (
    make_splash_mqa_single_device as make_splash_mqa_single_device,
)
from jaxlite.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import CausalMask as CausalMask
from jaxlite.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import FullMask as FullMask
from jaxlite.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import LocalMask as LocalMask
from jaxlite.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import Mask as Mask
from jaxlite.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import MultiHeadMask as MultiHeadMask
from jaxlite.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import NumpyMask as NumpyMask
from jaxlite.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import make_causal_mask as make_causal_mask
from jaxlite.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import (
    make_local_attention_mask as make_local_attention_mask,
)
from jaxlite.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import make_random_mask as make_random_mask
