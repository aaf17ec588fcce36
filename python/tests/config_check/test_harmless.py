"""Packing changes nothing: no result, no random number, no function that stays replaced; and its faults are its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probe.config_check import flags

from .conftest import Pack, changed
from .conftest import run as run_training

RESULT = """
import json
states = [repr(random.getstate()), repr(np.random.get_state(legacy=False)), torch.get_rng_state().tolist()]
weights = [p.double().sum().item() for p in model.state_dict().values()]
moments = [[v.double().sum().item() for v in s.values()] for s in optimizer.state.values()]
rates = scheduler.state_dict(), scaler.state_dict(), optimizer.param_groups[0]["lr"]
hooks = [str(k) for m in model.modules() for k, v in vars(m).items() if "hook" in k and v]
json.dump([record, states, weights, moments, repr(rates), hooks], open(os.environ["RESULT"], "w"))
"""


def run(tmp_path: Path, *changes: tuple[str, str], environment: dict[str, str] | None = None) -> list:
    tmp_path.mkdir(exist_ok=True)
    script = tmp_path / "train.py"
    script.write_text(changed(("# END", RESULT), *changes))
    result = tmp_path / "result.json"
    run_training(script, {"PACK": str(tmp_path / "pack.zip"), "RESULT": str(result), **(environment or {})})
    return json.loads(result.read_text())


WITHOUT = ('    pack(model, os.environ["PACK"], steps=2)\n', "")
ALL = (
    'pack(model, os.environ["PACK"], steps=2)',
    'pack(model, os.environ["PACK"], steps=3, dataloader=loader, optimizer=optimizer, scheduler=scheduler, scaler=scaler)',
)
RANDOM_DRAWS = ("# BATCH", "random.random(); np.random.rand(); record += torch.rand(2).tolist()")


@pytest.mark.parametrize("workers", ["0", "2"])
def test_losses_gradients_and_random_states_are_those_of_a_run_without(tmp_path: Path, workers: str) -> None:
    loader = ("num_workers=0", f"num_workers={workers}")
    without = run(tmp_path / "without", RANDOM_DRAWS, WITHOUT, loader, ("from probe.config_check import pack\n", ""))
    assert run(tmp_path / "found", RANDOM_DRAWS, loader) == without
    assert run(tmp_path / "given", RANDOM_DRAWS, loader, ALL) == without
    assert Pack(tmp_path / "given" / "pack.zip").manifest["steps"] == [0, 1, 2]


def test_everything_is_put_back(tmp_path: Path) -> None:
    names = """[
        torch.manual_seed, torch.seed, random.seed, np.random.seed, np.random.default_rng, torch.cuda.manual_seed_all,
        torch.autograd.backward, torch.nn.utils.clip_grad_norm_, clip_grad_norm_, torch.nn.utils.clip_grad_value_,
        torch.utils.data.DataLoader.__iter__, torch.utils.data.dataloader._BaseDataLoaderIter.__next__,
        torch.utils.data._utils.worker._worker_loop, torch.optim.lr_scheduler.LRScheduler.step, torch.amp.GradScaler.scale,
        torch.nn.Module.__call__, vars(torch.nn.modules.loss._Loss).get("__call__"),
        list(vars(__import__("sys").modules["torch.optim.optimizer"])["_global_optimizer_pre_hooks"]), list(torch.nn.modules.module._global_forward_pre_hooks),
    ]"""
    # Before our package is imported; `clip_grad_norm_` is the script's own copy of the name.
    early = ("from probe.config_check import pack\n", f"before = {names}\nfrom probe.config_check import pack\n")
    late = ("# LOOP", f"assert before != {names}")
    check = (
        "        if index == 3:\n",
        f"        if index >= 2:\n            assert all(a is b or a == b for a, b in zip(before, {names}))\n        if index == 3:\n",
    )
    run(tmp_path, early, late, check)


@pytest.mark.parametrize(
    "fault",
    [
        "generators.snapshot", "structure.collect", "flags.collect", "optimizer.collect", "packages.collect", "environment.collect",
        "Weights.add", "Batches.add", "host.device", "archive.write_rank", "hyperparameters.collect", "distributed.rank",
    ],
)
def test_a_fault_costs_a_part_and_never_the_training(tmp_path: Path, fault: str) -> None:
    owner, name = fault.split(".")
    place = "draft" if owner in ("archive", "hyperparameters") else "collection"
    plant = f"""
from probe.config_check import {place}
def fail(*arguments, **keywords):
    raise RuntimeError("planted")
