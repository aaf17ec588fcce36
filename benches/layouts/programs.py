"""One training of a case on one rank: a step or two, recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import probe
import torch
import torch.distributed as dist
import torch.nn.functional as F
from cases import Case
from interleaved import Stages
from models import Model, Moe
from parallel import AXES, World, own_tokens, vocabulary_loss
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, schedules
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module


class Requests(list):
    """Messages sent and received at once."""

    def wait(self) -> None:
        for request in self:
            request.wait()


if not hasattr(schedules, "_wait_batch_p2p"):
    # Torch 2.7 keeps the last request alone, and gloo forgets a send that nothing holds: 1F1B then waits forever.
    schedules._batch_p2p = lambda operations, desc=None: Requests(dist.batch_isend_irecv(operations)) if operations else None


def world_of(case: Case) -> World:
    """The case's axes on this rank."""
    sizes = {axis: size for axis in AXES if (size := case.sizes.get(axis, 1)) > 1}
    world = World(sizes, case.fault, case.sequence, case.ring, case.planted, case.documents)
    if not sizes:
        return world
    if case.named:
        world.mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        world.groups = {axis: world.mesh.get_group(axis) for axis in sizes}
    else:
        ranks = torch.arange(dist.get_world_size()).view(*sizes.values())
        for place, axis in enumerate(sizes):
            for members in ranks.movedim(place, -1).reshape(-1, sizes[axis]).tolist():
                group = dist.new_group(members, group_desc=f"{MEGATRON[axis]}_GROUP")
                if dist.get_rank() in members:
                    world.groups[axis] = group
    if case.tied and world.size("pp") > 1:
        # The stages with the table and the head share its gradient.
        ranks = torch.arange(dist.get_world_size()).view(*sizes.values()).movedim(list(sizes).index("pp"), -1).reshape(-1, sizes["pp"])
        for members in ranks[:, [0, -1]].tolist():
            group = dist.new_group(members, group_desc="EMBEDDING_GROUP")
            if dist.get_rank() in members:
                world.groups["ends"] = group
    world.places = {axis: dist.get_rank(group) for axis, group in world.groups.items() if axis in sizes}
    return world


MEGATRON = {
    "tp": "TENSOR_MODEL_PARALLEL",
    "pp": "PIPELINE_MODEL_PARALLEL",
    "dp": "DATA_PARALLEL",
    "cp": "CONTEXT_PARALLEL",
    "ep": "EXPERT_MODEL_PARALLEL",
}


def model_of(case: Case) -> Model:
    torch.manual_seed(case.seed)
    model = Model(case.shape, case.llama, case.layers, case.moe, case.dropout, case.tied)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "first" in name or "second" in name or "bias" in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
            elif "embed" in name or "places" in name:
                parameter.mul_(0.5)
    return model.to(getattr(torch, case.dtype))


def by_torch(model: Model, world: World, mesh: Any) -> None:
    """Torch's own tensor parallelism."""
    sequence = world.sequence
    model.world = world
    of = Shard(1) if sequence else Replicate()
    parallelize_module(
        model,
        mesh,
        {
            "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=of),
            "head": ColwiseParallel(input_layouts=of, output_layouts=Replicate()),
            **({"norm": SequenceParallel()} if sequence else {}),
        },
    )
    for number, block in enumerate(model.layers):
        down = Partial() if world.has("drop", number) else of
        plan: dict[str, Any] = {f"attention.{part}": ColwiseParallel() for part in "qkv"}
        plan |= {"attention.out": RowwiseParallel(output_layouts=of), "mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel(output_layouts=down)}
        if model.layers[0].mlp.gate is not None:
            plan["mlp.gate"] = ColwiseParallel()
        if sequence:
            plan |= {"first": SequenceParallel(), "second": SequenceParallel()}
            plan["attention"] = PrepareModuleInput(input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None))
            plan["mlp"] = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
        parallelize_module(block, mesh, plan)
        if world.has("stale", number) and world.place("tp") == 1:
            local = block.mlp.down.weight.detach().to_local()
            local.copy_(local.roll(1, 0))
        if world.has("kernel", number) and world.place("tp") == world.size("tp") - 1:
            block.mlp.world, block.mlp.layer = world, number


