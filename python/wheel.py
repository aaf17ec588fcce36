"""Makes a wheel of an extension that cargo has built: `wheel.py LIBRARY FOLDER`.

maturin would have it compiled with the features that it needs alone, which are others than those of the tests, and all of the library once more. What
the wheel says of itself is maturin's all the same. Releases are built by maturin.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "probe"


def contents(library: Path, described: Path) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of the files of a wheel, whose own folder of descriptions is `described`."""
    for path in sorted(PACKAGE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so":
            yield path.relative_to(PACKAGE.parent).as_posix(), path.read_bytes()
    yield "probe/_core.abi3.so", library.read_bytes()
    for path in sorted(described.rglob("*")):
        if path.is_file():
            yield path.relative_to(described.parent).as_posix(), path.read_bytes()


def write(library: Path, folder: Path) -> Path:
    """Writes the wheel; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        maturin = [str(Path(sysconfig.get_path("scripts")) / "maturin"), "pep517", "write-dist-info", "--metadata-directory", place]
        subprocess.run([*maturin, "--interpreter", sys.executable], cwd=ROOT, check=True, capture_output=True)
        (described,) = Path(place).iterdir()
        name, tag = described.name.removesuffix(".dist-info"), (described / "WHEEL").read_text().partition("Tag: ")[2].split()[0]
        wheel = folder / f"{name}-{tag}.whl"
        record = f"{described.name}/RECORD"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            lines = []
            for path, data in contents(library, described):
                archive.writestr(path, data)
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                lines.append(f"{path},sha256={digest},{len(data)}\n")
            archive.writestr(record, "".join([*lines, f"{record},,\n"]))
    return wheel


if __name__ == "__main__":
    print(write(Path(sys.argv[1]), Path(sys.argv[2])))
