#!/usr/bin/env bash
# Builds what is missing, then measures single operations: instantiate, call, host call and others,
# for both runners and beside plain Rust. The report goes to stdout, progress to stderr. `--help`
# tells the flags. No guest is needed.
set -euo pipefail
BENCH=ops_bench
. "$(dirname "${BASH_SOURCE[0]}")/bench-common.sh"

prepare "$@"
run_erl main "$@"
