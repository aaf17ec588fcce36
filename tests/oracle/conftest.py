"""Runs the tool that PROBE_BIN names, target/debug/probe by default."""

import os
import pathlib
import subprocess

import pyarrow.parquet as parquet
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROBE = ROOT / os.environ.get("PROBE_BIN", "target/debug/probe")


@pytest.fixture(scope="session")
def probe():
    """Runs a command line; returns exit code, standard output and standard error."""
    if not PROBE.exists():
        pytest.exit(f"{PROBE} is missing: run `cargo build` first", returncode=2)

    def run(*arguments):
        done = subprocess.run([PROBE, *map(str, arguments)], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture(scope="session")
def compare(probe):
    """Compares two paths; returns exit code and the rows of result.parquet by op and slot."""

    def run(baseline, candidate, out, formats="parquet,json"):
        code, _, errors = probe("compare", "-q", "-b", baseline, "-c", candidate, "-o", out, "--format", formats)
        assert code in (0, 1), errors
        rows = parquet.read_table(out / "result.parquet").to_pylist()
        return code, {(row["op"], row["slot"]): row for row in rows}

    return run
