"""The simulated device itself: what the other tests rest on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import simulator

#: Calls of the runtime itself, past torch.
ACL = """
import ctypes, json, sys
import torch
acl = ctypes.CDLL("libascendcl.so")
def address(tensor, offset=0):
    return ctypes.c_void_p(tensor.data_ptr() + offset)
"""


def program(folder: Path, text: str) -> Path:
    path = folder / "program.py"
    path.write_text(text)
    return path


def test_the_host_cannot_read_memory_of_the_device(tmp_path: Path) -> None:
    text = "import ctypes, torch\nones = torch.ones(4).npu()\ntorch.npu.synchronize()\nctypes.string_at(ones.data_ptr(), 4)\n"
    assert simulator.run(tmp_path, program(tmp_path, text)).code == -signal.SIGSEGV


def test_copies_stay_within_allocations_and_what_is_freed_is_poison(tmp_path: Path) -> None:
    text = (
        ACL
        + """
found = {}
with torch.no_grad():
    place = ctypes.c_void_p()
    acl.aclrtMalloc(ctypes.byref(place), ctypes.c_size_t(1024), 0)
    host = ctypes.create_string_buffer(b"a" * 2048, 2048)
    up, down = 1, 2
    size = ctypes.c_size_t
    found["inside"] = acl.aclrtMemcpy(place, size(1024), host, size(1024), up)
    found["beyond the allocation"] = acl.aclrtMemcpy(place, size(2048), host, size(2048), up)
    found["beyond the room"] = acl.aclrtMemcpy(place, size(512), host, size(1024), up)
    found["set beyond"] = acl.aclrtMemset(ctypes.c_void_p(place.value + 1000), size(100), 0, size(100))
    found["free"] = acl.aclrtFree(place)
    found["twice"] = acl.aclrtFree(place)
    found["after"] = acl.aclrtMemcpy(host, size(16), place, size(16), down)
    again = ctypes.c_void_p()
    acl.aclrtMalloc(ctypes.byref(again), ctypes.c_size_t(1024), 0)
    acl.aclrtMemcpy(host, size(16), again, size(16), down)
    found["poison"] = again.value == place.value and host.raw[:16] == b"\\xee" * 16
print(json.dumps(found))
"""
    )
    text = text.replace("found = {}\n", "found = {}\ntorch.npu.set_device(0)\ntorch.ones(1).npu()\n")
    found = simulator.run(tmp_path, program(tmp_path, text)).result
    assert found.pop("poison") is True
    assert {name for name, status in found.items() if status == 0} == {"inside", "free"}, found


def test_streams_are_queues_and_events_order_them(tmp_path: Path) -> None:
    """Each task takes a while, so that whoever does not wait reads what is not there yet."""
    text = """
import json, torch
other, event = torch.npu.Stream(), torch.npu.Event()
numbers = torch.zeros(1000, device="npu")
with torch.npu.stream(other):
    for _ in range(20):
        numbers = numbers + 1
    event.record()
torch.npu.current_stream().wait_event(event)
behind = numbers * 2
print(json.dumps([behind.cpu().tolist()[0], event.query()]))
"""
    assert simulator.run(tmp_path, program(tmp_path, text), latency=3000).result == [40.0, True]


def test_the_recorder_knows_the_current_stream(tmp_path: Path) -> None:
    text = """
import json, torch
from probe.private.streams import Streams
streams, device, other = Streams(), torch.device("npu", 0), torch.npu.Stream()
torch.ones(1).npu()
first = streams.current(device, torch.npu)
with torch.npu.stream(other):
    second = streams.current(device, torch.npu)
