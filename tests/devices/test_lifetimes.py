"""No use of an array keeps it, on one device or over several."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.experimental import io_callback
from jaxlite.sharding import Mesh, NamedSharding, PartitionSpec
from tests.devices.eight import own_process

if (test_on_eight_devices := own_process(__file__)) is None:
    del test_on_eight_devices
    MESH = Mesh(np.array(jax.devices()), ("d",))
    PLACES: dict[str, Any] = {"one device": None, "eight devices": NamedSharding(MESH, PartitionSpec("d"))}

    def spread(body: Callable, x: Any) -> Any:
        return jax.shard_map(body, mesh=MESH, in_specs=PartitionSpec("d"), out_specs=PartitionSpec("d"))(x)

    USES: dict[str, Callable[[Any], Any]] = {
        # Python and NumPy read it.
        "str": str, "repr": repr, "format": "{}".format, "list": list, "tolist": lambda x: x.tolist(), "numpy": np.asarray,
        "pickle": pickle.dumps, "deepcopy": copy.deepcopy, "value": lambda x: x._value, "device_get": jax.device_get,
        "compare": lambda x: bool((x == x).all()), "async": lambda x: (x.copy_to_host_async(), np.asarray(x)),
        "shards": lambda x: [np.asarray(shard.data) for shard in x.addressable_shards],
        "live_arrays": lambda x: jax.live_arrays() and None,
        # It goes elsewhere, or something is made of it.
        "device_put": lambda x: jax.device_put(x, jax.devices()[1]), "put again": jax.device_put, "index": lambda x: x[0],
        "slice": lambda x: x[1:3], "mask": lambda x: x[x > 1], "at": lambda x: x.at[0].set(1.0),
        "ref": lambda x: jax.new_ref(x)[...],
        "assemble": lambda x: jax.make_array_from_single_device_arrays(
            x.shape, x.sharding, [shard.data for shard in x.addressable_shards]),
        # Functions take it, or close over it.
        "jit": lambda x: jax.jit(lambda v: v + 1)(x), "jit closure": lambda x: jax.jit(lambda v: v + x)(1.0),
        "lower": lambda x: jax.jit(lambda v: v + x).lower(1.0),
        "compile": lambda x: jax.jit(lambda v: v + x).lower(1.0).compile()(1.0),
        "jaxpr": lambda x: str(jax.make_jaxpr(lambda v: v + x)(1.0)), "eval_shape": lambda x: jax.eval_shape(lambda: x),
        "grad": lambda x: jax.grad(lambda v: (v * v).sum())(x),
        "grad closure": lambda x: jax.grad(lambda v: (v * x).sum())(1.0),
        "vjp": lambda x: jax.vjp(jnp.sin, x)[1](x), "jvp": lambda x: jax.jvp(jnp.sin, (x,), (x,)),
        "vmap": lambda x: jax.vmap(jnp.sin)(x), "linearize": lambda x: jax.linearize(jnp.sin, x)[1](x),
        "checkpoint": lambda x: jax.grad(jax.checkpoint(lambda v: (v * x).sum()))(1.0),
        "scan": lambda x: lax.scan(lambda c, v: (c + v, v), 0.0, x),
        "scan closure": lambda x: lax.scan(lambda c, v: (c + x, v), x, jnp.arange(3.0)),
        "while": lambda x: lax.while_loop(lambda s: s.sum() < 0, lambda s: s + x, x),
        "cond": lambda x: lax.cond(True, lambda: x, lambda: x * 2), "partial": lambda x: jax.tree_util.Partial(jnp.add, x)(1.0),
        "shard_map": lambda x: spread(lambda v: v * 2, x),
        "shard_map closure": lambda x: spread(lambda v: v * x[0], jnp.arange(8.0)),
        "pure_callback": lambda x: jax.pure_callback(np.asarray, x, x), "print": lambda x: jax.debug.print("{}", x),
        "io_callback": lambda x: io_callback(lambda v: None, None, x),
        # What it is given to fails.
        "wrong reshape": lambda x: x.reshape(7), "wrong dot": lambda x: jnp.dot(x, jnp.ones(7)), "not a bool": bool,
        "wrong jit": lambda x: jax.jit(lambda v: v.reshape(7))(x), "wrong index": lambda x: x[jnp.array([1.5])],
    }

    @pytest.mark.parametrize("place", PLACES)
    def test_no_use_of_an_array_keeps_it(place):
        kept = []
        for name, use in USES.items():
            x = jnp.arange(16.0)
            if PLACES[place] is not None:
                x = jax.device_put(x, PLACES[place])
            of_array = weakref.ref(x)
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    use(x)
                failed = False
            except (TypeError, ValueError):
                failed = True
            assert failed == name.startswith(("wrong", "not")), name
            jax.effects_barrier()
            del x
            gc.collect()
            if of_array() is not None:
                kept.append(name)
        assert not kept
