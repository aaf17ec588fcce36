"""Records trainings with megatron-core on one rank and on several over gloo, asks `probe compare`, and counts: on_megatron.py MEGATRON FOLDER [PATTERN].

MEGATRON is the unpacked wheel of megatron-core (0.16.1 was used). What it would put on a GPU is put on the CPU; models, collectives, schedules and the reduction of
gradients are its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import wraps
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import probe
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, sys.argv[1])
warnings.filterwarnings("ignore")

from megatron.core import parallel_state as groups
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.tensor_parallel import layers, random as generators
from megatron.core.transformer import TransformerConfig, torch_norm
from megatron.core.transformer.moe import moe_utils, token_dispatcher

PROGRAM = os.environ.get("PROBE_BIN", "probe")
LAYERS, WIDTH, HEADS, GROUPS, INNER, WORDS, TOKENS, BATCH, MICRO, EXPERTS = 4, 48, 8, 4, 96, 64, 16, 4, 2, 4
# The layer in which a fault is planted.
AT = 1


@dataclass(frozen=True)
class Case:
    """A layout and a fault of one rank, of a collective, or of what is loaded."""

    layout: str
    llama: bool
    dtype: str
    fault: str = ""

    @property
    def name(self) -> str:
        return "-".join(filter(None, (self.layout, "llama" if self.llama else "gpt", self.dtype, self.fault)))

    def size(self, axis: str) -> int:
        found = re.search(rf"{axis}(\d)", self.layout)
        return int(found[1]) if found else 1

    @property
    def ranks(self) -> int:
        return self.size("tp") * self.size("pp") * self.size("dp") * self.size("ep")

    @property
    def sequence(self) -> bool:
        return "sp" in self.layout.split("_")

    @property
    def moe(self) -> bool:
        return "moe" in self.layout


LAYOUTS = ["tp2", "tp4", "tp2_sp", "tp4_sp", "dp2", "tp2_dp2", "pp2", "pp4", "pp2_tp2", "pp2_tp2_sp", "moe_ep2", "moe_tp2_sp"]

# Where a fault is, and the words that are due.
FAULTS: dict[str, tuple[str, str]] = {
    "dropped": (rf"layers\.{AT}\..*linear_proj|self_attention", "all-reduce over tp is missing"),
    "doubled": (rf"layers\.{AT}\..*linear_fc2|mlp", r"2\.000 times"),
    "norm": (r"layers\.\d\..*norm|final_layernorm|input_layernorm", "partial sum"),
    # A term of a sum has no counterpart in the run on one rank.
    "kernel": (rf"layers\.{AT}\..*linear_fc2|mlp", "."),
    "stale": (rf"layers\.{AT}\..*linear_fc1", "ranks? 1|weight"),
    "heads": (rf"layers\.{AT}\..*linear_qkv", "as in the other layers"),
    "unreduced": (".", "all-reduce over dp|partial sum|rank"),
    "tied": (r"word_embeddings|output_layer", "partial sum"),
    "stage": (r".", "holds layers?"),
    "vocabulary": (r"word_embeddings|embedding", "."),
    "experts": (rf"layers\.\d\.mlp", r"holds (local_)?experts?"),
    "router": (rf"layers\.{AT}\..*router|linear|layers\.{AT}\.mlp", "rank 1's replica differs"),
    "expert": (rf"layers\.{AT}\.mlp\.experts\.local_experts", "."),
}


def faults(layout: str) -> list[str]:
    """The faults that a layout can have."""
    here = []
    if "tp" in layout:
        here += ["dropped", "doubled", "kernel", "stale", "heads", "vocabulary"] if "moe" not in layout else ["dropped", "heads"]
    if "sp" in layout.split("_"):
        here += ["norm"]
    if "dp" in layout or "ep" in layout:
        here += ["unreduced"]
    if "ep" in layout:
        here += ["experts", "router", "expert"]
    if "pp" in layout:
        here += ["tied", "stage"]
    return here


def cases() -> list[Case]:
    made = []
    for number, (layout, llama) in enumerate(product(LAYOUTS, (False, True))):
        made += [Case(layout, llama, dtype) for dtype in ("float32", "bfloat16")]
        made += [Case(layout, llama, "float32" if (number + place) % 3 else "bfloat16", fault) for place, fault in enumerate(faults(layout))]
    # The embeddings of a Llama are not shared by two stages.
    return [case for case in made if case.fault != "tied" or not case.llama]


def scattered(output: Tensor, parts: list[Tensor], group: Any) -> None:
    """Stands in for a reduce-scatter of parts of unequal sizes, which gloo lacks."""
    whole = torch.cat(parts)
    dist.all_reduce(whole, group=group)
    output.copy_(whole.split([len(part) for part in parts])[dist.get_rank(group)])


def made_on(cpu: torch.device, make: Callable) -> Callable:
    @wraps(make)
    def call(*given: Any, **named: Any) -> Tensor:
        return make(*given, **{**named, **({"device": cpu} if named.get("device") == "cuda" else {})})

    return call


def on_cpu() -> None:
    """Puts on the CPU what megatron-core asks the current GPU for."""
    cpu = torch.device("cpu")
    torch.cuda.current_device = lambda: cpu
    torch.cuda.synchronize = lambda *_: None
    stream = SimpleNamespace(wait_stream=lambda _: None, record_event=lambda: SimpleNamespace(synchronize=lambda: None))
    torch.cuda.Stream = torch.cuda.current_stream = lambda *_, **__: stream
    torch.cuda.stream = lambda _: nullcontext()
    Tensor.record_stream = lambda *_: None
    # A name that is not bound where Transformer Engine is missing.
    moe_utils.te_general_gemm = None
    token_dispatcher.maybe_move_tensor_to_cpu = lambda value, as_numpy=False, **_: value.numpy() if as_numpy and isinstance(value, Tensor) else value
    torch_norm.WrappedTorchNorm.__new__ = norm
    generators.get_cuda_rng_tracker().fork = lambda *_: nullcontext()
    Tensor.cuda = lambda self, *_, **__: self
    dist.reduce_scatter = scattered
    for name in ("zeros", "tensor", "empty", "ones"):
        setattr(torch, name, made_on(cpu, getattr(torch, name)))


def norm(_: type, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **__: Any) -> nn.Module:
    """A norm of torch, also under sequence parallelism, for which megatron-core takes one of Apex: its weights are marked as that marks them."""
    made = (nn.RMSNorm if config.normalization == "RMSNorm" else nn.LayerNorm)(hidden_size, eps=eps)
    for parameter in made.parameters():
        parameter.sequence_parallel = config.sequence_parallel
    return made


def shards(name: str, value: Tensor, mine: nn.Parameter, gated: bool, case: Case, rank: int) -> Tensor:
    """The rank's part of a parameter of the whole model."""
    ranks = case.size("tp")
    if value.shape == mine.shape:
        return value
    at = mine.partition_dim
    if gated and "linear_fc1" in name:
        return torch.cat([half.chunk(ranks, 0)[rank] for half in value.chunk(2, 0)])
    if case.fault == "heads" and f"layers.{AT}." in name and "linear_qkv" in name:
        # Groups of Q, K and V are dealt out as if all of Q came first.
        size, per = value.shape[0] // GROUPS, WIDTH // HEADS
        parts = value.view(GROUPS, size, *value.shape[1:]).split([per * HEADS // GROUPS, per, per], 1)
        value = torch.cat([part.flatten(0, 1) for part in parts])
    return value.chunk(ranks, at)[rank]


def load(case: Case, model: nn.Module, whole: dict[str, Tensor], stage: int, rank: int, experts: int) -> None:
    """Gives the weights of one rank to its model."""
    each = LAYERS // case.size("pp")
    for name, mine in model.named_parameters():
        wrong = case.fault == "stage" and stage == case.size("pp") - 1
        first = each * (stage - 1 if wrong else stage)
        key = re.sub(r"layers\.(\d+)", lambda found: f"layers.{int(found[1]) + first}", name)
        local = EXPERTS // case.size("ep")
        group = case.size("ep") - 1 - experts if case.fault == "experts" else experts
        key = re.sub(r"local_experts\.(\d+)", lambda found: f"local_experts.{int(found[1]) + group * local}", key)
        # The last stage has a copy of a table that it shares.
        value = whole.get(key, whole["embedding.word_embeddings.weight"])
        part = shards(key, value, mine, case.llama, case, rank)
        stale = {"stale": (rank, "linear_fc1.weight"), "router": (experts, "router.weight")}.get(case.fault)
        if stale and stale[0] == 1 and f"layers.{AT}." in key and key.endswith(stale[1]):
            part = part * 0.98 + 0.001
        mine.data.copy_(part)


class Kernel(TorchDispatchMode):
    """A product of which the kernel is wrong in some rows, below all that is recorded."""

    def __torch_dispatch__(self, function: Any, types: Any, given: tuple = (), named: dict | None = None) -> Any:
        made = function(*given, **(named or {}))
        if function is torch.ops.aten.mm.default:
            made[::7] *= 1.3
        return made


def plant(case: Case, model: nn.Module, rank: int, first: int) -> None:
    """Plants what goes wrong while the model runs."""
    inner = next((m for n, m in model.named_modules() if n.endswith(f"layers.{AT - first}")), None)
    if inner is None:
        return
    attention, mlp = inner.self_attention.linear_proj, getattr(inner.mlp, "linear_fc2", None)

    def while_of(module: nn.Module, name: str, other: Callable) -> None:
        run = module.forward

        def forward(*given: Any, **named: Any) -> Any:
            kept = getattr(layers, name)
            setattr(layers, name, lambda value, **keywords: other(kept, value, keywords))
            try:
                return run(*given, **named)
            finally:
                setattr(layers, name, kept)

        module.forward = forward

    reduction = "reduce_scatter_to_sequence_parallel_region" if case.sequence else "reduce_from_tensor_model_parallel_region"
    if case.fault == "dropped":
        ranks = case.size("tp")
        own = (lambda _, value, __: value.chunk(ranks, 0)[rank] * 1) if case.sequence else (lambda _, value, __: value * 1)
        while_of(attention, reduction, own)
    elif case.fault == "doubled":
        while_of(mlp, reduction, lambda kept, value, keywords: kept(value, **keywords) * 2)
    elif (case.fault == "kernel" and rank == 1) or (case.fault == "expert" and groups.get_expert_model_parallel_rank() == 1):
        mlp = mlp if case.fault == "kernel" else inner.mlp.experts.local_experts[0].linear_fc2
        run = mlp.forward

        def forward(*given: Any) -> Any:
            with Kernel():
                return run(*given)

        mlp.forward = forward


def train(case: Case, whole: dict[str, Tensor] | None, output: Path | None) -> dict[str, Tensor]:
    """One step of one rank; returns its weights before."""
    dtype = getattr(torch, case.dtype)
    groups.initialize_model_parallel(
        tensor_model_parallel_size=case.size("tp"), pipeline_model_parallel_size=case.size("pp"), expert_model_parallel_size=case.size("ep"), expert_tensor_parallel_size=case.size("tp"))
    rank, stage = groups.get_tensor_model_parallel_rank(), groups.get_pipeline_model_parallel_rank()
    # On one rank, megatron-core adds the biases of experts in a way that autograd refuses.
    more = {"add_bias_linear": False, "num_moe_experts": EXPERTS, "moe_router_topk": 2, "moe_token_dispatcher_type": "alltoall", "moe_router_load_balancing_type": "none"} if case.moe else {}
    norm: dict[str, Any] = {"normalization": "RMSNorm", "gated_linear_unit": True, "activation_func": torch.nn.functional.silu, "add_bias_linear": False} if case.llama else {}
    torch.manual_seed(11)
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=WIDTH, num_attention_heads=HEADS, num_query_groups=GROUPS, ffn_hidden_size=INNER, use_cpu_initialization=True,
        tensor_model_parallel_size=case.size("tp"), pipeline_model_parallel_size=case.size("pp"), sequence_parallel=case.sequence,
        expert_model_parallel_size=case.size("ep"), expert_tensor_parallel_size=case.size("tp"),
        params_dtype=dtype, pipeline_dtype=dtype, bf16=dtype == torch.bfloat16, hidden_dropout=0.0, attention_dropout=0.0, init_method_std=0.08,
        gradient_accumulation_fusion=False, batch_p2p_comm=True, bias_dropout_fusion=False, masked_softmax_fusion=False, finalize_model_grads_func=finalize_model_grads,
        **{**norm, **more})  # fmt: skip
    spec = get_gpt_layer_local_spec(num_experts=EXPERTS if case.moe else None, moe_grouped_gemm=False, normalization=config.normalization)
    first, last = groups.is_pipeline_first_stage(), groups.is_pipeline_last_stage()
    model = GPTModel(
        config, spec, WORDS, TOKENS, pre_process=first, post_process=last, share_embeddings_and_output_weights=not case.llama,
        position_embedding_type="rope" if case.llama else "learned_absolute")  # fmt: skip
    if case.dtype == "bfloat16":
        model = model.bfloat16()
    if whole is None:
        # Biases and norms begin at one value, which would hide where they go wrong.
        for parameter in model.parameters():
            parameter.data.add_(torch.randn(parameter.shape).mul_(0.05))
    else:
        load(case, model, whole, stage, rank, groups.get_expert_model_parallel_rank())
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    if output is None:
        return weights
    plant(case, model, rank, stage * (LAYERS // case.size("pp")))
    if case.fault == "norm":
        for parameter in model.parameters():
            parameter.sequence_parallel = False
    wrapped = DistributedDataParallel(config, DistributedDataParallelConfig(overlap_grad_reduce=False, use_distributed_optimizer=False), model)
    if case.fault == "unreduced":
        wrapped.finish_grad_sync = lambda *_, **__: None
        config.finalize_model_grads_func = lambda *_, **__: None
    if case.fault == "tied":
        model.share_embeddings_and_output_weights = False
    if case.fault == "vocabulary" and rank == 1 and first:
        table = model.embedding.word_embeddings
        table.vocab_start_index, table.vocab_end_index = table.vocab_start_index + 3, table.vocab_end_index + 3
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    chance = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, WORDS, (MICRO, BATCH, TOKENS + 1), generator=chance)
    share = BATCH // (case.size("dp") * case.size("ep"))
    at = groups.get_data_parallel_rank() * share
    micro = iter([batch[at : at + share] for batch in tokens])
    mask = torch.ones(TOKENS, TOKENS).triu(1).bool()[None, None]

    def step(batches: Any, of: nn.Module) -> tuple[Tensor, Callable]:
        batch = next(batches)
        out = of(batch[:, :-1], torch.arange(TOKENS).expand(share, -1), mask, labels=batch[:, 1:])
        return out, lambda result: (result.float().mean(), {"loss": result.float().mean().detach()})

    with probe.capture(str(output), model=model, steps=[0], level="mix", task="tensor", stacks=False, overwrite=True):
        get_forward_backward_func()(
            forward_step_func=step, data_iterator=micro, model=[wrapped], num_microbatches=MICRO, seq_length=TOKENS, micro_batch_size=share, forward_only=False)  # fmt: skip
        for parameter in model.parameters():
            parameter.grad = parameter.main_grad.to(parameter.dtype)
        optimizer.step()
        probe.step()
    return weights


def forked(case: Case, whole: dict[str, Tensor] | None, output: Path | None, kept: Path | None = None) -> bool:
    """Runs the ranks of a case in processes of their own."""
    meeting, children = tempfile.mktemp(), []
    for rank in range(case.ranks):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=case.ranks)
                weights = train(case, whole, output)
                if kept:
                    torch.save(weights, kept)
                code = 0
            except BaseException:
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(code)
        children.append(child)
    done = [os.waitpid(child, 0)[1] for child in children]
    Path(meeting).unlink(missing_ok=True)
    return not any(done)


def answer(case: Case, one: Path, many: Path) -> str:
    done = subprocess.run([PROGRAM, "compare", "-b", one, "-c", many, "-o", "-", "--format", "json"], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        return f"failed: {done.stderr.strip()[:300]}"
    report = json.loads(done.stdout)
    first = report["first_divergence"]
    said = f"{first['op']} {first['slot']} {first['cause']}: {first['reason'][:300]}" if first else ""
    if not case.fault and not first and "flipped choices" in json.dumps(report["notes"]):
        return "flipped: rounding chose other experts, and no op is named"
    if not case.fault:
        return f"accused: {said}" if first or done.returncode else "silent"
    if not first:
        return "missed"
    place, words = FAULTS[case.fault]
    named = " ".join(str(first.get(part) or "") for part in ("op", "slot", "module"))
    right = re.search(place, named), re.search(words, first["reason"])
    return f"named: {said}" if all(right) else f"{'place' if right[0] else 'words' if right[1] else 'wrong'}: {said}"


def main(folder: Path, pattern: str = "*") -> None:
    torch.set_num_threads(1)
    on_cpu()
    counts: dict[str, int] = {}
    for case in cases():
        if not fnmatch(case.name, pattern):
            continue
        kind = f"{'moe-' if case.moe else ''}{'llama' if case.llama else 'gpt'}-{case.dtype}"
        one, weights, many = folder / f"{kind}-one", folder / f"{kind}.pt", folder / case.name
        # Of a mean over data-parallel ranks the recorded run is one rank with the whole batch.
        alone = Case("moe" if case.moe else "one", case.llama, case.dtype)
        if not (one / "made").exists():
            folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(one, ignore_errors=True)
            if not (forked(alone, None, None, weights) and forked(alone, torch.load(weights), one)):
                raise SystemExit(f"{kind}: the run on one rank failed")
            (one / "made").touch()
        if not (many / "made").exists():
            shutil.rmtree(many, ignore_errors=True)
            if forked(case, torch.load(weights), many):
                (many / "made").touch()
        said = answer(case, one, many) if (many / "made").exists() else "not recorded"
        word = said.split(":")[0]
        counts[word] = counts.get(word, 0) + 1
        print(f"{case.name:32} {said}", flush=True)
    print(" ".join(f"{word} {number}" for word, number in counts.items()))


if __name__ == "__main__":
    main(Path(sys.argv[2]), *sys.argv[3:])
