"""Lowering of high types: replaces values that consist of arrays by these arrays, before a program is lowered.

`lower_types` rewrites a program whose values may have high types (`core/high.py`). Inputs become their arrays. The results
are the arrays of the outputs, followed by the final contents of mutable values. An operation on such values defines its own
expansion (`to_lojax`); primitives with sub-jaxprs have a rule here, or are inlined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jaxlite.core.aval import with_axis
from jaxlite.core.high import AvalQDD, cur_qdd, is_high_value, raised, with_states
from jaxlite.core.jaxpr import ClosedJaxpr, Var, derived, eval_jaxpr, has_high_types, jaxprs_in_params
from jaxlite.core.staging import StagingTrace, hoist_consts, trace_to_jaxpr
from jaxlite.core.tracing import set_trace
from jaxlite.core.values import aval_of


class LowTrace(StagingTrace):
    """Records a program of arrays. Values of high types are what libraries made them, and consist of tracers."""

    __slots__ = ()

    def process(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        if primitive.to_lojax is not None:
            return primitive.to_lojax(*args, **params)
        programs = list(jaxprs_in_params(params))
        if not any(map(is_high_value, args)) and not any(map(has_high_types, programs)):
            return super().process(primitive, args, params)
        rule = _rules.get(primitive.name)
        if rule is not None:
            return rule(self, primitive, list(args), params)
        if primitive.function_of_call is not None:
            return primitive.function_of_call(params)(*args)
        for jaxpr in programs:
            if len(jaxpr.invars) == len(args):
                return eval_jaxpr(jaxpr, [], *args)
        high = ", ".join(str(aval_of(arg)) for arg in args if is_high_value(arg))
        raise TypeError(f"{primitive.name} works on arrays, but got values of the types {high}")

    apply = process


class LowProgram:
    """A program of arrays in the place of one with high types.

    Attributes: `closed`, the program; `in_avals`, the types of the inputs as they were; `firsts`, for each input the index of
    the first one that is the same value; `outs`, for each output its type, or the index of the input that it is; `changed`,
    indices of inputs whose value it changes, with the state that they get.
    """

    __slots__ = ("closed", "in_avals", "firsts", "outs", "changed")

    def __init__(self, program: ClosedJaxpr, firsts: tuple[int, ...]):
        jaxpr = program.jaxpr
        assert not jaxpr.constvars
        self.in_avals, self.firsts = program.in_avals, firsts
        self.outs: list[Any] = []
        self.changed: dict[int, AvalQDD] = {}
        trace = LowTrace(jaxpr.debug_info)
        low = [trace.new_arg(aval) for part in self.own(self.in_avals) for aval in part.lo_ty()]
        try:
            with set_trace(trace):
                args = self._raised(low)
                outs = list(self._flat_outputs(args, eval_jaxpr(jaxpr, [], *args), low))
                self.closed = ClosedJaxpr(*trace.finish(outs))
        finally:
            trace.alive = False

    def _flat_outputs(self, args: list[Any], outs: list[Any], low: list[Any]) -> Iterator[Any]:
        places = {id(arg): index for index, arg in enumerate(args) if self.in_avals[index].has_qdd}
        for out in outs:
            aval = aval_of(out)
            if id(out) in places:
                self.outs.append(places[id(out)])
                continue
            if aval.has_qdd:
                aval = AvalQDD(aval, cur_qdd(out))
            self.outs.append(aval)
            yield from aval.lower_val(out)
        before = iter(low)
        for index in self.own(range(len(args))):
            arg, aval = args[index], self.in_avals[index]
            own = [next(before) for _ in aval.lo_ty()]
            if aval.has_qdd:
                now = AvalQDD(aval.aval, cur_qdd(arg))
                values = now.read_loval(arg)
                if now != aval and self.firsts.count(index) > 1:
                    raise ValueError(f"a value of the type {aval} was passed twice, or passed and closed over, and the "
                                     f"function changes its state, from {aval.qdd} to {now.qdd}")
                if now != aval or any(one is not other for one, other in zip(own, values, strict=True)):
                    self.changed[index] = now
                    yield from values

    def own(self, parts: Sequence[Any]) -> list[Any]:
        """What belongs to inputs, without those that are the same value as an earlier one."""
        return [part for index, part in enumerate(parts) if self.firsts[index] == index]

    def _raised(self, low: Sequence[Any]) -> list[Any]:
        """The inputs, from their arrays."""
        args: list[Any] = []
        rest = iter(low)
        for index, (aval, first) in enumerate(zip(self.in_avals, self.firsts, strict=True)):
            args.append(raised(aval, rest) if first == index else args[first])
        return args

    def lowered(self, args: Sequence[Any]) -> list[Any]:
        """The arrays of arguments."""
        pairs = zip(self.own(self.in_avals), self.own(args), strict=True)
        return [array for aval, arg in pairs for array in aval.lower_val(arg)]

    def raised(self, args: Sequence[Any], low: Sequence[Any]) -> list[Any]:
        """The results for arguments, from what the program of arrays gave; puts into the arguments what changed."""
        rest = iter(low)
        outs = [args[out] if type(out) is int else raised(out, rest) for out in self.outs]
        for index, now in self.changed.items():
            now.aval.update_from_loval(now.qdd, args[index], *[next(rest) for _ in now.lo_ty()])
        return outs

    @property
    def num_low_outs(self) -> int:
        """How many arrays the outputs are, without those of what changed."""
        return sum(len(out.lo_ty()) for out in self.outs if type(out) is not int)


def lower_types(closed: ClosedJaxpr, args: Sequence[Any] | None = None) -> LowProgram:
    """A program that closes over nothing as one of arrays, for arguments some of which may be the same value; remembered."""
    seen: dict[int, int] = {}
    firsts = tuple([seen.setdefault(id(arg), index) if aval.has_qdd else index
                    for index, (aval, arg) in enumerate(zip(closed.in_avals, args or closed.jaxpr.invars, strict=True))])
    return derived(closed, ("low", *firsts), lambda: LowProgram(closed, firsts))


def _as_program(low: LowProgram) -> tuple[ClosedJaxpr, list[Any]]:
    return hoist_consts(low.closed.jaxpr), low.closed.consts


class HighCall:
    """The compiled form of a program with high types: a jitted function of arrays."""

    __slots__ = ("program", "make_call", "calls")

    def __init__(self, program: Any, make_call: Any):
        self.program, self.make_call = program, make_call
        self.calls: dict[LowProgram, Any] = {}

    def __call__(self, leaves: Sequence[Any]) -> list[Any]:
        closed, consts = self.program.as_operand()
        operands = [*consts, *leaves]
        low = lower_types(closed, operands)
        call = self.calls.get(low)
        if call is None:
            call = self.calls[low] = self._made(low, len(consts))
        return low.raised(operands, call(*low.lowered(operands)))

    def _made(self, low: LowProgram, num_consts: int) -> Any:
        pure, program = low.closed, self.program

        def run(*values: Any) -> list[Any]:
            return eval_jaxpr(pure.jaxpr, pure.consts, *values)

        run.__name__ = run.__qualname__ = program.name
        flags = spread_over_arrays(low, [False] * num_consts + list(program.donated))
        ins, outs = program.in_shardings, program.out_shardings
        return self.make_call(
            run, program.options, tuple(index for index, flag in enumerate(flags) if flag),
            ins and tuple(spread_over_arrays(low, [None] * num_consts + list(ins))),
            outs and [*spread_over_results(low, outs), *[None for now in low.changed.values() for _ in now.lo_ty()]])


def spread_over_arrays(low: LowProgram, flags: Sequence[Any]) -> list[Any]:
    """A property of each input, repeated for each of its arrays."""
    return [flag for flag, aval in zip(low.own(flags), low.own(low.in_avals), strict=True) for _ in aval.lo_ty()]


def spread_over_results(low: LowProgram, parts: Sequence[Any]) -> list[Any]:
    """A property of each result, repeated for each of its arrays."""
    return [part for part, out in zip(parts, low.outs, strict=True) if type(out) is not int for _ in out.lo_ty()]


def of_signature(program: Any) -> LowProgram:
    """A traced program as one of arrays, for arguments that are different values."""
    return lower_types(program.as_operand()[0])


def of_arguments(program: Any, parts: Sequence[Any]) -> list[Any]:
    """A property of each argument of a traced program, repeated for each of its arrays."""
    num_consts = len(program.closed.consts)
    avals = of_signature(program).in_avals[num_consts:]
    parts = parts or [""] * len(avals)
    return [part for part, aval in zip(parts, avals, strict=True) for _ in aval.lo_ty()]


def call_of_arrays(program: Any, leaves: Sequence[Any]) -> tuple[ClosedJaxpr, list[Any], Any, Any, Callable[[int], str]]:
    """A traced program as one of arrays, the arrays of its arguments, and the shardings and names of these and of results."""
    closed, ins, outs = runnable(program), program.in_shardings, program.out_shardings
    arrays = [array for leaf in leaves for array in (aval_of(leaf).lower_val(leaf) if is_high_value(leaf) else [leaf])]
    outs = outs and spread_over_results(of_signature(program), outs)
    return (closed, arrays, ins and tuple(of_arguments(program, ins)),
            outs and (*outs, *[None] * (len(closed.out_avals) - len(outs))),
            of_arguments(program, program.debug_info.arg_names or ()).__getitem__)


def runnable(program: Any) -> ClosedJaxpr:
    """A traced program as one of arrays, which closes over those of the values that it closes over."""
    low, consts = of_signature(program), program.closed.consts
    count = len(consts)
    values = [value for aval, const in zip(low.in_avals[:count], consts, strict=True) for value in aval.lower_val(const)]
    jaxpr, fixed = low.closed.jaxpr, low.closed.consts
    return ClosedJaxpr(jaxpr.replace(constvars=[*jaxpr.constvars, *jaxpr.invars[:len(values)]],
                                     invars=jaxpr.invars[len(values):]), [*fixed, *values])


# --- what has programs in its params -----------------------------------------------------------------

Rule = Callable[[LowTrace, Any, list[Any], dict[str, Any]], Any]
_rules: dict[str, Rule] = {}


def _call(trace: LowTrace, primitive: Any, args: list[Any], params: dict[str, Any]) -> list[Any]:
    """A call that keeps its structure."""
    low = lower_types(params["jaxpr"], args)
    program, consts = _as_program(low)
    values = low.lowered(args)
    if "donated_invars" in params:
        flags = spread_over_arrays(low, params["donated_invars"])
        params = {**params, "donated_invars": (*[False] * len(consts), *flags)}
    for name in ("in_shardings", "in_layouts"):
        if name in params:
            params = {**params, name: (*[None] * len(consts), *spread_over_arrays(low, params[name]))}
    for name in ("out_shardings", "out_layouts"):
        if name in params:
            params = {**params, name: (*spread_over_results(low, params[name]),
                                       *[None for now in low.changed.values() for _ in now.lo_ty()])}
    return low.raised(args, primitive.bind(*consts, *values, **{**params, "jaxpr": program}))


_rules["jit"] = _rules["remat2"] = _call


def _constraint(trace: LowTrace, primitive: Any, args: list[Any], params: dict[str, Any]) -> Any:
    (value,), (aval,) = args, with_states(_types_of(args), args)
    arrays = [primitive.bind(array, **params) for array in aval.lower_val(value)]
    if not aval.has_qdd:
        return aval.raise_val(*arrays)
    aval.aval.update_from_loval(aval.qdd, value, *arrays)
    return value


_rules["sharding_constraint"] = _constraint


class _States:
    """The values that change among the arguments of programs: what they hold is passed on beside the other values.

    Args: `parts` are pairs of a program and its arguments.
    """

    def __init__(self, *parts: tuple[LowProgram, Sequence[Any]]):
        self.values: list[Any] = []
        self.types: list[AvalQDD] = []
        for low, args in parts:
            for index, now in low.changed.items():
                if not any(args[index] is each for each in self.values):
                    self.values.append(args[index])
                    self.types.append(AvalQDD(now.aval, cur_qdd(args[index])))

    def place(self, value: Any) -> int | None:
        """The position of a value among them."""
        return next((place for place, each in enumerate(self.values) if each is value), None)

    def lowered(self) -> list[Any]:
        return [array for aval, value in zip(self.types, self.values, strict=True) for array in aval.read_loval(value)]

    def split(self, arrays: Sequence[Any]) -> tuple[list[list[Any]], list[Any]]:
        """The arrays of each, and the other values that follow."""
        rest, parts = list(arrays), []
        for aval in self.types:
            count = len(aval.lo_ty())
            parts.append(rest[:count])
            rest = rest[count:]
        return parts, rest

    def restore(self, arrays: Sequence[Any], last: Sequence[AvalQDD] | None = None) -> list[Any]:
        """Put arrays into them; gives the other values that follow."""
        rest = list(arrays)
        for aval, value in zip(self.types if last is None else last, self.values, strict=True):
            count = len(aval.lo_ty())
            aval.aval.update_from_loval(aval.qdd, value, *rest[:count])
            rest = rest[count:]
        return rest

    def run(self, low: LowProgram, args: Sequence[Any], parts: Sequence[list[Any]], others: Sequence[Any],
            ) -> tuple[list[Any], list[list[Any]]]:
        """Run a program of arrays. `others` are the arrays of the arguments that are none of these values.

        Returns: the arrays of its outputs, and what these values hold then.
        """
        given, values = iter(others), []
        for arg, aval in zip(low.own(args), low.own(low.in_avals), strict=True):
            place = self.place(arg) if aval.has_qdd else None
            values += [next(given) for _ in aval.lo_ty()] if place is None else parts[place]
        outs = eval_jaxpr(low.closed.jaxpr, low.closed.consts, *values)
        count, last = low.num_low_outs, list(parts)
        rest = outs[count:]
        for index, now in low.changed.items():
            size = len(now.lo_ty())
            last[self.place(args[index])] = rest[:size]  # type: ignore[index]
            rest = rest[size:]
        return outs[:count], last

    def others(self, low: LowProgram, args: Sequence[Any]) -> list[Any]:
        """The arrays of the first arguments of a program, without those of these values."""
        return [array for arg, aval in zip(low.own(args), low.own(low.in_avals), strict=False)
                if not aval.has_qdd or self.place(arg) is None for array in aval.lower_val(arg)]


def _traced(fun: Callable[..., list[Any]], avals: Sequence[Any], debug_info: Any) -> tuple[ClosedJaxpr, list[Any]]:
    jaxpr, consts = trace_to_jaxpr(fun, avals, debug_info)
    return hoist_consts(jaxpr), consts


def _joined(parts: Sequence[list[Any]], rest: Sequence[Any]) -> list[Any]:
    return [*[array for part in parts for array in part], *rest]


def _types_of(values: Sequence[Any]) -> list[Any]:
    return [aval_of(value) for value in values]


def _scan(trace: LowTrace, primitive: Any, args: list[Any], params: dict[str, Any]) -> list[Any]:
    low = lower_types(params["jaxpr"], args)
    consts, carry = params["num_consts"], params["num_carry"]
    fixed = consts + carry
    if any(aval.has_qdd for aval in low.in_avals[consts:]):
        raise TypeError("scan takes values that change as constants of the body alone, not in its carry or among the xs")
    states = _States((low, args))
    of_consts = states.others(low, args[:consts])
    of_carry, xs = ([array for arg in part for array in aval_of(arg).lower_val(arg)]
                    for part in (args[consts:fixed], args[fixed:]))
    held = states.lowered()
    inside = [aval for part in low.in_avals[consts:] for aval in part.lo_ty()]  # types of the carry and of elements

    def body(*values: Any) -> list[Any]:
        parts, rest = states.split(values[len(of_consts):])
        outs, last = states.run(low, args, parts, [*values[:len(of_consts)], *rest])
        return _joined(last, outs)

    program, more = _traced(body, [*_types_of([*of_consts, *held]), *inside], low.closed.jaxpr.debug_info)
    outs = primitive.bind(*more, *of_consts, *held, *of_carry, *xs, **{
        **params, "jaxpr": program, "num_consts": len(more) + len(of_consts), "num_carry": len(held) + len(of_carry)})
    rest = iter(states.restore(outs))
    types = [*low.outs[:carry], *[with_axis(aval, 0, params["length"]) for aval in low.outs[carry:]]]
    return [raised(aval, rest) for aval in types]


def _cond(trace: LowTrace, primitive: Any, args: list[Any], params: dict[str, Any]) -> list[Any]:
    index, *operands = args
    lows = [lower_types(branch, operands) for branch in params["branches"]]
    states = _States(*[(low, operands) for low in lows])
    held, others = states.lowered(), states.others(lows[0], operands)
    last = [AvalQDD(aval.aval, _last_state(lows, operands, value, aval.qdd))
            for value, aval in zip(states.values, states.types, strict=True)]
    avals = _types_of([*held, *others])
    branches, consts = [], []
    for low in lows:

        def run(*values: Any, low: LowProgram = low) -> list[Any]:
            parts, rest = states.split(values)
            outs, changed = states.run(low, operands, parts, rest)
            return _joined(changed, outs)

        jaxpr, own = trace_to_jaxpr(run, avals, low.closed.jaxpr.debug_info)
        consts.append((jaxpr, own))
    everything = [const for _, own in consts for const in own]
    before = 0
    for jaxpr, own in consts:  # all branches take the consts of all
        inner = [Var(aval_of(const)) for const in everything]
        inner[before:before + len(own)] = jaxpr.constvars
        branches.append(ClosedJaxpr(jaxpr.replace(constvars=[], invars=[*inner, *jaxpr.invars]), []))
        before += len(own)
    outs = primitive.bind(index, *everything, *held, *others, **{**params, "branches": tuple(branches)})
    rest = iter(states.restore(outs, last))
    return [operands[out] if type(out) is int else raised(out, rest) for out in lows[0].outs]


def _last_state(lows: Sequence[LowProgram], operands: Sequence[Any], value: Any, before: Any) -> Any:
    for low in lows:
        for index, now in low.changed.items():
            if operands[index] is value:
                return now.qdd
    return before


def _while(trace: LowTrace, primitive: Any, args: list[Any], params: dict[str, Any]) -> list[Any]:
    conds, bodies = params["cond_nconsts"], params["body_nconsts"]
    of_cond, of_body, carry = args[:conds], args[conds:conds + bodies], args[conds + bodies:]
    condition = lower_types(params["cond_jaxpr"], [*of_cond, *carry])
    body = lower_types(params["body_jaxpr"], [*of_body, *carry])
    if any(aval.has_qdd for aval in body.in_avals[bodies:]):
        raise TypeError("while_loop takes values that change as constants of its functions alone, not in its carry")
    states = _States((body, [*of_body, *carry]))
    held = states.lowered()
    cond_consts, body_consts = states.others(condition, of_cond), states.others(body, of_body)
    first = [array for arg, aval in zip(carry, body.in_avals[bodies:], strict=True) for array in aval.lower_val(arg)]
    types = [*_types_of(held), *[aval for part in body.in_avals[bodies:] for aval in part.lo_ty()]]

    def test(*values: Any) -> list[Any]:
        parts, rest = states.split(values[len(cond_consts):])
        return states.run(condition, [*of_cond, *carry], parts, [*values[:len(cond_consts)], *rest])[0]

    def step(*values: Any) -> list[Any]:
        parts, rest = states.split(values[len(body_consts):])
        outs, last = states.run(body, [*of_body, *carry], parts, [*values[:len(body_consts)], *rest])
        return _joined(last, outs)

    cond_jaxpr, cond_more = _traced(test, [*_types_of(cond_consts), *types], condition.closed.jaxpr.debug_info)
    body_jaxpr, body_more = _traced(step, [*_types_of(body_consts), *types], body.closed.jaxpr.debug_info)
    outs = primitive.bind(*cond_more, *cond_consts, *body_more, *body_consts, *held, *first, cond_jaxpr=cond_jaxpr,
                          body_jaxpr=body_jaxpr, cond_nconsts=len(cond_more) + len(cond_consts),
                          body_nconsts=len(body_more) + len(body_consts))
    rest = iter(states.restore(outs))
    return [raised(aval, rest) for aval in body.outs]


_rules.update({"scan": _scan, "cond": _cond, "while": _while})

