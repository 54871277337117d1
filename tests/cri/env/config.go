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
	// SandboxHandler's pods have no pause container. containerd 1.x has no such
	// setting.
	SandboxHandler = "kata-sandbox"
)

// ConfiguredMemoryMiB is the memory of a pod of ConfiguredHandler, which shows
// that its configuration file is used.
const ConfiguredMemoryMiB = 384

// criPlugins are the plugins that CRI needs and the harness disables
// (containerd, plugins/cri/cri.go, Requires).
var criPlugins = []string{
	"io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "io.containerd.nri.v1.nri",
}

// prepare writes the files beside containerd's configuration, and returns what
// to append to it.
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

// section is a table of containerd's configuration, with its lines.
type section struct {
	name  string
	lines []string
}

func set(key string, value any) string { return fmt.Sprintf("%s = %#v", key, value) }

// containerdConfig is CRI's part of containerd's configuration.
func (e *Env) containerdConfig(d *harness.Daemon) string {
	sections, runtimes := e.criTables2(d)
	if d.Release().ConfigVersion < 3 {
		sections, runtimes = e.criTables1(d)
	}
	// Its socket would be the host's.
	sections = append(sections, section{"'io.containerd.nri.v1.nri'", []string{"disable = true"}})
	sections = append(sections, handlers(d, runtimes)...)
	var b strings.Builder
	for _, s := range sections {
		fmt.Fprintf(&b, "[plugins.%s]\n  %s\n", s.name, strings.Join(s.lines, "\n  "))
	}
	return b.String()
}

// ofPods are settings of CRI's that all releases have.
var ofPods = []string{
	// Root may lack CAP_SYS_RESOURCE, as in a container.
	"restrict_oom_score_adj = true",
	"netns_mounts_under_state_dir = true",
}

// criTables2 are CRI's settings since containerd 2.0 (docs/cri/config.md there),
// and in which table runtime handlers are.
func (e *Env) criTables2(d *harness.Daemon) (sections []section, runtimes string) {
	const images, pods = "'io.containerd.cri.v1.images'", "'io.containerd.cri.v1.runtime'"
	return []section{
		{images, []string{set("snapshotter", d.Snapshotter)}},
		// Imported by the harness; the suite removes pause:3.9 and checks that
		// it is gone, so pods use another image.
		{images + ".pinned_images", []string{set("sandbox", image.Pause)}},
		{images + ".registry", []string{set("config_path", certsDir(d))}},
		{pods, ofPods},
		{pods + ".cni", []string{fmt.Sprintf("bin_dirs = [%q]", cniBinDir), set("conf_dir", e.network.confDir)}},
		{pods + ".containerd", []string{set("default_runtime_name", harness.Runc.Name)}},
	}, pods + ".containerd.runtimes."
}

// criTables1 is the same for containerd 1.x, whose CRI is one plugin.
func (e *Env) criTables1(d *harness.Daemon) (sections []section, runtimes string) {
	const cri = "'io.containerd.grpc.v1.cri'"
	return []section{
		{cri, append([]string{set("sandbox_image", image.Pause)}, ofPods...)},
		{cri + ".registry", []string{set("config_path", certsDir(d))}},
		{cri + ".cni", []string{set("bin_dir", cniBinDir), set("conf_dir", e.network.confDir)}},
		{cri + ".containerd", []string{set("snapshotter", d.Snapshotter), set("default_runtime_name", harness.Runc.Name)}},
	}, cri + ".containerd.runtimes."
}

// handlers are the runtime handlers, in tables whose names begin with runtimes.
func handlers(d *harness.Daemon, runtimes string) []section {
	sections := []section{
		{runtimes + "runc", []string{set("runtime_type", harness.Runc.Type)}},
		{runtimes + "runc.options", []string{set("BinaryName", runcPath(d.Layout()))}},
	}
	if !d.Runtime().VM {
		return sections
	}
	for _, handler := range []string{KataHandler, ConfiguredHandler} {
		settings := []string{
			set("runtime_type", harness.Kata.Type),
			"privileged_without_host_devices = true",
			"privileged_without_host_devices_all_devices_allowed = true", // containerd 1.6 ignores it
			"pod_annotations = ['io.katacontainers.*']",
		}
		if handler == ConfiguredHandler { // by its path, as kata-runtime install names it
			settings = append(settings, set("runtime_path", d.Layout().Shim()))
		}
		sections = append(sections, section{runtimes + handler, settings})
	}
	sections = append(sections, section{runtimes + ConfiguredHandler + ".options", []string{set("ConfigPath", otherKataConfig(d))}})
	if d.Release().ConfigVersion < 3 {
		return sections
	}
	return append(sections,
		section{runtimes + SandboxHandler, []string{set("runtime_type", harness.Kata.Type), set("sandboxer", "shim")}},
		section{runtimes + SandboxHandler + ".options", []string{set("ConfigPath", otherKataConfig(d))}})
}
