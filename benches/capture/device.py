"""Cost of capture on a device, counted: launches per tensor, op and step, for each level and task.

usage: device.py [--device KIND]

A step of a GPT (`cost.py`) is recorded. Without `--device` its tensors are in host memory and are measured as those on a device are:
launches are operations that are dispatched, without views, and need no hardware to be counted. Results: README.md in this folder.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

import cost
import probe
import pyarrow.parquet as pq
from probe.recorder import core, device, device_groups

#: Operations that name memory, or take it, and give the device nothing to do.
NOTHING = ("empty", "detach", "view", "split", "select", "slice", "alias", "as_strided", "view_as_real", "unbind", "expand")


class Launches(TorchDispatchMode):
    """Counts operations."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.overloadpacket.__name__ not in NOTHING
        return func(*args, **(kwargs or {}))


class Tally:
    """Requests of the recorder to the device."""

    def __init__(self) -> None:
        self.tensors = 0
        #: Launches to measure them, and to fetch the numbers.
        self.observed = 0
        self.fetched = 0


@contextmanager
def counted() -> Iterator[Tally]:
    """Counts what is launched to measure, and to fetch."""
    tally = Tally()
    plain = {name: getattr(device.Device, name) for name in ("observe", "copy", "fetch")}
    measure = device_groups.Groups.measure
    undisturbed = device.Undisturbed

    def together(self: Any, group: Any, stream: Any) -> None:
        with _disable_current_modes(), Launches() as launches:
            measure(self, group, stream)
        tally.observed += launches.count

    def call(name: str, self: Any, argument: Any) -> Any:
        with _disable_current_modes(), torch._C.DisableTorchFunction(), Launches() as launches:
            found = plain[name](self, argument)
        if name == "fetch":
            tally.fetched += launches.count
        else:
            tally.observed += launches.count
            tally.tensors += len(argument)
        return found

    try:
        device.Undisturbed = torch.no_grad  # type: ignore[misc, assignment]
        device_groups.Groups.measure = together  # type: ignore[method-assign]
        for name in plain:
            setattr(device.Device, name, lambda self, argument, name=name: call(name, self, argument))
        yield tally
    finally:
        device.Undisturbed = undisturbed  # type: ignore[misc]
        device_groups.Groups.measure = measure  # type: ignore[method-assign]
        for name, method in plain.items():
            setattr(device.Device, name, method)


def main() -> None:
    """Prints a row for each level and task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.device:
        torch.set_default_device(given.device)
    core._AS_ON_DEVICE = not given.device
    print("| level | task | ops | tensors measured | launches a tensor | an op | a step | to fetch them |")
    print("|---|---|---|---|---|---|---|---|")
    for level in ("module", "api", "mix", "op"):
        for task in ("statistics", "sketch"):
            model, step = cost.make("gpt")
            step()
            folder = tempfile.mkdtemp()
            capture = probe.Capture(f"{folder}/dump", model=model, level=level, task=task, quiet=True)
            with counted() as tally:
                capture.start()
                step()
                capture.stop()
                capture.step()
            capture.close()
            ops = pq.read_table(next(pathlib.Path(folder).rglob("ops.parquet")), columns=["order"])["order"].to_numpy().max() + 1
            shutil.rmtree(folder)
            print(
                f"| `{level}` | {task} | {ops} | {tally.tensors} | {tally.observed / tally.tensors:.1f} | {tally.observed / ops:.1f} "
                f"| {tally.observed} | {tally.fetched} |"
            )


if __name__ == "__main__":
    main()