def layers_of(case: Case, world: World, chunk: int = 0) -> tuple[int, int]:
    """The layers of a chunk of this rank's stage: the first, and the one behind the last."""
    parts, part = world.size("pp") * case.chunks, world.place("pp") + chunk * world.size("pp")
    bounds = case.bounds or [case.layers * at // parts for at in range(parts + 1)]
    return bounds[part], bounds[part + 1]


def kept(model: Model, case: Case, world: World, chunk: int) -> Model:
    """Cuts a model to a chunk of this rank's stage."""
    (first, last), part = layers_of(case, world, chunk), world.place("pp") + chunk * world.size("pp")
    end = world.size("pp") * case.chunks - 1
    if case.fault == "stage" and part == end:
        first, last = 0, last - first
    model.layers, model.first = nn.ModuleList(list(model.layers)[first:last]), first
    if part > 0:
        model.embed, model.places = None, None
    if part < end:
        model.norm, model.head = None, None
    return model


def spread(case: Case, world: World) -> Any:
    """Makes a model and brings it onto ranks; chunks of it are a list."""
    models = [kept(model_of(case), case, world, chunk) if world.size("pp") > 1 else model_of(case) for chunk in range(case.chunks)]
    for model in models:
        model.world, model.split_loss = world, case.split_loss
        if case.fault == "replica" and world.place("dp") == 1 and (layer := planted_in(model, case)) is not None:
            with torch.no_grad():
                layer.attention.out.weight.copy_(layer.attention.out.weight.roll(1, 0))
        if case.style == "torch" and world.size("tp") > 1:
            by_torch(model, world, world.mesh["tp"])
        elif world.sizes or case.documents:
            model.spread(world)
        for block in model.layers:
            if isinstance(block.mlp, Moe):
                block.mlp.dispatch = case.dispatch
        if case.fsdp and world.size("dp") > 1:
            for block in model.layers:
                fully_shard(block, mesh=world.mesh["dp"])
            fully_shard(model, mesh=world.mesh["dp"])
    return models[0] if case.chunks == 1 else nn.ModuleList(models)


def planted_in(model: Model, case: Case) -> Any:
    """The layer of a model in which a fault is planted, if it has that."""
    at = case.planted - model.first
    return model.layers[at] if 0 <= at < len(model.layers) else None


def chunks_of(model: Any) -> list[Model]:
    return list(model) if isinstance(model, nn.ModuleList) else [model]


def shared_gradients(model: Any, case: Case, world: World) -> None:
    """Reduces what each rank has of gradients."""
    for chunk in chunks_of(model):
        reduced_gradients(chunk, case, world)
    if case.tied and world.size("pp") > 1 and case.fault != "tied":
        own = [part.weight.grad for chunk in chunks_of(model) for part in (chunk.embed, chunk.head) if part is not None]
        for gradient in own:
            dist.all_reduce(gradient, group=world.groups["ends"])


def reduced_gradients(model: Model, case: Case, world: World) -> None:
    planted = f"layers.{case.planted - model.first}.attention.out.weight"
    for axis in ("dp", "cp", *(("ep",) if case.dispatch else ())):
        count = world.size(axis)
        if count == 1:
            continue
        if axis == "dp" and case.fsdp:
            # Over gloo, torch 2.7 adds up where FSDP asks for the mean.
            for parameter in model.parameters() if case.fault != "fsdp-sum" else ():
                parameter.grad.to_local().div_(count)
            continue
        for name, parameter in model.named_parameters():
            if parameter.grad is None or (axis == "ep" and "experts" in name):
                if axis == "ep":
                    parameter.grad /= count
                continue
            if case.fault == "unreduced" and name == planted:
                parameter.grad /= count
                continue
            gradient = parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad
            dist.all_reduce(gradient, group=world.groups[axis])
            if case.fault == "gradient-twice" and name == planted:
                dist.all_reduce(gradient, group=world.groups[axis])
            if not (case.fault == "gradient-sum" and name == planted):
                gradient /= count
    if world.size("ep") > 1 and not case.dispatch:
        # Each rank's part of the results depends on the router.
        for block in model.layers:
            dist.all_reduce(block.mlp.router.weight.grad, group=world.groups["ep"])
    if world.sequence and case.style == "torch" and model.places is not None:
        dist.all_reduce(model.places.weight.grad, group=world.groups["tp"])
    if world.sequence and case.style == "hand" and world.size("tp") > 1:
        for name, parameter in model.named_parameters():
            of_norm = "first" in name or "second" in name or name.startswith(("norm", "places")) or name.endswith(("out.bias", "down.bias"))
            if of_norm and not (case.fault == "sequence-gradient" and name == f"layers.{case.planted - model.first}.second.weight"):
                dist.all_reduce(parameter.grad, group=world.groups["tp"])


# Parameters of which ranks hold shards.
SPLIT = (".q.", ".k.", ".v.", "out.weight", "up.", "gate.", "down.weight", "embed", "head")


def clipped(model: Any, case: Case, world: World) -> None:
    """Scales gradients to a norm, which ranks must agree on."""
    held = [(name, parameter.grad) for name, parameter in model.named_parameters()]
    squares = torch.stack([gradient.float().square().sum() for _, gradient in held])
    # Weights that two stages have count once.
    squares *= torch.tensor([0.0 if case.tied and world.size("pp") > 1 and name.endswith("head.weight") else 1.0 for name, _ in held])
    split = torch.tensor([any(part in name for part in SPLIT) for name, _ in held])
    own, same = squares[split].sum(), squares[~split].sum()
    if case.fault != "local-norm":
        if world.size("tp") > 1:
            dist.all_reduce(own, group=world.groups["tp"])
        if world.size("pp") > 1:
            dist.all_reduce(own, group=world.groups["pp"])
            dist.all_reduce(same, group=world.groups["pp"])
    scale = (case.clip / (own + same).sqrt()).clamp(max=1.0)
    for _, gradient in held:
        gradient.mul_(scale.to(gradient.dtype))


def micro_batches(case: Case) -> int:
    return case.micro or (max(2, case.sizes["pp"]) if "pp" in case.sizes else 1)


def data(case: Case, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(case.seed * 16 + step)
    text = torch.randint(case.shape.vocabulary, (case.shape.batch, case.shape.tokens + 1), generator=generator)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def part_of(case: Case, world: World, tokens: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A rank's share of a batch: part of each micro-batch, as Megatron's sampler deals them out."""
    for axis in ("dp", *(("ep",) if case.dispatch else ())):
        ranks, place = world.size(axis), world.place(axis)
        tokens, labels = (part.unflatten(0, (micro_batches(case), -1)).chunk(ranks, 1)[place].flatten(0, 1) for part in (tokens, labels))
    count, place = world.size("cp"), world.place("cp")
    if count > 1:
        tokens = own_tokens(tokens, world, place)
        labels = labels.chunk(count, 1)[place].contiguous() if case.fault == "labels" else own_tokens(labels, world, place)
    return tokens, labels


def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def stepped(pipeline: Any, world: World, tokens: torch.Tensor, labels: torch.Tensor) -> None:
    """Forward and backward of a pipeline."""
    first, last = world.place("pp") == 0, world.place("pp") == world.size("pp") - 1
    pipeline.step(*([tokens] if first else []), target=labels if last else None)


def run(case: Case, output: Path) -> None:
    world = world_of(case)
    model = spread(case, world)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-2) if case.optimizer == "adamw" else torch.optim.SGD(parameters, lr=1e-1)
    torch.manual_seed(case.seed + (world.place("tp") if case.fault == "dropout" else 0))
    pipeline, micro = None, micro_batches(case)
    stages = Stages(chunks_of(model), world, micro, loss_of, case.fault == "unscaled") if world.size("pp") > 1 and case.schedule == "hand" else None
    if world.size("pp") > 1 and stages is None:
        stage = PipelineStage(model, world.place("pp"), world.size("pp"), torch.device("cpu"), group=world.groups["pp"])
        kind = ScheduleGPipe if case.schedule == "gpipe" else Schedule1F1B
        pipeline = kind(stage, micro, loss_fn=loss_of, scale_grads=case.fault != "unscaled")
    if pipeline is not None:
        # The first step runs each stage once more, to learn the shapes of what stages exchange.
        stepped(pipeline, world, *part_of(case, world, *data(case, 0)))
        optimizer.zero_grad()
    batches = [part_of(case, world, *data(case, step)) for step in range(case.steps)]
    settings: dict[str, Any] = {"level": case.level, "task": case.task, "stacks": False, "overwrite": True}
    with probe.capture(output, model=model, steps=list(range(case.steps)), **settings):
        for tokens, labels in batches:
            if stages is not None:
                stages.step(tokens, labels)
            elif pipeline is not None:
                stepped(pipeline, world, tokens, labels)
            elif micro > 1:
                for own, due in zip(tokens.chunk(micro), labels.chunk(micro)):
                    (loss_of(model(own), due) / (1 if case.fault == "unscaled" else micro)).backward()
            elif case.split_loss:
                vocabulary_loss(model(tokens).flatten(0, 1).float(), labels.flatten(), world).backward()
            else:
                loss_of(model(tokens), labels).backward()
            shared_gradients(model, case, world)
            if case.clip:
                clipped(model, case, world)
            optimizer.step()
            optimizer.zero_grad()
