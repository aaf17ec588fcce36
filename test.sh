#!/usr/bin/env bash
# Every check of this repository, in one command; with `--all` every setting of every matrix, and object stores on a server. Needs Rust (with rustfmt and
# clippy) and Python 3.11 or later; everything else comes from the package registries (Node.js, for the page of results, only where it is installed).
# The last lines are the summaries of the test runners.
set -euo pipefail
cd "$(dirname "$0")"

everything=no
case "${1:-}" in
    '') ;;
    --all) everything=yes PROBE_TEST_ALL=1 ;;
    *) echo "usage: ./test.sh [--all]" >&2; exit 2 ;;
esac
# Tests look at it in python/tests/extent.py.
[[ $everything == yes ]] && export PROBE_TEST_ALL || unset PROBE_TEST_ALL

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
# Logs of the steps, how they ended, and what could not be tested.
steps="$target/steps"
rm -rf "$steps"
mkdir -p "$steps"

# Runs a function with its output in a log of its own, which is printed whole when it ends. Several lanes of steps run beside one another; once a step
# of any has failed no other begins.
step() {
    local name="$1" began=$SECONDS status
    [[ ! -e "$steps/failed" ]] || exit 1
    # Asked for its status in a condition, the function would go on behind a command that failed.
    set +e
    (
        set -e
        trap 'times >"$steps/$name.time"' EXIT
        "$name"
    ) >"$steps/$name.log" 2>&1 </dev/null
    status=$?
    set -e
    [[ $status == 0 ]] || touch "$steps/failed"
    until mkdir "$steps/printing" 2>/dev/null; do sleep 0.1; done
    printf '\n== %s: %d s, begun at %d s%s\n' "$name" $((SECONDS - began)) "$began" "$([[ $status == 0 ]] || echo ", FAILED with $status")"
    cat "$steps/$name.log"
    rmdir "$steps/printing"
    echo "$((SECONDS - began)) $began $(tr ms '  ' <"$steps/$name.time" | awk 'NR == 2 { printf "%d", 60 * ($1 + $3) + $2 + $4 }')" >"$steps/$name.$([[ $status == 0 ]] && echo done || echo failed)"
    [[ $status == 0 ]] || exit 1
}

# Waits for steps of other lanes.
after() {
    local name
    for name; do
        until [[ -e "$steps/$name.done" ]]; do
            [[ ! -e "$steps/failed" ]] || exit 1
            sleep 0.2
        done
    done
}

note() {
    printf '\n== note: %s\n' "$*"
}

# Says that a step, or the named part of it, could not be done, and why.
untested() {
    note "NOT TESTED: $1: $2"
    echo "$1" >>"$steps/untested"
}

# Parts of Rust that a minimal toolchain lacks.
components() {
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return
    rustup component add rustfmt clippy
}

format() {
    cargo fmt --all --check
}

# Without the part that updates itself, which brings a TLS stack.
nextest() {
    cargo nextest --version >/dev/null 2>&1 ||
        cargo install cargo-nextest --locked --version "$nextest_version" \
            --no-default-features --features default-no-update ||
        untested nextest "cargo-nextest could not be installed: cargo test runs the tests instead"
}

# Everything that tests need, and all of it at once: library, programs, tests, the Python extension (lib_core.so) and the agent.
build() {
    cargo build "${workspace[@]}" --lib --bins --tests
}

clippy() {
    cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
}

documentation() {
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --all-features --locked
}

doc_tests() {
    cargo test --doc "${workspace[@]}"
}

schemas() {
    "$target/debug/generate-schemas"
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git diff --exit-code -- schemas web/src/report.ts
    else
        echo "no git checkout: the schemas were made, but there is nothing to compare them with"
    fi
}

# They run for hours, elsewhere; here it is checked that they compile. The library that drives them is C++.
fuzz_targets() {
    if command -v c++ >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null; then
        cargo check --quiet --locked --manifest-path fuzz/Cargo.toml
    else
        untested fuzz_targets "no C++ compiler"
    fi
}

