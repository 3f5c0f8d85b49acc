"""A model is trained, exported to a file for any batch size, and used by another process that has no code of it.

    python examples/keep_a_model.py [--steps 200] [--file model.bin]

The file is one of JAX's: `jax.export.deserialize` reads it too. It holds the program for CPUs and GPUs and the derivative,
with the trained parameters inside.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import export

READER = """
import sys
import numpy as np
import jaxlite
from jaxlite import export

model = export.deserialize(open(sys.argv[1], "rb").read())
print("signature:", model.in_avals[0], "->", model.out_avals[0], "on", ", ".join(model.platforms))
points = np.linspace(-2, 2, 9, dtype=np.float32)
print("largest error of 9 points:", float(abs(model.call(points) - np.sin(points)).max()))
slope = jaxlite.grad(lambda x: model.call(x)[0])(points[4:5])
print("slope at 0:", float(slope[0]))
"""


def predict(params: dict[str, Any], x: Any) -> Any:
    """A small network on numbers, [n] -> [n]."""
    hidden = jnp.tanh(x[:, None] * params["scale"] + params["shift"])
    return hidden @ params["mix"]


def train(steps: int, seed: int = 0) -> dict[str, Any]:
    """Parameters that make `predict` the sine."""
    rng = np.random.default_rng(seed)
    params = {"scale": jnp.ones(16, jnp.float32), "shift": jnp.asarray(rng.uniform(-2, 2, 16), jnp.float32),
              "mix": jnp.zeros(16, jnp.float32)}
    x = jnp.linspace(-2.5, 2.5, 64)

    @jaxlite.jit
    def update(params: Any, velocity: Any) -> Any:
        gradient = jaxlite.grad(lambda params: jnp.mean((predict(params, x) - jnp.sin(x)) ** 2))(params)
        velocity = jaxlite.tree.map(lambda v, g: 0.9 * v + g, velocity, gradient)
        return jaxlite.tree.map(lambda p, v: p - 0.05 * v, params, velocity), velocity

    velocity = jaxlite.tree.map(jnp.zeros_like, params)
    for _ in range(steps):
        params, velocity = update(params, velocity)
    return params


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--file", type=Path, default=Path("model.bin"))
    args = parser.parse_args()
    params = train(args.steps)
    points = jaxlite.ShapeDtypeStruct(export.symbolic_shape("n"), jnp.float32)
    exported = export.export(jaxlite.jit(lambda x: predict(params, x)), platforms=("cpu", "cuda"))(points)
    args.file.write_bytes(exported.serialize(vjp_order=1))
    print(f"{args.file}: {args.file.stat().st_size} bytes; another process reads it:", flush=True)
    subprocess.run([sys.executable, "-c", READER, str(args.file)], check=True)


if __name__ == "__main__":
    main()
