"""A run with the recording on is bit for bit the run without it, and nothing of it is left behind."""

from __future__ import annotations

import copy
import importlib
import io
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

import probe
from dumps import Dump, steps
from hooks import hooks
from probe.private import TRIED, safe
from runs import RUNS, STEPS, ConvNet, assert_same, on_ranks, train

LEVELS = ("module", "mix", "api", "op")
TASKS = ("statistics", "sketch", "hash", "tensor")

# Every level and every task of every run, in few pairs: each level of a task is one of them.
PAIRS = [(kind, level, TASKS[(i + j) % 4]) for i, kind in enumerate((*RUNS, "conv")) for j, level in enumerate(LEVELS)]


@pytest.fixture(scope="module")
def plain() -> dict[str, list[Any]]:
    return {kind: train(kind) for kind in RUNS}


@pytest.mark.parametrize(("kind", "level", "task"), PAIRS)
def test_training_is_bit_identical(tmp_path: Path, plain: dict[str, list[Any]], kind: str, level: str, task: str) -> None:
    seen = train(kind, lambda model: probe.Capture(tmp_path / "dump", model, level=level, task=task))
    assert_same(plain[kind], seen)
    assert steps(tmp_path / "dump") == list(range(STEPS))
    slow = [f"recorded the safe way: {reason}"] if (reason := safe()) else []
    for step in range(STEPS):
        dump = Dump(tmp_path / "dump", step)
        assert dump.manifest["notes"] == slow
        phases = {op.phase for op in dump.ops}
        assert {"forward", "backward"} <= phases, phases


def test_ddp_is_bit_identical(tmp_path: Path) -> None:
    def work(rank: int) -> None:
        wrap = nn.parallel.DistributedDataParallel
        before = train("conv", wrap=wrap)
        for level in ("mix", "op"):
            assert_same(before, train("conv", lambda model: probe.Capture(tmp_path / level, model, level=level), wrap))

    on_ranks(work, tmp_path)
    for rank in range(2):
        ops = Dump(tmp_path / "op", 1, rank)
        assert ops.manifest["world_size"] == 2
        assert "C10d.allreduce_.0.backward" in ops or "C10d.allreduce_.0.forward" in ops, ops.names
        modules = Dump(tmp_path / "mix", 1, rank)
        assert any(name.endswith("conv1.Conv2d.forward.0") for name in modules.names)
        assert any(name.endswith("conv1.Conv2d.parameters_grad.0") for name in modules.names)


@pytest.mark.parametrize("level", LEVELS)
def test_an_exception_of_the_program_passes_through(tmp_path: Path, level: str) -> None:
    class Picky(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] > 2:
                raise LookupError("too many")
            return x * 2

    model = nn.Sequential(nn.Linear(3, 3), Picky())
    with probe.capture(tmp_path / "dump", model=model, level=level, task="statistics"):
        with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
            model(torch.ones(2, 4))
        with pytest.raises(LookupError, match="too many"):
            model(torch.ones(3, 3))
        model(torch.ones(2, 3)).sum().backward()
    dump = Dump(tmp_path / "dump")
    raised = [op.name for op in dump.ops if op.raised]
    assert raised, dump.names
    if level == "module":
        assert raised == ["Module.0.Linear.forward.0", "Module.1.Picky.forward.0"]
        assert not dump["Module.1.Picky.forward.1"].raised
    # Later calls are inside the right modules again.
    if level in ("api", "mix"):
        assert [op.scope for op in dump.ops if op.name.startswith("Functional.linear")][-2:] == ["Module.0.Linear.forward.2"] * 2
    assert dump.ops[-1].scope is None or dump.ops[-1].phase != "forward"


