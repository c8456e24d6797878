#!/usr/bin/env bash
# What threads do to each other, counted per command by a build of its own (the feature contention): tokens that
# change hands, tries that fail, messages, wake-ups, system calls. It counts and takes no time, so a busy machine does
# little harm. docs/design/scaling.md has the table and the model that it feeds.
#     scripts/scaling.sh [shards ...]
. "$(dirname "$0")/setup.sh"
setup redis
have redis-cli || apt_install_or_die redis-tools
shards=("$@")
[ $# -gt 0 ] || shards=(64 1024 16384)
cargo build --release --locked --lib --features contention --target-dir target/contention
cargo build --release --locked -p midi-bench

keys=1000000
requests=400000
dir=$(mktemp -d "${TMPDIR:-/tmp}/midi-scaling.XXXXXX")
server=
trap '[ -z "$server" ] || kill -9 "$server" 2>/dev/null; rm -rf "$dir"' EXIT
load() { target/release/midi-bench load --server "$dir/port" --keys $keys "$@" >/dev/null; }

# start WORKERS SHARDS [SETTING ...]: a server with 1 M keys.
start() {
    [ -z "$server" ] || { kill -9 "$server"; wait "$server" 2>/dev/null || true; rm -rf "$dir/host" "$dir/port" "$dir"/appendonlydir; }
    "$MIDI_REDIS_SERVER" --port 0 --unixsocket "$dir/host" --dir "$dir" --save "" "${@:3}" \
        --loadmodule "$root/target/contention/release/libmidi.so" \
        unixsocket "$dir/port" threads "$1" shards "$2" >/dev/null 2>&1 &
    server=$!
    for _ in {1..100}; do [ ! -S "$dir/port" ] || break; sleep 0.1; done
    load --command "SET {key} {value}" --distribution sequential --pipeline 50 --connections 10 --requests $keys
}

# The counts that grow: name value.
counts() {
    redis-cli -s "$dir/port" INFO everything | tr -d '\r' |
        sed -n 's/^\(midi_taken\|midi_changed_hands\|midi_busy\|midi_messages\|midi_wake_ups\|midi_queued\|total_reads_processed\|total_writes_processed\):/\1 /p'
}

# row LABEL WORKERS SHARDS LOAD-OPTION ...: counts per command.
row() {
    local label=$1 workers=$2 count=$3
    counts >"$dir/before"
    load --requests $requests --connections 50 --threads 2 "${@:4}"
    counts >"$dir/after"
    awk -v n=$requests -v head="| $label | $workers | $count |" '
        NR == FNR { before[$1] = $2; next }
        { delta[$1] = ($2 - before[$1]) / n }
        END {
            printf "%s %.3f | %.3f | %.4f | %.4f | %.4f | %.4f | %.3f |\n", head, delta["midi_taken"],
                delta["midi_changed_hands"], delta["midi_busy"], delta["midi_queued"], delta["midi_messages"],
                delta["midi_wake_ups"], delta["total_reads_processed"] + delta["total_writes_processed"]
        }' "$dir/before" "$dir/after"
}

echo "| load | workers | shards | tokens | change hands | busy | queued | messages | wake-ups | reads and writes |"
echo "|---|---|---|---|---|---|---|---|---|---|"
mix=(--command "GET {key}" --command "SET {key} {value}")
for workers in 1 2; do
    for count in "${shards[@]}"; do
        start "$workers" "$count"
        for pipeline in 1 10 50; do
            row "GET, pipeline $pipeline" "$workers" "$count" --pipeline $pipeline
            row "GET, Zipf, pipeline $pipeline" "$workers" "$count" --pipeline $pipeline --distribution zipf
            row "50/50, Zipf, pipeline $pipeline" "$workers" "$count" --pipeline $pipeline --distribution zipf "${mix[@]}"
        done
    done
    start "$workers" 1024 --appendonly yes --appendfsync everysec
    row "SET, AOF, pipeline 1" "$workers" 1024 --command "SET {key} {value}"
    row "SET, AOF, pipeline 50" "$workers" 1024 --command "SET {key} {value}" --pipeline 50
done
