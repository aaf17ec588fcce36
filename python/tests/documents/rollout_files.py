"""Records of trainings as verl, TRL, NeMo-RL and slime leave them, made of one real pair each."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch

import probe

from .blocks import ROOT

DATA = ROOT / "testdata" / "rollout"


def rows(name: str) -> list[dict[str, Any]]:
    """The samples of a file of NeMo-RL, without the list of one around each value."""
    lines = [json.loads(line) for line in (DATA / name).read_text().splitlines()]
    return [{key: value[0] if isinstance(value, list) else value for key, value in line.items()} for line in lines]


def prepare(folder: Path) -> None:
    """Writes the files that docs/rollout.md names."""
    (folder / "logs" / "exp_001").mkdir(parents=True)
    shutil.copy(DATA / "bf16_logprobs_off_by_one.jsonl", folder / "logs" / "exp_001" / "train_data_step1.jsonl")
    for name in ("logprobs", "debug"):
        (folder / name).mkdir()
    torch.save(verl(rows("bf16_rows_swapped.jsonl")), folder / "logprobs" / "batch_step_12.pt")
    batch = columns(rows("bf16_temperature_not_in_trainer.jsonl"))
    probe.rollout.record(
        folder / "trl", step=1, tokens=batch["token_ids"], mask=batch["token_loss_mask"], rollout=batch["generation_logprobs"], trainer=batch["prev_logprobs"]
    )
    for name, samples in zip(("rollout_1", "train_1_0"), slime(rows("bf16_good.jsonl"))):
        torch.save({"rollout_id": 1, "samples": samples}, folder / "debug" / f"{name}.pt")


def columns(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    names = ("token_ids", "token_loss_mask", "generation_logprobs", "prev_logprobs")
    return {name: torch.tensor([sample[name] for sample in samples]) for name in names}


def verl(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Sequences without a prompt of their own: prompts are masked."""
    batch = columns(samples)
    length = batch["token_ids"].shape[1]
    attention = torch.tensor([[int(at < int(sample["input_lengths"])) for at in range(length)] for sample in samples])
    return {
        "responses": batch["token_ids"],
        "attention_mask": attention,
        "response_mask": batch["token_loss_mask"],
        "rollout_log_probs": batch["generation_logprobs"],
        "old_log_probs": batch["prev_logprobs"],
    }


def slime(samples: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rollout's samples and the trainer's, in another order."""
    rollout, trainer = [], []
    for index, sample in enumerate(samples):
        length = int(sample["input_lengths"])
        first = next(at for at, mask in enumerate(sample["token_loss_mask"]) if mask)
        ours = {"tokens": sample["token_ids"][:length], "response_length": length - first}
        rollout.append({"index": index, **ours, "rollout_log_probs": sample["generation_logprobs"][first:length], "weight_versions": ["1"]})
        trainer.append({"sample_index": index, **ours, "log_probs": torch.tensor(sample["prev_logprobs"][first:length])})
    return rollout, trainer[::-1]
