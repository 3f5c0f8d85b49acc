"""A tour in under a minute: real programs through every stage, with the times.

1. A small language model learns this repository's documents (`examples/char_gpt.py`), and where the time goes.
2. k-means over the sources of Python's own standard library: which modules are written alike?
3. A wave on a square pond, 400 steps inside one compiled loop.
4. What a compile is made of: the jaxpr of one function, and the folder with the IR of every compile.

Run it with `make demo`, or `python examples/demo.py`.
"""

from __future__ import annotations

import collections
import pathlib
import string
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from typing import Any

import char_gpt  # first of those that import jaxlite: it times that
import numpy as np

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax


def timed(function: Callable, *args: Any, repeats: int = 5) -> tuple[Any, float]:
    """The result and the best time in seconds of a few calls."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        result = jaxlite.block_until_ready(function(*args))
        best = min(best, time.perf_counter() - start)
    return result, best


def heading(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}\n{'-' * len(text)}")


# --- 2. k-means over the standard library --------------------------------------------------------------

ALPHABET = string.ascii_lowercase + string.digits + "_.,:;=()[]{}'\"#@ \n+-*/<>%&|"


def read_sources(limit: int = 160) -> tuple[list[str], np.ndarray]:
    """How often each character stands in each module of the standard library, as frequencies."""
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    names, rows = [], []
    for path in sorted(folder.glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace").lower()
        if len(text) > 2000:
            counts = collections.Counter(text)
            names.append(path.stem)
            rows.append([counts[char] / len(text) for char in ALPHABET])
    return names[:limit], np.array(rows[:limit], np.float32)


def standardize(points: Any) -> Any:
    return (points - points.mean(axis=0)) / (points.std(axis=0) + 1e-6)


def kmeans_step(points: Any, centers: Any) -> tuple[Any, Any]:
    """One round of Lloyd's algorithm: assign every point to its nearest center, then move the centers."""
    distances = jnp.sum((points[:, None, :] - centers[None, :, :]) ** 2, axis=-1)
    nearest = jnp.argmin(distances, axis=1)
    member = nearest[:, None] == jnp.arange(centers.shape[0])
    sizes = member.sum(axis=0)
    means = member.astype(points.dtype).T @ points / jnp.maximum(sizes, 1)[:, None]
    return jnp.where(sizes[:, None] > 0, means, centers), nearest


