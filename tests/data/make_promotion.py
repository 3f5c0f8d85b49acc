"""Writes promotion.json, the expected results of dtype promotion, by asking JAX. Run it where jax is installed.

Types are written as `i32`, weak ones as `i32*`, Python scalar types as `int`; a promotion error is `-`.
Each table maps a type to the results of promoting it with every type of the table from its own place on
(promotion is symmetric).
"""

import json
import operator
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp

STRONG = [
    "bool", "int1", "int2", "int4", "int8", "int16", "int32", "int64", "uint1", "uint2", "uint4", "uint8", "uint16",
    "uint32", "uint64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128", "float8_e3m4",
    "float8_e4m3", "float8_e8m0fnu", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn",
]
# Other weak types (int4, float8, ...) exist in no program, and JAX fails on them with an internal error.
WEAK = ["int8*", "int32*", "int64*", "uint8*", "uint32*", "float16*", "bfloat16*", "float32*", "float64*", "complex64*",
        "complex128*"]
PYTHON = {"int": int, "float": float, "complex": complex, "pybool": bool}
WIDE = ("int64", "uint64", "float64", "complex128")  # in a program only where they are enabled


def short(dtype, weak=False):
    return jax.core.ShapedArray((), dtype).str_short(short_dtypes=True)[:-2] + "*" * weak


def on_tracers(a, b, combine):
    """`combine` of traced values of types `a` and `b`."""
    def traced(x, y):
        found.append(combine(x, y))

    found = []
    try:
        jax.eval_shape(traced, *(
            jax.ShapeDtypeStruct((), jnp.dtype(name.strip("*")), weak_type=name.endswith("*")) for name in (a, b)))
    except jax.dtypes.TypePromotionError:
        return "-"
    return found[0]


def operation(a, b):
    """What multiplying values of the types gives."""
    def multiply(x, y):
        product = operator.mul(x, y)
        return short(product.dtype, product.weak_type)

    return on_tracers(a, b, multiply)


def result_type(a, b):
    """What `result_type` of values of the types gives."""
    return on_tracers(a, b, lambda x, y: short(*jax.dtypes.result_type(x, y, return_weak_type_flag=True)))


def promote_types(a, b):
    """What `promote_types` of the types gives with x64 on."""
    try:
        return short(jnp.promote_types(PYTHON.get(a, a), PYTHON.get(b, b)))
    except jax.dtypes.TypePromotionError:
        return "-"


def table(names, promote):
    return {a: " ".join(promote(a, b) for b in names[i:]) for i, a in enumerate(names)}


warnings.simplefilter("ignore")
tables = {}
for mode in ("standard", "strict"):
    jax.config.update("jax_numpy_dtype_promotion", mode)
    for x64 in (False, True):
        jax.config.update("jax_enable_x64", x64)
        strong, weak = ([name for name in names if x64 or name.strip("*") not in WIDE] for names in (STRONG, WEAK))
        for promote in (operation, result_type):
            tables[f"{promote.__name__} {mode} x64={int(x64)}"] = table(strong + weak, promote)
    tables[f"promote_types {mode}"] = table([*STRONG, *PYTHON], promote_types)
Path(__file__).with_name("promotion.json").write_text(json.dumps(tables, indent=0) + "\n")
