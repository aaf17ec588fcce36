"""`probe capture --control FILE`: a running program is recorded when someone asks for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fork_server

#: A service: each call of the model is an iteration. After some, someone else writes into the file.
SERVICE = """
import os, pathlib, torch
model = torch.nn.Linear(2, 2)
wishes = {2: "2", 6: "many", 7: "0", 9: " 1\\n"}
with torch.no_grad():
    for number in range(12):
        model(torch.full((1, 2), float(number)))
        if number in wishes:
            pathlib.Path("new").write_text(wishes[number])
            os.replace("new", "record")
"""


def capture(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "serve.py").write_text(SERVICE)
    command = [sys.executable, "-m", "probe", "capture", *options, "-o", "dump", "--", fork_server.python(), "serve.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_service_is_recorded_on_request(tmp_path: Path) -> None:
    # The content of the file when the program starts is no request.
    (tmp_path / "record").write_text("5")
    done = capture(tmp_path, "--step-on", "model", "--control", "record")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "dump").glob("step*")) == ["step10", "step3", "step4"], done.stderr
    for line in ("recording steps 3-4, as", "'many' is not the number of iterations", "'0' is not the number", "recording steps 10, as"):
        assert line in done.stderr
    assert "recorded steps 3-4,10" in done.stderr


def test_it_takes_the_place_of_the_steps(tmp_path: Path) -> None:
    done = capture(tmp_path, "--steps", "1", "--control", "record")
    assert done.returncode == 2 and "cannot be used with" in done.stderr
