"""Sets MindSpore up for all tests here, which can be done once in a process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benches" / "mindspore"))


@pytest.fixture(scope="session", autouse=True)
def _repeatable() -> None:
    import make_mindspore

    make_mindspore.prepare()
