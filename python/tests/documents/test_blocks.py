"""Every Python and shell block of the READMEs and the guides runs as it stands there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from .blocks import Block, blocks
from .conftest import PRELUDE, run

pytest.importorskip("torch")

#: Beginnings of a command or a call, in a block that does not name its language.
_TYPED = re.compile(r"^(\$ |probe [a-z]|pip |cargo |python |import |from \w+ import )", re.MULTILINE)
#: Words that no example may contain.
_TROUBLE = re.compile(r"Traceback|nothing (was|is) recorded|warning:|recording stopped|could not be recorded|(was|were) not reached")

#: How long something took.
_SECONDS = re.compile(r"[0-9.]+ s$", re.MULTILINE)

RUNNABLE = [block for block in blocks() if block.info in ("python", "bash", "sh", "console")]
#: Blocks that two documents share are run once.
ONCE = list({block.code: block for block in reversed(RUNNABLE) if block.unrun is None}.values())[::-1]


@pytest.mark.parametrize("block", [block for block in ONCE if block.info == "python"], ids=str)
def test_python(block: Block, workplace: Callable[[str], Path]) -> None:
    folder = workplace(block.text)
    (folder / "script.py").write_text(PRELUDE + block.text, encoding="utf-8")
    done = run(folder, "python", "script.py")
    assert done.returncode == 0, done.stderr
    assert not _TROUBLE.search(done.stderr), done.stderr


@pytest.mark.parametrize("block", [block for block in ONCE if block.info != "python"], ids=str)
def test_shell(block: Block, workplace: Callable[[str], Path]) -> None:
    folder = workplace(block.text)
    done = run(folder, "bash", "-eu", "-o", "pipefail", "-c", block.commands)
    # A shown result may be a divergence or an error; a command that is only to be typed works.
    shown = {0, 1} if "\nerror: " not in block.text else {2}
    assert done.returncode in (shown if block.info == "console" else {0}), done.stdout + done.stderr
    assert not _TROUBLE.search(done.stderr), done.stderr
    if block.info == "console" and 2 in shown:
        assert done.stderr.startswith(block.text.partition("\n")[2][:40]), done.stderr


#: Documents whose dialogues show what the program says of files that are there. What `--recheck` finds takes a program with a race.
_SHOWN = ("docs/examples.md", "docs/replay.md", "docs/rollout.md")
SHOWN = [block for block in ONCE if block.document in _SHOWN and block.info == "console" and "--recheck" not in block.text]


#: What a call may be off by follows from what the processor makes of it, which is not the same everywhere.
_OF_PROCESSOR = re.compile(r"(?<=replayed here, cpu).*|[\d.e+]+(?= times as far off as it may be)|(?<= against )[\d.e-]+, (rounding|this machine's own error)")


@pytest.mark.parametrize("block", SHOWN, ids=str)
def test_what_a_comparison_shows(block: Block, workplace: Callable[[str], Path]) -> None:
    folder = workplace(block.text)
    done = run(folder, "bash", "-u", "-c", block.commands)
    told = _OF_PROCESSOR.sub("", _SECONDS.sub("", done.stdout + done.stderr))
    said = told.replace(str(folder), "/home/user").splitlines()
    _, shown = block.dialogue[-1]
    missing = [line for line in shown if line and _OF_PROCESSOR.sub("", _SECONDS.sub("", line)) not in said]
    assert not missing, "\n".join(["the document shows what is not said:", *missing, "said is:", *said])


def test_the_readmes_show_what_the_first_command_says(workplace: Callable[[str], Path]) -> None:
    shown = [block for block in blocks() if block.text.startswith("first divergence: ")]
    examples = {block.text for block in shown if block.document.startswith("README")}
    assert len(examples) == 1, "both READMEs show the same"
    folder = workplace("")
    done = run(folder, "probe", "compare", "-b", "testdata/gpu_dump", "-c", "testdata/npu_dump")
    assert _SECONDS.sub("", done.stdout) == _SECONDS.sub("", examples.pop())


def test_a_block_that_is_not_run_says_why() -> None:
    unrun = [block for block in RUNNABLE if block.unrun is not None]
    assert [(block.document, block.text.split()[0]) for block in unrun] == [
        ("README.md", "cargo"),
        ("README.md", "pip"),
        ("README.zh-CN.md", "cargo"),
        ("README.zh-CN.md", "pip"),
        ("docs/capture.md", "probe"),
        ("docs/capture.md", "probe"),
        ("docs/config-check.md", "from"),
        ("docs/development.md", "workspace=(--workspace"),
        ("docs/development.md", "cargo"),
        ("docs/development.md", "python3"),
        ("docs/development.md", "tested()"),
        ("docs/development.md", "(cd"),
        ("docs/development.md", ".venv/bin/maturin"),
        ("docs/development.md", "target/debug/generate-schemas"),
        ("docs/layouts.md", "probe"),
        ("docs/mindspore.md", "probe"),
        ("docs/mindspore.md", "from"),
        ("docs/on-real-hardware.md", "source"),
        ("docs/on-real-hardware.md", "maturin"),
        ("docs/replay.md", "$"),
        ("docs/replay.md", "$"),
        ("docs/replay.md", "probe"),
        ("docs/replay.md", "$"),
        ("docs/report.md", "probe"),
        ("docs/rollout.md", "import"),
        ("docs/rollout.md", "import"),
        ("docs/rollout.md", "import"),
        ("docs/rollout.md", "import"),
        ("docs/rollout.md", "probe"),
        ("docs/rollout.md", "probe"),
        ("docs/rollout.md", "with"),
        ("docs/rollout.md", "probe"),
        ("docs/runtime.md", "cargo"),
        ("docs/runtime.md", "probe"),
        ("docs/runtime.md", "probe"),
        ("docs/scale-out.md", "probe"),
        ("docs/scale-out.md", "pip"),
        ("docs/scale-out.md", "probe"),
        ("docs/scale-out.md", "#"),
        ("docs/scale-out.md", "export"),
        ("docs/scale-out.md", "probe"),
        ("docs/weights.md", "probe"),
    ], "each needs a reason that holds: what can run is run"


def test_no_command_hides_in_a_block_without_a_name() -> None:
    hidden = [str(block) for block in blocks() if block.info in ("", "text") and _TYPED.search(block.text)]
    assert hidden == [], "name these bash, console or python"


def test_there_is_something_to_run() -> None:
    by_info = {info: sum(block.info == info for block in ONCE) for info in ("python", "bash", "console")}
    assert by_info["python"] >= 6 and by_info["bash"] >= 8 and by_info["console"] >= 9, by_info
