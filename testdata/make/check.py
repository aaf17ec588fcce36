"""Checks the corpus by plain reading: python check.py [case ...]

Says of every case which operators differ first, and fails where that contradicts cases.toml. No judge: above rounding it only prints.
"""
import pathlib
import sys

import cases
import errors

FAULTS = pathlib.Path(__file__).resolve().parent.parent / "faults"


def first(case):
    folder = FAULTS / case["name"]
    noise = case.get("noise") or "compute" in case.get("candidate_device", {})
    coarse = "bf16" in case["name"] and "round_linear" not in case["name"]
    floor = 0.0 if not noise else 3e-2 if coarse else 1e-5
    return errors.report(folder / "baseline", folder / "candidate", floor, limit=4)


def main():
    wrong = 0
    for case in cases.CASES[1:]:
        if sys.argv[1:] and case["name"] not in sys.argv[1:]:
            continue
        lines = first(case)
        words = lines[0].split() if lines else []
        if case["ops"]:
            where = (str(case.get("step", 0)), str(case.get("rank", 0)))
            of_place = [line for line in lines if tuple(line.split()[1:4:2]) == where]
            good = bool(of_place) and of_place[0].split()[4].rstrip(":") in case["ops"]
            if case.get("step", 0) == 0 and "rank" not in case:
                good = good and words[4].rstrip(":") in case["ops"]
        else:
            good = not lines or "notes" in case
        wrong += not good
        print(f"{'ok  ' if good else 'LOOK'} {case['name']}: {', '.join(case['ops']) or 'agrees'}")
        for line in lines[: 4 if not good or "-v" in sys.argv else 2]:
            print(f"         {line[:230]}")
    print(f"{wrong} to look at")


if __name__ == "__main__":
    main()
