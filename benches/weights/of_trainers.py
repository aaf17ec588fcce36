"""Conversions between Hugging Face and the trainers torchtune, litgpt and Megatron (by mbridge)."""

from __future__ import annotations

import types
from pathlib import Path

import torch
from of_transformers import LLAMA, config
from pairs import Made, Parts, Size, Weights, conversion, file, model, ranks, saved
from sources import Sources

TUNE = {"rotary": r"(q|k)_proj\.weight$", "heads": r"(q|k|v)_proj\.weight$", "gate": ("w1", "w3"), "keys": ("k_proj", "v_proj"), "norm": r"norm\.scale$"}


def huggingface(size: Size, folder: Path, seed: int, kind: str = "Llama", **more: object) -> tuple[Path, Weights, object]:
    described = config(size, f"{kind}Config", **more)
    made = model(described, f"{kind}ForCausalLM", seed)
    return saved(made, folder / "hf"), dict(made.state_dict()), described


def heads(size: Size) -> dict[str, int]:
    return {"num_heads": size.heads, "num_kv_heads": size.groups, "dim": size.width}


@conversion
def torchtune_llama(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Q and K for interleaved rotary embeddings."""
    baseline, state, _ = huggingface(size, folder, seed)
    made = sources.torchtune("convert_weights").hf_to_tune(state, **heads(size))
    return Made("", baseline, file(made, folder / "tune.pt"), "torch", head=size.head, **TUNE)


@conversion
def torchtune_llama_back(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """The way back, trained in bfloat16 and written in float32."""
    _, state, _ = huggingface(size, folder, seed)
    module = sources.torchtune("convert_weights")
    tune = {name: value.bfloat16().float() for name, value in module.hf_to_tune(state, **heads(size)).items()}
    baseline = file(tune, folder / "tune.pt")
    return Made("", baseline, file(module.tune_to_hf(tune, **heads(size)), folder / "back.bin"), "torch", head=size.head, **LLAMA)


@conversion
def torchtune_phi3(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Q, K and V, and gate and up, split."""
    baseline, state, _ = huggingface(size, folder, seed, "Phi3", pad_token_id=0)
    made = sources.torchtune("phi3._convert_weights").phi3_hf_to_tune(state, **heads(size))
    return Made("", baseline, file(made, folder / "tune.pt"), "torch", head=size.head, **TUNE)


@conversion
def torchtune_phi3_back(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Q, K and V, and gate and up, joined, in bfloat16."""
    _, state, _ = huggingface(size, folder, seed, "Phi3", pad_token_id=0)
    module = sources.torchtune("phi3._convert_weights")
    tune = module.phi3_hf_to_tune(state, **heads(size))
    made = {name: value.bfloat16() for name, value in module.phi3_tune_to_hf(tune).items()}
    rows = (size.width, size.groups * size.head, size.groups * size.head)
    hints = {"fused": (r"qkv_proj\.weight$", 1, rows), "joined": r"gate_up_proj\.weight$"}
    return Made("", file(tune, folder / "tune.pt"), file(made, folder / "phi3.bin"), "torch", head=size.head, **hints)


@conversion
def torchtune_gemma2(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Four norms in each layer, and tied embeddings in bfloat16."""
    baseline, state, _ = huggingface(size, folder, seed, "Gemma2", tie_word_embeddings=True)
    state = {name: value.bfloat16() for name, value in state.items() if name != "lm_head.weight"}
    made = sources.torchtune("gemma2._convert_weights").gemma2_hf_to_tune(state, **heads(size), head_dim=size.head)
    return Made("", baseline, file(made, folder / "tune.pt"), "torch", head=size.head, **TUNE | {"norm": r"sa_(norm|scale)\.scale$"})


def lit(sources: Sources, size: Size, **more: object) -> object:
    _, kind = sources.litgpt("convert_hf_checkpoint")
    given = {"n_layer": size.layers, "n_head": size.heads, "n_query_groups": size.groups, "head_size": size.head, "n_embd": size.width}
    given |= {"intermediate_size": size.inner, "padded_vocab_size": size.words, "vocab_size": size.words, "mlp_class_name": "LLaMAMLP"}
    return kind(**given | more)


LIT = {"gate": ("fc_1", "fc_2"), "layer": r"\.h\.(\d+)\.", "norm": r"norm_\d\.weight$"}


def rows(size: Size) -> tuple[int, int, int]:
    return size.width, size.groups * size.head, size.groups * size.head


@conversion
def litgpt_llama(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Q, K and V one after the other, in bfloat16."""
    module, _ = sources.litgpt("convert_hf_checkpoint")
    baseline, state, _ = huggingface(size, folder, seed)
    made: Weights = {}
    module.copy_weights_hf_llama(lit(sources, size), {}, made, state, dtype=torch.bfloat16)
    hints = LIT | {"fused": (r"attn\.qkv\.weight$", 1, rows(size))}
    return Made("", baseline, file(made, folder / "lit_model.pth"), "torch", head=size.head, **hints)


@conversion
def litgpt_neox(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Q, K and V of each head together in GPT-NeoX, and one after the other in litgpt."""
    module, _ = sources.litgpt("convert_hf_checkpoint")
    baseline, state, _ = huggingface(size, folder, seed, "GPTNeoX", rotary_pct=0.25)
    made: Weights = {}
    module.copy_weights_gpt_neox(lit(sources, size, n_query_groups=size.heads, mlp_class_name="GptNeoxMLP"), made, state)
    hints = {"layer": LIT["layer"], "norm": LIT["norm"], "fused": (r"attn\.qkv\.weight$", 1, (size.width,) * 3)}
    return Made("", baseline, file(made, folder / "lit_model.pt"), "torch", head=size.head, **hints)


@conversion
def litgpt_neox_back(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """The way back: Q, K and V of each head together."""
    module, _ = sources.litgpt("convert_hf_checkpoint")
    _, state, _ = huggingface(size, folder, seed, "GPTNeoX", rotary_pct=0.25)
    described = lit(sources, size, n_query_groups=size.heads, mlp_class_name="GptNeoxMLP")
    made: Weights = {}
    module.copy_weights_gpt_neox(described, made, state)
    back: Weights = {}
    sources.litgpt("convert_lit_checkpoint")[0].copy_weights_gpt_neox(described, back, made)
    hints = {"norm": r"layernorm\.weight$", "table": r"embed_in\.weight$", "fused": (r"query_key_value\.weight$", size.heads, (size.head,) * 3)}
    return Made("", file(made, folder / "lit_model.pt"), file(back, folder / "neox.bin"), "torch", head=size.head, **hints)


@conversion
def litgpt_mixtral(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Experts under other names."""
    module, _ = sources.litgpt("convert_hf_checkpoint")
    baseline, state, _ = huggingface(size, folder, seed, "Mixtral", num_local_experts=size.experts)
    made: Weights = {}
    module.copy_weights_hf_llama(lit(sources, size, mlp_class_name="LLaMAMoE", n_expert=size.experts), {}, made, state)
    hints = LIT | {"expert": r"experts\.(\d+)\.", "fused": (r"attn\.qkv\.weight$", 1, rows(size))}
    return Made("", baseline, file(made, folder / "lit_model.pt"), "torch", head=size.head, **hints)


def bridge(sources: Sources, module: str, kind: str, size: Size, described: object, divisible: int | None, dtype: torch.dtype) -> object:
    """A bridge whose configuration is told, since Megatron's own needs process groups."""
    made = object.__new__(getattr(sources.mbridge(module), kind))
    made.hf_config, made.dtype, made.make_vocab_size_divisible_by = described, dtype, divisible
    made.vocab_size = size.words
    made.padded_vocab_size = size.words if divisible is None else -(-size.words // divisible) * divisible
    made.config = types.SimpleNamespace(gated_linear_unit=True, mtp_num_layers=None, num_layers=size.layers, num_moe_experts=size.experts)
    # The bridge changes its class's table, which would then say the same of the next model.
    made._DIRECT_MAPPING = dict(made._DIRECT_MAPPING)
    made._adjust_mapping_for_shared_weights()
    return made


def split(name: str, value: torch.Tensor, tensor: int) -> torch.Tensor:
    """A parameter of the shape that one rank has, from which the bridge sees along which dimension to cut."""
    cut = {"word_embeddings": 0, "output_layer": 0, "linear_proj": 1, "linear_fc2": 1, "linear_q_up": 0, "linear_kv_up": 0, "linear_q_proj": 0}
    along = next((dimension for part, dimension in cut.items() if part in name and "norm" not in name), None)
    shape = [size // tensor if dimension == along else size for dimension, size in enumerate(value.shape)]
    return torch.empty(shape, device="meta")


def to_megatron(made: object, names: list[str], state: Weights, size: Size, experts: int = 1, folder: Path = Path()) -> Parts:
    """Files of ranks of tensor, pipeline and expert parallelism: `names` are those of Megatron, with layers and experts of the whole model."""
    parts: Parts = {}
    each = size.layers // size.stages
    for name in names:
        layer = int(name.split("layers.")[1].split(".")[0]) if "layers." in name else None
        stage = layer // each if layer is not None else 0 if "embedding" in name else size.stages - 1
        local = name if layer is None else name.replace(f"layers.{layer}.", f"layers.{layer - stage * each}.")
        whole = made._weight_to_mcore_format(name, [state[theirs] for theirs in made._weight_name_mapping_mcore_to_hf(name)])
        ours = range(experts)
        if ".mlp.experts." in name:
            stem, expert = local.split(".weight")
            local = f"{stem}.weight{int(expert) % (size.experts // experts)}"
            ours = [int(expert) // (size.experts // experts)]
        pieces = made._weight_split_across_tp(name, whole, split(name, whole, size.tensor), size.tensor)
        for rank, piece in enumerate(pieces):
            for group in ours:
                label = f"mp_rank_{rank:02d}" + (f"_{stage:03d}" if size.stages > 1 else "") + (f"_{group:03d}" if experts > 1 else "")
                parts.setdefault(label, {})[local] = piece.contiguous().clone()
    return parts


def layers(size: Size, attention: list[str], mlp: list[str], tied: bool = False) -> list[str]:
    names = ["embedding.word_embeddings.weight"]
    for layer in range(size.layers):
        names += [f"decoder.layers.{layer}.{name}" for name in attention + mlp]
    return names + ["decoder.final_layernorm.weight"] + ([] if tied else ["output_layer.weight"])


ATTENTION = ["self_attention.linear_qkv.layer_norm_weight", "self_attention.linear_qkv.weight", "self_attention.linear_proj.weight"]
MLP = ["mlp.linear_fc1.layer_norm_weight", "mlp.linear_fc1.weight", "mlp.linear_fc2.weight"]


def experts(size: Size) -> list[str]:
    return ["pre_mlp_layernorm.weight", "mlp.router.weight"] + [f"mlp.experts.linear_fc{part}.weight{e}" for part in (1, 2) for e in range(size.experts)]


def megatron_hints(size: Size) -> dict[str, object]:
    groups = size.groups // size.tensor
    fused = (r"linear_qkv\.weight$", groups, (size.width // size.groups, size.head, size.head))
    return {"head": size.head, "fused": fused, "joined": r"linear_fc1\.weight$", "norm": r"norm_?weight$|norm\.weight$"}


@conversion
def mbridge_llama(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Tensor parallelism and stages, in bfloat16, with a padded vocabulary."""
    baseline, state, described = huggingface(size, folder, seed)
    made = bridge(sources, "llama", "LLaMABridge", size, described, 32 * size.tensor, torch.bfloat16)
    parts = to_megatron(made, layers(size, ATTENTION, MLP), state, size)
    return Made("", baseline, ranks(parts, folder / "megatron"), "ranks", **megatron_hints(size))


@conversion
def mbridge_qwen2(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Biases of Q, K and V, tied embeddings, one stage."""
    size = Size(**{**vars(size), "tensor": size.groups, "stages": 1})
    baseline, state, described = huggingface(size, folder, seed, "Qwen2", tie_word_embeddings=True)
    made = bridge(sources, "qwen2", "Qwen2Bridge", size, described, 4 * size.tensor, torch.float32)
    names = layers(size, [*ATTENTION, "self_attention.linear_qkv.bias"], MLP, tied=True)
    return Made("", baseline, ranks(to_megatron(made, names, state, size), folder / "megatron"), "ranks", **megatron_hints(size))


@conversion
def mbridge_qwen3(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Norms of Q and K, one rank."""
    size = Size(**{**vars(size), "tensor": 1, "stages": 1})
    baseline, state, described = huggingface(size, folder, seed, "Qwen3")
    made = bridge(sources, "qwen3", "Qwen3Bridge", size, described, size.tensor, torch.float32)
    names = layers(size, [*ATTENTION, "self_attention.q_layernorm.weight", "self_attention.k_layernorm.weight"], MLP)
    return Made("", baseline, ranks(to_megatron(made, names, state, size), folder / "megatron"), "ranks", **megatron_hints(size))


@conversion
def mbridge_mixtral(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Experts in two groups of ranks, and stages."""
    size = Size(**{**vars(size), "tensor": 1})
    baseline, state, described = huggingface(size, folder, seed, "Mixtral", num_local_experts=size.experts)
    made = bridge(sources, "mixtral", "MixtralBridge", size, described, size.tensor, torch.bfloat16)
    parts = to_megatron(made, layers(size, ATTENTION, experts(size)), state, size, experts=2)
    hints = megatron_hints(size) | {"joined": r"linear_fc1\.weight\d+$", "expert": r"linear_fc\d\.weight(\d+)$"}
    return Made("", baseline, ranks(parts, folder / "megatron"), "ranks", **hints)


@conversion
def mbridge_qwen3_moe(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Tensor parallelism with experts."""
    size = Size(**{**vars(size), "stages": 1})
    more = {"num_experts": size.experts, "moe_intermediate_size": size.inner, "decoder_sparse_step": 1, "mlp_only_layers": []}
    baseline, state, described = huggingface(size, folder, seed, "Qwen3Moe", **more)
    made = bridge(sources, "qwen3moe", "Qwen3MoEBridge", size, described, size.tensor, torch.float32)
    names = layers(size, [*ATTENTION, "self_attention.q_layernorm.weight", "self_attention.k_layernorm.weight"], experts(size))
    hints = megatron_hints(size) | {"joined": r"linear_fc1\.weight\d+$", "expert": r"linear_fc\d\.weight(\d+)$"}
    return Made("", baseline, ranks(to_megatron(made, names, state, size), folder / "megatron"), "ranks", **hints)


@conversion
def mbridge_deepseek(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Latent attention, a first dense layer, shared experts and biases of the router, in bfloat16."""
    size = Size(**{**vars(size), "stages": 1})
    more = {"n_routed_experts": size.experts, "moe_intermediate_size": size.inner, "first_k_dense_replace": 1, "n_shared_experts": 1}
    more |= {"q_lora_rank": 32, "kv_lora_rank": 32, "qk_rope_head_dim": size.head, "qk_nope_head_dim": size.head, "v_head_dim": size.head}
    more |= {"n_group": 1, "topk_group": 1, "num_key_value_heads": size.heads}
    baseline, state, described = huggingface(size, folder, seed, "DeepseekV3", **more)
    made = bridge(sources, "deepseek_v3", "DeepseekV3Bridge", size, described, size.tensor, torch.bfloat16)
    latent = ["linear_q_down_proj.weight", "linear_q_up_proj.layer_norm_weight", "linear_q_up_proj.weight", "linear_kv_down_proj.weight"]
    latent += ["linear_kv_up_proj.layer_norm_weight", "linear_kv_up_proj.weight", "linear_proj.weight"]
    attention = ["input_layernorm.weight"] + [f"self_attention.{name}" for name in latent]
    sparse = [*experts(size), "mlp.router.expert_bias", "mlp.shared_experts.linear_fc1.weight", "mlp.shared_experts.linear_fc2.weight"]
    names = [name for name in layers(size, attention, []) if "layers" not in name]
    for layer in range(size.layers):
        names += [f"decoder.layers.{layer}.{name}" for name in attention + (sparse if layer else MLP)]
    hints = {"joined": r"linear_fc1\.weight\d+$", "expert": r"linear_fc\d\.weight(\d+)$", "norm": r"norm_?weight$|norm\.weight$"}
    return Made("", baseline, ranks(to_megatron(made, names, state, size), folder / "megatron"), "ranks", head=size.head, **hints)
