"""Whatever happens to the disk or to the process, training goes on and what was recorded can be read."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import probe
from dumps import Dump, steps
from probe.recorder import core
from runs import ConvNet, assert_same, in_child, on_ranks, train

PACKAGE = Path(probe.__file__).resolve().parent.parent


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command line, without loading torch."""
    program = os.environ.get("PROBE_BIN")
    start = [program] if program else [sys.executable, "-m", "probe"]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    return subprocess.run(
        [*start, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def _steps(output: Path, count: int, level: str = "op", **settings: Any) -> None:
    torch.manual_seed(0)
    model = ConvNet()
    with probe.capture(output, model=model, level=level, task="statistics", **settings) as capture:
        for _ in range(count):
            model(torch.randn(2, 3, 8, 8)).sum().backward()
            capture.step()


def test_a_folder_that_cannot_be_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    plain = train("conv")
    for output in (tmp_path / "file" / "dump", Path("/proc/nowhere/dump")):
        assert_same(plain, train("conv", lambda model: probe.Capture(output, model)))
        said = [line for line in capfd.readouterr().err.splitlines() if "recording stopped" in line]
        assert len(said) == 1 and str(output.parent.name) in said[0] and "training goes on" in said[0]


def test_a_folder_that_holds_something_else(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("irreplaceable")
    with pytest.raises(probe.SettingsError, match="is not empty and not a probe dump"):
        _steps(folder, 1)
    # Where it is only seen when recording begins, training goes on.
    _steps(folder, 1, overwrite=True)
    assert "recording stopped" in capfd.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]


def test_a_dump_that_is_there_already_stays(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _steps(tmp_path / "dump", 2)
    before = _files(tmp_path / "dump")
    capfd.readouterr()
    with pytest.raises(probe.SettingsError, match="already holds a dump.*such as .*dump-2.*overwrite=True"):
        _steps(tmp_path / "dump", 1)
    with pytest.raises(probe.SettingsError, match="already holds a dump"):
        probe.PrecisionDebugger(dump_path=str(tmp_path / "dump"))
    assert _files(tmp_path / "dump") == before
    assert capfd.readouterr().err == ""
    _steps(tmp_path / "dump", 1, overwrite=True)
    assert steps(tmp_path / "dump") == [0], "the old dump made room"
    # A run that recorded nothing has left nothing to keep.
    with probe.capture(tmp_path / "nothing", level="op"):
        pass
    _steps(tmp_path / "nothing", 1)
    assert steps(tmp_path / "nothing") == [0]


def _files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_ranks_share_the_folder_of_their_run_and_of_no_other(tmp_path: Path) -> None:
    def work(rank: int) -> None:
        if rank:
            # The first one has recorded, and has closed its dump.
            torch.distributed.barrier()
        with probe.capture(tmp_path / "dump", level="op", task="statistics"):
            torch.ones(1).sin()
        if not rank:
            torch.distributed.barrier()

    def again(rank: int) -> None:
        with pytest.raises(probe.SettingsError, match="already holds a dump"):
            probe.Capture(tmp_path / "dump")

    on_ranks(work, tmp_path)
    before = _files(tmp_path / "dump")
    assert {path.parent.name for path in before if path.suffix == ".parquet"} == {"rank0", "rank1"}
    (tmp_path / "store").unlink(missing_ok=True)
    on_ranks(again, tmp_path)
    assert _files(tmp_path / "dump") == before


@pytest.mark.parametrize("on_device", [False, True])
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_device: bool) -> None:
    # Records of a device are written by a thread, after the step has ended.
    monkeypatch.setattr(core, "_AS_ON_DEVICE", on_device)

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        plain = train("conv")
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000) if on_device else (100_000, 100_000))
        task = "sketch" if on_device else "tensor"
        assert_same(plain, train("conv", lambda model: probe.Capture(tmp_path / "dump", model, level="op", task=task)))

    log = tmp_path / "log"
    assert in_child(work, log) == 0, log.read_text()
    assert log.read_text().count("recording stopped") == 1, log.read_text()
    assert "File too large" in Dump(tmp_path / "dump", journal=True).manifest["stopped"]
    shown = command("inspect", tmp_path / "dump")
    assert "recording" in shown.stdout + shown.stderr or shown.returncode == 3, shown


