"""Recordings of programs of MindSpore, on a CPU. `./test.sh --all` runs them in an environment that has MindSpore."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy
import pytest

mindspore = pytest.importorskip("mindspore")

ROOT = Path(__file__).resolve().parents[3]

import make_mindspore  # noqa: E402
from runs import LEVELS, NETWORKS  # noqa: E402

import probe.mindspore  # noqa: E402

STORED = ROOT / "testdata" / "mindspore_captured"
TASKS = ("statistics", "sketch", "hash", "tensor")
RUNS = [(network, dtype) for network in NETWORKS for dtype in ("float32", "float16")]
#: Each level of each task once.
PAIRS = [(*run, LEVELS[at % 3], TASKS[at % 4]) for at, run in enumerate(RUNS)]


@pytest.mark.parametrize(("network", "dtype", "level", "task"), PAIRS)
def test_training_is_bit_identical(tmp_path: Path, network: str, dtype: str, level: str, task: str) -> None:
    _, train = make_mindspore.step(network, dtype)
    plain = [train() for _ in range(2)]
    model, train = make_mindspore.step(network, dtype)
    with probe.mindspore.capture(tmp_path / "dump", model, level=level, task=task, quiet=True):
        assert [train() for _ in range(2)] == plain
    manifest = json.loads((tmp_path / "dump" / "manifest.json").read_text())
    assert manifest["notes"] == [] and (tmp_path / "dump" / "step1" / "rank0" / "ops.parquet").exists()


def test_training_is_bit_identical_while_mindspore_computes_ahead(tmp_path: Path) -> None:
    mindspore.set_context(pynative_synchronize=False)
    try:
        plain = make_mindspore.step("Transformer", "float32")[1]()
        assert make_mindspore.run(str(tmp_path / "dump"), "Transformer", "float32", "mix") == plain
    finally:
        mindspore.set_context(pynative_synchronize=True)


def test_random_numbers_and_fused_cells_are_bit_identical(tmp_path: Path) -> None:
    nn = mindspore.nn

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.recurrent, self.drop, self.head = nn.LSTM(4, 6, batch_first=True), nn.Dropout(p=0.5), nn.Dense(6, 3)

        def construct(self, x: Any) -> Any:
            return self.head(self.drop(self.recurrent(x)[0]))

    def train(recorded: bool) -> list[bytes]:
        mindspore.set_seed(5)
        net = Net()
        net.set_train()
        optimizer = nn.Adam(net.trainable_params(), learning_rate=0.01)
        x = mindspore.Tensor(numpy.random.RandomState(3).randn(2, 5, 4).astype("float32"))
        differentiate = mindspore.value_and_grad(lambda: (net(x) ** 2).sum(), None, optimizer.parameters)
        found: list[Any] = []

        def steps() -> None:
            for _ in range(3):
                loss, gradients = differentiate()
                optimizer(gradients)
                found.extend(each.asnumpy().tobytes() for each in (loss, *gradients, *net.get_parameters()))

        if recorded:
            with probe.mindspore.capture(tmp_path / "dump", net, level="mix", quiet=True):
                steps()
        else:
            steps()
        return found

    assert train(True) == train(False)


def compared(baseline: Path, candidate: Path) -> tuple[int, dict[str, Any]]:
    program = shlex.split(os.environ.get("PROBE_BIN", f"{sys.executable} -m probe"))
    done = subprocess.run([*program, "compare", baseline, candidate, "--format", "json"], capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    make_mindspore.stored(str(folder))
    return folder


@pytest.mark.parametrize("name", ["mindspore", "fault"])
def test_stored_recordings_are_made_again(made: Path, name: str) -> None:
    code, report = compared(STORED / name, made / name)
    counts = report["counts"]
    unpaired = counts["ops_baseline_only"] + counts["ops_candidate_only"]
    assert (code, report["first_divergence"], unpaired, counts["slots"]) == (0, None, 0, 677)


PROGRAM = """
import numpy, mindspore
from mindspore import nn, ops, Tensor
{imports}
mindspore.set_context(mode=mindspore.{mode})
net = nn.SequentialCell(nn.Dense(3, 4), nn.ReLU(), nn.Dense(4, 2))
optimizer = nn.SGD(net.trainable_params(), 0.1)
differentiate = mindspore.value_and_grad(lambda x: ops.gelu(net(x)).sum(), None, net.trainable_params())
for step in range(2):
    {begin}
    loss, gradients = differentiate(Tensor(numpy.ones((2, 3), numpy.float32)))
    optimizer(gradients)
    {end}
"""


def said(tmp_path: Path, *options: str, mode: str = "PYNATIVE_MODE", imports: str = "", begin: str = "pass", end: str = "pass") -> list[str]:
    """Records a program by the command, and returns the lines on standard error but MindSpore's own."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(PROGRAM.format(mode=mode, imports=imports, begin=begin, end=end)))
    command = [sys.executable, "-m", "probe", "capture", "-o", tmp_path / "dump", *options, "--", sys.executable, script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if "WARNING" not in line]


def test_a_program_is_recorded_without_an_edit(tmp_path: Path) -> None:
    lines = said(tmp_path)
    assert len(lines) == 1 and lines[0].startswith("probe: recorded steps 0-1, rank 0: "), lines


def test_a_script_for_the_older_tool_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"task": "statistics", "dump_path": "dump", "step": [1], "level": "mix", "statistics": {}}))
    debugger = "from msprobe.mindspore import PrecisionDebugger\ndebugger = PrecisionDebugger(config_path='config.json')"
    lines = said(tmp_path, imports=debugger, begin="debugger.start(net)", end="debugger.stop(); debugger.step()")
    assert [line.partition(":")[2][:22] for line in lines] == [" import msprobe is ans", " recorded step 1, rank"], lines


def test_graph_mode_is_said_in_one_line(tmp_path: Path) -> None:
    lines = said(tmp_path, mode="GRAPH_MODE", begin="net(Tensor(numpy.ones((2, 3), numpy.float32))); break")
    assert len(lines) == 1 and lines[0].startswith("probe: graph mode is not recorded: "), lines
