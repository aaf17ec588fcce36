"""How a model is spread over ranks, as programs in the field do it: Megatron's tensor and sequence parallelism by hand, context parallelism by
gathered keys or by a ring, experts. `World.fault` names what is planted; each place asks for its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

AXES = ("pp", "dp", "cp", "ep", "tp")


@dataclass
class World:
    """Sizes of the axes, this rank's groups, and the lengths of the documents of a packed sequence."""

    sizes: dict[str, int]
    fault: str = ""
    sequence: bool = False
    ring: bool = False
    planted: int = 1
    documents: tuple[int, ...] = ()
    groups: dict[str, Any] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    mesh: Any = None

    def size(self, axis: str) -> int:
        return self.sizes.get(axis, 1)

    def place(self, axis: str) -> int:
        return self.places.get(axis, 0)

    def has(self, fault: str, layer: int | None = None) -> bool:
        """True if this is planted; in a model, only in one of its layers."""
        return self.fault == fault and layer in (None, self.planted)


ALONE = World({})


class _Copy(torch.autograd.Function):
    """Each rank reads the whole; gradients are added up."""

    @staticmethod
    def forward(ctx, x, world, axis, plain):
        ctx.world, ctx.axis, ctx.plain = world, axis, plain
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        if not ctx.plain:
            gradient = gradient.contiguous().clone()
            dist.all_reduce(gradient, group=ctx.world.groups[ctx.axis])
        return gradient, None, None, None


class _Reduce(torch.autograd.Function):
    """The sum of what ranks hold."""

    @staticmethod
    def forward(ctx, x, world, axis, fault):
        x = x.contiguous().clone()
        if fault == "drop":
            return x
        group = world.groups["dp" if fault == "wrong-group" else axis]
        dist.all_reduce(x, group=group)
        if fault == "double":
            dist.all_reduce(x, group=group)
        return x / world.size(axis) if fault == "mean" else x

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None, None, None


def _gathered(x: torch.Tensor, world: World, axis: str, dimension: int) -> torch.Tensor:
    parts = [torch.empty_like(x) for _ in range(world.size(axis))]
    dist.all_gather(parts, x.contiguous(), group=world.groups[axis])
    return torch.cat(parts, dimension)


def _scattered(x: torch.Tensor, world: World, axis: str, dimension: int) -> torch.Tensor:
    x = x.contiguous().clone()
    dist.all_reduce(x, group=world.groups[axis])
    return x.chunk(world.size(axis), dimension)[world.place(axis)].contiguous()


class _Gather(torch.autograd.Function):
    """The whole of shards; gradients are added up and split (sequence parallelism), or only split."""

    @staticmethod
    def forward(ctx, x, world, axis, dimension, added):
        ctx.of = world, axis, dimension, added
        return _gathered(x, world, axis, dimension)

    @staticmethod
    def backward(ctx, gradient):
        world, axis, dimension, added = ctx.of
        if added:
            return _scattered(gradient, world, axis, dimension), None, None, None, None
        return gradient.chunk(world.size(axis), dimension)[world.place(axis)].contiguous(), None, None, None, None


class _Scatter(torch.autograd.Function):
    """A shard of the sum of what ranks hold, or of what all hold alike."""

    @staticmethod
    def forward(ctx, x, world, axis, dimension, added):
        ctx.of = world, axis, dimension
        if added:
            return _scattered(x, world, axis, dimension)
        return x.chunk(world.size(axis), dimension)[world.place(axis)].contiguous()

    @staticmethod
    def backward(ctx, gradient):
        return _gathered(gradient, *ctx.of), None, None, None, None


def copied(x: torch.Tensor, world: World, axis: str = "tp", plain: bool = False) -> torch.Tensor:
    return _Copy.apply(x, world, axis, plain) if world.size(axis) > 1 else x


def reduced(x: torch.Tensor, world: World, axis: str = "tp", fault: str = "") -> torch.Tensor:
    return _Reduce.apply(x, world, axis, fault) if world.size(axis) > 1 else x


def gathered(x: torch.Tensor, world: World, axis: str = "tp", dimension: int = -1, added: bool = False) -> torch.Tensor:
    return _Gather.apply(x, world, axis, dimension, added) if world.size(axis) > 1 else x


def scattered(x: torch.Tensor, world: World, axis: str = "tp", dimension: int = 1, added: bool = False) -> torch.Tensor:
    return _Scatter.apply(x, world, axis, dimension, added) if world.size(axis) > 1 else x


class _Exchange(torch.autograd.Function):
    """Rows that go to other ranks, and come from them."""

    @staticmethod
    def forward(ctx, x, sent, received, group):
        ctx.of = sent, received, group
        out = x.new_empty(sum(received), *x.shape[1:])
        dist.all_to_all_single(out, x.contiguous(), received, sent, group=group)
        return out

    @staticmethod
    def backward(ctx, gradient):
        sent, received, group = ctx.of
        out = gradient.new_empty(sum(sent), *gradient.shape[1:])
        dist.all_to_all_single(out, gradient.contiguous(), sent, received, group=group)
        return out, None, None, None


