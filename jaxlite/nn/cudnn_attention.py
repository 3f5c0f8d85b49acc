"""Dot-product attention by cuDNN's fused kernels, on NVIDIA GPUs.

XLA hands a custom call with a description of the products to cuDNN. Forward, it gives the result, and for derivatives the
logsumexp of each row; backward, it gives the derivatives of query, key, value and bias.
"""

from __future__ import annotations

import functools
import importlib
import json
from typing import Any, NamedTuple

import numpy as np

from jaxlite import numpy as jnp
from jaxlite.core.aval import ShapedArray
from jaxlite.core.values import aval_of
from jaxlite.lax.foreign import ffi_call
from jaxlite.transforms.custom_batching import custom_vmap
from jaxlite.transforms.custom_derivatives import custom_vjp
from lowering import platforms

_ELEMENTS = {"bfloat16": "BF16", "float16": "F16"}
_HEADS_FIRST = (0, 2, 1, 3)  # of an array (batch, length, heads, width), and back


class _Options(NamedTuple):
    """What is the same in a call and its derivative. `window`: how many positions a row sees, itself among them, or 0."""

    scale: float
    mask: str
    window: int
    needs_bias: bool  # whether the bias has a derivative
    keeps_sums: bool  # whether the logsumexp of the rows is asked for


def attend(query, key, value, bias, mask, query_lengths, key_lengths, *, scale: float, is_causal: bool,
           window: tuple[int, int] | None, keeps_sums: bool) -> Any:
    """The result; with `keeps_sums` also the logsumexp of its rows, (batch, heads, T) in float32, which has no derivative.

    Args: as of `dot_product_attention`, with a batch axis, checked and of one dtype; `window` to the left and right.
    Raises: NotImplementedError for what cuDNN has no kernel for, RuntimeError if there is no cuDNN.
    """
    batch, length, heads, width = aval_of(query).shape
    if aval_of(query).dtype.name not in _ELEMENTS:
        raise NotImplementedError(f"cuDNN's attention takes {' and '.join(_ELEMENTS)}, got {aval_of(query).dtype}")
    if window is not None and window[1] and not is_causal:
        raise ValueError(f"cuDNN has windows to the right, here of {window[1]}, together with is_causal alone")
    for name, each in (("query_seq_lengths", query_lengths), ("key_value_seq_lengths", key_lengths)):
        if each is not None and (aval_of(each).shape != (batch,) or aval_of(each).dtype != np.int32):
            raise ValueError(f"{name} should be int32[{batch}], got {aval_of(each)}")
    if aval_of(value).shape != aval_of(key).shape:
        raise ValueError(f"cuDNN's attention takes values of the keys' shape {aval_of(key).shape}, got {aval_of(value).shape}")
    most = _require_cudnn()
    if width > most or width % 8:
        raise NotImplementedError(f"cuDNN's attention takes heads of a width up to {most} that is a multiple of 8, got {width}")
    whole = (batch, heads, length, aval_of(key).shape[1])
    needs_bias = bias is not None
    if mask is not None:
        lowest = jnp.array(-(2.0**41) if aval_of(query).dtype.name == "bfloat16" else -(2.0**15), aval_of(query).dtype)
        mask = jnp.where(mask, jnp.array(0, lowest.dtype), lowest)
        bias = mask if bias is None else bias + mask
    if bias is not None:
        shape = (1,) * (4 - aval_of(bias).ndim) + aval_of(bias).shape
        # One for each element of the batch and all heads has no derivative there.
        outer = whole[:2] if needs_bias and shape[0] > 1 else shape[:2]
        bias = jnp.broadcast_to(bias, (*outer, *whole[2:]))
    lengths: tuple[Any, ...] = ()
    if query_lengths is not None or key_lengths is not None:
        lengths = tuple(jnp.full((batch,), size, np.int32) if given is None else given
                        for given, size in ((query_lengths, length), (key_lengths, whole[3])))
    kind = ("PADDING" if lengths else "") + ("_" if lengths and is_causal else "") + ("CAUSAL" if is_causal else "")
    options = _Options(float(scale), kind or "NO_MASK", 0 if window is None else window[0] + 1, needs_bias, keeps_sums)
    return _attention(options, query, key, value, bias, lengths)


