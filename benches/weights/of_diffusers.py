"""Conversions by diffusers of single files of others: an autoencoder, Flux and Stable Diffusion 3."""

from __future__ import annotations

from pathlib import Path

from pairs import Made, Size, conversion, drawn, file
from safetensors.torch import save_file
from sources import Sources

Shapes = dict[str, tuple[int, ...]]


def single_file() -> object:
    from diffusers.loaders import single_file_utils

    return single_file_utils


def linear(name: str, out: int, given: int) -> Shapes:
    return {f"{name}.weight": (out, given), f"{name}.bias": (out,)}


def convolution(name: str, out: int, given: int, kernel: int = 3) -> Shapes:
    return {f"{name}.weight": (out, given, kernel, kernel), f"{name}.bias": (out,)}


def norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def residual(name: str, given: int, out: int) -> Shapes:
    shapes = norm(f"{name}.norm1", given) | convolution(f"{name}.conv1", out, given) | norm(f"{name}.norm2", out) | convolution(f"{name}.conv2", out, out)
    return shapes if given == out else shapes | convolution(f"{name}.nin_shortcut", out, given, 1)


def middle(name: str, width: int) -> Shapes:
    shapes = residual(f"{name}.block_1", width, width) | residual(f"{name}.block_2", width, width) | norm(f"{name}.attn_1.norm", width)
    for part in ("q", "k", "v", "proj_out"):
        shapes |= convolution(f"{name}.attn_1.{part}", width, width, 1)
    return shapes


@conversion
def diffusers_autoencoder(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Blocks of the decoder are numbered the other way round, and attention by convolutions is attention by matrices."""
    from diffusers import AutoencoderKL

    widths = [32, 64, 64]
    shapes = convolution("encoder.conv_in", widths[0], 3) | convolution("decoder.conv_in", widths[-1], 4)
    given = widths[0]
    for level, width in enumerate(widths):
        for block in range(2):
            shapes |= residual(f"encoder.down.{level}.block.{block}", given if block == 0 else width, width)
        shapes |= {} if level == len(widths) - 1 else convolution(f"encoder.down.{level}.downsample.conv", width, width)
        given = width
    for level in reversed(range(len(widths))):
        for block in range(3):
            shapes |= residual(f"decoder.up.{level}.block.{block}", given if block == 0 else widths[level], widths[level])
        given = widths[level]
        shapes |= {} if level == 0 else convolution(f"decoder.up.{level}.upsample.conv", given, given)
    for side, last, out in (("encoder", widths[-1], 8), ("decoder", widths[0], 3)):
        shapes |= middle(f"{side}.mid", widths[-1]) | norm(f"{side}.norm_out", last) | convolution(f"{side}.conv_out", out, last)
    shapes |= convolution("quant_conv", 8, 8, 1) | convolution("post_quant_conv", 4, 4, 1)
    original = {f"first_stage_model.{name}": value for name, value in drawn(shapes, seed).items()}
    baseline = file({"state_dict": original, "global_step": 7}, folder / "model.ckpt.pt")
    described = {"down_block_types": ("DownEncoderBlock2D",) * 3, "up_block_types": ("UpDecoderBlock2D",) * 3, "block_out_channels": widths}
    described |= {"layers_per_block": 2, "norm_num_groups": 8}
    made = AutoencoderKL(**described)
    made.load_state_dict(single_file().convert_ldm_vae_checkpoint(original, described))
    made.save_pretrained(folder / "vae")
    hints = {"layer": r"(?:down|up)_blocks\.(\d+)\.", "norm": r"norm\d\.weight$", "keys": ("to_k.weight", "to_v.weight"), "table": ""}
    return Made("", baseline, folder / "vae", "safetensors", **hints)


@conversion
def diffusers_flux(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Q, K, V and the MLP of single blocks in one matrix, and shift before scale in the last norm."""
    width, inner, own = 24, 96, 3072
    shapes = linear("img_in", width, 16) | linear("txt_in", width, 32) | linear("final_layer.linear", 16, width)
    shapes |= linear("final_layer.adaLN_modulation.1", 2 * width, width)
    for name, given in (("time_in", 256), ("vector_in", 48)):
        shapes |= linear(f"{name}.in_layer", width, given) | linear(f"{name}.out_layer", width, width)
    for layer in range(size.layers // 2):
        for side in ("img", "txt"):
            at = f"double_blocks.{layer}.{side}_"
            shapes |= linear(f"{at}mod.lin", 6 * width, width) | linear(f"{at}attn.qkv", 3 * width, width) | linear(f"{at}attn.proj", width, width)
            shapes |= linear(f"{at}mlp.0", inner, width) | linear(f"{at}mlp.2", width, inner)
            shapes |= {f"{at}attn.norm.{part}_norm.scale": (width,) for part in ("query", "key")}
        # The rows of a single block are those of the real model: the converter knows no others.
        at = f"single_blocks.{layer}."
        shapes |= linear(f"{at}linear1", 7 * own, width) | linear(f"{at}linear2", width, 2 * width) | linear(f"{at}modulation.lin", 3 * width, width)
        shapes |= {f"{at}norm.{part}_norm.scale": (width,) for part in ("query", "key")}
    original = drawn(shapes, seed)
    (folder / "diffusers").mkdir(parents=True)
    save_file({f"model.diffusion_model.{name}": value for name, value in original.items()}, folder / "flux.safetensors")
    made = single_file().convert_flux_transformer_checkpoint_to_diffusers(original)
    save_file(made, folder / "diffusers" / "diffusion_pytorch_model.safetensors")
    hints = {"layer": r"^transformer_blocks\.(\d+)\.", "keys": ("to_k.weight", "to_v.weight"), "norm": r"norm_q\.weight$", "table": ""}
    return Made("", folder / "flux.safetensors", folder / "diffusers", "safetensors", **hints)


@conversion
def diffusers_sd3(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Q, K and V of two streams split, scale and shift exchanged in the last block, in float16."""
    width = size.width
    shapes: Shapes = {"pos_embed": (1, 64, width), **convolution("x_embedder.proj", width, 16, 2), **linear("context_embedder", width, 40)}
    shapes |= linear("final_layer.linear", 64, width) | linear("final_layer.adaLN_modulation.1", 2 * width, width)
    for name, given in (("t_embedder", 256), ("y_embedder", 48)):
        shapes |= linear(f"{name}.mlp.0", width, given) | linear(f"{name}.mlp.2", width, width)
    for layer in range(size.layers):
        last = layer == size.layers - 1
        for side in ("x", "context"):
            at = f"joint_blocks.{layer}.{side}_block."
            ends = last and side == "context"
            shapes |= linear(f"{at}attn.qkv", 3 * width, width) | linear(f"{at}adaLN_modulation.1", (2 if ends else 6) * width, width)
            if not ends:
                shapes |= linear(f"{at}attn.proj", width, width) | linear(f"{at}mlp.fc1", size.inner, width) | linear(f"{at}mlp.fc2", width, size.inner)
    original = {name: value.half() for name, value in drawn(shapes, seed).items()}
    (folder / "diffusers").mkdir(parents=True)
    save_file({f"model.diffusion_model.{name}": value for name, value in original.items()}, folder / "sd3.safetensors")
    made = single_file().convert_sd3_transformer_checkpoint_to_diffusers(original)
    save_file(made, folder / "diffusers" / "diffusion_pytorch_model.safetensors")
    hints = {"layer": r"^transformer_blocks\.(\d+)\.", "keys": ("to_k.weight", "to_v.weight"), "norm": "", "table": ""}
    return Made("", folder / "sd3.safetensors", folder / "diffusers", "safetensors", **hints)
