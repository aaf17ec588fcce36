"""Listed names that neither torch nor the model has."""

from __future__ import annotations

import pytest

from probe.settings import Settings

torch = pytest.importorskip("torch")

from probe import names  # noqa: E402


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer1 = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU())
        self.fc = torch.nn.Linear(4, 2)


def warnings(*listed: object, key: str = "include") -> list[str]:
    settings = Settings.from_arguments(**{key: list(listed)})
    return names.check_apis(settings) + names.check_modules(settings, [Net()])


@pytest.mark.parametrize(
    "name",
    [
        "torch.nn.functional.conv2d",
        "torch.relu",
        "torch.Tensor.add_",
        "torch.Tensor.__getitem__",
        "torch.ops.aten.addmm",
        "torch.ops.c10d.allreduce_",
        "torch.distributed.all_reduce",
        "Functional.linear",
        "Functional.linear.0.forward",
        "Tensor.__add__.3.backward",
        "Torch.add.*.backward",
        "Functional.*",
        "*linear*",
        "*Conv2d*",
        "Module.*.Conv2d.*",
        "Module.layer1.0.Conv2d.forward.0",
        "Module.fc.Linear.parameters_grad.0",
        "layer1",
        "layer1.0",
        "layer1.*",
        "my_model.layer1.0",
        "my_model.fc",
    ],
)
def test_names_that_exist_are_taken(name: str) -> None:
    assert warnings(name) == []


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("torch.nn.functional.conv2", "torch.nn.functional.conv2d"),
        ("torch.rellu", "torch.relu"),
        ("Functional.liner", "torch.nn.functional.linear"),
        ("Functional.liner.0.forward", "torch.nn.functional.linear"),
        ("torch.Tensor.ad_", "torch.Tensor.add_"),
        ("torch.ops.aten.adddmm", "torch.ops.aten.addmm"),
        ("layer1.00", "layer1.0"),
        ("layr1.0", "layer1.0"),
        ("my_model.layer1.7", "layer1.1"),
        ("Module.layer1.2.Conv2d.forward.0", "layer1.1"),
        ("softmx", "torch.nn.functional.softmax"),
    ],
)
@pytest.mark.parametrize("key", ["include", "exclude", "tensors"])
def test_names_that_do_not_exist_come_with_the_nearest(name: str, near: str, key: str) -> None:
    found = warnings(name, key=key)
    assert len(found) == 1 and found[0].startswith(f"{key}: {name!r} is n") and f"did you mean {near!r}?" in found[0], found


def test_a_name_like_no_other_is_said_to_match_nothing() -> None:
    (found,) = warnings("qqqqqqq.zzzzzz")
    assert found.endswith("it matches nothing")


def test_a_glob_that_can_match_nothing_is_named() -> None:
    assert len(warnings("*no_such_thing*")) == 1 and len(warnings("Functional.no_such*")) == 1
    assert len(warnings("Module.*.Conv9d.*")) == 1


def test_the_file_is_named(tmp_path: object) -> None:
    settings = Settings.from_arguments(include="torch.rellu").with_source("probe.toml")
    assert names.check_apis(settings)[0].startswith("probe.toml: include: 'torch.rellu'")


def test_a_wrapped_model_is_known_by_its_plain_paths() -> None:
    class Wrapper(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = Net()

    settings = Settings.from_arguments(include=["layer1.0", "module.layer1.0"])
    assert names.check_modules(settings, [Wrapper()]) == []
    assert names.check_modules(settings, [torch.nn.ReLU(), Net()]) == []
