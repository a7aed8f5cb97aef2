#!/usr/bin/env bash
# Builds the library with panics that tests set off, beside the usual one, and runs panics_SUITE over
# it. The last line is `N passed, N failed`; the exit code says the same. Rule: priv/ stays as it is,
# and Wasmtime is not built anew.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

app=$ROOT/_build/panics/lib/wasmtime
tests=$ROOT/_build/test/lib/wasmtime
export TERM=dumb RUST_BACKTRACE=0
rm -rf "$app/ebin" "$app/test" "$app/include"
mkdir -p "$app/priv" "$app/test" "$app/logs"

rebar3 as test compile
WASMTIME_INJECT_PANICS=1 WASMTIME_PRIV_DIR="$app/priv" scripts/build-nif.sh

cp -r "$tests/ebin" "$app/ebin"
cp -r include "$app/include"
export ERL_LIBS="$ROOT/_build/panics/lib"
erlc +debug_info -DINJECT_PANICS -o "$app/ebin" src/wasmtime_nif.erl
erlc +debug_info -I include -o "$app/test" test/wasmtime_test.erl scripts/panics_SUITE.erl
# The suite finds the guests from where its helpers are.
cd "$app"
run_suites panics_SUITE 2> >(grep -v -e '^$' -e "injected at" -e "^note: run with" -e "panicked at native" >&2 || true)
