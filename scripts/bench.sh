#!/usr/bin/env bash
# The experiments: bench.sh [arguments of `midi-bench run`]. EXP= selects a section or an experiment by name,
# BENCH_SERVERS="name=path ..." adds servers to compare with, RESUME=1 leaves out what a stopped run has measured.
. "$(dirname "$0")/setup.sh"
. scripts/hosts.sh
setup redis
if [ -z "${MIDI_VALKEY_SERVER:-}" ] && find_host valkey-9.1; then export MIDI_VALKEY_SERVER=$host_server; fi
if [[ " ${BENCH_SERVERS:-}" != *" redis8="* ]] && find_host redis-8.6; then
    export BENCH_SERVERS="redis8=$host_server ${BENCH_SERVERS:-}"
fi
setup_memcached
have redis-benchmark || echo "redis-benchmark is missing: the load generator cannot be checked against it."
cargo build --release --locked
cargo build --release --locked -p midi-bench
exec target/release/midi-bench run ${EXP:+--experiment "$EXP"} ${RESUME:+--resume} "$@"