def kmeans_step_numpy(points: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    distances = ((points[:, None, :] - centers[None, :, :]) ** 2).sum(-1)
    nearest = distances.argmin(1)
    member = nearest[:, None] == np.arange(centers.shape[0])
    sizes = member.sum(0)
    means = member.astype(points.dtype).T @ points / np.maximum(sizes, 1)[:, None]
    return np.where(sizes[:, None] > 0, means, centers), nearest


def kmeans(step: Callable, points: Any, centers: Any, rounds: int = 20) -> tuple[Any, Any]:
    nearest = None
    for _ in range(rounds):
        centers, nearest = step(points, centers)
    return centers, nearest


def demo_kmeans() -> None:
    heading("2. k-means over the sources of the standard library")
    names, frequencies = read_sources()
    points = jaxlite.jit(standardize)(frequencies)
    host_points = np.asarray(points)
    clusters = 6
    first = points[:: len(names) // clusters][:clusters]
    print(f"{len(names)} modules, {points.shape[1]} characters each, {clusters} clusters, 20 rounds")

    compiled = jaxlite.jit(kmeans_step)
    start = time.perf_counter()
    jaxlite.block_until_ready(compiled(points, first))
    first_call = time.perf_counter() - start
    (_, nearest), jit_seconds = timed(kmeans, compiled, points, first)
    _, eager_seconds = timed(kmeans, kmeans_step, points, first)
    host_first = host_points[:: len(names) // clusters][:clusters]
    (_, expected), numpy_seconds = timed(kmeans, kmeans_step_numpy, host_points, host_first)
    agreement = float(np.mean(np.asarray(nearest) == expected))
    for cluster in range(clusters):
        members = [name for name, label in zip(names, np.asarray(nearest), strict=True) if label == cluster]
        print(f"  {len(members):3d} modules: {', '.join(members[:7])}{', ...' if len(members) > 7 else ''}")
    print(f"  first call {first_call * 1e3:.0f} ms (trace, lower, compile, run); then for 20 rounds: jit "
          f"{jit_seconds * 1e3:.1f} ms, eager {eager_seconds * 1e3:.1f} ms, NumPy {numpy_seconds * 1e3:.1f} ms")
    print(f"  same clusters as NumPy for {agreement:.0%} of the modules")


# --- 3. a wave on a pond -------------------------------------------------------------------------------


def laplacian(field: Any) -> Any:
    padded = jnp.pad(field, 1, mode="edge")
    return padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:] - 4 * field


def wave(field: Any, steps: int, speed: float = 0.4) -> Any:
    """The wave equation by leapfrog steps, in one compiled loop."""

    def step(_: Any, state: Any) -> Any:
        now, before = state
        return 2 * now - before + speed**2 * laplacian(now) - 0.002 * (now - before), now

    return lax.fori_loop(0, steps, step, (field, field))[0]


def wave_numpy(field: np.ndarray, steps: int, speed: float = 0.4) -> np.ndarray:
    now = before = field
    for _ in range(steps):
        padded = np.pad(now, 1, mode="edge")
        spread = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:] - 4 * now
        now, before = 2 * now - before + np.float32(speed**2) * spread - np.float32(0.002) * (now - before), now
    return now


def picture(field: np.ndarray, width: int = 60, height: int = 18) -> str:
    shades = " .:-=+*#%@"
    rows = np.linspace(0, field.shape[0] - 1, height).astype(int)
    columns = np.linspace(0, field.shape[1] - 1, width).astype(int)
    small = field[np.ix_(rows, columns)]
    scaled = (small - small.min()) / max(float(np.ptp(small)), 1e-9) * (len(shades) - 1)
    return "\n".join("  " + "".join(shades[int(value)] for value in row) for row in scaled)


def demo_wave() -> None:
    heading("3. A wave on a square pond")
    side, steps = 200, 400
    row, column = np.mgrid[0:side, 0:side].astype(np.float32)
    drop = np.exp(-((row - 60) ** 2 + (column - 80) ** 2) / 60) + np.exp(-((row - 140) ** 2 + (column - 130) ** 2) / 60)
    compiled = jaxlite.jit(wave, static_argnames=("steps", "speed"))
    start = time.perf_counter()
    jaxlite.block_until_ready(compiled(drop, steps=steps))
    first_call = time.perf_counter() - start
    result, jit_seconds = timed(lambda: compiled(drop, steps=steps))
    expected, numpy_seconds = timed(lambda: wave_numpy(drop, steps), repeats=1)
    print(picture(np.asarray(result)))
    print(f"  {side}x{side} points, {steps} steps: first call {first_call * 1e3:.0f} ms, then jit {jit_seconds * 1e3:.0f} ms, "
          f"NumPy {numpy_seconds * 1e3:.0f} ms; largest difference {np.abs(np.asarray(result) - expected).max():.1e}")


# --- 4. seeing inside ----------------------------------------------------------------------------------


def demo_inside(folder: pathlib.Path) -> None:
    heading("4. Inside a compile")
    points = np.zeros((4, 3), np.float32)
    print("The jaxpr of k-means' step, as traced for 4 points and 2 centers:\n")
    print(jaxlite.make_jaxpr(kmeans_step)(points, points[:2]))
    stages = jaxlite.jit(kmeans_step).lower(points, points[:2])
    print(f"\nIts StableHLO has {len(stages.as_text().splitlines())} lines. XLA compiles it to:")
    cost = stages.compile().cost_analysis()
    print(f"  {cost.get('flops', 0):.0f} floating-point operations, {cost.get('bytes accessed', 0):.0f} bytes touched")
    files = sorted(folder.iterdir())
    print(f"\nEvery compile of the parts 2 to 4 was dumped to {folder} ({len(files)} files), for instance:")
    for path in [path for path in files if "kmeans_step" in path.name][:4]:
        print(f"  {path.name}  ({path.stat().st_size} bytes)")


def main() -> None:
    started = time.perf_counter()
    print(f"jaxlite {jaxlite.__version__} on {jaxlite.devices()[0]}; imported in {char_gpt.import_seconds:.2f} s")
    heading("1. A character-level GPT learns this repository's documents")
    char_gpt.train(char_gpt.read_text(None))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="jaxlite-demo-"))
    jaxlite.config.update("jaxlite_dump_ir_to", str(folder))
    demo_kmeans()
    demo_wave()
    demo_inside(folder)
    print(f"\nDone in {time.perf_counter() - started + char_gpt.import_seconds:.1f} s.")


if __name__ == "__main__":
    main()
