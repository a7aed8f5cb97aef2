#!/usr/bin/env bash
# Runs fuzz targets under libFuzzer: `scripts/fuzz.sh [--seconds N] [--minimize] [target...]`, each for N
# seconds (60 if not said), all of them if none is named. Needs a C++ compiler; the stable toolchain
# will do. What is found lies in fuzz/TARGET under cargo's target folder, a crash in fuzz/artifacts.
# Rule: Wasmtime is the one that everything else uses; only our own code is built once more, with
# counters, assertions and overflow checks.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

all=(artifact preinit extraction value sequence differential)
seconds=60
minimize=
targets=()
while [ $# -gt 0 ]; do
    case "$1" in
        --seconds) seconds=${2:?--seconds wants a number}; shift ;;
        --minimize) minimize=1 ;;
        -*) echo "usage: $0 [--seconds N] [--minimize] [target...]" >&2; exit 2 ;;
        *)
            [[ " ${all[*]} " = *" $1 "* ]] || { echo "fuzz: no target $1, only ${all[*]}" >&2; exit 2; }
            targets+=("$1")
            ;;
    esac
    shift
done
[ ${#targets[@]} -gt 0 ] || targets=("${all[@]}")
[[ "$seconds" =~ ^[0-9]+$ ]] || { echo "fuzz: --seconds wants a number, not $seconds" >&2; exit 2; }

command -v c++ >/dev/null || { echo "fuzz: libFuzzer needs a C++ compiler (Debian: g++)" >&2; exit 1; }
scripts/setup.sh
CARGO_TARGET_DIR=$(target_dir)
export CARGO_TARGET_DIR
work=$CARGO_TARGET_DIR/fuzz

# Our own packages as they are fuzzed: another profile of them alone, so that no other build is touched.
own=()
for package in wasmtime_beam wasmtime_fuzz; do
    for setting in opt-level=1 debug-assertions=true overflow-checks=true; do
        own+=(--config "profile.release.package.$package.$setting")
    done
done

build() {
    cd native/fuzz
    cargo build --locked --release -p wasmtime_smith -p wasmtime_fuzz_engine || return
    local libraries=("$CARGO_TARGET_DIR"/release/build/libfuzzer-sys-*/out/libfuzzer.a)
    LIBFUZZER=$(ls -t "${libraries[@]}" | head -n 1) RUSTC_WRAPPER="$PWD/rustc.sh" \
        cargo "${own[@]}" build --locked --release -p wasmtime_fuzz --features libfuzzer --bin fuzz \
        || return
    cd "$ROOT"
    mkdir -p "$work"
    # Another clone's build would take its place.
    cp "$CARGO_TARGET_DIR/release/fuzz" "$work/fuzz.$$"
    cp "$CARGO_TARGET_DIR/release/libwasmtime_smith.so" "$work/"
    mv -f "$work/fuzz.$$" "$work/fuzz"
}

# Takes what adds coverage to the corpus in the clone: small files first, and none over 2000 bytes.
keep() {
    local target=$1 merged=$work/merged/$1
    rm -rf "$merged"
    mkdir -p "$merged"
    FUZZ_TARGET=$target "$work/fuzz" -merge=1 -max_len=2000 "$merged" "native/fuzz/corpus/$target" "$work/$target"
    cp -n "$merged"/* "native/fuzz/corpus/$target/"
}

building build
mkdir -p "$work/artifacts"
failed=0
for target in "${targets[@]}"; do
    echo "== $target, $seconds seconds"
    mkdir -p "$work/$target"
    # Guests reserve more address space than libFuzzer would allow, and map much of it lazily.
    FUZZ_TARGET=$target "$work/fuzz" -max_total_time="$seconds" -max_len=4096 -timeout=60 \
        -rss_limit_mb=6000 -print_final_stats=1 -artifact_prefix="$work/artifacts/$target-" \
        "$work/$target" "native/fuzz/corpus/$target" || failed=$((failed + 1))
    [ -z "$minimize" ] || keep "$target"
done
[ "$failed" -eq 0 ] || { echo "fuzz: $failed targets failed; see $work/artifacts" >&2; exit 1; }