def _require_cudnn() -> int:
    """The largest width of heads on this machine. Raises: RuntimeError if there is no cuDNN."""
    plugin = platforms.plugin_of("cuda")
    try:
        importlib.import_module(f"{getattr(plugin, 'calls', '')}._versions").cudnn_get_version()
        device = platforms.devices("cuda")[0] if platforms.is_started("cuda") else None
    except Exception as error:
        raise RuntimeError("dot_product_attention(implementation='cudnn'): cuDNN not found. It needs a GPU of NVIDIA and the "
                           "wheels of jaxlite[cuda13] or [cuda12]") from error
    is_older = device is not None and float(device.compute_capability) < 9
    return 128 if is_older else 256


# --- derivatives -------------------------------------------------------------------------------------


@functools.partial(custom_vjp, nondiff_argnums=(0,))
def _attention(options: _Options, query, key, value, bias, lengths):
    return _forward(options)(bias, query, key, value, *lengths)


def _attention_forward(options: _Options, query, key, value, bias, lengths):
    for size in (aval_of(query).shape[1], aval_of(key).shape[1]):
        if size % 2:
            raise NotImplementedError(f"cuDNN's attention has derivatives for an even number of positions, got {size}")
    out, sums = _forward(options._replace(keeps_sums=True))(bias, query, key, value, *lengths)
    return (out, sums) if options.keeps_sums else out, (query, key, value, bias, lengths, sums, out)


def _attention_backward(options: _Options, saved, cotangent):
    query, key, value, bias, lengths, sums, out = saved
    cotangent = cotangent[0] if options.keeps_sums else cotangent
    found = _backward(options)(bias, query, key, value, sums, cotangent, out, *lengths)
    return *found[:3], found[3] if options.needs_bias else _none_for(bias), tuple(map(_none_for, lengths))


def _none_for(array: Any) -> Any:
    """No derivative: what custom_vjp takes for a constant."""
    if array is None or aval_of(array).dtype.kind in "iu":
        return None
    return jnp.zeros_like(array)


_attention.defvjp(_attention_forward, _attention_backward)


# --- the two calls -----------------------------------------------------------------------------------


def _over_batches(call: Any) -> Any:
    """A function of options that gives one of (bias or None, arrays ...), all of which have the batch in front; vmap makes the
    batch larger."""

    @functools.cache
    def of(options: _Options) -> Any:
        @custom_vmap
        def batched(bias, *arrays):
            return call(options, bias, *arrays)

        @batched.def_vmap
        def rule(size, in_batched, bias, *arrays):
            def joined(array: Any, is_batched: bool, outer: tuple[int, ...] = ()) -> Any:
                shape = aval_of(array).shape[is_batched:]
                shape = (*outer, *shape[len(outer):])
                array = array if is_batched else array[None]
                return jnp.broadcast_to(array, (size, *shape)).reshape(size * shape[0], *shape[1:])

            batch, heads = (aval_of(arrays[0]).shape[in_batched[1]:][axis] for axis in (0, 2))
            flat = [joined(array, is_batched) for array, is_batched in zip(arrays, in_batched[1:], strict=True)]
            own: tuple[int, ...] = () if bias is None else aval_of(bias).shape[bool(in_batched[0]):]
            has_derivative = call is _call_backward and options.needs_bias
            if bias is not None and (has_derivative or in_batched[0] or own[0] > 1):
                bias = joined(bias, in_batched[0], (batch, heads) if has_derivative else (batch,))
            outs = [out.reshape(size, -1, *aval_of(out).shape[1:]) for out in _listed(of(options)(bias, *flat))]
            if has_derivative:
                axes = tuple(axis + 1 for axis in (0, 1) if own[axis] == 1)
                outs[3] = outs[3].sum(axes, keepdims=True, dtype=np.float32).astype(outs[3].dtype)
            is_one = call is _call_forward and not options.keeps_sums
            return (outs[0], True) if is_one else (tuple(outs), (True,) * len(outs))

        return batched

    return of


def _listed(outs: Any) -> Any:
    return outs if isinstance(outs, tuple) else (outs,)


def _call_forward(options: _Options, bias, query, key, value, *lengths) -> Any:
    batch, length, heads, width = aval_of(query).shape
    results = [ShapedArray((batch, heads, length, width), aval_of(query).dtype)]
    if options.keeps_sums:
        results.append(ShapedArray((batch, heads, length), np.dtype(np.float32)))
    products = {"bmm1": _product(3, 3, (0, 2), (0, 2)), "bmm2": _product(3, 1, (0, 1), (0, 2))}
    found = _call("", options, bias, (query, key, value), () if bias is None else (bias,), lengths, results, products)
    out = jnp.transpose(found[0], _HEADS_FIRST)
    return (out, found[1]) if options.keeps_sums else out


