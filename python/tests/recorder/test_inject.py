"""`inject`: calls read what another run recorded, so that each shows its own error alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from torch.nn import functional as F

import probe
from dumps import Dump
from probe import launch
from probe.recorder.inject import Misfit
from probe.settings import SettingsError
from runs import Transformer, assert_same, train


def run(folder: Path, name: str, work: Any, **settings: Any) -> Dump:
    with probe.capture(folder / name, **{"task": "tensor", "step_on": "program", "level": "mix", **settings}):
        work()
    return Dump(folder / name)


def given() -> torch.Tensor:
    return torch.linspace(-2, 2, 24).reshape(3, 8)


def work(scale: float) -> Any:
    """Two calls in a row, of which the first is off."""

    def both() -> None:
        weight = torch.full((8, 8), 0.25, requires_grad=True)
        hidden = torch.matmul(given() * scale, weight)
        F.gelu(hidden).sum().backward()

    return both


@pytest.mark.parametrize(("kind", "level"), [("conv", "mix"), ("transformer", "mix"), ("conv", "op"), ("transformer", "op")])
def test_a_run_with_its_own_values_is_bit_identical(tmp_path: Path, kind: str, level: str) -> None:
    plain = train(kind, lambda model: probe.Capture(tmp_path / "dump", model, task="tensor", level=level))
    every = ("inputs", "gradients", "results")
    seen = train(kind, lambda model: probe.Capture(tmp_path / "again", model, inject=tmp_path / "dump", replace=every, level=level))
    assert_same(plain, seen)
    assert sorted(Dump(tmp_path / "again", 1).names) == sorted(Dump(tmp_path / "dump", 1).names)
    # What is replaced wants a gradient as before.
    tables = [pq.read_table(tmp_path / name / "step1/rank0/ops.parquet", columns=["op", "slot", "requires_grad"]) for name in ("dump", "again")]
    before, after = ({tuple(row.values()) for row in table.to_pylist()} for table in tables)
    assert before == after and any(requires_grad for *_, requires_grad in before)


class Attends(torch.nn.Module):
    """Attention of a module, which calls other functions where query and key are not one tensor."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x)[0]


def test_a_tensor_that_is_given_twice_stays_one(tmp_path: Path) -> None:
    names = []
    for folder, settings in (("base", {}), ("dump", {"inject": tmp_path / "base"})):
        model = Attends()
        with probe.capture(tmp_path / folder, model=model, task="tensor", step_on="program", level="mix", **settings):
            model(given().reshape(1, 3, 8)).sum().backward()
        names.append(sorted(Dump(tmp_path / folder).names))
    assert names[0] == names[1] and any("transpose" in name for name in names[0])


def test_the_named_call_reads_what_was_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = run(tmp_path, "base", work(1.0))
    off = run(tmp_path, "off", work(2.0))
    assert not torch.equal(base["Functional.gelu.0.forward"]["output.0"].data, off["Functional.gelu.0.forward"]["output.0"].data)
    dump = run(tmp_path, "dump", work(2.0), inject=tmp_path / "base", inject_at="torch.nn.functional.gelu")
    for slot in ("input.0", "output.0"):
        assert torch.equal(dump["Functional.gelu.0.forward"][slot].data, base["Functional.gelu.0.forward"][slot].data)
    assert torch.equal(dump["Torch.matmul.0.forward"]["input.0"].data, off["Torch.matmul.0.forward"]["input.0"].data)
    # The gradient flows on into the program's own graph.
    assert torch.equal(dump["Torch.matmul.0.backward"]["input.0"].data, base["Torch.matmul.0.backward"]["input.0"].data)
    assert "this was not an ordinary run: --inject replaced 1 value by" in capsys.readouterr().err
    assert dump.manifest["notes"] == ["dump was recorded with --inject: inputs of torch.nn.functional.gelu came from base, so that each shows its own error alone"]


def test_gradients_and_results_are_replaced_on_request(tmp_path: Path) -> None:
    base = run(tmp_path, "base", work(1.0))
    dump = run(tmp_path, "gradients", work(2.0), inject=tmp_path / "base", inject_at="torch.matmul", replace="gradients")
    assert torch.equal(dump["Torch.matmul.0.backward"]["input.0"].data, base["Torch.matmul.0.backward"]["input.0"].data)
    dump = run(tmp_path, "results", work(2.0), inject=tmp_path / "base", inject_at="torch.matmul", replace="results")
    assert torch.equal(dump["Functional.gelu.0.forward"]["output.0"].data, base["Functional.gelu.0.forward"]["output.0"].data)


def test_ops_of_the_dispatcher_read_what_was_recorded(tmp_path: Path) -> None:
    base, off = (run(tmp_path, name, work(scale), level="op") for name, scale in (("base", 1.0), ("off", 2.0)))
    names = ["torch.ops.aten.gelu", "torch.ops.aten.gelu_backward"]
    dump = run(tmp_path, "dump", work(2.0), level="op", inject=tmp_path / "base", inject_at=names, replace=["inputs", "gradients"])
    for op, slots in (("Aten.gelu.0.forward", ("input.0", "output.0")), ("Aten.gelu_backward.0.backward", ("input.0", "input.1", "output.0"))):
        for slot in slots:
            assert torch.equal(dump[op][slot].data, base[op][slot].data), (op, slot)
    assert torch.equal(dump["Aten.mm.0.forward"]["output.0"].data, off["Aten.mm.0.forward"]["output.0"].data)
    dump = run(tmp_path, "results", work(2.0), level="op", inject=tmp_path / "base", inject_at="torch.ops.aten.mm", replace="results")
    assert torch.equal(dump["Aten.gelu.0.forward"]["input.0"].data, base["Aten.gelu.0.forward"]["input.0"].data)


