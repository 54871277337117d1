#!/bin/bash
# Prints the path of a virtiofsd: QEMU's own if its packages include one (Debian
# 12), otherwise the one in Rust, whose package is installed if it is missing.
set -euo pipefail

fail() { printf 'virtiofsd: error: %s\n' "$*" >&2; exit 1; }

for path in /usr/lib/qemu/virtiofsd /usr/libexec/virtiofsd; do
	if [ -x "$path" ]; then
		echo "$path"
		exit 0
	fi
done
[ "$(id -u)" -eq 0 ] || fail "not root; run: sudo apt-get install --no-remove virtiofsd"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for words in update 'install -y --no-install-recommends --no-remove virtiofsd'; do
	# shellcheck disable=SC2086
	DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=5 $words >"$log" 2>&1 ||
		{ cat "$log" >&2; fail "apt-get $words failed"; }
done
echo /usr/libexec/virtiofsd
