"""The line of `probe capture` when the program ends: what was recorded and where, or why there is nothing."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import fork_server
import pytest

TRAIN = """
    import os, sys, torch
    import probe
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    def train_step(number):
        loss = model(torch.ones(2, 4) * number).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    def train(steps):
        for number in range(steps):
            loss = train_step(number)
        return loss
"""

RECORDED = re.compile(
    r"probe: recorded (?P<steps>steps? [\d,-]+), (?P<rank>rank .+): (?P<ops>[\d,]+) ops?, "
    r"[\d.]+ (B|KiB|MiB), [\d.]+ s spent measuring and writing; in (?P<folder>\S+); next: probe compare -b (?P=folder) -c OTHER"
)


def said(tmp_path: Path, program: str, *options: str, output: str = "dump") -> list[str]:
    """Returns what a program below the command printed to standard error."""
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAIN) + textwrap.dedent(program))
    done = subprocess.run(
        [sys.executable, "-m", "probe", "capture", "-o", output, *options, "--", fork_server.python(), "train.py"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stderr.splitlines()


def folders(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "dump").glob("step*"))


def test_the_end_line(tmp_path: Path) -> None:
    (line,) = said(tmp_path, "print(train(4).item())", "--steps", "0,2-3")
    found = RECORDED.fullmatch(line)
    assert found, line
    assert (found["steps"], found["rank"], found["folder"]) == ("steps 0,2-3", "rank 0", "dump")
    listed = subprocess.run([sys.executable, "-m", "probe", "inspect", "dump"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert sum(int(count) for count in re.findall(r"(\d+) ops$", listed.stdout, re.M)) == int(found["ops"].replace(",", ""))


def test_quiet_leaves_it_out(tmp_path: Path) -> None:
    assert said(tmp_path, "train(2)", "--steps", "1", "--quiet") == []
    (tmp_path / "probe.toml").write_text("quiet = true")
    assert said(tmp_path, "train(2)", "--steps", "0", "--config", "probe.toml", output="other") == []


def test_tensors_that_could_not_be_measured_are_counted(tmp_path: Path) -> None:
    lines = said(tmp_path, "train(1); torch.ones(2, device='meta') + 1; torch.zeros(8, dtype=torch.uint8).view(torch.bits8)", "--steps", "1")
    # There is nothing to measure on the device `meta`.
    counted = "1 of 6 tensors could not be measured, so comparisons will be incomplete; first Tensor.view.0.forward output.0: torch.bits8 is not measured"
    assert RECORDED.fullmatch(lines[0]) and lines[1:] == [f"probe: {counted}"], lines


def test_what_could_not_be_measured_is_said_though_quiet(tmp_path: Path) -> None:
    unmeasured = "zeros = torch.zeros(8, dtype=torch.uint8).view(torch.bits8)"
    (line,) = said(tmp_path, f"train(1); {unmeasured}", "--steps", "1", "--quiet")
    assert "1 of 3 tensors could not be measured" in line, line


@pytest.mark.parametrize("task", ["sketch", "tensor"])
def test_a_print_after_the_loop_is_no_step(tmp_path: Path, task: str) -> None:
    (line,) = said(tmp_path, "loss = train(2); print(loss.item())", "--task", task)
    assert line.startswith("probe: recorded steps 0-1, ") and folders(tmp_path) == ["step0", "step1"]


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (["--include", "gelx"], ["include: 'gelx' matched nothing; did you mean 'Functional.gelu'?", "nothing was recorded: no op of steps 0-2 was selected"]),
        (["--exclude", "1.layer", "--steps", "1"], ["exclude: '1.layer' matched nothing", "recorded step 1"]),
        (["--include", "torch.nn.functional.linar"], ["warning: include: 'torch.nn.functional.linar' is not a torch function; did you mean", "nothing was recorded"]),
        (["--include", "Functional.relu"], ["include: 'Functional.relu' matched nothing; did you mean 'Functional.gelu'?", "nothing was"]),
        (["--include", "gelu", "--include", "*.gelu"], ["include: 'gelu' matched nothing; did you mean 'Functional.gelu'?", "recorded steps 0-2"]),
        (["--steps", "100"], ["nothing was recorded: recording ended after 3 iterations, counted from 0 by the optimizer's steps, and steps 100 were to be recorded"]),
        (["--steps", "3"], ["nothing was recorded: recording ended after 3 iterations"]),
        (["--steps", "2,50-60"], ["recorded step 2", "steps 50-60 were not reached: recording ended after 3 iterations"]),
        (["--steps", "1-5"], ["recorded steps 1-2", "steps 3-5 were not reached"]),
        (["--level", "save"], ["nothing was recorded: probe.save() was not called in steps 0-2"]),
    ],
)  # fmt: skip
def test_what_matched_nothing_is_said(tmp_path: Path, options: list[str], lines: list[str]) -> None:
    found = said(tmp_path, "train(3)", *options)
    assert len(found) == len(lines), found
    for line, expected in zip(found, lines):
        assert line.startswith(f"probe: {expected}"), found


@pytest.mark.parametrize("step_on", ["train_step", "program", "model", "Sequential", "__main__.train_step", "torch.optim.AdamW.step"])
def test_iterations_end_where_the_user_says(tmp_path: Path, step_on: str) -> None:
    # `train_step` is under way when the first module is called, and with it when it is found.
    program = "for number in range(5):\n    train_step(number); probe.step() if sys.argv[1:] else None\n"
    (line,) = said(tmp_path, program.replace("sys.argv[1:]", repr(step_on == "program")), "--steps", "1,3", "--step-on", step_on, "--level", "module")
    assert line.startswith("probe: recorded steps 1,3, rank 0: "), line
    for step in (1, 3):
        listed = subprocess.run(
            [sys.executable, "-m", "probe", "inspect", f"dump/step{step}", "--op", "Module.0.Linear.forward.0"],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert f"min {step:.6f}e0 max {step:.6f}e0" in listed.stdout, listed.stdout


def test_the_program_says_where_iterations_end(tmp_path: Path) -> None:
    # Two steps of the optimizer an iteration: only the program knows.
    program = "for number in range(3):\n    train_step(number); train_step(number); probe.step()\n"
    lines = said(tmp_path, program, "--steps", "1-2")
    assert [line.partition(", rank")[0] for line in lines] == ["probe: recorded steps 1-2"]
    lines = said(tmp_path, program, "--steps", "0", output="first")
    assert lines[1].startswith("probe: recording ended by the optimizer's steps before the program called probe.step() for the first"), lines


def test_a_program_without_an_optimizer_is_told_how_to_count(tmp_path: Path) -> None:
    program = "with torch.no_grad():\n    for number in range(3):\n        model(torch.ones(2, 4))\n"
    lines = said(tmp_path, program)
    assert lines[0].startswith("probe: recorded step 0, ")
    assert lines[1].startswith("probe: no optimizer stepped, so everything is iteration 0; count calls of the model")
    lines = said(tmp_path, program, "--steps", "2", output="late")
    assert len(lines) == 1 and "recording ended after 0 iterations" in lines[0] and "--step-on model" in lines[0]
    assert said(tmp_path, program, "--steps", "2", "--step-on", "model", output="model")[0].startswith("probe: recorded step 2, ")
    lines = said(tmp_path, program, "--step-on", "train_stpe", output="typo")
    assert lines[1] == "probe: step_on: 'train_stpe' is neither a function that was found nor a module that was called; did you mean 'train_step'?"


def test_one_rank_speaks_for_all(tmp_path: Path) -> None:
    launcher = """
    import os, subprocess, sys
    if "RANK" not in os.environ:
        ranks = [subprocess.Popen([sys.executable, "train.py"], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "3"}) for rank in range(3)]
        sys.exit(max(rank.wait() for rank in ranks))
    train(2)
    """
    (line,) = said(tmp_path, launcher, "--steps", "1", "--ranks", "1-2")
    assert line.startswith("probe (rank 1): recorded step 1, rank 1 of 3: "), line
    lines = said(tmp_path, launcher, "--steps", "1", "--ranks", "8", output="none")
    assert [line for line in lines if "(rank" in line] == [
        "probe (rank 0): nothing is recorded: there are 3 ranks, counted from 0, and ranks 8 were to record"
    ]


def test_a_perturbed_run_says_so_wherever_it_is_looked_at(tmp_path: Path) -> None:
    said(tmp_path, "train(2)", output="plain")
    recorded, changed = said(tmp_path, "train(2)", "--perturb", "3")
    assert recorded.endswith("next: probe compare -b BASELINE -c OTHER --noise dump")
    assert changed.startswith("probe: this was not an ordinary run: --perturb 3 moved 4 weights and 2 inputs by one rounding")

    def probe(*arguments: str) -> str:
        done = subprocess.run([sys.executable, "-m", "probe", *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        # Lines break where the terminal ends.
        return " ".join(done.stdout.split())

    note = "dump was recorded with --perturb 3: its weights and inputs were moved by one rounding"
    assert note in probe("inspect", "dump")
    assert note in probe("compare", "plain", "dump")
    assert "--perturb" not in probe("inspect", "plain")
    compared = probe("compare", "plain", "plain", "--noise", "dump")
    assert "noise floor raised by dump" in compared and note not in compared
