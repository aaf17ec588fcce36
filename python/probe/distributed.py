"""Compares dumps of many ranks on a Ray cluster.

A comparison is planned once and cut into shards; each is a task that calls the compiled core, and nothing of a dump is sent anywhere: every
worker sees the same paths. What a worker has finished stays in the folder of the run, so that a driver that is stopped can be started again.

    report = probe.distributed.compare("gpu_dump", "npu_dump", output="run", address="auto")

Needs Ray: ``pip install 'probe-precision[ray]'``. Without a cluster, `probe plan`, `probe compare --plan` and `probe merge` do the same
with any scheduler.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probe import _core

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Parts that a task has at least: a task costs a process and the opening of files.
_PARTS_A_TASK = 8

#: Tasks for each worker at most, so that the last ones do not keep the others waiting.
_TASKS_A_WORKER = 10

#: Times that a shard may lose its worker before it is left out.
_ATTEMPTS = 3


class DistributedError(RuntimeError):
    """A comparison that could not be run on the cluster."""


def compare(
    baseline: str | os.PathLike[str],
    candidate: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str],
    address: str | None = "auto",
    cpus_per_task: int = 2,
    memory_per_task: int | None = None,
    shards: int | None = None,
    quiet: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Compares two dumps on a Ray cluster, and returns `report.json`.

    :param output: folder of the run, which all workers see; the reports are written there.
    :param address: the cluster, as `ray.init` takes it; `None` starts one in this machine. A connection that is there already is used.
    :param cpus_per_task: processors asked for, and threads used, by a task. No NPU or GPU is asked for: tasks run beside a training.
    :param memory_per_task: bytes asked for by a task.
    :param shards: number of tasks; chosen from the parts and the cluster by default. A run is only resumed with the same number.
    :param options: `steps`, `ranks`, `level`, `tolerance`, `mapping`, `noise`, `reference`, `any_task`, `any_level`, as of `probe plan`.
    :raises DistributedError: without Ray, or when workers have another build of probe.
    :raises RuntimeError: when the dumps cannot be compared.
    """
    ray = _ray()
    run = Path(output).absolute()
    plan, groups, parts, _ = _core.plan(_path(baseline), _path(candidate), str(run), json.dumps(_plain(options)))
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    workers = max(1, int(ray.cluster_resources().get("CPU", 1)) // cpus_per_task)
    count = shards or max(1, min(groups, parts // _PARTS_A_TASK, workers * _TASKS_A_WORKER))
    task = ray.remote(
        num_cpus=cpus_per_task,
        memory=memory_per_task,
        max_retries=_ATTEMPTS - 1,
        retry_exceptions=False,
    )(_compare_shard)
    lost = _run(ray, task, plan, count, cpus_per_task, 2 * workers, quiet)
    report, missing = _core.merge(str(run))
    if not quiet:
        for index, reason in lost.items():
            print(f"probe: shard {index}/{count} was left out: {reason}", file=sys.stderr)
        if missing:
            print(f"probe: {len(missing)} of {count} shards are missing; the report lists how to make them up", file=sys.stderr)
    return json.loads(report)


def _run(
    ray: Any, task: Any, plan: str, count: int, cpus: int, in_flight: int, quiet: bool
) -> dict[int, str]:
    """Runs all shards, some at a time. Returns those that lost their worker too often."""
    running: dict[Any, int] = {}
    lost: dict[int, str] = {}
    waiting = iter(range(1, count + 1))
    done, first, said = 0, None, 0.0
    try:
        _fill(task, waiting, running, in_flight, plan, count, cpus)
        while running:
            ready, _ = ray.wait(list(running), num_returns=1)
            for reference in ready:
                index = running.pop(reference)
                try:
                    _, _, found = ray.get(reference)
                except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError) as error:
                    # What kills its worker is no reason to give the rest up.
                    lost[index] = str(error).splitlines()[0]
                    continue
                except ray.exceptions.RayTaskError as error:
                    raise error.cause if isinstance(error.cause, (DistributedError, RuntimeError)) else error from None
                first = min(filter(None, (first, found)), key=_place, default=None)
                done += 1
            _fill(task, waiting, running, in_flight, plan, count, cpus)
            if not quiet and time.monotonic() - said > 1:
                said = time.monotonic()
                so_far = f"; first so far (provisional): {first}" if first else ""
                print(f"probe: {done} of {count} shards{so_far}", file=sys.stderr)
    finally:
        # Ctrl-C, or a failure: what is finished stays, the rest is made up by another run.
        for reference in running:
            ray.cancel(reference, force=True)
    return lost


def _fill(
    task: Any, waiting: Iterable[int], running: dict[Any, int], in_flight: int, plan: str, count: int, cpus: int
) -> None:
    """Starts tasks until enough are under way."""
    while len(running) < in_flight:
        index = next(iter(waiting), None)
        if index is None:
            return
        running[task.remote(_core.build_id(), plan, index, count, cpus)] = index


def _compare_shard(build: str, plan: str, index: int, count: int, threads: int) -> tuple[int, bool, str | None]:
    """What a worker does."""
    from probe import _core as core

    if core.build_id() != build:
        message = f"a worker has {core.build_id()}, the driver {build}: install one version on all nodes"
        raise DistributedError(message)
    return core.compare_shard(plan, index, count, threads)


def _place(text: str) -> tuple[int, int]:
    """Step and rank of a text such as `step 3 rank 17 Functional.gelu.1.forward`."""
    words = text.split()
    return int(words[1]), int(words[3])


def _path(path: str | os.PathLike[str]) -> str:
    return os.fspath(path)


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Options as JSON: paths as texts."""

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

    return ray
