"""Programs of several processes, run as such on this machine: what they compute, tell each other, and how they fail."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
import time
import types

import pytest

import jaxlite as jax
from jaxlite.devices import clusters, roll_call
from lowering import xla
from tests.pages import blocks_of

# Each process gets its number, how many there are, and a port.
PREAMBLE = """
import os, sys
import numpy as np
import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import NamedSharding, P
from jaxlite.experimental import mesh_utils, multihost_utils

RANK, COUNT, PORT = map(int, sys.argv[1:])

def start(**options):
    jax.distributed.initialize(f"127.0.0.1:{PORT}", COUNT, RANK, **{"initialization_timeout": 60, **options})
    return spread()

def spread():
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("d",))
    return mesh, jax.make_array_from_process_local_data(NamedSharding(mesh, P("d")), np.arange(4.0) + 4 * RANK)

def total(mesh, work=jnp.sum):
    return jax.jit(work, out_shardings=NamedSharding(mesh, P()))
"""


# The programs of the page about processes, for this machine and for what the tests do with them.
STARTING, RECOVERING, *_ = blocks_of("docs/processes.md")
STARTING = STARTING.replace('"10.0.0.1:1234"', 'f"127.0.0.1:{PORT}"').replace("process_id=0)", "process_id=RANK)")
RECOVERING = RECOVERING.replace("jax.distributed.initialize(...)", "start(heartbeat_timeout_seconds=3)")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(count, program, devices=2):
    """The exit codes and outputs of so many processes."""
    port = free_port()
    env = {**os.environ, "JAX_NUM_CPU_DEVICES": str(devices)}
    env.pop("XLA_FLAGS", None)
    command = [sys.executable, "-c", PREAMBLE + program]
    started = [subprocess.Popen([*command, str(rank), str(count), str(port)], env=env, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT) for rank in range(count)]
    deadline = time.monotonic() + 90
    try:
        outputs = [process.communicate(timeout=max(deadline - time.monotonic(), 0.1))[0] for process in started]
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.communicate()
    return [process.returncode for process in started], outputs


TOGETHER = """
mesh, x = start()
assert jax.distributed.is_initialized()
assert (jax.process_index(), jax.process_count(), jax.process_indices()) == (RANK, COUNT, list(range(COUNT)))
assert (jax.device_count(), jax.local_device_count()) == (2 * COUNT, 2)
assert jax.local_devices() == [each for each in jax.devices() if each.process_index == RANK] == jax.local_devices(RANK)
assert jnp.arange(3).devices() == {jax.local_devices()[0]}
assert x.shape == (4 * COUNT,) and not x.is_fully_addressable and str(x) == f"Array(shape=({4 * COUNT},), dtype=float32)"
everything = np.arange(4.0 * COUNT, dtype=np.float32)
assert float(total(mesh)(x)) == everything.sum()

if COUNT == 2:
    far = jax.device_put(everything, jax.local_devices(1 - RANK)[0])
    assert not far.is_fully_addressable and far.addressable_shards == []
    for each in (x, far):
        assert str(each) == f"{each}" == "Array(shape=(8,), dtype=float32)"
        try:
            np.asarray(each)
        except RuntimeError as error:
            assert "spans non-addressable" in str(error)
        else:
            raise SystemExit("a part was taken for the whole")

    # A data-parallel step: the gradients of both processes' examples are added up.
    grad = jax.jit(jax.grad(lambda w, x: ((w * x) ** 2).sum()), out_shardings=NamedSharding(mesh, P()))
    np.testing.assert_allclose(grad(2.0, x), 4 * (everything ** 2).sum(), rtol=1e-6)

    # What they tell each other arrives to the bit.
    tree = {"a": np.array([-0.0, np.nan, RANK], np.float32), "b": RANK == 0, "c": jnp.arange(3, dtype=jnp.bfloat16) * RANK}
    found = multihost_utils.broadcast_one_to_all(tree)
    np.testing.assert_array_equal(found["a"].view(np.uint32), np.array([-0.0, np.nan, 0], np.float32).view(np.uint32))
    assert found["b"].item() is True and found["c"].dtype == jnp.bfloat16
    assert multihost_utils.broadcast_one_to_all(RANK, is_source=RANK == 1) == 1
    np.testing.assert_array_equal(multihost_utils.process_allgather(np.arange(3) + RANK), [[0, 1, 2], [1, 2, 3]])
    np.testing.assert_array_equal(multihost_utils.process_allgather(np.arange(3) + RANK, tiled=True), [0, 1, 2, 1, 2, 3])
    np.testing.assert_array_equal(multihost_utils.process_allgather(x, tiled=True), everything)
    multihost_utils.assert_equal({"same": 3}, "no")
    for call, kind, text in (
            (lambda: multihost_utils.assert_equal(np.arange(2) + RANK, "batches"), AssertionError,
             "batches. Expected: [0 1 1 2]"),
            (lambda: multihost_utils.sync_global_devices(f"step {RANK}"), AssertionError, "{0: 'step 0', 1: 'step 1'}"),
            (lambda: multihost_utils.process_allgather(np.zeros(1 + RANK)), ValueError, "process 1: "),
            (lambda: multihost_utils.process_allgather(x), ValueError, "only supports tiled=True"),
            (lambda: jax.device_put(x, jax.local_devices()[0]), ValueError, "parts on devices of other")):
        try:
            call()
        except kind as error:
            assert text in str(error), error
        else:
            raise SystemExit(f"no error with {text!r}")

    part = multihost_utils.host_local_array_to_global_array(np.arange(4) * (RANK + 1), mesh, P("d"))
    assert part.shape == (8,) and part.sharding == NamedSharding(mesh, P("d"))
    local = multihost_utils.global_array_to_host_local_array(part, mesh, P("d"))
    np.testing.assert_array_equal(local, np.arange(4) * (RANK + 1))
    shared = multihost_utils.host_local_array_to_global_array(np.arange(4), mesh, P())
    np.testing.assert_array_equal(shared, np.arange(4))
    grid = mesh_utils.create_hybrid_device_mesh((1, 2), (2, 1), process_is_granule=True)
    assert grid.shape == (2, 2) and {each.process_index for each in grid[1]} == {1}
