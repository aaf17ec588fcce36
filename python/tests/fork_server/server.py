"""Imports modules, then forks a child for every program that a client asks for: `server.py SOCKET MODULE…`. A module may be a file.

A request is the length of what follows, which comes with the client's standard streams; and arguments, working folder, environment, process, numbers
of the streams, and umask. The answers are the child's process and how it ended, of 8 bytes each. When a client is gone its child is killed. The
server ends with its standard input, and removes the folder of its socket.
"""

from __future__ import annotations

import array
import atexit
import gc
import importlib
import io
import marshal
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import threading
import types
from typing import Any, NoReturn

#: Where modules are looked for, without the folder of this file, and without those that the environment names.
_BEYOND = len(os.environ["PYTHONPATH"].split(os.pathsep)) if os.environ.get("PYTHONPATH") else 0
PATH = sys.path[1 + _BEYOND :]


class Request:
    """A program that is to be run, and who asked for it."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        length, ancillary, _, _ = client.recvmsg(8, socket.CMSG_SPACE(3 * 4))
        self.files = array.array("i")
        for _, _, files in ancillary:
            self.files.frombytes(files)
        text = b""
        while len(text) < int.from_bytes(length, "big"):
            text += (part := client.recv(1 << 20))
            if not part:
                raise ConnectionError("the client has ended")
        self.arguments, self.folder, self.variables, process, self.streams, self.umask = marshal.loads(text)
        self.process = str(process)

    def adopt(self) -> None:
        """Make this process the one that was asked for, but for running the program."""
        for number in range(3):
            if number not in self.streams:
                os.close(number)
        for number, file in zip(self.streams, self.files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(self.folder)
        os.umask(self.umask)
        os.environ.clear()
        os.environ.update(self.variables)
        for name, value in self.variables.items():
            # The command that became the client has told it so.
            if name.endswith("_PID") and value == self.process:
                os.environ[name] = str(os.getpid())
        sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
        sys.pycache_prefix = os.environ.get("PYTHONPYCACHEPREFIX") or None
        if threads := os.environ.get("OMP_NUM_THREADS"):
            sys.modules["torch"].set_num_threads(int(threads))
        if numpy := sys.modules.get("numpy.random"):
            numpy.seed()
        self._start()

    def _start(self) -> None:
        """Do as an interpreter does before it runs a program."""
        sys.orig_argv = self.arguments
        # Programs that it starts are forked off as well.
        sys.executable = os.path.abspath(self.arguments[0])
        if self.arguments[1] == "-u":
            del self.arguments[1]
            sys.stdout = io.TextIOWrapper(open(1, "wb", buffering=0, closefd=False), sys.stdout.encoding, sys.stdout.errors, write_through=True)
        further = os.environ.get("PYTHONPATH")
        sys.path[:] = [*(os.path.abspath(folder) for folder in (further.split(os.pathsep) if further else ())), *PATH]
        importlib.invalidate_caches()
        sys.modules.pop("sitecustomize", None)
        try:
            importlib.import_module("sitecustomize")
        except ImportError as error:
            if error.name != "sitecustomize":
                raise
        sys.modules["__main__"] = types.ModuleType("__main__")

    def run(self) -> None:
        """Run the program."""
        kind, *rest = self.arguments[1:]
        module = sys.modules["__main__"]
        if kind == "-c":
            sys.argv = ["-c", *rest[1:]]
            sys.path.insert(0, "")
            exec(compile(rest[0], "<string>", "exec"), module.__dict__)
        elif kind == "-m":
            sys.argv = ["-m", *rest[1:]]
            sys.path.insert(0, os.getcwd())
            runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
        else:
            sys.argv = [kind, *rest]
            sys.path.insert(0, os.path.dirname(os.path.realpath(kind)))
            module.__file__ = path = os.path.abspath(kind)
            with open(path, "rb") as script:
                text = script.read()
            exec(compile(text, path, "exec"), module.__dict__)


def main() -> Request:
    """Serve; returns in each child, with what it is to do."""
    address, *modules = sys.argv[1:]
    for name in modules:
        if name.endswith(".py"):
            runpy.run_path(name)
        else:
            importlib.import_module(name)
    _check_threads()
    # The collector leaves alone all that is there by now, so that the children share it.
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    wake, woken = os.pipe()
    for end in (wake, woken):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    os.write(1, b"ready\n")
    children: dict[int, socket.socket] = {}
    poll = select.poll()
    for file in (0, wake, listener.fileno()):
        poll.register(file, select.POLLIN)
    while True:
        # One at a time: the next may be about a file that is closed by then, and its number another's.
        file = min((file for file, _ in poll.poll()), key=lambda file: (file != wake, file))
        if file == 0:
            for child in children:
                os.kill(child, signal.SIGKILL)
            # Also where pytest was killed.
            shutil.rmtree(os.path.dirname(address), ignore_errors=True)
            os._exit(0)
        elif file == wake:
            os.read(wake, 4096)
            _bury(children, poll)
        elif file == listener.fileno():
            client, _ = listener.accept()
            try:
                request = Request(client)
            except OSError:
                client.close()
                continue
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for other in (client, listener, *children.values()):
                    other.close()
                os.close(wake)
                os.close(woken)
                return request
            for sent in request.files:
                os.close(sent)
            children[child] = client
            poll.register(client, select.POLLIN)
            try:
                client.sendall(child.to_bytes(8, "big"))
            except OSError:
                # It is gone already, of which the next round hears.
                pass
        else:
            # It has been killed, as nothing more comes from it.
            for child, client in children.items():
                if client.fileno() == file:
                    os.kill(child, signal.SIGKILL)
            poll.unregister(file)


def _bury(children: dict[int, socket.socket], poll: select.poll) -> None:
    """Tell the clients of children that have ended how they did."""
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            break
        client = children.pop(child)
        try:
            poll.unregister(client)
        except KeyError:
            pass
        try:
            client.sendall(status.to_bytes(8, "big"))
        except OSError:
            pass
        client.close()


def _check_threads() -> None:
    """A child has none of its parent's threads: what waits for one would wait forever."""
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        sys.exit(f"the fork server has {threads} threads after its imports")


def program(request: Request) -> NoReturn:
    """Run the program, and end as an interpreter ends."""
    code: Any = 0
    interrupted = False
    try:
        request.adopt()
        request.run()
    except SystemExit as leaving:
        code = leaving.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException as error:
        # Without the frame of this function and of its callees.
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == _HERE:
            trace = trace.tb_next
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        code, interrupted = 1, isinstance(error, KeyboardInterrupt)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            code = code or 120
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    # Without taking the interpreter and its libraries apart, which takes longer than most programs.
    os._exit((code or 0) & 0xFF)


_HERE = program.__code__.co_filename
program(main())
