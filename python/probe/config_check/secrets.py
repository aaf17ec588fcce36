"""Keeps secrets out of packs: names that mark secrets, well-known token formats, credentials in URLs, home
directories.

Everything that goes into a pack passes through `clean`; the rules are those of `docs/config-check.md`, section
"Secrets".
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

MASK = "***"

_WORDS = frozenset(
    "token key secret password passwd pwd credential credentials auth cookie apikey private authorization bearer "
    "passphrase".split()
)
_NUMBER = re.compile(r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$")
_PLAIN = frozenset(("", "true", "false", "yes", "no", "on", "off", "none", "null"))
_NAME_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")

_URL_USER = re.compile(r"(\b[a-zA-Z][a-zA-Z0-9+.-]*://)[^\s/@'\"]+(?:@[^\s/@'\"]+)*@")
_KNOWN_TOKENS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{8,}|gh[pousr]_[A-Za-z0-9]{8,}|github_pat_[A-Za-z0-9_]{8,}|glpat-[A-Za-z0-9_-]{8,}"
    r"|sk-[A-Za-z0-9_-]{8,}|xox[abprs]-[A-Za-z0-9-]{8,}|(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[A-Za-z0-9_-]{20,}"
    r"|eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+)*)"
)
_PRIVATE_BLOCK = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S)
_BEARER = re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}", re.I)
# `NAME=`, `name: `, `--name ` inside a longer text, and the value that follows.
_NAMED = re.compile(r"(?:(?P<name>[A-Za-z][A-Za-z0-9_.-]*)[\"']?\s*[=:]\s*|(?P<option>--?[A-Za-z][A-Za-z0-9_.-]*)\s+(?!-))")
_VALUE = re.compile(r"\"[^\"]*\"|'[^']*'|[^\s,;&}\])]+")

_MAX_TEXT = 4096
_MAX_ITEMS = 4096
_MAX_DEPTH = 16


def is_secret(name: str) -> bool:
    """Returns true if a value called `name` must be hidden, judged by the words in the name."""
    return any(word.lower() in _WORDS for word in _NAME_PARTS.findall(name))


def text(value: str) -> str:
    """Returns `value` without anything that looks like a secret; the home directory becomes `~`; long texts are
    cut."""
    value = _home(value)
    if len(value) > _MAX_TEXT:
        value = value[:_MAX_TEXT] + "…"
    # A text without any of these characters cannot match the rules below.
    if not any(sign in value for sign in "=:-_ ") and not value.startswith(("AKIA", "ASIA", "AIza", "eyJ")):
        return value
    value = _PRIVATE_BLOCK.sub(MASK, value)
    value = _URL_USER.sub(rf"\1{MASK}@", value)
    value = _BEARER.sub(rf"\1 {MASK}", value)
    value = _without_named(value)
    return _KNOWN_TOKENS.sub(MASK, value)


def value_of(name: str, value: Any) -> Any:
    """Returns the value called `name` in writable form: hidden if the name is secret, else cleaned."""
    return clean(value, secret=is_secret(name))


def arguments(argv: Sequence[str]) -> list[str]:
    """Cleans command-line arguments: `--api-key VALUE`, `--api-key=VALUE` and `NAME=VALUE` lose their values."""
    cleaned: list[str] = []
    hide_next = False
    for argument in argv:
        name, equals, rest = argument.partition("=")
        is_option = argument.startswith("-") and not _NUMBER.match(argument)
        if hide_next and not is_option:
            cleaned.append(_hidden(argument))
        elif equals and is_secret(name.rsplit("://", 1)[-1] if "://" not in name else ""):
            cleaned.append(f"{name}={_hidden(rest)}")
        else:
            cleaned.append(text(argument))
        hide_next = is_option and not equals and is_secret(argument)
    return cleaned


def clean(value: Any, *, secret: bool = False, depth: int = 0) -> Any:
    """Returns `value` as JSON can hold it, without secrets: numbers, bools and None stay, texts are cleaned,
    containers are walked, anything else becomes the name of its class."""
    if value is None or isinstance(value, (bool, int)):
        return value if value is None or isinstance(value, bool) else int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return _hidden(value) if secret else text(value)
    if isinstance(value, os.PathLike):
        return MASK if secret else text(os.fspath(value) if isinstance(os.fspath(value), str) else "")
    if isinstance(value, bytes):
        return MASK if secret else f"{len(value)} bytes"
    if depth >= _MAX_DEPTH:
        return type(value).__name__
    if isinstance(value, Mapping):
        return {
            text(str(name)): clean(item, secret=secret or is_secret(str(name)), depth=depth + 1)
            for name, item in list(value.items())[:_MAX_ITEMS]
        }
    if isinstance(value, (list, tuple, set, frozenset)):
        if isinstance(value, (set, frozenset)):
            value = sorted(value, key=repr)
        if not secret and value and all(isinstance(item, str) for item in value):
            return arguments(list(value)[:_MAX_ITEMS])
        return [clean(item, secret=secret, depth=depth + 1) for item in list(value)[:_MAX_ITEMS]]
    return _other(value, secret)


def _other(value: Any, secret: bool) -> Any:
    """Handles values of other classes: enumerations, numbers of other libraries, types and functions by name."""
    name = getattr(value, "__qualname__", None)
    if isinstance(name, str):
        return text(name)
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if kind in ("torch.dtype", "torch.device", "torch.layout", "torch.memory_format"):
        return str(value).removeprefix("torch.")
    inner = getattr(value, "value", None)
    if hasattr(type(value), "__members__") and isinstance(inner, (str, int, float)):
        return clean(inner, secret=secret)
    # NumPy scalars only, not tensors: reading those would wait for a device.
    item = getattr(value, "item", None)
    if type(value).__module__ == "numpy" and callable(item) and getattr(value, "ndim", None) == 0:
        return clean(item(), secret=secret)
    return type(value).__name__


def _hidden(value: str) -> str:
    return value if _NUMBER.match(value) or value.lower() in _PLAIN else MASK


def _without_named(value: str) -> str:
    """Hides the values that follow secret names. The text after any other name may itself contain names."""
    kept, position = [], 0
    while match := _NAMED.search(value, position):
        kept.append(value[position : match.end()])
        position = match.end()
        if is_secret(match["name"] or match["option"]) and (found := _VALUE.match(value, position)):
            kept.append(_hidden(found[0].strip("\"'")))
            position = found.end()
    return "".join(kept) + value[position:]


def _home(value: str) -> str:
    for home in _homes():
        if home in value:
            value = re.sub(re.escape(home) + r"(?=$|[/\s:;,'\"])", "~", value)
    return re.sub(r"(?<![\w.])/(?:home|Users)/[^/\s:;,'\"]+", "~", value)


def _homes() -> list[str]:
    home = os.path.expanduser("~")
    return [path for path in {home, os.path.realpath(home)} if path not in ("~", "/", "")]
