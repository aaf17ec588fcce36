"""Every kind of tensor is recorded as far as it can be, at every level, and never ends in an exception."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import nn
from torch._dynamo import eval_frame

import probe
from dumps import Dump
from runs import on_ranks

LEVELS = ("api", "op")


def _exp(dump: Dump, level: str) -> Any:
    return dump.all("Aten.exp" if level == "op" else "Tensor.exp")[0]


@pytest.fixture(params=["inside", "attributes"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How tensors are read; by their attributes where torch's objects are not as they are known to be."""
    if request.param == "attributes":
        monkeypatch.setattr(torch._C, "_dispatch_keys", None)
    return request.param


@pytest.mark.parametrize("level", LEVELS)
def test_facts_are_those_of_the_attributes(record: Any, level: str, way: str) -> None:
    whole, wanted = torch.ones(4, 5, 6), torch.ones(3, 2, requires_grad=True)
    with torch.inference_mode():
        inferred = torch.ones(2, 3)
    tensors = [
        whole,
        whole[1:, 2].t(),
        whole[:, ::2, 1:],
        torch.ones(3, 1).expand(3, 4),
        torch.tensor(2.5),
        torch.ones(0, 3),
        wanted,
        wanted.detach(),
        wanted.t(),
        wanted * 2,
        nn.Parameter(torch.ones(2)),
        nn.Parameter(torch.ones(2), requires_grad=False),
        inferred,
        torch.frombuffer(bytearray(64), dtype=torch.float32)[4:],
        torch.ones(2, dtype=torch.float64),
        torch.ones(2, dtype=torch.complex64),
        torch.ones(2, dtype=torch.complex64).conj(),
        torch._neg_view(torch.ones(3)),
        torch.ones(2, dtype=torch.bool),
        torch.ones(3, 2, dtype=torch.bfloat16).t(),
    ]
    dump = record(lambda: [tensor.exp() for tensor in tensors], level=level)
    slots = [op["input.0"] for op in dump.all("Aten.exp" if level == "op" else "Tensor.exp")]
    found = [(slot.dtype, slot.shape, slot.strides and tuple(json.loads(slot.strides)), slot.requires_grad) for slot in slots]
    assert found == [(str(t.dtype), tuple(t.shape), t.stride(), t.requires_grad) for t in tensors]
    assert all(slot.elements == tensor.numel() for slot, tensor in zip(slots, tensors))