setattr({place}.{owner}, "{name}", fail)
"""
    run(tmp_path, ("# MODEL", plant))
    pack = tmp_path / "pack.zip"
    lost = fault in ("host.device", "archive.write_rank", "distributed.rank")
    assert pack.exists() is not lost
    if not lost:
        assert any("planted" in reason for reason in Pack(pack).manifest["absent"].values())


def test_a_model_that_is_never_called_is_packed_at_the_end(tmp_path: Path) -> None:
    run(tmp_path / "called")
    run(tmp_path / "not", ("# LOOP", "loader = []"))
    called, pack = Pack(tmp_path / "called" / "pack.zip"), Pack(tmp_path / "not" / "pack.zip")
    assert pack.manifest["steps"] == [] and pack.manifest["absent"]["dataset"] == "the model was not called"
    # Calls before the first step are there all the same.
    assert pack.part("weights")["steps"] == called.part("weights")["steps"][:1]
    assert pack.part("model") == called.part("model")
    switches = called.part("flags")
    assert pack.part("flags") == {name: value for name, value in switches.items() if name not in flags.OF_A_STEP} != switches


def test_weights_that_may_have_been_trained_are_not_taken_for_the_first_ones(tmp_path: Path) -> None:
    by_hand = (
        "# LOOP",
        "loader = []\n"
        "model.head.weight.sum().backward()\n"
        "with torch.no_grad():\n    model.head.weight -= model.head.weight.grad",
    )
    run(tmp_path, by_hand)
    pack = Pack(tmp_path / "pack.zip")
    assert "rank0/weights.json" not in pack.text and "gradients" in pack.manifest["absent"]["weights"]


METHOD = (
    ("    def forward(self", "    def loss(self"),
    ("logits = model(", "logits = model.loss("),
)


def test_a_model_whose_methods_are_called_is_looked_at_when_its_optimizer_steps(tmp_path: Path) -> None:
    run(tmp_path / "called")
    found = run(tmp_path / "method", *METHOD)
    assert found == run(tmp_path / "without", *METHOD, WITHOUT, ("from probe.config_check import pack\n", ""))
    called, pack = Pack(tmp_path / "called" / "pack.zip"), Pack(tmp_path / "method" / "pack.zip")
    assert pack.manifest["steps"] == [0, 1]

    def trained(pack: Pack) -> list[list[dict]]:
        # The statistics that a normalization keeps have taken in the batch by then.
        return [[item for item in step["tensors"] if item["kind"] == "parameter"] for step in pack.part("weights")["steps"]]

    assert trained(pack) == trained(called)
    assert pack.part("optimizer")["accumulation"] == called.part("optimizer")["accumulation"]


def test_a_run_that_ends_early_is_packed_with_what_it_had(tmp_path: Path) -> None:
    run(tmp_path, ("steps=2", "steps=50"))
    assert Pack(tmp_path / "pack.zip").manifest["steps"] == [0, 1, 2, 3]


# Graphs of one piece: what breaks one is an error in the program.
COMPILE = 'torch.compile(model, backend="eager", fullgraph=True)'
COMPILED = {
    "before": (("    # PACK", f"    model = {COMPILE}"),),
    "after": (("    # LOOP", f"    model = {COMPILE}"),),
    "in place before": (("    # PACK", "    " + COMPILE.replace("torch.compile(model, ", "model.compile(")),),
    "in place after": (("    # LOOP", "    " + COMPILE.replace("torch.compile(model, ", "model.compile(")),),
    "its caller": (
        ("    # LOOP", f"    call = {COMPILE.replace('model', 'lambda *args, **kwargs: model(*args, **kwargs)')}"),
        ("logits = model(", "logits = call("),
    ),
}


@pytest.mark.parametrize("way", COMPILED)
def test_a_compiled_model_is_packed_and_not_disturbed(way: str, tmp_path: Path) -> None:
    run(tmp_path / "eager")
    with_pack = run(tmp_path / "with", *COMPILED[way])
    assert with_pack == run(tmp_path / "without", *COMPILED[way], WITHOUT, ("from probe.config_check import pack\n", ""))
    eager, pack = Pack(tmp_path / "eager" / "pack.zip"), Pack(tmp_path / "with" / "pack.zip")
    assert pack.manifest["steps"] == [0, 1]
    bare = [item["hash"] for item in pack.part("weights")["steps"][0]["tensors"] if item["kind"] == "parameter"]
    assert bare == [item["hash"] for item in eager.part("weights")["steps"][0]["tensors"] if item["kind"] == "parameter"]
    if way != "its caller":
        assert pack.part("dataset") == eager.part("dataset")
        assert "compile" in pack.part("flags")["compiler"] and "compile" in pack.part("model")["compiled"]


def test_an_exception_of_the_training_passes(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(changed(("# BATCH", "raise KeyError('mine')")))
    with pytest.raises(AssertionError, match="KeyError: 'mine'"):
        run_training(script, {"PACK": str(tmp_path / "pack.zip")})
    assert Pack(tmp_path / "pack.zip").manifest["steps"] == []


def test_a_pack_that_cannot_be_written_says_so_before_training(tmp_path: Path) -> None:
    (tmp_path / "pack.zip").mkdir()
    script = tmp_path / "train.py"
    script.write_text(changed())
    with pytest.raises(AssertionError, match="IsADirectoryError"):
        run_training(script, {"PACK": str(tmp_path / "pack.zip")})
