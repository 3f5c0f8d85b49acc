"""Functions that run as Python beside their arguments."""

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite.experimental import colocated_python as cp


def test_functions_and_classes_run_as_they_are():
    seen = []

    @cp.colocated_python
    def double(x):
        """Doc."""
        seen.append(type(x))
        return {"y": np.asarray(x) * 2}

    assert double.__doc__ == "Doc." and double(jnp.arange(3))["y"].tolist() == [0, 2, 4]
    assert issubclass(seen[0], jaxlite.Array)

    @cp.colocated_python_class
    class Counter:
        def __init__(self, start):
            made_from.append(start)
            self.count = start

        def add(self, x):
            self.count += 1
            return x + self.count

    made_from = []
    counter = Counter(5)
    assert not made_from  # made by its first method
    assert counter.add(jnp.ones(2)).tolist() == [7, 7] and counter.add(jnp.ones(2)).tolist() == [8, 8] and made_from == [5]


def test_specialized_functions_keep_their_promises():
    spec = jaxlite.ShapeDtypeStruct((2,), np.float32)
    plain = cp.colocated_python(lambda x: x[:1])
    checked = plain.specialize(in_specs=((spec,), {}), out_specs_fn=lambda x: x)
    with pytest.raises(ValueError, match=r"argument \[0\]\[0\] of <lambda>\(\) is .*\[3\]"):
        checked(jnp.ones(3))
    with pytest.raises(ValueError, match="result"):
        checked(jnp.ones(2))
    with pytest.raises(ValueError, match="specialized before"):
        checked.specialize(in_specs=((spec,), {}))
    no_arguments = cp.colocated_python(lambda: jnp.ones(()))
    with pytest.raises(ValueError, match="no devices found"):
        no_arguments()
    device = jaxlite.devices("cpu")[-1]
    assert no_arguments.specialize(devices=[device])().devices() == {device}


def test_cpu_devices_of_devices_and_meshes():
    devices = jaxlite.devices("cpu")
    assert cp.colocated_cpu_devices(devices[:2]) == tuple(devices[:2])
    mesh = jaxlite.sharding.Mesh(np.array(devices[:1]).reshape(1, 1), ("x", "y"))
    assert cp.colocated_cpu_devices(mesh) == mesh
