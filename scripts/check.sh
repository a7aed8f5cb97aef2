#!/usr/bin/env bash
# Everything that finds faults without running the code: format, lints, cross references, types,
# documentation. Silent about what is fine; the first fault ends it.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

scripts/setup.sh
CARGO_TARGET_DIR=$(target_dir)
export CARGO_TARGET_DIR

step() {
    echo "== $*"
    "$@"
}

step cargo fmt --all --check
step cargo fmt --manifest-path native/spec/Cargo.toml --check
step building cargo clippy --locked --release --workspace --all-targets -- -D warnings
CARGO_TARGET_DIR="$CARGO_TARGET_DIR/spec" step cargo clippy --locked --release \
    --manifest-path native/spec/Cargo.toml --all-targets -- -D warnings
# One by one: together their features would build another Wasmtime.
fuzz_clippy() {
    cd native/fuzz
    cargo clippy --locked --release -p wasmtime_fuzz --features libfuzzer --all-targets -- -D warnings || return
    cargo clippy --locked --release -p wasmtime_smith -- -D warnings || return
    cargo clippy --locked -p wasmtime_handoff --all-targets -- -D warnings || return
    cargo clippy --locked -p wasmtime_handoff --no-default-features --all-targets -- -D warnings || return
    cd "$ROOT"
}
step cargo fmt --manifest-path native/fuzz/Cargo.toml --all --check
step building fuzz_clippy
# The build without a compiler: its library and what it shares with the other.
export WASMTIME_RUNTIME_ONLY=1
step building cargo clippy --locked --release -p wasmtime_nif -p wasmtime_beam --lib \
    --no-default-features -- -D warnings
unset WASMTIME_RUNTIME_ONLY
# The build whose panics tests set off.
step building cargo clippy --locked --release -p wasmtime_nif -p wasmtime_beam --lib \
    --features inject-panics -- -D warnings
step rebar3 xref
step rebar3 dialyzer
step rebar3 edoc
