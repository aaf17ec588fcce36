"""Checks the corpus by plain reading: python check.py [-v] [case ...]

Of every case the first operator is sought whose results differ although what it read does not (above a floor where the runs
round otherwise), or which one side lacks; it must be one that cases.toml calls right. Sound pairs that round otherwise are only shown.
"""
import pathlib
import sys

import cases
import errors
import make

FAULTS = pathlib.Path(__file__).resolve().parent.parent / "faults"


def main():
    names, wrong = [a for a in sys.argv[1:] if a != "-v"], 0
    for case in cases.CASES[1:]:
        if names and case["name"] not in names:
            continue
        noise = case.get("noise") or "compute" in case.get("candidate_device", {})
        floor = 0.0 if not noise else 3e-2 if "dtype" in make.options(case, "candidate") else 1e-5
        lines = errors.report(FAULTS / make.owner(case) / "baseline", FAULTS / case["name"] / "candidate", floor, limit=1000)
        place = f"step {case.get('step', 0)} rank {case.get('rank', 0)} "
        found = [line.split()[4].rstrip(":") for line in lines if line.startswith(place)]
        early = [line for line in lines if line < place and "rank" not in case]
        births = [
            line.split()[4].rstrip(":")
            for line in lines
            if line.startswith(place) and (" on one side" in line or all(p.startswith("*") or "argument" in p for p in line.split(": ", 1)[1].split(", ")))
        ]
        word = "see "
        if case["ops"]:
            good = not early and (births[:1] + found[:1] or [""])[0] in case["ops"] or "structure" in case["causes"] and case["ops"][0] in births
            good = good or found[:1] and found[0] in case["ops"] or "mixed-precision" in case.get("notes", ())
            word = "ok  " if good else "LOOK"
        elif not noise and "notes" not in case and not case.get("baseline_old"):
            word = "LOOK" if lines else "ok  "
        wrong += word == "LOOK"
        print(f"{word} {case['name']}: {', '.join(case['ops']) or 'agrees'}")
        for line in lines[: 6 if word != "ok  " or "-v" in sys.argv else 1]:
            print(f"         {line[:230]}")
    print(f"{wrong} to look at")


if __name__ == "__main__":
    main()
