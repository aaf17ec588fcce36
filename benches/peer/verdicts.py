"""Answers of the existing tool for the corpus: python verdicts.py [case ...]

A fault counts as found if the first row that is not `pass` (in `errors only`: that is `error`) belongs to the right operator of the
right step and rank; a sound pair is right if every row passes. Steps are compared one by one, since the tool takes one at a time.
"""
import contextlib
import csv
import os
import pathlib
import sys
import tempfile
import tomllib

from msprobe.msprobe import main as msprobe

FAULTS = pathlib.Path(__file__).resolve().parents[2] / "testdata" / "faults"


def rows(baseline, candidate):
    """(rank, rows) of every table the tool writes for one step."""
    with tempfile.TemporaryDirectory() as out:
        if (pid := os.fork()) == 0:
            quiet(["msprobe", "compare", "-tp", candidate, "-gp", baseline, "-o", out])
            os._exit(0)
        os.waitpid(pid, 0)
        for file in sorted(pathlib.Path(out).glob("compare_result*.csv")):
            part = file.name.split("_")[2]
            with open(file) as f:
                yield int(part[4:]) if part.startswith("rank") else 0, list(csv.DictReader(f))


def quiet(arguments):
    """The tool's own command, in this process and without its log."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    sys.argv = arguments
    with contextlib.suppress(BaseException):
        msprobe()


def operator(name):
    for mark in (".input.", ".output.", ".kwargs.", ".parameters."):
        if mark in name:
            return name.split(mark)[0]
    return name.rsplit(".", 1)[0]


def main():
    cases = tomllib.loads((FAULTS / "cases.toml").read_text())["case"]
    right = {"any": 0, "error": 0}
    total = 0
    for case in cases:
        if sys.argv[1:] and case["name"] not in sys.argv[1:]:
            continue
        total += 1
        first = {"any": None, "error": None}
        for step in range(case["steps"]):
            for rank, table in rows(str(FAULTS / case["baseline"] / f"step{step}"), str(FAULTS / case["candidate"] / f"step{step}")):
                for row in table:
                    if row["Result"] != "pass":
                        first["any"] = first["any"] or (step, rank, operator(row["NPU Name"]))
                        if row["Result"] == "error":
                            first["error"] = first["error"] or (step, rank, operator(row["NPU Name"]))
        said = []
        for kind, found in first.items():
            if case["verdict"] == "agree":
                good = found is None
            else:
                good = found is not None and found[:2] == (case["step"], case.get("rank", 0)) and found[2] in case["ops"]
            right[kind] += good
            said.append(f"{'right' if good else 'WRONG'} {'/'.join(map(str, found)) if found else 'all pass'}")
        print(f"{case['name']}: {' | '.join(said)}", flush=True)
    print(f"right, warnings counted: {right['any']} of {total}; errors only: {right['error']} of {total}")


if __name__ == "__main__":
    main()