multihost_utils.sync_global_devices("end")
jax.distributed.shutdown()
assert not jax.distributed.is_initialized()
"""


@pytest.mark.parametrize("count", [2, 4])
def test_together(count):
    codes, outputs = run(count, TOGETHER)
    assert codes == [0] * count, outputs


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")
def test_processes_that_know_each_other_by_certificates(tmp_path):
    def openssl(command):
        subprocess.run(["openssl", *command.split()], cwd=tmp_path, check=True, capture_output=True)

    openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca")
    (tmp_path / "extensions").write_text("subjectAltName=URI:spiffe://test/process\nextendedKeyUsage=serverAuth,clientAuth\n")
    for name in "01":
        openssl(f"req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}")
        openssl(f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile extensions -out {name}.pem")
    codes, outputs = run(2, f"""
os.chdir({str(tmp_path)!r})
jax.config.update("jax_mtls_ca_file", "ca.pem")
mesh, x = start(mtls_cert_file=f"{{RANK}}.pem", mtls_key_file=f"{{RANK}}.key", mtls_peer_uri_prefix="spiffe://test/",
                verify_secure_credentials=True)
assert float(total(mesh)(x)) == 28
""")
    if xla.VERSION < (0, 12):
        assert codes == [1, 1] and "needs jaxlib 0.12" in outputs[0]
    else:
        assert codes == [0, 0], outputs


def test_a_killed_process_ends_the_others():
    codes, outputs = run(2, """
mesh, x = start(heartbeat_timeout_seconds=10)
f = total(mesh)
for step in range(10 ** 6):
    if RANK == 1 and step == 5:
        os.kill(os.getpid(), 9)
    f(x).block_until_ready()
""", devices=1)
    assert codes[1] == -9 and codes[0] not in (0, None), outputs


def test_those_that_live_go_on():
    codes, texts = run(3, f"""
import time
batches = range(3)

def make_mesh(devices):
    return jax.sharding.Mesh(np.array(devices), ("d",))

def step(mesh, batch):
    if RANK == 1 and batch == 1:
        os.kill(os.getpid(), 9)
    parts = jax.make_array_from_process_local_data(NamedSharding(mesh, P("d")), np.full(2, RANK + 1.0))
    if batch != 1:
        print("step", batch, float(total(mesh)(parts).addressable_data(0)))
    if RANK == 2 and batch == 2:
        raise KeyError("of this process alone")

try:
{textwrap.indent(RECOVERING, "    ")}
except KeyError:
    print("raised")
sys.stdout.flush()
if RANK == 0:
    time.sleep(1)  # the others meet here
os._exit(0)
""")
    assert codes == [0, -9, 0], texts
    for text, end in ((texts[0], []), (texts[2], ["raised"])):
        said = [line for line in text.splitlines() if line.startswith(("step", "lost", "raised"))]
        said = [re.sub(r"{.*id=(\d+)\)}", lambda found: str(int(found[1]) // 2048), line) for line in said]  # the process
        assert said == ["step 0 12.0", "lost 1", "step 2 8.0", *end], text


def test_an_exception_in_one_process_ends_the_others():
    codes, outputs = run(2, """
