#!/usr/bin/env bash
# How many instructions a command costs the host's main thread, from reading it to its reply in the
# buffer (callgrind; the socket's write and the main loop's turn are not in it):
#     scripts/instructions.sh [pipeline]
# For GET and SET beside MIDI.GET and MIDI.SET, 100,000 keys with values of 64 bytes.
. "$(dirname "$0")/setup.sh"
pipeline=${1:-16}
setup redis
have valgrind || apt_install_or_die valgrind
cargo build --release --locked
cargo build --release --locked -p midi-bench

keys=100000
count=20000
dir=$(mktemp -d "${TMPDIR:-/tmp}/midi-instructions.XXXXXX")
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$dir"' EXIT
load() { target/release/midi-bench load --server "$dir/socket" --connections 1 --keys $keys "$@" >/dev/null; }

cd "$dir"
valgrind --tool=callgrind --callgrind-out-file="$dir/out" --toggle-collect=readQueryFromClient --log-file="$dir/log" \
    "$MIDI_REDIS_SERVER" --port 0 --unixsocket "$dir/socket" --save "" --loadmodule "$root/target/release/libmidi.so" >/dev/null &
server=$!
cd "$root"
for _ in {1..300}; do [ ! -S "$dir/socket" ] || break; sleep 0.1; done
for prefix in "" MIDI.; do
    load --command "${prefix}SET {key} {value}" --distribution sequential --pipeline 50 --requests $keys
done
printf '%-10s %s\n' command "instructions, pipeline $pipeline"
for command in "GET {key}" "MIDI.GET {key}" "SET {key} {value}" "MIDI.SET {key} {value}"; do
    callgrind_control --zero "$server" >/dev/null
    load --command "$command" --pipeline "$pipeline" --requests $count
    callgrind_control --dump "$server" >/dev/null
    newest=$(ls -t "$dir"/out.* | head -1)
    total=$(sed -n 's/^totals: \([0-9]*\).*/\1/p' "$newest")
    printf '%-10s %d\n' "${command%% *}" $((total / count))
done
