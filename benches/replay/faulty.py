"""A device of `benches/answers` with kernels that are wrong in all their calls, as a kernel with a fault is."""

from __future__ import annotations

from typing import Any

import torch

import faults
import rounding
from device import Device, rounded
from rounding import cpu

#: What the reference is computed in: a script has it from the same process.
EXACT = (torch.float64, torch.complex128)


class EveryCall(Device):
    """Kernels round as those of the device. The ops of `faults` are wrong in every call, in the types that a device computes in."""

    def run(self, name: str, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        wrong = [fault for fault in self.faults if fault["op"] == name]
        before = faults.written(op, args) if wrong else []
        noisy = self.style is not None and name in rounded
        kept = rounding.inputs_kept(op, args) if noisy or wrong else args
        result = cpu(op, *args, **kwargs)
        parts = rounding.tensors(op, args, result)
        if not parts or parts[0].dtype in EXACT:
            return result
        if noisy:
            rounding.round_otherwise(self.style, self.products, name, op, kept, kwargs, parts)
        for fault in wrong:
            faults.spoil(fault, name, op, kept, kwargs, before, parts)
        return result
