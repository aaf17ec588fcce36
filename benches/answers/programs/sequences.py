"""Programs of sequences: dilated convolutions, recurrence with attention, state spaces, linear attention, experts, forecasts, speech."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from programs.program import Program, RootNorm
from torch import nn
from torch.distributions import StudentT
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint


class Waves(Program):
    """Gated, dilated convolutions whose weights are a direction and a length."""

    mistakes = {"dilation": ("argument", "structure"), "side": ("argument",), "unloaded": ("input",)}
    alike = ("sliced",)

    def build(self) -> None:
        self.first, self.last = nn.Conv1d(1, 24, 1), nn.Conv1d(24, 32, 1)
        self.steps = (1, 2, 2) if self.variant == "dilation" else (1, 2, 4)
        self.layers = nn.ModuleList(weight_norm(nn.Conv1d(24, 48, 2, dilation=d)) for d in self.steps)

    def forgotten(self) -> nn.Parameter:
        return self.layers[1].parametrizations.weight.original1

    def loss(self, step: int) -> torch.Tensor:
        x = self.first(self.normal(step, 4, 1, 40))
        for conv, by in zip(self.layers, self.steps, strict=True):
            if self.variant == "sliced":
                both = conv(F.pad(x, (by, by)))[..., : x.shape[-1]]
            else:
                both = conv(F.pad(x, (0, by) if self.variant == "side" else (by, 0)))
            a, b = both.chunk(2, 1)
            x = x + a.tanh() * b.sigmoid()
        return F.cross_entropy(self.last(x).float(), self.numbers(step, 32, 4, 40))


class Translator(Program):
    """A recurrent encoder, and a decoder cell that looks back at it; gradients are clipped."""

    mistakes = {"clip": ("argument", "structure", "gradient", "optimizer"), "shift": ("input", "structure"), "pad": ("argument",)}
    alike = ("one by one",)

    def build(self) -> None:
        self.words, self.encoder, self.cell = nn.Embedding(60, 32), nn.GRU(32, 40, batch_first=True), nn.GRUCell(72, 40)
        self.look, self.head = nn.Linear(40, 40, bias=False), nn.Linear(80, 60)

    def loss(self, step: int) -> torch.Tensor:
        ids, aim = self.numbers(step, 60, 5, 9), self.numbers(step, 60, 5, 7, stream=1)
        states, last = self.encoder(self.words(ids))
        keys, h, out = self.look(states), last[0], []
        given = aim if self.variant == "shift" else aim.roll(1, 1)
        for i in range(7):
            share = torch.softmax((keys @ h.unsqueeze(-1)).squeeze(-1), -1)
            seen = (share.unsqueeze(1) @ states).squeeze(1)
            h = self.cell(torch.cat([self.words(given[:, i]), seen], -1), h)
            out.append(self.head(torch.cat([h, seen], -1)))
        logits = torch.stack(out, 1).float().flatten(0, 1)
        return F.cross_entropy(logits, aim.flatten(), ignore_index=int(self.choose("pad", 3, -100)))

    def before_update(self) -> None:
        nn.utils.clip_grad_norm_(self.parameters(), float(self.choose("clip", 0.05, 0.5)), foreach=self.variant != "one by one")


class StateSpace(Program):
    """A diagonal state that decays, driven by its input."""

    mistakes = {"eps": ("argument",), "decay": ("input",), "gate": ("structure",)}
    alike = ("kernel",)

    def build(self) -> None:
        self.enter, self.leave, self.gate = nn.Linear(20, 48), nn.Linear(48, 20), nn.Linear(20, 48)
        self.norm = RootNorm(20, float(self.choose("eps", 1e-2, 1e-6)))
        start = torch.linspace(0.5, 8, 48).log()
        self.speed = nn.Parameter(start.flip(0) if self.variant == "decay" else start)

    def loss(self, step: int) -> torch.Tensor:
        x = self.normal(step, 6, 13, 20)
        u, keep = self.enter(self.norm(x[:, :-1])), torch.exp(-0.1 * torch.exp(self.speed))
        if self.variant == "kernel":
            ages = (torch.arange(12)[:, None] - torch.arange(12)).clamp_min(0)
            weights = (keep[:, None, None] ** ages).tril()
            y = torch.einsum("cts,bsc->btc", weights, u)
        else:
            state, seen = torch.zeros_like(u[:, 0]), []
            for i in range(12):
                state = state * keep + u[:, i]
                seen.append(state)
            y = torch.stack(seen, 1)
        gate = self.gate(x[:, :-1])
        out = self.leave(y * (gate.sigmoid() if self.variant == "gate" else F.silu(gate)))
        return F.mse_loss(out, x[:, 1:])


class LinearAttention(Program):
    """Attention whose memory is a running sum of outer products."""

    mistakes = {"alpha": ("argument",), "positions": ("input",), "unloaded": ("input",)}
    alike = ("checkpointed",)

    def build(self) -> None:
        self.words, self.places = nn.Embedding(100, 32), nn.Embedding(20, 32)
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(2))
        self.qkv = nn.ModuleList(nn.Linear(32, 96) for _ in range(2))
        self.outs = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))
        self.head = nn.Linear(32, 100)

    def forgotten(self) -> nn.Parameter:
        return self.qkv[1].weight

    def layer(self, x: torch.Tensor, i: int) -> torch.Tensor:
        q, k, v = self.qkv[i](self.norms[i](x)).unflatten(-1, (3, 2, 16)).unbind(2)
        alpha = float(self.choose("alpha", 0.5, 1.0)) if i else 1.0
        q, k = F.elu(q, alpha) + 1, F.elu(k) + 1
        memory = (k.unsqueeze(-1) * v.unsqueeze(-2)).cumsum(1)
        size = (q * k.cumsum(1)).sum(-1, keepdim=True)
        out = (q.unsqueeze(-2) @ memory).squeeze(-2) / (size + 1e-3)
        return x + self.outs[i](out.flatten(-2))

    def loss(self, step: int) -> torch.Tensor:
        ids = self.numbers(step, 100, 4, 15)
        start = 1 if self.variant == "positions" else 0
        x = self.words(ids[:, :-1]) + self.places(torch.arange(start, start + 14))
        for i in range(2):
            x = checkpoint(self.layer, x, i, use_reentrant=False) if self.variant == "checkpointed" else self.layer(x, i)
        return F.cross_entropy(self.head(x).float().flatten(0, 1), ids[:, 1:].flatten())


class Experts(Program):
    """Two of four experts for each token, and a loss that balances them."""

    mistakes = {"normalised": ("structure",), "balance": ("argument",), "unloaded": ("input",)}
    alike = ("dense",)

    def build(self) -> None:
        self.words, self.head, self.norm = nn.Embedding(90, 40), nn.Linear(40, 90), RootNorm(40)
        self.gate = nn.Linear(40, 4, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(40, 64), nn.SiLU(), nn.Linear(64, 40)) for _ in range(4))

    def forgotten(self) -> nn.Parameter:
        return self.experts[2][0].weight

    def loss(self, step: int) -> torch.Tensor:
        ids = self.numbers(step, 90, 4, 16)
        x = self.words(ids[:, :-1]).flatten(0, 1)
        h = self.norm(x)
        share = torch.softmax(self.gate(h), -1)
        weight, chosen = share.topk(2, -1)
        if self.variant != "normalised":
            weight = weight / weight.sum(-1, keepdim=True)
        if self.variant == "dense":
            full = torch.zeros_like(share).scatter(-1, chosen, weight)
            out = sum(full[:, i : i + 1] * expert(h) for i, expert in enumerate(self.experts))
        else:
            out = torch.zeros_like(h)
            for i, expert in enumerate(self.experts):
                token, slot = (chosen == i).nonzero(as_tuple=True)
                out = out.index_add(0, token, (expert(h[token]) * weight[token, slot, None]).to(out.dtype))
        load = F.one_hot(chosen, 4).sum(1).to(share.dtype).mean(0)
        balance = (load * share.mean(0)).sum() * self.choose("balance", 0.5, 0.02)
        return F.cross_entropy(self.head(x + out).float(), ids[:, 1:].flatten()) + balance


class Forecast(Program):
    """A recurrent forecast with heavy tails, trained by signs."""

    optimizers = ("lion",)
    mistakes = {"freedom": ("argument",), "scaling": ("input", "argument", "structure"), "betas": ("optimizer", "argument")}
    alike = ("distribution",)

    def build(self) -> None:
        self.body, self.out = nn.LSTM(4, 32, batch_first=True), nn.Linear(32, 3)

    def options(self) -> dict[str, float]:
        return {"keep": 0.5} if self.variant == "betas" else {}

    def loss(self, step: int) -> torch.Tensor:
        series = self.normal(step, 16, 13).cumsum(1)
        size = series.abs().mean(1, keepdim=True) + (1.0 if self.variant == "scaling" else 0.1)
        x = series / size
        lags = torch.stack([x[:, :-1], x[:, :-1].roll(1, 1), x[:, :-1].sin(), x[:, :-1].cos()], -1)
        mean, spread, free = self.out(self.body(lags)[0]).float().unbind(-1)
        spread, free = F.softplus(spread) + 1e-3, F.softplus(free) + self.choose("freedom", 1.0, 2.0)
        aim = x[:, 1:].float()
        if self.variant == "distribution":
            return -StudentT(free, mean, spread).log_prob(aim).mean()
        y = (aim - mean) / spread
        front = spread.log() + 0.5 * free.log() + 0.5 * torch.tensor(torch.pi).log() + torch.lgamma(0.5 * free)
        return (0.5 * (free + 1) * torch.log1p(y.square() / free) + front - torch.lgamma(0.5 * (free + 1))).mean()


class Speech(Program):
    """Convolution, recurrence in both directions, and an alignment-free loss."""

    mistakes = {"blank": ("argument",), "lengths": ("input", "argument"), "unloaded": ("input",)}
    alike = ("logsumexp",)

    def build(self) -> None:
        self.front = nn.Sequential(nn.Conv1d(16, 32, 3, 2, 1), nn.BatchNorm1d(32), nn.ReLU())
        self.body, self.head = nn.LSTM(32, 24, bidirectional=True, batch_first=True), nn.Linear(48, 20)

    def forgotten(self) -> nn.Parameter:
        return self.front[0].weight

    def loss(self, step: int) -> torch.Tensor:
        x = self.front(self.normal(step, 4, 16, 32))
        logits = self.head(self.body(x.transpose(1, 2))[0]).float()
        logs = logits - logits.logsumexp(-1, keepdim=True) if self.variant == "logsumexp" else logits.log_softmax(-1)
        heard = torch.tensor([16, 16, 16, 16] if self.variant == "lengths" else [16, 16, 12, 14])
        aim = self.numbers(step, 18, 4, 5) + 1
        blank = int(self.choose("blank", 19, 0))
        return F.ctc_loss(logs.transpose(0, 1), aim, heard, torch.tensor([5, 4, 5, 3]), blank=blank)


PROGRAMS: dict[str, type[Program]] = {
    "waves": Waves, "translator": Translator, "state_space": StateSpace, "linear_attention": LinearAttention,
    "experts": Experts, "forecast": Forecast, "speech": Speech,
}  # fmt: skip