def _mounted(folder: Path) -> bool:
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], capture_output=True, check=False)
    return done.returncode == 0


def test_a_file_system_without_room(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "small"
    if not _mounted(folder):
        pytest.skip("needs the right to mount")
    try:
        plain = train("transformer")
        seen = train("transformer", lambda model: probe.Capture(folder / "dump", model, level="op", task="tensor"))
        assert_same(plain, seen)
        assert capfd.readouterr().err.count("recording stopped") == 1
        assert command("inspect", folder / "dump").returncode in (0, 3)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _wait_for(path: Path, size: int = 0) -> None:
    end = time.monotonic() + 60
    while not path.exists() or path.stat().st_size < size:
        assert time.monotonic() < end, f"{path.name} does not come"
        time.sleep(0.01)


def test_kill_in_the_middle_of_a_step(tmp_path: Path) -> None:
    def work(kill: bool) -> None:
        torch.manual_seed(0)
        model = ConvNet()
        with probe.capture(tmp_path / f"kill-{kill}", model=model, level="op", task="statistics") as capture:
            for step in range(2):
                x = torch.randn(2, 3, 8, 8)
                for _ in range(12):
                    model(x).sum().backward()
                    if step and kill and _ == 9:
                        # A step that ended is written behind the training; that it comes in time is not asked here.
                        _wait_for(tmp_path / "kill-True" / "step0" / "rank0" / "ops.parquet")
                        _wait_for(tmp_path / "kill-True" / "step1" / "rank0" / "journal.arrows", 10_000)
                        os.kill(os.getpid(), signal.SIGKILL)
                capture.step()

    log = tmp_path / "log"
    assert in_child(lambda: work(True), log) == -signal.SIGKILL, log.read_text()
    assert in_child(lambda: work(False), log) == 0, log.read_text()
    dead, alive = tmp_path / "kill-True", tmp_path / "kill-False"
    assert Dump(dead).names == Dump(alive).names, "a finished step is whole"
    part, whole = Dump(dead, 1, journal=True).names, Dump(alive, 1).names
    assert 100 < len(part) < len(whole) and part == whole[: len(part)]
    shown = command("inspect", dead)
    assert "incomplete" in shown.stdout + shown.stderr and "step 1" in shown.stdout
    compared = command("compare", "-b", alive, "-c", dead, "-o", tmp_path / "report")
    assert compared.returncode == 3, compared


def test_ops_that_come_slowly_do_not_wait_for_others(tmp_path: Path) -> None:
    def work() -> None:
        with probe.capture(tmp_path / "dump", level="op", task="statistics"):
            torch.ones(1).sin()
            time.sleep(1.2)
            torch.ones(1).cos()
            time.sleep(2)
            os.kill(os.getpid(), signal.SIGKILL)

    log = tmp_path / "log"
    assert in_child(work, log) == -signal.SIGKILL, log.read_text()
    assert "Aten.sin.0.forward" in Dump(tmp_path / "dump", journal=True).names


def test_a_forked_process_is_not_recorded(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    dump = tmp_path / "dump"

    def work() -> None:
        for _ in range(400):
            model(torch.ones(1, 2)).sin().sum().backward()
        probe.save("mine", torch.ones(1))

    def leave(code: int) -> None:
        sys.exit(code)

    with probe.capture(dump, model=model, level="op"):
        model(torch.ones(1, 2))
        # The second leaves as a program does, with all that is done at the end of the interpreter.
        program = (
            "import os, sys, torch, probe\n"
            "with probe.capture(sys.argv[1], level='op') as capture:\n"
            "    torch.ones(1).cos()\n"
            "    child = os.fork()\n"
            "    if not child:\n"
            "        [torch.ones(1).sin() for _ in range(3000)]\n"
            "        sys.exit(3)\n"
            "    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3\n"
            "    torch.ones(1).tan()\n"
        )
        assert in_child(work, tmp_path / "log") == 0, (tmp_path / "log").read_text()
        model(torch.ones(1, 2))
    assert not [name for name in Dump(dump).names if "sin" in name]
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "other")],
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Dump(tmp_path / "other").names == ["Aten.ones.0.forward", "Aten.cos.0.forward", "Aten.tan.0.forward"] or [
        name for name in Dump(tmp_path / "other").names if "sin" not in name
    ][-1] == "Aten.tan.0.forward"
    assert not [name for name in Dump(tmp_path / "other").names if "sin" in name]


