"""Suspects are recorded again with their data and replayed; `probe narrow` does so by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import fork_server
from faulty_device import PROGRAM

COMMAND = [os.environ["PROBE_BIN"]] if "PROBE_BIN" in os.environ else [sys.executable, "-m", "probe"]
WORDS = {"base": "", "cand": "gelu 1 0.01", "ulp": "gelu 1 0.0000001"}


def probe(folder: Path, *words: str) -> tuple[int, str]:
    environment = {**os.environ, "PROBE_PYTHON": sys.executable}
    done = subprocess.run([*COMMAND, *words], cwd=folder, capture_output=True, text=True, check=False, env=environment)
    return done.returncode, done.stdout + done.stderr


def program(side: str) -> str:
    return f"{fork_server.python()} train.py {WORDS[side]}"


def recorded(folder: Path, side: str, name: str, *options: str) -> str:
    code, said = probe(folder, "capture", "--quiet", *options, "-o", name, "--", *program(side).split())
    assert code == 0, said
    return name


def test_suspects_are_recorded_again_and_confirmed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    dumps = [recorded(tmp_path, side, side, "--steps", "0") for side in ("base", "cand")]
    code, said = probe(tmp_path, "compare", *dumps)
    assert code == 1 and "written    probe-report/suspects.toml" in said, said
    settings = tomllib.loads((tmp_path / "probe-report/suspects.toml").read_text())
    assert settings == {
        "steps": "0", "ranks": "0", "level": "mix", "max_bytes": "1GB",
        "tensors": ["Functional.gelu.1.backward", "Functional.gelu.1.forward", "Functional.linear.1.forward", "Functional.softmax.1.forward"],
    }  # fmt: skip
    again = [recorded(tmp_path, side, f"{side}_data", "--config", "probe-report/suspects.toml") for side in ("base", "cand")]
    code, said = probe(tmp_path, "compare", *again, "--confirm", "--format", "json")
    first = json.loads(said)["first_divergence"]
    assert code == 1 and first["op"] == "Functional.gelu.1.forward" and "replayed in float64, output.0 is" in first["reason"], said


    # The baseline is recorded already: what it has data of is replayed.
    code, said = probe(tmp_path, "narrow", "--baseline", again[0], "--candidate-cmd", program("cand"))
    assert code == 1 and "\nFunctional.gelu.1.forward: replayed in float64, output.0 is" in said, said


def test_narrow_says_if_the_first_op_with_other_bits_is_right(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    code, said = probe(tmp_path, "narrow", "--baseline-cmd", program("base"), "--candidate-cmd", program("ulp"))
    assert code == 1 and "\nFunctional.gelu.1.forward: replayed in float64, both sides are as right as rounding allows" in said, said
