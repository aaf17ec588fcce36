"""The runs: networks, element types and faults. Nothing here needs a framework."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy

NETWORKS = ("Cnn", "Transformer", "Recurrent", "Experts", "Unet", "Gan")
TYPES = ("float32", "float16", "bfloat16")
LEVELS = ("mix", "module", "api")

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


#: What `testdata/mindspore_captured` holds: network, element type, level and task.
STORED = ("Transformer", "float32", "mix", "statistics")


@dataclass(frozen=True)
class Fault:
    """Call `call` of `function` returns a wrong result in the run of one framework."""

    network: str
    framework: str
    function: str
    call: int
    kind: str

    @property
    def name(self) -> str:
        return f"{self.network}-{self.function}-{self.call}-{self.kind}"

    @property
    def unseen(self) -> bool:
        """True for half of the faults, on which nothing may be tuned."""
        return hashlib.sha256(f"{self.framework}{self.name}".encode()).digest()[0] % 2 == 0


def faults() -> list[Fault]:
    found, number = [], 0
    for network, functions in _WRONG.items():
        for function, last in functions.items():
            for framework in ("torch", "mindspore"):
                found.append(Fault(network, framework, function, last if number % 2 else 0, KINDS[number % 3]))
                number += 1
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


def parameter(network: str, name: str, shape: tuple[int, ...]) -> numpy.ndarray:
    """Returns the weights of a parameter, by its name in PyTorch."""
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
