"""The trainings of the suite: models with random weights, and the ways in which programs on a GPU run them.

Everything is made on the host from one seed and then moved, so that a run on the host and a run on a GPU begin with the same bits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

Batch = tuple[torch.Tensor, torch.Tensor]

#: Names of `torch.nn.attention.SDPBackend`.
ATTENTION = {"flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "math": "MATH"}


@dataclass(frozen=True)
class Size:
    """Width, layers, batch and length of the language models, and the side of the images."""

    width: int = 256
    heads: int = 8
    layers: int = 4
    batch: int = 8
    length: int = 128
    words: int = 1024
    side: int = 64


FULL = Size()
REDUCED = Size(width=32, heads=4, layers=2, batch=2, length=16, words=64, side=32)


@dataclass(frozen=True)
class Program:
    """One training. `precision`: `float32`, `tf32`, `bfloat16`, `autocast` (bfloat16) or `scaler` (float16)."""

    model: str
    precision: str = "float32"
    optimizer: str = "adamw"
    #: Kernel of attention: a key of [`ATTENTION`], or torch's own choice.
    attention: str = ""
    #: `checkpointed`, `compiled`, `graph`, `streams`, `triton` or `ddp`.
    special: str = ""

    @property
    def name(self) -> str:
        return "-".join(part for part in (self.model, self.precision, self.optimizer, self.attention, self.special) if part)


class Block(nn.Module):
    """One layer of a GPT."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads, width = size.heads, size.width
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """A GPT; with `again`, each layer is computed again in the backward pass."""

    def __init__(self, size: Size, again: bool = False) -> None:
        super().__init__()
        self.again = again
        self.words, self.places = nn.Embedding(size.words, size.width), nn.Embedding(size.length, size.width)
        self.blocks = nn.ModuleList([Block(size) for _ in range(size.layers)])
        self.norm, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, size.words, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.head(self.norm(x))


class Towers(nn.Module):
    """Two towers, the second of which a GPU computes in a stream of its own."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        make = lambda: nn.Sequential(nn.Linear(64, size.width), nn.GELU(), nn.LayerNorm(size.width), nn.Linear(size.width, size.width))  # noqa: E731
        self.one, self.other, self.head = make(), make(), nn.Linear(size.width, 4)
        self.stream: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.device.type != "cuda":
            return self.head(self.one(x) * self.other(x))
        self.stream = self.stream or torch.cuda.Stream()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            other = self.other(x)
            x.record_stream(self.stream)
        one = self.one(x)
        torch.cuda.current_stream().wait_stream(self.stream)
        other.record_stream(torch.cuda.current_stream())
        return self.head(one * other)


def _mlp(act: Callable[[], nn.Module]) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), act(), nn.LayerNorm(128), nn.Linear(128, 4))


def _hugging_face(kind: str, size: Size, **config: Any) -> nn.Module:
    import transformers

    common = {
        "vocab_size": size.words, "hidden_size": size.width, "intermediate_size": 2 * size.width, "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads, "num_key_value_heads": size.heads // 2, "max_position_embeddings": size.length,
    }  # fmt: skip
    return getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(**common, **config))


def make(program: Program, size: Size) -> tuple[nn.Module, Batch]:
    """A model and its batch, on the host."""
    torch.manual_seed(0)
    source = torch.Generator().manual_seed(1)
    words = lambda: torch.randint(0, size.words, (size.batch, size.length), generator=source)  # noqa: E731
    if program.model == "mlp":
        batch = torch.randn(32, 64, generator=source), torch.randint(0, 4, (32,), generator=source)
        if program.special == "triton":
            from wrong import Gelu

            return _mlp(Gelu), batch
        return (Towers(size) if program.special == "streams" else _mlp(nn.GELU)), batch
    if program.model == "resnet":
        import torchvision

        images = torch.randn(size.batch, 3, size.side, size.side, generator=source)
        return torchvision.models.resnet18(num_classes=10), (images, torch.randint(0, 10, (size.batch,), generator=source))
    if program.model == "gpt":
        return Gpt(size, again=program.special == "checkpointed"), (words(), words())
    if program.model == "llama":
        return _hugging_face("Llama", size), (words(), words())
    if program.model == "moe":
        experts = {"moe_intermediate_size": size.width, "shared_expert_intermediate_size": size.width, "num_experts": 4, "num_experts_per_tok": 2}
        model = _hugging_face("Qwen2Moe", size, **experts)
        if hasattr(model, "set_experts_implementation"):
            # The library's own choice is another program on a host than on a GPU.
            model.set_experts_implementation("eager")
        return model, (words(), words())
    raise ValueError(program.model)


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    "foreach": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=True),
    "capturable": lambda p: torch.optim.AdamW(p, lr=1e-3, capturable=p[0].is_cuda),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
}


def loss_of(model: nn.Module, batch: Batch) -> torch.Tensor:
    out = model(batch[0])
    logits = getattr(out, "logits", out).float()
    return F.cross_entropy(logits.flatten(0, -2), batch[1].flatten())


@contextlib.contextmanager
def settings(program: Program, deterministic: bool = True) -> Iterator[None]:
    """The switches of torch that a program runs under."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    short = program.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = short
    torch.use_deterministic_algorithms(deterministic, warn_only=True)
    torch.backends.cudnn.deterministic = deterministic
    torch.backends.cudnn.benchmark = False
    chosen = sdpa_kernel(getattr(SDPBackend, ATTENTION[program.attention])) if program.attention else contextlib.nullcontext()
    try:
        with chosen:
            yield
    finally:
        torch.use_deterministic_algorithms(False)


