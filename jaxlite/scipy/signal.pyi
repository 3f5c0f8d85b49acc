"""Types for tools; written by docs/make_stubs.py."""
# ruff: noqa
# mypy: disable-error-code="misc, valid-type, no-redef, overload-overlap"

import builtins
import contextlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar, overload

import numpy as np

from jaxlite.typing import Array, ArrayLike, Axis, DTypeLike, Shape

_P = ParamSpec("_P")
_R = TypeVar("_R")


def convolve(in1: ArrayLike, in2: ArrayLike, mode: str = ..., method: str = ..., precision: Any = ...) -> Array: ...
def convolve2d(in1: ArrayLike, in2: ArrayLike, mode: str = ..., boundary: str = ..., fillvalue: Any = ..., precision: Any = ...) -> Array: ...
def correlate(in1: ArrayLike, in2: ArrayLike, mode: str = ..., method: str = ..., precision: Any = ...) -> Array: ...
def correlate2d(in1: ArrayLike, in2: ArrayLike, mode: str = ..., boundary: str = ..., fillvalue: Any = ..., precision: Any = ...) -> Array: ...
def detrend(data: ArrayLike, axis: int = ..., type: str = ..., bp: Any = ..., overwrite_data: None = ...) -> Array: ...
def fftconvolve(in1: ArrayLike, in2: ArrayLike, mode: str = ..., axes: Sequence[int] | int | None = ...) -> Array: ...
