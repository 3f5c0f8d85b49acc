"""Programs as people write them, by fields: `python -m benchmarks.paired --source benchmarks.written all`.

The random programs of `benchmarks.random_programs` are put together from parts that their author thought of. These are whole
programs, each as in a textbook or a paper of its field, in sizes as in examples and tests; they found more that was slow. A
name means a program, the name of a module here all programs of a field, `all` every one. With `.grad` behind it
(`kalman_filter.grad`, `statistics.grad`, `all.grad`) it is the gradient of all float outputs by all float arguments.
"""

from __future__ import annotations

from typing import Any

from benchmarks.programs import Frontend, Made, Program
from benchmarks.written import (
    agents,
    algorithms,
    biology,
    chemistry,
    earth,
    economics,
    fields,
    finance,
    geometry,
    images,
    language,
    learning,
    networks,
    numerics,
    optimizers,
    particles,
    robotics,
    sound,
    statistics,
    training,
)
from benchmarks.written.kinds import PROGRAMS

_GRAD = ".grad"
ALL = "all"


def make(name: str) -> Program:
    """The program of a name, or its gradient."""
    written = PROGRAMS[name.removesuffix(_GRAD)]
    return (lambda ns: _gradient(ns, written.made(ns))) if name.endswith(_GRAD) else written.made


def family(name: str) -> str:
    """The field of a program."""
    return PROGRAMS[name.removesuffix(_GRAD)].field


def expand(name: str) -> list[str]:
    """The programs that a name means: its own, those of a field, or all; their gradients without those that have none."""
    chosen, suffix = name.removesuffix(_GRAD), _GRAD * name.endswith(_GRAD)
    if chosen in PROGRAMS:
        return [name]
    found = [each for each, written in PROGRAMS.items() if chosen in (ALL, written.field)]
    if not found:
        fields_known = sorted({written.field for written in PROGRAMS.values()})
        raise SystemExit(f"{chosen} is no program and no field; the fields are {', '.join(fields_known)}")
    return [each + suffix for each in found if not suffix or PROGRAMS[each].differentiable]


def _gradient(ns: Frontend, made: Made) -> Made:
    """Of a loss that weighs all numbers of the float outputs differently."""
    jax, jnp = ns.jax, ns.jnp
    function, arguments = made
    places = [i for i, each in enumerate(arguments) if jnp.issubdtype(each.dtype, jnp.floating)]

    def gradient(*values: Any) -> Any:
        def loss(*floats: Any) -> Any:
            given = list(values)
            for i, each in zip(places, floats, strict=True):
                given[i] = each
            total = 0.0
            for out in jax.tree.leaves(function(*given)):
                if jnp.issubdtype(out.dtype, jnp.floating):
                    total = total + (out * out * 0.5 + out).sum()
                elif jnp.issubdtype(out.dtype, jnp.complexfloating):
                    total = total + (jnp.abs(out) ** 2).sum()
            return total

        return jax.grad(loss, tuple(range(len(places))))(*[values[i] for i in places])

    return gradient, arguments
