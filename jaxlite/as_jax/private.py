"""The few private names, nearly all of `jax._src`, that widely used libraries import all the same, or that pickles name.

The table gives for each name a public equivalent in jaxlite, and the library that needs it. Nothing else of `jax._src`
exists.
"""

from __future__ import annotations

import importlib
import types
from typing import Any

# Module of jax._src -> module of ours, and which of its names: "theirs" or "theirs=ours"; "*" for any.
_ALIASES: dict[str, list[tuple[str, str]]] = {
    "array": [("jaxlite.core.values", "ArrayImpl"), ("jaxlite.as_jax.pickles", "_reconstruct_array")],  # lovely_jax; pickles
    "ad_checkpoint": [("jaxlite.as_jax.pickles", "DotsSaveable SaveAnyNamesButThese SaveOnlyTheseNames dots_saveable "
                                                 "dots_with_no_batch_dims_saveable everything_saveable nothing_saveable"),
                      ("jaxlite.ad_checkpoint", "*")],  # pickles; oryx
    "ad_util": [("jaxlite.lax.shaping", "stop_gradient_p"),  # lineax
                ("jaxlite.traces.jvp", "add_any_p p2tz=zero_for"),  # folx, jax-finufft
                ("jaxlite.interpreters.ad", "*")],  # pyscfad
    "api": [("jaxlite.as_jax.util", "_dtype"), ("jaxlite", "*")],  # pennylane; pyscfad
    "api_util": [("jaxlite.compilation.options", "infer_argnums_and_argnames"),  # keras
                 ("jaxlite.as_jax.util", "_ensure_index_tuple")],  # jaxloudnorm
    "config": [("jaxlite.core.config", "numpy_rank_promotion enable_checks threefry_partitionable")],  # quaxed, pennylane
    "clusters": [("jaxlite.as_jax.clusters", "ClusterEnv SlurmCluster")],  # levanter
    "basearray": [("jaxlite", "Array")],  # jinns
    "checkify": [("jaxlite.experimental.checkify", "*"), ("typing", "Out=Any")],  # flax
    "core": [
        ("jaxlite.core", "AbstractValue ShapedArray Tracer Trace"),  # equinox, jaxtyping, flax
        ("jaxlite.extend.core", "Primitive TraceTag jaxpr_as_fun set_current_trace take_current_trace"),  # equinox, TFP
        ("jaxlite.extend.core.values", "concrete_or_error"),  # dynamiqs
        ("jaxlite.extend.core.state", "trace_state_clean"),  # numpyro
        ("lowering.module", "physical_aval=physical"),  # flax
        ("jaxlite", "typeof"), ("jaxlite.core.values", "pytype_aval_mappings"),  # eformer
        ("jaxlite.core.jaxpr", "JaxprEqnContext"), ("jaxlite.extend.core.primitives", "closed_call_p"),  # brainstate
        ("jaxlite.as_jax.util", "dimension_as_value is_constant_dim"),  # torchax, saiunit
        ("jaxlite.as_jax.util", "definitely_equal_shape safe_map safe_zip"), ("jaxlite.core", "eval_jaxpr"),  # jax2onnx, oryx
        ("jaxlite.as_jax.util", "full_lower"),  # quax, eformer
        ("jaxlite.lax.shaping", "canonicalize_shape=canonical_shape"),  # torchax
        ("jaxlite.errors", "ShardingTypeError"),  # haliax
        ("collections.abc", "Shape=Sequence"), ("typing", "DimSize=Any"),  # torchax
        ("jaxlite.devices.sharding", "MemorySpace"), ("jaxlite.sharding", "ManualAxisType"),  # pickles
        ("jaxlite.extend.core", "*"),  # asdex: ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
    ],
    "custom_batching": [("jaxlite.custom_batching", "custom_vmap")],  # pickles
    "custom_api_util": [("jaxlite.as_jax.util", "register_custom_decorator_type")],  # jaxdecomp
    "custom_derivatives": [("jaxlite", "custom_jvp custom_vjp"), ("jaxlite.custom_derivatives", "*")],  # jaxonomy
    "dispatch": [("jaxlite.devices.api", "wait_for_tokens=effects_barrier"), ("jaxlite.interpreters.xla", "apply_primitive"),
                 ("jaxlite.as_jax.util", "prim_requires_devices_during_lowering xla_primitive_callable")],  # jaxdecomp, gpax
    "distributed": [("jaxlite.as_jax.distributed", "State global_state")],  # dew, orbax
    "dtypes": [  # flax, haiku, equinox, chex, qujax, jaxdecomp
        ("jaxlite.core.dtypes", "ExtendedDType TypePromotionError canonicalize_dtype dtype extended finfo to_complex_dtype "
                                "itemsize_bits supports_inf"),
        ("numpy", "DType=dtype"), ("jaxlite.dtypes", "float0 issubdtype result_type"),  # genjax, optree
    ],
    "earray": [("jaxlite.devices.extended", "EArray")],  # flax
    "export": [],
    "export._export": [("jaxlite.export", "DisabledSafetyCheck")],  # pickles
    "flattree": [("jaxlite.core.flat_tree", "FlatTree nones pack")],  # quax
    "flatten_util": [("jaxlite.flatten_util", "ravel_pytree")],  # blackjax
    "hijax": [("jaxlite.extend.boxes", "Box new_box box_get box_set"), ("jaxlite.core.high", "MappingSpec")],  # users of boxes
    "image": [],
    "image.scale": [("jaxlite.image.resampling", "ResizeMethod _kernels=_KERNELS")],  # torchax
    "interpreters": [],
    "interpreters.ad": [("jaxlite.traces.linearize", "LinearizeTracer"), ("jaxlite.interpreters.ad", "*")],  # awkward; pyscfad
    "interpreters.batching": [("jaxlite.transforms.vmap", "is_vmappable"),  # jaxoplanet
                              ("jaxlite.as_jax.batching", "make_iota to_elt"),  # brainstate
                              ("jaxlite.interpreters.batching", "*")],  # pyscfad
    "interpreters.mlir": [("jaxlite.as_jax.lowering", "broadcast_in_dim compare_hlo full_like_aval"),  # pyscfad
                          ("jaxlite.interpreters.mlir", "*")],
    "interpreters.pxla": [("jaxlite.interpreters.pxla", "*")],  # flax
    "interpreters.partial_eval": [("jaxlite.extend.dce_rules", "_default_dce_rule=default_rule"),  # tesseract
                                  ("jaxlite.interpreters.partial_eval", "*")],  # asdex
    "lax": [("jaxlite.lax", "*")],  # pyscfad
    "lax.control_flow": [("jaxlite.lax", "scan")],  # pytensor
    "lax.control_flow.loops": [("jaxlite.lax", "associative_scan fori_loop map scan while_loop")],  # pickles
    "lax.convolution": [("jaxlite.lax", "ConvDimensionNumbers")],  # pickles
    "lax.fft": [("jaxlite.lax", "FftType")],  # pickles
    "lax.lax": [("jaxlite.core.dtypes", "_complex_basetype=real_dtype"),  # pyscfad
                ("jaxlite.as_jax.util", "_const=const"),  # gwkokab
                ("jaxlite.lax", "*")],  # pyscfad
    "lax.linalg": [("jaxlite.lax.linalg.pieces", "_H=adjoint _T=transposed"),  # pyscfad
                   ("jaxlite.as_jax.lowering", "_broadcasting_select_hlo _nan_like_hlo"),
                   ("jaxlite.as_jax.linalg", "symmetrize"),
                   ("jaxlite.lax.linalg", "*")],  # unxt
    "lax.slicing": [("jaxlite.lax", "GatherDimensionNumbers GatherScatterMode ScatterDimensionNumbers")],  # pickles
    "layout": [("jaxlite.as_jax.pickles", "AutoLayoutSingleton"), ("jaxlite.experimental.layout", "Format Layout")],  # pickles
    "lib": [("jaxlite.as_jax.versions", "jaxlib_extension_version"), ("lowering.xla", "_jax")],  # grain, qwix
    "lib.xla_client": [("jaxlite.errors", "XlaRuntimeError=JaxRuntimeError"),  # dynamiqs
                       ("lowering.xla", "_xla=_jax")],  # easydel
    "lib.mlir": [("jaxlite.extend.mlir", "ir")],
    "lib.mlir.dialects": [("jaxlite.extend.mlir.dialects", "hlo=stablehlo arith func")],  # JAX's docs
    "linear_util": [("jaxlite.extend.linear_util", "*")],  # jaxonomy
    "literals": [("jaxlite.as_jax.literals", "TypedComplex TypedFloat TypedInt TypedNdArray")],  # equinox, quax
    "mesh": [("jaxlite.devices.mesh", "get_concrete_mesh=context_mesh"), ("jaxlite.interpreters.pxla", "thread_resources"),
             ("jaxlite.sharding", "*")],  # levanter, flax
    "named_sharding": [("jaxlite.as_jax.shardings", "UNSPECIFIED UnspecifiedValue"),  # kups
                       ("jaxlite.as_jax.pickles", "_unpickle_named_sharding"), ("jaxlite.sharding", "NamedSharding")],
    "nn": [],
    "nn.functions": [("jaxlite.nn", "*")],  # sbijax
    "nn.initializers": [("jaxlite.nn.initializers", "_complex_truncated_normal _complex_uniform")],  # e3x
    "numpy": [("jaxlite.numpy", "*")],  # pyscfad
    "numpy.array_methods": [("jaxlite.numpy.array_at", "_IndexUpdateHelper _IndexUpdateRef")],  # unxt
    "numpy.einsum": [("jaxlite.as_jax.einsums", "_default_poly_einsum_handler _einsum _poly_einsum_handlers")],  # haliax
    "numpy.index_tricks": [("jaxlite.numpy.grids", "CClass RClass")],  # quaxed
    "numpy.linalg": [("jaxlite.numpy.decompositions", "EighResult EigResult QRResult SVDResult SlogdetResult")],  # pickles
    "numpy.setops": [("jaxlite.numpy.sets", "_UniqueAllResult _UniqueCountsResult _UniqueInverseResult")],  # pickles
    "numpy.lax_numpy": [("jaxlite.numpy", "*")],  # haliax
    "numpy.ufuncs": [("jaxlite.numpy", "*")],  # esquilax, pyscfad
    "numpy.util": [("jaxlite.numpy.api", "promote_dtypes_complex promote_dtypes_inexact"),  # s2fft, orthax
                   ("jaxlite.as_jax.util", "promote_args_inexact")],  # gwkokab
    "numpy.vectorize": [("jaxlite.as_jax.vectorize", "*")],  # quaxed
    "ops": [],
    "ops.scatter": [("jaxlite.ops", "segment_max segment_min segment_prod segment_sum")],  # pickles
    "ops.special": [("jaxlite.nn", "logsumexp")],  # pickles
    "pallas": [],
    "pallas.primitives": [("jaxlite.experimental.pallas.primitives", "*")],  # ejkernel
    "partition_spec": [("jaxlite.sharding", "PartitionSpec"),  # levanter
                       ("jaxlite.core.aval", "UnreducedKind"), ("jaxlite.as_jax.pickles", "_get_default_unconstrained")],
    "pjit": [("jaxlite.compilation.jit", "jit_p"), ("jaxlite.sharding", "auto_axes"),  # quax, jaxns
             ("jaxlite.stages", "JitWrapped=Wrapped")],  # jaxtari
    "pretty_printer": [("jaxlite.as_jax.texts", "text")],  # haliax
    "public_test_util": [("jaxlite.as_jax.testing", "check_close")],  # tinygp
    "random": [("collections.abc", "Shape=Sequence")],  # evermore
    "random.core": [("typing", "KeyDTypeLike=Any PRNGSpecDesc=Any"), ("jaxlite.random", "*")],  # taktiny; pickles
    "random.prng": [("jaxlite.as_jax.pickles", "KeyTy PRNGImpl"), ("jaxlite.random.prng", "PRNGKeyArray")],  # pickles
    "random.rbg": [("jaxlite.random.rbg", "_rbg_fold_in=fold_in _rbg_random_bits=random_bits _rbg_seed=seed _rbg_split=split "
                                          "_unsafe_rbg_fold_in=unsafe_fold_in _unsafe_rbg_split=unsafe_split")],  # pickles
    "random.threefry2x32": [("jaxlite.random.threefry", "threefry_fold_in=fold_in threefry_random_bits=random_bits "
                                                        "threefry_seed=seed threefry_split=split")],  # quax
    "scipy": [],
    "scipy.optimize": [],
    "scipy.optimize.minimize": [("jaxlite.scipy.optimize", "OptimizeResults")],  # pickles
    "scipy.sparse": [],
    "scipy.sparse.linalg": [("jaxlite.scipy.sparse.linalg", "bicgstab cg gmres"),  # pickles
                            ("jaxlite.as_jax.linalg", "_norm _gmres_solve"),  # pyscfad
                            ("jaxlite.scipy.sparse.linalg", "_identity _normalize_matvec=_operator _gmres_batched "
                                                            "_gmres_incremental")],
    "scipy.spatial": [],
    "scipy.spatial.transform": [("jaxlite.scipy.spatial.transform", "Rotation Slerp")],  # pickles
    "scipy.special": [("jaxlite.scipy.special", "*")],  # jaxns
    "scipy.stats": [],
    "scipy.stats._core": [("jaxlite.scipy.stats.summaries", "ModeResult")],  # pickles
    "sharding_impls": [("jaxlite.as_jax.shardings", "UNSPECIFIED UnspecifiedValue canonicalize_sharding")],  # jaxns, brainstate
    "source_info_util": [("jaxlite.core.source", "register_exclusion"),  # kauldron
                         ("jaxlite.extend.source_info_util", "*")],  # brainstate
    "stages": [("jaxlite.stages", "*")],  # easydel
    "state": [("jaxlite.core.aval", "AbstractRef")],  # ejkernel
    "state.indexing": [("jaxlite.state.indexing", "NDIndexer Slice")],  # haliax
    "state.types": [("jaxlite.core.aval", "AbstractRef")],  # flax
    "third_party": [],
    "third_party.scipy": [],
    "traceback_util": [  # flax, haiku, chex, equinox
        ("jaxlite.core.source", "register_exclusion include_frame _exclude_paths=excluded"),
        ("jaxlite.core.filtering", "api_boundary=boundary filter_traceback=filtered UnfilteredStackTrace"),
    ],
    "tree": [("jaxlite.tree", "*")],  # pickles
    "tree_util": [("jaxlite.core.tree", "_registry=node_types"), ("jaxlite.as_jax.trees", "prefix_errors"),
                  ("typing", "BuiltInKeyEntry=Any"),
                  ("jaxlite.tree_util", "*")],  # flax; haliax
    "typing": [("collections.abc", "Shape=Sequence"), ("numpy", "DType=dtype"), ("jaxlite.typing", "*")],  # furax; jaxctx
    "util": [("jaxlite.as_jax.util", "*")],  # JAX's docs
    "xla_bridge": [("lowering.platforms", "_backends=clients"), ("jaxlite.extend.backend", "get_backend"),
                   ("jaxlite.as_jax.util", "backends_are_initialized")],  # chex, eformer
}
# Modules that are another one as a whole: libraries replace functions in it, or it is a part of jaxlib.
_SAME = {
    "compiler": "lowering.xla", "lib.gpu_triton": "jaxlib.gpu_triton",  # chex: backend_compile_and_load; ejkernel
    "third_party.scipy.interpolate": "jaxlite.scipy.interpolate",  # pickles
    **{f"scipy.stats.{each}": f"jaxlite.scipy.stats.{each}" for each in
       "bernoulli beta betabinom binom cauchy chi2 dirichlet expon gamma gennorm geom gumbel_l gumbel_r kde laplace logistic "
       "multinomial multivariate_normal nbinom norm pareto poisson t truncnorm uniform vonmises wrapcauchy".split()},  # pickles
}
# Private modules outside of jax._src.
ELSEWHERE = {"experimental.sparse._base": "experimental.sparse.base"}  # pymdp


