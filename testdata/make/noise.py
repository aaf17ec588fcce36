"""How far two sound runs are apart: the size of rounding noise, operator by operator, for tolerances to be set from.

usage: python noise.py WORKDIR [PAIR ...]       makes tensor dumps of larger models in WORKDIR (several GB) and prints tables
"""
import collections
import json
import math
import pathlib
import shutil
import subprocess
import sys
import zlib

import errors

HERE = pathlib.Path(__file__).resolve().parent
GPT = ["gpt", '--set', 'shape={"width":256,"heads":8,"layers":4,"seq":128,"batch":2,"vocab":1000}']
CONV = ["conv", '--set', 'shape={"width":32,"size":32,"batch":16,"stages":3}']
UNET = ["unet", '--set', 'shape={"width":32,"size":32,"batch":4}']
F64, F32, TF32 = '{"compute":"float64"}', '{"compute":"float32"}', '{"matmul":"tf32"}'
BF16, FP16 = ['dtype="bfloat16"'], ['dtype="float16"']
ADAM = ['optimizer="adamw"']
# name: (model, steps, baseline options and device, candidate options and device)
PAIRS = {
    "gpt fp32: plain, f64-rounded": (GPT, 3, [], None, [], F64),
    "conv fp32: plain, f64-rounded": (CONV, 3, [], None, [], F64),
    "unet fp32: plain, f64-rounded": (UNET, 2, [], None, [], F64),
    "gpt bf16: plain, f32-rounded": (GPT, 3, BF16, None, BF16, F32),
    "conv bf16: plain, f32-rounded": (CONV, 3, BF16, None, BF16, F32),
    "unet bf16: plain, f32-rounded": (UNET, 2, BF16, None, BF16, F32),
    "gpt fp32: plain, tf32 matmul": (GPT, 2, [], None, [], TF32),
    "conv fp32: plain, tf32 matmul": (CONV, 2, [], None, [], TF32),
    "gpt fp32 against bf16": (GPT, 2, [], None, BF16, None),
    "conv fp32 against bf16": (CONV, 2, [], None, BF16, None),
    "gpt fp32 against fp16": (GPT, 1, [], None, FP16, None),
    "gpt fp32 adamw: plain, f64-rounded": (GPT, 3, ADAM, None, ADAM, F64),
    "conv fp32 adamw: plain, f64-rounded": (CONV, 3, ADAM, None, ADAM, F64),
    "gpt fp32: 1 thread, 2 threads without mkldnn": (GPT, 2, [], None, ["threads=2", "mkldnn=false"], None),
    "conv fp32: 1 thread, 2 threads without mkldnn": (CONV, 2, [], None, ["threads=2", "mkldnn=false"], None),
    "mixer fp32: plain, f64-rounded": (["mixer", "--set", "lr=0.05"], 3, [], None, [], F64),
    "rec fp32: plain, f64-rounded": (["rec", "--set", "lr=0.05"], 3, [], None, [], F64),
    "density fp32: plain, f64-rounded": (["density", "--set", "lr=0.05"], 3, [], None, [], F64),
}


