"""The public models of the suite: small, with random weights, trained for a few steps on one batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

if TYPE_CHECKING:
    from programs.program import Program

Loss = Callable[[nn.Module], torch.Tensor]
Made = tuple[nn.Module, Loss]


@dataclass(frozen=True)
class Kind:
    """`split`: `tuned` and `wide`, whose cases may be looked at while the judge is written, or `held`, whose cases may not. Of
    `wide` models a short deal of cases is made. Programs are `seen`, `sealed` or `drawn`, architectures
    that nobody chose `any`."""

    make: Callable[[torch.dtype], Made]
    split: str
    optimizer: str = "adamw"
    #: A whole program, with variants, in place of a model and one loss.
    program: type[Program] | None = None


def words(count: int, batch: int, length: int) -> torch.Tensor:
    return torch.randint(1, count, (batch, length))


def causal(config: Any, which: str, dtype: torch.dtype, length: int = 32, **more: Any) -> Made:
    import transformers

    model = getattr(transformers, which)(config)
    ids = words(config.vocab_size, 2, length)
    return model, lambda m: m(input_ids=ids, labels=ids, use_cache=False, **more).loss


def llama(dtype: torch.dtype) -> Made:
    from transformers import LlamaConfig

    config = LlamaConfig(
        vocab_size=320, hidden_size=96, intermediate_size=256, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
        max_position_embeddings=128,
    )  # fmt: skip
    return causal(config, "LlamaForCausalLM", dtype)


def gpt2(dtype: torch.dtype) -> Made:
    from transformers import GPT2Config

    config = GPT2Config(
        vocab_size=320, n_positions=64, n_embd=96, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        attn_implementation="eager",
    )  # fmt: skip
    return causal(config, "GPT2LMHeadModel", dtype)


def qwen_moe(dtype: torch.dtype) -> Made:
    from transformers import Qwen2MoeConfig

    config = Qwen2MoeConfig(
        vocab_size=320, hidden_size=64, intermediate_size=128, moe_intermediate_size=48, shared_expert_intermediate_size=96,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, num_experts=4, num_experts_per_tok=2,
        max_position_embeddings=64,
    )  # fmt: skip
    return causal(config, "Qwen2MoeForCausalLM", dtype)


def gemma(dtype: torch.dtype) -> Made:
    from transformers import Gemma2Config

    config = Gemma2Config(
        vocab_size=320, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, max_position_embeddings=64, sliding_window=16, attn_implementation="eager",
    )  # fmt: skip
    return causal(config, "Gemma2ForCausalLM", dtype)


def bert(dtype: torch.dtype) -> Made:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=300, hidden_size=96, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256,
        max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model, ids = BertForMaskedLM(config), words(300, 2, 40)
    mask = torch.ones_like(ids)
    mask[1, 30:] = 0
    return model, lambda m: m(input_ids=ids, attention_mask=mask, labels=ids).loss


def t5(dtype: torch.dtype) -> Made:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=300, d_model=64, d_kv=16, d_ff=160, num_layers=2, num_heads=4, dropout_rate=0.0, decoder_start_token_id=0,
        feed_forward_proj="gated-gelu",
    )  # fmt: skip
    model, ids, labels = T5ForConditionalGeneration(config), words(300, 2, 24), words(300, 2, 20)
    return model, lambda m: m(input_ids=ids, labels=labels, use_cache=False).loss


def vit(dtype: torch.dtype) -> Made:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=96, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256, image_size=32, patch_size=4,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=10,
    )  # fmt: skip
    model, x, y = ViTForImageClassification(config), torch.randn(4, 3, 32, 32).to(dtype), torch.randint(0, 10, (4,))
    return model, lambda m: m(pixel_values=x, labels=y).loss


def whisper(dtype: torch.dtype) -> Made:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=300, num_mel_bins=20, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=160, decoder_ffn_dim=160, max_source_positions=32, max_target_positions=32,
        dropout=0.0, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None,
        begin_suppress_tokens=None,
    )  # fmt: skip
    model, x, y = WhisperForConditionalGeneration(config), torch.randn(2, 20, 64).to(dtype), words(300, 2, 16)
    return model, lambda m: m(input_features=x, labels=y, use_cache=False).loss


def clip(dtype: torch.dtype) -> Made:
    from transformers import CLIPConfig, CLIPModel

    text = {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
            "max_position_embeddings": 24, "projection_dim": 48, "eos_token_id": 299, "bos_token_id": 298, "pad_token_id": 0}  # fmt: skip
    vision = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32,
              "patch_size": 8, "projection_dim": 48}  # fmt: skip
    model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=48))
    ids, x = words(298, 4, 16), torch.randn(4, 3, 32, 32).to(dtype)
    return model, lambda m: m(input_ids=ids, pixel_values=x, return_loss=True).loss


def images(model: nn.Module, dtype: torch.dtype, size: int = 32, batch: int = 4) -> Made:
    x, y = torch.randn(batch, 3, size, size).to(dtype), torch.randint(0, 10, (batch,))
    return model, lambda m: F.cross_entropy(m(x).float(), y)


def resnet(dtype: torch.dtype) -> Made:
    from torchvision.models.resnet import BasicBlock, ResNet

    model = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10)
    # The last two stages hold nine tenths of the weights and no other ops.
    model.layer3, model.layer4, model.fc = nn.Identity(), nn.Identity(), nn.Linear(128, 10)
    return images(model, dtype, 32)


def mobilenet(dtype: torch.dtype) -> Made:
    import torchvision

    model = torchvision.models.mobilenet_v3_small(num_classes=10, width_mult=0.5, dropout=0.0)
    return images(model, dtype, 64)


def convnext(dtype: torch.dtype) -> Made:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    setting = [CNBlockConfig(32, 64, 2), CNBlockConfig(64, 96, 1), CNBlockConfig(96, None, 1)]
    return images(ConvNeXt(setting, num_classes=10, stochastic_depth_prob=0.0), dtype, 32)


def swin(dtype: torch.dtype) -> Made:
    from torchvision.models.swin_transformer import SwinTransformer

    model = SwinTransformer([4, 4], 32, [2, 2], [2, 4], [4, 4], num_classes=10, stochastic_depth_prob=0.0)
    return images(model, dtype, 32)


def unet(dtype: torch.dtype) -> Made:
    from diffusers import UNet2DModel

    model = UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(32, 64), norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=16,
    )  # fmt: skip
    x, y, t = torch.randn(2, 3, 16, 16).to(dtype), torch.randn(2, 3, 16, 16).to(dtype), torch.tensor([7, 421])
    return model, lambda m: F.mse_loss(m(x, t).sample.float(), y.float())


def dit(dtype: torch.dtype) -> Made:
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=4, attention_head_dim=16, in_channels=4, out_channels=4, num_layers=2, sample_size=16, patch_size=2,
        num_embeds_ada_norm=100,
    )  # fmt: skip
    # Beyond the classes there is the one that is dropped at random, which would differ between devices.
    for block in model.transformer_blocks:
        block.norm1.emb.class_embedder.dropout_prob = 0.0
    x, y = torch.randn(2, 4, 16, 16).to(dtype), torch.randn(2, 4, 16, 16).to(dtype)
    t, label = torch.tensor([7, 421]), torch.tensor([3, 8])
    return model, lambda m: F.mse_loss(m(x, timestep=t, class_labels=label).sample.float(), y.float())


class Tagger(nn.Module):
    """Embedding, an encoder of torch.nn, and a head."""

    def __init__(self, encoder: nn.Module, width: int, out: int) -> None:
        super().__init__()
        self.words, self.encoder, self.head = nn.Embedding(300, width), encoder, nn.Linear(out, 40)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found = self.encoder(self.words(ids))
        return self.head(found[0] if isinstance(found, tuple) else found)


def tagger(encoder: nn.Module, width: int, out: int, length: int = 24) -> Made:
    ids, tags = words(300, 4, length), torch.randint(0, 40, (4, length))
    return Tagger(encoder, width, out), lambda m: F.cross_entropy(m(ids).float().flatten(0, 1), tags.flatten())


def encoder(dtype: torch.dtype) -> Made:
    layer = nn.TransformerEncoderLayer(64, 4, 160, dropout=0.0, batch_first=True)
    return tagger(nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), 64, 64)


def lstm(dtype: torch.dtype) -> Made:
    return tagger(nn.LSTM(48, 64, num_layers=2, bidirectional=True, batch_first=True), 48, 128, 10)


def efficientnet(dtype: torch.dtype) -> Made:
    from torchvision.models.efficientnet import EfficientNet, MBConvConfig

    setting = [MBConvConfig(1, 3, 1, 16, 16, 1), MBConvConfig(4, 3, 2, 16, 24, 1), MBConvConfig(4, 5, 2, 24, 40, 1)]
    model = EfficientNet(setting, dropout=0.0, stochastic_depth_prob=0.0, num_classes=10, last_channel=128)
    return images(model, dtype, 48)


KINDS = {
    "llama": Kind(llama, "tuned"),
    "bert": Kind(bert, "tuned"),
    "resnet": Kind(resnet, "tuned", "sgd"),
    "unet": Kind(unet, "tuned"),
    "t5": Kind(t5, "tuned", "adafactor"),
    "swin": Kind(swin, "tuned"),
    "lstm": Kind(lstm, "tuned", "rmsprop"),
    "qwen_moe": Kind(qwen_moe, "tuned"),
    "clip": Kind(clip, "tuned", "fused"),
    "gpt2": Kind(gpt2, "held"),
    "vit": Kind(vit, "held"),
    "mobilenet": Kind(mobilenet, "held", "rmsprop"),
    "convnext": Kind(convnext, "held"),
    "dit": Kind(dit, "held"),
    "encoder": Kind(encoder, "held", "sgd"),
    "whisper": Kind(whisper, "held"),
    "gemma": Kind(gemma, "held", "adafactor"),
    "efficientnet": Kind(efficientnet, "held", "fused"),
}


def kinds() -> dict[str, Kind]:
    """All models and programs by name."""
    import fresh_models
    import later_models
    import more_models
    from programs import PROGRAMS, split

    programs = {name: Kind(whole(made), split(name), made.optimizers[0], made) for name, made in PROGRAMS.items()}
    return {**KINDS, **more_models.KINDS, **fresh_models.KINDS, **later_models.KINDS, **programs}


def kind(name: str) -> Kind:
    """The model or program of this name; `drawn-7` is the program of the seed 7, `any-bart` an architecture of transformers."""
    import any_models
    from programs import drawn

    if name.startswith(any_models.NAME):
        return any_models.kind(name)

    if name.startswith(drawn.NAME):
        made = drawn.drawn(name)
        return Kind(whole(made), "drawn", made.optimizers[0], made)
    return kinds()[name]


def whole(program: type[Program]) -> Callable[[torch.dtype], Made]:
    """The model of a program, and the loss that one step of it begins with."""

    def make(dtype: torch.dtype) -> Made:
        return program().to(dtype), lambda m: next(m.losses(0))[0]

    return make


def optimizer(name: str, parameters: Any, **options: float) -> torch.optim.Optimizer:
    """The optimizer `name` as one uses it."""
    from programs.lion import Lion
    from programs.optimizers import Adan, Lamb, Lars, Muon, ScheduleFree, Shampoo

    made = {
        "adamw": lambda p: torch.optim.AdamW(p, 1e-3, **options),
        "fused": lambda p: torch.optim.AdamW(p, 1e-3, fused=True, **options),
        "sgd": lambda p: torch.optim.SGD(p, 0.02, momentum=0.9, **options),
        "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-3, **options),
        "adafactor": lambda p: torch.optim.Adafactor(p, 1e-2, **options),
        "adagrad": lambda p: torch.optim.Adagrad(p, 1e-2, **options),
        "lion": lambda p: Lion(p, 1e-3, **options),
        "adam": lambda p: torch.optim.Adam(p, 1e-3, **options),
        "adamax": lambda p: torch.optim.Adamax(p, 2e-3, **options),
        "nadam": lambda p: torch.optim.NAdam(p, 1e-3, **options),
        "radam": lambda p: torch.optim.RAdam(p, 1e-3, **options),
        "muon": lambda p: Muon(p, 0.02, **options),
        "lamb": lambda p: Lamb(p, 1e-2, **options),
        "lars": lambda p: Lars(p, 0.3, **options),
        "adan": lambda p: Adan(p, 3e-3, **options),
        "schedule_free": lambda p: ScheduleFree(p, 2e-3, **options),
        "shampoo": lambda p: Shampoo(p, 3e-3, **options),
    }
    return made[name](parameters)