rust_tests() {
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run "${workspace[@]}"
    else
        cargo test "${workspace[@]}" --lib --bins --tests
    fi
}

# The way in of the agent below Python.
runtime_agent() {
    tests/runtime-agent/run.sh "$target/runtime-agent"
}

runtime_agent_aarch64() {
    local status=0
    for needed in aarch64-linux-gnu-g++ qemu-aarch64; do
        command -v $needed >/dev/null && continue
        { apt-get install -y -q g++-aarch64-linux-gnu gcc-aarch64-linux-gnu qemu-user || true; } >/dev/null 2>&1
        break
    done
    tests/runtime-agent/run.sh "$target/runtime-agent-aarch64" aarch64 || status=$?
    case $status in
        0) ;;
        3) untested runtime_agent_aarch64 "it takes gcc-aarch64-linux-gnu, g++-aarch64-linux-gnu, qemu-user and a standard library from rustup" ;;
        *) return $status ;;
    esac
}

# The page of results: its types, and that the built bundle is that of the sources. Whoever only builds the binary needs no Node. The bundle is made
# elsewhere: what is embedded would be new, and all that embeds it compiled again.
page_bundle() {
    if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
        untested page_bundle "no Node.js: web/dist is not held against its sources"
        return
    fi
    rm -rf "$target/page-dist"
    (cd web && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && npx tsc --noEmit &&
        node build.mjs "$target/page-dist" && diff -r dist "$target/page-dist") || {
        echo "web/dist is not what its sources make: run npm ci and node build.mjs in web/" >&2
        return 1
    }
}

# Debian's package, where it can be had.
browser() {
    [[ -n "${PROBE_CHROMIUM:-}" ]] || command -v chromium >/dev/null && return
    { [[ $EUID -eq 0 ]] && command -v apt-get >/dev/null && apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; } ||
        untested browser "no Chromium"
}

page_tests() {
    if [[ ! -d web/node_modules ]] || ! { [[ -n "${PROBE_CHROMIUM:-}" ]] || command -v chromium >/dev/null; }; then
        untested page_tests "no Node.js or no Chromium: the page of results is not tested in a browser"
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

# A device of software on which the unmodified wheel of torch_npu runs. Without the wheel or a compiler its tests are skipped.
ascend_sim() {
    local status=0
    .venv/bin/python tests/ascend-sim/build.py "$target/ascend-sim" || status=$?
    case $status in
        0) ;;
        3 | 4) untested ascend_sim "the simulated Ascend device could not be built; the tests of python/tests/npu are skipped" ;;
        *) return $status ;;
    esac
}

# Ray has an environment of its own, which sees the other: what imports it where it can would have its threads in the processes that other tests fork.
ray_environment() {
    local python="$target/ray-environment/bin/python"
    if [[ ! -x $python ]]; then
        .venv/bin/python -m venv "$target/ray-environment"
        .venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
            >"$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tested.pth"
    fi
    "$python" -c 'import ray' 2>/dev/null ||
        "$python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile 'ray>=2.40' ||
        untested ray_environment "Ray could not be installed: no comparison on a cluster"
}

# An environment for packages that have wheels up to Python 3.11.
new_environment() {
    local base
    for base in python3.11 python3.10 python3; do
        command -v "$base" >/dev/null && "$base" -m venv "$1" 2>/dev/null && break
    done
}

# Versions of torch beside that of the tests, each in an environment of its own: the oldest and the newest that can be recorded, or with --all each one
# of the table in docs/capture.md. The oldest has wheels up to Python 3.11.
versions=(2.1.0 newest)
[[ $everything == no ]] || versions=(2.1.0 2.2.2 2.4.1 2.5.1 newest)