@pytest.mark.parametrize("level", ["module", "mix"])
def test_modules_read_what_was_recorded(tmp_path: Path, level: str) -> None:
    torch.manual_seed(0)
    model = Transformer().eval()
    base = run(tmp_path, "base", lambda: model(torch.arange(6).reshape(1, 6)), level=level)
    with torch.no_grad():
        model.embed.weight.mul_(2)
    # The head shares the weight: at level mix it is an input of a function, and comes from the dump as well.
    dump = run(tmp_path, "dump", lambda: model(torch.arange(6).reshape(1, 6)), level=level, inject=tmp_path / "base", inject_at=["blocks.1"])
    name = "Module.blocks.1.Block.forward.0"
    for slot in ("input.0", "output.0"):
        assert torch.equal(dump[name][slot].data, base[name][slot].data)
    before = "Module.blocks.0.Block.forward.0"
    assert not torch.equal(dump[before]["input.0"].data, base[before]["input.0"].data)
    assert [op.name for op in dump.ops] == [op.name for op in base.ops]


@pytest.mark.parametrize(("level", "name"), [("mix", "torch.Tensor.add_"), ("op", "torch.ops.aten.add_")])
def test_what_is_written_in_place_keeps_its_memory(tmp_path: Path, level: str, name: str) -> None:
    def inplace(start: float) -> Any:
        def act() -> None:
            counts = torch.full((4,), start)
            same = counts
            counts.add_(1)
            torch.neg(same)

        return act

    run(tmp_path, "base", inplace(1.0), level=level)
    dump = run(tmp_path, "dump", inplace(5.0), inject=tmp_path / "base", inject_at=name, level=level)
    neg = "Torch.neg.0.forward" if level == "mix" else "Aten.neg.0.forward"
    assert dump[neg]["output.0"].data.tolist() == [-2.0] * 4


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (lambda: torch.neg(torch.ones(3)), r"Torch\.neg\.0\.forward: input\.0 is float32 \[4\] in .*, and float32 \[3\]"),
        (lambda: torch.neg(torch.ones(4, dtype=torch.float64)), r"and float64 \[4\]"),
    ],
)
def test_what_does_not_fit_is_an_error_before_the_call(tmp_path: Path, other: Any, said: str) -> None:
    run(tmp_path, "base", lambda: torch.neg(torch.ones(4)))
    with pytest.raises(Misfit, match=said):
        run(tmp_path, "dump", other, inject=tmp_path / "base")


def test_data_that_was_not_recorded_is_an_error(tmp_path: Path) -> None:
    run(tmp_path, "base", lambda: torch.neg(torch.ones(4)), task="statistics")
    with pytest.raises(Misfit, match=r"the elements of input\.0 were not recorded; record this op with task tensor"):
        run(tmp_path, "dump", lambda: torch.neg(torch.ones(4)), inject=tmp_path / "base")


def test_a_pattern_that_no_call_matches_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, "base", work(1.0))
    run(tmp_path, "dump", work(2.0), inject=tmp_path / "base", inject_at="layer9")
    assert f"--inject replaced nothing by values of {tmp_path / 'base'}: no call matches --at layer9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"inject_at": "x"}, "inject_at: belongs to inject"),
        ({"inject": "nowhere"}, "nowhere: "),
        ({"inject": "x", "level": "save"}, "inject: at level 'save' nothing can be replaced"),
        ({"inject": "x", "replace": "weights"}, "replace: 'weights' is unknown"),
    ],
)
def test_misuse_is_told_before_the_run(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        probe.Capture(tmp_path / "dump", **settings)


def test_steps_that_the_dump_lacks_are_not_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def recorded(name: str, **settings: Any) -> list[str]:
        with probe.capture(tmp_path / name, task="tensor", step_on="program", level="mix", **settings):
            for _ in range(3):
                torch.neg(torch.ones(4))
                probe.step()
        return [path.name for path in sorted((tmp_path / name).glob("step*"))]

    assert recorded("base", steps="1") == ["step1"]
    assert recorded("all", inject=tmp_path / "base") == ["step1"]
    assert "no others" not in capsys.readouterr().err
    assert recorded("some", inject=tmp_path / "base", steps="0-1") == ["step1"]
    said = capsys.readouterr().err
    assert "replaced 1 value by" in said and "; of steps 0-1, it has 1 alone, and no others were recorded" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"steps": "5"}, "inject: {base} has none of steps 5, so nothing can be replaced; it has step 0 rank 0"),
        ({"ranks": "3"}, "inject: {base} has no step of rank 3, so nothing can be replaced; it has step 0 rank 0"),
        ({"inject_at": ["layer9"]}, "inject_at: no call of {base} matches 'layer9', so nothing can be replaced; known: "),
        ({"inject_at": ["torch.nn.functional.gelo"]}, "did you mean "),
        ({"level": "op"}, "inject: {base} was recorded at level mix, where calls have other names than at level op; record both at one level"),
        ({"inject": "nowhere"}, "nowhere: No such file"),
        ({"inject_at": ["torch.nn.functional.gelu", "layer9"]}, ""),
        ({"inject_at": ["Functional.gelu.7.forward"]}, ""),
    ],
)
def test_what_can_replace_nothing_is_told_before_the_program_starts(
    arguments: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "base"
    run(tmp_path, "base", work(1.0))
    order = {"arguments": {"inject": str(base), **arguments}, "directory": str(tmp_path)}
    monkeypatch.setenv(launch.VARIABLE, json.dumps(order))
    if not said:
        assert launch.check().endswith("_bootstrap")
        return
    with pytest.raises(SettingsError) as error:
        launch.check()
    assert said.format(base=base) in str(error.value) and str(error.value).count("inject: ") <= 1 and "\n" not in str(error.value)
