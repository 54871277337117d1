#!/bin/bash
# Installs the missing Debian packages that building and testing need. Needs root
# only if any is missing. Nothing that is installed is removed for them: two
# packages are unpacked below build/packages instead where they conflict with one
# that is there.
#
#   deps.sh       install them
#   deps.sh -n    print what would be done, and change nothing
set -euo pipefail
cd "$(dirname "$0")/../.."

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

dry=
[ "${1:-}" != -n ] || dry=1

states=$(dpkg-query -W -f '${db:Status-Status} ${Package} ${Provides}\n')
installed=$(awk '$1 == "installed" { print $2 }' <<<"$states")
# Each line is "installed PACKAGE NAME (= VERSION), NAME, ...".
provided=$(sed -n 's/^installed [^ ]* //p' <<<"$states" | tr , '\n' | awk '{ print $1 }')

has() { grep -qxF -- "$1" <<<"$2"; }

# unpacked reports whether a package that is not installed is to be unpacked, since
# installing it would remove another: Debian's busybox is the same program with
# shared libraries, and Docker's containerd.io provides containerd. The suites need
# the distribution's own containerd, but no particular runc.
unpacked() {
	case $1 in
	busybox-static) has busybox "$installed" ;;
	containerd) has containerd "$provided" ;;
	*) return 1 ;;
	esac
}

missing=() unpack=()
for p in "${packages[@]}"; do
	if has "$p" "$installed"; then
		continue
	elif unpacked "$p"; then
		[ -d "build/packages/$p" ] || unpack+=("$p")
	elif ! has "$p" "$provided"; then
		missing+=("$p")
	fi
done

if [ ${#missing[@]} -eq 0 ] && [ ${#unpack[@]} -eq 0 ]; then
	say "all ${#packages[@]} packages are there"
	exit 0
fi

install=(install -y --no-install-recommends --no-remove)

# refuse_removal fails if packages would be removed for the missing ones.
refuse_removal() {
	local gone
	gone=$(LC_ALL=C apt-get -s install --no-install-recommends "${missing[@]}" | awk '$1 == "Remv" { printf " %s", $2 }')
	[ -z "$gone" ] || fail "installing ${missing[*]} would remove$gone: nothing was installed." \
		"Remove those yourself if this host can do without them, or use another machine"
}

if [ -n "$dry" ]; then
	[ ${#unpack[@]} -eq 0 ] || say "would unpack ${unpack[*]}"
	[ ${#missing[@]} -gt 0 ] || exit 0
	refuse_removal
	say "would install ${missing[*]}"
	exec apt-get -s "${install[@]}" "${missing[@]}"
fi
if [ ${#missing[@]} -gt 0 ] && [ "$(id -u)" -ne 0 ]; then
	fail "not root; run: sudo apt-get install --no-install-recommends --no-remove ${missing[*]}"
fi

export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
work=$(mktemp -d)
made=()
trap 'rm -rf "$log" "$work" "${made[@]}"' EXIT
run() { "$@" >"$log" 2>&1 || { cat "$log" >&2; fail "$* failed"; }; }

[ "$(id -u)" -ne 0 ] || run apt-get -o Acquire::Retries=5 update

# Each package gets a directory; build/packages/bin is in the PATH of the Makefile.
for p in "${unpack[@]}"; do
	say "unpacking $p in build/packages"
	mkdir -p "$work/$p" build/packages/bin
	chmod 755 "$work" # apt's own user downloads
	(cd "$work" && run apt-get -o Acquire::Retries=5 -o APT::Sandbox::User=root download "$p")
	run dpkg-deb -x "$work/$p"_*.deb "$work/$p"
	if [ "$p" = busybox-static ]; then
		box=$(cd "$work" && find "$p" -path '*bin/busybox')
		ln -sfn "../$box" build/packages/bin/busybox
	fi
	mv "$work/$p" "build/packages/$p"
	chown --reference=. build && chown -R --reference=. build/packages # a user builds there
done

[ ${#missing[@]} -gt 0 ] || exit 0
say "installing ${missing[*]}"
refuse_removal

# The packages' services must not start: the suites run their own daemons.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	made=("$policy")
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod +x "$policy"
fi
run apt-get -o Acquire::Retries=5 "${install[@]}" "${missing[@]}"
say "installed"
