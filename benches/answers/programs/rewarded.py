"""Programs that learn from rewards and clicks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from programs.program import Program
from torch import nn
from torch.distributions import Categorical


class Policy(Program):
    """An actor and a critic on recorded rollouts, with a clipped ratio."""

    mistakes = {"clip": ("argument",), "advantage": ("structure",), "old": ("input",)}
    alike = ("gathered",)

    def build(self) -> None:
        self.body = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.actor, self.critic = nn.Linear(64, 6), nn.Linear(64, 1)

    def loss(self, step: int) -> torch.Tensor:
        h = self.body(self.normal(step, 48, 20))
        logits, value = self.actor(h).float(), self.critic(h).squeeze(-1).float()
        taken, reward = self.numbers(step, 6, 48), self.normal(step, 48, stream=1).float()
        old = -1.8 + 0.3 * self.normal(step, 48, stream=int(self.choose("old", 8, 2))).float()
        if self.variant == "gathered":
            logs = logits.log_softmax(-1)
            chance, spread = logs.gather(-1, taken[:, None]).squeeze(-1), -(logs.exp() * logs).sum(-1)
        else:
            policy = Categorical(logits=logits, validate_args=False)
            chance, spread = policy.log_prob(taken), policy.entropy()
        gain = reward - value.detach()
        if self.variant != "advantage":
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        ratio, room = torch.exp(chance - old), float(self.choose("clip", 0.3, 0.2))
        bounded = torch.minimum(ratio * gain, ratio.clamp(1 - room, 1 + room) * gain)
        return -bounded.mean() + 0.5 * F.mse_loss(value, reward) - 0.01 * spread.mean()


class Clicks(Program):
    """Bags of features, their pairwise products, and a network beside."""

    optimizers = ("adagrad",)
    mistakes = {"bag": ("argument",), "ids": ("input",), "fading": ("optimizer", "argument")}
    alike = ("pairs",)

    def build(self) -> None:
        self.bags = nn.ModuleList(nn.EmbeddingBag(80, 16, mode=self.mode(i)) for i in range(4))
        self.deep = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 1))
        self.wide = nn.Linear(64, 1)

    def mode(self, i: int) -> str:
        return "mean" if self.variant == "bag" and i == 2 else "sum"

    def options(self) -> dict[str, float]:
        return {"lr_decay": 0.5} if self.variant == "fading" else {}

    def loss(self, step: int) -> torch.Tensor:
        drawn = [self.numbers(step, 80, 24, 3, stream=i) for i in range(4)]
        if self.variant == "ids":
            drawn[1] = (drawn[1] + 1) % 80
        fields = torch.stack([bag(ids) for bag, ids in zip(self.bags, drawn, strict=True)], 1)
        if self.variant == "pairs":
            pairs = sum((fields[:, i] * fields[:, j]).sum(-1) for i in range(4) for j in range(i))
        else:
            pairs = 0.5 * (fields.sum(1).square() - fields.square().sum(1)).sum(-1)
        flat = fields.flatten(1)
        logits = self.deep(flat).squeeze(-1) + self.wide(flat).squeeze(-1) + 0.1 * pairs
        return F.binary_cross_entropy_with_logits(logits.float(), self.numbers(step, 2, 24, stream=9).float())


PROGRAMS: dict[str, type[Program]] = {"policy": Policy, "clicks": Clicks}
