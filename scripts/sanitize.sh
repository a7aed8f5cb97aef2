#!/usr/bin/env bash
# What finds faults that tests alone do not show: `scripts/sanitize.sh [assertions|memcheck|threads|address]...`,
# all of them if none is named. Needs valgrind for `memcheck`; no nightly toolchain. Rule: Wasmtime is
# the one that everything else uses, so only our own code is built anew.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

scripts/setup.sh
CARGO_TARGET_DIR=$(target_dir)
export CARGO_TARGET_DIR
[ $# -gt 0 ] || set -- assertions memcheck threads address

# Debug assertions and overflow checks in our own code, over all of its tests.
assertions() {
    local own=()
    local setting
    for setting in debug-assertions=true overflow-checks=true opt-level=1; do
        own+=(--config "profile.release.package.wasmtime_beam.$setting")
    done
    cargo "${own[@]}" test --locked --release -p wasmtime_beam --no-fail-fast
}

# Memcheck over the unit tests of the native code: reads of what was never written, and accesses outside
# of what is allocated or mapped. It does not know what the ioctl PAGEMAP_SCAN writes, whose test is left
# to the others; and what compiles WebAssembly takes it minutes.
memcheck() {
    command -v valgrind >/dev/null || { echo "sanitize: valgrind is missing" >&2; return 1; }
    local unit
    unit=$(cargo test --locked --release -p wasmtime_beam --lib --no-run 2>&1 \
        | grep -Eo '[^( ]*/deps/wasmtime_beam-[0-9a-f]+') || return
    valgrind --error-exitcode=9 --smc-check=all "$unit" --test-threads=1 --skip pagemap
}

# The hand-off of the runners under ThreadSanitizer, with the system's threads. The standard library
# is not instrumented: what is reported inside it, of threads and of the tests' own machinery, is not
# told from order that the sanitizer did not see. A race on what is handed over is in our files.
threads() {
    cd native/fuzz
    local log code=0
    log=$(mktemp)
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
        CARGO_TARGET_DIR="$CARGO_TARGET_DIR/thread" TSAN_OPTIONS=exitcode=0 \
        cargo test --locked --release --target "$(host)" -p wasmtime_handoff --no-default-features \
        -- --test-threads=1 >"$log" 2>&1 || code=$?
    grep -E '^test |^error' "$log" || true
    if grep 'SUMMARY: ThreadSanitizer.*native/' "$log"; then
        code=1
    fi
    rm -f "$log"
    cd "$ROOT"
    return "$code"
}

host() {
    rustc -vV | sed -n 's/^host: //p'
}

# The fuzz targets' corpora and random bytes under AddressSanitizer, in our own code.
address() {
    cd native/fuzz
    cargo build --locked --release -p wasmtime_smith
    # Other settings than any other build of these packages: cargo does not know of the wrapper.
    FUZZ_SANITIZER=address RUSTC_WRAPPER="$PWD/rustc.sh" QUICK=1 \
        ASAN_OPTIONS=detect_leaks=0:handle_segv=0:handle_sigill=0:handle_sigfpe=0:handle_sigbus=0 \
        cargo --config profile.release.package.wasmtime_beam.opt-level=2 \
        --config profile.release.package.wasmtime_fuzz.opt-level=2 \
        test --locked --release -p wasmtime_fuzz --test replay
    cd "$ROOT"
}

for what in "$@"; do
    case "$what" in
        assertions | memcheck | threads | address)
            echo "== $what"
            building "$what"
            ;;
        *) echo "usage: $0 [assertions|memcheck|threads|address]..." >&2; exit 2 ;;
    esac
done
