"""A program that knows nothing of packing, and scripts that were written for the older tool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import fork_server
import probe

from .conftest import Pack, Packed, changed, differences, run

BOOTSTRAP = Path(probe.__file__).resolve().parent / "_bootstrap"

PLAIN = (("from probe.config_check import pack\n", ""), ('    pack(model, os.environ["PACK"], steps=2)\n', ""))
ARGUMENTS = ("parse_args([])", "parse_args(['--hidden', '8'])")


def ordered(order: str) -> dict[str, str]:
    """Variables that the command gives to the program."""
    path = os.pathsep.join(filter(None, (str(BOOTSTRAP), os.environ.get("PYTHONPATH"))))
    return {"PROBE_CONFIG_CHECK": order, "PYTHONPATH": path}


def collect(tmp_path: Path, *changes: tuple[str, str], **order: object) -> Pack:
    script = tmp_path / "train.py"
    script.write_text(changed(*PLAIN, *changes))
    run(script, ordered(json.dumps({"output": "pack.zip", "directory": str(tmp_path), "steps": 2, **order})))
    return Pack(tmp_path / "pack.zip")


def test_a_program_is_packed_without_a_change_to_it(tmp_path: Path, packed: Packed) -> None:
    pack = collect(tmp_path, ARGUMENTS)
    found = differences(packed(), pack)
    # Where the model was found: at its first call, not before the loop; and the way to the command's order.
    assert {key for key in found if not key.startswith(("random:marks.model.", "env:names", "env:values.PYTHONPATH"))} == set()
    assert pack.part("hyperparameters")["sources"][0]["values"] == {"hidden": 8}


def test_the_run_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    pack = collect(tmp_path, ("# BATCH", "open('%s', 'a').write('x')" % (tmp_path / "calls")), stop=True, steps=1)
    assert pack.manifest["steps"] == [0]
    assert (tmp_path / "calls").read_text() == "xx"


def test_other_modules_are_not_taken_for_the_model(tmp_path: Path) -> None:
    other = (
        "# LOOP",
        "frozen = nn.Linear(3, 3).requires_grad_(False); frozen(torch.ones(2, 3)); nn.ReLU()(torch.ones(2))\n"
        "teacher = nn.Linear(3, 3); teacher(torch.ones(2, 3))\n"
        "with torch.no_grad():\n    model.head(torch.ones(2, 8))",
    )
    pack = collect(tmp_path, other)
    assert pack.part("model")["modules"][0]["class"] == "Net"


def test_a_model_whose_method_calls_its_parts_is_packed_whole(tmp_path: Path, packed: Packed) -> None:
    methods = (("    def forward(self", "    def loss(self"), ("logits = model(", "logits = model.loss("))
    pack = collect(tmp_path, *methods)
    assert pack.manifest["steps"] == [0, 1]
    assert pack.part("model") == packed().part("model")
    assert pack.part("weights")["steps"][0] == packed().part("weights")["steps"][0]


def command(tmp_path: Path, *program: str, interpreter: str | None = None) -> Pack:
    """The pack that the command makes of a Python program."""
    order = [sys.executable, "-m", "probe", "config-check", "--collect", "--steps", "2", "-o", str(tmp_path / "pack.zip")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [*order, "--", interpreter or fork_server.python(), *program], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return Pack(tmp_path / "pack.zip")


def test_the_launcher_of_a_training_is_not_packed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    group = ("# MODEL", 'torch.distributed.init_process_group("gloo")\nmodel = nn.parallel.DistributedDataParallel(model)')
    script.write_text(changed(*PLAIN, group, ("# END", "torch.distributed.destroy_process_group()")))
    launch = ("-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2", str(script))
    pack = command(tmp_path, *launch, interpreter=sys.executable)
    assert (pack.manifest["ranks"], pack.manifest["steps"]) == ([0, 1], [0, 1])
    assert pack.part("distributed")["wrapper"]["kind"] == "DDP"


def test_helpers_that_import_torch_are_not_packed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    # As a worker that is started anew, of a rank of some run, which outlives the steps that are packed.
    helper = (
        "    # END",
        "    import subprocess, sys\n    subprocess.run([sys.executable, '-c', 'import torch'], check=True, env={**os.environ, 'RANK': '0'})",
    )
    script.write_text(changed(*PLAIN, helper))
    assert command(tmp_path, str(script)).manifest["steps"] == [0, 1]
    assert sorted(os.listdir(tmp_path)) == ["pack.zip", "train.py"]


INFERENCE = """
    import torch
    from torch import nn
    torch.manual_seed(3)
    class Speaker(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = nn.Linear(4, 4), nn.Linear(4, 4)
        def forward(self, state):
            return self.decoder(state)
        @torch.inference_mode()
        def generate(self, words):
            state = self.encoder(torch.ones(1, 4))
            for _ in range(words):
                state = self(state)
            return state
    model = Speaker().eval()
    with torch.no_grad():
        nn.Linear(2, 1)(torch.ones(1, 2))
    model.generate(5)
"""


def test_a_program_that_trains_nothing_is_packed(tmp_path: Path) -> None:
    script = tmp_path / "generate.py"
    script.write_text(textwrap.dedent(INFERENCE))
    # With an interpreter that imports torch itself, as users do.
    pack = command(tmp_path, str(script), interpreter=sys.executable)
    assert pack.manifest["steps"] == [0, 1]
    assert [module["class"] for module in pack.part("model")["modules"]] == ["Speaker", "Linear", "Linear"]
    assert not pack.part("flags")["grad_enabled"] and not pack.part("model")["modules"][0]["training"]
    assert len(pack.part("weights")["steps"][0]["tensors"]) == 4
    assert pack.part("dataset")["steps"][0]["arguments"][0]["shape"] == [1, 4]


def test_an_evaluation_before_the_training_leaves_the_pack_as_it_is(tmp_path: Path) -> None:
    evaluation = (
        "# MODEL",
        "model.eval()\nwith torch.no_grad(), torch.random.fork_rng():\n"
        "    nn.Linear(500, 500)(torch.ones(1, 500)); model(torch.zeros(2, 6, dtype=torch.long))\nmodel.train()",
    )
    script = tmp_path / "train.py"
    packs = []
    for changes in ((), (evaluation,)):
        script.write_text(changed(*PLAIN, *changes))
        packs.append(command(tmp_path, str(script)))
    plain, evaluated = packs
    assert evaluated.manifest["steps"] == plain.manifest["steps"] == [0, 1]
    for part in ("dataset", "model", "weights", "optimizer", "flags"):
        assert evaluated.part(part) == plain.part(part), part


def test_a_program_without_a_model_is_packed_as_far_as_it_goes(tmp_path: Path) -> None:
    (tmp_path / "pack.zip").write_bytes(b"of a run before")
    script = tmp_path / "nothing.py"
    script.write_text("import torch\n")
    pack = command(tmp_path, str(script))
    assert pack.manifest["steps"] == [] and "rank0/env.json" in pack.text and "rank0/weights.json" not in pack.text


def test_the_command_sees_all_that_a_call_in_the_script_sees(tmp_path: Path, packed: Packed) -> None:
    script = tmp_path / "train.py"
    script.write_text(changed(*PLAIN, ARGUMENTS))
    pack, asked = command(tmp_path, str(script)), packed()
    # Another process, with another environment.
    for part in ("dataset", "dataloader", "model", "weights", "optimizer", "schedule", "scaler"):
        assert pack.part(part) == asked.part(part)
    assert pack.part("random")["seeds"] == asked.part("random")["seeds"]
    assert [(call["function"], call["value"]) for call in pack.part("random")["calls"]] == [
        (call["function"], call["value"]) for call in asked.part("random")["calls"]
    ]
    by_mark = {mark["mark"]: mark["generators"] for mark in asked.part("random")["marks"]}
    for mark in pack.part("random")["marks"]:
        if mark["mark"] != "model":
            assert mark["generators"] == by_mark[mark["mark"]], mark["mark"]


@pytest.mark.parametrize("order", ["nonsense", "[]", '{"steps": 1}', '{"output": "x.zip", "run": "../x"}'])
def test_an_order_that_cannot_be_read_leaves_the_program_alone(tmp_path: Path, order: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(changed(*PLAIN))
    run(script, ordered(order))
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_no_order_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    from probe.config_check import collect

    monkeypatch.delenv("PROBE_CONFIG_CHECK", raising=False)
    collect.install()
    assert collect._discovery is None


def test_a_script_for_the_older_tool_works(packed: Packed) -> None:
    older = packed(
        ("from probe.config_check import pack\n", "from probe.config_check import ConfigChecker\n"),
        ("class Net", 'ConfigChecker.apply_patches(fmk="pytorch")\n\n\nclass Net'),
        (
            'pack(model, os.environ["PACK"], steps=2)',
            'ConfigChecker(model, output_zip_path=os.environ["PACK"], fmk="pytorch", steps=2)',
        ),
    )
    assert differences(packed(), older) == set()


def test_static_mode_packs_scripts_and_yaml(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("torchrun train.py --lr 1e-4 --bf16\n")
    (tmp_path / "run.yaml").write_text("model:\n  hidden: 64\n")
    files = [str(tmp_path / "run.sh"), str(tmp_path / "run.yaml")]
    script = tmp_path / "pack.py"
    script.write_text(f"from probe.config_check import ConfigChecker\nConfigChecker(shell_path={files}, output_zip_path={str(tmp_path / 's.zip')!r})\n")
    run(script)
    pack = Pack(tmp_path / "s.zip")
    assert [(source["source"], source["name"], source["values"]) for source in pack.part("hyperparameters")["sources"]] == [
        ("script", "run.sh", {"lr": 1e-4, "bf16": True}),
        ("yaml", "run.yaml", {"model": {"hidden": 64}}),
    ]
    assert pack.manifest["absent"]["weights"] == "no model was given" and pack.manifest["steps"] == []


def test_other_frameworks_are_refused(tmp_path: Path) -> None:
    # In a process of its own: using the package begins to watch seeds.
    script = tmp_path / "pack.py"
    script.write_text("from probe.config_check import ConfigChecker\nConfigChecker(output_zip_path='x.zip', fmk='paddle')\n")
    with pytest.raises(AssertionError, match="ValueError: fmk: 'paddle' is not"):
        run(script)
