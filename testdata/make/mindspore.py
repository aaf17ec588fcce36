"""Makes testdata/mindspore from dumps, packs and checkpoints of real runs: mindspore.py RUNS.

RUNS holds dumps of the older tool by name (`pytorch_L1_statistics`), packs (`pytorch.zip`, `mindspore.zip`) and checkpoints of MindSpore
(`net.ckpt`, `net.safetensors`). Indentation, process ids, paths of the machine and its environment are left out.
"""

import json
import pathlib
import re
import shutil
import sys
import zipfile

RUNS = pathlib.Path(sys.argv[1])
HERE = pathlib.Path(__file__).parent.parent / "mindspore"
DUMPS = [
    "mindspore_L0_tensor",
    "pytorch_L0_tensor",
    "pytorch_L0_statistics",
    "mindspore_L0_statistics",
    "mindspore_L1_statistics",
    "mindspore_fault_L1_statistics",
    "pytorch_mix_statistics",
    "mindspore_mix_statistics",
    "mindspore_mix_md5",
    "mindspore_fault_mix_statistics",
]
PACKAGES = re.compile(r"^(mindspore|torch|numpy)=", re.M)


def dump(name):
    for part in sorted((RUNS / name).glob("step*/proc*")):
        target = HERE / name / part.parent.name / "proc1"
        target.mkdir(parents=True)
        for file in part.glob("*.json"):
            content = json.loads(file.read_text())
            if file.name == "dump.json":
                content["dump_data_dir"] = None
            (target / file.name).write_text(json.dumps(content, separators=(",", ":")))
        if (part / "dump_tensor_data").is_dir():
            shutil.copytree(part / "dump_tensor_data", target / "dump_tensor_data", copy_function=shutil.copyfile)


def pack(name):
    with zipfile.ZipFile(RUNS / name) as source, zipfile.ZipFile(HERE / name, "w", zipfile.ZIP_DEFLATED) as target:
        for member in dict.fromkeys(source.namelist()):
            content = source.read(member).decode()
            if member == "pip":
                content = "".join(line + "\n" for line in content.splitlines() if PACKAGES.match(line))
            elif not member.startswith(("dataset", "weights")):
                continue
            target.writestr(zipfile.ZipInfo(member), content)


if __name__ == "__main__":
    for old in HERE.iterdir():
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    for name in DUMPS:
        dump(name)
    for name in ["pytorch.zip", "mindspore.zip"]:
        pack(name)
    for name in ["net.ckpt", "net.safetensors"]:
        shutil.copyfile(RUNS / name, HERE / name)
