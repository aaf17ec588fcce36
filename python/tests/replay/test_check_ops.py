"""`probe check-ops`: results of one dump on one device, which a run that ended early goes on with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import probe
from probe.replay import check_ops, command, functions
from probe.replay.recorded import NotReplayed

TESTDATA = Path(__file__).resolve().parents[3] / "testdata"
DUMP = str(TESTDATA / "npu_dump")


def check(output: Path, *more: str, dump: str = DUMP) -> int:
    return command.main("check-ops", [dump, "-o", str(output), *more])


def test_a_line_that_broke_off_is_written_again(tmp_path: Path) -> None:
    assert check(tmp_path) == 0
    results, report = tmp_path / check_ops.RESULTS, (tmp_path / "report.json").read_text()
    whole = results.read_bytes()
    results.write_bytes(whole[:-40])
    for _ in range(2):
        assert check(tmp_path) == 0
        assert sorted(results.read_bytes().splitlines()) == sorted(whole.splitlines())
    calls = [sorted(each["call"] for each in json.loads(text)["results"]) for text in (report, (tmp_path / "report.json").read_text())]
    assert calls[0] == calls[1]


def test_results_of_something_else_are_no_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, "--op", "*gelu*") == 0
    results = tmp_path / check_ops.RESULTS
    before = results.read_bytes()
    capsys.readouterr()
    # Every result was there under the same name, and came from another dump.
    assert check(tmp_path, "--op", "*gelu*", dump=str(TESTDATA / "gpu_dump")) == 2
    said = f"error: {results}: holds results of another dump, device or torch than this run's; choose another folder with -o\n"
    assert capsys.readouterr().err == said and results.read_bytes() == before
    results.write_bytes(before.replace(b'"device": "cpu"', b'"device": "npu:0"', 1))
    assert check(tmp_path, "--op", "*gelu*") == 2 and capsys.readouterr().err == said


def test_a_report_has_the_ops_that_were_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for pattern in ("*gelu*", "*matmul*"):
        assert check(tmp_path, "--op", pattern) == 0
        assert {pattern.strip("*")} == {op["op"].split(".")[1] for op in json.loads((tmp_path / "report.json").read_text())["results"]}


def test_nothing_is_written_where_nothing_can_be_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "checked"
    assert check(output, "--op", "nothing*") == 2
    assert capsys.readouterr().err == f"error: {DUMP}: no op matches --op and --not\n"
    assert check(output, "--op", "*.Linear.*") == 2
    assert "modules are left out" in capsys.readouterr().err
    assert not output.exists()


def test_a_file_of_something_else_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / check_ops.RESULTS
    results.write_text("mine")
    assert check(tmp_path, "--op", "*gelu*") == 2
    assert "choose another folder with -o" in capsys.readouterr().err and results.read_text() == "mine"


def test_gradients_of_the_older_tool_are_those_of_all_arguments(tmp_path: Path) -> None:
    # What it recorded of a product without bias is the gradient of a view; and a key's bias has none, as softmax does not see it.
    assert check(tmp_path, "--op", "*linear*") == 0
    report = json.loads((tmp_path / "report.json").read_text())
    outputs: dict[str, set[str]] = {}
    for each in report["results"]:
        outputs.setdefault(each["call"], set()).add(each["output"])
    assert report["not_run"] == []
    assert outputs["Functional.linear.backward(float32[2, 8, 16], float32[31, 16], None)"] == {"0", "1"}
    assert outputs["Functional.linear.backward(float32[2, 8, 16], float32[48, 16], float32[48])"] == {"0", "1", "2"}
    assert [each["output"] for each in report["results"] if "cancel" in each["text"]] == ["2"]


def test_the_gradient_of_a_sum_is_not_taken_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(shape, generator=random).requires_grad_() for shape in ((5, 5, 5), (5,)))
    with probe.capture(tmp_path / "dump", task="tensor", level="api", step_on="program"):
        # The sum of each of these does not depend on what it reads.
        F.softmin(x, 0).sum().backward()
        F.instance_norm(x, weight=weight).sum().backward()
        torch.softmax(x, 0).sum().backward()
    assert check(tmp_path / "out", dump=str(tmp_path / "dump")) == 0, capsys.readouterr().out
    results = json.loads((tmp_path / "out" / "report.json").read_text())["results"]
    assert {each["op"] for each in results} >= {f"{op}.backward" for op in ("Functional.softmin", "Functional.instance_norm", "Torch.softmax")}


def test_numbers_that_no_standard_can_tell_of_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = torch.Generator().manual_seed(0)
    scalar, pool = torch.tensor(-2.0), torch.randn(2, 3, 5, 5, 5, generator=random)
    small, sizes, angle = torch.full((125,), 0.05), torch.tensor([1.0, 2.0, 3.0]), torch.tensor(0.7)
    with probe.capture(tmp_path / "dump", task="tensor", level="api", step_on="program"):
        torch.igamma(scalar, scalar)
        torch.prod(small)
        torch.polar(sizes, angle)
        F.fractional_max_pool3d(pool, 2, output_size=[2, 3, 2])
    assert check(tmp_path / "out", dump=str(tmp_path / "dump")) == 0, capsys.readouterr().out
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert {each["op"] for each in report["results"]} == {"Torch.igamma", "Torch.prod", "Torch.polar"}
    assert [each["reason"] for each in report["not_run"]] == ["it draws random numbers"]


def test_a_result_without_elements_is_no_end_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty, ones = torch.empty(0, 3), torch.ones(3)
    with probe.capture(tmp_path / "dump", task="tensor", level="api", step_on="program"):
        torch.cat((empty, empty))
        torch.sin(ones)
    assert check(tmp_path / "out", dump=str(tmp_path / "dump")) == 0, capsys.readouterr().out
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert {each["op"] for each in report["results"]} == {"Torch.cat", "Torch.sin"}


def test_functions_that_torch_does_not_list_are_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.linspace(-4, 4, 24).reshape(4, 6).requires_grad_()
    with probe.capture(tmp_path / "dump", task="tensor", level="api", step_on="program"):
        F.hardsigmoid(x).square().sum().backward()
        torch.fill(x.detach(), 2.0)
    assert check(tmp_path / "out", dump=str(tmp_path / "dump")) == 0, capsys.readouterr().out
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert {each["op"] for each in report["results"]} >= {"Functional.hardsigmoid", "Functional.hardsigmoid.backward", "Torch.fill"}
    assert report["not_run"] == []


@pytest.mark.parametrize("name", ["Torch.save", "Torch.load", "Torch.from_file", "Torch.hub.load", "Torch.compile", "Torch.manual_seed", "Aten.from_file"])
def test_what_does_more_than_compute_is_not_called(name: str) -> None:
    with pytest.raises(NotReplayed):
        functions.resolve(name)
