"""The tutorial as printed: two packs, two dumps by the oldest form of the older tool's calls, and the op at fault in the workbook and on the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fork_server
import openpyxl

HERE = Path(__file__).resolve().parent / "tutorial"
SCRIPT = HERE / "train.py"
WRONG = "Functional.conv2d.7.forward"


def run(folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    # As a user's shell: the script itself sets MSPROBE_PATH.
    environment = {name: value for name, value in os.environ.items() if name != "MSPROBE_PATH"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def probe(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = os.environ.get("PROBE_BIN")
    return run(folder, *([command] if command else [sys.executable, "-m", "probe"]), *arguments)


# One test: workers of pytest that shared it would each train both sides.
def test_the_tutorial(tmp_path: Path) -> None:
    for side in ("gpu", "npu"):
        (tmp_path / f"msprobe_{side}.json").write_text((HERE / "msprobe.json").read_text().replace("SIDE", side))
        done = run(tmp_path, fork_server.python(), SCRIPT, side)
        assert done.returncode == 0 and "recorded steps 10,20, rank 0: 80 ops" in done.stderr, done.stderr

    packs = probe(tmp_path, "config-check", "gpu.zip", "npu.zip", "-o", "packs")
    assert packs.returncode == 0 and packs.stdout.startswith("match: no difference that can change numerics"), packs.stdout

    done = probe(tmp_path, "compare", "-b", "gpu_dump", "-c", "npu_dump", "-l", "api", "-o", "DIR")
    answer = done.stdout.splitlines()[0]
    assert done.returncode == 1 and answer.startswith("first divergence: step") and f"{WRONG} output.0" in answer, done.stdout
    head, *rows = openpyxl.load_workbook(tmp_path / "DIR" / "result.xlsx")["summary"].iter_rows(values_only=True)
    ops = [dict(zip(head, row)) for row in rows]
    # In each step all forward calls of the two functions, and the backward of the one call in the listed module.
    assert [op["op"].split(".")[1] for op in ops].count("relu") == 2 * 17 and len(ops) == 2 * (20 + 17 + 1)
    (wrong, *_) = [op for op in ops if op["role"] in ("introduces", "amplifies")]
    assert (wrong["op"], wrong["step"]) == (WRONG, 10)
    assert 0.99999 < wrong["CosineSimilarity"] < 1 and 0.02 < wrong["MaxAbsError"] < 0.2

    module = probe(tmp_path, "inspect", "gpu_dump", "--op", "Module.*")
    assert "Module.layer1.0.conv1.Conv2d.backward.0" in module.stdout and ".forward." not in module.stdout