def _call_backward(options: _Options, bias, query, key, value, sums, cotangent, out, *lengths) -> Any:
    results = [ShapedArray(tuple(aval_of(each).shape[axis] for axis in _HEADS_FIRST), aval_of(each).dtype)
               for each in (query, key, value)]
    if options.needs_bias:
        results.append(aval_of(bias))
    products = {"bmm1_grad_gemm1": _product(2, 1, (0, 1), (0, 2)), "bmm1_grad_gemm2": _product(3, 1, (0, 1), (0, 2)),
                "bmm2_grad_gemm1": _product(2, 1, (0, 1), (0, 2)), "bmm2_grad_gemm2": _product(3, 3, (0, 2), (0, 2))}
    operands = (query, key, value, sums, cotangent)
    rest = (out,) if bias is None else (bias, out)
    found = _call("Backward", options, bias, operands, rest, lengths, results, products)
    return *(jnp.transpose(each, _HEADS_FIRST) for each in found[:3]), *found[3:]


_forward, _backward = _over_batches(_call_forward), _over_batches(_call_backward)


def _call(suffix: str, options: _Options, bias: Any, operands: Any, rest: Any, lengths: Any, results: list[Any],
          products: dict[str, Any]) -> Any:
    query, key = (aval_of(each) for each in operands[:2])
    layouts = [_HEADS_FIRST if each.shape[-1] == query.shape[-1] and position < 3 and len(each.shape) == 4 else None
               for position, each in enumerate(results)]
    logits = (query.shape[0], query.shape[2], query.shape[1], key.shape[1])
    target = f"__cudnn$fmha{'ScaleBias' if bias is not None else ''}Softmax{suffix}"
    workspace = ShapedArray((0,), np.dtype(np.uint8))
    call = ffi_call(target, [*results, workspace], output_layouts=[*layouts, None], custom_call_api_version=2,
                    legacy_backend_config=_config(options, _ELEMENTS[query.dtype.name], logits, products))
    return call(*operands, *rest, *lengths)[:-1]


def _product(left: int, right: int, left_batch: tuple[int, ...], right_batch: tuple[int, ...]) -> dict[str, Any]:
    """Which axes of two arrays a product contracts, and which are a batch. Protocol buffers write whole numbers as text."""
    return {"lhs_contracting_dimensions": [str(left)], "rhs_contracting_dimensions": [str(right)],
            "lhs_batch_dimensions": [str(axis) for axis in left_batch],
            "rhs_batch_dimensions": [str(axis) for axis in right_batch]}


def _config(options: _Options, element: str, logits: tuple[int, ...], products: dict[str, Any]) -> str:
    """XLA's message `GpuBackendConfig` as JSON: an algorithm for cuDNN to find itself, the type of the logits, the products."""
    unknown = "PRIMITIVE_TYPE_INVALID"
    layout = {"dim_level_types": [], "dim_unique": [], "dim_ordered": [], "minor_to_major": ["3", "2", "1", "0"], "tiles": [],
              "element_size_in_bits": "0", "memory_space": "0", "index_primitive_type": unknown,
              "pointer_primitive_type": unknown, "dynamic_shape_metadata_prefix_bytes": "0"}
    return json.dumps({"operation_queue_id": "0", "cudnn_fmha_backend_config": {
        "algorithm": {"algo_id": "0", "math_type": "TENSOR_OP_MATH", "tuning_knobs": {"17": "1", "24": "0"},
                      "is_cudnn_frontend": True, "workspace_size": "0"},
        "fmha_scale": options.scale,
        "intermediate_tensor_shape": {
            "element_type": element, "dimensions": [str(size) for size in logits], "tuple_shapes": [], "layout": layout,
            "is_dynamic_dimension": [False] * 4},
        "is_flash_attention": True, "mask_type": options.mask,
        **{f"{name}_dot_dimension_numbers": numbers for name, numbers in products.items()},
        "dropout_rate": 0.0, "seed": 42, "sliding_window_length": options.window, "max_seg_per_batch": 1,
        "is_paged_attention": False}})
