"""Checkpoints of models that several processes hold: FSDP2, DTensor and megatron-core, over gloo."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import torch
from of_trainers import bridge, huggingface, megatron_hints
from of_transformers import LLAMA, config
from pairs import Made, Size, conversion, file, fill, saved
from sources import Sources


def spread(work: Callable[..., None], processes: int, *given: object) -> None:
    """Runs `work(rank, *given)` in processes with a group over gloo."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(processes)}
    torch.multiprocessing.spawn(started, (work, processes, given), processes)


def started(rank: int, work: Callable[..., None], processes: int, given: tuple[object, ...]) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    torch.distributed.init_process_group("gloo", rank=rank, world_size=processes)
    work(rank, *given)
    torch.distributed.destroy_process_group()


def fully_sharded(rank: int, folder: Path, processes: int) -> None:
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from transformers import AutoModelForCausalLM

    made = AutoModelForCausalLM.from_pretrained(folder / "hf", dtype=torch.float32)
    mesh = init_device_mesh("cpu", (processes,))
    for layer in made.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(made, mesh=mesh)
    checkpoint.save({"model": get_model_state_dict(made), "step": torch.tensor(3)}, checkpoint_id=folder / "dcp")


def tensor_parallel(rank: int, folder: Path, processes: int) -> None:
    from torch.distributed import checkpoint
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    from transformers import AutoModelForCausalLM

    made = AutoModelForCausalLM.from_pretrained(folder / "hf", dtype=torch.float32)
    plan = {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"} | {f"mlp.{name}_proj": ColwiseParallel() for name in ("gate", "up")}
    plan |= {"self_attn.o_proj": RowwiseParallel(), "mlp.down_proj": RowwiseParallel()}
    mesh = init_device_mesh("cpu", (processes,))
    for layer in made.model.layers:
        parallelize_module(layer, mesh, plan)
    checkpoint.save(made.state_dict(), checkpoint_id=folder / "dcp")


@conversion
def torch_fsdp2(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Four ranks; the model below `model` in the checkpoint."""
    baseline, _, _ = huggingface(size, folder, seed)
    spread(fully_sharded, 4, folder, 4)
    return Made("", baseline, folder / "dcp", "dcp", head=size.head, root="model.", **LLAMA)


@conversion
def torch_fsdp2_joined(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Two ranks with experts, put together by torch's own `dcp_to_torch_save`."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    baseline, _, _ = huggingface(size, folder, seed, "Mixtral", num_local_experts=size.experts)
    spread(fully_sharded, 2, folder, 2)
    dcp_to_torch_save(folder / "dcp", folder / "nested.pt")
    made = torch.load(folder / "nested.pt", weights_only=True)
    flat = file(made["model"], folder / "joined.pt")
    hints = {**LLAMA, "gate": (".w1.", ".w3."), "expert": r"experts\.(\d+)\."}
    return Made("", baseline, flat, "torch", head=size.head, **hints)


@conversion
def torch_tensor_parallel(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """Two ranks with rows or columns of the matrices."""
    baseline, _, _ = huggingface(size, folder, seed)
    spread(tensor_parallel, 2, folder, 2)
    return Made("", baseline, folder / "dcp", "dcp", head=size.head, **LLAMA)


def gpt(sources: Sources, size: Size) -> torch.nn.Module:
    """A model of megatron-core without Transformer Engine, in this process's part."""
    sources.megatron()
    from megatron.core.models.gpt import gpt_layer_specs, gpt_model
    from megatron.core.transformer.transformer_config import TransformerConfig

    parallel = {"tensor_model_parallel_size": torch.distributed.get_world_size(), "use_cpu_initialization": True, "params_dtype": torch.float32}
    described = TransformerConfig(
        num_layers=size.layers,
        hidden_size=size.width,
        num_attention_heads=size.heads,
        num_query_groups=size.groups,
        ffn_hidden_size=size.inner,
        normalization="RMSNorm",
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        **parallel,
    )
    words = -(-size.words // 64) * 64
    more = {"max_sequence_length": 64, "position_embedding_type": "rope", "share_embeddings_and_output_weights": False}
    spec = gpt_layer_specs.get_gpt_layer_local_spec(normalization="RMSNorm")
    return gpt_model.GPTModel(described, spec, vocab_size=words, **more)


def megatron(rank: int, sources: Sources, size: Size, folder: Path, seed: int, load: bool) -> None:
    """Makes a model on one rank, or loads it on several, and writes both formats of megatron-core."""
    sources.megatron()
    from megatron.core import dist_checkpointing, parallel_state

    # Without a GPU there is nothing to wait for.
    torch.cuda.synchronize, torch.cuda.current_device = (lambda *_: None), (lambda: "cpu")
    ranks = torch.distributed.get_world_size()
    parallel_state.initialize_model_parallel(ranks)
    made = gpt(sources, size)
    if load:
        state = dist_checkpointing.load(made.sharded_state_dict(), str(folder / "of_1"))
        made.load_state_dict(state, strict=False)
    else:
        fill(dict(made.named_parameters()), seed)
    (folder / f"of_{ranks}").mkdir(exist_ok=True)
    dist_checkpointing.save(made.sharded_state_dict(), str(folder / f"of_{ranks}"))
    file({"model": made.state_dict(), "iteration": 10}, folder / f"ranks_{ranks}" / f"mp_rank_{rank:02d}" / "model_optim_rng.pt")


def exported(sources: Sources, size: Size, folder: Path) -> Path:
    """Hugging Face's form of the model on one rank, by mbridge."""
    from transformers import LlamaForCausalLM

    described = config(size)
    made = bridge(sources, "llama", "LLaMABridge", size, described, 64, torch.float32)
    state = torch.load(folder / "ranks_1" / "mp_rank_00" / "model_optim_rng.pt", weights_only=False)["model"]
    theirs = {}
    for name, value in state.items():
        if "_extra_state" in name or value is None:
            continue
        # With Transformer Engine, norms belong to the matrices behind them; the bridge knows these names alone.
        name = name.replace("input_layernorm.weight", "self_attention.linear_qkv.layer_norm_weight")
        name = name.replace("pre_mlp_layernorm.weight", "mlp.linear_fc1.layer_norm_weight")
        theirs |= dict(zip(*made._weight_to_hf_format(name, value)))
    model = LlamaForCausalLM(described)
    model.load_state_dict(theirs)
    return saved(model, folder / "hf")


def of_megatron(sources: Sources, size: Size, folder: Path, seed: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    spread(megatron, 1, sources, size, folder, seed, False)
    spread(megatron, 2, sources, size, folder, seed, True)
    return exported(sources, size, folder)


@conversion
def megatron_core_ranks(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """A model on one rank, written by megatron-core, loaded by it on two, and what these have in their files."""
    size = Size(**{**vars(size), "tensor": 2})
    baseline = of_megatron(sources, size, folder, seed)
    return Made("", baseline, folder / "ranks_2", "ranks", **megatron_hints(size))


@conversion
def megatron_core_distributed(sources: Sources, size: Size, folder: Path, seed: int) -> Made:
    """The same as a distributed checkpoint of two ranks."""
    size = Size(**{**vars(size), "tensor": 1})
    baseline = of_megatron(sources, size, folder, seed)
    return Made("", baseline, folder / "of_2", "dcp", **megatron_hints(size) | {"layer": "", "fused": None, "joined": ""})


