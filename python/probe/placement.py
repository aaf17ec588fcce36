"""Locates ranks of dumps that individual cluster nodes have on their own disks.

Each node reports what it sees of both dumps (`listing`). Together that is one dump that nobody sees whole: the driver
plans with a stand-in for it, files with the right names and sizes but no content (`Placement.stand`), and each rank
is compared where it lies (`Placement.node`). Nothing here depends on Ray.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

#: Largest file outside the rank folders, such as a manifest, that is reported with its content.
_TOLD = 1 << 20

#: Most files that a node reports for one dump.
_MOST = 5_000_000

_RANK = re.compile(r"(?:^|/)rank(\d+)(?:/|$)")


class PlacementError(ValueError):
    """No single node has all of a rank."""


@dataclass
class Listing:
    """One node's view of one dump: files by relative path, with size and, if reported, content."""

    sizes: dict[str, int] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)

    @cached_property
    def ranks(self) -> dict[int, frozenset[str]]:
        """Files of each rank."""
        ranks: dict[int, set[str]] = {}
        for path in self.sizes:
            rank = rank_of(path)
            if rank is not None:
                ranks.setdefault(rank, set()).add(path)
        return {rank: frozenset(paths) for rank, paths in ranks.items()}


def listing(root: str) -> Listing:
    """Lists what this machine sees of the dump at `root`; empty if it does not exist. For a rank's folder, only the
    files directly in it: subfolders, such as those with one file per tensor, are not needed for planning."""
    found = Listing()
    for folder, folders, names in os.walk(root):
        below = os.path.relpath(folder, root)
        below = "" if below == "." else below.replace(os.sep, "/") + "/"
        inner = _RANK.search(below)
        if inner:
            folders.clear()
        for name in names:
            path = os.path.join(folder, name)
            try:
                size = os.stat(path).st_size
                if not inner and size <= _TOLD:
                    found.contents[below + name] = Path(path).read_bytes()
            except OSError:
                # It has vanished or is unreadable: the comparison reports that.
                continue
            found.sizes[below + name] = size
            if len(found.sizes) > _MOST:
                raise PlacementError(f"{root}: more than {_MOST} files; give the path of one dump")
    return found


def rank_of(path: str) -> int | None:
    """Returns the rank whose folder contains a file; None if there is none."""
    found = _RANK.search(path)
    return int(found[1]) if found else None


@dataclass
class Placement:
    """All nodes' views of the dumps: for each dump, its listing by node."""

    dumps: dict[str, dict[str, Listing]]

    def stand(self, folder: Path) -> list[tuple[str, str]]:
        """Creates the stand-in of each dump in `folder`. Returns the name of each dump and the path of its stand-in.

        :raises PlacementError: when no node sees a dump.
        """
        stands = []
        for number, (root, nodes) in enumerate(self.dumps.items()):
            place = folder / str(number) / Path(root).name
            if not any(listed.sizes for listed in nodes.values()):
                raise PlacementError(f"{root}: no node of the cluster has it")
            # If several nodes have a file, the first one's version wins; nodes are sorted, so the plan is the same
            # every time.
            for _, listed in sorted(nodes.items(), reverse=True):
                for path, size in listed.sizes.items():
                    file = place / path
                    file.parent.mkdir(parents=True, exist_ok=True)
                    with open(file, "wb") as out:
                        content = listed.contents.get(path)
                        if content is not None:
                            out.write(content)
                        else:
                            out.truncate(size)
            stands.append((root, str(place)))
        return stands

    def nodes_of(self, rank: int) -> list[str]:
        """Returns the nodes that have every file of a rank, in every dump that has it, sorted by name."""
        having: Counter[str] = Counter()
        wanted = 0
        for nodes in self.dumps.values():
            files = {node: listed.ranks.get(rank, frozenset()) for node, listed in nodes.items()}
            whole = frozenset().union(*files.values())
            if whole:
                wanted += 1
                having.update(node for node, seen in files.items() if seen == whole)
        return sorted(node for node, count in having.items() if count == wanted)

    def node(self, ranks: list[int]) -> str | None:
        """Returns the node for a shard of these ranks: one that has most of them; None if there are no ranks.

        :raises PlacementError: when a rank lies on no node whole.
        """
        votes: Counter[str] = Counter()
        for rank in ranks:
            nodes = self.nodes_of(rank)
            if not nodes:
                where = "; ".join(f"{root} on {', '.join(self._having(root, rank)) or 'none'}" for root in self.dumps)
                raise PlacementError(
                    f"no node has all of rank {rank}: {where}; put one dump where all nodes see it, such as object storage, and compare that"
                )
            votes.update(nodes)
        # Break ties with a different node for each shard.
        most = max(votes.values(), default=0)
        best = sorted(node for node, count in votes.items() if count == most)
        return best[min(ranks) % len(best)] if best else None

    def _having(self, root: str, rank: int) -> list[str]:
        return sorted(node for node, listed in self.dumps[root].items() if rank in listed.ranks)
