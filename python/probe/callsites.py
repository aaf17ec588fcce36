"""Call sites in the user's program, as text."""

from __future__ import annotations

import dis
import linecache
from types import CodeType, FrameType

#: Instructions for operators, and the compound form that distinguishes operators from calls since Python 3.11.
_OPERATORS = ("BINARY_", "INPLACE_", "COMPARE_OP", "UNARY_")


def text_of(frame: FrameType) -> str:
    """Returns a frame as `File PATH, line N, in NAME, \\n SOURCE`."""
    code = frame.f_code
    line = linecache.getline(code.co_filename, frame.f_lineno, frame.f_globals).strip()
    return f"File {code.co_filename}, line {frame.f_lineno}, in {code.co_name}, \n {line}"


def is_foreign(code: CodeType, folders: tuple[str, ...]) -> bool:
    """Returns true for code that is not the user's: of files in `folders`, and of the interpreter's own modules."""
    return code.co_filename.startswith(folders) or code.co_filename.startswith("<frozen")


def at_operator(code: CodeType, instruction: int) -> bool:
    """Returns true if the instruction is an operator (`x + y`), and not a call (`x.add(y)`)."""
    name = dis.opname[code.co_code[instruction]] if 0 <= instruction < len(code.co_code) else ""
    return name.startswith(_OPERATORS) and name != "BINARY_SUBSCR"
