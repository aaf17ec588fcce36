"""The trainer: language models learnt from this project's guides, scores of sampled tokens, steps of policy gradient."""

from __future__ import annotations

import copy
import random
from pathlib import Path

import torch
from engine import END, Request, Sampler
from models import Language
from torch import Tensor


def text(root: Path) -> list[list[int]]:
    """Lines of the guides as bytes, with an end token; bytes begin at 4."""
    lines = [line.strip() for path in sorted(root.glob("docs/*.md")) for line in path.read_text().splitlines()]
    return [[byte + 4 for byte in line.encode()][:95] + [END] for line in lines if len(line) > 30]


def padded(rows: list[list[int]], left: list[int] | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, mask and positions of rows with padding in front (`left`) and behind."""
    left = left or [0] * len(rows)
    width = max(len(row) + by for row, by in zip(rows, left))
    ids, mask = torch.zeros(len(rows), width, dtype=torch.long), torch.zeros(len(rows), width, dtype=torch.bool)
    positions = torch.zeros(len(rows), width, dtype=torch.long)
    for at, (row, by) in enumerate(zip(rows, left)):
        ids[at, by : by + len(row)], mask[at, by : by + len(row)] = torch.tensor(row), True
        positions[at, by : by + len(row)] = torch.arange(len(row))
    return ids, mask, positions


def logits_of(model: Language, ids: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
    width = ids.shape[1]
    seen = torch.tril(torch.ones(width, width, dtype=torch.bool))[None] & mask[:, None]
    # A row of padding looks at itself, as a row that looks at nothing has no softmax.
    return model(ids, positions, seen | torch.eye(width, dtype=torch.bool))


def learnt(model: Language, lines: list[list[int]], steps: int, seed: int) -> Language:
    chance = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * min(1, step / 20) * (1 - 0.9 * step / steps)
        ids, mask, positions = padded(chance.sample(lines, 16))
        values = logits_of(model, ids, mask, positions)[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        loss = -values[mask[:, 1:]].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"  learnt to a loss of {loss.item():.2f}", flush=True)
    return model.eval()


@torch.no_grad()
def scores(
    model: Language,
    requests: list[Request],
    sampler: Sampler = Sampler(),
    *,
    micro: int = 32,
    left: list[int] | None = None,
    gap: int = 0,
    shift: int = 0,
    narrow: bool = False,
    routes: list[tuple[Tensor, Tensor]] | None = None,
) -> list[Tensor]:
    """Log-probability of each token of the responses. Experts and margins of all tokens are added to `routes`.

    `shift` moves all positions of padded rows, `gap` those of their responses; with `narrow`, the softmax is taken in bfloat16.
    """
    out = []
    for start in range(0, len(requests), micro):
        part = requests[start : start + micro]
        begin = (left or [0] * len(requests))[start : start + micro]
        ids, mask, positions = padded([request.prompt + request.output for request in part], begin)
        for row, (request, by) in enumerate(zip(part, begin)):
            if by:
                positions[row] += shift
                positions[row, by + len(request.prompt) :] += gap
        logits = logits_of(model, ids, mask, positions)
        if routes is not None:
            mlps = [layer.mlp for layer in model.model.layers]
            routed, margins = torch.stack([mlp.routed for mlp in mlps], 2), torch.stack([mlp.margins for mlp in mlps], 2)
            routes.extend((routed[row, by:][: len(r.prompt) + len(r.output)], margins[row, by:][: len(r.prompt) + len(r.output)]) for row, (r, by) in enumerate(zip(part, begin)))
        for row, (request, by) in enumerate(zip(part, begin)):
            first = by + len(request.prompt)
            own = logits[row, first - 1 : first - 1 + len(request.output)]
            used = torch.zeros_like(own)
            if sampler.penalty:
                for t in range(1, len(request.output)):
                    used[t] = used[t - 1]
                    used[t, request.output[t - 1]] = 1
            values = sampler.values(own.bfloat16() if narrow else own, used)
            out.append(values.gather(1, torch.tensor(request.output)[:, None])[:, 0].float())
    return out


def stepped(model: Language, requests: list[Request], rate: float, steps: int, seed: int) -> Language:
    """A copy after steps of REINFORCE with random advantages, in float32."""
    new = copy.deepcopy(model).float().train()
    optimizer = torch.optim.AdamW(new.parameters(), lr=rate, weight_decay=0.0)
    chance = torch.Generator().manual_seed(seed)
    part = requests[:16]
    ids, mask, positions = padded([request.prompt + request.output for request in part])
    for _ in range(steps):
        values = logits_of(new, ids, mask, positions)[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        loss = -(values * mask[:, 1:] * torch.randn(len(part), 1, generator=chance)).sum() / mask.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(new.parameters(), 1.0)
        optimizer.step()
    return new.eval()
