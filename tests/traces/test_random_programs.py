"""Random nested programs agree with NumPy and Python loops (`random_programs.py` writes them, `loop_oracle.py` is NumPy).

A failure prints the program. To look at one again: `python tests/test_random_programs.py SEED`.
The long run, of 2,000 programs, is `python -m pytest -m slow tests/test_random_programs.py`.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite.core.jaxpr import check_jaxpr
from tests.loop_oracle import LoopOracle, TooLong
from tests.random_programs import Program, jaxlite_names, write
from tests.rule_checks import quick_jit

# Differences across a kink say nothing; of large numbers, and where functions curve within a step, little.
NEAR, LARGE, CURVED = 0.03, 1e3, 1e-3


def expected_results(program: Program) -> list[Any] | None:
    """What NumPy and loops give; None for a program that cannot be judged by differences."""
    oracle = LoopOracle()
    double = {name: np.float64(x) if x.dtype.kind == "f" else x for name, x in program.arguments().items()}
    try:
        with np.errstate(all="ignore"):
            results = [np.asarray(each) for each in program.run(oracle.names())(**double)]
    except TooLong:
        return None
    kinks = oracle.kinks
    fine = kinks.margin > NEAR and kinks.curvature < CURVED and all(np.all(np.abs(each) < LARGE) for each in results)
    return results if fine else None


def check(program: Program, expected: list[Any], way: str = "jit") -> None:
    fun, args = program.run(jaxlite_names()), jaxlite.tree.map(jnp.asarray, program.arguments())
    if way == "jit":
        check_jaxpr(jaxlite.make_jaxpr(fun)(**args))
        results = quick_jit(fun)(**args)
    elif way == "eager":
        results = fun(**args)
    else:
        with jaxlite.disable_jit():
            results = fun(**args)
    double = "float32" not in program.text and all(type.dtype != "float32" for type in program.inputs.values())
    tolerance = 1e-5 if double else 3e-3
    for got, reference, type in zip(results, expected, program.outputs, strict=True):
        assert (np.shape(got), np.dtype(got.dtype)) == (type.shape, np.dtype(type.dtype))
        assert reference.shape == type.shape
        np.testing.assert_allclose(np.asarray(got, np.float64), reference, rtol=tolerance, atol=tolerance)


def run(first_seed: int, count: int) -> None:
    """Check a number of programs, from a seed on. Most are compiled as a whole, some run operation by operation."""
    checked, seed = 0, first_seed
    while checked < count:
        program = write(seed)
        expected = expected_results(program)
        if expected is not None:
            try:
                check(program, expected, {4: "eager", 5: "disable_jit"}.get(checked % 20, "jit"))
            except Exception as error:
                raise AssertionError(f"the program of seed {seed} fails: {error}\n\n{program.text}") from error
            checked += 1
        seed += 1


def test_the_writer_repeats_itself():
    assert write(3) == write(3) and write(3).text != write(4).text


def test_the_oracle_knows_derivatives():
    """Of a function whose derivatives are known: the oracle is not jaxlite's echo."""
    oracle, x = LoopOracle(), np.array([0.3, -0.8])
    cube = lambda x: np.sum(x**3)
    np.testing.assert_allclose(oracle.grad(cube)(x), 3 * x**2, rtol=1e-9)
    np.testing.assert_allclose(oracle.hessian(cube)(x), np.diag(6 * x), atol=1e-6)
    np.testing.assert_allclose(oracle.vjp(np.sin, x)[1](np.ones(2))[0], np.cos(x), rtol=1e-9)
    np.testing.assert_allclose(oracle.vmap(lambda a, b: a * b, (0, None), 1)(np.eye(2), x), (np.eye(2) * x).T)
    carry, rows = oracle.scan(lambda c, a: (c + a, c), 0.0, x, reverse=True)
    np.testing.assert_allclose([carry, *rows], [-0.5, -0.8, 0.0])
    oracle.absolute(np.array([0.5, -0.01]))
    assert oracle.kinks.margin == 0.01


@pytest.mark.parametrize("chunk", range(10))
def test_programs(chunk: int, x64: None) -> None:
    run(1000 * chunk, 6)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(40))
def test_many_programs(chunk: int, x64: None) -> None:
    run(100_000 + 1000 * chunk, 50)


if __name__ == "__main__":
    with jaxlite.enable_x64():
        again = write(int(sys.argv[1]))
        print(again.text)
        print("arguments:", again.arguments())
        print("NumPy:    ", reference := expected_results(again))
        if reference is not None:
            check(again, reference)