class _Items(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return nn.functional.relu(torch.full((2,), float(index))).exp()


@pytest.mark.parametrize("level", ["mix", "op"])
def test_workers_of_a_loader_are_not_recorded(tmp_path: Path, level: str) -> None:
    model = nn.Linear(2, 2)
    with probe.capture(tmp_path / "dump", model=model, level=level, task="statistics"):
        total = 0
        for batch in DataLoader(_Items(), batch_size=2, num_workers=2):
            model(batch).sum().backward()
            total += 1
    assert total == 4
    dump = Dump(tmp_path / "dump")
    assert not [name for name in dump.names if ".exp." in name or ".relu." in name]
    wanted = "Module.Linear.Linear.forward.3" if level == "mix" else "Aten.addmm.3.forward"
    assert wanted in dump, dump.names


@pytest.mark.parametrize("end", ["pass", "sys.exit(5)", "raise LookupError('theirs')"])
def test_a_program_that_never_closes(tmp_path: Path, end: str) -> None:
    def work() -> None:
        import atexit

        atexit._clear()
        capture = probe.Capture(tmp_path / "dump", level="op")
        capture.start()
        torch.ones(2).add(1)
        try:
            exec(end, {"sys": sys})
        finally:
            atexit._run_exitfuncs()

    in_child(work, tmp_path / "log")
    dump = Dump(tmp_path / "dump")
    assert "Aten.add.0.forward" in dump and dump.manifest["notes"] == []
    assert ("theirs" in (tmp_path / "log").read_text()) == ("theirs" in end)


@pytest.mark.parametrize("level", ["module", "mix", "op"])
def test_modules_that_run_on_other_threads(tmp_path: Path, level: str) -> None:
    model = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(4))
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            for _ in range(10):
                model[index](torch.ones(2, 4)).sum().backward()
        except BaseException as error:
            failures.append(error)

    with probe.capture(tmp_path / "dump", model=model, level=level, task="hash"):
        threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
    dump = Dump(tmp_path / "dump")
    assert dump.manifest["notes"] == []
    assert len(dump.names) == len(set(dump.names))
    if level == "op":
        assert len([op for op in dump.ops if op.name.startswith("Aten.addmm.") and op.phase == "forward"]) == 40
    else:
        assert len([op for op in dump.ops if ".Linear.forward." in op.name]) == 40
        assert {op.scope for op in dump.ops if op.name.startswith("Functional.linear.")} == (
            {f"Module.{i}.0.Linear.forward.{n}" for i in range(4) for n in range(10)} if level == "mix" else set()
        )


def test_stopping_while_another_thread_is_in_a_module(tmp_path: Path) -> None:
    inside, stopped = threading.Event(), threading.Event()
    left: list[int] = []

    class Waits(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.cos()
            inside.set()
            stopped.wait(60)
            return x.sin()

    def work() -> None:
        from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

        model = Waits()
        model(torch.ones(2))
        left.append(len(_get_current_dispatch_mode_stack()))
        # On again: this thread is recorded again.
        capture.start()
        stopped.set()
        model(torch.ones(2))

    capture = probe.Capture(tmp_path / "dump", level="op", task="statistics")
    capture.start()
    thread = threading.Thread(target=work)
    thread.start()
    assert inside.wait(60)
    capture.stop()
    stopped.set()
    thread.join()
    capture.close()
    names = [name for name in Dump(tmp_path / "dump").names if "cos" in name or "sin" in name]
    assert names == ["Aten.cos.0.forward", "Aten.cos.1.forward", "Aten.sin.0.forward"], names
