"""Rolls out, scores and plants faults: make.py FOLDER HALF [MODEL]. Each model is made by a process of its own.

A half (`seen`, `sealed`) has models, samples and sizes of faults of its own. FOLDER/HALF/{float32,bfloat16}/MODEL holds a file a pair, as tensors of verl, and
MODEL.json says what is wrong in each.
"""

from __future__ import annotations

import json
import random
import sys
import zlib
from pathlib import Path

import torch
from engine import Engine, Request, Sampler
from faults import EXPECTED, LONGEST, ONLY, Faults, Pair
from models import MODELS, Language, engine_of
from trainer import learnt, text

ROWS = (4, 16, 80)
SAMPLED = max(ROWS)


def tensors(pair: Pair) -> dict[str, torch.Tensor]:
    """The pair as verl has it: prompts padded in front, responses behind."""
    before = max(len(request.prompt) for request in pair.requests)
    first = 1 if len(pair.masks[0]) > len(pair.requests[0].output) else 0
    after = max(len(request.output) for request in pair.requests) + first
    rows = len(pair.requests)
    out = {
        "prompts": torch.zeros(rows, before - first, dtype=torch.long),
        "responses": torch.zeros(rows, after, dtype=torch.long),
        "attention_mask": torch.zeros(rows, before - first + after, dtype=torch.long),
        "response_mask": torch.zeros(rows, after),
        "rollout_log_probs": torch.zeros(rows, after),
        "old_log_probs": torch.zeros(rows, after),
    }
    for row, request in enumerate(pair.requests):
        ids = request.prompt + request.output
        cut = len(request.prompt) - first
        out["prompts"][row, before - first - cut :] = torch.tensor(ids[:cut])
        out["responses"][row, : len(ids) - cut] = torch.tensor(ids[cut:])
        out["attention_mask"][row, before - first - cut : before - first - cut + len(ids)] = 1
        out["response_mask"][row, : len(pair.masks[row])] = pair.masks[row]
        for name, values in (("rollout_log_probs", pair.rollout[row]), ("old_log_probs", pair.trainer[row])):
            out[name][row, first : first + len(values)] = values
    return out


def made(folder: Path, half: str, name: str, root: Path) -> None:
    seed = zlib.crc32(f"{half} {name}".encode())
    chance = random.Random(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    lines = text(root)
    trainer = learnt(Language(MODELS[name]), lines, 60, seed)
    cool = chance.choice([0.6, 0.7, 0.8, 1.3])
    samplers = {"plain": Sampler(), "cool": Sampler(cool), "top-p": Sampler(top_p=chance.choice([0.8, 0.9])), "penalty": Sampler(penalty=1.0)}
    for dtype in (torch.float32, torch.bfloat16):
        engine = Engine(engine_of(trainer, dtype), 64 * 128)
        rolled = {}
        for kind, sampler in [*samplers.items(), ("others", samplers["plain"]), ("grouped", samplers["plain"])]:
            lengths = [LONGEST if kind == "grouped" and row % 3 == 0 else chance.randrange(4, LONGEST) for row in range(SAMPLED)]
            rolled[kind] = [Request(chance.choice(lines)[:length], chance.randrange(16, 56)) for length in lengths]
            engine.generate(rolled[kind], sampler, chance.randrange(1 << 30))
        print(f"  {half} {name} {dtype}: {sum(len(r.output) for r in rolled['plain'])} tokens", flush=True)
        faults = Faults(trainer, dtype, samplers, chance, rolled["others"])
        to = folder / half / str(dtype).removeprefix("torch.") / name
        to.mkdir(parents=True, exist_ok=True)
        index = []
        for fault in EXPECTED:
            if name not in ONLY.get(fault, (name,)):
                continue
            for rows in ROWS:
                pair = faults.pair(fault, rolled, rows)
                torch.save(tensors(pair), to / f"batch_step_{len(index)}.pt")
                index.append({"fault": fault, "rows": rows, "expected": pair.expected(fault)})
        to.with_suffix(".json").write_text(json.dumps(index))


if __name__ == "__main__":
    made(Path(sys.argv[1]), sys.argv[2], sys.argv[3], Path(__file__).parents[2])
