"""Further public models, of which a short deal is made: more kinds of op and more sound pairs for the same time."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from models import Kind, Made, causal, images, words


def opt(dtype: torch.dtype) -> Made:
    from transformers import OPTConfig

    config = OPTConfig(
        vocab_size=320, hidden_size=96, word_embed_proj_dim=96, ffn_dim=256, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=128, dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    return causal(config, "OPTForCausalLM", dtype)


def mixtral(dtype: torch.dtype) -> Made:
    from transformers import MixtralConfig

    config = MixtralConfig(
        vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=128,
    )  # fmt: skip
    return causal(config, "MixtralForCausalLM", dtype)


def neox(dtype: torch.dtype) -> Made:
    from transformers import GPTNeoXConfig

    config = GPTNeoXConfig(
        vocab_size=320, hidden_size=96, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=128, hidden_dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    return causal(config, "GPTNeoXForCausalLM", dtype)


def bloom(dtype: torch.dtype) -> Made:
    from transformers import BloomConfig

    config = BloomConfig(vocab_size=320, hidden_size=64, n_layer=2, n_head=4, hidden_dropout=0.0, attention_dropout=0.0)
    return causal(config, "BloomForCausalLM", dtype)


def mamba(dtype: torch.dtype) -> Made:
    from transformers import MambaConfig

    config = MambaConfig(vocab_size=320, hidden_size=48, state_size=8, num_hidden_layers=2, time_step_rank=4)
    return causal(config, "MambaForCausalLM", dtype, length=12)


def albert(dtype: torch.dtype) -> Made:
    from transformers import AlbertConfig, AlbertForMaskedLM

    config = AlbertConfig(
        vocab_size=320, embedding_size=48, hidden_size=96, num_hidden_layers=3, num_attention_heads=4, intermediate_size=192,
        max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model, ids = AlbertForMaskedLM(config), words(320, 2, 32)
    return model, lambda m: m(input_ids=ids, labels=ids).loss


def wav2vec2(dtype: torch.dtype) -> Made:
    from transformers import Wav2Vec2Config, Wav2Vec2ForSequenceClassification

    config = Wav2Vec2Config(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, conv_dim=(32, 32), conv_stride=(5, 4),
        conv_kernel=(10, 4), num_feat_extract_layers=2, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
        hidden_dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, feat_proj_dropout=0.0, layerdrop=0.0,
        mask_time_prob=0.0, classifier_proj_size=32, num_labels=4,
    )  # fmt: skip
    model, x, y = Wav2Vec2ForSequenceClassification(config), torch.randn(2, 1600).to(dtype), torch.tensor([1, 3])
    return model, lambda m: m(x, labels=y).loss


def segformer(dtype: torch.dtype) -> Made:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(
        num_encoder_blocks=2, depths=[1, 1], sr_ratios=[4, 2], hidden_sizes=[16, 32], patch_sizes=[7, 3], strides=[4, 2],
        num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=32, num_labels=5, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, classifier_dropout_prob=0.0, drop_path_rate=0.0,
    )  # fmt: skip
    model = SegformerForSemanticSegmentation(config)
    x, y = torch.randn(2, 3, 32, 32).to(dtype), torch.randint(0, 5, (2, 32, 32))
    return model, lambda m: m(x, labels=y).loss


def densenet(dtype: torch.dtype) -> Made:
    from torchvision.models.densenet import DenseNet

    model = DenseNet(growth_rate=8, block_config=(2, 2), num_init_features=16, num_classes=10)
    return images(model, dtype)


def vae(dtype: torch.dtype) -> Made:
    from diffusers import AutoencoderKL

    model = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, block_out_channels=(16, 32),
        layers_per_block=1, latent_channels=4, norm_num_groups=8, sample_size=16,
    )  # fmt: skip
    x = torch.randn(2, 3, 16, 16).to(dtype)
    return model, lambda m: F.mse_loss(m(x).sample.float(), x.float())


KINDS = {
    "opt": Kind(opt, "wide"),
    "mixtral": Kind(mixtral, "wide"),
    "neox": Kind(neox, "wide", "fused"),
    "bloom": Kind(bloom, "wide"),
    "mamba": Kind(mamba, "wide"),
    "albert": Kind(albert, "wide", "adafactor"),
    "wav2vec2": Kind(wav2vec2, "wide"),
    "segformer": Kind(segformer, "wide", "sgd"),
    "densenet": Kind(densenet, "wide", "sgd"),
    "vae": Kind(vae, "wide"),
}
