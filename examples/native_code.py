"""A C++ function as an operation of compiled programs, with a derivative.

    python examples/native_code.py

Compiles a handler with g++ and the headers that jaxlib ships, registers it, gives it a JVP rule in terms of itself and the
cosine, and uses it under jit, vmap and grad.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import jaxlite
import jaxlite.numpy as jnp

SOURCE = """
#include <cmath>
#include "xla/ffi/api/ffi.h"
namespace ffi = xla::ffi;

// sin(factor * x), element by element.
static ffi::Error Wave(float factor, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> out) {
  for (size_t i = 0; i < x.element_count(); ++i) out->typed_data()[i] = std::sin(factor * x.typed_data()[i]);
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(WaveHandler, Wave, ffi::Ffi::Bind().Attr<float>("factor")
    .Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());
"""


def build(folder: Path) -> ctypes.CDLL:
    """The compiled library."""
    source, library = folder / "wave.cc", folder / "wave.so"
    source.write_text(SOURCE)
    subprocess.run(["g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", f"-I{jaxlite.ffi.include_dir()}", str(source), "-o",
                    str(library)], check=True)
    return ctypes.CDLL(str(library))


@jaxlite.custom_jvp
def wave(x: Any) -> Any:
    """sin(3 x), by the handler."""
    out = jaxlite.ShapeDtypeStruct(x.shape, x.dtype)
    return jaxlite.ffi.ffi_call("wave", out, vmap_method="broadcast_all")(x, factor=np.float32(3))


@wave.defjvp
def _wave_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (x,), (dx,) = primals, tangents
    return wave(x), 3 * jnp.cos(3 * x) * dx


def main() -> None:
    if shutil.which("g++") is None:
        raise SystemExit("this example needs g++")
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        jaxlite.ffi.register_ffi_target("wave", jaxlite.ffi.pycapsule(library.WaveHandler))
        x = jnp.linspace(0, 1, 6).reshape(2, 3)
        print("largest error:", float(abs(jaxlite.jit(jaxlite.vmap(wave))(x) - np.sin(3 * np.asarray(x))).max()))
        gradient = jaxlite.grad(lambda x: wave(x).sum())(x)
        print("largest error of the gradient:", float(abs(gradient - 3 * np.cos(3 * np.asarray(x))).max()))


if __name__ == "__main__":
    main()
