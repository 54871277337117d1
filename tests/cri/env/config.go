package env

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/image"
)

// The runtime handlers of Katabox. The first has no options: containerd 2.4 cannot
// start a container of a pod with a user namespace whose handler has options that
// are not runc's (containerd, client/task_opts_unix.go, WithUIDOwner). So it finds
// its configuration by KATA_CONF_FILE, and the second one by ConfigPath.
const (
	KataHandler       = "kata"
	ConfiguredHandler = "kata-config"
)

// ConfiguredMemoryMiB is the memory of a pod of ConfiguredHandler, by which its
// configuration file is known.
const ConfiguredMemoryMiB = 384

// criPlugins are what the harness turns off and CRI needs (containerd,
// plugins/cri/cri.go, Requires).
var criPlugins = []string{
	"io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "io.containerd.nri.v1.nri",
}

// prepare writes the files beside containerd's configuration, and returns what
// is to be added to it.
func (e *Env) prepare(d *harness.Daemon) (string, error) {
	e.network = newNetwork(d)
	// A pod in a user namespace must be able to reach its root file system.
	if err := os.Chmod(d.Dir, 0o711); err != nil {
		return "", fmt.Errorf("open daemon directory: %w", err)
	}
	hosts := filepath.Join(certsDir(d), "_default", "hosts.toml")
	for path, text := range map[string]string{
		hosts: fmt.Sprintf("server = %q\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", e.registry.URL, e.registry.URL),
		filepath.Join(e.network.confDir, "10-pods.conflist"): e.network.conflist(),
		crictlConfig(d): fmt.Sprintf("runtime-endpoint: unix://%s\nimage-endpoint: unix://%[1]s\ntimeout: 300\n", d.Socket()),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return "", fmt.Errorf("make directory: %w", err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return "", fmt.Errorf("write configuration: %w", err)
		}
	}
	if d.Runtime().VM {
		if err := e.writeOtherKataConfig(d); err != nil {
			return "", err
		}
	}
	return e.containerdConfig(d), nil
}

// writeOtherKataConfig writes the configuration of ConfiguredHandler: the
// daemon's, and a little more memory.
func (e *Env) writeOtherKataConfig(d *harness.Daemon) error {
	other := e.kata
	other.MemoryMiB = ConfiguredMemoryMiB
	return other.Write(d.Layout(), otherKataConfig(d))
}

func otherKataConfig(d *harness.Daemon) string { return filepath.Join(d.Dir, "other.toml") }

func certsDir(d *harness.Daemon) string { return filepath.Join(d.Dir, "certs.d") }

func crictlConfig(d *harness.Daemon) string { return filepath.Join(d.Dir, "crictl.yaml") }

// containerdConfig is CRI's part of containerd's configuration (containerd,
// docs/cri/config.md).
func (e *Env) containerdConfig(d *harness.Daemon) string {
	var b strings.Builder
	table := func(name string, lines ...string) {
		fmt.Fprintf(&b, "[plugins.%s]\n  %s\n", name, strings.Join(lines, "\n  "))
	}
	set := func(key string, value any) string { return fmt.Sprintf("%s = %#v", key, value) }

	// Its socket would be the host's.
	table("'io.containerd.nri.v1.nri'", "disable = true")
	table("'io.containerd.cri.v1.images'", set("snapshotter", d.Snapshotter))
	// Imported by the harness; the suite removes pause:3.9 and wants to see
	// it gone, so the pods' own image is another one.
	table("'io.containerd.cri.v1.images'.pinned_images", set("sandbox", image.Pause))
	table("'io.containerd.cri.v1.images'.registry", set("config_path", certsDir(d)))
	table("'io.containerd.cri.v1.runtime'",
		// Root may lack CAP_SYS_RESOURCE, as in a container.
		"restrict_oom_score_adj = true",
		"netns_mounts_under_state_dir = true")
	table("'io.containerd.cri.v1.runtime'.cni", fmt.Sprintf("bin_dirs = [%q]", cniBinDir), set("conf_dir", e.network.confDir))
	table("'io.containerd.cri.v1.runtime'.containerd", set("default_runtime_name", harness.Runc.Name))

	const runtimes = "'io.containerd.cri.v1.runtime'.containerd.runtimes."
	table(runtimes+"runc", set("runtime_type", harness.Runc.Type))
	table(runtimes+"runc.options", set("BinaryName", runcPath(d.Layout())))
	if d.Runtime().VM {
		for _, handler := range []string{KataHandler, ConfiguredHandler} {
			table(runtimes+handler, set("runtime_type", harness.Kata.Type),
				"privileged_without_host_devices = true",
				"pod_annotations = ['io.katacontainers.*']")
		}
		table(runtimes+ConfiguredHandler+".options", set("ConfigPath", otherKataConfig(d)))
	}
	return b.String()
}
