package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
)

// bridge is the node's network interface and the pods' bridge.
const bridge = "pods0"

// programsDir is the first directory of a node's PATH.
const programsDir = "/usr/local/sbin"

// settings are the kernel's settings that the kubelet changes
// (pkg/kubelet/cm/container_manager_linux.go, setupKernelTunables). They are the
// machine's and in no namespace.
var settings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// prepareMachine makes the private host a node: file systems, programs, network,
// cgroups.
func (n *Node) prepareMachine() error {
	for _, dir := range []string{"/var/lib/kubelet", "/var/lib/containerd", "/var/log", programsDir} {
		if err := mountTmpfs(dir); err != nil {
			return err
		}
	}
	steps := []func() error{hideSettings, n.linkPrograms, makeBridge, forwardService, n.makeCgroups, makeSystemctl}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// mountTmpfs gives a directory a file system that can be the upper layer of an
// overlay, and propagates mounts, as the kubelet requires.
func mountTmpfs(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
	}
	return unix.Mount("", dir, "", unix.MS_SHARED, "")
}

// hideSettings covers each setting with a file.
func hideSettings() error {
	for _, name := range settings {
		target, cover := filepath.Join("/proc/sys", name), filepath.Join(Dir, "settings", name)
		value, err := os.ReadFile(target)
		if err == nil {
			err = writeFiles(map[string]string{cover: string(value)})
		}
		if err == nil {
			err = unix.Mount(cover, target, "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("hide the setting %s: %w", name, err)
		}
	}
	return nil
}

// linkPrograms puts the programs of a node into its PATH, before the machine's.
func (n *Node) linkPrograms() error {
	release, err := harness.FindRelease(n.options.Layout, "2.4")
	if err != nil {
		return err
	}
	links := map[string]string{"runc": n.options.Runc, "kubectl": n.tool("kubectl")}
	for _, name := range []string{"containerd", "ctr", "containerd-shim-runc-v2"} {
		links[name] = release.Path(name)
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(programsDir, name)); err != nil {
			return err
		}
	}
	return nil
}

func makeBridge() error {
	for _, args := range []string{"link add " + bridge + " type bridge", "addr add " + nodeIP + "/24 dev " + bridge, "link set " + bridge + " up"} {
		if err := run(exec.Command("ip", strings.Fields(args)...)); err != nil {
			return err
		}
	}
	return nil
}

// makeCgroups makes the cgroup of all pods in each hierarchy. The kubelet requires
// that it exists.
func (n *Node) makeCgroups() error {
	const top = "/sys/fs/cgroup/cgroup.procs" // only version 2 has one there
	hierarchies := []string{top}
	if _, err := os.Stat(top); err != nil {
		if hierarchies, err = filepath.Glob("/sys/fs/cgroup/*/cgroup.procs"); err != nil {
			return err
		}
	}
	for _, procs := range hierarchies {
		err := os.Mkdir(filepath.Join(filepath.Dir(procs), n.options.Cgroup), 0o755)
		if err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make the pods' cgroup: %w", err)
		}
	}
	return nil
}
