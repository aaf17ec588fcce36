"""Ways of accelerators, on the host: ops on a thread of torch's own, an optimizer that steps all
parameters at once, values that cannot be measured."""

from __future__ import annotations

import _thread
import functools
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
import training
from torch import nn

import probe

#: A function that no file of the user's holds, as on a thread that torch makes: nothing of it is among the frames.
RUN = compile("def run(work, done):\n    work()\n    done.set()\n", "<frozen engine>", "exec")


def elsewhere(work: Any) -> None:
    """Runs `work` on a thread without any frame of the program's."""
    names: dict[str, Any] = {}
    exec(RUN, names)
    done = threading.Event()
    _thread.start_new_thread(names["run"], (work, done))
    assert done.wait(120)


@pytest.mark.parametrize("level", ["mix", "op"])
def test_ops_on_a_thread_without_frames(tmp_path: Path, compare: Any, level: str) -> None:
    """The dump stays readable, and the stacks that there are stay those of their ops."""
    for name in ("one", "two"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))
        with probe.capture(tmp_path / name, model=model, steps="all", level=level, step_on="program") as capture:
            model(torch.randn(5, 6)).sum().backward()
            elsewhere(functools.partial(model, torch.randn(5, 6)))
            torch.ones(3).neg()
            capture.step()
    code, report = compare(tmp_path / "one", tmp_path / "two")
    assert (code, report["verdict"]) == (0, "agree")
    places = {}
    for batch in pq.read_table(tmp_path / "one" / "step0" / "rank0" / "ops.parquet").to_pylist():
        places[batch["op"]] = batch["stack"]
    frames = pq.read_table(tmp_path / "one" / "step0" / "rank0" / "stacks.parquet").to_pylist()
    gelu, neg = ("Functional.gelu", "Tensor.neg") if level == "mix" else ("Aten.gelu", "Aten.neg")
    assert places[f"{gelu}.0.forward"] is not None and places[f"{gelu}.1.forward"] is None
    assert any("torch.ones(3).neg()" in frame["frame"] for frame in frames if frame["stack"] == places[f"{neg}.0.forward"])


ADAM_W = {"loop": {"foreach": False}, "at once": {"foreach": True}, "fused": {"fused": True}}


def record_updates(dump: Path, way: str, level: str, steps: int = 2) -> Path:
    """Steps of AdamW, which steps one parameter after the other, as by default on the host, or all at once, as on devices."""
    model, _ = training.make("transformer")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **ADAM_W[way])
    source = torch.Generator().manual_seed(3)
    x, y = (torch.randint(0, 40, (2, 6), generator=source) for _ in range(2))
    with probe.capture(dump, model=model, steps="all", level=level):
        for _ in range(steps):
            optimizer.zero_grad()
            model(x, y).backward()
            optimizer.step()
    return dump


@pytest.mark.parametrize("way", ["at once", "fused"])
@pytest.mark.parametrize("level", ["mix", "api", "op"])
def test_an_optimizer_that_steps_all_parameters_at_once(tmp_path: Path, compare: Any, level: str, way: str) -> None:
    code, report = compare(record_updates(tmp_path / "loop", "loop", level), record_updates(tmp_path / "other", way, level))
    assert (code, report["verdict"], report["culprits"]) == (0, "agree", [])


@pytest.mark.parametrize(("way", "op"), [("loop", "Optimizer.AdamW.step.0"), ("at once", "Aten._foreach_sqrt.0.forward")])
def test_a_fault_inside_an_optimizer_is_one_fault(tmp_path: Path, compare: Any, way: str, op: str) -> None:
    """Named by the function where both sides call the same ones, else by the step as a whole."""
    baseline = record_updates(tmp_path / "baseline", way, "op", steps=1)
    with torch.library._scoped_library("aten", "IMPL") as kernels:

        def wrong(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
            roots = [tensor.pow(0.5) for tensor in tensors]
            roots[3].mul_(1.05)
            return roots

        kernels.impl("_foreach_sqrt", wrong, "CPU")
        candidate = record_updates(tmp_path / "candidate", "at once", "op", steps=1)
    code, report = compare(baseline, candidate)
    assert (code, [(culprit["op"], culprit["cause"]) for culprit in report["culprits"]]) == (1, [(op, "optimizer")])


@pytest.mark.parametrize("task", ["statistics", "sketch"])
def test_keys_that_are_repeated_for_each_head(tmp_path: Path, compare: Any, monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    """transformers has a kernel share keys and values between heads on GPUs and hosts, and repeats them by ops of its own on NPUs."""
    transformers = pytest.importorskip("transformers")
    from transformers.integrations import sdpa_attention

    def record(name: str) -> Path:
        torch.manual_seed(0)
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
        model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(vocab_size=64, head_dim=8, max_position_embeddings=32, **sizes)).bfloat16()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        words = torch.randint(0, 64, (2, 12), generator=torch.Generator().manual_seed(1))
        with probe.capture(tmp_path / name, model=model, steps=[0, 2], level="mix", task=task, quiet=True):
            for _ in range(3):
                model(input_ids=words, labels=words).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        return tmp_path / name

    def answer(name: str) -> Any:
        return compare(tmp_path / "shared", record(name))[1]

    record("shared")
    repeat = sdpa_attention.repeat_kv
    monkeypatch.setattr(sdpa_attention, "use_gqa_in_sdpa", lambda *_: False)
    report = answer("repeated")
    assert (report["verdict"], report["culprits"]) == ("agree", [])
    monkeypatch.setattr(sdpa_attention, "repeat_kv", lambda values, times: repeat(values * 1.02, times))
    first = answer("larger")["first_divergence"]
    assert (first["step"], first["op"].rpartition(".")[0][:14]) == (0, "Tensor.__mul__")
    # The second head reads what is the first one's: of statistics, nothing shows.
    if task == "sketch":
        monkeypatch.setattr(sdpa_attention, "repeat_kv", lambda values, times: values.repeat(1, times, 1, 1))
        first = answer("of other heads")["first_divergence"]
        assert (first["step"], first["op"]) == (0, "Functional.scaled_dot_product_attention.0.forward")
        assert "except for the shapes of input.1 and input.2" in first["reason"]


def test_values_that_cannot_be_measured_are_not_clean(tmp_path: Path, compare: Any) -> None:
    for name in ("one", "two"):
        with probe.capture(tmp_path / name, steps="all", level="api", step_on="program") as capture:
            torch.ones(700).neg()
            torch.zeros(8, dtype=torch.uint8).view(torch.bits8)
            capture.step()
    code, report = compare(tmp_path / "one", tmp_path / "two")
    assert (code, report["verdict"]) == (3, "incomplete")
    (left_out,) = report["incomplete"]
    assert "Tensor.view.0.forward output.0" in left_out["place"] and "torch.bits8 is not measured" in left_out["reason"]
    assert report["counts"]["roles"] | {"clean": 0, "unknown": 0} == dict.fromkeys(report["counts"]["roles"], 0)
    assert (report["counts"]["roles"]["unknown"], report["counts"]["roles"]["clean"]) == (1, len(["ones", "neg", "zeros"]))
