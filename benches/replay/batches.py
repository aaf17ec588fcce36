"""Scores `probe invariant`: `python batches.py`. Kernels whose rows depend on the batch have to be named, with what they depend on.

Each kernel takes the place of a function of torch in the types that a device computes in; in float64 the function is what it is. Sound kernels are
among them. Then torch's own kernels of this CPU are reported as they are, in float32, over sizes of batches as they occur.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.nn import functional as F

import probe
from probe.replay import evaluate, invariant
from probe.replay.recorded import Call, Recording

#: Function, and the arguments beside its batch.
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "linear": (F.linear, lambda: (torch.randn(48, 64), torch.randn(48))),
    "layer_norm": (F.layer_norm, lambda: ([64], torch.randn(64), torch.randn(64))),
    "softmax": (F.softmax, lambda: (-1,)),
    "gelu": (F.gelu, tuple),
}


def pieces(x: torch.Tensor, size: int) -> torch.Tensor:
    """Products summed in pieces of this size: what another tile gives. Running sums take each row by itself, which products of torch do not."""
    weight, bias = _given["linear"]
    total = torch.zeros(*x.shape[:-1], weight.shape[0])
    for at in range(0, x.shape[-1], size):
        total += (x[:, None, at : at + size] * weight[:, at : at + size]).cumsum(-1)[..., -1]
    return total + bias


def rows(x: torch.Tensor, of: torch.Tensor, size: int) -> torch.Tensor:
    """Rows `of` with their products in pieces, the others in one."""
    return torch.where(of.reshape(-1, *[1] * (x.dim() - 1)), pieces(x, size), pieces(x, x.shape[-1]))


def normed(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A norm whose sums are kept in another type."""
    _, weight, bias = _given["layer_norm"]
    mean = x.to(dtype).mean(-1, keepdim=True)
    spread = (x.to(dtype) - mean).square().mean(-1, keepdim=True)
    return ((x - mean.to(x.dtype)) * (spread + 1e-5).rsqrt().to(x.dtype)) * weight + bias


def halves(x: torch.Tensor) -> torch.Tensor:
    """A softmax that is split in two and put together again, as one over long rows is."""
    a, b = x.chunk(2, -1)
    top = torch.maximum(a.amax(-1, keepdim=True), b.amax(-1, keepdim=True))
    one, other = (a - top).exp(), (b - top).exp()
    return torch.cat([one, other], -1) / (one.sum(-1, keepdim=True) + other.sum(-1, keepdim=True))


_given: dict[str, tuple[Any, ...]] = {}
_turn = [0]


def turn() -> int:
    """Counts the calls: what atomic additions do by chance, in turns."""
    _turn[0] += 1
    return _turn[0] % 2


