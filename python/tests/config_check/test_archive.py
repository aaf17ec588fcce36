"""The zip: complete or absent, private, never appended to; ranks meet without waiting."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import stat
import time
from pathlib import Path

import pytest

from probe.config_check import archive

from .conftest import Pack

FACTS = {"tool": {"name": "probe", "version": "0"}, "device": {"kind": "cpu", "names": [], "count": 0}, "steps": [0], "absent": {}}


def write(output: Path, rank: int, ranks: int, run: str = "r1") -> bool:
    return archive.write_rank(output, run, rank, ranks, FACTS, {"env": {"values": {"RANK": str(rank)}, "names": []}})


def test_one_rank_is_a_pack_at_once(tmp_path: Path) -> None:
    output = tmp_path / "deep" / "gpu.zip"
    assert write(output, 0, 1)
    pack = Pack(output)
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    assert pack.manifest["format"] == "probe-pack" and pack.manifest["version"] == 1 and pack.manifest["ranks"] == [0]
    for name, facts in pack.manifest["members"].items():
        body = pack.text[name].encode()
        assert facts == {"sha256": hashlib.sha256(body).hexdigest(), "bytes": len(body)}
    assert os.listdir(output.parent) == ["gpu.zip"]


def test_an_old_pack_is_replaced_not_added_to(tmp_path: Path) -> None:
    output = tmp_path / "gpu.zip"
    output.write_bytes(b"something else")
    write(output, 0, 1)
    write(output, 0, 1)
    assert sorted(Pack(output).text) == ["manifest.json", "rank0/env.json"]


def test_the_last_rank_merges_all(tmp_path: Path) -> None:
    output = tmp_path / "gpu.zip"
    assert not write(output, 2, 3)
    assert not write(output, 0, 3)
    assert not output.exists()
    assert write(output, 1, 3)
    pack = Pack(output)
    assert pack.manifest["ranks"] == [0, 1, 2] and pack.manifest["world_size"] == 3
    assert [pack.part("env", rank)["values"]["RANK"] for rank in range(3)] == ["0", "1", "2"]
    assert os.listdir(tmp_path) == ["gpu.zip"]


def test_ranks_that_finish_together_merge_once_and_whole(tmp_path: Path) -> None:
    output = tmp_path / "gpu.zip"
    fork = multiprocessing.get_context("fork")
    ranks = [fork.Process(target=write, args=(output, rank, 6)) for rank in range(6)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert [rank.exitcode for rank in ranks] == [0] * 6
    assert Pack(output).manifest["ranks"] == list(range(6))
    assert os.listdir(tmp_path) == ["gpu.zip"]


def test_a_rank_that_never_comes_costs_its_own_part(tmp_path: Path) -> None:
    output = tmp_path / "gpu.zip"
    write(output, 1, 3)
    write(output, 0, 3)
    assert not archive.merge(output, "r1", 3, complete_only=False)
    assert Pack(output).manifest["ranks"] == [0, 1]
    # It came after all.
    assert write(output, 2, 3)
    assert Pack(output).manifest["ranks"] == [0, 1, 2]


def test_parts_of_another_run_are_not_mixed_in_and_go_in_the_end(tmp_path: Path) -> None:
    output = tmp_path / "gpu.zip"
    write(output, 1, 2, run="old")
    assert not write(output, 0, 2, run="new")
    old = archive.parts_folder(output, "old")
    os.utime(old, (time.time() - 90_000,) * 2)
    archive.sweep(output)
    assert not old.exists() and archive.parts_folder(output, "new").exists()


def test_numbers_that_json_lacks_are_words(tmp_path: Path) -> None:
    output = tmp_path / "gpu.zip"
    archive.write_rank(output, "", 0, 1, FACTS, {"optimizer": {"lr": [float("nan"), float("inf"), -float("inf"), 1.5]}})
    assert Pack(output).part("optimizer") == {"lr": ["NaN", "Infinity", "-Infinity", 1.5]}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_place_is_refused_at_once(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OSError):
        archive.check_writable(tmp_path / "gpu.zip")


def test_a_folder_in_the_place_of_the_pack_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        archive.check_writable(tmp_path)
