"""What is wrong with a pair, and which answer is right."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass

import probe
import torch
from engine import END, Request, Sampler
from models import Language, other
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from trainer import scores, stepped

EXPECTED = {
    "sound": (),
    "sound-left-padded": (),
    "sound-micro-batch": (),
    "sound-shifted-positions": (),
    "sound-temperature": (),
    "sound-top-p": (),
    "temperature": ("temperature",),
    "raw": ("temperature",),
    "top-p": ("truncation",),
    "shift": ("shift",),
    "mask": ("mask",),
    "end-token": ("end-token",),
    "unscored": ("unscored",),
    "rows": ("rows",),
    "stale": ("weights",),
    "unsynced-layer": ("weights",),
    "quantised-twice": ("weights",),
    "fp8-engine": ("quantized",),
    "int8-engine": ("quantized",),
    "int4-engine": ("quantized",),
    "dropout": ("weights",),
    "narrow-softmax": ("precision",),
    "rope-base": ("position",),
    "position-gap": ("padding",),
    "cap": ("soft-cap",),
    "penalty": ("penalty",),
    "routing": ("routing",),
    "routing-layer": ("routing",),
    "expert-numbers": ("routing",),
    "sound-experts": (),
    "stale-experts": ("weights",),
    "routing+shift": ("shift", "routing"),
    "shift+temperature": ("shift", "temperature"),
    "rows+top-p": ("rows", "truncation"),
    "mask+stale": ("mask", "weights"),
    "unscored+temperature": ("unscored", "temperature"),
    "end-token+rows": ("end-token", "rows"),
    "shift+position-gap": ("shift", "padding"),
    "sound-kernels": (),
}
# Only these models have the thing that is wrong.
EXPERTS = ("routing", "routing-layer", "expert-numbers", "sound-experts", "stale-experts", "routing+shift")
ONLY = {"cap": ("capped",)} | {fault: ("moe", "moe-top-1", "moe-many") for fault in EXPERTS}
# How a pass of the trainer is quantised as the engine was.
NUMBERS = {
    "fp8-engine": {"weights": "fp8", "activations": "fp8", "per_tensor": True},
    "int8-engine": {"weights": "int8"},
    "int4-engine": {"weights": "int4", "group": 32, "offset": True},
}
# Pairs that a quantised pass of the trainer is recorded for, though the engine is not quantised.
DOUBTED = ("sound", "stale", "unsynced-layer", "dropout", "rope-base", "position-gap")
# Pairs that a pass of the trainer with other kernels is recorded for: what hides in rounding, and sound ones.
AGAIN = ("sound", "sound-micro-batch", "sound-left-padded", "sound-shifted-positions", "sound-experts", "sound-kernels", "stale", "unsynced-layer", "quantised-twice", "narrow-softmax", "rope-base", "position-gap", "routing", "routing-layer", "stale-experts", "penalty", *NUMBERS)
# The engine samples so.
SAMPLED = {"position-gap": "grouped", "sound-left-padded": "grouped", "sound-shifted-positions": "grouped", "temperature": "cool", "raw": "cool", "top-p": "top-p", "sound-temperature": "cool", "sound-top-p": "top-p", "penalty": "penalty"} | {fault: fault for fault in NUMBERS}


# Tokens of the longest prompts, which a third of the grouped rows have.
LONGEST = 30


@dataclass
class Pair:
    """Values of one batch, a list a row; masks as the trainer has them."""

    requests: list[Request]
    rollout: list[Tensor]
    trainer: list[Tensor]
    masks: list[Tensor]
    routes: list[tuple[Tensor, Tensor]]
    """The trainer's experts and margins of each row, where the model has experts."""
    second: list[Tensor] | None = None
    """Values of a pass of the trainer with quantised weights."""
    again: list[Tensor] | None = None
    """Values of a pass of the trainer with other kernels."""

    def expected(self, fault: str) -> list[str]:
        """The causes to be named. Where no row ends, no end token is lost."""
        ends = any(request.output[-1] == END for request in self.requests)
        return [cause for cause in EXPECTED[fault] if ends or cause not in ("end-token", "unscored")]


@contextlib.contextmanager
def other_kernels() -> Iterator[None]:
    """Attention step by step, and products of matrices without oneDNN: in bfloat16, both round elsewhere."""
    with sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False):
        yield


