"""A trainer's model and an engine's, with equal weights: padded batches against packed tokens and a paged cache."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    layers: int = 3
    width: int = 96
    heads: int = 4
    groups: int = 2
    inner: int = 192
    words: int = 260
    base: float = 10000.0
    norm: str = "rms"
    gated: bool = True
    tied: bool = False
    cap: float = 0.0
    """Logits are `cap * tanh(logits / cap)`; 0 leaves them."""
    experts: int = 0
    chosen: int = 2

    @property
    def size(self) -> int:
        return self.width // self.heads


MODELS = {
    "dense": Config(),
    "tied": Config(layers=4, width=64, groups=4, inner=128, norm="layer", gated=False, tied=True),
    "capped": Config(layers=2, width=128, heads=4, groups=1, inner=256, cap=15.0),
    "moe": Config(layers=3, width=64, inner=96, experts=8),
    "moe-top-1": Config(layers=3, width=64, inner=96, experts=4, chosen=1),
    "moe-many": Config(layers=4, width=64, inner=32, experts=16, chosen=4),
}


class Norm(nn.Module):
    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.centred = kind == "layer"

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """With a residual, as engines have it: the norm of the sum, and the sum."""
        if residual is not None:
            x = x + residual
        wide = x.float()
        if self.centred:
            wide = wide - wide.mean(-1, keepdim=True)
        out = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight
        return out if residual is None else (out, x)


def turned(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """Rotary embedding of `x` [..., tokens, heads, size]."""
    half = x.shape[-1] // 2
    angle = positions[..., None].float() * base ** (-torch.arange(half) / half)
    cos, sin = angle.cos()[..., None, :].to(x.dtype), angle.sin()[..., None, :].to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Router(nn.Linear):
    """Scores of experts, in float32 unless `wide` is false."""

    wide = True

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x.float(), self.weight.float()) if self.wide else super().forward(x)


class Experts(nn.Module):
    """Mixture of experts; `routed` keeps the choices of the last call, `margins` how close the last chosen and the first left were."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate = Router(config.width, config.experts, bias=False)
        self.up = nn.Parameter(torch.randn(config.experts, config.width, config.inner) * config.width**-0.5)
        self.down = nn.Parameter(torch.randn(config.experts, config.inner, config.width) * config.inner**-0.5)
        self.chosen = config.chosen
        self.routed = self.margins = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        weights, routed = self.gate(flat).float().softmax(-1).topk(self.chosen + 1, -1)
        self.margins = (weights[:, self.chosen - 1] - weights[:, self.chosen]).detach().reshape(x.shape[:-1])
        weights, routed = weights[:, : self.chosen], routed[:, : self.chosen]
        self.routed = routed.reshape(*x.shape[:-1], self.chosen)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        out = torch.zeros_like(flat)
        for expert in range(self.up.shape[0]):
            token, place = (routed == expert).nonzero(as_tuple=True)
            if len(token):
                out = out.index_add(0, token, F.silu(flat[token] @ self.up[expert]) @ self.down[expert] * weights[token, place, None])
        return out.reshape(x.shape)


class Gated(nn.Module):
    """Activation of an engine: of both halves at once."""

    def forward(self, x: Tensor) -> Tensor:
        gate, up = x.chunk(2, -1)
        return F.silu(gate) * up


