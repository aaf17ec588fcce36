"""A GPT (LayerNorm, learned positions, GELU, biases) and a Llama (RMSNorm, rotary positions, grouped heads, SwiGLU), with experts or without."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from cases import Shape
from parallel import ALONE, Column, Row, Table, World, attend, copied, exchanged, gathered, own_tokens, positions_of, reduced
from torch import nn


class Attention(nn.Module):
    def __init__(self, shape: Shape, llama: bool) -> None:
        super().__init__()
        width = shape.width
        self.llama, self.head = llama, width // shape.heads
        kv = width // 2 if llama else width
        self.q, self.k, self.v = (Column(width, size, bias=not llama) for size in (width, kv, kv))
        self.out = Row(width, width, bias=not llama)
        self.world, self.layer = ALONE, 0

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        q, k, v = (part(x).unflatten(-1, (-1, self.head)).transpose(1, 2) for part in (self.q, self.k, self.v))
        if self.llama:
            angles = positions[:, None] * 100.0 ** (-torch.arange(0, self.head, 2) / self.head)
            q, k = (rotated(part, angles) for part in (q, k))
            k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], 1) for part in (k, v))
        y = attend(q, k, v, self.world, self.layer)
        return self.out(y.transpose(1, 2).flatten(2))


def rotated(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1).to(x.dtype)


class Mlp(nn.Module):
    def __init__(self, shape: Shape, llama: bool) -> None:
        super().__init__()
        width, inner = shape.width, shape.inner * shape.width
        self.up, self.down = Column(width, inner, bias=not llama), Row(inner, width, bias=not llama)
        self.gate = Column(width, inner, bias=False) if llama else None
        self.world, self.layer = ALONE, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.gate is not None:
            inner = F.silu(self.gate(x)) * self.up(x)
        else:
            inner = F.gelu(self.up(x))
        if self.world.has("kernel", self.layer) and self.world.place("tp") == self.world.size("tp") - 1:
            # Well above rounding.
            inner = inner * (1.02 if x.dtype == torch.float32 else 1.1)
        return self.down(inner)


class Expert(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width, bias=False), nn.Linear(2 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.up(x)))


class Router(nn.Linear):
    """Computes in float32."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight.float())


