"""Programs as people write them, by fields: `python -m benchmarks.paired --source benchmarks.written all`.

The random programs of `benchmarks.random_programs` are put together from parts that their author thought of. These are whole
programs, each as in a textbook or a paper of its field, in sizes as in examples and tests; they found more that was slow. A
name means a program, the name of a module here all programs of a field, `all` every one. Names of variants follow after dots
(`kalman_filter.grad`, `statistics.vmap`, `all.grad.x64`): `grad` is the gradient of all float outputs by all float arguments,
`jvp` their tangents, `vmap` a small batch of everything, `x64` and `bf16` are other precisions.
"""

from __future__ import annotations

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
from benchmarks.written.variants import DIFFERENTIATED, VARIANTS

ALL = "all"


def make(name: str) -> Program:
    """The program of a name, or what its variants make of it, from left to right."""
    chosen, *variants = name.split(".")

    def made(ns: Frontend) -> Made:
        program = PROGRAMS[chosen].made(ns)
        for variant in variants:
            program = VARIANTS[variant](ns, program)
        return program

    return made


def family(name: str) -> str:
    """The field of a program."""
    return PROGRAMS[name.partition(".")[0]].field


def expand(name: str) -> list[str]:
    """The programs that a name means: its own, those of a field, or all; of derivatives only of what has some."""
    chosen, dot, variants = name.partition(".")
    unknown = [each for each in variants.split(".") if dot and each not in VARIANTS]
    if unknown:
        raise SystemExit(f"{unknown[0]!r} is no variant; the variants are {', '.join(VARIANTS)}")
    if chosen in PROGRAMS:
        return [name]
    found = [each for each, written in PROGRAMS.items() if chosen in (ALL, written.field)]
    if not found:
        fields_known = sorted({written.field for written in PROGRAMS.values()})
        raise SystemExit(f"{chosen} is no program and no field; the fields are {', '.join(fields_known)}")
    derived = not DIFFERENTIATED.isdisjoint(variants.split("."))
    return [each + dot + variants for each in found if not derived or PROGRAMS[each].differentiable]
