"""What JAX pickles, one of each kind. With JAX, `python objects.py` writes the file of its version beside this one."""

import functools

import jax
import jax.numpy as jnp
import jax.scipy.sparse.linalg
from jax.experimental.layout import Format, Layout
from jax.scipy.interpolate import RegularGridInterpolator
from jax.scipy.stats import gaussian_kde
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = AbstractMesh((2, 4), ("x", "y"), (AxisType.Explicit, AxisType.Manual))
keys = jax.random.split(jax.random.key(3), 2)
names = (((1,), (1,)), ((), ()))
objects = [
    P("x", None, P.UNCONSTRAINED), P(None, unreduced={"x"}), mesh, NamedSharding(mesh, P("x")),
    AbstractDevice("TPU v5", 2, "tpu"),
    AbstractMesh((2,), ("x",), (AxisType.Auto,), abstract_device=AbstractDevice("TPU v5", 2, "tpu")), jax.memory.Space.Host,
    Format(Layout((1, 0)), NamedSharding(mesh, P("x"))), Layout((1, 0), ((8, 128),)), Layout.AUTO,
    jax.core.ShapedArray((2, 3), jnp.bfloat16, sharding=NamedSharding(mesh, P("x"))), jax.typeof(1), jax.typeof(keys),
    keys.dtype, keys, jax.random.key(3, impl="unsafe_rbg"), jax.random.key(3, impl="rbg"),
    jax.ShapeDtypeStruct((2,), keys.dtype),
    jnp.arange(3), jax.lax.Precision.HIGH, jax.lax.GatherScatterMode.CLIP, jax.lax.FftType.RFFT,
    jax.lax.ConvDimensionNumbers((0, 1), (1, 0), (0, 1)), jax.lax.RaggedDotDimensionNumbers(names, [0], [0]),
    jnp.linalg.slogdet(2 * jnp.eye(2)), jnp.unique_counts(jnp.arange(2)), jax.tree.structure({"a": (1, None)}),
    jax.tree_util.Partial(jax.lax.add, jnp.ones(2)), functools.partial(jax.ops.segment_sum, num_segments=2), jax.tree.map,
    gaussian_kde(jnp.array([0.0, 2.0]), 0.5), jax.scipy.stats.norm.pdf, jax.scipy.stats.beta.logcdf, jax.scipy.sparse.linalg.cg,
    functools.partial(RegularGridInterpolator((jnp.array([0.0, 1.0, 3.0]),), jnp.array([0.0, 10.0, 20.0]))),
    jax.lax.scan, jax.checkpoint_policies.everything_saveable, jax.errors.TracerBoolConversionError,
]
policies = [jax.checkpoint_policies.dots_saveable, jax.checkpoint_policies.dots_with_no_batch_dims_saveable]
if jax.__version_info__ < (0, 11):
    policies += [jax.checkpoint_policies.save_only_these_names("a"), jax.checkpoint_policies.save_any_names_but_these("a")]

if __name__ == "__main__":
    import pathlib
    import pickle

    pathlib.Path(__file__).with_name(f"{jax.__version__}.pickle").write_bytes(pickle.dumps((objects, policies), 4))
