"""Packs keep to the format that the check reads."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from .conftest import Packed

SCHEMA = Path(__file__).resolve().parents[3] / "schemas" / "pack.schema.json"
PARTS = (
    "platform env pip flags random dataset dataloader model weights optimizer schedule scaler distributed hyperparameters source"
).split()


def test_every_part_is_there(packed: Packed) -> None:
    pack = packed()
    assert {name for name in pack.text if name != "manifest.json"} == {f"rank0/{part}.json" for part in PARTS}
    assert set(pack.manifest["members"]) == set(pack.text) - {"manifest.json"}
    assert pack.manifest["absent"] == {} and pack.manifest["steps"] == [0, 1] and pack.manifest["device"]["kind"] == "cpu"


def test_members_are_valid(packed: Packed) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(SCHEMA.read_text())
    pack = packed()
    for name in pack.text:
        part = name.rsplit("/")[-1].removesuffix(".json")
        jsonschema.validate(json.loads(pack.text[name]), {"$defs": schema["$defs"], **schema["properties"][part]})


def test_files_of_the_data_are_listed_without_their_folders(packed: Packed, tmp_path: Path) -> None:
    for folder, text in (("a", b"one"), ("b", b"two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "vocab.txt").write_bytes(text)
    files = [str(tmp_path / name) for name in ("a/vocab.txt", "b/vocab.txt", "missing.txt")]
    pack = packed(('pack(model, os.environ["PACK"], steps=2)', f'pack(model, os.environ["PACK"], steps=2, data_files={files!r})'))
    assert pack.part("dataset")["files"] == [
        {"name": "vocab.txt", "bytes": 3, "sha256": hashlib.sha256(b"one").hexdigest()},
        {"name": "vocab.txt (2)", "bytes": 3, "sha256": hashlib.sha256(b"two").hexdigest()},
    ]


def test_a_package_of_another_version_is_found(packed: Packed, tmp_path: Path) -> None:
    (tmp_path / "transformers-9.9.9.dist-info").mkdir()
    other = packed(("# MODEL", f"import sys; sys.path.insert(0, {str(tmp_path)!r})"))
    listed = {package["name"]: package for package in other.part("pip")["packages"]}
    assert listed["transformers"]["version"] == "9.9.9"
    assert "transformers" not in {package["name"] for package in packed().part("pip")["packages"] if package["version"] == "9.9.9"}
