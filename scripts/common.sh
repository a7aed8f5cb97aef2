# Sourced by the other scripts: where things are. Rule: what is built stays outside the clone when
# it can, so that a fresh clone does not build Wasmtime again.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Prints where cargo builds: CARGO_TARGET_DIR, else a cache of the user, else the clone.
target_dir() {
    if [ -n "${CARGO_TARGET_DIR:-}" ]; then
        echo "$CARGO_TARGET_DIR"
        return
    fi
    local cache="${WASMTIME_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/wasmtime-erlang}"
    if mkdir -p "$cache/target" 2>/dev/null && [ -w "$cache/target" ]; then
        echo "$cache/target"
    else
        echo "$ROOT/target"
    fi
}

# Whether a variable of that name is 1.
switched_on() {
    case "${!1:-0}" in
        0) return 1 ;;
        1) return 0 ;;
        *) echo "$1 must be 0 or 1" >&2; exit 2 ;;
    esac
}

# Whether the compiler is left out of the library.
runtime_only() { switched_on WASMTIME_RUNTIME_ONLY; }

# Whether the library panics on demand, for tests.
inject_panics() { switched_on WASMTIME_INJECT_PANICS; }

# Prints the profile of cargo that the library is built with: the fastest code, which takes 3.5 GB of
# memory to build, unless WASMTIME_PROFILE is `release`. Tests alone ask for panics.
profile() {
    local profile=${WASMTIME_PROFILE:-dist}
    case "$profile" in
        dist | release) ;;
        *) echo "WASMTIME_PROFILE must be dist or release" >&2; exit 2 ;;
    esac
    if inject_panics; then profile=release; fi
    echo "$profile"
}

# Prints where cargo builds the library. Without the compiler Wasmtime is another one: it has a
# folder of its own, so that neither build makes the other start again.
build_dir() {
    local target
    target=$(target_dir)
    if runtime_only; then
        target+=/runtime-only
    fi
    echo "$target"
}

# Runs a command that builds, for this clone alone. All clones share one target folder, so that
# Wasmtime is built once; but cargo tells the project's own files by their times only, and would
# take another clone's library for this one's. So the clone that builds after another one makes its
# sources new.
building() {
    local target stamp
    target=$(build_dir)
    stamp="$target/clone"
    mkdir -p "$target"
    exec 9>"$target/clone.lock"
    flock 9
    if [ "$(cat "$stamp" 2>/dev/null)" != "$ROOT" ]; then
        find "$ROOT/native" -name '*.rs' -exec touch {} +
        echo "$ROOT" >"$stamp"
    fi
    local code=0
    CARGO_TARGET_DIR="$target" "$@" 9>&- || code=$?
    exec 9>&-
    return "$code"
}

# Runs compiled suites, named with commas between, of an application that stands apart from rebar3's:
# called where its ebin, test and logs are. Prints `N passed, N failed`; the exit code says the same.
run_suites() { # suites
    erl -noshell -pa "$PWD/ebin" "$PWD/test" -eval "
        Opts = [{dir, \"test\"}, {suite, [$1]}, {logdir, \"logs\"}, {auto_compile, false},
                {create_priv_dir, auto_per_tc}, {ct_hooks, []}],
        case ct:run_test(Opts) of
            {Passed, Failed, {User, Auto}} ->
                io:format(\"~w passed, ~w failed~n\", [Passed, Failed + User + Auto]),
                halt(min(1, Failed + User + Auto));
            Error ->
                io:format(\"~p~n0 passed, 1 failed~n\", [Error]),
                halt(1)
        end."
}

# Where rustup puts cargo, for shells that were started before.
command -v cargo >/dev/null || PATH="$PATH:${CARGO_HOME:-${HOME:-}/.cargo}/bin"
