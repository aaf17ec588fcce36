"""`probe.rollout.record` writes what `probe rollout` reads: tensors, lists, padding, ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import probe

ROWS, PROMPT, LENGTH = 6, 5, 24


def compared(*paths: object) -> tuple[int, dict]:
    program = [os.environ["PROBE_BIN"]] if "PROBE_BIN" in os.environ else [sys.executable, "-m", "probe"]
    done = subprocess.run([*program, "rollout", *map(str, paths), "--format", "json"], capture_output=True, text=True)
    assert done.returncode in (0, 1, 3), done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    rollout = -3 * torch.rand(ROWS, LENGTH, generator=random)
    attention = torch.ones(ROWS, PROMPT + LENGTH, dtype=torch.long)
    for row in range(ROWS):
        attention[row, :row] = 0
    attention[2, PROMPT + 9 :] = 0
    mask = attention[:, PROMPT:].bool()
    return {
        "tokens": torch.randint(0, 1000, (ROWS, LENGTH), generator=random),
        "rollout": rollout,
        "trainer": rollout + 0.001 * torch.randn(ROWS, LENGTH, generator=random),
        "mask": mask,
        "attention_mask": attention,
    }


def test_both_sides_in_one_file(tmp_path: Path, batch: dict[str, torch.Tensor]) -> None:
    path = probe.rollout.record(tmp_path, step=3, rank=1, versions=[2] * ROWS, **batch)
    assert Path(path).name == "step3-rank1.parquet"
    code, report = compared(path)
    assert (code, report["tokens"], report["steps"][0]["step"]) == (0, (ROWS - 1) * LENGTH + 9, 3)
    wrong = dict(batch, trainer=batch["rollout"].roll(1, 1))
    code, report = compared(probe.rollout.record(tmp_path / "wrong", step=3, **wrong))
    assert (code, [cause["cause"] for cause in report["causes"]]) == (1, ["shift"])


def test_two_programs_write_two_folders(tmp_path: Path, batch: dict[str, torch.Tensor]) -> None:
    names = [f"prompt-{row}" for row in range(ROWS)]
    half = {name: batch[name] for name in ("tokens", "mask", "attention_mask")}
    order = list(reversed(range(ROWS)))
    probe.rollout.record(tmp_path / "rollout", step=0, samples=names, rollout=batch["rollout"], **half)
    turned = {name: value[order] for name, value in {**half, "trainer": batch["trainer"]}.items()}
    probe.rollout.record(tmp_path / "trainer", step=0, samples=[names[row] for row in order], **turned)
    code, report = compared(tmp_path / "rollout", tmp_path / "trainer")
    assert (code, report["joined"], report["tokens"]) == (0, "samples were joined by name", (ROWS - 1) * LENGTH + 9)


def test_experts_of_both_sides(tmp_path: Path, batch: dict[str, torch.Tensor]) -> None:
    random = torch.Generator().manual_seed(1)
    experts = torch.rand(ROWS, LENGTH, 2, 8, generator=random).topk(2, -1).indices
    margins = torch.rand(ROWS, LENGTH, 2, generator=random)
    code, report = compared(probe.rollout.record(tmp_path, step=0, rollout_experts=experts, trainer_experts=experts, trainer_margins=margins, **batch))
    assert code == 0 and any("0.00 % of the choices of experts differ" in note for note in report["steps"][0]["notes"]), report
    other = torch.cat([experts[:, :, :1], (experts[:, :, 1:] + 1) % 8], 2)
    code, report = compared(probe.rollout.record(tmp_path / "other", step=0, rollout_experts=experts, trainer_experts=other, **batch))
    assert (code, [cause["cause"] for cause in report["causes"]]) == (1, ["routing"])
    with pytest.raises(ValueError, match="experts have rows of other lengths"):
        probe.rollout.record(tmp_path, step=1, rollout_experts=experts[:, 1:], **batch)


@pytest.mark.parametrize(("weights", "activations", "group"), [("fp8", "fp8", 0), ("int8", None, 0), ("int4", None, 4)])
def test_a_model_is_quantised_inside_of_the_block_alone(weights: str, activations: str | None, group: int) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8))
    inputs = torch.randn(5, 8)
    before, kept = model(inputs), model[0].weight.data.clone()
    with probe.rollout.quantized(model, weights, activations, group=group):
        inside = model(inputs)
        levels = model[0].weight.data.unflatten(-1, (-1, group or 8))
        if weights != "fp8":
            steps = levels / (levels.abs().amax(-1, keepdim=True) / {"int8": 127, "int4": 7}[weights])
            assert torch.allclose(steps, steps.round(), atol=1e-4)
    assert torch.equal(model(inputs), before) and torch.equal(model[0].weight.data, kept)
    assert 1e-4 < ((inside - before).norm() / before.norm()).item() < 0.3
    with pytest.raises(ValueError, match="unknown format"), probe.rollout.quantized(model, "int3"):
        pass
    with pytest.raises(ValueError, match="no linear layers"), probe.rollout.quantized(torch.nn.ReLU()):
        pass


def test_lists_of_rows_may_have_any_lengths(tmp_path: Path) -> None:
    rows = [[-1.0, -2.0, -0.5], [-0.1]]
    code, report = compared(probe.rollout.record(tmp_path, step=0, rollout=rows, trainer=rows))
    assert (code, report["tokens"], report["steps"][0]["samples"]) == (0, 4, 2)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    rows = [[-1.0, -2.0]]
    with pytest.raises(ValueError, match="needs rollout or trainer"):
        probe.rollout.record(tmp_path, step=0, tokens=rows)
    with pytest.raises(ValueError, match="mask has rows of other lengths"):
        probe.rollout.record(tmp_path, step=0, rollout=rows, mask=[[1]])
    with pytest.raises(ValueError, match="1 rows, but 2 samples"):
        probe.rollout.record(tmp_path, step=0, rollout=rows, samples=["a", "b"])
    with pytest.raises(ValueError, match="fewer than the 2 of the response"):
        probe.rollout.record(tmp_path, step=0, rollout=rows, attention_mask=[[1]])
    assert not list(tmp_path.iterdir())
