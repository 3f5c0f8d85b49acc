"""Native code in programs: handlers in C++ or CUDA, which are registered with XLA by name and called like functions.

`docs/ffi.md` has an example: build a handler with the headers of `include_dir()`, register it, call it.
"""

from __future__ import annotations

import ctypes
from typing import Any

from jaxlite.core.aval import abstract_token
from jaxlite.extend.lowering_rules import emit_foreign_call as emit_call
from jaxlite.lax.foreign import attribute_pairs, ffi_call
from lowering import xla

__all__ = ["abstract_token", "build_ffi_lowering_function", "ffi_call", "ffi_lowering", "include_dir", "pycapsule",
           "register_ffi_target", "register_ffi_target_as_batch_partitionable", "register_ffi_type", "register_ffi_type_id"]


def include_dir() -> str:
    """The folder with the headers that handlers are compiled with: `xla/ffi/api/ffi.h` and others, those of jaxlib."""
    return xla.include_folder()


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def pycapsule(funcptr: Any) -> Any:
    """A PyCapsule of a function from a ctypes library.

    Args:
      funcptr: a function of a `ctypes.CDLL`. The library has to stay loaded.
    """
    return _new_capsule(ctypes.cast(funcptr, ctypes.c_void_p), None, None)


def register_ffi_target(name: str, fn: Any, platform: str = "cpu", api_version: int = 1, **kwargs: Any) -> None:
    """Register a handler with XLA under a name.

    Args:
      name: the name that `ffi_call` calls it by.
      fn: a PyCapsule of the handler, or a dictionary of those of its stages: "instantiate", "prepare", "initialize",
        "execute".
      platform: where it runs: "cpu", "gpu" or "cuda".
      api_version: 1 for the typed interface, 0 for the one before.
      kwargs: further options of jaxlib's registry, `traits`.
    Raises: TypeError if `fn` is not a capsule; JaxRuntimeError if another handler has the name, or if it was compiled with the
      headers of a newer jaxlib.
    """
    parts = list(fn.values()) if isinstance(fn, dict) else [fn]
    for part in parts:
        _check_capsule("register_ffi_target", part)
    xla.register_foreign_target(name, fn, _platform(platform), api_version, kwargs)


def register_ffi_target_as_batch_partitionable(name: str) -> None:
    """Declare that a handler treats leading axes as a batch, which programs over several devices may split."""
    xla.register_batch_partitionable(name)


def register_ffi_type(name: str, type_registration: dict[str, Any], platform: str = "cpu") -> None:
    """Register a type for the state of handlers: a dictionary of the capsules "type_id" and "type_info"."""
    xla.register_foreign_type(name, type_registration, _platform(platform))


def register_ffi_type_id(name: str, obj: Any, platform: str = "cpu") -> None:
    """Register the id of a type, a capsule; `register_ffi_type` gives XLA the functions for it as well."""
    xla.register_foreign_type(name, obj, _platform(platform))


def _platform(name: str) -> str:
    return {"gpu": "CUDA", "cuda": "CUDA", "rocm": "ROCM"}.get(name, name)


def _check_capsule(what: str, value: Any) -> None:
    if type(value).__name__ != "PyCapsule":
        raise TypeError(f"{what} takes a PyCapsule, got {value!r}; jaxlite.ffi.pycapsule makes one from a ctypes function")


def build_ffi_lowering_function(call_target_name: str, *, operand_layouts: Any = None, result_layouts: Any = None,
                                backend_config: Any = None, skip_ffi_layout_processing: bool = False,
                                **lowering_args: Any) -> Any:
    """A function for lowering rules that emits the call of a handler; arguments as of `ffi_lowering`.

    Returns: `emit(ctx, *operands, **params)`, which gives the MLIR values of the results.
    """

    def emit(ctx: Any, *operands: Any, **params: Any) -> Any:
        def order(layouts: Any, avals: Any) -> Any:
            plain = [tuple(range(len(aval.shape))) for aval in avals]
            if not layouts:
                return plain
            return [axes if each is None else _slowest_first(each) for each, axes in zip(layouts, plain, strict=True)]

        attributes = attribute_pairs({**params, **(backend_config or {})})
        return emit_call(ctx, operands, call_target_name, lowering_args.get("has_side_effect", False), attributes,
                         order(operand_layouts, ctx.avals_in), order(result_layouts, ctx.avals_out),
                         tuple((lowering_args.get("operand_output_aliases") or {}).items()),
                         lowering_args.get("api_version", 4))

    return emit


def _slowest_first(layout: Any) -> tuple[int, ...]:
    return tuple(getattr(layout, "major_to_minor", None) or tuple(layout)[::-1])


def ffi_lowering(call_target_name: str, *, operand_layouts: Any = None, result_layouts: Any = None, backend_config: Any = None,
                 skip_ffi_layout_processing: bool = False, **lowering_args: Any) -> Any:
    """A lowering rule, for `interpreters.mlir.register_lowering`, that calls a handler.

    Args:
      call_target_name: the name it was registered by.
      operand_layouts, result_layouts: for each array its axes from the fastest to the slowest, as XLA has them and not as
        `ffi_call` does; or a `Layout`; None for the usual order, the last axis the fastest.
      backend_config: attributes that are the same in each call, by name.
      skip_ffi_layout_processing: for compatibility; layouts are taken as they are.
      lowering_args: `has_side_effect`, `operand_output_aliases` (input number -> output number), `api_version`.
    Returns: `rule(ctx, *operands, **params)`; the params of the primitive become attributes.
    """
    return build_ffi_lowering_function(
        call_target_name, operand_layouts=operand_layouts, result_layouts=result_layouts, backend_config=backend_config,
        skip_ffi_layout_processing=skip_ffi_layout_processing, **lowering_args)