class Faults:
    """Plants faults into pairs of one model. `chance` sets their size."""

    def __init__(self, trainer: Language, dtype: torch.dtype, samplers: dict[str, Sampler], chance: random.Random, others: list[Request]) -> None:
        self.trainer, self.dtype, self.samplers, self.chance = trainer, dtype, samplers, chance
        self.same = other(trainer, dtype)
        rate, steps = chance.choice([(1e-3, 5), (3e-3, 3), (3e-4, 20)])
        self.newer = stepped(trainer, others, rate, steps, chance.randrange(1000))
        self.base = chance.choice([1e6, 1e5, 500.0])

    def model(self, name: str) -> Language:
        """The trainer's model with a fault of the model."""
        if name in ("stale", "stale-experts"):
            return other(self.newer, self.dtype)
        if name == "rope-base":
            return other(self.trainer, self.dtype, base=self.base)
        if name == "cap":
            return other(self.trainer, self.dtype, cap=0.0)
        model = copy.deepcopy(self.same)
        if name == "unsynced-layer":
            layer = self.chance.randrange(len(model.model.layers))
            model.model.layers[layer].load_state_dict(self.newer.model.layers[layer].state_dict())
        elif name == "quantised-twice":
            for weight in model.parameters():
                if weight.dim() > 1:
                    scale = weight.data.abs().amax(-1, keepdim=True) / 31
                    weight.data = (weight.data / scale).round() * scale
        elif name == "dropout":
            model.model.dropout = 0.1
        elif name in ("routing", "routing-layer", "expert-numbers"):
            layers = list(model.model.layers)
            for layer in layers if name == "routing" else [self.chance.choice(layers)]:
                gate = layer.mlp.gate.weight
                if name == "expert-numbers":
                    a, b = self.chance.sample(range(len(gate)), 2)
                    gate.data[[a, b]] = gate.data[[b, a]].clone()
                else:
                    gate.data = gate.data.roll(1, 0)
        return model

    def pair(self, fault: str, rolled: dict[str, list[Request]], count: int) -> Pair:
        parts = fault.split("+")
        kind = next((SAMPLED[part] for part in parts if part in SAMPLED), "plain")
        requests = rolled[kind][:count]
        sampler = self.samplers.get(kind, Sampler())
        if any(part in ("temperature", "top-p", "penalty") for part in parts):
            sampler = Sampler()
        how: dict[str, object] = {}
        if {"position-gap", "sound-left-padded", "sound-shifted-positions"} & set(parts):
            left = [LONGEST - len(request.prompt) for request in requests]
            how = {"left": left, "gap": int("position-gap" in parts), "shift": 3 * int("sound-shifted-positions" in parts)}
        name = next((part for part in parts if part in ("stale", "rope-base", "cap", "unsynced-layer", "quantised-twice", "dropout", *EXPERTS)), "")
        micro = 3 if fault == "sound-micro-batch" else 32
        routes: list[tuple[Tensor, Tensor]] = []
        if self.trainer.config.experts:
            how["routes"] = routes
        model = self.model(name) if name else self.same
        kernels = (other_kernels, contextlib.nullcontext)
        kernels = kernels if fault == "sound-kernels" else kernels[::-1]
        with kernels[0]():
            trainer = scores(model, requests, sampler, micro=micro, narrow="narrow-softmax" in parts, **how)
        again = second = None
        alone = {key: value for key, value in how.items() if key != "routes"}
        if fault in AGAIN:
            with kernels[1]():
                again = scores(model, requests, sampler, micro=micro, narrow="narrow-softmax" in parts, **alone)
        if fault in NUMBERS or fault in DOUBTED:
            with probe.rollout.quantized(model, **NUMBERS.get(fault, {"weights": self.chance.choice(("fp8", "int8", "int4"))})):
                second = scores(model, requests, sampler, micro=micro, **alone)
        raw = fault == "raw"
        rollout = [torch.tensor(request.raw if raw else request.values) for request in requests]
        masks = [torch.ones(len(request.output)) for request in requests]
        pair = Pair(requests, rollout, trainer, masks, routes, second, again)
        for part in parts:
            getattr(self, "_" + part.replace("-", "_"), lambda pair: None)(pair)
        return pair

    @staticmethod
    def _shift(pair: Pair) -> None:
        pair.trainer = [torch.cat([values[1:], values[-1:]]) for values in pair.trainer]

    @staticmethod
    def _mask(pair: Pair) -> None:
        for mask in pair.masks:
            mask[-1] = 0
        # The mask begins with the last token of the prompt, which is written before the response.
        pair.masks = [torch.cat([torch.ones(1), mask]) for mask in pair.masks]

    @staticmethod
    def _end_token(pair: Pair) -> None:
        for request, mask in zip(pair.requests, pair.masks):
            if request.output[-1] == END:
                mask[-1] = 0

    @staticmethod
    def _unscored(pair: Pair) -> None:
        for request, values in zip(pair.requests, pair.trainer):
            if request.output[-1] == END:
                values[-1] = 0

    def _rows(self, pair: Pair) -> None:
        long = sorted(range(len(pair.requests)), key=lambda row: -len(pair.requests[row].output))
        a, b = self.chance.sample(long[: max(2, len(long) // 2)], 2)
        width = [len(pair.trainer[a]), len(pair.trainer[b])]
        whole = [torch.cat([values, torch.full((96,), -1e-3)]) for values in (pair.trainer[a], pair.trainer[b])]
        pair.trainer[a], pair.trainer[b] = whole[1][: width[0]], whole[0][: width[1]]
