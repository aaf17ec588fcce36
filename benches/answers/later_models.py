"""Models that came when the judge had been tried on all others: other mathematics in each. Faults, edits of the program, and sound pairs are dealt."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from models import Kind, Made, causal, images, words


def masked(model: torch.nn.Module, length: int = 24, batch: int = 2, **more: torch.Tensor) -> Made:
    ids = words(320, batch, length)
    return model, lambda m: m(input_ids=ids, labels=ids, **more).loss


def fnet(dtype: torch.dtype) -> Made:
    """Fourier transforms for attention."""
    from transformers import FNetConfig, FNetForMaskedLM

    config = FNetConfig(
        vocab_size=320, hidden_size=64, num_hidden_layers=2, intermediate_size=128, hidden_dropout_prob=0.0, max_position_embeddings=64
    )
    return masked(FNetForMaskedLM(config))


def nystromformer(dtype: torch.dtype) -> Made:
    """Attention through landmarks and an inverse found by iteration."""
    from transformers import NystromformerConfig, NystromformerForMaskedLM

    config = NystromformerConfig(
        vocab_size=320, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, segment_means_seq_len=32,
        num_landmarks=8, conv_kernel_size=5, inv_coeff_init_option=False, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        max_position_embeddings=64,
    )  # fmt: skip
    return masked(NystromformerForMaskedLM(config), 32)


def convbert(dtype: torch.dtype) -> Made:
    """Convolutions whose kernels are computed, beside attention."""
    from transformers import ConvBertConfig, ConvBertForMaskedLM

    config = ConvBertConfig(
        vocab_size=320, embedding_size=32, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, max_position_embeddings=64, conv_kernel_size=5, num_groups=2,
    )  # fmt: skip
    return masked(ConvBertForMaskedLM(config))


def xlnet(dtype: torch.dtype) -> Made:
    """Attention by relative positions that are shifted into place."""
    from transformers import XLNetConfig, XLNetLMHeadModel

    config = XLNetConfig(vocab_size=320, d_model=64, n_layer=2, n_head=4, d_inner=128, dropout=0.0)
    return masked(XLNetLMHeadModel(config), 20)


def modernbert(dtype: torch.dtype) -> Made:
    """Windows of attention between layers that see all, rotary embeddings of two bases, gated units."""
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    config = ModernBertConfig(
        vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=64,
        global_attn_every_n_layers=2, local_attention=8, attn_implementation="sdpa", pad_token_id=0, reference_compile=False,
        bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2,
    )  # fmt: skip
    return masked(ModernBertForMaskedLM(config))


def swinv2(dtype: torch.dtype) -> Made:
    """Attention by cosines with a learned temperature, and positions from a small network."""
    from torchvision.models.swin_transformer import PatchMergingV2, SwinTransformer, SwinTransformerBlockV2

    model = SwinTransformer(
        [4, 4], 32, [2, 2], [2, 4], [4, 4], num_classes=10, stochastic_depth_prob=0.0, block=SwinTransformerBlockV2,
        downsample_layer=PatchMergingV2,
    )  # fmt: skip
    return images(model, dtype, 32)


def gpt_oss(dtype: torch.dtype) -> Made:
    """Attention sinks, windows, and experts whose gates are clamped."""
    from transformers import GptOssConfig

    config = GptOssConfig(
        vocab_size=320, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=8, max_position_embeddings=64,
        attn_implementation="eager",
        rope_scaling={"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 16},
    )  # fmt: skip
    return causal(config, "GptOssForCausalLM", dtype, 24)


def qwen3_next(dtype: torch.dtype) -> Made:
    """Gated delta rules, which solve a triangle chunk by chunk, beside gated attention."""
    from transformers import Qwen3NextConfig

    config = Qwen3NextConfig(
        vocab_size=320, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4,
        moe_intermediate_size=32, shared_expert_intermediate_size=32, num_experts=4, num_experts_per_tok=2,
        layer_types=["linear_attention", "full_attention"], max_position_embeddings=64,
    )  # fmt: skip
    return causal(config, "Qwen3NextForCausalLM", dtype, 16)


def mamba2(dtype: torch.dtype) -> Made:
    """State spaces in chunks: cumulative sums and their exponentials."""
    from transformers import Mamba2Config

    config = Mamba2Config(
        vocab_size=320, hidden_size=32, num_heads=8, head_dim=8, state_size=8, n_groups=2, chunk_size=8, num_hidden_layers=2,
        rescale_prenorm_residual=False, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return causal(config, "Mamba2ForCausalLM", dtype, 16)


def fcos(dtype: torch.dtype) -> Made:
    """Detection: features of several sizes, one head for all, boxes matched with places, focal and overlap losses."""
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.models.detection.fcos import FCOS
    from torchvision.ops import FeaturePyramidNetwork

    class Features(torch.nn.Module):
        out_channels = 32

        def __init__(self) -> None:
            super().__init__()
            self.stem = torch.nn.Conv2d(3, 16, 3, 4, 1)
            self.next = torch.nn.Conv2d(16, 24, 3, 2, 1)
            self.pyramid = FeaturePyramidNetwork([16, 24], 32)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            fine = F.silu(self.stem(x))
            return self.pyramid({"0": fine, "1": F.silu(self.next(fine))})

    anchors = AnchorGenerator(((4,), (8,)), ((1.0,), (1.0,)))
    model = FCOS(Features(), 5, min_size=64, max_size=64, anchor_generator=anchors)
    x = torch.rand(2, 3, 64, 64).to(dtype)
    boxes = torch.tensor([[4.0, 6.0, 30.0, 34.0], [20.0, 10.0, 60.0, 44.0]])
    targets = [{"boxes": boxes + by, "labels": torch.tensor([1, 3])} for by in (0.0, 2.0)]
    return model, lambda m: sum(loss.float() for loss in m(list(x), targets).values())


def flow(dtype: torch.dtype) -> Made:
    """Optical flow: correlations of all pairs, looked up bilinearly by a recurrent cell that refines its own answer."""
    from torchvision.models.optical_flow.raft import BottleneckBlock, _raft

    model = _raft(
        feature_encoder_layers=(16, 16, 24, 32, 32), feature_encoder_block=BottleneckBlock,
        feature_encoder_norm_layer=torch.nn.InstanceNorm2d, context_encoder_layers=(16, 16, 24, 32, 64),
        context_encoder_block=BottleneckBlock, context_encoder_norm_layer=None, corr_block_num_levels=2, corr_block_radius=2,
        motion_encoder_corr_layers=(24,), motion_encoder_flow_layers=(16, 8), motion_encoder_out_channels=26,
        recurrent_block_hidden_state_size=32, recurrent_block_kernel_size=(3,), recurrent_block_padding=(1,),
        flow_head_hidden_size=32, use_mask_predictor=False,
    )  # fmt: skip
    a, b, true = torch.rand(1, 3, 128, 128).to(dtype), torch.rand(1, 3, 128, 128).to(dtype), torch.randn(1, 2, 128, 128)
    return model, lambda m: sum(0.8 ** (1 - i) * (f.float() - true).abs().mean() for i, f in enumerate(m(a, b, num_flow_updates=2)))


KINDS = {
    "convbert": Kind(convbert, "later"),
    "fcos": Kind(fcos, "later", "sgd"),
    "flow": Kind(flow, "later"),
    "fnet": Kind(fnet, "later", "adam"),
    "gpt_oss": Kind(gpt_oss, "later"),
    "mamba2": Kind(mamba2, "later"),
    "modernbert": Kind(modernbert, "later", "fused"),
    "nystromformer": Kind(nystromformer, "later"),
    "qwen3_next": Kind(qwen3_next, "later"),
    "swinv2": Kind(swinv2, "later", "rmsprop"),
    "xlnet": Kind(xlnet, "later", "adafactor"),
}
