"""Rolls out, scores and plants faults: make.py FOLDER HALF MODEL [ROWS,ROWS,... [FAULT,FAULT,...]]. Each model is made by a process of its own.

A half (`seen`, `sealed`) has models, samples and sizes of faults of its own. FOLDER/HALF/{float32,bfloat16}/MODEL holds a file a pair, as tensors of verl, and
MODEL.json says what is wrong in each. MODEL-quantized holds passes of the trainer with quantised weights, MODEL-again such with other kernels. 2 rows have some 64 tokens, 2,260 rows some 65,536.
"""

from __future__ import annotations

import json
import random
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import torch
from engine import Engine, Request, Sampler
from faults import EXPECTED, LONGEST, NUMBERS, ONLY, SAMPLED, Faults, Pair
from models import MODELS, Language, engine_of, quantised
from trainer import learnt, text

ROWS = (4, 16, 80)


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
    return out | experts(pair, out["attention_mask"])


def experts(pair: Pair, attention: torch.Tensor) -> dict[str, torch.Tensor]:
    """Experts of both sides and the trainer's margins, with padding as ids have it."""
    if not pair.routes:
        return {}
    rows, length = attention.shape
    _, layers, chosen = pair.routes[0][0].shape
    out = {name: torch.zeros(rows, length, layers, chosen, dtype=torch.int16) for name in ("routed_experts", "trainer_routed_experts")}
    out["trainer_router_margins"] = torch.zeros(rows, length, layers)
    for row, (request, (routed, margins)) in enumerate(zip(pair.requests, pair.routes)):
        # The last token was never fed to the engine.
        fed = torch.stack(request.experts[: len(request.prompt) + len(request.output) - 1])
        begin = int(attention[row].argmax())
        out["routed_experts"][row, begin : begin + len(fed)] = fed.to(torch.int16)
        out["trainer_routed_experts"][row, begin : begin + len(routed)] = routed.to(torch.int16)
        out["trainer_router_margins"][row, begin : begin + len(margins)] = margins.float()
    return out


def made(folder: Path, half: str, name: str, root: Path, sizes: tuple[int, ...], chosen: list[str]) -> None:
    seed = zlib.crc32(f"{half} {name}".encode())
    most = max(sizes)
    running = 64 if most <= max(ROWS) else 512
    chance = random.Random(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    lines = text(root)
    trainer = learnt(Language(MODELS[name]), lines, 60, seed)
    cool = chance.choice([0.6, 0.7, 0.8, 1.3])
    samplers = {"plain": Sampler(), "cool": Sampler(cool), "top-p": Sampler(top_p=chance.choice([0.8, 0.9])), "penalty": Sampler(penalty=1.0)}
    for dtype in (torch.float32, torch.bfloat16):
        rolled = {}
        needed = {SAMPLED.get(part, "plain") for fault in chosen for part in fault.split("+")} | {"others"}
        for kind in (*samplers, "others", "grouped", *NUMBERS):
            if kind not in needed:
                continue
            sampler = samplers.get(kind, samplers["plain"])
            model = engine_of(trainer, dtype)
            engine = Engine(quantised(model, kind.removesuffix("-engine")) if kind in NUMBERS else model, running * 128)
            lengths = [LONGEST if kind == "grouped" and row % 3 == 0 else chance.randrange(4, LONGEST) for row in range(16 if kind == "others" else most)]
            rolled[kind] = [Request(chance.choice(lines)[:length], chance.randrange(16, 56)) for length in lengths]
            engine.generate(rolled[kind], sampler, chance.randrange(1 << 30), running, together=1 if running == 64 else running)
        print(f"  {half} {name} {dtype}: {sum(len(r.output) for r in max(rolled.values(), key=len))} tokens", flush=True)
        faults = Faults(trainer, dtype, samplers, chance, rolled["others"])
        to = folder / half / str(dtype).removeprefix("torch.") / name
        to.mkdir(parents=True, exist_ok=True)
        index = []
        for fault in chosen:
            if name not in ONLY.get(fault, (name,)):
                continue
            for rows in sizes:
                pair = faults.pair(fault, rolled, rows)
                batch = tensors(pair)
                torch.save(batch, to / f"batch_step_{len(index)}.pt")
                for kind, values in (("quantized", pair.second), ("again", pair.again)):
                    if values is not None:
                        second = to.with_name(f"{name}-{kind}")
                        second.mkdir(exist_ok=True)
                        other = tensors(replace(pair, trainer=values, routes=[]))
                        del other["rollout_log_probs"]
                        torch.save(other, second / f"batch_step_{len(index)}.pt")
                index.append({"fault": fault, "rows": rows, "expected": pair.expected(fault)})
        to.with_suffix(".json").write_text(json.dumps(index))


if __name__ == "__main__":
    sizes = tuple(int(rows) for rows in sys.argv[4].split(",")) if len(sys.argv) > 4 else ROWS
    chosen = sys.argv[5].split(",") if len(sys.argv) > 5 else list(EXPECTED)
    made(Path(sys.argv[1]), sys.argv[2], sys.argv[3], Path(__file__).parents[2], sizes, chosen)
