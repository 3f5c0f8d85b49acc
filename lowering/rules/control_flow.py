"""StableHLO rules of branches and loops. Regions can use values from outside, so operands that a loop does not change are not
carried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lowering import xla
from lowering.buffers import physical
from lowering.module import LoweringError, is_ordered
from lowering.rules import lowers

_i32 = np.dtype(np.int32)
_i64 = np.dtype(np.int64)
_SMALL = 4  # a body of so few equations is cheaper to write again than to call


# --- branches ----------------------------------------------------------------------------------------


@lowers("cond")
def _cond(ctx: Any, index: Any, *operands: Any, branches: Any, branches_platforms: Any = None) -> list[Any]:
    if branches_platforms is not None:
        return ctx.inline(branches[_platform_position(ctx, branches_platforms)].jaxpr, operands)
    ordered = is_ordered(ctx.eqn)
    types = [ctx.type_of(aval) for aval in ctx.avals_out]
    token = [ctx.token] if ordered else []
    operation = ctx.op("stablehlo.case", [index], [*types, *(each.type for each in token)], regions=len(branches))
    for number, branch in enumerate(branches):
        region = ctx.region(operation, number, [])
        if ordered:
            region.token = ctx.token
        outs = region.inline(branch.jaxpr, operands)
        region.op("stablehlo.return", [*outs, region.token] if ordered else outs, [])
    return _without_token(ctx, list(operation.results), ordered)


def _without_token(ctx: Any, results: list[Any], ordered: bool) -> list[Any]:
    """The results of a loop or branch; if its effects are ordered, the last is the token for those that follow."""
    if ordered:
        ctx.token = results.pop()
    return results


@lowers("platform_index")
def _platform_index(ctx: Any, *, platforms: Any) -> Any:
    return ctx.constant(_platform_position(ctx, platforms), _i32)


def _platform_position(ctx: Any, platforms: Any) -> int:
    names = ["gpu", ctx.builder.vendor] if ctx.platform == "gpu" else [ctx.platform]
    if not ctx.builder.is_split:
        names.append(f"one_{ctx.platform}")  # functions of ours that XLA would not split well between devices
    for position, group in enumerate(platforms):
        if group is None or any(name in names for name in group):
            return position
    known = ", ".join(name for group in platforms for name in group)
    raise LoweringError(f"platform_dependent has no function for the platform {ctx.platform!r} and no default; "
                        f"there are functions for: {known or 'none'}")


# --- loops -------------------------------------------------------------------------------------------


@lowers("while")
def _while(ctx: Any, *operands: Any, cond_jaxpr: Any, body_jaxpr: Any, cond_nconsts: int,
           body_nconsts: int) -> Any:
    if cond_jaxpr.out_avals[0].ndim:  # of examples that stop at different times
        return NotImplemented
    first = cond_nconsts + body_nconsts
    cond_consts, body_consts, carry = operands[:cond_nconsts], operands[cond_nconsts:first], operands[first:]
    if is_ordered(cond_jaxpr):
        return _while_with_ordered_condition(ctx, cond_jaxpr.jaxpr, cond_consts, body_jaxpr.jaxpr, body_consts, carry)
    ordered = is_ordered(body_jaxpr)
    if ordered:
        carry = (*carry, ctx.token)
    types = [value.type for value in carry]
    operation = ctx.op("stablehlo.while", carry, types, regions=2)
    for index, jaxpr, consts in ((0, cond_jaxpr, cond_consts), (1, body_jaxpr, body_consts)):
        region = ctx.region(operation, index, types)
        arguments = region.arguments
        if ordered:
            region.token = arguments.pop()
        outs = region.inline(jaxpr.jaxpr, [*consts, *arguments])
        region.op("stablehlo.return", [*outs, region.token] if ordered and index else outs, [])
    return _without_token(ctx, list(operation.results), ordered)


def _while_with_ordered_condition(ctx: Any, condition: Any, cond_consts: Sequence[Any], body: Any,
                                  body_consts: Sequence[Any], carry: Sequence[Any]) -> list[Any]:
    """A loop's condition cannot return a token, so it is computed before the loop and at the end of each step."""
    (going,) = ctx.inline(condition, [*cond_consts, *carry])
    state = [going, *carry, ctx.token]
    types = [value.type for value in state]
    operation = ctx.op("stablehlo.while", state, types, regions=2)
    test, step = (ctx.region(operation, index, types) for index in range(2))
    test.op("stablehlo.return", test.arguments[:1], [])
    arguments = step.arguments[1:]
    step.token = arguments.pop()
    outs = step.inline(body, [*body_consts, *arguments])
    (going,) = step.inline(condition, [*cond_consts, *outs])
    step.op("stablehlo.return", [going, *outs, step.token], [])
    return _without_token(ctx, list(operation.results)[1:], True)


