"""Trains a small model on two devices with DDP, or with FSDP2 where the second word is `sharded`: below `torch.distributed.run`. The last line of
rank 0 is JSON, as that of `train.py`."""

from __future__ import annotations

import json
import sys

import models
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def sharded(model: nn.Module, kind: str) -> nn.Module:
    mesh = init_device_mesh(kind, (dist.get_world_size(),))
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh)
    return model


def main() -> None:
    kind = sys.argv[1]
    dist.init_process_group("hccl" if kind == "npu" else "gloo")
    rank = dist.get_rank()
    device = f"npu:{rank}" if kind == "npu" else "cpu"
    if kind == "npu":
        torch.npu.set_device(device)
    model, (x, y) = models.make("gpt")
    model = sharded(model.to(device), kind) if sys.argv[2:] == ["sharded"] else DistributedDataParallel(model.to(device))
    half = x.shape[0] // 2
    batch = tuple(part[rank * half : (rank + 1) * half].to(device) for part in (x, y))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = models.loss_of(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    # The other collectives, each against what it must give.
    mine = torch.arange(4.0, device=device) + 10 * rank
    gathered = [torch.empty_like(mine) for _ in range(2)]
    dist.all_gather(gathered, mine)
    scattered = torch.empty(2, device=device)
    dist.reduce_scatter_tensor(scattered, mine)
    spread = mine.clone()
    dist.broadcast(spread, src=1)
    swapped = torch.empty_like(mine)
    if kind == "npu":
        dist.all_to_all_single(swapped, mine)
    dist.barrier()
    found = {"gathered": torch.stack(gathered), "scattered": scattered, "spread": spread, "swapped": swapped}
    if rank == 0:
        print(json.dumps({"losses": [loss.item().hex() for loss in losses], **{name: value.tolist() for name, value in found.items()}}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
