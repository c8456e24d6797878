#!/usr/bin/env bash
# Builds midi and starts a redis-server of its own with it, in the foreground. PORT= chooses the port.
. "$(dirname "$0")/setup.sh"

# bash opens this path itself: no need for ss, nc or the like.
listening() {
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null || (exec 3<>"/dev/tcp/::1/$1") 2>/dev/null
}

hints() {
    cat <<EOF

midi is loaded. In another shell, try:
    redis-cli -p $port MIDI.SET greeting hello
    redis-cli -p $port MIDI.GET greeting
    redis-cli -p $port MIDI.POPULATE 1000000
    redis-cli -p $port MIDI.KEYS 'key:99999*'
    redis-cli -p $port MIDI.INFO
Ctrl-C here stops the server.

EOF
}

check_rust
if [ -n "${PORT:-}" ]; then
    case $PORT in *[!0-9]*) die "PORT=$PORT is no port number." ;; esac
    [ "$PORT" -ge 1 ] && [ "$PORT" -le 65535 ] || die "PORT=$PORT is no port number."
    ! listening "$PORT" || die "Port $PORT is taken. Choose another with PORT=, or leave it out."
fi

setup redis
cargo build --release --locked

port=${PORT:-6379}
if [ -z "${PORT:-}" ] && listening "$port"; then
    while listening "$port"; do port=$((port + 1)); done
    echo "Port 6379 is taken: using $port. PORT= chooses another."
fi

# A directory of its own, and a copy of the example: CONFIG REWRITE must not change the repository.
mkdir -p target/run
cp redis.conf.example target/run/redis.conf
cd target/run

# The server takes this shell's place, so somebody else must wait until it answers. The outer
# subshell ends at once: redis-server does not get a child that it never started.
( (for _ in {1..300}; do
    sleep 0.1
    if listening "$port"; then sleep 0.2; hints; break; fi
done) & )

exec "$MIDI_REDIS_SERVER" "$PWD/redis.conf" --port "$port" --loadmodule "$root/target/release/libmidi.so"