#: Name -> function, the kernel, and what its rows depend on.
KERNELS: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor], str | None]] = {
    "one order of sums": ("linear", lambda x: pieces(x, 16), None),
    "a tile by the size of the batch": ("linear", lambda x: pieces(x, 16 if len(x) > 4 else 32), "batch size"),
    "another kernel for one row": ("linear", lambda x: pieces(x, 16) if len(x) > 1 else pieces(x, 64), "batch size"),
    "another kernel for whole tiles": ("linear", lambda x: pieces(x, 32 if len(x) % 4 == 0 else 16), "batch size"),
    "split sums in small batches": ("linear", lambda x: pieces(x, 8 if len(x) < 6 else 64), "batch size"),
    "a last tile that is not full": ("linear", lambda x: rows(x, torch.arange(len(x)) >= len(x) // 4 * 4, 8), "position"),
    "a first row by itself": ("linear", lambda x: rows(x, torch.arange(len(x)) == 0, 8), "position"),
    "rows in pairs": ("linear", lambda x: rows(x, torch.arange(len(x)) % 2 == 1, 16), "position"),
    "sums added by chance": ("linear", lambda x: pieces(x, 16 + 16 * turn()), "chance"),
    "a norm, one order": ("layer_norm", lambda x: normed(x, torch.float64), None),
    "a norm with wider sums in small batches": ("layer_norm", lambda x: normed(x, torch.float64 if len(x) < 4 else torch.float32), "batch size"),
    "a softmax, split": ("softmax", halves, None),
    "a softmax, split where the batch is small": ("softmax", lambda x: halves(x) if len(x) <= 4 else torch.softmax(x, -1), "batch size"),
    "a tail without vectors": ("gelu", lambda x: torch.where(torch.arange(len(x))[:, None] < len(x) - len(x) % 4, F.gelu(x), (0.5 * x.double() * (1 + torch.erf(x.double() / 2**0.5))).to(x.dtype)), "position"),
    "parts by the number of threads": ("linear", lambda x: pieces(x, 64 // torch.get_num_threads()), "the number of threads"),
}

#: Sizes of the batches on which torch's own kernels run.
SIZES = (2, 3, 7, 8, 16, 33, 64)


def found(function: Callable[[], Any], kernel: Callable[[torch.Tensor], torch.Tensor] | None) -> list[invariant.Dependence | None]:
    """What rows depend on, of each call of a recorded program."""
    function()
    with tempfile.TemporaryDirectory() as folder:
        with probe.capture(Path(folder, "dump"), task="tensor", level="api", step_on="program", quiet=True):
            function()
        (part,) = Recording(str(Path(folder, "dump"))).parts()

        def here(call: Call, device: str = "cpu") -> dict[str, torch.Tensor]:
            return {next(iter(call.results)): kernel(call.args[0])}

        with mock.patch.object(evaluate, "here", here) if kernel else nullcontext():
            return [dependence for _, dependence in invariant.examine(part, lambda name: True, "cpu")]


def planted() -> int:
    """Prints what is said of each kernel; returns the number of wrong answers."""
    wrong = 0
    print("| kernel | its rows depend on | probe invariant says |\n|---|---|---|")
    for name, (function, kernel, on) in KERNELS.items():
        torch.manual_seed(7)
        call, more = FUNCTIONS[function]
        _given[function] = more()
        given = torch.randn(10, 64)
        (said,) = found(lambda: call(given, *_given[function]), kernel)
        wrong += (said.on if said else None) != on
        print(f"| {name} ({function}) | {on or 'nothing'} | {said.on if said else 'nothing'} |")
    return wrong


#: Functions whose rows are independent, as torch computes them.
OWN: dict[str, Callable[[torch.Tensor], Any]] = {
    "linear 64 to 48": lambda x: F.linear(x, drawn(48, 64), drawn(48)),
    "linear 64 to 1": lambda x: F.linear(x, drawn(1, 64)),
    "matmul": lambda x: torch.matmul(x, drawn(64, 64)),
    "bmm": lambda x: torch.bmm(x.reshape(-1, 8, 8), x.reshape(-1, 8, 8)),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.reshape(-1, 2, 4, 8)] * 3),
    "conv2d": lambda x: F.conv2d(x.reshape(-1, 1, 8, 8), drawn(4, 1, 3, 3)),
    "layer_norm": lambda x: F.layer_norm(x, [64]),
    "softmax": lambda x: F.softmax(x, -1),
    "gelu": lambda x: F.gelu(x),
    "exp": lambda x: torch.exp(x),
    "sum over a row": lambda x: x.sum(-1),
    "mean over a row": lambda x: x.mean(-1),
    "norm of a row": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "embedding": lambda x: F.embedding((x[:, :4].abs() * 8).long() % 32, drawn(32, 16)),
    "cumsum": lambda x: x.cumsum(-1),
}


@functools.cache
def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def own() -> None:
    """Prints what torch's kernels of this CPU depend on."""
    print(f"\n| torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, float32 | batches of {', '.join(map(str, SIZES))} rows |\n|---|---|")
    for name, call in OWN.items():
        said = []
        for size in SIZES:
            torch.manual_seed(size)
            given = torch.randn(size, 64)
            said += [(size, each.on, each.largest) for each in found(lambda: call(given), None) if each is not None]
        words = {on: ", ".join(str(size) for size, other, _ in said if other == on) for _, on, _ in said}
        largest = max((off for *_, off in said), default=0.0)
        print(f"| {name} | " + ("; ".join(f"{on} (batches of {sizes})" for on, sizes in words.items()) + f", by up to {largest:.1e}" if said else "nothing") + " |")


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    warnings.filterwarnings("ignore")
    wrong = planted()
    own()
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
