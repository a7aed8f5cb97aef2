#!/usr/bin/env bash
# Builds CPython 3.11 as a WASI reactor, the guest of the benchmarks, once: the result stays in
# a cache. Progress goes to stderr; the last line on stdout is the folder, which holds
# reactor.wasm and lib (the guest's /lib).
#
# From the environment:
#   PY_REACTOR_DIR      a finished folder: it is checked and printed, nothing is built
#   WASMTIME_CACHE_DIR  where results are kept (default: wasmtime-erlang in the user's cache)
#   BUILD_PYTHON        the Python 3.11 that builds (default: Debian's)
#   CPYTHON_SRC, ZLIB_SRC, WASI_LIBC_SRC
#                       unpacked sources, for a machine that isn't Debian 12
#   JOBS                compilers at once (default: the number of processors)
# shellcheck disable=SC2317 # functions are called by name, through run and trap
set -euo pipefail

readonly ziglang=0.17.1 release=bookworm
readonly cpython_sha256=2411c74bda5bbcfcddaf4531f66d1adc73f247f529aee981b029513aefdbf849
readonly zlib_sha256=71feb7947e3c00ef125f83b79a4e529bde31171e5babe48b391f06758d1ab0a1
readonly wasi_libc_sha256=8f9b802736a856942839d32966937c389f46e9f156415a549a6675b7535e5f74

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ours=$root/bench/py_reactor
python=${BUILD_PYTHON:-/usr/bin/python3.11}
jobs=${JOBS:-$(nproc)}
phase="" log="" work=""

# So that two builds give the same bytes.
export SOURCE_DATE_EPOCH=1675814400 PYTHONHASHSEED=0 LC_ALL=C.UTF-8
# Else configure finds the host's libraries.
export PKG_CONFIG_LIBDIR=/nonexistent

# A function that fails ends the script while its output still goes to the log.
exec 3>&2
say() { printf 'py_reactor: %4d s  %s\n' "$SECONDS" "$*" >&3; }
begin() { phase=$1 && say "$1"; }
run() { "$@" >>"$log" 2>&1; }

# For what the user can mend: no log is needed to understand it.
die() {
  phase=""
  say "$*"
  exit 1
}

on_exit() {
  local code=$?
  if [ "$code" != 0 ] && [ -n "$phase" ]; then
    tail -n 15 "$log" >&3 2>/dev/null || true
    say "failed: $phase. Everything is in $log"
  fi
  if [ -n "$work" ]; then rm -rf "$work"; fi
}
trap on_exit EXIT

# --- where the result is ---

complete() {
  [ "$(head -c 4 "$1/reactor.wasm" 2>/dev/null | od -An -tx1)" = " 00 61 73 6d" ] &&
    [ -f "$1/lib/python3.11/os.py" ] && [ -f "$1/lib/python3.11/__pycache__/os.cpython-311.pyc" ]
}

cache_folder() {
  local cache=${WASMTIME_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/wasmtime-erlang}/py_reactor
  if ! { mkdir -p "$cache" && [ -w "$cache" ]; } 2>/dev/null; then
    cache=$root/_build/py_reactor
    mkdir -p "$cache"
  fi
  (cd "$cache" && pwd)
}

