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
