#!/bin/sh
# Called by cargo in rustc's place (RUSTC_WRAPPER): the code under test counts its edges and tells
# what it compares; with FUZZ_SANITIZER it is watched by that sanitizer instead. Rule: our own code
# only; Wasmtime is the one that everything else uses, and has fuzzers of its own.
case " $* " in
    *" --crate-name wasmtime_beam "* | *" --crate-name wasmtime_fuzz "*) own=1 ;;
    *" --crate-name replay "*) own=${FUZZ_SANITIZER:+1} ;;
    *) own= ;;
esac
if [ -z "$own" ]; then
    exec "$@"
elif [ -n "$FUZZ_SANITIZER" ]; then
    RUSTC_BOOTSTRAP=1 exec "$@" "-Zsanitizer=$FUZZ_SANITIZER" -Cunsafe-allow-abi-mismatch=sanitizer
fi
exec "$@" -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
