#!/usr/bin/env bash
# Runs the tests that talk to a host on every available host, or on the named ones.
# MIDI_HOSTS="name=path ..." adds servers. Hosts that cannot be had or do not start are counted as skipped.
. "$(dirname "$0")/setup.sh"
. "$(dirname "$0")/hosts.sh"
setup redis
setup_python_client
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-4}
cargo build --release --locked

[ $# -gt 0 ] || set -- "${all_hosts[@]}" $(printf '%s\n' ${MIDI_HOSTS:-} | cut -d= -f1)
begin_counting
for name in $(printf '%s\n' "$@" | awk '!seen[$0]++'); do test_on "$name"; done
tell_counts
