"""Triton rules of operations that are not elementwise: shapes, products, reductions, Refs, control flow."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from lowering.kernels import triton_math
from lowering.kernels.triton import (
    RULES,
    Kernel,
    Value,
    load,
    lowers,
    pointers,
    ref_rules,
    scalar_text,
    store,
    type_text,
    viewed,
)
from lowering.module import LoweringError
from lowering.monoids import RUNNING
from lowering.rules import decomposed

_INT32 = np.dtype(np.int32)
_FLOAT32 = np.dtype(np.float32)

# --- the place in the grid, hints --------------------------------------------------------------------


@lowers("program_id")
def _program_id(k: Kernel, eqn: Any, *, axis: int) -> Any:
    return k.ids[axis]


@lowers("num_programs")
def _num_programs(k: Kernel, eqn: Any, *, axis: int) -> Any:
    return k.constant(k.sizes[axis], _INT32)


@lowers("multiple_of", "max_contiguous", "copy", "stop_gradient", "name", "optimization_barrier")
def _as_it_is(k: Kernel, eqn: Any, *values: Value, **params: Any) -> Any:
    return list(values)


@lowers("reduce_precision")
def _reduce_precision(k: Kernel, eqn: Any, x: Value, *, exponent_bits: int, mantissa_bits: int) -> Any:
    own = ml_dtypes.finfo(x.dtype)
    if exponent_bits >= own.nexp and mantissa_bits >= own.nmant:
        return x
    if (exponent_bits, mantissa_bits) != (8, 7):
        raise LoweringError(f"reduce_precision to {exponent_bits} bits of exponent and {mantissa_bits} of mantissa is not "
                            f"supported in the Pallas {k.backend} lowering: it rounds to bfloat16")
    return triton_math.convert(k, triton_math.convert(k, x, np.dtype(ml_dtypes.bfloat16)), x.dtype)


@lowers("debug_barrier")
def _barrier(k: Kernel, eqn: Any) -> Any:
    k.line("gpu.barrier")
    return []


@lowers("debug_print")
def _print(k: Kernel, eqn: Any, *values: Value, fmt: str, has_placeholders: bool = False, **params: Any) -> Any:
    fmt = re.sub(r"(\s*\{\})+$", "", fmt)
    if "{" in fmt:
        raise ValueError("pl.debug_print() does not support placeholders when lowering to Triton, but for `{}` at the end")
    text = fmt.replace("\\", "\\\\").replace('"', '\\"')
    signed = ", ".join("1" if value.dtype.kind == "i" else "0" for value in values)
    k.line(f'tt.print "{text}" {{hex = false, isSigned = array<i32{": " + signed if values else ""}>}}'
           + (f": {', '.join(each.name for each in values)} : {', '.join(map(k.type, values))}" if values else ""))
    return []


# --- shapes ------------------------------------------------------------------------------------------


@lowers("iota")
def _iota(k: Kernel, eqn: Any, *, dtype: Any, shape: Sequence[int], dimension: int, **params: Any) -> Any:
    return k.along(triton_math.convert(k, k.range(shape[dimension]), np.dtype(dtype)), (dimension,), shape)


@lowers("broadcast_in_dim")
def _broadcast(k: Kernel, eqn: Any, x: Value, *, shape: Sequence[int], broadcast_dimensions: Sequence[int],
               **params: Any) -> Any:
    return k.along(x, broadcast_dimensions, shape)


@lowers("reshape", "squeeze", "expand_dims")
def _reshape(k: Kernel, eqn: Any, x: Value, **params: Any) -> Any:
    return k.reshape(x, eqn.outvars[0].aval.shape)


@lowers("transpose")
def _transpose(k: Kernel, eqn: Any, x: Value, *, permutation: Sequence[int]) -> Any:
    return transposed(k, x, permutation)


def transposed(k: Kernel, x: Value, permutation: Sequence[int]) -> Value:
    """A block with its axes in another order."""
    if list(permutation) == sorted(permutation):
        return x
    shape = tuple(x.shape[axis] for axis in permutation)
    order = ", ".join(map(str, permutation))
    return k.op(f"tt.trans {x.name} {{order = array<i32: {order}>}} : {k.type(x)} -> {type_text(shape, scalar_text(x.dtype))}",
                shape, x.dtype)


@lowers("convert_element_type")
def _convert(k: Kernel, eqn: Any, x: Value, *, new_dtype: Any, **params: Any) -> Any:
    return triton_math.convert(k, x, new_dtype)


@lowers("bitcast_convert_type")
def _bitcast(k: Kernel, eqn: Any, x: Value, *, new_dtype: Any) -> Any:
    dtype = np.dtype(new_dtype)
    if dtype.itemsize != x.dtype.itemsize:
        raise LoweringError("bitcast_convert_type to another width is not supported in the Pallas Triton lowering")
    return k.op(f"tt.bitcast {x.name} : {k.type(x)} -> {type_text(x.shape, scalar_text(dtype))}", x.shape, dtype)


# --- elements, beyond one operation ------------------------------------------------------------------


def select(k: Kernel, which: Value, yes: Value, no: Value) -> Value:
    """Elements of one of two blocks, as booleans say."""
    which = k.broadcast(which, yes.shape)
    return k.op(f"arith.select {which.name}, {yes.name}, {no.name} : {k.type(which)}, {k.type(yes)}", yes.shape, yes.dtype)


@lowers("select_n")
def _select_n(k: Kernel, eqn: Any, which: Value, *cases: Value) -> Any:
    shape = eqn.outvars[0].aval.shape
    cases = tuple(k.broadcast(case, shape) for case in cases)
    if which.dtype.kind == "b":
        return select(k, which, cases[1], cases[0])
    found = cases[-1]
    for index in reversed(range(len(cases) - 1)):
        here = triton_math.compare(k, "sle", which, k.constant(index, which.dtype, which.shape))
        found = select(k, here, cases[index], found)
    return found


@lowers("clamp")
def _clamp(k: Kernel, eqn: Any, low: Value, x: Value, high: Value) -> Any:
    low, high = k.broadcast(low, x.shape), k.broadcast(high, x.shape)
    return triton_math.elementwise(k, "min", [triton_math.elementwise(k, "max", [x, low], x.dtype), high], x.dtype)


@lowers("not")
def _not(k: Kernel, eqn: Any, x: Value) -> Any:
    return k.binary("arith.xori", x, k.constant(x.dtype.kind == "b" or -1, x.dtype, x.shape))


@lowers("square")
def _square(k: Kernel, eqn: Any, x: Value) -> Any:
    return triton_math.elementwise(k, "mul", [x, x], x.dtype)


@lowers("reciprocal")
def _reciprocal(k: Kernel, eqn: Any, x: Value, **params: Any) -> Any:
    return triton_math.elementwise(k, "div", [k.constant(1, x.dtype, x.shape), x], x.dtype)


@lowers("integer_pow")
def _integer_pow(k: Kernel, eqn: Any, x: Value, *, y: int) -> Any:
    result, base, left = None, x, abs(y)
    while left:
        if left & 1:
            result = base if result is None else triton_math.elementwise(k, "mul", [result, base], x.dtype)
        left >>= 1
        base = triton_math.elementwise(k, "mul", [base, base], x.dtype) if left else base
    if result is None:
        return k.constant(1, x.dtype, x.shape)
    return result if y > 0 else triton_math.elementwise(k, "div", [k.constant(1, x.dtype, x.shape), result], x.dtype)


@lowers("log2")
def _log2(k: Kernel, eqn: Any, x: Value, **params: Any) -> Any:
    logarithm = triton_math.elementwise(k, "log", [x], x.dtype)
    return triton_math.elementwise(k, "mul", [logarithm, k.constant(1 / math.log(2), x.dtype, x.shape)], x.dtype)


@lowers("one_minus_square")
def _one_minus_square(k: Kernel, eqn: Any, x: Value) -> Any:
    one = k.constant(1, x.dtype, x.shape)
    factors = [triton_math.elementwise(k, name, [one, x], x.dtype) for name in ("add", "sub")]
    return triton_math.elementwise(k, "mul", factors, x.dtype)


@lowers("polynomial")
def _polynomial(k: Kernel, eqn: Any, *operands: Value, **params: Any) -> Any:
    aval = eqn.outvars[0].aval
    x, *terms = [k.broadcast(each, aval.shape) for each in operands]
    value = terms.pop()
    while terms:
        value = triton_math.elementwise(k, "mul", [value, x], aval.dtype)
        value = triton_math.elementwise(k, "add", [value, terms.pop()], aval.dtype)
    return value


@lowers("logistic")
def _logistic(k: Kernel, eqn: Any, x: Value, **params: Any) -> Any:
    def compute(values: list[Value]) -> Value:
        (wide,) = values
        one = k.constant(1, wide.dtype, wide.shape)
        power = k.unary("math.exp", k.unary("arith.negf", wide))
        return k.binary("arith.divf", one, k.binary("arith.addf", one, power))

    return triton_math.as_float32(k, compute, [x])


@lowers("sign")
def _sign(k: Kernel, eqn: Any, x: Value) -> Any:
    zero = k.constant(0, x.dtype, x.shape)
    above = triton_math.elementwise(k, "gt", [x, zero], np.bool_)
    if x.dtype.kind in "ub":
        return triton_math.convert(k, above, x.dtype)
    below = triton_math.elementwise(k, "lt", [x, zero], np.bool_)
    other = x if triton_math.is_float(x.dtype) else zero  # zeros keep their sign, NaN stays
    return select(k, above, k.constant(1, x.dtype, x.shape), select(k, below, k.constant(-1, x.dtype, x.shape), other))


@lowers("is_finite")
def _is_finite(k: Kernel, eqn: Any, x: Value) -> Any:
    size = triton_math.as_float32(k, lambda wide: k.unary("math.absf", wide[0]), [x])
    return triton_math.compare(k, "olt", size, k.constant(math.inf, x.dtype, x.shape))


@lowers("round")
def _round(k: Kernel, eqn: Any, x: Value, *, rounding_method: Any) -> Any:
    name = "rint" if "EVEN" in rounding_method.name else "round"
    return triton_math.as_float32(k, lambda wide: triton_math.extern(k, name, wide), [x])


@lowers("population_count", "clz")
def _count_bits(k: Kernel, eqn: Any, x: Value) -> Any:
    if x.dtype.itemsize != 4:
        raise LoweringError(f"{eqn.primitive.name} of {x.dtype} is not supported in the Pallas Triton lowering: convert to "
                            "32 bits")
    symbol = "__nv_popc" if eqn.primitive.name == "population_count" else "__nv_clz"
    return k.op(f'tt.extern_elementwise {x.name} {{libname = "", libpath = "", pure = true, symbol = "{symbol}"}} : '
                f"({k.type(x)}) -> {k.type(x)}", x.shape, x.dtype)


@lowers("mulhi")
def _high_product(k: Kernel, eqn: Any, x: Value, y: Value) -> Any:
    if x.dtype.kind != "u":
        raise LoweringError(f"mulhi of {x.dtype} is not supported in the Pallas Triton lowering: convert to unsigned integers")
    return k.binary("tt.mulhiui", x, y)


@lowers("approx_tanh")
def _approx_tanh(k: Kernel, eqn: Any, x: Value) -> Any:
    return triton_math.as_float32(
        k, lambda wide: _assembly(k, "tanh.approx.f32 $0, $1;", "=f,f", 1, wide, [(x.shape, _FLOAT32)])[0], [x])


@lowers("elementwise_inline_asm")
def _inline_asm(k: Kernel, eqn: Any, *values: Value, asm: str, constraints: str, pack: int, result_avals: Any) -> Any:
    return _assembly(k, asm, constraints, pack, values, [(aval.shape, np.dtype(aval.dtype)) for aval in result_avals])


def _assembly(k: Kernel, asm: str, constraints: str, pack: int, values: Sequence[Value], outs: Any) -> list[Value]:
    made = [Value(k.fresh(), shape, dtype) for shape, dtype in outs]
    text = asm.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\0A")
    k.line(f"{', '.join(each.name for each in made)} = tt.elementwise_inline_asm \"{text}\" {{constraints = \"{constraints}\", "
           f"packed_element = {pack} : i32, pure = true}} {', '.join(each.name for each in values)} : "
           f"{', '.join(map(k.type, values))} -> {', '.join(map(k.type, made))}")
    return made


# --- products and reductions -------------------------------------------------------------------------


@lowers("dot_general")
def _dot(k: Kernel, eqn: Any, a: Value, b: Value, *, dimension_numbers: Any, precision: Any, **params: Any) -> Any:
    ((contract_a, contract_b), (batch_a, _)) = dimension_numbers
    if batch_a or len(a.shape) != 2 or len(b.shape) != 2 or len(contract_a) != 1:
        raise LoweringError("dot_general in the Pallas Triton lowering multiplies two matrices, without batch axes; got shapes "
                            f"{a.shape} and {b.shape}")
    a = transposed(k, a, (1, 0)) if contract_a[0] == 0 else a
    b = transposed(k, b, (1, 0)) if contract_b[0] == 1 else b
    least = max(4, 16 // min(a.dtype.itemsize, b.dtype.itemsize))
    if a.shape[1] < least:  # LLVM would end the process
        raise ValueError(f"the axis that a product of matrices contracts is at least {least} long for {a.dtype} on a GPU, got "
                         f"shapes {a.shape} and {b.shape}")
    if a.dtype != b.dtype:
        wide = a.dtype if a.dtype.itemsize >= b.dtype.itemsize else b.dtype
        a, b = triton_math.convert(k, a, wide), triton_math.convert(k, b, wide)
    out = np.dtype(eqn.outvars[0].aval.dtype)
    inner = (_FLOAT32 if out.itemsize < 4 else out) if triton_math.is_float(out) else _INT32
    exact = "HIGH" in str(precision).upper() and a.dtype == _FLOAT32
    zero = k.constant(0, inner, (a.shape[0], b.shape[1]))
    how = ", inputPrecision = tf32" if a.dtype == _FLOAT32 and not exact else ""
    types = f"{k.type(a)} * {k.type(b)} -> {k.type(zero)}"
    found = k.op(f"tt.dot {a.name}, {b.name}, {zero.name}{how} : {types}", zero.shape, inner)
    return triton_math.convert(k, found, out)


_REDUCTIONS = {"reduce_sum": "add", "reduce_max": "max", "reduce_min": "min", "reduce_prod": "mul", "reduce_and": "and",
               "reduce_or": "or", "reduce_xor": "xor"}


@lowers(*_REDUCTIONS)
def _reduce(k: Kernel, eqn: Any, x: Value, *, axes: Sequence[int], **params: Any) -> Any:
    name = _REDUCTIONS[eqn.primitive.name]
    for axis in sorted(axes, reverse=True):
        (x,) = k.reduce([x], axis, lambda k, a, b: [triton_math.elementwise(k, name, [a[0], b[0]], a[0].dtype)])
    return x


@lowers("argmax", "argmin")
def _arg(k: Kernel, eqn: Any, x: Value, *, axes: Sequence[int], index_dtype: Any) -> Any:
    (axis,) = axes
    better = "gt" if eqn.primitive.name == "argmax" else "lt"
    index = k.along(k.range(x.shape[axis]), (axis,), x.shape)

    def combine(k: Kernel, a: list[Value], b: list[Value]) -> list[Value]:
        wins = triton_math.elementwise(k, better, [a[0], b[0]], np.bool_)
        ties = triton_math.elementwise(k, "eq", [a[0], b[0]], np.bool_)
        first = triton_math.compare(k, "slt", a[1], b[1])
        takes = k.binary("arith.ori", wins, k.binary("arith.andi", ties, first))
        return [select(k, takes, a[0], b[0]), select(k, takes, a[1], b[1])]

    return triton_math.convert(k, k.reduce([x, index], axis, combine)[1], np.dtype(index_dtype))


def _log_add_exp(k: Kernel, x: Value, y: Value) -> Value:
    top = triton_math.elementwise(k, "max", [x, y], x.dtype)
    apart = k.unary("math.absf", k.binary("arith.subf", x, y))
    tail = triton_math.elementwise(k, "log1p", [k.unary("math.exp", k.unary("arith.negf", apart))], x.dtype)
    equal = triton_math.compare(k, "oeq", x, y)  # infinities, whose difference is none
    tail = select(k, equal, k.constant(math.log(2), x.dtype, x.shape), tail)
    return k.binary("arith.addf", top, tail)


@lowers(*RUNNING)
def _cumulative(k: Kernel, eqn: Any, x: Value, *, axis: int, reverse: bool) -> Any:
    name = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}.get(eqn.primitive.name)
    if name is None and x.dtype.itemsize < 4:
        return triton_math.as_float32(k, lambda wide: _cumulative(k, eqn, wide[0], axis=axis, reverse=reverse), [x])

    def combine(k: Kernel, a: list[Value], b: list[Value]) -> list[Value]:
        return [_log_add_exp(k, a[0], b[0]) if name is None else triton_math.elementwise(k, name, [a[0], b[0]], a[0].dtype)]

    return k.reduce([x], axis, combine, "tt.scan", f", reverse = {str(bool(reverse)).lower()}")[0]


# --- Refs --------------------------------------------------------------------------------------------


ref_rules(RULES, load, store)


_CACHE_MODIFIERS = {".ca": 2, ".cg": 3, ".wb": 4, ".cs": 5, ".wt": 6, ".cv": 7}  # the numbers that Triton gives them
_EVICTION_POLICIES = {"evict_first": 2, "evict_last": 3}


def _hints(cache_modifier: str | None, eviction_policy: str | None, volatile: bool) -> str:
    """Hints as attributes: later versions of Triton have no other text for them, and do not look at the first two."""
    if cache_modifier is not None and cache_modifier not in _CACHE_MODIFIERS:
        raise ValueError(f"unsupported cache modifier: {cache_modifier}")
    if eviction_policy is not None and eviction_policy not in _EVICTION_POLICIES:
        raise ValueError(f"unsupported eviction policy: {eviction_policy}")
    hints = [f"cache = {_CACHE_MODIFIERS[cache_modifier]} : i32"] if cache_modifier else []
    hints += [f"evict = {_EVICTION_POLICIES[eviction_policy]} : i32"] if eviction_policy else []
    hints += ["isVolatile = true"] if volatile else []
    return f" {{{', '.join(hints)}}}" if hints else ""


@lowers("masked_load")
def _masked_load(k: Kernel, eqn: Any, ref: Any, *leaves: Any, args_tree: Any, cache_modifier: Any, eviction_policy: Any,
                 volatile: bool) -> Any:
    transforms, mask, other = args_tree.unflatten(leaves)
    return load(k, ref, transforms, mask, other, _hints(cache_modifier, eviction_policy, volatile))


@lowers("masked_swap")
def _masked_swap(k: Kernel, eqn: Any, ref: Any, value: Value, *leaves: Any, args_tree: Any, eviction_policy: Any) -> Any:
    transforms, mask = args_tree.unflatten(leaves)
    old = value if type(eqn.outvars[0]).__name__ == "DropVar" else load(k, ref, transforms, mask)
    store(k, ref, transforms, value, mask, _hints(None, eviction_policy, False))
    return old


@lowers("atomic_rmw")
def _atomic(k: Kernel, eqn: Any, ref: Any, value: Value, *leaves: Any, args_tree: Any, atomic_type: Any) -> Any:
    transforms, mask = args_tree.unflatten(leaves)
    ref, transforms = viewed(k, ref, transforms)
    kind, name = "f" if triton_math.is_float(value.dtype) else value.dtype.kind, atomic_type.value
    if value.dtype.itemsize < (2 if kind == "f" and name == "add" else 4):
        raise LoweringError(f"atomic_{name} of {value.dtype} is not supported in the Pallas Triton lowering: GPUs update "
                            "numbers of 32 and 64 bits, and add floats of 16")
    if kind == "f" and name in ("max", "min"):
        return _atomic_extreme(k, ref, value, transforms, mask, name)
    word = {"add": "fadd" if kind == "f" else "add", "xchg": "exch"}.get(name, name)
    if kind == "u" and name in ("max", "min"):
        word = f"u{name}"
    return _update(k, ref, value, transforms, mask, word)


def _update(k: Kernel, ref: Any, value: Value, transforms: Any, mask: Value | None, word: str) -> Value:
    pointer, shape, inside = pointers(k, ref, transforms)
    if inside is not None:
        mask = inside if mask is None else k.binary("arith.andi", mask, inside)
    mask = k.constant(True, np.bool_, shape) if mask is None else mask
    held = type_text(shape, f"!tt.ptr<{scalar_text(value.dtype)}>")
    return k.op(f"tt.atomic_rmw {word}, acq_rel, gpu, {pointer}, {value.name}, {mask.name} : "
                f"({held}, {k.type(value)}, {k.type(mask)}) -> {k.type(value)}", shape, value.dtype)


def _atomic_extreme(k: Kernel, ref: Any, value: Value, transforms: Any, mask: Value | None, name: str) -> Value:
    """An atomic extreme of floats, by their bits: ordered as integers, in reverse as unsigned ones where the sign is set."""
    if value.dtype != _FLOAT32:
        raise LoweringError(f"atomic_{name} of {value.dtype} is not supported in the Pallas Triton lowering")
    shape = value.shape
    as_bits = lambda each, dtype: k.op(f"tt.bitcast {each.name} : {k.type(each)} -> "
                                       f"{type_text(shape, scalar_text(np.dtype(dtype)))}", shape, dtype)
    bits = as_bits(value, np.int32)
    negative = triton_math.compare(k, "slt", bits, k.constant(0, _INT32, shape))
    positive = k.binary("arith.xori", negative, k.constant(True, np.bool_, shape))
    if mask is not None:
        negative, positive = (k.binary("arith.andi", each, mask) for each in (negative, positive))
    name_of = k.fresh()
    k.line(f"{name_of} = tt.bitcast {ref.name} : !tt.ptr<f32> -> !tt.ptr<i32>")
    other = replace(ref, name=name_of, dtype=_INT32)
    upper = _update(k, other, bits, transforms, positive, name)
    lower = _update(k, other, bits, transforms, negative, "umin" if name == "max" else "umax")
    return as_bits(select(k, negative, lower, upper), _FLOAT32)


@lowers("atomic_cas")
def _cas(k: Kernel, eqn: Any, ref: Any, expected: Value, value: Value, *leaves: Any, args_tree: Any) -> Any:
    pointer, shape, _ = pointers(k, *viewed(k, ref, args_tree.unflatten(leaves)))
    held = f"!tt.ptr<{scalar_text(value.dtype)}>"
    return k.op(f"tt.atomic_cas acq_rel, gpu, {pointer}, {expected.name}, {value.name} : "
                f"({held}, {k.type(expected)}, {k.type(value)}) -> {k.type(value)}", shape, value.dtype)


# --- control flow ------------------------------------------------------------------------------------


@lowers("jit", "remat2", "custom_jvp_call", "custom_vjp_call", "run_state")
def _call(k: Kernel, eqn: Any, *values: Any, **params: Any) -> Any:
    return k.program(params["jaxpr"] if "jaxpr" in params else params["call_jaxpr"], values)


def _named(values: Sequence[Value]) -> str:
    return ", ".join(each.name for each in values)


def _typed(k: Kernel, values: Sequence[Value]) -> str:
    return ", ".join(map(k.type, values))


def _yield(k: Kernel, values: Sequence[Value], like: Sequence[Value]) -> None:
    if values:
        values = [k.broadcast(triton_math.convert(k, each, one.dtype), one.shape)
                  for each, one in zip(values, like, strict=True)]
        k.line(f"scf.yield {_named(values)} : {_typed(k, values)}")


@lowers("cond")
def _cond(k: Kernel, eqn: Any, index: Value, *values: Any, branches: Sequence[Any], **params: Any) -> Any:
    outs = [Value("", tuple(var.aval.shape), np.dtype(var.aval.dtype)) for var in eqn.outvars]
    return _branch(k, index, values, list(branches), 0, outs)


def _branch(k: Kernel, index: Value, values: Sequence[Any], branches: list[Any], number: int, like: list[Value]) -> list[Value]:
    """The first of the branches where its number is the index, or the rest of them."""
    if len(branches) == 1:
        return k.program(branches[0], values)
    chosen = triton_math.compare(k, "sle", index, k.constant(number, index.dtype))
    outs = [Value(k.fresh(), each.shape, each.dtype) for each in like]
    head = f"{_named(outs)} = " if outs else ""
    tail = f" -> ({_typed(k, outs)})" if outs else ""
    k.line(f"{head}scf.if {chosen.name}{tail} {{")
    _yield(k, k.program(branches[0], values), outs)
    k.line("} else {")
    _yield(k, _branch(k, index, values, branches[1:], number + 1, like), outs)
    k.line("}")
    return outs


def _counter(body: Any, count: int) -> int | None:
    """Which of the carries, the last `count` inputs, grows by one in each step."""
    first = len(body.invars) - count
    for place, out in enumerate(body.outvars[:count]):
        for eqn in body.eqns:
            if eqn.outvars[0] is out and eqn.primitive.name == "add" and eqn.invars[0] is body.invars[first + place]:
                step = eqn.invars[1]
                if hasattr(step, "val") and np.asarray(step.val).item() == 1 and np.dtype(step.aval.dtype).kind == "i":
                    return place
    return None


def _for(k: Kernel, body: Any, consts: Sequence[Any], carry: list[Value], low: Value, high: Value,
         counter: int | None) -> list[Any]:
    """A loop whose index takes the place of one of the carries."""
    inits = [each for place, each in enumerate(carry) if place != counter]
    outs = [Value(k.fresh(), each.shape, each.dtype) for each in inits]
    inner = [Value(k.fresh(), each.shape, each.dtype) for each in inits]
    step = k.constant(1, low.dtype)
    index = Value(k.fresh(), (), low.dtype)
    head = f"{_named(outs)} = " if outs else ""
    tail = " iter_args(" + ", ".join(f"{one.name} = {each.name}" for one, each in zip(inner, inits, strict=True)) + (
        f") -> ({_typed(k, outs)})") if outs else ""
    k.line(f"{head}scf.for {index.name} = {low.name} to {high.name} step {step.name}{tail} : {k.type(low)} {{")
    args: list[Value] = list(inner)
    if counter is not None:
        args.insert(counter, index)
    found = k.program(body, [*consts, *args])
    _yield(k, [each for place, each in enumerate(found) if place != counter], inner)
    k.line("}")
    results: list[Any] = list(outs)
    if counter is not None:
        last = k.binary("arith.maxsi", low, high)
        results.insert(counter, last)
    return results


@lowers("scan")
def _scan(k: Kernel, eqn: Any, *values: Any, jaxpr: Any, length: int, num_consts: int, num_carry: int, **params: Any) -> Any:
    if len(values) > num_consts + num_carry or len(eqn.outvars) > num_carry:
        raise LoweringError("scan over arrays is not supported in kernels: use fori_loop, and read Refs")
    body, consts, carry = jaxpr.jaxpr, values[:num_consts], list(values[num_consts:])
    counter = _counter(body, num_carry)
    low = k.constant(0, _INT32) if counter is None else carry[counter]
    high = k.binary("arith.addi", low, k.constant(length, low.dtype))
    return _for(k, body, consts, carry, low, high, counter)


@lowers("while")
def _while(k: Kernel, eqn: Any, *values: Any, cond_jaxpr: Any, body_jaxpr: Any, cond_nconsts: int, body_nconsts: int) -> Any:
    test, body = cond_jaxpr.jaxpr, body_jaxpr.jaxpr
    if test.outvars[0].aval.ndim:  # of examples that stop at different times
        return k.program(decomposed(eqn).jaxpr, values)
    cond_consts, body_consts = values[:cond_nconsts], values[cond_nconsts:cond_nconsts + body_nconsts]
    carry = list(values[cond_nconsts + body_nconsts:])
    bounds = _bounds(test, body, cond_nconsts, len(carry))
    if bounds is not None:
        counter, limit = bounds
        high = cond_consts[limit] if limit < cond_nconsts else carry[limit - cond_nconsts]
        return _for(k, body, body_consts, carry, carry[counter], high, counter)
    outs, before, after = ([Value(k.fresh(), each.shape, each.dtype) for each in carry] for _ in range(3))
    inits = ", ".join(f"{one.name} = {each.name}" for one, each in zip(before, carry, strict=True))
    types = _typed(k, carry)
    k.line(f"{_named(outs)} = scf.while ({inits}) : ({types}) -> ({types}) {{" if carry else "scf.while : () -> () {")
    (goes_on,) = k.program(test, [*cond_consts, *before])
    k.line(f"scf.condition({goes_on.name})" + (f" {_named(before)} : {types}" if carry else ""))
    k.line("} do {")
    if carry:
        k.line(f"^bb0({', '.join(f'{each.name}: {k.type(each)}' for each in after)}):")
    _yield(k, k.program(body, [*body_consts, *after]), carry)
    if not carry:
        k.line("scf.yield")
    k.line("}")
    return outs


def _bounds(test: Any, body: Any, num_consts: int, count: int) -> tuple[int, int] | None:
    """For a loop over a range: the carry that counts, and which input of the condition is the end of the range."""
    counter = _counter(body, count)
    if counter is None or len(test.eqns) != 1 or test.eqns[0].primitive.name != "lt":
        return None
    left, right = test.eqns[0].invars
    if left is not test.invars[num_consts + counter] or right not in test.invars:
        return None
    limit = test.invars.index(right)
    place = limit - num_consts
    first = len(body.invars) - count
    if place >= 0 and body.outvars[place] is not body.invars[first + place]:
        return None  # the end moves
    return counter, limit
