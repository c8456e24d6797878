#!/usr/bin/env bash
# Prints the notes of a release: packaging/release-notes.md with a version and its part of CHANGELOG.md.
# Usage: scripts/release-notes.sh VERSION
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?a version, such as 0.2.0}
changes=$(awk -v head="## $version " '/^## / { on = index($0 " ", head) == 1; next } on' CHANGELOG.md)
[ -n "$changes" ] || { echo "CHANGELOG.md has no part for $version." >&2; exit 1; }
! grep -q "^## $version .*unreleased" CHANGELOG.md || { echo "CHANGELOG.md has no date for $version." >&2; exit 1; }
# Where GitHub shows the notes, a link to a file needs the whole address.
base=
[ -z "${GITHUB_REPOSITORY:-}" ] || base=$GITHUB_SERVER_URL/$GITHUB_REPOSITORY/blob/v$version/
awk -v version="$version" -v changes="${changes//\\/\\\\}" '
    /^<!--/ { comment = 1 }
    !comment { gsub(/@VERSION@/, version); if ($0 == "@CHANGES@") print changes; else print }
    /-->$/ { comment = 0 }
' packaging/release-notes.md | sed "s%](\([^):#]\{1,\}[)#]\)%](${base//&/\\&}\1%g"
