"""Ranks on the disks of single nodes: a local Ray cluster of two nodes, each of which is told that it has every second rank."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from probe import _core, distributed

if TYPE_CHECKING:
    from collections.abc import Iterator

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'probe-precision[ray]'")

FAULTS = Path(__file__).parents[2] / "testdata" / "faults" / "gpt_rank1_linear_L1_statistics"
RANKS = 6


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[str]]:
    """The two nodes, in order of their names."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    yield sorted(node["NodeID"] for node in ray.nodes())
    ray.shutdown()
    cluster.shutdown()


def _compare(tmp_path: Path, nodes: list[str], monkeypatch: pytest.MonkeyPatch, seen: dict[str, list[list[int]]]) -> tuple[Any, Path]:
    """Compares with `where="node"` while each node sees the ranks `seen` of each side. Returns the report, and notes of who compared what."""
    for side in ("baseline", "candidate"):
        for rank in range(RANKS):
            shutil.copytree(FAULTS / side / "step0" / f"rank{rank % 2}", tmp_path / side / "step0" / f"rank{rank}")
    notes = tmp_path / "notes"
    notes.mkdir()

    def listings(build: str, dumps: list[str]) -> list[Any]:
        import ray

        from probe import placement

        number = nodes.index(ray.get_runtime_context().get_node_id())
        found = [placement.listing(dump) for dump in dumps]
        for dump, listed in zip(dumps, found):
            mine = seen[Path(dump).name][number]
            listed.sizes = {path: size for path, size in listed.sizes.items() if placement.rank_of(path) in mine}
        return found

    def compare_shard(build: str, plan: str, index: int, count: int, threads: int) -> Any:
        import ray

        from probe import distributed

        (notes / str(index)).write_text(ray.get_runtime_context().get_node_id())
        return distributed._compare_shard(build, plan, index, count, threads)

    with monkeypatch.context() as patched:
        patched.setattr(distributed, "_listings", listings)
        patched.setattr(distributed, "_compare_shard", compare_shard)
        report = distributed.compare(
            tmp_path / "baseline", tmp_path / "candidate", output=tmp_path / "run", cpus_per_task=1, where="node", quiet=True
        )
    return report, notes


def test_ranks_are_compared_on_the_node_that_has_them(nodes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    halves = [[0, 2, 4], [1, 3, 5]]
    report, notes = _compare(tmp_path, nodes, monkeypatch, {"baseline": halves, "candidate": halves})
    single = tmp_path / "single"
    command = ["probe", "compare", "-q", str(tmp_path / "baseline"), str(tmp_path / "candidate"), "-o", str(single), "--format", "json"]
    assert _core.main(command) == 1
    wanted = json.loads((single / "report.json").read_text())
    assert {**report, "seconds": 0} == {**wanted, "seconds": 0}
    ranks = _core.shard_ranks(str(tmp_path / "run" / "plan.json"), RANKS)
    assert sorted(ranks) == [[rank] for rank in range(RANKS)]
    for index, [rank] in enumerate(ranks, start=1):
        assert (notes / str(index)).read_text() == nodes[rank % 2]


def test_a_rank_that_no_node_has_whole_is_told_before_anything_is_compared(
    nodes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    halves = [[0, 2, 4], [1, 3, 5]]
    with pytest.raises(ValueError, match="no node has all of rank 1: .*baseline on .*; .*candidate on .*; put one dump where all nodes see it"):
        _compare(tmp_path, nodes, monkeypatch, {"baseline": halves, "candidate": [[0, 1, 2, 3, 4, 5], [5]]})
    assert list((tmp_path / "notes").iterdir()) == []