class Inner(nn.Module):
    def __init__(self, config: Config, fused: bool) -> None:
        super().__init__()
        self.fused = fused and config.gated
        self.act_fn = Gated() if self.fused else nn.SiLU() if config.gated else nn.GELU()
        if self.fused:
            self.gate_up_proj = nn.Linear(config.width, 2 * config.inner, bias=False)
        else:
            self.gate_proj = nn.Linear(config.width, config.inner, bias=False) if config.gated else None
            self.up_proj = nn.Linear(config.width, config.inner, bias=False)
        self.down_proj = nn.Linear(config.inner, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.fused:
            return self.down_proj(self.act_fn(self.gate_up_proj(x)))
        if self.gate_proj is not None:
            return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return self.down_proj(self.act_fn(self.up_proj(x)))


class Attention(nn.Module):
    """Of the trainer: a padded batch and its mask."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.q_proj = nn.Linear(config.width, config.heads * config.size, bias=False)
        self.k_proj = nn.Linear(config.width, config.groups * config.size, bias=False)
        self.v_proj = nn.Linear(config.width, config.groups * config.size, bias=False)
        self.o_proj = nn.Linear(config.heads * config.size, config.width, bias=False)

    def forward(self, x: Tensor, positions: Tensor, seen: Tensor) -> Tensor:
        of = self.config
        rows, length = x.shape[:2]
        q = turned(self.q_proj(x).view(rows, length, of.heads, of.size), positions, of.base)
        k = turned(self.k_proj(x).view(rows, length, of.groups, of.size), positions, of.base)
        v = self.v_proj(x).view(rows, length, of.groups, of.size)
        k, v = (each.repeat_interleave(of.heads // of.groups, 2).transpose(1, 2) for each in (k, v))
        out = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=seen[:, None])
        return self.o_proj(out.transpose(1, 2).reshape(rows, length, -1))


class Pages:
    """Cache of one layer: pages of 16 tokens that any request may hold."""

    SIZE = 16

    def __init__(self, config: Config, count: int, dtype: torch.dtype) -> None:
        self.keys = torch.zeros(count * self.SIZE, config.groups, config.size, dtype=dtype)
        self.values = torch.zeros_like(self.keys)


@dataclass
class Batch:
    """Packed tokens: where each is kept, and all places of its request up to it."""

    positions: Tensor
    slots: Tensor
    context: Tensor
    """[tokens, longest], places in the cache."""
    seen: Tensor
    """[tokens, longest], true where the token may look."""


class PagedAttention(nn.Module):
    """Of the engine: packed tokens, each looking at its request's pages."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.qkv_proj = nn.Linear(config.width, (config.heads + 2 * config.groups) * config.size, bias=False)
        self.o_proj = nn.Linear(config.heads * config.size, config.width, bias=False)
        self.pages: Pages

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        of = self.config
        q, k, v = self.qkv_proj(x).view(len(x), -1, of.size).split([of.heads, of.groups, of.groups], 1)
        q, k = turned(q, batch.positions, of.base), turned(k, batch.positions, of.base)
        self.pages.keys[batch.slots], self.pages.values[batch.slots] = k, v
        keys, values = self.pages.keys[batch.context], self.pages.values[batch.context]
        q = q.view(len(x), of.groups, of.heads // of.groups, of.size)
        scores = torch.einsum("tgrs,tlgs->tgrl", q.float(), keys.float()) * of.size**-0.5
        weights = scores.masked_fill(~batch.seen[:, None, None], -torch.inf).softmax(-1).to(x.dtype)
        return self.o_proj(torch.einsum("tgrl,tlgs->tgrs", weights, values).reshape(len(x), -1))


class Block(nn.Module):
    def __init__(self, config: Config, paged: bool) -> None:
        super().__init__()
        self.input_layernorm = Norm(config.width, config.norm)
        self.self_attn = PagedAttention(config) if paged else Attention(config)
        self.post_attention_layernorm = Norm(config.width, config.norm)
        self.mlp = Experts(config) if config.experts else Inner(config, paged)

    def forward(self, x: Tensor, *how: object) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), *how)
        return x + self.mlp(self.post_attention_layernorm(x))


class PagedBlock(Block):
    """Sums are left to the norms, so that a block returns what it adds and the sum before."""

    def forward(self, positions: Tensor, x: Tensor, residual: Tensor | None, batch: Batch) -> tuple[Tensor, Tensor]:
        if residual is None:
            x, residual = self.input_layernorm(x), x
        else:
            x, residual = self.input_layernorm(x, residual)
        x, residual = self.post_attention_layernorm(self.self_attn(x, batch), residual)
        return self.mlp(x), residual


class Stack(nn.Module):
    def __init__(self, config: Config, paged: bool) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.words, config.width)
        self.layers = nn.ModuleList((PagedBlock if paged else Block)(config, paged) for _ in range(config.layers))
        self.paged = paged
        self.norm = Norm(config.width, config.norm)
        self.dropout = 0.0

    def forward(self, ids: Tensor, *how: object) -> Tensor:
        x = self.embed_tokens(ids)
        if self.paged:
            residual = None
            for layer in self.layers:
                x, residual = layer(how[0].positions, x, residual, *how)
            return self.norm(x, residual)[0]
        for layer in self.layers:
            x = F.dropout(layer(x, *how), self.dropout)
        return self.norm(x)