def private_module(rest: str) -> types.ModuleType | None:
    """A module in the place of `jax._src` or `jax._src.x`; None if no name of it is in the table."""
    name = rest.partition(".")[2]
    if name in _SAME:
        return importlib.import_module(_SAME[name])
    if name and name not in _ALIASES:
        return None
    module = types.ModuleType(f"jax.{rest}", "Aliases of public names: see jaxlite.as_jax.private.")
    module.__path__ = []
    found = {}
    for home, text in _ALIASES.get(name, ()):
        for each in text.split():
            theirs, _, ours = each.partition("=")
            found[theirs] = home, ours or theirs

    def __getattr__(wanted: str) -> Any:
        inner = f"{name}.{wanted}" if name else wanted
        if inner in _ALIASES or inner in _SAME:
            return importlib.import_module(f"{module.__name__}.{wanted}")
        home, ours = found.get(wanted) or (found["*"][0] if "*" in found else "", wanted)
        if home and not wanted.startswith("__"):
            source = importlib.import_module(home)
            if wanted in found or hasattr(source, ours):
                return getattr(source, ours)
        raise AttributeError(f"module {module.__name__!r} has no attribute {wanted!r}: it is private in JAX, and jaxlite has "
                             "no equivalent of it")

    module.__getattr__ = __getattr__  # type: ignore[method-assign]
    return module