@pytest.mark.parametrize("level", LEVELS)
def test_an_interrupt_in_a_module_leaves_nothing_behind(tmp_path: Path, level: str) -> None:
    class Interrupted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyboardInterrupt

    inner = nn.Sequential(nn.Linear(3, 3), Interrupted())
    model = nn.Sequential(inner, nn.ReLU())
    capture = probe.Capture(tmp_path / "dump", model, level=level)
    capture.start()
    with pytest.raises(KeyboardInterrupt):
        model(torch.ones(2, 3))
    torch.ones(2).add(1)
    nn.ReLU()(torch.ones(2))
    capture.close()
    dump = Dump(tmp_path / "dump")
    after = [op for op in dump.ops if "ReLU" in op.name or "relu" in op.name]
    assert after and all(op.scope is None or "ReLU" in op.scope for op in after)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_evaluation_is_bit_identical(tmp_path: Path, level: str) -> None:
    """Modules of torch that call fused kernels in evaluation do so while they are recorded, and torch is left as it was."""
    torch.manual_seed(7)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).eval()
    attention = nn.MultiheadAttention(16, 2, batch_first=True).eval()
    x, padding = torch.randn(3, 5, 16), torch.arange(5) >= torch.tensor([[5], [3], [4]])
    asked = torch.overrides.has_torch_function

    def evaluate() -> list[Any]:
        seen = []
        for gradients in (False, True):
            with torch.set_grad_enabled(gradients):
                seen += [encoder(x), encoder(x, src_key_padding_mask=padding), *attention(x, x, x), attention(x, x.flip(0), x)[0]]
        with pytest.raises((AssertionError, RuntimeError)):
            attention(x, x, x[..., :3])
        return seen

    plain = evaluate()
    with probe.capture(tmp_path / "dump", model=nn.ModuleDict({"encoder": encoder, "attention": attention}), level=level):
        seen = evaluate()
        assert torch.overrides.has_torch_function is asked
    assert_same(plain, seen)
    dump = Dump(tmp_path / "dump")
    assert dump.manifest["notes"] == ([f"recorded the safe way: {reason}"] if (reason := safe()) else [])
    if level != "module":
        prefix = "Aten" if level == "op" else "Torch"
        # Two layers without padding and two with it, and one call of the attention by itself; those with gradients are not fused.
        assert [name.split(".")[1] for name in dump.names if "encoder_layer_fwd" in name] == ["_transformer_encoder_layer_fwd"] * 4
        assert f"{prefix}._native_multi_head_attention.0.forward" in dump
        (fused,) = [op for op in dump.ops if op.name == f"{prefix}._transformer_encoder_layer_fwd.0.forward"]
        assert fused.scope == "Module.encoder.layers.0.TransformerEncoderLayer.forward.0"


def test_a_recording_that_stops_inside_an_attention_leaves_torchs_question_alone(tmp_path: Path) -> None:
    asked = torch.overrides.has_torch_function
    capture = probe.Capture(tmp_path / "dump", level="mix")

    class Stopping(nn.MultiheadAttention):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            assert torch.overrides.has_torch_function is not asked
            capture.stop()
            assert torch.overrides.has_torch_function is asked
            return super().forward(*args, **kwargs)

    capture.start()
    x = torch.ones(1, 2, 4)
    with torch.no_grad():
        Stopping(4, 1, batch_first=True).eval()(x, x, x)
    capture.close()
    assert torch.overrides.has_torch_function is asked


def test_an_interrupt_in_a_with_block_closes_the_dump(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), probe.capture(tmp_path / "dump", level="op"):
        torch.ones(2).add(1)
        raise KeyboardInterrupt
    assert "Aten.add.0.forward" in Dump(tmp_path / "dump")


def test_functions_stay_themselves(tmp_path: Path) -> None:
    functions = {(place, name): getattr(place, name) for place in (torch, F, torch.Tensor) for name in dir(place)}
    model = ConvNet()
    before = (nn.Module.__call__, nn.Module.forward, torch.optim.SGD.step, torch.autograd.backward)
    with probe.capture(tmp_path / "dump", model=model, level="mix"):
        for (place, name), function in functions.items():
            now = getattr(place, name)
            assert now is function or now == function, name
        assert before == (nn.Module.__call__, nn.Module.forward, torch.optim.SGD.step, torch.autograd.backward)
        assert pickle.loads(pickle.dumps(F.gelu)) is F.gelu
        assert pickle.loads(pickle.dumps(torch.add)) is torch.add


