"""What the existing tool says of the corpus: python verdicts.py [case ...]

A fault counts as found if the first row that is not `pass` (in `errors only`: that is `error`) belongs to the right operator of the
right step and rank; a sound pair is right if every row passes. Steps are compared one by one, since the tool takes one at a time.
"""
import csv
import pathlib
import subprocess
import sys
import tempfile
import tomllib

FAULTS = pathlib.Path(__file__).resolve().parents[2] / "testdata" / "faults"
MSPROBE = str(pathlib.Path(sys.executable).with_name("msprobe"))


def rows(baseline, candidate):
    """(rank, rows) of every table the tool writes for one step."""
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([MSPROBE, "compare", "-tp", candidate, "-gp", baseline, "-o", out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for file in sorted(pathlib.Path(out).glob("compare_result*.csv")):
            part = file.name.split("_")[2]
            with open(file) as f:
                yield int(part[4:]) if part.startswith("rank") else 0, list(csv.DictReader(f))


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
