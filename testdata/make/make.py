"""Makes the corpus: python make.py [case ...]     (all cases without an argument; `main` is the pair gpu_dump, npu_dump)

Needs torch and mindstudio-probe (see requirements.txt). Every run is a process of its own, with fixed seeds. Paths of the
machine that ran it and process ids are replaced, so that a second making gives the same files.
"""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import zlib

import cases

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
SHAPE = {"gpt": {"width": 16, "vocab": 31}}


def options(case, side):
    extra = dict(case.get("both", {}))
    extra.update(case.get(side, {}))
    if case["model"] in SHAPE:
        extra["shape"] = SHAPE[case["model"]] | extra.get("shape", {})
    return extra


def run(case, side, folder):
    """One training run of a case, into `folder`."""
    command = [sys.executable, "train.py", case["model"], "--dump", str(folder), "--task", case["task"], "--level", case["level"]]
    command += ["--steps", str(case.get("steps", 1))]
    command += ["--set"] + [f"{k}={json.dumps(v)}" for k, v in options(case, side).items()]
    device = case.get(f"{side}_device")
    if device:
        command += ["--device", json.dumps(device)]
    env = dict(os.environ, OMP_NUM_THREADS="2", MSPROBE_LOG_LEVEL="3")
    world = case.get("world", 1)
    if world > 1:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            env.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(s.getsockname()[1]), WORLD_SIZE=str(world))
    jobs = []
    for rank in range(world):
        jobs.append(subprocess.Popen(command, cwd=HERE, env=dict(env, RANK=str(rank)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    for job in jobs:
        text = job.communicate()[0]
        if job.returncode:
            raise SystemExit(f"{case['name']} {side}: {text}")
    return [line for line in text.splitlines() if line.startswith("step ")]


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
            text = re.sub(r'"dump_data_dir": "[^"]*"', f'"dump_data_dir": "/home/user/train/{name}/{where.parent.name}/{where.name}/dump_tensor_data"', text)
            for a, b in swap:
                text = text.replace(a, b)
            for line in re.findall(r"File ([^,]*), line", text):
                assert line.startswith(("/home/user/train/", "/opt/venv/", "/usr/lib/")), line
            for alien in (str(folder), str(ROOT), sys.prefix, sys.base_prefix if sys.base_prefix != "/usr" else "\0"):
                assert alien not in text, (file, alien)
            file.write_text(text)


def old_shape(folder):
    """Rewrites a dump's JSON to what version 1.3.0 wrote: see rewrite() of old.py."""
    import old

    for where in folder.glob("step*/*"):
        old.rewrite(where)


def make(case):
    name = case["name"]
    for side in ("baseline", "candidate"):
        target = ROOT / {"baseline": "gpu_dump", "candidate": "npu_dump"}[side] if name == "main" else ROOT / "faults" / name / side
        with tempfile.TemporaryDirectory() as tmp:
            folder = pathlib.Path(tmp) / "dump"
            lines = run(case, side, folder)
            label = target.name if name == "main" else f"dump_{side}"
            scrub(folder, label, 10000 + zlib.crc32(f"{name} {side}".encode()) % 50000)
            if case.get(f"{side}_old"):
                old_shape(folder)
            shutil.rmtree(target, ignore_errors=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(folder, target)
        print(f"{name} {side}: {'; '.join(lines)}", flush=True)


def table():
    """faults/cases.toml: what every case holds and what the right answer is."""
    text = (
        "# Written by testdata/make/make.py. `ops`: any of these names is right as the first divergence. `causes`: likewise.\n"
        "# step and rank: where it is; a run without ranks has none. `noise`: the candidate also rounds otherwise than the baseline.\n"
    )
    for c in cases.CASES:
        if c["name"] == "main":
            continue
        text += f"\n[[case]]\nname = {json.dumps(c['name'])}\nmodel = {json.dumps(c['model'])}\n"
        text += f"task = {json.dumps(c['task'])}\nlevel = {json.dumps(c['level'])}\nsteps = {c.get('steps', 1)}\n"
        text += f"noise = {json.dumps('compute' in c.get('candidate_device', {}) or c.get('noise', False))}\n"
        text += f"verdict = {json.dumps('diverged' if c['ops'] else 'agree')}\n"
        if c["ops"]:
            text += f"step = {c.get('step', 0)}\n"
            if "rank" in c:
                text += f"rank = {c['rank']}\n"
            text += f"ops = {json.dumps(c['ops'])}\ncauses = {json.dumps(c['causes'])}\n"
        text += f"what = {json.dumps(c['what'])}\n"
    (ROOT / "faults").mkdir(exist_ok=True)
    (ROOT / "faults" / "cases.toml").write_text(text)


def main():
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
