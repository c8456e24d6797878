#!/usr/bin/env bash
# cargo-deny with deny.toml. Installs it into target/tools, which takes minutes the first time. The list of advisories
# is fetched each time; where it cannot be, everything else is checked.
. "$(dirname "$0")/setup.sh"
setup
PATH=$root/target/tools/bin:$PATH
have cargo-deny || cargo install --locked --root "$root/target/tools" cargo-deny
cargo deny --locked fetch db || { echo "SKIPPED: advisories: their list could not be fetched."; set -- bans licenses sources; }
exec cargo deny --locked check "$@"
