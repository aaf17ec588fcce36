"""Trainings on the simulated NPU by an unmodified torch_npu: recorded, they stay what they are; a sound one agrees with the host, and of one
with a fault the op is named.

`./test.sh --all` runs all of it; without, a part that takes a few minutes.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import simulator
from extent import EVERYTHING, chosen
from simulator import Done

TRAIN = simulator.HERE / "train.py"
Compare = Callable[..., tuple[int, dict[str, Any]]]


#: Earlier runs with the same settings: their results, and folders of dumps.
_RESULTS: dict[tuple[object, ...], Done] = {}
_DUMPS: dict[tuple[object, ...], Path] = {}


def train(folder: Path, model: str, *options: object, **switches: Any) -> Done:
    """On the device. Plain trainings are done once, however many tests ask for them."""
    command = (TRAIN, model, "--device", "npu:0", *options)
    if switches or "--save" in options:
        return simulator.run(folder, *command, **switches)
    if command not in _RESULTS:
        _RESULTS[command] = simulator.run(folder, *command)
    return _RESULTS[command]


def on_host(folder: Path, model: str, *options: object) -> Done:
    return simulator.run(folder, TRAIN, model, *options)


def host_dump(folder: Path, model: str, *options: object, probe: list[object]) -> None:
    """Records on the host, once; later tests find the same dump in their folder."""
    *how, output = probe
    known = (model, *options, *how)
    if known in _DUMPS:
        (folder / str(output)).symlink_to(_DUMPS[known])
        return
    done = simulator.run(folder, TRAIN, model, *options, probe=probe)
    assert done.code == 0, done.stderr
    _DUMPS[known] = folder / str(output)


def record(output: str, level: str = "mix", task: str = "sketch", steps: str = "all") -> list[object]:
    return ["--steps", steps, "--level", level, "--task", task, "-o", output]


MODELS = ["mlp", "resnet", "gpt", "checkpointed", "llama", "bert", "moe"]
WAYS = [
    *(("gpt", "--optimizer", optimizer) for optimizer in ("loop", "fused", "sgd")),
    *(("gpt", "--precision", precision) for precision in ("autocast", "bfloat16", "scaler")),
]


@pytest.mark.parametrize("given", chosen([*((model,) for model in MODELS), *WAYS], [("resnet",), ("gpt", "--precision", "scaler")]), ids=" ".join)
def test_it_trains_as_the_host_does(tmp_path: Path, given: tuple[str, ...]) -> None:
    found = [float.fromhex(loss) for loss in train(tmp_path, *given, "--save", tmp_path / "weights.pt").result["losses"]]
    assert (tmp_path / "weights.pt").stat().st_size > 0
    if given[-1] == "scaler":
        # The host scales as well, and computes other products in half precision.
        given = given[:1]
    expected = [float.fromhex(loss) for loss in on_host(tmp_path, *given).result["losses"]]
    assert found == pytest.approx(expected, rel=1e-4 if len(given) == 1 else 2e-3)


CLEAN = list(itertools.product(["mlp", "resnet", "gpt", "checkpointed", "llama", "bert", "moe"], ["mix", "module", "api", "op"], ["sketch", "statistics", "tensor"]))
FEW_CLEAN = [("checkpointed", "mix", "sketch"), ("resnet", "op", "sketch"), ("moe", "op", "statistics"), ("llama", "module", "sketch"), ("mlp", "api", "tensor"), ("moe", "module", "statistics")]


@pytest.mark.parametrize(("model", "level", "task"), chosen(CLEAN, FEW_CLEAN))
def test_a_sound_pair_agrees_and_recording_changes_nothing(tmp_path: Path, compare: Compare, model: str, level: str, task: str) -> None:
    plain = train(tmp_path, model, "--steps", 2)
    recorded = train(tmp_path, model, "--steps", 2, probe=record("npu", level, task, "0-1"))
    assert recorded.result == plain.result
    assert not [line for line in recorded.said() if "could" in line or "recording stopped" in line], recorded.stderr
    host_dump(tmp_path, model, "--steps", 2, probe=record("cpu", level, task, "0-1"))
    code, report = compare(tmp_path / "cpu", tmp_path / "npu")
    assert (code, report["verdict"], report["culprits"]) == (0, "agree", []), report["culprits"]
    assert report["counts"]["roles"]["unknown"] == 0


NORMS = """
import sys, torch
torch.manual_seed(0)
norm, x = torch.nn.BatchNorm1d(1024), torch.randn(8, 1024)
norm, x = norm.to(sys.argv[1]), x.to(sys.argv[1])
optimizer = torch.optim.SGD(norm.parameters(), lr=0.1)
(norm(x).square().mean() + norm(x + 1).square().mean()).backward()
optimizer.step()
"""


@pytest.mark.parametrize(("level", "op"), [("mix", "Functional.batch_norm.1.forward"), ("op", "Aten.native_batch_norm.1.forward")])
def test_running_statistics_are_read_as_they_are(tmp_path: Path, compare: Compare, level: str, op: str) -> None:
    """Batch norms write to them without torch counting it."""
    (tmp_path / "norms.py").write_text("import torch_npu\n" + NORMS)
    for name, device in (("cpu", "cpu"), ("npu", "npu:0")):
        done = simulator.run(tmp_path, "norms.py", device, probe=record(name, level, steps="0"))
        assert done.code == 0, done.stderr
    code, report = compare(tmp_path / "cpu", tmp_path / "npu")
    assert (code, report["culprits"]) == (0, []), report["culprits"]
    for name in ("cpu", "npu"):
        rows = pq.read_table(tmp_path / name / "step0/rank0/ops.parquet").to_pylist()
        read = {row["slot"]: row for row in rows if row["op"] == op and row["side"] == "input"}
        mean = read["input.1" if level == "mix" else "input.3"]
        assert mean["shape"] == "[1024]" and mean["norm"] > 0, mean


FOR_CUDA = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).to(DEVICE)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    x = torch.arange(32, device=DEVICE).view(4, 8) / 32 + torch.zeros(4, 8).to(DEVICE)
    weights = torch.tensor([[1.0, 2.0, 3.0, 4.0]], device=DEVICE)
    loss = (net(x) * weights).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_program_for_cuda_has_the_same_names_with_transfer_to_npu(tmp_path: Path, compare: Compare) -> None:
    """Which puts functions of its own in the place of all functions of torch that take a device."""
    here = "DEVICE = 'cpu'\n"
    there = "import torch_npu\nfrom torch_npu.contrib import transfer_to_npu\nDEVICE = 'cuda'\n"
    for name, start in (("cpu", here), ("npu", there)):
        (tmp_path / f"{name}.py").write_text(start + FOR_CUDA)
        done = simulator.run(tmp_path, f"{name}.py", probe=record(name, "api", steps="1"))
        assert done.code == 0, done.stderr
    code, report = compare(tmp_path / "cpu", tmp_path / "npu")
    assert (code, report["culprits"]) == (0, []), report["culprits"]
    factories = {"Torch.arange.0.forward", "Torch.zeros.0.forward", "Torch.tensor.0.forward"}
    ops = [set(pq.read_table(tmp_path / name / "step1/rank0/ops.parquet")["op"].to_pylist()) for name in ("cpu", "npu")]
    assert all(factories <= each for each in ops)


FUSED = list(itertools.product(["mix", "module", "api"], ["float32", "bfloat16"]))


@pytest.mark.parametrize(("level", "precision"), chosen(FUSED, [("mix", "bfloat16")]))
def test_fused_operators_agree_with_the_functions_that_they_stand_for(tmp_path: Path, compare: Compare, level: str, precision: str) -> None:
    options = ("llama", "--steps", 2, "--precision", precision)
    plain = train(tmp_path, *options, "--fused", rounding="order")
    recorded = train(tmp_path, *options, "--fused", rounding="order", probe=record("npu", level, steps="0-1"))
    assert recorded.result == plain.result
    host_dump(tmp_path, *options, probe=record("cpu", level, steps="0-1"))
    code, report = compare(tmp_path / "cpu", tmp_path / "npu")
    assert (code, report["verdict"], report["culprits"]) == (0, "agree", []), report["culprits"]


#: Operators, with the number of a call, and what is named: the operator or its module, in the layer of that call. Backward passes begin with the last.
FUSED_FAULTS = [
    ("RmsNorm:2:row", ("Module.model.layers.1.input_layernorm.",)),
    ("RmsNormGrad:3:scale", ("Module.model.layers.0.post_attention_layernorm.",)),
    ("SwiGlu:1:scale", ("NPU.npu_swiglu.1.forward",)),
    ("SwiGluGrad:0:row", ("NPU.npu_swiglu.1.backward",)),
    ("RotaryPositionEmbedding:2:row", ("NPU.npu_rotary_mul.2.forward",)),
    ("FlashAttentionScoreV4:1:row", ("NPU.npu_rotary_mul.2.forward", "NPU.npu_fusion_attention.1.forward")),
    ("FlashAttentionScoreGradV4:0:tail", ("Module.model.layers.1.self_attn.", "NPU.npu_fusion_attention.1.backward")),
]


@pytest.mark.parametrize(("fault", "expected"), chosen(FUSED_FAULTS, FUSED_FAULTS[2:6:3]), ids=str)
def test_a_faulty_fused_operator_is_named(tmp_path: Path, compare: Compare, fault: str, expected: tuple[str, ...]) -> None:
    train(tmp_path, "llama", "--steps", 1, "--fused", probe=record("npu", steps="0"), fault=fault)
    host_dump(tmp_path, "llama", "--steps", 1, probe=record("cpu", steps="0"))
    code, report = compare(tmp_path / "cpu", tmp_path / "npu")
    first = report["first_divergence"]
    assert code == 1 and first["op"].startswith(expected), first


#: Ports of a Llama: kind, precision, fault, and the op to be named; None where the pair is sound.
PORTS = [
    *(("--merged", precision, None, None) for precision in ("float32", "bfloat16")),
    ("--merged", "float32", "SwiGlu:1:scale", "NPU.npu_swiglu.1.forward"),
    ("--merged", "float32", "SwiGluGrad:0:row", "NPU.npu_swiglu.1.backward"),
    # Attention that leaves padding out makes zeros there, where the host makes numbers that nothing reads.
    *(("--fused --padded", precision, None, None) for precision in ("float32", "bfloat16")),
    ("--fused --padded", "float32", "FlashAttentionScoreV4:0:row", "NPU.npu_fusion_attention.0.forward"),
]


@pytest.mark.parametrize(("port", "precision", "fault", "expected"), chosen(PORTS, [PORTS[place] for place in (1, 2, 5, 6)]), ids=str)
def test_ports_that_compute_otherwise(tmp_path: Path, compare: Compare, port: str, precision: str, fault: str | None, expected: str | None) -> None:
    how = ("llama", "--steps", 1, "--precision", precision, *(["--padded"] if "--padded" in port else []))
    train(tmp_path, *how, *port.replace("--padded", "").split(), probe=record("npu", steps="0"), fault=fault)
    host_dump(tmp_path, *how, probe=record("cpu", steps="0"))
    code, report = compare(tmp_path / "cpu", tmp_path / "npu")
    first = report["first_divergence"]
    if expected is None:
        assert (code, report["culprits"]) == (0, []), first
        assert ("rows that nothing reads" in json.dumps(report)) == ("--padded" in port)
    else:
        assert code == 1 and first["op"] == expected, first


@pytest.mark.parametrize("precision", chosen(["autocast", "bfloat16"], ["autocast"]))
def test_a_sound_pair_in_half_precision(tmp_path: Path, compare: Compare, precision: str) -> None:
    """Autocast of the host takes other types for some ops, so that its baseline is another device."""
    options = ("gpt", "--steps", 2, "--precision", precision)
    plain = train(tmp_path, *options)
    assert train(tmp_path, *options, probe=record("npu", steps="0-1")).result == plain.result
    if precision == "autocast":
        train(tmp_path, *options, probe=record("other", steps="0-1"), rounding="order")
    else:
        host_dump(tmp_path, *options, probe=record("other", steps="0-1"))
    code, report = compare(tmp_path / "other", tmp_path / "npu")
    assert (code, report["culprits"]) == (0, []), report["culprits"]


@pytest.mark.parametrize("rounding", chosen(["wide", "order", "hf32"], ["order"]))
def test_a_device_that_rounds_otherwise_agrees(tmp_path: Path, compare: Compare, rounding: str) -> None:
    train(tmp_path, "gpt", "--steps", 2, probe=record("npu", steps="0-1"), rounding=rounding)
    host_dump(tmp_path, "gpt", "--steps", 2, probe=record("cpu", steps="0-1"))
    code, report = compare(tmp_path / "cpu", tmp_path / "npu")
    assert (code, report["verdict"], report["culprits"]) == (0, "agree", []), report["culprits"]


#: The operator at fault, the number of its call, and the op that is to be named. None of these measures as well: its calls would count.
FAULTS = [
    ("Embedding:0", "Functional.embedding.0.forward"),
    ("LayerNorm:1", "Functional.layer_norm.1.forward"),
    ("Addmm:1", "Functional.linear.1.forward"),
    ("Matmul:0", "Tensor.__matmul__.0.forward"),
    ("InplaceMaskedFillScalar:0", "Tensor.masked_fill.0.forward"),
    ("Softmax:1", "Tensor.softmax.1.forward"),
    ("GeluV2:1", "Functional.gelu.1.forward"),
    ("NLLLoss:0", "Functional.cross_entropy.0.forward"),
    ("LogSoftmax:0", "Functional.cross_entropy.0.forward"),
    ("GeluBackwardV2:0", "Functional.gelu.1.backward"),
    ("LayerNormBackward:0", "Functional.layer_norm.4.backward"),
    ("SoftmaxBackward:0", "Tensor.softmax.1.backward"),
]
KINDS = ["scale", "row", "tail", "nan"]
#: One element is NaN, and not one that the loss takes: the backward pass is the first to read it.
READ_LATER = {("LogSoftmax:0", "nan"): "Functional.cross_entropy.0.backward"}
FEW_FAULTS = [("GeluV2:1", "Functional.gelu.1.forward", "scale"), ("SoftmaxBackward:0", "Tensor.softmax.1.backward", "row"), ("LayerNorm:1", "Functional.layer_norm.1.forward", "nan")]


@pytest.mark.parametrize(("place", "op", "kind"), chosen([(place, READ_LATER.get((place, kind), op), kind) for place, op in FAULTS for kind in KINDS], FEW_FAULTS))
def test_a_fault_is_named(tmp_path: Path, compare: Compare, place: str, op: str, kind: str) -> None:
    bad = train(tmp_path, "gpt", "--steps", 1, probe=record("npu", steps="0"), fault=f"{place}:{kind}")
    assert bad.faults == 1, bad.counts
    host_dump(tmp_path, "gpt", "--steps", 1, probe=record("cpu", steps="0"))
    code, report = compare(tmp_path / "cpu", tmp_path / "npu")
    assert code == 1 and report["first_divergence"]["op"] == op, (report["verdict"], report["first_divergence"])


OPS = [("LayerNorm:1:nan", "Aten.native_layer_norm.1.forward"), ("Addmm:2:row", "Aten.addmm.2.forward"), ("Matmul:1:scale", "Aten.matmul.1.forward"),
       ("LayerNormBackward:1:scale", "Aten.native_layer_norm_backward.1.backward"), ("SoftmaxBackward:0:row", "Aten._softmax_backward_data.0.backward")]  # fmt: skip


@pytest.mark.parametrize(("fault", "op"), chosen(OPS, OPS[2:4]))
def test_a_fault_is_named_among_other_ops(tmp_path: Path, compare: Compare, fault: str, op: str) -> None:
    """At level `op` the device dispatches other ones than the host."""
    bad = train(tmp_path, "gpt", "--steps", 1, probe=record("npu", "op", steps="0"), fault=fault)
    assert bad.faults == 1, bad.counts
    host_dump(tmp_path, "gpt", "--steps", 1, probe=record("cpu", "op", steps="0"))
    code, report = compare(tmp_path / "cpu", tmp_path / "npu")
    assert code == 1 and report["first_divergence"]["op"] == op, (report["verdict"], report["first_divergence"])


def test_operators_that_measuring_lacks(tmp_path: Path, compare: Compare) -> None:
    """Training does without this one; what measures does not. The host measures then, or nobody: never are values clean that nobody
    has measured."""
    plain = train(tmp_path, "mlp", "--steps", 1)
    host_dump(tmp_path, "mlp", "--steps", 1, probe=record("cpu", steps="0"))
    for name, host_bytes in (("npu", "1GiB"), ("strict", 0)):
        (tmp_path / "probe.toml").write_text(f"host_bytes = {host_bytes!r}\n")
        recorded = train(tmp_path, "mlp", "--steps", 1, missing="GeTensor", probe=[*record(name, steps="0"), "--config", "probe.toml"])
        assert recorded.result == plain.result
        assert any("npu cannot measure float32, so the host does: " in line and "aclnnGeTensor" in line for line in recorded.said()), recorded.stderr
        code, report = compare(tmp_path / "cpu", tmp_path / name)
        if host_bytes:
            assert (code, report["verdict"]) == (0, "agree") and report["counts"]["roles"]["unknown"] == 0
        else:
            assert any("could not be measured" in line and "aclnnGeTensor" in line for line in recorded.said()), recorded.stderr
            assert (code, report["verdict"]) == (3, "incomplete")
            assert "not measured by the candidate" in report["incomplete"][0]["reason"] and report["counts"]["roles"]["unknown"] > 0


@pytest.mark.parametrize("task", chosen(["tensor", "hash"], ["tensor"]))
def test_data_comes_whole_from_the_device(tmp_path: Path, compare: Compare, task: str) -> None:
    for name, run in (("npu", train), ("cpu", host_dump)):
        run(tmp_path, "mlp", "--steps", 1, probe=record(name, "module", task, "0"))
    rows = pq.read_table(tmp_path / "npu" / "step0" / "rank0" / "ops.parquet").to_pylist()
    measured = [row for row in rows if row["elements"]]
    assert any(row["bytes"] or row["elements"] for row in measured) and all(row["hash"] for row in measured)
    assert task == "hash" or all(row["offset"] is not None for row in measured)
    code, report = compare(tmp_path / "cpu", tmp_path / "npu")
    # It computes with the kernels of the host.
    assert (code, report["verdict"]) == (0, "agree") and report["counts"]["verdicts"]["bit-equal"] > 20


USERS = """
import json, sys
sys.path.insert(0, {here!r})
import models, torch
from probe import PrecisionDebugger, ApiProfiler
device, form, out = sys.argv[1:]
debugger = PrecisionDebugger(task="tensor", level="L1", dump_path=out, step=[0]) if form == "new" else ApiProfiler("old.json")
model, batch = models.make("mlp")
model, batch = model.to(device), tuple(part.to(device) for part in batch)
for _ in range(2):
    debugger.start(model) if form == "new" else debugger.start()
    loss = models.loss_of(model, batch)
    loss.backward()
    debugger.stop()
    debugger.step() if form == "new" else debugger.save()
