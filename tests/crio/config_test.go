package crio

import (
	"fmt"

	"github.com/katabox/katabox/tests/engines/host"
)

// networkConf is an isolated bridge.
const networkConf = `{"cniVersion": "0.4.0", "name": "crio", "plugins": [{"type": "bridge", "bridge": "crio0", "isGateway": true,
"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.77.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}`

// registriesConf makes all images come from one registry.
func registriesConf(address string) string {
	return fmt.Sprintf("[[registry]]\nprefix = \"registry.k8s.io\"\nlocation = %q\ninsecure = true\n", address)
}

// crioConf is CRI-O's configuration, with the checkout's Katabox.
func crioConf() string {
	return nodeConf() + fmt.Sprintf(`
[crio.runtime.runtimes.kata]
runtime_path = "%[2]s/containerd-shim-kata-v2"
runtime_type = "vm"
runtime_root = "/run/vc"
privileged_without_host_devices = true
[crio.runtime.runtimes.kata-oci]
runtime_path = "%[2]s/kata-runtime"
runtime_type = "oci"
runtime_root = "%[1]s/kata"
`, workDir, layout.Bin())
}

// nodeConf is that of a node without Katabox.
func nodeConf() string {
	return fmt.Sprintf(`
[crio]
root = "%[1]s/storage"
runroot = "%[1]s/run"
storage_driver = "vfs"
log_dir = "%[1]s/logs"
version_file = "%[1]s/version"
clean_shutdown_file = "%[1]s/clean.shutdown"
[crio.api]
listen = "%[1]s/crio.sock"
[crio.runtime]
default_runtime = "runc"
conmon = "/usr/bin/conmon"
conmon_cgroup = "pod"
cgroup_manager = "cgroupfs"
pinns_path = "%[2]s/pinns"
namespaces_dir = "%[1]s/ns"
container_exits_dir = "%[1]s/exits"
container_attach_socket_dir = "%[1]s/attach"
apparmor_profile = "unconfined"
hooks_dir = []
drop_infra_ctr = false
[crio.runtime.runtimes.runc]
runtime_path = "%[1]s/runc.sh"
runtime_type = "oci"
runtime_root = "%[1]s/runc"
[crio.image]
pause_image = "registry.k8s.io/pause:3.9"
pause_command = ""
[crio.network]
plugin_dirs = ["/usr/lib/cni"]
[crio.nri]
enable_nri = false
`, workDir, crioDir())
}

// runcScript is runc for a root that may not lower its processes' OOM score
// (CAP_SYS_RESOURCE), as CRI-O wants for the pause container.
const runcScript = `#!/bin/sh
for word; do
	[ "$before" != --bundle ] || sed -i 's/"oomScoreAdj": *-[0-9]*/"oomScoreAdj":0/' "$word/config.json"
	before=$word
done
exec runc "$@"
`

// cgroupParent returns the parent of all pods' cgroups, which are not private
// to the host.
func cgroupParent() string { return "/" + host.Name() }

// removeCgroups removes it, including what CRI-O leaves in it.
func removeCgroups() error { return host.RemoveCgroups(cgroupParent()) }