class Training:
    """A program that is made and waits for its steps."""

    def __init__(self, program: Program, device: str, size: Size) -> None:
        self.program, self.kind = program, device.partition(":")[0]
        model, batch = make(program, size)
        self.model, self.batch = model.to(device).train(), (batch[0].to(device), batch[1].to(device))
        if program.precision == "bfloat16":
            self.model = self.model.bfloat16()
            if self.batch[0].is_floating_point():
                self.batch = self.batch[0].bfloat16(), self.batch[1]
        if program.special == "compiled":
            self.model.blocks[0].compile()
        if program.special == "ddp":
            join(self.kind)
            self.model = nn.parallel.DistributedDataParallel(self.model)
        self.parameters = list(self.model.parameters())
        self.optimizer = OPTIMIZERS["capturable" if program.special == "graph" else program.optimizer](self.parameters)
        self.scaler = torch.amp.GradScaler(self.kind, init_scale=1024.0) if program.precision == "scaler" else None
        self.graph: Any = None
        self.loss: Any = None

    def step(self, number: int) -> torch.Tensor:
        """Iteration `number`, from 0; returns its loss."""
        if self.program.special == "graph" and self.kind == "cuda":
            return self._replayed(number)
        self.optimizer.zero_grad(set_to_none=True)
        half = torch.float16 if self.scaler else torch.bfloat16
        with torch.autocast(self.kind, half, enabled=self.program.precision in ("autocast", "scaler")):
            loss = loss_of(self.model, self.batch)
        if self.scaler is not None:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            loss.backward()
            self.optimizer.step()
        return loss.detach()

    def _replayed(self, number: int) -> torch.Tensor:
        """The first iteration runs as it is, in a stream of its own; in the second a graph is recorded, which this and later ones replay."""
        if number == 0:
            beside = torch.cuda.Stream()
            beside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(beside):
                self.optimizer.zero_grad(set_to_none=True)
                loss = loss_of(self.model, self.batch)
                loss.backward()
                self.optimizer.step()
            torch.cuda.current_stream().wait_stream(beside)
            return loss.detach()
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            self.optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(self.graph):
                self.loss = loss_of(self.model, self.batch)
                self.loss.backward()
                self.optimizer.step()
        self.graph.replay()
        return self.loss.detach().clone()

    def seen(self) -> list[torch.Tensor]:
        """All that a program could see of its training, on the host."""
        values = [p.grad for p in self.parameters if p.grad is not None] + list(self.model.state_dict().values())
        values += [v for state in self.optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor)]
        numbers = [torch.get_rng_state()] + ([torch.cuda.get_rng_state()] if self.kind == "cuda" else [])
        return [value.detach().cpu() for value in values] + numbers


def train(program: Program, device: str, size: Size, steps: int, capture: Callable[[nn.Module], Any] | None = None, deterministic: bool = True) -> list[torch.Tensor]:
    """Trains for `steps` iterations, recorded by what `capture` makes, if anything; returns losses and all that is left."""
    with settings(program, deterministic):
        training = Training(program, device, size)
        recording = capture(training.model) if capture is not None else None
        losses = []
        if recording is not None:
            recording.start(training.model)
        for number in range(steps):
            losses.append(training.step(number))
            if recording is not None:
                recording.step()
        if recording is not None:
            recording.close()
        return [loss.cpu() for loss in losses] + training.seen()


def join(kind: str) -> None:
    """A group of one rank."""
    if torch.distributed.is_initialized():
        return
    backend = "nccl" if kind == "cuda" else "gloo"
    torch.distributed.init_process_group(backend, rank=0, world_size=1, store=torch.distributed.HashStore())


def bits(value: torch.Tensor) -> torch.Tensor:
    return value.contiguous().view(-1).view(torch.uint8)


def differing(one: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    """The largest difference of a value over its norm; 0 where all bits are equal, infinite where shapes or types are not."""
    if [(v.shape, v.dtype) for v in one] != [(v.shape, v.dtype) for v in other]:
        return float("inf")
    worst = 0.0
    for a, b in zip(one, other):
        if not bits(a).equal(bits(b)):
            gap = (a.double() - b.double()).norm() / max(a.double().norm().item(), 1e-30)
            worst = max(worst, gap.item() if gap.isfinite() else float("inf"), 1e-30)
    return worst


#: Programs whose bits are held against those of a run that is not recorded.
PROGRAMS = [
    Program("mlp"), Program("mlp", "tf32", "sgd"), Program("mlp", special="triton"), Program("mlp", special="streams"),
    Program("resnet", optimizer="sgd"), Program("resnet", "autocast", "sgd"),
    Program("gpt", optimizer="fused"), Program("gpt", "tf32", "foreach"), Program("gpt", "bfloat16"), Program("gpt", "autocast", "fused"),
    Program("gpt", "scaler"), Program("gpt", special="checkpointed"), Program("gpt", "bfloat16", attention="flash"),
    Program("gpt", attention="efficient"), Program("gpt", special="compiled"), Program("gpt", special="graph"), Program("gpt", special="ddp"),
    Program("llama", "bfloat16", "fused"), Program("llama"), Program("moe"), Program("moe", "bfloat16", "foreach"),
]  # fmt: skip

