#!/usr/bin/env bash
# cargo, after setting up what building needs.
. "$(dirname "$0")/setup.sh"
setup
exec cargo "$@"
