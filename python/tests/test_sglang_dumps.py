"""Values that the dumper of SGLang wrote on many ranks, with the dimensions and the places of ranks that it writes beside them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

COMMAND = [os.environ["PROBE_BIN"]] if "PROBE_BIN" in os.environ else [sys.executable, "-m", "probe"]
CONTEXT, TENSOR = 2, 2


def written(folder: Path, rank: int, index: int, name: str, value: object, dims: str, places: dict[str, int]) -> None:
    folder.mkdir(exist_ok=True)
    meta = {"name": name, "rank": rank, "step": 0, "dims": dims, "sglang_parallel_info": places}
    file = f"step=0___rank={rank}___dump_index={index}___name={name}___recompute_status=disabled.pt"
    torch.save({"value": value, "meta": meta}, folder / file)


def one(folder: Path, values: dict[str, object]) -> Path:
    for index, (name, value) in enumerate(values.items()):
        written(folder, 0, index, name, value, "b s h", {"tp_rank": 0, "tp_size": 1, "cp_rank": 0, "cp_size": 1})
    return folder


def many(folder: Path, values: dict[str, torch.Tensor], dims: str = "b s[cp:zigzag,sp] h", wrong: int | None = None) -> Path:
    """Zigzag context parallelism; within it, sequence parallelism for one value, tensor parallelism for the other."""
    for rank in range(CONTEXT * TENSOR):
        context, tensor = divmod(rank, TENSOR)
        places = {"tp_rank": tensor, "tp_size": TENSOR, "cp_rank": context, "cp_size": CONTEXT}
        for index, (name, value) in enumerate(values.items()):
            chunks = value.chunk(2 * CONTEXT, 1)
            part = torch.cat((chunks[context], chunks[2 * CONTEXT - 1 - context]), 1)
            of_sequence = name == "hidden"
            part = part.chunk(TENSOR, 1 if of_sequence else 2)[tensor].clone()
            if of_sequence and rank == wrong:
                part *= 1.3
            written(folder, rank, index, name, part, dims if of_sequence else "b s[cp:zigzag] (heads*dim)[tp]", places)
    return folder


def compared(baseline: Path, candidate: Path) -> tuple[int, dict | None, str]:
    command = [*COMMAND, "compare", "-b", baseline, "-c", candidate, "-o", "-", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)["first_divergence"] if done.stdout else None, done.stderr


def test_dimensions_say_how_ranks_are_joined(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    values = {"hidden": torch.randn(2, 16, 8, generator=generator), "attention": torch.randn(2, 16, 24, generator=generator)}
    baseline = one(tmp_path / "one", values)
    code, first, error = compared(baseline, many(tmp_path / "sound", values))
    assert (code, first) == (0, None), error
    code, first, _ = compared(baseline, many(tmp_path / "wrong", values, wrong=3))
    assert code == 1 and first and "only rank 3's shard differs" in first["reason"], first
    # The text leaves out that the sequence is zigzag.
    code, _, error = compared(baseline, many(tmp_path / "text", values, dims="b s[cp,sp] h"))
    assert code == 2 and 'another layout, which was found without it' in error and 'its dims "b s[cp,tp] h" were recorded' in error, error
    code, _, error = compared(baseline, many(tmp_path / "sizes", values, dims="b s h[tp]"))
    assert code == 2 and "recorded [2, 4, 8]" in error and error.count("\n") == 1, error
    incomplete = many(tmp_path / "incomplete", values)
    for file in incomplete.glob("*rank=2*"):
        file.unlink()
    code, _, _ = compared(baseline, incomplete)
    assert code == 3


def test_the_axes_of_a_servers_attention_are_those_of_its_ranks(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(2)
    value = torch.randn(2, 16, 8, generator=generator)
    baseline = tmp_path / "one"
    written(baseline, 0, 1, "hidden", value, "b s[attn_cp:zigzag] h[attn_tp]", {"tp_rank": 0, "tp_size": 1, "attn_cp_rank": 0, "attn_cp_size": 1})
    for dims in ("b s[attn_cp:zigzag] h[attn_tp]", "b s[cp:zigzag] h"):
        candidate = tmp_path / dims.replace(" ", "")
        for rank in range(2):
            chunks = value.chunk(4, 1)
            # SGLang's ranks of tensor parallelism are those of context parallelism in attention.
            places = {"tp_rank": rank, "tp_size": 2, "attn_cp_rank": rank, "attn_cp_size": 2, "attn_tp_rank": 0, "attn_tp_size": 1}
            part = torch.cat((chunks[rank], chunks[3 - rank]), 1)
            written(candidate, rank, 1, "hidden", part, dims, places)
        code, first, error = compared(baseline, candidate)
        assert (code, first) == (0, None), error
        written(candidate, 1, 1, "hidden", part * 1.1, dims, places)
        code, first, error = compared(baseline, candidate)
        assert code == 1 and first and "only rank 1's shard differs" in first["reason"], (first, error)