@pytest.mark.parametrize("level", ["mix", "op"])
def test_models_can_be_copied_and_saved_in_the_middle(tmp_path: Path, level: str) -> None:
    model = ConvNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probe.capture(tmp_path / "dump", model=model, level=level, task="statistics"):
        model(torch.randn(2, 3, 8, 8)).sum().backward()
        copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        file = io.BytesIO()
        torch.save(model, file)
        torch.save(model.state_dict(), io.BytesIO())
        torch.save(optimizer.state_dict(), io.BytesIO())
        file.seek(0)
        copies.append(torch.load(file, weights_only=False))
        copies[0](torch.randn(2, 3, 8, 8)).sum().backward()
    assert Dump(tmp_path / "dump").manifest["notes"] == []
    x = torch.randn(2, 3, 8, 8)
    model.eval()
    wanted = model(x)
    for other in copies[1:]:
        assert other.eval()(x).equal(wanted)
    for one in (model, *copies):
        for parameter in one.parameters():
            assert not parameter._post_accumulate_grad_hooks, "a hook was left"


class _Functions(TorchFunctionMode):
    def __init__(self) -> None:
        self.seen = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += 1
        return func(*args, **(kwargs or {}))


class _Ops(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("level", ["api", "op"])
def test_modes_of_the_program_stay_where_they_are(tmp_path: Path, level: str) -> None:
    capture = probe.Capture(tmp_path / "dump", level=level)
    functions, ops = _Functions(), _Ops()
    capture.start()
    functions.__enter__()
    ops.__enter__()
    torch.ones(2).add(1)
    capture.stop()
    capture.close()
    assert _get_current_function_mode_stack() == [functions] and _get_current_dispatch_mode_stack() == [ops]
    before = functions.seen, ops.seen
    torch.ones(2)
    assert functions.seen > before[0] and ops.seen > before[1]
    ops.__exit__(None, None, None)
    functions.__exit__(None, None, None)
    wanted = "Aten.add.0.forward" if level == "op" else "Tensor.add.0.forward"
    assert wanted in Dump(tmp_path / "dump")


def test_start_and_stop_in_the_middle(tmp_path: Path) -> None:
    capture = probe.Capture(tmp_path / "dump", level="mix")

    class Half(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.sin()
            capture.start()
            x = x.cos()
            capture.stop()
            capture.stop()
            return x.exp()

    model = nn.Sequential(Half(), nn.Linear(2, 2))
    model(torch.ones(2, 2)).sum().backward()
    capture.start()
    capture.start()
    capture.close()
    capture.close()
    capture.stop()
    capture.step()
    names = Dump(tmp_path / "dump").names
    assert names == ["Tensor.cos.0.forward"], names


def test_stopping_inside_a_module_leaves_no_scope(tmp_path: Path) -> None:
    capture = probe.Capture(tmp_path / "dump", level="op")

    class Stops(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            capture.stop()
            return x

    capture.start()
    nn.Sequential(Stops())(torch.ones(1))
    capture.start()
    torch.ones(2).cos()
    model = nn.Linear(2, 2)
    model(torch.ones(2))
    capture.close()
    dump = Dump(tmp_path / "dump")
    assert dump["Aten.cos.0.forward"].scope is None
    assert dump["Aten.addmm.0.forward" if "Aten.addmm.0.forward" in dump else "Aten.view.0.forward"].scope


def test_stop_during_backward(tmp_path: Path) -> None:
    capture = probe.Capture(tmp_path / "dump", level="mix")
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    capture.start(model)
    out = model[1](model[0](torch.ones(3, 2)))
    out.register_hook(lambda gradient: capture.stop())
    model[2](out).sum().backward()
    capture.close()
    assert "Module.2.Linear.backward.0" in Dump(tmp_path / "dump")


def test_two_captures_after_one_another(tmp_path: Path) -> None:
    model = ConvNet()
    before = hooks()
    for name in ("one", "two"):
        with probe.capture(tmp_path / name, model=model, level="mix", task="statistics"):
            model(torch.ones(2, 3, 8, 8)).sum().backward()
        assert hooks() == before
        assert all(not p._backward_hooks and not p._post_accumulate_grad_hooks for p in model.parameters())
    one, two = Dump(tmp_path / "one"), Dump(tmp_path / "two")
    assert one.names == two.names


def test_nothing_is_left_between_steps_that_are_not_chosen(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    before = hooks()
    capture = probe.Capture(tmp_path / "dump", model, steps=[2], level="mix")
    capture.start()
    assert hooks() == before, "a step that is not chosen costs nothing"
    for step in range(4):
        model(torch.ones(1, 2)).sum().backward()
        if step != 2:
            assert hooks()["function modes"] == before["function modes"]
            assert not model.weight._post_accumulate_grad_hooks
        capture.step()
    capture.close()
    assert steps(tmp_path / "dump") == [2]


@pytest.mark.parametrize("others", [0, 1])
def test_a_dump_may_end_inside_the_step_of_an_optimizer(tmp_path: Path, others: int) -> None:
    """Torch is going through its hooks then, and raises in the program when one is taken from its list."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from probe import optimizers

    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    capture = probe.Capture(tmp_path / "dump", model, level="op")
    ends = optimizers.listen(after=lambda optimizer: (ends.remove(), capture.close()))
    capture.start()
    theirs = [register_optimizer_step_post_hook(lambda *_: None) for _ in range(others)]
    for _ in range(3):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    dump = Dump(tmp_path / "dump")
    assert {op.scope for op in dump.ops if op.name.startswith("Aten._foreach") or op.name.startswith("Aten.add_.")} >= {
        "Optimizer.SGD.step.0"
    }
    for handle in theirs:
        handle.remove()
    optimizer.step()


def test_a_step_of_an_optimizer_that_raises(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def closure() -> float:
        torch.ones(2).sin()
        raise LookupError("theirs")

    with probe.capture(tmp_path / "dump", model=model, level="op"):
        with pytest.raises(LookupError, match="theirs"):
            optimizer.step(closure)
        model(torch.ones(1, 2))
        optimizer.step(lambda: 1.0)
    dump = Dump(tmp_path / "dump")
    assert not dump["Aten.sin.0.forward"].scope, "a closure is not part of the optimizer"
    assert {op.scope for op in dump.ops if "addmm" in op.name} == {"Module.Linear.Linear.forward.0"}


@pytest.mark.parametrize("function, told", [("next_sequence", "gradients of "), ("current_pass", "gradient: ")])
def test_no_fault_of_ours_reaches_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, told: str) -> None:
    from probe.private import autograd
    from probe.recorder import gradients, naming

    def broken(*args: Any) -> Any:
        raise ZeroDivisionError("ours")

    # Asked before a call, and when its first gradient arrives.
    monkeypatch.setattr(autograd, function, broken)
    monkeypatch.setattr(naming, "describe_op", broken)
    for level in LEVELS:
        with probe.capture(tmp_path / level, level=level, phases=["forward", "backward"]):
            nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
    said = Dump(tmp_path / "mix").manifest["notes"]
    assert len(said) == 1 and told in said[0] and "ours" in said[0], "faults are said"
    monkeypatch.setattr(gradients.Gradients, "watch_parameters", broken)
    with probe.capture(tmp_path / "parameters", level="mix"):
        nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
    assert Dump(tmp_path / "parameters").manifest["notes"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="frames differ")
def test_garbage_collection_and_recursion_are_left_alone(tmp_path: Path) -> None:
    import gc

    limit, enabled = sys.getrecursionlimit(), gc.isenabled()
    with probe.capture(tmp_path / "dump", level="mix"):
        torch.ones(2).add(1)
        assert (sys.getrecursionlimit(), gc.isenabled()) == (limit, enabled)


def test_a_torch_that_is_too_old_is_refused_before_anything_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "probe.recorder")
    monkeypatch.setattr(torch, "__version__", type(torch.__version__)("2.0.1"))
    with pytest.raises(ImportError, match="torch 2.0.1 cannot be recorded: 2.1 or later is needed"):
        importlib.import_module("probe.recorder")


def test_the_table_of_versions_is_what_is_tested() -> None:
    """Each version that the quick ways were tried on is in the guide's table, and each level of a task is tested."""
    assert {pair[1:] for pair in PAIRS} == {(level, task) for level in LEVELS for task in TASKS}
    root = Path(__file__).resolve().parents[3]
    table = (root / "docs" / "capture.md").read_text().partition("## Versions of torch")[2].partition("## What it costs")[0]
    missing = [version for version in TRIED if not re.search(rf"\b{re.escape(version)}\b", table)]
    assert missing == [], table
    tested = re.search(r"\[\[ \$everything == no \]\] \|\| versions=\((.*)\)", (root / "test.sh").read_text())
    assert tested is not None
    assert [version for version in tested[1].split() if version not in table] == [], table
