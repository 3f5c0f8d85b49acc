"""Arrays that one process offers and another one fetches over the network, without a program that both run.

Between processes, `start_transfer_server` needs `transport_addresses`: over which addresses of this machine data may go.

>>> import jaxlite, jaxlite.numpy as jnp
>>> server = start_transfer_server(jaxlite.devices()[0].client)
>>> x = jnp.arange(3.0)
>>> server.await_pull(1, x)
>>> connection = server.connect(server.address())  # another process connects to this address
>>> connection.pull(1, jaxlite.ShapeDtypeStruct((3,), x.dtype, sharding=x.sharding))
Array([0., 1., 2.], dtype=float32)
"""

from __future__ import annotations

from typing import Any

from jaxlite.core.tree import tree_flatten, tree_unflatten
from lowering import xla

TransferConnection, TransferServer, start_transfer_server = (
    xla.TransferConnection, xla.TransferServer, xla.start_transfer_server)
__all__ = ["TransferConnection", "TransferServer", "make_error_array", "start_transfer_server"]
__dir__ = lambda: __all__


def _client(wanted: Any) -> Any:
    """The client of the devices on which an array is to be."""
    if getattr(wanted, "sharding", None) is None:
        raise ValueError(f"{wanted} has no sharding, which says on which devices the array is to be")
    return next(iter(wanted.sharding.device_set)).client


def await_pull(self: Any, uuid: int, arrays: Any, timeout: Any = None) -> None:
    """Offer a pytree of arrays under a number, to be fetched once. Args: `timeout` a `datetime`, until when."""
    self._await_pull_flat(uuid, tree_flatten(arrays)[0], timeout)


def pull(self: Any, uuid: int, xs: Any, timeout: Any = None) -> Any:
    """Fetch the pytree of arrays that is offered under a number.

    Args:
      xs: a pytree of `ShapeDtypeStruct` with their types and shardings.
      timeout: a `datetime`, until when.
    Raises: ValueError for a type without a sharding.
    """
    wanted, tree = tree_flatten(xs)
    clients = [_client(each) for each in wanted]
    return tree_unflatten(tree, self._pull_flat(uuid, clients[0], wanted, timeout) if wanted else [])


def make_error_array(aval: Any, message: str) -> Any:
    """An array of a type with a sharding whose values are an error: whoever reads it gets a JaxRuntimeError."""
    return xla.make_error_array(_client(aval), aval, message)


TransferServer.await_pull, TransferConnection.pull = await_pull, pull
