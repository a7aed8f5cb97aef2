#!/usr/bin/env bash
# Builds the library without the compiler and runs suites over it, with modules that the full build
# compiled for the same suites. The last line is `N passed, N failed`; the exit code says the same.
# Rule: priv/ and the full build's target folder stay as they are.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

suites=(async call fuel gc global host host_process limits memory pool_events pool_life pool_server
        reference server stdin table timeout trap wasi)
app=$ROOT/_build/runtime_only/lib/wasmtime
tests=$ROOT/_build/test/lib/wasmtime/test
unset FULL
export QUICK=1 TERM=dumb WASMTIME_ARTIFACTS="$ROOT/_build/runtime_only/artifacts"
rm -rf "$ROOT/_build/runtime_only"
mkdir -p "$app/priv" "$app/test" "$WASMTIME_ARTIFACTS"

list() { # a prefix, a separator
    local all
    printf -v all "$2$1%s_SUITE" "${suites[@]}"
    echo "${all:${#2}}"
}

echo "== the full build runs the suites and leaves their modules"
rebar3 ct --readable=compact --suite="$(list test/ ,)"

echo "== the build without the compiler"
WASMTIME_RUNTIME_ONLY=1 WASMTIME_PRIV_DIR="$app/priv" scripts/build-nif.sh
ls -l "$ROOT/priv/wasmtime_nif.so" "$app/priv/wasmtime_nif.so"

cp -r "_build/test/lib/wasmtime/ebin" "$app/ebin"
cp -r include "$app/include"
cp "$tests"/*.beam "$app/test"
erlc +debug_info -pa "$app/test" -o "$app/test" scripts/runtime_only_SUITE.erl

echo "== the full build leaves the modules of runtime_only_SUITE"
erl -noshell -pa _build/test/lib/wasmtime/ebin "$app/test" \
    -eval 'runtime_only_SUITE:prepare(), halt().'

echo "== the suites over it"
mkdir -p "$app/logs"
cd "$app"
run_suites "runtime_only_SUITE, $(list "" ", ")"
