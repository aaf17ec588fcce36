"""Records the dumps beside this file: `make.py` (torch 2.7, gloo). A block of a transformer on one rank, with torch's tensor parallelism on
two, and the same with the all-reduce behind the attention left out."""

from __future__ import annotations

import json
import os
import sys
import tempfile
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


def run(name: str, ranks: int, dropped: bool = False) -> None:
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
