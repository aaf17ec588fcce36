"""Findings of a part of the suite: one line of JSON a check, written at once, so that nothing is lost when time runs out."""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import programs


class Unwell(Exception):
    """A check found something wrong; the text says what."""


class NotHere(Exception):
    """A check cannot be made on this device; the text says why."""


@dataclass
class Checks:
    """The checks of one part. `share` are the place and number of the processes that divide them."""

    part: str
    file: Path
    share: tuple[int, int]
    count: int = 0

    def check(self, name: str, work: Callable[[], dict[str, Any] | str | None]) -> None:
        """Makes one check, if it falls into this share: `work` returns its figures or what there is to say, or raises."""
        self.count += 1
        if (self.count - 1) % self.share[1] != self.share[0]:
            return
        start = time.perf_counter()
        state, said, figures = "ok", "", {}
        try:
            found = work()
            if isinstance(found, dict):
                figures = found
                said = ", ".join(f"{key} {_shown(value)}" for key, value in found.items())
            else:
                said = found or ""
        except NotHere as error:
            state, said = "not here", str(error)
        except Unwell as error:
            state, said = "BAD", str(error)
        except Exception as error:
            state, said = "BAD", f"{type(error).__name__}: {str(error).strip()[:600]}"
            traceback.print_exc()
        row = {"part": self.part, "check": name, "state": state, "said": said, "figures": figures, "seconds": round(time.perf_counter() - start, 2)}
        with self.file.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{state:<8} {self.part}: {name}: {said}", flush=True)


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass
class Run:
    """Arguments of a part."""

    device: str
    size: programs.Size
    reduced: bool
    #: For dumps; emptied by whoever started the suite.
    folder: Path
    #: For what is fetched.
    output: Path
    checks: Checks

    @property
    def kind(self) -> str:
        return self.device.partition(":")[0]


def run(part: str, work: Callable[[Run], None]) -> None:
    """The command line of a part."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--device", default="cuda:0")
    arguments.add_argument("--folder", type=Path, required=True)
    arguments.add_argument("--output", type=Path, required=True)
    arguments.add_argument("--share", default="0/1")
    arguments.add_argument("--reduced", action="store_true")
    given = arguments.parse_args()
    place, _, number = given.share.partition("/")
    given.output.mkdir(parents=True, exist_ok=True)
    folder = given.folder / f"{part}-{place}"
    folder.mkdir(parents=True)
    import torch

    torch.set_num_threads(1)
    checks = Checks(part, given.output / f"{part}-{place}.jsonl", (int(place), int(number)))
    work(Run(given.device, programs.REDUCED if given.reduced else programs.FULL, given.reduced, folder, given.output, checks))
