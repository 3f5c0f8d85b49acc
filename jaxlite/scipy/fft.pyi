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


def dct(x: ArrayLike, type: int = ..., n: int | None = ..., axis: int = ..., norm: str | None = ...) -> Array: ...
def dctn(x: ArrayLike, type: int = ..., s: int | Sequence[int] | None = ..., axes: int | Sequence[int] | None = ..., norm: str | None = ...) -> Array: ...
def idct(x: ArrayLike, type: int = ..., n: int | None = ..., axis: int = ..., norm: str | None = ...) -> Array: ...
def idctn(x: ArrayLike, type: int = ..., s: int | Sequence[int] | None = ..., axes: int | Sequence[int] | None = ..., norm: str | None = ...) -> Array: ...
