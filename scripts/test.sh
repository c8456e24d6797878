#!/usr/bin/env bash
# Runs all tests on the host in MIDI_REDIS_SERVER (Debian's redis-server if unset), and those that talk to a host on
# a new Redis and a new Valkey, too. HOSTS= chooses others, HOSTS=none leaves them out.
. "$(dirname "$0")/setup.sh"
. scripts/hosts.sh
setup redis
setup_python_client
setup_memcached
# A client of TLS like others, which makes files for it, too.
have openssl || apt_install openssl || true
# Tests wait for much of their time, so run more of them at once than there are processors; and those of the first
# host beside those of the others.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-4}
# The integration tests load this into a server. Its last crate takes one processor for a minute, which the tests'
# programs leave to it: they are built beside it.
cargo build --release --locked &
release_build=$!
cargo test --quiet --locked --workspace --no-run
wait "$release_build"
begin_counting
# Some tests on the first host look for the others.
for name in ${HOSTS:-redis-8.6 valkey-9.1}; do [ "$name" = none ] || find_host "$name" >/dev/null || true; done
: >"$MIDI_SKIPS"
[ -n "${MIDI_CLIENT_PYTHON:-}" ] || skip_test any redis-py "there is no python3 with venv, or no redis-py"
on_other_hosts() {
    # They go on alone when the first host is done. Fewer histories, and each test in one of midi's modes, on each host
    # in another one: those try midi more than its host.
    export RUST_TEST_THREADS=$((RUST_TEST_THREADS + 1))
    # Behind the ports of the first host's tests: tests/common/free_port.rs.
    export MIDI_FIRST_PORT=15000
    export MIDI_BRIEF=1
    export MIDI_LINEARIZABILITY_ROUNDS=${MIDI_LINEARIZABILITY_ROUNDS:-8}
    said=$said.others failed=()
    : >"$said"
    for name in ${HOSTS:-redis-8.6 valkey-9.1}; do [ "$name" = none ] || test_on "$name"; done
    printf '%s\n' "${failed[@]}" >"$said.failed"
}
on_other_hosts >"$said.log" 2>&1 &
others=$!
echo "Testing on $(host_version "$MIDI_REDIS_SERVER"), $MIDI_REDIS_SERVER"
export MIDI_HOST
MIDI_HOST=$(host_name "$MIDI_REDIS_SERVER")
count_tests cargo test --locked --workspace --no-fail-fast || failed+=("$MIDI_REDIS_SERVER")
# Connections once more, over what else the port speaks.
for stream in tls unix; do
    echo "Testing with MIDI_STREAM=$stream"
    MIDI_STREAM=$stream count_tests cargo test --locked --workspace --no-fail-fast --test port -- \
        gates:: held_replies:: large:: mget:: serving:: session:: strangers:: transactions:: watch:: || failed+=("MIDI_STREAM=$stream")
done
# And with the other driver of the port's sockets; the faults of socket_faults:: are those of calls that it does not make.
echo "Testing with MIDI_IO=io_uring"
MIDI_IO=io_uring count_tests cargo test --locked --workspace --no-fail-fast --test port -- \
    faults:: floods:: session:: --skip socket_faults:: || failed+=("MIDI_IO=io_uring")
# What the other hosts' tests have printed so far, and the rest as it comes.
tail -n +1 -f --pid="$others" "$said.log"
wait "$others" || failed+=("the other hosts")
cat "$said.others" >>"$said"
while read -r name; do [ -z "$name" ] || failed+=("$name"); done <"$said.others.failed"
tell_counts
