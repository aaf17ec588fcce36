"""Dumps of an engine and a trainer, sound and with a fault in one layer of the engine, and what `probe compare --tokens` says of them.

activations.py FOLDER [MODEL ...]: the trainer pads on the left, the engine takes prompts in chunks and decodes. PROBE_BIN is the program.
"""

from __future__ import annotations

import copy
import json
import os
import random
import re
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import probe
import torch
import torch.nn.functional as F
from engine import Engine, Request, Sampler
from models import Config, Language, engine_of, turned
from torch import Tensor
from trainer import scores

MODELS = {
    "dense": Config(),
    "deep": Config(layers=6, width=64, inner=128),
    "wide": Config(layers=2, width=256, heads=8, groups=2, inner=384),
    "tied": Config(layers=4, width=64, groups=4, inner=128, norm="layer", gated=False, tied=True),
    "tied-gated": Config(tied=True),
    "capped": Config(layers=2, width=128, groups=1, inner=256, cap=15.0),
    "moe": Config(layers=3, width=64, inner=96, experts=8),
    "moe-tied": Config(layers=2, width=64, inner=64, experts=4, tied=True),
    "layer-norm": Config(norm="layer"),
    "plain": Config(gated=False),
}


class Attention:
    """Attention of one layer with another rotary base, scale or window, or with keys that go astray."""

    def __init__(self, module: torch.nn.Module, base: float = 0.0, scale: float = 1.0, short: int = 0, stale: bool = False) -> None:
        self.module, self.scale, self.short, self.stale = module, scale, short, stale
        self.base = base or module.config.base

    def __call__(self, x: Tensor, batch: object) -> Tensor:
        module, of = self.module, self.module.config
        q, k, v = module.qkv_proj(x).view(len(x), -1, of.size).split([of.heads, of.groups, of.groups], 1)
        q, k = turned(q, batch.positions, self.base), turned(k, batch.positions, self.base)
        slots = batch.slots
        if self.stale:
            # Every fifth token overwrites the first of its request.
            slots = torch.where(batch.positions % 5 == 4, batch.context[:, 0], slots)
        module.pages.keys[slots], module.pages.values[slots] = k, v
        keys, values = module.pages.keys[batch.context], module.pages.values[batch.context]
        seen = batch.seen
        if self.short:
            seen = seen & (torch.arange(seen.shape[1]) > batch.positions[:, None] - self.short)
        q = q.view(len(x), of.groups, of.heads // of.groups, of.size)
        scores = torch.einsum("tgrs,tlgs->tgrl", q.float(), keys.float()) * of.size**-0.5 * self.scale
        weights = scores.masked_fill(~seen[:, None, None], -torch.inf).softmax(-1).to(x.dtype)
        return module.o_proj(torch.einsum("tgrl,tlgs->tgrs", weights, values).reshape(len(x), -1))


def change(tensor: Tensor, how: Callable[[Tensor], Tensor]) -> None:
    tensor.data = how(tensor.data)


def plant(engine: Language, fault: str, at: int) -> tuple[str, ...]:
    """Plants a fault into a layer, and returns the modules that may be named."""
    layer = engine.model.layers[at]
    attn, mlp = layer.self_attn, layer.mlp
    if fault == "o-weight":
        change(attn.o_proj.weight, lambda w: w + 0.02 * w.std() * torch.randn_like(w))
        return ("self_attn.o_proj",)
    if fault == "k-heads":
        rows = slice(engine.config.heads * engine.config.size, (engine.config.heads + engine.config.groups) * engine.config.size)
        attn.qkv_proj.weight.data[rows] = attn.qkv_proj.weight.data[rows].roll(1, 0)
        return ("self_attn.qkv_proj",)
    if fault == "norm":
        change(layer.post_attention_layernorm.weight, lambda w: w * 1.03)
        return ("post_attention_layernorm",)
    if fault == "mlp":
        if engine.config.experts:
            mlp.up.data = mlp.up.data.roll(1, 0)
            return ("mlp",)
        if hasattr(mlp, "gate_up_proj"):
            gate, up = mlp.gate_up_proj.weight.data.chunk(2)
            mlp.gate_up_proj.weight.data = torch.cat([up, gate])
            return ("mlp.gate_up_proj",)
        change(mlp.up_proj.weight, lambda w: w * 1.02)
        return ("mlp.up_proj",)
    settings = {"rope": {"base": 3000.0}, "scale": {"scale": 0.9}, "window": {"short": 6}, "cache": {"stale": True}}[fault]
    attn.forward = Attention(attn, **settings)
    return ("self_attn", "self_attn.o_proj")


FAULTS = ("o-weight", "k-heads", "norm", "mlp", "rope", "scale", "window", "cache")


def recorded(folder: Path, model: torch.nn.Module, run: Callable[[], object]) -> None:
    with probe.capture(str(folder), model=model, steps=[0], level="module", task="tensor"):
        run()


def asked(trainer: Path, engine: Path, out: Path) -> dict:
    program = os.environ.get("PROBE_BIN", "probe")
    done = subprocess.run([program, "compare", "-b", trainer, "-c", engine, "--tokens", "-o", out, "--format", "json", "-q"], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"{engine}: {done.stdout}{done.stderr}")
    return json.loads((out / "report.json").read_text())


def main(folder: Path, names: list[str]) -> None:
    right = {"sound": [0, 0], "fault": [0, 0]}
    for name in names:
        seed = zlib.crc32(name.encode())
        torch.manual_seed(seed)
        chance = random.Random(seed)
        for dtype in (torch.float32, torch.bfloat16):
            trainer = Language(MODELS[name]).to(dtype).eval()
            requests = [Request([chance.randrange(4, 260) for _ in range(chance.randrange(5, 40))], 12) for _ in range(6)]
            engine = engine_of(trainer, dtype)
            Engine(copy.deepcopy(engine), 4096).generate(requests, Sampler(), seed)
            left = [max(len(r.prompt) + len(r.output) for r in requests) - len(r.prompt) - len(r.output) for r in requests]
            place = folder / f"{name}-{str(dtype)[6:]}"
            recorded(place / "trainer", trainer, lambda: scores(trainer, requests, left=left))
            for fault in ("sound", *FAULTS):
                wrong = copy.deepcopy(engine)
                at = chance.randrange(MODELS[name].layers)
                expected = plant(wrong, fault, at) if fault != "sound" else ()
                again = [Request(r.prompt, r.most) for r in requests]
                server = Engine(wrong, 4096)
                recorded(place / fault, wrong, lambda: forced(server, again, requests))
                report = asked(place / "trainer", place / fault, place / f"{fault}-report")
                found = report["first_divergence"]
                module = re.sub(r"^Module\.model\.layers\.(\d+)\.(.*)\.\w+\.forward\.\d+$", r"\1 \2", found["op"]) if found else ""
                good = module in [f"{at} {path}" for path in expected] if expected else not found
                right["fault" if expected else "sound"][0 if good else 1] += 1
                if not good:
                    print(f"{name} {dtype} {fault} in layer {at}: {found and (found['op'], found['cause'], found.get('reason'))}", flush=True)
    print({kind: f"{good} of {good + bad}" for kind, (good, bad) in right.items()})


def forced(server: Engine, requests: list[Request], sampled: list[Request]) -> None:
    """Runs the engine with the tokens that were sampled before."""

    def draw(part: list[Request], logits: Tensor, sampler: Sampler, chance: torch.Generator) -> None:
        for request in part:
            request.output.append(sampled[requests.index(request)].output[len(request.output)])

    server._draw = draw
    server.generate(requests, Sampler(), 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(MODELS))
