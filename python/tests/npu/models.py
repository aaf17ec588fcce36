"""Models and batches that are trained on both devices: small, with random weights, the same in every run."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

WORDS = 64
Batch = tuple[torch.Tensor, torch.Tensor]


class Block(nn.Module):
    """A layer of a transformer, with attention in its parts."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        scores = (q @ k.transpose(-1, -2)) / (width // self.heads) ** 0.5
        hidden = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        mixed = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Two layers; with `again`, each is computed again in the backward pass."""

    def __init__(self, width: int = 32, again: bool = False) -> None:
        super().__init__()
        self.again = again
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(16, width)
        self.blocks = nn.ModuleList([Block(width, 4) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.head(self.norm(x))


def _words(seed: int = 1) -> Batch:
    source = torch.Generator().manual_seed(seed)
    return torch.randint(0, WORDS, (4, 16), generator=source), torch.randint(0, WORDS, (4, 16), generator=source)


def _hugging_face(kind: str, **config: Any) -> nn.Module:
    import transformers

    common = {"vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 32}
    head = "MaskedLM" if kind == "Bert" else "CausalLM"
    return getattr(transformers, f"{kind}For{head}")(getattr(transformers, f"{kind}Config")(**common, **config))


def make(kind: str) -> tuple[nn.Module, Batch]:
    """A model and its batch, on the host."""
    torch.manual_seed(0)
    if kind == "mlp":
        source = torch.Generator().manual_seed(1)
        net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 4))
        return net, (torch.randn(32, 64, generator=source), torch.randint(0, 4, (32,), generator=source))
    if kind == "resnet":
        from torchvision.models.resnet import BasicBlock, ResNet

        source = torch.Generator().manual_seed(1)
        # Every kind of layer of ResNet-18, at half of its depth.
        return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10), (torch.randn(4, 3, 32, 32, generator=source), torch.randint(0, 10, (4,), generator=source))
    if kind == "gpt":
        return Gpt(), _words()
    if kind == "checkpointed":
        return Gpt(again=True), _words()
    if kind == "llama":
        return _hugging_face("Llama", num_key_value_heads=2), _words()
    if kind == "bert":
        return _hugging_face("Bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0), _words()
    if kind == "moe":
        experts = {"moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}
        return _hugging_face("Qwen2Moe", num_key_value_heads=2, **experts), _words()
    raise ValueError(kind)


def fuse(model: nn.Module) -> None:
    """Puts fused operators of torch_npu in the place of functions of torch, as ports of transformers' Llama to NPUs do."""
    import torch_npu
    from transformers.models.llama import modeling_llama as llama

    def normalise(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch_npu.npu_rms_norm(x, self.weight, epsilon=self.variance_epsilon)[0]

    def gate(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(torch_npu.npu_swiglu(torch.cat((self.gate_proj(x), self.up_proj(x)), -1), dim=-1))

    def rotate(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *_: object, **__: object) -> tuple[torch.Tensor, ...]:
        return tuple(torch_npu.npu_rotary_mul(each, cos.unsqueeze(1), sin.unsqueeze(1)) for each in (q, k))

    llama.LlamaRMSNorm.forward, llama.LlamaMLP.forward, llama.apply_rotary_pos_emb = normalise, gate, rotate
    # Transformers: attention by `npu_fusion_attention`.
    model.config._attn_implementation = "flash_attention_2"


class Merged(nn.Module):
    """The MLP of a Llama with the weights of gate and up projection side by side, as ports to NPUs keep them."""

    def __init__(self, parts: nn.Module) -> None:
        super().__init__()
        both = torch.cat((parts.gate_proj.weight, parts.up_proj.weight)).detach()
        self.gate_up_proj = nn.Linear(both.shape[1], both.shape[0], bias=False)
        self.gate_up_proj.weight = nn.Parameter(both)
        self.down_proj = parts.down_proj

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        import torch_npu

        return self.down_proj(torch_npu.npu_swiglu(self.gate_up_proj(x), dim=-1))


def merge(model: nn.Module) -> None:
    """Puts [`Merged`] in the place of the MLPs of a Llama."""
    for layer in model.model.layers:
        layer.mlp = Merged(layer.mlp)


def pad(batch: Batch) -> Batch:
    """Sentences of other lengths: words that are not there are 0, and are no targets."""
    x, y = (part.clone() for part in batch)
    for sentence, length in enumerate((16, 11, 6, 13)):
        x[sentence, length:], y[sentence, length:] = 0, -100
    return x, y


def loss_of(model: nn.Module, batch: Batch, padded: bool = False) -> torch.Tensor:
    x, y = batch
    out = model(x, attention_mask=y.ne(-100).long()) if padded else model(x)
    logits = getattr(out, "logits", out).float()
    return F.cross_entropy(logits.flatten(0, -2), y.flatten())
