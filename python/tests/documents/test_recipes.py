"""The shell inside the recipes for CI systems runs as it stands there."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .blocks import Block, blocks
from .conftest import run

pytest.importorskip("torch")

#: A block scalar under `run:` (GitHub), or in a list of `script:` (GitLab).
_YAML = re.compile(r"^(?P<indent> *)(?:run:|-) \|\n(?P<shell>(?:(?P=indent) +.*\n|\n)+)", re.MULTILINE)
#: A step of Jenkins.
_GROOVY = re.compile(r"sh '''\n(?P<shell>.*?)'''", re.DOTALL)


def shells(block: Block) -> Iterator[str]:
    pattern = {"yaml": _YAML, "groovy": _GROOVY}[block.info]
    for found in pattern.finditer(block.text):
        yield textwrap.dedent(found["shell"])


RECIPES = [block for block in blocks() if block.document.startswith("docs/ci/") and block.info in ("yaml", "groovy")]


@pytest.mark.parametrize("block", RECIPES, ids=str)
def test_recipe(block: Block, workplace: Callable[[str], Path]) -> None:
    folder = workplace(block.text)
    found = list(shells(block))
    assert found, "a recipe has shell in it"
    # The steps of a job share its folder.
    for shell in found:
        done = run(folder, "bash", "-eu", "-o", "pipefail", "-c", shell)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "gate_report" / "junit.xml").is_file()


def test_there_is_a_recipe_for_each_system() -> None:
    documents = {block.document for block in RECIPES}
    assert documents == {"docs/ci/github.md", "docs/ci/gitlab.md", "docs/ci/jenkins.md"}
