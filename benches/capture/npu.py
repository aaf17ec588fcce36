"""Work that capture gives an NPU in a training step, counted on the simulated device, beside that of the older tool.

usage: npu.py [--model gpt|conv]            the table of this tool; --level and --task choose a row
       npu.py --older LEVEL [--model ...]   a row of the older tool's, where `mindstudio-probe` can be imported: L0, L1 or mix

Run on the device of tests/ascend-sim (its README says how), in a process that nothing else uses. A plain step is counted, then a recorded
one; what is told is the difference. `launches` are those of operators, `waits` are calls in which the host waits for the device, until the
step has ended and been written. The host's time is that of the calls that measure, in one thread and with torch_npu's own part; `of it the
device's` is what the functions took that CANN has on real hardware, the simulator's here. Results: README.md in this folder.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The thread that asks for a launch does torch_npu's work for it, so that its time is seen.
os.environ.setdefault("TASK_QUEUE_ENABLE", "0")

import torch

# Before there is another default device: it computes while it is imported.
import torch._dynamo

import cost

LEVELS, TASKS = ("module", "api", "mix", "op"), ("statistics", "sketch")
Counts = dict[str, dict[str, int]]


class Counter:
    """Counts of the simulated device since it was made."""

    def __init__(self) -> None:
        self._device = ctypes.CDLL("libascendcl.so")
        torch.npu.synchronize()
        self._device.ascend_sim_reset_counts()

    def __call__(self) -> Counts:
        with tempfile.NamedTemporaryFile() as file:
            self._device.ascend_sim_write_counts(file.name.encode())
            found: Counts = json.loads(Path(file.name).read_text())
        return found


def total(counts: Counts, group: str, name: str = "") -> int:
    return sum(number for each, number in counts.get(group, {}).items() if name in each)


def difference(plain: Counts, recorded: Counts) -> tuple[int, int, int]:
    """Launches, copies to the host, and waits."""
    places = (("launches", ""), ("copies", "device to host"), ("waits", ""))
    launches, copies, waits = (total(recorded, *place) - total(plain, *place) for place in places)
    return launches, copies, waits


def of_the_device(plain: Counts, recorded: Counts) -> float:
    """Seconds that the host spent in the functions of the device's operators."""
    return (total(recorded, "host_ns") - total(plain, "host_ns")) / 1e9


def counted(act: Callable[[], object]) -> Counts:
    counter = Counter()
    act()
    return counter()


class Watched:
    """Times and counts the calls that measure."""

    def __init__(self, device: type, groups: type) -> None:
        self.tensors, self.seconds = 0, 0.0
        self._inside = False
        for kind, name, counts in ((device, "observe", True), (device, "copy", True), (groups, "measure", False)):
            setattr(kind, name, self._timed(getattr(kind, name), counts))

    def _timed(self, plain: Callable[..., Any], counts: bool) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            if self._inside:
                return plain(*given)
            self._inside, start = True, time.thread_time()
            try:
                return plain(*given)
            finally:
                self.seconds += time.thread_time() - start
                self.tensors += len(given[1]) if counts else 0
                self._inside = False

        return call


def ours(kind: str, levels: list[str], tasks: list[str]) -> None:
    import probe
    import pyarrow.parquet as pq
    from probe.recorder.device import Device
    from probe.recorder.device_groups import Groups

    watched = Watched(Device, Groups)
    print("| level | task | ops | tensors | launches | a tensor | an op | copies to the host | waits | host, us a tensor | of it the device's | ms a step |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for level in levels:
        for task in tasks:
            model, step = cost.make(kind)
            step()
            plain = counted(step)
            folder = tempfile.mkdtemp()
            capture = probe.Capture(f"{folder}/dump", model=model, level=level, task=task, quiet=True)

            def recorded(capture: Any = capture, step: Callable[[], None] = step) -> None:
                capture.start()
                step()
                capture.stop()
                capture.step()

            recorded()
            watched.tensors, watched.seconds = 0, 0.0
            counts = counted(recorded)
            launches, copies, waits = difference(plain, counts)
            simulated = of_the_device(plain, counts)
            capture.close()
            ops = pq.read_table(next(Path(folder).rglob("step1/*/ops.parquet")), columns=["order"])["order"].to_numpy().max() + 1
            shutil.rmtree(folder)
            tensors, spent = watched.tensors, watched.seconds
            print(
                f"| `{level}` | {task} | {ops} | {tensors} | {launches} | {launches / tensors:.1f} | {launches / ops:.1f} | {copies} | {waits} "
                f"| {spent / tensors * 1e6:.0f} | {simulated / tensors * 1e6:.0f} | {spent * 1e3:.0f} |",
                flush=True,
            )


def older(kind: str, level: str) -> None:
    from msprobe.pytorch import PrecisionDebugger

    folder = tempfile.mkdtemp()
    model, step = cost.make(kind)
    step()
    plain = counted(step)
    debugger = PrecisionDebugger(task="statistics", dump_path=folder, level=level)

    def recorded() -> None:
        debugger.start(model)
        step()
        debugger.stop()
        debugger.step()

    recorded()
    launches, copies, waits = difference(plain, counted(recorded))
    dump = json.loads(next(Path(folder).rglob("step1/*/dump.json")).read_text())["data"]
    shutil.rmtree(folder)
    tensors = json.dumps(dump).count('"Max"')
    print("| level | entries | tensors | launches | a tensor | an entry | copies to the host | waits |")
    print("|---|---|---|---|---|---|---|---|")
    print(f"| `{level}` | {len(dump)} | {tensors} | {launches} | {launches / tensors:.1f} | {launches / len(dump):.1f} | {copies} | {waits} |")


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["gpt", "conv"], default="gpt")
    parser.add_argument("--level", action="append", choices=LEVELS)
    parser.add_argument("--task", action="append", choices=TASKS)
    parser.add_argument("--older", choices=["L0", "L1", "mix"])
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_device("npu:0")
    if given.older:
        older(given.model, given.older)
    else:
        ours(given.model, given.level or list(LEVELS), given.task or list(TASKS))


if __name__ == "__main__":
    main()
