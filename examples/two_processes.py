"""One model, trained by two processes that each read their half of every batch.

    python examples/two_processes.py [--processes 2] [--steps 40]

The command starts its peers itself, on this machine. On a cluster each machine would run `worker` with the address of the first
one, or with none at all where a scheduler such as Slurm says who takes part. XLA adds the gradients of all processes up, so
that each of them ends with the same weights: those of a single process that sees whole batches, up to rounding.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys

import numpy as np

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import NamedSharding, P
from jaxlite.experimental import multihost_utils

TRUE = np.array([3.0, -2.0, 0.5, 1.0], np.float32)
BATCH = 64


def examples(step: int) -> tuple[np.ndarray, np.ndarray]:
    """The batch of a step; every process can make it, and takes its rows."""
    rng = np.random.default_rng(step)
    x = rng.normal(size=(BATCH, len(TRUE))).astype(np.float32)
    return x, x @ TRUE + 0.1 * rng.normal(size=BATCH).astype(np.float32)


def loss(w: jaxlite.Array, x: jaxlite.Array, y: jaxlite.Array) -> jaxlite.Array:
    return jnp.mean((x @ w - y) ** 2)


@jaxlite.jit
def update(w: jaxlite.Array, x: jaxlite.Array, y: jaxlite.Array) -> tuple[jaxlite.Array, jaxlite.Array]:
    value, gradient = jaxlite.value_and_grad(loss)(w, x, y)
    return w - 0.1 * gradient, value


def train(steps: int) -> tuple[np.ndarray, list[float]]:
    """The weights in the end, and the loss of each step."""
    mesh = jaxlite.sharding.Mesh(np.array(jaxlite.devices()), ("data",))
    rows = NamedSharding(mesh, P("data"))
    share = BATCH // jaxlite.process_count()
    mine = slice(jaxlite.process_index() * share, (jaxlite.process_index() + 1) * share)
    w, curve = jaxlite.device_put(np.zeros(len(TRUE), np.float32), NamedSharding(mesh, P())), []
    for step in range(steps):
        x, y = (jaxlite.make_array_from_process_local_data(rows, part[mine]) for part in examples(step))
        w, value = update(w, x, y)
        curve.append(float(value))
    return np.asarray(w), curve


def worker(address: str, count: int, number: int, steps: int) -> None:
    jaxlite.distributed.initialize(address, count, number, initialization_timeout=60)
    w, curve = train(steps)
    multihost_utils.assert_equal(w, "the processes have different weights")
    if number == 0:
        print(f"{count} processes, {jaxlite.device_count()} devices")
        for step in range(0, steps, max(1, steps // 5)):
            print(f"step {step:3}  loss {curve[step]:.4f}")
        print("weights", np.round(w, 3), "true", TRUE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--worker", nargs=2, metavar=("ADDRESS", "NUMBER"), help="run as one of the processes")
    options = parser.parse_args()
    if options.worker:
        return worker(options.worker[0], options.processes, int(options.worker[1]), options.steps)
    with socket.socket() as probe:  # a port that nobody uses
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    env = {**os.environ, "JAX_NUM_CPU_DEVICES": "1"}
    peers = [subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--worker", address, str(number)], env=env)
             for number in range(options.processes)]
    try:
        codes = [peer.wait(300) for peer in peers]
    finally:
        for peer in peers:
            peer.kill()
    if any(codes):
        raise SystemExit(f"the processes ended with {codes}")


if __name__ == "__main__":
    main()
