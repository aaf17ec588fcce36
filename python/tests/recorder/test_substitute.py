"""Modules are given the inputs that another run recorded, so that a fault shows apart from those before it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import probe
from dumps import Dump, same


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(40, 40)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor, wrong: float = 0.0) -> torch.Tensor:
        return self.fc(x) * scale + wrong


class Net(nn.Module):
    """Two blocks in which a fault can be planted."""

    def __init__(self, faults: tuple[float, float] = (0.0, 0.0)) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.faults = faults

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block, wrong in zip(self.blocks, self.faults):
            x = block(x, scale=x.mean(), wrong=wrong)
        return x


def run(folder: Path, net: Net, level: str = "module", count: int = 2, **settings: Any) -> list[Any]:
    torch.manual_seed(1)
    gradients = []
    capture = probe.Capture(folder, net, level=level, task="tensor", step_on="program", quiet=True, **settings)
    for _ in range(count):
        capture.start()
        net.zero_grad()
        net(torch.randn(30, 40)).square().mean().backward()
        gradients.append(net.blocks[0].fc.weight.grad.clone())
        capture.step()
    capture.close()
    return gradients


SECOND = "Module.blocks.1.Block.forward.0"


@pytest.mark.parametrize("level", ["module", "mix", "api", "op"])
def test_what_comes_before_no_longer_matters(tmp_path: Path, said: Callable[[], str], level: str) -> None:
    run(tmp_path / "sound", Net())
    rule = {"dump": str(tmp_path / "sound"), "modules": [SECOND]}
    gradients = run(tmp_path / "given", Net((0.5, 0.0)), level, substitute=rule)
    assert all(gradient.abs().sum() > 0 for gradient in gradients), "the gradient reaches what is in front"
    assert "this run was given 4 tensors of" in said()
    for step in range(2):
        sound, given = Dump(tmp_path / "sound", step), Dump(tmp_path / "given", step)
        assert any("not a run of its own" in note for note in given.manifest["notes"])
        if level in ("module", "mix"):
            assert not same(given["Module.blocks.0.Block.forward.0"]["output.0"], sound["Module.blocks.0.Block.forward.0"]["output.0"].data)
            for path in ("input.0", "kwarg.scale", "output.0"):
                assert same(given[SECOND][path], sound[SECOND][path].data), path
    # The same with a second fault: what differs now is that alone.
    run(tmp_path / "both", Net((0.5, 0.25)), substitute=rule)
    both, sound = Dump(tmp_path / "both"), Dump(tmp_path / "sound")
    assert torch.allclose(both[SECOND]["output.0"].data - sound[SECOND]["output.0"].data, torch.tensor(0.25))


def test_what_cannot_be_replaced_is_said(tmp_path: Path, said: Callable[[], str]) -> None:
    run(tmp_path / "sound", Net(), count=1)
    names = [SECOND, "Module.blocks.7.Block.forward.0", "Module.blocks.0.Block.forward.3"]
    plain = run(tmp_path / "plain", Net((0.5, 0.0)), count=1)
    said()
    gradients = run(tmp_path / "other", Net((0.5, 0.0)), substitute={"dump": tmp_path / "sound", "modules": names, "steps": "1"})
    text = said()
    assert "has no step 1 of rank 0, so its modules keep their own inputs" in text and text.count("was not called in a step") == 3
    assert torch.equal(gradients[0], plain[0])
    statistics = tmp_path / "statistics"
    with probe.capture(statistics, Net(), level="module", task="statistics", quiet=True) as capture:
        capture.start(net := Net())
        net(torch.randn(300, 40))
    run(tmp_path / "third", Net(), count=1, substitute={"dump": statistics, "modules": [SECOND]})
    assert f"{SECOND} keeps its own inputs: the elements of input.0 were not recorded" in said()
    (tmp_path / "empty").mkdir()
    run(tmp_path / "fourth", Net(), count=1, substitute={"dump": tmp_path / "empty", "modules": [SECOND]})
    assert "recording stopped: ValueError" in said()


def test_the_older_tools_key(tmp_path: Path, said: Callable[[], str]) -> None:
    run(tmp_path / "sound", Net(), count=1)
    config = tmp_path / "config.json"
    load = {"path": str(tmp_path / "sound"), "modules": [SECOND], "step": [0], "rank": [], "dump_after_load": True}
    config.write_text(json.dumps({"task": "tensor", "dump_path": str(tmp_path / "given"), "level": "L0", "load": load}))
    debugger, net = probe.PrecisionDebugger(str(config)), Net((0.5, 0.0))
    try:
        torch.manual_seed(1)
        debugger.start(net)
        net(torch.randn(30, 40))
        debugger.stop()
        debugger.step()
    finally:
        probe.PrecisionDebugger.forget()
    assert same(Dump(tmp_path / "given")[SECOND]["output.0"], Dump(tmp_path / "sound")[SECOND]["output.0"].data), said()