torch_environments() {
    local version python wanted
    for version in "${versions[@]}"; do
        # From 26 on pyarrow needs NumPy 2.
        wanted="torch==$version numpy<2 pyarrow<26"
        [[ $version != newest ]] || wanted="torch numpy pyarrow"
        python="$target/torch-$version/bin/python"
        # A version takes 5 GB.
        if [[ ! -x $python && $(df --output=avail -k "$target" | tail -n 1) -lt 8388608 ]]; then
            untested torch_environments "less than 8 GB of disk are left for torch $version"
            continue
        fi
        [[ -x $python ]] || new_environment "$target/torch-$version" || true
        # In words: "numpy<2" must not become a redirection.
        read -ra wanted <<<"$wanted"
        "$python" -c 'import torch, pyarrow' 2>/dev/null ||
            "$python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile \
                "${wanted[@]}" pytest pytest-xdist safetensors openpyxl ||
            untested torch_environments "torch $version could not be installed"
    done
}

# MindSpore has NumPy 1, and an environment of its own of 3 GB.
mindspore_environment() {
    local python="$target/mindspore/bin/python"
    if [[ ! -x $python && $(df --output=avail -k "$target" | tail -n 1) -lt 6291456 ]]; then
        untested mindspore_environment "less than 6 GB of disk are left for MindSpore"
        return
    fi
    [[ -x $python ]] || new_environment "$target/mindspore" || true
    "$python" -c 'import mindspore' 2>/dev/null ||
        "$python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile 'mindspore==2.10.0' 'numpy<2' pytest ||
        untested mindspore_environment "MindSpore could not be installed"
}

# The package as a user gets it, but for the optimiser: from a wheel, not from the source folder. Its extension is that of the build.
package() {
    rm -rf "$target/wheels"
    .venv/bin/python python/wheel.py "$target/debug/lib_core.so" "$target/wheels"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$target"/wheels/*.whl
}

# Runs pytest from elsewhere, so that `import probe` finds the installed package and not the source folder.
tested() {
    local name="$1" python="$2" here="$PWD"
    (cd "$target" && PROBE_BIN="$target/debug/probe" ASCEND_SIM="$target/ascend-sim" "$python" -m pytest -q -p no:cacheprovider \
        --rootdir "$here" -c "$here/pyproject.toml" --junitxml "$steps/$name.xml" "${@:3}")
}

# With the other versions of torch: trainings stay bit-identical at every level and task, and the tutorial names the op at fault.
torch_versions() {
    local version python
    for version in "${versions[@]}"; do
        python="$target/torch-$version/bin/python"
        if ! "$python" -c 'import torch, pyarrow' 2>/dev/null; then
            untested torch_versions "there is no torch $version"
            continue
        fi
        "$python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$target"/wheels/*.whl
        "$python" -c 'import torch; print("torch", torch.__version__)'
        tested "torch-$version" "$python" -n 2 -k 'bit_identical or tutorial' \
            "$PWD/python/tests/recorder/test_harmless.py" "$PWD/python/tests/end_to_end/test_tutorial.py"
    done
}

# Trainings of MindSpore stay bit-identical at every level and task, packs have their parts, and testdata/mindspore_captured is recorded again.
mindspore_tests() {
    local python="$target/mindspore/bin/python"
    if ! "$python" -c 'import mindspore' 2>/dev/null; then
        untested mindspore_tests "there is no MindSpore"
        return
    fi
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$target"/wheels/*.whl
    tested mindspore_tests "$python" "$PWD/python/tests/on_mindspore"
}

oracle() {
    tested oracle "$PWD/.venv/bin/python" "$PWD/tests/oracle"
}

# Two suites whose tests wait for one another, beside those that do not.
long_tests() {
    tested long_tests "$PWD/.venv/bin/python" "$PWD/python/tests/test_history.py" "$PWD/python/tests/end_to_end/test_public_models.py"
}

# Comparisons on a local cluster, one after the other: each takes both processors.
ray_tests() {
    if ! "$target/ray-environment/bin/python" -c 'import ray' 2>/dev/null; then
        untested ray_tests "there is no Ray"
        return
    fi
    tested ray_tests "$target/ray-environment/bin/python" "$PWD"/python/tests/test_distributed*.py
}

python_tests() {
    tested python_tests "$PWD/.venv/bin/python" -n auto --maxprocesses 4 --dist worksteal --ignore-glob='*/test_distributed*.py' \
        --ignore="$PWD/python/tests/test_history.py" --ignore="$PWD/python/tests/end_to_end/test_public_models.py" "$PWD/python/tests"
}

