#!/bin/bash
# Gets the engines of tests/engines into build/engines: nerdctl and Docker 28 from
# the Go module proxy, Debian's Docker and Podman from their packages, which are
# unpacked there and not installed. An engine that exists is skipped.
#
#   engines.sh [nerdctl] [docker] [debian]    all of them without an argument
#   engines.sh crio                           CRI-O, for tests/crio
set -euo pipefail
cd "$(dirname "$0")/../.."
go=${GO:-go}
root=$PWD/build/engines
work=

fail() { printf 'engines: error: %s\n' "$*" >&2; exit 1; }
trap '[ -z "$work" ] || rm -rf "$work"' EXIT

version_of() { sed -n "s/^\t$1 *= \"\([^\"]*\)\".*/\1/p" tests/engines/paths.go; }

# The packages, and their dependencies beyond what tests/tools/deps.sh installs.
# podman's libraries are listed by their names in Debian 12; elsewhere they come
# with the podman that deps.sh installs.
packages=(
	docker.io              # dockerd, docker, docker-proxy
	podman conmon
	netavark aardvark-dns  # its networks, and names on them
	tini                   # --init
)
programs=() # what the engines call on the host, besides what deps.sh installs
case $(. /etc/os-release && echo "${VERSION_ID:-}") in
12) packages+=(libgpgme11 libassuan0 libsubid4) ;; # podman's libraries
*)
	packages+=(docker-cli) # a separate package since Debian 13
	programs=(ps)          # docker top
	;;
esac

# module_copy MODULE@VERSION makes a copy in $work that can be built: "go install"
# requires the list of a module's versions, which a proxy may not have. Docker's
# modules have no go.mod; their dependencies are in vendor.mod.
module_copy() {
	local dir
	dir=$(cd / && $go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	[ -d "$dir" ] || fail "the Go module proxy has no $1"
	rm -rf "$work"
	work=$(mktemp -d)
	cp -r "$dir/." "$work"
	chmod -R u+w "$work"
	[ -e "$work/vendor.mod" ] || return 0
	cp "$work/vendor.mod" "$work/go.mod"
	cp "$work/vendor.sum" "$work/go.sum"
}

build_nerdctl() {
	local version out
	version=$(version_of NerdctlVersion)
	out=$root/nerdctl-$version
	[ -e "$out/complete" ] && { echo "nerdctl $version: up to date"; return; }
	echo "nerdctl $version: building (about two minutes the first time)"
	mkdir -p "$out"
	module_copy "github.com/containerd/nerdctl/v2@v$version"
	(cd "$work" && GOFLAGS=-buildvcs=false CGO_ENABLED=0 $go build -trimpath -o "$out/" \
		-ldflags "-s -w -X github.com/containerd/nerdctl/v2/pkg/version.Version=v$version" ./cmd/nerdctl) ||
		fail "the build of nerdctl $version failed"
	touch "$out/complete"
	echo "nerdctl $version: built in $out"
}

build_docker() {
	local version out
	version=$(version_of DockerVersion)
	out=$root/docker-$version
	[ -e "$out/complete" ] && { echo "Docker $version: up to date"; return; }
	echo "Docker $version: building dockerd, docker-proxy and docker (about five minutes the first time)"
	mkdir -p "$out"
	export GOFLAGS="-buildvcs=false -mod=mod"
	module_copy "github.com/docker/docker@v$version+incompatible"
	(cd "$work" && $go build -trimpath -o "$out/" \
		-ldflags "-s -w -X github.com/docker/docker/dockerversion.Version=$version" \
		-tags "exclude_graphdriver_btrfs exclude_graphdriver_zfs" ./cmd/dockerd ./cmd/docker-proxy) ||
		fail "the build of Docker $version failed"
	module_copy "github.com/docker/cli@v$version+incompatible"
	(cd "$work" && CGO_ENABLED=0 $go build -trimpath -o "$out/" \
		-ldflags "-s -w -X github.com/docker/cli/cli/version.Version=$version" ./cmd/docker) ||
		fail "the build of Docker's client $version failed"
	unset GOFLAGS
	touch "$out/complete"
	echo "Docker $version: built in $out"
}

build_crio() {
	local version out
	version=$(version_of CRIOVersion)
	out=$root/crio-$version
	[ -e "$out/complete" ] && { echo "CRI-O $version: up to date"; return; }
	echo "CRI-O $version: building (about five minutes the first time)"
	mkdir -p "$out"
	module_copy "github.com/cri-o/cri-o@v$version"
	(cd "$work" && GOFLAGS="-buildvcs=false -mod=mod" $go build -trimpath -o "$out/" \
		-tags "containers_image_openpgp containers_image_ostree_stub exclude_graphdriver_btrfs exclude_graphdriver_devicemapper" ./cmd/crio &&
		gcc -std=c99 -Os -static -o "$out/pinns" pinns/src/*.c) ||
		fail "the build of CRI-O $version failed"
	touch "$out/complete"
	echo "CRI-O $version: built in $out"
}

# install_programs installs what a bare Debian lacks.
install_programs() {
	local name missing=()
	for name in "${programs[@]}"; do
		command -v "$name" >/dev/null && continue
		case $name in ps) missing+=(procps) ;; esac
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	echo "Debian's engines: installing ${missing[*]}"
	DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends --no-remove "${missing[@]}" >/dev/null ||
		fail "apt-get install ${missing[*]} failed: run apt-get update"
}

unpack_debian() {
	install_programs
	local out=$root/debian
	[ "$(cat "$out/complete" 2>/dev/null)" = "${packages[*]}" ] && { echo "Debian's engines: up to date"; return; }
	echo "Debian's engines: downloading ${packages[*]}"
	rm -rf "$out" && mkdir -p "$out"
	rm -rf "$work"
	work=$(mktemp -d)
	chmod 755 "$work" # apt's own user downloads
	(cd "$work" && apt-get -qq -o APT::Sandbox::User=root download "${packages[@]}") ||
		fail "apt-get download ${packages[*]} failed: run apt-get update"
	for p in "$work"/*.deb; do dpkg -x "$p" "$out"; done
	echo "${packages[*]}" >"$out/complete"
	echo "Debian's engines: unpacked in $out"
}

for part in "${@:-all}"; do
	case $part in
	nerdctl) build_nerdctl ;;
	docker) build_docker ;;
	debian) unpack_debian ;;
	crio) build_crio ;;
	all) build_nerdctl; build_docker; unpack_debian ;;
	*) fail "unknown part $part: want nerdctl, docker, debian or crio" ;;
	esac
done