again = streams.current(device, torch.npu)
print(json.dumps([first == torch.npu.current_stream(), second == other, again is first, streams._asked["npu"] is not None]))
"""
    assert simulator.run(tmp_path, program(tmp_path, text)).result == [True] * 4


def test_a_missing_operator_is_named(tmp_path: Path) -> None:
    text = "import torch\nprint((torch.ones(3).npu() >= torch.zeros(3).npu()).cpu())\n"
    done = simulator.run(tmp_path, program(tmp_path, text), missing="GeTensor")
    assert done.code == 1 and "aclnnGeTensor" in done.stderr
    assert simulator.run(tmp_path, program(tmp_path, text)).code == 0
    assert "there is no aclnnGreater to be missing" in simulator.run(tmp_path, program(tmp_path, text), missing="Greater").stderr


def test_a_kernel_that_fails_is_named_when_the_host_waits(tmp_path: Path) -> None:
    text = "import torch\nx = torch.tensor([5]).npu()\ny = torch.ones(3, 2).npu()\nz = torch.nn.functional.embedding(x, y)\nprint(z.cpu())\n"
    done = simulator.run(tmp_path, program(tmp_path, text))
    assert done.code == 1 and "ascend-sim: aclnnEmbedding: index out of range" in done.stderr


def test_memory_runs_out_at_a_launch(tmp_path: Path) -> None:
    text = """
import json, torch
x = torch.ones(3).npu()
kept = []
for number in range(6):
    try:
        kept.append((x + number).cpu().tolist()[0])
    except torch.OutOfMemoryError:
        kept.append("out of memory")
print(json.dumps(kept))
"""
    # The executor of an earlier call is not asked for a workspace.
    found = simulator.run(tmp_path, program(tmp_path, text), oom=3, cache=0).result
    assert found.count("out of memory") == 1 and len(found) == 6


@pytest.mark.parametrize(
    ("fault", "wrong"),
    [
        ("Mul:1:scale", [2.0, 2.04, 2.0]),
        ("Mul:2:nan", [2.0, 2.0, None]),
        ("Mul:all:scale", [2.04, 2.04, 2.04]),
        ("Muls:0:scale", [2.0, 2.0, 2.0]),
    ],
)
def test_faults_are_those_that_were_asked_for(tmp_path: Path, fault: str, wrong: list[float | None]) -> None:
    text = """
import json, torch
x = torch.ones(1).npu()
two = torch.full((1,), 2.0).npu()
found = [round((x * two).item(), 4) for _ in range(3)]
print(json.dumps([None if number != number else number for number in found]))
"""
    done = simulator.run(tmp_path, program(tmp_path, text), fault=fault)
    assert done.result == wrong
    assert done.faults == sum(number != 2.0 for number in wrong)


@pytest.mark.parametrize(("rounding", "least", "most"), [("wide", 1e-9, 1e-6), ("order", 1e-9, 1e-6), ("hf32", 1e-5, 1e-2)])
def test_it_can_round_as_another_device_does(tmp_path: Path, rounding: str, least: float, most: float) -> None:
    text = """
