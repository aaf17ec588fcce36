"""Names of calls, their places in the program, and that an older dump of the same run pairs with ours."""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn, relu as imported_relu
from torch.nn import functional as F
from torch.nn.functional import gelu as imported_gelu

import probe
from dumps import Dump
from probe.recorder import naming
from runs import ConvNet
from test_survives import PACKAGE, command


def test_numbers_start_anew_in_each_step(tmp_path: Path) -> None:
    model = ConvNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for level in ("mix", "op"):
        with probe.capture(tmp_path / level, model=model, level=level, task="statistics"):
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.ones(2, 3, 8, 8)).sum().backward()
                optimizer.step()
        one, two = (Dump(tmp_path / level, step).names for step in (1, 2))
        assert one == two and len(one) == len(set(one))


def test_operators_and_methods(record: Any) -> None:
    x, y = torch.ones(3), torch.ones(3)

    def work() -> None:
        x + y
        x.add(y)
        torch.add(x, y)
        1 + x
        x - y
        1 - x
        x * 2
        x / y
        1 / x
        x // y
        x % y
        x**2
        2**x
        x @ y
        -x
        abs(x)
        x < y
        x <= y
        x > y
        x >= y
        x == y
        x != y
        z = x.clone()
        z += y
        z -= y
        z *= y
        z /= y
        b = x.bool()
        b & b
        b | b
        b ^ b
        ~b
        x[0]
        x[1:] = 2

    names = record(work).names
    # A reflected sum or product reaches torch as one that is not; `abs(x)` is a call.
    wanted = """__add__ add . __add__ __sub__ __rsub__ __mul__ __truediv__ __rdiv__ __floordiv__ __mod__ __pow__ __rpow__ __matmul__ __neg__
        abs __lt__ __le__ __gt__ __ge__ __eq__ __ne__ clone __iadd__ __isub__ __imul__ __itruediv__ bool __and__ __or__ __xor__
        __invert__ __getitem__ __setitem__""".split()
    stems = [name.split(".")[1] if name.startswith("Tensor.") else "." for name in names]
    assert stems == wanted, stems


def test_functions_that_were_imported_by_name_before(record: Any) -> None:
    x = torch.ones(3)
    dump = record(lambda: (imported_relu(x), imported_gelu(x), torch.ops.aten.sin(x), F.relu(x)))
    assert {"Torch.relu.0.forward", "Functional.gelu.0.forward", "Functional.relu.0.forward"} <= set(dump.names), dump.names
    assert "Aten.sin.0.forward" in record(lambda: torch.ops.aten.sin(x), level="op")


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.fc(x)
        h = h.tanh()
        return h * 2


@pytest.mark.parametrize("level", ["module", "api", "op"])
def test_the_innermost_frame_is_the_programs_line(record: Any, level: str) -> None:
    model = _Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)

    def work() -> None:
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        optimizer.step()

    dump = record(work, model, level=level)
    lines = {op.name: op.line for op in dump.ops if op.stack}
    if level == "module":
        assert lines["Module.fc.Linear.forward.0"] == lines["Module.fc.Linear.backward.0"] == "h = self.fc(x)"
        return
    tanh = "Tensor.tanh.0" if level == "api" else "Aten.tanh.0"
    assert lines[f"{tanh}.forward"] == "h = h.tanh()"
    if level == "api":
        assert lines["Functional.linear.0.forward"] == lines["Functional.linear.0.backward"] == "h = self.fc(x)"
        assert lines["Tensor.tanh.0.backward"] == "h = h.tanh()"
    else:
        # Backward ops stand where the op of the forward pass does, and in its module.
        assert lines["Aten.tanh_backward.0.backward"] == "h = h.tanh()"
        weight = [op for op in dump.ops if op.phase == "backward" and op.name.startswith("Aten.mm.")]
        assert weight and all(op.line == "h = self.fc(x)" and op.scope == "Module.fc.Linear.forward.0" for op in weight)
    updates = [op for op in dump.ops if op.scope and op.scope.startswith("Optimizer.")]
    assert updates and {op.scope for op in updates} == {"Optimizer.SGD.step.0"} and {op.line for op in updates} == {"optimizer.step()"}
    for op in dump.ops:
        assert not [frame for frame in op.stack if "/torch/" in frame or "/probe/recorder/" in frame and "/tests/" not in frame], op


