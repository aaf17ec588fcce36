"""Runs the parts of the suite side by side, then those that take time, and writes one report.

usage: suite.py [--device cuda:0] [--output DIR] [--reduced] [--only PART,...] [--limit SECONDS]

`cuda-report.json` has versions, the device, and each check with its figures; `cuda-report.md` is a table of it. Both are written anew
whenever a part ends. Exit code 1: a check is BAD; 3: a part did not end in time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

SCHEMA_VERSION = 1

#: Parts in the order in which they begin, with the number of processes that share their checks: those side by side, then those alone.
TOGETHER = {"doctor": 1, "devices": 1, "measured": 1, "answers": 6, "identical": 5}
ALONE = {"kernel": 1, "cost": 1}
#: In the reduced form, on a machine with few processors.
REDUCED = {"doctor": 1, "kernel": 1, "measured": 1, "answers": 1, "identical": 1, "cost": 1}

PACKAGES = ("probe-precision", "torch", "triton", "transformers", "torchvision", "numpy", "mindstudio-probe")


def command(part: str, place: int, number: int, given: argparse.Namespace, folder: Path) -> list[str]:
    if part == "doctor":
        return [sys.executable, "-m", "probe", "doctor", "--format", "json", given.device.partition(":")[0] if given.device != "cpu" else "cpu"]
    if part == "devices":
        tests = [str(ROOT / "python" / "tests" / name) for name in ("test_device.py", "test_device_launches.py", "test_device_groups.py", "test_cuda_kernel.py")]
        return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={ROOT}", "-c", str(ROOT / "pyproject.toml"), *tests]
    more = ["--reduced"] if given.reduced else []
    return [
        sys.executable, str(HERE / f"{part}.py"), "--device", given.device, "--folder", str(folder), "--output", str(given.output),
        "--share", f"{place}/{number}", *more,
    ]  # fmt: skip


class Part:
    """A process that makes a share of the checks of a part."""

    def __init__(self, part: str, place: int, number: int, given: argparse.Namespace, folder: Path) -> None:
        self.part, self.name, self.output = part, f"{part}-{place}", given.output
        self.start, self.late = time.monotonic(), False
        self.log = (given.output / f"{self.name}.log").open("wb")
        environment = {**os.environ, "PROBE_TEST_DEVICE": given.device, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        # For deterministic kernels of cuBLAS.
        environment.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        if given.device == "cpu":
            environment["TRITON_INTERPRET"] = "1"
        out = subprocess.PIPE if part == "doctor" else self.log
        self.process = subprocess.Popen(
            command(part, place, number, given, folder), stdout=out, stderr=self.log, env=environment, cwd=folder, start_new_session=True
        )

    def wait(self, until: float) -> None:
        """Waits for its end, or ends it."""
        told = b""
        try:
            told, _ = self.process.communicate(timeout=max(1.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.late = True
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()
        self.seconds = round(time.monotonic() - self.start, 1)
        if self.part == "doctor" and told:
            self._doctor(told)

    def _doctor(self, told: bytes) -> None:
        """Writes what `probe doctor` said as checks."""
        with (self.output / "doctor-0.jsonl").open("w") as file:
            for check in json.loads(told)["checks"]:
                state = "ok" if check["well"] else "BAD"
                file.write(json.dumps({"part": "doctor", "check": check["name"], "state": state, "said": check["said"], "figures": {}, "seconds": 0}) + "\n")

    def row(self) -> dict[str, Any]:
        return {"part": self.name, "seconds": self.seconds, "code": self.process.returncode, "in time": not self.late}

    def trouble(self) -> dict[str, Any] | None:
        """Returns a remark on a process that did not end well, or on the tests that it ran."""
        lines = (self.output / f"{self.name}.log").read_text(errors="replace").strip().splitlines()
        if self.part == "devices":
            state = "ok" if self.process.returncode == 0 else "BAD"
            failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
            said = "; ".join([*lines[-1:], *failed])[:2000]
            return {"part": "devices", "check": "tests of numbers on a device", "state": state, "said": said, "figures": {}, "seconds": self.seconds}
        if self.late or self.process.returncode not in ((0, 1) if self.part == "doctor" else (0,)):
            why = "did not end in time" if self.late else f"ended with {self.process.returncode}: {' '.join(lines[-3:])[-600:]}"
            return {"part": self.part, "check": f"{self.name} as a whole", "state": "BAD", "said": why, "figures": {}, "seconds": self.seconds}
        return None


def facts(device: str) -> dict[str, Any]:
    """Versions, and what the device is."""
    import torch

    found: dict[str, Any] = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}", "processors": os.cpu_count()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    found["device"] = device
    if device.startswith("cuda"):
        about = torch.cuda.get_device_properties(device)
        found |= {"card": about.name, "GiB": about.total_memory >> 30, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    return found


def write(output: Path, about: dict[str, Any], parts: list[Part], seconds: float) -> list[dict[str, Any]]:
    """The report of what is known so far."""
    checks = [json.loads(line) for file in sorted(output.glob("*.jsonl")) for line in file.read_text().splitlines()]
    checks += [trouble for part in parts if (trouble := part.trouble()) is not None]
    report = {"schema_version": SCHEMA_VERSION, "facts": about, "seconds": round(seconds, 1), "parts": [part.row() for part in parts], "checks": checks}
    count = {state: sum(check["state"] == state for check in checks) for state in ("ok", "BAD", "not here")}
    lines = [
        "# Capture on a device", "",
        ", ".join(f"{key} {value}" for key, value in about.items() if value is not None) + ".", "",
        f"{len(checks)} checks: {count['ok']} ok, {count['BAD']} BAD, {count['not here']} not on this device.", "",
        "| part | check | state | figures |", "|---|---|---|---|",
    ]  # fmt: skip
    lines += ["| {} | {} | {} | {} |".format(check["part"], check["check"], check["state"], check["said"].replace("|", "\\|").replace("\n", " ")) for check in checks]
    for name, text in (("cuda-report.json", json.dumps(report, indent=1)), ("cuda-report.md", "\n".join(lines) + "\n")):
        (output / f"{name}.part").write_text(text)
        (output / f"{name}.part").rename(output / name)
    return checks


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cuda:0")
    arguments.add_argument("--output", type=Path, default=Path("cuda-report"))
    arguments.add_argument("--reduced", action="store_true")
    arguments.add_argument("--only", default="")
    arguments.add_argument("--limit", type=float, default=470.0)
    given = arguments.parse_args()
    given.output = given.output.resolve()
    given.output.mkdir(parents=True, exist_ok=True)
    for old in [*given.output.glob("*.jsonl"), *given.output.glob("*.log")]:
        old.unlink()
    begin = time.monotonic()
    about = facts(given.device)
    wanted = given.only.split(",") if given.only else None
    stages = [REDUCED, {}] if given.reduced else [TOGETHER, ALONE]
    folder = Path(tempfile.mkdtemp(prefix="probe-cuda-"))
    ended: list[Part] = []
    try:
        for stage, parts in enumerate(stages):
            chosen = {part: number for part, number in parts.items() if wanted is None or part in wanted}
            until = begin + given.limit * (0.6 if stage == 0 and not given.reduced and wanted is None else 1.0)
            # Those of the first stage at once, unless there are few processors; the others one by one.
            at_once = stage == 0 and not given.reduced
            begun = []
            for part, number in chosen.items():
                for place in range(number):
                    begun.append(Part(part, place, number, given, folder))
                    if not at_once:
                        ended.append(begun.pop())
                        ended[-1].wait(until)
                        write(given.output, about, ended, time.monotonic() - begin)
            for part in begun:
                part.wait(until)
                ended.append(part)
                write(given.output, about, ended, time.monotonic() - begin)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    checks = write(given.output, about, ended, time.monotonic() - begin)
    bad = [check for check in checks if check["state"] == "BAD"]
    for check in bad:
        print(f"BAD      {check['part']}: {check['check']}: {check['said']}")
    passed = sum(check["state"] == "ok" for check in checks)
    print(f"{passed} passed, {len(bad)} failed, {len(checks) - passed - len(bad)} skipped")
    return 3 if any(part.late for part in ended) else 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