@lowers("scan")
def _scan(ctx: Any, *operands: Any, jaxpr: Any, length: int, num_carry: int, num_consts: int, reverse: bool,
          unroll: int, **params: Any) -> list[Any]:
    fixed = num_consts + num_carry
    loop = _Scan(jaxpr.jaxpr, operands[:num_consts], operands[fixed:], num_carry, length, reverse, max(unroll, 1))
    return loop.lower(ctx, list(operands[num_consts:fixed]))


class _Scan:
    """One scan: a while loop over chunks of `unroll` steps, and the steps that are left after it (before it, in
    `reverse`: below it in memory) in straight line."""

    def __init__(self, jaxpr: Any, consts: Sequence[Any], xs: Sequence[Any], num_carry: int, length: int, reverse: bool,
                 unroll: int):
        self.jaxpr, self.consts, self.xs, self.num_carry = jaxpr, consts, xs, num_carry
        self.length, self.reverse, self.unroll = length, reverse, unroll
        if type(length) is not int:
            self.unroll = unroll = 1
        self.looped = length // unroll * unroll  # the steps inside the loop
        if type(length) is int and self.looped <= unroll:
            self.looped = 0
        self.has_loop = type(length) is not int or self.looped > 0
        self.copies = (unroll if self.has_loop else 0) + length - self.looped
        self.x_types = [physical(var.aval) for var in jaxpr.invars[len(consts) + num_carry:]]
        self.y_types = [physical(atom.aval) for atom in jaxpr.outvars[num_carry:]]
        self.index_dtype = _i64 if type(length) is int and length > np.iinfo(_i32).max else _i32

    def lower(self, ctx: Any, carry: list[Any]) -> list[Any]:
        rest = self.length - self.looped
        ys: list[Any] = []
        if self.has_loop or not self.length:
            ys = [ctx.constant(0, _kept(ctx, dtype), (self.length, *shape)) for shape, dtype in self.y_types]
        if self.has_loop:
            carry, ys = self.loop(ctx, carry, ys)
        if rest:
            # What the loop leaves over is at the end, in reverse at the beginning.
            start = 0 if self.reverse else self.looped
            xs = [self.static_slice(ctx, x, start, rest, *kind) for x, kind in zip(self.xs, self.x_types, strict=True)]
            carry, chunks = self.steps(ctx, carry, xs, rest)
            if self.has_loop:
                at = ctx.constant(start, self.index_dtype)
                ys = [self.put(ctx, y, chunk, at, *kind)
                      for y, chunk, kind in zip(ys, chunks, self.y_types, strict=True)]
            else:
                return [*carry, *chunks]
        return [*carry, *(_recast(ctx, y, _kept(ctx, dtype), dtype)
                          for y, (_, dtype) in zip(ys, self.y_types, strict=True))]

    def loop(self, ctx: Any, carry: list[Any], ys: list[Any]) -> tuple[list[Any], list[Any]]:
        ordered = is_ordered(self.jaxpr)
        whole = [_recast(ctx, x, dtype, _kept(ctx, dtype)) for x, (_, dtype) in zip(self.xs, self.x_types, strict=True)]
        state = [ctx.constant(0, self.index_dtype), *carry, *ys]
        if ordered:
            state.append(ctx.token)
        types = [value.type for value in state]
        operation = ctx.op("stablehlo.while", state, types, regions=2)
        if type(self.length) is int:
            ctx.builder.overwritten += [(operation, 1 + self.num_carry + at, ctx, (self.length, *shape), _kept(ctx, dtype))
                                        for at, (shape, dtype) in enumerate(self.y_types)]

        test = ctx.region(operation, 0, types)
        limit = test.count(self.looped, self.index_dtype)
        test.op("stablehlo.return", [test.compare(test.arguments[0], limit, "LT", "SIGNED")], [])

        body = ctx.region(operation, 1, types)
        index, *rest = body.arguments
        if ordered:
            body.token = rest.pop()
        carry, ys = rest[: self.num_carry], rest[self.num_carry:]
        start = index
        if self.reverse:
            last = body.count(self.length - self.unroll, self.index_dtype)
            start = body.value("stablehlo.subtract", [last, index], (), self.index_dtype)
        xs = [self.get(body, x, start, *kind) for x, kind in zip(whole, self.x_types, strict=True)]
        carry, chunks = self.steps(body, carry, xs, self.unroll)
        ys = [self.put(body, y, chunk, start, *kind) for y, chunk, kind in zip(ys, chunks, self.y_types, strict=True)]
        step = body.constant(self.unroll, self.index_dtype)
        following = body.value("stablehlo.add", [index, step], (), self.index_dtype)
        body.op("stablehlo.return", [following, *carry, *ys, *([body.token] if ordered else [])], [])
        results = _without_token(ctx, list(operation.results), ordered)
        return results[1: 1 + self.num_carry], results[1 + self.num_carry:]

    def steps(self, ctx: Any, carry: list[Any], xs: list[Any], count: int) -> tuple[list[Any], list[Any]]:
        """`count` steps in straight line over chunks of that size; gives the carry and the chunks of ys."""
        rows: list[list[Any]] = [[] for _ in self.y_types]
        for at in reversed(range(count)) if self.reverse else range(count):
            elements = []
            for x, (shape, dtype) in zip(xs, self.x_types, strict=True):
                one = self.static_slice(ctx, x, at, 1, shape, dtype, of=count)
                elements.append(ctx.value("stablehlo.reshape", [one], shape, dtype))
            values = [*self.consts, *carry, *elements]
            if self.copies == 1 or len(self.jaxpr.eqns) <= _SMALL:
                outs = ctx.inline(self.jaxpr, values)
            else:
                outs = ctx.call(self.jaxpr, "scan_body", values)
            carry = outs[: self.num_carry]
            for row, y, (shape, dtype) in zip(rows, outs[self.num_carry:], self.y_types, strict=True):
                row.append(ctx.value("stablehlo.reshape", [y], (1, *shape), dtype))
        chunks = []
        for row, (shape, dtype) in zip(rows, self.y_types, strict=True):
            if self.reverse:
                row.reverse()
            chunks.append(row[0] if count == 1 else ctx.value(
                "stablehlo.concatenate", row, (count, *shape), dtype, dimension=ctx.i64(0)))
        return carry, chunks

    # --- chunks along the leading axis

    def static_slice(self, ctx: Any, x: Any, start: int, size: int, shape: Sequence[int], dtype: Any,
                     of: int | None = None) -> Any:
        if size == (self.length if of is None else of):
            return x
        zeros, ones = (0,) * len(shape), (1,) * (1 + len(shape))
        return ctx.value("stablehlo.slice", [x], (size, *shape), dtype, start_indices=ctx.i64s((start, *zeros)),
                         limit_indices=ctx.i64s((start + size, *shape)), strides=ctx.i64s(ones))

    def get(self, ctx: Any, x: Any, start: Any, shape: Sequence[int], dtype: Any) -> Any:
        zeros = [ctx.constant(0, self.index_dtype)] * len(shape)
        sizes, kept = (self.unroll, *shape), _kept(ctx, dtype)
        chunk = ctx.value("stablehlo.dynamic_slice", [x, start, *zeros], sizes, kept, slice_sizes=ctx.i64s(sizes))
        return _recast(ctx, chunk, kept, dtype)

    def put(self, ctx: Any, y: Any, chunk: Any, start: Any, shape: Sequence[int], dtype: Any) -> Any:
        zeros, kept = [ctx.constant(0, self.index_dtype)] * len(shape), _kept(ctx, dtype)
        chunk = _recast(ctx, chunk, dtype, kept)
        return ctx.value("stablehlo.dynamic_update_slice", [y, chunk, start, *zeros], (self.length, *shape), kept)


def _kept(ctx: Any, dtype: Any) -> Any:
    """The dtype in which a loop keeps arrays that it reads or writes a row of in each iteration: none that XLA would widen."""
    return np.dtype(f"u{dtype.itemsize}") if ctx.platform == "cpu" and dtype.name.startswith(xla.WIDENED) else dtype


def _recast(ctx: Any, x: Any, dtype: Any, to: Any) -> Any:
    """The same bits as elements of another dtype."""
    return x if dtype == to else ctx.value("stablehlo.bitcast_convert", [x], x.type.shape, to)


# --- solvers -----------------------------------------------------------------------------------------


@lowers("custom_linear_solve", "custom_root", "linear_call")
def _solver(ctx: Any, *operands: Any, jaxprs: tuple[Any, ...], const_lengths: tuple[int, ...], **_: Any) -> list[Any]:
    """Run the second of the jaxprs, on its constants and the operands after all constants."""
    first = const_lengths[0]
    own, given = operands[first:first + const_lengths[1]], operands[sum(const_lengths):]
    return ctx.inline(jaxprs[1].jaxpr, (*own, *given))
