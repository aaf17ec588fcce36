"""Programs that make samples: an adversarial pair with a gradient penalty, an autoencoder, a radiance field, adapters of a language model."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from programs.program import Program
from torch import nn
from torch.distributions import Normal, kl_divergence


class Adversarial(Program):
    """A critic whose penalty needs a second backward pass, and a generator with batch norms."""

    optimizers = ("rmsprop", "rmsprop")
    mistakes = {"slope": ("argument",), "momentum": ("argument",), "unloaded": ("input",)}
    alike = ("norm",)

    def build(self) -> None:
        slope, momentum = self.choose("slope", 0.1, 0.2), self.choose("momentum", 0.5, 0.1)
        self.maker = nn.Sequential(
            nn.Linear(16, 64), nn.BatchNorm1d(64, momentum=momentum), nn.ReLU(), nn.Linear(64, 48), nn.Tanh()
        )
        self.critic = nn.Sequential(
            nn.Linear(48, 64), nn.LeakyReLU(slope), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1)
        )

    def forgotten(self) -> nn.Parameter:
        return self.critic[2].weight

    def groups(self) -> list[list[nn.Parameter]]:
        return [list(self.critic.parameters()), list(self.maker.parameters())]

    def penalty(self, mixed: torch.Tensor) -> torch.Tensor:
        (grad,) = torch.autograd.grad(self.critic(mixed).sum(), mixed, create_graph=True)
        norm = grad.square().sum(1).sqrt() if self.variant == "norm" else grad.norm(2, dim=1)
        return (norm - 1).square().mean()

    def losses(self, step: int) -> Iterator[tuple[torch.Tensor, int | None]]:
        real, fake = self.normal(step, 32, 48).tanh(), self.maker(self.normal(step, 32, 16, stream=1))
        share = self.normal(step, 32, 1, stream=2).sigmoid()
        mixed = torch.lerp(real, fake.detach().to(real.dtype), share).requires_grad_()
        yield self.critic(fake.detach()).mean() - self.critic(real).mean() + 10 * self.penalty(mixed), 0
        yield -self.critic(self.maker(self.normal(step, 32, 16, stream=3))).mean(), 1


class Autoencoder(Program):
    """A variational autoencoder of convolutions, forth and transposed."""

    mistakes = {"weighting": ("argument",), "noise": ("input",), "unloaded": ("input",)}
    alike = ("distributions",)

    def build(self) -> None:
        self.encoder = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.SiLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.SiLU(), nn.Flatten())
        self.moments = nn.Linear(32 * 16, 32)
        self.decoder = nn.Sequential(
            nn.Linear(16, 512), nn.Unflatten(1, (32, 4, 4)), nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.GroupNorm(4, 16),
            nn.SiLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1),
        )  # fmt: skip

    def forgotten(self) -> nn.Parameter:
        return self.decoder[2].weight

    def loss(self, step: int) -> torch.Tensor:
        x = self.normal(step, 8, 1, 16, 16).sigmoid()
        mean, log = self.moments(self.encoder(x)).chunk(2, -1)
        noise = self.normal(step, 8, 16, stream=self.choose("noise", 9, 1))
        logits = self.decoder(mean + noise * (0.5 * log).exp())
        seen = F.binary_cross_entropy_with_logits(logits, x, reduction="none").flatten(1).sum(1).mean()
        if self.variant == "distributions":
            prior = Normal(torch.zeros_like(mean), torch.ones_like(mean))
            far = kl_divergence(Normal(mean, (0.5 * log).exp()), prior).sum(1).mean()
        else:
            far = (0.5 * (mean.square() + log.exp() - 1 - log)).sum(1).mean()
        return seen + far * self.choose("weighting", 4.0, 0.5)


class Radiance(Program):
    """A field of density and colour, composed along rays."""

    mistakes = {"frequencies": ("input", "argument"), "depths": ("input", "argument"), "background": ("structure",)}
    alike = ("logarithms",)

    def build(self) -> None:
        self.body = nn.Sequential(nn.Linear(39, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        octaves = torch.arange(6.0)
        self.register_buffer("octaves", octaves + 1 if self.variant == "frequencies" else 2.0**octaves)

    def loss(self, step: int) -> torch.Tensor:
        start, way = self.normal(step, 24, 1, 3), F.normalize(self.normal(step, 24, 1, 3, stream=1), dim=-1)
        depth = torch.linspace(self.choose("depths", 0.5, 0.1), 3.0, 12).to(start.dtype)
        points = start + way * depth[None, :, None]
        angles = (points[..., None] * self.octaves).flatten(-2)
        out = self.body(torch.cat([points, angles.sin(), angles.cos()], -1))
        thick = F.softplus(out[..., 3]) * (depth[1] - depth[0])
        if self.variant == "logarithms":
            through = torch.exp(-torch.cumsum(thick, -1) + thick)
        else:
            kept = torch.exp(-thick)
            through = torch.cumprod(torch.cat([torch.ones_like(kept[:, :1]), kept[:, :-1]], -1), -1)
        share = through * (1 - torch.exp(-thick))
        colour = (share[..., None] * out[..., :3].sigmoid()).sum(1)
        if self.variant == "background":
            colour = colour + (1 - share.sum(1, keepdim=True))
        return F.mse_loss(colour, self.normal(step, 24, 3, stream=2).sigmoid())


class Adapted(nn.Module):
    """A frozen linear map beside a trained one of low rank."""

    def __init__(self, width: int, scale: float, merged: bool) -> None:
        super().__init__()
        self.base = nn.Linear(width, width).requires_grad_(False)
        self.down, self.up = nn.Linear(width, 4, bias=False), nn.Linear(4, width, bias=False)
        self.scale, self.merged = scale, merged

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.merged:
            return F.linear(x, self.base.weight + self.up.weight @ self.down.weight * self.scale, self.base.bias)
        return self.base(x) + self.up(self.down(x)) * self.scale


class Adapters(Program):
    """A decoder whose queries and values have adapters; all else is frozen."""

    mistakes = {"scale": ("argument",), "unloaded": ("input",), "causal": ("argument", "structure")}
    alike = ("merged",)

    def build(self) -> None:
        self.words, self.head = nn.Embedding(120, 48), nn.Linear(48, 120)
        self.layers = nn.ModuleList(nn.ModuleDict(self.layer(i)) for i in range(2))
        self.words.requires_grad_(False)

    def layer(self, i: int) -> dict[str, nn.Module]:
        merged, scale = self.variant == "merged", self.choose("scale", 4.0, 2.0) if i else 2.0
        return {
            "norm": nn.LayerNorm(48).requires_grad_(False), "q": Adapted(48, scale, merged), "k": nn.Linear(48, 48).requires_grad_(False),
            "v": Adapted(48, 2.0, merged), "out": nn.Linear(48, 48).requires_grad_(False), "late": nn.LayerNorm(48),
            "mlp": nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 48)).requires_grad_(False),
        }  # fmt: skip

    def forgotten(self) -> nn.Parameter:
        return self.layers[1]["q"].base.weight

    def loss(self, step: int) -> torch.Tensor:
        ids = self.numbers(step, 120, 3, 17)
        x = self.words(ids[:, :-1])
        for layer in self.layers:
            h = layer["norm"](x)
            q, k, v = (layer[name](h).unflatten(-1, (4, 12)).transpose(1, 2) for name in "qkv")
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.variant != "causal")
            x = x + layer["out"](mixed.transpose(1, 2).flatten(2))
            x = x + layer["mlp"](layer["late"](x))
        return F.cross_entropy(self.head(x).float().flatten(0, 1), ids[:, 1:].flatten())


PROGRAMS: dict[str, type[Program]] = {
    "adversarial": Adversarial, "autoencoder": Autoencoder, "radiance": Radiance, "adapters": Adapters,
}  # fmt: skip
