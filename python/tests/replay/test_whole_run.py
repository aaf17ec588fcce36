"""`probe verify` and `probe compare --confirm`: every call of a run against float64."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import probe
from probe.replay import answer, command, errors, fault, one
from probe.replay.recorded import NotReplayed, Recording

TESTDATA = Path(__file__).resolve().parents[3] / "testdata"
FAULTS = TESTDATA / "faults"


def cases(*names: str) -> list[Any]:
    every = {case["name"]: case for case in tomllib.loads((FAULTS / "cases.toml").read_text())["case"]}
    return [pytest.param(every[name], id=name) for name in names]


def verified(capsys: pytest.CaptureFixture[str], path: Path, *more: str) -> tuple[int, dict[str, Any]]:
    code = command.main("verify", [str(path), "--format", "json", *more])
    return code, json.loads(capsys.readouterr().out)


class OtherSums(TorchDispatchMode):
    """A device that computes products otherwise: in float64, or as given."""

    def __init__(self, product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = lambda a, b: a.double() @ b.double()) -> None:
        super().__init__()
        self.product = product

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result.copy_(self.product(*args)) if func is torch.ops.aten.mm.default else result


def test_a_fault_is_found_without_another_run(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = verified(capsys, TESTDATA / "npu_dump")
    assert code == 1 and {each["op"] for each in found["faults"]} == {"Functional.gelu.1.forward"}
    assert not found["kinds"]
    code, found = verified(capsys, TESTDATA / "gpu_dump")
    assert code == 0 and not found["faults"] and found["replayed"] > 60


def test_the_answer_ends_in_the_next_command(capsys: pytest.CaptureFixture[str]) -> None:
    dump = str(TESTDATA / "npu_dump")
    assert command.main("verify", [dump]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"next: probe replay {dump} --op Functional.gelu.1.forward -o repro"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--device", "npu:0"], "--device npu:0: torch has no such device here; add --import torch_npu"),
        (["--device", "bogus"], "--device bogus: torch has no such device here"),
        (["--times", "0"], "argument --times: '0' is not a whole number from 1 on"),
        (["--threads", "0"], "argument --threads: '0' is not a whole number from 1 on"),
    ],
)
def test_a_wrong_option_is_one_line_with_what_to_do(capsys: pytest.CaptureFixture[str], more: list[str], said: str) -> None:
    if "npu:0" in more and hasattr(torch, "npu"):
        pytest.skip("torch_npu is here")
    assert command.main("replay", [str(TESTDATA / "npu_dump"), "--op", "Functional.gelu.1.forward", *more]) == 2
    assert capsys.readouterr().err.splitlines()[0].startswith(f"error: {said}")


@pytest.mark.parametrize(
    "case",
    cases(
        "conv_conv_element_L1_tensor", "conv_fc_row_L1_tensor", "rec_bag_swap_L1_tensor", "gpt_linear_fp16_L1_tensor", "conv_round_bn_backward_L1_tensor",
        "conv_round_mix_tensor", "density_round_L1_tensor", "conv_bf16_round_L1_tensor", "conv_fp32_bf16_L1_tensor", "conv_threads_L1_tensor",
    ),
)  # fmt: skip
def test_the_corpus_is_answered(case: dict[str, Any]) -> None:
    sides = [{part.step: fault.measure(part) for part in Recording(str(FAULTS / case[side])).parts()} for side in ("baseline", "candidate")]
    named = {found.op for step, measured in sides[1].items() for found in fault.judge(measured, sides[0].get(step))}
    assert named == set(case.get("ops", []))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(20, 16), nn.LayerNorm(16)
        self.attention, self.head = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 20)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(tokens)
        hidden = hidden + self.attention(*[self.norm(hidden)] * 3, need_weights=False)[0]
        return nn.functional.cross_entropy(self.head(nn.functional.gelu(hidden)).flatten(0, 1), tokens.flatten())


@pytest.mark.parametrize("level", ["op", "mix"])
def test_a_sound_training_is_right(tmp_path: Path, level: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(1)
    model, tokens = Model(), torch.randint(20, (2, 6))
    optimizer = torch.optim.AdamW(model.parameters(), fused=False)
    with probe.capture(tmp_path / "dump", task="tensor", level=level, step_on="program"):
        model(tokens).backward()
        optimizer.step()
    code, found = verified(capsys, tmp_path / "dump")
    assert code == 0, found
    assert found["replayed"] > 25 and all("optimizer" in gap["reason"] for gap in found["gaps"]), found["gaps"]


class Options(nn.Module):
    """Modules whose results depend on options that a dump lacks."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8)
        self.deep, self.groups = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8, bias=False), nn.GroupNorm(4, 8, eps=1e-6)
        self.slope, self.gelu, self.last = nn.LeakyReLU(0.2), nn.GELU(approximate="tanh"), nn.LayerNorm(4, eps=1e-12)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.groups(self.deep(self.slope(self.norm(self.conv(images)))))
        return torch.softmax(self.last(self.gelu(hidden)), 1)


