"""Differences from JAX that are meant: pattern of the program (of the name, for a docstring), kinds, reason."""

KNOWN: list[tuple[str, str, str]] = [
    (r"matrix_rank\(.*rtol=", "value", "docs/sharp_edges.md: rtol is relative, as in NumPy"),
    (r"\bjnp\.(less|greater|equal|not_equal|less_equal|greater_equal|logical_\w+|isnan|isinf|isfinite)\(", "weak type",
     "booleans are never weakly typed; in promotion it makes no difference"),
    (r"^jax\.numpy\.(less|greater|equal|not_equal|less_equal|greater_equal|isnan|isfinite)$", "printed",
     "booleans are never weakly typed; in promotion it makes no difference"),
    (r"^str\(jax\.typeof", "repr", "types are printed as in jaxprs, f32[3]"),
    (r"^jax\.numpy\.poly(add|sub)$", "printed", "polynomials of any rank are added, JAX raises"),
    (r"jsp\.fft\.i?dctn?\(.*(bfloat16|float16)", "value", "16-bit floats are transformed in float32, in JAX in part"),
    (r"^jax\.vmap$", "printed", "docs/sharp_edges.md: a number that is handed through becomes an array"),
    (r"^jax\.scipy\.linalg\.dft$", "printed", "computed in double precision first: zeros and their signs are exact"),
    (r"^jax\.numpy\.einsum_path$", "printed", "the report of the path is laid out as NumPy's, JAX's as opt_einsum's"),
    (r"(cdf|logcdf|sf|logsf|pdf|logpdf|pmf|logpmf)\(", "value of nan", "docs/sharp_edges.md: no slope outside of a support"),
    (r"jsp\.linalg\.(cholesky|cho_factor)\(", "value", "the derivative is that of the triangle that is read"),
    (r"^jnp\.array\(np\.ma\.", "raises", "masked arrays are refused everywhere, in JAX by most functions"),
    (r"^jnp\.array\(\[np\.ma\.", "raises", "masked arrays are refused everywhere, in JAX by most functions"),
    (r"__array_namespace__\(\)\.__name__", "repr", "the module's name is jaxlite.numpy"),
    (r"^jax\.Array\.all$|^jax\.debug_key_reuse$", "repr", "the name of the method or option"),
    (r"\bacosh\(|\barccosh\(", "value", "below 1 there is no derivative; JAX continues it for arguments below -1"),
    (r"lax\.p(max|min|sum|mean)\(.*'i'\)", "class of error", "the name is looked up before the derivative"),
    (r"^random\.key\(0\)\.(astype|real)", "class of error", "the same error as of convert_element_type"),
]
