#!/usr/bin/env bash
# Proves capture on a GPU, without a network: installs the wheels of a folder beside the packages that are there, and runs the suite.
# usage: tests/cuda/run.sh [--wheels DIR] [options of suite.py]        DIR: dist/ by default
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
wheels="$here/../../dist"
if [[ "${1:-}" == --wheels ]]; then
    wheels="$2"
    shift 2
fi
python="${PYTHON:-python3}"
compgen -G "$wheels/*.whl" >/dev/null || {
    echo "error: $wheels holds no wheels; make one with: maturin build --release --out dist" >&2
    exit 2
}
site="$(mktemp -d)"
trap 'rm -rf "$site"' EXIT
"$python" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --target "$site" "$wheels"/*.whl
PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}" "$python" "$here/suite.py" "$@"
