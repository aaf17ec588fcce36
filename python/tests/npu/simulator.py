"""The simulated Ascend device: how programs are run on it, with what goes wrong there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fork_server

HERE = Path(__file__).resolve().parent
#: Modules that the models of the tests come from.
TRANSFORMERS = tuple(f"transformers.models.{name}.modeling_{name}" for name in ("bert", "llama", "qwen2_moe"))
#: Where `./test.sh` has it built.
FOLDER = Path(os.environ.get("ASCEND_SIM", HERE.parents[2] / "target" / "ascend-sim"))
#: The agent below Python, beside the command.
AGENT = Path(os.environ.get("PROBE_AGENT") or Path(os.environ.get("PROBE_BIN", HERE.parents[2] / "target" / "debug" / "probe")).parent / "libprobe_agent.so")
#: Written when all of it is there.
STAMP = FOLDER / "stamp"


@dataclass(frozen=True)
class Done:
    """The output of a program, and the counts of the device."""

    stdout: str
    stderr: str
    code: int
    counts: dict[str, dict[str, int]]

    @property
    def result(self) -> Any:
        """The last line, as JSON."""
        assert self.code == 0, self.stderr
        return json.loads(self.stdout.splitlines()[-1])

    @property
    def faults(self) -> int:
        return sum(self.counts.get("faults", {}).values())

    def said(self) -> list[str]:
        """Lines of probe on standard error."""
        return [line for line in self.stderr.splitlines() if line.startswith("probe: ")]


def environment(**switches: Any) -> dict[str, str]:
    """Variables of a process on the device; `switches` are those of the device without their prefix, such as `fault`."""
    set_ones = {f"ASCEND_SIM_{name.upper()}": str(value) for name, value in switches.items() if value is not None}
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("ASCEND_SIM")},
        "PYTHONPATH": str(FOLDER / "site"),
        "LD_LIBRARY_PATH": str(FOLDER / "lib"),
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "PROBE_AGENT": str(AGENT),
        **set_ones,
    }


def python(devices: int | None = None) -> str:
    """An interpreter that has imported torch, torch_npu and transformers where there are so many devices."""
    variables = environment(devices=devices)
    early = ("PYTHONPATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "PYTHONWARNINGS", "TORCH_CPP_LOG_LEVEL", "ASCEND_SIM_DEVICES")
    given = tuple((name, variables[name]) for name in early if name in variables)
    return fork_server.python("torch_npu", "torchvision.models", *TRANSFORMERS, first=HERE / "counted.py", variables=given)


def run(folder: Path, *command: object, probe: Sequence[object] | None = None, variables: dict[str, str] | None = None, **switches: Any) -> Done:
    """Runs a Python program on the device, below `probe capture` with the options `probe` where these are given."""
    counts = folder / f"counts-{len(list(folder.glob('counts-*')))}.json"
    program = [python(switches.get("devices")), *map(str, command)]
    whole = program if probe is None else [sys.executable, "-m", "probe", "capture", *map(str, probe), "--", *program]
    surroundings = {**environment(counts=counts, **switches), **(variables or {})}
    done = subprocess.run(whole, cwd=folder, env=surroundings, capture_output=True, text=True, check=False, timeout=900)
    found = json.loads(counts.read_text()) if counts.exists() else {}
    return Done(done.stdout, done.stderr, done.returncode, found)
