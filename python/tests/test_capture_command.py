"""`probe capture` itself: it becomes the program, and says what is wrong before it does.

Needs the command: `PROBE_BIN` names one, or the package is installed with its compiled core.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fork_server
import pytest

PACKAGE = Path(__import__("probe").__file__).resolve().parent
HERE = Path(__file__).resolve().parent

if binary := os.environ.get("PROBE_BIN"):
    COMMAND = [binary]
else:
    COMMAND = [sys.executable, "-m", "probe"]

pytestmark = pytest.mark.skipif(
    "PROBE_BIN" not in os.environ and importlib.util.find_spec("probe._core") is None,
    reason="needs the command: set PROBE_BIN, or install the package",
)

SHOW = "import json, os, sys; print(json.dumps([json.loads(os.environ['PROBE_CAPTURE']), os.environ['PYTHONPATH'], sys.argv]))"


def environment(home: Path, **more: str) -> dict[str, str]:
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("PROBE_", "XDG_"))}
    return plain | {"PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), str(HERE)]), "HOME": str(home)} | more


def capture(*arguments: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "capture", *arguments],
        cwd=cwd,
        env=environment(cwd, **more),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        input="typed\n",
    )


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_settings_reach_the_program(tmp_path: Path) -> None:
    (tmp_path / "probe.toml").write_text("level = 'op'")
    options = ["--config", "probe.toml", "--steps", "10,20", "--ranks", "0-3", "--task", "hash", "--level", "api", "-o", "dump"]
    options += ["--include", "conv1", "--include", "torch.relu", "--exclude", "fc", "--max-bytes", "2GB", "--perturb", "--recheck", "--poison"]
    done = capture(*options, "--", sys.executable, "-c", SHOW, "--steps", "-tp", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    order, path, arguments = json.loads(done.stdout)
    assert order["arguments"] == {
        "steps": "10,20",
        "ranks": "0-3",
        "task": "hash",
        "level": "api",
        "output": "dump",
        "include": ["conv1", "torch.relu"],
        "exclude": ["fc"],
        "max_bytes": "2GB",
        "perturb": 0,
        "recheck": True,
        "poison": True,
    }
    assert order["config"] == str(tmp_path / "probe.toml") and order["directory"] == str(tmp_path)
    assert path.split(os.pathsep) == [str(PACKAGE / "_bootstrap"), str(PACKAGE.parent), str(HERE)]
    assert arguments[1:] == ["--steps", "-tp"], "the program's own arguments are left alone"


@pytest.mark.parametrize(
    ("code", "status"), [("sys.exit(0)", 0), ("sys.exit(7)", 7), ("sys.exit('why')", 1), ("os.abort()", -signal.SIGABRT)]
)
def test_the_exit_code_is_the_programs(tmp_path: Path, code: str, status: int) -> None:
    assert capture("--", sys.executable, "-c", f"import os, sys; {code}", cwd=tmp_path).returncode == status


def test_the_terminal_is_the_programs(tmp_path: Path) -> None:
    done = capture("--", "cat", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "typed\n", "")


def test_signals_are_the_programs(tmp_path: Path) -> None:
    # As a file: `python -c` itself turns a Ctrl-C into code 1.
    # Whatever runs the tests in the background may have had interrupts ignored.
    code = (
        "import signal, sys, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(33))\nprint('ready', flush=True)\ntime.sleep(60)"
    )
    (tmp_path / "wait.py").write_text(code)
    for number, status in ((signal.SIGTERM, 33), (signal.SIGINT, -signal.SIGINT)):
        process = subprocess.Popen(
            [*COMMAND, "capture", "--", sys.executable, "wait.py"],
            cwd=tmp_path,
            env=environment(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(60) == status
        process.communicate()


def test_a_training_is_recorded(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(
        "import fake_recorder, torch\nmodel = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(3):\n    model(torch.ones(2)).sum().backward()\n    optimizer.step()\n"
    )
    log = tmp_path / "log"
    for command in ([fork_server.python(), "train.py"], ["sh", "-c", f"{sys.executable} train.py"]):
        log.unlink(missing_ok=True)
        done = capture("--steps", "1", "--", *command, cwd=tmp_path, FAKE_LOG=str(log))
        assert (done.returncode, done.stderr) == (0, "")
        records: list[dict[str, Any]] = [json.loads(line) for line in log.read_text().splitlines()]
        assert [record["event"] for record in records] == ["made", "start", "step", "step", "close"]
        assert records[0]["settings"]["output"] == str(tmp_path / "probe_dump")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("stpes = 1", ["--config", "probe.toml"], "unknown key 'stpes'; did you mean 'steps'?"),
        ("level = 'modul'", ["--config", "probe.toml"], "did you mean 'module'?"),
        ("", ["--config", "other.toml"], "other.toml"),
        ("", ["--max-bytes", "2 apples"], "max_bytes: '2 apples' has an unknown unit"),
        ("", ["--include", ""], "include: '' is not the name"),
        ("", ["--level", "modul"], "module"),
        ("", ["--steps", "one"], "--steps"),
        ("", ["--stpes", "1"], "--steps"),
    ],
)
def test_a_mistake_is_said_before_the_program_runs(tmp_path: Path, text: str, options: list[str], message: str) -> None:
    (tmp_path / "probe.toml").write_text(text)
    done = capture(*options, "--", sys.executable, "-c", "print('ran')", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "") and message in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def _dump(folder: Path) -> dict[Path, bytes]:
    """Stands for the dump of another run."""
    (folder / "step0" / "rank0").mkdir(parents=True)
    manifest = {
        "format": "probe dump", "format_version": 1, "tool": {"name": "probe", "version": "0"}, "world_size": 1, "level": "mix",
        "task": "sketch", "sketch_version": 1, "started": "2026-01-01T00:00:00+00:00",
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "step0" / "rank0" / "ops.parquet").write_bytes(b"PAR1")
    return _files(folder)


def _files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("options", [[], ["-o", "gpu"], ["--config", "probe.toml"]])
@pytest.mark.parametrize("launcher", [[], ["sh", "-c", 'exec "$0" "$@"']])
def test_a_used_folder_is_refused_before_the_program_runs(tmp_path: Path, options: list[str], launcher: list[str]) -> None:
    (tmp_path / "probe.toml").write_text("output = 'gpu'")
    folder = tmp_path / ("gpu" if options else "probe_dump")
    before = _dump(folder)
    program = [*launcher, sys.executable, "-c", "print('ran')"]
    done = capture(*options, "--", *program, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert f"{folder}: already holds a dump of 2026-01-01" in done.stderr and "Traceback" not in done.stderr
    assert f"such as {folder}-2, or replace it with --overwrite" in done.stderr
    assert _files(folder) == before
    done = capture(*options, "--overwrite", "--", "no-such-program", cwd=tmp_path)
    assert done.returncode == 2 and _files(folder) == before, "nothing makes room for a program that is not there"
    done = capture(*options, "--overwrite", "--", *program, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "ran\n") and not (folder / "step0").exists(), done


def test_a_folder_of_somebodys_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("irreplaceable")
    for options in ([], ["--overwrite"]):
        done = capture("-o", "mine", *options, "--", sys.executable, "-c", "print('ran')", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "") and "is not empty and not a probe dump" in done.stderr, done
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("options", [["-I"], ["-uS"], ["-X", "dev", "-E"]])
def test_an_interpreter_that_cannot_load_the_recorder_is_refused(tmp_path: Path, options: list[str]) -> None:
    done = capture("--", sys.executable, *options, "-c", "print('ran')", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.count("\n") == 1
    assert f"-{options[-1][-1]}: the recorder cannot be loaded" in done.stderr


def test_an_interpreter_without_the_package_is_refused(tmp_path: Path) -> None:
    done = capture("--", sys.executable, "-c", "print('ran')", cwd=tmp_path)
    assert done.returncode == 0
    (tmp_path / "empty" / "probe").mkdir(parents=True)
    (tmp_path / "empty" / "probe" / "__init__.py").write_text("")
    if "PROBE_BIN" in os.environ:
        done = capture("--", sys.executable, "-c", "print('ran')", cwd=tmp_path, PYTHONPATH=str(tmp_path / "empty"))
        assert (done.returncode, done.stdout) == (2, "") and done.stderr.count("\n") == 1
        assert "has no working package probe" in done.stderr and "-m pip install probe-precision" in done.stderr


def test_a_script_is_asked_through_its_first_line(tmp_path: Path) -> None:
    script = executable(tmp_path / "torchrun", f"#!{sys.executable} -I\nprint('ran')\n")
    done = capture("--", str(script), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "") and "-I: the recorder cannot be loaded" in done.stderr
    executable(script, f"#!{sys.executable}\nprint('ran')\n")
    done = capture("--", "torchrun", cwd=tmp_path, PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    for name in ("no-such-program", "./no-such-program", "python9.99"):
        done = capture("--", name, cwd=tmp_path)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and name in done.stderr, done.stderr
    assert capture("--steps", "1", cwd=tmp_path).returncode == 2


def test_a_file_of_the_packages_name_beside_the_program_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text("raise SystemExit('the wrong one')")
    if "PROBE_BIN" in os.environ:
        done = capture("--", sys.executable, "-c", "print('ran')", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr


def test_the_bootstrap_for_a_shell_script_lies_in_the_cache(tmp_path: Path) -> None:
    done = capture("--", "sh", "-c", "echo $PYTHONPATH", cwd=tmp_path)
    folder = Path(done.stdout.strip().split(os.pathsep)[0])
    assert (folder / "sitecustomize.py").read_text() == (PACKAGE / "_bootstrap" / "sitecustomize.py").read_text()
    if "PROBE_BIN" in os.environ:
        assert folder.is_relative_to(tmp_path / ".cache" / "probe")
        done = subprocess.run(
            [*COMMAND, "capture", "--", "true"], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2 and "set HOME or XDG_CACHE_HOME" in done.stderr


def test_a_capture_inside_a_capture_is_one_of_its_own(tmp_path: Path) -> None:
    done = capture("--steps", "1", "--", *COMMAND, "capture", "--steps", "2", "--", sys.executable, "-c", SHOW, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    order, path, _ = json.loads(done.stdout)
    assert order["arguments"] == {"steps": "2"}


def test_the_command_adds_little_to_the_start(tmp_path: Path) -> None:
    began = time.monotonic()
    assert capture("--", sys.executable, "-c", "pass", cwd=tmp_path).returncode == 0
    # One more start of an interpreter; generous, since the machine may be busy.
    assert time.monotonic() - began < 30
