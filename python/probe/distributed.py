"""Compares dumps of many ranks on a Ray cluster.

A comparison is planned once and cut into shards; each is a task that calls the compiled core, and no dump data is
sent anywhere. Every worker sees the same paths, or the same object store; with ``where="node"``, each node has some
of the ranks on its own disk, and they are compared there. Finished shards stay in the folder of the run, so a stopped
driver can be started again.

    report = probe.distributed.compare("gpu_dump", "npu_dump", output="run", address="auto")

Needs Ray: ``pip install 'probe-precision[ray]'``. Without a cluster, `probe plan`, `probe compare --plan` and `probe merge` do the same
with any scheduler.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter, deque
from pathlib import Path
from typing import Any

from probe import _core, placement

#: Fewest parts per task: a task costs a process and opening the files.
_PARTS_A_TASK = 8

#: Most tasks per worker: several, so that the last ones do not keep the others waiting.
_TASKS_A_WORKER = 10

#: Times that a shard may lose its worker before it is left out.
_ATTEMPTS = 3

#: Processors per task.
_CPUS = 2


class DistributedError(RuntimeError):
    """A comparison that could not be run on the cluster."""


def compare(
    baseline: str | os.PathLike[str],
    candidate: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str],
    address: str | None = "auto",
    cpus_per_task: int = _CPUS,
    memory_per_task: int | None = None,
    shards: int | None = None,
    where: str = "shared",
    quiet: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Compares two dumps on a Ray cluster, and returns `report.json`.

    When stopped or failed, tasks already under way are left to their workers: they end when done, or with the program
    or `ray.shutdown()`.

    :param output: folder of the run, which all workers see, or a URL such as `s3://bucket/run`; the reports are written there.
    :param address: the cluster, as `ray.init` takes it; `None` starts one in this machine. A connection that is there already is used.
    :param cpus_per_task: processors asked for, and threads used, by a task. No NPU or GPU is asked for: tasks run beside a training.
    :param memory_per_task: bytes asked for by a task.
    :param shards: number of tasks; chosen from the parts and the cluster by default. A run is only resumed with the same number.
    :param where: `"shared"` when all nodes see both dumps; `"node"` when each node has some of the ranks under the same path on its own disk: they are
        compared there, and a shard is one rank.
    :param options: `steps`, `ranks`, `level`, `tolerance`, `mapping`, `noise`, `reference`, `any_task`, `any_level`, `rows`,
        `tokens`, `no_mmap`, as of `probe plan`.
    :raises DistributedError: without Ray, or when workers have another build of probe.
    :raises RuntimeError: when the dumps cannot be compared.
    """
    run = _everywhere(output)
    count, lost = _shards(
        baseline, candidate, run, address, cpus_per_task, memory_per_task, shards, quiet, options, where
    )
    report, missing = _core.merge(run)
    if not quiet:
        _tell(lost, count)
        if missing:
            print(f"probe: {len(missing)} of {count} shards are missing; the report lists how to run them", file=sys.stderr)
    return json.loads(report)


def main(order: str) -> None:
    """Runs `probe compare --ray`, with its options as JSON. Exits with the code of the comparison."""
    wanted = json.loads(order)
    run = _everywhere(wanted["output"])
    address = None if wanted["address"] == "local" else wanted["address"]
    try:
        count, lost = _shards(
            wanted["baseline"],
            wanted["candidate"],
            run,
            address,
            wanted["cpus_per_task"] or _CPUS,
            None,
            None,
            wanted["quiet"],
            wanted["options"],
            wanted["where"],
        )
    except KeyboardInterrupt:
        # Ray shuts its workers down when this process ends, which takes a moment. A second Ctrl-C ends it at once,
        # without a Ray traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        print("\nprobe: stopped; finished shards are kept, and the same command runs the rest", file=sys.stderr)
        sys.exit(130)
    except (RuntimeError, ValueError, ConnectionError) as error:
        print(f"probe: {error}", file=sys.stderr)
        sys.exit(2)
    _tell(lost, count)
    command = ["probe", "merge", run, "--top", str(wanted["top"])]
    command += [option for option, given in (("-q", wanted["quiet"]), ("-v", wanted["verbose"])) if given]
    if wanted["formats"]:
        command += ["--format", ",".join(wanted["formats"])]
    sys.exit(_core.main(command))