def test_modules_are_rebuilt_with_their_options(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = Options()
    with probe.capture(tmp_path / "dump", model=model, task="tensor", level="module", step_on="program"):
        model(torch.randn(4, 3, 8, 8)).square().sum().backward()
    (part,) = Recording(str(tmp_path / "dump")).parts()
    measured = fault.measure(part)
    assert {name.split(".")[2] for name in measured.errors if ".forward." in name} == {type(each).__name__ for each in model.children()}, measured.skipped
    assert not fault.judge(measured) and not fault.statements(measured)
    call = part.call("Module.deep.Conv2d.forward.0")
    call.results["0"] = torch.randn_like(call.results["0"])
    with pytest.raises(NotReplayed, match="none that are usual give its result"):
        errors.reference(call)
    call = part.call("Module.last.LayerNorm.forward.0")
    call.results["0"] = call.results["0"].roll(1, 0)
    assert errors.errors(call.results, errors.reference(call))[0].l2 > 0.1


def gradients(folder: Path, passes: int, shared: bool = False) -> Any:
    """Records the modules of some backward passes; returns the part."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Embedding(9, 6), nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 9, bias=False))
    if shared:
        model[3] = model[1]
        model[2] = nn.Linear(5, 6)
    tokens = torch.randint(9, (2, 7))
    with probe.capture(folder, model=model, task="tensor", level="module", step_on="program"):
        for _ in range(passes):
            model(tokens).square().sum().backward()
    (part,) = Recording(str(folder)).parts()
    return part


@pytest.mark.parametrize(("passes", "shared"), [(1, False), (3, False), (1, True)])
def test_gradients_of_parameters_are_those_of_the_passes(tmp_path: Path, passes: int, shared: bool) -> None:
    part = gradients(tmp_path / "dump", passes, shared)
    measured = fault.measure(part)
    names = [name for name in part.names if ".parameters_grad." in name]
    assert len(names) == passes * (3 if shared else 4) and all(name in measured.errors for name in names), measured.skipped
    assert not fault.judge(measured, measured) and not fault.statements(measured, measured)
    assert all(error.l2 < 1e-6 for name in names for error in measured.errors[name])
    embedding = next(name for name in names if "Embedding" in name)
    assert [error.path for error in measured.errors[embedding]] == ["weight"]


def test_a_wrong_gradient_of_a_parameter_is_named_against_the_other_side(tmp_path: Path) -> None:
    part, other = (gradients(tmp_path / name, 2) for name in ("candidate", "baseline"))
    name = "Module.1.Linear.parameters_grad.1"

    def scaled(call: Any) -> Any:
        call.results["weight"] = call.results["weight"] * 1.001
        return call

    rebuilt = part.call
    part.call = lambda asked, drawn=False: scaled(rebuilt(asked, drawn)) if asked == name else rebuilt(asked, drawn)
    found = one.replay(part, name, other, "cpu", 1)
    assert found.guilty == "candidate" and found.faults[0].path == "weight"
    assert one.replay(other, name, part, "cpu", 1).guilty == "baseline"
    assert one.replay(part, "Module.1.Linear.parameters_grad.0", other, "cpu", 1).guilty is None
    # Alone, nobody is accused: something else may have been added.
    alone = one.replay(part, name, None, "cpu", 1)
    assert alone.guilty is None and "--against another run tells" in answer.sentence(alone)
    assert not fault.judge(fault.measure(part))


def test_calls_at_fault_excuse_no_other() -> None:
    sizes = {"lstm.0": 0.3, "lstm.1": 0.2, "lstm.2": 0.1, "lstm.3": 0.2, "linear.0": 1e-3, "linear.1": 6e-8, "linear.2": 6e-8, "linear.3": 6e-8}
    found = {f"Torch.{name}.forward": [errors.Error("0", torch.float32, 4096, l2, l2, "")] for name, l2 in sizes.items()}
    measured = fault.Measured(errors=found, products=set(found))
    trusted = fault.Measured(errors={name: [errors.Error("0", torch.float32, 4096, 6e-8, 6e-8, "")] for name in found}, products=set(found))
    assert {each.op for each in fault.judge(measured, trusted)} == {f"Torch.{name}.forward" for name in (*list(sizes)[:5],)}
    # Where hardly any other call is left, what is left out says what the kind is off by.
    few = {f"Torch.{name}.forward": found[f"Torch.{name}.forward"] for name in ("lstm.0", "linear.0", "linear.1")}
    assert "Torch.linear.0.forward" not in {each.op for each in fault.judge(fault.Measured(errors=few, products=set(few)), None)}


def test_a_call_stays_at_fault_with_its_witnesses_gone() -> None:
    # The backward of the second is what shows it; once it is at fault, that is behind it, and the first alone would be left.
    sizes = {"lstm.0.forward": [0.3, 0.2, 0.3], "lstm.0.backward": [0.2, 0.1, 0.2, 0.1], "linear.0.forward": [1e-2], "linear.0.backward": [6e-8, 6e-8, 6e-8]}
    found = {f"Torch.{name}": [errors.Error(str(place), torch.float32, 4096, l2, l2, "") for place, l2 in enumerate(off)] for name, off in sizes.items()}
    trusted = {name: [replace(error, l2=6e-8, peak=6e-8) for error in results] for name, results in found.items()}
    measured, other = (fault.Measured(errors=each, products=set(found)) for each in (found, trusted))
    assert {each.op for each in fault.judge(measured, other)} == {"Torch.lstm.0.forward", "Torch.linear.0.forward"}


def test_results_of_nothing_show_no_precision(tmp_path: Path) -> None:
    # Most products of a step in bfloat16 read the NaN of one, or zeros that an adapter begins with.
    random = torch.Generator().manual_seed(5)
    coarse = OtherSums(lambda a, b: a.bfloat16().double() @ b.bfloat16().double())
    for nothing in (torch.nan, 0.0):
        dump = tmp_path / str(nothing)
        with probe.capture(dump, task="tensor", level="api", step_on="program"), coarse:
            for place in range(12):
                factors = (torch.randn(sizes, generator=random) for sizes in ((16, 32), (32, 16)))
                first, second = factors if place < 5 else (each * nothing for each in factors)
                torch.mm(first, second)
        measured = fault.measure(next(Recording(str(dump)).parts()))
        assert not fault.judge(measured), nothing
        (statement,) = fault.statements(measured)
        assert statement.precision == "bfloat16" and len(statement.calls) == 5, nothing


def test_numbers_from_a_generator_are_no_gap(tmp_path: Path) -> None:
    with probe.capture(tmp_path / "dump", task="tensor", level="api", step_on="program"):
        torch.sin(torch.rand(3, generator=torch.Generator().manual_seed(1)))
    measured = fault.measure(next(Recording(str(tmp_path / "dump")).parts()))
    assert not measured.gaps and set(measured.skipped) == {"Torch.rand.0.forward"}


def test_few_elements_may_be_off_by_what_one_may_be() -> None:
    products = {f"Torch.mm.{number}.forward": [errors.Error("0", torch.float32, 4096, 4e-8, 2e-7, "")] for number in range(6)}
    for count, is_wrong in ((1, False), (4, False), (4096, True)):
        found = products | {"Torch.dot.0.forward": [errors.Error("0", torch.float32, count, 4e-7, 4e-7, "")]}
        assert [each.op for each in fault.judge(fault.Measured(errors=found, products=set(found)))] == ["Torch.dot.0.forward"] * is_wrong, count


def test_a_damaged_tensor_makes_the_answer_incomplete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = shutil.copytree(TESTDATA / "gpu_dump", tmp_path / "dump")
    (damaged,) = dump.glob("step0/*/dump_tensor_data/Functional.gelu.1.forward.input.0.pt")
    damaged.write_bytes(damaged.read_bytes()[:1000])
    for name, more in (("verify", []), ("check-ops", ["-o", str(tmp_path / "checked")]), ("invariant", [])):
        assert command.main(name, [str(dump), *more]) == 3, name
        said = capsys.readouterr().err
        # Its backward reads the same file: it is told once.
        assert said.startswith(f"error: step 0 rank 0: {damaged}: ") and said.count("\n") == 1, said


@pytest.mark.parametrize("name", ["replay", "verify", "check-ops", "invariant"])
def test_a_changed_byte_is_the_reason_why_nothing_is_run(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with probe.capture("dump", task="tensor", step_on="program"):
        nn.functional.gelu(torch.ones(4, 3)) @ torch.ones(3, 2)
    ops = Path("dump/step0/rank0/ops.parquet")
    data = bytearray(ops.read_bytes())
    data[len(data) // 2] ^= 1
    ops.write_bytes(data)
    capsys.readouterr()
    assert command.main(name, ["dump", *(["--op", "Functional.gelu.0.forward"] if name == "replay" else [])]) == 2
    said = capsys.readouterr().err
    assert f"{ops}: has changed since it was written" in said and "no op matches" not in said and said.count("\n") == 1, said
    assert [path.name for path in Path().iterdir()] == ["dump"]


@pytest.mark.parametrize("name", ["verify", "check-ops", "invariant"])
def test_a_step_that_the_dump_lacks_is_named(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dump = str(TESTDATA / "gpu_dump")
    assert command.main(name, [dump, "--step", "9"]) == 2
    assert capsys.readouterr().err == f"error: {dump}: no such step or rank; it has step 0 rank 0\n"
    assert not list(tmp_path.iterdir())


def test_an_op_that_cannot_be_read_is_not_called_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = shutil.copytree(TESTDATA / "gpu_dump", tmp_path / "dump")
    (listed,) = dump.glob("step0/*/dump.json")
    listed.write_text(listed.read_text()[:5000])
    assert command.main("replay", [str(dump), "--op", "Functional.gelu.1.forward"]) == 2
    said = capsys.readouterr().err
    assert f"part of it cannot be read: {listed}: ends early" in said and "did you mean" not in said


@pytest.mark.parametrize("width", [80, 100])
def test_lines_are_as_wide_as_the_terminal(width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    op = "Functional.gelu.1.forward"
    for name, more in (("verify", []), ("replay", ["--op", op, "--against", str(TESTDATA / "gpu_dump")])):
        assert command.main(name, [str(TESTDATA / "npu_dump"), *more]) == 1
        said = capsys.readouterr().out
        assert all(len(line) <= width for line in said.splitlines() if not line.startswith("next: ")), said
        # Processors differ in what they make of an error function.
        ends = ("rounding)", "this machine's own error)") if name == "verify" else ("the candidate's kernel",)
        assert any(end in " ".join(said.split()) for end in ends), said


def test_a_run_without_data_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main("verify", [str(FAULTS / "gpt_gelu_scale_L1_statistics" / "candidate")]) == 2
    assert "record this op with task tensor" in capsys.readouterr().err


def test_each_result_of_products_has_a_level_of_its_own() -> None:
    # Attention in TF32: the logarithm of its sums is more exact than what it multiplies.
    calls = {f"Aten._scaled_dot_product_attention.{number}.forward" for number in range(6)}
    off = {"0": 1.7e-4, "1": 3e-6}
    found = {name: [errors.Error(path, torch.float32, 4096, l2, l2, "") for path, l2 in off.items()] for name in sorted(calls)}
    (statement,) = fault.statements(fault.Measured(errors=found, products=calls), None)
    assert (statement.kind, statement.precision, set(statement.calls)) == ("scaled_dot_product_attention", "TF32", calls)


def test_a_suspect_that_is_right_is_a_note(tmp_path: Path) -> None:
    torch.manual_seed(0)
    given, weight = torch.randn(32, 64), torch.randn(64, 32)
    sides = {"baseline": nullcontext(), "candidate": OtherSums()}
    for side, device in sides.items():
        with probe.capture(tmp_path / side, task="tensor", level="api", step_on="program"), device:
            made = torch.mm(given, weight)
            # What the comparison does not know: these make a rounding of their inputs ten thousand times larger.
            torch.mul(torch.special.bessel_j0(made * 1e4) + torch.tan(made * 1e4), 3.0)
    case = {side: tmp_path / side for side in sides}
    code, found = compared(case)
    suspects = {finding["op"] for finding in found["culprits"]}
    assert code == 1 and suspects == {"Torch.special.bessel_j0.0.forward", "Torch.tan.0.forward"}, found["culprits"]
    code, found = compared(case, "--confirm")
    assert (code, found["verdict"]) == (0, "agree"), found["culprits"]
    for op in suspects:
        assert f"{op} was suspected and is cleared by replay: replayed in float64, both sides are as right as rounding allows" in "\n".join(found["notes"])


def compared(case: dict[str, Any], *more: str) -> tuple[int, dict[str, Any]]:
    line = [sys.executable, "-m", "probe", "compare", str(FAULTS / case["baseline"]), str(FAULTS / case["candidate"]), "--format", "json", *more]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=os.environ)
    return done.returncode, json.loads(done.stdout or json.dumps({"error": done.stderr}))


@pytest.mark.parametrize("case", cases("conv_fc_row_L1_tensor", "conv_round_mix_tensor"))
def test_a_comparison_is_confirmed(case: dict[str, Any]) -> None:
    code, found = compared(case, "--confirm")
    assert (code, found["verdict"]) == (1 if "ops" in case else 0, case["verdict"]), found
    if "ops" in case:
        assert found["first_divergence"]["op"] in case["ops"]
        assert "replayed in float64, output.0 is" in found["first_divergence"]["reason"]
