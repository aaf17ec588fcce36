"""Answers in lines of the width that the program's other reports have."""

from __future__ import annotations

import shutil
import textwrap

#: Width in a pipe or a file, and the bounds of what a terminal or `COLUMNS` may ask for: those of the program (`cli/terminal.rs`).
_WIDTH, _LEAST, _MOST = 100, 40, 200
#: Lines that are copied into a shell stay whole.
_COMMAND = "next: "


def folded(text: str) -> str:
    """Returns the text with longer lines broken between words; a name or a path that is longer gets a line of its own."""
    width = min(max(shutil.get_terminal_size((_WIDTH, 24)).columns, _LEAST), _MOST)
    return "".join(f"{_folded(line, width)}\n" for line in text.splitlines())


def _folded(line: str, width: int) -> str:
    if len(line) <= width or line.startswith(_COMMAND):
        return line
    indent = line[: len(line) - len(line.lstrip())] + "  "
    return "\n".join(textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))
