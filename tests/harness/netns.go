package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Netns is the path of a network namespace; empty means the caller's.
type Netns string

// NewNetns makes a network namespace as containerd does, a mount of nsfs, with
// lo up. It lies below the daemon's directory, where the leak check finds it.
// The caller must Remove it.
func (d *Daemon) NewNetns() (Netns, error) {
	ns := Netns(filepath.Join(d.Dir, "netns", d.NewID("ns")))
	if err := os.MkdirAll(filepath.Dir(string(ns)), 0o755); err != nil {
		return "", fmt.Errorf("make network namespace: %w", err)
	}
	if err := os.WriteFile(string(ns), nil, 0o444); err != nil {
		return "", fmt.Errorf("make network namespace: %w", err)
	}
	// unshare(1) mounts the namespace on the file.
	if _, err := Netns("").Run("unshare", "--net="+string(ns), "ip", "link", "set", "lo", "up"); err != nil {
		return "", errors.Join(err, os.Remove(string(ns)))
	}
	return ns, nil
}

// Remove unmounts the namespace; processes in it keep it alive.
func (ns Netns) Remove() error {
	if err := unix.Unmount(string(ns), unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", ns, err)
	}
	return os.Remove(string(ns))
}

// Command returns a host program with arguments, ready to run in the namespace.
func (ns Netns) Command(ctx context.Context, args ...string) *exec.Cmd {
	if ns != "" {
		args = append([]string{"nsenter", "--net=" + string(ns)}, args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
	return cmd
}

// Run runs a host program in the namespace and returns its output. The error
// includes its stderr.
func (ns Netns) Run(args ...string) (string, error) {
	out, err := ns.Command(context.Background(), args...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		err = fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return string(out), err
}

// InNetns puts a container into a network namespace; an empty one gives it a
// new namespace, as Docker does.
func InNetns(ns Netns) oci.SpecOpts {
	return oci.WithLinuxNamespace(specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: string(ns)})
}
