#!/bin/bash
# Prints the version of this checkout: VERSION at the commit that is tagged
# "v" and VERSION, and in an archive without git; else VERSION-dev.TIME.COMMIT,
# with the commit's time in UTC, so that a later one is newer for semver, apt
# and people. ".dirty" says that files differ from the commit.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(cat VERSION)
git() { command git -c safe.directory="$PWD" "$@" 2>/dev/null; }

if ! commit=$(git rev-parse --short=10 HEAD); then
	echo "$version"
	exit
fi
dirty=
git diff --quiet HEAD -- || dirty=.dirty
if [ -z "$dirty" ] && git tag --points-at HEAD | grep -qxF "v$version"; then
	echo "$version"
	exit
fi
echo "$version-dev.$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y%m%d%H%M%S).$commit$dirty"
