#!/usr/bin/env bash
# Runs the tests that talk to a host on every available host, or on the named ones.
# MIDI_HOSTS="name=path ..." adds servers. Hosts that cannot be had or do not start are counted as skipped, but a
# named one has failed then.
. "$(dirname "$0")/setup.sh"
. scripts/hosts.sh
setup redis
setup_python_client
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-4}
cargo build --release --locked

named=("$@")
[ $# -gt 0 ] || set -- "${all_hosts[@]}" $(printf '%s\n' ${MIDI_HOSTS:-} | cut -d= -f1)
begin_counting
for name in $(printf '%s\n' "$@" | awk '!seen[$0]++'); do test_on "$name"; done
for name in ${named[@]+"${named[@]}"}; do
    ! grep -q "^$name"$'\tall tests\t' "$MIDI_SKIPS" || failed+=("$name: it was not to be had")
done
tell_counts
