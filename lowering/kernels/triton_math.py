"""Elementwise operations in Triton's dialect: arithmetic, comparisons, conversions, mathematical functions."""

from __future__ import annotations

from typing import Any

import numpy as np

_FLOAT = {"add": "arith.addf", "add_any": "arith.addf", "sub": "arith.subf", "mul": "arith.mulf", "div": "arith.divf",
          "rem": "arith.remf", "max": "arith.maximumf", "min": "arith.minimumf", "neg": "arith.negf"}
_SIGNED = {"add": "arith.addi", "add_any": "arith.addi", "sub": "arith.subi", "mul": "arith.muli", "div": "arith.divsi",
           "rem": "arith.remsi", "max": "arith.maxsi", "min": "arith.minsi", "and": "arith.andi", "or": "arith.ori",
           "xor": "arith.xori", "shift_left": "arith.shli", "shift_right_logical": "arith.shrui",
           "shift_right_arithmetic": "arith.shrsi"}
_UNSIGNED = _SIGNED | {"div": "arith.divui", "rem": "arith.remui", "max": "arith.maxui", "min": "arith.minui"}
FUNCTIONS = {"exp": "math.exp", "exp2": "math.exp2", "log": "math.log", "sin": "math.sin", "cos": "math.cos",
              "sqrt": "math.sqrt", "rsqrt": "math.rsqrt", "erf": "math.erf", "floor": "math.floor", "ceil": "math.ceil",
              "abs": "math.absf"}
LIBDEVICE = {"tanh": "tanh", "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh",
              "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "log1p": "log1p", "expm1": "expm1", "cbrt": "cbrt",
              "pow": "pow", "atan2": "atan2", "lgamma": "lgamma", "erfc": "erfc", "erf_inv": "erfinv", "nextafter": "nextafter"}
_COMPARE = {"eq": ("oeq", "eq", "eq"), "ne": ("une", "ne", "ne"), "lt": ("olt", "slt", "ult"), "le": ("ole", "sle", "ule"),
            "gt": ("ogt", "sgt", "ugt"), "ge": ("oge", "sge", "uge")}
ARITHMETIC = {*_FLOAT, *_SIGNED, *_COMPARE}


def is_float(dtype: Any) -> bool:
    """Whether a dtype is one of floats, those of ml_dtypes included."""
    return dtype.kind == "f" or dtype.kind == "V" and "float" in dtype.name


def compare(k: Any, how: str, x: Any, y: Any) -> Any:
    """A comparison of two blocks by a predicate of `arith.cmpi` or `arith.cmpf`."""
    if how == "une" and not k.compares_unordered:
        equal = compare(k, "oeq", x, y)
        return k.binary("arith.xori", equal, k.constant(True, np.bool_, x.shape))
    operation = "arith.cmpf" if is_float(x.dtype) else "arith.cmpi"
    return k.op(f"{operation} {how}, {x.name}, {y.name} : {k.type(x)}", x.shape, np.bool_)


def elementwise(k: Any, name: str, values: list[Any], dtype: Any) -> Any:
    """An operation on elements, of operands of one shape."""
    x = values[0]
    kind = "f" if is_float(x.dtype) else x.dtype.kind
    if kind == "f" and x.dtype.itemsize == 1:  # LLVM would end the process
        raise ValueError(f"{name} of {x.dtype} is not supported in the Pallas {k.backend} lowering: convert to float32 first")
    if name in _COMPARE:
        return compare(k, _COMPARE[name][{"f": 0, "i": 1}.get(kind, 2)], *values)
    if name in k.functions and kind == "f":
        return as_float32(k, lambda wide: k.unary(k.functions[name], wide[0]), values)
    if name in k.library and kind == "f":
        return as_float32(k, lambda wide: extern(k, k.library[name], wide), values)
    if name == "neg" and kind != "f":
        return k.binary("arith.subi", k.constant(0, x.dtype, x.shape), x)
    if name == "abs":
        return x if kind == "u" else k.unary("math.absi", x)
    table = _FLOAT if kind == "f" else _SIGNED if kind == "i" else _UNSIGNED
    if name not in table:
        raise ValueError(f"{name} of {x.dtype} is not supported in the Pallas {k.backend} lowering")
    if kind == "f" and x.dtype.itemsize == 2 and name in ("div", "rem", "max", "min"):
        return as_float32(k, lambda wide: elementwise(k, name, wide, wide[0].dtype), values)
    operation = table[name]
    return k.unary(operation, x) if len(values) == 1 else k.binary(operation, *values)


def as_float32(k: Any, compute: Any, values: list[Any]) -> Any:
    """A function of real numbers, which narrow floats are widened for."""
    dtype = values[0].dtype
    if dtype.itemsize >= 4:
        return compute(values)
    return convert(k, compute([convert(k, each, np.dtype(np.float32)) for each in values]), dtype)


def extern(k: Any, name: str, values: list[Any]) -> Any:
    """A function of NVIDIA's library of mathematics."""
    x = values[0]
    symbol = f"__nv_{name}{'f' if x.dtype.itemsize == 4 else ''}"
    types = ", ".join(map(k.type, values))
    return k.op(f"tt.extern_elementwise {', '.join(each.name for each in values)} {{libname = \"\", libpath = \"\", "
                f"pure = true, symbol = \"{symbol}\"}} : ({types}) -> {k.type(x)}", x.shape, x.dtype)


def convert(k: Any, x: Any, dtype: Any) -> Any:
    """The values in another dtype."""
    dtype, own = np.dtype(dtype), x.dtype
    if own == dtype:
        return x
    for one, other in ((own, dtype), (dtype, own)):
        if is_float(one) and one.itemsize == 1 and not is_float(other):
            return convert(k, convert(k, x, np.dtype(np.float32)), dtype)

    def cast(operation: str, x: Any, dtype: Any) -> Any:
        target = k.type(type(x)("", x.shape, np.dtype(dtype)))
        return k.op(f"{operation} {x.name} : {k.type(x)} to {target}", x.shape, dtype)

    if dtype.kind == "b":
        return compare(k, "une" if is_float(own) else "ne", x, k.constant(0, own, x.shape))
    floats, target_floats = is_float(own), is_float(dtype)
    if floats and target_floats:
        if 1 in (own.itemsize, dtype.itemsize) and k.backend == "Triton":
            target = k.type(type(x)("", x.shape, dtype))
            rounding = ", rounding = rtne" if dtype.itemsize < own.itemsize else ""
            return k.op(f"tt.fp_to_fp {x.name}{rounding} : {k.type(x)} -> {target}", x.shape, dtype)
        if own.itemsize == dtype.itemsize == 2:
            return cast("arith.truncf", cast("arith.extf", x, np.float32), dtype)
        return cast("arith.extf" if dtype.itemsize > own.itemsize else "arith.truncf", x, dtype)
    if floats:
        return cast("arith.fptoui" if dtype.kind == "u" else "arith.fptosi", x, dtype)
    if target_floats:
        return cast("arith.sitofp" if own.kind == "i" else "arith.uitofp", x, dtype)
    bits, target_bits = (1 if each.kind == "b" else 8 * each.itemsize for each in (own, dtype))
    if bits == target_bits:
        return type(x)(x.name, x.shape, dtype)  # integers have no sign there
    if target_bits < bits:
        return cast("arith.trunci", x, dtype)
    return cast("arith.extsi" if own.kind == "i" else "arith.extui", x, dtype)
