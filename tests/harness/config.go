package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// offPlugins are plugins that would change the host or that no suite here
// needs. opt makes /opt/containerd; the CRI plugins need CNI.
var offPlugins = map[int][]string{
	2: {
		"io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing",
		"io.containerd.tracing.processor.v1.otlp", "io.containerd.snapshotter.v1.aufs",
		"io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
	},
	3: {
		"io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri",
		"io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing",
		"io.containerd.tracing.processor.v1.otlp", "io.containerd.snapshotter.v1.erofs",
		"io.containerd.snapshotter.v1.blockfile",
	},
}

// containerdConfig returns the daemon's configuration file, without what
// Options.Prepare adds.
func (d *Daemon) containerdConfig() string {
	var b strings.Builder
	version := d.release.ConfigVersion
	fmt.Fprintf(&b, "version = %d\nroot = %q\nstate = %q\n", version, d.rootDir(), d.stateDir())
	fmt.Fprintf(&b, "imports = []\ndisabled_plugins = [%s]\n", quoteAll(d.disabledPlugins()))
	fmt.Fprintf(&b, "[debug]\n  level = %q\n", d.logLevel())
	fmt.Fprintf(&b, "[grpc]\n  address = %q\n", d.Socket())
	fmt.Fprintf(&b, "[ttrpc]\n  address = %q\n", d.Socket()+".ttrpc")
	if version >= 3 {
		// Only since 2.x; 1.6 always uses /run/containerd/s.
		fmt.Fprintf(&b, "[plugins.'io.containerd.shim.v1.manager']\n  socket_dir = %q\n", filepath.Join(d.Dir, "s"))
	}
	return b.String()
}

// disabledPlugins returns offPlugins without those that the options request.
func (d *Daemon) disabledPlugins() []string {
	wanted := func(plugin string) bool { return slices.Contains(d.options.Plugins, plugin) }
	return slices.DeleteFunc(slices.Clone(offPlugins[d.release.ConfigVersion]), wanted)
}

func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%q", w)
	}
	return strings.Join(quoted, ", ")
}

func (d *Daemon) logLevel() string {
	if d.options.Debug {
		return "debug"
	}
	return "info"
}

// writeConfigs writes the daemon's and the runtime's configuration.
func (d *Daemon) writeConfigs() error {
	text := d.containerdConfig()
	if d.options.Prepare != nil {
		more, err := d.options.Prepare(d)
		if err != nil {
			return fmt.Errorf("prepare containerd's configuration: %w", err)
		}
		text += more
	}
	if err := os.WriteFile(d.configPath(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write containerd configuration: %w", err)
	}
	if !d.options.Runtime.VM {
		return nil
	}
	return d.options.Kata.Write(d.options.Layout, d.KataConfigPath())
}
