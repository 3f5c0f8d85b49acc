"""StableHLO rules of the factorizations: calls of LAPACK on the CPU, of cuSOLVER or its counterpart on a GPU, XLA operations
on a TPU.

LAPACK and cuSOLVER work on column-major matrices, in place: operands and results that are matrices have this layout, and
XLA copies if necessary. If a routine fails (`info`), the matrix becomes NaN. Empty matrices are handled without LAPACK.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lowering import xla
from lowering.buffers import real_dtype
from lowering.module import LoweringError
from lowering.partitioning import batch_attributes
from lowering.rules import lowers

_PREFIX = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
_i32 = np.dtype(np.int32)
_flag = np.dtype(bool)


class _Type(NamedTuple):
    """The type of one operand or result of a routine; only matrices are column-major."""

    shape: tuple[int, ...]
    dtype: Any
    is_matrix: bool = False


def _matrix(aval: Any) -> _Type:
    return _Type(aval.shape, aval.dtype, True)


def _call(ctx: Any, routine: str, operands: Sequence[tuple[Any, _Type]], results: Sequence[_Type],
          aliases: dict[int, int], **attributes: Any) -> list[Any]:
    """One LAPACK routine, named with `?` for the letter of its dtype.

    Args:
      aliases: result -> the operand that it overwrites.
      attributes: characters, bools or ints that the routine takes.
    """
    primitive = ctx.eqn.primitive.name
    dtype = operands[0][1].dtype
    if ctx.platform != "cpu":
        raise LoweringError(f"MLIR translation rule for primitive '{primitive}' not found for platform "
                            f"{ctx.builder.vendor or ctx.platform}. Compute it under "
                            "jax.default_device(jax.devices('cpu')[0]).")
    if dtype.name not in _PREFIX:
        raise LoweringError(f"{primitive} has no implementation for {dtype.name}: LAPACK has "
                            f"{', '.join(_PREFIX)}. Convert the operand first.")
    xla.register_lapack()
    target = routine.replace("?", f"lapack_{_PREFIX[dtype.name]}") + "_ffi"
    return _custom_call(ctx, target, operands, results, aliases, attributes)


def _gpu_call(ctx: Any, routine: str, operands: Sequence[tuple[Any, _Type]], results: Sequence[_Type],
              aliases: dict[int, int], **attributes: Any) -> list[Any]:
    """One routine of a GPU's libraries, named without the letters of its vendor: 'solver_getrf_ffi' is cuSOLVER's."""
    dtype = operands[0][1].dtype
    if dtype.name not in _PREFIX:
        raise LoweringError(f"{ctx.eqn.primitive.name} has no implementation for {dtype.name}: a GPU's libraries have "
                            f"{', '.join(_PREFIX)}. Convert the operand first.")
    if routine.startswith("hybrid"):
        xla.register_lapack("gpu")
    return _vendor_call(ctx, routine, operands, results, aliases, **attributes)


def _vendor_call(ctx: Any, routine: str, operands: Sequence[tuple[Any, _Type]], results: Sequence[_Type],
                 aliases: dict[int, int], rank: int = 2, **attributes: Any) -> list[Any]:
    prefix = {"cuda": "cu", "rocm": "hip"}[ctx.builder.vendor]
    return _custom_call(ctx, prefix + routine, operands, results, aliases, attributes, rank)


def _custom_call(ctx: Any, target: str, operands: Sequence[tuple[Any, _Type]], results: Sequence[_Type],
                 aliases: dict[int, int], attributes: dict[str, Any], rank: int = 2) -> list[Any]:
    """A call of a library. Args: the `rank` that the largest operand has without the axes of a batch."""
    ir = ctx.ir
    context = ctx.builder.context
    byte = ir.IntegerType.get_unsigned(8, context=context)

    def encode(value: Any) -> Any:
        if isinstance(value, bool):
            return ctx.flag(value)
        if isinstance(value, np.uint8):
            return ir.IntegerAttr.get(byte, int(value))
        if isinstance(value, str) and len(value) > 1:
            return ctx.string(value)
        return ir.IntegerAttr.get(byte, ord(value)) if isinstance(value, str) else ctx.i32(value)

    def layouts(types: Sequence[_Type]) -> Any:
        return ctx.attribute("[" + ", ".join(map(_layout, types)) + "]")

    def alias(result: int, operand: int) -> str:
        position = f"[{result}]" if len(results) > 1 else "[]"
        return (f"#stablehlo.output_operand_alias<output_tuple_indices = {position}, operand_index = {operand}, "
                "operand_tuple_indices = []>")

    shapes, which = ctx.shape_operands([each.shape for each in results], len(operands))
    if ctx.builder.is_split and not shapes:
        which = batch_attributes(ctx, max(len(each.shape) for _, each in operands) - rank,
                                 [each.shape for _, each in operands], [each.shape for each in results])
    operation = ctx.op(
        "stablehlo.custom_call", [*(value for value, _ in operands), *shapes],
        [ctx.tensor_type(each.shape, each.dtype) for each in results],
        {"call_target_name": ctx.string(target), "api_version": ctx.i32(4),
         "backend_config": ir.DictAttr.get({key: encode(value) for key, value in attributes.items()}, context),
         "operand_layouts": layouts([*(each for _, each in operands), *(_Type((1,), _i32) for _ in shapes)]),
         "result_layouts": layouts(results),
         "output_operand_aliases": ctx.attribute(f"[{', '.join(alias(*pair) for pair in aliases.items())}]"), **which})
    return list(operation.results)


def _tpu_call(ctx: Any, target: str, operands: Sequence[Any], results: Sequence[Any], config: str = "",
              api_version: int = 1) -> list[Any]:
    """One of the factorizations that XLA has for TPUs. Args: avals of the `results`, options as text."""
    shapes, which = ctx.shape_operands([aval.shape for aval in results], len(operands))
    return list(ctx.op("stablehlo.custom_call", [*operands, *shapes], [ctx.type_of(aval) for aval in results], {
        "call_target_name": ctx.string(target), "api_version": ctx.i32(api_version),
        "backend_config": ctx.string(config), **which}).results)


def _layout(each: _Type) -> str:
    """Axes from minor to major: the last axis first, or for matrices the last but one."""
    order = list(range(len(each.shape)))[::-1]
    if each.is_matrix:
        order[:2] = order[1::-1]
    text = ", ".join(map(str, order))
    return f"dense<{f'[{text}]' if order else ''}> : tensor<{len(order)}xindex>"


# --- pieces of rules ---------------------------------------------------------------------------------


def _nan_unless(ctx: Any, ok: Any, x: Any, each: _Type) -> Any:
    """`x` where the batch's flag `ok` holds, NaN in other matrices (or vectors)."""
    mask = ctx.value("stablehlo.broadcast_in_dim", [ok], each.shape, _flag,
                     broadcast_dimensions=ctx.i64s(range(ok.type.rank)))
    nan = ctx.constant(complex(np.nan, np.nan) if each.dtype.kind == "c" else np.nan, each.dtype, each.shape)
    return ctx.value("stablehlo.select", [mask, x, nan], each.shape, each.dtype)


