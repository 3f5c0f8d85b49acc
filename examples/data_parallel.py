"""The character GPT trained three times: on one device, on eight that share batches, on eight that share weights too.

    python examples/data_parallel.py [--steps 30]

The model, the loss and the optimizer are those of `char_gpt.py`, unchanged: where arrays lie is said once, by `device_put`, and
XLA works out the rest. The eight devices are made of this machine's processor, so nothing gets faster here; on eight GPUs the
same lines would. The three loss curves agree to rounding.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import jaxlite

jaxlite.config.update("jax_num_cpu_devices", 8)  # before the first array

import char_gpt  # noqa: E402

import jaxlite.numpy as jnp  # noqa: E402
from jaxlite import P  # noqa: E402
from jaxlite.sharding import Mesh, NamedSharding  # noqa: E402

# Which axis of each weight is cut along "model": the inner axes of attention and of the feed-forward layer.
SPLIT = {"attend": P(None, "model"), "project": P("model"), "up": P(None, "model"), "down": P("model")}


def weight_shardings(mesh: Mesh, params: Any) -> Any:
    """A sharding for each weight; without an axis "model", every device has all of them."""

    def of(path: Any, weight: Any) -> NamedSharding:
        spec = SPLIT.get(path[-1].key, P()) if "model" in mesh.axis_names else P()
        return NamedSharding(mesh, spec)

    return jaxlite.tree.map_with_path(of, params)


def train(text: str, mesh: Mesh | None, steps: int, layers: int = 2, width: int = 64, heads: int = 4, context: int = 32,
          size: int = 16) -> list[float]:  # fmt: skip
    """The loss of each step; on one device if there is no mesh."""
    characters = sorted(set(text))
    data = np.array([characters.index(char) for char in text], np.int32)
    params = char_gpt.init_params(jaxlite.random.key(0), len(characters), width, layers)
    count, batch_sharding = jnp.zeros(()), None
    if mesh is not None:
        params = jaxlite.device_put(params, weight_shardings(mesh, params))
        count = jaxlite.device_put(count, NamedSharding(mesh, P()))  # as it comes back: the step is compiled once
        batch_sharding = NamedSharding(mesh, P("data"))
    state = (*(jaxlite.tree.map(jnp.zeros_like, params) for _ in range(2)), count)
    step = jaxlite.jit(char_gpt.train_step, static_argnames="heads", donate_argnums=(0, 1))
    stream, curve = char_gpt.batches(data, size, context), []
    for _ in range(steps):
        tokens, targets = jaxlite.device_put(next(stream), batch_sharding)
        params, state, value = step(params, state, tokens, targets, np.float32(3e-3), heads=heads)
        curve.append(value)
    return [float(value) for value in curve]


def main(steps: int, layers: int) -> dict[str, list[float]]:
    text = char_gpt.read_text(None)[:50_000]
    devices = np.array(jaxlite.devices())
    meshes = {
        "one device": None,
        "data over 8": Mesh(devices, ("data",)),
        "data over 4, weights over 2": Mesh(devices.reshape(4, 2), ("data", "model")),
    }
    curves = {name: train(text, mesh, steps, layers) for name, mesh in meshes.items()}
    for number in range(0, steps, max(1, steps // 6)):
        print(f"step {number:3d}  " + "   ".join(f"{name}: {curve[number]:.4f}" for name, curve in curves.items()))
    reference = np.array(curves["one device"])
    for name, curve in curves.items():
        print(f"{name}: largest difference to one device {np.abs(np.array(curve) - reference).max():.1e}")
    return curves


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--layers", type=int, default=2)
    options = parser.parse_args()
    main(options.steps, options.layers)
