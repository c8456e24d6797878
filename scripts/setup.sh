# Sourced by the other scripts: goes to the project's directory, checks what midi needs,
# and installs what is missing if apt-get and root are available.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
# Tests and scripts look for the module under target/, so cargo must put it there.
export CARGO_TARGET_DIR=$root/target

die() { printf '%s\n' "$@" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# Whether the versions in these lines rise. (BusyBox has no sort -C.)
is_sorted() { sort -cV >/dev/null 2>&1; }

# Fails, and does nothing, without apt-get or root.
apt_install() {
    have apt-get && [ "$(id -u)" = 0 ] || return 1
    echo "Installing with apt-get: $*"
    apt-get update -qq </dev/null &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null
}

apt_install_or_die() {
    apt_install "$@" || die "" "midi needs these Debian packages, and could not install them itself:" \
        "    $*" "As root: apt-get update && apt-get install -y --no-install-recommends $*" \
        "Where there is no apt-get, install what your system calls them, then try again."
}

check_rust() {
    [ "$(uname -s)" = Linux ] || die "midi needs Linux. docs/install.md has images for Docker."
    # Where rustup puts cargo; a shell from before the installation does not look there.
    have cargo || PATH=$PATH:${HOME:-}/.cargo/bin
    local want got
    want=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)
    got=$(rustc --version 2>/dev/null | sed -n 's/^rustc \([0-9.]*\).*/\1/p') || true
    if have cargo && [ -n "$got" ] && printf '%s\n' "$want" "$got" | is_sorted; then return; fi
    die "midi needs Rust $want or newer; found: ${got:-none}. Install or update it with" \
        "    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh" \
        "then open a new shell and try again."
}

# setup [redis]: what the build needs, and with "redis" a server in $MIDI_REDIS_SERVER.
# Calls apt-get only when something is missing.
setup() {
    check_rust
    local packages=()
    # Rust links with cc, and ring has parts in C.
    { have cc && echo '#include <stdio.h>' | cc -E - >/dev/null 2>&1; } || packages+=(gcc libc6-dev)
    # cargo fetches crates over https.
    ! have apt-get || [ -e /etc/ssl/certs/ca-certificates.crt ] || packages+=(ca-certificates)
    if [ "${1:-}" = redis ] && [ -z "${MIDI_REDIS_SERVER:-}" ]; then
        have redis-server || have redis-check-rdb || packages+=(redis-tools)
    fi
    [ ${#packages[@]} = 0 ] || apt_install_or_die "${packages[@]}"
    [ "${1:-}" != redis ] || find_redis
}

# "Redis server v=8.6.3 …" as "Redis 8.6.3"; nothing if the program is not a server.
host_version() { "$1" --version </dev/null 2>/dev/null | sed -n 's/^\([A-Za-z]*\) server v=\([^ ]*\).*/\1 \2/p'; }

find_redis() {
    if [ -z "${MIDI_REDIS_SERVER:-}" ]; then
        MIDI_REDIS_SERVER=$(command -v redis-server) || {
            # Debian's package redis-server would start a system service. redis-tools has the same
            # program as redis-check-rdb: the name it is called by decides what it does.
            mkdir -p target/tools
            MIDI_REDIS_SERVER=$root/target/tools/redis-server
            ln -sfn "$(command -v redis-check-rdb)" "$MIDI_REDIS_SERVER"
        }
    fi
    local version oldest=7.0.6
    version=$(host_version "$MIDI_REDIS_SERVER") || true
    [ -n "$version" ] || die "$MIDI_REDIS_SERVER is no redis-server. Install one, or name it in MIDI_REDIS_SERVER."
    printf '%s\n' "$oldest" "${version#* }" | is_sorted ||
        die "midi needs Redis $oldest or Valkey 7.2, or a newer one; $MIDI_REDIS_SERVER is $version." \
            "Install one, or name it in MIDI_REDIS_SERVER."
    export MIDI_REDIS_SERVER
}

# redis-py, pymemcache and pylibmc from PyPI, in $MIDI_CLIENT_PYTHON and
# $MIDI_CLIENT_PYTHON_MEMCACHED. Tests skip Python without them. Paths start at the project's directory.
setup_python_client() {
    local venv=target/clients/python python=python3
    if ! "$venv/bin/python" -c 'import redis, pymemcache, pylibmc' 2>/dev/null; then
        "$python" -c 'import ensurepip' 2>/dev/null || { apt_install python3-venv && python=/usr/bin/python3; } ||
            { echo "Python clients are SKIPPED: no python3 with venv (Debian package python3-venv)."; return 0; }
        rm -rf "$venv"
        { "$python" -m venv "$venv" &&
            "$venv/bin/pip" install -q --disable-pip-version-check 'redis>=8,<9' 'pymemcache>=4,<5' \
                'pylibmc>=1.6,<2' </dev/null; } ||
            { echo "Python clients are SKIPPED: could not install them from PyPI."; return 0; }
    fi
    export MIDI_CLIENT_PYTHON="$venv/bin/python tests/clients/python/redis_py.py"
    export MIDI_CLIENT_PYTHON_MEMCACHED="$venv/bin/python tests/clients/python/memcached.py"
}

# memcached, in $MIDI_MEMCACHED, for benchmarks and the load generator's test. Debian's package would start a system
# service, so the program is extracted from it, and only its library is installed.
setup_memcached() {
    [ -z "${MIDI_MEMCACHED:-}" ] || return 0
    MIDI_MEMCACHED=$(command -v memcached) || MIDI_MEMCACHED=$root/target/tools/memcached/usr/bin/memcached
    if [ ! -x "$MIDI_MEMCACHED" ] && have apt-get; then
        apt_install 'libevent-2.1-7' || true
        mkdir -p target/tools/memcached
        { (cd target/tools && apt-get download -qq memcached) && dpkg -x target/tools/memcached_*.deb target/tools/memcached; } || true
    fi
    if "$MIDI_MEMCACHED" -V >/dev/null 2>&1; then export MIDI_MEMCACHED; else
        unset MIDI_MEMCACHED
        echo "memcached is left out: there is none, and apt-get cannot bring one."
    fi
}
