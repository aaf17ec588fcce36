"""Makes the corpus: python make.py [case ...]     (all cases without an argument; `main` is the pair gpu_dump, npu_dump)

Needs torch and mindstudio-probe (see requirements.txt). Every run is a forked process of its own, with fixed seeds. Paths of the
machine that ran it and process ids are replaced, so that a second making gives the same files. The pair `main` is kept as
captured; the JSON of the cases loses its indentation, and a baseline that several cases share is kept once.
"""
import json
import os
import pathlib
import re
import runpy
import shutil
import socket
import sys
import sysconfig
import tempfile
import traceback
import zlib

import msprobe.pytorch  # noqa: F401  imported once here: every run is forked off
import torch  # noqa: F401

import cases
import old

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
SHAPE = {"gpt": {"width": 16, "vocab": 31}, "conv": {"width": 4, "batch": 2}}


def options(case, side):
    extra = dict(case.get("both", {}))
    extra.update(case.get(side, {}))
    if case["model"] in SHAPE:
        extra["shape"] = SHAPE[case["model"]] | extra.get("shape", {})
    return extra


def owner(case):
    """The first case with the same baseline run: a baseline is kept once."""
    if case["name"] == "main":
        return "main"

    def key(c):
        return [c.get(k) for k in ("model", "task", "level", "steps", "world", "baseline_device", "baseline_old")] + [options(c, "baseline")]

    return next(c["name"] for c in cases.CASES if c["name"] != "main" and key(c) == key(case))


def start(case, side, folder):
    """Starts the runs of one side, a forked process a rank: [(pid, its output)]."""
    arguments = [case["model"], "--dump", str(folder), "--task", case["task"], "--level", case["level"], "--steps", str(case.get("steps", 1))]
    arguments += ["--set"] + [f"{k}={json.dumps(v)}" for k, v in options(case, side).items()]
    if case.get(f"{side}_device"):
        arguments += ["--device", json.dumps(case[f"{side}_device"])]
    world, env, jobs = case.get("world", 1), {}, []
    if world > 1:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(s.getsockname()[1]), "WORLD_SIZE": str(world)}
    for rank in range(world):
        out = tempfile.TemporaryFile("w+")
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
                os.environ.update(env, RANK=str(rank))
                sys.argv = ["train.py", *arguments]
                runpy.run_path(str(HERE / "train.py"), run_name="__main__")
                code = 0
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        jobs.append((pid, out))
    return jobs


def finish(case, side, jobs):
    """Waits for the runs and returns what the last of them said about its steps."""
    for pid, out in jobs:
        bad = os.waitpid(pid, 0)[1]
        out.seek(0)
        text = out.read()
        if bad:
            raise SystemExit(f"{case['name']} {side}: {text}")
    return [line for line in text.splitlines() if line.startswith("step ")]


def outermost(frames):
    """Number of frames down to the script's own: below them is only what started it."""
    return next(i for i, f in enumerate(frames) if f"{HERE}/train.py" in f and "in <module>" in f) + 1


def scrub(folder, name, pid):
    """Replaces what belongs to this machine: paths and process ids."""
    swap = [(str(HERE), "/home/user/train"), (sysconfig.get_paths()["purelib"], "/opt/venv/lib/python3.11/site-packages")]
    swap += [(sysconfig.get_paths()["stdlib"], "/usr/lib/python3.11")]
    for where in sorted(folder.glob("step*/*")):
        if where.name.startswith("proc"):
            where = where.rename(where.with_name(f"proc{pid}"))
        data = where / "dump_tensor_data"
        if data.is_dir() and not any(data.iterdir()):
            data.rmdir()
        for file in where.glob("*.json"):
            text = file.read_text()
            if file.name == "stack.json":
                text = json.dumps({k: [names, frames[: outermost(frames)]] for k, (names, frames) in json.loads(text).items()}, indent=1)
            text = re.sub(r'"dump_data_dir": "[^"]*"', f'"dump_data_dir": "/home/user/train/{name}/{where.parent.name}/{where.name}/dump_tensor_data"', text)
            for a, b in swap:
                text = text.replace(a, b)
            for line in re.findall(r"File ([^,]*), line", text):
                assert line.startswith(("/home/user/train/", "/opt/venv/", "/usr/lib/")), line
            for alien in (str(folder), str(ROOT), sys.prefix, sys.base_prefix if sys.base_prefix != "/usr" else "\0"):
                assert alien not in text, (file, alien)
            file.write_text(text)


def make(case):
    name = case["name"]
    with tempfile.TemporaryDirectory() as tmp:
        folders = {side: pathlib.Path(tmp) / side for side in ("baseline", "candidate") if side == "candidate" or owner(case) == name}
        jobs = {side: start(case, side, folder) for side, folder in folders.items()}
        for side, folder in folders.items():
            lines = finish(case, side, jobs[side])
            target = ROOT / "faults" / name / side
            if name == "main":
                target = ROOT / {"baseline": "gpu_dump", "candidate": "npu_dump"}[side]
            scrub(folder, target.name if name == "main" else f"dump_{side}", 10000 + zlib.crc32(f"{name} {side}".encode()) % 50000)
            if case.get(f"{side}_old"):
                for where in folder.glob("step*/*"):
                    old.rewrite(where)
            if name != "main":
                for file in folder.glob("step*/*/*.json"):
                    file.write_text(json.dumps(json.loads(file.read_text()), separators=(",", ":")))
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(folder, target)
            print(f"{name} {side}: {'; '.join(lines)}", flush=True)


def table():
    """faults/cases.toml: what every case holds and what the right answer is."""
    text = (
        "# Written by testdata/make/make.py. `ops`: any of these names is right as the first divergence. `causes`: likewise.\n"
        "# `notes`: what a report should mention although it is no divergence.\n"
        "# step and rank: where it is; a run without ranks has none. `noise`: the candidate also rounds otherwise than the baseline.\n"
    )
    for c in cases.CASES:
        if c["name"] == "main":
            continue
        text += f"\n[[case]]\nname = {json.dumps(c['name'])}\nmodel = {json.dumps(c['model'])}\n"
        text += f'baseline = "{owner(c)}/baseline"\ncandidate = "{c["name"]}/candidate"\n'
        text += f"task = {json.dumps(c['task'])}\nlevel = {json.dumps(c['level'])}\nsteps = {c.get('steps', 1)}\n"
        text += f"noise = {json.dumps('compute' in c.get('candidate_device', {}) or c.get('noise', False))}\n"
        text += f"verdict = {json.dumps('diverged' if c['ops'] else 'agree')}\n"
        if c["ops"]:
            text += f"step = {c.get('step', 0)}\n"
            if "rank" in c:
                text += f"rank = {c['rank']}\n"
            text += f"ops = {json.dumps(c['ops'])}\ncauses = {json.dumps(c['causes'])}\n"
        if "notes" in c:
            text += f"notes = {json.dumps(c['notes'])}\n"
        text += f"what = {json.dumps(c['what'])}\n"
    (ROOT / "faults").mkdir(exist_ok=True)
    (ROOT / "faults" / "cases.toml").write_text(text)


def main():
    os.environ["OMP_NUM_THREADS"] = "2"
    wanted = sys.argv[1:]
    unknown = set(wanted) - {c["name"] for c in cases.CASES}
    if unknown:
        raise SystemExit(f"no such case: {', '.join(sorted(unknown))}")
    for case in cases.CASES:
        if not wanted or case["name"] in wanted:
            make(case)
    table()


if __name__ == "__main__":
    main()
