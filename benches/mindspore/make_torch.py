"""make_torch.py FOLDER: records every run of PyTorch. make_torch.py FOLDER stored: that of testdata/mindspore_captured."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import networks_torch
import torch
from runs import LEVELS, NETWORKS, OPTIMIZERS, STORED, TYPES, Fault, batch, change, faults, parameter, steps, wrong
from torch.utils._python_dispatch import TorchDispatchMode

import probe

_OPS = {"conv2d": "convolution", "linear": "addmm", "layer_norm": "native_layer_norm", "softmax": "_softmax"}
_BACKWARD = {
    "conv2d": "convolution_backward",
    "relu": "threshold_backward",
    "layer_norm": "native_layer_norm_backward",
    "softmax": "_softmax_backward_data",
    "embedding": "embedding_dense_backward",
}


class _Wrong(TorchDispatchMode):
    """Makes the result of one op wrong, below the recording: that of a call, or of its gradient."""

    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self._fault, self._calls, self._seen = fault, 0, 0
        self._forward = f"aten::{_OPS.get(fault.place, fault.place)}"
        backward = f"aten::{_BACKWARD.get(fault.place, f'{fault.place}_backward')}"
        self._op = backward if fault.kind == "gradient" else self._forward

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func._schema.name
        self._calls += name == self._forward
        if name == self._op:
            # Gradients come last call first.
            call = self._calls - 1 - self._seen if self._fault.kind == "gradient" else self._seen
            tensor = result[0] if isinstance(result, tuple) else result
            if call == self._fault.call:
                right = tensor.numpy().copy()
                tensor.copy_(torch.from_numpy(right * right.dtype.type(1.1) if self._fault.kind == "gradient" else wrong(right, self._fault.kind)))
            self._seen += 1
        return result

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        assert error[0] is not None or self._seen > self._fault.call, f"{self._fault.name}: the call never came"


def _optimizer(model: torch.nn.Module, name: str | None, fault: Fault | None) -> torch.optim.Optimizer:
    if name is None:
        return torch.optim.SGD(model.parameters(), lr=0.05)
    options = fault.options() if fault is not None else dict(OPTIMIZERS[name])
    decay = options.pop("decay")
    kind = torch.optim.SGD if name == "sgd" else torch.optim.Adam
    # MindSpore's optimizers leave gamma and beta out of the decay.
    norms = {name: "norm" in name for name, _ in model.named_parameters()}
    groups = [
        {"params": [value for name, value in model.named_parameters() if norms[name] is is_norm], "weight_decay": rate}
        for is_norm, rate in ((False, decay), (True, 0.0))
        if is_norm in norms.values()
    ]
    return kind(groups, **options)


def run(
    folder: str, network: str, dtype: str, level: str, fault: Fault | None = None, task: str = "sketch", optimizer: str | None = None
) -> None:
    """Records a step in `folder`; several with an optimizer by name."""
    change(fault)
    model = getattr(networks_torch, network)()
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(torch.from_numpy(parameter(network, name, tuple(value.shape), fault)))
    model.to(getattr(torch, dtype))
    inputs, labels = map(torch.from_numpy, batch(network))
    inputs = inputs.to(getattr(torch, dtype)) if inputs.is_floating_point() else inputs
    training = _optimizer(model, optimizer, fault)
    with probe.capture(folder, model, level=level, task=task, overwrite=True, quiet=True):
        for _ in range(steps(optimizer)):
            training.zero_grad()
            with _Wrong(fault) if fault is not None and fault.is_below else nullcontext():
                torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            training.step()


def stored(folder: str) -> None:
    """Records the run of PyTorch in `testdata/mindspore_captured`."""
    network, dtype, level, task = STORED
    run(f"{folder}/torch", network, dtype, level, task=task)


def main(folder: str) -> None:
    for network in NETWORKS:
        for dtype in TYPES:
            for level in LEVELS:
                run(f"{folder}/torch/{network}-{dtype}-{level}", network, dtype, level)
        for name in OPTIMIZERS:
            run(f"{folder}/torch/{network}-{name}-mix", network, "float32", "mix", optimizer=name)
    for fault in faults():
        if fault.framework == "torch":
            run(f"{folder}/torch/{fault.name}", fault.network, fault.dtype, "mix", fault, optimizer=fault.optimizer)


if __name__ == "__main__":
    torch.set_num_threads(1)
    (stored if sys.argv[2:] == ["stored"] else main)(sys.argv[1])
