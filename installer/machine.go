package installer

import (
	"context"
	"fmt"
	"path"
)

// Paths of the configuration that a pod reads first: the node's own, which the
// installer leaves alone, and the name of the build's.
const (
	ownConfig   = "/etc/kata-containers/configuration.toml"
	buildConfig = "share/defaults/kata-containers/configuration.toml"
)

// Hypervisor has what the installer must know of the program that starts machines.
type Hypervisor struct {
	// Program returns the program that a pod runs with a configuration file, or why
	// no pod starts with that file.
	Program func(file string) (string, error)
	// Check returns why no pod starts with a program that prints this as its version.
	Check func(printed string) error
}

// checkMachine checks that a pod could start a machine on the node: that the
// configuration which it would read is valid, and names a program that runs there.
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
	program, err := o.Hypervisor.Program(file)
	if err != nil {
		return fmt.Errorf("no pod would start with the node's configuration, correct it first: %w", err)
	}
	if n.program(program) == "" {
		return fmt.Errorf("the node has no %s at %s, which %s names: install QEMU there (Debian: qemu-system-x86), or name another one in %s",
			path.Base(program), program, where, ownConfig)
	}
	printed, err := o.run(ctx, program, "--version")
	if err != nil {
		return fmt.Errorf("the node's QEMU does not run: %w", err)
	}
	if err := o.Hypervisor.Check(string(printed)); err != nil {
		return fmt.Errorf("the node's QEMU, %s, starts no pods: %w", program, err)
	}
	return nil
}
