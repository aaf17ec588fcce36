"""`probe replay`: a recorded call is rebuilt as it was, and the answer names the side that is wrong."""

from __future__ import annotations

import html
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import probe
from probe import _core
from probe.replay import answer as report
from probe.replay import command, errors, evaluate, fault, functions, one, precisions, script
from probe.replay.recorded import Call, NotReplayed, Recording, strided
from probe.replay.shrink import shrunk

TESTDATA = Path(__file__).resolve().parents[3] / "testdata"
PAIR = [str(TESTDATA / "npu_dump"), "--against", str(TESTDATA / "gpu_dump")]


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = command.main("replay", [*arguments, "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


def recorded(folder: Path, work: Any, level: str = "api") -> Any:
    """Records a step of `work` with data; returns its only part."""
    with probe.capture(folder, task="tensor", level=level, step_on="program"):
        work()
    (part,) = Recording(str(folder)).parts()
    return part


def test_the_faulty_call_is_the_candidates(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = answer(capsys, *PAIR, "--op", "Functional.gelu.1.forward")
    assert (code, found["guilty"]) == (1, "candidate")
    assert found["answer"].endswith("as far from float64 as the baseline: the candidate's kernel")
    assert found["candidate"][0]["l2"] > 1000 * found["baseline"][0]["l2"]


def test_the_other_way_round_it_is_the_baselines(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = answer(capsys, PAIR[2], "--against", PAIR[0], "--op", "Functional.gelu.1.forward")
    assert (code, found["guilty"]) == (1, "baseline")
    assert found["answer"].startswith("the baseline is ") and found["answer"].endswith("the baseline's kernel")


@pytest.mark.parametrize("op", ["Functional.linear.3.forward", "Functional.layer_norm.1.backward", "Torch.matmul.1.forward", "Functional.gelu.0.forward"])
def test_what_rounds_otherwise_is_nobodys_fault(op: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = answer(capsys, *PAIR, "--op", op)
    assert (code, found["guilty"]) == (0, None)


def test_the_page_of_a_report_shows_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert _core.main(["probe", "compare", PAIR[2], PAIR[0], "-q"]) == 1
    page = Path("probe-report/result.html")
    before = page.read_bytes()
    capsys.readouterr()
    gelu = [*PAIR, "--op", "Functional.gelu.1.forward", "--times", "1"]
    for arguments in (gelu, [*gelu, "--report", "probe-report"], [*PAIR, "--op", "Functional.gelu.0.forward"]):
        command.main("replay", arguments)
        assert capsys.readouterr().out.endswith("shown in: probe-report/result.html and probe-report/result.xlsx\n")
    kept = json.loads(Path("probe-report/replays.json").read_text())["replays"]
    assert [(each["op"], each["guilty"]) for each in kept] == [("Functional.gelu.1.forward", "candidate"), ("Functional.gelu.0.forward", None)]
    assert [row["of"] for row in kept[0]["results"][0]["rows"]] == ["baseline, recorded", "candidate, recorded", "replayed here, cpu"]
    assert page.read_bytes() != before
    with zipfile.ZipFile("probe-report/result.xlsx") as book:
        assert 'name="replays"' in book.read("xl/workbook.xml").decode()
        assert "baseline: the candidate's kernel" in html.unescape(book.read("xl/worksheets/sheet2.xml").decode())
    # Another comparison lies there: only who asks for it is told.
    other = [PAIR[2], "--against", PAIR[0], "--op", "Functional.gelu.1.forward"]
    command.main("replay", other)
    assert "shown in" not in capsys.readouterr().out
    for wrong, said in ((["--report", "probe-report"], "give the folder of a comparison of these dumps"), (["--report", "nowhere"], "nowhere/report.json: No such file")):
        assert command.main("replay", [*other, *wrong]) == 2
        assert said in capsys.readouterr().err


def test_the_table_names_its_standard(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main("replay", [*PAIR, "--op", "Functional.gelu.1.forward", "--times", "2"]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "fails benchmark L2: largest relative error" in text and "msprobe 26.2.0 acc_check" in text
    for row in ("baseline, recorded", "candidate, recorded", "replayed here, cpu"):
        assert row in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([PAIR[0], "--op", "Functional.gelu.1.backwrd"], "did you mean 'Functional.gelu.1.backward'?"),
        ([PAIR[0], "--op", "Functional.gelu.1.forward", "--step", "7"], "no such step or rank; it has step 0 rank 0"),
        (["/nowhere", "--op", "x"], "/nowhere: No such file"),
        ([PAIR[0], "--op", "Functional.gelu.1.forward", "--device", "tpu:9"], "--device tpu:9"),
        ([PAIR[0]], "--op"),
        ([str(TESTDATA / "faults" / "gpt_gelu_scale_L1_statistics" / "candidate"), "--op", "Functional.gelu.1.forward"], "record this op with task tensor"),
    ],
)
def test_misuse_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main("replay", arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and said in error and error.count("\n") == 1


def test_calls_are_rebuilt_as_they_were(tmp_path: Path) -> None:
    weight = torch.randn(3, 5, 7).transpose(0, 2)
    wide = torch.randn(1, 5, 3).expand(7, 5, 3)
    counts = torch.arange(24).reshape(2, 3, 4)[:, ::2]

    def work() -> None:
        torch.addcmul(weight, weight, wide, value=0.5)
        torch.sum(counts, dim=[0, 2])
        functional.pad(weight, (1, 2), "constant", float("inf"))

    part = recorded(tmp_path / "dump", work)
    call = part.call("Torch.addcmul.0.forward")
    first, second, third = call.args
    assert first is second and first.stride() == weight.stride() and torch.equal(first, weight)
    assert third.stride() == wide.stride() and torch.equal(third, wide)
    assert call.kwargs == {"value": 0.5}
    assert torch.equal(part.call("Torch.sum.0.forward").args[0], counts)
    pad = part.call("Functional.pad.0.forward")
    assert pad.args[1:] == [[1, 2]] and pad.kwargs == {"mode": "constant", "value": float("inf")}
    measured = fault.measure(part)
    assert len(measured.errors) == 3 and not fault.judge(measured)


def test_strides_of_a_file_are_not_believed() -> None:
    given = torch.arange(6.0).reshape(2, 3)
    for strides in ([1 << 40, 1], [1, 1], [-3, 1], [3]):
        assert strided(given, strides) is given, strides
    assert strided(given, [1, 2]).stride() == (1, 2) and torch.equal(strided(given, [1, 2]), given)


@pytest.mark.parametrize("api", ["Torch.load", "Torch.save", "Torch.compile", "Functional.torch", "Tensor.tofile", "Aten.from_file", "Aten.save", "C10d.send", "Os.system", "Torch.serialization.load"])
def test_a_dump_names_functions_of_tensors_alone(api: str) -> None:
    with pytest.raises(NotReplayed):
        functions.resolve(api)


def test_a_backward_is_autograd_on_what_was_recorded(tmp_path: Path) -> None:
    given, weight = torch.randn(6, 8, requires_grad=True), torch.randn(4, 8, requires_grad=True)
    square = torch.randn(5, requires_grad=True)

    def work() -> None:
        functional.linear(given, weight).square().sum().backward()
        torch.mul(square, square).sum().backward()

    part = recorded(tmp_path / "dump", work)
    measured = fault.measure(part)
    assert {"Functional.linear.0.backward", "Torch.mul.0.backward"} <= set(measured.errors), measured.skipped
    assert not fault.judge(measured)
    call = part.call("Functional.linear.0.backward")
    call.results["1"][2] *= 1.01
    assert errors.errors(call.results, errors.reference(call))[1].l2 > 1e-3


def product(precision: Any) -> Call:
    generator = torch.Generator().manual_seed(3)
    given, weight, bias = (torch.randn(*shape, generator=generator) for shape in ((16, 64), (32, 64), (32,)))
    return Call("Functional.linear.0.forward", [given, weight, bias], {}, {"0": precision(given, weight, bias)}, multiplies=True)


def rounded(tensor: torch.Tensor) -> torch.Tensor:
    """Rounds to 10 bits of the fraction: adds half a unit to the bits and cuts."""
    return ((tensor.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize(
    ("compute", "words"),
    [
        (lambda x, w, b: functional.linear(rounded(x), rounded(w), b), "inputs rounded to 10 bits (TF32)"),
        (lambda x, w, b: functional.linear(x.bfloat16().float(), w.bfloat16().float(), b), "inputs rounded to 7 bits (bfloat16)"),
        (lambda x, w, b: functional.linear(x.half(), w.half(), b.half()).float(), "computed in float16"),
        (lambda x, w, b: functional.linear(x, w, b) * 1.001, None),
    ],
)
def test_a_lower_precision_is_named(compute: Any, words: str | None) -> None:
    call = product(compute)
    found = precisions.explanation(call, "0", errors.reference(call))
    assert found is None if words is None else words in (found or ""), found


@pytest.mark.parametrize(("before", "now", "stays"), [(10.0, 6.0, False), (10.0, 9.5, True), (1e4, 2e3, True), (1e4, 20.0, False), (torch.inf, torch.inf, True), (torch.inf, 1e9, False)])
def test_a_call_stays_beyond_the_limit_while_it_shrinks(before: float, now: float, stays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "_ratio", lambda call, device, allowed: now if device == "npu:0" else 1.0)
    assert script._still_fails(Call("Torch.exp.0.forward", [torch.ones(2)], {}, {}), "npu:0", {}, before) is stays


def off(api: str, inputs: list[torch.Tensor], result: torch.Tensor) -> float:
    call = Call(f"{api}.0.forward", inputs, {}, {"0": result})
    (error,) = errors.errors(call.results, errors.reference(call))
    return error.peak


def test_at_a_pole_any_value_is_right() -> None:
    inputs = torch.tensor([-1.0, -2.0, 0.0, 0.5, 3.0])
    result = torch.digamma(inputs)
    result[:2] = torch.tensor([-1.3e7, torch.inf])
    assert off("Torch.digamma", [inputs], result) < 1e-6
    # An exact zero is no number beside the pole, and the other elements are judged.
    assert off("Torch.digamma", [inputs], result.where(inputs != 0, 7.0)) == torch.inf
    assert off("Torch.digamma", [inputs], result.where(inputs != 3, 1.0)) > 0.01
    assert off("Torch.digamma", [inputs], result.where(inputs != 3, torch.inf)) == torch.inf


def test_rounding_decides_what_is_beyond_the_largest_number() -> None:
    inputs = [torch.tensor([256.0, 2.0], dtype=torch.float16), torch.tensor([255.875, 3.0], dtype=torch.float16)]
    assert off("Torch.mul", inputs, torch.tensor([torch.inf, 6.0], dtype=torch.float16)) < 1e-3
    assert off("Torch.mul", inputs, torch.tensor([65504.0, torch.inf], dtype=torch.float16)) == torch.inf


def test_a_call_shrinks_while_it_fails() -> None:
    call = product(functional.linear)

    def fails(each: Call) -> bool:
        # The fault is in the last feature of the input and needs four rows.
        given, weight, _ = each.args
        if given.shape[0] < 4 or given.shape[1] != weight.shape[1]:
            return False
        return evaluate.here(each)["0"].dim() == 2 and bool(torch.isin(given[:, -1], call.args[0][:, -1]).all())

    small = shrunk(call, fails)
    assert small.args[0].shape[0] == 4 and small.args[0].shape[1] < 16 and small.args[1].shape[0] < 16


def test_a_call_that_reads_beyond_its_tensors_is_no_smaller_one() -> None:
    random = torch.Generator().manual_seed(4)
    # As many images as channels: their first dimensions are one size, and the channels of an image are another one's.
    norm = [torch.randn(2, 2, 8, 8, generator=random), *(torch.rand(2, generator=random) for _ in range(4)), True, 0.1, 1e-5]
    back = [torch.randn(8, 3, 4, 4, generator=random), torch.randn(8, 2, 6, 6, generator=random), torch.randn(3, 2, 3, 3, generator=random)]
    convolution = [*back, [3], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True]]
    for name, args, kept, same in (("Aten.native_batch_norm.0.forward", norm, 2, 1), ("Aten.convolution_backward.0.backward", convolution, 3, 0)):
        call = Call(name, args, {}, {})
        call.results = evaluate.here(call)
        # The fault needs all channels.
        small = shrunk(call, lambda each, kept=kept: each.args[0].shape[1] == kept and bool(evaluate.here(each)))
        sizes = [list(each.shape) for each in small.args[:3]]
        assert small.args[0].numel() < args[0].numel() and sizes[0][same] == sizes[1][0], (name, sizes)


def shared(x: torch.Tensor) -> torch.Tensor:
    return torch.mul(x, x)


def assigned(x: torch.Tensor) -> torch.Tensor:
    x[2:5] = x[0] / 3
    return x


@pytest.mark.parametrize(
    ("compute", "op"),
    [
        (lambda x: torch.topk(x, 3).values.sum(), "Torch.topk.0.forward"),
        (lambda x: torch.cumsum(torch.complex(x, -x), 0).abs().sum(), "Torch.cumsum.0.forward"),
        (lambda x: x.masked_fill(x > 1, float("-inf")).exp().sum(), "Tensor.masked_fill.0.forward"),
        (lambda x: shared(x).sum(), "Torch.mul.0.backward"),
        (lambda x: assigned(x.clone()).sum(), "Tensor.__setitem__.0.forward"),
        (lambda x: torch.outer(x[0].half(), x[1].half()).sum(), "Torch.outer.0.forward"),
        (lambda x: functional.layer_norm(x.transpose(0, 1), (8,)).sum(), "Functional.layer_norm.0.forward"),
    ],
)
def test_a_script_passes_where_the_result_is_right_and_fails_where_it_is_not(
    compute: Any, op: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = torch.randn(8, 16, generator=torch.Generator().manual_seed(2), requires_grad=True)
    part = recorded(tmp_path / "dump", lambda: compute(given).backward())
    outcome = one.replay(part, op, None, "cpu", 1)
    assert outcome.guilty is None
    outcome.candidate.call.results = {path: (result + 1 if result.dtype == torch.int64 else result * 1.5) for path, result in outcome.candidate.call.results.items()}
    outcome.candidate.measured.errors[op] = errors.errors(outcome.candidate.call.results, outcome.candidate.reference)
    outcome.faults = [each for each in fault.weigh(outcome.candidate.measured) if each.op == op and each.is_wrong]
    assert "replayed here it is right (1 of 1 replays)" in report.text(outcome)
    script.write(outcome, tmp_path / "repro", {})
    text = (tmp_path / "repro" / "repro.py").read_text()
    assert len(text.splitlines()) < 60
    code, times = ran(tmp_path / "repro", monkeypatch)
    assert not code
    assert max(times[label] for label in times if label.startswith("here")) < 8
    assert max(times[label] for label in times if label.startswith("as recorded")) > 100


def ran(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, dict[str, float]]:
    """Runs the script in a folder; returns its exit code, and how far off each of its lines says that a result is."""
    seen: list[str] = []
    monkeypatch.setattr(sys, "argv", ["repro.py", "cpu"])
    names = {"__name__": "__main__", "__file__": str(folder / "repro.py"), "print": seen.append}
    with pytest.raises(SystemExit) as ended:
        exec(compile((folder / "repro.py").read_text(), "repro.py", "exec"), names)
    return ended.value.code, {line.split(":")[0]: float(line.split(": ")[1].split()[0]) for line in seen}


class Scaled(TorchDispatchMode):
    """A device whose GELU is 2 % too large in every call."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 1.02 if func is torch.ops.aten.gelu.default else result


def test_a_kernel_that_is_wrong_in_all_its_calls_is_wrong_in_each(tmp_path: Path) -> None:
    def work() -> None:
        with Scaled():
            for _ in range(5):
                functional.gelu(torch.randn(8, 16))

    outcome = one.replay(recorded(tmp_path / "dump", work), "Functional.gelu.1.forward", None, "cpu", 1)
    assert outcome.guilty == "candidate" and outcome.faults[0].source in ("rounding", "this machine's own error"), outcome.faults


def test_inputs_are_cut_to_rows_that_still_show_the_fault() -> None:
    call = product(functional.linear)
    call.args[0] = torch.randn(4096, 64, generator=torch.Generator().manual_seed(1))
    call.results = {"0": functional.linear(*call.args)}
    call.results["0"][3000] *= 1.01
    small = script._by_record(call, {"0": (2.0**-25, 2.0**-22, 0.0)})
    assert small.args[0].shape[0] < 256 and small.results["0"].shape == (small.args[0].shape[0], 32)
    assert torch.isin(call.results["0"][3000], small.results["0"]).all()


def test_the_script_needs_torch_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "repro"
    assert command.main("replay", [*PAIR, "--op", "Functional.gelu.1.forward", "-o", str(folder)]) == 1
    assert "does not fail here on cpu" in capsys.readouterr().out
    done = subprocess.run([sys.executable, "-I", str(folder / "repro.py"), "cpu"], capture_output=True, text=True, check=False)
    here, there = done.stdout.splitlines()
    assert done.returncode == 0 and here.startswith("here on cpu, output.0:"), done.stderr
    assert there.startswith("as recorded, output.0:") and float(there.split(": ")[1].split()[0]) > 1000
    script = (folder / "repro.py").read_text()
    assert len(script.splitlines()) < 60 and "import probe" not in script
    for name in ("repro.py", "ISSUE.md"):
        text = (folder / name).read_text()
        assert str(tmp_path) not in text and str(TESTDATA) not in text


MODULES = {
    "Linear": (lambda: nn.Linear(16, 8), (6, 16)),
    "Conv2d": (lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 8, 8)),
    "LayerNorm": (lambda: nn.LayerNorm(16, eps=1e-6), (6, 16)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (3, 4, 5)),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(16), (6, 16)),
    "GELU": (lambda: nn.GELU(approximate="tanh"), (6, 16)),
    "Softmax": (lambda: nn.Softmax(dim=-1), (6, 16)),
}


@pytest.mark.parametrize("kind", MODULES)
def test_a_script_of_a_module_makes_its_call_of_a_function(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build, shape = MODULES[kind]
    torch.manual_seed(0)
    module, given = build(), torch.randn(shape)
    work = nn.Sequential(module)

    def step() -> None:
        made = work(given.clone().requires_grad_())
        made.backward(torch.sin(torch.arange(float(made.numel()))).reshape(made.shape))

    with probe.capture(tmp_path / "dump", model=work, task="tensor", level="module", step_on="program"):
        step()
    (part,) = Recording(str(tmp_path / "dump")).parts()
    phases = ["forward", "backward"] + ["parameters_grad"] * any(True for _ in module.parameters())
    for phase in phases:
        (op,) = (name for name in part.names if f".{kind}.{phase}" in name)
        outcome = one.replay(part, op, None, "cpu", 1)
        assert outcome.guilty is None
        call = outcome.candidate.call
        call.results = {path: result * 1.5 for path, result in call.results.items()}
        outcome.candidate.measured.errors[op] = errors.errors(call.results, outcome.candidate.reference)
        script.write(outcome, tmp_path / phase, {})
        code, times = ran(tmp_path / phase, monkeypatch)
        assert not code and len(times) >= 2, times
        assert max(times[label] for label in times if label.startswith("here")) < 8
        assert min(times[label] for label in times if label.startswith("as recorded")) > 8
        text = (tmp_path / phase / "repro.py").read_text()
        assert "import probe" not in text and len(text.splitlines()) < 60


def test_a_script_that_cannot_be_written_is_told_before_anything_is_computed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one, "replay", lambda *_: pytest.fail("was computed"))
    for kind, reason in ((nn.LSTM(8, 8), "calls several functions"), (nn.PReLU(), "cannot be rebuilt")):
        name = type(kind).__name__
        work = nn.Sequential(kind)
        with probe.capture(tmp_path / name, model=work, task="tensor", level="module", step_on="program", quiet=True):
            work(torch.randn(3, 2, 8))
        assert command.main("replay", [str(tmp_path / name), "--op", f"Module.0.{name}.forward.0", "-o", str(tmp_path / "repro")]) == 2
        said, error = capsys.readouterr()
        assert not said and error.startswith(f"error: -o: no script can be written of Module.0.{name}.forward.0: ") and reason in error and error.count("\n") == 1, error
    assert not (tmp_path / "repro").exists()


def test_a_folder_that_cannot_be_made_is_told_before_anything_is_computed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(one, "replay", lambda *_: pytest.fail("was computed"))
    for folder, reason in ((tmp_path, "File exists"), (tmp_path / "file" / "repro", "Not a directory")):
        assert command.main("replay", [*PAIR, "--op", "Functional.gelu.1.forward", "-o", str(folder)]) == 2
        said = capsys.readouterr().err
        assert f"{folder}: {reason}; choose a new folder" in said, said
