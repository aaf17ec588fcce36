"""Patterns on the names of ops and modules, and the forms in which a name can be written.

An op has several names, and a pattern may be written against any of them:

* its full name, as in a report: `Functional.conv2d.0.forward`, `Module.layer1.0.conv1.Conv2d.forward.0`;
* the same without phase and number: `Functional.conv2d`;
* the name it has in torch: `torch.nn.functional.conv2d`, `torch.Tensor.add_`, `torch.ops.aten.addmm`;
* the path of a module that it runs in: `layer1.0.conv1`, or any module around it: `layer1`.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

#: What a record of an op can be about, in the order of a training step.
PHASES = ("forward", "backward", "gradients")

#: Names of torch's namespaces and what the first word of an op's name is for them; the longest comes first.
NAMESPACES = {
    "torch.nn.functional.": "Functional.",
    # Both are the same functions; the older tool writes them so.
    "torch.ops.npu.": "NPU.",
    "torch_npu.": "NPU.",
    "torch.distributed.": "Distributed.",
    "torch.Tensor.": "Tensor.",
    "torch.": "Torch.",
}

#: Below it lie the other namespaces of the dispatcher: `torch.ops.aten.addmm` is `Aten.addmm`, `torch.ops.mine.f` is `Mine.f`.
_DISPATCHER = "torch.ops."

#: Words in a module's path that a wrapper put there; the user never wrote them.
WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})

#: The word for a phase in the name of an op.
_PHASE_WORDS = ("forward", "backward", "parameters_grad")

_API_CALL = re.compile(r"(?P<api>.+?)\.\d+(?:\.(?:forward|backward))?")
_MODULE_CALL = re.compile(r"Module\.(?P<path>.*?)\.?(?P<kind>[^.]+)\.(?:forward|backward|parameters_grad)(?:\.\d+)?")


@dataclass(frozen=True)
class Pattern:
    """One entry of a filter: `*` stands for anything, `?` for one character, `[abc]` for one of several.

    A pattern that matches the path of a module holds for everything inside that module.
    """

    text: str
    phases: tuple[str, ...] = PHASES
    #: Whether the text may also stand anywhere inside a name, as in the lists of the older tool.
    inside: bool = False
    _regex: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_regex", re.compile(fnmatch.translate(op_spelling(self.text))))

    def __str__(self) -> str:
        return self.text

    def matches(self, names: Iterable[str]) -> bool:
        """Whether any of the names is the pattern's."""
        if self.inside:
            spelled = op_spelling(self.text)
            return any(spelled in name for name in names)
        return any(self._regex.match(name) for name in names)

    def without_first_word(self) -> Pattern | None:
        """The same pattern, if it may begin with the user's name for the model (`my_model.layer1`), without that word.

        None where that cannot be: a single word, a torch name, the name of an op.
        """
        first, dot, rest = self.text.partition(".")
        if not dot or not rest or not first.isidentifier() or is_op_name(self.text):
            return None
        return Pattern(rest, self.phases)

    @property
    def literal(self) -> bool:
        """Whether the pattern stands for itself alone."""
        return not self.inside and not any(character in self.text for character in "*?[")


def op_spelling(text: str) -> str:
    """A torch name in the spelling of op names (`torch.relu` becomes `Torch.relu`); any other text as it is."""
    for namespace, prefix in NAMESPACES.items():
        if text.startswith(namespace) and not (prefix == "Torch." and text.startswith(_DISPATCHER)):
            return prefix + text[len(namespace):]
    if text.startswith(_DISPATCHER):
        rest = text.removeprefix(_DISPATCHER)
        return rest[:1].upper() + rest[1:]
    return text


def torch_spelling(name: str) -> str:
    """The name of an op in the spelling of torch (`Torch.relu` becomes `torch.relu`); any other text as it is."""
    for namespace, prefix in NAMESPACES.items():
        if name.startswith(prefix):
            return namespace + name[len(prefix):]
    return _DISPATCHER + name[:1].lower() + name[1:] if name[:1].isupper() and not name.startswith("Module.") else name


def is_op_name(text: str) -> bool:
    """Whether a text is written as the name of a torch function or of an op, not as the path of a module."""
    return text.startswith(_DISPATCHER) or op_spelling(text).startswith((*NAMESPACES.values(), "Aten.", "Module.", "Optimizer."))


def api_of(name: str) -> str:
    """The function behind a call: `Functional.conv2d.0.forward` becomes `Functional.conv2d`; a module's call stays whole."""
    found = _API_CALL.fullmatch(name)
    return found["api"] if found and not name.startswith("Module.") else name


def path_of(name: str) -> str | None:
    """The path of the module of which this is a call; None for the call of a function."""
    found = _MODULE_CALL.fullmatch(name)
    return found["path"] if found else None


def plain_path(path: str) -> str:
    """A module's path as the user knows it, without the words of wrappers."""
    words = [word for word in path.split(".") if word not in WRAPPERS]
    if len(words) > 1 and words[0] == "module":
        words = words[1:]
    return ".".join(words)


def enclosing(path: str) -> Iterator[str]:
    """A module's path and those of all modules around it, the innermost first."""
    while path:
        yield path
        path = path.rpartition(".")[0]


def names_of(op: str, module: str = "") -> list[str]:
    """Every name under which an op that runs in a module can be listed."""
    own = path_of(op)
    names = [op]
    if own is None:
        names.append(api_of(op))
        if op.endswith(tuple(f".{word}" for word in _PHASE_WORDS)):
            names.append(op.rpartition(".")[0])
    paths = [path for path in (own, module) if path]
    for path in [*paths, *(plain_path(path) for path in paths)]:
        names.extend(enclosing(path))
    return list(dict.fromkeys(names))
