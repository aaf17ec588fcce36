"""Gradients are those of the call's own inputs, outputs and parameters, as torch computes them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dumps import Dump
from runs import Block, ConvNet


def close(slot: Any, tensor: torch.Tensor | None) -> bool:
    assert tensor is not None
    return slot.data.shape == tensor.shape and torch.allclose(slot.data, tensor.detach(), rtol=1e-6, atol=1e-7)


def test_a_linear_function_in_three_dimensions(record: Any) -> None:
    x, weight, bias = torch.randn(2, 3, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True), torch.randn(5, requires_grad=True)
    scale = torch.randn(2, 3, 5)

    def loss() -> torch.Tensor:
        return (F.linear(x, weight, bias) * scale).sum()

    wanted = torch.autograd.grad(loss(), (x, weight, bias))
    op = record(lambda: loss().backward())["Functional.linear.0.backward"]
    assert list(op.slots) == ["input.0", "output.0", "output.1", "output.2"]
    assert op["input.0"].data.equal(scale)
    assert all(op[f"output.{index}"].data.equal(gradient) for index, gradient in enumerate(wanted))


def test_the_same_by_autograd_grad_and_by_keyword(record: Any) -> None:
    x, weight = torch.randn(2, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    wanted = torch.autograd.grad(F.linear(x, weight).sum(), (x, weight))
    dump = record(lambda: torch.autograd.grad(F.linear(input=x, weight=weight).sum(), (x, weight)))
    op = dump["Functional.linear.0.backward"]
    assert op["output.input"].data.equal(wanted[0]) and op["output.weight"].data.equal(wanted[1])


def test_each_reader_of_a_tensor_has_its_own_share(record: Any) -> None:
    x = torch.randn(3, 4, requires_grad=True)

    def work() -> None:
        y = x.sinh()
        (y + y.tanh() * 3 + torch.cat([y, y.exp()], 0)[:3]).sum().backward()

    dump = record(work)
    y = x.detach().sinh()
    assert close(dump["Tensor.tanh.0.backward"]["output.0"], 3 * (1 - y.tanh() ** 2))
    assert close(dump["Torch.cat.0.backward"]["output.0.0"], torch.ones(3, 4))
    assert close(dump["Tensor.sinh.0.backward"]["input.0"], 1 + 3 * (1 - y.tanh() ** 2) + 1)
    assert close(dump["Tensor.sinh.0.backward"]["output.0"], x.grad)


def _hooked(model: nn.Module, run: Any) -> dict[str, tuple[Any, Any]]:
    """Returns what torch's own hooks see of each module."""
    seen: dict[str, tuple[Any, Any]] = {}
    handles = [
        module.register_full_backward_hook(lambda module, inputs, outputs, name=name: seen.update({name: (inputs, outputs)}))
        for name, module in model.named_modules()
        if name
    ]
    run()
    for handle in handles:
        handle.remove()
    return seen


@pytest.mark.parametrize("kind", ["block", "conv"])
def test_gradients_of_modules_are_those_of_torchs_hooks(record: Any, kind: str) -> None:
    torch.manual_seed(5)
    model: nn.Module
    model, x = (Block(8).eval(), torch.randn(2, 3, 8)) if kind == "block" else (ConvNet().eval(), torch.randn(2, 3, 8, 8))
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = False
    x.requires_grad_()

    def run() -> None:
        model.zero_grad()
        x.grad = None
        (model(x) ** 2).sum().backward()

    seen = _hooked(model, run)
    dump = record(run, model, level="module")
    found = 0
    for name, (inputs, outputs) in seen.items():
        calls = [op for op in dump.ops if op.name.startswith(f"Module.{name}.") and ".backward." in op.name and op.name.split(".")[-3] in (
            type(model.get_submodule(name)).__name__,
        ) and op.name.count(".") == name.count(".") + 4]
        if isinstance(model.get_submodule(name), nn.Dropout):
            # In evaluation it returns what it is given: nothing flows through it.
            assert not calls
            continue
        assert calls, (name, dump.names)
        # A module that is called twice: torch's hook was told of the first call last.
        op = sorted(calls, key=lambda op: op.call)[0]
        assert close(op["input.0"], outputs[0]), name
        if inputs[0] is not None:
            assert close(op["output.0"], inputs[0]), name
            found += 1
    assert found >= 4
    for name, parameter in model.named_parameters():
        owner, _, key = name.rpartition(".")
        kinds = type(model.get_submodule(owner)).__name__
        assert close(dump[f"Module.{owner}.{kinds}.parameters_grad.0"][f"grad.{key}"], parameter.grad)