key() {
  cd "$ours"
  {
    printf '%s\n' "$python" "${CPYTHON_SRC:-}" "${ZLIB_SRC:-}" "${WASI_LIBC_SRC:-}"
    cat "$root/scripts/build-py-reactor.sh" ./*.[ch] ./*.py no_pthread/*.h config.site omit.txt
  } | sha256sum | cut -c 1-16
}

# One build at a time in a cache; who waited finds the result of the one before.
lock() {
  exec 9>"$1/lock"
  flock -n 9 || {
    say "waiting for another build in $1"
    flock 9
  }
}

# --- what the build needs ---

on_debian() { grep -qs "^VERSION_CODENAME=$release\$" /etc/os-release; }

missing_packages() {
  local tool
  for tool in make xz:xz-utils bzip2; do
    command -v "${tool%:*}" >/dev/null || echo "${tool#*:}"
  done
  if [ -n "${BUILD_PYTHON:-}" ]; then return; fi
  [ -x "$python" ] || echo python3.11
  "$python" -m pip --version >/dev/null 2>&1 || echo python3-pip
}

install_missing() {
  local packages=() as_root=(env)
  mapfile -t packages < <(missing_packages)
  [ "${#packages[@]}" != 0 ] || return 0
  on_debian || die "missing: ${packages[*]}. They are installed by themselves on Debian 12 only"
  if [ "$(id -u)" != 0 ]; then
    as_root=(sudo)
    command -v sudo >/dev/null || die "missing: ${packages[*]}. Install them, or run this as root"
  fi
  begin "install ${packages[*]}"
  # An archive that doesn't answer matters only if the packages are not to be had then.
  run "${as_root[@]}" apt-get update || true
  run "${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${packages[@]}"
}

check_python() {
  "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null ||
    die "$python is no Python 3.11. BUILD_PYTHON can name another one"
  "$python" -m pip --version >/dev/null 2>&1 || die "$python has no pip"
}

get_compiler() {
  begin "get the compiler (ziglang $ziglang)"
  run "$python" -m pip install --disable-pip-version-check --no-deps --target "$work/pip" "ziglang==$ziglang" ||
    die "pip got no ziglang $ziglang: is there a network? See $log"
  mkdir "$work/tools"
  local tool
  for tool in cc c++ ar ranlib; do
    # The cache can mix up equal command lines from different folders, so it is this folder's own.
    printf '#!/bin/sh\nexport ZIG_GLOBAL_CACHE_DIR=%q ZIG_LOCAL_CACHE_DIR=%q\nexec %q %s "$@"\n' \
      "$work/zig" "$work/zig" "$work/pip/ziglang/zig" "$tool" >"$work/tools/$tool"
  done
  sed -i 's/ \(cc\|c++\) "\$@"$/ \1 -target wasm32-wasi "$@"/' "$work/tools/cc" "$work/tools/c++"
  chmod +x "$work/tools"/*
}

# An apt of our own that knows the source archives: /etc/apt stays as it is.
private_apt() {
  local tool=$1
  shift
  "$tool" -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$work/apt/parts" \
    -o Dir::State::lists="$work/apt/lists" -o Dir::Cache="$work/apt/cache" \
    -o APT::Sandbox::User="$(id -un)" "$@"
}

prepare_apt() {
  [ ! -d "$work/apt" ] || return 0
  on_debian || die "no sources: this isn't Debian 12. Set CPYTHON_SRC, ZLIB_SRC and WASI_LIBC_SRC"
  mkdir -p "$work/apt/parts" "$work/apt/lists/partial" "$work/apt/cache/archives/partial" "$work/tar"
  "$python" "$ours/deb_src.py" "$release" "$work/apt/parts"
  run private_apt apt-get update || die "apt got no list of sources: is there a network? See $log"
}

# A mirror may lack the newest version, whose tarball is the same as the older ones'.
download() (
  local package=$1 version
  cd "$work/tar"
  private_apt apt-cache showsrc "$package" | awk '/^Version:/ { print $2 }' | sort -rVu >versions
  while read -r version; do
    private_apt apt-get source --download-only --tar-only "$package=$version" </dev/null && exit 0
  done <versions
  exit 1
)

get_source() {
  local package=$1 sha256=$2 folder=$3 ready=$4
  if [ -n "$ready" ]; then
    ln -s "$(cd "$ready" && pwd)" "$work/$folder"
    return
  fi
  prepare_apt
  run download "$package" || die "apt got no source of $package: is there a network? See $log"
  local tarball=("$work/tar/$package"_*.orig.tar.*)
  echo "$sha256  ${tarball[0]}" | run sha256sum --check ||
    die "the source of $package isn't the expected one: $(sha256sum "${tarball[0]}")"
  mkdir "$work/$folder"
  run tar -x -C "$work/$folder" --strip-components=1 -f "${tarball[0]}"
}

get_sources() {
  begin "get the sources (CPython 3.11.2, zlib 1.2.13, dlmalloc 2.8.6)"
  get_source python3.11 "$cpython_sha256" cpython "${CPYTHON_SRC:-}"
  get_source zlib "$zlib_sha256" zlib "${ZLIB_SRC:-}"
  get_source wasi-libc "$wasi_libc_sha256" wasi-libc "${WASI_LIBC_SRC:-}"
}

# --- the build ---

readonly emulated=(-D_WASI_EMULATED_SIGNAL -D_WASI_EMULATED_GETPID -D_WASI_EMULATED_PROCESS_CLOCKS)
readonly emulated_libs=(-lwasi-emulated-signal -lwasi-emulated-getpid -lwasi-emulated-process-clocks)

cc() { "$work/tools/cc" -O3 -DNDEBUG "$@"; }

build_zlib() {
  local file
  mkdir "$work/libz"
  for file in adler32 crc32 deflate infback inffast inflate inftrees trees zutil compress uncompr; do
    cc -w -DHAVE_UNISTD_H -I"$work/zlib" -c "$work/zlib/$file.c" -o "$work/libz/$file.o"
  done
  "$work/tools/ar" rcs "$work/libz/libz.a" "$work/libz"/*.o
}

# -Wno-int-conversion: the CLOCK_ constants are pointers. SOCK_RAW: getaddrinfo.c needs it.
configure_cpython() (
  mkdir "$work/build"
  cd "$work/build"
  cat ../cpython/Tools/wasm/config.site-wasm32-wasi "$ours/config.site" >../config.site
  CONFIG_SITE=$work/config.site CC=$work/tools/cc CXX=$work/tools/c++ CPP="$work/tools/cc -E" \
    AR=$work/tools/ar RANLIB=$work/tools/ranlib \
    CPPFLAGS="-I$ours/no_pthread" OPT="-DNDEBUG -O3" \
    CFLAGS="${emulated[*]} -DSOCK_RAW=3 -Wno-int-conversion -Wno-date-time" \
    ZLIB_CFLAGS="-I$work/zlib" ZLIB_LIBS="-L$work/libz -lz" \
    ../cpython/configure --host=wasm32-unknown-wasi --build="$(uname -m)-pc-linux-gnu" \
    --with-build-python="$python" --prefix=/ --with-suffix=.wasm --disable-test-modules \
    --without-ensurepip --without-doc-strings --with-pymalloc --disable-ipv6
)

compile_cpython() {
  make -C "$work/build" -j "$jobs" libpython3.11.a Modules/_decimal/libmpdec/libmpdec.a Modules/expat/libexpat.a
}

compile_ours() {
  local file
  mkdir "$work/ours"
  for file in "$ours"/*.c; do
    cc "${emulated[@]}" -Wall -Wextra -Wno-unused-parameter -I"$work/build" -I"$work/cpython/Include" \
      -c "$file" -o "$work/ours/$(basename "$file" .c).o"
  done
  # Zig's own malloc rounds up to powers of two: a third more pages to copy for an instance.
  local dlmalloc=$work/wasi-libc/dlmalloc
  cc -w -I"$dlmalloc/include" -c "$dlmalloc/src/dlmalloc.c" -o "$work/ours/dlmalloc.o"
}

# dlmalloc.o and thread.o are given as objects, since they have to win over libc's own.
link() {
  local build=$work/build
  cc -mexec-model=reactor -o "$1/reactor.wasm" "$work/ours"/*.o "$build/Python/thread.o" \
    "$build/libpython3.11.a" "$build/Modules/_decimal/libmpdec/libmpdec.a" \
    "$build/Modules/expat/libexpat.a" "$work/libz/libz.a" "${emulated_libs[@]}" \
    -Wl,-z,stack-size=1048576 -Wl,--gc-sections -Wl,--strip-all
  chmod 644 "$1/reactor.wasm"
}

# Unchecked: no time stamp decides whether a .pyc counts, since copies don't keep them.
install_library() {
  local lib=$1/lib/python3.11
  mkdir -p "$lib"
  cp -R --no-preserve=mode "$work/cpython/Lib/." "$lib"
  find "$lib" -name __pycache__ -prune -exec rm -rf {} +
  (cd "$lib" && grep -v '^#' "$ours/omit.txt" | xargs rm -rf)
  cp "$ours/sysconfigdata.py" "$lib/_sysconfigdata__wasi_wasm32-wasi.py"
  "$python" -I -m compileall -q --invalidation-mode unchecked-hash -s "$1/lib" -p /lib "$lib"
}

build() {
  local out=$1
  mkdir -p "$out"
  get_compiler
  get_sources
  begin "configure CPython, and compile the C library that it asks for"
  run build_zlib
  run configure_cpython
  begin "compile CPython"
  run compile_cpython
  begin "compile the reactor and link"
  run compile_ours
  run link "$out"
  begin "compile the standard library"
  run install_library "$out"
  printf 'CPython 3.11.2, zlib 1.2.13, dlmalloc 2.8.6, ziglang %s, key %s\n' "$ziglang" "$(key)" >"$out/BUILD_INFO"
}

finish() {
  complete "$1" || die "$1 has no reactor.wasm, or no lib/python3.11 with compiled modules"
  (cd "$1" && pwd)
  exit 0
}

main() {
  if [ -n "${PY_REACTOR_DIR:-}" ]; then finish "$PY_REACTOR_DIR"; fi
  local cache result
  cache=$(cache_folder)
  result=$cache/$(key)
  if complete "$result"; then finish "$result"; fi
  lock "$cache"
  if complete "$result"; then finish "$result"; fi
  log=$result.log
  work=$cache/work
  rm -rf "$work" "$result" "$log" # what a killed run left
  mkdir "$work"
  install_missing
  check_python
  build "$work/out"
  mv -T "$work/out" "$result"
  rm -f "$log"
  begin "done"
  finish "$result"
}

main
