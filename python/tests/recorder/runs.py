"""Training runs that the tests record: small, and of every kind that matters."""

from __future__ import annotations

import os
import random
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

#: Steps that a run takes.
STEPS = 2


class ConvNet(nn.Module):
    """Convolutions with batch norm, a residual connection, and activations in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)) + x)
        return self.fc(self.drop(x.mean((2, 3))))


class Block(nn.Module):
    """A block of a transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.Dropout(0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, 2, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        seen = torch.tril(torch.ones(length, length, dtype=torch.bool))
        attention = (q @ k.transpose(-2, -1) / q.size(-1) ** 0.5).masked_fill(~seen, float("-inf")).softmax(-1)
        x = x + self.proj((attention @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """Two blocks; the embedding is also the output layer's weight."""

    def __init__(self, width: int = 16, words: int = 11) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Recurrent(nn.Module):
    """A two-layer LSTM over a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, num_layers=2, batch_first=True, dropout=0.1)
        self.fc = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out, (hidden, _) = self.lstm(x)
        return self.fc(out[:, -1] + hidden[-1])


def conv_batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))


def word_batch() -> tuple[torch.Tensor, torch.Tensor]:
    words = torch.randint(0, 11, (2, 7))
    return words[:, :-1], words[:, 1:]


def sequence_batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(3, 5, 6), torch.randint(0, 4, (3,))


#: Name -> model, batch, optimizer.
RUNS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[torch.Tensor, torch.Tensor]], Callable[..., torch.optim.Optimizer]]] = {
    "conv": (ConvNet, conv_batch, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    "transformer": (Transformer, word_batch, lambda p: torch.optim.AdamW(p, lr=0.01)),
    "lstm": (Recurrent, sequence_batch, lambda p: torch.optim.RMSprop(p, lr=0.01)),
}


def train(
    kind: str, capture: Callable[[nn.Module], Any] | None = None, wrap: Callable[[nn.Module], nn.Module] = lambda model: model
) -> list[Any]:
    """Trains for some steps; returns everything a program could see of it."""
    build, batch, optimize = RUNS[kind]
    torch.manual_seed(7)
    random.seed(7)
    model = wrap(build())
    optimizer = optimize(model.parameters())
    seen: list[Any] = []
    recording = capture(model) if capture is not None else None
    for _ in range(STEPS):
        if recording is not None:
            recording.start(model)
        inputs, targets = batch()
        optimizer.zero_grad()
        answer = model(inputs)
        loss = nn.functional.cross_entropy(answer.reshape(-1, answer.shape[-1]), targets.reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        seen += [loss.detach().clone(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
        optimizer.step()
        if recording is not None:
            recording.stop()
            recording.step()
    if recording is not None:
        recording.close()
    seen += [value.clone() for value in model.state_dict().values()]
    seen += [value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)]
    seen += [torch.get_rng_state(), random.getstate()]
    return seen


def assert_same(a: list[Any], b: list[Any]) -> None:
    """Bit by bit."""
    assert len(a) == len(b)
    for index, (one, other) in enumerate(zip(a, b)):
        if isinstance(one, torch.Tensor):
            assert one.dtype == other.dtype and one.shape == other.shape, index
            assert one.contiguous().view(-1).view(torch.uint8).equal(other.contiguous().view(-1).view(torch.uint8)), index
        else:
            assert one == other, index


def in_child(work: Callable[[], Any], output: Path, leave: Callable[[int], Any] = os._exit) -> int:
    """Runs `work` in a forked process and returns its exit status as `os.waitstatus_to_exitcode` says it."""
    process = start_child(work, output, leave)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def start_child(work: Callable[[], Any], output: Path, leave: Callable[[int], Any] = os._exit) -> int:
    """Starts `work` in a forked process that prints to `output`."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        with output.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        leave(code)
    raise AssertionError("not reached")


def on_ranks(work: Callable[[int], Any], folder: Path, world: int = 2) -> str:
    """Runs `work(rank)` in processes that are joined by gloo; returns what they printed, and fails if one of them fails."""

    def joined(rank: int) -> None:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank))
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
        work(rank)
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()

    processes = [start_child(lambda rank=rank: joined(rank), folder / f"rank{rank}.log") for rank in range(world)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
    said = "".join((folder / f"rank{rank}.log").read_text() for rank in range(world))
    assert codes == [0] * world, said
    return said
