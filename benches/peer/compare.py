"""Wall and CPU time of the existing tool's comparison: python compare.py FOLDER [--runs N] [--] [command ...]

FOLDER is what dumps.py made. Without a command: msprobe compare. A command of another tool is run with the words {baseline},
{candidate} and {out} replaced, in turn with msprobe, so that both see the same machine.
"""
import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

MSPROBE = [str(pathlib.Path(sys.executable).with_name("msprobe")), "compare", "-tp", "{candidate}", "-gp", "{baseline}", "-o", "{out}"]


def once(command, folder, step):
    out = tempfile.mkdtemp()
    places = {"baseline": str(folder / "baseline" / step), "candidate": str(folder / "candidate" / step), "out": out}
    words = [w.format(**places) for w in command]
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wall, after = time.perf_counter() - start, os.times()
    cpu = sum(after[2:4]) - sum(before[2:4])
    written = sum(f.stat().st_size for f in pathlib.Path(out).rglob("*") if f.is_file())
    shutil.rmtree(out)
    return wall, cpu, done.returncode, written


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--only", nargs="*", default=["tensor", "stat", "json"])
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    a = p.parse_args(words[:split])
    a.command = words[split + 1 :]
    for name in a.only:
        runs = {}
        for _ in range(a.runs):
            runs.setdefault("msprobe", []).append(once(MSPROBE, a.folder / name, "step0"))
            if a.command:
                runs.setdefault(pathlib.Path(a.command[0]).name, []).append(once(a.command, a.folder / name, ""))
        for tool, seen in runs.items():
            wall, cpu = (statistics.median(r[i] for r in seen) for i in (0, 1))
            print(f"{name:7} {tool:10} wall {wall:8.2f} s   cpu {cpu:8.2f} s   exit {seen[-1][2]}   wrote {seen[-1][3]} bytes   of {len(seen)} runs", flush=True)


if __name__ == "__main__":
    main()
