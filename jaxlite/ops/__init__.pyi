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


def segment_max(data: ArrayLike, segment_ids: ArrayLike, num_segments: int | None = ..., indices_are_sorted: bool = ..., unique_indices: bool = ..., bucket_size: int | None = ..., mode: Any = ..., out_sharding: Any = ...) -> Array: ...
def segment_min(data: ArrayLike, segment_ids: ArrayLike, num_segments: int | None = ..., indices_are_sorted: bool = ..., unique_indices: bool = ..., bucket_size: int | None = ..., mode: Any = ..., out_sharding: Any = ...) -> Array: ...
def segment_prod(data: ArrayLike, segment_ids: ArrayLike, num_segments: int | None = ..., indices_are_sorted: bool = ..., unique_indices: bool = ..., bucket_size: int | None = ..., mode: Any = ..., out_sharding: Any = ...) -> Array: ...
def segment_sum(data: ArrayLike, segment_ids: ArrayLike, num_segments: int | None = ..., indices_are_sorted: bool = ..., unique_indices: bool = ..., bucket_size: int | None = ..., mode: Any = ..., out_sharding: Any = ...) -> Array: ...
