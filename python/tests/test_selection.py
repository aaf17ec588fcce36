"""Which ops a list of names selects."""

from __future__ import annotations

import pytest

from probe.patterns import Pattern, api_of, names_of, op_spelling, path_of, plain_path, torch_spelling
from probe.selection import Selection
from probe.settings import Settings

LINEAR = "Functional.linear.3.forward"
MODULE = "Module.layers.0.attn.proj.Linear.forward.1"


@pytest.mark.parametrize(
    ("torch", "op"),
    [
        ("torch.nn.functional.conv2d", "Functional.conv2d"),
        ("torch.relu", "Torch.relu"),
        ("torch.Tensor.add_", "Tensor.add_"),
        ("torch.distributed.all_reduce", "Distributed.all_reduce"),
        ("torch.ops.aten.addmm", "Aten.addmm"),
        ("torch.ops.mine.f", "Mine.f"),
    ],
)
def test_torch_names_have_one_spelling_as_ops(torch: str, op: str) -> None:
    assert op_spelling(torch) == op and torch_spelling(op) == torch


def test_the_parts_of_an_op_name() -> None:
    assert api_of(LINEAR) == "Functional.linear" and api_of("Tensor.__add__.3.backward") == "Tensor.__add__"
    assert api_of(MODULE) == MODULE
    assert path_of(MODULE) == "layers.0.attn.proj" and path_of("Module.Net.forward.0") == "" and path_of(LINEAR) is None
    assert path_of("Module.fc.Linear.parameters_grad.0") == "fc" and path_of("Module.fc.Linear.parameters_grad") == "fc"
    assert plain_path("module._orig_mod.layers.0") == "layers.0"
    assert plain_path("_fsdp_wrapped_module.fc") == "fc" and plain_path("module") == "module"
    assert "layers.0" in names_of(LINEAR, "module.layers.0.attn") and "Functional.linear.3" in names_of(LINEAR)


@pytest.mark.parametrize(
    ("pattern", "linear", "module"),
    [
        ("torch.nn.functional.linear", True, False),
        ("Functional.linear", True, False),
        ("Functional.linear.3.forward", True, False),
        ("Functional.linear.3", True, False),
        ("Functional.linear.4.forward", False, False),
        ("Functional.*", True, False),
        ("*linear*", True, False),
        ("linear", False, False),
        ("layers.0", True, True),
        ("layers.0.attn", True, True),
        ("layers.0.attn.proj", False, True),
        ("layers.*.attn", True, True),
        ("layers.1", False, False),
        ("layers", True, True),
        ("layer", False, False),
        ("my_model.layers.0", True, True),
        ("my_model.layers.1", False, False),
        (MODULE, False, True),
        ("Module.*.Linear.*", False, True),
        ("*.Linear.*", False, True),
    ],
)
def test_what_a_name_selects(pattern: str, linear: bool, module: bool) -> None:
    included = Selection(Settings.from_arguments(include=pattern))
    excluded = Selection(Settings.from_arguments(exclude=pattern))
    for selection, turn in ((included, False), (excluded, True)):
        assert selection.wants(LINEAR, "layers.0.attn") is (linear != turn)
        assert selection.wants(MODULE, "layers.0.attn") is (module != turn)
    assert (included.unused() == []) is (linear or module)


def test_a_wrapped_model_is_found_under_its_plain_path() -> None:
    selection = Selection(Settings.from_arguments(include="layer1.0"))
    assert selection.wants("Torch.relu.0.forward", "module.layer1.0.act")
    assert selection.wants("Torch.relu.0.forward", "_orig_mod.layer1._fsdp_wrapped_module.0.act")


def test_a_known_model_tells_the_first_word_from_a_module() -> None:
    selection = Selection(Settings.from_arguments(include="encoder.fc"))
    assert selection.wants("Torch.relu.0.forward", "fc")
    selection.learn(["", "encoder", "encoder.fc", "fc"])
    assert selection.wants("Torch.relu.0.forward", "encoder.fc") and not selection.wants("Torch.relu.0.forward", "fc")
    other = Selection(Settings.from_arguments(include="net.fc"))
    other.learn(["", "fc"])
    assert other.wants("Torch.relu.0.forward", "fc")


def test_exclude_wins_and_phases_are_those_of_the_entry() -> None:
    selection = Selection(
        Settings.from_arguments(include=["fc", {"name": "torch.relu", "phases": ["backward"]}], exclude="*dropout*")
    )
    assert not selection.everything
    assert selection.wants("Functional.linear.0.forward", "fc") and not selection.wants("Functional.dropout.0.forward", "fc")
    assert selection.wants("Torch.relu.0.backward", "", "backward") and not selection.wants("Torch.relu.0.forward", "", "forward")


def test_phases_hold_without_any_name() -> None:
    selection = Selection(Settings.from_arguments(phases="backward"))
    assert selection.everything and selection.wants(LINEAR, "", "backward") and not selection.wants(LINEAR, "", "forward")


def test_a_scope_opens_and_closes_in_each_step() -> None:
    selection = Selection(Settings.from_arguments(scope=["Torch.a.0.forward", "Torch.c.0.forward"]))
    assert selection.scoped
    for _ in range(2):
        seen = []
        selection.begin_step()
        for name in ("Torch.z.0.forward", "Torch.a.0.forward", "Torch.b.0.forward", "Torch.c.0.forward", "Torch.d.0.forward"):
            selection.opened(name)
            seen.append(selection.wants(name))
            selection.closed(name)
        assert seen == [False, True, True, True, False]
    selection.opened("Torch.a.0.forward")
    selection.begin_step()
    assert not selection.wants("Torch.b.0.forward"), "what one step leaves open is closed in the next"


def test_tensors_can_be_stored_of_some_ops() -> None:
    selection = Selection(Settings.from_arguments(tensors="fc", task="statistics"))
    assert selection.wants_tensor("Torch.relu.0.forward", "fc") and not selection.wants_tensor("Torch.relu.0.forward", "conv")
    assert selection.wants("Torch.relu.0.forward", "conv")
    assert Selection(Settings.from_arguments(task="tensor")).wants_tensor("Torch.relu.0.forward")
    assert not Selection(Settings.from_arguments()).wants_tensor("Torch.relu.0.forward")


def test_a_name_of_the_older_lists_may_stand_anywhere() -> None:
    pattern = Pattern("conv", inside=True)
    assert pattern.matches(["Functional.conv2d.0.forward"]) and not pattern.matches(["Functional.linear.0.forward"])
    assert Pattern("torch.relu", inside=True).matches(["Torch.relu_.0.forward"])


def test_names_that_never_repeat_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from probe import selection as module

    monkeypatch.setattr(module, "_KEPT", 8)
    selection = Selection(Settings.from_arguments(include="torch.relu"))
    assert all(selection.wants(f"Torch.relu.{number}.forward") for number in range(100))
    assert len(selection._kept) <= 8
