"""`probe replay` on the simulated NPU: a script that it writes fails where the fault is planted, and passes where it is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import simulator
from extent import EVERYTHING

TRAIN = simulator.HERE / "train.py"

#: An operator that is wrong in all its calls, and a call of a function that uses it. The kinds are those that the device knows.
FAULTS = {
    "GeluV2:all:scale": "Functional.gelu.1.forward",
    "SoftmaxBackward:all:row": "Tensor.softmax.1.backward",
    "Embedding:all:row": "Functional.embedding.0.forward",
    "LayerNorm:all:scale": "Functional.layer_norm.1.forward",
    "Addmm:all:row": "Functional.linear.1.forward",
    "Matmul:all:scale": "Tensor.__matmul__.0.forward",
    "Softmax:all:tail": "Tensor.softmax.1.forward",
    "LogSoftmax:all:scale": "Functional.cross_entropy.0.forward",
    "GeluBackwardV2:all:tail": "Functional.gelu.1.backward",
    "LayerNormBackward:all:scale": "Functional.layer_norm.4.backward",
}


def test_scripts_fail_where_the_fault_is_and_nowhere_else(tmp_path: Path) -> None:
    faults = ",".join(FAULTS)
    recorded = ["--steps", 0, "--task", "tensor", "-o"]
    for output, device, switches in (("cpu", "cpu", {}), ("npu", "npu:0", {"fault": faults})):
        done = simulator.run(tmp_path, TRAIN, "gpt", "--steps", 1, "--device", device, probe=[*recorded, output], **switches)
        assert done.code == 0, done.stderr
    for place, (fault, op) in enumerate(FAULTS.items()):
        if place >= 2 and not EVERYTHING:
            break
        command = [sys.executable, "-m", "probe", "replay", "npu", "--op", op, "--against", "cpu", "--device", "npu:0", "--times", "1", "--import", "torch_npu", "-o", op]
        written = subprocess.run(command, cwd=tmp_path, env=simulator.environment(fault=fault), capture_output=True, text=True, check=False)
        # Lines are folded at the width of the terminal.
        said = " ".join(written.stdout.split())
        assert written.returncode == 1 and "as far from float64 as the baseline: the candidate's kernel" in said, (op, said, written.stderr)
        assert "it fails here on npu:0" in said, (op, said)
        script = tmp_path / op / "repro.py"
        assert len(script.read_text().splitlines()) < 60 and sum(path.stat().st_size for path in script.parent.iterdir()) < 64 << 10, op
        here = {given: simulator.run(tmp_path, script, "npu:0", fault=given) for given in (fault, None)}
        assert {given: done.code for given, done in here.items()} == {fault: 1, None: 0}, (op, [done.stdout + done.stderr for done in here.values()])
