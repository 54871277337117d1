#!/bin/bash
# Builds the Debian package, installs it as a user would, runs a container in a
# virtual machine with it, removes it, and fails if any of it is left. Run it only
# in a disposable root file system (tests/distro).
set -euo pipefail
cd "$(dirname "$0")/../.."
say() { printf 'trydeb: %s\n' "$*"; }
fail() { printf 'trydeb: error: %s\n' "$*" >&2; exit 1; }

tests/tools/deps.sh
make --no-print-directory deb
package=$(ls -t build/katabox_*.deb | head -1)
export DEBIAN_FRONTEND=noninteractive

find /usr /etc /var/lib -xdev -not -path '/var/lib/dpkg*' | sort >/tmp/before
apt-get install -y --no-install-recommends "./$package" >/tmp/apt.log 2>&1 || { cat /tmp/apt.log; fail "the package cannot be installed"; }
say "installed $(dpkg-query -W -f '${Package} ${Version}' katabox): $(kata-runtime version)"
[ "$(command -v kata-runtime)" = /usr/bin/kata-runtime ] || fail "kata-runtime is not the package's"
for file in /usr/share/man/man8/kata-runtime.8.gz /usr/share/bash-completion/completions/kata-runtime; do
	[ -s "$file" ] || fail "$file is missing or empty"
done
kata-runtime check

mkdir -p /tmp/rootfs/bin
cp /usr/bin/busybox /tmp/rootfs/bin/busybox
code=0
out=$(kata-runtime run --rm --network none /tmp/rootfs /bin/busybox sh -c 'echo "kernel $(/bin/busybox uname -r)"; exit 42') || code=$?
[ "$code" = 42 ] || fail "exit code $code, want 42: $out"
case $out in
"kernel "*) say "a container ran in a virtual machine: $out, exit code 42" ;;
*) fail "the container wrote \"$out\"" ;;
esac

rm -rf /var/lib/katabox # images and containers are the user's, not the package's
apt-get purge -y katabox >/tmp/apt.log 2>&1 || { cat /tmp/apt.log; fail "the package cannot be removed"; }
find /usr /etc /var/lib -xdev -not -path '/var/lib/dpkg*' | sort >/tmp/after
left=$(comm -13 /tmp/before /tmp/after)
[ -z "$left" ] || fail "the package left: $left"
say "removed: nothing is left"
