"""make_mindspore.py FOLDER: records every run of MindSpore that FOLDER lacks. Runs that MindSpore cannot do on a CPU are listed in
FOLDER/mindspore/left_out.txt. make_mindspore.py FOLDER stored: those of testdata/mindspore_captured."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import mindspore
import networks_mindspore
from mindspore import Tensor, mint, nn, ops
from mindspore.common._grad_function import _Function
from runs import LEVELS, NETWORKS, OPTIMIZERS, STORED, TYPES, Fault, batch, change, faults, parameter, steps, stored_fault, wrong

import probe.mindspore

#: How often MindSpore may fail before this gives up.
ATTEMPTS = 5
#: Exit code of a process that another one continues.
AGAIN = 75
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


#: Multiplies unseen: only primitives that cells hold are recorded.
_TIMES = ops.Mul()


class _WrongGradient(_Function):
    """Returns what it is given, and a gradient that is a tenth too large."""

    @staticmethod
    def forward(ctx, value):
        return _TIMES(value, 1.0)

    @staticmethod
    def backward(ctx, gradient):
        return _TIMES(gradient, 1.1)


class _Wrong:
    """Makes the result of one call wrong, below the recording, or its gradient. The gradient of a wrong result stays that of
    the right one."""

    def __init__(self, fault: Fault) -> None:
        self._fault, self._calls = fault, 0
        self._place = _PLACES[fault.place]
        self._original = getattr(*self._place)
        self._is_own = self._place[1] in vars(self._place[0])

    def __enter__(self) -> None:
        def call(*args, **kwargs):
            self._calls += 1
            is_it = self._calls - 1 == self._fault.call
            if is_it and self._fault.kind == "gradient":
                at = 1 if self._place[1] == "__call__" else 0
                args = (*args[:at], _WrongGradient.apply(args[at]), *args[at + 1 :])
            result = self._original(*args, **kwargs)
            if not is_it or self._fault.kind == "gradient":
                return result
            first = result[0] if isinstance(result, tuple) else result
            right = ops.stop_gradient(first)
            moved = first + Tensor(wrong(right.asnumpy(), self._fault.kind) - right.asnumpy())
            return (moved, *result[1:]) if isinstance(result, tuple) else moved

        setattr(*self._place, call)

    def __exit__(self, *_: object) -> None:
        if self._is_own:
            setattr(*self._place, self._original)
        else:
            delattr(*self._place)
        assert self._calls > self._fault.call, f"{self._fault.name}: the call never came"


def _optimizer(model: nn.Cell, name: str | None, fault: Fault | None) -> nn.Optimizer:
    if name is None:
        return nn.SGD(model.trainable_params(), learning_rate=0.05)
    options = fault.options() if fault is not None else dict(OPTIMIZERS[name])
    rate, decay = options.pop("lr"), options.pop("decay")
    kind = nn.SGD if name == "sgd" else nn.Adam
    return kind(model.trainable_params(), learning_rate=rate, weight_decay=decay, **options)


def step(network: str, dtype: str, fault: Fault | None = None, optimizer: str | None = None) -> tuple[object, object]:
    """Returns a network and a function that trains it for a step and returns a digest of loss, gradients and weights."""
    change(fault)
    model = getattr(networks_mindspore, network)()
    model.set_train()
    for name, value in model.parameters_and_names():
        stem, _, last = name.rpartition(".")
        value.set_dtype(getattr(mindspore, dtype))
        if value.requires_grad:
            weights = parameter(network, f"{stem}.{_NAMES.get(last, last)}", tuple(value.shape), fault)
            value.set_data(Tensor(weights, getattr(mindspore, dtype)))
    inputs, labels = batch(network)
    inputs = Tensor(inputs, getattr(mindspore, dtype)) if inputs.dtype == "float32" else Tensor(inputs, mindspore.int32)
    labels = Tensor(labels, mindspore.int32)
    training = _optimizer(model, optimizer, fault)
    differentiate = mindspore.value_and_grad(lambda: ops.cross_entropy(model(inputs), labels), None, training.parameters)

    def train() -> str:
        loss, gradients = differentiate()
        training(gradients)
        whole = b"".join(each.asnumpy().tobytes() for each in (loss, *gradients, *model.get_parameters()))
        return hashlib.sha256(whole).hexdigest()

    return model, train


def run(
    folder: str, network: str, dtype: str, level: str, fault: Fault | None = None, task: str = "sketch", optimizer: str | None = None
) -> str:
    """Records a step in `folder`, or several with an optimizer by name. Returns the digest of what was computed."""
    model, train = step(network, dtype, fault, optimizer)
    digest = ""
    with _Wrong(fault) if fault is not None and fault.is_below else nullcontext():
        with probe.mindspore.capture(folder, model, level=level, task=task, overwrite=True, quiet=True):
            for _ in range(steps(optimizer)):
                digest = train()
    assert Path(folder, "step0").is_dir(), f"{folder}: the recording stopped"
    return digest


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


def _sound(folder: Path, network: str, dtype: str) -> bool:
    """Records the sound runs of a network in one element type. Returns false if MindSpore cannot do it."""
    try:
        plain = step(network, dtype)[1]()
    except Exception as error:
        with (folder / "left_out.txt").open("a") as file:
            print(f"{network} {dtype}: {str(error).strip().splitlines()[:1]}", file=file)
        return False
    for level in LEVELS:
        recorded = run(str(folder / f"{network}-{dtype}-{level}"), network, dtype, level)
        assert recorded == plain, f"{network} {dtype} {level}: the recording changes the training"
    return True


def _jobs(folder: Path) -> dict[str, Callable[[], object]]:
    """Returns what is recorded, by names."""
    jobs: dict[str, Callable[[], object]] = {}
    for network in NETWORKS:
        for dtype in TYPES:
            jobs[f"{network} {dtype}"] = partial(_sound, folder, network, dtype)
        for name in OPTIMIZERS:
            place = str(folder / f"{network}-{name}-mix")
            jobs[f"{network} {name}"] = partial(run, place, network, "float32", "mix", optimizer=name)
    for fault in faults():
        if fault.framework == "mindspore":
            place = str(folder / fault.name)
            jobs[fault.name] = partial(run, place, fault.network, fault.dtype, "mix", fault, optimizer=fault.optimizer)
    return jobs


def work(folder: Path) -> None:
    """Records what is not yet in `done.txt`."""
    prepare()
    done = folder / "done.txt"
    known = done.read_text().splitlines() if done.exists() else []
    for name, record in _jobs(folder).items():
        if name in known:
            continue
        goes_on = record()
        with done.open("a") as file:
            print(name, file=file)
        print(name, flush=True)
        if goes_on is False:
            # After an error of its own MindSpore fails in what it could do before.
            sys.exit(AGAIN)


def main(folder: Path) -> None:
    """MindSpore can crash on a CPU, so the work is done in a process of its own, and begun again where it stopped."""
    folder.mkdir(parents=True, exist_ok=True)
    failures = 0
    while failures < ATTEMPTS:
        ended = subprocess.run([sys.executable, __file__, str(folder), "work"], check=False).returncode
        if ended == 0:
            return
        if ended != AGAIN:
            failures += 1
            print(f"MindSpore stopped with {ended}, {failures} of {ATTEMPTS} times", file=sys.stderr, flush=True)
    sys.exit(f"what was recorded is kept in {folder}, and the next call goes on from there")


if __name__ == "__main__":
    if sys.argv[2:] == ["stored"]:
        prepare()
        stored(sys.argv[1])
    elif sys.argv[2:] == ["work"]:
        work(Path(sys.argv[1]))
    else:
        main(Path(sys.argv[1], "mindspore"))
