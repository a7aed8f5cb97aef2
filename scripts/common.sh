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

# Runs a command that builds, for this clone alone. All clones share one target folder, so that
# Wasmtime is built once; but cargo tells the project's own files by their times only, and would
# take another clone's library for this one's. So the clone that builds after another one makes its
# sources new.
building() {
    local target stamp
    target=$(target_dir)
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

# Where rustup puts cargo, for shells that were started before.
command -v cargo >/dev/null || PATH="$PATH:${CARGO_HOME:-${HOME:-}/.cargo}/bin"
