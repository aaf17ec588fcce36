"""Decides which ops of a run are recorded: applies the filters of the settings to one op after another."""

from __future__ import annotations

from collections.abc import Iterable

from probe.nearest import nearest
from probe.patterns import Pattern, api_of, names_of, op_spelling, path_of, plain_path, torch_spelling
from probe.settings import Settings

#: Most answers kept. Names repeat from step to step; a run whose names never repeat must not fill the memory.
_KEPT = 1 << 16
#: Most names kept for finding the nearest to a misspelt one.
_KEPT_SEEN = 1 << 13


class Selection:
    """Filters of one recording thread of control: patterns, phases, and the range of `scope`, which has a state.

    Names have the form `Functional.linear.0.forward`, `Module.layers.0.Block.forward.0`.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._include = tuple(settings.include)
        self._exclude = tuple(settings.exclude)
        self._tensors = tuple(settings.tensors)
        self._scope = settings.scope
        self._open = settings.scope is None
        self._kept: dict[tuple[str, str, str], bool] = {}
        self._kept_tensors: dict[tuple[str, str, str], bool] = {}
        # Until the model is known, a listed name may or may not begin with the user's name for it.
        self._alternatives = {pattern: shorter for pattern in self._patterns() if (shorter := pattern.without_first_word())}
        self._used: set[Pattern] = set()
        #: Functions that were called, and paths of the modules that they were called in.
        self._seen: set[str] = set()
        #: True if the range of `scope` was ever entered.
        self._reached = False

    def _patterns(self) -> tuple[Pattern, ...]:
        return (*self._include, *self._exclude, *self._tensors)

    @property
    def everything(self) -> bool:
        """True if no filter on names is set, so that only the phase decides: `wants` need not be called for each
        op."""
        return not self._include and not self._exclude and self._scope is None

    @property
    def scoped(self) -> bool:
        """True if a range of ops is selected, so that `opened` and `closed` have to be called."""
        return self._scope is not None

    def learn(self, paths: Iterable[str]) -> None:
        """Take the paths of the model's modules, which show whether a listed name begins with the user's name for the
        model."""
        known = {name for path in paths for name in (path, plain_path(path)) if name}
        for pattern in list(self._alternatives):
            if pattern.matches(known):
                del self._alternatives[pattern]
        self._kept.clear()
        self._kept_tensors.clear()

    def begin_step(self) -> None:
        """Close a range left open by the previous step."""
        self._open = self._scope is None

    def opened(self, name: str) -> None:
        """Marks the beginning of an op. Call it before `wants`, for modules before anything inside them."""
        if self._scope is not None:
            self._see(name)
            if name == self._scope[0]:
                self._open = self._reached = True

    def closed(self, name: str) -> None:
        """Marks the end of an op. Call it after everything of the op is recorded, for modules after everything inside
        them."""
        if self._scope is not None and name == self._scope[1]:
            self._open = False

    def wants(self, name: str, module: str = "", phase: str = "forward") -> bool:
        """Returns true if the op `name`, running in the module with path `module`, is recorded in this phase.

        `phase` is one of forward, backward and gradients.
        """
        if not self._open or phase not in self._settings.phases:
            return False
        if not self._include and not self._exclude:
            return True
        key = (name, module, phase)
        answer = self._kept.get(key)
        if answer is None:
            self._see(name, module)
            names = names_of(name, module)
            included = not self._include or self._any(self._include, names, phase)
            answer = included and not self._any(self._exclude, names, phase)
            _keep(self._kept, key, answer)
        return answer

    def wants_tensor(self, name: str, module: str = "", phase: str = "forward") -> bool:
        """Returns true if the data of this op is stored as well. Does not say whether the op is recorded at all."""
        if self._settings.task == "tensor":
            return True
        if not self._tensors:
            return False
        key = (name, module, phase)
        answer = self._kept_tensors.get(key)
        if answer is None:
            self._see(name, module)
            answer = self._any(self._tensors, names_of(name, module), phase)
            _keep(self._kept_tensors, key, answer)
        return answer

    def unused(self, said: Iterable[str] = ()) -> list[str]:
        """Returns a line for each listed name that matched no op, with the nearest that did occur. Names mentioned in
        `said` are left out."""
        keys = ("include", "exclude", *(() if self._settings.task == "tensor" else ("tensors",)))
        listed = [(key, pattern) for key in keys for pattern in dict.fromkeys(getattr(self._settings, key))]
        lines = [
            self._line(key, pattern.text)
            for key, pattern in listed
            if pattern not in self._used and not any(f"{key}: {pattern.text!r}" in line for line in said)
        ]
        if self._scope is not None and not self._reached:
            lines.append(self._line("scope", self._scope[0]))
        return lines

    def _line(self, key: str, name: str) -> str:
        """Returns the message about a name that matched nothing."""
        # A bare word is compared with the last word of a name.
        known = {spelling: seen for seen in self._seen for spelling in (seen.rpartition(".")[2], torch_spelling(seen), seen)}
        near = nearest(op_spelling(name), known) or nearest(name.rpartition(".")[2], known)
        return f"{key}: {name!r} matched nothing" + (f"; did you mean {known[near]!r}?" if near else "")

    def _see(self, name: str, module: str = "") -> None:
        if len(self._seen) < _KEPT_SEEN:
            path = path_of(name)
            # A range is given by full names.
            self._seen.add(name if self._scope is not None else api_of(name) if path is None else plain_path(path))
            if module:
                self._seen.add(plain_path(module))
            self._seen.discard("")

    def _any(self, patterns: tuple[Pattern, ...], names: list[str], phase: str) -> bool:
        hits = [pattern for pattern in patterns if self._hits(pattern, names)]
        self._used.update(hits)
        return any(phase in pattern.phases for pattern in hits)

    def _hits(self, pattern: Pattern, names: list[str]) -> bool:
        shorter = self._alternatives.get(pattern)
        return pattern.matches(names) or (shorter is not None and shorter.matches(names))


def _keep(kept: dict[tuple[str, str, str], bool], key: tuple[str, str, str], answer: bool) -> None:
    if len(kept) >= _KEPT:
        kept.clear()
    kept[key] = answer
