"""The agent's table of parameters against the simulated device's, which torch_npu's own calls have gone through: two tables, made from different sources."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_table_of_parameters_fits_the_calls_of_torch_npu() -> None:
    spec = importlib.util.spec_from_file_location("table", ROOT / "tests/ascend-sim/operators/table.py")
    assert spec is not None and spec.loader is not None
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    lines = [line.split() for line in (ROOT / "agent/src/roles.txt").read_text().splitlines() if line and not line.startswith("#")]
    roles = {line[0]: line[1] for line in lines}
    # A tensor that is updated on the side, and a result whose size is found out, are passed as others.
    expected = {name: "".join(each.partition(":")[2] for each in parameters.split()).replace("v", "u").replace("g", "o") for name, parameters, _ in table.OPERATORS}
    wrong = {name: (letters, roles.get(name)) for name, letters in expected.items() if roles.get(name) != letters}
    assert not wrong and len(roles) > 600, wrong
