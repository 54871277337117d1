#!/bin/bash
# Gets a Kubernetes node for tests/k8s into build/k8s-VERSION, unless it exists:
# kubelet, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl,
# built from the Go module proxy, etcd from Debian's package, which is unpacked
# there and not installed, and the controller of the SIG's Agent Sandbox with its
# CustomResourceDefinitions. With the argument "conformance" also Kubernetes' own
# suite, e2e.test, with ginkgo, which runs it, and agnhost, which its pods run.
#
# Kubernetes' module names its parts (k8s.io/api and others) by directories that
# the module does not contain. A generated module replaces them by the releases
# of the same parts.
set -euo pipefail
cd "$(dirname "$0")/../.."
go=${GO:-go}

fail() { printf 'k8s: error: %s\n' "$*" >&2; exit 1; }

version=$(sed -n 's/^const Version = "\(.*\)"/\1/p' tests/k8s/paths.go)
parts=0.${version#*.}
out=$PWD/build/k8s-$version
programs=(kubelet kube-apiserver kube-controller-manager kube-scheduler kubectl)
sandbox=$(sed -n 's/^const SandboxVersion = "\(.*\)"/\1/p' tests/k8s/paths.go)
package=k8s.io/component-base/version
versioned="-s -w -X $package.gitVersion=v$version -X $package.gitMajor=${version%%.*} -X $package.gitMinor=$(cut -d. -f2 <<<"$version")"

# write_module DIR writes the generated module.
write_module() {
	local file
	file=$(cd / && $go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
	[ -f "$file" ] || fail "the Go module proxy has no Kubernetes $version"
	mkdir -p "$1"
	{
		echo "module node"
		sed -n '/^go /p; /^godebug [^(]/p' "$file"
		echo "require k8s.io/kubernetes v$version"
		sed -n "s|^\t\(k8s.io/[^ ]*\) => ./staging/.*|replace \1 => \1 v$parts|p" "$file"
	} >"$1/go.mod"
}

build_programs() {
	if [ -e "$out/complete" ]; then
		echo "Kubernetes $version: up to date"
		return
	fi
	echo "Kubernetes $version: building ${programs[*]} (about ten minutes the first time)"
	write_module "$out/module"
	local name
	(
		cd "$out/module"
		export GOFLAGS="${GOFLAGS:-} -buildvcs=false -mod=mod" CGO_ENABLED=0
		for name in "${programs[@]}"; do
			$go build -trimpath -o "$out/" -ldflags "$versioned" "k8s.io/kubernetes/cmd/$name" || fail "the build of $name failed"
			echo "Kubernetes $version: $name is built"
		done
	)
	touch "$out/complete"
	echo "Kubernetes $version: built in $out"
}

build_sandbox() {
	local types=$out/agent-sandbox-$sandbox module
	if [ -e "$types" ]; then
		echo "Agent Sandbox $sandbox: up to date"
		return
	fi
	echo "Agent Sandbox $sandbox: building its controller (about a minute)"
	module=$(cd / && $go mod download -json "sigs.k8s.io/agent-sandbox@v$sandbox" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	[ -d "$module" ] || fail "the Go module proxy has no Agent Sandbox $sandbox"
	# Not "go install": that also asks the proxy for a list of versions, which not
	# every proxy has.
	(cd "$module" && GOFLAGS="${GOFLAGS:-} -buildvcs=false" CGO_ENABLED=0 $go build -trimpath -ldflags "-s -w" -o "$out/" ./cmd/agent-sandbox-controller) ||
		fail "the build of Agent Sandbox failed"
	rm -rf "$types.part"
	cp -r "$module/k8s/crds" "$types.part"
	chmod -R u+w "$types.part"
	mv "$types.part" "$types"
	echo "Agent Sandbox $sandbox: built in $out"
}

# copy_certificate copies what agnhost's image serves HTTPS with.
copy_certificate() {
	local module name
	module=$(cd / && $go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	for name in localhost.crt localhost.key; do
		install -m 644 "$module/test/images/agnhost/porter/$name" "$out/$name" || fail "Kubernetes $version has no $name for agnhost's image"
	done
}

build_suite() {
	copy_certificate
	if [ -e "$out/suite-complete" ]; then
		echo "Kubernetes' suite $version: up to date"
		return
	fi
	echo "Kubernetes' suite $version: building e2e.test, ginkgo and agnhost (about ten minutes the first time)"
	(
		cd "$out/module"
		export GOFLAGS="${GOFLAGS:-} -buildvcs=false -mod=mod" CGO_ENABLED=0
		$go build -trimpath -o "$out/" -ldflags "-s -w" k8s.io/kubernetes/test/images/agnhost &&
			$go build -trimpath -o "$out/" -ldflags "-s -w" github.com/onsi/ginkgo/v2/ginkgo &&
			$go test -c -trimpath -vet=off -o "$out/e2e.test" -ldflags "$versioned" k8s.io/kubernetes/test/e2e
	) || fail "the build of Kubernetes' suite $version failed"
	touch "$out/suite-complete"
	echo "Kubernetes' suite $version: built in $out"
}

unpack_etcd() {
	if [ -x "$out/etcd" ]; then
		echo "etcd: up to date"
		return
	fi
	work=$(mktemp -d) # not local: the trap runs at the end of the script
	trap 'rm -rf "$work"' EXIT
	chmod 755 "$work"
	(cd "$work" && apt-get -qq -o APT::Sandbox::User=root download etcd-server) ||
		fail "apt-get download etcd-server failed: run apt-get update"
	dpkg -x "$work"/etcd-server_*.deb "$work/root"
	mkdir -p "$out"
	cp "$work/root/usr/bin/etcd" "$out/etcd.part"
	mv "$out/etcd.part" "$out/etcd"
	echo "etcd: unpacked in $out"
}

unpack_etcd
build_programs
build_sandbox
if [ "${1:-}" = conformance ]; then
	build_suite
fi
