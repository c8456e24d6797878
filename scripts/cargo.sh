#!/usr/bin/env bash
# Runs cargo after installing what the build needs.
. "$(dirname "$0")/setup.sh"
setup
exec cargo "$@"
