"""Scripts written for the older tool, run as they are: its debugger, its profiler, and the files that configure them."""

from probe.dropin.config_file import read
from probe.dropin.debugger import PrecisionDebugger
from probe.dropin.profiler import ApiProfiler

__all__ = ["ApiProfiler", "PrecisionDebugger", "read"]
