"""Collectives over the axes of a mesh, against NumPy: the parts of all devices are rows of one array."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices.eight import own_process

if (test_on_eight_devices := own_process(__file__)) is None:
    del test_on_eight_devices
    import jaxlite as jax
    import jaxlite.numpy as jnp
    from jaxlite import lax
    from jaxlite.sharding import Mesh
    from jaxlite.sharding import PartitionSpec as P

    DEVICES = np.array(jax.devices())
    MESH = Mesh(DEVICES.reshape(4, 2), ("x", "y"))
    SHUFFLED = Mesh(DEVICES[[3, 0, 6, 1, 7, 5, 2, 4]].reshape(2, 4).T, ("x", "y"))
    RNG = np.random.default_rng(0)
    X = RNG.normal(size=(4, 2, 4, 8)).astype(np.float32)  # [x, y, ...]: the part of each device

    def spread(x):
        """The parts of all devices, put side by side along axis 0 and 1."""
        return np.concatenate([np.concatenate(list(row), 1) for row in x], 0)

    def parts(whole):
        rows = np.split(np.asarray(whole), 4, 0)
        return np.array([np.split(row, 2, 1) for row in rows])

    def along(x, names):
        """Parts as [others..., index along the names, ...], and the way back."""
        if names == ("x",):
            return np.swapaxes(x, 0, 1), lambda out: np.swapaxes(out, 0, 1)
        if names == ("y",):
            return x, lambda out: out
        flat = (x if names == ("x", "y") else np.swapaxes(x, 0, 1)).reshape(1, 8, *x.shape[2:])

        def back(out):
            out = out.reshape(*((4, 2) if names == ("x", "y") else (2, 4)), *out.shape[2:])
            return out if names == ("x", "y") else np.swapaxes(out, 0, 1)

        return flat, back

    def shared(row, value):
        return np.broadcast_to(value, (len(row), *value.shape))

    def all_to_all(row, split, concat):
        pieces = [np.split(part, len(row), split) for part in row]
        return np.array([np.concatenate([each[index] for each in pieces], concat) for index in range(len(row))])

    def permuted(row, pairs):
        out = np.zeros_like(row)
        for source, target in pairs:
            out[target] = row[source]
        return out

    CASES = {
        "psum": (lambda x, n: lax.psum(x, n), lambda row: shared(row, row.sum(0))),
        "pmean": (lambda x, n: lax.pmean(x, n), lambda row: shared(row, row.mean(0))),
        "pmax": (lambda x, n: lax.pmax(x, n), lambda row: shared(row, row.max(0))),
        "pmin": (lambda x, n: lax.pmin(x, n), lambda row: shared(row, row.min(0))),
        "all_gather": (lambda x, n: lax.all_gather(x, n, axis=1).reshape(4, -1),
                       lambda row: shared(row, np.stack(row, 1).reshape(4, -1))),
        "all_gather tiled": (lambda x, n: lax.all_gather(x, n, axis=1, tiled=True),
                             lambda row: shared(row, np.concatenate(row, 1))),
        "all_gather invarying": (lambda x, n: lax.all_gather(x, n, tiled=True, to="invarying"),
                                 lambda row: shared(row, np.concatenate(row, 0))),
        "psum_scatter": (lambda x, n: lax.psum_scatter(x, n, scatter_dimension=1, tiled=True),
                         lambda row: np.array(np.split(row.sum(0), len(row), 1))),
        "psum_scatter stacked": (lambda x, n: lax.psum_scatter(x.reshape(4, lax.axis_size(n), -1), n, scatter_dimension=1),
                                 lambda row: row.sum(0).reshape(4, len(row), -1).swapaxes(0, 1)),
        "all_to_all": (lambda x, n: lax.all_to_all(x, n, 1, 0, tiled=True), lambda row: all_to_all(row, 1, 0)),
        "all_to_all stacked": (
            lambda x, n: lax.all_to_all(x.reshape(4, lax.axis_size(n), -1), n, 1, 0).reshape(lax.axis_size(n) * 4, -1),
            lambda row: row.reshape(len(row), 4, len(row), -1).transpose(2, 0, 1, 3).reshape(len(row), len(row) * 4, -1)),
        "pswapaxes": (lambda x, n: lax.pswapaxes(x.reshape(4, lax.axis_size(n), -1), n, 1).reshape(4, -1),
                      lambda row: row.reshape(len(row), 4, len(row), -1).transpose(2, 1, 0, 3).reshape(len(row), 4, -1)),
        "ppermute": (lambda x, n: lax.ppermute(x, n, [(0, 1), (1, 0)]), lambda row: permuted(row, [(0, 1), (1, 0)])),
        "ppermute to one": (lambda x, n: lax.ppermute(x, n, [(1, 0)]), lambda row: permuted(row, [(1, 0)])),
        "pshuffle": (lambda x, n: lax.pshuffle(x, n, list(range(lax.axis_size(n)))[::-1]), lambda row: row[::-1]),
        "pbroadcast": (lambda x, n: lax.pbroadcast(x, n, 1), lambda row: shared(row, row[1])),
        "axis_index": (lambda x, n: x + lax.axis_index(n), lambda row: row + np.arange(len(row)).reshape(-1, 1, 1)),
    }

    NAMES = [("x",), ("y",), ("x", "y"), ("y", "x")]

    def mapped(cases, mesh=MESH, **options):
        def shards(x):
            return [CASES[case][0](x, names if len(names) > 1 else names[0]) for case, names in cases]

        return jax.shard_map(shards, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"), **options)

    @pytest.mark.parametrize("mesh, names", [(MESH, NAMES), (SHUFFLED, NAMES[2:])], ids=["in order", "shuffled"])
    def test_values(mesh, names):
        cases = [(case, each) for case in CASES for each in names]
        for (case, each), out in zip(cases, jax.jit(mapped(cases, mesh))(spread(X)), strict=True):
            grouped, back = along(X, each)
            wanted = back(np.array([CASES[case][1](row) for row in grouped]))
            np.testing.assert_allclose(parts(out), wanted, rtol=1e-5, atol=1e-6, err_msg=f"{case} {each}")

    def test_linear_collectives_have_their_adjoints():
        """<w, f(x)> = <transpose of f at w, x>, with and without types that say what varies."""
        cases = [(case, names) for case in CASES if case not in ("pmax", "pmin", "axis_index") for names in NAMES[3:]]
        for check in (True, False):
            def pairs(x, check=check):
                outs, pull = jax.vjp(mapped(cases, check_vma=check), x)
                found = []
                for index, out in enumerate(outs):
                    w = jnp.cos(jnp.arange(out.size, dtype=jnp.float32)).reshape(out.shape)
                    (back,) = pull([w if other == index else jnp.zeros_like(each) for other, each in enumerate(outs)])
                    found.append((jnp.vdot(w, out), jnp.vdot(back, x)))
                return found

            for (case, names), (left, right) in zip(cases, jax.jit(pairs)(spread(X)), strict=True):
                np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-3, err_msg=f"{case} {names} {check}")
