#!/bin/bash
# Installs the missing Debian packages that building and testing need. Needs root
# only if any is missing.
set -euo pipefail

packages=(
	ca-certificates git make          # the checkout and its Makefile
	gcc libc6-dev pkg-config          # cgo: the agent, the race detector
	libseccomp-dev                    # the agent's seccomp filters
	qemu-system-x86                   # the VM; in Debian 12 its common part has the virtiofsd of some tests
	containerd runc                   # the 1.6 that the suites run with
	podman                            # one of the engines under which kata-runtime is tested
	ovmf                              # UEFI firmware in a test of hypervisor/qemu
	busybox-static                    # the test image
	containernetworking-plugins iptables # the pods' network in tests/cri and tests/network
	iperf3                            # the network part of the benchmark
	curl                              # what an image of make conformance has of it
	erofs-utils                       # root file systems of images in tests/containerd
	xfsprogs                          # a volume that grows in agent/guesttest
	e2fsprogs                         # images of emptyDir volumes; root file systems in tests/containerd
	passt slirp4netns                 # networks of containers without an engine
	debootstrap                       # the other Debian of tests/distro
	iproute2 kmod cpio lz4 xz-utils zstd # guest image and tests
)

say() { printf 'deps: %s\n' "$*"; }
fail() { printf 'deps: error: %s\n' "$*" >&2; exit 1; }

command -v go >/dev/null || [ -x /usr/local/go/bin/go ] ||
	fail "Go is not there: install it (this module needs $(sed -n 's/^go //p' go.mod) or later)"

command -v dpkg-query >/dev/null ||
	fail "this is not Debian: install what these packages stand for: ${packages[*]}"

missing=()
for p in "${packages[@]}"; do
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null || true)" = installed ] || missing+=("$p")
done

if [ ${#missing[@]} -eq 0 ]; then
	say "all ${#packages[@]} packages are there"
	exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
	fail "not root; run: sudo apt-get install --no-install-recommends ${missing[*]}"
fi

say "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() { "$@" >"$log" 2>&1 || { cat "$log" >&2; fail "$* failed"; }; }

# The packages' services must not start: the suites run their own daemons.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod +x "$policy"
	trap 'rm -f "$log" "$policy"' EXIT
fi
run apt-get -o Acquire::Retries=5 update
run apt-get -o Acquire::Retries=5 install -y --no-install-recommends "${missing[@]}"
say "installed"
