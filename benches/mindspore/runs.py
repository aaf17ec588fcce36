"""The runs: networks, element types and faults. Nothing here needs a framework."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy

NETWORKS = ("Cnn", "Transformer", "Recurrent", "Experts", "Unet", "Gan")
TYPES = ("float32", "float16", "bfloat16")
LEVELS = ("mix", "module", "api")
FRAMEWORKS = ("torch", "mindspore")

#: Functions of each network that can be wrong, and the last call that is tried.
_WRONG = {
    "Cnn": {"conv2d": 1, "relu": 0, "gelu": 0, "linear": 0},
    "Transformer": {"embedding": 0, "layer_norm": 2, "softmax": 1, "gelu": 1, "linear": 7},
    "Recurrent": {"embedding": 0, "linear": 4, "sigmoid": 5, "tanh": 3},
    "Experts": {"linear": 3, "tanh": 0, "softmax": 0, "silu": 2, "layer_norm": 0},
    "Unet": {"conv2d": 2, "relu": 1, "silu": 0, "linear": 0},
    "Gan": {"linear": 2, "tanh": 0, "relu": 0, "sigmoid": 1, "leaky_relu": 1},
}
KINDS = ("scaled", "shifted", "element")


#: Wrong arguments that the networks are built and called with, by the kind of the fault.
_CHANGED = {
    "eps": {"eps": 1e-3},
    "momentum": {"momentum": 0.5},
    "approximate": {"gelu": {"approximate": "tanh"}},
    "slope": {"slope": 0.3},
    "axis": {"axis": -2},
}
#: The arguments of the run in hand: the networks ask it.
changed: dict[str, Any] = {}
_ARGUMENTS = {
    "Cnn": (("batch_norm", "eps"), ("batch_norm", "momentum"), ("gelu", "approximate")),
    "Transformer": (("layer_norm", "eps"), ("gelu", "approximate"), ("softmax", "axis")),
    "Experts": (("layer_norm", "eps"), ("softmax", "axis")),
    "Gan": (("leaky_relu", "slope"),),
}

#: Functions whose gradient of the input can be wrong, and the call.
_GRADIENTS = {
    "Cnn": {"conv2d": 1, "relu": 0, "gelu": 0},
    "Transformer": {"embedding": 0, "layer_norm": 1, "softmax": 0, "gelu": 1},
    "Recurrent": {"sigmoid": 4, "tanh": 2},
    "Experts": {"tanh": 0, "softmax": 0, "silu": 1},
    "Unet": {"conv2d": 1, "relu": 2, "silu": 0},
    "Gan": {"tanh": 0, "leaky_relu": 0, "sigmoid": 1},
}

#: Options of optimizers, and wrong ones by the kind of the fault.
OPTIMIZERS = {"sgd": {"lr": 0.05, "momentum": 0.9, "decay": 0.01}, "adam": {"lr": 0.01, "eps": 1e-8, "decay": 0.01}}
_OPTIONS = (
    ("sgd", "lr", 0.055), ("adam", "eps", 1e-3), ("sgd", "decay", 0.1), ("adam", "lr", 0.011), ("sgd", "momentum", 0.5), ("adam", "decay", 0.2),
)  # fmt: skip

#: Parameters that can stay as they were made.
_UNLOADED = {
    "Cnn": ("conv2.weight", "head.bias"),
    "Transformer": ("layers.1.up.weight", "norm.weight"),
    "Recurrent": ("kept.weight", "embed.weight"),
    "Experts": ("experts.2.bias", "gate.weight"),
    "Unet": ("up.weight", "middle.bias"),
    "Gan": ("make2.weight", "judge2.bias"),
}

#: Content of `testdata/mindspore_captured`: network, element type, level and task.
STORED = ("Transformer", "float32", "mix", "statistics")


@dataclass(frozen=True)
class Fault:
    """A fault in the run of one framework: call `call` of the function `place` returns a wrong result or gradient, or gets
    another argument; or an option of the optimizer `place` is another, or the parameter `place` is not loaded."""

    network: str
    framework: str
    place: str
    call: int
    kind: str
    dtype: str = "float32"

    @property
    def name(self) -> str:
        element = "" if self.dtype == "float32" else f"-{self.dtype}"
        return f"{self.network}-{self.place}-{self.call}-{self.kind}{element}"

    @property
    def group(self) -> str:
        """Returns the line of the table that the fault is counted in."""
        if self.kind in KINDS:
            return "result of a call"
        if self.optimizer is not None:
            return "option of the optimizer"
        return {"gradient": "gradient of a call", "unloaded": "weight not loaded"}.get(self.kind, "argument of a call")

    @property
    def is_below(self) -> bool:
        """Returns true if a call is made wrong, rather than the program."""
        return self.kind in KINDS or self.kind == "gradient"

    @property
    def optimizer(self) -> str | None:
        """Returns the optimizer that trains several steps; None for the plain one and one step."""
        return self.place if self.place in OPTIMIZERS else None

    @property
    def sound(self) -> str:
        """Returns the name of the sound run that it is compared with."""
        return f"{self.network}-{self.optimizer or self.dtype}-mix"

    @property
    def unseen(self) -> bool:
        """True for half of the faults, on which nothing may be tuned."""
        return hashlib.sha256(f"{self.framework}{self.name}".encode()).digest()[0] % 2 == 0

    def options(self) -> dict[str, float]:
        """Returns the options of its optimizer, with the wrong one."""
        wrong = {kind: value for name, kind, value in _OPTIONS if (name, kind) == (self.place, self.kind)}
        return {**OPTIMIZERS[self.place], **wrong}


def steps(optimizer: str | None) -> int:
    """Returns how many steps are recorded: momentum changes the second update, which the third step shows."""
    return 1 if optimizer is None else 3


def change(fault: Fault | None) -> None:
    """Sets the arguments of the run in hand."""
    changed.clear()
    if fault is not None and fault.optimizer is None:
        changed.update(_CHANGED.get(fault.kind, {}))


def faults() -> list[Fault]:
    """Returns every fault in both frameworks."""
    found, number = [], 0
    for network, functions in _WRONG.items():
        for function, last in functions.items():
            for framework in FRAMEWORKS:
                found.append(Fault(network, framework, function, last if number % 2 else 0, KINDS[number % 3]))
                number += 1
    for framework in FRAMEWORKS:
        for network in NETWORKS:
            found += [Fault(network, framework, place, 0, kind) for place, kind in _ARGUMENTS.get(network, ())]
            found += [Fault(network, framework, place, call, "gradient") for place, call in _GRADIENTS[network].items()]
            found += [Fault(network, framework, place, 0, "unloaded") for place in _UNLOADED[network]]
            at = NETWORKS.index(network)
            for name, kind, _ in (_OPTIONS[at], _OPTIONS[(at + 1) % len(_OPTIONS)]):
                found.append(Fault(network, framework, name, 0, kind))
            place, last = list(_WRONG[network].items())[-1]
            found.append(Fault(network, framework, place, last, "scaled", "float16"))
            found.append(Fault(network, framework, _UNLOADED[network][0], 0, "unloaded", "float16"))
    return found


def stored_fault() -> Fault:
    """Returns the fault in `testdata/mindspore_captured`."""
    return next(fault for fault in faults() if (fault.framework, fault.name) == ("mindspore", "Transformer-gelu-1-scaled"))


def wrong(values: numpy.ndarray, kind: str) -> numpy.ndarray:
    """Returns a wrong result in place of the right one."""
    if kind == "scaled":
        return values * values.dtype.type(1.01)
    if kind == "shifted":
        return values + values.dtype.type(0.05)
    values = values.copy()
    values.flat[values.size // 2] += 0.5
    return values


def parameter(network: str, name: str, shape: tuple[int, ...], fault: Fault | None = None) -> numpy.ndarray:
    """Returns the weights of a parameter, by its name in PyTorch; other ones if the fault is that they are not loaded."""
    if fault is not None and (fault.kind, fault.place) == ("unloaded", name):
        network = f"unloaded {network}"
    seed = int.from_bytes(hashlib.sha256(f"{network}.{name}".encode()).digest()[:4], "little")
    values = numpy.random.RandomState(seed).randn(*shape)
    fan = max(1, int(numpy.prod(shape[1:])))
    is_scale = name.endswith("weight") and len(shape) == 1
    return (1 + 0.1 * values if is_scale else values / fan**0.5 if len(shape) > 1 else 0.1 * values).astype("float32")


def batch(network: str) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Returns inputs and labels."""
    draw = numpy.random.RandomState(5)
    if network in ("Cnn", "Unet"):
        return draw.randn(4, 3, 8, 8).astype("float32"), draw.randint(0, 5, 4)
    if network in ("Transformer", "Recurrent"):
        return draw.randint(0, 24, (4, 6)), draw.randint(0, 24, 4)
    return draw.randn(4, 10).astype("float32"), draw.randint(0, 5, 4)
