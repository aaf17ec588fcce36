#!/usr/bin/env bash
# The way in of the agent, on this machine and on AArch64 under qemu: arguments of every kind, exceptions, threads, forks, other stacks.
# `run.sh FOLDER [aarch64]`. Ends with status 3 where something that AArch64 needs is not there.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="$(cd "$here/../.." && pwd)"
folder="$(mkdir -p "$1" && cd "$1" && pwd)"
compiler="${CXX:-c++}" run=() target=() built="$folder/cargo/debug"
if [[ ${2:-} == aarch64 ]]; then
    triple=aarch64-unknown-linux-gnu
    compiler=aarch64-linux-gnu-g++
    for needed in "$compiler" qemu-aarch64; do
        command -v "$needed" >/dev/null || { echo "runtime-agent: there is no $needed" >&2; exit 3; }
    done
    rustup target add "$triple" >/dev/null 2>&1 || { echo "runtime-agent: rustup has no standard library for $triple" >&2; exit 3; }
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    target=(--target "$triple")
    built="$folder/cargo/$triple/debug"
    run=(qemu-aarch64 -L /usr/aarch64-linux-gnu -E "LD_PRELOAD=$built/libprobe_agent.so")
else
    run=(env "LD_PRELOAD=$built/libprobe_agent.so")
fi
CARGO_TARGET_DIR="$folder/cargo" cargo build --quiet --locked --manifest-path "$root/Cargo.toml" -p probe-agent --no-default-features "${target[@]}"
"$compiler" -std=c++17 -O1 -fPIC -shared -o "$folder/libopapi.so" "$here/cann.cpp"
"$compiler" -std=c++17 -O1 -o "$folder/program" "$here/program.cpp" -ldl -lpthread
"${run[@]}" "$folder/program"
