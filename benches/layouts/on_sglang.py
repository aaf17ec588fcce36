"""Records pairs of cases.py with SGLang's own dumper instead of probe, asks `probe compare`, and counts: on_sglang.py SGLANG FOLDER [PATTERN].

SGLANG is an unpacked wheel of sglang (0.5.23 was used). Its dumper runs without a GPU; what it imports of the server is stubbed. It records the forward pass of
modules, without a word about layouts but the places of the ranks.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import programs
from cases import Case, cases
from make import forked
from score import asked

sys.path.insert(0, str(Path(__file__).parents[1] / "rollout"))
from dumper import dumper_of

# Faults that show in what modules return in the forward pass.
SHOWN = {"", "drop", "double", "mean", "wrong-group", "kernel", "not-causal", "stale", "shard-order", "bias-twice", "zigzag", "router", "expert-drop"}
# Words for what is not told without weights.
WITHOUT_WEIGHTS = {"bias-twice": "all rows are off by one vector", "expert-drop": "partial sum; the all-reduce over tp is missing"}


def places(case: Case) -> SimpleNamespace:
    """Where a rank stands, as a server says it: it divides the ranks of its tensor parallelism anew for attention and experts."""
    rank = int(programs.dist.get_rank()) if programs.dist.is_initialized() else 0
    size = case.sizes.get
    count, tp, cp, ep = case.ranks, size("tp", 1), size("cp", 1), size("ep", 1)
    of = {"tp": (rank, count), "pp": (0, 1), "attn_tp": (rank % tp, tp), "attn_dp": (0, 1), "attn_cp": (rank // tp, cp)}
    of |= {"moe_ep": (rank % ep, ep), "moe_tp": (rank // ep, count // ep), "moe_dp": (0, 1)}
    return SimpleNamespace(**{f"{axis}_{name}": value for axis, pair in of.items() for name, value in zip(("rank", "size"), pair)})


def record(case: Case, wheel: Path, output: Path) -> None:
    """Runs a case, on which SGLang's dumper looks in place of probe."""

    @contextmanager
    def dumped(folder: Path, *, model: Any, **_: Any) -> Iterator[None]:
        os.environ |= {"DUMPER_ENABLE": "1", "DUMPER_DIR": str(folder.parent), "DUMPER_EXP_NAME": folder.name, "DUMPER_NON_INTRUSIVE_MODE": "all", "DUMPER_ENABLE_OUTPUT_CONSOLE": "0"}
        module = dumper_of(wheel)
        module.get_parallel = lambda: places(case)
        module.dumper.register_non_intrusive_dumper(model)
        yield

    programs.probe = SimpleNamespace(capture=dumped)
    programs.run(case, output)


def main(wheel: Path, folder: Path, pattern: str = "*") -> None:
    programs.torch.set_num_threads(1)
    counts: dict[str, Counter[str]] = {}
    for case in cases("sglang"):
        if case.fault not in SHOWN or case.style != "hand" or case.fsdp or case.baseline or "pp" in case.sizes or case.task != "tensor" or not fnmatch(case.name, pattern):
            continue
        to = folder / case.name
        if not (to / "made").exists():
            shutil.rmtree(to, ignore_errors=True)
            to.mkdir(parents=True)
            runs = ((Case(**{**vars(case), "sizes": {}, "fault": ""}), to / "one"), (case, to / "many"))
            if not all(forked(one, output, lambda one, output: record(one, wheel, output)) for one, output in runs):
                print(f"{case.name}: failed", flush=True)
                continue
            (to / "made").touch()
        answer, said = asked(to, case, False)
        if answer == "place" and WITHOUT_WEIGHTS.get(case.fault, "unknown") in said:
            answer = "named"
        counts.setdefault(case.fault or "(sound)", Counter())[answer] += 1
        if answer not in ("silent", "named"):
            print(f"{answer}: {case.name}: {said}", flush=True)
    for fault, of in counts.items():
        print(f"{fault:20}" + ", ".join(f"{word} {number}" for word, number in of.items()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
