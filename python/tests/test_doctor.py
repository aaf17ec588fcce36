"""`probe doctor`: says what works on this machine, and what does not."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from probe import doctor
from probe.recorder.device import Device


def test_all_is_well_on_the_host() -> None:
    done = subprocess.run([sys.executable, "-m", "probe", "doctor", "cpu"], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines[-1] == f"{len(doctor.CHECKS)} checks, all passed"
    assert sum(line.startswith("ok ") for line in lines) == len(doctor.CHECKS)


def test_the_report_as_one_document(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(torch: Any, device: Any) -> str:
        raise doctor.Unwell("no such thing")

    monkeypatch.setattr(doctor, "CHECKS", [("types", lambda torch, device: "as they should be"), ("streams", broken)])
    assert doctor.main(["--format", "json", "cpu"]) == doctor.UNWELL
    report = json.loads(capsys.readouterr().out)
    assert report["facts"]["torch"] and report["bad"] == 1
    assert report["checks"] == [
        {"name": "types", "well": True, "said": "as they should be"},
        {"name": "streams", "well": False, "said": "no such thing"},
    ]
    assert doctor.main(["cpu", "--format=xml"]) == 2
    assert capsys.readouterr().err == "error: --format xml: text or json\n"


def test_what_cannot_be_measured_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(self: Any, tensor: Any) -> None:
        raise RuntimeError("aclnnGeTensor not found\nand more")

    monkeypatch.setattr(Device, "measure", refuse)
    assert doctor.main(["cpu"]) == doctor.UNWELL
    told = capsys.readouterr().out
    assert "BAD        numbers of tensors: float32: RuntimeError: aclnnGeTensor not found; float16" in told
    assert told.splitlines()[-1] == f"{len(doctor.CHECKS)} checks, 2 failed"


def test_a_wrong_number_is_no_measurement(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fetch = Device.fetch

    def off(self: Any, tokens: Any) -> Any:
        rows = fetch(self, tokens)
        return [(row[0], row[1], [*row[2][:3], row[2][3] * 1.01], *row[3:]) for row in rows]

    monkeypatch.setattr(Device, "fetch", off)
    assert doctor.main(["cpu"]) == doctor.UNWELL
    assert "BAD        numbers of tensors: float32 has norm" in capsys.readouterr().out


def test_a_device_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["npu:7"]) == doctor.NO_TORCH
    assert capsys.readouterr().err.startswith("error: npu:7 cannot be used: ")
