"""Where ranks on the disks of single nodes are compared: the part that needs no cluster."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from probe import placement
from probe.distributed import _Waiting


def _dump(root: Path, ranks: range, extra: str = "") -> None:
    for step in range(2):
        for rank in ranks:
            folder = root / f"step{step}" / f"rank{rank}"
            (folder / "dump_tensor_data").mkdir(parents=True)
            (folder / "dump.json").write_text("x" * (100 + rank) + extra)
            (folder / "dump_tensor_data" / "a.pt").write_text("data")
    (root / "manifest.json").write_text('{"world_size": 4}')


def test_a_node_tells_the_files_of_its_ranks_and_the_content_of_manifests(tmp_path: Path) -> None:
    _dump(tmp_path / "dump", range(1))
    found = placement.listing(str(tmp_path / "dump"))
    assert found.sizes == {"manifest.json": 17, "step0/rank0/dump.json": 100, "step1/rank0/dump.json": 100}
    assert found.contents == {"manifest.json": b'{"world_size": 4}'}
    assert placement.listing(str(tmp_path / "none")).sizes == {}


def _placed(tmp_path: Path, seen: dict[str, dict[str, range]]) -> placement.Placement:
    """Returns what each node has of each dump."""
    dumps: dict[str, dict[str, placement.Listing]] = {}
    for dump, nodes in seen.items():
        for node, ranks in nodes.items():
            root = tmp_path / node / dump
            _dump(root, ranks)
            dumps.setdefault(f"/disk/{dump}", {})[node] = placement.listing(str(root))
    return placement.Placement(dumps)


def test_ranks_are_compared_where_they_lie(tmp_path: Path) -> None:
    found = _placed(
        tmp_path,
        {"b": {"n1": range(0, 2), "n2": range(2, 4)}, "c": {"n1": range(0, 2), "n2": range(2, 4), "n3": range(0, 4)}},
    )
    assert [found.nodes_of(rank) for rank in range(4)] == [["n1"], ["n1"], ["n2"], ["n2"]]
    assert [found.node(ranks) for ranks in ([0], [3], [1, 2, 3], [])] == ["n1", "n2", "n2", None]
    stands = found.stand(tmp_path / "stand")
    assert [name for name, _ in stands] == ["/disk/b", "/disk/c"]
    for _, place in stands:
        sizes = {rank: (Path(place) / f"step1/rank{rank}/dump.json").stat().st_size for rank in range(4)}
        assert sizes == {0: 100, 1: 101, 2: 102, 3: 103}
        assert (Path(place) / "manifest.json").read_text() == '{"world_size": 4}'
        assert not list(Path(place).rglob("*.pt"))


def test_ranks_that_all_nodes_see_are_spread(tmp_path: Path) -> None:
    found = _placed(tmp_path, {"b": {"n1": range(4), "n2": range(4)}, "c": {"n1": range(4), "n2": range(4)}})
    assert Counter(found.node([rank]) for rank in range(4)) == {"n1": 2, "n2": 2}


def test_what_lies_nowhere_together_is_told(tmp_path: Path) -> None:
    found = _placed(tmp_path, {"b": {"n1": range(2)}, "c": {"n2": range(2)}})
    with pytest.raises(placement.PlacementError, match="no node has all of rank 1: /disk/b on n1; /disk/c on n2; put one"):
        found.node([1])
    nothing = placement.Placement({"/disk/b": {"n1": placement.Listing()}})
    with pytest.raises(placement.PlacementError, match="/disk/b: no node of the cluster has it"):
        nothing.stand(tmp_path / "stand")


def test_no_node_waits_for_another() -> None:
    waiting = _Waiting(["n1", "n1", "n1", "n2", "n2", None])
    first = [waiting.take() for _ in range(3)]
    assert first == [1, 4, 6]
    waiting.ended(4)
    assert waiting.take() == 5
    waiting.add(4)
    rest = [waiting.take() for _ in range(3)]
    assert sorted(rest) == [2, 3, 4]
    assert not waiting