def _shards(
    baseline: str | os.PathLike[str],
    candidate: str | os.PathLike[str],
    run: str,
    address: str | None,
    cpus: int,
    memory: int | None,
    shards: int | None,
    quiet: bool,
    options: dict[str, Any],
    where: str,
) -> tuple[int, dict[int, str]]:
    """Plans the comparison and runs its shards. Returns the number of shards, and those left out with the reason."""
    if where not in ("shared", "node"):
        raise ValueError(f"where={where!r}: choose 'shared' or 'node'")
    ray = _ray()
    sides = [os.fspath(side) if where == "shared" else _everywhere(side) for side in (baseline, candidate)]
    asked = json.dumps(_plain(options))

    def connect() -> None:
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False, configure_logging=False)

    def planned(seen: list[tuple[str, str]]) -> tuple[str, int, int]:
        plan, groups, parts, _ = _core.plan(sides[0], sides[1], run, asked, seen)
        return plan, groups, parts

    homes: list[str | None] | None = None
    if where == "node":
        connect()
        found = _placement(ray, [side for side in sides if "://" not in side])
        with tempfile.TemporaryDirectory(prefix="probe-stand-") as folder:
            plan, groups, parts = planned(found.stand(Path(folder)))
        count = shards or groups
        homes = [found.node(ranks) for ranks in _core.shard_ranks(plan, count)]
    else:
        # Report problems with the dumps before asking a cluster for anything.
        plan, groups, parts = planned([])
        connect()
    workers = max(1, int(ray.cluster_resources().get("CPU", 1)) // cpus)
    if homes is None:
        count = shards or max(1, min(groups, parts // _PARTS_A_TASK, workers * _TASKS_A_WORKER))
    # Lost workers are counted here: a shard that kills its worker must not be retried forever, whatever the cause.
    task = ray.remote(num_cpus=cpus, memory=memory, max_retries=0, retry_exceptions=False)(_compare_shard)
    progress = _Progress(parts, quiet)
    try:
        return count, _run(ray, task, plan, count, cpus, 2 * workers, progress, homes)
    finally:
        progress.close()


def _placement(ray: Any, dumps: list[str]) -> placement.Placement:
    """Asks every node what it sees of the dumps."""
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    # Listing a disk takes no processor away from others.
    task = ray.remote(num_cpus=0, max_retries=1)(_listings)
    asked = {
        f"{node['NodeManagerAddress']}/{node['NodeID']}": task.options(
            scheduling_strategy=_at(ray, node["NodeID"], soft=False)
        ).remote(_core.build_id(), dumps)
        for node in nodes
    }
    told: dict[str, list[placement.Listing]] = {}
    for name, reference in asked.items():
        try:
            told[name] = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, (RuntimeError, ValueError)) else error from None
    return placement.Placement(
        {dump: {name: listings[number] for name, listings in told.items()} for number, dump in enumerate(dumps)}
    )


def _at(ray: Any, node: str, *, soft: bool) -> Any:
    """Scheduling strategy for a node; other nodes are allowed if it is gone and `soft`."""
    return ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node_id=node, soft=soft)


class _Waiting:
    """Shards still to run. The next one comes from the least busy node, so that no node waits for another."""

    def __init__(self, homes: list[str | None]) -> None:
        self.homes = homes
        self.queues: dict[str | None, deque[int]] = {}
        self.running: Counter[str | None] = Counter()
        for index in range(1, len(homes) + 1):
            self.add(index)

    def __bool__(self) -> bool:
        return any(self.queues.values())

    def home(self, index: int) -> str | None:
        return self.homes[index - 1]

    def add(self, index: int) -> None:
        self.queues.setdefault(self.home(index), deque()).append(index)

    def take(self) -> int:
        home = min((home for home, queue in self.queues.items() if queue), key=lambda home: self.running[home])
        self.running[home] += 1
        return self.queues[home].popleft()

    def ended(self, index: int) -> None:
        self.running[self.home(index)] -= 1


def _run(
    ray: Any,
    task: Any,
    plan: str,
    count: int,
    cpus: int,
    in_flight: int,
    progress: _Progress,
    homes: list[str | None] | None = None,
) -> dict[int, str]:
    """Runs all shards, some at a time, each on its home node if it has one. Returns those that lost their worker too
    often."""
    running: dict[Any, int] = {}
    waiting = _Waiting(homes or [None] * count)
    strikes: Counter[int] = Counter()
    lost: dict[int, str] = {}

    def start(index: int) -> Any:
        home = waiting.home(index)
        strategy = "DEFAULT" if home is None else _at(ray, home.rpartition("/")[2], soft=True)
        return task.options(scheduling_strategy=strategy).remote(_core.build_id(), plan, index, count, cpus)

    # After Ctrl-C or a failure, running tasks are left alone: `ray.cancel` of a task that completes at that moment
    # ends the whole process, because Ray treats it as pending on one thread while another completes it. A task ends
    # with the connection to the cluster, or finishes and counts for a later run.
    while running or waiting:
        while waiting and len(running) < in_flight:
            index = waiting.take()
            running[start(index)] = index
        ready, _ = ray.wait(list(running), num_returns=1, timeout=1)
        for reference in ready:
            index = running.pop(reference)
            waiting.ended(index)
            try:
                outcome = ray.get(reference)
            except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError) as error:
                strikes[index] += 1
                if strikes[index] < _ATTEMPTS:
                    waiting.add(index)
                else:
                    # A shard that kills its worker is no reason to give up the rest.
                    lost[index] = f"it lost {_ATTEMPTS} workers: {str(error).splitlines()[0]}"
                continue
            if isinstance(outcome, RuntimeError):
                if homes and not isinstance(outcome, DistributedError):
                    # The node that has the rank is gone, and no other one sees it.
                    lost[index] = str(outcome)
                    continue
                raise outcome
            parts, _, found = outcome
            progress.add(parts, found)
        progress.show()
    return lost


