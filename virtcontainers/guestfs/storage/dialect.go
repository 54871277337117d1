package storage

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/hypervisor/child"
)

// dialect returns the command line of a kind of virtiofsd: it serves a share at
// path to the client that connects to the listener.
type dialect func(path, cache string, listener int) []string

// helpWait bounds how long a daemon may take to print its options, and
// helpBytes how much of them is read.
const (
	helpWait  = 10 * time.Second
	helpBytes = 64 << 10
)

// askDaemon finds the executable behind a path and determines from its help
// text which kind of virtiofsd it is: their version texts have nothing in
// common, their options have.
func askDaemon(ctx context.Context, path string) (executable string, d dialect, err error) {
	if executable, err = filepath.EvalSymlinks(path); err != nil {
		return "", d, fmt.Errorf("find virtiofsd %s: %w", path, err)
	}
	help := child.NewTail(helpBytes)
	p, err := child.Start(child.Options{Path: executable, Args: []string{"--help"}, Stdout: help})
	if err != nil {
		return "", d, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, helpWait, fmt.Errorf("no end within %v", helpWait))
	defer cancel()
	select {
	case <-p.Done():
	case <-ctx.Done():
		_ = abandon(p) // the timeout is the error
		return "", d, fmt.Errorf("ask %s --help: %w", path, context.Cause(ctx))
	}
	said := help.String() + p.Stderr().String()
	switch {
	case strings.Contains(said, "--shared-dir"):
		return executable, rustDialect(said), nil
	case strings.Contains(said, "-o source="):
		return executable, qemuDialect(), nil
	}
	return "", d, fmt.Errorf("%s is not a known virtiofsd (want --shared-dir or -o source= among its options): --help ended with %v%s: %w",
		path, p.ExitState(), tailOf(p), errdefs.ErrInvalidArgument)
}

// qemuDialect is that of the C daemon that QEMU had up to version 7.
func qemuDialect() dialect {
	return func(path, cache string, listener int) []string {
		return []string{
			fmt.Sprintf("--fd=%d", listener),
			"-o", "source=" + path,
			"-o", "sandbox=chroot",
			"-o", "cache=" + qemuCache(cache),
			// Each mount of the share is its own file system in the
			// guest, with its own inode numbers.
			"-o", "announce_submounts",
			// File capabilities are extended attributes.
			"-o", "xattr",
			// The guest's kernel checks who may set a POSIX ACL. Without this
			// it passes the attribute on for any user, and the daemon is root.
			"-o", "posix_acl",
			"-o", "log_level=err",
		}
	}
}

// qemuCache translates Kata's names to QEMU's.
func qemuCache(mode string) string {
	switch mode {
	case "never":
		return "none"
	case "metadata", "":
		return "auto"
	}
	return mode
}

// rustDialect is that of virtiofsd in Rust. It refers to each file by a
// descriptor: file handles would need CAP_DAC_READ_SEARCH, with which it could
// open any file of a file system that the share has a part of.
func rustDialect(help string) dialect {
	return func(path, cache string, listener int) []string {
		args := []string{
			fmt.Sprintf("--fd=%d", listener),
			"--shared-dir=" + path,
			"--sandbox=chroot",
			"--cache=" + rustCache(cache),
			"--announce-submounts",
			"--xattr",
		}
		for _, newer := range [][2]string{
			{"--posix-acl", ""}, {"--inode-file-handles", "=never"}, {"--log-level", "=error"},
		} {
			if strings.Contains(help, newer[0]) {
				args = append(args, newer[0]+newer[1])
			}
		}
		return args
	}
}

// rustCache translates Kata's names to those of the daemon in Rust. Its own
// "metadata", of release 1.11 and later, lets the guest cache a file's size for
// a day (seen with 1.13.2, tests/containerd's TestVirtioFSCache): if a file
// grows on the host, the guest would not see more of it.
func rustCache(mode string) string {
	if mode == "" || mode == "metadata" {
		return "auto"
	}
	return mode
}
