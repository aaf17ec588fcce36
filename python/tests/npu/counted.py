"""Imported by the fork server of the simulated device: programs that it forks end without what the device's libraries do at the end of a process."""

import atexit
import ctypes
import os


def _write() -> None:
    if path := os.environ.get("ASCEND_SIM_COUNTS"):
        ctypes.CDLL("libascendcl.so").ascend_sim_write_counts(path.encode())


# Imported before all others, and so the last to be called.
atexit.register(_write)
