#!/bin/bash
# Gets a QEMU that can save a machine with a share of files (8.2 or later) for the
# tests of checkpoints: into build/qemu, from Debian's backports, unpacked and not
# installed. Where the installed one is new enough, nothing is done.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=build/qemu
site_format='$(SITE)'
work=
fail() { printf 'qemu: error: %s\n' "$*" >&2; exit 1; }
trap '[ -z "$work" ] || rm -rf "$work"' EXIT

version() { "$1" --version | sed -n 's/^QEMU emulator version \([0-9]*\.[0-9]*\).*/\1/p'; }
new_enough() { printf '8.2\n%s\n' "$1" | sort -C -V; }

if new_enough "$(version qemu-system-x86_64)"; then
	echo "qemu: the installed one, $(version qemu-system-x86_64), is new enough"
	exit 0
fi
if [ -e $out/complete ]; then
	echo "qemu: $(version $out/usr/bin/qemu-system-x86_64): up to date"
	exit 0
fi
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:?}")
site=$(apt-get indextargets --format "$site_format" 'Origin: Debian' "Codename: $codename" | head -1)
[ -n "$site" ] || fail "apt knows no archive of Debian $codename"
work=$(mktemp -d)
chmod 755 "$work" # apt downloads as another user
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/packages"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site $codename-backports main" >"$work/sources.list"
options=(-qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache")
echo "qemu: getting a later one from $codename-backports"
apt-get "${options[@]}" update
(cd "$work/packages" && apt-get "${options[@]}" -o APT::Sandbox::User=root download qemu-system-x86 qemu-system-common qemu-system-data)
rm -rf $out
mkdir -p $out
for package in "$work"/packages/*.deb; do dpkg-deb -x "$package" $out; done
# The firmware's package has another version, which this QEMU looks for beside itself.
[ -d $out/usr/share/seabios ] || cp -r /usr/share/seabios $out/usr/share/
! ldd $out/usr/bin/qemu-system-x86_64 | grep "not found" || fail "the unpacked QEMU lacks libraries"
touch $out/complete
echo "qemu: $(version $out/usr/bin/qemu-system-x86_64), in $out"
