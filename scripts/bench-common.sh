# Sourced by the benchmarks' scripts, which set BENCH to the module that they run: setting up,
# compiling, and running a function of that module with the flags.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

bench=$ROOT/_build/bench

say() { echo "bench: $*" >&2; }

run_erl() { # function, flags
    local function=$1
    shift
    erl -noshell -noinput -pa "$bench" -pa "$ROOT/_build/default/lib/wasmtime/ebin" \
        -eval "$BENCH:$function(init:get_plain_arguments())." -extra "$@"
}

# A wrong flag is told before anything is built, and help needs nothing built.
prepare() { # flags
    "$ROOT/scripts/setup.sh" >&2
    mkdir -p "$bench"
    erlc -Werror -pa "$bench" -o "$bench" "$ROOT"/bench/bench_ops.erl "$ROOT"/bench/*.erl
    run_erl check "$@"
    local flag
    for flag; do
        [ "$flag" != --help ] || exit 0
    done
    build
}

build() {
    say "building the library and the floor program (the first time takes minutes)"
    local profile
    profile=$(profile)
    CARGO_TARGET_DIR=$(target_dir)
    export CARGO_TARGET_DIR
    (cd "$ROOT" && rebar3 compile && building cargo build --locked --profile "$profile" -p wasmtime_floor) >&2
    WASMTIME_FLOOR=$CARGO_TARGET_DIR/$profile/wasmtime-floor
    export WASMTIME_FLOOR
}
