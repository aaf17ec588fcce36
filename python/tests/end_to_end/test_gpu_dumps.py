"""Dumps that a GPU recorded (`testdata/gpu`: an H100, by `tests/cuda/run.sh`) against recordings of this machine: real rounding of another device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).resolve().parents[3]
GPU = ROOT / "testdata" / "gpu"

#: The op at fault in the faulty run of each training.
FAULTY = {"gpt": "Functional.gelu.1.forward", "mlp": "Functional.linear.2.backward"}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same trainings, recorded now."""
    folder = tmp_path_factory.mktemp("here")
    program = "import sys, pathlib; sys.path.insert(0, sys.argv[1]); import answers\nfor name in answers.KEPT: answers.keep(pathlib.Path(sys.argv[2], name), name, 'cpu')"
    subprocess.run([sys.executable, "-c", program, ROOT / "tests" / "cuda", folder], check=True)
    return folder


@pytest.mark.parametrize("name", FAULTY)
def test_a_gpu_agrees_with_the_host(compare, here, name):
    for baseline in (GPU / name / "host", here / name):
        for pair in ((baseline, GPU / name / "good"), (GPU / name / "good", baseline)):
            code, report = compare(*pair)
            assert (code, report["verdict"], report["culprits"]) == (0, "agree", []), report["first_divergence"]


@pytest.mark.parametrize("name", FAULTY)
def test_a_wrong_kernel_of_a_gpu_is_named(compare, here, name):
    for baseline in (GPU / name / "good", GPU / name / "host", here / name):
        code, report = compare(baseline, GPU / name / "faulty")
        assert (code, report["first_divergence"]["op"]) == (1, FAULTY[name])
