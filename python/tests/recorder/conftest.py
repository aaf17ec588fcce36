"""Shared parts of the tests of the recorder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from dumps import Dump
from hooks import hooks
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test leaves torch as it was, and every message is said again."""
    from probe import messages

    monkeypatch.setattr(messages, "_said", set())
    torch.set_num_threads(1)
    before = hooks()
    yield
    assert hooks() == before
    assert _get_current_dispatch_mode_stack() == []


class Recorder:
    """Records what a test does, and reads it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def __call__(self, work: Any, model: Any = None, **settings: Any) -> Dump:
        """One step in which `work()` runs; fails if the recorder had a fault."""
        import probe

        self.count += 1
        output = self.folder / f"dump{self.count}"
        settings = {"level": "api", "task": "tensor", **settings}
        capture = probe.Capture(output, **settings)
        try:
            capture.start(model)
            work()
        finally:
            capture.close()
        dump = Dump(output)
        assert dump.manifest["notes"] == [] and "stopped" not in dump.manifest, dump.manifest
        return dump


@pytest.fixture
def record(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)
