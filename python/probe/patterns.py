"""Patterns on the names of ops and modules, and the forms in which a name can be written.

An op has several names, and a pattern may match any of them:

* its full name, as in a report: `Functional.conv2d.0.forward`, `Module.layer1.0.conv1.Conv2d.forward.0`;
* the same without phase and number: `Functional.conv2d`;
* its name in torch: `torch.nn.functional.conv2d`, `torch.Tensor.add_`, `torch.ops.aten.addmm`;
* the path of a module that it runs in: `layer1.0.conv1`, or any enclosing module: `layer1`.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

#: Phases that an op's record can cover, in the order of a training step.
PHASES = ("forward", "backward", "gradients")

#: Torch's namespaces and the first word of op names for each; the longest comes first.
NAMESPACES = {
    "torch.nn.functional.": "Functional.",
    # Both are the same functions; the older tool writes them so.
    "torch.ops.npu.": "NPU.",
    "torch_npu.": "NPU.",
    "torch.distributed.": "Distributed.",
    "torch.Tensor.": "Tensor.",
    "torch.": "Torch.",
}

#: Prefix of the dispatcher's other namespaces: `torch.ops.aten.addmm` is `Aten.addmm`, `torch.ops.mine.f` is
#: `Mine.f`.
_DISPATCHER = "torch.ops."

#: Words that a wrapper adds to a module's path; the user never wrote them.
WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})

#: Words for the phases in op names.
_PHASE_WORDS = ("forward", "backward", "parameters_grad")

_API_CALL = re.compile(r"(?P<api>.+?)\.\d+(?:\.(?:forward|backward))?")
_MODULE_CALL = re.compile(r"Module\.(?P<path>.*?)\.?(?P<kind>[^.]+)\.(?:forward|backward|parameters_grad)(?:\.\d+)?")


@dataclass(frozen=True)
class Pattern:
    """One entry of a filter: `*` matches anything, `?` one character, `[abc]` one of several.

    A pattern that matches a module's path covers everything inside that module.
    """

    text: str
    phases: tuple[str, ...] = PHASES
    #: True if the text may also occur anywhere inside a name, as in the lists of the older tool.
    inside: bool = False
    _regex: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_regex", re.compile(fnmatch.translate(op_spelling(self.text))))

    def __str__(self) -> str:
        return self.text

    def matches(self, names: Iterable[str]) -> bool:
        """Returns true if the pattern matches any of the names."""
        if self.inside:
            spelled = op_spelling(self.text)
            return any(spelled in name for name in names)
        return any(self._regex.match(name) for name in names)

    def without_first_word(self) -> Pattern | None:
        """Returns the pattern without its first word, if that may be the user's name for the model
        (`my_model.layer1`).

        None if it cannot be: a single word, a torch name, or an op name.
        """
        first, dot, rest = self.text.partition(".")
        if not dot or not rest or not first.isidentifier() or is_op_name(self.text):
            return None
        return Pattern(rest, self.phases)

    @property
    def literal(self) -> bool:
        """True if the pattern contains no wildcard and matches only itself."""
        return not self.inside and not any(character in self.text for character in "*?[")


def op_spelling(text: str) -> str:
    """Returns a torch name in the spelling of op names (`torch.relu` becomes `Torch.relu`); any other text
    unchanged."""
    for namespace, prefix in NAMESPACES.items():
        if text.startswith(namespace) and not (prefix == "Torch." and text.startswith(_DISPATCHER)):
            return prefix + text[len(namespace):]
    if text.startswith(_DISPATCHER):
        rest = text.removeprefix(_DISPATCHER)
        return rest[:1].upper() + rest[1:]
    return text


def torch_spelling(name: str) -> str:
    """Returns an op name in torch's spelling (`Torch.relu` becomes `torch.relu`); any other text unchanged."""
    for namespace, prefix in NAMESPACES.items():
        if name.startswith(prefix):
            return namespace + name[len(prefix):]
    return _DISPATCHER + name[:1].lower() + name[1:] if name[:1].isupper() and not name.startswith("Module.") else name


def is_op_name(text: str) -> bool:
    """Returns true if a text is written as the name of a torch function or op, not as a module path."""
    return text.startswith(_DISPATCHER) or op_spelling(text).startswith((*NAMESPACES.values(), "Aten.", "Module.", "Optimizer."))


def api_of(name: str) -> str:
    """Returns the function behind a call: `Functional.conv2d.0.forward` becomes `Functional.conv2d`; a module call is
    unchanged."""
    found = _API_CALL.fullmatch(name)
    return found["api"] if found and not name.startswith("Module.") else name


def path_of(name: str) -> str | None:
    """Returns the path of the called module; None for a function call."""
    found = _MODULE_CALL.fullmatch(name)
    return found["path"] if found else None


def plain_path(path: str) -> str:
    """Returns a module's path as the user knows it, without wrapper words."""
    words = [word for word in path.split(".") if word not in WRAPPERS]
    if len(words) > 1 and words[0] == "module":
        words = words[1:]
    return ".".join(words)


def enclosing(path: str) -> Iterator[str]:
    """Yields a module's path and those of all enclosing modules, innermost first."""
    while path:
        yield path
        path = path.rpartition(".")[0]


def names_of(op: str, module: str = "") -> list[str]:
    """Returns every name under which an op that runs in a module can be listed."""
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