class Language(nn.Module):
    """Either side. The engine's head gives float32, the trainer's what `narrow_head` says."""

    def __init__(self, config: Config, paged: bool = False) -> None:
        super().__init__()
        self.config = config
        self.model = Stack(config, paged)
        self.lm_head = nn.Linear(config.width, config.words, bias=False)
        if config.tied:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, ids: Tensor, *how: object) -> Tensor:
        logits = self.lm_head(self.model(ids, *how)).float()
        cap = self.config.cap
        return cap * (logits / cap).tanh() if cap else logits


def engine_of(trainer: Language, dtype: torch.dtype) -> Language:
    """The engine with the trainer's weights, projections fused."""
    config = trainer.config
    engine = Language(config, paged=True)
    weights = dict(trainer.state_dict())
    for layer in range(config.layers):
        attn, mlp = f"model.layers.{layer}.self_attn.", f"model.layers.{layer}.mlp."
        weights[attn + "qkv_proj.weight"] = torch.cat([weights.pop(f"{attn}{name}_proj.weight") for name in "qkv"])
        if config.gated and not config.experts:
            weights[mlp + "gate_up_proj.weight"] = torch.cat([weights.pop(f"{mlp}{name}_proj.weight") for name in ("gate", "up")])
    engine.load_state_dict(weights)
    return engine.to(dtype).eval()


def clipped(rows: Tensor, largest: float, least: float) -> Tensor:
    """Rows on a grid of whole numbers from `least` to `largest`, with the scale that fits each best, as converters choose it."""
    best, error = rows, torch.full(rows.shape[:-1], torch.inf)
    for share in (1.0, 0.95, 0.9, 0.85):
        scale = rows.abs().amax(-1, keepdim=True).clamp_min(1e-12) * share / largest
        near = (rows / scale).round().clamp(least, largest) * scale
        off = (near - rows).pow(2).sum(-1)
        best, error = torch.where((off < error)[..., None], near, best), torch.minimum(off, error)
    return best


def offset(rows: Tensor, steps: int) -> Tensor:
    """Rows on a grid with a zero point of its own."""
    low, high = rows.amin(-1, keepdim=True), rows.amax(-1, keepdim=True)
    scale = (high - low).clamp_min(1e-12) / steps
    return ((rows - low) / scale).round() * scale + low


class Narrow(nn.Module):
    """A linear layer of an engine whose inputs are fp8 numbers, with a scale for each token."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.weight, self.inner = inner.weight, inner

    def forward(self, x: Tensor) -> Tensor:
        scale = x.float().abs().amax(-1, keepdim=True).clamp_min(1e-12) / 448
        return self.inner(((x / scale).to(torch.float8_e4m3fn).float() * scale).to(x.dtype))


def quantised(engine: Language, kind: str) -> Language:
    """The engine with linear layers as servers quantise them: not the head, not the router, not the experts' tables."""
    for layer in engine.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for name, child in list(part.named_children()):
                if not isinstance(child, nn.Linear) or isinstance(child, Router):
                    continue
                wide = child.weight.data.float()
                if kind == "int8":
                    wide = clipped(wide, 127, -127)
                elif kind == "int4":
                    wide = offset(wide.unflatten(-1, (-1, 32)), 15).reshape(wide.shape)
                else:
                    scale = wide.abs().max() / 448
                    wide = (wide / scale).to(torch.float8_e4m3fn).float() * scale
                    setattr(part, name, Narrow(child))
                child.weight.data = wide.to(child.weight.dtype)
    return engine


def other(trainer: Language, dtype: torch.dtype | None = None, **changes: object) -> Language:
    """A copy of the trainer with settings changed."""
    copy = Language(replace(trainer.config, **changes))
    copy.load_state_dict(trainer.state_dict())
    return copy.to(dtype or next(trainer.parameters()).dtype).eval()
