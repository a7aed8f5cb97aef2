#!/usr/bin/env bash
# Builds the native library and puts it into priv/, or into the folder that WASMTIME_PRIV_DIR names;
# `clean` takes it away again. Called by rebar3. WASMTIME_RUNTIME_ONLY=1 leaves the compiler out,
# WASMTIME_INJECT_PANICS=1 lets tests make the library panic (see scripts/test-panics.sh),
# WASMTIME_PROFILE=release builds with less memory and in less time what runs a quarter slower.
# Rule: wasmtime_nif.so is replaced in one step, and only by other contents: a running VM may have it
# mapped.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

priv=${WASMTIME_PRIV_DIR:-priv}
library=$priv/wasmtime_nif.so
profile=$(profile)
features=()
if runtime_only; then
    features=(--no-default-features)
fi
if inject_panics; then
    features+=(--features inject-panics)
fi

if [ "${1:-}" = clean ]; then
    rm -f "$library"
    exit 0
fi

command -v cargo >/dev/null || {
    echo "build-nif: cargo not found; install Rust 1.95 or newer with rustup" >&2
    exit 1
}

build() {
    cargo build --locked --profile "$profile" -p wasmtime_nif ${features[@]+"${features[@]}"} || return
    local built="$CARGO_TARGET_DIR/$profile/libwasmtime_nif.so"
    [ -e "$built" ] || built="$CARGO_TARGET_DIR/$profile/libwasmtime_nif.dylib"
    mkdir -p "$priv"
    # Debug information is ten times the code; it stays with cargo's copy.
    strip --strip-debug -o "$library.new.$$" "$built" 2>/dev/null || cp "$built" "$library.new.$$"
    if cmp -s "$library.new.$$" "$library"; then
        rm -f "$library.new.$$"
    else
        mv -f "$library.new.$$" "$library"
    fi
}

building build
