"""Writes two checkpoints of a Llama of about 8 GB, for measuring: large.py SOURCES FOLDER [LAYERS]. `hf` holds shards of 2 GB, `megatron` the files of two
ranks of tensor parallelism, converted by mbridge."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import numpy
import torch
from of_trainers import ATTENTION, MLP, bridge, layers, split
from of_transformers import config
from pairs import Size, Weights, file
from safetensors.torch import save_file
from sources import Sources

SHARD = 2 << 30


def drawn(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Random bfloat16 numbers between 0.008 and 2 in size, by name."""
    count = int(numpy.prod(shape))
    bits = numpy.frombuffer(numpy.random.default_rng(zlib.crc32(name.encode())).bytes(2 * count), numpy.uint16)
    return torch.from_numpy((bits & 0x83FF | 0x3C00).view(numpy.int16)).view(torch.bfloat16).reshape(shape)


def shapes(size: Size) -> dict[str, tuple[int, ...]]:
    from transformers import LlamaForCausalLM

    with torch.device("meta"):
        return {name: tuple(value.shape) for name, value in LlamaForCausalLM(config(size)).state_dict().items()}


def main(sources: Path, folder: Path, count: int = 21) -> None:
    size = Size(heads=32, groups=8, head=128, inner=11008, layers=count, experts=1, words=32000, tensor=2, stages=1)
    (folder / "hf").mkdir(parents=True)
    shard: Weights = {}
    number, due = 0, shapes(size)
    for at, (name, shape) in enumerate(due.items()):
        shard[name] = drawn(name, shape)
        if sum(value.nbytes for value in shard.values()) > SHARD or at == len(due) - 1:
            number += 1
            save_file(shard, folder / "hf" / f"model-{number:05d}.safetensors")
            shard = {}
    made = bridge(Sources(sources), "llama", "LLaMABridge", size, config(size), None, torch.bfloat16)
    for rank in range(2):
        own: Weights = {}
        for name in layers(size, ATTENTION, MLP):
            theirs = made._weight_name_mapping_mcore_to_hf(name)
            whole = made._weight_to_mcore_format(name, [drawn(one, due[one]) for one in theirs])
            own[name] = made._weight_split_across_tp(name, whole, split(name, whole, 2), 2)[rank].clone()
        file({"model": own, "iteration": 10}, folder / "megatron" / f"mp_rank_{rank:02d}" / "model_optim_rng.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