SCRIPT = '''
import sys, torch
from torch import nn
from torch.nn import functional as F
sys.path.insert(0, {tests!r})
from runs import Block, ConvNet
torch.set_num_threads(1)
which, output = sys.argv[1:]
model = nn.Sequential(ConvNet(), nn.Linear(5, 8), nn.Sequential(Block(8)))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.conv, self.mid, self.block = ConvNet(), nn.Linear(5, 8), Block(8)
        self.conv.drop.p = self.block.mlp[3].p = 0.0
    def forward(self, x):
        h = F.gelu(self.mid(self.conv(x)))
        h = h.unsqueeze(0) + torch.sin(h) * 0.5 - h / 3
        h = self.block(h)
        return torch.cat([h, -h], -1).max(-1).values
model = Net()
torch.manual_seed(2)
x = torch.randn(4, 3, 8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if which == "theirs":
    from msprobe.pytorch import PrecisionDebugger
    import json
    with open(output + ".json", "w") as file:
        json.dump({{"task": "statistics", "dump_path": output, "rank": [], "step": [], "level": "mix", "statistics": {{"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"}}}}, file)
    debugger = PrecisionDebugger(config_path=output + ".json")
    debugger.start(model=model)
else:
    import probe
    debugger = probe.Capture(output, model, level="mix", task="statistics")
    debugger.start()
loss = F.mse_loss(model(x), torch.ones(1, 4))
loss.backward()
debugger.stop()
debugger.step()
'''


#: Names that the older tool has and ours lacks, and why.
EXCEPTIONS = {
    # A module that returns what it is given does nothing: no gradient is its own. The older tool puts a node of its own
    # around it.
    "Module.block.mlp.3.Dropout.backward.0",
    "Module.conv.drop.Dropout.backward.0",
}


def test_an_older_dump_of_the_same_run_pairs_with_ours(tmp_path: Path) -> None:
    if importlib.util.find_spec("msprobe") is None:
        pytest.skip("needs the older tool")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parent)))
    for which in ("theirs", "ours"):
        done = subprocess.run(
            [sys.executable, str(script), which, str(tmp_path / which)],
            env={"PYTHONPATH": str(PACKAGE), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            capture_output=True, text=True, timeout=600, check=False,
        )
        assert done.returncode == 0, done.stderr
    theirs = json.loads(next((tmp_path / "theirs").rglob("dump.json")).read_text())["data"]
    ours = Dump(tmp_path / "ours")
    missing = sorted(name for name in theirs if name not in ours and name not in EXCEPTIONS)
    assert not missing, missing
    compared = command("compare", "-b", tmp_path / "theirs", "-c", tmp_path / "ours", "-o", tmp_path / "report")
    assert compared.returncode == 0, compared.stdout + compared.stderr


def test_a_function_that_was_wrapped_keeps_its_name(record: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `transfer_to_npu` of torch_npu wraps all that take a device."""
    plain = torch.arange

    @functools.wraps(plain)
    def arange(*given: Any, **options: Any) -> Any:
        return plain(*given, **options)

    naming.api_names.cache_clear()
    monkeypatch.setattr(torch, "arange", arange)
    wanted = ["Torch.arange.0.forward", "Tensor.__mul__.0.forward"]
    assert record(lambda: torch.arange(600.0) * 2, level="api").names == wanted
    monkeypatch.undo()
    assert record(lambda: torch.arange(600.0) * 2, level="api").names == wanted


def test_a_function_that_is_replaced_after_a_recording_keeps_its_name(record: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch reports the replacement then, which no recording before has seen."""
    plain, x = F.gelu, torch.ones(3)
    wanted = ["Functional.gelu.0.forward", "Functional.softplus.0.forward"]

    def work() -> None:
        plain(x)
        F.softplus(x)

    assert record(work, level="api").names == wanted
    # The one says what it wraps, the other does not.
    monkeypatch.setattr(F, "gelu", functools.wraps(plain)(lambda *given, **options: plain(*given, **options)))
    softplus = F.softplus
    monkeypatch.setattr(F, "softplus", lambda given: softplus(given))
    assert record(work, level="api").names == wanted
