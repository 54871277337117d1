#!/bin/bash
# Builds build/katabox_VERSION_ARCH.deb from what "make install" installs, with
# the manual page and completion scripts. bin/ and build/guest must be built.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022 # everyone may read what the package has
say() { printf 'deb: %s\n' "$*"; }

arch=$(dpkg --print-architecture)
version=$(deploy/version.sh)
version=${version/-/\~} # a "dev" version sorts before the release: deb-version(7)
case $arch in
amd64) qemu=qemu-system-x86 ;;
*)
	echo "deb: there is no guest for $arch yet, only for amd64" >&2
	exit 1
	;;
esac

root=$PWD/build/deb
rm -rf "$root"
make --no-print-directory stage DESTDIR="$root" PREFIX=/usr >/dev/null
install -D -m 644 LICENSE "$root/usr/share/doc/katabox/copyright"
for doc in README.md CHANGELOG.md docs/configuration.md docs/troubleshooting.md; do
	gzip -9nc "$doc" >"$root/usr/share/doc/katabox/$(basename "$doc").gz"
done

gzip -9n "$root"/usr/share/man/man8/*

mkdir "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<CONTROL
Package: katabox
Version: $version
Architecture: $arch
Maintainer: The Katabox authors <katabox@localhost>
Section: admin
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Depends: $qemu (>= 1:7.2)
Recommends: containerd | podman | docker.io
Suggests: passt, slirp4netns
Conflicts: kata-containers
Description: runs each container pod in a light virtual machine
 A runtime for containerd (io.containerd.kata.v2), iSulad, Podman and Docker:
 one host process for each pod starts one QEMU and talks over vsock to an agent,
 which is the guest's first process and runs the pod's containers. KVM makes
 pods fast, but is not required. The configuration has the keys of Kata
 Containers.
CONTROL
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"

out=build/katabox_${version}_$arch.deb
dpkg-deb --root-owner-group -Zxz --build "$root" "$out" >/dev/null
rm -rf "$root"
say "$out ($(du -h "$out" | cut -f1)): apt install ./$out"
