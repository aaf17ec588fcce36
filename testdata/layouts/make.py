"""Records the dumps beside this file: `make.py` (torch 2.7, gloo). A block of a transformer on one rank, with torch's tensor parallelism on
two, and the same with the all-reduce behind the attention left out. Two blocks on one rank and as two stages of a pipeline, of which one
variant loads the first block twice. A block whose sequence is split in zigzag, and gathered in the order of the ranks. A projection whose
bias is added on every rank."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import probe

HERE = Path(__file__).parent
WIDTH, HEADS, TOKENS, BATCH = 8, 2, 4, 2


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part(x).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.up, self.down = Attention(), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        return x + self.down(F.gelu(self.up(self.second(x))))


def record(name: str, ranks: int, dropped: bool) -> None:
    torch.manual_seed(0)
    model, x = Block(), torch.randn(BATCH, TOKENS, WIDTH)
    if ranks > 1:
        plan = {f"attention.{part}": ColwiseParallel() for part in "qkv"}
        plan["attention.out"] = RowwiseParallel(output_layouts=Partial() if dropped else Replicate())
        plan |= {"up": ColwiseParallel(), "down": RowwiseParallel()}
        parallelize_module(model, init_device_mesh("cpu", (ranks,), mesh_dim_names=("tp",)), plan)
    with probe.capture(HERE / name, model=model, steps=[0], level="module", task="tensor", overwrite=True, stacks=False):
        model(x).square().mean().backward()


def stages(name: str, ranks: int, wrong: bool) -> None:
    torch.manual_seed(0)
    blocks, x = nn.ModuleList(Block() for _ in range(2)), torch.randn(BATCH, TOKENS, WIDTH)
    rank = dist.get_rank() if ranks > 1 else 0
    with torch.no_grad():
        for parameter in blocks.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    own = blocks if ranks == 1 else nn.ModuleList([blocks[0 if wrong else rank]])
    model = nn.ModuleDict({"layers": own})
    with probe.capture(HERE / name, model=model, steps=[0], level="module", task="tensor", overwrite=True, stacks=False):
        if rank > 0:
            x = torch.empty_like(x)
            dist.recv(x, rank - 1)
            x.requires_grad_()
        y = x
        for block in own:
            y = block(y)
        if rank < ranks - 1:
            dist.send(y.detach(), rank + 1)
            gradient = torch.empty_like(y)
            dist.recv(gradient, rank + 1)
            y.backward(gradient)
        else:
            y.square().mean().backward()
        if rank > 0:
            dist.send(x.grad, rank - 1)


class Zigzag(nn.Module):
    """Normalises a rank's part of the sequence, and projects all of it."""

    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.ranks, self.norm, self.project = ranks, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.ranks > 1:
            chunks, rank = x.chunk(2 * self.ranks, 1), dist.get_rank()
            x = torch.cat((chunks[rank], chunks[2 * self.ranks - 1 - rank]), 1)
        y = self.norm(x)
        if self.ranks > 1:
            parts = [torch.empty_like(y) for _ in range(self.ranks)]
            dist.all_gather(parts, y.contiguous())
            y = torch.cat(parts, 1)
        return self.project(y)


def zigzag(name: str, ranks: int, _: bool) -> None:
    torch.manual_seed(0)
    model, x = Zigzag(ranks), torch.randn(BATCH, TOKENS, WIDTH)
    with probe.capture(HERE / name, model=model, steps=[0], level="module", task="tensor", overwrite=True, stacks=False):
        model(x)


class Biased(nn.Module):
    """A projection whose input is split between ranks; the bias is added before the reduction."""

    def __init__(self, ranks: int) -> None:
        super().__init__()
        whole, self.ranks = nn.Linear(WIDTH, WIDTH), ranks
        at = dist.get_rank() if ranks > 1 else 0
        self.weight, self.bias = nn.Parameter(whole.weight.detach().chunk(ranks, 1)[at].clone()), whole.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        at = dist.get_rank() if self.ranks > 1 else 0
        y = F.linear(x.chunk(self.ranks, -1)[at], self.weight, self.bias)
        if self.ranks > 1:
            dist.all_reduce(y)
        return y


def bias(name: str, ranks: int, _: bool) -> None:
    torch.manual_seed(0)
    model, x = nn.ModuleDict({"project": Biased(ranks)}), torch.randn(BATCH, TOKENS, WIDTH)
    with probe.capture(HERE / name, model=model, steps=[0], level="module", task="tensor", overwrite=True, stacks=False), torch.no_grad():
        model["project"](x)


def run(name: str, ranks: int, dropped: bool = False, record: Callable[[str, int, bool], None] = record) -> None:
    meeting, children = tempfile.mktemp(), []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            if ranks > 1:
                dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
            record(name, ranks, dropped)
            sys.stderr.flush()
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    # Facts about the machine are nobody's business here.
    manifest = HERE / name / "manifest.json"
    said = json.loads(manifest.read_text())
    said["environment"], said["config"], said["started"] = {}, None, ""
    manifest.write_text(json.dumps(said, indent=2) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    run("one", 1)
    run("tp2", 2)
    run("tp2_dropped", 2, dropped=True)
    run("pipeline/one", 1, record=stages)
    run("pipeline/two", 2, record=stages)
    run("pipeline/wrong", 2, True, record=stages)
    run("zigzag/one", 1, record=zigzag)
    run("zigzag/two", 2, record=zigzag)
    run("bias/one", 1, record=bias)
    run("bias/two", 2, record=bias)
