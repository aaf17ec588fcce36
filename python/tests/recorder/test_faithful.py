"""The record is what the program computed: ops that write in place, views, casts, recomputation."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import probe
from dumps import Dump, same, steps


# -- writes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["api", "op"])
def test_in_place_ops_show_before_and_after(record: Any, level: str) -> None:
    x = torch.arange(2000.0)

    def work() -> None:
        x.add_(1)
        x.mul_(2)
        y = x.view(40, 50)
        y[3].zero_()
        torch.add(x, 1, out=x)

    dump = record(work, level=level)
    start = torch.arange(2000.0)
    add = dump.all("Aten.add_" if level == "op" else "Tensor.add_")[0]
    assert same(add["input.0"], start) and same(add["output.0"], start + 1)
    mul = dump.all("Aten.mul_" if level == "op" else "Tensor.mul_")[0]
    assert same(mul["input.0"], start + 1) and same(mul["output.0"], (start + 1) * 2)
    zero = dump.all("Aten.zero_" if level == "op" else "Tensor.zero_")[0]
    assert zero["output.0"].data.eq(0).all() and zero["input.0"].data.ne(0).all()
    after = (start + 1) * 2
    after.view(40, 50)[3] = 0
    out = dump.all("Aten.add" if level == "op" else "Torch.add")[0]
    assert same(out["input.0"], after) and same(out["output.0"], after + 1)


@pytest.mark.parametrize("size", [4096, 300_000])
def test_what_an_op_has_written_is_measured_once(record: Any, size: int) -> None:
    """Torch counts a write only when the op is over for the program, after its result was recorded."""
    x = torch.arange(float(size))

    def work() -> None:
        x.mul_(2)
        x.add_(1)
        torch._foreach_mul_([x], 3.0)
        x.sqrt_()
        x.exp()

    dump = record(work, level="op")
    written = [dump["Aten.mul_.0.forward"]["output.0"], dump["Aten.add_.0.forward"]["output.0"], dump["Aten._foreach_mul_.0.forward"]["output.0.0"]]
    written.append(dump["Aten.sqrt_.0.forward"]["output.0"])
    read = [dump["Aten.add_.0.forward"]["input.0"], dump["Aten._foreach_mul_.0.forward"]["input.0.0"], dump["Aten.sqrt_.0.forward"]["input.0"]]
    read.append(dump["Aten.exp.0.forward"]["input.0"])
    wanted = torch.arange(float(size)).mul(2)
    for output, value in zip(written, [wanted, wanted + 1, (wanted + 1) * 3, ((wanted + 1) * 3).sqrt()]):
        assert same(output, value)
    # The data of a tensor that is known is not written again.
    assert [slot.tensor for slot in read] == [slot.tensor for slot in written]


def test_the_first_node_of_a_thread_belongs_to_the_op_that_made_it(tmp_path: Path) -> None:
    def work() -> None:
        with probe.capture(tmp_path / "dump", level="op"):
            x = torch.ones(2, 3, requires_grad=True)
            y = x.t()
            y.sum().backward()

    # Nodes are numbered from 0 in each thread.
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert Dump(tmp_path / "dump").all("Aten.t")[-1].line == "y = x.t()"


@pytest.mark.parametrize("task", ["statistics", "sketch", "tensor"])
def test_with_threads_that_help_the_record_is_the_same(tmp_path: Path, task: str) -> None:
    """They measure parts of large tensors and write the records, where the program leaves processors unused."""

    def run(name: str, threads: int) -> list[dict[str, Any]]:
        before = torch.get_num_threads()
        torch.manual_seed(0)
        capture = probe.Capture(tmp_path / name, level="op", task=task)
        try:
            # The value asked for when the recording begins; the program itself computes with one.
            torch.set_num_threads(threads)
            capture.start()
            torch.set_num_threads(1)
            weight = torch.randn(700, 300, requires_grad=True)
            heads = torch.randn(4, 64, 3, 8, 32).permute(2, 0, 3, 1, 4).unbind(0)
            loss = (torch.randn(900, 300) @ weight.t()).sum() + (heads[0] @ heads[1].transpose(-1, -2) @ heads[2]).sum()
            loss.backward()
            for _ in range(200):
                weight.detach().narrow(0, 0, 2).mul_(0.5).abs_()
            capture.stop()
        finally:
            torch.set_num_threads(before)
            capture.close()
        return [slot.row for op in Dump(tmp_path / name).ops for slot in op.slots.values()]

    alone, helped = run("alone", 1000), run("helped", 1)
    assert len(alone) > 1000
    assert alone == helped


def test_a_write_that_is_not_recorded_is_seen_by_its_count(record: Any) -> None:
    x = torch.arange(100_000.0)

    def elsewhere() -> None:
        x[5] += 1.0

    def work() -> None:
        x.mul_(2)
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        x.exp()

    dump = record(work, level="op")
    wanted = torch.arange(100_000.0) * 2
    assert same(dump["Aten.mul_.0.forward"]["output.0"], wanted)
    wanted[5] += 1
    assert same(dump["Aten.exp.0.forward"]["input.0"], wanted)


def test_lists_are_written_in_place(record: Any) -> None:
    xs = [torch.full((1500,), float(i)) for i in range(3)]
    dump = record(lambda: torch._foreach_mul_(xs, 3.0), level="op")
    op = dump.all("Aten._foreach_mul_")[0]
    for index in range(3):
        assert op[f"input.0.{index}"].data.eq(float(index)).all()
        assert op[f"output.0.{index}"].data.eq(3.0 * index).all()


def test_indexed_writes_show_before_and_after(record: Any) -> None:
    x = torch.ones(50, 40)

    def work() -> None:
        x[3] = 7.0
        x[:, 1] += 2
        x.exp()

    dump = record(work)
    write = dump["Tensor.__setitem__.0.forward"]
    assert write["input.0"].data.eq(1).all()
    last = dump["Tensor.exp.0.forward"]
    wanted = torch.ones(50, 40)
    wanted[3] = 7
    wanted[:, 1] += 2
    assert same(last["input.0"], wanted)


@pytest.mark.parametrize("level", ["api", "op"])
@pytest.mark.parametrize("size", [10, 4096, 100_000])
def test_writes_behind_the_back_of_autograd_are_seen(record: Any, level: str, size: int) -> None:
    """Through `.data`, through NumPy, through DLPack: none of them counts as a write."""
    x = torch.arange(float(size))
    shared = x.numpy()
    other = torch.from_dlpack(x)

    def work() -> None:
        x.exp()
        x.data.fill_(1.0)
        x.exp()
        shared[:] = 2.0
        x.exp()
        shared[size // 3] = 5.0
        x.exp()
        other.fill_(3.0)
        x.exp()
        x.detach().mul_(2.0)
        x.exp()

    dump = record(work, level=level)
    ops = dump.all("Aten.exp" if level == "op" else "Tensor.exp")
    two = torch.full((size,), 2.0)
    two[size // 3] = 5.0
    wanted = [torch.arange(float(size)), torch.ones(size), torch.full((size,), 2.0), two, torch.full((size,), 3.0), torch.full((size,), 6.0)]
    found = [same(op["input.0"], value) and op["input.0"].mean == pytest.approx(float(value.double().mean())) for op, value in zip(ops, wanted)]
    assert found == [True] * 6, found


@pytest.mark.parametrize("task", ["statistics", "sketch", "hash"])
def test_a_storage_that_is_given_again_is_not_mistaken(record: Any, task: str) -> None:
    def work() -> None:
        for value in range(20):
            torch.full((3000,), float(value)).exp()

    dump = record(work, level="op", task=task)
    ops = dump.all("Aten.exp")
    if task == "hash":
        assert len({op["input.0"].hash for op in ops}) == 20
    else:
        assert [op["input.0"].mean for op in ops] == [float(value) for value in range(20)]


def test_memory_that_changes_owner(record: Any) -> None:
    x, y = torch.zeros(3000), torch.ones(3000)

    def work() -> None:
        x.exp()
        x.set_(y)
        x.exp()
        x.untyped_storage().resize_(0)
        x.untyped_storage().resize_(12000)
        x.fill_(4.0)
        x.exp()

    assert [op["input.0"].mean for op in record(work).all("Tensor.exp")] == [0.0, 1.0, 4.0]


def test_views_have_their_own_values(record: Any) -> None:
    x = torch.randn(30, 50)
    views = [x.t(), x[::2, 1::3], x[3:], x.flip(0), x.as_strided((20, 30), (1, 7)), x.view(-1)[5:905].view(30, 30).t(), x[:1].expand(9, 50), x.unfold(1, 10, 3)]
    for level, name in (("api", "Tensor.exp"), ("op", "Aten.exp")):
        dump = record(lambda: [view.exp() for view in views], level=level)
        for op, view in zip(dump.all(name), views):
            assert same(op["input.0"], view), view.shape
            assert tuple(eval(op["input.0"].strides)) == view.stride()
            assert op["input.0"].norm == pytest.approx(float(view.double().norm()), rel=1e-12)


# -- autograd ---------------------------------------------------------------------------------------------------------


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sinh()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return gradient * x.cosh()


@pytest.mark.parametrize("level", ["api", "op"])
def test_functions_of_the_program_are_seen_in_both_passes(record: Any, level: str) -> None:
    x = torch.randn(3, requires_grad=True)
    dump = record(lambda: _Scaled.apply(x).sum().backward(), level=level)
    prefix = "Aten" if level == "op" else "Tensor"
    assert dump[f"{prefix}.sinh.0.forward"].phase == "forward"
    cosh = [op for op in dump.ops if ".cosh." in op.name]
    assert [op.phase for op in cosh] == ["backward"], dump.names
    assert cosh[0].line == "return gradient * x.cosh()"


class _Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.before, self.after = nn.Linear(4, 4), nn.Linear(4, 4)
        self.inner = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        for part in self.inner:
            x = checkpoint(part, x, use_reentrant=self.reentrant)
            x = x.tanh()
        return self.after(x)


def _checkpointed(record: Any, reentrant: bool, level: str, times: int = 1) -> Dump:
    torch.manual_seed(3)
    model = _Checkpointed(reentrant)

    def work() -> None:
        for _ in range(times):
            model(torch.ones(2, 4)).sum().backward()

    return record(work, model, level=level)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("level", ["module", "api", "op"])
def test_recomputed_calls_carry_the_number_of_the_first_time(record: Any, level: str, reentrant: bool) -> None:
    dump = _checkpointed(record, reentrant, level)
    again = [op for op in dump.ops if op.recomputed and op.phase == "forward"]
    first = {op.name: op for op in dump.ops if not op.recomputed}
    stem = {"module": "Module.inner", "api": "Functional.linear", "op": "Aten.addmm"}[level]
    assert len([op for op in again if op.name.startswith(stem)]) >= 2, [op.name for op in again]
    for op in again:
        if reentrant and op.name.startswith("Aten.detach."):
            # The first time, the region runs without gradients: autograd saves nothing then.
            continue
        assert op.name in first, (op.name, list(first))
        for path, slot in op.slots.items():
            if slot.kind == "tensor" and path in first[op.name].slots:
                assert slot.data.equal(first[op.name][path].data), (op.name, path)
    # Every other name is there once.
    once = [op.name for op in dump.ops if not op.recomputed]
    assert len(once) == len(set(once))
    # Inside: what follows is numbered on, as if nothing had been run again.
    after = {"module": "Module.after.Linear.forward.0", "api": "Functional.linear.5.forward", "op": "Aten.addmm.5.forward"}
    assert after[level] in dump


@pytest.mark.parametrize("level", ["module", "api", "op"])
def test_both_kinds_of_checkpointing_have_the_same_names(record: Any, level: str) -> None:
    def forward(dump: Dump) -> set[tuple[str, bool]]:
        skipped = ("Aten.detach.", "Aten.alias.")
        return {(op.name, op.recomputed) for op in dump.ops if op.phase == "forward" and not op.name.startswith(skipped)}

    one, two = (_checkpointed(record, reentrant, level, 3) for reentrant in (False, True))
    # Non-reentrant checkpointing stops as soon as it has what it needs, so it may run less again.
    assert {name for name, again in forward(one) if not again} == {name for name, again in forward(two) if not again}
    assert {name for name, again in forward(one) if again} <= {name for name, again in forward(two) if again}
    if level != "op":
        gradients = [
            {op.name for op in dump.ops if op.phase == "backward"} for dump in (one, two)
        ]
        assert gradients[0] == gradients[1]


def test_casts_of_autocast_are_seen(record: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8))
    x = torch.randn(3, 4)

    def work() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            model(x).sum().backward()

    ops = record(work, model, level="op")
    casts = [op for op in ops.all("Aten._to_copy") if op.phase == "forward" and op["output.0"].dtype == "torch.bfloat16"]
    assert len(casts) >= 3, ops.names
    assert {op.scope for op in casts} == {"Module.0.Linear.forward.0"}
    assert ops["Aten.addmm.0.forward"]["input.1"].dtype == "torch.bfloat16"
    assert any(op.phase == "backward" and op["output.0"].dtype == "torch.float32" for op in ops.all("Aten._to_copy"))
    apis = record(work, model, level="api")
    linear = apis["Functional.linear.0.forward"]
    assert linear["input.0"].dtype == "torch.float32" and linear["output.0"].dtype == "torch.bfloat16"


def test_a_scaler_is_seen(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with probe.capture(tmp_path / "dump", model=model, level="op", task="tensor"):
        for bad in (True, False, False):
            optimizer.zero_grad()
            loss = model(torch.ones(3, 4)).sum() * (float("inf") if bad else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    # The skipped step belongs to the iteration that follows.
    assert steps(tmp_path / "dump")[:2] == [0, 1]
    dump = Dump(tmp_path / "dump")
    assert len([op for op in dump.ops if op.name.startswith("Aten.addmm.") and op.phase == "forward"]) == 2
    assert any("_amp_foreach_non_finite_check" in name for name in dump.names)


def test_gradient_accumulation_is_one_iteration(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probe.capture(tmp_path / "dump", model=model, level="module", task="tensor"):
        for _ in range(2):
            optimizer.zero_grad()
            for _ in range(3):
                model(torch.ones(3, 4)).sum().backward()
            optimizer.step()
    for step in range(2):
        dump = Dump(tmp_path / "dump", step)
        gradients = [op for op in dump.ops if "parameters_grad" in op.name]
        assert [op.name for op in gradients] == [f"Module.Linear.Linear.parameters_grad.{n}" for n in range(3)]
        # The gradient gathered so far, as the optimizer will see it.
        assert [op["grad.bias"].data[0].item() for op in gradients] == [3.0, 6.0, 9.0]


def test_of_several_optimizers_the_first_leads(tmp_path: Path) -> None:
    models = [nn.Linear(4, 4), nn.Linear(4, 4)]
    optimizers = [torch.optim.SGD(models[0].parameters(), lr=0.1), torch.optim.Adam(models[1].parameters())]
    with probe.capture(tmp_path / "dump", model=models, level="op", task="statistics"):
        for _ in range(3):
            for model, optimizer in zip(models, optimizers):
                optimizer.zero_grad()
                model(torch.ones(1, 4)).sum().backward()
                optimizer.step()
    found = steps(tmp_path / "dump")
    assert found[:3] == [0, 1, 2]
    scopes = {op.scope for op in Dump(tmp_path / "dump", 1).ops}
    assert {"Optimizer.SGD.step.0", "Optimizer.Adam.step.0"} <= scopes
    assert {"Module.0.Linear.Linear.forward.0", "Module.1.Linear.Linear.forward.0"} <= scopes or {
        "Module.0.Linear.forward.0", "Module.1.Linear.forward.0"
    } <= scopes, scopes
