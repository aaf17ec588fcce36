"""Seeds and determinism."""

from __future__ import annotations

import os
import pickle
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import probe
from probe import draws as repeated
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


def test_dropout_can_be_removed(tmp_path: Path) -> None:
    functional = torch.nn.functional
    before = functional.dropout
    ones = torch.ones(2, 3, 8, 8)
    with probe.capture(tmp_path / "earlier", level="api", quiet=True):
        functional.dropout(ones)
    try:
        with probe.capture(tmp_path / "dump", level="api", quiet=True):
            probe.PrecisionDebugger.seed_all(rm_dropout=True)
            probe.PrecisionDebugger.seed_all(rm_dropout=True)
            for kind in (torch.nn.Dropout, torch.nn.Dropout2d, torch.nn.AlphaDropout):
                assert torch.equal(kind(0.5)(ones), ones)
            assert torch.equal(functional.dropout(ones, 0.9, training=True, inplace=False), ones)
            attended = functional.scaled_dot_product_attention(ones, ones, ones, None, 0.9)
            assert torch.equal(attended, functional.scaled_dot_product_attention(ones, ones, ones, dropout_p=0.9))
        names = (tmp_path / "dump" / "step0" / "rank0" / "ops.parquet").read_bytes()
        assert b"Functional.dropout.1.forward" in names and b"Functional.scaled_dot_product_attention.1.forward" in names
        assert pickle.loads(pickle.dumps(functional.dropout)) is functional.dropout
    finally:
        seeds._removed.undo()
    assert functional.dropout is before


def test_every_draw_can_be_the_first(tmp_path: Path) -> None:
    functional, x = torch.nn.functional, torch.ones(64)
    kinds: dict[str, Callable[[], Any]] = {
        "python": lambda: random.random(),
        "shuffle": lambda: random.sample(range(99), 9),
        "function": lambda: torch.randn(4).tolist(),
        "permutation": lambda: torch.randperm(20).tolist(),
        "method": lambda: torch.empty(4).uniform_().tolist(),
        "module": lambda: torch.nn.Dropout(0.5)(x).tolist(),
        "functional": lambda: functional.dropout(x).tolist(),
        "weights": lambda: torch.nn.Linear(3, 3).weight.tolist(),
    }
    if (numpy := sys.modules.get("numpy")) is not None:
        kinds["numpy"] = lambda: numpy.random.rand(3).tolist()
    before = torch.randn, torch.Tensor.uniform_, random.random
    try:
        probe.PrecisionDebugger.seed_all(3, is_enhanced=True)
        first = {kind: draw() for kind, draw in kinds.items()}
        with probe.capture(tmp_path / "dump", level="api", task="statistics", quiet=True):
            assert {kind: draw() for kind, draw in reversed(kinds.items())} == first
        assert b"Torch.randn.0.forward" in (tmp_path / "dump" / "step0" / "rank0" / "ops.parquet").read_bytes()
        own = torch.Generator().manual_seed(1)
        assert not torch.equal(torch.rand(3, generator=own), torch.rand(3, generator=own)), "a generator of the program's own goes on"
        probe.PrecisionDebugger.seed_all(4, is_enhanced=True)
        assert all(draw() != first[kind] for kind, draw in kinds.items()), "another seed, other numbers"
    finally:
        repeated._repeated.undo()
    assert before == (torch.randn, torch.Tensor.uniform_, random.random)
    assert torch.randn(4).tolist() != torch.randn(4).tolist()
