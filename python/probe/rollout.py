"""Records log-probabilities of tokens as `probe rollout` reads them.

Call it where a trainer has them: after the rollout, with what the engine returned, and after the trainer's own pass over the same tokens::

    probe.rollout.record(
        "logprobs", step=step, tokens=responses, mask=response_mask,
        rollout=rollout_log_probs, trainer=old_log_probs)
"""

from __future__ import annotations

import array
import os
from collections.abc import Iterable, Sequence
from typing import Any

from probe import _core
from probe.quantized import quantized
from probe.ranks import current_rank

__all__ = ["quantized", "record"]


def record(
    folder: str | os.PathLike[str],
    *,
    step: int,
    tokens: Any = None,
    rollout: Any = None,
    trainer: Any = None,
    mask: Any = None,
    attention_mask: Any = None,
    samples: Iterable[Any] | None = None,
    versions: Iterable[int] | None = None,
    rollout_experts: Any = None,
    trainer_experts: Any = None,
    rollout_margins: Any = None,
    trainer_margins: Any = None,
    rank: int | None = None,
) -> str:
    """Writes the tokens of one batch to `folder/step{step}-rank{rank}.parquet` and returns that path.

    `tokens` (ids), `rollout` and `trainer` (natural logarithms of probabilities) and `mask` (true in the loss) are tensors `[rows, length]`, arrays,
    or lists of rows; rows of lists may have different lengths. One of `rollout` and `trainer` may be left out, and recorded in another
    folder. `attention_mask` is that of the whole batch `[rows, prompt + length]`: it tells the padding, and where responses begin. `samples`
    names the rows; both sides of a pair need the same names, or tokens. `versions` are those of the weights that each row was sampled with.

    `rollout_experts` and `trainer_experts` `[rows, length, layers, chosen]` are the experts that each token went to, the likeliest of a layer first, and the
    margins `[rows, length, layers]` by how much the router's probability of the last chosen expert exceeds that of the first left out.

    Raises ValueError for shapes that do not fit, and OSError if the file cannot be written.
    """
    given = {"tokens": tokens, "rollout": rollout, "trainer": trainer, "mask": mask}
    columns = {name: _rows(value) for name, value in given.items() if value is not None}
    if not columns.keys() & {"rollout", "trainer"}:
        raise ValueError("record() needs rollout or trainer: the log-probabilities of one side")
    lengths = [len(row) for row in columns.get("rollout") or columns["trainer"]]
    for name, rows in columns.items():
        if [len(row) for row in rows] != lengths:
            raise ValueError(f"{name} has rows of other lengths than the log-probabilities")
    rank = current_rank(rank)
    names = [str(name) for name in samples] if samples is not None else [f"{rank}-{row}" for row in range(len(lengths))]
    ages = list(versions) if versions is not None else [None] * len(lengths)
    if len(names) != len(lengths) or len(ages) != len(lengths):
        raise ValueError(f"{len(lengths)} rows, but {len(names)} samples and {len(ages)} versions")
    attention = _rows(attention_mask) if attention_mask is not None else None
    described, kept = [], []
    for row, length in enumerate(lengths):
        valid, start, padding = _extent(attention[row] if attention else None, length)
        places = [place for place in range(length) if valid[place] or ("mask" in columns and columns["mask"][row][place])]
        described.append((names[row], len(places), padding, ages[row]))
        kept.append((places, start))
    path = os.path.join(os.fspath(folder), f"step{step}-rank{rank}.parquet")
    os.makedirs(folder, exist_ok=True)
    routes = [
        _routes(experts, margins, lengths, [places for places, _ in kept])
        for experts, margins in ((rollout_experts, rollout_margins), (trainer_experts, trainer_margins))
    ]
    _core.write_tokens(path, step, described, *_columns(columns, kept), *routes)
    return path


def _routes(experts: Any, margins: Any, lengths: list[int], kept: list[list[int]]) -> tuple[int, int, bytes, bytes] | None:
    """Layers, experts of each, and experts and margins of the tokens that are kept."""
    if experts is None:
        return None
    rows = _rows(experts)
    if [len(row) for row in rows] != lengths:
        raise ValueError("experts have rows of other lengths than the log-probabilities")
    tokens = [row[at] for row, places in zip(rows, kept) for at in places]
    layers, chosen = (len(tokens[0]), len(tokens[0][0])) if tokens else (1, 1)
    flat = array.array("H", (int(expert) for token in tokens for layer in token for expert in layer)).tobytes()
    sure = array.array("f")
    if margins is not None:
        sure.extend(float(margin) for row, places in zip(_rows(margins), kept) for at in places for margin in row[at])
    return layers, chosen, flat, sure.tobytes()


def _extent(attention: Sequence[Any] | None, length: int) -> tuple[list[bool], int, int | None]:
    """Which places of a response are tokens, the position of the first, and the padding in front of the prompt."""
    if attention is None:
        return [True] * length, 0, None
    prompt = len(attention) - length
    if prompt < 0:
        raise ValueError(f"attention_mask has {len(attention)} entries, fewer than the {length} of the response")
    padding = next((place for place in range(prompt) if attention[place]), prompt)
    return [bool(value) for value in attention[prompt:]], prompt - padding, padding


def _columns(columns: dict[str, list[Sequence[Any]]], kept: list[tuple[list[int], int]]) -> list[bytes]:
    """Positions, ids, values of both sides and mask, one value for each token that is kept."""

    def flat(name: str, kind: str) -> bytes:
        if name not in columns:
            return b""
        return array.array(kind, (row[at] for row, (places, _) in zip(columns[name], kept) for at in places)).tobytes()

    positions = array.array("I", (start + at for places, start in kept for at in places)).tobytes()
    if "mask" in columns:
        mask = bytes(bool(row[at]) for row, (places, _) in zip(columns["mask"], kept) for at in places)
    else:
        mask = b"\1" * (len(positions) // 4)
    return [positions, flat("tokens", "I"), flat("rollout", "f"), flat("trainer", "f"), mask]


def _rows(values: Any) -> list[Sequence[Any]]:
    """The rows of a tensor, an array or a list of them."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    return [row.tolist() if hasattr(row, "tolist") else row for row in values]
