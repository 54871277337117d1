#!/bin/bash
# Builds the suite of containerd's client from the Go module proxy, at the version
# of the containerd that tests/tools/containerd.sh builds, into
# build/containerd-client-VERSION. Nothing is done when it is there.
#
# Two things in the copy are not as they come, and no test is among them: the digest
# of the one image that is asked for by digest, which no stand-in can have, is taken
# from TEST_BUSYBOX_BY_DIGEST, and what may take a second or two has a minute:
# containerd's start, a container's first processes and its end.
set -euo pipefail
cd "$(dirname "$0")/../.."
go=${GO:-go}

version=$(sed -n 's/^const ContainerdVersion = "\(.*\)"/\1/p' tests/harness/release.go)
out=$PWD/build/containerd-client-$version
# What this script does to the copy is part of what was built.
stamp=$(sha256sum "$0" | cut -c1-16)
if [ "$(cat "$out/complete" 2>/dev/null)" = "$stamp" ]; then
	echo "containerd's client suite $version: up to date"
	exit 0
fi
work=
fail() { printf 'containerd client suite: error: %s\n' "$*" >&2; exit 1; }
trap '[ -z "$work" ] || rm -rf "$work"' EXIT

echo "containerd's client suite $version: building (about two minutes the first time)"
dir=$(cd / && $go mod download -json "github.com/containerd/containerd/v2@v$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
[ -d "$dir" ] || fail "the Go module proxy has no containerd $version"
work=$(mktemp -d)
cp -r "$dir/." "$work"
chmod -R u+w "$work"

# edit FILE PATTERN TEXT: the pattern must be there.
edit() {
	grep -q -- "$2" "$work/$1" || fail "$1 of containerd $version has no $2"
	sed -i "s|$2|$3|" "$work/$1"
}
edit integration/images/image_list.go '"ghcr.io/containerd/busybox@sha256:[0-9a-f]*"' 'os.Getenv("TEST_BUSYBOX_BY_DIGEST")'
for file in client_test.go container_linux_test.go restart_monitor_test.go; do
	edit integration/client/$file 'context.WithTimeout(\(.*\), [24]\*time.Second)' 'context.WithTimeout(\1, time.Minute)'
done
edit integration/client/container_test.go 'time.Now().Add(time.Second)' 'time.Now().Add(time.Minute)'
edit integration/client/container_test.go 'var timeout = 3 \* time.Second' 'var timeout = time.Minute'
edit integration/client/container_linux_test.go 'time.After(5 \* time.Second)' 'time.After(time.Minute)'
edit integration/client/container_test.go 'time.After([0-9]* \* time.\(Millis\|S\)econd)' 'time.After(time.Minute)'

mkdir -p "$out"
(cd "$work" && GOFLAGS=-buildvcs=false $go test -c -trimpath -o "$out/client.test" ./integration/client) ||
	fail "the build failed"
echo "$stamp" >"$out/complete"
echo "containerd's client suite $version: built in $out"
