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


def convnextv2(dtype: torch.dtype) -> Made:
    """Convolutions by channel, and responses divided by the mean of all channels."""
    from transformers import ConvNextV2Config, ConvNextV2ForImageClassification

    config = ConvNextV2Config(hidden_sizes=[16, 32], depths=[2, 1], num_stages=2, drop_path_rate=0.0, image_size=32, num_labels=10)
    model, x, y = ConvNextV2ForImageClassification(config), torch.randn(4, 3, 32, 32).to(dtype), torch.randint(0, 10, (4,))
    return model, lambda m: F.cross_entropy(m(pixel_values=x).logits.float(), y)


def mobilevit(dtype: torch.dtype) -> Made:
    """Attention among the same places of all patches, between convolutions."""
    from transformers import MobileViTConfig, MobileViTForImageClassification

    config = MobileViTConfig(
        image_size=64, hidden_sizes=[24, 32, 40], neck_hidden_sizes=[8, 16, 16, 24, 24, 32, 48], num_attention_heads=4,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, classifier_dropout_prob=0.0, num_labels=10, mlp_ratio=2.0,
    )  # fmt: skip
    model, x, y = MobileViTForImageClassification(config), torch.randn(2, 3, 64, 64).to(dtype), torch.randint(0, 10, (2,))
    return model, lambda m: F.cross_entropy(m(pixel_values=x).logits.float(), y)


def autoformer(dtype: torch.dtype) -> Made:
    """Series split into trend and seasons, and joined by the lags at which they repeat, found by Fourier transforms."""
    from transformers import AutoformerConfig, AutoformerForPrediction

    config = AutoformerConfig(
        prediction_length=8, context_length=16, lags_sequence=[1, 2, 3], num_time_features=1, d_model=32, encoder_layers=1,
        decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, dropout=0.0,
        attention_dropout=0.0, activation_dropout=0.0, encoder_layerdrop=0.0, decoder_layerdrop=0.0, label_length=4, moving_average=5,
        autocorrelation_factor=1,
    )  # fmt: skip
    model = AutoformerForPrediction(config)
    past, future = torch.randn(4, 19).cumsum(1).to(dtype), torch.randn(4, 8).to(dtype)
    given = {"past_time_features": torch.rand(4, 19, 1).to(dtype), "future_time_features": torch.rand(4, 8, 1).to(dtype)}
    seen = torch.ones(4, 19).to(dtype)
    return model, lambda m: m(past_values=past, past_observed_mask=seen, future_values=future, **given).loss


def encodec(dtype: torch.dtype) -> Made:
    """Sound: convolutions whose weights have a norm of their own, and a recurrent layer, without the quantiser."""
    from transformers import EncodecConfig, EncodecModel

    config = EncodecConfig(
        num_filters=4, hidden_size=16, upsampling_ratios=[4, 2], num_lstm_layers=1, kernel_size=5, codebook_size=16, codebook_dim=16,
        sampling_rate=800, chunk_length_s=None, overlap=None,
    )  # fmt: skip
    whole = EncodecModel(config)
    model, x = torch.nn.Sequential(whole.encoder, whole.decoder), torch.randn(2, 1, 160).to(dtype)
    return model, lambda m: F.l1_loss(m(x).float(), x.float())


def mixer(dtype: torch.dtype) -> Made:
    """Series in patches, mixed along time, channels and features, with gates."""
    from transformers import PatchTSMixerConfig, PatchTSMixerForPrediction

    config = PatchTSMixerConfig(
        context_length=32, patch_length=8, num_input_channels=3, patch_stride=4, d_model=16, num_layers=2, dropout=0.0, head_dropout=0.0,
        prediction_length=8, mode="mix_channel", gated_attn=True, self_attn=True, self_attn_heads=2, scaling="std",
    )  # fmt: skip
    model = PatchTSMixerForPrediction(config)
    past, future = torch.randn(4, 32, 3).to(dtype), torch.randn(4, 8, 3).to(dtype)
    return model, lambda m: m(past_values=past, future_values=future).loss


def longformer(dtype: torch.dtype) -> Made:
    """Windows of attention cut out by strides, and tokens that see all."""
    from transformers import LongformerConfig, LongformerForMaskedLM

    config = LongformerConfig(
        vocab_size=320, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, attention_window=8,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, max_position_embeddings=66,
    )  # fmt: skip
    everywhere = torch.zeros(2, 32, dtype=torch.long)
    everywhere[:, 0] = 1
    return masked(LongformerForMaskedLM(config), 32, global_attention_mask=everywhere)


