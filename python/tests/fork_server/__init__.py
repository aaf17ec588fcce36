"""An interpreter for programs under test that has torch imported already: it takes the place of `sys.executable`.

Importing torch, and with it what the first optimizer imports, takes three seconds, and the tests run hundreds of programs. `python()` names an
executable that is used as Python is, also below `probe capture` and in shell scripts. It passes its arguments, environment, working folder and
standard streams to a server, which has torch imported and forks a child for each program; then it ends as the child ended. A server belongs to one
process of pytest and is started when it is first needed.

Where a fork would not be the same (an option of the interpreter, a variable that libraries read as they are loaded) it becomes a real interpreter: see
`client.py`. Tests of the start itself use `sys.executable`.
"""

from __future__ import annotations

import atexit
import os
import py_compile
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent

#: Imported by nearly every training. Torch imports the second when an optimizer is made.
TRAINING = ("torch", "torch._dynamo", "torch.utils.data", "torch.distributed", "torch.nn.parallel", "numpy.random")


@cache
def python(*further: str, first: Path | None = None, variables: tuple[tuple[str, str], ...] = ()) -> str:
    """Path of an interpreter that has imported the modules of `TRAINING` and `further`, in an environment with `variables`. The file `first` is
    imported before all of them."""
    folder = Path(tempfile.mkdtemp(prefix="fork-server-"))
    # Frames of this file are not the program's: who looks at the stack sees them as Python's own.
    program = py_compile.compile(str(HERE / "server.py"), str(folder / "server.pyc"), "<frozen fork server>", doraise=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PROBE_", "PYTEST_"))} | dict(variables)
    command = [sys.executable, program, str(folder / "socket"), *([str(first)] if first else []), *TRAINING, *further]
    # NumPy's library for products would start threads, which a child would not have.
    server = subprocess.Popen(
        command, env=environment | {"OPENBLAS_NUM_THREADS": "1"}, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    atexit.register(_stop, server)
    said = []
    assert server.stdout is not None
    while (line := server.stdout.readline()) != "ready\n":
        if not line:
            raise RuntimeError(f"the fork server ended with {server.wait()}: {' '.join(command)}\n{''.join(said)}")
        said.append(line)
    client = folder / "python"
    settings = f"SOCKET, PYTHON, ENVIRONMENT = {str(folder / 'socket')!r}, {sys.executable!r}, {environment!r}\n"
    # Without the environment and the installed packages, of which it needs nothing: it starts in a hundredth of a second.
    client.write_text(f"#!{sys.executable} -IS\n{settings}{(HERE / 'client.py').read_text()}")
    client.chmod(0o755)
    (folder / "python3").symlink_to("python")
    return str(client)


def _stop(server: subprocess.Popen[str]) -> None:
    assert server.stdin is not None and server.stdout is not None
    server.stdin.close()
    server.stdout.close()
    server.wait()