mesh, x = start(heartbeat_timeout_seconds=10)
print(float(total(mesh)(x)))
if RANK == 1:
    raise ValueError("mine")
total(mesh)(x).block_until_ready()
""", devices=1)
    assert codes[1] == 1 and codes[0] != 0 and "ValueError: mine" in outputs[1], outputs


def test_programs_are_compared_if_asked():
    codes, outputs = run(2, f"""
jax.config.update("jax_distributed_debug", True)
{STARTING}
mesh, x = spread()
assert float(total(mesh)(x)) == 28
try:
    total(mesh, jnp.max if RANK else jnp.min)(x)
except RuntimeError as error:
    assert "The 2. on these devices is" in str(error) and "process 1: " in str(error), error
else:
    raise SystemExit("different programs have run")
""")
    assert codes == [0, 0], outputs


def test_one_process_writes_the_compile_cache_and_all_read(tmp_path):
    program = f"""
jax.config.update("jax_compilation_cache_dir", {str(tmp_path)!r})
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
mesh, x = start()
total(mesh)(x), jax.jit(jnp.sin)(np.arange(3.0))
multihost_utils.sync_global_devices("compiled")
found = [record.cache for record in jax.compile_report()]
"""
    codes, outputs = run(2, program)
    assert codes == [0, 0], outputs
    codes, outputs = run(2, program + 'assert found == ["hit", "hit"], found')
    assert codes == [0, 0], outputs


# --- the roll call -----------------------------------------------------------------------------------


def called(count, *numbers, timeout=0.6, started=lambda: "service", expected=None):
    """What becomes of a roll call: process 0's result or error, and that of each of the others."""
    address = f"127.0.0.1:{free_port()}"
    found: dict = {}

    def attempt(place, work):
        try:
            found[place] = work()
        except RuntimeError as error:
            found[place] = str(error)

    threads = [threading.Thread(target=attempt, args=(-1, lambda: roll_call.call(address, address, count, timeout, started)))]
    threads += [threading.Thread(target=attempt, args=(place, lambda number=number: roll_call.answer(
        address, number, expected or count, timeout))) for place, number in enumerate(numbers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return found[-1], [found[place] for place in range(len(numbers))]


def test_all_come():
    assert called(4, 2, 1, 3, timeout=20) == ("service", [None] * 3)


def test_what_ends_the_connection_without_a_word_is_asked_again():
    """The service of an earlier run at the same address, which has not quite ended."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    with socket.socket() as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(("127.0.0.1", port))
        door.listen()
        found: list = []
        peer = threading.Thread(target=lambda: found.append(roll_call.answer(address, 1, 2, 20)))
        peer.start()
        door.accept()[0].close()
    assert roll_call.call(address, address, 2, 20, lambda: "service") == "service"
    peer.join(10)
    assert found == [None]


def test_who_does_not_come_is_named():
    mine, (other,) = called(4, 2)
    assert "processes 1, 3 have not come to the coordinator at 127.0.0.1:" in mine
    assert other.startswith("process 2 of 4 could not join: processes 1, 3 have not come")


def test_two_of_one_number():
    mine, others = called(3, 1, 1, timeout=20)
    assert all("two processes have the number 1: one from 127.0.0.1" in each for each in (mine, *others))


def test_different_expectations():
    mine, (other,) = called(2, 1, expected=3, timeout=20)
    assert "process 1, from 127.0.0.1, expects 3 processes" in mine and mine in other


def test_nobody_is_there():
    with pytest.raises(RuntimeError, match=r"process 1 of 2 found no coordinator at 127.0.0.1:\d+ within 0.2 s: .*Process 0"):
        roll_call.answer(f"127.0.0.1:{free_port()}", 1, 2, 0.2)


def test_what_else_comes_to_the_door_is_let_go():
    port = free_port()
    result: list = []
    caller = threading.Thread(target=lambda: result.append(roll_call.call(
        f"127.0.0.1:{port}", f"127.0.0.1:{port}", 2, 20, lambda: "service")))
    caller.start()
    for message in (b"GET / HTTP/1.1\r\n\r\n", b"[1]\n", b'{"process": -1, "of": 2}\n', b'{"process": 1, "of": 2}\n'):
        # the last is one that died and came again
        with roll_call._connect(f"127.0.0.1:{port}", "a stranger", time.monotonic() + 5, 5) as stranger:
            stranger.sendall(message)
            time.sleep(0.05)
    roll_call.answer(f"127.0.0.1:{port}", 1, 2, 20)
    caller.join(10)
    assert result == ["service"]


def test_the_port_is_taken():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(RuntimeError, match=f"process 0 cannot start the coordinator at {address}: .*another process 0"):
            roll_call.call(address, address, 2, 1, lambda: None)


# --- who takes part ----------------------------------------------------------------------------------


@pytest.mark.parametrize("variables, expected", [
    ({}, (None, None, None, None)),
    ({"JAX_COORDINATOR_ADDRESS": "a:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}, ("a:1", 2, 1, None)),
    ({"SLURM_JOB_ID": "4097", "SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1",
      "SLURM_STEP_NODELIST": "node[07-09,12],other", "JAX_COORDINATOR_ADDRESS": "b:2"}, ("b:2", 8, 3, 1)),
    ({"SLURM_JOB_ID": "4097", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "node[07-09,12]"},
     ("node07:61441", 2, 0, None)),
    ({"OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911", "OMPI_COMM_WORLD_SIZE": "4",
      "OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, ("10.96.0.1:62624", 4, 2, 0)),
    ({"KUBERNETES_SERVICE_HOST": "k", "JOB_COMPLETION_INDEX": "5", "JAX_NUM_PROCESSES": "6"},
     ("train-0.svc:61440", 6, 5, None)),
])  # fmt: skip
def test_clusters(variables, expected, monkeypatch):
    for name in list(os.environ):
        if name.startswith(("SLURM_", "OMPI_", "PMIX_", "KUBERNETES_", "JOB_", "JAX_NUM_P", "JAX_PROCESS", "JAX_COORD")):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(socket, "getfqdn", lambda: "train-5.svc")
    assert clusters.detect() == expected


def test_mpi4py_is_asked_by_name(monkeypatch):
    world = types.SimpleNamespace(bcast=lambda said, root: said or "host0:61450", Get_size=lambda: 4, Get_rank=lambda: 2,
                                  Split_type=lambda kind: types.SimpleNamespace(Get_rank=lambda: kind))
    monkeypatch.setitem(sys.modules, "mpi4py", types.SimpleNamespace())
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", types.SimpleNamespace(COMM_WORLD=world, COMM_TYPE_SHARED=1))
    assert clusters.detect("mpi4py") == ("host0:61450", 4, 2, 1)


ALONE = {"coordinator_address": "a:1", "num_processes": 1, "process_id": 0}
FILES = ("mtls_cert_file", "mtls_key_file", "mtls_ca_file")


@pytest.mark.parametrize("options, error, message", [
    ({}, ValueError, "coordinator_address should be defined."),
    ({"coordinator_address": "a:1"}, ValueError, "Number of processes must be defined."),
    ({"coordinator_address": "a:1", "num_processes": 2}, ValueError, "The process id of the current process must be defined."),
    ({"coordinator_address": "a:1", "num_processes": 2, "process_id": 2}, ValueError, "Got process_id=2, num_processes=2"),
    ({"coordinator_address": "a:1", "num_processes": "2", "process_id": 0}, TypeError,
     "num_processes must be a positive int. Got num_processes=2 of type <class 'str'>."),
    ({"coordinator_address": 1, "num_processes": 1, "process_id": 0}, TypeError, "must be a string, 'host:port', got 1"),
    ({"coordinator_address": "a:1", "num_processes": 1, "process_id": 0, "coordinator_bind_address": "b"}, ValueError,
     "coordinator_bind_address must be 'host:port', got 'b'"),
    ({"coordinator_address": "a:1", "num_processes": 1, "process_id": 0, "heartbeat_timeout_seconds": 0}, ValueError,
     "heartbeat_timeout_seconds must be a whole number of seconds, at least 1; got 0"),
    ({"coordinator_address": "a", "num_processes": 1, "process_id": 0}, ValueError, "must be 'host:port', got 'a'"),
    ({**ALONE, "verify_secure_credentials": True}, ValueError, "there are no certificates"),
    ({**ALONE, "mtls_cert_file": "a.pem", "mtls_ca_file": "b"}, ValueError, "got mtls_cert_file, mtls_ca_file; all of"),
    ({**ALONE, **dict.fromkeys(FILES, "no such file")}, ValueError, r"no file 'no such file' \(mtls_cert_file\)"),
    ({"cluster_detection_method": "bus"}, ValueError, "takes one of 'ompi', 'slurm', 'k8s', 'mpi4py', 'deactivate' or "),
    ({"cluster_detection_method": "slurm"}, RuntimeError, "does not run under slurm"),
])  # fmt: skip
def test_what_initialize_refuses(options, error, message, monkeypatch):
    monkeypatch.setattr("lowering.platforms.clients", {})
    with pytest.raises(error, match=message):
        jax.distributed.initialize(**options)


def test_too_late():
    jax.devices()
    with pytest.raises(RuntimeError, match="must be called before any JAX calls"):
        jax.distributed.initialize("127.0.0.1:1", 1, 0)
    jax.distributed.shutdown()
