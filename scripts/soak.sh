#!/usr/bin/env bash
# Builds what is missing, then works a node hard in every way at once: --minutes N (default 10). A line
# a minute tells requests, errors by kind, memory, threads, open files, slots; the exit code is 0 when
# no strain failed, nothing was left at rest, and nothing grew after the warm-up. --seed N repeats the
# random numbers of an earlier run.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

say() { echo "soak: $*" >&2; }

"$ROOT/scripts/setup.sh" >&2
say "building the library and the tests (the first time takes minutes)"
(cd "$ROOT" && rebar3 compile) >&2
PY_REACTOR_DIR=$("$ROOT/scripts/build-py-reactor.sh" | tail -n 1)
export PY_REACTOR_DIR ERL_LIBS=$ROOT/_build/default/lib

out=$ROOT/_build/soak
mkdir -p "$out"
erlc -o "$out" "$ROOT"/test/*.erl "$ROOT"/scripts/soak/*.erl
exec erl -noshell -noinput -pa "$out" -eval "soak:main(init:get_plain_arguments())." -extra "$@"
