"""State of optimizers that is made of quotients, and a weight that no number of steps has moved so far."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import training

import probe

OPTIMIZERS = {
    "centered": lambda given: torch.optim.RMSprop(given, 1e-3, momentum=0.9, centered=True),
    "momentum": lambda given: torch.optim.RMSprop(given, 1e-3, momentum=0.9),
    "plain": lambda given: torch.optim.SGD(given, 0.02, momentum=0.9),
}


def train(output: Path, kind: str, step: int, device: str | None = None, is_loaded: bool = True) -> None:
    torch.manual_seed(5)
    model = training.Transformer()
    x, y = torch.randint(0, 40, (2, 12)), torch.randint(0, 40, (2, 12))
    if not is_loaded:
        torch.nn.init.normal_(model.layers[1].up.weight, std=0.2)
    optimizer = OPTIMIZERS[kind](model.parameters())
    with training.device(device), probe.capture(output, model=model, steps=[step], level="mix", task="sketch"):
        for _ in range(step + 1):
            optimizer.zero_grad()
            model(x, y).backward()
            optimizer.step()


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_momentum_of_quotients_is_no_mean_of_gradients(tmp_path, compare, kind):
    train(tmp_path / "gpu", kind, 0)
    train(tmp_path / "npu", kind, 0, "rounding")
    code, report = compare(tmp_path / "gpu", tmp_path / "npu")
    assert (code, report["verdict"], report["culprits"]) == (0, "agree", []), report["first_divergence"]


@pytest.mark.parametrize(("kind", "step"), [("momentum", 1), ("plain", 4)])
def test_a_weight_that_was_not_loaded_is_named_in_a_late_step(tmp_path, compare, kind, step):
    train(tmp_path / "gpu", kind, step)
    train(tmp_path / "npu", kind, step, "rounding")
    train(tmp_path / "bad", kind, step, "rounding", is_loaded=False)
    code, report = compare(tmp_path / "gpu", tmp_path / "npu")
    assert (code, report["verdict"], report["culprits"]) == (0, "agree", []), report["first_divergence"]
    code, report = compare(tmp_path / "gpu", tmp_path / "bad")
    first = report["first_divergence"]
    assert (code, first["cause"], first["module"]) == (1, "input", "layers.1.up"), first
