#!/usr/bin/env bash
# Every check of this repository, in one command. Needs Rust (with rustfmt and clippy) and Python 3.11 or later;
# everything else comes from the package registries (Node.js, for the page of results, only where it is installed). The test runners come last, so that the last lines are their summaries.
set -euo pipefail
cd "$(dirname "$0")"

# One version for everybody; any cargo-nextest that is already there will do.
nextest_version=0.9.143
target="${CARGO_TARGET_DIR:-target}"
mkdir -p "$target"
target="$(cd "$target" && pwd)"
# One choice of packages and features for all that is compiled: with another, cargo would compile crates of the workspace again.
workspace=(--workspace --exclude probe-stores --features probe/schema --locked)
# Byte code of what tests import, whatever the environment says: hundreds of processes import torch, and take half as long with it.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$target/pycache"

# Runs a command under a title that says how long everything has taken so far.
step() {
    printf '\n== %s [at %d s]\n' "$*" "$SECONDS"
    "$@"
}

note() {
    printf '\n== note: %s\n' "$*"
}

# Parts of Rust that a minimal toolchain lacks.
components() {
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return
    rustup component add rustfmt clippy
}

# Without the part that updates itself, which brings a TLS stack.
nextest() {
    cargo nextest --version >/dev/null 2>&1 ||
        cargo install cargo-nextest --locked --version "$nextest_version" \
            --no-default-features --features default-no-update
}

# The page of results: its types, and that the built bundle is that of the sources. Whoever only builds the binary needs no Node. The bundle is made
# elsewhere: what is embedded would be new, and all that embeds it compiled again.
page_bundle() {
    if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
        note "NOT TESTED: no Node.js: web/dist is not held against its sources, and the page is not tested in a browser"
        return
    fi
    (cd web && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && npx tsc --noEmit &&
        node build.mjs "$target/page-dist" && diff -r dist "$target/page-dist") || {
        echo "web/dist is not what its sources make: run npm ci and node build.mjs in web/" >&2
        return 1
    }
}

# Debian's package, where it can be had.
browser() {
    [[ -n "${PROBE_CHROMIUM:-}" ]] || command -v chromium >/dev/null && return
    [[ $EUID -eq 0 ]] && command -v apt-get >/dev/null || return 1
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null
}

page_tests() {
    if [[ ! -d web/node_modules ]] || ! browser; then
        note "NOT TESTED: no Node.js or no Chromium: the page of results is not tested in a browser"
        return
    fi
    PROBE_BIN="$target/debug/probe" node --test --test-reporter=spec web/test/page.test.mjs
}

# A virtual environment that is made again only when the requirements change. PyTorch is by far the largest part of it, and most
# of its modules are never imported: those that are get their byte code then.
python_environment() {
    local wanted stamp=.venv/requirements.txt
    wanted="$(cat tests/oracle/requirements.txt python/tests/requirements.txt)"
    if [[ -x .venv/bin/python && -f $stamp && "$wanted" == "$(cat "$stamp")" ]]; then
        echo "as before"
        return
    fi
    rm -rf .venv
    python3 -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile \
        -r tests/oracle/requirements.txt -r python/tests/requirements.txt
    printf '%s\n' "$wanted" >"$stamp"
}

# Packages come over the network while the compiler is at work.
begin_python_environment() {
    python_environment >"$target/python_environment.log" 2>&1 &
    environment=$!
    trap 'kill "$environment" 2>/dev/null || true' EXIT
}

end_python_environment() {
    local status=0
    wait "$environment" || status=$?
    trap - EXIT
    cat "$target/python_environment.log"
    return $status
}

# The package as a user gets it, but for the optimiser: from a wheel, not from the source folder.
wheel() {
    rm -rf "$target/wheels"
    .venv/bin/maturin build --quiet --locked --profile dev --interpreter .venv/bin/python --out "$target/wheels"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$target"/wheels/*.whl
}

# A device of software on which the unmodified wheel of torch_npu runs. Without the wheel or a compiler its tests are skipped.
ascend_sim() {
    local status=0
    .venv/bin/python tests/ascend-sim/build.py "$target/ascend-sim" || status=$?
    case $status in
        0) ;;
        3 | 4) note "NOT TESTED: the simulated Ascend device could not be built; the tests of python/tests/npu are skipped" ;;
        *) return $status ;;
    esac
}