def exchanged(x: torch.Tensor, counts: torch.Tensor, world: World) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows to the ranks of their experts, of which `counts` has the numbers by expert; or back, by rank and expert. Returns the rows that came, and
    their numbers by rank and expert."""
    ranks = world.size("ep")
    if counts.dim() == 2:
        if ranks == 1:
            return x, counts
        back = [torch.empty_like(counts.sum(1)) for _ in range(ranks)]
        dist.all_gather(back, counts.sum(1).contiguous(), group=world.groups["ep"])
        received = [int(of[world.place("ep")]) for of in back]
        return _Exchange.apply(x, counts.sum(1).tolist(), received, world.groups["ep"]), counts
    sent = counts.view(ranks, -1)
    if ranks == 1:
        return x, sent
    theirs = torch.empty_like(sent)
    dist.all_to_all_single(theirs, sent.contiguous(), group=world.groups["ep"])
    return _Exchange.apply(x, sent.sum(1).tolist(), theirs.sum(1).tolist(), world.groups["ep"]), theirs


class _VocabularyLoss(torch.autograd.Function):
    """Cross-entropy of logits of which ranks hold columns, as Megatron computes it: the maximum, the label's logit and the sum are reduced."""

    @staticmethod
    def forward(ctx, logits, labels, world):
        several, group = world.size("tp") > 1, world.groups.get("tp")
        largest = logits.max(-1)[0]
        if several and not world.has("max-drop"):
            dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        logits = logits - largest[:, None]
        first = logits.shape[-1] * world.place("tp")
        elsewhere = (labels < first) | (labels >= first + logits.shape[-1])
        own = (labels - first).masked_fill(elsewhere, 0)
        predicted = logits.gather(-1, own[:, None]).squeeze(-1).masked_fill(elsewhere, 0.0)
        powers = logits.exp()
        total = powers.sum(-1)
        if several:
            dist.all_reduce(predicted, group=group)
            dist.all_reduce(total, group=group)
        ctx.save_for_backward(powers / total[:, None], own, elsewhere)
        return total.log() - predicted

    @staticmethod
    def backward(ctx, gradient):
        softmax, own, elsewhere = ctx.saved_tensors
        due = torch.zeros_like(softmax).scatter_(-1, own[:, None], (~elsewhere).to(softmax.dtype)[:, None])
        return (softmax - due) * gradient[:, None], None, None


def vocabulary_loss(logits: torch.Tensor, labels: torch.Tensor, world: World) -> torch.Tensor:
    return _VocabularyLoss.apply(logits, labels, world).mean()


class Column(nn.Linear):
    """A linear layer whose results are split."""

    world: World = ALONE
    layer: int | None = None
    name = ""

    def shard(self, world: World, layer: int | None, name: str, tied: bool = False) -> None:
        self.world, self.layer, self.name = world, layer, name
        count, place = world.size("tp"), world.place("tp")
        if world.has("shard-order", layer) and name == "up":
            place = count - 1 - place
        for parameter in (self.weight, self.bias):
            # Of tied weights, the table has made a shard.
            if parameter is not None and not tied:
                parameter.data = parameter.data.chunk(count)[place].clone()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        world = self.world
        if world.sequence and world.size("tp") > 1:
            x = gathered(x, world, dimension=1, added=True)
        else:
            x = copied(x, world, plain=world.has("backward-drop", self.layer) and self.name == "up")
        return super().forward(x)