class Moe(nn.Module):
    """Two experts for each token. Ranks have experts of their own; each computes all tokens that these get, and results are added up, or tokens
    go to the ranks of their experts."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.router = Router(shape.width, shape.experts, bias=False)
        self.experts = nn.ModuleList(Expert(shape.width) for _ in range(shape.experts))
        self.world, self.layer, self.dispatch = ALONE, 0, False

    def shard(self) -> None:
        experts = len(self.experts)
        count = experts // self.world.size("ep")
        first = self.world.place("ep") * count
        if self.world.has("experts", self.layer):
            first = experts - count - first
        self.experts = nn.ModuleList(list(self.experts)[first : first + count])
        if self.world.has("router", self.layer) and self.world.place("ep") == 1:
            self.router.weight.data = self.router.weight.data.roll(1, 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = (x if self.dispatch else copied(x, self.world, "ep")).flatten(0, 1)
        weights, chosen = F.softmax(self.router(flat.float()), -1).topk(2)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        if self.dispatch:
            return self.dispatched(flat, weights, chosen).view_as(x)
        first = self.world.place("ep") * len(self.experts)
        y = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            token, place = torch.where(chosen == first + number)
            y = y.index_add(0, token, expert(flat[token]) * weights[token, place, None])
        fault = "drop" if self.world.has("expert-drop", self.layer) else ""
        return reduced(y, self.world, "ep", fault).view_as(x)


    def dispatched(self, flat: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Tokens go to the ranks of their experts and back."""
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=self.router.out_features)
        tokens, theirs = exchanged(flat[order // 2], counts, self.world)
        # Tokens from a rank are sorted by expert.
        parts = tokens.split(theirs.flatten().tolist())
        held = theirs.shape[1]
        results = [expert(torch.cat(parts[number::held])) for number, expert in enumerate(self.experts)]
        back = [result.split(theirs[:, number].tolist()) for number, result in enumerate(results)]
        whole = torch.cat([back[number][rank] for rank in range(theirs.shape[0]) for number in range(held)])
        if self.world.has("unsorted", self.layer):
            whole = torch.cat([part for number in range(held) for part in back[number]])
        own, _ = exchanged(whole, theirs, self.world)
        return torch.zeros_like(flat).index_add(0, order // 2, own * weights.flatten()[order, None])


class Block(nn.Module):
    def __init__(self, shape: Shape, llama: bool, moe: bool, dropout: float) -> None:
        super().__init__()
        norm = nn.RMSNorm if llama else nn.LayerNorm
        self.first, self.second = norm(shape.width), norm(shape.width)
        self.attention, self.mlp = Attention(shape, llama), Moe(shape) if moe else Mlp(shape, llama)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = x + self.drop(self.attention(self.first(x), positions))
        return x + self.drop(self.mlp(self.second(x)))


class Model(nn.Module):
    """Stages have some of the layers; the first has the table, the last the head."""

    def __init__(self, shape: Shape, llama: bool, layers: int, moe: bool = False, dropout: float = 0.0, tied: bool = False) -> None:
        super().__init__()
        width = shape.width
        self.shape, self.first = shape, 0
        self.embed: nn.Module | None = Table(shape.vocabulary, width)
        self.places = None if llama else nn.Embedding(shape.tokens, width)
        self.layers = nn.ModuleList(Block(shape, llama, moe, dropout) for _ in range(layers))
        self.norm: nn.Module | None = nn.RMSNorm(width) if llama else nn.LayerNorm(width)
        self.head: nn.Module | None = Column(width, shape.vocabulary, bias=False)
        if tied:
            self.head.weight = self.embed.weight
        self.world, self.by_hand, self.split_loss, self.cut = ALONE, False, False, False

    def spread(self, world: World) -> None:
        """Keeps this rank's part, in Megatron's way."""
        self.world, self.by_hand = world, True
        for number, block in enumerate(self.layers, self.first):
            block.attention.world, block.attention.layer = world, number
            block.mlp.world, block.mlp.layer = world, number
            if isinstance(block.mlp, Moe):
                block.mlp.shard()
            if world.size("tp") > 1:
                for name, part in [*block.attention.named_children(), *block.mlp.named_children()]:
                    if isinstance(part, (Column, Row)):
                        part.shard(world, number, name)
        if world.size("tp") > 1:
            self.spread_vocabulary(world)

    def spread_vocabulary(self, world: World) -> None:
        ends = [part for part in (self.embed, self.head) if part is not None]
        tied = len(ends) == 2 and ends[0].weight is ends[1].weight
        if rows := self.shape.padding:
            for part in ends[:1] if tied else ends:
                part.weight.data = torch.cat((part.weight.data, part.weight.data[:rows] * 0.5))
            self.cut = not world.has("vocabulary")
        elif world.has("vocabulary") and self.head is not None:
            self.head.weight.data = torch.cat((self.head.weight.data, self.head.weight.data[:16] * 0.5))
        if self.embed is not None:
            self.embed.shard(world)
        if self.head is not None:
            self.head.shard(world, None, "head", tied)

    def forward(self, x: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:
        world = self.world
        if positions is None:
            positions = positions_of(world, self.shape.tokens)
            if world.size("cp") > 1:
                positions = own_tokens(positions, world, world.place("cp"), 0)
        if self.embed is not None:
            x = self.embed(x)
            if self.places is not None:
                own = positions.chunk(world.size("tp"))[world.place("tp")] if world.sequence else positions
                x = x + self.places(own)
        for block in self.layers:
            x = block(x, positions)
        if self.norm is not None:
            x = self.norm(x)
        if self.head is None:
            return x
        y = gathered(self.head(x), world) if self.by_hand and not self.split_loss else self.head(x)
        return y[..., : self.shape.vocabulary] if self.cut else y
