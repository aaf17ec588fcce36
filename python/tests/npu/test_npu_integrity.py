"""`--recheck` and `--poison` on memory of the simulated NPU: a sound training stays what it is, and what nobody wrote or counted is named."""

from __future__ import annotations

from pathlib import Path

import simulator

TRAIN = simulator.HERE / "train.py"
FAULTY = """
import probe, torch, torch_npu
import torch.nn.functional as F

weight = torch.randn(8, 8).npu()
with probe.capture("dump", level="mix", step_on="program", recheck=True, poison=True):
    F.relu(torch.empty(4, 8, device="npu:0") @ weight)
    read = weight.clone().requires_grad_()
    saved = read.exp()
    saved.data.mul_(2)
    saved.sum().backward()
"""


def test_a_sound_training_is_what_it_was_and_nothing_is_found(tmp_path: Path) -> None:
    plain = simulator.run(tmp_path, TRAIN, "gpt", "--device", "npu:0")
    checked = simulator.run(tmp_path, TRAIN, "gpt", "--device", "npu:0", probe=["--recheck", "--poison", "--steps", "0-1", "-o", "dump"])
    assert checked.result == plain.result
    (line,) = [line for line in checked.said() if "were held against" in line]
    assert line.endswith(": nothing found") and not line.startswith("probe: 0 values"), line


def test_memory_that_nobody_wrote_or_counted_is_named(tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY)
    done = simulator.run(tmp_path, "faulty.py")
    assert done.code == 0, done.stderr
    first, second = [line for line in done.said() if " reads " in line]
    assert first == "probe: Tensor.__matmul__.0.forward reads 32 of 32 elements of input.0, from [0, 0] on, which nobody wrote: Torch.empty.0.forward gave out the memory"
    assert second.startswith("probe: Tensor.exp.0.backward reads 64 of 64 elements of input.1, from [0, 0] on, which Tensor.mul_.0.forward changed")