def test_attributes_are_asked_once_for_a_kind_of_tensor(record: Any, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the version of torch that the tests use, what they say is read where torch keeps it."""
    asked, is_negated = [], torch.Tensor.is_neg
    monkeypatch.setattr(torch.Tensor, "is_neg", lambda tensor: asked.append(tensor) or is_negated(tensor))
    dump = record(lambda: [torch.ones(size) * 2 for size in range(100)], level="op")
    assert len(dump.all("Aten.mul")) == 100
    assert (0 < len(asked) < 10) == (way == "inside")


@pytest.mark.parametrize("level", LEVELS)
def test_sparse(record: Any, level: str) -> None:
    coo = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
    csr = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse_csr()
    dump = record(lambda: (torch.sparse.mm(coo, torch.eye(2)), csr @ torch.ones(2), coo.coalesce().values(), coo + coo), level=level)
    notes = {slot.tensor_note for op in dump.ops for slot in op.slots.values() if slot.kind == "tensor"}
    assert {"sparse_coo", "sparse_csr"} <= notes, notes
    values = [slot for op in dump.ops for path, slot in op.slots.items() if path.endswith(".values")]
    assert values and all(slot.norm == pytest.approx(13**0.5) or slot.norm == pytest.approx(2 * 13**0.5) for slot in values)


@pytest.mark.parametrize("level", LEVELS)
def test_nested(record: Any, level: str) -> None:
    parts = [torch.full((2, 3), 1.0), torch.full((4, 3), 2.0)]

    def work() -> None:
        jagged = torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=True)
        jagged.exp().values().sum().backward()
        (torch.nested.nested_tensor(parts) * 2).to_padded_tensor(0.0)

    dump = record(work, level=level)
    notes = {slot.tensor_note for op in dump.ops for slot in op.slots.values() if slot.kind == "tensor"}
    assert any(note and note.startswith("nested") for note in notes) or level == "op", notes


@pytest.mark.parametrize("level", LEVELS)
def test_tensors_without_data(record: Any, level: str) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    def work() -> None:
        torch.empty(3, 5, device="meta").exp()
        with FakeTensorMode():
            fake = torch.empty(2, 2).exp() @ torch.ones(2, 2)
        assert type(fake).__name__ == "FakeTensor"

    dump = record(work, level=level)
    first = _exp(dump, level)["input.0"]
    assert first.shape == (3, 5) and first.dtype == "torch.float32" and first.device == "meta" and first.elements is None
    assert first.tensor_note.startswith("no data")


@pytest.mark.parametrize("level", LEVELS)
def test_quantised(record: Any, level: str) -> None:
    def work() -> None:
        q = torch.quantize_per_tensor(torch.tensor([0.0, 1.0, 2.0]), 0.5, 3, torch.quint8)
        q.dequantize()

    slots = [slot for op in record(work, level=level).ops for slot in op.slots.values() if "quantised" in (slot.tensor_note or "")]
    assert slots and slots[0].tensor_note == "quantised, scale 0.5, zero point 3"
    assert slots[0].max_integer == 7 and slots[0].min_integer == 3


@pytest.mark.parametrize("level", LEVELS)
def test_complex_numbers_with_bits_set(record: Any, level: str) -> None:
    x = torch.complex(torch.randn(40), torch.randn(40))
    for view in (x, x.conj(), x.conj().imag, x[::2]):
        slot = _exp(record(lambda: view.exp(), level=level), level)["input.0"]
        plain = view.resolve_conj().resolve_neg()
        if level == "api":
            assert torch.equal(slot.data, plain)
        assert slot.norm == pytest.approx(float(torch.linalg.vector_norm(plain.to(torch.complex128))), rel=1e-9)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
        torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64, torch.complex128,
    ],
    ids=str,
)
def test_every_type(record: Any, level: str, dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 1, 0, 1]).to(dtype)
    dump = record(lambda: x.clone(), level=level)
    slot = dump.ops[0]["output.0"]
    assert slot.dtype == str(dtype) and slot.elements == 5 and slot.zeros == 2
    assert torch.equal(slot.data.view(torch.uint8), x.view(torch.uint8))


@pytest.mark.parametrize("level", LEVELS)
def test_scalars_and_empty_tensors(record: Any, level: str) -> None:
    dump = record(lambda: (torch.tensor(-3.0).exp(), torch.empty(0, 4).exp(), torch.empty(2, 0, 3).expand(2, 0, 3).exp()), level=level)
    scalar, empty, other = dump.all("Aten.exp" if level == "op" else "Tensor.exp")
    assert scalar["input.0"].shape == () and scalar["input.0"].norm == 3.0 and scalar["input.0"].mean == -3.0
    assert empty["input.0"].shape == (0, 4) and empty["input.0"].elements == 0 and empty["input.0"].mean is None
    assert other["output.0"].shape == (2, 0, 3)


@pytest.mark.parametrize("level", LEVELS)
def test_numbers_that_are_not_finite(record: Any, level: str) -> None:
    x = torch.tensor([1.0, float("nan"), float("inf"), float("-inf"), -2.0])
    slot = _exp(record(lambda: x.exp(), level=level), level)["input.0"]
    assert (slot.nan, slot.pos_inf, slot.neg_inf, slot.min, slot.max) == (1, 1, 1, -2.0, 1.0)


@pytest.mark.parametrize("level", LEVELS)
def test_function_transforms(record: Any, level: str) -> None:
    x = torch.randn(3, 4)

    def work() -> Any:
        one = torch.vmap(lambda row: row.exp().sum())(x)
        two = torch.func.grad(lambda value: value.exp().sum())(x)
        three = torch.vmap(torch.func.grad(lambda row: (row.exp() * 2).sum()))(x)
        four = torch.func.jvp(lambda value: value.exp(), (x,), (torch.ones_like(x),))[1]
        return [one, two, three, four]

    wanted = work()
    found: list[Any] = []
    dump = record(lambda: found.extend(work()), level=level)
    assert all(torch.equal(a, b) for a, b in zip(wanted, found))
    assert _exp(dump, level)["input.0"].norm == pytest.approx(float(x.double().norm()))


@pytest.mark.parametrize("level", ["module", *LEVELS])
def test_inference_mode(record: Any, level: str) -> None:
    model = nn.Sequential(nn.Linear(50, 50), nn.ReLU(inplace=True))

    def work() -> None:
        with torch.inference_mode():
            x = torch.ones(40, 50)
            model(x)
            x.exp()
            x.mul_(3)
            x.exp()

    dump = record(work, model, level=level)
    if level != "module":
        assert [op["input.0"].mean for op in dump.all("Aten.exp" if level == "op" else "Tensor.exp")] == [1.0, 3.0]


class _Tagged(torch.Tensor):
    """A subclass without a memory of its own kind, as many libraries have."""


class _Boxed(torch.Tensor):
    """A wrapper that only knows how to run ops on what it holds."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, strides=inner.stride())

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    def __repr__(self, **kwargs: Any) -> str:
        raise AssertionError("asked for a text")

    def __tensor_flatten__(self) -> Any:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, *_: Any) -> Any:
        return _Boxed(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        open_ = lambda value: value.inner if isinstance(value, _Boxed) else value  # noqa: E731
        return _Boxed(func(*map(open_, args), **(kwargs or {})))


@pytest.mark.parametrize("level", LEVELS)
def test_subclasses(record: Any, level: str) -> None:
    tagged = torch.full((3,), 2.0).as_subclass(_Tagged)
    boxed = _Boxed(torch.full((3,), 4.0))
    result: list[Any] = []
    dump = record(lambda: result.extend([tagged.exp(), boxed.exp()]), level=level)
    assert type(result[0]) is _Tagged and type(result[1]) is _Boxed
    means = {op["input.0"].mean for op in dump.all("Aten.exp" if level == "op" else "Tensor.exp") if "input.0" in op.slots} | {
        slot.mean for op in dump.ops for path, slot in op.slots.items() if path == "input.0.inner"
    }
    assert {2.0, 4.0} <= means, means


def test_distributed_tensors_and_collectives(tmp_path: Path) -> None:
    def work(rank: int) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import Shard, distribute_tensor

        mesh = init_device_mesh("cpu", (2,))
        whole = torch.arange(8.0).reshape(4, 2)
        for level in ("mix", "op"):
            with probe.capture(tmp_path / level, level=level, task="statistics"):
                shards = distribute_tensor(whole, mesh, [Shard(0)])
                assert torch.equal((shards * 2).full_tensor(), whole * 2)
                shared = torch.full((500_000,), rank + 1.0)
                work = torch.distributed.all_reduce(shared, async_op=True)
                work.wait()
                assert shared[7] == 3.0
        for level in ("mix", "op"):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
            for layer in model:
                fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            with probe.capture(tmp_path / f"fsdp-{level}", model=model, level=level, task="statistics"):
                for _ in range(2):
                    model(torch.ones(3, 4)).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()

    said = on_ranks(work, tmp_path)
    assert "could not be recorded" not in said, said
    for rank in range(2):
        ops = Dump(tmp_path / "op", 0, rank)
        reduced = ops["C10d.allreduce_.0.forward"]
        assert (reduced["input.0.0"].mean, reduced["output.0.0"].mean) == (rank + 1.0, 3.0), "it was not waited for"
        apis = Dump(tmp_path / "mix", 0, rank)
        placed = [slot for op in apis.ops for slot in op.slots.values() if slot.placement]
        assert placed and "S" in placed[0].placement, apis.names
        reduced = apis["Distributed.all_reduce.0.forward"]
        assert (reduced["input.0"].mean, reduced["output.0"].mean) == (rank + 1.0, 3.0)
        fsdp = Dump(tmp_path / "fsdp-op", 1, rank).names
        assert any("all_gather" in name or "allgather" in name for name in fsdp), fsdp
        assert any("reduce_scatter" in name for name in fsdp), fsdp
        modules = Dump(tmp_path / "fsdp-mix", 1, rank).names
        assert any("parameters_grad" in name for name in modules), modules


@pytest.fixture
def compiler() -> Iterator[None]:
    """Starts and leaves with nothing compiled."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("level", ["module", "api", "op"])
def test_what_the_backend_eager_compiles_is_recorded_op_by_op(tmp_path: Path, level: str, compiler: None) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = torch.compile(model, backend="eager")
    function = torch.compile(lambda x: x.sin() * 2, backend="eager")
    x = torch.ones(2, 4)
    wanted = [compiled(x), function(x)]
    with probe.capture(tmp_path / "dump", model=compiled, level=level):
        found = [compiled(x), function(x)]
        compiled(x).sum().backward()
    assert all(torch.equal(a, b) for a, b in zip(wanted, found))
    dump = Dump(tmp_path / "dump")
    wanted_name = {"module": "Module.0.Linear.forward.0", "api": "Functional.linear.0.forward", "op": "Aten.addmm.0.forward"}[level]
    assert wanted_name in dump and dump.manifest["notes"] == [], dump.names
    assert level != "op" or "Aten.sin.0.forward" in dump
    assert not any(name.startswith("Compiled") for name in dump.names)
    # Afterwards it is compiled again.
    assert torch.equal(compiled(x), wanted[0])


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act, self.out = nn.GELU(), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.act(x))


def train_compiled(record: Callable[[nn.Module], AbstractContextManager[object]]) -> list[torch.Tensor]:
    """Three steps of a model with a compiled part, a compiled function, and ops that are not compiled."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(4, 6), Part(), nn.LayerNorm(4))
    model[1].compile(backend="aot_eager")
    scale = torch.compile(lambda x, by: x.sin() * by, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    results = []
    with record(model):
        for _ in range(3):
            x = torch.randn(3, 4, requires_grad=True)
            loss = scale(model(x), by=2.0).square().sum()
            loss.backward()
            optimizer.step()
            results += [loss.detach(), x.grad]
    return [*results, *model.parameters()]


@pytest.mark.parametrize("level", ["module", "mix", "api", "op"])
def test_compiled_code_is_recorded_at_its_boundary(
    tmp_path: Path, level: str, compiler: None, capfd: pytest.CaptureFixture[str]
) -> None:
    before = sys.getprofile()
    wanted = train_compiled(lambda model: nullcontext())
    # Compiled while it is recorded, and compiled before.
    torch._dynamo.reset()
    found = train_compiled(lambda model: probe.capture(tmp_path / "dump", model=model, level=level, steps="0,2"))
    assert all(torch.equal(a, b) for a, b in zip(wanted, found))
    assert capfd.readouterr().err.count("compiled functions are recorded as one op each") <= 1
    for step in (0, 2):
        dump = Dump(tmp_path / "dump", step)
        assert dump.manifest["notes"] == []
        part, function = dump["Compiled.1.Part.0.forward"], dump["Compiled.lambda.0.forward"]
        assert "boundary" in part.note and "boundary" in function.note
        assert part["input.0"].shape == (3, 6) and part["output.0"].shape == (3, 4)
        assert function["output.0"].shape == (3, 4) and "kwarg.by" in function.slots
        # Calls inside are not seen, calls outside are.
        inside = {"module": "1.act.GELU", "mix": "gelu", "api": "gelu", "op": "gelu"}[level]
        assert not any(inside in name for name in dump.names), dump.names
        outside = {"op": "Aten.native_layer_norm.0.forward", "api": "Functional.layer_norm.0.forward"}
        assert outside.get(level, "Module.2.LayerNorm.forward.0") in dump
        if level != "op":
            backward = dump["Compiled.1.Part.0.backward"]
            assert backward["input.0"].shape == (3, 4) and backward["output.0"].shape == (3, 6)
    assert sys.getprofile() is before
    assert eval_frame._callback_from_stance.__module__ == "torch._dynamo.eval_frame"


def test_an_exception_in_compiled_code_passes(tmp_path: Path, compiler: None) -> None:
    @torch.compile(backend="aot_eager")
    def wrong(x: torch.Tensor) -> torch.Tensor:
        return x.sin() @ torch.ones(3, 3)

    with probe.capture(tmp_path / "dump", level="api"):
        with pytest.raises(Exception, match="shape|size"):
            wrong(torch.ones(2, 2))
        torch.ones(2).cos()
    assert sys.getprofile() is None
    dump = Dump(tmp_path / "dump")
    assert "Compiled.wrong.0.forward" in dump and "Torch.cos.0.forward" in dump or "Tensor.cos.0.forward" in dump


@pytest.mark.parametrize("level", ["mix", "op"])
def test_tracing_works_while_recording(tmp_path: Path, level: str) -> None:
    class Small(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x) + 1

    model = Small()
    with probe.capture(tmp_path / "dump", model=model, level=level, task="statistics"):
        made = [torch.jit.script(model), torch.fx.symbolic_trace(model)]
        if level == "mix":
            # Under a dispatch mode, also one that does nothing, torch cannot run what it has traced.
            made.append(torch.jit.trace(model, torch.ones(2)))
        for one in made:
            assert one(torch.ones(2)).tolist() == [2.0, 2.0]
    nodes = [(node.op, str(node.target)) for node in made[1].graph.nodes if node.op.startswith("call")]
    assert len(nodes) == 2, "the recorder left something in the program's graph"
