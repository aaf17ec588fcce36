"""Programs that agree on something: a student with a slow teacher, and tags of a sentence with those beside them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from programs.program import Program, wide
from torch import nn
from torch.func import functional_call
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Bootstrap(Program):
    """A student predicts what a moving average of itself says of another view of each image."""

    broad = True
    optimizers = ("lars",)
    mistakes = {
        "one view": ("structure",), "length": ("structure",), "decay": ("argument", "input", "optimizer"),
        "mode": ("argument", "structure"), "both predict": ("structure",), "late start": ("input",), "eps": ("argument",),
        "all adapted": ("optimizer", "structure", "argument"),
        "trust": ("optimizer", "argument"), "own teacher": ("input", "structure"), "unloaded": ("input",), "strength": ("argument",),
        "missed": ("input", "structure"), "weight": ("structure",),
    }  # fmt: skip
    alike = ("cosine", "squares", "foreach", "called", "lerp", "functional", "accumulated")

    def build(self) -> None:
        self.student, self.teacher = self.network(), self.network()
        self.teacher.load_state_dict(self.student.state_dict())
        self.teacher.requires_grad_(False)
        self.predict = nn.Sequential(nn.Linear(24, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 24))
        if self.variant == "late start":
            with torch.no_grad():
                self.teacher[7].weight.copy_(torch.randn(48, 48, generator=torch.Generator().manual_seed(9)) / 12)

    def network(self) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16, float(self.choose("eps", 1e-3, 1e-5))), nn.ReLU(),
            nn.Conv2d(16, 48, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(48, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 24),
        )  # fmt: skip

    def train(self, mode: bool = True) -> Bootstrap:
        super().train(mode)
        self.teacher.train(mode and self.variant != "mode")
        return self

    def forgotten(self) -> nn.Parameter:
        return self.predict[3].weight

    def groups(self) -> list[list[Any]]:
        mine = [p for p in self.parameters() if p.requires_grad]
        adapted = self.variant == "all adapted"
        vectors = {"params": [p for p in mine if p.dim() < 2], "adapted": adapted, "lr": 0.3 if adapted else 0.05}
        return [[{"params": [p for p in mine if p.dim() > 1]}, vectors]]

    def options(self) -> dict[str, Any]:
        return {"trust": 1e-3} if self.variant == "trust" else {}

    def said(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the teacher's answer."""
        if self.variant == "own teacher":
            return self.student(x).detach()
        if self.variant == "called":
            state = {**dict(self.teacher.named_parameters()), **dict(self.teacher.named_buffers())}
            return functional_call(self.student, state, (x,)).detach()
        with torch.no_grad():
            out = self.teacher(x)
            return self.predict(out) if self.variant == "both predict" else out

    def predicted(self, x: torch.Tensor) -> torch.Tensor:
        h = self.student(x)
        if self.variant == "functional":
            enter, norm, _, leave = self.predict
            h = F.linear(h, enter.weight, enter.bias)
            h = F.batch_norm(h, norm.running_mean, norm.running_var, norm.weight, norm.bias, training=True)
            return F.linear(F.relu(h), leave.weight, leave.bias)
        return self.predict(h)

    def far(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a, b = wide(a), wide(b)
        if self.variant == "length":
            return 2 - 2 * (a * b).sum(-1)
        if self.variant == "cosine":
            return 2 - 2 * F.cosine_similarity(a, b, dim=-1)
        a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
        return (a - b).square().sum(-1) if self.variant == "squares" else 2 - 2 * (a * b).sum(-1)

    def losses(self, step: int) -> Any:
        x, by = self.normal(step, 12, 3, 16, 16), float(self.choose("strength", 0.3, 0.5))
        one, two = (x + by * self.normal(step, 12, 3, 16, 16, stream=i) for i in (1, 2))
        first = self.far(self.predicted(one), self.said(two)).mean()
        if self.variant == "accumulated":
            yield first, None
            yield self.far(self.predicted(two), self.said(one)).mean(), 0
            return
        if self.variant == "one view":
            yield first, 0
            return
        second = self.far(self.predicted(two), self.said(one)).mean()
        yield (first + second) / 2 if self.variant == "weight" else first + second, 0

    def after_update(self) -> None:
        if self.variant != "missed":
            self.averaged()

    def averaged(self) -> None:
        keep = float(self.choose("decay", 0.99, 0.9))
        mine, theirs = (list(net.parameters()) for net in (self.teacher, self.student))
        with torch.no_grad():
            if self.variant == "foreach":
                torch._foreach_mul_(mine, keep)
                torch._foreach_add_(mine, theirs, alpha=1 - keep)
                return
            for a, b in zip(mine, theirs, strict=True):
                if self.variant == "lerp":
                    a.lerp_(b, 1 - keep)
                else:
                    a.copy_(keep * a + (1 - keep) * b)


class Tagger(Program):
    """Recurrence in both directions over sentences of unlike lengths, and the likelihood of a whole row of tags."""

    broad = True
    optimizers = ("adam",)
    mistakes = {
        "lengths": ("input", "argument", "structure"), "transposed": ("structure", "input"),
        "start": ("structure",), "unmasked": ("structure",),
        "largest": ("structure",), "dropout": ("argument", "structure"), "shifted": ("structure", "input"), "each": ("structure",),
        "moves": ("input",), "values": ("structure", "gradient", "optimizer"), "unloaded": ("input",),
        "decay": ("optimizer", "argument", "structure"),
        "one way": ("structure",), "eps": ("optimizer", "argument"),
    }  # fmt: skip
    alike = ("cells", "sorted", "by hand", "one hot", "sentences", "foreach", "filled")

    def build(self) -> None:
        self.words, self.moves = nn.Embedding(60, 24), nn.Parameter(torch.randn(5, 5) * 0.5)
        self.body, self.head = nn.GRU(24, 20, batch_first=True, bidirectional=True), nn.Linear(40, 5)
        self.begin, self.end = nn.Parameter(torch.randn(5) * 0.5), nn.Parameter(torch.randn(5) * 0.5)
        if self.variant == "moves":
            with torch.no_grad():
                self.moves[:, 0] = -2.0

    def forgotten(self) -> nn.Parameter:
        return self.body.weight_hh_l0

    def options(self) -> dict[str, Any]:
        other = {"decay": {"weight_decay": 0.05}, "eps": {"eps": 1e-3}, "foreach": {"foreach": True}}
        return other.get(self.variant, {})

    def cells(self, x: torch.Tensor, keep: torch.Tensor, end: str) -> torch.Tensor:
        """One direction, a step at a time; behind its end a sentence keeps its state."""
        wi, wh, bi, bh = (getattr(self.body, f"{name}_l0{end}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        state, seen = x.new_zeros(x.shape[0], 20), []
        for i in range(x.shape[1])[:: -1 if end else 1]:
            a, b = F.linear(x[:, i], wi, bi).chunk(3, -1), F.linear(state, wh, bh).chunk(3, -1)
            reset, update = (a[0] + b[0]).sigmoid(), (a[1] + b[1]).sigmoid()
            new = (a[2] + reset * b[2]).tanh()
            state = torch.where(keep[:, i, None], (1 - update) * new + update * state, state)
            seen.append(state * keep[:, i, None])
        return torch.stack(seen[:: -1 if end else 1], 1)

    def encoded(self, x: torch.Tensor, lengths: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        if self.variant == "cells":
            return torch.cat([self.cells(x, keep, ""), self.cells(x, keep, "_reverse")], -1)
        if self.variant == "lengths":
            lengths = torch.full_like(lengths, 8)
        if self.variant == "sorted":
            order = lengths.argsort(descending=True, stable=True)
            packed = pack_padded_sequence(x[order], lengths[order], batch_first=True)
            return pad_packed_sequence(self.body(packed)[0], batch_first=True, total_length=8)[0][order.argsort()]
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out = pad_packed_sequence(self.body(packed)[0], batch_first=True, total_length=8)[0]
        return torch.cat([out[..., :20], torch.zeros_like(out[..., :20])], -1) if self.variant == "one way" else out

    def total(self, scores: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        """The logarithm of the sum over all rows of tags."""
        moves = self.moves.T if self.variant == "transposed" else self.moves
        alpha = scores[:, 0] if self.variant == "start" else scores[:, 0] + self.begin
        for i in range(1, scores.shape[1]):
            both = alpha[:, :, None] + moves + scores[:, i, None]
            if self.variant == "largest":
                new = both.amax(1)
            elif self.variant == "by hand":
                top = both.detach().amax(1, keepdim=True)
                new = (both - top).exp().sum(1).log() + top.squeeze(1)
            else:
                new = both.logsumexp(1)
            if self.variant == "unmasked":
                alpha = new
            elif self.variant == "filled":
                alpha = new.masked_fill(~keep[:, i, None], 0.0) + alpha.masked_fill(keep[:, i, None], 0.0)
            else:
                alpha = torch.where(keep[:, i, None], new, alpha)
        return (alpha + self.end).logsumexp(1)

    def single(self, scores: torch.Tensor, tags: torch.Tensor, keep: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """The score of the right tags."""
        if self.variant == "one hot":
            right = F.one_hot(tags, 5).to(scores.dtype) * keep[..., None]
            moved = torch.einsum("bti,btj,ij->b", right[:, :-1], right[:, 1:], self.moves.to(scores.dtype))
            last = right[torch.arange(len(tags)), lengths - 1]
            return (right * scores).sum((1, 2)) + moved + right[:, 0] @ self.begin.to(scores.dtype) + last @ self.end.to(scores.dtype)
        each = scores.gather(2, tags[..., None]).squeeze(-1)
        moved = self.moves[tags[:, :-1], tags[:, 1:]]
        last = self.end[tags.gather(1, lengths[:, None] - 1).squeeze(1)]
        return (each * keep).sum(1) + (moved * keep[:, 1:]).sum(1) + self.begin[tags[:, 0]] + last

    def loss(self, step: int) -> torch.Tensor:
        ids, tags = self.numbers(step, 60, 5, 8), self.numbers(step, 5, 5, 8, stream=1)
        lengths = torch.tensor([6, 8, 4, 7, 5])
        keep = torch.arange(8) < lengths[:, None]
        x = self.words(ids)
        x = F.dropout(x, 0.1) if self.variant == "dropout" else x
        scores = wide(self.head(self.encoded(x, lengths, keep)))
        tags = tags.roll(1, 1) if self.variant == "shifted" else tags
        if self.variant == "sentences":
            places = [(slice(i, i + 1), slice(n)) for i, n in enumerate(lengths.tolist())]
            parts = [(scores[at], tags[at], keep[at], lengths[at[0]]) for at in places]
            return torch.cat([self.total(p[0], p[2]) - self.single(*p) for p in parts]).mean()
        far = self.total(scores, keep) - self.single(scores, tags, keep, lengths)
        return (far / lengths).mean() if self.variant == "each" else far.mean()

    def before_update(self) -> None:
        if self.variant == "values":
            nn.utils.clip_grad_value_(self.parameters(), 0.05)
        else:
            nn.utils.clip_grad_norm_(self.parameters(), 0.5, foreach=self.variant == "foreach")


PROGRAMS: dict[str, type[Program]] = {"bootstrap": Bootstrap, "tagger": Tagger}
