"""The code blocks of the documents, as a reader would copy them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

_FENCE = re.compile(r"^```(?P<info>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
#: A text that a command reads goes up to this line.
_HERE = re.compile(r"<<'(?P<end>\w+)'")
#: Before a block that the tests cannot run, with the reason.
_UNRUN = re.compile(r"<!-- not run: (?P<reason>.+) -->\n+\Z")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    document: str
    line: int
    #: `python`, `bash`, `console`, `text`, …; empty where it has none.
    info: str
    text: str
    #: Why it is not run; None if it is.
    unrun: str | None

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def code(self) -> str:
        """The text without comments and blank lines: what two languages of a document share."""
        lines = (re.sub(r"(^|\s+)#.*", "", line) for line in self.text.splitlines())
        return "\n".join(line for line in lines if line.strip())

    @property
    def commands(self) -> str:
        """A script of what is typed: all of a shell block, and what follows a `$` in a console block."""
        return self.text if self.info != "console" else "\n".join(typed for typed, _ in self.dialogue)

    @property
    def dialogue(self) -> list[tuple[str, list[str]]]:
        """Returns each command of a console block with the lines that are shown below it."""
        found: list[tuple[str, list[str]]] = []
        end = ""
        for line in self.text.splitlines():
            here = _HERE.search(line)
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            elif end or found[-1][0].endswith("\\"):
                found[-1] = (f"{found[-1][0]}\n{line}", [])
            else:
                found[-1][1].append(line)
            end = here["end"] if here else "" if line == end else end
        return found


def blocks() -> Iterator[Block]:
    """Every block of the two READMEs and of the guides, in order."""
    for path in (ROOT / "README.md", ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = path.read_text(encoding="utf-8")
        for found in _FENCE.finditer(text):
            before = text[: found.start()]
            unrun = _UNRUN.search(before)
            name = path.relative_to(ROOT).as_posix()
            yield Block(name, before.count("\n") + 1, found["info"], found["text"], unrun["reason"] if unrun else None)
