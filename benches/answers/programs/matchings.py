"""Programs that assign: slots to patches, key points to key points, and boxes to anchors."""

from __future__ import annotations

import math

import numpy
import torch
import torch.nn.functional as F
from programs.program import Program, wide
from torch import nn


class Slots(Program):
    """Slots that compete for the patches of a picture, and paint it together."""

    broad = True
    optimizers = ("adam",)
    mistakes = {
        "rows": ("structure", "argument"), "unscaled": ("structure", "argument"), "unshared": ("structure",), "rounds": ("structure",),
        "start": ("input",), "alpha": ("argument", "structure"), "previous": ("structure", "input"), "cut": ("structure", "gradient"),
        "places": ("structure",), "unloaded": ("input",), "betas": ("optimizer", "argument"),
    }  # fmt: skip
    alike = ("einsum", "cell", "linear patches", "sum by hand", "stacked", "softmax by hand")

    def build(self) -> None:
        self.enter = nn.Conv2d(3, 32, 2, 2)
        self.places = nn.Parameter(0.2 * torch.randn(16, 32))
        self.begin = nn.Parameter(0.5 * torch.randn(4, 32))
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(3))
        self.query, self.key, self.value = (nn.Linear(32, 32, bias=False) for _ in range(3))
        self.cell = nn.GRUCell(32, 32)
        self.up = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 32))
        self.paint = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 13))

    def forgotten(self) -> nn.Parameter:
        return self.key.weight

    def options(self) -> dict[str, object]:
        return {"betas": (0.8, 0.999)} if self.variant == "betas" else {}

    def patches(self, x: torch.Tensor) -> torch.Tensor:
        if self.variant == "linear patches":
            x = x.unfold(2, 2, 2).unfold(3, 2, 2).permute(0, 2, 3, 1, 4, 5).reshape(6, 16, 12)
            return F.linear(x, self.enter.weight.flatten(1), self.enter.bias)
        return self.enter(x).flatten(2).mT

    def updated(self, slots: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        given, before = given.reshape(-1, 32), slots.reshape(-1, 32)
        if self.variant == "previous":
            given, before = before, given
        if self.variant == "cell":
            a = F.linear(given, self.cell.weight_ih, self.cell.bias_ih).chunk(3, -1)
            b = F.linear(before, self.cell.weight_hh, self.cell.bias_hh).chunk(3, -1)
            reset, keep = (a[0] + b[0]).sigmoid(), (a[1] + b[1]).sigmoid()
            new = (a[2] + reset * b[2]).tanh()
            return (new + keep * (before - new)).view_as(slots)
        return self.cell(given, before).view_as(slots)

    def loss(self, step: int) -> torch.Tensor:
        x = self.normal(step, 6, 3, 8, 8)
        h = self.patches(x)
        h = self.norms[0](h if self.variant == "places" else h + self.places)
        key, value = self.key(h), self.value(h)
        slots = self.begin.expand(6, 4, 32)
        if self.variant == "start":
            slots = slots + 0.1 * self.normal(step, 6, 4, 32, stream=3)
        for turn in range(2 if self.variant == "rounds" else 3):
            if self.variant == "cut" and turn == 2:
                slots = slots.detach()
            query = self.query(self.norms[1](slots))
            if self.variant == "einsum":
                fit = torch.einsum("bnd,bsd->bns", key, query)
            else:
                fit = key @ query.mT
            fit = wide(fit if self.variant == "unscaled" else fit / math.sqrt(32))
            if self.variant == "softmax by hand":
                share = (fit - fit.amax(-1, keepdim=True)).exp()
                share = share / share.sum(-1, keepdim=True)
            else:
                share = fit.softmax(1 if self.variant == "rows" else -1)
            if self.variant != "unshared":
                share = share / (share.sum(1, keepdim=True) + 1e-8)
            slots = self.updated(slots, share.to(value.dtype).mT @ value)
            slots = slots + self.up(self.norms[2](slots))
        painted = self.paint(slots[:, :, None] + self.places)
        color, alpha = painted[..., :12], wide(painted[..., 12:])
        alpha = alpha.sigmoid() if self.variant == "alpha" else alpha.softmax(1)
        if self.variant == "sum by hand":
            made = sum(color[:, i] * alpha[:, i].to(color.dtype) for i in range(4))
        elif self.variant == "stacked":
            made = (torch.stack([color[:, i] for i in range(4)], -1) @ alpha.to(color.dtype).permute(0, 2, 1, 3)).squeeze(-1)
        else:
            made = (color * alpha.to(color.dtype)).sum(1)
        wanted = x.unfold(2, 2, 2).unfold(3, 2, 2).permute(0, 2, 3, 1, 4, 5).reshape(6, 16, 12)
        return F.mse_loss(wide(made), wide(wanted))


class Matcher(Program):
    """Key points of two pictures, matched by transport with a row and a column for those without a partner."""

    broad = True
    optimizers = ("adamw",)
    mistakes = {
        "columns": ("structure", "argument"), "turns": ("structure",), "bin": ("structure", "input"), "marginals": ("argument", "structure", "input"),
        "unscaled": ("argument", "structure"), "shifted": ("input", "structure", "argument"), "swapped": ("structure", "input"),
        "mean": ("structure", "argument"), "crossed": ("structure", "input"), "unloaded": ("input",), "decay": ("optimizer", "argument"),
    }  # fmt: skip
    alike = ("by hand", "einsum", "padded", "gathered", "two calls", "merged")

    def build(self) -> None:
        self.enter = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 32))
        self.own, self.cross = (nn.MultiheadAttention(32, 4, batch_first=True) for _ in range(2))
        self.first, self.second = nn.LayerNorm(32), nn.LayerNorm(32)
        self.out = nn.Linear(32, 32)
        self.bin = nn.Parameter(torch.tensor(0.5))

    def forgotten(self) -> nn.Parameter:
        return self.out.weight

    def options(self) -> dict[str, float]:
        return {"weight_decay": 0.2} if self.variant == "decay" else {}

    def transport(self, cost: torch.Tensor) -> torch.Tensor:
        """Logarithms of a plan of 12 by 12 with the bins."""
        b = cost.shape[0]
        if self.variant == "padded":
            cost = F.pad(cost, (0, 1, 0, 1)) + wide(self.bin) * F.pad(torch.zeros_like(cost), (0, 1, 0, 1), value=1.0)
        else:
            cost = torch.cat([cost, wide(self.bin).expand(b, 12, 1)], 2)
            cost = torch.cat([cost, wide(self.bin).expand(b, 1, 13)], 1)
            if self.variant == "bin":
                cost = cost * 0.5
        each = -math.log(12.0 if self.variant == "marginals" else 24.0)
        marginal = torch.tensor([each] * 12 + [math.log(0.5)])
        u, v = torch.zeros(b, 13), torch.zeros(b, 13)
        for _ in range(4 if self.variant == "turns" else 5):
            if self.variant == "by hand":
                top = (cost + v[:, None]).amax(2, keepdim=True)
                u = marginal - ((cost + v[:, None] - top).exp().sum(2).log() + top.squeeze(2))
            else:
                u = marginal - (cost + v[:, None]).logsumexp(2)
            v = marginal - (cost + u[:, :, None]).logsumexp(2 if self.variant == "columns" else 1)
        return cost + u[:, :, None] + v[:, None]

    def described(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = self.enter(a), self.enter(b)
        if self.variant == "two calls":
            a, b = (x + self.own(x, x, x, need_weights=False)[0] for x in (a, b))
        else:
            both = torch.cat([a, b])
            a, b = (both + self.own(both, both, both, need_weights=False)[0]).chunk(2)
        a, b = self.first(a), self.first(b)
        seen_by_a, seen_by_b = (a, b) if self.variant == "crossed" else (b, a)
        c = a + self.cross(a, seen_by_a, seen_by_a, need_weights=False)[0]
        d = b + self.cross(b, seen_by_b, seen_by_b, need_weights=False)[0]
        return self.out(self.second(c)), self.out(self.second(d))

    def loss(self, step: int) -> torch.Tensor:
        a = self.normal(step, 5, 12, 4)
        turn = torch.from_numpy(numpy.random.default_rng(step).permutation(12))
        b = a[:, turn] + 0.1 * self.normal(step, 5, 12, 4, stream=1)
        if self.variant == "swapped":
            a, b = b, a
        c, d = (wide(x) for x in self.described(a, b))
        cost = torch.einsum("bnd,bmd->bnm", c, d) if self.variant == "einsum" else c @ d.mT
        plan = self.transport(cost / (1.0 if self.variant == "unscaled" else math.sqrt(32)))
        partner = turn.argsort()
        if self.variant == "shifted":
            partner = (partner + 1) % 12
        if self.variant == "gathered":
            chosen = plan[:, :12].gather(2, partner[None, :, None].expand(5, 12, 1)).squeeze(2)
        elif self.variant == "merged":
            chosen = plan[:, :12].flatten(1)[:, torch.arange(12) * 13 + partner]
        else:
            chosen = plan[:, torch.arange(12), partner]
        return -chosen.mean(0).sum() if self.variant == "mean" else -chosen.mean()


class Anchors(Program):
    """Boxes and classes at anchors: a focal loss, and one of generalised overlap."""

    broad = True
    optimizers = ("sgd",)
    mistakes = {
        "alpha": ("argument", "structure"), "gamma": ("argument", "structure"), "corners": ("structure", "input"), "enclosing": ("structure",),
        "all anchors": ("structure", "argument", "input"), "prior": ("input",), "stride": ("argument", "structure"), "raw": ("structure",),
        "groups": ("argument", "input", "structure"), "unweighted": ("structure", "argument"), "unloaded": ("input",), "nesterov": ("optimizer", "argument"),
    }  # fmt: skip
    alike = ("by hand", "masked", "stacked", "one head", "softplus", "permuted")

    def build(self) -> None:
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.GroupNorm(2 if self.variant == "groups" else 4, 16), nn.SiLU(), nn.Conv2d(16, 24, 3, 2, 1), nn.SiLU())
        self.kind, self.box = nn.Conv2d(24, 5, 3, 1, 1), nn.Conv2d(24, 4, 3, 1, 1)
        with torch.no_grad():
            self.kind.bias.fill_(-2.0 if self.variant == "prior" else -1.0)

    def forgotten(self) -> nn.Parameter:
        return self.body[3].weight

    def options(self) -> dict[str, bool]:
        return {"nesterov": True} if self.variant == "nesterov" else {}

    def overlap(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Generalised overlap of boxes by their corners."""
        low, high = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        sizes = [(x[:, 2:] - x[:, :2]).prod(1) for x in (a, b)]
        union = sizes[0] + sizes[1] - shared
        around = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(1)
        if self.variant == "enclosing":
            return shared / union
        return shared / union - (around - union) / around

    def focal(self, logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        if self.variant == "softplus":
            losses = F.softplus(logits) - logits * wanted
        else:
            losses = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
        chance = logits.sigmoid()
        right = chance * wanted + (1 - chance) * (1 - wanted)
        alpha, gamma = float(self.choose("alpha", 0.75, 0.25)), int(self.choose("gamma", 1, 2))
        weight = alpha * wanted + (1 - alpha) * (1 - wanted)
        far = (1 - right) * (1 - right) if self.variant == "by hand" else (1 - right) ** gamma
        return (losses * far * weight).sum()

    def loss(self, step: int) -> torch.Tensor:
        h = self.body(self.normal(step, 4, 3, 16, 16))
        if self.variant == "one head":
            both = F.conv2d(h, torch.cat([self.kind.weight, self.box.weight]), torch.cat([self.kind.bias, self.box.bias]), padding=1)
            logits, raw = both[:, :5], both[:, 5:]
        else:
            logits, raw = self.kind(h), self.box(h)
        if self.variant == "permuted":
            logits, raw = (x.flatten(2).mT.reshape(64, -1) for x in (logits, raw))
        else:
            logits, raw = (x.permute(0, 2, 3, 1).reshape(64, -1) for x in (logits, raw))
        logits, raw = wide(logits), wide(raw)
        kinds, on = self.numbers(step, 5, 64), self.numbers(step, 3, 64, stream=1) == 0
        wanted = F.one_hot(kinds, 5).to(logits.dtype) * (1.0 if self.variant == "all anchors" else on[:, None].to(logits.dtype))
        at = torch.stack(torch.meshgrid(torch.arange(4.0), torch.arange(4.0), indexing="xy"), -1).view(16, 2).repeat(4, 1)
        center = (at + 0.5) * (8.0 if self.variant == "stride" else 4.0)
        sides = raw if self.variant == "raw" else raw.exp()
        sides = 4 * (sides.abs() + 0.1)
        corners = [center - sides[:, :2], center + sides[:, 2:]]
        if self.variant == "corners":
            corners = [center - sides[:, 2:], center + sides[:, :2]]
        boxes = torch.stack(corners, 1).flatten(1) if self.variant == "stacked" else torch.cat(corners, 1)
        real = 4 * (wide(self.normal(step, 64, 4, stream=2)).abs() + 0.5)
        real = torch.cat([(at + 0.5) * 4 - real[:, :2], (at + 0.5) * 4 + real[:, 2:]], 1)
        count = on.sum().clamp(min=1)
        if self.variant == "masked":
            apart = ((1 - self.overlap(boxes, real)) * on).sum()
        else:
            apart = (1 - self.overlap(boxes[on], real[on])).sum()
        return self.focal(logits, wanted) / count + (0.5 if self.variant == "unweighted" else 2.0) * apart / count


PROGRAMS: dict[str, type[Program]] = {"slots": Slots, "matcher": Matcher, "anchors": Anchors}
