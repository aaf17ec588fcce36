"""Recurrent modules, cells and modules with parametrizations are rebuilt from a dump of modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, rnn
from torch.nn.utils.parametrize import cached

import probe
from probe.replay import answer, fault, one
from probe.replay.recorded import Part, Recording


def recorded(folder: Path, model: nn.Module, *given: Any) -> Part:
    """Records a pass of a model that returns tensors, at level module."""
    torch.manual_seed(2)
    with probe.capture(folder, model=model, task="tensor", level="module", step_on="program"):
        made = model(*given)
        sum(each.square().sum() for each in (made if isinstance(made, tuple) else (made,))).backward()
    (part,) = Recording(str(folder)).parts()
    return part


class Around(nn.Module):
    """Calls a module with a state, and returns its tensors flat."""

    def __init__(self, inner: nn.Module, state: Any = None) -> None:
        super().__init__()
        self.inner, self.state = inner, state

    def forward(self, given: torch.Tensor) -> Any:
        made = self.inner(given, self.state) if self.state is not None else self.inner(given)
        first, *rest = made if isinstance(made, tuple) else (made,)
        return (first, *(rest[0] if rest and isinstance(rest[0], tuple) else rest))


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_()


CASES: dict[str, tuple[Any, tuple[int, ...], Any]] = {
    "LSTM": (lambda: nn.LSTM(4, 6, batch_first=True, bidirectional=True), (3, 5, 4), None),
    # As many steps as samples: the shapes do not tell which dimension is which.
    "LSTM, square": (lambda: nn.LSTM(4, 6, batch_first=True), (5, 5, 4), (drawn(1, 5, 6), drawn(1, 5, 6))),
    "LSTM, stacked, projected": (lambda: nn.LSTM(4, 6, num_layers=2, proj_size=3, bias=False), (5, 3, 4), None),
    "GRU": (lambda: nn.GRU(4, 6, num_layers=3), (5, 3, 4), drawn(3, 3, 6)),
    "RNN": (lambda: nn.RNN(4, 6, nonlinearity="relu"), (5, 3, 4), None),
    "GRUCell": (lambda: nn.GRUCell(4, 6), (3, 4), drawn(3, 6)),
    "RNNCell": (lambda: nn.RNNCell(4, 6), (3, 4), None),
    "ParametrizedConv1d": (lambda: parametrizations.weight_norm(nn.Conv1d(4, 6, 3, padding=2, dilation=2)), (3, 4, 9), None),
    "ParametrizedLinear": (lambda: parametrizations.spectral_norm(nn.Linear(4, 6)), (3, 4), None),
}


@pytest.mark.parametrize("name", CASES)
def test_a_sound_module_is_right_and_a_faulty_one_is_not(name: str, tmp_path: Path) -> None:
    make, shape, state = CASES[name]
    torch.manual_seed(1)
    part = recorded(tmp_path / "dump", Around(make(), state), drawn(*shape))
    measured = fault.measure(part)
    forward, backward = (f"Module.inner.{name.partition(',')[0]}.{phase}.0" for phase in ("forward", "backward"))
    assert {forward, backward, forward.replace("forward", "parameters_grad")} <= set(measured.errors), measured.skipped
    assert all(error.l2 < 3e-7 for found in measured.errors.values() for error in found), measured.errors
    assert not fault.judge(measured, measured)
    rebuilt = part.call
    for op in (forward, backward):

        def spoiled(asked: str, drawn: bool = False, op: str = op) -> Any:
            call = rebuilt(asked, drawn)
            if asked == op:
                call.results["0"][..., -1] *= 1.001
            return call

        part.call = spoiled  # type: ignore[method-assign]
        assert {found.op for found in fault.judge(fault.measure(part))} == {op}


class Packed(nn.Module):
    """Runs a recurrent module on sequences of several lengths."""

    def __init__(self, inner: nn.Module, state: Any = None) -> None:
        super().__init__()
        self.inner, self.state = inner, state

    def forward(self, given: torch.Tensor) -> Any:
        packed = rnn.pack_padded_sequence(given, torch.tensor([3, 5, 2]), batch_first=True, enforce_sorted=False)
        made, last = self.inner(packed, self.state)
        return rnn.pad_packed_sequence(made, batch_first=True)[0], *(last if isinstance(last, tuple) else (last,))


@pytest.mark.parametrize(
    "model",
    [
        Packed(nn.LSTM(4, 6, batch_first=True, bidirectional=True), (drawn(2, 3, 6), drawn(2, 3, 6))),
        Packed(nn.GRU(4, 6, num_layers=2)),
    ],
    ids=["LSTM", "GRU"],
)
def test_packed_sequences_are_unpacked(model: nn.Module, tmp_path: Path) -> None:
    part = recorded(tmp_path / "dump", model, drawn(3, 5, 4))
    measured = fault.measure(part)
    names = [name for name in part.names if name.startswith("Module.inner.")]
    assert len(names) == 3 and set(names) <= set(measured.errors), measured.skipped
    assert "1.0" in {error.path for error in measured.errors[names[0]]} or "GRU" in names[0]
    assert all(error.l2 < 3e-7 for name in names for error in measured.errors[name]), measured.errors


@pytest.mark.parametrize(("dilation", "stride"), [(3, 1), (9, 1), (1, 5)])
def test_a_convolution_with_gaps_is_rebuilt(dilation: int, stride: int, tmp_path: Path) -> None:
    torch.manual_seed(1)
    part = recorded(tmp_path / "dump", nn.Sequential(nn.Conv1d(4, 6, 3, stride, dilation, dilation)), drawn(2, 4, 40))
    measured = fault.measure(part)
    assert "Module.0.Conv1d.forward.0" in measured.errors and not fault.judge(measured), measured.errors


@pytest.mark.parametrize("dimension", [0, 1, None])
def test_weight_norm_is_rebuilt_over_each_dimension(dimension: int | None, tmp_path: Path) -> None:
    part = recorded(tmp_path / "dump", parametrizations.weight_norm(nn.Linear(5, 4), dim=dimension), drawn(3, 5))
    measured = fault.measure(part)
    names = [f"Module.parametrizations.weight.0._WeightNorm.{phase}.0" for phase in ("forward", "backward")]
    assert set(names) <= set(measured.errors), measured.skipped
    assert all(error.l2 < 3e-7 for name in names for error in measured.errors[name])
    # What hands their result on is no gap.
    assert not any("ParametrizationList.forward" in name and fault.is_gap(reason) for name, reason in measured.skipped.items())


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = parametrizations.weight_norm(nn.Linear(4, 4))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        with cached():
            return self.inner(self.inner(given))


def test_one_call_of_a_parametrization_serves_all_where_it_is_kept(tmp_path: Path) -> None:
    part = recorded(tmp_path / "dump", Twice(), drawn(3, 4))
    assert len([name for name in part.names if name.endswith(".ParametrizationList.forward.1")]) == 0
    measured = fault.measure(part)
    assert {f"Module.inner.ParametrizedLinear.forward.{number}" for number in range(2)} <= set(measured.errors), measured.skipped
    assert not fault.judge(measured)


def test_dropout_between_layers_accuses_nobody(tmp_path: Path) -> None:
    part = recorded(tmp_path / "dump", Around(nn.LSTM(4, 16, num_layers=2, dropout=0.1)), drawn(6, 3, 4))
    measured = fault.measure(part)
    assert "dropout between them" in measured.skipped["Module.inner.LSTM.forward.0"] and not fault.judge(measured)


def test_gradients_of_a_cell_that_kernels_count_in_two_ways_accuse_nobody(tmp_path: Path) -> None:
    part = recorded(tmp_path / "dump", Around(nn.LSTMCell(4, 6)), drawn(3, 4))
    measured = fault.measure(part)
    assert "Module.inner.LSTMCell.forward.0" in measured.errors and not fault.judge(measured)
    assert measured.skipped["Module.inner.LSTMCell.backward.0"] == "its gradients cannot be told apart"


def test_the_guilty_side_of_a_recurrent_module_is_named(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model, given = Around(nn.LSTM(4, 6, batch_first=True)), drawn(3, 5, 4)
    part, other = (recorded(tmp_path / name, model, given) for name in ("candidate", "baseline"))
    rebuilt, op = part.call, "Module.inner.LSTM.forward.0"

    def spoiled(asked: str, drawn: bool = False) -> Any:
        call = rebuilt(asked, drawn)
        if asked == op:
            call.results["0"][1] = torch.nan
        return call

    part.call = spoiled  # type: ignore[method-assign]
    found = one.replay(part, op, other, "cpu", 1)
    assert found.guilty == "candidate" and "finite on one side only" in answer.sentence(found)
