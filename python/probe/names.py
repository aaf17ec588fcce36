"""Checks that listed names exist: torch's functions, and the modules of the user's model. Needs torch."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from probe.nearest import nearest
from probe.patterns import Pattern, api_of, is_op_name, op_spelling, path_of, plain_path, torch_spelling

if TYPE_CHECKING:
    import torch

    from probe.settings import Settings


@functools.cache
def api_names() -> frozenset[str]:
    """Every torch function that an op can be named after: `Functional.conv2d`, `Torch.relu`, `Tensor.add_`."""
    import torch

    from probe.private import dispatcher

    namespaces: dict[str, object] = {"Functional": torch.nn.functional, "Torch": torch, "Tensor": torch.Tensor}
    if torch.distributed.is_available():
        namespaces["Distributed"] = torch.distributed
    names = set()
    for word, namespace in namespaces.items():
        for name in dir(namespace):
            # Attributes of a tensor (`T`, `real`) are intercepted the same way as its methods.
            if word == "Tensor" or callable(getattr(namespace, name, None)):
                names.add(f"{word}.{name}")
    # `dir(torch.ops.aten)` only has ops that were already used.
    for schema in dispatcher.all_names():
        names.add(op_spelling("torch.ops." + schema.partition(".")[0].replace("::", ".")))
    return frozenset(names)


def check_apis(settings: Settings) -> list[str]:
    """Returns warnings for listed names that are written as torch functions but are none. Needs no model."""
    return [
        warning
        for key, pattern in _listed(settings)
        if is_op_name(pattern.text) and not pattern.text.startswith("Module.")
        for warning in _unknown_api(settings, key, pattern)
    ]


def check_modules(settings: Settings, models: Iterable[torch.nn.Module]) -> list[str]:
    """Returns warnings for listed names that are written as module paths but exist in no model."""
    kinds = {name: type(module).__name__ for model in models for name, module in model.named_modules()}
    paths = {spelling for name in kinds for spelling in (name, plain_path(name)) if spelling}
    calls = {f"Module.{name}.{kind}.forward.0".replace("..", ".") for name, kind in kinds.items()}
    warnings = []
    for key, pattern in _listed(settings):
        if pattern.text.startswith("Module."):
            known = _is_module(Pattern(path_of(pattern.text) or ""), paths) or pattern.matches(calls)
        elif is_op_name(pattern.text):
            continue
        else:
            # A glob such as `*linear*` may be meant for ops of any name.
            known = _is_module(pattern, paths) or (not pattern.literal and pattern.matches(calls | api_names() | _bare_names()))
        if not known:
            near = _near(path_of(pattern.text) or pattern.text, paths)
            warnings.append(_warning(settings, key, pattern.text, "neither a module of the model nor a torch function", near))
    return warnings


def _is_module(pattern: Pattern, paths: set[str]) -> bool:
    shorter = pattern.without_first_word()
    return pattern.matches(paths) or (shorter is not None and shorter.matches(paths))


@functools.cache
def _bare_names() -> frozenset[str]:
    return frozenset(name.partition(".")[2] for name in api_names())


def _listed(settings: Settings) -> list[tuple[str, Pattern]]:
    keys = ("include", "exclude", "tensors")
    return [(key, pattern) for key in keys for pattern in getattr(settings, key)]


def _unknown_api(settings: Settings, key: str, pattern: Pattern) -> list[str]:
    known = api_names()
    name = api_of(op_spelling(pattern.text))
    if Pattern(name, inside=pattern.inside).matches(known) or _matches_a_call(pattern, known):
        return []
    found = nearest(name, known)
    return [_warning(settings, key, pattern.text, "not a torch function", torch_spelling(found) if found else None)]


def _matches_a_call(pattern: Pattern, known: frozenset[str]) -> bool:
    """Returns true if a glob over whole op names (`Torch.add.*.backward`) can match any."""
    if pattern.literal:
        return False
    return any(pattern.matches((f"{name}.0.forward", f"{name}.0.backward", f"{name}.0")) for name in known)


def _near(text: str, known: set[str]) -> str | None:
    """Returns the path nearest to a name, which may begin with the user's name for the model."""
    found = nearest(text, known)
    if found is not None or "." not in text:
        return found or _near_api(text)
    return nearest(text.partition(".")[2], known)


def _near_api(word: str) -> str | None:
    """Returns the torch function for a bare word."""
    found = nearest(word, {name.partition(".")[2] for name in api_names() if name.startswith(("Functional.", "Torch."))})
    if found is None:
        return None
    return torch_spelling(f"Functional.{found}" if f"Functional.{found}" in api_names() else f"Torch.{found}")


def _warning(settings: Settings, key: str, name: str, what: str, near: str | None) -> str:
    where = f"{settings.source}: " if settings.source else ""
    advice = f"did you mean {near!r}?" if near else "it matches nothing"
    return f"{where}{key}: {name!r} is {what}; {advice}"
