"""Arguments, results and parameters of modules are recorded whatever they are made of."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from typing import Any

import torch
from torch import nn

from dumps import same
from runs import Transformer


class _Rude:
    def __repr__(self) -> str:
        raise AssertionError("the recorder asked for a text")

    __str__ = __repr__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AssertionError(f"the recorder asked for {name}")


@dataclasses.dataclass
class _Pair:
    left: torch.Tensor
    right: Any


_Named = namedtuple("_Named", ["mean", "scale"])


class _Takes(nn.Module):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        total = args[0] + kwargs["pair"].left
        for value in args[1]:
            total = total + value
        return _Pair(total, {"more": [total * 2, None]})


def test_every_kind_of_argument(record: Any) -> None:
    one = torch.ones(2)
    consumed = []

    def generate() -> Any:
        for value in range(3):
            consumed.append(value)
            yield one * value

    model = _Takes()

    def work() -> None:
        named = _Named(one, one * 3)
        generator = generate()
        result = model(one, generator, named, _Rude(), pair=_Pair(one, _Rude()), flag=True, text="x", nothing=None, rate=0.5)
        assert result.left.tolist() == [5.0, 5.0]

    dump = record(work, nn.Sequential(model), level="module")
    assert consumed == [0, 1, 2]
    op = dump["Module.0._Takes.forward.0"]
    assert op["input.2.0"].kind == "tensor" and op["input.2.1"].mean == 3.0
    assert op["kwarg.pair.left"].kind == "tensor"
    assert (op["kwarg.flag"].value, op["kwarg.text"].value, op["kwarg.rate"].value) == ("true", "x", "0.5")
    assert "kwarg.nothing" in op.slots and "input.1" in op.slots and "input.3" in op.slots
    assert op["output.0.left"].mean == 5.0 and op["output.0.right.more.0"].mean == 10.0


def test_keyword_arguments_of_modules(record: Any) -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 3, 8, requires_grad=True)
    model = nn.Sequential(attention)

    def work() -> None:
        attention(query=x, key=x, value=x, need_weights=False)[0].sum().backward()

    dump = record(work, model, level="module")
    op = dump["Module.0.MultiheadAttention.forward.0"]
    assert same(op["kwarg.query"], x) and op["kwarg.need_weights"].value == "false"
    assert "parameter.in_proj_weight" in op.slots


def test_shared_modules_and_parameters(record: Any) -> None:
    model = Transformer()

    def work() -> None:
        model(torch.randint(0, 11, (2, 4))).sum().backward()

    dump = record(work, model, level="module")
    assert dump["Module.head.Linear.forward.0"]["parameter.weight"].data.equal(model.embed.weight)
    gradients = [op.name for op in dump.ops if "parameters_grad" in op.name and ("embed" in op.name or "head" in op.name)]
    assert gradients == ["Module.embed.Embedding.parameters_grad.0"]
    assert same(dump[gradients[0]]["grad.weight"], model.embed.weight.grad)
    layer = nn.Linear(3, 3)
    twice = nn.Sequential(layer, nn.ReLU(), layer)
    dump = record(lambda: twice(torch.ones(1, 3)).sum().backward(), twice, level="module")
    assert ["Module.0.Linear.forward.0", "Module.0.Linear.forward.1"] == [n for n in dump.names if "Linear.forward" in n]
    assert ["Module.0.Linear.backward.1", "Module.0.Linear.backward.0"] == [n for n in dump.names if "Linear.backward" in n]


def test_a_model_that_grows_while_it_runs(record: Any) -> None:
    model = nn.Sequential(nn.Linear(2, 2))

    def work() -> None:
        model(torch.ones(1, 2))
        model.append(nn.Tanh())
        model(torch.ones(1, 2))

    assert "Module.1.Tanh.forward.0" in record(work, model, level="module")
