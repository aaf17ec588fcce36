"""Settings in launch scripts and configuration files, read as text: a fallback if no program reveals its
arguments."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from probe.config_check import secrets

_MAX_BYTES = 4 << 20
_ASSIGNMENT = re.compile(r"(?:export\s+|declare\s+(?:-\w+\s+)*|local\s+|readonly\s+)?([A-Za-z_]\w*)(\+?=)(.*)", re.S)
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?:\[[@*]\])?(?::?-([^}]*))?\}|([A-Za-z_]\w*))")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_MAX_EXPANSION = 16


def source(path: str | Path) -> dict[str, Any]:
    """Reads a file as an entry of `sources` in `hyperparameters.json`. Raises `OSError` or `ValueError` if it cannot
    be read."""
    path = Path(path)
    if path.stat().st_size > _MAX_BYTES:
        raise ValueError(f"{path.name} is too large for a configuration file")
    text = path.read_text("utf-8", "replace")
    if path.suffix in (".yaml", ".yml"):
        kind, values = "yaml", _yaml(text)
    elif path.suffix == ".json":
        kind, values = "yaml", json.loads(text)
    else:
        kind, values = "script", shell(text)
    if not isinstance(values, dict):
        raise ValueError(f"{path.name} holds no named settings")
    return {"source": kind, "name": path.name, "values": secrets.clean(values)}


def shell(text: str) -> dict[str, Any]:
    """Options of the commands in a shell script: `--key value`, `--key=value`, bare `--flag` as true. Variables and
    arrays are expanded; other contents of variables are left out, and nothing is run."""
    variables: dict[str, str] = {}
    options: dict[str, Any] = {}
    for command in _commands(text):
        match = _ASSIGNMENT.fullmatch(command)
        if match and (match[3][:1] in ("", "'", '"', "(") or not re.search(r"(?<!\\)\s", match[3])):
            value = match[3].strip()
            if value.startswith("(") and value.endswith(")"):
                value = value[1:-1]
            elif value[:1] in ("'", '"') and value[-1:] == value[:1]:
                value = value[1:-1]
            value = _expanded(value, variables)
            variables[match[1]] = f"{variables.get(match[1], '')} {value}" if match[2] == "+=" else value
            continue
        options.update(_options(_words(_expanded(command, variables))))
    return options


def _commands(text: str) -> Iterator[str]:
    """Commands of a script, with continued lines and multi-line arrays joined and comments removed."""
    joined = re.sub(r"\\\r?\n", " ", text)
    pending = ""
    for line in joined.splitlines():
        line = _without_comment(line)
        pending = f"{pending} {line}" if pending else line
        if _is_open(pending) and len(pending) < _MAX_BYTES:
            continue
        for command in re.split(r"\s*(?:&&|\|\||;)\s*", pending) if not _is_quoted(pending) else [pending]:
            if command.strip():
                yield command.strip()
        pending = ""
    if pending.strip():
        yield pending.strip()


def _without_comment(line: str) -> str:
    quote = ""
    for index, sign in enumerate(line):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign == "#" and (index == 0 or line[index - 1].isspace()):
            return line[:index]
    return line


def _is_open(command: str) -> bool:
    """Returns true if a quote or an array continues on the next line."""
    quote, depth = "", 0
    for sign in command:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign == "(":
            depth += 1
        elif sign == ")":
            depth -= 1
    return bool(quote) or (depth > 0 and re.search(r"\w\+?=\(", command) is not None)


def _is_quoted(command: str) -> bool:
    return "'" in command or '"' in command


def _expanded(text: str, variables: dict[str, str]) -> str:
    for _ in range(_MAX_EXPANSION):
        replaced = _REFERENCE.sub(
            lambda match: variables.get(match[1] or match[3], match[2] if match[2] is not None else match[0]), text
        )
        if replaced == text or len(replaced) > _MAX_BYTES:
            break
        text = replaced
    return text


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command, comments=False)
    except ValueError:
        return command.split()


def _options(words: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for index, word in enumerate(words):
        if not word.startswith("--") or len(word) < 3:
            continue
        name, equals, value = word[2:].partition("=")
        if equals:
            found[name] = _typed(value)
            continue
        values = []
        for following in words[index + 1 :]:
            if following.startswith("-") and not _NUMBER.fullmatch(following):
                break
            if values and following.endswith((".py", ".sh")) or following in ("|", ">", ">>", "2>&1", "&", "<"):
                break
            values.append(_typed(following))
        found[name] = True if not values else values[0] if len(values) == 1 else values
    return found


def _typed(value: str) -> Any:
    if re.fullmatch(r"[+-]?\d+", value) and len(value) < 19:
        return int(value)
    if _NUMBER.fullmatch(value):
        return float(value)
    if value in ("true", "True", "false", "False"):
        return value in ("true", "True")
    return value


def _yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise ValueError("PyYAML is not installed, so YAML files cannot be read") from error
    return yaml.safe_load(text)
