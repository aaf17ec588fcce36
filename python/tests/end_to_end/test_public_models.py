"""The judge's answers for a reduced set of the suite in `benches/answers`: public models, other rounding, faults below the capture."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SUITE = Path(__file__).resolve().parents[3] / "benches" / "answers"
#: Least score of the judge, raised whenever it does better.
FAULTS_NAMED, SOUND_SILENT = 13, 9

Answer = dict[str, Any]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[Answer]:
    """Cases of the set, each with what `probe compare` says."""
    folder = tmp_path_factory.mktemp("answers")
    command = os.environ.get("PROBE_BIN") or shutil.which("probe", path=str(Path(sys.executable).parent))
    subprocess.run([sys.executable, SUITE / "make.py", folder / "pairs", "--small"], check=True)
    subprocess.run(
        [sys.executable, SUITE / "score.py", folder / "pairs", "--probe", command, "--json", folder / "answers.json"], check=True
    )
    return json.loads((folder / "answers.json").read_text())


def complaints(answers: list[Answer]) -> str:
    return "\n".join(
        f"{a['name']}: {a['what']}: expected {a['answers'] or 'agreement'}, found {a['found']}: {a['said']}"
        for a in answers
        if not a["right"]
    )


def test_sound_pairs_are_silent(answers: list[Answer]) -> None:
    sound = [a for a in answers if a["verdict"] == "agree"]
    assert len(sound) == 9
    assert sum(a["right"] for a in sound) >= SOUND_SILENT, complaints(sound)


def test_the_op_at_fault_is_named(answers: list[Answer]) -> None:
    faults = [a for a in answers if a["verdict"] == "diverged"]
    assert len(faults) >= 12
    assert {a["phase"] for a in faults} == {"forward", "backward", "optimizer"}
    assert sum(a["right"] for a in faults) >= FAULTS_NAMED, complaints(faults)


def test_pairs_that_are_equal_but_for_the_fault_leave_no_doubt(answers: list[Answer]) -> None:
    plain = [a for a in answers if a["noise"] == "R0"]
    assert len(plain) == 6
    assert all(a["right"] for a in plain), complaints(plain)


def test_rounding_has_the_size_of_its_type(answers: list[Answer]) -> None:
    """The faults' own ops: float32 rounds at 1e-7, products of 10 bits at 3e-4."""
    faults = [a for a in answers if a.get("own_noise")]
    sizes = {noise: [a["own_noise"] for a in faults if a["noise"] == noise] for noise in ("R1", "R2")}
    assert sizes["R1"] and all(1e-9 < size < 3e-6 for size in sizes["R1"])
    assert all(1e-9 < size < 1e-3 for size in sizes["R2"])
