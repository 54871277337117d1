#!/bin/bash
# Builds the containerd 2.x of the suites from the Go module proxy into
# build/containerd-VERSION, unless they exist.
set -euo pipefail
cd "$(dirname "$0")/../.."

version=$(sed -n 's/^const ContainerdVersion = "\(.*\)"/\1/p' tests/harness/release.go)
out=$PWD/build/containerd-$version
module=github.com/containerd/containerd/v2
programs=(containerd ctr containerd-shim-runc-v2)

if [ -e "$out/complete" ]; then
	echo "containerd $version: up to date"
	exit 0
fi
mkdir -p "$out"
targets=()
for p in "${programs[@]}"; do
	targets+=("$module/cmd/$p@v$version")
done
echo "containerd $version: building ${programs[*]} (about two minutes the first time)"
if ! GOBIN=$out GOFLAGS=-buildvcs=false ${GO:-go} install -trimpath -ldflags "-s -w" \
	-tags no_btrfs,no_zfs,no_devmapper "${targets[@]}"; then
	echo "containerd $version: the build failed. Is the Go module proxy reachable" \
		"(go env GOPROXY) and does it have this version?" >&2
	exit 1
fi
touch "$out/complete"
echo "containerd $version: built in build/containerd-$version"
