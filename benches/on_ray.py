"""Cost of Ray for a comparison of many ranks: python benches/on_ray.py [--ranks 1024] [--rounds 3]; needs the package with its extra `ray`.

Ranks are links to one rank of `testdata`, with data of tensors, so that disks are no part of it. Cluster and process work on the same processors, one after
the other, in turns; the start of the cluster is not counted.

- *overhead*: shards of about two seconds, on a cluster of one processor: the time of the whole run beyond what its tasks took by their own clocks. Both are of the same
  seconds, so that other programs on the machine are no part of the ratio.
- *ratio*: all of a comparison, from plan to reports, on a cluster of two processors, against `probe compare` with two threads.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import ray

from probe import _core, distributed

DATA = Path(__file__).parents[1] / "testdata"
#: Seconds of a task.
TASK = 2.0


def dumps(place: Path, ranks: int) -> tuple[Path, Path]:
    """Two dumps whose ranks are links."""
    for side in ("gpu_dump", "npu_dump"):
        (template,) = (DATA / side / "step0").iterdir()
        (place / side / "step0").mkdir(parents=True)
        for rank in range(ranks):
            (place / side / "step0" / f"rank{rank}").symlink_to(template)
    return place / "gpu_dump", place / "npu_dump"


def timed(work) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def cluster(processors: int) -> None:
    """A cluster whose worker has started, and has loaded what it calls."""
    ray.shutdown()
    ray.init(num_cpus=processors, include_dashboard=False, log_to_driver=False, configure_logging=False)
    warm = ray.remote(num_cpus=1)(lambda: __import__("probe._core") and time.sleep(0.5))
    ray.get([warm.remote() for _ in range(processors)])


def overhead(place: Path, baseline: Path, candidate: Path, rounds: int) -> None:
    plan, _, parts, _ = _core.plan(str(baseline), str(candidate), str(place / "trial"), "{}", [])
    trial = timed(lambda: _core.compare_shard(plan, 1, 16, 1))
    shards = max(2, round(16 * trial / TASK))
    found = []
    cluster(1)
    compare_shard = distributed._compare_shard
    for turn in range(rounds):
        run, clock = place / f"spread{turn}", place / f"clock{turn}"

        def clocked(*arguments: object, clock: Path = clock) -> object:
            started = time.perf_counter()
            done = compare_shard(*arguments)
            with clock.open("a") as file:
                file.write(f"{time.perf_counter() - started}\n")
            return done

        distributed._compare_shard = clocked
        whole = timed(lambda: distributed._shards(baseline, candidate, str(run), None, 1, None, shards, True, {}, "shared"))
        distributed._compare_shard = compare_shard
        tasks = [float(line) for line in clock.read_text().splitlines()]
        found.append(whole / sum(tasks) - 1)
        print(f"  {parts} parts, {len(tasks)} tasks of {statistics.mean(tasks):.2f} s: {whole:.2f} s, overhead {found[-1]:.1%}", flush=True)
        shutil.rmtree(run)
    print(f"overhead at {TASK:.0f} s a task: median {statistics.median(found):.1%}, best {min(found):.1%}")


def ratio(place: Path, baseline: Path, candidate: Path, ranks: int, rounds: int) -> None:
    found = []
    cluster(2)
    for turn in range(rounds):
        single, spread = place / f"single{turn}", place / f"ray{turn}"
        one = ["probe", "compare", "-q", "--threads", "2", str(baseline), str(candidate), "-o", str(single)]
        with open(os.devnull, "w") as nothing:
            kept = os.dup(1)
            os.dup2(nothing.fileno(), 1)
            alone = timed(lambda: _core.main(one))
            os.dup2(kept, 1)
        on_ray = timed(lambda: distributed.compare(baseline, candidate, output=spread, cpus_per_task=1, quiet=True))
        found.append(on_ray / alone)
        print(f"  {ranks} ranks: {alone:.2f} s in one process, {on_ray:.2f} s on Ray, ratio {found[-1]:.2f}", flush=True)
        shutil.rmtree(single)
        shutil.rmtree(spread)
    print(f"all of {ranks} ranks on two processors: median {statistics.median(found):.2f}, best {min(found):.2f} times one process")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ranks", type=int, default=1024)
    options.add_argument("--rounds", type=int, default=3)
    wanted = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        baseline, candidate = dumps(place, wanted.ranks)
        overhead(place, baseline, candidate, wanted.rounds)
        ratio(place, baseline, candidate, wanted.ranks, wanted.rounds)
    ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())
