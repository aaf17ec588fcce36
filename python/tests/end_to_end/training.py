"""Two small training runs, and a device that is wrong at one op. Also a script: `training.py MODEL [FAULT]`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Predicts the next of 40 words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(40, 24)
        self.layers = nn.ModuleList([Block(24, 3) for _ in range(3)])
        self.head = nn.Linear(24, 40)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = self.words(x)
        for layer in self.layers:
            h = layer(h)
        return F.cross_entropy(self.head(h).flatten(0, 1), y.flatten())


class Conv(nn.Module):
    """Tells ten kinds of images apart."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(12 * 16, 10)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.head(self.features(x).flatten(1)), y)


#: Changes that a device can make to a result.
WRONGS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "scaled": lambda result: result * 1.01,
    "rows": lambda result: result.flip(0),
    "sign": lambda result: -result,
}


class WrongDevice(TorchDispatchMode):
    """Computes one call of one op wrongly."""

    def __init__(self, op: str, call: int, wrong: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.op, self.call, self.calls, self.wrong = op, call, 0, wrong

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._schema.name == self.op:
            self.calls += 1
            if self.calls == self.call + 1:
                many = isinstance(result, tuple)
                # A device multiplies without telling anyone.
                with torch._C.DisableTorchFunction():
                    parts = result if many else (result,)
                    wrong = tuple(self.wrong(part) if isinstance(part, torch.Tensor) else part for part in parts)
                return wrong if many else wrong[0]
        return result


class RoundingDevice(TorchDispatchMode):
    """Rounds otherwise: what is summed up is off by a fraction of a unit in the last place of its typical element."""

    ROUNDING = {torch.float32: 6e-8, torch.bfloat16: 1e-3}
    SUMMING = ("mm", "norm", "softmax", "sum", "mean", "convolution", "attention", "gelu")

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.draws = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if any(word in func._schema.name for word in self.SUMMING):
            with torch._C.DisableTorchFunction():
                for part in result if isinstance(result, (tuple, list)) else (result,):
                    if isinstance(part, torch.Tensor) and part.dtype in self.ROUNDING and part.numel():
                        typical = self.ROUNDING[part.dtype] * float(part.float().norm()) / part.numel() ** 0.5
                        part.add_((torch.randn(part.shape, generator=self.draws) * typical).to(part.dtype))
        return result


class HastyOptimizer(RoundingDevice):
    """Rounds otherwise, and Adam's steps on it are too long by one in a hundred."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name == "aten::addcdiv_":
            kwargs = {**kwargs, "value": kwargs["value"] * 1.01}
        return super().__torch_dispatch__(func, types, args, kwargs)


@contextmanager
def device(fault: str | None) -> Iterator[None]:
    """`fault` is an op and the number of the call that is wrong: `aten::gelu/1` for a result that is too large by one in a
    hundred, `rows aten::gelu/1` for another of `WRONGS`; None for a device without faults.

    `rounding` is no fault: the device rounds otherwise. `update` is one of the optimizer.
    """
    if fault is None:
        yield
        return
    modes = {"rounding": lambda: RoundingDevice(7), "update": lambda: HastyOptimizer(7)}
    kind, _, place = fault.rpartition(" ")
    op, _, call = place.partition("/")
    with modes[fault]() if fault in modes else WrongDevice(op, int(call), WRONGS[kind or "scaled"]):
        yield


def make(kind: str) -> tuple[nn.Module, Callable[[], float]]:
    """A model and one step of its training, the same in every run."""
    torch.manual_seed(3)
    if kind in ("transformer", "autocast"):
        model: nn.Module = Transformer()
        x, y = torch.randint(0, 40, (2, 12)), torch.randint(0, 40, (2, 12))
    else:
        model = Conv()
        x, y = torch.randn(4, 3, 8, 8), torch.randint(0, 10, (4,))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
            loss = model(x, y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return model, step


def main() -> None:
    """Trains for three steps and prints the losses."""
    _, step = make(sys.argv[1])
    with device(sys.argv[2] if len(sys.argv) > 2 else None):
        print(*[step() for _ in range(3)])


if __name__ == "__main__":
    main()