def test_activations_in_place(record: Any) -> None:
    def build(inplace: bool) -> nn.Module:
        torch.manual_seed(2)
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(inplace=inplace), nn.BatchNorm2d(2), nn.ReLU(inplace=inplace), nn.Flatten(), nn.Linear(32, 2))

    x = torch.randn(2, 1, 6, 6)
    dumps = [record(lambda model=model: (model(x) ** 2).sum().backward(), model, level="mix") for model in (build(True), build(False))]
    one, two = dumps
    assert one.names == two.names
    backward = [op.name for op in one.ops if op.phase == "backward"]
    assert {"Module.0.Conv2d.backward.0", "Module.1.ReLU.backward.0", "Module.2.BatchNorm2d.backward.0", "Functional.relu.0.backward"} <= set(backward)
    for name in backward:
        assert set(one[name].slots) == set(two[name].slots), name
        for path, slot in one[name].slots.items():
            assert slot.data.equal(two[name][path].data), (name, path)


def test_residual_connections_show_the_modules_own_share(record: Any) -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            return x + self.inner(x)

    model = Residual()
    dump = record(lambda: model(torch.randn(2, 4)).sum().backward(), model, level="module")
    own = torch.ones(2, 4) @ model.inner.weight
    assert close(dump["Module.inner.Linear.backward.0"]["output.0"], own)
    assert close(dump["Module.first.Linear.backward.0"]["input.0"], own + 1)


def test_a_second_pass_through_the_graph_and_gradients_of_gradients(record: Any) -> None:
    x = torch.randn(4, requires_grad=True)

    def work() -> None:
        y = x.exp().sum()
        y.backward(retain_graph=True)
        y.backward()
        (gradient,) = torch.autograd.grad(x.sinh().sum(), x, create_graph=True)
        gradient.square().sum().backward()

    dump = record(work)
    assert len(dump.names) == len(set(dump.names))
    assert close(dump["Tensor.exp.0.backward"]["output.0"], x.detach().exp())


def test_hooks_of_the_program_come_to_the_same_gradients(record: Any) -> None:
    x = torch.randn(4, requires_grad=True)

    def work() -> None:
        y = x.exp()
        y.register_hook(lambda gradient: gradient * 10)
        y.sin().sum().backward()

    dump = record(work)
    assert close(dump["Tensor.exp.0.backward"]["output.0"], x.grad)


def test_outputs_that_are_never_used(record: Any) -> None:
    lstm = nn.LSTM(4, 4)
    x = torch.randn(3, 2, 4, requires_grad=True)
    dump: Dump = record(lambda: lstm(x)[0].sum().backward(), nn.Sequential(lstm), level="mix")
    op = dump["Module.0.LSTM.backward.0"]
    assert op["input.0"].data.eq(1).all() and close(op["output.0"], x.grad)
    assert set(dump["Module.0.LSTM.parameters_grad.0"].slots) == {f"grad.{name}" for name, _ in lstm.named_parameters()}


@pytest.mark.parametrize(
    ("stem", "function"),
    [
        ("Tensor.chunk", lambda x: x.chunk(3)),
        ("Tensor.split", lambda x: x.split([1, 2, 3])),
        ("Tensor.unbind", lambda x: x.unbind()),
        ("Tensor.sort", lambda x: x.sort(stable=True)),
        ("Torch.var_mean", lambda x: torch.var_mean(x, dim=0)),
        ("Torch.native_layer_norm", lambda x: torch.native_layer_norm(x, [500], None, None, 1e-5)),
    ],
)
def test_the_gradient_of_a_function_with_several_results_is_counted_once(record: Any, stem: str, function: Any) -> None:
    leaf = torch.randn(6, 500, requires_grad=True)
    x = leaf * 1

    def work() -> None:
        results = [each for each in _flat(function(x)) if each.requires_grad]
        sum((number + 1) * (each * each).sum() for number, each in enumerate(results)).backward()

    (call,) = [call for call in record(work).all(stem) if call.phase == "backward"]
    (made,) = [slot for name, slot in call.slots.items() if name.startswith("output.") and slot.shape[-2:] == (6, 500)]
    assert leaf.grad is not None and torch.equal(made.data.view(6, 500), leaf.grad)


def _flat(results: Any) -> list[torch.Tensor]:
    return [results] if isinstance(results, torch.Tensor) else [each for result in results for each in _flat(result)]
