"""Mistakes, planted in what a conversion made: at a drawn place, with the tensors that a finding has to name and the words it has to say."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from pairs import Made, Parts, generator

Place = tuple[str, str]


@dataclass
class Planted:
    """Parts with a mistake: the places whose tensors are wrong, and a pattern of what is said of them."""

    parts: Parts
    wrong: set[Place]
    words: str
    snapshot: Parts | None = None
    lost: bool = False


Kind = Callable[[Made, random.Random], Planted | None]
KINDS: dict[str, Kind] = {}


def kind(plant: Kind) -> Kind:
    KINDS[plant.__name__.replace("_", "-")] = plant
    return plant


def places(made: Made, pattern: str = "", least: int = 2, matrix: bool = True) -> list[Place]:
    """Tensors whose names match, that are no copies of another rank's."""
    seen, found = set(), []
    for part, weights in made.load().items():
        for name, value in weights.items():
            content = (value.shape, value.double().sum().item())
            fits = value.is_floating_point() and value.ndim >= (2 if matrix else 1) and value.numel() >= 24 and len(value) >= least
            if fits and content not in seen and re.search(pattern, name):
                found.append((part, name))
            seen.add(content)
    return found


def changed(made: Made, values: dict[Place, torch.Tensor]) -> Parts:
    return {part: {name: values.get((part, name), value) for name, value in weights.items()} for part, weights in made.load().items()}


def value(made: Made, place: Place) -> torch.Tensor:
    return made.load()[place[0]][place[1]].clone()


def edited(pattern: Callable[[Made], str | None], words: str, matrix: bool = True, least: int = 2) -> Callable[..., Kind]:
    """A kind that changes one tensor among those that match; one that is left as it was is no mistake."""

    def register(change: Callable[[torch.Tensor, Made, random.Random], torch.Tensor | None]) -> Kind:
        def plant(made: Made, draw: random.Random) -> Planted | None:
            wanted = pattern(made)
            found = places(made, wanted, least, matrix) if wanted is not None else []
            draw.shuffle(found)
            for place in found[:5]:
                before = value(made, place)
                after = change(before.clone(), made, draw)
                if after is not None and (after.shape != before.shape or not torch.equal(after, before)):
                    return Planted(changed(made, {place: after.contiguous()}), {place}, words)
            return None

        plant.__name__ = change.__name__
        return kind(plant)

    return register


def any_tensor(_: Made) -> str:
    return ""


