#!/usr/bin/env bash
# Builds midi and starts a redis-server with it, in the foreground. PORT= chooses the server's port,
# MIDI_PORT= midi's own, DATA= the folder that keeps the data (data/PORT if unset).
. "$(dirname "$0")/setup.sh"

# bash opens this path itself: ss, nc and the like are not needed.
listening() {
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null || (exec 3<>"/dev/tcp/::1/$1") 2>/dev/null
}

# check_port PORT|MIDI_PORT: the caller's choice, if any, must be the number of a free port.
check_port() {
    local number=${!1:-}
    [ -n "$number" ] || return 0
    case $number in *[!0-9]* | ??????*) die "$1=$number is no port number." ;; esac
    [ "$number" -ge 1 ] && [ "$number" -le 65535 ] || die "$1=$number is no port number."
    ! listening "$number" || die "Port $number is taken. Choose another with $1=, or leave it out."
}

# free_port FIRST OTHER: the first port from FIRST on that is free and is not OTHER.
free_port() {
    local number=$1
    while [ "$number" = "$2" ] || listening "$number"; do number=$((number + 1)); done
    echo "$number"
}

# Waits for the server, then prints what to try. Gives up if the server does not start.
hints() {
    local tries
    for tries in {1..300}; do
        sleep 0.1
        ! listening "$port" || ! listening "$midi_port" || break
        [ "$tries" -lt 300 ] || return 0
    done
    sleep 0.2
    cat <<EOF

midi is loaded. In another shell, try the server's port:
    redis-cli -p $port MIDI.POPULATE 1000000
    redis-cli -p $port MIDI.KEYS 'key:99999?'
    redis-cli -p $port INFO midi
and midi's own port, which serves the same keys under the standard names:
    redis-cli -p $midi_port GET key:7
    redis-cli -p $midi_port SET greeting hello
    redis-benchmark -p $midi_port -t get,set -P 16 -q
Ctrl-C here stops the server. The data stays, for the next \`make run\`, in
    $data
Stop the server and remove that folder to be rid of it.

EOF
}

check_rust
check_port PORT
check_port MIDI_PORT
if [ -n "${PORT:-}" ] && [ "$PORT" = "${MIDI_PORT:-}" ]; then die "PORT and MIDI_PORT are the same."; fi

setup redis
cargo build --release --locked

port=${PORT:-$(free_port 6379 "${MIDI_PORT:-}")}
midi_port=${MIDI_PORT:-$(free_port 6390 "$port")}
[ -n "${PORT:-}" ] || [ "$port" = 6379 ] || echo "Port 6379 is taken: using $port. PORT= chooses another."
[ -n "${MIDI_PORT:-}" ] || [ "$midi_port" = 6390 ] ||
    echo "Port 6390 is taken: midi uses $midi_port. MIDI_PORT= chooses another."

mkdir -p "${DATA:=data/$port}" || die "DATA=$DATA: this folder cannot be made."
data=$(cd "$DATA" && pwd)
# Two servers must not write to the same files. The lock ends with the server.
exec 9>"$data/lock"
! have flock || flock -n 9 || die "A server that still runs keeps its data in $data. DATA= chooses another folder."
# A copy of the example: CONFIG REWRITE must not change the repository.
cp redis.conf.example "$data/redis.conf"
cd "$data"

# The server replaces this shell, so another process must wait until it answers. The outer
# subshell ends at once, so redis-server does not get a child that it never started.
( (hints) & )

exec "$MIDI_REDIS_SERVER" "$data/redis.conf" --dir "$data" --port "$port" \
    --midi.port "$midi_port" --loadmodule "$root/target/release/libmidi.so"
