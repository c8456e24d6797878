#!/usr/bin/env bash
# How many instructions a command takes, from reading it to its reply in the buffer (callgrind):
#     scripts/instructions.sh [pipeline]
# On the host's port: the cost for the host's main thread, without the socket's write and the turn of the main
# loop; GET and SET compared with MIDI.GET and MIDI.SET. On midi's own port: the cost for a worker, including the
# socket's read and write as far as they run outside of the kernel. 100,000 keys with values of 64 bytes.
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
load() { target/release/midi-bench load --server "$dir/$door" --connections 1 --keys $keys "$@" >/dev/null; }

cd "$dir"
valgrind --tool=callgrind --callgrind-out-file="$dir/out" --toggle-collect=readQueryFromClient \
    --toggle-collect='*WorkerPort*::turn' --log-file="$dir/log" \
    "$MIDI_REDIS_SERVER" --port 0 --unixsocket "$dir/host" --save "" --loadmodule "$root/target/release/libmidi.so" \
    unixsocket "$dir/port" threads 1 >/dev/null &
server=$!
cd "$root"
for _ in {1..300}; do [ ! -S "$dir/host" ] || break; sleep 0.1; done
sleep 2 # The port opens before the host does.
door=host
for prefix in "" MIDI.; do
    load --command "${prefix}SET {key} {value}" --distribution sequential --pipeline 50 --requests $keys
done
printf '%-5s %-10s %s\n' port command "instructions, pipeline $pipeline"
count() {
    door=$1
    callgrind_control --zero "$server" >/dev/null
    load --command "$2" --pipeline "$pipeline" --requests $count
    callgrind_control --dump "$server" >/dev/null
    newest=$(ls -t "$dir"/out.* | head -1)
    total=$(sed -n 's/^totals: \([0-9]*\).*/\1/p' "$newest")
    printf '%-5s %-10s %d\n' "$1" "${2%% *}" $((total / count))
}
for command in "GET {key}" "MIDI.GET {key}" "SET {key} {value}" "MIDI.SET {key} {value}"; do count host "$command"; done
for command in "GET {key}" "SET {key} {value}"; do count port "$command"; done
