"""More programs that make samples: a book of codes, a flow that can be inverted, and a transformer that removes noise."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from programs.program import Program, wide
from torch import nn
from torch.distributions import Normal


class Straight(torch.autograd.Function):
    """Forward the second value; backward the gradient goes to the first as it is."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, code: torch.Tensor) -> torch.Tensor:
        return code.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad, None


class Codebook(Program):
    """Images become codes of a book, and images again. The codes are moving averages of what they stand for."""

    broad = True
    optimizers = ("adam",)
    mistakes = {
        "commitment": ("argument",), "straight": ("structure", "gradient"), "detached": ("structure", "gradient"),
        "decay": ("argument", "input"), "order": ("structure", "argument"), "start": ("input",), "squares": ("structure",),
        "absolute": ("structure",), "unloaded": ("input",), "stale": ("input", "structure"), "betas": ("optimizer", "argument"),
        "late": ("structure",),
    }  # fmt: skip
    alike = ("broadcast", "one hot", "function", "lerp", "added up", "turned round", "checked out")

    def build(self) -> None:
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 24, 4, 2, 1), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 16, 4, 2, 1), nn.BatchNorm2d(16)
        )
        self.decoder = nn.Sequential(
            nn.Conv2d(16, 24, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(24, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1)
        )
        codes = torch.randn(12, 16, generator=torch.Generator().manual_seed(3 if self.variant == "start" else 2))
        self.register_buffer("codes", codes)
        self.register_buffer("counts", torch.ones(12))
        self.register_buffer("sums", codes.clone())

    def forgotten(self) -> nn.Parameter:
        return self.decoder[0].weight

    def options(self) -> dict[str, Any]:
        return {"betas": (0.5, 0.999)} if self.variant == "betas" else {}

    def nearest(self, rows: torch.Tensor) -> torch.Tensor:
        codes = self.codes.to(rows.dtype)
        if self.variant == "broadcast":
            return (rows[:, None] - codes).square().sum(-1).argmin(1)
        far = codes.square().sum(1) - 2 * rows @ codes.T
        if self.variant == "squares":
            return (-2 * rows @ codes.T).argmin(1)
        if self.variant == "turned round":
            return (-(rows.square().sum(1, keepdim=True) + far)).argmax(1)
        return (rows.square().sum(1, keepdim=True) + far).argmin(1)

    def loss(self, step: int) -> torch.Tensor:
        x = self.normal(step, 4, 3, 16, 16)
        z = wide(self.encoder(x))
        rows = z.reshape(-1, 16) if self.variant == "order" else z.permute(0, 2, 3, 1).reshape(-1, 16)
        with torch.no_grad():
            chosen = self.nearest(rows)
            self.found, self.rows = F.one_hot(chosen, 12).to(self.codes.dtype), rows.detach().to(self.codes.dtype)
            if self.variant == "late":
                self.renewed()
        if self.variant == "one hot":
            taken = self.found.to(rows.dtype) @ self.codes.to(rows.dtype)
        else:
            taken = F.embedding(chosen, self.codes).to(rows.dtype)
        taken = taken.view_as(z) if self.variant == "order" else taken.view(4, 4, 4, 16).permute(0, 3, 1, 2)
        if self.variant == "function":
            passed = Straight.apply(z, taken)
        elif self.variant == "straight":
            passed = taken
        elif self.variant == "checked out":
            passed = taken + (z - z.detach())
        else:
            passed = z + (taken - z).detach()
        near = F.mse_loss(z.detach() if self.variant == "detached" else z, taken)
        out = wide(self.decoder(passed.to(x.dtype)))
        made = F.l1_loss(out, wide(x)) if self.variant == "absolute" else F.mse_loss(out, wide(x))
        return made + float(self.choose("commitment", 1.0, 0.25)) * near

    def after_update(self) -> None:
        if self.variant != "late":
            self.renewed()

    def renewed(self) -> None:
        keep = float(self.choose("decay", 0.8, 0.95))
        with torch.no_grad():
            if self.variant == "added up":
                total = torch.zeros_like(self.sums).index_add_(0, self.found.argmax(1), self.rows)
            else:
                total = self.found.T @ self.rows
            if self.variant == "lerp":
                self.counts.lerp_(self.found.sum(0), 1 - keep)
                self.sums.lerp_(total, 1 - keep)
            else:
                self.counts.mul_(keep).add_(self.found.sum(0), alpha=1 - keep)
                self.sums.mul_(keep).add_(total, alpha=1 - keep)
            if self.variant != "stale":
                number = self.counts.sum()
                sizes = (self.counts + 1e-5) / (number + 12e-5) * number
                self.codes.copy_(self.sums / sizes[:, None])


class Invertible(Program):
    """Small images become noise by steps that can be inverted, and their likelihood is known."""

    broad = True
    optimizers = ("adamax",)
    mistakes = {
        "pixels": ("argument",), "sigmoid": ("structure",), "order": ("structure",), "halves": ("structure", "input"),
        "transposed": ("structure", "input"), "levels": ("argument",), "bits": ("structure",), "start": ("input",),
        "sign": ("structure",), "unloaded": ("input",), "betas": ("optimizer", "argument"), "padding": ("argument", "structure"),
    }  # fmt: skip
    alike = ("linear", "determinant", "distribution", "sliced", "summed late", "shuffled", "logsigmoid")

    def build(self) -> None:
        self.places = nn.ParameterList(torch.linspace(-0.2, 0.2, 8)[:, None, None] for _ in range(3))
        sizes = torch.zeros(8) if self.variant == "start" else torch.linspace(-0.4, 0.2, 8)
        self.sizes = nn.ParameterList(sizes[:, None, None].clone() for _ in range(3))
        self.turns = nn.ParameterList(torch.linalg.qr(torch.randn(8, 8))[0] for _ in range(3))
        mode = str(self.choose("padding", "circular", "zeros"))
        self.nets = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(4, 24, 3, 1, 1, padding_mode=mode if i else "zeros"), nn.ReLU(), nn.Conv2d(24, 24, 1), nn.ReLU(),
                nn.Conv2d(24, 8, 3, 1, 1),
            ) for i in range(3)
        )  # fmt: skip

    def forgotten(self) -> nn.Parameter:
        return self.nets[1][2].weight

    def options(self) -> dict[str, Any]:
        return {"betas": (0.7, 0.999)} if self.variant == "betas" else {}

    def normed(self, x: torch.Tensor, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return (x + self.places[i]) * self.sizes[i].exp(), self.sizes[i].sum() * self.count("pixels")

    def count(self, variant: str) -> float:
        return float(self.choose(variant, 1.0, 16.0))

    def turned(self, x: torch.Tensor, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        weight = self.turns[i]
        weight = weight.T if self.variant == "transposed" else weight
        if self.variant == "determinant":
            size = wide(weight).det().abs().log() * self.count("pixels")
        else:
            size = torch.linalg.slogdet(wide(weight))[1] * self.count("pixels")
        if self.variant == "linear":
            return F.linear(x.permute(0, 2, 3, 1), weight).permute(0, 3, 1, 2), size
        return F.conv2d(x, weight[..., None, None]), size

    def coupled(self, x: torch.Tensor, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = (x[:, :4], x[:, 4:]) if self.variant == "sliced" else x.chunk(2, 1)
        a, b = (b, a) if self.variant == "halves" else (a, b)
        both = self.nets[i](a)
        move, raw = both[:, 0::2], wide(both[:, 1::2])
        if self.variant == "sigmoid":
            scale, size = raw.tanh().exp(), raw.tanh()
        elif self.variant == "logsigmoid":
            scale, size = (raw + 2).sigmoid(), F.logsigmoid(raw + 2)
        else:
            scale = (raw + 2).sigmoid()
            size = scale.log()
        b = (b + move) * scale
        b = b.to(x.dtype)
        return torch.cat([b, a] if self.variant == "halves" else [a, b], 1), size.sum((1, 2, 3))

    def loss(self, step: int) -> torch.Tensor:
        x = self.normal(step, 6, 2, 8, 8).sigmoid()
        x = (x * 255).floor() + self.normal(step, 6, 2, 8, 8, stream=1).sigmoid()
        x = x / float(self.choose("levels", 255.0, 256.0)) * 3 - 1.5
        if self.variant == "shuffled":
            x = x.unflatten(3, (4, 2)).unflatten(2, (4, 2)).permute(0, 1, 3, 5, 2, 4).flatten(1, 3)
        else:
            x = F.pixel_unshuffle(x, 2)
        sizes: list[torch.Tensor] = []
        for i in range(3):
            first, second = (self.turned, self.normed) if self.variant == "order" else (self.normed, self.turned)
            for part in (first, second, self.coupled):
                x, size = part(x, i)
                sizes.append(size)
        x = wide(x)
        if self.variant == "distribution":
            prior = Normal(torch.zeros_like(x), torch.ones_like(x)).log_prob(x).sum((1, 2, 3))
        else:
            prior = (-0.5 * (x.square() + 1.8378770664093453)).sum((1, 2, 3))
        if self.variant == "summed late":
            total = torch.stack([size.expand(6) for size in sizes]).sum(0)
        else:
            total = torch.zeros_like(prior)
            for size in sizes:
                total = total - size if self.variant == "sign" else total + size
        each = -(prior + total) / 128
        return each.mean() if self.variant == "bits" else (each / 0.6931471805599453).mean()


class Denoiser(Program):
    """A transformer of patches that is told the time and a class, and names the velocity of a noisy image."""

    broad = True
    mistakes = {
        "swapped waves": ("structure",), "time scale": ("argument",), "plain scale": ("structure",),
        "moved": ("structure", "argument", "input"), "schedule": ("input",), "aim": ("structure",), "weighting": ("argument",),
        "gates": ("input",), "places": ("input",),
        "forgotten class": ("structure", "input", "argument"), "eps": ("argument",), "unloaded": ("input",),
        "betas": ("optimizer", "argument"),
    }  # fmt: skip
    alike = ("formula", "addcmul", "linear patches", "six maps", "gathered", "each", "folded")

    def build(self) -> None:
        self.patches, self.last = nn.Conv2d(3, 48, 2, 2), nn.Linear(48, 12)
        self.time, self.classes = nn.Sequential(nn.Linear(32, 48), nn.SiLU(), nn.Linear(48, 48)), nn.Embedding(11, 48)
        self.waved = nn.ModuleList(nn.Linear(48, 288) for _ in range(2))
        self.qkv, self.outs = (nn.ModuleList(nn.Linear(48, n) for _ in range(2)) for n in (144, 48))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(48, 96), nn.GELU("tanh"), nn.Linear(96, 48)) for _ in range(2))
        self.eps = float(self.choose("eps", 1e-2, 1e-6))
        # Gates begin small here, as they do near the start of a training, and not at nought.
        with torch.no_grad():
            for layer in self.waved:
                layer.weight.mul_(1.0 if self.variant == "gates" else 0.3)
        places = self.waves(torch.arange(4.0), 24, 100.0)
        rows, columns = places[:, None].expand(4, 4, 24), places[None].expand(4, 4, 24)
        grid = torch.cat([columns, rows] if self.variant == "places" else [rows, columns], -1)
        self.register_buffer("places", grid.reshape(16, 48))
        last = 0.012 if self.variant == "schedule" else 0.02
        self.register_buffer("kept", torch.cumprod(1 - torch.linspace(1e-4, last, 1000), 0))

    def waves(self, t: torch.Tensor, width: int, base: float) -> torch.Tensor:
        angles = t[:, None] * torch.exp(-torch.arange(width // 2, device=t.device) * (torch.tensor(base).log() / (width // 2)))
        return torch.cat([angles.cos(), angles.sin()], -1)

    def forgotten(self) -> nn.Parameter:
        return self.qkv[1].weight

    def options(self) -> dict[str, Any]:
        return {"betas": (0.5, 0.99)} if self.variant == "betas" else {}

    def modulated(self, x: torch.Tensor, move: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        h = F.layer_norm(x, (48,), eps=self.eps)
        if self.variant == "plain scale":
            return h * scale + move
        return torch.addcmul(h + move, h, scale.to(h.dtype)) if self.variant == "addcmul" else h * (1 + scale) + move

    def layer(self, x: torch.Tensor, told: torch.Tensor, i: int) -> torch.Tensor:
        if self.variant == "six maps":
            maps = zip(self.waved[i].weight.chunk(6), self.waved[i].bias.chunk(6), strict=True)
            parts = [F.linear(F.silu(told), w, b)[:, None] for w, b in maps]
        else:
            parts = list(self.waved[i](F.silu(told))[:, None].chunk(6, -1))
        if self.variant == "moved":
            parts[0], parts[1], parts[3], parts[4] = parts[1], parts[0], parts[4], parts[3]
        h = self.modulated(x, parts[0], parts[1])
        q, k, v = self.qkv[i](h).unflatten(-1, (3, 4, 12)).permute(2, 0, 3, 1, 4)
        if self.variant == "formula":
            h = ((q * 12**-0.5) @ k.mT).softmax(-1).to(v.dtype) @ v
        else:
            h = F.scaled_dot_product_attention(q, k, v)
        x = x + parts[2] * self.outs[i](h.transpose(1, 2).flatten(2))
        return x + parts[5] * self.mlps[i](self.modulated(x, parts[3], parts[4]))

    def loss(self, step: int) -> torch.Tensor:
        clean, noise = self.normal(step, 6, 3, 8, 8), self.normal(step, 6, 3, 8, 8, stream=1)
        when, kind = self.numbers(step, 1000, 6, stream=2), self.numbers(step, 10, 6, stream=3)
        kept = self.kept.index_select(0, when) if self.variant == "gathered" else self.kept[when]
        signal, rest = kept.sqrt()[:, None, None, None], (1 - kept).sqrt()[:, None, None, None]
        x, aim = signal * clean + rest * noise, noise if self.variant == "aim" else signal * noise - rest * clean
        if self.variant == "linear patches":
            rows = F.unfold(x, 2, stride=2).mT
            h = F.linear(rows, self.patches.weight.flatten(1), self.patches.bias)
        else:
            h = self.patches(x).flatten(2).mT
        t = when.to(clean.dtype) * float(self.choose("time scale", 1e-3, 1.0))
        waves = self.waves(t, 32, 10000.0).to(clean.dtype)
        if self.variant == "swapped waves":
            waves = torch.cat(waves.chunk(2, -1)[::-1], -1)
        told = self.time(waves)
        told = told + (self.classes(torch.full_like(kind, 10)) if self.variant == "forgotten class" else self.classes(kind))
        h = h + self.places
        for i in range(2):
            h = self.layer(h, told, i)
        out = wide(self.last(F.layer_norm(h, (48,), eps=1e-6)))
        if self.variant == "folded":
            made = F.fold(out.mT, (8, 8), 2, stride=2)
        else:
            made = out.view(6, 4, 4, 3, 2, 2).permute(0, 3, 1, 4, 2, 5).reshape(6, 3, 8, 8)
        ratio = wide(kept / (1 - kept))
        weight = ratio.clamp_max(float(self.choose("weighting", 1.0, 5.0))) / (ratio + 1)
        if self.variant == "each":
            return sum(weight[i] * F.mse_loss(made[i], wide(aim[i])) for i in range(6)) / 6
        return (weight * (made - wide(aim)).square().mean((1, 2, 3))).mean()


PROGRAMS: dict[str, type[Program]] = {"codebook": Codebook, "invertible": Invertible, "denoiser": Denoiser}