def run(work, model, steps, options, device):
    key = json.dumps([model, steps, options, device])
    folder = work / f"{zlib.crc32(key.encode()):08x}"
    if not folder.exists():
        command = [sys.executable, "train.py", *model, *options, "--dump", str(folder), "--task", "tensor", "--level", "mix", "--steps", str(steps)]
        command += ["--device", device] if device else []
        subprocess.run(command, cwd=HERE, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return folder


def phase(op):
    return "grad of parameter" if ".parameters_grad" in op else "backward" if "backward" in op else "forward"


def measure(base, cand):
    """Rows (step, phase, op, is a result, path, rel_l2, dnorm, dmean, dmax, baseline norm, elements) of every pair of float tensors."""
    mine, theirs = errors.folders(base), errors.folders(cand)
    for key, folder in sorted(mine.items()):
        for op, found in errors.pairs(folder, theirs[key]):
            for out, path, a, b in found or []:
                if not isinstance(a, dict) or not isinstance(b, dict) or "data_name" not in a or "data_name" not in b:
                    continue
                if "float" not in a["dtype"]:
                    continue
                n = math.prod(a["shape"])
                yield key[0], phase(op), op, out, path, errors.exact(a, b, folder, theirs[key]), *errors.coarse(a, b), a["Norm"], n


def show(name, rows):
    print(f"\n## {name}")
    print("  step phase               max rel_l2 (results)   p50       p99       |dnorm|/norm  |dmean|sqrt(n)/norm  dmax/max   weights/inputs max  max on siblings' scale")
    siblings = collections.defaultdict(float)
    for r in rows:
        if r[3] and isinstance(r[9], float) and math.isfinite(r[9]):
            siblings[r[0], r[2]] = max(siblings[r[0], r[2]], abs(r[9]))
    steps = sorted({r[0] for r in rows})
    for step in steps:
        for ph in ("forward", "backward", "grad of parameter"):
            sel = [r for r in rows if r[0] == step and r[1] == ph]
            res = sorted(r[5] for r in sel if r[3])
            if not res:
                continue
            ins = max([r[5] for r in sel if not r[3]], default=0)
            stat = [max((r[i] for r in sel if r[3] and math.isfinite(r[i])), default=0) for i in (6, 7, 8)]
            scaled = max((r[5] * abs(r[9]) / siblings[r[0], r[2]] for r in sel if r[3] and math.isfinite(r[5]) and siblings[r[0], r[2]]), default=0)
            pick = lambda q: res[min(len(res) - 1, int(q * len(res)))]
            print(f"  {step}    {ph:18}  {res[-1]:.2e}              {pick(0.5):.1e}   {pick(0.99):.1e}   {stat[0]:.1e}       {stat[1]:.1e}             {stat[2]:.1e}    {ins:.1e}             {scaled:.1e}")
    ops = collections.defaultdict(lambda: [0.0, 0.0, ""])
    for r in rows:
        e = ops[r[0], r[2]]
        if r[3]:
            if r[5] >= e[1]:
                e[1], e[2] = r[5], f"{r[4]} norm {r[9]:.2e} n {r[10]}"
        else:
            e[0] = max(e[0], r[5])
            if r[1] == "forward":  # a backward reads what its forward had read
                e = ops[r[0], r[2].replace(".forward", ".backward")]
                e[0] = max(e[0], r[5])
    floor = 1e-7 if "bf16" not in name and "fp16" not in name else 1e-3
    ran = {(r[0], r[2]) for r in rows}
    grown = sorted(((e[1] / max(e[0], floor), *key, *e) for key, e in ops.items() if key in ran and ".parameters_grad" not in key[1]), reverse=True)
    print(f"  largest out_err / max(in_err, {floor}); in_err of a backward includes what its forward read:")
    for ratio, step, op, i, out, text in grown[:8]:
        print(f"    {ratio:9.2f}  step {step} {op}: in {i:.1e} out {out:.1e}  {text}")
    kinds = collections.defaultdict(list)
    for ratio, step, op, i, out, _ in grown:
        parts = op.split(".")
        kind = ".".join(parts[:2]) if parts[0] != "Module" else f"Module {parts[-3]}"
        kinds[kind, "backward" if "backward" in op else "forward"].append((ratio, i, out))
    print("  by kind of operator: count, max in_err, max out_err, max ratio; own error (out where in is 0 or tiny)")
    for (kind, ph), v in sorted(kinds.items()):
        own = max((out for _, i, out in v if i <= 1e-9), default=None)
        print(f"    {kind:32} {ph:8} {len(v):4}  {max(i for _, i, _ in v):.1e}  {max(o for _, _, o in v):.1e}  {max(r for r, _, _ in v):8.2f}  {'' if own is None else f'{own:.1e}'}")
    grads = sorted(((r[5], r[2], r[4], r[9], r[10]) for r in rows if r[1] == "grad of parameter" and r[0] == 0), reverse=True)
    print("  worst parameter gradients of step 0:")
    for err, op, path, norm, n in grads[:6]:
        print(f"    {err:.1e}  {op} {path}  norm {norm:.2e} n {n}")
    worst = sorted(((r[5], r[2], r[4], r[9], r[10]) for r in rows if r[1] == "backward" and r[3] and r[0] == 0), reverse=True)
    print("  worst backward results of step 0:")
    for err, op, path, norm, n in worst[:5]:
        print(f"    {err:.1e}  {op} {path}  norm {norm:.2e} n {n}")
    sys.stdout.flush()


def main():
    work = pathlib.Path(sys.argv[1])
    work.mkdir(parents=True, exist_ok=True)
    for name, (model, steps, bo, bd, co, cd) in PAIRS.items():
        if len(sys.argv) > 2 and not any(w in name for w in sys.argv[2:]):
            continue
        base, cand = run(work, model, steps, bo, bd), run(work, model, steps, co, cd)
        show(name, list(measure(base, cand)))
        shutil.rmtree(cand)


if __name__ == "__main__":
    main()
