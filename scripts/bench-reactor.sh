#!/usr/bin/env bash
# Builds what is missing, then measures: every request in a fresh CPython, from Erlang, beside what
# Wasmtime alone gives. The report goes to stdout, progress to stderr. `--help` tells the flags.
# PY_REACTOR_DIR points to a finished guest; without it scripts/build-py-reactor.sh builds it, once.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

say() { echo "bench: $*" >&2; }

bench=$ROOT/_build/bench

run_erl() { # function of reactor_bench, flags
    local function=$1
    shift
    erl -noshell -noinput -pa "$bench" -pa "$ROOT/_build/default/lib/wasmtime/ebin" \
        -eval "reactor_bench:$function(init:get_plain_arguments())." -extra "$@"
}

build() {
    say "building the library and the floor program (the first time takes minutes)"
    command -v cargo >/dev/null || PATH="$PATH:${CARGO_HOME:-${HOME:-}/.cargo}/bin"
    CARGO_TARGET_DIR=$(target_dir)
    export CARGO_TARGET_DIR
    (cd "$ROOT" && rebar3 compile && cargo build --locked --release -p wasmtime_floor) >&2
}

"$ROOT/scripts/setup.sh" >&2
mkdir -p "$bench"
erlc -Werror -o "$bench" "$ROOT"/bench/*.erl

# A wrong flag is told before anything is built.
run_erl check "$@"
for flag; do
    [ "$flag" != --help ] || exit 0
done

build
PY_REACTOR_DIR=$("$ROOT/scripts/build-py-reactor.sh" | tail -n 1)
WASMTIME_FLOOR=$CARGO_TARGET_DIR/release/wasmtime-floor
export PY_REACTOR_DIR WASMTIME_FLOOR
run_erl main "$@"
