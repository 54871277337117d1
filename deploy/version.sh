#!/bin/bash
# Prints the version of this checkout: VERSION if the commit is tagged vVERSION, or
# in an archive without git (also within another repository), otherwise
# VERSION-dev.TIME.COMMIT, with the commit's time in UTC, so that semver, apt and
# people see a later one as newer. ".dirty" says that files differ from the commit.
set -euo pipefail
cd -P "$(dirname "$0")/.."
version=$(cat VERSION)
git() { command git -c safe.directory="$PWD" "$@" 2>/dev/null; }

if [ "$(git rev-parse --show-toplevel)" != "$PWD" ] || ! commit=$(git rev-parse --short=10 HEAD); then
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
