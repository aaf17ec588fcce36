"""Every architecture of transformers that one table of sizes makes small: nobody chose them, and the judge was written without them."""

from __future__ import annotations

import inspect
import zlib
from typing import Any

import torch
from models import Kind, Made, words

NAME = "any-"
#: Sizes by the names that configurations give them.
SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "emb_dim", "embedding_size", "dim", "word_embed_proj_dim", "hidden_dim"), 64),
    **dict.fromkeys(("d_embed", "attention_hidden_size", "dim_model", "bottleneck_dim", "text_hidden_size", "w", "lru_width"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "num_blocks"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_encoder_attention_heads", "num_decoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "n_kv_heads", "multi_query_group_num"), 2),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim", "ffn_hidden_size"), 128),
    **dict.fromkeys(("dim_ff", "d_inner", "ffn_size", "feed_forward_size", "shared_expert_intermediate_size", "shared_intermediate_size"), 128),
    **dict.fromkeys(("moe_intermediate_size", "expert_ffn_hidden_size", "router_ffn_dim", "mlp_dim"), 48),
    **dict.fromkeys(("head_dim", "d_kv", "attention_head_size", "kv_channels", "v_head_dim", "qk_nope_head_dim", "dim_head"), 16),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 32),
    **dict.fromkeys(("qk_rope_head_dim", "rotary_dim"), 8),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "context_length", "max_sequence_length", "seq_length"), 64),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "num_selected_experts", "moe_k", "moe_topk", "top_k_experts"), 2),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts", "num_shared_experts", "first_k_dense_replace"), 1),
    "vocab_size": 320, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "image_size": 32,
    "patch_size": 8, "num_labels": 10, "mamba_d_state": 16, "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_ssm": 128,
    "state_size": 8, "time_step_rank": 8, "num_channels": 3, "layerdrop": 0.0, "attention_window_size": 16, "sliding_window": 16,
}  # fmt: skip
#: What an architecture needs beside the table.
ALSO: dict[str, dict[str, Any]] = {
    "audio-spectrogram-transformer": {"num_mel_bins": 32, "max_length": 64, "patch_size": 16},
    "bamba": {"attn_layer_indices": [1]},
    "big_bird": {"attention_type": "original_full"},
    "bigbird_pegasus": {"attention_type": "original_full"},
    "deepseek_v2": {"head_dim": 8},
    "deepseek_v3": {"head_dim": 8},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 8},
    "jamba": {"use_mamba_kernels": False, "attn_layer_period": 2, "attn_layer_offset": 1},
    "levit": {"hidden_sizes": [64, 96, 128], "num_attention_heads": [4, 4, 4], "depths": [1, 1, 1], "image_size": 64, "patch_size": 16},
    "longcat_flash": {"head_dim": 8},
    "longt5": {"decoder_start_token_id": 0},
    "luke": {"entity_vocab_size": 20},
    "mamba2": {"num_heads": 8, "head_dim": 16},
    "mobilebert": {"intra_bottleneck_size": 32, "true_hidden_size": 32},
    "mpt": {"max_seq_len": 64},
    "switch_transformers": {"decoder_start_token_id": 0},
    "t5": {"decoder_start_token_id": 0},
}  # fmt: skip
#: Those that the table leaves large, or that take minutes to make.
LARGE = frozenset((
    "bit", "blt", "clip", "convnext", "convnextv2", "cvt", "deepseek_v2", "donut-swin", "efficientnet", "focalnet", "gemma3",
    "git", "got_ocr2", "granite_speech", "hgnet_v2", "hiera", "luke", "metaclip_2", "mllama", "modernbert-decoder", "perceiver",
    "pvt", "qwen2_audio", "resnet", "roc_bert", "shieldgemma2", "siglip", "siglip2", "swin", "t5gemma", "textnet", "van",
    "voxtral",
))  # fmt: skip
SIDES = ("wav2vec2", "hubert", "wavlm", "sew", "sew-d", "unispeech", "unispeech-sat", "data2vec-audio", "wav2vec2-conformer")
OPTIMIZERS = ("adamw", "fused", "sgd", "adam", "rmsprop", "adafactor")


def configuration(name: str) -> Any:
    """A small configuration of the architecture `name`."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = CONFIG_MAPPING[name]
    options: dict[str, Any] = {}
    for parameter in inspect.signature(kind.__init__).parameters.values():
        if "drop" in parameter.name and isinstance(parameter.default, (int, float)):
            options[parameter.name] = 0.0
        # A size for each stage of a pyramid stays as it is, but for its number of layers.
        elif parameter.name in SIZES and not isinstance(parameter.default, (list, tuple, dict)):
            options[parameter.name] = SIZES[parameter.name]
        elif parameter.name == "depths":
            options["depths"] = [1] * len(parameter.default or [1, 1, 1, 1])
    if name in SIDES:
        options.update(conv_dim=(32, 32, 32), conv_stride=(5, 4, 4), conv_kernel=(10, 8, 4), num_feat_extract_layers=3, mask_time_prob=0.0)
    options.update(ALSO.get(name, {}))
    if name == "roformer" or name == "electra":
        options["embedding_size"] = 32
    return kind(**{**options, "use_cache": False, "attn_implementation": "eager"})


def heads() -> dict[str, tuple[str, str]]:
    """Name of each architecture: what it is given, and the class of its model."""
    from transformers.models.auto import modeling_auto as auto

    found: dict[str, tuple[str, str]] = {}
    for given, mapping in (
        ("ids", auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES), ("seq2seq", auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES),
        ("ids", auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES), ("pixels", auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES),
        ("audio", auto.MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES),
    ):  # fmt: skip
        for name, model in mapping.items():
            found[name] = (given, model if isinstance(model, str) else model[0])
    return found


def made(name: str, given: str, model: str, dtype: torch.dtype) -> Made:
    import transformers

    config = configuration(name)
    network = getattr(transformers, model)(config)
    if given == "pixels":
        size = config.image_size if isinstance(getattr(config, "image_size", None), int) else 64
        pixels, classes = torch.randn(4, 3, size, size).to(dtype), torch.randint(0, config.num_labels, (4,))
        return network, lambda m: m(pixel_values=pixels, labels=classes).loss
    if given == "audio":
        classes = torch.randint(0, config.num_labels, (2,))
        if name in SIDES:
            sound = torch.randn(2, 4000).to(dtype)
            return network, lambda m: m(input_values=sound, labels=classes).loss
        sound = torch.randn(2, 64, 32).to(dtype)
        return network, lambda m: m(input_values=sound, labels=classes).loss
    ids = words(300, 2, 24) + 3
    if given == "seq2seq":
        answer = words(300, 2, 12) + 3
        return network, lambda m: m(input_ids=ids, labels=answer).loss
    return network, lambda m: m(input_ids=ids, labels=ids).loss


def names(half: str) -> list[str]:
    """The architectures of the `first` half, of the `second`, or of both: which half, a checksum of the name says."""
    chosen = {"first": (0,), "second": (1,), "both": (0, 1)}[half]
    return [NAME + name for name in sorted(heads().keys() - LARGE) if zlib.crc32(name.encode()) // len(OPTIMIZERS) % 2 in chosen]


def kind(name: str) -> Kind:
    """`any-bamba` is the architecture `bamba`; its optimizer follows from its name."""
    short = name.removeprefix(NAME)
    given, model = heads()[short]
    chosen = OPTIMIZERS[zlib.crc32(short.encode()) % len(OPTIMIZERS)]
    return Kind(lambda dtype: made(short, given, model, dtype), "any", chosen)
