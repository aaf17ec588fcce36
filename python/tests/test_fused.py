"""The kernel that measures a tensor in two launches, in Triton's interpreter and compiled for a GPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

#: Against torch's operations, which are tested against NumPy.
NUMBERS = """
import math
import numpy as np
import torch
from probe.recorder import device_fused
from probe.recorder.device import Device

launches = []
for name in ("_measure", "_join"):
    kernel = getattr(device_fused, name)

    class Counted:
        def __init__(self, kernel):
            self.kernel = kernel

        def __getitem__(self, grid):
            launches.append(grid)
            return self.kernel[grid]

    setattr(device_fused, name, Counted(kernel))

def row(device, tensor):
    (found,) = device.fetch([device.measure(tensor)])
    return found

# Few programs, so that each has several blocks and the last ones are not whole.
device_fused._PROGRAMS = 2
torch.manual_seed(0)
values = torch.randn(35, 280) * 5
for place, number in enumerate((math.nan, math.inf, -math.inf, 0.0, 1e-45, 3e38, -3e38, 2.0**100, 65504.0)):
    values[place, place] = number
for sketch in (True, False):
    plain, fused = Device(sketch), Device(sketch, fused=True)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        tensor = values.to(dtype)
        views = [tensor, tensor.view(7, 5, 4, 70).permute(2, 0, 3, 1), tensor[:, :1].expand(-1, 50), tensor[0, 0]]
        for view in views if sketch and dtype is torch.float32 else views[:1]:
            launches.clear()
            expected, found = row(plain, view), row(fused, view)
            assert len(launches) == 2, launches
            assert found[1] == expected[1] and found[2][:2] == expected[2][:2] and found[3:5] == expected[3:5], (dtype, view.shape, expected[:5], found[:5])
            norm = expected[2][3]
            for one, other in zip(expected[2][2:], found[2][2:]):
                assert (one is None) == (other is None) and (one is None or abs(one - other) <= 1e-6 * (norm or abs(one))), (expected[2], found[2])
            if sketch:
                one, other = (np.frombuffer(each[5], "<f4").astype("f8") for each in (expected, found))
                assert np.abs(one - other).max() <= 1e-6 * (norm or 1e-30), (dtype, view.shape)
# What the kernel does not measure, the operations do.
launches.clear()
assert row(fused, torch.arange(300))[1][0] == 300 and launches == []
# Pieces that do not begin with the first element.
from probe.recorder import device_chunks
device_chunks._COPY = device_chunks._COPY_OF_SHORT = 4 * 4000
plain, fused = Device(True), Device(True, fused=True)
one, other = (np.frombuffer(row(each, values.nan_to_num(0, 0, 0).clamp(-9, 9))[5], "<f4") for each in (plain, fused))
assert np.allclose(one, other, atol=1e-3) and len(launches) == 6
print("the same")
"""

#: Without a device: code for one is made, and not run.
COMPILED = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from probe.recorder import device_fused

for values in ("*fp32", "*bf16", "*fp16"):
    signature = {"values": values, "limits": "*fp32", "signs": "*i8", "sums": "*fp32", "counts": "*i32", "count": "i32", "first": "i32", "period": "i32"}
    signature |= {f"{name}{number}": "i32" for name, count in (("size", (1, 2, 3)), ("stride", (0, 1, 2, 3))) for number in count} | {"large": "fp32"}
    constants = {"SHORT": values == "*fp16", "SKETCH": True, "ROWS": 16, "STEPS": 8, "LANES": 251, "WIDTH": 256, "ROW": 264}
    made = triton.compile(ASTSource(device_fused._measure, signature | dict.fromkeys(constants, "constexpr"), constants), target=GPUTarget("cuda", 90, 32))
    assert "ld.global" in made.asm["ptx"]
signature = {"sums": "*fp32", "counts": "*i32", "numbers": "*fp32", "joined_counts": "*i32", "joined_lanes": "*fp32", "programs": "i32", "elements": "i32"}
constants = {"PROGRAMS": 512, "LANES": 251, "ROW": 264, "WIDTH": 256, "SOME": 32}
triton.compile(ASTSource(device_fused._join, signature | dict.fromkeys(constants, "constexpr"), constants), target=GPUTarget("cuda", 90, 32))
print("compiled")
"""


def run(text: str, **variables: str) -> str:
    done = subprocess.run([sys.executable, "-c", text], env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_measures_what_torchs_operations_do() -> None:
    assert run(NUMBERS, TRITON_INTERPRET="1", OMP_NUM_THREADS="1") == "the same\n"


def test_it_compiles_for_a_gpu(tmp_path: object) -> None:
    assert run(COMPILED, TRITON_CACHE_DIR=str(tmp_path)) == "compiled\n"


def test_without_a_way_to_run_it_operations_measure() -> None:
    """Here there is no GPU, and Triton does not run on the host."""
    text = """
import torch
from probe.recorder.device import Device
device = Device(True, fused=True)
(row,) = device.fetch(device.observe([torch.ones(300)]))
assert row[1][0] == 300 and row[2][3] > 17
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("probe: fused: the kernel cannot be used, so torch's operations measure: ") and len(done.stderr.splitlines()) == 1
