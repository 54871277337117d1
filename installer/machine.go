package installer

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"
)

// Paths of the configuration that a pod reads first: the node's own, which the
// installer leaves alone, and the name of the build's.
const (
	ownConfig   = "/etc/kata-containers/configuration.toml"
	buildConfig = "share/defaults/kata-containers/configuration.toml"
)

// Hypervisor has what the installer must know of the program that starts machines.
// Both functions are given a configuration file by its path for this process.
type Hypervisor struct {
	// Machine returns what a pod with that configuration opens on the node, or why
	// no pod starts with it.
	Machine func(file string) (Machine, error)
	// Check returns why no pod of that configuration starts with the node's program,
	// which exists.
	Check func(ctx context.Context, file string, on Node) error
}

// Machine has paths on the node that a configuration names. Kernel and Initrd are
// empty for those of the version, and Firmware is for the program's own.
type Machine struct{ Program, Kernel, Initrd, Firmware string }

// Node is a node for Hypervisor and Factory.
type Node struct {
	// Run runs a program of the node for at most two minutes, and returns its
	// standard output; an exec.ExitError in the error has its standard error.
	Run func(ctx context.Context, program string, args ...string) ([]byte, error)
	// Path returns the path by which this process reaches a path of the node. It has
	// no symbolic link.
	Path func(name string) (string, error)
}

// checkMachine checks that a pod could start a machine on the node: that the
// configuration which it would read is valid, names files that are there, and a
// program with which pods start.
func (o *Options) checkMachine(ctx context.Context, list []file) error {
	n := o.node()
	file, where := source(list, buildConfig), "the default configuration"
	if n.exists(ownConfig) {
		var err error
		if file, err = n.path(ownConfig); err != nil {
			return err
		}
		where = ownConfig
	}
	m, err := o.Hypervisor.Machine(file)
	if err != nil {
		return fmt.Errorf("no pod would start with the node's configuration, correct it first: %w", err)
	}
	if n.program(m.Program) == "" {
		return fmt.Errorf("the node has no %s at %s, which %s names: install QEMU there (Debian: qemu-system-x86), or name another one in %s",
			path.Base(m.Program), m.Program, where, ownConfig)
	}
	for _, f := range []struct{ key, name string }{{"kernel", m.Kernel}, {"initrd", m.Initrd}, {"firmware", m.Firmware}} {
		if f.name != "" && !n.has(f.name, list) {
			return fmt.Errorf("the node has no file %s, which %s names as the %s: correct that, or remove the key %s for the default",
				f.name, where, f.key, f.key)
		}
	}
	if err := o.Hypervisor.Check(ctx, file, o.view()); err != nil {
		return fmt.Errorf("the node's QEMU, %s, starts no pods: %w", m.Program, err)
	}
	return nil
}

// has reports whether the node has a regular file, or will get it with the build.
func (n node) has(name string, list []file) bool {
	for _, dir := range []string{Home, current} {
		if below, ok := strings.CutPrefix(path.Clean(name), dir+"/share/"); ok && source(list, "share/"+below) != "" {
			return true
		}
	}
	path, err := n.path(name)
	if err != nil {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
