"""Builds the simulated device: `python build.py FOLDER`, with the interpreter whose torch it is to serve.

Brings the wheel of torch_npu into FOLDER/site, and the libraries that it wants from CANN into FOLDER/lib. What is there and was made
of the same sources stays. Ends with status 3 where the wheel cannot be had, and with 4 where there is no compiler.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
WHEEL = "torch_npu==2.7.1.post11"
NO_WHEEL, NO_COMPILER = 3, 4

#: Files that the operators are spread over, to be compiled side by side.
PARTS = 4

#: Libraries that torch_npu is linked to, or looks into, and that hold nothing here.
EMPTY = ("libacl_op_compiler", "libge_runner", "libgraph", "libacl_tdt_channel")

#: Undefined names of the wheel's libraries that are CANN's.
CANN = re.compile(r"(acl[a-z]*|rt|Hccl|Msprof)[A-Z]\w*")
#: Those that may do nothing and still say that all is well: notes for profilers and dumps, and releases of what a stub gave.
HARMLESS = re.compile(r"Msprof|aclopSetAttr|aclopDestroyAttr|aclDestroy|aclmdl(Init|Set|Finalize)Dump|rt(DevBinary|Function)Register")


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    compiler = next((found for name in (os.environ.get("CXX"), "c++", "g++", "clang++") if name and (found := shutil.which(name))), None)
    if compiler is None:
        print("ascend-sim: there is no C++ compiler", file=sys.stderr)
        raise SystemExit(NO_COMPILER)
    site = bring_wheel(folder)
    sources = sorted(path for path in HERE.rglob("*") if path.suffix in (".cpp", ".h", ".py"))
    made_of = [*(path.read_bytes() for path in sources), WHEEL.encode(), compiler.encode(), sys.prefix.encode()]
    mark = hashlib.sha256(b"".join(made_of)).hexdigest()
    stamp = folder / "stamp"
    if stamp.exists() and stamp.read_text() == mark:
        return
    stamp.unlink(missing_ok=True)
    build(compiler, folder, site)
    stamp.write_text(mark)


def bring_wheel(folder: Path) -> Path:
    """The folder with the package, which is not put beside torch: it would be loaded with every `import torch`."""
    site = folder / "site"
    mark = site / ".wheel"
    if mark.exists() and mark.read_text() == WHEEL:
        return site
    shutil.rmtree(site, ignore_errors=True)
    # It asks for another build of the same torch.
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-deps"]
    if subprocess.run([*pip, "--target", str(site), WHEEL], check=False).returncode != 0:
        shutil.rmtree(site, ignore_errors=True)
        print(f"ascend-sim: pip cannot bring {WHEEL}", file=sys.stderr)
        raise SystemExit(NO_WHEEL)
    mark.write_text(WHEEL)
    return site


def build(compiler: str, folder: Path, site: Path) -> None:
    package = site / "torch_npu"
    torch = Path(str(importlib.util.find_spec("torch").submodule_search_locations[0]))  # type: ignore[union-attr, index]
    made, lib = folder / "made", folder / "lib"
    for each in (made, lib):
        each.mkdir(parents=True, exist_ok=True)
    run([sys.executable, HERE / "operators" / "make.py", made, PARTS])
    write_stubs(package, made / "stubs.c")
    acl = ["-isystem", package / "include", "-isystem", package / "include/third_party/hccl/inc"]
    aten = ["-isystem", torch / "include"]
    objects: dict[str, list[Path]] = {"ascendcl": [made / "stubs.o"], "opapi": [], "hccl": []}
    run([compiler, "-x", "c", "-fPIC", "-O0", "-c", made / "stubs.c", "-o", made / "stubs.o"])
    shared = b"".join(path.read_bytes() for path in sorted(HERE.rglob("*.h")))
    jobs = []
    parts = [("opapi", path, aten) for path in [*sorted(made.glob("operators_*.cpp")), *sorted((HERE / "operators").glob("*.cpp"))]]
    parts += [("ascendcl", path, acl) for path in sorted((HERE / "runtime").glob("*.cpp"))]
    parts += [("hccl", path, [*acl, *aten]) for path in sorted((HERE / "collectives").glob("*.cpp"))]
    for library, source, include in parts:
        target = made / f"{library}_{source.stem}.o"
        objects[library].append(target)
        jobs.append([compiler, "-std=c++17", "-O0", "-fPIC", "-w", *include, f"-I{HERE}", "-c", source, "-o", target])
    # The long ones first.
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda job: compile_anew(job, shared), sorted(jobs, key=lambda job: "operators_" not in str(job[-3]))))
    link = [compiler, "-shared", "-fPIC", f"-L{lib}", "-Wl,-rpath,$ORIGIN"]
    aten_libraries = [f"-L{torch / 'lib'}", "-ltorch_cpu", "-lc10"]
    run([*link, "-o", lib / "libascendcl.so", *objects["ascendcl"], "-lpthread", "-Wl,-soname,libascendcl.so"])
    run([*link, "-o", lib / "libopapi.so", *objects["opapi"], "-lascendcl", *aten_libraries, "-Wl,-soname,libopapi.so"])
    run([*link, "-o", lib / "libhccl.so", *objects["hccl"], "-Wl,--no-as-needed", "-lascendcl", *aten_libraries, "-Wl,-soname,libhccl.so"])
    (made / "empty.c").write_text("")
    for name in EMPTY:
        # A function of the runtime is also looked for through these.
        run([*link, "-x", "c", made / "empty.c", "-o", lib / f"{name}.so", f"-Wl,-soname,{name}.so", "-Wl,--no-as-needed", "-lascendcl"])


def write_stubs(package: Path, target: Path) -> None:
    """Weak functions for all names that the wheel cannot be loaded without; the runtime's own win over them."""
    libraries = [*sorted((package / "lib").glob("*.so")), *sorted(package.glob("_C*.so"))]
    if not libraries:
        raise SystemExit(f"ascend-sim: {package} holds no libraries")
    wanted, there = ({name for path in libraries for name in symbols(path, kind)} for kind in ("--undefined-only", "--defined-only"))
    lines = ["#include <stdio.h>"]
    for name in sorted(filter(CANN.fullmatch, wanted - there)):
        if HARMLESS.match(name):
            lines.append(f"__attribute__((weak)) long {name}(void) {{ return 0; }}")
        else:
            # A function that is not simulated is never passed over.
            lines.append(f'__attribute__((weak)) long {name}(void) {{ fprintf(stderr, "ascend-sim: {name} is not simulated\\n"); return 207000; }}')
    target.write_text("\n".join(lines) + "\n")


def symbols(library: Path, kind: str) -> set[str]:
    listed = subprocess.run(["nm", "-D", kind, str(library)], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].split("@")[0] for line in listed.splitlines() if line.strip()}


def compile_anew(job: list[object], shared: bytes) -> None:
    """Compiles a file, unless its object was made of the same text by the same command."""
    *_, source, _, target = job
    mark, stamp = hashlib.sha256(repr(job).encode() + shared + Path(str(source)).read_bytes()).hexdigest(), Path(f"{target}.stamp")
    if not (stamp.exists() and stamp.read_text() == mark):
        run(job)
        stamp.write_text(mark)


def run(command: list[object]) -> None:
    subprocess.run([str(part) for part in command], check=True)


if __name__ == "__main__":
    main()
