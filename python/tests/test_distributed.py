"""Comparisons on a local Ray cluster: the answer of one process, lost workers, a run that is taken up again."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
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
    assert (tmp_path / "run" / "result.html").is_file()
    assert len(list((tmp_path / "run").glob("*/5/*/result.parquet"))) == 5
    # Once more: everything is done already.
    assert _without_time(distributed.compare(baseline, candidate, output=tmp_path / "run", cpus_per_task=1, shards=5, quiet=True)) == _without_time(report)


def test_workers_that_are_killed_one_after_the_other_are_replaced(
    cluster: None, dumps: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = tmp_path / "running"
    running.mkdir()

    def slow(build: str, plan: str, index: int, count: int, threads: int) -> object:
        import os
        import time

        from probe import distributed

        at_work = running / str(os.getpid())
        at_work.write_text(str(index))
        time.sleep(0.4)
        done = distributed._compare_shard(build, plan, index, count, threads)
        at_work.unlink(missing_ok=True)
        return done

    baseline, candidate = dumps
    stop = threading.Event()
    #: The shards whose workers were killed. A third time would leave the shard out.
    killed: list[str] = []
    chance = random.Random(0)

    def kill() -> None:
        while not stop.wait(1):
            workers = list(running.iterdir())
            # A worker that has just ended its shard is no worker, or is at another one.
            with contextlib.suppress(OSError, IndexError):
                worker = chance.choice(sorted(workers))
                if (shard := worker.read_text()) and killed.count(shard) < 2:
                    os.kill(int(worker.name), signal.SIGKILL)
                    killed.append(shard)
                    worker.unlink()

    killer = threading.Thread(target=kill)
    with monkeypatch.context() as patched:
        patched.setattr(distributed, "_compare_shard", slow)
        killer.start()
        try:
            report = distributed.compare(baseline, candidate, output=tmp_path / "run", cpus_per_task=1, shards=16, quiet=True)
        finally:
            stop.set()
            killer.join()
    assert len(killed) >= 2
    assert report["verdict"] == "diverged"
    assert report["counts"]["parts"] == 16


def test_a_shard_that_kills_every_worker_is_left_out(
    cluster: None, dumps: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tries = tmp_path / "tries"

    def poisoned(build: str, plan: str, index: int, count: int, threads: int) -> object:
        import os

        from probe import distributed

        if index == 3:
            with open(tries, "a") as file:
                file.write("x")
            os._exit(1)
        return distributed._compare_shard(build, plan, index, count, threads)

    baseline, candidate = dumps
    with monkeypatch.context() as patched:
        patched.setattr(distributed, "_compare_shard", poisoned)
        report = distributed.compare(baseline, candidate, output=tmp_path / "run", cpus_per_task=1, shards=8)
    assert tries.read_text() == "xxx"
    assert report["verdict"] == "incomplete"
    assert report["counts"]["parts"] == 14
    assert [entry["place"] for entry in report["incomplete"]] == ["shard 3/8"]
    said = capsys.readouterr().err
    assert "shard 3/8 was left out, it lost 3 workers" in said
    # Once whatever killed it is gone, the same call does what is missing.
    again = distributed.compare(baseline, candidate, output=tmp_path / "run", cpus_per_task=1, shards=8, quiet=True)
    assert again["verdict"] == "diverged"
    assert again["counts"]["parts"] == 16


def test_two_drivers_of_one_run_lead_to_one_answer(cluster: None, dumps: tuple[Path, Path], tmp_path: Path) -> None:
    baseline, candidate = dumps
    reports: list[dict] = []

    def drive() -> None:
        report = distributed.compare(baseline, candidate, output=tmp_path / "run", cpus_per_task=1, shards=8, quiet=True)
        reports.append(_without_time(report))

    drivers = [threading.Thread(target=drive) for _ in range(2)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert len(reports) == 2
    assert reports[0] == reports[1]
    assert reports[0]["counts"]["parts"] == 16


def test_a_call_that_is_stopped_leaves_the_process_and_the_cluster_usable(
    cluster: None, dumps: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(progress: object, parts: int, found: str | None) -> None:
        raise KeyboardInterrupt

    baseline, candidate = dumps
    with monkeypatch.context() as patched:
        patched.setattr(distributed._Progress, "add", stopped)
        for number in range(5):
            with pytest.raises(KeyboardInterrupt):
                distributed.compare(baseline, candidate, output=tmp_path / f"stopped{number}", cpus_per_task=1, shards=16, quiet=True)
    report = distributed.compare(baseline, candidate, output=tmp_path / "stopped0", cpus_per_task=1, shards=16, quiet=True)
    assert report["verdict"] == "diverged"
    assert report["counts"]["parts"] == 16


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["stopped", "killed"])
def test_the_command_has_the_exit_code_and_a_driver_that_ended_is_taken_up(how: signal.Signals, tmp_path: Path) -> None:
    # So many that most are still to be done when the first ones are seen.
    ranks = 800
    for side in ("baseline", "candidate"):
        for rank in range(ranks):
            (tmp_path / side / "step0").mkdir(parents=True, exist_ok=True)
            (tmp_path / side / "step0" / f"rank{rank}").symlink_to(FAULTS / side / "step0" / f"rank{rank % 2}")
    run = tmp_path / "run"
    command = [sys.executable, "-m", "probe", "compare", str(tmp_path / "baseline"), str(tmp_path / "candidate"), "-o", str(run)]
    command += ["--ray", "local", "--threads", "1", "--format", "json,text"]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    deadline = time.monotonic() + 120
    while not list(run.glob("*/*/*/part.json")) and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    first.send_signal(how)
    if how == signal.SIGINT:
        _, said = first.communicate(timeout=60)
        assert first.returncode == 130, said
        assert "the same command runs the rest" in said
    else:
        # Its cluster notices by itself, and may hold the pipes until then.
        assert first.wait(timeout=60) == -how
    done = {path: path.stat().st_mtime_ns for path in run.glob("*/*/*/part.json")}
    assert not (run / "report.json").exists()
    second = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert second.returncode == 1, second.stderr
    assert "first divergence: step 0, ranks 1, 3, 5" in second.stdout
    report = json.loads((run / "report.json").read_text())
    assert report["counts"]["parts"] == ranks
    # Steps that were finished before are left as they are.
    assert all(path.stat().st_mtime_ns == written for path, written in done.items())
    assert len(list(run.glob("*/*/*/part.json"))) > len(done)


def test_what_is_wrong_with_a_run_is_told(cluster: None, dumps: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    baseline, candidate = dumps
    with pytest.raises(RuntimeError, match="No such file"):
        distributed.compare(baseline, tmp_path / "none", output=tmp_path / "run", quiet=True)
    with pytest.raises(ValueError, match="unknown field `stepss`"):
        distributed.compare(baseline, candidate, output=tmp_path / "run", stepss="3", quiet=True)
    with monkeypatch.context() as patched:
        patched.setattr(_core, "build_id", lambda: "another")
        with pytest.raises(distributed.DistributedError, match="a worker has probe .*, the driver another"):
            distributed.compare(baseline, candidate, output=tmp_path / "run", cpus_per_task=1, quiet=True)
