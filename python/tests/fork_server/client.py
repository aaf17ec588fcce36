# Stands for an interpreter: has the server run the program, and ends as it ended. `SOCKET`, `PYTHON` and `ENVIRONMENT`, the server's own, are
# assigned above. It imports next to nothing, since it is started for every program.

import _signal
import _socket
import marshal
import os
import sys

#: Variables that a program reads while it runs, and those that the server sets in its child. All others that begin like one of `EARLY` are read by
#: libraries as they are loaded, which is over in the server.
LATE = {"OMP_NUM_THREADS", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "TORCH_NCCL_ASYNC_ERROR_HANDLING"}
EARLY = (
    "ASCEND_SIM_DEVICES", "ASCEND_SIM_MISSING", "ATEN_", "CUDA_", "GOMP_", "KMP_", "LD_", "MKL_", "OMP_", "OPENBLAS_", "PYTHON", "TASK_QUEUE_", "TORCH_", "TORCHDYNAMO_",
    "TORCHINDUCTOR_", "TRITON_",
)  # fmt: skip


def early(variables):
    return {name: value for name, value in variables.items() if name.startswith(EARLY) and name not in LATE}


def is_served():
    """The server can run this: a script, a module or a text, with no option of the interpreter but -u, and without files beside the standard
    streams."""
    arguments = sys.argv[2:] if sys.argv[1:2] == ["-u"] else sys.argv[1:]
    kind = arguments[0] if arguments else "-"
    if kind not in ("-c", "-m") and (kind.startswith("-") or not os.path.isfile(kind)) or kind in ("-c", "-m") and len(arguments) < 2:
        return False
    beyond = [file for file in map(int, os.listdir("/proc/self/fd")) if file > 2 and is_open(file)]
    return not beyond and early(os.environ) == early(ENVIRONMENT)


def is_open(file):
    try:
        os.fstat(file)
    except OSError:
        return False
    return True


def main():
    if not is_served():
        os.execv(PYTHON, [PYTHON, *sys.argv[1:]])
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    server.connect(SOCKET)
    streams = [file for file in range(3) if is_open(file)]
    request = marshal.dumps((sys.argv, os.getcwd(), dict(os.environ), os.getpid(), streams, os.umask(0)))
    files = b"".join(file.to_bytes(4, sys.byteorder) for file in streams)
    server.sendmsg([len(request).to_bytes(8, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
    server.sendall(request)
    child = int.from_bytes(server.recv(8), "big")
    if not child:
        sys.exit("the fork server has ended")
    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2):
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, lambda number, frame: os.kill(child, number))
    status = server.recv(8)
    if len(status) < 8:
        sys.exit("the fork server has ended")
    code = os.waitstatus_to_exitcode(int.from_bytes(status, "big"))
    if code < 0:
        # Without another dump of its memory.
        _signal.signal(-code, _signal.SIG_DFL) if -code not in (_signal.SIGKILL, _signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
