#!/usr/bin/env bash
# The tests of object stores: stores in memory, and an S3 server in this machine. Beside ./test.sh, which checks this crate and does not run it: its dependencies take
# minutes to compile.
set -euo pipefail
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-target}"
mkdir -p "$target"
target="$(cd "$target" && pwd)"
environment="$target/stores-environment"

# One command, so that the program and the tests are built of the same dependencies.
cargo test --locked -p probe-stores --all-features

if [[ ! -x "$environment/bin/python" ]]; then
    python3 -m venv "$environment"
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check -r stores/tests/requirements.txt
fi
PROBE_STORES="$target/debug/probe-stores" "$environment/bin/python" -m pytest -q -p no:cacheprovider stores/tests
