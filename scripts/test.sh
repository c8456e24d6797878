#!/usr/bin/env bash
# All tests. They find the servers through MIDI_REDIS_SERVER and MIDI_VALKEY_SERVER.
. "$(dirname "$0")/setup.sh"
setup redis
setup_valkey
setup_python_client
# The integration tests load this into a server.
cargo build --release --locked
cargo test --release --locked --workspace