import json, torch
torch.npu.matmul.allow_hf32 = True
torch.manual_seed(0)
a, b = torch.randn(64, 512), torch.randn(512, 64)
exact = a.double() @ b.double()
found = (a.npu() @ b.npu()).cpu()
print(json.dumps([torch.equal(found, a @ b), ((found - exact).norm() / exact.norm()).item()]))
"""
    same, error = simulator.run(tmp_path, program(tmp_path, text), rounding=rounding).result
    assert not same and least < error < most, error


def test_executors_are_kept_and_launches_counted(tmp_path: Path) -> None:
    text = "import torch\nx = torch.ones(3).npu()\nfor _ in range(9):\n    y = x * 3\n    del y\ntorch.npu.synchronize()\n"
    counts = simulator.run(tmp_path, program(tmp_path, text)).counts
    assert counts["launches"]["Muls"] == 9 and counts["cache"]["hits"] >= 7, counts
    assert 0 < counts["host_ns"]["Muls"] < 1e9
    assert "hits" not in simulator.run(tmp_path, program(tmp_path, text), cache=0).counts.get("cache", {})


def test_collectives_between_two_processes(tmp_path: Path) -> None:
    whole = [simulator.python(devices=2), "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*whole, str(simulator.HERE / "ddp.py"), "npu"],
        cwd=tmp_path, env=simulator.environment(devices=2), capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    result = simulator.Done(done.stdout, done.stderr, done.returncode, {}).result
    assert len(result.pop("losses")) == 3
    assert result == {
        "gathered": [[0.0, 1.0, 2.0, 3.0], [10.0, 11.0, 12.0, 13.0]],
        "scattered": [10.0, 12.0],
        "spread": [10.0, 11.0, 12.0, 13.0],
        "swapped": [0.0, 1.0, 10.0, 11.0],
    }


def test_the_doctor_finds_it_well_and_says_what_is_missing(tmp_path: Path) -> None:
    done = simulator.run(tmp_path, "-m", "probe", "doctor")
    assert done.code == 0 and "npu:0, Ascend950" in done.stdout and done.stdout.endswith("checks, all passed\n"), done.stdout + done.stderr
    # Copies to the host are done by these.
    done = simulator.run(tmp_path, "-m", "probe", "doctor", missing="GeTensor,InplaceCopy")
    assert done.code == 1 and "BAD" in done.stdout and "aclnn" in done.stdout, done.stdout + done.stderr


def test_the_doctor_says_what_to_do_without_cann(tmp_path: Path) -> None:
    variables = {**simulator.environment(), "LD_LIBRARY_PATH": ""}
    done = subprocess.run([sys.executable, "-m", "probe", "doctor"], env=variables, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "source set_env.sh of CANN, or export TORCH_DEVICE_BACKEND_AUTOLOAD=0" in done.stderr


def test_while_a_graph_is_captured_nothing_waits_for_the_device(tmp_path: Path) -> None:
    text = (
        ACL
        + """
torch.npu.set_device(0)
ones = torch.ones(4).npu()
torch.npu.synchronize()
stream, event, host = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
acl.aclrtCreateStream(ctypes.byref(stream))
acl.aclrtCreateEventWithFlag(ctypes.byref(event), 1)
acl.aclrtMallocHost(ctypes.byref(host), ctypes.c_size_t(16))
ctypes.memset(host, 0, 16)
here, size, down = ctypes.c_void_p(), ctypes.c_size_t(16), 2
def value():
    return ctypes.c_float.from_address(host.value).value
def recorded(*_):
    acl.aclrtRecordEvent(event, stream)
    return acl.aclrtSynchronizeEvent(event)
attempts = {
    "a copy": lambda: acl.aclrtMemcpyAsync(host, size, address(ones), size, down, stream),
    "the stream": lambda: acl.aclrtSynchronizeStream(stream),
    "the device": lambda: acl.aclrtSynchronizeDevice(),
    "an event": recorded,
    "a copy that waits": lambda: acl.aclrtMemcpy(host, size, address(ones), size, down),
    "pinned memory": lambda: acl.aclrtMallocHost(ctypes.byref(here), size),
}
found = {}
for name, attempt in attempts.items():
    graph = ctypes.c_void_p()
    begun = acl.aclmdlRICaptureBegin(stream, 0)
    made = attempt()
    ended = acl.aclmdlRICaptureEnd(stream, ctypes.byref(graph))
    found[name] = [begun == 0, made == 0, ended == 0, value()]
    if ended == 0:
        acl.aclmdlRIExecuteAsync(graph, stream)
        acl.aclrtSynchronizeStream(stream)
        found["replayed"] = value()
        ctypes.memset(host, 0, 16)
        acl.aclmdlRIDestroy(graph)
print(json.dumps(found))
"""
    )
    found = simulator.run(tmp_path, program(tmp_path, text)).result
    # A copy is made with the replay and not before; whatever waits is refused, and the graph with it.
    assert found.pop("replayed") == 1.0
    assert found.pop("a copy") == [True, True, True, 0.0]
    assert found and all(each == [True, False, False, 0.0] for each in found.values()), found
