"""Comparisons on a local Ray cluster: the answer of one process, lost workers, a run that is taken up again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from probe import _core, distributed

if TYPE_CHECKING:
    from collections.abc import Iterator

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'probe-precision[ray]'")

FAULTS = Path(__file__).parents[2] / "testdata" / "faults" / "gpt_rank1_linear_L1_statistics"


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


@pytest.fixture
def dumps(tmp_path: Path) -> tuple[Path, Path]:
    """Sixteen ranks, of which every second one is at fault."""
    for side in ("baseline", "candidate"):
        for rank in range(16):
            shutil.copytree(FAULTS / side / "step0" / f"rank{rank % 2}", tmp_path / side / "step0" / f"rank{rank}")
    return tmp_path / "baseline", tmp_path / "candidate"


def _without_time(report: dict) -> dict:
    return {key: value for key, value in report.items() if key != "seconds"}


def test_the_answer_is_that_of_one_process(cluster: None, dumps: tuple[Path, Path], tmp_path: Path) -> None:
    baseline, candidate = dumps
    single = tmp_path / "single"
    assert _core.main(["probe", "compare", "-q", str(baseline), str(candidate), "-o", str(single), "--format", "json"]) == 1
    report = distributed.compare(baseline, candidate, output=tmp_path / "run", cpus_per_task=1, shards=5, quiet=True)
    assert _without_time(report) == _without_time(json.loads((single / "report.json").read_text()))
    assert len(list((tmp_path / "run").glob("*/5/*/result.parquet"))) == 5
    # Once more: everything is done already.
    assert _without_time(distributed.compare(baseline, candidate, output=tmp_path / "run", cpus_per_task=1, shards=5, quiet=True)) == _without_time(report)


def test_lost_workers_are_replaced(cluster: None, dumps: tuple[Path, Path], tmp_path: Path) -> None:
    baseline, candidate = dumps
    stop = threading.Event()

    def kill() -> None:
        while not stop.wait(0.3):
            for process in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    if b"ray::_compare_shard" in process.read_bytes():
                        os.kill(int(process.parent.name), signal.SIGKILL)
                        return
                except OSError:
                    continue

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        report = distributed.compare(baseline, candidate, output=tmp_path / "run", cpus_per_task=1, shards=16, quiet=True)
    finally:
        stop.set()
        killer.join()
    assert report["verdict"] == "diverged"
    assert report["counts"]["parts"] == 16


def test_what_is_wrong_with_a_run_is_told(cluster: None, dumps: tuple[Path, Path], tmp_path: Path) -> None:
    baseline, candidate = dumps
    with pytest.raises(RuntimeError, match="No such file"):
        distributed.compare(baseline, tmp_path / "none", output=tmp_path / "run", quiet=True)
    with pytest.raises(ValueError, match="unknown field `stepss`"):
        distributed.compare(baseline, candidate, output=tmp_path / "run", stepss="3", quiet=True)
    with pytest.raises(distributed.DistributedError, match="a worker has probe .*, the driver another"):
        distributed._compare_shard("another", str(tmp_path), 1, 1, 1)
