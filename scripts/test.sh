#!/usr/bin/env bash
# Runs every test: of cargo, EUnit and Common Test. The last line is `N passed, N failed`, with
# `, N skipped` where cargo leaves some to be run by others; the exit code says the same. Rule:
# nothing is left out quietly; --quick only makes fewer rounds, and FULL=1 makes many.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

passed=0
failed=0
skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

if [ "${1:-}" = --quick ]; then
    export QUICK=1
elif [ $# -gt 0 ]; then
    echo "usage: $0 [--quick]" >&2
    exit 2
fi

# Runs a command, shows its output and keeps it. $code is how it ended.
run() {
    echo "== $*"
    code=0
    "$@" 2>&1 | tee "$log.raw" || code=$?
    sed $'s/\x1b\\[[0-9;]*m//g' "$log.raw" >"$log"
    rm -f "$log.raw"
}

# Sums the number before each match of a pattern in the output.
sum() {
    { grep -Eo "$1" "$log" || true; } | { grep -Eo '[0-9]+' || true; } | awk '{n += $1} END {print n + 0}'
}

# Adds what a stage counted. One that failed without counting a failure counts as one.
count() {
    local bad=$2
    if [ "$code" -ne 0 ] && [ "$bad" -eq 0 ]; then
        bad=1
    fi
    passed=$((passed + $1))
    failed=$((failed + bad))
    skipped=$((skipped + $3))
}

# Keeps rebar3 from colouring what is kept in logs.
export TERM=dumb

scripts/setup.sh
CARGO_TARGET_DIR=$(target_dir)
export CARGO_TARGET_DIR

if [ -z "${PY_REACTOR_DIR:-}" ]; then
    if PY_REACTOR_DIR=$(scripts/build-py-reactor.sh | tail -n 1); then
        export PY_REACTOR_DIR
    else
        echo "test: the CPython guest could not be built" >&2
        unset PY_REACTOR_DIR
        failed=$((failed + 1))
    fi
fi

if SPEC_TESTS_DIR=$(scripts/spec-tests.sh | tail -n 1); then
    export SPEC_TESTS_DIR
else
    # Its suite says so again, and fails.
    unset SPEC_TESTS_DIR
fi

run building cargo test --locked --release --workspace --no-fail-fast
count "$(sum 'test result: [A-Za-z]+\. [0-9]+ passed')" \
      "$(sum '[0-9]+ failed; ')" "$(sum '[0-9]+ ignored; ')"

# The fuzz targets with their corpora and seeded bytes; the runners' hand-off under a model checker.
fuzz_tests() {
    cd native/fuzz
    cargo build --locked --release -p wasmtime_smith || return
    local code=0
    cargo test --locked --release -p wasmtime_fuzz --no-fail-fast || code=$?
    cargo test --locked -p wasmtime_handoff --no-fail-fast || code=$?
    return "$code"
}
run building fuzz_tests
count "$(sum 'test result: [A-Za-z]+\. [0-9]+ passed')" \
      "$(sum '[0-9]+ failed; ')" "$(sum '[0-9]+ ignored; ')"

run rebar3 eunit
tests=$(sum '^[0-9]+ tests')
failures=$(sum '[0-9]+ failures')
count "$((tests - failures))" "$failures" "$(sum '[0-9]+ skipped')"

run rebar3 ct --readable=compact
count "$(($(sum 'All [0-9]+ tests passed') + $(sum 'Passed [0-9]+ tests')))" \
      "$(sum 'Failed [0-9]+ tests')" "$(sum 'Skipped [0-9]+')"

# The library with panics that tests set off: Wasmtime is not built anew.
run scripts/test-panics.sh
count "$(sum '^[0-9]+ passed')" "$(sum '[0-9]+ failed$')" 0

# Builds another Wasmtime, which takes as long as the first one without its compiler.
if [ -z "${QUICK:-}" ]; then
    run scripts/test-runtime-only.sh
    count "$(sum '^[0-9]+ passed')" "$(sum '[0-9]+ failed$')" 0
fi

if [ "$skipped" -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ "$failed" -eq 0 ]
