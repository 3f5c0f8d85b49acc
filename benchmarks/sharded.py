"""Rows of programs over eight CPU devices: what a call, a batch and a data-parallel training step cost.

The worker makes the devices before anything runs. The step is that of `programs.training_step` over a batch of sequences, cut
over the devices, with the weights on all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import programs
from benchmarks.programs import Frontend

DEVICES = 8
CALLS = (1, 10, 100)
STEP = "training step, 12 layers"
SUM_STEP = "shard_map all-reduce step"
STAGES = ("trace", "lower", "compile", "run")


def prepare(ns: Frontend) -> None:
    """Make the devices; before the first array."""
    ns.jax.config.update("jax_num_cpu_devices", DEVICES)


def _sharding(ns: Frontend, *spec: str) -> Any:
    names = ns.jax.sharding
    return names.NamedSharding(names.Mesh(np.array(ns.jax.devices()), ("data",)), names.PartitionSpec(*spec))


def calls(ns: Frontend) -> dict[str, Callable[[], Any]]:
    """What is timed call by call."""
    cut = _sharding(ns, "data")
    made: dict[str, Callable[[], Any]] = {}
    for count in CALLS:
        arrays = [ns.jax.device_put(np.ones((8, 4), np.float32), cut) for _ in range(count)]
        jitted = ns.jax.jit(lambda *xs: [x + 1 for x in xs])
        made[f"call, {count} array{'s' * (count > 1)}"] = functools.partial(jitted, *arrays)
    batch = {"x": np.ones((64, 128), np.float32), "y": np.ones(64, np.int32)}
    made["device_put of a batch, 2 arrays"] = lambda: ns.jax.device_put(batch, cut)
    made["device_put of 1 MB"] = functools.partial(ns.jax.device_put, np.ones((256, 1024), np.float32), cut)
    made[SUM_STEP] = summed_step(ns)
    spread = ns.jax.device_put(np.ones((64, 128), np.float32), cut)
    made["eager x + 1"] = lambda: spread + 1
    return made


def summed_step(ns: Frontend) -> Callable[[], Any]:
    """A call of a step whose gradient is summed by `shard_map`."""
    jax, jnp = ns.jax, ns.jnp
    everywhere, cut = _sharding(ns), _sharding(ns, "data")
    names = ns.jax.sharding.PartitionSpec

    def loss(w: Any, x: Any) -> Any:
        return jax.lax.pmean(jnp.mean((jnp.tanh(x @ w) - 1) ** 2), "data")

    mapped = jax.shard_map(loss, mesh=cut.mesh, in_specs=(names(), names("data")), out_specs=names())
    step = jax.jit(lambda w, x: w - 0.1 * jax.grad(mapped)(w, x))
    w = jax.device_put(np.full((128, 128), 0.01, np.float32), everywhere)
    return functools.partial(step, w, jax.device_put(np.ones((64, 128), np.float32), cut))


def training_step(ns: Frontend) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A fresh step, and its arguments on the devices."""
    jax, jnp = ns.jax, ns.jnp
    forward, (params, tokens) = programs.transformer(ns, 12, 16, 32)

    def loss(params: Any, tokens: Any, targets: Any) -> Any:
        scores = jax.nn.log_softmax(jax.vmap(forward, (None, 0))(params, tokens))
        return -jnp.mean(jnp.take_along_axis(scores, targets[..., None], axis=-1))

    def step(params: Any, tokens: Any, targets: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, tokens, targets)
        return value, jax.tree.map(lambda w, g: w - 0.1 * g, params, gradients)

    batch = np.stack([np.roll(tokens, shift) for shift in range(2 * DEVICES)])
    everywhere, cut = _sharding(ns), _sharding(ns, "data")
    return step, (jax.device_put(params, everywhere), *jax.device_put((batch, np.roll(batch, -1, 1)), cut))
