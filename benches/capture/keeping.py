"""A watched step, kept as it is until its end, against a ring of the last ops with their data: bytes, and processor time in times of the plain step.

usage: keeping.py [--pairs N] [--ops K]

The ring is the least that one could cost: it copies what functions of the forward pass read and return, and looks at none of it. Needs the package
installed with its release core. Results: README.md in this folder.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import statistics
import tempfile
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

import probe
from cost import make, timed


class Ring(TorchFunctionMode):
    """Copies of what the last functions read and returned."""

    def __init__(self, ops: int) -> None:
        super().__init__()
        self.held: deque[list[torch.Tensor]] = deque(maxlen=ops)
        self.most = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kept = _copies([*args, *(kwargs or {}).values()])
        result = func(*args, **(kwargs or {}))
        if made := _copies([result]):
            self.held.append(kept + made)
            self.most = max(self.most, sum(tensor.nbytes for each in self.held for tensor in each))
        return result


def _copies(values: Any) -> list[torch.Tensor]:
    flat = [item for value in values for item in (value if isinstance(value, (tuple, list)) else (value,))]
    return [item.detach().clone() for item in flat if isinstance(item, torch.Tensor)]


def ratio(step: Callable[[], None], pairs: int, *watched: Callable[[], object]) -> float:
    """Median of the processor time of watched steps in times of the plain step before each."""
    return statistics.median(timed(*watched)[1] / plain for plain in (timed(step)[1] for _ in range(pairs)))


def main() -> None:
    """Prints a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--ops", type=int, default=32)
    given = parser.parse_args()
    torch.set_num_threads(1)
    model, step = make("gpt")
    for _ in range(3):
        step()
    for task in ("statistics", "tensor"):
        folder = tempfile.mkdtemp()
        with probe.capture(f"{folder}/one", model=model, level="mix", task=task, quiet=True) as capture:
            step()
            capture.step()
        size = sum(path.stat().st_size for path in pathlib.Path(folder, "one", "step0").rglob("*") if path.is_file())
        watch = probe.Capture(f"{folder}/dump", model=model, level="mix", task=task, keep="non-finite", quiet=True)
        times = ratio(step, given.pairs, watch.start, step, watch.stop, watch.step)
        watch.close()
        shutil.rmtree(folder)
        print(f"whole step, {task}: {times:.2f}, {size / 1e6:.1f} MB of disk", flush=True)
    ring = Ring(given.ops)

    def within() -> None:
        with ring:
            step()

    print(f"ring of {given.ops} ops, copies alone: {ratio(step, given.pairs, within):.2f}, {ring.most / 1e6:.1f} MB of memory")


if __name__ == "__main__":
    main()
