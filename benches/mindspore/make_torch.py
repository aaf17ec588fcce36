"""make_torch.py FOLDER: records every run of PyTorch. make_torch.py FOLDER stored: that of testdata/mindspore_captured."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import networks_torch
import torch
from runs import LEVELS, NETWORKS, STORED, TYPES, Fault, batch, faults, parameter, wrong
from torch.utils._python_dispatch import TorchDispatchMode

import probe

_OPS = {"conv2d": "convolution", "linear": "addmm", "layer_norm": "native_layer_norm", "softmax": "_softmax"}


class _Wrong(TorchDispatchMode):
    """Makes the result of one op wrong, below the recording."""

    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self._fault, self._calls = fault, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func._schema.name == f"aten::{_OPS.get(self._fault.function, self._fault.function)}":
            if self._calls == self._fault.call:
                tensor = result[0] if isinstance(result, tuple) else result
                tensor.copy_(torch.from_numpy(wrong(tensor.numpy(), self._fault.kind)))
            self._calls += 1
        return result

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        assert error[0] is not None or self._calls > self._fault.call, f"{self._fault.name}: the call never came"


def run(folder: str, network: str, dtype: str, level: str, fault: Fault | None = None, task: str = "sketch") -> None:
    """Records a step in `folder`."""
    model = getattr(networks_torch, network)()
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(torch.from_numpy(parameter(network, name, tuple(value.shape))))
    model.to(getattr(torch, dtype))
    inputs, labels = map(torch.from_numpy, batch(network))
    inputs = inputs.to(getattr(torch, dtype)) if inputs.is_floating_point() else inputs
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with probe.capture(folder, model, level=level, task=task, overwrite=True, quiet=True):
        with _Wrong(fault) if fault is not None else nullcontext():
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


def stored(folder: str) -> None:
    """Records the run of PyTorch in `testdata/mindspore_captured`."""
    network, dtype, level, task = STORED
    run(f"{folder}/torch", network, dtype, level, task=task)


def main(folder: str) -> None:
    for network in NETWORKS:
        for dtype in TYPES:
            for level in LEVELS:
                run(f"{folder}/torch/{network}-{dtype}-{level}", network, dtype, level)
    for fault in faults():
        if fault.framework == "torch":
            run(f"{folder}/torch/{fault.name}", fault.network, "float32", "mix", fault)


if __name__ == "__main__":
    torch.set_num_threads(1)
    (stored if sys.argv[2:] == ["stored"] else main)(sys.argv[1])
