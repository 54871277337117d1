#!/bin/bash
# Builds what tests/cri needs from the Go module proxy: crictl, critest and
# ginkgo into build/cri-tools-VERSION, and runc into build/runc-VERSION, unless
# they exist.
#
# critest is built from a copy of its module in which the digest of one image is
# replaced by that of our stand-in (tests/cri/images). runc is newer than
# Debian's, which has neither user namespaces nor recursive read-only mounts.
set -euo pipefail
cd "$(dirname "$0")/../.."
go=${GO:-go}

fail() { printf 'critools: error: %s\n' "$*" >&2; exit 1; }

version=$(sed -n 's/^const CRIToolsVersion = "\(.*\)"/\1/p' tests/cri/env/paths.go)
digest=$(sed -n 's/^const PinnedDigest = "\(.*\)"/\1/p' tests/cri/images/catalog.go)
runc=v$(sed -n 's/^const RuncVersion = "\(.*\)"/\1/p' tests/cri/env/paths.go)

build_critools() {
	local out=$PWD/build/cri-tools-$version done
	done=$out/complete
	if [ "$(cat "$done" 2>/dev/null)" = "$digest" ]; then
		echo "cri-tools $version: up to date"
		return
	fi
	echo "cri-tools $version: building crictl, critest and ginkgo (about two minutes the first time)"
	local module
	module=$(cd / && $go mod download -json "sigs.k8s.io/cri-tools@v$version" |
		sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	[ -d "$module" ] || fail "the Go module proxy has no cri-tools $version"
	src=$(mktemp -d) # not local: the trap runs at the end of the script
	trap 'rm -rf "$src"' EXIT
	cp -r "$module/." "$src"
	chmod -R u+w "$src"
	local consts=$src/pkg/validate/consts.go
	sed -i "/testLinuxImageWithDigest *=/s/sha256:[0-9a-f]*/$digest/" "$consts"
	grep -q "$digest" "$consts" || fail "the digest is not where it was in pkg/validate/consts.go"
	mkdir -p "$out"
	(
		cd "$src"
		export GOFLAGS=-buildvcs=false CGO_ENABLED=0
		$go build -trimpath -ldflags "-s -w -X sigs.k8s.io/cri-tools/pkg/version.Version=$version" -o "$out/" ./cmd/crictl
		$go test -c -trimpath -ldflags "-s -w" -o "$out/critest" ./cmd/critest
		$go build -trimpath -ldflags "-s -w" -o "$out/" github.com/onsi/ginkgo/v2/ginkgo
	) || fail "the build of cri-tools $version failed"
	echo "$digest" >"$done"
	echo "cri-tools $version: built in build/cri-tools-$version"
}

build_runc() {
	local out=$PWD/build/runc-${runc#v}
	if [ -e "$out/complete" ]; then
		echo "runc ${runc#v}: up to date"
		return
	fi
	echo "runc ${runc#v}: building (about half a minute)"
	GOBIN=$out GOFLAGS=-buildvcs=false $go install -trimpath -ldflags "-s -w" -tags seccomp \
		"github.com/opencontainers/runc@$runc" || fail "the build of runc failed: is libseccomp-dev there?"
	touch "$out/complete"
	echo "runc ${runc#v}: built in build/runc-${runc#v}"
}

build_critools
build_runc
