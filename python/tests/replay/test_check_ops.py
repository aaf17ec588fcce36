"""`probe check-ops`: results of one dump on one device, which a run that ended early goes on with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probe.replay import check_ops, command

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
