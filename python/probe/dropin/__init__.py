"""Runs scripts written for the older tool unchanged: its debugger, its profiler, and its configuration files."""

from probe.dropin.config_file import read
from probe.dropin.debugger import PrecisionDebugger
from probe.dropin.profiler import ApiProfiler

__all__ = ["ApiProfiler", "PrecisionDebugger", "read"]