def _succeeded(ctx: Any, info: Any, batch: Sequence[int], direction: str = "EQ") -> Any:
    return ctx.compare(info, ctx.constant(0, _i32, batch), direction)


def _row_and_column(ctx: Any, shape: tuple[int, ...]) -> list[Any]:
    return [ctx.value("stablehlo.iota", [], shape, _i32, iota_dimension=ctx.i64(len(shape) - back)) for back in (2, 1)]


def _eye(ctx: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Identity matrices."""
    return ctx.convert(ctx.compare(*_row_and_column(ctx, shape), "EQ"), shape, dtype)


def _upper(ctx: Any, x: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """The upper triangle, zeros below."""
    keep = ctx.compare(*_row_and_column(ctx, shape), "LE")
    return ctx.value("stablehlo.select", [keep, x, ctx.constant(0, dtype, shape)], shape, dtype)


def _corner(ctx: Any, x: Any, old: tuple[int, ...], shape: tuple[int, ...], dtype: Any) -> Any:
    """The leading block of that shape, of an array of the shape `old`."""
    if old == shape:
        return x
    return ctx.value("stablehlo.slice", [x], shape, dtype, start_indices=ctx.i64s((0,) * len(shape)),
                     limit_indices=ctx.i64s(shape), strides=ctx.i64s((1,) * len(shape)))


def _columns(ctx: Any, x: Any, old: tuple[int, ...], shape: tuple[int, ...], dtype: Any) -> Any:
    """An array of the shape `old`, padded with columns of zeros to `shape`."""
    missing = shape[-1] - old[-1]
    if missing <= 0:
        return _corner(ctx, x, old, shape, dtype)
    none = (0,) * len(shape)
    return ctx.value("stablehlo.pad", [x, ctx.constant(0, dtype)], shape, dtype, edge_padding_low=ctx.i64s(none),
                     edge_padding_high=ctx.i64s((*none[1:], missing)), interior_padding=ctx.i64s(none))


def _smaller(one: Any, two: Any) -> Any:
    """The smaller of two sizes, where either may be symbolic."""
    if isinstance(one, int):
        return min(one, two) if isinstance(two, int) else two.minimum(one)
    return one.minimum(two)


def _zeros(ctx: Any, aval: Any) -> Any:
    return ctx.constant(0, aval.dtype, aval.shape)


def _is_empty(aval: Any) -> bool:
    return math.prod(aval.shape) == 0


def _orthogonal(dtype: Any, real: str, complex: str) -> str:
    return "?" + (complex if dtype.kind == "c" else real)


def _complex_of(ctx: Any, real: Any, imag: Any, each: _Type) -> Any:
    return ctx.value("stablehlo.complex", [real, imag], each.shape, each.dtype)


# --- triangles ---------------------------------------------------------------------------------------


@lowers("cholesky")
def _cholesky(ctx: Any, x: Any) -> Any:
    aval = ctx.aval_out
    if _is_empty(aval):
        return _zeros(ctx, aval)
    if ctx.platform == "tpu":
        return ctx.emit1("stablehlo.cholesky", x, lower=ctx.flag(True))
    matrix = _matrix(aval)
    types = [matrix, _Type(aval.shape[:-2], _i32)]
    if ctx.platform == "gpu":
        factor, info = _gpu_call(ctx, "solver_potrf_ffi", [(x, matrix)], types, {0: 0}, lower=True)
    else:
        factor, info = _call(ctx, "?potrf", [(x, matrix)], types, {0: 0}, uplo="L")
    return _nan_unless(ctx, _succeeded(ctx, info, aval.shape[:-2]), factor, matrix)


@lowers("triangular_solve")
def _triangular_solve(ctx: Any, a: Any, b: Any, *, left_side: bool, lower: bool, transpose_a: bool, conjugate_a: bool,
                      unit_diagonal: bool) -> Any:
    left, right = ctx.avals_in
    if _is_empty(right):
        return b
    conjugate_a = conjugate_a and left.dtype.kind == "c"
    if conjugate_a and not transpose_a:
        part = real_dtype(left.dtype)
        real, imag = (ctx.value(f"stablehlo.{name}", [a], left.shape, part) for name in ("real", "imag"))
        imag = ctx.value("stablehlo.negate", [imag], left.shape, part)
        a = _complex_of(ctx, real, imag, _matrix(left))
    if ctx.platform != "cpu" or left.dtype.name not in _PREFIX:
        kind = "NO_TRANSPOSE" if not transpose_a else "ADJOINT" if conjugate_a else "TRANSPOSE"
        return ctx.emit1("stablehlo.triangular_solve", a, b, left_side=ctx.flag(left_side), lower=ctx.flag(lower),
                         unit_diagonal=ctx.flag(unit_diagonal),
                         transpose_a=ctx.attribute(f"#stablehlo<transpose {kind}>"))
    if left_side and not conjugate_a and _is_better_by_rows(b, left.shape[-1], right.shape[-1]):
        rank = len(right.shape)
        order = [*range(rank - 2), rank - 1, rank - 2]
        rows = _Type(tuple(right.shape[axis] for axis in order), right.dtype, True)
        x = _call(ctx, "?trsm", [(a, _matrix(left)), (ctx.transposed(b, right.shape, order, right.dtype), rows)], [rows],
                  {0: 1}, side="R", uplo="L" if lower else "U", trans_x="N" if transpose_a else "T",
                  diag="U" if unit_diagonal else "N")[0]
        return ctx.transposed(x, rows.shape, order, right.dtype)
    return _call(ctx, "?trsm", [(a, _matrix(left)), (b, _matrix(right))], [_matrix(right)], {0: 1},
                 side="L" if left_side else "R", uplo="L" if lower else "U",
                 trans_x="N" if not transpose_a else "C" if conjugate_a else "T",
                 diag="U" if unit_diagonal else "N")[0]


_MANY_SIDES, _SMALL = 16, 16  # right sides whose copy takes time, and unknowns up to which rows are faster
_LIBRARY_CALL = "stablehlo.custom_call"
_ELEMENT_BY_ELEMENT = tuple(f"stablehlo.{name}" for name in "reshape multiply divide add subtract negate".split())


def _is_better_by_rows(b: Any, size: int, count: int) -> bool:
    """Whether many right sides should be the rows of a matrix to the library, x^T a^T = b^T.

    So they are without a copy; with few unknowns, the library is faster as well. But columns that are vectors of a batch, of
    another matrix that was transposed, or of what the library gives, are in memory one after the other.
    """
    if not (type(count) is int and type(size) is int) or count < _MANY_SIDES:
        return False
    return size <= _SMALL or not _is_by_columns(b)


def _is_by_columns(value: Any, depth: int = 4) -> bool:
    """Whether its columns are in memory one after the other: by at most so many operations, of what the library gives or
    of the transpose of something else.
    """
    name = getattr(value.owner, "name", "")
    if name == "stablehlo.transpose":
        return getattr(value.owner.operands[0].owner, "name", "") != _LIBRARY_CALL
    if name == _LIBRARY_CALL:
        return True
    return depth > 0 and name in _ELEMENT_BY_ELEMENT and any(_is_by_columns(each, depth - 1) for each in value.owner.operands)


@lowers("cholesky_update")
def _cholesky_update(ctx: Any, r: Any, w: Any) -> Any:
    if ctx.platform != "gpu" or _is_empty(ctx.aval_out):
        return NotImplemented
    types = [_Type(aval.shape, aval.dtype) for aval in ctx.avals_in]
    return _gpu_call(ctx, "_cholesky_update_ffi", list(zip((r, w), types, strict=True)), types, {0: 0, 1: 1})[0]


@lowers("lu")
def _lu(ctx: Any, x: Any) -> list[Any]:
    aval, pivots_aval, permutation_aval = ctx.avals_out
    batch = aval.shape[:-2]
    if _is_empty(aval):
        return [_zeros(ctx, aval), _zeros(ctx, pivots_aval),
                _permutation(ctx, None, pivots_aval.shape, permutation_aval.shape)]
    if ctx.platform == "tpu":
        return _tpu_call(ctx, "LuDecomposition", [x], ctx.avals_out, api_version=2)
    matrix = _matrix(aval)
    getrf = (_gpu_call, "solver_getrf_ffi") if ctx.platform == "gpu" else (_call, "?getrf")
    factors, pivots, info = getrf[0](ctx, getrf[1], [(x, matrix)],
                                     [matrix, _Type(pivots_aval.shape, _i32), _Type(batch, _i32)], {0: 0})
    # LAPACK counts rows from one. A positive `info` means an exact zero on the diagonal: the factors are valid.
    one = ctx.constant(1, _i32, pivots_aval.shape)
    pivots = ctx.value("stablehlo.subtract", [pivots, one], pivots_aval.shape, _i32)
    factors = _nan_unless(ctx, _succeeded(ctx, info, batch, "GE"), factors, matrix)
    return [factors, pivots, _permutation(ctx, pivots, pivots_aval.shape, permutation_aval.shape)]


@lowers("lu_pivots_to_permutation")
def _lu_pivots_to_permutation(ctx: Any, pivots: Any, *, permutation_size: int) -> Any:
    return _permutation(ctx, pivots, ctx.avals_in[0].shape, ctx.aval_out.shape)


def _permutation(ctx: Any, pivots: Any, swaps: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """The order of rows that swapping row i with row pivots[i], for i = 0, 1, ..., leads to."""
    rank, batch = len(shape), shape[:-1]
    index = ctx.value("stablehlo.iota", [], shape, _i32, iota_dimension=ctx.i64(rank - 1))
    if not math.prod(swaps):
        return index
    if ctx.platform == "gpu":  # a loop would start several kernels for each row
        return _vendor_call(ctx, "_lu_pivots_to_permutation", [(pivots, _Type(swaps, _i32))], [_Type(shape, _i32)], {},
                            rank=1)[0]
    one = (*batch, 1)
    zero, step, count = ctx.constant(0, _i32), ctx.constant(1, _i32), ctx.count(swaps[-1], _i32)
    scalar = ctx.tensor_type((), _i32)
    loop = ctx.op("stablehlo.while", [zero, index], [scalar, ctx.tensor_type(shape, _i32)], regions=2)
    test = ctx.region(loop, 0, [scalar, ctx.tensor_type(shape, _i32)])
    counter = test.arguments[0]
    test.op("stablehlo.return", [test.compare(counter, count, "LT")], [])

    body = ctx.region(loop, 1, [scalar, ctx.tensor_type(shape, _i32)])
    counter, order = body.arguments
    origin = [zero] * len(batch)

    def column(x: Any, i: Any) -> Any:
        return body.value("stablehlo.dynamic_slice", [x, *origin, i], one, _i32, slice_sizes=body.i64s(one))

    def spread(x: Any) -> Any:
        return body.broadcast(x, one, shape, _i32)

    def put(x: Any, value: Any, *at: Any) -> Any:
        return body.value("stablehlo.dynamic_update_slice", [x, value, *at], shape, _i32)

    def done(moved: Any) -> Any:
        body.op("stablehlo.return", [body.value("stablehlo.add", [counter, step], (), _i32), moved], [])
        return loop.results[1]

    if not batch:
        other = body.value("stablehlo.reshape", [column(pivots, counter)], (), _i32)
        return done(put(put(order, column(order, other), counter), column(order, counter), other))
    # Row i is at hand, row pivots[i] differs from matrix to matrix: its value is the only one not masked away.
    there = body.compare(index, spread(column(pivots, counter)), "EQ")
    zeros = body.constant(0, _i32, shape)
    masked = body.value("stablehlo.select", [there, order, zeros], shape, _i32)
    total = body.op("stablehlo.reduce", [masked, zero], [ctx.tensor_type(batch, _i32)],
                    {"dimensions": body.i64s((rank - 1,))}, regions=1)
    adder = body.region(total, 0, [scalar, scalar])
    x, y = adder.arguments
    adder.op("stablehlo.return", [adder.value("stablehlo.add", [x, y], (), _i32)], [])
    taken = body.value("stablehlo.reshape", [total.result], one, _i32)
    moved = body.value("stablehlo.select", [there, spread(column(order, counter)), order], shape, _i32)
    return done(put(moved, taken, *origin, counter))


# --- orthogonal factors ------------------------------------------------------------------------------


@lowers("qr")
def _qr(ctx: Any, x: Any, *, pivoting: bool, full_matrices: bool, use_magma: bool | None = None) -> list[Any]:
    (aval,) = ctx.avals_in
    q_aval, r_aval, *rest = ctx.avals_out
    *batch, rows, columns = aval.shape
    reflectors, dtype = _smaller(rows, columns), aval.dtype
    if _is_empty(aval):
        none = [ctx.value("stablehlo.iota", [], each.shape, _i32, iota_dimension=ctx.i64(len(each.shape) - 1))
                for each in rest]
        return [_eye(ctx, q_aval.shape, dtype), _zeros(ctx, r_aval), *none]
    matrix, scales = _matrix(aval), _Type((*batch, reflectors), dtype)
    order = []
    if pivoting:
        free = _Type((*batch, columns), _i32)
        call, options = (_gpu_call, {"magma": "auto"}) if ctx.platform == "gpu" else (_call, {})
        factored, order_found, taus = call(
            ctx, "hybrid_geqp3" if ctx.platform == "gpu" else "?geqp3",
            [(x, matrix), (ctx.constant(0, _i32, free.shape), free)],
            [matrix, free, scales], {0: 0, 1: 1}, **options)
        order = [ctx.value("stablehlo.subtract", [order_found, ctx.constant(1, _i32, free.shape)], free.shape, _i32)]
    else:
        factored, taus = _reflected(ctx, x, matrix, scales)
    q = _householder_product(ctx, _columns(ctx, factored, aval.shape, q_aval.shape, dtype), _matrix(q_aval), taus, scales)
    return [q, _upper(ctx, _corner(ctx, factored, aval.shape, r_aval.shape, dtype), r_aval.shape, dtype), *order]


@lowers("geqrf")
def _geqrf(ctx: Any, x: Any) -> list[Any]:
    aval, taus = ctx.avals_out
    if _is_empty(aval):
        return [x, _zeros(ctx, taus)]
    return _reflected(ctx, x, _matrix(aval), _Type(taus.shape, taus.dtype))


def _reflected(ctx: Any, x: Any, matrix: _Type, scales: _Type) -> list[Any]:
    """A matrix as Householder reflections below the diagonal and R on and above it, and the scales of the reflections."""
    if ctx.platform == "tpu":
        return _tpu_call(ctx, "Qr", [x], [matrix, scales])
    if ctx.platform == "gpu":
        return _gpu_call(ctx, "solver_geqrf_ffi", [(x, matrix)], [matrix, scales], {0: 0})
    return _call(ctx, "?geqrf", [(x, matrix)], [matrix, scales], {0: 0})


@lowers("householder_product")
def _householder(ctx: Any, a: Any, taus: Any) -> Any:
    aval, scales = ctx.avals_in
    if _is_empty(aval):
        return a
    if _is_empty(scales):
        return _eye(ctx, aval.shape, aval.dtype)
    return _householder_product(ctx, a, _matrix(aval), taus, _Type(scales.shape, scales.dtype))


def _householder_product(ctx: Any, a: Any, matrix: _Type, taus: Any, scales: _Type) -> Any:
    if ctx.platform == "tpu":
        return _tpu_call(ctx, "ProductOfElementaryHouseholderReflectors", [a, taus], [matrix])[0]
    if ctx.platform == "gpu":
        return _gpu_call(ctx, "solver_orgqr_ffi", [(a, matrix), (taus, scales)], [matrix], {0: 0})[0]
    return _call(ctx, _orthogonal(matrix.dtype, "orgqr", "ungqr"), [(a, matrix), (taus, scales)], [matrix], {0: 0})[0]


@lowers("ormqr")
def _ormqr(ctx: Any, a: Any, taus: Any, c: Any, *, left: bool, transpose: bool) -> Any:
    a_aval, scales, c_aval = ctx.avals_in
    if _is_empty(c_aval) or _is_empty(scales):
        return c
    if ctx.platform == "tpu":
        return NotImplemented
    operands = [(a, _matrix(a_aval)), (taus, _Type(scales.shape, scales.dtype)), (c, _matrix(c_aval))]
    if ctx.platform == "gpu":
        return _gpu_call(ctx, "solver_ormqr_ffi", operands, [_matrix(c_aval)], {0: 2}, left=left, transpose=transpose)[0]
    return _call(ctx, _orthogonal(c_aval.dtype, "ormqr", "unmqr"), operands, [_matrix(c_aval)], {0: 2}, left=left,
                 transpose=transpose)[0]


@lowers("hessenberg")
def _hessenberg(ctx: Any, a: Any) -> list[Any]:
    aval, scales = ctx.avals_out
    if _is_empty(aval) or _is_empty(scales):
        return [a, _zeros(ctx, scales)]
    matrix, taus_type = _matrix(aval), _Type(scales.shape, scales.dtype)
    reduced, taus, info = _call(ctx, "?gehrd", [(a, matrix)], [matrix, taus_type, _Type(aval.shape[:-2], _i32)], {0: 0},
                                low=1, high=aval.shape[-1])
    ok = _succeeded(ctx, info, aval.shape[:-2])
    return [_nan_unless(ctx, ok, reduced, matrix), _nan_unless(ctx, ok, taus, taus_type)]


@lowers("tridiagonal")
def _tridiagonal(ctx: Any, a: Any, *, lower: bool) -> list[Any]:
    aval, *vectors = ctx.avals_out
    if _is_empty(aval):
        return [_zeros(ctx, each) for each in ctx.avals_out]
    types = [_matrix(aval), *(_Type(each.shape, each.dtype) for each in vectors)]
    results_types = [*types, _Type(aval.shape[:-2], _i32)]
    if ctx.platform == "gpu":
        *results, info = _gpu_call(ctx, "solver_sytrd_ffi", [(a, types[0])], results_types, {0: 0}, lower=lower)
    else:
        *results, info = _call(ctx, _orthogonal(aval.dtype, "sytrd", "hetrd"), [(a, types[0])], results_types, {0: 0},
                               uplo="L" if lower else "U")
    ok = _succeeded(ctx, info, aval.shape[:-2])
    return [_nan_unless(ctx, ok, x, each) for x, each in zip(results, types, strict=True)]


@lowers("tridiagonal_solve")
def _tridiagonal_solve(ctx: Any, dl: Any, d: Any, du: Any, b: Any, *, perturb_singular: bool) -> Any:
    diagonal, right = ctx.avals_in[0], ctx.avals_in[3]
    if _is_empty(right):
        return b
    if ctx.platform == "tpu" and not perturb_singular:
        return NotImplemented
    batch = diagonal.shape[:-1]
    vector, matrix = _Type(diagonal.shape, right.dtype), _matrix(right)
    if perturb_singular:
        operands = [*((x, vector) for x in (dl, d, du)), (b, matrix)]
        if ctx.platform == "gpu":
            return _gpu_call(ctx, "_tridiagonal_solve_perturbed", operands, [matrix], {})[0]
        return _call(ctx, "tridiagonal_solve_perturbed", operands, [matrix], {})[0]
    types = [vector, vector, vector, matrix]
    if ctx.platform == "gpu":
        return _gpu_call(ctx, "sparse_gtsv2_ffi", list(zip((dl, d, du, b), types, strict=True)), [matrix], {0: 3})[0]
    *_, solution, info = _call(ctx, "?gtsv", list(zip((dl, d, du, b), types, strict=True)),
                               [*types, _Type(batch, _i32)], {0: 0, 1: 1, 2: 2, 3: 3})
    return _nan_unless(ctx, _succeeded(ctx, info, batch), solution, matrix)


# --- eigenvalues and singular values -----------------------------------------------------------------


# By platform, the names of `EighImplementation` that it has; for a GPU with the code of cuSOLVER's algorithm.
_EIGH_ALGORITHMS: dict[str, dict[str | None, Any]] = {
    "cpu": {None: None, "QR": None}, "tpu": {None: None, "JACOBI": None},
    "gpu": {None: np.uint8(0), "QR": np.uint8(1), "JACOBI": np.uint8(2)},
}


@lowers("eigh")
def _eigh(ctx: Any, x: Any, *, lower: bool, sort_eigenvalues: bool, subset_by_index: Any, algorithm: Any) -> list[Any]:
    vectors_aval, values_aval = ctx.avals_out
    (aval,) = ctx.avals_in
    if subset_by_index not in (None, (0, aval.shape[-1])):
        raise LoweringError(f"eigh: subset_by_index is not supported on the {ctx.platform.upper()}; compute all and slice")
    name = getattr(algorithm, "name", None)
    if name not in _EIGH_ALGORITHMS[ctx.platform]:
        known = ", ".join(each for each in _EIGH_ALGORITHMS[ctx.platform] if each)
        raise LoweringError(f"eigh: the {ctx.platform.upper()} has no {algorithm}; leave `implementation` out, or ask for "
                            f"{known}")
    if _is_empty(aval):
        return [_zeros(ctx, vectors_aval), _zeros(ctx, values_aval)]
    matrix, values_type = _matrix(vectors_aval), _Type(values_aval.shape, values_aval.dtype)
    if ctx.platform == "tpu":
        return _tpu_call(ctx, "Eigh", [x], ctx.avals_out, f"{int(lower)},{int(sort_eigenvalues)},100,1e-6")
    types = [matrix, values_type, _Type(aval.shape[:-2], _i32)]
    if ctx.platform == "gpu":
        vectors, values, info = _gpu_call(ctx, "solver_syevd_ffi", [(x, matrix)], types, {0: 0}, lower=lower,
                                          algorithm=_EIGH_ALGORITHMS["gpu"][name])
    else:
        vectors, values, info = _call(ctx, _orthogonal(aval.dtype, "syevd", "heevd"), [(x, matrix)], types, {0: 0}, mode="V",
                                      uplo="L" if lower else "U")
    ok = _succeeded(ctx, info, aval.shape[:-2])
    return [_nan_unless(ctx, ok, vectors, matrix), _nan_unless(ctx, ok, values, values_type)]


@lowers("eig")
def _eig(ctx: Any, x: Any, *, compute_left_eigenvectors: bool, compute_right_eigenvectors: bool,
         enable_eigvec_derivs: bool, implementation: Any) -> list[Any]:
    (aval,) = ctx.avals_in
    if getattr(implementation, "name", "LAPACK") != "LAPACK":
        raise LoweringError(f"eig: the CPU has no {implementation}; leave `implementation` out, or ask for LAPACK")
    if _is_empty(aval):
        return [_zeros(ctx, each) for each in ctx.avals_out]
    dtype = ctx.avals_out[0].dtype
    values_type, vectors_type = _Type(aval.shape[:-1], dtype), _Type(aval.shape, dtype, True)
    parts = [values_type] if aval.dtype.kind == "c" else [_Type(aval.shape[:-1], aval.dtype)] * 2
    types = [*parts, vectors_type, vectors_type, _Type(aval.shape[:-2], _i32)]
    if ctx.platform == "gpu":
        *found, left, right, info = _gpu_call(
            ctx, "hybrid_eig_comp" if aval.dtype.kind == "c" else "hybrid_eig_real", [(x, _matrix(aval))], types, {},
            magma="auto", left=compute_left_eigenvectors, right=compute_right_eigenvectors)
    else:
        *found, left, right, info = _call(ctx, "?geev", [(x, _matrix(aval))], types, {},
                                          compute_left="V" if compute_left_eigenvectors else "N",
                                          compute_right="V" if compute_right_eigenvectors else "N")
    ok = _succeeded(ctx, info, aval.shape[:-2])
    values = found[0] if len(found) == 1 else _complex_of(ctx, found[0], found[1], values_type)
    results = [_nan_unless(ctx, ok, values, values_type)]
    wanted = [left] * compute_left_eigenvectors + [right] * compute_right_eigenvectors
    return results + [_nan_unless(ctx, ok, vectors, vectors_type) for vectors in wanted]


@lowers("schur")
def _schur(ctx: Any, x: Any, *, compute_schur_vectors: bool, sort_eig_vals: bool, select_callable: Any) -> list[Any]:
    (aval,) = ctx.avals_in
    if sort_eig_vals:
        raise LoweringError("schur: sorting eigenvalues is not supported")
    if _is_empty(aval):
        return [_zeros(ctx, each) for each in ctx.avals_out]
    matrix, status = _matrix(aval), _Type(aval.shape[:-2], _i32)
    values = [_Type(aval.shape[:-1], aval.dtype)] * (1 if aval.dtype.kind == "c" else 2)
    form, vectors, *_, info = _call(ctx, "?gees", [(x, matrix)], [matrix, matrix, *values, status, status], {0: 0},
                                    mode="V" if compute_schur_vectors else "N", sort="N")
    ok = _succeeded(ctx, info, aval.shape[:-2])
    wanted = [form, vectors] if compute_schur_vectors else [form]
    return [_nan_unless(ctx, ok, each, matrix) for each in wanted]


@lowers("svd")
def _svd(ctx: Any, x: Any, *, full_matrices: bool, compute_uv: bool, subset_by_index: Any = None,
         algorithm: Any = None) -> Any:
    (aval,) = ctx.avals_in
    if ctx.platform == "tpu" and not _is_empty(aval):
        return NotImplemented
    name = getattr(algorithm, "name", "DEFAULT")
    if subset_by_index not in (None, (0, _smaller(*aval.shape[-2:]))):
        raise LoweringError("svd: subset_by_index is not supported; compute all and slice")
    known = ("DEFAULT", "QR", "DIVIDE_AND_CONQUER") if ctx.platform == "cpu" else ("DEFAULT", "QR", "JACOBI", "POLAR")
    if ctx.builder.vendor == "rocm":
        known = known[:3]
    if name not in known:
        raise LoweringError(f"svd: the {ctx.platform.upper()} has no {algorithm}; leave `algorithm` out, or ask for "
                            f"{' or '.join(known[1:])}")
    values_aval, *vectors = ctx.avals_out
    *batch, rows, columns = aval.shape
    if _is_empty(aval):
        return [_zeros(ctx, values_aval), *(_eye(ctx, each.shape, each.dtype) for each in vectors)]
    inner = _smaller(rows, columns)
    left = (*batch, rows, rows if full_matrices else inner)
    right = (*batch, columns if full_matrices else inner, columns)
    matrix, values_type = _matrix(aval), _Type(values_aval.shape, values_aval.dtype)
    left_type, right_type = _Type(left, aval.dtype, True), _Type(right, aval.dtype, True)
    if ctx.platform == "gpu":
        values, u, vt, info = _gpu_svd(ctx, x, matrix, values_type, left_type, right_type, full_matrices, compute_uv, name)
    else:
        _, values, u, vt, info = _call(
            ctx, "?gesvd" if name == "QR" else "?gesdd", [(x, matrix)],
            [matrix, values_type, left_type, right_type, _Type(tuple(batch), _i32)], {0: 0},
            mode="N" if not compute_uv else "A" if full_matrices else "S")
    ok = _succeeded(ctx, info, aval.shape[:-2])
    results = [_nan_unless(ctx, ok, values, values_type)]
    if compute_uv:
        results += [_nan_unless(ctx, ok, u, left_type), _nan_unless(ctx, ok, vt, right_type)]
    return results


_JACOBI_LIMIT = 1024  # rows and columns up to which the Jacobi method is the faster one on a GPU
_BATCHED_LIMIT = 32  # up to which cuSOLVER handles a batch by one kernel, which gives square factors alone


def _gpu_svd(ctx: Any, x: Any, matrix: _Type, values: _Type, left: _Type, right: _Type, full_matrices: bool,
             compute_uv: bool, algorithm: str) -> list[Any]:
    """Singular values, left vectors, right vectors (transposed, conjugated) and status, by cuSOLVER."""
    *batch, rows, columns = matrix.shape
    status = _Type(tuple(batch), _i32)
    options = {"full_matrices": full_matrices, "compute_uv": compute_uv}
    if algorithm == "POLAR" or algorithm == "JACOBI" or algorithm == "DEFAULT" and max(rows, columns) <= _JACOBI_LIMIT:
        inner = _smaller(rows, columns)
        if algorithm != "POLAR" and inner <= _BATCHED_LIMIT:
            options["full_matrices"] = True
        sizes = (rows, columns) if options["full_matrices"] else (inner, inner)
        square = [_Type((*batch, each, size), matrix.dtype, True) for each, size in zip((rows, columns), sizes, strict=True)]
        routine = "solver_gesvdp_ffi" if algorithm == "POLAR" else "solver_gesvdj_ffi"
        _, found, u, v, info = _gpu_call(ctx, routine, [(x, matrix)], [matrix, values, *square, status], {0: 0}, **options)
        u = _corner(ctx, u, square[0].shape, left.shape, left.dtype)
        v = _corner(ctx, v, square[1].shape, (*batch, columns, right.shape[-2]), right.dtype)
        order = (*range(len(batch)), len(batch) + 1, len(batch))
        vt = ctx.transposed(v, (*batch, columns, right.shape[-2]), order, right.dtype)
        if matrix.dtype.kind == "c":
            part = real_dtype(matrix.dtype)
            real, imag = (ctx.value(f"stablehlo.{name}", [vt], right.shape, part) for name in ("real", "imag"))
            vt = _complex_of(ctx, real, ctx.value("stablehlo.negate", [imag], right.shape, part), right)
        return [found, u, vt, info]
    if rows >= columns:
        _, found, u, vt, info = _gpu_call(ctx, "solver_gesvd_ffi", [(x, matrix)], [matrix, values, left, right, status], {0: 0},
                                          transposed=False, **options)
        return [found, u, vt, info]
    # The routine wants no fewer rows than columns. A matrix in row-major order is its transpose to it, and so are the results.
    flat, left, right = (each._replace(is_matrix=False) for each in (matrix, left, right))
    _, found, vt, u, info = _gpu_call(ctx, "solver_gesvd_ffi", [(x, flat)], [flat, values, right, left, status], {0: 0},
                                      transposed=True, **options)
    return [found, u, vt, info]