# The suite for a GPU, in a reduced form on the host.
cuda_suite() {
    local here="$PWD"
    (cd "$target" && "$here/.venv/bin/python" "$here/tests/cuda/suite.py" --device cpu --reduced --limit 600 --output "$target/cuda-report")
}

object_stores() {
    stores/test.sh
}

# How long everything took, and what could not be tested; fails where that is something that this machine must have. At the end the closing lines of
# the test runners, once more.
summary() {
    local name missing=()
    printf '\n== seconds by step, when it began, and of processors\n'
    for name in "$steps"/*.done; do
        printf '%6d %6d %6d  %s\n' $(<"$name") "$(basename "$name" .done)"
    done | sort -k2n
    printf '%6d %6s %6d  everything\n' "$SECONDS" '' "$(cat "$steps"/*.done | awk '{ sum += $3 } END { print sum }')"
    printf '\n== the slowest tests\n'
    .venv/bin/python tests/slowest.py 20 "$steps"
    for name in ${PROBE_TEST_NEEDED:-}; do
        [[ -e "$steps/$name.done" ]] && ! grep -qsx "$name" "$steps/untested" || missing+=("$name")
    done
    [[ -e "$steps/untested" ]] && printf '\n== NOT TESTED: %s\n' "$(sort "$steps/untested" | tr '\n' ' ')"
    [[ $everything == yes ]] || note "not tested without --all: object stores on a server, and the whole of each matrix"
    printf '\n'
    grep -hE '^ +Summary \[|^test result: ' "$steps/rust_tests.log" || true
    for name in oracle cuda_suite ray_tests long_tests python_tests torch_versions; do
        tail -n 1 "$steps/$name.log"
    done
    [[ ${#missing[@]} == 0 ]] || {
        echo "FAILED: not tested here, where it must be: ${missing[*]}" >&2
        return 1
    }
}

# Cargo locks its folder: one step after the other.
compiled() {
    step components
    step format
    step build
    step schemas
    after nextest
    step rust_tests
    step clippy
    step documentation
    step doc_tests
    step fuzz_targets
    [[ $everything == no ]] || step object_stores
}

# Downloads, while the compiler is at work.
fetched() {
    step python_environment
    step ascend_sim
    step ray_environment
    step torch_environments
    [[ $everything == no ]] || step mindspore_environment
}

installed() {
    step nextest
    step page_bundle
    step browser
    step runtime_agent
    step runtime_agent_aarch64
}

# Those that mostly wait for one process, one after the other; the long ones first.
programs() {
    after build python_environment
    step package
    step long_tests
    step oracle
    step cuda_suite
    after ray_environment
    step ray_tests
    after torch_environments
    step torch_versions
    if [[ $everything == yes ]]; then
        after mindspore_environment
        step mindspore_tests
    fi
    after browser page_bundle
    step page_tests
}

# The longest step fills the processors that the others leave, once the Rust tests no longer take them all.
longest() {
    after package ascend_sim rust_tests
    step python_tests
}

lanes=() failed=no
# Each in a group of its own, with interrupts as programs expect them, and ended with this script.
set -m
for lane in compiled fetched installed programs longest; do
    "$lane" &
    lanes+=($!)
done
set +m
trap 'touch "$steps/failed"; kill -- "${lanes[@]/#/-}" 2>/dev/null || true; exit 130' INT TERM
for lane in "${lanes[@]}"; do
    wait "$lane" || failed=yes
done
if [[ $failed == yes ]]; then
    printf '\nFAILED: %s\n' "$(basename -a -s .failed "$steps"/*.failed | tr '\n' ' ')" >&2
    exit 1
fi
summary
