"""Records pairs of runs, on one rank and on several or on several both, in processes over gloo: make.py FOLDER HALF [PATTERN]. The half is `seen` or `sealed`, or of
drawn pairs `drawn` or `drawn-sealed`."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import torch
import torch.distributed as dist
import drawn
from cases import Case, cases
from programs import run

# Seconds that a run may take.
LONGEST = 60


def forked(case: Case, output: Path, run: Callable[[Case, Path], None] = run) -> bool:
    """Runs a case in processes of its own; this one has imported torch."""
    ranks, meeting, children = case.ranks, tempfile.mktemp(), []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if ranks > 1:
                    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
                run(case, output)
                code = 0
            except BaseException:
                traceback.print_exc()
            sys.stderr.flush()
            sys.stdout.flush()
            os._exit(code)
        children.append(child)
    done, end = [], time.monotonic() + LONGEST
    while children:
        for child in children[:]:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                children.remove(child)
                done.append(status)
        if any(done) or time.monotonic() > end:
            # The others wait for a rank that has ended.
            for child in children:
                os.kill(child, signal.SIGKILL)
            end = time.monotonic() + LONGEST
        time.sleep(0.02)
    Path(meeting).unlink(missing_ok=True)
    return not any(done)


def main(folder: Path, half: str, pattern: str = "*") -> None:
    torch.set_num_threads(1)
    for case in (drawn.cases if half.startswith("drawn") else cases)(half):
        to = folder / half / case.name
        if not fnmatch(case.name, pattern) or (to / "made").exists():
            continue
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        sizes = case.baseline or ({"pp": 1} if "pp" in case.sizes else {})
        baseline = replace(case, sizes=sizes, chunks=case.baseline_chunks, fault="")
        if forked(baseline, to / "one") and forked(case, to / "many"):
            (to / "made").touch()
        else:
            print(f"{case.name}: failed", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
