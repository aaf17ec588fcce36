"""A program that the fork server runs does what it does in an interpreter of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import fork_server
import pytest

pytest.importorskip("torch")

#: Programs whose output is the same in every process.
PROGRAMS = {
    "arguments": "import sys; print(sys.argv[1:], __name__, __file__, sys.path[:2], sys.flags.optimize, sys.modules['__main__'].__file__)",
    "input": "import sys; print(sys.stdin.read())",
    "exit code": "import sys; print('out'); sys.exit(7)",
    "exit text": "import sys; sys.exit('why')",
    "exception": "def f():\n    raise KeyError('mine')\nprint('before')\nf()",
    "syntax": "print(1",
    "interrupt": "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\nsignal.raise_signal(signal.SIGINT)",
    "killed": "import os; print('lost'); os.kill(os.getpid(), 9)",
    "terminated": "import os, signal, time; os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)",
    "aborted": "import os; os.abort()",
    "at the end": "import atexit\natexit.register(print, 'first')\natexit.register(print, 'second')\nraise SystemExit",
    "thread": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\nprint('main')",
    "fork": "import os\nchild = os.fork()\nif not child: print('child'); raise SystemExit(3)\nprint(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))",
    "environment": "import os; print(os.environ['GIVEN'], 'GONE' in os.environ, os.getcwd(), os.getenv('OMP_NUM_THREADS'))",
    "threads": "import torch; print(torch.get_num_threads(), torch.ones(3).sum().item())",
    "spawn": "import torch.multiprocessing as m\ndef f(x): print(x, flush=True)\nif __name__ == '__main__':\n    p = m.get_context('spawn').Process(target=f, args=(5,)); p.start(); p.join()",
    "own files": "open('made', 'w').write('x'); import os, stat; print(oct(stat.S_IMODE(os.stat('made').st_mode)))",
    "own module": "import beside; print(beside.value)",
}


def run(interpreter: str, folder: Path, *arguments: str) -> tuple[int, str, str]:
    environment = {name: value for name, value in os.environ.items() if name != "GONE"} | {"GIVEN": "5", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([interpreter, *arguments], cwd=folder, env=environment, input="typed", capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_script_ends_as_it_does_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("GONE", "1")
    (tmp_path / "program.py").write_text(PROGRAMS[name])
    (tmp_path / "beside.py").write_text("value = 3")
    assert run(fork_server.python(), tmp_path, "program.py", "-m", "x") == run(sys.executable, tmp_path, "program.py", "-m", "x")


@pytest.mark.parametrize("arguments", [("-c", "import sys; print(sys.argv, sys.path[0])", "x"), ("-m", "beside", "x"), ("-m", "no_such_module")], ids=str)
def test_so_do_texts_and_modules(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "beside.py").write_text("import sys; print(sys.argv[1:], __name__, sys.path[0])")
    ours, theirs = (run(python, tmp_path, *arguments) for python in (fork_server.python(), sys.executable))
    assert (ours[0], ours[1], ours[2].replace(fork_server.python(), sys.executable)) == theirs


def test_torch_is_there_already_and_the_server_is_the_parent(tmp_path: Path) -> None:
    text = "import sys; print('torch' in sys.modules, 'torch._dynamo' in sys.modules)"
    assert run(fork_server.python(), tmp_path, "-c", text)[1] == "True True\n"
    assert run(sys.executable, tmp_path, "-c", text)[1] == "False False\n"
    # With an option, or a variable that libraries read as they are loaded, it is a real interpreter.
    assert run(fork_server.python(), tmp_path, "-I", "-c", text)[1] == "False False\n"
    assert run("env", tmp_path, "ATEN_CPU_CAPABILITY=default", fork_server.python(), "-c", text)[1] == "False False\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_signals_reach_the_program(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "wait.py").write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)")
    with subprocess.Popen([fork_server.python(), "wait.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        process = int(program.stdout.readline())
        program.send_signal(number)
        assert program.wait(60) == -number
    until = time.monotonic() + 60
    while Path(f"/proc/{process}").exists():
        assert time.monotonic() < until, "the program goes on"
        time.sleep(0.05)
