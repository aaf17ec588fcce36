"""Programs below the bootstrap, as `probe capture` runs them: they record without being changed. The recorder is a stand-in."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

#: A training of which each test takes what it needs.
TRAIN = """
    import fake_recorder, torch
    def train(steps, model=None, optimizers=None):
        model = model or torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
        optimizers = optimizers or [torch.optim.SGD(model.parameters(), lr=0.1)]
        for _ in range(steps):
            model(torch.ones(1, 2)).sum().backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        return model
"""

Launched = Callable[..., Any]


def test_a_training_is_recorded_from_its_first_module_to_its_last_step(launched: Launched, log: Any, tmp_path: Path) -> None:
    program = TRAIN + """
    before = torch.nn.Module.__call__
    assert before is not torch.nn.Module._wrapped_call_impl, "the recorder does not wait"
    torch.nn.Linear(1, 1)
    model = train(4)
    assert torch.nn.Module.__call__ is torch.nn.Module._wrapped_call_impl
    import torch.optim.optimizer as optimizer_module
    assert not optimizer_module._global_optimizer_post_hooks, "the last step is over, and a hook is left"
    """
    # Once as users do: with an interpreter that imports torch itself.
    done = launched(program, options={"steps": "1-2", "level": "op", "include": ["0"]}, interpreter=sys.executable)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    assert log.events() == ["made", "start", "step", "step", "step", "close"]
    settings = log.settings()
    assert (settings["output"], settings["steps"], settings["level"]) == (str(tmp_path / "probe_dump"), "1-2", "op")


def test_the_recorder_is_there_before_the_first_call_begins(launched: Launched) -> None:
    program = TRAIN + """
    import fake_recorder
    calls = []
    fake_recorder.Session.start = lambda self, model=None: torch.nn.modules.module.register_module_forward_pre_hook(
        lambda module, args: calls.append(type(module).__name__))
    model = torch.nn.Sequential(torch.nn.ReLU())
    model(torch.ones(1))
    assert calls == ["Sequential", "ReLU"], calls
    """
    done = launched(program)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_first_optimizer_that_steps_counts(launched: Launched, log: Any) -> None:
    program = TRAIN + """
    model = torch.nn.Linear(2, 2)
    first, second = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
    train(2, model, [first, second, second])
    del first
    import gc; gc.collect()
    train(1, model, [second, second])
    """
    done = launched(program)
    assert (done.returncode, done.stderr) == (0, "")
    assert log.events().count("step") == 2 + 2, "when the optimizer that leads is gone, the next one leads"


def test_functions_without_a_module_are_recorded_from_the_second_step(launched: Launched, log: Any) -> None:
    program = """
    import fake_recorder, torch
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(2):
        weight.sum().backward(); optimizer.step()
    """
    assert launched(program).returncode == 0
    assert log.events() == ["made", "set_step", "start", "step", "close"] and log.records()[1]["step"] == 1


@pytest.mark.parametrize(
    ("end", "code", "last"),
    [
        ("sys.exit(7)", 7, ""),
        ("raise KeyError('mine')", 1, "KeyError: 'mine'"),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        # Whatever runs the tests in the background may have had interrupts ignored.
        (
            "signal.signal(signal.SIGINT, signal.default_int_handler); os.kill(os.getpid(), signal.SIGINT); signal.pause()",
            -signal.SIGINT,
            "KeyboardInterrupt",
        ),
    ],
)
def test_the_end_is_the_programs_own(launched: Launched, log: Any, end: str, code: int, last: str) -> None:
    done = launched(TRAIN + f"""
    import os, signal, sys
    train(1)
    {end}
    """)
    assert done.returncode == code and done.stderr.strip().endswith(last)
    assert (log.events()[-1] == "close") is (code != -signal.SIGKILL)


@pytest.mark.parametrize(
    ("program", "options", "reason"),
    [
        ("pass", {}, "nothing was recorded: no nn.Module was called"),
        ("train(2)", {"ranks": "1"}, "this single process is rank 0, which is not among ranks 1"),
    ],
)
def test_a_program_of_which_nothing_is_recorded_says_why(launched: Launched, program: str, options: dict[str, str], reason: str) -> None:
    done = launched(TRAIN + f"    {program}\n", options=options)
    assert done.returncode == 0 and done.stderr.count("\n") == 1 and reason in done.stderr, done.stderr
    assert "warning" not in done.stderr


def test_a_program_without_torch_says_so_and_its_children_do_not(launched: Launched) -> None:
    done = launched("import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(5)'], check=True)", interpreter=sys.executable)
    assert (done.returncode, done.stdout) == (0, "5\n")
    assert done.stderr == "probe: nothing was recorded: the program never imported torch or mindspore\n"


def test_ranks_are_those_of_the_launcher(launched: Launched, log: Any) -> None:
    program = TRAIN + "    train(1)\n"
    world = {"WORLD_SIZE": "2"}
    done = launched(program, options={"ranks": "1"}, environment={"RANK": "0", **world})
    assert (done.returncode, done.stderr, log.events()) == (0, "", [])
    done = launched(program, options={"ranks": "1"}, environment={"RANK": "1", **world})
    assert (done.returncode, done.stderr) == (0, "") and log.events() == ["made", "start", "step", "close"]


def test_a_fault_of_the_recorder_never_reaches_the_program(launched: Launched, log: Any) -> None:
    program = TRAIN + """
    import sys
    def fail(self, *args, **kwargs):
        raise RuntimeError("broken in " + sys.argv[1])
    setattr(fake_recorder.Session, sys.argv[1], fail)
    train(2)
    print("trained")
    """
    for call in ("start", "step", "close"):
        done = launched(program, call, options={"steps": "0-1"})
        assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
        assert done.stderr.count("\n") == 1 and f"RuntimeError: broken in {call}" in done.stderr, done.stderr


def test_a_missing_recorder_is_said_in_one_line(launched: Launched) -> None:
    program = TRAIN + """
    import sys
    sys.modules["probe.recorder._session"] = None
    train(1)
    """
    done = launched(program)
    assert done.returncode == 0 and done.stderr.count("\n") == 1 and "recording has stopped: ModuleNotFoundError" in done.stderr


def test_processes_that_serve_another_record_nothing(launched: Launched, log: Any) -> None:
    program = TRAIN + """
    import os, subprocess, sys
    from torch.utils.data import DataLoader
    class Data(torch.utils.data.Dataset):
        transform = torch.nn.ReLU()
        def __len__(self): return 4
        def __getitem__(self, index): return self.transform(torch.ones(1) * index)
    def load(method):
        return [batch.sum().item() for batch in DataLoader(Data(), num_workers=1, multiprocessing_context=method)]
    if __name__ == "__main__":
        load("fork")
        train(1)
        load("fork")
        load("spawn")
        child = os.fork()
        if child == 0:
            train(1)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        subprocess.run([sys.executable, "-c", "import fake_recorder, torch; torch.nn.ReLU()(torch.ones(1))"], check=True)
        train(1)
        print(os.getpid())
    """
    done = launched(program)
    assert done.returncode == 0, done.stderr
    assert {record["pid"] for record in log.records()} == {int(done.stdout)}
    assert log.events() == ["made", "start", "step", "step", "close"]
    assert done.stderr.count("\n") == 1 and "which started this one, already records rank 0" in done.stderr


def test_ranks_that_were_forked_or_spawned_record_each_for_itself(launched: Launched, log: Any) -> None:
    program = TRAIN + """
    import os, sys
    import torch.multiprocessing
    def rank(number, port):
        import fake_recorder
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        store = torch.distributed.FileStore(port, 2)
        torch.distributed.init_process_group("gloo", store=store, rank=number, world_size=2)
        train(1)
        torch.distributed.destroy_process_group()
    if __name__ == "__main__":
        torch.multiprocessing.start_processes(rank, (sys.argv[1],), nprocs=2, start_method=sys.argv[2])
    """
    for method in ("fork", "spawn"):
        log.path.unlink(missing_ok=True)
        done = launched(program, str(log.path) + method, method)
        assert done.returncode == 0, done.stderr
        by_process: dict[int, list[str]] = {}
        for record in log.records():
            by_process.setdefault(record["pid"], []).append(record["event"])
        assert list(by_process.values()) == [["made", "start", "step", "close"]] * 2, method


def test_two_compiled_functions_and_a_traced_module_are_left_alone(launched: Launched, log: Any) -> None:
    program = TRAIN + """
    import torch.fx, copy, pickle
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    torch.fx.symbolic_trace(model)
    torch.jit.script(model)
    pickle.loads(pickle.dumps(copy.deepcopy(model)))
    import fake_recorder
    compiled = torch.compile(lambda x: model(x) + 1, backend="eager", fullgraph=True)
    compiled(torch.ones(1, 2))
    train(1, model)
    """
    done = launched(program)
    assert (done.returncode, done.stderr) == (0, "") and log.events() == ["made", "start", "step", "close"]


def test_names_and_settings_are_checked_before_the_training(launched: Launched, tmp_path: Path) -> None:
    done = launched(TRAIN + "    train(1)\n", options={"include": ["torch.rellu", "0"]})
    assert done.returncode == 0
    assert done.stderr == "probe: warning: include: 'torch.rellu' is not a torch function; did you mean 'torch.relu'?\n"
    config = tmp_path / "probe.toml"
    config.write_text("stpes = 1")
    done = launched(TRAIN + "    train(1)\n", config=config)
    assert done.stderr == f"probe: warning: nothing is recorded: {config}: unknown key 'stpes'; did you mean 'steps'?\n"


def test_the_users_values_can_be_saved(launched: Launched, log: Any) -> None:
    done = launched(TRAIN + """
    import probe
    model = train(1)
    probe.save("answer", 42)
    """)
    assert (done.returncode, done.stderr) == (0, "") and log.events()[-2:] == ["save", "close"]


def test_the_order_is_read_back() -> None:
    from probe.launch import Order, check
    from probe.settings import SettingsError

    environment = pytest.MonkeyPatch()
    with environment.context() as patch:
        patch.setenv("PROBE_CAPTURE", json.dumps({"config": None, "arguments": {"steps": "3"}, "directory": "/x"}))
        order = Order.from_environment()
        assert order is not None and order.settings().output == "/x/probe_dump"
        assert os.path.isfile(os.path.join(check(), "sitecustomize.py"))
        for broken in ("{", "[]", '{"arguments": 3}'):
            patch.setenv("PROBE_CAPTURE", broken)
            with pytest.raises(SettingsError, match="PROBE_CAPTURE"):
                Order.from_environment()
        patch.delenv("PROBE_CAPTURE")
        assert Order.from_environment() is None
    assert sys.modules["probe.launch"]
