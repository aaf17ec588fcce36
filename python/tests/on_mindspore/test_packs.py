"""Packs of programs of MindSpore, on a CPU. `./test.sh --all` runs them in an environment that has MindSpore."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy
import pytest

mindspore = pytest.importorskip("mindspore")

from mindspore import nn, ops  # noqa: E402

from probe.config_check import pack  # noqa: E402


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.tied = nn.BatchNorm2d(3), nn.Dense(3, 3)
        self.other = nn.Dense(3, 3)
        self.other.weight = self.tied.weight

    def construct(self, x: Any) -> Any:
        return self.other(self.tied(ops.mean(self.norm(x), axis=(2, 3))))


def read(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        return {Path(name).stem: json.loads(archive.read(name)) for name in archive.namelist()}


def train(output: Path | None, mode: int = 1, steps: int = 2, **options: Any) -> list[bytes]:
    mindspore.set_context(mode=mode)
    mindspore.set_seed(11)
    net = Net()
    net.set_train()
    optimizer = nn.Momentum(net.trainable_params(), nn.ExponentialDecayLR(0.1, 0.5, 1), 0.9, weight_decay=0.01)
    x = mindspore.Tensor(numpy.random.RandomState(3).randn(2, 3, 4, 4).astype("float32"))
    if output is not None:
        pack(net, output, fmk="mindspore", steps=steps, **options)
    if mode == mindspore.GRAPH_MODE:
        step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)
        step.set_train()
        losses = [step(x, mindspore.Tensor(numpy.ones((2, 3), "float32"))) for _ in range(3)]
    else:
        differentiate = mindspore.value_and_grad(lambda: (net(x) ** 2).sum(), None, optimizer.parameters)
        losses = []
        for _ in range(3):
            loss, gradients = differentiate()
            optimizer(ops.clip_by_global_norm(gradients, 0.5))
            losses.append(loss)
    return [value.asnumpy().tobytes() for value in (*losses, *net.get_parameters())]


def test_a_pack_has_the_parts_of_one_of_pytorch_and_leaves_the_training_alone(tmp_path: Path) -> None:
    original = nn.Cell.__call__
    plain = train(None)
    assert train(tmp_path / "npu.zip") == plain
    assert nn.Cell.__call__ is original and mindspore.set_seed.__module__.startswith("mindspore")
    found = read(tmp_path / "npu.zip")
    manifest = found["manifest"]
    assert (manifest["framework"], manifest["steps"], manifest["device"]["kind"]) == ("mindspore", [0, 1], "cpu")
    assert set(manifest["absent"]) == {"dataloader"}
    assert found["flags"]["mindspore"]["mode"] == "PYNATIVE" and found["flags"]["deterministic_algorithms"] is False
    assert found["random"]["seeds"]["mindspore"] == 11
    assert [mark["mark"] for mark in found["random"]["marks"]] == ["seeded", "model", "step 0", "step 1"]
    tensors = {item["name"]: item for item in found["model"]["tensors"]}
    assert tensors["norm.gamma"]["kind"] == "parameter" and tensors["norm.moving_mean"]["kind"] == "buffer"
    assert found["model"]["tied"] == [["other.weight", "tied.weight"]]
    assert "eps=1e-05" in next(each["extra"] for each in found["model"]["modules"] if each["name"] == "norm")
    first, second = ({item["name"]: item["hash"] for item in step["tensors"]} for step in found["weights"]["steps"])
    assert first["tied.weight"] != second["tied.weight"] and "other.weight" not in first
    (argument,) = found["dataset"]["steps"][0]["arguments"]
    assert (argument["path"], argument["dtype"], argument["shape"], len(argument["samples"])) == ("args.0", "float32", [2, 3, 4, 4], 2)
    optimizer = found["optimizer"]
    options = optimizer["groups"][0]["options"]
    assert (optimizer["class"], options["lr"], options["momentum"], options["weight_decay"]) == ("Momentum", 0.1, 0.9, 0.01)
    assert optimizer["clipping"] == [{"step": at, "function": "clip_grad_norm_", "limit": 0.5, "norm_type": 2.0} for at in (0, 1)]
    assert found["schedule"]["class"] == "ExponentialDecayLR" and found["schedule"]["rates"][1] == [pytest.approx(0.05)]
    assert found["scaler"] == {"class": None}


def test_graph_mode_is_packed_without_the_arguments_of_the_net(tmp_path: Path) -> None:
    try:
        assert train(tmp_path / "npu.zip", mode=mindspore.GRAPH_MODE, steps=1) == train(None, mode=mindspore.GRAPH_MODE)
    finally:
        mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    found = read(tmp_path / "npu.zip")
    assert found["flags"]["mindspore"]["mode"] == "GRAPH" and found["manifest"]["steps"] == [0]
    assert "compiled" in found["manifest"]["absent"]["dataset"] and len(found["weights"]["steps"]) == 1


def test_the_present_state_is_packed_at_once(tmp_path: Path) -> None:
    pack(Net(), tmp_path / "now.zip", fmk="mindspore", steps=0)
    found = read(tmp_path / "now.zip")
    assert len(found["weights"]["steps"]) == 1 and found["manifest"]["steps"] == []


def test_another_framework_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'paddle' is not 'pytorch' or 'mindspore'"):
        pack(Net(), tmp_path / "x.zip", fmk="paddle")
