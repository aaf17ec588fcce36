"""Trains a model for some steps: `train.py MODEL [--device npu:0] ...`. The last line is JSON: losses to the last bit, and a digest of
all weights. The batch is laid down with `--device` alone; nothing else in here knows of a device."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import signal

import models
import torch

OPTIMIZERS = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
    "loop": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, foreach=False),
    "fused": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, fused=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    parser.add_argument("--precision", choices=["float32", "autocast", "bfloat16", "scaler"], default="float32")
    parser.add_argument("--fused", action="store_true", help="with fused operators of torch_npu, of a Llama")
    parser.add_argument("--merged", action="store_true", help="with one product for gate and up projection and a fused operator, of a Llama")
    parser.add_argument("--padded", action="store_true", help="sentences of other lengths")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--save")
    given = parser.parse_args()
    model, batch = models.make(given.model)
    if given.fused:
        models.fuse(model)
    if given.merged:
        models.merge(model)
    if given.padded:
        batch = models.pad(batch)
    model, batch = model.to(given.device), tuple(part.to(given.device) for part in batch)
    if given.precision == "bfloat16":
        model = model.bfloat16()
        batch = tuple(part.bfloat16() if part.is_floating_point() else part for part in batch)
    optimizer = OPTIMIZERS[given.optimizer](model.parameters())
    kind = given.device.partition(":")[0]
    scaler = torch.amp.GradScaler(kind) if given.precision == "scaler" else None
    half = torch.float16 if scaler else torch.bfloat16
    if limit := os.environ.get("PROBE_TEST_FSIZE"):
        # No file may grow beyond this: what a full disk is to a program.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    losses = []
    for _ in range(given.steps):
        optimizer.zero_grad()
        with torch.autocast(kind, half, enabled=given.precision in ("autocast", "scaler")):
            loss = models.loss_of(model, batch, given.padded)
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        losses.append(loss.detach())
    weights = hashlib.sha256()
    for value in model.state_dict().values():
        weights.update(value.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    if given.save:
        torch.save(model.state_dict(), given.save)
    print(json.dumps({"losses": [loss.item().hex() for loss in losses], "weights": weights.hexdigest()}))


if __name__ == "__main__":
    main()
