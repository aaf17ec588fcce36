"""Conversions by transformers: its own formats, and its scripts for checkpoints of others."""

from __future__ import annotations

import json
import types
from pathlib import Path

import torch
from pairs import Made, Size, conversion, drawn, file, fill, model, saved
from sources import Sources

LLAMA = {"rotary": r"(q|k)_proj\.weight$", "heads": r"(q|k|v)_proj\.weight$", "gate": ("gate_proj", "up_proj"), "keys": ("k_proj", "v_proj")}


def config(size: Size, kind: str = "LlamaConfig", **more: object) -> object:
    import transformers

    return getattr(transformers, kind)(
        **{
            "hidden_size": size.width,
            "intermediate_size": size.inner,
            "num_hidden_layers": size.layers,
            "num_attention_heads": size.heads,
            "num_key_value_heads": size.groups,
            "head_dim": size.head,
            "vocab_size": size.words,
            "tie_word_embeddings": False,
            **more,
        }
    )


@conversion
def transformers_shards(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """`save_pretrained` in float32, and in bfloat16 in several shards."""
    made = model(config(size), "LlamaForCausalLM", seed)
    baseline = saved(made, folder / "one")
    candidate = saved(made.bfloat16(), folder / "shards", max_shard_size="150KB")
    return Made("", baseline, candidate, "safetensors", head=size.head, **LLAMA)


@conversion
def transformers_tied(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """A state dict with tied embeddings, and what `save_pretrained` keeps of it after it was loaded."""
    from transformers import Qwen2ForCausalLM

    made = model(config(size, "Qwen2Config", tie_word_embeddings=True), "Qwen2ForCausalLM", seed)
    baseline = file(made.state_dict(), folder / "state.pt")
    saved(made, folder / "first")
    candidate = saved(Qwen2ForCausalLM.from_pretrained(folder / "first"), folder / "again")
    return Made("", baseline, candidate, "safetensors", head=size.head, **LLAMA)


def meta(size: Size, seed: int, of: int = 1) -> list[dict[str, torch.Tensor]]:
    """The shards of a Llama in the names of Meta."""
    rows = {"attention.wq": size.width, "attention.wk": size.groups * size.head, "attention.wv": size.groups * size.head}
    rows |= {"feed_forward.w1": size.inner, "feed_forward.w3": size.inner}
    shapes = {"tok_embeddings.weight": (size.words, size.width), "norm.weight": (size.width,), "output.weight": (size.words, size.width)}
    for layer in range(size.layers):
        at = f"layers.{layer}."
        shapes |= {f"{at}{name}.weight": (count, size.width) for name, count in rows.items()}
        shapes |= {f"{at}attention.wo.weight": (size.width, size.width), f"{at}feed_forward.w2.weight": (size.width, size.inner)}
        shapes |= {f"{at}attention_norm.weight": (size.width,), f"{at}ffn_norm.weight": (size.width,)}
    whole = drawn(shapes, seed)
    dimension = {name: 1 if any(part in name for part in ("tok_embeddings", ".wo.", ".w2.")) else 0 for name in whole}
    return [{n: v if v.ndim == 1 else v.chunk(of, dimension[n])[rank].clone() for n, v in whole.items()} for rank in range(of)]


def from_meta(sources: Sources, size: Size, folder: Path, seed: int, of: int) -> Made:
    script = sources.script("llama/convert_llama_weights_to_hf.py")
    for rank, shard in enumerate(meta(size, seed, of)):
        file(shard, folder / "meta" / f"consolidated.{rank:02d}.pth")
    described = {"n_layers": size.layers, "n_heads": size.heads, "n_kv_heads": size.groups, "dim": size.width, "norm_eps": 1e-5, "multiple_of": 32}
    described["ffn_dim_multiplier"] = size.inner / int(8 * size.width / 3)
    (folder / "meta" / "params.json").write_text(json.dumps(described))
    script.compute_intermediate_size = lambda *_: size.inner
    script.write_model(folder / "hf", str(folder / "meta"), llama_version="1", vocab_size=size.words, num_shards=of)
    baseline = folder / "meta" / "consolidated.00.pth" if of == 1 else folder / "meta"
    return Made("", baseline, folder / "hf", "safetensors", head=size.head, **LLAMA)


@conversion
def llama_of_meta(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    return from_meta(sources, size, folder, seed, 1)


@conversion
def llama_of_meta_in_two_shards(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    return from_meta(sources, size, folder, seed, 2)


@conversion
def mixtral_of_mistral(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Experts in one tensor each of w1, w2 and w3, spread over eight files, and w2 transposed."""
    script = sources.script("mixtral/convert_mixtral_weights_to_hf.py")
    [whole] = meta(size, seed)
    whole = {name: value for name, value in whole.items() if "feed_forward" not in name}
    shapes = {}
    for layer in range(size.layers):
        moe = f"layers.{layer}.block_sparse_moe."
        shapes |= {f"{moe}{name}": (size.experts * size.inner, size.width) for name in ("w1", "w2", "w3")}
        shapes[f"{moe}gate.weight"] = (size.experts, size.width)
    whole |= drawn(shapes, seed + 1)
    names = list(whole)
    for rank in range(8):
        file({name: whole[name] for name in names[rank::8]}, folder / "mistral" / f"consolidated.{rank:02d}.pt")
    described = {"num_hidden_layers": size.layers, "num_attention_heads": size.heads, "num_key_value_heads": size.groups}
    described |= {"hidden_size": size.width, "num_local_experts": size.experts, "intermediate_size": size.inner, "vocab_size": size.words, "rms_norm_eps": 1e-5}
    (folder / "mistral" / "params.json").write_text(json.dumps(described))
    script.write_model(folder / "hf", folder / "mistral", "7B")
    hints = {**LLAMA, "gate": (".w1.", ".w3."), "expert": r"experts\.(\d+)\."}
    return Made("", folder / "mistral", folder / "hf", "safetensors", head=size.head, **hints)


@conversion
def opt_of_metaseq(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """K, V and Q in one tensor, in this order, against three, in float16."""
    script = sources.script("opt/convert_opt_original_pytorch_checkpoint_to_pytorch.py")
    import transformers

    settings = {"hidden_size": size.width, "ffn_dim": size.inner, "num_hidden_layers": size.layers, "num_attention_heads": size.heads}
    described = transformers.OPTConfig(**settings, vocab_size=size.words, word_embed_proj_dim=size.width, max_position_embeddings=64)
    described.save_pretrained(folder / "config")
    original = {}
    for name, value in model(described, "OPTModel", seed).half().state_dict().items():
        original[name.replace("decoder.final_layer_norm", "decoder.layer_norm")] = value
    for layer in range(size.layers):
        for kind in ("weight", "bias"):
            at = f"decoder.layers.{layer}.self_attn."
            original[f"{at}qkv_proj.{kind}"] = torch.cat([original.pop(f"{at}{part}_proj.{kind}") for part in "kvq"])
    baseline = file({"model": original, "args": {"arch": "transformer_lm"}}, folder / "restored.pt")
    script.convert_opt_checkpoint(str(baseline), folder / "hf", str(folder / "config"))
    hints = {"heads": LLAMA["heads"], "keys": LLAMA["keys"], "norm": r"layer_norm\.weight$"}
    return Made("", baseline, folder / "hf", "safetensors", head=size.head, **hints)


@conversion
def gpt2_of_megatron(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Q, K and V of every head together against one after the other, all matrices transposed."""
    script = sources.script("megatron_gpt2/convert_megatron_gpt2_checkpoint.py")
    import transformers

    shapes = {}
    for layer in range(size.layers):
        matrices = {"self_attention.query_key_value": (3 * size.width, size.width), "self_attention.dense": (size.width, size.width)}
        matrices |= {"mlp.dense_h_to_4h": (size.inner, size.width), "mlp.dense_4h_to_h": (size.width, size.inner)}
        matrices |= {"input_layernorm": (size.width,), "post_attention_layernorm": (size.width,)}
        for name, shape in matrices.items():
            shapes |= {f"layers.{layer}.{name}.weight": shape, f"layers.{layer}.{name}.bias": shape[:1]}
    encoder = drawn(shapes | {"final_layernorm.weight": (size.width,), "final_layernorm.bias": (size.width,)}, seed)
    tables = drawn({"word": (size.words, size.width), "position": (64, size.width)}, seed + 1)
    embedding = {"word_embeddings": {"weight": tables["word"]}, "position_embeddings": {"weight": tables["position"]}}
    state = {"model": {"language_model": {"embedding": embedding, "encoder": encoder}}, "checkpoint_version": 3.0, "iteration": 10}
    baseline = file(state, folder / "megatron" / "mp_rank_00" / "model_optim_rng.pt").parent.parent
    described = transformers.GPT2Config(vocab_size=size.words, n_positions=64, n_embd=size.width, n_layer=size.layers, n_head=size.heads, n_inner=size.inner)
    converted = script.convert_megatron_checkpoint(types.SimpleNamespace(), state, described)
    candidate = file(converted, folder / "gpt2.pt")
    return Made("", baseline, candidate, "torch", head=size.head, layer=r"h\.(\d+)\.", norm=r"ln_.\.weight$")


@conversion
def whisper_of_openai(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Encoder and decoder, and an output layer that is the table of embeddings."""
    script = sources.script("whisper/convert_openai_to_hf.py")
    import transformers

    def block(at: str, cross: bool) -> dict[str, tuple[int, ...]]:
        square, vector = (size.width, size.width), (size.width,)
        shapes = {}
        for attention in ("attn", "cross_attn") if cross else ("attn",):
            for part in ("query", "key", "value", "out"):
                shapes[f"{at}{attention}.{part}.weight"] = square
                shapes |= {f"{at}{attention}.{part}.bias": vector} if part != "key" else {}
            shapes |= {f"{at}{attention}_ln.weight": vector, f"{at}{attention}_ln.bias": vector}
        shapes |= {f"{at}mlp.0.weight": (size.inner, size.width), f"{at}mlp.0.bias": (size.inner,)}
        shapes |= {f"{at}mlp.2.weight": (size.width, size.inner), f"{at}mlp.2.bias": vector}
        return shapes | {f"{at}mlp_ln.weight": vector, f"{at}mlp_ln.bias": vector}

    shapes = {"encoder.conv1.weight": (size.width, 80, 3), "encoder.conv1.bias": (size.width,)}
    shapes |= {"encoder.conv2.weight": (size.width, size.width, 3), "encoder.conv2.bias": (size.width,)}
    shapes |= {"encoder.positional_embedding": (40, size.width), "decoder.positional_embedding": (32, size.width)}
    for side, norm in (("encoder", "ln_post"), ("decoder", "ln")):
        for layer in range(size.layers):
            shapes |= block(f"{side}.blocks.{layer}.", side == "decoder")
        shapes |= {f"{side}.{norm}.weight": (size.width,), f"{side}.{norm}.bias": (size.width,)}
    shapes["decoder.token_embedding.weight"] = (size.words, size.width)
    dims = {"n_vocab": size.words, "n_mels": 80, "n_audio_state": size.width, "n_text_ctx": 32, "n_audio_layer": size.layers}
    dims |= {"n_audio_head": size.heads, "n_text_layer": size.layers, "n_text_head": size.heads, "n_audio_ctx": 40}
    baseline = file({"dims": dims, "model_state_dict": drawn(shapes, seed)}, folder / "tiny.pt")
    script._get_generation_config = lambda *_: transformers.GenerationConfig()
    # The identifiers of the real vocabulary lie outside a small one.
    real = script.WhisperConfig
    script.WhisperConfig = lambda **given: real(**{**given, **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 0)})
    made, *_ = script.convert_openai_whisper_to_tfms(str(baseline), str(folder / "hf"))
    candidate = saved(made, folder / "hf")
    hints = {"heads": r"(q|k|v)_proj\.weight$", "keys": ("k_proj.weight", "v_proj.weight"), "layer": r"(?:en|de)coder\.layers\.(\d+)\."}
    return Made("", baseline, candidate, "safetensors", head=size.head, **hints)


@conversion
def vit_of_timm(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Q, K and V in one matrix and bias against three."""
    timm = sources.timm()
    script = sources.script("vit/convert_vit_timm_to_pytorch.py")
    import transformers

    settings = {"img_size": 32, "patch_size": 8, "embed_dim": size.width, "depth": size.layers, "num_heads": size.heads, "num_classes": 10}
    made = timm.models.vision_transformer.VisionTransformer(**settings, mlp_ratio=2)
    state = fill(made.state_dict(), seed)
    baseline = file(dict(state), folder / "timm.pt")
    described = transformers.ViTConfig(
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=2 * size.width,
        image_size=32,
        patch_size=8,
        num_labels=10,
    )
    state = dict(state)
    for old, new in script.create_rename_keys(described):
        script.rename_key(state, old, new)
    script.read_in_q_k_v(state, described)
    converted = transformers.ViTForImageClassification(described)
    converted.load_state_dict(state)
    candidate = saved(converted, folder / "hf")
    hints = {"heads": r"(query|key|value)\.weight$", "keys": ("attention.key", "attention.value"), "layer": r"layer\.(\d+)\.", "norm": r"layernorm.*weight$"}
    return Made("", baseline, candidate, "safetensors", head=size.head, **hints)
