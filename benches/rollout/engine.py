"""A small engine: requests join a running batch, prompts are taken in chunks, every decode step packs one token of each."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from models import Batch, Language, Pages
from torch import Tensor

END = 1


@dataclass
class Sampler:
    temperature: float = 1.0
    top_p: float = 1.0
    penalty: float = 0.0
    """Taken off the logits of words that the response has already."""

    def values(self, logits: Tensor, used: Tensor | None = None) -> Tensor:
        """Log-probabilities that tokens are drawn from."""
        if self.penalty and used is not None:
            logits = logits - self.penalty * used
        values = (logits / self.temperature).log_softmax(-1)
        if self.top_p < 1:
            p, order = values.exp().sort(-1, descending=True)
            drop = (p.cumsum(-1) - p) >= self.top_p
            values = values.masked_fill(torch.zeros_like(drop).scatter(-1, order, drop), -torch.inf).log_softmax(-1)
        return values


@dataclass
class Request:
    prompt: list[int]
    most: int
    output: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    """Log-probability of each token of the output as sampled."""
    raw: list[float] = field(default_factory=list)
    """The same before the sampler changed the logits."""
    experts: list[Tensor] = field(default_factory=list)
    """Of each token that was fed: [layers, chosen]."""

    @property
    def ended(self) -> bool:
        return len(self.output) == self.most or self.output[-1:] == [END]


class Engine:
    def __init__(self, model: Language, room: int) -> None:
        """`room` is the number of tokens that the cache holds."""
        self.model = model
        count = -(-room // Pages.SIZE)
        dtype = next(model.parameters()).dtype
        for layer in model.model.layers:
            layer.self_attn.pages = Pages(model.config, count, dtype)
        # Pages are handed out in a scattered order, as a running server does.
        self.free = torch.randperm(count, generator=torch.Generator().manual_seed(7)).tolist()
        self.tables: dict[int, list[int]] = {}

    def _place(self, request: int, position: int) -> int:
        table = self.tables.setdefault(request, [])
        if position // Pages.SIZE == len(table):
            table.append(self.free.pop())
        return table[position // Pages.SIZE] * Pages.SIZE + position % Pages.SIZE

    def batch(self, tokens: list[tuple[int, int]]) -> Batch:
        """The batch of tokens (request, position)."""
        slots = [self._place(*token) for token in tokens]
        longest = max(position for _, position in tokens) + 1
        pages = -(-longest // Pages.SIZE)
        table = {of: (self.tables[of] + [0] * pages)[:pages] for of, _ in tokens}
        starts = torch.tensor([table[of] for of, _ in tokens])
        context = (starts[:, :, None] * Pages.SIZE + torch.arange(Pages.SIZE)).flatten(1)[:, :longest]
        positions = torch.tensor([position for _, position in tokens])
        return Batch(positions, torch.tensor(slots), context, torch.arange(longest) <= positions[:, None])

    @torch.no_grad()
    def generate(self, requests: list[Request], sampler: Sampler, seed: int, running: int = 64, chunk: int = 24, together: int = 1) -> None:
        """`together` prompts are taken in one pass, `chunk` tokens of each."""
        random = torch.Generator().manual_seed(seed)
        for start in range(0, len(requests), running):
            part = list(enumerate(requests[start : start + running], start))
            last = {}
            for first in range(0, len(part), together):
                last |= self._prefill(part[first : first + together], chunk)
            while part:
                logits = torch.stack([last[at] for at, _ in part])
                self._draw([request for _, request in part], logits, sampler, random)
                for at, request in part:
                    if request.ended:
                        self.free.extend(self.tables.pop(at))
                part = [(at, request) for at, request in part if not request.ended]
                if not part:
                    break
                places = [(at, len(request.prompt) + len(request.output) - 1) for at, request in part]
                out = self.model(torch.tensor([request.output[-1] for _, request in part]), self.batch(places))
                self._routed([(request, place) for place, (_, request) in enumerate(part)])
                last = {at: out[place] for place, (at, _) in enumerate(part)}

    def _prefill(self, part: list[tuple[int, Request]], chunk: int) -> dict[int, Tensor]:
        """Logits behind the prompt of each request."""
        last = {}
        for begin in range(0, max(len(request.prompt) for _, request in part), chunk):
            ids, places = [], []
            for at, request in part:
                piece = request.prompt[begin : begin + chunk]
                ids += piece
                places += [(at, request, begin + t) for t in range(len(piece))]
            out = self.model(torch.tensor(ids), self.batch([(at, position) for at, _, position in places]))
            self._routed([(request, place) for place, (_, request, _) in enumerate(places)])
            last |= {at: out[place] for place, (at, _, _) in enumerate(places)}
        return last

    def _routed(self, tokens: list[tuple[Request, int]]) -> None:
        if self.model.config.experts:
            routed = torch.stack([layer.mlp.routed for layer in self.model.model.layers], 1)
            for request, place in tokens:
                request.experts.append(routed[place])

    @staticmethod
    def _draw(requests: list[Request], logits: Tensor, sampler: Sampler, random: torch.Generator) -> None:
        used = torch.zeros_like(logits)
        if sampler.penalty:
            for row, request in enumerate(requests):
                used[row, request.output] = 1
        values, raw = sampler.values(logits, used), logits.log_softmax(-1)
        drawn = torch.multinomial(values.exp(), 1, generator=random)[:, 0].tolist()
        for row, (request, word) in enumerate(zip(requests, drawn)):
            request.output.append(word)
            request.values.append(values[row, word].item())
            request.raw.append(raw[row, word].item())
