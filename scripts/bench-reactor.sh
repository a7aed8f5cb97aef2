#!/usr/bin/env bash
# Builds what is missing, then measures: every request in a fresh CPython, from Erlang, beside what
# Wasmtime alone gives. The report goes to stdout, progress to stderr. `--help` tells the flags.
# PY_REACTOR_DIR points to a finished guest; without it scripts/build-py-reactor.sh builds it, once.
set -euo pipefail
BENCH=reactor_bench
. "$(dirname "${BASH_SOURCE[0]}")/bench-common.sh"

prepare "$@"
PY_REACTOR_DIR=$("$ROOT/scripts/build-py-reactor.sh" | tail -n 1)
export PY_REACTOR_DIR
run_erl main "$@"