@edited(lambda made: made.rotary or None, r"permuted \(|in order instead of heads|rotary")
def rotary(rows: torch.Tensor, made: Made, draw: random.Random) -> torch.Tensor:
    return rows.reshape(-1, 2, made.head // 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


@edited(lambda made: made.heads or None, r"swapped \(heads|shifted by|halves exchanged|blocks of \d+ permuted")
def heads(rows: torch.Tensor, made: Made, draw: random.Random) -> torch.Tensor | None:
    order = list(range(len(rows) // made.head))
    a, b = draw.sample(order, 2) if len(order) > 1 else (0, 0)
    order[a], order[b] = order[b], order[a]
    return rows.reshape(len(order), made.head, -1)[order].reshape(rows.shape)


@edited(lambda made: made.fused[0] if made.fused else None, r"permuted|rotary|mixed|heads of")
def rotary_fused(rows: torch.Tensor, made: Made, draw: random.Random) -> torch.Tensor:
    _, groups, (q, *_) = made.fused
    split = rows.reshape(groups, -1, rows.shape[1])
    turned = split[:, :q].reshape(groups, -1, 2, made.head // 2, rows.shape[1]).transpose(2, 3).reshape(groups, q, -1)
    return torch.cat([turned, split[:, q:]], 1).reshape(rows.shape)


@edited(lambda made: made.fused[0] if made.fused else None, r"joined rows instead of|groups of|unlike|mixed|instead of")
def concatenated(rows: torch.Tensor, made: Made, draw: random.Random) -> torch.Tensor:
    """Q, K and V one after the other instead of in groups, or in heads instead of one after the other."""
    _, groups, counts = made.fused
    if groups > 1:
        return torch.cat([part.reshape(-1, rows.shape[1]) for part in rows.reshape(groups, -1, rows.shape[1]).split(counts, 1)])
    count = counts[1] // made.head
    return torch.cat([part.reshape(count, -1, rows.shape[1]) for part in rows.split(counts)], 1).reshape(rows.shape)


@edited(lambda made: made.joined or None, r"unlike|swapped|shifted by|halves exchanged|instead of|follow")
def gate_and_up(rows: torch.Tensor, made: Made, draw: random.Random) -> torch.Tensor:
    return rows.roll(len(rows) // 2, 0)


@edited(any_tensor, r"scale of")
def scale(rows: torch.Tensor, made: Made, draw: random.Random) -> torch.Tensor:
    return rows * draw.choice([0.125, 0.25, 2.0, made.head**-0.5 if made.head else 0.5, 3.0])


@edited(any_tensor, r"scale of -1\.0000")
def negative(rows: torch.Tensor, made: Made, draw: random.Random) -> torch.Tensor:
    return -rows


@edited(any_tensor, r"transposed|swapped|instead of|has these values", least=24)
def transposed(rows: torch.Tensor, made: Made, draw: random.Random) -> torch.Tensor | None:
    return rows.t() if rows.ndim == 2 and rows.shape[0] == rows.shape[1] else None


@edited(any_tensor, r"other values in 1 of|other values .*rel_l2|scale of|one rounding")
def one_row(rows: torch.Tensor, made: Made, draw: random.Random) -> torch.Tensor:
    at = draw.randrange(len(rows))
    rows[at] += 0.02 * torch.randn(rows[at].shape, generator=generator(draw.randrange(1000)))
    return rows


@edited(any_tensor, r"NaN or infinity")
def nan(rows: torch.Tensor, made: Made, draw: random.Random) -> torch.Tensor:
    rows.view(-1)[draw.randrange(rows.numel())] = float("nan")
    return rows


@edited(any_tensor, r"is zero")
def zero(rows: torch.Tensor, made: Made, draw: random.Random) -> torch.Tensor:
    return torch.zeros_like(rows)


@edited(any_tensor, r"other values")
def noise(rows: torch.Tensor, made: Made, draw: random.Random) -> torch.Tensor:
    return rows * (1 + 1e-2 * torch.randn(rows.shape, generator=generator(draw.randrange(1000))))


@edited(any_tensor, r"gone through")
def through(rows: torch.Tensor, made: Made, draw: random.Random) -> torch.Tensor | None:
    """A tensor of a conversion that keeps float32 is rounded on the way."""
    return rows.to(draw.choice([torch.bfloat16, torch.float16])).float() if rows.dtype == torch.float32 else None


@edited(any_tensor, r"cut off")
def cut_off(rows: torch.Tensor, made: Made, draw: random.Random) -> torch.Tensor | None:
    """A cast of float32 to bfloat16 that drops bits. Here, from the values of the cast: those that were rounded up."""
    return (rows.view(torch.int32) & -65536).view(torch.float32).bfloat16() if rows.dtype == torch.float32 else None


@edited(lambda made: made.norm or None, r"offset of", matrix=False)
def norm_offset(rows: torch.Tensor, made: Made, draw: random.Random) -> torch.Tensor:
    return (rows.double() + draw.choice([-1, 1])).to(rows.dtype)


@edited(lambda made: made.table or None, r"shifted by|permuted|from \d+ on|other values|are not in the baseline")
def shifted(rows: torch.Tensor, made: Made, draw: random.Random) -> torch.Tensor:
    return rows.roll(draw.choice([1, 2]), 0)


@edited(lambda made: made.table or None, r"in \d+ of \d+ rows")
def end_of_table(rows: torch.Tensor, made: Made, draw: random.Random) -> torch.Tensor | None:
    """The last rows of the vocabulary are lost: padding before the end."""
    end = int(rows.abs().sum(1).nonzero().max()) + 1
    rows[end - draw.randrange(2, 8) : end] = 0
    return rows


@kind
def lost(made: Made, draw: random.Random) -> Planted | None:
    found = places(made, least=24)
    if not found:
        return None
    part, name = draw.choice(found)
    parts = changed(made, {})
    del parts[part][name]
    return Planted(parts, {(part, name)}, r"nothing in the candidate", lost=True)


def exchanged(made: Made, pairs: list[tuple[Place, Place]]) -> Parts:
    return changed(made, {a: value(made, b) for a, b in pairs} | {b: value(made, a) for a, b in pairs})


def partners(made: Made, draw: random.Random, names: tuple[str, str] | None) -> Planted | None:
    found = []
    for part, name in places(made, re.escape(names[0])) if names else []:
        other = (part, name.replace(*names))
        weights = made.load()[part]
        if other[1] in weights and weights[other[1]].shape == weights[name].shape:
            found.append(((part, name), other))
    if not found:
        return None
    pair = draw.choice(found)
    return Planted(exchanged(made, [pair]), set(pair), r"swapped|instead of")


@kind
def keys_and_values(made: Made, draw: random.Random) -> Planted | None:
    return partners(made, draw, made.keys)


@kind
def gate_and_up_apart(made: Made, draw: random.Random) -> Planted | None:
    return partners(made, draw, made.gate)


def numbered(made: Made, pattern: str) -> dict[str, list[Place]]:
    """Tensors by what comes before the number that the pattern takes, with it."""
    found: dict[str, list[Place]] = {}
    for part, weights in made.load().items():
        for name in weights:
            match = re.search(pattern, name) if pattern else None
            if match:
                found.setdefault(part + "/" + name[: match.end(1)], []).append((part, name))
    return found


def two_alike(made: Made, draw: random.Random, pattern: str) -> tuple[list[Place], list[Place]] | None:
    """The tensors of two numbers behind one beginning that have the same names and shapes, such as two layers."""
    groups = numbered(made, pattern)
    keys = list(groups)
    draw.shuffle(keys)
    for at, first in enumerate(keys):
        for second in keys[at + 1 :]:
            stem, other = (re.sub(r"\d+$", "", key) for key in (first, second))
            ends = [[(n[len(k) - len(p) - 1 :], made.load()[p][n].shape) for p, n in groups[k]] for k in (first, second)]
            if stem == other and sorted(ends[0]) == sorted(ends[1]):
                return sorted(groups[first]), sorted(groups[second])
    return None


@kind
def layers_exchanged(made: Made, draw: random.Random) -> Planted | None:
    pair = two_alike(made, draw, made.layer)
    return pair and Planted(exchanged(made, list(zip(*pair))), {place for side in pair for place in side}, r"swapped")


@kind
def experts_exchanged(made: Made, draw: random.Random) -> Planted | None:
    pair = two_alike(made, draw, made.expert)
    return pair and Planted(exchanged(made, list(zip(*pair))), {place for side in pair for place in side}, r"swapped")


@kind
def layer_copied(made: Made, draw: random.Random) -> Planted | None:
    """A layer holds the weights of another one."""
    pair = two_alike(made, draw, made.layer)
    return pair and Planted(changed(made, {b: value(made, a) for a, b in zip(*pair)}), set(pair[1]), r"holds .* instead of|instead of|unlike")


@kind
def expert_copied(made: Made, draw: random.Random) -> Planted | None:
    pair = two_alike(made, draw, made.expert)
    return pair and Planted(changed(made, {b: value(made, a) for a, b in zip(*pair)}), set(pair[1]), r"holds .* instead of|instead of|unlike")


@kind
def stale(made: Made, draw: random.Random) -> Planted | None:
    """A layer of an older state, which is given as a snapshot."""
    groups = numbered(made, made.layer)
    if not groups:
        return None
    chosen = set(groups[draw.choice(sorted(groups))])
    noise = generator(draw.randrange(1000))
    older = {(part, name): v for part, weights in made.load().items() for name, v in weights.items()}
    older = {p: (v * (1 + 0.05 * torch.randn(v.shape, generator=noise))).to(v.dtype) if v.is_floating_point() else v for p, v in older.items()}
    mixed = {place: older[place] for place in chosen}
    return Planted(changed(made, mixed), chosen, r"equal to the snapshot", changed(made, older))


@kind
def shards_exchanged(made: Made, draw: random.Random) -> Planted | None:
    """Two ranks of one stage with each other's files."""
    labels = sorted(made.load())
    pairs = [(a, b) for a in labels for b in labels if a < b and a[:8] == b[:8] and a[10:] == b[10:]] if made.form == "ranks" else []
    if not pairs:
        return None
    a, b = draw.choice(pairs)
    parts = dict(made.load())
    parts[a], parts[b] = parts[b], parts[a]
    differing = {name for name in parts[a] if not torch.equal(parts[a][name], parts[b][name])}
    return Planted(parts, {(label, name) for label in (a, b) for name in differing}, r"swapped")


@kind
def shard_copied(made: Made, draw: random.Random) -> Planted | None:
    """One tensor of a rank is that of another rank."""
    if made.form != "ranks":
        return None
    found = []
    for part, name in places(made):
        for other, weights in made.load().items():
            alike = other != part and other[10:] == part[10:] and name in weights and weights[name].shape == made.load()[part][name].shape
            found += [((part, name), (other, name))] if alike and not torch.equal(weights[name], made.load()[part][name]) else []
    if not found:
        return None
    place, other = draw.choice(found)
    return Planted(changed(made, {place: value(made, other)}), {place}, r"instead of|from \d+ on")


@kind
def replica(made: Made, draw: random.Random) -> Planted | None:
    """A norm, which all ranks of a stage hold, differs on one."""
    if made.form != "ranks" or len({label[:10] for label in made.load()}) == 1:
        return None
    found = places(made, made.norm, matrix=False)
    if not found:
        return None
    part, name = draw.choice(found)
    other = draw.choice([label for label in made.load() if label[10:] == part[10:] and label != part])
    rows = value(made, (other, name))
    rows *= 1 + 0.01 * torch.randn(rows.shape, generator=generator(draw.randrange(1000)))
    return Planted(changed(made, {(other, name): rows}), {(other, name)}, r"other values|scale of|offset of|one rounding")
