"""Commands of the package that run recorded calls again: `probe replay`, `verify`, `check-ops` and `invariant`."""

from __future__ import annotations

import argparse
import errno
import importlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

#: Lines about what cannot be read; a dump without its tensors has one for each.
_FAULTS = 10
#: Exit codes: all is well, a result is wrong, the command failed, something could not be replayed.
WELL, WRONG, FAILED, INCOMPLETE = 0, 1, 2, 3


class Misused(Exception):
    """The command cannot do what was asked; the text says why and what to do."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Misused(f"{message}; `{self.prog} --help` lists the options")


def main(command: str, arguments: list[str]) -> int:
    """Runs a command; returns its exit code."""
    try:
        own, program = arguments, []
        if "--" in arguments:
            own, program = arguments[:arguments.index("--")], arguments[arguments.index("--") + 1 :]
        options = _parser(command).parse_args(own)
        options.command = program
        try:
            import torch
        except Exception as error:
            raise Misused(f"torch cannot be loaded: {error}; replaying needs it") from None
        warnings.filterwarnings("ignore")
        for name in options.imported:
            _import(name)
        torch.set_num_threads(options.threads)
        return int(options.run(options))
    except Misused as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        return FAILED


def _parser(command: str) -> _Parser:
    """Returns the parser of a command, with what runs it as `run`."""
    parser = _Parser(prog=f"probe {command}", formatter_class=argparse.RawDescriptionHelpFormatter)
    # A program after `--` may stand for it.
    parser.add_argument("dump", metavar="DUMP", nargs="?" if command == "invariant" else None)
    parser.add_argument("--import", dest="imported", action="append", default=[], metavar="MODULE", help="import an extension that has operators")
    parser.add_argument("--step", type=int, metavar="STEP", help="step of the dump [default: replay: the first with the op; else all]")
    parser.add_argument("--rank", type=int, metavar="RANK", help="rank of the dump [default: as for --step]")
    parser.add_argument("--threads", type=_count, default=1, metavar="N", help="threads of torch [default: 1]")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="form of the answer")
    if command != "verify":
        parser.add_argument("--device", default="cpu", help="device under test, which runs the calls in their own types [default: cpu]")
    if command in ("check-ops", "invariant"):
        parser.add_argument("--op", action="append", default=[], metavar="PATTERN", help="only these ops; may be given several times")
    fill, run = _COMMANDS[command]
    fill(parser)
    parser.set_defaults(run=run)
    return parser


def _replay(parser: _Parser) -> None:
    parser.description = (
        "Runs one recorded call again and holds what was recorded against float64.\n"
        "DUMP is the dump with the suspect; it needs data (task tensor)."
    )
    parser.epilog = "Exit codes: 0 rounding, 1 a recorded result is wrong, 2 failed or misused."
    parser.add_argument("--op", required=True, metavar="NAME", help="name of the op, as reports have it")
    parser.add_argument("--against", metavar="OTHER", help="dump of the baseline")
    parser.add_argument("--times", type=_count, default=10, metavar="N", help="replays [default: 10]")
    parser.add_argument("-o", "--output", metavar="DIR", help="write a script that shows the fault without probe into a new folder")
    parser.add_argument("--report", metavar="DIR", help="reports whose page shows the answer [default: probe-report, if it compares these dumps]")


def _verify(parser: _Parser) -> None:
    parser.description = (
        "Holds every recorded call of one run against float64 on the inputs that it was given: which kernel is wrong,\n"
        "without a baseline. DUMP needs data (task tensor)."
    )
    parser.epilog = "Exit codes: 0 nothing is wrong, 1 a result is wrong, 2 failed or misused, 3 part of the dump cannot be read."
    parser.add_argument("--top", type=_count, default=10, metavar="N", help="results at fault to list [default: 10]")


def _check_ops(parser: _Parser) -> None:
    parser.description = (
        "Runs every distinct call of a dump on a device and holds the results against float64 on the host, by the standards of the\n"
        "field. Inputs are those recorded; without data they are drawn within the recorded ranges."
    )
    parser.epilog = "Exit codes: 0 all pass, 1 a result fails, 2 failed or misused, 3 part of the dump cannot be read."
    parser.add_argument("--not", dest="excluded", action="append", default=[], metavar="PATTERN", help="not these")
    parser.add_argument("--benchmark", metavar="FILE", help="results.jsonl of another device: ratios to its errors are judged")
    parser.add_argument("--jobs", type=_count, default=1, metavar="N", help="processes [default: 1]")
    parser.add_argument("-o", "--output", default="check-ops", metavar="DIR", help="folder of the results; a run that ended early goes on [default: check-ops]")


def _invariant(parser: _Parser) -> None:
    parser.description = (
        "Runs the calls of a dump again, one row alone, in another order and with other numbers of threads, and names the first whose rows are\n"
        "not the same to the bit. DUMP needs data (task tensor); `probe invariant -- python run.py` records step 0 of a program first."
    )
    parser.epilog = "Exit codes: 0 rows depend on nothing but themselves, 1 they do, 2 failed or misused, 3 part of the dump cannot be read."


def recording(path: str) -> Any:
    """Opens a dump."""
    from probe.replay.recorded import Recording

    try:
        return Recording(path)
    except ValueError as error:
        raise Misused(str(error)) from None


def part_with(dump: Any, op: str, step: int | None, rank: int | None) -> Any:
    """Returns the first part of a dump that has the op."""
    from probe.nearest import suggestion

    steps, ranks = chosen(dump, step, rank)
    names: list[str] = []
    for part in dump.parts(steps, ranks):
        if op in part:
            return part
        names = names or part.names
    lost = f"part of it cannot be read: {dump.faults[0]}" if dump.faults else ""
    if not names:
        raise Misused(f"{dump.path}: {lost or 'it holds no ops'}")
    raise Misused(f"{dump.path}: no op {op!r}; {lost or suggestion(op, names)}")


def chosen(dump: Any, step: int | None, rank: int | None) -> tuple[list[range], list[range]]:
    """Returns the steps and ranks that options ask for; none stands for all."""
    if not any(step in (None, its_step) and rank in (None, its_rank) for its_step, its_rank in dump.places):
        raise Misused(f"{dump.path}: no such step or rank; it has {', '.join(f'step {step} rank {rank}' for step, rank in dump.places[:8])}")
    return [[] if number is None else [range(number, number + 1)] for number in (step, rank)]


def ended(dump: Any, code: int) -> int:
    """Returns the exit code of a command that has read a dump: what could not be read is told, and makes the answer incomplete."""
    faults = dump.faults
    for line in faults[:_FAULTS]:
        print(f"error: {line}", file=sys.stderr)
    if len(faults) > _FAULTS:
        print(f"error: and {len(faults) - _FAULTS} more that cannot be read", file=sys.stderr)
    return INCOMPLETE if faults else code


def _run_replay(options: argparse.Namespace) -> int:
    from probe.replay import answer, lines, one, reports, script
    from probe.replay.recorded import NotReplayed

    _device(options.device)
    if options.output:
        _new_folder(Path(options.output))
    try:
        folder = reports.folder_for(options.report, options.against, options.dump)
    except reports.NotKept as error:
        raise Misused(str(error)) from None
    dump = recording(options.dump)
    candidate = part_with(dump, options.op, options.step, options.rank)
    baseline = part_with(recording(options.against), options.op, candidate.step, options.rank) if options.against else None
    try:
        if options.output:
            _check_script(candidate.call(options.op))
        outcome = one.replay(candidate, options.op, baseline, options.device, options.times)
    except NotReplayed as error:
        raise Misused(f"{options.op} cannot be replayed: {error}") from None
    if options.format == "json":
        print(json.dumps(answer.document(outcome), indent=2))
    else:
        print(lines.folded(answer.text(outcome)), end="")
    beside = sys.stderr if options.format == "json" else sys.stdout
    if folder is not None:
        try:
            print(_shown(reports.keep(folder, answer.document(outcome))), file=beside)
        except reports.NotKept as error:
            raise Misused(str(error)) from None
        except OSError as error:
            raise Misused(f"{folder}: {error.strerror}") from None
    if options.output:
        try:
            for line in script.write(outcome, Path(options.output), dump.environment):
                print(lines.folded(line), end="", file=beside)
        except NotReplayed as error:
            raise Misused(f"-o: {error}") from None
        except OSError as error:
            raise Misused(f"{options.output}: {error.strerror}; choose a new folder") from None
    return WRONG if outcome.guilty else WELL


def _check_script(call: Any) -> None:
    """Says so before anything is judged where no script can be written of a call."""
    from probe.replay import script
    from probe.replay.recorded import NotReplayed

    try:
        script.as_written(call)
    except NotReplayed as error:
        raise Misused(f"-o: no script can be written of {call.name}: {error}; without -o, the call is replayed") from None
    except Exception:
        # Replay fails at the same place, and says how.
        return


def _new_folder(folder: Path) -> None:
    """Says so before anything is computed where a folder cannot be made."""
    above = next(each for each in folder.absolute().parents if each.exists())
    number = 0
    if folder.exists():
        number = errno.EEXIST
    elif not above.is_dir():
        number = errno.ENOTDIR
    elif not os.access(above, os.W_OK | os.X_OK):
        number = errno.EACCES
    if number:
        raise Misused(f"{folder}: {os.strerror(number)}; choose a new folder")


def _shown(replays: Path) -> str:
    """Makes page and workbook beside the replays again, if their rows are there; returns what to tell the user."""
    from probe import _core

    folder = replays.parent
    if not any((folder / name).is_file() for name in ("result.parquet", "plan.json")):
        return f"written: {replays}"
    if _core.main(["probe", "report", str(folder), "-q"]) != 0:
        raise Misused(f"{folder}: its reports cannot be made again; the reason is above")
    made = [str(folder / name) for name in ("result.html", "result.xlsx") if (folder / name).is_file()]
    return f"shown in: {' and '.join(made)}"


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except Exception as error:
        raise Misused(f"--import {name}: {type(error).__name__}: {error}") from None


def _run_verify(options: argparse.Namespace) -> int:
    from probe.replay import answer, lines, whole

    dump = recording(options.dump)
    run = whole.verify(dump, *chosen(dump, options.step, options.rank), whole.on_terminal)
    if not run.replayed:
        reason = next(iter(run.gaps or run.faults), "it holds no call of a function")
        raise Misused(f"{options.dump}: nothing can be replayed: {reason}")
    text = json.dumps(answer.verified_document(run), indent=2) if options.format == "json" else lines.folded(answer.verified(run, options.dump, options.top))
    print(text, end="")
    return ended(dump, WRONG if any(part.faults or any(not each.precision for each in part.statements) for part in run.parts) else WELL)


def _run_invariant(options: argparse.Namespace) -> int:
    from probe.nearest import suggestion
    from probe.replay import invariant, lines

    _device(options.device)
    wanted = _wanted(options.op, [])
    with tempfile.TemporaryDirectory() as folder:
        path = options.dump or _recorded(options.command, str(Path(folder, "dump")))
        dump = recording(path)
        names: dict[str, None] = {}
        results: list[tuple[tuple[int, int], invariant.Dependence | None]] = []
        for part in dump.parts(*chosen(dump, options.step, options.rank)):
            names.update(dict.fromkeys(part.names))
            results.extend(((part.step, part.rank), dependence) for _, dependence in invariant.examine(part, wanted, options.device))
    if not results:
        if dump.faults:
            raise Misused(f"{path}: part of it cannot be read: {dump.faults[0]}")
        which = f" that matches --op {' '.join(options.op)}" if options.op else ""
        if which and not any(map(wanted, names)):
            raise Misused(f"{path}: holds no op{which}; {suggestion(options.op[0], list(names))}")
        raise Misused(f"{path}: no call{which} can be run row by row; it needs data (task tensor) of calls on batches of two rows or more")
    found = [(*place, dependence) for place, dependence in results if dependence is not None]
    if options.format == "json":
        print(json.dumps({"schema_version": 1, "calls": len(results), "dependent": [{"step": step, "rank": rank, **vars(each)} for step, rank, each in found]}, indent=2))
    else:
        print(f"{len(results)} distinct calls on batches, {options.device}: " + (f"{len(found)} {'gives' if len(found) == 1 else 'give'} a row other bits" if found else "every row depends on itself alone"))
        for step, rank, each in found:
            print(lines.folded(f"  step {step} rank {rank}  {each}"), end="")
    return ended(dump, WRONG if found else WELL)


def _recorded(command: list[str], folder: str) -> str:
    """Records step 0 of a program with data; returns the dump."""
    if not command:
        raise Misused("give a DUMP, or the program to record after --")
    done = subprocess.run([sys.executable, "-m", "probe", "capture", "--task", "tensor", "--steps", "0", "--quiet", "-o", folder, "--", *command], check=False)
    if done.returncode != 0:
        raise Misused(f"{command[0]} ended with exit code {done.returncode}")
    return folder


def _wanted(kept: list[str], left: list[str]) -> Callable[[str], bool]:
    """Returns what tells the ops that match any of `kept`, if that has any, and none of `left`."""
    from probe.patterns import Pattern, names_of

    within, without = [Pattern(text) for text in kept], [Pattern(text) for text in left]

    def wanted(name: str) -> bool:
        names = names_of(name)
        return (not within or any(each.matches(names) for each in within)) and not any(each.matches(names) for each in without)

    return wanted


def _run_check_ops(options: argparse.Namespace) -> int:
    from probe.replay import check_ops, lines, whole

    _device(options.device)
    dump = recording(options.dump)
    wanted = _wanted(options.op, options.excluded)
    try:
        benchmark = check_ops.read(Path(options.benchmark)) if options.benchmark else {}
        output = Path(options.output)
        places = chosen(dump, options.step, options.rank)
        checked = check_ops.run(dump, places, options.device, output, options.jobs, wanted, whole.on_terminal)
        judged = check_ops.verdicts(checked, benchmark)
        text = check_ops.table(judged, checked, options.device)
        document = json.dumps(check_ops.document(judged, checked, options.device), indent=2) + "\n"
        for name, data in (("report.txt", text.encode()), ("report.json", document.encode()), ("junit.xml", check_ops.junit(judged))):
            (output / name).write_bytes(data)
    except check_ops.NothingRun as error:
        raise Misused(f"{options.dump}: {error}") from None
    except check_ops.NotResults as error:
        raise Misused(str(error)) from None
    except OSError as error:
        repair = "give the results.jsonl of another check-ops" if error.filename == options.benchmark else "choose another folder with -o"
        raise Misused(f"{error.filename}: {error.strerror}; {repair}") from None
    if not judged:
        raise Misused(f"{options.dump}: none of its {len(checked)} distinct calls can be run: {checked[0].key}: {checked[0].skipped}")
    print(document if options.format == "json" else lines.folded(text), end="")
    return ended(dump, WELL if all(each.met for each in judged) else WRONG)


def _device(name: str) -> None:
    import torch

    try:
        torch.ones(1, device=name)
    except Exception as error:
        said = (str(error).splitlines() or [""])[0]
        if "at start of device string" in said:
            # torch lists the twenty names that it knows.
            said = "torch has no such device here" + ("; add --import torch_npu" if name.split(":")[0] == "npu" else "")
        raise Misused(f"--device {name}: {said}") from None


def _count(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")


#: What each command adds to its parser, and what runs it.
_COMMANDS: dict[str, tuple[Callable[[_Parser], None], Callable[[argparse.Namespace], int]]] = {
    "replay": (_replay, _run_replay),
    "verify": (_verify, _run_verify),
    "check-ops": (_check_ops, _run_check_ops),
    "invariant": (_invariant, _run_invariant),
}