def _same_build(build: str) -> None:
    from probe import _core as core

    if core.build_id() != build:
        message = f"a worker has {core.build_id()}, the driver {build}: install one version on all nodes"
        raise DistributedError(message)


def _listings(build: str, dumps: list[str]) -> list[placement.Listing]:
    """Returns a node's view of the dumps."""
    _same_build(build)
    return [placement.listing(dump) for dump in dumps]


def _compare_shard(build: str, plan: str, index: int, count: int, threads: int) -> tuple[int, bool, str | None] | RuntimeError:
    """Runs a shard in a worker. Errors are returned: Ray would print an exception raised by a task that nobody waits
    for any more."""
    try:
        _same_build(build)
        return _core.compare_shard(plan, index, count, threads)
    except RuntimeError as error:
        return error


class _Progress:
    """One progress bar of parts, on a terminal, with the first divergence so far: an earlier one may still come."""

    WIDTH = 10

    def __init__(self, total: int, quiet: bool) -> None:
        self.total = total
        self.done = 0
        self.first: str | None = None
        self.shown = not quiet and sys.stderr.isatty()

    def add(self, parts: int, found: str | None) -> None:
        self.done += parts
        self.first = min(filter(None, (self.first, found)), key=_place, default=None)

    def show(self) -> None:
        if not self.shown:
            return
        full = self.WIDTH * self.done // max(1, self.total)
        so_far = f"  provisional: {self.first}" if self.first else ""
        line = f"{'█' * full}{'░' * (self.WIDTH - full)} {self.done}/{self.total} parts{so_far}"
        # A line that wraps cannot be overwritten.
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[K{_visible(line)[:width]}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _tell(lost: dict[int, str], count: int) -> None:
    for index, reason in lost.items():
        print(f"probe: shard {index}/{count} was left out, {reason}", file=sys.stderr)


def _visible(text: str) -> str:
    """Removes terminal control characters: op names come from a dump."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _place(text: str) -> tuple[int, int]:
    """Step and rank of a text such as `step 3 rank 17 Functional.gelu.1.forward`."""
    words = text.split()
    return int(words[1]), int(words[3])


def _everywhere(path: str | os.PathLike[str]) -> str:
    """Returns the path in a form valid on any node: absolute, or a URL."""
    text = os.fspath(path)
    return text if "://" in text else str(Path(text).absolute())


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options as JSON values: paths become texts."""

    def plain(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [plain(one) for one in value]
        return os.fspath(value) if isinstance(value, os.PathLike) else value

    return {key: plain(value) for key, value in options.items() if value is not None}


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        message = "Ray is not installed: pip install 'probe-precision[ray]', or use `probe plan` with another scheduler"
        raise DistributedError(message) from error
    import ray.exceptions
    import ray.util.scheduling_strategies

    return ray
