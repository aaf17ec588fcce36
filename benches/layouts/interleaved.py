"""Pipeline stages in one or several chunks a rank, by the order of Megatron's interleaved 1F1B."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from models import Model
from parallel import World


class Stages:
    """The chunks of the model on this rank, and what is under way between the stages."""

    def __init__(self, chunks: list[Model], world: World, micro: int, loss_of: Callable[..., torch.Tensor], unscaled: bool) -> None:
        self.chunks, self.world, self.micro, self.loss_of = chunks, world, micro, loss_of
        self.scale = 1 if unscaled else micro
        self.size, self.place = world.size("pp"), world.place("pp")
        self.last = self.size * len(chunks) - 1
        self.sent: list[Any] = []
        self.held: dict[tuple[int, int], tuple[Any, torch.Tensor]] = {}

    def rank_of(self, part: int) -> int:
        return dist.get_global_rank(self.world.groups["pp"], part % self.size)

    def tag(self, part: int, number: int, back: bool) -> int:
        return (part * self.micro + number) * 2 + back

    def turn(self, at: int, back: bool) -> tuple[int, int]:
        """The chunk and the micro-batch of a rank's step."""
        chunk = at // self.size % len(self.chunks)
        number = at // (self.size * len(self.chunks)) * self.size + at % self.size
        return (len(self.chunks) - 1 - chunk if back else chunk), number

    def step(self, tokens: torch.Tensor, labels: torch.Tensor) -> None:
        self.batches = list(zip(tokens.chunk(self.micro), labels.chunk(self.micro)))
        count = self.micro * len(self.chunks)
        early = self.size - 1 - self.place
        if len(self.chunks) > 1:
            early = 2 * early + (len(self.chunks) - 1) * self.size
        early = min(early, count)
        for at in range(early):
            self.forward(*self.turn(at, False))
        for at in range(early, count):
            self.forward(*self.turn(at, False))
            self.backward(*self.turn(at - early, True))
        for at in range(count - early, count):
            self.backward(*self.turn(at, True))
        for request in self.sent:
            request.wait()
        self.sent.clear()

    def forward(self, chunk: int, number: int) -> None:
        part = chunk * self.size + self.place
        tokens, labels = self.batches[number]
        model = self.chunks[chunk]
        x = tokens
        if part > 0:
            ranks = self.world.size("tp") if self.world.sequence else 1
            weight = next(model.layers.parameters())
            x = torch.empty(tokens.shape[0], tokens.shape[1] // ranks, model.shape.width, dtype=weight.dtype)
            dist.recv(x, self.rank_of(part - 1), tag=self.tag(part, number, False))
            x.requires_grad_()
        y = model(x)
        if part == self.last:
            y = self.loss_of(y, labels) / self.scale
        else:
            self.send(y.detach(), part + 1, number, False)
        self.held[chunk, number] = x, y

    def backward(self, chunk: int, number: int) -> None:
        part = chunk * self.size + self.place
        x, y = self.held.pop((chunk, number))
        if part == self.last:
            y.backward()
        else:
            gradient = torch.empty_like(y)
            dist.recv(gradient, self.rank_of(part + 1), tag=self.tag(part, number, True))
            y.backward(gradient)
        if part > 0:
            self.send(x.grad, part - 1, number, True)

    def send(self, x: torch.Tensor, part: int, number: int, back: bool) -> None:
        self.sent.append(dist.isend(x.contiguous(), self.rank_of(part), tag=self.tag(part, number, back)))