print(json.dumps(loss.item()))
"""


@pytest.mark.parametrize("form", chosen(["new", "old"], ["new"]))
def test_scripts_of_the_older_tool(tmp_path: Path, compare: Compare, form: str) -> None:
    (tmp_path / "user.py").write_text(USERS.format(here=str(simulator.HERE)))
    for device in ("cpu", "npu"):
        settings = {"dump_mode": "api", "dump_path": f"./{device}", "dump_iter": "0"}
        (tmp_path / "old.json").write_text(json.dumps({"dump": {"common_dump_settings": settings, "api_list": [{"name": "torch.nn.functional.linear"}]}}))
        simulator.run(tmp_path, "user.py", device, form, device).result  # noqa: B018
    code, report = compare(tmp_path / "cpu", tmp_path / "npu")
    assert (code, report["verdict"]) == (0, "agree") and report["counts"]["roles"]["clean"] >= 3


def test_a_pack_for_config_check(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "probe", "config-check", "--collect", "-o", "npu.zip", "--", sys.executable, str(TRAIN), "mlp", "--device", "npu:0"]
    done = subprocess.run(command, cwd=tmp_path, env=simulator.environment(), capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == train(tmp_path, "mlp").result
    with zipfile.ZipFile(tmp_path / "npu.zip") as pack:
        manifest, flags = (json.loads(pack.read(name)) for name in ("manifest.json", "rank0/flags.json"))
        packages = pack.read("rank0/pip.json").decode()
    assert manifest["device"] == {"kind": "npu", "names": ["Ascend950"], "count": 1}
    assert isinstance(flags["npu"]["matmul"]["allow_hf32"], bool) and "2.7.1.post11" in packages


def test_memory_that_runs_out_while_measuring_is_no_matter_of_the_training(tmp_path: Path, compare: Compare) -> None:
    plain = train(tmp_path, "mlp", "--steps", 1)
    measured = train(tmp_path, "mlp", "--steps", 1, probe=record("npu", steps="0"))
    launched, own = measured.counts["launches"], plain.counts["launches"]
    name = max((name for name in launched if name not in own), key=lambda name: launched[name])
    short = train(tmp_path, "mlp", "--steps", 1, probe=record("short", steps="0"), oom=f"{name}:all", cache=0)
    assert short.result == plain.result
    said = [line for line in short.said() if "be measured, so comparisons will be incomplete" in line]
    assert said and "out of memory" in said[0], short.stderr
    code, report = compare(tmp_path / "npu", tmp_path / "short")
    assert (code, report["verdict"]) == (3, "incomplete")


@pytest.mark.parametrize("words", chosen([[], ["sharded"]], [[]]), ids=["DDP", "FSDP2"][: 1 + EVERYTHING])
def test_a_fault_on_one_rank(tmp_path: Path, compare: Compare, words: list[str]) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2", simulator.HERE / "ddp.py"]
    # With gloo, FSDP2 leaves gradients that are twice those of HCCL: its baseline is another device.
    base: tuple[str, dict[str, str]] = ("npu", {"rounding": "order"}) if words else ("cpu", {})
    for name, (kind, switches) in {"base": base, "good": ("npu", {}), "bad": ("npu", {"fault": "GeluV2:1:scale@1"})}.items():
        done = simulator.run(tmp_path, *launcher, kind, *words, probe=record(name, steps="0"), devices=2, **switches)
        assert done.code == 0, done.stderr
    code, report = compare(tmp_path / "base", tmp_path / "good")
    assert (code, report["culprits"]) == (0, []), report["culprits"]
    code, report = compare(tmp_path / "base", tmp_path / "bad")
    first = report["first_divergence"]
    assert (code, first["rank"], first["op"]) == (1, 1, "Functional.gelu.1.forward"), json.dumps(first)


#: A weight of 80 MiB, which is measured in two pieces, and a function that is compiled.
PROGRAM = """
import sys, torch
device, form = sys.argv[1:]
torch.manual_seed(0)
width = (4096, 5120) if form == "large" else (64, 128)
model = torch.nn.Sequential(torch.nn.Linear(*width), torch.nn.GELU(), torch.nn.Linear(width[1], 8)).to(device)
batch = torch.randn(4, width[0]).to(device)
call = torch.compile(model, backend="aot_eager") if form == "compiled" else model
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    optimizer.zero_grad()
    call(batch).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.skipif(not EVERYTHING, reason="part of ./test.sh --all")
@pytest.mark.parametrize("form", ["large", "compiled"])
def test_large_tensors_and_compiled_functions(tmp_path: Path, compare: Compare, form: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    for name, device in (("cpu", "cpu"), ("npu", "npu:0")):
        done = simulator.run(tmp_path, "program.py", device, form, probe=record(name, steps="0-1"))
        assert done.code == 0, done.stderr
    code, report = compare(tmp_path / "cpu", tmp_path / "npu")
    assert (code, report["verdict"], report["culprits"]) == (0, "agree", []), report["culprits"]
    assert report["counts"]["roles"]["clean"] >= 10 and report["counts"]["roles"]["unknown"] == 0
