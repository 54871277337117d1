package usernet

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// pastaResolver is an address that pasta maps to the host's name server: one that
// no network uses (RFC 3927), so that it also works with a server on the host's
// loopback.
const pastaResolver = "169.254.1.1"

// pastaPause is the time between two checks whether pasta is ready.
const pastaPause = 10 * time.Millisecond

// startPasta starts pasta, which gives the namespace the addresses and routes
// of the host's interface with the default route.
func startPasta(ctx context.Context, n *Net, cfg Config) error {
	n.Resolver = pastaResolver
	log, pid := filepath.Join(cfg.Dir, "pasta.log"), filepath.Join(cfg.Dir, "pasta.pid")
	seen := filepath.Join(pastaFiles, cfg.Dir)
	mountPoint := filepath.Join(seen, "netns")
	args := []string{
		"--config-net", "--foreground", "--quiet", "--pid", filepath.Join(seen, "pasta.pid"),
		// By default pasta runs as "nobody", who could not enter the namespace.
		// As root it still leaves the host's root directory and drops all
		// capabilities that it does not need.
		"--runas", "0",
		"--netns", mountPoint, "--no-netns-quit", "--ns-ifname", "eth0",
		"--dns-forward", pastaResolver, "--no-map-gw",
		"-T", "none", "-U", "none",
	}
	if pastaHas(hostLoopback) {
		args = append(args, hostLoopback)
	}
	args = append(args, pastaPorts("-t", "tcp", cfg.Ports)...)
	args = append(args, pastaPorts("-u", "udp", cfg.Ports)...)
	err := n.launch(Pasta, args, nil, log, func() error {
		if err := showDir(cfg.Dir, seen); err != nil {
			return err
		}
		// pasta opens its namespace by a path after it has given up the right to
		// inspect other processes: the namespace must be a mount.
		if err := os.WriteFile(mountPoint, nil, 0o600); err != nil {
			return err
		}
		return unix.Mount(n.Path(), mountPoint, "", unix.MS_BIND, "")
	})
	if err != nil {
		return err
	}
	return n.awaitFile(ctx, pid, log)
}

// hostLoopback lets what comes from the host's loopback arrive on that of the namespace,
// from where it is forwarded (virtcontainers/forward). Since passt 2024_10_30 pasta uses
// the namespace's own address without it, and has this option (passt(1)).
const hostLoopback = "--host-lo-to-ns-lo"

// pastaHas reports whether the installed pasta knows an option: whether its program has
// the name in it. Its --help does not reach a pipe whole, and an unknown option fills the
// host's syslog with the usage.
func pastaHas(option string) bool {
	path, err := exec.LookPath(Pasta)
	if err != nil {
		return false // the start reports it
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	program, err := io.ReadAll(io.LimitReader(f, maxProgram))
	return err == nil && bytes.Contains(program, []byte(strings.TrimPrefix(option, "--")))
}

// maxProgram bounds how much of pasta is read; it has some 300 KB.
const maxProgram = 16 << 20

// pastaFiles is where the AppArmor profile of distributions' pasta lets it write,
// and not read (contrib/apparmor in passt's source): so it gets its directory there,
// in its own mount namespace, and logs to its standard error instead of a file.
const pastaFiles = "/tmp"

// showDir makes a directory visible at another place, which is below pastaFiles, in
// the mount namespace of the calling thread. What else is in pastaFiles is hidden.
func showDir(dir, at string) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) // it may be below pastaFiles
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer unix.Close(fd)
	if err := unix.Mount("tmpfs", pastaFiles, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=700"); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", pastaFiles, err)
	}
	if err := os.MkdirAll(at, 0o700); err != nil {
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/thread-self/fd/%d", fd), at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", dir, at, err)
	}
	return nil
}

// pastaPorts returns the arguments for one protocol's ports.
func pastaPorts(flag, protocol string, ports []Port) []string {
	var args []string
	for _, p := range ports {
		if p.Protocol != protocol {
			continue
		}
		text := fmt.Sprintf("%d:%d", p.Host, p.Guest)
		if p.Address.IsValid() {
			text = p.Address.String() + "/" + text
		}
		args = append(args, flag, text)
	}
	if args == nil {
		return []string{flag, "none"}
	}
	return args
}

// awaitFile waits until a file has content: pasta writes its pid after everything
// else is done.
func (n *Net) awaitFile(ctx context.Context, path, log string) error {
	tick := time.NewTicker(pastaPause)
	defer tick.Stop()
	for {
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			return nil
		}
		select {
		case <-n.done:
			return n.ended(log)
		case <-ctx.Done():
			return fmt.Errorf("wait until it is ready: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}
