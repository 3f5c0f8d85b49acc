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

from jaxlite.image.resampling import ResizeMethod as ResizeMethod

def resize(image: ArrayLike, shape: Shape, method: Any, antialias: bool = ..., precision: Any = ...) -> Array: ...
def scale_and_translate(image: ArrayLike, shape: Shape, spatial_dims: Sequence[int], scale: ArrayLike, translation: Any, method: Any, antialias: bool = ..., precision: Any = ...) -> Array: ...
