"""Models added after the judge was last changed: what it does on kinds of network it was never tried on. A short deal is made."""

from __future__ import annotations

import torch
from models import Kind, Made, causal, images, words


def bart(dtype: torch.dtype) -> Made:
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(
        vocab_size=320, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=128, decoder_ffn_dim=128, max_position_embeddings=64, dropout=0.0, attention_dropout=0.0,
        activation_dropout=0.0,
    )  # fmt: skip
    model, ids, labels = BartForConditionalGeneration(config), words(320, 2, 24), words(320, 2, 16)
    return model, lambda m: m(input_ids=ids, labels=labels, use_cache=False).loss


def deberta(dtype: torch.dtype) -> Made:
    from transformers import DebertaV2Config, DebertaV2ForMaskedLM

    config = DebertaV2Config(
        vocab_size=320, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, relative_attention=True,
        position_buckets=16, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"],
    )  # fmt: skip
    model, ids = DebertaV2ForMaskedLM(config), words(320, 2, 24)
    return model, lambda m: m(input_ids=ids, labels=ids).loss


def falcon(dtype: torch.dtype) -> Made:
    from transformers import FalconConfig

    config = FalconConfig(
        vocab_size=320, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, hidden_dropout=0.0, attention_dropout=0.0,
        alibi=False, multi_query=True, parallel_attn=True,
    )  # fmt: skip
    return causal(config, "FalconForCausalLM", dtype)


def phi(dtype: torch.dtype) -> Made:
    from transformers import PhiConfig

    config = PhiConfig(
        vocab_size=320, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        partial_rotary_factor=0.5, max_position_embeddings=64,
    )  # fmt: skip
    return causal(config, "PhiForCausalLM", dtype)


def deepseek(dtype: torch.dtype) -> Made:
    from transformers import DeepseekV3Config

    config = DeepseekV3Config(
        vocab_size=320, hidden_size=64, intermediate_size=128, moe_intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=2, n_group=2, topk_group=1,
        first_k_dense_replace=1, q_lora_rank=32, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16,
        max_position_embeddings=64,
    )  # fmt: skip
    return causal(config, "DeepseekV3ForCausalLM", dtype)


def dinov2(dtype: torch.dtype) -> Made:
    from transformers import Dinov2Config, Dinov2ForImageClassification

    config = Dinov2Config(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4, mlp_ratio=2, image_size=28, patch_size=7, num_labels=5,
        use_swiglu_ffn=True,
    )  # fmt: skip
    model, x, y = Dinov2ForImageClassification(config), torch.randn(2, 3, 28, 28).to(dtype), torch.tensor([1, 3])
    return model, lambda m: m(x, labels=y).loss


def regnet(dtype: torch.dtype) -> Made:
    from torchvision.models.regnet import BlockParams, RegNet

    return images(RegNet(BlockParams([1, 1], [16, 32], [8, 8], [1.0, 1.0], [2, 2], 0.25), num_classes=10, stem_width=16), dtype)


def shufflenet(dtype: torch.dtype) -> Made:
    from torchvision.models.shufflenetv2 import ShuffleNetV2

    return images(ShuffleNetV2([2, 2, 2], [16, 24, 32, 48, 64], num_classes=10), dtype, 64)


KINDS = {
    "bart": Kind(bart, "fresh"),
    "deberta": Kind(deberta, "fresh", "fused"),
    "falcon": Kind(falcon, "fresh"),
    "phi": Kind(phi, "fresh", "sgd"),
    "deepseek": Kind(deepseek, "fresh"),
    "dinov2": Kind(dinov2, "fresh"),
    "regnet": Kind(regnet, "fresh", "sgd"),
    "shufflenet": Kind(shufflenet, "fresh", "rmsprop"),
}