def diffllama(dtype: torch.dtype) -> Made:
    """The difference of two attentions, with a learned factor."""
    from transformers import DiffLlamaConfig

    config = DiffLlamaConfig(
        vocab_size=320, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, attn_implementation="eager",
    )  # fmt: skip
    return causal(config, "DiffLlamaForCausalLM", dtype, 24)


def nemotron(dtype: torch.dtype) -> Made:
    """Squares of rectified values, and norms around one."""
    from transformers import NemotronConfig

    config = NemotronConfig(
        vocab_size=320, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, head_dim=16,
    )  # fmt: skip
    return causal(config, "NemotronForCausalLM", dtype, 24)


def maxvit(dtype: torch.dtype) -> Made:
    """Attention in blocks and in grids, with tables of relative positions, behind gated convolutions."""
    from torchvision.models.maxvit import MaxVit

    model = MaxVit((32, 32), 16, 4, [16, 32], [1, 1], 16, 0.0, num_classes=10)
    return images(model, dtype, 32)


def video(dtype: torch.dtype) -> Made:
    """Convolutions over time and space, apart."""
    from torchvision.models.video.resnet import BasicBlock, Conv2Plus1D, R2Plus1dStem, VideoResNet

    model = VideoResNet(BasicBlock, [Conv2Plus1D] * 4, [1, 1, 1, 1], R2Plus1dStem, num_classes=10)
    model.layer2, model.layer3, model.layer4, model.fc = (*[torch.nn.Identity()] * 3, torch.nn.Linear(64, 10))
    x, y = torch.randn(2, 3, 4, 16, 16).to(dtype), torch.randint(0, 10, (2,))
    return model, lambda m: F.cross_entropy(m(x).float(), y)


def ssd(dtype: torch.dtype) -> Made:
    """Detection that learns from the worst of the places without an object."""
    from torchvision.models.detection.anchor_utils import DefaultBoxGenerator
    from torchvision.models.detection.ssd import SSD

    class Features(torch.nn.Module):
        out_channels = [16, 24]

        def __init__(self) -> None:
            super().__init__()
            self.stem = torch.nn.Conv2d(3, 16, 3, 8, 1)
            self.next = torch.nn.Conv2d(16, 24, 3, 2, 1)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            fine = F.relu(self.stem(x))
            return {"0": fine, "1": F.relu(self.next(fine))}

    model = SSD(Features(), DefaultBoxGenerator([[2], [2]], steps=[8, 16]), (64, 64), 5)
    x = torch.rand(2, 3, 64, 64).to(dtype)
    boxes = torch.tensor([[4.0, 6.0, 30.0, 34.0], [20.0, 10.0, 60.0, 44.0]])
    targets = [{"boxes": boxes + by, "labels": torch.tensor([1, 3])} for by in (0.0, 2.0)]
    return model, lambda m: sum(loss.float() for loss in m(list(x), targets).values())


KINDS = {
    "autoformer": Kind(autoformer, "later"),
    "convbert": Kind(convbert, "later"),
    "convnextv2": Kind(convnextv2, "later"),
    "diffllama": Kind(diffllama, "later", "fused"),
    "encodec": Kind(encodec, "later"),
    "fcos": Kind(fcos, "later", "sgd"),
    "flow": Kind(flow, "later"),
    "fnet": Kind(fnet, "later", "adam"),
    "gpt_oss": Kind(gpt_oss, "later"),
    "longformer": Kind(longformer, "later"),
    "mamba2": Kind(mamba2, "later"),
    "maxvit": Kind(maxvit, "later", "rmsprop"),
    "mixer": Kind(mixer, "later", "nadam"),
    "mobilevit": Kind(mobilevit, "later", "sgd"),
    "modernbert": Kind(modernbert, "later", "fused"),
    "nemotron": Kind(nemotron, "later", "adafactor"),
    "nystromformer": Kind(nystromformer, "later"),
    "qwen3_next": Kind(qwen3_next, "later"),
    "ssd": Kind(ssd, "later"),
    "swinv2": Kind(swinv2, "later", "rmsprop"),
    "video": Kind(video, "later", "sgd"),
    "xlnet": Kind(xlnet, "later", "adafactor"),
}
