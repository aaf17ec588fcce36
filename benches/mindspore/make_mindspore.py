"""make_mindspore.py FOLDER: records every run of MindSpore. Runs that MindSpore cannot do on a CPU are listed in
FOLDER/mindspore/left_out.txt. make_mindspore.py FOLDER stored: those of testdata/mindspore_captured."""

from __future__ import annotations

import hashlib
import sys
from contextlib import nullcontext
from pathlib import Path

import mindspore
import networks_mindspore
from mindspore import Tensor, mint, nn, ops
from runs import LEVELS, NETWORKS, STORED, TYPES, Fault, batch, faults, parameter, stored_fault, wrong

import probe.mindspore

_NAMES = {"gamma": "weight", "beta": "bias", "embedding_table": "weight"}
_PLACES = {
    **{name: (ops, name) for name in ("gelu", "relu", "silu", "leaky_relu")},
    **{name: (mint, name) for name in ("tanh", "sigmoid")},
    "softmax": (mint.nn.functional, "softmax"),
    "conv2d": (ops.Conv2D, "__call__"),
    "linear": (ops.MatMul, "__call__"),
    "layer_norm": (ops.LayerNorm, "__call__"),
    "embedding": (ops.Gather, "__call__"),
}


class _Wrong:
    """Makes the result of one call wrong, below the recording. The gradient stays that of the right result."""

    def __init__(self, fault: Fault) -> None:
        self._fault, self._calls = fault, 0
        self._place = _PLACES[fault.function]
        self._original = getattr(*self._place)
        self._is_own = self._place[1] in vars(self._place[0])

    def __enter__(self) -> None:
        def call(*args, **kwargs):
            result = self._original(*args, **kwargs)
            self._calls += 1
            if self._calls - 1 != self._fault.call:
                return result
            first = result[0] if isinstance(result, tuple) else result
            right = ops.stop_gradient(first)
            moved = first + Tensor(wrong(right.asnumpy(), self._fault.kind) - right.asnumpy())
            return (moved, *result[1:]) if isinstance(result, tuple) else moved

        setattr(*self._place, call)

    def __exit__(self, *_: object) -> None:
        assert self._calls > self._fault.call, f"{self._fault.name}: the call never came"
        if self._is_own:
            setattr(*self._place, self._original)
        else:
            delattr(*self._place)


def step(network: str, dtype: str) -> tuple[object, object]:
    """Returns a network and a function that trains it for a step and returns a digest of loss, gradients and weights."""
    model = getattr(networks_mindspore, network)()
    model.set_train()
    for name, value in model.parameters_and_names():
        stem, _, last = name.rpartition(".")
        value.set_dtype(getattr(mindspore, dtype))
        if value.requires_grad:
            weights = parameter(network, f"{stem}.{_NAMES.get(last, last)}", tuple(value.shape))
            value.set_data(Tensor(weights, getattr(mindspore, dtype)))
    inputs, labels = batch(network)
    inputs = Tensor(inputs, getattr(mindspore, dtype)) if inputs.dtype == "float32" else Tensor(inputs, mindspore.int32)
    labels = Tensor(labels, mindspore.int32)
    optimizer = nn.SGD(model.trainable_params(), learning_rate=0.05)
    differentiate = mindspore.value_and_grad(lambda: ops.cross_entropy(model(inputs), labels), None, optimizer.parameters)

    def train() -> str:
        loss, gradients = differentiate()
        optimizer(gradients)
        whole = b"".join(each.asnumpy().tobytes() for each in (loss, *gradients, *model.get_parameters()))
        return hashlib.sha256(whole).hexdigest()

    return model, train


def run(folder: str, network: str, dtype: str, level: str, fault: Fault | None = None, task: str = "sketch") -> str:
    """Records a step in `folder`, and returns the digest of what it computed."""
    model, train = step(network, dtype)
    with _Wrong(fault) if fault is not None else nullcontext():
        with probe.mindspore.capture(folder, model, level=level, task=task, overwrite=True, quiet=True):
            return train()


def prepare() -> None:
    """Sets MindSpore up so that a run can be repeated: with more threads its kernels try several numbers of them, and sums
    differ."""
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE, pynative_synchronize=True)
    mindspore.device_context.cpu.op_tuning.threads_num(1)


def stored(folder: str) -> None:
    """Records the runs of MindSpore in `testdata/mindspore_captured`."""
    network, dtype, level, task = STORED
    run(f"{folder}/mindspore", network, dtype, level, task=task)
    run(f"{folder}/fault", network, dtype, level, stored_fault(), task)


def main(folder: str) -> None:
    left_out = []
    for network in NETWORKS:
        for dtype in TYPES:
            try:
                plain = step(network, dtype)[1]()
            except Exception as error:
                left_out.append(f"{network} {dtype}: {str(error).strip().splitlines()[:1]}")
                continue
            for level in LEVELS:
                recorded = run(f"{folder}/mindspore/{network}-{dtype}-{level}", network, dtype, level)
                assert recorded == plain, f"{network} {dtype} {level}: the recording changes the training"
            print(network, dtype, flush=True)
    for fault in faults():
        if fault.framework == "mindspore":
            run(f"{folder}/mindspore/{fault.name}", fault.network, "float32", "mix", fault)
    Path(folder, "mindspore", "left_out.txt").write_text("\n".join(left_out))


if __name__ == "__main__":
    prepare()
    (stored if sys.argv[2:] == ["stored"] else main)(sys.argv[1])