class Row(nn.Linear):
    """A linear layer whose inputs are split; its bias is added behind the reduction."""

    world: World = ALONE
    layer: int | None = None
    name = ""

    def shard(self, world: World, layer: int | None, name: str) -> None:
        self.world, self.layer, self.name = world, layer, name
        self.weight.data = self.weight.data.chunk(world.size("tp"), 1)[world.place("tp")].clone()
        if world.has("stale", layer) and name == "down" and world.place("tp") == 1:
            self.weight.data = self.weight.data.roll(1, 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        world = self.world
        if world.size("tp") == 1:
            return super().forward(x)
        if world.has("bias-twice", self.layer) and self.name == "down":
            return reduced(F.linear(x, self.weight, self.bias), world)
        y = F.linear(x, self.weight)
        if world.sequence:
            y = scattered(y, world, added=True)
        else:
            faults = ("drop", "double", "mean", "wrong-group")
            y = reduced(y, world, fault=world.fault if world.fault in faults and world.has(world.fault, self.layer) and self.name == "down" else "")
        return y if self.bias is None else y + self.bias


class Table(nn.Embedding):
    """A table of tokens, of which each rank has some rows."""

    world: World = ALONE

    def shard(self, world: World) -> None:
        self.world = world
        self.weight.data = self.weight.data.chunk(world.size("tp"))[world.place("tp")].clone()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        world = self.world
        if world.size("tp") == 1:
            return super().forward(ids)
        rows = self.weight.shape[0]
        first = rows * world.place("tp")
        outside = (ids < first) | (ids >= first + rows)
        own = (ids - first).masked_fill(outside, 0)
        x = F.embedding(own, self.weight).masked_fill(outside.unsqueeze(-1), 0.0)
        if world.sequence:
            return scattered(x, world, added=True)
        return reduced(x, world)


class _Ring(torch.autograd.Function):
    """Attention of a rank's part of the sequence to all of it. The parts of the keys come in turns; softmax is merged online."""

    @staticmethod
    def forward(ctx, q, k, v, positions, world):
        keys, values = _turns(k, world), _turns(v, world)
        top, total, sums = None, None, None
        for (theirs, key), (_, value) in zip(keys, values):
            scores = (q @ key.transpose(-2, -1)).float() / q.shape[-1] ** 0.5
            scores = scores.masked_fill(positions[theirs][None] > positions[world.place("cp")][:, None], -1e30)
            most = scores.amax(-1, keepdim=True) if top is None else torch.maximum(top, scores.amax(-1, keepdim=True))
            part = (scores - most).exp()
            scale = 0.0 if top is None else (top - most).exp()
            total = part.sum(-1, keepdim=True) + (0.0 if total is None else total * scale)
            sums = part @ value.float() + (0.0 if sums is None else sums * scale)
            top = most
        y = sums / total
        ctx.save_for_backward(q, k, v, y, top + total.log(), *positions)
        ctx.world = world
        return y.to(q.dtype)

    @staticmethod
    def backward(ctx, gradient):
        q, k, v, y, logs, *positions = ctx.saved_tensors
        world = ctx.world
        own = world.place("cp")
        gradient = gradient.float()
        along = (gradient * y).sum(-1, keepdim=True)
        parts = [None] * world.size("cp")
        of_q = torch.zeros_like(q, dtype=torch.float32)
        for (theirs, key), (_, value) in zip(_turns(k, world), _turns(v, world)):
            scores = (q @ key.transpose(-2, -1)).float() / q.shape[-1] ** 0.5
            scores = scores.masked_fill(positions[theirs][None] > positions[own][:, None], -1e30)
            p = (scores - logs).exp()
            of_scores = p * (gradient @ value.float().transpose(-2, -1) - along) / q.shape[-1] ** 0.5
            of_q += of_scores @ key.float()
            parts[theirs] = torch.stack((of_scores.transpose(-2, -1) @ q.float(), p.transpose(-2, -1) @ gradient))
        whole = torch.stack(parts)
        dist.all_reduce(whole, group=world.groups["cp"])
        of_k, of_v = whole[own]
        return of_q.to(q.dtype), of_k.to(k.dtype), of_v.to(v.dtype), None, None


def _turns(x: torch.Tensor, world: World) -> list[tuple[int, torch.Tensor]]:
    """The parts of all ranks, its own first."""
    parts = [torch.empty_like(x) for _ in range(world.size("cp"))]
    dist.all_gather(parts, x.contiguous(), group=world.groups["cp"])
    own = world.place("cp")
    return [((own - turn) % len(parts), parts[(own - turn) % len(parts)]) for turn in range(len(parts))]


def zigzag(x: torch.Tensor, count: int, place: int, dimension: int = 1) -> torch.Tensor:
    """The chunks of a sequence that a rank has."""
    chunks = x.chunk(2 * count, dimension)
    return torch.cat((chunks[place], chunks[2 * count - 1 - place]), dimension)


def own_tokens(x: torch.Tensor, world: World, place: int, dimension: int = 1) -> torch.Tensor:
    """The part of a sequence that a rank has: of a packed one, chunks of each document."""
    count = world.size("cp")
    if not world.documents:
        return zigzag(x, count, place, dimension)
    return torch.cat([zigzag(part, count, place, dimension) for part in x.split(world.documents, dimension)], dimension)


def positions_of(world: World, tokens: int) -> torch.Tensor:
    """The place of each token in its document."""
    return torch.cat([torch.arange(length) for length in world.documents]) if world.documents else torch.arange(tokens)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, world: World, layer: int) -> torch.Tensor:
    """Causal attention over the whole sequence or within its documents, of (batch, heads, tokens, width)."""
    count = world.size("cp")
    if count == 1 and not world.documents:
        return F.scaled_dot_product_attention(q, k, v, is_causal=not world.has("not-causal", layer) or world.place("tp") == 0)
    length = q.shape[2] * count
    if count == 1:
        positions = [torch.arange(length)]
    else:
        positions = [own_tokens(torch.arange(length), world, place, 0) for place in range(count)]
    if world.ring:
        return _Ring.apply(q, k, v, positions, world)
    k, v = (gathered(part, world, "cp", 2, added=True) for part in (k, v))
    if world.has("zigzag", layer):
        # The chunks are put into order as if ranks had contiguous ones.
        order = torch.arange(length)
    else:
        order = torch.cat(positions).argsort()
    if count > 1:
        k, v = k[:, :, order], v[:, :, order]
    own = positions[world.place("cp")]
    mask = torch.arange(length)[None] <= own[:, None]
    if world.documents:
        document = torch.repeat_interleave(torch.tensor(world.documents))
        same = document[None] == document[own][:, None]
        mask = mask if world.has("leak", layer) else mask & same
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
