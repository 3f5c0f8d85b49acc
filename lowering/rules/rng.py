"""StableHLO rules of the random generators."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowering.rules import lowers

_ALGORITHMS = ("DEFAULT", "THREE_FRY", "PHILOX")
_u32, _u64 = np.dtype(np.uint32), np.dtype(np.uint64)


@lowers("rng_bit_generator")
def _rng_bit_generator(ctx: Any, key: Any, *, shape: Any, dtype: Any, algorithm: int, out_sharding: Any = None,
                       ) -> list[Any]:
    (aval,) = ctx.avals_in
    if aval.dtype == _u32:  # the state is two 64-bit words
        key = ctx.value("stablehlo.bitcast_convert", [ctx.value("stablehlo.reshape", [key], (2, 2), _u32)], (2,), _u64)
    bits_dtype = dtype if dtype in (_u32, _u64) else _u32
    operation = ctx.op("stablehlo.rng_bit_generator", [key],
                       [ctx.tensor_type((2,), _u64), ctx.tensor_type(shape, bits_dtype)],
                       {"rng_algorithm": ctx.attribute(f"#stablehlo<rng_algorithm {_ALGORITHMS[int(algorithm)]}>")})
    state, bits = operation.results
    if aval.dtype == _u32:
        halves = ctx.value("stablehlo.bitcast_convert", [state], (2, 2), _u32)
        state = ctx.value("stablehlo.reshape", [halves], (4,), _u32)
    if bits_dtype != dtype:
        bits = ctx.convert(bits, shape, dtype)
    return [state, bits]


@lowers("rng_uniform")
def _rng_uniform(ctx: Any, a: Any, b: Any, *, shape: Any) -> Any:
    extent = ctx.constant(np.asarray(shape, np.int64), np.dtype(np.int64), (len(shape),))
    distribution = ctx.attribute("#stablehlo<rng_distribution UNIFORM>")
    numbers = ctx.emit1("stablehlo.rng", a, b, extent, rng_distribution=distribution)
    dtype = ctx.aval_out.dtype
    if dtype.kind in "iu":
        return numbers
    # XLA scales numbers of [0, 1): what is near 1 rounds up to the bound, which is outside.
    low, high = (ctx.broadcast(bound, (), shape, dtype) for bound in (a, b))
    return ctx.value("stablehlo.select", [ctx.compare(numbers, high, "LT"), numbers, low], shape, dtype)
