"""The older tool's functions that stand beside its debugger."""

from probe.dropin.debugger import PrecisionDebugger

module_dump = PrecisionDebugger.module_dump
module_dump_end = PrecisionDebugger.module_dump_end
seed_all = PrecisionDebugger.seed_all
