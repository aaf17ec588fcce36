"""Programs that act in time: an actor with a critic and slow copies of both, and motion by a differential equation."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from programs.program import Program, wide
from torch import nn


def layers(*widths: int) -> nn.Sequential:
    """Linear maps with a ReLU between them."""
    made: list[nn.Module] = []
    for a, b in zip(widths, widths[1:]):
        made += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*made[:-1])


class Actor(Program):
    """An actor and two critics; targets come from slow copies of them."""

    broad = True
    optimizers = ("adam", "adam")
    mistakes = {
        "one critic": ("structure", "argument"), "discount": ("argument",), "ends": ("structure", "input", "argument"), "flow": ("structure", "argument"),
        "rate": ("argument", "input"), "noise": ("argument",), "bound": ("structure", "argument"), "copy": ("structure", "input"),
        "weight": ("argument", "structure"), "unloaded": ("input",), "betas": ("optimizer", "argument"),
    }  # fmt: skip
    alike = ("lerp", "foreach", "joined late", "smallest by hand", "squared by hand", "tensor")

    def build(self) -> None:
        self.actor, self.first, self.second = layers(6, 32, 32, 2), layers(8, 32, 32, 1), layers(8, 32, 32, 1)
        with torch.no_grad():
            for net in (self.actor, self.first, self.second):
                net[-1].weight.mul_(8)
        self.slow = nn.ModuleList([layers(6, 32, 32, 2), layers(8, 32, 32, 1), layers(8, 32, 32, 1)])
        for slow, fast in zip(self.slow, (self.actor, self.first, self.second), strict=True):
            slow.load_state_dict(fast.state_dict())
            slow.requires_grad_(False)

    def forgotten(self) -> nn.Parameter:
        return self.slow[1][2].weight

    def groups(self) -> list[list[nn.Parameter]]:
        return [[*self.first.parameters(), *self.second.parameters()], [*self.actor.parameters()]]

    def options(self) -> dict[str, object]:
        return {"betas": (0.5, 0.999)} if self.variant == "betas" else {}

    def valued(self, critic: nn.Module, state: torch.Tensor, act: torch.Tensor) -> torch.Tensor:
        if self.variant == "joined late":
            enter = critic[0]
            h = F.linear(state, enter.weight[:, :6], enter.bias) + F.linear(act, enter.weight[:, 6:])
            return critic[1:](h)
        return critic(torch.cat([state, act], -1))

    def losses(self, step: int) -> Iterator[tuple[torch.Tensor, int | None]]:
        state, later = self.normal(step, 32, 6), self.normal(step, 32, 6, stream=1)
        act, reward = self.normal(step, 32, 2, stream=2).tanh(), self.normal(step, 32, 1, stream=3)
        ended = (self.numbers(step, 10, 32, 1) < 2).to(state.dtype)
        with torch.no_grad():
            noise = (self.normal(step, 32, 2, stream=4) * (0.5 if self.variant == "noise" else 0.2)).clamp(-0.5, 0.5)
            policy = self.actor if self.variant == "copy" else self.slow[0]
            follow = policy(later).tanh() + noise
            follow = follow if self.variant == "bound" else follow.clamp(-1, 1)
            a, b = (wide(self.valued(self.slow[i], later, follow)) for i in (1, 2))
            if self.variant == "smallest by hand":
                least = torch.where(a < b, a, b)
            else:
                least = b if self.variant == "one critic" else torch.minimum(a, b)
            discount = 0.9 if self.variant == "discount" else 0.99
            worth = wide(reward) + discount * (1.0 if self.variant == "ends" else 1 - wide(ended)) * least
        x, y = (wide(self.valued(critic, state, act)) for critic in (self.first, self.second))
        if self.variant == "squared by hand":
            yield (x - worth).square().mean() + (y - worth).square().mean(), 0
        else:
            yield F.mse_loss(x, worth) + F.mse_loss(y, worth), 0
        mine = self.actor(state).tanh()
        value = wide(self.valued(self.first, state, mine.detach() if self.variant == "flow" else mine))
        kept = wide(self.actor(state).square().mean()) * (0.1 if self.variant == "weight" else 0.01)
        yield kept - value.mean(), 1

    def after_update(self) -> None:
        rate = 0.5 if self.variant == "rate" else 0.05
        fast = [p for net in (self.actor, self.first, self.second) for p in net.parameters()]
        with torch.no_grad():
            if self.variant == "foreach":
                torch._foreach_lerp_(list(self.slow.parameters()), fast, rate)
                return
            for slow, new in zip(self.slow.parameters(), fast, strict=True):
                if self.variant == "lerp":
                    slow.lerp_(new, rate)
                elif self.variant == "tensor":
                    slow.copy_(slow * (1 - rate) + new * torch.tensor(rate, dtype=new.dtype))
                else:
                    slow.mul_(1 - rate).add_(new, alpha=rate)


class Motion(Program):
    """Motion of points by a learned field, by a method of four stages, held against what was seen at times between."""

    broad = True
    optimizers = ("rmsprop",)
    mistakes = {
        "stages": ("structure", "argument"), "weights": ("argument", "structure"), "step": ("argument", "input"), "time": ("structure", "input", "argument"),
        "slope": ("argument", "structure"), "friction": ("structure", "argument"), "start": ("structure", "input"), "late": ("structure", "input", "argument"),
        "unloaded": ("input",), "alpha": ("optimizer", "argument"),
    }  # fmt: skip
    alike = ("summed late", "addcmul", "stacked", "softplus by hand", "norm by hand", "two fields")

    def build(self) -> None:
        self.enter = nn.Linear(5, 32)
        self.deep = nn.Linear(32, 32)
        self.out = nn.Linear(32, 4)
        self.drag = nn.Parameter(torch.tensor([0.1, 0.2, 0.3, 0.4]))

    def forgotten(self) -> nn.Parameter:
        return self.deep.weight

    def options(self) -> dict[str, float]:
        return {"alpha": 0.8} if self.variant == "alpha" else {}

    def field(self, x: torch.Tensor, time: float) -> torch.Tensor:
        time = 0.0 if self.variant == "time" else time
        if self.variant == "two fields":
            h = F.linear(x, self.enter.weight[:, :4], self.enter.bias) + time * self.enter.weight[:, 4]
        else:
            h = self.enter(torch.cat([x, torch.full_like(x[:, :1], time)], -1))
        h = self.deep(F.elu(h, alpha=0.5 if self.variant == "slope" else 1.0).tanh())
        if self.variant == "softplus by hand":
            h = (1 + wide(h).exp()).log().to(h.dtype)
        else:
            h = F.softplus(h)
        moved = self.out(h)
        if self.variant == "friction":
            return moved
        return torch.addcmul(moved, self.drag, x, value=-1) if self.variant == "addcmul" else moved - self.drag * x

    def moved(self, x: torch.Tensor, time: float, step: float) -> torch.Tensor:
        a = self.field(x, time)
        b = self.field(x + step / 2 * a, time + step / 2)
        if self.variant == "stages":
            return x + step * b
        c = self.field(x + step / 2 * b, time + step / 2)
        d = self.field(x + step * c, time + step)
        if self.variant == "weights":
            return x + step / 4 * (a + b + c + d)
        if self.variant == "summed late":
            return x + step / 6 * a + step / 3 * b + step / 3 * c + step / 6 * d
        if self.variant == "stacked":
            return x + step / 6 * torch.stack([a, 2 * b, 2 * c, d]).sum(0)
        return x + step / 6 * (a + 2 * b + 2 * c + d)

    def loss(self, step: int) -> torch.Tensor:
        seen = self.normal(step, 16, 4, 4)
        x = seen[:, 0] + 0.1 if self.variant == "start" else seen[:, 0]
        span = 0.25 if self.variant == "step" else 0.2
        made = []
        for turn in range(4):
            x = self.moved(x, turn * span, span)
            made.append(x)
        path = wide(torch.stack(made, 1))
        wanted = wide(seen.roll(1, 1) if self.variant == "late" else seen)
        if self.variant == "norm by hand":
            return (path - wanted).square().sum((1, 2)).mean() / 16
        return F.mse_loss(path, wanted)


PROGRAMS = {"actor": Actor, "motion": Motion}