# Everything that tests need, and all of it at once: library, programs, tests, the Python extension (lib_core.so) and the agent.
build() {
    cargo build "${workspace[@]}" --lib --bins --tests
}

# The way in of the agent below Python, here and on AArch64.
runtime_agent() {
    local status=0
    tests/runtime-agent/run.sh "$target/runtime-agent"
    for needed in aarch64-linux-gnu-g++ qemu-aarch64; do
        command -v $needed >/dev/null && continue
        { apt-get install -y -q g++-aarch64-linux-gnu gcc-aarch64-linux-gnu qemu-user || true; } >/dev/null 2>&1
        break
    done
    tests/runtime-agent/run.sh "$target/runtime-agent-aarch64" aarch64 || status=$?
    case $status in
        0) ;;
        3) note "NOT TESTED: the agent on AArch64; it takes gcc-aarch64-linux-gnu, g++-aarch64-linux-gnu, qemu-user and a standard library from rustup" ;;
        *) return $status ;;
    esac
}

schemas() {
    "$target/debug/generate-schemas"
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git diff --exit-code -- schemas
    else
        echo "no git checkout: the schemas were made, but there is nothing to compare them with"
    fi
}

# They run for hours, elsewhere; here it is checked that they compile. The library that drives them is C++.
fuzz_targets() {
    if command -v c++ >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null; then
        cargo check --quiet --locked --manifest-path fuzz/Cargo.toml
    else
        note "NOT TESTED: no C++ compiler: the fuzz targets are not checked"
    fi
}

rust_tests() {
    if [[ $has_nextest == yes ]]; then
        cargo nextest run "${workspace[@]}"
    else
        cargo test "${workspace[@]}" --lib --bins --tests
    fi
}

oracle() {
    PROBE_BIN="$target/debug/probe" .venv/bin/python -m pytest -q -p no:cacheprovider tests/oracle
}

# Run from elsewhere, so that `import probe` finds the installed package and not the source folder.
python_tests() {
    local here="$PWD"
    (cd "$target" && PROBE_BIN="$target/debug/probe" ASCEND_SIM="$target/ascend-sim" "$here/.venv/bin/python" -m pytest -q \
        -p no:cacheprovider -n auto --maxprocesses 4 --dist worksteal \
        --rootdir "$here" -c "$here/pyproject.toml" --ignore-glob='*/test_distributed*.py' "$here/python/tests")
}

# Comparisons on a local cluster, one after the other: each takes both processors. Ray has an environment of its own, which sees the other:
# what imports it where it can would have its threads in the processes that other tests fork.
ray_tests() {
    local here="$PWD" python="$target/ray-environment/bin/python"
    if [[ ! -x $python ]]; then
        .venv/bin/python -m venv "$target/ray-environment"
        .venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
            >"$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tested.pth"
    fi
    "$python" -c 'import ray' 2>/dev/null ||
        "$python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile 'ray>=2.40' || {
        note "NOT TESTED: Ray could not be installed: no comparison on a cluster"
        return
    }
    (cd "$target" && "$python" -m pytest -q -p no:cacheprovider --rootdir "$here" -c "$here/pyproject.toml" \
        "$here"/python/tests/test_distributed*.py)
}

step components
step cargo fmt --all --check
begin_python_environment
step cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
RUSTDOCFLAGS="-D warnings" step cargo doc --workspace --no-deps --all-features --locked
step build
step runtime_agent
step schemas
step cargo test --doc "${workspace[@]}"
step fuzz_targets
rm -rf "$target/page-dist"
step page_bundle
step end_python_environment
step ascend_sim
has_nextest=yes
if ! step nextest; then
    has_nextest=no
    note "cargo-nextest could not be installed: cargo test runs the tests instead"
fi
step wheel
step rust_tests
step page_tests
step oracle
note "NOT TESTED: object stores on a server: stores/test.sh, whose dependencies take minutes to compile; here they are checked by clippy alone"
step ray_tests
step python_tests
