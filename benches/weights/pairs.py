"""Pairs of checkpoints: sizes of models, random weights, and files in the formats of others."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

Weights = dict[str, torch.Tensor]
Parts = dict[str, Weights]


@dataclass
class Size:
    """Sizes of a small language model."""

    heads: int
    groups: int
    head: int
    inner: int
    layers: int
    experts: int
    words: int
    tensor: int
    stages: int

    @property
    def width(self) -> int:
        return self.heads * self.head

    @classmethod
    def drawn(cls, random: random.Random) -> Size:
        groups = random.choice([2, 4])
        return cls(
            heads=8,
            groups=groups,
            head=random.choice([8, 16]),
            inner=random.choice([96, 160, 192]),
            layers=random.choice([4, 6]),
            experts=random.choice([4, 8]),
            words=random.randrange(200, 300),
            tensor=random.choice([2, groups]),
            stages=2,
        )


@dataclass
class Made:
    """A conversion: what it was made from, what it made, and what is known of the layout of the result, for planting mistakes."""

    name: str
    baseline: Path
    candidate: Path
    form: str
    """`torch` (a file), `safetensors` (a folder), `ranks` (of Megatron) or `dcp` (of torch)."""
    head: int = 0
    rotary: str = ""
    """Tensors whose rows are heads under a rotary embedding."""
    heads: str = ""
    """Tensors whose rows are heads."""
    fused: tuple[str, int, tuple[int, ...]] | None = None
    """Tensors in which Q, K and V are fused in groups: the number of groups, and rows of each in a group."""
    gate: tuple[str, str] | None = None
    """Part of a name of a tensor, and what it is in the name of one of the same shape that could be taken for it."""
    joined: str = ""
    """Tensors with gate before up."""
    keys: tuple[str, str] | None = None
    """As `gate`, of keys and values."""
    layer: str = r"layers\.(\d+)\."
    expert: str = ""
    norm: str = r"norm.*weight$"
    table: str = r"embed_tokens\.weight$|word_embeddings\.weight$|tok_embeddings\.weight$|wte\.weight$"
    root: str = ""
    """What is before the names of weights in a file of training."""
    parts: Parts = field(default_factory=dict)

    def load(self) -> Parts:
        if not self.parts:
            self.parts = read(self.candidate, self.form)
        return self.parts


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def fill(weights: Weights, seed: int) -> Weights:
    """Random values in place; norms and biases too, so that no two tensors are equal by their initialisation."""
    source = generator(seed)
    with torch.no_grad():
        for name, value in weights.items():
            if value.is_floating_point():
                noise = torch.randn(value.shape, generator=source) * 0.05
                value.copy_(noise + 1 if value.ndim == 1 and name.endswith(("weight", "scale")) else noise)
    return weights


def drawn(shapes: dict[str, tuple[int, ...]], seed: int) -> Weights:
    return fill({name: torch.empty(shape) for name, shape in shapes.items()}, seed)


def model(config: object, kind: str, seed: int) -> torch.nn.Module:
    """A model of transformers with random weights."""
    import transformers

    made = getattr(transformers, kind)(config)
    fill(dict(made.named_parameters()), seed)
    return made.eval()


def saved(made: torch.nn.Module, folder: Path, **options: object) -> Path:
    made.save_pretrained(folder, **options)
    return folder


def file(weights: object, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(weights, path)
    return path


def ranks(parts: Parts, folder: Path) -> Path:
    """Writes the files of ranks as Megatron does."""
    for label, weights in parts.items():
        file({"model": weights, "iteration": 10, "checkpoint_version": 3.0}, folder / label / "model_optim_rng.pt")
    return folder


def read(path: Path, form: str) -> Parts:
    if form == "torch":
        return {"": torch.load(path, weights_only=True)}
    if form == "safetensors":
        return {file.name: load_file(file) for file in sorted(path.glob("*.safetensors"))}
    if form == "ranks":
        files = {place.name: torch.load(place / "model_optim_rng.pt", weights_only=True)["model"] for place in sorted(path.glob("mp_rank_*"))}
        # States of the library for casts to 8 bits are None without it.
        return {label: {name: value for name, value in weights.items() if value is not None} for label, weights in files.items()}
    from torch.distributed.checkpoint import FileSystemReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    metadata = FileSystemReader(path).read_metadata()
    whole: Weights = {}
    for item, place in metadata.storage_data.items():
        described = metadata.state_dict_metadata[item.fqn]
        if isinstance(described, TensorStorageMetadata):
            piece = torch.load(BytesIO(bytes_of(path, place)), weights_only=True)
            held = whole.setdefault(item.fqn, torch.empty(described.size, dtype=piece.dtype))
            held[corner(item, piece)] = piece
    return {"": whole}


def bytes_of(folder: Path, place: object) -> bytes:
    with open(folder / place.relative_path, "rb") as source:
        source.seek(place.offset)
        return source.read(place.length)


def corner(item: object, piece: torch.Tensor) -> tuple[slice, ...]:
    return tuple(slice(start, start + size) for start, size in zip(item.offset or (0,) * piece.ndim, piece.shape))


def write(made: Made, parts: Parts, path: Path) -> Path:
    """Writes changed tensors in the form of the conversion's result."""
    if made.form == "torch":
        return file(parts[""], path.with_suffix(".pt"))
    if made.form == "ranks":
        return ranks(parts, path)
    path.mkdir(parents=True)
    if made.form == "safetensors":
        for name, weights in parts.items():
            save_file({name: value.contiguous() for name, value in weights.items()}, path / name)
        index = made.candidate / "model.safetensors.index.json"
        if index.exists():
            held = json.loads(index.read_text())
            held["weight_map"] = {name: shard for name, shard in held["weight_map"].items() if name in parts[shard]}
            (path / index.name).write_text(json.dumps(held))
        return path
    return redistributed(made, parts[""], path)


def redistributed(made: Made, weights: Weights, path: Path) -> Path:
    """Writes a torch distributed checkpoint with other values in the same pieces."""
    from torch.distributed.checkpoint import FileSystemReader

    metadata = FileSystemReader(made.candidate).read_metadata()
    for name in [name for name in made.load()[""] if name not in weights]:
        del metadata.state_dict_metadata[name]
    for item, place in list(metadata.storage_data.items()):
        if item.fqn not in metadata.state_dict_metadata:
            del metadata.storage_data[item]
            continue
        content = bytes_of(made.candidate, place)
        if item.fqn in weights:
            piece = torch.load(BytesIO(content), weights_only=True)
            buffer = BytesIO()
            torch.save(weights[item.fqn][corner(item, piece)].clone(), buffer)
            content = buffer.getvalue()
        with open(path / place.relative_path, "ab") as out:
            place.offset, place.length = out.tell(), len(content)
            out.write(content)
    (path / ".metadata").write_bytes(pickle.dumps(metadata))
    return path


Conversion = Callable[["object", Size, Path, int], Made]
CONVERSIONS: dict[str, Conversion] = {}


def conversion(make: Conversion) -> Conversion:
    """Registers a conversion under the name of its function."""
    CONVERSIONS[make.__name__.replace("_", "-")] = make
    return make
