"""Seeds and determinism."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import probe
from probe import seeds
from probe.seeds import _DETERMINISTIC_ENVIRONMENT

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in ("PYTHONHASHSEED", *_DETERMINISTIC_ENVIRONMENT):
        monkeypatch.setenv(variable, "x")
        monkeypatch.delenv(variable)
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark
    yield
    torch.use_deterministic_algorithms(False)
    cudnn.deterministic, cudnn.benchmark = before


def draws() -> list[Any]:
    numbers: list[Any] = [random.random(), torch.rand(1).item()]
    try:
        import numpy
    except ImportError:
        return numbers
    return [*numbers, float(numpy.random.rand())]


def test_every_source_repeats() -> None:
    probe.seed_all(7)
    first = draws()
    probe.seed_all(7)
    assert draws() == first
    probe.seed_all(8)
    assert all(one != other for one, other in zip(draws(), first, strict=True))


def test_determinism_only_where_it_is_asked_for() -> None:
    probe.seed_all(1)
    assert not torch.are_deterministic_algorithms_enabled() and "HCCL_DETERMINISTIC" not in os.environ
    probe.seed_all(1, deterministic=True)
    assert torch.are_deterministic_algorithms_enabled() and torch.backends.cudnn.deterministic and not torch.backends.cudnn.benchmark
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8" and os.environ["HCCL_DETERMINISTIC"] == "true"
    probe.seed_all(1)
    assert torch.are_deterministic_algorithms_enabled(), "what the script switched on stays on"


def test_ops_without_a_deterministic_kernel_may_only_warn() -> None:
    probe.seed_all(1, True, warn_only=True)
    assert torch.is_deterministic_algorithms_warn_only_enabled()


def test_the_users_own_values_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    probe.seed_all(1, deterministic=True)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


def test_what_comes_too_late_is_said(said: Callable[[], str]) -> None:
    probe.seed_all(5)
    assert "PYTHONHASHSEED=5 holds for child processes only" in said() and os.environ["PYTHONHASHSEED"] == "5"
    probe.seed_all(5)
    assert said() == ""


@pytest.mark.parametrize("seed", [-1, 2**32, "1", 1.0, True])
def test_no_seed(seed: Any) -> None:
    with pytest.raises(ValueError, match="is not a seed"):
        probe.seed_all(seed)


def test_the_older_tools_arguments(said: Callable[[], str]) -> None:
    probe.PrecisionDebugger.seed_all(seed=3, mode=True)
    assert torch.are_deterministic_algorithms_enabled()
    with pytest.raises(ValueError, match="is_enhanced"):
        probe.seed_all(1, is_enhanced=True)


_WITHOUT_DROPOUT = """
import pickle, sys
import torch, probe
from pathlib import Path
functional = torch.nn.functional
ones = torch.ones(2, 3, 8, 8)
probe.PrecisionDebugger.seed_all(rm_dropout=True)
probe.PrecisionDebugger.seed_all(rm_dropout=True)
with probe.capture(sys.argv[1], level="api", quiet=True):
    for kind in (torch.nn.Dropout, torch.nn.Dropout2d, torch.nn.AlphaDropout):
        assert torch.equal(kind(0.5)(ones), ones)
    assert torch.equal(functional.dropout(ones, 0.9, training=True, inplace=False), ones)
    attended = functional.scaled_dot_product_attention(ones, ones, ones, None, 0.9)
    assert torch.equal(attended, functional.scaled_dot_product_attention(ones, ones, ones, dropout_p=0.9))
names = (Path(sys.argv[1]) / "step0" / "rank0" / "ops.parquet").read_bytes()
assert b"Functional.dropout.1.forward" in names and b"Functional.scaled_dot_product_attention.1.forward" in names
assert pickle.loads(pickle.dumps(functional.dropout)) is functional.dropout
"""


def test_dropout_can_be_removed(tmp_path: Path) -> None:
    # In a program of its own: it changes functions of torch.
    done = subprocess.run([sys.executable, "-c", _WITHOUT_DROPOUT, str(tmp_path / "dump")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_removed_dropout_can_be_undone() -> None:
    before = torch.nn.functional.dropout
    try:
        probe.PrecisionDebugger.seed_all(rm_dropout=True)
        assert torch.nn.functional.dropout is not before
    finally:
        seeds._removed.undo()
    assert torch.nn.functional.dropout is before
