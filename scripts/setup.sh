#!/usr/bin/env bash
# Installs what is missing of the tools that build and test the project, on Debian 12 or newer.
# Rule: says nothing and reaches for no network when nothing is missing.
set -euo pipefail

RUST_MAJOR=1
RUST_MINOR=95
missing=()

need_command() { # command, package
    command -v "$1" >/dev/null || missing+=("$2")
}

need_app() { # application of Erlang, package
    local root
    root=$(erl_root) || { missing+=("$2"); return; }
    compgen -G "$root/lib/$1-*" >/dev/null || missing+=("$2")
}

erl_root() {
    local erl
    erl=$(command -v erl) || return 1
    dirname "$(dirname "$(readlink -f "$erl")")"
}

find_missing() {
    missing=()
    need_command git git
    need_command cc gcc
    need_command make make
    need_command erl erlang-base
    need_command rebar3 rebar3
    [ -d /etc/ssl/certs ] || missing+=(ca-certificates)
    compgen -G "/usr/include/stdlib.h" >/dev/null || missing+=(libc6-dev)
    local app
    for app in crypto dialyzer tools eunit common_test edoc xmerl parsetools syntax_tools \
               runtime_tools proper; do
        need_app "$app" "erlang-${app//_/-}"
    done
    compgen -G "$(erl_root || echo /usr)/usr/include/erl_nif.h" >/dev/null \
        || missing+=(erlang-dev)
}

install_missing() {
    local sudo=()
    [ "$(id -u)" = 0 ] || sudo=(sudo)
    command -v apt-get >/dev/null || {
        echo "setup: missing ${missing[*]}, and there is no apt-get to install them" >&2
        exit 1
    }
    echo "setup: installing ${missing[*]}"
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}

rust_is_new_enough() {
    command -v cargo >/dev/null || PATH="$PATH:${CARGO_HOME:-${HOME:-}/.cargo}/bin"
    local version major minor
    version=$(cargo --version 2>/dev/null | cut -d' ' -f2) || return 1
    major=${version%%.*}
    minor=${version#*.}
    minor=${minor%%.*}
    [ -n "$version" ] || return 1
    [ "$major" -gt "$RUST_MAJOR" ] || { [ "$major" = "$RUST_MAJOR" ] && [ "$minor" -ge "$RUST_MINOR" ]; }
}

install_rust() {
    # Debian 13 has it, Debian 12 does not.
    if apt-cache policy rustup 2>/dev/null | grep -q 'Candidate: [0-9]'; then
        missing=(rustup)
        install_missing rustup
        rustup toolchain install --profile default stable >/dev/null
        rustup default stable >/dev/null
    fi
    rust_is_new_enough || {
        echo "setup: install Rust $RUST_MAJOR.$RUST_MINOR or newer with rustup" >&2
        exit 1
    }
}

find_missing
[ ${#missing[@]} = 0 ] || install_missing "${missing[@]}"
rust_is_new_enough || install_rust
