"""Cost of capture for a training step: pairs of a plain and a recorded step in one process, and the median of their ratios.

usage: cost.py {gpt|conv|tiny} LEVEL TASK [--pairs N] [--threads N] [--output DIR] [--idle]

`all` stands for every level, or every task, one after the other in this process. `--idle` times a recorder that is loaded but not at a step it records. Needs the package installed with its release core.
Results and method: README.md in this folder.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

import probe

LEVELS, TASKS = ("module", "mix", "api", "op"), ("statistics", "sketch", "hash", "tensor")

VOCABULARY, LENGTH, BATCH = 1000, 128, 8


class Layer(nn.Module):
    """One layer of a GPT: attention and a wide pair of projections, each behind a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_wide = nn.LayerNorm(width), nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.into(self.before_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.narrow(F.gelu(self.widen(self.before_wide(x))))


class Gpt(nn.Module):
    """4 layers, width 256, 8 heads."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, 256), nn.Embedding(LENGTH, 256)
        self.layers = nn.Sequential(*[Layer(256, 8) for _ in range(4)])
        self.norm, self.head = nn.LayerNorm(256), nn.Linear(256, VOCABULARY, bias=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = self.layers(self.words(x) + self.places(torch.arange(LENGTH)))
        return F.cross_entropy(self.head(self.norm(h)).view(-1, VOCABULARY), y.view(-1))


class Conv(nn.Module):
    """Three convolutions with norm, ReLU and pool: many small ops."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [(3, 32), (32, 64), (64, 128)]
        stages = [[nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2)] for a, b in sizes]
        self.features = nn.Sequential(*[layer for stage in stages for layer in stage])
        self.head = nn.Linear(128 * 16, 10)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.head(self.features(x).flatten(1)), y)


class Tiny(nn.Module):
    """600 ops on 16 elements each: the worst case, in which nearly all is the price of a call."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.full((16,), 0.9)), nn.Parameter(torch.full((16,), 0.1))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(200):
            x = torch.tanh(x * self.weight + self.bias)
        return F.mse_loss(x, y)


def make(kind: str) -> tuple[nn.Module, Callable[[], None]]:
    """A model and one step of its training: forward, backward, AdamW."""
    torch.manual_seed(0)
    if kind == "gpt":
        model: nn.Module = Gpt()
        x, y = torch.randint(VOCABULARY, (BATCH, LENGTH)), torch.randint(VOCABULARY, (BATCH, LENGTH))
    elif kind == "tiny":
        model = Tiny()
        x, y = torch.zeros(16), torch.ones(16)
    else:
        model = Conv()
        x, y = torch.randn(16, 3, 32, 32), torch.randint(10, (16,))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(x, y).backward()
        optimizer.step()

    return model, step


def timed(*calls: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor seconds."""
    wall, processor = time.perf_counter(), time.process_time()
    for call in calls:
        call()
    return time.perf_counter() - wall, time.process_time() - processor


def touch_memory(folder: str, recordings: int) -> None:
    """Writes and deletes as much as `recordings` more steps like the one recorded in `folder` will take.

    A virtual machine gets memory from its host at first use, at a tenth of its speed, which is not the recorder's cost.
    """
    step = sum(path.stat().st_size for path in pathlib.Path(folder).rglob("*") if path.is_file())
    fill = pathlib.Path(folder, "fill")
    with fill.open("wb") as file:
        for _ in range(recordings * step >> 20):
            file.write(bytes(1 << 20))
    fill.unlink()


def measured(given: argparse.Namespace, model: nn.Module, step: Callable[[], None], level: str, task: str) -> None:
    """Prints one line for wall time and one for processor time."""
    folder = tempfile.mkdtemp(dir=given.output)
    steps = "1000000000" if given.idle else "all"
    capture = probe.Capture(f"{folder}/dump", model=model, level=level, task=task, steps=steps, quiet=True)
    recorded = (capture.start, step, capture.stop, capture.step)
    timed(*recorded)
    touch_memory(folder, given.pairs)
    pairs = [(timed(step), timed(*recorded)) for _ in range(given.pairs)]
    capture.close()
    shutil.rmtree(folder)
    what = f"{given.kind} {level} {task}{' idle' if given.idle else ''}"
    for index, clock in enumerate(("wall", "processor")):
        ratio = statistics.median(after[index] / before[index] for before, after in pairs)
        plain, with_capture = (statistics.median(pair[side][index] for pair in pairs) * 1e3 for side in (0, 1))
        print(f"{what} {clock}: {ratio:.3f} ({plain:.1f} ms plain, {with_capture:.1f} ms recorded)", flush=True)


def main() -> None:
    """Measures each level with each task that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["gpt", "conv", "tiny"])
    parser.add_argument("level", choices=[*LEVELS, "all"])
    parser.add_argument("task", choices=[*TASKS, "all"])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", help="where dumps are written (and deleted); a folder in memory leaves the disk out")
    parser.add_argument("--idle", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    model, step = make(given.kind)
    for _ in range(3):
        step()
    for level in LEVELS if given.level == "all" else (given.level,):
        for task in TASKS if given.task == "all" else (given.task,):
            measured(given, model, step, level, task)


if __name__ == "__main__":
    main()
