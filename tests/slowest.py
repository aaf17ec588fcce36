"""Prints the slowest tests of a run: `slowest.py COUNT FOLDER`, which holds what nextest printed (*.log) and reports of pytest (*.xml)."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

#: A line such as `PASS [   0.005s] (  1/637) probe dump::tests::name`.
LINE = re.compile(r"^ +(?:PASS|LEAK|FLAKY).* \[ *(?P<seconds>[\d.]+)s\](?: \([^)]*\))? (?P<name>.+)$", re.MULTILINE)


def tests(folder: Path) -> Iterator[tuple[float, str]]:
    """Seconds and name of each test."""
    for log in folder.glob("*.log"):
        for found in LINE.finditer(log.read_text(errors="replace")):
            yield float(found["seconds"]), found["name"]
    for report in folder.glob("*.xml"):
        for case in ElementTree.parse(report).iter("testcase"):
            yield float(case.get("time", "0")), f"{case.get('classname')}::{case.get('name')}"


if __name__ == "__main__":
    for seconds, name in sorted(tests(Path(sys.argv[2])), reverse=True)[: int(sys.argv[1])]:
        print(f"{seconds:7.1f} s  {name}")
